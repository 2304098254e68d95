//! The segment map: which of many segments may have a key?
//!
//! One array of 64-byte lines over all segments (a *maplet*: arXiv 2510.05518). The hash of a key names
//! its home line; the line's entries with the key's tag name the segments that are worth asking: hardly
//! ever more than those that have the key. So a key costs one line and one lookup, however many segments
//! there are.
//!
//! It lives in memory only, in the caller's, and is made from the tables whenever that is wanted: no
//! part of the file format.
//!
//! # Lines
//!
//! | bytes | narrow lines | wide lines |
//! | --- | --- | --- |
//! | tags, 2 bytes each | 0 … 39: 20 tags | 0 … 29: 15 tags |
//! | segments | 40 … 59: 20 × 1 byte | 30 … 59: 15 × 2 bytes |
//! | 60 … 63 | bits 0 … 4: entries; bits 5 … 31: the spill mask | the same |
//!
//! An entry for which its home line has no room *spills* into the next line that has. Every line that it
//! passes notes it in its spill mask, by one of 27 bits that the tag chooses: who looks for a key goes on
//! to the next line only where the bit of its tag is set. With one flag in place of the mask, 25 % of
//! all keys would go on, and 1 of 4 of them again; with it, less than 1 of 10.
//!
//! The map is in parts, each for a range of hashes, with lines of its own, so that they can be filled by
//! several threads.
//!
//! A line may name a segment by chance, for another key of the same tag. So the segments that have a key are
//! among those that are named, but these come in no order, and may repeat: who wants the newest sorts
//! them, if there are several.

use core::ops::Range;

use crate::error::{Error, Result};
use crate::hash;
use crate::kernel::Kernel;

pub use crate::kernel::{LINE_TAGS, MAP_LINE, MapLine};
pub use crate::lookup::Ask;

/// The most segments of a map.
pub const MAX_MAP_SEGMENTS: usize = 1 << 16;

/// The most segments whose numbers take one byte.
const NARROW_SEGMENTS: usize = 1 << 8;

/// Entries of a part, about: some 500 KiB of lines.
const PART_ENTRIES: u64 = 1 << 17;

/// The most bits of a part's number.
const MAX_PART_BITS: u8 = 16;

/// How many segments a map is for decides how wide its entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// Segments of one byte.
    Narrow,
    /// Segments of two bytes.
    Wide,
}

impl Width {
    /// Entries that a line holds.
    #[inline(always)]
    const fn capacity(self) -> usize {
        match self {
            Self::Narrow => 20,
            Self::Wide => 15,
        }
    }

    /// Lines that are the home of some hash, for so many entries: 84 % full. Narrow lines take 3.81 bytes
    /// for each entry then.
    const fn homes(self, entries: u64) -> u64 {
        match self {
            // 16.8 and 12.6 entries in a line.
            Self::Narrow => (entries * 5).div_ceil(84),
            Self::Wide => (entries * 5).div_ceil(63),
        }
    }

    /// The segment of an entry.
    #[inline(always)]
    const fn segment(self, line: &MapLine, entry: usize) -> u32 {
        // Below the capacity, as every caller sees to; masked, so that the compiler knows.
        match self {
            Self::Narrow => line[(40 + entry) % MAP_LINE] as u32,
            Self::Wide => {
                let at = 30 + 2 * entry;
                line[at % MAP_LINE] as u32 | (line[(at + 1) % MAP_LINE] as u32) << 8
            }
        }
    }
}

/// The last four bytes of a line: entries and spill mask.
#[inline(always)]
const fn tail(line: &MapLine) -> u32 {
    u32::from_le_bytes([line[60], line[61], line[62], line[63]])
}

const COUNT_MASK: u32 = 0x1f;

/// The bit of a line's tail that says whether an entry of this tag has passed the line.
#[inline(always)]
const fn spill_bit(tag: u16) -> u32 {
    1 << (5 + ((tag as u32 * 27) >> 16))
}

/// An entry on its way into a map: the upper half of the hash, the tag, the segment. Entries are filled
/// in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapEntry(u64);

