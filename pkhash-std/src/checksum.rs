//! The checksum of all that this crate writes.

use pkhash_core::KeyHasher;

/// XXH3-64, seed 0.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    KeyHasher::new(0).hash(bytes)
}
