//! Many tables that are searched as one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkhash_std::{Segment, SegmentSet, Snapshot, TableFile, open_tables};

use crate::fail::{Fail, Result};
use crate::live_docs::LiveDocsArgs;
use crate::ui::OpenArgs;

/// The tables to search.
#[derive(clap::Args)]
pub(crate) struct TablesArgs {
    /// The tables, the newest first. A folder that is an index (see `pkhash add`) stands for the tables that its
    /// manifest names. Any other folder stands for all tables in it: the files whose names end in
    /// .pkh and begin with no dot, the greatest name first. Runs of digits count as numbers, so that
    /// 10.pkh is newer than 9.pkh; names of one length are compared as text. Times do not matter.
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    #[command(flatten)]
    docs: LiveDocsArgs,
    #[command(flatten)]
    open: OpenArgs,
}

/// Tables that were given, and opened.
pub(crate) struct Given {
    /// With the live docs and doc bases of their index, if they are of one.
    pub(crate) segments: Vec<Segment>,
    /// Folders that are indexes.
    pub(crate) indexes: Vec<PathBuf>,
    /// Whether any is of a folder, an index or not.
    pub(crate) folder: bool,
    /// A table of an index whose values are no doc IDs, if there is one.
    no_docs: Option<PathBuf>,
    /// They keep the files of the indexes where they are.
    snapshots: Vec<Snapshot>,
}

impl Given {
    /// Opens tables, those of folders, too.
    pub(crate) fn open(paths: &[PathBuf], open: OpenArgs) -> Result<Self> {
        let mut given = Self {
            segments: Vec::new(),
            indexes: Vec::new(),
            folder: false,
            no_docs: None,
            snapshots: Vec::new(),
        };
        let mut others: Vec<&PathBuf> = Vec::new();
        for path in paths {
            let Some(index) = open.index(path)? else {
                given.folder |= is_folder(path)?;
                others.push(path);
                continue;
            };
            given.open_others(&mut others, open)?;
            let snapshot = index.snapshot();
            let mut values = snapshot.segments().filter(|segment| segment.docs.is_none());
            given.no_docs = given.no_docs.or(values.next().map(|segment| path.join(segment.name)));
            drop(values);
            given.segments.extend_from_slice(snapshot.set().segments());
            given.indexes.push(path.clone());
            given.folder = true;
            given.snapshots.push(snapshot);
        }
        given.open_others(&mut others, open)?;
        Ok(given)
    }

    fn open_others(&mut self, paths: &mut Vec<&PathBuf>, open: OpenArgs) -> Result<()> {
        let tables = open_tables(paths.drain(..), |path| open.open(path))?;
        self.segments.extend(tables.into_iter().map(Segment::from));
        Ok(())
    }

    /// Whether nothing was given but one index.
    pub(crate) fn is_one_index(&self) -> bool {
        let [snapshot] = self.snapshots.as_slice() else { return false };
        snapshot.set().len() == self.segments.len()
    }

    /// For what needs doc IDs: whether all tables have them, as far as their indexes know.
    pub(crate) fn check_docs(&self) -> Result<()> {
        let Some(path) = &self.no_docs else { return Ok(()) };
        Err(Fail::message(format_args!(
            "{}: expected doc IDs, found values that are none (it was added with --values, or has greater ones)",
            path.display()
        )))
    }

    /// The set of them all: with its segment map, if it is one index.
    pub(crate) fn set(self) -> Result<SegmentSet> {
        match self.snapshots.as_slice() {
            [snapshot] if self.is_one_index() => Ok(snapshot.set().clone()),
            _ => Ok(SegmentSet::new(self.segments)?),
        }
    }

    /// The tables alone.
    pub(crate) fn tables(&self) -> Vec<Arc<TableFile>> {
        self.segments.iter().map(|segment| Arc::clone(segment.table())).collect()
    }
}

/// The paths of tables, those of indexes in place of their folders, and what keeps these tables where they are.
pub(crate) fn tables_of(
    paths: &[PathBuf],
    open: OpenArgs,
) -> Result<(Vec<PathBuf>, Vec<Snapshot>)> {
    let (mut tables, mut snapshots) = (Vec::new(), Vec::new());
    for path in paths {
        match open.index(path)? {
            None => tables.push(path.clone()),
            Some(index) => {
                let snapshot = index.snapshot();
                tables.extend(snapshot.segments().map(|segment| path.join(segment.name)));
                snapshots.push(snapshot);
            }
        }
    }
    Ok((tables, snapshots))
}

impl TablesArgs {
    /// Whether answers tell their table: there are several, or might be.
    pub(crate) fn named(&self) -> Result<bool> {
        match self.tables.as_slice() {
            [only] => is_folder(only),
            _ => Ok(true),
        }
    }

    /// Opens all tables, with their live docs.
    pub(crate) fn open(&self) -> Result<Given> {
        self.docs.apply(Given::open(&self.tables, self.open)?)
    }

    /// The set of them all.
    pub(crate) fn set(&self) -> Result<SegmentSet> {
        self.open()?.set()
    }
}

/// What cannot be looked at cannot be opened either; what is not there is for whoever opens it to say.
pub(crate) fn is_folder(path: &Path) -> Result<bool> {
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
