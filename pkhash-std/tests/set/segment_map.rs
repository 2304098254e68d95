//! Sets with a segment map, and batches over many segments.

use super::*;

/// Chunk after chunk, of sets with one seed and with three.
#[test]
fn batches_of_many_chunks() {
    let mut rng = Rng(7);
    let pool: Vec<Vec<u8>> = (0..4000u32).map(|i| i.to_be_bytes().repeat(4)).collect();
    for _ in 0..3 {
        let models = models(&pool, 6, true, &mut rng);
        let segments: Vec<Segment> = models.iter().map(|model| model.segment.clone()).collect();
        let set = SegmentSet::new(segments).unwrap();
        check(&set, &models, &pool, true, &mut rng);
        for mapped in mapped(&set, &mut rng) {
            check(&mapped, &models, &pool, true, &mut rng);
        }
    }
}

/// Perfect tables of one seed, whose asks are staged, as no set of [`models`] is but by chance; with one key
/// in all segments.
#[test]
fn segment_maps_of_perfect_tables() {
    let mut rng = Rng(8);
    let one_tag: Vec<Vec<u8>> = (0..u64::MAX)
        .map(|i| i.to_le_bytes().to_vec())
        .filter(|key| pkhash_core::hash::tag(KeyHasher::new(0).hash(key)) == 0xbeef)
        .take(100)
        .collect();
    let kinds = [
        ((16, 17), 15, None),
        ((16, 17), 3, None),
        ((1, 40), 15, None),
        ((8, 9), 300, None),
        // Lines name segments of other keys, that have the key, too.
        ((8, 9), 2, Some(&one_tag)),
        ((8, 9), 15, Some(&one_tag)),
        ((8, 9), 300, Some(&one_tag)),
    ];
    for (lens, segments, pool) in kinds {
        let random =
            || -> BTreeSet<Vec<u8>> { random_keys(&mut Rng(lens.1 as u64), 6000, lens).collect() };
        let pool = pool.cloned().unwrap_or_else(|| random().into_iter().collect());
        let everywhere = vec![7; lens.0];
        let models: Vec<Model> = (0..segments)
            .map(|i| {
                let mut keys: BTreeSet<Vec<u8>> =
                    pool.iter().filter(|_| rng.below(segments) < 2).cloned().collect();
                keys.insert(everywhere.clone());
                // So that all tables have offset lines if one has.
                keys.extend([pool[0].clone(), pool[1].clone(), pool[2].clone()]);
                let docs: BTreeMap<Vec<u8>, (u32, u64)> =
                    keys.into_iter().zip(0..).map(|(key, doc)| (key, (doc, 0))).collect();
                let options = TableOptions::default()
                    .layout(Layout::Perfect)
                    .filter_bits([0, 10][rng.below(2)])
                    .partition_bits(rng.below(4) as u8);
                let live = (i % 3 > 0).then(|| {
                    (0..docs.len() as u32).filter(|_| rng.below(3) > 0).collect::<BTreeSet<u32>>()
                });
                Model::new(Parts {
                    docs,
                    versions: false,
                    options,
                    open: OpenOptions::new().into(),
                    doc_base: i as u32 * 10_000,
                    slack: None,
                    live,
                })
                .unwrap()
            })
            .collect();
        let set = models.iter().map(|model| model.segment.clone()).collect::<Vec<_>>();
        let set = SegmentSet::new(set).unwrap();
        let mut asked = pool;
        asked.push(everywhere);
        for mapped in mapped(&set, &mut rng) {
            check(&mapped, &models, &asked, false, &mut rng);
        }
        // Few keys for many segments.
        let all = set.with_segment_map(&SegmentMapOptions::default()).unwrap();
        for keys in asked.chunks(7).take(200) {
            let mut out = vec![None::<Hit<'_>>; keys.len()];
            all.get_batch(keys, &mut out).unwrap();
            for (key, found) in keys.iter().zip(out) {
                let seen = found.map(|found| (found.segment(), found.doc_id().unwrap(), 0));
                assert_eq!(seen, newest(&models, key));
            }
        }
    }
}

#[test]
fn a_segment_map_goes_from_snapshot_to_snapshot() {
    let names: Vec<String> = (0..6).map(|i| format!("only-{i}")).collect();
    let segments: Vec<Segment> =
        (0..6).map(|i| Segment::new(table(&[("all", i), (&names[i as usize], 9)]))).collect();
    let set = SegmentSet::new(&segments[2..5]).unwrap();
    let plain =
        |set: &SegmentSet| set.segment_map().map(|map| (map.mapped, map.unmapped, map.stale));
    assert_eq!(plain(&set), None);
    let set = set.with_segment_map(&SegmentMapOptions::default()).unwrap();
    assert_eq!(plain(&set), Some((3, 0, 0)));
    let info = set.segment_map().unwrap();
    assert!(info.bytes >= 64 && info.entries == 6, "{info:?}");

    // What each snapshot answers for each name; and `all`, which the newest has.
    let check = |set: &SegmentSet, present: &[usize]| {
        assert_eq!(set.len(), present.len());
        for (i, name) in names.iter().enumerate() {
            let found = set.get(name.as_bytes()).unwrap().map(Hit::segment);
            assert_eq!(found, present.iter().position(|p| *p == i), "{name} of {present:?}");
        }
        let newest = set.get(b"all").unwrap().and_then(Hit::doc_id);
        assert_eq!(newest, present.first().map(|p| *p as u32));
    };
    check(&set, &[2, 3, 4]);
    // Newer and older segments, one gone.
    let later = set.with([segments[0].clone(), segments[1].clone()], &segments[3..4]).unwrap();
    assert_eq!(plain(&later), Some((2, 2, 2)));
    check(&later, &[0, 1, 2, 4]);
    // A merge in the middle.
    let merged = later.merged(&segments[2..3], Some(segments[5].clone())).unwrap();
    assert_eq!(plain(&merged), Some((1, 3, 4)));
    check(&merged, &[0, 1, 5, 4]);
    // Live docs change no numbers.
    let live = Arc::new(LiveDocs::from_deleted(10, &[9]).unwrap());
    let dead = merged.with_live_docs(3, Some(live)).unwrap();
    assert_eq!(plain(&dead), plain(&merged));
    assert_eq!(dead.get(names[4].as_bytes()).unwrap(), None);
    assert!(merged.get(names[4].as_bytes()).unwrap().is_some());
    // The last one of the map gone, the map is gone, too.
    let without = merged.with([], &segments[4..5]).unwrap();
    assert_eq!(plain(&without), None);
    check(&without, &[0, 1, 5]);
    // Another map.
    let again = merged.with_segment_map(&SegmentMapOptions::default()).unwrap();
    assert_eq!(plain(&again), Some((4, 0, 0)));
    check(&again, &[0, 1, 5, 4]);
    check(&again.without_segment_map(), &[0, 1, 5, 4]);
    assert_eq!(plain(&again.without_segment_map()), None);
    // Old readers go on.
    check(&set, &[2, 3, 4]);
}

/// Each new segment is taken up by a small map, and there are never many of them, nor is much read again.
#[test]
fn a_segment_map_grows_with_its_set() {
    let read = Arc::new(AtomicU64::new(0));
    let options = || {
        let (read, last) = (Arc::clone(&read), AtomicU64::new(0));
        let progress = Progress::default().reported_to(move |done, _| {
            let last = last.swap(done, Ordering::Relaxed);
            read.fetch_add(done.saturating_sub(last), Ordering::Relaxed);
        });
        SegmentMapOptions::default().threads(1).progress(progress)
    };
    let mut set = SegmentSet::default();
    let (mut most, n, keys) = (0, 81, 10u64);
    for i in 0..n {
        let names: Vec<String> = (0..keys).map(|key| format!("{i}-{key}")).collect();
        let pairs: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), i)).collect();
        set = set.with([Segment::new(table(&pairs))], &[]).unwrap();
        set = set.with_more_segment_map(&options()).unwrap();
        let info = set.segment_map().unwrap();
        assert_eq!((info.mapped, info.unmapped, info.stale), (i as usize + 1, 0, 0));
        assert_eq!(info.entries, set.keys());
        most = most.max(info.maps);
        assert_eq!(set.get(b"0-3").unwrap().map(Hit::segment), Some(i as usize));
    }
    // Each is more than twice as large as all before it.
    assert!((2..=5).contains(&most), "{most} maps");
    let (read, all) = (read.load(Ordering::Relaxed), u64::from(n) * keys);
    assert!(read <= 8 * all, "{read} keys were read of {all}");
    // What is gone is stale until it is most of its map.
    let gone: Vec<Segment> = set.segments()[60..].to_vec();
    let fewer = set.with([], &gone).unwrap();
    let kept = fewer.with_more_segment_map(&options()).unwrap();
    assert_eq!(kept.segment_map().unwrap().stale, 210);
    let gone: Vec<Segment> = set.segments()[10..].to_vec();
    let few = set.with([], &gone).unwrap().with_more_segment_map(&options()).unwrap();
    let info = few.segment_map().unwrap();
    assert_eq!((info.mapped, info.stale), (10, 0), "{info:?}");
}

