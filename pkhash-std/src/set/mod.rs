//! Segment sets: many tables that answer as one.

mod batch;
mod in_set;
mod policy;
mod segment;
mod versioned;

use std::path::Path;
use std::sync::Arc;

use pkhash_core::Hasher;

use crate::error::{Error, Result};
use crate::file::OpenOptions;

pub use in_set::{DocIds, InSet};
pub use policy::{SegmentInfo, TieredPolicy};
pub use segment::{Answer, LiveDocs, Segment};
pub use versioned::{VERSIONED_WIDTH, VersionedAnswer, versioned_value};
pub(crate) use versioned::{check_width, version_of};

/// The most segments of a set: what a segment number of two bytes holds.
pub const MAX_SEGMENTS: usize = 1 << 16;

/// A snapshot of some segments, the newest first: immutable, cheap to clone, and for any number of
/// threads at once.
///
/// Of the matches of a key, the newest live one wins: if its doc in the newest segment is deleted, older
/// segments are tried. What changes is the snapshot: [`with`](Self::with), [`merged`](Self::merged) and
/// [`with_live_docs`](Self::with_live_docs) make a new one, and who holds the old one goes on to see what it
/// held, also when its files are replaced or removed. Tables are shared by the snapshots and never opened
/// again.
///
/// ```
/// use std::sync::Arc;
/// use pkhash_std::{LiveDocs, Segment, SegmentSet, TableFile, WriterOptions, build_slice};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let (old, new) = (folder.path().join("old.pkh"), folder.path().join("new.pkh"));
/// let value = |i: usize| (i as u32).to_le_bytes();
/// build_slice(&["order-1", "order-2"], value, &old, &WriterOptions::default())?;
/// build_slice(&["order-2", "order-3"], value, &new, &WriterOptions::default())?;
///
/// let set = SegmentSet::open([&new, &old])?;
/// assert_eq!(set.get(b"order-2")?.map(|answer| answer.segment()), Some(0));
/// // The newer doc is deleted.
/// let live = Arc::new(LiveDocs::from_deleted(2, &[0])?);
/// let later = set.with_live_docs(0, Some(live))?;
/// assert_eq!(later.get(b"order-2")?.map(|answer| answer.segment()), Some(1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SegmentSet {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The newest first.
    segments: Vec<Segment>,
    /// The hashers of the tables, each once.
    hashers: Vec<Hasher>,
    /// For each segment, which of the hashers is its.
    hasher_of: Vec<u32>,
}

impl SegmentSet {
    /// A set of these segments, the newest first. There may be none.
    ///
    /// # Errors
    /// [`Error::TooManySegments`] for more than [`MAX_SEGMENTS`].
    pub fn new(segments: impl Into<Vec<Segment>>) -> Result<Self> {
        let segments = segments.into();
        if segments.len() > MAX_SEGMENTS {
            return Err(Error::TooManySegments { expected: MAX_SEGMENTS, found: segments.len() });
        }
        let mut hashers: Vec<Hasher> = Vec::new();
        let hasher_of = segments
            .iter()
            .map(|segment| {
                let hasher = segment.table().footer().hasher;
                let at = hashers.iter().position(|known| *known == hasher);
                at.unwrap_or_else(|| {
                    hashers.push(hasher);
                    hashers.len() - 1
                }) as u32
            })
            .collect();
        Ok(Self { inner: Arc::new(Inner { segments, hashers, hasher_of }) })
    }

    /// Opens tables into memory, the newest first; all docs live, doc bases 0.
    ///
    /// # Errors
    /// As [`OpenOptions::open`], for the first that cannot be opened, and as [`new`](Self::new).
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Self> {
        Self::open_with(paths, OpenOptions::new())
    }

