//! `pkhash range`

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

use pkhash_std::{OrderedTerms, Snapshot, TableFile, Terms, ValueKind, companion_path};

use crate::fail::{Fail, Outcome, Result};
use crate::keys::read_key;
use crate::output::{ListArgs, Output, Shown};
use crate::tables::check_one;
use crate::ui::OpenArgs;

/// Print the keys of a range in term order, as `key TAB value`. The table needs an ordered companion:
/// `build --ordered` makes one.
///
/// Exit code 1: there are none. Keys are read as by `get`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ordered: OrderedArgs,
    /// Begin with this key, or the first one after it.
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End before this key.
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

/// What `range` and `prefix` share.
#[derive(clap::Args)]
pub(super) struct OrderedArgs {
    /// The table, or the folder of an index, all of whose tables have companions: what `get` finds is printed.
    table: PathBuf,
    /// Print this many keys at most.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Do not read and check the whole companion first. Of a damaged one the answers may then be wrong, or
    /// the search not end.
    #[arg(long)]
    trust: bool,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    open: OpenArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let from = self.from.as_deref().map(|key| self.ordered.key(key)).transpose()?;
        let to = self.to.as_deref().map(|key| self.ordered.key(key)).transpose()?;
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.ordered.search(|terms| terms.range((from, to)))
    }
}

impl OrderedArgs {
    /// Opens the table, and prints the keys that are found in its companion.
    pub(super) fn search<F>(&self, find: F) -> Result<Outcome>
    where
        F: Fn(&OrderedTerms) -> Terms<'_>,
    {
        let index = self.open.index(&self.table)?;
        if index.is_none() {
            check_one(&self.table)?;
        }
        let search = || {
            if let Some(index) = &index {
                return self.search_index(&index.snapshot(), &find);
            }
            let (table, terms) = self.open.open_pair(&self.table, self.trust)?;
            self.print(&table, find(&terms))
        };
        if !self.trust {
            return search();
        }
        // In a damaged companion, trusted, the search may panic: the damage is not a fault of ours.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        let searched = panic::catch_unwind(AssertUnwindSafe(search));
        panic::set_hook(hook);
        searched.unwrap_or_else(|_| {
            let path = companion_path(&self.table);
            let path = path.display();
            Err(Fail::message(format_args!("{path}: damaged (it was opened with --trust)")))
        })
    }

    /// The keys of all companions, in order, each once.
    fn search_index<F>(&self, snapshot: &Snapshot, find: &F) -> Result<Outcome>
    where
        F: Fn(&OrderedTerms) -> Terms<'_>,
    {
        let set = snapshot.set();
        let mut companions = Vec::with_capacity(set.len());
        for segment in set.segments() {
            companions.push(self.open.open_beside(segment.table(), self.trust)?);
        }
        let mut found: Vec<Terms<'_>> = companions.iter().map(find).collect();
        // The next key of each.
        let mut next: BinaryHeap<Reverse<(Vec<u8>, usize)>> = BinaryHeap::new();
        let mut advance = |segment: usize, next: &mut BinaryHeap<_>| {
            if let Some((key, _)) = found[segment].advance() {
                next.push(Reverse((key.to_vec(), segment)));
            }
        };
        (0..set.len()).for_each(|segment| advance(segment, &mut next));
        let mut out = Output::new();
        let mut printed = 0;
        while self.limit.is_none_or(|limit| printed < limit)
            && let Some(Reverse((key, segment))) = next.pop()
        {
            advance(segment, &mut next);
            while next.peek().is_some_and(|Reverse((other, _))| *other == key) {
                let Some(Reverse((_, other))) = next.pop() else { break };
                advance(other, &mut next);
            }
            // Deleted docs are in the companions.
            if let Some(hit) = set.get(&key)? {
                printed += 1;
                let kind = set.segments()[hit.segment()].table().footer().value().kind();
                self.list.print(&key, Shown::Value(kind, hit.value()), &mut out)?;
            }
        }
        out.flush()?;
        Ok(if printed > 0 { Outcome::Done } else { Outcome::NotFound })
    }

    /// A key on the command line.
    pub(super) fn key(&self, key: &OsStr) -> Result<Vec<u8>> {
        Ok(read_key(self.list.form, key, &mut Vec::new())?.to_vec())
    }

    fn print(&self, table: &TableFile, mut terms: Terms<'_>) -> Result<Outcome> {
        let kind = table.footer().value().kind();
        let mut out = Output::new();
        let mut printed = 0;
        while self.limit.is_none_or(|limit| printed < limit)
            && let Some((key, doc)) = terms.advance()
        {
            printed += 1;
            // The companion has but the doc ID of a versioned value.
            let whole = match kind {
                ValueKind::Integer => None,
                _ => table.get(key)?,
            };
            let value = whole.map_or(Shown::Integer(doc), |value| Shown::Value(kind, value));
            self.list.print(key, value, &mut out)?;
        }
        out.flush()?;
        Ok(if printed > 0 { Outcome::Done } else { Outcome::NotFound })
    }
}
