//! Segment sets against models: newest live match, batches, in-set queries, versions; snapshots while
//! tables are added, merged, deleted from and replaced.

mod live_docs;
mod merges;
mod policy;
mod segment_map;
mod stress;
mod versions;

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

/// The same set with a segment map of all its segments, with one of some of them, wherever they are, and with one that
/// has grown: from the one before, or with the set.
fn mapped(set: &SegmentSet, rng: &mut Rng) -> [SegmentSet; 3] {
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
    let mut grown = SegmentSet::default();
    if rng.below(2) == 0 {
        grown = some.with_more_segment_map(&options).unwrap();
    }
    while grown.len() < n {
        let more = (1 + rng.below(1 + n / 3)).min(n - grown.len());
        let from = n - grown.len() - more;
        let added = set.segments()[from..from + more].to_vec();
        grown = grown.with(added, &[]).unwrap().with_more_segment_map(&options).unwrap();
    }
    let info = grown.segment_map();
    assert_eq!(info.map_or(n, |map| map.mapped), n);
    assert_eq!(info.map_or(0, |map| map.entries - map.stale), set.keys());
    [all, some, grown]
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
