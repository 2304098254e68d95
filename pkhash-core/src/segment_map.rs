//! The segment map: which of many segments may have a key?
//!
//! One array of 64-byte lines over all segments (a *maplet*: arXiv 2510.05518). The hash of a key names
//! its home line; the line's entries with the key's tag name the segments that are worth asking: hardly
//! ever more than those that have the key. So a key costs one line and one lookup, however many segments
//! there are.
//!
//! It lives in the caller's memory, and is made from the tables whenever that is wanted. pkhash-std also keeps it in
//! files: FORMAT.md §15.
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
//!
//! # Crowds
//!
//! Keys can be made to have one home line, and a key that many segments have fills lines by itself. An entry lies at
//! most [`MAX_RUN`] lines behind its home. If the entries of a home would go further, the map stores only those for which the
//! home line has room, and sets all bits of its spill mask, which means: *ask every segment*. A lookup that comes
//! to such a line does what a set without a map does. The next home starts as if the others were not there. So a lookup reads at
//! most `MAX_RUN` + 1 lines, whatever the keys are. (Bits that were all set by entries that passed mean the same. That takes 27 entries at least,
//! and some 100 of random tags: a crowd, too.)
//!
//! Lines are 84 % full, so one entry too many is passed on by six lines, about. Hence n keys of one home, fewer than the bound drops, or a few
//! more keys than there is room for in each home of a region, cost about 5 n other keys more lines, or every segment. With
//! homes in the order of the hashes that takes hashes that agree in some 18 bits. Hence a map has a seed of its own
//! ([`MapPlan::with_seed`]), which mixes homes within their part, and which nobody needs to know. It costs a lookup one
//! multiplication. Keys of one 64-bit hash, which can be made as well (FORMAT.md §7.4), stay together.

mod plan;

use core::ops::Range;

use crate::error::{Error, Result};
use crate::hash;
use crate::kernel::Kernel;

pub use crate::kernel::{LINE_TAGS, MAP_LINE, MapLine};
pub use crate::lookup::Ask;
pub use plan::{MapEntry, MapPlan};

/// The most segments of a map.
pub const MAX_MAP_SEGMENTS: usize = 1 << 16;

/// The most segments whose numbers take one byte.
const NARROW_SEGMENTS: usize = 1 << 8;

/// Lines behind its home in which an entry may lie.
///
/// Of 67 M entries of random keys no one goes further than 3, with 60 % of the keys in two segments 4 or 5, with 30 % in
/// 15 segments 30; one key fills them if 1,280 segments have it (beyond 256 segments: 960).
pub const MAX_RUN: u32 = 64;

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

/// Bits of the spill mask.
const SPILL_BITS: usize = 27;

/// The whole spill mask: every segment is to be asked.
const SPILL_MASK: u32 = !COUNT_MASK;

/// Which bit of the spill mask stands for a tag.
#[inline(always)]
const fn spill(tag: u16) -> u32 {
    (tag as u32 * SPILL_BITS as u32) >> 16
}

/// The bit of a line's tail that says whether an entry of this tag has passed the line.
#[inline(always)]
const fn spill_bit(tag: u16) -> u32 {
    1 << (5 + spill(tag))
}

/// A part's lines: from this one on to the first one of the next part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapPart {
    first: u32,
    /// Lines that are the home of some hash; those behind them hold what has spilled.
    homes: u32,
}

impl MapPart {
    /// As a map's file has it (FORMAT.md §15).
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        (self.first as u64 | (self.homes as u64) << 32).to_le_bytes()
    }

    /// Of the bytes of a file. Whatever they say, a lookup stays among the lines that there are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        let both = u64::from_le_bytes(bytes);
        Self { first: both as u32, homes: (both >> 32) as u32 }
    }

    /// The part, beginning with this line of the whole map.
    #[must_use]
    pub const fn moved_to(self, first: u32) -> Self {
        Self { first, homes: self.homes }
    }
}

/// What decides the home of a hash in its part: of 32 bits as many as an entry has for it.
#[inline(always)]
const fn home_bits(hash: u64, part_bits: u8, factor: u64) -> u32 {
    let part_bits = part_bits & 31;
    // Of two hashes of one part, a random odd factor makes neighbours hardly more often than chance does
    // (Dietzfelbinger's multiply-shift).
    let mixed = (hash << part_bits).wrapping_mul(factor);
    (mixed >> 32) as u32 >> part_bits << part_bits
}

/// The home line for these bits.
#[inline(always)]
const fn scale(bits: u32, homes: u32) -> u32 {
    ((bits as u64 * homes as u64) >> 32) as u32
}

/// A segment map over borrowed memory.
#[derive(Clone, Copy, Debug)]
pub struct SegmentMap<'a> {
    width: Width,
    part_bits: u8,
    factor: u64,
    segments: u32,
    /// One more than there are parts: the last one says where the lines end.
    parts: &'a [MapPart],
    lines: &'a [MapLine],
}

