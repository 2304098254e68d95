//! Building a table into the caller's buffers: no allocator, and the same bytes whatever the machine.
//!
//! A table is built partition by partition:
//!
//! 1. count the keys ([`KeyStats`]) and let [`Options::plan`] choose layout, value width and
//!    partitions;
//! 2. give each partition its entries, sorted by [`sort`], and write it with
//!    [`Plan::write_partition`];
//! 3. report each partition to an [`Assembler`], which keeps the directory and makes the tail.
//!
//! Who has all keys in memory calls [`build`], which does all of it.
//!
//! ```
//! use pkhash_core::build::{self, Entry, Options};
//! use pkhash_core::{Scalar, Table};
//!
//! let options = Options::default();
//! let keys: [&[u8]; 3] = [b"B000000001", b"B000000002", b"B000000003"];
//! let values = [10u32.to_le_bytes(), 20u32.to_le_bytes(), 30u32.to_le_bytes()];
//! let mut entries = [Entry::default(); 3];
//! for (i, entry) in entries.iter_mut().enumerate() {
//!     *entry = options.entry(keys[i], &values[i]);
//! }
//! let (mut spare, mut scratch) = ([Entry::default(); 3], [0; build::scratch_len(3)]);
//! let mut out = [0; 1024];
//! let len = build::build(&options, &mut entries, &mut spare, &mut scratch, &mut out)?;
//! let table = Table::open(&out[..len])?;
//! assert_eq!(table.get(Scalar, b"B000000002")?.and_then(|v| v.doc_id()), Some(20));
//! # Ok::<(), pkhash_core::Error>(())
//! ```

mod inline;
mod perfect;
mod solve;
mod sort;
mod term_order;

pub use perfect::PerfectShape;
pub use sort::{sort, sort_by};

use crate::error::{Error, Result};
use crate::filter::{self, DEFAULT_FILTER_BITS, MAX_FILTER_BITS};
use crate::format::directory::{self, Partition};
use crate::format::footer::{Footer, footer_len};
use crate::format::{
    self, HEAD_LEN, MAX_EXCEPTIONS, MAX_FIXED_KEY_LEN, MAX_INLINE_KEY_LEN, MAX_KEY_LEN,
    MAX_PARTITION_KEYS, MAX_RECORD_BYTES, MAX_SLOTS, TAIL_LEN, checksum,
};
use crate::hash::{self, Hasher};
use crate::kernel::{Kernel, Scalar};
use crate::layout::perfect as perfect_layout;
use crate::layout::{Layout, copy, varint_len};
use crate::value::{Value, ValueFormat, ValueKind};
use crate::verify::set_in_filter;

/// Keys of a partition that [`Options::plan`] aims at: a partition of short keys is then built within
/// a processor's cache, and a merge of large tables needs little memory.
pub const PARTITION_KEYS: u64 = 1 << 17;

/// Bytes of keys and values of a partition that [`Options::plan`] aims at, so that the memory for
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
    /// one length are longer than [`MAX_FIXED_KEY_LEN`].
    #[default]
    Auto,
    /// This one; an error if the keys do not fit it.
    Fixed(Layout),
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

/// What a caller may choose about a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The layout.
    pub layout: LayoutChoice,
    /// The values.
    pub value: ValueChoice,
    /// Filter bits for each key, 0…64; 0: no filter. 10 admit about 1.7 % of absent keys. `None`: 10,
    /// but no filter for a perfect table, where a key that is absent costs one record anyway.
    pub filter_bits: Option<u8>,
    /// The hash and its seed. Tables that are searched or merged together share one.
    pub hasher: Hasher,
    /// 2^n partitions, n ≤ [`Layout::max_partition_bits`]; `None`: by the number and the length of the
    /// keys.
    pub partition_bits: Option<u8>,
    /// Perfect tables: lay records back to back, even where keeping each of them within a cache line
    /// would cost less than 8 % of room.
    pub packed: bool,
    /// Perfect tables: how many buckets and slots.
    pub shape: PerfectShape,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            layout: LayoutChoice::Auto,
            value: ValueChoice::Auto,
            filter_bits: None,
            hasher: Hasher::new(0),
            partition_bits: None,
            packed: false,
            shape: PerfectShape::default(),
        }
    }
}

