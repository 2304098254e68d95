//! `pkhash add`

use std::path::{Path, PathBuf};

use pkhash_std::{Error, Index, SegmentSet};
use serde_json::json;

use super::build::BuildArgs;
use crate::fail::{Fail, Outcome, Result};
use crate::output::{Name, Output};
use crate::ui;

/// Build a table as `build` does, and add it to an index: a folder with a manifest, which all commands search as
/// one set, the newest table first.
///
/// A folder that is no index becomes one; tables in it are its first segments. Readers see the new table when all is
/// done, or nothing. One process at a time may change an index.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder. It is created if it is not there.
    folder: PathBuf,
    #[command(flatten)]
    build: BuildArgs,
    /// INPUT is a table, which is linked or copied into the folder.
    #[arg(long, help_heading = "Input", conflicts_with_all = ["pairs", "csv", "skip_empty", "ordered"])]
    table: bool,
    /// Delete the docs that the keys had before. Without it a key is found in the newest table that has it,
    /// and the older docs stay.
    #[arg(long)]
    replace: bool,
    /// The values are no doc IDs: these keys cannot be deleted.
    #[arg(long, conflicts_with = "replace")]
    values: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let cancel = ui::Cancel::new()?;
        // No index is made for what is not there.
        let input = self.build.input();
        if input != Path::new("-") {
            input.metadata().map_err(|error| {
                Fail::message(format_args!("cannot open {}: {error}", input.display()))
            })?;
        }
        let index = ui::create_index(&self.folder)?;
        let mut writer = ui::writer(&index, &cancel)?;
        let (path, made) = if self.table {
            (self.build.input().to_owned(), None)
        } else {
            let path = writer.new_table_path();
            let made = self.build.run(&path, &cancel)?;
            (path, Some(made))
        };
        let deleted = if self.replace {
            let set = writer.set()?;
            Some(writer.replace(&path).map_err(|error| name_table(&set, error))?)
        } else if self.values {
            writer.add_values(&path).map(|()| None)?
        } else {
            writer.add(&path).map(|()| None)?
        };
        cancel.check()?;
        let committed = writer.commit()?;
        if let Some(made) = made {
            let name = path.file_name().unwrap_or_default();
            made.report(&self.folder.join(name), self.build.json())?;
        }
        report(&index, committed, deleted, self.build.json())?;
        Ok(Outcome::Done)
    }
}

/// That keys cannot be deleted says of which table.
pub(super) fn name_table(set: &SegmentSet, error: Error) -> Fail {
    match error {
        Error::NoDocId { segment, .. } => Fail::message(format_args!(
            "{}: the values are no doc IDs, so its keys cannot be deleted",
            set.segments()[segment].table().name().display()
        )),
        error => error.into(),
    }
}

/// What `add` and `delete` say of the index at the end.
pub(super) fn report(
    index: &Index,
    committed: u64,
    deleted: Option<u64>,
    json: bool,
) -> Result<()> {
    let snapshot = index.snapshot();
    let folder = index.folder();
    let mut out = Output::new();
    // The commit is done, and if the folder could not be read after it, that is for the next command to say.
    let known =
        (snapshot.number() == committed).then(|| (snapshot.set().len(), snapshot.set().keys()));
    if json {
        out.line(json!({
            "index": folder.display().to_string(),
            "snapshot": committed,
            "tables": known.map(|(tables, _)| tables),
            "keys": known.map(|(_, keys)| keys),
            "deleted": deleted,
        }))?;
    } else {
        let known = known.map(|(tables, keys)| format!(", {tables} tables, {keys} keys"));
        let deleted = deleted.map(|deleted| format!(", {deleted} docs deleted"));
        let (known, deleted) = (known.unwrap_or_default(), deleted.unwrap_or_default());
        let folder = Name(folder);
        out.line(format_args!("{folder}: snapshot {committed}{known}{deleted}"))?;
    }
    out.flush()
}
