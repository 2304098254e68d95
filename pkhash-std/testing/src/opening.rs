//! Every way to hold the bytes of a table or a companion.

// The tests map files that nobody changes but by rename, or that they remove: one place for each kind.
#![allow(unsafe_code)]

use std::path::Path;

use pkhash_std::{Index, OpenOptions, Result, TableFile};
use pkhash_std::{OrderedOptions, OrderedTerms, Table};

/// Read into memory of the process, or mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Read,
    Mapped,
}

/// All of them.
pub fn modes() -> Vec<How> {
    vec![How::Read, How::Mapped]
}

impl How {
    pub const fn with(self, options: OpenOptions) -> Opening {
        Opening { how: self, options }
    }

    pub fn open(self, path: impl AsRef<Path>) -> Result<TableFile> {
        self.with(OpenOptions::new()).open(path)
    }

    pub fn companion(
        self,
        options: OrderedOptions,
        path: impl AsRef<Path>,
        table: &Table<'_>,
    ) -> Result<OrderedTerms> {
        match self {
            Self::Read => options.open(path, table),
            // SAFETY: no test changes a mapped file in place.
            Self::Mapped => unsafe { options.open_mapped(path, table) },
        }
    }
}

/// [`OpenOptions`], and whether to map.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    how: How,
    options: OpenOptions,
}

impl From<OpenOptions> for Opening {
    fn from(options: OpenOptions) -> Self {
        How::Read.with(options)
    }
}

impl Opening {
    pub fn open(self, path: impl AsRef<Path>) -> Result<TableFile> {
        match self.how {
            How::Read => self.options.open(path),
            // SAFETY: no test changes a mapped file in place.
            How::Mapped => unsafe { self.options.open_mapped(path) },
        }
    }
}

/// Maps an index.
pub fn map_index(folder: &Path, options: OpenOptions) -> Result<Index> {
    // SAFETY: no test changes a mapped file in place.
    unsafe { Index::open_mapped(folder, options) }
}
