//! Exact primary-key lookup: *which document has this ID?*
//!
//! This crate is the whole of pkhash but files, threads and vector instructions: the on-disk format
//! (see FORMAT.md), the reader, the staged lookup with its scalar kernel, and the builder. It is
//! `no_std`, needs no allocator, and contains no `unsafe`.
//!
//! * [`Table`] reads a table that is in memory, from any slice at any address;
//! * [`Lookup`] reads one that is not, by naming the bytes it needs;
//! * [`mod@builder`] writes one into the caller's buffer;
//! * [`mod@segment_map`] tells which of many tables are worth asking for a key, and [`get_batch_of`] asks them;
//! * [`Kernel`] is what a machine contributes; `pkhash-simd` has kernels for vector units;
//! * `pkhash-std` adds files, a writer with a memory budget, and merging; `pkhash` is the command.
//!
//! # What is promised about bytes from outside
//!
//! [`Table::open`] accepts or refuses any bytes in O(partitions), without allocating. Whatever it
//! accepts can be searched: no lookup panics, reads outside of the slice, or looks at more slots than
//! the partition's probe limit. A damaged body may make answers wrong; [`Table::verify`] reads
//! everything and finds any flipped bit.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// A setter for each field of a struct of options, which has the docs. For pkhash-std, too, and nobody else.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($struct:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl $struct {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

pub mod builder;
mod error;
mod filter;
pub mod format;
pub mod hash;
mod iter;
mod kernel;
mod layout;
mod lookup;
pub mod segment_map;
mod table;
mod value;
mod verify;

pub use error::{Error, Result, Section};
pub use filter::{DEFAULT_FILTER_BITS, MAX_FILTER_BITS};
pub use format::directory::Partition;
pub use format::footer::Footer;
pub use hash::{KeyHasher, MAX_PARTITION_BITS};
pub use iter::{Iter, RangeIter, RecordPlace};
pub use kernel::{Dispatch, GROUP_MAX, Kernel, Matches, Scalar, Task};
pub use layout::Layout;
pub use lookup::{Answer, CHUNK, FixedKeys, HashedKeys, Keys, Lookup, Stage, Want, get_batch_of};
pub use table::Table;
pub use value::{MAX_VALUE_WIDTH, Value, ValueFormat, ValueKind};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
