//! The writer against a `BTreeMap`: random keys, options and budgets; spills; duplicates; edges of
//! length and number; and the same bytes however a table was built, in memory by the core too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pkhash_core::Error as CoreError;
use pkhash_core::builder::PerfectShape;
use pkhash_std::{
    Error, KeyHasher, Layout, LayoutChoice, MIN_MEMORY, OnDuplicate, Progress, TableFile,
    TableOptions, TableWriter, ValueChoice, ValueFormat, WriterOptions,
};
use pkhash_testing::{
    Folder, MAX_EXCEPTIONS, Model, Rng, build_bytes, build_in_core, check, check_bytes,
    check_large, exceptions, int, meet_with_other_seeds, meet_with_seed_0, names_path, numbered,
    of_slice, open_all, publish, slices, too_many_of_one_hash,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0x5eed_0002),
        failure_persistence: None,
        ..Config::default()
    }
}

/// Keys that begin alike, differ in one byte, are prefixes of each other, or share nothing.
fn key(len: impl Strategy<Value = usize> + Clone + 'static) -> BoxedStrategy<Vec<u8>> {
    let of = |byte: BoxedStrategy<u8>, len: BoxedStrategy<usize>| {
        len.prop_flat_map(move |len| prop::collection::vec(byte.clone(), len))
    };
    prop_oneof![
        3 => of(any::<u8>().boxed(), len.clone().boxed()),
        2 => of((0..2u8).boxed(), len.clone().boxed()),
        1 => (len, any::<u16>()).prop_map(|(len, n)| {
            let mut key = vec![b'/'; len];
            for (byte, n) in key.iter_mut().rev().zip(n.to_le_bytes()) {
                *byte = n;
            }
            key
        }),
    ]
    .boxed()
}

/// Keys of one length, or of many.
fn keys() -> BoxedStrategy<Vec<Vec<u8>>> {
    let number = || prop_oneof![1 => 0..3usize, 4 => 3..120usize];
    let mixed = prop_oneof![8 => 0..40usize, 2 => 120..136usize, 1 => 400..520usize];
    prop_oneof![
        (0..=32usize, number()).prop_flat_map(|(len, n)| prop::collection::vec(key(Just(len)), n)),
        number().prop_flat_map(move |n| prop::collection::vec(key(mixed.clone()), n)),
    ]
    .boxed()
}

fn hasher() -> BoxedStrategy<KeyHasher> {
    prop_oneof![
        2 => Just(KeyHasher::new(0)),
        1 => any::<u64>().prop_map(KeyHasher::new),
        // Different keys with one hash of 64 bits.
        2 => (any::<u64>(), 0..7u8).prop_map(|(seed, bits)| KeyHasher::truncated(seed, bits)),
    ]
    .boxed()
}

fn partition_bits() -> BoxedStrategy<Option<u8>> {
    prop_oneof![
        6 => Just(None),
        12 => (0..=4u8).prop_map(Some),
        4 => (5..=10u8).prop_map(Some),
        // More than the writer has bins.
        1 => (11..=12u8).prop_map(Some),
    ]
    .boxed()
}

fn filter_bits() -> BoxedStrategy<Option<u8>> {
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(0)),
        1 => Just(Some(10)),
        1 => (1..=64u8).prop_map(Some),
    ]
    .boxed()
}

fn layout() -> BoxedStrategy<LayoutChoice> {
    prop_oneof![
        1 => Just(LayoutChoice::Auto),
        1 => Just(LayoutChoice::Fixed(Layout::Inline)),
        2 => Just(LayoutChoice::Fixed(Layout::TermOrder)),
        3 => Just(LayoutChoice::Fixed(Layout::Perfect)),
    ]
    .boxed()
}

fn shape() -> BoxedStrategy<PerfectShape> {
    let of = |keys_per_100_buckets, keys_per_1000_slots| {
        PerfectShape::default()
            .keys_per_100_buckets(keys_per_100_buckets)
            .keys_per_1000_slots(keys_per_1000_slots)
    };
    prop_oneof![
        3 => Just(PerfectShape::default()),
        1 => (100..=300u16, 500..=990u16).prop_map(move |(buckets, slots)| of(buckets, slots)),
        1 => Just(of(400, 900)),
    ]
    .boxed()
}

/// Options for the keys of [`keys`], once they are [`fit`].
fn options() -> impl Strategy<Value = TableOptions> {
    (layout(), hasher(), partition_bits(), filter_bits(), any::<bool>(), shape()).prop_map(
        |(layout, hasher, partition_bits, filter_bits, packed, shape)| {
            TableOptions::default()
                .layout(layout)
                .value(ValueChoice::Auto)
                .filter_bits(filter_bits)
                .hasher(hasher)
                .partition_bits(partition_bits)
                .packed(packed)
                .shape(shape)
        },
    )
}

