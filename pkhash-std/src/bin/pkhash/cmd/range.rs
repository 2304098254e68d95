//! `pkhash range`

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::Bound;
use std::path::PathBuf;

use pkhash_std::{OrderedTerms, TableFile, Terms, ValueKind};
use serde_json::json;

use crate::fail::{Answer, Fail, Result};
use crate::output::{KeyArgs, Output, json_value, write_value};
use crate::ui::OpenArgs;

/// Print the keys of a range in term order, as `key TAB value`. The table needs an ordered companion:
/// `build --ordered` makes one.
///
/// Exit code 1: there are none. Keys are read as by `get`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    list: ListArgs,
    /// Begin with this key, or the first one after it.
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End before this key.
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

/// What `range` and `prefix` share.
#[derive(clap::Args)]
pub(super) struct ListArgs {
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
    form: KeyArgs,
    /// Print an object of JSON for each key.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: OpenArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<Answer> {
        let (table, terms) = self.list.open()?;
        let from = self.from.as_deref().map(|key| self.list.key(key)).transpose()?;
        let to = self.to.as_deref().map(|key| self.list.key(key)).transpose()?;
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.list.print(&table, terms.range((from, to)))
    }
}

impl ListArgs {
    pub(super) fn open(&self) -> Result<(TableFile, OrderedTerms)> {
        let table = self.open.open(&self.table)?;
        let terms = self.open.open_companion(&table, self.trust)?;
        Ok((table, terms))
    }

    /// A key on the command line.
    pub(super) fn key(&self, key: &OsStr) -> Result<Vec<u8>> {
        let mut buffer = Vec::new();
        let key =
            self.form.read_line(key.as_encoded_bytes(), &mut buffer).map_err(Fail::message)?;
        Ok(key.to_vec())
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
            if self.json {
                let value = whole.map_or_else(|| doc.into(), |value| json_value(kind, value));
                out.line(json!({ "key": self.form.json(key), "value": value }))?;
                continue;
            }
            out.with(|out| {
                self.form.write(key, out)?;
                out.write_all(b"\t")?;
                match whole {
                    Some(value) => write_value(kind, value, out)?,
                    None => write!(out, "{doc}")?,
                }
                out.write_all(&[self.form.separator()])
            })?;
        }
        out.flush()?;
        Ok(if printed > 0 { Answer::Done } else { Answer::NotFound })
    }
}
