//! Docs that are deleted.

use super::*;

#[test]
fn a_deleted_newest_match_goes_on_to_older_ones() {
    let tables = [table(&[("k", 0)]), table(&[("k", 1), ("j", 0)]), table(&[("k", 2)])];
    let segments: Vec<Segment> = tables.into_iter().map(Segment::new).collect();
    let mut set = SegmentSet::new(segments).unwrap();
    for (i, doc) in [0, 1, 2].into_iter().enumerate() {
        let found = set.get(b"k").unwrap().unwrap();
        assert_eq!((found.segment(), found.doc_id()), (i, Some(doc)));
        let live = LiveDocs::from_deleted(3, &[doc]).unwrap();
        set = set.with_live_docs(i, Some(Arc::new(live))).unwrap();
    }
    assert_eq!(set.get(b"k").unwrap(), None);
    assert!(set.get(b"j").unwrap().is_some());
    // All live again.
    set = set.with_live_docs(1, None).unwrap();
    assert_eq!(set.get(b"k").unwrap().map(Hit::segment), Some(1));
}

#[test]
fn live_docs_of_every_origin() {
    let mut rng = Rng(3);
    for docs in [0, 1, 2, 63, 64, 65, 127, 128, 1000] {
        for share in [1, 2, 10, 2000] {
            let deleted: Vec<u32> = (0..docs).filter(|_| rng.below(share) == 0).collect();
            let model: BTreeSet<u32> = (0..docs).filter(|doc| !deleted.contains(doc)).collect();
            let mut words = vec![0u64; docs.div_ceil(64) as usize];
            model.iter().for_each(|doc| words[*doc as usize / 64] |= 1 << (doc % 64));
            let mut repeated: Vec<u32> = deleted.iter().chain(&deleted).copied().collect();
            rng.shuffle(&mut repeated);
            let all = [
                LiveDocs::from_deleted(docs, &repeated).unwrap(),
                LiveDocs::from_words(docs, words).unwrap(),
                LiveDocs::from_deleted_bitmap(docs, &deleted.iter().copied().collect()).unwrap(),
                LiveDocs::from_live_bitmap(docs, &model.iter().copied().collect()).unwrap(),
                LiveDocs::all(docs).with_deleted(repeated.clone()).unwrap(),
            ];
            for live in &all {
                assert_eq!(live, &all[0]);
                assert_eq!((live.docs(), live.deleted()), (docs, deleted.len() as u32));
                for doc in (0..docs + 200).chain([u32::MAX]) {
                    assert_eq!(live.is_live(doc), model.contains(&doc), "{doc} of {docs}");
                }
                assert!(live.deleted_docs().eq(deleted.iter().copied()));
                assert!(live.deleted_since(&LiveDocs::all(docs)).eq(deleted.iter().copied()));
                assert_eq!(LiveDocs::all(docs).deleted_since(live).count(), 0);
            }
        }
    }
    let beyond = |result: Result<LiveDocs, Error>, found: u64, docs: u64| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::NoSuchDoc { found: f, docs: d } if (f, d) == (found, docs)),
            "{error}"
        );
        assert!(error.to_string().contains(&found.to_string()));
    };
    let bitmap: RoaringBitmap = [3u32, 64].into_iter().collect();
    beyond(LiveDocs::from_deleted(64, &[3, 64]), 64, 64);
    beyond(LiveDocs::from_deleted_bitmap(64, &bitmap), 64, 64);
    beyond(LiveDocs::from_live_bitmap(64, &bitmap), 64, 64);
    beyond(LiveDocs::from_live_bitmap(10, &[11u32].into_iter().collect()), 11, 10);
    beyond(LiveDocs::from_words(10, vec![1 << 10]), 10, 10);
    beyond(LiveDocs::from_deleted(0, &[0]), 0, 0);
    for words in [0, 1, 3] {
        let found = words as u64;
        assert!(matches!(
            LiveDocs::from_words(65, vec![0; words]),
            Err(Error::LiveDocs { expected: 2, found: f }) if f == found
        ));
    }
}

#[test]
fn docs_beyond_the_live_docs_are_deleted() {
    let live = Arc::new(LiveDocs::all(2));
    let segment = Segment::new(table(&[("a", 1), ("b", 2), ("c", 1 << 31)])).with_live_docs(live);
    let set = SegmentSet::new([segment]).unwrap();
    assert!(set.get(b"a").unwrap().is_some());
    let mut found = [true; 3];
    assert_eq!(set.get_batch(&["a", "b", "c"], &mut found).unwrap(), 1);
    assert_eq!(found, [true, false, false]);
    assert!(set.in_set(&["c", "b", "a"]).unwrap().iter().eq([1]));
    // A value that is no doc ID of 32 bits is that of no live doc.
    let wide: Pairs = vec![(b"w".to_vec(), (1u64 << 32).to_le_bytes().to_vec())];
    let wide = Segment::new(table_with(TableOptions::default(), &wide, OpenOptions::new()));
    let all = SegmentSet::new([wide.clone()]).unwrap();
    assert_eq!(all.get(b"w").unwrap().unwrap().value().as_u64(), Some(1 << 32));
    assert_eq!(all.get(b"w").unwrap().unwrap().global_doc_id(), None);
    let none = SegmentSet::new([wide.with_live_docs(Arc::new(LiveDocs::all(1)))]).unwrap();
    assert_eq!(none.get(b"w").unwrap(), None);
    assert!(none.in_set(&["w"]).unwrap().is_empty());
}

#[test]
fn what_is_no_doc_id_is_an_error_of_the_in_set_query() {
    let options = |value| TableOptions::default().value(value);
    let no_bytes: Pairs = vec![(b"k".to_vec(), Vec::new())];
    let wide: Pairs = vec![(b"k".to_vec(), u64::MAX.to_le_bytes().to_vec())];
    for (table, base) in [
        (table_with(options(ValueFormat::opaque(0).unwrap()), &no_bytes, OpenOptions::new()), 0),
        (table_with(options(ValueFormat::integer(8).unwrap()), &wide, OpenOptions::new()), 0),
        (table(&[("k", 1)]), u32::MAX),
    ] {
        let segments = [Segment::new(self::table(&[("j", 0)])), Segment::from(table)];
        let [first, second] = segments;
        let set = SegmentSet::new([first, second.with_doc_base(base)]).unwrap();
        let error = set.in_set(&["k", "j"]).unwrap_err();
        assert!(matches!(error, Error::NoDocId { segment: 1, .. }), "{error}");
        // Who does not ask for it is not told.
        assert_eq!(set.in_set(&["j"]).unwrap().len(), 1);
        assert!(set.get(b"k").unwrap().is_some());
        assert_eq!(set.get(b"k").unwrap().unwrap().global_doc_id(), None);
    }
}
