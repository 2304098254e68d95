//! Records of keys of one length: each slot has its place.

use super::Perfect;
use crate::error::Result;
use crate::kernel::{Kernel, prefetch_all};
use crate::layout::{ALIGN, MAX_INLINE_KEY_LEN, Parsed, Records, short_eq, split};

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
pub(super) fn key_eq(found: &[u8], key: &[u8]) -> bool {
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
