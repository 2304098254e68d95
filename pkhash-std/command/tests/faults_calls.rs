//! System calls that fail, one after the other, each of them: the message names the file and the cause, the
//! old file stays, nothing is left beside it. And calls that signals interrupt, or that do less than they
//! were asked to: nobody notices. Inputs that change meanwhile, folders that take no files.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;
mod shim;

use std::fs;
use std::path::Path;

use common::command::{PKHASH, command, run};
use common::{Folder, names, numbered, publish, slices};
use pkhash_std::{
    CompanionOptions, TableFile, WriterOptions, build_companion, build_slice, companion_path,
};
use shim::stage::{self, Old, Stage, list};
use shim::{
    Call, EACCES, EAGAIN, EDQUOT, EIO, EMFILE, ENOMEM, ENOSPC, EOPNOTSUPP, EROFS, Fault, cause,
    full, renames, shimmed, works,
};

/// How a call may fail: in one way, or in all that are worth a try.
fn causes(call: &Call) -> &'static [i32] {
    let all: &[i32] = match call.name.as_str() {
        "write" => &[ENOSPC, EIO, EDQUOT, EAGAIN],
        "open-new" | "open-nameless" => &[ENOSPC, EACCES, EROFS, EMFILE, EIO, EDQUOT],
        "rename" => &[EIO, ENOSPC, EROFS, EACCES],
        "sync" => &[EIO, ENOSPC, EDQUOT],
        "open" => &[EIO, EACCES, EMFILE],
        "read" => &[EIO, EAGAIN],
        "map" => &[ENOMEM, EIO],
        _ => &[EIO, EACCES],
    };
    if full() { all } else { &all[..1] }
}

/// What a message must say of the file of a call: its name, or what it is for.
fn naming(call: &Call) -> String {
    let file = call.file();
    if file == "nameless" || call.name == "open-nameless" {
        return "temporary file".to_owned();
    }
    // The folder itself, which is synced for the file in it.
    if file == "." {
        return "sync the folder of".to_owned();
    }
    file.trim_start_matches('.').trim_end_matches(".tmp").trim_end_matches(".waiting").to_owned()
}

/// Companions of inputs are not needed: if they cannot be opened, the keys are sorted anew. Nor is a look,
/// when all is published, at a companion that was there before.
fn is_dispensable(stage: &Stage, calls: &[Call], i: usize) -> bool {
    // The calls of a run without a fault.
    let left = stage.calls.get(i..).unwrap_or_default();
    if renames(&calls[..i]) == stage.outputs.len() && left.iter().all(|call| call.name != "sync") {
        return true;
    }
    let (call, next) = (&calls[i], stage.calls.get(i + 1));
    let file = call.file();
    match call.name.as_str() {
        // The folder, but to sync it: to remove what is stale, or to lock it.
        "open" | "stat" if file == "." => return next.is_none_or(|next| next.name != "sync"),
        // Whether there is one already, and whether a new file has its name still.
        "stat" if file.ends_with(".waiting") || i > 0 && calls[i - 1].name == "open-new" => {
            return true;
        }
        _ => {}
    }
    let is_new = |call: &Call| call.name == "open-new" && call.file().ends_with(".fst.tmp");
    let Some(begun) = stage.calls.iter().position(is_new) else { return false };
    // The last look before that one is at what is to be replaced.
    let replaced = stage.outputs.last().copied().unwrap_or_default();
    let look = stage.calls[..begun]
        .iter()
        .rposition(|call| call.name == "stat" && call.file() == replaced);
    stage.name.starts_with("merge") && file.ends_with(".fst") && look.is_some_and(|look| i < look)
}

