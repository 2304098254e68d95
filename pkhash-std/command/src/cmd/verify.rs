//! `pkhash verify`

use std::path::{Path, PathBuf};

use indicatif::HumanCount;
use pkhash_std::{stale_temporaries, visit_tables};
use serde_json::json;

use crate::fail::{Fail, Outcome, Result, complain, note};
use crate::output::{Name, Output};
use crate::tables::{has_folder, tables_of};
use crate::ui::{self, OpenArgs};

/// Read tables whole and check everything: checksums, the place of every key, all counts. So are the
/// ordered companions beside them, if there are any.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tables. A folder stands for all tables in it, as for `get`.
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
    /// A folder's manifest, or a file that it names.
    Index(Fail),
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
            Self::Index(_) => "index",
            Self::Companion(..) => "companion",
            Self::OfAnother(..) => "companion of another table",
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        self.note_stale();
        let mut report = Report { json: self.json, out: Output::new(), all: 0, counts: [0; 3] };
        let (mut tables, mut snapshots) = (Vec::new(), Vec::new());
        for path in &self.tables {
            match tables_of(std::slice::from_ref(path), self.open) {
                Ok((more, pins)) => {
                    for pin in &pins {
                        if let Err(error) = pin.verify_segment_map() {
                            report.add(path, Err(Fault::Index(error.into())))?;
                        }
                    }
                    tables.extend(more);
                    snapshots.extend(pins);
                }
                Err(fail) => {
                    report.add(path, Err(Fault::Index(fail)))?;
                    // Which tables are sound is worth knowing all the same.
                    tables.push(path.clone());
                }
            }
        }
        if has_folder(&tables)? {
            // A fault counts only if its table has not been replaced or removed meanwhile.
            let check = |path: &Path| Ok::<_, Fail>((path.to_owned(), self.check(path)));
            for (path, checked) in visit_tables(&tables, check)? {
                report.add(&path, checked)?;
            }
        } else {
            for path in &tables {
                report.add(path, self.check(path))?;
            }
        }
        report.finish()
    }

    /// Names what killed processes have left in the folders: it is in nobody's way, but takes room.
    fn note_stale(&self) {
        for folder in self.tables.iter().filter(|path| path.is_dir()) {
            // What cannot be listed is an error when its tables are.
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
        let keys = file.footer().keys();
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

/// What was printed.
struct Report {
    json: bool,
    out: Output,
    all: usize,
    /// Tables that are faulty, that have a faulty companion, that have one of another table.
    counts: [usize; 3],
}

impl Report {
    /// Prints what came of a table.
    fn add(&mut self, path: &Path, checked: Result<(u64, bool), Fault>) -> Result<()> {
        self.all += 1;
        let table = Name(path).to_string();
        let out = &mut self.out;
        let fault = match checked {
            Ok((keys, ordered)) if self.json => {
                return out
                    .line(json!({ "table": table, "ok": true, "keys": keys, "ordered": ordered }));
            }
            Ok((keys, ordered)) => {
                let more = if ordered { ", ordered companion ok" } else { "" };
                return out.line(format_args!("{table}: ok, {} keys{more}", HumanCount(keys)));
            }
            Err(fault) => fault,
        };
        let kind = fault.name();
        let (which, fail, keys) = match fault {
            Fault::Table(fail) | Fault::Index(fail) => (0, fail, None),
            Fault::Companion(fail, keys) => (1, fail, Some(keys)),
            Fault::OfAnother(fail, keys) => (2, fail, Some(keys)),
        };
        self.counts[which] += 1;
        complain(&fail);
        if self.json {
            let mut object = json!({ "table": table, "ok": false, "fault": kind });
            if let Some(keys) = keys {
                object["keys"] = keys.into();
            }
            object["error"] = fail.to_string().into();
            return out.line(object);
        }
        let Some(keys) = keys else { return Ok(()) };
        let what = if kind == "companion" { "faulty" } else { "of another table" };
        let keys = HumanCount(keys);
        out.line(format_args!(
            "{table}: the table is sound, {keys} keys, but its ordered companion is {what}"
        ))
    }

    fn finish(mut self) -> Result<Outcome> {
        self.out.flush()?;
        let whats = ["are faulty", "have a faulty companion", "have a companion of another table"];
        let counts: Vec<String> = self
            .counts
            .iter()
            .zip(whats)
            .filter(|(count, _)| **count > 0)
            .map(|(count, what)| format!("{count} of {} tables {what}", self.all))
            .collect();
        if counts.is_empty() { Ok(Outcome::Done) } else { Err(Fail::message(counts.join(", "))) }
    }
}

/// Whether a companion is damaged, or that of a table that has gone.
fn companion_fault(fail: Fail, keys: u64) -> Fault {
    match fail {
        Fail::Pkhash(pkhash_std::Error::Companion { of_another: true, .. }) => {
            Fault::OfAnother(fail, keys)
        }
        fail => Fault::Companion(fail, keys),
    }
}
