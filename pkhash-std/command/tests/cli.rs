//! The `pkhash` command as a shell sees it: what it reads, prints and returns, and what it says when
//! something is wrong.

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

#[test]
fn lines() {
    let shell = Shell::new();
    let abc = pairs([("a", 0), ("b", 1), ("c", 2)]);
    for input in ["a\nb\nc\n", "a\nb\nc", "a\r\nb\r\nc\r\n", "a\r\nb\nc"] {
        assert_eq!(shell.build(input, ""), abc, "{input:?}");
        let file = shell.0.read("t.pkh");
        // From standard input, to standard output, or both: the same table.
        shell.run_with_input("build - -o u.pkh", input.as_bytes()).expect(0);
        assert!(shell.0.read("u.pkh") == file);
        let run = shell.run("build input -o -");
        assert_eq!(run.status.code(), Some(0));
        assert!(run.out == file && run.err.contains("3 keys"));
        let run = shell.run_with_input("build - -o - --json", input.as_bytes());
        assert!(run.out == file);
        let report: serde_json::Value = serde_json::from_str(&run.err).unwrap();
        assert_eq!(report["keys"], 3);
    }
    // An empty key is a key; spaces, tabs and carriage returns inside of a line belong to it.
    let mixed = pairs([("", 1), (" a ", 0), ("b\tc", 2), ("d\re", 3), ("\u{e4}", 4)]);
    assert_eq!(shell.build(" a \n\nb\tc\nd\re\n\u{e4}", ""), mixed);
    // Left out, it counts as a line all the same.
    let without = shell.build("\na\n\n\nb\r\n\r\n", "--skip-empty");
    assert_eq!(without, pairs([("a", 1), ("b", 4)]));
    // No text at all.
    let bytes = [&[0xff, 0xfd, 0][..], b"\n", &[0x80]].concat();
    assert_eq!(shell.build(bytes, ""), pairs([(&[0xff, 0xfd, 0][..], 0), (&[0x80], 1)]));
}

#[test]
fn inputs_of_nothing() {
    let shell = Shell::new();
    for (input, options) in [
        ("", ""),
        ("", "--null"),
        ("\n\n\r\n", "--skip-empty"),
        ("\0\0", "--null --skip-empty"),
        ("", "--layout inline"),
        ("", "--layout term-order"),
        ("", "--layout perfect --packed"),
        ("", "--layout perfect --partition-bits 3 --filter-bits 10"),
    ] {
        assert_eq!(shell.build(input, options), pairs::<&str>([]), "{input:?}");
        for line in ["get t.pkh -- a", "get t.pkh --missing --json -- a"] {
            shell.run(line).expect(1);
        }
        assert_eq!(shell.run("dump t.pkh").expect(0).text(), "");
        assert!(shell.run("stats t.pkh").expect(0).text().contains("keys"));
        assert_eq!(shell.run("stats t.pkh --json").expect(0).json()["keys"], 0);
        shell.run("verify t.pkh").expect(0);
        shell.run("merge t.pkh t.pkh -o m.pkh").expect(0);
        assert_eq!(shell.table("m.pkh"), pairs::<&str>([]));
        assert_eq!(shell.run("get t.pkh --keys /dev/null").expect(0).text(), "");
    }
    // Newlines alone are empty keys: the same one, again and again.
    assert_eq!(shell.build("\n", ""), pairs([("", 0)]));
    assert_eq!(shell.build("\r\n", ""), pairs([("", 0)]));
    let message = shell.build_fails("\n\n\n", "", &["duplicate", "\"\""]);
    assert!(message.contains("0 and 1"), "{message}");
    assert_eq!(shell.build("\n\n\n", "--on-duplicate first"), pairs([("", 0)]));
    assert_eq!(shell.build("\n\n\n", "--on-duplicate last"), pairs([("", 2)]));
}

#[test]
fn hex() {
    let shell = Shell::new();
    let keys = pairs([(&[0u8, 0xff][..], 0), (&[0xde, 0xad, 0xbe, 0xef], 1), (&[], 2)]);
    assert_eq!(shell.build("00ff\nDEADbeef\r\n\n", "--hex"), keys);
    assert_eq!(shell.build("00ff\0DEADbeef\0\0", "--hex --null"), keys);
    for (bad, line) in [("0g", 3), ("0", 3), ("0x00", 3), (" 00", 3), ("\u{e4}\u{e4}", 3)] {
        let place = format!("input:{line}");
        shell.build_fails(format!("00\n01\n{bad}\n02"), "--hex", &[&place, "not hex", "\""]);
        shell.build_fails(format!("00\0{bad}"), "--hex --null", &["input:2", "not hex"]);
        shell
            .run_with_input("build - --hex -o fails.pkh", format!("00\n{bad}").as_bytes())
            .fails(&["standard input:2", "not hex"]);
    }
    // A very long line is not printed whole.
    let message = shell.build_fails("zz".repeat(100_000), "--hex", &["input:1"]);
    assert!(message.len() < 300);
}

#[test]
fn null() {
    let shell = Shell::new();
    let keys = pairs([("a\nb", 0), ("c\r", 1), ("", 2), ("d\r\n", 3)]);
    assert_eq!(shell.build("a\nb\0c\r\0\0d\r\n", "--null"), keys);
    assert_eq!(shell.build("a\nb\0c\r\0\0d\r\n\0", "-0"), keys);
}

#[test]
fn csv() {
    let shell = Shell::new();
    let table = "id,name,doc\r\nA1,\"one, two\",7\r\n\"B\"\"2\",\"two\nlines\",300\r\n,empty,9\r\n";
    let by_id = |values: [u64; 3]| pairs([("A1", values[0]), ("B\"2", values[1]), ("", values[2])]);
    assert_eq!(shell.build(table, "--csv --key id"), by_id([0, 1, 2]));
    assert_eq!(shell.build(table, "--csv --key id --value doc"), by_id([7, 300, 9]));
    assert_eq!(
        shell.build(table, "--csv --key name"),
        pairs([("one, two", 0), ("two\nlines", 1), ("empty", 2)])
    );
    assert_eq!(shell.build(table, "--csv --key id --skip-empty"), pairs([("A1", 0), ("B\"2", 1)]));
    for (delimiter, option) in [(";", ";"), ("\t", "\\t"), ("|", "|"), ("\t", "\t")] {
        shell.write("input", format!("x{delimiter}key\n1{delimiter}k,1\n2{delimiter}k 2\n"));
        let args =
            ["build", "input", "-o", "t.pkh", "--csv", "--key", "key", "--delimiter", option];
        shell.args(&args).expect(0);
        assert_eq!(shell.table("t.pkh"), pairs([("k,1", 0), ("k 2", 1)]));
    }
    // Values among spaces, hex keys, keys that are no text, no final newline.
    assert_eq!(shell.build("k,v\na, 12 ", "--csv --key k --value v"), pairs([("a", 12)]));
    assert_eq!(shell.build("k\n00ff\n", "--csv --key k --hex"), pairs([([0u8, 0xff], 0)]));
    assert_eq!(shell.build(b"k\n\xff\xfe\n", "--csv --key k"), pairs([([0xffu8, 0xfe], 0)]));
    assert_eq!(shell.build("k\n", "--csv --key k"), pairs::<&str>([]));
    shell.run_with_input("build - -o t.pkh --csv --key k", b"k\nx\n").expect(0);
    assert_eq!(shell.table("t.pkh"), pairs([("x", 0)]));

    // Errors name file, line and cause; lines count those inside of quotes.
    let quoted = "k,v\n\"two\nlines\",1\n";
    for (input, options, parts) in [
        ("k,v\na,1\n", "--key id", &["input", "\"id\"", "\"k\""][..]),
        ("k,v\na,1\n", "--key k --value doc", &["input", "\"doc\"", "\"v\""]),
        ("", "--key k", &["input", "\"k\""]),
        ("k,v\na,1\nb,x\n", "--key k --value v", &["input:3", "\"x\""]),
        (&format!("{quoted}b,-1\n"), "--key k --value v", &["input:4", "\"-1\""]),
        ("k,v\na,1\nb,\n", "--key k --value v", &["input:3", "\"\""]),
        (
            "k,v\na,18446744073709551616\n",
            "--key k --value v",
            &["input:2", "18446744073709551616"],
        ),
        ("k,v\na,1\nb,2,3\n", "--key k", &["input:3", "2 fields"]),
        ("k,v\na,1\nb\n", "--key k", &["input:3", "2 fields"]),
        (&format!("{quoted}0,1\n"), "--key k --hex", &["input:2", "not hex"]),
        ("k,v\na,1\na,2\n", "--key k --value v", &["duplicate", "\"a\"", "1", "2"]),
        ("k,v\na,300\n", "--key k --value v --value-width 1", &["input:2", "width"]),
    ] {
        shell.build_fails(input, &format!("--csv {options}"), parts);
    }
    for options in [
        "--csv",
        "--key k",
        "--value v",
        "--csv --key k --pairs",
        "--csv --key k --null",
        "--csv --key k --delimiter ab",
        "--csv --key k --delimiter \u{e4}",
        "--csv --key k --value v --set",
    ] {
        shell.build_fails("k,v\na,1\n", options, &["--"]);
    }
}

#[test]
fn pairs_of_keys_and_values() {
    let shell = Shell::new();
    let input = "b\t7\na\tb\t8\n\t9\n\\x00ff\t10\r\n\\x\\\t 11 \n";
    shell.build_fails(input, "--pairs", &["input:5", "not hex"]);
    let input = input.replace("\\x\\", "\\y");
    let keys = pairs([(&b"b"[..], 7), (b"a\tb", 8), (b"", 9), (&[0, 255], 10), (b"\\y", 11)]);
    assert_eq!(shell.build(&input, "--pairs"), keys);
    assert_eq!(
        shell.build("\\x00ff\t1\n\\x\t2", "--pairs --text"),
        pairs([("\\x00ff", 1), ("\\x", 2)])
    );
    assert_eq!(
        shell.build("00ff\t1\n\t2\n", "--pairs --hex"),
        pairs([(&[0u8, 255][..], 1), (&[], 2)])
    );
    assert_eq!(shell.build("a\n\t1\0b\t2\0", "--pairs --null"), pairs([("a\n", 1), ("b", 2)]));
    assert_eq!(shell.build("\t1\na\t2\n", "--pairs --skip-empty"), pairs([("a", 2)]));
    let most = u64::MAX.to_string();
    assert_eq!(shell.build(format!("a\t{most}"), "--pairs"), pairs([("a", u64::MAX)]));
    for bad in ["no tab", "", "a\t", "a\tb", "a\t-1", "a\t1.0", "a\t1e3", "a\t18446744073709551616"]
    {
        shell.build_fails(format!("ok\t1\n{bad}\n"), "--pairs", &["input:2", "value"]);
    }
    shell.build_fails("a\t1\nb\t256\n", "--pairs --value-width 1", &["input:2", "width"]);
}

#[test]
fn duplicates() {
    let shell = Shell::new();
    let input = "x\na\ny\na\nz\na\n";
    // The values are the numbers of the lines.
    let message = shell.build_fails(input, "", &["duplicate", "\"a\"", "1", "3", "--on-duplicate"]);
    assert_eq!(message.lines().count(), 1);
    shell.build_fails("00\n00", "--hex", &["duplicate", "0x00"]);
    let rest = [("x", 0), ("y", 2), ("z", 4)];
    for (policy, value) in [("first", 1), ("last", 5)] {
        let table = shell.build(input, &format!("--on-duplicate {policy}"));
        assert_eq!(table, pairs(rest.into_iter().chain([("a", value)])));
        let run = shell.run(&format!("build input -o t.pkh --json --on-duplicate {policy}"));
        assert_eq!(run.expect(0).json()["duplicates"], 2);
    }
    shell.build_fails(input, "--on-duplicate any", &["any"]);
}