/// Each call fails once, and no other.
fn fail_everywhere(stage: &Stage) {
    for (i, call) in stage.calls.iter().enumerate() {
        // Of a file that was made without a name, where the system has no other way.
        if call.name == "unlink" {
            continue;
        }
        for errno in causes(call) {
            let what = format!("{call:?}: {}", cause(*errno));
            stage.reset();
            let failed = stage.run(Fault::Fail(i + 1, *errno));
            // The same call as in the run before, unless the system took one back.
            let call = failed.calls.get(i).unwrap_or_else(|| panic!("{}: {what}", stage.name));
            let published = stage.published(&what);
            if is_dispensable(stage, &failed.calls, i) {
                failed.run.expect(0);
                assert_eq!(published, stage.outputs.len(), "{}: {what}", stage.name);
            } else {
                // `fails` does not know which call it was.
                let code = failed.run.status.code();
                assert_eq!(code, Some(2), "{}, call {i}: {what}", stage.name);
                failed.run.fails(&[&naming(call), &cause(*errno)]);
                assert_eq!(published, renamed(&failed.calls, i), "{}: {what}", stage.name);
            }
            stage.check_left(published);
        }
    }
}

/// Files that got their names: after a folder that cannot be synced one more may, so that a table has its companion.
fn renamed(calls: &[Call], failed: usize) -> usize {
    renames(&calls[..failed]) + renames(calls.get(failed + 1..).unwrap_or_default())
}

#[test]
fn each_call_of_small_commands_fails() {
    if works() {
        stage::small().iter().for_each(fail_everywhere);
    }
}

#[test]
fn each_call_of_large_commands_fails() {
    if works() {
        stage::large().iter().for_each(fail_everywhere);
    }
}

/// The disk is full from some call on, and stays so.
#[test]
fn the_disk_fills_up() {
    if !works() {
        return;
    }
    let mut stages = stage::large();
    stages.extend([
        stage::build_ordered(Old::Whole),
        stage::merge_ordered_over_input(),
        stage::merge_with_maps(false),
        stage::merge_with_maps(true),
    ]);
    for stage in &stages {
        for (i, call) in stage.calls.iter().enumerate() {
            if !matches!(call.name.as_str(), "open-new" | "open-nameless" | "write" | "sync") {
                continue;
            }
            for errno in if full() { &[ENOSPC, EDQUOT][..] } else { &[ENOSPC] } {
                let what = format!("full at {call:?}");
                stage.reset();
                let failed = stage.run(Fault::Full(i + 1, *errno));
                failed.run.fails(&[&naming(&failed.calls[i]), &cause(*errno)]);
                // None gets its name from then on.
                let renamed = renames(&failed.calls[..i]);
                assert_eq!(stage.published(&what), renamed, "{}: {what}", stage.name);
                stage.check_left(renamed);
            }
        }
    }
}

/// Signals and short reads and writes change nothing.
#[test]
fn calls_that_are_interrupted_or_do_less() {
    if !works() {
        return;
    }
    let mut stages = stage::small();
    stages.extend(stage::large());
    for stage in &stages {
        for fault in [Fault::Signals, Fault::Short, Fault::Worn] {
            let what = format!("{fault:?}");
            stage.reset();
            let worn = stage.run(fault);
            worn.run.expect(0);
            assert!(worn.calls.len() > stage.calls.len(), "{}: {what}", stage.name);
            assert_eq!(stage.published(&what), stage.outputs.len(), "{}: {what}", stage.name);
            stage.check_nothing_left();
        }
    }
    let stage = stage::build_to_stdout();
    for fault in [Fault::Signals, Fault::Short, Fault::Worn] {
        let worn = stage.run(fault);
        assert_eq!(worn.run.status.code(), Some(0), "{}", worn.run.err);
        assert!(worn.calls.len() > stage.calls.len());
        assert_eq!(stage.published("to standard output"), 1);
    }
}

