//! Merging against a model, and against a table built afresh from the pairs that are left: the bytes
//! are the same. Doc maps, duplicates, mismatches, damaged inputs, inputs that are replaced.

mod common;
// What damages tables, and makes their checksums right again.
#[allow(dead_code)]
#[path = "../../pkhash-core/tests/common/raw.rs"]
mod raw;

use std::fs;

use common::{
    Folder, Model, Rng, build_bytes, check, check_bytes, int, numbered, of_slice, open_all,
    publish, slices,
};
use pkhash_std::core::Error as CoreError;
use pkhash_std::{
    Built, DELETED, DocMap, Error, Hasher, Layout, LayoutChoice, MergeInput, MergeOptions,
    OnDuplicate, Options, Result, TableFile, ValueChoice, ValueFormat, WriterOptions, merge,
    merge_to,
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

fn table(options: Options, model: &Model) -> TableFile {
    let folder = Folder::new();
    let options = WriterOptions { table: options, threads: 1, ..WriterOptions::default() };
    let (_, bytes) = build_bytes(options, slices(model)).unwrap();
    TableFile::open(folder.write("input.pkh", bytes)).unwrap()
}

fn keep(tables: &[TableFile]) -> Vec<MergeInput<'_>> {
    tables.iter().map(|table| MergeInput { table, docs: DocMap::Keep }).collect()
}

fn merged(inputs: &[MergeInput<'_>], options: &MergeOptions) -> Result<(Built, Vec<u8>)> {
    let mut bytes = Vec::new();
    let built = merge_to(inputs, &mut bytes, options)?;
    assert_eq!((built.footer.file_len, built.spilled), (bytes.len() as u64, 0));
    Ok((built, bytes))
}

/// The new value of a record, or nothing if its doc was deleted.
fn map_value(docs: &DocMap, value: &[u8]) -> Option<Vec<u8>> {
    // Integers are here with 8 bytes; of opaque values the doc ID is the first 4.
    let id_width = if value.len() == 8 { 8 } else { 4 };
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
    options: Options,
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
        let truncated = rng.below(3) == 0;
        let hasher = match truncated {
            true => Hasher::truncated(seed, rng.below(7) as u8),
            false => Hasher::new(seed % 2),
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
                        value[..4].copy_from_slice(&(doc as u32).to_le_bytes());
                        value
                    }
                };
                model.entry(key.clone()).or_insert(value);
            }
        }
        let filter_bits = |rng: &mut Rng| [0, 10, 10, 3][rng.below(4)];
        // 1,024 partitions are slow to make without optimization.
        let partition_bits = |rng: &mut Rng| match rng.below(20) {
            0 => Some(10),
            1..=6 => None,
            _ => Some(rng.below(6) as u8),
        };
        let layout = |rng: &mut Rng| match rng.below(3) {
            0 => LayoutChoice::Fixed(Layout::TermOrder),
            _ => LayoutChoice::Auto,
        };
        let inputs = models
            .into_iter()
            .map(|model| {
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
                let options = Options {
                    layout: layout(&mut rng),
                    value,
                    filter_bits: filter_bits(&mut rng),
                    hasher,
                    partition_bits: partition_bits(&mut rng),
                };
                Input { model, options, docs }
            })
            .collect();
        let output = MergeOptions {
            layout: layout(&mut rng),
            value: match (width, rng.below(3)) {
                (None, 0) => integer(8),
                _ => ValueChoice::Auto,
            },
            filter_bits: (rng.below(2) == 0).then(|| filter_bits(&mut rng)),
            partition_bits: partition_bits(&mut rng),
            threads: 1,
            ..MergeOptions::default()
        };
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
        tables.iter().zip(docs).map(|(table, docs)| MergeInput { table, docs }).collect()
    }

    /// Options with which the merged table would be built afresh.
    fn afresh(&self) -> Options {
        let first = &self.inputs[0].options;
        let value = match (self.output.value, first.value) {
            (ValueChoice::Auto, ValueChoice::Fixed(value))
                if value.kind() == pkhash_std::ValueKind::Opaque =>
            {
                first.value
            }
            (value, _) => value,
        };
        Options {
            layout: self.output.layout,
            value,
            filter_bits: self.output.filter_bits.unwrap_or(first.filter_bits),
            hasher: first.hasher,
            partition_bits: self.output.partition_bits,
        }
    }
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
        let (built, bytes) = merged(&inputs, &case.output).unwrap();
        let (_, more_threads) =
            merged(&inputs, &MergeOptions { threads: 4, ..case.output.clone() }).unwrap();
        assert!(bytes == more_threads, "the threads changed the bytes");
        let options =
            WriterOptions { table: case.afresh(), threads: 1, ..WriterOptions::default() };
        let (_, afresh) = build_bytes(options, of_slice(&left)).unwrap();
        assert!(bytes == afresh, "merged is not as built afresh: {:?}", built.footer);
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
        for (on_duplicate, model) in [(OnDuplicate::First, &first), (OnDuplicate::Last, &last)] {
            let options = MergeOptions { on_duplicate, ..case.output.clone() };
            let (built, bytes) = merged(&inputs, &options).unwrap();
            assert_eq!(built.duplicates, (left.len() - model.len()) as u64);
            let (_, same) = merged(&inputs, &MergeOptions { threads: 4, ..options }).unwrap();
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
    assert_eq!(built.footer.keys, 0);
    let (_, afresh) = build_bytes(WriterOptions::default(), []).unwrap();
    assert!(bytes == afresh);
    check_bytes(&bytes, &Model::new(), &[Vec::new()]);

    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (a, b) = (numbered("a", 0..a), numbered("b", 0..b));
        let tables = [table(Options::default(), &a), table(Options::default(), &b)];
        for docs in
            [DocMap::Keep, DocMap::Offset(7), DocMap::Map(vec![3]), DocMap::Map(vec![DELETED])]
        {
            let inputs: Vec<_> =
                tables.iter().map(|table| MergeInput { table, docs: docs.clone() }).collect();
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
    let tables = [table(Options::default(), &old), table(Options::default(), &new)];
    // Docs 20…29 of the old segment were updated; what is left moves up.
    let map = (0..50).map(|doc| match doc {
        0..20 => doc,
        20..30 => DELETED,
        _ => doc - 10,
    });
    let docs = [DocMap::Map(map.collect()), DocMap::Offset(40)];
    let inputs: Vec<_> =
        tables.iter().zip(docs).map(|(table, docs)| MergeInput { table, docs }).collect();
    for on_duplicate in [OnDuplicate::Error, OnDuplicate::First, OnDuplicate::Last] {
        let options = MergeOptions { on_duplicate, ..MergeOptions::default() };
        let (built, bytes) = merged(&inputs, &options).unwrap();
        assert_eq!((built.footer.keys, built.duplicates), (50, 0));
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
            let docs = table.footer().max_value as usize + 1;
            MergeInput { table, docs: DocMap::Map(vec![DELETED; docs]) }
        })
        .collect();
    let (built, _) = merged(&all_deleted, &MergeOptions::default()).unwrap();
    assert_eq!(built.footer.keys, 0);
}

