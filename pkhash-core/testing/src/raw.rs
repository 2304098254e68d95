//! The format a second time, written from FORMAT.md and not from the source: what damages tables and
//! makes footers that no builder would.

use core::ops::Range;

use pkhash_core::KeyHasher;
use xxhash_rust::xxh3::xxh3_64;

pub const HEAD_LEN: usize = 64;
pub const TAIL_LEN: usize = 128;
pub const GROUP_MAX: u64 = 64;

/// What a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// A partition's entry in the first array, inline and term-order.
    Probed,
    /// The same, perfect.
    Perfect,
    /// A partition's entry in the second array.
    Second,
    Tail,
}
use Block::{Perfect, Probed, Second, Tail};

/// A field of the footer.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub block: Block,
    /// As in errors, but that a further field of one name has its offset behind it.
    pub name: &'static str,
    /// Offset in its block.
    pub at: usize,
    pub width: usize,
}

const fn field(block: Block, name: &'static str, at: usize, width: usize) -> Field {
    Field { block, name, at, width }
}

/// Every field of the footer.
pub const FIELDS: [Field; 48] = [
    field(Probed, "control offset", 0, 8),
    field(Probed, "records offset", 8, 8),
    field(Probed, "partition homes", 16, 4),
    field(Probed, "partition slots", 20, 4),
    field(Probed, "probe limit", 24, 4),
    field(Probed, "partition reserved", 28, 4),
    field(Perfect, "pilots offset", 0, 8),
    field(Perfect, "records offset", 8, 8),
    field(Perfect, "multiplier", 16, 8),
    field(Perfect, "partition buckets", 24, 4),
    field(Perfect, "partition slots", 28, 4),
    field(Second, "partition offset", 0, 8),
    field(Second, "filter words", 8, 4),
    field(Second, "partition keys", 12, 4),
    field(Second, "exceptions", 16, 2),
    field(Second, "partition seed", 18, 2),
    field(Second, "partition reserved 20", 20, 4),
    field(Second, "record bytes", 24, 8),
    field(Second, "filter checksum", 32, 8),
    // In a perfect table of the pilots.
    field(Second, "control checksum", 40, 8),
    // In a perfect table of the offset lines.
    field(Second, "slot word checksum", 48, 8),
    field(Second, "record checksum", 56, 8),
    field(Tail, "version", 0, 4),
    field(Tail, "layout", 4, 1),
    field(Tail, "hash", 5, 1),
    field(Tail, "partition bits", 6, 1),
    field(Tail, "value kind", 7, 1),
    field(Tail, "value width", 8, 1),
    field(Tail, "filter bits", 9, 1),
    field(Tail, "filter bits set", 10, 1),
    field(Tail, "records in a line", 11, 1),
    field(Tail, "shortest key", 12, 4),
    field(Tail, "longest key", 16, 4),
    field(Tail, "offset unit", 20, 1),
    field(Tail, "tail reserved", 21, 3),
    field(Tail, "seed", 24, 8),
    field(Tail, "hash check", 32, 8),
    field(Tail, "keys", 40, 8),
    field(Tail, "slots", 48, 8),
    field(Tail, "key bytes", 56, 8),
    field(Tail, "largest value", 64, 8),
    field(Tail, "file length", 72, 8),
    field(Tail, "directory offset", 80, 8),
    field(Tail, "exceptions", 88, 8),
    field(Tail, "tail reserved 96", 96, 8),
    field(Tail, "tail reserved 104", 104, 8),
    field(Tail, "footer checksum", 112, 8),
    field(Tail, "tail magic", 120, 8),
];

/// Length of a partition's entry in the first array, in the second, and in both.
pub const FIRST_LEN: usize = 32;
pub const SECOND_LEN: usize = 64;
pub const ENTRY_LEN: usize = FIRST_LEN + SECOND_LEN;

/// The sections that have a checksum, by the names of those.
pub const CHECKSUMS: [&str; 4] =
    ["filter checksum", "control checksum", "slot word checksum", "record checksum"];

impl Field {
    /// Its name in errors.
    pub fn error_name(&self) -> &'static str {
        self.name.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ')
    }
}

/// The fields of one block.
pub fn fields(block: Block) -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(move |field| field.block == block)
}

fn find(blocks: &[Block], name: &str) -> &'static Field {
    let mut fields = blocks.iter().flat_map(|block| fields(*block));
    fields.find(|field| field.name == name).unwrap_or_else(|| panic!("{blocks:?} has no {name}"))
}