/// A table that goes to standard output, and its calls.
#[test]
fn each_call_of_a_build_to_standard_output_fails() {
    if !works() {
        return;
    }
    let stage = stage::build_to_stdout();
    for (i, call) in stage.calls.iter().enumerate() {
        // What standard output is, is looked at for a terminal alone.
        if call.name == "stat" && call.file() == "out.pkh" {
            continue;
        }
        let naming = if call.file() == "out.pkh" { "output" } else { "list" };
        let failed = stage.run(Fault::Fail(i + 1, EIO)).run;
        failed.fails(&[naming, &cause(EIO)]);
    }
}

/// A folder that takes no files, which binds the administrator, too; nor files without a name.
#[test]
fn folders_that_take_no_files() {
    if !works() {
        return;
    }
    let mut stages = stage::small();
    stages.extend(stage::large());
    for stage in &stages {
        for errno in [EACCES, EROFS] {
            stage.reset();
            let denied = stage.run(Fault::Create(errno)).run;
            let message = denied.fails(&["create a file in", &cause(errno)]);
            assert!(stage.outputs.iter().any(|output| message.contains(output)), "{message}");
            assert_eq!(stage.published("denied"), 0, "{}", stage.name);
            stage.check_nothing_left();
        }
    }
    // Where files without a name are not to be had, one with a name does, for a moment.
    let stage = stage::build_spilled(Old::Whole);
    for errno in [EOPNOTSUPP, EACCES] {
        stage.reset();
        let run = stage.run(Fault::Nameless(errno)).run;
        if errno == EOPNOTSUPP {
            run.expect(0);
        } else {
            run.fails(&["temporary file", &cause(errno)]);
        }
        assert_eq!(stage.published("nameless") == 1, errno == EOPNOTSUPP);
        stage.check_nothing_left();
    }
}

/// A file system that syncs no folders: there is nothing to wait for.
#[test]
fn folders_that_cannot_be_synced() {
    const EINVAL: i32 = 22;
    if !works() {
        return;
    }
    let stage = stage::build(Old::Whole);
    let last = stage.calls.len();
    assert_eq!(naming(&stage.calls[last - 1]), "sync the folder of");
    stage.reset();
    stage.run(Fault::Fail(last, EINVAL)).run.expect(0);
    assert_eq!(stage.published("no sync"), 1);
    // Of a file, that is no answer.
    let sync = stage.calls.iter().position(|call| call.name == "sync").unwrap();
    stage.reset();
    stage.run(Fault::Fail(sync + 1, EINVAL)).run.fails(&["out.pkh", &cause(EINVAL)]);
    assert_eq!(stage.published("no sync"), 0);
}

/// How tables are held.
const MODES: [&str; 2] = ["map", "heap"];

/// Commands that only read.
fn readers() -> (Folder, Vec<Vec<&'static str>>) {
    let folder = Folder::new();
    folder.write("list", list(20, 3000, 24));
    let ordered = ["build", "list", "-o", "t.pkh", "--ordered"];
    run(&mut command(folder.root(), ordered)).expect(0);
    let commands = [
        &["get", "t.pkh", "--keys", "list"][..],
        &["get", "t.pkh", "--", "no such key"],
        &["verify", "t.pkh"],
        &["dump", "t.pkh"],
        &["range", "t.pkh"],
        &["prefix", "t.pkh", "a"],
    ];
    let with_mode = |mode| {
        commands.iter().map(move |args| {
            let (command, rest) = args.split_first().unwrap();
            [&[*command, "--open", mode], rest].concat()
        })
    };
    let commands = MODES.into_iter().flat_map(with_mode).collect();
    (folder, commands)
}

