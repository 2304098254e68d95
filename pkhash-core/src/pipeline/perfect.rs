//! The stages of a perfect table: hash → pilot → record, with an offset line between them if records
//! have no places of their own.

use super::{Answer, Keys, admitted, filter_word, past_the_body, value_in};
use crate::error::Result;
use crate::format::bytes_at_u64;
use crate::format::directory::{Directory, Partition};
use crate::hash::{self, Hasher};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::layout::perfect::{self, LINE_SLOTS, OFFSET_LINE, Perfect, Spans, span_in};
use crate::table::Table;
use crate::value::Value;

/// Where a hash points in its partition: at its pilot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) pilot_at: u64,
    /// Where the offset lines begin, if there are any.
    lines_at: u64,
    pub(super) records_at: u64,
    /// The spread hash.
    spread: u64,
    slots: u32,
}

impl Place {
    /// `FILTER`: the partition may have a filter.
    #[inline(always)]
    pub(super) fn of<R: Perfect, const FILTER: bool>(
        directory: &Directory<'_>,
        bits: u8,
        hash: u64,
    ) -> Self {
        let partition = directory.hot(hash::partition(hash, bits), Layout::Perfect);
        let spread = perfect::spread(hash, bits, partition.seed);
        let bucket = perfect::bucket(spread, partition.buckets);
        let pilots_at = if FILTER { partition.pilots_at() } else { partition.offset };
        Self {
            pilot_at: pilots_at.wrapping_add(bucket.into()),
            lines_at: if R::OFFSET_LINES { partition.lines_at() } else { 0 },
            records_at: partition.records_at(),
            spread,
            slots: partition.slots,
        }
    }

    /// Whether the partition has no keys.
    #[inline(always)]
    pub(super) const fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// The slot, once the pilot is known.
    #[inline(always)]
    pub(super) const fn slot(&self, pilot: u8) -> u32 {
        perfect::slot(self.spread, pilot, self.slots)
    }

    #[inline(always)]
    pub(super) const fn line_at(&self, slot: u32) -> u64 {
        let line = (slot / LINE_SLOTS) as u64;
        self.lines_at.wrapping_add(line * OFFSET_LINE as u64)
    }

    /// Where a slot's record lies that has a place of its own.
    #[inline(always)]
    pub(super) fn record_at<R: Perfect>(&self, records: R, slot: u32) -> u64 {
        self.records_at.wrapping_add(records.at(slot))
    }
}

/// Where the record lies that an offset line leads to, records beginning at `records_at`; `None` if it is
/// not as long as the key's.
#[inline(always)]
pub(super) fn record_in<R: Perfect>(
    records_at: u64,
    records: R,
    line: &[u8; OFFSET_LINE],
    slot: u32,
    key: &[u8],
) -> Option<u64> {
    let (from, to) = span_in(line, slot);
    let unit = u64::from(records.unit());
    // Below 2^41 units: no overflow. A damaged line may end a record before it begins.
    let len = to.wrapping_sub(from).wrapping_mul(unit);
    (len == records.record_len(key) as u64).then(|| records_at.wrapping_add(from * unit))
}

/// The slots behind those of the function: those of a partition's exceptions.
pub(super) fn exceptions(directory: &Directory<'_>, bits: u8, hash: u64) -> core::ops::Range<u32> {
    let partition = directory.hot(hash::partition(hash, bits), Layout::Perfect);
    partition.slots..partition.slots.saturating_add(partition.exceptions.into())
}

/// The pilot; `open` has checked that every bucket has one.
#[inline(always)]
fn pilot(data: &[u8], at: u64) -> Result<u8> {
    match usize::try_from(at).ok().and_then(|at| data.get(at)) {
        Some(pilot) => Ok(*pilot),
        None => Err(past_the_body("pilot past the end", at, data.len() as u64)),
    }
}

#[inline(always)]
fn offset_line(data: &[u8], at: u64) -> Result<&[u8; OFFSET_LINE]> {
    bytes_at_u64(data, at)
        .ok_or_else(|| past_the_body("offset line past the end", at, data.len() as u64))
}

impl<'a> Table<'a> {
    /// The value in a slot, if it is this key's.
    #[inline(always)]
    fn in_slot<R: Perfect>(
        &self,
        records: R,
        place: &Place,
        slot: u32,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        if !R::OFFSET_LINES {
            return value_in(self.body, records, place.record_at(records, slot), key);
        }
        let line = offset_line(self.data, place.line_at(slot))?;
        match record_in(place.records_at, records, line, slot, key) {
            Some(at) => value_in(self.body, records, at, key),
            None => Ok(None),
        }
    }

