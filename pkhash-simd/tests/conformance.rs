//! One suite that every kernel passes, against an oracle that looks at one byte at a time: groups at
//! every address and of every population, tables at every address and before a page that cannot be
//! read, probes to the end of a partition, and damaged tables.
//!
//! A kernel that this CPU has cannot be left out: see `common::required`.

mod common;

use std::ops::Range;

use common::core::raw::{self, put};
use common::core::recipes::{self, RECIPES};
use common::core::{Pair, Rng, build};
use common::{answers, with};
use pkhash_core::builder::TableOptions;
use pkhash_core::hash::{EMPTY, control, home};
use pkhash_core::segment_map::{Ask, LINE_TAGS, MAP_LINE, MapEntry, MapLine, MapPlan, SegmentMap};
use pkhash_core::{
    CHUNK, Error, GROUP_MAX, HashedKeys, KeyHasher, Layout, Matches, Scalar, Table, Value,
    ValueFormat, get_batch_of,
};
use pkhash_simd::AnyKernel;

/// Runs each check with each kernel, as a test of its own.
macro_rules! conformance {
    ($kernels:tt: $($check:ident),*) => { $(conformance!(@ $check $kernels);)* };
    (@ $check:ident [$($kernel:ident),*]) => {
        mod $check {
            $(#[test]
            fn $kernel() {
                crate::common::with(stringify!($kernel), super::checks::$check);
            })*
        }
    };
}

conformance!([scalar, sse2, avx2, avx512, neon]:
    one_slot_among_others,
    every_population_at_every_address,
    every_byte_pair,
    tables_at_every_address,
    tables_before_a_page_that_cannot_be_read,
    probes_to_the_end_of_a_partition,
    control_bytes_all_alike,
    control_bytes_at_random,
    records_and_words_at_random,
    pilots_and_offset_lines_at_random,
    perfect_batches_of_every_length,
    keys_in_other_slots,
    tags_at_every_place_and_address,
    segment_maps,
    batches_over_many_tables
);

/// Memory at a known address.
#[repr(align(64))]
struct Line([u8; 2 * GROUP_MAX]);

/// What a group means.
fn oracle(width: u32, group: &[u8; GROUP_MAX], control: u8) -> Matches {
    let mut matches = Matches::default();
    for (i, byte) in group.iter().enumerate().take(width as usize) {
        matches.hits |= u64::from(*byte == control) << i;
        matches.empty |= u64::from(*byte == EMPTY) << i;
    }
    matches
}

/// Compares a group that lies `at` bytes after the begin of a cache line, between bytes that would
/// match if they were read.
fn check_group(kernel: AnyKernel, group: &[u8; GROUP_MAX], at: usize, control: u8) {
    let mut line = Line([if at.is_multiple_of(2) { control } else { EMPTY }; 2 * GROUP_MAX]);
    line.0[at..at + GROUP_MAX].copy_from_slice(group);
    let moved = line.0[at..].first_chunk().expect("two lines hold a group at any offset");
    let (width, found) = kernel.match_group(moved, control);
    assert!(width.is_power_of_two() && width as usize <= GROUP_MAX);
    let expected = oracle(width, group, control);
    assert_eq!(found, expected, "{}, {control:#x} at {at} in {group:02x?}", kernel.name());
    if width < 64 {
        assert_eq!((found.hits | found.empty) >> width, 0, "bits past the width");
    }
}

/// Options of a table in this layout, with values of 2 bytes.
fn fixed(layout: Layout, partition_bits: u8) -> TableOptions {
    TableOptions::default()
        .layout(layout)
        .value(ValueFormat::opaque(2).expect("a width that values have"))
        .partition_bits(partition_bits)
}

/// Keys to ask a golden table for: its own, and as many others.
fn keys_of(pairs: &[Pair]) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for (key, _) in pairs {
        let mut other = key.clone();
        match other.last_mut() {
            Some(byte) => *byte ^= 1,
            None => other.push(0),
        }
        keys.extend([key.clone(), other]);
    }
    keys.extend([vec![], b"absent".to_vec(), vec![0; 16], vec![0xff; 300]]);
    keys
}

/// `n` of these keys from the `from`-th on.
fn some(keys: &[Vec<u8>], from: usize, n: usize) -> Vec<&[u8]> {
    keys.iter().cycle().skip(from % keys.len()).take(n).map(Vec::as_slice).collect()
}

