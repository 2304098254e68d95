//! The file. FORMAT.md is the specification; this module is its constants and its parsers.
//!
//! ```text
//! head │ partition 0 │ partition 1 │ … │ directory │ tail
//!  64  │ filter, index, pointers, records │ 96 each │ 128 bytes
//! ```
//!
//! The index: control bytes or pilots. The pointers: slot words, offset lines or nothing.
//!
//! All integers are little-endian. Every section begins at a multiple of 64 bytes, and every byte of
//! a file is either a field, or covered by a checksum, or required to be zero.

pub(crate) mod directory;
pub(crate) mod footer;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
pub(crate) use crate::layout::bytes_at;
pub use crate::layout::{ALIGN, MAX_INLINE_KEY_LEN, MAX_KEY_LEN, MAX_RECORD_BYTES};

/// The first 8 bytes of a table. The first byte is no text and the last is a line feed, so that a
/// transfer in text mode is noticed.
pub const MAGIC: [u8; 8] = *b"\x89pkhash\n";

/// The last 8 bytes of a table.
pub const TAIL_MAGIC: [u8; 8] = *b"pkh-tail";

/// The format version that this crate reads and writes.
pub const VERSION: u32 = 1;

/// Length of the head.
pub const HEAD_LEN: usize = 64;

/// Length of the tail.
pub const TAIL_LEN: usize = 128;

/// Length of a partition's entry in the directory.
pub const DIRECTORY_ENTRY_LEN: usize = directory::HOT_LEN + directory::COLD_LEN;

/// The most slots that a partition may have.
pub const MAX_SLOTS: u32 = 1 << 31;

/// The most keys that a partition may have: [`MAX_SLOTS`] at load factor 0.75.
pub const MAX_PARTITION_KEYS: u32 = MAX_SLOTS / 4 * 3;

/// The longest key of a perfect table whose keys have one length. (If lengths differ, the longest key
/// must fit the offset lines: FORMAT.md §8.)
pub const MAX_FIXED_KEY_LEN: u32 = 1 << 16;

/// The most keys of a partition of a perfect table whose hash is that of another key.
pub const MAX_EXCEPTIONS: u16 = 64;

/// Rounds up to a multiple of [`ALIGN`]. Total: wraps at the very end of the range, which no checked
/// size reaches.
#[inline(always)]
pub(crate) const fn align_up(bytes: u64) -> u64 {
    bytes.wrapping_add(ALIGN - 1) & !(ALIGN - 1)
}

/// Home slots for so many keys: load factor 0.75, rounded up.
#[inline(always)]
pub(crate) const fn homes(keys: u32) -> u32 {
    keys.wrapping_add(keys.div_ceil(3))
}

/// The checksum of the format: XXH3-64 with seed 0.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// [`bytes_at`] for offsets of the file, which may not fit a `usize`.
#[inline(always)]
pub(crate) fn bytes_at_u64<const N: usize>(data: &[u8], at: u64) -> Option<&[u8; N]> {
    bytes_at(data, usize::try_from(at).ok()?)
}

/// Reads fields of a block one after the other; the block is long enough by its type.
pub(crate) struct Fields<'b, const N: usize> {
    block: &'b [u8; N],
}

impl<'b, const N: usize> Fields<'b, N> {
    #[inline(always)]
    pub(crate) const fn new(block: &'b [u8; N]) -> Self {
        Self { block }
    }

    /// A little-endian field of `W` ≤ 8 bytes at a constant offset. Beyond the block it would be 0;
    /// the offsets are constants inside of it.
    #[inline(always)]
    pub(crate) fn get<const W: usize>(&self, at: usize) -> u64 {
        let mut wide = [0; 8];
        if let Some(field) = bytes_at::<W>(self.block, at) {
            wide[..W].copy_from_slice(field);
        }
        u64::from_le_bytes(wide)
    }

    #[inline(always)]
    pub(crate) fn u8(&self, at: usize) -> u8 {
        self.get::<1>(at) as u8
    }

    #[inline(always)]
    pub(crate) fn u32(&self, at: usize) -> u32 {
        self.get::<4>(at) as u32
    }

    #[inline(always)]
    pub(crate) fn u64(&self, at: usize) -> u64 {
        self.get::<8>(at)
    }
}

/// The rules of fields, and the error that a field which breaks one gives.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    /// What the fields' offsets are counted from.
    pub(crate) from: u64,
}

impl Check {
    pub(crate) const fn bad(
        self,
        field: &'static str,
        at: u64,
        expected: u64,
        found: u64,
    ) -> Error {
        Error::BadField { field, offset: self.from + at, expected, found }
    }

    pub(crate) const fn equal(
        self,
        field: &'static str,
        at: u64,
        expected: u64,
        found: u64,
    ) -> Result<()> {
        if found == expected { Ok(()) } else { Err(self.bad(field, at, expected, found)) }
    }

    pub(crate) const fn at_most(
        self,
        field: &'static str,
        at: u64,
        expected: u64,
        found: u64,
    ) -> Result<()> {
        if found <= expected { Ok(()) } else { Err(self.bad(field, at, expected, found)) }
    }

    pub(crate) const fn at_least(
        self,
        field: &'static str,
        at: u64,
        expected: u64,
        found: u64,
    ) -> Result<()> {
        if found >= expected { Ok(()) } else { Err(self.bad(field, at, expected, found)) }
    }
}

/// The head of every table of this version.
#[must_use]
pub fn head() -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head
}

/// Refuses bytes that begin with something else than the magic.
pub(crate) fn check_magic(bytes: &[u8]) -> Result<()> {
    match bytes_at::<8>(bytes, 0) {
        Some(found) if *found != MAGIC => {
            Err(Error::BadMagic { offset: 0, expected: MAGIC, found: *found })
        }
        _ => Ok(()),
    }
}

/// Refuses anything but [`head`]: what [`Table::open`](crate::Table::open) does first, for who has read no
/// more of a file.
///
/// # Errors
/// [`Error::BadMagic`], [`Error::UnsupportedVersion`] or [`Error::BadField`].
pub fn check_head(head: &[u8; HEAD_LEN]) -> Result<()> {
    check_magic(head)?;
    let version = Fields::new(head).u32(8);
    if version != VERSION {
        return Err(Error::UnsupportedVersion { offset: 8, expected: VERSION, found: version });
    }
    if let Some(at) = head.iter().skip(12).position(|byte| *byte != 0) {
        let at = at + 12;
        return Err(Error::BadField {
            field: "head reserved",
            offset: at as u64,
            expected: 0,
            found: u64::from(head[at]),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_at_load_factor_three_quarters() {
        assert_eq!(homes(0), 0);
        assert_eq!(homes(1), 2);
        assert_eq!(homes(3), 4);
        assert_eq!(homes(4), 6);
        assert_eq!(homes(MAX_PARTITION_KEYS), MAX_SLOTS);
        // Total for any damaged count.
        let _ = homes(u32::MAX);
    }

    #[test]
    fn alignment() {
        assert_eq!(align_up(0), 0);
        assert_eq!(align_up(1), 64);
        assert_eq!(align_up(64), 64);
        assert_eq!(align_up((1 << 32) + 1), (1 << 32) + 64);
    }
}
