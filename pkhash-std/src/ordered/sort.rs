//! Sorting the keys of a table within a memory budget: sorted runs in a temporary file, then merged.
//!
//! Only the places of keys are sorted and kept; the keys stay in the table, side by side in it as they are
//! in a run.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::memory::reserve;
use crate::threads::Pool;

/// The least memory budget of a companion that is built.
pub const MIN_COMPANION_MEMORY: usize = 1 << 20;

/// A run is read in pieces of at least this.
const BUFFER: usize = 16 << 10;

/// And at most this; beyond, a disk gets no faster.
const LARGE_BUFFER: usize = 1 << 20;

/// A key, its doc ID, and the key's first 8 bytes, which tell most keys apart without a look at the table.
#[derive(Clone, Copy)]
struct Entry<'t> {
    prefix: u64,
    key: &'t [u8],
    value: u64,
}

/// Smaller for a smaller key, or the same.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

/// Collects keys in any order and gives them back in term order.
pub(super) struct Sorter<'t> {
    entries: Vec<Entry<'t>>,
    /// Entries of a run.
    most: usize,
    /// Runs that are merged at once.
    fan_in: usize,
    memory: usize,
    pool: &'t Pool,
    folder: PathBuf,
    spill: Option<Spill>,
    spilled: u64,
}

impl<'t> Sorter<'t> {
    /// For so many keys, none of them longer than that.
    pub(super) fn new(
        keys: u64,
        longest: usize,
        memory: usize,
        folder: &Path,
        pool: &'t Pool,
    ) -> Result<Self> {
        // An eighth is for the buffer of what is written.
        let memory = memory / 8 * 7;
        let most = (memory / size_of::<Entry<'_>>()).max(1);
        let mut entries = Vec::new();
        reserve(&mut entries, most.min(usize::try_from(keys).unwrap_or(usize::MAX)))?;
        Ok(Self {
            entries,
            most,
            fan_in: (memory / (BUFFER + longest)).max(2),
            memory,
            pool,
            folder: folder.to_owned(),
            spill: None,
            spilled: 0,
        })
    }

    pub(super) fn push(&mut self, key: &'t [u8], value: u64) -> Result<()> {
        if self.entries.len() == self.most {
            self.spill_all()?;
        }
        self.entries.push(Entry { prefix: prefix(key), key, value });
        Ok(())
    }

    /// Bytes that went to temporary files.
    pub(super) const fn spilled(&self) -> u64 {
        self.spilled
    }

    fn sort(&mut self) {
        self.pool.sort_unstable_by(&mut self.entries, |a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| a.key.cmp(b.key))
        });
    }

    fn spill_all(&mut self) -> Result<()> {
        self.sort();
        let mut spill = match self.spill.take() {
            Some(spill) => spill,
            None => Spill::create(&self.folder)?,
        };
        let mut run = spill.run(self.memory);
        for entry in &self.entries {
            run.push(entry.key, entry.value)?;
        }
        self.spilled += run.finish()?;
        self.spill = Some(spill);
        self.entries.clear();
        Ok(())
    }

    /// Calls `each` with all keys in term order.
    pub(super) fn finish(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        if self.spill.is_none() {
            self.sort();
            return self.entries.iter().try_for_each(|entry| each(entry.key, entry.value));
        }
        self.spill_all()?;
        self.entries = Vec::new();
        let Some(mut spill) = self.spill.take() else { return Ok(()) };
        // With too many runs for the memory there are, fewer and longer ones first.
        while spill.runs.len() > self.fan_in {
            let mut next = Spill::create(&self.folder)?;
            for runs in spill.runs.chunks(self.fan_in) {
                let mut run = next.run(self.memory);
                spill.merge(runs, self.memory, &mut |key, value| run.push(key, value))?;
                self.spilled += run.finish()?;
            }
            spill = next;
        }
        spill.merge(&spill.runs, self.memory, each)
    }
}

/// Sorted runs in a file without a name, which vanishes with the process however that ends.
struct Spill {
    file: File,
    folder: PathBuf,
    len: u64,
    /// Where each begins and ends.
    runs: Vec<(u64, u64)>,
}

/// In front of each key: its length and its value.
const ENTRY_HEAD: usize = 12;

impl Spill {
    fn create(folder: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(folder)
            .map_err(Error::io("create a temporary file in", folder))?;
        Ok(Self { file, folder: folder.to_owned(), len: 0, runs: Vec::new() })
    }

    /// A run to be written.
    fn run(&mut self, memory: usize) -> Run<'_> {
        let Self { file, folder, len, runs } = self;
        let out = BufWriter::with_capacity((memory / 8).clamp(4 << 10, LARGE_BUFFER), &*file);
        Run { out, folder, begin: *len, len, runs }
    }

    /// Calls `each` with the keys of some runs, in term order.
    fn merge(
        &self,
        runs: &[(u64, u64)],
        memory: usize,
        each: &mut dyn FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        let fail = Error::io("read a temporary file in", &self.folder);
        let buffer = (memory / runs.len().max(1)).clamp(BUFFER, LARGE_BUFFER);
        let mut heads = BinaryHeap::with_capacity(runs.len());
        let read = |head: &mut Head| head.advance(&self.file);
        let mut started = || -> io::Result<()> {
            for &(at, end) in runs {
                let mut head = Head::new(at, end, buffer);
                if read(&mut head)? {
                    heads.push(head);
                }
            }
            Ok(())
        };
        started().map_err(fail)?;
        while let Some(mut head) = heads.peek_mut() {
            each(&head.key, head.value)?;
            if !read(&mut head).map_err(Error::io("read a temporary file in", &self.folder))? {
                PeekMut::pop(head);
            }
        }
        Ok(())
    }
}

