//! The staged lookup: *name the bytes that the next stage needs, then look at them*.
//!
//! ```text
//! hash → filter word → control bytes → slot word → record
//!        (may be absent)               (term-order)
//! ```
//!
//! The stages are written once, as methods of a probe that does no I/O. Three drivers run them:
//!
//! * [`Table::get`](crate::Table::get) runs one key through all stages;
//! * [`Table::get_batch`](crate::Table::get_batch) runs [`CHUNK`] keys through one stage before the
//!   next, so that as many reads are in flight, and names bytes by a prefetch;
//! * [`Lookup`] hands the names to its caller, who reads them from wherever the table lies: a device,
//!   a socket, an object store.

use crate::error::{Error, Result};
use crate::filter;
use crate::format::directory::Directory;
use crate::format::footer::Footer;
use crate::format::{bytes_at, bytes_at_u64};
use crate::hash;
use crate::kernel::{GROUP_MAX, Kernel, Matches, match_line};
use crate::layout::{Inline, Layout, Records, TermOrder};
use crate::value::Value;

/// Keys that go through the stages of a batch together: enough reads to fill the memory system of
/// the machines measured so far, few enough that the probes stay in the first-level cache.
pub const CHUNK: usize = 32;

/// The keys of a batch.
pub(crate) trait Keys {
    fn len(&self) -> usize;

    /// Key `i`, which is below [`len`](Self::len).
    fn key(&self, i: usize) -> &[u8];
}

impl<B: AsRef<[u8]>> Keys for &[B] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[B]>::len(self)
    }

    #[inline(always)]
    fn key(&self, i: usize) -> &[u8] {
        self.get(i).map_or(&[], AsRef::as_ref)
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
    fn key(&self, i: usize) -> &[u8] {
        let from = i * self.width;
        self.bytes.get(from..from + self.width).unwrap_or_default()
    }
}

/// Where a hash points in its partition.
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
    fn of(footer: &Footer, directory: &Directory<'_>, hash: u64, taken: bool) -> Self {
        let partition = directory.hot(hash::partition(hash, footer.partition_bits));
        let offsets = partition.offsets(footer.layout);
        let home = hash::home(hash, footer.partition_bits, partition.homes);
        let limit = if taken { partition.probe_limit } else { 0 };
        Self {
            control_at: offsets.control,
            slot_words_at: offsets.slot_words,
            records_at: offsets.records,
            home,
            end: home.saturating_add(limit).min(partition.slots),
        }
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
    /// home slot cost a second line for every other key (measured: 30 % of a batch of hits with AVX2,
    /// Zen 4, 10 M keys).
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
fn filter_word(footer: &Footer, directory: &Directory<'_>, hash: u64) -> (u64, u64) {
    let partition = directory.hot(hash::partition(hash, footer.partition_bits));
    let position = filter::position(hash, partition.filter_words);
    // The filter is a partition's first section.
    (partition.offset.wrapping_add(8 * u64::from(position.word)), position.mask)
}

/// The error of a read that the directory, as `open` checked it, does not allow to fail.
#[cold]
fn past_the_body(what: &'static str, at: u64, len: u64) -> Error {
    Error::Corrupt { what, offset: at, expected: len, found: at }
}

/// A table's bytes and facts, as the in-memory drivers need them.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'t, 'a> {
    pub(crate) data: &'a [u8],
    pub(crate) footer: &'t Footer,
    pub(crate) directory: Directory<'a>,
}

