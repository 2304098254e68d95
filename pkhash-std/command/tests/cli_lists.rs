//! What the `pkhash` command makes of lists as people have them: with byte order marks, compressed, in UTF-16,
//! with blank lines, and CSV with columns that are not what was meant.

mod common;

use std::io::Write;
use std::process::Stdio;

use common::Folder;
use common::command::{Run, command, run, run_with_input};

const MARK: &[u8] = b"\xef\xbb\xbf";

/// A folder in which commands run.
struct Shell(Folder);

impl Shell {
    /// With a table of the docs 10, 11 and 12, whose keys are their numbers, and one of two docs.
    fn new() -> Self {
        let shell = Self(Folder::new());
        shell.0.write("input", "10\t10\n11\t11\n12\t12\n");
        shell.run("build --pairs input -o t.pkh").expect(0);
        shell.0.write("input", "a\nb\n");
        shell.run("build input -o two.pkh").expect(0);
        shell
    }

    fn run(&self, line: &str) -> Run {
        run(&mut command(self.0.root(), line.split_whitespace()))
    }

    fn run_with_input(&self, line: &str, input: &[u8]) -> Run {
        run_with_input(&mut command(self.0.root(), line.split_whitespace()), input)
    }

    /// Builds `out` of these bytes.
    fn build(&self, input: impl AsRef<[u8]>, options: &str) -> Run {
        self.0.write("list", input);
        self.run(&format!("build list -o out {options}"))
    }

    /// What `dump` prints of `out`, sorted.
    fn dump(&self) -> String {
        let run = self.run("dump out").expect(0);
        let mut lines: Vec<_> = run.text().lines().collect();
        lines.sort_unstable();
        lines.join(" ")
    }
}

/// Every way to give a list, and one that is right for it. `list` is the list; a table goes to `out`.
const WAYS: [(&str, &str); 25] = [
    ("build list -o out", "10\n11\n"),
    ("build list -o out --null", "10\x0011\0"),
    ("build list -o out --text", "10\n11\n"),
    ("build list -o out --hex", "10\n11\n"),
    ("build list -o out --set", "10\n11\n"),
    ("build list -o out --ordered", "10\n11\n"),
    ("build list -o out --pairs", "10\t1\n11\t2\n"),
    ("build list -o out --pairs --hex", "10\t1\n11\t2\n"),
    ("build list -o out --pairs --text", "10\t1\n11\t2\n"),
    ("build list -o out --csv --key id", "id,doc\n10,1\n"),
    ("build list -o out --csv --key id --value doc", "\"id\",doc\n10,1\n"),
    ("build list -o out --csv --key id --hex", "id,doc\n10,1\n"),
    ("build list -o out --csv --key id --delimiter ;", "id;doc\n10;1\n"),
    ("get t.pkh --keys list --missing", "10\n11\n12\n"),
    ("get t.pkh --keys list --null", "10\x0011\0"),
    ("get t.pkh --keys list --text", "10\n11\n"),
    ("get t.pkh --keys list --hex", "3130\n3131\n"),
    ("in-set t.pkh --keys list", "10\n11\n"),
    ("get t.pkh --deleted-docs list --missing -- 10 11 12", "10\n"),
    ("get t.pkh --live-docs list --missing -- 10 11 12", "10\n"),
    ("in-set t.pkh --deleted-docs list -- 10 11 12", "10\n"),
    ("in-set t.pkh --live-docs list -- 10 11 12", "10\n"),
    ("merge t.pkh --deleted-docs list -o out", "10\n"),
    ("merge t.pkh --live-docs list -o out", "10\n"),
    ("merge two.pkh --doc-map list -o out", "10\n-\n"),
];

/// In how many of them the list may come from standard input.
const WAYS_OF_INPUT: usize = 18;

/// The output of a way to give a list: exit code, what it prints, and the table. Reports have times in them.
fn outcome(shell: &Shell, line: &str) -> (Option<i32>, Vec<u8>, Option<Vec<u8>>) {
    let run = shell.run(line);
    let built = line.contains("-o out");
    assert!(!built || run.status.success(), "{line}: {}", run.err);
    let out = if built { vec![] } else { run.out };
    let table = built.then(|| shell.0.read("out"));
    let _ = std::fs::remove_file(shell.0.path("out"));
    (run.status.code(), out, table)
}

