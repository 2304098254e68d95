//! Merging against a model, and against a table built afresh from the pairs that are left: the bytes
//! are the same. Doc maps, duplicates, mismatches, damaged inputs, inputs that are replaced.

mod faults;
mod layouts;

use std::fs;

use pkhash_core::Error as CoreError;
use pkhash_core::builder::PerfectShape;
use pkhash_core_testing::raw;
use pkhash_std::{
    Built, DELETED, DocMap, Error, KeyHasher, Layout, LayoutChoice, MergeInput, MergeOptions,
    OnDuplicate, Result, TableFile, TableOptions, ValueChoice, ValueFormat, WriterOptions, merge,
};
use pkhash_testing::{
    Folder, MAX_EXCEPTIONS, Model, Rng, build_bytes, check, check_bytes, exceptions, int,
    meet_with_other_seeds, meet_with_seed_0, numbered, of_slice, open_all, publish, slices,
    too_many_of_one_hash,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0x5eed_0003),
        failure_persistence: None,
        ..Config::default()
    }
}

fn opaque(width: u8) -> ValueChoice {
    ValueChoice::Fixed(ValueFormat::opaque(width).unwrap())
}

fn integer(width: u8) -> ValueChoice {
    ValueChoice::Fixed(ValueFormat::integer(width).unwrap())
}

fn table(options: TableOptions, model: &Model) -> TableFile {
    let folder = Folder::new();
    let options = WriterOptions::default().table(options).threads(1);
    let (_, bytes) = build_bytes(options, slices(model)).unwrap();
    TableFile::open(folder.write("input.pkh", bytes)).unwrap()
}

fn keep(tables: &[TableFile]) -> Vec<MergeInput<'_>> {
    tables.iter().map(MergeInput::new).collect()
}