impl<'a> Memory<'_, 'a> {
    #[inline(always)]
    fn group<K: Kernel>(&self, probe: &Probe) -> Result<&'a [u8; GROUP_MAX]> {
        let at = probe.group_at(K::WIDTH);
        bytes_at_u64(self.data, at)
            .ok_or_else(|| past_the_body("control bytes past the end", at, self.data.len() as u64))
    }

    /// The slot word of a slot; 0 where there are none.
    #[inline(always)]
    fn slot_word<R: Records>(&self, place: &Place, slot: u32) -> Result<u64> {
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
        let body = usize::try_from(self.footer.directory_at)
            .ok()
            .and_then(|end| self.data.get(..end))
            .unwrap_or_default();
        usize::try_from(at)
            .ok()
            .and_then(|at| body.get(at..))
            .ok_or_else(|| past_the_body("record past the end of the body", at, body.len() as u64))
    }

    /// The value of the record at `at`, if it is this key's record.
    #[inline(always)]
    fn value<R: Records>(&self, records: R, at: u64, key: &[u8]) -> Result<Option<Value<'a>>> {
        let record = self.record(at)?;
        // A record that is cut short by the end of the body is shorter than this key's would be.
        Ok(record
            .get(..records.record_len(key))
            .and_then(|record| records.value(record, key))
            .map(Value::new))
    }

    /// Whether the filter admits the hash. True without a filter.
    #[inline(always)]
    fn admitted(&self, word_at: u64, mask: u64) -> bool {
        bytes_at_u64(self.data, word_at).is_none_or(|word| u64::from_le_bytes(*word) & mask == mask)
    }

    /// Whether the filter of its partition admits a hash. True without a filter.
    #[inline(always)]
    pub(crate) fn filter_admits(&self, hash: u64) -> bool {
        self.footer.filter_bits == 0 || {
            let (word_at, mask) = filter_word(self.footer, &self.directory, hash);
            self.admitted(word_at, mask)
        }
    }

    /// Runs a probe to its end, one read after the other.
    #[inline(always)]
    fn finish<K: Kernel, R: Records>(
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
                    && let Some(value) = self.value(records, at, key)?
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
    fn get<K: Kernel, R: Records>(
        &self,
        kernel: K,
        records: R,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        if !records.takes(key) || !self.filter_admits(hash) {
            return Ok(None);
        }
        let place = Place::of(self.footer, &self.directory, hash, true);
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
            Layout::Inline => self.get(kernel, Inline::new(self.footer), hash, key),
            Layout::TermOrder => self.get(kernel, TermOrder::new(self.footer), hash, key),
        }
    }

    /// Looks up a batch. Layout and filter are chosen once for all of it.
    #[inline(always)]
    pub(crate) fn batch_any<K: Kernel, Q: Keys>(
        &self,
        kernel: K,
        keys: &Q,
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        if keys.len() != out.len() {
            return Err(Error::BatchLength { expected: keys.len(), found: out.len() });
        }
        let filtered = self.footer.filter_bits != 0;
        match (self.footer.layout, filtered) {
            (Layout::Inline, true) => {
                self.batch::<K, _, Q, true>(kernel, Inline::new(self.footer), keys, out)
            }
            (Layout::Inline, false) => {
                self.batch::<K, _, Q, false>(kernel, Inline::new(self.footer), keys, out)
            }
            (Layout::TermOrder, true) => {
                self.batch::<K, _, Q, true>(kernel, TermOrder::new(self.footer), keys, out)
            }
            (Layout::TermOrder, false) => {
                self.batch::<K, _, Q, false>(kernel, TermOrder::new(self.footer), keys, out)
            }
        }
    }

    #[inline(always)]
    fn batch<K: Kernel, R: Records, Q: Keys, const FILTER: bool>(
        &self,
        kernel: K,
        records: R,
        keys: &Q,
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        let mut found = 0;
        let mut lanes = Lanes::new();
        for (chunk, out) in out.chunks_mut(CHUNK).enumerate() {
            let first = chunk * CHUNK;
            found +=
                self.chunk::<K, R, Q, FILTER>(kernel, records, keys, first, &mut lanes, out)?;
        }
        Ok(found)
    }

    /// At most [`CHUNK`] keys, stage by stage. `live` lists the probes that are still under way.
    ///
    /// Plain loops, no closures: a closure that is not inlined is compiled without the target features
    /// of its caller, and then nothing of the kernel is inlined into it either (seen with AVX2: twice
    /// the time).
    #[inline(always)]
    fn chunk<'q, K: Kernel, R: Records, Q: Keys, const FILTER: bool>(
        &self,
        kernel: K,
        records: R,
        keys: &'q Q,
        first: usize,
        lanes: &mut Lanes<'q>,
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        let Lanes { keys: refs, hashes, places, slots, at, masks } = lanes;
        // Local copies: stores to the lanes cannot change them, which the compiler does not see.
        let (footer, directory) = (*self.footer, self.directory);
        let n = out.len().min(CHUNK);
        let out = &mut out[..n];

        // Hash. Name the filter word, or the control bytes.
        for i in 0..n {
            // Borrowed once: an `AsRef` may answer differently the next time.
            let key = keys.key(first + i);
            let hash = footer.hasher.hash(key);
            (refs[i], hashes[i], out[i]) = (key, hash, None);
            if FILTER {
                (at[i], masks[i]) = filter_word(&footer, &directory, hash);
                kernel.prefetch(self.data, at[i] as usize);
            } else {
                places[i] = Place::of(&footer, &directory, hash, records.takes(key));
                let control = places[i].control_at.wrapping_add(places[i].home.into());
                kernel.prefetch(self.data, control as usize);
            }
        }
        // Filter. Name the control bytes.
        let mut admitted = Live::default();
        if FILTER {
            for i in 0..n {
                admitted.push(i, self.admitted(at[i], masks[i]));
            }
            for k in 0..admitted.len {
                let i = admitted.get(k);
                places[i] = Place::of(&footer, &directory, hashes[i], records.takes(refs[i]));
                let control = places[i].control_at.wrapping_add(places[i].home.into());
                kernel.prefetch(self.data, control as usize);
            }
        }
        // Control bytes: on to the first candidate. Name its slot word or its record.
        let mut candidates = Live::default();
        for k in 0..if FILTER { admitted.len } else { n } {
            let i = if FILTER { admitted.get(k) } else { k };
            let mut probe = Probe::new(hashes[i], places[i]);
            while probe.hits == 0 && !probe.last {
                probe.scan(kernel, self.group::<K>(&probe)?);
            }
            if probe.hits == 0 {
                continue;
            }
            candidates.push(i, true);
            slots[i] = probe.candidate();
            if R::SLOT_WORDS {
                kernel.prefetch(self.data, places[i].slot_word_at(slots[i]) as usize);
            } else if let Some(record) = records.record_at(&places[i], hashes[i], slots[i], 0) {
                at[i] = record;
                prefetch_all(kernel, self.data, record, records.record_len(refs[i]));
            }
        }
        // Slot words. Name the record. (`u64::MAX`: the word cannot be this key's.)
        if R::SLOT_WORDS {
            for k in 0..candidates.len {
                let i = candidates.get(k);
                let word = self.slot_word::<R>(&places[i], slots[i])?;
                at[i] = match records.record_at(&places[i], hashes[i], slots[i], word) {
                    Some(record) => {
                        prefetch_all(kernel, self.data, record, records.record_len(refs[i]));
                        record
                    }
                    None => u64::MAX,
                };
            }
        }
        // Records. Whoever is not found here had a false match: 1 of 100 or so begin again, alone.
        let mut found = 0;
        for k in 0..candidates.len {
            let i = candidates.get(k);
            let mut value = None;
            if !R::SLOT_WORDS || at[i] != u64::MAX {
                value = self.value(records, at[i], refs[i])?;
            }
            if value.is_none() {
                value = self.finish(kernel, records, refs[i], Probe::new(hashes[i], places[i]))?;
            }
            out[i] = value;
            found += usize::from(value.is_some());
        }
        Ok(found)
    }
}

