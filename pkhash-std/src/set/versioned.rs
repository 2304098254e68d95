//! Versioned values: a doc ID and its version, as 12 opaque bytes.

use pkhash_core::{Value, ValueFormat};

use super::{Answer, SegmentSet};
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
    /// The greatest version of a versioned table, `None` if it has no keys: for
    /// [`Segment::with_max_version`](super::Segment::with_max_version). Reads the whole table.
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

/// A live match of a versioned table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionedAnswer<'a> {
    answer: Answer<'a>,
    version: u64,
}

impl<'a> VersionedAnswer<'a> {
    /// Segment and doc ID.
    #[must_use]
    pub const fn answer(self) -> Answer<'a> {
        self.answer
    }

    /// The version.
    #[must_use]
    pub const fn version(self) -> u64 {
        self.version
    }
}

impl SegmentSet {
    /// Looks up one key of versioned tables: of its live matches the one of the highest version; of
    /// equal ones the newest.
    ///
    /// Unlike [`get`](Self::get), which takes the newest segment's match whatever its version, this
    /// gives what the set would give after a merge with
    /// [`OnDuplicate::HighestVersion`](crate::OnDuplicate::HighestVersion), also if versions did not arrive in order.
    ///
    /// # Errors
    /// [`Error::Table`] if the values of a table that is asked are not versioned; otherwise as
    /// [`get`](Self::get).
    pub fn get_highest_version(&self, key: &[u8]) -> Result<Option<VersionedAnswer<'_>>> {
        self.highest(key, None)
    }

    /// What [`get_highest_version`](Self::get_highest_version) gives, if that version is greater than
    /// `version`; `None` if it is not, or the key has no live match. (Lucene's *IDVersionPostingsFormat*
    /// asks for versions from `version + 1` on.)
    ///
    /// Segments that are known to hold no greater version
    /// ([`Segment::with_max_version`](super::Segment::with_max_version)) are not asked.
    ///
    /// # Errors
    /// As [`get_highest_version`](Self::get_highest_version).
    pub fn get_newer_than(&self, key: &[u8], version: u64) -> Result<Option<VersionedAnswer<'_>>> {
        self.highest(key, Some(version))
    }

    fn highest(&self, key: &[u8], than: Option<u64>) -> Result<Option<VersionedAnswer<'_>>> {
        let (mut than, mut best) = (than, None);
        for candidate in self.candidates(key) {
            let max = candidate.segment.max_version();
            if max.is_some_and(|max| Some(max) <= than) {
                continue;
            }
            check(candidate.segment.table())?;
            let found: Option<Value<'_>> = candidate.segment.get(candidate.hash, key)?;
            if let Some(value) = found
                && let Some(version) = version_of(value.as_bytes())
                && Some(version) > than
            {
                than = Some(version);
                best = Some(VersionedAnswer { answer: candidate.answer(value), version });
            }
        }
        Ok(best)
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

fn check(table: &TableFile) -> Result<()> {
    check_width(table.footer().value).map_err(Error::table(table.name()))
}
