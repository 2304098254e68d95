//! The format a second time, written from FORMAT.md and not from the source: what damages tables and
//! makes footers that no builder would.

use core::ops::Range;

use pkhash_core::Hasher;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const HEAD_LEN: usize = 64;
pub(crate) const TAIL_LEN: usize = 128;
pub(crate) const GROUP_MAX: u64 = 64;

/// Offset and width of each field of the tail.
pub(crate) const TAIL_FIELDS: [(&str, usize, usize); 26] = [
    ("version", 0, 4),
    ("layout", 4, 1),
    ("hash", 5, 1),
    ("partition bits", 6, 1),
    ("value kind", 7, 1),
    ("value width", 8, 1),
    ("filter bits", 9, 1),
    ("filter bits set", 10, 1),
    ("records in a line", 11, 1),
    ("shortest key", 12, 4),
    ("longest key", 16, 4),
    ("offset unit", 20, 1),
    ("tail reserved", 21, 3),
    ("seed", 24, 8),
    ("hash check", 32, 8),
    ("keys", 40, 8),
    ("slots", 48, 8),
    ("key bytes", 56, 8),
    ("largest value", 64, 8),
    ("file length", 72, 8),
    ("directory offset", 80, 8),
    ("exceptions", 88, 8),
    ("tail reserved", 96, 8),
    ("tail reserved", 104, 8),
    ("footer checksum", 112, 8),
    ("tail magic", 120, 8),
];

/// Offset and width of each field of a partition's entry in the first array, then in the second. In a
/// perfect table homes are buckets, control bytes are pilots, slot words are offset lines, and probe
/// limit and reserved bytes are [`PERFECT_FIELDS`].
pub(crate) const HOT_FIELDS: [(&str, usize, usize); 7] = [
    ("partition offset", 0, 8),
    ("partition keys", 8, 4),
    ("partition homes", 12, 4),
    ("partition slots", 16, 4),
    ("probe limit", 20, 4),
    ("filter words", 24, 4),
    ("partition reserved", 28, 4),
];
pub(crate) const PERFECT_FIELDS: [(&str, usize, usize); 3] =
    [("exceptions", 20, 2), ("partition seed", 22, 2), ("record line", 28, 4)];
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

/// The layout, by its number.
pub(crate) fn layout(bytes: &[u8]) -> u8 {
    bytes[tail(bytes) + 4]
}

pub(crate) const INLINE: u8 = 1;
pub(crate) const TERM_ORDER: u8 = 2;
pub(crate) const PERFECT: u8 = 3;

/// Lengths of the sections of a partition, padding included, but for that of the filter and the records.
fn index_and_pointers(
    layout: u8,
    unit: u8,
    buckets: u64,
    slots: u64,
    exceptions: u64,
) -> (u64, u64) {
    match layout {
        PERFECT if unit == 0 => (align(buckets), 0),
        PERFECT => (align(buckets), 64 * (slots + exceptions).div_ceil(28)),
        TERM_ORDER => (align(slots + GROUP_MAX), align(8 * slots)),
        _ => (align(slots + GROUP_MAX), 0),
    }
}

/// The sections of partition `p`: filter, control bytes or pilots, slot words or offset lines, records.
pub(crate) fn sections(bytes: &[u8], p: usize) -> [Range<usize>; 4] {
    let (at, unit) = (hot(bytes, p), bytes[tail(bytes) + 20]);
    let [buckets, slots, words] = [12, 16, 24].map(|field| get(bytes, at + field, 4));
    let (index, pointers) =
        index_and_pointers(layout(bytes), unit, buckets, slots, get(bytes, at + 20, 2));
    let lens = [align(8 * words), index, pointers, align(get(bytes, cold(bytes, p), 8))];
    let mut from = get(bytes, at, 8) as usize;
    lens.map(|len| {
        let section = from..from + len as usize;
        from = section.end;
        section
    })
}

/// `x / 2^32 × n`, rounded down.
fn scale(x: u64, n: u64) -> u64 {
    ((x >> 32) * n) >> 32
}

