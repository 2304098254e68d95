//! The directory: where each partition lies and how large its parts are.
//!
//! It is kept as two arrays: what a lookup reads (32 bytes for each partition, so that 1,024
//! partitions take 32 KiB of cache), then what only `open` and `verify` read.

use super::footer::Footer;
use super::{ALIGN, Fields, align_up};
use crate::error::{Error, Result};
use crate::hash::MAX_PARTITION_BITS;
use crate::kernel::GROUP_MAX;
use crate::layout::{Layout, perfect};

/// Bytes for each partition in the array that lookups read.
pub(crate) const HOT_LEN: usize = 32;
/// Bytes for each partition in the array that they do not.
pub(crate) const COLD_LEN: usize = 40;

/// What the directory says of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Offset of the partition in the file.
    pub offset: u64,
    /// Number of keys.
    pub keys: u32,
    /// Inline and term-order: slots that are the home of some hash: keys / 0.75, rounded up.
    pub homes: u32,
    /// Perfect: buckets, each with a pilot.
    pub buckets: u32,
    /// All slots. Inline and term-order: the homes, and the few past them into which the last keys were
    /// pushed. Perfect: those that the hash function names.
    pub slots: u32,
    /// Inline and term-order: the most slots that a lookup must look at, its home slot included.
    pub probe_limit: u32,
    /// Perfect: keys with the hash of another key, whose records lie behind those of the slots.
    pub exceptions: u16,
    /// Perfect: the seed of the partition's hash function, 0 unless that could not place the keys.
    pub seed: u16,
    /// 64-bit words of the filter.
    pub filter_words: u32,
    /// Perfect: where the records begin, in lines of 64 bytes from the beginning of the partition.
    /// (It follows from the lengths before them, and saves lookups to add those up.)
    pub record_line: u32,
    /// Bytes of records, without padding behind them.
    pub record_bytes: u64,
    /// A checksum for each section, in the order of [`Layout::sections`].
    pub checksums: [u64; 4],
}

/// Where the sections of a partition begin. Each one ends where the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub(crate) filter: u64,
    /// Control bytes or pilots.
    pub(crate) index: u64,
    /// Slot words or offset lines.
    pub(crate) pointers: u64,
    pub(crate) records: u64,
}

impl Partition {
    /// The part that a lookup needs; the rest is 0.
    #[inline(always)]
    pub(crate) fn hot(block: &[u8; HOT_LEN], layout: Layout) -> Self {
        let fields = Fields::new(block);
        let both = Self {
            offset: fields.u64(0),
            keys: fields.u32(8),
            slots: fields.u32(16),
            filter_words: fields.u32(24),
            ..Self::default()
        };
        let (third, fifth) = (fields.u32(12), fields.u32(20));
        match layout {
            Layout::Inline | Layout::TermOrder => Self { homes: third, probe_limit: fifth, ..both },
            Layout::Perfect => Self {
                buckets: third,
                record_line: fields.u32(28),
                exceptions: fifth as u16,
                seed: (fifth >> 16) as u16,
                ..both
            },
        }
    }

    pub(crate) fn encode_hot(&self, layout: Layout) -> [u8; HOT_LEN] {
        let (third, fifth, seventh) = match layout {
            Layout::Inline | Layout::TermOrder => (self.homes, self.probe_limit, 0),
            Layout::Perfect => (
                self.buckets,
                u32::from(self.exceptions) | u32::from(self.seed) << 16,
                self.record_line,
            ),
        };
        let mut block = [0; HOT_LEN];
        block[..8].copy_from_slice(&self.offset.to_le_bytes());
        for (i, field) in
            [self.keys, third, self.slots, fifth, self.filter_words, seventh].iter().enumerate()
        {
            block[8 + 4 * i..12 + 4 * i].copy_from_slice(&field.to_le_bytes());
        }
        block
    }

