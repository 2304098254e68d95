//! Many tables by the `pkhash` command: `get` and `in-set` over several tables and folders, deleted docs, and
//! merges that leave them out.

mod docs;
mod merge;

#[path = "../common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use common::command::{Run, command, run, run_with_input};
use common::{Folder, Model, Rng, publish, slices};
use pkhash_std::{
    TableFile, TableOptions, ValueChoice, ValueFormat, WriterOptions, versioned_value,
};
use roaring::RoaringBitmap;

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

    fn text(&self, line: &str) -> String {
        self.run(line).expect(0).text().to_owned()
    }

    /// Builds a table of `key TAB value` lines, written with a space instead of the tab.
    fn table(&self, name: &str, pairs: &str, options: &str) {
        self.0.write("input", pairs.replace(' ', "\t"));
        self.run(&format!("build input --pairs -o {name} {options}")).expect(0);
    }

    fn bitmap(&self, name: &str, docs: &[u32]) -> Vec<u8> {
        let bytes = bitmap_bytes(docs);
        self.0.write(name, &bytes);
        bytes
    }

    fn dump(&self, name: &str) -> BTreeMap<Vec<u8>, u64> {
        let file = TableFile::open(self.0.path(name)).unwrap();
        file.verify().unwrap();
        let pair =
            |(key, value): (&[u8], pkhash_std::Value<'_>)| (key.to_vec(), value.as_u64().unwrap());
        file.table().iter().map(|record| pair(record.unwrap())).collect()
    }

    /// The command fails, says all this, and leaves no file.
    #[track_caller]
    fn fails(&self, line: &str, parts: &[&str]) -> String {
        let files = self.0.names();
        let message = self.run(line).fails(parts);
        assert_eq!(self.0.names(), files, "{line}");
        message
    }
}

fn bitmap_bytes(docs: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    docs.iter().collect::<RoaringBitmap>().serialize_into(&mut bytes).unwrap();
    bytes
}

/// Lines of doc IDs.
fn lines<'d>(docs: impl IntoIterator<Item = &'d u32>) -> String {
    docs.into_iter().fold(String::new(), |all, doc| all + &format!("{doc}\n"))
}

/// Three tables that share keys: `a` is in all of them, `b` in the older two.
fn overlapping(shell: &Shell) {
    shell.table("new.pkh", "a 0\nn 1\n", "");
    shell.table("mid.pkh", "a 5\nb 2\n", "");
    shell.table("old.pkh", "a 9\nb 8\no 7\n", "");
}

const TABLES: &str = "new.pkh mid.pkh old.pkh";

/// The lines of a run's notes, which are all that it says on standard error.
fn notes(run: &Run) -> Vec<&str> {
    assert!(run.err.lines().all(|line| line.starts_with("pkhash: note: ")), "{}", run.err);
    run.err.lines().collect()
}

