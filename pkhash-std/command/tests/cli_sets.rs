//! Many tables by the `pkhash` command: `get` and `in-set` over several tables and folders, deleted docs, and
//! merges that leave them out.

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

/// Every form in which a list of docs may come, and every one that is none.
#[test]
fn files_of_docs() {
    let shell = Shell::new();
    shell.table("t.pkh", "a 0\nb 1\nc 2\nd 3\n", "");
    let left = |option: &str, file: &[u8]| {
        shell.0.write("file", file);
        let run = shell.run(&format!("get t.pkh {option} file -- a b c d"));
        let code = i32::from(run.text().lines().count() < 4);
        run.expect(code).text().replace(|c: char| !c.is_ascii_lowercase(), "")
    };
    for file in
        ["1\n3\n", "1\n3", "1\r\n3\r\n", "1\r\n3", " 3 \n\t1\n", "3\n1\n3\n1\n", "01\n003\n"]
    {
        assert_eq!(left("--deleted-docs", file.as_bytes()), "ac", "{file:?}");
        assert_eq!(left("--live-docs", file.as_bytes()), "bd", "{file:?}");
    }
    assert_eq!(left("--deleted-docs", &bitmap_bytes(&[1, 3])), "ac");
    assert_eq!(left("--live-docs", &bitmap_bytes(&[1, 3])), "bd");
    // Docs that no key has.
    for file in [lines(&[1, 3, 4, 1000]).into_bytes(), bitmap_bytes(&[1, 3, 4, 1000])] {
        assert_eq!(left("--deleted-docs", &file), "ac");
        assert_eq!(left("--live-docs", &file), "bd");
    }
    // None at all: a list that was not written must not delete everything.
    assert_eq!(left("--deleted-docs", b""), "abcd");
    assert_eq!(left("--deleted-docs", &bitmap_bytes(&[])), "abcd");
    assert_eq!(left("--live-docs", &bitmap_bytes(&[])), "");
    shell.0.write("bad", "");
    let lines = ["get t.pkh _ -- a", "in-set t.pkh _ -- a", "merge t.pkh _ -o fails.pkh"];
    for line in lines {
        shell.fails(&line.replace('_', "--live-docs bad"), &["bad", "empty"]);
        shell.fails(&line.replace('_', "--live-docs missing"), &["missing"]);
        shell.fails(&line.replace('_', "--deleted-docs ."), &[".", "directory"]);
    }

    let number = |text: &str| format!("expected a doc ID (less than 4294967295): \"{text}\"");
    let table = shell.0.read("t.pkh");
    for (file, parts) in [
        (&b"1\nx\n3\n"[..], ["bad:2", &number("x")]),
        (b"1\n\n3\n", ["bad:2", &number("")]),
        (b"1\n3\n\n", ["bad:3", &number("")]),
        (b"\n", ["bad:1", &number("")]),
        (b"1 3\n", ["bad:1", &number("1 3")]),
        (b"1,3\n", ["bad:1", &number("1,3")]),
        (b"-\n", ["bad:1", &number("-")]),
        (b"1\n-1\n", ["bad:2", &number("-1")]),
        (b"1.0\n", ["bad:1", &number("1.0")]),
        (b"0x1\n", ["bad:1", &number("0x1")]),
        (b"1\n4294967295\n", ["bad:2", &number("4294967295")]),
        (b"4294967296\n", ["bad:1", &number("4294967296")]),
        (b"1\n18446744073709551616\n", ["bad:2", &number("18446744073709551616")]),
        (b"1\x003\0", ["bad:1", "expected a doc ID"]),
        (&"9".repeat(100_000).into_bytes(), ["bad:1", "more than 65536 bytes"]),
        (&table, ["bad: ", "a table"]),
        // Few keys, but a doc ID that takes half a gibibyte of bits.
        (b"4294967294\n", ["bad: expected doc IDs below 134217728 for 4 keys", "4294967294"]),
        (&bitmap_bytes(&[1, 4_294_967_294]), ["bad: expected doc IDs below", "found 4294967294"]),
        (&bitmap_bytes(&[1, u32::MAX]), ["bad: roaring bitmap: offset", "less than 4294967295"]),
        (b":0", ["bad: roaring bitmap: offset 2", "expected more bytes"]),
        (b";0", ["bad: roaring bitmap: offset 2", "expected more bytes"]),
        (b":0\x01\0\0\0\0\0", ["bad: roaring bitmap: offset 4", "cookie"]),
        // Counts that the file has no room for.
        (b":0\0\0\xff\xff\xff\xff", ["bad: roaring bitmap: offset 8", "size"]),
        (b":0\0\0\0\0\x01\0", ["bad: roaring bitmap: offset 8", "expected more bytes"]),
        (b";0\xff\xff", ["bad: roaring bitmap: offset 4", "expected more bytes"]),
    ] {
        shell.0.write("bad", file);
        for option in ["--deleted-docs bad", "--live-docs bad"] {
            for line in lines {
                let message = shell.fails(&line.replace('_', option), &parts);
                assert!(message.len() < 300, "{message}");
            }
        }
    }
    // Bitmaps of all kinds of containers, cut anywhere or with something behind: an error each.
    let mut several = RoaringBitmap::new();
    several.insert_range(10..300);
    several.insert_range(65_536..66_000);
    let mut arrays = several.clone();
    several.optimize();
    arrays.extend((131_072..150_000).step_by(2));
    for bitmap in [several, arrays] {
        let mut good = Vec::new();
        bitmap.serialize_into(&mut good).unwrap();
        let step = good.len().div_ceil(40);
        for len in (2..good.len()).step_by(step).chain([good.len() - 1]) {
            shell.0.write("bad", &good[..len]);
            let parts = [format!("bad: roaring bitmap: offset {len}"), "found the end".to_owned()];
            shell.fails("get t.pkh --live-docs bad -- a", &parts.each_ref().map(String::as_str));
        }
        let end = format!("offset {}: expected the end", good.len());
        shell.0.write("bad", [&good[..], b"\n"].concat());
        shell.fails("get t.pkh --live-docs bad -- a", &["bad", &end]);
    }
    // Flipped bits are answered or refused, but nothing worse.
    let good = bitmap_bytes(&[0, 1, 3, 70_000]);
    for bit in 0..8 * good.len() {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        shell.0.write("bad", bad);
        let run = shell.run("get t.pkh --live-docs bad -- a b c d");
        assert!(matches!(run.status.code(), Some(0..=2)), "bit {bit}: {}", run.err);
        assert!(!run.err.contains("panicked"), "bit {bit}: {}", run.err);
    }
}

