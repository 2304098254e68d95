//! Lookups: *name the bytes that the next stage needs, then look at them*.
//!
//! ```text
//! hash → filter word → control bytes → slot word → record       inline, term-order
//!        (may be absent)               (term-order)
//! hash → filter word → pilot → offset line → record             perfect
//!        (may be absent)       (if lengths differ)
//! ```
//!
//! What a stage computes is written once: where a hash points (`Place`, `PilotPlace`), the steps of a
//! probe (`Probe`), how a record is compared (`layout::Records`). How stages follow each other is
//! written for each use, since that is what decides speed:
//!
//! * `single` runs one key through all stages;
//! * `probed`, `perfect` and, on the shortest path, `direct` run a batch, each stage some keys behind the one before, so that many reads
//!   are in flight, and name bytes by a prefetch; `many` does it over many tables;
//! * `staged` ([`Lookup`]) hands the names to its caller, who reads from wherever the table lies: a
//!   device, a socket, an object store.

mod direct;
mod keys;
mod many;
mod perfect;
mod probed;
mod single;
mod staged;

pub use keys::{Answer, FixedKeys, HashedKeys, Keys};
pub use many::{Ask, get_batch_of};
pub use probed::CHUNK;
pub use staged::{Lookup, Stage, Want};

use crate::error::Result;
use crate::filter;
use crate::format::bytes_at_u64;
use crate::format::directory::Directory;
use crate::hash;
use crate::layout::Records;
use crate::table::{past_the_body, record_from};
use crate::value::Value;

/// Where the filter word of a hash lies, and its bits.
#[inline(always)]
fn filter_word(partition_bits: u8, directory: &Directory<'_>, hash: u64) -> (u64, u64) {
    let (offset, words) = directory.filter(hash::partition(hash, partition_bits));
    let position = filter::position(hash, words);
    // The filter is a partition's first section.
    (offset.wrapping_add(8 * u64::from(position.word)), position.mask)
}

/// Whether the filter word at `word_at` admits the hash.
#[inline(always)]
fn admitted(data: &[u8], word_at: u64, mask: u64) -> bool {
    bytes_at_u64(data, word_at).is_none_or(|word| u64::from_le_bytes(*word) & mask == mask)
}

/// The value of the record at `at`, if it is this key's record.
#[inline(always)]
fn value_in<'a, R: Records>(
    body: &'a [u8],
    records: R,
    at: u64,
    key: &[u8],
) -> Result<Option<Value<'a>>> {
    let record = record_from(body, at)?;
    // A record that is cut short by the end of the body is shorter than this key's would be.
    Ok(record
        .get(..records.record_len(key))
        .and_then(|record| records.value(record, key))
        .map(Value::new))
}