#[test]
fn a_deleted_match_goes_on_to_older_tables() {
    let shell = Shell::new();
    overlapping(&shell);
    shell.0.write("none", "");
    for (name, docs) in [("new", vec![0]), ("mid", vec![5, 2]), ("old", vec![8, 9])] {
        shell.0.write(&format!("{name}.del"), lines(&docs));
        shell.bitmap(&format!("{name}.bits"), &docs);
    }
    let newest = "a\tnew.pkh\t0\nb\tmid.pkh\t2\no\told.pkh\t7\n";
    assert_eq!(shell.text(&format!("get {TABLES} -- a b o")), newest);
    for (files, code, expected) in [
        ("- - -", 0, newest),
        ("none none none", 0, newest),
        ("new _ none", 0, "a\tmid.pkh\t5\nb\tmid.pkh\t2\no\told.pkh\t7\n"),
        ("new mid -", 0, "a\told.pkh\t9\nb\told.pkh\t8\no\told.pkh\t7\n"),
        ("- mid -", 0, "a\tnew.pkh\t0\nb\told.pkh\t8\no\told.pkh\t7\n"),
        ("- - old", 0, newest),
        ("new mid old", 1, "o\told.pkh\t7\n"),
    ] {
        for form in ["del", "bits"] {
            let options: String = files
                .split(' ')
                .map(|name| match name {
                    "-" | "_" => "--deleted-docs - ".to_owned(),
                    "none" => "--deleted-docs none ".to_owned(),
                    name => format!("--deleted-docs {name}.{form} "),
                })
                .collect();
            let run = shell.run(&format!("get {TABLES} {options} -- a b o")).expect(code);
            assert_eq!(run.text(), expected, "{options}");
            let asked = b"a\nb\no\n";
            let mut batch = command(
                shell.0.root(),
                format!("get {TABLES} {options} --keys -").split_whitespace(),
            );
            assert_eq!(run_with_input(&mut batch, asked).expect(code).text(), expected);
        }
    }
    let options = "--deleted-docs new.del --deleted-docs mid.bits --deleted-docs old.del";
    let run = shell.run(&format!("get {TABLES} {options} --missing --json -- a o")).expect(1);
    assert_eq!(
        run.json_lines(),
        [
            serde_json::json!({ "key": "a", "value": null }),
            serde_json::json!({ "key": "o", "table": "old.pkh", "value": 7 }),
        ]
    );
    // Of one table.
    let run = shell.run("get mid.pkh --deleted-docs new.del --missing -- a b").expect(0);
    assert_eq!(run.text(), "a\t5\nb\t2\n");
    let run = shell.run("get mid.pkh --deleted-docs mid.del --missing -- a b").expect(1);
    assert_eq!(run.text(), "a\nb\n");
}

/// The two options say the same in opposite words.
#[test]
fn live_docs_are_what_is_not_deleted() {
    let shell = Shell::new();
    let pairs: String = (0..500).map(|doc| format!("k{doc} {}\n", doc * 7 % 500)).collect();
    shell.table("t.pkh", &pairs, "");
    let mut rng = Rng(1);
    let (deleted, live): (Vec<u32>, Vec<u32>) = (0..500).partition(|_| rng.below(3) == 0);
    shell.0.write("deleted", lines(&deleted));
    shell.0.write("live", lines(&live));
    shell.bitmap("deleted.bits", &deleted);
    shell.bitmap("live.bits", &live);
    // With runs, which have another cookie.
    let mut runs: RoaringBitmap = live.iter().collect();
    runs.remove_range(..100);
    runs.insert_range(..100);
    for doc in deleted.iter().filter(|doc| **doc < 100) {
        runs.remove(*doc);
    }
    runs.insert_range(1000..5000);
    assert!(runs.optimize());
    let mut bytes = Vec::new();
    runs.serialize_into(&mut bytes).unwrap();
    assert_eq!(bytes[..2], [0x3b, 0x30]);
    shell.0.write("runs.bits", bytes);
    let keys: String = (0..500).map(|doc| format!("k{doc}\n")).collect();
    shell.0.write("keys", keys);
    let expected: String = (0..500u32)
        .filter(|i| live.contains(&(i * 7 % 500)))
        .map(|i| format!("k{i}\t{}\n", i * 7 % 500))
        .collect();
    for options in [
        "--deleted-docs deleted",
        "--live-docs live",
        "--deleted-docs deleted.bits",
        "--live-docs live.bits",
        "--live-docs runs.bits",
    ] {
        let run = shell.run(&format!("get t.pkh {options} --keys keys")).expect(1);
        assert_eq!(run.text(), expected, "{options}");
        let run = shell.run(&format!("in-set t.pkh {options} --keys keys")).expect(0);
        assert_eq!(run.text(), lines(&live), "{options}");
        shell.run(&format!("merge t.pkh {options} -o m.pkh")).expect(0);
        let values: BTreeSet<u64> = shell.dump("m.pkh").into_values().collect();
        assert!(values.into_iter().eq(live.iter().map(|doc| u64::from(*doc))), "{options}");
    }
}

