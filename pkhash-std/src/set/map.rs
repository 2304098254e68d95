//! The segment map of a set: built in parallel, kept from snapshot to snapshot.

#[cfg(feature = "index")]
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pkhash_core::segment_map::{MAP_LINE, MapEntry, MapLine, MapPart, MapPlan, SegmentMap};
use pkhash_core::{KeyHasher, Layout};
use pkhash_simd::AnyKernel;

use super::segment::Segment;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::storage::{Heap, Storage};
use crate::threads::Pool;

/// How to build a segment map.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SegmentMapOptions {
    /// Threads. 0: those of the rayon pool that the call runs in; without one, a thread for each core.
    pub threads: usize,
    /// Bytes for what is read of the tables, about: 8 for each key. (The map itself is in memory twice at the
    /// end of the build.) With fewer than all keys take, it goes through the tables once for each part of the hashes that fits; tables
    /// whose partitions are larger than such a part are then read more than once.
    pub memory: usize,
    /// Progress, in keys, and the flag that cancels.
    pub progress: Progress,
    /// What decides which keys share a line of the map, besides their hashes; `None`: something random, so
    /// that nobody can make keys that do.
    pub seed: Option<u64>,
}

/// 256 MiB: 33 M keys at once.
const DEFAULT_MEMORY: usize = 256 << 20;

impl Default for SegmentMapOptions {
    fn default() -> Self {
        Self { threads: 0, memory: DEFAULT_MEMORY, progress: Progress::default(), seed: None }
    }
}

pkhash_core::setters!(SegmentMapOptions {
    threads: usize,
    memory: usize,
    progress: Progress,
    seed: impl Into<Option<u64>>,
});

/// The facts of a set's segment map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentMapInfo {
    /// Maps that it is made of: one, or a few, each several times as large as the one before.
    pub maps: usize,
    /// Bytes of memory, shared by all snapshots that have the map.
    pub bytes: usize,
    /// Entries: the keys of all segments that there were when it was built.
    pub entries: u64,
    /// Entries of segments that this snapshot no longer has.
    pub stale: u64,
    /// Segments of this snapshot that are in the map.
    pub mapped: usize,
    /// Segments of this snapshot that are not, and are asked one by one.
    pub unmapped: usize,
}

/// The map's memory.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) plan: MapPlan,
    #[cfg_attr(not(feature = "index"), expect(dead_code, reason = "for the file"))]
    pub(super) seed: u64,
    pub(super) parts: Vec<MapPart>,
    /// The lines are the bytes from `first` on.
    pub(super) bytes: Storage,
    pub(super) first: usize,
    pub(super) hasher: KeyHasher,
    pub(super) tables: Vec<Mapping>,
}

/// A table that a map has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Its footer's.
    pub(super) checksum: u64,
    pub(super) keys: u64,
}

impl Mapping {
    fn of(segment: &Segment) -> Self {
        let footer = segment.table().footer();
        Self { checksum: footer.checksum(), keys: footer.keys() }
    }
}

impl Memory {
    pub(super) fn lines(&self) -> &[MapLine] {
        self.bytes.bytes().get(self.first..).unwrap_or_default().as_chunks().0
    }

    fn entries(&self) -> u64 {
        self.tables.iter().fold(0, |all, table| all.saturating_add(table.keys))
    }
}

/// A map and what its segments are in one snapshot.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    memory: Arc<Memory>,
    /// For each segment of the map, its number in the snapshot, or [`GONE`]. Numbers rise.
    numbers: Vec<u32>,
}

/// The number of a segment that a snapshot has no longer.
const GONE: u32 = u32::MAX;

/// Segments of a snapshot, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Asked one by one.
    Each(Range<u32>),
    /// In the map of this number.
    Mapped(usize, Range<u32>),
}

/// For each segment of a snapshot, which of its maps has it.
fn owners(maps: &[Mapped], segments: usize) -> Vec<Option<usize>> {
    let mut owners = vec![None; segments];
    for (map, mapped) in maps.iter().enumerate() {
        for number in &mapped.numbers {
            // `GONE` is none of them.
            if let Some(owner) = owners.get_mut(*number as usize) {
                *owner = Some(map);
            }
        }
    }
    owners
}

/// The runs of a snapshot of so many segments.
pub(super) fn runs(maps: &[Mapped], segments: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut next = 0;
    for run in owners(maps, segments).chunk_by(|a, b| a == b) {
        let numbers = next..next + run.len() as u32;
        next = numbers.end;
        runs.push(match run[0] {
            None => Run::Each(numbers),
            Some(map) => Run::Mapped(map, numbers),
        });
    }
    runs
}

/// A map with at most so many times the entries of those that are newer is folded together with them. The others then
/// grow by this factor at least from one to the next, so there are few.
const FOLD: u64 = 2;

