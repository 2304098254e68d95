//! Sorting entries by hash, then key: a stable radix sort, from the top byte down.
//!
//! Hashes are spread evenly, so two passes over a partition leave bins of a few entries, which are
//! sorted by insertion. Keys crafted to share a hash fall back to a merge sort by key, so that the
//! work stays O(n log n) comparisons whatever the keys.

use core::cmp::Ordering;

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
    sort_by(entries, scratch, |entry| entry.hash, |a, b| a.key.cmp(b.key))
}

/// [`sort`] of whatever has a hash, and an order among those of one hash.
///
/// # Errors
/// As [`sort`].
pub fn sort_by<T: Copy>(
    items: &mut [T],
    scratch: &mut [T],
    hash: impl Fn(&T) -> u64 + Copy,
    order: impl Fn(&T, &T) -> Ordering + Copy,
) -> Result<()> {
    let (expected, found) = (items.len(), scratch.len());
    let scratch = scratch.get_mut(..expected).ok_or(Error::BufferTooSmall {
        what: "scratch for sorting",
        expected,
        found,
    })?;
    let Some(first) = items.first().map(hash) else { return Ok(()) };
    let differ = items.iter().fold(0, |bits, item| bits | (hash(item) ^ first));
    // Whether `b` belongs strictly before `a`.
    let after = |a: &T, b: &T| {
        let (hash_a, hash_b) = (hash(a), hash(b));
        hash_a > hash_b || (hash_a == hash_b && order(a, b) == Ordering::Greater)
    };
    radix(items, scratch, differ.leading_zeros(), true, hash, after);
    Ok(())
}

/// Sorts items whose hashes agree in their top `agree` bits, which lie in `from`. The result goes to
/// `from` (`stay`) or to `to`: items move from one to the other with each digit.
fn radix<T: Copy>(
    from: &mut [T],
    to: &mut [T],
    agree: u32,
    stay: bool,
    hash: impl Fn(&T) -> u64 + Copy,
    after: impl Fn(&T, &T) -> bool + Copy,
) {
    if from.len() <= SMALL || agree >= 64 {
        if from.len() <= SMALL {
            insertion(from, after);
        } else {
            merge(from, to, after);
        }
        if !stay {
            to.copy_from_slice(from);
        }
        return;
    }
    let digit = |item: &T| (hash(item) << agree >> 56) as usize;
    let mut ends = [0usize; 256];
    for item in &*from {
        ends[digit(item)] += 1;
    }
    let (mut sum, mut most) = (0, 0);
    let mut next = ends.map(|count| {
        let begins = sum;
        sum += count;
        most = most.max(count);
        begins
    });
    for item in &*from {
        let at = &mut next[digit(item)];
        to[*at] = *item;
        *at += 1;
    }
    if most <= SMALL {
        // No item is far from its place: one insertion sort for all bins.
        if stay {
            insert_from(to, from, after);
        } else {
            insertion(to, after);
        }
        return;
    }
    // `next` now holds where each bin ends.
    let mut begins = 0;
    for ends in next {
        if ends > begins {
            let (here, there) = (&mut to[begins..ends], &mut from[begins..ends]);
            radix(here, there, agree + 8, !stay, hash, after);
        }
        begins = ends;
    }
}

fn insertion<T: Copy>(items: &mut [T], after: impl Fn(&T, &T) -> bool) {
    for i in 1..items.len() {
        let item = items[i];
        let mut at = i;
        while at > 0 && after(&items[at - 1], &item) {
            items[at] = items[at - 1];
            at -= 1;
        }
        items[at] = item;
    }
}

/// [`insertion`] of the items of `from`, on the way to `to`.
fn insert_from<T: Copy>(from: &[T], to: &mut [T], after: impl Fn(&T, &T) -> bool) {
    for (i, item) in from.iter().enumerate() {
        let mut at = i;
        while at > 0 && after(&to[at - 1], item) {
            to[at] = to[at - 1];
            at -= 1;
        }
        to[at] = *item;
    }
}

/// Bottom-up merge sort. The result stays in `items`.
fn merge<T: Copy>(items: &mut [T], scratch: &mut [T], after: impl Fn(&T, &T) -> bool + Copy) {
    for run in items.chunks_mut(SMALL) {
        insertion(run, after);
    }
    let mut width = SMALL;
    while width < items.len() {
        for (from, to) in items.chunks(2 * width).zip(scratch.chunks_mut(2 * width)) {
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
        items.copy_from_slice(scratch);
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