/// Term-order instead of inline if the keys do not fit that, and no more partitions than a layout has.
fn fit<'k>(mut table: TableOptions, keys: impl IntoIterator<Item = &'k Vec<u8>>) -> TableOptions {
    let lens: BTreeSet<usize> = keys.into_iter().map(Vec::len).collect();
    let inline = lens.len() <= 1 && lens.iter().all(|len| *len <= 31);
    if table.layout == LayoutChoice::Fixed(Layout::Inline) && !inline {
        table.layout = LayoutChoice::Fixed(Layout::TermOrder);
    }
    if let LayoutChoice::Fixed(layout) = table.layout {
        let bits = table.partition_bits;
        table.partition_bits = bits.map(|bits| bits.min(layout.max_partition_bits()));
    }
    table
}

fn value() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0..300u64, 0..70_000u64, any::<u64>()]
}

/// Keys that occur once, in any order, with integers up to some greatest one.
fn pairs() -> impl Strategy<Value = Pairs> {
    (keys(), value()).prop_flat_map(|(keys, most)| {
        let n = keys.len();
        (Just(keys), prop::collection::vec(0..=most, n)).prop_map(|(keys, values)| {
            let mut seen = BTreeSet::new();
            let pairs = keys.into_iter().zip(values.into_iter().map(int));
            pairs.filter(|(key, _)| seen.insert(key.clone())).collect()
        })
    })
}

fn with(table: TableOptions) -> WriterOptions {
    WriterOptions::default().table(table).threads(1)
}

/// Builds in several ways that must not matter, and checks facts and bytes. `None`: a perfect table
/// cannot hold so many keys of one hash, as each of the ways must say.
fn all_ways(table: TableOptions, pairs: &Pairs) -> Option<Vec<u8>> {
    let other = with(table).threads(4).memory(MIN_MEMORY);
    let ways =
        [build_bytes(with(table), of_slice(pairs)), build_bytes(other, of_slice(pairs).rev())];
    let core = build_in_core(&table, of_slice(pairs));
    // The keys of this file's strategies are short.
    let layout = match table.layout {
        LayoutChoice::Auto => Layout::Perfect,
        LayoutChoice::Fixed(layout) => layout,
    };
    let (all, most) = match layout {
        Layout::Perfect => exceptions(&table, of_slice(pairs).map(|(key, _)| key)),
        _ => (0, 0),
    };
    if most > MAX_EXCEPTIONS {
        for way in ways {
            too_many_of_one_hash(&way.unwrap_err());
        }
        too_many_of_one_hash(&core.unwrap_err().into());
        return None;
    }
    let core = core.unwrap();
    for way in ways {
        let (built, bytes) = way.unwrap();
        assert_eq!((built.duplicates, built.spilled), (0, 0));
        assert_eq!(built.footer.keys(), pairs.len() as u64);
        assert_eq!((built.footer.layout(), built.exceptions), (layout, all));
        let default = if layout == Layout::Perfect { 0 } else { 10 };
        assert_eq!(built.footer.filter_bits(), table.filter_bits.unwrap_or(default));
        assert!(bytes == core, "order, threads or memory changed the bytes: {table:?}");
    }
    Some(core)
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn tables_of_integers(pairs in pairs(), table in options(), absent in keys()) {
        let table = fit(table, pairs.iter().map(|pair| &pair.0));
        if let Some(bytes) = all_ways(table, &pairs) {
            check_bytes(&bytes, &pairs.into_iter().collect(), &absent);
        }
    }

    #[test]
    fn tables_of_opaque_values(
        keys in keys(),
        table in options(),
        width in prop_oneof![Just(0u8), Just(4), Just(12), Just(64), 0..=64u8],
        seed: u64,
    ) {
        let mut rng = Rng(seed);
        let model: Model =
            keys.into_iter().map(|key| (key, rng.bytes(width.into()))).collect();
        let mut pairs: Pairs = model.clone().into_iter().collect();
        rng.shuffle(&mut pairs);
        let value = ValueChoice::Fixed(ValueFormat::opaque(width).unwrap());
        let table = fit(table, model.keys()).value(value);
        if let Some(bytes) = all_ways(table, &pairs) {
            check_bytes(&bytes, &model, &[]);
        }
    }

    /// Keys from a small pool, so that most occur several times.
    #[test]
    fn duplicates(
        pool in prop::collection::vec(key(0..20usize), 1..20),
        drawn in prop::collection::vec((0..20usize, value()), 0..120),
        table in options(),
    ) {
        let pairs: Pairs = drawn
            .into_iter()
            .map(|(at, value)| (pool[at % pool.len()].clone(), int(value)))
            .collect();
        let table = fit(table, pairs.iter().map(|pair| &pair.0));
        check_duplicates(&pairs, &with(table), false);
    }
}