#[test]
fn folders() {
    let shell = Shell::new();
    let folder = |name: &str| fs::create_dir(shell.0.path(name)).unwrap();
    folder("empty");
    folder("segments");
    for line in ["get empty -- a", "in-set empty -- a", "get segments empty -- a"] {
        shell.fails(line, &["no tables (*.pkh) in this folder"]);
    }
    // By name, not by time.
    for (name, pairs) in [
        ("2", "x 1\nb 0\nt 1\n"),
        ("1", "x 2\na 0\nt 2\n"),
        ("10", "x 3\nc 0\nt 3\n"),
        ("9", "x 4\nd 0\nu 4\n"),
        ("09", "x 5\ne 0\nu 5\n"),
    ] {
        shell.table(&format!("segments/{name}.pkh"), pairs, "");
    }
    let order = ["10", "9", "09", "2", "1"];
    // What a folder has besides.
    shell.table("segments/.hidden.pkh", "x 9\n", "");
    fs::copy(shell.0.path("segments/1.pkh"), shell.0.path("segments/.z.pkh.abc.tmp")).unwrap();
    fs::copy(shell.0.path("segments/1.pkh"), shell.0.path("segments/copy.bak")).unwrap();
    shell.table("segments/0.pkh", "o 0\n", "--ordered");
    shell.0.write("segments/pkh", "no table");
    shell.0.write("segments/1.pkh.live", "no table");
    folder("segments/sub.pkh");
    let get = |line: &str| shell.text(&format!("get {line}"));
    assert_eq!(
        get("segments -- x a b o t u"),
        "x\tsegments/10.pkh\t3\na\tsegments/1.pkh\t0\nb\tsegments/2.pkh\t0\n\
         o\tsegments/0.pkh\t0\nt\tsegments/10.pkh\t3\nu\tsegments/9.pkh\t4\n"
    );
    // One after the other deleted: the whole order.
    let tables: String = order.iter().map(|name| format!("segments/{name}.pkh ")).collect();
    for n in 0..order.len() {
        let doc = |name: &str| {
            1 + ["2", "1", "10", "9", "09"].iter().position(|other| *other == name).unwrap()
        };
        let (mut named, mut by_place) = (String::new(), String::new());
        for (i, name) in order.iter().enumerate() {
            shell.0.write(&format!("{name}.del"), format!("{}\n", doc(name)));
            let file = if i < n { format!("{name}.del") } else { "-".to_owned() };
            named += &format!("--deleted-docs {name}.pkh={file} ");
            by_place += &format!("--deleted-docs {file} ");
        }
        let name = order[n];
        let expected = format!("x\tsegments/{name}.pkh\t{}\n", doc(name));
        assert_eq!(get(&format!("segments {named} -- x")), expected);
        assert_eq!(get(&format!("{tables} {named} -- x")), expected);
        assert_eq!(get(&format!("{tables} {by_place} -- x")), expected);
    }
    // With other tables, before and behind; the table is named even if the folder has but one.
    shell.table("t.pkh", "x 7\n", "");
    assert_eq!(get("t.pkh segments -- x"), "x\tt.pkh\t7\n");
    assert_eq!(get("segments/ t.pkh -- x"), "x\tsegments/10.pkh\t3\n");
    folder("one");
    shell.table("one/t.pkh", "x 7\n", "");
    assert_eq!(get("one -- x"), "x\tone/t.pkh\t7\n");
    assert_eq!(shell.text("in-set one -- x"), "one/t.pkh\t7\n");
    assert_eq!(get("one/t.pkh -- x"), "x\t7\n");
    // A table published anew is as new as its name.
    shell.table("segments/2.pkh", "x 33\n", "");
    assert_eq!(get("segments -- x"), "x\tsegments/10.pkh\t3\n");

    // A damaged table spoils it all: an answer might be in it.
    let good = shell.0.read("segments/1.pkh");
    for bad in [&[][..], &good[..good.len() - 1], b"text\n"] {
        shell.0.write("segments/bad.pkh", bad);
        for line in ["get segments -- x", "in-set segments -- x"] {
            shell.fails(line, &["segments/bad.pkh"]);
        }
    }
    fs::remove_file(shell.0.path("segments/bad.pkh")).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere", shell.0.path("segments/link.pkh")).unwrap();
        shell.fails("get segments -- x", &["segments/link.pkh"]);
        fs::remove_file(shell.0.path("segments/link.pkh")).unwrap();
        // Links lead to tables and to folders.
        std::os::unix::fs::symlink("../t.pkh", shell.0.path("segments/link.pkh")).unwrap();
        std::os::unix::fs::symlink("segments", shell.0.path("current")).unwrap();
        assert_eq!(get("current -- x"), "x\tcurrent/link.pkh\t7\n");
    }
}

