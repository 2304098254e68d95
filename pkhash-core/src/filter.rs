//! The filter: a register-blocked Bloom filter, one 64-bit word for a key.
//!
//! A block that is one machine word needs one read for an answer (Lang, Neumann, Kemper, Boncz:
//! "Performance-Optimal Filtering", VLDB 2019). Each key sets five bits of its word. At 10
//! bits for each key about 1.7 % of absent keys are admitted.

use crate::error::{Error, Result};

/// Bits of its word that a key sets.
pub(crate) const BITS_SET: u8 = 5;

/// The most filter bits for each key.
pub const MAX_FILTER_BITS: u8 = 64;

/// Filter bits for each key unless the caller asks for others.
pub const DEFAULT_FILTER_BITS: u8 = 10;

/// Number of words for so many keys: `keys × bits / 64`, rounded up.
///
/// # Errors
/// [`Error::TooLarge`] past 2^32 - 1 words.
pub(crate) fn words(keys: u32, bits: u8) -> Result<u32> {
    let words = (u64::from(keys) * u64::from(bits)).div_ceil(64);
    u32::try_from(words).map_err(|_| Error::TooLarge {
        what: "filter words",
        expected: u64::from(u32::MAX),
        found: words,
    })
}

/// Mixes the hash once more, so that the word and its bits share nothing with control byte and tag.
/// The finalizer of MurmurHash3.
#[inline(always)]
const fn remix(hash: u64) -> u64 {
    let mut x = hash ^ (hash >> 33);
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// Where a hash lies in a filter: the word's index, and the bits set in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) word: u32,
    pub(crate) mask: u64,
}

/// The position of a hash in a filter of so many words: the word from the upper 32 bits of the remix,
/// five bit numbers from its lower 30.
#[inline(always)]
pub(crate) const fn position(hash: u64, words: u32) -> Position {
    let mixed = remix(hash);
    let word = (((mixed >> 32) * words as u64) >> 32) as u32;
    let mask = 1u64 << (mixed & 63)
        | 1u64 << ((mixed >> 6) & 63)
        | 1u64 << ((mixed >> 12) & 63)
        | 1u64 << ((mixed >> 18) & 63)
        | 1u64 << ((mixed >> 24) & 63);
    Position { word, mask }
}

/// Sets the bits of a hash in the bytes of a filter of so many words.
pub(crate) fn set(filter: &mut [u8], hash: u64, words: u32) {
    let position = position(hash, words);
    let at = position.word as usize * 8;
    if let Some(word) = filter.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *word = (u64::from_le_bytes(*word) | position.mask).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_at_the_edges() {
        assert_eq!(words(0, 10), Ok(0));
        assert_eq!(words(1, 10), Ok(1));
        assert_eq!(words(32, 10), Ok(5));
        assert_eq!(words(33, 10), Ok(6));
        assert_eq!(words(u32::MAX, 64), Ok(u32::MAX));
        assert_eq!(words(5, 0), Ok(0));
    }

    #[test]
    fn position_is_inside() {
        for words in [1, 2, 3, 1000, u32::MAX] {
            for i in 0..1000u64 {
                let at = position(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), words);
                assert!(at.word < words);
                assert!((1..=u32::from(BITS_SET)).contains(&at.mask.count_ones()));
            }
        }
        assert_eq!(position(7, 0).word, 0);
    }
}
