//! The footer: the directory, and the tail that says what the table is.

use super::directory::{self, Directory, Offsets, Partition};
use super::{
    ALIGN, Check, DIRECTORY_ENTRY_LEN, Fields, HEAD_LEN, MAX_KEY_LEN, TAIL_LEN, TAIL_MAGIC,
    VERSION, align_up, bytes_at, checksum,
};
use crate::error::{Error, Result};
use crate::filter::{BITS_SET, MAX_FILTER_BITS};
use crate::hash::{KeyHasher, MAX_PARTITION_BITS};
use crate::layout::perfect::{self, Fixed, Spans, Stride};
use crate::layout::{Inline, Layout, TermOrder};
use crate::value::{ValueFormat, ValueKind};

/// Offsets of the tail's fields, as in FORMAT.md §5.
mod at {
    pub(super) const VERSION: usize = 0;
    pub(super) const LAYOUT: usize = 4;
    pub(super) const HASH: usize = 5;
    pub(super) const PARTITION_BITS: usize = 6;
    pub(super) const VALUE_KIND: usize = 7;
    pub(super) const VALUE_WIDTH: usize = 8;
    pub(super) const FILTER_BITS: usize = 9;
    pub(super) const FILTER_BITS_SET: usize = 10;
    pub(super) const RECORDS_PER_LINE: usize = 11;
    pub(super) const MIN_KEY_LEN: usize = 12;
    pub(super) const MAX_KEY_LEN: usize = 16;
    pub(super) const UNIT: usize = 20;
    pub(super) const RESERVED_24: usize = 21;
    pub(super) const SEED: usize = 24;
    pub(super) const HASH_CHECK: usize = 32;
    pub(super) const KEYS: usize = 40;
    pub(super) const SLOTS: usize = 48;
    pub(super) const KEY_BYTES: usize = 56;
    pub(super) const MAX_VALUE: usize = 64;
    pub(super) const FILE_LEN: usize = 72;
    pub(super) const DIRECTORY: usize = 80;
    pub(super) const EXCEPTIONS: usize = 88;
    pub(super) const RESERVED_END: usize = 96;
    pub(super) const CHECKSUM: usize = 112;
    pub(super) const MAGIC: usize = 120;
}

/// The facts of a table, parsed and checked. Small and free of lifetimes: who owns the bytes keeps
/// one beside them, for staged lookups ([`Lookup`](crate::Lookup)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    pub(crate) layout: Layout,
    pub(crate) value: ValueFormat,
    pub(crate) hasher: KeyHasher,
    pub(crate) partition_bits: u8,
    pub(crate) records_per_line: u8,
    pub(crate) unit: u8,
    pub(crate) filter_bits: u8,
    pub(crate) min_key_len: u32,
    pub(crate) max_key_len: u32,
    pub(crate) keys: u64,
    pub(crate) slots: u64,
    pub(crate) exceptions: u64,
    pub(crate) key_bytes: u64,
    pub(crate) max_value: u64,
    pub(crate) file_len: u64,
    pub(crate) checksum: u64,
    /// Offset of the directory: where the body ends.
    pub(crate) directory_at: u64,
    /// Whether every partition has slots.
    pub(crate) dense: bool,
    /// Perfect tables: bytes of pilots, over all partitions. Otherwise 0.
    pub(crate) pilots: u64,
}

impl Footer {
    /// The checksum over directory and tail. It covers those of all sections, so tables that share it are the same.
    #[inline]
    #[must_use]
    pub const fn checksum(&self) -> u64 {
        self.checksum
    }

    /// The layout.
    #[inline]
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Kind and width of the values.
    #[inline]
    #[must_use]
    pub const fn value(&self) -> ValueFormat {
        self.value
    }

    /// The hash and its seed.
    #[inline]
    #[must_use]
    pub const fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    /// The table has 2^`partition_bits` partitions.
    #[inline]
    #[must_use]
    pub const fn partition_bits(&self) -> u8 {
        self.partition_bits
    }

