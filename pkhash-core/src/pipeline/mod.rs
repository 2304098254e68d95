//! The staged lookup: *name the bytes that the next stage needs, then look at them*.
//!
//! ```text
//! hash → filter word → control bytes → slot word → record       inline, term-order
//!        (may be absent)               (term-order)
//! hash → filter word → pilot → offset line → record             perfect
//!        (may be absent)       (if lengths differ)
//! ```
//!
//! The stages are written once, as methods of a probe that does no I/O. Three drivers run them:
//!
//! * [`Table::get`](crate::Table::get) runs one key through all stages;
//! * [`Table::get_batch`](crate::Table::get_batch) runs blocks of keys through the stages, each stage
//!   some blocks behind the one before, so that many reads are in flight, and names bytes by a
//!   prefetch;
//! * [`Lookup`] hands the names to its caller, who reads them from wherever the table lies: a device,
//!   a socket, an object store.

mod asked;
mod lookup;
mod perfect;

pub use asked::get_asked_with;
pub use lookup::{Lookup, Stage, Want};

use crate::error::{Error, Result};
use crate::filter;
use crate::format::directory::Directory;
use crate::format::footer::Footer;
use crate::format::{ALIGN, bytes_at_u64};
use crate::hash::{self, Hasher};
use crate::kernel::{GROUP_MAX, Kernel, Matches};
use crate::layout::perfect::Spans;
use crate::layout::{Inline, Layout, Probed, Records, TermOrder};
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

/// What a batch answers for each key.
pub(crate) trait Answer<'a>: Copy {
    const ABSENT: Self;

    fn found(value: Value<'a>) -> Self;
}

impl<'a> Answer<'a> for Option<Value<'a>> {
    const ABSENT: Self = None;

    #[inline(always)]
    fn found(value: Value<'a>) -> Self {
        Some(value)
    }
}

/// The doc ID, which is read while its record is in the first-level cache.
impl Answer<'_> for Option<u32> {
    const ABSENT: Self = None;

    #[inline(always)]
    fn found(value: Value<'_>) -> Self {
        value.doc_id()
    }
}

/// The keys of a batch. They may be asked for more than once; an `AsRef` that answers differently each
/// time gets wrong answers, and no worse.
pub(crate) trait Keys {
    fn len(&self) -> usize;

    /// At most `n` keys from the `first` on.
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]>;

    /// The hash of `key`, which is key number `i`.
    #[inline(always)]
    fn hash(&self, hasher: Hasher, i: usize, key: &[u8]) -> u64 {
        let _ = i;
        hasher.hash(key)
    }
}

impl<B: AsRef<[u8]>> Keys for &[B] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[B]>::len(self)
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        <[B]>::get(self, first..).unwrap_or_default().iter().take(n).map(AsRef::as_ref)
    }
}

/// Keys whose hashes are known: as many hashes as keys.
#[derive(Clone, Copy)]
pub(crate) struct HashedKeys<'k, B> {
    pub(crate) keys: &'k [B],
    pub(crate) hashes: &'k [u64],
}

impl<B: AsRef<[u8]>> Keys for HashedKeys<'_, B> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.keys.len()
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        self.keys.get(first..).unwrap_or_default().iter().take(n).map(AsRef::as_ref)
    }

    #[inline(always)]
    fn hash(&self, _: Hasher, i: usize, _: &[u8]) -> u64 {
        self.hashes.get(i).copied().unwrap_or_default()
    }
}

/// Keys of one length, one behind the other in one buffer.
///
/// ```
/// # use pkhash_core::FixedKeys;
/// let keys = FixedKeys::new(b"B000000001B000000002", 10)?;
/// assert_eq!(keys.len(), 2);
/// # Ok::<(), pkhash_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FixedKeys<'k> {
    bytes: &'k [u8],
    width: usize,
}

impl<'k> FixedKeys<'k> {
    /// The keys of `width` bytes that `bytes` holds.
    ///
    /// # Errors
    /// [`Error::KeyLength`] if `width` is 0 or does not divide the length of `bytes`.
    pub const fn new(bytes: &'k [u8], width: usize) -> Result<Self> {
        if width == 0 || !bytes.len().is_multiple_of(width) {
            let found = if width == 0 { 0 } else { bytes.len() % width };
            return Err(Error::KeyLength { expected: width as u64, found: found as u64 });
        }
        Ok(Self { bytes, width })
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / self.width
    }

