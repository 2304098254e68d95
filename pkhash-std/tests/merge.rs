//! Merging against a model, and against a table built afresh from the pairs that are left: the bytes
//! are the same. Doc maps, duplicates, mismatches, damaged inputs, inputs that are replaced.

// What damages tables, and makes their checksums right again.
#[allow(dead_code)]
#[path = "../../pkhash-core/tests/common/raw.rs"]
mod raw;

use std::fs;

use pkhash_core::Error as CoreError;
use pkhash_core::builder::PerfectShape;
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

/// Inputs of every layout and of any number of partitions, into tables of every layout with more or
/// fewer of them.
#[test]
fn from_every_layout_to_every_layout() {
    let perfect = LayoutChoice::Fixed(Layout::Perfect);
    let [inline, term_order] = [Layout::Inline, Layout::TermOrder].map(LayoutChoice::Fixed);
    let mut rng = Rng(21);
    for fixed in [true, false] {
        let makes = [
            (if fixed { inline } else { term_order }, 3, true),
            (term_order, 10, false),
            // Coarser than most outputs, and finer.
            (perfect, 0, false),
            (perfect, 2, true),
            (perfect, 11, false),
            (LayoutChoice::Auto, 5, false),
        ];
        let models: Vec<Model> = (0..makes.len())
            .map(|i| {
                let len = |rng: &mut Rng| if fixed { 8 } else { 1 + rng.below(40) };
                // Documents are numbered on.
                let docs = 40 * i as u64..40 * (i as u64 + 1);
                docs.map(|doc| {
                    let len = len(&mut rng);
                    ([&rng.bytes(len)[..], &doc.to_be_bytes()].concat(), int(doc))
                })
                .collect()
            })
            .collect();
        let tables: Vec<TableFile> = makes
            .into_iter()
            .zip(&models)
            .map(|((layout, bits, packed), model)| {
                let partition_bits = Some(bits);
                table(
                    TableOptions::default()
                        .layout(layout)
                        .partition_bits(partition_bits)
                        .packed(packed),
                    model,
                )
            })
            .collect();
        let all: Model = models.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        // Every third doc is deleted, and the others move up.
        let map: Vec<u32> =
            (0..240).map(|doc| if doc % 3 == 0 { DELETED } else { doc - doc / 3 }).collect();
        let left: Model = all
            .iter()
            .filter_map(|(key, value)| {
                Some((key.clone(), map_value(&DocMap::Map(map.clone()), value)?))
            })
            .collect();
        let outputs = [
            (term_order, Some(0)),
            (term_order, Some(4)),
            (perfect, None),
            (perfect, Some(0)),
            (perfect, Some(4)),
            (perfect, Some(11)),
            (LayoutChoice::Auto, Some(12)),
            (if fixed { inline } else { term_order }, Some(6)),
        ];
        for (layout, partition_bits) in outputs {
            for (docs, model) in [(DocMap::Keep, &all), (DocMap::Map(map.clone()), &left)] {
                let inputs: Vec<_> =
                    tables.iter().map(|table| MergeInput::new(table).docs(docs.clone())).collect();
                // By default the filter of the first table.
                let options = MergeOptions::default()
                    .layout(layout)
                    .partition_bits(partition_bits)
                    .threads(2);
                let (_, bytes) = merged(&inputs, &options).unwrap();
                let filter_bits = Some(10);
                let options = TableOptions::default()
                    .layout(layout)
                    .partition_bits(partition_bits)
                    .filter_bits(filter_bits);
                let options = WriterOptions::default().table(options);
                let (built, afresh) = build_bytes(options, slices(model)).unwrap();
                assert!(bytes == afresh, "{:?}", built.footer);
                if docs == DocMap::Keep {
                    let path = Folder::new();
                    let file = TableFile::open(path.write("merged.pkh", &bytes)).unwrap();
                    check(&file, model, &[]);
                }
            }
        }
    }
}

