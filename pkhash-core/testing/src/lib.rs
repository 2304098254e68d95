//! Shared by the tests of pkhash-core, pkhash-simd and pkhash-std, and by the fuzz targets: building, a device for
//! [`Lookup`], kernels of other widths, and the battery that every table, good or damaged, has to survive. It needs
//! nothing but pkhash-core, since its users run on machines that have little.

#![forbid(unsafe_code)]
// Tests are what reads this.
#![allow(missing_docs, missing_debug_implementations, clippy::should_implement_trait)]

pub mod craft;
pub mod footers;
pub mod raw;
pub mod recipes;

use std::cell::Cell;
use std::collections::BTreeMap;

use pkhash_core::builder::{self, Entry, KeyStats, PerfectShape, TableOptions, ValueChoice};
use pkhash_core::hash::{EMPTY, partition};
use pkhash_core::segment_map::{LINE_TAGS, MapLine};
use pkhash_core::{
    CHUNK, Error, FixedKeys, Footer, GROUP_MAX, HashedKeys, Kernel, Layout, Lookup, Matches,
    Result, Scalar, Stage, Table, Value, ValueFormat,
};

/// Key and value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// SplitMix64: small, and the same numbers on every machine.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// CI says which machine it believes to test: `PKHASH_EXPECT_ARCH`, as [`std::env::consts::ARCH`].
pub fn assert_expected_arch() {
    let Ok(expected) = std::env::var("PKHASH_EXPECT_ARCH") else { return };
    let (big_endian, pointer_width) = match expected.as_str() {
        "x86_64" | "aarch64" => (false, 64),
        "x86" => (false, 32),
        "s390x" => (true, 64),
        _ => panic!("PKHASH_EXPECT_ARCH={expected}: add it here"),
    };
    assert_eq!(std::env::consts::ARCH, expected);
    // Asked of the machine itself.
    assert_eq!(0x0102u16.to_ne_bytes() == [1, 2], big_endian);
    assert_eq!(usize::BITS, pointer_width);
}

/// Builds a table of these pairs with buffers of just the size needed.
pub fn try_build(options: &TableOptions, pairs: &[Pair]) -> Result<Vec<u8>> {
    let mut entries: Vec<Entry<'_>> =
        pairs.iter().map(|(key, value)| options.entry(key, value)).collect();
    let mut spare = vec![Entry::default(); entries.len()];
    let mut scratch = vec![!0; scratch_len(options, pairs)];
    builder::sort(&mut entries, &mut spare)?;
    let mut out = vec![0xaa; builder::table_len(options, &entries)?];
    let len = builder::build(Scalar, options, &mut entries, &mut spare, &mut scratch, &mut out)?;
    assert_eq!(len, out.len());
    Ok(out)
}

/// Words of scratch with which a table of these pairs can be built: more than `builder::scratch_len`
/// only for another shape.
pub fn scratch_len(options: &TableOptions, pairs: &[Pair]) -> usize {
    let n = pairs.len();
    if options.shape == PerfectShape::default() {
        return builder::scratch_len(n);
    }
    // Any plan of this shape will do.
    let value = ValueChoice::Fixed(ValueFormat::opaque(0).expect("a width that values have"));
    let plan = (*options).value(value).plan(&KeyStats::default());
    plan.map_or(0, |plan| plan.scratch_len(n)).max(builder::scratch_len(n))
}

/// [`try_build`] of pairs that a table can be made of.
pub fn build(options: &TableOptions, pairs: &[Pair]) -> Vec<u8> {
    try_build(options, pairs).expect("a table can be made of these")
}

/// The layouts that are probed.
pub const PROBED: [Layout; 2] = [Layout::Inline, Layout::TermOrder];

/// A table of this layout with doc IDs.
pub fn doc_ids(layout: Layout) -> TableOptions {
    TableOptions::default().layout(layout).value(ValueFormat::integer(4).unwrap())
}

/// A kernel of another width (a power of two), as plain as it can be.
#[derive(Clone, Copy)]
pub struct Wide<const W: u32>;

impl<const W: u32> Kernel for Wide<W> {
    const WIDTH: u32 = W;

