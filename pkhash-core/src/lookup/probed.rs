//! Tables that are probed: inline and term-order.

use super::keys::{Answer, Keys};
use super::{admitted, filter_word, past_the_body, value_in};
use crate::error::Result;
use crate::format::bytes_at_u64;
use crate::format::directory::Directory;
use crate::hash;
use crate::kernel::{GROUP_MAX, Kernel, Matches, prefetch_all};
use crate::layout::Probed;
use crate::table::Table;
use crate::value::Value;

/// Keys that go through a stage of a batch together.
const BLOCK: usize = 32;

/// Blocks between a stage and the next one.
///
/// BLOCK × LAG keys, each with a read in flight, lie between naming bytes and looking at them.
/// Measured on Zen 4, AVX2, 10 M keys, inline, ns for a key of a batch of 4,096 (hits without filter /
/// 90 % misses with filter; the limit probe 10.3): 8 × 4: 31.2 / 20.1; 16 × 2: 30.5 / 17.1; 16 × 4:
/// 31.0 / 17.9; 32 × 1: 29.6 / 16.0; 32 × 2: 30.5 / 17.2. In an earlier form, whose stages did not
/// overlap (32 keys through all stages, then the next 32): 33.0 / 30.4. (Separate processes, run in turn.)
///
/// Tried and lost, same machine and bench: keys that need one more line or had a false match put into a
/// queue after a prefetch, instead of being finished at once (hits 33.3, misses without filter no
/// better); the record's last line prefetched only if it is another one (32.5), or not at all (43.3);
/// prefetch for non-temporal use (31.0); the prefetches of a stage in a loop of their own behind it (half
/// as slow again: they queue up). Smaller blocks, hits to doc IDs: 32 × 1: 32.5; 4 × 8: 35.6; 1 × 32:
/// 39.9.
const LAG: usize = 1;

/// Reads that a batch of many keys keeps in flight for each stage.
pub const CHUNK: usize = BLOCK * LAG;

/// Blocks that are under way: each of the stages that read is [`LAG`] blocks behind the one before.
pub(super) const fn ring(filter: bool, slot_words: bool) -> usize {
    (2 + filter as usize + slot_words as usize) * LAG + 1
}

/// Where a hash points in its partition of a table that is probed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbePlace {
    /// Offsets of the partition's sections.
    control_at: u64,
    slot_words_at: u64,
    pub(super) records_at: u64,
    home: u32,
    /// The slot before which a probe ends, even in a table without empty slots.
    end: u32,
}

impl ProbePlace {
    /// `taken`: whether the layout takes the key at all; if not, the probe ends where it begins.
    #[inline(always)]
    pub(super) fn of<R: Probed>(
        directory: &Directory<'_>,
        bits: u8,
        hash: u64,
        taken: bool,
    ) -> Self {
        let entry = directory.probed(hash::partition(hash, bits));
        let home = hash::home(hash, bits, entry.homes);
        let limit = if taken { entry.probe_limit } else { 0 };
        Self {
            control_at: entry.control_at,
            slot_words_at: if R::SLOT_WORDS { entry.slot_words_at() } else { 0 },
            records_at: entry.records_at,
            home,
            end: home.saturating_add(limit).min(entry.slots),
        }
    }

    /// Where the home slot's control byte lies.
    #[inline(always)]
    const fn control_byte_at(&self) -> u64 {
        self.control_at.wrapping_add(self.home as u64)
    }

    #[inline(always)]
    pub(super) const fn slot_word_at(&self, slot: u32) -> u64 {
        self.slot_words_at.wrapping_add(8 * slot as u64)
    }

    /// Where the record of a slot lies. `word` is the slot's word, where there are words. `None`: it
    /// cannot be that of this hash.
    #[inline(always)]
    pub(super) fn record_at<R: Probed>(
        &self,
        records: R,
        hash: u64,
        slot: u32,
        word: u64,
    ) -> Option<u64> {
        let at = records.record_at(hash, slot, slot.wrapping_sub(self.home), word)?;
        Some(self.records_at.wrapping_add(at))
    }
}

/// One key among the control bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) hash: u64,
    pub(super) place: ProbePlace,
    /// First slot of the group whose hits are in `hits`.
    base: u32,
    /// The first slot that has not been looked at.
    next: u32,
    /// Slots of the group whose control byte matched and that have not been looked at yet.
    pub(super) hits: u64,
    /// No further group needs to be looked at.
    pub(super) last: bool,
}

