//! A batch over many tables: each key is asked of a table of its own.

use super::Keys;
use super::perfect::{Tables, View, stream};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::layout::perfect::{Fixed, Perfect, Spans};
use crate::map::Ask;
use crate::table::Table;
use crate::value::Value;

/// The keys of some asks, all of which are there.
struct Asked<'q, B> {
    asks: &'q [Ask],
    keys: &'q [B],
    hashes: &'q [u64],
}

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
    fn hash(&self, _: crate::Hasher, i: usize, _: &[u8]) -> u64 {
        self.hashes[self.asks[i].key as usize]
    }
}

/// The tables of some asks, all of which are there.
struct Many<'a, 't> {
    asks: &'t [Ask],
    tables: &'t [Table<'a>],
}

impl<'a, R: Perfect> Tables<'a, R> for Many<'a, '_> {
    const UNASKED_FILTER: bool = true;

    #[inline(always)]
    fn of(&self, i: usize) -> View<'a, '_, R> {
        let table = &self.tables[self.asks[i].table as usize];
        View::new(table, R::of(table))
    }
}

/// Looks up a batch in many tables with this kernel: `out[i]` becomes the value of the key of `asks[i]` in
/// the table of `asks[i]`. `hashes` are those of `keys`, by the one hasher of all tables; filters are
/// not asked. Returns how many were found.
///
/// Staged, as [`Table::get_batch`] is, if all tables are perfect, and all or none of them have offset
/// lines. Otherwise it goes ask by ask: then it is better to collect the asks of each table and to
/// give them to [`Table::get_batch_hashed_with`].
///
/// # Errors
/// [`Error::BatchLength`] if there are not as many hashes as keys, or answers as asks;
/// [`Error::NoSuchAsk`] if there is no such key or table; otherwise as [`Table::get`].
#[inline(always)]
pub fn get_asked_with<'a, K: Kernel, B: AsRef<[u8]>>(
    kernel: K,
    tables: &[Table<'a>],
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
    let (many, asked) = (Many { asks, tables }, Asked { asks, keys, hashes });
    if all(false) {
        return stream::<K, Fixed, _, _, _, false>(kernel, &many, &asked, out);
    }
    if all(true) {
        return stream::<K, Spans, _, _, _, false>(kernel, &many, &asked, out);
    }
    let mut count = 0;
    for (ask, out) in asks.iter().zip(out) {
        let (table, key) = (&tables[ask.table as usize], ask.key as usize);
        *out = table.get_any(kernel, hashes[key], keys[key].as_ref())?;
        count += usize::from(out.is_some());
    }
    Ok(count)
}
