//! Errors that name the file, what was being done, and the cause.
//!
//! A message is whole: it has the cause in it. `source` is then what lies behind the cause, so that a chain of
//! causes says nothing twice; the cause itself is a field of the variant.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use pkhash_core::{ValueFormat, ValueKind};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and where.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    Io {
        /// What was being done: a verb, such as `open`.
        doing: &'static str,
        /// The file, or the folder of a temporary file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The bytes are not a table, or one cannot be built as asked.
    Table {
        /// The file, if the fault is in one.
        path: Option<PathBuf>,
        /// The cause.
        source: pkhash_core::Error,
    },
    /// The parts of a batch differ in length.
    BatchLength {
        /// Keys of the batch.
        expected: usize,
        /// Answers that there is room for, or hashes.
        found: usize,
    },
    /// A key occurs twice, and no policy was chosen.
    DuplicateKey {
        /// The key.
        key: Vec<u8>,
        /// The value that came first, as the table's bytes.
        first: Vec<u8>,
        /// The value that came later.
        second: Vec<u8>,
    },
    /// An input of a merge is not what the merge needs.
    Mismatch {
        /// What differs.
        what: &'static str,
        /// Number of the input, from 0.
        input: usize,
        /// What is needed: the least width, the largest doc ID.
        expected: u64,
        /// What this input has.
        found: u64,
    },
    /// The inputs of a merge differ in the kind or the width of their values. (Integers of different widths
    /// do not.)
    Values {
        /// Number of the input, from 0.
        input: usize,
        /// The values of input 0.
        expected: ValueFormat,
        /// The values of this input.
        found: ValueFormat,
    },
    /// A value is not the number of a doc of the input's doc map.
    DocMap {
        /// Number of the input, from 0.
        input: usize,
        /// The value.
        found: u64,
        /// Docs in the map.
        expected: u64,
    },
    /// A doc ID that is not below the number of a segment's docs.
    NoSuchDoc {
        /// The doc ID.
        found: u64,
        /// Docs of the segment.
        docs: u64,
    },
    /// Live docs of another size than the docs need.
    LiveDocs {
        /// Words of 64 bits that the docs need.
        expected: u64,
        /// Words that were given.
        found: u64,
    },
    /// A match of a query for doc IDs whose value is none, or is one that does not fit 32 bits once the
    /// segment's doc base is added.
    NoDocId {
        /// Number of the segment in its set, from 0.
        segment: usize,
        /// The value, as the table's bytes.
        value: Vec<u8>,
    },
    /// More docs than doc IDs of 32 bits can tell apart, one of which means "deleted".
    TooManyDocs {
        /// The docs.
        found: u64,
    },
    /// More segments than a set can have.
    TooManySegments {
        /// The most.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A set has no segment of this number.
    NoSuchSegment {
        /// Its segments.
        expected: usize,
        /// The number.
        found: usize,
    },
    /// A table that was merged is not in the set any more.
    NotInSet {
        /// Number of the input, from 0.
        input: usize,
        /// The table.
        path: PathBuf,
    },
    /// A folder has no tables, which are the files `*.pkh`.
    NoTables {
        /// The folder.
        path: PathBuf,
    },
    /// Tables were added to a folder, replaced or removed each time that it was listed.
    FolderChanged {
        /// The folder, or the first of several.
        path: PathBuf,
        /// How often it was listed.
        rounds: usize,
    },
    /// The names of a folder's tables do not tell which is newer: as bytes one, by their numbers the
    /// other.
    FolderOrder {
        /// The folder.
        path: PathBuf,
        /// The name of one of them.
        first: OsString,
        /// The name of the other.
        second: OsString,
    },
    /// The path names something that is no table, and that a table must not replace: a folder, a
    /// device, a pipe.
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A folder is no index: it has no manifest.
    NoIndex {
        /// The folder.
        path: PathBuf,
    },
    /// A manifest is damaged, or not one that this version can read.
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// A file of live docs is damaged, or not the one that was committed.
    LiveDocsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, in the words of FORMAT.md §14.
        what: &'static str,
        /// Where it was seen.
        offset: u64,
        /// The value, or the largest or least value, expected there.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// A file of a segment map is damaged, or not the one that was committed.
    SegmentMapFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, in the words of FORMAT.md §15.
        what: &'static str,
        /// Where it was seen.
        offset: u64,
        /// The value, or the largest or least value, expected there.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// A table of an index is not the one that was committed.
    NotCommitted {
        /// The table.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// What was committed.
        expected: u64,
        /// What the table has.
        found: u64,
    },
    /// Another writer is at work in an index.
    Locked {
        /// The lock.
        path: PathBuf,
        /// What that writer says of itself.
        holder: String,
    },
    /// A table that is to be added to an index is a segment of it already.
    AlreadyThere {
        /// The table.
        path: PathBuf,
    },
    /// Another merge of a segment is under way.
    InMerge {
        /// The segment's table.
        path: PathBuf,
    },
    /// The bytes are not the ordered companion of the table, or one cannot be built as asked.
    Companion {
        /// The file, if the fault is in one.
        path: Option<PathBuf>,
        /// What is wrong, in the words of FORMAT.md §12.
        what: &'static str,
        /// Whether that is all that was found: it names another table.
        of_another: bool,
        /// Where it was seen.
        offset: u64,
        /// The value, or the largest or least value, expected there.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// An ordered companion has a key that its table has not, or has with another doc ID.
    CompanionKey {
        /// The companion's file, if it lies in one.
        path: Option<PathBuf>,
        /// The key.
        key: Vec<u8>,
        /// The table's doc ID; `None`: the table has not got the key.
        expected: Option<u64>,
        /// The companion's doc ID.
        found: u64,
    },
    /// A table has no doc IDs that an ordered companion could keep: its values are neither integers nor
    /// doc ID and version.
    NoDocIds {
        /// The table.
        path: PathBuf,
        /// Bytes of each value.
        width: u32,
    },
    /// No automaton can be made of a pattern: it is not a regular expression, or too large.
    Pattern {
        /// The cause.
        cause: String,
    },
    /// A writer has lost keys that it could not spill; nothing can be built from it any more.
    WriterFailed,
    /// A path is needed and there is none: a writer was made without one, or a table was not opened at
    /// one.
    NoPath,
    /// There is no memory for what was to be built. A smaller budget may help.
    OutOfMemory {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// A memory budget is below the least.
    MemoryBudget {
        /// The least, in bytes.
        expected: usize,
        /// The budget.
        found: usize,
    },
    /// The caller asked to stop.
    Cancelled,
}

impl Error {
    /// For `map_err`: an I/O error of a path.
    pub(crate) fn io<'p>(
        doing: &'static str,
        path: &'p Path,
    ) -> impl FnOnce(io::Error) -> Self + 'p {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }

    /// For `map_err`: an error of a table's file.
    pub(crate) fn table(path: &Path) -> impl FnOnce(pkhash_core::Error) -> Self + '_ {
        move |source| match source {
            // No fault of the table.
            pkhash_core::Error::BatchLength { .. } => source.into(),
            source => Self::Table { path: Some(path.to_owned()), source },
        }
    }

    /// The same, with what lies in `from`, or is it, shown as what lies in `to`.
    #[cfg(feature = "index")]
    pub(crate) fn shown_in(mut self, from: &Path, to: &Path) -> Self {
        if let Self::Io { path, .. }
        | Self::Table { path: Some(path), .. }
        | Self::NotInSet { path, .. }
        | Self::FolderChanged { path, .. }
        | Self::NotAFile { path }
        | Self::NoIndex { path }
        | Self::Manifest { path, .. }
        | Self::LiveDocsFile { path, .. }
        | Self::SegmentMapFile { path, .. }
        | Self::NotCommitted { path, .. }
        | Self::Locked { path, .. }
        | Self::AlreadyThere { path } = &mut self
            && let Ok(rest) = path.strip_prefix(from)
        {
            let is_it = rest.as_os_str().is_empty();
            *path = if is_it { to.to_owned() } else { to.join(rest) };
        }
        self
    }
}

