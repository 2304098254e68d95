//! Lists of keys in every form.

use super::*;

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