#[test]
fn a_mark_is_left_out_of_every_list() {
    let shell = Shell::new();
    for (number, (line, list)) in WAYS.into_iter().enumerate() {
        shell.0.write("list", list);
        let without = outcome(&shell, line);
        let marked = [MARK, list.as_bytes()].concat();
        shell.0.write("list", &marked);
        let with = outcome(&shell, line);
        assert!(without == with, "{line}: {without:?} {with:?}");
        if number < WAYS_OF_INPUT {
            let line = line.replace(" list", " -");
            let run = shell.run_with_input(&line, &marked);
            assert_eq!(run.status.code(), with.0, "{line}");
            match with.2 {
                Some(table) => assert!(shell.0.read("out") == table, "{line}"),
                None => assert_eq!(run.out, with.1, "{line}"),
            }
        }
    }
    // Of nothing but a mark nothing is left, as of an empty file.
    shell.0.write("list", MARK);
    assert_eq!(shell.run("get t.pkh --keys list").expect(0).text(), "");
    assert_eq!(shell.run("get t.pkh --deleted-docs list -- 10").expect(0).text(), "10\t10\n");
    shell.run("get t.pkh --live-docs list -- 10").fails(&["list", "empty"]);
    // A second mark, one elsewhere and a part of one belong to what they are in.
    shell.build("\u{feff}\u{feff}a\t1\nb\u{feff}\t2\n\u{feff}c\t3\n", "--pairs").expect(0);
    assert_eq!(shell.dump(), "\\xefbbbf61\t1 \\xefbbbf63\t3 b\u{feff}\t2");
    shell.0.write("list", b"\xef\xbb10\n");
    shell.run("get t.pkh --keys list").expect(1);
    shell.run("get t.pkh --deleted-docs list -- 10").fails(&["list:1", "doc ID"]);
}

#[test]
fn keys_that_begin_with_a_mark_are_read_back() {
    let shell = Shell::new();
    let table = |list: &str| {
        shell.build(list, "--null").expect(0);
        shell.0.read("out")
    };
    // Whichever comes first.
    for list in ["a\0\u{feff}b\0", "a\0\u{feff}\0", "\0\u{feff}\0\u{feff}\u{feff}\0"] {
        let before = table(list);
        for form in ["", "--hex", "--null"] {
            for print in ["dump out", "get out --keys list"] {
                let form = if print.contains("get") { "--null" } else { form };
                let printed = shell.run(&format!("{print} {form}")).expect(0);
                let line = format!("build - --pairs -o back {form}");
                shell.run_with_input(&line, &printed.out).expect(0);
                assert!(shell.0.read("back") == before, "{list:?} {print} {form}");
            }
        }
    }
    // Raw pairs may begin so as a file, or as a key: that is said.
    let run = shell.build("\u{feff}a\t1\n", "--pairs --text").expect(0);
    assert!(run.err.contains("note: list: a byte order mark was left out"), "{}", run.err);
    assert_eq!(shell.dump(), "a\t1");
    for options in ["--pairs", "--pairs --hex"] {
        let run = shell.build("\u{feff}aa\t1\n", options).expect(0);
        assert_eq!(run.err, "");
    }
}

/// The list `10`, `11` as it is compressed.
const COMPRESSED: [(&[u8], &str, &str); 7] = [
    (b"\x1f\x8b\x08\0\0\0\0\0\x02\x0334\xe024\xe4\x02\0BLY\xb3\x06\0\0\0", "gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd\x04X1\0\x0010\n11\n\xad\x51\xf9\x5f", "zstd", "zstdcat"),
    (
        b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4F\x02\0!\x01\x16\0\0\0t/\xe5\xa3\x01\0\x0510\n11\n\0\0\0",
        "xz",
        "xzcat",
    ),
    (b"BZh91AY&SY/\xcf\xfcC\0\0\x02H\0\0\x10`\0 \0!&A\x98\xa4", "bzip2", "bzcat"),
    (b"BZh1\x17rE8P\x90\0\0\0\0", "bzip2", "bzcat"),
    (b"PK\x03\x04\x14\0\0\0\0\0\xf2\x03\x83]BLY\xb3\x06\0\0\0\x06\0\0\0", "zip", "unzip"),
    (b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "zip", "empty"),
];

