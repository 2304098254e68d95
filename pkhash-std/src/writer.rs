//! Building a table from a stream of keys, within a memory budget.
//!
//! Keys are collected in 1,024 bins by the top bits of their hash. If they outgrow the budget, all bins
//! are appended to a temporary file, bin by bin, and emptied: a run. Any partition of the table to come
//! is a range of bins, whatever the number of partitions turns out to be, so it is read back with one
//! read for each run, and built alone.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pkhash_core::ValueKind;
use pkhash_core::build::{Entry, KeyStats, Options, Plan, ValueChoice};

use crate::error::{Error, Result};
use crate::partition::{Builder, Built, Control, Loader, OnDuplicate, Part, pool};
use crate::publish::{Publication, absolute};

/// The number of bins is 2^this.
const BIN_BITS: u8 = 10;

/// Bins. A partition is a range of them; of a table with more partitions than bins, part of one.
const BINS: usize = 1 << BIN_BITS;

/// The least memory budget: below, the bins would be too small to be written one by one.
pub const MIN_MEMORY: usize = 8 << 20;

/// The memory budget unless the caller gives one.
pub const DEFAULT_MEMORY: usize = 1 << 30;

/// How a table is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Layout, values, filter, seed and partitions.
    pub table: Options,
    /// Bytes that collected keys and partitions under construction may take together; what the
    /// process needs besides is a few MB. At least [`MIN_MEMORY`]. The partition that is being built
    /// must fit: with more than 2^17 × 1,024 keys or 8 GiB of keys, partitions grow.
    pub memory: usize,
    /// Threads that build; 0: one for each core. The table does not depend on it. More than there are
    /// partitions, or many times the cores, are not started.
    pub threads: usize,
    /// Where keys go that outgrow the budget; `None`: the folder of the table, or the system's folder
    /// for temporary files if the table is not published. The file has no name there and vanishes
    /// with the process, however it ends.
    pub temp_dir: Option<PathBuf>,
    /// What to do with a key that is added again.
    pub on_duplicate: OnDuplicate,
    /// Progress and cancelling.
    pub control: Control,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            table: Options::default(),
            memory: DEFAULT_MEMORY,
            threads: 0,
            temp_dir: None,
            on_duplicate: OnDuplicate::Error,
            control: Control::default(),
        }
    }
}

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
    bins: Bins,
    spill: Option<Spill>,
    /// Bytes of each value while it is collected.
    value_width: usize,
    /// Values are integers.
    integers: bool,
    /// Keys were lost when they could not be spilled.
    failed: bool,
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
        if options.memory < MIN_MEMORY {
            return Err(pkhash_core::Error::BufferTooSmall {
                what: "memory budget",
                expected: MIN_MEMORY,
                found: options.memory,
            }
            .into());
        }
        let (value_width, integers) = match options.table.value {
            ValueChoice::Auto => (8, true),
            ValueChoice::Fixed(value) => (value.width().into(), value.kind() == ValueKind::Integer),
        };
        let temp_dir = options.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        Ok(Self {
            bins: Bins::new(collected_memory(options.memory)),
            temp_dir: absolute(&temp_dir),
            options,
            publication: None,
            stats: KeyStats::default(),
            spill: None,
            value_width,
            integers,
            failed: false,
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
        let (kept, rest) = bytes.split_at(self.value_width.min(8));
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
        if value.len() != self.value_width || matches!(self.options.table.value, ValueChoice::Auto)
        {
            return Err(self.wrong_width(value.len()));
        }
        self.push(key, value)
    }

    fn wrong_width(&self, found: usize) -> Error {
        let expected = self.value_width as u32;
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
        self.check_failed()?;
        let hash = self.options.table.hasher.hash(key);
        let encoded = Encoded { hash, value, key };
        if !self.bins.push(&encoded) {
            self.options.control.check()?;
            self.spill_all()?;
            self.bins.push_anyway(&encoded);
        }
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

    fn spill_all(&mut self) -> Result<()> {
        self.failed = true;
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(Spill::create(&self.temp_dir)?),
        };
        spill.append(&mut self.bins)?;
        self.failed = false;
        Ok(())
    }

    /// After a failed spill there is no way back: keys that were added are gone.
    fn check_failed(&self) -> Result<()> {
        if self.failed { Err(Error::WriterFailed) } else { Ok(()) }
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
        let path = publication.shown().to_owned();
        let built = self.build(publication.file(), &path)?;
        Ok((built, publication))
    }

    /// Builds the table into `out`, front to back: a pipe, a socket, a buffer.
    ///
    /// # Errors
    /// As [`publish`](Self::publish). What was written to `out` is then not a table.
    pub fn write_to(self, out: &mut (impl Write + Send)) -> Result<Built> {
        self.build(out, Path::new("the output"))
    }

    fn build(self, out: &mut (impl Write + Send), path: &Path) -> Result<Built> {
        self.check_failed()?;
        let Self { options, stats, bins, spill, value_width, .. } = self;
        let plan = options.table.plan(&stats)?;
        let spilled = spill.as_ref().map_or(0, |spill| spill.len);
        let per_partition = (stats.keys >> plan.partition_bits())
            .saturating_mul((value_width + ENTRY_OVERHEAD) as u64)
            .saturating_add((stats.key_bytes >> plan.partition_bits()).saturating_mul(3));
        // What is left beside the bins; each partition of a window is there up to three times:
        // written, built and loaded.
        let left = (options.memory - collected_memory(options.memory)) as u64;
        let builder = Builder {
            plan,
            on_duplicate: options.on_duplicate,
            pool: &pool(options.threads, plan.partitions())?,
            window: usize::try_from(left / per_partition.max(1)).unwrap_or(usize::MAX),
            control: &options.control,
        };
        let mut loader = Collected { bins, spill, plan, value_width, split: VecDeque::new() };
        let built = builder.write(&mut loader, out, |source| Error::io("write", path)(source))?;
        // Every key is in the table or was dropped as a duplicate.
        if built.footer.keys + built.duplicates != stats.keys {
            return Err(Error::WriterFailed);
        }
        Ok(Built { spilled, ..built })
    }
}

