//! Finding the pilots of a partition: the perfect hash function itself.
//!
//! The method is that of PtrHash (arXiv 2502.15539, §3): buckets are placed one by one, the largest
//! first, each with the first pilot that gives all its keys free slots. If there is none, the pilot is
//! taken that costs least: the buckets in the way are taken out again and placed anew.

use crate::error::{Error, Result};
use crate::layout::perfect::{PILOT, bucket, multiplier, slot, slot_of, spread};

/// Seeds that are tried for a partition.
const SEEDS: u16 = 32;

/// Evictions that a search with one seed may take. Keys in a shape that can be solved at all take few (0.003 for
/// each key in the default one, 0.15 with 3.5 keys a bucket at load 0.99), small partitions now and then more.
const fn most_evictions(keys: u64) -> u64 {
    2 * keys + 1024
}

/// Evictions that the searches with all seeds may take together: a few of them to their limit, or many that end
/// early, as those of small partitions do. Keys can be made such that each bucket can just be tried, with every
/// seed: 10,000 of them took 54 s with 16 evictions for each key and seed, and 1.5 s with these bounds.
const fn most_evictions_of_all(keys: u64) -> u64 {
    8 * keys + 1024 * SEEDS as u64
}

/// Keys of the largest bucket that is tried to be placed. With 3 keys in a bucket on average even one of
/// 16 is a chance of 2^-24 or so; one of more than this is no chance.
const MAX_BUCKET: usize = 64;

/// Buckets that were placed last, and are not taken out again at once: or two could push each other out
/// for ever. In a small partition they are fewer: 16 of 20 buckets leave no choice (of 7,580 partitions of
/// 1 to 300 keys 49 needed another seed with 16, and 1 with a quarter of the buckets).
const RECENT: usize = 16;

/// Words of 8 bytes that [`Solver::new`] needs.
pub(super) const fn scratch_len(keys: usize, buckets: usize, slots: usize) -> usize {
    if keys == 0 {
        return 0;
    }
    keys + slots.div_ceil(64) + (keys + 3 * buckets + 1 + slots).div_ceil(2)
}

/// What it took to find the pilots of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Solved {
    /// The partition's seed.
    pub(super) seed: u16,
    /// Buckets that were taken out again.
    pub(super) evictions: u64,
}

/// The state of a search, all of it in the caller's scratch.
pub(super) struct Solver<'s> {
    partition_bits: u8,
    buckets: u32,
    slots: u32,
    /// Spread hashes, by bucket.
    spreads: &'s mut [u64],
    /// Which entry each of them is.
    entries: &'s mut [u32],
    /// Where each bucket begins in `spreads`; and the end.
    starts: &'s mut [u32],
    /// Buckets in the order in which they are placed.
    order: &'s mut [u32],
    /// Buckets that were taken out, the last one first.
    evicted: &'s mut [u32],
    /// The bucket that has a slot, where it is taken.
    owners: &'s mut [u32],
    /// One bit for each slot.
    taken: &'s mut [u64],
    /// Buckets that were taken out so far, with all seeds.
    evictions: u64,
}

/// A search with one seed that ended without pilots.
struct Unsolved;

impl<'s> Solver<'s> {
    /// A solver for so many keys, none of one hash. `None` if the scratch is too short.
    pub(super) fn new(
        scratch: &'s mut [u64],
        partition_bits: u8,
        keys: usize,
        buckets: u32,
        slots: u32,
    ) -> Option<Self> {
        let (spreads, rest) = scratch.split_at_mut_checked(keys)?;
        let (taken, rest) = rest.split_at_mut_checked((slots as usize).div_ceil(64))?;
        let rest: &mut [u32] = bytemuck::cast_slice_mut(rest);
        let (entries, rest) = rest.split_at_mut_checked(keys)?;
        let (starts, rest) = rest.split_at_mut_checked(buckets as usize + 1)?;
        let (order, rest) = rest.split_at_mut_checked(buckets as usize)?;
        let (evicted, rest) = rest.split_at_mut_checked(buckets as usize)?;
        let (owners, _) = rest.split_at_mut_checked(slots as usize)?;
        Some(Self {
            partition_bits,
            buckets,
            slots,
            spreads,
            entries,
            starts,
            order,
            evicted,
            owners,
            taken,
            evictions: 0,
        })
    }

