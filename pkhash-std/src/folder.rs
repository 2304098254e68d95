//! Folders of tables: which tables are in one at one moment, though others add and remove some meanwhile.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::names::newest_first;

/// How often the folders are listed before [`Error::FolderChanged`].
const ROUNDS: usize = 200;

/// In rounds before this one nothing at all may happen in a folder while it is listed; from then on files that
/// are no tables may come and go.
const PATIENCE: usize = 10;

/// Files that are kept open, beside their tables, until all tables are.
const PINS: usize = 8;

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
/// the folders are listed again and again, until all tables of a listing are open and nothing has changed
/// while it was made: what is returned are the tables that were there at one moment. For that `open` may be called with other paths than those that
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

/// After this time one sees whether a file grows.
const COPYING: Duration = Duration::from_millis(10);

fn open_listed<T, E: From<Error>>(
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    ordered: bool,
    mut open: impl FnMut(&Path) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
    let list = || paths.iter().map(|path| Source::list(path)).collect::<Result<Vec<Source>>>();
    // A folder may be given twice, so a table is known by its path and the number of that folder.
    let mut opened: Tables<T> = HashMap::new();
    for round in 0..ROUNDS {
        if round >= PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        // Nothing is done between the two: others have the less time to change something.
        let (before, sources) = (list()?, list()?);
        if !same(&before, &sources, round < PATIENCE) {
            continue;
        }
        let mut here = HashMap::with_capacity(opened.len());
        let mut new = Vec::new();
        for (i, source) in sources.iter().enumerate() {
            for (path, number) in source.tables() {
                let key = (i, path);
                let known = opened.remove(&key).and_then(|table| table.listed_as(number));
                match known {
                    Some(table) => {
                        here.insert(key, table);
                    }
                    None => new.push((key, number)),
                }
            }
        }
        // What is left in it has gone.
        opened = here;
        // A few that are new beside many are those that are replaced often.
        let mut pins = PINS.saturating_sub(opened.values().filter(|table| table.has_pin()).count());
        if new.len() > PINS {
            pins = 0;
        }
        let mut whole = true;
        for (key, number) in new {
            let listed = matches!(sources[key.0], Source::Folder(_)).then_some(number);
            match Opened::open(&key.1, listed, pins > 0, &mut open)? {
                Some(table) => {
                    pins = pins.saturating_sub(usize::from(table.has_pin()));
                    whole &= table.is_sure;
                    opened.insert(key, table);
                }
                None => whole = false,
            }
        }
        if !whole {
            continue;
        }
        let all = opened.len();
        opened.retain(|(_, path), table| table.is_sure || table.is_still_at(path));
        if opened.len() == all {
            return in_order(sources, &paths, ordered, opened);
        }
    }
    let path = paths.into_iter().find(|path| path.is_dir()).unwrap_or_default();
    Err(Error::FolderChanged { path, rounds: ROUNDS }.into())
}

type Tables<T> = HashMap<(usize, PathBuf), Opened<T>>;

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
    mut opened: Tables<T>,
) -> Result<Vec<T>, E> {
    let mut tables = Vec::with_capacity(opened.len());
    for (i, (source, folder)) in sources.into_iter().zip(paths).enumerate() {
        let names = match source {
            Source::Table(path) => vec![path],
            Source::Folder(listing) if listing.tables.is_empty() => {
                return Err(Error::NoTables { path: folder.clone() }.into());
            }
            Source::Folder(listing) => {
                let mut names: Vec<OsString> =
                    listing.tables.into_iter().map(|(name, _)| name).collect();
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
    /// Their names and the numbers of the files, 0 where the system does not tell them, in no order.
    tables: Vec<(OsString, u64)>,
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

    /// The paths of all tables, and the numbers of the files.
    fn tables(&self) -> Vec<(PathBuf, u64)> {
        match self {
            Self::Table(path) => vec![(path.clone(), 0)],
            Self::Folder(Listing { folder, tables, .. }) => {
                tables.iter().map(|(name, number)| (folder.join(name), *number)).collect()
            }
        }
    }
}

impl Listing {
    fn read(folder: &Path, meta: &Metadata) -> Result<Self> {
        let before = meta.modified().ok();
        let mut tables = Vec::new();
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
                    tables.push((name, inode(&entry)));
                }
                Ok(_) => {}
                // It went since.
                Err(error) if is_gone(&path(), &error) => {}
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

/// Whether a file that was not found has gone, or had at that moment, and is not a link that leads nowhere.
fn is_gone(path: &Path, error: &io::Error) -> bool {
    let link = || path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    error.kind() == ErrorKind::NotFound && !link()
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
    file: Option<Listed>,
    /// Whether the last listing is sure to have shown this very file. If not, it is looked at once more.
    is_sure: bool,
}

/// The file of a table, as it was found.
struct Listed {
    /// The number that the listing gave it. Of a link that is not the file's.
    number: u64,
    identity: Identity,
    /// As long as it is open, no other file gets its number.
    pin: Option<File>,
}

impl<T> Opened<T> {
    /// Opens a table, in a folder one that was listed with this number. `None`: it has gone, or is another
    /// now.
    fn open<E: From<Error>>(
        path: &Path,
        listed: Option<u64>,
        pinned: bool,
        open: &mut impl FnMut(&Path) -> Result<T, E>,
    ) -> Result<Option<Self>, E> {
        let Some(number) = listed else {
            return Ok(Some(Self { table: open(path)?, file: None, is_sure: true }));
        };
        let now = || match path.metadata() {
            Ok(meta) => Ok(Some(Identity::of(&meta))),
            Err(error) if is_gone(path, &error) => Ok(None),
            Err(error) => Err(Error::io("read", path)(error)),
        };
        // What cannot be opened is for `open` to say.
        let pin = if cfg!(unix) && pinned { File::open(path).ok() } else { None };
        let identity = match &pin {
            Some(pin) => pin.metadata().ok().map(|meta| Identity::of(&meta)),
            None => now()?,
        };
        let Some(identity) = identity else { return Ok(None) };
        let table = open(path);
        if table.is_err() {
            // Perhaps it is still being copied to its place.
            thread::sleep(COPYING);
        }
        if now()? != Some(identity) {
            return Ok(None);
        }
        let is_sure = pin.is_some() && identity.number() == Some(number);
        let file = Listed { number, identity, pin };
        Ok(Some(Self { table: table?, file: Some(file), is_sure }))
    }

    fn has_pin(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.pin.is_some())
    }

    /// The table, if this may be the file that was listed with this number.
    fn listed_as(mut self, number: u64) -> Option<Self> {
        let Some(file) = &self.file else { return Some(self) };
        let own = file.identity.number() == Some(number);
        let may_be = own || file.number == number;
        self.is_sure = own && file.pin.is_some();
        may_be.then_some(self)
    }

    /// Whether its name does not lead to another file now. It may have gone since it was listed.
    fn is_still_at(&self, path: &Path) -> bool {
        match (&self.file, path.metadata()) {
            (Some(file), Ok(meta)) => file.identity == Identity::of(&meta),
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

    /// The number of the file, where there are such.
    fn number(&self) -> Option<u64> {
        #[cfg(unix)]
        {
            Some(self.file.1)
        }
        #[cfg(not(unix))]
        {
            None
        }
    }
}