fn merged(inputs: &[MergeInput<'_>], options: &MergeOptions) -> Result<(Built, Vec<u8>)> {
    let mut bytes = Vec::new();
    let built = merge(inputs, &mut bytes, options)?;
    assert_eq!((built.footer.file_len(), built.spilled), (bytes.len() as u64, 0));
    Ok((built, bytes))
}

const fn id_width(value_width: usize) -> usize {
    if value_width <= 8 { value_width } else { 4 }
}

/// The new value of a record, or nothing if its doc was deleted.
fn map_value(docs: &DocMap, value: &[u8]) -> Option<Vec<u8>> {
    // Integers are here with 8 bytes; of values wider than that the doc ID is the first 4.
    let id_width = id_width(value.len());
    let mut wide = [0; 8];
    let doc = match docs {
        DocMap::Keep => return Some(value.to_vec()),
        _ => {
            wide[..id_width].copy_from_slice(&value[..id_width]);
            u64::from_le_bytes(wide)
        }
    };
    let new = match docs {
        DocMap::Map(map) if map[doc as usize] == DELETED => return None,
        DocMap::Map(map) => map[doc as usize].into(),
        DocMap::Offset(base) => doc + base,
        _ => doc,
    };
    let mut value = value.to_vec();
    value[..id_width].copy_from_slice(&new.to_le_bytes()[..id_width]);
    Some(value)
}

/// One input to be: which keys of the pool, its options, and what becomes of its docs.
#[derive(Clone, Debug)]
struct Input {
    model: Model,
    options: TableOptions,
    docs: DocMap,
}

#[derive(Clone, Debug)]
struct Case {
    inputs: Vec<Input>,
    output: MergeOptions,
}

impl Case {
    /// Tables are made of the pool's keys: of other ones for each input, unless keys are shared.
    fn new(keys: Vec<Vec<u8>>, inputs: usize, width: Option<u8>, shared: bool, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let inline = keys.iter().all(|key| key.len() == keys[0].len() && key.len() <= 31);
        let truncated = rng.below(3) == 0;
        let hasher = match truncated {
            true => KeyHasher::truncated(seed, rng.below(7) as u8),
            false => KeyHasher::new(seed % 2),
        };
        let mut models = vec![Model::new(); inputs];
        for key in keys {
            for _ in 0..if shared { 1 + rng.below(3) } else { 1 } {
                // Some inputs stay empty.
                let model = &mut models[rng.below(inputs) / 2 * 2 % inputs];
                let doc = model.len() as u64;
                let value = match width {
                    None => int(doc),
                    // Doc ID and version.
                    Some(width) => {
                        let mut value = rng.bytes(width.into());
                        let id_width = id_width(value.len());
                        value[..id_width].copy_from_slice(&doc.to_le_bytes()[..id_width]);
                        value
                    }
                };
                model.entry(key.clone()).or_insert(value);
            }
        }
        let filter_bits = |rng: &mut Rng| [None, Some(0), Some(10), Some(3)][rng.below(4)];
        let layout = |rng: &mut Rng| match rng.below(7) {
            0 if inline => LayoutChoice::Fixed(Layout::Inline),
            0..2 => LayoutChoice::Fixed(Layout::TermOrder),
            2..4 => LayoutChoice::Auto,
            _ => LayoutChoice::Fixed(Layout::Perfect),
        };
        // 1,024 partitions and more are slow to make without optimization: here and there one table.
        let many = rng.below(30);
        let partition_bits = |rng: &mut Rng, layout: LayoutChoice, many: bool| match layout {
            LayoutChoice::Fixed(Layout::Inline | Layout::TermOrder) if many => Some(10),
            _ if many => Some(11),
            _ if rng.below(3) == 0 => None,
            _ => Some(rng.below(6) as u8),
        };
        let shape = |rng: &mut Rng| match rng.below(3) {
            0 => PerfectShape::default().keys_per_100_buckets(200).keys_per_1000_slots(800),
            _ => PerfectShape::default(),
        };
        let inputs = models
            .into_iter()
            .enumerate()
            .map(|(i, model)| {
                let n = model.len();
                let docs = match rng.below(4) {
                    0 => DocMap::Keep,
                    1 => DocMap::Offset([0, 1, 255, 70_000, 1 << 31][rng.below(5)]),
                    _ => DocMap::Map(
                        (0..n + rng.below(3))
                            .map(|_| match rng.below(3) {
                                0 => DELETED,
                                1 => rng.below(300) as u32,
                                _ => rng.below(DELETED as usize) as u32,
                            })
                            .collect(),
                    ),
                };
                let value = match width {
                    Some(width) => opaque(width),
                    None if rng.below(2) == 0 => ValueChoice::Auto,
                    None => integer(4 + rng.below(5) as u8),
                };
                let layout = layout(&mut rng);
                let mut options = TableOptions::default()
                    .layout(layout)
                    .value(value)
                    .filter_bits(filter_bits(&mut rng))
                    // The keys of some inputs have to be hashed anew.
                    .hasher(match rng.below(4) {
                        0 if i > 0 => KeyHasher::new(rng.next() % 3 + 1),
                        1 if i > 0 => KeyHasher::truncated(seed, 3),
                        _ => hasher,
                    })
                    .partition_bits(partition_bits(&mut rng, layout, i == many))
                    .packed(rng.below(2) == 0)
                    .shape(shape(&mut rng));
                if too_many(&options, model.keys()) {
                    options.layout = LayoutChoice::Fixed(Layout::TermOrder);
                    options.partition_bits = Some(2);
                }
                Input { model, options, docs }
            })
            .collect();
        let layout = layout(&mut rng);
        let output = MergeOptions::default()
            .layout(layout)
            .value(match (width, rng.below(3)) {
                (None, 0) => integer(8),
                _ => ValueChoice::Auto,
            })
            .filter_bits(filter_bits(&mut rng))
            .partition_bits(partition_bits(&mut rng, layout, many >= 28))
            .packed(rng.below(2) == 0)
            .shape(shape(&mut rng))
            .hasher((rng.below(4) == 0).then(|| KeyHasher::new(rng.next())))
            .threads(1);
        Self { inputs, output }
    }

    /// All pairs that are left, in the order of the inputs.
    fn left(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.inputs
            .iter()
            .flat_map(|input| {
                input
                    .model
                    .iter()
                    .filter_map(|(key, value)| Some((key.clone(), map_value(&input.docs, value)?)))
            })
            .collect()
    }

    fn tables(&self) -> Vec<TableFile> {
        self.inputs.iter().map(|input| table(input.options, &input.model)).collect()
    }

    fn merge_inputs<'t>(&self, tables: &'t [TableFile]) -> Vec<MergeInput<'t>> {
        let docs = self.inputs.iter().map(|input| input.docs.clone());
        tables.iter().zip(docs).map(|(table, docs)| MergeInput::new(table).docs(docs)).collect()
    }

    /// Options with which the merged table would be built afresh.
    fn afresh(&self, tables: &[TableFile]) -> TableOptions {
        let first = &self.inputs[0].options;
        let value = match (self.output.value, first.value) {
            (ValueChoice::Auto, ValueChoice::Fixed(value))
                if value.kind() == pkhash_std::ValueKind::Opaque =>
            {
                first.value
            }
            (value, _) => value,
        };
        TableOptions::default()
            .layout(self.output.layout)
            .value(value)
            .filter_bits(self.output.filter_bits.or(Some(tables[0].footer().filter_bits())))
            .hasher(self.output.hasher.unwrap_or(first.hasher))
            .partition_bits(self.output.partition_bits)
            .packed(self.output.packed)
            .shape(self.output.shape)
    }
}

