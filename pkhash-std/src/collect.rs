//! Keys on their way to a table, within a memory budget.
//!
//! Keys are collected in 1,024 bins by the top bits of their hash. If they outgrow the budget, all bins
//! are appended to a temporary file, bin by bin, and emptied: a run. Any partition of the table to come
//! is a range of bins, whatever the number of partitions turns out to be, so it is read back with one
//! read for each run, and built alone.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pkhash_core::builder::{Entry, Plan};

use crate::budget::Costs;
use crate::error::{Error, Result};
use crate::memory::{has_headroom, push, reserve};
use crate::partition::{Loader, Part};
use crate::progress::Progress;

/// The number of bins is 2^this.
const BIN_BITS: u8 = 10;

/// Bins. A partition is a range of them; of a table with more partitions than bins, part of one.
const BINS: usize = 1 << BIN_BITS;

/// The part of the budget that collected keys may take.
pub(crate) const fn collected_memory(memory: usize) -> usize {
    memory / 4 * 3
}

/// Keys in any order, to be built by partition.
#[derive(Debug)]
pub(crate) struct Collector {
    bins: Bins,
    spill: Option<Spill>,
    value_width: usize,
    /// Keys were lost when they could not be spilled.
    failed: bool,
}

impl Collector {
    /// Keeps at most so many bytes in memory. All values have one width.
    pub(crate) fn new(memory: usize, value_width: usize) -> Self {
        Self { bins: Bins::new(memory), spill: None, value_width, failed: false }
    }

    /// Bytes of each value.
    pub(crate) const fn value_width(&self) -> usize {
        self.value_width
    }

    /// Adds a key.
    #[inline]
    pub(crate) fn push(
        &mut self,
        encoded: &Encoded<'_>,
        temp_dir: Option<&Path>,
        progress: &Progress,
    ) -> Result<()> {
        self.check()?;
        if !self.bins.push(encoded)? {
            progress.check()?;
            self.spill_all(temp_dir)?;
            self.bins.push_anyway(encoded)?;
        }
        Ok(())
    }

    fn spill_all(&mut self, temp_dir: Option<&Path>) -> Result<()> {
        self.failed = true;
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(Spill::create(temp_dir)?),
        };
        spill.append(&mut self.bins)?;
        self.failed = false;
        Ok(())
    }

    /// After a failed spill there is no way back: keys that were added are gone.
    pub(crate) const fn check(&self) -> Result<()> {
        if self.failed { Err(Error::WriterFailed) } else { Ok(()) }
    }

    /// Bytes that went to the temporary file.
    pub(crate) fn spilled(&self) -> u64 {
        self.spill.as_ref().map_or(0, |spill| spill.len)
    }

    /// What a partition takes while it waits: read back, and once more if a bin has several.
    pub(crate) fn costs(&self, plan: &Plan) -> Costs {
        let copies = 1 + u64::from(plan.partition_bits() > BIN_BITS);
        // Hash and length.
        let loaded = copies * (13 + self.value_width as u64);
        Costs { loaded, loaded_key: copies, prepared: 0 }
    }

    /// The keys of each partition of a table.
    pub(crate) fn load_for(self, plan: Plan) -> Collected {
        let Self { bins, spill, value_width, .. } = self;
        Collected { bins, spill, plan, value_width, split: VecDeque::new() }
    }
}

/// A key as it lies in a bin: hash (8), key length (varint), value, key.
pub(crate) struct Encoded<'e> {
    pub(crate) hash: u64,
    pub(crate) value: &'e [u8],
    pub(crate) key: &'e [u8],
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
    fn push(&mut self, entry: &Encoded<'_>) -> Result<bool> {
        let len = entry.len();
        let bin = &mut self.bins[(entry.hash >> (64 - BIN_BITS)) as usize];
        if let Some(last) = bin.chunks.last_mut()
            && last.capacity() - last.len() >= len
        {
            entry.write(last);
            return Ok(true);
        }
        self.push_to_new_chunk(entry, false)
    }

    /// Adds a key, whatever the limit: after a spill, when one key alone may be longer.
    fn push_anyway(&mut self, entry: &Encoded<'_>) -> Result<()> {
        self.push_to_new_chunk(entry, true).map(|_| ())
    }

    #[cold]
    fn push_to_new_chunk(&mut self, entry: &Encoded<'_>, anyway: bool) -> Result<bool> {
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
                    return Ok(false);
                }
                let mut chunk = Vec::new();
                reserve(&mut chunk, wanted)?;
                self.allocated += wanted;
                chunk
            }
        };
        entry.write(&mut chunk);
        bin.chunks.push(chunk);
        Ok(true)
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