#[test]
fn in_set() {
    let shell = Shell::new();
    overlapping(&shell);
    // Two keys of one doc.
    shell.table("t.pkh", "a 30\nb 10\nc 20\nalias 30\n", "");
    for (line, code, expected) in [
        ("t.pkh -- a", 0, "30\n"),
        ("t.pkh -- c a b", 0, "10\n20\n30\n"),
        ("t.pkh -- a alias a a", 0, "30\n"),
        ("t.pkh -- x a y", 0, "30\n"),
        ("t.pkh -- x y", 1, ""),
        ("t.pkh --hex -- 62 63", 0, "10\n20\n"),
        ("t.pkh --null -- b c", 0, "10\x0020\0"),
        ("t.pkh --offset -- b c", 0, "10\n20\n"),
        // Every live match counts, not just the newest.
        ("new.pkh mid.pkh old.pkh -- a", 0, "new.pkh\t0\nmid.pkh\t5\nold.pkh\t9\n"),
        (
            "old.pkh mid.pkh -- b a o",
            0,
            "old.pkh\t7\nold.pkh\t8\nold.pkh\t9\nmid.pkh\t2\nmid.pkh\t5\n",
        ),
        ("new.pkh mid.pkh -- b", 0, "mid.pkh\t2\n"),
        // Doc bases: 0, 2 and 8.
        ("new.pkh mid.pkh old.pkh --offset -- a", 0, "new.pkh\t0\nmid.pkh\t7\nold.pkh\t17\n"),
        ("new.pkh old.pkh --offset -- o n", 0, "new.pkh\t1\nold.pkh\t9\n"),
    ] {
        let run = shell.run(&format!("in-set {line}")).expect(code);
        assert_eq!(run.text(), expected, "{line}");
    }
    // From a file, in every form of line.
    for (input, options) in
        [("b\nx\nc\nb", ""), ("b\r\nx\r\nc\r\n", ""), ("b\0x\0c", "-0"), ("62\n78\n63\n", "--hex")]
    {
        shell.0.write("keys", input);
        let run = shell.run(&format!("in-set t.pkh --keys keys {options}")).expect(0);
        assert_eq!(run.text().replace('\0', "\n"), "10\n20\n");
        let line = format!("in-set t.pkh --keys - {options}");
        let mut piped = command(shell.0.root(), line.split_whitespace());
        assert_eq!(run_with_input(&mut piped, input.as_bytes()).expect(0).out, run.out);
    }
    shell.0.write("keys", "");
    assert_eq!(shell.run("in-set t.pkh --keys keys").expect(1).text(), "");
    let run = shell.run("in-set t.pkh new.pkh --keys keys --json").expect(1);
    let none = |table| serde_json::json!({ "table": table, "docs": [] });
    assert_eq!(run.json_lines(), [none("t.pkh"), none("new.pkh")]);
    let run = shell.run("in-set t.pkh new.pkh --json -- b a").expect(0);
    assert_eq!(
        run.json_lines(),
        [
            serde_json::json!({ "table": "t.pkh", "docs": [10, 30] }),
            serde_json::json!({ "table": "new.pkh", "docs": [0] }),
        ]
    );
    let run = shell.run("in-set t.pkh new.pkh --json --offset -- b n").expect(0);
    assert_eq!(
        run.json_lines(),
        [
            serde_json::json!({ "table": "t.pkh", "doc_base": 0, "docs": [10] }),
            serde_json::json!({ "table": "new.pkh", "doc_base": 31, "docs": [32] }),
        ]
    );
    // Deleted docs count when docs are numbered on, those without a key, too.
    shell.0.write("del", "5\n");
    shell.0.write("more", "40\n30\n");
    for (line, expected) in [
        (
            "mid.pkh t.pkh --deleted-docs del --deleted-docs - -- a b",
            "mid.pkh\t2\nt.pkh\t10\nt.pkh\t30\n",
        ),
        (
            "mid.pkh t.pkh --offset --deleted-docs del --deleted-docs - -- b",
            "mid.pkh\t2\nt.pkh\t16\n",
        ),
        ("t.pkh mid.pkh --offset --deleted-docs more --deleted-docs - -- a", "mid.pkh\t46\n"),
        ("t.pkh mid.pkh --offset --live-docs more --live-docs - -- a", "t.pkh\t30\nmid.pkh\t46\n"),
    ] {
        assert_eq!(shell.text(&format!("in-set {line}")), expected, "{line}");
    }
    for (line, parts) in [
        ("in-set t.pkh", &["--"][..]),
        ("in-set -- a", &["TABLE"]),
        ("in-set t.pkh --keys keys -- a", &["--keys"]),
        ("in-set t.pkh --keys missing", &["missing"]),
        ("in-set missing.pkh -- a", &["missing.pkh"]),
        ("in-set t.pkh --hex -- 6", &["not hex", "\"6\""]),
    ] {
        shell.fails(line, parts);
    }
}

