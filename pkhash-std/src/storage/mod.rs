//! Where a table's bytes lie: in memory of the process, or mapped from the file.

mod heap;
#[cfg(feature = "mmap")]
mod mmap;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use pkhash_core::format::{HEAD_LEN, TAIL_LEN};

use crate::error::{Error, Result};

pub(crate) use heap::Heap;

/// How the bytes of a table are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Read into memory when opened. An I/O error is an error of `open`, and nothing that happens to
    /// the file later matters.
    #[default]
    Heap,
    /// As `Heap`, in huge pages where the operating system has them: fewer misses of the page
    /// tables' cache, worth some 10–15 % on batches over large tables.
    #[cfg(feature = "mmap")]
    HugePages,
    /// Mapped. Opening reads the footer alone, the rest is read when it is touched, and processes
    /// share the memory.
    ///
    /// **The file must not be changed while it is mapped.** Tables published by this crate are not:
    /// a new version is another file, put under the name by rename, and the mapping keeps the old
    /// one. If somebody truncates the file all the same, touching a page past the new end raises
    /// SIGBUS, which ends the process; so does an I/O error of the disk under the mapping. If
    /// somebody overwrites it, lookups see some mixture of old and new bytes: they may answer
    /// wrongly, but stay inside the mapping. Where that cannot be ruled out, use `Heap`.
    #[cfg(feature = "mmap")]
    Map,
}

impl Mode {
    /// Whether all of a file is read into memory.
    const fn is_memory(self) -> bool {
        match self {
            Self::Heap => true,
            #[cfg(feature = "mmap")]
            Self::HugePages => true,
            #[cfg(feature = "mmap")]
            Self::Map => false,
        }
    }
}

/// What the operating system is told about accesses to a mapped table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing: read-ahead helps to warm up a table that fits memory.
    #[default]
    Normal,
    /// Accesses are random, do not read ahead: for tables much larger than memory.
    Random,
    /// Accesses are sequential: for verifying and merging.
    Sequential,
    /// All of it will be needed soon: read in the background.
    WillNeed,
}

/// The bytes of a file, held for as long as this lives. They do not move.
#[derive(Debug)]
pub(crate) enum Storage {
    Heap(Heap),
    #[cfg(feature = "mmap")]
    Mapped(mmap::Mapped),
}

/// From this size on, both ends of a file are looked at before it is read into memory.
const LARGE: usize = 1 << 20;

/// What says of a file's head and tail, and its length, whether it is worth reading.
pub(crate) type CheckEnds =
    fn(&[u8; HEAD_LEN], &[u8; TAIL_LEN], u64) -> Result<(), pkhash_core::Error>;

/// Looks at both ends of a file, and goes back to its beginning.
fn check_ends(file: &mut File, len: usize, path: &Path, check: CheckEnds) -> Result<()> {
    let mut read = || {
        let (mut head, mut tail) = ([0; HEAD_LEN], [0; TAIL_LEN]);
        file.read_exact(&mut head)?;
        file.seek(SeekFrom::End(-(TAIL_LEN as i64)))?;
        file.read_exact(&mut tail)?;
        file.rewind()?;
        Ok((head, tail))
    };
    let (head, tail) = read().map_err(Error::io("read", path))?;
    check(&head, &tail, len as u64).map_err(Error::table(path))
}

impl Storage {
    /// `check`: before a large file is read into memory, so that one that is something else takes neither
    /// time nor memory.
    #[cfg_attr(not(feature = "mmap"), allow(unused_variables))]
    pub(crate) fn open(
        path: &Path,
        mode: Mode,
        advice: Advice,
        preload: bool,
        check: CheckEnds,
    ) -> Result<Self> {
        // Before it is opened: opening a pipe waits for its other end.
        let meta = fs::metadata(path).map_err(Error::io("open", path))?;
        if !meta.is_file() {
            return Err(Error::NotAFile { path: path.to_owned() });
        }
        let mut file = File::open(path).map_err(Error::io("open", path))?;
        let meta = file.metadata().map_err(Error::io("open", path))?;
        if !meta.is_file() {
            return Err(Error::NotAFile { path: path.to_owned() });
        }
        let len = usize::try_from(meta.len()).map_err(|_| Error::Table {
            path: Some(path.to_owned()),
            source: pkhash_core::Error::TooLarge {
                what: "bytes",
                expected: usize::MAX as u64,
                found: meta.len(),
            },
        })?;
        if len >= LARGE && mode.is_memory() {
            check_ends(&mut file, len, path, check)?;
        }
        match mode {
            Mode::Heap => Heap::read(&mut file, len, false).map(Self::Heap),
            #[cfg(feature = "mmap")]
            Mode::HugePages => Heap::read(&mut file, len, true).map(Self::Heap),
            #[cfg(feature = "mmap")]
            Mode::Map => mmap::Mapped::new(&file, len, advice, preload).map(Self::Mapped),
        }
        .map_err(Error::io("read", path))
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(heap) => heap.bytes(),
            #[cfg(feature = "mmap")]
            Self::Mapped(mapped) => mapped.bytes(),
        }
    }
}
