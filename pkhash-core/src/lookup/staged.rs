//! [`Lookup`]: the stages as a state machine that does no I/O.

use core::ops::Range;

use super::perfect::{PilotPlace, exceptions, record_in};
use super::probed::{Probe, ProbePlace};
use super::{filter_word, past_the_body};
use crate::error::{Error, Result};
use crate::format::bytes_at;
use crate::format::directory::Directory;
use crate::format::footer::Footer;
use crate::hash;
use crate::kernel::{GROUP_MAX, match_line};
use crate::layout::perfect::{OFFSET_LINE, Perfect};
use crate::layout::{Layout, Probed};
use crate::value::Value;

/// Bytes that a [`Lookup`] needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Want {
    /// What they are for.
    pub stage: Stage,
    /// Their offset in the table.
    pub offset: u64,
    /// How many.
    pub len: usize,
}

/// The stages that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// One word of the filter: 8 bytes.
    Filter,
    /// A line of control bytes: [`GROUP_MAX`] bytes, at a multiple of as many.
    Control,
    /// A slot word: 8 bytes.
    SlotWord,
    /// A pilot: 1 byte. The pilots of a table are few bytes for each key: worth keeping in memory.
    Pilot,
    /// An offset line: 64 bytes, at a multiple of as many.
    OffsetLine,
    /// A record.
    Record,
}

/// One lookup that leaves reading to its caller: the stages of a lookup made explicit, for tables that
/// are not in memory. Only the footer must be (see [`Footer::parse`]).
///
/// Ask [`want`](Self::want) which bytes come next, read them, hand them to
/// [`supply`](Self::supply); `want` answers `None` when the key is known to be absent.
///
/// ```
/// # use pkhash_core::{Error, Footer, Lookup};
/// # fn demo(footer: &Footer, footer_bytes: &[u8], read: impl Fn(u64, usize) -> Vec<u8>) -> Result<(), Error> {
/// let mut lookup = Lookup::new(footer, footer_bytes, b"some key")?;
/// while let Some(want) = lookup.want() {
///     let bytes = read(want.offset, want.len);
///     if let Some(value) = lookup.supply(&bytes)? {
///         println!("{:?}", value.doc_id());
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lookup<'k> {
    footer: Footer,
    key: &'k [u8],
    state: State,
    filter_mask: u64,
    want: Option<Want>,
}

/// How far a lookup has come.
#[derive(Clone, Debug)]
enum State {
    /// The layout does not take the key.
    Absent,
    /// Inline, term-order.
    Probe(Probe),
    /// Perfect. `slot`: the one whose record is wanted; `exceptions`: those that come after it.
    Perfect { place: PilotPlace, slot: u32, exceptions: Range<u32> },
}

impl<'k> Lookup<'k> {
    /// Begins the lookup of a key. `footer_bytes` are the table's last [`Footer::footer_len`] bytes.
    ///
    /// # Errors
    /// [`Error::WrongLength`] if they are not as many.
    pub fn new(footer: &Footer, footer_bytes: &[u8], key: &'k [u8]) -> Result<Self> {
        if footer_bytes.len() != footer.footer_len() {
            return Err(Error::WrongLength {
                expected: footer.footer_len() as u64,
                found: footer_bytes.len() as u64,
            });
        }
        let directory = Directory::new(footer_bytes, footer.partition_bits);
        let hash = footer.hasher.hash(key);
        let state = match footer.layout {
            Layout::Inline => State::probe(footer.inline(), footer, &directory, hash, key),
            Layout::TermOrder => State::probe(footer.term_order(), footer, &directory, hash, key),
            Layout::Perfect if footer.has_offset_lines() => {
                State::perfect(footer.spans(), footer, &directory, hash, key)
            }
            Layout::Perfect => State::perfect(footer.fixed(), footer, &directory, hash, key),
        };
        let (offset, filter_mask) = filter_word(footer.partition_bits, &directory, hash);
        let first = state.first();
        // A key that no read can find needs none.
        let want = match first {
            Some(_) if footer.filter_bits != 0 => {
                Some(Want { stage: Stage::Filter, offset, len: 8 })
            }
            first => first,
        };
        Ok(Self { footer: *footer, key, state, filter_mask, want })
    }

