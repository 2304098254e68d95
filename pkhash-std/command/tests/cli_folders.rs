//! Folders of tables, by the `pkhash` command and by the library: their order, options that name their tables,
//! and tables that are replaced while a folder is read. And damage, which nobody may take for good who reads a
//! whole table.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use common::command::{Run, command, run, run_with_input};
use common::{Folder, Rng};
use pkhash_std::{
    Error, OpenOptions, SegmentSet, TableFile, TableOptions, ValueChoice, ValueFormat,
    WriterOptions, build_slice, open_tables, versioned_value, visit_tables,
};

/// A folder in which commands run, and in it a folder `seg`.
struct Shell(Folder);

impl Shell {
    fn new() -> Self {
        let shell = Self(Folder::new());
        fs::create_dir(shell.0.path("seg")).unwrap();
        shell
    }

    /// Runs a command line without quotes: parts are separated by spaces.
    fn run(&self, line: &str) -> Run {
        run(&mut command(self.0.root(), line.split_whitespace()))
    }

    #[track_caller]
    fn text(&self, line: &str) -> String {
        self.run(line).expect(0).text().to_owned()
    }

    /// Builds a table of these keys, whose values are their numbers.
    fn table(&self, name: &str, keys: &[&str]) {
        let value = |i: usize| (i as u32).to_le_bytes();
        build_slice(keys, value, self.0.path(name), &WriterOptions::default()).unwrap();
    }

