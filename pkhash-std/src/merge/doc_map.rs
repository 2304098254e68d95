//! What becomes of doc IDs.

use pkhash_core::ValueKind;

use super::MergeInput;
use crate::error::{Error, Result};
use crate::set::LiveDocs;

/// In a [`DocMap::Map`]: the doc was deleted.
pub const DELETED: u32 = u32::MAX;

/// What becomes of an input's doc IDs. Where a value has its doc ID, says
/// [`ValueFormat::doc_id_width`](pkhash_core::ValueFormat::doc_id_width); its other bytes are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocMap {
    /// They stay.
    #[default]
    Keep,
    /// This is added to each.
    Offset(u64),
    /// Doc i becomes `map[i]`, or goes, if that is [`DELETED`].
    Map(Vec<u32>),
}

impl DocMap {
    /// The map that closes the gaps of deleted docs: of `docs` docs the live ones are numbered from `base`
    /// on. Also returns the base for the next input, `base` plus the docs that are live. Without live docs
    /// all are live. Docs beyond the live docs are deleted, as everywhere.
    ///
    /// What a background merge does with deletes, so that none is lost and none returns:
    ///
    /// 1. Take a snapshot, keep its segments, and make a map of each one's live docs.
    /// 2. Merge with these maps. Deletes that arrive meanwhile go to new snapshots with new live docs, as
    ///    ever; the merge does not see them.
    /// 3. Before the merged segment replaces its inputs, take the newest snapshot, look there for what each
    ///    input has deleted since ([`LiveDocs::deleted_since`]), map these docs with [`get`](Self::get), and
    ///    give the merged segment live docs without them ([`LiveDocs::from_deleted`], the docs being the
    ///    last base).
    /// 4. Publish [`SegmentSet::merged`](crate::SegmentSet::merged) of the newest snapshot, with steps 3
    ///    and 4 under the lock under which deletes are published, too.
    ///
    /// ```
    /// use pkhash_std::{DocMap, LiveDocs};
    /// let (first, second) = (LiveDocs::from_deleted(3, &[1])?, LiveDocs::all(2));
    /// let (map, base) = DocMap::compacting(Some(&first), 3, 0)?;
    /// let (next, docs) = DocMap::compacting(Some(&second), 2, base)?;
    /// assert_eq!([map.get(0), map.get(1), map.get(2)], [Some(0), None, Some(1)]);
    /// assert_eq!((next.get(0), docs), (Some(2), 4));
    /// // Doc 2 of the first input was deleted meanwhile.
    /// let now = first.with_deleted([2])?;
    /// let deleted = now.deleted_since(&first).filter_map(|doc| map.get(doc));
    /// let merged = LiveDocs::all(docs).with_deleted(deleted.map(|doc| doc as u32))?;
    /// assert!(!merged.is_live(1) && merged.deleted() == 1);
    /// # Ok::<(), pkhash_std::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyDocs`] if the live docs do not all get an ID below [`DELETED`].
    pub fn compacting(live: Option<&LiveDocs>, docs: u32, base: u32) -> Result<(Self, u32)> {
        let mut next = base;
        let mut take = |live: bool| {
            if !live {
                return Ok(DELETED);
            }
            let doc = next;
            next = next.checked_add(1).ok_or(Error::TooManyDocs { found: 1 << 32 })?;
            Ok(doc)
        };
        let Some(live) = live else {
            let all = u64::from(base) + u64::from(docs);
            let next = u32::try_from(all).map_err(|_| Error::TooManyDocs { found: all })?;
            return Ok((Self::Offset(base.into()), next));
        };
        let map = (0..docs).map(|doc| take(live.is_live(doc))).collect::<Result<_>>()?;
        Ok((Self::Map(map), next))
    }

    /// The new ID of a doc; `None` if it was deleted, lies beyond the map, or has none in 64 bits.
    #[must_use]
    pub fn get(&self, doc: u32) -> Option<u64> {
        match self {
            Self::Keep => Some(doc.into()),
            Self::Offset(base) => base.checked_add(doc.into()),
            Self::Map(map) => {
                let new = map.get(doc as usize).filter(|new| **new != DELETED);
                new.map(|new| u64::from(*new))
            }
        }
    }
}

/// The new value of a record in the first bytes of `out`: 8 for integers, otherwise as many as it had.
/// `None`: its doc was deleted.
#[inline]
pub(super) fn map_value(
    i: usize,
    input: &MergeInput<'_>,
    bytes: &[u8],
    out: &mut [u8; 64],
) -> Result<Option<usize>> {
    let value = input.table.footer().value();
    let integer = value.kind() == ValueKind::Integer;
    out[..bytes.len()].copy_from_slice(bytes);
    let width = if integer { 8 } else { bytes.len() };
    out[bytes.len()..width.max(bytes.len())].fill(0);
    // `check_inputs` saw to it that there is a doc ID if it is needed. Integers are widened as needed.
    let (id_width, most) = match (integer, value.doc_id_width()) {
        (true, _) => (8, u64::MAX),
        (false, width) => (usize::from(width), value.max_doc_id()),
    };
    let mut wide = [0; 8];
    wide[..id_width].copy_from_slice(&out[..id_width]);
    let doc = u64::from_le_bytes(wide);
    let (new, expected) = match &input.docs {
        DocMap::Keep => return Ok(Some(width)),
        DocMap::Offset(base) => (doc.checked_add(*base), most.saturating_sub(*base)),
        DocMap::Map(map) => {
            let new = usize::try_from(doc).ok().and_then(|doc| map.get(doc));
            if new == Some(&DELETED) {
                return Ok(None);
            }
            (new.map(|new| u64::from(*new)), map.len() as u64)
        }
    };
    let new = match new {
        Some(new) if new <= most => new,
        Some(new) if matches!(input.docs, DocMap::Map(_)) => {
            let what = "new doc ID";
            return Err(Error::Mismatch { what, input: i, expected: most, found: new });
        }
        _ => return Err(Error::DocMap { input: i, found: doc, expected }),
    };
    out[..id_width].copy_from_slice(&new.to_le_bytes()[..id_width]);
    Ok(Some(width))
}
