//! What a table is to be, and what its keys are.

use super::PerfectShape;
use crate::format::footer::Footer;
use crate::hash::KeyHasher;
use crate::layout::Layout;
use crate::value::{Value, ValueFormat};

/// Keys of a partition that [`TableOptions::plan`] aims at: a partition of short keys is then built within
/// a processor's cache, and a merge of large tables needs little memory.
pub const PARTITION_KEYS: u64 = 1 << 17;

/// Bytes of keys and values of a partition that [`TableOptions::plan`] aims at, so that the memory for
/// one partition stays bounded with long keys too.
pub const PARTITION_BYTES: u64 = 8 << 20;

/// A key, its hash and its value, on the way into a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry<'k> {
    /// The hash of the key by the table's hasher.
    pub hash: u64,
    /// The key.
    pub key: &'k [u8],
    /// The value. An integer's little-endian bytes may be more than the table keeps, if those beyond
    /// are 0; opaque values have just the table's width.
    pub value: &'k [u8],
}

/// Which layout a table is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LayoutChoice {
    /// Perfect, or term-order if keys of different lengths are too long for offset lines, or keys of
    /// one length are longer than [`MAX_FIXED_KEY_LEN`](crate::format::MAX_FIXED_KEY_LEN).
    #[default]
    Auto,
    /// This one; an error if the keys do not fit it.
    Fixed(Layout),
}

impl From<Layout> for LayoutChoice {
    fn from(layout: Layout) -> Self {
        Self::Fixed(layout)
    }
}

/// Kind and width that a table's values are to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ValueChoice {
    /// Integers of as many bytes as the largest one needs.
    #[default]
    Auto,
    /// Just these.
    Fixed(ValueFormat),
}

impl From<ValueFormat> for ValueChoice {
    fn from(value: ValueFormat) -> Self {
        Self::Fixed(value)
    }
}

/// What a caller may choose about a table.
///
/// ```
/// use pkhash_core::builder::TableOptions;
/// use pkhash_core::{Layout, ValueFormat};
/// let options = TableOptions::default().layout(Layout::Inline).value(ValueFormat::integer(4)?).filter_bits(10);
/// # Ok::<(), pkhash_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableOptions {
    /// The layout.
    pub layout: LayoutChoice,
    /// The values.
    pub value: ValueChoice,
    /// Filter bits for each key, 0…64; 0: no filter. 10 admit about 1.7 % of absent keys. `None`: 10,
    /// but no filter for a perfect table, where a key that is absent costs one record anyway.
    pub filter_bits: Option<u8>,
    /// The hash and its seed. Tables that are searched or merged together share one.
    pub hasher: KeyHasher,
    /// 2^n partitions, n ≤ [`Layout::max_partition_bits`]; `None`: by the number and the length of the
    /// keys.
    pub partition_bits: Option<u8>,
    /// Perfect tables: lay records back to back, even where keeping each of them within a cache line
    /// would cost less than 8 % of room.
    pub packed: bool,
    /// Perfect tables: how many buckets and slots.
    pub shape: PerfectShape,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            layout: LayoutChoice::Auto,
            value: ValueChoice::Auto,
            filter_bits: None,
            hasher: KeyHasher::new(0),
            partition_bits: None,
            packed: false,
            shape: PerfectShape::default(),
        }
    }
}

setters!(TableOptions {
    layout: impl Into<LayoutChoice>,
    value: impl Into<ValueChoice>,
    filter_bits: impl Into<Option<u8>>,
    hasher: KeyHasher,
    partition_bits: impl Into<Option<u8>>,
    packed: bool,
    shape: PerfectShape,
});

/// What has to be known of all keys before the first partition can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyStats {
    /// Number of keys.
    pub keys: u64,
    /// Their lengths together.
    pub key_bytes: u64,
    /// Length of the shortest; 0 without keys.
    pub min_key_len: u64,
    /// Length of the longest.
    pub max_key_len: u64,
    /// The largest value read as an integer; 0 for values wider than 8 bytes.
    pub max_value: u64,
}

impl KeyStats {
    /// Adds one key.
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let len = key.len() as u64;
        let value = Value::new(value).as_u64().unwrap_or(0);
        self.merge(&Self {
            keys: 1,
            key_bytes: len,
            min_key_len: len,
            max_key_len: len,
            max_value: value,
        });
    }

    /// Adds all that `other` counted.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        self.min_key_len = match (self.keys, other.keys) {
            (0, _) => other.min_key_len,
            (_, 0) => self.min_key_len,
            _ => self.min_key_len.min(other.min_key_len),
        };
        self.keys = self.keys.saturating_add(other.keys);
        self.key_bytes = self.key_bytes.saturating_add(other.key_bytes);
        self.max_key_len = self.max_key_len.max(other.max_key_len);
        self.max_value = self.max_value.max(other.max_value);
    }

    /// What the footer of a table says of its keys.
    #[must_use]
    pub const fn of(footer: &Footer) -> Self {
        Self {
            keys: footer.keys,
            key_bytes: footer.key_bytes,
            min_key_len: footer.min_key_len as u64,
            max_key_len: footer.max_key_len as u64,
            max_value: footer.max_value,
        }
    }
}

impl TableOptions {
    /// An entry with the hash that these options ask for.
    #[must_use]
    pub fn entry<'k>(&self, key: &'k [u8], value: &'k [u8]) -> Entry<'k> {
        Entry { hash: self.hasher.hash(key), key, value }
    }
}
