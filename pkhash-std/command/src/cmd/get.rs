//! `pkhash get`

use std::io::Write;

use pkhash_std::{SegmentSet, TableFile, Value};
use serde_json::json;

use crate::fail::{Outcome, Result};
use crate::keys::{KeysArgs, longest_key};
use crate::output::{Name, Output, json_value, write_value};
use crate::tables::TablesArgs;

/// Look up keys: prints `key TAB value`, or with several tables, or a folder, `key TAB table TAB value`.
///
/// The first table that has a key answers; if its doc is deleted, the next one that has it. Exit code 1: a
/// key was in none of them. Keys are read as they are: to look up what `dump` has printed as \x…, use
/// `--hex` for both.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    tables: TablesArgs,
    #[command(flatten)]
    keys: KeysArgs,
    /// List absent keys too: alone on their line, in JSON with the value null. A line of `--keys` that is
    /// longer than 4 KiB and than all keys of the tables is cut to about that length.
    #[arg(long)]
    missing: bool,
    /// Print an object of JSON for each key.
    #[arg(long)]
    json: bool,
}

/// Keys that are looked up together.
const BATCH: usize = 4096;

/// They are fewer if they may take more memory than this.
const BATCH_BYTES: usize = 16 << 20;

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let set = self.tables.set()?;
        let named = self.tables.named()?;
        let mut out = Output::new();
        let mut all_found = true;
        let most = (BATCH_BYTES / longest_key(&set).max(1)).clamp(1, BATCH);
        self.keys.batches(&set, most, |keys| {
            all_found &= self.look_up(&set, named, keys, &mut out)?;
            Ok(())
        })?;
        out.flush()?;
        Ok(if all_found { Outcome::Done } else { Outcome::NotFound })
    }

    /// Looks up a batch and prints the answers in the order of the keys. Returns whether all were found.
    fn look_up(
        &self,
        set: &SegmentSet,
        named: bool,
        keys: &[&[u8]],
        out: &mut Output,
    ) -> Result<bool> {
        let mut answers = vec![None::<pkhash_std::Hit<'_>>; keys.len()];
        let found = set.get_batch(keys, &mut answers)?;
        for (key, answer) in keys.iter().zip(answers) {
            let answer =
                answer.map(|answer| (&**set.segments()[answer.segment()].table(), answer.value()));
            if answer.is_none() && !self.missing {
                continue;
            }
            if self.json {
                self.print_json(key, answer, out)?;
            } else {
                self.print(named, key, answer, out)?;
            }
        }
        Ok(found == keys.len())
    }

    fn print(
        &self,
        named: bool,
        key: &[u8],
        answer: Option<(&TableFile, Value<'_>)>,
        out: &mut Output,
    ) -> Result<()> {
        out.with(|out| {
            self.keys.form.write(key, out)?;
            if let Some((table, value)) = answer {
                if named {
                    write!(out, "\t{}", Name(table.name()))?;
                }
                out.write_all(b"\t")?;
                write_value(table.footer().value().kind(), value, out)?;
            }
            out.write_all(&[self.keys.form.separator()])
        })
    }

    fn print_json(
        &self,
        key: &[u8],
        answer: Option<(&TableFile, Value<'_>)>,
        out: &mut Output,
    ) -> Result<()> {
        let key = self.keys.form.json(key);
        out.line(match answer {
            Some((table, value)) => json!({
                "key": key,
                "table": Name(table.name()).to_string(),
                "value": json_value(table.footer().value().kind(), value),
            }),
            None => json!({ "key": key, "value": null }),
        })
    }
}
