//! Regular expressions over keys.

use fst::Automaton;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};
use regex_automata::{Anchored, MatchKind, nfa::thompson};

use crate::error::{Error, Result};

/// Bytes that a pattern's automaton may take, and as many again while it is made: `\pL{100}` would take
/// gigabytes.
const MAX_BYTES: usize = 16 << 20;

/// A regular expression that keys match as a whole, for
/// [`OrderedTerms::automaton`](crate::OrderedTerms::automaton).
///
/// The automaton is regex-automata's dense one; its crate has none for the fst crate.
#[derive(Clone, Debug)]
pub struct KeyRegex {
    dfa: dense::DFA<Vec<u32>>,
    start: StateID,
}

impl KeyRegex {
    /// Compiles a pattern. `.` and classes are of Unicode characters, unless `(?-u)` makes them bytes.
    ///
    /// # Errors
    /// [`Error::Pattern`] if it is not a regular expression, its automaton would take more than 16 MiB, or it
    /// has a Unicode word boundary, which no such automaton can find.
    pub fn new(pattern: &str) -> Result<Self> {
        // Of all matches, not of the one that a search from left to right prefers: `a|ab` matches `ab`.
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Anchored)
            .dfa_size_limit(Some(MAX_BYTES))
            .determinize_size_limit(Some(MAX_BYTES));
        let dfa = dense::Builder::new()
            .configure(config)
            // Keys may be any bytes.
            .syntax(syntax::Config::new().utf8(false))
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(MAX_BYTES)))
            .build(pattern)
            .map_err(|error| Error::Pattern { cause: all_causes(&error) })?;
        let start = dfa
            .start_state(&start::Config::new().anchored(Anchored::Yes))
            .map_err(|error| Error::Pattern { cause: all_causes(&error) })?;
        Ok(Self { dfa, start })
    }
}

/// A message with those of its sources, which say what is wrong.
fn all_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Where a [`KeyRegex`] is, some way into a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyRegexState(StateID);

impl Automaton for KeyRegex {
    type State = KeyRegexState;

    fn start(&self) -> KeyRegexState {
        KeyRegexState(self.start)
    }

    fn is_match(&self, state: &KeyRegexState) -> bool {
        // Matches are reported one step late, here at the end of the key.
        self.dfa.is_match_state(self.dfa.next_eoi_state(state.0))
    }

    fn can_match(&self, state: &KeyRegexState) -> bool {
        !self.dfa.is_dead_state(state.0) && !self.dfa.is_quit_state(state.0)
    }

    fn accept(&self, state: &KeyRegexState, byte: u8) -> KeyRegexState {
        KeyRegexState(self.dfa.next_state(state.0, byte))
    }
}
