//! Building a table of keys that are in memory already, on all cores from the first step on.
//!
//! Keys are hashed, and their hashes with their numbers sorted by partition, a chunk of keys at a time.
//! A partition is then the parts of all chunks with its number; nothing but hashes and numbers is copied.

use std::ops::Range;

use pkhash_core::ValueKind;
use pkhash_core::builder::{Entry, KeyStats, Plan, sort_by};

use crate::budget::{Costs, partition_keys, window};
use crate::error::{Error, Result};
use crate::memory::reserve;
use crate::partition::{Builder, Built, Loader, Part};
use crate::publish::{Destination, Target};
use crate::threads::Pool;
use crate::writer::WriterOptions;

/// Keys that are hashed and split by one thread at a time: their hashes stay in its cache.
const CHUNK: usize = 1 << 16;

/// The hash of a key, and its number.
type Numbered = (u64, usize);

/// Builds a table of keys in memory and publishes it, or writes it elsewhere ([`Destination`]). The value of key i is `value(i)`, which
/// may be asked for more than once and must be the same each time; of
/// a key that occurs again, the values come in the order of the numbers.
///
/// Of the options, the folder for temporary files does not matter, since nothing is spilled. The memory is that
/// of the partitions that are being built; beside it and the keys, 16 bytes are taken for each key.
///
/// ```
/// use pkhash_std::{TableFile, WriterOptions, build_slice};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders.pkh");
/// let keys = ["order-17", "order-4", "order-256"];
/// build_slice(&keys, |i| (i as u32).to_le_bytes(), &path, &WriterOptions::default())?;
/// let table = TableFile::open(&path)?;
/// assert_eq!(table.get(b"order-4")?.and_then(|value| value.doc_id()), Some(1));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`TableWriter::publish`](crate::TableWriter::publish).
pub fn build_slice<'d, K: AsRef<[u8]> + Sync, const V: usize>(
    keys: &[K],
    value: impl Fn(usize) -> [u8; V] + Sync,
    into: impl Into<Destination<'d>>,
    options: &WriterOptions,
) -> Result<Built> {
    into.into().write(None, |target| build_into(keys, &value, target, options))
}

fn build_into<K: AsRef<[u8]> + Sync, F: Fn(usize) -> [u8; V] + Sync, const V: usize>(
    keys: &[K],
    value: &F,
    target: Target<'_>,
    options: &WriterOptions,
) -> Result<Built> {
    let Target { out, path, .. } = target;
    let table = &options.table;
    let partitions = (keys.len() / CHUNK).try_into().unwrap_or(u32::MAX);
    let pool = &Pool::new(options.threads, partitions);
    let integers = match table.value {
        pkhash_core::builder::ValueChoice::Fixed(value) => value.kind() == ValueKind::Integer,
        pkhash_core::builder::ValueChoice::Auto => true,
    };
    let mut numbered: Vec<Numbered> = Vec::new();
    reserve(&mut numbered, keys.len())?;
    numbered.resize(keys.len(), (0, 0));
    let count = |(c, (numbered, keys)): (usize, (&mut [Numbered], &[K]))| {
        let mut stats = KeyStats::default();
        for (i, (numbered, key)) in numbered.iter_mut().zip(keys).enumerate() {
            let (key, number) = (key.as_ref(), c * CHUNK + i);
            *numbered = (table.hasher.hash(key), number);
            let value = value(number);
            stats.add(key, if integers { &value } else { &[] });
        }
        stats
    };
    let chunks = numbered.chunks_mut(CHUNK).zip(keys.chunks(CHUNK)).enumerate().collect();
    let mut stats = KeyStats::default();
    for part in pool.map(chunks, count) {
        stats.merge(&part);
    }
    options.progress.check()?;
    let plan = table.plan(&stats)?;
    // Each chunk by partition, and where the partitions begin in it.
    let starts: Vec<Vec<u32>> =
        pool.map(numbered.chunks_mut(CHUNK).collect(), |chunk| split(chunk, &plan));
    // Hashes and numbers, twice while they are sorted, and values.
    let costs = Costs { prepared: (2 * size_of::<Numbered>() + V) as u64, ..Costs::default() };
    let builder = Builder {
        plan,
        on_duplicate: options.on_duplicate,
        pool,
        window: window(&plan, &stats, costs, options.memory as u64, pool.threads()),
        partition_keys: partition_keys(&plan, &stats),
        kernel: options.kernel,
        progress: &options.progress,
    };
    let mut loader = Slices { keys, value, numbered: &numbered, starts: &starts };
    builder.write(&mut loader, out, |source| Error::io("write", path)(source))
}

