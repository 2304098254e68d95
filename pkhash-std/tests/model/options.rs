//! Options, values and keys that do not fit, and writers that do not end.

use super::*;

/// Kinds of values, and what the writer must say to those that do not fit.
#[test]
fn values_that_do_not_fit() {
    let wrong_width = |result: pkhash_std::Result<()>| match result {
        Err(Error::Table { path: None, source: CoreError::ValueWidth { .. } }) => {}
        other => panic!("expected an error of the width, found {other:?}"),
    };
    let writer = |value| TableWriter::new(with(TableOptions::default().value(value))).unwrap();
    for width in 1..=8u8 {
        let most = u64::MAX >> (64 - 8 * u32::from(width));
        let mut writer = writer(ValueFormat::integer(width).unwrap());
        writer.add(b"most", most).unwrap();
        writer.add(b"least", 0).unwrap();
        if width < 8 {
            wrong_width(writer.add(b"more", most + 1));
        }
        wrong_width(writer.add_bytes(b"long", &[0; 9]));
        let mut bytes = Vec::new();
        let built = writer.write_to(&mut bytes).unwrap();
        assert_eq!((built.footer.keys(), built.footer.value().width()), (2, width));
        check_bytes(
            &bytes,
            &[(b"most".to_vec(), int(most)), (b"least".to_vec(), int(0))].into(),
            &[b"more".to_vec(), b"long".to_vec()],
        );
    }
    for width in [0, 1, 12, 64] {
        let mut writer = writer(ValueFormat::opaque(width).unwrap());
        wrong_width(writer.add(b"integer", 0));
        wrong_width(writer.add_bytes(b"long", &vec![0; usize::from(width) + 1]));
        if width > 0 {
            wrong_width(writer.add_bytes(b"short", &vec![0; usize::from(width) - 1]));
        }
    }
    // Of integers as narrow as can be the width is not known yet.
    let mut auto = TableWriter::new(WriterOptions::default()).unwrap();
    wrong_width(auto.add_bytes(b"key", &[0; 8]));
    // As narrow as can be.
    for (most, width) in [(0, 1), (255, 1), (256, 2), (1 << 24, 4), (u64::MAX, 8)] {
        let model: Model = [(b"a".to_vec(), int(0)), (b"b".to_vec(), int(most))].into();
        let (built, _) = build_bytes(WriterOptions::default(), slices(&model)).unwrap();
        assert_eq!(built.footer.value().width(), width, "{most}");
    }
}

#[test]
fn options_out_of_range() {
    let [inline, term_order] = [Layout::Inline, Layout::TermOrder].map(LayoutChoice::Fixed);
    let shaped = |keys_per_100_buckets, keys_per_1000_slots| {
        let shape = PerfectShape::default()
            .keys_per_100_buckets(keys_per_100_buckets)
            .keys_per_1000_slots(keys_per_1000_slots);
        with(TableOptions::default().shape(shape))
    };
    for options in [
        WriterOptions::default().memory(MIN_MEMORY - 1),
        WriterOptions::default().memory(0),
        with(TableOptions::default().filter_bits(65)),
        with(TableOptions::default().partition_bits(17)),
        with(TableOptions::default().partition_bits(11).layout(inline)),
        with(TableOptions::default().partition_bits(11).layout(term_order)),
        shaped(99, 990),
        shaped(801, 990),
        shaped(300, 499),
        shaped(300, 1001),
    ] {
        let folder = Folder::new();
        let error = TableWriter::create(folder.path("table.pkh"), options).unwrap_err();
        let refused = match error {
            Error::MemoryBudget { expected, found } => expected == MIN_MEMORY && found < expected,
            ref other => matches!(other, Error::Table { path: None, .. }),
        };
        assert!(refused, "{error}");
        assert!(folder.names().is_empty());
    }
}

/// More threads than there is work for, or than a machine has.
#[test]
fn far_too_many_threads() {
    let model = numbered("key", 0..100);
    for partition_bits in [None, Some(3)] {
        let table = TableOptions::default().partition_bits(partition_bits);
        let (_, bytes) = build_bytes(with(table), slices(&model)).unwrap();
        for threads in [100, 1_000_000] {
            let options = with(table).threads(threads);
            assert!(build_bytes(options, slices(&model)).unwrap().1 == bytes);
        }
    }
}

#[test]
fn published_is_what_is_written() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    // Large enough for several blocks of output.
    for (model, partition_bits) in [
        (numbered("key", 0..3), None),
        (numbered("key", 0..60_000), Some(7)),
        (many(6, 1000..1100, 5 << 20).into_iter().collect(), Some(2)),
    ] {
        let table = TableOptions::default().partition_bits(partition_bits);
        let (_, bytes) = build_bytes(with(table), slices(&model)).unwrap();
        let built = publish(&path, with(table), slices(&model)).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
        assert_eq!(built.footer.file_len(), bytes.len() as u64);
        assert_eq!(folder.names(), ["table.pkh"]);
        assert_eq!(TableFile::open(&path).unwrap().footer(), &built.footer);
    }
}

#[test]
fn an_unfinished_writer_leaves_nothing_and_replaces_nothing() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let old = numbered("old", 0..10);
    publish(&path, WriterOptions::default(), slices(&old)).unwrap();
    let before = folder.read("table.pkh");

    let mut dropped = TableWriter::create(&path, WriterOptions::default()).unwrap();
    assert_eq!(folder.names().len(), 2);
    dropped.add(b"key", 1).unwrap();
    assert_eq!(dropped.keys(), 1);
    drop(dropped);
    assert_eq!(folder.names(), ["table.pkh"]);

    let mut twice = TableWriter::create(&path, WriterOptions::default()).unwrap();
    twice.add(b"key", 1).unwrap();
    twice.add(b"key", 1).unwrap();
    assert!(matches!(twice.publish(), Err(Error::DuplicateKey { .. })));
    assert_eq!(folder.names(), ["table.pkh"]);

    // Whoever writes to the place of a table sees the error.
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = TableWriter::new(WriterOptions::default()).unwrap();
    writer.add(b"key", 1).unwrap();
    assert!(matches!(writer.write_to(&mut Full), Err(Error::Io { .. })));

    assert_eq!(folder.read("table.pkh"), before);
    for file in open_all(&path) {
        check(&file, &old, &[b"key".to_vec()]);
    }
}

#[test]
fn cancelled_and_watched() {
    let model = numbered("key", 0..1000);
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let last = Arc::new(AtomicU64::new(0));
    let seen = last.clone();
    let progress = Progress::default().reported_to(move |done, all| {
        // Partitions come in order; 16 of them.
        assert!(all == 16 && done > seen.swap(done, Ordering::Relaxed));
    });
    let table = TableOptions::default().partition_bits(4);
    let options = WriterOptions::default().table(table).progress(progress);
    publish(&path, options.clone(), slices(&model)).unwrap();
    assert_eq!(last.load(Ordering::Relaxed), 16);
    let before = folder.read("table.pkh");

    // Stopped at once, and in the middle.
    for stop_after in [0, 3] {
        let flag = Arc::new(AtomicBool::new(stop_after == 0));
        let set = flag.clone();
        let progress = Progress::default().cancelled_by(flag).reported_to(move |done, _| {
            set.store(done >= stop_after, Ordering::Relaxed);
        });
        let options = options.clone().threads(1).progress(progress);
        let result = publish(&path, options, slices(&model));
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        assert_eq!(folder.names(), ["table.pkh"]);
        assert_eq!(folder.read("table.pkh"), before);
    }
}
