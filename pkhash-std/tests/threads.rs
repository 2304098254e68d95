//! Many threads at once: on one table, on one segment set, on snapshots that a writer replaces, and in
//! builds. All of it also runs under ThreadSanitizer: `.ci/tsan`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, LazyLock, RwLock};
use std::time::Duration;

use pkhash_std::{
    AnyKernel, DocMap, Error, Hit, Layout, LiveDocs, MergeInput, MergeOptions, OnDuplicate,
    OpenOptions, Progress, Segment, SegmentMapOptions, SegmentSet, TableFile, TableOptions, Value,
    WriterOptions, build_slice, merge,
};
use pkhash_testing::opening::{How, Opening};
use pkhash_testing::{Folder, Model, Rng, build_bytes, int, modes, publish, slices};

const THREADS: usize = 64;

/// Runs `work` on so many threads, each with numbers of its own; none begins before all are there.
fn on_all_threads(work: impl Fn(&mut Rng) + Sync) {
    let gate = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (gate, work) = (&gate, &work);
            scope.spawn(move || {
                gate.wait();
                work(&mut Rng(thread));
            });
        }
    });
}

fn options(layout: Layout, packed: bool) -> TableOptions {
    TableOptions::default().layout(layout).partition_bits(2).packed(packed)
}

/// Every layout, and the kinds of records of perfect tables: whether keys are of many lengths, and how
/// to build it.
fn kinds() -> [(bool, TableOptions); 5] {
    [
        (false, options(Layout::Inline, false).filter_bits(0)),
        (true, options(Layout::TermOrder, false)),
        (false, options(Layout::Perfect, false)),
        (false, options(Layout::Perfect, true).filter_bits(10)),
        (true, options(Layout::Perfect, false)),
    ]
}

fn key(mixed: bool, rng: &mut Rng) -> Vec<u8> {
    let len = if mixed { 8 + rng.below(30) } else { 18 };
    rng.bytes(len)
}

fn model(mixed: bool, keys: u64, rng: &mut Rng) -> Model {
    (0..keys).map(|i| (key(mixed, rng), int(i))).collect()
}

fn with(table: TableOptions, threads: usize) -> WriterOptions {
    WriterOptions::default().table(table).threads(threads)
}

/// One after the other and in batches, on every kernel, in every mode.
#[test]
fn a_table_of_every_kind_on_every_kernel() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let mut rng = Rng(1);
    for (mixed, options) in kinds() {
        let model = model(mixed, 600, &mut rng);
        publish(&path, with(options, 1), slices(&model)).unwrap();
        let mut asked: Vec<(Vec<u8>, Option<u32>)> = model
            .iter()
            .map(|(key, value)| {
                (key.clone(), Some(u32::from_le_bytes(value[..4].try_into().unwrap())))
            })
            .collect();
        asked.extend((0..150).map(|_| (key(mixed, &mut rng), None)));
        rng.shuffle(&mut asked);
        let (keys, expected): (Vec<Vec<u8>>, Vec<Option<u32>>) = asked.into_iter().unzip();
        for (i, kernel) in AnyKernel::available().enumerate() {
            let mode = modes()[i % modes().len()];
            let file = mode.with(OpenOptions::new().kernel(kernel)).open(&path).unwrap();
            on_all_threads(|rng| {
                for _ in 0..30 {
                    let at = rng.below(keys.len());
                    let found = file.get(&keys[at]).unwrap();
                    assert_eq!(found.and_then(Value::doc_id), expected[at]);
                }
                let from = rng.below(keys.len() - 100);
                let (keys, expected) = (&keys[from..from + 100], &expected[from..from + 100]);
                let mut values = vec![None; keys.len()];
                let hits = file.get_batch(keys, &mut values).unwrap();
                let docs = values.iter().map(|value| value.and_then(Value::doc_id));
                assert!(docs.eq(expected.iter().copied()));
                let mut docs = vec![None; keys.len()];
                assert_eq!(file.get_batch(keys, &mut docs).unwrap(), hits);
                assert_eq!(docs, expected);
                // What it holds, too.
                if from % 8 == 0 {
                    file.verify().unwrap();
                    assert_eq!(file.table().iter().count(), model.len());
                }
            });
        }
    }
}