/// Every command takes a folder, or says that it cannot.
#[test]
fn folders_for_all_commands() {
    let shell = Shell::new();
    for name in ["seg", "empty"] {
        fs::create_dir(shell.0.path(name)).unwrap();
    }
    for (name, pairs) in [("b", "x 0\nb 1\n"), ("a", "x 0\na 1\n"), ("c", "x 0\nc 1\n")] {
        shell.table(&format!("seg/{name}.pkh"), pairs, "");
    }
    let in_order = ["seg/c.pkh", "seg/b.pkh", "seg/a.pkh"];
    let verified: Vec<String> =
        in_order.iter().map(|name| format!("{name}: ok, 2 keys\n")).collect();
    assert_eq!(shell.text("verify seg"), verified.concat());
    for command in ["stats", "verify"] {
        let lines = shell.run(&format!("{command} seg/ seg/a.pkh --json")).expect(0).json_lines();
        let names: Vec<_> = lines.iter().map(|line| line["table"].as_str().unwrap()).collect();
        assert_eq!(names, [&in_order[..], &["seg/a.pkh"]].concat(), "{command}");
    }
    let stats = shell.text("stats seg");
    let names: Vec<_> = stats.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(names, in_order);
    let merge = "merge seg --on-duplicate first --offset";
    shell.run(&format!("{merge} -o folder.pkh")).expect(0);
    let merge = merge.replace("seg", &in_order.join(" "));
    shell.run(&format!("{merge} -o named.pkh")).expect(0);
    assert!(shell.0.read("folder.pkh") == shell.0.read("named.pkh"));
    assert_eq!(shell.dump("folder.pkh")[&b"x"[..]], 0);
    shell.table("seg/seed.pkh", "s 0\n", "--seed 9");
    // What is wrong with a table in a folder names the table.
    shell.0.write("seg/bad.pkh", "text");
    let run = shell.run("verify seg");
    run.fails(&["seg/bad.pkh", "1 of 5 tables are faulty"]);
    shell.fails("stats seg", &["seg/bad.pkh"]);

    for command in ["stats", "verify", "merge -o fails.pkh"] {
        shell.fails(&format!("{command} empty"), &["empty: no tables (*.pkh) in this folder"]);
    }
    for line in ["dump seg", "range seg", "prefix seg x", "range seg --trust"] {
        shell.fails(line, &["seg: a folder", "one table"]);
    }
}

