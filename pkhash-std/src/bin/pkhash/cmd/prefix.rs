//! `pkhash prefix`

use std::ffi::OsString;

use super::range::ListArgs;
use crate::fail::{Answer, Result};

/// Print the keys that begin with a prefix in term order, as `key TAB value`. The table needs an ordered
/// companion: `build --ordered` makes one.
///
/// Exit code 1: there are none. The prefix is read as `get` reads keys.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    list: ListArgs,
    /// The prefix.
    prefix: OsString,
}

impl Args {
    pub(crate) fn run(self) -> Result<Answer> {
        let (table, terms) = self.list.open()?;
        let prefix = self.list.key(&self.prefix)?;
        self.list.print(&table, terms.prefix(&prefix))
    }
}
