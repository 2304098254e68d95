//! Inline: the record `value | key` lies at slot × (V + L).

use super::{Parsed, Records, split};
use crate::error::Result;
use crate::format::footer::Footer;
use crate::pipeline::Probe;

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
    fn record_at(self, probe: &Probe, slot: u32, _word: u64) -> Option<u64> {
        Some(probe.records_at.wrapping_add(u64::from(slot) * self.record_width() as u64))
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

/// Equality of keys of at most 31 bytes by two overlapping loads instead of a call of `memcmp`.
#[inline(always)]
fn short_eq(a: &[u8], b: &[u8]) -> bool {
    #[inline(always)]
    fn ends_eq<const N: usize>(a: &[u8], b: &[u8]) -> Option<bool> {
        // Bitwise `&`: both compares are cheaper than a branch between them.
        Some(
            (a.first_chunk::<N>()? == b.first_chunk()?)
                & (a.last_chunk::<N>()? == b.last_chunk()?),
        )
    }
    if a.len() != b.len() {
        return false;
    }
    ends_eq::<16>(a, b)
        .or_else(|| ends_eq::<8>(a, b))
        .or_else(|| ends_eq::<4>(a, b))
        .unwrap_or_else(|| a.iter().zip(b).all(|(a, b)| a == b))
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
