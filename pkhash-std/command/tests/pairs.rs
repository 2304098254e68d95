//! Tables that are published with what belongs to them, while others read them; processes that change their folder;
//! files that belong to others.

#![cfg(unix)]

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::command::{command, run};
use common::{Folder, numbered, publish, slices};
use pkhash_std::{
    CompanionOptions, DocMap, Error, MIN_MEMORY, MergeInput, MergeOptions, OpenOptions,
    OrderedOptions, OrderedTerms, Publication, Result, Table, TableFile, TableWriter,
    WriterOptions, build_companion, build_slice, companion_path, merge, publish_pair,
};

/// Publishes a table of these numbers, and its companion.
fn publish_both(path: &Path, prefix: &str, n: u64) -> Result<()> {
    let mut writer = TableWriter::create(path, WriterOptions::default().threads(1))?;
    for (key, value) in &numbered(prefix, 0..n) {
        writer.add(key, u64::from_le_bytes(value[..8].try_into().unwrap()))?;
    }
    let (_, table) = writer.finish()?;
    let mut companion = Publication::begin_like(companion_path(path), path)?;
    let written = table.open_table(OpenOptions::new())?;
    let options = CompanionOptions::default().threads(1);
    build_companion(&written, &mut companion, &options)?;
    publish_pair([], table, companion)
}

/// Two writers, which disturb each other as much as their readers: each table that is found has its companion.
#[test]
fn pairs_are_found_while_they_are_replaced() {
    let folder = Folder::new();
    let path = folder.path("t.pkh");
    publish_both(&path, "k", 9).unwrap();
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for mode in common::modes() {
            let (path, done, reads) = (&path, &done, &reads);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let open = |path: &Path| mode.open(path);
                    let companion = |path: &Path, table: &Table<'_>| {
                        mode.companion(OrderedOptions::new(), path, table)
                    };
                    let (table, terms) = OrderedTerms::open_pair_by(path, open, companion).unwrap();
                    assert!(terms.belongs_to(table.table()));
                    assert_eq!(terms.iter().count() as u64, table.footer().keys());
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let path = &path;
                scope.spawn(move || {
                    for round in 0..60 {
                        publish_both(path, "k", 10 + 2 * (round % 7) + writer).unwrap();
                    }
                })
            })
            .collect();
        let written: Vec<_> =
            writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(written.iter().all(std::thread::Result::is_ok));
    });
    assert!(reads.load(Ordering::Relaxed) > 20, "{reads:?}");
    assert_eq!(folder.names(), ["t.pkh", "t.pkh.fst"]);
    OrderedTerms::open(&TableFile::open(&path).unwrap()).unwrap();
}

/// The same by the command: built anew and merged over itself in a loop, while others search it.
#[test]
fn commands_find_pairs_while_they_are_replaced() {
    let folder = Folder::new();
    let lines = |n: usize| (0..n).map(|i| format!("key-{i:05}\n")).collect::<String>();
    folder.write("a", lines(3000));
    folder.write("b", lines(2000));
    let build = |list| {
        let args = ["build", list, "-o", "t.pkh", "--ordered"];
        run(&mut command(folder.root(), args)).expect(0);
    };
    build("a");
    let done = AtomicBool::new(false);
    let searches = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for args in [
            &["range", "t.pkh", "--trust", "--from", "key-01000", "--limit", "1"][..],
            &["prefix", "t.pkh", "key-0100"],
            &["verify", "t.pkh"],
        ] {
            let (folder, done, searches) = (&folder, &done, &searches);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let found = run(&mut command(folder.root(), args)).expect(0);
                    assert!(!found.text().is_empty());
                    searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let written = std::panic::catch_unwind(|| {
            for _ in 0..12 {
                build("b");
                let merge = ["merge", "t.pkh", "-o", "t.pkh", "--ordered", "--offset"];
                run(&mut command(folder.root(), merge)).expect(0);
                build("a");
            }
        });
        done.store(true, Ordering::Relaxed);
        assert!(written.is_ok());
    });
    assert!(searches.load(Ordering::Relaxed) > 10, "{searches:?}");
}