/// Text in units of this many bytes, the lowest first or last.
fn wide(text: &str, width: usize, little: bool) -> Vec<u8> {
    let unit = |char: char| {
        let mut bytes = u32::from(char).to_le_bytes()[..width].to_vec();
        if !little {
            bytes.reverse();
        }
        bytes
    };
    text.chars().flat_map(unit).collect()
}

#[test]
fn what_is_no_list_is_refused_by_name_wherever_a_list_is_read() {
    let shell = Shell::new();
    let table = shell.0.read("t.pkh");
    for (number, (line, list)) in WAYS.into_iter().enumerate() {
        let mut kinds: Vec<(Vec<u8>, [String; 2])> = COMPRESSED
            .iter()
            .map(|(bytes, what, how)| (bytes.to_vec(), [what, how].map(|part| (*part).to_owned())))
            .collect();
        kinds.push((table.clone(), ["a table".to_owned(), "dump".to_owned()]));
        for (bits, little, order) in
            [(16, true, "LE"), (16, false, "BE"), (32, true, "LE"), (32, false, "BE")]
        {
            let what = format!("UTF-{bits}");
            let convert = |order| format!("iconv -f UTF-{bits}{order} -t UTF-8");
            for text in [list.to_owned(), list.replace('\n', "\r\n")] {
                let marked = wide(&format!("\u{feff}{text}"), bits / 8, little);
                kinds.push((marked, [what.clone(), convert("")]));
                // Between NULs there may be keys of one letter.
                if !line.contains("--null") {
                    kinds.push((wide(&text, bits / 8, little), [what.clone(), convert(order)]));
                }
            }
            // Longer than what is looked at.
            if !line.contains("--null") {
                let long = wide(&format!("{}\n", "7".repeat(1000)), bits / 8, little);
                kinds.push((long, [what.clone(), convert(order)]));
            }
            kinds.push((wide("\u{feff}", bits / 8, little), [what, convert("")]));
        }
        for (bytes, [what, how]) in kinds {
            shell.0.write("list", &bytes);
            let message = shell.run(line).fails(&["list: ", &what, &how]);
            assert_eq!(message.lines().count(), 1, "{line}: {message}");
            // How keys are given that begin so, where that can be.
            let keys = line.contains("build") || line.contains("--keys");
            let other = keys && !line.contains("--hex") && !line.contains("--csv");
            assert_eq!(message.contains("--hex"), other, "{line}: {message}");
            assert!(!shell.0.names().iter().any(|name| name.contains("out")), "{line}");
            if number < WAYS_OF_INPUT && bytes.len() < 100 {
                shell.run_with_input(&line.replace(" list", " -"), &bytes).fails(&[
                    "standard input: ",
                    &what,
                    &how,
                ]);
            }
        }
    }
}

#[test]
fn what_only_begins_alike_is_a_list() {
    let shell = Shell::new();
    for begin in [
        &b"\x1f"[..],
        b"\x1f\x8c",
        b"\x28\xb5\x2f",
        b"\xfd7zXZ",
        b"BZh",
        b"BZh9",
        b"BZh01AY&SY",
        b"BZh91AY&SZ",
        b"PK",
        b"PK\x01\x02",
        b"\xff",
        b"\xfe",
        b"\xff\xfd",
        b"\0\0\xfe",
        b"\xef\xbb",
        b"\x89pkhas",
        b"a\0b",
        b"\0ab",
        b"a\0\xe9\0",
        b"\0",
        b"\0\0",
    ] {
        for end in [&b""[..], b"\n", b"\nb\n", b"\r\n"] {
            let run = shell.build([begin, end].concat(), "").expect(0);
            assert_eq!(run.err, "");
            let hex: String = begin.iter().map(|byte| format!("{byte:02x}")).collect();
            shell.run(&format!("get out --hex -- {hex}")).expect(0);
            shell.run("get out --keys list").expect(0);
        }
    }
    // Between NULs: keys of one letter, and empty ones.
    shell.build(b"a\0b\0\n\0c\0", "--null").expect(0);
    assert_eq!(shell.dump(), "\\x0a\t2 a\t0 b\t1 c\t3");
    // What begins as other formats do can be given in hex.
    shell.build("1f8b\nfffe\n", "--hex").expect(0);
    shell.0.write("list", "fffe\n1f8b\n");
    assert_eq!(shell.run("get out --hex --keys list").expect(0).text(), "fffe\t1\n1f8b\t0\n");
}

