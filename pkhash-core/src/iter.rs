//! Slot by slot: iteration, ranges of hashes, and the places of records.

use core::fmt;

use crate::error::{Error, Result, Section};
use crate::format::directory::Partition;
use crate::format::{MAX_FIXED_KEY_LEN, bytes_at_u64};
use crate::hash::{self, EMPTY};
use crate::layout::perfect::{LINE_SLOTS, OFFSET_LINE, Perfect, span_in};
use crate::layout::{Layout, Parsed, Records};
use crate::table::Table;
use crate::value::Value;

impl<'a> Table<'a> {
    /// All records, in the order of their slots: by hash, but in a perfect table, where only partitions
    /// are in the order of hashes.
    #[must_use]
    pub fn iter(&self) -> Iter<'a> {
        Iter(self.slots(0, 0, self.footer.partitions()))
    }

    /// The records of partition `p`, in the order of their slots; none if there are not so many.
    #[must_use]
    pub fn iter_partition(&self, p: u32) -> Iter<'a> {
        Iter(self.slots(p, 0, p.saturating_add(1)))
    }

    /// Where the record of a key lies that iteration has found: for callers that read a perfect
    /// table once, and want its records later in another order. `key` is part of this table's bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if it is not, or not of a perfect table, or lies behind the first 2^47 bytes.
    pub fn place_of(&self, key: &'a [u8]) -> Result<RecordPlace> {
        let at = (key.as_ptr() as usize).wrapping_sub(self.data.as_ptr() as usize) as u64;
        let most = RecordPlace::MAX_OFFSET.min(self.data.len() as u64);
        if at > most
            || self.footer.layout != Layout::Perfect
            || key.len() > MAX_FIXED_KEY_LEN as usize
        {
            return Err(Error::TooLarge { what: "bytes before a key", expected: most, found: at });
        }
        Ok(RecordPlace(at << RecordPlace::LEN_BITS | key.len() as u64))
    }

    /// The key and the value of a record; `None` if the place is not one of this table's.
    #[inline]
    #[must_use]
    pub fn record_at(&self, place: RecordPlace) -> Option<(&'a [u8], Value<'a>)> {
        let (at, len) = (place.offset(), place.0 as usize % (1 << RecordPlace::LEN_BITS));
        // A perfect table's records are `value | key`, of one length or with padding behind.
        let width = usize::from(self.footer.value.width());
        let record = self.body.get(at.checked_sub(width)?..at.checked_add(len)?)?;
        let (value, key) = record.split_at_checked(width)?;
        Some((key, Value::new(value)))
    }

    /// The records whose hash lies in `first..=last`, in the order of [`iter`](Self::iter), without
    /// reading those before. O(records in the range + one probe); in a perfect table, O(records of the
    /// partitions that the range meets).
    #[must_use]
    pub fn range(&self, first: u64, last: u64) -> RangeIter<'a> {
        let bits = self.footer.partition_bits;
        let from = hash::partition(first, bits);
        // A perfect table has no homes.
        let home = self.partition(from).map_or(0, |p| hash::home(first, bits, p.homes));
        let slots = self.slots(from, home, hash::partition(last, bits) + 1);
        RangeIter { slots, hasher: self.footer.hasher, first, last }
    }

    /// The occupied slots of partitions `from..to`, in the first one beginning with `slot`.
    pub(crate) fn slots(&self, from: u32, slot: u32, to: u32) -> Slots<'a> {
        Slots {
            table: *self,
            partition: from,
            to,
            entry: None,
            slot: slot.into(),
            record_bytes: 0,
            before: None,
            ended: false,
        }
    }
}

/// Where a record of a perfect table lies, in 8 bytes: see [`Table::place_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace(u64);

impl RecordPlace {
    /// Of the key's length, which is at most [`MAX_FIXED_KEY_LEN`]; its offset has the others.
    const LEN_BITS: u32 = MAX_FIXED_KEY_LEN.ilog2() + 1;
    const MAX_OFFSET: u64 = u64::MAX >> Self::LEN_BITS;

    /// Offset of the key in the table, behind the value.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> usize {
        (self.0 >> Self::LEN_BITS) as usize
    }
}

/// An occupied slot and its record.
#[derive(Clone, Copy)]
pub(crate) struct Occupied<'a> {
    pub(crate) partition: u32,
    /// Perfect: exceptions come behind the slots.
    pub(crate) slot: u64,
    /// 0 in a perfect table.
    pub(crate) control: u8,
    /// The slot word; 0 where there are none.
    pub(crate) word: u64,
    /// Offset of the record in the table.
    pub(crate) at: u64,
    pub(crate) record: Parsed<'a>,
}

