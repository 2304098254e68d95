//! Merging tables into one.
//!
//! Every table lies in the order of its hashes, or at least its partitions do, so partition p of the
//! output is made from one range of slots of each input. Nothing is spilled; memory holds the partitions
//! that are being built.

mod doc_map;
mod inputs;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pkhash_core::builder::{
    Entry, KeyStats, LayoutChoice, PerfectShape, Plan, TableOptions, ValueChoice,
};
use pkhash_core::{KeyHasher, RecordPlace, ValueFormat, ValueKind};
use pkhash_simd::AnyKernel;

use crate::budget::{Costs, partition_keys, window};
use crate::collect::{Collector, Encoded, collected_memory};
use crate::error::{Error, Result};
use crate::partition::{Builder, Built, OnDuplicate};
use crate::progress::Progress;
use crate::publish::{Destination, Target};
use crate::table_file::TableFile;
use crate::threads::Pool;
use crate::writer::{DEFAULT_MEMORY, check_memory};

use doc_map::map_value;
pub use doc_map::{DELETED, DocMap};
use inputs::{Inputs, NUMBER, coarser};

/// A table to merge, and what becomes of its doc IDs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MergeInput<'a> {
    /// The table.
    pub table: &'a TableFile,
    /// Old doc IDs to new ones.
    pub docs: DocMap,
}

impl<'a> MergeInput<'a> {
    /// A table whose docs keep their IDs.
    #[must_use]
    pub const fn new(table: &'a TableFile) -> Self {
        Self { table, docs: DocMap::Keep }
    }

    /// Old doc IDs to new ones.
    #[must_use]
    pub fn docs(mut self, docs: DocMap) -> Self {
        self.docs = docs;
        self
    }
}

/// How tables are merged. The kind of the values is that of the inputs, which share it.
#[derive(Clone, Debug)]
#[non_exhaustive]
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
    pub hasher: Option<KeyHasher>,
    /// Bytes that partitions under construction may take together, with keys that are hashed anew; what the
    /// process needs besides is a few MB, and the inputs themselves. At least
    /// [`MIN_MEMORY`](crate::MIN_MEMORY). The partition that is being built must fit.
    pub memory: usize,
    /// Where keys go that are hashed anew and outgrow the budget; `None`: the folder of the merged table, or
    /// the system's folder for temporary files if it is not published.
    pub temp_dir: Option<PathBuf>,
    /// Threads that build: see [`WriterOptions::threads`](crate::WriterOptions::threads).
    pub threads: usize,
    /// The kernel that builds; `None`: the detected one.
    pub kernel: Option<AnyKernel>,
    /// What to do with a key that lives in several inputs.
    pub on_duplicate: OnDuplicate,
    /// Progress and cancelling.
    pub progress: Progress,
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
            progress: Progress::default(),
        }
    }
}

pkhash_core::setters!(MergeOptions {
    layout: impl Into<LayoutChoice>,
    value: impl Into<ValueChoice>,
    filter_bits: impl Into<Option<u8>>,
    partition_bits: impl Into<Option<u8>>,
    packed: bool,
    shape: PerfectShape,
    hasher: impl Into<Option<KeyHasher>>,
    memory: usize,
    temp_dir: impl Into<Option<PathBuf>>,
    threads: usize,
    kernel: impl Into<Option<AnyKernel>>,
    on_duplicate: OnDuplicate,
    progress: Progress,
});

/// Merges tables. The result is published, also at the path of an input: the inputs stay as they are, open, until
/// their [`TableFile`]s are dropped; or it goes elsewhere ([`Destination`]): into a file that is published with its
/// doc maps ([`Publication::commit_all`](crate::Publication::commit_all)) or with its companion.
///
/// # Errors
/// [`Error::Mismatch`] if the inputs' kinds of values differ; [`Error::DocMap`] for a doc ID
/// beyond a map; [`Error::DuplicateKey`]; [`Error::Table`]; [`Error::Io`]; [`Error::Cancelled`]. A
/// path then has what it had before, and no temporary file is left.
pub fn merge<'d>(
    inputs: &[MergeInput<'_>],
    into: impl Into<Destination<'d>>,
    options: &MergeOptions,
) -> Result<Built> {
    into.into().write(None, |target| merge_into(inputs, target, options))
}

