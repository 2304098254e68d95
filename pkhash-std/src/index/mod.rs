//! A folder that is a segment set: tables, their live docs, and a manifest that says which of them count.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

mod live_file;
mod manifest;
mod merge;
mod sweep;
mod writer;

use manifest::{FileEntry, LiveEntry, Manifest, Pin, SegmentEntry, WriterLock};
pub use merge::{IndexMerge, Merged, MergedTable};
pub use writer::IndexWriter;

use crate::error::{Error, Result};
use crate::set::{LiveDocs, Segment, SegmentSet, SharedMap, WeakMap};
use crate::storage::Storage;
use crate::table_file::{OpenOptions, TableFile};

/// What is wrong with a manifest, in words.
#[derive(Debug)]
struct Fault(String);

impl Fault {
    fn at(self, path: &Path) -> Error {
        Error::Manifest { path: path.to_owned(), fault: self.0 }
    }
}

/// How an index opens its tables, and other files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    pub(crate) table: fn(OpenOptions, &Path) -> Result<TableFile>,
    pub(crate) bytes: fn(&Path) -> Result<Storage>,
}

/// A folder of tables that is searched as one set, and changes by commits.
///
/// Any number of processes read it, without a lock. One at a time writes, through an [`IndexWriter`]. A
/// [`Snapshot`] is what one commit has left: it never changes, and its files stay for as long as it lives (Unix; a
/// file system that has no locks keeps only the files that are open).
///
/// ```
/// use pkhash_std::{Index, WriterOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let index = Index::create(folder.path())?;
/// let mut writer = index.writer()?;
/// writer.add_keys(["order-1", "order-2"], WriterOptions::default())?;
/// writer.commit()?;
/// writer.delete(&["order-1"])?;
/// writer.add_keys(["order-3"], WriterOptions::default())?;
/// writer.commit()?;
///
/// // Another process, or another `Index`, would refresh.
/// let snapshot = index.snapshot();
/// let set = snapshot.set();
/// assert_eq!(set.get_doc_id(b"order-1")?, None);
/// assert_eq!(set.get_doc_id(b"order-2")?, Some(1));
/// assert_eq!(set.get_doc_id(b"order-3")?, Some(2));
/// # Ok(())
/// # }
/// ```
///
/// # Files
///
/// The manifest of snapshot n is `manifest-n.json` (FORMAT.md §13); the one with the greatest number counts. Tables
/// that the index makes are called `segment-n.pkh`, their live docs `segment-n.live-m`. Whatever else lies in the
/// folder is left alone. A commit that is killed leaves the snapshot before it, and files that the next writer
/// removes.
#[derive(Clone)]
pub struct Index {
    shared: Arc<Shared>,
}

struct Shared {
    /// As the caller has it.
    folder: PathBuf,
    /// Absolute.
    real: PathBuf,
    options: OpenOptions,
    open: Opener,
    opened: Mutex<Opened>,
    current: RwLock<Snapshot>,
}

/// What is open, by file: so that snapshots and the writer share it.
#[derive(Default)]
struct Opened {
    /// The folder, for messages.
    shown: PathBuf,
    tables: HashMap<String, (u64, Weak<TableFile>)>,
    live: HashMap<String, (u64, Weak<LiveDocs>)>,
    maps: HashMap<String, (u64, WeakMap)>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("folder", &self.shared.folder).finish_non_exhaustive()
    }
}

/// What one commit has left: a set of segments that never changes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshot {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    set: SegmentSet,
    manifest: Manifest,
    /// The files of the segment map.
    maps: Vec<(PathBuf, SharedMap)>,
    /// Its files stay.
    _pin: Pin,
}

