//! [`Table::verify`]: reads everything.

use crate::error::{Error, Result, Section};
use crate::format::checksum;
use crate::format::directory::Partition;
use crate::format::footer::Footer;
use crate::hash;
use crate::layout::perfect::{LINE_SLOTS, OFFSET_LINE, Perfect, span_in};
use crate::layout::{Layout, Parsed, Records, slot_word};
use crate::table::Table;
use crate::value::{Value, ValueKind};

/// What the records of a table add up to.
#[derive(Default)]
struct Totals {
    keys: u64,
    key_bytes: u64,
    min_key_len: u64,
    max_key_len: u64,
    max_value: u64,
}

impl Totals {
    /// Counts a key of partition `p`, once it is sure that it belongs there.
    fn add(
        &mut self,
        p: u32,
        footer: &Footer,
        hash: u64,
        at: u64,
        record: &Parsed<'_>,
    ) -> Result<()> {
        let found = hash::partition(hash, footer.partition_bits);
        equal("partition of a key", at, p.into(), found.into())?;
        let len = record.key.len() as u64;
        self.keys += 1;
        self.key_bytes += len;
        self.min_key_len = self.min_key_len.min(len);
        self.max_key_len = self.max_key_len.max(len);
        if footer.value.kind() == ValueKind::Integer {
            self.max_value = self.max_value.max(Value::new(record.value).as_u64().unwrap_or(0));
        }
        Ok(())
    }
}

fn corrupt(what: &'static str, offset: u64, expected: u64, found: u64) -> Error {
    Error::Corrupt { what, offset, expected, found }
}

fn equal(what: &'static str, offset: u64, expected: u64, found: u64) -> Result<()> {
    if expected == found { Ok(()) } else { Err(corrupt(what, offset, expected, found)) }
}

