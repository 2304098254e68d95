//! The ordered companion of a table: what a hash table cannot answer. Next key, ranges, prefixes, patterns,
//! all keys in term order.
//!
//! A companion is a file beside the table: an fst of the fst crate with the doc IDs as outputs, and around it
//! what says whose companion it is (FORMAT.md §12).

mod automata;
mod build;
mod format;
mod nodes;
mod pair;
mod sort;

use std::ffi::OsString;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};

use fst::automaton::{AlwaysMatch, Levenshtein};
use fst::{Automaton, IntoStreamer, Streamer};
use pkhash_core::{Table, Value, ValueKind};

use crate::error::{Error, Result};

use crate::storage::{Advice, Storage};
use crate::table_file::TableFile;
use format::{Binding, HEAD_LEN, Parsed};

pub use automata::{KeyRegex, KeyRegexState};
pub use build::{BuiltCompanion, CompanionOptions, build_companion, merge_companions};
pub use format::MAX_ORDERED_KEY_LEN;
pub use pair::publish_pair;
pub use sort::MIN_COMPANION_MEMORY;

/// Where the companion of a table lies: `orders.pkh.fst` beside `orders.pkh`.
#[must_use]
pub fn companion_path(table: impl AsRef<Path>) -> PathBuf {
    let mut path = OsString::from(table.as_ref());
    path.push(".fst");
    path.into()
}

/// Bytes of a versioned value: doc ID and version.
const VERSIONED: u8 = 12;

/// Whether a table's values are, or have, doc IDs.
fn check_values(table: &TableFile) -> Result<()> {
    let value = table.footer().value();
    if value.kind() == ValueKind::Integer || value.width() == VERSIONED {
        return Ok(());
    }
    Err(Error::NoDocIds { path: table.name().to_owned(), width: value.width().into() })
}

/// How to open a companion.
///
/// ```no_run
/// use pkhash_std::{OrderedOptions, TableFile, companion_path};
/// let table = TableFile::open("ids.pkh")?;
/// let terms =
///     OrderedOptions::new().trusted(true).open(companion_path("ids.pkh"), table.table())?;
/// # Ok::<(), pkhash_std::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OrderedOptions {
    pub(crate) advice: Advice,
    trusted: bool,
}

impl OrderedOptions {
    /// Into memory, with all checks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the operating system is told about a mapping. Only for mapped companions.
    #[must_use]
    pub const fn advice(mut self, advice: Advice) -> Self {
        self.advice = advice;
        self
    }

    /// Leave out the checks that read the whole companion, so that opening is O(1). By default opening is
    /// O(bytes): the checksum, and that every node of the fst is sound.
    ///
    /// Only for files that nobody but this program and its disk has touched since they were published
    /// or last checked: **a damaged companion that was trusted may answer wrongly, panic, or search without
    /// end.** Memory stays safe.
    #[must_use]
    pub const fn trusted(mut self, trusted: bool) -> Self {
        self.trusted = trusted;
        self
    }

    /// Opens the companion of `table`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::NotAFile`]; [`Error::Companion`] if it is not a
    /// companion, is damaged, or belongs to another table.
    pub fn open(self, path: impl AsRef<Path>, table: &Table<'_>) -> Result<OrderedTerms> {
        let path = path.as_ref();
        let storage = Storage::open(path, |_, _, _| Ok(()))?;
        self.open_storage(storage, Some(path), table)
    }

    /// Takes the bytes of a companion of `table`.
    ///
    /// # Errors
    /// [`Error::Companion`], as [`open`](Self::open).
    pub fn from_bytes(self, bytes: impl Into<Vec<u8>>, table: &Table<'_>) -> Result<OrderedTerms> {
        self.open_storage(Storage::of(bytes.into()), None, table)
    }

    pub(crate) fn open_storage(
        self,
        storage: Storage,
        path: Option<&Path>,
        table: &Table<'_>,
    ) -> Result<OrderedTerms> {
        let binding = Binding::of(table);
        let bytes = storage.bytes();
        let parsed = format::parse(bytes, &binding).map_err(|fault| fault.at(path))?;
        if !self.trusted {
            check_all(bytes, &parsed, binding.keys).map_err(|fault| fault.at(path))?;
        }
        let fst = fst::Map::new(FstBytes { storage, len: parsed.fst_len })
            .map_err(|error| not_an_fst(path, &error))?;
        Ok(OrderedTerms { fst, binding, path: path.map(Path::to_owned) })
    }
}