/// All policies. Returns the bytes that went to temporary files.
fn check_duplicates(pairs: &Pairs, options: &WriterOptions, large: bool) -> u64 {
    let mut all: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for (key, value) in of_slice(pairs) {
        all.entry(key).or_default().push(value);
    }
    let mut spilled = 0;
    for (on_duplicate, threads) in [(OnDuplicate::First, 4), (OnDuplicate::Last, 1)] {
        let options = options.clone().on_duplicate(on_duplicate).threads(threads);
        let (built, bytes) = build_bytes(options, of_slice(pairs)).unwrap();
        let model: Model = all
            .iter()
            .map(|(key, values)| {
                let first = on_duplicate == OnDuplicate::First;
                let value = if first { values.first() } else { values.last() };
                (key.to_vec(), value.unwrap().to_vec())
            })
            .collect();
        assert_eq!(built.duplicates, (pairs.len() - all.len()) as u64);
        spilled = built.spilled;
        if large {
            let folder = Folder::new();
            let path = folder.write("table.pkh", &bytes);
            check_large(&TableFile::open(path).unwrap(), &model);
        } else {
            check_bytes(&bytes, &model, &[]);
        }
    }
    let mut errors = Vec::new();
    for threads in [1, 4] {
        let options = options.clone().threads(threads);
        let result = build_bytes(options, of_slice(pairs));
        if all.values().all(|values| values.len() == 1) {
            result.unwrap();
            continue;
        }
        let Err(Error::DuplicateKey { key, first, second }) = result else {
            panic!("expected a duplicate, found {result:?}");
        };
        let values = &all[key.as_slice()];
        assert!(values.len() > 1);
        let widened = |value: &[u8]| {
            let mut wide = value.to_vec();
            wide.resize(8, 0);
            wide
        };
        assert_eq!([widened(&first), widened(&second)], [values[0], values[1]]);
        errors.push((key, first, second));
    }
    // Nor does the error depend on the threads.
    assert!(errors.windows(2).all(|pair| pair[0] == pair[1]), "{errors:?}");
    spilled
}

#[test]
fn an_error_of_a_duplicate_names_key_and_values() {
    let pairs =
        [(b"once".to_vec(), int(1)), (b"twice".to_vec(), int(2)), (b"twice".to_vec(), int(770))];
    let error = build_bytes(WriterOptions::default(), of_slice(&pairs)).unwrap_err().to_string();
    for part in ["duplicate", "\"twice\"", "2", "770"] {
        assert!(error.contains(part), "{error}");
    }
    // A key that is no text is shown in hex, a long one is cut.
    for (key, shown) in [(vec![0xff, 0], "0xff00"), (vec![b'x'; 5000], "5000 bytes")] {
        let pairs = [(key.clone(), int(1)), (key, int(2))];
        let error =
            build_bytes(WriterOptions::default(), of_slice(&pairs)).unwrap_err().to_string();
        assert!(error.contains(shown) && error.len() < 300, "{error}");
    }
}

/// About 9 MB of keys: more than the least budget lets in memory.
fn many(seed: u64, len: std::ops::Range<usize>, bytes: usize) -> Pairs {
    let mut rng = Rng(seed);
    let mut pairs = Vec::new();
    let mut all = 0;
    while all < bytes {
        let len = len.start + rng.below(len.len());
        let mut key = rng.bytes(len);
        // No key twice.
        key.extend_from_slice(&(pairs.len() as u32).to_be_bytes());
        all += key.len();
        let value = int(pairs.len() as u64);
        pairs.push((key, value));
    }
    pairs
}

#[test]
fn a_table_that_outgrows_the_budget_is_spilled_and_is_the_same() {
    let folder = Folder::new();
    let fixed = |layout, partition_bits| {
        TableOptions::default().layout(layout).partition_bits(partition_bits)
    };
    let perfect = |partition_bits| fixed(Layout::Perfect, partition_bits);
    for (name, pairs, tables) in [
        (
            "short",
            many(1, 27..28, 4 << 20),
            // The last one splits what was spilled of a bin.
            vec![fixed(Layout::Inline, None), perfect(Some(12))],
        ),
        ("long", many(2, 900..1100, 9 << 20), vec![fixed(Layout::TermOrder, None), perfect(None)]),
        // Longer than what the writer sets aside for a bin, and than the whole budget.
        (
            "longest",
            {
                let mut pairs = many(3, 200_000..500_000, 14 << 20);
                pairs.push((vec![7; 9 << 20], int(5)));
                pairs.push((Vec::new(), int(6)));
                pairs
            },
            vec![TableOptions::default()],
        ),
    ] {
        let temp_dir = folder.path(name);
        std::fs::create_dir(&temp_dir).unwrap();
        let (whole, bytes) = build_bytes(with(tables[0]), of_slice(&pairs)).unwrap();
        assert_eq!(whole.spilled, 0, "{name}");
        let model: Model = pairs.iter().cloned().collect();
        let mut shuffled = pairs;
        for (i, table) in tables.into_iter().enumerate() {
            let threads = [4, 1][i];
            Rng(threads as u64).shuffle(&mut shuffled);
            let options =
                with(table).memory(MIN_MEMORY).threads(threads).temp_dir(temp_dir.clone());
            let (built, spilled) = build_bytes(options, of_slice(&shuffled)).unwrap();
            assert!(built.spilled > 0, "{name}: did not spill");
            let expected = match i {
                0 => bytes.clone(),
                _ => build_in_core(&table, of_slice(&shuffled)).unwrap(),
            };
            assert!(spilled == expected, "{name}, {i}: a spill changed the bytes");
            assert!(pkhash_testing::names(&temp_dir).is_empty());
            let path = folder.write("table.pkh", &spilled);
            check_large(&TableFile::open(path).unwrap(), &model);
        }
    }
}