    /// The value among the exceptions, which hardly any table has.
    #[cold]
    #[inline(never)]
    fn in_exceptions<R: Perfect>(&self, records: R, key: &[u8]) -> Result<Option<Value<'a>>> {
        let hash = self.footer.hasher.hash(key);
        let place = Place::of::<R, true>(&self.directory, self.footer.partition_bits, hash);
        for slot in exceptions(&self.directory, self.footer.partition_bits, hash) {
            if let Some(value) = self.in_slot(records, &place, slot, key)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    #[inline(always)]
    fn get_perfect<R: Perfect>(
        &self,
        records: R,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        if !records.takes(key) || !self.admits(hash) {
            return Ok(None);
        }
        let place = Place::of::<R, true>(&self.directory, self.footer.partition_bits, hash);
        if place.is_empty() {
            return Ok(None);
        }
        let slot = place.slot(pilot(self.data, place.pilot_at)?);
        let value = self.in_slot(records, &place, slot, key)?;
        if self.footer.exceptions > 0 && value.is_none() {
            return self.in_exceptions(records, key);
        }
        Ok(value)
    }

    /// Looks up one key of a perfect table whose keys have one length.
    #[inline(always)]
    pub(super) fn get_fixed(&self, hash: u64, key: &[u8]) -> Result<Option<Value<'a>>> {
        self.get_perfect(self.fixed, hash, key)
    }

    /// Looks up one key of a perfect table with offset lines. Not inlined, so that the code of the other
    /// layouts stays small in its caller.
    #[inline(never)]
    pub(super) fn get_spans(&self, hash: u64, key: &[u8]) -> Result<Option<Value<'a>>> {
        self.get_perfect(Spans::new(&self.footer), hash, key)
    }

    /// Looks up a batch: see [`stream`].
    #[inline(always)]
    pub(super) fn stream<K: Kernel, R: Perfect, Q: Keys, A: Answer<'a>, const FILTER: bool>(
        &self,
        kernel: K,
        records: R,
        keys: &Q,
        out: &mut [A],
    ) -> Result<usize> {
        stream::<K, R, _, Q, A, FILTER>(kernel, &One(View::new(self, records)), keys, out)
    }

    /// The slot that a hash has in its partition: for those who read all of it.
    pub(crate) fn slot_of(&self, partition: &Partition, hash: u64) -> Result<u32> {
        let offsets = self.footer.offsets(partition);
        let spread = perfect::spread(hash, self.footer.partition_bits, partition.seed);
        let bucket = perfect::bucket(spread, partition.buckets);
        let pilot = pilot(self.data, offsets.index.wrapping_add(bucket.into()))?;
        Ok(perfect::slot(spread, pilot, partition.slots))
    }
}

/// What a stream needs of a table.
#[derive(Clone, Copy)]
pub(super) struct View<'a, 't, R> {
    table: &'t Table<'a>,
    data: &'a [u8],
    body: &'a [u8],
    directory: Directory<'a>,
    hasher: Hasher,
    bits: u8,
    /// Whether any partition has exceptions.
    exceptions: bool,
    records: R,
}

impl<'a, 't, R> View<'a, 't, R> {
    #[inline(always)]
    pub(super) const fn new(table: &'t Table<'a>, records: R) -> Self {
        Self {
            table,
            data: table.data,
            body: table.body,
            directory: table.directory,
            hasher: table.footer.hasher,
            bits: table.footer.partition_bits,
            exceptions: table.footer.exceptions > 0,
            records,
        }
    }
}

/// Which table each key of a stream is asked of.
pub(super) trait Tables<'a, R> {
    /// Whether there may be a filter that the stream does not ask.
    const UNASKED_FILTER: bool;

    /// The table of key number `i`.
    fn of(&self, i: usize) -> View<'a, '_, R>;
}

/// The same table for all keys. Its view is a copy: stores to the rings of a stream cannot change it,
/// which the compiler does not see of a table behind a reference.
pub(super) struct One<'a, 't, R>(View<'a, 't, R>);

impl<'a, R: Perfect> Tables<'a, R> for One<'a, '_, R> {
    const UNASKED_FILTER: bool = false;

    #[inline(always)]
    fn of(&self, _: usize) -> View<'a, '_, R> {
        self.0
    }
}

