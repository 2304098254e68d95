//! The directory: where each partition lies and how large its parts are.
//!
//! It is kept as two arrays. Lookups read the first: the operands of a lookup in 32 bytes for each
//! partition, so that 1,024 partitions take 32 KiB of cache. `open`, `verify` and filters read the
//! second. Both say some things twice; `open` checks that they agree.

use super::footer::Footer;
use super::{Check, Fields, align_up};
use crate::error::Result;
use crate::hash::MAX_PARTITION_BITS;
use crate::kernel::GROUP_MAX;
use crate::layout::{Layout, perfect};

/// Bytes for each partition in the array that lookups read.
pub(crate) const HOT_LEN: usize = 32;
/// Bytes for each partition in the other array.
pub(crate) const COLD_LEN: usize = 64;

/// What a lookup needs of a partition that is probed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProbedEntry {
    /// Offset of the control bytes.
    pub(crate) control_at: u64,
    /// Offset of the records.
    pub(crate) records_at: u64,
    pub(crate) homes: u32,
    pub(crate) slots: u32,
    pub(crate) probe_limit: u32,
}

impl ProbedEntry {
    /// Offset of the slot words of a term-order partition.
    #[inline(always)]
    pub(crate) const fn slot_words_at(&self) -> u64 {
        self.control_at.wrapping_add(align_up(self.slots as u64 + GROUP_MAX as u64))
    }
}

/// What a lookup needs of a perfect partition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerfectEntry {
    /// Offset of the pilots.
    pub(crate) pilots_at: u64,
    /// Offset of the records.
    pub(crate) records_at: u64,
    /// What a hash is multiplied by: see [`perfect::multiplier`].
    pub(crate) multiplier: u64,
    pub(crate) buckets: u32,
    pub(crate) slots: u32,
}

impl PerfectEntry {
    #[inline(always)]
    pub(crate) fn read(block: &[u8; HOT_LEN]) -> Self {
        let fields = Fields::new(block);
        Self {
            pilots_at: fields.u64(0),
            records_at: fields.u64(8),
            multiplier: fields.u64(16),
            buckets: fields.u32(24),
            slots: fields.u32(28),
        }
    }

    /// The spread hash, and the offset of its pilot.
    #[inline(always)]
    pub(crate) const fn pilot_of(&self, hash: u64) -> (u64, u64) {
        let spread = perfect::spread(hash, self.multiplier);
        let bucket = perfect::bucket(spread, self.buckets);
        (spread, self.pilots_at.wrapping_add(bucket as u64))
    }

    /// Offset of the offset lines, if there are any.
    #[inline(always)]
    pub(crate) const fn lines_at(&self) -> u64 {
        self.pilots_at.wrapping_add(align_up(self.buckets as u64))
    }
}

