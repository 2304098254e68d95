//! `pkhash verify`

use std::path::{Path, PathBuf};

use indicatif::HumanCount;
use pkhash_std::stale_temporaries;
use serde_json::json;

use crate::fail::{Answer, Fail, Result, complain, note};
use crate::output::{Name, Output};
use crate::tables::listed;
use crate::ui::{self, OpenArgs};

/// Read tables whole and check everything: checksums, the place of every key, all counts. So are the
/// ordered companions beside them, if there are any.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tables. A folder stands for all tables in it, the newest first, as for `get`.
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// Print an object of JSON for each table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: OpenArgs,
}

/// What is wrong.
enum Fault {
    Table(Fail),
    /// The table, of so many keys, is sound.
    Companion(Fail, u64),
    /// So is the companion, but it is that of another table.
    OfAnother(Fail, u64),
}

impl Fault {
    /// As JSON has it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Table(_) => "table",
            Self::Companion(..) => "companion",
            Self::OfAnother(..) => "companion of another table",
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<Answer> {
        let tables = listed(&self.tables)?;
        self.note_stale();
        let mut out = Output::new();
        let (mut faulty, mut companions, mut of_another) = (0, 0, 0);
        for path in &tables {
            let checked = self.check(path);
            let table = Name(path).to_string();
            let fault = match checked {
                Ok((keys, ordered)) if self.json => {
                    out.line(
                        json!({ "table": table, "ok": true, "keys": keys, "ordered": ordered }),
                    )?;
                    continue;
                }
                Ok((keys, ordered)) => {
                    let more = if ordered { ", ordered companion ok" } else { "" };
                    out.line(format_args!("{table}: ok, {} keys{more}", HumanCount(keys)))?;
                    continue;
                }
                Err(fault) => fault,
            };
            let kind = fault.name();
            let (fail, keys) = match fault {
                Fault::Table(fail) => {
                    faulty += 1;
                    (fail, None)
                }
                Fault::Companion(fail, keys) => {
                    companions += 1;
                    (fail, Some(keys))
                }
                Fault::OfAnother(fail, keys) => {
                    of_another += 1;
                    (fail, Some(keys))
                }
            };
            complain(&fail);
            if self.json {
                let mut object = json!({ "table": table, "ok": false, "fault": kind });
                if let Some(keys) = keys {
                    object["keys"] = keys.into();
                }
                object["error"] = fail.to_string().into();
                out.line(object)?;
            } else if let Some(keys) = keys {
                let what = if kind == "companion" { "faulty" } else { "of another table" };
                let keys = HumanCount(keys);
                out.line(format_args!(
                    "{table}: the table is sound, {keys} keys, but its ordered companion is {what}"
                ))?;
            }
        }
        out.flush()?;
        let all = tables.len();
        let counts: Vec<String> = [
            (faulty, "are faulty"),
            (companions, "have a faulty companion"),
            (of_another, "have a companion of another table"),
        ]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} of {all} tables {what}"))
        .collect();
        if counts.is_empty() { Ok(Answer::Done) } else { Err(Fail::message(counts.join(", "))) }
    }

    /// Names what killed processes have left in the folders: it is in nobody's way, but takes room.
    fn note_stale(&self) {
        for folder in self.tables.iter().filter(|path| path.is_dir()) {
            // What cannot be listed was found already.
            for path in stale_temporaries(folder).unwrap_or_default() {
                note(format_args!(
                    "{}: left by a build or merge that was killed: the next one of that table removes it",
                    Name(&path)
                ));
            }
        }
    }

    /// Returns the number of keys, and whether there is a companion.
    fn check(&self, path: &Path) -> Result<(u64, bool), Fault> {
        // Both before the table is read, which takes its time: they may be replaced meanwhile.
        let pair = ui::has_companion(path).then(|| self.open.open_pair(path, true));
        let (file, terms) = match pair {
            Some(Ok((file, terms))) => (file, Some(Ok(terms))),
            Some(Err(fail)) => (self.open.open(path).map_err(Fault::Table)?, Some(Err(fail))),
            None => (self.open.open(path).map_err(Fault::Table)?, None),
        };
        let bar = ui::bar("verifying", file.footer().partitions().into());
        let verified = file.table().verify_with(|_| bar.inc(1));
        bar.finish_and_clear();
        verified.map_err(|source| {
            Fault::Table(pkhash_std::Error::Table { path: Some(path.into()), source }.into())
        })?;
        let keys = file.footer().keys;
        let ordered = terms.is_some();
        if let Some(terms) = terms {
            // Verifying makes all checks again.
            terms
                .and_then(|terms| Ok(terms.verify(&file)?))
                .map_err(|fail| companion_fault(fail, keys))?;
        }
        Ok((keys, ordered))
    }
}

/// Whether a companion is damaged, or that of a table that has gone.
fn companion_fault(fail: Fail, keys: u64) -> Fault {
    match fail {
        Fail::Pkhash(pkhash_std::Error::Companion {
            what: "keys of the table" | "table's footer checksum" | "table length",
            ..
        }) => Fault::OfAnother(fail, keys),
        fail => Fault::Companion(fail, keys),
    }
}
