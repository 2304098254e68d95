//! What goes wrong outside of the process: a disk that is full, folders that are not there, signals,
//! kills, readers that go away. The old file stays, nothing is left beside it, the message names the
//! file and the cause.

#![cfg(unix)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::command::{PKHASH, Run, command, heard, run, run_with_input};
use common::{Folder, Rng, check, names, numbered, open_all, publish, slices};
use pkhash_std::{TableFile, WriterOptions};

/// The command with files limited to `blocks` blocks, of 512 or 1,024 bytes as the shell has it. The
/// signal is ignored, so that a write beyond that fails as on a full disk: with an error.
fn limited(folder: &Path, blocks: u32, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {blocks} || exit 99; exec \"$@\"");
    command.current_dir(folder).args(["-c", &script, "sh", PKHASH]).args(args);
    command.stdin(Stdio::null());
    command
}

/// A list of keys of 40 hex digits.
fn list(seed: u64, lines: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut list = Vec::new();
    for _ in 0..lines {
        writeln!(list, "{:016x}{:016x}{:08x}", rng.next(), rng.next(), rng.next() as u32).unwrap();
    }
    list
}

/// What the operating system says of a full disk, or of a file that may not grow.
fn full(run: Run, file: &str) {
    let message = run.fails(&[file]);
    assert!(message.contains("too large") || message.contains("No space"), "{message}");
}

#[test]
fn the_disk_is_full_during_a_build() {
    let folder = Folder::new();
    folder.write("list", list(1, 20_000));
    // Without a file before, and with one.
    for before in [None, Some("old")] {
        if let Some(before) = before {
            folder.write("out.pkh", before);
        }
        let files = folder.names();
        // The table has some 600 kB of keys alone. With one block not even its beginning fits.
        for blocks in [0, 1, 200] {
            for extra in [
                &[][..],
                &["--partition-bits", "6"],
                &["--threads", "1"],
                &["--layout", "term-order"],
                &["--partition-bits", "11"],
            ] {
                let args = [&["build", "list", "-o", "out.pkh"], extra].concat();
                full(run(&mut limited(folder.root(), blocks, &args)), "out.pkh");
                assert_eq!(folder.names(), files);
            }
        }
        if let Some(before) = before {
            assert_eq!(folder.read("out.pkh"), before.as_bytes());
        }
    }
    // The same limit does not matter to a table that fits.
    folder.write("short", "a\nb\n");
    run(&mut limited(folder.root(), 200, &["build", "short", "-o", "out.pkh"])).expect(0);
}

#[test]
fn the_disk_is_full_during_a_spill() {
    let folder = Folder::new();
    let elsewhere = folder.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    folder.write("list", list(2, 120_000));
    folder.write("out.pkh", "old");
    let files = folder.names();
    let args = ["build", "list", "-o", "out.pkh", "--memory", "8MiB", "--temp-dir", "elsewhere"];
    // A run has about 6 MiB.
    full(run(&mut limited(folder.root(), 2000, &args)), "elsewhere");
    assert_eq!(folder.names(), files);
    assert!(names(&elsewhere).is_empty());
    assert_eq!(folder.read("out.pkh"), b"old");
    // By default the folder of the table.
    full(run(&mut limited(folder.root(), 2000, &args[..6])), "temporary file");
    assert_eq!(folder.names(), files);
    assert_eq!(folder.read("out.pkh"), b"old");
}

#[test]
fn the_disk_is_full_during_a_merge() {
    let folder = Folder::new();
    for (i, name) in ["a", "b"].iter().enumerate() {
        folder.write("list", list(3 + i as u64, 5000));
        let table = format!("{name}.pkh");
        run(&mut command(folder.root(), ["build", "list", "-o", &table])).expect(0);
    }
    let before = folder.read("a.pkh");
    // Beside its inputs, and over one of them.
    for out in ["out.pkh", "a.pkh"] {
        let files = folder.names();
        for blocks in [0, 1, 300] {
            for layout in ["perfect", "term-order"] {
                let args = ["merge", "a.pkh", "b.pkh", "--offset", "--layout", layout, "-o", out];
                full(run(&mut limited(folder.root(), blocks, &args)), out);
                assert_eq!(folder.names(), files);
            }
        }
    }
    assert_eq!(folder.read("a.pkh"), before);
    run(&mut command(folder.root(), ["verify", "a.pkh", "b.pkh"])).expect(0);
}