/// Whether a perfect table was asked for that cannot hold so many keys of one hash. (The keys of this
/// file's cases are short: `Auto` is perfect.)
fn too_many<'k>(options: &TableOptions, keys: impl IntoIterator<Item = &'k Vec<u8>>) -> bool {
    matches!(options.layout, LayoutChoice::Auto | LayoutChoice::Fixed(Layout::Perfect))
        && exceptions(options, keys.into_iter().map(Vec::as_slice)).1 > MAX_EXCEPTIONS
}

/// Keys of one length or of many, none twice.
fn keys() -> BoxedStrategy<Vec<Vec<u8>>> {
    let byte = || prop_oneof![any::<u8>(), 0..2u8];
    let of = move |len: BoxedStrategy<usize>| {
        prop::collection::btree_set(
            len.prop_flat_map(move |len| prop::collection::vec(byte(), len)),
            0..150,
        )
        .prop_map(|keys| keys.into_iter().collect())
    };
    prop_oneof![
        (8..34usize).prop_flat_map(move |len| of(Just(len).boxed())),
        of((0..40usize).boxed()),
    ]
    .boxed()
}

fn case(shared: bool) -> impl Strategy<Value = Case> {
    let width = prop_oneof![3 => Just(None), 2 => Just(Some(12)), 1 => (4..20u8).prop_map(Some)];
    // A width of 8 would look like an integer to this file's model.
    let width = width.prop_filter("8", |width| *width != Some(8));
    (keys(), 1..=8usize, width, any::<u64>())
        .prop_map(move |(keys, n, width, seed)| Case::new(keys, n, width, shared, seed))
}