#[test]
fn inputs_that_do_not_go_together() {
    let model = numbered("a", 0..3);
    let seeded = |seed| Options { hasher: Hasher::new(seed), ..Options::default() };
    let bytes = |width: u8| -> Model { [(b"b".to_vec(), vec![1; usize::from(width)])].into() };
    let of_width =
        |width| table(Options { value: opaque(width), ..Options::default() }, &bytes(width));
    let plain = || table(Options::default(), &model);
    for (what, tables) in [
        ("seed", [table(seeded(1), &model), table(seeded(2), &model)]),
        (
            "hash",
            [plain(), {
                let hasher = Hasher::truncated(0, 4);
                table(Options { hasher, ..Options::default() }, &model)
            }],
        ),
        ("value width", [of_width(12), of_width(13)]),
        ("value width", [of_width(0), of_width(1)]),
        ("value width", [plain(), of_width(8)]),
        ("value width", [of_width(0), plain()]),
    ] {
        let error = merged(&keep(&tables), &MergeOptions::default()).unwrap_err();
        match error {
            Error::Mismatch { what: found, input: 1, .. } => assert_eq!(found, what),
            error => panic!("{what}: {error}"),
        }
    }
    // Integers of several widths do go together; a set and a doc map do not.
    let wide = table(Options { value: integer(8), ..Options::default() }, &numbered("b", 0..3));
    merged(&keep(&[plain(), wide]), &MergeOptions::default()).unwrap();
    for width in [0, 3] {
        let set = of_width(width);
        merged(&keep(std::slice::from_ref(&set)), &MergeOptions::default()).unwrap();
        for docs in [DocMap::Offset(1), DocMap::Map(vec![0; 2])] {
            let input = MergeInput { table: &set, docs };
            let error = merged(&[input], &MergeOptions::default()).unwrap_err();
            assert!(matches!(error, Error::Mismatch { input: 0, .. }), "{error}");
        }
    }
}

