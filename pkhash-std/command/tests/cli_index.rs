//! Indexes, by the `pkhash` command: `add`, `delete`, `compact` and `ls`, what the commands that read make of an index,
//! and what they say of one that is damaged, locked, or not there.

mod common;

use std::fs;
use std::path::Path;
use std::thread;

use common::command::{Run, command, run, run_with_input};
use common::{Folder, names};
use pkhash_std::Index;
use serde_json::{Value, json};

/// A folder in which commands run.
struct Shell(Folder);

impl Shell {
    fn new() -> Self {
        Self(Folder::new())
    }

    /// Runs a command line without quotes: parts are separated by spaces.
    fn run(&self, line: &str) -> Run {
        run(&mut command(self.0.root(), line.split_whitespace()))
    }

    #[track_caller]
    fn text(&self, line: &str) -> String {
        self.run(line).expect(0).text().to_owned()
    }

    /// Adds a table of keys whose docs are their numbers. The line goes on with options.
    #[track_caller]
    fn add(&self, keys: &[&str], line: &str) -> String {
        self.0.write("keys", keys.join("\n"));
        let folder = line.split(' ').next().unwrap();
        self.text(&format!("add {folder} keys {}", &line[folder.len()..]))
    }

    /// The names of an index's files.
    fn files(&self, index: &str) -> Vec<String> {
        names(&self.0.path(index))
    }

    /// The index `ix`, as [`GET`], [`IN_SET`] and [`DUMP`] have it. From three tables on there is a segment map.
    fn orders() -> Self {
        let shell = Self::new();
        shell.add(&["a", "b", "c", "d"], "ix");
        shell.add(&["c", "e"], "ix");
        shell.run("delete ix -- b").expect(0);
        shell.add(&["d", "f"], "ix --replace");
        shell
    }
}

const SEGMENTS: [&str; 3] =
    ["segment-000000000003.pkh", "segment-000000000002.pkh", "segment-000000000001.pkh"];

/// `get ix -- a b c d e f g`
const GET: &str = "a 1 0\nc 2 0\nd 3 0\ne 2 1\nf 3 1\n";

/// `in-set ix -- a b c d e f g`
const IN_SET: &str = "3 0\n3 1\n2 0\n2 1\n1 0\n1 2\n";

const DUMP: &str = "a 0\nc 0\nd 0\ne 1\nf 1\n";

/// Numbers of tables of `ix` for their names, and spaces for tabs.
fn short(text: &str) -> String {
    text.replace("ix/segment-00000000000", "").replace(".pkh", "").replace('\t', " ")
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<String> =
        text.lines().map(|line| format!("{}\n", line.replace('\t', " "))).collect();
    lines.sort();
    lines.concat()
}

#[test]
fn add_makes_the_folder_and_reports() {
    let shell = Shell::new();
    let text = shell.add(&["a", "b", "c"], "new/ix");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("new/ix/segment-000000000001.pkh: 3 keys, "), "{text}");
    assert_eq!(lines[1..], ["new/ix: snapshot 2, 1 tables, 3 keys"]);
    let files = ["manifest-000000000002.json", "segment-000000000001.pkh", "writer.lock"];
    assert_eq!(shell.files("new/ix"), files);
    let text = shell.add(&["b", "d"], "new/ix --replace");
    assert!(text.ends_with("\nnew/ix: snapshot 3, 2 tables, 5 keys, 1 docs deleted\n"), "{text}");

    shell.0.write("keys", "e\nf\n");
    let lines = shell.run("add new/ix keys --json").expect(0).json_lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["table"], "new/ix/segment-000000000003.pkh");
    assert_eq!(lines[0]["keys"], 2);
    let report = |snapshot: u32, deleted: Value| json!({ "index": "new/ix", "snapshot": snapshot, "tables": 3, "keys": 7, "deleted": deleted });
    assert_eq!(lines[1], report(4, Value::Null));
    let run = shell.run("delete new/ix --json -- a zzz").expect(0);
    assert_eq!(run.json(), report(5, 1.into()));
    // Keys that are not there are no change, and no snapshot.
    let run = shell.run("delete new/ix --json -- a zzz").expect(0);
    assert_eq!(run.json(), report(5, 0.into()));
    let text = shell.text("delete new/ix -- zzz");
    assert_eq!(text, "new/ix: snapshot 5, 3 tables, 7 keys, 0 docs deleted\n");
}

