//! The in-set query: which docs have one of these keys?

use std::ops::Range;

use pkhash_core::Value;
use pkhash_core::build::sort_by;
use roaring::RoaringBitmap;

use super::batch::{CHUNK, Hashes};
use super::segment::{Segment, is_live_in};
use super::{Inner, SegmentSet};
use crate::error::{Error, Result};

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
    /// [`Error::NoDocId`] for a live match whose value is no doc ID, or none of 32 bits with the doc base
    /// added; otherwise as [`get`](Self::get).
    pub fn in_set<B: AsRef<[u8]>>(&self, keys: &[B]) -> Result<InSet> {
        let mut found = InSet::default();
        let Some(first) = self.inner.hashers.first() else { return Ok(found) };
        let mut hashes: Vec<Hashes> = Vec::new();
        hashes.resize_with(self.inner.hashers.len(), Hashes::default);
        // In the order of their hashes, so that keys of one partition come together, and equal ones.
        let key = |i: usize| keys[i].as_ref();
        let mut sorted: Vec<(u64, usize)> =
            (0..keys.len()).map(|i| (first.hash(key(i)), i)).collect();
        let mut spare = vec![(0, 0); sorted.len()];
        sort_by(&mut sorted, &mut spare, |(hash, _)| *hash, |a, b| key(a.1).cmp(key(b.1)))?;
        drop(spare);
        sorted.dedup_by(|later, kept| later.0 == kept.0 && key(later.1) == key(kept.1));
        let keys: Vec<&[u8]> = sorted.iter().map(|(_, i)| key(*i)).collect();
        hashes[0] = sorted.into_iter().map(|(hash, _)| hash).collect();
        let mut values = vec![None; keys.len().min(CHUNK)];
        for number in 0..self.len() {
            let docs = &mut found.docs;
            self.inner.in_segment(number, &keys, &mut hashes, &mut values, docs)?;
            found.ends.push(found.docs.len());
        }
        Ok(found)
    }
}

impl Inner {
    /// Adds the live docs of one segment, sorted, each once.
    fn in_segment<'a>(
        &'a self,
        number: usize,
        keys: &[&[u8]],
        hashes: &mut [Hashes],
        values: &mut [Option<Value<'a>>],
        docs: &mut Vec<u32>,
    ) -> Result<()> {
        let segment = &self.segments[number];
        let hasher = self.hasher_of[number] as usize;
        let hashes = hashes[hasher].of(self.hashers[hasher], keys);
        let begin = docs.len();
        for (keys, hashes) in keys.chunks(CHUNK).zip(hashes.chunks(CHUNK)) {
            let values = &mut values[..keys.len()];
            if segment.table().get_batch_hashed(keys, hashes, values)? == 0 {
                continue;
            }
            for value in values.iter().copied().flatten() {
                if segment.live_docs().is_none_or(|live| is_live_in(live, value)) {
                    docs.push(global(number, segment, value)?);
                }
            }
        }
        docs[begin..].sort_unstable();
        // Two keys may have one doc.
        let mut kept = begin;
        for i in begin..docs.len() {
            if i == begin || docs[i] != docs[kept - 1] {
                docs[kept] = docs[i];
                kept += 1;
            }
        }
        docs.truncate(kept);
        Ok(())
    }
}

/// The doc ID of a match, doc base added.
fn global(number: usize, segment: &Segment, value: Value<'_>) -> Result<u32> {
    // A value of no bytes says nothing of docs.
    let doc = value.doc_id().filter(|_| !value.as_bytes().is_empty());
    doc.and_then(|doc| doc.checked_add(segment.doc_base()))
        .ok_or_else(|| Error::NoDocId { segment: number, value: value.as_bytes().to_vec() })
}