/// What does not belong together and will not is an error soon, of either file.
#[test]
fn a_companion_that_is_another_s_stays_an_error() {
    let folder = Folder::new();
    let path = folder.path("t.pkh");
    publish_both(&path, "k", 9).unwrap();
    let other = numbered("other", 0..5);
    publish(&path, WriterOptions::default(), slices(&other)).unwrap();
    let error = OrderedTerms::open_pair(&path).unwrap_err();
    assert!(matches!(error, Error::Companion { .. }), "{error}");
    assert!(error.to_string().contains("t.pkh.fst"));
    fs::remove_file(companion_path(&path)).unwrap();
    let error = OrderedTerms::open_pair(&path).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path.ends_with("t.pkh.fst")), "{error}");
    // Two that are begun and do not fit are not published.
    let mut writer = TableWriter::create(&path, WriterOptions::default()).unwrap();
    writer.add(b"new", 0).unwrap();
    let (_, table) = writer.finish().unwrap();
    let mut companion = Publication::begin(companion_path(&path)).unwrap();
    let old = TableFile::open(&path).unwrap();
    build_companion(&old, &mut companion, &CompanionOptions::default()).unwrap();
    let error = publish_pair([], table, companion).unwrap_err();
    assert!(matches!(error, Error::Companion { .. }), "{error}");
    assert_eq!(TableFile::open(&path).unwrap().footer().keys(), 5);
    assert_eq!(folder.names(), ["t.pkh"]);
}

const CHILD: &str = "PKHASH_TEST_FOLDER";

/// Begins everything in folder `a`, and ends it in folder `b`.
fn change_folder(folder: &Path) -> Result<()> {
    let (a, b) = (folder.join("a"), folder.join("b"));
    let go = |to: &Path| std::env::set_current_dir(to).unwrap();
    // Keys that do not fit the memory, spilled after the change, too, to a folder that is relative.
    let create = |name: &str, temp_dir: Option<&str>| {
        let temp_dir = temp_dir.map(Into::into);
        let options = WriterOptions::default().memory(MIN_MEMORY).threads(1).temp_dir(temp_dir);
        TableWriter::create(name, options)
    };
    for (name, temp) in [("t.pkh", None), ("sub/s.pkh", None), ("./u.pkh", Some("sub"))] {
        go(&a);
        let mut writer = create(name, temp)?;
        writer.add(b"first", 0)?;
        go(&b);
        for i in 1..2500u64 {
            writer.add(&[i.to_le_bytes().as_slice(), &[7; 4096]].concat(), i)?;
        }
        assert!(writer.publish()?.spilled > 0);
    }
    // Whoever is asked in the middle of the work changes the folder.
    let keys: Vec<[u8; 8]> = (0..100u64).map(u64::to_le_bytes).collect();
    go(&a);
    let value = |i: usize| {
        go(&b);
        (i as u32).to_le_bytes()
    };
    build_slice(&keys, value, "slice.pkh", &WriterOptions::default().threads(1))?;
    go(&a);
    let table = TableFile::open("slice.pkh")?;
    let to_b = b.clone();
    let progress = pkhash_std::Progress::default()
        .reported_to(move |_, _| std::env::set_current_dir(&to_b).unwrap());
    let inputs = [MergeInput::new(&table).docs(DocMap::Offset(5))];
    merge(&inputs, "merged.pkh", &MergeOptions::default().progress(progress.clone()))?;
    go(&a);
    let options = CompanionOptions::default().progress(progress);
    build_companion(&table, "slice.pkh.fst", &options)?;
    Ok(())
}

