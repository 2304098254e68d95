//! `build`: options, layouts, keys that collide.

use super::*;

#[test]
fn duplicates() {
    let shell = Shell::new();
    let input = "x\na\ny\na\nz\na\n";
    // The values are the numbers of the lines.
    let message = shell.build_fails(input, "", &["duplicate", "\"a\"", "1", "3", "--on-duplicate"]);
    assert_eq!(message.lines().count(), 1);
    shell.build_fails("00\n00", "--hex", &["duplicate", "0x00"]);
    let rest = [("x", 0), ("y", 2), ("z", 4)];
    for (policy, value) in [("first", 1), ("last", 5)] {
        let table = shell.build(input, &format!("--on-duplicate {policy}"));
        assert_eq!(table, pairs(rest.into_iter().chain([("a", value)])));
        let run = shell.run(&format!("build input -o t.pkh --json --on-duplicate {policy}"));
        assert_eq!(run.expect(0).json()["duplicates"], 2);
    }
    shell.build_fails(input, "--on-duplicate any", &["any"]);
}

#[test]
fn how_a_table_is_made() {
    let shell = Shell::new();
    let mut rng = Rng(1);
    let uuids: String =
        (0..1000).map(|_| format!("{:016x}{:016x}\n", rng.next(), rng.next())).collect();
    shell.write("uuids", &uuids);
    shell.write("mixed", (0..300).map(|i| format!("{i}\n")).collect::<String>());
    let report = |line: &str| {
        let built = shell.run(&format!("build {line} -o t.pkh --json")).expect(0).json();
        shell.run("verify t.pkh").expect(0);
        let stats = shell.run("stats t.pkh --json").expect(0).json();
        let fields =
            ["keys", "bytes", "layout", "partitions", "value_width", "filter_bits", "seed"];
        for field in fields {
            assert_eq!(built[field], stats[field], "{field}");
        }
        assert_eq!(stats["bytes"], shell.0.read("t.pkh").len());
        stats
    };
    for (line, layout) in [
        ("uuids --hex", "perfect"),
        ("uuids --hex --layout auto", "perfect"),
        ("uuids --hex --layout inline", "inline"),
        ("uuids --hex --layout term-order", "term-order"),
        ("uuids --hex --layout perfect", "perfect"),
        ("uuids --hex --layout perfect --packed", "perfect"),
        // 32 bytes.
        ("uuids", "perfect"),
        ("uuids --layout term-order", "term-order"),
        ("mixed", "perfect"),
        ("mixed --layout perfect", "perfect"),
        ("mixed --layout term-order", "term-order"),
    ] {
        assert_eq!(report(line)["layout"], layout, "{line}");
    }
    for (line, bits, rate) in [
        ("mixed", 0, None),
        ("mixed --layout perfect", 0, None),
        ("mixed --layout term-order", 10, Some(0.03)),
        ("uuids --hex --layout inline", 10, Some(0.03)),
        ("mixed --layout term-order --filter-bits none", 0, None),
        ("mixed --filter-bits 10", 10, Some(0.03)),
        ("mixed --filter-bits 20", 20, Some(0.01)),
        ("mixed --filter-bits 2", 2, Some(1.0)),
        ("mixed --filter-bits none", 0, None),
        ("mixed --filter-bits 0", 0, None),
    ] {
        let stats = report(line);
        assert_eq!(stats["filter_bits"], bits);
        let measured = stats["filter_false_positives"].as_f64();
        assert_eq!(measured.is_some(), rate.is_some(), "{line}");
        assert!(measured.unwrap_or(0.0) <= rate.unwrap_or(1.0), "{line}: {measured:?}");
        assert_eq!(stats["sections"]["filter"] == 0, bits == 0);
    }
    for (option, partitions) in [
        ("", 1),
        ("--partition-bits 0", 1),
        ("--partition-bits 10", 1024),
        ("--layout term-order --partition-bits 10", 1024),
        ("--partition-bits 11", 2048),
    ] {
        assert_eq!(report(&format!("mixed {option}"))["partitions"], partitions);
    }
    for (option, width) in [("", 2), ("--value-width 2", 2), ("--value-width 8", 8), ("--set", 0)] {
        let stats = report(&format!("mixed {option}"));
        assert_eq!(stats["value_width"], width);
        assert_eq!(stats["value_kind"], if width == 0 { "opaque" } else { "integer" });
    }
    assert_eq!(report("mixed --seed 42")["seed"], 42);
    // Threads change nothing.
    let files: BTreeSet<Vec<u8>> = [1, 2, 7]
        .map(|threads| {
            report(&format!("uuids --threads {threads} --partition-bits 5"));
            shell.0.read("t.pkh")
        })
        .into();
    assert_eq!(files.len(), 1);
    // Records of 3 to a line take more room than packed ones.
    shell.write("lined", (0..1000).map(|i| format!("{i:018}\n")).collect::<String>());
    let lens = ["lined", "lined --packed"].map(|line| report(line)["bytes"].as_u64().unwrap());
    assert!(lens[0] > lens[1], "{lens:?}");

    // Keys that are too long for a perfect table, of several lengths and of one.
    shell.write("long", format!("short\n{}\n", "k".repeat(40_000)));
    shell.write("longer", format!("{}\n", "k".repeat(65_537)));
    assert_eq!(report("long")["layout"], "term-order");
    assert_eq!(report("longer")["layout"], "term-order");
    shell.write("input", format!("{}\n", "k".repeat(40_000)));
    assert_eq!(report("input")["layout"], "perfect");
    for (line, part) in [
        ("mixed --layout inline", "key length"),
        ("uuids --layout inline", "key length"),
        ("mixed --layout perfectly", "perfectly"),
        ("mixed --layout inline --packed", "key length"),
        ("long --layout perfect", "key length"),
        ("longer --layout perfect", "key length"),
        ("longer --layout inline", "key length"),
        ("longer --partition-bits 11", "partition bits"),
        ("mixed --filter-bits 65", "65"),
        ("mixed --filter-bits many", "many"),
        ("mixed --filter-bits -1", "-1"),
        ("mixed --partition-bits 17", "partition bits"),
        ("mixed --layout term-order --partition-bits 11", "partition bits"),
        ("uuids --hex --layout inline --partition-bits 11", "partition bits"),
        ("mixed --value-width 0", "value width"),
        ("mixed --value-width 9", "value width"),
        ("mixed --value-width 1", "mixed:257"),
        ("mixed --set --value-width 4", "--set"),
        ("mixed --hex --text", "--text"),
        ("mixed --threads many", "many"),
        ("mixed --memory 1", "memory"),
        ("mixed --memory much", "much"),
        ("mixed --seed x", "random"),
        ("mixed --seed Random", "random"),
        ("mixed --seed -1", "-1"),
        ("mixed --seed 18446744073709551616", "18446744073709551616"),
        ("missing", "missing"),
        (".", "."),
    ] {
        let files = shell.0.names();
        shell.run(&format!("build {line} -o fails.pkh")).fails(&[part]);
        assert_eq!(shell.0.names(), files);
    }
}

