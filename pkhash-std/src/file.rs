//! Tables in files: opening, and writing in blocks.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pkhash_core::format::{self, HEAD_LEN, TAIL_LEN};
use pkhash_core::{FixedKeys, Footer, Table, Value};
use pkhash_simd::Kernel;

use crate::error::{Error, Result};
use crate::storage::{Advice, Mode, Storage};

/// How to open a table.
///
/// ```no_run
/// use pkhash_std::{Mode, OpenOptions};
/// let table = OpenOptions::new().mode(Mode::Map).preload(true).open("ids.pkh")?;
/// # Ok::<(), pkhash_std::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    mode: Mode,
    advice: Advice,
    preload: bool,
    kernel: Option<Kernel>,
}

impl OpenOptions {
    /// Into memory, with the detected kernel.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How the bytes are held.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What the operating system is told about a mapping. Only for mapped tables.
    #[must_use]
    pub const fn advice(mut self, advice: Advice) -> Self {
        self.advice = advice;
        self
    }

    /// Read all pages of a mapping before `open` returns. Only for mapped tables.
    #[must_use]
    pub const fn preload(mut self, preload: bool) -> Self {
        self.preload = preload;
        self
    }

    /// Which kernel looks up.
    #[must_use]
    pub const fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = Some(kernel);
        self
    }

    /// Opens a table.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::NotAFile`]; [`Error::Table`] if it is not a
    /// table.
    pub fn open(self, path: impl AsRef<Path>) -> Result<TableFile> {
        let path = path.as_ref();
        let storage = Storage::open(path, self.mode, self.advice, self.preload, check_ends)?;
        let footer = *Table::open(storage.bytes()).map_err(Error::table(path))?.footer();
        let kernel = self.kernel.unwrap_or_else(Kernel::detect);
        Ok(TableFile { storage, footer, kernel, path: path.to_owned() })
    }
}

/// What [`Table::open`] refuses that shows at both ends.
fn check_ends(
    head: &[u8; HEAD_LEN],
    tail: &[u8; TAIL_LEN],
    len: u64,
) -> Result<(), pkhash_core::Error> {
    format::check_head(head)?;
    match Footer::parse(tail, len) {
        // The tail is good, and the directory is longer than it.
        Err(pkhash_core::Error::TooShort { expected, .. }) if expected <= len => Ok(()),
        other => other.map(|_| ()),
    }
}

/// A table and the bytes it lies in. `Send` and `Sync`: any number of threads may look up at once.
#[derive(Debug)]
pub struct TableFile {
    storage: Storage,
    footer: Footer,
    kernel: Kernel,
    path: PathBuf,
}

impl TableFile {
    /// Opens a table into memory.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// Maps a table. See [`Mode::Map`] for what must not happen to the file meanwhile.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    #[cfg(feature = "mmap")]
    pub fn map(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().mode(Mode::Map).open(path)
    }