/// The map does not depend on threads and memory; it tells of progress, and can be cancelled.
#[test]
fn building_a_segment_map() {
    let mut rng = Rng(9);
    let keys: Vec<String> = (0..700_000).map(|_| format!("{:016x}", rng.next())).collect();
    let sets: Vec<Segment> = keys
        .chunks(250_000)
        .zip([0u8, 3, 5])
        .map(|(keys, bits)| {
            let pairs: Pairs = keys
                .iter()
                .zip(0u64..)
                .map(|(key, doc)| (key.clone().into_bytes(), doc.to_le_bytes().to_vec()))
                .collect();
            let options = TableOptions::default().partition_bits(bits);
            Segment::new(table_with(options, &pairs, OpenOptions::new()))
        })
        .collect();
    let set = SegmentSet::new(sets).unwrap();
    let mut infos = Vec::new();
    for threads in [1, 3] {
        for memory in [0, 1 << 20, usize::MAX] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&seen);
            let progress = Progress::default()
                .reported_to(move |done, all| sink.lock().unwrap().push((done, all)));
            let options = SegmentMapOptions::default()
                .threads(threads)
                .memory(memory)
                .progress(progress)
                .seed(7);
            let mapped = set.with_segment_map(&options).unwrap();
            let seen = seen.lock().unwrap();
            assert!(seen.contains(&(700_000, 700_000)));
            assert!(seen.iter().all(|(done, all)| done <= all && *all == 700_000));
            let info = mapped.segment_map().unwrap();
            // At most 4 bytes for each key.
            assert!(info.bytes <= 4 * 700_000, "{info:?}");
            infos.push(info);
            let asked = &keys[240_000..260_000];
            let mut out = vec![None::<Hit<'_>>; asked.len()];
            assert_eq!(mapped.get_batch(asked, &mut out).unwrap(), asked.len());
            for (i, found) in out.into_iter().enumerate() {
                let at = 240_000 + i;
                let found = found.unwrap();
                assert_eq!(found.segment(), at / 250_000);
                assert_eq!(found.doc_id(), Some((at % 250_000) as u32));
            }
        }
    }
    assert!(infos.iter().all(|info| *info == infos[0]), "{infos:?}");
    let cancel = Arc::new(AtomicBool::new(true));
    let progress = Progress::default().cancelled_by(cancel);
    let cancelled = set.with_segment_map(&SegmentMapOptions::default().progress(progress));
    assert!(matches!(cancelled, Err(Error::Cancelled)));
    // In the middle of a partition.
    let cancel = Arc::new(AtomicBool::new(false));
    let most = Arc::new(AtomicU64::new(0));
    let (flag, sink) = (Arc::clone(&cancel), Arc::clone(&most));
    let progress = Progress::default().cancelled_by(cancel).reported_to(move |done, _| {
        sink.fetch_max(done, Ordering::Relaxed);
        flag.store(done > 0, Ordering::Relaxed);
    });
    let one = SegmentSet::new(&set.segments()[..1]).unwrap();
    let options = SegmentMapOptions::default().progress(progress).threads(1);
    assert!(matches!(one.with_segment_map(&options), Err(Error::Cancelled)));
    let most = most.load(Ordering::Relaxed);
    assert!((1..100_000).contains(&most), "cancelled after {most} of 250,000 keys");
}

