//! The command where memory or threads are few.

#![cfg(unix)]

mod common;

use common::Folder;
#[cfg(target_os = "linux")]
use common::command::command;
use common::command::{PKHASH, Run, run};

/// A command under a limit of address space, in KiB.
#[cfg(target_os = "linux")]
fn limited(folder: &Folder, kib: usize, args: &str) -> Run {
    let mut shell = std::process::Command::new("sh");
    let script = format!("ulimit -v {kib} || exit 99; exec \"$0\" {args}");
    run(shell.arg("-c").arg(script).arg(PKHASH).current_dir(folder.root()))
}

/// Whatever the limit, on one thread: done, or an error that says what to do; never an abort, and nothing is left behind.
#[cfg(target_os = "linux")]
#[test]
fn too_little_memory_is_an_error() {
    let folder = Folder::new();
    let lines = |from: u64| -> String { (from..from + 60_000).map(|i| format!("{i}\n")).collect() };
    for (seed, from) in [("1", 0), ("1", 60_000), ("2", 120_000)] {
        folder.write("keys", lines(from));
        let name = format!("{from}.pkh");
        let args = ["build", "keys", "--seed", seed, "-o", &name];
        run(&mut command(folder.root(), args)).expect(0);
    }
    folder.write("keys", lines(0));
    let before = folder.names();
    // The least with which the program starts at all.
    let starts = (1..40).map(|step| 4096 * step);
    let mut starts = starts.filter(|kib| limited(&folder, *kib, "--version").status.success());
    let least = starts.next().unwrap() + 4096;
    for args in [
        "build keys -o new.pkh --threads 1",
        "build keys -o new.pkh --threads 1 --ordered",
        "build keys -o new.pkh --threads 1 --memory 8MiB",
        "merge 0.pkh 60000.pkh --offset -o new.pkh --threads 1",
        "merge 0.pkh 60000.pkh 120000.pkh --offset -o new.pkh --threads 1 --open heap",
    ] {
        let (mut done, mut refused) = (0, 0);
        for more in (0..10).map(|step| 2 * step * step * 1024) {
            let run = limited(&folder, least + more, args);
            let mut names = folder.names();
            if run.status.code() == Some(0) {
                done += 1;
                names.retain(|name| !name.starts_with("new.pkh"));
                for made in ["new.pkh", "new.pkh.fst"] {
                    let _ = std::fs::remove_file(folder.path(made));
                }
            } else {
                refused += 1;
                let err = run.expect(2).err;
                // The last: memory that could be had, but left too little for anything else.
                let said = ["--memory", "Cannot allocate memory", "out of memory"];
                assert!(said.iter().any(|part| err.contains(part)), "{args}, {more}: {err}");
                // A table may be complete, and the error of its companion says so.
                if err.contains("the table is complete") {
                    names.retain(|name| name != "new.pkh");
                    std::fs::remove_file(folder.path("new.pkh")).unwrap();
                }
            }
            assert_eq!(names, before, "{args}, {more}");
        }
        assert!(done > 0 && refused > 0, "{args}: {done} done, {refused} refused");
    }
}

/// `--threads 1` builds on the main thread; the only other one waits for signals.
#[cfg(target_os = "linux")]
#[test]
fn one_thread_starts_no_others() {
    let folder = Folder::new();
    folder.write("keys", (0..10_000).map(|i| format!("{i}\n")).collect::<String>());
    for (threads, most) in [("1", 1), ("3", 9)] {
        for args in [
            "build keys -o a.pkh --ordered --partition-bits 3",
            "merge a.pkh -o b.pkh --ordered --partition-bits 3",
        ] {
            let script = format!(
                "strace -f -qq -e trace=clone,clone3 -o trace \"$0\" {args} --threads {threads}"
            );
            let mut shell = std::process::Command::new("sh");
            let run = run(shell.arg("-c").arg(script).arg(PKHASH).current_dir(folder.root()));
            if run.status.code() == Some(127) {
                // No strace here.
                return;
            }
            run.expect(0);
            let trace = String::from_utf8(folder.read("trace")).unwrap();
            let started = trace.lines().filter(|line| line.contains("clone")).count();
            assert!(started <= most, "{args} --threads {threads}: {trace}");
            assert_eq!(started > 1, threads != "1", "{args}: {trace}");
        }
    }
}

/// Threads that cannot be started: fewer build, and a note says so. (The limit is that of a user, and not of root.)
#[cfg(target_os = "linux")]
#[test]
fn fewer_threads_than_asked_for() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = Folder::new();
    folder.write("keys", (0..50_000).map(|i| format!("{i}\n")).collect::<String>());
    if std::fs::metadata(folder.path("keys")).unwrap().uid() != 0 {
        // Other processes of this user count, too.
        return;
    }
    let mode = |path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::copy(PKHASH, folder.path("pkhash")).unwrap();
    mode(folder.path("pkhash"), 0o755);
    mode(folder.root().to_owned(), 0o777);
    let mut tables = Vec::new();
    // One for the program, one for its signals.
    for (limit, threads, missing) in [(2, 1, 0), (2, 8, 7), (100, 2, 0)] {
        for args in [
            "build keys -o t.pkh --partition-bits 4 --ordered",
            "merge t.pkh -o m.pkh --partition-bits 5",
        ] {
            let script = format!("ulimit -u {limit} && exec ./pkhash {args} --threads {threads}");
            let mut su = std::process::Command::new("su");
            su.args(["nobody", "-s", "/bin/bash", "-c", &script]).current_dir(folder.root());
            let run = run(&mut su).expect(0);
            let note = format!("note: {missing} of the threads could not be started");
            assert_eq!(run.err.contains(&note), missing > 0, "{args}, {limit}: {}", run.err);
        }
        tables.push((folder.read("t.pkh"), folder.read("m.pkh"), folder.read("t.pkh.fst")));
    }
    assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
}
