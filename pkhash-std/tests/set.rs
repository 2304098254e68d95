//! Segment sets against models: newest live match, batches, in-set queries, versions; snapshots while
//! tables are added, merged, deleted from and replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use pkhash_core::Error as CoreError;
use pkhash_std::{
    AnyKernel, DocMap, Error, Hit, KeyHasher, Layout, LayoutChoice, LiveDocs, MAX_SEGMENTS,
    MergeInput, MergeOptions, OnDuplicate, OpenOptions, Progress, Segment, SegmentInfo,
    SegmentMapOptions, SegmentSet, TableFile, TableOptions, TieredPolicy, ValueFormat,
    VersionedHit, WriterOptions, build_slice, merge, versioned_value,
};
use pkhash_testing::opening::How;
use pkhash_testing::sets::{
    Model, Pairs, Parts, Snapshot as Modelled, Step, check, newest, table_with, version_of,
    versioned,
};
use pkhash_testing::{Folder, Rng, build_bytes, modes, of_slice};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use roaring::RoaringBitmap;

fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0x5eed_0004),
        failure_persistence: None,
        ..Config::default()
    }
}

/// A table of doc IDs.
fn table(docs: &[(&str, u32)]) -> TableFile {
    let pairs: Pairs = docs
        .iter()
        .map(|(key, doc)| (key.as_bytes().to_vec(), u64::from(*doc).to_le_bytes().to_vec()))
        .collect();
    table_with(TableOptions::default(), &pairs, OpenOptions::new())
}

/// A table of versioned values.
fn versioned_table(docs: &[(&str, u32, u64)]) -> TableFile {
    let pairs: Pairs = docs
        .iter()
        .map(|(key, doc, version)| {
            (key.as_bytes().to_vec(), versioned_value(*doc, *version).to_vec())
        })
        .collect();
    let options = TableOptions::default().value(versioned());
    table_with(options, &pairs, OpenOptions::new())
}

/// Segments of keys of a pool, of any layout, with deletes, doc bases and a few seeds.
fn models(pool: &[Vec<u8>], number: usize, versions: bool, rng: &mut Rng) -> Vec<Model> {
    let inline = pool.iter().all(|key| key.len() == pool[0].len() && key.len() <= 31);
    // Some keys of one hash, but not more than a perfect table takes.
    let bits = (2 * pool.len().ilog2()).saturating_sub(5) as u8;
    let hashers =
        [KeyHasher::new(0), KeyHasher::new(rng.next()), KeyHasher::truncated(rng.next(), bits)];
    let seeds = 1 + rng.below(3);
    let kernels: Vec<AnyKernel> = AnyKernel::available().collect();
    let mut base = 0;
    (0..number)
        .map(|_| {
            let share = 1 + rng.below(4);
            let keys: BTreeSet<&Vec<u8>> = pool.iter().filter(|_| rng.below(share) == 0).collect();
            let mut ids: Vec<u32> = (0..keys.len() as u32).collect();
            rng.shuffle(&mut ids);
            if rng.below(4) == 0 {
                // Several keys of one doc.
                ids.iter_mut().for_each(|doc| *doc /= 2);
            }
            let docs: BTreeMap<Vec<u8>, (u32, u64)> = keys
                .into_iter()
                .zip(ids)
                .map(|(key, doc)| (key.clone(), (doc, rng.below(20) as u64)))
                .collect();
            let layout = match rng.below(5) {
                0 if inline => LayoutChoice::Fixed(Layout::Inline),
                0 | 1 => LayoutChoice::Fixed(Layout::TermOrder),
                2 => LayoutChoice::Auto,
                _ => LayoutChoice::Fixed(Layout::Perfect),
            };
            let options = TableOptions::default()
                .layout(layout)
                .filter_bits([None, Some(0), Some(10)][rng.below(3)])
                .hasher(hashers[rng.below(seeds)])
                .partition_bits([None, Some(0), Some(3)][rng.below(3)]);
            let modes = modes();
            let mode = modes[rng.below(modes.len())];
            let open = mode.with(OpenOptions::new().kernel(kernels[rng.below(kernels.len())]));
            let slack = (rng.below(2) == 0).then(|| rng.below(2) as u64);
            let live = some_live(docs.len(), rng);
            let (doc_base, keys) = (base, docs.len() as u32);
            base += keys + rng.below(3) as u32;
            Model::new(Parts { docs, versions, options, open, doc_base, slack, live }).unwrap()
        })
        .collect()
}

