//! Changing an index: one writer, one commit at a time.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::manifest::{self, FileEntry, LiveEntry, Manifest, SegmentEntry, WriterLock};
use super::{Index, docs_of, live_file};
use crate::error::{Error, Result};
use crate::folder::open_tables;
use crate::partition::Built;
use crate::publish::{Publication, sync_folder};
use crate::set::{LiveDocs, Segment, SegmentMapOptions, SegmentSet};
use crate::table_file::{OpenOptions, TableFile};
use crate::writer::{TableWriter, WriterOptions};

/// Adds, deletes and merges segments of an [`Index`], and commits what has been done.
///
/// Nothing is seen by readers before [`commit`](Self::commit), and then all of it. A writer that is dropped before leaves the
/// index as it was, and removes the tables that it made. It holds the folder's lock (`writer.lock`): another writer, in
/// this process or another, is refused meanwhile.
#[derive(Debug)]
pub struct IndexWriter {
    pub(super) index: Index,
    _lock: WriterLock,
    /// What is in the folder now.
    committed: u64,
    /// What the next commit has: the newest first.
    pub(super) segments: Vec<Pending>,
    changed: bool,
    next_file: u64,
    /// What it was when the folder was last swept.
    swept: u64,
    /// How segment maps are made; `None`: not at all.
    map_options: Option<SegmentMapOptions>,
    /// Merges that are under way: the number of the output, and the inputs.
    pub(super) merges: BTreeMap<u64, Vec<Arc<TableFile>>>,
}

/// From so many segments on an index has a segment map.
const MAPPED: usize = 3;

/// A segment of the next commit.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) name: String,
    pub(super) table: Arc<TableFile>,
    /// `None`: its values are no doc IDs.
    pub(super) docs: Option<u32>,
    pub(super) live: Option<Arc<LiveDocs>>,
    /// The file of these very live docs.
    live_entry: Option<LiveEntry>,
}

impl Pending {
    pub(super) fn new(
        name: String,
        table: Arc<TableFile>,
        docs: Option<u32>,
        live: Option<LiveDocs>,
    ) -> Self {
        let live = live.filter(|live| live.deleted() > 0).map(Arc::new);
        Self { name, table, docs, live, live_entry: None }
    }

    pub(super) fn segment(&self) -> Segment {
        Segment::new(Arc::clone(&self.table)).with_live_docs(self.live.clone())
    }

    /// Segments that differ in it cannot be merged: whether values are doc IDs, and the width of those that are no
    /// integers.
    pub(super) fn values(&self) -> (bool, Option<u8>) {
        let value = self.table.footer().value();
        let is_integer = value.kind() == pkhash_core::ValueKind::Integer;
        (self.docs.is_some(), (!is_integer).then(|| value.width()))
    }

    /// Whether nothing of it is live.
    fn is_dead(&self) -> bool {
        let live = self.live.as_ref().is_some_and(|live| live.deleted() == live.docs());
        live || self.table.footer().keys() == 0
    }

    fn delete(&mut self, docs: impl IntoIterator<Item = u32>) -> Result<u64> {
        let before = match &self.live {
            Some(live) => Arc::clone(live),
            None => Arc::new(LiveDocs::all(self.docs.unwrap_or(0))),
        };
        let live = before.with_deleted(docs)?;
        let deleted = live.deleted() - before.deleted();
        if deleted > 0 {
            self.live = Some(Arc::new(live));
            self.live_entry = None;
        }
        Ok(deleted.into())
    }

    fn entry(&self, doc_base: u32, live_docs: Option<LiveEntry>) -> SegmentEntry {
        let footer = self.table.footer();
        let table = FileEntry {
            name: self.name.clone(),
            bytes: footer.file_len(),
            checksum: footer.checksum(),
        };
        SegmentEntry { table, keys: footer.keys(), docs: self.docs, doc_base, live_docs }
    }
}

/// The name of a table that the index makes.
pub(super) fn table_name(number: u64) -> String {
    format!("segment-{number:012}.pkh")
}