/// Bucket and slot of a hash in partition `p` of a perfect table.
pub(crate) fn perfect_place(bytes: &[u8], p: usize, hash: u64) -> (u64, u64) {
    let at = hot(bytes, p);
    let [buckets, slots] = [12, 16].map(|field| get(bytes, at + field, 4));
    let x = match get(bytes, at + 22, 2) {
        0 => hash << bytes[tail(bytes) + 6],
        seed => hash.wrapping_mul(0xd6e8_feb8_6659_fd93u64.wrapping_mul(2 * seed - 1)),
    };
    let bucket = scale(x, buckets);
    let pilot = u64::from(bytes[sections(bytes, p)[1].start + bucket as usize]);
    let mixed = (x ^ pilot.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (bucket, scale(mixed, slots))
}

/// Where in the file the record of a slot of partition `p` of a perfect table lies. (Slots from the
/// partition's number of slots on are its exceptions.)
pub(crate) fn perfect_record(bytes: &[u8], p: usize, slot: u64) -> Range<usize> {
    let tail = tail(bytes);
    let (unit, per_line) = (u64::from(bytes[tail + 20]), u64::from(bytes[tail + 11]));
    let [_, _, lines, records] = sections(bytes, p);
    let (from, to) = if unit == 0 {
        let width = u64::from(bytes[tail + 8]) + get(bytes, tail + 16, 4);
        let from = match per_line {
            0 => slot * width,
            r => slot / r * 64 + slot % r * width,
        };
        (from, from + width)
    } else {
        let line = lines.start + 64 * (slot / 28) as usize;
        let place = line + 5 + 2 * (slot % 28) as usize;
        let [from, to] = [place, place + 2].map(|at| get(bytes, line, 5) + get(bytes, at, 2));
        (from * unit, to * unit)
    };
    records.start + from as usize..records.start + to as usize
}

/// What the sections of partition `p` of a perfect table must be, given its directory and pilots, and
/// its records: hash, key, value.
pub(crate) fn perfect_sections(
    bytes: &[u8],
    p: usize,
    records: &[(u64, Vec<u8>, Vec<u8>)],
) -> [Vec<u8>; 4] {
    let (at, tail) = (hot(bytes, p), tail(bytes));
    let (unit, per_line) = (usize::from(bytes[tail + 20]), usize::from(bytes[tail + 11]));
    let [buckets, slots, words] = [12, 16, 24].map(|field| get(bytes, at + field, 4) as usize);
    let found = sections(bytes, p);
    let mut sections = found.clone().map(|section| vec![0; section.len()]);
    let [filter, pilots, lines, body] = &mut sections;

    pilots[..buckets].copy_from_slice(&bytes[found[1].clone()][..buckets]);
    let mut sorted: Vec<_> = records.iter().collect();
    sorted.sort();
    let mut at_slot: Vec<Option<usize>> = vec![None; slots];
    for (i, (hash, ..)) in sorted.iter().enumerate() {
        if words > 0 {
            let mut x = *hash;
            for multiplier in [0xff51_afd7_ed55_8ccdu64, 0xc4ce_b9fe_1a85_ec53] {
                x = (x ^ x >> 33).wrapping_mul(multiplier);
            }
            x ^= x >> 33;
            let word = 8 * scale(x, words as u64) as usize;
            for bit in (0..5).map(|i| (x >> (6 * i) & 63) as usize) {
                filter[word + bit / 8] |= 1 << (bit % 8);
            }
        }
        // The first key of each hash is placed.
        if i == 0 || sorted[i - 1].0 != *hash {
            let (bucket, slot) = perfect_place(bytes, p, *hash);
            assert!(bucket < buckets as u64, "a bucket that exists");
            assert!(at_slot[slot as usize].replace(i).is_none(), "two keys in slot {slot}");
        } else {
            at_slot.push(Some(i));
        }
    }
    assert_eq!((at_slot.len() - slots) as u64, get(bytes, at + 20, 2), "exceptions");

    let record = |i: usize| [&sorted[i].2[..], &sorted[i].1].concat();
    if unit == 0 {
        let first = at_slot.iter().flatten().next().copied();
        let mut before = first;
        for (slot, i) in at_slot.iter().enumerate() {
            before = i.or(before);
            let record = record(before.expect("slots only where there are keys"));
            let from = match per_line {
                0 => slot * record.len(),
                r => slot / r * 64 + slot % r * record.len(),
            };
            body[from..from + record.len()].copy_from_slice(&record);
        }
        return sections;
    }
    let mut end = 0;
    for (line, slots) in lines.chunks_exact_mut(64).zip(at_slot.chunks(28)) {
        let base = end;
        put(line, 0, 5, (base / unit) as u64);
        for i in 0..28 {
            put(line, 5 + 2 * i, 2, ((end - base) / unit) as u64);
            if let Some(i) = slots.get(i).copied().flatten() {
                let mut record = record(i);
                if unit > 1 {
                    let padding = unit - record.len() % unit;
                    record.resize(record.len() + padding, 0);
                    *record.last_mut().expect("padding") = padding as u8;
                }
                body[end..end + record.len()].copy_from_slice(&record);
                end += record.len();
            }
        }
        put(line, 61, 2, ((end - base) / unit) as u64);
    }
    assert_eq!(end as u64, get(bytes, cold(bytes, p), 8), "record bytes");
    sections
}

/// The footer's checksum: over directory and tail up to the checksum itself.
pub(crate) fn footer_sum(bytes: &[u8]) -> u64 {
    xxh3_64(&bytes[directory(bytes)..tail(bytes) + 112])
}

/// Makes what follows from the entries of a perfect table right again: where the records of each
/// partition begin, and the sums of the tail.
pub(crate) fn repair_perfect(bytes: &mut [u8]) {
    let mut sums = [0; 3];
    for p in 0..partitions(bytes) {
        let (at, [filter, .., records]) = (hot(bytes, p), sections(bytes, p));
        put(bytes, at + 28, 4, (records.start - filter.start) as u64 / 64);
        for (sum, (field, width)) in sums.iter_mut().zip([(8, 4), (16, 4), (20, 2)]) {
            *sum += get(bytes, at + field, width);
        }
    }
    for (field, sum) in [40, 48, 88].into_iter().zip(sums) {
        let at = tail(bytes) + field;
        put(bytes, at, 8, sum);
    }
}

/// Makes the footer's checksum right again, if partition bits and length leave room for a footer.
pub(crate) fn repair_footer(bytes: &mut [u8]) {
    let bits = bytes[tail(bytes) + 6];
    if bits <= 16 && bytes.len() >= TAIL_LEN + (72 << bits) {
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
    /// Perfect: buckets.
    pub(crate) homes: u64,
    pub(crate) slots: u64,
    /// Perfect: exceptions, and the seed above 16 bits of them.
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

    /// As the builder would make it for a perfect table, with so many exceptions.
    pub(crate) fn perfect(keys: u64, filter_bits: u64, exceptions: u64) -> Self {
        let placed = keys - exceptions;
        Self {
            keys,
            homes: placed.div_ceil(3),
            slots: (placed * 100).div_ceil(99),
            probe_limit: exceptions,
            filter_words: (keys * filter_bits).div_ceil(64),
            record_bytes: 0,
        }
    }
}

/// A table whose body nobody holds.
#[derive(Clone)]
pub(crate) struct RawFooter {
    pub(crate) layout: u8,
    pub(crate) value_kind: u8,
    pub(crate) value_width: u8,
    pub(crate) filter_bits: u8,
    pub(crate) records_per_line: u8,
    pub(crate) unit: u8,
    pub(crate) min_key_len: u64,
    pub(crate) max_key_len: u64,
    pub(crate) partitions: Vec<RawPartition>,
}

impl RawFooter {
    /// Lengths of the sections of a partition, padding included.
    pub(crate) fn section_lens(&self, p: &RawPartition) -> [u64; 4] {
        let exceptions = p.probe_limit & 0xffff;
        let (index, pointers) =
            index_and_pointers(self.layout, self.unit, p.homes, p.slots, exceptions);
        [align(8 * p.filter_words), index, pointers, align(p.record_bytes)]
    }

    /// Offset of each partition, and of the directory behind them.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        let mut at = HEAD_LEN as u64;
        let mut offsets = vec![at];
        for partition in &self.partitions {
            at += self.section_lens(partition).iter().sum::<u64>();
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
            if self.layout == PERFECT {
                let before: u64 = self.section_lens(partition)[..3].iter().sum();
                put(&mut out, hot + 28, 4, before / 64);
            }
            put(&mut out, 32 * n + 40 * p, 8, partition.record_bytes);
        }
        let keys = self.partitions.iter().map(|p| p.keys).sum::<u64>();
        let slots = self.partitions.iter().map(|p| p.slots).sum::<u64>();
        let at = 72 * n;
        put(&mut out, at, 4, 1);
        out[at + 4] = self.layout;
        out[at + 5] = 1;
        out[at + 6] = n.trailing_zeros() as u8;
        out[at + 7] = self.value_kind;
        out[at + 8] = self.value_width;
        out[at + 9] = self.filter_bits;
        out[at + 10] = if self.filter_bits == 0 { 0 } else { 5 };
        out[at + 11] = self.records_per_line;
        put(&mut out, at + 12, 4, self.min_key_len);
        put(&mut out, at + 16, 4, self.max_key_len);
        out[at + 20] = self.unit;
        put(&mut out, at + 32, 8, Hasher::new(0).check_value());
        put(&mut out, at + 40, 8, keys);
        put(&mut out, at + 48, 8, slots);
        put(&mut out, at + 56, 8, keys.saturating_mul(self.max_key_len));
        put(&mut out, at + 72, 8, self.file_len());
        put(&mut out, at + 80, 8, offsets[n]);
        if self.layout == PERFECT {
            let exceptions = self.partitions.iter().map(|p| p.probe_limit & 0xffff).sum();
            put(&mut out, at + 88, 8, exceptions);
        }
        out[at + 120..].copy_from_slice(b"pkh-tail");
        repair_footer(&mut out);
        out
    }
}
