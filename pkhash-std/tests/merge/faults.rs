//! What cannot be merged, and what is left of it.

use super::*;

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
