//! Writing slot words and records of a term-order partition.

use super::{Entry, Plan};
use crate::error::{Error, Result};
use crate::format::directory::Partition;
use crate::layout::{slot_word, write_varint};

/// Scratch of the term-order builder: one for each key of a partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct TermSlot {
    /// The first 8 bytes of the key, big-endian: most comparisons end here.
    prefix: u64,
    /// Index of the entry.
    entry: u32,
    /// Its slot, and how far that is from its home.
    slot: u32,
    distance: u32,
}

fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

impl Plan {
    /// `slot_words` and `records` are zeroed and as long as `measure` said.
    pub(super) fn write_term_order(
        &self,
        partition: &Partition,
        entries: &[Entry<'_>],
        scratch: &mut [TermSlot],
        slot_words: &mut [u8],
        records: &mut [u8],
    ) -> Result<()> {
        let (expected, found) = (entries.len(), scratch.len());
        let order = scratch.get_mut(..expected).ok_or(Error::BufferTooSmall {
            what: "scratch for term-order",
            expected,
            found,
        })?;
        let slots = self.slots(partition.homes, entries);
        for (i, (term, (entry, (home, slot)))) in
            order.iter_mut().zip(entries.iter().zip(slots)).enumerate()
        {
            *term = TermSlot {
                prefix: prefix(entry.key),
                entry: i as u32,
                slot,
                distance: slot - home,
            };
        }
        // Keys differ, so an unstable sort has one result.
        order.sort_unstable_by(|a, b| {
            a.prefix
                .cmp(&b.prefix)
                .then_with(|| entries[a.entry as usize].key.cmp(entries[b.entry as usize].key))
        });
        let mut at = 0;
        for term in &*order {
            let entry = &entries[term.entry as usize];
            let word = slot_word(entry.hash, term.distance, at as u64);
            let word_at = term.slot as usize * 8;
            slot_words[word_at..word_at + 8].copy_from_slice(&word.to_le_bytes());
            let value = self.kept(entry.value)?;
            records[at..at + value.len()].copy_from_slice(value);
            at += value.len();
            at += write_varint(entry.key.len() as u32, &mut records[at..]);
            records[at..at + entry.key.len()].copy_from_slice(entry.key);
            at += entry.key.len();
        }
        Ok(())
    }
}