/// Bytes that a key takes while its partition is built, beside three times its own: encoded, two
/// entries for sorting, a term slot, control byte, slot word and filter.
const ENTRY_OVERHEAD: usize = 150;

/// The part of the budget that collected keys may take.
const fn collected_memory(memory: usize) -> usize {
    memory / 4 * 3
}

/// A key as it lies in a bin: hash (8), key length (varint), value, key.
struct Encoded<'e> {
    hash: u64,
    value: &'e [u8],
    key: &'e [u8],
}

impl Encoded<'_> {
    fn len(&self) -> usize {
        8 + leb128_len(self.key.len() as u64) + self.value.len() + self.key.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash.to_le_bytes());
        let mut len = self.key.len() as u64;
        while len >= 0x80 {
            out.push(len as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend_from_slice(self.value);
        out.extend_from_slice(self.key);
    }
}

const fn leb128_len(len: u64) -> usize {
    (64 - (len | 1).leading_zeros()).div_ceil(7) as usize
}

/// Reads what [`Encoded::write`] wrote. The bytes are our own.
fn decode<'b>(bytes: &mut &'b [u8], value_width: usize) -> Option<Entry<'b>> {
    let (hash, rest) = bytes.split_first_chunk()?;
    let (mut len, mut shift, mut rest) = (0usize, 0, rest);
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        len |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (value, rest) = rest.split_at_checked(value_width)?;
    let (key, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some(Entry { hash: u64::from_le_bytes(*hash), key, value })
}

/// The collected keys, in chunks, so that growing moves nothing and the accounts are exact.
#[derive(Debug)]
struct Bins {
    bins: Vec<Bin>,
    /// Full-sized chunks that were emptied.
    free: Vec<Vec<u8>>,
    /// Bytes of all chunks.
    allocated: usize,
    limit: usize,
    /// Length of the largest chunks, but for keys that are longer.
    chunk: usize,
}

#[derive(Debug, Default)]
struct Bin {
    /// No key is split over two chunks.
    chunks: Vec<Vec<u8>>,
}

/// The first chunk of a bin: a small table needs little memory.
const FIRST_CHUNK: usize = 512;

impl Bins {
    fn new(limit: usize) -> Self {
        let mut bins = Vec::new();
        bins.resize_with(BINS, Bin::default);
        // On average half of a bin's last chunk is empty: an eighth of the limit at most.
        let chunk = (limit / BINS / 4).clamp(FIRST_CHUNK, 64 << 10);
        Self { bins, free: Vec::new(), allocated: 0, limit, chunk }
    }

    /// Adds a key; false if that would outgrow the limit.
    #[inline]
    fn push(&mut self, entry: &Encoded<'_>) -> bool {
        let len = entry.len();
        let bin = &mut self.bins[(entry.hash >> (64 - BIN_BITS)) as usize];
        if let Some(last) = bin.chunks.last_mut()
            && last.capacity() - last.len() >= len
        {
            entry.write(last);
            return true;
        }
        self.push_to_new_chunk(entry, false)
    }

    /// Adds a key, whatever the limit: after a spill, when one key alone may be longer.
    fn push_anyway(&mut self, entry: &Encoded<'_>) {
        self.push_to_new_chunk(entry, true);
    }

    #[cold]
    fn push_to_new_chunk(&mut self, entry: &Encoded<'_>, anyway: bool) -> bool {
        let bin = &mut self.bins[(entry.hash >> (64 - BIN_BITS)) as usize];
        let grown = bin.chunks.last().map_or(FIRST_CHUNK, |last| 2 * last.capacity());
        let wanted = grown.min(self.chunk).max(entry.len());
        let mut chunk = match self.free.pop() {
            Some(chunk) if wanted == self.chunk => chunk,
            other => {
                self.free.extend(other);
                // Chunks kept for later may be of no use for keys longer than they are.
                while self.allocated.saturating_add(wanted) > self.limit
                    && let Some(unused) = self.free.pop()
                {
                    self.allocated -= unused.capacity();
                }
                if self.allocated.saturating_add(wanted) > self.limit && !anyway {
                    return false;
                }
                self.allocated += wanted;
                Vec::with_capacity(wanted)
            }
        };
        entry.write(&mut chunk);
        bin.chunks.push(chunk);
        true
    }