/// What a partition's entry in the first array is in this layout.
pub fn first(layout: u8) -> Block {
    if layout == PERFECT { Perfect } else { Probed }
}

/// The field of this name in a partition's two entries.
pub fn entry_field(bytes: &[u8], name: &str) -> &'static Field {
    find(&[first(layout(bytes)), Second], name)
}

/// Where a field of partition `p` lies.
pub fn at(bytes: &[u8], p: usize, name: &str) -> usize {
    let field = entry_field(bytes, name);
    let second = directory(bytes) + FIRST_LEN * partitions(bytes);
    match field.block {
        Second => second + SECOND_LEN * p + field.at,
        _ => directory(bytes) + FIRST_LEN * p + field.at,
    }
}

/// A field of partition `p`.
pub fn entry(bytes: &[u8], p: usize, name: &str) -> u64 {
    get(bytes, at(bytes, p, name), entry_field(bytes, name).width)
}

/// Sets a field of partition `p`.
pub fn set_entry(bytes: &mut [u8], p: usize, name: &str, value: u64) {
    let (at, width) = (at(bytes, p, name), entry_field(bytes, name).width);
    put(bytes, at, width, value);
}

/// Where a field of the tail lies.
pub fn tail_at(bytes: &[u8], name: &str) -> usize {
    tail(bytes) + tail_field(name).at
}

pub fn tail_field(name: &str) -> &'static Field {
    find(&[Tail], name)
}

/// A field of the tail.
pub fn tail_entry(bytes: &[u8], name: &str) -> u64 {
    get(bytes, tail_at(bytes, name), tail_field(name).width)
}

/// Sets a field of the tail.
pub fn set_tail(bytes: &mut [u8], name: &str, value: u64) {
    let at = tail_at(bytes, name);
    put(bytes, at, tail_field(name).width, value);
}

pub fn align(bytes: u64) -> u64 {
    // Wrapping: a damaged table may claim any length.
    bytes.div_ceil(64).wrapping_mul(64)
}

/// A length as a varint.
pub fn varint(mut len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out
}