#[test]
fn the_beginning_of_a_pipe_is_looked_at_without_waiting_for_more() {
    let shell = Shell::new();
    for (line, expected) in
        [("no pair\n", "standard input:1: expected"), ("B\n", "standard input:1: expected")]
    {
        let mut command = command(shell.0.root(), ["build", "--pairs", "-", "-o", "out"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
        // The pipe stays open, but not for ever.
        let (done, ended) = std::sync::mpsc::channel();
        let watch = std::thread::spawn(move || {
            let late = ended.recv_timeout(std::time::Duration::from_secs(60)).is_err();
            drop(stdin);
            late
        });
        let output = child.wait_with_output().unwrap();
        // Nobody listens any more if it was late.
        let _ = done.send(());
        assert!(!watch.join().unwrap(), "waited for more of the input");
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected));
    }
}

#[test]
fn a_column_that_is_there_twice() {
    let shell = Shell::new();
    for (header, options, parts) in [
        ("id,id,doc", "--key id", ["\"id\"", "columns 1 and 2"]),
        ("id,doc,doc", "--key id --value doc", ["\"doc\"", "columns 2 and 3"]),
        ("doc,x,\"doc\"", "--key x --value doc", ["\"doc\"", "columns 1 and 3"]),
        ("a,,b,,c,", "--key=", ["\"\"", "columns 2 and 4, and 1 more"]),
    ] {
        let row = "1,".repeat(header.split(',').count() - 1) + "1\n";
        let message = shell.build(format!("{header}\n{row}"), &format!("--csv {options}"));
        message.fails(&[&["list:1: "][..], &parts].concat());
    }
    // Others may be there as often as they like.
    shell.build("x,id,x,doc,x\n1,a,2,7,3\n", "--csv --key id --value doc").expect(0);
    assert_eq!(shell.dump(), "a\t7");
    shell.build("id,ID, id\na,b,c\n", "--csv --key id").expect(0);
    assert_eq!(shell.dump(), "a\t0");
}

#[test]
fn a_column_that_is_not_there() {
    let shell = Shell::new();
    for (header, delimiter, hint) in [
        ("id;doc", ",", Some(";")),
        ("\"id\";\"doc\"", ",", Some(";")),
        ("id\tdoc", ",", Some("\\t")),
        ("doc|id", ",", Some("|")),
        ("doc,id", ";", Some(",")),
        ("a;id,with comma", ",", Some(";")),
        // Not by this name, but surely columns.
        ("key;doc", ",", Some(";")),
        ("key,doc", ",", None),
        ("key", ",", None),
        ("key;x,doc", ",", None),
    ] {
        let options = format!("--csv --key id --delimiter {delimiter}");
        let message = shell.build(format!("{header}\n1\n"), &options).fails(&["list:1: no column"]);
        match hint {
            Some(hint) => {
                assert!(message.contains(&format!("--delimiter '{hint}'?")), "{header}: {message}");
            }
            None => assert!(!message.contains("--delimiter"), "{header}: {message}"),
        }
    }
    shell.build("", "--csv --key id").fails(&["list:1: expected a header", "\"id\"", "the end"]);
    shell.build("\n\n", "--csv --key id").fails(&["expected a header", "\"id\"", "the end"]);
    // However many there are, and however long: some of them.
    for header in [vec!["column"; 100_000].join(","), "x".repeat(1 << 20)] {
        let message = shell.build(header, "--csv --key id").fails(&["no column \"id\"", "…"]);
        assert!(message.len() < 1000, "{}", message.len());
    }
}

