//! Tables and the bytes that they lie in.

use std::io::Read;
use std::path::{Path, PathBuf};

use pkhash_core::format::{self, HEAD_LEN, TAIL_LEN};
use pkhash_core::{Answer, Footer, Keys, Table, Value};
use pkhash_simd::AnyKernel;
use self_cell::self_cell;

use crate::error::{Error, Result};
use crate::storage::{Advice, Storage};

/// How to open a table.
///
/// ```no_run
/// use pkhash_std::{AnyKernel, OpenOptions};
/// let table = OpenOptions::new().kernel(AnyKernel::scalar()).open("ids.pkh")?;
/// # Ok::<(), pkhash_std::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    pub(crate) advice: Advice,
    pub(crate) preload: bool,
    kernel: Option<AnyKernel>,
}

impl OpenOptions {
    /// Into memory, with the detected kernel.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the operating system is told about a mapping. Only for mapped tables.
    #[must_use]
    pub const fn advice(mut self, advice: Advice) -> Self {
        self.advice = advice;
        self
    }

    /// Read all pages of a mapping before the table is opened. Only for mapped tables.
    #[must_use]
    pub const fn preload(mut self, preload: bool) -> Self {
        self.preload = preload;
        self
    }

    /// Which kernel looks up.
    #[must_use]
    pub const fn kernel(mut self, kernel: AnyKernel) -> Self {
        self.kernel = Some(kernel);
        self
    }

    /// Reads a table into memory, in huge pages where the operating system has them. What happens to the
    /// file later does not matter.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::NotAFile`]; [`Error::Table`] if it is not a
    /// table.
    pub fn open(self, path: impl AsRef<Path>) -> Result<TableFile> {
        let path = path.as_ref();
        self.table(Storage::open(path, check_ends)?, Some(path))
    }

    /// Reads a table to its end: a pipe, a socket, a member of an archive. What does not begin as a table
    /// does is refused before the rest of it is read.
    ///
    /// # Errors
    /// [`Error::Io`] if the bytes cannot be read or do not fit in memory; [`Error::Table`] if they are
    /// not a table.
    pub fn read(self, reader: impl Read) -> Result<TableFile> {
        let storage = Storage::read(reader, |head| Ok(format::check_head(head)?))?;
        self.table(storage, None)
    }

    /// Takes a table that is in memory already. Nothing is copied: `bytes` lives as long as the table. It
    /// may be a `Vec<u8>`, an `Arc<[u8]>`, a `&'static [u8]`, or any other owner of bytes.
    ///
    /// # Errors
    /// [`Error::Table`] if the bytes are not a table.
    pub fn from_bytes(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<TableFile> {
        self.table(Storage::of(bytes), None)
    }

    /// A table of what was read or mapped.
    pub(crate) fn table(self, storage: Storage, path: Option<&Path>) -> Result<TableFile> {
        let opened = Opened::try_new(storage, |storage| Table::open(storage.bytes()))
            .map_err(|source| Error::Table { path: path.map(Path::to_owned), source })?;
        let kernel = self.kernel.unwrap_or_else(AnyKernel::detect);
        let name = path.unwrap_or(Path::new(UNNAMED)).to_owned();
        Ok(TableFile { opened, kernel, name, has_path: path.is_some() })
    }
}

/// What messages call a table that was not opened at a path.
const UNNAMED: &str = "table in memory";

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

self_cell! {
    /// The bytes, and the table that lies in them, prepared for lookups once.
    struct Opened {
        owner: Storage,

        #[covariant]
        dependent: Table,
    }

    impl {Debug}
}

/// A table and the bytes it lies in. `Send` and `Sync`: any number of threads may look up at once.
///
/// Lookups are those of [`Table`], with the kernel that was chosen when the file was opened: see there which call
/// is for what.
#[derive(Debug)]
pub struct TableFile {
    opened: Opened,
    kernel: AnyKernel,
    /// The path, or what stands for it in messages.
    name: PathBuf,
    has_path: bool,
}

impl TableFile {
    /// Opens a table into memory.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// Reads a table to its end: see [`OpenOptions::read`].
    ///
    /// # Errors
    /// As [`OpenOptions::read`].
    pub fn read(reader: impl Read) -> Result<Self> {
        OpenOptions::new().read(reader)
    }

    /// Takes a table that is in memory already: see [`OpenOptions::from_bytes`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pkhash_std::{TableFile, WriterOptions, build_slice};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut bytes = Vec::new();
    /// build_slice(&["a", "b"], |i| [i as u8], &mut bytes, &WriterOptions::default())?;
    /// let table = TableFile::from_bytes(Arc::<[u8]>::from(bytes))?;
    /// assert_eq!(table.get(b"b")?.and_then(|value| value.doc_id()), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::from_bytes`].
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> Result<Self> {
        OpenOptions::new().from_bytes(bytes)
    }

