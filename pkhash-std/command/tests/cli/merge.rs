//! `merge`.

use super::*;

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