#[test]
fn each_call_of_readers_fails() {
    if !works() {
        return;
    }
    let (folder, commands) = readers();
    for args in commands {
        let calm = shimmed(folder.root(), Fault::None, PKHASH, &args, None);
        let code = calm.run.status.code();
        assert!(matches!(code, Some(0 | 1)), "{args:?}: {}", calm.run.err);
        for (i, call) in calm.calls.iter().enumerate() {
            for errno in causes(call) {
                let failed =
                    shimmed(folder.root(), Fault::Fail(i + 1, *errno), PKHASH, &args, None);
                // What a file is may be asked before it is opened, and not to know is no obstacle.
                if call.name == "stat" && failed.run.err.is_empty() {
                    assert_eq!(failed.run.status.code(), code, "{args:?}: {call:?}");
                    assert!(failed.run.out == calm.run.out, "{args:?}: {call:?}");
                } else {
                    failed.run.fails(&[&call.file(), &cause(*errno)]);
                }
            }
        }
        for fault in [Fault::Signals, Fault::Short, Fault::Worn] {
            let worn = shimmed(folder.root(), fault, PKHASH, &args, None).run;
            assert_eq!(worn.status.code(), code, "{args:?}: {fault:?}: {}", worn.err);
            assert!(worn.out == calm.run.out, "{args:?}: {fault:?}");
        }
    }
}

/// The number of the last call, and of the first, on a file.
fn calls_on(calls: &[Call], file: &str) -> (usize, usize) {
    let is_on = |call: &Call| call.file() == file;
    let first = calls.iter().position(is_on).unwrap() + 1;
    (first, calls.iter().rposition(is_on).unwrap() + 1)
}

/// Inputs that are removed, replaced, cut, or written over while they are merged.
#[test]
fn inputs_that_change_during_a_merge() {
    if !works() {
        return;
    }
    for mode in MODES {
        for ordered in [false, true] {
            let stage = stage::merge_in_mode(mode, ordered);
            let (_, opened) = calls_on(&stage.calls, "b.pkh");
            let open =
                stage.calls.iter().position(|call| call.name == "open" && call.file() == "b.pkh");
            let open = open.unwrap() + 1;
            assert!(open <= opened && opened < stage.calls.len());
            let in_memory = mode != "map";
            for (what, shell) in [
                ("removed", "rm b.pkh"),
                ("replaced", "cp a.pkh b.new && mv b.new b.pkh"),
                ("cut", "truncate -s -1 b.pkh"),
                ("emptied", "truncate -s 0 b.pkh"),
                ("written over", "yes | head -c 100000 > b.pkh"),
            ] {
                let in_place = matches!(what, "cut" | "emptied" | "written over");
                // Under a mapping, that ends the process: see `OpenOptions::open_mapped`.
                if in_place && !in_memory {
                    continue;
                }
                for n in 1..=stage.calls.len() {
                    stage.reset();
                    let merged = stage.run(Fault::At(n, shell)).run;
                    let what = format!("{what} before {:?}", stage.calls[n - 1]);
                    let whole = if in_place { n > opened } else { n > open };
                    if whole {
                        merged.expect(0);
                    } else if what.starts_with("replaced") {
                        // The same keys twice.
                        merged.fails(&["merge", "duplicate key"]);
                    } else {
                        merged.fails(&["b.pkh"]);
                    }
                    stage.restore("b.pkh");
                    let expected = if whole { stage.outputs.len() } else { 0 };
                    assert_eq!(stage.published(&what), expected, "{}: {what}", stage.name);
                    stage.check_nothing_left();
                }
            }
        }
    }
}

/// The companions of inputs, too, which are not needed.
#[test]
fn companions_that_vanish_during_a_merge() {
    if !works() {
        return;
    }
    let stage = stage::merge_in_mode("heap", true);
    for shell in ["rm b.pkh.fst", "truncate -s -1 b.pkh.fst", "cp a.pkh.fst b.pkh.fst"] {
        for n in 1..=stage.calls.len() {
            stage.reset();
            stage.run(Fault::At(n, shell)).run.expect(0);
            stage.restore("b.pkh.fst");
            assert_eq!(stage.published(shell), 2);
            stage.check_nothing_left();
        }
    }
}

