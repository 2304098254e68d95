//! Batches: chunk by chunk of keys, and for each chunk segment after segment, or what the segment map
//! names of them, until all of its keys are answered or there are no more segments.

use std::ops::Range;

use pkhash_core::segment_map::Ask;
use pkhash_core::{HashedKeys, KeyHasher, Table, Value, get_batch_of};

use super::answers::{Out, SetAnswer};
use super::map::{Mapped, Run};
use super::segment::is_live_in;
use super::{Hit, Inner, Segment, SegmentSet};
use crate::error::{Error, Result};

/// Keys of a chunk: some 200 KiB of keys, hashes and answers, which stay in the second-level cache from one
/// segment to the next. Many, since the stages of a lookup run empty at the end of each call, and the later
/// segments are asked for few keys.
///
/// Measured on a Zen 4 machine with other work, 10 M keys, 10 % absent, batches of 4,000, ns for a key, chunks
/// of 1,024 / 4,096: perfect, 15 segments: 177 / 159; 60: 567 / 493; inline with filter, 15: 195 /
/// 154; 60: 574 / 466. Of 256: 200, 693, 251, 868.
pub(super) const CHUNK: usize = 4096;

impl SegmentSet {
    /// Looks up a batch: `out[i]` becomes the answer for `keys[i]`, which is that of [`get`](Self::get), of
    /// [`get_doc_id`](Self::get_doc_id), or whether the key has a live match, as the type of `out` says.
    /// Returns how many were found. Faster the more keys a batch has, up to a few thousand.
    ///
    /// # Errors
    /// [`Error::BatchLength`] if `keys` and `out` differ in length, or as the single lookups. After an error
    /// the contents of `out` mean nothing.
    pub fn get_batch<'a, B: AsRef<[u8]>, A: SetAnswer<'a>>(
        &'a self,
        keys: &[B],
        out: &mut [A],
    ) -> Result<usize> {
        check_len(keys.len(), out.len())?;
        out.fill(A::ABSENT);
        let mut out = Out { answers: out, fault: None };
        let found = self.batch(keys, &mut out)?;
        out.fault.map_or(Ok(found), |answer| Err(answer.no_doc_id()))
    }

    fn batch<'a, B: AsRef<[u8]>, A: SetAnswer<'a>>(
        &'a self,
        keys: &[B],
        out: &mut Out<'_, 'a, A>,
    ) -> Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        if !self.inner.maps.is_empty() && keys.len() < self.len() / SEGMENTS_FOR_A_KEY {
            return self.one_by_one(keys, out);
        }
        let mut pending = Pending::new(&self.inner, keys.len().min(CHUNK));
        let mut found = 0;
        for (i, keys) in keys.chunks(CHUNK).enumerate() {
            pending.begin(keys, i * CHUNK);
            found += pending.ask_all(out)?;
        }
        Ok(found)
    }

    /// A batch of too few keys to prepare all segments for them.
    fn one_by_one<'a, B: AsRef<[u8]>, A: SetAnswer<'a>>(
        &'a self,
        keys: &[B],
        out: &mut Out<'_, 'a, A>,
    ) -> Result<usize> {
        let mut found = 0;
        for (number, key) in keys.iter().enumerate() {
            if let Some(answer) = self.get(key.as_ref())? {
                out.answer(number, answer);
                found += 1;
            }
        }
        Ok(found)
    }
}

/// Segments whose tables are made ready for a batch in the time of one lookup.
const SEGMENTS_FOR_A_KEY: usize = 8;