impl MapEntry {
    /// The entry of a key with this hash in this segment.
    #[inline]
    #[must_use]
    pub const fn new(hash: u64, segment: u16) -> Self {
        Self(hash & 0xffff_ffff_0000_0000 | (hash & 0xffff) << 16 | segment as u64)
    }

    const fn tag(self) -> u16 {
        (self.0 >> 16) as u16
    }

    const fn segment(self) -> u16 {
        self.0 as u16
    }
}

/// A part's lines: from this one on to the first one of the next part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapPart {
    first: u32,
    /// Lines that are the home of some hash; those behind them hold what has spilled.
    homes: u32,
}

impl MapPart {
    /// The part, beginning with this line of the whole map.
    #[must_use]
    pub const fn moved_to(self, first: u32) -> Self {
        Self { first, homes: self.homes }
    }
}

/// How a map is divided.
#[derive(Clone, Copy, Debug)]
pub struct MapPlan {
    width: Width,
    last_segment: u16,
    part_bits: u8,
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
        let last_segment = segments.saturating_sub(1) as u16;
        Ok(Self { width, last_segment, part_bits: (parts as u8).min(MAX_PART_BITS) })
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
        let shift = 64 - u32::from(self.part_bits);
        let begin = |part: u32| u64::from(part).unbounded_shl(shift);
        (begin(parts.start), begin(parts.end).wrapping_sub(1))
    }

    /// Lines that a part of these entries takes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more than 2^32 lines.
    pub fn lines(&self, entries: &[MapEntry]) -> Result<u32> {
        let homes = self.homes(entries)?;
        let lines = self.places(homes, entries).last().map_or(0, |(_, line)| u64::from(line) + 1);
        line_count(lines.max(homes.into()))
    }

    fn homes(&self, entries: &[MapEntry]) -> Result<u32> {
        line_count(self.width.homes(entries.len() as u64))
    }

    /// Home and line of each entry.
    fn places(&self, homes: u32, entries: &[MapEntry]) -> impl Iterator<Item = (u32, u32)> {
        let (capacity, part_bits) = (self.width.capacity(), self.part_bits);
        let (mut line, mut count) = (0, 0);
        entries.iter().map(move |entry| {
            let home = home(entry.0, part_bits, homes);
            if home > line {
                (line, count) = (home, 0);
            } else if count == capacity {
                (line, count) = (line.saturating_add(1), 0);
            }
            count += 1;
            (home, line)
        })
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
        if let Some(entry) = entries.iter().find(|entry| entry.segment() > self.last_segment) {
            let (expected, found) = (self.last_segment.into(), entry.segment().into());
            return Err(Error::TooLarge { what: "segments of a segment map", expected, found });
        }
        let homes = self.homes(entries)?;
        lines.fill([0; MAP_LINE]);
        let found = lines.len();
        for ((home, at), entry) in self.places(homes, entries).zip(entries) {
            let (home, at) = (home as usize, at as usize);
            let expected = at + 1;
            let too_small = Error::BufferTooSmall { what: "lines of a part", expected, found };
            let lines = lines.get_mut(home..=at).ok_or(too_small)?;
            if let Some((line, passed)) = lines.split_last_mut() {
                for line in passed {
                    let noted = tail(line) | spill_bit(entry.tag());
                    line[60..].copy_from_slice(&noted.to_le_bytes());
                }
                self.push(line, *entry);
            }
        }
        Ok(MapPart { first: 0, homes })
    }

    /// Adds an entry to a line that has room.
    fn push(&self, line: &mut MapLine, entry: MapEntry) {
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

fn line_count(lines: u64) -> Result<u32> {
    u32::try_from(lines).map_err(|_| Error::TooLarge {
        what: "lines of a segment map",
        expected: u32::MAX.into(),
        found: lines,
    })
}

/// The home line of a hash in its part.
#[inline(always)]
const fn home(hash: u64, part_bits: u8, homes: u32) -> u32 {
    // Of the upper half alone, which is all that an entry keeps of it.
    let bits = ((hash >> 32) as u32) << (part_bits & 31);
    ((bits as u64 * homes as u64) >> 32) as u32
}

/// A segment map over borrowed memory.
#[derive(Clone, Copy, Debug)]
pub struct SegmentMap<'a> {
    width: Width,
    part_bits: u8,
    /// One more than there are parts: the last one says where the lines end.
    parts: &'a [MapPart],
    lines: &'a [MapLine],
}

