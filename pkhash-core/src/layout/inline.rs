//! Inline: the record `value | key` lies at slot × (V + L).

use super::{Parsed, Probed, Records, short_eq, split};
use crate::error::Result;

/// An inline table's record shape.
#[derive(Clone, Copy)]
pub(crate) struct Inline {
    value_width: usize,
    key_len: usize,
}

impl Inline {
    #[inline(always)]
    pub(crate) const fn new(value_width: u8, key_len: u32) -> Self {
        Self { value_width: value_width as usize, key_len: key_len as usize }
    }

    #[inline(always)]
    const fn record_width(self) -> usize {
        self.value_width + self.key_len
    }
}

impl Records for Inline {
    #[inline(always)]
    fn takes(self, key: &[u8]) -> bool {
        key.len() == self.key_len
    }

    #[inline(always)]
    fn record_len(self, _key: &[u8]) -> usize {
        self.record_width()
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

impl Probed for Inline {
    const SLOT_WORDS: bool = false;

    #[inline(always)]
    fn record_at(self, _hash: u64, slot: u32, _distance: u32, _word: u64) -> Option<u64> {
        Some(u64::from(slot) * self.record_width() as u64)
    }
}
