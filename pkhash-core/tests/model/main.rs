//! Tables against a `BTreeMap`: random keys and options, then every edge of length, number and error
//! by name.

mod faults;
mod perfect;

use pkhash_core_testing as common;

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
        (found > 64).then_some(Error::EqualHashes { expected: 64, found })
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

fn stats(pairs: &[Pair]) -> KeyStats {
    let mut stats = KeyStats::default();
    for (key, value) in pairs {
        stats.add(key, value);
    }
    stats
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
        let wrong = Error::EqualHashes { expected: 64, found };
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