/// The facts of a segment of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexSegment<'s> {
    /// The name of the table in the folder.
    pub name: &'s str,
    /// Bytes of the table.
    pub bytes: u64,
    /// Its keys, those of deleted docs included.
    pub keys: u64,
    /// Docs, deleted ones included; `None`: the values are no doc IDs, see [`IndexWriter::add`].
    pub docs: Option<u32>,
    /// Docs that are deleted.
    pub deleted: u32,
    /// What is added to a doc ID of the segment to make it one of the set: the docs of all older segments.
    pub doc_base: u32,
}

impl Snapshot {
    /// The segments, ready to be searched.
    #[must_use]
    pub fn set(&self) -> &SegmentSet {
        &self.inner.set
    }

    /// The number of the commit.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.inner.manifest.snapshot
    }

    /// Reads the segment map's files and checks them; opening has checked all else but the tables' bodies
    /// ([`TableFile::verify`]).
    ///
    /// # Errors
    /// [`Error::SegmentMapFile`] with the first fault.
    pub fn verify_segment_map(&self) -> Result<()> {
        self.inner.maps.iter().try_for_each(|(path, map)| map.verify(path))
    }

    /// The facts of the segments, the newest first, as in the set.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = IndexSegment<'_>> {
        self.inner.manifest.segments.iter().map(|segment| IndexSegment {
            name: &segment.table.name,
            bytes: segment.table.bytes,
            keys: segment.keys,
            docs: segment.docs,
            deleted: segment.live_docs.as_ref().map_or(0, |live| live.deleted),
            doc_base: segment.doc_base,
        })
    }
}

impl Index {
    /// Opens an index; its tables are read into memory.
    ///
    /// # Errors
    /// [`Error::NoIndex`] if the folder has no manifest; [`Error::Manifest`], [`Error::LiveDocsFile`] or
    /// [`Error::Table`] for a file that is damaged or another than was committed; [`Error::Io`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(folder, OpenOptions::new())
    }

    /// Opens an index; its tables are read into memory, with these options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(folder: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let bytes = |path: &Path| Storage::open(path, |_, _, _| Ok(()));
        let open = Opener { table: |options, path| options.open(path), bytes };
        Self::open_by(folder.as_ref(), options, open)
    }

    pub(crate) fn open_by(folder: &Path, options: OpenOptions, open: Opener) -> Result<Self> {
        let real = std::path::absolute(folder).map_err(Error::io("find", folder))?;
        let folder = folder.to_owned();
        let mut opened = Opened { shown: folder.clone(), ..Opened::default() };
        let current = opened.newest(&real, options, open, None);
        let current = current.map_err(|error| error.shown_in(&real, &folder))?;
        let current = current.ok_or_else(|| Error::NoIndex { path: folder.clone() })?;
        let (opened, current) = (Mutex::new(opened), RwLock::new(current));
        Ok(Self { shared: Arc::new(Shared { folder, real, options, open, opened, current }) })
    }

    /// Opens an index, and makes one if there is none: creates the folder, if need be. Tables that lie in it
    /// already become the first segments, in the order of [`open_tables`](crate::open_tables).
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`open_tables`](crate::open_tables); [`Error::Locked`] if another writer is at
    /// work.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        match Self::open(folder) {
            Err(Error::NoIndex { .. }) => {}
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
            }
            opened => return opened,
        }
        writer::begin(folder)?;
        Self::open(folder)
    }

    /// The folder, as it was given.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Where the folder is.
    fn real(&self) -> &Path {
        &self.shared.real
    }

    /// The snapshot of the last [`refresh`](Self::refresh), or of the last commit of a writer of this index.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes up what has been committed since, by any process. Returns whether something was. Tables and live
    /// docs that stay are shared with the snapshot before, so that costs what is new. Without anything new: a look at the
    /// folder.
    ///
    /// # Errors
    /// As [`open`](Self::open). The snapshot is then the one before.
    pub fn refresh(&self) -> Result<bool> {
        let Shared { real, options, open, current, .. } = &*self.shared;
        let known = self.snapshot().number();
        let next = self.opened().newest(real, *options, *open, Some(known));
        let next = next.map_err(|error| self.shown(error))?;
        let Some(next) = next else { return Ok(false) };
        let mut current = current.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been quicker.
        let is_newer = next.number() > current.number();
        if is_newer {
            *current = next;
        }
        Ok(is_newer)
    }

    /// An error with the folder as the caller has it.
    fn shown(&self, error: Error) -> Error {
        error.shown_in(self.real(), self.folder())
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.shared.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to write, from the newest commit on.
    ///
    /// # Errors
    /// [`Error::Locked`] if another writer is at work; as [`refresh`](Self::refresh).
    pub fn writer(&self) -> Result<IndexWriter> {
        let lock = WriterLock::take(self.real()).map_err(|error| self.shown(error))?;
        self.refresh()?;
        IndexWriter::new(self.clone(), lock).map_err(|error| self.shown(error))
    }
}

