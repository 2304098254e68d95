//! Building the partitions of a table on all cores, and writing them in order.
//!
//! While one window of partitions is built, the one before is written and the next one is loaded. The
//! bytes do not depend on the number of threads, which decides only how many partitions a window has.

use std::io::Write;
use std::sync::Mutex;

use pkhash_core::builder::{self, Assembler, Entry, Plan, Written};
use pkhash_core::{Footer, format};
use pkhash_simd::AnyKernel;

use crate::error::{Error, Result};
use crate::file::BlockWriter;
use crate::memory::reserve;
use crate::progress::Progress;
use crate::threads::Pool;
use crate::versioned::{check_width, version_of};

/// What to do with a key that occurs more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// [`Error::DuplicateKey`], which names the key and both values.
    #[default]
    Error,
    /// Keep the value that came first: in a merge, that of the first input.
    First,
    /// Keep the value that came last.
    Last,
    /// Keep the value of the highest version; of equal ones the first. Only for versioned values: a
    /// doc ID of 4 bytes and a version of 8, little-endian, as 12 opaque bytes (see
    /// [`versioned_value`](crate::versioned_value)).
    HighestVersion,
}

/// What a build or a merge has made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Built {
    /// The facts of the new table.
    pub footer: Footer,
    /// Keys that were given and are not in the table, since they occurred before or again.
    pub duplicates: u64,
    /// Bytes that went to temporary files.
    pub spilled: u64,
    /// Perfect tables: buckets that had to make room for others and were placed anew.
    pub evictions: u64,
    /// Perfect tables: keys that have the hash of another key and so no slot of their own.
    pub exceptions: u64,
    /// Threads that were asked for and could not be started: the others did their work.
    pub missing_threads: usize,
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
    /// Whether entries come sorted.
    const SORTED: bool = false;

    /// The work before [`entries`](Self::entries), on any thread.
    fn prepare(&mut self) -> Result<()>;

    /// Adds all entries to `entries`. Those of one key come in the order in which they were given.
    fn entries<'p>(&'p self, entries: &mut Vec<Entry<'p>>) -> Result<()>;
}

/// A partition that was built: its bytes, which may be followed by others, and how many entries were
/// dropped.
struct Done {
    bytes: Vec<u8>,
    written: Written,
    duplicates: u64,
}

/// Memory that one partition after the other uses. Allocated anew for each, a fifth of the time to build a
/// table of 10 M keys went into the kernel's handling of page faults (Zen 4).
#[derive(Default)]
struct Buffers {
    entries: Vec<Entry<'static>>,
    unsorted: Vec<Entry<'static>>,
    words: Vec<u64>,
}

/// Buffers that no partition uses just now: as many as threads build, and as many outputs as wait to be
/// written. (Kept together, every output came to have buffers of its own beside it: 400 MB for a merge
/// of 10 M keys on two threads, where 60 MB do.)
#[derive(Default)]
struct Spare {
    buffers: Mutex<Vec<Buffers>>,
    outputs: Mutex<Vec<Vec<u8>>>,
}

fn take<T: Default>(spare: &Mutex<Vec<T>>) -> T {
    spare.lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_default()
}

fn give_back<T>(spare: &Mutex<Vec<T>>, buffer: T) {
    if let Ok(mut spare) = spare.lock() {
        spare.push(buffer);
    }
}

/// The same memory for entries of other keys. (`collect` keeps the allocation of an iterator over a
/// vector; if it did not, that would cost an allocation.)
fn recycle<'b>(mut entries: Vec<Entry<'_>>) -> Vec<Entry<'b>> {
    entries.clear();
    entries.into_iter().map(|_| Entry::default()).collect()
}

/// Writes a partition that was built.
fn write_out<W: Write>(done: Done, out: &mut BlockWriter<W>, spare: &Spare) -> std::io::Result<()> {
    // What was built is in memory.
    out.write_all(&done.bytes[..done.written.bytes() as usize])?;
    give_back(&spare.outputs, done.bytes);
    Ok(())
}

/// How to build partitions.
pub(crate) struct Builder<'c> {
    pub(crate) plan: Plan,
    pub(crate) on_duplicate: OnDuplicate,
    pub(crate) pool: &'c Pool,
    /// Partitions that are built at a time: see [`window`](crate::threads::window).
    pub(crate) window: u32,
    /// About how many keys a partition has.
    pub(crate) partition_keys: usize,
    pub(crate) kernel: Option<AnyKernel>,
    pub(crate) progress: &'c Progress,
}

