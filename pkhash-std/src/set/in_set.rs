//! The in-set query: which docs have one of these keys?

use std::ops::Range;

use pkhash_core::builder::sort_by;
use pkhash_core::segment_map::Ask;
use pkhash_core::{HashedKeys, Value};
use roaring::RoaringBitmap;

use super::batch::{Asker, CHUNK, Hashes};
use super::map::{Mapped, Run};
use super::segment::{Hit, Segment};
use super::{Inner, SegmentSet};
use crate::error::Result;

/// The docs of an in-set query: those of the set, doc bases added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InSet {
    /// Segment after segment, sorted in each.
    docs: Vec<u32>,
    /// Where each segment's docs end.
    ends: Vec<usize>,
}

impl InSet {
    /// All docs: segment after segment, the newest first, in each of them sorted and each once.
    #[must_use]
    pub fn iter(&self) -> DocIds<'_> {
        DocIds(self.docs.iter().copied())
    }

    /// The docs of segment number `segment`, sorted, each once; none if there are not so many segments.
    #[must_use]
    pub fn segment(&self, segment: usize) -> DocIds<'_> {
        DocIds(self.docs[self.range(segment)].iter().copied())
    }

    /// Number of docs, of all segments together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.docs.len()
    }

    /// Whether there are no docs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.docs.is_empty()
    }

    /// The docs of all segments.
    #[must_use]
    pub fn bitmap(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        // One segment's docs follow another's, unless doc bases were never given.
        for segment in 0..self.ends.len() {
            all |= self.segment_bitmap(segment);
        }
        all
    }

    /// The docs of segment number `segment`; none if there are not so many segments.
    #[must_use]
    pub fn segment_bitmap(&self, segment: usize) -> RoaringBitmap {
        self.segment(segment).collect()
    }

    fn range(&self, segment: usize) -> Range<usize> {
        let Some(end) = self.ends.get(segment) else { return 0..0 };
        let begin = segment.checked_sub(1).map_or(0, |before| self.ends[before]);
        begin..*end
    }
}

impl<'a> IntoIterator for &'a InSet {
    type Item = u32;
    type IntoIter = DocIds<'a>;

    fn into_iter(self) -> DocIds<'a> {
        self.iter()
    }
}

/// Doc IDs of an [`InSet`].
#[derive(Clone, Debug)]
pub struct DocIds<'a>(std::iter::Copied<std::slice::Iter<'a, u32>>);

impl Iterator for DocIds<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for DocIds<'_> {}

impl std::iter::FusedIterator for DocIds<'_> {}

impl SegmentSet {
    /// All live docs that have one of these keys, which may come in any order and repeat: what Lucene's
    /// *TermInSetQuery* gives. Not only the newest match of a key counts, as for [`get`](Self::get), but
    /// every live one, in every segment. Doc IDs are those of the set: doc bases are added.
    ///
    /// # Errors
    /// [`Error::NoDocId`](crate::Error::NoDocId) for a live match whose value is no doc ID, or none of 32 bits with the doc base
    /// added; otherwise as [`get`](Self::get).
    pub fn in_set<B: AsRef<[u8]>>(&self, keys: &[B]) -> Result<InSet> {
        let Some(first) = self.inner.hashers.first() else { return Ok(InSet::default()) };
        // In the order of their hashes, so that keys of one partition come together, and equal ones.
        let key = |i: usize| keys[i].as_ref();
        let mut sorted: Vec<(u64, usize)> =
            (0..keys.len()).map(|i| (first.hash(key(i)), i)).collect();
        let mut spare = vec![(0, 0); sorted.len()];
        sort_by(&mut sorted, &mut spare, |(hash, _)| *hash, |a, b| key(a.1).cmp(key(b.1)))?;
        drop(spare);
        sorted.dedup_by(|later, kept| later.0 == kept.0 && key(later.1) == key(kept.1));
        let mut query = Query {
            inner: &self.inner,
            values: vec![None; CHUNK],
            asks: Vec::new(),
            asker: Asker::new(&self.inner),
            found: Vec::new(),
        };
        for sorted in sorted.chunks(CHUNK) {
            let keys: Vec<&[u8]> = sorted.iter().map(|(_, i)| key(*i)).collect();
            let mut hashes: Vec<Hashes> = Vec::new();
            hashes.resize_with(self.inner.hashers.len(), Hashes::default);
            hashes[0] = sorted.iter().map(|(hash, _)| *hash).collect();
            query.ask(&keys, &mut hashes)?;
        }
        Ok(query.docs(self.len()))
    }
}