/// Looks up a batch. Each stage is [`AHEAD`] keys behind the one before, and takes [`STEP`] keys at a
/// time: what a stage has named arrives while the others work on other keys.
///
/// A function of its own, since it gains nothing from a kernel's vector instructions, and loses
/// registers in one that has all layouts.
#[inline(never)]
pub(super) fn stream<'a, K, R, T, Q, A, const FILTER: bool>(
    kernel: K,
    tables: &T,
    keys: &Q,
    out: &mut [A],
) -> Result<usize>
where
    K: Kernel,
    R: Perfect,
    T: Tables<'a, R>,
    Q: Keys,
    A: Answer<'a>,
{
    let n = out.len();
    // How far behind the first stage each of the others is.
    let pilot_lag = if FILTER { 2 * AHEAD } else { AHEAD };
    let line_lag = pilot_lag + AHEAD;
    let record_lag = if R::OFFSET_LINES { line_lag + AHEAD } else { line_lag };
    // What each stage leaves to the next.
    let mut words = [(0u64, 0u64, 0u64); AHEAD];
    let mut places = [Place::default(); AHEAD];
    let mut lines = [(0u64, 0u64, 0u32); AHEAD];
    let mut at = [0u64; AHEAD];
    let mut found = 0;
    // Each stage with its own walk through the keys: their lengths are known then if their type says
    // them, and no key has to be kept.
    let mut to_hash = keys.from(0, n);
    let mut to_find = keys.from(0, n);
    let mut to_answer = out.iter_mut().zip(keys.from(0, n));
    // The last stage first, so that each ring's oldest places are free when they are written.
    for first in (0..n + record_lag).step_by(STEP) {
        let now = first % AHEAD..first % AHEAD + STEP;
        // Whether a stage has keys: it has begun and is not done.
        let busy = |lag: usize| first >= lag && first < n + lag;
        if busy(record_lag) {
            for (i, (at, (out, key))) in at[now.clone()].iter().zip(&mut to_answer).enumerate() {
                let t = tables.of(first - record_lag + i);
                let mut value = None;
                if *at != NOWHERE {
                    value = value_in(t.body, t.records, *at, key)?;
                }
                if t.exceptions && value.is_none() && t.records.takes(key) {
                    value = t.table.in_exceptions(t.records, key)?;
                }
                found += usize::from(value.is_some());
                *out = value.map_or(A::ABSENT, A::found);
            }
        }
        if R::OFFSET_LINES && busy(line_lag) {
            let lines = lines[now.clone()].iter().zip(&mut to_find);
            let stage = at[now.clone()].iter_mut().zip(lines).enumerate();
            for (i, (at, ((line_at, records_at, slot), key))) in stage {
                let t = tables.of(first - line_lag + i);
                *at = NOWHERE;
                if *line_at == NOWHERE || !t.records.takes(key) {
                    continue;
                }
                let line = offset_line(t.data, *line_at)?;
                if let Some(record) = record_in(*records_at, t.records, line, *slot, key) {
                    t.records.prefetch(kernel, t.data, record, key);
                    *at = record;
                }
            }
        }
        if busy(pilot_lag) {
            let next = at[now.clone()].iter_mut().zip(&mut lines[now.clone()]);
            for (i, (place, (at, line))) in places[now.clone()].iter().zip(next).enumerate() {
                if place.is_empty() {
                    // What is for the next stage, and only that.
                    *(if R::OFFSET_LINES { &mut line.0 } else { at }) = NOWHERE;
                    continue;
                }
                let t = tables.of(first - pilot_lag + i);
                let slot = place.slot(pilot(t.data, place.pilot_at)?);
                if R::OFFSET_LINES {
                    *line = (place.line_at(slot), place.records_at, slot);
                    kernel.prefetch(t.data, line.0 as usize);
                } else {
                    *at = place.record_at(t.records, slot);
                    // All records have one length.
                    t.records.prefetch(kernel, t.data, *at, &[]);
                }
            }
        }
        if FILTER && busy(AHEAD) {
            let words = &words[now.clone()];
            let stage = places[now.clone()].iter_mut().zip(words).enumerate();
            for (i, (place, (hash, word_at, mask))) in stage {
                let t = tables.of(first - AHEAD + i);
                *place = Place::default();
                if admitted(t.data, *word_at, *mask) {
                    *place = Place::of::<R, true>(&t.directory, t.bits, *hash);
                    kernel.prefetch(t.data, place.pilot_at as usize);
                }
            }
        }
        if !FILTER && first + STEP > n {
            // Behind the last key there are places of earlier ones, perhaps in other tables.
            places[now.clone()].fill(Place::default());
        }
        let next = places[now.clone()].iter_mut().zip(&mut words[now]);
        for (i, ((place, word), key)) in next.zip(&mut to_hash).enumerate() {
            let t = tables.of(first + i);
            let hash = keys.hash(t.hasher, first + i, key);
            if FILTER {
                let (word_at, mask) = filter_word(t.bits, &t.directory, hash);
                kernel.prefetch(t.data, word_at as usize);
                *word = (hash, word_at, mask);
            } else {
                *place = if T::UNASKED_FILTER {
                    Place::of::<R, true>(&t.directory, t.bits, hash)
                } else {
                    Place::of::<R, false>(&t.directory, t.bits, hash)
                };
                kernel.prefetch(t.data, place.pilot_at as usize);
            }
        }
    }
    Ok(found)
}

/// Keys between one stage of a stream and the next.
const AHEAD: usize = 32;

/// Keys that go through a stage of a stream together: few, so that the reads of one stage do not come
/// all at once, and not too few, so that a processor finds several keys' worth of independent work in
/// one loop.
///
/// Measured on Zen 4, fixed records in lines, ns for a hit of a batch of 4,096 to doc IDs, best of 20,
/// 10 M keys (1 M in brackets), `STEP` / `AHEAD`: 16 / 32: 18.4 (14.6); 16 / 48: 18.6; 16 / 64: 18.9; 8 / 32: 19.5
/// (15.4); 32 / 32: 22.7 (14.1); 32 / 64: 20.5; 4 / 32: 21.9 (17.4). One key at a time: 26.0 (20.0).
/// Blocks of 32 that go from stage to stage, as probing tables have them: 22.0.
const STEP: usize = 16;

/// The place of a record that is not there.
const NOWHERE: u64 = u64::MAX;