#[test]
fn how_a_table_is_made() {
    let shell = Shell::new();
    let mut rng = Rng(1);
    let uuids: String =
        (0..1000).map(|_| format!("{:016x}{:016x}\n", rng.next(), rng.next())).collect();
    shell.write("uuids", &uuids);
    shell.write("mixed", (0..300).map(|i| format!("{i}\n")).collect::<String>());
    let report = |line: &str| {
        let built = shell.run(&format!("build {line} -o t.pkh --json")).expect(0).json();
        shell.run("verify t.pkh").expect(0);
        let stats = shell.run("stats t.pkh --json").expect(0).json();
        let fields =
            ["keys", "bytes", "layout", "partitions", "value_width", "filter_bits", "seed"];
        for field in fields {
            assert_eq!(built[field], stats[field], "{field}");
        }
        assert_eq!(stats["bytes"], shell.0.read("t.pkh").len());
        stats
    };
    for (line, layout) in [
        ("uuids --hex", "perfect"),
        ("uuids --hex --layout auto", "perfect"),
        ("uuids --hex --layout inline", "inline"),
        ("uuids --hex --layout term-order", "term-order"),
        ("uuids --hex --layout perfect", "perfect"),
        ("uuids --hex --layout perfect --packed", "perfect"),
        // 32 bytes.
        ("uuids", "perfect"),
        ("uuids --layout term-order", "term-order"),
        ("mixed", "perfect"),
        ("mixed --layout perfect", "perfect"),
        ("mixed --layout term-order", "term-order"),
    ] {
        assert_eq!(report(line)["layout"], layout, "{line}");
    }
    for (line, bits, rate) in [
        ("mixed", 0, None),
        ("mixed --layout perfect", 0, None),
        ("mixed --layout term-order", 10, Some(0.03)),
        ("uuids --hex --layout inline", 10, Some(0.03)),
        ("mixed --layout term-order --filter-bits none", 0, None),
        ("mixed --filter-bits 10", 10, Some(0.03)),
        ("mixed --filter-bits 20", 20, Some(0.01)),
        ("mixed --filter-bits 2", 2, Some(1.0)),
        ("mixed --filter-bits none", 0, None),
        ("mixed --filter-bits 0", 0, None),
    ] {
        let stats = report(line);
        assert_eq!(stats["filter_bits"], bits);
        let measured = stats["filter_false_positives"].as_f64();
        assert_eq!(measured.is_some(), rate.is_some(), "{line}");
        assert!(measured.unwrap_or(0.0) <= rate.unwrap_or(1.0), "{line}: {measured:?}");
        assert_eq!(stats["sections"]["filter"] == 0, bits == 0);
    }
    for (option, partitions) in [
        ("", 1),
        ("--partition-bits 0", 1),
        ("--partition-bits 10", 1024),
        ("--layout term-order --partition-bits 10", 1024),
        ("--partition-bits 11", 2048),
    ] {
        assert_eq!(report(&format!("mixed {option}"))["partitions"], partitions);
    }
    for (option, width) in [("", 2), ("--value-width 2", 2), ("--value-width 8", 8), ("--set", 0)] {
        let stats = report(&format!("mixed {option}"));
        assert_eq!(stats["value_width"], width);
        assert_eq!(stats["value_kind"], if width == 0 { "opaque" } else { "integer" });
    }
    assert_eq!(report("mixed --seed 42")["seed"], 42);
    // Threads change nothing.
    let files: BTreeSet<Vec<u8>> = [1, 2, 7]
        .map(|threads| {
            report(&format!("uuids --threads {threads} --partition-bits 5"));
            shell.0.read("t.pkh")
        })
        .into();
    assert_eq!(files.len(), 1);
    // Records of 3 to a line take more room than packed ones.
    shell.write("lined", (0..1000).map(|i| format!("{i:018}\n")).collect::<String>());
    let lens = ["lined", "lined --packed"].map(|line| report(line)["bytes"].as_u64().unwrap());
    assert!(lens[0] > lens[1], "{lens:?}");

    // Keys that are too long for a perfect table, of several lengths and of one.
    shell.write("long", format!("short\n{}\n", "k".repeat(40_000)));
    shell.write("longer", format!("{}\n", "k".repeat(65_537)));
    assert_eq!(report("long")["layout"], "term-order");
    assert_eq!(report("longer")["layout"], "term-order");
    shell.write("input", format!("{}\n", "k".repeat(40_000)));
    assert_eq!(report("input")["layout"], "perfect");
    for (line, part) in [
        ("mixed --layout inline", "key length"),
        ("uuids --layout inline", "key length"),
        ("mixed --layout perfectly", "perfectly"),
        ("mixed --layout inline --packed", "key length"),
        ("long --layout perfect", "key length"),
        ("longer --layout perfect", "key length"),
        ("longer --layout inline", "key length"),
        ("longer --partition-bits 11", "partition bits"),
        ("mixed --filter-bits 65", "65"),
        ("mixed --filter-bits many", "many"),
        ("mixed --filter-bits -1", "-1"),
        ("mixed --partition-bits 17", "partition bits"),
        ("mixed --layout term-order --partition-bits 11", "partition bits"),
        ("uuids --hex --layout inline --partition-bits 11", "partition bits"),
        ("mixed --value-width 0", "value width"),
        ("mixed --value-width 9", "value width"),
        ("mixed --value-width 1", "mixed:257"),
        ("mixed --set --value-width 4", "--set"),
        ("mixed --hex --text", "--text"),
        ("mixed --threads many", "many"),
        ("mixed --memory 1", "memory"),
        ("mixed --memory much", "much"),
        ("mixed --seed x", "random"),
        ("mixed --seed Random", "random"),
        ("mixed --seed -1", "-1"),
        ("mixed --seed 18446744073709551616", "18446744073709551616"),
        ("missing", "missing"),
        (".", "."),
    ] {
        let files = shell.0.names();
        shell.run(&format!("build {line} -o fails.pkh")).fails(&[part]);
        assert_eq!(shell.0.names(), files);
    }
}

/// Lists of one length and of many: tables of every layout give the same answers to every command.
#[test]
fn every_layout_answers_alike() {
    let shell = Shell::new();
    let fixed: Vec<String> = (0..700).map(|i| format!("{:09}", i * 977)).collect();
    let mut rng = Rng(6);
    let mixed: Vec<String> =
        (0..700).map(|i| format!("{i}-{}", "x".repeat(rng.below(90)))).collect();
    for (name, list) in [("fixed", &fixed), ("mixed", &mixed)] {
        shell.write(name, list.join("\n"));
        // Every third key is absent.
        let asked: Vec<String> = list
            .iter()
            .enumerate()
            .map(|(i, key)| if i % 3 == 0 { format!("{key}!") } else { key.clone() })
            .collect();
        shell.write("asked", asked.join("\n"));
        let found = |all: bool| {
            asked.iter().enumerate().fold(String::new(), |out, (i, key)| match i % 3 {
                0 if all => out + key + "\n",
                0 => out,
                _ => out + &format!("{key}\t{i}\n"),
            })
        };
        let mut pairs: Vec<String> =
            list.iter().enumerate().map(|(i, key)| format!("{key}\t{i}")).collect();
        pairs.sort();
        for options in [
            "",
            "--layout inline",
            "--layout term-order",
            "--layout perfect",
            "--layout perfect --packed",
            "--layout perfect --filter-bits 10",
            "--layout perfect --partition-bits 4",
            "--layout perfect --partition-bits 11 --threads 1",
            "--layout perfect --seed 99 --value-width 8",
        ] {
            if name == "mixed" && options.contains("inline") {
                continue;
            }
            shell.run(&format!("build {name} -o t.pkh {options}")).expect(0);
            let run = shell.run("verify t.pkh").expect(0);
            assert_eq!(run.text(), "t.pkh: ok, 700 keys\n");
            let run = shell.run("get t.pkh --keys asked").expect(1);
            assert!(run.text() == found(false), "{name} {options}");
            let run = shell.run("get t.pkh --keys asked --missing").expect(1);
            assert!(run.text() == found(true), "{name} {options}");
            let run = shell.args(&["get", "t.pkh", "--", &list[7], &list[0]]).expect(0);
            assert_eq!(run.text(), format!("{}\t7\n{}\t0\n", list[7], list[0]));
            let dump = shell.run("dump t.pkh").expect(0);
            let mut dumped: Vec<&str> = dump.text().lines().collect();
            dumped.sort_unstable();
            assert!(dumped == pairs, "{name} {options}");
            // The dump is read back to the same table, and so is the table itself.
            let line = format!("build - --pairs -o back.pkh {options}");
            shell.run_with_input(&line, &dump.out).expect(0);
            assert!(shell.0.read("back.pkh") == shell.0.read("t.pkh"), "{name} {options}");
            let seedless = options.replace("--seed 99", "");
            shell.run(&format!("merge t.pkh -o back.pkh {seedless}")).expect(0);
            assert!(shell.0.read("back.pkh") == shell.0.read("t.pkh"), "{name} {options}");
        }
    }
}

/// A seed that nobody knows before: another one each time, and told.
#[test]
fn random_seeds() {
    let shell = Shell::new();
    shell.write("input", "a\nb\nc\n");
    let seeds = ["a.pkh", "b.pkh"].map(|name| {
        let line = format!("build input -o {name} --seed random --json");
        let seed = shell.run(&line).expect(0).json()["seed"].as_u64().unwrap();
        assert_eq!(shell.table(name), pairs([("a", 0), ("b", 1), ("c", 2)]));
        assert_eq!(shell.run(&format!("stats {name} --json")).expect(0).json()["seed"], seed);
        assert_eq!(shell.run(&format!("get {name} -- b")).expect(0).text(), "b\t1\n");
        seed
    });
    assert_ne!(seeds[0], seeds[1]);
    // Such tables go together, with a note; the merged one has the seed of the first.
    shell.write("input", "d\n");
    shell.run("build input -o d.pkh --seed random").expect(0);
    let run = shell.run("merge a.pkh d.pkh -o m.pkh").expect(0);
    assert!(run.err.contains("note: d.pkh: its seed is"), "{}", run.err);
    let merged = shell.0.read("m.pkh");
    assert_eq!(shell.table("m.pkh"), pairs([("a", 0), ("b", 1), ("c", 2), ("d", 0)]));
    shell.run(&format!("build input -o d.pkh --seed {}", seeds[0])).expect(0);
    let run = shell.run("merge a.pkh d.pkh -o m.pkh").expect(0);
    assert!(!run.err.contains("seed"), "{}", run.err);
    assert!(shell.0.read("m.pkh") == merged);
}

/// Keys that were made to have one hash with seed 0: the first 8 bytes are those of the secret of
/// XXH3, so that the next 8 are multiplied by 0.
fn keys_of_one_hash(n: u64) -> String {
    let hex = |i| format!("b8fe6c3923a44bbe{i:016x}{:032x}\n", 0);
    (0..n).map(hex).collect()
}