/// A query under way.
struct Query<'a> {
    inner: &'a Inner,
    /// What a segment answers, or the asks.
    values: Vec<Option<Value<'a>>>,
    asks: Vec<Ask>,
    asker: Asker<'a>,
    /// Each match: its segment in the upper half, its doc ID in the lower. (As pairs they took half as long
    /// again to sort.)
    found: Vec<u64>,
}

impl<'a> Query<'a> {
    /// Adds the live docs of a chunk of keys.
    fn ask(&mut self, keys: &[&[u8]], hashes: &mut [Hashes]) -> Result<()> {
        let inner = self.inner;
        for run in &inner.runs {
            match run {
                Run::Mapped(map, run) => {
                    self.ask_mapped(&inner.maps[*map], run, keys, hashes)?;
                }
                Run::Each(run) => {
                    for number in run.clone() {
                        self.ask_one(number, keys, hashes)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks one segment.
    fn ask_one(&mut self, number: u32, keys: &[&[u8]], hashes: &mut [Hashes]) -> Result<()> {
        let inner = self.inner;
        let segment = &inner.segments[number as usize];
        let hasher = inner.hasher_of[number as usize] as usize;
        let hashes = hashes[hasher].of(inner.hashers[hasher], keys);
        let values = &mut self.values[..keys.len()];
        if segment.table().get_batch(HashedKeys { keys, hashes }, values)? == 0 {
            return Ok(());
        }
        for value in values.iter().copied().flatten().filter(|value| segment.is_live(*value)) {
            self.found.push(found(number, segment, value)?);
        }
        Ok(())
    }

    /// Asks the segments of a run that the map names.
    fn ask_mapped(
        &mut self,
        mapped: &'a Mapped,
        run: &Range<u32>,
        keys: &[&[u8]],
        hashes: &mut [Hashes],
    ) -> Result<()> {
        let inner = self.inner;
        let first = hashes[0].of(inner.hashers[0], keys);
        let mut asks = std::mem::take(&mut self.asks);
        asks.clear();
        asks.resize(keys.len(), Ask::default());
        let map = mapped.map();
        let asked = inner.kernel().ask_batch(&map, first, mapped.numbers(), run, &mut asks)?;
        asks.truncate(asked);
        // The others, of which a batch asks one.
        let mut others = Vec::new();
        for ask in asks.iter().filter(|ask| ask.more) {
            let all = mapped.candidates(inner.kernel(), hashes[0].get(ask.key as usize), run);
            others.extend(all.filter(|n| *n != ask.table).map(|table| Ask { table, ..*ask }));
            if others.len() >= CHUNK {
                self.ask_these(&others, keys, hashes)?;
                others.clear();
            }
        }
        self.ask_these(&others, keys, hashes)?;
        self.ask_these(&asks, keys, hashes)?;
        self.asks = asks;
        Ok(())
    }

    /// Adds what these asks find live.
    fn ask_these(&mut self, asks: &[Ask], keys: &[&[u8]], hashes: &mut [Hashes]) -> Result<()> {
        let inner = self.inner;
        for asks in asks.chunks(CHUNK) {
            let values = &mut self.values[..asks.len()];
            self.asker.ask(inner, asks, keys, hashes, values)?;
            for (ask, value) in asks.iter().zip(values) {
                let segment = &inner.segments[ask.table as usize];
                if let Some(value) = *value
                    && segment.is_live(value)
                {
                    self.found.push(found(ask.table, segment, value)?);
                }
            }
        }
        Ok(())
    }

    /// The docs by segment, each once.
    fn docs(mut self, segments: usize) -> InSet {
        self.found.sort_unstable();
        // Two keys may have one doc.
        self.found.dedup();
        let mut ends = Vec::with_capacity(segments);
        for number in 0..segments as u32 {
            ends.push(self.found.partition_point(|found| found >> 32 <= u64::from(number)));
        }
        InSet { docs: self.found.into_iter().map(|found| found as u32).collect(), ends }
    }
}

/// Segment and doc ID of a match, doc base added.
#[inline]
fn found(number: u32, segment: &Segment, value: Value<'_>) -> Result<u64> {
    let answer = Hit { value, segment: number, doc_base: segment.doc_base() };
    answer
        .global_doc_id()
        .map(|doc| u64::from(number) << 32 | u64::from(doc))
        .ok_or_else(|| answer.no_doc_id())
}
