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
use crate::kernel::{GROUP_MAX, Kernel};
use crate::layout::{Inline, Layout, Records, TermOrder};
use crate::value::Value;

/// Keys that go through the stages of a batch together: enough reads to fill the memory system of
/// the machines measured so far, few enough that the probes stay in the first-level cache.
pub const CHUNK: usize = 32;

/// One key on its way through the stages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probe {
    pub(crate) hash: u64,
    /// Offsets of the partition's sections.
    pub(crate) control_at: u64,
    pub(crate) slot_words_at: u64,
    pub(crate) records_at: u64,
    pub(crate) home: u32,
    /// First slot of the group whose hits are in `hits`.
    base: u32,
    /// First slot of the next group.
    next: u32,
    /// The slot before which the probe ends, even in a table without empty slots.
    end: u32,
    /// Slots of the group whose control byte matched and that have not been looked at yet.
    hits: u64,
    /// No further group needs to be looked at.
    last: bool,
}

impl Probe {
    /// The first stage: where the hash points. Also returns where its filter word lies, and its bits.
    #[inline(always)]
    fn start(footer: &Footer, directory: &Directory<'_>, hash: u64) -> (Self, u64, u64) {
        let p = hash::partition(hash, footer.partition_bits);
        let partition = directory.hot(p);
        let offsets = partition.offsets(footer.layout);
        let home = hash::home(hash, footer.partition_bits, partition.homes);
        let end = home.saturating_add(partition.probe_limit).min(partition.slots);
        let word = filter::position(hash, partition.filter_words);
        let probe = Self {
            hash,
            control_at: offsets.control,
            slot_words_at: offsets.slot_words,
            records_at: offsets.records,
            home,
            base: home,
            next: home,
            end,
            hits: 0,
            last: home >= end,
        };
        (probe, offsets.filter.wrapping_add(8 * u64::from(word.word)), word.mask)
    }

    /// Where the next group of control bytes begins. [`GROUP_MAX`] bytes can be read there.
    #[inline(always)]
    const fn group_at(&self) -> u64 {
        self.control_at.wrapping_add(self.next as u64)
    }

    /// Looks at the group at [`Self::group_at`]. Afterwards `hits` holds its candidates.
    #[inline(always)]
    fn scan<K: Kernel>(&mut self, kernel: K, group: &[u8; GROUP_MAX]) {
        let found = kernel.match_group(group, hash::control(self.hash));
        // Only slots before the first empty one and before the end of the probe count, so that
        // kernels of every width see the same candidates, in a damaged table too.
        let before_empty = (found.empty & found.empty.wrapping_neg()).wrapping_sub(1);
        let left = self.end.wrapping_sub(self.next);
        let before_end = if left < 64 { (1 << left) - 1 } else { u64::MAX };
        self.hits = found.hits & before_empty & before_end;
        self.base = self.next;
        self.next = self.next.saturating_add(K::WIDTH);
        self.last = found.empty != 0 || self.next >= self.end;
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

    #[inline(always)]
    const fn slot_word_at(&self, slot: u32) -> u64 {
        self.slot_words_at.wrapping_add(8 * slot as u64)
    }
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
    fn group(&self, probe: &Probe) -> Result<&'a [u8; GROUP_MAX]> {
        let at = probe.group_at();
        bytes_at_u64(self.data, at)
            .ok_or_else(|| past_the_body("control bytes past the end", at, self.data.len() as u64))
    }