/// Makes a folder an index. The tables that lie in it are its segments.
pub(super) fn begin(folder: &Path) -> Result<()> {
    let _lock = WriterLock::take(folder)?;
    if manifest::newest(folder)?.is_some() {
        // Another process was quicker.
        return Ok(());
    }
    let tables = open_tables([folder], |path| OpenOptions::new().open(path));
    let tables = match tables {
        Err(Error::NoTables { .. }) => Vec::new(),
        tables => tables?,
    };
    let mut segments = Vec::with_capacity(tables.len());
    for table in tables {
        let path = table.name();
        let name = name_of(path)?;
        segments.push(Pending::new(name, Arc::new(table), None, None));
    }
    for segment in &mut segments {
        segment.docs = docs_of(&segment.table)?;
    }
    let entries = entries(&segments, |_| None)?;
    let manifest = Manifest::new(1, next_file(folder, 1)?, entries, Vec::new());
    publish_manifest(folder, &manifest)?.commit()
}

fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.filter(|name| manifest::is_plain(name)).map(str::to_owned).ok_or_else(|| Error::Manifest {
        path: path.to_owned(),
        fault: "expected a name of a table that is UTF-8, has no backslash and begins with no dot"
            .to_owned(),
    })
}

/// A number that no file has, and that is not below `least`.
fn next_file(folder: &Path, least: u64) -> Result<u64> {
    let mut next = least;
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let name = entry.map_err(Error::io("read", folder))?.file_name();
        let number = name.to_str().and_then(super::sweep::number_of);
        next = next.max(number.map_or(0, |number| number.saturating_add(1)));
    }
    Ok(next)
}

fn entries(
    segments: &[Pending],
    live: impl Fn(usize) -> Option<LiveEntry>,
) -> Result<Vec<SegmentEntry>> {
    let mut doc_base = 0u32;
    let mut entries = Vec::with_capacity(segments.len());
    // Doc bases count from the oldest on, so that those of old segments stay when one is added.
    for (i, segment) in segments.iter().enumerate().rev() {
        entries.push(segment.entry(doc_base, live(i)));
        let docs = segment.docs.unwrap_or(0);
        doc_base = doc_base
            .checked_add(docs)
            .ok_or(Error::TooManyDocs { found: u64::from(doc_base) + u64::from(docs) })?;
    }
    entries.reverse();
    Ok(entries)
}

/// Writes a manifest that is yet to get its name.
fn publish_manifest(folder: &Path, manifest: &Manifest) -> Result<Publication> {
    let path = folder.join(manifest::manifest_name(manifest.snapshot));
    let mut publication = Publication::begin(&path)?;
    let text = manifest.to_text();
    publication.file().write_all(text.as_bytes()).map_err(Error::io("write", &path))?;
    Ok(publication)
}

impl IndexWriter {
    pub(super) fn new(index: Index, lock: WriterLock) -> Result<Self> {
        let snapshot = index.snapshot();
        let inner = &*snapshot.inner;
        let segments = inner.manifest.segments.iter().zip(inner.set.segments());
        let segments = segments
            .map(|(entry, segment)| Pending {
                name: entry.table.name.clone(),
                table: Arc::clone(segment.table()),
                docs: entry.docs,
                live: segment.live_docs().cloned(),
                live_entry: entry.live_docs.clone(),
            })
            .collect();
        let next_file = next_file(index.real(), inner.manifest.next_file)?;
        let writer = Self {
            committed: snapshot.number(),
            index,
            _lock: lock,
            segments,
            changed: false,
            next_file,
            swept: next_file,
            map_options: Some(SegmentMapOptions::default()),
            merges: BTreeMap::new(),
        };
        writer.sweep();
        Ok(writer)
    }

