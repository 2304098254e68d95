//! `pkhash dump`

use std::path::PathBuf;

use pkhash_std::Snapshot;

use crate::fail::{Outcome, Result};
use crate::output::{ListArgs, Output, Shown};
use crate::records::for_each_record;
use crate::tables::check_one;
use crate::ui::OpenArgs;

/// Print all keys and values as `key TAB value`, in the order of the table.
///
/// Of an index: what `get` finds, each key once, table after table.
///
/// `build --pairs`, with the options that the table was built with, makes the same table of them, if
/// its values are integers, or with `--set`, if it has none.
///
/// Of a damaged table the part before the damage is printed, then an error: exit code 2.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The table, or the folder of an index.
    table: PathBuf,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    open: OpenArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        if let Some(index) = self.open.index(&self.table)? {
            return self.dump_index(&index.snapshot());
        }
        check_one(&self.table)?;
        let file = self.open.open(&self.table)?;
        let kind = file.footer().value().kind();
        let mut out = Output::new();
        let dumped = for_each_record(&file, |key, value| {
            self.list.print(key, Shown::Value(kind, value), &mut out)
        });
        // What came before a fault is sound.
        let flushed = out.flush();
        dumped.and(flushed)?;
        Ok(Outcome::Done)
    }

    fn dump_index(&self, snapshot: &Snapshot) -> Result<Outcome> {
        let set = snapshot.set();
        let mut out = Output::new();
        let dumped = set.segments().iter().enumerate().try_for_each(|(number, segment)| {
            let file = segment.table();
            let kind = file.footer().value().kind();
            for_each_record(file, |key, value| {
                // Neither a deleted doc nor one of a key that a newer table has.
                match set.get(key)? {
                    Some(hit) if hit.segment() == number => {
                        self.list.print(key, Shown::Value(kind, value), &mut out)
                    }
                    _ => Ok(()),
                }
            })
        });
        let flushed = out.flush();
        dumped.and(flushed)?;
        Ok(Outcome::Done)
    }
}
