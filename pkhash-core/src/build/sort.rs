//! Sorting entries by hash, then key: a stable radix sort, from the top byte down.
//!
//! Hashes are spread evenly, so two passes over a partition leave bins of a few entries, which are
//! sorted by insertion. Keys crafted to share a hash fall back to a merge sort by key, so that the
//! work stays O(n log n) comparisons whatever the keys.

use super::Entry;
use crate::error::{Error, Result};

/// Bins up to this length are sorted by insertion.
const SMALL: usize = 24;

/// Sorts by hash, entries of one hash by key, and leaves entries that are equal in both in the order
/// in which they came: the older of two duplicates comes first. `scratch` is overwritten.
///
/// # Errors
/// [`Error::BufferTooSmall`] if `scratch` holds fewer entries.
pub fn sort<'k>(entries: &mut [Entry<'k>], scratch: &mut [Entry<'k>]) -> Result<()> {
    let (expected, found) = (entries.len(), scratch.len());
    let scratch = scratch.get_mut(..expected).ok_or(Error::BufferTooSmall {
        what: "scratch for sorting",
        expected,
        found,
    })?;
    let Some(first) = entries.first() else { return Ok(()) };
    let differ = entries.iter().fold(0, |bits, entry| bits | (entry.hash ^ first.hash));
    radix(entries, scratch, differ.leading_zeros());
    Ok(())
}

/// Sorts entries whose hashes agree in their top `agree` bits.
fn radix<'k>(entries: &mut [Entry<'k>], scratch: &mut [Entry<'k>], agree: u32) {
    if entries.len() <= SMALL {
        return insertion(entries);
    }
    if agree >= 64 {
        return merge(entries, scratch);
    }
    let digit = |entry: &Entry<'_>| (entry.hash << agree >> 56) as usize;
    let mut ends = [0usize; 256];
    for entry in &*entries {
        ends[digit(entry)] += 1;
    }
    let mut sum = 0;
    let mut next = ends.map(|count| {
        let begins = sum;
        sum += count;
        begins
    });
    for entry in &*entries {
        let at = &mut next[digit(entry)];
        scratch[*at] = *entry;
        *at += 1;
    }
    entries.copy_from_slice(scratch);
    // `next` now holds where each bin ends.
    let mut begins = 0;
    for ends in next {
        if ends - begins > 1 {
            radix(&mut entries[begins..ends], &mut scratch[begins..ends], agree + 8);
        }
        begins = ends;
    }
}

/// Whether `b` belongs strictly before `a`.
#[inline(always)]
fn after(a: &Entry<'_>, b: &Entry<'_>) -> bool {
    a.hash > b.hash || (a.hash == b.hash && a.key > b.key)
}

fn insertion(entries: &mut [Entry<'_>]) {
    for i in 1..entries.len() {
        let entry = entries[i];
        let mut at = i;
        while at > 0 && after(&entries[at - 1], &entry) {
            entries[at] = entries[at - 1];
            at -= 1;
        }
        entries[at] = entry;
    }
}

/// Bottom-up merge sort.
fn merge<'k>(entries: &mut [Entry<'k>], scratch: &mut [Entry<'k>]) {
    for run in entries.chunks_mut(SMALL) {
        insertion(run);
    }
    let mut width = SMALL;
    while width < entries.len() {
        for (from, to) in entries.chunks(2 * width).zip(scratch.chunks_mut(2 * width)) {
            let (mut left, mut right) = from.split_at(width.min(from.len()));
            for out in to {
                let from_right = match (left.first(), right.first()) {
                    (Some(left), Some(right)) => after(left, right),
                    (left, _) => left.is_none(),
                };
                let side = if from_right { &mut right } else { &mut left };
                if let Some((first, rest)) = side.split_first() {
                    *out = *first;
                    *side = rest;
                }
            }
        }
        entries.copy_from_slice(scratch);
        width = width.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_standard_sort() {
        let keys: Vec<[u8; 4]> = (0..5000u32).map(u32::to_be_bytes).collect();
        let order: Vec<[u8; 2]> = (0..5000u16).map(u16::to_be_bytes).collect();
        // Shift by 64 - bits: few distinct hashes, at either end of the word.
        for (distinct, shift) in [(1u64, 0), (2, 63), (7, 0), (7, 60), (300, 30), (u64::MAX, 0)] {
            for n in [0usize, 1, 2, 24, 25, 48, 49, 1000, 5000] {
                let mut entries: Vec<Entry<'_>> = (0..n)
                    .map(|i| Entry {
                        hash: ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % distinct) << shift,
                        // Every key three times or so: equal entries keep their order.
                        key: &keys[(i * 7919) % n.div_ceil(3)],
                        value: &order[i],
                    })
                    .collect();
                let mut expected = entries.clone();
                expected.sort_by(|a, b| (a.hash, a.key).cmp(&(b.hash, b.key)));
                let mut scratch = vec![Entry::default(); n];
                sort(&mut entries, &mut scratch).unwrap();
                assert_eq!(entries, expected, "{distinct} << {shift}, {n} entries");
            }
        }
    }

    #[test]
    fn too_little_scratch_is_an_error() {
        let mut entries = [Entry::default(); 2];
        assert_eq!(
            sort(&mut entries, &mut [Entry::default()]),
            Err(Error::BufferTooSmall { what: "scratch for sorting", expected: 2, found: 1 })
        );
    }
}