/// Tables of many lines of every section, of each layout and kind of records, and keys to ask them for.
fn larger() -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let kinds = [
        (Layout::Inline, true, false),
        (Layout::TermOrder, false, false),
        (Layout::Perfect, true, false),
        (Layout::Perfect, true, true),
        (Layout::Perfect, false, false),
    ];
    let mut rng = Rng(0x1a26e);
    let mut tables = Vec::new();
    for (layout, one_length, packed) in kinds {
        for filter_bits in [0, 10] {
            let pairs: Vec<Pair> = (0..2000u16)
                .map(|i| {
                    let len = if one_length { 18 } else { 9 + rng.below(60) };
                    (rng.bytes(len), i.to_le_bytes().to_vec())
                })
                .collect();
            let options = fixed(layout, 2).filter_bits(filter_bits).packed(packed);
            tables.push((build(&options, &pairs), keys_of(&pairs)));
        }
    }
    tables
}

/// The kernel answers as core's scalar kernel does, whatever the table's bytes.
fn check_table(kernel: AnyKernel, bytes: &[u8], keys: &[&[u8]]) {
    let Ok(table) = Table::open(bytes) else { return };
    let expected = answers(&table, None, keys);
    expected.assert_coherent(keys);
    let found = answers(&table, Some(kernel), keys);
    assert_eq!(found, expected, "{} and core's scalar kernel", kernel.name());
}

/// Lets every probe of partition `p` be as long as it may be, and the filter admit everything.
fn open_wide(bytes: &mut [u8], p: usize) {
    let [filter, ..] = raw::sections(bytes, p);
    bytes[filter].fill(0xff);
    // A perfect table has no probes.
    if raw::layout(bytes) == raw::PERFECT {
        return;
    }
    let keys = raw::entry(bytes, p, "partition keys");
    raw::set_entry(bytes, p, "probe limit", keys);
}

/// Damages a table in each partition, and checks it with its footer repaired, with all checksums
/// repaired, and with none (then it is refused).
fn check_damaged(
    kernel: AnyKernel,
    bytes: &[u8],
    keys: &[&[u8]],
    mut damage: impl FnMut(&mut [u8], usize),
) {
    let mut damaged = bytes.to_vec();
    for p in 0..raw::partitions(bytes) {
        open_wide(&mut damaged, p);
        damage(&mut damaged, p);
    }
    if damaged != bytes {
        check_table(kernel, &damaged, keys);
    }
    raw::repair_footer(&mut damaged);
    assert!(Table::open(&damaged).is_ok(), "damage of the body alone");
    check_table(kernel, &damaged, keys);
    raw::repair_all(&mut damaged);
    assert!(Table::open(&damaged).is_ok(), "damage of the body alone");
    check_table(kernel, &damaged, keys);
}

mod checks {
    use super::*;

    /// Bytes that are easily taken for each other or for a control byte.
    fn neighbours(control: u8) -> [u8; 9] {
        let c = control;
        [0x00, 0x01, 0x7f, 0x80, 0xff, c ^ 0x80, c ^ 1, c.wrapping_add(1), c.wrapping_sub(1)]
    }

    /// Every control byte in every single slot, and in all but one, among bytes that are not it.
    pub(crate) fn one_slot_among_others(kernel: AnyKernel) {
        let mut at = 0;
        for control in 0x80..=0xff {
            for other in neighbours(control) {
                for slot in 0..GROUP_MAX {
                    let (mut one, mut all_but_one) = ([other; GROUP_MAX], [control; GROUP_MAX]);
                    one[slot] = control;
                    all_but_one[slot] = other;
                    // 64 addresses and 9 neighbours: every slot is seen at every address.
                    at = (at + 1) % GROUP_MAX;
                    check_group(kernel, &one, at, control);
                    check_group(kernel, &all_but_one, (at + slot) % GROUP_MAX, control);
                }
            }
        }
    }

    /// Every control byte at every address, in groups that are full of it, empty, of something else,
    /// and mixed: few distinct bytes, many, and hits only or empty slots only past the width.
    pub(crate) fn every_population_at_every_address(kernel: AnyKernel) {
        let mut rng = Rng(1);
        for at in 0..GROUP_MAX {
            for control in 0x80..=0xff {
                let near = neighbours(control);
                for byte in [control, EMPTY, control ^ 1] {
                    check_group(kernel, &[byte; GROUP_MAX], at, control);
                }
                let mixed = [control, EMPTY, near[rng.below(near.len())]];
                let few = std::array::from_fn(|_| mixed[rng.below(mixed.len())]);
                check_group(kernel, &few, at, control);
                let many = std::array::from_fn(|_| rng.next() as u8);
                check_group(kernel, &many, at, control);
                let begin = rng.below(GROUP_MAX);
                let run = std::array::from_fn(|i| if i < begin { control } else { EMPTY });
                check_group(kernel, &run, at, control);
            }
        }
    }