#[test]
fn keys_made_to_have_one_hash() {
    let shell = Shell::new();
    let counts = |json: &serde_json::Value| {
        ["keys", "exceptions", "evictions"].map(|field| json[field].as_u64().unwrap())
    };
    shell.write("input", keys_of_one_hash(65));
    for options in ["", "--layout perfect", "--partition-bits 12"] {
        let built = shell.run(&format!("build input --hex -o t.pkh --json {options}")).expect(0);
        assert_eq!(counts(&built.json()), [65, 64, 0]);
        shell.run("verify t.pkh").expect(0);
        assert!(shell.table("t.pkh").values().copied().eq(0..65));
        let run = shell.run("get t.pkh --hex --keys input").expect(0);
        assert_eq!(run.text().lines().count(), 65);
        let merged = shell.run("merge t.pkh -o m.pkh --json").expect(0).json();
        assert_eq!(counts(&merged), [65, 64, 0]);
    }
    // One more: the message says what helps, and it does.
    let hints = ["input", "keys of one hash", "--seed random", "--layout term-order"];
    shell.build_fails(keys_of_one_hash(66), "--hex", &hints);
    for options in ["--seed random", "--seed 1", "--layout term-order"] {
        let built = shell.run(&format!("build input --hex -o u.pkh --json {options}")).expect(0);
        assert_eq!(built.json()["exceptions"], 0);
        assert!(shell.table("u.pkh").values().copied().eq(0..66));
    }
    // In a merge it is the layout that helps: the seed is that of the inputs.
    shell.write("input", keys_of_one_hash(66).lines().next_back().unwrap());
    shell.run("build input --hex -o last.pkh").expect(0);
    let line = "merge t.pkh last.pkh -o fails.pkh";
    shell.run(line).fails(&["keys of one hash", "--layout term-order"]);
    assert!(!shell.0.names().contains(&"fails.pkh".to_owned()));
    shell.run(&format!("{line} --layout term-order")).expect(0);
    assert_eq!(shell.table("fails.pkh").len(), 66);
}

/// Keys that no partition's seed can place: the message says what helps, and it does.
#[test]
fn keys_made_to_meet() {
    let shell = Shell::new();
    let hex = |key: Vec<u8>| {
        key.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")) + "\n"
    };
    let lists = [
        meet_with_seed_0(70).map(hex).collect::<String>(),
        meet_with_other_seeds(70).map(hex).collect::<String>(),
    ];
    let hints = ["no perfect hash function", "--seed random", "--layout term-order"];
    for (list, name) in lists.iter().zip(["a.pkh", "b.pkh"]) {
        shell.build(list, "--hex");
        fs::rename(shell.0.path("t.pkh"), shell.0.path(name)).unwrap();
    }
    shell.run("merge a.pkh b.pkh -o m.pkh").fails(&hints);
    // The keys are hashed anew.
    let run = shell.run("merge a.pkh b.pkh --offset --seed random -o m.pkh").expect(0);
    assert!(run.err.contains("hashed anew, and so of 1 more"), "{}", run.err);
    assert_eq!(shell.table("m.pkh").len(), 140);
    shell.build_fails(lists.concat(), "--hex", &hints);
    for options in ["--seed random", "--seed 1", "--layout term-order", "--partition-bits 1"] {
        let table = shell.build(lists.concat(), &format!("--hex {options}"));
        assert!(table.len() == 140);
    }
}

#[test]
fn a_table_that_outgrows_its_memory_is_the_same() {
    let shell = Shell::new();
    let mut rng = Rng(2);
    let list: String = (0..90_000)
        .map(|i| format!("{:016x}{:016x}{:016x}-{i}\n", rng.next(), rng.next(), rng.next()))
        .collect();
    shell.write("list", &list);
    for (make, options, input) in [
        ("--layout term-order", "--memory 8MiB", "list"),
        ("--layout perfect --partition-bits 11", "--memory 8MiB", "list"),
        ("", "--memory 8388608 --threads 1 --temp-dir .", "-"),
    ] {
        let built = shell.run(&format!("build list -o whole.pkh --json {make}")).expect(0).json();
        assert_eq!(built["spilled_bytes"], 0);
        let line = format!("build {input} -o t.pkh --json {make} {options}");
        let built = shell.run_with_input(&line, list.as_bytes()).expect(0).json();
        assert!(built["spilled_bytes"].as_u64() > Some(5 << 20), "{built}");
        assert!(shell.0.read("t.pkh") == shell.0.read("whole.pkh"));
        assert_eq!(shell.0.names(), ["list", "t.pkh", "whole.pkh"]);
    }
    let text = shell.run("build list -o t.pkh --memory 8MiB").expect(0);
    assert!(text.text().contains("spilled"));
    shell.run("build list -o u.pkh --memory 8MiB --temp-dir missing").fails(&["missing"]);
}

#[test]
fn get() {
    let shell = Shell::new();
    shell.build("a\nb\nc\n-d\n\nwith space\n", "");
    let get = |args: &[&str], code: i32| {
        let args = [&["get", "t.pkh"], args].concat();
        shell.args(&args).expect(code).text().to_owned()
    };
    assert_eq!(get(&["--", "b"], 0), "b\t1\n");
    // In the order of the keys, as often as they are asked for.
    assert_eq!(get(&["--", "c", "a", "c"], 0), "c\t2\na\t0\nc\t2\n");
    assert_eq!(get(&["--", "-d", "", "with space"], 0), "-d\t3\n\t4\nwith space\t5\n");
    assert_eq!(get(&["--", "x"], 1), "");
    assert_eq!(get(&["--", "x", "a", "y"], 1), "a\t0\n");
    assert_eq!(get(&["--missing", "--", "x", "a", "y"], 1), "x\na\t0\ny\n");
    assert_eq!(get(&["--hex", "--", "61", "2D64"], 0), "61\t0\n2d64\t3\n");
    assert_eq!(get(&["--null", "--missing", "--", "b", "x"], 1), "b\t1\0x\0");
    assert_eq!(
        shell.args(&["get", "t.pkh", "--missing", "--json", "--", "b", "x"]).expect(1).json_lines(),
        [
            serde_json::json!({ "key": "b", "table": "t.pkh", "value": 1 }),
            serde_json::json!({ "key": "x", "value": null }),
        ]
    );
    // Keys from a file, in every form of line that `build` reads.
    for (input, options) in
        [("b\nx\na", ""), ("b\r\nx\r\na\r\n", ""), ("b\0x\0a", "-0"), ("62\n78\n61\n", "--hex")]
    {
        shell.write("keys", input);
        let line = format!("get t.pkh --keys keys --missing {options}");
        let expected = shell.run(&line).expect(1);
        let line = format!("get t.pkh --keys - --missing {options}");
        assert_eq!(shell.run_with_input(&line, input.as_bytes()).expect(1).out, expected.out);
        let expected: Vec<String> = String::from_utf8(expected.out)
            .unwrap()
            .split_terminator(['\n', '\0'])
            .map(|line| line.replace("62", "b").replace("78", "x").replace("61", "a"))
            .collect();
        assert_eq!(expected, ["b\t1", "x", "a\t0"]);
    }
    // What is not printable comes as hex, unless it is wanted raw.
    shell.build(b"\xff\xfd\0tab\there\0\\x41", "--null");
    assert_eq!(
        shell.run("get t.pkh --hex -- fffd 7461620968657265").expect(0).text(),
        "fffd\t0\n7461620968657265\t1\n"
    );
    assert_eq!(
        shell.args(&["get", "t.pkh", "--", "tab\there", "\\x41"]).expect(0).text(),
        "\\x7461620968657265\t1\n\\x5c783431\t2\n"
    );
    assert_eq!(
        shell.args(&["get", "t.pkh", "--text", "--", "tab\there", "\\x41"]).expect(0).text(),
        "tab\there\t1\n\\x41\t2\n"
    );
    shell.write("keys", b"\xff\xfd\n\xff");
    let run = shell.run("get t.pkh --keys keys --missing").expect(1);
    assert_eq!(run.text(), "\\xfffd\t0\n\\xff\n");
    let run = shell.run("get t.pkh --keys keys --text").expect(1);
    assert_eq!(run.out, b"\xff\xfd\t0\n");
    let run = shell.run("get t.pkh --keys keys --json --missing").expect(1);
    assert_eq!(run.json_lines()[1], serde_json::json!({ "key": "\\xff", "value": null }));

    for (line, parts) in [
        ("get t.pkh", &["--"][..]),
        ("get", &["TABLE"]),
        ("get t.pkh --keys keys -- a", &["--keys"]),
        ("get t.pkh --keys missing", &["missing"]),
        ("get missing -- a", &["missing"]),
        ("get keys -- a", &["keys"]),
        ("get t.pkh --hex -- 6", &["hex", "\"6\""]),
        ("get t.pkh --keys keys --hex", &["keys:1", "hex"]),
        ("get t.pkh --open slowly -- a", &["slowly"]),
    ] {
        shell.run(line).fails(parts);
    }
}

#[cfg(unix)]
#[test]
fn keys_on_the_command_line_may_be_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let shell = Shell::new();
    shell.build(b"\xff\xfd\n", "");
    let mut command = command(shell.0.root(), ["get", "t.pkh", "--"]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff\xfd"));
    assert_eq!(run(&mut command).expect(0).text(), "\\xfffd\t0\n");
}

#[test]
fn get_from_several_tables() {
    let shell = Shell::new();
    // The newest first, as a reader of segments names them.
    for (name, lines) in [("new", "c\nd\n"), ("old", "a\nb\nc\n"), ("none", "")] {
        shell.write("input", lines);
        shell.run(&format!("build input -o {name}.pkh")).expect(0);
    }
    let run = shell.run("get new.pkh none.pkh old.pkh --missing -- a c x d").expect(1);
    assert_eq!(run.text(), "a\told.pkh\t0\nc\tnew.pkh\t0\nx\nd\tnew.pkh\t1\n");
    let run = shell.run("get old.pkh new.pkh -- c").expect(0);
    assert_eq!(run.text(), "c\told.pkh\t2\n");
    let run = shell.run("get new.pkh old.pkh --json -- c a").expect(0);
    assert_eq!(
        run.json_lines(),
        [
            serde_json::json!({ "key": "c", "table": "new.pkh", "value": 0 }),
            serde_json::json!({ "key": "a", "table": "old.pkh", "value": 0 }),
        ]
    );
    // One that cannot be opened spoils it all: an answer might be in it.
    shell.run("get new.pkh missing.pkh -- c").fails(&["missing.pkh"]);
}

/// More keys than a batch of the command has.
#[test]
fn get_many() {
    let shell = Shell::new();
    let list: String = (0..10_000).map(|i| format!("key-{i}\n")).collect();
    shell.build(&list, "");
    let asked: String = (0..10_000)
        .rev()
        .map(|i| format!("{}-{i}\n", if i % 3 == 0 { "no" } else { "key" }))
        .collect();
    shell.write("asked", asked);
    let expected: String =
        (0..10_000).rev().filter(|i| i % 3 != 0).map(|i| format!("key-{i}\t{i}\n")).collect();
    assert_eq!(shell.run("get t.pkh --keys asked").expect(1).text(), expected);
    shell.write("asked", &list);
    assert_eq!(shell.run("get t.pkh --keys asked").expect(0).text().lines().count(), 10_000);
}