    /// The bytes that are needed next; `None` once the key is known to be absent, or was found.
    #[must_use]
    pub const fn want(&self) -> Option<Want> {
        self.want
    }

    /// Looks at the bytes that were wanted. Returns the value once it is found: part of `bytes`.
    ///
    /// # Errors
    /// [`Error::WrongLength`] if `bytes` is not as long as was wanted; [`Error::Corrupt`] for a slot
    /// word or an offset line that points outside of the table.
    pub fn supply<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<Value<'b>>> {
        let Some(want) = self.want else { return Ok(None) };
        let wrong = Error::WrongLength { expected: want.len as u64, found: bytes.len() as u64 };
        if bytes.len() != want.len {
            return Err(wrong);
        }
        if want.stage == Stage::Filter {
            let word = u64::from_le_bytes(*bytes_at(bytes, 0).ok_or(wrong)?);
            let admitted = word & self.filter_mask == self.filter_mask;
            self.want = if admitted { self.state.first() } else { None };
            return Ok(None);
        }
        let step = Step { footer: &self.footer, key: self.key, stage: want.stage, bytes };
        let (value, want) = match (&mut self.state, self.footer.layout) {
            (State::Absent, _) => (None, None),
            (State::Probe(probe), Layout::Inline) => step.probe(self.footer.inline(), probe)?,
            (State::Probe(probe), _) => step.probe(self.footer.term_order(), probe)?,
            (State::Perfect { place, slot, exceptions }, _) if self.footer.has_offset_lines() => {
                step.perfect(self.footer.spans(), place, slot, exceptions)?
            }
            (State::Perfect { place, slot, exceptions }, _) => {
                step.perfect(self.footer.fixed(), place, slot, exceptions)?
            }
        };
        self.want = want;
        Ok(value.map(Value::new))
    }
}

impl State {
    fn probe<R: Probed>(
        records: R,
        footer: &Footer,
        directory: &Directory<'_>,
        hash: u64,
        key: &[u8],
    ) -> Self {
        let taken = records.takes(key);
        let place = ProbePlace::of::<R>(directory, footer.partition_bits, hash, taken);
        Self::Probe(Probe::new(hash, place))
    }

    fn perfect<R: Perfect>(
        records: R,
        footer: &Footer,
        directory: &Directory<'_>,
        hash: u64,
        key: &[u8],
    ) -> Self {
        if !records.takes(key) {
            return Self::Absent;
        }
        let bits = footer.partition_bits;
        let place = PilotPlace::of::<R>(directory, bits, hash);
        Self::Perfect { place, slot: 0, exceptions: exceptions(directory, bits, hash) }
    }

    /// What is wanted first, behind the filter.
    fn first(&self) -> Option<Want> {
        match self {
            Self::Absent => None,
            Self::Probe(probe) => next_group(probe),
            Self::Perfect { place, .. } if place.is_empty() => None,
            Self::Perfect { place, .. } => {
                Some(Want { stage: Stage::Pilot, offset: place.pilot_at, len: 1 })
            }
        }
    }
}

fn next_group(probe: &Probe) -> Option<Want> {
    (!probe.last).then(|| Want {
        stage: Stage::Control,
        offset: probe.group_at(GROUP_MAX as u32),
        len: GROUP_MAX,
    })
}

/// What was supplied to a lookup.
struct Step<'l, 'b> {
    footer: &'l Footer,
    key: &'l [u8],
    stage: Stage,
    bytes: &'b [u8],
}

/// The value, or what is wanted next.
type Next<'b> = (Option<&'b [u8]>, Option<Want>);

