//! Perfect tables: hash → pilot → record, with an offset line between them if records have no places of
//! their own.

use super::keys::{Answer, Keys};
use super::{admitted, filter_word, past_the_body, value_in};
use crate::error::Result;
use crate::format::bytes_at_u64;
use crate::format::directory::{Directory, Partition, PerfectEntry};
use crate::hash;
use crate::kernel::Kernel;
use crate::layout::perfect::{self, LINE_SLOTS, OFFSET_LINE, Perfect, span_in};
use crate::table::{MOST_CACHED_PILOTS, Table};
use crate::value::Value;

/// Where a hash points in its partition: at its pilot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PilotPlace {
    pub(super) pilot_at: u64,
    /// Where the offset lines begin, if there are any.
    lines_at: u64,
    pub(super) records_at: u64,
    /// The spread hash.
    spread: u64,
    slots: u32,
}

impl PilotPlace {
    #[inline(always)]
    pub(super) fn of<R: Perfect>(directory: &Directory<'_>, bits: u8, hash: u64) -> Self {
        Self::in_partition::<R>(&directory.perfect(hash::partition(hash, bits)), hash)
    }

    #[inline(always)]
    pub(super) const fn in_partition<R: Perfect>(entry: &PerfectEntry, hash: u64) -> Self {
        let (spread, pilot_at) = entry.pilot_of(hash);
        Self {
            pilot_at,
            lines_at: if R::OFFSET_LINES { entry.lines_at() } else { 0 },
            records_at: entry.records_at,
            spread,
            slots: entry.slots,
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
    let partition = hash::partition(hash, bits);
    let slots = directory.perfect(partition).slots;
    slots..slots.saturating_add(directory.exceptions(partition).into())
}

/// The pilot; `open` has checked that every bucket has one.
#[inline(always)]
pub(crate) fn pilot(data: &[u8], at: u64) -> Result<u8> {
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
        place: &PilotPlace,
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
        let (hash, bits) = (self.footer.hasher.hash(key), self.footer.partition_bits);
        let place = PilotPlace::of::<R>(&self.directory, bits, hash);
        for slot in exceptions(&self.directory, bits, hash) {
            if let Some(value) = self.in_slot(records, &place, slot, key)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Looks up one key of a perfect table.
    #[inline(always)]
    pub(super) fn get_perfect<R: Perfect>(
        &self,
        records: R,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        if !records.takes(key) || !self.admits(hash) {
            return Ok(None);
        }
        let place = PilotPlace::of::<R>(&self.directory, self.footer.partition_bits, hash);
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

    /// The slot that a hash has in its partition: for readers of a whole table.
    pub(crate) fn slot_of(&self, partition: &Partition, hash: u64) -> Result<u32> {
        let offsets = self.footer.offsets(partition);
        let multiplier = perfect::multiplier(self.footer.partition_bits, partition.seed);
        let spread = perfect::spread(hash, multiplier);
        let bucket = perfect::bucket(spread, partition.buckets);
        let pilot = pilot(self.data, offsets.index.wrapping_add(bucket.into()))?;
        Ok(perfect::slot(spread, pilot, partition.slots))
    }

    /// Looks up a batch: see [`stream`].
    #[inline(always)]
    pub(super) fn batch_perfect<K: Kernel, R: Perfect, Q: Keys, A: Answer<'a>>(
        &self,
        kernel: K,
        records: R,
        keys: &Q,
        out: &mut [A],
    ) -> Result<usize> {
        let one = One { table: self, records };
        if self.footer.filter_bits != 0 {
            return stream::<K, R, _, Q, A, true, true>(kernel, &one, keys, out);
        }
        if self.footer.pilots > MOST_CACHED_PILOTS {
            return stream::<K, R, _, Q, A, false, true>(kernel, &one, keys, out);
        }
        stream::<K, R, _, Q, A, false, false>(kernel, &one, keys, out)
    }
}

/// Which table each key of a stream is asked of.
pub(super) trait Tables<'a, R> {
    /// The table of key number `i`, and its records.
    fn of(&self, i: usize) -> (&Table<'a>, R);
}

/// The same table for all keys.
struct One<'a, 't, R> {
    table: &'t Table<'a>,
    records: R,
}

impl<'a, R: Perfect> Tables<'a, R> for One<'a, '_, R> {
    #[inline(always)]
    fn of(&self, _: usize) -> (&Table<'a>, R) {
        (self.table, self.records)
    }
}

/// What a stage leaves to the next of a record that is not there.
const NOWHERE: u64 = u64::MAX;

/// Looks up a batch. Each stage is [`AHEAD`] keys behind the one before, and takes [`STEP`] keys at a
/// time: what a stage has named arrives while the others work on other keys.
///
/// The stages: hash; filter word, if `FILTER`; pilot, if `PILOTS`, otherwise the pilot is read as soon as
/// its place is known; offset line, if the layout has one; record.
///
/// A function of its own, since it gains nothing from a kernel's vector instructions, and loses
/// registers in one that has all layouts.
#[inline(never)]
pub(super) fn stream<'a, K, R, T, Q, A, const FILTER: bool, const PILOTS: bool>(
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
    let filter_lag = if FILTER { AHEAD } else { 0 };
    let pilot_lag = if PILOTS { filter_lag + AHEAD } else { filter_lag };
    let line_lag = if R::OFFSET_LINES { pilot_lag + AHEAD } else { pilot_lag };
    let record_lag = line_lag + AHEAD;
    // What each stage leaves to the next.
    let mut words = [(0u64, 0u64, 0u64); AHEAD];
    let mut places = [PilotPlace::default(); AHEAD];
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
        // The keys that a stage has now: it has begun and is not done.
        let keys_of = |lag: usize| {
            let begin = first.checked_sub(lag)?;
            let keys = n.saturating_sub(begin).min(STEP);
            (keys > 0).then_some((begin, keys))
        };
        if let Some((begin, _)) = keys_of(record_lag) {
            for (i, (at, (out, key))) in at[now.clone()].iter().zip(&mut to_answer).enumerate() {
                let (table, records) = tables.of(begin + i);
                let mut value = None;
                if *at != NOWHERE {
                    value = value_in(table.body, records, *at, key)?;
                }
                if table.footer.exceptions > 0 && value.is_none() && records.takes(key) {
                    value = table.in_exceptions(records, key)?;
                }
                found += usize::from(value.is_some());
                *out = value.map_or(A::ABSENT, A::found);
            }
        }
        if R::OFFSET_LINES
            && let Some((begin, keys)) = keys_of(line_lag)
        {
            let lines = lines[now.clone()].iter().zip(&mut to_find);
            let stage = at[now.clone()].iter_mut().zip(lines).enumerate().take(keys);
            for (i, (at, ((line_at, records_at, slot), key))) in stage {
                let (table, records) = tables.of(begin + i);
                *at = NOWHERE;
                if *line_at == NOWHERE || !records.takes(key) {
                    continue;
                }
                let line = offset_line(table.data, *line_at)?;
                if let Some(record) = record_in(*records_at, records, line, *slot, key) {
                    records.prefetch(kernel, table.data, record, key);
                    *at = record;
                }
            }
        }
        // From a place with its pilot to what the next stage reads.
        macro_rules! follow {
            ($table:expr, $records:expr, $place:expr, $at:expr, $line:expr) => {{
                let place: &PilotPlace = $place;
                if place.is_empty() {
                    // What is for the next stage, and only that.
                    *(if R::OFFSET_LINES { &mut $line.0 } else { &mut *$at }) = NOWHERE;
                } else {
                    let slot = place.slot(pilot($table.data, place.pilot_at)?);
                    if R::OFFSET_LINES {
                        *$line = (place.line_at(slot), place.records_at, slot);
                        kernel.prefetch($table.data, $line.0 as usize);
                    } else {
                        *$at = place.record_at($records, slot);
                        // All records have one length.
                        $records.prefetch(kernel, $table.data, *$at, &[]);
                    }
                }
            }};
        }
        if PILOTS && let Some((begin, keys)) = keys_of(pilot_lag) {
            let next = at[now.clone()].iter_mut().zip(&mut lines[now.clone()]);
            let stage = places[now.clone()].iter().zip(next).enumerate().take(keys);
            for (i, (place, (at, line))) in stage {
                let (table, records) = tables.of(begin + i);
                follow!(table, records, place, at, line);
            }
        }
        if FILTER && let Some((begin, keys)) = keys_of(filter_lag) {
            let words = &words[now.clone()];
            let stage = places[now.clone()].iter_mut().zip(words).enumerate().take(keys);
            for (i, (place, (hash, word_at, mask))) in stage {
                let (table, _) = tables.of(begin + i);
                *place = PilotPlace::default();
                if admitted(table.data, *word_at, *mask) {
                    *place =
                        PilotPlace::of::<R>(&table.directory, table.footer.partition_bits, *hash);
                    kernel.prefetch(table.data, place.pilot_at as usize);
                }
            }
        }
        let next = at[now.clone()].iter_mut().zip(&mut lines[now.clone()]);
        let next = places[now.clone()].iter_mut().zip(&mut words[now]).zip(next);
        for (i, (((place, word), (at, line)), key)) in next.zip(&mut to_hash).enumerate() {
            let (table, records) = tables.of(first + i);
            let bits = table.footer.partition_bits;
            let hash = match keys.known_hash(first + i) {
                Some(hash) => hash,
                None => table.footer.hasher.hash(key),
            };
            if FILTER {
                let (word_at, mask) = filter_word(bits, &table.directory, hash);
                kernel.prefetch(table.data, word_at as usize);
                *word = (hash, word_at, mask);
            } else {
                let here = PilotPlace::of::<R>(&table.directory, bits, hash);
                if PILOTS {
                    kernel.prefetch(table.data, here.pilot_at as usize);
                    *place = here;
                } else {
                    follow!(table, records, &here, at, line);
                }
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
