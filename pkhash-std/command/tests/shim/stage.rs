//! Commands on a stage: their inputs, what lay at their outputs before, and what an undisturbed run puts
//! there.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;

use pkhash_std::{OrderedOptions, OrderedTerms, TableFile};

use crate::common::command::{PKHASH, Run, command, run};
use crate::common::{Folder, Rng};
use crate::shim::{Call, Fault, Shimmed, remove_temporaries, shimmed};

/// Keys of hex digits, some of each length.
pub(crate) fn list(seed: u64, lines: usize, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut list = Vec::new();
    for line in 0..lines {
        let end = list.len() + len - line % 3;
        while list.len() < end {
            list.extend_from_slice(format!("{:016x}", rng.next()).as_bytes());
        }
        list.truncate(end);
        list.push(b'\n');
    }
    list
}

/// A command, and all it works on.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) folder: Folder,
    program: &'static str,
    pub(crate) args: Vec<&'static str>,
    /// What it publishes, in that order; a companion, which waits under another name, as a whole with its table.
    pub(crate) outputs: &'static [&'static str],
    /// Standard output goes to a file of the folder.
    stdout: Option<&'static str>,
    /// All files before, by name.
    before: BTreeMap<String, Vec<u8>>,
    /// The outputs after an undisturbed run.
    pub(crate) new: Vec<Vec<u8>>,
    /// Its calls.
    pub(crate) calls: Vec<Call>,
}

/// What there is before, of all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Old {
    Missing,
    Whole,
}

impl Stage {
    pub(crate) fn new(
        name: &'static str,
        folder: Folder,
        program: &'static str,
        args: &[&'static str],
        outputs: &'static [&'static str],
        old: Old,
    ) -> Self {
        let names = folder.names();
        if old == Old::Whole {
            let other = folder.write("other", list(99, 40, 20));
            let missing: Vec<_> =
                outputs.iter().filter(|output| !names.contains(&(**output).to_owned())).collect();
            if !missing.is_empty() {
                let ordered = ["build", "other", "-o", "old.pkh", "--ordered"];
                run(&mut command(folder.root(), ordered)).expect(0);
            }
            for output in missing {
                let from = if output.ends_with(".fst") { "old.pkh.fst" } else { "old.pkh" };
                fs::copy(folder.path(from), folder.path(output)).unwrap();
            }
            for name in ["old.pkh", "old.pkh.fst"] {
                let _ = fs::remove_file(folder.path(name));
            }
            fs::remove_file(other).unwrap();
        }
        let before =
            folder.names().into_iter().filter(|name| folder.path(name).is_file()).map(|name| {
                let bytes = folder.read(&name);
                (name, bytes)
            });
        let before = before.collect();
        let stdout = args.windows(2).any(|pair| pair == ["-o", "-"]).then(|| outputs[0]);
        let args = args.to_vec();
        let mut stage = Self {
            name,
            folder,
            program,
            args,
            outputs,
            stdout,
            before,
            new: vec![],
            calls: vec![],
        };
        stage.reset();
        let calm = stage.run(Fault::None);
        calm.run.expect(0);
        stage.calls = calm.calls;
        stage.new = outputs.iter().map(|output| stage.folder.read(output)).collect();
        stage.check_nothing_left();
        stage
    }

    /// Everything as it was before.
    pub(crate) fn reset(&self) {
        for output in self.outputs {
            let _ = fs::remove_file(self.folder.path(output));
        }
        for (name, bytes) in &self.before {
            if self.outputs.contains(&name.as_str()) {
                self.folder.write(name, bytes);
            }
        }
    }

    /// An input is as it was before.
    pub(crate) fn restore(&self, input: &str) {
        self.folder.write(input, &self.before[input]);
    }

    /// Inputs that were replaced by the output are there again.
    pub(crate) fn restore_inputs(&self) {
        if self.outputs.iter().any(|output| self.args[1..3].contains(output)) {
            self.reset();
        }
    }

    pub(crate) fn run(&self, fault: Fault<'_>) -> Shimmed {
        let stdout = self.stdout.map(|name| fs::File::create(self.folder.path(name)).unwrap());
        shimmed(self.folder.root(), fault, self.program, &self.args, stdout)
    }

    /// The command without the shim.
    pub(crate) fn run_plainly(&self) -> Run {
        let mut command = command(self.folder.root(), &self.args);
        if let Some(name) = self.stdout {
            command.stdout(fs::File::create(self.folder.path(name)).unwrap());
        }
        run(&mut command)
    }

    pub(crate) fn old(&self, output: &str) -> Option<&Vec<u8>> {
        self.before.get(output)
    }