/// The lines in which a key may be: its home line, and where its part ends.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    line: u32,
    end: u32,
}

impl<'a> SegmentMap<'a> {
    /// The map of these parts, one after the other, as [`MapPlan::fill`] has returned them and each moved
    /// to its first line; the last one is followed by [`end`](Self::end).
    ///
    /// # Errors
    /// [`Error::BatchLength`] if they are not as many as the plan says.
    pub fn new(plan: &MapPlan, parts: &'a [MapPart], lines: &'a [MapLine]) -> Result<Self> {
        let expected = plan.parts() as usize + 1;
        if parts.len() != expected {
            return Err(Error::BatchLength { expected, found: parts.len() });
        }
        Ok(Self { width: plan.width, part_bits: plan.part_bits, parts, lines })
    }

    /// What ends the parts of a map that has so many lines.
    #[must_use]
    pub const fn end(lines: u32) -> MapPart {
        MapPart { first: lines, homes: 0 }
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> Place {
        let part = hash::partition(hash, self.part_bits) as usize;
        let Some([part, next]) = self.parts.get(part..).and_then(|parts| parts.first_chunk())
        else {
            return Place::default();
        };
        let home = home(hash, self.part_bits, part.homes);
        Place { line: part.first.saturating_add(home), end: next.first }
    }

    /// The segments that may have a key of this hash: all that have it, and now and then one that has not. In
    /// no order; one may come several times.
    #[inline]
    pub fn candidates<K: Kernel>(&self, kernel: K, hash: u64) -> Candidates<'a, K> {
        Candidates {
            kernel,
            width: self.width,
            lines: self.lines,
            place: self.place(hash),
            tag: hash::tag(hash),
            hits: 0,
            line: &[0; MAP_LINE],
        }
    }

    /// For each hash one segment that may have it and that is wanted: asks for them, in no order; returns how
    /// many. `numbers` has the table of each of the map's segments; those that are not in `wanted` are
    /// passed over. Where [`Ask::more`] is set, [`candidates`](Self::candidates) may name others, newer or
    /// older ones.
    ///
    /// # Errors
    /// [`Error::BatchLength`] if there is less room for asks than there are hashes; [`Error::TooLarge`] for
    /// more than 2^32 of them.
    #[inline(always)]
    pub fn ask_batch_with<K: Kernel>(
        &self,
        kernel: K,
        hashes: &[u64],
        numbers: &[u32],
        wanted: &Range<u32>,
        asks: &mut [Ask],
    ) -> Result<usize> {
        let n = hashes.len();
        if u32::try_from(n).is_err() {
            let (expected, found) = (u32::MAX.into(), n as u64);
            return Err(Error::TooLarge { what: "keys of a batch", expected, found });
        }
        let (expected, found) = (n, asks.len());
        let asks = asks.get_mut(..n).ok_or(Error::BatchLength { expected, found })?;
        let bytes = self.lines.as_flattened();
        let mut places = [Place::default(); AHEAD];
        // Keys that go on to another line than their home, and where. They get it a step later.
        let mut spilled = [(0usize, Place::default()); STEP];
        let mut spilled_len = 0;
        let mut asked = 0;
        for first in (0..n + AHEAD + STEP).step_by(STEP) {
            for (i, place) in spilled.iter().take(spilled_len) {
                let hash = hashes.get(*i).copied().unwrap_or_default();
                let mut place = *place;
                while place.line < place.end {
                    match self.first(kernel, place, hash, numbers, wanted) {
                        Found::Table(table, more) => {
                            if let Some(ask) = asks.get_mut(asked) {
                                *ask = Ask { key: *i as u32, table, more };
                                asked += 1;
                            }
                            break;
                        }
                        Found::Nothing => break,
                        Found::Spilled => place.line += 1,
                    }
                }
            }
            spilled_len = 0;
            let ring = first % AHEAD..first % AHEAD + STEP;
            if let Some(before) = first.checked_sub(AHEAD) {
                let hashes = hashes.get(before..).unwrap_or_default();
                for (i, (place, hash)) in places[ring.clone()].iter().zip(hashes).enumerate() {
                    let i = before + i;
                    let found = self.first(kernel, *place, *hash, numbers, wanted);
                    let (table, more) = match found {
                        Found::Table(table, more) => (table, more),
                        Found::Spilled => (0, true),
                        Found::Nothing => (0, false),
                    };
                    // Without a branch: whether a key is there is what a branch cannot predict.
                    if let Some(ask) = asks.get_mut(asked) {
                        *ask = Ask { key: i as u32, table, more };
                    }
                    asked += usize::from(matches!(found, Found::Table(..)));
                    let next = Place { line: place.line.saturating_add(1), end: place.end };
                    spilled[spilled_len % STEP] = (i, next);
                    spilled_len += usize::from(matches!(found, Found::Spilled));
                    if more {
                        kernel.prefetch(bytes, (next.line as usize).wrapping_mul(MAP_LINE));
                    }
                }
            }
            let hashes = hashes.get(first..).unwrap_or_default();
            for (place, hash) in places[ring].iter_mut().zip(hashes) {
                *place = self.place(*hash);
                kernel.prefetch(bytes, (place.line as usize).wrapping_mul(MAP_LINE));
            }
        }
        Ok(asked)
    }

