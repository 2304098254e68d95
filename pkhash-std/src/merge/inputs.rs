//! The inputs of a merge, read by partition of its output.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use pkhash_core::builder::{Entry, Plan};
use pkhash_core::hash::range_of;
use pkhash_core::{Footer, Layout, RecordPlace};

use super::MergeInput;
use super::doc_map::map_value;
use crate::collect::{Collected, CollectedPart};
use crate::error::{Error, Result};
use crate::memory::{push, reserve};
use crate::partition::{Loader, Part};
use crate::threads::Pool;

/// Bytes of an input's number.
pub(super) const NUMBER: usize = 4;

/// One partition of an input is read for 2^this many of the output; `None`: none, since each range of hashes
/// can be read by itself.
pub(super) fn coarser(plan: &Plan, footer: &Footer) -> Option<u32> {
    let bits = plan.partition_bits().checked_sub(footer.partition_bits())?;
    (footer.layout() == Layout::Perfect && bits > 0).then_some(bits.into())
}

/// Reads the inputs, each partition of the output from one range of their hashes.
///
/// Records of a perfect table are in no order within a partition. If the output has more partitions than
/// such an input, one of the input is read for all that it meets of the output's, once, and where their
/// records lie is kept: 8 bytes for each. (Keys, hashes and new values were kept at first: five times the
/// memory, and slower, since all of it was fresh pages.)
pub(super) struct Inputs<'m, 'a> {
    pub(super) inputs: &'m [MergeInput<'a>],
    pub(super) plan: Plan,
    /// For each input, whether it is read by partition of the output.
    pub(super) streams: &'m [bool],
    /// The records of those that are not.
    pub(super) collected: Option<Collected>,
    /// For each input, how many records were read, deleted ones included.
    pub(super) read: &'m [AtomicU64],
    /// For each input, what it holds of the next partitions of the output, if that was looked for.
    pub(super) ahead: Vec<VecDeque<Vec<RecordPlace>>>,
    pub(super) pool: &'m Pool,
}

impl Inputs<'_, '_> {
    /// Where the records lie that input `i` has of each of the 2^`bits` partitions of the output from the
    /// `p`-th on.
    fn look_ahead(&self, i: usize, p: u32, bits: u32) -> Result<VecDeque<Vec<RecordPlace>>> {
        let file = self.inputs[i].table;
        let table = file.table();
        let keys = table.partition(p >> bits).map_or(0, |partition| partition.keys as usize);
        let each = keys >> bits;
        // They differ by some per cent. A few keys are not worth room for each of many partitions.
        let room = if each < 64 { 0 } else { each + each / 16 + 64 };
        let mut places: Vec<_> = (0..1 << bits).map(|_| Vec::new()).collect();
        places.iter_mut().try_for_each(|places| reserve(places, room))?;
        let (first, last) = range_of(p >> bits, self.plan.partition_bits() - bits as u8);
        let mut read = 0;
        for record in table.range(first, last) {
            let (hash, key, _) = record.map_err(Error::table(file.name()))?;
            read += 1;
            let place = table.place_of(key).map_err(Error::table(file.name()))?;
            push(&mut places[self.plan.partition_of(hash) as usize % (1 << bits)], place)?;
        }
        self.read[i].fetch_add(read, Ordering::Relaxed);
        Ok(places.into())
    }
}

/// Records that are prefetched while others are read: they lie some hundred bytes apart. (Without, a third of
/// all time of a merge was spent on waiting for them. Zen 4, 15 tables, 10 M keys.)
const RECORDS_AHEAD: usize = 16;

impl<'m> Loader for Inputs<'m, '_> {
    type Part = MergedPart<'m>;

    fn load(&mut self, p: u32) -> Result<MergedPart<'m>> {
        let look = |i: usize| match coarser(&self.plan, self.inputs[i].table.footer()) {
            Some(bits) if self.streams[i] && self.ahead[i].is_empty() => {
                self.look_ahead(i, p, bits)
            }
            _ => Ok(VecDeque::new()),
        };
        let ahead = self.pool.map((0..self.inputs.len()).collect(), look);
        let ahead = ahead.into_iter().collect::<Result<Vec<_>>>()?;
        let places = self.ahead.iter_mut().zip(ahead).map(|(ahead, more)| {
            ahead.extend(more);
            ahead.pop_front()
        });
        Ok(MergedPart {
            places: places.collect(),
            streams: self.streams,
            collected: self.collected.as_mut().map(|collected| collected.load(p)).transpose()?,
            inputs: self.inputs,
            read: self.read,
            range: range_of(p, self.plan.partition_bits()),
            pieces: Vec::new(),
        })
    }
}

