//! Workloads for the benches: seeded keys, tables, and the limits of the machine to compare with.

// Mapping is the only exception: `map` and `map_file`.
#![deny(unsafe_code)]

use pkhash_core::builder::{self, Entry, TableOptions};
use pkhash_core::{Layout, Scalar, Table, Value, ValueFormat};
use pkhash_simd::AnyKernel;

pub mod row;

/// Maps a table that a bench has built.
///
/// # Panics
/// If it is none.
#[must_use]
#[allow(unsafe_code)]
pub fn map(path: &std::path::Path) -> pkhash_std::TableFile {
    // SAFETY: tables lie in temporary folders of the benches, which write over none of them.
    unsafe { pkhash_std::TableFile::open_mapped(path) }.expect("a sound table")
}

/// Maps a file that a bench has written, for another crate than pkhash.
///
/// # Panics
/// If there is none.
#[cfg(feature = "peers")]
#[must_use]
#[allow(unsafe_code)]
pub fn map_file(path: &std::path::Path) -> memmap2::Mmap {
    let file = std::fs::File::open(path).expect("a file");
    // SAFETY: as for `map`.
    unsafe { memmap2::Mmap::map(&file) }.expect("room for a mapping")
}

/// SplitMix64: the stream of all random numbers here.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = self.0;
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// A random 16-byte key.
    pub fn key(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_le_bytes()
    }
}

/// A key of 16 bytes.
pub type Key = [u8; 16];

/// `n` random keys; the value of key i is i. Two are equal with a chance of 2^-80 or so, and then
/// building the table fails.
#[must_use]
pub fn keys(n: usize) -> Vec<Key> {
    let mut random = Random::new(1);
    (0..n).map(|_| random.key()).collect()
}

/// Keys to ask for, `absent` of every 100 not among `keys`, and the answers.
#[must_use]
pub fn queries(keys: &[Key], n: usize, absent: u64) -> (Vec<Key>, Vec<Option<u32>>) {
    queries_of(keys, n, absent, Random::key)
}

/// [`queries`] with absent keys from `other`.
#[must_use]
pub fn queries_of<K: Copy>(
    keys: &[K],
    n: usize,
    absent: u64,
    mut other: impl FnMut(&mut Random) -> K,
) -> (Vec<K>, Vec<Option<u32>>) {
    let mut random = Random::new(2);
    (0..n)
        .map(|_| {
            if random.below(100) < absent {
                (other(&mut random), None)
            } else {
                let i = random.below(keys.len() as u64);
                (keys[i as usize], Some(i as u32))
            }
        })
        .unzip()
}

/// Bytes that begin at a cache line, as a heap copy and a mapping do.
#[derive(Clone, Debug)]
pub struct Lines {
    memory: Vec<u8>,
    from: usize,
}

impl Lines {
    /// So many zero bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let memory = vec![0; len + 63];
        let from = memory.as_ptr().align_offset(64);
        Self { memory, from }
    }
}

impl std::ops::Deref for Lines {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.from..self.memory.len() - 63 + self.from]
    }
}

impl std::ops::DerefMut for Lines {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let to = self.memory.len() - 63 + self.from;
        &mut self.memory[self.from..to]
    }
}

/// A table of this layout with 4-byte values.
///
/// # Panics
/// Never: 4 bytes is a width.
#[must_use]
pub fn options(layout: Layout, filter_bits: u8) -> TableOptions {
    TableOptions::default()
        .layout(layout)
        .filter_bits(filter_bits)
        .value(ValueFormat::integer(4).expect("a width"))
}

/// Builds a table in memory, on one thread, with 4-byte values.
///
/// # Panics
/// If the keys cannot be built.
#[must_use]
pub fn table<K: AsRef<[u8]>>(keys: &[K], options: &TableOptions) -> Lines {
    let values: Vec<[u8; 4]> = (0..keys.len() as u32).map(u32::to_le_bytes).collect();
    let mut entries: Vec<Entry<'_>> =
        keys.iter().zip(&values).map(|(key, value)| options.entry(key.as_ref(), value)).collect();
    let mut spare = vec![Entry::default(); keys.len()];
    builder::sort(&mut entries, &mut spare).expect("scratch is long enough");
    let len = builder::table_len(options, &entries).expect("keys that fit the options");
    let mut out = Lines::new(len);
    let mut scratch = vec![0; builder::scratch_len(keys.len())];
    builder::build(Scalar, options, &mut entries, &mut spare, &mut scratch, &mut out)
        .expect("keys that fit the options");
    out
}

