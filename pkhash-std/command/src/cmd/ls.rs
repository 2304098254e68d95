//! `pkhash ls`

use std::path::PathBuf;

use serde_json::json;

use crate::fail::{Outcome, Result};
use crate::output::Output;
use crate::ui;

/// List the tables of an index, the newest first: `table TAB keys TAB docs TAB deleted TAB bytes`.
///
/// Docs are one more than the greatest doc ID of a table, deleted ones included; `-`: its values are no doc IDs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder.
    folder: PathBuf,
    /// Print an object of JSON for each table.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let index = ui::open_index(&self.folder)?;
        let snapshot = index.snapshot();
        let mut out = Output::new();
        for segment in snapshot.segments() {
            if self.json {
                out.line(json!({
                    "table": segment.name,
                    "keys": segment.keys,
                    "docs": segment.docs,
                    "deleted": segment.deleted,
                    "doc_base": segment.doc_base,
                    "bytes": segment.bytes,
                    "snapshot": snapshot.number(),
                }))?;
                continue;
            }
            let docs = segment.docs.map_or_else(|| "-".to_owned(), |docs| docs.to_string());
            out.line(format_args!(
                "{}\t{}\t{docs}\t{}\t{}",
                segment.name, segment.keys, segment.deleted, segment.bytes
            ))?;
        }
        out.flush()?;
        Ok(Outcome::Done)
    }
}