/// A list that is removed meanwhile is read to its end; one that is cut has lost its lines.
#[test]
fn a_list_that_changes_during_a_build() {
    if !works() {
        return;
    }
    let stage = stage::build(Old::Whole);
    let (first, last) = calls_on(&stage.calls, "list");
    for n in first..=stage.calls.len() {
        stage.reset();
        let built = stage.run(Fault::At(n, "rm list")).run;
        stage.restore("list");
        if n == first {
            built.fails(&["list"]);
            assert_eq!(stage.published("no list"), 0);
        } else {
            built.expect(0);
            assert_eq!(stage.published("list removed"), 1);
        }
        stage.check_nothing_left();
    }
    assert!(first < last);
}

/// Where keys go that outgrow the memory: beside the table, or where that was asked for, or, if there is
/// no table to be beside of, where the system has temporary files.
#[test]
fn folders_of_temporary_files() {
    let folder = Folder::new();
    folder.write("list", list(21, 270, 30_000));
    folder.write("file", "");
    let build = ["build", "list", "--memory", "8MiB", "-o", "out.pkh"];
    let mut unusable = vec!["missing", "file"];
    if Path::new("/proc").is_dir() {
        unusable.push("/proc");
    }
    for temp in &unusable {
        // Not used, and so not in the way.
        run(command(folder.root(), build).env("TMPDIR", temp)).expect(0);
        fs::remove_file(folder.path("out.pkh")).unwrap();
        let asked = [&build[..], &["--temp-dir", temp]].concat();
        let message = run(&mut command(folder.root(), asked)).fails(&["temporary file", temp]);
        assert!(message.contains("os error"), "{message}");
        assert_eq!(folder.names(), ["file", "list"], "{temp}");
    }
    for temp in ["missing", "file"] {
        let to_stdout = [&build[..4], &["-o", "-"]].concat();
        run(command(folder.root(), to_stdout).env("TMPDIR", temp)).fails(&["temporary file", temp]);
    }
    assert_eq!(folder.names(), ["file", "list"]);
}

/// By whatever name: no input of a build is replaced, and what a merge replaces is what it was asked to.
#[test]
fn outputs_that_are_inputs() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new();
    let lines = list(22, 300, 24);
    let fresh = || {
        for name in folder.names() {
            fs::remove_file(folder.path(&name)).unwrap();
        }
        folder.write("list", &lines);
        folder.write("list.pkh.fst", &lines);
        symlink("list", folder.path("link")).unwrap();
        symlink("list", folder.path("link.pkh.fst")).unwrap();
        fs::hard_link(folder.path("list"), folder.path("hard")).unwrap();
        folder.names()
    };
    let files = fresh();
    for (input, output, ordered) in [
        ("list", "list", false),
        ("list", "list", true),
        ("list", "link", false),
        ("link", "list", false),
        ("link", "link", true),
        ("list.pkh.fst", "list.pkh", true),
        ("link.pkh.fst", "link.pkh", true),
        ("list", "link.pkh", true),
    ] {
        let mut args = vec!["build", input, "-o", output];
        args.extend(ordered.then_some("--ordered"));
        run(&mut command(folder.root(), args)).fails(&[output, "input"]);
        assert_eq!(folder.names(), files, "{input} {output}");
        assert!(folder.read("list") == lines && folder.read("list.pkh.fst") == lines);
    }
    // Another name of the list becomes the table's, and the list stays.
    run(&mut command(folder.root(), ["build", "list", "-o", "hard"])).expect(0);
    assert!(folder.read("list") == lines);
    TableFile::open(folder.path("hard")).unwrap().verify().unwrap();

    for ordered in [false, true] {
        let stage = stage::merge_in_mode("map", ordered);
        let folder = &stage.folder;
        let (a, merged) = (folder.read("a.pkh"), &stage.new[0]);
        symlink("a.pkh", folder.path("link.pkh")).unwrap();
        fs::hard_link(folder.path("a.pkh"), folder.path("hard.pkh")).unwrap();
        for output in ["link.pkh", "hard.pkh", "./a.pkh"] {
            let mut args = vec!["merge", "a.pkh", "b.pkh", "--offset", "-o", output];
            args.extend(ordered.then_some("--ordered"));
            run(&mut command(folder.root(), &args)).expect(0);
            assert!(folder.read(output) == *merged, "{output}");
            assert!(!fs::symlink_metadata(folder.path(output)).unwrap().is_symlink());
            if output != "./a.pkh" {
                assert!(folder.read("a.pkh") == a, "{output}");
            }
            let companion = format!("{output}.fst");
            if ordered {
                assert!(folder.read(&companion) == stage.new[1], "{output}");
            }
        }
    }
}

