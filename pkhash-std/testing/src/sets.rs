//! Segment sets and what they should answer: for the tests of `set.rs`, and for the fuzz target `set`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pkhash_std::{
    Error, Hit, LiveDocs, Result, Segment, SegmentMapOptions, SegmentSet, TableFile, TableOptions,
    VERSIONED_WIDTH, ValueChoice, ValueFormat, VersionedHit, WriterOptions, versioned_value,
};
use roaring::RoaringBitmap;

use crate::opening::Opening;
use crate::{Folder, Rng, build_bytes, of_slice};

pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

pub fn versioned() -> ValueChoice {
    ValueChoice::Fixed(ValueFormat::opaque(VERSIONED_WIDTH).unwrap())
}

pub fn try_table_with(
    options: TableOptions,
    pairs: &Pairs,
    open: impl Into<Opening>,
) -> Result<TableFile> {
    let folder = Folder::new();
    let options = WriterOptions::default().table(options).threads(1);
    let (_, bytes) = build_bytes(options, of_slice(pairs))?;
    open.into().open(folder.write("segment.pkh", bytes))
}

pub fn table_with(options: TableOptions, pairs: &Pairs, open: impl Into<Opening>) -> TableFile {
    try_table_with(options, pairs, open).unwrap()
}

/// What a segment is made of.
pub struct Parts {
    /// For each key, doc and version.
    pub docs: BTreeMap<Vec<u8>, (u32, u64)>,
    /// Whether the table has the versions.
    pub versions: bool,
    /// How the table is made; the values are as `versions` says.
    pub options: TableOptions,
    pub open: Opening,
    pub doc_base: u32,
    /// How much greater than its greatest version the segment says that it is; `None`: says nothing.
    pub slack: Option<u64>,
    /// `None`: all are.
    pub live: Option<BTreeSet<u32>>,
}

/// A segment, and what it should hold.
#[derive(Clone)]
pub struct Model {
    pub segment: Segment,
    pub docs: BTreeMap<Vec<u8>, (u32, u64)>,
    /// `None`: all are.
    pub live: Option<BTreeSet<u32>>,
}

impl Model {
    /// A segment of these parts, unless no table can be made of them.
    pub fn new(parts: Parts) -> Result<Self> {
        let Parts { docs, versions, options, open, doc_base, slack, live } = parts;
        let value = if versions { versioned() } else { ValueChoice::Auto };
        let pairs: Pairs = docs
            .iter()
            .map(|(key, (doc, version))| {
                let value = match versions {
                    true => versioned_value(*doc, *version).to_vec(),
                    false => u64::from(*doc).to_le_bytes().to_vec(),
                };
                (key.clone(), value)
            })
            .collect();
        let table = try_table_with(options.value(value), &pairs, open)?;
        let mut segment = Segment::new(table).with_doc_base(doc_base);
        if let Some(slack) = slack.filter(|_| versions) {
            let max = segment.table().max_version().unwrap();
            assert_eq!(max, docs.values().map(|(_, version)| *version).max());
            // More than it has is right, too.
            segment = segment.with_max_version(max.unwrap_or(0).saturating_add(slack));
        }
        let segment = segment.with_live_docs(live.as_ref().map(live_docs));
        Ok(Self { segment, docs, live })
    }

    pub fn live_match(&self, key: &[u8]) -> Option<(u32, u64)> {
        let found = self.docs.get(key).copied();
        found.filter(|(doc, _)| self.live.as_ref().is_none_or(|live| live.contains(doc)))
    }
}

/// Live docs that know no more docs than up to the last live one: those beyond count as deleted.
fn live_docs(live: &BTreeSet<u32>) -> Arc<LiveDocs> {
    let known = live.last().map_or(0, |last| last + 1);
    let bitmap: RoaringBitmap = live.iter().copied().collect();
    Arc::new(LiveDocs::from_live_bitmap(known, &bitmap).unwrap())
}

/// What should be answered: segment, value's doc and version.
pub fn newest(models: &[Model], key: &[u8]) -> Option<(usize, u32, u64)> {
    models.iter().enumerate().find_map(|(i, model)| {
        let (doc, version) = model.live_match(key)?;
        Some((i, doc, version))
    })
}

pub fn version_of(answer: Hit<'_>) -> u64 {
    u64::from_le_bytes(answer.value().as_bytes()[4..].try_into().unwrap())
}