#[test]
fn records_that_are_not_as_the_header() {
    let shell = Shell::new();
    for (record, found) in [("b", "has 1"), ("b,2,3", "has more"), ("b,2,3,4", "has more")] {
        shell.build(format!("id,doc\na,1\n{record}\n"), "--csv --key id").fails(&[
            "list:3: ",
            "the header has 2 fields, this record ",
            found,
        ]);
    }
    // Files that each have a header, one behind the other.
    let note = |run: &Run| run.err.contains("a record that is the same as the header");
    for (input, options, line) in [
        ("id\nA\nid\nC\n", "--csv --key id", 3),
        ("id,doc\n\"A\nB\",1\n\"id\",\"doc\"\nC,1\n", "--csv --key id", 4),
        ("id,doc\r\nA,1\r\nid,doc\r\nid,doc\r\n", "--csv --key id --on-duplicate first", 3),
        ("id,doc\nid,doc\n", "--csv --key id --set", 2),
    ] {
        let run = shell.build(input, options).expect(0);
        assert!(run.err.contains(&format!("pkhash: note: list:{line}: ")) && note(&run));
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        assert!(shell.dump().contains("id"));
    }
    for input in ["id\nA\nB\n", "id,doc\nid,1\n", "id,doc\n1,doc\nid,\n", "id\n"] {
        let run = shell.build(input, "--csv --key id").expect(0);
        assert!(!note(&run), "{input:?}: {}", run.err);
    }
    // Where it is an error anyway, the error says what it is.
    for options in ["--csv --key id --value doc", "--csv --key id --hex"] {
        let again = "the record is the same as the header";
        shell.build("id,doc\n0a,1\nid,doc\n", options).fails(&["list:3: ", again]);
        let message = shell.build("id,doc\nid,x\n", options).fails(&["list:2: "]);
        assert!(!message.contains(again), "{message}");
    }
}

#[test]
fn blank_lines_are_noted() {
    let shell = Shell::new();
    for (input, options, line) in [
        ("a\nb\n\n", "", 3),
        ("a\r\nb\r\n\r\n", "", 3),
        ("a\n\nb\n", "", 2),
        ("a\0\0", "--null", 2),
        ("0a\n\n", "--hex", 2),
        ("a\n\n", "--set", 2),
        ("\u{feff}\n", "", 1),
        ("a\n\n\n\n", "--on-duplicate last", 2),
    ] {
        let run = shell.build(input, options).expect(0);
        let note = format!("pkhash: note: list:{line}: a blank line became the empty key");
        assert!(run.err.starts_with(&note) && run.err.contains("--skip-empty"), "{}", run.err);
        assert_eq!(run.err.lines().count(), 1);
        let run = shell.build(input, &format!("{options} --skip-empty")).expect(0);
        assert_eq!(run.err, "");
        assert!(!shell.dump().starts_with('\t'));
    }
    // An empty key that a line or a record says is none of that.
    for (input, options) in [
        ("a\nb\n", ""),
        ("a\nb", ""),
        ("\t5\n", "--pairs"),
        ("id,doc\n,5\n", "--csv --key id"),
        ("id\n\na\n\n", "--csv --key id"),
    ] {
        assert_eq!(shell.build(input, options).expect(0).err, "", "{input:?}");
    }
    // Where keys are looked up, the empty one is absent, and that alone would not be understood.
    shell.build("a\nb\n", "").expect(0);
    for (input, options, line) in [
        ("a\n\n", "", 2),
        ("a\n\nb\n\n", "", 2),
        ("a\0b\0\0", "--null", 3),
        ("61\r\n\r\n", "--hex", 2),
    ] {
        shell.0.write("list", input);
        let note = format!("{line}: a blank line, which is looked up as the empty key");
        let run = shell.run(&format!("get out --keys list {options}")).expect(1);
        assert_eq!(run.err, format!("pkhash: note: list:{note}\n"));
        let run = shell.run_with_input(&format!("in-set out --keys - {options}"), input.as_bytes());
        assert_eq!(run.expect(0).err, format!("pkhash: note: standard input:{note}\n"));
    }
    shell.0.write("list", "a\nb\n");
    assert_eq!(shell.run("get out --keys list").expect(0).err, "");
}

