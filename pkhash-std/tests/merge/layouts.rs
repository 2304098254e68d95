//! Inputs and outputs of every layout.

use super::*;

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