    fn modified(&self, name: &str, seconds: u64) {
        let file = File::options().append(true).open(self.0.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
}

/// The order is that of the names for every command and for the library, whatever the times are.
#[test]
fn times_do_not_matter() {
    let shell = Shell::new();
    let names = ["seg-10", "seg-9", "seg-2", "seg-1", "base"];
    for name in names {
        shell.table(&format!("seg/{name}.pkh"), &["x", name]);
    }
    let paths = names.map(|name| format!("seg/{name}.pkh"));
    for turn in 0..names.len() as u64 {
        for (i, path) in paths.iter().enumerate() {
            shell.modified(path, 1_000_000_000 + (i as u64 + turn) % names.len() as u64);
        }
        assert_eq!(shell.text("get seg -- x"), "x\tseg/seg-10.pkh\t0\n");
        assert_eq!(
            shell.text("get seg --deleted-docs seg-10.pkh=- --deleted-docs base.pkh=- -- base"),
            "base\tseg/base.pkh\t1\n"
        );
        let found = shell.text("in-set seg -- x");
        assert_eq!(found, paths.each_ref().map(|path| format!("{path}\t0\n")).concat());
        for command in ["verify", "stats"] {
            let lines = shell.run(&format!("{command} seg --json")).expect(0).json_lines();
            let found: Vec<_> = lines.iter().map(|line| line["table"].as_str().unwrap()).collect();
            assert_eq!(found, paths, "{command}");
        }
        let set = SegmentSet::open_folder(shell.0.path("seg"), OpenOptions::new()).unwrap();
        let found = set.segments().iter().map(|segment| segment.table().path().unwrap().to_owned());
        assert!(found.eq(paths.iter().map(|path| shell.0.path(path))));
        shell.text("merge seg --on-duplicate first --offset -o merged.pkh");
        let named = format!("merge {} --on-duplicate first --offset -o named.pkh", paths.join(" "));
        shell.text(&named);
        assert!(shell.0.read("merged.pkh") == shell.0.read("named.pkh"));
    }
}

/// Where names tell no order, nothing is guessed; what needs none goes on.
#[test]
fn names_that_tell_no_order() {
    let shell = Shell::new();
    for name in ["0a10", "0a9f"] {
        shell.table(&format!("seg/{name}.pkh"), &["x", name]);
    }
    // Of one length, as text.
    assert_eq!(shell.text("get seg -- x"), "x\tseg/0a9f.pkh\t0\n");
    shell.table("seg/base.pkh", &["x"]);
    assert_eq!(shell.text("get seg -- x"), "x\tseg/base.pkh\t0\n");
    shell.table("seg/longer.pkh", &["x"]);
    for line in ["get seg -- x", "in-set seg -- x", "merge seg --offset -o fails.pkh"] {
        shell.run(line).fails(&["seg: ", "0a10.pkh", "0a9f.pkh", "newer"]);
    }
    let error = SegmentSet::open_folder(shell.0.path("seg"), OpenOptions::new()).unwrap_err();
    assert!(matches!(error, Error::FolderOrder { .. }), "{error}");
    for command in ["verify", "stats"] {
        let lines = shell.run(&format!("{command} seg --json")).expect(0).json_lines();
        assert_eq!(lines.len(), 4, "{command}");
    }
    let names = "seg/longer.pkh seg/0a9f.pkh seg/0a10.pkh";
    assert_eq!(shell.text(&format!("get {names} -- x")), "x\tseg/longer.pkh\t0\n");
}

/// `NAME=FILE`, for every option and command that takes a file for each table.
#[test]
fn files_are_given_by_name() {
    let shell = Shell::new();
    shell.table("seg/1.pkh", &["old-0", "old-1", "x"]);
    shell.table("seg/2.pkh", &["new-0", "new-1", "x"]);
    shell.table("seg/a=b.pkh", &["odd", "x"]);
    shell.table("t.pkh", &["t-0", "x"]);
    fs::create_dir(shell.0.path("other")).unwrap();
    shell.table("other/2.pkh", &["other-0", "x"]);
    for (name, docs) in [("zero", "0\n"), ("one", "1\n"), ("c=d", "1\n")] {
        shell.0.write(name, docs);
    }
    let keys = ["old-0", "old-1", "new-0", "new-1", "odd"];
    for (tables, options, gone) in [
        ("seg", "--deleted-docs 2.pkh=zero", &["new-0"][..]),
        ("seg", "--deleted-docs seg/2.pkh=zero", &["new-0"]),
        ("seg", "--deleted-docs 1.pkh=one --deleted-docs 2.pkh=zero", &["old-1", "new-0"]),
        ("seg", "--deleted-docs 2.pkh=zero --deleted-docs 1.pkh=one", &["old-1", "new-0"]),
        ("seg", "--deleted-docs 2.pkh=- --deleted-docs 1.pkh=c=d", &["old-1"]),
        ("seg", "--deleted-docs a=b.pkh=zero", &["odd"]),
        ("seg t.pkh", "--deleted-docs a=b.pkh=zero --deleted-docs t.pkh=zero", &["odd"]),
        ("seg", "--live-docs 1.pkh=one", &["old-0"]),
        ("seg/2.pkh seg/1.pkh seg/a=b.pkh", "--deleted-docs 1.pkh=one", &["old-1"]),
        ("seg/2.pkh seg/1.pkh seg/a=b.pkh", "--deleted-docs seg/1.pkh=one", &["old-1"]),
        // By place, as ever.
        (
            "seg/2.pkh seg/1.pkh seg/a=b.pkh",
            "--deleted-docs zero --deleted-docs c=d --deleted-docs -",
            &["old-1", "new-0"],
        ),
    ] {
        let left: Vec<_> = keys.into_iter().filter(|key| !gone.contains(key)).collect();
        let found = shell.run(&format!("get {tables} {options} -- {}", keys.join(" "))).expect(1);
        let first = |line: &str| line.split('\t').next().unwrap().to_owned();
        assert_eq!(found.text().lines().map(first).collect::<Vec<_>>(), left, "{options}");
        let found = shell.text(&format!("in-set {tables} {options} -- {}", keys.join(" ")));
        assert_eq!(found.lines().count(), left.len(), "{options}");
        let merge = format!("merge {tables} {options} -o m.pkh --on-duplicate first --offset");
        shell.run(&merge).expect(0);
        let dump = shell.text("dump m.pkh");
        let dumped: BTreeSet<String> = dump.lines().map(first).collect();
        for key in keys {
            assert_eq!(dumped.contains(key), left.contains(&key), "{options} {key}");
        }
    }
    // What would be given by place, or names no table.
    for (tables, given, parts) in [
        ("seg", "zero", ["zero: expected OPTION NAME=FILE", "folder", "seg/a=b.pkh"]),
        ("seg", "zero OPTION one OPTION -", ["zero: expected", "OPTION NAME=FILE", "folder"]),
        ("t.pkh seg", "-", ["-: expected", "NAME=FILE", "t.pkh, seg/a=b.pkh"]),
        ("seg", "3.pkh=zero", ["3.pkh=zero: expected", "NAME=FILE", "seg/2.pkh"]),
        ("seg", "other/2.pkh=zero", ["other/2.pkh=zero", "NAME=FILE", "seg/2.pkh"]),
        ("seg", "2.pkh=", ["2.pkh=: expected", "NAME=FILE", "seg/2.pkh"]),
        ("seg other", "2.pkh=zero", ["2.pkh names seg/2.pkh", "other/2.pkh", "use a path"]),
        ("seg", "2.pkh=zero OPTION seg/2.pkh=one", ["OPTION", "seg/2.pkh", "named twice"]),
        ("seg/1.pkh t.pkh", "1.pkh=zero OPTION -", ["-: expected", "others", "name"]),
        ("seg/1.pkh t.pkh", "zero", ["2 tables", "seg/1.pkh, t.pkh", "found 1"]),
    ] {
        for option in ["--deleted-docs", "--live-docs", "--doc-map", "--write-doc-map"] {
            let given = given.replace("OPTION", option);
            let parts = parts.map(|part| part.replace("OPTION", option));
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let merge = format!("merge {tables} {option} {given} -o m.pkh --on-duplicate first");
            shell.run(&merge).fails(&parts);
            if !option.ends_with("map") {
                shell.run(&format!("get {tables} {option} {given} -- x")).fails(&parts);
                shell.run(&format!("in-set {tables} {option} {given} -- x")).fails(&parts);
            }
        }
    }
    // A path tells tables of one name apart.
    let found =
        shell.run("get seg other --deleted-docs other/2.pkh=zero -- new-0 other-0").expect(1);
    assert_eq!(found.text(), "new-0\tseg/2.pkh\t0\n");
}

#[test]
fn doc_maps_are_given_by_name() {
    let shell = Shell::new();
    shell.table("seg/1.pkh", &["a", "b"]);
    shell.table("seg/2.pkh", &["c", "d"]);
    shell.0.write("deleted", "0\n");
    let run = shell.run(
        "merge seg --offset --deleted-docs 2.pkh=deleted --write-doc-map 1.pkh=old.map -o m.pkh",
    );
    assert!(run.expect(0).text().contains(", 1 keys of deleted docs left out"));
    assert_eq!(shell.0.read("old.map"), b"1\n2\n");
    assert_eq!(shell.text("get m.pkh -- a b d"), "a\t1\nb\t2\nd\t0\n");
    shell.0.write("new.map", "-\n0\n");
    // Every table has one, or is said to keep its doc IDs.
    shell.run("merge seg --doc-map 1.pkh=old.map -o m.pkh").fails(&["--doc-map", "seg/2.pkh"]);
    for maps in [
        "--doc-map 1.pkh=old.map --doc-map 2.pkh=new.map",
        "--doc-map 2.pkh=new.map --doc-map seg/1.pkh=old.map",
    ] {
        shell.run(&format!("merge seg {maps} -o m.pkh")).expect(0);
        assert_eq!(shell.text("get m.pkh -- a b d"), "a\t1\nb\t2\nd\t0\n");
    }
    shell.run("merge seg --doc-map 1.pkh=old.map --doc-map 2.pkh=- -o m.pkh").expect(0);
    assert_eq!(shell.text("get m.pkh -- a b c d"), "a\t1\nb\t2\nc\t0\nd\t1\n");
    // A map may not replace a file of the merge, by whatever name.
    for map in ["seg/1.pkh", "./m.pkh", "seg/../seg/2.pkh"] {
        let line = format!("merge seg --offset --write-doc-map 1.pkh={map} -o m.pkh");
        shell.run(&line).fails(&["--write-doc-map", "another file of this merge"]);
    }
    let maps = "--write-doc-map 1.pkh=same --write-doc-map 2.pkh=same";
    shell.run(&format!("merge seg --offset {maps} -o m.pkh")).fails(&["another file"]);
}

/// Duplicates and keys of deleted docs are counted apart; keys that one doc has all count.
#[test]
fn merges_count_what_they_leave_out() {
    let shell = Shell::new();
    shell.0.write("pairs", "a\t0\nalias\t0\nb\t1\nx\t2\n");
    shell.run("build --pairs pairs -o t.pkh").expect(0);
    shell.table("u.pkh", &["y", "x"]);
    shell.0.write("deleted", "0\n");
    let deleted = "--deleted-docs deleted --deleted-docs -";
    let line = format!("merge t.pkh u.pkh {deleted} --on-duplicate first -o m.pkh");
    let text = shell.text(&line);
    assert!(text.contains(", 1 duplicates dropped, 2 keys of deleted docs left out"), "{text}");
    let json = shell.run(&format!("{line} --json")).expect(0).json();
    assert_eq!((&json["duplicates"], &json["deleted_keys"]), (&1.into(), &2.into()));
    let text = shell.text("merge t.pkh u.pkh --offset --on-duplicate first -o m.pkh");
    assert!(!text.contains("deleted"), "{text}");
    shell.0.write("map", "-\n-\n0\n");
    let text = shell.text("merge t.pkh --doc-map map -o m.pkh");
    assert!(text.starts_with("m.pkh: 1 keys") && text.contains(", 3 keys of deleted"), "{text}");
    // A build has no docs to delete.
    let json = shell.run("build --pairs pairs -o t.pkh --json").expect(0).json();
    assert!(json["deleted_keys"].is_null());
}

#[test]
fn messages_name_a_few_of_many_tables() {
    let shell = Shell::new();
    for i in 0..300 {
        shell.table(&format!("seg/{i}.pkh"), &["x"]);
    }
    let paths: String = (0..300).map(|i| format!("seg/{i}.pkh ")).collect();
    for line in [
        format!("get {paths} --deleted-docs - -- x"),
        "get seg --deleted-docs - -- x".to_owned(),
        "get seg --live-docs 300.pkh=docs -- x".to_owned(),
        format!("merge {paths} --doc-map - -o m.pkh"),
        format!("merge {paths} --write-doc-map - -o m.pkh"),
    ] {
        let message = shell.run(&line).fails(&["and 292 more"]);
        assert!(message.len() < 400, "{message}");
    }
}

/// Replaces `K`'s table in the folder, as `cp`, `mv` and `rm` do, until `read` has returned: under a new name
/// each time, the new one before the old one goes, or under its own. `K` is in a table at every moment.
fn while_replaced(folder: &Path, own_name: bool, pause: Duration, read: impl FnOnce()) {
    /// Also when `read` panics.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let replaced = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = folder.join("z0.pkh");
            while !stop.load(Ordering::Relaxed) {
                let number = replaced.fetch_add(1, Ordering::Relaxed) + 1;
                let next =
                    if own_name { last.clone() } else { folder.join(format!("z{number}.pkh")) };
                let hidden = folder.join(".t");
                fs::copy(&last, &hidden).unwrap();
                thread::sleep(pause);
                fs::rename(&hidden, &next).unwrap();
                thread::sleep(pause);
                if !own_name {
                    fs::remove_file(&last).unwrap();
                    thread::sleep(pause);
                }
                last = next;
            }
        });
        let _stop = Stop(&stop);
        read();
    });
    assert!(replaced.into_inner() > 2, "the folder did not change");
}