/// Keys of which more have one hash than lines of a map are for: every segment is asked for them, in every kind of
/// query, and the answers are those of the models.
#[test]
fn segment_maps_of_keys_that_crowd() {
    let mut rng = Rng(10);
    for (layout, segments, keys) in
        [(Layout::Perfect, 250, 60), (Layout::Perfect, 300, 40), (Layout::TermOrder, 40, 350)]
    {
        let hasher = KeyHasher::truncated(rng.next(), 3);
        let pool: Vec<Vec<u8>> = (0..keys as u64).map(|i| i.to_le_bytes().to_vec()).collect();
        let mut of_hash: BTreeMap<u64, usize> = BTreeMap::new();
        for key in &pool {
            *of_hash.entry(hasher.hash(key)).or_default() += 1;
        }
        // More entries than 65 lines hold, of some hashes at least.
        let line = if segments <= 256 { 20 } else { 15 };
        assert!(of_hash.values().any(|n| n * segments * 9 / 10 > 65 * line));
        let versions = layout == Layout::TermOrder;
        let models: Vec<Model> = (0..segments)
            .map(|i| {
                let docs: BTreeMap<Vec<u8>, (u32, u64)> = pool
                    .iter()
                    .filter(|_| rng.below(20) > 0)
                    .cloned()
                    .zip(0..)
                    .map(|(key, doc)| (key, (doc, u64::from(doc) % 19)))
                    .collect();
                // Hardly any is live, so that many segments have to be asked.
                let live = Some((0..docs.len() as u32).filter(|_| rng.below(30) == 0).collect());
                Model::new(Parts {
                    docs,
                    versions,
                    options: TableOptions::default().layout(layout).hasher(hasher).filter_bits(0),
                    open: OpenOptions::new().into(),
                    doc_base: i as u32 * 1000,
                    slack: None,
                    live,
                })
                .unwrap()
            })
            .collect();
        let set: Vec<Segment> = models.iter().map(|model| model.segment.clone()).collect();
        let set = SegmentSet::new(set).unwrap();
        for mapped in mapped(&set, &mut rng) {
            check(&mapped, &models, &pool, versions, &mut rng);
        }
    }
}

