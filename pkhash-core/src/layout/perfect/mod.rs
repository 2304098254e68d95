//! Perfect: a perfect hash function gives every key a slot of its own. A pilot (one byte for a bucket of
//! 2.5 keys on average) and the hash name the slot; its record holds the key, or the key is absent.
//!
//! The function is that of PtrHash (R. Groot Koerkamp, arXiv 2502.15539), cut to what a table needs:
//! one part for each partition, no remapping of slots.

mod fixed;
mod spans;

pub(crate) use fixed::{Fixed, Sized, Stride, records_per_line};
pub(crate) use spans::{
    LINE_SLOTS, MAX_UNIT, OFFSET_LINE, Spans, longest_key, longest_key_of, offset_lines, span,
    span_in, unit, write_offset_line,
};

use super::Records;
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

#[cfg(test)]
mod tests {
    use super::fixed::key_eq;
    use super::spans::MAX_START;
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
            let records = Spans::new(3, 70, unit);
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