/// Doc IDs are those of the answers; a match that has none is an error.
fn check_doc_ids(set: &SegmentSet, batch: &[Vec<u8>], expected: &[Option<Hit<'_>>]) {
    let doc_id = |answer: &Option<Hit<'_>>| answer.map(Hit::global_doc_id);
    let mut out = vec![Some(u32::MAX); batch.len()];
    let found = set.get_batch(batch, &mut out);
    if expected.iter().any(|answer| doc_id(answer) == Some(None)) {
        assert!(matches!(found, Err(Error::NoDocId { .. })), "{found:?}");
    } else {
        assert_eq!(found.unwrap(), expected.iter().flatten().count());
        assert!(out.iter().copied().eq(expected.iter().map(|answer| doc_id(answer).flatten())));
    }
    for (key, answer) in batch.iter().zip(expected) {
        match (set.get_doc_id(key), doc_id(answer)) {
            (Err(Error::NoDocId { .. }), Some(None)) => {}
            (found, doc_id) => assert_eq!(found.unwrap(), doc_id.flatten()),
        }
    }
}

/// All ways to ask.
pub fn check(set: &SegmentSet, models: &[Model], pool: &[Vec<u8>], versions: bool, rng: &mut Rng) {
    let single = |key: &[u8]| {
        let found = set.get(key).unwrap();
        let expected = newest(models, key);
        let seen = found.map(|found| {
            let version = if versions { version_of(found) } else { 0 };
            (found.segment(), found.doc_id().unwrap(), version)
        });
        let expected_seen = expected.map(|(i, doc, v)| (i, doc, if versions { v } else { 0 }));
        assert_eq!(seen, expected_seen, "{key:02x?}");
        if let Some(found) = found {
            let base = set.segments()[found.segment()].doc_base();
            assert_eq!(found.global_doc_id(), Some(found.doc_id().unwrap() + base));
        }
        found
    };
    // Hits, misses and repeats in any order.
    for n in [0, 1, pool.len(), 3 * pool.len()] {
        let mut batch: Vec<Vec<u8>> = Vec::new();
        for _ in 0..n {
            let mut key = pool[rng.below(pool.len())].clone();
            match rng.below(8) {
                0 => key.push(0),
                1 => key.clear(),
                _ => {}
            }
            batch.push(key);
        }
        let expected: Vec<Option<Hit<'_>>> = batch.iter().map(|key| single(key)).collect();
        // Not what is expected, so that every place must be written.
        let mut out = vec![pool.iter().find_map(|key| set.get(key).unwrap()); n];
        let found = set.get_batch(&batch, &mut out).unwrap();
        assert_eq!(out, expected);
        assert_eq!(found, expected.iter().flatten().count());
        let mut contained = vec![rng.below(2) == 0; n];
        assert_eq!(set.get_batch(&batch, &mut contained).unwrap(), found);
        assert!(contained.iter().copied().eq(expected.iter().map(Option::is_some)));
        check_doc_ids(set, &batch, &expected);

        let in_set = set.in_set(&batch).unwrap();
        let mut all = BTreeSet::new();
        let mut in_order = Vec::new();
        for (i, model) in models.iter().enumerate() {
            let docs: BTreeSet<u32> = batch
                .iter()
                .filter_map(|key| model.live_match(key))
                .map(|(doc, _)| doc + model.segment.doc_base())
                .collect();
            assert!(in_set.segment(i).eq(docs.iter().copied()), "in-set query, segment {i}");
            assert!(in_set.segment_bitmap(i).iter().eq(docs.iter().copied()));
            in_order.extend(docs.iter().copied());
            all.extend(docs);
        }
        assert!(in_set.iter().eq(in_order.iter().copied()));
        assert_eq!((in_set.len(), in_set.is_empty()), (in_order.len(), in_order.is_empty()));
        assert_eq!(in_set.segment(models.len()).len(), 0);
        assert!(in_set.bitmap().iter().eq(all));
    }
    if versions {
        for key in pool.iter().take(60) {
            let matches = models.iter().enumerate().filter_map(|(i, model)| {
                let (doc, version) = model.live_match(key)?;
                Some((i, doc, version))
            });
            // The newest of the highest.
            let best = matches.reduce(|a, b| if b.2 > a.2 { b } else { a });
            let seen = |found: Option<VersionedHit<'_>>| {
                found.map(|found| {
                    assert_eq!(version_of(found.hit()), found.version());
                    (found.hit().segment(), found.hit().doc_id().unwrap(), found.version())
                })
            };
            assert_eq!(seen(set.get_highest_version(key).unwrap()), best);
            for version in [0, 5, 18, 19, u64::MAX] {
                let newer = best.filter(|best| best.2 > version);
                assert_eq!(seen(set.get_newer_than(key, version).unwrap()), newer);
            }
        }
    }
}

/// What makes one snapshot of another. A number of a segment that the snapshot has not is that of one
/// which is gone.
pub enum Step {
    With { added: Vec<Model>, removed: Vec<usize> },
    Merged { inputs: Vec<usize>, output: Option<Model> },
    LiveDocs { segment: usize, live: Option<BTreeSet<u32>> },
    Map { threads: usize, memory: usize },
    NoMap,
}

/// A snapshot, and what it should answer.
#[derive(Clone, Default)]
pub struct Snapshot {
    pub set: SegmentSet,
    /// The newest first; whether the segment map has it.
    models: Vec<(Model, bool)>,
    /// Keys of the segments that the map was made of.
    entries: u64,
    /// Segments that earlier snapshots had.
    gone: Vec<Segment>,
}

