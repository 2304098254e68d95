//! `stats`, `verify`, `dump`.

use super::*;

#[test]
fn stats() {
    let shell = Shell::new();
    let list: String = (0..5000).map(|i| format!("key-{i:06}\n")).collect();
    shell.build(&list, "--layout inline --partition-bits 3");
    let json = shell.run("stats t.pkh --json").expect(0).json();
    let count = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}"));
    assert_eq!(json["table"], "t.pkh");
    assert_eq!(json["layout"], "inline");
    assert_eq!((count("keys"), count("partitions"), count("seed")), (5000, 8, 0));
    assert_eq!((count("min_key_len"), count("max_key_len")), (10, 10));
    assert_eq!((count("key_bytes"), count("max_value"), count("value_width")), (50_000, 4999, 2));
    assert_eq!(count("bytes"), shell.0.read("t.pkh").len() as u64);
    let sections: u64 =
        json["sections"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert!(sections < count("bytes") && sections + 8 * 256 > count("bytes"), "{json}");
    let load = json["load"].as_f64().unwrap();
    assert!((0.73..=0.75).contains(&load), "{load}");
    assert!((load - 5000.0 / count("slots") as f64).abs() < 1e-9);
    let per_key = json["bytes_per_key"].as_f64().unwrap();
    assert!((per_key - count("bytes") as f64 / 5000.0).abs() < 1e-9);
    let probes: u64 =
        json["probe_lengths"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(probes, 5000);
    assert!(count("longest_probe") >= 2);
    let rate = json["filter_false_positives"].as_f64().unwrap();
    assert!((0.005..=0.025).contains(&rate), "{rate}");
    assert!((0.2..=0.6).contains(&json["filter_fill"].as_f64().unwrap()));
    assert_eq!(json["kernel"], AnyKernel::detect().name());

    let run = shell.run("stats t.pkh").expect(0);
    let text = run.text();
    for part in [
        "t.pkh",
        "layout",
        "inline",
        "5,000",
        "10 bytes",
        "partitions",
        "a key",
        "filter",
        "control",
        "records",
        "load",
        "kernel",
        AnyKernel::detect().name(),
        "% of absent keys",
        "\u{2588}",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // Of other kinds of tables.
    shell.build("a\nbb\n", "--set --filter-bits none --layout term-order");
    let run = shell.run("stats t.pkh").expect(0);
    for part in ["a set", "term-order", "1\u{2026}2 bytes", "slot words", "none"] {
        assert!(run.text().contains(part), "no {part:?} in {}", run.text());
    }
    shell.run("stats missing").fails(&["missing"]);
    shell.run("stats input").fails(&["input"]);
}

/// Lines of 64 bytes that the hits of a perfect table without a filter read on average: of pilots, of
/// offsets if there are any, of records.
fn lines_per_lookup(path: &Path) -> f64 {
    let file = TableFile::open(path).unwrap();
    let (table, unit) = (file.table(), usize::from(file.footer().unit()));
    let mut lines = 0;
    for record in table {
        let (key, value) = record.unwrap();
        let from = value.as_bytes().as_ptr() as usize - table.as_bytes().as_ptr() as usize;
        let len = value.as_bytes().len() + key.len();
        let end = from + if unit > 1 { (len + 1).next_multiple_of(unit) } else { len };
        lines += 1 + usize::from(unit > 0) + (end.div_ceil(64) - from / 64);
    }
    lines as f64 / table.len() as f64
}

#[test]
fn stats_of_perfect_tables() {
    let shell = Shell::new();
    let fixed: String = (0..5000).map(|i| format!("{i:018}\n")).collect();
    let mixed: String = (0..2000).map(|i| format!("{i}{}\n", "x".repeat(i % 150))).collect();
    let long = format!("{mixed}{}\n", "k".repeat(5000));
    for (list, options, keys, per_line, unit) in [
        (&fixed, "", 5000, 3, 0),
        (&fixed, "--packed", 5000, 0, 0),
        (&fixed, "--partition-bits 3", 5000, 3, 0),
        (&mixed, "", 2000, 0, 1),
        (&mixed, "--partition-bits 5", 2000, 0, 1),
        (&long, "", 2001, 0, 4),
    ] {
        shell.build(list, options);
        let json = shell.run("stats t.pkh --json").expect(0).json();
        let number =
            |name: &str| json[name].as_f64().unwrap_or_else(|| panic!("no {name} in {json}"));
        assert_eq!((&json["layout"], &json["keys"]), (&"perfect".into(), &keys.into()));
        assert_eq!(
            (number("records_per_line"), number("offset_unit")),
            (per_line.into(), unit.into())
        );
        assert_eq!((number("exceptions"), number("partition_seeds")), (0.0, 0.0));
        let file = TableFile::open(shell.0.path("t.pkh")).unwrap();
        let partitions =
            (0..file.footer().partitions()).map(|p| file.table().partition(p).unwrap());
        let buckets: u32 = partitions.map(|partition| partition.buckets).sum();
        assert_eq!(number("buckets"), f64::from(buckets));
        let bits = 8.0 * f64::from(buckets) / f64::from(keys);
        assert!((number("pilot_bits_per_key") - bits).abs() < 1e-6, "{options}: {bits}, {json}");
        let lines = lines_per_lookup(&shell.0.path("t.pkh"));
        assert!((number("lines_per_lookup") - lines).abs() < 1e-6, "{options}: {lines}, {json}");
        let load = number("load");
        assert!((0.95..=0.995).contains(&load), "{load}");
        let sections = &json["sections"];
        assert!(sections["pilots"].as_u64().unwrap() >= u64::from(buckets), "{sections}");
        assert_eq!(sections["offset_lines"].as_u64() > Some(0), unit > 0, "{sections}");
        let all: u64 =
            sections.as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
        let footer = file.footer().footer_len() as u64;
        assert_eq!(64 + all + footer, file.footer().file_len(), "{sections}");
        let run = shell.run("stats t.pkh").expect(0);
        for part in ["perfect", "pilots", "records", "load", "filter", "none"] {
            assert!(run.text().contains(part), "no {part:?} in {}", run.text());
        }
    }
    // Of keys that were made to meet, and to have one hash.
    let hex = |key: Vec<u8>| {
        key.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")) + "\n"
    };
    for (list, options, exceptions, seeds) in [
        (meet_with_seed_0(70).map(hex).collect::<String>(), "", 0, 1),
        (meet_with_seed_0(70).map(hex).collect(), "--partition-bits 2", 0, 1),
        (keys_of_one_hash(10), "", 9, 0),
    ] {
        shell.build(list, &format!("--hex {options}"));
        let json = shell.run("stats t.pkh --json").expect(0).json();
        assert_eq!(
            (&json["exceptions"], &json["partition_seeds"]),
            (&exceptions.into(), &seeds.into())
        );
    }
    // Of no keys: numbers all the same.
    shell.build("", "");
    let json = shell.run("stats t.pkh --json").expect(0).json();
    for name in
        ["buckets", "exceptions", "partition_seeds", "pilot_bits_per_key", "lines_per_lookup"]
    {
        assert_eq!(json[name].as_f64(), Some(0.0), "{name}: {json}");
    }
}

#[test]
fn verify() {
    let shell = Shell::new();
    shell.build("a\nb\nc\n", "");
    let good = shell.0.read("t.pkh");
    let mut bad = good.clone();
    bad[70] ^= 1;
    shell.write("bad.pkh", bad);
    shell.write("cut.pkh", &good[..good.len() - 1]);
    shell.write("empty.pkh", "");
    assert_eq!(shell.run("verify t.pkh t.pkh").expect(0).text(), "t.pkh: ok, 3 keys\n".repeat(2));
    for name in ["bad.pkh", "cut.pkh", "empty.pkh", "missing.pkh", "input", "."] {
        shell.run(&format!("verify {name}")).fails(&[name]);
    }
    // All are looked at, whatever is wrong with some.
    let line = "verify cut.pkh t.pkh bad.pkh missing.pkh";
    let run = shell.run(line);
    assert_eq!(run.text(), "t.pkh: ok, 3 keys\n");
    run.fails(&["cut.pkh", "bad.pkh", "checksum", "missing.pkh", "3 of 4"]);
    let run = shell.run(&format!("{line} --json")).expect(2);
    let lines = run.json_lines();
    let ok: Vec<_> = lines.iter().map(|line| line["ok"].as_bool().unwrap()).collect();
    assert_eq!(ok, [false, true, false, false]);
    assert_eq!(lines[1]["keys"], 3);
    assert!(lines[2]["error"].as_str().unwrap().contains("checksum"));
    assert_eq!(lines[3]["table"], "missing.pkh");
}

/// Every command that reads tables says which one is none, and why.
#[test]
fn damaged_tables_are_named_by_every_command() {
    let shell = Shell::new();
    shell.build((0..200).map(|i| format!("{i}\n")).collect::<String>(), "");
    let good = shell.0.read("t.pkh");
    shell.write("cut.pkh", &good[..good.len() / 2]);
    shell.write("text.pkh", "B000000001\n".repeat(100));
    shell.write("empty.pkh", "");
    // What leads to the records is gone, slot words or offset lines: found by whoever reads them.
    for layout in ["term-order", "perfect"] {
        shell.run(&format!("build input -o {layout}.pkh --layout {layout}")).expect(0);
        let path = shell.0.path(&format!("{layout}.pkh"));
        let (at, len) = {
            let file = TableFile::open(&path).unwrap();
            file.footer().sections(&file.table().partition(0).unwrap()).nth(2).unwrap()
        };
        let mut wild = fs::read(&path).unwrap();
        wild[at as usize..(at + len) as usize].fill(0xff);
        shell.write(&format!("{layout}.pkh"), wild);
    }
    let files = shell.0.names();
    for name in ["cut.pkh", "text.pkh", "empty.pkh", "missing.pkh"] {
        for line in ["get _ -- a", "dump _", "stats _", "verify _", "merge t.pkh _ -o m.pkh"] {
            shell.run(&line.replace('_', name)).fails(&[name]);
        }
    }
    for name in ["term-order.pkh", "perfect.pkh"] {
        for line in ["dump _", "verify _", "merge _ -o m.pkh"] {
            shell.run(&line.replace('_', name)).fails(&[name]);
        }
    }
    assert_eq!(shell.0.names(), files);
}

/// Keys of every kind that could be mistaken for something else.
fn awkward_keys() -> Vec<Vec<u8>> {
    let mut rng = Rng(3);
    let mut keys: BTreeSet<Vec<u8>> = [
        &b""[..],
        b" ",
        b"\t",
        b"a\tb",
        b"a\t1",
        b"\n",
        b"a\nb",
        b"\r",
        b"a\r",
        b"\r\n",
        b"\0",
        b"a\0b",
        b"\\",
        b"\\x",
        b"\\x41",
        b"\\x4",
        b"\\X41",
        b"\\\\x41",
        b"\x1b[31m",
        b"\x7f",
        "gr\u{f6}\u{df}e".as_bytes(),
        "\u{85}".as_bytes(),
        "\u{2028}".as_bytes(),
        "\u{feff}bom".as_bytes(),
        b"\xff",
        b"\xc3",
        b"a\xffb",
        b"\"quoted\"",
        b"a,b",
        b"-",
        b"0",
        b"deadbeef",
    ]
    .iter()
    .map(|key| key.to_vec())
    .collect();
    for _ in 0..200 {
        let len = rng.below(24);
        keys.insert(rng.bytes(len));
        let alphabet = b"\\x0a\t\n\r\0\xff ";
        keys.insert((0..rng.below(8)).map(|_| alphabet[rng.below(alphabet.len())]).collect());
    }
    keys.into_iter().collect()
}

/// What `dump` and `get` print, `build --pairs` reads back to the very same file.
#[test]
fn output_is_read_back() {
    let shell = Shell::new();
    let all = awkward_keys();
    // Raw keys must not hold what ends their lines.
    let without = |byte: u8| -> Vec<Vec<u8>> {
        all.iter().filter(|key| !key.contains(&byte)).cloned().collect()
    };
    for (form, keys) in [
        ("", &all),
        ("--hex", &all),
        ("--null", &all),
        ("--null --hex", &all),
        ("--text", &without(b'\n')),
        ("--null --text", &without(0)),
    ] {
        for set in [false, true] {
            let (set, value) = match set {
                true => ("--set", ValueChoice::Fixed(ValueFormat::opaque(0).unwrap())),
                false => ("", ValueChoice::Auto),
            };
            let model: Model = keys
                .iter()
                .enumerate()
                .map(|(i, key)| (key.clone(), if set.is_empty() { int(i as u64) } else { vec![] }))
                .collect();
            let table = TableOptions::default().value(value);
            let options = WriterOptions::default().table(table);
            publish(&shell.0.path("t.pkh"), options, slices(&model)).unwrap();

            let dumped = shell.run(&format!("dump t.pkh {form}")).expect(0).out;
            let line = format!("build - --pairs -o back.pkh {form} {set}");
            shell.run_with_input(&line, &dumped).expect(0);
            assert!(shell.0.read("back.pkh") == shell.0.read("t.pkh"), "dump {form} {set}");

            // A list of keys in that form. A raw line loses a carriage return at its end: that is
            // what the end of a line is on some systems.
            let mut list = Vec::new();
            let mut asked = Model::new();
            for (key, value) in &model {
                match form {
                    "--hex" | "--null --hex" => {
                        let digits = key.iter().fold(String::new(), |mut all, byte| {
                            write!(all, "{byte:02x}").unwrap();
                            all
                        });
                        list.extend_from_slice(digits.as_bytes());
                    }
                    "--null" | "--null --text" if key.contains(&0) => continue,
                    "" | "--text" if key.contains(&b'\n') || key.ends_with(b"\r") => continue,
                    _ => list.extend_from_slice(key),
                }
                list.push(if form.contains("--null") { 0 } else { b'\n' });
                asked.insert(key.clone(), value.clone());
            }
            let got = shell.run_with_input(&format!("get t.pkh --keys - {form}"), &list).expect(0);
            shell.run_with_input(&line, &got.out).expect(0);
            let (_, bytes) =
                build_bytes(WriterOptions::default().table(table), slices(&asked)).unwrap();
            assert!(shell.0.read("back.pkh") == bytes, "get {form} {set}");
        }
    }
    // JSON has one line for each, whatever the key; all of it can be told apart.
    let model: Model =
        all.iter().enumerate().map(|(i, key)| (key.clone(), int(i as u64))).collect();
    publish(&shell.0.path("t.pkh"), WriterOptions::default(), slices(&model)).unwrap();
    for form in ["", "--hex", "--text", "--null"] {
        let lines = shell.run(&format!("dump t.pkh --json {form}")).expect(0).json_lines();
        let keys: BTreeSet<&str> = lines.iter().map(|line| line["key"].as_str().unwrap()).collect();
        assert_eq!(keys.len(), all.len(), "{form}");
    }
}
