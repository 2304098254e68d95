//! Segment sets: many tables that answer as one.

mod answers;
mod batch;
mod in_set;
mod map;
#[cfg(feature = "index")]
mod map_file;
#[cfg(feature = "index")]
pub(crate) use map_file::{SharedMap, WeakMap};
mod policy;
mod segment;
mod versioned;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pkhash_core::KeyHasher;
use pkhash_simd::AnyKernel;

use crate::error::{Error, Result};
use crate::folder::open_tables;
use crate::table_file::OpenOptions;

pub use answers::SetAnswer;
pub use in_set::{DocIds, InSet};
use map::{Mapped, Numbers, Run, is_uniform, runs, to_map};
pub use map::{SegmentMapInfo, SegmentMapOptions};
pub use policy::{SegmentInfo, TieredPolicy};
pub use segment::{Hit, LiveDocs, Segment};
pub use versioned::VersionedHit;

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
    hashers: Vec<KeyHasher>,
    /// For each segment, which of the hashers is its.
    hasher_of: Vec<u32>,
    /// The segment map: a map, or several, each for segments of its own. Their hasher is the first then.
    maps: Vec<Mapped>,
    /// In which way segments are asked, the newest first.
    runs: Vec<Run>,
    /// Whether all segments can be asked in one staged batch, with hashes of the first hasher.
    uniform: bool,
}

impl SegmentSet {
    /// A set of these segments, the newest first. There may be none.
    ///
    /// # Errors
    /// [`Error::TooManySegments`] for more than [`MAX_SEGMENTS`].
    pub fn new(segments: impl Into<Vec<Segment>>) -> Result<Self> {
        Self::with_maps(segments.into(), Vec::new())
    }

    /// A set of these segments and the maps of some of them.
    fn with_maps(segments: Vec<Segment>, maps: Vec<Mapped>) -> Result<Self> {
        if segments.len() > MAX_SEGMENTS {
            return Err(Error::TooManySegments { expected: MAX_SEGMENTS, found: segments.len() });
        }
        Ok(Self::assemble(segments, maps))
    }

    fn assemble(segments: Vec<Segment>, maps: Vec<Mapped>) -> Self {
        let mut hashers: Vec<KeyHasher> = maps.first().map(Mapped::hasher).into_iter().collect();
        let hasher_of = segments
            .iter()
            .map(|segment| {
                let hasher = segment.table().footer().hasher();
                let at = hashers.iter().position(|known| *known == hasher);
                at.unwrap_or_else(|| {
                    hashers.push(hasher);
                    hashers.len() - 1
                }) as u32
            })
            .collect();
        let runs = runs(&maps, segments.len());
        let uniform = !maps.is_empty() && is_uniform(&segments, hashers[0]);
        Self { inner: Arc::new(Inner { segments, hashers, hasher_of, maps, runs, uniform }) }
    }

    /// A set of these segments, and of the map of this one what is left of it. `origins`: the number that
    /// each of them has here, if any.
    fn next(&self, segments: Vec<Segment>, origins: &[Option<u32>]) -> Result<Self> {
        let maps = self.inner.maps.iter().filter_map(|mapped| mapped.carry(origins)).collect();
        Self::with_maps(segments, maps)
    }

    /// The same snapshot with a segment map of all its segments, for which it reads all keys: about 3.8
    /// bytes of memory for each (5.1 beyond 256 segments). With it a lookup asks only the segments that have
    /// the key, and hardly ever another one.
    ///
    /// Snapshots that are made of this one share the map. Segments that are newer than it are asked one by
    /// one until [`with_more_segment_map`](Self::with_more_segment_map) takes them up.
    /// [`segment_map`](Self::segment_map) tells how much of it is still of use.
    ///
    /// ```
    /// # use pkhash_std::{SegmentMapOptions, SegmentSet, WriterOptions, build_slice};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.pkh");
    /// # build_slice(&["a", "b"], |i| [i as u8], &path, &WriterOptions::default())?;
    /// let set = SegmentSet::open([&path])?.with_segment_map(&SegmentMapOptions::default())?;
    /// assert_eq!(set.segment_map().map(|map| map.entries), Some(2));
    /// assert!(set.get(b"b")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Table`] if a table is damaged and the damage was noticed, or if the map would be too large;
    /// [`Error::Cancelled`].
    pub fn with_segment_map(&self, options: &SegmentMapOptions) -> Result<Self> {
        let Some(hasher) = self.inner.commonest_hasher() else { return Ok(self.clone()) };
        let segments = self.inner.segments.clone();
        let mapped = Mapped::build(&segments, hasher, options)?;
        Self::with_maps(segments, vec![mapped])
    }

