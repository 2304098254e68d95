//! Lookups by every length of key and width of value: some of them have code of their own, and so have
//! tables of few pilots. All ways to ask agree with a model.

use pkhash_core_testing as common;

use std::cell::Cell;
use std::collections::BTreeMap;

use common::footers::{perfect, perfect_bytes, spans};
use common::raw::{self, RawFooter, RawPartition};
use common::{Pair, Rng, build, check};
use pkhash_core::builder::{LayoutChoice, PerfectShape, TableOptions, ValueChoice};
use pkhash_core::hash::partition;
use pkhash_core::segment_map::MapLine;
use pkhash_core::{
    GROUP_MAX, HashedKeys, Kernel, KeyHasher, Layout, Matches, Scalar, Table, Value, ValueFormat,
    format, get_batch_of,
};

/// The lengths of keys that have code of their own.
const DIRECT: [usize; 5] = [8, 10, 16, 20, 36];

fn options(layout: Layout, value: ValueFormat) -> TableOptions {
    TableOptions::default().layout(layout).value(value).filter_bits(0)
}

/// Keys of one length, as many as there can be up to `n`.
fn keys(rng: &mut Rng, len: usize, n: usize) -> Vec<Vec<u8>> {
    let n = if len < 2 { n.min(1 + 40 * len) } else { n };
    let mut keys = std::collections::BTreeSet::new();
    while keys.len() < n {
        keys.insert(rng.bytes(len));
    }
    keys.into_iter().collect()
}

/// Keys that are not in a table of these, or may not be: of all lengths near by, of those that have code
/// of their own, and some that differ in one byte from one that is there.
fn strangers(rng: &mut Rng, keys: &[Vec<u8>], len: usize) -> Vec<Vec<u8>> {
    let mut strangers: Vec<Vec<u8>> = (0..30).map(|_| rng.bytes(len)).collect();
    for key in keys.iter().take(9) {
        for at in [0, len / 2, len.wrapping_sub(1)] {
            let mut other = key.clone();
            if let Some(byte) = other.get_mut(at) {
                *byte ^= 0x10;
                strangers.push(other);
            }
        }
        strangers.push([key, &b"+"[..]].concat());
        strangers.push(key[..len.saturating_sub(1)].to_vec());
        strangers.extend(DIRECT.map(|other| {
            let mut key = key.clone();
            key.resize(other, 0);
            key
        }));
    }
    strangers
}

/// Builds a table of these keys, and asks it in all ways for them and for others. Returns its facts.
fn build_and_check(options: &TableOptions, keys: &[Vec<u8>], strangers: &[Vec<u8>]) -> Facts {
    let width = match options.value {
        ValueChoice::Fixed(value) => usize::from(value.width()),
        ValueChoice::Auto => unreachable!("the tests of this file fix it"),
    };
    let mut rng = Rng(keys.len() as u64);
    // The highest bits set: what is too wide for a doc ID, or cut, shows.
    let mut value = || rng.bytes(width).into_iter().map(|byte| byte | 0x80).collect();
    let pairs: Vec<Pair> = keys.iter().map(|key| (key.clone(), value())).collect();
    let bytes = build(options, &pairs);
    let table = Table::open(&bytes).unwrap();
    let model: BTreeMap<Vec<u8>, Vec<u8>> = pairs.into_iter().collect();
    let absent: Vec<Vec<u8>> =
        strangers.iter().filter(|key| !model.contains_key(*key)).cloned().collect();
    check(&table, &model, &absent);

    let partitions: Vec<_> =
        (0..table.footer().partitions()).filter_map(|p| table.partition(p)).collect();
    let facts = Facts {
        exceptions: table.footer().exceptions(),
        empty: partitions.iter().any(|partition| partition.keys == 0),
        lines: table.footer().unit() != 0,
    };
    // The shortest path is for such keys and such tables, and for no others.
    let direct = options.layout == LayoutChoice::Fixed(Layout::Perfect)
        && options.filter_bits == Some(0)
        && facts == Facts::default();
    for key in model.keys().chain(&absent) {
        let found = model.get(key).map(Vec::as_slice);
        let takes = direct
            && key.len() == table.footer().max_key_len() as usize
            && DIRECT.contains(&key.len());
        let answer = table.get_direct(None, key);
        assert_eq!(
            answer.map(|value: Option<Value<'_>>| value.map(Value::as_bytes)),
            takes.then_some(found)
        );
        let takes = takes && (1..=4).contains(&width);
        assert_eq!(table.get_direct::<Option<u32>>(None, key).is_some(), takes, "{width} bytes");
    }
    facts
}

/// What keeps a lookup from the shortest path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Facts {
    exceptions: u64,
    empty: bool,
    lines: bool,
}