    fn name(self) -> &'static str {
        "test"
    }

    fn match_group(self, group: &[u8; GROUP_MAX], control: u8) -> Matches {
        let mut matches = Matches::default();
        for (i, byte) in group.iter().enumerate().take(W as usize) {
            matches.hits |= u64::from(*byte == control) << i;
            matches.empty |= u64::from(*byte == EMPTY) << i;
        }
        matches
    }

    fn match_tags(self, line: &MapLine, tag: u16) -> u32 {
        let tags =
            line.chunks_exact(2).take(LINE_TAGS).map(|tag| u16::from_le_bytes([tag[0], tag[1]]));
        tags.enumerate().fold(0, |hits, (i, found)| hits | u32::from(found == tag) << i)
    }

    fn prefetch(self, _data: &[u8], _at: usize) {}
}

/// Counts what a probe compares.
#[derive(Clone, Copy)]
pub struct Counting<'c> {
    /// Occupied slots whose control byte was compared.
    pub compared: &'c Cell<u64>,
    /// Those among them that were equal.
    pub equal: &'c Cell<u64>,
}

impl Kernel for Counting<'_> {
    // One slot at a time, so that no slot counts that the probe did not come to.
    const WIDTH: u32 = 1;

    fn name(self) -> &'static str {
        "counting"
    }

    fn match_group(self, group: &[u8; GROUP_MAX], control: u8) -> Matches {
        let (hit, empty) = (group[0] == control, group[0] == 0);
        self.compared.set(self.compared.get() + u64::from(!empty));
        self.equal.set(self.equal.get() + u64::from(hit));
        Matches { hits: hit.into(), empty: empty.into() }
    }

    fn match_tags(self, line: &MapLine, tag: u16) -> u32 {
        // Not part of a probe.
        Scalar.match_tags(line, tag)
    }

    fn prefetch(self, _data: &[u8], _at: usize) {}
}

/// What a lookup read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    pub filter: u64,
    pub lines: u64,
    pub slot_words: u64,
    pub pilots: u64,
    pub offset_lines: u64,
    pub records: u64,
    pub bytes: u64,
}

/// Runs a [`Lookup`] over bytes that stand for a device, and checks that it asks for nothing outside
/// of the body, and for no more than FORMAT.md §7 allows.
pub fn lookup(data: &[u8], footer: &Footer, key: &[u8]) -> Result<(Option<Vec<u8>>, Reads)> {
    let end = &data[data.len() - footer.footer_len()..];
    let mut reads = Reads::default();
    let mut state = Lookup::new(footer, end, key)?;
    let mut found = None;
    while let Some(want) = state.want() {
        let from = usize::try_from(want.offset).expect("inside of the table");
        assert!(from + want.len <= data.len() - end.len(), "{want:?} of {} bytes", data.len());
        *match want.stage {
            Stage::Filter => &mut reads.filter,
            Stage::Control => &mut reads.lines,
            Stage::SlotWord => &mut reads.slot_words,
            Stage::Pilot => &mut reads.pilots,
            Stage::OffsetLine => &mut reads.offset_lines,
            Stage::Record => &mut reads.records,
            stage => panic!("{stage:?} is counted nowhere"),
        } += 1;
        reads.bytes += want.len as u64;
        if let Some(value) = state.supply(&data[from..from + want.len])? {
            found = Some(value.as_bytes().to_vec());
            assert_eq!(state.want(), None, "a lookup that has found its key wants nothing");
        }
    }
    let p = partition(footer.hasher().hash(key), footer.partition_bits()) as usize;
    let of = |name| raw::entry(data, p, name);
    if footer.layout() == Layout::Perfect {
        assert_bounded_perfect(footer, of("partition slots"), of("exceptions"), key, &reads);
    } else {
        assert_bounded(footer, of("probe limit"), key, &reads);
    }
    Ok((found, reads))
}

/// The bound of FORMAT.md §7.2.
fn assert_bounded_perfect(footer: &Footer, slots: u64, exceptions: u64, key: &[u8], reads: &Reads) {
    let (len, longest) = (key.len() as u64, u64::from(footer.max_key_len()));
    let unit = u64::from(footer.unit());
    // The empty key, where its record would have no bytes.
    let no_bytes = unit == 1 && footer.value().width() == 0 && len == 0;
    let too_long = if unit == 0 { len != longest } else { len > longest };
    if too_long || no_bytes || slots == 0 {
        assert_eq!(*reads, Reads::default(), "no key of {len} bytes");
        return;
    }
    let value_width = u64::from(footer.value().width());
    let record = match unit {
        0 | 1 => value_width + len,
        _ => (value_width + len + 1).next_multiple_of(unit),
    };
    let slots = 1 + exceptions;
    let lines = if unit == 0 { 0 } else { slots };
    assert!(
        reads.filter == u64::from(footer.filter_bits() > 0)
            && reads.pilots <= 1
            && reads.offset_lines <= lines
            && reads.records <= slots
            && (reads.lines, reads.slot_words) == (0, 0)
            && reads.bytes <= 8 * reads.filter + 1 + 64 * lines + slots * record,
        "{reads:?}, {slots} slots, records of {record}"
    );
}