    /// Whether there are no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Keys for FixedKeys<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        FixedKeys::len(self)
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        // `first` is at most the number of keys: no overflow.
        let bytes = self.bytes.get(first * self.width..).unwrap_or_default();
        bytes.chunks_exact(self.width).take(n)
    }
}

/// Where a hash points in its partition of a table that is probed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Offsets of the partition's sections.
    pub(crate) control_at: u64,
    pub(crate) slot_words_at: u64,
    pub(crate) records_at: u64,
    pub(crate) home: u32,
    /// The slot before which a probe ends, even in a table without empty slots.
    end: u32,
}

impl Place {
    /// `taken`: whether the layout takes the key at all; if not, the probe ends where it begins.
    #[inline(always)]
    fn of<R: Probed>(footer: &Footer, directory: &Directory<'_>, hash: u64, taken: bool) -> Self {
        let number = hash::partition(hash, footer.partition_bits);
        let partition = directory.hot(number, R::LAYOUT);
        let offsets = partition.offsets(R::LAYOUT, false);
        let home = hash::home(hash, footer.partition_bits, partition.homes);
        let limit = if taken { partition.probe_limit } else { 0 };
        Self {
            control_at: offsets.index,
            slot_words_at: offsets.pointers,
            records_at: offsets.records,
            home,
            end: home.saturating_add(limit).min(partition.slots),
        }
    }

    /// Where the home slot's control byte lies.
    #[inline(always)]
    const fn control_byte_at(&self) -> u64 {
        self.control_at.wrapping_add(self.home as u64)
    }

    #[inline(always)]
    const fn slot_word_at(&self, slot: u32) -> u64 {
        self.slot_words_at.wrapping_add(8 * slot as u64)
    }
}

/// One key among the control bytes.
#[derive(Clone, Copy, Debug)]
struct Probe {
    hash: u64,
    place: Place,
    /// First slot of the group whose hits are in `hits`.
    base: u32,
    /// The first slot that has not been looked at.
    next: u32,
    /// Slots of the group whose control byte matched and that have not been looked at yet.
    hits: u64,
    /// No further group needs to be looked at.
    last: bool,
}

impl Probe {
    #[inline(always)]
    const fn new(hash: u64, place: Place) -> Self {
        let home = place.home;
        Self { hash, place, base: home, next: home, hits: 0, last: home >= place.end }
    }

    /// Where the group of `width` slots (a power of two) begins that holds the next slot. Groups lie
    /// at multiples of their width, so that none straddles a cache line: groups that begin at the
    /// home slot cost a second line for every other key (a hit of a batch with AVX2, Zen 4, 10 M keys:
    /// 69 ns, and 46 ns with groups and buffer aligned; two runs of the report).
    #[inline(always)]
    const fn group_at(&self, width: u32) -> u64 {
        self.place.control_at.wrapping_add((self.next & !(width - 1)) as u64)
    }

    /// Notes what was seen of the group at [`Self::group_at`]. Afterwards `hits` holds its candidates.
    #[inline(always)]
    fn note(&mut self, width: u32, found: Matches) {
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
    const fn candidate(&self) -> u32 {
        self.base.wrapping_add(self.hits.trailing_zeros())
    }

    /// Gives up the candidate.
    #[inline(always)]
    const fn reject(&mut self) {
        self.hits &= self.hits.wrapping_sub(1);
    }
}

/// Where the filter word of a hash lies, and its bits.
#[inline(always)]
fn filter_word(partition_bits: u8, directory: &Directory<'_>, hash: u64) -> (u64, u64) {
    // Offset and filter are the same in all layouts.
    let partition = directory.hot(hash::partition(hash, partition_bits), Layout::Inline);
    let position = filter::position(hash, partition.filter_words);
    // The filter is a partition's first section.
    (partition.offset.wrapping_add(8 * u64::from(position.word)), position.mask)
}

/// Whether the filter word at `word_at` admits the hash.
#[inline(always)]
fn admitted(data: &[u8], word_at: u64, mask: u64) -> bool {
    bytes_at_u64(data, word_at).is_none_or(|word| u64::from_le_bytes(*word) & mask == mask)
}

/// The error of a read that the directory, as `open` checked it, does not allow to fail.
#[cold]
fn past_the_body(what: &'static str, at: u64, len: u64) -> Error {
    Error::Corrupt { what, offset: at, expected: len, found: at }
}

/// The bytes of a table's body from a record on, to the end of the body.
#[inline(always)]
fn record_from(body: &[u8], at: u64) -> Result<&[u8]> {
    match usize::try_from(at).ok().and_then(|at| body.get(at..)) {
        Some(record) => Ok(record),
        None => Err(past_the_body("record past the end of the body", at, body.len() as u64)),
    }
}

/// The value of the record at `at`, if it is this key's record.
#[inline(always)]
fn value_in<'a, R: Records>(
    body: &'a [u8],
    records: R,
    at: u64,
    key: &[u8],
) -> Result<Option<Value<'a>>> {
    let record = record_from(body, at)?;
    // A record that is cut short by the end of the body is shorter than this key's would be.
    Ok(record
        .get(..records.record_len(key))
        .and_then(|record| records.value(record, key))
        .map(Value::new))
}