/// What has to be known of all keys before the first partition can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

impl Options {
    /// An entry with the hash that these options ask for.
    #[must_use]
    pub fn entry<'k>(&self, key: &'k [u8], value: &'k [u8]) -> Entry<'k> {
        Entry { hash: self.hasher.hash(key), key, value }
    }

    /// Chooses layout, value width and partitions for keys that were counted. The counts may be too
    /// high (duplicates that will be dropped): that costs at most some bytes.
    ///
    /// # Errors
    /// [`Error::BadOption`] for an option out of range, [`Error::KeyLength`] for a key that is too
    /// long or does not fit the layout that was asked for, [`Error::ValueWidth`] for an integer that
    /// does not fit the width that was asked for.
    pub fn plan(&self, stats: &KeyStats) -> Result<Plan> {
        let at_most = |option, expected: u8, found: u8| {
            if found <= expected {
                Ok(())
            } else {
                let (expected, found) = (expected.into(), found.into());
                Err(Error::BadOption { option, least: 0, expected, found })
            }
        };
        at_most("filter bits", MAX_FILTER_BITS, self.filter_bits.unwrap_or(0))?;
        self.shape.check()?;
        if stats.max_key_len > u64::from(MAX_KEY_LEN) {
            return Err(Error::KeyLength {
                expected: MAX_KEY_LEN.into(),
                found: stats.max_key_len,
            });
        }
        let value = match self.value {
            ValueChoice::Auto => ValueFormat::narrowest(stats.max_value),
            ValueChoice::Fixed(value) => value,
        };
        if value.kind() == ValueKind::Integer {
            let needed = ValueFormat::narrowest(stats.max_value).width();
            if needed > value.width() {
                return Err(Error::ValueWidth {
                    expected: value.width().into(),
                    found: needed.into(),
                });
            }
        }
        let one_length = stats.min_key_len == stats.max_key_len;
        let unit = perfect_layout::unit(value.width(), stats.min_key_len, stats.max_key_len);
        // The longest keys of one length, and of several, that a perfect table takes.
        let fits_perfect =
            if one_length { stats.max_key_len <= MAX_FIXED_KEY_LEN.into() } else { unit.is_some() };
        let short = stats.max_key_len <= MAX_INLINE_KEY_LEN.into();
        let too_long = |expected: u64| Error::KeyLength { expected, found: stats.max_key_len };
        let layout = match self.layout {
            LayoutChoice::Auto if fits_perfect => Layout::Perfect,
            LayoutChoice::Auto => Layout::TermOrder,
            LayoutChoice::Fixed(Layout::Inline) if !short => {
                return Err(too_long(MAX_INLINE_KEY_LEN.into()));
            }
            LayoutChoice::Fixed(Layout::Inline) if !one_length => {
                return Err(too_long(stats.min_key_len));
            }
            LayoutChoice::Fixed(Layout::Perfect) if !fits_perfect => {
                return Err(too_long(if one_length {
                    MAX_FIXED_KEY_LEN.into()
                } else {
                    perfect_layout::longest_key(value.width())
                }));
            }
            LayoutChoice::Fixed(layout) => layout,
        };
        let bytes = stats.keys.saturating_mul(value.width().into()).saturating_add(stats.key_bytes);
        let most = layout.max_partition_bits();
        let partition_bits = match self.partition_bits {
            Some(bits) => bits,
            None => (0..most)
                .find(|bits| {
                    stats.keys >> bits <= PARTITION_KEYS && bytes >> bits <= PARTITION_BYTES
                })
                .unwrap_or(most),
        };
        at_most("partition bits", most, partition_bits)?;
        let fixed = layout == Layout::Inline || (layout == Layout::Perfect && one_length);
        let key_len = if fixed { stats.max_key_len as u32 } else { 0 };
        let width = u64::from(value.width()) + u64::from(key_len);
        Ok(Plan {
            layout,
            value,
            filter_bits: self.filter_bits.unwrap_or(match layout {
                Layout::Inline | Layout::TermOrder => DEFAULT_FILTER_BITS,
                Layout::Perfect => 0,
            }),
            hasher: self.hasher,
            partition_bits,
            key_len,
            records_per_line: match layout {
                Layout::Perfect if one_length && !self.packed => {
                    perfect_layout::records_per_line(width)
                }
                _ => 0,
            },
            unit: match (layout, unit) {
                (Layout::Perfect, Some(unit)) if !one_length => unit,
                _ => 0,
            },
            shape: self.shape,
        })
    }
}

