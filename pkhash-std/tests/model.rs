//! The writer against a `BTreeMap`: random keys, options and budgets; spills; duplicates; edges of
//! length and number; and the same bytes however a table was built.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{
    Folder, Model, Rng, build_bytes, check, check_bytes, check_large, int, names_path, numbered,
    of_slice, open_all, publish, slices,
};
use pkhash_std::core::Error as CoreError;
use pkhash_std::{
    Control, Error, Hasher, Layout, LayoutChoice, MIN_MEMORY, OnDuplicate, Options, TableFile,
    TableWriter, ValueChoice, ValueFormat, WriterOptions,
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

/// Keys of one length, which `Auto` lays inline, or of many.
fn keys() -> BoxedStrategy<Vec<Vec<u8>>> {
    let number = || prop_oneof![1 => 0..3usize, 4 => 3..120usize];
    let mixed = prop_oneof![8 => 0..40usize, 2 => 120..136usize, 1 => 400..520usize];
    prop_oneof![
        (0..=32usize, number()).prop_flat_map(|(len, n)| prop::collection::vec(key(Just(len)), n)),
        number().prop_flat_map(move |n| prop::collection::vec(key(mixed.clone()), n)),
    ]
    .boxed()
}

fn hasher() -> BoxedStrategy<Hasher> {
    prop_oneof![
        2 => Just(Hasher::new(0)),
        1 => any::<u64>().prop_map(Hasher::new),
        // Different keys with one hash of 64 bits.
        2 => (any::<u64>(), 0..7u8).prop_map(|(seed, bits)| Hasher::truncated(seed, bits)),
    ]
    .boxed()
}

fn partition_bits() -> BoxedStrategy<Option<u8>> {
    prop_oneof![3 => Just(None), 6 => (0..=4u8).prop_map(Some), 2 => (5..=10u8).prop_map(Some)]
        .boxed()
}

fn filter_bits() -> BoxedStrategy<u8> {
    prop_oneof![2 => Just(0), 3 => Just(10), 1 => 1..=64u8].boxed()
}

/// Options that fit the keys of [`keys`].
fn options() -> impl Strategy<Value = Options> {
    (any::<bool>(), hasher(), partition_bits(), filter_bits()).prop_map(
        |(term_order, hasher, partition_bits, filter_bits)| Options {
            layout: match term_order {
                true => LayoutChoice::Fixed(Layout::TermOrder),
                false => LayoutChoice::Auto,
            },
            value: ValueChoice::Auto,
            filter_bits,
            hasher,
            partition_bits,
        },
    )
}

fn value() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0..300u64, 0..70_000u64, any::<u64>()]
}

/// Keys that occur once, in any order, with integers up to some greatest one.
fn pairs() -> impl Strategy<Value = Pairs> {
    (keys(), value()).prop_flat_map(|(keys, most)| {
        let n = keys.len();
        (Just(keys), prop::collection::vec(0..=most, n)).prop_map(|(keys, values)| {
            let mut seen = std::collections::BTreeSet::new();
            let pairs = keys.into_iter().zip(values.into_iter().map(int));
            pairs.filter(|(key, _)| seen.insert(key.clone())).collect()
        })
    })
}

fn with(table: Options) -> WriterOptions {
    WriterOptions { table, threads: 1, ..WriterOptions::default() }
}