/// How many of the newest segments one new map should have, so that every segment is in one. `None`: all are, and no map
/// is worth while to make anew.
pub(super) fn to_map(maps: &[Mapped], segments: &[Segment]) -> Option<usize> {
    let owners = owners(maps, segments.len());
    let is_stale = |map: &Mapped| {
        let stale = map.stale();
        stale > map.entries() - stale
    };
    let last = owners.iter().rposition(|owner| owner.is_none_or(|map| is_stale(&maps[map])))?;
    let keys = |segments: &[Segment]| -> u64 {
        segments.iter().map(|segment| segment.table().footer().keys()).sum()
    };
    let mut end = last + 1;
    // All of what comes next is mapped.
    while let Some(Some(next)) = owners.get(end)
        && maps[*next].entries() <= FOLD.saturating_mul(keys(&segments[..end]))
    {
        end = owners.iter().rposition(|owner| *owner == Some(*next)).map_or(end, |at| at + 1);
    }
    Some(end)
}

impl Mapped {
    /// Builds the map of these segments, the newest of a snapshot.
    pub(super) fn build(
        segments: &[Segment],
        hasher: KeyHasher,
        options: &SegmentMapOptions,
    ) -> Result<Self> {
        let memory = Arc::new(Memory::build(segments, hasher, options)?);
        Ok(Self { memory, numbers: (0..segments.len() as u32).collect() })
    }

    /// A map for a snapshot of these segments: those of its tables that are among them. `None`: none is.
    #[cfg(feature = "index")]
    pub(super) fn of(memory: Arc<Memory>, segments: &[Segment]) -> Option<Self> {
        let mut at: HashMap<(u64, u64), VecDeque<u32>> = HashMap::new();
        for (segment, number) in segments.iter().zip(0..) {
            let Mapping { checksum, keys } = Mapping::of(segment);
            at.entry((checksum, keys)).or_default().push_back(number);
        }
        // Tables of one content are as good as each other, and each is taken once.
        let number = |table: &Mapping| at.get_mut(&(table.checksum, table.keys))?.pop_front();
        let numbers: Vec<u32> =
            memory.tables.iter().map(number).map(|number| number.unwrap_or(GONE)).collect();
        numbers.iter().any(|number| *number != GONE).then_some(Self { memory, numbers })
    }

    /// What it shares with all snapshots that have it.
    #[cfg(feature = "index")]
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The same map for a snapshot made of this one: `origins` are the numbers that its segments have
    /// here, in the same order. `None` if it would have no segment left.
    pub(super) fn carry(&self, origins: &[Option<u32>]) -> Option<Self> {
        let mut origins = origins.iter().zip(0..).filter_map(|(old, new)| Some(((*old)?, new)));
        let mut next = origins.next();
        let numbers: Vec<u32> = self
            .numbers
            .iter()
            .map(|old| {
                if *old == GONE {
                    return GONE;
                }
                // Both rise.
                while next.is_some_and(|(origin, _)| origin < *old) {
                    next = origins.next();
                }
                next.filter(|(origin, _)| origin == old).map_or(GONE, |(_, new)| new)
            })
            .collect();
        let some = numbers.iter().any(|number| *number != GONE);
        some.then(|| Self { memory: Arc::clone(&self.memory), numbers })
    }

    /// The hash that the map was built with.
    pub(super) fn hasher(&self) -> KeyHasher {
        self.memory.hasher
    }

