//! Lists and bitmaps of docs.

use super::*;

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