/// What a segment should hold: the docs, and those that are live.
#[derive(Clone)]
struct Docs {
    docs: Arc<BTreeMap<Vec<u8>, u32>>,
    /// Number of docs, also of those that no key has any more.
    all: u32,
    live: BTreeSet<u32>,
    base: u32,
}

/// A set, and what it should answer.
#[derive(Clone)]
struct Snapshot {
    set: SegmentSet,
    /// The newest first.
    docs: Vec<Docs>,
}

/// Keys of the sets: few, so that most are in several segments.
static POOL: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| (0..300).map(|i| format!("order-{i:08}").into_bytes()).collect());

/// Half of the keys of the pool.
fn chosen(rng: &mut Rng) -> BTreeMap<Vec<u8>, u32> {
    POOL.iter().filter(|_| rng.below(2) == 0).cloned().zip(0..).collect()
}

impl Docs {
    fn new(docs: BTreeMap<Vec<u8>, u32>, base: u32) -> Self {
        let live = docs.values().copied().collect();
        Self { all: docs.len() as u32, docs: Arc::new(docs), live, base }
    }

    fn model(&self) -> Model {
        self.docs.iter().map(|(key, doc)| (key.clone(), int(u64::from(*doc)))).collect()
    }

    /// The live doc of a key.
    fn get(&self, key: &[u8]) -> Option<u32> {
        self.docs.get(key).copied().filter(|doc| self.live.contains(doc))
    }

    fn live_docs(&self) -> LiveDocs {
        let deleted: Vec<u32> = (0..self.all).filter(|doc| !self.live.contains(doc)).collect();
        LiveDocs::from_deleted(self.all, &deleted).unwrap()
    }

    /// Deletes some.
    fn delete(&mut self, rng: &mut Rng) {
        self.live.retain(|_| rng.below(4) > 0);
    }
}

impl Snapshot {
    /// Asks for some keys in every way.
    fn check(&self, rng: &mut Rng) {
        let (set, docs) = (&self.set, &self.docs);
        assert_eq!(set.len(), docs.len());
        let mut keys: Vec<Vec<u8>> = (0..40).map(|_| POOL[rng.below(POOL.len())].clone()).collect();
        keys.extend((0..5).map(|_| rng.bytes(14)));
        let expected: Vec<Option<(usize, u32)>> = keys
            .iter()
            .map(|key| {
                let mut live = docs.iter().enumerate();
                live.find_map(|(i, docs)| Some((i, docs.get(key)? + docs.base)))
            })
            .collect();
        let mut answers = vec![None; keys.len()];
        let hits = set.get_batch(&keys, &mut answers).unwrap();
        assert_eq!(hits, expected.iter().flatten().count());
        let mut contained = vec![false; keys.len()];
        assert_eq!(set.get_batch(&keys, &mut contained).unwrap(), hits);
        for (i, key) in keys.iter().enumerate() {
            let is = |answer: Hit<'_>| (answer.segment(), answer.global_doc_id().unwrap());
            assert_eq!(answers[i].map(is), expected[i]);
            assert_eq!(set.get(key).unwrap().map(is), expected[i]);
            assert_eq!(contained[i], expected[i].is_some());
        }
        let found = set.in_set(&keys).unwrap();
        for (number, docs) in docs.iter().enumerate() {
            let expected: BTreeSet<u32> =
                keys.iter().filter_map(|key| Some(docs.get(key)? + docs.base)).collect();
            assert!(found.segment(number).eq(expected));
        }
    }
}

fn open(folder: &Folder, name: &str, docs: &Docs, options: TableOptions, open: Opening) -> Segment {
    let path = folder.path(name);
    publish(&path, with(options, 1), slices(&docs.model())).unwrap();
    Segment::new(open.open(path).unwrap()).with_doc_base(docs.base)
}