/// The occupied slots of some partitions, in order. Ends after the first error.
#[derive(Clone)]
pub(crate) struct Slots<'a> {
    table: Table<'a>,
    partition: u32,
    to: u32,
    /// The current partition's entry.
    entry: Option<Partition>,
    slot: u64,
    /// Bytes of the partition's records so far.
    record_bytes: u64,
    /// Perfect: the key of the record before, of which empty slots hold a copy.
    before: Option<&'a [u8]>,
    /// After an error, or past the end of a range.
    ended: bool,
}

impl fmt::Debug for Slots<'_> {
    /// Not the table: where in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, slot, ended, .. } = self;
        f.debug_struct("Slots")
            .field("partition", partition)
            .field("slot", slot)
            .field("ended", ended)
            .finish_non_exhaustive()
    }
}

impl<'a> Slots<'a> {
    /// The next occupied slot of a table that is probed.
    fn next_probed(&mut self, entry: &Partition) -> Option<Result<Occupied<'a>>> {
        let control = self.table.section(entry, Section::Control).1;
        let control = control.get(..entry.slots as usize).unwrap_or_default();
        let rest = control.get(self.slot as usize..).unwrap_or_default();
        let skip = rest.iter().position(|byte| *byte != EMPTY)?;
        self.slot += skip as u64;
        let found = self.occupied(entry, rest[skip]);
        self.slot += 1;
        Some(found)
    }

    fn occupied(&self, entry: &Partition, control: u8) -> Result<Occupied<'a>> {
        let (table, slot) = (&self.table, self.slot);
        let offsets = table.footer.offsets(entry);
        if control & 0x80 == 0 {
            return Err(Error::Corrupt {
                what: "control byte",
                offset: offsets.index.wrapping_add(slot),
                expected: 0x80,
                found: control.into(),
            });
        }
        let (word, at) = if table.footer.layout == Layout::Inline {
            let width = u64::from(table.footer.fixed_record_width());
            (0, offsets.records.wrapping_add(slot * width))
        } else {
            let word_at = offsets.pointers.wrapping_add(8 * slot);
            let word =
                bytes_at_u64(table.data, word_at).map_or(0, |word| u64::from_le_bytes(*word));
            let Some(record) = (word >> 24).checked_sub(1) else {
                return Err(Error::Corrupt {
                    what: "slot word of an occupied slot",
                    offset: word_at,
                    expected: 1,
                    found: word,
                });
            };
            if record >= entry.record_bytes {
                return Err(Error::Corrupt {
                    what: "pointer of a slot word",
                    offset: word_at,
                    expected: entry.record_bytes,
                    found: record,
                });
            }
            (word, offsets.records.wrapping_add(record))
        };
        let bytes = table.record(at)?;
        let parsed = if table.footer.layout == Layout::Inline {
            table.footer.inline().parse(bytes)
        } else {
            table.footer.term_order().parse(bytes)
        };
        let record = parsed.map_err(|what| Error::Corrupt {
            what,
            offset: at,
            expected: entry.record_bytes,
            found: bytes.len() as u64,
        })?;
        Ok(Occupied { partition: self.partition, slot, control, word, at, record })
    }

    /// The next occupied slot, or exception, of a perfect table.
    fn next_perfect(&mut self, entry: &Partition) -> Option<Result<Occupied<'a>>> {
        while self.slot < self.table.perfect_slots(entry) {
            let found = self.table.perfect_slot(entry, self.slot);
            let slot = self.slot;
            self.slot += 1;
            match found {
                Ok(Some((at, record))) => {
                    // No two slots hold one key, but for copies.
                    if self.before.replace(record.key) == Some(record.key) {
                        continue;
                    }
                    let partition = self.partition;
                    return Some(Ok(Occupied { partition, slot, control: 0, word: 0, at, record }));
                }
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

impl<'a> Table<'a> {
    /// Slots and exceptions of a perfect partition that may have a record. If records have no bytes there
    /// is at most one key, whatever a directory says that was not checked with this footer: else a scan
    /// of few bytes would take 2^32 steps.
    pub(crate) fn perfect_slots(&self, entry: &Partition) -> u64 {
        let empty = !self.footer.has_offset_lines() && self.fixed.width() == 0;
        if empty { entry.all_slots().min(2) } else { entry.all_slots() }
    }

    /// Offset and record in a slot of a perfect table, a copy perhaps; `None`: the slot is empty.
    pub(crate) fn perfect_slot(
        &self,
        entry: &Partition,
        slot: u64,
    ) -> Result<Option<(u64, Parsed<'a>)>> {
        let offsets = self.footer.offsets(entry);
        let corrupt =
            |what, offset, expected, found| Error::Corrupt { what, offset, expected, found };
        let (at, len) = if self.footer.has_offset_lines() {
            let line_at =
                offsets.pointers.wrapping_add(slot / u64::from(LINE_SLOTS) * OFFSET_LINE as u64);
            let past = || corrupt("offset line past the end", line_at, 0, self.data.len() as u64);
            let line = bytes_at_u64(self.data, line_at).ok_or_else(past)?;
            // Which of 28: the same for the slot as for its lower part.
            let (from, to) = span_in(line, (slot % u64::from(LINE_SLOTS)) as u32);
            let unit = u64::from(self.footer.unit);
            if to < from || to * unit > entry.record_bytes {
                let most = entry.record_bytes / unit;
                return Err(corrupt("end of a record by its offset line", line_at, most, to));
            }
            if from == to {
                return Ok(None);
            }
            (from * unit, (to - from) * unit)
        } else {
            // `open` has checked that all slots have a number below 2^32.
            (self.fixed.at(slot as u32), self.fixed.width() as u64)
        };
        let at = offsets.records.wrapping_add(at);
        let rest = self.record(at)?;
        let record = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let parsed = match record {
            None => Err("record runs past the body"),
            Some(record) if self.footer.has_offset_lines() => self.footer.spans().parse(record),
            Some(record) => self.fixed.parse(record),
        };
        match parsed {
            Ok(parsed) => Ok(Some((at, parsed))),
            Err(what) => Err(corrupt(what, at, len, rest.len() as u64)),
        }
    }
}

impl<'a> Iterator for Slots<'a> {
    type Item = Result<Occupied<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        while self.partition < self.to {
            let entry = match self.entry {
                Some(entry) => entry,
                None => *self.entry.insert(self.table.partition(self.partition)?),
            };
            let found = match self.table.footer.layout {
                Layout::Inline | Layout::TermOrder => self.next_probed(&entry),
                Layout::Perfect => self.next_perfect(&entry),
            };
            if let Some(found) = found {
                let found = found.and_then(|slot| {
                    // Records do not overlap: else a small table could hold long keys without end, and
                    // a scan would take the square of its length.
                    self.record_bytes += slot.record.len as u64;
                    if self.record_bytes <= entry.record_bytes {
                        return Ok(slot);
                    }
                    Err(Error::Corrupt {
                        what: "record bytes of a partition",
                        offset: slot.at,
                        expected: entry.record_bytes,
                        found: self.record_bytes,
                    })
                });
                self.ended = found.is_err();
                return Some(found);
            }
            self.partition += 1;
            self.slot = 0;
            self.record_bytes = 0;
            self.before = None;
            self.entry = None;
        }
        None
    }

    /// A damaged table may hold fewer records than it says, but no more than it has slots; then comes an error.
    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.ended || self.partition >= self.to {
            return (0, Some(0));
        }
        let footer = &self.table.footer;
        let most = footer.slots.saturating_add(footer.exceptions).saturating_add(1);
        (0, usize::try_from(most).ok())
    }
}