/// Of keys that several inputs share, whatever their layouts, the first or the last one stays: as if
/// nothing but the survivors had ever been.
#[test]
fn duplicates_across_layouts() {
    let makes = [
        (LayoutChoice::Fixed(Layout::Perfect), 0),
        (LayoutChoice::Fixed(Layout::TermOrder), 2),
        (LayoutChoice::Fixed(Layout::Perfect), 5),
        (LayoutChoice::Auto, 1),
    ];
    let mut rng = Rng(22);
    let models: Vec<Model> = (0..makes.len() as u64)
        .map(|i| {
            (0..150)
                .map(|n| (format!("key-{}", rng.below(300)).into_bytes(), int(1000 * i + n)))
                .collect()
        })
        .collect();
    let tables: Vec<TableFile> = makes
        .into_iter()
        .zip(&models)
        .map(|((layout, bits), model)| {
            table(TableOptions::default().layout(layout).partition_bits(bits), model)
        })
        .collect();
    let pairs = || models.iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
    let last: Model = pairs().collect();
    let first: Model = pairs().collect::<Vec<_>>().into_iter().rev().collect();
    let given = pairs().count() as u64;
    for layout in [Layout::Perfect, Layout::TermOrder] {
        for partition_bits in [Some(0), Some(3), Some(7)] {
            let (layout, value) = (LayoutChoice::Fixed(layout), integer(4));
            for (on_duplicate, model) in [(OnDuplicate::First, &first), (OnDuplicate::Last, &last)]
            {
                let options = MergeOptions::default()
                    .layout(layout)
                    .value(value)
                    .partition_bits(partition_bits)
                    .on_duplicate(on_duplicate)
                    .filter_bits(0);
                let (built, bytes) = merged(&keep(&tables), &options).unwrap();
                assert_eq!(built.duplicates, given - model.len() as u64);
                let options = TableOptions::default()
                    .layout(layout)
                    .value(value)
                    .partition_bits(partition_bits)
                    .filter_bits(0);
                let options = WriterOptions::default().table(options);
                assert!(bytes == build_bytes(options, slices(model)).unwrap().1);
            }
            let options = MergeOptions::default().layout(layout).partition_bits(partition_bits);
            let error = merged(&keep(&tables), &options).unwrap_err();
            assert!(matches!(error, Error::DuplicateKey { .. }), "{error}");
        }
    }
}

/// The lengths of all keys that are left decide how the records of a perfect table lie.
#[test]
fn lengths_that_come_together_or_part() {
    let of = |len: usize, docs: std::ops::Range<u64>| -> Model {
        let mut rng = Rng(len as u64);
        docs.map(|doc| (rng.bytes(len), int(doc))).collect()
    };
    let facts = |inputs: &[MergeInput<'_>]| {
        let (built, bytes) = merged(inputs, &MergeOptions::default()).unwrap();
        (built.footer.layout(), built.footer.unit(), built.footer.records_per_line(), bytes)
    };
    let (a, b, c) = (of(19, 0..40), of(8, 40..60), of(40_000, 60..63));
    let tables = [&a, &b, &c].map(|model| table(TableOptions::default(), model));
    for table in &tables {
        assert_eq!((table.footer().layout(), table.footer().unit()), (Layout::Perfect, 0));
    }
    let both: Model = a.iter().chain(&b).map(|(k, v)| (k.clone(), v.clone())).collect();
    let (layout, unit, per_line, bytes) = facts(&keep(&tables[..2]));
    assert_eq!((layout, unit, per_line), (Layout::Perfect, 1, 0));
    check_bytes(&bytes, &both, &[]);
    // One length is left of a table of two.
    let mixed = table(TableOptions::default(), &both);
    let map = (0..60).map(|doc| if doc < 40 { doc } else { DELETED }).collect();
    let input = MergeInput::new(&mixed).docs(DocMap::Map(map));
    let (layout, unit, per_line, bytes) = facts(&[input]);
    assert_eq!((layout, unit, per_line), (Layout::Perfect, 0, 3));
    assert!(bytes == build_bytes(WriterOptions::default(), slices(&a)).unwrap().1);
    // Each was perfect for itself; together they are too long for that.
    let all: Model = both.iter().chain(&c).map(|(k, v)| (k.clone(), v.clone())).collect();
    let (layout, _, _, bytes) = facts(&keep(&tables));
    assert_eq!(layout, Layout::TermOrder);
    check_bytes(&bytes, &all, &[]);
    let options = MergeOptions::default().layout(Layout::Perfect);
    let error = merged(&keep(&tables), &options).unwrap_err();
    assert!(
        matches!(error, Error::Table { source: CoreError::KeyLength { found: 40_000, .. }, .. }),
        "{error}"
    );
}

