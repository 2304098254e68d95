//! Commands that change an index, killed at each system call, or with each call failing: the index is as it was, or
//! as it was to be, the next command goes on from there, and nothing stays behind.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;
mod shim;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::command::{PKHASH, command, run};
use common::{Folder, names};
use pkhash_std::Index;
use shim::{Call, EIO, ENOSPC, Fault, Shimmed, full, shimmed, works};

/// What an index answers: for each key, doc ID of the table that has it newest and live.
type Contents = BTreeMap<Vec<u8>, u32>;

/// Also checks every table, and that files and manifest are in step.
fn contents(folder: &Path) -> Contents {
    let index = Index::open(folder).unwrap();
    let snapshot = index.snapshot();
    let set = snapshot.set();
    let mut contents = Contents::new();
    for (number, segment) in set.segments().iter().enumerate() {
        segment.table().verify().unwrap();
        for record in segment.table().table() {
            let (key, _) = record.unwrap();
            let hit = set.get(key).unwrap();
            if let Some(hit) = hit.filter(|hit| hit.segment() == number) {
                contents.insert(key.to_vec(), hit.doc_id().unwrap());
            }
        }
    }
    contents
}

/// An index, and a command that changes it.
struct Stage {
    folder: Folder,
    args: &'static [&'static str],
    /// All files of the index before.
    before: BTreeMap<String, Vec<u8>>,
    old: Contents,
    new: Contents,
    calls: Vec<Call>,
}

fn list(range: std::ops::Range<u32>) -> String {
    range.map(|i| format!("id-{i}\n")).collect()
}

impl Stage {
    fn new(args: &'static [&'static str]) -> Self {
        let folder = Folder::new();
        folder.write("a", list(0..300));
        folder.write("b", list(200..420));
        folder.write("more", list(380..500));
        for args in [&["add", "index", "a"][..], &["add", "index", "b"]] {
            run(&mut command(folder.root(), args)).expect(0);
        }
        run(&mut command(folder.root(), ["delete", "index", "--", "id-7", "id-250", "id-410"]))
            .expect(0);
        let root = folder.path("index");
        let read = |name: String| {
            let bytes = fs::read(root.join(&name)).unwrap();
            (name, bytes)
        };
        let before = names(&root).into_iter().map(read).collect();
        let old = contents(&root);
        let (calls, new) = (Vec::new(), Contents::new());
        let mut stage = Self { folder, args, before, old, new, calls };
        let calm = stage.run(Fault::None);
        calm.run.expect(0);
        stage.calls = calm.calls;
        stage.new = contents(&root);
        stage
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.path("index")
    }

    fn reset(&self) {
        fs::remove_dir_all(self.root()).unwrap();
        fs::create_dir(self.root()).unwrap();
        for (name, bytes) in &self.before {
            fs::write(self.root().join(name), bytes).unwrap();
        }
    }

    fn run(&self, fault: Fault<'_>) -> Shimmed {
        shimmed(self.folder.root(), fault, PKHASH, self.args, None)
    }

    /// Whether the index is new; otherwise it is old, and nothing between.
    fn is_new(&self, what: &str) -> bool {
        let now = contents(&self.root());
        assert!(now == self.old || now == self.new, "{:?}: {what}: neither old nor new", self.args);
        now == self.new
    }

    /// The same command does it, and leaves no more than it would have.
    fn goes_on(&self, what: &str) {
        run(&mut command(self.folder.root(), self.args)).expect(0);
        assert!(self.is_new(what));
        let index = Index::open(self.root()).unwrap();
        index.snapshot().verify_segment_map().unwrap();
        let manifest = format!("manifest-{:012}.json", index.snapshot().number());
        let text = fs::read_to_string(self.root().join(&manifest)).unwrap();
        for name in names(&self.root()) {
            let known = name == "writer.lock"
                || name == manifest
                || text.contains(&format!("\"name\": \"{name}\""));
            assert!(known, "{:?}: {what}: left behind: {name}", self.args);
        }
    }
}

fn stages() -> Vec<Stage> {
    let stages = [
        &["add", "index", "more"][..],
        &["add", "index", "more", "--replace"],
        &["delete", "index", "--", "id-3", "id-201", "id-400"],
        &["compact", "index", "--all"],
    ];
    stages.into_iter().map(Stage::new).collect()
}

#[test]
fn killed_at_each_call() {
    if !works() {
        return;
    }
    for stage in stages() {
        let mut done = 0;
        for (i, call) in stage.calls.iter().enumerate() {
            // A kill before a look is one before the next call that changes something.
            if !full() && matches!(call.name.as_str(), "open" | "read" | "stat" | "map") {
                continue;
            }
            for torn in [false, true] {
                if torn && !full() && call.name != "write" {
                    continue;
                }
                let what = format!("killed at call {i} ({call:?}), torn: {torn}");
                stage.reset();
                let fault = if torn { Fault::Torn(i + 1) } else { Fault::Kill(i + 1) };
                assert!(stage.run(fault).was_killed(), "{what}");
                let is_new = stage.is_new(&what);
                // Once it is new, it stays so.
                assert!(is_new || done == 0, "{:?}: {what}", stage.args);
                done += usize::from(is_new);
                stage.goes_on(&what);
            }
        }
        assert!(done > 0, "{:?}", stage.args);
    }
}

#[test]
fn each_call_fails() {
    if !works() {
        return;
    }
    for stage in stages() {
        let mut failures = 0;
        for (i, call) in stage.calls.iter().enumerate() {
            let needs_room = matches!(call.name.as_str(), "write" | "open-new" | "open-nameless");
            for fault in [Fault::Fail(i + 1, EIO), Fault::Full(i + 1, ENOSPC)] {
                if matches!(fault, Fault::Full(..)) && !full() && !needs_room {
                    continue;
                }
                let what = format!("{fault:?} ({call:?})");
                stage.reset();
                let failed = stage.run(fault).run;
                let is_new = stage.is_new(&what);
                // What matters not may fail: to remove a file, to look whether one can go.
                if failed.status.code() == Some(0) {
                    assert!(is_new, "{:?}: {what}: said to be done", stage.args);
                    continue;
                }
                failures += 1;
                let message = failed.fails(&[]);
                assert!(message.starts_with("pkhash: "), "{message}");
                // The last sync fails when readers see it already.
                let is_visible = message.contains("cannot sync the folder");
                assert!(!is_new || is_visible, "{:?}: {what}: {message}", stage.args);
                let left = names(&stage.root()).into_iter().find(|name| name.starts_with('.'));
                assert_eq!(left, None, "{:?}: {what}", stage.args);
                if full() || failures % 4 == 0 {
                    stage.goes_on(&what);
                }
            }
        }
        assert!(failures > 10, "{:?}: {failures}", stage.args);
    }
}
