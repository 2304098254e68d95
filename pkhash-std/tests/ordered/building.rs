//! Building companions, and merging them.

use super::*;

/// The least memory makes several runs of these keys, and the same bytes.
#[test]
fn within_a_memory_budget() {
    let folder = Folder::new();
    let temporary = Folder::new();
    let mut rng = Rng(3);
    let docs: Docs = (0..40_000).map(|i| (rng.next().to_be_bytes()[..7].to_vec(), i)).collect();
    let table = table(&folder, &docs);
    companion(&table);
    let all_at_once = folder.read("t.pkh.fst");
    let called = Arc::new(AtomicU64::new(0));
    let seen = called.clone();
    let little = CompanionOptions::default()
        .memory(MIN_COMPANION_MEMORY)
        .threads(2)
        .temp_dir(temporary.root().to_owned())
        .progress(Progress::default().reported_to(move |done, all| {
            assert!(done <= all && all == 40_000);
            assert!(seen.swap(done, Ordering::Relaxed) <= done);
        }));
    let built = build_companion(&table, folder.path("c"), &little).unwrap();
    assert_eq!(built.spilled, 40_000 * (12 + 7));
    assert_eq!(called.load(Ordering::Relaxed), 40_000);
    assert!(folder.read("c") == all_at_once);
    assert_eq!(temporary.names(), [""; 0]);

    let files = folder.names();
    let less = little.clone().memory(MIN_COMPANION_MEMORY - 1);
    let error = build_companion(&table, folder.path("d"), &less).unwrap_err();
    let (least, less) = (1 << 20, (1 << 20) - 1);
    assert!(
        matches!(error, Error::MemoryBudget { expected, found } if (expected, found) == (least, less))
    );
    let nowhere = little.temp_dir(folder.path("none"));
    let error = build_companion(&table, folder.path("d"), &nowhere).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    assert_eq!(folder.names(), files);
}

/// One companion, whichever way it goes; one that goes to a writer spills into the system's folder.
#[test]
fn the_same_bytes_go_anywhere() {
    let folder = Folder::new();
    let table = table(&folder, &docs((0..3000u32).map(|i| (format!("key-{i}"), i.into()))));
    let terms = [companion(&table)];
    let expected = folder.read("t.pkh.fst");
    let inputs = [MergeInput::new(&table)];
    let mut publication = Publication::begin(folder.path("p")).unwrap();
    build_companion(&table, &mut publication, &options()).unwrap();
    publication.commit().unwrap();
    assert_eq!(folder.read("p"), expected);
    let (mut built, mut merged) = (Vec::new(), Vec::new());
    build_companion(&table, &mut built, &options()).unwrap();
    merge_companions(&inputs, &terms, &table, &mut merged, &options()).unwrap();
    assert!(built == expected && merged == expected);
    // A writer that fails is named, and nothing is left of it.
    let files = folder.names();
    let mut short = [0; 1000];
    let error = build_companion(&table, &mut &mut short[..], &options()).unwrap_err();
    assert!(matches!(error, Error::Io { doing: "write", .. }), "{error}");
    assert!(error.to_string().contains("the output"), "{error}");
    assert_eq!(folder.names(), files);
    // Companions and inputs that are not as many.
    let error = merge_companions(&inputs, &[], &table, &mut merged, &options()).unwrap_err();
    assert!(matches!(error, Error::BatchLength { expected: 1, found: 0 }), "{error}");
}