#[test]
fn add_that_fails_leaves_all_as_it_was() {
    let shell = Shell::orders();
    shell.0.write("twice", "x\nx\n");
    shell.0.write("odd", "abc\n");
    shell.0.write("text", "no table, but long enough for the head of one: ".repeat(10));
    shell.run("build keys --set -o set.pkh").expect(0);
    fs::copy(shell.0.path("set.pkh"), shell.0.path("ix/.hidden.pkh")).unwrap();
    let files = shell.files("ix");
    for (line, parts) in [
        ("missing", &["cannot open missing"][..]),
        ("twice", &["twice", "--on-duplicate"]),
        ("odd --hex", &["odd", "not hex"]),
        ("text --table", &["pkhash: text: not a pkhash table"]),
        ("missing --table", &["cannot open missing"]),
        ("ix/segment-000000000002.pkh --table", &["ix/segment-000000000002.pkh: is a segment"]),
        // Its name would be none that a manifest may have.
        ("ix/.hidden.pkh --table", &["ix/.hidden.pkh", "begins with no dot"]),
        ("ix/manifest-000000000005.json --table", &["manifest-000000000005.json"]),
    ] {
        shell.run(&format!("add ix {line}")).fails(parts);
        assert_eq!(shell.files("ix"), files, "{line}");
    }
    // A folder that was not there is not made for it.
    shell.run("add fresh missing").fails(&["cannot open missing"]);
    assert!(!shell.0.path("fresh").exists());
    assert_eq!(short(shell.run("get ix -- a b c d e f g").expect(1).text()), GET);
    // The keys of a set have no docs to delete.
    shell.run("add ix set.pkh --table").expect(0);
    let files = shell.files("ix");
    shell.run("add ix keys --replace").fails(&["ix/segment-", "no doc ID"]);
    assert_eq!(shell.files("ix"), files);
}

#[test]
fn tables_that_lie_in_the_folder_are_the_first_segments() {
    let shell = Shell::new();
    fs::create_dir(shell.0.path("ix")).unwrap();
    for name in ["10", "9", "2"] {
        shell.0.write("list", format!("x\n{name}\n"));
        shell.run(&format!("build list -o ix/{name}.pkh")).expect(0);
    }
    shell.0.write("ix/notes", "left alone");
    let text = shell.add(&["y"], "ix");
    assert!(text.ends_with("\nix: snapshot 2, 4 tables, 7 keys\n"), "{text}");
    let tables = shell.text("ls ix");
    let tables: Vec<&str> = tables.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(tables, ["segment-000000000001.pkh", "10.pkh", "9.pkh", "2.pkh"]);
    assert_eq!(shell.text("get ix -- x 9"), "x\tix/10.pkh\t0\n9\tix/9.pkh\t1\n");
    // From now on the manifest counts: what is laid into the folder is no segment, until it is added.
    fs::copy(shell.0.path("ix/2.pkh"), shell.0.path("ix/99.pkh")).unwrap();
    assert_eq!(shell.text("get ix -- x"), "x\tix/10.pkh\t0\n");
    assert_eq!(shell.text("verify ix").lines().count(), 4);
    shell.run("add ix --table ix/99.pkh").expect(0);
    assert_eq!(shell.text("get ix -- x"), "x\tix/99.pkh\t0\n");
    // A merge takes their place.
    shell.run("compact ix --all").expect(0);
    assert!(shell.files("ix").iter().all(|name| !name.ends_with("9.pkh")));
    assert_eq!(shell.0.read("ix/notes"), b"left alone");
    // Names that tell no order.
    fs::create_dir(shell.0.path("odd")).unwrap();
    for name in ["0a10", "0a9f", "longer"] {
        shell.run(&format!("build list -o odd/{name}.pkh")).expect(0);
    }
    shell.run("add odd list").fails(&["odd: ", "0a10.pkh", "0a9f.pkh", "newer"]);
}

#[test]
fn a_table_that_is_added_stays_when_the_original_goes() {
    let shell = Shell::new();
    shell.0.write("list", "k0\nk1\n");
    shell.run("build list -o out.pkh --ordered").expect(0);
    assert_eq!(shell.text("add ix --table out.pkh"), "ix: snapshot 2, 1 tables, 2 keys\n");
    // Its ordered companion came with it.
    assert_eq!(shell.text("range ix --from k1"), "k1\t1\n");
    // Another one under the old name is not the one that was added.
    shell.0.write("list", "k2\n");
    shell.run("build list -o out.pkh").expect(0);
    assert_eq!(shell.text("get ix -- k1"), "k1\tix/segment-000000000001.pkh\t1\n");
    assert_eq!(shell.run("add ix --table out.pkh --json").expect(0).json()["tables"], 2);
    fs::remove_file(shell.0.path("out.pkh")).unwrap();
    assert_eq!(shell.text("get ix -- k1 k2").lines().count(), 2);
    assert_eq!(shell.text("verify ix").lines().count(), 2);
    // With what it replaces.
    shell.0.write("list", "k0\nk3\n");
    shell.run("build list -o other.pkh").expect(0);
    let text = shell.text("add ix --table other.pkh --replace");
    assert_eq!(text, "ix: snapshot 4, 3 tables, 5 keys, 1 docs deleted\n");
    assert_eq!(shell.text("in-set ix -- k0"), "ix/segment-000000000003.pkh\t0\n");
    // It is a table already: nothing about how to build one fits.
    for option in ["--pairs", "--skip-empty", "--ordered", "--csv --key k"] {
        shell.run(&format!("add ix --table other.pkh {option}")).fails(&["cannot be used with"]);
    }
    shell.run("add ix keys --values --replace").fails(&["cannot be used with"]);
}

