//! Perfect: a perfect hash function gives every key a slot of its own. A pilot (one byte for a bucket of
//! 2.5 keys on average) and the hash name the slot; its record holds the key, or the key is absent.
//!
//! The function is that of PtrHash (R. Groot Koerkamp, arXiv 2502.15539), cut to what a table needs:
//! one part for each partition, no remapping of slots.

use super::{ALIGN, MAX_INLINE_KEY_LEN, Parsed, Records, bytes_at, short_eq, split};
use crate::error::Result;
use crate::kernel::{Kernel, prefetch_all};

/// Multipliers of [`spread`], [`slot`] and its pilots: odd, without pattern. Parts of the format.
const SPREAD: u64 = 0xd6e8_feb8_6659_fd93;
const SLOT: u64 = 0x9e37_79b9_7f4a_7c15;
pub(crate) const PILOT: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// What [`spread`] multiplies a hash by. Seed 0 moves the bits below those of the partition up. Another
/// seed makes another function of them, for keys that cannot be placed with the first.
pub(crate) const fn multiplier(partition_bits: u8, seed: u16) -> u64 {
    if seed == 0 {
        // The product rises with the hash: sorted hashes are sorted by bucket.
        1 << (partition_bits & 63)
    } else {
        SPREAD.wrapping_mul(2 * seed as u64 - 1)
    }
}

/// A hash spread over 64 bits, by its partition's [`multiplier`].
#[inline(always)]
pub(crate) const fn spread(hash: u64, multiplier: u64) -> u64 {
    hash.wrapping_mul(multiplier)
}

/// `x / 2^32 × n`, rounded down: below `n`.
#[inline(always)]
const fn scale(x: u64, n: u32) -> u32 {
    (((x >> 32) * n as u64) >> 32) as u32
}

/// The bucket of a spread hash.
#[inline(always)]
pub(crate) const fn bucket(spread: u64, buckets: u32) -> u32 {
    scale(spread, buckets)
}

/// The slot of a spread hash in a bucket with this pilot.
#[inline(always)]
pub(crate) const fn slot(spread: u64, pilot: u8, slots: u32) -> u32 {
    slot_of(spread, (pilot as u64).wrapping_mul(PILOT), slots)
}

/// [`slot`], if the pilot times [`PILOT`] is known.
#[inline(always)]
pub(crate) const fn slot_of(spread: u64, pilot: u64, slots: u32) -> u32 {
    scale((spread ^ pilot).wrapping_mul(SLOT), slots)
}

/// Slots that one offset line serves.
pub(crate) const LINE_SLOTS: u32 = 28;

/// Length of an offset line.
pub(crate) const OFFSET_LINE: usize = ALIGN as usize;

/// The greatest unit of offsets.
pub(crate) const MAX_UNIT: u8 = 16;

/// The greatest distance, in units, that an offset line can hold.
pub(crate) const MAX_START: u64 = u16::MAX as u64;

/// Offset lines for so many slots.
#[inline(always)]
pub(crate) const fn offset_lines(slots: u64) -> u64 {
    slots.div_ceil(LINE_SLOTS as u64)
}

/// How records of one length lie in slots: some in each line of 64 bytes, or back to back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stride {
    /// From a slot to the next one in the same line.
    step: u64,
    /// What is left of a line behind its records.
    rest: u64,
    /// ceil(2^64 / records of a line), so that dividing a slot by them is a multiplication; 0 if no
    /// line has a rest to be skipped.
    reciprocal: u64,
    /// Records of a line; 0: back to back.
    per_line: u8,
}

impl Stride {
    pub(crate) const fn new(width: u32, per_line: u8) -> Self {
        let (step, reciprocal) = match per_line {
            0 => (width as u64, 0),
            // One in each line: the same as back to back, a line apart.
            1 => (ALIGN, 0),
            n => (width as u64, u64::MAX / n as u64 + 1),
        };
        let rest = ALIGN.saturating_sub(per_line as u64 * width as u64);
        Self { step, rest, reciprocal, per_line }
    }