/// Lists of one length and of many: tables of every layout give the same answers to every command.
#[test]
fn every_layout_answers_alike() {
    let shell = Shell::new();
    let fixed: Vec<String> = (0..700).map(|i| format!("{:09}", i * 977)).collect();
    let mut rng = Rng(6);
    let mixed: Vec<String> =
        (0..700).map(|i| format!("{i}-{}", "x".repeat(rng.below(90)))).collect();
    for (name, list) in [("fixed", &fixed), ("mixed", &mixed)] {
        shell.write(name, list.join("\n"));
        // Every third key is absent.
        let asked: Vec<String> = list
            .iter()
            .enumerate()
            .map(|(i, key)| if i % 3 == 0 { format!("{key}!") } else { key.clone() })
            .collect();
        shell.write("asked", asked.join("\n"));
        let found = |all: bool| {
            asked.iter().enumerate().fold(String::new(), |out, (i, key)| match i % 3 {
                0 if all => out + key + "\n",
                0 => out,
                _ => out + &format!("{key}\t{i}\n"),
            })
        };
        let mut pairs: Vec<String> =
            list.iter().enumerate().map(|(i, key)| format!("{key}\t{i}")).collect();
        pairs.sort();
        for options in [
            "",
            "--layout inline",
            "--layout term-order",
            "--layout perfect",
            "--layout perfect --packed",
            "--layout perfect --filter-bits 10",
            "--layout perfect --partition-bits 4",
            "--layout perfect --partition-bits 11 --threads 1",
            "--layout perfect --seed 99 --value-width 8",
        ] {
            if name == "mixed" && options.contains("inline") {
                continue;
            }
            shell.run(&format!("build {name} -o t.pkh {options}")).expect(0);
            let run = shell.run("verify t.pkh").expect(0);
            assert_eq!(run.text(), "t.pkh: ok, 700 keys\n");
            let run = shell.run("get t.pkh --keys asked").expect(1);
            assert!(run.text() == found(false), "{name} {options}");
            let run = shell.run("get t.pkh --keys asked --missing").expect(1);
            assert!(run.text() == found(true), "{name} {options}");
            let run = shell.args(&["get", "t.pkh", "--", &list[7], &list[0]]).expect(0);
            assert_eq!(run.text(), format!("{}\t7\n{}\t0\n", list[7], list[0]));
            let dump = shell.run("dump t.pkh").expect(0);
            let mut dumped: Vec<&str> = dump.text().lines().collect();
            dumped.sort_unstable();
            assert!(dumped == pairs, "{name} {options}");
            // The dump is read back to the same table, and so is the table itself.
            let line = format!("build - --pairs -o back.pkh {options}");
            shell.run_with_input(&line, &dump.out).expect(0);
            assert!(shell.0.read("back.pkh") == shell.0.read("t.pkh"), "{name} {options}");
            let seedless = options.replace("--seed 99", "");
            shell.run(&format!("merge t.pkh -o back.pkh {seedless}")).expect(0);
            assert!(shell.0.read("back.pkh") == shell.0.read("t.pkh"), "{name} {options}");
        }
    }
}