/// Every command and the library, with few tables and with so many that the system lists them in steps.
#[test]
fn tables_that_are_replaced_while_a_folder_is_read() {
    for (others, rounds) in [(2, 12), (1100, 4)] {
        let shell = Shell::new();
        shell.table("seg/0.pkh", &["other"]);
        for i in 1..others {
            fs::copy(shell.0.path("seg/0.pkh"), shell.0.path(&format!("seg/{i}.pkh"))).unwrap();
        }
        shell.table("seg/z0.pkh", &["K"]);
        let folder = shell.0.path("seg");
        for own_name in [false, true] {
            let z = if own_name { "seg/z0.pkh" } else { "seg/z" };
            while_replaced(&folder, own_name, Duration::from_millis(1), || {
                for round in 0..rounds {
                    let heap = if round % 2 == 0 { "--open heap" } else { "" };
                    let text = shell.text(&format!("get seg {heap} -- K"));
                    assert!(text.starts_with(&format!("K\t{z}")), "{text}");
                    let text = shell.text(&format!("in-set seg {heap} -- K"));
                    assert!(text.starts_with(z), "{text}");
                    let set = SegmentSet::open_folder(&folder, OpenOptions::new()).unwrap();
                    assert!(set.get(b"K").unwrap().is_some());
                    // At one moment there is the old one, or both.
                    let most = others + 1 + usize::from(!own_name);
                    assert!((others + 1..=most).contains(&set.len()), "{}", set.len());
                }
                for command in ["verify", "stats"] {
                    let text = shell.text(&format!("{command} seg"));
                    assert!(text.contains(&format!("\n{z}")) || text.starts_with(z), "{command}");
                }
                shell.run("merge seg --on-duplicate first -o m.pkh").expect(0);
                assert_eq!(shell.text("get m.pkh -- K"), "K\t0\n");
            });
            // The next loop begins with the same name.
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                if name.starts_with('z') {
                    fs::rename(&path, folder.join("z0.pkh")).unwrap();
                }
            }
        }
    }
}