    /// The table. O(1): the footer was parsed when the file was opened.
    #[inline]
    #[must_use]
    pub fn table(&self) -> Table<'_> {
        // The storage is as long as it was when the footer was parsed from it.
        Table::with_footer(self.storage.bytes(), self.footer)
            .expect("a storage does not change its length")
    }

    /// The facts of the table.
    #[must_use]
    pub const fn footer(&self) -> &Footer {
        &self.footer
    }

    /// The kernel that looks up.
    #[must_use]
    pub const fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Where the table was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks up one key.
    ///
    /// # Errors
    /// [`Error::Table`] if the body is damaged and the damage was noticed.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.kernel.get(&self.table(), key).map_err(Error::table(&self.path))
    }

    /// Looks up one key whose hash is known: one hash serves all tables that share a seed.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn get_hashed(&self, hash: u64, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.kernel.get_hashed(&self.table(), hash, key).map_err(Error::table(&self.path))
    }

    /// Looks up a batch of keys whose hashes are known: see [`Table::get_batch_hashed_with`].
    ///
    /// # Errors
    /// [`Error::Table`] if `keys`, `hashes` and `out` are not all of one length, or as
    /// [`get`](Self::get).
    pub fn get_batch_hashed<'a, B: AsRef<[u8]>>(
        &'a self,
        keys: &[B],
        hashes: &[u64],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        let found = self.kernel.get_batch_hashed(&self.table(), keys, hashes, out);
        found.map_err(Error::table(&self.path))
    }

    /// Looks up a batch of keys that lie in one buffer.
    ///
    /// # Errors
    /// As [`get_batch`](Self::get_batch).
    pub fn get_batch_fixed<'a>(
        &'a self,
        keys: FixedKeys<'_>,
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        self.kernel.get_batch_fixed(&self.table(), keys, out).map_err(Error::table(&self.path))
    }

    /// Looks up a batch: `out[i]` becomes the value of `keys[i]`. Returns how many were found.
    ///
    /// # Errors
    /// [`Error::Table`] if `keys` and `out` differ in length, or as [`get`](Self::get).
    pub fn get_batch<'a, B: AsRef<[u8]>>(
        &'a self,
        keys: &[B],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        self.kernel.get_batch(&self.table(), keys, out).map_err(Error::table(&self.path))
    }

    /// Looks up a batch and answers with doc IDs: faster for large batches than to read them from the
    /// values of [`get_batch`](Self::get_batch).
    ///
    /// # Errors
    /// [`Error::Table`] if the table's values are not sure to be doc IDs
    /// ([`Table::get_batch_doc_ids_with`]), or as [`get_batch`](Self::get_batch).
    pub fn get_batch_doc_ids<B: AsRef<[u8]>>(
        &self,
        keys: &[B],
        out: &mut [Option<u32>],
    ) -> Result<usize> {
        self.kernel.get_batch_doc_ids(&self.table(), keys, out).map_err(Error::table(&self.path))
    }

    /// The same table under the name that it will have.
    pub(crate) fn named(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Reads everything and checks it: see [`Table::verify`].
    ///
    /// # Errors
    /// [`Error::Table`] with the first fault.
    pub fn verify(&self) -> Result<()> {
        self.table().verify().map_err(Error::table(&self.path))
    }
}

/// Collects writes into blocks of [`BLOCK`] bytes at multiples of it: the page cache can then hold
/// the file in huge pages, and map it so.
pub(crate) struct BlockWriter<W> {
    out: W,
    buffer: Vec<u8>,
}

/// 2 MiB: a huge page.
const BLOCK: usize = 2 << 20;

impl<W: Write> BlockWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, buffer: Vec::with_capacity(BLOCK) }
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        // As `write_all` does, which `flush` need not do.
        loop {
            match self.out.flush() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                flushed => return flushed,
            }
        }
    }

    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let (fill, rest) = bytes.split_at(bytes.len().min(BLOCK - self.buffer.len()));
            self.buffer.extend_from_slice(fill);
            bytes = rest;
            if self.buffer.len() == BLOCK {
                self.out.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        // Here the buffer is empty, or nothing is left.
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        if !whole.is_empty() {
            self.out.write_all(whole)?;
        }
        self.buffer.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes whose lengths are recorded.
    struct Record<'r>(&'r mut Vec<usize>, &'r mut Vec<u8>);

    impl Write for Record<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.len());
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn blocks_are_whole_and_in_order() {
        for lens in [
            vec![],
            vec![0],
            vec![1],
            vec![BLOCK],
            vec![BLOCK - 1, 1, 1],
            vec![1, 3 * BLOCK, 5],
            vec![3 * BLOCK + 7, BLOCK - 7, 0, 2 * BLOCK - 1],
        ] {
            let all: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|i| (i / 7) as u8).collect();
            let (mut writes, mut bytes) = (Vec::new(), Vec::new());
            let mut out = BlockWriter::new(Record(&mut writes, &mut bytes));
            let mut at = 0;
            for len in &lens {
                out.write_all(&all[at..at + len]).unwrap();
                at += len;
            }
            out.finish().unwrap();
            assert_eq!(bytes, all);
            let last = writes.pop();
            assert!(writes.iter().all(|len| len % BLOCK == 0), "{lens:?}: {writes:?} {last:?}");
        }
    }
}
