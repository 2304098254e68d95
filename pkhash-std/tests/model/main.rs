//! The writer against a `BTreeMap`: random keys, options and budgets; spills; duplicates; edges of
//! length and number; and the same bytes however a table was built, in memory by the core too.

mod budget;
mod options;
mod perfect;

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
