//! Progress bars, Ctrl-C, sizes, and how tables are opened.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use pkhash_std::{
    Advice, Control, Kernel, Mode, OpenOptions, OrderedOptions, OrderedTerms, TableFile,
    companion_path,
};

use crate::fail::{Fail, Result};
use crate::map;

/// A bar on standard error, if that is a terminal: `what`, a bar, a share, the time left.
pub(crate) fn bar(what: &'static str, all: u64) -> ProgressBar {
    let bar = ProgressBar::new(all).with_message(what);
    // The template is a constant; without it the bar would only look different.
    if let Ok(style) =
        ProgressStyle::with_template("{msg:10} {wide_bar} {percent:>3} %  {elapsed} (eta {eta})")
    {
        bar.set_style(style);
    }
    bar
}

/// As [`bar`], for work whose end is not known: counts keys.
pub(crate) fn counter(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what);
    if let Ok(style) =
        ProgressStyle::with_template("{msg:10} {spinner} {human_pos} keys  {per_sec}  {elapsed}")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Ctrl-C and SIGTERM: how a build or a merge stops and clears up.
pub(crate) struct Cancel {
    flag: Arc<AtomicBool>,
    exit: Arc<Mutex<Exit>>,
}

/// What a signal finds that ends the process.
#[derive(Default)]
struct Exit {
    /// The file or folder to remove.
    temporary: Option<PathBuf>,
    /// The main thread would not see the flag: it may be waiting for its input.
    blocked: bool,
}

impl Cancel {
    /// Handles the signals. The first one sets the flag, which is looked at between pieces of work;
    /// the second one ends the process at once, and so does the first one in [`at_once`](Self::at_once).
    pub(crate) fn new() -> Result<Self> {
        let cancel = Self { flag: Arc::default(), exit: Arc::default() };
        let (flag, exit) = (cancel.flag.clone(), cancel.exit.clone());
        ctrlc::set_handler(move || {
            let again = flag.swap(true, Ordering::Relaxed);
            let Ok(exit) = exit.lock() else { return };
            if again || exit.blocked {
                if let Some(path) = &exit.temporary {
                    // Nothing can be done about a failure, and the process ends anyway.
                    let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
                }
                std::process::exit(130);
            }
        })
        .map_err(|error| Fail::message(format_args!("cannot handle Ctrl-C: {error}")))?;
        Ok(cancel)
    }

    fn change(&self, change: impl FnOnce(&mut Exit)) {
        if let Ok(mut exit) = self.exit.lock() {
            change(&mut exit);
        }
    }

    /// Names the temporary file or folder that must not be left behind.
    pub(crate) fn remove_on_exit(&self, temporary: Option<&Path>) {
        self.change(|exit| exit.temporary = temporary.map(Path::to_owned));
    }

    /// Runs something that does not look at the flag, such as reading, which may wait for ever: a signal
    /// ends the process at once.
    pub(crate) fn at_once<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.change(|exit| exit.blocked = true);
        // A signal that came before.
        let result = if self.flag.load(Ordering::Relaxed) {
            Err(pkhash_std::Error::Cancelled.into())
        } else {
            work()
        };
        self.change(|exit| exit.blocked = false);
        result
    }
}

/// Shows partitions being written, and stops on Ctrl-C.
pub(crate) fn control(what: &'static str, cancel: &Cancel) -> Control {
    let bar = bar(what, 0);
    Control::default().cancelled_by(cancel.flag.clone()).on_progress(move |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        if done == all {
            bar.finish_and_clear();
        }
    })
}

/// The kernel that `PKHASH_KERNEL` asks for, or the detected one.
pub(crate) fn kernel() -> Result<Kernel> {
    let name = std::env::var_os("PKHASH_KERNEL").unwrap_or_default();
    if name.is_empty() {
        return Ok(Kernel::detect());
    }
    let name = name.to_string_lossy();
    Kernel::by_name(&name).ok_or_else(|| {
        let here: Vec<_> = Kernel::available().map(Kernel::name).collect();
        Fail::message(format_args!(
            "PKHASH_KERNEL={name}: not a kernel of this machine, which has {}",
            here.join(", ")
        ))
    })
}

#[derive(Clone, Copy, ValueEnum)]
enum OpenMode {
    /// Map the file: it must not be changed in place meanwhile.
    Map,
    /// Read it into memory.
    Heap,
    /// Read it into huge pages.
    HugePages,
}

#[derive(Clone, Copy, ValueEnum)]
enum OpenAdvice {
    Normal,
    Random,
    Sequential,
    WillNeed,
}

/// How a table is opened.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct OpenArgs {
    /// How the table's bytes are held.
    #[arg(long, value_enum, default_value = "map", help_heading = "Opening")]
    open: OpenMode,
    /// Read all of a mapped table first.
    #[arg(long, help_heading = "Opening")]
    preload: bool,
    /// What the operating system is told about accesses to a mapped table.
    #[arg(long, value_enum, default_value = "normal", help_heading = "Opening")]
    advice: OpenAdvice,
}

impl OpenArgs {
    pub(crate) fn open(self, path: &Path) -> Result<TableFile> {
        let options = OpenOptions::new().advice(self.advice()).preload(self.preload);
        let options = options.kernel(kernel()?);
        // What cannot be mapped is read to its end.
        if path == Path::new("-") {
            return read(options.mode(self.memory()), std::io::stdin().lock(), path);
        }
        if is_pipe(path) {
            let pipe = std::fs::File::open(path);
            let pipe = pipe.map_err(|source| pkhash_std::Error::Io {
                doing: "open",
                path: path.to_owned(),
                source,
            })?;
            return read(options.mode(self.memory()), pipe, path);
        }
        Ok(match self.open {
            OpenMode::Map => map::table(options, path)?,
            _ => options.mode(self.memory()).open(path)?,
        })
    }