/// Exceptions of the inputs may be too many for the output; a layout without them takes all.
#[test]
fn exceptions_that_come_together() {
    let hasher = KeyHasher::truncated(5, 0);
    let models = [numbered("a", 0..33), numbered("b", 0..33)];
    for bits in [0, 2] {
        let options = TableOptions::default().hasher(hasher).partition_bits(bits);
        let tables = models.each_ref().map(|model| table(options, model));
        let input = |table, from: u32| {
            let map = (0..33).map(|doc| if doc < from { DELETED } else { doc }).collect();
            MergeInput::new(table).docs(DocMap::Map(map))
        };
        for partition_bits in [Some(0), Some(3)] {
            let options = MergeOptions::default().partition_bits(partition_bits);
            // 33 and 32 keys: 64 beyond the first.
            let (built, bytes) =
                merged(&[input(&tables[0], 0), input(&tables[1], 1)], &options).unwrap();
            assert_eq!((built.footer.layout(), built.exceptions), (Layout::Perfect, 64));
            let model: Model = models[0]
                .iter()
                .chain(models[1].iter().filter(|(key, _)| key.as_slice() != b"b-0"))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            check_bytes(&bytes, &model, &[b"b-0".to_vec()]);
            too_many_of_one_hash(&merged(&keep(&tables), &options).unwrap_err());
            let layout = LayoutChoice::Fixed(Layout::TermOrder);
            let (built, _) = merged(&keep(&tables), &options.layout(layout)).unwrap();
            assert_eq!((built.footer.keys(), built.exceptions), (66, 0));
        }
    }
}

/// Each input could be placed, and both together cannot: an error, and nothing left behind.
#[test]
fn keys_that_meet_when_they_come_together() {
    let number = |keys: Vec<Vec<u8>>| -> Model { keys.into_iter().zip((0..).map(int)).collect() };
    let models =
        [number(meet_with_seed_0(80).collect()), number(meet_with_other_seeds(80).collect())];
    let tables = models.each_ref().map(|model| table(TableOptions::default(), model));
    assert!(tables[0].table().partition(0).unwrap().seed > 0);
    assert_eq!(tables[1].table().partition(0).unwrap().seed, 0);
    let folder = Folder::new();
    let path = folder.path("merged.pkh");
    let error = merge(&keep(&tables), &path, &MergeOptions::default()).unwrap_err();
    assert!(
        matches!(error, Error::Table { path: None, source: CoreError::Unsolvable { .. } }),
        "{error}"
    );
    assert!(folder.names().is_empty());
    let all: Model = models.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    let layout = LayoutChoice::Fixed(Layout::TermOrder);
    for options in
        [MergeOptions::default().layout(layout), MergeOptions::default().partition_bits(1)]
    {
        check_bytes(&merged(&keep(&tables), &options).unwrap().1, &all, &[]);
    }
    // The seed of a partition is found anew.
    let (_, bytes) = merged(&keep(&tables[..1]), &MergeOptions::default()).unwrap();
    assert!(bytes == tables[0].table().as_bytes());
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

#[test]
fn inputs_that_do_not_go_together() {
    let model = numbered("a", 0..3);
    let bytes = |width: u8| -> Model { [(b"b".to_vec(), vec![1; usize::from(width)])].into() };
    let of_width = |width| table(TableOptions::default().value(opaque(width)), &bytes(width));
    let plain = || table(TableOptions::default(), &model);
    for (tables, said) in [
        ([of_width(12), of_width(13)], "expected 12 opaque bytes, found 13 opaque bytes"),
        ([of_width(0), of_width(1)], "expected none (a set), found 1 opaque bytes"),
        ([plain(), of_width(8)], "expected integers, found 8 opaque bytes"),
        ([of_width(0), plain()], "expected none (a set), found integers"),
    ] {
        let error = merged(&keep(&tables), &MergeOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Values { input: 1, .. }), "{error}");
        assert!(error.to_string().ends_with(said), "{error}");
    }
    // Integers of several widths do go together; a set and a doc map do not.
    let wide = table(TableOptions::default().value(integer(8)), &numbered("b", 0..3));
    merged(&keep(&[plain(), wide]), &MergeOptions::default()).unwrap();
    let set = of_width(0);
    merged(&keep(std::slice::from_ref(&set)), &MergeOptions::default()).unwrap();
    for docs in [DocMap::Offset(1), DocMap::Map(vec![0; 2])] {
        let input = MergeInput::new(&set).docs(docs);
        let error = merged(&[input], &MergeOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Mismatch { input: 0, .. }), "{error}");
    }
}

