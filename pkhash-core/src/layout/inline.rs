//! Inline: the record `value | key` lies at slot × (V + L).

use super::{Parsed, Records, split};
use crate::error::Result;
use crate::format::footer::Footer;
use crate::pipeline::Place;

/// An inline table's record shape.
#[derive(Clone, Copy)]
pub(crate) struct Inline {
    value_width: usize,
    key_len: usize,
}

impl Inline {
    #[inline(always)]
    pub(crate) const fn new(footer: &Footer) -> Self {
        Self { value_width: footer.value.width() as usize, key_len: footer.max_key_len as usize }
    }

    #[inline(always)]
    const fn record_width(self) -> usize {
        self.value_width + self.key_len
    }
}

impl Records for Inline {
    const SLOT_WORDS: bool = false;

    #[inline(always)]
    fn takes(self, key: &[u8]) -> bool {
        key.len() == self.key_len
    }

    #[inline(always)]
    fn record_len(self, _key: &[u8]) -> usize {
        self.record_width()
    }

    #[inline(always)]
    fn record_at(self, place: &Place, _hash: u64, slot: u32, _word: u64) -> Option<u64> {
        Some(place.records_at.wrapping_add(u64::from(slot) * self.record_width() as u64))
    }

    #[inline(always)]
    fn value<'r>(self, record: &'r [u8], key: &[u8]) -> Option<&'r [u8]> {
        let (value, found) = split(record, self.value_width)?;
        short_eq(found, key).then_some(value)
    }

    #[inline(always)]
    fn parse(self, bytes: &[u8]) -> Result<Parsed<'_>, &'static str> {
        let parsed = || {
            let (value, rest) = split(bytes, self.value_width)?;
            let (key, _) = split(rest, self.key_len)?;
            Some(Parsed { value, key, len: self.record_width() })
        };
        parsed().ok_or("record runs past the body")
    }
}

/// Equality of keys of at most 31 bytes by overlapping loads of words. (Arrays compared by `==` became
/// calls of `memcmp` here: a quarter of the time of a batch.)
#[inline(always)]
fn short_eq(a: &[u8], b: &[u8]) -> bool {
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

/// The bits in which up to 3 bytes differ.
#[inline(always)]
fn bytes_differ(a: &[u8], b: &[u8]) -> u64 {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | u64::from(a ^ b))
}

#[cfg(test)]
mod tests {
    use super::short_eq;

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