/// What one input holds of one partition of the output.
#[derive(Default)]
pub(super) struct Piece<'m> {
    keys: Vec<(u64, &'m [u8])>,
    /// The new values, one behind the other.
    values: Vec<u8>,
    value_width: usize,
}

impl<'m> Piece<'m> {
    /// Adds a record of input `i`.
    #[inline]
    fn push(
        &mut self,
        i: usize,
        input: &MergeInput<'_>,
        hash: u64,
        key: &'m [u8],
        value: &[u8],
    ) -> Result<()> {
        let mut new = [0; 64];
        if let Some(width) = map_value(i, input, value, &mut new)? {
            push(&mut self.keys, (hash, key))?;
            if self.values.capacity() - self.values.len() < width {
                let more = (self.values.len() / 4).max(width);
                reserve(&mut self.values, more)?;
            }
            self.values.extend_from_slice(&new[..width]);
            self.value_width = width;
        }
        Ok(())
    }
}

/// What the inputs hold of one partition.
pub(super) struct MergedPart<'m> {
    inputs: &'m [MergeInput<'m>],
    /// For each input, where its records lie, if that is known.
    places: Vec<Option<Vec<RecordPlace>>>,
    streams: &'m [bool],
    collected: Option<CollectedPart>,
    read: &'m [AtomicU64],
    range: (u64, u64),
    /// One for each input, in their order.
    pieces: Vec<Piece<'m>>,
}

impl Part for MergedPart<'_> {
    fn prepare(&mut self) -> Result<()> {
        for (i, (input, places)) in self.inputs.iter().zip(&mut self.places).enumerate() {
            let table = input.table.table();
            let mut piece = Piece::default();
            if let Some(places) = places.take() {
                let hasher = table.footer().hasher();
                reserve(&mut piece.keys, places.len())?;
                let width = table.footer().value().width().max(8);
                reserve(&mut piece.values, places.len() * usize::from(width))?;
                for (n, place) in places.iter().enumerate() {
                    if let Some(ahead) = places.get(n + RECORDS_AHEAD) {
                        pkhash_simd::prefetch(table.as_bytes(), ahead.offset());
                    }
                    // It was found by `look_ahead`, in the same bytes.
                    let (key, value) = table.record_at(*place).ok_or_else(|| {
                        Error::table(input.table.name())(pkhash_core::Error::Corrupt {
                            what: "record that was there before",
                            offset: place.offset() as u64,
                            expected: table.as_bytes().len() as u64,
                            found: place.offset() as u64,
                        })
                    })?;
                    piece.push(i, input, hasher.hash(key), key, value.as_bytes())?;
                }
            } else if self.streams[i] {
                let mut read = 0;
                for record in table.range(self.range.0, self.range.1) {
                    let (hash, key, value) = record.map_err(Error::table(input.table.name()))?;
                    read += 1;
                    piece.push(i, input, hash, key, value.as_bytes())?;
                }
                self.read[i].fetch_add(read, Ordering::Relaxed);
            }
            self.pieces.push(piece);
        }
        Ok(())
    }

    fn entries<'p>(&'p self, entries: &mut Vec<Entry<'p>>) -> Result<()> {
        // Those of one key in the order of the inputs. Of one input, they are in order already.
        let mut others: Vec<(usize, Entry<'p>)> = Vec::new();
        if let Some(collected) = &self.collected {
            let mut count = 0;
            collected.each(|_| {
                count += 1;
                Ok(())
            })?;
            reserve(&mut others, count)?;
            collected.each(|entry| {
                let (number, value) = entry.value.split_first_chunk().unwrap_or((&[0; 4], &[]));
                others.push((u32::from_le_bytes(*number) as usize, Entry { value, ..entry }));
                Ok(())
            })?;
            // By key, too, since this sort needs no memory: one of an input comes after another of it
            // only if their keys differ.
            others.sort_unstable_by_key(|(input, entry)| (*input, entry.hash));
        }
        let mut others = others.into_iter().peekable();
        for (i, Piece { keys, values, value_width }) in self.pieces.iter().enumerate() {
            for (k, &(hash, key)) in keys.iter().enumerate() {
                let value = &values[k * value_width..(k + 1) * value_width];
                push(entries, Entry { hash, key, value })?;
            }
            while let Some((_, entry)) = others.next_if(|(input, _)| *input == i) {
                push(entries, entry)?;
            }
        }
        Ok(())
    }
}