/// The decisions about a table that is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    layout: Layout,
    value: ValueFormat,
    filter_bits: u8,
    hasher: Hasher,
    partition_bits: u8,
    /// Length of all keys of an inline table, or of a perfect one without offset lines; otherwise 0.
    key_len: u32,
    records_per_line: u8,
    unit: u8,
    shape: PerfectShape,
}

/// A partition that was written: what the directory and the tail will say of it.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    partition: Partition,
    stats: KeyStats,
    /// Where the sections end.
    ends: [u64; 4],
    evictions: u64,
}

/// How much a partition will take, found before it is written.
struct Measured {
    partition: Partition,
    stats: KeyStats,
    /// Where the sections end, padding included; the last is the length of the partition.
    ends: [u64; 4],
    len: usize,
}

impl Plan {
    /// The layout.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Kind and width of the values.
    #[must_use]
    pub const fn value(&self) -> ValueFormat {
        self.value
    }

    /// The partition bits.
    #[must_use]
    pub const fn partition_bits(&self) -> u8 {
        self.partition_bits
    }

    /// Number of partitions.
    #[must_use]
    pub const fn partitions(&self) -> u32 {
        1 << self.partition_bits
    }

    /// The partition of a hash.
    #[must_use]
    pub const fn partition_of(&self, hash: u64) -> u32 {
        hash::partition(hash, self.partition_bits)
    }

    /// Length of the directory: what an [`Assembler`] needs.
    #[must_use]
    pub const fn directory_len(&self) -> usize {
        footer_len(self.partition_bits) - TAIL_LEN
    }

    /// Words of scratch that a partition of so many keys needs.
    #[must_use]
    pub const fn scratch_len(&self, keys: usize) -> usize {
        match self.layout {
            Layout::Inline => 0,
            Layout::TermOrder => term_order::scratch_len(keys),
            Layout::Perfect => {
                let (buckets, slots) =
                    (self.shape.buckets(keys as u64), self.shape.slots(keys as u64));
                // More than a machine's memory for keys that no partition may have.
                solve::scratch_len(keys, buckets as usize, slots as usize)
            }
        }
    }