    /// Every byte that is sought against every byte that is there.
    pub(crate) fn every_byte_pair(kernel: AnyKernel) {
        for control in 1..=u8::MAX {
            for first in (0..=u8::MAX).step_by(GROUP_MAX) {
                // Each byte in each slot.
                for turn in 0..GROUP_MAX as u8 {
                    let group = std::array::from_fn(|i| first + (i as u8 + turn) % 64);
                    check_group(kernel, &group, usize::from(turn), control);
                }
            }
        }
    }

    pub(crate) fn tables_at_every_address(kernel: AnyKernel) {
        for recipe in RECIPES {
            let (bytes, keys) = (recipe.golden(), keys_of(&recipe.pairs()));
            let mut buffer = vec![0xaa; bytes.len() + GROUP_MAX];
            for at in 0..GROUP_MAX {
                // Whatever the buffer's own address, all 64 residues occur.
                let moved = &mut buffer[at..at + bytes.len()];
                moved.copy_from_slice(&bytes);
                check_table(kernel, moved, &some(&keys, 2 * at, CHUNK + 1));
            }
        }
        for (bytes, keys) in larger() {
            let mut buffer = vec![0xaa; bytes.len() + GROUP_MAX];
            for at in 0..GROUP_MAX {
                let moved = &mut buffer[at..at + bytes.len()];
                moved.copy_from_slice(&bytes);
                // Other keys at each address: all of them at 64.
                let n = keys.len().div_ceil(GROUP_MAX).max(2 * CHUNK + 1);
                check_table(kernel, moved, &some(&keys, n * at, n));
            }
        }
    }

    /// A table that ends where its allocation does, and its mapping. A read past it ends the process.
    pub(crate) fn tables_before_a_page_that_cannot_be_read(kernel: AnyKernel) {
        for recipe in RECIPES {
            let (bytes, keys) = (recipe.golden(), keys_of(&recipe.pairs()));
            check_table(kernel, &bytes.clone().into_boxed_slice(), &some(&keys, 0, keys.len()));
            guarded::at_the_end(&bytes, |bytes| {
                check_table(kernel, bytes, &some(&keys, 0, keys.len()));
            });
        }
        for (bytes, keys) in larger() {
            guarded::at_the_end(&bytes, |bytes| {
                check_table(kernel, bytes, &some(&keys, 0, keys.len()));
            });
        }
        for control in [0x80, 0xff] {
            guarded::at_the_end(&[control; GROUP_MAX], |group| {
                let group = group.first_chunk().expect("a group");
                let (width, found) = kernel.match_group(group, control);
                assert_eq!(found, oracle(width, group, control));
            });
        }
    }

    /// Keys whose home is one of the last slots of their partition, so that they are pushed past the
    /// last home, and probes for others run as far.
    pub(crate) fn probes_to_the_end_of_a_partition(kernel: AnyKernel) {
        for (layout, bits) in [(Layout::Inline, 0), (Layout::Inline, 2), (Layout::TermOrder, 1)] {
            let options = fixed(layout, bits);
            let mut rng = Rng(7);
            let mut late_keys = |n: usize, homes: u32| -> Vec<Pair> {
                let keys = std::iter::repeat_with(|| rng.bytes(12));
                keys.filter(|key| home(options.hasher.hash(key), bits, homes) + 2 >= homes)
                    .take(n)
                    .map(|key| (key.clone(), key[..2].to_vec()))
                    .collect()
            };
            for n in [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130] {
                // 40 homes' worth of keys: the last two homes are one in 20 of all hashes.
                let pairs = late_keys(n, 40);
                let bytes = build(&options, &pairs);
                let absent = late_keys(n.min(CHUNK) + 1, 40);
                let table = Table::open(&bytes).expect("a sound table");
                assert_eq!(table.verify(), Ok(()));
                let longest =
                    (0..1 << bits).filter_map(|p| table.partition(p)).map(|p| p.slots - p.homes);
                assert!(n < 64 || longest.max() >= Some(4), "keys are pushed past the homes");
                let keys: Vec<&[u8]> =
                    pairs.iter().chain(&absent).map(|pair| pair.0.as_slice()).collect();
                for (i, key) in keys.iter().enumerate() {
                    let found = table.get(kernel, key).expect("a sound table");
                    let expected = pairs.get(i).map(|pair| pair.1.as_slice());
                    assert_eq!(found.map(Value::as_bytes), expected);
                }
                check_table(kernel, &bytes, &keys);
                // No empty slot before the end, nor behind it: the probe ends all the same.
                check_damaged(kernel, &bytes, &keys, |bytes, p| {
                    let [_, control, ..] = raw::sections(bytes, p);
                    let taken = bytes[control.clone()].iter().max().copied().unwrap_or_default();
                    for byte in &mut bytes[control] {
                        *byte = if *byte == EMPTY { taken } else { *byte };
                    }
                });
            }
        }
    }