    /// Offset of a slot's record among the records. Exact: with r records in a line and s < 2^32,
    /// s × (ceil(2^64 / r) - 2^64 / r) < 2^32 × 1 < 2^64 / r.
    ///
    /// With the line l = s / r, the place is 64 × l + width × (s - r × l): written so that it takes three
    /// multiplications and no branch.
    #[inline(always)]
    pub(crate) const fn at(self, slot: u32) -> u64 {
        let line = ((slot as u128 * self.reciprocal as u128) >> 64) as u64;
        // Below 2^32 × 2^17 each.
        (slot as u64 * self.step).wrapping_add(line * self.rest)
    }

    /// Whether no record straddles a line.
    #[inline(always)]
    pub(crate) const fn in_lines(self) -> bool {
        self.per_line > 0 || (self.step > 0 && ALIGN.is_multiple_of(self.step))
    }

    /// Bytes of so many slots.
    pub(crate) const fn bytes(self, slots: u64) -> u64 {
        match self.per_line {
            0 => slots * self.step,
            n => slots.div_ceil(n as u64) * ALIGN,
        }
    }
}

/// Records of this width in a line of 64 bytes, if keeping them within lines costs less than 8 %;
/// otherwise 0. Nothing straddles a line if none does anyway.
pub(crate) const fn records_per_line(width: u64) -> u8 {
    if width == 0 || width > ALIGN {
        return 0;
    }
    let n = ALIGN / width;
    let used = n * width;
    if used == ALIGN {
        // Back to back they keep to lines by themselves.
        return 0;
    }
    // 64 / used < 1.08
    if ALIGN * 100 < used * 108 { n as u8 } else { 0 }
}

/// The least unit in which offset lines can hold records of keys up to this length; `None` if none can.
pub(crate) const fn unit(value_width: u8, min_key_len: u64, max_key_len: u64) -> Option<u8> {
    // A record of no bytes would look like an empty slot.
    let mut unit = if value_width == 0 && min_key_len == 0 { 2 } else { 1 };
    while unit <= MAX_UNIT {
        if max_key_len <= longest_key_of(value_width, unit) {
            return Some(unit);
        }
        unit *= 2;
    }
    None
}

/// The longest key whose record fits offset lines of this unit, whatever else is in the line.
pub(crate) const fn longest_key_of(value_width: u8, unit: u8) -> u64 {
    let units = MAX_START / LINE_SLOTS as u64;
    let padding = if unit > 1 { 1 } else { 0 };
    units * unit as u64 - padding - value_width as u64
}

/// The longest key that offset lines hold.
pub(crate) const fn longest_key(value_width: u8) -> u64 {
    longest_key_of(value_width, MAX_UNIT)
}

/// Bytes of a record with its padding to whole units. With a unit of 1 there is none; otherwise at
/// least one byte, the last, which says how many.
#[inline(always)]
pub(crate) const fn span(value_width: u8, key_len: u64, unit: u8) -> u64 {
    // A key is at most isize::MAX bytes.
    let bytes = value_width as u64 + key_len;
    if unit <= 1 {
        return bytes;
    }
    let unit = unit as u64;
    (bytes + unit) & !(unit - 1)
}

/// What a perfect table adds to a lookup: from slot to record.
pub(crate) trait Perfect: Records {
    /// Whether an offset line is read between pilot and record.
    const OFFSET_LINES: bool;

    /// Offset of a slot's record among the records, where there are no offset lines.
    fn at(self, slot: u32) -> u64;

    /// The unit of offset lines.
    fn unit(self) -> u8;

    /// Prefetches the record of this key at `at`.
    #[inline(always)]
    fn prefetch<K: Kernel>(self, kernel: K, data: &[u8], at: u64, key: &[u8]) {
        prefetch_all(kernel, data, at, self.record_len(key));
    }
}

/// Records of keys of one length: `value | key` at the slot's place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fixed {
    value_width: usize,
    key_len: usize,
    stride: Stride,
}

impl Fixed {
    pub(crate) const fn new(value_width: u8, key_len: u32, per_line: u8) -> Self {
        Self {
            value_width: value_width as usize,
            key_len: key_len as usize,
            stride: Stride::new(value_width as u32 + key_len, per_line),
        }
    }