/// Which of so many docs are live; `None`: all.
fn some_live(docs: usize, rng: &mut Rng) -> Option<BTreeSet<u32>> {
    (rng.below(3) > 0).then(|| {
        // Now and then too few docs: those beyond count as deleted.
        let known = docs - rng.below(3).min(docs) * rng.below(2);
        (0..known as u32).filter(|_| rng.below(3) > 0).collect()
    })
}

/// Keys whose lengths are `lens.0` and more, and less than `lens.1`.
fn random_keys(rng: &mut Rng, n: usize, lens: (usize, usize)) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(move |_| {
        let len = lens.0 + rng.below(lens.1 - lens.0);
        rng.bytes(len)
    })
}

proptest! {
    #![proptest_config(config(80))]

    #[test]
    fn sets_agree_with_models(
        lens in prop_oneof![Just((0, 12)), Just((16, 17)), Just((0, 200)), Just((8, 9))],
        keys in 1..80usize,
        number in 0..7usize,
        versions: bool,
        seed: u64,
    ) {
        let mut rng = Rng(seed);
        let pool: Vec<Vec<u8>> = random_keys(&mut rng, keys, lens).collect();
        let models = models(&pool, number, versions, &mut rng);
        let segments: Vec<Segment> = models.iter().map(|model| model.segment.clone()).collect();
        let set = SegmentSet::new(segments).unwrap();
        assert_eq!(set.len(), number);
        assert_eq!(set.keys(), models.iter().map(|model| model.docs.len() as u64).sum::<u64>());
        check(&set, &models, &pool, versions, &mut rng);
        for mapped in mapped(&set, &mut rng) {
            check(&mapped, &models, &pool, versions, &mut rng);
        }
    }

    #[test]
    fn snapshots_agree_with_models(
        keys in 1..40usize,
        number in 0..5usize,
        steps in 1..12usize,
        versions: bool,
        seed: u64,
    ) {
        let mut rng = Rng(seed);
        let pool: Vec<Vec<u8>> = random_keys(&mut rng, keys, (0, 20)).collect();
        let mut now = Modelled::new(models(&pool, number, versions, &mut rng));
        for _ in 0..steps {
            let next = now.step(some_step(&pool, now.len(), versions, &mut rng));
            next.check(&pool, versions, &mut rng);
            // Who holds the old one goes on to see what it held.
            now.check(&pool, versions, &mut rng);
            now = next;
        }
    }
}

/// A change of a snapshot of so many segments.
fn some_step(pool: &[Vec<u8>], segments: usize, versions: bool, rng: &mut Rng) -> Step {
    // One of them; now and then one that is gone.
    let most = segments + 1 + rng.below(2);
    let number = |rng: &mut Rng| rng.below(most);
    match rng.below(8) {
        0 | 1 => {
            let new = rng.below(3);
            let removed = (0..rng.below(3)).map(|_| number(rng)).collect();
            Step::With { added: models(pool, new, versions, rng), removed }
        }
        2 | 3 => {
            let first = number(rng);
            let inputs =
                (first..first + rng.below(4)).filter(|i| *i < segments || first >= segments);
            let inputs = inputs.collect();
            let new = rng.below(2);
            Step::Merged { inputs, output: models(pool, new, versions, rng).pop() }
        }
        4 => Step::LiveDocs { segment: number(rng), live: some_live(pool.len(), rng) },
        5 | 6 => {
            Step::Map { threads: 1 + rng.below(2), memory: [0, 100, usize::MAX][rng.below(3)] }
        }
        _ => Step::NoMap,
    }
}

/// The same set with a segment map of all its segments, and with one of some of them, wherever they are.
fn mapped(set: &SegmentSet, rng: &mut Rng) -> [SegmentSet; 2] {
    let options = SegmentMapOptions::default()
        .threads(1 + rng.below(2))
        .memory([0, 100, usize::MAX][rng.below(3)]);
    let all = set.with_segment_map(&options).unwrap();
    let n = set.len();
    assert_eq!(
        all.segment_map().map(|map| (map.mapped, map.unmapped, map.stale)),
        match n {
            0 => None,
            _ => Some((n, 0, 0)),
        }
    );
    assert_eq!(all.segment_map().map_or(0, |map| map.entries), set.keys());
    // Other segments give way to the rest.
    let other = |_| Segment::new(table(&[("another", 0)]));
    let others: Vec<Option<Segment>> =
        (0..n).map(|i| (rng.below(2) == 0).then(|| other(i))).collect();
    let first = set.segments().iter().zip(&others);
    let first = first.map(|(segment, other)| other.clone().unwrap_or_else(|| segment.clone()));
    let mut some =
        SegmentSet::new(first.collect::<Vec<_>>()).unwrap().with_segment_map(&options).unwrap();
    for (segment, other) in set.segments().iter().zip(&others) {
        if let Some(other) = other {
            some = some.merged(std::slice::from_ref(other), Some(segment.clone())).unwrap();
        }
    }
    let gone = others.iter().flatten().count();
    // A map of nothing is no map.
    let expected = (gone < n).then_some((n - gone, gone, gone as u64));
    assert_eq!(some.segment_map().map(|map| (map.mapped, map.unmapped, map.stale)), expected);
    [all, some]
}

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

