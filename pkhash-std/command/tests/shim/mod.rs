//! Commands whose system calls fail: see `shim.c`. No part of it is in what is tested.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::command::Run;
use crate::common::names;

pub(crate) mod stage;

pub(crate) const EINTR: i32 = 4;
pub(crate) const EIO: i32 = 5;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const ENOMEM: i32 = 12;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const EDQUOT: i32 = 122;

/// What happens to the calls on files of the command's folder. They are counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault<'f> {
    /// Nothing.
    None,
    /// SIGKILL before this call.
    Kill(usize),
    /// SIGKILL in the middle of this call.
    Torn(usize),
    /// This call fails with this number.
    Fail(usize, i32),
    /// From this call on, every one fails that needs room; this one does in any case.
    Full(usize, i32),
    /// No file can be made or renamed.
    Create(i32),
    /// No file without a name can be made.
    Nameless(i32),
    /// Reads and writes end early.
    Short,
    /// Signals interrupt whatever they can.
    Signals,
    /// Both.
    Worn,
    /// Before this call, a shell in the folder does something.
    At(usize, &'f str),
}

/// A call, as the shim logs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// Seen from the command's folder.
    pub(crate) path: PathBuf,
}

impl Call {
    /// The file's name without what is random in it; a dot for the folder itself.
    pub(crate) fn file(&self) -> String {
        let Some(name) = self.path.file_name() else { return ".".to_owned() };
        let name = name.to_string_lossy().into_owned();
        // The last: for a moment, where files without a name are not to be had.
        if name.ends_with("(deleted)") || name.starts_with('#') || name.starts_with(".tmp") {
            return "nameless".to_owned();
        }
        if is_waiting(&name) {
            return format!("{}.waiting", &name[..name.len() - 17]);
        }
        match name.strip_suffix(".tmp").and_then(|name| name.rsplit_once('.')) {
            Some((name, _)) => format!("{name}.tmp"),
            None => name,
        }
    }
}

/// A run under the shim.
pub(crate) struct Shimmed {
    pub(crate) run: Run,
    /// All calls, the one that failed or was not made included.
    pub(crate) calls: Vec<Call>,
}

impl Shimmed {
    /// Whether the shim ended it.
    pub(crate) fn was_killed(&self) -> bool {
        self.run.status.code() == Some(128 + 9)
    }
}

/// Whether this is where a companion waits for its table.
fn is_waiting(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(before, digits)| {
        let is_hex = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        name.starts_with('.') && before.ends_with(".fst") && is_hex
    })
}

/// Files that were given their names by these calls.
pub(crate) fn renames(calls: &[Call]) -> usize {
    let renames = calls.iter().filter(|call| call.name == "rename");
    renames.filter(|call| !call.file().ends_with(".waiting")).count()
}

/// Whether everything is asked for that takes longer: see `.ci/faults`.
pub(crate) fn full() -> bool {
    std::env::var_os("PKHASH_FAULTS").is_some_and(|value| value == "full")
}

/// The shim, compiled by the compiler that links Rust's programs.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shim/shim.c");
        // Renamed, so that other processes that test find it whole.
        let (made, shim) =
            (folder.join(format!("shim-{}", std::process::id())), folder.join("shim"));
        let output = Command::new("cc")
            .args(["-O1", "-o"])
            .args([made.as_os_str(), OsStr::new(source)])
            .output()
            .expect("the compiler that links Rust's programs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(made, &shim).unwrap();
        shim
    })
}

/// Whether the kernel lets calls be watched. Where it does not (in some containers) there is nothing to
/// test with; `.ci/faults` takes that for an error.
pub(crate) fn works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let output = Command::new(shim())
            .args(["/dev/null", "/nowhere", "trace", "0", "-", "true"])
            .output()
            .unwrap();
        match output.status.code() {
            Some(0) => true,
            Some(77) if !full() => {
                eprintln!("not tested: {}", String::from_utf8_lossy(&output.stderr));
                false
            }
            code => panic!("{code:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    })
}

/// Runs a program in a folder to its end. Its standard output goes to `stdout`, if that is given.
pub(crate) fn shimmed<S: AsRef<OsStr>>(
    folder: &Path,
    fault: Fault<'_>,
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
    stdout: Option<fs::File>,
) -> Shimmed {
    static LOGS: AtomicU64 = AtomicU64::new(0);
    let number = LOGS.fetch_add(1, Ordering::Relaxed);
    let log = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("shim-{}-{number}.log", std::process::id()));
    let (mode, n, argument) = match fault {
        Fault::None => ("trace", 0, String::new()),
        Fault::Kill(n) => ("kill", n, String::new()),
        Fault::Torn(n) => ("torn", n, String::new()),
        Fault::Fail(n, errno) => ("fail", n, errno.to_string()),
        Fault::Full(n, errno) => ("full", n, errno.to_string()),
        Fault::Create(errno) => ("create", 0, errno.to_string()),
        Fault::Nameless(errno) => ("nameless", 0, errno.to_string()),
        Fault::Short => ("short", 0, String::new()),
        Fault::Signals => ("signals", 0, String::new()),
        Fault::Worn => ("worn", 0, String::new()),
        Fault::At(n, shell) => ("at", n, shell.to_owned()),
    };
    // The kernel knows a folder by its real path.
    let real = folder.canonicalize().unwrap();
    let mut command = Command::new(shim());
    command
        .current_dir(folder)
        .args([log.as_os_str(), real.as_os_str()])
        .args([mode, &n.to_string(), &argument])
        .arg(program)
        .args(args)
        .env_remove("PKHASH_KERNEL")
        .stdin(Stdio::null())
        .stdout(stdout.map_or_else(Stdio::piped, Stdio::from))
        .stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!matches!(output.status.code(), Some(77 | 78 | 127) | None), "{fault:?}: {err}");
    let calls = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    let calls = calls
        .lines()
        .map(|line| {
            let (name, path) = line.split_once(' ').unwrap();
            let path = Path::new(path).strip_prefix(&real).unwrap();
            Call { name: name.to_owned(), path: path.to_owned() }
        })
        .collect();
    Shimmed { run: Run { status: output.status, out: output.stdout, err }, calls }
}

/// How the message of an error ends that came with this number.
pub(crate) fn cause(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

/// Removes what killed processes have left beside the files of these names, which must have hidden names
/// that say so. Returns how many there were.
pub(crate) fn remove_temporaries(folder: &Path, known: &[String]) -> usize {
    let left: Vec<String> =
        names(folder).into_iter().filter(|name| !known.contains(name)).collect();
    for name in &left {
        // The latter from a file that was about to lose its name, where there is no other way.
        let says_so = name.ends_with(".tmp") || name.starts_with(".tmp") || is_waiting(name);
        assert!(name.starts_with('.') && says_so, "left behind: {name}");
        fs::remove_file(folder.join(name)).unwrap();
    }
    left.len()
}