/// Values that the caller asked for and the inputs do not have: an error, and not a panic.
#[test]
fn outputs_that_do_not_fit() {
    let folder = Folder::new();
    let path = folder.path("merged.pkh");
    let integers = table(TableOptions::default(), &numbered("a", 0..300));
    let set = table(TableOptions::default().value(opaque(0)), &[(vec![1], vec![])].into());
    let wide = table(TableOptions::default().value(opaque(12)), &[(vec![1], vec![7; 12])].into());
    for (table, value) in [
        (&integers, integer(1)),
        (&integers, opaque(12)),
        (&integers, opaque(0)),
        (&set, integer(4)),
        (&set, opaque(1)),
        (&wide, integer(8)),
        (&wide, opaque(11)),
    ] {
        let input = MergeInput::new(table);
        let options = MergeOptions::default().value(value);
        let error = merge(&[input], &path, &options).unwrap_err();
        assert!(matches!(error, Error::Table { .. } | Error::Mismatch { .. }), "{error}");
        assert!(folder.names().is_empty());
    }
    let input = MergeInput::new(&integers);
    let term_order = LayoutChoice::Fixed(Layout::TermOrder);
    let full = PerfectShape::default().keys_per_1000_slots(1001);
    for options in [
        MergeOptions::default().filter_bits(65),
        MergeOptions::default().partition_bits(17),
        MergeOptions::default().partition_bits(11).layout(term_order),
        MergeOptions::default().layout(Layout::Inline),
        MergeOptions::default().shape(full),
    ] {
        let error = merge(std::slice::from_ref(&input), &path, &options).unwrap_err();
        assert!(matches!(error, Error::Table { .. }), "{error}");
        assert!(folder.names().is_empty());
    }
}