/// Sorts a chunk by partition, in place. Returns where each partition begins, and where the last one
/// ends.
fn split(chunk: &mut [Numbered], plan: &Plan) -> Vec<u32> {
    let mut starts = vec![0u32; plan.partitions() as usize + 1];
    for (hash, _) in &*chunk {
        starts[plan.partition_of(*hash) as usize + 1] += 1;
    }
    for p in 1..starts.len() {
        starts[p] += starts[p - 1];
    }
    let mut next = starts.clone();
    for p in 0..next.len() - 1 {
        while next[p] < starts[p + 1] {
            let at = next[p] as usize;
            let mine = &mut next[plan.partition_of(chunk[at].0) as usize];
            chunk.swap(at, *mine as usize);
            *mine += 1;
        }
    }
    starts
}

/// Loads partitions from the chunks.
struct Slices<'s, K, F> {
    keys: &'s [K],
    value: &'s F,
    numbered: &'s [Numbered],
    starts: &'s [Vec<u32>],
}

impl<'s, K: AsRef<[u8]> + Sync, F: Fn(usize) -> [u8; V] + Sync, const V: usize> Loader
    for Slices<'s, K, F>
{
    type Part = SlicePart<'s, K, F, V>;

    fn load(&mut self, p: u32) -> Result<Self::Part> {
        Ok(SlicePart {
            keys: self.keys,
            value: self.value,
            numbered: self.numbered,
            starts: self.starts,
            partition: p as usize,
            mine: Vec::new(),
            values: Vec::new(),
        })
    }
}

/// The keys of one partition.
struct SlicePart<'s, K, F, const V: usize> {
    keys: &'s [K],
    value: &'s F,
    numbered: &'s [Numbered],
    starts: &'s [Vec<u32>],
    partition: usize,
    /// Sorted by hash, key and number.
    mine: Vec<Numbered>,
    values: Vec<[u8; V]>,
}

impl<K: AsRef<[u8]> + Sync, F: Fn(usize) -> [u8; V] + Sync, const V: usize> Part
    for SlicePart<'_, K, F, V>
{
    const SORTED: bool = true;

    fn prepare(&mut self) -> Result<()> {
        let ranges = self.starts.iter().map(|starts| -> Range<usize> {
            starts[self.partition] as usize..starts[self.partition + 1] as usize
        });
        let keys = ranges.clone().map(|range| range.len()).sum();
        let mut spare = Vec::new();
        reserve(&mut self.mine, keys)?;
        reserve(&mut self.values, keys)?;
        reserve(&mut spare, keys)?;
        for (chunk, range) in self.numbered.chunks(CHUNK).zip(ranges) {
            self.mine.extend_from_slice(&chunk[range]);
        }
        spare.resize(keys, (0, 0));
        let key = |i: usize| self.keys[i].as_ref();
        // The numbers of one key in order: splitting did not keep it.
        let less = |a: &Numbered, b: &Numbered| key(a.1).cmp(key(b.1)).then(a.1.cmp(&b.1));
        sort_by(&mut self.mine, &mut spare, |(hash, _)| *hash, less)?;
        self.values.extend(self.mine.iter().map(|(_, i)| (self.value)(*i)));
        Ok(())
    }

    fn entries<'p>(&'p self, entries: &mut Vec<Entry<'p>>) -> Result<()> {
        let mine = self.mine.iter().zip(&self.values);
        reserve(entries, mine.len())?;
        entries.extend(mine.map(|(&(hash, i), value)| Entry {
            hash,
            key: self.keys[i].as_ref(),
            value,
        }));
        Ok(())
    }
}