const CHILD: &str = "PKHASH_TEST_CHILD";

/// Not a test of its own: what the next one runs in another process.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let options = CompanionOptions::default()
        .memory(pkhash_std::MIN_COMPANION_MEMORY)
        .threads(1)
        .temp_dir(std::path::PathBuf::from("spill"));
    let done = match order.as_str() {
        "slice" => {
            let list = fs::read("list").unwrap();
            let keys: Vec<&[u8]> = list.split(|byte| *byte == b'\n').collect();
            let options = WriterOptions::default().threads(1);
            build_slice(&keys, |i| (i as u32).to_le_bytes(), "out.pkh", &options).map(|_| ())
        }
        "companion" => TableFile::open("t.pkh")
            .and_then(|table| build_companion(&table, companion_path("t.pkh"), &options))
            .map(|built| assert!(built.spilled > 0)),
        other => panic!("{other}"),
    };
    if let Err(error) = done {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

/// A stage for what the command does not do.
fn library(order: &'static str, folder: Folder, outputs: &'static [&'static str]) -> Stage {
    let exe = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let args = [order, exe.leak(), "--exact", "child", "--nocapture", "--test-threads", "1"];
    Stage::new("library", folder, "env", &args, outputs, Old::Whole)
}

#[test]
fn each_call_of_the_library_fails() {
    if !works() {
        return;
    }
    let folder = Folder::new();
    folder.write("list", list(23, 200, 24));
    let slice = library("PKHASH_TEST_CHILD=slice", folder, &["out.pkh"]);

    let folder = Folder::new();
    fs::create_dir(folder.path("spill")).unwrap();
    let model = numbered("k", 0..29_000);
    publish(&folder.path("t.pkh"), WriterOptions::default(), slices(&model)).unwrap();
    let companion = library("PKHASH_TEST_CHILD=companion", folder, &["t.pkh.fst"]);
    assert!(companion.calls.iter().any(|call| call.file() == "nameless"));

    for stage in [slice, companion] {
        for (i, call) in stage.calls.iter().enumerate() {
            // The test's own reading.
            if call.file() == "list" || call.name == "unlink" {
                continue;
            }
            let what = format!("{call:?}");
            for errno in causes(call) {
                stage.reset();
                let failed = stage.run(Fault::Fail(i + 1, *errno));
                let mut expected = stage.outputs.len();
                if is_dispensable(&stage, &failed.calls, i) {
                    failed.run.expect(0);
                } else {
                    failed.run.fails(&[&naming(&failed.calls[i]), &cause(*errno)]);
                    expected = renames(&failed.calls[..i]);
                }
                assert_eq!(stage.published(&what), expected, "{what}");
                stage.check_nothing_left();
            }
        }
        for fault in [Fault::Signals, Fault::Short, Fault::Worn] {
            stage.reset();
            let worn = stage.run(fault);
            worn.run.expect(0);
            assert!(worn.calls.len() > stage.calls.len());
            assert_eq!(stage.published("worn"), 1);
            stage.check_nothing_left();
        }
        assert!(names(stage.folder.root()).contains(&stage.outputs[0].to_owned()));
    }
}