impl Probe {
    #[inline(always)]
    pub(super) const fn new(hash: u64, place: ProbePlace) -> Self {
        let home = place.home;
        Self { hash, place, base: home, next: home, hits: 0, last: home >= place.end }
    }

    /// Where the group of `width` slots (a power of two) begins that holds the next slot. Groups lie
    /// at multiples of their width, so that none straddles a cache line: groups that begin at the
    /// home slot cost a second line for every other key (a hit of a batch with AVX2, Zen 4, 10 M keys:
    /// 69 ns, and 46 ns with groups and buffer aligned; two runs of the report).
    #[inline(always)]
    pub(super) const fn group_at(&self, width: u32) -> u64 {
        self.place.control_at.wrapping_add((self.next & !(width - 1)) as u64)
    }

    /// Notes what was seen of the group at [`Self::group_at`]. Afterwards `hits` holds its candidates.
    #[inline(always)]
    pub(super) fn note(&mut self, width: u32, found: Matches) {
        let begins = self.next & !(width - 1);
        // Only slots from the next one on, before the first empty one, and before the end of the
        // probe: so kernels of every width see the same candidates, in a damaged table too.
        let from_next = u64::MAX << (self.next - begins);
        let empty = found.empty & from_next;
        let before_empty = (empty & empty.wrapping_neg()).wrapping_sub(1);
        let left = self.place.end.wrapping_sub(begins);
        let before_end = if left < 64 { (1 << left) - 1 } else { u64::MAX };
        self.hits = found.hits & from_next & before_empty & before_end;
        self.base = begins;
        self.next = begins.saturating_add(width);
        self.last = empty != 0 || self.next >= self.place.end;
    }

    /// Compares the group at [`Self::group_at`].
    #[inline(always)]
    fn scan<K: Kernel>(&mut self, kernel: K, group: &[u8; GROUP_MAX]) {
        const { assert!(K::WIDTH.is_power_of_two() && K::WIDTH as usize <= GROUP_MAX) };
        self.note(K::WIDTH, kernel.match_group(group, hash::control(self.hash)));
    }

    /// The slot to look at, if `hits` is not 0.
    #[inline(always)]
    pub(super) const fn candidate(&self) -> u32 {
        self.base.wrapping_add(self.hits.trailing_zeros())
    }

    /// Gives up the candidate.
    #[inline(always)]
    pub(super) const fn reject(&mut self) {
        self.hits &= self.hits.wrapping_sub(1);
    }
}

