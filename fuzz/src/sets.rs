//! Segment sets against the model of the property tests (`pkhash-std/testing/src/sets.rs`).

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use pkhash_core::KeyHasher;
use pkhash_simd::AnyKernel;
use pkhash_std::OpenOptions;

use crate::{How, Key};
use pkhash_testing::sets::{Model, Parts, Snapshot, Step};
use pkhash_testing::{Rng, modes};

/// Keys, segments that have some of them, and what becomes of the set.
#[derive(Arbitrary, Debug)]
pub struct Sets {
    pool: Vec<Key>,
    versions: bool,
    /// Of 4 hashers, how many there are.
    hashers: u8,
    seed: u64,
    segments: Vec<Held>,
    /// The same tables over and over: more segments than one byte tells apart.
    many: bool,
    steps: Vec<Change>,
    /// Which keys are asked together, in which order.
    order: u64,
}

/// A segment.
#[derive(Arbitrary, Debug)]
struct Held {
    /// Number of a key in the pool, doc, version.
    keys: Vec<(u8, u8, u8)>,
    /// Whether it has all keys of the pool, too.
    all: bool,
    how: How,
    doc_base: u16,
    slack: Option<u8>,
    live: Option<Live>,
    open: u8,
}

/// Docs that are live: up to a largest one, but for some.
#[derive(Arbitrary, Debug)]
struct Live {
    known: u8,
    deleted: Vec<u8>,
}

impl Live {
    fn docs(&self) -> BTreeSet<u32> {
        let known = (0..=self.known).filter(|doc| !self.deleted.contains(doc));
        known.map(u32::from).collect()
    }
}

/// What makes the next snapshot.
#[derive(Arbitrary, Debug)]
enum Change {
    With { added: Vec<Held>, removed: Vec<u8> },
    Merged { inputs: Vec<u8>, output: Option<Held> },
    LiveDocs { segment: u8, live: Option<Live> },
    Map { two_threads: bool, memory: u16 },
    NoMap,
}

impl Sets {
    /// `None`: no table can be made of it.
    fn model(&self, held: &Held, pool: &[Vec<u8>]) -> Option<Model> {
        let mut docs = BTreeMap::new();
        if held.all {
            docs.extend(pool.iter().cloned().zip((0..).map(|doc| (doc, 0))));
        }
        for (key, doc, version) in held.keys.iter().take(200) {
            let key = pool[usize::from(*key) % pool.len()].clone();
            docs.insert(key, (u32::from(*doc), u64::from(*version)));
        }
        // Sets of one hasher are asked in another way than those of several.
        let which = held.how.seed % u64::from(1 + self.hashers % 4);
        let hasher = match which {
            0 => KeyHasher::new(0),
            1 => KeyHasher::new(self.seed),
            // Of all keys, or of some: with many segments the map's lines are not enough for them.
            2 => KeyHasher::truncated(self.seed, 0),
            _ => KeyHasher::truncated(self.seed, 8),
        };
        let options = held.how.options(hasher);
        let partition_bits = options.partition_bits.map(|bits| bits % 5);
        let (modes, kernels) = (modes(), AnyKernel::available().collect::<Vec<_>>());
        let open = usize::from(held.open);
        let kernel = kernels[open / modes.len() % kernels.len()];
        let open = modes[open % modes.len()].with(OpenOptions::new().kernel(kernel));
        Model::new(Parts {
            docs,
            versions: self.versions,
            options: options.partition_bits(partition_bits),
            open,
            doc_base: held.doc_base.into(),
            slack: held.slack.map(u64::from),
            live: held.live.as_ref().map(Live::docs),
        })
        .ok()
    }

    fn step(&self, change: &Change, pool: &[Vec<u8>]) -> Step {
        let numbers = |numbers: &[u8]| numbers.iter().map(|n| usize::from(*n)).collect();
        match change {
            Change::With { added, removed } => {
                let added = added.iter().take(3).filter_map(|held| self.model(held, pool));
                Step::With { added: added.collect(), removed: numbers(removed) }
            }
            Change::Merged { inputs, output } => {
                let output = output.as_ref().and_then(|held| self.model(held, pool));
                Step::Merged { inputs: numbers(inputs), output }
            }
            Change::LiveDocs { segment, live } => {
                let live = live.as_ref().map(Live::docs);
                Step::LiveDocs { segment: (*segment).into(), live }
            }
            Change::Map { two_threads, memory } => {
                Step::Map { threads: 1 + usize::from(*two_threads), memory: (*memory).into() }
            }
            Change::NoMap => Step::NoMap,
        }
    }
}

/// Every snapshot of a set answers as the model does, also when there are newer ones.
pub fn set(sets: &Sets) {
    let mut pool: Vec<Vec<u8>> = sets.pool.iter().take(60).map(Key::bytes).collect();
    if pool.is_empty() {
        pool.push(Vec::new());
    }
    let held = sets.segments.iter().take(10);
    let models: Vec<Model> = held.filter_map(|held| sets.model(held, &pool)).collect();
    let number = if sets.many && !models.is_empty() { 260 } else { models.len() };
    let mut now = Snapshot::new(models.iter().cycle().take(number).cloned().collect());
    let mut rng = Rng(sets.order);
    now.check(&pool, sets.versions, &mut rng);
    for change in sets.steps.iter().take(if number > models.len() { 2 } else { 8 }) {
        let next = now.step(sets.step(change, &pool));
        next.check(&pool, sets.versions, &mut rng);
        // Who holds the old one goes on to see what it held.
        now.check(&pool, sets.versions, &mut rng);
        now = next;
    }
}
