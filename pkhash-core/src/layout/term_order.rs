//! Term-order: slot words of 8 bytes, `pointer (40) | distance (8) | tag (16)`, lead to records
//! `value | key length (varint) | key`, which lie back to back in term order.

use super::{MAX_INLINE_KEY_LEN, MAX_KEY_LEN, Parsed, Probed, Records, short_eq, split};
use crate::error::Result;
use crate::hash;

/// A term-order table's record shape.
#[derive(Clone, Copy)]
pub(crate) struct TermOrder {
    value_width: usize,
}

/// The longest varint: five groups of 7 bits hold any key length.
const MAX_VARINT: usize = 5;

impl TermOrder {
    #[inline(always)]
    pub(crate) const fn new(value_width: u8) -> Self {
        Self { value_width: value_width as usize }
    }
}

/// A slot word's low 24 bits, which a lookup knows before it reads the word: the distance from the
/// home slot (255 stands for all that are greater), and the tag.
#[inline(always)]
const fn low_bits(hash: u64, distance: u32) -> u64 {
    let distance = if distance > 255 { 255 } else { distance };
    (distance as u64) << 16 | hash::tag(hash) as u64
}

/// The word of an occupied slot. `record` is the record's offset in its section, at most
/// [`MAX_RECORD_BYTES`](super::MAX_RECORD_BYTES); one more is stored, so that no word is 0.
#[inline(always)]
pub(crate) const fn slot_word(hash: u64, distance: u32, record: u64) -> u64 {
    (record + 1) << 24 | low_bits(hash, distance)
}

/// Bytes of a length as a varint: 7 bits a byte, low ones first, the top bit set in all but the last.
#[inline(always)]
pub(crate) const fn varint_len(len: u32) -> usize {
    let bits = 32 - (len | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Writes a varint to the front of `out` and returns its length; 0 if `out` is too short.
#[inline(always)]
pub(crate) fn write_varint(mut len: u32, out: &mut [u8]) -> usize {
    let bytes = varint_len(len);
    let Some(out) = out.get_mut(..bytes) else { return 0 };
    for byte in out.iter_mut() {
        *byte = len as u8 | 0x80;
        len >>= 7;
    }
    if let Some(last) = out.last_mut() {
        *last &= 0x7f;
    }
    bytes
}

/// Reads a varint off the front: the length, and the bytes that it took. Only the shortest form of a
/// length up to [`MAX_KEY_LEN`] is one.
fn read_varint(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut len = 0u64;
    for (i, byte) in bytes.iter().take(MAX_VARINT).enumerate() {
        len |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            let len = u32::try_from(len).ok().filter(|len| *len <= MAX_KEY_LEN)?;
            return (varint_len(len) == i + 1).then_some((len, i + 1));
        }
    }
    None
}

impl Records for TermOrder {
    #[inline(always)]
    fn takes(self, key: &[u8]) -> bool {
        key.len() <= MAX_KEY_LEN as usize
    }

    #[inline(always)]
    fn record_len(self, key: &[u8]) -> usize {
        // No overflow: `takes` came first, and a slice is at most isize::MAX bytes.
        let varint = if key.len() < 0x80 { 1 } else { varint_len(key.len() as u32) };
        self.value_width + varint + key.len()
    }

    #[inline(always)]
    fn value<'r>(self, record: &'r [u8], key: &[u8]) -> Option<&'r [u8]> {
        let (value, rest) = split(record, self.value_width)?;
        // Most keys are short: one byte of length, and no call of `memcmp`.
        if key.len() <= MAX_INLINE_KEY_LEN as usize {
            let (len, found) = rest.split_first()?;
            return (usize::from(*len) == key.len() && short_eq(found, key)).then_some(value);
        }
        let mut varint = [0; MAX_VARINT];
        let bytes = write_varint(key.len() as u32, &mut varint);
        let (len, found) = split(rest, bytes)?;
        (len == &varint[..bytes] && found == key).then_some(value)
    }

    #[inline(always)]
    fn parse(self, bytes: &[u8]) -> Result<Parsed<'_>, &'static str> {
        const SHORT: &str = "record runs past its section";
        let (value, rest) = split(bytes, self.value_width).ok_or(SHORT)?;
        let (key_len, varint) = read_varint(rest).ok_or("key length of a record")?;
        let (_, rest) = split(rest, varint).ok_or(SHORT)?;
        let (key, _) = split(rest, key_len as usize).ok_or(SHORT)?;
        Ok(Parsed { value, key, len: self.value_width + varint + key.len() })
    }
}

impl Probed for TermOrder {
    const SLOT_WORDS: bool = true;

    #[inline(always)]
    fn record_at(self, hash: u64, _slot: u32, distance: u32, word: u64) -> Option<u64> {
        if word & 0xff_ffff != low_bits(hash, distance) {
            return None;
        }
        // Pointer 0 is no record: the word of an empty slot under a damaged control byte.
        (word >> 24).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_edge() {
        for len in [0, 1, 127, 128, 16_383, 16_384, (1 << 21) - 1, 1 << 21, (1 << 28) - 1, 1 << 28]
            .into_iter()
            .chain([MAX_KEY_LEN - 1, MAX_KEY_LEN])
        {
            let mut out = [0xaa; 6];
            let n = write_varint(len, &mut out);
            assert_eq!(n, varint_len(len));
            assert_eq!(read_varint(&out), Some((len, n)));
            assert_eq!(read_varint(&out[..n - 1]), None, "{len} cut short");
            assert_eq!(write_varint(len, &mut out[..n - 1]), 0);
        }
    }

    #[test]
    fn varints_that_are_refused() {
        assert_eq!(read_varint(&[]), None);
        assert_eq!(read_varint(&[0x80, 0x00]), None, "not the shortest form of 0");
        assert_eq!(read_varint(&[0xff; 5]), None, "no end");
        assert_eq!(read_varint(&[0x80, 0x80, 0x80, 0x80, 0x08]), None, "2^31");
        assert_eq!(read_varint(&[0xff, 0xff, 0xff, 0xff, 0x7f]), None, "2^35 - 1");
    }

    #[test]
    fn no_word_of_a_record_is_zero() {
        assert_eq!(slot_word(0, 0, 0), 1 << 24);
        assert_eq!(
            slot_word(u64::MAX, 1000, super::super::MAX_RECORD_BYTES),
            u64::MAX,
            "the largest pointer, a saturated distance, the largest tag"
        );
    }
}