fn check_len(keys: usize, out: usize) -> Result<()> {
    if keys == out {
        return Ok(());
    }
    Err(Error::BatchLength { expected: keys, found: out })
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

    /// The hash of key number `i`; they are known.
    #[inline]
    pub(super) fn get(&self, i: usize) -> u64 {
        debug_assert!(self.known);
        self.hashes[i]
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
    pub(super) fn of(&mut self, hasher: KeyHasher, keys: &[&[u8]]) -> &[u64] {
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
    /// What one segment answers, or the asks.
    values: Vec<Option<Value<'a>>>,
    /// With a segment map: what it names.
    asks: Vec<Ask>,
    asker: Asker<'a>,
}

/// A key that was answered, and is still among those that are pending.
const ANSWERED: usize = usize::MAX;

impl<'k, 'a> Pending<'k, 'a> {
    fn new(inner: &'a Inner, most: usize) -> Self {
        Self {
            inner,
            keys: Vec::with_capacity(most),
            numbers: Vec::with_capacity(most),
            hashes: inner.hashers.iter().map(|_| Hashes::default()).collect(),
            values: vec![None; most],
            asks: vec![Ask::default(); if inner.maps.is_empty() { 0 } else { most }],
            asker: Asker::new(inner),
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
    fn ask_all<A: SetAnswer<'a>>(&mut self, out: &mut Out<'_, 'a, A>) -> Result<usize> {
        let (inner, mut found) = (self.inner, 0);
        for (i, run) in inner.runs.iter().enumerate() {
            match run {
                // All have their answers.
                Run::Mapped(..) if self.keys.is_empty() => {}
                Run::Mapped(map, run) => {
                    found += self.ask_mapped(&inner.maps[*map], run, out)?;
                    if i + 1 < inner.runs.len() {
                        self.keep(|pending, i| pending.numbers[i] != ANSWERED);
                    }
                }
                Run::Each(run) => {
                    for number in run.clone() {
                        if self.keys.is_empty() {
                            break;
                        }
                        let number = number as usize;
                        found += self.ask(number, &inner.segments[number], out)?;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Asks the segments of a run that the map names for the keys that are pending. The numbers of those that
    /// are answered become [`ANSWERED`].
    fn ask_mapped<A: SetAnswer<'a>>(
        &mut self,
        mapped: &'a Mapped,
        run: &Range<u32>,
        out: &mut Out<'_, 'a, A>,
    ) -> Result<usize> {
        let inner = self.inner;
        let hashes = self.hashes[0].of(inner.hashers[0], &self.keys);
        let asks = &mut self.asks[..self.keys.len()];
        let map = mapped.map();
        let asked = inner.kernel().ask_batch(&map, hashes, mapped.numbers(), run, asks)?;
        let asks = &mut self.asks[..asked];
        let values = &mut self.values[..asked];
        self.asker.ask(inner, asks, &self.keys, &mut self.hashes, values)?;
        let (mut found, mut rest) = (0, 0);
        for i in 0..asks.len() {
            let (ask, value) = (asks[i], values[i]);
            let answer = inner.answer(ask.table, value);
            // Asks that are not the last word come to lie at the front.
            let is_open = if answer.is_some() { ask.lesser } else { ask.more };
            if is_open {
                (asks[rest], values[rest]) = (ask, value);
                rest += 1;
            } else if let Some(answer) = answer {
                let key = ask.key as usize;
                out.answer(self.numbers[key], answer);
                self.numbers[key] = ANSWERED;
                found += 1;
            }
        }
        if rest > 0 {
            found += self.ask_others(mapped, run, rest, out)?;
        }
        Ok(found)
    }

    /// The second round of [`ask_mapped`](Self::ask_mapped): of the first `open` asks, what the map names besides. All
    /// of it at once, and the newest answer of each key taken.
    fn ask_others<A: SetAnswer<'a>>(
        &mut self,
        mapped: &'a Mapped,
        run: &Range<u32>,
        open: usize,
        out: &mut Out<'_, 'a, A>,
    ) -> Result<usize> {
        let inner = self.inner;
        let mut others = Others::default();
        let mut answers: Vec<Option<Hit<'a>>> = Vec::with_capacity(open);
        for i in 0..open {
            let (ask, answer) = (self.asks[i], inner.answer(self.asks[i].table, self.values[i]));
            answers.push(answer);
            let hash = self.hashes[0].get(ask.key as usize);
            for table in mapped.candidates(inner.kernel(), hash, run) {
                // They come newest first, and those that were asked before are newer.
                if answers[i].is_some_and(|answer| answer.segment <= table) {
                    break;
                }
                if table == ask.table {
                    continue;
                }
                others.push(i, Ask { table, ..ask });
                if others.asks.len() == CHUNK {
                    others.ask(
                        &mut self.asker,
                        inner,
                        &self.keys,
                        &mut self.hashes,
                        &mut answers,
                    )?;
                }
            }
        }
        others.ask(&mut self.asker, inner, &self.keys, &mut self.hashes, &mut answers)?;
        let mut found = 0;
        for (ask, answer) in self.asks.iter().zip(answers) {
            if let Some(answer) = answer {
                let key = ask.key as usize;
                out.answer(self.numbers[key], answer);
                self.numbers[key] = ANSWERED;
                found += 1;
            }
        }
        Ok(found)
    }

    /// Asks one segment for all keys that are pending.
    fn ask<A: SetAnswer<'a>>(
        &mut self,
        number: usize,
        segment: &'a Segment,
        out: &mut Out<'_, 'a, A>,
    ) -> Result<usize> {
        let hasher = self.inner.hasher_of[number] as usize;
        let hashes = self.hashes[hasher].of(self.inner.hashers[hasher], &self.keys);
        let values = &mut self.values[..self.keys.len()];
        let keys = HashedKeys { keys: &self.keys, hashes };
        let found = segment.table().get_batch(keys, values)?;
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
    fn settle<A: SetAnswer<'a>>(
        &mut self,
        number: usize,
        segment: &Segment,
        is_live: impl Fn(Value<'a>) -> bool,
        out: &mut Out<'_, 'a, A>,
    ) -> usize {
        let doc_base = segment.doc_base();
        self.keep(|pending, i| {
            if let Some(value) = pending.values[i]
                && is_live(value)
            {
                let answer = Hit { value, segment: number as u32, doc_base };
                out.answer(pending.numbers[i], answer);
                return false;
            }
            true
        })
    }

    /// Keeps the keys that stay pending. Returns how many do not.
    #[inline]
    fn keep(&mut self, mut stays: impl FnMut(&Self, usize) -> bool) -> usize {
        let before = self.keys.len();
        let mut kept = 0;
        for i in 0..before {
            if !stays(self, i) {
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

/// Asks of a second round.
#[derive(Default)]
struct Others<'a> {
    asks: Vec<Ask>,
    /// Which answer each of them is for.
    of: Vec<usize>,
    values: Vec<Option<Value<'a>>>,
}

impl<'a> Others<'a> {
    fn push(&mut self, answer: usize, ask: Ask) {
        self.asks.push(ask);
        self.of.push(answer);
    }

    /// Asks what has been collected. An answer becomes the newest live one.
    fn ask(
        &mut self,
        asker: &mut Asker<'a>,
        inner: &'a Inner,
        keys: &[&[u8]],
        hashes: &mut [Hashes],
        answers: &mut [Option<Hit<'a>>],
    ) -> Result<()> {
        if self.asks.is_empty() {
            return Ok(());
        }
        self.values.clear();
        self.values.resize(self.asks.len(), None);
        asker.ask(inner, &self.asks, keys, hashes, &mut self.values)?;
        for ((ask, of), value) in self.asks.drain(..).zip(self.of.drain(..)).zip(&self.values) {
            let newest = &mut answers[of];
            if newest.is_none_or(|newest| ask.table < newest.segment)
                && let Some(answer) = inner.answer(ask.table, *value)
            {
                *newest = Some(answer);
            }
        }
        Ok(())
    }
}

/// Asks many segments in one batch.
pub(super) struct Asker<'a> {
    /// The tables of all segments, if they can be asked in one go.
    tables: Vec<&'a Table<'a>>,
    /// What goes to one segment, otherwise.
    group: Group<'a>,
}

#[derive(Default)]
struct Group<'a> {
    order: Vec<u32>,
    hashes: Vec<u64>,
    values: Vec<Option<Value<'a>>>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        let segments = if inner.uniform { inner.segments.as_slice() } else { &[] };
        let tables = segments.iter().map(|segment| segment.table().table()).collect();
        Self { tables, group: Group::default() }
    }

    /// `values[i]` becomes what the segment of `asks[i]` has for its key. `hashes` are those of `keys`.
    pub(super) fn ask(
        &mut self,
        inner: &'a Inner,
        asks: &[Ask],
        keys: &[&[u8]],
        hashes: &mut [Hashes],
        values: &mut [Option<Value<'a>>],
    ) -> Result<()> {
        if inner.uniform {
            let hashes = hashes[0].of(inner.hashers[0], keys);
            let found = get_batch_of(inner.kernel(), &self.tables, asks, keys, hashes, values);
            return match found {
                Ok(_) => Ok(()),
                Err(error) => Err(inner.find_damage(asks, keys, hashes).unwrap_or(error.into())),
            };
        }
        // One segment after the other.
        let Group { order, hashes: group_hashes, values: group_values } = &mut self.group;
        order.clear();
        order.extend(0..asks.len() as u32);
        order.sort_unstable_by_key(|i| (asks[*i as usize].table, *i));
        for group in order.chunk_by(|a, b| asks[*a as usize].table == asks[*b as usize].table) {
            let number = asks[group[0] as usize].table as usize;
            let hasher = inner.hasher_of[number] as usize;
            let hashes = hashes[hasher].of(inner.hashers[hasher], keys);
            let key_of = |i: &u32| asks[*i as usize].key as usize;
            let group_keys: Vec<&[u8]> = group.iter().map(|i| keys[key_of(i)]).collect();
            group_hashes.clear();
            group_hashes.extend(group.iter().map(|i| hashes[key_of(i)]));
            group_values.clear();
            group_values.resize(group.len(), None);
            let table = inner.segments[number].table();
            let keys = HashedKeys { keys: &group_keys, hashes: group_hashes };
            table.get_batch(keys, group_values)?;
            for (i, value) in group.iter().zip(&*group_values) {
                values[*i as usize] = *value;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// What a segment's value says, if it is that of a live doc.
    #[inline]
    fn answer<'a>(&self, segment: u32, value: Option<Value<'a>>) -> Option<Hit<'a>> {
        let asked = &self.segments[segment as usize];
        let value = value.filter(|value| asked.is_live(*value))?;
        Some(Hit { value, segment, doc_base: asked.doc_base() })
    }

    /// The error of the first ask that meets one, with the path, which a batch over many tables does not
    /// name.
    #[cold]
    fn find_damage(&self, asks: &[Ask], keys: &[&[u8]], hashes: &[u64]) -> Option<Error> {
        asks.iter().find_map(|ask| {
            let table = self.segments[ask.table as usize].table();
            table.get_hashed(hashes[ask.key as usize], keys[ask.key as usize]).err()
        })
    }
}
