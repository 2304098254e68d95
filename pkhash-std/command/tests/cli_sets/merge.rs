//! `merge` of tables with deleted docs, and its doc maps.

use super::*;

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
