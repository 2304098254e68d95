//! Where a table's bytes lie: in memory of the process, of the caller, or mapped from the file.

mod heap;
#[cfg(feature = "mmap")]
mod mmap;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use pkhash_core::format::{HEAD_LEN, TAIL_LEN};

use crate::error::{Error, Result};

pub(crate) use heap::Heap;

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
///
/// Whoever owns them, memory of the process, a mapping or the caller, was asked for them once: each lookup
/// needs them, and a caller's owner might say otherwise another time.
pub(crate) struct Storage(Bytes);

impl fmt::Debug for Storage {
    /// Not the bytes: they are a whole table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("len", &self.0.len()).finish_non_exhaustive()
    }
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

/// A regular file, and its length.
fn open_file(path: &Path) -> Result<(File, usize)> {
    // Before it is opened: opening a pipe waits for its other end.
    let meta = fs::metadata(path).map_err(Error::io("open", path))?;
    if !meta.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(Error::io("open", path))?;
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
    Ok((file, len))
}

/// What of a stream is read at a time.
const CHUNK: usize = 4 << 20;

impl Storage {
    /// `check`: before a large file is read, so that one that is something else takes neither time nor
    /// memory.
    pub(crate) fn open(path: &Path, check: CheckEnds) -> Result<Self> {
        let (mut file, len) = open_file(path)?;
        if len >= LARGE {
            check_ends(&mut file, len, path, check)?;
        }
        let heap = Heap::read(&mut file, len).map_err(Error::io("read", path))?;
        Ok(Self::of(heap))
    }

    /// Reads a stream to its end. `check`: before more than the head is read.
    pub(crate) fn read(
        mut reader: impl Read,
        check: fn(&[u8; HEAD_LEN]) -> Result<()>,
    ) -> Result<Self> {
        let error = || Error::io("read", Path::new("the input"));
        let mut chunk = |len: usize| -> io::Result<Vec<u8>> {
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(len)?;
            reader.by_ref().take(len as u64).read_to_end(&mut chunk)?;
            Ok(chunk)
        };
        let head = chunk(HEAD_LEN).map_err(error())?;
        if let Some(head) = head.first_chunk() {
            check(head)?;
        }
        let (mut len, mut chunks) = (head.len(), vec![head]);
        loop {
            let chunk = chunk(CHUNK).map_err(error())?;
            if chunk.is_empty() {
                break;
            }
            len += chunk.len();
            chunks.push(chunk);
        }
        let mut heap = Heap::zeroed(len).map_err(error())?;
        let mut rest = heap.bytes_mut();
        // Each chunk is freed when it was copied: pages of the copy take memory once they are written.
        for chunk in chunks {
            let (to, after) = rest.split_at_mut(chunk.len());
            to.copy_from_slice(&chunk);
            rest = after;
        }
        Ok(Self::of(heap))
    }

    /// The bytes of an owner.
    pub(crate) fn of(owner: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self(Bytes::from_owner(owner))
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
