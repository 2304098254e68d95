//! Tables in files, however they are held: the same answers in every mode, with every advice and
//! kernel; files that are no tables; files that are replaced; many threads on one table.

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    Folder, Model, Rng, build_bytes, check, int, modes, names_path, numbered, open_all, publish,
    slices,
};
use pkhash_std::core::{Error as CoreError, Section};
use pkhash_std::{
    Advice, Error, Hasher, Kernel, Layout, LayoutChoice, Mode, OpenOptions, Options, Publication,
    TableFile, Value, WriterOptions,
};

fn with(table: Options) -> WriterOptions {
    WriterOptions { table, ..WriterOptions::default() }
}

/// A table of every kind, and its keys: of one length but for term-order and the last one.
fn every_kind(seed: u64, keys: usize) -> [(Options, Model); 5] {
    let options = |layout, packed| Options {
        layout: LayoutChoice::Fixed(layout),
        partition_bits: Some(2),
        packed,
        ..Options::default()
    };
    [
        (options(Layout::Inline, false), model(seed, keys)),
        (options(Layout::TermOrder, false), mixed(seed, keys)),
        // Records in lines, back to back, and behind offset lines.
        (options(Layout::Perfect, false), model(seed, keys)),
        (options(Layout::Perfect, true), model(seed, keys)),
        (options(Layout::Perfect, false), mixed(seed, keys)),
    ]
}

/// Keys of one length.
fn model(seed: u64, keys: usize) -> Model {
    let mut rng = Rng(seed);
    (0..keys).map(|i| (rng.bytes(18), int(i as u64))).collect()
}

/// Keys of many lengths.
fn mixed(seed: u64, keys: usize) -> Model {
    let mut rng = Rng(seed);
    (0..keys)
        .map(|i| {
            let len = 9 + rng.below(40);
            (rng.bytes(len), int(i as u64))
        })
        .collect()
}

/// [`every_kind`] is what it says.
#[test]
fn kinds_of_tables() {
    let facts = every_kind(4, 300).map(|(options, model)| {
        let footer = build_bytes(with(options), slices(&model)).unwrap().0.footer;
        (footer.layout, footer.records_per_line, footer.unit)
    });
    assert_eq!(
        facts,
        [
            (Layout::Inline, 0, 0),
            (Layout::TermOrder, 0, 0),
            (Layout::Perfect, 3, 0),
            (Layout::Perfect, 0, 0),
            (Layout::Perfect, 0, 1),
        ]
    );
}

#[test]
fn every_mode_advice_and_kernel_answers_alike() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    for (options, model) in every_kind(1, 150) {
        publish(&path, with(options), slices(&model)).unwrap();
        for mode in modes() {
            for advice in [Advice::Normal, Advice::Random, Advice::Sequential, Advice::WillNeed] {
                for preload in [false, true] {
                    for kernel in Kernel::available() {
                        let file = OpenOptions::new()
                            .mode(mode)
                            .advice(advice)
                            .preload(preload)
                            .kernel(kernel)
                            .open(&path)
                            .unwrap();
                        assert_eq!(file.kernel().name(), kernel.name());
                        assert_eq!(file.path(), path);
                        check(&file, &model, &[]);
                        assert!(file.table().as_bytes() == fs::read(&path).unwrap());
                    }
                }
            }
        }
    }
    let model = model(1, 300);
    publish(&path, WriterOptions::default(), slices(&model)).unwrap();
    let short = [TableFile::open(&path).unwrap(), OpenOptions::new().open(&path).unwrap()];
    assert!(short.iter().all(|file| file.kernel().name() == Kernel::detect().name()));
    #[cfg(feature = "mmap")]
    check(&TableFile::map(&path).unwrap(), &model, &[]);
}

/// A copy in memory begins with a cache line, so that a record that lies in one line of the file lies
/// in one of the memory.
#[test]
fn copies_are_aligned_to_lines() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    for (options, model) in every_kind(2, 100) {
        publish(&path, with(options), slices(&model)).unwrap();
        for file in open_all(&path) {
            assert_eq!(file.table().as_bytes().as_ptr().align_offset(64), 0);
        }
    }
}

