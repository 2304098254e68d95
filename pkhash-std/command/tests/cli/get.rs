//! `get`.

use super::*;

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