/// The bound of FORMAT.md §7.1.
fn assert_bounded(footer: &Footer, limit: u64, key: &[u8], reads: &Reads) {
    let term_order = footer.layout() == Layout::TermOrder;
    let varint = if term_order { raw::varint(key.len()).len() as u64 } else { 0 };
    let record = u64::from(footer.value().width()) + varint + key.len() as u64;
    let words = if term_order { limit } else { 0 };
    let lines = if limit == 0 { 0 } else { (limit + 63).div_ceil(64) };
    assert!(
        reads.filter <= 1
            && reads.lines <= lines
            && reads.slot_words <= words
            && reads.records <= limit
            && reads.bytes <= 8 + 64 * lines + 8 * words + limit * record,
        "{reads:?}, probe limit {limit}"
    );
}

/// Whatever the table's bytes: everything ends, nothing panics, and all ways to ask for a key give
/// one answer, with kernels of every width. `keys` are looked up one by one and as a batch.
pub fn exercise(table: &Table<'_>, keys: &[impl AsRef<[u8]>]) {
    walk(table);
    ask(table, keys);
}

/// The doc ID of a key is that of its value, if the table's values have one.
fn assert_doc_id(table: &Table<'_>, key: &[u8]) {
    let expected = match table.footer().value().width() {
        1..=4 | 9.. => table.get(Scalar, key).map(|value| value.and_then(Value::doc_id)),
        width => Err(Error::ValueWidth { expected: 4, found: width.into() }),
    };
    assert_eq!(table.get_doc_id(Scalar, key), expected, "doc ID of {key:02x?}");
    assert_eq!(table.get_doc_id(Wide::<64>, key), expected, "doc ID of {key:02x?}");
}

