//! Tables that outgrow the memory budget.

use super::*;

#[test]
fn a_table_that_outgrows_the_budget_is_spilled_and_is_the_same() {
    let folder = Folder::new();
    let fixed = |layout, partition_bits| {
        TableOptions::default().layout(layout).partition_bits(partition_bits)
    };
    let perfect = |partition_bits| fixed(Layout::Perfect, partition_bits);
    for (name, pairs, tables) in [
        (
            "short",
            many(1, 27..28, 4 << 20),
            // The last one splits what was spilled of a bin.
            vec![fixed(Layout::Inline, None), perfect(Some(12))],
        ),
        ("long", many(2, 900..1100, 9 << 20), vec![fixed(Layout::TermOrder, None), perfect(None)]),
        // Longer than what the writer sets aside for a bin, and than the whole budget.
        (
            "longest",
            {
                let mut pairs = many(3, 200_000..500_000, 14 << 20);
                pairs.push((vec![7; 9 << 20], int(5)));
                pairs.push((Vec::new(), int(6)));
                pairs
            },
            vec![TableOptions::default()],
        ),
    ] {
        let temp_dir = folder.path(name);
        std::fs::create_dir(&temp_dir).unwrap();
        let (whole, bytes) = build_bytes(with(tables[0]), of_slice(&pairs)).unwrap();
        assert_eq!(whole.spilled, 0, "{name}");
        let model: Model = pairs.iter().cloned().collect();
        let mut shuffled = pairs;
        for (i, table) in tables.into_iter().enumerate() {
            let threads = [4, 1][i];
            Rng(threads as u64).shuffle(&mut shuffled);
            let options =
                with(table).memory(MIN_MEMORY).threads(threads).temp_dir(temp_dir.clone());
            let (built, spilled) = build_bytes(options, of_slice(&shuffled)).unwrap();
            assert!(built.spilled > 0, "{name}: did not spill");
            let expected = match i {
                0 => bytes.clone(),
                _ => build_in_core(&table, of_slice(&shuffled)).unwrap(),
            };
            assert!(spilled == expected, "{name}, {i}: a spill changed the bytes");
            assert!(pkhash_testing::names(&temp_dir).is_empty());
            let path = folder.write("table.pkh", &spilled);
            check_large(&TableFile::open(path).unwrap(), &model);
        }
    }
}

#[test]
fn duplicates_across_spills() {
    let mut pairs = many(4, 1000..1010, 7 << 20);
    let n = pairs.len();
    // Of what was spilled first, of what is still in memory, and a key that comes three times.
    for (at, value) in [(0, 1_000_000), (n - 1, 1_000_001), (5, 1_000_002), (5, 1_000_003)] {
        pairs.push((pairs[at].0.clone(), int(value)));
    }
    for (layout, partition_bits) in [(Layout::TermOrder, None), (Layout::Perfect, Some(11))] {
        let layout = LayoutChoice::Fixed(layout);
        let table = TableOptions::default().layout(layout).partition_bits(partition_bits);
        let options = with(table).memory(MIN_MEMORY);
        assert!(check_duplicates(&pairs, &options, true) > 0, "did not spill");
    }
}

/// Of a bin that is split, the first and the last of equal keys are still told apart.
#[test]
fn duplicates_in_split_bins() {
    let mut rng = Rng(11);
    let pairs: Pairs =
        // Long enough that a bin has several chunks.
        (0..3000).map(|i| (format!("{:0300}", rng.below(1000)).into_bytes(), int(i))).collect();
    for bits in [11, 13] {
        let table = TableOptions::default().partition_bits(bits);
        check_duplicates(&pairs, &with(table), true);
    }
}

#[test]
fn a_folder_for_temporary_files_that_is_missing_is_named() {
    let folder = Folder::new();
    let missing = folder.path("missing");
    let options = WriterOptions::default().memory(MIN_MEMORY).temp_dir(missing.clone());
    let pairs = many(7, 5000..5001, 9 << 20);
    let error = build_bytes(options, of_slice(&pairs)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    names_path(&error, &missing);
}

#[test]
fn keys_that_could_not_be_spilled_are_not_forgotten() {
    let folder = Folder::new();
    let path = folder.path("t.pkh");
    let options = WriterOptions::default()
        .memory(MIN_MEMORY)
        .temp_dir(folder.path("missing"))
        .on_duplicate(OnDuplicate::First);
    let mut writer = TableWriter::create(&path, options).unwrap();
    let failed = (0u64..).find_map(|i| writer.add(&i.to_le_bytes(), i).err()).unwrap();
    assert!(matches!(failed, Error::Io { .. }), "{failed}");
    // Trying again does not help, nor does giving up on the rest.
    assert!(matches!(writer.add(b"key", 0), Err(Error::WriterFailed)));
    assert!(matches!(writer.publish(), Err(Error::WriterFailed)));
    assert!(folder.names().is_empty());

    let writer = TableWriter::new(WriterOptions::default()).unwrap();
    assert!(matches!(writer.publish(), Err(Error::NoPath)));
}
