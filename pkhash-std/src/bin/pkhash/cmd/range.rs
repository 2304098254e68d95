//! `pkhash range`

use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::path::PathBuf;

use pkhash_std::{OrderedTerms, TableFile, Terms, ValueKind};

use crate::fail::{Answer, Result};
use crate::keys::read_key;
use crate::output::{ListArgs, Output, Shown};
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
    /// the search end in a crash.
    #[arg(long)]
    trust: bool,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    open: OpenArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<Answer> {
        let (table, terms) = self.ordered.open()?;
        let from = self.from.as_deref().map(|key| self.ordered.key(key)).transpose()?;
        let to = self.to.as_deref().map(|key| self.ordered.key(key)).transpose()?;
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.ordered.print(&table, terms.range((from, to)))
    }
}

impl OrderedArgs {
    pub(super) fn open(&self) -> Result<(TableFile, OrderedTerms)> {
        let table = self.open.open(&self.table)?;
        let terms = self.open.open_companion(&table, self.trust)?;
        Ok((table, terms))
    }

    /// A key on the command line.
    pub(super) fn key(&self, key: &OsStr) -> Result<Vec<u8>> {
        Ok(read_key(self.list.form, key, &mut Vec::new())?.to_vec())
    }

    pub(super) fn print(&self, table: &TableFile, mut terms: Terms<'_>) -> Result<Answer> {
        let kind = table.footer().value.kind();
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
        Ok(if printed > 0 { Answer::Done } else { Answer::NotFound })
    }
}