#[test]
fn every_way_to_open() {
    let shell = Shell::new();
    shell.build("a\nb\nc\n", "");
    let expected = [
        ("get", "-- b", "b\t1\n".to_owned()),
        ("dump", "", shell.run("dump t.pkh").expect(0).text().to_owned()),
        ("verify", "", "t.pkh: ok, 3 keys\n".to_owned()),
        ("stats", "--json", shell.run("stats t.pkh --json").expect(0).text().to_owned()),
    ];
    for how in ["--open map", "--open heap", "--preload"] {
        for advice in ["", "normal", "random", "sequential", "will-need"] {
            let advice =
                if advice.is_empty() { String::new() } else { format!("--advice {advice}") };
            for (command, rest, expected) in &expected {
                let run = shell.run(&format!("{command} t.pkh {how} {advice} {rest}")).expect(0);
                assert_eq!(run.text(), expected, "{command} {how} {advice}");
            }
        }
        shell.run(&format!("merge t.pkh {how} -o m.pkh")).expect(0);
        assert!(shell.0.read("m.pkh") == shell.0.read("t.pkh"));
    }
}

#[test]
fn stats() {
    let shell = Shell::new();
    let list: String = (0..5000).map(|i| format!("key-{i:06}\n")).collect();
    shell.build(&list, "--layout inline --partition-bits 3");
    let json = shell.run("stats t.pkh --json").expect(0).json();
    let count = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}"));
    assert_eq!(json["table"], "t.pkh");
    assert_eq!(json["layout"], "inline");
    assert_eq!((count("keys"), count("partitions"), count("seed")), (5000, 8, 0));
    assert_eq!((count("min_key_len"), count("max_key_len")), (10, 10));
    assert_eq!((count("key_bytes"), count("max_value"), count("value_width")), (50_000, 4999, 2));
    assert_eq!(count("bytes"), shell.0.read("t.pkh").len() as u64);
    let sections: u64 =
        json["sections"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert!(sections < count("bytes") && sections + 8 * 256 > count("bytes"), "{json}");
    let load = json["load"].as_f64().unwrap();
    assert!((0.73..=0.75).contains(&load), "{load}");
    assert!((load - 5000.0 / count("slots") as f64).abs() < 1e-9);
    let per_key = json["bytes_per_key"].as_f64().unwrap();
    assert!((per_key - count("bytes") as f64 / 5000.0).abs() < 1e-9);
    let probes: u64 =
        json["probe_lengths"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(probes, 5000);
    assert!(count("longest_probe") >= 2);
    let rate = json["filter_false_positives"].as_f64().unwrap();
    assert!((0.005..=0.025).contains(&rate), "{rate}");
    assert!((0.2..=0.6).contains(&json["filter_fill"].as_f64().unwrap()));
    assert_eq!(json["kernel"], AnyKernel::detect().name());

    let run = shell.run("stats t.pkh").expect(0);
    let text = run.text();
    for part in [
        "t.pkh",
        "layout",
        "inline",
        "5,000",
        "10 bytes",
        "partitions",
        "a key",
        "filter",
        "control",
        "records",
        "load",
        "kernel",
        AnyKernel::detect().name(),
        "% of absent keys",
        "\u{2588}",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // Of other kinds of tables.
    shell.build("a\nbb\n", "--set --filter-bits none --layout term-order");
    let run = shell.run("stats t.pkh").expect(0);
    for part in ["a set", "term-order", "1\u{2026}2 bytes", "slot words", "none"] {
        assert!(run.text().contains(part), "no {part:?} in {}", run.text());
    }
    shell.run("stats missing").fails(&["missing"]);
    shell.run("stats input").fails(&["input"]);
}

/// Lines of 64 bytes that the hits of a perfect table without a filter read on average: of pilots, of
/// offsets if there are any, of records.
fn lines_per_lookup(path: &Path) -> f64 {
    let file = TableFile::open(path).unwrap();
    let (table, unit) = (file.table(), usize::from(file.footer().unit()));
    let mut lines = 0;
    for record in table {
        let (key, value) = record.unwrap();
        let from = value.as_bytes().as_ptr() as usize - table.as_bytes().as_ptr() as usize;
        let len = value.as_bytes().len() + key.len();
        let end = from + if unit > 1 { (len + 1).next_multiple_of(unit) } else { len };
        lines += 1 + usize::from(unit > 0) + (end.div_ceil(64) - from / 64);
    }
    lines as f64 / table.len() as f64
}

#[test]
fn stats_of_perfect_tables() {
    let shell = Shell::new();
    let fixed: String = (0..5000).map(|i| format!("{i:018}\n")).collect();
    let mixed: String = (0..2000).map(|i| format!("{i}{}\n", "x".repeat(i % 150))).collect();
    let long = format!("{mixed}{}\n", "k".repeat(5000));
    for (list, options, keys, per_line, unit) in [
        (&fixed, "", 5000, 3, 0),
        (&fixed, "--packed", 5000, 0, 0),
        (&fixed, "--partition-bits 3", 5000, 3, 0),
        (&mixed, "", 2000, 0, 1),
        (&mixed, "--partition-bits 5", 2000, 0, 1),
        (&long, "", 2001, 0, 4),
    ] {
        shell.build(list, options);
        let json = shell.run("stats t.pkh --json").expect(0).json();
        let number =
            |name: &str| json[name].as_f64().unwrap_or_else(|| panic!("no {name} in {json}"));
        assert_eq!((&json["layout"], &json["keys"]), (&"perfect".into(), &keys.into()));
        assert_eq!(
            (number("records_per_line"), number("offset_unit")),
            (per_line.into(), unit.into())
        );
        assert_eq!((number("exceptions"), number("partition_seeds")), (0.0, 0.0));
        let file = TableFile::open(shell.0.path("t.pkh")).unwrap();
        let partitions =
            (0..file.footer().partitions()).map(|p| file.table().partition(p).unwrap());
        let buckets: u32 = partitions.map(|partition| partition.buckets).sum();
        assert_eq!(number("buckets"), f64::from(buckets));
        let bits = 8.0 * f64::from(buckets) / f64::from(keys);
        assert!((number("pilot_bits_per_key") - bits).abs() < 1e-6, "{options}: {bits}, {json}");
        let lines = lines_per_lookup(&shell.0.path("t.pkh"));
        assert!((number("lines_per_lookup") - lines).abs() < 1e-6, "{options}: {lines}, {json}");
        let load = number("load");
        assert!((0.95..=0.995).contains(&load), "{load}");
        let sections = &json["sections"];
        assert!(sections["pilots"].as_u64().unwrap() >= u64::from(buckets), "{sections}");
        assert_eq!(sections["offset_lines"].as_u64() > Some(0), unit > 0, "{sections}");
        let all: u64 =
            sections.as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
        let footer = file.footer().footer_len() as u64;
        assert_eq!(64 + all + footer, file.footer().file_len(), "{sections}");
        let run = shell.run("stats t.pkh").expect(0);
        for part in ["perfect", "pilots", "records", "load", "filter", "none"] {
            assert!(run.text().contains(part), "no {part:?} in {}", run.text());
        }
    }
    // Of keys that were made to meet, and to have one hash.
    let hex = |key: Vec<u8>| {
        key.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")) + "\n"
    };
    for (list, options, exceptions, seeds) in [
        (meet_with_seed_0(70).map(hex).collect::<String>(), "", 0, 1),
        (meet_with_seed_0(70).map(hex).collect(), "--partition-bits 2", 0, 1),
        (keys_of_one_hash(10), "", 9, 0),
    ] {
        shell.build(list, &format!("--hex {options}"));
        let json = shell.run("stats t.pkh --json").expect(0).json();
        assert_eq!(
            (&json["exceptions"], &json["partition_seeds"]),
            (&exceptions.into(), &seeds.into())
        );
    }
    // Of no keys: numbers all the same.
    shell.build("", "");
    let json = shell.run("stats t.pkh --json").expect(0).json();
    for name in
        ["buckets", "exceptions", "partition_seeds", "pilot_bits_per_key", "lines_per_lookup"]
    {
        assert_eq!(json[name].as_f64(), Some(0.0), "{name}: {json}");
    }
}

#[test]
fn verify() {
    let shell = Shell::new();
    shell.build("a\nb\nc\n", "");
    let good = shell.0.read("t.pkh");
    let mut bad = good.clone();
    bad[70] ^= 1;
    shell.write("bad.pkh", bad);
    shell.write("cut.pkh", &good[..good.len() - 1]);
    shell.write("empty.pkh", "");
    assert_eq!(shell.run("verify t.pkh t.pkh").expect(0).text(), "t.pkh: ok, 3 keys\n".repeat(2));
    for name in ["bad.pkh", "cut.pkh", "empty.pkh", "missing.pkh", "input", "."] {
        shell.run(&format!("verify {name}")).fails(&[name]);
    }
    // All are looked at, whatever is wrong with some.
    let line = "verify cut.pkh t.pkh bad.pkh missing.pkh";
    let run = shell.run(line);
    assert_eq!(run.text(), "t.pkh: ok, 3 keys\n");
    run.fails(&["cut.pkh", "bad.pkh", "checksum", "missing.pkh", "3 of 4"]);
    let run = shell.run(&format!("{line} --json")).expect(2);
    let lines = run.json_lines();
    let ok: Vec<_> = lines.iter().map(|line| line["ok"].as_bool().unwrap()).collect();
    assert_eq!(ok, [false, true, false, false]);
    assert_eq!(lines[1]["keys"], 3);
    assert!(lines[2]["error"].as_str().unwrap().contains("checksum"));
    assert_eq!(lines[3]["table"], "missing.pkh");
}

/// Every command that reads tables says which one is none, and why.
#[test]
fn damaged_tables_are_named_by_every_command() {
    let shell = Shell::new();
    shell.build((0..200).map(|i| format!("{i}\n")).collect::<String>(), "");
    let good = shell.0.read("t.pkh");
    shell.write("cut.pkh", &good[..good.len() / 2]);
    shell.write("text.pkh", "B000000001\n".repeat(100));
    shell.write("empty.pkh", "");
    // What leads to the records is gone, slot words or offset lines: found by whoever reads them.
    for layout in ["term-order", "perfect"] {
        shell.run(&format!("build input -o {layout}.pkh --layout {layout}")).expect(0);
        let path = shell.0.path(&format!("{layout}.pkh"));
        let (at, len) = {
            let file = TableFile::open(&path).unwrap();
            file.footer().sections(&file.table().partition(0).unwrap()).nth(2).unwrap()
        };
        let mut wild = fs::read(&path).unwrap();
        wild[at as usize..(at + len) as usize].fill(0xff);
        shell.write(&format!("{layout}.pkh"), wild);
    }
    let files = shell.0.names();
    for name in ["cut.pkh", "text.pkh", "empty.pkh", "missing.pkh"] {
        for line in ["get _ -- a", "dump _", "stats _", "verify _", "merge t.pkh _ -o m.pkh"] {
            shell.run(&line.replace('_', name)).fails(&[name]);
        }
    }
    for name in ["term-order.pkh", "perfect.pkh"] {
        for line in ["dump _", "verify _", "merge _ -o m.pkh"] {
            shell.run(&line.replace('_', name)).fails(&[name]);
        }
    }
    assert_eq!(shell.0.names(), files);
}

#[test]
fn merge() {
    let shell = Shell::new();
    for (name, lines) in [("a", "a0\na1\na2\n"), ("b", "b0\nb1\n"), ("dup", "a1\nd1\n"), ("e", "")]
    {
        shell.write(name, lines);
        shell.run(&format!("build {name} -o {name}.pkh")).expect(0);
    }
    let merged = |line: &str| {
        shell.run(&format!("merge {line} -o m.pkh")).expect(0);
        shell.table("m.pkh")
    };
    assert_eq!(
        merged("a.pkh b.pkh"),
        pairs([("a0", 0), ("a1", 1), ("a2", 2), ("b0", 0), ("b1", 1)])
    );
    // Numbered on: as if the lists had been one.
    let all = pairs([("a0", 0), ("a1", 1), ("a2", 2), ("b0", 3), ("b1", 4)]);
    assert_eq!(merged("a.pkh e.pkh b.pkh --offset"), all);
    shell.write("ab", "a0\na1\na2\nb0\nb1\n");
    shell.run("build ab -o ab.pkh").expect(0);
    assert!(shell.0.read("m.pkh") == shell.0.read("ab.pkh"));
    let run = shell.run("merge a.pkh b.pkh --offset -o -");
    assert_eq!(run.status.code(), Some(0));
    assert!(run.out == shell.0.read("ab.pkh") && run.err.contains("5 keys"));
    // Over an input, and of one table alone.
    fs::copy(shell.0.path("a.pkh"), shell.0.path("over.pkh")).unwrap();
    shell.run("merge over.pkh b.pkh --offset -o over.pkh").expect(0);
    assert!(shell.0.read("over.pkh") == shell.0.read("ab.pkh"));
    shell.run("merge over.pkh -o over.pkh").expect(0);
    assert!(shell.0.read("over.pkh") == shell.0.read("ab.pkh"));

    // Maps: new numbers, or `-` for a doc that was deleted.
    shell.write("a.map", "7\n-\r\n 300 \n");
    shell.write("b.map", "-\n-");
    shell.write("dup.map", "5\n6\n");
    let line = "a.pkh b.pkh --doc-map a.map --doc-map b.map";
    assert_eq!(merged(line), pairs([("a0", 7), ("a2", 300)]));
    let line = "a.pkh b.pkh --doc-map - --doc-map b.map";
    assert_eq!(merged(line), pairs([("a0", 0), ("a1", 1), ("a2", 2)]));
    // A version that was deleted does not clash with its successor.
    let line = "a.pkh dup.pkh --doc-map a.map --doc-map dup.map";
    assert_eq!(merged(line), pairs([("a0", 7), ("a1", 5), ("a2", 300), ("d1", 6)]));

    let fails = |line: &str, parts: &[&str]| {
        let files = shell.0.names();
        shell.run(&format!("merge {line} -o fails.pkh")).fails(parts);
        assert_eq!(shell.0.names(), files);
    };
    fails("a.pkh dup.pkh", &["duplicate", "\"a1\"", "1", "0", "--on-duplicate"]);
    for (policy, value) in [("first", 1), ("last", 0)] {
        let table = merged(&format!("a.pkh dup.pkh --on-duplicate {policy}"));
        assert_eq!(table, pairs([("a0", 0), ("a1", value), ("a2", 2), ("d1", 1)]));
        let line = format!("merge a.pkh dup.pkh --on-duplicate {policy} -o m.pkh --json");
        let report = shell.run(&line).expect(0).json();
        assert_eq!((&report["keys"], &report["duplicates"]), (&4.into(), &1.into()));
    }
    shell.write("short.map", "1\n2\n");
    shell.write("bad.map", "1\nx\n3\n");
    shell.write("large.map", "1\n2\n4294967295\n");
    fails("a.pkh --doc-map short.map", &["a.pkh", "doc ID 2"]);
    fails("a.pkh --doc-map bad.map", &["bad.map:2", "\"x\""]);
    fails("a.pkh --doc-map large.map", &["large.map:3", "4294967295"]);
    fails("a.pkh --doc-map missing.map", &["missing.map"]);
    fails("a.pkh b.pkh --doc-map a.map", &["--doc-map", "2"]);
    fails("a.pkh --doc-map a.map --offset", &["--offset"]);
    fails("a.pkh missing.pkh", &["missing.pkh"]);
    fails("", &["TABLE"]);
    // Tables that do not go together are named.
    shell.run("build a -o set.pkh --set").expect(0);
    fails("b.pkh set.pkh", &["set.pkh", "expected integers, found none (a set)"]);
    fails("a.pkh b.pkh --memory 1MiB", &["memory budget"]);
    fails("a.pkh b.pkh --temp-dir missing", &["--temp-dir", "missing"]);
    fails("set.pkh --doc-map a.map", &["set.pkh"]);
    fails("set.pkh --offset", &["set.pkh"]);
}

/// Doc IDs end somewhere: no two docs may get one.
#[test]
fn offset_ends_with_the_largest_doc_id() {
    let shell = Shell::new();
    for (name, line) in [("zero", "a\t0"), ("one", "b\t1"), ("last", "c\t18446744073709551615")] {
        shell.write("input", line);
        shell.run(&format!("build input --pairs -o {name}.pkh")).expect(0);
    }
    shell.write("input", "");
    shell.run("build input -o none.pkh").expect(0);
    shell.run("merge last.pkh none.pkh --offset -o m.pkh").expect(0);
    assert_eq!(shell.table("m.pkh"), pairs([("c", u64::MAX)]));
    for line in ["last.pkh none.pkh zero.pkh", "zero.pkh last.pkh", "last.pkh one.pkh"] {
        shell
            .run(&format!("merge {line} --offset -o fails.pkh"))
            .fails(&[line.rsplit(' ').next().unwrap()]);
    }
    assert!(!shell.0.names().contains(&"fails.pkh".to_owned()));
}

#[test]
fn merge_makes_tables_as_build_does() {
    let shell = Shell::new();
    let lists = ["a", "b"].map(|name| {
        let list: String = (0..400).map(|i| format!("{name}{i:04}\n")).collect();
        shell.write(name, &list);
        list
    });
    shell.write("ab", lists.concat());
    for (first, second, bits) in [
        ("--layout inline", "--layout perfect", 10),
        ("--layout term-order --partition-bits 7", "--layout inline", 10),
        ("--layout perfect", "--layout perfect --partition-bits 3", 0),
        ("--layout perfect --partition-bits 11", "--layout term-order", 0),
        ("--layout perfect --filter-bits 8 --packed", "", 8),
    ] {
        shell.run(&format!("build a -o a.pkh {first}")).expect(0);
        shell.run(&format!("build b -o b.pkh {second}")).expect(0);
        for options in [
            "",
            "--layout term-order",
            "--layout inline",
            "--layout perfect --packed",
            "--layout perfect --partition-bits 11",
            "--filter-bits none",
            "--filter-bits 16",
            "--partition-bits 6",
            "--value-width 8",
            "--threads 1",
        ] {
            // The filter is that of the first table, unless asked otherwise.
            let filter = match options.contains("--filter-bits") {
                true => String::new(),
                false => format!("--filter-bits {bits}"),
            };
            shell.run(&format!("build ab -o built.pkh {options} {filter}")).expect(0);
            shell.run(&format!("merge a.pkh b.pkh --offset -o merged.pkh {options}")).expect(0);
            let (built, merged) = (shell.0.read("built.pkh"), shell.0.read("merged.pkh"));
            assert!(merged == built, "{first}, {second}: {options}");
        }
    }
    shell.run("build a -o plain.pkh --filter-bits none").expect(0);
    shell.run("build b -o b.pkh --filter-bits 10").expect(0);
    for (tables, bits) in [("plain.pkh b.pkh", 0), ("b.pkh plain.pkh", 10)] {
        let report = shell.run(&format!("merge {tables} -o m.pkh --json")).expect(0).json();
        assert_eq!(report["filter_bits"], bits);
    }
}

/// Doc IDs of versioned values are not what the footer calls the largest value: numbering on would
/// give several docs one ID.
#[test]
fn offset_is_for_integers() {
    let shell = Shell::new();
    for name in ["a", "b"] {
        let value = ValueChoice::Fixed(ValueFormat::opaque(12).unwrap());
        let table = TableOptions::default().value(value);
        let options = WriterOptions::default().table(table);
        let mut writer =
            TableWriter::create(shell.0.path(&format!("{name}.pkh")), options).unwrap();
        for doc in 0..3u32 {
            let value = [&doc.to_le_bytes()[..], &[0; 8]].concat();
            writer.add_bytes(format!("{name}{doc}").as_bytes(), &value).unwrap();
        }
        writer.publish().unwrap();
    }
    shell.run("merge a.pkh b.pkh --offset -o m.pkh").fails(&["a.pkh", "--offset"]);
    // A map says what is meant.
    shell.write("a.map", "0\n1\n2\n");
    shell.write("b.map", "3\n4\n-\n");
    shell.run("merge a.pkh b.pkh --doc-map a.map --doc-map b.map -o m.pkh").expect(0);
    let run = shell.run("get m.pkh --missing -- a2 b1 b2").expect(1);
    let (a2, b1) = (format!("\\x02{}", "0".repeat(22)), format!("\\x04{}", "0".repeat(22)));
    assert_eq!(run.text(), format!("a2\t{a2}\nb1\t{b1}\nb2\n"));
}

/// Keys of every kind that could be mistaken for something else.
fn awkward_keys() -> Vec<Vec<u8>> {
    let mut rng = Rng(3);
    let mut keys: BTreeSet<Vec<u8>> = [
        &b""[..],
        b" ",
        b"\t",
        b"a\tb",
        b"a\t1",
        b"\n",
        b"a\nb",
        b"\r",
        b"a\r",
        b"\r\n",
        b"\0",
        b"a\0b",
        b"\\",
        b"\\x",
        b"\\x41",
        b"\\x4",
        b"\\X41",
        b"\\\\x41",
        b"\x1b[31m",
        b"\x7f",
        "gr\u{f6}\u{df}e".as_bytes(),
        "\u{85}".as_bytes(),
        "\u{2028}".as_bytes(),
        "\u{feff}bom".as_bytes(),
        b"\xff",
        b"\xc3",
        b"a\xffb",
        b"\"quoted\"",
        b"a,b",
        b"-",
        b"0",
        b"deadbeef",
    ]
    .iter()
    .map(|key| key.to_vec())
    .collect();
    for _ in 0..200 {
        let len = rng.below(24);
        keys.insert(rng.bytes(len));
        let alphabet = b"\\x0a\t\n\r\0\xff ";
        keys.insert((0..rng.below(8)).map(|_| alphabet[rng.below(alphabet.len())]).collect());
    }
    keys.into_iter().collect()
}

/// What `dump` and `get` print, `build --pairs` reads back to the very same file.
#[test]
fn output_is_read_back() {
    let shell = Shell::new();
    let all = awkward_keys();
    // Raw keys must not hold what ends their lines.
    let without = |byte: u8| -> Vec<Vec<u8>> {
        all.iter().filter(|key| !key.contains(&byte)).cloned().collect()
    };
    for (form, keys) in [
        ("", &all),
        ("--hex", &all),
        ("--null", &all),
        ("--null --hex", &all),
        ("--text", &without(b'\n')),
        ("--null --text", &without(0)),
    ] {
        for set in [false, true] {
            let (set, value) = match set {
                true => ("--set", ValueChoice::Fixed(ValueFormat::opaque(0).unwrap())),
                false => ("", ValueChoice::Auto),
            };
            let model: Model = keys
                .iter()
                .enumerate()
                .map(|(i, key)| (key.clone(), if set.is_empty() { int(i as u64) } else { vec![] }))
                .collect();
            let table = TableOptions::default().value(value);
            let options = WriterOptions::default().table(table);
            publish(&shell.0.path("t.pkh"), options, slices(&model)).unwrap();

            let dumped = shell.run(&format!("dump t.pkh {form}")).expect(0).out;
            let line = format!("build - --pairs -o back.pkh {form} {set}");
            shell.run_with_input(&line, &dumped).expect(0);
            assert!(shell.0.read("back.pkh") == shell.0.read("t.pkh"), "dump {form} {set}");

            // A list of keys in that form. A raw line loses a carriage return at its end: that is
            // what the end of a line is on some systems.
            let mut list = Vec::new();
            let mut asked = Model::new();
            for (key, value) in &model {
                match form {
                    "--hex" | "--null --hex" => {
                        let digits = key.iter().fold(String::new(), |mut all, byte| {
                            write!(all, "{byte:02x}").unwrap();
                            all
                        });
                        list.extend_from_slice(digits.as_bytes());
                    }
                    "--null" | "--null --text" if key.contains(&0) => continue,
                    "" | "--text" if key.contains(&b'\n') || key.ends_with(b"\r") => continue,
                    _ => list.extend_from_slice(key),
                }
                list.push(if form.contains("--null") { 0 } else { b'\n' });
                asked.insert(key.clone(), value.clone());
            }
            let got = shell.run_with_input(&format!("get t.pkh --keys - {form}"), &list).expect(0);
            shell.run_with_input(&line, &got.out).expect(0);
            let (_, bytes) =
                build_bytes(WriterOptions::default().table(table), slices(&asked)).unwrap();
            assert!(shell.0.read("back.pkh") == bytes, "get {form} {set}");
        }
    }
    // JSON has one line for each, whatever the key; all of it can be told apart.
    let model: Model =
        all.iter().enumerate().map(|(i, key)| (key.clone(), int(i as u64))).collect();
    publish(&shell.0.path("t.pkh"), WriterOptions::default(), slices(&model)).unwrap();
    for form in ["", "--hex", "--text", "--null"] {
        let lines = shell.run(&format!("dump t.pkh --json {form}")).expect(0).json_lines();
        let keys: BTreeSet<&str> = lines.iter().map(|line| line["key"].as_str().unwrap()).collect();
        assert_eq!(keys.len(), all.len(), "{form}");
    }
}

#[test]
fn kernels_by_name() {
    let shell = Shell::new();
    let list: String = (0..3000).map(|i| format!("key-{i}\n")).collect();
    shell.build(&list, "");
    let with = |kernel: &str, line: &str| {
        run(command(shell.0.root(), line.split_whitespace()).env("PKHASH_KERNEL", kernel))
    };
    let expected = shell.run("get t.pkh --keys input").expect(0).out;
    for kernel in AnyKernel::available().map(AnyKernel::name) {
        let stats = with(kernel, "stats t.pkh --json").expect(0).json();
        assert_eq!(stats["kernel"], kernel);
        assert!(with(kernel, "get t.pkh --keys input").expect(0).out == expected);
        with(kernel, "build input -o u.pkh").expect(0);
        assert!(shell.0.read("u.pkh") == shell.0.read("t.pkh"));
        let demo = with(kernel, "demo --keys 2000 --segments 2 --json").expect(0).json();
        assert_eq!(demo["kernel"], kernel);
    }
    // Empty is as good as unset.
    with("", "get t.pkh --keys input").expect(0);
    for kernel in ["mmx", "AVX2", "\u{e4}"] {
        for line in ["get t.pkh -- a", "stats t.pkh", "demo --keys 10"] {
            with(kernel, line).fails(&["PKHASH_KERNEL", "scalar"]);
        }
    }
}

#[test]
fn a_line_without_end() {
    let shell = Shell::new();
    // Longer than any key that the budget allows: an error, and not all of memory.
    let long = "k".repeat(20 << 20);
    shell.build_fails(format!("short\n{long}"), "--memory 8MiB", &["input:2", "line"]);
    shell.build("k\n", "");
    shell.write("map", "7".repeat(1 << 17));
    shell.run("merge t.pkh --doc-map map -o m.pkh").fails(&["map:1", "line"]);
}

#[test]
fn the_input_is_not_replaced() {
    let shell = Shell::new();
    shell.write("keys", "a\nb\n");
    shell.run("build keys -o keys").fails(&["keys", "input"]);
    shell.run("build keys -o ./keys").fails(&["keys", "input"]);
    assert_eq!(shell.0.read("keys"), b"a\nb\n");
}

#[test]
fn opaque_values_are_not_taken_for_integers() {
    let shell = Shell::new();
    let value = ValueChoice::Fixed(ValueFormat::opaque(2).unwrap());
    let table = TableOptions::default().value(value);
    let options = WriterOptions::default().table(table);
    let mut writer = TableWriter::create(shell.0.path("t.pkh"), options).unwrap();
    writer.add_bytes(b"a", &[0x12, 0x34]).unwrap();
    writer.publish().unwrap();
    let dump = shell.run("dump t.pkh").expect(0);
    assert_eq!(dump.text(), "a\t\\x1234\n");
    shell.build_fails(&dump.out, "--pairs", &["input:1", "opaque"]);
}

#[test]
fn a_line_of_a_mebibyte() {
    let shell = Shell::new();
    let long = "k".repeat(1 << 20);
    let table = shell.build(format!("short\n{long}\n"), "");
    assert_eq!(table, pairs([("short", 0), (&long, 1)]));
    assert_eq!(shell.run("stats t.pkh --json").expect(0).json()["layout"], "term-order");
    shell.write("keys", &long);
    let run = shell.run("get t.pkh --keys keys").expect(0);
    assert!(run.text() == format!("{long}\t1\n"));
    let message = shell.build_fails(format!("{long}\n{long}"), "", &["duplicate", "1048576"]);
    assert!(message.len() < 1000);
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

#[test]
fn ranges_and_prefixes() {
    let shell = Shell::new();
    shell.build("b\nab\na\n\nac\nb\tc\n\u{e4}\n", "--ordered");
    assert_eq!(shell.0.names(), ["input", "t.pkh", "t.pkh.fst"]);
    let all = "\t3\na\t2\nab\t1\nac\t4\nb\t0\n\\x620963\t5\n\u{e4}\t6\n";
    for open in ["map", "heap"] {
        let run = shell.run(&format!("range t.pkh --open {open} --advice random"));
        assert_eq!(run.expect(0).text(), all);
    }
    assert_eq!(shell.args(&["prefix", "t.pkh", ""]).expect(0).text(), all);
    for (line, expected) in [
        ("range t.pkh --from ab", &all["\t3\na\t2\n".len()..]),
        ("range t.pkh --from aa --to ac", "ab\t1\n"),
        ("range t.pkh --to ab", "\t3\na\t2\n"),
        ("range t.pkh --from a --limit 2", "a\t2\nab\t1\n"),
        ("range t.pkh --from aa --to ac --trust", "ab\t1\n"),
        ("range t.pkh --from b --to c --text", "b\t0\nb\tc\t5\n"),
        ("range t.pkh --from 62 --hex", "62\t0\n620963\t5\nc3a4\t6\n"),
        ("range t.pkh --from ab --to b --null", "ab\t1\0ac\t4\0"),
        ("prefix t.pkh a", "a\t2\nab\t1\nac\t4\n"),
        ("prefix t.pkh a --limit 1", "a\t2\n"),
        ("prefix t.pkh 61 --hex", "61\t2\n6162\t1\n6163\t4\n"),
        ("prefix t.pkh c3 --hex", "c3a4\t6\n"),
    ] {
        assert_eq!(shell.run(line).expect(0).text(), expected, "{line}");
    }
    let lines = shell.run("prefix t.pkh b --json").expect(0).json_lines();
    assert_eq!(lines[0], serde_json::json!({ "key": "b", "value": 0 }));
    assert_eq!(lines[1], serde_json::json!({ "key": "\\x620963", "value": 5 }));
    for line in [
        "range t.pkh --from c --to b",
        "range t.pkh --from b --to b",
        "range t.pkh --limit 0",
        "prefix t.pkh abc",
        "prefix t.pkh ff --hex",
    ] {
        assert_eq!(shell.run(line).expect(1).text(), "", "{line}");
    }
    shell.run("range t.pkh --from 0g --hex").fails(&["not hex"]);
    shell.run("prefix t.pkh").fails(&["PREFIX"]);

    // Other commands know of it.
    let verified = shell.run("verify t.pkh").expect(0);
    assert_eq!(verified.text(), "t.pkh: ok, 7 keys, ordered companion ok\n");
    assert_eq!(shell.run("verify t.pkh --json").expect(0).json()["ordered"], true);
    let bytes = shell.0.read("t.pkh.fst").len();
    let stats = shell.run("stats t.pkh").expect(0);
    assert!(stats.text().contains(&format!("ordered       companion of {bytes} B")));
    assert_eq!(shell.run("stats t.pkh --json").expect(0).json()["ordered"]["bytes"], bytes);

    // A table without one, and one of another table.
    shell.run("build input -o u.pkh --value-width 4").expect(0);
    shell.run("range u.pkh").fails(&["u.pkh", "no ordered companion", "u.pkh.fst", "--ordered"]);
    assert!(shell.run("stats u.pkh").expect(0).text().contains("ordered       none"));
    let json = shell.run("stats u.pkh --json").expect(0).json();
    assert!(json.get("ordered").unwrap().is_null());
    assert_eq!(shell.run("verify u.pkh --json").expect(0).json()["ordered"], false);
    let fits_not = |what: &[&str]| {
        let parts = [&["u.pkh.fst", "ordered companion", "expected", "found"], what].concat();
        for line in ["range u.pkh", "prefix u.pkh a", "verify u.pkh"] {
            shell.run(line).fails(&parts);
        }
        let stats = shell.run("stats u.pkh").expect(0);
        assert!(stats.text().contains("unusable: u.pkh.fst"), "{}", stats.text());
        let json = shell.run("stats u.pkh --json").expect(0).json();
        assert!(json["ordered"]["error"].as_str().unwrap().contains(what[0]));
    };
    fs::copy(shell.0.path("t.pkh.fst"), shell.0.path("u.pkh.fst")).unwrap();
    fits_not(&["table's footer checksum", "another table"]);
    shell.run("build input -o u.pkh --value-width 4 --ordered").expect(0);
    shell.run("verify u.pkh").expect(0);
    let mut bad = shell.0.read("u.pkh.fst");
    bad[40] ^= 1;
    shell.write("u.pkh.fst", bad);
    fits_not(&["fst checksum", "offset 16"]);
    shell.write("u.pkh.fst", "");
    fits_not(&["length", "offset 0"]);
}

#[test]
fn building_with_a_companion() {
    let shell = Shell::new();
    let lines: String = (0..300).map(|i| format!("{}\n", i * 7919 % 1009)).collect();
    shell.write("input", &lines);
    let run = shell.run("build input -o t.pkh --ordered --json").expect(0).json();
    assert_eq!(run["ordered"]["bytes"], shell.0.read("t.pkh.fst").len());
    assert!(run["seconds"]["all"].is_number());
    let run = shell.run("build input -o t.pkh --ordered --memory 8MiB --threads 2").expect(0);
    assert!(run.text().contains("ordered companion of"), "{}", run.text());
    let run = shell.run("build input -o u.pkh --json").expect(0).json();
    assert!(run["ordered"].is_null());
    // The same table, so the same companion.
    fs::copy(shell.0.path("t.pkh.fst"), shell.0.path("u.pkh.fst")).unwrap();
    shell.run("verify t.pkh u.pkh").expect(0);
    assert_eq!(shell.0.names(), ["input", "t.pkh", "t.pkh.fst", "u.pkh", "u.pkh.fst"]);

    // In order, as a sort has them.
    let dumped: BTreeMap<Vec<u8>, u64> = shell.table("t.pkh");
    let expected: String = dumped
        .iter()
        .map(|(key, value)| format!("{}\t{value}\n", String::from_utf8_lossy(key)))
        .collect();
    assert_eq!(shell.run("range t.pkh").expect(0).text(), expected);

    for options in ["-o - --ordered", "-o s.pkh --ordered --set"] {
        shell.run(&format!("build input {options}")).fails(&["--ordered"]);
    }
    shell.run("merge t.pkh -o - --ordered").fails(&["--ordered"]);
    assert!(!shell.0.names().contains(&"s.pkh".to_owned()));
    // The companion cannot be made: then there is no table either.
    fs::create_dir(shell.0.path("v.pkh.fst")).unwrap();
    for line in ["build input -o v.pkh --ordered", "merge t.pkh -o v.pkh --ordered"] {
        shell.run(line).fails(&["v.pkh.fst", "not a regular file"]);
        assert!(!shell.0.path("v.pkh").exists());
    }
    shell.write("long", format!("a\n{}\n", "k".repeat(65_537)));
    shell.write("w.pkh", "old");
    let line = "build long -o w.pkh --ordered --layout term-order";
    shell.run(line).fails(&["nothing is published", "companion", "w.pkh", "65537"]);
    assert_eq!(shell.0.read("w.pkh"), b"old");
    assert!(shell.0.names().iter().all(|name| !name.ends_with(".tmp")));
}

/// Of the companions of the inputs, or, if one has none, of the merged table: the bytes are the same.
#[test]
fn merging_with_a_companion() {
    let shell = Shell::new();
    for (name, lines) in [("a", "x\nb\nshared\n"), ("b", "shared\na\nbb\n"), ("none", "")] {
        shell.write(name, lines);
        shell.run(&format!("build {name} -o {name}.pkh --ordered")).expect(0);
    }
    shell.write("map", "5\n-\n9\n");
    for (options, expected) in [
        ("--on-duplicate first", "a\t1\nb\t1\nbb\t2\nshared\t2\nx\t0\n"),
        ("--on-duplicate last", "a\t1\nb\t1\nbb\t2\nshared\t0\nx\t0\n"),
        ("--on-duplicate last --offset", "a\t4\nb\t1\nbb\t5\nshared\t3\nx\t0\n"),
        (
            "--on-duplicate first --doc-map map --doc-map map --doc-map -",
            "bb\t9\nshared\t9\nx\t5\n",
        ),
    ] {
        let line = format!("merge a.pkh b.pkh none.pkh -o m.pkh --ordered --json {options}");
        let report = shell.run(&line).expect(0).json();
        let united = shell.0.read("m.pkh.fst");
        assert_eq!(report["ordered"]["bytes"], united.len());
        assert_eq!(shell.run("range m.pkh").expect(0).text(), expected);
        shell.run("verify m.pkh").expect(0);
        // A companion less, and a damaged one: sorted anew.
        let kept = shell.0.read("b.pkh.fst");
        fs::remove_file(shell.0.path("b.pkh.fst")).unwrap();
        shell.run(&line).expect(0);
        assert!(shell.0.read("m.pkh.fst") == united);
        shell.write("b.pkh.fst", &kept[1..]);
        shell.run(&line).expect(0);
        assert!(shell.0.read("m.pkh.fst") == united);
        shell.write("b.pkh.fst", kept);
    }
    // Over an input.
    shell.run("merge b.pkh none.pkh -o b.pkh --ordered").expect(0);
    shell.run("verify b.pkh").expect(0);
    // Doc ID and version: as `get` prints them.
    let model: Model = (0..3u8).map(|i| (vec![b'k', b'0' + i], vec![i; 12])).collect();
    let options = TableOptions::default().value(ValueFormat::opaque(12).unwrap());
    let options = WriterOptions::default().table(options);
    publish(&shell.0.path("v.pkh"), options, slices(&model)).unwrap();
    shell.run("merge v.pkh -o w.pkh --ordered").expect(0);
    shell.run("verify w.pkh").expect(0);
    let all = shell.run("get w.pkh -- k0 k1 k2").expect(0);
    assert_eq!(shell.run("range w.pkh").expect(0).text(), all.text());
    let lines = shell.run("prefix w.pkh k1 --json").expect(0).json_lines();
    assert_eq!(lines[0]["value"], "01".repeat(12));
    shell.run("build a -o set.pkh --set").expect(0);
    shell.run("merge set.pkh -o s.pkh --ordered").fails(&["s.pkh", "nothing is", "no doc IDs"]);
    assert!(!shell.0.path("s.pkh").exists() && !shell.0.path("s.pkh.fst").exists());
}

/// Every line of a list answers with its number, and the table verifies.
fn check_list(shell: &Shell, lines: &[String], form: &str, options: &str) {
    let list = lines.iter().fold(String::new(), |all, line| all + line + "\n");
    shell.write("list", &list);
    shell.run(&format!("build list -o list.pkh {form} {options}")).expect(0);
    shell.run("verify list.pkh").expect(0);
    let expected = lines
        .iter()
        .enumerate()
        .fold(String::new(), |all, (i, line)| all + &format!("{line}\t{i}\n"));
    let run = shell.run(&format!("get list.pkh --keys list {form}")).expect(0);
    assert!(run.text() == expected);
    // The dump has the same lines in another order.
    let run = shell.run(&format!("dump list.pkh {form}")).expect(0);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(run.text()), sorted(&expected));
}

fn top_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The object IDs of this repository's history; where there is no repository (in a published crate)
/// or no git, as many made-up ones.
fn object_ids() -> Vec<String> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(top_folder())
        .args(["rev-list", "--objects", "--all"])
        .output();
    let text = match listed {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        _ => String::new(),
    };
    let ids: Vec<String> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|id| id.len() == 40)
        .map(str::to_owned)
        .collect();
    if !ids.is_empty() {
        return ids;
    }
    eprintln!("no git history here: the object IDs are made up");
    let mut rng = Rng(4);
    (0..500)
        .map(|_| rng.bytes(20).iter().fold(String::new(), |id, byte| id + &format!("{byte:02x}")))
        .collect()
}