    /// The slot word of a slot; 0 where there are none.
    #[inline(always)]
    fn slot_word<R: Records>(&self, probe: &Probe, slot: u32) -> Result<u64> {
        if !R::SLOT_WORDS {
            return Ok(0);
        }
        let at = probe.slot_word_at(slot);
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
    pub(crate) fn filter_admits(&self, hash: u64) -> bool {
        let (_, word_at, mask) = Probe::start(self.footer, &self.directory, hash);
        self.footer.filter_bits == 0 || self.admitted(word_at, mask)
    }

    /// Runs a probe to its end, one read after the other.
    #[inline(always)]
    fn finish<K: Kernel, R: Records>(
        &self,
        kernel: K,
        records: R,
        key: &[u8],
        probe: &mut Probe,
    ) -> Result<Option<Value<'a>>> {
        loop {
            while probe.hits != 0 {
                let slot = probe.candidate();
                let word = self.slot_word::<R>(probe, slot)?;
                if let Some(at) = records.record_at(probe, slot, word)
                    && let Some(value) = self.value(records, at, key)?
                {
                    return Ok(Some(value));
                }
                probe.reject();
            }
            if probe.last {
                return Ok(None);
            }
            probe.scan(kernel, self.group(probe)?);
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
        if !records.takes(key) {
            return Ok(None);
        }
        let (mut probe, word_at, mask) = Probe::start(self.footer, &self.directory, hash);
        if self.footer.filter_bits != 0 && !self.admitted(word_at, mask) {
            return Ok(None);
        }
        self.finish(kernel, records, key, &mut probe)
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
    pub(crate) fn batch_any<K: Kernel, B: AsRef<[u8]>>(
        &self,
        kernel: K,
        keys: &[B],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        if keys.len() != out.len() {
            return Err(Error::BatchLength { expected: keys.len(), found: out.len() });
        }
        let filtered = self.footer.filter_bits != 0;
        match (self.footer.layout, filtered) {
            (Layout::Inline, true) => {
                self.batch::<K, _, B, true>(kernel, Inline::new(self.footer), keys, out)
            }
            (Layout::Inline, false) => {
                self.batch::<K, _, B, false>(kernel, Inline::new(self.footer), keys, out)
            }
            (Layout::TermOrder, true) => {
                self.batch::<K, _, B, true>(kernel, TermOrder::new(self.footer), keys, out)
            }
            (Layout::TermOrder, false) => {
                self.batch::<K, _, B, false>(kernel, TermOrder::new(self.footer), keys, out)
            }
        }
    }

    #[inline(always)]
    fn batch<K: Kernel, R: Records, B: AsRef<[u8]>, const FILTER: bool>(
        &self,
        kernel: K,
        records: R,
        keys: &[B],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        let mut found = 0;
        for (keys, out) in keys.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
            found += self.chunk::<K, R, B, FILTER>(kernel, records, keys, out)?;
        }
        Ok(found)
    }

    /// At most [`CHUNK`] keys, stage by stage. `live` lists the probes that are still under way.
    #[inline(always)]
    fn chunk<K: Kernel, R: Records, B: AsRef<[u8]>, const FILTER: bool>(
        &self,
        kernel: K,
        records: R,
        keys: &[B],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        let mut probes = [Probe::default(); CHUNK];
        let mut refs: [&[u8]; CHUNK] = [&[]; CHUNK];
        let mut live = Live::default();
        // What the next stage reads, by probe: filter words first, records later.
        let mut at = [0u64; CHUNK];
        let mut masks = [0u64; CHUNK];

        // Hash; name the filter word, or the control bytes.
        for (i, key) in keys.iter().enumerate().take(CHUNK) {
            // Borrowed once: an `AsRef` may answer differently the next time.
            let key = key.as_ref();
            out[i] = None;
            refs[i] = key;
            let (probe, word_at, mask) =
                Probe::start(self.footer, &self.directory, self.footer.hasher.hash(key));
            probes[i] = probe;
            if FILTER {
                (at[i], masks[i]) = (word_at, mask);
                kernel.prefetch(self.data, word_at as usize);
            } else {
                kernel.prefetch(self.data, probe.group_at() as usize);
            }
            live.push(i, records.takes(key));
        }
        // Filter.
        if FILTER {
            live.retain(|i| {
                let admitted = self.admitted(at[i], masks[i]);
                if admitted {
                    kernel.prefetch(self.data, probes[i].group_at() as usize);
                }
                Ok(admitted)
            })?;
        }
        // Control bytes: on to the first candidate.
        live.retain(|i| {
            let probe = &mut probes[i];
            while probe.hits == 0 && !probe.last {
                probe.scan(kernel, self.group(probe)?);
            }
            if probe.hits == 0 {
                return Ok(false);
            }
            let slot = probe.candidate();
            if R::SLOT_WORDS {
                kernel.prefetch(self.data, probe.slot_word_at(slot) as usize);
            } else if let Some(record) = records.record_at(probe, slot, 0) {
                at[i] = record;
                prefetch_all(kernel, self.data, record, records.record_len(refs[i]));
            }
            Ok(true)
        })?;
        // Slot words. A candidate whose word cannot be this key's is left to the last stage.
        if R::SLOT_WORDS {
            for i in live.iter() {
                let probe = &probes[i];
                let slot = probe.candidate();
                let word = self.slot_word::<R>(probe, slot)?;
                at[i] = match records.record_at(probe, slot, word) {
                    Some(record) => {
                        prefetch_all(kernel, self.data, record, records.record_len(refs[i]));
                        record
                    }
                    None => u64::MAX,
                };
            }
        }
        // Records. Whoever is not found here had a false match, and goes on alone.
        let mut found = 0;
        for i in live.iter() {
            let value = match at[i] {
                u64::MAX => None,
                at => self.value(records, at, refs[i])?,
            };
            out[i] = match value {
                Some(value) => Some(value),
                None => {
                    probes[i].reject();
                    self.finish(kernel, records, refs[i], &mut probes[i])?
                }
            };
            found += usize::from(out[i].is_some());
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
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.list.iter().take(self.len).map(|i| usize::from(*i) % CHUNK)
    }

    #[inline(always)]
    fn retain(&mut self, mut stays: impl FnMut(usize) -> Result<bool>) -> Result<()> {
        let before = core::mem::take(self);
        for i in before.iter() {
            let stays = stays(i)?;
            self.push(i, stays);
        }
        Ok(())
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
    /// A group of control bytes: [`GROUP_MAX`] bytes.
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
/// # use pkhash_core::{Error, Footer, Lookup, Scalar};
/// # fn demo(footer: &Footer, footer_bytes: &[u8], read: impl Fn(u64, &mut [u8])) -> Result<(), Error> {
/// let mut lookup = Lookup::new(footer, footer_bytes, b"some key")?;
/// let mut buffer = [0; 256];
/// while let Some(want) = lookup.want() {
///     let bytes = &mut buffer[..want.len];
///     read(want.offset, bytes);
///     if let Some(value) = lookup.supply(Scalar, bytes)? {
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
        let (probe, word_at, filter_mask) = Probe::start(footer, &directory, hash);
        let mut lookup = Self { footer: *footer, key, probe, filter_mask, want: None };
        lookup.want = match footer.layout {
            Layout::Inline if !Inline::new(footer).takes(key) => None,
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
    pub fn supply<'b, K: Kernel>(
        &mut self,
        kernel: K,
        bytes: &'b [u8],
    ) -> Result<Option<Value<'b>>> {
        match self.footer.layout {
            Layout::Inline => self.step(kernel, Inline::new(&self.footer), bytes),
            Layout::TermOrder => self.step(kernel, TermOrder::new(&self.footer), bytes),
        }
    }

    fn next_group(&self) -> Option<Want> {
        (!self.probe.last).then(|| Want {
            stage: Stage::Control,
            offset: self.probe.group_at(),
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
            let offset = self.probe.slot_word_at(slot);
            return Ok(Some(Want { stage: Stage::SlotWord, offset, len: 8 }));
        }
        self.record(records, slot, 0)
    }

    /// The candidate's record; the next candidate if this one cannot be it.
    fn record<R: Records>(&mut self, records: R, slot: u32, word: u64) -> Result<Option<Want>> {
        if let Some(offset) = records.record_at(&self.probe, slot, word) {
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

    fn step<'b, K: Kernel, R: Records>(
        &mut self,
        kernel: K,
        records: R,
        bytes: &'b [u8],
    ) -> Result<Option<Value<'b>>> {
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
                self.probe.scan(kernel, bytes_at(bytes, 0).ok_or(wrong)?);
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