/// They are found, but their keys are not deleted, and docs are not numbered with them.
#[test]
fn values_that_are_no_doc_ids() {
    let shell = Shell::new();
    shell.add(&["a", "b"], "ix");
    shell.0.write("pairs", "v\t7\nw\t8\n");
    shell.run("add ix pairs --pairs --values").expect(0);
    shell.add(&["c"], "ix");
    let lines = shell.run("ls ix --json").expect(0).json_lines();
    assert_eq!(lines[1]["docs"], Value::Null);
    assert_eq!((&lines[0]["doc_base"], &lines[1]["doc_base"]), (&json!(2), &json!(2)));
    assert_eq!(shell.text("ls ix").lines().nth(1).unwrap().split('\t').nth(2), Some("-"));
    assert_eq!(short(&shell.text("get ix -- v c a")), "v 2 7\nc 3 0\na 1 0\n");
    let files = shell.files("ix");
    for line in ["delete ix -- v", "delete ix -- a v"] {
        shell.run(line).fails(&["ix/segment-000000000002.pkh", "no doc ID"]);
    }
    shell.0.write("list", "v\n");
    shell.run("add ix list --replace").fails(&["ix/segment-000000000002.pkh", "no doc ID"]);
    assert_eq!(shell.files("ix"), files);
    assert_eq!(short(&shell.text("get ix -- v c a")), "v 2 7\nc 3 0\na 1 0\n");
    // They are not taken for docs, nor numbered as such.
    for line in ["in-set ix -- a", "in-set ix --offset -- v", "merge ix -o m.pkh --offset"] {
        shell.run(line).fails(&["ix/segment-000000000002.pkh", "expected doc IDs"]);
    }
    // Nor are they merged with docs, not even those of a table that has none beside it but them.
    shell.run("delete ix -- a").expect(0);
    assert_eq!(shell.text("compact ix"), "ix: nothing to merge\n");
    shell.run("compact ix --all").fails(&["ix/segment-000000000002.pkh", "another kind"]);
    shell.add(&["c"], "ix --replace");
    assert_eq!(short(&shell.text("get ix -- b v c")), "b 1 1\nv 2 7\nc 5 0\n");
}

#[test]
fn keys_to_delete_come_from_the_command_line_a_file_or_standard_input() {
    let shell = Shell::new();
    shell.add(&["a", "b", "c", "d", "e", "f"], "ix");
    let left = |expected: &str| {
        assert_eq!(sorted(&shell.text("dump ix")), expected);
        let keys: String = expected.lines().map(|line| format!(" {}", &line[..1])).collect();
        assert_eq!(shell.text(&format!("in-set ix --{keys}")).lines().count(), keys.len() / 2);
    };
    assert!(shell.text("delete ix -- a zz").ends_with(", 1 docs deleted\n"));
    left("b 1\nc 2\nd 3\ne 4\nf 5\n");
    shell.0.write("gone", "b\r\nzz\r\nb\r\n");
    assert!(shell.text("delete ix --keys gone").ends_with(", 1 docs deleted\n"));
    left("c 2\nd 3\ne 4\nf 5\n");
    let delete = |line: &str, input: &str| {
        let mut delete = command(shell.0.root(), line.split(' '));
        run_with_input(&mut delete, input.as_bytes()).expect(0).text().to_owned()
    };
    assert!(delete("delete ix --keys -", "c\n").ends_with(", 1 docs deleted\n"));
    assert!(delete("delete ix --keys - --null", "d\0zz").ends_with(", 1 docs deleted\n"));
    left("e 4\nf 5\n");
    assert!(delete("delete ix --keys -", "").ends_with(", 0 docs deleted\n"));
    assert!(shell.text("delete ix --hex -- 65 7a").ends_with(", 1 docs deleted\n"));
    left("f 5\n");
    shell.run("delete ix --hex -- 6").fails(&["not hex"]);
    shell.run("delete ix --keys missing").fails(&["cannot open missing"]);
    shell.run("delete ix").fails(&["KEY"]);
    left("f 5\n");
    // A table of which nothing is live goes, and an index of no tables is one.
    let text = shell.text("delete ix -- f");
    assert_eq!(text, "ix: snapshot 8, 0 tables, 0 keys, 1 docs deleted\n");
    for line in ["ls ix", "ls ix --json", "dump ix", "stats ix", "verify ix"] {
        assert_eq!(shell.text(line), "", "{line}");
    }
    for line in ["get ix -- f", "in-set ix -- f", "in-set ix --offset -- f"] {
        assert_eq!(shell.run(line).expect(1).text(), "", "{line}");
    }
    assert_eq!(shell.text("compact ix --all"), "ix: nothing to merge\n");
    shell.add(&["f"], "ix");
    assert_eq!(shell.text("get ix -- f").lines().count(), 1);
    assert_eq!(shell.files("ix").len(), 3, "{:?}", shell.files("ix"));
}