    pub(crate) const fn width(self) -> usize {
        self.value_width + self.key_len
    }

    pub(crate) const fn key_len(self) -> usize {
        self.key_len
    }
}

/// [`Fixed`], with the length of keys known when this is compiled: hashing and comparing them is then
/// code without a branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sized<const L: usize>(Fixed);

impl<const L: usize> Sized<L> {
    /// For keys that have this length, as the caller has seen to. (If they have not, answers are wrong.)
    #[inline(always)]
    pub(crate) const fn of(fixed: Fixed) -> Self {
        Self(fixed)
    }

    /// The 4 bytes before the key of the record at `at` of `body`, if it is this key's. (At least 64 bytes
    /// lie before every record.)
    #[inline(always)]
    pub(crate) fn number_at(self, body: &[u8], at: u64, key: &[u8; L]) -> Option<u32> {
        const WIDTH: usize = 4;
        let at = usize::try_from(at).ok()?.wrapping_add(self.0.value_width);
        // A slice of a known length: it is checked once.
        let bytes = body.get(at.wrapping_sub(WIDTH)..)?.get(..WIDTH + L)?;
        let (number, found) = bytes.split_first_chunk::<WIDTH>()?;
        (found == key).then(|| u32::from_le_bytes(*number))
    }

    /// The value of the record at `at` of `body`, if it is this key's. `None` also if there is no such
    /// record, which `open` has ruled out.
    #[inline(always)]
    pub(crate) fn value_at<'b>(self, body: &'b [u8], at: u64, key: &[u8; L]) -> Option<&'b [u8]> {
        let at = usize::try_from(at).ok()?;
        let key_at = at.wrapping_add(self.0.value_width);
        let found: &[u8; L] = body.get(key_at..)?.first_chunk()?;
        if found == key { body.get(at..key_at) } else { None }
    }
}

/// Equality of two keys of one length; those up to 64 bytes without a call of `memcmp`.
#[inline(always)]
fn key_eq(found: &[u8], key: &[u8]) -> bool {
    const HALF: usize = MAX_INLINE_KEY_LEN as usize + 1;
    match key.len() {
        ..HALF => short_eq(found, key),
        HALF..=64 => {
            found.len() == key.len()
                && found.first_chunk::<HALF>() == key.first_chunk()
                && found.last_chunk::<HALF>() == key.last_chunk()
        }
        _ => found == key,
    }
}

impl Records for Fixed {
    #[inline(always)]
    fn takes(self, key: &[u8]) -> bool {
        key.len() == self.key_len
    }

    #[inline(always)]
    fn record_len(self, _key: &[u8]) -> usize {
        self.width()
    }

    #[inline(always)]
    fn value<'r>(self, record: &'r [u8], key: &[u8]) -> Option<&'r [u8]> {
        let (value, found) = split(record, self.value_width)?;
        key_eq(found, key).then_some(value)
    }

    fn parse(self, record: &[u8]) -> Result<Parsed<'_>, &'static str> {
        let (value, key) = split(record, self.value_width).ok_or("record runs past the body")?;
        Ok(Parsed { value, key, len: record.len() })
    }
}

impl Perfect for Fixed {
    const OFFSET_LINES: bool = false;

    #[inline(always)]
    fn at(self, slot: u32) -> u64 {
        self.stride.at(slot)
    }

    #[inline(always)]
    fn unit(self) -> u8 {
        1
    }

    #[inline(always)]
    fn prefetch<K: Kernel>(self, kernel: K, data: &[u8], at: u64, _key: &[u8]) {
        if self.stride.in_lines() {
            kernel.prefetch(data, at as usize);
        } else {
            prefetch_all(kernel, data, at, self.width());
        }
    }
}

/// Records of keys of any lengths, in the order of their slots: `value | key | padding`. Offset lines
/// say where each begins, and so where the one before ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    value_width: usize,
    /// 1 where a record of the empty key would have no bytes: an empty slot has none either.
    shortest: usize,
    longest: usize,
    unit: u8,
}

