//! The frozen hash and its split into partition, home slot, control byte and tag.
//!
//! | bits of the hash | used for |
//! | --- | --- |
//! | 63 … 64-PB | partition (PB = partition bits, 0…10; perfect tables: 0…16) |
//! | 63-PB … 33-PB | home slot: 31 bits, scaled to the partition's homes by multiply-shift |
//! | 22 … 16 | control byte |
//! | 15 … 0 | tag |
//!
//! A perfect table takes bucket and slot from all bits below those of the partition (see
//! FORMAT.md §3.1.2) and has neither home slot, nor control byte, nor tag.
//!
//! The fields do not overlap at any PB up to 10, so a control byte that matches by chance says nothing about
//! the home slot or the tag, and false compares stay near 1/128.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The most partition bits that a table of any layout may have (see
/// [`Layout::max_partition_bits`](crate::Layout::max_partition_bits)).
pub const MAX_PARTITION_BITS: u8 = 16;

/// Hash id of XXH3-64 in the file.
const XXH3_64: u8 = 1;

/// What [`KeyHasher::check_value`] hashes.
const CHECK_KEY: &[u8; 16] = b"pkhash check key";

/// XXH3-64 with a table's seed: the one hash from which every position is taken.
///
/// ```
/// # use pkhash_core::KeyHasher;
/// assert_eq!(KeyHasher::new(0).hash(b""), 0x2d06_8005_38d3_94c2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct KeyHasher {
    seed: u64,
    /// `Some(b)`: keep only `b` bits. See `.cargo/config.toml`.
    #[cfg(all(pkhash_truncated_hash, debug_assertions))]
    truncated: Option<u8>,
}

impl KeyHasher {
    /// The hash with this seed. All tables that are searched together should share one.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            #[cfg(all(pkhash_truncated_hash, debug_assertions))]
            truncated: None,
        }
    }

    /// For tests: a hash with only 2^`bits` distinct values, spread over the whole range, so that
    /// different keys have one 64-bit hash. `bits` is taken modulo 64.
    #[cfg(all(pkhash_truncated_hash, debug_assertions))]
    #[must_use]
    pub const fn truncated(seed: u64, bits: u8) -> Self {
        Self { seed, truncated: Some(bits % 64) }
    }

    /// Hashes a key.
    #[inline(always)]
    #[must_use]
    pub fn hash(self, key: &[u8]) -> u64 {
        let hash = xxh3_64_with_seed(key, self.seed);
        #[cfg(all(pkhash_truncated_hash, debug_assertions))]
        if let Some(bits) = self.truncated {
            return (hash & ((1 << bits) - 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        hash
    }

    /// The seed.
    #[must_use]
    pub const fn seed(self) -> u64 {
        self.seed
    }

    /// The hash id that a file stores.
    pub(crate) const fn id(self) -> u8 {
        #[cfg(all(pkhash_truncated_hash, debug_assertions))]
        if let Some(bits) = self.truncated {
            return 0x80 | bits;
        }
        XXH3_64
    }

    /// The hash that a file names; `Err` holds the id that a reader knows.
    pub(crate) const fn from_id(id: u8, seed: u64) -> Result<Self, u8> {
        #[cfg(all(pkhash_truncated_hash, debug_assertions))]
        if id >= 0x80 && id < 0x80 + 64 {
            return Ok(Self::truncated(seed, id & 0x3f));
        }
        if id == XXH3_64 { Ok(Self::new(seed)) } else { Err(XXH3_64) }
    }

    /// The hash of a fixed key: stored in the footer, so that a reader whose hash differs from the
    /// writer's is told at once and does not just miss every key.
    #[must_use]
    pub fn check_value(self) -> u64 {
        self.hash(CHECK_KEY)
    }
}

/// The partition of a hash: its top `partition_bits` bits.
#[inline(always)]
#[must_use]
pub const fn partition(hash: u64, partition_bits: u8) -> u32 {
    // Two shifts, since a shift by 64 (no partition bits) is not defined. Masked, so that no value
    // of the bits can panic.
    ((hash >> 1) >> (63 - (partition_bits & 63))) as u32
}

/// The first and the last hash of a partition: the inverse of [`partition`].
#[inline]
#[must_use]
pub const fn range_of(p: u32, partition_bits: u8) -> (u64, u64) {
    let bits = partition_bits & 63;
    // Two shifts, as above.
    let first = ((p as u64) << 1) << (63 - bits);
    (first, first | (u64::MAX >> bits))
}

/// The home slot of a hash in a partition with this many homes.
#[inline(always)]
#[must_use]
pub const fn home(hash: u64, partition_bits: u8, homes: u32) -> u32 {
    let bits31 = (hash << (partition_bits & 63)) >> 33;
    ((bits31 * homes as u64) >> 31) as u32
}

/// The control byte of an occupied slot: never [`EMPTY`].
#[inline(always)]
#[must_use]
pub const fn control(hash: u64) -> u8 {
    (hash >> 16) as u8 | 0x80
}

/// The control byte of an empty slot.
pub const EMPTY: u8 = 0;

/// The tag of a hash.
#[inline(always)]
#[must_use]
pub const fn tag(hash: u64) -> u16 {
    hash as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap() {
        // A single set bit moves exactly one of partition, home, control and tag.
        for pb in 0..=crate::Layout::Inline.max_partition_bits() {
            for bit in 0..64 {
                let h = 1u64 << bit;
                let moved = [
                    partition(h, pb) != 0,
                    home(h, pb, 1 << 31) != 0,
                    control(h) != control(0),
                    tag(h) != 0,
                ];
                assert!(moved.iter().filter(|m| **m).count() <= 1, "pb {pb} bit {bit}: {moved:?}");
            }
        }
    }

    #[test]
    fn homes_rise_with_the_hash() {
        for pb in [0, 1, 7, 10] {
            let mut last = 0;
            for i in 0..10_000u64 {
                let h = (i * (u64::MAX / 10_000)) >> pb; // partition 0
                let at = home(h, pb, 12_345);
                assert!(at >= last && at < 12_345);
                last = at;
            }
            assert_eq!(home(u64::MAX, pb, 12_345), 12_344);
            assert_eq!(home(u64::MAX, pb, u32::MAX), u32::MAX - 2);
            assert_eq!(home(u64::MAX, pb, 0), 0);
        }
        assert_eq!(partition(u64::MAX, 0), 0);
        assert_eq!(range_of(0, 0), (0, u64::MAX));
        for bits in [1, 2, 10, 16] {
            for p in [0, 1, (1 << bits) - 1] {
                let (first, last) = range_of(p, bits);
                assert_eq!((partition(first, bits), partition(last, bits)), (p, p));
                assert_eq!(
                    first.checked_sub(1).map(|hash| partition(hash, bits)),
                    p.checked_sub(1)
                );
                assert_eq!(last == u64::MAX, p == (1 << bits) - 1);
            }
        }
        assert_eq!(partition(u64::MAX, 10), 1023);
    }

    #[test]
    fn the_hash_is_frozen() {
        // The check values of XXH3-64 as published, and ours. A change here breaks every file.
        assert_eq!(KeyHasher::new(0).hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(KeyHasher::new(0).hash(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(KeyHasher::new(0).check_value(), 0x50ea_e8b0_e55d_fd18);
    }
}