/// A companion of the table before: told of when it comes to be, and told apart from damage.
#[test]
fn companions_of_a_table_before() {
    let shell = Shell::new();
    shell.table("old.pkh", "a 0\n", "");
    let publish = ["build input --pairs -o w.pkh", "merge old.pkh -o w.pkh"];
    for line in publish {
        shell.table("w.pkh", "a 0\nb 1\n", "--ordered");
        shell.0.write("input", "c\t0\n");
        let run = shell.run(&format!("{line} --json")).expect(0);
        let [note] = notes(&run)[..] else { panic!("{}", run.err) };
        for part in ["w.pkh.fst", "remove it", "--ordered"] {
            assert!(note.contains(part), "{note}");
        }
        assert!(run.json()["ordered"].is_null());

        // The table is sound.
        let run = shell.run("verify w.pkh old.pkh").expect(2);
        assert!(run.text().contains("w.pkh: the table is sound, 1 keys, but"), "{}", run.text());
        let err = run.fails(&["w.pkh.fst", "1 of 2 tables have a companion of another table"]);
        assert!(!err.contains("faulty"), "{err}");
        let run = shell.run("verify w.pkh --json").expect(2);
        let json = run.json();
        assert_eq!(json["fault"], "companion of another table");
        assert_eq!((&json["ok"], &json["keys"]), (&false.into(), &1.into()));
        assert!(json["error"].as_str().unwrap().contains("w.pkh.fst"));
        // As it says: either helps.
        shell.run(&format!("{line} --ordered")).expect(0);
        shell.run("verify w.pkh").expect(0);
        // The same table once more: the companion is still its own.
        assert!(notes(&shell.run(line).expect(0)).is_empty());
        shell.run("verify w.pkh").expect(0);
        fs::remove_file(shell.0.path("w.pkh.fst")).unwrap();
        assert!(notes(&shell.run(line).expect(0)).is_empty());
        shell.run("verify w.pkh").expect(0);
    }
    // Damage of either is not that.
    shell.table("w.pkh", "a 0\nb 1\n", "--ordered");
    let (table, companion) = (shell.0.read("w.pkh"), shell.0.read("w.pkh.fst"));
    for (file, good, fault, says) in [
        ("w.pkh", &table, "table", "1 of 1 tables are faulty"),
        ("w.pkh.fst", &companion, "companion", "1 of 1 tables have a faulty companion"),
    ] {
        let mut bad = good.clone();
        let middle = bad.len() / 3;
        bad[middle] ^= 1;
        for bad in [bad, good[..good.len() - 1].to_vec(), [good, &b"\n"[..]].concat(), vec![]] {
            shell.0.write(file, bad);
            shell.run("verify w.pkh").fails(&[file, says]);
            assert_eq!(shell.run("verify w.pkh --json").expect(2).json()["fault"], fault);
        }
        shell.0.write(file, good);
    }
    // Bytes behind the end, in words.
    shell.0.write("w.pkh", [&table, &b"\n"[..]].concat());
    shell.fails("get w.pkh -- a", &["w.pkh", "bytes behind its end"]);
}