#[test]
fn real_keys_object_ids() {
    let shell = Shell::new();
    let mut ids = object_ids();
    let mut seen = BTreeSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    check_list(&shell, &ids, "--hex", "");
    let stats = shell.run("stats list.pkh --json").expect(0).json();
    assert_eq!((&stats["layout"], &stats["max_key_len"]), (&"perfect".into(), &20.into()));
    // The same in other layouts, and as 40 bytes of text.
    check_list(&shell, &ids, "--hex", "--layout inline");
    check_list(&shell, &ids, "--hex", "--layout term-order");
    check_list(&shell, &ids, "", "");
    assert_eq!(shell.run("stats list.pkh --json").expect(0).json()["layout"], "perfect");
    // IDs that are not there, though they resemble those that are.
    let near: String =
        ids.iter().map(|id| format!("{}\n", id.chars().rev().collect::<String>())).collect();
    let near: String = near
        .lines()
        .filter(|id| !seen.contains(*id))
        .fold(String::new(), |all, id| all + id + "\n");
    assert_eq!(shell.run_with_input("get list.pkh --keys -", near.as_bytes()).expect(1).text(), "");
}

#[test]
fn real_keys_package_names() {
    let shell = Shell::new();
    // A published crate has no lock file of the workspace: then its manifest's lines do.
    let lock = fs::read_to_string(top_folder().join("Cargo.lock")).unwrap_or_default();
    let value = |line: &str, field: &str| {
        line.strip_prefix(field)?.strip_prefix(" = \"")?.strip_suffix('"').map(str::to_owned)
    };
    let mut packages = Vec::new();
    let mut name = None;
    for line in lock.lines() {
        name = value(line, "name").or(name);
        if let (Some(name), Some(version)) = (&name, value(line, "version")) {
            packages.push(format!("{name} {version}"));
        }
    }
    assert!(lock.is_empty() || packages.iter().any(|package| package.starts_with("pkhash-std ")));
    if packages.is_empty() {
        packages = include_str!("../Cargo.toml")
            .lines()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(str::to_owned)
            .collect();
    }
    for options in [
        "",
        "--layout term-order",
        "--layout term-order --filter-bits none",
        "--layout perfect --filter-bits 10",
        "--partition-bits 4",
        "--seed 7",
    ] {
        shell.write("list", "");
        let list = packages.iter().fold(String::new(), |all, line| all + line + "\n");
        shell.write("list", &list);
        shell.run(&format!("build list -o list.pkh {options}")).expect(0);
        let file = shell.0.path("list.pkh");
        let model: Model = packages
            .iter()
            .enumerate()
            .map(|(i, package)| (package.clone().into_bytes(), int(i as u64)))
            .collect();
        for file in open_all(&file) {
            check(&file, &model, &[b"no such package 1.0.0".to_vec()]);
        }
    }
    for options in ["", "--layout term-order"] {
        check_list(&shell, &packages, "", options);
    }
}