/// Values that the caller asked for and the inputs do not have: an error, and not a panic.
#[test]
fn outputs_that_do_not_fit() {
    let folder = Folder::new();
    let path = folder.path("merged.pkh");
    let integers = table(Options::default(), &numbered("a", 0..300));
    let set =
        table(Options { value: opaque(0), ..Options::default() }, &[(vec![1], vec![])].into());
    let wide = table(
        Options { value: opaque(12), ..Options::default() },
        &[(vec![1], vec![7; 12])].into(),
    );
    for (table, value) in [
        (&integers, integer(1)),
        (&integers, opaque(12)),
        (&integers, opaque(0)),
        (&set, integer(4)),
        (&set, opaque(1)),
        (&wide, integer(8)),
        (&wide, opaque(11)),
    ] {
        let input = MergeInput { table, docs: DocMap::Keep };
        let options = MergeOptions { value, ..MergeOptions::default() };
        let error = merge(&[input], &path, &options).unwrap_err();
        assert!(matches!(error, Error::Table { .. } | Error::Mismatch { .. }), "{error}");
        assert!(folder.names().is_empty());
    }
    let input = MergeInput { table: &integers, docs: DocMap::Keep };
    for options in [
        MergeOptions { filter_bits: Some(65), ..MergeOptions::default() },
        MergeOptions { partition_bits: Some(11), ..MergeOptions::default() },
        MergeOptions { layout: LayoutChoice::Fixed(Layout::Inline), ..MergeOptions::default() },
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
        let input = MergeInput { table, docs };
        let error = merge(&[input], &path, &MergeOptions::default()).unwrap_err();
        assert!(folder.names().is_empty());
        match error {
            Error::DocMap { input: 0, found, expected } => (found, expected),
            error => panic!("{error}"),
        }
    };
    let integers = table(Options::default(), &numbered("a", 0..10));
    assert_eq!(fails(&integers, DocMap::Map((0..9).collect())), (9, 9));
    assert_eq!(fails(&integers, DocMap::Offset(u64::MAX - 8)).0, 9);
    // The greatest offset that fits.
    let input = MergeInput { table: &integers, docs: DocMap::Offset(u64::MAX - 9) };
    let (built, _) = merged(&[input], &MergeOptions::default()).unwrap();
    assert_eq!(built.footer.max_value, u64::MAX);

    // Doc ID and version: a doc ID has 32 bits.
    let versioned = [(b"k".to_vec(), [&[9, 0, 0, 0][..], &[1; 8]].concat())].into();
    let versioned = table(Options { value: opaque(12), ..Options::default() }, &versioned);
    assert_eq!(fails(&versioned, DocMap::Map(vec![0; 9])), (9, 9));
    assert_eq!(fails(&versioned, DocMap::Offset(u64::from(u32::MAX) - 8)).0, 9);
    let input = MergeInput { table: &versioned, docs: DocMap::Offset(u64::from(u32::MAX) - 9) };
    let (_, bytes) = merged(&[input], &MergeOptions::default()).unwrap();
    let moved = [(b"k".to_vec(), [&[255; 4][..], &[1; 8]].concat())].into();
    check_bytes(&bytes, &moved, &[]);

    // Values that are wider than doc IDs have no place in a map.
    let huge = [(b"k".to_vec(), int(u64::MAX))].into();
    let huge = table(Options::default(), &huge);
    assert_eq!(fails(&huge, DocMap::Map(vec![0])), (u64::MAX, 1));
}

#[test]
fn the_output_may_replace_an_input_under_its_readers() {
    let folder = Folder::new();
    let (a, b) = (folder.path("a.pkh"), folder.path("b.pkh"));
    let (old_a, old_b) = (numbered("a", 0..2000), numbered("b", 0..2000));
    let all: Model = old_a.iter().chain(&old_b).map(|(k, v)| (k.clone(), v.clone())).collect();
    publish(&b, WriterOptions::default(), slices(&old_b)).unwrap();
    for mode in common::modes() {
        publish(&a, WriterOptions::default(), slices(&old_a)).unwrap();
        let open = |path| pkhash_std::OpenOptions::new().mode(mode).open(path).unwrap();
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
        let options = MergeOptions { on_duplicate: OnDuplicate::Last, ..MergeOptions::default() };
        let again = [open(&a), open(&b)];
        let inputs: Vec<_> = keep(&again).into_iter().chain(keep(&tables)).collect();
        assert_eq!(merge(&inputs, &a, &options).unwrap().footer.keys, 4000);
    }
}