#[test]
fn duplicates_across_spills() {
    let mut pairs = many(4, 1000..1010, 7 << 20);
    let n = pairs.len();
    // Of what was spilled first, of what is still in memory, and a key that comes three times.
    for (at, value) in [(0, 1_000_000), (n - 1, 1_000_001), (5, 1_000_002), (5, 1_000_003)] {
        pairs.push((pairs[at].0.clone(), int(value)));
    }
    for (layout, partition_bits) in [(Layout::TermOrder, None), (Layout::Perfect, Some(11))] {
        let layout = LayoutChoice::Fixed(layout);
        let table = TableOptions::default().layout(layout).partition_bits(partition_bits);
        let options = with(table).memory(MIN_MEMORY);
        assert!(check_duplicates(&pairs, &options, true) > 0, "did not spill");
    }
}

/// Every number of partitions, with more of them than the writer has bins, too: in memory and spilled,
/// on one thread and on several, the same as the core makes.
#[test]
fn every_number_of_partitions() {
    let folder = Folder::new();
    let short = many(8, 12..13, 32_000);
    let mixed = many(9, 1..60, 60_000);
    let spilled = many(10, 9000..9001, 7 << 20);
    for bits in 0..=16u8 {
        let table = TableOptions::default().partition_bits(bits);
        // Many partitions take their time without optimization.
        let inputs: &[_] = match bits {
            10 | 13 => &[&mixed, &spilled],
            14.. if bits % 2 == 0 => &[&mixed],
            14.. => &[&short],
            _ => &[&short, &mixed],
        };
        for pairs in inputs.iter().copied() {
            let core = build_in_core(&table, of_slice(pairs)).unwrap();
            let threads = 1 + usize::from(bits) % 3;
            let options = with(table).memory(MIN_MEMORY).threads(threads);
            let (built, bytes) = build_bytes(options, of_slice(pairs).rev()).unwrap();
            assert_eq!(built.spilled > 0, std::ptr::eq(pairs, &spilled));
            assert_eq!(built.footer.layout(), Layout::Perfect);
            assert_eq!(built.footer.partitions(), 1 << bits);
            assert!(bytes == core, "{bits} partition bits");
            let path = folder.write("table.pkh", &bytes);
            check_large(&TableFile::open(path).unwrap(), &pairs.iter().cloned().collect());
        }
        // The others have fewer partitions.
        for layout in [Layout::Inline, Layout::TermOrder] {
            let table = table.layout(layout);
            match build_bytes(with(table), of_slice(&short)) {
                Ok((built, bytes)) => {
                    assert!(bits <= 10 && built.footer.partitions() == 1 << bits);
                    assert!(bytes == build_in_core(&table, of_slice(&short)).unwrap());
                }
                Err(Error::Table {
                    path: None,
                    source: CoreError::BadOption { option: "partition bits", expected: 10, .. },
                }) => assert!(bits > 10),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Of a bin that is split, the first and the last of equal keys are still told apart.
#[test]
fn duplicates_in_split_bins() {
    let mut rng = Rng(11);
    let pairs: Pairs =
        // Long enough that a bin has several chunks.
        (0..3000).map(|i| (format!("{:0300}", rng.below(1000)).into_bytes(), int(i))).collect();
    for bits in [11, 13] {
        let table = TableOptions::default().partition_bits(bits);
        check_duplicates(&pairs, &with(table), true);
    }
}

/// Keys of one hash: up to 64 beyond the first in a partition, each in a place of its own.
#[test]
fn exceptions_and_too_many_of_them() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    for len in [8, 0] {
        // All keys have one hash.
        let hasher = KeyHasher::truncated(3, 0);
        let model = |n: u64| -> Model {
            let key = |i: u64| match len {
                8 => i.to_be_bytes().to_vec(),
                _ => vec![b'x'; i as usize],
            };
            (0..n).map(|i| (key(i), int(i))).collect()
        };
        for partition_bits in [0, 3] {
            let table = TableOptions::default().hasher(hasher).partition_bits(partition_bits);
            for n in [1, 2, 64, 65] {
                let model = model(n);
                let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
                let (built, _) = build_bytes(with(table), slices(&model)).unwrap();
                assert_eq!((built.exceptions, built.evictions), (n - 1, 0));
                check_bytes(&bytes, &model, &[vec![1; 8]]);
            }
            let error = publish(&path, with(table), slices(&model(66))).unwrap_err();
            too_many_of_one_hash(&error);
            assert!(folder.names().is_empty());
            // Term-order takes them all.
            let layout = LayoutChoice::Fixed(Layout::TermOrder);
            let table = table.layout(layout);
            let bytes = all_ways(table, &model(300).into_iter().collect()).unwrap();
            check_bytes(&bytes, &model(300), &[]);
        }
    }
}

/// A perfect hash function that is asked for too much: an error, and nothing left behind.
#[test]
fn keys_that_cannot_be_placed() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let shape = PerfectShape::default().keys_per_100_buckets(800).keys_per_1000_slots(1000);
    let table = TableOptions::default().shape(shape);
    for (n, bits) in [(24, 0), (60, 1)] {
        let model = numbered("key", 10..10 + n);
        let table = table.partition_bits(bits);
        let error = publish(&path, with(table), slices(&model)).unwrap_err();
        assert!(
            matches!(error, Error::Table { path: None, source: CoreError::Unsolvable { .. } }),
            "{error}"
        );
        assert!(folder.names().is_empty());
    }
    // Room for them is enough, or a layout that has no such function.
    let model = numbered("key", 10..34);
    for table in [table.shape(shape.keys_per_1000_slots(700)), table.layout(Layout::TermOrder)] {
        let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
        check_bytes(&bytes, &model, &[]);
    }
}

/// Keys that were made to meet: the partition takes another seed, if there is one that places them.
#[test]
fn keys_that_meet_in_one_bucket() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let number = |keys: Vec<Vec<u8>>| -> Model { keys.into_iter().zip((0..).map(int)).collect() };
    let mut met: Vec<Vec<u8>> = meet_with_seed_0(100).collect();
    met.extend((0u64..500).map(|i| i.to_be_bytes().to_vec()));
    let one_length = number(met.clone());
    let mut several = one_length.clone();
    several.insert(b"short".to_vec(), int(7));
    for model in [one_length, several] {
        for bits in [0, 2] {
            let table = TableOptions::default().partition_bits(bits);
            let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
            let sound = pkhash_std::Table::open(&bytes).unwrap();
            let seeds: Vec<bool> =
                (0..1 << bits).map(|p| sound.partition(p).unwrap().seed > 0).collect();
            let expected: &[bool] = if bits == 0 { &[true] } else { &[false, false, true, false] };
            assert_eq!(seeds, expected);
            check_bytes(&bytes, &model, &[vec![0xff; 8]]);
        }
    }
    // And others that meet with all seeds but that one.
    let others: Vec<Vec<u8>> = meet_with_other_seeds(100).collect();
    let bytes = all_ways(TableOptions::default(), &number(others.clone()).into_iter().collect());
    check_bytes(&bytes.unwrap(), &number(others.clone()), &[]);
    met.extend(others);
    let model = number(met);
    let error = publish(&path, with(TableOptions::default()), slices(&model)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Table { path: None, source: CoreError::Unsolvable { keys: 700, seeds: 32 } }
        ),
        "{error}"
    );
    assert!(folder.names().is_empty());
    // Another hash, more partitions, another layout.
    for table in [
        TableOptions::default().hasher(KeyHasher::new(1)),
        TableOptions::default().partition_bits(1),
        TableOptions::default().layout(Layout::TermOrder),
    ] {
        let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
        check_bytes(&bytes, &model, &[]);
    }
}

