//! The layouts: one file each, behind one [`Layout`].
//!
//! Inline and term-order are open-addressing tables with linear probing. Keys are placed in the order
//! of their hashes, each into the first free slot from its home slot on. Homes rise with the hash, so
//! slots are filled from front to back, a table lies in hash order, and the last keys are pushed into
//! a few slots past the last home: a probe never wraps.
//!
//! In a perfect table nothing is probed: a perfect hash function gives each key its slot.

mod inline;
pub(crate) mod perfect;
mod term_order;

pub(crate) use inline::Inline;
pub(crate) use term_order::{TermOrder, slot_word, varint_len, write_varint};

use core::fmt;

use crate::error::{Result, Section};

/// What sections are aligned to, and padded to with zeros: a cache line.
pub const ALIGN: u64 = 64;

/// The longest key of an inline table.
pub const MAX_INLINE_KEY_LEN: u32 = 31;

/// The longest key of any table.
pub const MAX_KEY_LEN: u32 = i32::MAX as u32;

/// The most record bytes that a term-order partition may have: slot words hold 40-bit pointers, and
/// 0 is an empty slot.
pub const MAX_RECORD_BYTES: u64 = (1 << 40) - 2;

/// The `N` bytes at an offset, if they are there.
#[inline(always)]
pub(crate) fn bytes_at<const N: usize>(data: &[u8], at: usize) -> Option<&[u8; N]> {
    data.get(at..)?.first_chunk()
}

/// How a table's records lie and how a slot leads to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// All keys have one length, at most 31 bytes. Records lie in the slots: control byte → record.
    Inline,
    /// Keys of any length. A slot word points to a record among those of its partition, which lie in
    /// term order (the order of the keys' bytes): control byte → slot word → record.
    TermOrder,
    /// Keys of any length up to some 37,000 bytes, or of one length. A perfect hash function gives
    /// each key a slot of its own: pilot → record, or pilot → offset line → record if lengths differ.
    Perfect,
}

impl Layout {
    /// Every layout.
    pub fn all() -> impl ExactSizeIterator<Item = Self> + Clone {
        [Self::Inline, Self::TermOrder, Self::Perfect].into_iter()
    }

    /// The name that the command and messages use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::TermOrder => "term-order",
            Self::Perfect => "perfect",
        }
    }

    pub(crate) const fn id(self) -> u8 {
        match self {
            Self::Inline => 1,
            Self::TermOrder => 2,
            Self::Perfect => 3,
        }
    }

    /// The most partition bits that a table of this layout may have: slots of a perfect table take
    /// fewer bits of the hash, so more are left.
    #[must_use]
    pub const fn max_partition_bits(self) -> u8 {
        match self {
            Self::Inline | Self::TermOrder => 10,
            Self::Perfect => 16,
        }
    }

    /// The sections of a partition, in the order in which they lie.
    pub fn sections(self) -> impl ExactSizeIterator<Item = Section> + Clone {
        self.section_list().into_iter()
    }

    pub(crate) const fn section_list(self) -> [Section; 4] {
        match self {
            Self::Inline | Self::TermOrder => {
                [Section::Filter, Section::Control, Section::SlotWords, Section::Records]
            }
            Self::Perfect => {
                [Section::Filter, Section::Pilots, Section::OffsetLines, Section::Records]
            }
        }
    }

    pub(crate) const fn from_id(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::Inline),
            2 => Some(Self::TermOrder),
            3 => Some(Self::Perfect),
            _ => None,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Records of a table: whose they are, and what is in them.
pub(crate) trait Records: Copy {
    /// Whether a key could be in the table at all.
    fn takes(self, key: &[u8]) -> bool;

    /// Bytes of this key's record, padding included, if it is there.
    fn record_len(self, key: &[u8]) -> usize;

    /// The value, if `record` is the record of this key. It is [`record_len`](Self::record_len) long.
    fn value<'r>(self, record: &'r [u8], key: &[u8]) -> Option<&'r [u8]>;

    /// Takes a record apart: value, key, and the length of the record. `bytes` begins with it; of a perfect
    /// table they are all of it. `Err` names what is wrong.
    fn parse(self, bytes: &[u8]) -> Result<Parsed<'_>, &'static str>;
}

/// What a probing layout adds to a lookup: from a slot whose control byte matched to a record.
pub(crate) trait Probed: Records {
    /// Whether a slot word is read between control byte and record.
    const SLOT_WORDS: bool;

    /// Offset of a slot's record among the records. `word` is the slot's word, where there are words;
    /// `distance` the slot's from the hash's home. `None`: the word cannot be that of this hash.
    fn record_at(self, hash: u64, slot: u32, distance: u32, word: u64) -> Option<u64>;
}