    /// Control sections full of one byte, padding included: no slot is empty, or all are, or all are
    /// candidates of one key.
    pub(crate) fn control_bytes_all_alike(kernel: AnyKernel) {
        for recipe in RECIPES {
            let (bytes, keys) = (recipe.golden(), keys_of(&recipe.pairs()));
            let keys = some(&keys, 0, 40);
            let hasher = Table::open(&bytes).expect("a valid file").footer().hasher();
            let mut fills: Vec<u8> = vec![EMPTY, 0x01, 0x7f, 0x80, 0xff];
            fills.extend(keys.iter().take(6).map(|key| control(hasher.hash(key))));
            for byte in fills {
                check_damaged(kernel, &bytes, &keys, |bytes, p| {
                    let [_, control, ..] = raw::sections(bytes, p);
                    bytes[control].fill(byte);
                });
            }
        }
    }

    /// Control bytes of few kinds, those of the keys and empty ones among them, and of all kinds.
    pub(crate) fn control_bytes_at_random(kernel: AnyKernel) {
        let mut rng = Rng(3);
        for recipe in RECIPES {
            let (bytes, keys) = (recipe.golden(), keys_of(&recipe.pairs()));
            let hasher = Table::open(&bytes).expect("a valid file").footer().hasher();
            for round in 0..12 {
                let keys = some(&keys, 16 * round, CHUNK + 2);
                let kinds: Vec<u8> =
                    keys.iter().take(round).map(|key| control(hasher.hash(key))).collect();
                check_damaged(kernel, &bytes, &keys, |bytes, p| {
                    let [_, control, ..] = raw::sections(bytes, p);
                    for byte in &mut bytes[control] {
                        *byte = match rng.below(8) {
                            _ if kinds.is_empty() => rng.next() as u8,
                            0 if round % 2 == 0 => EMPTY,
                            1 => rng.next() as u8,
                            _ => kinds[rng.below(kinds.len())],
                        };
                    }
                });
            }
        }
    }

    /// Slot words that point anywhere, and records of anything, behind control bytes that match.
    pub(crate) fn records_and_words_at_random(kernel: AnyKernel) {
        let mut rng = Rng(4);
        for recipe in RECIPES {
            let (bytes, keys) = (recipe.golden(), keys_of(&recipe.pairs()));
            let keys = some(&keys, 0, CHUNK + 2);
            for round in 0..4 {
                check_damaged(kernel, &bytes, &keys, |bytes, p| {
                    let [_, _, words, records] = raw::sections(bytes, p);
                    for word in bytes[words].chunks_exact_mut(8) {
                        // The low bits, that a lookup knows, stay, or nothing would be read.
                        if rng.below(2) == 0 {
                            let pointer = [rng.next(), rng.next() % 4096, u64::MAX, 0][round];
                            word[3..].copy_from_slice(&pointer.to_le_bytes()[..5]);
                        }
                    }
                    if round % 2 == 0 {
                        for byte in &mut bytes[records] {
                            *byte ^= if rng.below(50) == 0 { rng.next() as u8 } else { 0 };
                        }
                    }
                });
            }
        }
    }

    /// Pilots of other keys, and offset lines that begin and end anywhere, also past the body.
    pub(crate) fn pilots_and_offset_lines_at_random(kernel: AnyKernel) {
        let mut rng = Rng(8);
        for recipe in RECIPES {
            let (bytes, keys) = (recipe.golden(), keys_of(&recipe.pairs()));
            if raw::layout(&bytes) != raw::PERFECT {
                continue;
            }
            for round in 0..12 {
                let keys = some(&keys, 16 * round, CHUNK + 2);
                check_damaged(kernel, &bytes, &keys, |bytes, p| {
                    let buckets = raw::buckets(bytes, p) as usize;
                    let [_, pilots, lines, _] = raw::sections(bytes, p);
                    for pilot in &mut bytes[pilots][..buckets] {
                        if round % 3 == 0 || rng.below(4 * round) == 0 {
                            *pilot = rng.next() as u8;
                        }
                    }
                    for at in lines.step_by(64) {
                        if round % 2 == 0 {
                            let base = [rng.next() % 4096, u64::MAX, 0][round / 2 % 3];
                            bytes[at..at + 5].copy_from_slice(&base.to_le_bytes()[..5]);
                        } else {
                            let place = 5 + 2 * rng.below(29);
                            put(bytes, at + place, 2, rng.next() & 0x1ff);
                        }
                    }
                });
            }
        }
    }

