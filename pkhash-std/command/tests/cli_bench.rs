//! `pkhash bench`: every kind and shape on a small scale, what it refuses, and that nothing is left of its
//! tables. What the IDs look like is tested beside their source.

mod common;

use std::fs;

use common::command::{Run, command, run};
use common::{Folder, names};
use serde_json::Value;

const KINDS: [(&str, u64); 9] = [
    ("sequential", 8),
    ("zero-padded", 10),
    ("nanotime", 10),
    ("uuid-v1", 16),
    ("uuid-v4", 16),
    ("uuid-text", 36),
    ("flake", 16),
    ("flake-text", 20),
    ("asin", 10),
];

/// What keeps a run short.
const SMALL: &str = "--keys 2000 --tasks 1 --probe 64KiB";

/// A folder in which the command runs, and one for its tables.
struct Shell(Folder);

impl Shell {
    fn new() -> Self {
        let folder = Folder::new();
        fs::create_dir(folder.path("tables")).unwrap();
        Self(folder)
    }

    /// Runs `bench` with these options; the tables are gone afterwards.
    #[track_caller]
    fn bench(&self, options: &str) -> Run {
        let line = format!("bench --in tables {options}");
        let run = run(&mut command(self.0.root(), line.split_whitespace()));
        assert_eq!(self.0.names(), ["tables"], "{options}");
        assert!(names(&self.0.path("tables")).is_empty(), "{options}");
        run
    }

    #[track_caller]
    fn json(&self, options: &str) -> Value {
        let json = self.bench(&format!("{options} --json")).expect(0).json();
        assert_eq!(json["checked"], true);
        json
    }
}

#[track_caller]
fn rows(json: &Value) -> &[Value] {
    json["rows"].as_array().unwrap()
}

/// These fields of all rows, as text with spaces between.
#[track_caller]
fn fields(json: &Value, names: &[&str]) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |row: &Value| names.iter().map(|name| text(&row[name])).collect::<Vec<_>>().join(" ");
    rows(json).iter().map(row).collect()
}

/// Three times of which the median lies between the others.
#[track_caller]
fn check_times(times: &Value) {
    let [median, min, max] = ["median", "min", "max"].map(|name| times[name].as_f64().unwrap());
    assert!(0.0 < min && min <= median && median <= max, "{times}");
}

#[test]
fn every_kind_and_shape() {
    let shell = Shell::new();
    let json = shell.json(SMALL);
    for (name, expected) in [
        ("keys", 2000),
        ("absent_percent", 10),
        ("seed", 1),
        ("rounds", 5),
        ("tasks", 1),
        ("task_keys", 4000),
    ] {
        assert_eq!(json[name], expected, "{name}");
    }
    assert!(json["kernel"].is_string());
    assert_eq!(json["probe"]["bytes"], 65_536);
    check_times(&json["probe"]["ns_per_line"]);
    let mut expected = Vec::new();
    for (kind, len) in KINDS {
        for shape in ["equal 15", "tiered 22"] {
            for map in [false, true] {
                expected.push(format!("{kind} {len} {shape} perfect {map}"));
            }
        }
    }
    let columns = ["kind", "key_bytes", "shape", "segments", "layout", "map"];
    assert_eq!(fields(&json, &columns), expected);
    for row in rows(&json) {
        check_times(&row["pk_lookup_ns"]);
        check_times(&row["pk_lookup_batch_ns"]);
        assert!(row["build_keys_per_second"].as_f64().unwrap() > 0.0);
        let bytes = row["bytes_per_key"].as_f64().unwrap();
        let len = row["key_bytes"].as_f64().unwrap();
        // The head, the directory and the tail of so small tables weigh more than their keys.
        assert_eq!(row["map"] == false, bytes > len, "{row}");
    }
}

#[test]
fn kinds_segments_and_shapes_are_chosen() {
    let shell = Shell::new();
    let shown = |options: &str| {
        fields(&shell.json(&format!("{SMALL} --no-map {options}")), &["kind", "shape", "segments"])
    };
    assert_eq!(
        shown("--kind asin,flake --segments 1 3"),
        ["asin equal 1", "asin equal 3", "flake equal 1", "flake equal 3"]
    );
    assert_eq!(
        shown("--kind uuid-v1 --segments 2 --kind asin --segments 4,40"),
        [2, 4, 40]
            .map(|n| format!("uuid-v1 equal {n}"))
            .into_iter()
            .chain([2, 4, 40].map(|n| format!("asin equal {n}")))
            .collect::<Vec<_>>()
    );
    assert_eq!(shown("--kind asin --shape tiered"), ["asin tiered 22"]);
    assert_eq!(shown("--kind asin --shape equal"), ["asin equal 15"]);
    assert_eq!(
        shown("--kind asin --shape tiered equal --segments 5"),
        ["asin tiered 22", "asin equal 5"]
    );
    // As few keys as there can be.
    let least = "--tasks 1 --probe 64 --kind nanotime";
    for options in ["--keys 1 --segments 1", "--keys 15 --shape equal", "--keys 778"] {
        shell.json(&format!("{least} {options}"));
    }
}