#[test]
fn one_file_of_docs_for_each_table() {
    let shell = Shell::new();
    overlapping(&shell);
    shell.0.write("none", "");
    shell.0.write("zero", "0\n");
    for (tables, files, parts) in [
        (TABLES, "--deleted-docs none", ["3 tables (new.pkh, mid.pkh, old.pkh)", "found 1"]),
        (TABLES, "--live-docs zero --live-docs zero", ["--live-docs", "found 2"]),
        ("new.pkh", "--deleted-docs none --deleted-docs none", ["1 tables (new.pkh)", "found 2"]),
        (".", "--deleted-docs none", ["none: expected --deleted-docs NAME=FILE", "./old.pkh"]),
        ("new.pkh", "--deleted-docs none --live-docs zero", ["--deleted-docs", "--live-docs"]),
    ] {
        shell.fails(&format!("get {tables} {files} -- a"), &parts);
        shell.fails(&format!("in-set {tables} {files} -- a"), &parts);
        if tables != "." {
            shell.fails(&format!("merge {tables} {files} -o fails.pkh"), &parts);
        }
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

#[test]
fn bitmaps_of_docs() {
    let shell = Shell::new();
    overlapping(&shell);
    let many: String = (0..40_000).map(|i| format!("{i:05} {}\n", i * 3)).collect();
    shell.table("many.pkh", &many, "");
    let keys = many.lines().fold(String::new(), |all, line| all + &line[..5] + "\n");
    shell.0.write("keys", keys);
    let read = |name: &str| RoaringBitmap::deserialize_from(&shell.0.read(name)[..]).unwrap();
    let report = shell.text("in-set many.pkh --keys keys --bitmap docs.bits");
    assert!(report.starts_with("docs.bits: 40,000 docs"), "{report}");
    assert!(read("docs.bits").iter().eq((0..120_000).step_by(3)));
    // To standard output, and over another file; what is printed instead is the same.
    let run = shell.run("in-set many.pkh --keys keys --bitmap -").expect(0);
    assert!(run.out == shell.0.read("docs.bits"));
    let run = shell.run("in-set many.pkh --bitmap docs.bits --json -- 00007").expect(0);
    let bytes = shell.0.read("docs.bits").len();
    let report = serde_json::json!({ "bitmap": "docs.bits", "docs": 1, "bytes": bytes });
    assert_eq!(run.json(), report);
    assert!(read("docs.bits").iter().eq([21]));
    shell.run("in-set many.pkh --bitmap docs.bits -- absent").expect(1);
    assert!(read("docs.bits").is_empty());
    // Of several tables: as their IDs are once docs are numbered on.
    let line = format!("in-set {TABLES} --offset --bitmap docs.bits -- b a");
    shell.run(&line).expect(0);
    assert!(read("docs.bits").iter().eq([0, 4, 7, 16, 17]));
    for tables in [TABLES, "."] {
        let line = format!("in-set {tables} --bitmap docs.bits -- a");
        shell.fails(&line, &["--bitmap", "--offset"]);
    }
    assert!(read("docs.bits").len() == 5);
    // What it writes is read as a file of docs.
    shell.run("in-set old.pkh --bitmap del -- a").expect(0);
    assert_eq!(shell.text("get old.pkh --deleted-docs del -- b o"), "b\t8\no\t7\n");
    assert_eq!(shell.run("get old.pkh --deleted-docs del -- a").expect(1).text(), "");

    let table = shell.0.read("old.pkh");
    fs::create_dir(shell.0.path("folder")).unwrap();
    for (path, part) in
        [("missing/docs", "missing"), ("folder", "folder"), ("./old.pkh", "replace")]
    {
        shell.fails(&format!("in-set old.pkh --bitmap {path} -- a"), &[part]);
    }
    assert!(shell.0.read("old.pkh") == table);
}

/// Values that are no doc IDs: said before an answer could be wrong.
#[test]
fn values_that_are_no_doc_ids() {
    let shell = Shell::new();
    shell.0.write("input", "a\nb\n");
    shell.run("build input -o set.pkh --set").expect(0);
    shell.table("wide.pkh", "a 5\nb 4294967296\n", "");
    shell.table("last.pkh", "a 5\nb 4294967295\n", "");
    shell.table("far.pkh", "a 5\nb 4294967294\n", "");
    shell.table("none.pkh", "", "");
    let value = ValueFormat::opaque(6).unwrap();
    let options = TableOptions::default().value(value);
    let options = WriterOptions::default().table(options);
    let model: Model = [(b"a".to_vec(), vec![1; 6])].into();
    publish(&shell.0.path("opaque.pkh"), options, slices(&model)).unwrap();
    shell.0.write("del", "1\n");
    for (table, part) in [
        ("set.pkh", "set of keys"),
        // Opaque values have doc IDs as integers have, and 0x010101010101 is too large.
        ("opaque.pkh", "found 4294967295"),
        ("wide.pkh", "found 4294967296"),
        ("last.pkh", "found 4294967295"),
        // Two keys that ask for half a gibibyte.
        ("far.pkh", "expected doc IDs below 134217728 for 2 keys, found 4294967294"),
    ] {
        for line in [
            "get _ --deleted-docs del -- a",
            "get _ --live-docs del -- a",
            "in-set _ --deleted-docs del -- a",
            "merge _ --deleted-docs del -o fails.pkh",
            "merge _ --live-docs del --offset -o fails.pkh",
            "merge _ --write-doc-map fails -o fails.pkh",
        ] {
            shell.fails(&line.replace('_', table), &[table, part]);
        }
        // Without deletes nothing needs a doc ID.
        assert!(shell.text(&format!("get {table} --deleted-docs - -- a")).starts_with("a\t"));
        shell.run(&format!("merge {table} --deleted-docs - -o m.pkh")).expect(0);
        assert!(shell.0.read("m.pkh") == shell.0.read(table));
    }
    for (line, parts) in [
        ("in-set set.pkh -- absent", &["set.pkh", "set of keys"][..]),
        ("in-set opaque.pkh -- a", &["opaque.pkh"]),
        ("in-set none.pkh wide.pkh -- a b", &["wide.pkh", "4294967296"]),
        ("in-set none.pkh wide.pkh --offset -- a", &["wide.pkh", "4294967296"]),
        ("in-set far.pkh none.pkh last.pkh --offset -- a", &["last.pkh", "4294967295"]),
        ("in-set far.pkh far.pkh --offset -- a", &["far.pkh", "no doc IDs are left"]),
        (
            "merge none.pkh far.pkh far.pkh --offset -o fails.pkh --on-duplicate first \
             --deleted-docs none --deleted-docs - --deleted-docs -",
            &["far.pkh", "--offset"],
        ),
    ] {
        shell.0.write("none", "");
        shell.fails(line, parts);
    }
    assert_eq!(shell.text("in-set wide.pkh -- a"), "5\n");
    assert_eq!(
        shell.text("in-set none.pkh far.pkh none.pkh --offset -- b"),
        "far.pkh\t4294967294\n"
    );
}

/// The doc ID of a versioned value is its first 4 bytes, and the footer does not know the largest one.
#[test]
fn versioned_values_have_doc_ids() {
    let shell = Shell::new();
    let value = ValueChoice::Fixed(ValueFormat::opaque(12).unwrap());
    for (name, docs) in [("a", [3, 1]), ("b", [0, 6])] {
        let pair = |(i, doc): (usize, &u32)| {
            (format!("{name}{i}").into_bytes(), versioned_value(*doc, 77).to_vec())
        };
        let model: Model = docs.iter().enumerate().map(pair).collect();
        let table = TableOptions::default().value(value);
        let options = WriterOptions::default().table(table);
        publish(&shell.0.path(&format!("{name}.pkh")), options, slices(&model)).unwrap();
    }
    shell.0.write("a.del", "1\n");
    shell.0.write("b.del", "0\n");
    let files = "--deleted-docs a.del --deleted-docs b.del";
    let shown = |doc: u8| format!("\\x{doc:02x}0000004d00000000000000");
    let run = shell.run(&format!("get a.pkh b.pkh {files} -- a0 a1 b0 b1")).expect(1);
    assert_eq!(run.text(), format!("a0\ta.pkh\t{}\nb1\tb.pkh\t{}\n", shown(3), shown(6)));
    let run = shell.text(&format!("in-set a.pkh b.pkh {files} --offset -- a0 a1 b0 b1"));
    assert_eq!(run, "a.pkh\t3\nb.pkh\t10\n");
    shell.run(&format!("merge a.pkh b.pkh {files} -o m.pkh")).expect(0);
    let run = shell.run("get m.pkh -- a0 a1 b0 b1").expect(1);
    assert_eq!(run.text(), format!("a0\t{}\nb1\t{}\n", shown(3), shown(6)));
    let maps = "--write-doc-map a.map --write-doc-map b.map";
    shell.run(&format!("merge a.pkh b.pkh {files} --offset {maps} -o m.pkh")).expect(0);
    let run = shell.run("get m.pkh -- a0 a1 b0 b1").expect(1);
    assert_eq!(run.text(), format!("a0\t{}\nb1\t{}\n", shown(2), shown(8)));
    assert_eq!(shell.0.read("a.map"), b"0\n-\n1\n2\n");
    assert_eq!(shell.0.read("b.map"), b"-\n3\n4\n5\n6\n7\n8\n");
}

#[test]
fn merge_leaves_deleted_docs_out() {
    let shell = Shell::new();
    overlapping(&shell);
    shell.0.write("new.del", "0\n");
    shell.0.write("mid.live", "2\n3\n");
    shell.0.write("none", "");
    let merged = |line: &str| {
        shell.run(&format!("merge {line} -o m.pkh")).expect(0);
        let line =
            |(key, doc): (Vec<u8>, u64)| format!("{} {doc} ", String::from_utf8(key).unwrap());
        shell.dump("m.pkh").into_iter().map(line).collect::<String>().trim_end().to_owned()
    };
    // A deleted match does not clash with its successor; the others keep their IDs.
    assert_eq!(merged("new.pkh mid.pkh --deleted-docs new.del --deleted-docs -"), "a 5 b 2 n 1");
    assert_eq!(merged("mid.pkh --live-docs mid.live"), "b 2");
    // Numbered on without gaps: of `mid`, docs 2 and 3 are live, though no key has doc 3.
    let line =
        "new.pkh mid.pkh old.pkh --deleted-docs new.del --deleted-docs mid.del --deleted-docs -";
    shell.0.write("mid.del", "0\n1\n4\n5\n");
    assert_eq!(merged(&format!("{line} --offset --on-duplicate first")), "a 12 b 1 n 0 o 10");
    shell.fails(&format!("merge {line} --offset -o fails.pkh"), &["duplicate", "\"b\""]);
    // Nothing deleted is the same table as without the options.
    for options in ["", "--offset", "--offset --on-duplicate last"] {
        let options = format!("new.pkh old.pkh {options}");
        let options =
            if options.contains("last") { options } else { options + " --on-duplicate first" };
        merged(&options);
        let expected = shell.0.read("m.pkh");
        for files in
            ["--deleted-docs - --deleted-docs -", "--deleted-docs none --deleted-docs none"]
        {
            merged(&format!("{options} {files}"));
            assert!(shell.0.read("m.pkh") == expected, "{options} {files}");
        }
    }
    // Everything deleted, and over an input.
    shell.bitmap("no.bits", &[]);
    assert_eq!(merged("mid.pkh --live-docs no.bits"), "");
    fs::copy(shell.0.path("mid.pkh"), shell.0.path("m.pkh")).unwrap();
    assert_eq!(merged("m.pkh --deleted-docs mid.del --offset"), "b 0");
    for (line, parts) in [
        ("mid.pkh --live-docs mid.live --doc-map -", ["--live-docs", "--doc-map"]),
        ("mid.pkh --deleted-docs mid.del --doc-map -", ["--deleted-docs", "--doc-map"]),
    ] {
        shell.fails(&format!("merge {line} -o fails.pkh"), &parts);
    }
    // With a companion: it has the docs that are left.
    shell.table("c.pkh", "x 0\ny 1\nz 2\n", "--ordered");
    merged("c.pkh --deleted-docs new.del --offset --ordered");
    shell.run("verify m.pkh").expect(0);
    assert_eq!(shell.text("range m.pkh"), "y\t0\nz\t1\n");
}

#[test]
fn written_doc_maps() {
    let shell = Shell::new();
    overlapping(&shell);
    shell.0.write("new.del", "0\n");
    shell.0.write("new.map", "-\n7\n");
    let maps = "--write-doc-map a --write-doc-map b";
    for (options, a, b) in [
        ("", "0\n1\n", "0\n1\n2\n3\n4\n5\n"),
        ("--offset", "0\n1\n", "2\n3\n4\n5\n6\n7\n"),
        ("--deleted-docs new.del --deleted-docs -", "-\n1\n", "0\n1\n2\n3\n4\n5\n"),
        ("--deleted-docs new.del --deleted-docs - --offset", "-\n0\n", "1\n2\n3\n4\n5\n6\n"),
        ("--deleted-docs - --deleted-docs new.del --offset", "0\n1\n", "-\n2\n3\n4\n5\n6\n"),
        ("--doc-map new.map --doc-map -", "-\n7\n", "0\n1\n2\n3\n4\n5\n"),
    ] {
        let line = format!("merge new.pkh mid.pkh --on-duplicate first {options}");
        shell.run(&format!("{line} {maps} -o m.pkh")).expect(0);
        assert_eq!(shell.0.read("a"), a.as_bytes(), "{options}");
        assert_eq!(shell.0.read("b"), b.as_bytes(), "{options}");
        // As maps they give the same table.
        let again =
            "merge new.pkh mid.pkh --on-duplicate first --doc-map a --doc-map b -o again.pkh";
        shell.run(again).expect(0);
        assert!(shell.0.read("again.pkh") == shell.0.read("m.pkh"), "{options}");
        shell.run(&format!("{line} -o m.pkh")).expect(0);
        assert!(shell.0.read("again.pkh") == shell.0.read("m.pkh"), "{options}");
    }
    // Not of every table, and with the table on standard output.
    fs::remove_file(shell.0.path("a")).unwrap();
    let run = shell.run("merge new.pkh old.pkh --offset --on-duplicate first --write-doc-map - --write-doc-map c -o -");
    assert_eq!(run.status.code(), Some(0), "{}", run.err);
    assert_eq!(shell.0.read("c"), b"2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n");
    assert!(!shell.0.path("a").exists());

    let table = shell.0.read("new.pkh");
    for (line, parts) in [
        ("new.pkh mid.pkh --write-doc-map x", &["--write-doc-map", "2 tables", "found 1"][..]),
        ("new.pkh --write-doc-map fails.pkh", &["fails.pkh", "another file"]),
        ("new.pkh --write-doc-map new.pkh", &["new.pkh", "another file"]),
        ("new.pkh --write-doc-map ./new.pkh", &["new.pkh", "another file"]),
        ("new.pkh o.pkh --write-doc-map x --write-doc-map x", &["o.pkh"]),
        ("new.pkh old.pkh --write-doc-map x --write-doc-map x", &["x", "another file"]),
    ] {
        shell.fails(&format!("merge {line} -o fails.pkh"), parts);
    }
    assert!(shell.0.read("new.pkh") == table);
    // Nothing happens if a map cannot be written.
    let files = shell.0.names();
    for out in ["n.pkh", "new.pkh", "-"] {
        let line = format!("merge new.pkh -o {out} --write-doc-map missing/map");
        let run = shell.run(&line);
        assert!(run.out.is_empty());
        run.fails(&["missing"]);
        assert_eq!(shell.0.names(), files);
        assert!(shell.0.read("new.pkh") == table);
    }
    // New IDs that are none.
    shell.table("far.pkh", "f 4294967290\n", "");
    let line = "merge far.pkh mid.pkh --offset -o fails.pkh --write-doc-map - --write-doc-map x";
    shell.fails(line, &["mid.pkh", "not less than 4294967295"]);
}

/// Deletes that arrive during a merge, by shell alone: none is lost, none returns.
#[test]
fn deletes_that_arrive_during_a_merge() {
    let shell = Shell::new();
    shell.table("a.pkh", "a0 0\na1 1\na2 2\na3 3\n", "");
    shell.table("b.pkh", "b0 0\nb1 1\n", "");
    shell.0.write("a.del", "1\n");
    shell.0.write("b.del", "");
    let line = "merge a.pkh b.pkh --offset --deleted-docs a.del --deleted-docs b.del";
    shell.run(&format!("{line} -o m.pkh --write-doc-map a.map --write-doc-map b.map")).expect(0);
    // Meanwhile a2 and b0 were deleted, too: docs 2 and 0.
    let mut deleted = String::new();
    for (name, docs) in [("a", vec![1, 2]), ("b", vec![0])] {
        let map = String::from_utf8(shell.0.read(&format!("{name}.map"))).unwrap();
        let map: Vec<&str> = map.lines().collect();
        for doc in docs.into_iter().filter(|doc: &usize| map[*doc] != "-") {
            deleted += &format!("{}\n", map[doc]);
        }
    }
    shell.0.write("m.del", deleted);
    let run = shell.run("get m.pkh --deleted-docs m.del -- a0 a1 a2 a3 b0 b1").expect(1);
    assert_eq!(run.text(), "a0\t0\na3\t2\nb1\t4\n");
}

/// Random tables with random deletes, against maps: `get`, `in-set` and `merge` agree with them.
#[test]
fn as_maps_have_it() {
    let shell = Shell::new();
    for seed in 0..6 {
        let mut rng = Rng(seed);
        let tables = 1 + rng.below(5);
        let layout =
            ["", "--layout inline", "--layout term-order", "--filter-bits 10"][rng.below(4)];
        // Of each table, the newest first: its pairs, and its deleted docs.
        let mut models: Vec<(BTreeMap<String, u32>, BTreeSet<u32>)> = Vec::new();
        let (mut names, mut files, mut maps) = (String::new(), String::new(), String::new());
        for t in 0..tables {
            // Some docs have no key.
            let mut docs: Vec<u32> = (0..400).filter(|doc| doc % 7 != 3).collect();
            rng.shuffle(&mut docs);
            docs.truncate(rng.below(300));
            let pairs: BTreeMap<String, u32> =
                docs.into_iter().map(|doc| (format!("{:03}", rng.below(600)), doc)).collect();
            let deleted: BTreeSet<u32> = (0..450).filter(|_| rng.below(3) == 0).collect();
            let text =
                pairs.iter().fold(String::new(), |all, (key, doc)| all + &format!("{key} {doc}\n"));
            shell.table(&format!("{t}.pkh"), &text, layout);
            if rng.below(2) == 0 {
                shell.0.write(&format!("{t}.del"), lines(&deleted));
            } else {
                shell.bitmap(&format!("{t}.del"), &deleted.iter().copied().collect::<Vec<_>>());
            }
            names += &format!("{t}.pkh ");
            files += &format!("--deleted-docs {t}.del ");
            maps += &format!("--write-doc-map {t}.map ");
            models.push((pairs, deleted));
        }
        let asked: Vec<String> = (0..900).map(|_| format!("{:03}", rng.below(700))).collect();
        shell.0.write("keys", asked.join("\n"));
        let newest = |key: &str| {
            models.iter().enumerate().find_map(|(t, (pairs, deleted))| {
                let doc = pairs.get(key).filter(|doc| !deleted.contains(doc))?;
                Some((t, *doc))
            })
        };
        let mut expected = String::new();
        for key in &asked {
            expected += key;
            if let Some((t, doc)) = newest(key) {
                expected += &match tables {
                    1 => format!("\t{doc}"),
                    _ => format!("\t{t}.pkh\t{doc}"),
                };
            }
            expected += "\n";
        }
        let run = shell.run(&format!("get {names} {files} --keys keys --missing")).expect(1);
        assert_eq!(run.text(), expected, "seed {seed}");

        let mut expected = String::new();
        for (t, (pairs, deleted)) in models.iter().enumerate() {
            let docs: BTreeSet<u32> =
                asked.iter().filter_map(|key| pairs.get(key)).copied().collect();
            for doc in docs.difference(deleted) {
                expected +=
                    &if tables == 1 { format!("{doc}\n") } else { format!("{t}.pkh\t{doc}\n") };
            }
        }
        let run = shell.run(&format!("in-set {names} {files} --keys keys"));
        assert_eq!(run.text(), expected, "seed {seed}");

        // Numbered on: what `get` gives by the maps, and no ID is skipped or given twice.
        let line = format!("merge {names} {files} --on-duplicate first --offset {maps} -o m.pkh");
        shell.run(&line).expect(0);
        let maps: Vec<Vec<Option<u32>>> = (0..tables)
            .map(|t| {
                let map = String::from_utf8(shell.0.read(&format!("{t}.map"))).unwrap();
                map.lines().map(|line| line.parse().ok()).collect()
            })
            .collect();
        for (map, (pairs, deleted)) in maps.iter().zip(&models) {
            let known = pairs.values().chain(deleted).max().map_or(0, |doc| doc + 1);
            assert_eq!(map.len(), known as usize);
            let gone = (0..known).filter(|doc| map[*doc as usize].is_none());
            assert!(gone.eq(deleted.iter().copied()), "seed {seed}");
        }
        let new: Vec<u32> = maps.iter().flatten().copied().flatten().collect();
        assert!(new.iter().copied().eq(0..new.len() as u32), "seed {seed}");
        let all: BTreeSet<&String> = models.iter().flat_map(|(pairs, _)| pairs.keys()).collect();
        let merged: BTreeMap<Vec<u8>, u64> = all
            .into_iter()
            .filter_map(|key| {
                let (t, doc) = newest(key)?;
                Some((key.clone().into_bytes(), maps[t][doc as usize]?.into()))
            })
            .collect();
        assert_eq!(shell.dump("m.pkh"), merged, "seed {seed}");
        // Without deletes, `in-set` numbers docs on as `merge` does.
        let offset = format!("merge {names} --on-duplicate first --offset -o m.pkh");
        shell.run(&offset).expect(0);
        let merged: BTreeSet<u64> = shell.dump("m.pkh").into_values().collect();
        let every: String = (0..700).map(|i| format!("{i:03}\n")).collect();
        shell.0.write("keys", every);
        let run = shell.run(&format!("in-set {names} --offset --keys keys"));
        let docs: BTreeSet<u64> = run
            .text()
            .lines()
            .map(|line| line.rsplit('\t').next().unwrap().parse().unwrap())
            .collect();
        assert!(docs.is_superset(&merged) && (tables > 1 || docs == merged), "seed {seed}");
    }
}

/// The lines of a run's notes, which are all that it says on standard error.
fn notes(run: &Run) -> Vec<&str> {
    assert!(run.err.lines().all(|line| line.starts_with("pkhash: note: ")), "{}", run.err);
    run.err.lines().collect()
}

#[test]
fn docs_that_a_merge_would_number_alike() {
    let shell = Shell::new();
    let dense = |prefix: &str, docs: std::ops::Range<u32>| -> String {
        docs.map(|doc| format!("{prefix}{doc} {doc}\n")).collect()
    };
    shell.table("a.pkh", &dense("a", 0..500), "");
    shell.table("b.pkh", &dense("b", 0..3), "");
    shell.table("c.pkh", &dense("c", 500..900), "");
    shell.table("d.pkh", &dense("d", 899..1000), "");
    // Most docs have no key, but there is a small one.
    shell.table("gaps.pkh", "g 1\nh 9000\n", "");
    shell.table("far.pkh", &format!("f {}\n", u64::MAX), "");
    shell.table("none.pkh", "", "");
    shell.table("set.pkh", "x \ny \n", "--set");
    shell.0.write("map", (0..500).map(|doc| format!("{}\n", doc + 3)).collect::<String>());
    shell.0.write("a.del", "7\n");
    for (line, names) in [
        ("a.pkh b.pkh", Some(["a.pkh", "b.pkh"])),
        ("b.pkh none.pkh c.pkh a.pkh", Some(["a.pkh", "b.pkh"])),
        ("a.pkh c.pkh d.pkh", Some(["c.pkh", "d.pkh"])),
        ("gaps.pkh c.pkh", Some(["gaps.pkh", "c.pkh"])),
        ("gaps.pkh b.pkh", Some(["gaps.pkh", "b.pkh"])),
        ("a.pkh b.pkh --deleted-docs a.del --deleted-docs -", Some(["a.pkh", "b.pkh"])),
        ("a.pkh b.pkh --offset", None),
        ("a.pkh b.pkh --doc-map map --doc-map -", None),
        ("a.pkh c.pkh far.pkh", None),
        ("a.pkh none.pkh none.pkh", None),
        ("a.pkh", None),
        ("set.pkh", None),
    ] {
        for json in ["", "--json"] {
            let run = shell.run(&format!("merge {line} -o m.pkh {json}")).expect(0);
            match (notes(&run)[..].first(), names) {
                (None, None) => {}
                (Some(note), Some(names)) => {
                    for part in names.iter().chain(&["--offset", "--doc-map"]) {
                        assert!(note.contains(part), "{line}: no {part} in {note}");
                    }
                    assert_eq!(notes(&run).len(), 1);
                }
                (note, _) => panic!("{line}: {note:?}"),
            }
            assert!(!run.text().contains("note"));
            if !json.is_empty() {
                assert!(run.json()["keys"].is_number());
            }
        }
    }
    let help = shell.text("merge --help").split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["docs of several tables then have one ID", "comes first on the command line"] {
        assert!(help.contains(part), "{help}");
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