    /// Each place of a line, with neighbours that differ in one bit, are made of the tag's bytes or are
    /// equal, at every address.
    pub(crate) fn tags_at_every_place_and_address(kernel: AnyKernel) {
        let mut rng = Rng(0x7a6);
        let mut buffer = [0; 2 * MAP_LINE];
        for at in 0..MAP_LINE {
            for round in 0..200 {
                let tag =
                    [0, 1, 0x00ff, 0xff00, 0x7fff, 0x8000, 0xffff, rng.next() as u16][round % 8];
                let others =
                    [tag, tag ^ 1 << (round % 16), tag.swap_bytes(), !tag, rng.next() as u16];
                let line = &mut buffer[at..at + MAP_LINE];
                for number in line.chunks_mut(2) {
                    number.copy_from_slice(&others[rng.below(5)].to_le_bytes());
                }
                let line: &MapLine = (&*line).try_into().expect("a line");
                let expected = line
                    .chunks(2)
                    .take(LINE_TAGS)
                    .zip(0..)
                    .filter(|(number, _)| **number == tag.to_le_bytes())
                    .fold(0, |all, (_, i)| all | 1 << i);
                let found = kernel.match_tags(line, tag);
                assert_eq!(found, expected, "{}, {tag:04x} in {line:02x?}", kernel.name());
            }
        }
    }

    /// A batch of every length asks what core's scalar kernel does.
    pub(crate) fn segment_maps(kernel: AnyKernel) {
        let mut rng = Rng(0x3a9);
        for segments in [15u32, 300] {
            let plan = MapPlan::new(3000, segments as usize).expect("few segments");
            let mut hashes: Vec<u64> = (0..2000).map(|_| rng.next()).collect();
            // Some in many segments.
            let again = hashes[..100].repeat(10);
            hashes.extend(again);
            let mut entries: Vec<MapEntry> = hashes
                .iter()
                .map(|hash| plan.entry(*hash, rng.below(segments as usize) as u16))
                .collect();
            entries.sort_unstable();
            let mut lines = vec![[0; MAP_LINE]; plan.lines(&entries).expect("few lines") as usize];
            let part = plan.fill(&entries, &mut lines).expect("lines enough");
            let parts = [part, SegmentMap::end(lines.len() as u32)];
            let map = SegmentMap::new(&plan, &parts, &lines).expect("one part");
            hashes.extend((0..1000).map(|_| rng.next()));
            let numbers: Vec<u32> = (0..segments).collect();
            for n in (0..200).chain([hashes.len()]) {
                let first = rng.below(hashes.len() - n + 1);
                let hashes = &hashes[first..first + n];
                let mut wanted = 0..segments;
                if n % 3 == 0 {
                    wanted = 3..segments / 2;
                }
                let ask = |mut asks: Vec<Ask>, asked: Result<usize, _>| {
                    asks.truncate(asked.expect("places enough"));
                    asks
                };
                let mut asks = vec![Ask::default(); n];
                let asked = map.ask_batch_with(Scalar, hashes, &numbers, &wanted, &mut asks);
                let expected = ask(asks, asked);
                let mut asks = vec![Ask { key: 1, table: 2, more: true, lesser: true }; n];
                let asked = kernel.ask_batch(&map, hashes, &numbers, &wanted, &mut asks);
                assert_eq!(ask(asks, asked), expected, "{}, {n} keys", kernel.name());
            }
        }
    }

