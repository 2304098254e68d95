//! Folders with a manifest: adds, deletes, merges and commits against a model; who may do what at the same time; what
//! is removed and when.

mod damage;
mod files;
mod golden;

use std::collections::BTreeMap;

use pkhash_std::{
    Error, Hit, Index, IndexMerge, IndexWriter, MergeOptions, Merged, MergedTable, Snapshot,
    TieredPolicy, WriterOptions,
};
use pkhash_testing::{Folder, Rng};

type Key = Vec<u8>;

/// A segment: the key of each doc, and whether it is live. A doc may have lost its key to a newer one in a merge.
#[derive(Clone, Debug, Default)]
struct Docs(Vec<(Option<Key>, bool)>);

/// The newest first.
#[derive(Clone, Debug, Default)]
struct State(Vec<(String, Docs)>);

impl State {
    fn delete(&mut self, keys: &[Key]) -> u64 {
        let mut deleted = 0;
        for (_, docs) in &mut self.0 {
            for (key, live) in &mut docs.0 {
                if *live && key.as_ref().is_some_and(|key| keys.contains(key)) {
                    *live = false;
                    deleted += 1;
                }
            }
        }
        deleted
    }

    fn merged(&mut self, merged: &Merged) {
        let at = self.0.iter().position(|(name, _)| *name == merged.inputs[0]).unwrap();
        let inputs: Vec<(String, Docs)> = self.0.drain(at..at + merged.inputs.len()).collect();
        let mut output: BTreeMap<u64, (Option<Key>, bool)> = BTreeMap::new();
        let mut seen = Vec::new();
        for ((name, docs), (input, map)) in
            inputs.into_iter().zip(merged.inputs.iter().zip(&merged.doc_maps))
        {
            assert_eq!(name, *input);
            for (doc, (key, live)) in docs.0.into_iter().enumerate() {
                let Some(new) = map.get(doc as u32) else {
                    assert!(!live, "doc {doc} of {name} was live, and has gone");
                    continue;
                };
                // Of a key that was live in several when the merge began the newest stays.
                let key = key.filter(|key| !seen.contains(key));
                seen.extend(key.clone());
                assert!(output.insert(new, (key, live)).is_none(), "two docs became {new}");
            }
        }
        assert!(output.keys().copied().eq(0..output.len() as u64), "no gaps");
        self.0.insert(at, (merged.output.clone(), Docs(output.into_values().collect())));
    }

    /// What commits drop.
    fn drop_dead(&mut self, in_merge: &[String]) {
        self.0.retain(|(name, docs)| {
            let has_key = docs.0.iter().any(|(key, _)| key.is_some());
            let dead = docs.0.iter().all(|(_, live)| !live) || !has_key;
            !dead || in_merge.contains(name)
        });
    }

