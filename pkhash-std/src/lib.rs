//! pkhash with files: build, merge, open and search tables.
//!
//! * [`TableWriter`] builds a table from a stream of keys within a memory budget, [`build_slice`] from keys
//!   in memory;
//! * [`TableFile`] opens one, in memory or mapped, and looks up with the CPU's vector unit;
//! * [`merge`] makes one table of many;
//! * [`Publication`] is how files come to their names: whole, or not at all.
//!
//! The format and the lookup are in `pkhash-core`, the vector kernels in `pkhash-simd`; both are
//! re-exported here.
//!
//! # Features
//!
//! * `mmap` (default): mapped tables and heap copies in huge pages;
//! * `cli` (default): the `pkhash` command;
//! * `scalar`: the detected kernel is the scalar one; for final binaries only.

#![deny(unsafe_code)]

mod error;
mod file;
mod merge;
mod partition;
mod slice;
mod storage;
mod writer;

pub use error::{Error, Result};
pub use file::{OpenOptions, Publication, TableFile};
pub use merge::{DELETED, DocMap, MergeInput, MergeOptions, merge, merge_publication, merge_to};
pub use partition::{Built, Control, OnDuplicate};
pub use slice::{build_slice, build_slice_to};
pub use storage::{Advice, Mode};
pub use writer::{DEFAULT_MEMORY, MIN_MEMORY, TableWriter, WriterOptions};

pub use pkhash_core as core;
pub use pkhash_core::build::{LayoutChoice, Options, ValueChoice};
pub use pkhash_core::{FixedKeys, Footer, Hasher, Layout, Table, Value, ValueFormat, ValueKind};
pub use pkhash_simd::Kernel;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