/// The doc IDs of a batch's answers.
#[must_use]
pub fn doc_ids(answers: &[Option<Value<'_>>]) -> Vec<Option<u32>> {
    answers.iter().map(|value| value.and_then(Value::doc_id)).collect()
}

/// Checks that a table holds its keys.
///
/// # Panics
/// If it does not.
pub fn check<K: AsRef<[u8]>>(table: &Table<'_>, keys: &[K]) {
    table.verify().expect("a sound table");
    assert_eq!(table.len(), keys.len() as u64);
}

/// The limit probe: random 64-byte lines of `buffer`, 32 prefetched before they are read.
/// Returns a checksum of what was read, so that nothing can be left out.
#[inline(never)]
#[must_use]
pub fn independent_reads(buffer: &[u8], lines: &[u32]) -> u64 {
    const IN_FLIGHT: usize = 32;
    let mut sum = 0u64;
    for chunk in lines.chunks(IN_FLIGHT) {
        for line in chunk {
            pkhash_simd::prefetch(buffer, *line as usize * 64);
        }
        for line in chunk {
            let at = *line as usize * 64;
            let word = buffer[at..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            sum = sum.wrapping_add(word);
        }
    }
    sum
}

/// As [`independent_reads`], but each line is known only when the one before was read.
#[inline(never)]
#[must_use]
pub fn dependent_reads(buffer: &[u8], lines: &[u32]) -> u64 {
    let mut sum = 0u64;
    for line in lines {
        // The buffer holds zeros in bit 63, which the compiler cannot know.
        let at = (u64::from(*line) ^ (sum >> 63)) as usize * 64;
        let word = buffer[at..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        sum = sum.wrapping_add(word & 0xffff);
    }
    sum
}

/// Keys of one batch.
const BATCH: usize = 4096;

/// Looks up keys one by one; the sum of the doc IDs, 2^40 for an absent key.
///
/// # Panics
/// If the table is damaged.
#[must_use]
pub fn singly<K: AsRef<[u8]>>(kernel: AnyKernel, table: &Table<'_>, keys: &[K]) -> u64 {
    let mut sum = 0;
    for key in keys {
        let value = table.get(kernel, key.as_ref()).expect("a sound table");
        sum += value.and_then(Value::doc_id).map_or(1 << 40, u64::from);
    }
    sum
}

/// Looks up keys in batches, and reads doc IDs from the values; the same sum.
///
/// # Panics
/// If the table is damaged.
#[must_use]
pub fn in_batches<K: AsRef<[u8]>>(kernel: AnyKernel, table: &Table<'_>, keys: &[K]) -> u64 {
    let mut out = vec![None::<Value<'_>>; BATCH];
    let mut sum = 0;
    for keys in keys.chunks(BATCH) {
        let out = &mut out[..keys.len()];
        table.get_batch(kernel, keys, out).expect("a sound table");
        for value in out {
            sum += value.and_then(Value::doc_id).map_or(1 << 40, u64::from);
        }
    }
    sum
}

/// Looks up the doc IDs of keys in batches; the same sum.
///
/// # Panics
/// If the table is damaged, or its values are no doc IDs.
#[must_use]
pub fn to_doc_ids<K: AsRef<[u8]>>(kernel: AnyKernel, table: &Table<'_>, keys: &[K]) -> u64 {
    let mut out = vec![None::<u32>; BATCH];
    let mut sum = 0;
    for keys in keys.chunks(BATCH) {
        let out = &mut out[..keys.len()];
        table.get_batch(kernel, keys, out).expect("doc IDs");
        for doc_id in out {
            sum += doc_id.map_or(1 << 40, u64::from);
        }
    }
    sum
}