/// Prefetches the first and the last line of a record: all of it, unless it is longer than two.
#[inline(always)]
fn prefetch_all<K: Kernel>(kernel: K, data: &[u8], at: u64, len: usize) {
    let at = at as usize;
    kernel.prefetch(data, at);
    kernel.prefetch(data, at.wrapping_add(len).wrapping_sub(1));
}

/// The state of a chunk's keys, one array for each part. Made once for a batch.
struct Lanes<'q> {
    keys: [&'q [u8]; CHUNK],
    hashes: [u64; CHUNK],
    places: [Place; CHUNK],
    /// The candidate.
    slots: [u32; CHUNK],
    /// What the next stage reads: the filter word first, the record later.
    at: [u64; CHUNK],
    masks: [u64; CHUNK],
}

impl Lanes<'_> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            keys: [&[]; CHUNK],
            hashes: [0; CHUNK],
            places: [Place::default(); CHUNK],
            slots: [0; CHUNK],
            at: [0; CHUNK],
            masks: [0; CHUNK],
        }
    }
}

/// The probes of a chunk that are still under way, in order.
struct Live {
    list: [u8; CHUNK],
    len: usize,
}

impl Default for Live {
    fn default() -> Self {
        Self { list: [0; CHUNK], len: 0 }
    }
}