/// [`exercise`] without reading all records.
pub fn ask(table: &Table<'_>, keys: &[impl AsRef<[u8]>]) {
    let footer = table.footer();
    let owned = |value: Option<Value<'_>>| value.map(|value| value.as_bytes().to_vec());
    let mut singles = Vec::with_capacity(keys.len());
    for key in keys {
        let key = key.as_ref();
        let single = table.get(Scalar, key).map(owned);
        let hash = footer.hasher().hash(key);
        assert_eq!(table.get(Wide::<64>, key).map(owned), single);
        assert_eq!(table.get_hashed(Wide::<1>, hash, key).map(owned), single);
        assert_eq!(table.get(Wide::<32>, key).map(owned), single);
        assert_doc_id(table, key);
        let staged = lookup(table.as_bytes(), footer, key);
        assert_eq!(staged.map(|found| found.0), single);
        if single.as_ref().is_ok_and(Option::is_some) {
            assert!(table.filter_admits(hash));
        }
        singles.push(single);
    }
    let mut out = vec![None::<Value<'_>>; keys.len()];
    let batch = table.get_batch(Scalar, keys, &mut out);
    let hashes: Vec<u64> = keys.iter().map(|key| footer.hasher().hash(key.as_ref())).collect();
    let with_hashes = HashedKeys { keys, hashes: &hashes };
    let mut hashed = vec![None::<Value<'_>>; keys.len()];
    let batch_hashed = table.get_batch(Wide::<32>, with_hashes, &mut hashed);
    let mut there = vec![false; keys.len()];
    let batch_there = table.get_batch(Wide::<16>, keys, &mut there);
    assert_eq!((batch_hashed.is_ok(), batch_there.is_ok()), (batch.is_ok(), batch.is_ok()));
    if batch.is_ok() {
        assert_eq!((&batch_hashed, &hashed), (&batch, &out));
        assert_eq!(batch_there, batch);
        assert!(there.iter().copied().eq(out.iter().map(Option::is_some)));
    }
    match singles.into_iter().collect::<Result<Vec<_>>>() {
        Ok(singles) => {
            assert_eq!(batch, Ok(singles.iter().flatten().count()));
            assert_eq!(out.into_iter().map(owned).collect::<Vec<_>>(), singles);
        }
        Err(_) => assert!(batch.is_err(), "one of the keys alone is an error"),
    }
}

/// Reads all records of a table, whatever its bytes.
pub fn walk(table: &Table<'_>) {
    let footer = table.footer();
    let exceptions = |p| table.partition(p).map_or(0, |entry| u64::from(entry.exceptions));
    let slots = footer.slots() + (0..footer.partitions()).map(exceptions).sum::<u64>();
    assert!(table.iter().count() as u64 <= slots);
    // What is said before each step holds of what comes.
    let mut records = table.iter();
    loop {
        let (least, most) = records.size_hint();
        let left = records.clone().count();
        assert!(least <= left && most.is_none_or(|most| left <= most), "{records:?}");
        // Not after each one: counting what is left takes the square.
        if records.by_ref().nth(left / 2).is_none() {
            break;
        }
    }
    assert_eq!(records.size_hint().1, Some(0), "{records:?}");
    let (first, last) = (footer.hasher().hash(b"first"), footer.hasher().hash(b"last"));
    assert!(table.range(first, last).count() as u64 <= slots);
    assert!(table.range(last, first).count() as u64 <= slots);
}

/// A sound table against its model.
pub fn check(table: &Table<'_>, model: &BTreeMap<Vec<u8>, Vec<u8>>, absent: &[Vec<u8>]) {
    let footer = table.footer();
    table.verify().expect("a sound table");
    assert_eq!(table.len(), model.len() as u64);
    assert_eq!(table.is_empty(), model.is_empty());
    let expected = |key: &[u8]| model.get(key).cloned();
    let owned = |value: Option<Value<'_>>| value.map(|value| value.as_bytes().to_vec());

    // Hits and misses in turn, so that chunks are mixed.
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut absent = absent.iter();
    for key in model.keys() {
        keys.push(key);
        keys.extend(absent.next().map(Vec::as_slice));
    }
    keys.extend(absent.map(Vec::as_slice));
    // There or not: a record of nothing is easily found where nothing is.
    keys.push(b"");
    for key in &keys {
        assert_eq!(owned(table.get(Scalar, key).unwrap()), expected(key), "get of {key:02x?}");
        assert_doc_id(table, key);
        let (staged, _) = lookup(table.as_bytes(), footer, key).unwrap();
        assert_eq!(staged, expected(key), "staged lookup of {key:02x?}");
        if model.contains_key(*key) {
            assert!(table.filter_admits(footer.hasher().hash(key)));
        }
    }
    for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, keys.len()] {
        let keys = &keys[..len.min(keys.len())];
        for kernel_width in [8, 64] {
            // Not None, so that every place must be written.
            let any = table.get(Scalar, keys.first().unwrap_or(&&b""[..])).unwrap();
            let mut out = vec![any; keys.len()];
            let found = match kernel_width {
                8 => table.get_batch(Scalar, keys, &mut out),
                _ => table.get_batch(Wide::<64>, keys, &mut out),
            };
            let is_there: Vec<bool> = keys.iter().map(|key| model.contains_key(*key)).collect();
            assert_eq!(found, Ok(is_there.iter().filter(|there| **there).count()));
            for (key, value) in keys.iter().zip(&out) {
                assert_eq!(owned(*value), expected(key), "batch, {key:02x?}");
            }
            let hashes: Vec<u64> = keys.iter().map(|key| footer.hasher().hash(key)).collect();
            let with_hashes = HashedKeys { keys, hashes: &hashes };
            let mut hashed = vec![any; keys.len()];
            let found_hashed = match kernel_width {
                8 => table.get_batch(Scalar, with_hashes, &mut hashed),
                _ => table.get_batch(Wide::<64>, with_hashes, &mut hashed),
            };
            assert_eq!((found_hashed, &hashed), (found, &out), "batch with hashes");
            // Answers that all are wrong.
            let mut there: Vec<bool> = is_there.iter().map(|there| !there).collect();
            let found_there = match kernel_width {
                8 => table.get_batch(Scalar, keys, &mut there),
                _ => table.get_batch(Wide::<64>, with_hashes, &mut there),
            };
            assert_eq!((found_there, there), (found, is_there), "batch of bools");
            let mut doc_ids = vec![Some(u32::MAX); keys.len()];
            let found_ids = match kernel_width {
                8 => table.get_batch(Scalar, keys, &mut doc_ids),
                _ => table.get_batch(Wide::<64>, with_hashes, &mut doc_ids),
            };
            if matches!(footer.value().width(), 0 | 5..=8) {
                assert!(matches!(found_ids, Err(Error::ValueWidth { expected: 4, .. })));
            } else {
                assert_eq!(found_ids, found);
                let expected = out.iter().map(|value| value.and_then(Value::doc_id));
                assert!(expected.eq(doc_ids), "doc IDs of a batch");
            }
        }
    }

    // The keys of each length in one buffer.
    let mut by_len: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
    for key in &keys {
        by_len.entry(key.len()).or_default().push(key);
    }
    for (len, keys) in by_len.into_iter().filter(|(len, _)| *len > 0) {
        let buffer = keys.concat();
        let fixed = FixedKeys::new(&buffer, len).expect("keys of one length");
        assert_eq!(fixed.len(), keys.len());
        let mut out = vec![None::<Value<'_>>; keys.len()];
        let found = table.get_batch(Scalar, fixed, &mut out);
        assert_eq!(found, Ok(out.iter().flatten().count()));
        let mut there = vec![false; keys.len()];
        assert_eq!(table.get_batch(Wide::<32>, fixed, &mut there), found);
        for ((key, value), there) in keys.iter().zip(out).zip(there) {
            assert_eq!(owned(value), expected(key), "fixed batch, {key:02x?}");
            assert_eq!(there, model.contains_key(*key), "fixed batch of bools, {key:02x?}");
        }
    }

    let all: Vec<(u64, Vec<u8>, Vec<u8>)> = table
        .iter()
        .map(|record| record.expect("a sound record"))
        .map(|(key, value)| (footer.hasher().hash(key), key.to_vec(), value.as_bytes().to_vec()))
        .collect();
    let p = |hash: u64| partition(hash, footer.partition_bits());
    if footer.layout() == Layout::Perfect {
        assert!(all.is_sorted_by_key(|record| p(record.0)), "partitions in the order of hashes");
        check_perfect(table, &all);
    } else {
        assert!(all.is_sorted_by(|a, b| (a.0, &a.1) < (b.0, &b.1)), "in the order of hash and key");
    }
    let by_partition = (0..=footer.partitions()).flat_map(|p| table.iter_partition(p));
    assert!(by_partition.eq(table.iter()), "the partitions one by one");
    let back: BTreeMap<_, _> = all.iter().map(|(_, key, value)| (key, value)).collect();
    assert!(back.len() == all.len() && back.into_iter().eq(model), "iter is the model");
    assert_eq!(table.into_iter().count(), all.len());

    let mut rng = Rng(all.len() as u64);
    let mut edges: Vec<u64> = (0..6).map(|_| rng.next()).collect();
    edges.extend([0, u64::MAX]);
    // Hashes that occur, and their neighbours: both ends belong to the range.
    for (hash, ..) in all.iter().step_by(all.len().div_ceil(2).max(1)) {
        edges.extend([*hash, hash.wrapping_sub(1), hash.wrapping_add(1)]);
    }
    for first in &edges {
        for last in &edges {
            let range: Vec<_> = table
                .range(*first, *last)
                .map(|record| record.expect("a sound record"))
                .map(|(hash, key, value)| (hash, key.to_vec(), value.as_bytes().to_vec()))
                .collect();
            let filtered = all.iter().filter(|(hash, ..)| (*first..=*last).contains(hash));
            assert!(range.iter().eq(filtered), "{first:#x}..={last:#x}");
        }
    }
}

/// A perfect table against FORMAT.md: with its pilots given, every other byte of the body is too.
/// `all`: its records, with their hashes, in the order of partitions.
fn check_perfect(table: &Table<'_>, all: &[(u64, Vec<u8>, Vec<u8>)]) {
    let (bytes, bits) = (table.as_bytes(), table.footer().partition_bits());
    let mut rest = all;
    for p in 0..1 << bits {
        let (mine, others) = rest.split_at(rest.partition_point(|r| partition(r.0, bits) <= p));
        rest = others;
        let expected = raw::perfect_sections(bytes, p as usize, mine);
        let found = raw::sections(bytes, p as usize);
        for (found, (expected, name)) in found.into_iter().zip(expected.into_iter().zip([
            "filter",
            "pilots",
            "offset lines",
            "records",
        ])) {
            assert!(bytes[found] == expected, "{name} of partition {p}");
        }
    }
}
