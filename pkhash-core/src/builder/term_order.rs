//! Writing slot words and records of a term-order partition.

use super::{Entry, Plan};
use crate::error::{Error, Result};
use crate::format::directory::Partition;
use crate::layout::{copy, slot_word, write_varint};

/// Words of scratch for each key: the first 8 bytes of the key as a big-endian number, by which most
/// comparisons end; the entry; its slot, and in the upper half how far that is from its home.
const WORDS: usize = 3;

/// Words of scratch for a partition.
pub(super) const fn scratch_len(keys: usize) -> usize {
    WORDS * keys
}

fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

impl Plan {
    /// Returns the largest value. `slot_words` and `records` are zeroed and as long as `measure` said.
    pub(super) fn write_term_order(
        &self,
        partition: &Partition,
        entries: &[Entry<'_>],
        scratch: &mut [u64],
        slot_words: &mut [u8],
        records: &mut [u8],
    ) -> Result<u64> {
        let (expected, found) = (scratch_len(entries.len()), scratch.len());
        let scratch = scratch.get_mut(..expected).ok_or(Error::BufferTooSmall {
            what: "scratch for a partition",
            expected,
            found,
        })?;
        let (order, _) = scratch.as_chunks_mut::<WORDS>();
        let slots = self.slots(partition.homes, entries);
        for (i, (term, (entry, (home, slot)))) in
            order.iter_mut().zip(entries.iter().zip(slots)).enumerate()
        {
            let distance = u64::from(slot - home);
            *term = [prefix(entry.key), i as u64, u64::from(slot) | distance << 32];
        }
        // Keys differ, so an unstable sort has one result.
        order.sort_unstable_by(|a, b| {
            a[0].cmp(&b[0]).then_with(|| entries[a[1] as usize].key.cmp(entries[b[1] as usize].key))
        });
        let (mut at, mut largest) = (0, 0);
        for [_, entry, place] in &*order {
            let entry = &entries[*entry as usize];
            let word = slot_word(entry.hash, (*place >> 32) as u32, at as u64);
            let word_at = *place as u32 as usize * 8;
            slot_words[word_at..word_at + 8].copy_from_slice(&word.to_le_bytes());
            largest = self.put_value(entry, &mut records[at..])?.max(largest);
            at += usize::from(self.value.width());
            at += write_varint(entry.key.len() as u32, &mut records[at..]);
            copy(entry.key, &mut records[at..at + entry.key.len()]);
            at += entry.key.len();
        }
        Ok(largest)
    }
}
