//! One key, and the choice of code for a batch: once for all of it.

use super::keys::{Answer, Keys};
use super::{admitted, direct, filter_word};
use crate::error::{Error, Result};
use crate::format::directory::PerfectEntry;
use crate::kernel::{Dispatch, Kernel, Task};
use crate::layout::Layout;
use crate::layout::perfect::{self, Perfect};
use crate::lookup::probed::ring;
use crate::table::{MOST_CACHED_PILOTS, Table};
use crate::value::Value;

/// Code for keys whose length is known when it is compiled: `$use` with `$L` for a length that has
/// code of its own, `$otherwise` for all others.
///
/// If the caller knows the length, the match goes away, and with it the other lengths.
macro_rules! by_length {
    ($len:expr, $L:ident => $use:expr, $otherwise:expr) => {
        by_length!(@ $len, $L, $use, $otherwise, 8 10 16 20 36)
    };
    (@ $len:expr, $L:ident, $use:expr, $otherwise:expr, $($known:literal)+) => {
        match $len {
            $($known => {
                const $L: usize = $known;
                $use
            })+
            _ => $otherwise,
        }
    };
}

impl<'a> Table<'a> {
    /// Looks up one key.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the body is damaged and the damage was noticed. Damage that is not
    /// noticed may make a key absent, or give it another value; [`verify`](Self::verify) finds it.
    #[inline(always)]
    pub fn get<D: Dispatch>(&self, by: D, key: &[u8]) -> Result<Option<Value<'a>>> {
        match self.get_direct(None, key) {
            Some(found) => Ok(found),
            None => self.get_other(by, None, key),
        }
    }

    /// Looks up one key and answers with its doc ID.
    ///
    /// # Errors
    /// [`Error::ValueWidth`] as for [`get_batch`](Self::get_batch); otherwise as [`get`](Self::get).
    #[inline(always)]
    pub fn get_doc_id<D: Dispatch>(&self, by: D, key: &[u8]) -> Result<Option<u32>> {
        match self.get_direct(None, key) {
            Some(found) => Ok(found),
            None => self.get_doc_id_other(by, key),
        }
    }

    /// Looks up one key whose hash is known: one hash serves all tables that share a seed. With any
    /// other hash than that of `footer().hasher` the key is absent.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline(always)]
    pub fn get_hashed<D: Dispatch>(
        &self,
        by: D,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        match self.get_direct(Some(hash), key) {
            Some(found) => Ok(found),
            None => self.get_other(by, Some(hash), key),
        }
    }

    /// Looks up a batch: `out[i]` becomes the answer for key number `i`. Returns how many keys were
    /// found.
    ///
    /// `keys` is a slice of anything that is bytes, a buffer of keys of one length
    /// ([`FixedKeys`](crate::FixedKeys)), or keys whose hashes are known
    /// ([`HashedKeys`](crate::HashedKeys)). An answer is a value, a doc ID (`Option<u32>`), or a `bool`.
    ///
    /// # Errors
    /// [`Error::BatchLength`] if `keys` and `out` differ in length. [`Error::ValueWidth`] if doc IDs are
    /// asked for and not every value of the table is sure to have one: integers of at most 4 bytes, or values
    /// wider than 8 bytes (see [`Value::doc_id`]). Otherwise as [`get`](Self::get). After an error the
    /// contents of `out` mean nothing.
    #[inline]
    // Keys are slices and the like: copied, not borrowed once more.
    #[allow(clippy::needless_pass_by_value)]
    pub fn get_batch<D: Dispatch, Q: Keys, A: Answer<'a>>(
        &self,
        by: D,
        keys: Q,
        out: &mut [A],
    ) -> Result<usize> {
        keys.check()?;
        if keys.len() != out.len() {
            return Err(Error::BatchLength { expected: keys.len(), found: out.len() });
        }
        if A::DOC_IDS {
            self.check_doc_ids()?;
        }
        let (table, keys) = (self, &keys);
        if self.footer.layout == Layout::Perfect {
            // Nothing to compare but keys.
            by.prefetching(PerfectBatch { table, keys, out })
        } else {
            by.batch(ProbedBatch { table, keys, out })
        }
    }

    /// Whether the filter admits a hash; true for every hash if there is no filter.
    #[must_use]
    pub fn filter_admits(&self, hash: u64) -> bool {
        self.admits(hash)
    }

    pub(super) const fn check_doc_ids(&self) -> Result<()> {
        match self.footer.value.width() {
            1..=4 | 9.. => Ok(()),
            width => Err(Error::ValueWidth { expected: 4, found: width as u32 }),
        }
    }

    /// Whether the filter of its partition admits a hash. True without a filter.
    #[inline(always)]
    pub(super) fn admits(&self, hash: u64) -> bool {
        self.footer.filter_bits == 0 || {
            let (word_at, mask) = filter_word(self.footer.partition_bits, &self.directory, hash);
            admitted(self.data, word_at, mask)
        }
    }

    /// The shortest path: a perfect table without filter and exceptions, whose keys all have one length that
    /// has code of its own. It has no errors, since `open` has checked that every pilot and record lies in
    /// the body. `None`: take the other path.
    ///
    /// Always inlined: a caller that knows the length of its keys has the code for it, and no other.
    #[doc(hidden)]
    #[inline(always)]
    pub fn get_direct<A: Answer<'a>>(&self, hash: Option<u64>, key: &[u8]) -> Option<A> {
        if key.len() != A::direct_len(self) {
            return None;
        }
        by_length!(key.len(), L => {
            let key: &[u8; L] = key.first_chunk()?;
            let at = self.direct_place(hash, key)?;
            Some(A::direct(self, at, key).unwrap_or(A::ABSENT))
        }, None)
    }

    /// Where the record of a key lies, if the key is there.
    #[inline(always)]
    fn direct_place<const L: usize>(&self, hash: Option<u64>, key: &[u8; L]) -> Option<u64> {
        let hash = match hash {
            Some(hash) => hash,
            None => self.footer.hasher.hash(key),
        };
        let partition = (hash >> 1) >> (self.partition_shift & 63);
        let entry = PerfectEntry::read(self.directory.entries().get(partition as usize)?);
        let (spread, pilot_at) = entry.pilot_of(hash);
        let pilot = *self.body.get(usize::try_from(pilot_at).ok()?)?;
        let slot = perfect::slot(spread, pilot, entry.slots);
        Some(entry.records_at.wrapping_add(self.fixed.at(slot)))
    }

    // Functions of their own, so that what surrounds them has the shortest path alone: inlined, they cost it 14
    // instructions of 104.

    #[inline(never)]
    fn get_doc_id_other<D: Dispatch>(&self, by: D, key: &[u8]) -> Result<Option<u32>> {
        self.get_doc_id_indirect(by, key)
    }

    #[inline(never)]
    fn get_other<D: Dispatch>(
        &self,
        by: D,
        hash: Option<u64>,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        self.get_indirect(by, hash, key)
    }

    /// [`get_indirect`](Self::get_indirect), to the doc ID.
    #[doc(hidden)]
    #[inline(always)]
    pub fn get_doc_id_indirect<D: Dispatch>(&self, by: D, key: &[u8]) -> Result<Option<u32>> {
        self.check_doc_ids()?;
        Ok(self.get_indirect(by, None, key)?.and_then(Value::doc_id))
    }

    /// Looks up a key in any table: what the shortest path leaves.
    #[doc(hidden)]
    #[inline(always)]
    pub fn get_indirect<D: Dispatch>(
        &self,
        by: D,
        hash: Option<u64>,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        let hash = hash.unwrap_or_else(|| self.footer.hasher.hash(key));
        match self.footer.layout {
            Layout::Perfect if self.footer.has_offset_lines() => {
                self.get_perfect(self.footer.spans(), hash, key)
            }
            Layout::Perfect => self.get_perfect(self.fixed, hash, key),
            Layout::Inline | Layout::TermOrder => by.single(GetProbed { table: self, hash, key }),
        }
    }
}