/// Reads a little-endian field of at most 8 bytes.
pub fn get(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Writes one.
pub fn put(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Offset of the tail.
pub fn tail(bytes: &[u8]) -> usize {
    bytes.len() - TAIL_LEN
}

/// Number of partitions that the tail names.
pub fn partitions(bytes: &[u8]) -> usize {
    1 << tail_entry(bytes, "partition bits")
}

/// Offset of the directory, by the length of the file.
pub fn directory(bytes: &[u8]) -> usize {
    tail(bytes) - ENTRY_LEN * partitions(bytes)
}

/// The layout, by its number.
pub fn layout(bytes: &[u8]) -> u8 {
    tail_entry(bytes, "layout") as u8
}

/// Buckets or homes of partition `p`.
pub fn buckets(bytes: &[u8], p: usize) -> u64 {
    let perfect = layout(bytes) == PERFECT;
    entry(bytes, p, if perfect { "partition buckets" } else { "partition homes" })
}

pub const INLINE: u8 = 1;
pub const TERM_ORDER: u8 = 2;
pub const PERFECT: u8 = 3;

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
pub fn sections(bytes: &[u8], p: usize) -> [Range<usize>; 4] {
    let of = |name| entry(bytes, p, name);
    let (index, pointers) = index_and_pointers(
        layout(bytes),
        tail_entry(bytes, "offset unit") as u8,
        buckets(bytes, p),
        of("partition slots"),
        of("exceptions"),
    );
    let lens = [align(8 * of("filter words")), index, pointers, align(of("record bytes"))];
    let mut from = of("partition offset") as usize;
    lens.map(|len| {
        let section = from..from.wrapping_add(len as usize);
        from = section.end;
        section
    })
}

/// `x / 2^32 × n`, rounded down.
fn scale(x: u64, n: u64) -> u64 {
    ((x >> 32) * n) >> 32
}

/// The number that hashes are multiplied by in a table of so many partition bits, with this seed of the partition.
pub fn multiplier_of(partition_bits: u64, seed: u64) -> u64 {
    match seed {
        0 => 1 << partition_bits,
        seed => 0xd6e8_feb8_6659_fd93u64.wrapping_mul(2 * seed - 1),
    }
}

/// That of partition `p`, by its seed.
fn multiplier(bytes: &[u8], p: usize) -> u64 {
    multiplier_of(tail_entry(bytes, "partition bits"), entry(bytes, p, "partition seed"))
}

/// Bucket and slot of a hash in partition `p` of a perfect table.
pub fn perfect_place(bytes: &[u8], p: usize, hash: u64) -> (u64, u64) {
    let x = hash.wrapping_mul(multiplier(bytes, p));
    let (buckets, slots) = (buckets(bytes, p), entry(bytes, p, "partition slots"));
    let bucket = scale(x, buckets);
    let pilot = u64::from(bytes[sections(bytes, p)[1].start + bucket as usize]);
    let mixed = (x ^ pilot.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (bucket, scale(mixed, slots))
}

/// Where in the file the record of a slot of partition `p` of a perfect table lies. (Slots from the
/// partition's number of slots on are its exceptions.)
pub fn perfect_record(bytes: &[u8], p: usize, slot: u64) -> Range<usize> {
    let of = |name| tail_entry(bytes, name);
    let (unit, per_line) = (of("offset unit"), of("records in a line"));
    let [_, _, lines, records] = sections(bytes, p);
    let (from, to) = if unit == 0 {
        let width = of("value width") + of("longest key");
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
pub fn perfect_sections(
    bytes: &[u8],
    p: usize,
    records: &[(u64, Vec<u8>, Vec<u8>)],
) -> [Vec<u8>; 4] {
    let [unit, per_line] =
        ["offset unit", "records in a line"].map(|name| tail_entry(bytes, name) as usize);
    let [buckets, slots, words] = ["partition buckets", "partition slots", "filter words"]
        .map(|name| entry(bytes, p, name) as usize);
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
    assert_eq!((at_slot.len() - slots) as u64, entry(bytes, p, "exceptions"), "exceptions");

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
    assert_eq!(end as u64, entry(bytes, p, "record bytes"), "record bytes");
    sections
}

/// The footer's checksum: over directory and tail up to the checksum itself.
pub fn footer_sum(bytes: &[u8]) -> u64 {
    xxh3_64(&bytes[directory(bytes)..tail_at(bytes, "footer checksum")])
}

/// Makes what follows from other fields of the directory right again: where sections begin, multipliers, and
/// the sums of the tail.
pub fn repair_entries(bytes: &mut [u8]) {
    const SUMS: [(&str, &str); 3] =
        [("keys", "partition keys"), ("slots", "partition slots"), ("exceptions", "exceptions")];
    let mut sums = [0; 3];
    for p in 0..partitions(bytes) {
        let [_, index, _, records] = sections(bytes, p).map(|section| section.start as u64);
        if layout(bytes) == PERFECT {
            set_entry(bytes, p, "pilots offset", index);
            let multiplier = multiplier(bytes, p);
            set_entry(bytes, p, "multiplier", multiplier);
        } else {
            set_entry(bytes, p, "control offset", index);
        }
        set_entry(bytes, p, "records offset", records);
        for (sum, (_, name)) in sums.iter_mut().zip(SUMS) {
            *sum += entry(bytes, p, name);
        }
    }
    for ((name, _), sum) in SUMS.into_iter().zip(sums) {
        set_tail(bytes, name, sum);
    }
}

/// Whether the bytes have room for a footer of so many partition bits as they name.
pub fn has_footer(bytes: &[u8]) -> bool {
    let bits = tail_entry(bytes, "partition bits");
    bits <= 16 && bytes.len() >= TAIL_LEN + (ENTRY_LEN << bits)
}

/// Makes the footer's checksum right again, if partition bits and length leave room for a footer.
pub fn repair_footer(bytes: &mut [u8]) {
    if has_footer(bytes) {
        let sum = footer_sum(bytes);
        set_tail(bytes, "footer checksum", sum);
    }
}

/// Makes all checksums right again. The directory must be sound.
pub fn repair_all(bytes: &mut [u8]) {
    for p in 0..partitions(bytes) {
        for (section, name) in sections(bytes, p).into_iter().zip(CHECKSUMS) {
            let sum = if section.is_empty() { 0 } else { xxh3_64(&bytes[section]) };
            set_entry(bytes, p, name, sum);
        }
    }
    repair_footer(bytes);
}

/// A partition's entry, for footers without a body.
#[derive(Clone, Copy, Default)]
pub struct RawPartition {
    pub keys: u64,
    /// Perfect: buckets.
    pub homes: u64,
    pub slots: u64,
    /// Not perfect.
    pub probe_limit: u64,
    /// Perfect.
    pub exceptions: u64,
    /// Perfect.
    pub seed: u64,
    pub filter_words: u64,
    pub record_bytes: u64,
}

impl RawPartition {
    /// As the builder would make it, with `extra` slots past the last home.
    pub fn new(keys: u64, filter_bits: u64, extra: u64) -> Self {
        let homes = keys + keys.div_ceil(3);
        Self {
            keys,
            homes,
            slots: homes + extra,
            probe_limit: keys.min(100),
            filter_words: (keys * filter_bits).div_ceil(64),
            ..Self::default()
        }
    }

    /// As the builder would make it for a perfect table, with so many exceptions.
    pub fn perfect(keys: u64, filter_bits: u64, exceptions: u64) -> Self {
        let placed = keys - exceptions;
        Self {
            keys,
            homes: placed.div_ceil(3),
            slots: (placed * 100).div_ceil(99),
            exceptions,
            filter_words: (keys * filter_bits).div_ceil(64),
            ..Self::default()
        }
    }
}

/// A table whose body nobody holds.
#[derive(Clone)]
pub struct RawFooter {
    pub layout: u8,
    pub value_kind: u8,
    pub value_width: u8,
    pub filter_bits: u8,
    pub records_per_line: u8,
    pub unit: u8,
    pub min_key_len: u64,
    pub max_key_len: u64,
    pub partitions: Vec<RawPartition>,
}

impl RawFooter {
    /// Lengths of the sections of a partition, padding included.
    pub fn section_lens(&self, p: &RawPartition) -> [u64; 4] {
        let (index, pointers) =
            index_and_pointers(self.layout, self.unit, p.homes, p.slots, p.exceptions);
        [align(8 * p.filter_words), index, pointers, align(p.record_bytes)]
    }

    /// Offset of each partition, and of the directory behind them.
    pub fn offsets(&self) -> Vec<u64> {
        let mut at = HEAD_LEN as u64;
        let mut offsets = vec![at];
        for partition in &self.partitions {
            at += self.section_lens(partition).iter().sum::<u64>();
            offsets.push(at);
        }
        offsets
    }

    /// Length of the file.
    pub fn file_len(&self) -> u64 {
        self.offsets()[self.partitions.len()]
            + (ENTRY_LEN * self.partitions.len() + TAIL_LEN) as u64
    }

    /// Directory and tail.
    pub fn encode(&self) -> Vec<u8> {
        let n = self.partitions.len();
        assert!(n.is_power_of_two());
        let mut out = vec![0; ENTRY_LEN * n + TAIL_LEN];
        let bits = u64::from(n.trailing_zeros());
        // First what says where all else is.
        set_tail(&mut out, "partition bits", bits);
        set_tail(&mut out, "layout", self.layout.into());
        let offsets = self.offsets();
        let perfect = self.layout == PERFECT;
        let [index, homes] = match perfect {
            true => ["pilots offset", "partition buckets"],
            false => ["control offset", "partition homes"],
        };
        for (p, partition) in self.partitions.iter().enumerate() {
            let [filter, before @ .., _] = self.section_lens(partition);
            let index_at = offsets[p] + filter;
            let mut set = |name, value| set_entry(&mut out, p, name, value);
            set(index, index_at);
            set("records offset", index_at + before.iter().sum::<u64>());
            set(homes, partition.homes);
            set("partition slots", partition.slots);
            if perfect {
                set("multiplier", multiplier_of(bits, partition.seed));
            } else {
                set("probe limit", partition.probe_limit);
            }
            set("partition offset", offsets[p]);
            set("filter words", partition.filter_words);
            set("partition keys", partition.keys);
            set("exceptions", partition.exceptions);
            set("partition seed", partition.seed);
            set("record bytes", partition.record_bytes);
        }
        let sum = |of: fn(&RawPartition) -> u64| self.partitions.iter().map(of).sum::<u64>();
        let keys = sum(|p| p.keys);
        for (name, value) in [
            ("version", 1),
            ("hash", 1),
            ("value kind", self.value_kind.into()),
            ("value width", self.value_width.into()),
            ("filter bits", self.filter_bits.into()),
            ("filter bits set", if self.filter_bits == 0 { 0 } else { 5 }),
            ("records in a line", self.records_per_line.into()),
            ("shortest key", self.min_key_len),
            ("longest key", self.max_key_len),
            ("offset unit", self.unit.into()),
            ("hash check", KeyHasher::new(0).check_value()),
            ("keys", keys),
            ("slots", sum(|p| p.slots)),
            ("key bytes", keys.saturating_mul(self.max_key_len)),
            ("file length", self.file_len()),
            ("directory offset", offsets[n]),
            ("exceptions", sum(|p| p.exceptions)),
            ("tail magic", u64::from_le_bytes(*b"pkh-tail")),
        ] {
            set_tail(&mut out, name, value);
        }
        repair_footer(&mut out);
        out
    }
}