/// A table that goes from one folder to another is in one of them at every moment.
#[test]
fn tables_that_move_between_folders() {
    let shell = Shell::new();
    fs::create_dir(shell.0.path("cold")).unwrap();
    for folder in ["seg", "cold"] {
        shell.table(&format!("{folder}/0.pkh"), &["other"]);
    }
    shell.table("seg/1.pkh", &["K"]);
    let (hot, cold) = (shell.0.path("seg"), shell.0.path("cold"));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut from, mut to) = (hot.join("1.pkh"), cold.join("1.pkh"));
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&from, &to).unwrap();
                (from, to) = (to, from);
                thread::sleep(Duration::from_micros(300));
            }
        });
        let wrong = (0..600).find_map(|_| {
            let open = |path: &Path| TableFile::open(path);
            let tables = match open_tables([&cold, &hot], open) {
                Ok(tables) => tables,
                Err(error) => return Some(error.to_string()),
            };
            let found = tables.iter().any(|table| table.get(b"K").unwrap().is_some());
            (!found || tables.len() != 3).then(|| format!("{tables:?}"))
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
}

/// A folder that is another one at each look is an error, and not an endless search; what is wrong with a table
/// that stays is an error at once.
#[test]
fn folders_that_never_stay() {
    let shell = Shell::new();
    shell.table("seg/0.pkh", &["x"]);
    let folder = shell.0.path("seg");
    let mut calls = 0;
    let error = open_tables([&folder], |path| {
        calls += 1;
        fs::rename(path, path.with_file_name(format!("{calls}.pkh"))).unwrap();
        Ok::<_, Error>(())
    });
    assert!(matches!(&error, Err(Error::FolderChanged { path, .. }) if *path == folder));
    assert!(error.unwrap_err().to_string().contains("changed each of the 200 times"));
    assert!(calls <= 200, "{calls}");

    shell.0.write("seg/bad.pkh", "text");
    let error = SegmentSet::open_folder(&folder, OpenOptions::new()).unwrap_err();
    assert!(matches!(&error, Error::Table { path: Some(path), .. } if path.ends_with("bad.pkh")));
    let mut calls = 0;
    let error = visit_tables([&folder], |_| {
        calls += 1;
        Err::<(), _>(Error::Cancelled)
    });
    assert!(matches!((error, calls), (Err(Error::Cancelled), 1)));
    fs::remove_file(folder.join("bad.pkh")).unwrap();

    // An error of a table that goes is none.
    shell.0.write("seg/z.pkh", "text");
    let opened = open_tables([&folder], |path| {
        let opened = TableFile::open(path);
        if opened.is_err() {
            fs::remove_file(path).unwrap();
        }
        opened
    });
    assert_eq!(opened.unwrap().len(), 1);

    let empty = Folder::new();
    let error = SegmentSet::open_folder(empty.root(), OpenOptions::new()).unwrap_err();
    assert!(matches!(error, Error::NoTables { .. }), "{error}");
    let error = SegmentSet::open_folder(empty.path("absent"), OpenOptions::new()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

/// Files that are no tables come and go all the time, as those of a build do.
#[test]
fn other_files_of_a_folder_may_change() {
    let shell = Shell::new();
    shell.table("seg/0.pkh", &["x"]);
    let folder = shell.0.path("seg");
    let mut calls = 0;
    let mut touch = |path: &Path| {
        calls += 1;
        File::create(path.with_file_name(format!(".{calls}.tmp"))).unwrap();
        fs::write(path.with_file_name("notes"), calls.to_string()).unwrap();
        TableFile::open(path)
    };
    assert_eq!(open_tables([&folder], &mut touch).unwrap().len(), 1);
    // The table that stays is opened once.
    assert_eq!(calls, 1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                File::create(folder.join(".t")).unwrap();
                fs::remove_file(folder.join(".t")).unwrap();
            }
        });
        let opened: Result<Vec<_>, _> = (0..50)
            .map(|_| SegmentSet::open_folder(&folder, OpenOptions::new()).map(|set| set.len()))
            .collect();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(opened.unwrap(), [1; 50]);
    });
}