/// A run that is being written.
struct Run<'s> {
    out: BufWriter<&'s File>,
    folder: &'s Path,
    begin: u64,
    len: &'s mut u64,
    runs: &'s mut Vec<(u64, u64)>,
}

impl Run<'_> {
    fn push(&mut self, key: &[u8], value: u64) -> Result<()> {
        let mut head = [0; ENTRY_HEAD];
        // Keys of tables are shorter than 2^31.
        head[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&value.to_le_bytes());
        *self.len += (ENTRY_HEAD + key.len()) as u64;
        let mut write = || self.out.write_all(&head).and_then(|()| self.out.write_all(key));
        write().map_err(Error::io("write a temporary file in", self.folder))
    }

    /// Returns the bytes of the run.
    fn finish(mut self) -> Result<u64> {
        self.out.flush().map_err(Error::io("write a temporary file in", self.folder))?;
        self.runs.push((self.begin, *self.len));
        Ok(*self.len - self.begin)
    }
}

/// A run that is being read, and its next key.
struct Head {
    key: Vec<u8>,
    value: u64,
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    used: usize,
}

impl Head {
    fn new(at: u64, end: u64, buffer: usize) -> Self {
        Self { key: Vec::new(), value: 0, at, end, buffer: Vec::with_capacity(buffer), used: 0 }
    }

    /// Goes to the next key; false if there is none.
    fn advance(&mut self, file: &File) -> io::Result<bool> {
        if self.at == self.end && self.used == self.buffer.len() {
            return Ok(false);
        }
        let mut head = [0; ENTRY_HEAD];
        self.read(file, &mut head)?;
        let [a, b, c, d, value @ ..] = head;
        self.value = u64::from_le_bytes(value);
        let mut key = std::mem::take(&mut self.key);
        key.resize(u32::from_le_bytes([a, b, c, d]) as usize, 0);
        self.read(file, &mut key)?;
        self.key = key;
        Ok(true)
    }

    fn read(&mut self, mut file: &File, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            if self.used == self.buffer.len() {
                let len = (self.end - self.at).min(self.buffer.capacity() as u64);
                if len == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.buffer.resize(len as usize, 0);
                file.seek(SeekFrom::Start(self.at))?;
                file.read_exact(&mut self.buffer)?;
                self.at += len;
                self.used = 0;
            }
            let len = out.len().min(self.buffer.len() - self.used);
            let (now, later) = out.split_at_mut(len);
            now.copy_from_slice(&self.buffer[self.used..self.used + len]);
            self.used += len;
            out = later;
        }
        Ok(())
    }
}

/// The heap has the greatest on top: that is the smallest key.
impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Head {}

#[cfg(test)]
mod tests {
    use super::*;

    /// With budgets from one that holds a key to one that holds all: runs, merges of merges, no run at all.
    #[test]
    fn sorted_within_any_memory() {
        let folder = tempfile::tempdir().unwrap();
        let pool = Pool::new(1, 1);
        let mut keys: Vec<Vec<u8>> = (0..2000u64)
            .map(|i| {
                let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut key = b"key\0".repeat((x >> 61) as usize);
                key.extend_from_slice(&x.to_be_bytes()[..(x >> 8) as usize % 9]);
                key
            })
            .collect();
        keys.push(vec![7; 40_000]);
        keys.sort();
        keys.dedup();
        let expected: Vec<(Vec<u8>, u64)> = keys.iter().cloned().zip(0..).collect();
        let mut given = expected.clone();
        // Any order but that one.
        given.sort_by_key(|(_, i)| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut passes = Vec::new();
        for memory in [0, 1000, 5000, 100_000, 1 << 20] {
            let mut sorter =
                Sorter::new(given.len() as u64, 40_000, memory, folder.path(), &pool).unwrap();
            let (most, fan_in) = (sorter.most, sorter.fan_in);
            for (key, value) in &given {
                sorter.push(key, *value).unwrap();
                assert!(sorter.entries.len() <= most);
            }
            let mut sorted = Vec::new();
            sorter
                .finish(&mut |key, value| {
                    sorted.push((key.to_vec(), value));
                    Ok(())
                })
                .unwrap();
            assert!(sorted == expected, "memory {memory}");
            let bytes: usize = expected.iter().map(|(key, _)| ENTRY_HEAD + key.len()).sum();
            assert_eq!(sorter.spilled() as usize % bytes, 0);
            passes.push(sorter.spilled() as usize / bytes);
            assert!(fan_in >= 2 && (memory < 1 << 20 || fan_in > 10));
        }
        // Twice as many runs at most for each pass.
        assert!(passes[0] > 5 && passes[1] > 3 && passes[2] > 1, "{passes:?}");
        assert_eq!(passes[4], 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