/// A record taken apart.
#[derive(Clone, Copy)]
pub(crate) struct Parsed<'r> {
    pub(crate) value: &'r [u8],
    pub(crate) key: &'r [u8],
    pub(crate) len: usize,
}

/// Takes `n` bytes off the front.
#[inline(always)]
pub(crate) fn split(bytes: &[u8], n: usize) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(n)
}

/// Equality of keys of at most 31 bytes by overlapping loads of words, without a call of `memcmp` for each
/// key (a hit of a batch in term-order, AVX2, Zen 4, 10 M keys: 87 ns with calls for length and key, 62 ns
/// so; two runs of the report).
#[inline(always)]
pub(crate) fn short_eq(a: &[u8], b: &[u8]) -> bool {
    /// The bits in which the first and the last `N` bytes differ.
    #[inline(always)]
    fn ends_differ<const N: usize>(a: &[u8], b: &[u8]) -> Option<u64> {
        #[inline(always)]
        fn word<const N: usize>(bytes: &[u8; N]) -> u64 {
            let mut wide = [0; 8];
            wide[..N].copy_from_slice(bytes);
            u64::from_ne_bytes(wide)
        }
        let first = word(a.first_chunk::<N>()?) ^ word(b.first_chunk::<N>()?);
        let last = word(a.last_chunk::<N>()?) ^ word(b.last_chunk::<N>()?);
        Some(first | last)
    }
    if a.len() != b.len() {
        return false;
    }
    let differ = if a.len() > 16 {
        let (a, a_rest) = a.split_at(16);
        let (b, b_rest) = b.split_at(16);
        let head = ends_differ::<8>(a, b).unwrap_or(1);
        head | match a_rest.len() {
            8.. => ends_differ::<8>(a_rest, b_rest).unwrap_or(1),
            4.. => ends_differ::<4>(a_rest, b_rest).unwrap_or(1),
            _ => bytes_differ(a_rest, b_rest),
        }
    } else {
        match a.len() {
            8.. => ends_differ::<8>(a, b).unwrap_or(1),
            4.. => ends_differ::<4>(a, b).unwrap_or(1),
            _ => bytes_differ(a, b),
        }
    };
    differ == 0
}

/// Copies `from` to the front of `to`, as many bytes as fit: up to 32 by overlapping loads and stores,
/// without a call of `memcpy`.
#[inline(always)]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    /// Copies the first and the last `N` bytes of at most 2 `N`.
    #[inline(always)]
    fn ends<const N: usize>(from: &[u8], to: &mut [u8]) -> Option<()> {
        let (first, last) = (*from.first_chunk::<N>()?, *from.last_chunk::<N>()?);
        *to.first_chunk_mut()? = first;
        *to.last_chunk_mut()? = last;
        Some(())
    }
    let len = from.len().min(to.len());
    let (from, to) = (&from[..len], &mut to[..len]);
    let done = match len {
        0 => Some(()),
        1..=3 => {
            for (from, to) in from.iter().zip(&mut *to) {
                *to = *from;
            }
            Some(())
        }
        4..=8 => ends::<4>(from, to),
        9..=16 => ends::<8>(from, to),
        17..=32 => ends::<16>(from, to),
        _ => None,
    };
    if done.is_none() {
        to.copy_from_slice(from);
    }
}

/// The bits in which up to 3 bytes differ.
#[inline(always)]
fn bytes_differ(a: &[u8], b: &[u8]) -> u64 {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | u64::from(a ^ b))
}

#[cfg(test)]
mod tests {
    use super::{copy, short_eq};

    #[test]
    fn copy_takes_every_byte_and_no_other() {
        let from: [u8; 40] = core::array::from_fn(|i| i as u8 + 1);
        for len in 0..=40 {
            for room in 0..=40 {
                let mut to = [0; 42];
                copy(&from[..len], &mut to[1..=room]);
                let n = len.min(room);
                assert_eq!(to[1..=n], from[..n]);
                assert!(to[0] == 0 && to[n + 1..].iter().all(|byte| *byte == 0), "{len}, {room}");
            }
        }
    }

    #[test]
    fn short_eq_sees_every_byte() {
        for len in 0..=31 {
            let a: [u8; 31] = core::array::from_fn(|i| i as u8);
            assert!(short_eq(&a[..len], &a[..len]));
            for at in 0..len {
                let mut b = a;
                b[at] ^= 0x80;
                assert!(!short_eq(&a[..len], &b[..len]), "length {len}, byte {at}");
            }
            if len > 0 {
                assert!(!short_eq(&a[..len], &a[..len - 1]));
            }
        }
    }
}