/// What a build of a perfect table says of the work: buckets made room for others, in any partition.
#[test]
fn evictions_are_counted() {
    let pairs = many(12, 12..13, 300_000);
    let built = |pairs: &Pairs, layout, partition_bits, threads| {
        let table = TableOptions::default().layout(layout).partition_bits(partition_bits);
        let options = with(table).threads(threads);
        build_bytes(options, of_slice(pairs)).unwrap().0
    };
    for bits in [0, 2] {
        let all = built(&pairs, Layout::Perfect, bits, 1);
        assert!(all.evictions > 0 && all.exceptions == 0);
        assert_eq!(built(&pairs, Layout::Perfect, bits, 4).evictions, all.evictions);
        // As many as with the keys of one partition at a time.
        let partition =
            |key: &[u8]| pkhash_core::hash::partition(KeyHasher::new(0).hash(key), bits);
        let parts: Vec<u64> = (0..1 << bits)
            .map(|p| {
                let mine = pairs.iter().filter(|(key, _)| partition(key) == p).cloned().collect();
                built(&mine, Layout::Perfect, bits, 1).evictions
            })
            .collect();
        assert_eq!(parts.iter().sum::<u64>(), all.evictions);
        assert!(parts.iter().all(|evictions| *evictions > 0), "{parts:?}");
        for layout in [Layout::Inline, Layout::TermOrder] {
            let other = built(&pairs, layout, bits, 1);
            assert_eq!((other.evictions, other.exceptions), (0, 0));
        }
    }
}

/// Records that keep to their lines of 64 bytes, unless they are to be packed.
#[test]
fn records_in_lines() {
    let mut rng = Rng(13);
    // Length of the key beside a value of one byte, records in a line.
    for (len, per_line) in
        [(0, 0), (1, 0), (6, 9), (9, 6), (15, 0), (18, 0), (19, 3), (20, 3), (59, 1), (62, 1)]
            .into_iter()
            .chain([(58, 0), (63, 0), (64, 0), (100, 0)])
    {
        let model: Model = (0..600).map(|i| (rng.bytes(len), int(i % 256))).collect();
        let mut lens = Vec::new();
        for packed in [false, true] {
            let table = TableOptions::default().packed(packed);
            let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
            let footer = *pkhash_std::Table::open(&bytes).unwrap().footer();
            let expected = if packed { 0 } else { per_line };
            assert_eq!((footer.records_per_line(), footer.unit()), (expected, 0), "{len}");
            check_bytes(&bytes, &model, &[vec![0; len + 1]]);
            lens.push(bytes.len());
        }
        assert_eq!(lens[0] > lens[1], per_line > 0, "{len}: {lens:?}");
    }
}