/// A damaged table is an error that names it: of the map, and of batches over many tables.
#[test]
fn damage_in_a_set_names_the_table() {
    let folder = Folder::new();
    let keys: Vec<String> =
        (0..3000).map(|i| format!("key-{i:0width$}", width = 1 + i % 9)).collect();
    let pairs: Pairs = keys
        .iter()
        .zip(0u64..)
        .map(|(key, doc)| (key.clone().into_bytes(), doc.to_le_bytes().to_vec()))
        .collect();
    let options = WriterOptions::default().threads(1);
    let (_, mut bytes) = build_bytes(options, of_slice(&pairs)).unwrap();
    let sound = Segment::new(OpenOptions::new().open(folder.write("a.pkh", &bytes)).unwrap());
    let table = sound.table().table();
    let lines = table.partition(0).unwrap();
    assert!(table.footer().unit() > 0, "{lines:?}");
    // Offset lines that lead far behind the table.
    let (from, len) = table.footer().sections(&lines).nth(2).unwrap();
    for line in bytes[from as usize..][..len as usize].chunks_mut(64) {
        line[4] = 0xff;
    }
    let damaged = folder.write("b.pkh", &bytes);
    let damaged = Segment::new(OpenOptions::new().open(damaged).unwrap());
    let names_it = |error: Error| match error {
        Error::Table { path: Some(path), .. } => assert!(path.ends_with("b.pkh"), "{path:?}"),
        other => panic!("{other}"),
    };
    let set = SegmentSet::new(vec![sound.clone(), damaged.clone()]).unwrap();
    names_it(set.with_segment_map(&SegmentMapOptions::default()).unwrap_err());
    // Damaged after the map was made, as it is for a mapped file: the map is that of the sound table.
    let twice = SegmentSet::new(vec![sound.clone()]).unwrap();
    let twice = twice.with_segment_map(&SegmentMapOptions::default()).unwrap();
    let set = twice.with([damaged], &[]).unwrap();
    let mut out = vec![None::<Hit<'_>>; keys.len()];
    names_it(set.get_batch(&keys, &mut out).unwrap_err());
    names_it(set.get(keys[0].as_bytes()).unwrap_err());
    names_it(set.in_set(&keys).unwrap_err());
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

#[test]
fn a_set_of_no_segments() {
    for set in [SegmentSet::default(), SegmentSet::new(Vec::new()).unwrap()] {
        assert_eq!((set.is_empty(), set.len(), set.keys()), (true, 0, 0));
        check(&set, &[], &[b"key".to_vec(), Vec::new()], true, &mut Rng(1));
        // And one that comes to have a segment.
        let one = set.with([Segment::new(table(&[("a", 5)]))], &[]).unwrap();
        assert_eq!(one.get(b"a").unwrap().and_then(Hit::doc_id), Some(5));
        assert!(set.is_empty());
    }
}

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

#[test]
fn batches_of_another_length() {
    let set = SegmentSet::new([Segment::new(table(&[("k", 1)]))]).unwrap();
    for set in [set, SegmentSet::default()] {
        for n in [0, 1, 3] {
            let errors = [
                set.get_batch(&["k", "j"], &mut vec![None::<Hit<'_>>; n]).unwrap_err(),
                set.get_batch(&["k", "j"], &mut vec![false; n]).unwrap_err(),
            ];
            for error in errors {
                let Error::BatchLength { expected: 2, found } = error else { panic!("{error}") };
                assert_eq!(found, n);
            }
        }
    }
}

#[test]
fn a_set_has_a_most_of_segments() {
    let segment = Segment::new(table(&[("k", 1)]));
    let set = SegmentSet::new(vec![segment.clone(); MAX_SEGMENTS]).unwrap();
    assert_eq!(set.get(b"k").unwrap().unwrap().segment(), 0);
    let error = set.with([segment], &[]).unwrap_err();
    assert!(matches!(error, Error::TooManySegments { expected: MAX_SEGMENTS, found: 65_537 }));
}

#[test]
fn opened_from_paths() {
    let folder = Folder::new();
    let paths: Vec<_> = (0..100u32)
        .map(|i| {
            let mut bytes = Vec::new();
            let keys = [format!("only-{i}"), "shared".to_owned()];
            let options = WriterOptions::default().threads(1);
            build_slice(&keys, |k| (10 * i + k as u32).to_le_bytes(), &mut bytes, &options)
                .unwrap();
            folder.write(&format!("{i}.pkh"), bytes)
        })
        .collect();
    for mode in modes() {
        let segments: Vec<_> =
            paths.iter().map(|path| Segment::from(mode.open(path).unwrap())).collect();
        let set = SegmentSet::new(segments).unwrap();
        assert_eq!(set.len(), 100);
        assert_eq!(set.get(b"shared").unwrap().and_then(Hit::doc_id), Some(1));
        let found = set.get(b"only-73").unwrap().unwrap();
        assert_eq!((found.segment(), found.doc_id()), (73, Some(730)));
        assert_eq!(set.segments()[73].table().path(), Some(&*paths[73]));
    }
    let set = SegmentSet::open(&paths[..2]).unwrap();
    assert_eq!(set.in_set(&["shared"]).unwrap().iter().collect::<Vec<_>>(), [1, 11]);
    let missing = folder.path("missing.pkh");
    let error = SegmentSet::open([&paths[0], &missing]).unwrap_err();
    pkhash_testing::names_path(&error, &missing);
}

#[test]
fn snapshots_share_their_tables() {
    let make = |name: &str, doc| Segment::new(table(&[(name, doc), ("shared", doc)]));
    let [a, b, c, d] = [make("a", 0), make("b", 1), make("c", 2), make("d", 3)];
    let same = |set: &SegmentSet, expected: &[&Segment]| {
        assert_eq!(set.len(), expected.len());
        for (i, (mine, expected)) in set.segments().iter().zip(expected).enumerate() {
            assert!(mine.is_same_table(expected), "segment {i}");
            assert!(Arc::ptr_eq(mine.table(), expected.table()));
            assert_eq!(set.position(expected), Some(i));
        }
    };
    let old = SegmentSet::new([b.clone(), a.clone()]).unwrap();
    let new = old.with([d.clone(), c.clone()], &[a.clone(), d.clone()]).unwrap();
    same(&new, &[&d, &c, &b]);
    same(&old, &[&b, &a]);
    assert_eq!(new.position(&a), None);
    assert!(new.get(b"a").unwrap().is_none() && old.get(b"a").unwrap().is_some());
    assert_eq!(new.get(b"shared").unwrap().and_then(Hit::doc_id), Some(3));
    assert_eq!(old.get(b"shared").unwrap().and_then(Hit::doc_id), Some(1));

    // Live docs alone: the table is the same, the other snapshot sees nothing.
    let live = Arc::new(LiveDocs::from_deleted(4, &[3]).unwrap());
    let deleted = new.with_live_docs(0, Some(Arc::clone(&live))).unwrap();
    same(&deleted, &[&d, &c, &b]);
    assert!(Arc::ptr_eq(deleted.segments()[0].live_docs().unwrap(), &live));
    assert!(new.segments()[0].live_docs().is_none());
    assert_eq!(deleted.get(b"shared").unwrap().and_then(Hit::doc_id), Some(2));
    assert_eq!(new.get(b"shared").unwrap().and_then(Hit::doc_id), Some(3));
    let error = new.with_live_docs(3, None).unwrap_err();
    assert!(matches!(error, Error::NoSuchSegment { expected: 3, found: 3 }));

    // A merged segment stands where the newest of its inputs stood.
    let m = make("m", 9);
    let merged = new.merged(&[c.clone(), b.clone()], Some(m.clone())).unwrap();
    same(&merged, &[&d, &m]);
    same(&new.merged(std::slice::from_ref(&d), None).unwrap(), &[&c, &b]);
    same(&new.merged(&[], Some(m.clone())).unwrap(), &[&d, &c, &b, &m]);
    let error = merged.merged(&[d, c], Some(m)).unwrap_err();
    assert!(matches!(error, Error::NotInSet { input: 1, .. }), "{error}");
    // The last handles close the tables.
    let weak = Arc::downgrade(b.table());
    drop((old, new, deleted, b));
    assert!(weak.upgrade().is_none());
}

#[test]
fn sets_go_between_threads() {
    fn both<T: Send + Sync + Clone>() {}
    both::<SegmentSet>();
    both::<Segment>();
    both::<LiveDocs>();
    both::<Hit<'static>>();
}

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

/// Maps that close the gaps of the segments' deleted docs, and the docs that are left.
fn compacting(segments: &[Segment], docs: &[u32]) -> (Vec<DocMap>, u32) {
    let mut base = 0;
    let maps = segments
        .iter()
        .zip(docs)
        .map(|(segment, docs)| {
            let live = segment.live_docs().map(|live| &**live);
            let (map, next) = DocMap::compacting(live, *docs, base).unwrap();
            base = next;
            map
        })
        .collect();
    (maps, base)
}

/// The live docs of a merged segment: what was deleted of its inputs while they were merged.
fn deleted_meanwhile(before: &[Segment], now: &SegmentSet, maps: &[DocMap], docs: u32) -> LiveDocs {
    let mut deleted = Vec::new();
    for (before, map) in before.iter().zip(maps) {
        let now = &now.segments()[now.position(before).unwrap()];
        let Some(now) = now.live_docs() else { continue };
        let all = LiveDocs::all(now.docs());
        let since = before.live_docs().map_or(&all, |live| live);
        deleted.extend(now.deleted_since(since).map(|doc| map.get(doc).unwrap() as u32));
    }
    LiveDocs::from_deleted(docs, &deleted).unwrap()
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

fn sizes(keys: impl IntoIterator<Item = u64>) -> Vec<SegmentInfo> {
    keys.into_iter().map(|keys| SegmentInfo { keys, deleted: 0 }).collect()
}

/// Merges as proposed until nothing is. Returns the keys that were written.
fn settle(policy: &TieredPolicy, segments: &mut Vec<SegmentInfo>) -> u128 {
    let mut written = 0;
    let mut merges = 0;
    while let Some(chosen) = policy.propose(segments) {
        assert!(chosen.len() >= 2 && chosen.len() <= policy.segments_per_tier.max(2), "{chosen:?}");
        assert!(chosen.is_sorted_by(|a, b| a < b), "{chosen:?}");
        if policy.neighbours {
            assert!(chosen.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{chosen:?}");
        }
        let keys: u64 = chosen.iter().map(|i| segments[*i].keys - segments[*i].deleted).sum();
        assert!(keys <= policy.max_merged_keys);
        written += u128::from(keys);
        for i in chosen[1..].iter().rev() {
            segments.remove(*i);
        }
        segments[chosen[0]] = SegmentInfo { keys, deleted: 0 };
        merges += 1;
        assert!(merges < 10_000, "no end");
    }
    written
}

#[test]
fn the_policy_proposes_nothing_where_nothing_is_to_do() {
    for neighbours in [false, true] {
        let policy = TieredPolicy::default().neighbours(neighbours);
        for segments in [
            vec![],
            sizes([1_000_000]),
            // One alone is not merged, however many of its keys are deleted.
            vec![SegmentInfo { keys: 1000, deleted: 1000 }],
            sizes(vec![50_000; 10]),
            // Too large to be merged with another.
            sizes(vec![60_000_000; 40]),
            // The largest is not eligible: nothing to merge the wasteful one with.
            vec![
                SegmentInfo { keys: 90, deleted: 60 },
                SegmentInfo { keys: 80_000_000, deleted: 0 },
            ],
        ] {
            assert_eq!(policy.propose(&segments), None, "{segments:?}");
        }
    }
}

#[test]
fn the_policy_prefers_segments_of_like_size_and_many_deletes() {
    let policy = TieredPolicy::default().segments_per_tier(4).floor_keys(1);
    let with = |neighbours| policy.neighbours(neighbours);
    // Four of like size among others.
    let mut like = sizes(vec![1_000_000; 60]);
    like.splice(20..20, sizes([50_000, 900, 1000, 1100, 950, 30_000]));
    like.push(SegmentInfo { keys: 980, deleted: 0 });
    assert_eq!(with(true).propose(&like), Some(vec![21, 22, 23, 24]));
    // The same and another: four of the five.
    let chosen = with(false).propose(&like).unwrap();
    assert!(chosen.len() == 4 && chosen.iter().all(|i| like[*i].keys <= 1100), "{chosen:?}");
    // As many live keys everywhere, and deleted ones somewhere.
    let mut deletes = sizes(vec![1000; 20]);
    deletes[9..13].fill(SegmentInfo { keys: 1100, deleted: 100 });
    for neighbours in [false, true] {
        assert_eq!(with(neighbours).propose(&deletes), Some(vec![9, 10, 11, 12]));
    }
    // Deletes alone are reason enough.
    let mut few = sizes([1000, 1000, 1000]);
    assert_eq!(policy.propose(&few), None);
    few[2].deleted = 331;
    assert!(policy.propose(&few).unwrap().contains(&2));
    few[2].deleted = 330;
    assert_eq!(policy.propose(&few), None);
    // More deleted than there are: all.
    few[2].deleted = u64::MAX;
    assert!(policy.propose(&few).unwrap().contains(&2));
}

#[test]
fn the_policy_converges() {
    for neighbours in [false, true] {
        let policy = TieredPolicy::default()
            .segments_per_tier(10)
            .max_merged_keys(1_000_000)
            .floor_keys(1)
            .max_deleted_percent(33)
            .neighbours(neighbours);
        // An index that grows: a key is written once for each tier (1,000, 10,000, … 1,000,000), and
        // there are few segments at any time.
        let (mut segments, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..4000 {
            segments.insert(0, SegmentInfo { keys: 1000, deleted: 0 });
            written += settle(&policy, &mut segments);
            let small = segments.iter().filter(|segment| segment.keys <= 500_000).count();
            most = most.max(small);
        }
        assert_eq!(segments.iter().map(|segment| segment.keys).sum::<u64>(), 4_000_000);
        assert!(most <= 40, "{most} segments");
        assert!(written <= 4 * 4_000_000, "{written} keys written");
        // Whatever there is, it comes to an end.
        let mut rng = Rng(9);
        for _ in 0..200 {
            let mut segments: Vec<SegmentInfo> = (0..rng.below(60))
                .map(|_| {
                    let keys = rng.next() >> (40 + rng.below(24));
                    SegmentInfo { keys, deleted: [0, keys / 3, keys][rng.below(3)] }
                })
                .collect();
            settle(&policy, &mut segments);
            assert_eq!(policy.propose(&segments), None);
        }
        // Options that make no sense do no harm.
        for (segments_per_tier, max_merged_keys, floor_keys) in
            [(0, 0, 0), (1, u64::MAX, u64::MAX), (usize::MAX, 7, 0), (0, u64::MAX, 0)]
        {
            let odd = TieredPolicy::default()
                .segments_per_tier(segments_per_tier)
                .max_merged_keys(max_merged_keys)
                .floor_keys(floor_keys)
                .max_deleted_percent(255)
                .neighbours(neighbours);
            settle(&odd, &mut sizes([0, 0, 0, 1, 2, 3, 1 << 60, 1 << 62, 5]));
            let _ = odd.propose(&sizes(vec![u64::MAX; 5]));
        }
    }
}

/// What a snapshot should answer, beside the snapshot.
struct Snapshot {
    set: SegmentSet,
    /// For each segment, its keys, with doc and version.
    docs: Vec<Arc<Docs>>,
    /// The versions that a reader of this snapshot finds.
    expected: BTreeMap<Vec<u8>, u64>,
}

type Docs = BTreeMap<Vec<u8>, (u32, u64)>;

impl Snapshot {
    fn new(set: SegmentSet, docs: Vec<Arc<Docs>>) -> Self {
        let mut expected = BTreeMap::new();
        for (segment, docs) in set.segments().iter().zip(&docs) {
            for (key, (doc, version)) in &**docs {
                if segment.live_docs().is_none_or(|live| live.is_live(*doc)) {
                    expected.entry(key.clone()).or_insert(*version);
                }
            }
        }
        assert_eq!(set.len(), docs.len());
        Self { set, docs, expected }
    }

    /// A reader's share of work: all ways to ask, for some keys.
    fn read(&self, rng: &mut Rng) {
        let keys: Vec<Vec<u8>> = (0..1 + rng.below(300)).map(|_| stress_key(rng)).collect();
        let mut found = vec![None; keys.len()];
        let n = self.set.get_batch(&keys, &mut found).unwrap();
        let mut contained = vec![false; keys.len()];
        assert_eq!(self.set.get_batch(&keys, &mut contained).unwrap(), n);
        for (i, (key, found)) in keys.iter().zip(&found).enumerate() {
            let expected = self.expected.get(key).copied();
            assert_eq!(found.map(version_of), expected, "{key:02x?}");
            assert_eq!(contained[i], expected.is_some());
            if i % 8 == 0 {
                assert_eq!(self.set.get(key).unwrap(), *found);
            }
        }
        let all: usize = (self.set.segments().iter().zip(&self.docs))
            .map(|(segment, docs)| {
                let keys: BTreeSet<&Vec<u8>> = keys.iter().collect();
                let docs = keys.into_iter().filter_map(|key| docs.get(key));
                docs.filter(|(doc, _)| segment.live_docs().is_none_or(|live| live.is_live(*doc)))
                    .count()
            })
            .sum();
        assert_eq!(self.set.in_set(&keys).unwrap().len(), all);
    }
}

fn stress_key(rng: &mut Rng) -> Vec<u8> {
    let n = rng.below(600);
    // Of two lengths, and an empty one.
    if n == 0 { Vec::new() } else { vec![n as u8; 8 + n / 256] }
}

/// Adds, deletes and merges, as an engine does: snapshots are published under one lock, merges run
/// outside of it.
struct Engine {
    now: RwLock<Arc<Snapshot>>,
    publish: Mutex<()>,
    folder: Folder,
    files: AtomicU64,
    versions: AtomicU64,
    /// Versions whose docs were deleted: none may come back.
    deleted: Mutex<BTreeSet<u64>>,
}

impl Engine {
    fn now(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.read().unwrap())
    }

    /// Publishes what `change` makes of the newest snapshot.
    fn change(&self, change: impl FnOnce(&Snapshot) -> (SegmentSet, Vec<Arc<Docs>>)) {
        let _alone = self.publish.lock().unwrap();
        let (set, docs) = change(&self.now());
        let next = Snapshot::new(set, docs);
        let deleted = self.deleted.lock().unwrap();
        assert!(next.expected.values().all(|version| !deleted.contains(version)), "came back");
        *self.now.write().unwrap() = Arc::new(next);
    }

    fn open(&self, path: &std::path::Path, rng: &mut Rng) -> Segment {
        // Windows replaces and removes no file that is mapped.
        let modes = if cfg!(windows) { vec![How::Read] } else { modes() };
        Segment::new(modes[rng.below(modes.len())].open(path).unwrap())
    }

    fn add(&self, rng: &mut Rng) {
        let keys: BTreeSet<Vec<u8>> = (0..1 + rng.below(80)).map(|_| stress_key(rng)).collect();
        let docs: Docs = keys
            .into_iter()
            .enumerate()
            .map(|(doc, key)| {
                let version = self.versions.fetch_add(1, Ordering::Relaxed);
                (key, (doc as u32, version))
            })
            .collect();
        let pairs: Pairs = docs
            .iter()
            .map(|(key, (doc, version))| (key.clone(), versioned_value(*doc, *version).to_vec()))
            .collect();
        let layout = [Layout::TermOrder, Layout::Perfect][rng.below(2)];
        let table = TableOptions::default().value(versioned()).layout(layout);
        let options = WriterOptions::default().table(table).threads(1);
        let name = format!("{}.pkh", self.files.fetch_add(1, Ordering::Relaxed));
        let path = self.folder.write(&name, build_bytes(options, of_slice(&pairs)).unwrap().1);
        let segment = self.open(&path, rng);
        self.change(|now| {
            let set = now.set.with([segment], &[]).unwrap();
            (set, [&[Arc::new(docs)], &now.docs[..]].concat())
        });
    }

    fn delete(&self, rng: &mut Rng) {
        self.change(|now| {
            if now.set.is_empty() {
                return (now.set.clone(), now.docs.clone());
            }
            let number = rng.below(now.set.len());
            let (segment, docs) = (&now.set.segments()[number], &now.docs[number]);
            let most = docs.values().map(|(doc, _)| doc + 1).max().unwrap_or(0);
            let all = LiveDocs::all(most);
            let before = segment.live_docs().map_or(&all, |live| live);
            let chosen: BTreeSet<u32> = (0..before.docs()).filter(|_| rng.below(5) == 0).collect();
            let chosen_versions = docs.values().filter(|(doc, _)| chosen.contains(doc));
            self.deleted.lock().unwrap().extend(chosen_versions.map(|(_, version)| version));
            let live = before.with_deleted(chosen).unwrap();
            (now.set.with_live_docs(number, Some(Arc::new(live))).unwrap(), now.docs.clone())
        });
    }

    /// Another segment map, or none.
    fn map(&self, rng: &mut Rng) {
        let options = SegmentMapOptions::default().threads(1);
        self.change(|now| {
            let set = match rng.below(4) {
                0 => now.set.without_segment_map(),
                _ => now.set.with_segment_map(&options).unwrap(),
            };
            (set, now.docs.clone())
        });
    }

    /// Returns whether there was something to merge.
    fn merge(&self, policy: &TieredPolicy, rng: &mut Rng) -> bool {
        let start = self.now();
        let infos: Vec<SegmentInfo> = start.set.segments().iter().map(SegmentInfo::of).collect();
        let Some(chosen) = policy.propose(&infos) else { return false };
        let inputs: Vec<Segment> =
            chosen.iter().map(|i| start.set.segments()[*i].clone()).collect();
        let docs: Vec<u32> = inputs
            .iter()
            .zip(&chosen)
            .map(|(input, i)| {
                let most = start.docs[*i].values().map(|(doc, _)| doc + 1).max().unwrap_or(0);
                input.live_docs().map_or(most, |live| live.docs())
            })
            .collect();
        let (maps, docs) = compacting(&inputs, &docs);
        let merge_inputs: Vec<MergeInput<'_>> = inputs
            .iter()
            .zip(&maps)
            .map(|(input, docs)| MergeInput::new(input.table()).docs(docs.clone()))
            .collect();
        let options = MergeOptions::default().on_duplicate(OnDuplicate::First).threads(1);
        // Over an input that others still read.
        let path = inputs[rng.below(inputs.len())].table().name().to_owned();
        merge(&merge_inputs, &path, &options).unwrap();
        let mut merged_docs = Docs::new();
        for (map, i) in maps.iter().zip(&chosen) {
            for (key, (doc, version)) in &*start.docs[*i] {
                if let Some(doc) = map.get(*doc) {
                    merged_docs.entry(key.clone()).or_insert((doc as u32, *version));
                }
            }
        }
        let merged = self.open(&path, rng);
        assert_eq!(merged.table().footer().keys(), merged_docs.len() as u64);
        self.change(|now| {
            let live = deleted_meanwhile(&inputs, &now.set, &maps, docs);
            let merged = merged.with_live_docs(Some(Arc::new(live)));
            let at = now.set.position(&inputs[0]).unwrap();
            let set = now.set.merged(&inputs, Some(merged)).unwrap();
            let mut docs = now.docs.clone();
            docs.splice(at..at + inputs.len(), [Arc::new(merged_docs)]);
            (set, docs)
        });
        for input in inputs {
            if input.table().name() != path {
                fs::remove_file(input.table().name()).unwrap();
            }
        }
        true
    }
}

/// 2 seconds, and as many more as `PKHASH_SOAK_SECONDS` says.
#[test]
fn readers_see_what_their_snapshot_allows() {
    let more = std::env::var("PKHASH_SOAK_SECONDS").map_or(0, |seconds| seconds.parse().unwrap());
    let empty = Snapshot::new(SegmentSet::default(), Vec::new());
    let engine = Engine {
        now: RwLock::new(Arc::new(empty)),
        publish: Mutex::new(()),
        folder: Folder::new(),
        files: AtomicU64::new(0),
        versions: AtomicU64::new(0),
        deleted: Mutex::new(BTreeSet::new()),
    };
    let policy = TieredPolicy::default().segments_per_tier(4).floor_keys(100);
    let end = Instant::now() + Duration::from_secs(2 + more);
    let done = AtomicBool::new(false);
    // A thread that fails ends the others, too.
    struct Stop<'d>(&'d AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (reads, merges) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (engine, done, reads, merges, policy) = (&engine, &done, &reads, &merges, &policy);
        for reader in 0..8 {
            scope.spawn(move || {
                let mut rng = Rng(reader);
                let mut held = engine.now();
                while !done.load(Ordering::Relaxed) {
                    // Now and then an old one, whose files are gone.
                    if rng.below(4) > 0 {
                        held = engine.now();
                    }
                    held.read(&mut rng);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(move || {
            let mut rng = Rng(100);
            let _stop = Stop(done);
            while !done.load(Ordering::Relaxed) {
                if !engine.merge(policy, &mut rng) {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                merges.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(move || {
            let mut rng = Rng(101);
            let _stop = Stop(done);
            // Some merges, however slow the machine.
            while Instant::now() < end || merges.load(Ordering::Relaxed) < 3 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                if rng.below(10) == 0 {
                    engine.map(&mut rng);
                } else if engine.now().set.len() < 30 && rng.below(2) == 0 {
                    engine.add(&mut rng);
                } else {
                    engine.delete(&mut rng);
                }
            }
        });
    });
    let last = engine.now();
    assert!(reads.load(Ordering::Relaxed) >= 8 && merges.load(Ordering::Relaxed) >= 3);
    assert!(!engine.deleted.lock().unwrap().is_empty());
    // What is on disk is what the last snapshot has, and no more.
    let paths: BTreeSet<_> =
        last.set.segments().iter().map(|segment| segment.table().name().to_owned()).collect();
    let names: BTreeSet<_> =
        engine.folder.names().into_iter().map(|name| engine.folder.path(&name)).collect();
    assert_eq!(paths, names);
    println!("{reads:?} reads, {merges:?} merges, {:?} tables", engine.files);
}