    /// For each of the map's segments, its number.
    pub(super) fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    pub(super) fn map(&self) -> SegmentMap<'_> {
        let Memory { plan, parts, .. } = &*self.memory;
        SegmentMap::new(plan, parts, self.memory.lines()).expect("as many parts as were planned")
    }

    /// Without the first `n` segments of the snapshot, which another map has. `None`: it has no other.
    pub(super) fn behind(&self, n: usize) -> Option<Self> {
        let numbers = self.numbers.iter();
        let numbers: Vec<u32> =
            numbers.map(|number| if (*number as usize) < n { GONE } else { *number }).collect();
        let some = numbers.iter().any(|number| *number != GONE);
        some.then(|| Self { memory: Arc::clone(&self.memory), numbers })
    }

    /// Keys of all segments that there were when it was built.
    fn entries(&self) -> u64 {
        self.memory.entries()
    }

    /// Those of segments that the snapshot does not have, or has in another map.
    fn stale(&self) -> u64 {
        let gone = |(table, number): (&Mapping, &u32)| if *number == GONE { table.keys } else { 0 };
        self.memory.tables.iter().zip(&self.numbers).map(gone).fold(0, u64::saturating_add)
    }

    /// The facts of all maps of a snapshot.
    pub(super) fn info(maps: &[Self], segments: usize) -> Option<SegmentMapInfo> {
        let bytes = |mapped: &Self| {
            let Memory { parts, bytes, tables, .. } = &*mapped.memory;
            bytes.bytes().len()
                + size_of_val(parts.as_slice())
                + size_of_val(tables.as_slice())
                + size_of_val(mapped.numbers.as_slice())
        };
        let mapped = owners(maps, segments).iter().flatten().count();
        (!maps.is_empty()).then(|| SegmentMapInfo {
            maps: maps.len(),
            bytes: maps.iter().map(bytes).sum(),
            entries: maps.iter().map(Self::entries).sum(),
            stale: maps.iter().map(Self::stale).sum(),
            mapped,
            unmapped: segments - mapped,
        })
    }

    /// The map's segments of `run` that may have a key of this hash.
    ///
    /// All of them, where the map says that every segment is to be asked.
    ///
    /// Sorted, since a segment may be named by chance and have the key all the same, and so come before newer
    /// ones; and each once, so that keys that were made to meet in one line cost no more lookups than there
    /// are segments.
    #[inline]
    pub(super) fn candidates(&self, kernel: AnyKernel, hash: u64, run: &Range<u32>) -> Numbers {
        let mut numbers = Numbers { first: None, others: Vec::new() };
        kernel.candidates(&self.map(), hash, |segment| {
            if let Some(number) = self.numbers.get(segment as usize).filter(|n| run.contains(n)) {
                numbers.add(*number);
            }
        });
        if !numbers.others.is_empty() {
            numbers.sort();
        }
        numbers
    }
}

/// Numbers of segments, hardly ever more than one.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The least that was not taken yet; `None`: all were.
    first: Option<u32>,
    /// The rest, the greatest first.
    others: Vec<u32>,
}

impl Numbers {
    #[inline]
    fn add(&mut self, number: u32) {
        if self.first.is_none() {
            self.first = Some(number);
        } else if self.first != Some(number) && self.others.last() != Some(&number) {
            self.others.push(number);
        }
    }

    #[cold]
    fn sort(&mut self) {
        self.others.extend(self.first);
        self.others.sort_unstable_by(|a, b| b.cmp(a));
        self.others.dedup();
        self.first = self.others.pop();
    }
}

impl Iterator for Numbers {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let next = self.first.take();
        if next.is_some() {
            self.first = self.others.pop();
        }
        next
    }
}

/// A table's partition, to be read for some parts of the map.
struct Unit<'s> {
    segment: &'s Segment,
    /// Its number in the map.
    number: u16,
    partition: u32,
}

/// A part's lines, and how many of them are homes.
type Filled = (MapPart, Vec<MapLine>);

impl Memory {
    fn build(segments: &[Segment], hasher: KeyHasher, options: &SegmentMapOptions) -> Result<Self> {
        let tables: Vec<Mapping> = segments.iter().map(Mapping::of).collect();
        let entries = tables.iter().fold(0u64, |all, table| all.saturating_add(table.keys));
        let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(segments.len()));
        let plan = MapPlan::new(entries, segments.len())?.with_seed(seed);
        let pool = Pool::new(options.threads, u32::MAX);
        // Parts that fit the memory, at least one.
        let in_memory = (options.memory / size_of::<MapEntry>()) as u64;
        let rounds = entries.div_ceil(in_memory.max(1)).clamp(1, plan.parts().into()) as u32;
        let step = plan.parts().div_ceil(rounds);
        let done = AtomicU64::new(0);
        let mut filled: Vec<Filled> = Vec::with_capacity(plan.parts() as usize);
        for first in (0..plan.parts()).step_by(step as usize) {
            let parts = first..plan.parts().min(first.saturating_add(step));
            let (from, to) = plan.hashes(parts.clone());
            let runs = pool.try_map(units(segments, hasher, from, to), |unit| {
                unit.entries(&plan, hasher, from, to, |read| {
                    options.progress.check()?;
                    // Entries that are read are half of the work.
                    let all = done.fetch_add(read, Ordering::Relaxed);
                    options.progress.report((all + read).min(entries), entries);
                    Ok(())
                })
            })?;
            filled.extend(pool.try_map(parts, |part| fill(&plan, part, &runs, &options.progress))?);
        }
        let lines = filled.iter().map(|(_, lines)| lines.len()).sum::<usize>();
        // Line numbers are of 32 bits.
        u32::try_from(lines).map_err(|_| pkhash_core::Error::TooLarge {
            what: "lines of a segment map",
            expected: u32::MAX.into(),
            found: lines as u64,
        })?;
        let too_large = || pkhash_core::Error::TooLarge {
            what: "bytes of a segment map",
            expected: usize::MAX as u64,
            found: lines as u64 * MAP_LINE as u64,
        };
        let bytes = lines.checked_mul(MAP_LINE).ok_or_else(too_large)?;
        let mut memory = Heap::zeroed(bytes).map_err(|_| too_large())?;
        let mut parts = Vec::with_capacity(filled.len() + 1);
        let (mut rest, _) = memory.bytes_mut().as_chunks_mut::<MAP_LINE>();
        let mut first = 0;
        // Each part gives its lines back when they are copied.
        for (part, lines) in filled {
            let (mine, others) = rest.split_at_mut(lines.len());
            mine.copy_from_slice(&lines);
            rest = others;
            parts.push(part.moved_to(first));
            first += lines.len() as u32;
        }
        parts.push(SegmentMap::end(first));
        Ok(Self { plan, seed, parts, bytes: Storage::of(memory), first: 0, hasher, tables })
    }
}