#[test]
fn compact_merges_what_the_policy_says_or_all() {
    let shell = Shell::orders();
    // A half of the oldest is deleted.
    assert_eq!(shell.text("compact ix --max-deleted 50"), "ix: nothing to merge\n");
    assert_eq!(shell.text("compact ix --max-deleted 50 --json"), "");
    let text = shell.text("compact ix --max-deleted 49 --max-keys 5");
    assert!(text.starts_with(&format!("{} + {} → ", SEGMENTS[1], SEGMENTS[2])), "{text}");
    assert_eq!(shell.text("ls ix").lines().count(), 2);
    let keys = ["a", "c", "d", "e", "f"];
    let found = shell.run("get ix -- a b c d e f g").expect(1);
    assert!(found.text().lines().map(|line| &line[..1]).eq(keys));

    let shell = Shell::orders();
    let run = shell.run("compact ix --all --json").expect(0);
    assert_eq!(
        run.json(),
        json!({
            "inputs": SEGMENTS,
            "output": "segment-000000000005.pkh",
            "keys": 5,
            "bytes": fs::metadata(shell.0.path("ix/segment-000000000005.pkh")).unwrap().len(),
            "duplicates": 1,
        })
    );
    // The oldest docs come first. The older doc of c has no key any more.
    assert_eq!(sorted(&shell.text("dump ix")), "a 0\nc 2\nd 4\ne 3\nf 5\n");
    let files = ["manifest-000000000006.json", "segment-000000000005.pkh", "writer.lock"];
    assert_eq!(shell.files("ix"), files);
    assert_eq!(shell.text("compact ix --all"), "ix: nothing to merge\n");
    assert_eq!(shell.text("compact ix"), "ix: nothing to merge\n");
    // One table, of which something is deleted.
    shell.run("delete ix -- a").expect(0);
    let text = shell.text("compact ix --all");
    assert!(text.starts_with("segment-000000000005.pkh → segment-00000000000"), "{text}");
    assert!(text.contains(": 4 keys, "), "{text}");
    shell.run("compact ix --all --tier 3").fails(&["cannot be used with"]);
}

#[test]
fn ls_lists_the_newest_first() {
    let shell = Shell::orders();
    let bytes = |name: &str| fs::metadata(shell.0.path(&format!("ix/{name}"))).unwrap().len();
    let facts = [(2, 2, 0, 6), (2, 2, 0, 4), (4, 4, 2, 0)];
    let (mut text, mut lines) = (String::new(), Vec::new());
    for (name, (keys, docs, deleted, doc_base)) in SEGMENTS.into_iter().zip(facts) {
        let bytes = bytes(name);
        text += &format!("{name}\t{keys}\t{docs}\t{deleted}\t{bytes}\n");
        lines.push(json!({
            "table": name, "keys": keys, "docs": docs, "deleted": deleted, "doc_base": doc_base,
            "bytes": bytes, "snapshot": 5,
        }));
    }
    assert_eq!(shell.text("ls ix"), text);
    assert_eq!(shell.run("ls ix --json").expect(0).json_lines(), lines);
}

