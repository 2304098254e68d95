//! Builds and merges that are killed: before each of their system calls on files and in the middle of each
//! write, and at moments that nobody chose. The old file or the new one, both whole; of several, the first ones are
//! new, and a table always has its companion; beside each one hidden temporary file at most; and the next run works,
//! and removes them.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;
mod shim;

use std::process::Stdio;
use std::time::Instant;

use common::Rng;
use common::command::command;
use shim::stage::{self, Old, Stage};
use shim::{Fault, full, renames, works};

/// Kills a command before each call and in each write.
fn kill_everywhere(stage: &Stage) -> usize {
    let mut kills = 0;
    for n in 1..=stage.calls.len() {
        let write = stage.calls[n - 1].name == "write";
        let faults = [Some(Fault::Kill(n)), write.then_some(Fault::Torn(n))];
        for fault in faults.into_iter().flatten() {
            let what = format!("{fault:?}, {:?}", stage.calls[n - 1]);
            stage.reset();
            let killed = stage.run(fault);
            assert!(killed.was_killed(), "{}: {what}: {}", stage.name, killed.run.err);
            kills += 1;
            // A file is new as soon as it was renamed, and not before.
            let renamed = renames(&killed.calls[..n - 1]);
            assert_eq!(stage.published(&what), renamed, "{}: {what}", stage.name);
            // The next run is not disturbed by what this one has left.
            if n % 4 == 0 || full() {
                stage.restore_inputs();
                stage.run_plainly().expect(0);
                assert_eq!(stage.published(&what), stage.outputs.len(), "{}: {what}", stage.name);
                // And clears up behind it.
                stage.check_nothing_left();
            }
            assert!(stage.remove_left() <= stage.outputs.len(), "{}: {what}", stage.name);
        }
    }
    kills
}

#[test]
fn small_commands_killed_at_every_call() {
    if !works() {
        return;
    }
    let kills: usize = stage::small().iter().map(kill_everywhere).sum();
    assert!(kills > 200, "{kills}");
}

#[test]
fn large_commands_killed_at_every_call() {
    if !works() {
        return;
    }
    let kills: usize = stage::large().iter().map(kill_everywhere).sum();
    assert!(kills > 60, "{kills}");
}

/// The steps of publishing are among these calls, in their order.
#[test]
fn the_calls_of_publishing() {
    if !works() {
        return;
    }
    let stage = stage::build_ordered(Old::Whole);
    for output in stage.outputs {
        let temporary = format!(".{output}.tmp");
        let mut steps = stage.calls.iter().map(|call| (call.name.as_str(), call.file()));
        for (name, file) in [
            ("open-new", temporary.clone()),
            ("write", temporary.clone()),
            ("chmod", temporary.clone()),
            ("sync", temporary),
            ("rename", (*output).to_owned()),
            ("sync", ".".to_owned()),
        ] {
            assert!(steps.any(|step| step == (name, file.clone())), "no {name} {file} there");
        }
    }
}

/// Which files get their names when, of a table with all that may come with it.
#[test]
fn the_order_of_publishing() {
    if !works() {
        return;
    }
    let stage = stage::merge_with_maps(true);
    let renames_and_syncs: Vec<(&str, String)> = stage
        .calls
        .iter()
        .map(|call| (call.name.as_str(), call.file()))
        .filter(|(name, file)| *name == "rename" || *name == "sync" && file == ".")
        .collect();
    let expected = ["a.map", "b.map", ".a.pkh.fst.waiting", "a.pkh", "a.pkh.fst"]
        .map(|file| [("rename", file.to_owned()), ("sync", ".".to_owned())]);
    assert_eq!(renames_and_syncs, expected.concat());
    // All of them are whole and synced by then.
    let first = stage.calls.iter().position(|call| call.name == "rename").unwrap();
    let last_write = stage.calls.iter().rposition(|call| call.name == "write").unwrap();
    let last_sync = stage.calls.iter().rposition(|call| call.name == "sync" && call.file() != ".");
    assert!(last_write < last_sync.unwrap() && last_sync.unwrap() < first);
}

/// Without the shim, and with all threads.
fn kill_anytime(stage: &Stage, rounds: u32, seed: u64) {
    let mut args = stage.args.clone();
    args.truncate(args.len() - 2);
    let start = || {
        stage.reset();
        let mut command = command(stage.folder.root(), &args);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // How long a whole run takes here decides how long to wait at most before the kill.
    let began = Instant::now();
    assert!(start().wait().unwrap().success());
    let whole = began.elapsed();
    let mut rng = Rng(seed);
    let mut killed = 0;
    for round in 0..rounds {
        let what = format!("round {round}");
        let mut child = start();
        std::thread::sleep(whole.mul_f64(rng.below(1000) as f64 / 900.0));
        // It may have come to its end.
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let published = stage.published(&what);
        if output.status.success() {
            assert_eq!(published, stage.outputs.len(), "{}: {what}", stage.name);
            stage.check_nothing_left();
        } else {
            assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
            killed += 1;
            assert!(stage.remove_left() <= stage.outputs.len(), "{}: {what}", stage.name);
        }
    }
    assert!(killed > 0, "{}: none of {rounds} was killed before its end", stage.name);
    stage.restore_inputs();
    stage.run_plainly().expect(0);
    assert_eq!(stage.published("the next run"), stage.outputs.len());
    stage.check_nothing_left();
}

#[test]
fn killed_at_any_moment() {
    if !works() {
        return;
    }
    let rounds = if full() { 200 } else { 16 };
    for (seed, stage) in (10..).zip([
        stage::build(Old::Whole),
        stage::build_ordered(Old::Whole),
        stage::build_medium(Old::Whole),
        stage::build_spilled(Old::Missing),
        stage::merge_medium(Old::Whole),
        stage::merge_ordered_over_input(),
        stage::merge_with_maps(true),
    ]) {
        kill_anytime(&stage, rounds, seed);
    }
}