impl Table<'_> {
    /// Reads every byte: compares all checksums, then checks that every key is where a lookup will
    /// find it, that the filter admits it, that no key occurs twice, that the counts are right, and that
    /// what belongs to no key is zero. `open` has checked head and footer. Any single flipped bit is
    /// found; so is a table that was written wrongly and has good checksums, but for filter bits that
    /// no key needs.
    ///
    /// # Errors
    /// The first fault: [`Error::SectionChecksum`] or [`Error::Corrupt`].
    pub fn verify(&self) -> Result<()> {
        self.verify_with(|_| {})
    }

    /// [`verify`](Self::verify), which calls `progress` with the number of each partition that is done.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_with(&self, mut progress: impl FnMut(u32)) -> Result<()> {
        let mut totals = Totals { min_key_len: u64::MAX, ..Totals::default() };
        for p in 0..self.footer().partitions() {
            let entry = self.partition(p).unwrap_or_default();
            self.verify_checksums(p)?;
            match self.footer().layout {
                Layout::Inline => self.verify_slots(p, &entry, &mut totals)?,
                Layout::TermOrder => {
                    self.verify_slots(p, &entry, &mut totals)?;
                    self.verify_term_order(&entry)?;
                }
                Layout::Perfect if self.footer().has_offset_lines() => {
                    self.verify_perfect(p, &entry, self.footer().spans(), &mut totals)?;
                }
                Layout::Perfect => {
                    self.verify_perfect(p, &entry, self.footer().fixed(), &mut totals)?;
                }
            }
            progress(p);
        }
        if totals.keys == 0 {
            totals.min_key_len = 0;
        }
        let (footer, end) = (self.footer(), self.footer().file_len);
        equal("keys of the tail", end, totals.keys, footer.keys)?;
        equal("key bytes of the tail", end, totals.key_bytes, footer.key_bytes)?;
        equal("shortest key of the tail", end, totals.min_key_len, footer.min_key_len.into())?;
        equal("longest key of the tail", end, totals.max_key_len, footer.max_key_len.into())?;
        equal("largest value of the tail", end, totals.max_value, footer.max_value)
    }

    /// Compares the checksums of one partition's sections: the first half of
    /// [`verify`](Self::verify), and enough to find damage.
    ///
    /// # Errors
    /// [`Error::SectionChecksum`]; [`Error::BadOption`] if there are not so many partitions.
    pub fn verify_checksums(&self, p: u32) -> Result<()> {
        let partitions = u64::from(self.footer().partitions());
        let entry = &self.partition(p).ok_or(Error::BadOption {
            option: "partition",
            least: 0,
            expected: partitions - 1,
            found: p.into(),
        })?;
        for (section, expected) in self.footer().layout.sections().zip(entry.checksums) {
            let (offset, bytes) = self.section(entry, section);
            let found = if bytes.is_empty() { 0 } else { checksum(bytes) };
            if found != expected {
                return Err(Error::SectionChecksum {
                    section,
                    partition: p,
                    offset,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }

    /// Every slot of a perfect table: its key is one that belongs there, or it is empty.
    fn verify_perfect<R: Perfect>(
        &self,
        p: u32,
        entry: &Partition,
        records: R,
        totals: &mut Totals,
    ) -> Result<()> {
        let footer = self.footer();
        let (mut keys, mut record_bytes) = (0u64, 0u64);
        // Empty slots before the first key hold a copy of its record, the others of the one before.
        let mut first_key = None;
        let (mut leading, mut before) = (None, None);
        let mut last_exception: Option<(u64, &[u8])> = None;
        for slot in 0..self.perfect_slots(entry) {
            let Some((at, record)) = self.perfect_slot(entry, slot)? else {
                let slots = u64::from(entry.slots);
                if slot >= slots {
                    return Err(corrupt("record of an exception", entry.offset, slots, slot));
                }
                continue;
            };
            let hash = footer.hasher.hash(record.key);
            let own = u64::from(self.slot_of(entry, hash)?);
            let bytes = (record.value, record.key);
            if slot >= entry.slots.into() {
                // Another key has the slot, with the same hash and before it in term order.
                if own >= entry.slots.into() {
                    return Err(corrupt("slot of an exception", at, entry.slots.into(), own));
                }
                let placed = self.perfect_slot(entry, own)?.map_or(&[][..], |(_, r)| r.key);
                if footer.hasher.hash(placed) != hash || placed >= record.key {
                    return Err(corrupt("key of an exception", at, own, slot));
                }
                if last_exception.is_some_and(|last| last >= (hash, record.key)) {
                    return Err(corrupt("order of exceptions", at, 1, 0));
                }
                last_exception = Some((hash, record.key));
            } else if own != slot {
                let copy = !R::OFFSET_LINES
                    && match (before, leading) {
                        (Some(before), _) => before == bytes,
                        (None, Some(leading)) => leading == bytes,
                        (None, None) => true,
                    };
                if !copy {
                    return Err(corrupt("slot of a key", at, own, slot));
                }
                if before.is_none() {
                    leading = Some(bytes);
                }
                continue;
            }
            if before.is_none() {
                first_key = Some(bytes);
            }
            before = Some(bytes);
            totals.add(p, footer, hash, at, &record)?;
            if !self.filter_admits(hash) {
                return Err(corrupt("key that the filter does not admit", at, 1, 0));
            }
            keys += 1;
            record_bytes += record.len as u64;
        }
        if leading.is_some() && leading != first_key {
            return Err(corrupt("empty slot", entry.offset, 0, 1));
        }
        equal("keys of a partition", entry.offset, keys, entry.keys.into())?;
        // All keys differ, so no record was counted twice: they must fill the section.
        if R::OFFSET_LINES {
            equal("record bytes of a partition", entry.offset, record_bytes, entry.record_bytes)?;
        }
        self.verify_perfect_padding(entry, records)
    }

    /// What belongs to no record: the end of each line, of offset lines, and of sections.
    fn verify_perfect_padding<R: Perfect>(&self, entry: &Partition, records: R) -> Result<()> {
        let (offset, bytes) = self.section(entry, Section::Filter);
        zeros("padding", offset, bytes, 8 * u64::from(entry.filter_words), None)?;
        let (offset, bytes) = self.section(entry, Section::Pilots);
        zeros("padding", offset, bytes, entry.buckets.into(), None)?;
        let (offset, bytes) = self.section(entry, Section::Records);
        if !R::OFFSET_LINES {
            let slots = self.perfect_slots(entry);
            let width = u64::from(self.footer().fixed_record_width());
            let mut from = 0;
            for slot in 0..slots {
                let at = records.at(slot as u32);
                if at > from {
                    zeros("padding", offset, bytes, from, Some(at))?;
                }
                from = at + width;
            }
            return zeros("padding", offset, bytes, from, None);
        }
        zeros("padding", offset, bytes, entry.record_bytes, None)?;
        // Each line begins where the one before ends, and the slots past the last one are empty.
        let (offset, bytes) = self.section(entry, Section::OffsetLines);
        let mut end = 0;
        for (i, line) in bytes.as_chunks::<OFFSET_LINE>().0.iter().enumerate() {
            let at = offset + (i * OFFSET_LINE) as u64;
            for slot in 0..LINE_SLOTS {
                let (from, to) = span_in(line, slot);
                equal("start of a record by its offset line", at, end, from)?;
                end = to;
                if i as u64 * u64::from(LINE_SLOTS) + u64::from(slot) >= entry.all_slots() {
                    equal("slots of an offset line", at, from, to)?;
                }
            }
            equal("padding", at + OFFSET_LINE as u64 - 1, 0, line[OFFSET_LINE - 1].into())?;
        }
        equal(
            "end of the last offset line",
            offset,
            end * u64::from(self.footer().unit),
            entry.record_bytes,
        )
    }

    /// Every occupied slot, against the one way in which its keys can be placed.
    fn verify_slots(&self, p: u32, entry: &Partition, totals: &mut Totals) -> Result<()> {
        let footer = self.footer();
        let (mut keys, mut longest_probe, mut free) = (0u64, 0u32, 0u32);
        let mut record_bytes = 0u64;
        let empty = EmptySlots::of(self, entry);
        let mut previous: Option<(u64, &[u8])> = None;
        for slot in self.slots(p, 0, p + 1) {
            let slot = slot?;
            let (key, at) = (slot.record.key, slot.at);
            let hash = footer.hasher.hash(key);
            debug_assert_eq!(slot.partition, p);
            totals.add(p, footer, hash, at, &slot.record)?;
            if previous.is_some_and(|before| before >= (hash, key)) {
                return Err(corrupt(
                    "order of keys by hash",
                    at,
                    previous.map_or(0, |b| b.0),
                    hash,
                ));
            }
            previous = Some((hash, key));
            let home = hash::home(hash, footer.partition_bits, entry.homes);
            let found = home.max(free);
            equal("slot of a key", at, found.into(), slot.slot)?;
            empty.check(free, found)?;
            free = found + 1;
            longest_probe = longest_probe.max(free - home);
            equal("control byte of a key", at, hash::control(hash).into(), slot.control.into())?;
            if footer.layout == Layout::TermOrder {
                let records = footer.offsets(entry).records;
                let word = slot_word(hash, found - home, at.wrapping_sub(records));
                equal("slot word of a key", at, word, slot.word)?;
            }
            if !self.filter_admits(hash) {
                return Err(corrupt("key that the filter does not admit", at, 1, 0));
            }
            keys += 1;
            record_bytes += slot.record.len as u64;
        }
        empty.check(free, entry.slots)?;
        empty.check_padding(entry)?;
        equal("keys of a partition", entry.offset, keys, entry.keys.into())?;
        equal(
            "probe limit of a partition",
            entry.offset,
            longest_probe.into(),
            entry.probe_limit.into(),
        )?;
        // All keys differ, so no record was counted twice: they must fill the section.
        if footer.layout == Layout::TermOrder {
            equal("record bytes of a partition", entry.offset, record_bytes, entry.record_bytes)?;
        }
        equal(
            "slots of a partition",
            entry.offset,
            free.max(entry.homes).into(),
            entry.slots.into(),
        )
    }

    /// The records from front to back: as many as keys, each behind the one before, rising.
    fn verify_term_order(&self, entry: &Partition) -> Result<()> {
        let records = self.footer().term_order();
        let (offset, bytes) = self.section(entry, Section::Records);
        let len = usize::try_from(entry.record_bytes).unwrap_or(usize::MAX);
        let mut rest = bytes.get(..len).unwrap_or_default();
        let mut previous: Option<&[u8]> = None;
        let mut keys = 0u64;
        while !rest.is_empty() {
            let at = offset + (len - rest.len()) as u64;
            let record = records
                .parse(rest)
                .map_err(|what| corrupt(what, at, entry.record_bytes, rest.len() as u64))?;
            if previous.is_some_and(|before| before >= record.key) {
                return Err(corrupt("term order of records", at, 1, 0));
            }
            previous = Some(record.key);
            keys += 1;
            rest = rest.get(record.len.max(1)..).unwrap_or_default();
        }
        equal("records of a partition", offset, entry.keys.into(), keys)
    }

    /// Probe lengths: how many slots a lookup of each key looks at beyond its home slot, as a histogram;
    /// the last count counts all that are longer. All 0 in a perfect table, which has no probes. For
    /// statistics.
    ///
    /// # Errors
    /// [`Error::Corrupt`] as [`iter`](Self::iter).
    pub fn probe_lengths<const N: usize>(&self) -> Result<[u64; N]> {
        let footer = self.footer();
        let mut histogram = [0; N];
        if footer.layout == Layout::Perfect {
            return Ok(histogram);
        }
        for p in 0..footer.partitions() {
            let entry = self.partition(p).unwrap_or_default();
            for slot in self.slots(p, 0, p + 1) {
                let slot = slot?;
                let hash = footer.hasher.hash(slot.record.key);
                let home = hash::home(hash, footer.partition_bits, entry.homes);
                let length = (slot.slot as u32).wrapping_sub(home) as usize;
                if let Some(count) = histogram.get_mut(length.min(N.saturating_sub(1))) {
                    *count += 1;
                }
            }
        }
        Ok(histogram)
    }

    /// Share of the filter's bits that are set; `None` without a filter.
    #[must_use]
    pub fn filter_fill(&self) -> Option<f64> {
        if self.footer().filter_bits == 0 {
            return None;
        }
        let (mut set, mut bits) = (0u64, 0u64);
        for p in 0..self.footer().partitions() {
            let entry = self.partition(p).unwrap_or_default();
            let (_, bytes) = self.section(&entry, Section::Filter);
            set += bytes.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
            bits += 64 * u64::from(entry.filter_words);
        }
        Some(if bits == 0 { 0.0 } else { set as f64 / bits as f64 })
    }
}

/// The parts of a partition that belong to no key: they are zero, so that a table has one form only.
struct EmptySlots<'a> {
    /// The sections that have a part for each slot, with their offsets and the width of the part.
    by_slot: [(u64, &'a [u8], u64); 3],
    filter: (u64, &'a [u8]),
    records: (u64, &'a [u8]),
}

impl<'a> EmptySlots<'a> {
    fn of(table: &Table<'a>, entry: &Partition) -> Self {
        let section = |section| table.section(entry, section);
        let (control, words) = (section(Section::Control), section(Section::SlotWords));
        let records = section(Section::Records);
        let footer = table.footer();
        // Term-order records lie back to back, whatever the slots.
        let (in_slots, width) = match footer.layout {
            Layout::Inline => (records, footer.fixed_record_width().into()),
            Layout::TermOrder | Layout::Perfect => ((0, &[][..]), 0),
        };
        Self {
            by_slot: [
                (control.0, control.1, 1),
                (words.0, words.1, 8),
                (in_slots.0, in_slots.1, width),
            ],
            filter: section(Section::Filter),
            records,
        }
    }

    /// The slots `from..to` are empty.
    fn check(&self, from: u32, to: u32) -> Result<()> {
        for (offset, bytes, width) in self.by_slot {
            zeros(
                "empty slot",
                offset,
                bytes,
                u64::from(from) * width,
                Some(u64::from(to) * width),
            )?;
        }
        Ok(())
    }

    /// What lies between the end of a section's contents and the next section.
    fn check_padding(&self, entry: &Partition) -> Result<()> {
        for (offset, bytes, width) in self.by_slot {
            zeros("padding", offset, bytes, u64::from(entry.slots) * width, None)?;
        }
        let (offset, bytes) = self.filter;
        zeros("padding", offset, bytes, 8 * u64::from(entry.filter_words), None)?;
        let (offset, bytes) = self.records;
        zeros("padding", offset, bytes, entry.record_bytes, None)
    }
}

/// `bytes[from..to]` are zero; they lie at `offset` of the table. Without `to`, all from `from` on.
fn zeros(what: &'static str, offset: u64, bytes: &[u8], from: u64, to: Option<u64>) -> Result<()> {
    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    let (from, to) = (index(from), to.map_or(bytes.len(), index));
    let found = bytes.get(from..to).and_then(|bytes| bytes.iter().position(|byte| *byte != 0));
    match found {
        None => Ok(()),
        Some(at) => {
            let at = from + at;
            Err(corrupt(what, offset.saturating_add(at as u64), 0, bytes[at].into()))
        }
    }
}