#[test]
fn docs_beyond_the_map_or_the_width() {
    let folder = Folder::new();
    let path = folder.path("merged.pkh");
    let fails = |table: &TableFile, docs: DocMap| {
        let input = MergeInput::new(table).docs(docs);
        let error = merge(&[input], &path, &MergeOptions::default()).unwrap_err();
        assert!(folder.names().is_empty());
        match error {
            Error::DocMap { input: 0, found, expected } => (found, expected),
            error => panic!("{error}"),
        }
    };
    let integers = table(TableOptions::default(), &numbered("a", 0..10));
    assert_eq!(fails(&integers, DocMap::Map((0..9).collect())), (9, 9));
    assert_eq!(fails(&integers, DocMap::Offset(u64::MAX - 8)).0, 9);
    // The greatest offset that fits.
    let input = MergeInput::new(&integers).docs(DocMap::Offset(u64::MAX - 9));
    let (built, _) = merged(&[input], &MergeOptions::default()).unwrap();
    assert_eq!(built.footer.max_value(), u64::MAX);

    // Doc ID and version: a doc ID has 32 bits.
    let versioned = [(b"k".to_vec(), [&[9, 0, 0, 0][..], &[1; 8]].concat())].into();
    let versioned = table(TableOptions::default().value(opaque(12)), &versioned);
    assert_eq!(fails(&versioned, DocMap::Map(vec![0; 9])), (9, 9));
    assert_eq!(fails(&versioned, DocMap::Offset(u64::from(u32::MAX) - 8)).0, 9);
    let input = MergeInput::new(&versioned).docs(DocMap::Offset(u64::from(u32::MAX) - 9));
    let (_, bytes) = merged(&[input], &MergeOptions::default()).unwrap();
    let moved = [(b"k".to_vec(), [&[255; 4][..], &[1; 8]].concat())].into();
    check_bytes(&bytes, &moved, &[]);

    // Of up to 8 bytes, all are the doc ID, of either kind; the new one must fit them.
    for width in 1..=8u8 {
        let bytes = |doc: u64| doc.to_le_bytes()[..usize::from(width)].to_vec();
        let value = opaque(width);
        let nine = table(TableOptions::default().value(value), &[(vec![1], bytes(9))].into());
        let most = u64::MAX >> (64 - 8 * u32::from(width));
        for (docs, new) in [
            (DocMap::Offset(most - 9), most),
            (DocMap::Map([[DELETED; 9].as_slice(), &[200]].concat()), 200),
        ] {
            let (_, moved) =
                merged(&[MergeInput::new(&nine).docs(docs)], &MergeOptions::default()).unwrap();
            check_bytes(&moved, &[(vec![1], bytes(new))].into(), &[]);
        }
        let deleted = MergeInput::new(&nine).docs(DocMap::Map(vec![DELETED; 10]));
        assert_eq!(merged(&[deleted], &MergeOptions::default()).unwrap().0.footer.keys(), 0);
        assert_eq!(fails(&nine, DocMap::Map(vec![0; 9])), (9, 9));
        if width < 8 {
            assert_eq!(fails(&nine, DocMap::Offset(most - 8)), (9, 8));
        }
        if width < 4 {
            let new = 1 << (8 * width);
            let docs = DocMap::Map(vec![new; 10]);
            let error = merged(&[MergeInput::new(&nine).docs(docs)], &MergeOptions::default());
            let error = error.unwrap_err();
            let Error::Mismatch { input: 0, expected, found, .. } = error else {
                panic!("{error}")
            };
            assert_eq!((expected, found), (most, new.into()));
        }
    }

    // Values that are wider than doc IDs have no place in a map.
    let huge = [(b"k".to_vec(), int(u64::MAX))].into();
    let huge = table(TableOptions::default(), &huge);
    assert_eq!(fails(&huge, DocMap::Map(vec![0])), (u64::MAX, 1));
}

#[test]
fn the_output_may_replace_an_input_under_its_readers() {
    let folder = Folder::new();
    let (a, b) = (folder.path("a.pkh"), folder.path("b.pkh"));
    let (old_a, old_b) = (numbered("a", 0..2000), numbered("b", 0..2000));
    let all: Model = old_a.iter().chain(&old_b).map(|(k, v)| (k.clone(), v.clone())).collect();
    publish(&b, WriterOptions::default(), slices(&old_b)).unwrap();
    for mode in pkhash_testing::modes() {
        publish(&a, WriterOptions::default(), slices(&old_a)).unwrap();
        let open = |path| mode.open(path).unwrap();
        let tables = [open(&a), open(&b)];
        merge(&keep(&tables), &a, &MergeOptions::default()).unwrap();
        // The readers that were there see what they saw, also of the input that is gone.
        check(&tables[0], &old_a, &[b"b-1".to_vec()]);
        check(&tables[1], &old_b, &[]);
        for file in open_all(&a) {
            check(&file, &all, &[]);
        }
        assert_eq!(folder.names(), ["a.pkh", "b.pkh"]);
        // And a merge of the merged one with the readers of its inputs works on the old bytes.
        let options = MergeOptions::default().on_duplicate(OnDuplicate::Last);
        let again = [open(&a), open(&b)];
        let inputs: Vec<_> = keep(&again).into_iter().chain(keep(&tables)).collect();
        assert_eq!(merge(&inputs, &a, &options).unwrap().footer.keys(), 4000);
    }
}

