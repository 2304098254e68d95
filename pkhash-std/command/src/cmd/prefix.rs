//! `pkhash prefix`

use std::ffi::OsString;

use super::range::OrderedArgs;
use crate::fail::{Outcome, Result};

/// Print the keys that begin with a prefix in term order, as `key TAB value`. The table needs an ordered
/// companion: `build --ordered` makes one.
///
/// Exit code 1: there are none. The prefix is read as `get` reads keys.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ordered: OrderedArgs,
    /// The prefix.
    prefix: OsString,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let prefix = self.ordered.key(&self.prefix)?;
        self.ordered.search(|terms| terms.prefix(&prefix))
    }
}