/// Order and deletes, by every command that reads, however tables are held.
#[test]
fn all_that_read_go_by_the_manifest() {
    let shell = Shell::orders();
    for open in ["", "--open map", "--open heap", "--preload", "--advice random"] {
        let text = |line: &str| shell.text(&line.replace("ix", &format!("ix {open}")));
        let found = shell.run(&format!("get ix {open} -- a b c d e f g")).expect(1);
        assert_eq!(short(found.text()), GET, "{open}");
        let mut batch =
            command(shell.0.root(), format!("get ix {open} --keys -").split_whitespace());
        assert_eq!(run_with_input(&mut batch, b"a\nb\nc\nd\ne\nf\ng\n").expect(1).out, found.out);
        assert_eq!(short(&text("in-set ix -- a b c d e f g")), IN_SET, "{open}");
        // IDs of the index: its oldest docs come first.
        let offset = "3 6\n3 7\n2 4\n2 5\n1 0\n1 2\n";
        assert_eq!(short(&text("in-set ix --offset -- a b c d e f g")), offset, "{open}");
        assert_eq!(shell.run(&format!("in-set ix {open} -- b g")).expect(1).text(), "");
        let dump = text("dump ix");
        assert_eq!(sorted(&dump), DUMP, "{open}");
        assert!(dump.lines().take(2).all(|line| line.starts_with(['d', 'f'])), "{dump}");
        let ok = "3: ok, 2 keys\n2: ok, 2 keys\n1: ok, 4 keys\n";
        assert_eq!(short(&text("verify ix")), ok, "{open}");
        let tables = SEGMENTS.map(|name| json!(format!("ix/{name}")));
        for line in ["verify ix --json", "stats ix --json"] {
            let run = shell.run(&line.replace("ix", &format!("ix {open}"))).expect(0);
            assert!(run.json_lines().iter().map(|line| &line["table"]).eq(&tables), "{line}");
        }
        shell.run(&format!("merge ix {open} --on-duplicate first -o m.pkh")).expect(0);
        assert_eq!(sorted(&shell.text("dump m.pkh")), DUMP);
        shell.run(&format!("merge ix {open} --on-duplicate first --offset -o m.pkh")).expect(0);
        assert_eq!(sorted(&shell.text("dump m.pkh")), "a 4\nc 2\nd 0\ne 3\nf 1\n");
        shell.run(&format!("merge ix {open} -o fails.pkh")).fails(&["\"c\"", "--on-duplicate"]);
    }
    assert!(!shell.0.path("fails.pkh").exists());
    shell.run("in-set ix --offset --bitmap docs -- a c").expect(0);
    assert_eq!(fs::metadata(shell.0.path("docs")).unwrap().len(), 8 + 8 + 2 * 3);
    let lines = shell.run("in-set ix --offset --json -- c").expect(0).json_lines();
    let bases: Vec<_> = lines.iter().map(|line| line["doc_base"].as_u64().unwrap()).collect();
    assert_eq!(bases, [6, 4, 0]);
    let answer = json!({ "key": "c", "table": "ix/segment-000000000002.pkh", "value": 0 });
    assert_eq!(shell.run("get ix --json -- c").expect(0).json(), answer);
}

#[test]
fn an_index_knows_its_deleted_docs() {
    let shell = Shell::orders();
    shell.0.write("none", "");
    shell.run("build keys -o t.pkh").expect(0);
    for tables in ["ix", "t.pkh ix"] {
        for option in ["--deleted-docs", "--live-docs"] {
            let named = format!("{option} segment-000000000001.pkh=none");
            for line in ["get @ -- a", "in-set @ -- a", "merge @ -o m.pkh"] {
                let line = line.replace('@', &format!("{tables} {named}"));
                shell.run(&line).fails(&["ix: an index", "`pkhash delete`"]);
            }
        }
    }
    let map = "--doc-map segment-000000000001.pkh=none";
    shell.run(&format!("merge ix {map} -o m.pkh")).fails(&["ix/", "--doc-map", "deleted"]);
    assert!(!shell.0.path("m.pkh").exists());
}

#[test]
fn indexes_tables_and_folders_are_searched_in_the_order_of_the_command_line() {
    let shell = Shell::orders();
    shell.add(&["a", "z"], "other");
    shell.run("delete other -- z").expect(0);
    fs::create_dir(shell.0.path("plain")).unwrap();
    shell.0.write("list", "b\na\n");
    shell.run("build list -o plain/1.pkh").expect(0);
    shell.run("build list -o t.pkh").expect(0);
    let (one, other) = ("ix/segment-000000000001.pkh\t0", "other/segment-000000000001.pkh\t0");
    for open in ["map", "heap"] {
        for (tables, a, b) in [
            ("ix other", one, None),
            ("other ix", other, None),
            ("ix t.pkh", one, Some("t.pkh\t0")),
            ("t.pkh ix other", "t.pkh\t1", Some("t.pkh\t0")),
            ("ix plain t.pkh", one, Some("plain/1.pkh\t0")),
            ("plain ix t.pkh other", "plain/1.pkh\t1", Some("plain/1.pkh\t0")),
            ("other t.pkh ix plain", other, Some("t.pkh\t0")),
        ] {
            let line = format!("get {tables} --open {open} -- a b z");
            let b = b.map(|b| format!("b\t{b}\n")).unwrap_or_default();
            assert_eq!(shell.run(&line).expect(1).text(), format!("a\t{a}\n{b}"), "{line}");
            let found = shell.text(&format!("in-set {tables} --open {open} -- a"));
            assert_eq!(found.lines().count(), tables.split(' ').count(), "{tables}");
            let all = shell.text(&format!("verify {tables} --open {open}")).lines().count();
            let stats = shell.run(&format!("stats {tables} --json")).expect(0).json_lines().len();
            assert_eq!(all, stats);
            let tables = format!("{tables} --open {open}");
            shell.run(&format!("merge {tables} --on-duplicate first -o m.pkh")).expect(0);
            let value = a.split('\t').nth(1).unwrap();
            assert_eq!(shell.text("get m.pkh -- a"), format!("a\t{value}\n"), "{tables}");
            shell.run("get m.pkh -- z").expect(1);
            // Each index would number its docs from 0.
            shell.run(&format!("in-set {tables} --offset -- a")).fails(&["--offset", "index"]);
        }
    }
}

