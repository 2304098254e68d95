//! The decisions about a table, and its partitions one by one.

use super::{
    Entry, KeyStats, LayoutChoice, PARTITION_BYTES, PARTITION_KEYS, PerfectShape, TableOptions,
    ValueChoice,
};
use super::{solve, term_order};
use crate::error::{Error, Result};
use crate::filter::{self, DEFAULT_FILTER_BITS, MAX_FILTER_BITS};
use crate::format::directory::Partition;
use crate::format::footer::{Footer, footer_len};
use crate::format::{
    self, MAX_EXCEPTIONS, MAX_FIXED_KEY_LEN, MAX_INLINE_KEY_LEN, MAX_KEY_LEN, MAX_PARTITION_KEYS,
    MAX_RECORD_BYTES, MAX_SLOTS, TAIL_LEN, checksum,
};
use crate::hash::{self, KeyHasher};
use crate::kernel::Kernel;
use crate::layout::perfect as perfect_layout;
use crate::layout::{Layout, copy, varint_len};
use crate::value::{Value, ValueFormat, ValueKind};

impl TableOptions {
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
    pub(super) layout: Layout,
    pub(super) value: ValueFormat,
    pub(super) filter_bits: u8,
    pub(super) hasher: KeyHasher,
    pub(super) partition_bits: u8,
    /// Length of all keys of an inline table, or of a perfect one without offset lines; otherwise 0.
    pub(super) key_len: u32,
    pub(super) records_per_line: u8,
    pub(super) unit: u8,
    pub(super) shape: PerfectShape,
}

/// A partition that was written: what the directory and the tail will say of it.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub(super) partition: Partition,
    pub(super) stats: KeyStats,
    /// Where the sections end.
    pub(super) ends: [u64; 4],
    pub(super) evictions: u64,
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

    /// Length of the directory: what an [`Assembler`](super::Assembler) needs.
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
    pub(super) fn slots(
        &self,
        homes: u32,
        entries: &[Entry<'_>],
    ) -> impl Iterator<Item = (u32, u32)> {
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
    pub(super) fn put_value(&self, entry: &Entry<'_>, record: &mut [u8]) -> Result<u64> {
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
                let (expected, found) = (MAX_EXCEPTIONS.into(), exceptions);
                return Err(Error::EqualHashes { expected, found });
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
    pub(super) const fn footer(&self) -> Footer {
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
            checksum: 0,
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
    /// [`sort`](super::sort()) does; `scratch` holds at least [`scratch_len`](Self::scratch_len) words. The kernel prefetches keys,
    /// which may lie far apart; the bytes are the same with every one.
    ///
    /// # Errors
    /// [`Error::Unsorted`], [`Error::DuplicateKey`] or [`Error::WrongPartition`] for entries that are
    /// not as said; [`Error::KeyLength`] or [`Error::ValueWidth`] for one that does not fit the plan;
    /// [`Error::TooLarge`] past the format's limits; [`Error::EqualHashes`];
    /// [`Error::Unsolvable`] for keys that no seed of the partition can place; [`Error::BufferTooSmall`] for
    /// the scratch, [`Error::PartitionBuffer`] for `out`.
    pub fn write_partition<K: Kernel>(
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
                filter::set(filter, entry.hash, partition.filter_words);
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
