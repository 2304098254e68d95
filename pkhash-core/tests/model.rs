//! Tables against a `BTreeMap`: random keys and options, then every edge of length, number and error
//! by name.

mod common;

use std::collections::BTreeMap;

use common::{Pair, Rng, build, check, craft, lookup, raw, try_build};
use pkhash_core::builder::{
    self, Assembler, Entry, KeyStats, LayoutChoice, PerfectShape, TableOptions, ValueChoice,
};
use pkhash_core::format::{self, MAX_INLINE_KEY_LEN, TAIL_LEN};
use pkhash_core::hash::partition;
use pkhash_core::{
    Error, Footer, HashedKeys, KeyHasher, Layout, Lookup, Scalar, Table, Value, ValueFormat,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0x00c0_ffee),
        failure_persistence: None,
        ..Config::default()
    }
}

fn pairs(model: &Model) -> Vec<Pair> {
    model.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What a table of these options makes of the model's values.
fn stored(options: &TableOptions, model: &Model) -> Model {
    let width = match options.value {
        ValueChoice::Fixed(value) => usize::from(value.width()),
        ValueChoice::Auto => {
            let max = model.values().map(|value| integer(value)).max().unwrap_or(0);
            usize::from(ValueFormat::narrowest(max).width())
        }
    };
    model.iter().map(|(key, value)| (key.clone(), value[..width].to_vec())).collect()
}

fn integer(value: &[u8]) -> u64 {
    value.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Keys that begin alike, differ in one byte, are prefixes of each other, or share nothing.
fn key(len: impl Strategy<Value = usize> + Clone + 'static) -> impl Strategy<Value = Vec<u8>> {
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
}

fn keys(layout: Layout) -> BoxedStrategy<Vec<Vec<u8>>> {
    let number = prop_oneof![1 => 0..3usize, 4 => 3..90usize];
    let one_length = |len: BoxedStrategy<usize>| {
        let number = number.clone();
        (len, number).prop_flat_map(|(len, n)| prop::collection::vec(key(Just(len)), n))
    };
    match layout {
        Layout::Perfect => prop_oneof![
            3 => one_length((0..=40usize).boxed()),
            1 => one_length((41..=140usize).boxed()),
            4 => keys(Layout::TermOrder),
        ]
        .boxed(),
        Layout::Inline => (0..=MAX_INLINE_KEY_LEN as usize, number)
            .prop_flat_map(|(len, n)| prop::collection::vec(key(Just(len)), n))
            .boxed(),
        _ => {
            let len = prop_oneof![8 => 0..40usize, 2 => 120..136usize, 1 => 400..520usize];
            number.prop_flat_map(move |n| prop::collection::vec(key(len.clone()), n)).boxed()
        }
    }
}

fn options(layout: Layout) -> impl Strategy<Value = TableOptions> {
    let value = prop_oneof![
        2 => Just(ValueChoice::Auto),
        1 => (1..=8u8).prop_map(|w| ValueChoice::Fixed(ValueFormat::integer(w).unwrap())),
        1 => prop::sample::select(vec![0, 1, 4, 12, 64])
            .prop_map(|w| ValueChoice::Fixed(ValueFormat::opaque(w).unwrap())),
    ];
    let filter_bits = prop_oneof![
        1 => Just(None),
        2 => Just(Some(0)),
        2 => Just(Some(10)),
        1 => (1..=64u8).prop_map(Some),
    ];
    let most = layout.max_partition_bits().min(12);
    let partition_bits = prop_oneof![3 => Just(0), 3 => 1..4u8, 1 => 4..=most];
    let shape = prop_oneof![
        1 => Just(PerfectShape::default()),
        1 => (100..=800u16, 500..=1000u16).prop_map(|(buckets, slots)| {
            PerfectShape::default().keys_per_100_buckets(buckets).keys_per_1000_slots(slots)
        }),
    ];
    // Distinct keys of one 64-bit hash, often.
    let hasher = prop_oneof![
        2 => any::<u64>().prop_map(KeyHasher::new),
        1 => (any::<u64>(), 0..7u8).prop_map(|(seed, bits)| KeyHasher::truncated(seed, bits)),
    ];
    (value, filter_bits, partition_bits, hasher, any::<bool>(), shape).prop_map(
        move |(value, filter_bits, partition_bits, hasher, packed, shape)| {
            TableOptions::default()
                .layout(layout)
                .value(value)
                .filter_bits(filter_bits)
                .hasher(hasher)
                .partition_bits(partition_bits)
                .packed(packed)
                .shape(shape)
        },
    )
}

/// The error of a perfect table with too many keys of one hash: the first partition with more than 64
/// keys whose hash another key has.
fn too_many_of_one_hash(options: &TableOptions, model: &Model) -> Option<Error> {
    let mut by_partition: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for key in model.keys() {
        let hash = options.hasher.hash(key);
        let p = partition(hash, options.partition_bits.unwrap_or(0));
        by_partition.entry(p).or_default().push(hash);
    }
    by_partition.into_values().find_map(|mut hashes| {
        let keys = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        let found = (keys - hashes.len()) as u64;
        (found > 64).then_some(Error::TooLarge { what: "keys of one hash", expected: 64, found })
    })
}

/// Options, a model whose values fit them, and keys of which some are absent.
fn case(layout: Layout) -> impl Strategy<Value = (TableOptions, Model, Vec<Vec<u8>>, u64)> {
    (options(layout), keys(layout), keys(layout), any::<u64>(), 0..=8usize).prop_map(
        |(options, keys, mut absent, seed, significant)| {
            let mut rng = Rng(seed);
            let model: Model = keys
                .into_iter()
                .map(|key| {
                    let value = match options.value {
                        ValueChoice::Fixed(value) => rng.bytes(value.width().into()),
                        ValueChoice::Auto => {
                            let mut value = rng.bytes(8);
                            value[significant..].fill(0);
                            value
                        }
                    };
                    (key, value)
                })
                .collect();
            absent.extend(model.keys().take(10).map(|key| [key, &b"+"[..]].concat()));
            absent.retain(|key| !model.contains_key(key));
            (options, model, absent, seed)
        },
    )
}

/// Whether keys may find no place with any seed: more than 99 % of the slots taken, or so many keys in
/// a bucket that the 8 bits of their pilot are hardly more than it takes to tell of their slots. (At
/// load a: log2 e × (1 + (1 - a) / a × ln(1 - a)) bits for each key. The default shape needs 4.1 of 8.)
fn is_tight(shape: PerfectShape) -> bool {
    let load = f64::from(shape.keys_per_1000_slots) / 1000.0;
    let bits = std::f64::consts::LOG2_E * (1.0 + (1.0 - load) / load * (1.0 - load).ln());
    load > 0.99 || bits * f64::from(shape.keys_per_100_buckets) / 100.0 > 4.2
}

fn agrees_with_model(
    (options, model, absent, seed): (TableOptions, Model, Vec<Vec<u8>>, u64),
) -> Result<(), TestCaseError> {
    let mut pairs = pairs(&model);
    let bytes = match try_build(&options, &pairs) {
        Ok(bytes) => bytes,
        Err(Error::Unsolvable { .. }) if is_tight(options.shape) => return Ok(()),
        Err(error) => {
            prop_assert_eq!(Some(error), too_many_of_one_hash(&options, &model));
            return Ok(());
        }
    };
    let table = Table::open(&bytes).unwrap();
    if table.footer().layout() == Layout::Perfect {
        prop_assert_eq!(too_many_of_one_hash(&options, &model), None);
    }
    check(&table, &stored(&options, &model), &absent);

    // The order of the entries does not matter.
    let mut rng = Rng(seed);
    for i in (1..pairs.len()).rev() {
        pairs.swap(i, rng.below(i + 1));
    }
    prop_assert!(build(&options, &pairs) == bytes, "the bytes depend on the order of the entries");

    // A batch in any mix of hits, misses and repeats.
    let all: Vec<&[u8]> = model.keys().chain(&absent).map(Vec::as_slice).collect();
    if !all.is_empty() {
        let batch: Vec<&[u8]> = (0..rng.below(200)).map(|_| all[rng.below(all.len())]).collect();
        let mut out = vec![None::<Value<'_>>; batch.len()];
        table.get_batch(Scalar, &batch, &mut out).unwrap();
        for (key, value) in batch.iter().zip(out) {
            prop_assert_eq!(value, table.get(Scalar, key).unwrap());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn inline_agrees_with_model(case in case(Layout::Inline)) {
        agrees_with_model(case)?;
    }

    #[test]
    fn term_order_agrees_with_model(case in case(Layout::TermOrder)) {
        agrees_with_model(case)?;
    }

    #[test]
    fn perfect_agrees_with_model(case in case(Layout::Perfect)) {
        agrees_with_model(case)?;
    }

    #[test]
    fn automatic_layout_agrees_with_model(case in case(Layout::TermOrder)) {
        let (mut options, mut model, absent, seed) = case;
        options.layout = LayoutChoice::Auto;
        options.partition_bits = None;
        if seed % 2 == 0 {
            model.retain(|key, _| key.len() == 17);
        }
        agrees_with_model((options, model, absent, seed))?;
    }
}

fn numbered(n: u64, len: usize) -> Vec<Pair> {
    (0..n)
        .map(|i| {
            let mut key = i.to_be_bytes().repeat(len.div_ceil(8));
            key.truncate(len);
            (key, (i as u32).to_le_bytes().to_vec())
        })
        .collect()
}

fn model_of(options: &TableOptions, pairs: &[Pair]) -> Model {
    stored(options, &pairs.iter().cloned().collect())
}

fn fixed(layout: Layout) -> TableOptions {
    TableOptions::default().layout(layout).value(ValueFormat::integer(4).unwrap())
}

#[test]
fn key_length_edges() {
    const LENS: [usize; 20] = [
        0, 1, 2, 30, 31, 32, 33, 127, 128, 129, 511, 512, 513, 16_383, 16_384, 16_385, 32_766,
        32_767, 65_535, 65_536,
    ];
    // Each length alone, so that it is shortest and longest, and as a miss one byte off.
    for len in LENS {
        let pairs = vec![(vec![7; len], vec![1, 2, 3, 4])];
        let options = fixed(Layout::TermOrder);
        let bytes = build(&options, &pairs);
        let table = Table::open(&bytes).unwrap();
        let mut absent = vec![vec![7; len + 1]];
        if len > 0 {
            absent.extend([vec![7; len - 1], vec![8; len]]);
        }
        check(&table, &model_of(&options, &pairs), &absent);
        assert_eq!(table.footer().min_key_len() as usize, len);
        assert_eq!(table.footer().max_key_len() as usize, len);
    }
    // All of them together, in one partition and in several.
    let pairs: Vec<Pair> = LENS.iter().map(|len| (vec![9; *len], vec![5; 4])).collect();
    let absent: Vec<Vec<u8>> =
        [3, 29, 126, 510, 16_386, 65_534, 65_537].into_iter().map(|len| vec![9; len]).collect();
    for bits in [0, 3] {
        let options = fixed(Layout::TermOrder).partition_bits(bits);
        check(
            &Table::open(&build(&options, &pairs)).unwrap(),
            &model_of(&options, &pairs),
            &absent,
        );
    }
}

#[test]
fn inline_takes_every_length_up_to_31() {
    let options = fixed(Layout::Inline);
    for len in 0..=31 {
        let n = if len == 0 { 1 } else { 200 };
        let pairs = numbered(n, 8.max(len));
        // The varying byte stays in.
        let pairs: Vec<Pair> = pairs
            .into_iter()
            .map(|(key, value)| (key[8 - len.min(8)..][..len].to_vec(), value))
            .collect();
        let bytes = build(&options, &pairs);
        let table = Table::open(&bytes).unwrap();
        let mut absent = vec![vec![0xee; len + 1]];
        if len > 0 {
            absent.extend([vec![0xee; len], vec![0; len - 1]]);
            // Every byte of a key counts.
            for at in 0..len {
                let mut key = pairs[1].0.clone();
                key[at] ^= 0x40;
                absent.push(key);
            }
        }
        let model = model_of(&options, &pairs);
        absent.retain(|key| !model.contains_key(key));
        check(&table, &model, &absent);
        assert_eq!(table.footer().layout(), Layout::Inline);
    }
    assert_eq!(
        try_build(&options, &numbered(2, 32)),
        Err(Error::KeyLength { expected: 31, found: 32 })
    );
}

#[test]
fn no_keys_and_one_key() {
    for layout in Layout::all() {
        for filter_bits in [Some(0), Some(10)] {
            for bits in [0, 1, 10] {
                let options = fixed(layout).filter_bits(filter_bits).partition_bits(bits);
                for pairs in [vec![], numbered(1, 8), numbered(1, 0)] {
                    let bytes = build(&options, &pairs);
                    let table = Table::open(&bytes).unwrap();
                    assert_eq!(table.footer().slots(), 2 * pairs.len() as u64);
                    let absent = vec![vec![1], vec![1; 8], vec![1; 32]];
                    check(&table, &model_of(&options, &pairs), &absent);
                }
            }
        }
    }
    // An empty table needs no entries, scratch or values at all.
    let mut out = [0; 1024];
    let len = builder::build(Scalar, &TableOptions::default(), &mut [], &mut [], &mut [], &mut out)
        .unwrap();
    assert_eq!(Table::open(&out[..len]).unwrap().get(Scalar, b""), Ok(None));
}

/// [`builder::build`] into a buffer that is larger than needed and marked; `Err` only if the buffer has
/// not been touched.
fn build_marked(options: &TableOptions, pairs: &[Pair]) -> Result<Vec<u8>, Error> {
    let mut entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
    let mut spare = vec![Entry::default(); entries.len()];
    let mut scratch = vec![0; builder::scratch_len(entries.len())];
    let mut out = vec![0xaa; 1 << 16];
    let built = builder::build(Scalar, options, &mut entries, &mut spare, &mut scratch, &mut out);
    match built {
        Ok(len) => {
            assert!(out[len..].iter().all(|byte| *byte == 0xaa), "written past the table");
            out.truncate(len);
            Ok(out)
        }
        Err(error) => {
            assert!(out.iter().all(|byte| *byte == 0xaa), "half a table was left behind");
            Err(error)
        }
    }
}

#[test]
fn duplicates_are_an_error_and_leave_nothing_behind() {
    for layout in Layout::all() {
        for bits in [0, 3] {
            for hasher in
                [KeyHasher::new(0), KeyHasher::truncated(0, 0), KeyHasher::truncated(0, 2)]
            {
                let options = fixed(layout).hasher(hasher).partition_bits(bits);
                for n in [1, 2, 50] {
                    for twice in [0, n / 2, n - 1] {
                        let mut pairs = numbered(n as u64, 8);
                        assert!(build_marked(&options, &pairs).is_ok());
                        // The same key with another value, and with the same.
                        let mut other = pairs[twice].clone();
                        if n > 1 {
                            other.1[3] ^= 1;
                        }
                        pairs.push(other);
                        let Err(Error::DuplicateKey { index }) = build_marked(&options, &pairs)
                        else {
                            panic!("{layout}: key {twice} of {n} occurs twice");
                        };
                        assert!((1..=n).contains(&index));
                    }
                }
            }
        }
    }
    // The index leads to the two keys, the one that came first before the other.
    let options = TableOptions::default();
    let pairs = [(b"k".to_vec(), vec![1]), (b"j".to_vec(), vec![2]), (b"k".to_vec(), vec![3])];
    let mut entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
    builder::sort(&mut entries, &mut [Entry::default(); 3]).unwrap();
    let Err(Error::DuplicateKey { index }) = builder::table_len(&options, &entries) else {
        panic!("a key occurs twice");
    };
    assert_eq!([entries[index - 1].value, entries[index].value], [&[1], &[3]]);
    assert_eq!([entries[index - 1].key, entries[index].key], [b"k", b"k"]);
}

#[test]
fn values_that_do_not_fit() {
    let build_one = |value: ValueChoice, bytes: &[u8]| {
        let options = TableOptions::default().value(value);
        build_marked(&options, &[(b"key".to_vec(), bytes.to_vec())])
    };
    let wrong = |expected, found| Err(Error::ValueWidth { expected, found });
    for width in 1..=8u8 {
        let value = ValueChoice::Fixed(ValueFormat::integer(width).unwrap());
        let mut bytes = [0; 9];
        bytes[usize::from(width) - 1] = 0x80;
        assert!(build_one(value, &bytes).is_ok(), "more bytes, but zeros");
        assert!(build_one(value, &bytes[..width.into()]).is_ok());
        let (width, short) = (u32::from(width), usize::from(width) - 1);
        assert_eq!(build_one(value, &[0; 8][..short]), wrong(width, short as u32));
        bytes[width as usize] = 1;
        assert_eq!(build_one(value, &bytes), wrong(width, width + 1));
        assert_eq!(build_one(value, &bytes[..=width as usize]), wrong(width, width + 1));
    }
    for width in [0, 1, 12, 64u8] {
        let value = ValueChoice::Fixed(ValueFormat::opaque(width).unwrap());
        let len = usize::from(width);
        assert!(build_one(value, &vec![7; len]).is_ok());
        assert_eq!(build_one(value, &vec![0; len + 1]), wrong(width.into(), len as u32 + 1));
        if len > 0 {
            assert_eq!(build_one(value, &vec![7; len - 1]), wrong(width.into(), len as u32 - 1));
        }
    }
    // As narrow as the largest value, at every step.
    for (max, width) in [(0, 1), (255, 1), (256, 2), (u64::from(u32::MAX), 4), (u64::MAX, 8)] {
        let bytes = build_one(ValueChoice::Auto, &u64::to_le_bytes(max)).unwrap();
        let table = Table::open(&bytes).unwrap();
        assert_eq!(table.footer().value().width(), width);
        assert_eq!(table.footer().max_value(), max);
        assert_eq!(table.get(Scalar, b"key").unwrap().unwrap().as_u64(), Some(max));
    }
}

#[test]
fn keys_of_another_length() {
    let options = fixed(Layout::Inline);
    let mut pairs = numbered(3, 8);
    pairs.extend(numbered(1, 9));
    assert_eq!(build_marked(&options, &pairs), Err(Error::KeyLength { expected: 8, found: 9 }));
    pairs.swap(0, 3);
    assert_eq!(build_marked(&options, &pairs), Err(Error::KeyLength { expected: 8, found: 9 }));

    // Behind the plan's back.
    let plan = options.plan(&stats(&numbered(3, 8))).unwrap();
    for len in [0, 7, 9, 31, 300] {
        let pairs = numbered(1, len);
        let entries = [options.entry(&pairs[0].0, &pairs[0].1)];
        assert_eq!(
            plan.partition_len(0, &entries),
            Err(Error::KeyLength { expected: 8, found: len as u64 })
        );
    }
    // Looked up, such a key is just absent.
    let bytes = build(&options, &numbered(3, 8));
    let table = Table::open(&bytes).unwrap();
    for len in [0, 7, 9, 31, 32, 300] {
        let key = vec![0; len];
        assert_eq!(table.get(Scalar, &key), Ok(None));
        assert_eq!(lookup(&bytes, table.footer(), &key).unwrap().0, None);
    }
}

fn stats(pairs: &[Pair]) -> KeyStats {
    let mut stats = KeyStats::default();
    for (key, value) in pairs {
        stats.add(key, value);
    }
    stats
}

#[test]
fn options_out_of_range() {
    let stats = stats(&numbered(3, 8));
    let within =
        |option, least, expected, found| Err(Error::BadOption { option, least, expected, found });
    let bad = |option, expected, found| within(option, 0, expected, found);
    let plan = |options: TableOptions| options.plan(&stats).map(|_| ());
    assert_eq!(plan(TableOptions::default().filter_bits(65)), bad("filter bits", 64, 65));
    for layout in [Layout::Inline, Layout::TermOrder, Layout::Perfect] {
        let most = if layout == Layout::Perfect { 16 } else { 10 };
        assert_eq!(layout.max_partition_bits(), most);
        let with = |bits| plan(fixed(layout).partition_bits(bits));
        assert_eq!(with(most), Ok(()));
        assert_eq!(with(most + 1), bad("partition bits", most.into(), u64::from(most) + 1));
        assert_eq!(with(u8::MAX), bad("partition bits", most.into(), 255));
    }
    let shape = |keys_per_100_buckets, keys_per_1000_slots| {
        let shape = PerfectShape::default()
            .keys_per_100_buckets(keys_per_100_buckets)
            .keys_per_1000_slots(keys_per_1000_slots);
        plan(TableOptions::default().shape(shape))
    };
    for (buckets, slots) in [(100, 500), (100, 1000), (800, 500), (800, 1000)] {
        assert_eq!(shape(buckets, slots), Ok(()));
    }
    for found in [0, 99, 801, u16::MAX] {
        let wrong = within("keys per 100 buckets", 100, 800, found.into());
        assert_eq!(shape(found, 990), wrong);
    }
    for found in [0, 499, 1001, u16::MAX] {
        let wrong = within("keys per 1,000 slots", 500, 1000, found.into());
        assert_eq!(shape(300, found), wrong);
    }
    for (len, layout) in [(1u64 << 31, LayoutChoice::Auto), (1 << 40, LayoutChoice::Auto)] {
        let mut stats = stats;
        (stats.keys, stats.min_key_len, stats.max_key_len) = (1, len, len);
        let options = TableOptions::default().layout(layout);
        assert_eq!(
            options.plan(&stats).map(|_| ()),
            Err(Error::KeyLength { expected: (1 << 31) - 1, found: len })
        );
    }
    // Any counts whatever lead to a plan or an error.
    let mut stats = stats;
    (stats.keys, stats.key_bytes, stats.max_value) = (u64::MAX, u64::MAX, u64::MAX);
    for (layout, most) in [(Layout::TermOrder, 10), (Layout::Perfect, 16)] {
        let plan = fixed(layout);
        let plan = plan.value(ValueChoice::Auto).plan(&stats);
        assert_eq!(plan.map(|plan| plan.partition_bits()), Ok(most));
    }
}

#[test]
fn entries_that_are_not_as_said() {
    for layout in Layout::all() {
        let options = fixed(layout).partition_bits(2);
        let pairs = numbered(200, 8);
        let mut entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
        builder::sort(&mut entries, &mut vec![Entry::default(); 200]).unwrap();
        let plan = options.plan(&stats(&pairs)).unwrap();
        let starts: Vec<usize> =
            (0..=4).map(|p| entries.partition_point(|e| partition(e.hash, 2) < p)).collect();
        let mut scratch = vec![0; builder::scratch_len(200)];
        let mut out = vec![0xaa; 1 << 16];
        let mut write = |p: u32, entries: &[Entry<'_>]| {
            let written = plan.write_partition(Scalar, p, entries, &mut scratch, &mut out);
            let error = written.expect_err("not as said");
            assert_eq!(plan.partition_len(p, entries), Err(error));
            assert!(out.iter().all(|byte| *byte == 0xaa), "{error}: written nevertheless");
            error
        };

        let mut mine = entries[starts[1]..starts[2]].to_vec();
        mine.swap(7, 8);
        assert_eq!(write(1, &mine), Error::Unsorted { index: 8 });
        mine.swap(7, 8);
        mine.reverse();
        assert_eq!(write(1, &mine), Error::Unsorted { index: 1 });

        // A neighbour's entry at either end, and the right entries for another partition.
        let wrong = |index, expected, found| Error::WrongPartition { index, expected, found };
        assert_eq!(write(1, &entries[starts[1] - 1..starts[2]]), wrong(0, 1, 0));
        let len = starts[2] - starts[1];
        assert_eq!(write(1, &entries[starts[1]..=starts[2]]), wrong(len, 1, 2));
        assert_eq!(write(2, &entries[starts[1]..starts[2]]), wrong(0, 2, 1));
        assert_eq!(write(4, &entries[starts[3]..]), wrong(0, 4, 3));
        assert_eq!(write(u32::MAX, &entries[starts[3]..]), wrong(0, u32::MAX, 3));
    }
}

#[test]
fn buffers_too_small() {
    for layout in Layout::all() {
        let options = fixed(layout).partition_bits(1);
        let pairs = numbered(50, 8);
        let entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
        let whole = build(&options, &pairs).len();
        let largest = {
            let left = entries.iter().filter(|entry| partition(entry.hash, 1) == 0).count();
            left.max(50 - left)
        };
        let run = |spare: usize, scratch: usize, out: usize| {
            let mut entries = entries.clone();
            builder::build(
                Scalar,
                &options,
                &mut entries,
                &mut vec![Entry::default(); spare],
                &mut vec![0; scratch],
                &mut vec![0; out],
            )
        };
        let small = |what, expected, found| Err(Error::BufferTooSmall { what, expected, found });
        let enough = builder::scratch_len(50);
        assert_eq!(run(50, enough, whole), Ok(whole));
        for spare in [0, 1, 49] {
            assert_eq!(run(spare, enough, whole), small("scratch for sorting", 50, spare));
        }
        for out in [0, 63, 64, 191, 192, whole - 1] {
            assert_eq!(run(50, enough, out), small("buffer for the table", whole, out));
        }
        // One partition at a time needs its scratch.
        let needed = options.plan(&stats(&pairs)).unwrap().scratch_len(largest);
        assert_eq!(run(50, needed, whole), Ok(whole));
        if layout == Layout::Inline {
            assert_eq!(needed, 0);
        } else {
            let wrong = small("scratch for a partition", needed, needed - 1);
            assert_eq!(run(50, needed - 1, whole), wrong);
            let Err(Error::BufferTooSmall { what, found: 1, .. }) = run(50, 1, whole) else {
                panic!("one word for many keys");
            };
            assert_eq!(what, "scratch for a partition");
        }

        let mut entries = entries.clone();
        builder::sort(&mut entries, &mut vec![Entry::default(); 50]).unwrap();
        let first = entries.partition_point(|entry| partition(entry.hash, 1) == 0);
        let plan = options.plan(&stats(&pairs)).unwrap();
        let len = plan.partition_len(0, &entries[..first]).unwrap();
        let mut scratch = vec![0; plan.scratch_len(first)];
        for found in [0, 1, len - 1] {
            let mut out = vec![0; found];
            let written = plan
                .write_partition(Scalar, 0, &entries[..first], &mut scratch, &mut out)
                .map(|_| 0);
            assert_eq!(written, Err(Error::PartitionBuffer { needed: len, found }));
        }
        for found in [0, 95, 191] {
            assert_eq!(
                Assembler::new(&plan, &mut vec![0; found]).map(|_| 0),
                small("buffer for the directory", 192, found)
            );
        }

        // Partitions that are missing, or too many.
        let mut out = vec![0; len];
        let written =
            plan.write_partition(Scalar, 0, &entries[..first], &mut scratch, &mut out).unwrap();
        assert_eq!(written.bytes(), len as u64);
        let mut directory = [0; 192];
        let mut assembler = Assembler::new(&plan, &mut directory).unwrap();
        assembler.push(&written).unwrap();
        assert_eq!(assembler.finish().map(|_| 0), small("number of partitions", 2, 1));
        let mut assembler = Assembler::new(&plan, &mut directory).unwrap();
        assembler.push(&written).unwrap();
        assembler.push(&written).unwrap();
        assert_eq!(
            assembler.push(&written),
            Err(Error::TooLarge { what: "partitions", expected: 2, found: 3 })
        );
    }
    let bytes = build(&fixed(Layout::Inline), &numbered(3, 8));
    let table = Table::open(&bytes).unwrap();
    for (keys, out) in [(1, 0), (0, 1), (33, 32), (2, 40)] {
        assert_eq!(
            table.get_batch(Scalar, &vec![[0; 8]; keys], &mut vec![None::<Value<'_>>; out]),
            Err(Error::BatchLength { expected: keys, found: out })
        );
        // As many hashes as answers, then as many as keys.
        for hashes in [out, keys] {
            let found = if hashes == keys { out } else { hashes };
            assert_eq!(
                table.get_batch(
                    Scalar,
                    HashedKeys { keys: &vec![[0; 8]; keys], hashes: &vec![0; hashes] },
                    &mut vec![None::<Value<'_>>; out]
                ),
                Err(Error::BatchLength { expected: keys, found })
            );
        }
    }
}

#[test]
fn partition_by_partition_is_the_same_table() {
    for layout in Layout::all() {
        for bits in [0, 1, 4] {
            let options = fixed(layout).partition_bits(bits);
            let pairs = numbered(300, 12);
            let mut entries: Vec<Entry<'_>> =
                pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
            builder::sort(&mut entries, &mut vec![Entry::default(); 300]).unwrap();
            let plan = options.plan(&stats(&pairs)).unwrap();
            assert_eq!(plan.layout(), layout);
            let mut directory = vec![0; plan.directory_len()];
            let mut assembler = Assembler::new(&plan, &mut directory).unwrap();
            let mut bytes = format::head().to_vec();
            let mut partitions = Vec::new();
            for p in 0..plan.partitions() {
                let mine: Vec<Entry<'_>> = entries
                    .iter()
                    .copied()
                    .filter(|entry| plan.partition_of(entry.hash) == p)
                    .collect();
                let mut out = vec![0xaa; plan.partition_len(p, &mine).unwrap() + 100];
                let mut scratch = vec![0; plan.scratch_len(mine.len())];
                let written =
                    plan.write_partition(Scalar, p, &mine, &mut scratch, &mut out).unwrap();
                assert_eq!(written.partition().keys as usize, mine.len());
                partitions.push((*written.partition(), written.bytes()));
                assembler.push(&written).unwrap();
                bytes.extend(&out[..written.bytes() as usize]);
            }
            let (footer, directory, tail) = assembler.finish().unwrap();
            for (partition, len) in partitions {
                let sections = footer.sections(&partition);
                assert_eq!(sections.clone().map(|(_, len)| len).sum::<u64>(), len);
            }
            bytes.extend(directory);
            bytes.extend(tail);
            assert!(bytes == build(&options, &pairs), "{layout}, {bits} bits");
            assert_eq!(Table::open(&bytes).unwrap().footer(), &footer);
        }
    }
}

#[test]
fn thousands_of_keys_of_one_hash() {
    // A perfect table takes 64 of them.
    for (bits, n) in [(0, 66), (0, 2000), (3, 4000)] {
        let options = fixed(Layout::Perfect).hasher(KeyHasher::truncated(1, bits));
        let found = n - (1 << bits);
        let wrong = Error::TooLarge { what: "keys of one hash", expected: 64, found };
        assert_eq!(build_marked(&options, &numbered(n, 16)), Err(wrong));
    }
    for layout in [Layout::Inline, Layout::TermOrder] {
        for (bits, n) in [(0, 2000), (3, 4000)] {
            let options = fixed(layout).hasher(KeyHasher::truncated(1, bits));
            let pairs = numbered(n, 16);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            table.verify().unwrap();
            assert_eq!(table.iter().count() as u64, n);
            if layout == Layout::TermOrder && bits == 0 {
                // All homes are slot 0: the distance of slot i is i, up to what 8 bits hold.
                let words = raw::sections(&bytes, 0)[2].start;
                for slot in 0..n {
                    let word = raw::get(&bytes, words + 8 * slot as usize, 8);
                    assert_eq!(word >> 16 & 0xff, slot.min(255));
                }
            }
            let limit = table.partition(0).unwrap().probe_limit;
            // Bounded by the keys of that hash, and no shorter than they need.
            assert!(u64::from(limit) <= n && u64::from(limit) >= n >> bits, "{limit}");

            let mut out = vec![None::<Value<'_>>; pairs.len()];
            let keys: Vec<&[u8]> = pairs.iter().map(|pair| pair.0.as_slice()).collect();
            assert_eq!(table.get_batch(Scalar, &keys, &mut out), Ok(pairs.len()));
            for (value, (_, expected)) in out.iter().zip(&pairs) {
                assert_eq!(value.unwrap().as_bytes(), expected);
            }
            // Each one staged is many reads: some, with the first and the last among them.
            for (key, value) in pairs.iter().step_by(97).chain(pairs.last()) {
                assert_eq!(table.get(Scalar, key).unwrap().unwrap().as_bytes(), value);
                let (found, _) = lookup(&bytes, table.footer(), key).unwrap();
                assert_eq!(found.as_ref(), Some(value));
            }
            let absent = [0xee; 16];
            assert_eq!(table.get(Scalar, &absent), Ok(None));
            assert_eq!(lookup(&bytes, table.footer(), &absent).unwrap().0, None);
        }
    }
}

#[test]
fn a_footer_alone_is_enough() {
    for layout in Layout::all() {
        for bits in [0, 2] {
            let options = fixed(layout).partition_bits(bits);
            let bytes = build(&options, &numbered(100, 8));
            let (len, whole) = (bytes.len() as u64, Table::open(&bytes).unwrap());
            // The tail says how much more is needed.
            let needed = match Footer::parse(&bytes[bytes.len() - TAIL_LEN..], len) {
                Err(Error::TooShort { found: 128, expected }) => expected as usize,
                other => panic!("{other:?}"),
            };
            let end = &bytes[bytes.len() - needed..];
            let footer = Footer::parse(end, len).unwrap();
            assert_eq!((&footer, footer.footer_len()), (whole.footer(), needed));
            assert_eq!(
                Footer::parse(&end[1..], len).unwrap_err(),
                Error::TooShort { found: needed as u64 - 1, expected: needed as u64 }
            );
            assert_eq!(
                Footer::parse(&end[needed - 127..], len).unwrap_err(),
                Error::TooShort { found: 127, expected: 128 }
            );
            assert_eq!(
                Footer::parse(&bytes, len - 1).unwrap_err(),
                Error::WrongLength { expected: len - 1, found: len }
            );

            // Bytes of another length than was wanted.
            let mut staged = Lookup::new(&footer, end, &[0; 8]).unwrap();
            let want = staged.want().unwrap();
            for found in [0, want.len - 1, want.len + 1] {
                assert_eq!(
                    staged.supply(&vec![0; found]),
                    Err(Error::WrongLength { expected: want.len as u64, found: found as u64 })
                );
                assert_eq!(staged.want(), Some(want), "it can be supplied again");
            }
        }
    }
}

fn perfect() -> TableOptions {
    fixed(Layout::Perfect)
}

fn layout_of(bytes: &[u8]) -> Layout {
    Table::open(bytes).unwrap().footer().layout()
}

#[test]
fn crafted_keys_have_their_hash() {
    let hasher = KeyHasher::new(0);
    let mut rng = Rng(0xc4af7);
    for hash in [0, 1, u64::MAX, 1 << 63].into_iter().chain((0..500).map(|_| rng.next())) {
        assert_eq!(hasher.hash(&craft::key_of_hash(hash)), hash);
    }
    for i in 0..50 {
        let keys = craft::keys_of_one_hash(6, i);
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(keys.iter().all(|key| hasher.hash(key) == hasher.hash(&keys[0])));
        let other = craft::keys_of_one_hash(1, i + 1);
        assert_ne!(hasher.hash(&keys[0]), hasher.hash(&other[0]));
    }
}

#[test]
fn perfect_takes_every_length() {
    for len in (0..=70).chain([126, 127, 128, 16_384, 65_535, 65_536]) {
        let n = [1, 40, 3][usize::from(len > 0) + usize::from(len > 1000)];
        let pairs: Vec<Pair> = numbered(n, 8.max(len))
            .into_iter()
            .map(|(key, value)| (key[8 - len.min(8)..][..len].to_vec(), value))
            .collect();
        let mut absent = vec![vec![0xee; len + 1]];
        if len > 0 {
            absent.extend([vec![0xee; len], vec![0; len - 1]]);
            // Every byte of a key counts.
            for at in (0..len).step_by(len / 40 + 1) {
                let mut key = pairs[1].0.clone();
                key[at] ^= 0x40;
                absent.push(key);
            }
        }
        for packed in [false, true] {
            let options = perfect().packed(packed);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            let model = model_of(&options, &pairs);
            absent.retain(|key| !model.contains_key(key));
            // They differ only where records lie in lines.
            if !packed || len % 10 == 0 {
                check(&table, &model, &absent);
            }
            let footer = table.footer();
            assert_eq!((footer.layout(), footer.unit()), (Layout::Perfect, 0));
            // As many in a line as fit, if some would not keep to lines and it costs less than 8 %.
            let width = len + 4;
            let fit = 64 / width;
            let lines = !packed && fit > 0 && 64 % width != 0 && 64 * 100 < fit * width * 108;
            assert_eq!(
                usize::from(footer.records_per_line()),
                if lines { fit } else { 0 },
                "{len}"
            );
            let entry = table.partition(0).unwrap();
            let bytes = match footer.records_per_line() {
                0 => u64::from(entry.slots) * width as u64,
                n => u64::from(entry.slots).div_ceil(n.into()) * 64,
            };
            assert_eq!(entry.record_bytes, bytes);
        }
    }
}

#[test]
fn layouts_that_are_chosen() {
    let auto = perfect().layout(LayoutChoice::Auto);
    let too_long = |expected, found| Err(Error::KeyLength { expected, found });
    for (len, layout) in [
        (0, Layout::Perfect),
        (31, Layout::Perfect),
        (32, Layout::Perfect),
        (65_536, Layout::Perfect),
        (65_537, Layout::TermOrder),
    ] {
        let pairs = numbered(1, len);
        let bytes = build(&auto, &pairs);
        assert_eq!(layout_of(&bytes), layout, "{len}");
        check(&Table::open(&bytes).unwrap(), &model_of(&auto, &pairs), &[vec![1; len + 1]]);
        let filter_bits = if layout == Layout::Perfect { 0 } else { 10 };
        assert_eq!(Table::open(&bytes).unwrap().footer().filter_bits(), filter_bits);
    }
    assert_eq!(try_build(&perfect(), &numbered(1, 65_537)), too_long(65_536, 65_537));
    assert_eq!(layout_of(&build(&TableOptions::default(), &[])), Layout::Perfect);

    // Keys of several lengths: 28 of the longest must fit a line.
    for width in [0u8, 1, 4, 8, 64] {
        let value = ValueFormat::opaque(width).unwrap();
        let with = |layout| perfect().layout(layout).value(value);
        let longest = 37_439 - usize::from(width);
        for len in [longest, longest + 1, 50_000] {
            let pairs: Vec<Pair> = [(0, 1), (7, 5), (9, len)]
                .map(|(byte, len)| (vec![byte; len], vec![3; width.into()]))
                .into();
            let bytes = build(&with(LayoutChoice::Auto), &pairs);
            let model = pairs.iter().cloned().collect();
            check(&Table::open(&bytes).unwrap(), &model, &[vec![9; len - 1], vec![9; len + 1]]);
            let fixed = try_build(&with(LayoutChoice::Fixed(Layout::Perfect)), &pairs);
            if len == longest {
                assert_eq!(layout_of(&bytes), Layout::Perfect);
                assert_eq!(Table::open(&bytes).unwrap().footer().unit(), 16);
                assert!(fixed == Ok(bytes));
            } else {
                assert_eq!(layout_of(&bytes), Layout::TermOrder);
                assert_eq!(fixed, too_long(longest as u64, len as u64));
            }
        }
    }
}

#[test]
fn units_are_the_least_that_hold_a_line_of_the_longest_keys() {
    for width in [0u8, 3] {
        let value = ValueChoice::Fixed(ValueFormat::opaque(width).unwrap());
        for unit in [1u8, 2, 4, 8, 16] {
            // No slot is empty, so that one line is full.
            let shape = PerfectShape::default().keys_per_100_buckets(200).keys_per_1000_slots(1000);
            let options = perfect().value(value).shape(shape);
            let longest = 2340 * usize::from(unit) - usize::from(unit > 1) - usize::from(width);
            let keys = |longest: usize| -> Vec<Pair> {
                let mut rng = Rng(unit.into());
                let lens = (0..28).map(|_| longest).chain([longest - 1]);
                lens.map(|len| (rng.bytes(len), vec![1; width.into()])).collect()
            };
            let pairs = keys(longest);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            assert_eq!((table.footer().unit(), table.footer().slots()), (unit, 29));
            assert_eq!(table.verify(), Ok(()));
            for (key, value) in &pairs {
                assert_eq!(table.get(Scalar, key).unwrap().unwrap().as_bytes(), value);
                assert_eq!(table.get(Scalar, &key[1..]), Ok(None));
                assert_eq!(lookup(&bytes, table.footer(), key).unwrap().0.as_ref(), Some(value));
            }
            let lines = raw::sections(&bytes, 0)[2].clone();
            let end = raw::get(&bytes, lines.start + 61, 2);
            assert!(end == 65_520 || end == 65_520 - 1, "{end} units in a full line");
            if unit < 16 {
                let bytes = build(&options, &keys(longest + 1));
                assert_eq!(Table::open(&bytes).unwrap().footer().unit(), 2 * unit);
            }
        }
    }
    // The record of the empty key of a set takes a unit of its own.
    let set = |first: &[u8], value: ValueFormat| {
        let value = ValueChoice::Fixed(value);
        let pairs: Vec<Pair> = [first, b"key"].map(|key| (key.to_vec(), vec![0; 8])).into();
        let width = match value {
            ValueChoice::Fixed(value) => usize::from(value.width()),
            ValueChoice::Auto => 8,
        };
        let pairs: Vec<Pair> = pairs.into_iter().map(|(k, v)| (k, v[..width].to_vec())).collect();
        let bytes = build(&perfect().value(value), &pairs);
        let table = Table::open(&bytes).unwrap();
        check(&table, &pairs.into_iter().collect(), &[b"k".to_vec(), b"keyy".to_vec()]);
        table.footer().unit()
    };
    assert_eq!(set(b"", ValueFormat::opaque(0).unwrap()), 2);
    assert_eq!(set(b"k2", ValueFormat::opaque(0).unwrap()), 1);
    assert_eq!(set(b"", ValueFormat::opaque(1).unwrap()), 1);
}

#[test]
fn the_function_has_the_shape_that_was_asked_for() {
    for (keys_per_100_buckets, keys_per_1000_slots) in
        [(300, 990), (100, 500), (100, 990), (250, 980), (400, 950), (800, 500)]
    {
        let shape = PerfectShape::default()
            .keys_per_100_buckets(keys_per_100_buckets)
            .keys_per_1000_slots(keys_per_1000_slots);
        for bits in [0, 3] {
            let options = perfect().shape(shape).partition_bits(bits);
            let bytes = build(&options, &numbered(1500, 8));
            let table = Table::open(&bytes).unwrap();
            for p in 0..1 << bits {
                let entry = table.partition(p).unwrap();
                let keys = u64::from(entry.keys);
                assert_eq!(
                    u64::from(entry.buckets),
                    (keys * 100).div_ceil(keys_per_100_buckets.into())
                );
                assert_eq!(
                    u64::from(entry.slots),
                    (keys * 1000).div_ceil(keys_per_1000_slots.into())
                );
                assert_eq!((entry.exceptions, entry.homes, entry.probe_limit), (0, 0, 0));
                // Pilot 0 for a bucket without keys.
                let pilots = raw::sections(&bytes, p as usize)[1].start;
                let mut used = vec![false; entry.buckets as usize];
                for record in table.iter_partition(p) {
                    let hash = options.hasher.hash(record.unwrap().0);
                    used[raw::perfect_place(&bytes, p as usize, hash).0 as usize] = true;
                }
                assert!(
                    used.iter().zip(&bytes[pilots..]).all(|(used, pilot)| *used || *pilot == 0)
                );
                assert!(keys < 100 || keys_per_100_buckets > 300 || used.contains(&false));
            }
        }
    }
    assert_eq!(
        PerfectShape::default(),
        PerfectShape::default().keys_per_100_buckets(250).keys_per_1000_slots(995)
    );
}

#[test]
fn structured_keys() {
    let value = |i: u32| i.to_le_bytes().to_vec();
    let of = |key: &dyn Fn(u32) -> Vec<u8>| -> Vec<Pair> {
        (0..1000).map(|i| (key(i), value(i))).collect()
    };
    let sets: [(&str, Vec<Pair>); 7] = [
        ("big-endian integers", of(&|i| u64::from(i).to_be_bytes().into())),
        ("little-endian integers", of(&|i| i.to_le_bytes().into())),
        ("steps of 100", of(&|i| u64::from(100 * i).to_le_bytes().into())),
        ("steps of 2^40", of(&|i| (u64::from(i) << 40).to_le_bytes().into())),
        ("a prefix of 30 bytes", of(&|i| format!("{:/<30}{i:06}", "https://example.org").into())),
        ("decimal text", of(&|i| i.to_string().into())),
        ("runs of one byte", of(&|i| vec![i as u8; i as usize / 256 + 1])),
    ];
    for (name, pairs) in &sets {
        for (bits, filter_bits) in [(0, None), (4, Some(10))] {
            let options = perfect().partition_bits(bits).filter_bits(filter_bits);
            let bytes = build(&options, pairs);
            let table = Table::open(&bytes).unwrap();
            let model = model_of(&options, pairs);
            let mut absent: Vec<Vec<u8>> = Vec::new();
            for (key, _) in pairs.iter().step_by(25) {
                let mut other = key.clone();
                *other.last_mut().unwrap() ^= 0x80;
                absent.extend([other, [key, &b"0"[..]].concat(), key[1..].to_vec()]);
            }
            absent.retain(|key| !model.contains_key(key));
            check(&table, &model, &absent);
            // Small partitions need another seed now and then.
            assert!(bits > 0 || table.partition(0).unwrap().seed == 0, "{name}");
        }
    }
}

#[test]
fn partitions_up_to_2_to_the_16() {
    for bits in [11, 13, 16] {
        for (n, lens) in [(1, 8), (300, 8), (300, 9)] {
            let mut pairs = numbered(n, 8);
            if lens == 9 {
                pairs.iter_mut().step_by(2).for_each(|pair| pair.0.push(7));
            }
            let options = perfect().partition_bits(bits);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            assert_eq!(table.footer().partitions(), 1 << bits);
            assert_eq!(table.verify(), Ok(()));
            assert_eq!(table.iter().count(), pairs.len());
            for (key, value) in &pairs {
                assert_eq!(table.get(Scalar, key).unwrap().unwrap().as_bytes(), value);
                assert_eq!(lookup(&bytes, table.footer(), key).unwrap().0.as_ref(), Some(value));
                let hash = options.hasher.hash(key);
                assert_eq!(table.range(hash, hash).count(), 1);
            }
            let absent: Vec<[u8; 8]> = (1..300u64).map(|i| (i << 32).to_be_bytes()).collect();
            let mut out = vec![None::<Value<'_>>; absent.len()];
            assert_eq!(table.get_batch(Scalar, &absent, &mut out), Ok(0));
        }
    }
}

#[test]
fn keys_of_one_hash_up_to_the_limit() {
    // In each partition as many as there may be; then one more in one of them.
    for (bits, lens) in [(0, [16, 16]), (0, [16, 17]), (2, [16, 16]), (2, [8, 16])] {
        // 4 hashes, two of them in one partition of 4, and none in another.
        let hasher = KeyHasher::truncated(3, 2);
        let options = perfect().hasher(hasher).partition_bits(bits);
        let mut pairs: Vec<Pair> = Vec::new();
        let mut one_more = None;
        for (key, value) in numbered(2000, 17) {
            pairs.push((key[..lens[pairs.len() % 2]].to_vec(), value));
            if too_many_of_one_hash(&options, &pairs.iter().cloned().collect()).is_some() {
                one_more = pairs.pop();
            }
        }
        assert_eq!(pairs.len(), if bits == 0 { 64 + 4 } else { 3 * 64 + 4 });
        let bytes = build(&options, &pairs);
        let table = Table::open(&bytes).unwrap();
        check(&table, &model_of(&options, &pairs), &[vec![1; 16], vec![1; 17]]);
        for p in 0..1 << bits {
            let entry = table.partition(p).unwrap();
            assert_eq!(entry.exceptions, if entry.keys == 0 { 0 } else { 64 });
        }
        pairs.push(one_more.unwrap());
        let wrong = Error::TooLarge { what: "keys of one hash", expected: 64, found: 65 };
        assert_eq!(try_build(&options, &pairs), Err(wrong));
        assert_eq!(too_many_of_one_hash(&options, &pairs.into_iter().collect()), Some(wrong));
    }
}

#[test]
fn keys_that_meet_take_another_seed() {
    // Without a truncated hash: keys whose hashes have the upper half in common.
    let mut rng = Rng(0xbad);
    for n in [64, 65, 1000] {
        for bits in [0, 2] {
            let pairs: Vec<Pair> = (0..n)
                .map(|i: u32| {
                    let key = craft::key_of_hash(0x1234_5678 << 32 | rng.next() >> 32);
                    (key.to_vec(), i.to_le_bytes().to_vec())
                })
                .collect();
            let options = perfect().partition_bits(bits);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            // Keys of the same bucket that are absent.
            let absent: Vec<Vec<u8>> =
                (0..50).map(|i| craft::key_of_hash(0x1234_5678 << 32 | i).to_vec()).collect();
            check(&table, &model_of(&options, &pairs), &absent);
            assert!(table.partition(0).unwrap().seed > 0);
        }
    }
}

#[test]
fn what_cannot_be_placed_is_an_error() {
    let shape = PerfectShape::default().keys_per_100_buckets(800).keys_per_1000_slots(1000);
    let options = perfect().shape(shape);
    let unsolvable = Error::Unsolvable { keys: 500, seeds: 32 };
    for pairs in [numbered(500, 8), numbered(500, 40)] {
        assert_eq!(try_build(&options, &pairs), Err(unsolvable));
    }
}

/// Small partitions have few ways to place their keys, and all of them must find one.
#[test]
fn every_small_partition_is_solved() {
    let mut rng = Rng(0x50fe);
    for n in 1..=100 {
        for _ in 0..30 {
            let pairs: Vec<Pair> = (0..n).map(|_| (rng.bytes(8), vec![0; 4])).collect();
            let bytes = build(&perfect(), &pairs);
            assert_eq!(Table::open(&bytes).unwrap().verify(), Ok(()), "{n} keys");
        }
    }
}

#[test]
fn scratch_is_enough_for_any_number_of_keys() {
    for layout in Layout::all() {
        let options = fixed(layout).partition_bits(0);
        let plan = options.plan(&stats(&numbered(3, 8))).unwrap();
        for n in 0..=600 {
            let (needed, said) = (plan.scratch_len(n), builder::scratch_len(n));
            assert!(needed <= said, "{layout}: {n} keys need {needed}, not {said}");
            if n > 64 && n % 59 != 0 {
                continue;
            }
            let pairs = numbered(n as u64, 8);
            let mut entries: Vec<Entry<'_>> =
                pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
            builder::sort(&mut entries, &mut vec![Entry::default(); n]).unwrap();
            let mut out = vec![0; plan.partition_len(0, &entries).unwrap()];
            let mut write = |scratch: usize| {
                plan.write_partition(Scalar, 0, &entries, &mut vec![!0; scratch], &mut out)
                    .map(|_| ())
            };
            assert_eq!(write(needed), Ok(()));
            if needed > 0 {
                let what = "scratch for a partition";
                let (expected, found) = (needed, needed - 1);
                assert_eq!(write(found), Err(Error::BufferTooSmall { what, expected, found }));
            }
        }
    }
}

#[test]
fn perfect_keys_that_do_not_fit_the_plan() {
    let length = |expected, found| Err(Error::KeyLength { expected, found });
    let plan_of =
        |options: TableOptions, pairs: &[Pair]| (options, options.plan(&stats(pairs)).unwrap());
    let len_of = |(options, plan): &(TableOptions, builder::Plan), len: usize, value: &[u8]| {
        let key = vec![0; len];
        plan.partition_len(0, &[options.entry(&key, value)]).map(|_| ())
    };
    // One length.
    let plan = plan_of(perfect(), &numbered(3, 8));
    for len in [0, 7, 9, 31, 300] {
        assert_eq!(len_of(&plan, len, &[0; 4]), length(8, len as u64));
    }
    // Several: as long as the unit allows.
    let plan = plan_of(perfect(), &[(vec![1], vec![0; 4]), (vec![2; 2], vec![0; 4])]);
    assert_eq!(len_of(&plan, 2336, &[0; 4]), Ok(()));
    assert_eq!(len_of(&plan, 2337, &[0; 4]), length(2336, 2337));
    // A set whose records would be told from empty slots, but for the empty key.
    let set = perfect().value(ValueFormat::opaque(0).unwrap());
    let plan = plan_of(set, &[(vec![1], vec![]), (vec![2; 2], vec![])]);
    assert_eq!(len_of(&plan, 1, &[]), Ok(()));
    assert!(len_of(&plan, 0, &[]).is_err(), "a record of no bytes, that no lookup would find");
}

/// A writer may have counted keys that it drops.
#[test]
fn counts_may_be_too_high() {
    for layout in Layout::all() {
        for lens in [[16, 16], [1, 5000]] {
            if layout == Layout::Inline && lens[0] != lens[1] {
                continue;
            }
            let counted = lens.map(|len| (vec![7; len], vec![1; 4]));
            let options = fixed(layout).partition_bits(1);
            let plan = options.plan(&stats(&counted)).unwrap();
            let mut directory = vec![0; plan.directory_len()];
            let mut assembler = Assembler::new(&plan, &mut directory).unwrap();
            let mut bytes = format::head().to_vec();
            for p in 0..2 {
                let mut out = vec![0; plan.partition_len(p, &[]).unwrap()];
                let mut scratch = vec![0; plan.scratch_len(0)];
                let written = plan.write_partition(Scalar, p, &[], &mut scratch, &mut out).unwrap();
                assembler.push(&written).unwrap();
                bytes.extend(out);
            }
            let (_, directory, tail) = assembler.finish().unwrap();
            bytes.extend(directory);
            bytes.extend(tail);
            let opened = Table::open(&bytes).map(|table| (table.len(), table.verify()));
            assert_eq!(opened, Ok((0, Ok(()))), "{layout}, {lens:?}");
        }
    }
}

/// Sets of keys of several lengths, with empty slots in many places: an empty slot has no bytes, nor would the
/// record of the empty key. Found by fuzzing.
#[test]
fn the_empty_key_is_not_found_in_empty_slots() {
    for width in [0, 1] {
        for seed in 0..60 {
            for keys in [2usize, 3, 7, 30, 120] {
                for with_it in [false, true] {
                    let mut model: Model =
                        (1..keys).map(|i| (vec![i as u8; 1 + i % 3], vec![0; width])).collect();
                    if with_it {
                        model.insert(Vec::new(), vec![0; width]);
                    }
                    let options = TableOptions::default()
                        .layout(Layout::Perfect)
                        .value(ValueFormat::opaque(width as u8).unwrap())
                        .hasher(KeyHasher::new(seed))
                        .shape(PerfectShape::default().keys_per_1000_slots(600));
                    let table = build(&options, &pairs(&model));
                    check(&Table::open(&table).unwrap(), &model, &[]);
                }
            }
        }
    }
}