    /// The same snapshot with a segment map that has all of its segments: what this one's map lacks is read and put
    /// into a small map beside it. Small maps are folded together, so that a set has a handful of them,
    /// and a key is read again about as often as the set doubles. Without a map it is
    /// [`with_segment_map`](Self::with_segment_map).
    ///
    /// # Errors
    /// As [`with_segment_map`](Self::with_segment_map).
    pub fn with_more_segment_map(&self, options: &SegmentMapOptions) -> Result<Self> {
        let Inner { segments, maps, .. } = &*self.inner;
        let Some(first) = maps.first() else { return self.with_segment_map(options) };
        let Some(n) = to_map(maps, segments) else { return Ok(self.clone()) };
        let mapped = Mapped::build(&segments[..n], first.hasher(), options)?;
        let older = maps.iter().filter_map(|mapped| mapped.behind(n));
        Self::with_maps(segments.clone(), std::iter::once(mapped).chain(older).collect())
    }

    /// The same snapshot without a segment map.
    #[must_use]
    pub fn without_segment_map(&self) -> Self {
        Self::assemble(self.inner.segments.clone(), Vec::new())
    }

    /// The facts of the segment map, if there is one.
    #[must_use]
    pub fn segment_map(&self) -> Option<SegmentMapInfo> {
        Mapped::info(&self.inner.maps, self.len())
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

    /// Opens all tables of a folder into memory, as they are at one moment, the newest first by their names;
    /// all docs live, doc bases 0. To map them, give what [`open_tables`](crate::open_tables) returns to
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// As [`open_tables`](crate::open_tables), [`OpenOptions::open`] and [`new`](Self::new).
    pub fn open_folder(folder: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let tables = open_tables([folder], |path| options.open(path).map(Segment::from))?;
        Self::new(tables)
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
        self.inner.segments.iter().map(|segment| segment.table().footer().keys()).sum()
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
    pub fn get(&self, key: &[u8]) -> Result<Option<Hit<'_>>> {
        let inner = &*self.inner;
        if let ([mapped], [Run::Mapped(_, run)]) = (&*inner.maps, &*inner.runs) {
            return inner.get_mapped(mapped, run, key);
        }
        inner.candidates(key).find_map(|candidate| candidate.ask(key).transpose()).transpose()
    }

    /// Looks up one key and answers with the doc ID of its newest live match, the segment's doc base added.
    ///
    /// # Errors
    /// [`Error::NoDocId`] if the value is no doc ID, or none of 32 bits with the doc base; or as
    /// [`get`](Self::get).
    pub fn get_doc_id(&self, key: &[u8]) -> Result<Option<u32>> {
        let Some(answer) = self.get(key)? else { return Ok(None) };
        answer.global_doc_id().map(Some).ok_or_else(|| answer.no_doc_id())
    }

    /// The segments that are worth asking for one key, the newest first.
    fn candidates<'s, 'k>(&'s self, key: &'k [u8]) -> Candidates<'s, 'k> {
        self.inner.candidates(key)
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
        let mut segments: Vec<Segment> = added.into_iter().collect();
        let mut origins = vec![None; segments.len()];
        for (mine, number) in self.inner.segments.iter().zip(0..) {
            if !removed.iter().any(|segment| mine.is_same_table(segment)) {
                segments.push(mine.clone());
                origins.push(Some(number));
            }
        }
        self.next(segments, &origins)
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
        // The tables are the same, and so is their map.
        Self::with_maps(segments, self.inner.maps.clone())
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
            let path = inputs[input].table().name().to_owned();
            return Err(Error::NotInSet { input, path });
        }
        let mut output = output;
        let mut segments = Vec::with_capacity(self.len() + 1);
        let mut origins = Vec::with_capacity(self.len() + 1);
        for (mine, number) in self.inner.segments.iter().zip(0..) {
            if !inputs.iter().any(|input| mine.is_same_table(input)) {
                segments.push(mine.clone());
                origins.push(Some(number));
            } else if let Some(output) = output.take() {
                segments.push(output);
                origins.push(None);
            }
        }
        // Merged from nothing: older than all.
        origins.extend(output.as_ref().map(|_| None));
        segments.extend(output);
        self.next(segments, &origins)
    }
}

