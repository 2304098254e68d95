//! `pkhash range`

use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

use pkhash_std::{OrderedTerms, TableFile, Terms, ValueKind, companion_path};

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
    /// The table.
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
        F: FnOnce(&OrderedTerms) -> Terms<'_>,
    {
        check_one(&self.table)?;
        let search = || {
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