/// A seed that nobody knows before: another one each time, and told.
#[test]
fn random_seeds() {
    let shell = Shell::new();
    shell.write("input", "a\nb\nc\n");
    let seeds = ["a.pkh", "b.pkh"].map(|name| {
        let line = format!("build input -o {name} --seed random --json");
        let seed = shell.run(&line).expect(0).json()["seed"].as_u64().unwrap();
        assert_eq!(shell.table(name), pairs([("a", 0), ("b", 1), ("c", 2)]));
        assert_eq!(shell.run(&format!("stats {name} --json")).expect(0).json()["seed"], seed);
        assert_eq!(shell.run(&format!("get {name} -- b")).expect(0).text(), "b\t1\n");
        seed
    });
    assert_ne!(seeds[0], seeds[1]);
    // Such tables go together, with a note; the merged one has the seed of the first.
    shell.write("input", "d\n");
    shell.run("build input -o d.pkh --seed random").expect(0);
    let run = shell.run("merge a.pkh d.pkh -o m.pkh").expect(0);
    assert!(run.err.contains("note: d.pkh: its seed is"), "{}", run.err);
    let merged = shell.0.read("m.pkh");
    assert_eq!(shell.table("m.pkh"), pairs([("a", 0), ("b", 1), ("c", 2), ("d", 0)]));
    shell.run(&format!("build input -o d.pkh --seed {}", seeds[0])).expect(0);
    let run = shell.run("merge a.pkh d.pkh -o m.pkh").expect(0);
    assert!(!run.err.contains("seed"), "{}", run.err);
    assert!(shell.0.read("m.pkh") == merged);
}

#[test]
fn keys_made_to_have_one_hash() {
    let shell = Shell::new();
    let counts = |json: &serde_json::Value| {
        ["keys", "exceptions", "evictions"].map(|field| json[field].as_u64().unwrap())
    };
    shell.write("input", keys_of_one_hash(65));
    for options in ["", "--layout perfect", "--partition-bits 12"] {
        let built = shell.run(&format!("build input --hex -o t.pkh --json {options}")).expect(0);
        assert_eq!(counts(&built.json()), [65, 64, 0]);
        shell.run("verify t.pkh").expect(0);
        assert!(shell.table("t.pkh").values().copied().eq(0..65));
        let run = shell.run("get t.pkh --hex --keys input").expect(0);
        assert_eq!(run.text().lines().count(), 65);
        let merged = shell.run("merge t.pkh -o m.pkh --json").expect(0).json();
        assert_eq!(counts(&merged), [65, 64, 0]);
    }
    // One more: the message says what helps, and it does.
    let hints = ["input", "keys of one hash", "--seed random", "--layout term-order"];
    shell.build_fails(keys_of_one_hash(66), "--hex", &hints);
    for options in ["--seed random", "--seed 1", "--layout term-order"] {
        let built = shell.run(&format!("build input --hex -o u.pkh --json {options}")).expect(0);
        assert_eq!(built.json()["exceptions"], 0);
        assert!(shell.table("u.pkh").values().copied().eq(0..66));
    }
    // In a merge it is the layout that helps: the seed is that of the inputs.
    shell.write("input", keys_of_one_hash(66).lines().next_back().unwrap());
    shell.run("build input --hex -o last.pkh").expect(0);
    let line = "merge t.pkh last.pkh -o fails.pkh";
    shell.run(line).fails(&["keys of one hash", "--layout term-order"]);
    assert!(!shell.0.names().contains(&"fails.pkh".to_owned()));
    shell.run(&format!("{line} --layout term-order")).expect(0);
    assert_eq!(shell.table("fails.pkh").len(), 66);
}