    /// How many outputs are the new ones, which all those before are, too; the others are the old ones.
    /// All are sound, and the inputs as they were.
    pub(crate) fn published(&self, what: &str) -> usize {
        let name = self.name;
        let found: Vec<Option<Vec<u8>>> =
            self.outputs.iter().map(|output| fs::read(self.folder.path(output)).ok()).collect();
        let mut new =
            found.iter().zip(&self.new).take_while(|(found, new)| found.as_ref() == Some(new));
        let count = new.by_ref().count();
        for (output, found) in self.outputs.iter().zip(&found).skip(count) {
            assert!(found.as_ref() == self.old(output), "{name}: {what}: {output} is torn");
        }
        self.check_sound(what, count);
        for (input, bytes) in &self.before {
            if !self.outputs.contains(&input.as_str()) {
                assert!(self.folder.read(input) == *bytes, "{name}: {what}: {input} has changed");
            }
        }
        count
    }

    fn check_sound(&self, what: &str, new: usize) {
        let mut table: Option<TableFile> = None;
        for (i, output) in self.outputs.iter().enumerate() {
            let path = self.folder.path(output);
            // Under whatever name: no table is without its companion, old or new.
            if let (true, Some(table)) = (output.ends_with(".fst"), &table) {
                let opened = OrderedTerms::open(table);
                assert!(opened.is_ok(), "{}: {what}: {opened:?}", self.name);
                OrderedTerms::open_pair(self.folder.path(self.outputs[i - 1])).unwrap();
            }
            if !path.exists() {
                continue;
            }
            if output.ends_with(".map") {
                continue;
            }
            if !output.ends_with(".fst") {
                let opened = TableFile::open(&path).unwrap();
                opened.verify().unwrap();
                table = Some(opened);
                continue;
            }
            // Beside a new table, an old companion is known for what it is.
            let Some(table) = &table else { continue };
            let opened: Result<OrderedTerms, _> = OrderedOptions::new().open(&path, table.table());
            let matches = new != i;
            assert_eq!(opened.is_ok(), matches, "{}: {what}: {opened:?}", self.name);
        }
    }

    /// No file but those that were there before, and outputs.
    pub(crate) fn check_nothing_left(&self) {
        assert_eq!(self.remove_left(), 0, "{}: a temporary file is left", self.name);
    }

    /// Nothing is left but the companion of a table that was published, if it could not get its name.
    pub(crate) fn check_left(&self, published: usize) {
        let waits =
            published > 0 && self.outputs.get(published).is_some_and(|next| next.ends_with(".fst"));
        let left = self.remove_left();
        assert!(left <= usize::from(waits), "{}: a temporary file is left", self.name);
    }

    /// Removes what a kill has left.
    pub(crate) fn remove_left(&self) -> usize {
        let mut known: Vec<String> = self.before.keys().cloned().collect();
        known.extend(self.outputs.iter().map(|output| (*output).to_owned()));
        known.push("spill".to_owned());
        let spilled = self.folder.path("spill");
        let spilled = if spilled.is_dir() { remove_temporaries(&spilled, &[]) } else { 0 };
        remove_temporaries(self.folder.root(), &known) + spilled
    }
}

/// One thread, so that every run makes the same calls.
const ALONE: [&str; 2] = ["--threads", "1"];

fn with<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &ALONE].concat()
}

pub(crate) fn build(old: Old) -> Stage {
    let folder = Folder::new();
    folder.write("list", list(1, 90, 24));
    Stage::new(
        "build",
        folder,
        PKHASH,
        &with(&["build", "list", "-o", "out.pkh"]),
        &["out.pkh"],
        old,
    )
}

pub(crate) fn build_csv(old: Old) -> Stage {
    let folder = Folder::new();
    let rows: String = (0..400).map(|i| format!("row {i},key-{i},{}\r\n", i * 7)).collect();
    folder.write("in.csv", format!("note,id,n\r\n{rows}"));
    let args = ["build", "--csv", "--key", "id", "--value", "n", "in.csv", "-o", "out.pkh"];
    Stage::new("build --csv", folder, PKHASH, &with(&args), &["out.pkh"], old)
}

/// To standard output, which is a file.
pub(crate) fn build_to_stdout() -> Stage {
    let folder = Folder::new();
    folder.write("list", list(2, 90, 24));
    let args = with(&["build", "list", "-o", "-"]);
    let mut stage = Stage {
        name: "build -o -",
        before: [("list".to_owned(), folder.read("list"))].into(),
        folder,
        program: PKHASH,
        args,
        outputs: &["out.pkh"],
        stdout: Some("out.pkh"),
        new: vec![],
        calls: vec![],
    };
    let calm = stage.run(Fault::None);
    assert_eq!(calm.run.status.code(), Some(0), "{}", calm.run.err);
    stage.calls = calm.calls;
    stage.new = vec![stage.folder.read("out.pkh")];
    stage
}

/// A table that takes several writes, over partitions.
pub(crate) fn build_medium(old: Old) -> Stage {
    let folder = Folder::new();
    folder.write("list", list(3, 1400, 4000));
    let args = ["build", "list", "-o", "out.pkh", "--partition-bits", "3"];
    Stage::new("build, medium", folder, PKHASH, &with(&args), &["out.pkh"], old)
}

