//! How a map is divided, and how its parts are filled.

use core::ops::Range;

use super::{
    COUNT_MASK, MAP_LINE, MAX_MAP_SEGMENTS, MAX_RUN, MapLine, MapPart, NARROW_SEGMENTS, SPILL_BITS,
    SPILL_MASK, Width, home_bits, scale, spill, tail,
};
use crate::error::{Error, Result};
use crate::hash;

/// Entries of a part, about: some 500 KiB of lines.
const PART_ENTRIES: u64 = 1 << 17;

/// The most bits of a part's number.
const MAX_PART_BITS: u8 = 16;

/// An entry on its way into a map: part and home (32 bits), tag, segment. Entries are filled in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapEntry(u64);

impl MapEntry {
    const fn tag(self) -> u16 {
        (self.0 >> 16) as u16
    }

    const fn segment(self) -> u16 {
        self.0 as u16
    }
}

/// How a map is divided.
#[derive(Clone, Copy, Debug)]
pub struct MapPlan {
    pub(super) width: Width,
    pub(super) segments: u32,
    pub(super) part_bits: u8,
    /// Odd.
    pub(super) factor: u64,
}

impl MapPlan {
    /// The plan of a map with so many entries for so many segments, whose numbers are below that.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more segments than [`MAX_MAP_SEGMENTS`].
    pub fn new(entries: u64, segments: usize) -> Result<Self> {
        if segments > MAX_MAP_SEGMENTS {
            let (expected, found) = (MAX_MAP_SEGMENTS as u64, segments as u64);
            return Err(Error::TooLarge { what: "segments of a segment map", expected, found });
        }
        let width = if segments <= NARROW_SEGMENTS { Width::Narrow } else { Width::Wide };
        let parts = (entries / PART_ENTRIES).checked_ilog2().unwrap_or(0);
        let segments = segments as u32;
        Ok(Self { width, segments, part_bits: (parts as u8).min(MAX_PART_BITS), factor: 1 })
    }

    /// The same plan with homes that depend on this seed. Take a random one, unless all keys come from
    /// friends; without it homes are in the order of the hashes.
    #[must_use]
    pub const fn with_seed(self, seed: u64) -> Self {
        Self { factor: seed | 1, ..self }
    }

    /// The entry of a key with this hash in this segment.
    #[inline]
    #[must_use]
    pub const fn entry(&self, hash: u64, segment: u16) -> MapEntry {
        let part = (hash::partition(hash, self.part_bits) as u64)
            .unbounded_shl(64 - self.part_bits as u32);
        let home = (home_bits(hash, self.part_bits, self.factor) as u64) << 32 >> self.part_bits;
        MapEntry(part | home | (hash & 0xffff) << 16 | segment as u64)
    }

    /// Number of parts.
    #[must_use]
    pub const fn parts(&self) -> u32 {
        1 << self.part_bits
    }

    /// The part of an entry: it does not fall from one entry to the next.
    #[inline]
    #[must_use]
    pub const fn part(&self, entry: MapEntry) -> u32 {
        hash::partition(entry.0, self.part_bits)
    }

    /// The hashes of these parts.
    #[must_use]
    pub fn hashes(&self, parts: Range<u32>) -> (u64, u64) {
        let last = parts.end.saturating_sub(1);
        (hash::range_of(parts.start, self.part_bits).0, hash::range_of(last, self.part_bits).1)
    }

    /// Lines that a part of these entries takes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more than 2^32 lines.
    pub fn lines(&self, entries: &[MapEntry]) -> Result<u32> {
        let homes = self.homes(entries)?;
        let lines = self.groups(homes, entries).last().map_or(0, |group| group.end());
        line_count(lines.max(homes.into()))
    }

    fn homes(&self, entries: &[MapEntry]) -> Result<u32> {
        line_count(self.width.homes(entries.len() as u64))
    }