/// One key of a table that is probed.
struct GetProbed<'t, 'a, 'k> {
    table: &'t Table<'a>,
    hash: u64,
    key: &'k [u8],
}

impl<'a> Task for GetProbed<'_, 'a, '_> {
    type Output = Result<Option<Value<'a>>>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Self::Output {
        let Self { table, hash, key } = self;
        if table.footer.layout == Layout::Inline {
            table.get_probed(kernel, table.footer.inline(), hash, key)
        } else {
            table.get_probed(kernel, table.footer.term_order(), hash, key)
        }
    }
}

/// A batch of a table that is probed.
struct ProbedBatch<'t, 'a, 'o, Q, A> {
    table: &'t Table<'a>,
    keys: &'t Q,
    out: &'o mut [A],
}

impl<'a, Q: Keys, A: Answer<'a>> Task for ProbedBatch<'_, 'a, '_, Q, A> {
    type Output = Result<usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Self::Output {
        let Self { table, keys, out } = self;
        let (inline, term_order) = (table.footer.inline(), table.footer.term_order());
        macro_rules! batch {
            ($records:expr, $filter:literal, $words:literal) => {
                table.batch_probed::<K, _, Q, A, $filter, { ring($filter, $words) }>(
                    kernel, $records, keys, out,
                )
            };
        }
        match (table.footer.layout == Layout::Inline, table.footer.filter_bits != 0) {
            (true, false) => batch!(inline, false, false),
            (true, true) => batch!(inline, true, false),
            (false, false) => batch!(term_order, false, true),
            (false, true) => batch!(term_order, true, true),
        }
    }
}

/// A batch of a perfect table.
struct PerfectBatch<'t, 'a, 'o, Q, A> {
    table: &'t Table<'a>,
    keys: &'t Q,
    out: &'o mut [A],
}

impl<'a, Q: Keys, A: Answer<'a>> Task for PerfectBatch<'_, 'a, '_, Q, A> {
    type Output = Result<usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Self::Output {
        let Self { table, keys, out } = self;
        if table.footer.has_offset_lines() {
            return table.batch_perfect(kernel, table.footer.spans(), keys, out);
        }
        by_length!(
            A::direct_len(table),
            L => return Ok(if table.footer.pilots > MOST_CACHED_PILOTS {
                direct::stream::<K, Q, A, L, true>(kernel, table, keys, out)
            } else {
                direct::stream::<K, Q, A, L, false>(kernel, table, keys, out)
            }),
            {}
        );
        table.batch_perfect(kernel, table.fixed, keys, out)
    }
}