fn open_fails(path: &Path) -> Vec<Error> {
    modes()
        .into_iter()
        .map(|mode| {
            let options = OpenOptions::new().mode(mode).preload(true).advice(Advice::Random);
            let error = options.open(path).unwrap_err();
            names_path(&error, path);
            error
        })
        .collect()
}

#[test]
fn what_is_no_table_is_an_error_that_names_the_path() {
    let folder = Folder::new();
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("one byte", vec![0x89]),
        ("text", b"B000000001\nB000000002\n".repeat(100)),
        ("zeros", vec![0; 10_000]),
        ("a head alone", pkhash_std::core::format::head().to_vec()),
        ("a head and zeros", [&pkhash_std::core::format::head()[..], &[0; 5000]].concat()),
    ] {
        let path = folder.write(name, bytes);
        for error in open_fails(&path) {
            assert!(matches!(error, Error::Table { .. }), "{name}: {error}");
        }
    }
    for error in open_fails(&folder.path("missing")) {
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
    // Opened on some systems, not on others.
    for error in open_fails(folder.root()) {
        assert!(matches!(error, Error::NotAFile { .. } | Error::Io { .. }), "{error}");
    }
    #[cfg(unix)]
    for error in open_fails(Path::new("/dev/null")) {
        assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    }
    #[cfg(target_os = "linux")]
    for error in open_fails(Path::new("/dev/zero")) {
        assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    }
}

/// Cut at every length, as by a copy that did not finish; and with bytes behind the end.
#[test]
fn tables_of_another_length() {
    let folder = Folder::new();
    for (options, model) in every_kind(5, 20) {
        let (_, bytes) = build_bytes(with(options), slices(&model)).unwrap();
        for len in 0..bytes.len() {
            let path = folder.write("cut.pkh", &bytes[..len]);
            let error = TableFile::open(&path).unwrap_err();
            assert!(matches!(error, Error::Table { .. }), "{len}: {error}");
            if len % 61 == 0 {
                open_fails(&path);
            }
        }
        for more in [1, 64, 4096] {
            let mut longer = bytes.clone();
            longer.resize(bytes.len() + more, 0);
            open_fails(&folder.write("longer.pkh", &longer));
        }
        // Twice the same table is none.
        open_fails(&folder.write("twice.pkh", bytes.repeat(2)));
    }
}

#[test]
fn damage_is_found_by_verify_and_named() {
    let folder = Folder::new();
    let mut rng = Rng(3);
    for (options, model) in every_kind(6, 50) {
        let (built, bytes) = build_bytes(with(options), slices(&model)).unwrap();
        let body = 64..bytes.len() - built.footer.footer_len();
        for _ in 0..30 {
            let mut damaged = bytes.clone();
            damaged[body.start + rng.below(body.len())] ^= 1 << rng.below(8);
            let path = folder.write("damaged.pkh", damaged);
            for file in open_all(&path) {
                names_path(&file.verify().unwrap_err(), &path);
                for key in model.keys() {
                    // Wrong, perhaps, but an answer or an error that says where.
                    if let Err(error) = file.get(key) {
                        names_path(&error, &path);
                    }
                }
            }
        }
    }
}