proptest! {
    #![proptest_config(config(100))]

    /// No key in two inputs: byte for byte what a writer makes of the pairs that are left.
    #[test]
    fn merged_is_built_afresh(case in case(false)) {
        let left = case.left();
        let tables = case.tables();
        let inputs = case.merge_inputs(&tables);
        let options = case.afresh(&tables);
        if too_many(&options, left.iter().map(|pair| &pair.0)) {
            too_many_of_one_hash(&merged(&inputs, &case.output).unwrap_err());
            return Ok(());
        }
        let (built, bytes) = merged(&inputs, &case.output).unwrap();
        let (_, more_threads) =
            merged(&inputs, &case.output.clone().threads(4)).unwrap();
        assert!(bytes == more_threads, "the threads changed the bytes");
        let options = WriterOptions::default().table(options).threads(1);
        let (written, afresh) = build_bytes(options, of_slice(&left)).unwrap();
        assert!(bytes == afresh, "merged is not as built afresh: {:?}", built.footer);
        assert_eq!(
            (built.evictions, built.exceptions, built.duplicates),
            (written.evictions, written.exceptions, 0)
        );
        let absent: Vec<Vec<u8>> =
            case.inputs.iter().flat_map(|input| input.model.keys().cloned()).collect();
        check_bytes(&bytes, &left.into_iter().collect(), &absent);
    }

    #[test]
    fn keys_in_several_inputs(case in case(true)) {
        let left = case.left();
        let tables = case.tables();
        let inputs = case.merge_inputs(&tables);
        let last: Model = left.iter().cloned().collect();
        let first: Model = left.iter().rev().cloned().collect();
        if too_many(&case.afresh(&tables), last.keys()) {
            let options = case.output.clone().on_duplicate(OnDuplicate::First);
            too_many_of_one_hash(&merged(&inputs, &options).unwrap_err());
            return Ok(());
        }
        for (on_duplicate, model) in [(OnDuplicate::First, &first), (OnDuplicate::Last, &last)] {
            let options = case.output.clone().on_duplicate(on_duplicate);
            let (built, bytes) = merged(&inputs, &options).unwrap();
            assert_eq!(built.duplicates, (left.len() - model.len()) as u64);
            let (_, same) = merged(&inputs, &options.threads(4)).unwrap();
            assert!(bytes == same, "the threads changed the bytes");
            check_bytes(&bytes, model, &[]);
        }
        match merged(&inputs, &case.output) {
            Ok(_) => assert_eq!(left.len(), last.len()),
            Err(Error::DuplicateKey { key, first, second }) => {
                let values: Vec<_> =
                    left.iter().filter(|pair| pair.0 == key).map(|pair| &pair.1).collect();
                assert!(values.len() > 1);
                for (value, expected) in [(first, values[0]), (second, values[1])] {
                    assert_eq!(&value, expected);
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn nothing_and_next_to_nothing() {
    // No inputs at all: an empty table.
    let (built, bytes) = merged(&[], &MergeOptions::default()).unwrap();
    assert_eq!(built.footer.keys(), 0);
    let (_, afresh) = build_bytes(WriterOptions::default(), []).unwrap();
    assert!(bytes == afresh);
    check_bytes(&bytes, &Model::new(), &[Vec::new()]);

    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (a, b) = (numbered("a", 0..a), numbered("b", 0..b));
        let tables = [table(TableOptions::default(), &a), table(TableOptions::default(), &b)];
        for docs in
            [DocMap::Keep, DocMap::Offset(7), DocMap::Map(vec![3]), DocMap::Map(vec![DELETED])]
        {
            let inputs: Vec<_> =
                tables.iter().map(|table| MergeInput::new(table).docs(docs.clone())).collect();
            let (_, bytes) = merged(&inputs, &MergeOptions::default()).unwrap();
            let model: Model = a
                .iter()
                .chain(&b)
                .filter_map(|(key, value)| Some((key.clone(), map_value(&docs, value)?)))
                .collect();
            check_bytes(&bytes, &model, &[b"a-0".to_vec(), b"b-0".to_vec()]);
            let (_, afresh) = build_bytes(WriterOptions::default(), slices(&model)).unwrap();
            assert!(bytes == afresh, "{docs:?}");
        }
    }
}

#[test]
fn a_deleted_old_version_does_not_conflict_with_a_live_new_one() {
    let old = numbered("key", 0..50);
    let new: Model = (20..30).map(|i| (format!("key-{i}").into_bytes(), int(i - 20))).collect();
    let tables = [table(TableOptions::default(), &old), table(TableOptions::default(), &new)];
    // Docs 20…29 of the old segment were updated; what is left moves up.
    let map = (0..50).map(|doc| match doc {
        0..20 => doc,
        20..30 => DELETED,
        _ => doc - 10,
    });
    let docs = [DocMap::Map(map.collect()), DocMap::Offset(40)];
    let inputs: Vec<_> =
        tables.iter().zip(docs).map(|(table, docs)| MergeInput::new(table).docs(docs)).collect();
    for on_duplicate in [OnDuplicate::Error, OnDuplicate::First, OnDuplicate::Last] {
        let options = MergeOptions::default().on_duplicate(on_duplicate);
        let (built, bytes) = merged(&inputs, &options).unwrap();
        assert_eq!((built.footer.keys(), built.duplicates), (50, 0));
        let model: Model = (0..50u64)
            .map(|i| {
                let doc = match i {
                    0..20 => i,
                    20..30 => i - 20 + 40,
                    _ => i - 10,
                };
                (format!("key-{i}").into_bytes(), int(doc))
            })
            .collect();
        check_bytes(&bytes, &model, &[]);
    }
    // A key deleted in all of them is gone, and does not come back from an older one.
    let all_deleted: Vec<_> = tables
        .iter()
        .map(|table| {
            let docs = table.footer().max_value() as usize + 1;
            MergeInput::new(table).docs(DocMap::Map(vec![DELETED; docs]))
        })
        .collect();
    let (built, _) = merged(&all_deleted, &MergeOptions::default()).unwrap();
    assert_eq!(built.footer.keys(), 0);
}