/// Keys that no partition's seed can place: the message says what helps, and it does.
#[test]
fn keys_made_to_meet() {
    let shell = Shell::new();
    let hex = |key: Vec<u8>| {
        key.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")) + "\n"
    };
    let lists = [
        meet_with_seed_0(70).map(hex).collect::<String>(),
        meet_with_other_seeds(70).map(hex).collect::<String>(),
    ];
    let hints = ["no perfect hash function", "--seed random", "--layout term-order"];
    for (list, name) in lists.iter().zip(["a.pkh", "b.pkh"]) {
        shell.build(list, "--hex");
        fs::rename(shell.0.path("t.pkh"), shell.0.path(name)).unwrap();
    }
    shell.run("merge a.pkh b.pkh -o m.pkh").fails(&hints);
    // The keys are hashed anew.
    let run = shell.run("merge a.pkh b.pkh --offset --seed random -o m.pkh").expect(0);
    assert!(run.err.contains("hashed anew, and so of 1 more"), "{}", run.err);
    assert_eq!(shell.table("m.pkh").len(), 140);
    shell.build_fails(lists.concat(), "--hex", &hints);
    for options in ["--seed random", "--seed 1", "--layout term-order", "--partition-bits 1"] {
        let table = shell.build(lists.concat(), &format!("--hex {options}"));
        assert!(table.len() == 140);
    }
}

#[test]
fn a_table_that_outgrows_its_memory_is_the_same() {
    let shell = Shell::new();
    let mut rng = Rng(2);
    let list: String = (0..90_000)
        .map(|i| format!("{:016x}{:016x}{:016x}-{i}\n", rng.next(), rng.next(), rng.next()))
        .collect();
    shell.write("list", &list);
    for (make, options, input) in [
        ("--layout term-order", "--memory 8MiB", "list"),
        ("--layout perfect --partition-bits 11", "--memory 8MiB", "list"),
        ("", "--memory 8388608 --threads 1 --temp-dir .", "-"),
    ] {
        let built = shell.run(&format!("build list -o whole.pkh --json {make}")).expect(0).json();
        assert_eq!(built["spilled_bytes"], 0);
        let line = format!("build {input} -o t.pkh --json {make} {options}");
        let built = shell.run_with_input(&line, list.as_bytes()).expect(0).json();
        assert!(built["spilled_bytes"].as_u64() > Some(5 << 20), "{built}");
        assert!(shell.0.read("t.pkh") == shell.0.read("whole.pkh"));
        assert_eq!(shell.0.names(), ["list", "t.pkh", "whole.pkh"]);
    }
    let text = shell.run("build list -o t.pkh --memory 8MiB").expect(0);
    assert!(text.text().contains("spilled"));
    shell.run("build list -o u.pkh --memory 8MiB --temp-dir missing").fails(&["missing"]);
}

#[test]
fn the_input_is_not_replaced() {
    let shell = Shell::new();
    shell.write("keys", "a\nb\n");
    shell.run("build keys -o keys").fails(&["keys", "input"]);
    shell.run("build keys -o ./keys").fails(&["keys", "input"]);
    assert_eq!(shell.0.read("keys"), b"a\nb\n");
}

#[test]
fn the_folder_for_temporary_files_is_looked_at_first() {
    let shell = Shell::new();
    shell.write("file", "");
    shell.write("csv", "k\na\n");
    for folder in ["absent", "file", "absent/deeper"] {
        // Nothing of this would spill.
        for options in ["", "--set", "--ordered", "--memory 64MiB"] {
            let options = format!("{options} --temp-dir {folder}");
            shell.build_fails("a\n", &options, &["--temp-dir", folder]);
        }
        shell
            .run(&format!("build --csv --key k csv -o - --temp-dir {folder}"))
            .fails(&["--temp-dir", folder]);
    }
    fs::create_dir(shell.0.path("there")).unwrap();
    assert_eq!(shell.build("a\n", "--temp-dir there"), pairs([("a", 0)]));
    assert_eq!(fs::read_dir(shell.0.path("there")).unwrap().count(), 0);
}