    /// Finds pilots for the hashes, which differ; each comes with the number of its entry.
    ///
    /// # Errors
    /// [`Error::Unsolvable`] after so many seeds: not a matter of chance, but of keys that were made to
    /// meet in few buckets whatever the seed, or of more keys than slots.
    pub(super) fn solve(
        &mut self,
        hashes: &(impl Iterator<Item = (u32, u64)> + Clone),
        pilots: &mut [u8],
    ) -> Result<Solved> {
        for seed in 0..SEEDS {
            let solved = self.arrange(hashes.clone(), seed);
            if solved.and_then(|()| self.place_all(pilots)).is_ok() {
                return Ok(Solved { seed, evictions: self.evictions });
            }
        }
        Err(Error::Unsolvable { keys: self.spreads.len() as u64, seeds: SEEDS.into() })
    }

    /// Calls `each` with the entry and the slot of each key, bucket by bucket: with seed 0 in the order of
    /// the hashes.
    #[inline(always)]
    pub(super) fn for_each(
        &self,
        pilots: &[u8],
        mut each: impl FnMut(u32, u32) -> Result<()>,
    ) -> Result<()> {
        let mut keys = self.entries.iter().zip(&*self.spreads);
        for (bounds, pilot) in self.starts.windows(2).zip(pilots) {
            for (entry, x) in keys.by_ref().take((bounds[1] - bounds[0]) as usize) {
                each(*entry, slot(*x, *pilot, self.slots))?;
            }
        }
        Ok(())
    }