/// Everything that reads the whole companion, and nothing else.
fn check_all(bytes: &[u8], parsed: &Parsed, keys: u64) -> Result<(), format::Fault> {
    // Before the nodes: of damage by chance it says the truth.
    format::check_sum(bytes, parsed)?;
    nodes::check(&bytes[HEAD_LEN..HEAD_LEN + parsed.fst_len], keys)
}

/// What the fst crate has to say beyond our own checks.
fn not_an_fst(path: Option<&Path>, error: &fst::Error) -> Error {
    let (what, expected, found) = match error {
        fst::Error::Fst(fst::raw::Error::ChecksumMismatch { expected, got }) => {
            ("fst's own checksum", (*expected).into(), (*got).into())
        }
        fst::Error::Fst(fst::raw::Error::Version { expected, got }) => {
            ("fst version", *expected, *got)
        }
        fst::Error::Fst(fst::raw::Error::Format { size }) => ("fst format", 0, *size as u64),
        _ => ("fst format", 0, 0),
    };
    format::Fault::new(what, HEAD_LEN, expected, found).at(path)
}

/// The bytes of a whole companion, and the length of the fst in it.
struct FstBytes {
    storage: Storage,
    len: usize,
}

impl AsRef<[u8]> for FstBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.storage.bytes()[HEAD_LEN..HEAD_LEN + self.len]
    }
}

/// The keys of a table in term order, with their doc IDs: its ordered companion. `Send` and `Sync`: any
/// number of threads may search at once.
///
/// ```
/// use pkhash_std::{
///     CompanionOptions, OrderedTerms, TableFile, WriterOptions, build_companion, build_slice,
///     companion_path,
/// };
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders.pkh");
/// let keys = ["order-17", "order-4", "order-256"];
/// build_slice(&keys, |i| (i as u32).to_le_bytes(), &path, &WriterOptions::default())?;
/// let table = TableFile::open(&path)?;
/// build_companion(&table, companion_path(&path), &CompanionOptions::default())?;
///
/// let terms = OrderedTerms::open(&table)?;
/// assert_eq!(terms.seek_ceil(b"order-2"), Some((b"order-256".to_vec(), 2)));
/// let found: Vec<_> = terms.prefix(b"order-1").collect();
/// assert_eq!(found, [(b"order-17".to_vec(), 0)]);
/// let found: Vec<_> = terms.regex("order-[0-9]{3}")?.collect();
/// assert_eq!(found, [(b"order-256".to_vec(), 2)]);
/// # Ok(())
/// # }
/// ```
pub struct OrderedTerms {
    fst: fst::Map<FstBytes>,
    binding: Binding,
    path: Option<PathBuf>,
}

impl fmt::Debug for OrderedTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedTerms")
            .field("path", &self.path)
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}

impl OrderedTerms {
    /// Opens the companion that lies beside a table, into memory. O(bytes of the companion): see
    /// [`OrderedOptions::trusted`].
    ///
    /// # Errors
    /// As [`OrderedOptions::open`]; [`Error::NoPath`] if the table was not opened at a path.
    pub fn open(table: &TableFile) -> Result<Self> {
        OrderedOptions::new().open_beside(table)
    }

    /// Where the companion of a table lies.
    pub(crate) fn path_of(table: &TableFile) -> Result<PathBuf> {
        table.path().map(companion_path).ok_or(Error::NoPath)
    }

    /// Where the companion was opened; `None` if it was made from bytes.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.binding.keys
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the companion.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// Whether this is the companion of that table. O(1).
    #[must_use]
    pub fn belongs_to(&self, table: &Table<'_>) -> bool {
        self.binding == Binding::of(table)
    }

    fn bytes(&self) -> &[u8] {
        self.fst.as_fst().as_inner().storage.bytes()
    }