#[test]
fn one_process_writes_and_others_read() {
    let shell = Shell::orders();
    let writer = Index::open(shell.0.path("ix")).unwrap().writer().unwrap();
    let files = shell.files("ix");
    shell.0.write("list", "x\n");
    let holder = format!("process {}", std::process::id());
    for line in ["add ix list", "delete ix -- a", "compact ix --all"] {
        shell.run(line).fails(&["ix/writer.lock: another writer is at work", &holder]);
        assert_eq!(shell.files("ix"), files, "{line}");
    }
    assert_eq!(short(shell.run("get ix -- a b c d e f g").expect(1).text()), GET);
    assert_eq!(short(&shell.text("in-set ix -- a b c d e f g")), IN_SET);
    assert_eq!(sorted(&shell.text("dump ix")), DUMP);
    for line in ["ls ix", "verify ix", "stats ix", "merge ix --on-duplicate last -o m.pkh"] {
        shell.run(line).expect(0);
    }
    drop(writer);
    // A process that another test is just about to start has the lock until it begins.
    let done = (0..1000).any(|_| shell.run("delete ix -- a").status.success());
    assert!(done, "the lock has not gone with the writer");
}

/// Each of many that come at once has its way or says why not.
#[test]
fn writers_that_come_at_once() {
    let shell = Shell::new();
    shell.0.write("list", "x\ny\n");
    for _ in 0..3 {
        let runs: Vec<Run> = thread::scope(|scope| {
            let runs: Vec<_> = (0..5).map(|_| scope.spawn(|| shell.run("add ix list"))).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        for run in runs.into_iter().filter(|run| run.status.code() != Some(0)) {
            run.fails(&["ix/writer.lock: another writer is at work"]);
        }
        shell.run("verify ix").expect(0);
    }
    let tables = shell.text("ls ix").lines().count();
    assert!((1..=15).contains(&tables), "{tables}");
    shell.run("compact ix --all").expect(0);
    assert!(shell.files("ix").len() <= 3, "{:?}", shell.files("ix"));
}

#[test]
fn an_index_is_read_while_it_is_changed() {
    let shell = Shell::new();
    shell.add(&["stays", "gone"], "ix");
    shell.0.write("more", "more\n");
    let changes = ["add ix more", "delete ix -- gone more", "add ix more", "compact ix --all"];
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for line in changes.iter().cycle().take(100) {
                shell.run(line).expect(0);
            }
        });
        let mut rounds = 0;
        while rounds == 0 || !writer.is_finished() {
            let open = ["map", "heap"][rounds % 2];
            rounds += 1;
            let found = shell.run(&format!("get ix --open {open} -- stays gone"));
            assert!(matches!(found.status.code(), Some(0 | 1)), "{}", found.err);
            assert!(found.text().starts_with("stays\tix/segment-"), "{}", found.text());
            for line in ["in-set ix -- stays", "verify ix", "stats ix", "ls ix", "dump ix"] {
                assert!(!shell.run(line).expect(0).out.is_empty(), "{line}");
            }
            shell.run("merge ix --on-duplicate first --offset -o m.pkh").expect(0);
            assert_eq!(shell.text("get m.pkh -- stays").lines().count(), 1);
        }
    });
    // The last writer has left nothing of the snapshots that were read.
    shell.run("compact ix --all").expect(0);
    shell.run("delete ix -- nothing").expect(0);
    assert_eq!(shell.files("ix").iter().filter(|name| name.ends_with(".pkh")).count(), 1);
}

