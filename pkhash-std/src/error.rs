//! Errors that name the file, what was being done, and the cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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
    /// A key occurs twice, and no policy was chosen.
    DuplicateKey {
        /// The key.
        key: Vec<u8>,
        /// The value that came first, as the table's bytes.
        first: Vec<u8>,
        /// The value that came later.
        second: Vec<u8>,
    },
    /// The inputs of a merge differ in what they must share.
    Mismatch {
        /// What differs.
        what: &'static str,
        /// Number of the input, from 0.
        input: usize,
        /// What input 0 has.
        expected: u64,
        /// What this input has.
        found: u64,
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
    /// The path names something that is no table, and that a table must not replace: a folder, a
    /// device, a pipe.
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A writer has lost keys that it could not spill; nothing can be built from it any more.
    WriterFailed,
    /// A table was to be published by a writer that was given no path.
    NoPath,
    /// Threads could not be started.
    Threads {
        /// The cause.
        source: io::Error,
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
        move |source| Self::Table { path: Some(path.to_owned()), source }
    }
}

impl From<pkhash_core::Error> for Error {
    fn from(source: pkhash_core::Error) -> Self {
        Self::Table { path: None, source }
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
            Self::Table { path: Some(path), source } => write!(f, "{}: {source}", path.display()),
            Self::Table { path: None, source } => source.fmt(f),
            Self::DuplicateKey { key, first, second } => write!(
                f,
                "duplicate key {}: values {} and {}",
                Shown(key),
                ShownValue(first),
                ShownValue(second)
            ),
            Self::Mismatch { what, input, expected, found } => write!(
                f,
                "input {input} cannot be merged with input 0: {what}: expected {expected}, found {found}"
            ),
            Self::DocMap { input, found, expected } => write!(
                f,
                "input {input} has doc ID {found}, but its doc map has {expected} entries"
            ),
            Self::NotAFile { path } => write!(f, "{}: not a regular file", path.display()),
            Self::WriterFailed => f.write_str("keys were lost: a temporary file failed before"),
            Self::NoPath => f.write_str("the writer was given no path to publish at"),
            Self::Threads { source } => write!(f, "cannot start threads: {source}"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Threads { source } => Some(source),
            Self::Table { source, .. } => Some(source),
            _ => None,
        }
    }
}