/// The same questions to `sort` and `awk`, on a list with duplicates and empty lines.
#[cfg(unix)]
#[test]
fn as_sort_and_awk_have_it() {
    let shell = Shell::new();
    let mut rng = Rng(5);
    let mut line = |i: usize| match i % 5 {
        0 => format!("https://example.org/{}/{}", rng.below(50), rng.below(20_000)),
        1 => format!("{:016x}", rng.next()),
        2 => format!("order {}", rng.below(10_000)),
        3 => format!("B{:09}", rng.below(1_000_000)),
        _ => format!("{i}"),
    };
    let (a, b): (Vec<String>, Vec<String>) =
        ((0..15_000).map(&mut line).collect(), (0..15_000).map(&mut line).collect());
    let asked: Vec<String> = (0..10_000)
        .map(|i| if i % 3 == 0 { format!("absent {i}") } else { a[i].clone() })
        .collect();
    for (name, lines) in [("a", &a), ("b", &b), ("asked", &asked)] {
        shell.write(name, lines.join("\n") + "\n");
    }
    let sh = |script: &str| {
        let output = Command::new("sh")
            .current_dir(shell.0.root())
            .env("LC_ALL", "C")
            .args(["-ec", &script.replace("pkhash", common::command::PKHASH)])
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let same = |ours: &str, theirs: &str| {
        let (ours_out, theirs_out) = (sh(ours), sh(theirs));
        assert!(theirs_out.len() > 10_000, "{theirs}");
        assert!(ours_out == theirs_out, "{ours}\ndiffers from\n{theirs}");
    };
    sh(
        "pkhash build a -o a.pkh --on-duplicate first; pkhash build b -o b.pkh --on-duplicate last --layout term-order",
    );
    same("pkhash dump a.pkh | sort", r#"awk '!seen[$0]++ { print $0 "\t" NR - 1 }' a | sort"#);
    same(
        "pkhash dump b.pkh | sort",
        r#"awk '{ last[$0] = NR - 1 } END { for (k in last) print k "\t" last[k] }' b | sort"#,
    );
    same(
        "pkhash get a.pkh --keys asked || test $? = 1",
        r#"awk 'NR == FNR { if (!($0 in a)) a[$0] = FNR - 1; next } $0 in a { print $0 "\t" a[$0] }' a asked"#,
    );
    same(
        "pkhash get a.pkh --keys asked --missing || test $? = 1",
        r#"awk 'NR == FNR { if (!($0 in a)) a[$0] = FNR - 1; next } $0 in a { $0 = $0 "\t" a[$0] } 1' a asked"#,
    );
    // The merge of two lists is the list of both: the first of equal keys, numbered on.
    sh("cat a b > ab; pkhash merge a.pkh b.pkh -o m.pkh --on-duplicate first 2> note");
    same(
        "pkhash dump m.pkh | sort",
        r#"awk '
            FILENAME == "a" { if (!($0 in a)) a[$0] = FNR - 1; next }
            { b[$0] = FNR - 1 }
            END {
                for (k in a) print k "\t" a[k]
                for (k in b) if (!(k in a)) print k "\t" b[k]
            }' a b | sort"#,
    );
    sh("sort -u ab > all; pkhash build all -o all.pkh; pkhash verify all.pkh m.pkh");
    same("pkhash dump all.pkh | sort -t '\t' -k 2n | cut -f 1", "cat all");
}

#[test]
fn csv_that_ends_in_quotes() {
    let shell = Shell::new();
    // The record that was not closed begins on line 4, whatever comes behind it.
    let head = "a,b,c\n1,\"two\nlines\",3\n";
    for open in ["\"oops", "\"oops,x", "\"", "\"say \"\"", "\"\"\""] {
        for record in [format!("{open},x,y"), format!("x,{open},y"), format!("x,y,{open}")] {
            for more in ["", "\n", "\r\n", "\n2,b,c", "\n2,b,c\n3,d,e\n"] {
                let input = format!("{head}{record}{more}");
                for options in ["--csv --key a", "--csv --key c --skip-empty --set"] {
                    shell.build_fails(&input, options, &["input:4: ", "quoted"]);
                }
                shell
                    .run_with_input("build --csv --key a - -o fails.pkh", input.as_bytes())
                    .fails(&["standard input:4: ", "quoted"]);
            }
        }
    }
    // In the header, behind empty lines, behind CRLF.
    shell.build_fails("a,\"b\n1,2\n", "--csv --key a", &["input:1: ", "quoted"]);
    shell.build_fails("\n\na\n1\n\n\n\"2\n3\n", "--csv --key a", &["input:7: ", "quoted"]);
    shell.build_fails("a\r\n1\r\n\"2\r\n3\r\n", "--csv --key a", &["input:3: ", "quoted"]);
    // What is closed is none of that, with and without an end of the last line.
    for (field, key) in [
        ("\"one\nline\n\"", "one\nline\n"),
        ("\"\"\"\"", "\""),
        ("\"say \"\"hello\"\"\"", "say \"hello\""),
        ("\"\"", ""),
        ("5\" disk", "5\" disk"),
        ("5\"", "5\""),
        ("\"a\"b", "ab"),
        ("\"1\r\n2\"", "1\r\n2"),
    ] {
        for end in ["", "\n", "\r\n", "\r", "\n\n"] {
            let table = shell.build(format!("k,v\n{field},7\nlast,8{end}"), "--csv --key k");
            assert_eq!(table, pairs([(key, 0), ("last", 1)]), "{field}");
            let table = shell.build(format!("v,k\n8,first\n7,{field}{end}"), "--csv --key k");
            assert_eq!(table, pairs([("first", 0), (key, 1)]), "{field}");
        }
    }
    for delimiter in ["\"", "\n", "\r"] {
        let args =
            ["build", "input", "-o", "fails.pkh", "--csv", "--key", "k", "--delimiter", delimiter];
        shell.args(&args).fails(&["--delimiter"]);
    }
}

#[test]
fn csv_records_have_a_bound() {
    let shell = Shell::new();
    let long = "k".repeat(20 << 20);
    let limit = (2 << 20).to_string();
    for (input, line) in [
        (format!("a,b\n\n1,{long}"), 3),
        (format!("a,b\n1,\"{long}\",2\n"), 2),
        (format!("a,b\n1,\"{}\n", "\n".repeat(20 << 20)), 2),
        (long.clone(), 1),
        // A header of many columns takes more memory than its bytes.
        (",".repeat(3 << 20), 1),
    ] {
        let place = format!("input:{line}: ");
        shell.build_fails(input, "--csv --key a --memory 8MiB", &[&place, "record", &limit]);
    }
    if Path::new("/dev/zero").exists() {
        shell.run("build --csv --key a /dev/zero -o fails.pkh --memory 8MiB").fails(&[
            "/dev/zero:1: ",
            "record",
            &limit,
        ]);
    }
    // To the byte, with the end of the line; many columns and long fields within the bound are none of that.
    let most = "v".repeat((2 << 20) - 3);
    for end in ["\n", "\r"] {
        let table = shell.build(format!("k,v\na,{most}{end}b,2\n"), "--csv --key k --memory 8MiB");
        assert_eq!(table, pairs([("a", 0), ("b", 1)]));
        let more = format!("k,v\na,{most}v{end}b,2\n");
        shell.build_fails(more, "--csv --key k --memory 8MiB", &["input:2: ", &limit]);
    }
    shell.build_fails("1,".repeat(100_000), "--csv --key k", &["input:1: ", "\"k\""]);
    let header: Vec<String> = (0..1000).map(|column| format!("c{column}")).collect();
    let wide = format!("{}\n{}x\n", header.join(","), "1,".repeat(999));
    assert_eq!(shell.build(&wide, "--csv --key c999"), pairs([("x", 0)]));
    shell.build_fails(wide + &"1,".repeat(100_000), "--csv --key c0", &["input:3: ", "1000"]);
}

#[test]
fn lines_longer_than_any_key_are_absent() {
    let shell = Shell::new();
    // The longest key is short, or longer than what is held of a line anyway.
    for longest in [3, 5000] {
        let key = "k".repeat(longest);
        shell.build(format!("a\n{key}\n"), "");
        for end in ["", "\n", "\r\n"] {
            for len in [longest + 1, longest + 2, 4096, 4097, 4098, 4099, 5001, 5002, 3 << 20] {
                if len <= longest {
                    continue;
                }
                let long = "k".repeat(len);
                shell.write("keys", format!("{long}\na\r\n{long}\r\n{key}\n{long}{end}"));
                let run = shell.run("get t.pkh --keys keys").expect(1);
                assert_eq!(run.text(), format!("a\t0\n{key}\t1\n"), "{len}");
                assert_eq!(shell.run("in-set t.pkh --keys keys").expect(0).text(), "0\n1\n");
                // One line each, and what is cut is still longer than any key.
                let run = shell.run("get t.pkh --keys keys --missing").expect(1);
                let lines: Vec<_> = run.text().lines().collect();
                assert_eq!(lines.len(), 5);
                for line in [lines[0], lines[2], lines[4]] {
                    assert!(long.starts_with(line) && line.len() > longest && line.len() < 6000);
                    assert!(len > 4096 || line == long);
                }
                let lines = shell.run("get t.pkh --keys keys --missing --json").expect(1);
                assert_eq!(lines.json_lines().len(), 5);

                let hex: String = "6b".repeat(len);
                let key = "6b".repeat(longest);
                shell.write("keys", format!("{hex}\n61\n{hex}\r\n{key}\n{hex}{end}"));
                let run = shell.run("get t.pkh --hex --keys keys").expect(1);
                assert_eq!(run.text(), format!("61\t0\n{key}\t1\n"), "{len}");
                assert_eq!(shell.run("in-set t.pkh --hex --keys keys").expect(0).text(), "0\n1\n");
                shell.write("keys", format!("61\0{hex}\0{key}\0"));
                let run = shell.run("get t.pkh --hex -0 --keys keys").expect(1);
                assert_eq!(run.text(), format!("61\t0\0{key}\t1\0"));
            }
        }
        // What is no hex at its beginning is an error, however long the line is.
        shell.write("keys", format!("61\n{}", "zz".repeat(1 << 20)));
        shell.run("get t.pkh --hex --keys keys").fails(&["keys:2: ", "not hex"]);
    }
}

#[test]
fn the_folder_for_temporary_files_is_looked_at_first() {
    let shell = Shell::new();
    shell.write("file", "");
    shell.write("csv", "k\na\n");
    for folder in ["absent", "file", "absent/deeper"] {
        // Nothing of this would spill.
        for options in ["", "--set", "--ordered", "--memory 64MiB"] {
            let options = format!("{options} --temp-dir {folder}");
            shell.build_fails("a\n", &options, &["--temp-dir", folder]);
        }
        shell
            .run(&format!("build --csv --key k csv -o - --temp-dir {folder}"))
            .fails(&["--temp-dir", folder]);
    }
    fs::create_dir(shell.0.path("there")).unwrap();
    assert_eq!(shell.build("a\n", "--temp-dir there"), pairs([("a", 0)]));
    assert_eq!(fs::read_dir(shell.0.path("there")).unwrap().count(), 0);
}

#[test]
fn inputs_that_are_no_lists() {
    let shell = Shell::new();
    shell.build("a\nb\n", "");
    let table = shell.0.read("t.pkh");
    let gzip = [&[0x1f, 0x8b, 8, 0][..], b"\n1\n2\n"].concat();
    let zstd = [&[0x28, 0xb5, 0x2f, 0xfd][..], b"\n1\n2\n"].concat();
    for (input, cause) in
        [(&gzip, "gzip"), (&zstd, "zstd"), (&table, "dump"), (&gzip[..2].to_vec(), "gzip")]
    {
        for options in ["", "--null", "--text", "--csv --key k", "--csv --key k --hex"] {
            shell.build_fails(input, options, &["input: ", cause]);
        }
        shell.run_with_input("build - -o fails.pkh", input).fails(&["standard input: ", cause]);
    }
    // Nearly so are keys.
    for begin in [&[0x1f][..], &[0x1f, 0x8c], &[0x28, 0xb5, 0x2f], b"\x89pkh", b"\x89PNG"] {
        let input = [begin, b"\nb"].concat();
        assert_eq!(shell.build(input, ""), pairs([(begin, 0), (b"b", 1)]));
    }
    assert_eq!(shell.build("1f8b\n", "--hex"), pairs([([0x1f, 0x8b], 0)]));
}

#[test]
fn a_byte_order_mark_is_no_key() {
    let shell = Shell::new();
    let mark = "\u{feff}";
    let abc = pairs([("a", 0), ("b", 1), ("", 2)]);
    assert_eq!(shell.build(format!("{mark}a\nb\n\n"), ""), abc);
    assert_eq!(shell.build(format!("{mark}a\0b\0\0"), "--null"), abc);
    assert_eq!(shell.build(format!("{mark}61\n62\n\n"), "--hex"), abc);
    assert_eq!(shell.build(format!("{mark}k,v\na,\nb,\n\"\",\n"), "--csv --key k"), abc);
    assert_eq!(shell.build(format!("{mark}\"k\"\na\nb\n\"\"\n"), "--csv --key k"), abc);
    shell.run_with_input("build - -o t.pkh", format!("{mark}a\nb\n\n").as_bytes()).expect(0);
    assert_eq!(shell.table("t.pkh"), abc);
    assert_eq!(shell.build(mark, ""), pairs::<&str>([]));
    // Elsewhere it belongs to the key, and so does a part of it.
    let inside = format!("{mark}b");
    assert_eq!(shell.build(format!("a\n{inside}"), ""), pairs([("a", 0), (&inside, 1)]));
    assert_eq!(shell.build(b"\xef\xbb\n", ""), pairs([(b"\xef\xbb", 0)]));
    // `dump` never begins with a mark: what it writes is read back.
    assert_eq!(shell.build(format!("{mark}{inside}\t5\n"), "--pairs"), pairs([(&inside, 5)]));
    let dump = shell.run("dump t.pkh").expect(0);
    assert_eq!(shell.build(&dump.out, "--pairs"), pairs([(&inside, 5)]));
}