    /// Whether a slot has a key.
    pub(super) fn is_taken(&self, slot: u32) -> bool {
        self.taken[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    /// The number of slots.
    pub(super) const fn slots(&self) -> u32 {
        self.slots
    }

    /// The entry in each slot; `empty` where there is none.
    pub(super) fn into_slots(self, pilots: &[u8], empty: u32) -> &'s [u32] {
        let mut starts = self.starts.iter().map(|start| *start as usize);
        self.owners.fill(empty);
        let mut from = starts.next().unwrap_or(0);
        for (to, pilot) in starts.zip(pilots) {
            for (entry, x) in self.entries[from..to].iter().zip(&self.spreads[from..to]) {
                self.owners[slot(*x, *pilot, self.slots) as usize] = *entry;
            }
            from = to;
        }
        self.owners
    }

    fn range(&self, b: u32) -> core::ops::Range<usize> {
        self.starts[b as usize] as usize..self.starts[b as usize + 1] as usize
    }

    fn len(&self, b: u32) -> usize {
        self.range(b).len()
    }

    /// Sorts hashes by bucket and buckets by size.
    fn arrange(
        &mut self,
        hashes: impl Iterator<Item = (u32, u64)> + Clone,
        seed: u16,
    ) -> Result<(), Unsolved> {
        let bits = self.partition_bits;
        self.starts.fill(0);
        for (_, hash) in hashes.clone() {
            self.starts[bucket(spread(hash, multiplier(bits, seed)), self.buckets) as usize + 1] +=
                1;
        }
        let mut sizes = [0u32; MAX_BUCKET + 1];
        let mut sum = 0;
        for (next, start) in self.order.iter_mut().zip(&mut self.starts[1..]) {
            let size = core::mem::replace(start, sum + *start);
            *next = sum;
            sum += size;
            *sizes.get_mut(size as usize).ok_or(Unsolved)? += 1;
        }
        // `order` says where the next key of each bucket goes.
        for (entry, hash) in hashes {
            let x = spread(hash, multiplier(bits, seed));
            let at = &mut self.order[bucket(x, self.buckets) as usize];
            self.spreads[*at as usize] = x;
            self.entries[*at as usize] = entry;
            *at += 1;
        }
        let mut begins = 0;
        for size in sizes.iter_mut().rev() {
            begins += core::mem::replace(size, begins);
        }
        for b in 0..self.buckets {
            let at = &mut sizes[self.len(b)];
            self.order[*at as usize] = b;
            *at += 1;
        }
        Ok(())
    }

    /// Places all buckets in their order.
    fn place_all(&mut self, pilots: &mut [u8]) -> Result<(), Unsolved> {
        self.taken.fill(0);
        pilots.fill(0);
        let mut recent = [u32::MAX; RECENT];
        let window = RECENT.min(self.order.len() / 4).max(1);
        let mut turn = 0usize;
        let keys = self.spreads.len() as u64;
        let mut left =
            most_evictions(keys).min(most_evictions_of_all(keys).saturating_sub(self.evictions));
        for i in 0..self.order.len() {
            let mut b = self.order[i];
            let mut waiting = 0;
            loop {
                let keys = &self.spreads[self.range(b)];
                if keys.is_empty() {
                    break;
                }
                let pilot = match find_free(keys, self.slots, self.taken) {
                    Some(pilot) => pilot,
                    None => {
                        turn += 1;
                        recent[turn % window] = b;
                        let pilot = self.cheapest(b, turn, &recent).ok_or(Unsolved)?;
                        for key in self.range(b) {
                            let at = slot(self.spreads[key], pilot, self.slots);
                            if !self.is_taken(at) {
                                continue;
                            }
                            let owner = self.owners[at as usize];
                            left = left.checked_sub(1).ok_or(Unsolved)?;
                            self.evictions += 1;
                            self.take_out(owner, pilots[owner as usize]);
                            self.evicted[waiting] = owner;
                            waiting += 1;
                        }
                        pilot
                    }
                };
                pilots[b as usize] = pilot;
                for key in self.range(b) {
                    let at = slot(self.spreads[key], pilot, self.slots);
                    self.taken[at as usize / 64] |= 1 << (at % 64);
                    self.owners[at as usize] = b;
                }
                if waiting == 0 {
                    break;
                }
                waiting -= 1;
                b = self.evicted[waiting];
            }
        }
        Ok(())
    }

    fn take_out(&mut self, b: u32, pilot: u8) {
        for key in self.range(b) {
            let at = slot(self.spreads[key], pilot, self.slots);
            self.taken[at as usize / 64] &= !(1 << (at % 64));
        }
    }

    /// The pilot that takes out the least: the sum of the squares of the sizes of the buckets in the
    /// way. `None` if every pilot gives two keys of the bucket one slot, or meets a recent bucket.
    #[inline(never)]
    fn cheapest(&self, b: u32, turn: usize, recent: &[u32; RECENT]) -> Option<u8> {
        let keys = &self.spreads[self.range(b)];
        let mut best: Option<(usize, u8)> = None;
        // Not the same pilot first each time: see `RECENT`.
        let first = (turn as u8).wrapping_mul(0x9d);
        'pilots: for i in 0..=255u8 {
            let pilot = first.wrapping_add(i);
            let limit = best.map_or(usize::MAX, |(cost, _)| cost);
            let mut cost = 0;
            for (k, x) in keys.iter().enumerate() {
                let at = slot(*x, pilot, self.slots);
                if self.is_taken(at) {
                    let owner = self.owners[at as usize];
                    if recent.contains(&owner) {
                        continue 'pilots;
                    }
                    cost += self.len(owner).pow(2);
                    if cost >= limit {
                        continue 'pilots;
                    }
                }
                if keys[..k].iter().any(|y| slot(*y, pilot, self.slots) == at) {
                    continue 'pilots;
                }
            }
            best = Some((cost, pilot));
            // Buckets come in falling size, so none that is smaller is likely in the way.
            if cost <= keys.len().pow(2) {
                break;
            }
        }
        best.map(|(_, pilot)| pilot)
    }
}

