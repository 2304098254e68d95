//! Merging tables into one.
//!
//! Every table lies in the order of its hashes, or at least its partitions do, so partition p of the
//! output is made from one range of slots of each input. Nothing is spilled; memory holds the partitions
//! that are being built.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pkhash_core::builder::{
    Entry, KeyStats, LayoutChoice, Options, PerfectShape, Plan, ValueChoice,
};
use pkhash_core::{Footer, Hasher, Layout, RecordPlace, ValueFormat, ValueKind};
use pkhash_simd::Kernel;

use crate::collect::{Collected, CollectedPart, Collector, Encoded, collected_memory};
use crate::error::{Error, Result};
use crate::memory::{push, reserve};
use crate::partition::{Builder, Built, Control, Loader, OnDuplicate, Part};
use crate::publish::Publication;
use crate::set::LiveDocs;
use crate::table_file::TableFile;
use crate::threads::{Costs, Pool, partition_keys, window};
use crate::writer::{DEFAULT_MEMORY, check_memory};

/// In a [`DocMap::Map`]: the doc was deleted.
pub const DELETED: u32 = u32::MAX;

/// What becomes of an input's doc IDs. Where a value has its doc ID, says
/// [`ValueFormat::doc_id_width`]; its other bytes are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DocMap {
    /// They stay.
    #[default]
    Keep,
    /// This is added to each.
    Offset(u64),
    /// Doc i becomes `map[i]`, or goes, if that is [`DELETED`].
    Map(Vec<u32>),
}

impl DocMap {
    /// The map that closes the gaps of deleted docs: of `docs` docs the live ones are numbered from `base`
    /// on. Also returns the base for the next input, `base` plus the docs that are live. Without live docs
    /// all are live. Docs beyond the live docs are deleted, as everywhere.
    ///
    /// What a background merge does with deletes, so that none is lost and none returns:
    ///
    /// 1. Take a snapshot, keep its segments, and make a map of each one's live docs.
    /// 2. Merge with these maps. Deletes that arrive meanwhile go to new snapshots with new live docs, as
    ///    ever; the merge does not see them.
    /// 3. Before the merged segment replaces its inputs, take the newest snapshot, look there for what each
    ///    input has deleted since ([`LiveDocs::deleted_since`]), map these docs with [`get`](Self::get), and
    ///    give the merged segment live docs without them ([`LiveDocs::from_deleted`], the docs being the
    ///    last base).
    /// 4. Publish [`SegmentSet::merged`](crate::SegmentSet::merged) of the newest snapshot, with steps 3
    ///    and 4 under the lock under which deletes are published, too.
    ///
    /// ```
    /// use pkhash_std::{DocMap, LiveDocs};
    /// let (first, second) = (LiveDocs::from_deleted(3, &[1])?, LiveDocs::all(2));
    /// let (map, base) = DocMap::compacting(Some(&first), 3, 0)?;
    /// let (next, docs) = DocMap::compacting(Some(&second), 2, base)?;
    /// assert_eq!([map.get(0), map.get(1), map.get(2)], [Some(0), None, Some(1)]);
    /// assert_eq!((next.get(0), docs), (Some(2), 4));
    /// // Doc 2 of the first input was deleted meanwhile.
    /// let now = first.with_deleted([2])?;
    /// let deleted = now.deleted_since(&first).filter_map(|doc| map.get(doc));
    /// let merged = LiveDocs::all(docs).with_deleted(deleted.map(|doc| doc as u32))?;
    /// assert!(!merged.is_live(1) && merged.deleted() == 1);
    /// # Ok::<(), pkhash_std::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyDocs`] if the live docs do not all get an ID below [`DELETED`].
    pub fn compacting(live: Option<&LiveDocs>, docs: u32, base: u32) -> Result<(Self, u32)> {
        let mut next = base;
        let mut take = |live: bool| {
            if !live {
                return Ok(DELETED);
            }
            let doc = next;
            next = next.checked_add(1).ok_or(Error::TooManyDocs { found: 1 << 32 })?;
            Ok(doc)
        };
        let Some(live) = live else {
            let all = u64::from(base) + u64::from(docs);
            let next = u32::try_from(all).map_err(|_| Error::TooManyDocs { found: all })?;
            return Ok((Self::Offset(base.into()), next));
        };
        let map = (0..docs).map(|doc| take(live.is_live(doc))).collect::<Result<_>>()?;
        Ok((Self::Map(map), next))
    }