/// Builds in several ways that must not matter, and checks the bytes.
fn all_ways(table: Options, pairs: &Pairs) -> Vec<u8> {
    let (built, bytes) = build_bytes(with(table), of_slice(pairs)).unwrap();
    assert_eq!((built.duplicates, built.spilled), (0, 0));
    assert_eq!(built.footer.keys, pairs.len() as u64);
    let other = WriterOptions { threads: 4, memory: MIN_MEMORY, ..with(table) };
    let (_, backward) = build_bytes(other, of_slice(pairs).rev()).unwrap();
    assert!(bytes == backward, "order, threads or memory changed the bytes: {table:?}");
    bytes
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn tables_of_integers(pairs in pairs(), table in options(), absent in keys()) {
        let bytes = all_ways(table, &pairs);
        check_bytes(&bytes, &pairs.into_iter().collect(), &absent);
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
        let bytes = all_ways(Options { value, ..table }, &pairs);
        check_bytes(&bytes, &model, &[]);
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
        let options = WriterOptions { on_duplicate, threads, ..options.clone() };
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
        let options = WriterOptions { threads, ..options.clone() };
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
    for (name, pairs) in [
        ("short", many(1, 36..37, 5 << 20)),
        ("long", many(2, 900..1100, 9 << 20)),
        // Longer than what the writer sets aside for a bin, and than the whole budget.
        ("longest", {
            let mut pairs = many(3, 200_000..500_000, 14 << 20);
            pairs.push((vec![7; 9 << 20], int(5)));
            pairs.push((Vec::new(), int(6)));
            pairs
        }),
    ] {
        let (whole, bytes) = build_bytes(with(Options::default()), of_slice(&pairs)).unwrap();
        assert_eq!(whole.spilled, 0, "{name}");
        let temp_dir = folder.path(name);
        std::fs::create_dir(&temp_dir).unwrap();
        for threads in [1, 4] {
            let options = WriterOptions {
                memory: MIN_MEMORY,
                threads,
                temp_dir: Some(temp_dir.clone()),
                ..WriterOptions::default()
            };
            let mut shuffled = pairs.clone();
            Rng(threads as u64).shuffle(&mut shuffled);
            let (built, spilled) = build_bytes(options, of_slice(&shuffled)).unwrap();
            assert!(built.spilled > 0, "{name}: did not spill");
            assert!(bytes == spilled, "{name}: a spill changed the bytes");
            assert!(common::names(&temp_dir).is_empty());
        }
        let path = folder.write("table.pkh", &bytes);
        check_large(&TableFile::open(path).unwrap(), &pairs.into_iter().collect());
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
    let options = WriterOptions { memory: MIN_MEMORY, ..WriterOptions::default() };
    assert!(check_duplicates(&pairs, &options, true) > 0, "did not spill");
}

#[test]
fn keys_of_every_length_at_an_edge() {
    let lens = [0, 1, 30, 31, 32, 127, 128, 511, 512, 16_383, 16_384, 32_766, 65_535, 65_536];
    let mut rng = Rng(5);
    let mut all = Model::new();
    for len in lens {
        // One length alone: inline up to 31 bytes.
        let model: Model = (0..3).map(|i| (rng.bytes(len), int(i))).collect();
        let (built, bytes) = build_bytes(with(Options::default()), slices(&model)).unwrap();
        let inline = if len <= 31 { Layout::Inline } else { Layout::TermOrder };
        assert_eq!(built.footer.layout, inline, "{len}");
        check_bytes(&bytes, &model, &[]);

        let layout = LayoutChoice::Fixed(Layout::Inline);
        let result = build_bytes(with(Options { layout, ..Options::default() }), slices(&model));
        match result {
            Ok((_, same)) => assert!(len <= 31 && same == bytes),
            Err(Error::Table { source: CoreError::KeyLength { expected: 31, found }, .. }) => {
                assert!(len > 31 && found == len as u64);
            }
            Err(error) => panic!("{len}: {error}"),
        }
        all.extend(model);
    }
    // Lengths that differ cannot be inline, even if all are short.
    for partition_bits in [None, Some(3)] {
        let table = Options { partition_bits, ..Options::default() };
        let (built, bytes) = build_bytes(with(table), slices(&all)).unwrap();
        assert_eq!(built.footer.layout, Layout::TermOrder);
        check_bytes(&bytes, &all, &[]);
    }
    let layout = LayoutChoice::Fixed(Layout::Inline);
    let short = numbered("key", 8..12);
    let error =
        build_bytes(with(Options { layout, ..Options::default() }), slices(&short)).unwrap_err();
    assert!(matches!(error, Error::Table { source: CoreError::KeyLength { .. }, .. }), "{error}");
}

#[test]
fn no_keys_and_one() {
    for n in [0, 1] {
        let model = numbered("only", 0..n);
        for layout in [
            LayoutChoice::Auto,
            LayoutChoice::Fixed(Layout::Inline),
            LayoutChoice::Fixed(Layout::TermOrder),
        ] {
            for (filter_bits, partition_bits) in [(0, None), (10, Some(0)), (10, Some(10))] {
                let table = Options { layout, filter_bits, partition_bits, ..Options::default() };
                let bytes = all_ways(table, &model.clone().into_iter().collect());
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
    let writer = |value| {
        TableWriter::new(with(Options { value: ValueChoice::Fixed(value), ..Options::default() }))
            .unwrap()
    };
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
        assert_eq!((built.footer.keys, built.footer.value.width()), (2, width));
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
        assert_eq!(built.footer.value.width(), width, "{most}");
    }
}

#[test]
fn options_out_of_range() {
    for options in [
        WriterOptions { memory: MIN_MEMORY - 1, ..WriterOptions::default() },
        WriterOptions { memory: 0, ..WriterOptions::default() },
        with(Options { filter_bits: 65, ..Options::default() }),
        with(Options { partition_bits: Some(11), ..Options::default() }),
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
        let table = Options { partition_bits, ..Options::default() };
        let (_, bytes) = build_bytes(with(table), slices(&model)).unwrap();
        for threads in [100, 1_000_000] {
            let options = WriterOptions { threads, ..with(table) };
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
        let table = Options { partition_bits, ..Options::default() };
        let (_, bytes) = build_bytes(with(table), slices(&model)).unwrap();
        let built = publish(&path, with(table), slices(&model)).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
        assert_eq!(built.footer.file_len, bytes.len() as u64);
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
    let control = Control::default().on_progress(move |done, all| {
        // Partitions come in order; 16 of them.
        assert!(all == 16 && done > seen.swap(done, Ordering::Relaxed));
    });
    let table = Options { partition_bits: Some(4), ..Options::default() };
    let options = WriterOptions { table, control, ..WriterOptions::default() };
    publish(&path, options.clone(), slices(&model)).unwrap();
    assert_eq!(last.load(Ordering::Relaxed), 16);
    let before = folder.read("table.pkh");

    // Stopped at once, and in the middle.
    for stop_after in [0, 3] {
        let flag = Arc::new(AtomicBool::new(stop_after == 0));
        let set = flag.clone();
        let control = Control::default().cancelled_by(flag).on_progress(move |done, _| {
            set.store(done >= stop_after, Ordering::Relaxed);
        });
        let options = WriterOptions { threads: 1, control, ..options.clone() };
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
    let options = WriterOptions {
        memory: MIN_MEMORY,
        temp_dir: Some(missing.clone()),
        ..WriterOptions::default()
    };
    let pairs = many(7, 5000..5001, 9 << 20);
    let error = build_bytes(options, of_slice(&pairs)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    names_path(&error, &missing);
}

#[test]
fn keys_that_could_not_be_spilled_are_not_forgotten() {
    let folder = Folder::new();
    let path = folder.path("t.pkh");
    let options = WriterOptions {
        memory: MIN_MEMORY,
        temp_dir: Some(folder.path("missing")),
        on_duplicate: OnDuplicate::First,
        ..WriterOptions::default()
    };
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