impl<'a> Table<'a> {
    #[inline(always)]
    fn group<K: Kernel>(&self, probe: &Probe) -> Result<&'a [u8; GROUP_MAX]> {
        let at = probe.group_at(K::WIDTH);
        bytes_at_u64(self.data, at)
            .ok_or_else(|| past_the_body("control bytes past the end", at, self.data.len() as u64))
    }

    /// The slot word of a slot; 0 where there are none.
    #[inline(always)]
    fn slot_word<R: Probed>(&self, place: &ProbePlace, slot: u32) -> Result<u64> {
        if !R::SLOT_WORDS {
            return Ok(0);
        }
        let at = place.slot_word_at(slot);
        match bytes_at_u64(self.data, at) {
            Some(word) => Ok(u64::from_le_bytes(*word)),
            None => Err(past_the_body("slot word past the end", at, self.data.len() as u64)),
        }
    }

    /// Runs a probe to its end, one read after the other.
    #[inline(always)]
    fn finish<K: Kernel, R: Probed>(
        &self,
        kernel: K,
        records: R,
        key: &[u8],
        mut probe: Probe,
    ) -> Result<Option<Value<'a>>> {
        loop {
            while probe.hits != 0 {
                let slot = probe.candidate();
                let word = self.slot_word::<R>(&probe.place, slot)?;
                if let Some(at) = probe.place.record_at(records, probe.hash, slot, word)
                    && let Some(value) = value_in(self.body, records, at, key)?
                {
                    return Ok(Some(value));
                }
                probe.reject();
            }
            if probe.last {
                return Ok(None);
            }
            probe.scan(kernel, self.group::<K>(&probe)?);
        }
    }

    #[inline(always)]
    pub(super) fn get_probed<K: Kernel, R: Probed>(
        &self,
        kernel: K,
        records: R,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        if !records.takes(key) || !self.admits(hash) {
            return Ok(None);
        }
        let place = ProbePlace::of::<R>(&self.directory, self.footer.partition_bits, hash, true);
        self.finish(kernel, records, key, Probe::new(hash, place))
    }

    /// Runs blocks of keys through the stages, each stage [`LAG`] blocks behind the one before: what
    /// a stage has named arrives while the other stages work on other blocks.
    #[inline(always)]
    pub(super) fn batch_probed<
        'q,
        K: Kernel,
        R: Probed,
        Q: Keys,
        A: Answer<'a>,
        const FILTER: bool,
        const RING: usize,
    >(
        &self,
        kernel: K,
        records: R,
        keys: &'q Q,
        out: &mut [A],
    ) -> Result<usize> {
        let stages = 2 + usize::from(FILTER) + usize::from(R::SLOT_WORDS);
        const { assert!(RING == ring(FILTER, R::SLOT_WORDS)) };
        let mut ring: [Block<'q>; RING] = core::array::from_fn(|_| Block::new());
        let blocks = out.len().div_ceil(BLOCK);
        let mut found = 0;
        for step in 0..blocks + stages * LAG {
            // The block that a stage works on now, if it has begun and is not done yet.
            let at = |stage: usize| step.checked_sub(stage * LAG).filter(|block| *block < blocks);
            let mut stage = 0;
            if let Some(block) = at(stage) {
                let first = block * BLOCK;
                let n = (out.len() - first).min(BLOCK);
                self.hash::<K, R, Q, FILTER>(
                    kernel,
                    records,
                    keys,
                    first,
                    n,
                    &mut ring[block % RING],
                );
            }
            if FILTER {
                stage += 1;
                if let Some(block) = at(stage) {
                    self.filter(kernel, records, &mut ring[block % RING]);
                }
            }
            stage += 1;
            if let Some(block) = at(stage) {
                self.control(kernel, records, &mut ring[block % RING])?;
            }
            if R::SLOT_WORDS {
                stage += 1;
                if let Some(block) = at(stage) {
                    self.slot_words(kernel, records, &mut ring[block % RING])?;
                }
            }
            stage += 1;
            if let Some(block) = at(stage)
                && let Some(out) = out.get_mut(block * BLOCK..)
            {
                found += self.records(kernel, records, &ring[block % RING], out)?;
            }
        }
        Ok(found)
    }

    // The stages of a batch. Plain loops, no closures: a closure that is not inlined is compiled
    // without the target features of its caller, and then nothing of the kernel is inlined into it
    // either (seen with AVX2: a call for each group). `.ci/symbols` looks for it.

    /// Hash. Name the filter word, or the control bytes.
    #[inline(always)]
    fn hash<'q, K: Kernel, R: Probed, Q: Keys, const FILTER: bool>(
        &self,
        kernel: K,
        records: R,
        keys: &'q Q,
        first: usize,
        n: usize,
        block: &mut Block<'q>,
    ) {
        // Local copies: stores to the block cannot change them, which the compiler does not see.
        let (hasher, bits) = (self.footer.hasher, self.footer.partition_bits);
        let directory = self.directory;
        block.live = Live::all(n.min(BLOCK));
        // Each key is borrowed once: an `AsRef` may answer differently the next time.
        for (i, key) in keys.from(first, n).enumerate().take(BLOCK) {
            // No closure: it would stay outside.
            let hash = match keys.known_hash(first + i) {
                Some(hash) => hash,
                None => hasher.hash(key),
            };
            (block.keys[i], block.hashes[i]) = (key, hash);
            if FILTER {
                (block.at[i], block.masks[i]) = filter_word(bits, &directory, hash);
                kernel.prefetch(self.data, block.at[i] as usize);
            } else {
                let place = ProbePlace::of::<R>(&directory, bits, hash, records.takes(key));
                kernel.prefetch(self.data, place.control_byte_at() as usize);
                block.places[i] = place;
            }
        }
    }

    /// Filter. Name the control bytes.
    #[inline(always)]
    fn filter<K: Kernel, R: Probed>(&self, kernel: K, records: R, block: &mut Block<'_>) {
        let (bits, directory) = (self.footer.partition_bits, self.directory);
        // Until now all of the block are live, in order.
        let mut live = Live::default();
        for i in 0..block.live.len.min(BLOCK) {
            live.push(i, admitted(self.data, block.at[i], block.masks[i]));
        }
        block.live = live;
        for k in 0..live.len {
            let i = live.get(k);
            let taken = records.takes(block.keys[i]);
            let place = ProbePlace::of::<R>(&directory, bits, block.hashes[i], taken);
            kernel.prefetch(self.data, place.control_byte_at() as usize);
            block.places[i] = place;
        }
    }

    /// Control bytes: on to the first candidate. Name its slot word or its record.
    #[inline(always)]
    fn control<K: Kernel, R: Probed>(
        &self,
        kernel: K,
        records: R,
        block: &mut Block<'_>,
    ) -> Result<()> {
        let mut candidates = Live::default();
        for k in 0..block.live.len {
            let i = block.live.get(k);
            let mut probe = Probe::new(block.hashes[i], block.places[i]);
            while probe.hits == 0 && !probe.last {
                probe.scan(kernel, self.group::<K>(&probe)?);
            }
            if probe.hits == 0 {
                continue;
            }
            candidates.push(i, true);
            let slot = probe.candidate();
            if R::SLOT_WORDS {
                block.slots[i] = slot;
                kernel.prefetch(self.data, probe.place.slot_word_at(slot) as usize);
            } else if let Some(record) = probe.place.record_at(records, probe.hash, slot, 0) {
                block.at[i] = record;
                prefetch_all(kernel, self.data, record, records.record_len(block.keys[i]));
            }
        }
        block.live = candidates;
        Ok(())
    }

    /// Slot words. Name the record. (`u64::MAX`: the word cannot be this key's.)
    #[inline(always)]
    fn slot_words<K: Kernel, R: Probed>(
        &self,
        kernel: K,
        records: R,
        block: &mut Block<'_>,
    ) -> Result<()> {
        for k in 0..block.live.len {
            let i = block.live.get(k);
            let (place, slot) = (&block.places[i], block.slots[i]);
            let word = self.slot_word::<R>(place, slot)?;
            block.at[i] = match place.record_at(records, block.hashes[i], slot, word) {
                Some(record) => {
                    prefetch_all(kernel, self.data, record, records.record_len(block.keys[i]));
                    record
                }
                None => u64::MAX,
            };
        }
        Ok(())
    }

    /// Records. A key that is not found here had a false match: about 1 of 100. It begins again, alone.
    #[inline(always)]
    fn records<K: Kernel, R: Probed, A: Answer<'a>>(
        &self,
        kernel: K,
        records: R,
        block: &Block<'_>,
        out: &mut [A],
    ) -> Result<usize> {
        for out in out.iter_mut().take(BLOCK) {
            *out = A::ABSENT;
        }
        let mut found = 0;
        for k in 0..block.live.len {
            let i = block.live.get(k);
            let mut value = None;
            if !R::SLOT_WORDS || block.at[i] != u64::MAX {
                value = value_in(self.body, records, block.at[i], block.keys[i])?;
            }
            if value.is_none() {
                let probe = Probe::new(block.hashes[i], block.places[i]);
                value = self.finish(kernel, records, block.keys[i], probe)?;
            }
            if let (Some(value), Some(out)) = (value, out.get_mut(i)) {
                *out = A::found(value);
                found += 1;
            }
        }
        Ok(found)
    }
}