/// The lines in which a key may be: from its home line on, as far as entries of this home go, and not beyond its part.
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
        let MapPlan { width, part_bits, factor, segments } = *plan;
        Ok(Self { width, part_bits, factor, segments, parts, lines })
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
        let bits = home_bits(hash, self.part_bits, self.factor);
        let line = part.first.saturating_add(scale(bits, part.homes));
        Place { line, end: next.first.min(line.saturating_add(MAX_RUN + 1)) }
    }

    /// The segments that may have a key of this hash: all that have it, and now and then one that has not;
    /// all that there are, where keys crowd. In no order; one may come several times.
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
            segments: self.segments,
            every: 0..0,
        }
    }

    /// For each hash one segment that may have it and that is wanted: asks for them, in no order; returns how
    /// many. `numbers` has the table of each of the map's segments; those that are not in `wanted` are
    /// passed over. Of those that the first line names it is the one with the least number. Where [`Ask::more`] is set,
    /// [`candidates`](Self::candidates) may name others; where [`Ask::lesser`] is, too, also such with lesser numbers.
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
                        Found::Table { table, more, lesser } => {
                            if let Some(ask) = asks.get_mut(asked) {
                                *ask = Ask { key: *i as u32, table, more, lesser };
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
                    let (table, more, lesser) = match found {
                        Found::Table { table, more, lesser } => (table, more, lesser),
                        Found::Spilled => (0, true, true),
                        Found::Nothing => (0, false, false),
                    };
                    // Without a branch: whether a key is there is what a branch cannot predict.
                    if let Some(ask) = asks.get_mut(asked) {
                        *ask = Ask { key: i as u32, table, more, lesser };
                    }
                    asked += usize::from(matches!(found, Found::Table { .. }));
                    let next = Place { line: place.line.saturating_add(1), end: place.end };
                    spilled[spilled_len % STEP] = (i, next);
                    spilled_len += usize::from(matches!(found, Found::Spilled));
                    if lesser {
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
        let Matches { mut hits, spilled, every } = matches(kernel, line, hash::tag(hash));
        let (mut least, mut more) = (None, spilled);
        while hits != 0 {
            let segment = self.width.segment(line, hits.trailing_zeros() as usize);
            hits &= hits - 1;
            if let Some(table) = numbers.get(segment as usize)
                && wanted.contains(table)
            {
                more |= least.is_some_and(|least| least != *table);
                least = Some(least.map_or(*table, |least: u32| least.min(*table)));
            }
        }
        if every && least.is_none() {
            // One of them, to begin with.
            least = numbers
                .iter()
                .take(self.segments as usize)
                .copied()
                .find(|table| wanted.contains(table));
            if least.is_none() {
                return Found::Nothing;
            }
        }
        match least {
            Some(table) => Found::Table { table, more, lesser: spilled },
            None if spilled => Found::Spilled,
            None => Found::Nothing,
        }
    }
}

/// What a line says of a key.
#[derive(Clone, Copy)]
enum Found {
    /// The least wanted table, and whether there may be more, and lesser ones.
    Table {
        table: u32,
        more: bool,
        lesser: bool,
    },
    /// It may be in the next line.
    Spilled,
    Nothing,
}

/// What of a line concerns a tag.
struct Matches {
    /// The entries that have the tag.
    hits: u32,
    /// Whether others may have spilled, or there may be others anywhere.
    spilled: bool,
    /// Whether every segment is to be asked.
    every: bool,
}

#[inline(always)]
fn matches<K: Kernel>(kernel: K, line: &MapLine, tag: u16) -> Matches {
    let noted = tail(line);
    let entries = (1 << (noted & COUNT_MASK)) - 1;
    Matches {
        hits: kernel.match_tags(line, tag) & entries,
        spilled: noted & spill_bit(tag) != 0,
        every: noted & SPILL_MASK == SPILL_MASK,
    }
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
    /// How many there are.
    segments: u32,
    /// Those that come behind the hits.
    every: Range<u32>,
}

impl<K: Kernel> Iterator for Candidates<'_, K> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while self.hits == 0 {
            if self.place.line >= self.place.end {
                return self.every.next();
            }
            self.line = self.lines.get(self.place.line as usize)?;
            let Matches { hits, spilled, every } = matches(self.kernel, self.line, self.tag);
            self.hits = hits;
            self.place.line += 1;
            if every {
                self.every = 0..self.segments;
            }
            if every || !spilled {
                self.place.end = 0;
            }
        }
        let segment = self.width.segment(self.line, self.hits.trailing_zeros() as usize);
        self.hits &= self.hits - 1;
        Some(segment)
    }
}

impl<K: Kernel> core::iter::FusedIterator for Candidates<'_, K> {}