#[test]
fn duplicates_name_their_lines() {
    let shell = Shell::new();
    for (input, options, parts) in [
        ("x\na\ny\na\n", "", &["list: lines 2 and 4: duplicate key \"a\""][..]),
        ("x\0a\0a\0", "--null", &["list: lines 2 and 3: "]),
        ("00\n01\n00\n", "--hex", &["list: lines 1 and 3: "]),
        ("a\nb\n\n\n", "", &["list: lines 3 and 4", "duplicate key \"\"", "--skip-empty"]),
        ("\na\n\n\n", "--set", &["list: lines 1 and 3", "duplicate key \"\"", "--skip-empty"]),
        ("id\n\na\nb\n\"a\"\n", "--csv --key id", &["list: records 1 and 3 after the header: "]),
        ("id,x\n,1\nb,1\n,1\n", "--csv --key id", &["list: records 1 and 3", "--skip-empty"]),
        ("\t5\n\t6\n", "--pairs", &["list (--skip-empty", "values 5 and 6"]),
    ] {
        shell.build(input, options).fails(&[parts, &["--on-duplicate"]].concat());
    }
    // Values that are no numbers of lines are not taken for them.
    for (input, options) in [
        ("a\t1\na\t2\n", "--pairs"),
        ("id,v\na,1\na,2\n", "--csv --key id --value v"),
        ("a\na\n", "--set"),
    ] {
        let message = shell.build(input, options).fails(&["list: duplicate key \"a\""]);
        assert!(!message.contains("lines") && !message.contains("records"), "{message}");
    }
    // Wherever the lines are, and in values of any width.
    let mut many: String = (0..70_000).map(|i| format!("{i}\n")).collect();
    many += "300\n";
    shell.build(&many, "").fails(&["list: lines 301 and 70001: "]);
    shell.build(&many, "--value-width 8").fails(&["list: lines 301 and 70001: "]);
}

/// Reading a line, a record or a header that never ends stays within the budget.
#[cfg(target_os = "linux")]
#[test]
fn lines_without_end_stay_within_the_budget() {
    let shell = Shell::new();
    let endless = |options: &str, input: &str, limit: u64| {
        // Three quarters of the budget, for a line of a quarter and all that a process takes at its start.
        let script = format!(
            "ulimit -v 786432 || exit 99; {input} | exec {} build - -o out --memory 1GiB {options}",
            common::command::PKHASH
        );
        let mut shell_command = std::process::Command::new("sh");
        shell_command.current_dir(shell.0.root()).args(["-c", &script]).stdin(Stdio::null());
        let message =
            run(&mut shell_command).fails(&["standard input:1: ", "more than", "--memory"]);
        assert!(message.contains(&limit.to_string()), "{message}");
    };
    let (quarter, sixth) = ((1 << 30) / 4, (1 << 30) / 6);
    endless("", "tr '\\0' a < /dev/zero", quarter);
    endless("--hex", "tr '\\0' a < /dev/zero", sixth);
    endless("--pairs", "tr '\\0' a < /dev/zero", quarter);
    endless("--csv --key k", "tr '\\0' a < /dev/zero", quarter);
    endless("--csv --key k", "tr '\\0' , < /dev/zero", quarter);
}

#[test]
fn lines_may_be_as_long_as_a_quarter_of_the_budget() {
    let shell = Shell::new();
    let budget = 8 << 20;
    for (form, most) in [("", budget / 4), ("--hex", (budget / 6) & !1)] {
        let options = format!("--memory 8MiB {form}");
        for len in [2, (1 << 16) - 2, 1 << 16, (1 << 16) + 2, (1 << 17) + 2, most - 2] {
            let long = "ab".repeat(len / 2);
            shell.build(format!("ff\n{long}\naa\n"), &options).expect(0);
            shell.0.write("list", format!("aa\n{long}\nff\n"));
            let got = shell.run(&format!("get out --keys list {form}")).expect(0);
            assert_eq!(got.text(), format!("aa\t2\n{long}\t1\nff\t0\n"), "{len}");
        }
        let long = "ab".repeat(most / 2 + 1);
        shell.build(format!("ff\n{long}\n"), &options).fails(&[
            "list:2: ",
            "more than",
            "--memory",
        ]);
    }
}
