//! The format a second time, written from FORMAT.md and not from the source: what damages tables and
//! makes footers that no builder would.

use core::ops::Range;

use pkhash_core::Hasher;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const HEAD_LEN: usize = 64;
pub(crate) const TAIL_LEN: usize = 128;
pub(crate) const GROUP_MAX: u64 = 64;

/// Offset and width of each field of the tail.
pub(crate) const TAIL_FIELDS: [(&str, usize, usize); 25] = [
    ("version", 0, 4),
    ("layout", 4, 1),
    ("hash", 5, 1),
    ("partition bits", 6, 1),
    ("value kind", 7, 1),
    ("value width", 8, 1),
    ("filter bits", 9, 1),
    ("filter bits set", 10, 1),
    ("tail reserved", 11, 1),
    ("shortest key", 12, 4),
    ("longest key", 16, 4),
    ("tail reserved", 20, 4),
    ("seed", 24, 8),
    ("hash check", 32, 8),
    ("keys", 40, 8),
    ("slots", 48, 8),
    ("key bytes", 56, 8),
    ("largest value", 64, 8),
    ("file length", 72, 8),
    ("directory offset", 80, 8),
    ("tail reserved", 88, 8),
    ("tail reserved", 96, 8),
    ("tail reserved", 104, 8),
    ("footer checksum", 112, 8),
    ("tail magic", 120, 8),
];

/// Offset and width of each field of a partition's entry in the first array, then in the second.
pub(crate) const HOT_FIELDS: [(&str, usize, usize); 7] = [
    ("partition offset", 0, 8),
    ("partition keys", 8, 4),
    ("partition homes", 12, 4),
    ("partition slots", 16, 4),
    ("probe limit", 20, 4),
    ("filter words", 24, 4),
    ("partition reserved", 28, 4),
];
pub(crate) const COLD_FIELDS: [(&str, usize, usize); 5] = [
    ("record bytes", 0, 8),
    ("filter checksum", 8, 8),
    ("control checksum", 16, 8),
    ("slot word checksum", 24, 8),
    ("record checksum", 32, 8),
];

pub(crate) fn align(bytes: u64) -> u64 {
    bytes.div_ceil(64) * 64
}

/// A length as a varint.
pub(crate) fn varint(mut len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out
}