impl Spans {
    pub(crate) const fn new(value_width: u8, longest: u32, unit: u8) -> Self {
        Self {
            value_width: value_width as usize,
            shortest: (value_width == 0 && unit <= 1) as usize,
            longest: longest as usize,
            unit,
        }
    }
}

impl Records for Spans {
    #[inline(always)]
    fn takes(self, key: &[u8]) -> bool {
        self.shortest <= key.len() && key.len() <= self.longest
    }

    #[inline(always)]
    fn record_len(self, key: &[u8]) -> usize {
        // No overflow, on machines of 32 bits either: `takes` came first.
        span(self.value_width as u8, key.len() as u64, self.unit) as usize
    }

    #[inline(always)]
    fn value<'r>(self, record: &'r [u8], key: &[u8]) -> Option<&'r [u8]> {
        let (value, rest) = split(record, self.value_width)?;
        let (found, padding) = split(rest, key.len())?;
        let whole = match padding.last() {
            None => true,
            Some(last) => usize::from(*last) == padding.len(),
        };
        (whole && key_eq(found, key)).then_some(value)
    }

    fn parse(self, record: &[u8]) -> Result<Parsed<'_>, &'static str> {
        const SHORT: &str = "record shorter than its value";
        let (value, rest) = split(record, self.value_width).ok_or(SHORT)?;
        let mut padding = 0;
        if self.unit > 1 {
            padding = usize::from(*rest.last().ok_or(SHORT)?);
            if padding == 0 || padding > usize::from(self.unit) {
                return Err("padding of a record");
            }
        }
        let key_len = rest.len().checked_sub(padding).ok_or("padding of a record")?;
        let (key, padding) = split(rest, key_len).ok_or(SHORT)?;
        if padding.iter().rev().skip(1).any(|byte| *byte != 0) {
            return Err("padding of a record");
        }
        Ok(Parsed { value, key, len: record.len() })
    }
}

impl Perfect for Spans {
    const OFFSET_LINES: bool = true;

    #[inline(always)]
    fn at(self, _slot: u32) -> u64 {
        0
    }

    #[inline(always)]
    fn unit(self) -> u8 {
        self.unit
    }
}

/// Where a slot's record begins and ends, in units from the beginning of the records, by the slot's
/// offset line: `base (40 bits) | 29 starts (16 bits) | 0`. The 29th is the end of the 28th record.
#[inline(always)]
pub(crate) fn span_in(line: &[u8; OFFSET_LINE], slot: u32) -> (u64, u64) {
    let place = (slot % LINE_SLOTS) as usize;
    let base =
        bytes_at::<8>(line, 0).map_or(0, |bytes| u64::from_le_bytes(*bytes)) & ((1 << 40) - 1);
    let pair = bytes_at::<4>(line, 5 + 2 * place).map_or(0, |bytes| u32::from_le_bytes(*bytes));
    (base + u64::from(pair & 0xffff), base + u64::from(pair >> 16))
}