    /// The entries of each home, and where they lie.
    fn groups<'e>(&self, homes: u32, entries: &'e [MapEntry]) -> Groups<'e> {
        let (capacity, part_bits) = (self.width.capacity() as u64, self.part_bits);
        Groups { entries, homes, capacity, part_bits, next: 0 }
    }

    /// Fills the lines of a part with its entries, which are sorted. `lines` are as many as
    /// [`lines`](Self::lines) says. The part that is returned begins with line 0.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if they are fewer; [`Error::Unsorted`]; [`Error::TooLarge`] for a segment
    /// beyond those of the plan.
    pub fn fill(&self, entries: &[MapEntry], lines: &mut [MapLine]) -> Result<MapPart> {
        if let Some(index) = entries.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(Error::Unsorted { index: index + 1 });
        }
        let is_beyond = |entry: &&MapEntry| u32::from(entry.segment()) >= self.segments;
        if let Some(entry) = entries.iter().find(is_beyond) {
            let last = self.segments.saturating_sub(1);
            let (expected, found) = (last.into(), entry.segment().into());
            return Err(Error::TooLarge { what: "segments of a segment map", expected, found });
        }
        let homes = self.homes(entries)?;
        lines.fill([0; MAP_LINE]);
        let mut spills = Spills::default();
        let mut noted = 0;
        for group in self.groups(homes, entries) {
            let (end, found) = (group.end(), lines.len());
            if end > found as u64 {
                let expected = usize::try_from(end).unwrap_or(usize::MAX);
                return Err(Error::BufferTooSmall { what: "lines of a part", expected, found });
            }
            line_count(end)?;
            // The lines before its home are passed by those of earlier homes alone.
            let home = group.home as usize;
            spills.note(lines, noted..home);
            noted = home;
            for (place, entry) in (group.first..).zip(group.entries) {
                let at = (place / group.capacity) as u32;
                self.push(&mut lines[at as usize], *entry);
                spills.reach(entry.tag(), at);
            }
            if group.is_crowd {
                note(&mut lines[home], SPILL_MASK);
            }
        }
        spills.note(lines, noted..lines.len());
        Ok(MapPart { first: 0, homes })
    }

    /// Adds an entry to a line that has room.
    fn push(&self, line: &mut MapLine, entry: MapEntry) {
        count_update();
        let noted = tail(line);
        let count = (noted & COUNT_MASK) as usize;
        debug_assert!(count < self.width.capacity());
        line[2 * count..2 * count + 2].copy_from_slice(&entry.tag().to_le_bytes());
        let [low, high] = entry.segment().to_le_bytes();
        match self.width {
            Width::Narrow => line[40 + count] = low,
            Width::Wide => line[30 + 2 * count..32 + 2 * count].copy_from_slice(&[low, high]),
        }
        line[60..].copy_from_slice(&(noted + 1).to_le_bytes());
    }
}

/// The entries of one home that are stored.
struct Group<'e> {
    home: u32,
    entries: &'e [MapEntry],
    /// The place of the first one: a line has `capacity` places.
    first: u64,
    capacity: u64,
    /// Whether there are others, which are not.
    is_crowd: bool,
}

impl Group<'_> {
    /// One more than the last line that it takes, be it that of its mark alone.
    fn end(&self) -> u64 {
        let places = self.first + self.entries.len() as u64;
        places.div_ceil(self.capacity).max(u64::from(self.home) + 1)
    }
}

/// Sorted entries, home by home.
struct Groups<'e> {
    entries: &'e [MapEntry],
    homes: u32,
    capacity: u64,
    part_bits: u8,
    /// The first place behind the groups before.
    next: u64,
}

impl<'e> Iterator for Groups<'e> {
    type Item = Group<'e>;

