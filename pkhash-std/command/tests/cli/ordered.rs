//! `range`, `prefix`, and companions.

use super::*;

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

/// Of an index: the keys of all its tables in one order, without deleted docs, each key once; merges keep the companions.
#[test]
fn ranges_and_prefixes_of_an_index() {
    let shell = Shell::new();
    for (list, options) in [("a\nc\ne\nx1\n", ""), ("b\nc\nx2\n", "--replace"), ("d\nx1\n", "")] {
        shell.0.write("list", list);
        shell.run(&format!("add index list --ordered {options}")).expect(0);
    }
    shell.run("delete index -- e").expect(0);
    let all = "a\t0\nb\t0\nc\t1\nd\t0\nx1\t1\nx2\t2\n";
    for open in ["map", "heap"] {
        assert_eq!(shell.run(&format!("range index --open {open}")).expect(0).text(), all);
        assert_eq!(shell.run(&format!("range index --trust --open {open}")).expect(0).text(), all);
    }
    assert_eq!(shell.run("prefix index x").expect(0).text(), "x1\t1\nx2\t2\n");
    assert_eq!(shell.run("range index --from b --to d --limit 1").expect(0).text(), "b\t0\n");
    assert_eq!(shell.run("range index --from e --to x").expect(1).text(), "");
    shell.run("compact index --all").expect(0);
    // Older docs come first. The older doc of x1 has no key any more.
    let all = "a\t0\nb\t2\nc\t3\nd\t5\nx1\t6\nx2\t4\n";
    assert_eq!(shell.run("range index").expect(0).text(), all);
    assert!(shell.run("verify index").expect(0).text().ends_with("ordered companion ok\n"));
    // One table without a companion, and there is no order.
    shell.run("add index list").expect(0);
    shell.run("range index").fails(&["index/segment-", "no ordered companion"]);
}