    /// The folder, as it was given.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.index.folder()
    }

    /// The segments as they will be committed, the newest first. Doc bases are those of the set that is committed.
    ///
    /// # Errors
    /// [`Error::TooManyDocs`].
    pub fn set(&self) -> Result<SegmentSet> {
        let entries = entries(&self.segments, |_| None)?;
        let based = self.segments.iter().zip(entries);
        SegmentSet::new(
            based
                .map(|(pending, entry)| pending.segment().with_doc_base(entry.doc_base))
                .collect::<Vec<_>>(),
        )
    }

    /// Where a table may be published that is to be added: a path in the folder that no other file has. Each call answers
    /// another one.
    pub fn new_table_path(&mut self) -> PathBuf {
        let number = self.new_number();
        self.index.real().join(table_name(number))
    }

    pub(super) fn new_number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file - 1
    }

    /// Adds a table as the newest segment. A table in the folder is taken where it is. Any other is linked or copied
    /// into it; nothing may change it afterwards.
    ///
    /// Its values are taken for doc IDs, if they can be: if all fit 32 bits, and the greatest is below 2^27 or 1,024 times the keys. Otherwise it is
    /// as [`add_values`](Self::add_values). A key that older
    /// segments have, too, is found in this one. The older docs stay live: see [`replace`](Self::replace).
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Table`] if it is not a table; [`Error::AlreadyThere`] if it is a segment already;
    /// [`Error::TooManyDocs`] if doc IDs of 32 bits do not tell the docs of all segments apart.
    pub fn add(&mut self, table: impl AsRef<Path>) -> Result<()> {
        let mut segment = self.take(table.as_ref())?;
        segment.docs = docs_of(&segment.table)?;
        self.push(segment)
    }

    /// Adds a table whose values are no doc IDs, whatever they look like: its keys cannot be deleted, and it takes no
    /// part in the numbering of docs.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_values(&mut self, table: impl AsRef<Path>) -> Result<()> {
        let segment = self.take(table.as_ref())?;
        self.push(segment)
    }

    /// Adds a table as the newest segment, and deletes the docs that its keys have had before. Returns how many docs
    /// were deleted.
    ///
    /// # Errors
    /// As [`add`](Self::add) and [`delete`](Self::delete). Nothing has changed then.
    pub fn replace(&mut self, table: impl AsRef<Path>) -> Result<u64> {
        let mut segment = self.take(table.as_ref())?;
        segment.docs = docs_of(&segment.table)?;
        let before = self.segments.clone();
        let replaced = self.delete_keys_of(&segment.table);
        let replaced = replaced.and_then(|deleted| self.push(segment).map(|()| deleted));
        replaced.inspect_err(|_| self.segments = before)
    }

    /// Builds a table of these keys and adds it: their doc IDs are 0, 1, 2, … in the segment.
    ///
    /// # Errors
    /// As [`TableWriter`]; [`Error::TooManyDocs`].
    pub fn add_keys<K: AsRef<[u8]>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        options: WriterOptions,
    ) -> Result<Built> {
        let path = self.new_table_path();
        let mut writer = TableWriter::create(&path, options)?;
        for (doc, key) in keys.into_iter().enumerate() {
            writer.add(key.as_ref(), doc as u64)?;
        }
        let built = writer.publish()?;
        self.add(&path)?;
        Ok(built)
    }

    /// Deletes every live doc of these keys, in all segments. Returns how many docs were deleted.
    ///
    /// # Errors
    /// [`Error::NoDocId`] if a key has a value that is no doc ID; [`Error::Table`] if a table is damaged and the damage
    /// was noticed. Nothing has changed then.
    pub fn delete<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<u64> {
        let before = self.segments.clone();
        let deleted = self.delete_all(keys);
        deleted.inspect_err(|_| self.segments = before)
    }

    fn delete_all<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<u64> {
        // Doc bases are 0: docs of the segments.
        let segments: Vec<Segment> = self.segments.iter().map(Pending::segment).collect();
        let found = SegmentSet::new(segments)?.in_set(keys)?;
        let mut deleted = 0;
        for (i, segment) in self.segments.iter_mut().enumerate() {
            let mut docs = found.segment(i).peekable();
            if let Some(doc) = docs.peek()
                && segment.docs.is_none()
            {
                return Err(Error::NoDocId { segment: i, value: doc.to_le_bytes().to_vec() });
            }
            deleted += segment.delete(docs)?;
        }
        self.changed |= deleted > 0;
        Ok(deleted)
    }

    fn delete_keys_of(&mut self, table: &TableFile) -> Result<u64> {
        /// Keys that are looked up at a time.
        const KEYS: usize = 1 << 16;

        let mut deleted = 0;
        let mut keys: Vec<&[u8]> = Vec::new();
        let mut records = table.table().iter();
        loop {
            keys.clear();
            for record in records.by_ref().take(KEYS) {
                let (key, _) = record.map_err(Error::table(table.name()))?;
                keys.push(key);
            }
            if keys.is_empty() {
                return Ok(deleted);
            }
            deleted += self.delete_all(&keys)?;
        }
    }

    /// Makes what has been done since the last commit the next snapshot. Returns its number. Without a change
    /// it is the last one's.
    ///
    /// The [`Index`] that the writer is of has it at once; others [`refresh`](Index::refresh).
    ///
    /// Live docs and the manifest are written and synced first. Then each gets its name, and the manifest last. Files that no snapshot needs any
    /// longer are removed at the end; those that are in use are left for a later commit. Segments without a live doc
    /// are dropped.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::TooManyDocs`], [`Error::TooManySegments`]. The index is then as it was, and the commit can be
    /// tried again. (If the folder could not be synced, readers may see the new snapshot already; the next commit
    /// then has the number after it.)
    pub fn commit(&mut self) -> Result<u64> {
        if !self.changed {
            return Ok(self.committed);
        }
        self.publish().map_err(|error| self.index.shown(error))
    }

    fn publish(&mut self) -> Result<u64> {
        let in_merge: Vec<&Arc<TableFile>> = self.merges.values().flatten().collect();
        let keep = |segment: &Pending| {
            !segment.is_dead() || in_merge.iter().any(|table| Arc::ptr_eq(table, &segment.table))
        };
        let mut segments = self.segments.clone();
        segments.retain(keep);
        if segments.len() > crate::set::MAX_SEGMENTS {
            let (expected, found) = (crate::set::MAX_SEGMENTS, segments.len());
            return Err(Error::TooManySegments { expected, found });
        }
        // A commit that failed at the very end may have left the next number.
        let newest = manifest::snapshots(self.index.real())?.first().copied().unwrap_or(0);
        let snapshot = newest.max(self.committed) + 1;
        let mut files = Vec::new();
        for segment in &mut segments {
            if let (Some(live), None) = (&segment.live, &segment.live_entry) {
                let stem = segment.name.strip_suffix(".pkh").unwrap_or(&segment.name);
                let name = format!("{stem}.live-{snapshot:012}");
                let path = self.index.real().join(&name);
                let mut publication = Publication::begin(&path)?;
                let checksum = segment.table.footer().checksum();
                let entry = live_file::write(publication.file(), name, &path, live, checksum)?;
                segment.live_entry = Some(entry);
                files.push(publication);
            }
        }
        let entries = entries(&segments, |i| segments[i].live_entry.clone())?;
        let (maps, mapped) = self.maps(&segments, &mut files)?;
        let manifest = Manifest::new(snapshot, self.next_file, entries, maps);
        files.push(publish_manifest(self.index.real(), &manifest)?);
        Publication::commit_all(files)?;
        self.segments = segments;
        self.committed = snapshot;
        self.changed = false;
        // Everything is open. Should it fail all the same, the caller's own refresh says why.
        let _ = self.index.refresh();
        // Until here it has kept new maps in memory, so that they were not read again.
        drop(mapped);
        self.sweep();
        self.swept = self.next_file;
        Ok(snapshot)
    }

    /// The segment map of these segments, in files and in memory: what the last snapshot's lacks is added to it, and
    /// written to a file.
    fn maps(
        &mut self,
        segments: &[Pending],
        files: &mut Vec<Publication>,
    ) -> Result<(Vec<FileEntry>, SegmentSet)> {
        let Some(options) = self.map_options.as_ref().filter(|_| segments.len() >= MAPPED) else {
            return Ok((Vec::new(), SegmentSet::default()));
        };
        let before = self.index.snapshot();
        let known = before.inner.maps.iter().map(|(_, map)| map).zip(&before.inner.manifest.maps);
        let set = SegmentSet::new(segments.iter().map(Pending::segment).collect::<Vec<_>>())?
            .with_shared_maps(known.clone().map(|(map, _)| map.clone()))?
            .with_more_segment_map(options)?;
        let mut maps = Vec::new();
        for map in set.shared_maps() {
            if let Some((_, entry)) = known.clone().find(|(known, _)| known.is_same(&map)) {
                maps.push(entry.clone());
                continue;
            }
            let name = format!("map-{:012}.segments", self.next_file);
            self.next_file += 1;
            let path = self.index.real().join(&name);
            let mut publication = Publication::begin(&path)?;
            let written = map.write(publication.file()).map_err(Error::io("write", &path))?;
            let (bytes, checksum) = written;
            let entry = FileEntry { name, bytes, checksum };
            self.index.opened().keep_map(&entry, &map);
            files.push(publication);
            maps.push(entry);
        }
        Ok((maps, set))
    }

    /// How the segment map is made at a commit, by default with [`SegmentMapOptions::default`]. `None`: none is
    /// made. An index of fewer than three segments has none in any case.
    pub fn segment_map(&mut self, options: impl Into<Option<SegmentMapOptions>>) {
        self.map_options = options.into();
    }

    /// Removes what no snapshot needs.
    fn sweep(&self) {
        let mut kept: HashSet<String> =
            self.segments.iter().map(|segment| segment.name.clone()).collect();
        kept.extend(self.merges.keys().map(|number| table_name(*number)));
        super::sweep::sweep(self.index.real(), self.committed, &kept);
    }

    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    fn push(&mut self, segment: Pending) -> Result<()> {
        let docs = self.segments.iter().chain([&segment]).map(|segment| segment.docs.unwrap_or(0));
        let found = docs.map(u64::from).sum();
        if u32::try_from(found).is_err() {
            return Err(Error::TooManyDocs { found });
        }
        self.segments.insert(0, segment);
        self.changed = true;
        Ok(())
    }

    /// The same table, so that snapshots do not open it once more.
    pub(super) fn share(&self, name: String, table: TableFile) -> Result<Arc<TableFile>> {
        let footer = table.footer();
        let entry = FileEntry { name, bytes: footer.file_len(), checksum: footer.checksum() };
        self.index.opened().table(self.index.real(), &entry, |_| Ok(table))
    }

    /// A table as a segment of the folder, of unknown docs.
    fn take(&mut self, path: &Path) -> Result<Pending> {
        let found = path.canonicalize().map_err(Error::io("open", path))?;
        let taken = self.take_found(&found, path);
        taken.map_err(|error| self.index.shown(error.shown_in(&found, path)))
    }

    /// `shown`: as the caller has it.
    fn take_found(&mut self, found: &Path, shown: &Path) -> Result<Pending> {
        let real = |path: &Path| path.canonicalize().map_err(Error::io("open", path));
        let parent = found.parent().unwrap_or(found);
        let is_here = parent == real(self.index.real())?;
        let name = if is_here {
            name_of(found)?
        } else {
            let name = table_name(self.next_file);
            let to = self.index.real().join(&name);
            self.next_file += 1;
            link_or_copy(found, &to)?;
            name
        };
        let shared = &self.index.shared;
        if self.segments.iter().any(|segment| segment.name == name) {
            return Err(Error::AlreadyThere { path: self.index.real().join(name) });
        }
        let to = self.index.real().join(&name);
        let table = (shared.open.table)(shared.options, &to).map_err(|error| {
            if is_here {
                return error;
            }
            // It is the caller's file that is no table.
            let _ = fs::remove_file(&to);
            error.shown_in(&to, shown)
        })?;
        #[cfg(feature = "ordered")]
        if !is_here {
            let companion = crate::companion_path(found);
            let options = crate::OrderedOptions::new().trusted(true);
            // Not one of a table that lay there before.
            if companion.is_file() && options.open(&companion, table.table()).is_ok() {
                link_or_copy(&companion, &crate::companion_path(&to))?;
            }
        }
        Ok(Pending::new(name.clone(), self.share(name, table)?, None, None))
    }
}

impl Drop for IndexWriter {
    /// Removes the tables that were made and never committed.
    fn drop(&mut self) {
        if self.next_file != self.swept {
            super::sweep::sweep(self.index.real(), self.committed, &HashSet::new());
        }
    }
}

/// Gives a file another name, or copies it where that cannot be.
fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    if !fs::metadata(from).map_err(Error::io("open", from))?.is_file() {
        return Err(Error::NotAFile { path: from.to_owned() });
    }
    let mut source = File::open(from).map_err(Error::io("open", from))?;
    match fs::hard_link(from, to) {
        Ok(()) => {
            // Nobody else may have done so.
            source.sync_all().map_err(Error::io("sync", from))?;
            sync_folder(to.parent().unwrap_or(to), to, &mut |_| {})
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::io("link", to)(error))
        }
        Err(_) => {
            let mut publication = Publication::begin(to)?;
            io::copy(&mut source, publication.file()).map_err(Error::io("copy", from))?;
            publication.commit()
        }
    }
}