    fn next(&mut self) -> Option<Group<'e>> {
        // What `home_bits` has given.
        let bits = |entry: &MapEntry| ((entry.0 >> 32) as u32) << (self.part_bits & 31);
        let home_of = |entry: &MapEntry| scale(bits(entry), self.homes);
        let home = home_of(self.entries.first()?);
        let len = self.entries.iter().take_while(|entry| home_of(entry) == home).count();
        let (entries, rest) = self.entries.split_at(len);
        self.entries = rest;
        let capacity = self.capacity;
        let line = u64::from(home) * capacity;
        let first = self.next.max(line);
        let room = (line + (u64::from(MAX_RUN) + 1) * capacity).saturating_sub(first);
        let is_crowd = entries.len() as u64 > room;
        let kept = if is_crowd { (line + capacity).saturating_sub(first) } else { room };
        let entries = entries.get(..kept as usize).unwrap_or(entries);
        self.next = first + entries.len() as u64;
        Some(Group { home, entries, first, capacity, is_crowd })
    }
}

/// For each bit of the spill mask the last line that an entry has reached: as lines are filled in order, its bit is
/// set in all lines before that.
#[derive(Default)]
struct Spills([u32; SPILL_BITS]);

impl Spills {
    fn reach(&mut self, tag: u16, line: u32) {
        if let Some(last) = self.0.get_mut(spill(tag) as usize) {
            *last = line;
        }
    }

    /// Notes in these lines what has passed them: each line once, so that it does not matter how many
    /// entries have.
    fn note(&self, lines: &mut [MapLine], range: Range<usize>) {
        let last = self.0.iter().copied().max().unwrap_or(0) as usize;
        let end = range.end.min(last);
        let lines = lines.get_mut(range.start..end).unwrap_or_default();
        for (at, line) in (range.start as u32..).zip(lines) {
            let bits = self.0.iter().enumerate();
            let mask = bits.fold(0, |mask, (i, last)| mask | u32::from(*last > at) << (5 + i));
            note(line, mask);
        }
    }
}

/// Sets bits of a line's spill mask.
fn note(line: &mut MapLine, bits: u32) {
    count_update();
    let noted = tail(line) | bits;
    line[60..].copy_from_slice(&noted.to_le_bytes());
}

fn line_count(lines: u64) -> Result<u32> {
    u32::try_from(lines).map_err(|_| Error::TooLarge {
        what: "lines of a segment map",
        expected: u32::MAX.into(),
        found: lines,
    })
}

/// For the test below.
#[cfg(not(test))]
const fn count_update() {}

#[cfg(test)]
use tests::count_update;

#[cfg(test)]
mod tests {
    extern crate std;

    use core::cell::Cell;

    use super::*;

    std::thread_local! {
        static UPDATES: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_update() {
        UPDATES.set(UPDATES.get() + 1);
    }

    /// Each entry is written once at most, and each line noted once, or twice if a crowd has its home there: wherever the
    /// homes of the keys are.
    #[test]
    fn filling_takes_time_in_proportion_to_entries_and_lines() {
        let n = 100_000u64;
        let hashes: [fn(u64) -> u64; 6] = [
            // One home, with tags of all kinds and with one; one hash; and the last home.
            |i| i,
            |i| i << 16,
            |_| 0x1234_5678_9abc_def0,
            |i| u64::MAX - i,
            // A few more than a home has room for, home after home; and as many as lines just hold.
            |i| (i / 30) << 46 | i & 0xffff,
            |i| (i / 1300) << 50 | i & 0xffff,
        ];
        for (which, hash) in hashes.iter().enumerate() {
            for segments in [15, 300] {
                let plan = MapPlan::new(n, segments).unwrap();
                let mut entries: std::vec::Vec<MapEntry> =
                    (0..n).map(|i| plan.entry(hash(i), (i % 15) as u16)).collect();
                entries.sort_unstable();
                let mut lines = std::vec![[0; MAP_LINE]; plan.lines(&entries).unwrap() as usize];
                UPDATES.set(0);
                plan.fill(&entries, &mut lines).unwrap();
                let updates = UPDATES.get();
                assert!(updates <= entries.len() + 2 * lines.len(), "{which}: {updates} updates");
                assert!(updates > 15);
            }
        }
    }
}
