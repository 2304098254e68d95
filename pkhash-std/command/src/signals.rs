//! Ctrl-C, SIGTERM, SIGHUP: how a command stops, clears up, and says what ended it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::fail::{Result, note};

/// The number of the signal that came; 0: none.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// How this process ends if a signal came: as a shell tells of one that a signal has ended.
pub(crate) fn exit_code() -> Option<u8> {
    match SIGNAL.get()?.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(128 + signal as u8),
    }
}

/// How a command is stopped by a signal.
pub(crate) struct Cancel {
    flag: Arc<AtomicBool>,
    exit: Arc<Mutex<Exit>>,
}

/// What a signal finds that ends the process.
#[derive(Default)]
struct Exit {
    /// The files or folders to remove.
    temporaries: Vec<PathBuf>,
    /// The main thread would not see the flag: it may be waiting for its input.
    blocked: bool,
}

impl Cancel {
    /// Handles the signals. The first one sets the flag, which is looked at between pieces of work;
    /// the second one ends the process at once, and so does the first one in [`at_once`](Self::at_once).
    pub(crate) fn new() -> Result<Self> {
        let cancel = Self { flag: Arc::default(), exit: Arc::default() };
        let (flag, exit) = (cancel.flag.clone(), cancel.exit.clone());
        let number = SIGNAL.get_or_init(Arc::default).clone();
        let mut signals = 0;
        let came = move || {
            signals += 1;
            let Ok(exit) = exit.lock() else { return };
            if signals > 1 || exit.blocked {
                for path in &exit.temporaries {
                    // Nothing can be done about a failure, and the process ends anyway.
                    let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
                }
                std::process::exit(exit_code().map_or(2, i32::from));
            }
        };
        if let Err(error) = handle(number, flag, came) {
            note(format_args!("Ctrl-C would leave a temporary file: {error}"));
        }
        Ok(cancel)
    }

    fn change(&self, change: impl FnOnce(&mut Exit)) {
        if let Ok(mut exit) = self.exit.lock() {
            change(&mut exit);
        }
    }

    /// What is set by a signal.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// Names more temporary files or folders that must not be left behind.
    pub(crate) fn remove_on_exit<'p>(&self, temporaries: impl IntoIterator<Item = &'p Path>) {
        self.change(|exit| exit.temporaries.extend(temporaries.into_iter().map(Path::to_owned)));
    }

    /// Runs something that does not look at the flag, such as reading, which may wait for ever: a signal
    /// ends the process at once.
    pub(crate) fn at_once<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.change(|exit| exit.blocked = true);
        // A signal that came before.
        let result = self.check().and_then(|()| work());
        self.change(|exit| exit.blocked = false);
        result
    }

    /// Stops here if a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        if self.flag.load(Ordering::Relaxed) {
            return Err(pkhash_std::Error::Cancelled.into());
        }
        Ok(())
    }
}

/// Sets number and flag when a signal comes, and calls `came` in a thread of its own.
#[cfg(unix)]
fn handle(
    number: Arc<AtomicUsize>,
    flag: Arc<AtomicBool>,
    mut came: impl FnMut() + Send + 'static,
) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    let handled: Vec<i32> =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)).collect();
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    // The thread first: signals that were handled by nobody could not end the process.
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let register = || {
            for signal in &handled {
                // In the handler itself, so that it is known however soon the process ends.
                signal_hook::flag::register_usize(*signal, number.clone(), *signal as usize)?;
                signal_hook::flag::register(*signal, flag.clone())?;
            }
            signal_hook::iterator::Signals::new(&handled)
        };
        let registered = register();
        let (failed, mut signals) = match registered {
            Ok(signals) => (Ok(()), Some(signals)),
            Err(error) => (Err(error), None),
        };
        // Nobody waits for it no longer only if the process ends.
        let _ = ready.send(failed);
        for _ in signals.iter_mut().flat_map(|signals| signals.forever()) {
            came();
        }
    })?;
    is_ready.recv().unwrap_or_else(|_| Err(std::io::Error::other("no thread for signals")))
}

/// Whether a signal is ignored, as by `nohup`, which is to stay so. Linux alone tells.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Ctrl-C is the only one.
#[cfg(not(unix))]
fn handle(
    number: Arc<AtomicUsize>,
    flag: Arc<AtomicBool>,
    mut came: impl FnMut() + Send + 'static,
) -> std::io::Result<()> {
    ctrlc::set_handler(move || {
        number.store(2, Ordering::Relaxed);
        flag.store(true, Ordering::Relaxed);
        came();
    })
    .map_err(std::io::Error::other)
}