/// With a segment map, without one, and with one of the older segments alone; tables of one kind, which a
/// map asks in staged batches, and of all kinds.
#[test]
fn a_set_with_and_without_a_segment_map() {
    let mut rng = Rng(2);
    let folder = Folder::new();
    let kernels: Vec<AnyKernel> = AnyKernel::available().collect();
    for kind in [Some(options(Layout::Perfect, false)), None] {
        let mut docs = Vec::new();
        let mut segments = Vec::new();
        for number in 0..9 {
            let mut mine = Docs::new(chosen(&mut rng), 1000 * number as u32);
            let options = kind.unwrap_or(kinds()[number % 5].1);
            let options_of_file = modes()[number % modes().len()]
                .with(OpenOptions::new().kernel(kernels[number % kernels.len()]));
            let name = format!("{number}-{}.pkh", kind.is_some());
            let segment = open(&folder, &name, &mine, options, options_of_file);
            if number % 3 > 0 {
                mine.delete(&mut rng);
                segments.push(segment.with_live_docs(Arc::new(mine.live_docs())));
            } else {
                segments.push(segment);
            }
            docs.push(mine);
        }
        let plain = SegmentSet::new(segments.clone()).unwrap();
        let mapped = plain.with_segment_map(&SegmentMapOptions::default()).unwrap();
        assert_eq!(mapped.segment_map().unwrap().unmapped, 0);
        let older = SegmentSet::new(&segments[2..]).unwrap();
        let older = older.with_segment_map(&SegmentMapOptions::default()).unwrap();
        let partly = older.with(segments[..2].iter().cloned(), &[]).unwrap();
        assert_eq!(partly.segment_map().unwrap().unmapped, 2);
        for set in [plain, mapped, partly] {
            let snapshot = Snapshot { set, docs: docs.clone() };
            on_all_threads(|rng| snapshot.check(rng));
        }
    }
}

/// A writer adds, deletes, merges, and builds and drops maps, with threads of its own; files are replaced
/// and removed under their readers.
#[test]
fn snapshots_that_a_writer_replaces() {
    let folder = Folder::new();
    let now = RwLock::new(Snapshot { set: SegmentSet::default(), docs: Vec::new() });
    let done = AtomicBool::new(false);
    // Reads that were begun, and that may be: some for each change, so that the writer gets its turns.
    let (reads, allowed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let gate = Barrier::new(THREADS);
    // A thread that fails ends the others, too.
    struct Stop<'d>(&'d AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        for thread in 1..THREADS as u64 {
            let (now, done, reads, allowed, gate) = (&now, &done, &reads, &allowed, &gate);
            scope.spawn(move || {
                let _stop = Stop(done);
                let mut rng = Rng(thread);
                gate.wait();
                let mut held = now.read().unwrap().clone();
                while !done.load(Ordering::Relaxed) {
                    if reads.load(Ordering::Relaxed) >= allowed.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                    // Now and then an old one, whose files are gone, or under the lock.
                    match rng.below(4) {
                        0 => held.check(&mut rng),
                        1 => now.read().unwrap().check(&mut rng),
                        _ => {
                            held = now.read().unwrap().clone();
                            held.check(&mut rng);
                        }
                    }
                }
                // The last one, too.
                now.read().unwrap().check(&mut rng);
            });
        }
        let _stop = Stop(&done);
        gate.wait();
        let mut rng = Rng(0);
        let mut writer = Writer { folder: &folder, files: 0 };
        for step in 0..30 {
            allowed.fetch_add(THREADS, Ordering::Relaxed);
            // No one else writes.
            let mut next = now.read().unwrap().clone();
            match step % 6 {
                0 | 1 => writer.add(&mut next, &mut rng),
                2 => writer.delete(&mut next, &mut rng),
                3 => {
                    let options = SegmentMapOptions::default().threads(4);
                    next.set = next.set.with_segment_map(&options).unwrap();
                }
                4 if next.docs.len() > 3 => writer.merge(&mut next),
                5 if step % 4 == 1 => next.set = next.set.without_segment_map(),
                _ => writer.add(&mut next, &mut rng),
            }
            *now.write().unwrap() = next;
            // Some changes come one right after the other.
            if step % 2 == 0 {
                while reads.load(Ordering::Relaxed) < allowed.load(Ordering::Relaxed)
                    && !done.load(Ordering::Relaxed)
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    });
    // The writer waited for them, if no thread failed.
    assert!(reads.into_inner() >= 29 * THREADS);
    assert!(writer_left_only(&folder, &now.read().unwrap().set));
}

fn writer_left_only(folder: &Folder, set: &SegmentSet) -> bool {
    let paths: BTreeSet<_> =
        set.segments().iter().map(|segment| segment.table().name().to_owned()).collect();
    folder.names().iter().all(|name| paths.contains(&folder.path(name)))
}

struct Writer<'f> {
    folder: &'f Folder,
    files: usize,
}