/// The records of a table: see [`Table::iter`]. After an error it ends.
#[derive(Clone, Debug)]
pub struct Iter<'a>(Slots<'a>);

impl<'a> Iterator for Iter<'a> {
    /// Key and value.
    type Item = Result<(&'a [u8], Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.0.next()?;
        Some(found.map(|slot| (slot.record.key, Value::new(slot.record.value))))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl core::iter::FusedIterator for Iter<'_> {}

/// The records of a range of hashes: see [`Table::range`]. After an error it ends.
#[derive(Clone, Debug)]
pub struct RangeIter<'a> {
    slots: Slots<'a>,
    hasher: hash::KeyHasher,
    first: u64,
    last: u64,
}

impl<'a> Iterator for RangeIter<'a> {
    /// Hash, key and value.
    type Item = Result<(u64, &'a [u8], Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let slot = match self.slots.next()? {
                Ok(slot) => slot,
                Err(error) => return Some(Err(error)),
            };
            let hash = self.hasher.hash(slot.record.key);
            // Keys from before the range may have been pushed past its first home slot.
            if hash < self.first {
                continue;
            }
            if hash > self.last {
                // Keys of a perfect table are in no order, but those of a partition are all there.
                if self.slots.table.footer.layout == Layout::Perfect {
                    continue;
                }
                self.slots.ended = true;
                return None;
            }
            return Some(Ok((hash, slot.record.key, Value::new(slot.record.value))));
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl core::iter::FusedIterator for RangeIter<'_> {}

impl<'a> IntoIterator for &Table<'a> {
    type Item = <Iter<'a> as Iterator>::Item;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}
