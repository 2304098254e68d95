//! Building a table from a stream of keys, within a memory budget.

use std::io::Write;
use std::path::{Path, PathBuf};

use pkhash_core::ValueKind;
use pkhash_core::builder::{KeyStats, TableOptions, ValueChoice};
use pkhash_simd::AnyKernel;

use crate::budget::{partition_keys, window};
use crate::collect::{Collector, Encoded, collected_memory};
use crate::error::{Error, Result};
use crate::partition::{Builder, Built, OnDuplicate};
use crate::progress::Progress;
use crate::publish::{Destination, Publication, Target, absolute};
use crate::threads::Pool;

/// The least memory budget: below, the bins would be too small to be written one by one.
pub const MIN_MEMORY: usize = 8 << 20;

/// The memory budget unless the caller gives one.
pub const DEFAULT_MEMORY: usize = 1 << 30;

/// How a table is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WriterOptions {
    /// Layout, values, filter, seed and partitions.
    pub table: TableOptions,
    /// Bytes that collected keys and partitions under construction may take together; what the
    /// process needs besides is a few MB. At least [`MIN_MEMORY`]. The partition that is being built
    /// must fit: with more than 2^17 × 1,024 keys or 8 GiB of keys, partitions grow.
    pub memory: usize,
    /// Threads that build. 0: those of the rayon pool that the call runs in, so that a program can lend its
    /// own (`pool.install(|| writer.publish())`); without one, a thread for each core. The table does not depend on it. More than there are
    /// partitions, or many times the cores, are not started; 1 starts none, the caller's builds. If not all
    /// can be started, fewer build ([`Built::missing_threads`]).
    pub threads: usize,
    /// The kernel that builds; `None`: the detected one.
    pub kernel: Option<AnyKernel>,
    /// Where keys go that outgrow the budget; `None`: the folder of the table, or the system's folder
    /// for temporary files if the table is not published. The file has no name there and vanishes
    /// with the process, however it ends.
    pub temp_dir: Option<PathBuf>,
    /// What to do with a key that is added again.
    pub on_duplicate: OnDuplicate,
    /// Progress and cancelling.
    pub progress: Progress,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            table: TableOptions::default(),
            memory: DEFAULT_MEMORY,
            threads: 0,
            kernel: None,
            temp_dir: None,
            on_duplicate: OnDuplicate::Error,
            progress: Progress::default(),
        }
    }
}

pkhash_core::setters!(WriterOptions {
    table: TableOptions,
    memory: usize,
    threads: usize,
    kernel: impl Into<Option<AnyKernel>>,
    temp_dir: impl Into<Option<PathBuf>>,
    on_duplicate: OnDuplicate,
    progress: Progress,
});

/// Collects keys and builds a table of them.
///
/// ```
/// use pkhash_std::{TableFile, TableWriter, WriterOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders.pkh");
/// let mut writer = TableWriter::create(&path, WriterOptions::default())?;
/// for (doc, key) in ["order-17", "order-4", "order-256"].iter().enumerate() {
///     writer.add(key.as_bytes(), doc as u64)?;
/// }
/// writer.publish()?;
///
/// let table = TableFile::open(&path)?;
/// assert_eq!(table.get(b"order-4")?.and_then(|value| value.doc_id()), Some(1));
/// assert_eq!(table.get(b"order-5")?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TableWriter {
    options: WriterOptions,
    publication: Option<Publication>,
    /// Absolute.
    temp_dir: PathBuf,
    stats: KeyStats,
    collected: Collector,
    /// Values are integers.
    integers: bool,
}

impl TableWriter {
    /// A writer whose table will be published at `path`. Creates the temporary file at once, so that
    /// a folder that cannot be written to is found before the work.
    ///
    /// # Errors
    /// As [`Publication::begin`]; [`Error::Table`] for options out of range.
    pub fn create(path: impl AsRef<Path>, options: WriterOptions) -> Result<Self> {
        let publication = Publication::begin(path)?;
        let mut writer = Self::new(options)?;
        if writer.options.temp_dir.is_none() {
            publication.folder().clone_into(&mut writer.temp_dir);
        }
        writer.publication = Some(publication);
        Ok(writer)
    }

    /// A writer whose table will go to [`write_to`](Self::write_to).
    ///
    /// # Errors
    /// [`Error::Table`] for options out of range.
    pub fn new(options: WriterOptions) -> Result<Self> {
        // What does not depend on the keys is refused now.
        options.table.plan(&KeyStats::default())?;
        check_memory(options.memory)?;
        let (value_width, integers) = match options.table.value {
            ValueChoice::Auto => (8, true),
            ValueChoice::Fixed(value) => (value.width().into(), value.kind() == ValueKind::Integer),
        };
        let temp_dir = options.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        Ok(Self {
            temp_dir: absolute(&temp_dir),
            collected: Collector::new(collected_memory(options.memory), value_width),
            options,
            publication: None,
            stats: KeyStats::default(),
            integers,
        })
    }