impl Builder<'_> {
    /// Writes the whole table. What was spilled is for the caller to say.
    pub(crate) fn write<L: Loader>(
        &self,
        loader: &mut L,
        out: &mut (dyn Write + Send),
        io_error: impl Fn(std::io::Error) -> Error + Sync,
    ) -> Result<Built> {
        if self.on_duplicate == OnDuplicate::HighestVersion {
            check_width(self.plan.value())?;
        }
        let (pool, window) = (self.pool, self.window);
        let spare = &Spare::default();
        let kernel = self.kernel.unwrap_or_else(AnyKernel::detect);
        let mut out = BlockWriter::new(out)?;
        let mut directory = vec![0; self.plan.directory_len()];
        let mut assembler = Assembler::new(&self.plan, &mut directory)?;
        out.write_all(&format::head()).map_err(&io_error)?;

        let partitions = self.plan.partitions();
        let (mut duplicates, mut evictions, mut exceptions) = (0, 0, 0);
        let mut loaded: Vec<L::Part> =
            (0..window.min(partitions)).map(|p| loader.load(p)).collect::<Result<_>>()?;
        let mut done: Vec<Done> = Vec::new();
        for first in (0..partitions).step_by(window as usize) {
            self.progress.check()?;
            let next = (first + window).min(partitions)..(first + 2 * window).min(partitions);
            let parts = std::mem::take(&mut loaded);
            let (written, built) = pool.join(
                || {
                    for done in done.drain(..) {
                        write_out(done, &mut out, spare).map_err(&io_error)?;
                    }
                    next.map(|p| loader.load(p)).collect::<Result<Vec<_>>>()
                },
                || {
                    let parts = (first..).zip(parts).collect();
                    pool.map(parts, |(p, part)| self.build(p, part, kernel, spare))
                },
            );
            // A fault of the keys before one of the disk, and the first of several: which error is
            // reported depends on no race.
            for built in built {
                let built = built?;
                assembler.push(&built.written)?;
                duplicates += built.duplicates;
                evictions += built.written.evictions();
                exceptions += u64::from(built.written.partition().exceptions);
                done.push(built);
            }
            loaded = written?;
            self.progress.report((first + window).min(partitions).into(), partitions.into());
        }
        for done in done {
            write_out(done, &mut out, spare).map_err(&io_error)?;
        }
        let (footer, directory, tail) = assembler.finish()?;
        out.write_all(directory).map_err(&io_error)?;
        out.write_all(&tail).map_err(&io_error)?;
        out.finish().map_err(&io_error)?;
        let missing_threads = pool.missing;
        Ok(Built { footer, duplicates, spilled: 0, evictions, exceptions, missing_threads })
    }

    fn build<P: Part>(
        &self,
        p: u32,
        mut part: P,
        kernel: AnyKernel,
        spare: &Spare,
    ) -> Result<Done> {
        part.prepare()?;
        let mut buffers = take(&spare.buffers);
        let mut entries = recycle(std::mem::take(&mut buffers.entries));
        reserve(&mut entries, self.partition_keys)?;
        part.entries(&mut entries)?;
        let given = entries.len();
        if !P::SORTED {
            let mut unsorted = recycle(std::mem::take(&mut buffers.unsorted));
            reserve(&mut unsorted, given)?;
            unsorted.resize(given, Entry::default());
            builder::sort(&mut entries, &mut unsorted)?;
            buffers.unsorted = recycle(unsorted);
        }
        self.drop_duplicates(&mut entries)?;
        let words = self.plan.scratch_len(entries.len());
        if let Some(more) = words.checked_sub(buffers.words.len()) {
            reserve(&mut buffers.words, more)?;
            buffers.words.resize(words, 0);
        }
        let mut bytes = take(&spare.outputs);
        let words = &mut buffers.words;
        let mut write =
            |out: &mut Vec<u8>| kernel.write_partition(&self.plan, p, &entries, words, out);
        let written = match write(&mut bytes) {
            // The last partition's buffer is often long enough; if not, this says what is.
            Err(pkhash_core::Error::PartitionBuffer { needed, .. }) => {
                let more = needed.saturating_sub(bytes.len());
                reserve(&mut bytes, more)?;
                bytes.resize(needed, 0);
                write(&mut bytes)?
            }
            written => written?,
        };
        let duplicates = (given - entries.len()) as u64;
        buffers.entries = recycle(entries);
        give_back(&spare.buffers, buffers);
        Ok(Done { bytes, written, duplicates })
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
            // `write` has checked that all have a version.
            OnDuplicate::HighestVersion => entries.dedup_by(|later, kept| {
                let same = same(later, kept);
                if same && version_of(later.value) > version_of(kept.value) {
                    *kept = *later;
                }
                same
            }),
        }
        Ok(())
    }
}
