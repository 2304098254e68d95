//! Building the partitions of a table on all cores, and writing them in order.
//!
//! While one window of partitions is built, the one before is written and the next one is loaded. The
//! bytes do not depend on the number of threads, which decides only how many partitions a window has.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pkhash_core::build::{self, Assembler, Entry, Plan, TermSlot, Written};
use pkhash_core::{Footer, format};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::file::BlockWriter;

/// What to do with a key that occurs more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDuplicate {
    /// [`Error::DuplicateKey`], which names the key and both values.
    #[default]
    Error,
    /// Keep the value that came first: in a merge, that of the first input.
    First,
    /// Keep the value that came last.
    Last,
}

/// Called with the work that is done and the work there is.
type Progress = dyn Fn(u64, u64) + Send + Sync;

/// How a caller watches a long piece of work, and stops it.
#[derive(Clone, Default)]
pub struct Control {
    progress: Option<Arc<Progress>>,
    cancel: Option<Arc<AtomicBool>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

impl Control {
    /// Calls `progress(done, all)` with the number of partitions written and of all.
    #[must_use]
    pub fn on_progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Stops with [`Error::Cancelled`] soon after the flag was set, and leaves nothing behind.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.cancel {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    fn progress(&self, done: u64, all: u64) {
        if let Some(progress) = &self.progress {
            progress(done, all);
        }
    }
}

/// What a build or a merge has made.
#[derive(Clone, Copy, Debug)]
pub struct Built {
    /// The facts of the new table.
    pub footer: Footer,
    /// Keys that were given and are not in the table, since they occurred before or again.
    pub duplicates: u64,
    /// Bytes that went to temporary files.
    pub spilled: u64,
}

/// Where the partitions of a table come from.
pub(crate) trait Loader: Send {
    type Part: Part;

    /// Loads a partition: called for each one in order, on one thread, while others are built. What
    /// needs the processor rather than the disk is left to [`Part::prepare`].
    fn load(&mut self, p: u32) -> Result<Self::Part>;
}

/// The keys of one partition.
pub(crate) trait Part: Send + Sync {
    /// The work before [`entries`](Self::entries), on any thread.
    fn prepare(&mut self) -> Result<()>;

    /// All entries. Those of one key come in the order in which they were given.
    fn entries(&self) -> Vec<Entry<'_>>;
}

/// A partition that was built: its bytes, and how many entries were dropped.
struct Done {
    bytes: Vec<u8>,
    written: Written,
    duplicates: u64,
}

/// A pool of so many threads, 0: one for each core, for so many partitions.
pub(crate) fn pool(threads: usize, partitions: u32) -> Result<rayon::ThreadPool> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { cores } else { threads };
    // No more than can have work, one of them for reading and writing; nor many more than there are
    // cores: idle threads look for work, and a thousand of them on two cores take seconds.
    let most = (partitions as usize + 1).min(8 * cores);
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.min(most))
        .build()
        .map_err(|error| Error::Threads { source: std::io::Error::other(error) })
}

/// How to build partitions.
pub(crate) struct Builder<'c> {
    pub(crate) plan: Plan,
    pub(crate) on_duplicate: OnDuplicate,
    pub(crate) pool: &'c rayon::ThreadPool,
    /// The most partitions that may be held at once, given the caller's memory.
    pub(crate) window: usize,
    pub(crate) control: &'c Control,
}

impl Builder<'_> {
    /// Writes the whole table. Returns its footer and the number of entries dropped as duplicates.
    pub(crate) fn write<L: Loader, W: Write + Send>(
        &self,
        loader: &mut L,
        out: &mut W,
        io_error: impl Fn(std::io::Error) -> Error + Sync,
    ) -> Result<(Footer, u64)> {
        let pool = self.pool;
        let window = pool.current_num_threads().min(self.window).max(1) as u32;
        let mut out = BlockWriter::new(out);
        let mut directory = vec![0; self.plan.directory_len()];
        let mut assembler = Assembler::new(&self.plan, &mut directory)?;
        out.write_all(&format::head()).map_err(&io_error)?;

        let partitions = self.plan.partitions();
        let mut duplicates = 0;
        let mut loaded =
            (0..window.min(partitions)).map(|p| loader.load(p)).collect::<Result<_>>()?;
        let mut done: Vec<Done> = Vec::new();
        for first in (0..partitions).step_by(window as usize) {
            self.control.check()?;
            let next = (first + window).min(partitions)..(first + 2 * window).min(partitions);
            let (written, built) = pool.install(|| {
                rayon::join(
                    || {
                        for done in done.drain(..) {
                            out.write_all(&done.bytes).map_err(&io_error)?;
                        }
                        next.map(|p| loader.load(p)).collect::<Result<Vec<_>>>()
                    },
                    || {
                        std::mem::take::<Vec<L::Part>>(&mut loaded)
                            .into_par_iter()
                            .enumerate()
                            .map(|(i, part)| self.build(first + i as u32, part))
                            .collect::<Vec<Result<Done>>>()
                    },
                )
            });
            // A fault of the keys before one of the disk, and the first of several: which error is
            // reported depends on no race.
            for built in built {
                let built = built?;
                assembler.push(&built.written)?;
                duplicates += built.duplicates;
                done.push(built);
            }
            loaded = written?;
            self.control.progress((first + window).min(partitions).into(), partitions.into());
        }
        for done in done {
            out.write_all(&done.bytes).map_err(&io_error)?;
        }
        let (footer, directory, tail) = assembler.finish()?;
        out.write_all(directory).map_err(&io_error)?;
        out.write_all(&tail).map_err(&io_error)?;
        out.finish().map_err(&io_error)?;
        Ok((footer, duplicates))
    }

    fn build<P: Part>(&self, p: u32, mut part: P) -> Result<Done> {
        part.prepare()?;
        let mut entries = part.entries();
        let mut scratch = vec![Entry::default(); entries.len()];
        build::sort(&mut entries, &mut scratch)?;
        drop(scratch);
        let given = entries.len();
        self.drop_duplicates(&mut entries)?;
        let mut term_slots = vec![TermSlot::default(); self.plan.term_slots(entries.len())];
        let len = self.plan.partition_len(p, &entries)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| pkhash_core::Error::TooLarge {
            what: "bytes for this machine's memory",
            expected: isize::MAX as u64,
            found: len as u64,
        })?;
        bytes.resize(len, 0);
        let written = self.plan.write_partition(p, &entries, &mut term_slots, &mut bytes)?;
        Ok(Done { bytes, written, duplicates: (given - entries.len()) as u64 })
    }

    /// Entries of one key lie side by side, the oldest first.
    fn drop_duplicates(&self, entries: &mut Vec<Entry<'_>>) -> Result<()> {
        let same = |a: &Entry<'_>, b: &Entry<'_>| a.hash == b.hash && a.key == b.key;
        match self.on_duplicate {
            OnDuplicate::Error => {
                if let Some([first, second]) = entries.windows(2).find_map(|pair| match pair {
                    [first, second] if same(first, second) => Some([first, second]),
                    _ => None,
                }) {
                    return Err(Error::DuplicateKey {
                        key: first.key.to_vec(),
                        first: first.value.to_vec(),
                        second: second.value.to_vec(),
                    });
                }
            }
            OnDuplicate::First => entries.dedup_by(|later, kept| same(later, kept)),
            OnDuplicate::Last => entries.dedup_by(|later, kept| {
                let same = same(later, kept);
                if same {
                    *kept = *later;
                }
                same
            }),
        }
        Ok(())
    }
}