/// The first pilot that gives all keys free slots, and different ones.
#[inline(always)]
fn find_free(keys: &[u64], slots: u32, taken: &[u64]) -> Option<u8> {
    /// With the number of keys known, the search is a loop without branches for each pilot.
    #[inline(always)]
    fn exactly<const N: usize>(keys: &[u64], slots: u32, taken: &[u64]) -> Option<u8> {
        let keys: &[u64; N] = keys.first_chunk()?;
        // The pilots' hashes by addition, which is cheaper than a multiplication for each.
        let mut hash = 0;
        for pilot in 0..=255u8 {
            let at = keys.map(|x| slot_of(x, hash, slots));
            let busy = at.iter().fold(0, |busy, at| {
                busy | taken.get(*at as usize / 64).map_or(1, |word| word >> (at % 64))
            });
            if busy & 1 == 0 && differ(&at) {
                return Some(pilot);
            }
            hash = hash.wrapping_add(PILOT);
        }
        None
    }
    match keys.len() {
        1 => exactly::<1>(keys, slots, taken),
        2 => exactly::<2>(keys, slots, taken),
        3 => exactly::<3>(keys, slots, taken),
        4 => exactly::<4>(keys, slots, taken),
        5 => exactly::<5>(keys, slots, taken),
        6 => exactly::<6>(keys, slots, taken),
        7 => exactly::<7>(keys, slots, taken),
        _ => (0..=255u8).find(|pilot| {
            let mut at = [0; MAX_BUCKET];
            let at = &mut at[..keys.len().min(MAX_BUCKET)];
            for (at, x) in at.iter_mut().zip(keys) {
                *at = slot(*x, *pilot, slots);
                if taken[*at as usize / 64] >> (*at % 64) & 1 == 1 {
                    return false;
                }
            }
            differ(at)
        }),
    }
}