/// What the directory says of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Bytes of records, without padding behind them.
    pub record_bytes: u64,
    /// A checksum for each section, in the order of [`Layout::sections`].
    pub(crate) checksums: [u64; 4],
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
    /// The entry in the array that lookups read.
    pub(crate) fn encode_hot(&self, footer: &Footer) -> [u8; HOT_LEN] {
        let offsets = footer.offsets(self);
        let mut block = [0; HOT_LEN];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &offsets.index.to_le_bytes());
        put(8, &offsets.records.to_le_bytes());
        if footer.layout == Layout::Perfect {
            let multiplier = perfect::multiplier(footer.partition_bits, self.seed);
            put(16, &multiplier.to_le_bytes());
            put(24, &self.buckets.to_le_bytes());
            put(28, &self.slots.to_le_bytes());
        } else {
            put(16, &self.homes.to_le_bytes());
            put(20, &self.slots.to_le_bytes());
            put(24, &self.probe_limit.to_le_bytes());
        }
        block
    }

    /// The entry in the other array.
    pub(crate) fn encode_cold(&self) -> [u8; COLD_LEN] {
        let mut block = [0; COLD_LEN];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.offset.to_le_bytes());
        put(8, &self.filter_words.to_le_bytes());
        put(12, &self.keys.to_le_bytes());
        put(16, &self.exceptions.to_le_bytes());
        put(18, &self.seed.to_le_bytes());
        put(24, &self.record_bytes.to_le_bytes());
        for (i, sum) in self.checksums.iter().enumerate() {
            put(32 + 8 * i, &sum.to_le_bytes());
        }
        block
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

    /// What lookups need of a partition that is probed. Total: a partition that is not there is an
    /// empty one.
    #[inline(always)]
    pub(crate) fn probed(&self, partition: u32) -> ProbedEntry {
        self.hot.get(partition as usize).map_or_else(ProbedEntry::default, |block| {
            let fields = Fields::new(block);
            ProbedEntry {
                control_at: fields.u64(0),
                records_at: fields.u64(8),
                homes: fields.u32(16),
                slots: fields.u32(20),
                probe_limit: fields.u32(24),
            }
        })
    }

    /// What lookups need of a perfect partition. Total, as [`probed`](Self::probed) is.
    #[inline(always)]
    pub(crate) fn perfect(&self, partition: u32) -> PerfectEntry {
        self.hot.get(partition as usize).map_or_else(PerfectEntry::default, PerfectEntry::read)
    }

    /// The entries that lookups read.
    #[inline(always)]
    pub(crate) const fn entries(&self) -> &'a [[u8; HOT_LEN]] {
        self.hot
    }

    /// Offset and number of words of a partition's filter: the same in all layouts.
    #[inline(always)]
    pub(crate) fn filter(&self, partition: u32) -> (u64, u32) {
        self.cold.get(partition as usize).map_or((0, 0), |block| {
            let fields = Fields::new(block);
            (fields.u64(0), fields.u32(8))
        })
    }

    /// The exceptions of a perfect partition.
    pub(crate) fn exceptions(&self, partition: u32) -> u16 {
        self.cold.get(partition as usize).map_or(0, |block| Fields::new(block).get::<2>(16) as u16)
    }

    /// Everything about a partition.
    pub(crate) fn get(&self, partition: u32, layout: Layout) -> Partition {
        let mut found = Partition::default();
        match layout {
            Layout::Inline | Layout::TermOrder => {
                let entry = self.probed(partition);
                (found.homes, found.slots) = (entry.homes, entry.slots);
                found.probe_limit = entry.probe_limit;
            }
            Layout::Perfect => {
                let entry = self.perfect(partition);
                (found.buckets, found.slots) = (entry.buckets, entry.slots);
            }
        }
        if let Some(block) = self.cold.get(partition as usize) {
            let fields = Fields::new(block);
            found.offset = fields.u64(0);
            found.filter_words = fields.u32(8);
            found.keys = fields.u32(12);
            found.exceptions = fields.get::<2>(16) as u16;
            found.seed = fields.get::<2>(18) as u16;
            found.record_bytes = fields.u64(24);
            found.checksums = [fields.u64(32), fields.u64(40), fields.u64(48), fields.u64(56)];
        }
        found
    }

    /// A partition's two entries as they lie in the file.
    fn blocks(&self, partition: u32) -> (&'a [u8; HOT_LEN], &'a [u8; COLD_LEN]) {
        let i = partition as usize;
        (self.hot.get(i).unwrap_or(&[0; HOT_LEN]), self.cold.get(i).unwrap_or(&[0; COLD_LEN]))
    }
}