/// Standard output that takes nothing: an error of every command, whatever it prints.
#[cfg(target_os = "linux")]
#[test]
fn standard_output_is_full() {
    let folder = Folder::new();
    folder.write("list", "a\nb\n");
    run(&mut command(folder.root(), ["build", "list", "-o", "t.pkh"])).expect(0);
    for args in [
        &["build", "list", "-o", "-"][..],
        &["build", "list", "-o", "u.pkh"],
        &["merge", "t.pkh", "-o", "-"],
        &["dump", "t.pkh"],
        &["dump", "t.pkh", "--json"],
        &["get", "t.pkh", "--", "a"],
        &["get", "t.pkh", "--json", "--", "a"],
        &["stats", "t.pkh"],
        &["stats", "t.pkh", "--json"],
        &["verify", "t.pkh"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let child =
            command(folder.root(), args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains("No space") && !err.contains("panicked"), "{args:?}: {err}");
    }
}

#[test]
fn folders_that_are_missing_or_take_no_files() {
    let folder = Folder::new();
    let input = folder.write("list", "a\nb\n");
    let input = input.to_str().unwrap();
    let table = folder.path("t.pkh");
    publish(&table, WriterOptions::default(), slices(&numbered("a", 0..9))).unwrap();
    let table = table.to_str().unwrap();
    let files = folder.names();

    let mut outputs = vec!["missing/out.pkh", "list/out.pkh"];
    // The administrator may write to any folder that is a real one.
    if cfg!(target_os = "linux") {
        outputs.push("/proc/out.pkh");
    }
    for out in outputs {
        let parent = Path::new(out).parent().unwrap().to_str().unwrap();
        run(&mut command(folder.root(), ["build", input, "-o", out])).fails(&[parent]);
        run(&mut command(folder.root(), ["merge", table, "-o", out])).fails(&[parent]);
    }
    // Names of something that is no file.
    fs::create_dir(folder.path("sub")).unwrap();
    for out in [".", "sub", "sub/", "/dev/null"] {
        run(&mut command(folder.root(), ["build", input, "-o", out])).fails(&[out]);
        run(&mut command(folder.root(), ["merge", table, "-o", out])).fails(&[out]);
    }
    run(&mut command(folder.root(), ["build", input, "-o", ""])).expect(2);
    fs::remove_dir(folder.path("sub")).unwrap();
    assert_eq!(folder.names(), files);
}

#[test]
fn a_folder_without_permission() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let closed = folder.path("closed");
    fs::create_dir(&closed).unwrap();
    folder.write("list", "a\nb\n");
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).unwrap();
    let run = run(&mut command(folder.root(), ["build", "list", "-o", "closed/out.pkh"]));
    // The administrator needs no permission: there the table must be whole.
    if fs::File::create(closed.join("probe")).is_ok() {
        run.expect(0);
        TableFile::open(closed.join("out.pkh")).unwrap().verify().unwrap();
    } else {
        run.fails(&["closed", "ermission"]);
        assert!(names(&closed).is_empty());
    }
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o755)).unwrap();
}

/// The list is not replaced by the table.
#[test]
fn the_output_is_the_input() {
    let folder = Folder::new();
    let lines = list(5, 3000);
    folder.write("list", &lines);
    std::os::unix::fs::symlink("list", folder.path("link")).unwrap();
    for (input, output) in [("list", "list"), ("link", "list"), ("list", "./list")] {
        run(&mut command(folder.root(), ["build", input, "-o", output])).fails(&["list", "input"]);
    }
    assert!(folder.read("list") == lines);
    assert_eq!(folder.names(), ["link", "list"]);
}

/// Sends a signal by name.
fn signal(child: &Child, name: &str) {
    let status = Command::new("sh")
        .args(["-c", "kill -s \"$1\" \"$2\"", "sh", name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success(), "cannot send {name}");
}

/// Waits until something is so. Only how long to wait before giving up is a matter of time.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited for a minute: {what}");
}

/// The length of the one temporary file of a folder, if it is there.
fn temporary_len(folder: &Path) -> Option<u64> {
    let name = names(folder).into_iter().find(|name| name.ends_with(".tmp"))?;
    fs::metadata(folder.join(name)).ok().map(|meta| meta.len())
}