    /// The same table with another name for messages: where its bytes came from. A table without a path
    /// is a "table in memory" unless it is given a name.
    #[must_use]
    pub fn named(mut self, name: impl Into<PathBuf>) -> Self {
        if !self.has_path {
            self.name = name.into();
        }
        self
    }

    /// The same table at the path that it will have.
    #[cfg(feature = "write")]
    pub(crate) fn moved_to(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.name);
        self
    }

    /// The table.
    #[inline]
    #[must_use]
    pub fn table(&self) -> &Table<'_> {
        self.opened.borrow_dependent()
    }

    /// The facts of the table.
    #[must_use]
    pub fn footer(&self) -> &Footer {
        self.table().footer()
    }

    /// The kernel that looks up.
    #[must_use]
    pub const fn kernel(&self) -> AnyKernel {
        self.kernel
    }

    /// Where the table was opened; `None` if it was not opened at a path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.has_path.then_some(self.name.as_path())
    }

    /// What messages call the table: its path, or what [`named`](Self::named) says.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Looks up one key.
    ///
    /// # Errors
    /// [`Error::Table`] if the body is damaged and the damage was noticed.
    #[inline(always)]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        match self.table().get_direct(None, key) {
            Some(found) => Ok(found),
            None => self.get_other(key),
        }
    }

    /// Looks up one key and answers with its doc ID.
    ///
    /// # Errors
    /// [`Error::Table`] if the table's values are not sure to be doc IDs
    /// ([`Table::get_batch`]), or as [`get`](Self::get).
    #[inline(always)]
    pub fn get_doc_id(&self, key: &[u8]) -> Result<Option<u32>> {
        match self.table().get_direct(None, key) {
            Some(found) => Ok(found),
            None => self.get_doc_id_other(key),
        }
    }

    /// Looks up one key whose hash is known: one hash serves all tables that share a seed.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline(always)]
    pub fn get_hashed(&self, hash: u64, key: &[u8]) -> Result<Option<Value<'_>>> {
        match self.table().get_direct(Some(hash), key) {
            Some(found) => Ok(found),
            None => self.get_hashed_other(hash, key),
        }
    }

    /// Looks up a batch: `out[i]` becomes the answer for key number `i`. Returns how many were found.
    ///
    /// Keys are a slice of anything that is bytes, [`FixedKeys`](crate::FixedKeys) or
    /// [`HashedKeys`](crate::HashedKeys). Answers are values (`Option<Value>`), doc IDs (`Option<u32>`) or
    /// `bool`. Doc IDs are faster for large batches than to read them from the values.
    ///
    /// ```
    /// # use pkhash_std::{TableFile, WriterOptions, build_slice};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut bytes = Vec::new();
    /// # build_slice(&["a", "b"], |i| [i as u8], &mut bytes, &WriterOptions::default())?;
    /// let table = TableFile::from_bytes(bytes)?;
    /// let keys = ["b", "c"];
    /// let mut doc_ids = [None::<u32>; 2];
    /// assert_eq!(table.get_batch(keys, &mut doc_ids)?, 1);
    /// assert_eq!(doc_ids, [Some(1), None]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Table`] if keys and answers differ in number, if doc IDs are asked for and the table's values
    /// are not sure to be any ([`Table::get_batch`]), or as [`get`](Self::get).
    #[inline]
    pub fn get_batch<'a, A: Answer<'a>>(&'a self, keys: impl Keys, out: &mut [A]) -> Result<usize> {
        self.table().get_batch(self.kernel, keys, out).map_err(|source| self.error(source))
    }

    // What a lookup does that is not on the shortest path. Outside of the functions that are inlined into
    // their callers, with the conversion of errors.

    #[inline(never)]
    fn get_other(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.table().get_indirect(self.kernel, None, key).map_err(|source| self.error(source))
    }

    #[inline(never)]
    fn get_doc_id_other(&self, key: &[u8]) -> Result<Option<u32>> {
        self.table().get_doc_id_indirect(self.kernel, key).map_err(|source| self.error(source))
    }

    #[inline(never)]
    fn get_hashed_other(&self, hash: u64, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.table().get_indirect(self.kernel, Some(hash), key).map_err(|source| self.error(source))
    }

    #[cold]
    fn error(&self, source: pkhash_core::Error) -> Error {
        Error::table(&self.name)(source)
    }

    /// Reads everything and checks it: see [`Table::verify`].
    ///
    /// # Errors
    /// [`Error::Table`] with the first fault.
    pub fn verify(&self) -> Result<()> {
        self.table().verify().map_err(Error::table(&self.name))
    }
}