/// Whatever was done to a companion, a search that trusts it ends with an answer or an error, never a
/// panic.
#[test]
fn trusted_companions_that_are_damaged() {
    let shell = Shell::new();
    let pairs: String = (0..200).map(|i| format!("key{:03} {i}\n", i * 7 % 1000)).collect();
    shell.table("t.pkh", &pairs, "--ordered");
    let good = shell.0.read("t.pkh.fst");
    let mut rng = Rng(4);
    let mut damaged = 0;
    for round in 0..60 {
        let mut bad = good.clone();
        // The root lies at the end of the fst.
        let begin = if round % 2 == 0 { bad.len().saturating_sub(400) } else { 24 };
        for _ in 0..20 {
            let at = begin + rng.below(bad.len() - 110 - begin);
            bad[at] = 0xff;
        }
        shell.0.write("t.pkh.fst", bad);
        for line in ["range t.pkh --trust --limit 500", "prefix t.pkh key --trust --limit 500"] {
            let run = shell.run(line);
            if run.status.code() == Some(2) {
                let message = run.fails(&["t.pkh.fst"]);
                assert_eq!(message.lines().count(), 1, "{message}");
                damaged += usize::from(message.contains("damaged (it was opened with --trust)"));
            } else {
                assert!(matches!(run.status.code(), Some(0 | 1)), "{:?} {}", run.status, run.err);
                assert_eq!(run.err, "");
            }
        }
        shell.run("range t.pkh").fails(&["t.pkh.fst"]);
    }
    assert!(damaged > 0);
}

/// Names of files are printed as keys are: none makes a line of its own, or reaches a terminal as more than
/// text.
#[cfg(unix)]
#[test]
fn names_that_are_not_printable() {
    use std::os::unix::ffi::OsStrExt;

    let shell = Shell::new();
    let folder = shell.0.path("seg");
    fs::create_dir(&folder).unwrap();
    shell.table("t.pkh", "a 0\n", "");
    shell.table("other.pkh", "b 0\n", "");
    let table = shell.0.path("t.pkh");
    for (name, shown) in [
        (&b"plain.pkh"[..], "seg/plain.pkh"),
        ("größe €.pkh".as_bytes(), "seg/größe €.pkh"),
        (b"tab\t.pkh", "\\x7365672f746162092e706b68"),
        (b"line\nfeed.pkh", "\\x7365672f6c696e650a666565642e706b68"),
        (b"\x1b[31m.pkh", "\\x7365672f1b5b33316d2e706b68"),
        (b"\xff.pkh", "\\x7365672fff2e706b68"),
        ("\u{9b}.pkh".as_bytes(), "\\x7365672fc29b2e706b68"),
    ] {
        let path = folder.join(std::ffi::OsStr::from_bytes(name));
        fs::copy(&table, &path).unwrap();
        assert_eq!(shell.text("get seg -- a"), format!("a\t{shown}\t0\n"));
        assert_eq!(shell.text("in-set seg -- a"), format!("{shown}\t0\n"));
        assert_eq!(shell.text("verify seg"), format!("{shown}: ok, 1 keys\n"));
        assert_eq!(shell.text("stats seg").lines().next(), Some(shown));
        for line in [
            "get seg --json -- a",
            "in-set seg --json -- a",
            "verify seg --json",
            "stats seg --json",
        ] {
            assert_eq!(shell.run(line).expect(0).json()["table"], shown, "{line}");
        }
        // A companion that is none.
        let companion = pkhash_std::companion_path(&path);
        fs::write(&companion, "text").unwrap();
        let stats = shell.text("stats seg");
        assert!(stats.contains("unusable: seg/"), "{stats}");
        assert!(!stats.contains(|char: char| char.is_control() && char != '\n'), "{stats:?}");
        assert!(stats.lines().skip(1).all(|line| line.starts_with("  ")), "{stats:?}");
        fs::remove_file(companion).unwrap();
        // In messages: one line each, without control characters.
        fs::write(&path, "text").unwrap();
        for line in ["get seg -- a", "verify seg", "stats seg", "merge seg -o m.pkh"] {
            let message = shell.fails(line, &["seg/", ".pkh"]);
            let lines = if line == "verify seg" { 2 } else { 1 };
            assert_eq!(message.lines().count(), lines, "{message}");
            let control = |char: char| char.is_control() && char != '\n';
            assert!(!message.contains(control), "{message:?}");
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_version_names_the_command() {
    let shell = Shell::new();
    let version = format!("pkhash {}\n", env!("CARGO_PKG_VERSION"));
    for line in ["--version", "-V"] {
        assert_eq!(shell.text(line), version);
    }
}
