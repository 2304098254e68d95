//! Versioned values: a doc ID and its version, as 12 opaque bytes.

use pkhash_core::ValueFormat;

use crate::error::{Error, Result};
use crate::table_file::TableFile;

/// Bytes of a versioned value: a doc ID of 4 and a version of 8, both little-endian.
pub const VERSIONED_WIDTH: u8 = 12;

/// The bytes of a versioned value: what a table of opaque values of [`VERSIONED_WIDTH`] bytes is
/// built from.
#[must_use]
pub fn versioned_value(doc_id: u32, version: u64) -> [u8; VERSIONED_WIDTH as usize] {
    let mut bytes = [0; VERSIONED_WIDTH as usize];
    bytes[..4].copy_from_slice(&doc_id.to_le_bytes());
    bytes[4..].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// The version of a versioned value's bytes; `None` if there are not 12.
pub(crate) fn version_of(bytes: &[u8]) -> Option<u64> {
    let bytes: &[u8; VERSIONED_WIDTH as usize] = bytes.try_into().ok()?;
    bytes.last_chunk().map(|version| u64::from_le_bytes(*version))
}

impl TableFile {
    /// The greatest version of a versioned table, `None` if it has no keys: for `Segment::with_max_version`. Reads
    /// the whole table.
    ///
    /// # Errors
    /// [`Error::Table`] if the table's values are not versioned, or the table is damaged.
    pub fn max_version(&self) -> Result<Option<u64>> {
        check(self)?;
        let mut max = None;
        for record in self.table() {
            let (_, value) = record.map_err(Error::table(self.name()))?;
            max = max.max(version_of(value.as_bytes()));
        }
        Ok(max)
    }
}

/// Whether values are versioned: integers are not so wide.
pub(crate) fn check_width(value: ValueFormat) -> Result<(), pkhash_core::Error> {
    if value.width() == VERSIONED_WIDTH {
        return Ok(());
    }
    let (expected, found) = (VERSIONED_WIDTH.into(), value.width().into());
    Err(pkhash_core::Error::ValueWidth { expected, found })
}

pub(crate) fn check(table: &TableFile) -> Result<()> {
    check_width(table.footer().value()).map_err(Error::table(table.name()))
}