/// The keys of a block on their way, one array for each part of their state.
struct Block<'q> {
    keys: [&'q [u8]; BLOCK],
    hashes: [u64; BLOCK],
    places: [ProbePlace; BLOCK],
    /// The candidate.
    slots: [u32; BLOCK],
    /// What the next stage reads: the filter word first, the record later.
    at: [u64; BLOCK],
    masks: [u64; BLOCK],
    live: Live,
}

impl Block<'_> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            keys: [&[]; BLOCK],
            hashes: [0; BLOCK],
            places: [ProbePlace::default(); BLOCK],
            slots: [0; BLOCK],
            at: [0; BLOCK],
            masks: [0; BLOCK],
            live: Live::default(),
        }
    }
}

/// The keys of a block that are still under way, in order.
#[derive(Clone, Copy, Default)]
struct Live {
    list: [u8; BLOCK],
    len: usize,
}

impl Live {
    /// The first `n`.
    #[inline(always)]
    fn all(n: usize) -> Self {
        Self { list: core::array::from_fn(|i| i as u8), len: n }
    }

    /// Written without a branch: whether a key is present is what a branch cannot predict.
    #[inline(always)]
    fn push(&mut self, i: usize, stays: bool) {
        self.list[self.len % BLOCK] = i as u8;
        self.len += usize::from(stays);
    }

    #[inline(always)]
    const fn get(&self, k: usize) -> usize {
        self.list[k % BLOCK] as usize % BLOCK
    }
}