#[test]
fn files_appear_where_they_were_begun() {
    // In a process of its own: the folder is that of all threads.
    if let Some(folder) = std::env::var_os(CHILD) {
        return change_folder(Path::new(&folder)).unwrap();
    }
    let folder = Folder::new();
    for name in ["a/sub", "b"] {
        fs::create_dir_all(folder.path(name)).unwrap();
    }
    folder.write("b/t.pkh", "not ours");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "files_appear_where_they_were_begun"])
        .env(CHILD, folder.root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let expected = ["merged.pkh", "slice.pkh", "slice.pkh.fst", "sub", "t.pkh", "u.pkh"];
    assert_eq!(common::names(&folder.path("a")), expected);
    assert_eq!(common::names(&folder.path("a/sub")), ["s.pkh"]);
    assert_eq!(common::names(&folder.path("b")), ["t.pkh"]);
    assert_eq!(folder.read("b/t.pkh"), b"not ours");
}

/// Tables, companions and doc maps that replace those of a service keep what lets it read them. Only the
/// administrator may give files away; who may not keeps what is their own.
#[test]
fn what_is_replaced_keeps_owner_group_and_permissions() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    let folder = Folder::new();
    folder.write("list", "a\nb\n");
    let build = ["build", "list", "-o", "t.pkh", "--ordered"];
    run(&mut command(folder.root(), build)).expect(0);
    folder.write("map", "");
    let names = ["t.pkh", "t.pkh.fst", "map"];
    let mut expected = Vec::new();
    for name in names {
        let path = folder.path(name);
        let _ = chown(&path, Some(1234), Some(2345));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let meta = fs::metadata(&path).unwrap();
        expected.push((meta.uid(), meta.gid()));
    }
    let merge =
        ["merge", "t.pkh", "-o", "t.pkh", "--ordered", "--offset", "--write-doc-map", "map"];
    for args in [&build[..4], &build, &merge] {
        let inode = |name| fs::metadata(folder.path(name)).unwrap().ino();
        let before = inode("t.pkh");
        run(&mut command(folder.root(), args)).expect(0);
        assert_ne!(inode("t.pkh"), before, "{args:?}");
        for (name, owner) in names.iter().zip(&expected) {
            let meta = fs::metadata(folder.path(name)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), *owner, "{args:?}: {name}");
            assert_eq!(meta.mode() & 0o777, 0o640, "{args:?}: {name}");
        }
    }
    // A companion that is new has the table's keys, and so its readers.
    fs::remove_file(folder.path("t.pkh.fst")).unwrap();
    run(&mut command(folder.root(), build)).expect(0);
    let meta = fs::metadata(folder.path("t.pkh.fst")).unwrap();
    assert_eq!(((meta.uid(), meta.gid()), meta.mode() & 0o777), (expected[0], 0o640));
}

/// A process that may not give files away: what was the group's is nobody's.
#[test]
fn who_may_not_keep_the_group_widens_nothing() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::os::unix::process::CommandExt;

    let folder = Folder::new();
    folder.write("list", "a\n");
    run(&mut command(folder.root(), ["build", "list", "-o", "t.pkh"])).expect(0);
    let path = folder.path("t.pkh");
    // Only the administrator can set this up: a file of a group that the process is not in.
    if chown(&path, Some(1234), Some(2345)).is_err() {
        return;
    }
    for (mode, left) in [(0o640, 0o600), (0o664, 0o644), (0o660, 0o600), (0o4755, 0o755)] {
        chown(&path, Some(1234), Some(2345)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(folder.root(), fs::Permissions::from_mode(0o777)).unwrap();
        // The test's binary may lie where that user cannot go.
        let binary = folder.path("pkhash");
        fs::copy(common::command::PKHASH, &binary).unwrap();
        let mut other = std::process::Command::new(&binary);
        other.current_dir(folder.root()).args(["build", "list", "-o", "t.pkh"]);
        run(other.uid(1235).gid(2346)).expect(0);
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1235, 2346));
        assert_eq!(meta.mode() & 0o7777, left, "{mode:o}");
    }
}
