//! Versioned tables.

use super::*;

#[test]
fn versions() {
    let new = Segment::new(versioned_table(&[("k", 0, 7), ("late", 1, 3)]));
    let old = Segment::new(versioned_table(&[("k", 0, 5), ("late", 1, 9), ("zero", 2, 0)]));
    let set = SegmentSet::new([new.clone(), old.clone()]).unwrap();
    let newer = |set: &SegmentSet, key: &str, than| {
        let found = set.get_newer_than(key.as_bytes(), than).unwrap();
        found.map(|found| (found.hit().segment(), found.version()))
    };
    assert_eq!(newer(&set, "k", 6), Some((0, 7)));
    assert_eq!(newer(&set, "k", 7), None);
    // A version that arrived out of order.
    assert_eq!(newer(&set, "late", 3), Some((1, 9)));
    assert_eq!(newer(&set, "late", 9), None);
    assert_eq!(newer(&set, "zero", 0), None);
    assert_eq!(newer(&set, "absent", 0), None);
    let highest = |key: &str| set.get_highest_version(key.as_bytes()).unwrap();
    assert_eq!(highest("zero").map(VersionedHit::version), Some(0));
    assert_eq!(highest("late").map(|found| found.hit().segment()), Some(1));

    // A deleted one does not count.
    let live = Arc::new(LiveDocs::from_deleted(2, &[0]).unwrap());
    let deleted = set.with_live_docs(0, Some(live)).unwrap();
    assert_eq!(newer(&deleted, "k", 4), Some((1, 5)));
    assert_eq!(newer(&deleted, "k", 5), None);

    // A segment is skipped by its greatest version: one that is too low hides what it has.
    let hidden = SegmentSet::new([new.clone().with_max_version(6), old.clone()]).unwrap();
    assert_eq!(newer(&hidden, "k", 6), None);
    assert_eq!(newer(&hidden, "k", 5), Some((0, 7)));
    assert_eq!(new.table().max_version().unwrap(), Some(7));
    assert_eq!(versioned_table(&[]).max_version().unwrap(), None);

    // Values that have no version.
    let other = Segment::new(table(&[("k", 1)]));
    for error in [
        SegmentSet::new([new, other.clone()]).unwrap().get_newer_than(b"k", 9).unwrap_err(),
        other.table().max_version().unwrap_err(),
    ] {
        let Error::Table { path: Some(_), source } = error else { panic!("{error}") };
        assert_eq!(source, CoreError::ValueWidth { expected: 12, found: 1 });
    }
}

#[test]
fn the_highest_version_wins() {
    let tables = [
        versioned_table(&[("tie", 10, 4), ("old", 11, 9), ("new", 12, 1), ("alone", 13, 0)]),
        versioned_table(&[("tie", 20, 4), ("old", 21, 3), ("new", 22, u64::MAX)]),
        versioned_table(&[("tie", 30, 2), ("new", 32, 2)]),
    ];
    let expected = [("tie", 10, 4u64), ("old", 11, 9), ("new", 22, u64::MAX), ("alone", 13, 0)];
    let on_duplicate = OnDuplicate::HighestVersion;
    let is_right = |bytes: Vec<u8>, how: &str| {
        let folder = Folder::new();
        let table = TableFile::open(folder.write("merged.pkh", bytes)).unwrap();
        assert_eq!(table.footer().keys(), expected.len() as u64);
        for (key, doc, version) in expected {
            let value = table.get(key.as_bytes()).unwrap().unwrap();
            assert_eq!(value.as_bytes(), versioned_value(doc, version), "{how}: {key}");
        }
    };
    for layout in [Layout::TermOrder, Layout::Perfect] {
        let inputs: Vec<MergeInput<'_>> = tables.iter().map(MergeInput::new).collect();
        let layout = LayoutChoice::Fixed(layout);
        let options = MergeOptions::default().on_duplicate(on_duplicate).layout(layout).threads(2);
        let mut bytes = Vec::new();
        let built = merge(&inputs, &mut bytes, &options).unwrap();
        assert_eq!(built.duplicates, 5);
        is_right(bytes, "merge");
    }
    // The merge gives what the set gives before.
    let set = SegmentSet::new(tables.map(Segment::new)).unwrap();
    for (key, doc, version) in expected {
        let found = set.get_highest_version(key.as_bytes()).unwrap().unwrap();
        assert_eq!((found.hit().doc_id(), found.version()), (Some(doc), version), "{key}");
    }

    let pairs: Vec<(&str, [u8; 12])> = set
        .segments()
        .iter()
        .flat_map(|segment| {
            let table = segment.table().table();
            table.iter().map(|record| {
                let (key, value) = record.unwrap();
                (std::str::from_utf8(key).unwrap(), value.as_bytes().try_into().unwrap())
            })
        })
        .collect();
    let keys: Vec<&str> = pairs.iter().map(|pair| pair.0).collect();
    let table = TableOptions::default().value(versioned());
    let options = WriterOptions::default().table(table).on_duplicate(on_duplicate);
    let mut bytes = Vec::new();
    build_slice(&keys, |i| pairs[i].1, &mut bytes, &options).unwrap();
    is_right(bytes, "build_slice");
    let owned: Pairs =
        pairs.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.to_vec())).collect();
    is_right(build_bytes(options.clone(), of_slice(&owned)).unwrap().1, "writer");

    // Values of another width have no version.
    for value in [ValueFormat::opaque(13).unwrap(), ValueFormat::integer(8).unwrap()] {
        let table = TableOptions::default().value(value);
        let options = options.clone().table(table);
        let error = build_bytes(options, of_slice(&Vec::new())).unwrap_err();
        let Error::Table { path: None, source } = error else { panic!("{error}") };
        let found = value.width().into();
        assert_eq!(source, CoreError::ValueWidth { expected: 12, found });
    }
}
