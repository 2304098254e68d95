//! Many tables that are searched as one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkhash_std::{Segment, SegmentSet, TableFile, open_tables};

use crate::fail::{Fail, Result};
use crate::live_docs::LiveDocsArgs;
use crate::ui::OpenArgs;

/// The tables to search.
#[derive(clap::Args)]
pub(crate) struct TablesArgs {
    /// The tables, the newest first. A folder stands for all tables in it: the files whose names end in
    /// .pkh and begin with no dot, the greatest name first. Runs of digits count as numbers, so that
    /// 10.pkh is newer than 9.pkh; names of one length are compared as text. Times do not matter.
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
        open_tables(&self.tables, |path| self.open.open(path))
    }

    /// The segments of these tables, with their live docs.
    pub(crate) fn segments(&self, tables: Vec<TableFile>) -> Result<Vec<Segment>> {
        let live = self.docs.read(&tables, has_folder(&self.tables)?)?;
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

/// Whether a folder is among these tables.
pub(crate) fn has_folder(paths: &[PathBuf]) -> Result<bool> {
    for path in paths {
        if is_folder(path)? {
            return Ok(true);
        }
    }
    Ok(false)
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