#[test]
fn keys_of_every_length_at_an_edge() {
    let lens =
        [0, 1, 30, 31, 32, 127, 128, 511, 512, 16_383, 16_384, 32_766, 65_535, 65_536, 65_537];
    let mut rng = Rng(5);
    let mut all = Model::new();
    for len in lens {
        // One length alone: inline up to 31 bytes, perfect up to 65,536.
        let model: Model = (0..3).map(|i| (rng.bytes(len), int(i))).collect();
        let auto = if len <= 65_536 { Layout::Perfect } else { Layout::TermOrder };
        for layout in [LayoutChoice::Auto].into_iter().chain(Layout::all().map(LayoutChoice::Fixed))
        {
            let table = TableOptions::default().layout(layout);
            let (layout, most) = match layout {
                LayoutChoice::Auto => (auto, usize::MAX),
                LayoutChoice::Fixed(Layout::Inline) => (Layout::Inline, 31),
                LayoutChoice::Fixed(Layout::Perfect) => (Layout::Perfect, 65_536),
                LayoutChoice::Fixed(layout) => (layout, usize::MAX),
            };
            match build_bytes(with(table), slices(&model)) {
                Ok((built, bytes)) => {
                    assert!(len <= most && built.footer.layout() == layout, "{len}, {layout}");
                    assert!(bytes == build_in_core(&table, slices(&model)).unwrap());
                    check_bytes(&bytes, &model, &[]);
                }
                Err(error) => key_length(&error, most, len),
            }
        }
        all.extend(model);
    }
    // Lengths that differ so much are for term-order.
    for partition_bits in [None, Some(3)] {
        let table = TableOptions::default().partition_bits(partition_bits);
        let (built, bytes) = build_bytes(with(table), slices(&all)).unwrap();
        assert_eq!(built.footer.layout(), Layout::TermOrder);
        check_bytes(&bytes, &all, &[]);
    }
    // Which has fewer partitions than were asked for, as the writer finds out at the end.
    let table = TableOptions::default().partition_bits(11);
    let error = build_bytes(with(table), slices(&all)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Table {
                path: None,
                source: CoreError::BadOption {
                    option: "partition bits",
                    least: 0,
                    expected: 10,
                    found: 11
                }
            }
        ),
        "{error}"
    );
    // Nor can they be inline, even if all are short.
    let layout = LayoutChoice::Fixed(Layout::Inline);
    let short = numbered("key", 8..12);
    let error =
        build_bytes(with(TableOptions::default().layout(layout)), slices(&short)).unwrap_err();
    key_length(&error, 5, 6);
}

/// A key of this length, where there may be that much.
#[track_caller]
fn key_length(error: &Error, most: usize, len: usize) {
    match error {
        Error::Table { path: None, source: CoreError::KeyLength { expected, found } } => {
            assert_eq!((*expected, *found), (most as u64, len as u64));
        }
        error => panic!("{error}"),
    }
}

/// The longest of keys of several lengths decides the unit of offset lines; and then the layout.
#[test]
fn keys_at_the_edges_of_offset_lines() {
    let folder = Folder::new();
    let mut rng = Rng(6);
    for (value, width) in [
        (ValueChoice::Auto, 1),
        (ValueChoice::Fixed(ValueFormat::opaque(0).unwrap()), 0),
        (ValueChoice::Fixed(ValueFormat::opaque(64).unwrap()), 64),
    ] {
        let value_of = |i: u64| match width {
            1 => int(i),
            _ => vec![i as u8; width],
        };
        for unit in if width == 1 { &[1usize, 2, 4, 8, 16][..] } else { &[1, 16] } {
            // FORMAT.md, §3.4.
            let longest = |unit: usize| 2340 * unit - usize::from(unit > 1) - width;
            for (len, expected) in [(longest(*unit), *unit), (longest(*unit) + 1, 2 * unit)] {
                let mut model: Model = (0..28).map(|i| (rng.bytes(len), value_of(i))).collect();
                model.insert(b"short".to_vec(), value_of(28));
                let table = TableOptions::default().value(value);
                let (built, bytes) = build_bytes(with(table), slices(&model)).unwrap();
                let found = (built.footer.layout(), usize::from(built.footer.unit()));
                if expected <= 16 {
                    assert_eq!(found, (Layout::Perfect, expected), "{len}");
                } else {
                    assert_eq!(found, (Layout::TermOrder, 0), "{len}");
                    let layout = LayoutChoice::Fixed(Layout::Perfect);
                    let table = table.layout(layout);
                    let error = build_bytes(with(table), slices(&model)).unwrap_err();
                    key_length(&error, longest(16), len);
                }
                let path = folder.write("table.pkh", &bytes);
                check(&TableFile::open(path).unwrap(), &model, &[vec![0; len], vec![0; len + 1]]);
            }
        }
    }
    // A record of a set has no bytes but its key's: the empty one needs padding.
    let value = ValueChoice::Fixed(ValueFormat::opaque(0).unwrap());
    for (keys, unit) in [([&b"a"[..], b"bc"], 1), ([b"", b"bc"], 2)] {
        let model: Model = keys.into_iter().map(|key| (key.to_vec(), Vec::new())).collect();
        let table = TableOptions::default().value(value);
        let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
        assert_eq!(pkhash_std::Table::open(&bytes).unwrap().footer().unit(), unit);
        check_bytes(&bytes, &model, &[b"b".to_vec(), Vec::new()]);
    }
}