/// The partitions that may have keys with hashes in `from..=to`.
fn units(segments: &[Segment], hasher: KeyHasher, from: u64, to: u64) -> Vec<Unit<'_>> {
    let of = |(segment, number): (_, u16)| {
        let footer = Segment::table(segment).footer();
        let bits = footer.partition_bits();
        let partitions = if footer.hasher() == hasher {
            pkhash_core::hash::partition(from, bits)..pkhash_core::hash::partition(to, bits) + 1
        } else {
            // They are in the order of another hash.
            0..footer.partitions()
        };
        partitions.map(move |partition| Unit { segment, number, partition })
    };
    // At most 65,536 segments.
    segments.iter().zip(0..=u16::MAX).flat_map(of).collect()
}

impl Unit<'_> {
    /// The entries of the keys with hashes in `from..=to`, sorted. Tells now and then how many have been
    /// read since.
    fn entries(
        &self,
        plan: &MapPlan,
        hasher: KeyHasher,
        from: u64,
        to: u64,
        tell: impl Fn(u64) -> Result<()>,
    ) -> Result<Vec<MapEntry>> {
        let file = self.segment.table();
        let table = file.table();
        let (mut entries, mut told) = (Vec::new(), 0);
        tell(0)?;
        // A key that damage hides would be absent for good, in a table that seems to be sound.
        table.verify_checksums(self.partition).map_err(Error::table(file.name()))?;
        for (i, record) in table.iter_partition(self.partition).enumerate() {
            if i % TELL == TELL - 1 {
                tell((entries.len() - told) as u64)?;
                told = entries.len();
            }
            let (key, _) = record.map_err(Error::table(file.name()))?;
            let hash = hasher.hash(key);
            if (from..=to).contains(&hash) {
                entries.push(plan.entry(hash, self.number));
            }
        }
        tell((entries.len() - told) as u64)?;
        entries.sort_unstable();
        Ok(entries)
    }
}

/// Records from one look at the flag that cancels to the next.
const TELL: usize = 1 << 14;

/// Fills one part from sorted runs of entries.
fn fill(plan: &MapPlan, part: u32, runs: &[Vec<MapEntry>], progress: &Progress) -> Result<Filled> {
    let mut entries: Vec<MapEntry> = Vec::new();
    for run in runs {
        progress.check()?;
        let from = run.partition_point(|entry| plan.part(*entry) < part);
        let len = run[from..].partition_point(|entry| plan.part(*entry) == part);
        entries.extend_from_slice(&run[from..from + len]);
    }
    // Stable, which is quick for runs that are sorted. Like what follows it takes long only if keys were
    // made to have one part.
    entries.sort();
    progress.check()?;
    let mut lines = vec![[0; MAP_LINE]; plan.lines(&entries)? as usize];
    progress.check()?;
    let part = plan.fill(&entries, &mut lines)?;
    Ok((part, lines))
}

/// Whether [`get_batch_of`](pkhash_core::get_batch_of) runs staged for tables of these segments, with
/// hashes of this hasher.
pub(super) fn is_uniform(segments: &[Segment], hasher: KeyHasher) -> bool {
    let lines = |segment: &Segment| {
        let footer = segment.table().footer();
        let perfect = footer.layout() == Layout::Perfect && footer.hasher() == hasher;
        // Only offset lines have a unit.
        perfect.then_some(footer.unit() > 0)
    };
    let mut kinds = segments.iter().map(lines);
    let first = kinds.next().flatten();
    first.is_some() && kinds.all(|kind| kind == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_sorted_and_once() {
        let mut state = 1u64;
        for len in 0..200 {
            let mut numbers = Numbers { first: None, others: Vec::new() };
            let mut expected = std::collections::BTreeSet::new();
            for _ in 0..len {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = (state >> 40) as u32 % (1 + len / 3);
                numbers.add(number);
                expected.insert(number);
            }
            if !numbers.others.is_empty() {
                numbers.sort();
            }
            assert!(numbers.eq(expected));
        }
    }
}