#[test]
fn tables_are_as_they_were_asked_for() {
    let shell = Shell::new();
    let bench = |options: &str| {
        let options =
            format!("--keys 20000 --tasks 1 --probe 64KiB --segments 1 --no-map {options}");
        let json = shell.json(&options);
        let [row] = rows(&json) else { panic!("{options}: {json}") };
        (row["layout"].as_str().unwrap().to_owned(), row["bytes_per_key"].as_f64().unwrap())
    };
    // Bytes for each key of 16, with values of 2 or 4, and those of heads and directories.
    for (options, layout, least) in [
        ("--kind uuid-v4", "perfect", 18.3),
        ("--kind uuid-v4 --value-width 4", "perfect", 64.0 / 3.0 + 0.4),
        ("--kind uuid-v4 --value-width 4 --packed", "perfect", 20.4),
        ("--kind uuid-v4 --filter-bits 10", "perfect", 19.6),
        ("--kind uuid-v4 --layout inline --filter-bits none", "inline", 19.0 / 0.75),
        ("--kind uuid-v4 --layout inline", "inline", 19.0 / 0.75 + 1.25),
        (
            "--kind uuid-v4 --layout term-order --filter-bits 0",
            "term-order",
            12.0 + 2.0 + 1.0 + 16.0,
        ),
        ("--kind uuid-text --open heap --threads 1", "perfect", 38.3),
    ] {
        let (found, bytes) = bench(options);
        assert_eq!(found, layout, "{options}");
        assert!((least..1.07 * least).contains(&bytes), "{options}: {bytes}");
    }
    // The ways to open a table.
    for open in ["map --preload", "map --advice random", "heap"] {
        bench(&format!("--kind asin --open {open}"));
    }
}

#[test]
fn all_absent_or_none() {
    let shell = Shell::new();
    for absent in [0, 1, 90, 100] {
        let json = shell
            .json(&format!("{SMALL} --kind uuid-v4 flake-text --segments 3 --absent {absent}"));
        assert_eq!(json["absent_percent"], absent);
        assert_eq!(rows(&json).len(), 4);
    }
    for seed in [0, u64::MAX] {
        let json = shell.json(&format!("{SMALL} --segments 3 --seed {seed}"));
        assert_eq!(json["seed"], seed);
    }
}

#[test]
fn the_table_that_is_printed() {
    let shell = Shell::new();
    let run = shell.bench(&format!("{SMALL} --kind uuid-v4 asin --rounds 6")).expect(0);
    let lines: Vec<&str> = run.text().lines().collect();
    for part in ["2,000 keys", "4,000 IDs", "10 % absent", "6 rounds", "checked"] {
        assert!(lines[0].contains(part), "no {part:?} in {}", lines[0]);
    }
    assert!(lines[1].contains("limit") && lines[1].contains("64.00 KiB"), "{}", lines[1]);
    assert_eq!(lines.len(), 5 + 8, "{}", run.text());
    for word in ["kind", "segments", "layout", "map", "bytes a key", "PKLookup", "PKLookupBatch"] {
        assert!(lines[4].contains(word), "no {word:?} in {}", lines[4]);
    }
    let begin = |line: &str| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    assert_eq!(
        lines[5..].iter().map(|line| begin(line)).collect::<Vec<_>>(),
        [
            "uuid-v4 15 perfect no",
            "uuid-v4 15 perfect yes",
            "uuid-v4 7+7+8 perfect no",
            "uuid-v4 7+7+8 perfect yes",
            "asin 15 perfect no",
            "asin 15 perfect yes",
            "asin 7+7+8 perfect no",
            "asin 7+7+8 perfect yes",
        ]
    );
    // Two figures with the least and the greatest behind them.
    for line in &lines[5..] {
        assert_eq!(line.matches(['(', '–', ')']).count(), 6, "{line}");
    }
}

#[test]
fn options_that_do_not_fit() {
    let shell = Shell::new();
    for (options, parts) in [
        // Of all kinds, this one is too long: nothing else is measured first.
        ("--layout inline", &["uuid-text", "36", "31"][..]),
        ("--value-width 9", &["value width", "9"]),
        ("--value-width 8", &["--value-width 8", "doc ID"]),
        ("--kind asin --partition-bits 60", &["asin", "partition bits", "60"]),
        ("--keys 14", &["--segments 15", "--keys 14"]),
        ("--keys 99 --segments 100", &["--segments 100", "--keys 99"]),
        ("--keys 777 --shape tiered", &["--keys 777", "778"]),
        ("--keys 0", &["--keys"]),
        ("--keys 4294967296", &["--keys"]),
        ("--segments 0", &["--segments"]),
        ("--segments 65537", &["--segments", "65536"]),
        ("--shape tiered --segments 3", &["--segments", "equal"]),
        ("--shape round", &["--shape", "equal", "tiered"]),
        ("--kind uuid", &["--kind", "uuid-v1", "flake-text"]),
        ("--rounds 4", &["--rounds", "5"]),
        ("--tasks 0", &["--tasks"]),
        ("--tasks 1001", &["--tasks", "1000"]),
        ("--absent 101", &["--absent"]),
        ("--filter-bits 65", &["--filter-bits"]),
        ("--probe 63", &["--probe", "63 B"]),
        ("--probe 8EiB", &["--probe", "EiB"]),
        ("--probe much", &["--probe"]),
        ("--seed=-1", &["--seed"]),
        ("one.pkh", &["one.pkh"]),
    ] {
        let message = shell.bench(options).fails(parts);
        assert!(!message.contains("wrong answer"), "{message}");
    }
    let bench = |folder: &str| {
        let args = ["bench", "--keys", "1000", "--in", folder];
        run(&mut command(shell.0.root(), args))
    };
    bench("missing").fails(&["missing"]);
    shell.0.write("file", "");
    bench("file").fails(&["file"]);
    let mut kernel = command(shell.0.root(), ["bench", "--keys", "1000"]);
    run(kernel.env("PKHASH_KERNEL", "mmx")).fails(&["PKHASH_KERNEL", "scalar"]);
}