    /// What the first line of a place says.
    #[inline(always)]
    fn first<K: Kernel>(
        &self,
        kernel: K,
        place: Place,
        hash: u64,
        numbers: &[u32],
        wanted: &Range<u32>,
    ) -> Found {
        let Some(line) = self.lines.get(place.line as usize).filter(|_| place.line < place.end)
        else {
            return Found::Nothing;
        };
        let (mut hits, spilled) = matches(kernel, line, hash::tag(hash));
        while hits != 0 {
            let segment = self.width.segment(line, hits.trailing_zeros() as usize);
            hits &= hits - 1;
            if let Some(table) = numbers.get(segment as usize)
                && wanted.contains(table)
            {
                return Found::Table(*table, spilled || hits != 0);
            }
        }
        if spilled { Found::Spilled } else { Found::Nothing }
    }
}

/// What a line says of a key.
#[derive(Clone, Copy)]
enum Found {
    /// The first wanted table, and whether there may be more.
    Table(u32, bool),
    /// It may be in the next line.
    Spilled,
    Nothing,
}

/// The entries of a line that have the tag, and whether others may have spilled.
#[inline(always)]
fn matches<K: Kernel>(kernel: K, line: &MapLine, tag: u16) -> (u32, bool) {
    let noted = tail(line);
    let entries = (1 << (noted & COUNT_MASK)) - 1;
    (kernel.match_tags(line, tag) & entries, noted & spill_bit(tag) != 0)
}

/// Keys between naming a line and looking at it.
const AHEAD: usize = 32;

/// Keys that are named together.
const STEP: usize = 16;

/// See [`SegmentMap::candidates`].
#[derive(Clone, Debug)]
pub struct Candidates<'a, K> {
    kernel: K,
    width: Width,
    lines: &'a [MapLine],
    /// The next line.
    place: Place,
    tag: u16,
    /// Entries of `line` that match.
    hits: u32,
    line: &'a MapLine,
}

impl<K: Kernel> Iterator for Candidates<'_, K> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while self.hits == 0 {
            if self.place.line >= self.place.end {
                return None;
            }
            self.line = self.lines.get(self.place.line as usize)?;
            let (hits, spilled) = matches(self.kernel, self.line, self.tag);
            self.hits = hits;
            self.place.line += 1;
            if !spilled {
                self.place.end = 0;
            }
        }
        let segment = self.width.segment(self.line, self.hits.trailing_zeros() as usize);
        self.hits &= self.hits - 1;
        Some(segment)
    }
}

impl<K: Kernel> core::iter::FusedIterator for Candidates<'_, K> {}