    /// The new ID of a doc; `None` if it was deleted, lies beyond the map, or has none in 64 bits.
    #[must_use]
    pub fn get(&self, doc: u32) -> Option<u64> {
        match self {
            Self::Keep => Some(doc.into()),
            Self::Offset(base) => base.checked_add(doc.into()),
            Self::Map(map) => {
                let new = map.get(doc as usize).filter(|new| **new != DELETED);
                new.map(|new| u64::from(*new))
            }
        }
    }
}

/// A table to merge, and what becomes of its doc IDs.
#[derive(Clone, Debug)]
pub struct MergeInput<'a> {
    /// The table.
    pub table: &'a TableFile,
    /// Old doc IDs to new ones.
    pub docs: DocMap,
}

/// How tables are merged. The kind of the values is that of the inputs, which share it.
#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// The layout, as for a table that is built.
    pub layout: LayoutChoice,
    /// The values; `Auto`: integers as narrow as can be, or what the inputs have, if that is not
    /// integers.
    pub value: ValueChoice,
    /// Filter bits for each key; `None`: what the first input has.
    pub filter_bits: Option<u8>,
    /// Partition bits; `None`: by the number of keys.
    pub partition_bits: Option<u8>,
    /// Perfect tables: records back to back, as for a table that is built.
    pub packed: bool,
    /// Perfect tables: how many buckets and slots.
    pub shape: PerfectShape,
    /// The hash and its seed; `None`: that of the first input. The keys of an input that has another one are
    /// hashed anew. They are then in no order, and go through memory and a temporary file as those of a
    /// [`TableWriter`](crate::TableWriter) do.
    pub hasher: Option<Hasher>,
    /// Bytes that partitions under construction may take together, with keys that are hashed anew; what the
    /// process needs besides is a few MB, and the inputs themselves. At least
    /// [`MIN_MEMORY`](crate::MIN_MEMORY). The partition that is being built must fit.
    pub memory: usize,
    /// Where keys go that are hashed anew and outgrow the budget; `None`: the folder of the merged table, or
    /// the system's folder for temporary files if it is not published.
    pub temp_dir: Option<PathBuf>,
    /// Threads that build; 0: one for each core. 1 starts none. If not all can be started, fewer build
    /// ([`Built::missing_threads`]).
    pub threads: usize,
    /// The kernel that builds; `None`: the detected one.
    pub kernel: Option<Kernel>,
    /// What to do with a key that lives in several inputs.
    pub on_duplicate: OnDuplicate,
    /// Progress and cancelling.
    pub control: Control,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            layout: LayoutChoice::Auto,
            value: ValueChoice::Auto,
            filter_bits: None,
            partition_bits: None,
            packed: false,
            shape: PerfectShape::default(),
            hasher: None,
            memory: DEFAULT_MEMORY,
            temp_dir: None,
            threads: 0,
            kernel: None,
            on_duplicate: OnDuplicate::Error,
            control: Control::default(),
        }
    }
}

