//! Running the `pkhash` binary.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// The binary under test.
pub(crate) const PKHASH: &str = env!("CARGO_BIN_EXE_pkhash");

/// A finished run.
pub(crate) struct Run {
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Run {
    /// The exit code, which must be this one.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        let out = String::from_utf8_lossy(&self.out[..self.out.len().min(2000)]).into_owned();
        assert_eq!(self.status.code(), Some(code), "stdout: {out}\nstderr: {}", self.err);
        // A run that ends well has nothing to complain about; notes are no complaints.
        if code == 0 {
            let complaint = self.err.lines().find(|line| !line.starts_with("pkhash: note: "));
            assert_eq!(complaint, None);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// An error (exit code 2) whose message has all these parts.
    #[track_caller]
    pub(crate) fn fails(self, parts: &[&str]) -> String {
        let run = self.expect(2);
        for part in parts {
            assert!(run.err.contains(part), "no {part:?} in: {}", run.err);
        }
        run.err
    }

    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap()
    }

    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A command in a folder: paths on its command line may be relative to that.
pub(crate) fn command<S: AsRef<OsStr>>(
    folder: &Path,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(PKHASH);
    command.current_dir(folder).args(args).env_remove("PKHASH_KERNEL").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Run { status: output.status, out: output.stdout, err }
}

/// Runs a command to its end with this on its standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A command that fails early closes its input: not our concern.
        scope.spawn(move || drop(stdin.write_all(input)));
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Run { status: output.status, out: output.stdout, err }
    })
}

/// The signal, or another one that ends a command: what `nohup` or a shell's `&` has turned off for the tests is off
/// in all that they start, and they would wait for ever.
pub(crate) fn heard(signal: &'static str) -> &'static str {
    let bit = match signal {
        "HUP" => 0,
        "INT" => 1,
        _ => return signal,
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.unwrap_or(0) >> bit & 1 == 1 { "TERM" } else { signal }
}