/// Writes an offset line. `starts` are distances from the base: one for each slot, and the end.
pub(crate) fn write_offset_line(
    base: u64,
    starts: &[u16; LINE_SLOTS as usize + 1],
) -> [u8; OFFSET_LINE] {
    let mut line = [0; OFFSET_LINE];
    line[..8].copy_from_slice(&base.to_le_bytes());
    for (start, out) in starts.iter().zip(line[5..].chunks_exact_mut(2)) {
        out.copy_from_slice(&start.to_le_bytes());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_divisions() {
        for per_line in 0..=64u8 {
            let width = if per_line == 0 { 77 } else { 64 / u32::from(per_line) };
            let stride = Stride::new(width, per_line);
            let edges =
                [0, 1, 2, 3, 62, 63, 64, 65, 131_071, 1 << 20, (1 << 31) - 1, 1 << 31, u32::MAX];
            for slot in edges.into_iter().chain((0..1000).map(|i| i * 4_294_967)) {
                let (s, n) = (u64::from(slot), u64::from(per_line));
                let expected = match n {
                    0 => s * u64::from(width),
                    n => s / n * 64 + s % n * u64::from(width),
                };
                assert_eq!(stride.at(slot), expected, "{slot}, {per_line} in a line");
            }
        }
    }

    #[test]
    fn lines_that_cost_less_than_8_percent() {
        assert_eq!(records_per_line(20), 3, "6.7 %");
        assert_eq!(records_per_line(19), 0, "12 %");
        assert_eq!(records_per_line(16), 0, "none straddles");
        assert_eq!(records_per_line(10), 6, "6.7 %");
        assert_eq!(records_per_line(60), 1, "6.7 %");
        assert_eq!(records_per_line(59), 0, "8.5 %");
        assert_eq!(records_per_line(7), 9);
        assert_eq!(records_per_line(0), 0);
        assert_eq!(records_per_line(64), 0);
        assert_eq!(records_per_line(65), 0);
        assert_eq!(records_per_line(u64::MAX), 0);
    }

    #[test]
    fn units_hold_the_longest_line() {
        assert_eq!(unit(4, 0, 2336), Some(1));
        assert_eq!(unit(4, 0, 2337), Some(2));
        assert_eq!(unit(0, 0, 10), Some(2), "the empty key of a set takes a byte");
        assert_eq!(unit(0, 1, 10), Some(1));
        assert_eq!(unit(4, 1, u64::from(super::super::MAX_KEY_LEN)), None);
        for len in 0..40_000 {
            match unit(8, 0, len) {
                Some(unit) => {
                    let line = u64::from(LINE_SLOTS) * span(8, len, unit);
                    assert!(
                        line.is_multiple_of(unit.into()) && line / u64::from(unit) <= MAX_START
                    );
                }
                None => assert!(len > 37_000),
            }
        }
    }

    #[test]
    fn offset_lines_round_trip() {
        let starts: [u16; 29] = core::array::from_fn(|i| (i * 2340) as u16);
        let line = write_offset_line((1 << 40) - 1, &starts);
        assert_eq!(line[63], 0);
        for slot in 0..28u32 {
            let base = (1u64 << 40) - 1;
            let expected = (base + u64::from(slot) * 2340, base + u64::from(slot + 1) * 2340);
            assert_eq!(span_in(&line, slot), expected);
            assert_eq!(span_in(&line, slot + 28 * 77), expected);
        }
    }

    #[test]
    fn key_eq_sees_every_byte() {
        let a: [u8; 70] = core::array::from_fn(|i| i as u8);
        for len in 0..=70 {
            assert!(key_eq(&a[..len], &a[..len]));
            assert!(len == 0 || !key_eq(&a[..len - 1], &a[..len]));
            assert!(len == 70 || !key_eq(&a[..len + 1], &a[..len]));
            for at in 0..len {
                let mut b = a;
                b[at] ^= 0x80;
                assert!(!key_eq(&a[..len], &b[..len]), "length {len}, byte {at}");
            }
        }
    }

    #[test]
    fn records_of_any_length_come_back() {
        for unit in [1u8, 2, 4, 16] {
            let records = Spans { value_width: 3, shortest: 0, longest: 70, unit };
            for len in 0..70 {
                let key: [u8; 70] = core::array::from_fn(|i| i as u8);
                let key = &key[..len];
                let n = records.record_len(key);
                let mut record = [0; 128];
                record[..3].copy_from_slice(b"abc");
                record[3..3 + len].copy_from_slice(key);
                if unit > 1 {
                    record[n - 1] = (n - 3 - len) as u8;
                }
                assert_eq!(records.value(&record[..n], key), Some(&b"abc"[..]));
                let parsed = records.parse(&record[..n]).unwrap();
                assert_eq!((parsed.value, parsed.key, parsed.len), (&b"abc"[..], key, n));
            }
        }
    }

    #[test]
    fn slots_and_buckets_stay_in_range() {
        for hash in [0, 1, u64::MAX, 0x8000_0000_0000_0000] {
            for seed in [0, 1, u16::MAX] {
                for bits in [0, 16] {
                    let x = spread(hash, multiplier(bits, seed));
                    for n in [1, 2, 1000, u32::MAX] {
                        assert!(bucket(x, n) < n);
                        assert!(slot(x, 255, n) < n);
                    }
                    assert_eq!((bucket(x, 0), slot(x, 3, 0)), (0, 0));
                }
            }
        }
    }
}
