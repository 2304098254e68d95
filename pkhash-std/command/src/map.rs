//! Mapping tables, companions and indexes: the one place of the command with `unsafe`.
//!
//! All calls need that nobody changes the file while it is mapped. A library cannot promise that for all
//! programs that use it; the command can say it to whoever runs it. pkhash itself replaces files by rename only,
//! and a mapping keeps the old file. Without mapping, each `get` would read the whole table. `--open heap` is
//! there for files that something else may change, and its help says so. (SECURITY.md, "Mapped files".)

#![allow(unsafe_code)]

use std::path::Path;

use pkhash_std::{Index, OpenOptions, OrderedOptions, OrderedTerms, Result, Table, TableFile};

pub(crate) fn table(options: OpenOptions, path: &Path) -> Result<TableFile> {
    // SAFETY: as above.
    unsafe { options.open_mapped(path) }
}

pub(crate) fn index(options: OpenOptions, folder: &Path) -> Result<Index> {
    // SAFETY: as above.
    unsafe { Index::open_mapped(folder, options) }
}

pub(crate) fn companion(
    options: OrderedOptions,
    path: &Path,
    table: &Table<'_>,
) -> Result<OrderedTerms> {
    // SAFETY: as above.
    unsafe { options.open_mapped(path, table) }
}
