//! A batch over many tables: each key is asked of a table of its own.

use super::keys::{Keys, Sealed};
use super::perfect::{Tables, stream};
use crate::error::{Error, Result};
use crate::kernel::{Dispatch, Kernel, Task};
use crate::layout::Layout;
use crate::layout::perfect::Perfect;
use crate::table::{MOST_CACHED_PILOTS, Table};
use crate::value::Value;

/// A question of a batch over many tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Number of the key in the batch.
    pub key: u32,
    /// Number of the table to ask.
    pub table: u32,
    /// Whether there may be other tables that are worth asking for this key.
    pub more: bool,
    /// Whether some of those may have lesser numbers.
    pub lesser: bool,
}

/// The keys of some asks, all of which are there.
struct Asked<'q, B> {
    asks: &'q [Ask],
    keys: &'q [B],
    hashes: &'q [u64],
}

impl<B> Sealed for Asked<'_, B> {}

impl<B: AsRef<[u8]>> Keys for Asked<'_, B> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.asks.len()
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        let asks = self.asks.get(first..).unwrap_or_default();
        asks.iter().take(n).map(|ask| self.keys[ask.key as usize].as_ref())
    }

    #[inline(always)]
    fn known_hash(&self, i: usize) -> Option<u64> {
        Some(self.hashes[self.asks[i].key as usize])
    }
}

/// The tables of some asks, all of which are there, and how to get at their records.
struct Many<'a, 't, F> {
    asks: &'t [Ask],
    tables: &'t [&'t Table<'a>],
    records: F,
}

impl<'a, R: Perfect, F: Fn(&Table<'a>) -> R> Tables<'a, R> for Many<'a, '_, F> {
    #[inline(always)]
    fn of(&self, i: usize) -> (&Table<'a>, R) {
        let table = self.tables[self.asks[i].table as usize];
        (table, (self.records)(table))
    }
}

/// Looks up a batch in many tables: `out[i]` becomes the value of the key of `asks[i]` in the table of
/// `asks[i]`. `hashes` are those of `keys`, by the one hasher of all tables; filters are not asked.
/// Returns how many were found.
///
/// Staged, as [`Table::get_batch`] is, if all tables are perfect, and all or none of them have offset
/// lines. Otherwise it goes ask by ask: then it is better to collect the asks of each table and to
/// give them to [`Table::get_batch`].
///
/// # Errors
/// [`Error::BatchLength`] if there are not as many hashes as keys, or answers as asks;
/// [`Error::NoSuchAsk`] if there is no such key or table; otherwise as [`Table::get`].
pub fn get_batch_of<'a, D: Dispatch, B: AsRef<[u8]>>(
    by: D,
    tables: &[&Table<'a>],
    asks: &[Ask],
    keys: &[B],
    hashes: &[u64],
    out: &mut [Option<Value<'a>>],
) -> Result<usize> {
    for (expected, found) in [(keys.len(), hashes.len()), (asks.len(), out.len())] {
        if expected != found {
            return Err(Error::BatchLength { expected, found });
        }
    }
    // Once, so that the stages need not.
    for ask in asks {
        let (key, table) = (ask.key as usize, ask.table as usize);
        if key >= keys.len() {
            return Err(Error::NoSuchAsk { what: "keys", expected: keys.len(), found: key });
        }
        if table >= tables.len() {
            return Err(Error::NoSuchAsk { what: "tables", expected: tables.len(), found: table });
        }
    }
    let all = |lines: bool| {
        tables.iter().all(|table| {
            table.footer.layout == Layout::Perfect && table.footer.has_offset_lines() == lines
        })
    };
    let asked = Asked { asks, keys, hashes };
    if all(false) {
        return by.prefetching(Batch {
            tables,
            asked,
            out,
            records: |table: &Table<'a>| table.fixed,
        });
    }
    if all(true) {
        let records = |table: &Table<'a>| table.footer.spans();
        return by.prefetching(Batch { tables, asked, out, records });
    }
    let mut count = 0;
    for (ask, out) in asks.iter().zip(out) {
        let (table, key) = (&tables[ask.table as usize], ask.key as usize);
        *out = table.get_hashed(by, hashes[key], keys[key].as_ref())?;
        count += usize::from(out.is_some());
    }
    Ok(count)
}

/// The batch, if it is staged.
struct Batch<'a, 't, 'o, B, F> {
    tables: &'t [&'t Table<'a>],
    asked: Asked<'t, B>,
    out: &'o mut [Option<Value<'a>>],
    records: F,
}

impl<'a, B, F, R> Task for Batch<'a, '_, '_, B, F>
where
    B: AsRef<[u8]>,
    F: Fn(&Table<'a>) -> R,
    R: Perfect,
{
    type Output = Result<usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Self::Output {
        let Self { tables, asked, out, records } = self;
        let many = Many { asks: asked.asks, tables, records };
        let pilots = tables.iter().map(|table| table.footer.pilots);
        if pilots.fold(0, u64::saturating_add) > MOST_CACHED_PILOTS {
            stream::<K, R, _, _, _, false, true>(kernel, &many, &asked, out)
        } else {
            stream::<K, R, _, _, _, false, false>(kernel, &many, &asked, out)
        }
    }
}