    /// Takes a bin's chunks out.
    fn take(&mut self, bin: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.bins[bin].chunks)
    }

    /// Gives chunks back that were taken out: full-sized ones are used again.
    fn give_back(&mut self, chunks: Vec<Vec<u8>>) {
        for mut chunk in chunks {
            if chunk.capacity() == self.chunk {
                chunk.clear();
                self.free.push(chunk);
            } else {
                self.allocated = self.allocated.saturating_sub(chunk.capacity());
            }
        }
    }
}

/// The temporary file of the keys that outgrew the budget.
#[derive(Debug)]
struct Spill {
    file: File,
    folder: PathBuf,
    len: u64,
    /// For each run, where each bin begins, and where the last one ends.
    runs: Vec<Vec<u64>>,
}

impl Spill {
    fn create(folder: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(folder)
            .map_err(Error::io("create a temporary file in", folder))?;
        Ok(Self { file, folder: folder.to_owned(), len: 0, runs: Vec::new() })
    }

    fn append(&mut self, bins: &mut Bins) -> Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, &self.file);
        let mut run = Vec::with_capacity(BINS + 1);
        let mut write = || -> io::Result<()> {
            for bin in 0..BINS {
                run.push(self.len);
                let chunks = bins.take(bin);
                for chunk in &chunks {
                    out.write_all(chunk)?;
                    self.len += chunk.len() as u64;
                }
                bins.give_back(chunks);
            }
            run.push(self.len);
            out.flush()
        };
        write().map_err(Error::io("write a temporary file in", &self.folder))?;
        self.runs.push(run);
        Ok(())
    }

    /// What run `run` holds of a range of bins.
    fn read(&mut self, run: usize, from: usize, to: usize) -> Result<Vec<u8>> {
        let (begin, end) = (self.runs[run][from], self.runs[run][to]);
        let mut bytes = Vec::new();
        let mut read = || -> io::Result<()> {
            if begin == end {
                return Ok(());
            }
            let len = usize::try_from(end - begin)
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            bytes.try_reserve_exact(len)?;
            bytes.resize(len, 0);
            self.file.seek(SeekFrom::Start(begin))?;
            self.file.read_exact(&mut bytes)
        };
        read().map_err(Error::io("read a temporary file in", &self.folder))?;
        Ok(bytes)
    }
}

/// Loads partitions from runs and bins.
struct Collected {
    bins: Bins,
    spill: Option<Spill>,
    plan: Plan,
    value_width: usize,
    /// Partitions of a bin that was split.
    split: VecDeque<CollectedPart>,
}

impl Collected {
    /// What a range of bins holds, in the order in which it was added.
    fn take(&mut self, from: usize, to: usize) -> Result<CollectedPart> {
        // Runs first, in order, then what was never spilled: the order in which keys were added.
        let mut chunks = Vec::new();
        if let Some(spill) = &mut self.spill {
            for run in 0..spill.runs.len() {
                chunks.push(spill.read(run, from, to)?);
            }
        }
        for bin in from..to {
            chunks.append(&mut self.bins.take(bin));
        }
        Ok(CollectedPart { chunks, value_width: self.value_width })
    }
}

impl Loader for Collected {
    type Part = CollectedPart;

    fn load(&mut self, p: u32) -> Result<CollectedPart> {
        let bits = self.plan.partition_bits();
        let Some(more) = bits.checked_sub(BIN_BITS).filter(|more| *more > 0) else {
            let each = BINS >> bits;
            return self.take(p as usize * each, (p as usize + 1) * each);
        };
        // Several partitions to a bin: split it when the first of them is asked for.
        if let Some(part) = self.split.pop_front() {
            return Ok(part);
        }
        let bin = (p >> more) as usize;
        let all = self.take(bin, bin + 1)?;
        let mut parts: Vec<Vec<u8>> = vec![Vec::new(); 1 << more];
        let plan = self.plan;
        all.each(|entry| {
            let part = plan.partition_of(entry.hash) as usize % parts.len();
            Encoded { hash: entry.hash, value: entry.value, key: entry.key }
                .write(&mut parts[part]);
        });
        let value_width = self.value_width;
        self.split = parts
            .into_iter()
            .map(|part| CollectedPart { chunks: vec![part], value_width })
            .collect();
        self.split.pop_front().ok_or(Error::WriterFailed)
    }
}

/// The encoded keys of a partition.
struct CollectedPart {
    chunks: Vec<Vec<u8>>,
    value_width: usize,
}

impl CollectedPart {
    fn each<'p>(&'p self, mut each: impl FnMut(Entry<'p>)) {
        for chunk in &self.chunks {
            let mut bytes = chunk.as_slice();
            while let Some(entry) = decode(&mut bytes, self.value_width) {
                each(entry);
            }
            debug_assert!(bytes.is_empty());
        }
    }
}

impl Part for CollectedPart {
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn entries<'p>(&'p self, entries: &mut Vec<Entry<'p>>) {
        self.each(|entry| entries.push(entry));
    }
}
