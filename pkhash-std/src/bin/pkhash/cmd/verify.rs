//! `pkhash verify`

use std::path::{Path, PathBuf};

use indicatif::HumanCount;
use serde_json::json;

use crate::fail::{Answer, Fail, Result};
use crate::output::Output;
use crate::ui::{self, OpenArgs};

/// Read tables whole and check everything: checksums, the place of every key, all counts. So are the
/// ordered companions beside them, if there are any.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tables.
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// Print an object of JSON for each table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: OpenArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<Answer> {
        let mut out = Output::new();
        let mut faulty = 0;
        for path in &self.tables {
            let checked = self.check(path);
            if let Err(fail) = &checked {
                faulty += 1;
                eprintln!("pkhash: {fail}");
            }
            let table = path.display().to_string();
            match (checked, self.json) {
                (Ok((keys, ordered)), true) => {
                    out.line(
                        json!({ "table": table, "ok": true, "keys": keys, "ordered": ordered }),
                    )?;
                }
                (Ok((keys, ordered)), false) => {
                    let more = if ordered { ", ordered companion ok" } else { "" };
                    out.line(format_args!("{table}: ok, {} keys{more}", HumanCount(keys)))?;
                }
                (Err(fail), true) => {
                    out.line(json!({ "table": table, "ok": false, "error": fail.to_string() }))?;
                }
                (Err(_), false) => {}
            }
        }
        out.flush()?;
        if faulty > 0 {
            let all = self.tables.len();
            return Err(Fail::message(format_args!("{faulty} of {all} tables are faulty")));
        }
        Ok(Answer::Done)
    }

    /// Returns the number of keys, and whether there is a companion.
    fn check(&self, path: &Path) -> Result<(u64, bool)> {
        let file = self.open.open(path)?;
        let bar = ui::bar("verifying", file.footer().partitions().into());
        let verified = file.table().verify_with(|_| bar.inc(1));
        bar.finish_and_clear();
        verified.map_err(|source| pkhash_std::Error::Table { path: Some(path.into()), source })?;
        let ordered = ui::has_companion(path);
        if ordered {
            // Verifying makes all checks again.
            self.open.open_companion(&file, true)?.verify(&file)?;
        }
        Ok((file.footer().keys, ordered))
    }
}
