//! Folders of tables: which tables are in one at one moment, though others add and remove some meanwhile.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::names::newest_first;

/// How often the folders are listed before [`Error::FolderChanged`].
const ROUNDS: usize = 200;

/// In rounds before this one nothing at all may happen in a folder while it is looked at; from then on files
/// that are no tables may come and go.
const PATIENCE: usize = 50;

/// Opens tables, and of folders all tables in them: `open` is called with their paths. The answers come in
/// the order of `paths`, those of one folder with the newest table first.
///
/// A table of a folder is a file whose name ends in `.pkh` and does not begin with a dot. (Files that are
/// being written have names with a dot.) The order is that of the names, the greatest name the newest, never
/// that of time: 10.pkh is newer than 9.pkh. Runs of digits count as numbers; names of one length are
/// compared as bytes. Where the two rules contradict each other, nothing is guessed:
/// [`Error::FolderOrder`].
///
/// While tables are opened, others may be added, replaced, or removed from the folders, as a merge does. So
/// the folders are listed again when all tables are open, until nothing has changed: what is returned are
/// the tables that were there at one moment. For that `open` may be called with other paths than those that
/// count in the end, and its answers, even errors, are thrown away; a table that stays is opened once.
///
/// ```
/// use pkhash_std::{OpenOptions, WriterOptions, build_slice, open_tables};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// for name in ["9.pkh", "10.pkh"] {
///     build_slice(&["a", "b"], |i| [i as u8], folder.join(name), &WriterOptions::default())?;
/// }
/// let tables = open_tables([folder], |path| OpenOptions::new().open(path))?;
/// assert!(tables[0].name().ends_with("10.pkh"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `open`. [`Error::NoTables`] if a folder has none, [`Error::FolderChanged`] if folders change
/// faster than they can be read, [`Error::FolderOrder`], and [`Error::Io`] if one cannot be read.
pub fn open_tables<T, E: From<Error>>(
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    open: impl FnMut(&Path) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    open_listed(paths, true, open)
}

/// As [`open_tables`], for work on each table by itself: where the names of a folder do not tell which table
/// is newer, any order does.
///
/// # Errors
/// As [`open_tables`], without [`Error::FolderOrder`].
pub fn visit_tables<T, E: From<Error>>(
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    visit: impl FnMut(&Path) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    open_listed(paths, false, visit)
}

fn open_listed<T, E: From<Error>>(
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    ordered: bool,
    mut open: impl FnMut(&Path) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
    let list = || paths.iter().map(|path| Source::list(path)).collect::<Result<Vec<Source>>>();
    let mut sources = list()?;
    // A folder may be given twice, so a table is known by its path and the number of that folder.
    let mut opened: HashMap<(usize, PathBuf), Opened<T>> = HashMap::new();
    for round in 0..ROUNDS {
        let tables = || sources.iter().enumerate().flat_map(|(i, source)| source.keys(i));
        let here: HashSet<_> = tables().collect();
        opened.retain(|key, _| here.contains(key));
        let mut sound = true;
        for key in tables() {
            if opened.contains_key(&key) {
                continue;
            }
            let folder = matches!(sources[key.0], Source::Folder(_));
            match Opened::open(&key.1, folder, &mut open)? {
                Some(table) => {
                    opened.insert(key, table);
                }
                None => sound = false,
            }
        }
        let again = list()?;
        if sound && same(&sources, &again, round < PATIENCE) {
            // A name and an inode can be the same when the file is not.
            let before = opened.len();
            opened.retain(|(_, path), table| table.is_still_at(path));
            if opened.len() == before {
                return in_order(sources, &paths, ordered, opened);
            }
        }
        sources = again;
    }
    let folders = sources.iter().zip(&paths).filter(|(s, _)| matches!(s, Source::Folder(_)));
    let path = folders.map(|(_, path)| path.clone()).next().unwrap_or_default();
    Err(Error::FolderChanged { path, rounds: ROUNDS }.into())
}

/// Whether two listings show the same tables. `quiet`: nothing else has changed in the folders either. (A
/// large folder is listed in several steps; a table that comes and one that goes between two steps can both
/// be missed, even twice.)
fn same(before: &[Source], after: &[Source], quiet: bool) -> bool {
    before.iter().zip(after).all(|pair| match pair {
        (Source::Table(before), Source::Table(after)) => before == after,
        (Source::Folder(before), Source::Folder(after)) => {
            before.tables == after.tables && (!quiet || before.modified.0 == after.modified.1)
        }
        _ => false,
    })
}

fn in_order<T, E: From<Error>>(
    sources: Vec<Source>,
    paths: &[PathBuf],
    ordered: bool,
    mut opened: HashMap<(usize, PathBuf), Opened<T>>,
) -> Result<Vec<T>, E> {
    let mut tables = Vec::with_capacity(opened.len());
    for (i, (source, folder)) in sources.into_iter().zip(paths).enumerate() {
        let names = match source {
            Source::Table(path) => vec![path],
            Source::Folder(listing) if listing.tables.is_empty() => {
                return Err(Error::NoTables { path: folder.clone() }.into());
            }
            Source::Folder(listing) => {
                let mut names = listing.tables.into_keys().collect();
                let clash = newest_first(&mut names);
                if let Some((first, second)) = clash.filter(|_| ordered) {
                    return Err(Error::FolderOrder { path: folder.clone(), first, second }.into());
                }
                names.iter().map(|name| folder.join(name)).collect()
            }
        };
        tables.extend(names.into_iter().filter_map(|path| opened.remove(&(i, path))));
    }
    Ok(tables.into_iter().map(|table| table.table).collect())
}

