//! pkhash with files: build, merge, open and search tables. (The `pkhash` command is the package `pkhash`.)
//!
//! * [`TableWriter`] builds a table from a stream of keys within a memory budget, [`build_slice`] from keys
//!   in memory;
//! * [`TableFile`] opens one, in memory or mapped, and looks up with the CPU's vector unit;
//! * [`merge`] makes one table of many;
//! * [`SegmentSet`] is many that answer as one, with deletes, versions and in-set queries; [`open_tables`]
//!   opens those of a folder that others change meanwhile;
//! * [`Index`] is a folder of them that changes by commits: adds, deletes, merges;
//! * [`OrderedTerms`], a table's companion, answers what needs order: ranges, prefixes, patterns;
//! * [`Publication`] is how files come to their names: whole, or not at all.
//!
//! # Which call
//!
//! Keys are any bytes. A name says what it answers; a batch answers what the type of its `out` says.
//! The costs are those of perfect tables on a Zen 4, 10 M keys of 16 bytes.
//!
//! | call | for | cost for a key |
//! | --- | --- | --- |
//! | [`TableFile::get`] | one key → its value | 70 instructions or so and one read from memory |
//! | [`TableFile::get_doc_id`] | one key → its doc ID | the same, without the value on the way |
//! | [`TableFile::get_hashed`] | one key of known hash, for several tables of one seed | saves the hash, a third of the instructions |
//! | [`TableFile::get_batch`] | many keys → values, doc IDs or presence | a third of the time of single gets: the reads overlap |
//! | [`SegmentSet::get`], [`get_doc_id`](SegmentSet::get_doc_id) | one key → the newest live match in many tables | with a segment map one read more; without, one lookup for each table |
//! | [`SegmentSet::get_batch`] | many keys → the same, or presence | as above, overlapped |
//! | [`SegmentSet::in_set`] | many keys → the sorted doc IDs of all live matches | a batch, and a sort |
//!
//! `pkhash_core::Table` has the same calls for bytes that lie in memory anyway; its caller gives the kernel.
//! There, tables that are not in memory are read by `Lookup`, which names the bytes it wants.
//!
//! # Crates
//!
//! The format and the lookup are in `pkhash-core`, the vector kernels in `pkhash-simd`; both are
//! re-exported here.
//!
//! # Features
//!
//! * `mmap` (default): mapped tables; tables that are read lie in huge pages;
//! * `write` (default): everything that makes tables; includes `sets`;
//! * `index` (default): [`Index`]; includes `write`;
//! * `sets`: [`SegmentSet`];
//! * `ordered`: ordered companions ([`OrderedTerms`]), by the crate `fst`;
//! * `scalar`: the detected kernel is the scalar one; for final binaries only.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Mapping is the only exception: `storage/mmap.rs`.
#![cfg_attr(not(feature = "mmap"), forbid(unsafe_code))]
#![cfg_attr(feature = "mmap", deny(unsafe_code))]

#[cfg(feature = "write")]
mod budget;
#[cfg(any(feature = "index", feature = "ordered"))]
mod checksum;
#[cfg(feature = "write")]
mod collect;
mod error;
#[cfg(feature = "write")]
mod file;
mod folder;
#[cfg(feature = "index")]
mod index;
mod memory;
#[cfg(feature = "write")]
mod merge;
mod names;
#[cfg(feature = "ordered")]
mod ordered;
#[cfg(feature = "write")]
mod partition;
#[cfg(feature = "sets")]
mod progress;
#[cfg(feature = "write")]
mod publish;
#[cfg(feature = "sets")]
mod set;
#[cfg(feature = "write")]
mod slice;
mod storage;
mod table_file;
#[cfg(feature = "sets")]
mod threads;
mod versioned;
#[cfg(feature = "write")]
mod writer;

pub use error::{Error, Result};
pub use folder::{open_tables, visit_tables};
#[cfg(feature = "index")]
pub use index::{Index, IndexMerge, IndexSegment, IndexWriter, Merged, MergedTable, Snapshot};
#[cfg(feature = "write")]
pub use merge::{DELETED, DocMap, MergeInput, MergeOptions, merge};
#[cfg(feature = "ordered")]
pub use ordered::{
    BuiltCompanion, CompanionOptions, KeyRegex, KeyRegexState, MAX_ORDERED_KEY_LEN,
    MIN_COMPANION_MEMORY, OrderedOptions, OrderedTerms, Terms, build_companion, companion_path,
    merge_companions, publish_pair,
};
#[cfg(feature = "write")]
pub use partition::{Built, OnDuplicate};
#[cfg(feature = "sets")]
pub use progress::Progress;
#[cfg(feature = "write")]
pub use publish::{Destination, Publication, stale_temporaries};
#[cfg(feature = "sets")]
pub use set::{
    DocIds, Hit, InSet, LiveDocs, MAX_SEGMENTS, Segment, SegmentInfo, SegmentMapInfo,
    SegmentMapOptions, SegmentSet, SetAnswer, TieredPolicy, VersionedHit,
};
#[cfg(feature = "write")]
pub use slice::build_slice;
pub use storage::Advice;
pub use table_file::{OpenOptions, TableFile};
pub use versioned::{VERSIONED_WIDTH, versioned_value};
#[cfg(feature = "write")]
pub use writer::{DEFAULT_MEMORY, MIN_MEMORY, TableWriter, WriterOptions};

#[cfg(feature = "ordered")]
pub use fst::{Automaton, automaton};
pub use pkhash_core;
pub use pkhash_core::builder::{LayoutChoice, TableOptions, ValueChoice};
pub use pkhash_core::{
    FixedKeys, Footer, HashedKeys, KeyHasher, Keys, Layout, Table, Value, ValueFormat, ValueKind,
};
pub use pkhash_simd::AnyKernel;
#[cfg(feature = "sets")]
pub use roaring;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;
