//! Values: borrowed bytes with typed readers.

use core::fmt;

use crate::error::{Error, Result};

/// The widest value in bytes.
pub const MAX_VALUE_WIDTH: u8 = 64;

/// How the bytes of a value are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueKind {
    /// An unsigned integer of 1…8 bytes, little-endian: a doc ID, a line number, an offset.
    Integer,
    /// 0…64 bytes that mean something to the caller alone. No bytes at all: the table is a set.
    Opaque,
}

/// Kind and width of a table's values. All values of a table have one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueFormat {
    kind: ValueKind,
    width: u8,
}

impl ValueFormat {
    /// Integers of `width` bytes, 1…8.
    ///
    /// # Errors
    /// [`Error::BadOption`] for any other width.
    pub const fn integer(width: u8) -> Result<Self> {
        if width == 0 || width > 8 {
            return Err(Error::BadOption {
                option: "value width of integers",
                least: 1,
                expected: 8,
                found: width as u64,
            });
        }
        Ok(Self { kind: ValueKind::Integer, width })
    }

    /// Opaque bytes, 0…64.
    ///
    /// # Errors
    /// [`Error::BadOption`] for a greater width.
    pub const fn opaque(width: u8) -> Result<Self> {
        if width > MAX_VALUE_WIDTH {
            return Err(Error::BadOption {
                option: "value width of opaque bytes",
                least: 0,
                expected: MAX_VALUE_WIDTH as u64,
                found: width as u64,
            });
        }
        Ok(Self { kind: ValueKind::Opaque, width })
    }

    /// The narrowest integers that hold `max`.
    #[must_use]
    pub const fn narrowest(max: u64) -> Self {
        let bits = 64 - max.leading_zeros();
        let width = if bits == 0 { 1 } else { bits.div_ceil(8) as u8 };
        Self { kind: ValueKind::Integer, width }
    }

    /// The kind.
    #[must_use]
    pub const fn kind(self) -> ValueKind {
        self.kind
    }

    /// The width in bytes.
    #[must_use]
    pub const fn width(self) -> u8 {
        self.width
    }

    /// Whether each value has a doc ID, perhaps one of more than 32 bits: all but those of no bytes. This and
    /// the next three say what a doc ID is: lookups ([`Value::doc_id`]), live docs, doc maps, in-set queries and
    /// companions go by them, whatever the kind of the values.
    #[must_use]
    pub const fn has_doc_ids(self) -> bool {
        self.doc_id_width() > 0
    }

    /// How many bytes at the front of a value are its doc ID, little-endian: all of up to 8, and of a wider
    /// value the first 4. (A versioned value has its version behind them.)
    #[must_use]
    pub const fn doc_id_width(self) -> u8 {
        doc_id_width(self.width as usize) as u8
    }

    /// Whether no doc ID is of more than 32 bits, so that [`Value::doc_id`] is never `None`.
    #[must_use]
    pub const fn has_short_doc_ids(self) -> bool {
        matches!(self.doc_id_width(), 1..=4)
    }

    /// The largest doc ID that a value has room for; 0 if values have none.
    #[must_use]
    pub const fn max_doc_id(self) -> u64 {
        match self.doc_id_width() {
            0 => 0,
            width => u64::MAX >> (64 - 8 * width as u32),
        }
    }

    pub(crate) const fn kind_id(self) -> u8 {
        match self.kind {
            ValueKind::Integer => 0,
            ValueKind::Opaque => 1,
        }
    }
}

/// Bytes of the doc ID of a value of so many bytes: see [`ValueFormat::doc_id_width`].
const fn doc_id_width(width: usize) -> usize {
    if width <= 8 { width } else { 4 }
}