    /// The doc ID of a key. The table itself answers faster.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.fst.get(key)
    }

    /// The first key that is not less than `key`, in term order, and its doc ID.
    #[must_use]
    pub fn seek_ceil(&self, key: &[u8]) -> Option<(Vec<u8>, u64)> {
        self.range(key..).next()
    }

    /// All keys, in term order.
    #[must_use]
    pub fn iter(&self) -> Terms<'_> {
        self.range(..)
    }

    /// The keys within bounds, in term order; none if the end lies before the beginning.
    #[must_use]
    pub fn range<'k>(&self, bounds: impl RangeBounds<&'k [u8]>) -> Terms<'_> {
        let range = self.fst.range();
        let range = match bounds.start_bound() {
            Bound::Included(key) => range.ge(key),
            Bound::Excluded(key) => range.gt(key),
            Bound::Unbounded => range,
        };
        let range = match bounds.end_bound() {
            Bound::Included(key) => range.le(key),
            Bound::Excluded(key) => range.lt(key),
            Bound::Unbounded => range,
        };
        Terms(range.into_stream())
    }

    /// The keys that begin with `prefix`, in term order.
    #[must_use]
    pub fn prefix(&self, prefix: &[u8]) -> Terms<'_> {
        match after_prefix(prefix) {
            Some(end) => self.range(prefix..end.as_slice()),
            None => self.range(prefix..),
        }
    }

    /// The keys that an automaton accepts, in term order. Parts of the fst that it cannot match are not
    /// read.
    #[must_use]
    pub fn automaton<A: Automaton>(&self, automaton: A) -> Terms<'_, A> {
        Terms(self.fst.search(automaton).into_stream())
    }

    /// The keys that match a regular expression as a whole, in term order. Syntax:
    /// [regex](https://docs.rs/regex/latest/regex/#syntax).
    ///
    /// # Errors
    /// [`Error::Pattern`] if it is not one, or too large: see [`KeyRegex::new`].
    pub fn regex(&self, pattern: &str) -> Result<Terms<'_, KeyRegex>> {
        Ok(self.automaton(KeyRegex::new(pattern)?))
    }

    /// The keys that are text and at most `distance` characters (inserted, left out or replaced) away from
    /// `word`, in term order.
    ///
    /// # Errors
    /// [`Error::Pattern`] if the automaton would be too large: it grows fast with the distance.
    pub fn levenshtein(&self, word: &str, distance: u32) -> Result<Terms<'_, Levenshtein>> {
        let automaton = Levenshtein::new(word, distance)
            .map_err(|error| Error::Pattern { cause: error.to_string() })?;
        Ok(self.automaton(automaton))
    }

    /// Reads everything and checks it: both checksums, every node, that every key is in the table with the
    /// same doc ID, and that there are as many.
    ///
    /// # Errors
    /// [`Error::Companion`], [`Error::CompanionKey`] or [`Error::NoDocIds`] with the first fault;
    /// [`Error::Table`] if the table is damaged.
    pub fn verify(&self, table: &TableFile) -> Result<()> {
        check_values(table)?;
        let path = self.path.as_deref();
        let bytes = self.bytes();
        let parsed =
            format::parse(bytes, &Binding::of(table.table())).map_err(|fault| fault.at(path))?;
        check_all(bytes, &parsed, self.len()).map_err(|fault| fault.at(path))?;
        self.fst.as_fst().verify().map_err(|error| not_an_fst(path, &error))?;
        // Keys rise strictly and are as many as the table's, so none is missing if all are there.
        let mut terms = self.iter();
        while let Some((key, doc)) = terms.advance() {
            let expected = table.get(key)?.and_then(Value::long_doc_id);
            if expected != Some(doc) {
                let (path, key) = (self.path.clone(), key.to_vec());
                return Err(Error::CompanionKey { path, key, expected, found: doc });
            }
        }
        Ok(())
    }
}

/// The end of the keys that begin with a prefix; `None`: there is no end.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Keys of a companion and their doc IDs, in term order.
pub struct Terms<'a, A: Automaton = AlwaysMatch>(fst::map::Stream<'a, A>);

impl<A: Automaton> Terms<'_, A> {
    /// The next key, without a copy: the iterator makes one of each.
    pub fn advance(&mut self) -> Option<(&[u8], u64)> {
        self.0.next()
    }
}

impl<A: Automaton> fmt::Debug for Terms<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terms").finish_non_exhaustive()
    }
}

impl<A: Automaton> Iterator for Terms<'_, A> {
    type Item = (Vec<u8>, u64);

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|(key, doc)| (key.to_vec(), doc))
    }
}

/// After its end an fst's stream gives nothing more.
impl<A: Automaton> std::iter::FusedIterator for Terms<'_, A> {}

impl<'a> IntoIterator for &'a OrderedTerms {
    type Item = (Vec<u8>, u64);
    type IntoIter = Terms<'a>;

    fn into_iter(self) -> Terms<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_where_they_no_longer_begin_a_key() {
        assert_eq!(after_prefix(b""), None);
        assert_eq!(after_prefix(b"\xff\xff"), None);
        assert_eq!(after_prefix(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(after_prefix(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
    }

    #[test]
    fn the_name_is_the_table_s_and_more() {
        assert_eq!(companion_path("a/orders.pkh"), Path::new("a/orders.pkh.fst"));
        assert_eq!(companion_path("orders"), Path::new("orders.fst"));
    }
}