impl Writer<'_> {
    fn open_options(&self) -> Opening {
        // Windows replaces and removes no file that is mapped.
        let modes = if cfg!(windows) { vec![How::Read] } else { modes() };
        modes[self.files % modes.len()].with(OpenOptions::new())
    }

    fn add(&mut self, next: &mut Snapshot, rng: &mut Rng) {
        let docs = Docs::new(chosen(rng), 0);
        let name = format!("{}.pkh", self.files);
        let segment =
            open(self.folder, &name, &docs, kinds()[self.files % 5].1, self.open_options());
        self.files += 1;
        next.set = next.set.with([segment], &[]).unwrap();
        next.docs.insert(0, docs);
    }

    fn delete(&self, next: &mut Snapshot, rng: &mut Rng) {
        let number = rng.below(next.docs.len());
        next.docs[number].delete(rng);
        let live = Arc::new(next.docs[number].live_docs());
        next.set = next.set.with_live_docs(number, Some(live)).unwrap();
    }

    /// Merges the two oldest over the older one's file, and removes the other's.
    fn merge(&mut self, next: &mut Snapshot) {
        let at = next.docs.len() - 2;
        let inputs: Vec<Segment> = next.set.segments()[at..].to_vec();
        let mut base = 0;
        let mut merge_inputs = Vec::new();
        let mut merged = BTreeMap::new();
        for (input, docs) in inputs.iter().zip(&next.docs[at..]) {
            let (map, end) = DocMap::compacting(Some(&docs.live_docs()), docs.all, base).unwrap();
            for key in docs.docs.keys() {
                if let Some(doc) = docs.get(key) {
                    merged.entry(key.clone()).or_insert(map.get(doc).unwrap() as u32);
                }
            }
            merge_inputs.push(MergeInput::new(input.table()).docs(map));
            base = end;
        }
        let options =
            MergeOptions::default().on_duplicate(OnDuplicate::First).partition_bits(3).threads(4);
        let path = inputs[1].table().name().to_owned();
        merge(&merge_inputs, &path, &options).unwrap();
        std::fs::remove_file(inputs[0].table().name()).unwrap();
        // Docs of keys that the newer input has are no key's.
        let live = merged.values().copied().collect();
        let docs = Docs { docs: Arc::new(merged), all: base, live, base: 0 };
        let segment = Segment::new(self.open_options().open(&path).unwrap())
            .with_live_docs(Arc::new(docs.live_docs()));
        next.set = next.set.merged(&inputs, Some(segment)).unwrap();
        next.docs.truncate(at);
        next.docs.push(docs);
    }
}