    pub(crate) fn encode_cold(&self) -> [u8; COLD_LEN] {
        let mut block = [0; COLD_LEN];
        block[..8].copy_from_slice(&self.record_bytes.to_le_bytes());
        for (i, sum) in self.checksums.iter().enumerate() {
            block[8 + 8 * i..16 + 8 * i].copy_from_slice(&sum.to_le_bytes());
        }
        block
    }

    /// Where the pilots of a perfect partition begin.
    #[inline(always)]
    pub(crate) const fn pilots_at(&self) -> u64 {
        self.offset.wrapping_add(align_up(8 * self.filter_words as u64))
    }

    /// Where the offset lines of a perfect partition begin, if it has any.
    #[inline(always)]
    pub(crate) const fn lines_at(&self) -> u64 {
        self.pilots_at().wrapping_add(align_up(self.buckets as u64))
    }

    /// Where the records of a perfect partition begin, as its entry says.
    #[inline(always)]
    pub(crate) const fn records_at(&self) -> u64 {
        self.offset.wrapping_add(self.record_line as u64 * ALIGN)
    }

    /// Slots and exceptions: all that have a record.
    #[inline(always)]
    pub(crate) const fn all_slots(&self) -> u64 {
        self.slots as u64 + self.exceptions as u64
    }

    /// Offsets by the lengths of the sections. Wrapping, since lookups trust no count twice; `open`
    /// has checked the same sums for overflow. `lines`: whether a perfect table has offset lines.
    #[inline(always)]
    pub(crate) const fn offsets(&self, layout: Layout, lines: bool) -> Offsets {
        let index = self.offset.wrapping_add(align_up(8 * self.filter_words as u64));
        let (index_len, pointers_len) = match layout {
            Layout::Inline => (self.slots as u64 + GROUP_MAX as u64, 0),
            Layout::TermOrder => (self.slots as u64 + GROUP_MAX as u64, 8 * self.slots as u64),
            Layout::Perfect if lines => (
                self.buckets as u64,
                perfect::offset_lines(self.all_slots()) * perfect::OFFSET_LINE as u64,
            ),
            Layout::Perfect => (self.buckets as u64, 0),
        };
        let pointers = index.wrapping_add(align_up(index_len));
        let records = pointers.wrapping_add(align_up(pointers_len));
        Offsets { filter: self.offset, index, pointers, records }
    }
}

/// The directory's two arrays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory<'a> {
    hot: &'a [[u8; HOT_LEN]],
    cold: &'a [[u8; COLD_LEN]],
}

impl<'a> Directory<'a> {
    /// `bytes` begins with the directory of a table with so many partition bits, and may go on.
    pub(crate) fn new(bytes: &'a [u8], partition_bits: u8) -> Self {
        let cold_at = HOT_LEN << partition_bits.min(MAX_PARTITION_BITS);
        let (hot, cold) = bytes.split_at_checked(cold_at).unwrap_or_default();
        Self { hot: hot.as_chunks().0, cold: cold.as_chunks().0 }
    }

    /// What lookups need of a partition. Total: a partition that is not there is an empty one.
    #[inline(always)]
    pub(crate) fn hot(&self, partition: u32, layout: Layout) -> Partition {
        match self.hot.get(partition as usize) {
            Some(block) => Partition::hot(block, layout),
            None => Partition::default(),
        }
    }

    /// Everything about a partition.
    pub(crate) fn get(&self, partition: u32, layout: Layout) -> Partition {
        let mut found = self.hot(partition, layout);
        if let Some(block) = self.cold.get(partition as usize) {
            let fields = Fields::new(block);
            found.record_bytes = fields.u64(0);
            found.checksums = [fields.u64(8), fields.u64(16), fields.u64(24), fields.u64(32)];
        }
        found
    }

    /// The last 4 bytes of a partition's entry: zero, or a perfect partition's record line.
    pub(crate) fn reserved(&self, partition: u32) -> u32 {
        self.hot.get(partition as usize).map_or(0, |block| Fields::new(block).u32(28))
    }
}