    /// The bytes of a value that the table keeps.
    #[inline(always)]
    fn kept<'k>(&self, value: &'k [u8]) -> Result<&'k [u8]> {
        let width = usize::from(self.value.width());
        let wrong = |found: usize| {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            Error::ValueWidth { expected: width as u32, found }
        };
        let (kept, rest) = value.split_at_checked(width).ok_or_else(|| wrong(value.len()))?;
        match self.value.kind() {
            ValueKind::Opaque if !rest.is_empty() => Err(wrong(value.len())),
            _ => match rest.iter().rposition(|byte| *byte != 0) {
                Some(last) => Err(wrong(width + last + 1)),
                None => Ok(kept),
            },
        }
    }

    /// The slots of sorted entries, in order: the first free slot from each home on.
    #[inline(always)]
    fn slots(&self, homes: u32, entries: &[Entry<'_>]) -> impl Iterator<Item = (u32, u32)> {
        let bits = self.partition_bits;
        let mut free = 0;
        entries.iter().map(move |entry| {
            let home = hash::home(entry.hash, bits, homes);
            let slot = home.max(free);
            // At most homes + keys: no overflow, since `measure` bounds the keys.
            free = slot + 1;
            (home, slot)
        })
    }

    /// Writes the bytes of an entry's value that the table keeps to the front of a record, and returns
    /// them as an integer.
    #[inline(always)]
    fn put_value(&self, entry: &Entry<'_>, record: &mut [u8]) -> Result<u64> {
        let value = self.kept(entry.value)?;
        let out = record.get_mut(..value.len()).unwrap_or_default();
        copy(value, out);
        match self.value.kind() {
            ValueKind::Integer => Ok(Value::new(out).as_u64().unwrap_or(0)),
            ValueKind::Opaque => Ok(0),
        }
    }

    /// Checks a partition's entries and finds out how large it will be. Reads no key but those of equal
    /// hashes, and no value.
    fn measure(&self, p: u32, entries: &[Entry<'_>]) -> Result<Measured> {
        let too_large = |what, expected: u64, found: u64| Error::TooLarge { what, expected, found };
        let most = MAX_PARTITION_KEYS;
        let keys = u32::try_from(entries.len())
            .ok()
            .filter(|keys| *keys <= most)
            .ok_or(too_large("keys", most.into(), entries.len() as u64))?;
        let (shortest, longest) = match self.layout {
            Layout::Inline => (u64::from(self.key_len), u64::from(self.key_len)),
            Layout::Perfect if self.unit == 0 => (u64::from(self.key_len), u64::from(self.key_len)),
            // A record of no bytes would look like an empty slot.
            Layout::Perfect => {
                let least = self.unit == 1 && self.value.width() == 0;
                (u64::from(least), self.longest_span())
            }
            Layout::TermOrder => (0, u64::from(MAX_KEY_LEN)),
        };
        let mut stats = KeyStats::default();
        // Values and keys of a term-order or perfect partition, with what lies between them.
        let mut record_bytes = 0u64;
        let mut exceptions = 0u64;
        let mut before: Option<&Entry<'_>> = None;
        let value_width = self.value.width();
        for (index, entry) in entries.iter().enumerate() {
            let found = self.partition_of(entry.hash);
            if found != p {
                return Err(Error::WrongPartition { index, expected: p, found });
            }
            if let Some(before) = before
                && before.hash >= entry.hash
            {
                match (before.hash, before.key).cmp(&(entry.hash, entry.key)) {
                    core::cmp::Ordering::Less => exceptions += 1,
                    core::cmp::Ordering::Equal => return Err(Error::DuplicateKey { index }),
                    core::cmp::Ordering::Greater => return Err(Error::Unsorted { index }),
                }
            }
            before = Some(entry);
            let len = entry.key.len() as u64;
            if len < shortest || len > longest {
                let expected = if len < shortest { shortest } else { longest };
                return Err(Error::KeyLength { expected, found: len });
            }
            self.kept(entry.value)?;
            // A key is shorter than 2^31 bytes and there are fewer than 2^31: far from overflow.
            record_bytes += match self.layout {
                Layout::TermOrder => u64::from(value_width) + varint_len(len as u32) as u64 + len,
                _ => perfect_layout::span(value_width, len, self.unit),
            };
            stats.add(entry.key, &[]);
        }
        let mut partition = Partition {
            keys,
            filter_words: filter::words(keys, self.filter_bits)?,
            record_bytes,
            ..Partition::default()
        };
        let width = u32::from(value_width) + self.key_len;
        let most_slots = u64::from(MAX_SLOTS);
        if self.layout == Layout::Perfect {
            if exceptions > MAX_EXCEPTIONS.into() {
                return Err(too_large("keys of one hash", MAX_EXCEPTIONS.into(), exceptions));
            }
            let placed = u64::from(keys) - exceptions;
            let (buckets, slots) = (self.shape.buckets(placed), self.shape.slots(placed));
            if slots > most_slots {
                return Err(too_large("slots", most_slots, slots));
            }
            partition.buckets = buckets as u32;
            partition.slots = slots as u32;
            partition.exceptions = exceptions as u16;
            if self.unit == 0 {
                let stride = perfect_layout::Stride::new(width, self.records_per_line);
                partition.record_bytes = stride.bytes(partition.all_slots());
            } else if record_bytes > MAX_RECORD_BYTES * u64::from(self.unit) {
                let most = MAX_RECORD_BYTES * u64::from(self.unit);
                return Err(too_large("record bytes", most, record_bytes));
            }
        } else {
            partition.homes = format::homes(keys);
            partition.slots = partition.homes;
            for (home, slot) in self.slots(partition.homes, entries) {
                partition.slots = partition.slots.max(slot + 1);
                partition.probe_limit = partition.probe_limit.max(slot - home + 1);
            }
            if partition.slots > MAX_SLOTS {
                return Err(too_large("slots", most_slots, partition.slots.into()));
            }
            if self.layout == Layout::Inline {
                partition.record_bytes = u64::from(partition.slots) * u64::from(width);
            } else if record_bytes > MAX_RECORD_BYTES {
                return Err(too_large("record bytes", MAX_RECORD_BYTES, record_bytes));
            }
        }
        let ends = self.footer().section_ends(&partition);
        let end = ends[3];
        let len = usize::try_from(end).map_err(|_| too_large("bytes", usize::MAX as u64, end))?;
        Ok(Measured { partition, stats, ends, len })
    }

    /// The longest key that offset lines of this unit hold.
    const fn longest_span(&self) -> u64 {
        perfect_layout::longest_key_of(self.value.width(), self.unit)
    }

    /// A footer with what the plan says.
    const fn footer(&self) -> Footer {
        Footer {
            layout: self.layout,
            value: self.value,
            hasher: self.hasher,
            partition_bits: self.partition_bits,
            records_per_line: self.records_per_line,
            unit: self.unit,
            filter_bits: self.filter_bits,
            min_key_len: 0,
            max_key_len: 0,
            keys: 0,
            slots: 0,
            exceptions: 0,
            key_bytes: 0,
            max_value: 0,
            file_len: 0,
            directory_at: 0,
            dense: false,
            pilots: 0,
        }
    }

    /// Length in bytes of partition `p` with these entries, padding included.
    ///
    /// # Errors
    /// As [`write_partition`](Self::write_partition).
    pub fn partition_len(&self, p: u32, entries: &[Entry<'_>]) -> Result<usize> {
        Ok(self.measure(p, entries)?.len)
    }

    /// Writes partition `p` to the front of `out`: as many bytes as
    /// [`partition_len`](Self::partition_len) says. The entries are all of the partition's, sorted as
    /// [`sort`] does; `scratch` holds at least [`scratch_len`](Self::scratch_len) words.
    ///
    /// # Errors
    /// [`Error::Unsorted`], [`Error::DuplicateKey`] or [`Error::WrongPartition`] for entries that are
    /// not as said; [`Error::KeyLength`] or [`Error::ValueWidth`] for one that does not fit the plan;
    /// [`Error::TooLarge`] past the format's limits, too many keys of one hash among them;
    /// [`Error::Unsolvable`] for keys that no seed of the partition can place; [`Error::BufferTooSmall`] for
    /// the scratch, [`Error::PartitionBuffer`] for `out`.
    pub fn write_partition(
        &self,
        p: u32,
        entries: &[Entry<'_>],
        scratch: &mut [u64],
        out: &mut [u8],
    ) -> Result<Written> {
        self.write_partition_with(Scalar, p, entries, scratch, out)
    }

    /// [`write_partition`](Self::write_partition), which prefetches keys with a kernel's help: for entries
    /// whose keys lie far apart.
    ///
    /// # Errors
    /// As [`write_partition`](Self::write_partition).
    pub fn write_partition_with<K: Kernel>(
        &self,
        kernel: K,
        p: u32,
        entries: &[Entry<'_>],
        scratch: &mut [u64],
        out: &mut [u8],
    ) -> Result<Written> {
        let Measured { mut partition, mut stats, ends, len } = self.measure(p, entries)?;
        let found = out.len();
        let out = out.get_mut(..len).ok_or(Error::PartitionBuffer { needed: len, found })?;
        out.fill(0);
        // Section ends are at most `len`, which is a usize.
        let (head, records) = out.split_at_mut(ends[2] as usize);
        let (head, pointers) = head.split_at_mut(ends[1] as usize);
        let (filter, index) = head.split_at_mut(ends[0] as usize);

        if partition.filter_words > 0 {
            for entry in entries {
                set_in_filter(filter, entry.hash, partition.filter_words);
            }
        }
        if self.layout != Layout::Perfect {
            for (entry, (_, slot)) in entries.iter().zip(self.slots(partition.homes, entries)) {
                index[slot as usize] = hash::control(entry.hash);
            }
        }
        let mut evictions = 0;
        stats.max_value = match self.layout {
            Layout::Inline => self.write_inline(&partition, entries, records)?,
            Layout::TermOrder => {
                self.write_term_order(&partition, entries, scratch, pointers, records)?
            }
            Layout::Perfect => {
                let out = (&mut *index, &mut *pointers, &mut *records);
                let (largest, taken_out) =
                    self.write_perfect(kernel, &mut partition, entries, scratch, out)?;
                evictions = taken_out;
                largest
            }
        };
        for (sum, section) in
            partition.checksums.iter_mut().zip([&*filter, index, pointers, records])
        {
            *sum = if section.is_empty() { 0 } else { checksum(section) };
        }
        Ok(Written { partition, stats, ends, evictions })
    }
}

impl Written {
    /// Length in bytes, padding included.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.ends[3]
    }

    /// What the directory will say of the partition; its offset is not known yet.
    #[must_use]
    pub const fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Perfect: buckets that had to make room for others and were placed anew.
    #[must_use]
    pub const fn evictions(&self) -> u64 {
        self.evictions
    }
}

/// Keeps the directory while partitions are written one after the other, and makes the tail.
///
/// A table is [`head`](crate::format::head), the partitions in order, the directory, the tail.
#[derive(Debug)]
pub struct Assembler<'b> {
    plan: Plan,
    directory: &'b mut [u8],
    next: u32,
    at: u64,
    slots: u64,
    exceptions: u64,
    dense: bool,
    pilots: u64,
    stats: KeyStats,
}

impl<'b> Assembler<'b> {
    /// Begins a table. `directory` holds [`Plan::directory_len`] bytes.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn new(plan: &Plan, directory: &'b mut [u8]) -> Result<Self> {
        let (expected, found) = (plan.directory_len(), directory.len());
        let directory = directory.get_mut(..expected).ok_or(Error::BufferTooSmall {
            what: "buffer for the directory",
            expected,
            found,
        })?;
        Ok(Self {
            plan: *plan,
            directory,
            next: 0,
            at: HEAD_LEN as u64,
            slots: 0,
            exceptions: 0,
            dense: true,
            pilots: 0,
            stats: KeyStats::default(),
        })
    }

    /// Notes the next partition: they are written in order, and none is left out, even if empty.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if all have been noted.
    pub fn push(&mut self, written: &Written) -> Result<()> {
        let Written { mut partition, stats, .. } = *written;
        let p = self.next as usize;
        let partitions = u64::from(self.plan.partitions());
        if u64::from(self.next) >= partitions {
            return Err(Error::TooLarge {
                what: "partitions",
                expected: partitions,
                found: u64::from(self.next) + 1,
            });
        }
        partition.offset = self.at;
        let hot = p * directory::HOT_LEN;
        let cold = (partitions as usize) * directory::HOT_LEN + p * directory::COLD_LEN;
        self.directory[hot..hot + directory::HOT_LEN]
            .copy_from_slice(&partition.encode_hot(&self.plan.footer()));
        self.directory[cold..cold + directory::COLD_LEN].copy_from_slice(&partition.encode_cold());
        self.next += 1;
        // 2^16 partitions of less than 2^48 bytes.
        self.at += written.bytes();
        self.slots += u64::from(partition.slots);
        self.exceptions += u64::from(partition.exceptions);
        self.dense &= partition.slots > 0;
        self.pilots += u64::from(partition.buckets);
        self.stats.merge(&stats);
        Ok(())
    }

    /// Facts, directory and tail, once every partition has been noted. Directory and tail come last in
    /// the file, in this order.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if partitions are missing.
    pub fn finish(self) -> Result<(Footer, &'b [u8], [u8; TAIL_LEN])> {
        let partitions = self.plan.partitions();
        if self.next != partitions {
            return Err(Error::BufferTooSmall {
                what: "number of partitions",
                expected: partitions as usize,
                found: self.next as usize,
            });
        }
        // Key lengths were checked against MAX_KEY_LEN.
        let footer = Footer {
            min_key_len: self.stats.min_key_len as u32,
            max_key_len: self.stats.max_key_len as u32,
            keys: self.stats.keys,
            slots: self.slots,
            exceptions: self.exceptions,
            dense: self.dense,
            pilots: self.pilots,
            key_bytes: self.stats.key_bytes,
            max_value: self.stats.max_value,
            file_len: self.at + footer_len(self.plan.partition_bits) as u64,
            directory_at: self.at,
            records_per_line: if self.stats.keys == 0 { 0 } else { self.plan.records_per_line },
            ..self.plan.footer()
        };
        let tail = footer.encode_tail(self.directory);
        Ok((footer, self.directory, tail))
    }
}

/// Splits entries sorted by hash into those of each partition.
fn by_partition<'e, 'k>(
    plan: &Plan,
    mut entries: &'e [Entry<'k>],
) -> impl Iterator<Item = (u32, &'e [Entry<'k>])> {
    (0..plan.partitions()).map(move |p| {
        let end = entries.partition_point(|entry| plan.partition_of(entry.hash) <= p);
        let (mine, rest) = entries.split_at(end);
        entries = rest;
        (p, mine)
    })
}