impl From<pkhash_core::Error> for Error {
    fn from(source: pkhash_core::Error) -> Self {
        match source {
            pkhash_core::Error::BatchLength { expected, found } => {
                Self::BatchLength { expected, found }
            }
            source => Self::Table { path: None, source },
        }
    }
}

/// A key or a value in a message: text where it is text, otherwise hex; long ones are cut.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 64;
        let cut = &self.0[..self.0.len().min(MOST)];
        match std::str::from_utf8(cut) {
            Ok(text) if !text.chars().any(char::is_control) => write!(f, "\"{text}\"")?,
            _ => {
                f.write_str("0x")?;
                for byte in cut {
                    write!(f, "{byte:02x}")?;
                }
            }
        }
        if self.0.len() > MOST {
            write!(f, "… ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

/// A value in a message: as an integer if it is at most 8 bytes wide.
struct ShownValue<'a>(&'a [u8]);

impl fmt::Display for ShownValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() > 8 {
            return Shown(self.0).fmt(f);
        }
        let mut wide = [0; 8];
        wide[..self.0.len()].copy_from_slice(self.0);
        u64::from_le_bytes(wide).fmt(f)
    }
}

/// What a table's values are, in words.
struct ShownFormat(ValueFormat);

impl fmt::Display for ShownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.kind(), self.0.width()) {
            (ValueKind::Integer, _) => f.write_str("integers"),
            (_, 0) => f.write_str("none (a set)"),
            (_, width) => write!(f, "{width} opaque bytes"),
        }
    }
}

