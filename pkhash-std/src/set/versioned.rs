//! Looking up by version.

use pkhash_core::Value;

use super::{Hit, SegmentSet};
use crate::error::Result;
use crate::versioned::{check, version_of};

/// A live match of a versioned table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionedHit<'a> {
    hit: Hit<'a>,
    version: u64,
}

impl<'a> VersionedHit<'a> {
    /// Segment and doc ID.
    #[must_use]
    pub const fn hit(self) -> Hit<'a> {
        self.hit
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
    /// [`Error::Table`](crate::Error::Table) if the values of a table that is asked are not versioned; otherwise as
    /// [`get`](Self::get).
    pub fn get_highest_version(&self, key: &[u8]) -> Result<Option<VersionedHit<'_>>> {
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
    pub fn get_newer_than(&self, key: &[u8], version: u64) -> Result<Option<VersionedHit<'_>>> {
        self.highest(key, Some(version))
    }

    fn highest(&self, key: &[u8], than: Option<u64>) -> Result<Option<VersionedHit<'_>>> {
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
                best = Some(VersionedHit { hit: candidate.answer(value), version });
            }
        }
        Ok(best)
    }
}