fn merge_into(
    inputs: &[MergeInput<'_>],
    target: Target<'_>,
    options: &MergeOptions,
) -> Result<Built> {
    let Target { out, path, folder } = target;
    check_memory(options.memory)?;
    let first = inputs.first().map(|input| *input.table.footer());
    check_inputs(inputs)?;
    let value = match (options.value, &first) {
        (ValueChoice::Auto, Some(first)) if first.value().kind() != ValueKind::Integer => {
            ValueChoice::Fixed(first.value())
        }
        (value, _) => value,
    };
    let hasher = options.hasher.or(first.map(|first| first.hasher())).unwrap_or(KeyHasher::new(0));
    let table = TableOptions::default()
        .layout(options.layout)
        .value(value)
        .filter_bits(options.filter_bits.or(first.map(|first| first.filter_bits())))
        .hasher(hasher)
        .partition_bits(options.partition_bits)
        .packed(options.packed)
        .shape(options.shape);
    let pool = Pool::new(options.threads, 1 << pkhash_core::MAX_PARTITION_BITS);
    let mut stats = KeyStats::default();
    for (i, input) in inputs.iter().enumerate() {
        options.progress.check()?;
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
        let collector =
            collect(inputs, &streams, most, hasher, &read, temp_dir, &options.progress)?;
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
        progress: &options.progress,
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
fn streams(
    inputs: &[MergeInput<'_>],
    plan: &Plan,
    hasher: KeyHasher,
    most: u64,
) -> (Vec<bool>, u64) {
    let mut ahead = 0u64;
    let stream = |input: &MergeInput<'_>| {
        let footer = input.table.footer();
        let same = footer.hasher().seed() == hasher.seed()
            && footer.hasher().check_value() == hasher.check_value();
        if !same || coarser(plan, footer).is_none() {
            return same;
        }
        let keys = footer.keys() >> footer.partition_bits();
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
    hasher: KeyHasher,
    read: &[AtomicU64],
    temp_dir: Option<&Path>,
    progress: &Progress,
) -> Result<Collector> {
    // All inputs have values of one width, but for integers.
    let value = inputs.first().map_or(ValueFormat::narrowest(0), |i| i.table.footer().value());
    let width = if value.kind() == ValueKind::Integer { 8 } else { value.width().into() };
    let mut collector = Collector::new(memory, NUMBER + width);
    for (i, input) in inputs.iter().enumerate().filter(|(i, _)| !streams[*i]) {
        let table = input.table.table();
        let number = u32::try_from(i).unwrap_or(u32::MAX).to_le_bytes();
        let mut value = [0; NUMBER + 64];
        value[..NUMBER].copy_from_slice(&number);
        for p in 0..table.footer().partitions() {
            progress.check()?;
            for record in table.iter_partition(p) {
                let (key, old) = record.map_err(Error::table(input.table.name()))?;
                read[i].fetch_add(1, Ordering::Relaxed);
                let mut new = [0; 64];
                if map_value(i, input, old.as_bytes(), &mut new)?.is_some() {
                    value[NUMBER..NUMBER + width].copy_from_slice(&new[..width]);
                    let value = &value[..NUMBER + width];
                    let encoded = Encoded { hash: hasher.hash(key), value, key };
                    collector.push(&encoded, temp_dir, progress)?;
                }
            }
        }
    }
    Ok(collector)
}

/// What all inputs must share with the first one.
fn check_inputs(inputs: &[MergeInput<'_>]) -> Result<()> {
    let Some((first, others)) = inputs.split_first() else { return Ok(()) };
    let first = first.table.footer().value();
    for (i, other) in others.iter().enumerate() {
        let other = other.table.footer().value();
        // Integers are widened as needed.
        let integers = [first, other].map(|value| value.kind() == ValueKind::Integer);
        if integers != [true, true] && first != other {
            return Err(Error::Values { input: i + 1, expected: first, found: other });
        }
    }
    for (input, merge) in inputs.iter().enumerate() {
        let width = merge.table.footer().value().width();
        if merge.docs != DocMap::Keep && !merge.table.footer().value().has_doc_ids() {
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
    pool.try_map(0..table.footer().partitions(), check).map(|_| ())
}

/// A table with good checksums that was written wrongly: a misplaced key ends a range too early, or is
/// in none. Then fewer records were read than there are, and the merged table would lack sound keys.
fn check_read(inputs: &[MergeInput<'_>], read: &[AtomicU64]) -> Result<()> {
    for (input, read) in inputs.iter().zip(read) {
        let (footer, found) = (input.table.footer(), read.load(Ordering::Relaxed));
        if found != footer.keys() {
            let source = pkhash_core::Error::Corrupt {
                what: "number of keys that were read",
                offset: footer.file_len(),
                expected: footer.keys(),
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
        DocMap::Offset(_) if footer.value().kind() != ValueKind::Integer => {}
        DocMap::Offset(base) => {
            if footer.keys() > 0 {
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
            let parts = pool.try_map(0..footer.partitions(), part)?;
            stats = KeyStats::default();
            for part in parts {
                stats.merge(&part);
            }
        }
    }
    if footer.value().kind() != ValueKind::Integer {
        stats.max_value = 0;
    }
    Ok(stats)
}