/// Each section of each layout has a checksum of its own, and the error says which is wrong.
#[test]
fn damage_is_named_by_its_section() {
    let folder = Folder::new();
    for (options, model) in every_kind(7, 50) {
        let options = Options { filter_bits: Some(10), ..options };
        let (built, bytes) = build_bytes(with(options), slices(&model)).unwrap();
        let layout = built.footer.layout;
        let mut seen = Vec::new();
        for p in 0..4 {
            let partition = pkhash_std::Table::open(&bytes).unwrap().partition(p).unwrap();
            let sections = built.footer.sections(&partition);
            for (name, (at, len)) in layout.sections().into_iter().zip(sections) {
                if len == 0 {
                    continue;
                }
                seen.push(name);
                let mut damaged = bytes.clone();
                damaged[(at + len / 2) as usize] ^= 1;
                let path = folder.write("damaged.pkh", damaged);
                for file in open_all(&path) {
                    match file.verify().unwrap_err() {
                        Error::Table {
                            path: Some(found),
                            source: CoreError::SectionChecksum { section, partition, offset, .. },
                        } => {
                            assert_eq!((&found, section, partition), (&path, name, p));
                            assert_eq!(offset, at);
                        }
                        error => panic!("{error}"),
                    }
                }
            }
        }
        seen.sort_by_key(|section| section.name());
        seen.dedup();
        let expected: &[Section] = match (layout, built.footer.unit) {
            (Layout::Inline, _) => &[Section::Control, Section::Filter, Section::Records],
            (Layout::Perfect, 0) => &[Section::Filter, Section::Pilots, Section::Records],
            (Layout::Perfect, _) => {
                &[Section::Filter, Section::OffsetLines, Section::Pilots, Section::Records]
            }
            _ => &[Section::Control, Section::Filter, Section::Records, Section::SlotWords],
        };
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_batch_with_too_few_answers_is_an_error_that_names_the_path() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    publish(&path, WriterOptions::default(), slices(&numbered("key", 0..3))).unwrap();
    for file in open_all(&path) {
        let error = file.get_batch(&[b"key-0", b"key-1"], &mut [None]).unwrap_err();
        assert!(matches!(
            error,
            Error::Table { source: CoreError::BatchLength { expected: 2, found: 1 }, .. }
        ));
        names_path(&error, &path);
        assert_eq!(file.get_batch::<&[u8]>(&[], &mut []).unwrap(), 0);
    }
}

/// A new table comes under the name of an old one: the readers of the old one stay right.
#[test]
fn a_file_that_is_replaced_under_its_readers() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let generations: Vec<Model> =
        [400, 3, 0, 2000, 1].into_iter().enumerate().map(|(i, n)| model(i as u64, n)).collect();
    let mut readers: Vec<(TableFile, &Model)> = Vec::new();
    for model in &generations {
        publish(&path, WriterOptions::default(), slices(model)).unwrap();
        readers.extend(open_all(&path).into_iter().map(|file| (file, model)));
    }
    // The name itself may go, too.
    fs::remove_file(&path).unwrap();
    let strangers = [b"no such key".to_vec()];
    for (file, model) in &readers {
        check(file, model, &strangers);
    }
}

/// Readers open what they find while a writer publishes again and again: always a whole table.
#[test]
fn opening_while_somebody_publishes() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let tables: Vec<(Model, Vec<u8>)> = (0..4)
        .map(|i| {
            let model = model(i, 50 << i);
            let bytes = build_bytes(WriterOptions::default(), slices(&model)).unwrap().1;
            (model, bytes)
        })
        .collect();
    let put = |bytes: &[u8]| {
        let mut publication = Publication::begin(&path).unwrap();
        assert_eq!((publication.path(), publication.folder()), (path.as_path(), folder.root()));
        std::io::Write::write_all(publication.file(), bytes).unwrap();
        publication.commit().unwrap();
    };
    put(&tables[0].1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for file in open_all(&path) {
                        let keys = file.footer().keys as usize;
                        let (model, bytes) =
                            tables.iter().find(|(model, _)| model.len() == keys).unwrap();
                        assert!(file.table().as_bytes() == bytes);
                        let (key, value) = model.first_key_value().unwrap();
                        let found = file.get(key).unwrap().and_then(Value::as_u64);
                        assert_eq!(found.map(int).as_ref(), Some(value));
                    }
                }
            });
        }
        for i in 0..40 {
            put(&tables[i % 4].1);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(folder.names(), ["table.pkh"]);
}

/// 64 threads on one table, singly and in batches.
#[test]
fn a_crowd_of_threads() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    for (options, model) in every_kind(9, 1200) {
        let keys: Vec<&Vec<u8>> = model.keys().collect();
        let values: Vec<&Vec<u8>> = model.values().collect();
        publish(&path, with(options), slices(&model)).unwrap();
        for file in open_all(&path) {
            std::thread::scope(|scope| {
                for thread in 0..64 {
                    let (file, keys, values) = (&file, &keys, &values);
                    scope.spawn(move || {
                        let mut rng = Rng(1000 + thread);
                        for _ in 0..50 {
                            let at = rng.below(keys.len());
                            let found = file.get(keys[at]).unwrap().and_then(Value::as_u64);
                            assert_eq!(found.map(int).as_ref(), Some(values[at]));
                            assert_eq!(file.get(&rng.bytes(18)).unwrap(), None);
                        }
                        let from = rng.below(keys.len() - 100);
                        let mut found = vec![None; 100];
                        let hits = file.get_batch(&keys[from..from + 100], &mut found).unwrap();
                        assert_eq!(hits, 100);
                        for (found, value) in found.iter().zip(&values[from..]) {
                            assert_eq!(found.unwrap().as_u64().map(int).as_ref(), Some(*value));
                        }
                    });
                }
            });
        }
    }
}