#[test]
fn no_keys_and_one() {
    for n in [0, 1] {
        let model = numbered("only", 0..n);
        for layout in [LayoutChoice::Auto].into_iter().chain(Layout::all().map(LayoutChoice::Fixed))
        {
            let most = if let LayoutChoice::Fixed(layout) = layout {
                layout.max_partition_bits()
            } else {
                11
            };
            // So many partitions are slow to check without optimization.
            let most = if n == 1 { most.min(11) } else { 3 };
            for (filter_bits, partition_bits) in
                [(None, None), (Some(0), None), (Some(10), Some(0)), (None, Some(most))]
            {
                let table = TableOptions::default()
                    .layout(layout)
                    .filter_bits(filter_bits)
                    .partition_bits(partition_bits);
                let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
                check_bytes(&bytes, &model, &[b"other".to_vec(), Vec::new()]);
            }
        }
    }
}

/// Kinds of values, and what the writer must say to those that do not fit.
#[test]
fn values_that_do_not_fit() {
    let wrong_width = |result: pkhash_std::Result<()>| match result {
        Err(Error::Table { path: None, source: CoreError::ValueWidth { .. } }) => {}
        other => panic!("expected an error of the width, found {other:?}"),
    };
    let writer = |value| TableWriter::new(with(TableOptions::default().value(value))).unwrap();
    for width in 1..=8u8 {
        let most = u64::MAX >> (64 - 8 * u32::from(width));
        let mut writer = writer(ValueFormat::integer(width).unwrap());
        writer.add(b"most", most).unwrap();
        writer.add(b"least", 0).unwrap();
        if width < 8 {
            wrong_width(writer.add(b"more", most + 1));
        }
        wrong_width(writer.add_bytes(b"long", &[0; 9]));
        let mut bytes = Vec::new();
        let built = writer.write_to(&mut bytes).unwrap();
        assert_eq!((built.footer.keys(), built.footer.value().width()), (2, width));
        check_bytes(
            &bytes,
            &[(b"most".to_vec(), int(most)), (b"least".to_vec(), int(0))].into(),
            &[b"more".to_vec(), b"long".to_vec()],
        );
    }
    for width in [0, 1, 12, 64] {
        let mut writer = writer(ValueFormat::opaque(width).unwrap());
        wrong_width(writer.add(b"integer", 0));
        wrong_width(writer.add_bytes(b"long", &vec![0; usize::from(width) + 1]));
        if width > 0 {
            wrong_width(writer.add_bytes(b"short", &vec![0; usize::from(width) - 1]));
        }
    }
    // Of integers as narrow as can be the width is not known yet.
    let mut auto = TableWriter::new(WriterOptions::default()).unwrap();
    wrong_width(auto.add_bytes(b"key", &[0; 8]));
    // As narrow as can be.
    for (most, width) in [(0, 1), (255, 1), (256, 2), (1 << 24, 4), (u64::MAX, 8)] {
        let model: Model = [(b"a".to_vec(), int(0)), (b"b".to_vec(), int(most))].into();
        let (built, _) = build_bytes(WriterOptions::default(), slices(&model)).unwrap();
        assert_eq!(built.footer.value().width(), width, "{most}");
    }
}

#[test]
fn options_out_of_range() {
    let [inline, term_order] = [Layout::Inline, Layout::TermOrder].map(LayoutChoice::Fixed);
    let shaped = |keys_per_100_buckets, keys_per_1000_slots| {
        let shape = PerfectShape::default()
            .keys_per_100_buckets(keys_per_100_buckets)
            .keys_per_1000_slots(keys_per_1000_slots);
        with(TableOptions::default().shape(shape))
    };
    for options in [
        WriterOptions::default().memory(MIN_MEMORY - 1),
        WriterOptions::default().memory(0),
        with(TableOptions::default().filter_bits(65)),
        with(TableOptions::default().partition_bits(17)),
        with(TableOptions::default().partition_bits(11).layout(inline)),
        with(TableOptions::default().partition_bits(11).layout(term_order)),
        shaped(99, 990),
        shaped(801, 990),
        shaped(300, 499),
        shaped(300, 1001),
    ] {
        let folder = Folder::new();
        let error = TableWriter::create(folder.path("table.pkh"), options).unwrap_err();
        assert!(matches!(error, Error::Table { path: None, .. }), "{error}");
        assert!(folder.names().is_empty());
    }
}