/// A path that was given.
enum Source {
    /// A table, or what whoever opens it will say is none.
    Table(PathBuf),
    Folder(Listing),
}

/// The tables in a folder.
struct Listing {
    folder: PathBuf,
    /// For each name, the number of the file where the system tells it, else 0.
    tables: HashMap<OsString, u64>,
    /// When the folder was changed last, before and after it was listed.
    modified: (Option<SystemTime>, Option<SystemTime>),
}

impl Source {
    fn list(path: &Path) -> Result<Self> {
        match path.metadata() {
            Ok(meta) if meta.is_dir() => Listing::read(path, &meta).map(Self::Folder),
            Ok(_) => Ok(Self::Table(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::Table(path.to_owned())),
            Err(error) => Err(Error::io("open", path)(error)),
        }
    }

    /// The paths of all tables, with the number of this source.
    fn keys(&self, number: usize) -> Vec<(usize, PathBuf)> {
        match self {
            Self::Table(path) => vec![(number, path.clone())],
            Self::Folder(Listing { folder, tables, .. }) => {
                tables.keys().map(|name| (number, folder.join(name))).collect()
            }
        }
    }
}

impl Listing {
    fn read(folder: &Path, meta: &Metadata) -> Result<Self> {
        let before = meta.modified().ok();
        let mut tables = HashMap::new();
        for entry in folder.read_dir().map_err(Error::io("read", folder))? {
            let entry = entry.map_err(Error::io("read", folder))?;
            let name = entry.file_name();
            if !is_table_name(&name) {
                continue;
            }
            let path = || entry.path();
            let kind = match entry.file_type() {
                // Of a link, what it leads to. One that leads nowhere is an error: an answer might be
                // there.
                Ok(kind) if kind.is_symlink() => path().metadata().map(|meta| meta.file_type()),
                kind => kind,
            };
            match kind {
                Ok(kind) if kind.is_file() => {
                    tables.insert(name, inode(&entry));
                }
                Ok(_) => {}
                // It went since.
                Err(_) if is_gone(&path()) => {}
                Err(error) => return Err(Error::io("read", &path())(error)),
            }
        }
        let after = folder.metadata().and_then(|meta| meta.modified()).ok();
        Ok(Self { folder: folder.to_owned(), tables, modified: (before, after) })
    }
}

fn is_table_name(name: &OsStr) -> bool {
    let hidden = name.as_encoded_bytes().starts_with(b".");
    !hidden && Path::new(name).extension().is_some_and(|extension| extension == "pkh")
}

/// Whether nothing has this name, not even a link that leads nowhere.
fn is_gone(path: &Path) -> bool {
    matches!(path.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound)
}

fn inode(entry: &fs::DirEntry) -> u64 {
    #[cfg(unix)]
    {
        std::os::unix::fs::DirEntryExt::ino(entry)
    }
    #[cfg(not(unix))]
    {
        let _ = entry;
        0
    }
}

/// What `open` returned.
struct Opened<T> {
    table: T,
    /// Of a table in a folder.
    file: Option<Identity>,
}

impl<T> Opened<T> {
    /// `None`: the table of a folder has gone, or is another now.
    fn open<E: From<Error>>(
        path: &Path,
        in_folder: bool,
        open: &mut impl FnMut(&Path) -> Result<T, E>,
    ) -> Result<Option<Self>, E> {
        if !in_folder {
            return Ok(Some(Self { table: open(path)?, file: None }));
        }
        let identity = |path: &Path| match path.metadata() {
            Ok(meta) => Ok(Some(Identity::of(&meta))),
            Err(_) if is_gone(path) => Ok(None),
            Err(error) => Err(Error::io("read", path)(error)),
        };
        let Some(before) = identity(path)? else { return Ok(None) };
        let table = open(path);
        if identity(path)? != Some(before) {
            return Ok(None);
        }
        Ok(Some(Self { table: table?, file: Some(before) }))
    }

    /// Whether its name does not lead to another file now. It may have gone since it was listed.
    fn is_still_at(&self, path: &Path) -> bool {
        match (self.file, path.metadata()) {
            (Some(file), Ok(meta)) => file == Identity::of(&meta),
            _ => true,
        }
    }
}

/// What tells a file from another that had its name before. Inode numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    len: u64,
    modified: Option<SystemTime>,
    /// Device, inode, and the time of the last change, in seconds and nanoseconds.
    #[cfg(unix)]
    file: (u64, u64, i64, i64),
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Self {
            len: meta.len(),
            modified: meta.modified().ok(),
            #[cfg(unix)]
            file: (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()),
        }
    }
}