#[test]
fn an_unfinished_merge_leaves_nothing_and_replaces_nothing() {
    let folder = Folder::new();
    let path = folder.path("merged.pkh");
    let before = folder.write("merged.pkh", "old");
    let tables = [
        table(TableOptions::default(), &numbered("a", 0..100)),
        table(TableOptions::default(), &numbered("a", 99..200)),
    ];
    let error = merge(&keep(&tables), &path, &MergeOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::DuplicateKey { key, .. } if key == b"a-99"), "{error}");
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let options =
        MergeOptions::default().progress(pkhash_std::Progress::default().cancelled_by(flag));
    let error = merge(&keep(&tables[..1]), &path, &options).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    let folder_path = folder.root();
    let error = merge(&keep(&tables[..1]), folder_path, &MergeOptions::default()).unwrap_err();
    assert!(matches!(error, Error::NotAFile { .. }));
    assert_eq!(fs::read(&before).unwrap(), b"old");
    assert_eq!(folder.names(), ["merged.pkh"]);
}

/// Any byte of an input's body may be wrong: an error, or a table that verifies and has lost no more
/// than that byte can account for. Never a panic, and nothing left of a failure.
#[test]
fn damaged_inputs() {
    let mut rng = Rng(8);
    let (mut errors, mut merges) = (0, 0);
    let folder = Folder::new();
    let path = folder.path("merged.pkh");
    for (layout, fixed) in [
        (Layout::Inline, true),
        (Layout::TermOrder, false),
        (Layout::Perfect, true),
        (Layout::Perfect, false),
    ] {
        for (filter_bits, partition_bits) in [(Some(0), 0), (Some(10), 3)] {
            let model: Model = (0..200)
                .map(|i| {
                    let len = if fixed { 9 } else { rng.below(20) };
                    ([&rng.bytes(len)[..], &[i as u8]].concat(), int(i))
                })
                .collect();
            let options = TableOptions::default()
                .layout(layout)
                .filter_bits(filter_bits)
                .partition_bits(partition_bits);
            let other = table(options, &numbered("other", 10..20));
            let (_, bytes) =
                build_bytes(WriterOptions::default().table(options), slices(&model)).unwrap();
            let footer = *pkhash_std::Table::open(&bytes).unwrap().footer();
            let body = 64..bytes.len() - footer.footer_len();
            for _ in 0..120 {
                let mut damaged = bytes.clone();
                for _ in 0..1 + rng.below(3) {
                    let at = body.start + rng.below(body.len());
                    damaged[at] ^= match rng.below(3) {
                        0 => 1 + rng.below(255) as u8,
                        _ => 1 << rng.below(8),
                    };
                }
                // With its checksums repaired it stands for a table that was written wrongly.
                let repaired = rng.below(2) == 0;
                if repaired {
                    raw::repair_all(&mut damaged);
                }
                let changed = damaged != bytes;
                let damaged = TableFile::open(folder.write("damaged.pkh", &damaged)).unwrap();
                let docs = match rng.below(3) {
                    0 => DocMap::Keep,
                    1 => DocMap::Offset(1000),
                    _ => DocMap::Map((0..200).map(|doc| doc + 7).collect()),
                };
                let options = MergeOptions::default()
                    .on_duplicate(OnDuplicate::First)
                    .partition_bits([None, Some(0), Some(2), Some(5)][rng.below(4)])
                    .layout(match layout {
                        _ if rng.below(2) == 0 => LayoutChoice::Auto,
                        Layout::Inline if rng.below(2) == 0 => LayoutChoice::Fixed(layout),
                        _ => LayoutChoice::Fixed(Layout::TermOrder),
                    })
                    .threads(1);
                let mut inputs = vec![MergeInput::new(&damaged).docs(docs)];
                if !fixed {
                    inputs.push(MergeInput::new(&other));
                }
                match merge(&inputs, &path, &options) {
                    Ok(built) => {
                        assert!(repaired || !changed, "damage that a checksum tells");
                        merges += 1;
                        let file = TableFile::open(&path).unwrap();
                        file.verify().unwrap();
                        let given: u64 = inputs.iter().map(|i| i.table.footer().keys()).sum();
                        assert_eq!(built.footer.keys() + built.duplicates, given, "keys were lost");
                        fs::remove_file(&path).unwrap();
                    }
                    Err(_) => errors += 1,
                }
                assert_eq!(folder.names(), ["damaged.pkh"]);
            }
        }
    }
    // Both happen: otherwise this test has lost its point.
    assert!(errors > 20 && merges > 20, "{errors} errors, {merges} merges");
}

