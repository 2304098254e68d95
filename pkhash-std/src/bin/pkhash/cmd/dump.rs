//! `pkhash dump`

use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use crate::fail::{Answer, Result};
use crate::output::{KeyArgs, Output, json_value, write_value};
use crate::ui::OpenArgs;

/// Print all keys and values as `key TAB value`, in the order of the table.
///
/// `build --pairs`, with the options that the table was built with, makes the same table of them, if
/// its values are integers, or with `--set`, if it has none.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The table.
    table: PathBuf,
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
        let file = self.open.open(&self.table)?;
        let kind = file.footer().value.kind();
        let mut out = Output::new();
        for record in &file.table() {
            let (key, value) = record.map_err(|source| pkhash_std::Error::Table {
                path: Some(self.table.clone()),
                source,
            })?;
            if self.json {
                out.line(json!({ "key": self.form.json(key), "value": json_value(kind, value) }))?;
                continue;
            }
            out.with(|out| {
                self.form.write(key, out)?;
                out.write_all(b"\t")?;
                write_value(kind, value, out)?;
                out.write_all(&[self.form.separator()])
            })?;
        }
        out.flush()?;
        Ok(Answer::Done)
    }
}