    /// Opens the ordered companion of a table. Unless it is trusted, all of it is read and checked.
    pub(crate) fn open_companion(self, table: &TableFile, trusted: bool) -> Result<OrderedTerms> {
        let path = companion_path(table.name());
        if !has_companion(table) {
            return Err(Fail::message(format_args!(
                "{}: no ordered companion at {} (build --ordered makes one)",
                table.name().display(),
                path.display()
            )));
        }
        let options = OrderedOptions::new().advice(self.advice()).trusted(trusted);
        Ok(match self.open {
            OpenMode::Map => map::companion(options, &path, &table.table())?,
            _ => options.mode(self.memory()).open(path, &table.table())?,
        })
    }

    /// How bytes are held that are not mapped.
    const fn memory(self) -> Mode {
        match self.open {
            OpenMode::Map | OpenMode::Heap => Mode::Heap,
            OpenMode::HugePages => Mode::HugePages,
        }
    }

    const fn advice(self) -> Advice {
        match self.advice {
            OpenAdvice::Normal => Advice::Normal,
            OpenAdvice::Random => Advice::Random,
            OpenAdvice::Sequential => Advice::Sequential,
            OpenAdvice::WillNeed => Advice::WillNeed,
        }
    }
}

/// Reads a table that has no file which could be mapped.
fn read(options: OpenOptions, from: impl std::io::Read, name: &Path) -> Result<TableFile> {
    use pkhash_std::Error;
    let named = |error| match error {
        Error::Io { doing, source, .. } => Error::Io { doing, path: name.to_owned(), source },
        Error::Table { source, .. } => Error::Table { path: Some(name.to_owned()), source },
        error => error,
    };
    Ok(options.read(from).map_err(named)?.named(name))
}

/// Whether a path is that of a pipe: `mkfifo`, or a shell's `<(…)`.
fn is_pipe(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        path.metadata().is_ok_and(|meta| meta.file_type().is_fifo())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// Whether something lies where the companion of a table would; what cannot be looked at counts. Beside a
/// table that was read from a pipe, nothing does.
pub(crate) fn has_companion(table: &TableFile) -> bool {
    table.path().is_some_and(|path| !matches!(companion_path(path).try_exists(), Ok(false)))
}

/// What a table is to be like, and how it is built: shared by `build` and `merge`.
#[derive(clap::Args, Clone)]
pub(crate) struct MakeArgs {
    /// The layout: `auto` is perfect, or term-order for keys that are too long for it.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Table")]
    layout: LayoutArg,
    /// Bytes of each value, 1…8: by default as many as the largest value needs.
    #[arg(long, value_name = "BYTES", help_heading = "Table")]
    value_width: Option<u8>,
    /// 2^N partitions: by default so many that each has at most 131,072 keys and 8 MiB.
    #[arg(long, value_name = "N", help_heading = "Table")]
    partition_bits: Option<u8>,
    /// Lay the records of a perfect table back to back, even where keeping each within a cache line
    /// would cost less than 8 % of room.
    #[arg(long, help_heading = "Table")]
    packed: bool,
    /// Threads that build: by default one for each core.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) threads: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum LayoutArg {
    Auto,
    Inline,
    TermOrder,
    Perfect,
}

/// Layout, values and partition bits, checked.
pub(crate) struct Make {
    pub(crate) layout: pkhash_std::LayoutChoice,
    pub(crate) value: pkhash_std::ValueChoice,
    pub(crate) partition_bits: Option<u8>,
    pub(crate) packed: bool,
}

impl MakeArgs {
    pub(crate) fn make(&self) -> Result<Make> {
        use pkhash_std::{Layout, LayoutChoice, ValueChoice, ValueFormat};
        let layout = match self.layout {
            LayoutArg::Auto => LayoutChoice::Auto,
            LayoutArg::Inline => LayoutChoice::Fixed(Layout::Inline),
            LayoutArg::TermOrder => LayoutChoice::Fixed(Layout::TermOrder),
            LayoutArg::Perfect => LayoutChoice::Fixed(Layout::Perfect),
        };
        let value = match self.value_width {
            None => ValueChoice::Auto,
            Some(width) => {
                ValueChoice::Fixed(ValueFormat::integer(width).map_err(pkhash_std::Error::from)?)
            }
        };
        Ok(Make { layout, value, partition_bits: self.partition_bits, packed: self.packed })
    }
}

/// Filter bits: a number, or `none`.
pub(crate) fn parse_filter_bits(text: &str) -> Result<u8, String> {
    match text {
        "none" => Ok(0),
        _ => match text.parse() {
            Ok(bits @ 0..=pkhash_std::core::MAX_FILTER_BITS) => Ok(bits),
            _ => Err(format!("expected 0…{} or none", pkhash_std::core::MAX_FILTER_BITS)),
        },
    }
}

/// A size such as 256MiB or 2GB.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let size: bytesize::ByteSize =
        text.parse().map_err(|_| "expected a size such as 256MiB or 2GB".to_owned())?;
    usize::try_from(size.as_u64()).map_err(|_| "more than this machine can address".to_owned())
}
