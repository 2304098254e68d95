//! Batches: chunk by chunk of keys, and for each chunk segment after segment, until all of its keys are
//! answered or there are no more segments.

use pkhash_core::{Hasher, Value};

use super::segment::is_live_in;
use super::{Answer, Inner, Segment, SegmentSet};
use crate::error::Result;

/// Keys of a chunk: some 200 KiB of keys, hashes and answers, which stay in the second-level cache from one
/// segment to the next. Many, since the stages of a lookup run empty at the end of each call, and the later
/// segments are asked for few keys.
///
/// Measured on a Zen 4 machine with other work, 10 M keys, 10 % absent, batches of 4,000, ns for a key, chunks
/// of 1,024 / 4,096: perfect, 15 segments: 177 / 159; 60: 567 / 493; inline with filter, 15: 195 /
/// 154; 60: 574 / 466. Of 256: 200, 693, 251, 868.
pub(super) const CHUNK: usize = 4096;

/// What a batch answers for each key. Places of absent keys are left as they are.
trait Out<'a> {
    fn answer(&mut self, number: usize, answer: Answer<'a>);
}

impl<'a> Out<'a> for [Option<Answer<'a>>] {
    #[inline]
    fn answer(&mut self, number: usize, answer: Answer<'a>) {
        self[number] = Some(answer);
    }
}

impl<'a> Out<'a> for [bool] {
    #[inline]
    fn answer(&mut self, number: usize, _: Answer<'a>) {
        self[number] = true;
    }
}

impl SegmentSet {
    /// Looks up a batch: `out[i]` becomes what [`get`](Self::get) answers for `keys[i]`. Returns how many
    /// were found. Faster the more keys a batch has, up to a few thousand.
    ///
    /// # Errors
    /// [`Error::Table`](crate::Error::Table) if `keys` and `out` differ in length, or as
    /// [`get`](Self::get). After an error the contents of `out` mean nothing.
    pub fn get_batch<'a, B: AsRef<[u8]>>(
        &'a self,
        keys: &[B],
        out: &mut [Option<Answer<'a>>],
    ) -> Result<usize> {
        check_len(keys.len(), out.len())?;
        out.fill(None);
        self.batch(keys, out)
    }

    /// Looks up a batch: `out[i]` says whether `keys[i]` has a live match. Returns how many have.
    ///
    /// # Errors
    /// As [`get_batch`](Self::get_batch).
    pub fn contains_batch<B: AsRef<[u8]>>(&self, keys: &[B], out: &mut [bool]) -> Result<usize> {
        check_len(keys.len(), out.len())?;
        out.fill(false);
        self.batch(keys, out)
    }

    fn batch<'a, B: AsRef<[u8]>, O: Out<'a> + ?Sized>(
        &'a self,
        keys: &[B],
        out: &mut O,
    ) -> Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let mut pending = Pending::new(&self.inner, keys.len().min(CHUNK));
        let mut found = 0;
        for (i, keys) in keys.chunks(CHUNK).enumerate() {
            pending.begin(keys, i * CHUNK);
            found += pending.ask_all(out)?;
        }
        Ok(found)
    }
}

fn check_len(keys: usize, out: usize) -> Result<()> {
    if keys == out {
        return Ok(());
    }
    Err(pkhash_core::Error::BatchLength { expected: keys, found: out }.into())
}

/// The hashes of some keys by one hasher.
#[derive(Default)]
pub(super) struct Hashes {
    hashes: Vec<u64>,
    /// Whether they were computed.
    known: bool,
}

impl FromIterator<u64> for Hashes {
    fn from_iter<I: IntoIterator<Item = u64>>(hashes: I) -> Self {
        Self { hashes: hashes.into_iter().collect(), known: true }
    }
}

impl Hashes {
    fn clear(&mut self) {
        self.known = false;
    }

    /// Number `from` becomes number `to`.
    #[inline]
    fn move_to(&mut self, from: usize, to: usize) {
        if self.known {
            self.hashes[to] = self.hashes[from];
        }
    }