/// What a fault does to an index, and the commands say.
#[test]
fn damage_is_named_by_all_commands() {
    let shell = Shell::orders();
    let read = |name: &str| shell.0.read(&format!("ix/{name}"));
    let files: Vec<_> = shell.files("ix").into_iter().map(|name| (read(&name), name)).collect();
    let (manifest, live) = ("manifest-000000000005.json", "segment-000000000001.live-000000000005");
    let (table, map) = (SEGMENTS[1], "map-000000000004.segments");
    let flip = |name: &str, at: usize| {
        let mut bytes = read(name);
        let at = at.min(bytes.len() - 1);
        bytes[at] ^= 4;
        bytes
    };
    let cut = |name: &str, len: usize| read(name)[..len].to_vec();
    let last = usize::MAX;
    shell.0.write("list", "x\n");
    let mut damaged = Vec::new();
    for (name, flips, cuts) in [
        (manifest, &[100][..], &[0, 100][..]),
        (live, &[20, last], &[40]),
        (table, &[last], &[0, 100, 300]),
        (map, &[20], &[100]),
    ] {
        damaged.extend(flips.iter().map(|at| (name, Some(flip(name, *at)))));
        damaged.extend(cuts.iter().map(|len| (name, Some(cut(name, *len)))));
        // Without its manifest it is no index.
        damaged.extend((name != manifest).then_some((name, None)));
    }
    // A table, but another one.
    damaged.push((table, Some(read(SEGMENTS[0]))));
    let commands = "get ix -- a; get ix --open heap -- a; in-set ix -- a; ls ix; dump ix; stats ix; \
        merge ix --on-duplicate first -o fails.pkh; verify ix; add ix list; delete ix -- a; compact ix --all";
    for (name, damaged) in damaged {
        let path = format!("ix/{name}");
        match damaged {
            Some(bytes) => drop(shell.0.write(&path, bytes)),
            None => fs::remove_file(shell.0.path(&path)).unwrap(),
        }
        let before = shell.files("ix");
        commands.split("; ").for_each(|line| drop(shell.run(line).fails(&[&path])));
        assert_eq!(shell.files("ix"), before, "{path}");
        let lines = shell.run("verify ix --json").expect(2).json_lines();
        assert_eq!((&lines[0]["table"], &lines[0]["fault"]), (&json!("ix"), &json!("index")));
        assert!(lines[0]["error"].as_str().unwrap().contains(&path), "{}", lines[0]);
        // Which tables are sound is said all the same.
        assert!(lines.iter().any(|line| line["ok"] == true), "{path}");
        for (bytes, name) in &files {
            shell.0.write(&format!("ix/{name}"), bytes);
        }
        assert_eq!(short(shell.run("get ix -- a b c d e f g").expect(1).text()), GET);
    }
    assert!(!shell.0.path("fails.pkh").exists());
    // What opening does not read: a table's body, and a segment map's lines.
    for (name, at, fault, of) in
        [(table, 140, "table", "ix/segment-000000000002.pkh"), (map, last, "index", "ix")]
    {
        let path = format!("ix/{name}");
        shell.0.write(&path, flip(name, at));
        let run = shell.run("verify ix --json").expect(2);
        assert!(run.err.contains(&path), "{}", run.err);
        let faults: Vec<_> =
            run.json_lines().into_iter().filter(|line| line["ok"] == false).collect();
        assert_eq!(faults.len(), 1);
        assert_eq!((&faults[0]["table"], &faults[0]["fault"]), (&json!(of), &json!(fault)));
        shell.run("get ix -- a").expect(0);
        for (bytes, name) in &files {
            shell.0.write(&format!("ix/{name}"), bytes);
        }
    }
    // One of several.
    fs::remove_file(shell.0.path("ix/segment-000000000003.pkh")).unwrap();
    shell.add(&["x"], "sound");
    shell.run("get sound ix -- x").fails(&["ix/segment-000000000003.pkh"]);
    let lines = shell.run("verify sound ix --json").expect(2).json_lines();
    let ok = |line: &&Value| line["ok"] == true;
    assert_eq!((lines.len(), lines.iter().filter(ok).count()), (4, 3));
}

/// No folder, an empty one, a file, a folder with tables that is no index.
#[test]
fn what_is_no_index() {
    let shell = Shell::new();
    shell.0.write("file", "x\n");
    fs::create_dir(shell.0.path("plain")).unwrap();
    shell.run("build file -o plain/1.pkh").expect(0);
    fs::create_dir(shell.0.path("empty")).unwrap();
    let no_index = ": no index: expected a manifest in this folder";
    let no_tables = ": no tables (*.pkh) in this folder";
    let absent = "No such file or directory";
    for line in ["ls @", "delete @ -- x", "compact @", "compact @ --all --json"] {
        let causes = [no_index, no_index, absent, "Not a directory"];
        for (folder, cause) in ["empty", "plain", "absent", "file"].into_iter().zip(causes) {
            let message = shell.run(&line.replace('@', folder)).fails(&[folder, cause]);
            assert!(!message.contains(shell.0.root().to_str().unwrap()), "{message}");
        }
    }
    for line in ["get @ -- x", "in-set @ -- x", "stats @", "verify @", "merge @ -o m.pkh"] {
        for (folder, cause) in
            [("empty", no_tables), ("absent", absent), ("file", "too short for a table")]
        {
            shell.run(&line.replace('@', folder)).fails(&[folder, cause]);
        }
        shell.run(&line.replace('@', "plain")).expect(0);
    }
    for (folder, cause) in
        ["empty", "plain", "absent"].into_iter().zip(["a folder", "a folder", absent])
    {
        shell.run(&format!("dump {folder}")).fails(&[folder, cause]);
    }
    let message = shell.run("add file file").fails(&["file", "Not a directory"]);
    assert!(!message.contains(shell.0.root().to_str().unwrap()), "{message}");
    shell.run("add file/sub file").fails(&["file/sub", "Not a directory"]);
    // Nothing of all that has made a file.
    assert_eq!(shell.files("empty"), [""; 0]);
    assert_eq!(shell.files("plain"), ["1.pkh"]);
    assert!(!shell.0.path("absent").exists() && shell.0.read("file") == b"x\n");
    assert_eq!(shell.text("get plain -- x"), "x\tplain/1.pkh\t0\n");
}