/// A value found in a table: the table's own bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes, as many as the table's value width.
    #[inline]
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The value as a little-endian unsigned integer; `None` if it is wider than 8 bytes. A value of
    /// no bytes is 0.
    #[inline]
    #[must_use]
    pub fn as_u64(self) -> Option<u64> {
        // Overlapping loads, not a copy of so many bytes: that would be a call of `memcpy` for each
        // answer of a batch.
        let bytes = self.0;
        match (bytes.len(), bytes) {
            (0, _) => Some(0),
            (1..=3, [first, .., last]) => {
                let middle = bytes.len() / 2;
                let end = 8 * (bytes.len() - 1);
                let middle = u64::from(bytes[middle]) << (8 * middle);
                Some(u64::from(*first) | middle | u64::from(*last) << end)
            }
            (1..=3, _) => Some(bytes[0].into()),
            (4..=8, _) => {
                let (first, last) = (bytes.first_chunk()?, bytes.last_chunk()?);
                let end = 8 * (bytes.len() - 4);
                Some(
                    u64::from(u32::from_le_bytes(*first))
                        | u64::from(u32::from_le_bytes(*last)) << end,
                )
            }
            _ => None,
        }
    }

    /// The doc ID, if it fits 32 bits: see [`ValueFormat::doc_id_width`].
    #[inline]
    #[must_use]
    pub fn doc_id(self) -> Option<u32> {
        self.long_doc_id().and_then(|doc| u32::try_from(doc).ok())
    }

    /// The doc ID, however large: see [`ValueFormat::doc_id_width`]. `None`: the value has no bytes.
    #[inline]
    #[must_use]
    pub fn long_doc_id(self) -> Option<u64> {
        match self.as_u64() {
            Some(_) if self.0.is_empty() => None,
            Some(integer) => Some(integer),
            None => self.0.first_chunk().map(|bytes| u32::from_le_bytes(*bytes).into()),
        }
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_u64() {
            Some(integer) => write!(f, "Value({integer})"),
            None => write!(f, "Value({:02x?})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrowest_width_holds_the_value() {
        for (max, width) in [
            (0, 1),
            (1, 1),
            (255, 1),
            (256, 2),
            (65_535, 2),
            (65_536, 3),
            (u64::from(u32::MAX), 4),
            (u64::from(u32::MAX) + 1, 5),
            (u64::MAX, 8),
        ] {
            assert_eq!(ValueFormat::narrowest(max).width(), width, "{max}");
        }
    }

    #[test]
    fn integers_of_every_width() {
        let bytes = [0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6, 0xe7, 0xf8];
        for width in 0..=8 {
            let mut wide = [0; 8];
            wide[..width].copy_from_slice(&bytes[..width]);
            assert_eq!(Value(&bytes[..width]).as_u64(), Some(u64::from_le_bytes(wide)), "{width}");
        }
    }

    /// What the format says of its values' doc IDs holds for each of them, of either kind.
    #[test]
    fn one_rule_for_doc_ids() {
        for width in 0..=12u8 {
            let formats = [ValueFormat::integer(width), ValueFormat::opaque(width)];
            for format in formats.into_iter().flatten() {
                let bytes: [u8; 12] = core::array::from_fn(|i| if i == 3 { 0x83 } else { 0xf0 });
                let value = Value(&bytes[..usize::from(width)]);
                let doc_width = [0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 4, 4, 4][usize::from(width)];
                let mut wide = [0; 8];
                wide[..doc_width].copy_from_slice(&bytes[..doc_width]);
                let doc = u64::from_le_bytes(wide);
                assert_eq!(usize::from(format.doc_id_width()), doc_width, "{format:?}");
                assert_eq!(format.has_doc_ids(), width > 0, "{format:?}");
                assert_eq!(value.long_doc_id(), (width > 0).then_some(doc), "{format:?}");
                assert_eq!(value.doc_id().is_some(), format.has_short_doc_ids(), "{format:?}");
                assert!(doc <= format.max_doc_id(), "{format:?}");
                let ones = format.max_doc_id().count_ones();
                assert_eq!(ones as usize, 8 * doc_width, "{format:?}");
            }
        }
    }

    #[test]
    fn typed_readers() {
        assert_eq!(Value(&[]).as_u64(), Some(0));
        assert_eq!(Value(&[1, 2]).doc_id(), Some(0x201));
        assert_eq!(Value(&[0, 0, 0, 0, 1]).doc_id(), None);
        assert_eq!(Value(&[7, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]).doc_id(), Some(7));
        assert_eq!(Value(&[]).doc_id(), None);
        assert_eq!(Value(&[7; 9]).as_u64(), None);
        assert!(ValueFormat::integer(0).is_err());
        assert!(ValueFormat::integer(9).is_err());
        assert!(ValueFormat::opaque(65).is_err());
        assert!(ValueFormat::opaque(0).is_ok());
    }
}