/// The in-memory drivers.
impl<'a> Table<'a> {
    #[inline(always)]
    fn group<K: Kernel>(&self, probe: &Probe) -> Result<&'a [u8; GROUP_MAX]> {
        let at = probe.group_at(K::WIDTH);
        bytes_at_u64(self.data, at)
            .ok_or_else(|| past_the_body("control bytes past the end", at, self.data.len() as u64))
    }

    /// The slot word of a slot; 0 where there are none.
    #[inline(always)]
    fn slot_word<R: Probed>(&self, place: &Place, slot: u32) -> Result<u64> {
        if !R::SLOT_WORDS {
            return Ok(0);
        }
        let at = place.slot_word_at(slot);
        match bytes_at_u64(self.data, at) {
            Some(word) => Ok(u64::from_le_bytes(*word)),
            None => Err(past_the_body("slot word past the end", at, self.data.len() as u64)),
        }
    }

    /// The bytes from `at` to the end of the body.
    #[inline(always)]
    pub(crate) fn record(&self, at: u64) -> Result<&'a [u8]> {
        record_from(self.body, at)
    }

    /// Whether the filter of its partition admits a hash. True without a filter.
    #[inline(always)]
    pub(crate) fn admits(&self, hash: u64) -> bool {
        self.footer.filter_bits == 0 || {
            let (word_at, mask) = filter_word(self.footer.partition_bits, &self.directory, hash);
            admitted(self.data, word_at, mask)
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
                if let Some(at) = records.record_at(&probe.place, probe.hash, slot, word)
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
    fn get_probed<K: Kernel, R: Probed>(
        &self,
        kernel: K,
        records: R,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        if !records.takes(key) || !self.admits(hash) {
            return Ok(None);
        }
        let place = Place::of::<R>(&self.footer, &self.directory, hash, true);
        self.finish(kernel, records, key, Probe::new(hash, place))
    }

    /// Looks up one key whose hash is known.
    #[inline(always)]
    pub(crate) fn get_any<K: Kernel>(
        &self,
        kernel: K,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        match self.footer.layout {
            Layout::Perfect if self.footer.has_offset_lines() => self.get_spans(hash, key),
            Layout::Perfect => self.get_fixed(hash, key),
            Layout::Inline => self.get_probed(kernel, Inline::new(&self.footer), hash, key),
            Layout::TermOrder => self.get_probed(kernel, TermOrder::new(&self.footer), hash, key),
        }
    }

    /// Looks up a batch. Layout and filter are chosen once for all of it; with them, how many stages
    /// read, and so how many blocks are under way: that many times [`LAG`], and one.
    #[inline(always)]
    pub(crate) fn batch_any<K: Kernel, Q: Keys, A: Answer<'a>>(
        &self,
        kernel: K,
        keys: &Q,
        out: &mut [A],
    ) -> Result<usize> {
        if keys.len() != out.len() {
            return Err(Error::BatchLength { expected: keys.len(), found: out.len() });
        }
        let (inline, term_order) = (Inline::new(&self.footer), TermOrder::new(&self.footer));
        match (self.footer.layout, self.footer.filter_bits != 0) {
            (Layout::Inline, false) => {
                self.batch::<K, _, Q, A, false, { 2 * LAG + 1 }>(kernel, inline, keys, out)
            }
            (Layout::Inline, true) => {
                self.batch::<K, _, Q, A, true, { 3 * LAG + 1 }>(kernel, inline, keys, out)
            }
            (Layout::TermOrder, false) => {
                self.batch::<K, _, Q, A, false, { 3 * LAG + 1 }>(kernel, term_order, keys, out)
            }
            (Layout::TermOrder, true) => {
                self.batch::<K, _, Q, A, true, { 4 * LAG + 1 }>(kernel, term_order, keys, out)
            }
            (Layout::Perfect, filter) => {
                let (fixed, spans) = (self.fixed, Spans::new(&self.footer));
                match (self.footer.has_offset_lines(), filter) {
                    (false, false) => self.stream::<K, _, Q, A, false>(kernel, fixed, keys, out),
                    (false, true) => self.stream::<K, _, Q, A, true>(kernel, fixed, keys, out),
                    (true, false) => self.stream::<K, _, Q, A, false>(kernel, spans, keys, out),
                    (true, true) => self.stream::<K, _, Q, A, true>(kernel, spans, keys, out),
                }
            }
        }
    }

    /// Runs blocks of keys through the stages, each stage [`LAG`] blocks behind the one before: what
    /// a stage has named arrives while the other stages work on other blocks.
    #[inline(always)]
    fn batch<
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
        debug_assert_eq!(RING, stages * LAG + 1);
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
        let (footer, directory) = (self.footer, self.directory);
        block.live = Live::all(n.min(BLOCK));
        // Each key is borrowed once: an `AsRef` may answer differently the next time.
        for (i, key) in keys.from(first, n).enumerate().take(BLOCK) {
            let hash = keys.hash(footer.hasher, first + i, key);
            (block.keys[i], block.hashes[i]) = (key, hash);
            if FILTER {
                (block.at[i], block.masks[i]) =
                    filter_word(footer.partition_bits, &directory, hash);
                kernel.prefetch(self.data, block.at[i] as usize);
            } else {
                let place = Place::of::<R>(&footer, &directory, hash, records.takes(key));
                kernel.prefetch(self.data, place.control_byte_at() as usize);
                block.places[i] = place;
            }
        }
    }

    /// Filter. Name the control bytes.
    #[inline(always)]
    fn filter<K: Kernel, R: Probed>(&self, kernel: K, records: R, block: &mut Block<'_>) {
        let (footer, directory) = (self.footer, self.directory);
        // Until now all of the block are live, in order.
        let mut live = Live::default();
        for i in 0..block.live.len.min(BLOCK) {
            live.push(i, admitted(self.data, block.at[i], block.masks[i]));
        }
        block.live = live;
        for k in 0..live.len {
            let i = live.get(k);
            let taken = records.takes(block.keys[i]);
            let place = Place::of::<R>(&footer, &directory, block.hashes[i], taken);
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
            } else if let Some(record) = records.record_at(&probe.place, probe.hash, slot, 0) {
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
            block.at[i] = match records.record_at(place, block.hashes[i], slot, word) {
                Some(record) => {
                    prefetch_all(kernel, self.data, record, records.record_len(block.keys[i]));
                    record
                }
                None => u64::MAX,
            };
        }
        Ok(())
    }

    /// Records. Whoever is not found here had a false match: 1 of 100 or so begin again, alone.
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

/// A cache line.
const LINE: usize = ALIGN as usize;

/// Lines of a long record that are prefetched; of what follows the processor's own prefetcher sees the
/// pattern.
const RECORD_LINES: usize = 8;

/// Prefetches a record: its first and its last line, and those between.
#[inline(always)]
pub(crate) fn prefetch_all<K: Kernel>(kernel: K, data: &[u8], at: u64, len: usize) {
    let at = at as usize;
    kernel.prefetch(data, at);
    if len > LINE {
        for line in 1..(len / LINE).min(RECORD_LINES) {
            kernel.prefetch(data, at.wrapping_add(line * LINE));
        }
    }
    kernel.prefetch(data, at.wrapping_add(len).wrapping_sub(1));
}

/// The keys of a block on their way, one array for each part of their state.
struct Block<'q> {
    keys: [&'q [u8]; BLOCK],
    hashes: [u64; BLOCK],
    places: [Place; BLOCK],
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
            places: [Place::default(); BLOCK],
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