/// Reads a little-endian field of at most 8 bytes.
pub(crate) fn get(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Writes one.
pub(crate) fn put(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Offset of the tail.
pub(crate) fn tail(bytes: &[u8]) -> usize {
    bytes.len() - TAIL_LEN
}

/// Number of partitions that the tail names.
pub(crate) fn partitions(bytes: &[u8]) -> usize {
    1 << bytes[tail(bytes) + 6]
}

/// Offset of the directory, by the length of the file.
pub(crate) fn directory(bytes: &[u8]) -> usize {
    tail(bytes) - 72 * partitions(bytes)
}

/// Offset of partition `p`'s entry in the first array.
pub(crate) fn hot(bytes: &[u8], p: usize) -> usize {
    directory(bytes) + 32 * p
}

/// Offset of partition `p`'s entry in the second array.
pub(crate) fn cold(bytes: &[u8], p: usize) -> usize {
    directory(bytes) + 32 * partitions(bytes) + 40 * p
}

/// The sections of partition `p`: filter, control bytes, slot words, records.
pub(crate) fn sections(bytes: &[u8], p: usize) -> [Range<usize>; 4] {
    let at = hot(bytes, p);
    let (slots, words) = (get(bytes, at + 16, 4), get(bytes, at + 24, 4));
    let term_order = bytes[tail(bytes) + 4] == 2;
    let lens = [
        align(8 * words),
        align(slots + GROUP_MAX),
        if term_order { align(8 * slots) } else { 0 },
        align(get(bytes, cold(bytes, p), 8)),
    ];
    let mut from = get(bytes, at, 8) as usize;
    lens.map(|len| {
        let section = from..from + len as usize;
        from = section.end;
        section
    })
}

/// The footer's checksum: over directory and tail up to the checksum itself.
pub(crate) fn footer_sum(bytes: &[u8]) -> u64 {
    xxh3_64(&bytes[directory(bytes)..tail(bytes) + 112])
}

/// Makes the footer's checksum right again, if partition bits and length leave room for a footer.
pub(crate) fn repair_footer(bytes: &mut [u8]) {
    let bits = bytes[tail(bytes) + 6];
    if bits <= 10 && bytes.len() >= TAIL_LEN + (72 << bits) {
        let (at, sum) = (tail(bytes) + 112, footer_sum(bytes));
        put(bytes, at, 8, sum);
    }
}

/// Makes all checksums right again. The directory must be sound.
pub(crate) fn repair_all(bytes: &mut [u8]) {
    for p in 0..partitions(bytes) {
        for (i, section) in sections(bytes, p).into_iter().enumerate() {
            let sum = if section.is_empty() { 0 } else { xxh3_64(&bytes[section]) };
            let at = cold(bytes, p) + 8 + 8 * i;
            put(bytes, at, 8, sum);
        }
    }
    repair_footer(bytes);
}

/// A partition's entry, for footers without a body.
#[derive(Clone, Copy, Default)]
pub(crate) struct RawPartition {
    pub(crate) keys: u64,
    pub(crate) homes: u64,
    pub(crate) slots: u64,
    pub(crate) probe_limit: u64,
    pub(crate) filter_words: u64,
    pub(crate) record_bytes: u64,
}

impl RawPartition {
    /// As the builder would make it, with `extra` slots past the last home.
    pub(crate) fn new(keys: u64, filter_bits: u64, extra: u64) -> Self {
        let homes = keys + keys.div_ceil(3);
        Self {
            keys,
            homes,
            slots: homes + extra,
            probe_limit: keys.min(100),
            filter_words: (keys * filter_bits).div_ceil(64),
            record_bytes: 0,
        }
    }

    pub(crate) fn len(&self, term_order: bool) -> u64 {
        align(8 * self.filter_words)
            + align(self.slots + GROUP_MAX)
            + if term_order { align(8 * self.slots) } else { 0 }
            + align(self.record_bytes)
    }
}

/// A table whose body nobody holds.
#[derive(Clone)]
pub(crate) struct RawFooter {
    pub(crate) term_order: bool,
    pub(crate) value_kind: u8,
    pub(crate) value_width: u8,
    pub(crate) filter_bits: u8,
    pub(crate) min_key_len: u64,
    pub(crate) max_key_len: u64,
    pub(crate) partitions: Vec<RawPartition>,
}

impl RawFooter {
    /// Offset of each partition, and of the directory behind them.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        let mut at = HEAD_LEN as u64;
        let mut offsets = vec![at];
        for partition in &self.partitions {
            at += partition.len(self.term_order);
            offsets.push(at);
        }
        offsets
    }

    /// Length of the file.
    pub(crate) fn file_len(&self) -> u64 {
        self.offsets()[self.partitions.len()] + (72 * self.partitions.len() + TAIL_LEN) as u64
    }

    /// Directory and tail.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let n = self.partitions.len();
        assert!(n.is_power_of_two());
        let mut out = vec![0; 72 * n + TAIL_LEN];
        let offsets = self.offsets();
        for (p, partition) in self.partitions.iter().enumerate() {
            let hot = 32 * p;
            put(&mut out, hot, 8, offsets[p]);
            put(&mut out, hot + 8, 4, partition.keys);
            put(&mut out, hot + 12, 4, partition.homes);
            put(&mut out, hot + 16, 4, partition.slots);
            put(&mut out, hot + 20, 4, partition.probe_limit);
            put(&mut out, hot + 24, 4, partition.filter_words);
            put(&mut out, 32 * n + 40 * p, 8, partition.record_bytes);
        }
        let keys = self.partitions.iter().map(|p| p.keys).sum::<u64>();
        let slots = self.partitions.iter().map(|p| p.slots).sum::<u64>();
        let at = 72 * n;
        put(&mut out, at, 4, 1);
        out[at + 4] = if self.term_order { 2 } else { 1 };
        out[at + 5] = 1;
        out[at + 6] = n.trailing_zeros() as u8;
        out[at + 7] = self.value_kind;
        out[at + 8] = self.value_width;
        out[at + 9] = self.filter_bits;
        out[at + 10] = if self.filter_bits == 0 { 0 } else { 5 };
        put(&mut out, at + 12, 4, self.min_key_len);
        put(&mut out, at + 16, 4, self.max_key_len);
        put(&mut out, at + 32, 8, Hasher::new(0).check_value());
        put(&mut out, at + 40, 8, keys);
        put(&mut out, at + 48, 8, slots);
        put(&mut out, at + 56, 8, keys.saturating_mul(self.max_key_len));
        put(&mut out, at + 72, 8, self.file_len());
        put(&mut out, at + 80, 8, offsets[n]);
        out[at + 120..].copy_from_slice(b"pkh-tail");
        repair_footer(&mut out);
        out
    }
}