#[test]
fn keys_of_every_length() {
    let mut rng = Rng(0x1e7);
    let value = ValueFormat::integer(4).unwrap();
    for len in 0..=70 {
        let held = keys(&mut rng, len, 60);
        let others = strangers(&mut rng, &held, len);
        for layout in Layout::all() {
            if layout == Layout::Inline && len > 31 {
                continue;
            }
            let options = options(layout, value);
            build_and_check(&options, &held, &others);
            build_and_check(&options.filter_bits(10), &held, &others);
            // More partitions than keys.
            let many = options.partition_bits(7);
            assert!(build_and_check(&many, &held, &others).empty);
            let many = many.filter_bits(9);
            build_and_check(&many, &held, &others);
        }
        // Back to back, in few slots and in many.
        let packed = options(Layout::Perfect, value).packed(true);
        build_and_check(&packed, &held, &others);
        for (keys_per_100_buckets, keys_per_1000_slots) in [(100, 500), (400, 980)] {
            let shape = PerfectShape::default()
                .keys_per_100_buckets(keys_per_100_buckets)
                .keys_per_1000_slots(keys_per_1000_slots);
            build_and_check(&packed.shape(shape), &held, &others);
        }
        // Few hashes, so that some keys have no slot of their own.
        if len > 1 {
            for partition_bits in [0, 2] {
                let options = options(Layout::Perfect, value)
                    .hasher(KeyHasher::truncated(1, 5))
                    .partition_bits(partition_bits);
                assert!(build_and_check(&options, &held, &others).exceptions > 9);
                let options = options.filter_bits(10);
                assert!(build_and_check(&options, &held, &others).exceptions > 9);
            }
        }
    }
}

#[test]
fn keys_of_every_length_over_many_partitions() {
    // All of them with keys, so that the shortest path is open; and of a set that has one of each length.
    let mut rng = Rng(0x9a2);
    for len in DIRECT.into_iter().chain([2, 9, 31, 64]) {
        let held = keys(&mut rng, len, 600);
        let others = strangers(&mut rng, &held, len);
        for partition_bits in 0..=5 {
            let value = ValueFormat::integer(3).unwrap();
            let options = options(Layout::Perfect, value).partition_bits(partition_bits);
            let facts = build_and_check(&options, &held, &others);
            assert_eq!(facts, Facts::default(), "{len}, {partition_bits}");
        }
    }
    let mixed: Vec<Vec<u8>> = (0..=70).map(|len| rng.bytes(len)).collect();
    let others: Vec<Vec<u8>> = (0..=80).map(|len| rng.bytes(len)).collect();
    for layout in [Layout::TermOrder, Layout::Perfect] {
        for filter_bits in [0, 10] {
            let value = ValueFormat::integer(4).unwrap();
            let options = options(layout, value).filter_bits(filter_bits);
            let facts = build_and_check(&options, &mixed, &others);
            assert_eq!(facts.lines, layout == Layout::Perfect);
        }
    }
}