/// More threads than there is work for, or than a machine has.
#[test]
fn far_too_many_threads() {
    let model = numbered("key", 0..100);
    for partition_bits in [None, Some(3)] {
        let table = TableOptions::default().partition_bits(partition_bits);
        let (_, bytes) = build_bytes(with(table), slices(&model)).unwrap();
        for threads in [100, 1_000_000] {
            let options = with(table).threads(threads);
            assert!(build_bytes(options, slices(&model)).unwrap().1 == bytes);
        }
    }
}

#[test]
fn published_is_what_is_written() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    // Large enough for several blocks of output.
    for (model, partition_bits) in [
        (numbered("key", 0..3), None),
        (numbered("key", 0..60_000), Some(7)),
        (many(6, 1000..1100, 5 << 20).into_iter().collect(), Some(2)),
    ] {
        let table = TableOptions::default().partition_bits(partition_bits);
        let (_, bytes) = build_bytes(with(table), slices(&model)).unwrap();
        let built = publish(&path, with(table), slices(&model)).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
        assert_eq!(built.footer.file_len(), bytes.len() as u64);
        assert_eq!(folder.names(), ["table.pkh"]);
        assert_eq!(TableFile::open(&path).unwrap().footer(), &built.footer);
    }
}

#[test]
fn an_unfinished_writer_leaves_nothing_and_replaces_nothing() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let old = numbered("old", 0..10);
    publish(&path, WriterOptions::default(), slices(&old)).unwrap();
    let before = folder.read("table.pkh");

    let mut dropped = TableWriter::create(&path, WriterOptions::default()).unwrap();
    assert_eq!(folder.names().len(), 2);
    dropped.add(b"key", 1).unwrap();
    assert_eq!(dropped.keys(), 1);
    drop(dropped);
    assert_eq!(folder.names(), ["table.pkh"]);

    let mut twice = TableWriter::create(&path, WriterOptions::default()).unwrap();
    twice.add(b"key", 1).unwrap();
    twice.add(b"key", 1).unwrap();
    assert!(matches!(twice.publish(), Err(Error::DuplicateKey { .. })));
    assert_eq!(folder.names(), ["table.pkh"]);

    // Whoever writes to the place of a table sees the error.
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = TableWriter::new(WriterOptions::default()).unwrap();
    writer.add(b"key", 1).unwrap();
    assert!(matches!(writer.write_to(&mut Full), Err(Error::Io { .. })));

    assert_eq!(folder.read("table.pkh"), before);
    for file in open_all(&path) {
        check(&file, &old, &[b"key".to_vec()]);
    }
}

#[test]
fn cancelled_and_watched() {
    let model = numbered("key", 0..1000);
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let last = Arc::new(AtomicU64::new(0));
    let seen = last.clone();
    let progress = Progress::default().reported_to(move |done, all| {
        // Partitions come in order; 16 of them.
        assert!(all == 16 && done > seen.swap(done, Ordering::Relaxed));
    });
    let table = TableOptions::default().partition_bits(4);
    let options = WriterOptions::default().table(table).progress(progress);
    publish(&path, options.clone(), slices(&model)).unwrap();
    assert_eq!(last.load(Ordering::Relaxed), 16);
    let before = folder.read("table.pkh");

    // Stopped at once, and in the middle.
    for stop_after in [0, 3] {
        let flag = Arc::new(AtomicBool::new(stop_after == 0));
        let set = flag.clone();
        let progress = Progress::default().cancelled_by(flag).reported_to(move |done, _| {
            set.store(done >= stop_after, Ordering::Relaxed);
        });
        let options = options.clone().threads(1).progress(progress);
        let result = publish(&path, options, slices(&model));
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        assert_eq!(folder.names(), ["table.pkh"]);
        assert_eq!(folder.read("table.pkh"), before);
    }
}

#[test]
fn a_folder_for_temporary_files_that_is_missing_is_named() {
    let folder = Folder::new();
    let missing = folder.path("missing");
    let options = WriterOptions::default().memory(MIN_MEMORY).temp_dir(missing.clone());
    let pairs = many(7, 5000..5001, 9 << 20);
    let error = build_bytes(options, of_slice(&pairs)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    names_path(&error, &missing);
}

#[test]
fn keys_that_could_not_be_spilled_are_not_forgotten() {
    let folder = Folder::new();
    let path = folder.path("t.pkh");
    let options = WriterOptions::default()
        .memory(MIN_MEMORY)
        .temp_dir(folder.path("missing"))
        .on_duplicate(OnDuplicate::First);
    let mut writer = TableWriter::create(&path, options).unwrap();
    let failed = (0u64..).find_map(|i| writer.add(&i.to_le_bytes(), i).err()).unwrap();
    assert!(matches!(failed, Error::Io { .. }), "{failed}");
    // Trying again does not help, nor does giving up on the rest.
    assert!(matches!(writer.add(b"key", 0), Err(Error::WriterFailed)));
    assert!(matches!(writer.publish(), Err(Error::WriterFailed)));
    assert!(folder.names().is_empty());

    let writer = TableWriter::new(WriterOptions::default()).unwrap();
    assert!(matches!(writer.publish(), Err(Error::NoPath)));
}