/// Bytes that are written to the temporary file at a time, at least.
const BUFFER: usize = 1 << 20;

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
    fn create(folder: Option<&Path>) -> Result<Self> {
        let folder = folder.map_or_else(std::env::temp_dir, Path::to_owned);
        let file = tempfile::tempfile_in(&folder)
            .map_err(Error::io("create a temporary file in", &folder))?;
        Ok(Self { file, folder, len: 0, runs: Vec::new() })
    }

    fn append(&mut self, bins: &mut Bins) -> Result<()> {
        let mut buffer = Vec::new();
        reserve(&mut buffer, BUFFER)?;
        let mut run = Vec::with_capacity(BINS + 1);
        let mut write = || -> io::Result<()> {
            for bin in 0..BINS {
                run.push(self.len);
                let chunks = bins.take(bin);
                for chunk in &chunks {
                    if buffer.len() + chunk.len() > BUFFER {
                        self.file.write_all(&buffer)?;
                        buffer.clear();
                    }
                    if chunk.len() > BUFFER {
                        self.file.write_all(chunk)?;
                    } else {
                        buffer.extend_from_slice(chunk);
                    }
                    self.len += chunk.len() as u64;
                }
                bins.give_back(chunks);
            }
            run.push(self.len);
            self.file.write_all(&buffer)
        };
        write().map_err(Error::io("write a temporary file in", &self.folder))?;
        self.runs.push(run);
        Ok(())
    }

    /// What run `run` holds of a range of bins.
    fn read(&mut self, run: usize, from: usize, to: usize) -> Result<Vec<u8>> {
        let (begin, end) = (self.runs[run][from], self.runs[run][to]);
        let mut bytes = Vec::new();
        let len = usize::try_from(end - begin).unwrap_or(usize::MAX);
        reserve(&mut bytes, len)?;
        let mut read = || -> io::Result<()> {
            if begin == end {
                return Ok(());
            }
            bytes.resize(len, 0);
            self.file.seek(SeekFrom::Start(begin))?;
            self.file.read_exact(&mut bytes)
        };
        read().map_err(Error::io("read a temporary file in", &self.folder))?;
        Ok(bytes)
    }
}

/// Loads partitions from runs and bins.
pub(crate) struct Collected {
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
            let encoded = Encoded { hash: entry.hash, value: entry.value, key: entry.key };
            let part = &mut parts[part];
            let (len, before) = (encoded.len(), part.capacity());
            let is_taken = part.try_reserve(len).is_ok();
            let grown = part.capacity() - before;
            if !is_taken || !has_headroom(grown) {
                return Err(Error::OutOfMemory { bytes: part.len() + len });
            }
            encoded.write(part);
            Ok(())
        })?;
        let value_width = self.value_width;
        self.split = parts
            .into_iter()
            .map(|part| CollectedPart { chunks: vec![part], value_width })
            .collect();
        self.split.pop_front().ok_or(Error::WriterFailed)
    }
}

/// The encoded keys of a partition.
pub(crate) struct CollectedPart {
    chunks: Vec<Vec<u8>>,
    value_width: usize,
}

impl CollectedPart {
    /// All of them, those of one key in the order in which they were added.
    pub(crate) fn each<'p>(&'p self, mut each: impl FnMut(Entry<'p>) -> Result<()>) -> Result<()> {
        for chunk in &self.chunks {
            let mut bytes = chunk.as_slice();
            while let Some(entry) = decode(&mut bytes, self.value_width) {
                each(entry)?;
            }
            debug_assert!(bytes.is_empty());
        }
        Ok(())
    }
}

impl Part for CollectedPart {
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn entries<'p>(&'p self, entries: &mut Vec<Entry<'p>>) -> Result<()> {
        self.each(|entry| push(entries, entry))
    }
}