/// A doc ID is that of the value, whoever reads it: one key, a batch, or the value's own method.
#[test]
fn doc_ids_of_every_value_width() {
    let mut rng = Rng(0xd0c);
    let integers = (1..=8).map(ValueFormat::integer);
    for value in integers.chain((0..=12).map(ValueFormat::opaque)) {
        let value = value.unwrap();
        for len in DIRECT.into_iter().chain([0, 7, 30]) {
            let held = keys(&mut rng, len, 50);
            let others = strangers(&mut rng, &held, len);
            for layout in Layout::all() {
                if layout == Layout::Inline && len > 31 {
                    continue;
                }
                build_and_check(&options(layout, value), &held, &others);
            }
            let packed = options(Layout::Perfect, value).packed(true);
            build_and_check(&packed, &held, &others);
        }
        let mixed: Vec<Vec<u8>> = (0..40).map(|len| rng.bytes(len)).collect();
        build_and_check(&options(Layout::Perfect, value), &mixed, &[]);
    }
}

/// Counts what is prefetched of some bytes of a table.
#[derive(Clone, Copy)]
struct Prefetches<'c> {
    of: (usize, usize),
    count: &'c Cell<usize>,
}

impl Kernel for Prefetches<'_> {
    const WIDTH: u32 = Scalar::WIDTH;

    fn name(self) -> &'static str {
        "prefetches"
    }

    fn match_group(self, group: &[u8; GROUP_MAX], control: u8) -> Matches {
        Scalar.match_group(group, control)
    }

    fn match_tags(self, line: &MapLine, tag: u16) -> u32 {
        Scalar.match_tags(line, tag)
    }

    fn prefetch(self, _data: &[u8], at: usize) {
        self.count.set(self.count.get() + usize::from((self.of.0..self.of.1).contains(&at)));
    }
}

/// Pilots that a batch takes to be in a cache: it prefetches those of tables that have more.
const MOST_CACHED_PILOTS: u64 = 512 << 10;

/// A perfect table with so many pilots, all of them 0, of which some slots hold keys: larger than a test
/// would build. With offset lines if there is a unit. Returns its bytes, and the keys.
fn sparse(pilots: u64, partitions: u64, len: usize, unit: u8) -> (Vec<u8>, Vec<Pair>) {
    let keys = pilots / partitions;
    assert_eq!(keys * partitions, pilots);
    let mut entry = RawPartition { homes: keys, ..RawPartition::perfect(keys, 0, 0) };
    let width = 4 + len as u64;
    let (per_line, entries) = if unit == 0 {
        let per_line = (64 / width) as u8;
        entry.record_bytes = perfect_bytes(entry.slots, width, per_line);
        (per_line, vec![entry; partitions as usize])
    } else {
        entry.record_bytes = 1 << 16;
        (0, vec![entry; partitions as usize])
    };
    let footer: RawFooter = match unit {
        0 => perfect(len as u64, 4, per_line, entries),
        _ => spans(unit, entries),
    };
    let footer = RawFooter { value_kind: 0, ..footer };
    let end = footer.encode();
    let mut bytes = vec![0; footer.file_len() as usize];
    bytes[..format::HEAD_LEN].copy_from_slice(&format::head());
    let at = bytes.len() - end.len();
    bytes[at..].copy_from_slice(&end);

    let mut rng = Rng(pilots ^ len as u64);
    let bits = partitions.trailing_zeros() as u8;
    let mut taken = std::collections::BTreeSet::new();
    let mut held = Vec::new();
    for i in 0..500u32 {
        let key = rng.bytes(len);
        let hash = KeyHasher::new(0).hash(&key);
        let p = partition(hash, bits) as usize;
        let (_, slot) = raw::perfect_place(&bytes, p, hash);
        // A line for each, if there are lines: no others fit between them.
        let place = if unit == 0 { slot } else { slot / 28 };
        if !taken.insert((p, place)) {
            continue;
        }
        let value = i.to_le_bytes().to_vec();
        let record = [&value[..], &key].concat();
        if unit > 0 {
            assert_eq!(unit, 1, "no padding");
            let line = raw::sections(&bytes, p)[2].start + 64 * (slot / 28) as usize;
            let start = u64::from(i) * width;
            raw::put(&mut bytes, line, 5, start);
            let end = line + 5 + 2 * (slot % 28) as usize + 2;
            raw::put(&mut bytes, end, 2, width);
        }
        let at = raw::perfect_record(&bytes, p, slot);
        assert_eq!(at.len(), record.len());
        bytes[at].copy_from_slice(&record);
        held.push((key, value));
    }
    assert!(held.len() > 100, "{} keys", held.len());
    (bytes, held)
}