    fn check(&self, snapshot: &Snapshot, keys: &[Key]) {
        let names: Vec<&str> = snapshot.segments().map(|segment| segment.name).collect();
        assert_eq!(names, self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
        let mut bases = vec![0u32; self.0.len()];
        for i in (0..self.0.len().saturating_sub(1)).rev() {
            bases[i] = bases[i + 1] + self.0[i + 1].1.0.len() as u32;
        }
        for (segment, ((_, docs), base)) in snapshot.segments().zip(self.0.iter().zip(&bases)) {
            assert_eq!(segment.docs, Some(docs.0.len() as u32));
            assert_eq!(segment.deleted as usize, docs.0.iter().filter(|(_, live)| !live).count());
            assert_eq!(segment.doc_base, *base);
        }
        let mut answers = vec![None::<Hit<'_>>; keys.len()];
        let set = snapshot.set();
        set.get_batch(keys, &mut answers).unwrap();
        for (key, answer) in keys.iter().zip(answers) {
            let matches = self.0.iter().enumerate().flat_map(|(i, (_, docs))| {
                let is_match = move |(_, doc): &(usize, &(Option<Key>, bool))| {
                    doc.1 && doc.0.as_ref() == Some(key)
                };
                docs.0.iter().enumerate().filter(is_match).map(move |(doc, _)| (i, doc as u32))
            });
            let matches: Vec<(usize, u32)> = matches.collect();
            let expected = matches.first().copied();
            assert_eq!(answer.map(|hit| (hit.segment(), hit.doc_id().unwrap())), expected);
            let single = set.get(key).unwrap();
            assert_eq!(single, answer);
            let global: Vec<u32> = matches.iter().map(|(i, doc)| bases[*i] + doc).collect();
            assert_eq!(set.get_doc_id(key).unwrap(), global.first().copied());
            assert!(set.in_set(&[key]).unwrap().iter().eq(global));
        }
    }
}

fn key(rng: &mut Rng) -> Key {
    format!("key-{}", rng.below(120)).into_bytes()
}

/// Distinct ones.
fn some_keys(rng: &mut Rng, most: usize) -> Vec<Key> {
    let mut keys: Vec<Key> = (0..rng.below(most + 1)).map(|_| key(rng)).collect();
    keys.sort();
    keys.dedup();
    // Docs in no order of keys.
    for i in (1..keys.len()).rev() {
        keys.swap(i, rng.below(i + 1));
    }
    keys
}

fn options() -> WriterOptions {
    WriterOptions::default().threads(1)
}

fn merge_options() -> MergeOptions {
    MergeOptions::default().threads(1)
}

/// An index, its writer, and what both should have.
struct Tried {
    folder: Folder,
    index: Index,
    writer: Option<IndexWriter>,
    /// As the writer has it.
    state: State,
    committed: State,
    merges: Vec<(IndexMerge, Option<MergedTable>)>,
    /// Snapshots that are held, and what they must go on to answer.
    held: Vec<(Snapshot, State)>,
}

impl Tried {
    fn new() -> Self {
        let folder = Folder::new();
        let index = Index::create(folder.path("index")).unwrap();
        let writer = Some(index.writer().unwrap());
        let (state, committed, merges, held) = Default::default();
        Self { folder, index, writer, state, committed, merges, held }
    }

    fn newest_name(&self) -> String {
        let set = self.writer.as_ref().unwrap().set().unwrap();
        let name = set.segments()[0].table().name().file_name().unwrap();
        name.to_str().unwrap().to_owned()
    }

    fn added(&mut self, keys: Vec<Key>) {
        let name = self.newest_name();
        let docs = keys.into_iter().map(|key| (Some(key), true)).collect();
        self.state.0.insert(0, (name, Docs(docs)));
    }

    fn step(&mut self, rng: &mut Rng) {
        let writer = self.writer.as_mut().unwrap();
        match rng.below(13) {
            0..=2 => {
                let keys = some_keys(rng, 40);
                writer.add_keys(&keys, options()).unwrap();
                self.added(keys);
            }
            3 => {
                let keys = some_keys(rng, 40);
                let path = self.folder.path("outside.pkh");
                pkhash_std::build_slice(&keys, |i| (i as u32).to_le_bytes(), &path, &options())
                    .unwrap();
                let deleted = writer.replace(&path).unwrap();
                assert_eq!(deleted, self.state.delete(&keys));
                std::fs::remove_file(&path).unwrap();
                self.added(keys);
            }
            4 | 5 => {
                let keys = some_keys(rng, 25);
                assert_eq!(writer.delete(&keys).unwrap(), self.state.delete(&keys));
            }
            6 => {
                let policy = TieredPolicy::default()
                    .segments_per_tier(2 + rng.below(3))
                    .floor_keys(1 + rng.below(40) as u64);
                for merged in writer.merge(&policy, &merge_options()).unwrap() {
                    self.state.merged(&merged);
                }
            }
            7 if !self.state.0.is_empty() => {
                let first = rng.below(self.state.0.len());
                let n = 1 + rng.below(self.state.0.len() - first);
                match writer.begin_merge(first..first + n) {
                    Ok(merge) => self.merges.push((merge, None)),
                    Err(Error::InMerge { .. }) => assert!(!self.merges.is_empty()),
                    Err(error) => panic!("{error}"),
                }
            }
            8 if !self.merges.is_empty() => {
                let i = rng.below(self.merges.len());
                let (merge, done) = &mut self.merges[i];
                if done.is_none() {
                    *done = Some(merge.run(&merge_options()).unwrap());
                }
            }
            9 if !self.merges.is_empty() => {
                let (merge, done) = self.merges.swap_remove(rng.below(self.merges.len()));
                match done {
                    Some(table) => {
                        let merged = writer.finish_merge(table).unwrap();
                        self.state.merged(&merged);
                    }
                    None => writer.cancel_merge(&merge),
                }
            }
            10 if rng.below(4) == 0 => {
                // A writer that is dropped leaves what was committed.
                self.merges.clear();
                self.writer = None;
                if rng.below(2) == 0 {
                    self.index = Index::open(self.folder.path("index")).unwrap();
                }
                self.writer = Some(self.index.writer().unwrap());
                self.state = self.committed.clone();
            }
            _ => {
                let before = self.index.snapshot().number();
                let number = writer.commit().unwrap();
                let names =
                    |merge: &IndexMerge| merge.inputs().map(str::to_owned).collect::<Vec<_>>();
                let in_merge: Vec<String> =
                    self.merges.iter().flat_map(|(merge, _)| names(merge)).collect();
                let unchanged = number == before;
                if !unchanged {
                    self.state.drop_dead(&in_merge);
                }
                self.committed = self.state.clone();
                self.index.refresh().unwrap();
                let snapshot = self.index.snapshot();
                assert_eq!(snapshot.number(), number);
                if rng.below(3) == 0 {
                    self.held.push((snapshot, self.committed.clone()));
                }
                if self.held.len() > 4 {
                    self.held.remove(rng.below(5));
                }
            }
        }
    }
}

#[test]
fn an_index_answers_as_a_model_does() {
    let all: Vec<Key> = (0..130).map(|i| format!("key-{i}").into_bytes()).collect();
    for seed in 0..12 {
        let mut rng = Rng(seed);
        let mut tried = Tried::new();
        for step in 0..120 {
            tried.step(&mut rng);
            if step % 8 == 0 {
                tried.committed.check(&tried.index.snapshot(), &all);
                let other = Index::open(tried.folder.path("index")).unwrap();
                tried.committed.check(&other.snapshot(), &all);
                for (snapshot, state) in &tried.held {
                    state.check(snapshot, &all);
                }
            }
        }
        tried.files_are_those_of_snapshots();
    }
}