/// The bytes and maps of many threads are those of one.
#[test]
fn builds_of_many_threads() {
    let folder = Folder::new();
    let mut rng = Rng(3);
    let reports = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&reports);
    let progress = Progress::default().reported_to(move |done, all| {
        assert!(done <= all);
        seen.fetch_add(1, Ordering::Relaxed);
    });

    // The streaming writer; keys that outgrow its budget.
    let mut tables = Vec::new();
    for (number, (mixed, table)) in kinds().into_iter().enumerate() {
        let table = table.partition_bits(4);
        let model = model(mixed, 3000, &mut rng);
        let (_, bytes) = build_bytes(with(table, 1), slices(&model)).unwrap();
        let options = with(table, 8).progress(progress.clone());
        let path = folder.path(&format!("{number}.pkh"));
        publish(&path, options, slices(&model)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        tables.push((mixed, path));
    }
    let long: Vec<Vec<u8>> = (0..20_000).map(|_| rng.bytes(500)).collect();
    let table = TableOptions::default().partition_bits(3);
    let budget = with(table, 8).memory(pkhash_std::MIN_MEMORY);
    let value = int(7);
    let pairs = || long.iter().map(|key| (key.as_slice(), value.as_slice()));
    let (built, spilled) = build_bytes(budget, pairs()).unwrap();
    assert!(built.spilled > 0);
    assert!(build_bytes(with(table, 1), pairs()).unwrap().1 == spilled);

    // From keys in memory, in chunks of 65,536.
    let keys: Vec<[u8; 9]> = (0..140_000)
        .map(|_| rng.bytes(9).try_into().unwrap())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let options = with(TableOptions::default(), 8).progress(progress.clone());
    let path = folder.path("slice.pkh");
    build_slice(&keys, |i| (i as u32).to_le_bytes(), &path, &options).unwrap();
    let mut bytes = Vec::new();
    let alone = with(TableOptions::default(), 1);
    build_slice(&keys, |i| (i as u32).to_le_bytes(), &mut bytes, &alone).unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes);

    // Merges, several of the same inputs at once.
    let inputs: Vec<TableFile> = tables
        .iter()
        .filter(|(mixed, _)| !mixed)
        .map(|(_, path)| TableFile::open(path).unwrap())
        .collect();
    let merge_inputs: Vec<MergeInput<'_>> = inputs.iter().map(MergeInput::new).collect();
    let merged = |threads| {
        let options =
            MergeOptions::default().partition_bits(4).threads(threads).progress(progress.clone());
        let mut out = Vec::new();
        merge(&merge_inputs, &mut out, &options).unwrap();
        out
    };
    let expected = merged(1);
    // With a pool of the caller's.
    for threads in [1, 3] {
        let lent = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(lent.install(|| merged(0)) == expected);
    }
    std::thread::scope(|scope| {
        for threads in [0, 2, 3, 8] {
            let (merged, expected) = (&merged, &expected);
            scope.spawn(move || assert!(merged(threads) == *expected));
        }
    });

    // Segment maps, several of one set at once, in one round and in many.
    let paths = tables.iter().map(|(_, path)| path).chain([&path]);
    let set = SegmentSet::open(paths).unwrap();
    let one = SegmentMapOptions::default().threads(1).seed(1);
    let alone = set.with_segment_map(&one).unwrap();
    std::thread::scope(|scope| {
        for memory in [1 << 20, 1 << 18, 1 << 28] {
            let (set, alone, progress, keys) = (&set, &alone, &progress, &keys);
            scope.spawn(move || {
                let progress = progress.clone();
                let options = SegmentMapOptions::default()
                    .threads(8)
                    .memory(memory)
                    .progress(progress)
                    .seed(1);
                let mapped = set.with_segment_map(&options).unwrap();
                assert_eq!(mapped.segment_map(), alone.segment_map());
                let keys = &keys[..2000];
                let (mut found, mut expected) = (vec![None::<Hit<'_>>; 2000], vec![None; 2000]);
                assert_eq!(mapped.get_batch(keys, &mut found).unwrap(), keys.len());
                alone.get_batch(keys, &mut expected).unwrap();
                assert_eq!(found, expected);
            });
        }
    });
    assert!(reports.load(Ordering::Relaxed) > 0);
}

/// Another thread's flag ends builds, merges and maps, and nothing is left of them.
#[test]
fn cancelled_by_another_thread() {
    let folder = Folder::new();
    let mut rng = Rng(4);
    let model = model(false, 4000, &mut rng);
    let table = TableOptions::default().partition_bits(6);
    let path = folder.path("table.pkh");
    publish(&path, with(table, 1), slices(&model)).unwrap();
    let file = TableFile::open(&path).unwrap();
    let set = SegmentSet::new([Segment::new(TableFile::open(&path).unwrap())]).unwrap();
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    let out = folder.path("out.pkh");
    // The flag is set while the work waits in a report of its progress.
    let cancelled = |work: &dyn Fn(Progress) -> Option<Error>| {
        let (begun, flag) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
        let first = AtomicBool::new(true);
        let progress = {
            let (begun, flag) = (Arc::clone(&begun), Arc::clone(&flag));
            Progress::default().cancelled_by(Arc::clone(&flag)).reported_to(move |_, _| {
                if first.swap(false, Ordering::Relaxed) {
                    begun.wait();
                    while !flag.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                }
            })
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                begun.wait();
                flag.store(true, Ordering::Relaxed);
            });
            let error = work(progress).expect("not cancelled");
            assert!(matches!(error, Error::Cancelled), "{error}");
        });
        assert_eq!(folder.names(), ["table.pkh"]);
    };
    cancelled(&|progress| {
        let options = with(table, 4).progress(progress);
        build_slice(&keys, |i| (i as u32).to_le_bytes(), &out, &options).err()
    });
    cancelled(&|progress| publish(&out, with(table, 4).progress(progress), slices(&model)).err());
    cancelled(&|progress| {
        let options = MergeOptions::default().partition_bits(6).threads(4).progress(progress);
        merge(&[MergeInput::new(&file)], &out, &options).err()
    });
    cancelled(&|progress| {
        set.with_segment_map(&SegmentMapOptions::default().threads(4).progress(progress)).err()
    });
}