impl Inner {
    /// [`SegmentSet::get`] for a set all of whose segments are in the map: a tenth fewer instructions than by
    /// [`candidates`](Self::candidates).
    #[inline]
    fn get_mapped(&self, mapped: &Mapped, run: &Range<u32>, key: &[u8]) -> Result<Option<Hit<'_>>> {
        let first = self.hashers[0].hash(key);
        for number in mapped.candidates(self.kernel(), first, run) {
            if let Some(answer) = self.candidate(number, first, key).ask(key)? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Segment number `number`, for a key of this hash by the first hasher.
    #[inline]
    fn candidate(&self, number: u32, first: u64, key: &[u8]) -> Candidate<'_> {
        let hash = match self.hasher_of[number as usize] {
            0 => first,
            other => self.hashers[other as usize].hash(key),
        };
        Candidate { segment: &self.segments[number as usize], number, hash }
    }

    fn candidates<'s, 'k>(&'s self, key: &'k [u8]) -> Candidates<'s, 'k> {
        let first = self.hashers.first().map_or(0, |hasher| hasher.hash(key));
        let runs = self.runs.iter();
        Candidates { inner: self, key, runs, asked: Asked::Each(0..0), first, others: Vec::new() }
    }

    /// The hasher of most keys.
    fn commonest_hasher(&self) -> Option<KeyHasher> {
        let mut keys = vec![0u64; self.hashers.len()];
        for (segment, hasher) in self.segments.iter().zip(&self.hasher_of) {
            // One more, so that an old map's hasher that no segment has any more is not chosen.
            let all = segment.table().footer().keys().saturating_add(1);
            keys[*hasher as usize] = keys[*hasher as usize].saturating_add(all);
        }
        let (hasher, _) = self.hashers.iter().zip(keys).max_by_key(|(_, keys)| *keys)?;
        Some(*hasher)
    }

    /// The kernel for all segments.
    fn kernel(&self) -> AnyKernel {
        self.segments.first().map_or_else(AnyKernel::detect, |segment| segment.table().kernel())
    }
}

/// A segment to ask, and the key's hash for it.
struct Candidate<'s> {
    segment: &'s Segment,
    number: u32,
    hash: u64,
}

impl<'s> Candidate<'s> {
    /// The key's live match.
    fn ask(&self, key: &[u8]) -> Result<Option<Hit<'s>>> {
        Ok(self.segment.get(self.hash, key)?.map(|value| self.answer(value)))
    }

    const fn answer(&self, value: pkhash_core::Value<'s>) -> Hit<'s> {
        Hit { value, segment: self.number, doc_base: self.segment.doc_base() }
    }
}

/// Segments of a run.
enum Asked {
    Each(Range<u32>),
    Mapped(Numbers),
}

/// See [`SegmentSet::candidates`].
struct Candidates<'s, 'k> {
    inner: &'s Inner,
    key: &'k [u8],
    /// Those that were not begun.
    runs: std::slice::Iter<'s, Run>,
    /// What is left of the run that was begun last.
    asked: Asked,
    /// The key's hash by the first hasher.
    first: u64,
    /// By the others, once they are needed: hardly any set has others.
    others: Vec<Option<u64>>,
}

impl<'s> Iterator for Candidates<'s, '_> {
    type Item = Candidate<'s>;

    #[inline]
    fn next(&mut self) -> Option<Candidate<'s>> {
        let number = loop {
            let next = match &mut self.asked {
                Asked::Each(run) => run.next(),
                Asked::Mapped(candidates) => candidates.next(),
            };
            if let Some(number) = next {
                break number;
            }
            let run = self.runs.next()?;
            self.asked = self.begin(run);
        };
        let segment = self.inner.segments.get(number as usize)?;
        let hash = match self.inner.hasher_of[number as usize] {
            0 => self.first,
            other => self.by_other(other as usize),
        };
        Some(Candidate { segment, number, hash })
    }
}

impl Candidates<'_, '_> {
    fn begin(&self, run: &Run) -> Asked {
        match run {
            Run::Mapped(map, run) => {
                let mapped = &self.inner.maps[*map];
                Asked::Mapped(mapped.candidates(self.inner.kernel(), self.first, run))
            }
            Run::Each(run) => Asked::Each(run.clone()),
        }
    }

    #[cold]
    fn by_other(&mut self, hasher: usize) -> u64 {
        let hashers = &self.inner.hashers;
        self.others.resize(hashers.len(), None);
        *self.others[hasher].get_or_insert_with(|| hashers[hasher].hash(self.key))
    }
}
