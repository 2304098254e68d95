//! Tables against a `BTreeMap`: random keys and options, then every edge of length, number and error
//! by name.

mod common;

use std::collections::BTreeMap;

use common::{Pair, Rng, build, check, lookup, try_build};
use pkhash_core::build::{
    self, Assembler, Entry, KeyStats, LayoutChoice, Options, TermSlot, ValueChoice,
};
use pkhash_core::format::{self, MAX_INLINE_KEY_LEN, TAIL_LEN};
use pkhash_core::{Error, Footer, Hasher, Layout, Lookup, Section, Table, ValueFormat, partition};
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
fn stored(options: &Options, model: &Model) -> Model {
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
    match layout {
        Layout::Inline => (0..=MAX_INLINE_KEY_LEN as usize, number)
            .prop_flat_map(|(len, n)| prop::collection::vec(key(Just(len)), n))
            .boxed(),
        _ => {
            let len = prop_oneof![8 => 0..40usize, 2 => 120..136usize, 1 => 400..520usize];
            number.prop_flat_map(move |n| prop::collection::vec(key(len.clone()), n)).boxed()
        }
    }
}

fn options(layout: Layout) -> impl Strategy<Value = Options> {
    let value = prop_oneof![
        2 => Just(ValueChoice::Auto),
        1 => (1..=8u8).prop_map(|w| ValueChoice::Fixed(ValueFormat::integer(w).unwrap())),
        1 => prop::sample::select(vec![0, 1, 4, 12, 64])
            .prop_map(|w| ValueChoice::Fixed(ValueFormat::opaque(w).unwrap())),
    ];
    let filter_bits = prop_oneof![2 => Just(0), 2 => Just(10), 1 => 1..=64u8];
    let partition_bits = prop_oneof![3 => Just(0), 3 => 1..4u8, 1 => 4..=10u8];
    // Distinct keys of one 64-bit hash, often.
    let hasher = prop_oneof![
        2 => any::<u64>().prop_map(Hasher::new),
        1 => (any::<u64>(), 0..7u8).prop_map(|(seed, bits)| Hasher::truncated(seed, bits)),
    ];
    (value, filter_bits, partition_bits, hasher).prop_map(
        move |(value, filter_bits, partition_bits, hasher)| Options {
            layout: LayoutChoice::Fixed(layout),
            value,
            filter_bits,
            hasher,
            partition_bits: Some(partition_bits),
        },
    )
}