/// Length of the table that [`build`] makes of these entries, once they are sorted.
///
/// # Errors
/// As [`build`].
pub fn table_len(options: &Options, sorted: &[Entry<'_>]) -> Result<usize> {
    let plan = plan_of(options, sorted)?;
    let mut len = HEAD_LEN as u64 + footer_len(plan.partition_bits) as u64;
    for (p, entries) in by_partition(&plan, sorted) {
        len += plan.partition_len(p, entries)? as u64;
    }
    usize::try_from(len).map_err(|_| Error::TooLarge {
        what: "bytes",
        expected: usize::MAX as u64,
        found: len,
    })
}

fn plan_of(options: &Options, entries: &[Entry<'_>]) -> Result<Plan> {
    let opaque = matches!(options.value, ValueChoice::Fixed(v) if v.kind() == ValueKind::Opaque);
    let mut stats = KeyStats::default();
    for entry in entries {
        stats.add(entry.key, if opaque { &[] } else { entry.value });
    }
    options.plan(&stats)
}

/// Words of scratch with which a table of so many keys can be built, whatever its layout, in the default
/// shape. [`Plan::scratch_len`] of the largest partition is less.
#[must_use]
pub const fn scratch_len(keys: usize) -> usize {
    // 3 words for each key of a term-order partition; for each of a perfect one 8 bytes for its hash, 4
    // for its entry and 4 for its slot, and 12 for each bucket of 2.5.
    3 * keys + 4
}

/// Builds a whole table into `out` and returns its length. Sorts the entries, for which `spare` holds as
/// many as there are; `scratch` holds [`scratch_len`] words, or what the largest partition needs.
///
/// # Errors
/// As [`Options::plan`] and [`Plan::write_partition`]; [`Error::BufferTooSmall`] names what is needed.
pub fn build<'k>(
    options: &Options,
    entries: &mut [Entry<'k>],
    spare: &mut [Entry<'k>],
    scratch: &mut [u64],
    out: &mut [u8],
) -> Result<usize> {
    let plan = plan_of(options, entries)?;
    sort(entries, spare)?;
    let expected = table_len(options, entries)?;
    let found = out.len();
    let out = out.get_mut(..expected).ok_or(Error::BufferTooSmall {
        what: "buffer for the table",
        expected,
        found,
    })?;
    let (body, footer) = out.split_at_mut(expected - footer_len(plan.partition_bits));
    let (directory, tail_out) = footer.split_at_mut(plan.directory_len());
    let mut assembler = Assembler::new(&plan, directory)?;
    let (head, mut body) = body.split_at_mut(HEAD_LEN);
    head.copy_from_slice(&format::head());
    for (p, entries) in by_partition(&plan, entries) {
        let written = plan.write_partition(p, entries, scratch, body)?;
        assembler.push(&written)?;
        body = core::mem::take(&mut body).get_mut(written.bytes() as usize..).unwrap_or_default();
    }
    let (_, _, tail) = assembler.finish()?;
    tail_out.copy_from_slice(&tail);
    Ok(expected)
}
