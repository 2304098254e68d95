//! Writing pilots, offset lines and records of a perfect partition.

use super::solve::{self, Solver};
use super::{Entry, Plan};
use crate::error::{Error, Result};
use crate::format::directory::Partition;
use crate::kernel::Kernel;
use crate::layout::copy;
use crate::layout::perfect::{LINE_SLOTS, OFFSET_LINE, Stride, span, write_offset_line};

/// How many buckets and slots a perfect partition has for its keys. Tables of any shape are read alike.
///
/// The default was chosen by measurement (`benches/record/zen4/shapes.csv`; records of 20 bytes in lines): 250
/// keys for 100 buckets at load 0.995 take 21.84 bytes a key and 94 ns to build one; 300 at 0.99, the usual
/// choice, take 21.88 and 118 ns; 350 at 0.99 take 320 ns. The time of a lookup is the same with all. Beyond about
/// 5 keys a bucket, 8 bits of pilot are not enough for any search: [`Error::Unsolvable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerfectShape {
    /// Keys for 100 buckets, 100 … 800. More of them take less room, and longer to place.
    pub keys_per_100_buckets: u16,
    /// Keys for 1,000 slots, 500 … 1,000. A full table takes longest to place.
    pub keys_per_1000_slots: u16,
}

impl Default for PerfectShape {
    fn default() -> Self {
        Self { keys_per_100_buckets: 250, keys_per_1000_slots: 995 }
    }
}

setters!(PerfectShape { keys_per_100_buckets: u16, keys_per_1000_slots: u16 });

impl PerfectShape {
    /// What a writer may ask for.
    pub(super) fn check(self) -> Result<()> {
        let within = |option, least: u16, most: u16, found: u16| {
            if (least..=most).contains(&found) {
                return Ok(());
            }
            let (least, expected) = (least.into(), most.into());
            Err(Error::BadOption { option, least, expected, found: found.into() })
        };
        within("keys per 100 buckets", 100, 800, self.keys_per_100_buckets)?;
        within("keys per 1,000 slots", 500, 1000, self.keys_per_1000_slots)
    }

    /// Buckets for so many keys: at most as many, since a bucket has a key on average.
    pub(super) const fn buckets(self, keys: u64) -> u64 {
        // Below 2^31 × 100.
        (keys * 100).div_ceil(self.keys_per_100_buckets as u64)
    }

    /// Slots for so many keys.
    pub(super) const fn slots(self, keys: u64) -> u64 {
        (keys * 1000).div_ceil(self.keys_per_1000_slots as u64)
    }
}

/// Entries between that whose record is written and that whose key is fetched.
const AHEAD: usize = 16;