/// Merges tables and publishes the result at `path`, which may be that of an input: the inputs stay
/// as they are, open, until their [`TableFile`]s are dropped.
///
/// # Errors
/// [`Error::Mismatch`] if the inputs' kinds of values differ; [`Error::DocMap`] for a doc ID
/// beyond a map; [`Error::DuplicateKey`]; [`Error::Table`]; [`Error::Io`]; [`Error::Cancelled`]. The
/// path then has what it had before, and no temporary file is left.
pub fn merge(
    inputs: &[MergeInput<'_>],
    path: impl AsRef<Path>,
    options: &MergeOptions,
) -> Result<Built> {
    let mut publication = Publication::begin(path)?;
    let built = merge_publication(inputs, &mut publication, options)?;
    publication.commit()?;
    Ok(built)
}

/// [`merge`] into a file that was begun before, and that the caller publishes: alone, with its doc maps
/// ([`Publication::commit_all`]) or with its companion.
///
/// # Errors
/// As [`merge`].
pub fn merge_publication(
    inputs: &[MergeInput<'_>],
    publication: &mut Publication,
    options: &MergeOptions,
) -> Result<Built> {
    let path = publication.shown().to_owned();
    let folder = publication.folder().to_owned();
    merge_into(inputs, publication.file(), &path, Some(&folder), options)
}

/// Merges tables into `out`, front to back.
///
/// # Errors
/// As [`merge`]. What was written to `out` is then not a table.
pub fn merge_to(
    inputs: &[MergeInput<'_>],
    out: &mut (impl std::io::Write + Send),
    options: &MergeOptions,
) -> Result<Built> {
    merge_into(inputs, out, Path::new("the output"), None, options)
}

fn merge_into(
    inputs: &[MergeInput<'_>],
    out: &mut (impl std::io::Write + Send),
    path: &Path,
    folder: Option<&Path>,
    options: &MergeOptions,
) -> Result<Built> {
    check_memory(options.memory)?;
    let first = inputs.first().map(|input| *input.table.footer());
    check_inputs(inputs)?;
    let value = match (options.value, &first) {
        (ValueChoice::Auto, Some(first)) if first.value.kind() != ValueKind::Integer => {
            ValueChoice::Fixed(first.value)
        }
        (value, _) => value,
    };
    let hasher = options.hasher.or(first.map(|first| first.hasher)).unwrap_or(Hasher::new(0));
    let table = Options {
        layout: options.layout,
        value,
        filter_bits: options.filter_bits.or(first.map(|first| first.filter_bits)),
        hasher,
        partition_bits: options.partition_bits,
        packed: options.packed,
        shape: options.shape,
    };
    let pool = Pool::new(options.threads, 1 << pkhash_core::MAX_PARTITION_BITS);
    let mut stats = KeyStats::default();
    for (i, input) in inputs.iter().enumerate() {
        options.control.check()?;
        check_sums(input, &pool)?;
        stats.merge(&stats_of(i, input, &pool)?);
    }
    let plan = table.plan(&stats)?;
    let read: Vec<AtomicU64> = inputs.iter().map(|_| AtomicU64::new(0)).collect();
    let (streams, ahead_bytes) = streams(inputs, &plan, hasher, options.memory as u64 / 2);
    let left = options.memory as u64 - ahead_bytes;
    let (mut left, mut costs, mut spilled, mut collected) = (left, Costs::default(), 0, None);
    if streams.contains(&false) {
        let temp_dir = options.temp_dir.as_deref().or(folder);
        let most = collected_memory(left as usize);
        let collector = collect(inputs, &streams, most, hasher, &read, temp_dir, &options.control)?;
        left -= most as u64;
        (costs, spilled) = (collector.costs(&plan), collector.spilled());
        // Sorted by input, and then among the others.
        costs.prepared = size_of::<(usize, Entry<'_>)>() as u64;
        collected = Some(collector.load_for(plan));
    }
    // Hash, key and new value.
    let width = if plan.value().kind() == ValueKind::Integer { 8 } else { plan.value().width() };
    costs.prepared += size_of::<(u64, &[u8])>() as u64 + u64::from(width);
    let builder = Builder {
        plan,
        on_duplicate: options.on_duplicate,
        pool: &pool,
        window: window(&plan, &stats, costs, left, pool.threads()),
        partition_keys: partition_keys(&plan, &stats),
        kernel: options.kernel,
        control: &options.control,
    };
    let ahead = inputs.iter().map(|_| VecDeque::new()).collect();
    let (read, streams, pool) = (&*read, &*streams, &pool);
    let mut loader = Inputs { inputs, plan, streams, collected, read, ahead, pool };
    let built = builder.write(&mut loader, out, |source| Error::io("write", path)(source))?;
    check_read(inputs, read)?;
    Ok(Built { spilled, ..built })
}

/// Which inputs can be read by partition of the output, and the memory that looking ahead in them takes.
/// Those of another hash cannot; and those that would take more than `most` together had better not.
fn streams(inputs: &[MergeInput<'_>], plan: &Plan, hasher: Hasher, most: u64) -> (Vec<bool>, u64) {
    let mut ahead = 0u64;
    let stream = |input: &MergeInput<'_>| {
        let footer = input.table.footer();
        let same = footer.hasher.seed() == hasher.seed()
            && footer.hasher.check_value() == hasher.check_value();
        if !same || coarser(plan, footer).is_none() {
            return same;
        }
        let keys = footer.keys >> footer.partition_bits;
        let mine = (keys + keys / 8 + 64) * size_of::<RecordPlace>() as u64;
        if ahead + mine > most {
            return false;
        }
        ahead += mine;
        true
    };
    let streams = inputs.iter().map(stream).collect();
    (streams, ahead)
}

/// Reads the inputs that do not stream, with their new values, each behind the number of the input.
fn collect(
    inputs: &[MergeInput<'_>],
    streams: &[bool],
    memory: usize,
    hasher: Hasher,
    read: &[AtomicU64],
    temp_dir: Option<&Path>,
    control: &Control,
) -> Result<Collector> {
    // All inputs have values of one width, but for integers.
    let value = inputs.first().map_or(ValueFormat::narrowest(0), |i| i.table.footer().value);
    let width = if value.kind() == ValueKind::Integer { 8 } else { value.width().into() };
    let mut collector = Collector::new(memory, NUMBER + width);
    for (i, input) in inputs.iter().enumerate().filter(|(i, _)| !streams[*i]) {
        let table = input.table.table();
        let number = u32::try_from(i).unwrap_or(u32::MAX).to_le_bytes();
        let mut value = [0; NUMBER + 64];
        value[..NUMBER].copy_from_slice(&number);
        for p in 0..table.footer().partitions() {
            control.check()?;
            for record in table.iter_partition(p) {
                let (key, old) = record.map_err(Error::table(input.table.name()))?;
                read[i].fetch_add(1, Ordering::Relaxed);
                let mut new = [0; 64];
                if map_value(i, input, old.as_bytes(), &mut new)?.is_some() {
                    value[NUMBER..NUMBER + width].copy_from_slice(&new[..width]);
                    let value = &value[..NUMBER + width];
                    let encoded = Encoded { hash: hasher.hash(key), value, key };
                    collector.push(&encoded, temp_dir, control)?;
                }
            }
        }
    }
    Ok(collector)
}

/// Bytes of an input's number.
const NUMBER: usize = 4;

/// One partition of an input is read for 2^this many of the output; `None`: none, since each range of hashes
/// can be read by itself.
fn coarser(plan: &Plan, footer: &Footer) -> Option<u32> {
    let bits = plan.partition_bits().checked_sub(footer.partition_bits)?;
    (footer.layout == Layout::Perfect && bits > 0).then_some(bits.into())
}

/// What all inputs must share with the first one.
fn check_inputs(inputs: &[MergeInput<'_>]) -> Result<()> {
    let Some((first, others)) = inputs.split_first() else { return Ok(()) };
    let first = first.table.footer().value;
    for (i, other) in others.iter().enumerate() {
        let other = other.table.footer().value;
        // Integers are widened as needed.
        let integers = [first, other].map(|value| value.kind() == ValueKind::Integer);
        if integers != [true, true] && first != other {
            return Err(Error::Values { input: i + 1, expected: first, found: other });
        }
    }
    for (input, merge) in inputs.iter().enumerate() {
        let width = merge.table.footer().value.width();
        if merge.docs != DocMap::Keep && !merge.table.footer().value.has_doc_ids() {
            return Err(Error::Mismatch {
                what: "width of values that a doc map needs",
                input,
                expected: 1,
                found: width.into(),
            });
        }
    }
    Ok(())
}

/// A merge gives every byte a new checksum, so it must not take damaged ones: they would pass for good
/// ever after. Reading an input once more costs little beside merging it, and what follows finds it in
/// memory.
fn check_sums(input: &MergeInput<'_>, pool: &Pool) -> Result<()> {
    let table = input.table.table();
    let check = |p| table.verify_checksums(p).map_err(Error::table(input.table.name()));
    pool.try_map(table.footer().partitions(), check).map(|_| ())
}

/// A table with good checksums that was written wrongly: a misplaced key ends a range too early, or is
/// in none. Then fewer records were read than there are, and the merged table would lack sound keys.
fn check_read(inputs: &[MergeInput<'_>], read: &[AtomicU64]) -> Result<()> {
    for (input, read) in inputs.iter().zip(read) {
        let (footer, found) = (input.table.footer(), read.load(Ordering::Relaxed));
        if found != footer.keys {
            let source = pkhash_core::Error::Corrupt {
                what: "number of keys that were read",
                offset: footer.file_len,
                expected: footer.keys,
                found,
            };
            return Err(Error::table(input.table.name())(source));
        }
    }
    Ok(())
}

/// What an input adds: from its footer, unless docs are deleted or renumbered at will. Then its values
/// are read once, so that the merged table is the same as one built from the keys that are left.
fn stats_of(i: usize, input: &MergeInput<'_>, pool: &Pool) -> Result<KeyStats> {
    let table = input.table.table();
    let footer = table.footer();
    let mut stats = KeyStats::of(footer);
    match &input.docs {
        DocMap::Keep => {}
        DocMap::Offset(_) if footer.value.kind() != ValueKind::Integer => {}
        DocMap::Offset(base) => {
            if footer.keys > 0 {
                stats.max_value = stats.max_value.checked_add(*base).ok_or(Error::DocMap {
                    input: i,
                    found: stats.max_value,
                    expected: u64::MAX - base,
                })?;
            }
        }
        DocMap::Map(_) => {
            let part = |p| {
                let mut stats = KeyStats::default();
                for record in table.iter_partition(p) {
                    let (key, value) = record.map_err(Error::table(input.table.name()))?;
                    let mut mapped = [0; 64];
                    if let Some(width) = map_value(i, input, value.as_bytes(), &mut mapped)? {
                        stats.add(key, if width <= 8 { &mapped[..width] } else { &[] });
                    }
                }
                Ok(stats)
            };
            let parts = pool.try_map(footer.partitions(), part)?;
            stats = KeyStats::default();
            for part in parts {
                stats.merge(&part);
            }
        }
    }
    if footer.value.kind() != ValueKind::Integer {
        stats.max_value = 0;
    }
    Ok(stats)
}

/// The new value of a record in the first bytes of `out`: 8 for integers, otherwise as many as it had.
/// `None`: its doc was deleted.
#[inline]
fn map_value(
    i: usize,
    input: &MergeInput<'_>,
    bytes: &[u8],
    out: &mut [u8; 64],
) -> Result<Option<usize>> {
    let value = input.table.footer().value;
    let integer = value.kind() == ValueKind::Integer;
    out[..bytes.len()].copy_from_slice(bytes);
    let width = if integer { 8 } else { bytes.len() };
    out[bytes.len()..width.max(bytes.len())].fill(0);
    // `check_inputs` saw to it that there is a doc ID if it is needed. Integers are widened as needed.
    let (id_width, most) = match (integer, value.doc_id_width()) {
        (true, _) => (8, u64::MAX),
        (false, width) => (usize::from(width), value.max_doc_id()),
    };
    let mut wide = [0; 8];
    wide[..id_width].copy_from_slice(&out[..id_width]);
    let doc = u64::from_le_bytes(wide);
    let (new, expected) = match &input.docs {
        DocMap::Keep => return Ok(Some(width)),
        DocMap::Offset(base) => (doc.checked_add(*base), most.saturating_sub(*base)),
        DocMap::Map(map) => {
            let new = usize::try_from(doc).ok().and_then(|doc| map.get(doc));
            if new == Some(&DELETED) {
                return Ok(None);
            }
            (new.map(|new| u64::from(*new)), map.len() as u64)
        }
    };
    let new = match new {
        Some(new) if new <= most => new,
        Some(new) if matches!(input.docs, DocMap::Map(_)) => {
            let what = "new doc ID";
            return Err(Error::Mismatch { what, input: i, expected: most, found: new });
        }
        _ => return Err(Error::DocMap { input: i, found: doc, expected }),
    };
    out[..id_width].copy_from_slice(&new.to_le_bytes()[..id_width]);
    Ok(Some(width))
}

/// Reads the inputs, each partition of the output from one range of their hashes.
///
/// Records of a perfect table are in no order within a partition. If the output has more partitions than
/// such an input, one of the input is read for all that it meets of the output's, once, and where their
/// records lie is kept: 8 bytes for each. (Keys, hashes and new values were kept at first: five times the
/// memory, and slower, since all of it was fresh pages.)
struct Inputs<'m, 'a> {
    inputs: &'m [MergeInput<'a>],
    plan: Plan,
    /// For each input, whether it is read by partition of the output.
    streams: &'m [bool],
    /// The records of those that are not.
    collected: Option<Collected>,
    /// For each input, how many records were read, deleted ones included.
    read: &'m [AtomicU64],
    /// For each input, what it holds of the next partitions of the output, if that was looked for.
    ahead: Vec<VecDeque<Vec<RecordPlace>>>,
    pool: &'m Pool,
}

impl Inputs<'_, '_> {
    /// Where the records lie that input `i` has of each of the 2^`bits` partitions of the output from the
    /// `p`-th on.
    fn look_ahead(&self, i: usize, p: u32, bits: u32) -> Result<VecDeque<Vec<RecordPlace>>> {
        let file = self.inputs[i].table;
        let table = file.table();
        let keys = table.partition(p >> bits).map_or(0, |partition| partition.keys as usize);
        let each = keys >> bits;
        // They differ by some per cent. A few keys are not worth room for each of many partitions.
        let room = if each < 64 { 0 } else { each + each / 16 + 64 };
        let mut places: Vec<_> = (0..1 << bits).map(|_| Vec::new()).collect();
        places.iter_mut().try_for_each(|places| reserve(places, room))?;
        let (first, last) = hashes(p >> bits, u32::from(self.plan.partition_bits()) - bits);
        let mut read = 0;
        for record in table.range(first, last) {
            let (hash, key, _) = record.map_err(Error::table(file.name()))?;
            read += 1;
            let place = table.place_of(key).map_err(Error::table(file.name()))?;
            push(&mut places[self.plan.partition_of(hash) as usize % (1 << bits)], place)?;
        }
        self.read[i].fetch_add(read, Ordering::Relaxed);
        Ok(places.into())
    }
}

/// Records that are prefetched while others are read: they lie some hundred bytes apart. (Without, a third of
/// all time of a merge was spent on waiting for them. Zen 4, 15 tables, 10 M keys.)
const RECORDS_AHEAD: usize = 16;

impl<'m> Loader for Inputs<'m, '_> {
    type Part = MergedPart<'m>;

    fn load(&mut self, p: u32) -> Result<MergedPart<'m>> {
        let look = |i: usize| match coarser(&self.plan, self.inputs[i].table.footer()) {
            Some(bits) if self.streams[i] && self.ahead[i].is_empty() => {
                self.look_ahead(i, p, bits)
            }
            _ => Ok(VecDeque::new()),
        };
        let ahead = self.pool.map((0..self.inputs.len()).collect(), look);
        let ahead = ahead.into_iter().collect::<Result<Vec<_>>>()?;
        let places = self.ahead.iter_mut().zip(ahead).map(|(ahead, more)| {
            ahead.extend(more);
            ahead.pop_front()
        });
        Ok(MergedPart {
            places: places.collect(),
            streams: self.streams,
            collected: self.collected.as_mut().map(|collected| collected.load(p)).transpose()?,
            inputs: self.inputs,
            read: self.read,
            range: hashes(p, self.plan.partition_bits().into()),
            pieces: Vec::new(),
        })
    }
}

/// The first and the last hash of partition `p` of 2^`bits`.
fn hashes(p: u32, bits: u32) -> (u64, u64) {
    // Two shifts, since one by 64 is not defined.
    let first = (u64::from(p) << 1) << (63 - bits);
    (first, first | (u64::MAX >> bits))
}

/// What one input holds of one partition of the output.
#[derive(Default)]
struct Piece<'m> {
    keys: Vec<(u64, &'m [u8])>,
    /// The new values, one behind the other.
    values: Vec<u8>,
    value_width: usize,
}

impl<'m> Piece<'m> {
    /// Adds a record of input `i`.
    #[inline]
    fn push(
        &mut self,
        i: usize,
        input: &MergeInput<'_>,
        hash: u64,
        key: &'m [u8],
        value: &[u8],
    ) -> Result<()> {
        let mut new = [0; 64];
        if let Some(width) = map_value(i, input, value, &mut new)? {
            push(&mut self.keys, (hash, key))?;
            if self.values.capacity() - self.values.len() < width {
                let more = (self.values.len() / 4).max(width);
                reserve(&mut self.values, more)?;
            }
            self.values.extend_from_slice(&new[..width]);
            self.value_width = width;
        }
        Ok(())
    }
}

/// What the inputs hold of one partition.
struct MergedPart<'m> {
    inputs: &'m [MergeInput<'m>],
    /// For each input, where its records lie, if that is known.
    places: Vec<Option<Vec<RecordPlace>>>,
    streams: &'m [bool],
    collected: Option<CollectedPart>,
    read: &'m [AtomicU64],
    range: (u64, u64),
    /// One for each input, in their order.
    pieces: Vec<Piece<'m>>,
}

impl Part for MergedPart<'_> {
    fn prepare(&mut self) -> Result<()> {
        for (i, (input, places)) in self.inputs.iter().zip(&mut self.places).enumerate() {
            let table = input.table.table();
            let mut piece = Piece::default();
            if let Some(places) = places.take() {
                let hasher = table.footer().hasher;
                reserve(&mut piece.keys, places.len())?;
                let width = table.footer().value.width().max(8);
                reserve(&mut piece.values, places.len() * usize::from(width))?;
                for (n, place) in places.iter().enumerate() {
                    if let Some(ahead) = places.get(n + RECORDS_AHEAD) {
                        pkhash_simd::prefetch(table.as_bytes(), ahead.offset());
                    }
                    // It was found by `look_ahead`, in the same bytes.
                    let (key, value) = table.record_at(*place).ok_or_else(|| {
                        Error::table(input.table.name())(pkhash_core::Error::Corrupt {
                            what: "record that was there before",
                            offset: place.offset() as u64,
                            expected: table.as_bytes().len() as u64,
                            found: place.offset() as u64,
                        })
                    })?;
                    piece.push(i, input, hasher.hash(key), key, value.as_bytes())?;
                }
            } else if self.streams[i] {
                let mut read = 0;
                for record in table.range(self.range.0, self.range.1) {
                    let (hash, key, value) = record.map_err(Error::table(input.table.name()))?;
                    read += 1;
                    piece.push(i, input, hash, key, value.as_bytes())?;
                }
                self.read[i].fetch_add(read, Ordering::Relaxed);
            }
            self.pieces.push(piece);
        }
        Ok(())
    }

    fn entries<'p>(&'p self, entries: &mut Vec<Entry<'p>>) -> Result<()> {
        // Those of one key in the order of the inputs. Of one input, they are in order already.
        let mut others: Vec<(usize, Entry<'p>)> = Vec::new();
        if let Some(collected) = &self.collected {
            let mut count = 0;
            collected.each(|_| {
                count += 1;
                Ok(())
            })?;
            reserve(&mut others, count)?;
            collected.each(|entry| {
                let (number, value) = entry.value.split_first_chunk().unwrap_or((&[0; 4], &[]));
                others.push((u32::from_le_bytes(*number) as usize, Entry { value, ..entry }));
                Ok(())
            })?;
            // By key, too, since this sort needs no memory: one of an input comes after another of it
            // only if their keys differ.
            others.sort_unstable_by_key(|(input, entry)| (*input, entry.hash));
        }
        let mut others = others.into_iter().peekable();
        for (i, Piece { keys, values, value_width }) in self.pieces.iter().enumerate() {
            for (k, &(hash, key)) in keys.iter().enumerate() {
                let value = &values[k * value_width..(k + 1) * value_width];
                push(entries, Entry { hash, key, value })?;
            }
            while let Some((_, entry)) = others.next_if(|(input, _)| *input == i) {
                push(entries, entry)?;
            }
        }
        Ok(())
    }
}