/// Keys that do not fit the memory.
pub(crate) fn build_spilled(old: Old) -> Stage {
    let folder = Folder::new();
    folder.write("list", list(4, 270, 30_000));
    let args = ["build", "list", "-o", "out.pkh", "--memory", "8MiB", "--partition-bits", "2"];
    let stage = Stage::new("build, spilled", folder, PKHASH, &with(&args), &["out.pkh"], old);
    assert!(stage.calls.iter().any(|call| call.file() == "nameless"), "{:?}", stage.calls);
    stage
}

pub(crate) fn build_ordered(old: Old) -> Stage {
    let folder = Folder::new();
    folder.write("list", list(5, 90, 24));
    let args = ["build", "list", "-o", "out.pkh", "--ordered"];
    let outputs = &["out.pkh", "out.pkh.fst"];
    Stage::new("build --ordered", folder, PKHASH, &with(&args), outputs, old)
}

/// Two tables and their companions.
fn inputs(lines: usize, len: usize) -> Folder {
    let folder = Folder::new();
    for (seed, name) in [(6, "a.pkh"), (7, "b.pkh")] {
        folder.write("list", list(seed, lines, len));
        let args = ["build", "list", "-o", name, "--ordered"];
        run(&mut command(folder.root(), args)).expect(0);
    }
    fs::remove_file(folder.path("list")).unwrap();
    folder
}

pub(crate) fn merge(old: Old) -> Stage {
    let args = ["merge", "a.pkh", "b.pkh", "--offset", "-o", "out.pkh"];
    Stage::new("merge", inputs(60, 24), PKHASH, &with(&args), &["out.pkh"], old)
}

pub(crate) fn merge_medium(old: Old) -> Stage {
    let args = ["merge", "a.pkh", "b.pkh", "--offset", "-o", "out.pkh", "--partition-bits", "3"];
    Stage::new("merge, medium", inputs(700, 4000), PKHASH, &with(&args), &["out.pkh"], old)
}

/// From tables that are held in some way.
pub(crate) fn merge_in_mode(mode: &'static str, ordered: bool) -> Stage {
    let mut args = vec!["merge", "a.pkh", "b.pkh", "--offset", "-o", "out.pkh", "--open", mode];
    args.extend(ordered.then_some("--ordered"));
    let outputs: &[_] = if ordered { &["out.pkh", "out.pkh.fst"] } else { &["out.pkh"] };
    Stage::new("merge --open", inputs(60, 24), PKHASH, &with(&args), outputs, Old::Whole)
}

/// From tables in memory, over one of them.
pub(crate) fn merge_over_input() -> Stage {
    let args = ["merge", "a.pkh", "b.pkh", "--offset", "-o", "a.pkh", "--open", "heap"];
    Stage::new("merge over an input", inputs(60, 24), PKHASH, &with(&args), &["a.pkh"], Old::Whole)
}

pub(crate) fn merge_ordered(old: Old) -> Stage {
    let args = ["merge", "a.pkh", "b.pkh", "--offset", "-o", "out.pkh", "--ordered"];
    let outputs = &["out.pkh", "out.pkh.fst"];
    Stage::new("merge --ordered", inputs(60, 24), PKHASH, &with(&args), outputs, old)
}

/// The same over an input and its companion, from tables in memory.
pub(crate) fn merge_ordered_over_input() -> Stage {
    let args =
        ["merge", "a.pkh", "b.pkh", "--offset", "-o", "a.pkh", "--ordered", "--open", "heap"];
    let outputs = &["a.pkh", "a.pkh.fst"];
    let name = "merge --ordered over an input";
    Stage::new(name, inputs(60, 24), PKHASH, &with(&args), outputs, Old::Whole)
}

/// Doc maps of tables in memory, one of which the merged table replaces.
pub(crate) fn merge_with_maps(ordered: bool) -> Stage {
    let folder = inputs(60, 24);
    folder.write("a.map", "the map of an earlier merge\n");
    let mut args = vec!["merge", "a.pkh", "b.pkh", "--offset", "-o", "a.pkh", "--open", "heap"];
    args.extend(["--write-doc-map", "a.map", "--write-doc-map", "b.map"]);
    args.extend(ordered.then_some("--ordered"));
    folder.write("b.map", "another\n");
    let outputs: &[_] = &["a.map", "b.map", "a.pkh", "a.pkh.fst"];
    let outputs = if ordered { outputs } else { &outputs[..3] };
    Stage::new("merge --write-doc-map", folder, PKHASH, &with(&args), outputs, Old::Whole)
}

/// All that are small.
pub(crate) fn small() -> Vec<Stage> {
    vec![
        build(Old::Missing),
        build(Old::Whole),
        build_csv(Old::Whole),
        build_ordered(Old::Missing),
        build_ordered(Old::Whole),
        merge(Old::Missing),
        merge(Old::Whole),
        merge_over_input(),
        merge_ordered(Old::Missing),
        merge_ordered(Old::Whole),
        merge_ordered_over_input(),
        merge_with_maps(false),
        merge_with_maps(true),
    ]
}

/// Those that write more than a block, or more than fits the memory.
pub(crate) fn large() -> Vec<Stage> {
    vec![build_medium(Old::Whole), build_spilled(Old::Whole), merge_medium(Old::Whole)]
}