/// Every kernel of this machine, on tables with long probes and colliding hashes: the same answers,
/// errors and values.
#[test]
fn a_crowd_of_kernels() {
    let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
    assert_eq!(names[0], "scalar");
    assert!(names.contains(&Kernel::detect().name()));
    for name in Kernel::NAMES {
        assert_eq!(Kernel::by_name(name).is_some(), names.contains(&name));
    }
    assert!(Kernel::by_name("no such kernel").is_none());

    let folder = Folder::new();
    let mut rng = Rng(10);
    for (i, (options, model)) in every_kind(11, 400).into_iter().enumerate() {
        // So many keys of one hash as the layout takes.
        let perfect = options.layout == LayoutChoice::Fixed(Layout::Perfect);
        let hasher = Hasher::truncated(i as u64, if perfect { 9 } else { 5 });
        for options in [options, Options { hasher, filter_bits: Some(0), ..options }] {
            let (built, bytes) = build_bytes(with(options), slices(&model)).unwrap();
            assert_eq!(built.exceptions > 0, perfect && options.hasher == hasher);
            let mut asked: Vec<Vec<u8>> = model.keys().cloned().collect();
            asked.extend(model.keys().map(|key| rng.bytes(key.len())));
            rng.shuffle(&mut asked);
            // Once whole, then damaged.
            for round in 0..12 {
                let mut bytes = bytes.clone();
                for _ in 0..round {
                    let at = 64 + rng.below(bytes.len() / 2);
                    bytes[at] ^= 1 << rng.below(8);
                }
                let path = folder.write("table.pkh", &bytes);
                // Opening fails alike as well, if the damage has hit the directory.
                let answers = Kernel::available().map(|kernel| {
                    let file = match OpenOptions::new().kernel(kernel).open(&path) {
                        Ok(file) => file,
                        Err(error) => return vec![error.to_string()],
                    };
                    asked.iter().map(|key| format!("{:?}", file.get(key))).collect::<Vec<_>>()
                });
                let answers: Vec<_> = answers.collect();
                assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "round {round}");
                let batches = Kernel::available().map(|kernel| {
                    let Ok(file) = OpenOptions::new().kernel(kernel).open(&path) else {
                        return "no table".to_owned();
                    };
                    let mut found = vec![None; asked.len()];
                    let hits = file.get_batch(&asked, &mut found);
                    match hits {
                        Ok(hits) => format!("{hits} {found:?}"),
                        Err(error) => error.to_string(),
                    }
                });
                let batches: Vec<_> = batches.collect();
                assert!(batches.windows(2).all(|pair| pair[0] == pair[1]), "round {round}");
            }
        }
    }
}

/// A link to a table is opened as the table.
#[cfg(unix)]
#[test]
fn links() {
    let folder = Folder::new();
    let (path, link) = (folder.path("table.pkh"), folder.path("link.pkh"));
    let model = numbered("key", 0..30);
    publish(&path, WriterOptions::default(), slices(&model)).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for file in open_all(&link) {
        check(&file, &model, &[]);
    }
    // A link to nothing is named.
    fs::remove_file(&path).unwrap();
    open_fails(&link);
    // And one to a device is not replaced by a table.
    let device = folder.path("device.pkh");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    let error = publish(&device, WriterOptions::default(), slices(&model)).unwrap_err();
    assert!(matches!(error, Error::NotAFile { .. }));
    names_path(&error, &device);
    assert_eq!(Mode::default(), Mode::Heap);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_no_table() {
    let folder = Folder::new();
    let path = folder.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // Nobody writes to it: whoever opened it would wait for ever.
    for mode in modes() {
        let error = OpenOptions::new().mode(mode).open(&path).unwrap_err();
        assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    }
}
