//! Every way to hold the bytes of a table or a companion.

// The tests map files that nobody changes but by rename, or that they remove: one place for each kind.
#![allow(unsafe_code)]

use std::path::Path;

use pkhash_std::{OpenOptions, Result, TableFile};
#[cfg(feature = "ordered")]
use pkhash_std::{OrderedOptions, OrderedTerms, Table};

/// Read into memory of the process, or mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    #[cfg(feature = "mmap")]
    Mapped,
}

/// All of them.
pub(crate) fn modes() -> Vec<How> {
    vec![
        How::Read,
        #[cfg(feature = "mmap")]
        How::Mapped,
    ]
}

impl How {
    pub(crate) const fn with(self, options: OpenOptions) -> Opening {
        Opening { how: self, options }
    }

    pub(crate) fn open(self, path: impl AsRef<Path>) -> Result<TableFile> {
        self.with(OpenOptions::new()).open(path)
    }

    #[cfg(feature = "ordered")]
    pub(crate) fn companion(
        self,
        options: OrderedOptions,
        path: impl AsRef<Path>,
        table: &Table<'_>,
    ) -> Result<OrderedTerms> {
        match self {
            Self::Read => options.open(path, table),
            #[cfg(feature = "mmap")]
            // SAFETY: no test changes a mapped file in place.
            Self::Mapped => unsafe { options.map(path, table) },
        }
    }
}

/// [`OpenOptions`], and whether to map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    how: How,
    options: OpenOptions,
}

impl From<OpenOptions> for Opening {
    fn from(options: OpenOptions) -> Self {
        How::Read.with(options)
    }
}

impl Opening {
    pub(crate) fn open(self, path: impl AsRef<Path>) -> Result<TableFile> {
        match self.how {
            How::Read => self.options.open(path),
            #[cfg(feature = "mmap")]
            // SAFETY: no test changes a mapped file in place.
            How::Mapped => unsafe { self.options.map(path) },
        }
    }
}