/// A terminal obeys nothing that is the name of a folder.
#[cfg(unix)]
#[test]
fn names_are_shown_safely() {
    let shell = Shell::new();
    shell.0.write("list", "a\nb\n");
    let plain = |text: &str| text.lines().all(|line| !line.contains(char::is_control));
    for (folder, shown) in
        [("two words", "two words"), ("odd\n\x1b[1mx\u{9b}y", "odd\\x0a\\x1b[1mx\\xc2\\x9by")]
    {
        let run = |args: &[&str]| {
            let args = args.iter().map(|arg| if *arg == "@" { folder } else { *arg });
            run(&mut command(shell.0.root(), args))
        };
        let compact: &[&str] = &["compact", "@", "--all"];
        let delete: &[&str] = &["delete", "@", "--", "a"];
        for args in [&["add", "@", "list"], delete, compact, compact, &["verify", "@"]] {
            let run = run(args).expect(0);
            assert!(plain(run.text()), "{:?}", run.text());
            assert!(folder.contains('\n') || args[0] == "compact" || run.text().contains(folder));
        }
        let found = run(&["get", "@", "--", "b"]).expect(0);
        assert_eq!(found.text().split('\t').count(), 3);
        assert!(plain(&found.text().replace('\t', "")), "{:?}", found.text());
        let writer = Index::open(shell.0.path(folder)).unwrap().writer().unwrap();
        let message =
            run(&["add", "@", "list"]).fails(&[&format!("pkhash: {shown}/writer.lock: ")]);
        assert!(plain(&message) && message.lines().count() == 1, "{message:?}");
        drop(writer);
        let table = shell.files(folder).into_iter().find(|name| name.ends_with(".pkh")).unwrap();
        fs::write(shell.0.path(folder).join(&table), "cut").unwrap();
        let get: &[&str] = &["get", "@", "--", "b"];
        let deleted = &["get", "@", "--deleted-docs", "x", "--", "b"];
        for args in [get, &["ls", "@"], &["compact", "@"], deleted] {
            let message = run(args).fails(&[shown]);
            assert!(plain(&message) && message.lines().count() == 1, "{message:?}");
        }
    }
}

/// As they were given: from another folder, by a way round, with a slash behind, absolute.
#[test]
fn paths_are_shown_as_they_were_given() {
    let shell = Shell::orders();
    fs::create_dir(shell.0.path("sub")).unwrap();
    let sub = shell.0.path("sub");
    let root = shell.0.root().to_str().unwrap();
    let absolute = format!("{root}/ix");
    let table = |folder: &str| format!("{folder}/{}", SEGMENTS[2]);
    let live = "segment-000000000001.live-000000000005";
    let read = |folder: &Path, path: &str| {
        let table = table(path.trim_end_matches('/'));
        let text = |args: &[&str]| run(&mut command(folder, args)).expect(0).text().to_owned();
        assert_eq!(text(&["get", path, "--", "a"]), format!("a\t{table}\t0\n"));
        assert!(text(&["verify", path]).contains(&format!("{table}: ok")));
        assert!(text(&["stats", path]).contains(&format!("{table}\n")));
        assert!(text(&["delete", path, "--", "zz"]).starts_with(&format!("{path}: ")));
    };
    let (here, sub) = (shell.0.root(), sub.as_path());
    let ways =
        [(here, "./ix"), (sub, "../ix"), (sub, "../sub/../ix"), (here, "ix/"), (sub, &absolute)];
    ways.iter().for_each(|(folder, path)| read(folder, path));
    read(&shell.0.path("ix"), ".");
    // So it is in messages.
    fs::rename(shell.0.path(&format!("ix/{live}")), shell.0.path("live")).unwrap();
    for (folder, path) in ways {
        for args in [&["get", path, "--", "a"][..], &["ls", path], &["delete", path, "--", "a"]] {
            let shown = path.trim_end_matches('/');
            let message = run(&mut command(folder, args)).fails(&[&format!(" {shown}/{live}")]);
            assert!(path == absolute || !message.contains(root), "{message}");
        }
    }
}