    /// Perfect tables of one key length: records in each line of 64 bytes; 0: back to back. Otherwise 0.
    #[inline]
    #[must_use]
    pub const fn records_per_line(&self) -> u8 {
        self.records_per_line
    }

    /// Perfect tables with offset lines: the unit of offsets in bytes, 1, 2, 4, 8 or 16. Otherwise 0.
    #[inline]
    #[must_use]
    pub const fn unit(&self) -> u8 {
        self.unit
    }

    /// Filter bits for each key; 0: no filter.
    #[inline]
    #[must_use]
    pub const fn filter_bits(&self) -> u8 {
        self.filter_bits
    }

    /// Length of the shortest key; 0 in an empty table.
    #[inline]
    #[must_use]
    pub const fn min_key_len(&self) -> u32 {
        self.min_key_len
    }

    /// Length of the longest key.
    #[inline]
    #[must_use]
    pub const fn max_key_len(&self) -> u32 {
        self.max_key_len
    }

    /// Number of keys.
    #[inline]
    #[must_use]
    pub const fn keys(&self) -> u64 {
        self.keys
    }

    /// Number of slots, over all partitions.
    #[inline]
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.slots
    }

    /// Perfect tables: number of exceptions, over all partitions. Otherwise 0.
    #[inline]
    #[must_use]
    pub const fn exceptions(&self) -> u64 {
        self.exceptions
    }

    /// Lengths of all keys together.
    #[inline]
    #[must_use]
    pub const fn key_bytes(&self) -> u64 {
        self.key_bytes
    }

    /// The largest value, if the values are integers; otherwise 0.
    #[inline]
    #[must_use]
    pub const fn max_value(&self) -> u64 {
        self.max_value
    }

    /// Length of the whole table in bytes.
    #[inline]
    #[must_use]
    pub const fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Number of partitions.
    #[must_use]
    pub const fn partitions(&self) -> u32 {
        1 << min(self.partition_bits)
    }

    /// Length of directory and tail together.
    #[must_use]
    pub const fn footer_len(&self) -> usize {
        footer_len(self.partition_bits)
    }

    /// Bytes of a record of a table whose keys have one length: value and key.
    #[inline(always)]
    pub(crate) const fn fixed_record_width(&self) -> u32 {
        self.value.width() as u32 + self.max_key_len
    }

    /// Whether a perfect table's records lie at offsets of their own, since their lengths differ.
    #[inline(always)]
    pub(crate) const fn has_offset_lines(&self) -> bool {
        self.unit != 0
    }

    /// Where the sections of a partition begin.
    #[inline(always)]
    pub(crate) const fn offsets(&self, partition: &Partition) -> Offsets {
        partition.offsets(self.layout, self.has_offset_lines())
    }

    /// Where the sections of a partition end, padding included.
    pub(crate) const fn section_ends(&self, partition: &Partition) -> [u64; 4] {
        let offsets = self.offsets(partition);
        let end = offsets.records.wrapping_add(align_up(partition.record_bytes));
        [offsets.index, offsets.pointers, offsets.records, end]
    }

    /// Offset and length in bytes of the sections of a partition, padding included, in the order of
    /// [`Layout::sections`].
    pub fn sections(
        &self,
        partition: &Partition,
    ) -> impl ExactSizeIterator<Item = (u64, u64)> + Clone + use<> {
        self.section_places(partition).into_iter()
    }

    pub(crate) const fn section_places(&self, partition: &Partition) -> [(u64, u64); 4] {
        let ends = self.section_ends(partition);
        [
            (partition.offset, ends[0].wrapping_sub(partition.offset)),
            (ends[0], ends[1].wrapping_sub(ends[0])),
            (ends[1], ends[2].wrapping_sub(ends[1])),
            (ends[2], ends[3].wrapping_sub(ends[2])),
        ]
    }

    /// How the records of a perfect table of one key length lie.
    pub(crate) const fn stride(&self) -> Stride {
        Stride::new(self.fixed_record_width(), self.records_per_line)
    }

    /// The records of a perfect table of one key length.
    pub(crate) const fn fixed(&self) -> Fixed {
        Fixed::new(self.value.width(), self.max_key_len, self.records_per_line)
    }

    /// The records of a perfect table with offset lines.
    #[inline(always)]
    pub(crate) const fn spans(&self) -> Spans {
        Spans::new(self.value.width(), self.max_key_len, self.unit)
    }

    /// The records of an inline table.
    #[inline(always)]
    pub(crate) const fn inline(&self) -> Inline {
        Inline::new(self.value.width(), self.max_key_len)
    }

    /// The records of a term-order table.
    #[inline(always)]
    pub(crate) const fn term_order(&self) -> TermOrder {
        TermOrder::new(self.value.width())
    }

    /// Parses and checks the footer of a table of `file_len` bytes. `end` holds the table's last
    /// bytes: all of the footer, or the whole table. O(partitions).
    ///
    /// # Errors
    /// See FORMAT.md §6 for what is refused. [`Error::TooShort`] with `expected` ≤ `file_len` says
    /// how many bytes of the end are needed, to a reader who does not hold the whole table: the tail
    /// first ([`TAIL_LEN`]), then all of the footer.
    pub fn parse(end: &[u8], file_len: u64) -> Result<Self> {
        let too_short = |expected: u64| Error::TooShort { found: end.len() as u64, expected };
        let least = (HEAD_LEN + TAIL_LEN) as u64;
        if file_len < least {
            return Err(Error::TooShort { found: file_len, expected: least });
        }
        if end.len() as u64 > file_len {
            return Err(Error::WrongLength { expected: file_len, found: end.len() as u64 });
        }
        let tail: &[u8; TAIL_LEN] = end.last_chunk().ok_or(too_short(TAIL_LEN as u64))?;
        let tail_at = file_len - TAIL_LEN as u64;
        let offset = |field: usize| tail_at + field as u64;

        let magic = *bytes_at::<8>(tail, at::MAGIC).unwrap_or(&[0; 8]);
        if magic != TAIL_MAGIC {
            return Err(Error::NoTail {
                offset: offset(at::MAGIC),
                expected: TAIL_MAGIC,
                found: magic,
            });
        }
        let fields = Fields::new(tail);
        let version = fields.u32(at::VERSION);
        if version != VERSION {
            return Err(Error::UnsupportedVersion {
                offset: offset(at::VERSION),
                expected: VERSION,
                found: version,
            });
        }
        let check = Check { from: tail_at };
        let footer = Self::sealed(end, file_len, &fields, check)?;
        // From here on the bytes are as somebody wrote them, who need not have been our writer.
        let parsed = Self::read(&fields, check)?;
        parsed.check_keys(check)?;
        parsed.check_shape(check)?;
        parsed.check_directory(&Directory::new(footer, parsed.partition_bits), check)
    }

    /// The footer's bytes, once their length and their checksum are right. The length comes first: it
    /// says which bytes the checksum covers.
    fn sealed<'b>(
        end: &'b [u8],
        file_len: u64,
        fields: &Fields<'_, TAIL_LEN>,
        check: Check,
    ) -> Result<&'b [u8]> {
        let bits = fields.u8(at::PARTITION_BITS);
        // Layouts may have fewer; that comes with the layout, behind the checksum.
        check.at_most(
            "partition bits",
            at::PARTITION_BITS as u64,
            MAX_PARTITION_BITS.into(),
            bits.into(),
        )?;
        check.equal("file length", at::FILE_LEN as u64, file_len, fields.u64(at::FILE_LEN))?;
        let footer_len = footer_len(bits);
        let least = HEAD_LEN + footer_len;
        let at = file_len.checked_sub(footer_len as u64).filter(|at| *at >= HEAD_LEN as u64);
        let Some(directory_at) = at else {
            return Err(Error::TooShort { found: file_len, expected: least as u64 });
        };
        let stored = fields.u64(at::DIRECTORY);
        check.equal("directory offset", at::DIRECTORY as u64, directory_at, stored)?;
        let footer = end
            .len()
            .checked_sub(footer_len)
            .and_then(|from| end.get(from..))
            .ok_or(Error::TooShort { found: end.len() as u64, expected: footer_len as u64 })?;
        let covered = footer.get(..footer_len - TAIL_LEN + at::CHECKSUM).unwrap_or_default();
        let (expected, found) = (fields.u64(at::CHECKSUM), checksum(covered));
        if expected != found {
            let offset = check.from + at::CHECKSUM as u64;
            return Err(Error::FooterChecksum { offset, expected, found });
        }
        Ok(footer)
    }

    /// The fields of a tail, as far as each can be checked alone.
    fn read(fields: &Fields<'_, TAIL_LEN>, check: Check) -> Result<Self> {
        let bad = |field, at: usize, expected, found: u8| {
            check.bad(field, at as u64, expected, found.into())
        };
        let partition_bits = fields.u8(at::PARTITION_BITS);
        let layout_id = fields.u8(at::LAYOUT);
        let greatest = Layout::Perfect.id().into();
        let layout = Layout::from_id(layout_id)
            .ok_or_else(|| bad("layout", at::LAYOUT, greatest, layout_id))?;
        let most = layout.max_partition_bits().into();
        let at_bits = at::PARTITION_BITS as u64;
        check.at_most("partition bits", at_bits, most, partition_bits.into())?;
        let (hash_id, seed) = (fields.u8(at::HASH), fields.u64(at::SEED));
        let hasher = KeyHasher::from_id(hash_id, seed)
            .map_err(|known| bad("hash", at::HASH, known.into(), hash_id))?;
        let (expected, found) = (hasher.check_value(), fields.u64(at::HASH_CHECK));
        check.equal("hash check", at::HASH_CHECK as u64, expected, found)?;
        let (kind, width) = (fields.u8(at::VALUE_KIND), fields.u8(at::VALUE_WIDTH));
        let value = match kind {
            0 => ValueFormat::integer(width)
                .map_err(|_| bad("value width", at::VALUE_WIDTH, 8, width))?,
            1 => ValueFormat::opaque(width)
                .map_err(|_| bad("value width", at::VALUE_WIDTH, 64, width))?,
            _ => return Err(bad("value kind", at::VALUE_KIND, 1, kind)),
        };
        let filter_bits = fields.u8(at::FILTER_BITS);
        let most = MAX_FILTER_BITS.into();
        check.at_most("filter bits", at::FILTER_BITS as u64, most, filter_bits.into())?;
        let bits_set = if filter_bits == 0 { 0 } else { BITS_SET };
        check.equal(
            "filter bits set",
            at::FILTER_BITS_SET as u64,
            bits_set.into(),
            fields.u8(at::FILTER_BITS_SET).into(),
        )?;
        let reserved = fields.get::<3>(at::RESERVED_24);
        check.equal("tail reserved", at::RESERVED_24 as u64, 0, reserved)?;
        for word in (at::RESERVED_END..at::CHECKSUM).step_by(8) {
            check.equal("tail reserved", word as u64, 0, fields.u64(word))?;
        }
        Ok(Self {
            layout,
            value,
            hasher,
            partition_bits,
            records_per_line: fields.u8(at::RECORDS_PER_LINE),
            unit: fields.u8(at::UNIT),
            filter_bits,
            min_key_len: fields.u32(at::MIN_KEY_LEN),
            max_key_len: fields.u32(at::MAX_KEY_LEN),
            keys: fields.u64(at::KEYS),
            slots: fields.u64(at::SLOTS),
            exceptions: fields.u64(at::EXCEPTIONS),
            key_bytes: fields.u64(at::KEY_BYTES),
            max_value: fields.u64(at::MAX_VALUE),
            file_len: fields.u64(at::FILE_LEN),
            checksum: fields.u64(at::CHECKSUM),
            directory_at: fields.u64(at::DIRECTORY),
            dense: false,
            pilots: 0,
        })
    }

    /// The lengths of the shortest and the longest key.
    fn check_keys(&self, check: Check) -> Result<()> {
        let (min_len, max_len) = (u64::from(self.min_key_len), u64::from(self.max_key_len));
        let longest = match self.layout {
            Layout::Inline => super::MAX_INLINE_KEY_LEN,
            Layout::Perfect if self.unit == 0 => super::MAX_FIXED_KEY_LEN,
            Layout::TermOrder | Layout::Perfect => MAX_KEY_LEN,
        };
        let most = if self.keys == 0 { 0 } else { longest.into() };
        check.at_most("longest key", at::MAX_KEY_LEN as u64, most, max_len)?;
        let one_length = match self.layout {
            Layout::Inline => true,
            Layout::Perfect => self.unit == 0,
            Layout::TermOrder => false,
        };
        let at = at::MIN_KEY_LEN as u64;
        if one_length {
            check.equal("shortest key", at, max_len, min_len)
        } else {
            check.at_most("shortest key", at, max_len, min_len)
        }
    }

    /// How records lie, and what keys and values add up to.
    fn check_shape(&self, check: Check) -> Result<()> {
        let (min_len, max_len) = (u64::from(self.min_key_len), u64::from(self.max_key_len));
        let (layout, width, unit) = (self.layout, self.value.width(), self.unit);
        let record = max_len + u64::from(width);
        let most_in_line = match layout {
            Layout::Perfect if unit == 0 && record > 0 => (ALIGN / record) as u8,
            _ => 0,
        };
        if self.records_per_line != 0 {
            check.equal(
                "records in a line",
                at::RECORDS_PER_LINE as u64,
                most_in_line.into(),
                self.records_per_line.into(),
            )?;
        }
        if unit != 0 {
            let least = match layout {
                Layout::Perfect => perfect::unit(width, min_len, max_len),
                Layout::Inline | Layout::TermOrder => None,
            };
            let at = at::UNIT as u64;
            match least {
                Some(least) if unit.is_power_of_two() && unit <= perfect::MAX_UNIT => {
                    check.at_least("offset unit", at, least.into(), unit.into())?;
                }
                _ => return Err(check.bad("offset unit", at, 0, unit.into())),
            }
        }
        if max_len == 0 {
            // Keys differ, so only one of them is empty.
            check.at_most("keys", at::KEYS as u64, 1, self.keys)?;
        }
        // Saturating: the count has not been checked yet, and 2^40 keys of 2^31 bytes would not fit.
        let (most, least) = (self.keys.saturating_mul(max_len), self.keys.saturating_mul(min_len));
        check.at_most("key bytes", at::KEY_BYTES as u64, most, self.key_bytes)?;
        check.at_least("key bytes", at::KEY_BYTES as u64, least, self.key_bytes)?;
        let largest = match self.value.kind() {
            ValueKind::Integer if self.keys > 0 => u64::MAX >> (64 - 8 * u32::from(width)),
            _ => 0,
        };
        check.at_most("largest value", at::MAX_VALUE as u64, largest, self.max_value)
    }

    /// The partitions lie one behind the other from head to directory, and add up to the totals.
    fn check_directory(self, directory: &Directory<'_>, check: Check) -> Result<Self> {
        let mut begins = HEAD_LEN as u64;
        let (mut keys, mut slots, mut exceptions) = (0u64, 0u64, 0u64);
        let (mut dense, mut pilots) = (true, 0);
        let cold_at = self.directory_at + u64::from(self.partitions()) * directory::HOT_LEN as u64;
        for p in 0..self.partitions() {
            let at_hot = self.directory_at + u64::from(p) * directory::HOT_LEN as u64;
            let at_cold = cold_at + u64::from(p) * directory::COLD_LEN as u64;
            let (entry, end) = directory::check(&self, directory, p, (at_hot, at_cold), begins)?;
            // `end` wraps in no table that could be stored, but its directory could say so.
            if end > self.directory_at || end < begins {
                return Err(Error::BadField {
                    field: "partition end",
                    offset: at_cold,
                    expected: self.directory_at,
                    found: end,
                });
            }
            begins = end;
            // At most 2^16 partitions of 2^31.
            keys += u64::from(entry.keys);
            slots += u64::from(entry.slots);
            exceptions += u64::from(entry.exceptions);
            dense &= entry.slots > 0;
            pilots += u64::from(entry.buckets);
        }
        check.equal("directory offset", at::DIRECTORY as u64, begins, self.directory_at)?;
        check.equal("keys", at::KEYS as u64, keys, self.keys)?;
        check.equal("slots", at::SLOTS as u64, slots, self.slots)?;
        check.equal("exceptions", at::EXCEPTIONS as u64, exceptions, self.exceptions)?;
        Ok(Self { dense, pilots, ..self })
    }

    /// The tail of a table whose directory is complete.
    pub(crate) fn encode_tail(&self, directory: &[u8]) -> ([u8; TAIL_LEN], u64) {
        use xxhash_rust::xxh3::Xxh3Default;
        let mut tail = [0; TAIL_LEN];
        let mut put = |at: usize, bytes: &[u8]| tail[at..at + bytes.len()].copy_from_slice(bytes);
        put(at::VERSION, &VERSION.to_le_bytes());
        put(at::LAYOUT, &[self.layout.id()]);
        put(at::HASH, &[self.hasher.id()]);
        put(at::PARTITION_BITS, &[self.partition_bits]);
        put(at::VALUE_KIND, &[self.value.kind_id()]);
        put(at::VALUE_WIDTH, &[self.value.width()]);
        put(at::FILTER_BITS, &[self.filter_bits]);
        put(at::FILTER_BITS_SET, &[if self.filter_bits == 0 { 0 } else { BITS_SET }]);
        put(at::RECORDS_PER_LINE, &[self.records_per_line]);
        put(at::UNIT, &[self.unit]);
        put(at::MIN_KEY_LEN, &self.min_key_len.to_le_bytes());
        put(at::MAX_KEY_LEN, &self.max_key_len.to_le_bytes());
        put(at::SEED, &self.hasher.seed().to_le_bytes());
        put(at::HASH_CHECK, &self.hasher.check_value().to_le_bytes());
        put(at::KEYS, &self.keys.to_le_bytes());
        put(at::SLOTS, &self.slots.to_le_bytes());
        put(at::EXCEPTIONS, &self.exceptions.to_le_bytes());
        put(at::KEY_BYTES, &self.key_bytes.to_le_bytes());
        put(at::MAX_VALUE, &self.max_value.to_le_bytes());
        put(at::FILE_LEN, &self.file_len.to_le_bytes());
        put(at::DIRECTORY, &self.directory_at.to_le_bytes());
        let mut sum = Xxh3Default::new();
        sum.update(directory);
        sum.update(&tail[..at::CHECKSUM]);
        let sum = sum.digest();
        tail[at::CHECKSUM..at::MAGIC].copy_from_slice(&sum.to_le_bytes());
        tail[at::MAGIC..].copy_from_slice(&TAIL_MAGIC);
        (tail, sum)
    }
}

/// At most [`MAX_PARTITION_BITS`], which the compiler does not know.
#[inline(always)]
const fn min(partition_bits: u8) -> u8 {
    if partition_bits < MAX_PARTITION_BITS { partition_bits } else { MAX_PARTITION_BITS }
}

/// Length of directory and tail for so many partition bits.
pub(crate) const fn footer_len(partition_bits: u8) -> usize {
    (DIRECTORY_ENTRY_LEN << min(partition_bits)) + TAIL_LEN
}
