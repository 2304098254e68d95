//! Building a table into the caller's buffers: no allocator, and the same bytes whatever the machine.
//!
//! A table is built partition by partition:
//!
//! 1. count the keys ([`KeyStats`]) and let [`TableOptions::plan`] choose layout, value width and
//!    partitions;
//! 2. give each partition its entries, sorted by [`sort`], and write it with
//!    [`Plan::write_partition`];
//! 3. report each partition to an [`Assembler`], which keeps the directory and makes the tail.
//!
//! Who has all keys in memory calls [`build`], which does all of it.
//!
//! ```
//! use pkhash_core::builder::{self, Entry, TableOptions};
//! use pkhash_core::{Scalar, Table};
//!
//! let options = TableOptions::default();
//! let keys: [&[u8]; 3] = [b"B000000001", b"B000000002", b"B000000003"];
//! let values = [10u32.to_le_bytes(), 20u32.to_le_bytes(), 30u32.to_le_bytes()];
//! let mut entries = [Entry::default(); 3];
//! for (i, entry) in entries.iter_mut().enumerate() {
//!     *entry = options.entry(keys[i], &values[i]);
//! }
//! let (mut spare, mut scratch) = ([Entry::default(); 3], [0; builder::scratch_len(3)]);
//! let mut out = [0; 1024];
//! let len = builder::build(Scalar, &options, &mut entries, &mut spare, &mut scratch, &mut out)?;
//! let table = Table::open(&out[..len])?;
//! assert_eq!(table.get(Scalar, b"B000000002")?.and_then(|v| v.doc_id()), Some(20));
//! # Ok::<(), pkhash_core::Error>(())
//! ```

mod assembler;
mod inline;
mod options;
mod perfect;
mod plan;
mod solve;
mod sort;
mod term_order;

pub use assembler::Assembler;
pub use options::{
    Entry, KeyStats, LayoutChoice, PARTITION_BYTES, PARTITION_KEYS, TableOptions, ValueChoice,
};
pub use perfect::PerfectShape;
pub use plan::{Plan, Written};
pub use sort::{sort, sort_by};

use crate::error::{Error, Result};
use crate::format::footer::footer_len;
use crate::format::{self, HEAD_LEN};
use crate::kernel::Kernel;
use crate::value::ValueKind;

/// Splits entries sorted by hash into those of each partition.
fn by_partition<'e, 'k>(
    plan: &Plan,
    mut entries: &'e [Entry<'k>],
) -> impl Iterator<Item = (u32, &'e [Entry<'k>])> {
    (0..plan.partitions()).map(move |p| {
        let end = entries.partition_point(|entry| plan.partition_of(entry.hash) <= p);
        let (mine, rest) = entries.split_at(end);
        entries = rest;
        (p, mine)
    })
}

/// Length of the table that [`build`] makes of these entries, once they are sorted.
///
/// # Errors
/// As [`build`].
pub fn table_len(options: &TableOptions, sorted: &[Entry<'_>]) -> Result<usize> {
    let plan = plan_of(options, sorted)?;
    let mut len = HEAD_LEN as u64 + footer_len(plan.partition_bits) as u64;
    for (p, entries) in by_partition(&plan, sorted) {
        len += plan.partition_len(p, entries)? as u64;
    }
    usize::try_from(len).map_err(|_| Error::TooLarge {
        what: "bytes",
        expected: usize::MAX as u64,
        found: len,
    })
}

fn plan_of(options: &TableOptions, entries: &[Entry<'_>]) -> Result<Plan> {
    let opaque = matches!(options.value, ValueChoice::Fixed(v) if v.kind() == ValueKind::Opaque);
    let mut stats = KeyStats::default();
    for entry in entries {
        stats.add(entry.key, if opaque { &[] } else { entry.value });
    }
    options.plan(&stats)
}

/// Words of scratch with which a table of so many keys can be built, whatever its layout, in the default
/// shape. [`Plan::scratch_len`] of the largest partition is less.
#[must_use]
pub const fn scratch_len(keys: usize) -> usize {
    // 3 words for each key of a term-order partition; for each of a perfect one 8 bytes for its hash, 4
    // for its entry and 4 for its slot, and 12 for each bucket of 2.5.
    3 * keys + 4
}

/// Builds a whole table into `out` and returns its length. Sorts the entries, for which `spare` holds as
/// many as there are; `scratch` holds [`scratch_len`] words, or what the largest partition needs. The kernel
/// is for [`Plan::write_partition`].
///
/// # Errors
/// As [`TableOptions::plan`] and [`Plan::write_partition`]; [`Error::BufferTooSmall`] names what is needed.
pub fn build<'k, K: Kernel>(
    kernel: K,
    options: &TableOptions,
    entries: &mut [Entry<'k>],
    spare: &mut [Entry<'k>],
    scratch: &mut [u64],
    out: &mut [u8],
) -> Result<usize> {
    let plan = plan_of(options, entries)?;
    sort(entries, spare)?;
    let expected = table_len(options, entries)?;
    let found = out.len();
    let out = out.get_mut(..expected).ok_or(Error::BufferTooSmall {
        what: "buffer for the table",
        expected,
        found,
    })?;
    let (body, footer) = out.split_at_mut(expected - footer_len(plan.partition_bits));
    let (directory, tail_out) = footer.split_at_mut(plan.directory_len());
    let mut assembler = Assembler::new(&plan, directory)?;
    let (head, mut body) = body.split_at_mut(HEAD_LEN);
    head.copy_from_slice(&format::head());
    for (p, entries) in by_partition(&plan, entries) {
        let written = plan.write_partition(kernel, p, entries, scratch, body)?;
        assembler.push(&written)?;
        body = core::mem::take(&mut body).get_mut(written.bytes() as usize..).unwrap_or_default();
    }
    let (_, _, tail) = assembler.finish()?;
    tail_out.copy_from_slice(&tail);
    Ok(expected)
}