impl Live {
    /// Written without a branch: whether a key is present is what a branch cannot predict.
    #[inline(always)]
    fn push(&mut self, i: usize, stays: bool) {
        self.list[self.len % CHUNK] = i as u8;
        self.len += usize::from(stays);
    }

    #[inline(always)]
    const fn get(&self, k: usize) -> usize {
        self.list[k % CHUNK] as usize % CHUNK
    }
}

/// Bytes that a [`Lookup`] needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// What they are for.
    pub stage: Stage,
    /// Their offset in the table.
    pub offset: u64,
    /// How many.
    pub len: usize,
}

/// The stages that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One word of the filter: 8 bytes.
    Filter,
    /// A line of control bytes: [`GROUP_MAX`] bytes, at a multiple of as many.
    Control,
    /// A slot word: 8 bytes.
    SlotWord,
    /// A record.
    Record,
}

/// One lookup that leaves reading to its caller: the explicit form of the pipeline, for tables that
/// are not in memory. Only the footer must be (see [`Footer::parse`]).
///
/// Ask [`want`](Self::want) which bytes come next, read them, hand them to
/// [`supply`](Self::supply); `want` answers `None` when the key is known to be absent.
///
/// ```
/// # use pkhash_core::{Error, Footer, Lookup};
/// # fn demo(footer: &Footer, footer_bytes: &[u8], read: impl Fn(u64, &mut [u8])) -> Result<(), Error> {
/// let mut lookup = Lookup::new(footer, footer_bytes, b"some key")?;
/// let mut buffer = [0; 256];
/// while let Some(want) = lookup.want() {
///     let bytes = &mut buffer[..want.len];
///     read(want.offset, bytes);
///     if let Some(value) = lookup.supply(bytes)? {
///         println!("{:?}", value.doc_id());
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lookup<'k> {
    footer: Footer,
    key: &'k [u8],
    probe: Probe,
    filter_mask: u64,
    want: Option<Want>,
}

impl<'k> Lookup<'k> {
    /// Begins the lookup of a key. `footer_bytes` are the table's last [`Footer::footer_len`] bytes.
    ///
    /// # Errors
    /// [`Error::WrongLength`] if they are not as many.
    pub fn new(footer: &Footer, footer_bytes: &[u8], key: &'k [u8]) -> Result<Self> {
        if footer_bytes.len() != footer.footer_len() {
            return Err(Error::WrongLength {
                expected: footer.footer_len() as u64,
                found: footer_bytes.len() as u64,
            });
        }
        let directory = Directory::new(footer_bytes, footer.partition_bits);
        let hash = footer.hasher.hash(key);
        let takes = match footer.layout {
            Layout::Inline => Inline::new(footer).takes(key),
            Layout::TermOrder => TermOrder::new(footer).takes(key),
        };
        let probe = Probe::new(hash, Place::of(footer, &directory, hash, takes));
        let (word_at, filter_mask) = filter_word(footer, &directory, hash);
        let mut lookup = Self { footer: *footer, key, probe, filter_mask, want: None };
        lookup.want = match footer.layout {
            Layout::Inline if !Inline::new(footer).takes(key) => None,
            Layout::TermOrder if !TermOrder::new(footer).takes(key) => None,
            _ if probe.last => None,
            _ if footer.filter_bits != 0 => {
                Some(Want { stage: Stage::Filter, offset: word_at, len: 8 })
            }
            _ => lookup.next_group(),
        };
        Ok(lookup)
    }