#[test]
fn help() {
    let shell = Shell::new();
    let all = run(&mut command(shell.0.root(), ["--help"])).expect(0);
    assert!(all.text().contains("bench"));
    let help = run(&mut command(shell.0.root(), ["bench", "--help"])).expect(0);
    let options = ["--keys", "--segments", "--shape", "--layout", "--threads", "--open", "--json"];
    for part in options.into_iter().chain(KINDS.map(|(kind, _)| kind)) {
        assert!(help.text().contains(part), "{part}");
    }
}

/// Without `--in`, tables are made in the system's folder for temporary files.
#[cfg(unix)]
#[test]
fn the_systems_folder() {
    let shell = Shell::new();
    let line = format!("bench {SMALL} --kind asin");
    let mut bench = command(shell.0.root(), line.split_whitespace());
    run(bench.env("TMPDIR", shell.0.path("tables"))).expect(0);
    assert!(names(&shell.0.path("tables")).is_empty());
    let mut bench = command(shell.0.root(), line.split_whitespace());
    run(bench.env("TMPDIR", shell.0.path("missing"))).fails(&["missing"]);
}

/// A closed pipe ends it, too.
#[cfg(unix)]
#[test]
fn nobody_reads() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let shell = Shell::new();
    let line = format!("bench --in tables {SMALL}");
    let mut child = command(shell.0.root(), line.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    assert!(names(&shell.0.path("tables")).is_empty());
}

#[cfg(unix)]
mod signals {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Output, Stdio};
    use std::thread::sleep;
    use std::time::Duration;

    use super::common::command::heard;
    use super::*;

    /// Runs that would take hours, if it were not for the signals.
    fn begin(shell: &Shell, options: &str) -> Child {
        let line = format!("bench --in tables --probe 64KiB {options}");
        command(shell.0.root(), line.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Waits until the folder of the tables, made by the command, has a file.
    fn wait_for_tables(shell: &Shell, child: &mut Child) {
        loop {
            assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
            let made = names(&shell.0.path("tables"));
            // It may vanish at any time.
            let files = made.first().map(|name| fs::read_dir(shell.0.path("tables").join(name)));
            if files.is_some_and(|files| files.is_ok_and(|files| files.count() > 0)) {
                return;
            }
            sleep(Duration::from_millis(1));
        }
    }

    fn kill(child: &Child, signal: &str) {
        let line = format!("kill -{signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    fn is_clean(shell: &Shell, output: &Output) {
        assert_eq!(output.status.signal(), None);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!err.contains("panicked"), "{err}");
        assert!(names(&shell.0.path("tables")).is_empty(), "{:?}", names(&shell.0.path("tables")));
    }

    /// One signal, at many times: while tables are built, mapped, and measured.
    #[test]
    fn cancelled() {
        let signals = ["INT", "TERM", "HUP", "INT", "TERM", "INT"].map(heard);
        for (i, signal) in signals.iter().enumerate() {
            let shell = Shell::new();
            let mut child = begin(&shell, "--keys 100000 --rounds 10000");
            wait_for_tables(&shell, &mut child);
            sleep(Duration::from_millis(i as u64 * 150));
            kill(&child, signal);
            let output = child.wait_with_output().unwrap();
            is_clean(&shell, &output);
            let code = if *signal == "INT" {
                130
            } else if *signal == "TERM" {
                143
            } else {
                129
            };
            assert_eq!(output.status.code(), Some(code));
        }
    }

    /// A second signal does not wait for the end of anything: not for that of a round of four million IDs.
    #[test]
    fn cancelled_at_once() {
        let shell = Shell::new();
        let mut child =
            begin(&shell, "--keys 1000 --segments 1 --rounds 5 --tasks 1000 --kind asin");
        wait_for_tables(&shell, &mut child);
        kill(&child, heard("INT"));
        // Signals that wait are one.
        sleep(Duration::from_millis(200));
        kill(&child, heard("INT"));
        is_clean(&shell, &child.wait_with_output().unwrap());
    }
}