    /// Opens tables, the newest first; all docs live, doc bases 0.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
        options: OpenOptions,
    ) -> Result<Self> {
        let open = |path| options.open(path).map(Segment::from);
        Self::new(paths.into_iter().map(open).collect::<Result<Vec<_>>>()?)
    }

    /// The segments, the newest first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.inner.segments
    }

    /// Number of segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.segments.len()
    }

    /// Whether there are no segments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.segments.is_empty()
    }

    /// Keys of all tables, those of deleted docs included; a key counts once for each table that
    /// has it.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.inner.segments.iter().map(|segment| segment.table().footer().keys).sum()
    }

    /// The number of the segment of this one's table; `None` if this snapshot has it not.
    #[must_use]
    pub fn position(&self, segment: &Segment) -> Option<usize> {
        self.inner.segments.iter().position(|mine| mine.is_same_table(segment))
    }

    /// Looks up one key: its newest live match.
    ///
    /// # Errors
    /// [`Error::Table`] if a table is damaged and the damage was noticed.
    pub fn get(&self, key: &[u8]) -> Result<Option<Answer<'_>>> {
        for candidate in self.candidates(key) {
            if let Some(value) = candidate.segment.get(candidate.hash, key)? {
                return Ok(Some(candidate.answer(value)));
            }
        }
        Ok(None)
    }

    /// The segments that are worth asking for one key, the newest first.
    fn candidates<'s, 'k>(&'s self, key: &'k [u8]) -> Candidates<'s, 'k> {
        let first = self.inner.hashers.first().map_or(0, |hasher| hasher.hash(key));
        Candidates { inner: &self.inner, key, next: 0, first, others: Vec::new() }
    }

    /// A new snapshot: `added`, newer than all others, the newest first, and of this one's segments those
    /// whose table is not among `removed`. What is in `removed` but not in this snapshot does not
    /// matter. Tables that stay are shared with this snapshot.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with(
        &self,
        added: impl IntoIterator<Item = Segment>,
        removed: &[Segment],
    ) -> Result<Self> {
        let stays = |mine: &&Segment| !removed.iter().any(|segment| mine.is_same_table(segment));
        let old = self.inner.segments.iter().filter(stays).cloned();
        Self::new(added.into_iter().chain(old).collect::<Vec<_>>())
    }

    /// A new snapshot in which segment number `segment` has these live docs. Its table is shared with this
    /// snapshot.
    ///
    /// # Errors
    /// [`Error::NoSuchSegment`].
    pub fn with_live_docs(&self, segment: usize, live: Option<Arc<LiveDocs>>) -> Result<Self> {
        let mut segments = self.inner.segments.clone();
        let found = segments.len();
        let changed = segments
            .get_mut(segment)
            .ok_or(Error::NoSuchSegment { expected: found, found: segment })?;
        *changed = changed.clone().with_live_docs(live);
        // The tables are the same, and so are their hashers.
        let Inner { hashers, hasher_of, .. } = &*self.inner;
        let (hashers, hasher_of) = (hashers.clone(), hasher_of.clone());
        Ok(Self { inner: Arc::new(Inner { segments, hashers, hasher_of }) })
    }

    /// A new snapshot in which the segments of `inputs`, which need not be of this very snapshot, gave way to
    /// `output`, which was merged from them and takes the place of the newest of them. With `None`
    /// they are gone: nothing of them was live.
    ///
    /// So that the newest match goes on to win, the inputs must be neighbours, and merged in their order with
    /// [`OnDuplicate::First`](crate::OnDuplicate::First); or no two segments hold one key that is live
    /// in both. Deletes that arrived since the inputs' live docs were read are for the caller to apply: see
    /// [`DocMap::compacting`](crate::DocMap::compacting).
    ///
    /// # Errors
    /// [`Error::NotInSet`] if the table of an input is not in this snapshot, as after another merge.
    pub fn merged(&self, inputs: &[Segment], output: Option<Segment>) -> Result<Self> {
        let missing = inputs.iter().position(|input| self.position(input).is_none());
        if let Some(input) = missing {
            let path = inputs[input].table().path().to_owned();
            return Err(Error::NotInSet { input, path });
        }
        let mut output = output;
        let mut segments = Vec::with_capacity(self.len() + 1);
        for mine in &self.inner.segments {
            match inputs.iter().any(|input| mine.is_same_table(input)) {
                true => segments.extend(output.take()),
                false => segments.push(mine.clone()),
            }
        }
        // Merged from nothing: older than all.
        segments.extend(output);
        Self::new(segments)
    }
}

/// A segment to ask, and the key's hash for it.
struct Candidate<'s> {
    segment: &'s Segment,
    number: u32,
    hash: u64,
}

impl<'s> Candidate<'s> {
    const fn answer(&self, value: pkhash_core::Value<'s>) -> Answer<'s> {
        Answer { value, segment: self.number, doc_base: self.segment.doc_base() }
    }
}

/// See [`SegmentSet::candidates`]: all segments.
struct Candidates<'s, 'k> {
    inner: &'s Inner,
    key: &'k [u8],
    next: usize,
    /// The key's hash by the first hasher.
    first: u64,
    /// By the others, once they are needed: hardly any set has others.
    others: Vec<Option<u64>>,
}

impl<'s> Iterator for Candidates<'s, '_> {
    type Item = Candidate<'s>;

    #[inline]
    fn next(&mut self) -> Option<Candidate<'s>> {
        let number = self.next;
        let segment = self.inner.segments.get(number)?;
        self.next += 1;
        let hash = match self.inner.hasher_of[number] {
            0 => self.first,
            other => self.by_other(other as usize),
        };
        Some(Candidate { segment, number: number as u32, hash })
    }
}

impl Candidates<'_, '_> {
    #[cold]
    fn by_other(&mut self, hasher: usize) -> u64 {
        let hashers = &self.inner.hashers;
        self.others.resize(hashers.len(), None);
        *self.others[hasher].get_or_insert_with(|| hashers[hasher].hash(self.key))
    }
}