/// The normal state of a set with updates: a share of the keys is in two segments or more, the older docs
/// deleted, or the newer, or both, or none.
#[test]
fn batches_of_keys_that_are_in_several_segments() {
    let mut rng = Rng(11);
    for (twice, copies) in [(0, 2), (30, 2), (60, 2), (30, 5), (100, 15)] {
        let segments = 15;
        let mut docs = vec![BTreeMap::new(); segments];
        let mut dead = vec![BTreeSet::new(); segments];
        for i in 0..20_000u64 {
            let copies = if rng.below(100) < twice { copies } else { 1 };
            for _ in 0..copies {
                let segment = rng.below(segments);
                let doc = docs[segment].len() as u32;
                docs[segment].entry(i.to_be_bytes().repeat(2)).or_insert((doc, 0));
                if rng.below(4) == 0 {
                    dead[segment].insert(doc);
                }
            }
        }
        let models: Vec<Model> = docs
            .into_iter()
            .zip(dead)
            .map(|(docs, dead)| {
                let live = (0..docs.len() as u32).filter(|doc| !dead.contains(doc)).collect();
                let options = TableOptions::default().layout(Layout::Perfect);
                Model::new(Parts {
                    docs,
                    versions: false,
                    options,
                    open: OpenOptions::new().into(),
                    doc_base: 0,
                    slack: None,
                    live: Some(live),
                })
                .unwrap()
            })
            .collect();
        let set: Vec<Segment> = models.iter().map(|model| model.segment.clone()).collect();
        let set =
            SegmentSet::new(set).unwrap().with_segment_map(&SegmentMapOptions::default()).unwrap();
        let mut asked: Vec<Vec<u8>> = (0..22_000u64).map(|i| i.to_be_bytes().repeat(2)).collect();
        rng.shuffle(&mut asked);
        let mut out = vec![None::<Hit<'_>>; asked.len()];
        let found = set.get_batch(&asked, &mut out).unwrap();
        let mut expected = 0;
        for (key, answer) in asked.iter().zip(out) {
            let newest = newest(&models, key);
            let seen = answer.map(|found| (found.segment(), found.doc_id().unwrap(), 0));
            assert_eq!(seen, newest, "{twice} % in {copies} segments");
            expected += usize::from(newest.is_some());
        }
        assert_eq!(found, expected);
    }
}

/// A key that damage hides would be absent in the map for good: no map of a table with a damaged byte.
#[test]
fn no_segment_map_of_a_damaged_table() {
    let folder = Folder::new();
    let pairs: Pairs = (0..800u64)
        .map(|i| (format!("key-{i:03}").into_bytes(), i.to_le_bytes().to_vec()))
        .collect();
    for layout in Layout::all() {
        let filter_bits = Some(if layout == Layout::Perfect { 0 } else { 8 });
        let layout = LayoutChoice::Fixed(layout);
        let table = TableOptions::default().layout(layout).filter_bits(filter_bits);
        let options = WriterOptions::default().table(table).threads(1);
        let (_, mut bytes) = build_bytes(options, of_slice(&pairs)).unwrap();
        let sound = TableFile::from_bytes(bytes.clone()).unwrap();
        let sections: Vec<(u64, u64)> = {
            let partition = sound.table().partition(0).unwrap();
            sound.footer().sections(&partition).filter(|(_, len)| *len > 0).collect()
        };
        SegmentSet::new([Segment::new(sound)])
            .unwrap()
            .with_segment_map(&SegmentMapOptions::default())
            .unwrap();
        for (from, len) in sections {
            for at in (from..from + len).step_by(61).chain([from + len - 1]) {
                bytes[at as usize] ^= 0x20;
                let damaged = folder.write("damaged.pkh", &bytes);
                let damaged = Segment::new(TableFile::open(damaged).unwrap());
                let set = SegmentSet::new([damaged]).unwrap();
                match set.with_segment_map(&SegmentMapOptions::default()) {
                    Err(Error::Table { path: Some(path), .. }) => {
                        assert!(path.ends_with("damaged.pkh"), "{path:?}");
                    }
                    other => panic!("{layout:?}, byte {at}: {other:?}"),
                }
                bytes[at as usize] ^= 0x20;
            }
        }
    }
}