/// The rules that one entry must obey alone, given where its partition must begin. Returns where the
/// partition ends.
pub(crate) fn check(
    footer: &Footer,
    entry: &Partition,
    reserved: u32,
    (at_hot, at_cold): (u64, u64),
    begins: u64,
) -> Result<u64> {
    use super::{MAX_EXCEPTIONS, MAX_PARTITION_KEYS, MAX_RECORD_BYTES, MAX_SLOTS};
    let bad = |field, offset, expected: u64, found: u64| Error::BadField {
        field,
        offset,
        expected,
        found,
    };
    let equal = |field, offset, expected: u64, found: u64| {
        if found == expected { Ok(()) } else { Err(bad(field, offset, expected, found)) }
    };
    let at_most = |field, offset, expected: u64, found: u64| {
        if found <= expected { Ok(()) } else { Err(bad(field, offset, expected, found)) }
    };
    let at_least = |field, offset, expected: u64, found: u64| {
        if found >= expected { Ok(()) } else { Err(bad(field, offset, expected, found)) }
    };
    let (keys, slots) = (u64::from(entry.keys), u64::from(entry.slots));
    equal("partition offset", at_hot, begins, entry.offset)?;
    at_most("partition keys", at_hot + 8, u64::from(MAX_PARTITION_KEYS), keys)?;
    if footer.layout == Layout::Perfect {
        let (buckets, exceptions) = (u64::from(entry.buckets), u64::from(entry.exceptions));
        at_most("partition buckets", at_hot + 12, keys, buckets)?;
        at_least("partition buckets", at_hot + 12, u64::from(keys > 0), buckets)?;
        at_most(
            "exceptions",
            at_hot + 20,
            u64::from(MAX_EXCEPTIONS).min(keys.max(1) - 1),
            exceptions,
        )?;
        // No more than half of the slots are empty: the work of a scan is in the number of keys.
        at_most("partition slots", at_hot + 16, (2 * keys).min(MAX_SLOTS.into()), slots)?;
        at_least("partition slots", at_hot + 16, keys - exceptions, slots)?;
    } else {
        equal("partition homes", at_hot + 12, super::homes(entry.keys).into(), entry.homes.into())?;
        at_most("partition slots", at_hot + 16, u64::from(MAX_SLOTS), slots)?;
        at_least("partition slots", at_hot + 16, entry.homes.into(), slots)?;
        // A key is pushed at most past all the other keys.
        at_most("probe limit", at_hot + 20, keys, entry.probe_limit.into())?;
    }
    let words = crate::filter::words(entry.keys, footer.filter_bits)?;
    equal("filter words", at_hot + 24, words.into(), entry.filter_words.into())?;
    if footer.layout == Layout::Perfect {
        // Below 2^38 bytes: the filter's 2^35, and 2^32 each of pilots and offset lines.
        let line = footer.offsets(entry).records.wrapping_sub(entry.offset) / ALIGN;
        equal("record line", at_hot + 28, line, reserved.into())?;
    } else {
        equal("partition reserved", at_hot + 28, 0, reserved.into())?;
    }
    match footer.layout {
        // At most 2^31 slots of 95 bytes.
        Layout::Inline => {
            let width = u64::from(footer.fixed_record_width());
            equal("record bytes", at_cold, slots * width, entry.record_bytes)?;
        }
        // At most 2^31 slots and some of less than 2^32 bytes.
        Layout::Perfect if !footer.has_offset_lines() => {
            let bytes = footer.stride().bytes(entry.all_slots());
            equal("record bytes", at_cold, bytes, entry.record_bytes)?;
        }
        Layout::TermOrder => {
            at_most("record bytes", at_cold, MAX_RECORD_BYTES, entry.record_bytes)?;
        }
        Layout::Perfect => {
            let most = MAX_RECORD_BYTES * u64::from(footer.unit);
            at_most("record bytes", at_cold, most, entry.record_bytes)?;
        }
    }
    // No sum wraps: a partition has less than 2^64 bytes by far, and `begins` lies inside the file.
    Ok(footer.section_ends(entry)[3])
}
