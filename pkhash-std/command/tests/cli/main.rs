//! The `pkhash` command as a shell sees it: what it reads, prints and returns, and what it says when
//! something is wrong.

mod build;
mod get;
mod inspect;
mod lists;
mod merge;
mod ordered;
mod real_keys;

#[path = "../common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::command::{Run, command, run, run_with_input};
use common::{
    Folder, Model, Rng, build_bytes, check, int, meet_with_other_seeds, meet_with_seed_0, open_all,
    publish, slices,
};
use pkhash_std::{
    AnyKernel, TableFile, TableOptions, TableWriter, ValueChoice, ValueFormat, WriterOptions,
};

/// A folder in which commands run.
struct Shell(Folder);

impl Shell {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        self.0.write(name, bytes);
    }

    /// Runs a command line without quotes: parts are separated by spaces.
    fn run(&self, line: &str) -> Run {
        self.args(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn args(&self, args: &[&str]) -> Run {
        run(&mut command(self.0.root(), args))
    }

    fn run_with_input(&self, line: &str, input: &[u8]) -> Run {
        run_with_input(&mut command(self.0.root(), line.split_whitespace()), input)
    }

    /// Builds `t.pkh` of an input with these options, and returns what it holds.
    fn build(&self, input: impl AsRef<[u8]>, options: &str) -> BTreeMap<Vec<u8>, u64> {
        self.write("input", input);
        self.run(&format!("build input -o t.pkh {options}")).expect(0);
        self.table("t.pkh")
    }

    /// The build fails, says all this, and leaves nothing.
    fn build_fails(&self, input: impl AsRef<[u8]>, options: &str, parts: &[&str]) -> String {
        self.write("input", input);
        let message = self.run(&format!("build input -o fails.pkh {options}")).fails(parts);
        assert!(self.0.names().iter().all(|name| !name.contains("fails.pkh")));
        message
    }

    fn table(&self, name: &str) -> BTreeMap<Vec<u8>, u64> {
        let file = TableFile::open(self.0.path(name)).unwrap();
        file.verify().unwrap();
        file.table()
            .iter()
            .map(|record| {
                let (key, value) = record.unwrap();
                (key.to_vec(), value.as_u64().unwrap())
            })
            .collect()
    }
}

fn pairs<K: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (K, u64)>) -> BTreeMap<Vec<u8>, u64> {
    pairs.into_iter().map(|(key, value)| (key.as_ref().to_vec(), value)).collect()
}

/// Keys that were made to have one hash with seed 0: the first 8 bytes are those of the secret of
/// XXH3, so that the next 8 are multiplied by 0.
fn keys_of_one_hash(n: u64) -> String {
    let hex = |i| format!("b8fe6c3923a44bbe{i:016x}{:032x}\n", 0);
    (0..n).map(hex).collect()
}

#[test]
fn demo() {
    let shell = Shell::new();
    let run = shell.run("demo --keys 20000 --segments 3").expect(0);
    for part in ["20,000", "build 3 segments", "get_batch", "merge 3 into 1", "checked"] {
        assert!(run.text().contains(part), "no {part:?} in {}", run.text());
    }
    let json = shell.run("demo --keys 3000 --segments 1 --json").expect(0).json();
    assert_eq!(json["checked"], true);
    for row in json["rows"].as_array().unwrap() {
        assert_eq!(row["keys"], 3000);
        assert!(row["keys_per_second"].as_f64().unwrap() > 0.0);
    }
    assert!(shell.0.names().is_empty());
    // The tables can be kept, and are tables.
    fs::create_dir(shell.0.path("kept")).unwrap();
    shell.run("demo --keys 1000 --segments 2 --keep kept").expect(0);
    let names = common::names(&shell.0.path("kept"));
    assert_eq!(names, ["merged.pkh", "segment-0.pkh", "segment-1.pkh"]);
    for name in names {
        shell.run(&format!("verify kept/{name}")).expect(0);
    }
    // Next to nothing.
    for line in ["--keys 0", "--keys 1 --segments 8", "--keys 10 --segments 0"] {
        shell.run(&format!("demo {line}")).expect(0);
    }
    shell.run("demo --keys 10 --keep missing").fails(&["missing"]);
}

#[test]
fn help_and_usage() {
    let shell = Shell::new();
    let all = shell.run("--help").expect(0);
    assert!(all.text().contains("Exit codes"));
    for command in
        ["build", "get", "in-set", "stats", "verify", "merge", "dump", "range", "prefix", "demo"]
    {
        assert!(all.text().contains(command), "{command}");
        let run = shell.run(&format!("{command} --help")).expect(0);
        assert!(run.text().contains("Usage: pkhash"), "{command}");
        assert!(run.text().contains("--json"), "{command}");
        let makes = matches!(command, "build" | "merge");
        for option in ["--packed", "--layout", "perfect", "--partition-bits"] {
            assert_eq!(run.text().contains(option), makes, "{command}: {option}");
        }
        let deletes = matches!(command, "get" | "in-set" | "merge");
        for option in ["--live-docs", "--deleted-docs", "roaring"] {
            assert_eq!(run.text().contains(option), deletes, "{command}: {option}");
        }
        shell.run(&format!("{command} --no-such-option")).fails(&["--no-such-option"]);
    }
    assert!(shell.run("--version").expect(0).text().contains(env!("CARGO_PKG_VERSION")));
    shell.run("").fails(&["Usage"]);
    shell.run("no-such-command").fails(&["no-such-command"]);
    shell.run("build").fails(&["INPUT"]);
    shell.run("build input").fails(&["--output"]);
}
