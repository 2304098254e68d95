//! A segment: a table, which of its docs are live, and where its docs begin among those of the set.

use std::sync::Arc;

use pkhash_core::Value;
use roaring::RoaringBitmap;

use crate::error::{Error, Result};
use crate::table_file::TableFile;

/// Which docs of a segment are live: a bitset over its doc IDs, immutable.
///
/// It knows how many docs the segment has. A doc ID beyond them counts as deleted: it is not a doc of the
/// segment, whatever a table says.
#[derive(Clone, PartialEq, Eq)]
pub struct LiveDocs {
    /// Bit `doc % 64` of word `doc / 64` is set if the doc is live. No bit beyond `docs` is.
    words: Box<[u64]>,
    docs: u32,
    deleted: u32,
}

impl std::fmt::Debug for LiveDocs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { docs, deleted, .. } = self;
        f.debug_struct("LiveDocs")
            .field("docs", docs)
            .field("deleted", deleted)
            .finish_non_exhaustive()
    }
}

impl LiveDocs {
    /// All of `docs` docs are live.
    #[must_use]
    pub fn all(docs: u32) -> Self {
        let mut words = vec![u64::MAX; words_for(docs)].into_boxed_slice();
        if let Some(last) = words.last_mut() {
            *last &= last_mask(docs);
        }
        Self { words, docs, deleted: 0 }
    }

    /// All of `docs` docs are live but these, which may come in any order and repeat.
    ///
    /// # Errors
    /// [`Error::NoSuchDoc`] for an ID that is not below `docs`.
    pub fn from_deleted(docs: u32, deleted: &[u32]) -> Result<Self> {
        Self::all(docs).with_deleted(deleted.iter().copied())
    }

    /// All of `docs` docs are live but those of a bitmap.
    ///
    /// # Errors
    /// As [`from_deleted`](Self::from_deleted).
    pub fn from_deleted_bitmap(docs: u32, deleted: &RoaringBitmap) -> Result<Self> {
        Self::all(docs).with_deleted(deleted)
    }

    /// The docs of a bitmap are live, of `docs` in all.
    ///
    /// # Errors
    /// As [`from_deleted`](Self::from_deleted).
    pub fn from_live_bitmap(docs: u32, live: &RoaringBitmap) -> Result<Self> {
        let mut words = vec![0; words_for(docs)];
        for doc in live {
            *words.get_mut(doc as usize / 64).ok_or(no_such_doc(doc.into(), docs))? |=
                1 << (doc % 64);
        }
        Self::from_words(docs, words)
    }

    /// Doc `i` of `docs` is live if bit `i % 64` of `words[i / 64]` is set.
    ///
    /// # Errors
    /// [`Error::LiveDocs`] if there are not just as many words as the docs need; [`Error::NoSuchDoc`] if
    /// a bit is set that is no doc's.
    pub fn from_words(docs: u32, words: Vec<u64>) -> Result<Self> {
        let (expected, found) = (words_for(docs) as u64, words.len() as u64);
        if expected != found {
            return Err(Error::LiveDocs { expected, found });
        }
        if let Some(last) = words.last() {
            let beyond = last & !last_mask(docs);
            if beyond != 0 {
                let doc = 64 * (found - 1) + u64::from(beyond.trailing_zeros());
                return Err(no_such_doc(doc, docs));
            }
        }
        // At most `docs`.
        let live: u32 = words.iter().map(|word| word.count_ones()).sum();
        Ok(Self { words: words.into(), docs, deleted: docs - live })
    }

    /// A copy in which these docs are deleted, too. Those that are deleted already stay so.
    ///
    /// # Errors
    /// As [`from_deleted`](Self::from_deleted).
    pub fn with_deleted(&self, deleted: impl IntoIterator<Item = u32>) -> Result<Self> {
        let mut live = self.clone();
        for doc in deleted {
            if doc >= live.docs {
                return Err(no_such_doc(doc.into(), live.docs));
            }
            let (word, bit) = (&mut live.words[doc as usize / 64], 1 << (doc % 64));
            live.deleted += u32::from(*word & bit != 0);
            *word &= !bit;
        }
        Ok(live)
    }

    /// Whether a doc is live. A doc ID beyond the docs is not.
    #[inline]
    #[must_use]
    pub fn is_live(&self, doc: u32) -> bool {
        let word = self.words.get(doc as usize / 64).copied().unwrap_or(0);
        word >> (doc % 64) & 1 != 0
    }

    /// Docs, deleted ones included.
    #[must_use]
    pub const fn docs(&self) -> u32 {
        self.docs
    }

    /// Docs that are deleted.
    #[must_use]
    pub const fn deleted(&self) -> u32 {
        self.deleted
    }

    /// The bitset.
    #[cfg(feature = "index")]
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The deleted docs, in order.
    pub fn deleted_docs(&self) -> impl Iterator<Item = u32> {
        let beyond = !last_mask(self.docs);
        let last = self.words.len().wrapping_sub(1);
        let deleted = move |(i, word): (usize, &u64)| !(*word | if i == last { beyond } else { 0 });
        ones(self.words.iter().enumerate().map(deleted))
    }