    /// Batches of every length over tables of one kind, which are staged, and of several.
    pub(crate) fn batches_over_many_tables(kernel: AnyKernel) {
        let mut all: Vec<(Vec<u8>, Vec<Vec<u8>>)> =
            RECIPES.iter().map(|recipe| (recipe.golden(), keys_of(&recipe.pairs()))).collect();
        all.extend(larger());
        let kind = |bytes: &[u8]| {
            let footer = Table::open(bytes).expect("a sound table").footer().to_owned();
            (footer.hasher() == KeyHasher::new(0)).then_some((footer.layout(), footer.unit() > 0))
        };
        let kinds = [
            Some((Layout::Perfect, false)),
            Some((Layout::Perfect, true)),
            Some((Layout::Inline, false)),
            None,
        ];
        let mut rng = Rng(0xa5ced);
        for wanted in kinds {
            let chosen: Vec<&(Vec<u8>, Vec<Vec<u8>>)> = all
                .iter()
                .filter(|(bytes, _)| kind(bytes).is_some_and(|k| wanted.is_none_or(|w| w == k)))
                .collect();
            assert!(chosen.len() > 1, "{wanted:?}");
            let tables: Vec<Table<'_>> =
                chosen.iter().map(|(bytes, _)| Table::open(bytes).expect("sound")).collect();
            let tables: Vec<&Table<'_>> = tables.iter().collect();
            let keys: Vec<&[u8]> =
                chosen.iter().flat_map(|(_, keys)| keys.iter().map(Vec::as_slice)).collect();
            let hashes: Vec<u64> = keys.iter().map(|key| KeyHasher::new(0).hash(key)).collect();
            let mut from = 0;
            let mut asks = Vec::new();
            for (table, (_, keys)) in chosen.iter().enumerate() {
                // Its own keys, and those of others.
                asks.extend((from..from + keys.len()).map(|key| (key, table)));
                from += keys.len();
            }
            asks.extend((0..2000).map(|_| (rng.below(hashes.len()), rng.below(tables.len()))));
            asks.sort_unstable_by_key(|(key, table)| {
                KeyHasher::new(1).hash(&[*key as u8, (*key >> 8) as u8, *table as u8])
            });
            let asks: Vec<Ask> = asks
                .into_iter()
                .map(|(key, table)| Ask { key: key as u32, table: table as u32, ..Ask::default() })
                .collect();
            for n in (0..=3 * CHUNK + 1).chain([asks.len()]) {
                let first = rng.below(asks.len() - n + 1);
                let asks = &asks[first..first + n];
                let expected: Vec<Option<Value<'_>>> = asks
                    .iter()
                    .map(|ask| tables[ask.table as usize].get(Scalar, keys[ask.key as usize]))
                    .collect::<Result<_, _>>()
                    .expect("sound tables");
                // Not None, so that every place must be written.
                let mut out = vec![tables[0].iter().next().map(|kv| kv.expect("sound").1); n];
                let found = get_batch_of(kernel, &tables, asks, &keys, &hashes, &mut out);
                assert_eq!(out, expected, "{}, {wanted:?}, {n} keys", kernel.name());
                assert_eq!(found, Ok(expected.iter().flatten().count()));
            }
            // What is not there is an error, and nothing is read.
            let mut out = [None];
            for (ask, what, expected) in [
                (Ask { key: keys.len() as u32, ..asks[0] }, "keys", keys.len()),
                (Ask { table: tables.len() as u32, ..asks[0] }, "tables", tables.len()),
            ] {
                let found = get_batch_of(kernel, &tables, &[ask], &keys, &hashes, &mut out);
                assert_eq!(found, Err(Error::NoSuchAsk { what, expected, found: expected }));
            }
            let short = get_batch_of(kernel, &tables, &asks[..2], &keys, &hashes, &mut out);
            assert_eq!(short, Err(Error::BatchLength { expected: 2, found: 1 }));
            let fewer = get_batch_of(kernel, &tables, &asks[..1], &keys, &hashes[1..], &mut out);
            let (expected, found) = (keys.len(), keys.len() - 1);
            assert_eq!(fewer, Err(Error::BatchLength { expected, found }));
        }
    }

    /// Keys go through the stages in blocks: the last one may have any number of keys, and any of them
    /// may be absent, too long, or among the exceptions.
    pub(crate) fn perfect_batches_of_every_length(kernel: AnyKernel) {
        for recipe in RECIPES {
            let (bytes, keys) = (recipe.golden(), keys_of(&recipe.pairs()));
            if raw::layout(&bytes) != raw::PERFECT {
                continue;
            }
            let table = Table::open(&bytes).expect("a valid file");
            let singles: Vec<Option<Value<'_>>> =
                keys.iter().map(|key| table.get(Scalar, key).expect("a sound table")).collect();
            for n in (0..=3 * CHUNK + 1).chain([5 * CHUNK, 8 * CHUNK - 1]) {
                let batch = some(&keys, n, n);
                let expected: Vec<_> =
                    singles.iter().cycle().skip(n % keys.len()).take(n).collect();
                // Not None, so that every place must be written.
                let mut out = vec![singles[0]; n];
                let found = table.get_batch(kernel, &batch, &mut out);
                assert_eq!(found, Ok(out.iter().flatten().count()));
                assert!(out.iter().eq(expected), "{}: {n} keys of {}", kernel.name(), recipe.name);
            }
        }
    }