/// Begins a message with the file, if there is one.
fn named(path: Option<&Path>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    path.map_or(Ok(()), |path| write!(f, "{}: ", path.display()))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
            Self::Table { path: Some(path), source } => write!(f, "{}: {source}", path.display()),
            Self::Table { path: None, source } => source.fmt(f),
            Self::BatchLength { expected, found } => {
                write!(f, "a batch of {expected} keys needs as many answers, found {found}")
            }
            Self::DuplicateKey { key, first, second } => write!(
                f,
                "duplicate key {}: values {} and {}",
                Shown(key),
                ShownValue(first),
                ShownValue(second)
            ),
            Self::Mismatch { what, input, expected, found } => write!(
                f,
                "input {input} cannot be merged: {what}: expected {expected}, found {found}"
            ),
            Self::Values { input, expected, found } => write!(
                f,
                "input {input} cannot be merged with input 0: values: expected {}, found {}",
                ShownFormat(*expected),
                ShownFormat(*found)
            ),
            Self::DocMap { input, found, expected } => write!(
                f,
                "input {input} has doc ID {found}, but its doc map has {expected} entries"
            ),
            Self::NoSuchDoc { found, docs } => {
                write!(f, "doc ID {found} in a segment of {docs} docs")
            }
            Self::LiveDocs { expected, found } => {
                write!(f, "live docs: expected {expected} words of 64 bits, found {found}")
            }
            Self::NoDocId { segment, value } => write!(
                f,
                "segment {segment} has the value {}, which is no doc ID of 32 bits",
                ShownValue(value)
            ),
            Self::TooManyDocs { found } => {
                write!(f, "{found} docs are more than doc IDs of 32 bits can tell apart")
            }
            Self::TooManySegments { expected, found } => {
                write!(f, "{found} segments are more than the {expected} that a set can have")
            }
            Self::NoSuchSegment { expected, found } => {
                write!(f, "there is no segment {found}: the set has {expected}")
            }
            Self::NotInSet { input, path } => {
                write!(f, "input {input}, {}, is not in the set", path.display())
            }
            Self::NoTables { path } => {
                write!(f, "{}: no tables (*.pkh) in this folder", path.display())
            }
            Self::FolderChanged { path, rounds } => write!(
                f,
                "{}: the tables in this folder changed each of the {rounds} times that they were listed",
                path.display()
            ),
            Self::FolderOrder { path, first, second } => write!(
                f,
                "{}: the names do not tell whether {} is newer or {}: as text the latter, by their \
                 numbers the former (name the tables in order, or give all names in the folder one \
                 length)",
                path.display(),
                first.display(),
                second.display()
            ),
            Self::NoIndex { path } => {
                write!(f, "{}: no index: expected a manifest in this folder", path.display())
            }
            Self::Manifest { path, fault } => write!(f, "{}: {fault}", path.display()),
            Self::LiveDocsFile { path, what, offset, expected, found }
            | Self::SegmentMapFile { path, what, offset, expected, found } => {
                let kind = match self {
                    Self::LiveDocsFile { .. } => "live docs",
                    _ => "segment map",
                };
                write!(f, "{}: {kind}: {what} at offset {offset}: ", path.display())?;
                if what.contains("magic") || what.contains("checksum") {
                    write!(f, "expected {expected:#018x}, found {found:#018x}")
                } else {
                    write!(f, "expected {expected}, found {found}")
                }
            }
            Self::NotCommitted { path, what, expected, found } => write!(
                f,
                "{}: not the table that was committed: {what}: expected {expected}, found {found}",
                path.display()
            ),
            Self::Locked { path, holder } => {
                write!(f, "{}: another writer is at work: {holder}", path.display())
            }
            Self::AlreadyThere { path } => {
                write!(f, "{}: is a segment of the index already", path.display())
            }
            Self::InMerge { path } => {
                write!(f, "{}: another merge of it is under way", path.display())
            }
            Self::NotAFile { path } => write!(f, "{}: not a regular file", path.display()),
            Self::Companion { path, what, of_another, offset, expected, found } => {
                named(path.as_deref(), f)?;
                write!(f, "ordered companion: {what} at offset {offset}: ")?;
                if what.ends_with("magic") || what.ends_with("checksum") {
                    write!(f, "expected {expected:#018x}, found {found:#018x}")
                } else {
                    write!(f, "expected {expected}, found {found}")
                }?;
                if *of_another { f.write_str(" (it is of another table)") } else { Ok(()) }
            }
            Self::CompanionKey { path, key, expected, found } => {
                named(path.as_deref(), f)?;
                write!(f, "ordered companion: key {}: expected ", Shown(key))?;
                match expected {
                    Some(doc) => write!(f, "doc ID {doc}")?,
                    None => f.write_str("none, as the table has none")?,
                }
                write!(f, ", found doc ID {found}")
            }
            Self::NoDocIds { path, width } => write!(
                f,
                "{}: no doc IDs for an ordered companion: values are {width} opaque bytes, expected \
                 integers, or doc ID and version in 12 bytes",
                path.display()
            ),
            Self::Pattern { cause } => write!(f, "bad pattern: {cause}"),
            Self::WriterFailed => f.write_str("keys were lost: a temporary file failed before"),
            Self::NoPath => f.write_str(
                "there is no path: none was given to the writer, or the table is in memory",
            ),
            Self::OutOfMemory { bytes } => {
                write!(f, "out of memory: the system did not give {bytes} bytes more")
            }
            Self::MemoryBudget { expected, found } => write!(
                f,
                "the memory budget is too small: expected at least {expected} bytes, found {found}"
            ),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message says what the cause says. A chain of causes goes on behind it, or all would be said
        // twice.
        match self {
            Self::Io { source, .. } => source.source(),
            Self::Table { source, .. } => std::error::Error::source(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain of causes, as it is often printed, says nothing twice, and all of it.
    #[test]
    fn a_chain_of_causes_says_nothing_twice() {
        let deep = || io::Error::other(io::Error::other("the disk is on fire"));
        let short = pkhash_core::Error::TooShort { expected: 128, found: 7 };
        let path = PathBuf::from("a.pkh");
        for (error, part) in [
            (Error::Io { doing: "read", path: path.clone(), source: deep() }, "on fire"),
            (Error::Table { path: Some(path), source: short }, "found 7"),
            (Error::Table { path: None, source: short }, "found 7"),
        ] {
            assert_eq!(error.to_string().matches(part).count(), 1, "{error}");
            let mut chain = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                chain += &format!(": {error}");
                cause = error.source();
            }
            assert_eq!(chain.matches(part).count(), 1, "{chain}");
        }
    }
}