/// The ordered companion: sorted by many threads, read by many.
#[cfg(feature = "ordered")]
#[test]
fn a_companion() {
    use pkhash_std::{CompanionOptions, OrderedOptions, OrderedTerms, build_companion};

    let folder = Folder::new();
    let mut rng = Rng(5);
    let model = model(true, 5000, &mut rng);
    let path = folder.path("table.pkh");
    let table = TableOptions::default().partition_bits(5);
    publish(&path, with(table, 4), slices(&model)).unwrap();
    let file = TableFile::open(&path).unwrap();
    let built = |name, threads| {
        let options = CompanionOptions::default().threads(threads);
        build_companion(&file, folder.path(name), &options).unwrap();
        folder.read(name)
    };
    let expected = built("one.fst", 1);
    std::thread::scope(|scope| {
        for name in ["two.fst", "three.fst", "four.fst"] {
            let (built, expected) = (&built, &expected);
            scope.spawn(move || assert!(built(name, 8) == *expected));
        }
    });
    let terms: OrderedTerms =
        OrderedOptions::new().open(folder.path("two.fst"), file.table()).unwrap();
    let docs: Vec<(&Vec<u8>, u64)> = model
        .iter()
        .map(|(key, value)| (key, u64::from_le_bytes(value.as_slice().try_into().unwrap())))
        .collect();
    on_all_threads(|rng| {
        for _ in 0..20 {
            let at = rng.below(docs.len() - 20);
            assert_eq!(terms.get(docs[at].0), Some(docs[at].1));
            let range = docs[at].0.as_slice()..docs[at + 20].0.as_slice();
            let mut found = terms.range(range);
            for (key, doc) in &docs[at..at + 20] {
                assert_eq!(found.advance(), Some((key.as_slice(), *doc)));
            }
            assert_eq!(found.advance(), None);
        }
    });
}