    /// All slots moved, so that keys lie before their home slot, in the group that is read first if
    /// that is wide, or in a group past an empty slot.
    pub(crate) fn keys_in_other_slots(kernel: AnyKernel) {
        for recipe in RECIPES {
            let (bytes, keys) = (recipe.golden(), keys_of(&recipe.pairs()));
            let keys = some(&keys, 0, keys.len());
            let of = |name| raw::tail_entry(&bytes, name) as usize;
            let width = of("value width") + of("longest key");
            // Or perfect, with keys of one length.
            let inline = raw::layout(&bytes) != raw::TERM_ORDER && of("offset unit") == 0;
            for by in [1, 2, 5, 8, 13, 16, 31, 40] {
                for left in [true, false] {
                    check_damaged(kernel, &bytes, &keys, |bytes, p| {
                        let [_, control, words, records] = raw::sections(bytes, p);
                        let mut turn = |section: &Range<usize>, width: usize| {
                            let section = &mut bytes[section.clone()];
                            let by =
                                if section.is_empty() { 0 } else { by * width % section.len() };
                            if left { section.rotate_left(by) } else { section.rotate_right(by) }
                        };
                        turn(&control, 1);
                        if inline {
                            return turn(&records, width);
                        }
                        turn(&words, 8);
                        // The distance of a slot before home counts as a long one.
                        bytes[words].chunks_exact_mut(8).for_each(|word| word[2] = 255);
                    });
                }
            }
        }
    }
}

/// Bytes that end where readable memory does: a mapping that is longer than its file, whose last
/// pages cannot be touched.
#[cfg(unix)]
mod guarded {
    use std::io::Write as _;

    use memmap2::MmapOptions;

    /// At least a page on every machine.
    const PAGE: usize = 1 << 16;

    pub(crate) fn at_the_end(bytes: &[u8], check: impl FnOnce(&[u8])) {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let readable = bytes.len().next_multiple_of(PAGE);
        let front = readable - bytes.len();
        file.write_all(&vec![0xaa; front]).expect("written");
        file.write_all(bytes).expect("written");
        // SAFETY: no one else has the file. The pages past its end are never touched.
        let mapped = unsafe { MmapOptions::new().len(readable + PAGE).map(&file) };
        check(&mapped.expect("a mapping")[front..readable]);
    }
}

#[cfg(not(unix))]
mod guarded {
    pub(crate) fn at_the_end(bytes: &[u8], check: impl FnOnce(&[u8])) {
        check(bytes);
    }
}

#[test]
fn this_is_the_machine_that_was_asked_for() {
    common::core::assert_expected_arch();
    let names: Vec<&str> = common::kernels().into_iter().map(AnyKernel::name).collect();
    println!("{}: {};", std::env::consts::ARCH, names.join(", "));
    for name in common::required() {
        assert!(names.contains(&name.as_str()), "{name} was skipped");
        with(&name, |kernel| assert_eq!(kernel.name(), name));
    }
}

/// CPUID tells of the CPU; which registers the operating system saves is in XCR0. A kernel needs both.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_operating_system_saves_the_registers() {
    use std::arch::x86_64::{__cpuid, _xgetbv};

    #[target_feature(enable = "xsave")]
    fn xcr0() -> u64 {
        // SAFETY: called only if OSXSAVE is set, so that the instruction exists and is allowed.
        unsafe { _xgetbv(0) }
    }

    // `__cpuid` became safe after the least supported version of the compiler.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 CPU has CPUID with leaf 1.
    let osxsave = unsafe { __cpuid(1) }.ecx >> 27 & 1 == 1;
    // SAFETY: OSXSAVE says that XGETBV may be used.
    let saved = if osxsave { unsafe { xcr0() } } else { 0 };
    let (ymm, zmm) = (0b110, 0b1110_0110);
    assert!(AnyKernel::avx2().is_none() || saved & ymm == ymm, "XCR0 {saved:#x}");
    assert!(AnyKernel::avx512().is_none() || saved & zmm == zmm, "XCR0 {saved:#x}");
}