    /// The docs that were live in `before` and are deleted here, in order: the deletes that arrived
    /// meanwhile.
    pub fn deleted_since(&self, before: &Self) -> impl Iterator<Item = u32> {
        let now = self.words.iter().copied().chain(std::iter::repeat(0));
        ones(before.words.iter().zip(now).map(|(before, now)| before & !now))
    }
}

/// The numbers of the bits that are set.
fn ones(words: impl Iterator<Item = u64>) -> impl Iterator<Item = u32> {
    words.zip((0..).step_by(64)).flat_map(|(mut word, first)| {
        std::iter::from_fn(move || {
            let bit = word.trailing_zeros();
            word &= word.wrapping_sub(1);
            (bit < 64).then(|| first + bit)
        })
    })
}

const fn words_for(docs: u32) -> usize {
    docs.div_ceil(64) as usize
}

/// The bits of the last word that are docs.
const fn last_mask(docs: u32) -> u64 {
    u64::MAX >> ((64 - docs % 64) % 64)
}

const fn no_such_doc(doc: u64, docs: u32) -> Error {
    Error::NoSuchDoc { found: doc, docs: docs as u64 }
}

/// A table of a set. Cheap to clone: the table and the live docs are shared.
#[derive(Clone, Debug)]
pub struct Segment {
    table: Arc<TableFile>,
    live: Option<Arc<LiveDocs>>,
    doc_base: u32,
    max_version: Option<u64>,
}

impl Segment {
    /// A segment whose docs are all live, with doc base 0.
    pub fn new(table: impl Into<Arc<TableFile>>) -> Self {
        Self { table: table.into(), live: None, doc_base: 0, max_version: None }
    }

    /// The same table with these live docs, or, with `None`, with all docs live: faster, since a match
    /// need not be looked at. The table's values must be doc IDs (see [`Value::doc_id`]); a match
    /// whose value is none counts as deleted.
    #[must_use]
    pub fn with_live_docs(mut self, live: impl Into<Option<Arc<LiveDocs>>>) -> Self {
        // Without deletes, live docs still tell which IDs are no docs; so they are not dropped here.
        self.live = live.into();
        self
    }

    /// The same table with another doc base: what is added to a doc ID of the segment to make it one
    /// of the set.
    #[must_use]
    pub const fn with_doc_base(mut self, doc_base: u32) -> Self {
        self.doc_base = doc_base;
        self
    }

    /// A versioned table that is known to hold no version greater than this: queries for newer ones skip
    /// it. If it does hold one, that is not found.
    #[must_use]
    pub const fn with_max_version(mut self, max_version: u64) -> Self {
        self.max_version = Some(max_version);
        self
    }

    /// The table.
    #[must_use]
    pub const fn table(&self) -> &Arc<TableFile> {
        &self.table
    }

    /// The live docs; `None`: all are live.
    #[must_use]
    pub const fn live_docs(&self) -> Option<&Arc<LiveDocs>> {
        self.live.as_ref()
    }

    /// What is added to doc IDs.
    #[must_use]
    pub const fn doc_base(&self) -> u32 {
        self.doc_base
    }

    /// The greatest version of the table, if it was given.
    #[must_use]
    pub const fn max_version(&self) -> Option<u64> {
        self.max_version
    }

    /// Whether both are of one table that was opened once, whatever their live docs and doc bases.
    #[must_use]
    pub fn is_same_table(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    /// Whether a value of this table is that of a live doc.
    #[inline]
    pub(super) fn is_live(&self, value: Value<'_>) -> bool {
        match &self.live {
            None => true,
            Some(live) => is_live_in(live, value),
        }
    }

    /// Looks up one key.
    #[inline]
    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Result<Option<Value<'_>>> {
        let found = self.table.get_hashed(hash, key)?;
        Ok(found.filter(|value| self.is_live(*value)))
    }
}

/// Whether a value is the doc ID of a live doc.
#[inline]
pub(super) fn is_live_in(live: &LiveDocs, value: Value<'_>) -> bool {
    value.doc_id().is_some_and(|doc| live.is_live(doc))
}

impl From<TableFile> for Segment {
    fn from(table: TableFile) -> Self {
        Self::new(table)
    }
}

impl From<Arc<TableFile>> for Segment {
    fn from(table: Arc<TableFile>) -> Self {
        Self::new(table)
    }
}

/// A live match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    pub(super) value: Value<'a>,
    pub(super) segment: u32,
    pub(super) doc_base: u32,
}

impl<'a> Hit<'a> {
    /// Number of the segment in its set, from 0, the newest.
    #[must_use]
    pub const fn segment(self) -> usize {
        self.segment as usize
    }

    /// The value, as the segment's table has it: doc IDs are local.
    #[must_use]
    pub const fn value(self) -> Value<'a> {
        self.value
    }

    /// The doc ID in its segment: see [`Value::doc_id`].
    #[must_use]
    pub fn doc_id(self) -> Option<u32> {
        self.value.doc_id()
    }

    /// The doc ID in the set: the segment's doc base added. `None` if the value is no doc ID or the sum
    /// does not fit 32 bits.
    #[must_use]
    pub fn global_doc_id(self) -> Option<u32> {
        self.value.doc_id()?.checked_add(self.doc_base)
    }

    /// The error of who asked for doc IDs.
    #[cold]
    pub(super) fn no_doc_id(self) -> Error {
        Error::NoDocId { segment: self.segment(), value: self.value.as_bytes().to_vec() }
    }
}