/// Whether the entry's key has the hash of the key before it, so that it cannot be placed.
fn is_exception(entries: &[Entry<'_>], i: usize) -> bool {
    i > 0 && entries[i - 1].hash == entries[i].hash
}

/// Words of scratch for a partition.
pub(super) const fn scratch_len(partition: &Partition) -> usize {
    let keys = partition.keys as usize - partition.exceptions as usize;
    solve::scratch_len(keys, partition.buckets as usize, partition.slots as usize)
}

impl Plan {
    /// `pilots`, `lines` and `records` are zeroed and as long as `measure` said. Returns the largest
    /// value and the number of evictions; sets the partition's seed.
    pub(super) fn write_perfect<K: Kernel>(
        &self,
        kernel: K,
        partition: &mut Partition,
        entries: &[Entry<'_>],
        scratch: &mut [u64],
        (pilots, lines, records): (&mut [u8], &mut [u8], &mut [u8]),
    ) -> Result<(u64, u64)> {
        let (expected, found) = (scratch_len(partition), scratch.len());
        let too_small = Error::BufferTooSmall { what: "scratch for a partition", expected, found };
        if entries.is_empty() {
            return Ok((0, 0));
        }
        let keys = entries.len() - usize::from(partition.exceptions);
        let (buckets, slots) = (partition.buckets, partition.slots);
        let mut solver =
            Solver::new(scratch, self.partition_bits, keys, buckets, slots).ok_or(too_small)?;
        let pilots = &mut pilots[..buckets as usize];
        let placed = (0..entries.len())
            .filter(|i| !is_exception(entries, *i))
            .map(|i| (i as u32, entries[i].hash));
        let solved = solver.solve(&placed, pilots)?;
        partition.seed = solved.seed;
        let largest = if self.unit == 0 {
            self.write_fixed(kernel, &solver, pilots, entries, records)?
        } else {
            self.write_spans(solver, pilots, entries, lines, records)?
        };
        Ok((largest, solved.evictions))
    }

    /// The records of keys of one length, each at its slot's place.
    fn write_fixed<K: Kernel>(
        &self,
        kernel: K,
        solver: &Solver<'_>,
        pilots: &[u8],
        entries: &[Entry<'_>],
        records: &mut [u8],
    ) -> Result<u64> {
        let width = usize::from(self.value.width()) + self.key_len as usize;
        let stride = Stride::new(width as u32, self.records_per_line);
        let mut largest = 0;
        let mut write = |entry: &Entry<'_>, slot: u32| {
            let at = stride.at(slot) as usize;
            let record = &mut records[at..at + width];
            let (value, key) = record.split_at_mut(usize::from(self.value.width()));
            largest = self.put_value(entry, value)?.max(largest);
            copy(entry.key, key);
            Ok(())
        };
        solver.for_each(pilots, |entry, slot| {
            let entry = entry as usize;
            if let Some(later) = entries.get(entry + AHEAD) {
                kernel.prefetch(later.key, 0);
            }
            write(&entries[entry], slot)
        })?;
        let slots = solver.slots();
        let exceptions = (0..entries.len()).filter(|i| is_exception(entries, *i));
        for (i, slot) in exceptions.zip(slots..) {
            write(&entries[i], slot)?;
        }
        // An empty slot holds a copy of the record before it: a key of another slot, so that no lookup
        // finds it here, and a scan knows it by its equal. Before the first key: a copy of that.
        let Some(first) = (0..slots).find(|slot| solver.is_taken(*slot)) else {
            return Ok(largest);
        };
        for slot in (0..slots).filter(|slot| !solver.is_taken(*slot)) {
            let from = stride.at(slot.checked_sub(1).filter(|_| slot > first).unwrap_or(first));
            let from = from as usize;
            records.copy_within(from..from + width, stride.at(slot) as usize);
        }
        Ok(largest)
    }

    /// Records of many lengths in the order of their slots, and the offset lines that lead to them.
    fn write_spans(
        &self,
        solver: Solver<'_>,
        pilots: &[u8],
        entries: &[Entry<'_>],
        lines: &mut [u8],
        records: &mut [u8],
    ) -> Result<u64> {
        const EMPTY: u32 = u32::MAX;
        let slots = solver.into_slots(pilots, EMPTY);
        let exceptions = (0..entries.len()).filter(|i| is_exception(entries, *i)).map(|i| i as u32);
        let mut order = slots.iter().copied().chain(exceptions);
        let value_width = self.value.width();
        let (mut largest, mut at) = (0, 0usize);
        for line in lines.chunks_exact_mut(OFFSET_LINE) {
            let base = at;
            let mut starts = [0; LINE_SLOTS as usize + 1];
            for start in &mut starts[1..] {
                if let Some(entry) = order.next().filter(|entry| *entry != EMPTY) {
                    let entry = &entries[entry as usize];
                    let len = span(value_width, entry.key.len() as u64, self.unit) as usize;
                    let record = &mut records[at..at + len];
                    largest = self.put_value(entry, record)?.max(largest);
                    let end = usize::from(value_width) + entry.key.len();
                    copy(entry.key, &mut record[usize::from(value_width)..end]);
                    if end < len {
                        record[len - 1] = (len - end) as u8;
                    }
                    at += len;
                }
                // The plan chose a unit with which the longest records fit.
                *start = ((at - base) / usize::from(self.unit)) as u16;
            }
            let base = (base / usize::from(self.unit)) as u64;
            // The slots of the last line that do not exist are empty.
            line.copy_from_slice(&write_offset_line(base, &starts));
        }
        Ok(largest)
    }
}