#[inline(always)]
fn differ(at: &[u32]) -> bool {
    at.iter().enumerate().all(|(i, a)| at[..i].iter().all(|b| a != b))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn hashes(n: usize, seed: u64) -> Vec<u64> {
        let mut state = seed;
        (0..n)
            .map(|_| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                x ^ (x >> 31)
            })
            .collect()
    }

    /// Solves and checks that every key has a slot of its own.
    fn solve(hashes: &[u64], buckets: u32, slots: u32) -> Result<Solved> {
        let n = hashes.len();
        let mut scratch =
            vec![0x5555_5555_5555_5555; scratch_len(n, buckets as usize, slots as usize)];
        let mut pilots = vec![0x55; buckets as usize];
        let mut solver = Solver::new(&mut scratch, 0, n, buckets, slots).expect("enough scratch");
        let keys = hashes.iter().enumerate().map(|(i, hash)| (i as u32, *hash));
        let solved = solver.solve(&keys, &mut pilots)?;
        let mut seen = vec![false; slots as usize];
        let mut entries = vec![false; n];
        let each = |entry: u32, at: u32| {
            let x = spread(hashes[entry as usize], multiplier(0, solved.seed));
            assert_eq!(slot(x, pilots[bucket(x, buckets) as usize], slots), at);
            assert!(!core::mem::replace(&mut seen[at as usize], true), "two keys in slot {at}");
            assert!(!core::mem::replace(&mut entries[entry as usize], true));
            Ok(())
        };
        solver.for_each(&pilots, each)?;
        assert!(entries.iter().all(|entry| *entry));
        assert!((0..slots).all(|at| solver.is_taken(at) == seen[at as usize]));
        Ok(solved)
    }

    #[test]
    fn every_small_number_of_keys_is_placed() {
        for n in (1..300u32).chain([1000, 3000]) {
            for seed in 0..5 {
                // As many buckets and slots as the default shape has.
                let (buckets, slots) = ((n * 2).div_ceil(5), (n * 1000).div_ceil(995));
                let solved = solve(&hashes(n as usize, seed), buckets, slots);
                assert!(solved.is_ok(), "{n} keys, {seed}: {solved:?}");
            }
        }
    }

    #[test]
    fn a_full_table_is_placed() {
        // Load 1: the hardest there is. Small ones fail sometimes, with every seed.
        let n = 5000;
        solve(&hashes(n, 1), n as u32 / 2, n as u32).expect("a perfect hash function without gaps");
    }

    #[test]
    fn keys_that_meet_in_one_bucket_take_another_seed() {
        // All share their upper 32 bits, and so their bucket.
        let crafted: Vec<u64> =
            hashes(10_000, 7).iter().map(|x| x >> 32 | 0xabcd_0123 << 32).collect();
        let solved = solve(&crafted, 3334, 10_102).expect("another seed spreads them");
        assert!(solved.seed > 0);
    }

    #[test]
    fn what_cannot_be_placed_is_an_error() {
        assert_eq!(
            solve(&hashes(100, 1), 34, 99),
            Err(Error::Unsolvable { keys: 100, seeds: SEEDS.into() })
        );
        assert_eq!(solve(&[5, 5], 1, 3), Err(Error::Unsolvable { keys: 2, seeds: SEEDS.into() }));
    }

    #[test]
    fn hard_keys_are_given_up_in_bounded_work() {
        // Clusters of 12 hashes that meet in a bucket, few enough to be tried: half of them with seed 0, half
        // with every other one, since the step from one to the next undoes the multiplier. (In a smaller
        // partition recent buckets would end the search before its limit.)
        let n = 2400usize;
        let inverse = (0..6)
            .fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(spread(x, multiplier(0, 1)))));
        let crafted: Vec<u64> = hashes(n / 12, 9)
            .into_iter()
            .enumerate()
            .flat_map(|(i, first)| {
                (0..12u64).map(move |k| match i % 2 {
                    0 => first ^ (k * 0x0101_0101),
                    _ => first.wrapping_add((k * 0x0001_0001).wrapping_mul(inverse)),
                })
            })
            .collect();
        let (buckets, slots) = ((n as u32 * 2).div_ceil(5), (n as u32 * 1000).div_ceil(995));
        let mut scratch = vec![0; scratch_len(n, buckets as usize, slots as usize)];
        let mut pilots = vec![0; buckets as usize];
        let mut solver = Solver::new(&mut scratch, 0, n, buckets, slots).expect("enough scratch");
        let keys = crafted.iter().enumerate().map(|(i, hash)| (i as u32, *hash));
        let unsolvable = Error::Unsolvable { keys: n as u64, seeds: SEEDS.into() };
        assert_eq!(solver.solve(&keys, &mut pilots), Err(unsolvable));
        let (one, all) = (most_evictions(n as u64), most_evictions_of_all(n as u64));
        assert!((one + 1..=all).contains(&solver.evictions), "{} evictions", solver.evictions);
        // Another hash of the same keys is as good as any.
        let other: Vec<u64> = crafted.iter().map(|x| hashes(1, *x)[0]).collect();
        assert!(solve(&other, buckets, slots).is_ok());
    }

    #[test]
    fn too_little_scratch_is_noticed() {
        for (keys, buckets, slots) in [(10, 4, 11), (1, 1, 2), (131_072, 43_691, 132_396)] {
            let need = scratch_len(keys, buckets as usize, slots as usize);
            let mut scratch = vec![0; need];
            assert!(Solver::new(&mut scratch, 0, keys, buckets, slots).is_some());
            assert!(Solver::new(&mut scratch[..need - 1], 0, keys, buckets, slots).is_none());
        }
    }
}