#[test]
fn a_failed_build_leaves_what_was_there() {
    let folder = Folder::new();
    let table = table(&folder, &docs([("a", 1)]));
    companion(&table);
    let before = folder.read("t.pkh.fst");
    let files = folder.names();
    let flag = Arc::new(AtomicBool::new(true));
    let cancelled = options().progress(Progress::default().cancelled_by(flag));
    let path = companion_path(table.name());
    let error = build_companion(&table, &path, &cancelled).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    let terms = [OrderedTerms::open(&table).unwrap()];
    let inputs = [MergeInput::new(&table)];
    let error = merge_companions(&inputs, &terms, &table, &path, &cancelled).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    let error = build_companion(&table, folder.root(), &options()).unwrap_err();
    assert!(matches!(error, Error::NotAFile { .. }));
    let error = build_companion(&table, folder.path("none/c"), &options()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    assert_eq!(folder.names(), files);
    assert!(folder.read("t.pkh.fst") == before);
}

/// Merges tables and their companions, and compares with the companion that is built of the merged table.
fn check_merge(
    folder: &Folder,
    tables: &[TableFile],
    docs: &[DocMap],
    on_duplicate: OnDuplicate,
) -> u64 {
    let inputs: Vec<MergeInput<'_>> = tables
        .iter()
        .zip(docs)
        .map(|(table, docs)| MergeInput::new(table).docs(docs.clone()))
        .collect();
    let terms: Vec<OrderedTerms> = tables.iter().map(companion).collect();
    let path = folder.path("merged.pkh");
    let merge_options = MergeOptions::default().on_duplicate(on_duplicate).threads(1);
    merge(&inputs, &path, &merge_options).unwrap();
    let merged = TableFile::open(&path).unwrap();
    let built =
        merge_companions(&inputs, &terms, &merged, folder.path("union"), &options()).unwrap();
    companion(&merged).verify(&merged).unwrap();
    let (union, afresh) = (folder.read("union"), folder.read("merged.pkh.fst"));
    assert!(union == afresh);
    assert_eq!((built.keys, built.bytes), (merged.footer().keys(), union.len() as u64));
    built.keys
}

fn named(folder: &Folder, name: &str, docs: &Docs) -> TableFile {
    table_with(folder, name, TableOptions::default(), docs)
}

#[test]
fn a_merged_companion_is_that_of_the_merged_table() {
    let folder = Folder::new();
    let numbers = |prefix: &str, numbers: std::ops::Range<u64>, base: u64| -> Docs {
        numbers.map(|i| (format!("{prefix}{i}").into_bytes(), i - base)).collect()
    };
    let tables = [
        named(&folder, "0", &numbers("k", 0..300, 0)),
        named(&folder, "1", &numbers("k", 200..500, 200)),
        named(&folder, "2", &Docs::new()),
        named(&folder, "3", &numbers("l", 0..50, 0)),
    ];
    let keep = vec![DocMap::Keep; 4];
    let offsets = [0, 300, 600, 1 << 40].map(DocMap::Offset);
    // Of every input some docs are deleted: of the first all that are in the second, too, or others.
    let map = |n: u32, gone: &dyn Fn(u32) -> bool| {
        DocMap::Map((0..n).map(|i| if gone(i) { DELETED } else { 7 * i + 3 }).collect())
    };
    let none_twice = [
        map(300, &|i| i >= 200),
        map(300, &|i| i % 5 == 0),
        map(0, &|_| false),
        map(50, &|_| true),
    ];
    let some_twice =
        [map(300, &|i| i % 2 == 0), map(300, &|i| i % 3 == 0), map(0, &|_| false), DocMap::Keep];
    assert_eq!(check_merge(&folder, &tables, &none_twice, OnDuplicate::Error), 200 + 240);
    for policy in [OnDuplicate::First, OnDuplicate::Last] {
        assert_eq!(check_merge(&folder, &tables, &keep, policy), 550);
        assert_eq!(check_merge(&folder, &tables, &offsets, policy), 550);
        let keys = check_merge(&folder, &tables, &some_twice, policy);
        assert!((300..550).contains(&keys));
    }
    check_merge(&folder, &[], &[], OnDuplicate::Error);
    let again = [named(&folder, "0", &numbers("k", 0..300, 0))];
    check_merge(&folder, &again, &[DocMap::Keep], OnDuplicate::Error);
}

#[test]
fn merged_companions_of_versioned_tables() {
    let folder = Folder::new();
    let mut tables = Vec::new();
    for t in 0..3u32 {
        let model: Model = (0..100u32)
            .map(|i| {
                let key = format!("{:04}", i + 60 * t).into_bytes();
                (key, versioned(i, u64::from(t ^ 1) << 40))
            })
            .collect();
        let path = folder.path(&t.to_string());
        let options = WriterOptions::default().table(opaque(12));
        publish(&path, options, slices(&model)).unwrap();
        tables.push(TableFile::open(path).unwrap());
    }
    let map = (0..100).map(|i| if i % 4 == 1 { DELETED } else { 1000 - i }).collect();
    for (docs, keys) in [
        ([DocMap::Offset(0), DocMap::Offset(100), DocMap::Offset(200)], 220),
        // Of the 20 keys that no other table has, 5 are deleted.
        ([DocMap::Offset(5), DocMap::Map(map), DocMap::Keep], 215),
    ] {
        for policy in [OnDuplicate::First, OnDuplicate::Last] {
            assert_eq!(check_merge(&folder, &tables, &docs, policy), keys);
        }
    }
}

/// What was merged is not what the merged table was made of.
#[test]
fn companions_that_do_not_go_with_the_merge() {
    let folder = Folder::new();
    let a = named(&folder, "a", &docs([("a", 0), ("b", 1)]));
    let b = named(&folder, "b", &docs([("b", 2), ("c", 3)]));
    let keep = |table| MergeInput::new(table);
    let (inputs, path) = ([keep(&a), keep(&b)], folder.path("m"));
    let first = MergeOptions::default().on_duplicate(OnDuplicate::First);
    merge(&inputs, &path, &first).unwrap();
    let merged = TableFile::open(&path).unwrap();
    let files = folder.names();
    let out = folder.path("c");
    let union = |inputs: &[MergeInput<'_>], terms: [&TableFile; 2], merged: &TableFile| {
        let terms = terms.map(|table| {
            let bytes = fst_of(
                &table
                    .table()
                    .iter()
                    .map(|record| {
                        let (key, value) = record.unwrap();
                        (key.to_vec(), value.as_u64().unwrap())
                    })
                    .collect(),
            );
            open(&seal(&bytes, table.footer().keys(), table), table).unwrap()
        });
        merge_companions(inputs, &terms[..inputs.len()], merged, &out, &options())
    };
    // Companions in another order than the inputs.
    let error = union(&inputs, [&b, &a], &merged).unwrap_err();
    assert!(matches!(error, Error::Companion { .. }), "{error:?}");
    // An input less than were merged.
    let error = union(&inputs[..1], [&a, &b], &merged).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Companion {
                what: "number of keys for the companion",
                expected: 3,
                found: 2,
                path: Some(_),
                ..
            }
        ),
        "{error:?}"
    );
    // A key of both inputs that the merged table has with neither doc ID.
    let other = named(&folder, "m", &docs([("a", 0), ("b", 9), ("c", 3)]));
    let error = union(&inputs, [&a, &b], &other).unwrap_err();
    assert!(matches!(error, Error::CompanionKey { expected: Some(9), .. }), "{error:?}");
    // A doc map that is too short.
    let short = MergeInput::new(&a).docs(DocMap::Map(vec![1]));
    let error = union(&[short, keep(&b)], [&a, &b], &merged).unwrap_err();
    assert!(matches!(error, Error::DocMap { input: 0, found: 1, expected: 1 }), "{error:?}");
    assert_eq!(folder.names(), files);
    assert!(!Path::new(&out).exists());
}