#[test]
fn an_unfinished_merge_leaves_nothing_and_replaces_nothing() {
    let folder = Folder::new();
    let path = folder.path("merged.pkh");
    let before = folder.write("merged.pkh", "old");
    let tables = [
        table(Options::default(), &numbered("a", 0..100)),
        table(Options::default(), &numbered("a", 99..200)),
    ];
    let error = merge(&keep(&tables), &path, &MergeOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::DuplicateKey { key, .. } if key == b"a-99"), "{error}");
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let options = MergeOptions {
        control: pkhash_std::Control::default().cancelled_by(flag),
        ..MergeOptions::default()
    };
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
    for layout in [Layout::Inline, Layout::TermOrder] {
        for (filter_bits, partition_bits) in [(0, 0), (10, 3)] {
            let model: Model = (0..200)
                .map(|i| {
                    let len = if layout == Layout::Inline { 9 } else { rng.below(20) };
                    ([&rng.bytes(len)[..], &[i as u8]].concat(), int(i))
                })
                .collect();
            let options = Options {
                layout: LayoutChoice::Fixed(layout),
                filter_bits,
                partition_bits: Some(partition_bits),
                ..Options::default()
            };
            let other = table(options, &numbered("other", 10..20));
            let (_, bytes) = build_bytes(
                WriterOptions { table: options, ..WriterOptions::default() },
                slices(&model),
            )
            .unwrap();
            let footer = *pkhash_std::Table::open(&bytes).unwrap().footer();
            let body = 64..bytes.len() - footer.footer_len();
            for _ in 0..150 {
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
                let options = MergeOptions {
                    on_duplicate: OnDuplicate::First,
                    partition_bits: [None, Some(0), Some(2), Some(5)][rng.below(4)],
                    layout: match layout {
                        Layout::Inline if rng.below(2) == 0 => LayoutChoice::Auto,
                        _ => LayoutChoice::Fixed(Layout::TermOrder),
                    },
                    threads: 1,
                    ..MergeOptions::default()
                };
                let mut inputs = vec![MergeInput { table: &damaged, docs }];
                if layout == Layout::TermOrder {
                    inputs.push(MergeInput { table: &other, docs: DocMap::Keep });
                }
                match merge(&inputs, &path, &options) {
                    Ok(built) => {
                        assert!(repaired || !changed, "damage that a checksum tells");
                        merges += 1;
                        let file = TableFile::open(&path).unwrap();
                        file.verify().unwrap();
                        let given: u64 = inputs.iter().map(|i| i.table.footer().keys).sum();
                        assert_eq!(built.footer.keys + built.duplicates, given, "keys were lost");
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
    let model = numbered("key", 0..100);
    let path = folder.path("input.pkh");
    let options = Options {
        layout: LayoutChoice::Fixed(Layout::TermOrder),
        filter_bits: 0,
        ..Options::default()
    };
    publish(&path, WriterOptions { table: options, ..WriterOptions::default() }, slices(&model))
        .unwrap();
    // All slot words are gone: every pointer is wild.
    let mut bytes = fs::read(&path).unwrap();
    let (at, len) = {
        let table = pkhash_std::Table::open(&bytes).unwrap();
        let partition = table.partition(0).unwrap();
        partition.section(Layout::TermOrder, pkhash_std::core::Section::SlotWords)
    };
    bytes[at as usize..(at + len) as usize].fill(0xff);
    for repaired in [false, true] {
        if repaired {
            raw::repair_all(&mut bytes);
        }
        fs::write(&path, &bytes).unwrap();
        let file = TableFile::open(&path).unwrap();
        for docs in [DocMap::Keep, DocMap::Map((0..100).collect())] {
            let input = MergeInput { table: &file, docs };
            let error = merged(&[input], &MergeOptions::default()).unwrap_err();
            match error {
                Error::Table { source: CoreError::Corrupt { .. }, .. } if repaired => {}
                Error::Table { source: CoreError::SectionChecksum { .. }, .. } if !repaired => {}
                _ => panic!("{error}"),
            }
            common::names_path(&error, &path);
        }
    }
}
