//! Readers and writers of one set, all at once.

use super::*;

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
                1 => now.set.with_segment_map(&options).unwrap(),
                _ => now.set.with_more_segment_map(&options).unwrap(),
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