/// Options, a model whose values fit them, and keys of which some are absent.
fn case(layout: Layout) -> impl Strategy<Value = (Options, Model, Vec<Vec<u8>>, u64)> {
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

fn agrees_with_model(
    (options, model, absent, seed): (Options, Model, Vec<Vec<u8>>, u64),
) -> Result<(), TestCaseError> {
    let mut pairs = pairs(&model);
    let bytes = build(&options, &pairs);
    let table = Table::open(&bytes).unwrap();
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
        let mut out = vec![None; batch.len()];
        table.get_batch(&batch, &mut out).unwrap();
        for (key, value) in batch.iter().zip(out) {
            prop_assert_eq!(value, table.get(key).unwrap());
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

fn model_of(options: &Options, pairs: &[Pair]) -> Model {
    stored(options, &pairs.iter().cloned().collect())
}

fn fixed(layout: Layout) -> Options {
    Options {
        layout: LayoutChoice::Fixed(layout),
        value: ValueChoice::Fixed(ValueFormat::integer(4).unwrap()),
        ..Options::default()
    }
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
        assert_eq!(table.footer().min_key_len as usize, len);
        assert_eq!(table.footer().max_key_len as usize, len);
    }
    // All of them together, in one partition and in several.
    let pairs: Vec<Pair> = LENS.iter().map(|len| (vec![9; *len], vec![5; 4])).collect();
    let absent: Vec<Vec<u8>> =
        [3, 29, 126, 510, 16_386, 65_534, 65_537].into_iter().map(|len| vec![9; len]).collect();
    for bits in [0, 3] {
        let options = Options { partition_bits: Some(bits), ..fixed(Layout::TermOrder) };
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
        assert_eq!(table.footer().layout, Layout::Inline);
    }
    assert_eq!(
        try_build(&options, &numbered(2, 32)),
        Err(Error::KeyLength { expected: 31, found: 32 })
    );
    let options = Options { layout: LayoutChoice::Auto, ..options };
    for (len, layout) in [(31, Layout::Inline), (32, Layout::TermOrder)] {
        let bytes = build(&options, &numbered(5, len));
        assert_eq!(Table::open(&bytes).unwrap().footer().layout, layout);
    }
}

#[test]
fn no_keys_and_one_key() {
    for layout in Layout::ALL {
        for filter_bits in [0, 10] {
            for bits in [0, 1, 10] {
                let options = Options { filter_bits, partition_bits: Some(bits), ..fixed(layout) };
                for pairs in [vec![], numbered(1, 8), numbered(1, 0)] {
                    let bytes = build(&options, &pairs);
                    let table = Table::open(&bytes).unwrap();
                    assert_eq!(table.footer().slots, 2 * pairs.len() as u64);
                    let absent = vec![vec![1], vec![1; 8], vec![1; 32]];
                    check(&table, &model_of(&options, &pairs), &absent);
                }
            }
        }
    }
    // An empty table needs no entries, scratch or values at all.
    let mut out = [0; 1024];
    let len = build::build(&Options::default(), &mut [], &mut [], &mut [], &mut out).unwrap();
    assert_eq!(Table::open(&out[..len]).unwrap().get(b""), Ok(None));
}

/// [`build::build`] into a buffer that is larger than needed and marked; `Err` only if the buffer has
/// not been touched.
fn build_marked(options: &Options, pairs: &[Pair]) -> Result<Vec<u8>, Error> {
    let mut entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
    let mut scratch = vec![Entry::default(); entries.len()];
    let mut term_slots = vec![TermSlot::default(); entries.len()];
    let mut out = vec![0xaa; 1 << 16];
    let built = build::build(options, &mut entries, &mut scratch, &mut term_slots, &mut out);
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
    for layout in Layout::ALL {
        for bits in [0, 3] {
            for hasher in [Hasher::new(0), Hasher::truncated(0, 0), Hasher::truncated(0, 2)] {
                let options = Options { hasher, partition_bits: Some(bits), ..fixed(layout) };
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
    let options = Options::default();
    let pairs = [(b"k".to_vec(), vec![1]), (b"j".to_vec(), vec![2]), (b"k".to_vec(), vec![3])];
    let mut entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
    build::sort(&mut entries, &mut [Entry::default(); 3]).unwrap();
    let Err(Error::DuplicateKey { index }) = build::table_len(&options, &entries) else {
        panic!("a key occurs twice");
    };
    assert_eq!([entries[index - 1].value, entries[index].value], [&[1], &[3]]);
    assert_eq!([entries[index - 1].key, entries[index].key], [b"k", b"k"]);
}

#[test]
fn values_that_do_not_fit() {
    let build_one = |value: ValueChoice, bytes: &[u8]| {
        let options = Options { value, ..Options::default() };
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
        assert_eq!(table.footer().value.width(), width);
        assert_eq!(table.footer().max_value, max);
        assert_eq!(table.get(b"key").unwrap().unwrap().as_u64(), Some(max));
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
        assert_eq!(table.get(&key), Ok(None));
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
    let bad = |option, expected, found| Err(Error::BadOption { option, expected, found });
    let plan = |options: Options| options.plan(&stats).map(|_| ());
    assert_eq!(plan(Options { filter_bits: 65, ..Options::default() }), bad("filter bits", 64, 65));
    assert_eq!(
        plan(Options { partition_bits: Some(11), ..Options::default() }),
        bad("partition bits", 10, 11)
    );
    for (len, layout) in [(1u64 << 31, LayoutChoice::Auto), (1 << 40, LayoutChoice::Auto)] {
        let stats = KeyStats { keys: 1, min_key_len: len, max_key_len: len, ..stats };
        let options = Options { layout, ..Options::default() };
        assert_eq!(
            options.plan(&stats).map(|_| ()),
            Err(Error::KeyLength { expected: (1 << 31) - 1, found: len })
        );
    }
    // Any counts whatever lead to a plan or an error.
    let stats = KeyStats { keys: u64::MAX, key_bytes: u64::MAX, max_value: u64::MAX, ..stats };
    assert_eq!(Options::default().plan(&stats).map(|plan| plan.partition_bits()), Ok(10));
}

#[test]
fn entries_that_are_not_as_said() {
    for layout in Layout::ALL {
        let options = Options { partition_bits: Some(2), ..fixed(layout) };
        let pairs = numbered(200, 8);
        let mut entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
        build::sort(&mut entries, &mut vec![Entry::default(); 200]).unwrap();
        let plan = options.plan(&stats(&pairs)).unwrap();
        let starts: Vec<usize> =
            (0..=4).map(|p| entries.partition_point(|e| partition(e.hash, 2) < p)).collect();
        let mut scratch = vec![TermSlot::default(); 200];
        let mut out = vec![0xaa; 1 << 16];
        let mut write = |p: u32, entries: &[Entry<'_>]| {
            let written = plan.write_partition(p, entries, &mut scratch, &mut out);
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
    for layout in Layout::ALL {
        let options = Options { partition_bits: Some(1), ..fixed(layout) };
        let pairs = numbered(50, 8);
        let entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
        let whole = build(&options, &pairs).len();
        let largest = {
            let left = entries.iter().filter(|entry| partition(entry.hash, 1) == 0).count();
            left.max(50 - left)
        };
        let run = |scratch: usize, term_slots: usize, out: usize| {
            let mut entries = entries.clone();
            build::build(
                &options,
                &mut entries,
                &mut vec![Entry::default(); scratch],
                &mut vec![TermSlot::default(); term_slots],
                &mut vec![0; out],
            )
        };
        let small = |what, expected, found| Err(Error::BufferTooSmall { what, expected, found });
        assert_eq!(run(50, 50, whole), Ok(whole));
        for scratch in [0, 1, 49] {
            assert_eq!(run(scratch, 50, whole), small("scratch for sorting", 50, scratch));
        }
        for out in [0, 63, 64, 191, 192, whole - 1] {
            assert_eq!(run(50, 50, out), small("buffer for the table", whole, out));
        }
        match layout {
            Layout::Inline => assert_eq!(run(50, 0, whole), Ok(whole)),
            _ => {
                // One partition at a time needs its term slots.
                assert_eq!(run(50, largest, whole), Ok(whole));
                let Err(Error::BufferTooSmall { what, found: 1, .. }) = run(50, 1, whole) else {
                    panic!("one term slot for many keys");
                };
                assert_eq!(what, "scratch for term-order");
            }
        }

        let mut entries = entries.clone();
        build::sort(&mut entries, &mut vec![Entry::default(); 50]).unwrap();
        let first = entries.partition_point(|entry| partition(entry.hash, 1) == 0);
        let plan = options.plan(&stats(&pairs)).unwrap();
        let len = plan.partition_len(0, &entries[..first]).unwrap();
        let mut term_slots = vec![TermSlot::default(); plan.term_slots(first)];
        for found in [0, 1, len - 1] {
            let mut out = vec![0; found];
            let written =
                plan.write_partition(0, &entries[..first], &mut term_slots, &mut out).map(|_| 0);
            assert_eq!(written, small("buffer for a partition", len, found));
        }
        for found in [0, 71, 143] {
            assert_eq!(
                Assembler::new(&plan, &mut vec![0; found]).map(|_| 0),
                small("buffer for the directory", 144, found)
            );
        }

        // Partitions that are missing, or too many.
        let mut out = vec![0; len];
        let written =
            plan.write_partition(0, &entries[..first], &mut term_slots, &mut out).unwrap();
        assert_eq!(written.len(layout), len as u64);
        let mut directory = [0; 144];
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
            table.get_batch(&vec![[0; 8]; keys], &mut vec![None; out]),
            Err(Error::BatchLength { expected: keys, found: out })
        );
    }
}

#[test]
fn partition_by_partition_is_the_same_table() {
    for layout in Layout::ALL {
        for bits in [0, 1, 4] {
            let options = Options { partition_bits: Some(bits), ..fixed(layout) };
            let pairs = numbered(300, 12);
            let mut entries: Vec<Entry<'_>> =
                pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
            build::sort(&mut entries, &mut vec![Entry::default(); 300]).unwrap();
            let plan = options.plan(&stats(&pairs)).unwrap();
            assert_eq!(plan.layout(), layout);
            let mut directory = vec![0; plan.directory_len()];
            let mut assembler = Assembler::new(&plan, &mut directory).unwrap();
            let mut bytes = format::head().to_vec();
            for p in 0..plan.partitions() {
                let mine: Vec<Entry<'_>> = entries
                    .iter()
                    .copied()
                    .filter(|entry| plan.partition_of(entry.hash) == p)
                    .collect();
                let mut out = vec![0xaa; plan.partition_len(p, &mine).unwrap() + 100];
                let mut scratch = vec![TermSlot::default(); plan.term_slots(mine.len())];
                let written = plan.write_partition(p, &mine, &mut scratch, &mut out).unwrap();
                let sections: u64 =
                    Section::ALL.iter().map(|s| written.section_len(layout, *s)).sum();
                assert_eq!(sections, written.len(layout));
                assembler.push(&written).unwrap();
                bytes.extend(&out[..written.len(layout) as usize]);
            }
            let (footer, directory, tail) = assembler.finish().unwrap();
            bytes.extend(directory);
            bytes.extend(tail);
            assert!(bytes == build(&options, &pairs), "{layout}, {bits} bits");
            assert_eq!(Table::open(&bytes).unwrap().footer(), &footer);
        }
    }
}

#[test]
fn thousands_of_keys_of_one_hash() {
    for layout in Layout::ALL {
        for (bits, n) in [(0, 2000), (3, 4000)] {
            let options = Options { hasher: Hasher::truncated(1, bits), ..fixed(layout) };
            let pairs = numbered(n, 16);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            table.verify().unwrap();
            assert_eq!(table.iter().count() as u64, n);
            if layout == Layout::TermOrder && bits == 0 {
                // All homes are slot 0: the distance of slot i is i, up to what 8 bits hold.
                let words = common::raw::sections(&bytes, 0)[2].start;
                for slot in 0..n {
                    let word = common::raw::get(&bytes, words + 8 * slot as usize, 8);
                    assert_eq!(word >> 16 & 0xff, slot.min(255));
                }
            }
            let limit = table.partition(0).unwrap().probe_limit;
            // Bounded by the keys of that hash, and no shorter than they need.
            assert!(u64::from(limit) <= n && u64::from(limit) >= n >> bits, "{limit}");

            let mut out = vec![None; pairs.len()];
            let keys: Vec<&[u8]> = pairs.iter().map(|pair| pair.0.as_slice()).collect();
            assert_eq!(table.get_batch(&keys, &mut out), Ok(pairs.len()));
            for (value, (_, expected)) in out.iter().zip(&pairs) {
                assert_eq!(value.unwrap().as_bytes(), expected);
            }
            // Each one staged is many reads: some, with the first and the last among them.
            for (key, value) in pairs.iter().step_by(97).chain(pairs.last()) {
                assert_eq!(table.get(key).unwrap().unwrap().as_bytes(), value);
                let (found, _) = lookup(&bytes, table.footer(), key).unwrap();
                assert_eq!(found.as_ref(), Some(value));
            }
            let absent = [0xee; 16];
            assert_eq!(table.get(&absent), Ok(None));
            assert_eq!(lookup(&bytes, table.footer(), &absent).unwrap().0, None);
        }
    }
}

#[test]
fn a_footer_alone_is_enough() {
    for layout in Layout::ALL {
        for bits in [0, 2] {
            let options = Options { partition_bits: Some(bits), ..fixed(layout) };
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