/// A table that is copied to its place is there when all of it is.
#[test]
fn tables_that_are_still_being_copied() {
    let shell = Shell::new();
    let keys: Vec<String> = (0..500).map(|i| format!("key-{i}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    shell.table("whole.pkh", &keys);
    let bytes = shell.0.read("whole.pkh");
    let path = shell.0.path("seg/0.pkh");
    File::create(&path).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write;
            let mut file = File::options().append(true).open(&path).unwrap();
            for piece in bytes.chunks(bytes.len() / 20) {
                thread::sleep(Duration::from_millis(2));
                file.write_all(piece).unwrap();
            }
        });
        let set = SegmentSet::open_folder(shell.0.path("seg"), OpenOptions::new()).unwrap();
        assert!(set.get(b"key-77").unwrap().is_some());
    });
}

/// A link to a folder that is set to another one: a release.
#[cfg(unix)]
#[test]
fn a_link_to_a_folder_that_is_switched() {
    use std::os::unix::fs::symlink;

    let shell = Shell::new();
    for (folder, doc) in [("one", 0), ("two", 1)] {
        fs::create_dir(shell.0.path(folder)).unwrap();
        for name in ["a", "b", "c"] {
            let keys = if doc == 0 { ["K", "other"] } else { ["other", "K"] };
            shell.table(&format!("{folder}/{name}.pkh"), &keys);
        }
    }
    let link = shell.0.path("current");
    symlink("one", &link).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for folder in ["two", "one"].iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                symlink(folder, shell.0.path("next")).unwrap();
                fs::rename(shell.0.path("next"), &link).unwrap();
                thread::sleep(Duration::from_micros(500));
            }
        });
        let wrong = (0..300).find_map(|_| {
            let set = match SegmentSet::open_folder(&link, OpenOptions::new()) {
                Ok(set) => set,
                Err(error) => return Some(error.to_string()),
            };
            let docs = set.segments().iter().map(|segment| {
                segment.table().get(b"K").unwrap().and_then(pkhash_std::Value::as_u64)
            });
            let docs: BTreeSet<_> = docs.collect();
            // All of one release.
            (set.len() != 3 || docs.len() != 1).then(|| format!("{docs:?}"))
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
}

/// One flipped bit anywhere in the body: `dump` prints what is sound before it and fails, and so do all that read
/// whole tables.
#[test]
fn damage_is_found_by_all_that_read_whole_tables() {
    let shell = Shell::new();
    let mut rng = Rng(11);
    let one_length: String = (0..3000).map(|i| format!("key-{i:05}\n")).collect();
    let lengths: String = (0..3000).map(|i| format!("key-{}\n", i * i)).collect();
    for (keys, layout) in [
        (&one_length, "perfect"),
        (&one_length, "perfect --packed"),
        (&one_length, "inline"),
        (&lengths, "perfect"),
        (&lengths, "term-order"),
        (&lengths, "term-order --filter-bits none"),
        (&lengths, "perfect --filter-bits 10"),
    ] {
        shell.0.write("keys", keys);
        let build = "build keys -o good.pkh --partition-bits 2 --layout";
        shell.run(&format!("{build} {layout}")).expect(0);
        let good = shell.0.read("good.pkh");
        let whole = shell.text("dump good.pkh");
        assert_eq!(whole.lines().count(), 3000);
        let file = TableFile::open(shell.0.path("good.pkh")).unwrap();
        let body: Vec<(u64, u64)> = (0..4)
            .flat_map(|p| file.footer().sections(&file.table().partition(p).unwrap()))
            .filter(|(_, len)| *len > 0)
            .collect();
        // Each section's first and last byte, and anywhere.
        let (first, end) = (body[0].0, body.iter().map(|(at, len)| at + len).max().unwrap());
        let mut offsets: Vec<u64> = body.iter().flat_map(|(at, len)| [*at, at + len - 1]).collect();
        offsets.extend((0..40).map(|_| first + rng.below((end - first) as usize) as u64));
        for (i, at) in offsets.into_iter().enumerate() {
            let mut bad = good.clone();
            bad[at as usize] ^= 1 << rng.below(8);
            shell.0.write("bad.pkh", bad);
            let run = shell.run("dump bad.pkh").expect(2);
            assert!(run.err.contains("bad.pkh") && run.err.contains("checksum"), "{}", run.err);
            let printed = run.text().to_owned();
            assert!(whole.starts_with(&printed) && printed.len() < whole.len(), "{layout} {at}");
            assert!(printed.is_empty() || printed.ends_with('\n'));
            let partition =
                body.iter().rposition(|(begin, _)| *begin <= at).unwrap() * 4 / body.len();
            assert_eq!(printed.is_empty(), partition == 0, "{layout} {at}");
            if i % 16 > 0 {
                continue;
            }
            for line in [
                "dump bad.pkh --json",
                "dump bad.pkh --open heap",
                "stats bad.pkh",
                "stats bad.pkh --json",
                "verify bad.pkh",
                "merge bad.pkh -o fails.pkh",
                "merge bad.pkh good.pkh --on-duplicate first -o fails.pkh --ordered",
            ] {
                shell.run(line).fails(&["bad.pkh", "checksum"]);
            }
            let mut build = command(shell.0.root(), ["build", "--pairs", "-", "-o", "part.pkh"]);
            run_with_input(&mut build, printed.as_bytes()).expect(0);
            assert_eq!(shell.text("dump part.pkh").lines().count(), printed.lines().count());
        }
    }
    assert!(!shell.0.path("fails.pkh").exists());
    // The number of docs is read from values that are not integers.
    let value = ValueChoice::Fixed(ValueFormat::opaque(12).unwrap());
    let table = TableOptions::default().value(value);
    let options = WriterOptions::default().table(table);
    let keys: Vec<&str> = one_length.lines().collect();
    let value = |i: usize| versioned_value(i as u32, 7);
    build_slice(&keys, value, shell.0.path("good.pkh"), &options).unwrap();
    let file = TableFile::open(shell.0.path("good.pkh")).unwrap();
    let sections = file.footer().sections(&file.table().partition(0).unwrap());
    let (at, len) = sections.filter(|(_, len)| *len > 0).last().unwrap();
    let mut bad = shell.0.read("good.pkh");
    bad[(at + len / 2) as usize] ^= 0x10;
    shell.0.write("bad.pkh", bad);
    shell.0.write("none", "");
    for line in [
        "get bad.pkh --deleted-docs none -- x",
        "in-set bad.pkh --offset -- x",
        "merge bad.pkh --deleted-docs none -o fails.pkh",
        "dump bad.pkh",
    ] {
        shell.run(line).fails(&["bad.pkh", "checksum"]);
    }
}