/// The rules that the entries of partition `p` must obey alone, given where it must begin. Returns
/// where it ends.
pub(crate) fn check(
    footer: &Footer,
    directory: &Directory<'_>,
    p: u32,
    (at_hot, at_cold): (u64, u64),
    begins: u64,
) -> Result<(Partition, u64)> {
    use super::{MAX_EXCEPTIONS, MAX_PARTITION_KEYS, MAX_RECORD_BYTES, MAX_SLOTS};
    let entry = directory.get(p, footer.layout);
    let (hot, cold) = directory.blocks(p);
    let check = Check { from: 0 };
    let (keys, slots) = (u64::from(entry.keys), u64::from(entry.slots));
    check.equal("partition offset", at_cold, begins, entry.offset)?;
    let words = crate::filter::words(entry.keys.min(MAX_PARTITION_KEYS), footer.filter_bits)?;
    check.at_most("partition keys", at_cold + 12, MAX_PARTITION_KEYS.into(), keys)?;
    check.equal("filter words", at_cold + 8, words.into(), entry.filter_words.into())?;
    if footer.layout == Layout::Perfect {
        let (buckets, exceptions) = (u64::from(entry.buckets), u64::from(entry.exceptions));
        let most = u64::from(MAX_EXCEPTIONS).min(keys.max(1) - 1);
        check.at_most("exceptions", at_cold + 16, most, exceptions)?;
        check.at_most("partition buckets", at_hot + 24, keys, buckets)?;
        check.at_least("partition buckets", at_hot + 24, u64::from(keys > 0), buckets)?;
        // No more than half of the slots are empty: the work of a scan is in the number of keys.
        check.at_most("partition slots", at_hot + 28, (2 * keys).min(MAX_SLOTS.into()), slots)?;
        check.at_least("partition slots", at_hot + 28, keys - exceptions, slots)?;
        let multiplier = perfect::multiplier(footer.partition_bits, entry.seed);
        check.equal("multiplier", at_hot + 16, multiplier, Fields::new(hot).u64(16))?;
    } else {
        let homes = super::homes(entry.keys);
        check.equal("exceptions", at_cold + 16, 0, entry.exceptions.into())?;
        check.equal("partition seed", at_cold + 18, 0, entry.seed.into())?;
        check.equal("partition homes", at_hot + 16, homes.into(), entry.homes.into())?;
        check.at_most("partition slots", at_hot + 20, u64::from(MAX_SLOTS), slots)?;
        check.at_least("partition slots", at_hot + 20, entry.homes.into(), slots)?;
        // A key is pushed at most past all the other keys.
        check.at_most("probe limit", at_hot + 24, keys, entry.probe_limit.into())?;
        check.equal("partition reserved", at_hot + 28, 0, Fields::new(hot).u32(28).into())?;
    }
    check.equal("partition reserved", at_cold + 20, 0, Fields::new(cold).u32(20).into())?;
    // Of an offset in the file and lengths below 2^38 bytes: no sum wraps.
    let offsets = footer.offsets(&entry);
    let (index, records) = (Fields::new(hot).u64(0), Fields::new(hot).u64(8));
    let name = if footer.layout == Layout::Perfect { "pilots offset" } else { "control offset" };
    check.equal(name, at_hot, offsets.index, index)?;
    check.equal("records offset", at_hot + 8, offsets.records, records)?;
    let at_bytes = at_cold + 24;
    match footer.layout {
        // At most 2^31 slots of 95 bytes.
        Layout::Inline => {
            let width = u64::from(footer.fixed_record_width());
            check.equal("record bytes", at_bytes, slots * width, entry.record_bytes)?;
        }
        // At most 2^31 slots and some of less than 2^32 bytes.
        Layout::Perfect if !footer.has_offset_lines() => {
            let bytes = footer.stride().bytes(entry.all_slots());
            check.equal("record bytes", at_bytes, bytes, entry.record_bytes)?;
        }
        Layout::TermOrder => {
            check.at_most("record bytes", at_bytes, MAX_RECORD_BYTES, entry.record_bytes)?;
        }
        Layout::Perfect => {
            let most = MAX_RECORD_BYTES * u64::from(footer.unit);
            check.at_most("record bytes", at_bytes, most, entry.record_bytes)?;
        }
    }
    // No sum wraps: a partition has less than 2^64 bytes by far, and `begins` lies inside the file.
    Ok((entry, footer.section_ends(&entry)[3]))
}