/// And the exit codes, at whatever moment they come.
fn signals() -> [(&'static str, i32); 3] {
    [("INT", 130), ("TERM", 143), ("HUP", 129)]
        .map(|(name, code)| if heard(name) == name { (name, code) } else { ("TERM", 143) })
}

#[test]
fn a_signal_while_waiting_for_input() {
    for (name, code) in signals() {
        for csv in [false, true] {
            let folder = Folder::new();
            folder.write("out.pkh", "old");
            let mut args = vec!["build", "-", "-o", "out.pkh"];
            if csv {
                args.extend(["--csv", "--key", "id"]);
            }
            let mut child = command(folder.root(), args)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(b"id\n").unwrap();
            stdin.write_all(&list(6, 50_000)).unwrap();
            // More than a pipe holds was written: it is being read.
            wait_until("a temporary file", || temporary_len(folder.root()).is_some());
            signal(&child, name);
            // The input stays open: nothing but the signal ends the command.
            let status = child.wait().unwrap();
            assert_eq!(status.code(), Some(code), "{name}");
            assert_eq!(folder.names(), ["out.pkh"], "{name}");
            assert_eq!(folder.read("out.pkh"), b"old", "{name}");
            drop(stdin);
        }
    }
}

#[test]
fn a_signal_while_building_and_while_merging() {
    let folder = Folder::new();
    folder.write("list", list(7, 150_000));
    run(&mut command(folder.root(), ["build", "list", "-o", "whole.pkh"])).expect(0);
    folder.write("out.pkh", "old");
    let files = folder.names();
    let many = ["--partition-bits", "9", "--threads", "1"];
    for ((name, code), args) in signals().into_iter().zip([
        &["build", "list", "-o", "out.pkh"][..],
        &["merge", "whole.pkh", "-o", "out.pkh"],
        &["build", "-", "-o", "out.pkh"],
    ]) {
        let mut child = command(folder.root(), [args, &many].concat())
            .stdin(fs::File::open(folder.path("list")).unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first 2 MiB of 6 or more are there: stopped, so that the signal comes in the middle.
        wait_until("a table being written", || temporary_len(folder.root()) > Some(0));
        signal(&child, "STOP");
        assert!(temporary_len(folder.root()).is_some(), "over before it could be stopped");
        signal(&child, name);
        signal(&child, "CONT");
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{name}: {status}: {err}");
        assert!(err.contains("cancelled"), "{name}: {err}");
        assert_eq!(folder.names(), files, "{name}");
        assert_eq!(folder.read("out.pkh"), b"old", "{name}");
    }
}

/// At moments that nobody chose, of a command with everything that it could leave behind: the exit code is that of the
/// signal unless the command had come to its end, and no temporary file is left.
#[test]
fn a_signal_at_any_moment() {
    let folder = Folder::new();
    folder.write("list", list(13, 3000));
    run(&mut command(folder.root(), ["build", "list", "-o", "in.pkh", "--ordered"])).expect(0);
    let merge =
        ["merge", "in.pkh", "-o", "out.pkh", "--ordered", "--offset", "--write-doc-map", "map"];
    let build = ["build", "list", "-o", "out.pkh", "--ordered"];
    let mut rng = Rng(14);
    let (mut ended, mut whole) = (0, Duration::ZERO);
    for round in 0..32u32 {
        for name in ["out.pkh", "out.pkh.fst", "map"] {
            let _ = fs::remove_file(folder.path(name));
        }
        let args = if round % 2 == 0 { &build[..] } else { &merge };
        let began = std::time::Instant::now();
        let mut child = command(folder.root(), args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (name, code) = signals()[(round / 2) as usize % 3];
        if round < 2 {
            assert!(child.wait().unwrap().success());
            whole = whole.max(began.elapsed());
            continue;
        }
        // Handled from when the first temporary file is there.
        wait_until("a beginning", || {
            temporary_len(folder.root()).is_some() || child.try_wait().unwrap().is_some()
        });
        std::thread::sleep(whole.mul_f64(rng.below(1000) as f64 / 1000.0));
        if child.try_wait().unwrap().is_some() {
            continue;
        }
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {}
            found => {
                assert_eq!(found, Some(code), "{name}: {err}");
                ended += 1;
            }
        }
        let left = folder.names();
        assert!(left.iter().all(|name| !name.starts_with('.')), "{name}: {left:?}");
        // The table has its maps, and its companion.
        if left.contains(&"out.pkh".to_owned()) {
            run(&mut command(folder.root(), ["verify", "out.pkh"])).expect(0);
            assert!(left.contains(&"out.pkh.fst".to_owned()));
            assert!(round % 2 == 0 || left.contains(&"map".to_owned()));
        }
    }
    assert!(ended > 5, "only {ended} were ended by their signal");
}

/// As by `nohup`: what is ignored stays so.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_is_ignored() {
    let folder = Folder::new();
    let script = "trap '' HUP; exec \"$@\"";
    let mut child = Command::new("sh")
        .current_dir(folder.root())
        .args(["-c", script, "sh", PKHASH, "build", "-", "-o", "t.pkh"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("a temporary file", || temporary_len(folder.root()).is_some());
    signal(&child, "HUP");
    std::thread::sleep(Duration::from_millis(50));
    child.stdin.take().unwrap().write_all(b"a\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    TableFile::open(folder.path("t.pkh")).unwrap().verify().unwrap();
}

/// Closed when the command began, and not only full or without a reader: what would be written is lost.
#[test]
fn standard_output_is_closed() {
    let folder = Folder::new();
    folder.write("list", "a\nb\n");
    run(&mut command(folder.root(), ["build", "list", "-o", "t.pkh", "--ordered"])).expect(0);
    let closed = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.current_dir(folder.root()).args(["-c", "exec \"$@\" >&-", "sh", PKHASH]).args(args);
        run(command.stdin(Stdio::null()))
    };
    for args in [
        &["build", "list", "-o", "-"][..],
        &["build", "list", "-o", "u.pkh"],
        &["merge", "t.pkh", "-o", "-"],
        &["merge", "t.pkh", "-o", "u.pkh"],
        &["dump", "t.pkh"],
        &["get", "t.pkh", "--", "a"],
        &["get", "t.pkh", "--json", "--", "a"],
        &["in-set", "t.pkh", "--", "a"],
        &["in-set", "t.pkh", "--bitmap", "-", "--", "a"],
        &["in-set", "t.pkh", "--bitmap", "bits", "--", "a"],
        &["range", "t.pkh"],
        &["prefix", "t.pkh", "a"],
        &["stats", "t.pkh"],
        &["verify", "t.pkh"],
        &["--help"],
        &["--version"],
        &["help", "build"],
    ] {
        let message = closed(args).fails(&["cannot write to standard output"]);
        assert!(message.contains("ad file descriptor"), "{message}");
    }
    // Nothing was to be said.
    assert_eq!(closed(&["range", "t.pkh", "--from", "c"]).status.code(), Some(1));
    // The null device is no closed output, however it was opened.
    for to in [">/dev/null", "1<>/dev/null", ">&2 2>/dev/null"] {
        let mut command = Command::new("sh");
        let script = format!("exec \"$@\" {to}");
        command.current_dir(folder.root()).args(["-c", &script, "sh", PKHASH, "stats", "t.pkh"]);
        assert_eq!(run(command.stdin(Stdio::null())).status.code(), Some(0), "{to}");
    }
}

/// Left by `kill -9`: `verify` of the folder names it, and the next build of that table removes it.
#[test]
fn what_a_kill_leaves_is_named_and_removed() {
    let folder = Folder::new();
    // A name so long that the temporary file's cannot hold all of it.
    for name in ["t.pkh".to_owned(), "n".repeat(251) + ".pkh"] {
        folder.write("list", "a\n");
        run(&mut command(folder.root(), ["build", "list", "-o", &name])).expect(0);
        let mut child = command(folder.root(), ["build", "-", "-o", &name, "--ordered"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        if name.len() > 251 {
            // With `.fst` that name is too long for any file.
            assert_eq!(child.wait().unwrap().code(), Some(2));
            child = command(folder.root(), ["build", "-", "-o", &name])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
        }
        wait_until("a temporary file", || temporary_len(folder.root()).is_some());
        // In use: not named, and not removed by another build.
        let verified = run(&mut command(folder.root(), ["verify", "."])).expect(0);
        assert!(!verified.err.contains(".tmp"), "{}", verified.err);
        run(&mut command(folder.root(), ["build", "list", "-o", &name])).expect(0);
        assert!(temporary_len(folder.root()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        let left: Vec<String> =
            folder.names().into_iter().filter(|name| name.ends_with(".tmp")).collect();
        assert!(!left.is_empty());
        let verified = run(&mut command(folder.root(), ["verify", "."])).expect(0);
        assert!(left.iter().all(|left| verified.err.contains(left)), "{}", verified.err);
        let ordered = name.len() < 251;
        let args = ["build", "list", "-o", &name, "--ordered"];
        run(&mut command(folder.root(), &args[..4 + usize::from(ordered)])).expect(0);
        assert_eq!(temporary_len(folder.root()), None);
        assert_eq!(run(&mut command(folder.root(), ["verify", "."])).expect(0).err, "");
    }
}

/// Killed at any moment: the old table or the new one, whole, and at most temporary files beside it.
#[test]
fn killed_at_any_moment() {
    let folder = Folder::new();
    folder.write("list", list(8, 40_000));
    let old = numbered("old", 0..100);
    let path = folder.path("out.pkh");
    let args = ["build", "list", "-o", "out.pkh", "--partition-bits", "8"];
    // How long a whole build takes here decides how long to wait at most before the kill.
    let began = std::time::Instant::now();
    run(&mut command(folder.root(), args)).expect(0);
    let whole = began.elapsed();
    let new = folder.read("out.pkh");
    let mut rng = Rng(9);
    let mut killed = 0;
    for round in 0..24 {
        publish(&path, WriterOptions::default(), slices(&old)).unwrap();
        let before = folder.read("out.pkh");
        let mut child = command(folder.root(), args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole * round / 20 + Duration::from_micros(rng.below(2000) as u64));
        // It may have come to its end.
        let _ = child.kill();
        let status = child.wait().unwrap();
        killed += usize::from(!status.success());
        let after = folder.read("out.pkh");
        assert!(after == before && !status.success() || after == new, "{status}");
        TableFile::open(&path).unwrap().verify().unwrap();
        for name in folder.names() {
            match name.as_str() {
                "list" | "out.pkh" => {}
                // What a killed process leaves has a name that says so, and that is hidden.
                name => {
                    assert!(name.starts_with(".out.pkh.") && name.ends_with(".tmp"), "{name}");
                    fs::remove_file(folder.path(name)).unwrap();
                }
            }
        }
    }
    assert!(killed > 0, "no build was killed before its end");
}

/// `pkhash dump … | head -1`: who reads has seen enough, which is no error.
#[test]
fn output_closed_early() {
    let folder = Folder::new();
    let keys = list(10, 20_000);
    folder.write("list", &keys);
    run(&mut command(folder.root(), ["build", "list", "-o", "t.pkh"])).expect(0);
    for args in [
        &["dump", "t.pkh"][..],
        &["dump", "t.pkh", "--json"],
        &["dump", "t.pkh", "--hex"],
        &["get", "t.pkh", "--keys", "list"],
        &["get", "t.pkh", "--keys", "list", "--json"],
    ] {
        let mut child = command(folder.root(), args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        // Dropped, and so closed, with the rest unread: far more than a pipe holds.
        BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.ends_with('\n'), "{args:?}");
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*err), (Some(0), ""), "{args:?}");
    }
    // A table that goes to a pipe is lost, however: that is one.
    let mut child = command(folder.root(), ["build", "list", "-o", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !err.contains("panicked"), "{err}");
}

/// Two builds of one table at once: the last one wins, both are whole, and neither disturbs the other.
#[test]
fn two_builds_of_one_table() {
    let folder = Folder::new();
    let models = [numbered("a", 0..3000), numbered("b", 0..2000)];
    for (name, model) in ["a", "b"].iter().zip(&models) {
        // In the order of their numbers.
        let lines: String = (0..model.len()).map(|i| format!("{name}-{i}\n")).collect();
        folder.write(name, lines);
    }
    for _ in 0..3 {
        let children = ["a", "b"].map(|list| {
            command(folder.root(), ["build", list, "-o", "out.pkh"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        });
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(folder.names(), ["a", "b", "out.pkh"]);
        let path = folder.path("out.pkh");
        let keys = TableFile::open(&path).unwrap().footer().keys() as usize;
        let model = models.iter().find(|model| model.len() == keys).unwrap();
        check(&open_all(&path).remove(0), model, &[]);
    }
}

/// The rest of the input is not waited for.
#[test]
fn an_error_in_the_middle_of_the_input_ends_the_build() {
    let folder = Folder::new();
    let mut input = list(11, 1000);
    input.extend_from_slice(b"not hex\n");
    input.extend_from_slice(&list(12, 100_000));
    let run = run_with_input(
        &mut command(folder.root(), ["build", "-", "--hex", "-o", "out.pkh"]),
        &input,
    );
    run.fails(&["standard input:1001", "not hex"]);
    assert!(folder.names().is_empty());
}