    /// The bytes that are needed next; `None` once the key is known to be absent, or was found.
    #[must_use]
    pub const fn want(&self) -> Option<Want> {
        self.want
    }

    /// Looks at the bytes that were wanted. Returns the value once it is found: part of `bytes`.
    ///
    /// # Errors
    /// [`Error::WrongLength`] if `bytes` is not as long as was wanted; [`Error::Corrupt`] for a slot
    /// word that points outside of the table.
    pub fn supply<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<Value<'b>>> {
        match self.footer.layout {
            Layout::Inline => self.step(Inline::new(&self.footer), bytes),
            Layout::TermOrder => self.step(TermOrder::new(&self.footer), bytes),
        }
    }

    fn next_group(&self) -> Option<Want> {
        (!self.probe.last).then(|| Want {
            stage: Stage::Control,
            offset: self.probe.group_at(GROUP_MAX as u32),
            len: GROUP_MAX,
        })
    }

    /// The candidate's slot word or record, or the next group.
    fn next_candidate<R: Records>(&mut self, records: R) -> Result<Option<Want>> {
        if self.probe.hits == 0 {
            return Ok(self.next_group());
        }
        let slot = self.probe.candidate();
        if R::SLOT_WORDS {
            let offset = self.probe.place.slot_word_at(slot);
            return Ok(Some(Want { stage: Stage::SlotWord, offset, len: 8 }));
        }
        self.record(records, slot, 0)
    }

    /// The candidate's record; the next candidate if this one cannot be it.
    fn record<R: Records>(&mut self, records: R, slot: u32, word: u64) -> Result<Option<Want>> {
        if let Some(offset) = records.record_at(&self.probe.place, self.probe.hash, slot, word) {
            let left = self.footer.directory_at.checked_sub(offset).ok_or_else(|| {
                past_the_body("record past the end of the body", offset, self.footer.directory_at)
            })?;
            let len = records.record_len(self.key);
            if len as u64 <= left {
                return Ok(Some(Want { stage: Stage::Record, offset, len }));
            }
            // So near the end of the body that it is the record of a shorter key.
        }
        // At most GROUP_MAX candidates deep.
        self.probe.reject();
        self.next_candidate(records)
    }

    fn step<'b, R: Records>(&mut self, records: R, bytes: &'b [u8]) -> Result<Option<Value<'b>>> {
        let Some(want) = self.want else { return Ok(None) };
        let wrong = Error::WrongLength { expected: want.len as u64, found: bytes.len() as u64 };
        if bytes.len() != want.len {
            return Err(wrong);
        }
        self.want = match want.stage {
            Stage::Filter => {
                let word = u64::from_le_bytes(*bytes_at(bytes, 0).ok_or(wrong)?);
                if word & self.filter_mask == self.filter_mask { self.next_group() } else { None }
            }
            Stage::Control => {
                // Reading it took so much longer that the scalar kernel will do.
                let line = bytes_at(bytes, 0).ok_or(wrong)?;
                let found = match_line(line, hash::control(self.probe.hash));
                self.probe.note(GROUP_MAX as u32, found);
                self.next_candidate(records)?
            }
            Stage::SlotWord => {
                let word = u64::from_le_bytes(*bytes_at(bytes, 0).ok_or(wrong)?);
                self.record(records, self.probe.candidate(), word)?
            }
            Stage::Record => {
                if let Some(value) = records.value(bytes, self.key) {
                    self.want = None;
                    return Ok(Some(Value::new(value)));
                }
                self.probe.reject();
                self.next_candidate(records)?
            }
        };
        Ok(None)
    }
}
