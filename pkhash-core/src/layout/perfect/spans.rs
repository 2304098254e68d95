//! Records of keys of several lengths: offset lines say where each lies.

use super::Perfect;
use super::fixed::key_eq;
use crate::error::Result;
use crate::layout::{ALIGN, Parsed, Records, bytes_at, split};

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
