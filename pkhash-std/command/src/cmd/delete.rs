//! `pkhash delete`

use std::path::PathBuf;

use super::add::{name_table, report};
use crate::fail::{Outcome, Result};
use crate::keys::KeysArgs;
use crate::ui;

/// Delete the docs of keys from an index: in all of its tables, so that `get` and `in-set` do not find them.
///
/// The keys stay in the files until `compact` merges them away. A key that is not there is no error. Keys are read as
/// by `get`, and are all held in memory.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder.
    folder: PathBuf,
    #[command(flatten)]
    keys: KeysArgs,
    /// Print a report in JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let cancel = ui::Cancel::new()?;
        let index = ui::open_index(&self.folder)?;
        let mut writer = ui::writer(&index, &cancel)?;
        let mut deleted = 0;
        let set = writer.set()?;
        cancel.at_once(|| {
            self.keys.batches(&set, usize::MAX, |keys| {
                deleted += writer.delete(keys).map_err(|error| name_table(&set, error))?;
                Ok(())
            })
        })?;
        cancel.check()?;
        let committed = writer.commit()?;
        report(&index, committed, Some(deleted), self.json)?;
        Ok(Outcome::Done)
    }
}