    fn truncate(&mut self, n: usize) {
        self.hashes.truncate(n);
    }

    /// The hashes of `keys`: computed when they are asked for first.
    pub(super) fn of(&mut self, hasher: Hasher, keys: &[&[u8]]) -> &[u64] {
        if !self.known {
            self.hashes.clear();
            self.hashes.extend(keys.iter().map(|key| hasher.hash(key)));
            self.known = true;
        }
        &self.hashes
    }
}

/// The keys of a chunk that have no answer yet, side by side: those that are found drop out.
struct Pending<'k, 'a> {
    inner: &'a Inner,
    keys: Vec<&'k [u8]>,
    /// Where their answers go.
    numbers: Vec<usize>,
    /// Their hashes by each hasher of the set.
    hashes: Vec<Hashes>,
    /// What one segment answers.
    values: Vec<Option<Value<'a>>>,
}

impl<'k, 'a> Pending<'k, 'a> {
    fn new(inner: &'a Inner, most: usize) -> Self {
        Self {
            inner,
            keys: Vec::with_capacity(most),
            numbers: Vec::with_capacity(most),
            hashes: inner.hashers.iter().map(|_| Hashes::default()).collect(),
            values: vec![None; most],
        }
    }

    /// Takes up a chunk, whose first key is number `first` of the batch.
    fn begin<B: AsRef<[u8]>>(&mut self, keys: &'k [B], first: usize) {
        self.keys.clear();
        self.keys.extend(keys.iter().map(AsRef::as_ref));
        self.numbers.clear();
        self.numbers.extend(first..first + keys.len());
        self.hashes.iter_mut().for_each(Hashes::clear);
    }

    /// Asks the segments that are worth asking: all of them for every key that is still pending.
    fn ask_all<O: Out<'a> + ?Sized>(&mut self, out: &mut O) -> Result<usize> {
        let mut found = 0;
        for (number, segment) in self.inner.segments.iter().enumerate() {
            if self.keys.is_empty() {
                break;
            }
            found += self.ask(number, segment, out)?;
        }
        Ok(found)
    }

    /// Asks one segment for all keys that are pending.
    fn ask<O: Out<'a> + ?Sized>(
        &mut self,
        number: usize,
        segment: &'a Segment,
        out: &mut O,
    ) -> Result<usize> {
        let hasher = self.inner.hasher_of[number] as usize;
        let hashes = self.hashes[hasher].of(self.inner.hashers[hasher], &self.keys);
        let values = &mut self.values[..self.keys.len()];
        let found = segment.table().get_batch_hashed(&self.keys, hashes, values)?;
        if found == 0 {
            return Ok(0);
        }
        // Without live docs no value has to be looked at.
        Ok(match segment.live_docs() {
            None => self.settle(number, segment, |_| true, out),
            Some(live) => self.settle(number, segment, |value| is_live_in(live, value), out),
        })
    }

    /// Answers the keys that the segment has live, and keeps the others. Returns how many were answered.
    #[inline]
    fn settle<O: Out<'a> + ?Sized>(
        &mut self,
        number: usize,
        segment: &Segment,
        is_live: impl Fn(Value<'a>) -> bool,
        out: &mut O,
    ) -> usize {
        let (before, doc_base) = (self.keys.len(), segment.doc_base());
        let mut kept = 0;
        for i in 0..before {
            if let Some(value) = self.values[i]
                && is_live(value)
            {
                let answer = Answer { value, segment: number as u32, doc_base };
                out.answer(self.numbers[i], answer);
                continue;
            }
            self.keys[kept] = self.keys[i];
            self.numbers[kept] = self.numbers[i];
            for hashes in &mut self.hashes {
                hashes.move_to(i, kept);
            }
            kept += 1;
        }
        self.keys.truncate(kept);
        self.numbers.truncate(kept);
        for hashes in &mut self.hashes {
            hashes.truncate(kept);
        }
        before - kept
    }
}
