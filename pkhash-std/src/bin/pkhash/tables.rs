//! Many tables that are searched as one.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkhash_std::{Segment, SegmentSet, TableFile};

use crate::fail::{Fail, Result};
use crate::live_docs::LiveDocsArgs;
use crate::ui::OpenArgs;

/// The tables to search.
#[derive(clap::Args)]
pub(crate) struct TablesArgs {
    /// The tables, the newest first. A folder stands for all tables in it: the files whose names end in
    /// .pkh and begin with no dot, the one modified last first, and of those modified at one time the
    /// one whose name comes last. (A merged table is as new as the merge: if it shares keys with tables
    /// that are newer than its inputs, name the tables in order instead.)
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    #[command(flatten)]
    docs: LiveDocsArgs,
    #[command(flatten)]
    open: OpenArgs,
}

impl TablesArgs {
    /// Whether answers tell their table: there are several, or might be.
    pub(crate) fn named(&self) -> Result<bool> {
        match self.tables.as_slice() {
            [only] => is_folder(only),
            _ => Ok(true),
        }
    }

    /// Opens all tables.
    pub(crate) fn open(&self) -> Result<Vec<TableFile>> {
        listed(&self.tables)?.iter().map(|path| self.open.open(path)).collect()
    }

    /// The segments of these tables, with their live docs.
    pub(crate) fn segments(&self, tables: Vec<TableFile>) -> Result<Vec<Segment>> {
        let live = self.docs.read(&tables)?;
        let segment = |(table, live): (TableFile, Option<_>)| {
            Segment::from(table).with_live_docs(live.map(Arc::new))
        };
        Ok(tables.into_iter().zip(live).map(segment).collect())
    }

    /// The set of them all.
    pub(crate) fn set(&self) -> Result<SegmentSet> {
        Ok(SegmentSet::new(self.segments(self.open()?)?)?)
    }
}

/// What cannot be looked at cannot be opened either; what is not there is for whoever opens it to say.
fn is_folder(path: &Path) -> Result<bool> {
    match path.metadata() {
        Ok(meta) => Ok(meta.is_dir()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Fail::message(format_args!("cannot open {}: {error}", path.display()))),
    }
}

/// These tables, with those in a folder instead of the folder.
pub(crate) fn listed(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if is_folder(path)? { files.extend(list(path)?) } else { files.push(path.clone()) }
    }
    Ok(files)
}

/// For commands that take one table: whether this is one, and not many.
pub(crate) fn check_one(path: &Path) -> Result<()> {
    if is_folder(path)? {
        let path = path.display();
        return Err(Fail::message(format_args!(
            "{path}: a folder, and this command takes one table: name a table in it"
        )));
    }
    Ok(())
}

/// The tables in a folder, the newest first.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let fail =
        |path: &Path, error| Fail::message(format_args!("cannot read {}: {error}", path.display()));
    let mut found = Vec::new();
    for entry in folder.read_dir().map_err(|error| fail(folder, error))? {
        let path = entry.map_err(|error| fail(folder, error))?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden || path.extension().is_none_or(|extension| extension != "pkh") {
            continue;
        }
        // Of a link, what it leads to. One that leads nowhere is an error: an answer might be there.
        let meta = path.metadata().map_err(|error| fail(&path, error))?;
        if meta.is_file() {
            let modified = meta.modified().map_err(|error| fail(&path, error))?;
            found.push(Reverse((modified, path)));
        }
    }
    if found.is_empty() {
        let folder = folder.display();
        return Err(Fail::message(format_args!("{folder}: no tables (*.pkh) in this folder")));
    }
    found.sort();
    Ok(found.into_iter().map(|Reverse((_, path))| path).collect())
}