#[test]
fn damaged_inputs_are_named() {
    let folder = Folder::new();
    let path = folder.path("input.pkh");
    // All slot words are gone, or offset lines: every pointer is wild. Or all records are: no key is
    // where it was.
    for (layout, from, section) in
        [(Layout::TermOrder, 0, 2), (Layout::Perfect, 0, 2), (Layout::Perfect, 100, 3)]
    {
        let options = TableOptions::default().layout(layout).filter_bits(0);
        let model = numbered("key", from..from + 100);
        let options = WriterOptions::default().table(options);
        publish(&path, options, slices(&model)).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let (at, len) = {
            let table = pkhash_std::Table::open(&bytes).unwrap();
            table.footer().sections(&table.partition(0).unwrap()).nth(section).unwrap()
        };
        assert!(len > 0);
        bytes[at as usize..(at + len) as usize].fill(0xff);
        for repaired in [false, true] {
            if repaired {
                raw::repair_all(&mut bytes);
            }
            fs::write(&path, &bytes).unwrap();
            let file = TableFile::open(&path).unwrap();
            // Any value of one byte has a place in the map.
            for docs in [DocMap::Keep, DocMap::Map((0..256).collect())] {
                let input = MergeInput::new(&file).docs(docs);
                let error = merged(&[input], &MergeOptions::default()).unwrap_err();
                match error {
                    Error::Table { source: CoreError::Corrupt { .. }, .. } if repaired => {}
                    Error::Table { source: CoreError::SectionChecksum { .. }, .. } if !repaired => {
                    }
                    _ => panic!("{error}"),
                }
                pkhash_testing::names_path(&error, &path);
            }
        }
    }
}

/// Keys that are hashed anew go to a temporary file past the budget, and come out in the order of the inputs all the
/// same; the bytes depend on neither.
#[test]
fn other_seeds_within_a_budget() {
    let of = |seed, from: u64, to: u64| -> TableFile {
        // 200 bytes: the keys of one table are more than the budget.
        let key = |i: u64| format!("{i:0200}").into_bytes();
        let model: Model = (from..to).map(|i| (key(i), int(i - from))).collect();
        table(TableOptions::default().hasher(KeyHasher::new(seed)), &model)
    };
    let tables = [of(1, 0, 20_000), of(2, 10_000, 70_000), of(1, 60_000, 80_000), of(3, 0, 100)];
    let mut base = 0;
    let inputs: Vec<_> = tables
        .iter()
        .map(|table| {
            let docs = DocMap::Offset(base);
            base += table.footer().keys();
            MergeInput::new(table).docs(docs)
        })
        .collect();
    let mut all = Vec::new();
    for on_duplicate in [OnDuplicate::First, OnDuplicate::Last] {
        for (memory, threads) in [(8 << 20, 1), (8 << 20, 3), (1 << 30, 3)] {
            let options =
                MergeOptions::default().memory(memory).threads(threads).on_duplicate(on_duplicate);
            let mut bytes = Vec::new();
            let built = merge(&inputs, &mut bytes, &options).unwrap();
            assert_eq!(built.spilled > 0, memory < 1 << 30);
            assert_eq!((built.footer.keys(), built.duplicates), (80_000, 20_100));
            assert_eq!(built.footer.hasher().seed(), 1);
            all.push(bytes);
        }
        let table = TableFile::from_bytes(all[0].clone()).unwrap();
        let doc = |i: u64| table.get(format!("{i:0200}").as_bytes()).unwrap().unwrap().doc_id();
        match on_duplicate {
            OnDuplicate::First => {
                assert_eq!([doc(50), doc(15_000), doc(65_000)], [50, 15_000, 75_000].map(Some));
            }
            _ => {
                assert_eq!(
                    [doc(50), doc(15_000), doc(65_000)],
                    [100_050, 25_000, 85_000].map(Some)
                );
            }
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{on_duplicate:?}");
        all.clear();
    }
    let little = MergeOptions::default().memory(100);
    let error = merge(&inputs, &mut Vec::new(), &little).unwrap_err();
    assert!(error.to_string().contains("memory budget"), "{error}");
}