    /// Adds a key with an integer value.
    ///
    /// # Errors
    /// [`Error::Table`] if the value does not fit the width that was asked for, or the key is too
    /// long; [`Error::Io`] if keys had to be spilled and could not, and from then on
    /// [`Error::WriterFailed`]; [`Error::Cancelled`].
    #[inline]
    pub fn add(&mut self, key: &[u8], value: u64) -> Result<()> {
        let bytes = value.to_le_bytes();
        let (kept, rest) = bytes.split_at(self.collected.value_width().min(8));
        if !self.integers || rest.iter().any(|byte| *byte != 0) {
            let needed = pkhash_core::ValueFormat::narrowest(value).width();
            return Err(self.wrong_width(if self.integers { needed.into() } else { 8 }));
        }
        self.push(key, kept)
    }

    /// Adds a key with a value of the fixed width that the options ask for; `&[]` for a set.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    #[inline]
    pub fn add_bytes(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if value.len() != self.collected.value_width()
            || matches!(self.options.table.value, ValueChoice::Auto)
        {
            return Err(self.wrong_width(value.len()));
        }
        self.push(key, value)
    }

    fn wrong_width(&self, found: usize) -> Error {
        let expected = self.collected.value_width() as u32;
        let found = u32::try_from(found).unwrap_or(u32::MAX);
        pkhash_core::Error::ValueWidth { expected, found }.into()
    }

    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > pkhash_core::format::MAX_KEY_LEN as usize {
            return Err(pkhash_core::Error::KeyLength {
                expected: pkhash_core::format::MAX_KEY_LEN.into(),
                found: key.len() as u64,
            }
            .into());
        }
        let hash = self.options.table.hasher.hash(key);
        let temp_dir = Some(self.temp_dir.as_path());
        self.collected.push(&Encoded { hash, value, key }, temp_dir, &self.options.progress)?;
        self.stats.add(key, if self.integers { value } else { &[] });
        Ok(())
    }

    /// The temporary file of a table that will be published, for who ends the process without
    /// dropping the writer.
    #[must_use]
    pub fn temporary_path(&self) -> Option<&Path> {
        self.publication.as_ref().map(Publication::temporary_path)
    }

    /// Number of keys added so far.
    #[must_use]
    pub const fn keys(&self) -> u64 {
        self.stats.keys
    }

    /// Builds the table and publishes it at the path that [`create`](Self::create) was given.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] unless a policy was chosen; [`Error::Table`] if the keys do not fit
    /// what was asked for; [`Error::Io`]; [`Error::Cancelled`]. The path then has what it had before,
    /// and no temporary file is left.
    /// [`Error::NoPath`] if the writer was made by [`new`](Self::new).
    pub fn publish(self) -> Result<Built> {
        let (built, publication) = self.finish()?;
        publication.commit()?;
        Ok(built)
    }

    /// Builds the table into its temporary file, and leaves it to the caller to publish it: together with
    /// other files.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn finish(mut self) -> Result<(Built, Publication)> {
        let mut publication = self.publication.take().ok_or(Error::NoPath)?;
        let built = self.build(publication.target())?;
        Ok((built, publication))
    }

    /// Builds the table into `out`, front to back: a pipe, a socket, a buffer.
    ///
    /// # Errors
    /// As [`publish`](Self::publish). What was written to `out` is then not a table.
    pub fn write_to(self, out: &mut (impl Write + Send)) -> Result<Built> {
        Destination::from(out).write(None, |target| self.build(target))
    }

    fn build(self, target: Target<'_>) -> Result<Built> {
        let Target { out, path, .. } = target;
        self.collected.check()?;
        let Self { options, stats, collected, .. } = self;
        let plan = options.table.plan(&stats)?;
        let spilled = collected.spilled();
        let pool = Pool::new(options.threads, plan.partitions());
        // What is left beside the collected keys.
        let left = (options.memory - collected_memory(options.memory)) as u64;
        let builder = Builder {
            plan,
            on_duplicate: options.on_duplicate,
            pool: &pool,
            window: window(&plan, &stats, collected.costs(&plan), left, pool.threads()),
            partition_keys: partition_keys(&plan, &stats),
            kernel: options.kernel,
            progress: &options.progress,
        };
        let mut loader = collected.load_for(plan);
        let built = builder.write(&mut loader, out, |source| Error::io("write", path)(source))?;
        // Every key is in the table or was dropped as a duplicate.
        if built.footer.keys() + built.duplicates != stats.keys {
            return Err(Error::WriterFailed);
        }
        Ok(Built { spilled, ..built })
    }
}

/// Whether a budget is enough for collecting keys.
pub(crate) fn check_memory(memory: usize) -> Result<()> {
    if memory >= MIN_MEMORY {
        return Ok(());
    }
    Err(Error::MemoryBudget { expected: MIN_MEMORY, found: memory })
}