/// How often a snapshot is opened whose files vanish meanwhile.
const ROUNDS: usize = 1000;

impl Opened {
    /// Opens the newest snapshot, if it is newer than number `known`. `None`: there is none.
    fn newest(
        &mut self,
        folder: &Path,
        options: OpenOptions,
        open: Opener,
        known: Option<u64>,
    ) -> Result<Option<Snapshot>> {
        self.forget();
        let mut failed = None;
        for _ in 0..ROUNDS {
            if known.is_some() && manifest::snapshots(folder)?.first().copied() <= known {
                return Ok(None);
            }
            let Some((manifest, pin)) = manifest::newest(folder)? else { return Ok(None) };
            let number = manifest.snapshot;
            match self.set(folder, options, open, &manifest) {
                Ok((set, maps)) => {
                    let inner = Arc::new(Inner { set, manifest, maps, _pin: pin });
                    return Ok(Some(Snapshot { inner }));
                }
                // Where files cannot be locked, a writer removes those of a snapshot that is being opened.
                Err(error) if failed != Some(number) => {
                    if manifest::snapshots(folder)?.first() == Some(&number) {
                        return Err(error);
                    }
                    failed = Some(number);
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::FolderChanged { path: folder.to_owned(), rounds: ROUNDS })
    }

    fn set(
        &mut self,
        folder: &Path,
        options: OpenOptions,
        open: Opener,
        manifest: &Manifest,
    ) -> Result<(SegmentSet, Vec<(PathBuf, SharedMap)>)> {
        let open_one = |entry: &SegmentEntry| {
            let table = self.table(folder, &entry.table, |path| (open.table)(options, path))?;
            check_keys(&table, entry)?;
            let live = match &entry.live_docs {
                Some(live) => Some(self.live_docs(folder, live, entry)?),
                None => None,
            };
            Ok(Segment::new(table).with_live_docs(live).with_doc_base(entry.doc_base))
        };
        let segments = manifest.segments.iter().map(open_one).collect::<Result<Vec<_>>>()?;
        let map = |entry: &FileEntry| {
            let map = self.map(folder, entry, open.bytes)?;
            Ok((self.shown.join(&entry.name), map))
        };
        let maps = manifest.maps.iter().map(map).collect::<Result<Vec<_>>>()?;
        let set = SegmentSet::new(segments)?;
        Ok((set.with_shared_maps(maps.iter().map(|(_, map)| map.clone()))?, maps))
    }

    /// A segment map, opened unless it is open.
    fn map(
        &mut self,
        folder: &Path,
        entry: &FileEntry,
        open: fn(&Path) -> Result<Storage>,
    ) -> Result<SharedMap> {
        if let Some((checksum, map)) = self.maps.get(&entry.name)
            && *checksum == entry.checksum
            && let Some(map) = map.upgrade()
        {
            return Ok(map);
        }
        let path = folder.join(&entry.name);
        let map = SharedMap::open(open(&path)?, &path, (entry.bytes, entry.checksum))?;
        self.keep_map(entry, &map);
        Ok(map)
    }

    fn keep_map(&mut self, entry: &FileEntry, map: &SharedMap) {
        self.maps.insert(entry.name.clone(), (entry.checksum, map.downgrade()));
    }

    /// A table, opened unless it is open.
    fn table(
        &mut self,
        folder: &Path,
        entry: &FileEntry,
        open: impl FnOnce(&Path) -> Result<TableFile>,
    ) -> Result<Arc<TableFile>> {
        if let Some((checksum, table)) = self.tables.get(&entry.name)
            && *checksum == entry.checksum
            && let Some(table) = table.upgrade()
        {
            return Ok(table);
        }
        let path = folder.join(&entry.name);
        let table = open(&path)?;
        let footer = table.footer();
        for (what, expected, found) in [
            ("length", entry.bytes, footer.file_len()),
            ("footer checksum", entry.checksum, footer.checksum()),
        ] {
            if expected != found {
                return Err(Error::NotCommitted { path, what, expected, found });
            }
        }
        let table = Arc::new(table.moved_to(&self.shown.join(&entry.name)));
        self.tables.insert(entry.name.clone(), (entry.checksum, Arc::downgrade(&table)));
        Ok(table)
    }

    fn live_docs(
        &mut self,
        folder: &Path,
        entry: &LiveEntry,
        segment: &SegmentEntry,
    ) -> Result<Arc<LiveDocs>> {
        let file = &entry.file;
        if let Some((checksum, live)) = self.live.get(&file.name)
            && *checksum == file.checksum
            && let Some(live) = live.upgrade()
        {
            return Ok(live);
        }
        let docs = segment.docs.unwrap_or(0);
        let live = live_file::open(&folder.join(&file.name), entry, docs, segment.table.checksum)?;
        let live = Arc::new(live);
        self.live.insert(file.name.clone(), (file.checksum, Arc::downgrade(&live)));
        Ok(live)
    }

    /// Drops the names of what nobody has open any more.
    fn forget(&mut self) {
        self.tables.retain(|_, (_, table)| table.strong_count() > 0);
        self.live.retain(|_, (_, live)| live.strong_count() > 0);
        self.maps.retain(|_, (_, map)| map.upgrade().is_some());
    }
}

fn check_keys(table: &TableFile, entry: &SegmentEntry) -> Result<()> {
    let (expected, found) = (entry.keys, table.footer().keys());
    if expected == found {
        return Ok(());
    }
    Err(Error::NotCommitted { path: table.name().to_owned(), what: "keys", expected, found })
}

/// Whether values up to such a number are doc IDs of so many keys: live docs have a bit for each doc, and what one wild
/// value asks for must not take all of memory.
fn are_docs(keys: u64, docs: u32) -> bool {
    u64::from(docs) <= keys.saturating_mul(1 << 10).max(1 << 27)
}

/// Docs of a table: one more than its greatest doc ID. `None`: its values are none.
fn docs_of(table: &TableFile) -> Result<Option<u32>> {
    let docs = greatest_doc(table)?;
    Ok(docs.filter(|docs| are_docs(table.footer().keys(), *docs)))
}

fn greatest_doc(table: &TableFile) -> Result<Option<u32>> {
    let footer = table.footer();
    let value = footer.value();
    if !value.has_doc_ids() {
        return Ok(None);
    }
    if value.kind() == pkhash_core::ValueKind::Integer {
        let most = if footer.keys() == 0 { return Ok(Some(0)) } else { footer.max_value() };
        return Ok(u32::try_from(most).ok().and_then(|most| most.checked_add(1)));
    }
    let mut docs = Some(0);
    for record in table.table() {
        let (_, value) = record.map_err(Error::table(table.name()))?;
        let next = value.doc_id().and_then(|doc| doc.checked_add(1));
        docs = next.zip(docs).map(|(next, docs): (u32, u32)| docs.max(next));
    }
    Ok(docs)
}
