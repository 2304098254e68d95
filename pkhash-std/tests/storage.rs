//! Tables in files, however they are held: the same answers in every mode, with every advice and
//! kernel; files that are no tables; files that are replaced; many threads on one table.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pkhash_core::format::{HEAD_LEN, TAIL_LEN};
use pkhash_core::{Error as CoreError, Lookup, Section};
use pkhash_std::{
    Advice, AnyKernel, Error, Footer, Hit, KeyHasher, Layout, LayoutChoice, OpenOptions,
    Publication, Segment, SegmentSet, Table, TableFile, TableOptions, Value, WriterOptions,
};
use pkhash_testing::{
    Folder, Model, Rng, build_bytes, check, int, modes, names_path, numbered, open_all, publish,
    slices,
};

fn with(table: TableOptions) -> WriterOptions {
    WriterOptions::default().table(table)
}

/// A table of every kind, and its keys: of one length but for term-order and the last one.
fn every_kind(seed: u64, keys: usize) -> [(TableOptions, Model); 5] {
    let options =
        |layout, packed| TableOptions::default().layout(layout).partition_bits(2).packed(packed);
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
        (footer.layout(), footer.records_per_line(), footer.unit())
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
                    for kernel in AnyKernel::available() {
                        let options = OpenOptions::new().advice(advice).preload(preload);
                        let file = mode.with(options.kernel(kernel)).open(&path).unwrap();
                        assert_eq!(file.kernel().name(), kernel.name());
                        assert_eq!((file.path(), file.name()), (Some(&*path), &*path));
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
    assert!(short.iter().all(|file| file.kernel().name() == AnyKernel::detect().name()));
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
            let options = OpenOptions::new().preload(true).advice(Advice::Random);
            let error = mode.with(options).open(path).unwrap_err();
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
        ("a head alone", pkhash_core::format::head().to_vec()),
        ("a head and zeros", [&pkhash_core::format::head()[..], &[0; 5000]].concat()),
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
/// A file much larger than memory that is no table, or one that was cut or damaged at its ends, is refused
/// before it is read.
#[test]
fn a_huge_file_that_is_no_table_is_not_read() {
    const LEN: u64 = 1 << 42;
    let folder = Folder::new();
    let (_, table) = build_bytes(with(TableOptions::default()), slices(&model(1, 10))).unwrap();
    let tail = &table[table.len() - TAIL_LEN..];
    let mut old_tail = tail.to_vec();
    old_tail[8] ^= 0x40;
    let names = ["zeros", "head alone", "another version", "tail alone", "damaged tail"];
    for name in names {
        let path = folder.write(name, []);
        let file = fs::File::options().write(true).open(&path).unwrap();
        if file.set_len(LEN).is_err() {
            println!("no sparse files of this length here");
            return;
        }
        let put = |at: u64, bytes: &[u8]| {
            let mut file = &file;
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(bytes).unwrap();
        };
        match name {
            "head alone" => put(0, &table[..HEAD_LEN]),
            "another version" => put(0, &[&table[..8], &[99][..]].concat()),
            "tail alone" => put(LEN - TAIL_LEN as u64, tail),
            "damaged tail" => {
                put(0, &table[..HEAD_LEN]);
                put(LEN - TAIL_LEN as u64, &old_tail);
            }
            _ => {}
        }
        for mode in modes() {
            let error = mode.open(&path).unwrap_err();
            names_path(&error, &path);
            let Error::Table { source, .. } = &error else { panic!("{name}: {error}") };
            let as_expected = match name {
                "zeros" | "tail alone" => matches!(source, CoreError::BadMagic { offset: 0, .. }),
                "head alone" => matches!(source, CoreError::NoTail { .. }),
                "another version" => matches!(source, CoreError::UnsupportedVersion { .. }),
                _ => !matches!(source, CoreError::TooShort { .. }),
            };
            assert!(as_expected, "{name}: {error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

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
        let options = options.filter_bits(10);
        let (built, bytes) = build_bytes(with(options), slices(&model)).unwrap();
        let layout = built.footer.layout();
        let mut seen = Vec::new();
        for p in 0..4 {
            let partition = Table::open(&bytes).unwrap().partition(p).unwrap();
            let sections = built.footer.sections(&partition);
            for (name, (at, len)) in layout.sections().zip(sections) {
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
        let expected: &[Section] = match (layout, built.footer.unit()) {
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
fn a_batch_with_too_few_answers_is_no_fault_of_the_table() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    publish(&path, WriterOptions::default(), slices(&numbered("key", 0..3))).unwrap();
    for file in open_all(&path) {
        let error = file.get_batch([b"key-0", b"key-1"], &mut [false]).unwrap_err();
        assert!(matches!(error, Error::BatchLength { expected: 2, found: 1 }));
        // The caller's fault, and not that of the table.
        assert!(!error.to_string().contains("table.pkh"), "{error}");
        assert_eq!(file.get_batch([b"key-0"; 0], &mut [false; 0]).unwrap(), 0);
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

/// The same of sets: a snapshot keeps the tables that it was opened with.
#[test]
fn files_that_are_replaced_under_a_set() {
    let folder = Folder::new();
    let paths = ["a.pkh", "b.pkh"].map(|name| folder.path(name));
    // Of each generation, the newer table has half of the older one's keys, with other values.
    let generations: Vec<[Model; 2]> = (0..4u64)
        .map(|g| {
            let old = model(20 + g, 300);
            let newer = old.keys().step_by(2).map(|key| (key.clone(), int(1000 + g))).collect();
            [newer, old]
        })
        .collect();
    let mut sets = Vec::new();
    for tables in &generations {
        for (path, model) in paths.iter().zip(tables) {
            publish(path, WriterOptions::default(), slices(model)).unwrap();
        }
        for mode in modes() {
            let segments = paths.each_ref().map(|path| Segment::from(mode.open(path).unwrap()));
            sets.push((SegmentSet::new(segments).unwrap(), tables));
        }
    }
    for path in &paths {
        fs::remove_file(path).unwrap();
    }
    for (set, tables) in &sets {
        let strangers: Vec<_> = generations.iter().flat_map(|other| other[1].keys()).collect();
        let mut answers = vec![None; strangers.len()];
        set.get_batch(&strangers, &mut answers).unwrap();
        for (key, batched) in strangers.iter().zip(answers) {
            let expected = tables.iter().position(|model| model.contains_key(*key));
            let value = expected.map(|segment| tables[segment][*key].clone());
            for answer in [set.get(key).unwrap(), batched] {
                assert_eq!(answer.map(Hit::segment), expected);
                let found = answer.and_then(|answer| answer.value().as_u64()).map(int);
                assert_eq!(found, value);
            }
        }
        for segment in set.segments() {
            segment.table().verify().unwrap();
        }
    }
}

/// And of ordered companions, the tables of which are replaced with them.
#[cfg(feature = "ordered")]
#[test]
fn companions_that_are_replaced_under_their_readers() {
    use pkhash_std::{CompanionOptions, OrderedOptions, build_companion, companion_path};
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let generations: Vec<Model> = (0..4u64).map(|g| model(30 + g, 200 >> g)).collect();
    let mut readers = Vec::new();
    for model in &generations {
        publish(&path, WriterOptions::default(), slices(model)).unwrap();
        let table = TableFile::open(&path).unwrap();
        build_companion(&table, companion_path(&path), &CompanionOptions::default()).unwrap();
        for mode in modes() {
            for trusted in [false, true] {
                let options = OrderedOptions::new().trusted(trusted);
                let terms = mode.companion(options, companion_path(&path), table.table()).unwrap();
                readers.push((terms, model));
            }
        }
    }
    fs::remove_file(companion_path(&path)).unwrap();
    fs::remove_file(&path).unwrap();
    for (terms, model) in &readers {
        let found: Vec<_> = terms.prefix(b"").map(|(key, doc)| (key, int(doc))).collect();
        let expected: Vec<_> = model.iter().map(|(key, doc)| (key.clone(), doc.clone())).collect();
        assert!(found == expected);
    }
}

/// Every length at which something ends or begins in a table, and those beside it.
fn boundaries(bytes: &[u8]) -> Vec<u64> {
    let table = Table::open(bytes).unwrap();
    let footer = *table.footer();
    let len = bytes.len() as u64;
    let mut ends = vec![0, 64, len - footer.footer_len() as u64, len - 128, len - 1];
    for p in 0..footer.partitions() {
        for (at, len) in footer.sections(&table.partition(p).unwrap()) {
            ends.extend([at, at + len / 2, at + len]);
        }
    }
    let mut near: Vec<u64> = ends.iter().flat_map(|end| [end.saturating_sub(1), *end]).collect();
    near.extend(ends.iter().map(|end| end + 1));
    near.retain(|end| *end < len);
    near.sort_unstable();
    near.dedup();
    near
}

/// A table in memory is not touched by what becomes of its file.
#[test]
fn files_that_are_cut_under_a_reader_in_memory() {
    let folder = Folder::new();
    for (options, model) in every_kind(12, 60) {
        let (_, bytes) = build_bytes(with(options), slices(&model)).unwrap();
        let ends = boundaries(&bytes);
        for (i, end) in ends.into_iter().enumerate() {
            let path = folder.write("table.pkh", &bytes);
            let file = TableFile::open(&path).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_len(end).unwrap();
            assert!(file.table().as_bytes() == bytes);
            if i % 16 == 0 {
                check(&file, &model, &[]);
            }
            // What is opened now is no table.
            for mode in modes() {
                let error = mode.open(&path).unwrap_err();
                assert!(matches!(error, Error::Table { .. }), "{end}: {error}");
                names_path(&error, &path);
            }
        }
    }
}

/// A table that is read piece by piece, and cut after its footer was parsed: each lookup is right, or is an
/// error of the read that it needed.
#[cfg(unix)]
#[test]
fn files_that_are_cut_under_a_reader_of_pieces() {
    use std::io;
    use std::os::unix::fs::FileExt;

    /// `pread` that returns less than was asked for, until there is no more.
    fn read(file: &fs::File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            let piece = (len - done).div_ceil(2);
            let n = file.read_at(&mut bytes[done..done + piece], offset + done as u64)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += n;
        }
        Ok(bytes)
    }

    let folder = Folder::new();
    for (options, model) in every_kind(13, 60) {
        // A filter, too, so that every stage is there.
        let options = options.filter_bits(10);
        let (_, bytes) = build_bytes(with(options), slices(&model)).unwrap();
        let strangers: Vec<Vec<u8>> = model.keys().map(|key| [key, &b"-"[..]].concat()).collect();
        let (mut cut, mut whole) = (0, 0);
        for end in boundaries(&bytes) {
            let path = folder.write("table.pkh", &bytes);
            let file = fs::File::open(&path).unwrap();
            let len = file.metadata().unwrap().len();
            // The tail says how long the footer is.
            let mut footer_bytes = read(&file, len - 128, 128).unwrap();
            if let Err(CoreError::TooShort { expected, .. }) = Footer::parse(&footer_bytes, len) {
                footer_bytes = read(&file, len - expected, expected as usize).unwrap();
            }
            let footer = Footer::parse(&footer_bytes, len).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_len(end).unwrap();
            for key in model.keys().chain(&strangers) {
                let mut lookup = Lookup::new(&footer, &footer_bytes, key).unwrap();
                let mut found = None;
                let failed = loop {
                    let Some(want) = lookup.want() else { break None };
                    match read(&file, want.offset, want.len) {
                        Ok(bytes) => {
                            let value = lookup.supply(&bytes).unwrap();
                            found = value.and_then(Value::as_u64).or(found);
                        }
                        Err(error) => {
                            assert!(want.offset + want.len as u64 > end, "{error}");
                            // What was read of it is not taken for the whole.
                            let rest = end.saturating_sub(want.offset) as usize;
                            let rest = read(&file, want.offset, rest).unwrap();
                            assert!(matches!(
                                lookup.supply(&rest),
                                Err(CoreError::WrongLength { .. })
                            ));
                            break Some(error);
                        }
                    }
                };
                match failed {
                    Some(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                        cut += 1;
                    }
                    None => {
                        assert_eq!(found.map(int).as_ref(), model.get(key));
                        whole += 1;
                    }
                }
            }
            // Whoever comes now finds no footer.
            let tail = read(&file, end.saturating_sub(128), end.min(128) as usize).unwrap();
            assert!(Footer::parse(&tail, end).is_err());
            assert!(Footer::parse(&footer_bytes, end).is_err());
        }
        assert!(cut > 100 && whole > 100, "{cut} {whole}");
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
        Write::write_all(publication.file(), bytes).unwrap();
        publication.commit().unwrap();
    };
    put(&tables[0].1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for file in open_all(&path) {
                        let keys = file.footer().keys() as usize;
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
                        let mut found = vec![None::<Value<'_>>; 100];
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
    let names: Vec<_> = AnyKernel::available().map(AnyKernel::name).collect();
    assert_eq!(names[0], "scalar");
    assert!(names.contains(&AnyKernel::detect().name()));
    for name in AnyKernel::NAMES {
        assert_eq!(AnyKernel::by_name(name).is_some(), names.contains(name));
    }
    assert!(AnyKernel::by_name("no such kernel").is_none());

    let folder = Folder::new();
    let mut rng = Rng(10);
    for (i, (options, model)) in every_kind(11, 400).into_iter().enumerate() {
        // So many keys of one hash as the layout takes.
        let perfect = options.layout == LayoutChoice::Fixed(Layout::Perfect);
        let hasher = KeyHasher::truncated(i as u64, if perfect { 9 } else { 5 });
        for options in [options, options.hasher(hasher).filter_bits(0)] {
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
                let answers = AnyKernel::available().map(|kernel| {
                    let file = match OpenOptions::new().kernel(kernel).open(&path) {
                        Ok(file) => file,
                        Err(error) => return vec![error.to_string()],
                    };
                    asked.iter().map(|key| format!("{:?}", file.get(key))).collect::<Vec<_>>()
                });
                let answers: Vec<_> = answers.collect();
                assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "round {round}");
                let batches = AnyKernel::available().map(|kernel| {
                    let Ok(file) = OpenOptions::new().kernel(kernel).open(&path) else {
                        return "no table".to_owned();
                    };
                    let mut found = vec![None::<Value<'_>>; asked.len()];
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
        let error = mode.open(&path).unwrap_err();
        assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    }
}