#[test]
fn names_and_constructors_agree() {
    let named: Vec<Option<&str>> = [
        Some(AnyKernel::scalar()),
        AnyKernel::sse2(),
        AnyKernel::avx2(),
        AnyKernel::avx512(),
        AnyKernel::neon(),
    ]
    .map(|kernel| kernel.map(AnyKernel::name))
    .into();
    for (name, constructed) in AnyKernel::NAMES.iter().copied().zip(&named) {
        let by_name = AnyKernel::by_name(name).map(AnyKernel::name);
        assert!(by_name.is_none_or(|found| found == name));
        assert_eq!(by_name, *constructed);
    }
    assert_eq!(named.len(), AnyKernel::NAMES.len());
    assert!(AnyKernel::available().map(AnyKernel::name).eq(named.into_iter().flatten()));
    assert_eq!(AnyKernel::available().next().map(AnyKernel::name), Some("scalar"));
    for wrong in ["", "AVX2", "avx2 ", "avx", "detect"] {
        assert!(AnyKernel::by_name(wrong).is_none(), "{wrong:?}");
    }
}

/// Each machine has its own kernels and no others: NEON is one of little-endian AArch64 alone.
#[test]
fn kernels_belong_to_their_machines() {
    let all: Vec<&str> = AnyKernel::available().map(AnyKernel::name).collect();
    let known: &[&str] = match std::env::consts::ARCH {
        "x86_64" => &["scalar", "sse2", "avx2", "avx512"],
        "aarch64" if cfg!(target_endian = "little") => &["scalar", "neon"],
        _ => &["scalar"],
    };
    assert!(all.iter().all(|name| known.contains(name)), "{all:?}");
    let little = cfg!(all(target_arch = "aarch64", target_endian = "little"));
    let neon = little && cfg!(target_feature = "neon");
    assert_eq!(AnyKernel::neon().is_some(), neon);
    assert_eq!(AnyKernel::by_name("neon").map(AnyKernel::name), neon.then_some("neon"));
    if known == ["scalar"] {
        let kernel = AnyKernel::detect();
        assert_eq!((kernel.name(), kernel.single_name()), ("scalar", "scalar"));
    }
}

#[test]
fn detection_takes_a_kernel_that_can_run() {
    let detected = AnyKernel::detect().name();
    let available: Vec<&str> = common::kernels().into_iter().map(AnyKernel::name).collect();
    assert!(available.contains(&detected));
    if cfg!(feature = "scalar") {
        assert_eq!(detected, "scalar");
    } else {
        // No machine with a vector unit is silently slow, and none falls back to a lesser one.
        assert_eq!(detected == "scalar", available == ["scalar"]);
        assert!(detected != "sse2" || !available.contains(&"avx2"));
    }
}

#[test]
fn prefetches_of_any_offset() {
    let heap = vec![1u8; 100];
    let slices: [&[u8]; 4] = [&[], &heap, &heap[50..50], b"static"];
    for data in slices {
        let len = data.len();
        for at in [0, 1, len.wrapping_sub(1), len, len + 1, len + 4096, 1 << 20] {
            pkhash_simd::prefetch(data, at);
        }
        for bit in 0..usize::BITS {
            pkhash_simd::prefetch(data, 1 << bit);
            pkhash_simd::prefetch(data, usize::MAX << bit);
            pkhash_simd::prefetch(data, usize::MAX >> bit);
        }
    }
    assert!(heap.iter().all(|byte| *byte == 1));
}

/// All kernels refuse a batch whose answers do not fit.
#[test]
fn batches_of_another_length() {
    let bytes = recipes::find("inline-doc-id").golden();
    let table = Table::open(&bytes).expect("a valid file");
    let keys = [[0u8; 16]; 3];
    for kernel in common::kernels() {
        for n in [0, 2, 4] {
            let mut out = vec![None::<Value<'_>>; n];
            let expected = Err(Error::BatchLength { expected: 3, found: n });
            assert_eq!(table.get_batch(kernel, keys.as_slice(), &mut out), expected);
            assert_eq!(table.get_batch(kernel, keys, &mut vec![true; n]), expected);
            assert_eq!(table.get_batch(kernel, keys, &mut vec![Some(1u32); n]), expected);
            let hashed = |hashes| HashedKeys { keys: &keys, hashes };
            assert_eq!(table.get_batch(kernel, hashed(&[0; 3]), &mut out), expected);
            let fewer = vec![0; n];
            assert_eq!(table.get_batch(kernel, hashed(&fewer), &mut [false; 3]), expected);
        }
    }
}
