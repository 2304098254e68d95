//! Progress bars, sizes, and how tables are opened.

use std::io;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use pkhash_std::{
    Advice, AnyKernel, Error, Index, IndexWriter, OpenOptions, OrderedOptions, OrderedTerms,
    Progress, SegmentMapOptions, Table, TableFile, companion_path,
};

use crate::fail::{Fail, Result};
use crate::map;
pub(crate) use crate::signals::Cancel;
use crate::tables::is_folder;

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

/// Shows partitions being written, and stops on Ctrl-C.
pub(crate) fn progress(what: &'static str, cancel: &Cancel) -> Progress {
    let bar = bar(what, 0);
    Progress::default().cancelled_by(cancel.flag()).reported_to(move |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        if done == all {
            bar.finish_and_clear();
        }
    })
}

/// The kernel that `PKHASH_KERNEL` asks for, or the detected one.
pub(crate) fn kernel() -> Result<AnyKernel> {
    let name = std::env::var_os("PKHASH_KERNEL").unwrap_or_default();
    if name.is_empty() {
        return Ok(AnyKernel::detect());
    }
    let name = name.to_string_lossy();
    AnyKernel::by_name(&name).ok_or_else(|| {
        let here: Vec<_> = AnyKernel::available().map(AnyKernel::name).collect();
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
        let options = self.options()?;
        // What cannot be mapped is read to its end.
        if path == Path::new("-") {
            return read(options, io::stdin().lock(), path);
        }
        let cannot_open = |source| Error::Io { doing: "open", path: path.to_owned(), source };
        if is_pipe(path).map_err(cannot_open)? {
            let pipe = std::fs::File::open(path).map_err(cannot_open)?;
            return read(options, pipe, path);
        }
        Ok(self.open_file(options, path)?)
    }

    /// Opens a folder that is an index. `None`: it has no manifest, or is no folder.
    pub(crate) fn index(self, path: &Path) -> Result<Option<Index>> {
        if !is_folder(path)? {
            return Ok(None);
        }
        let options = self.options()?;
        let index = match self.open {
            OpenMode::Map => map::index(options, path),
            OpenMode::Heap => Index::open_with(path, options),
        };
        match index {
            Err(Error::NoIndex { .. }) => Ok(None),
            index => Ok(Some(index?)),
        }
    }

    /// Opens the ordered companion of a table that is open. Unless it is trusted, all of it is read and
    /// checked.
    pub(crate) fn open_companion(
        self,
        table: &TableFile,
        trusted: bool,
    ) -> pkhash_std::Result<OrderedTerms> {
        OrderedTerms::open_beside_by(table, self.companion(trusted))
    }

    /// Opens a table and its ordered companion, such that they belong together.
    pub(crate) fn open_pair(self, path: &Path, trusted: bool) -> Result<(TableFile, OrderedTerms)> {
        let options = self.options()?;
        let open = |path: &Path| self.open_file(options, path);
        let pair = OrderedTerms::open_pair_by(path, open, self.companion(trusted));
        pair.map_err(|error| no_companion(path, error))
    }

    /// Opens the ordered companion of a table of an index.
    pub(crate) fn open_beside(self, table: &TableFile, trusted: bool) -> Result<OrderedTerms> {
        self.open_companion(table, trusted).map_err(|error| no_companion(table.name(), error))
    }

    fn open_file(self, options: OpenOptions, path: &Path) -> pkhash_std::Result<TableFile> {
        match self.open {
            OpenMode::Map => map::table(options, path),
            OpenMode::Heap => options.open(path),
        }
    }

    /// How companions are opened.
    fn companion(
        self,
        trusted: bool,
    ) -> impl FnMut(&Path, &Table<'_>) -> pkhash_std::Result<OrderedTerms> {
        let options = OrderedOptions::new().advice(self.advice()).trusted(trusted);
        move |path, table| match self.open {
            OpenMode::Map => map::companion(options, path, table),
            OpenMode::Heap => options.open(path, table),
        }
    }

    fn options(self) -> Result<OpenOptions> {
        let options = OpenOptions::new().advice(self.advice());
        Ok(options.preload(self.preload).kernel(kernel()?))
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

/// Begins to change an index. Its segment map is made with a bar, and stopped on Ctrl-C.
pub(crate) fn writer(index: &Index, cancel: &Cancel) -> Result<IndexWriter> {
    let mut writer = index.writer()?;
    writer.segment_map(SegmentMapOptions::default().progress(progress("mapping", cancel)));
    Ok(writer)
}

/// That there is none says how to make one.
fn no_companion(table: &Path, error: Error) -> Fail {
    match error {
        Error::Io { path, source, .. }
            if path != table && source.kind() == io::ErrorKind::NotFound =>
        {
            Fail::message(format_args!(
                "{}: no ordered companion at {} (build --ordered makes one)",
                table.display(),
                path.display()
            ))
        }
        error => error.into(),
    }
}

/// Opens an index to change it or to list it. Its tables are mapped.
pub(crate) fn open_index(folder: &Path) -> Result<Index> {
    Ok(map::index(OpenOptions::new().kernel(kernel()?), folder)?)
}

/// The same; makes an index of a folder that is none.
pub(crate) fn create_index(folder: &Path) -> Result<Index> {
    // To create one that is there would read all of its tables.
    if let Ok(index) = open_index(folder) {
        return Ok(index);
    }
    Index::create(folder)?;
    open_index(folder)
}

/// Reads a table that has no file which could be mapped.
fn read(options: OpenOptions, from: impl io::Read, name: &Path) -> Result<TableFile> {
    let named = |error| match error {
        Error::Io { doing, source, .. } => Error::Io { doing, path: name.to_owned(), source },
        Error::Table { source, .. } => Error::Table { path: Some(name.to_owned()), source },
        error => error,
    };
    Ok(options.read(from).map_err(named)?.named(name))
}

/// Whether a path is that of a pipe: `mkfifo`, or a shell's `<(…)`. What cannot be looked at is an error.
fn is_pipe(path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        Ok(path.metadata()?.file_type().is_fifo())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(false)
    }
}

/// Whether something lies where the companion of a table would; what cannot be looked at counts.
pub(crate) fn has_companion(table: &Path) -> bool {
    match companion_path(table).try_exists() {
        Ok(exists) => exists,
        Err(error) => error.kind() != io::ErrorKind::InvalidFilename,
    }
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
            Some(width) => ValueChoice::Fixed(ValueFormat::integer(width).map_err(Error::from)?),
        };
        Ok(Make { layout, value, partition_bits: self.partition_bits, packed: self.packed })
    }
}

/// Filter bits: a number, or `none`.
pub(crate) fn parse_filter_bits(text: &str) -> Result<u8, String> {
    match text {
        "none" => Ok(0),
        _ => match text.parse() {
            Ok(bits @ 0..=pkhash_core::MAX_FILTER_BITS) => Ok(bits),
            _ => Err(format!("expected 0…{} or none", pkhash_core::MAX_FILTER_BITS)),
        },
    }
}

/// A size such as 256MiB or 2GB.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let size: bytesize::ByteSize =
        text.parse().map_err(|_| "expected a size such as 256MiB or 2GB".to_owned())?;
    usize::try_from(size.as_u64()).map_err(|_| "more than this machine can address".to_owned())
}