#[test]
fn batches_with_and_without_prefetched_pilots() {
    for (pilots, partitions) in [
        (4096, 4),
        (MOST_CACHED_PILOTS, 1),
        (MOST_CACHED_PILOTS, 8),
        (MOST_CACHED_PILOTS + 1, 1),
        (MOST_CACHED_PILOTS + 4, 4),
    ] {
        // Records keep to lines, or lie back to back, or have offset lines.
        for (len, unit) in [(8, 0), (10, 0), (16, 0), (20, 0), (36, 0), (12, 0), (61, 0), (16, 1)] {
            let (bytes, held) = sparse(pilots, partitions, len, unit);
            let table = Table::open(&bytes).unwrap();
            let mut rng = Rng(len as u64);
            // Hits and misses in turn, and keys of another length.
            let mut expected: Vec<(Vec<u8>, Option<Value<'_>>)> = Vec::new();
            for (key, value) in &held {
                let found = table.get(Scalar, key).unwrap();
                assert_eq!(found.map(Value::as_bytes), Some(&value[..]), "{len}, {unit}");
                expected.push((key.clone(), found));
                expected.push((rng.bytes(len), None));
                if expected.len().is_multiple_of(7) {
                    expected.push((rng.bytes(len + 1), None));
                }
            }
            let (keys, expected): (Vec<Vec<u8>>, Vec<Option<Value<'_>>>) =
                expected.into_iter().unzip();
            let hits = held.len();
            let ids: Vec<Option<u32>> =
                expected.iter().map(|value| value.and_then(Value::doc_id)).collect();
            for (key, (value, id)) in keys.iter().zip(expected.iter().zip(&ids)) {
                assert_eq!(table.get(Scalar, key), Ok(*value));
                assert_eq!(table.get_doc_id(Scalar, key), Ok(*id));
            }

            // The pilots of the first partition, of which some keys have one.
            let section = raw::sections(&bytes, 0)[1].clone();
            let count = Cell::new(0);
            let kernel = Prefetches { of: (section.start, section.end), count: &count };
            let mut out = vec![expected[0]; keys.len()];
            assert_eq!(table.get_batch(kernel, &keys, &mut out), Ok(hits));
            assert_eq!(out, expected, "{pilots} pilots, {len}, {unit}");
            assert_eq!(count.get() > 0, pilots > MOST_CACHED_PILOTS, "{pilots} pilots");
            let hashes: Vec<u64> = keys.iter().map(|key| KeyHasher::new(0).hash(key)).collect();
            let hashed = HashedKeys { keys: &keys, hashes: &hashes };
            let mut out = vec![Some(u32::MAX); keys.len()];
            assert_eq!(table.get_batch(kernel, hashed, &mut out), Ok(hits));
            assert_eq!(out, ids, "{pilots} pilots, {len}, {unit}");
            let mut out = vec![false; keys.len()];
            assert_eq!(table.get_batch(Scalar, &keys, &mut out), Ok(hits));
            assert!(out.iter().copied().eq(expected.iter().map(Option::is_some)));

            // The pilots of all tables of a batch count together.
            let asks: Vec<_> = (0..keys.len() as u32)
                .map(|key| pkhash_core::segment_map::Ask {
                    key,
                    table: key % 2,
                    more: false,
                    lesser: false,
                })
                .collect();
            count.set(0);
            let mut out = vec![expected[0]; keys.len()];
            let found = get_batch_of(kernel, &[&table, &table], &asks, &keys, &hashes, &mut out);
            assert_eq!((found, &out), (Ok(hits), &expected));
            assert_eq!(count.get() > 0, 2 * pilots > MOST_CACHED_PILOTS, "{pilots} pilots twice");
        }
    }
}