impl Snapshot {
    pub fn new(models: Vec<Model>) -> Self {
        let segments: Vec<Segment> = models.iter().map(|model| model.segment.clone()).collect();
        let set = SegmentSet::new(segments).unwrap();
        let models = models.into_iter().map(|model| (model, false)).collect();
        Self { set, models, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Of this snapshot, or gone. `None`: there is none at all.
    fn segment(&self, number: usize) -> Option<Segment> {
        match self.models.get(number) {
            Some((model, _)) => Some(model.segment.clone()),
            None => {
                let n = self.gone.len().max(1);
                self.gone.get((number - self.models.len()) % n).cloned()
            }
        }
    }

    fn segments(&self, numbers: &[usize]) -> Vec<Segment> {
        numbers.iter().filter_map(|number| self.segment(*number)).collect()
    }

    fn has(&self, segment: &Segment) -> bool {
        self.models.iter().any(|(model, _)| model.segment.is_same_table(segment))
    }

    /// The next snapshot. This one stays as it is.
    pub fn step(&self, step: Step) -> Self {
        let mut next = self.clone();
        match step {
            Step::With { added, removed } => {
                let removed = self.segments(&removed);
                let new: Vec<Segment> = added.iter().map(|model| model.segment.clone()).collect();
                next.set = self.set.with(new, &removed).unwrap();
                next.take_out(&removed);
                next.models.splice(0..0, added.into_iter().map(|model| (model, false)));
            }
            Step::Merged { inputs, output } => {
                let inputs = self.segments(&inputs);
                let segment = output.as_ref().map(|model| model.segment.clone());
                let merged = self.set.merged(&inputs, segment);
                if let Some(missing) = inputs.iter().position(|input| !self.has(input)) {
                    let error = merged.unwrap_err();
                    assert!(matches!(error, Error::NotInSet { input, .. } if input == missing));
                    return next;
                }
                next.set = merged.unwrap();
                let place = next.take_out(&inputs);
                next.models.splice(place..place, output.map(|model| (model, false)));
            }
            Step::LiveDocs { segment, live } => {
                let docs = live.as_ref().map(live_docs);
                let changed = self.set.with_live_docs(segment, docs.clone());
                let Some((model, _)) = next.models.get_mut(segment) else {
                    let (error, n) = (changed.unwrap_err(), self.len());
                    assert!(matches!(
                        error,
                        Error::NoSuchSegment { expected, found } if (expected, found) == (n, segment)
                    ));
                    return next;
                };
                next.set = changed.unwrap();
                model.segment = model.segment.clone().with_live_docs(docs);
                model.live = live;
            }
            Step::Map { threads, memory } => {
                let seed = Some(memory as u64);
                let options =
                    SegmentMapOptions::default().threads(threads).memory(memory).seed(seed);
                next.set = self.set.with_segment_map(&options).unwrap();
                next.models.iter_mut().for_each(|(_, mapped)| *mapped = true);
                next.entries = next.set.keys();
            }
            Step::NoMap => {
                next.set = self.set.without_segment_map();
                next.models.iter_mut().for_each(|(_, mapped)| *mapped = false);
            }
        }
        next
    }

    /// Takes segments out. Returns where the newest of them was; of none: behind all.
    fn take_out(&mut self, segments: &[Segment]) -> usize {
        let is_out = |(model, _): &(Model, bool)| {
            segments.iter().any(|segment| model.segment.is_same_table(segment))
        };
        let place = self.models.iter().position(is_out).unwrap_or(self.models.len());
        self.gone.extend(self.models.extract_if(.., |model| is_out(model)).map(|(m, _)| m.segment));
        place
    }

    /// [`check`], and the segments and facts of the set.
    pub fn check(&self, pool: &[Vec<u8>], versions: bool, rng: &mut Rng) {
        let set = &self.set;
        assert_eq!((set.len(), set.is_empty()), (self.models.len(), self.models.is_empty()));
        for (found, (model, _)) in set.segments().iter().zip(&self.models) {
            assert!(found.is_same_table(&model.segment));
        }
        let keys = |(model, _): &(Model, bool)| model.docs.len() as u64;
        assert_eq!(set.keys(), self.models.iter().map(keys).sum::<u64>());
        let (mapped, unmapped): (Vec<_>, Vec<_>) =
            self.models.iter().partition(|(_, mapped)| *mapped);
        let stale = |keys: u64| self.entries - keys;
        // A map of nothing is no map.
        let expected = (!mapped.is_empty()).then(|| {
            let stale = stale(mapped.iter().copied().map(keys).sum());
            (self.entries, mapped.len(), unmapped.len(), stale)
        });
        let found = set.segment_map().map(|map| (map.entries, map.mapped, map.unmapped, map.stale));
        assert_eq!(found, expected);
        let models: Vec<Model> = self.models.iter().map(|(model, _)| model.clone()).collect();
        check(set, &models, pool, versions, rng);
    }
}
