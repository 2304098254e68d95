//! [`Table`]: a table whose bytes are in memory, prepared for lookups.

use crate::error::{Error, Result, Section};
use crate::format::directory::{Directory, Partition};
use crate::format::footer::Footer;
use crate::format::{HEAD_LEN, bytes_at, check_head, check_magic};
use crate::layout::Layout;
use crate::layout::perfect::Fixed;

/// An immutable table over borrowed bytes. It never allocates, and no bytes whatever make it panic,
/// read outside of the slice or run without end.
///
/// Opening prepares it: a lookup does nothing but look up. So open a table once and keep it. It can be
/// copied, but is a few hundred bytes long.
///
/// # Which call when
///
/// The first argument of a lookup is who does the work: a [`Kernel`](crate::Kernel) such as
/// [`Scalar`](crate::Scalar), or the kernel that `pkhash-simd` found for this CPU.
///
/// | call | for |
/// | --- | --- |
/// | [`get`](Self::get) | one key; its value |
/// | [`get_doc_id`](Self::get_doc_id) | one key; its value as a doc ID |
/// | [`get_hashed`](Self::get_hashed) | one key whose hash is known: one hash serves all tables that share a seed |
/// | [`get_batch`](Self::get_batch) | many keys of any form; values, doc IDs, or whether they are there. Several times as fast for each key |
/// | [`get_batch_of`](crate::get_batch_of) | many keys, each in a table of its own |
/// | [`Lookup`](crate::Lookup) | one key in a table that is not in memory |
#[derive(Clone, Copy)]
pub struct Table<'a> {
    pub(crate) data: &'a [u8],
    /// What lies before the directory.
    pub(crate) body: &'a [u8],
    pub(crate) directory: Directory<'a>,
    pub(crate) footer: Footer,
    /// Where the records of a perfect table lie whose keys have one length.
    pub(crate) fixed: Fixed,
    /// The length of keys that the shortest path takes; `usize::MAX`, which no key has, if it takes none.
    pub(crate) direct_len: usize,
    /// The same for the shortest path to a doc ID.
    pub(crate) direct_doc_id_len: usize,
    /// The 4 bytes before a key are the doc ID then, and this many bits of something else.
    pub(crate) doc_id_shift: u8,
    /// A hash's partition is `hash / 2 >> partition_shift`.
    pub(crate) partition_shift: u8,
}

/// Pilots that are taken to be in a cache: a batch does not prefetch them then.
///
/// Measured on Zen 4 (32 MB of shared L3): see `benches/README.md`.
pub(crate) const MOST_CACHED_PILOTS: u64 = 512 << 10;

impl core::fmt::Debug for Table<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table").field("footer", &self.footer).finish_non_exhaustive()
    }
}

impl<'a> Table<'a> {
    /// Opens a table: checks head and footer, with every size and offset in them. O(partitions); the
    /// body is not read (see [`verify`](Self::verify)). The address of the bytes may be any.
    ///
    /// # Errors
    /// FORMAT.md §6 lists what is refused. The error names offset, expected and found.
    pub fn open(data: &'a [u8]) -> Result<Self> {
        let Some(head) = bytes_at::<HEAD_LEN>(data, 0) else {
            // Too short to be a table, but long enough to say that it is something else.
            check_magic(data)?;
            return Err(Error::TooShort { found: data.len() as u64, expected: HEAD_LEN as u64 });
        };
        check_head(head)?;
        let footer = Footer::parse(data, data.len() as u64)?;
        // The footer was parsed from the end of `data`.
        let (body, end) = data.split_at(data.len() - footer.footer_len());
        let (fixed, width) = (footer.fixed(), footer.value.width());
        // No filter to ask, no exceptions to look at, and a record for every hash.
        let direct = footer.layout == Layout::Perfect
            && !footer.has_offset_lines()
            && footer.filter_bits == 0
            && footer.exceptions == 0
            && footer.dense;
        Ok(Self {
            data,
            body,
            directory: Directory::new(end, footer.partition_bits),
            footer,
            fixed,
            direct_len: if direct { fixed.key_len() } else { usize::MAX },
            direct_doc_id_len: match width {
                1..=4 if direct => fixed.key_len(),
                _ => usize::MAX,
            },
            doc_id_shift: 32 - 8 * width.clamp(1, 4),
            partition_shift: 63 - footer.partition_bits,
        })
    }

    /// The facts of the table.
    #[must_use]
    pub const fn footer(&self) -> &Footer {
        &self.footer
    }

    /// The table's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.data
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.footer.keys
    }

    /// Whether the table has no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.footer.keys == 0
    }

    /// The facts of partition `p`; `None` if there are not that many.
    #[must_use]
    pub fn partition(&self, p: u32) -> Option<Partition> {
        (p < self.footer.partitions()).then(|| self.directory.get(p, self.footer.layout))
    }

    /// Offset and bytes of a section, padding included; nothing if it is not one of the layout's or not
    /// inside the table.
    pub(crate) fn section(&self, entry: &Partition, section: Section) -> (u64, &'a [u8]) {
        let found = self.footer.layout.section_list().iter().position(|s| *s == section);
        let Some((offset, len)) = found.map(|i| self.footer.section_places(entry)[i]) else {
            return (entry.offset, &[]);
        };
        let bytes = || {
            let from = usize::try_from(offset).ok()?;
            self.data.get(from..from.checked_add(usize::try_from(len).ok()?)?)
        };
        (offset, bytes().unwrap_or_default())
    }

    /// The bytes from `at` to the end of the body.
    pub(crate) fn record(&self, at: u64) -> Result<&'a [u8]> {
        record_from(self.body, at)
    }
}

/// The error of a read that the directory, as `open` checked it, does not allow to fail.
#[cold]
pub(crate) fn past_the_body(what: &'static str, at: u64, len: u64) -> Error {
    Error::Corrupt { what, offset: at, expected: len, found: at }
}

/// The bytes of a table's body from a record on, to the end of the body.
#[inline(always)]
pub(crate) fn record_from(body: &[u8], at: u64) -> Result<&[u8]> {
    match usize::try_from(at).ok().and_then(|at| body.get(at..)) {
        Some(record) => Ok(record),
        None => Err(past_the_body("record past the end of the body", at, body.len() as u64)),
    }
}
