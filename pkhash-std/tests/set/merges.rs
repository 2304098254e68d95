//! Merges of segments, and deletes that arrive meanwhile.

use super::*;

/// The new table, opened, and how many docs it has.
fn merge_live(inputs: &[Segment], maps: &[DocMap], docs: u32) -> (Segment, u32) {
    let inputs: Vec<MergeInput<'_>> = inputs
        .iter()
        .zip(maps)
        .map(|(input, docs)| MergeInput::new(input.table()).docs(docs.clone()))
        .collect();
    let options = MergeOptions::default().on_duplicate(OnDuplicate::First).threads(1);
    let folder = Folder::new();
    let mut bytes = Vec::new();
    merge(&inputs, &mut bytes, &options).unwrap();
    (Segment::new(TableFile::open(folder.write("merged.pkh", bytes)).unwrap()), docs)
}

#[test]
fn no_delete_is_lost_in_a_merge_and_none_returns() {
    let live =
        |docs, deleted: &[u32]| Some(Arc::new(LiveDocs::from_deleted(docs, deleted).unwrap()));
    let newest = Segment::new(table(&[("untouched", 0)]));
    let inputs = [
        Segment::new(table(&[("a", 0), ("b", 1), ("c", 2)])).with_live_docs(live(3, &[1])),
        Segment::new(table(&[("d", 0), ("b", 1), ("e", 2)])),
        Segment::new(table(&[("f", 0), ("a", 1), ("g", 2)])).with_live_docs(live(3, &[])),
    ];
    let start = SegmentSet::new([std::slice::from_ref(&newest), &inputs].concat()).unwrap();
    let (maps, docs) = compacting(&inputs, &[3, 3, 3]);
    assert_eq!(docs, 8);
    let (merged, docs) = merge_live(&inputs, &maps, docs);
    // No deleted doc was merged: `b` is the older one; `a` is the newer one.
    assert_eq!(merged.table().footer().keys(), 7);

    // Meanwhile a segment was added, and docs were deleted in all inputs.
    let added = Segment::new(table(&[("h", 0)]));
    let mut now = start.with([added.clone()], &[]).unwrap();
    for (segment, deleted) in [(2, &[1, 2][..]), (3, &[0]), (4, &[2])] {
        now = now.with_live_docs(segment, live(3, deleted)).unwrap();
    }
    let deleted = deleted_meanwhile(&inputs, &now, &maps, docs);
    assert_eq!(deleted.deleted(), 3);
    let merged = merged.with_live_docs(Arc::new(deleted));
    let end = now.merged(&inputs, Some(merged.clone())).unwrap();
    assert_eq!(end.len(), 3);
    assert!(
        [&added, &newest, &merged].into_iter().zip(end.segments()).all(|(a, b)| a.is_same_table(b))
    );
    let found = |set: &SegmentSet| -> String {
        "abcdefgh"
            .chars()
            .filter(|c| set.get(c.to_string().as_bytes()).unwrap().is_some())
            .collect()
    };
    // The old snapshots keep their view; the new one has all deletes.
    assert_eq!(found(&start), "abcdefg");
    assert_eq!(found(&now), "abefh");
    assert_eq!(found(&end), "abefh");
    for key in ["a", "b", "e", "f"] {
        let before = now.get(key.as_bytes()).unwrap().unwrap();
        let map = &maps[before.segment() - 2];
        let expected = map.get(before.doc_id().unwrap()).map(|doc| doc as u32);
        assert_eq!(end.get(key.as_bytes()).unwrap().unwrap().doc_id(), expected, "{key}");
    }
}

#[test]
fn doc_maps_that_close_gaps() {
    let live = LiveDocs::from_deleted(5, &[0, 3]).unwrap();
    let gone = pkhash_std::DELETED;
    let (map, next) = DocMap::compacting(Some(&live), 5, 10).unwrap();
    assert_eq!((map, next), (DocMap::Map(vec![gone, 10, 11, gone, 12]), 13));
    // Docs beyond the live docs are deleted; docs that the table has not are left out.
    let (map, next) = DocMap::compacting(Some(&live), 7, 0).unwrap();
    assert_eq!((map, next), (DocMap::Map(vec![gone, 0, 1, gone, 2, gone, gone]), 3));
    assert_eq!(DocMap::compacting(Some(&live), 2, 0).unwrap(), (DocMap::Map(vec![gone, 0]), 1));
    assert_eq!(DocMap::compacting(None, 7, 3).unwrap(), (DocMap::Offset(3), 10));
    let (map, _) = DocMap::compacting(Some(&live), 5, 0).unwrap();
    assert_eq!([0, 1, 4, 5].map(|doc| map.get(doc)), [None, Some(0), Some(2), None]);
    assert_eq!(DocMap::Keep.get(7), Some(7));
    assert_eq!(DocMap::Offset(5).get(7), Some(12));
    assert_eq!(DocMap::Offset(u64::MAX).get(7), None);
    // The last ID means "deleted".
    assert_eq!(DocMap::compacting(Some(&live), 5, gone - 3).unwrap().1, gone);
    assert_eq!(DocMap::compacting(None, 5, gone - 5).unwrap().1, gone);
    for error in [
        DocMap::compacting(Some(&live), 5, gone - 2).unwrap_err(),
        DocMap::compacting(None, 5, gone - 4).unwrap_err(),
    ] {
        assert!(matches!(error, Error::TooManyDocs { found: 0x1_0000_0000 }), "{error}");
    }
}
