//! The directory: where each partition lies and how large its parts are.
//!
//! It is kept as two arrays: what a lookup reads (32 bytes for each partition, so that the 1,024
//! partitions of a large table take 32 KiB of cache), then what only `open` and `verify` read.

use super::{Fields, align_up};
use crate::error::{Error, Result, Section};
use crate::kernel::GROUP_MAX;
use crate::layout::Layout;

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
    /// Slots that are the home of some hash: keys / 0.75, rounded up.
    pub homes: u32,
    /// All slots: the homes, and the few past them into which the last keys were pushed.
    pub slots: u32,
    /// The most slots that a lookup must look at, its home slot included.
    pub probe_limit: u32,
    /// 64-bit words of the filter.
    pub filter_words: u32,
    /// Bytes of records, without padding.
    pub record_bytes: u64,
    /// A checksum for each section, in the order of [`Section::ALL`].
    pub checksums: [u64; 4],
}

/// Where the sections of a partition begin. Each one ends where the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub(crate) filter: u64,
    pub(crate) control: u64,
    pub(crate) slot_words: u64,
    pub(crate) records: u64,
}

impl Offsets {
    /// Offsets by the lengths of the sections. Wrapping, since lookups trust no count twice; `open`
    /// has checked the same sums for overflow.
    #[inline(always)]
    pub(crate) const fn new(layout: Layout, offset: u64, filter_words: u32, slots: u32) -> Self {
        let control = offset.wrapping_add(align_up(8 * filter_words as u64));
        let slot_words = control.wrapping_add(align_up(slots as u64 + GROUP_MAX as u64));
        let records = match layout {
            Layout::Inline => slot_words,
            Layout::TermOrder => slot_words.wrapping_add(align_up(8 * slots as u64)),
        };
        Self { filter: offset, control, slot_words, records }
    }
}

impl Partition {
    /// The part that a lookup needs; the rest is 0.
    #[inline(always)]
    pub(crate) fn hot(block: &[u8; HOT_LEN]) -> Self {
        let fields = Fields::new(block);
        Self {
            offset: fields.u64(0),
            keys: fields.u32(8),
            homes: fields.u32(12),
            slots: fields.u32(16),
            probe_limit: fields.u32(20),
            filter_words: fields.u32(24),
            ..Self::default()
        }
    }

    pub(crate) fn encode_hot(&self) -> [u8; HOT_LEN] {
        let mut block = [0; HOT_LEN];
        block[..8].copy_from_slice(&self.offset.to_le_bytes());
        for (i, field) in [self.keys, self.homes, self.slots, self.probe_limit, self.filter_words]
            .iter()
            .enumerate()
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

    #[inline(always)]
    pub(crate) const fn offsets(&self, layout: Layout) -> Offsets {
        Offsets::new(layout, self.offset, self.filter_words, self.slots)
    }

    /// Where the partition ends, padding included.
    pub(crate) const fn end(&self, layout: Layout) -> u64 {
        self.offsets(layout).records.wrapping_add(align_up(self.record_bytes))
    }

    /// Offset and length in bytes of a section, padding included.
    #[must_use]
    pub const fn section(&self, layout: Layout, section: Section) -> (u64, u64) {
        let offsets = self.offsets(layout);
        let (from, to) = match section {
            Section::Filter => (offsets.filter, offsets.control),
            Section::Control => (offsets.control, offsets.slot_words),
            Section::SlotWords => (offsets.slot_words, offsets.records),
            Section::Records => (offsets.records, self.end(layout)),
        };
        (from, to.wrapping_sub(from))
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
        let cold_at = HOT_LEN << (partition_bits & 15);
        let (hot, cold) = bytes.split_at_checked(cold_at).unwrap_or_default();
        Self { hot: hot.as_chunks().0, cold: cold.as_chunks().0 }
    }

    /// What lookups need of a partition. Total: a partition that is not there is an empty one.
    #[inline(always)]
    pub(crate) fn hot(&self, partition: u32) -> Partition {
        self.hot.get(partition as usize).map_or_else(Partition::default, Partition::hot)
    }

    /// Everything about a partition.
    pub(crate) fn get(&self, partition: u32) -> Partition {
        let mut found = self.hot(partition);
        if let Some(block) = self.cold.get(partition as usize) {
            let fields = Fields::new(block);
            found.record_bytes = fields.u64(0);
            found.checksums = [fields.u64(8), fields.u64(16), fields.u64(24), fields.u64(32)];
        }
        found
    }

    /// The 4 bytes of a partition's entry that must be zero.
    pub(crate) fn reserved(&self, partition: u32) -> u32 {
        self.hot.get(partition as usize).map_or(0, |block| Fields::new(block).u32(28))
    }
}

/// The rules that one entry must obey alone, given where its partition must begin. Returns where the
/// partition ends.
pub(crate) fn check(
    layout: Layout,
    filter_bits: u8,
    record_width: u64,
    entry: &Partition,
    reserved: u32,
    (at_hot, at_cold): (u64, u64),
    begins: u64,
) -> Result<u64> {
    use super::{MAX_PARTITION_KEYS, MAX_RECORD_BYTES, MAX_SLOTS};
    let equal = |field, offset, expected: u64, found: u64| {
        if found == expected {
            Ok(())
        } else {
            Err(Error::BadField { field, offset, expected, found })
        }
    };
    let at_most = |field, offset, expected: u64, found: u64| {
        if found <= expected {
            Ok(())
        } else {
            Err(Error::BadField { field, offset, expected, found })
        }
    };
    let (keys, slots) = (u64::from(entry.keys), u64::from(entry.slots));
    equal("partition offset", at_hot, begins, entry.offset)?;
    at_most("partition keys", at_hot + 8, u64::from(MAX_PARTITION_KEYS), keys)?;
    equal("partition homes", at_hot + 12, super::homes(entry.keys).into(), entry.homes.into())?;
    at_most("partition slots", at_hot + 16, u64::from(MAX_SLOTS), slots)?;
    if entry.slots < entry.homes {
        return Err(Error::BadField {
            field: "partition slots",
            offset: at_hot + 16,
            expected: entry.homes.into(),
            found: slots,
        });
    }
    // A key is pushed at most past all the other keys.
    at_most("probe limit", at_hot + 20, keys, entry.probe_limit.into())?;
    let words = crate::filter::words(entry.keys, filter_bits)?;
    equal("filter words", at_hot + 24, words.into(), entry.filter_words.into())?;
    equal("partition reserved", at_hot + 28, 0, reserved.into())?;
    match layout {
        // At most 2^31 slots of 95 bytes.
        Layout::Inline => equal("record bytes", at_cold, slots * record_width, entry.record_bytes)?,
        Layout::TermOrder => {
            at_most("record bytes", at_cold, MAX_RECORD_BYTES, entry.record_bytes)?;
        }
    }
    // No sum wraps: a partition has less than 2^41 bytes, and `begins` lies inside the file.
    Ok(entry.end(layout))
}