impl<'b> Step<'_, 'b> {
    /// The first bytes of what was supplied, which is as long as was wanted.
    fn array<const N: usize>(&self) -> Result<&'b [u8; N]> {
        let found = self.bytes.len() as u64;
        bytes_at(self.bytes, 0).ok_or(Error::WrongLength { expected: N as u64, found })
    }

    fn probe<R: Probed>(&self, records: R, probe: &mut Probe) -> Result<Next<'b>> {
        let want = match self.stage {
            Stage::Control => {
                // Reading it took so much longer that the scalar kernel will do.
                let found = match_line(self.array()?, hash::control(probe.hash));
                probe.note(GROUP_MAX as u32, found);
                self.next_candidate(records, probe)?
            }
            Stage::SlotWord => {
                let word = u64::from_le_bytes(*self.array()?);
                self.candidate_record(records, probe, word)?
            }
            _ => {
                if let Some(value) = records.value(self.bytes, self.key) {
                    return Ok((Some(value), None));
                }
                probe.reject();
                self.next_candidate(records, probe)?
            }
        };
        Ok((None, want))
    }

    /// The candidate's slot word or record, or the next group.
    fn next_candidate<R: Probed>(&self, records: R, probe: &mut Probe) -> Result<Option<Want>> {
        if probe.hits == 0 {
            return Ok(next_group(probe));
        }
        if R::SLOT_WORDS {
            let offset = probe.place.slot_word_at(probe.candidate());
            return Ok(Some(Want { stage: Stage::SlotWord, offset, len: 8 }));
        }
        self.candidate_record(records, probe, 0)
    }

    /// The candidate's record; the next candidate if this one cannot be it.
    fn candidate_record<R: Probed>(
        &self,
        records: R,
        probe: &mut Probe,
        word: u64,
    ) -> Result<Option<Want>> {
        let slot = probe.candidate();
        if let Some(offset) = probe.place.record_at(records, probe.hash, slot, word)
            && let Some(want) = self.record(offset, records.record_len(self.key))?
        {
            return Ok(Some(want));
        }
        // At most GROUP_MAX candidates deep.
        probe.reject();
        self.next_candidate(records, probe)
    }

    /// A record of this length; `None` if it is so near the end of the body that it is a shorter one.
    fn record(&self, offset: u64, len: usize) -> Result<Option<Want>> {
        let end = self.footer.directory_at;
        let left = end
            .checked_sub(offset)
            .ok_or_else(|| past_the_body("record past the end of the body", offset, end))?;
        Ok((len as u64 <= left).then_some(Want { stage: Stage::Record, offset, len }))
    }

    fn perfect<R: Perfect>(
        &self,
        records: R,
        place: &PilotPlace,
        slot: &mut u32,
        exceptions: &mut Range<u32>,
    ) -> Result<Next<'b>> {
        let len = records.record_len(self.key);
        let mut at = None;
        match self.stage {
            Stage::Pilot => {
                *slot = place.slot(self.array::<1>()?[0]);
                return Ok((None, self.slot(records, place, *slot)?));
            }
            Stage::OffsetLine => {
                let line = self.array::<OFFSET_LINE>()?;
                at = record_in(place.records_at, records, line, *slot, self.key);
            }
            _ => {
                if let Some(value) = records.value(self.bytes, self.key) {
                    return Ok((Some(value), None));
                }
            }
        }
        if let Some(at) = at
            && let Some(want) = self.record(at, len)?
        {
            return Ok((None, Some(want)));
        }
        // Not in this slot: on to the next exception, if there are any.
        for exception in exceptions {
            *slot = exception;
            if let Some(want) = self.slot(records, place, *slot)? {
                return Ok((None, Some(want)));
            }
        }
        Ok((None, None))
    }

    /// The offset line or the record of a slot. `open` has checked that they lie in the body.
    fn slot<R: Perfect>(&self, records: R, place: &PilotPlace, slot: u32) -> Result<Option<Want>> {
        if R::OFFSET_LINES {
            let offset = place.line_at(slot);
            return Ok(Some(Want { stage: Stage::OffsetLine, offset, len: OFFSET_LINE }));
        }
        self.record(place.record_at(records, slot), records.record_len(self.key))
    }
}
