//! The perfect layout beside inline, and beside what a Rust user would write today: the crate `ptr_hash`
//! and a flat array of records, with the same hash, the same prefetching and the same answers.
//!
//! `cargo run --release -p pkhash-benches --features peers --bin peers -- [keys] [rounds] [heap|huge]`

#![forbid(unsafe_code)]

use std::hint::black_box;

use pkhash_benches::{
    Key, Lines, Random, check, in_batches, independent_reads, keys, options, queries, row::Rows,
    singly, table, to_doc_ids,
};
use pkhash_core::build::Options;
use pkhash_core::{Layout, Table};
use pkhash_simd::{Kernel, prefetch};
use pkhash_std::{Mode, OpenOptions, TableWriter, WriterOptions, build_slice_to};
use ptr_hash::bucket_fn::Linear;
use ptr_hash::hash::KeyHasher;
use ptr_hash::{PtrHash, PtrHashParams};

const QUERIES: usize = 1 << 20;
const BATCH: usize = 4096;
const WIDTH: usize = 20;

/// XXH3 of a key, as pkhash has it.
#[derive(Clone)]
struct Xxh3;

impl KeyHasher<Key> for Xxh3 {
    type H = u64;

    #[inline(always)]
    fn hash(key: &Key, seed: u64) -> u64 {
        pkhash_core::Hasher::new(seed).hash(key)
    }
}

type Function = PtrHash<Key, Linear, Vec<u32>, Xxh3, Vec<u8>, false, false>;

/// A perfect hash function and records `doc ID | key` in its order, `PER_LINE` in a line of 64 bytes, or
/// back to back if that is 0.
struct Peer<const PER_LINE: usize> {
    function: Function,
    records: Lines,
}

impl<const PER_LINE: usize> Peer<PER_LINE> {
    #[inline(always)]
    const fn at(slot: usize) -> usize {
        match slot.checked_div(PER_LINE) {
            None => slot * WIDTH,
            Some(line) => line * 64 + slot % PER_LINE * WIDTH,
        }
    }

    fn build(keys: &[Key]) -> Self {
        let function = Function::new(keys, PtrHashParams::default_fast());
        let slots = function.max_index();
        let mut records = Lines::new(Self::at(slots + PER_LINE) + 64);
        // The slots of the next keys are computed before the records of the first are written.
        let mut doc = 0u32;
        let bytes: &mut [u8] = &mut records;
        function.index_stream::<32, _>(keys).for_each(|slot| {
            let record = &mut bytes[Self::at(slot)..][..WIDTH];
            record[..4].copy_from_slice(&doc.to_le_bytes());
            record[4..].copy_from_slice(&keys[doc as usize]);
            doc += 1;
        });
        Self { function, records }
    }

    #[inline(always)]
    fn compare(&self, at: usize, key: &Key) -> Option<u32> {
        let record: &[u8; WIDTH] = self.records[at..].first_chunk()?;
        let (doc, found) = record.split_first_chunk::<4>()?;
        (found == key).then(|| u32::from_le_bytes(*doc))
    }

    #[inline(never)]
    fn batch(&self, keys: &[Key], out: &mut [Option<u32>]) {
        const AHEAD: usize = 32;
        let mut ring = [0usize; AHEAD];
        let mut i = 0usize;
        self.function.index_stream::<AHEAD, _>(keys).for_each(|slot| {
            let at = Self::at(slot);
            prefetch(&self.records, at);
            if PER_LINE == 0 {
                prefetch(&self.records, at + WIDTH - 1);
            }
            if let Some(before) = i.checked_sub(AHEAD) {
                out[before] = self.compare(ring[i % AHEAD], &keys[before]);
            }
            ring[i % AHEAD] = at;
            i += 1;
        });
        for before in i.saturating_sub(AHEAD)..i {
            out[before] = self.compare(ring[before % AHEAD], &keys[before]);
        }
    }

    fn in_batches(&self, keys: &[Key]) -> u64 {
        let mut out = vec![None; BATCH];
        let mut sum = 0;
        for keys in keys.chunks(BATCH) {
            let out = &mut out[..keys.len()];
            self.batch(keys, out);
            sum += out.iter().map(|doc| doc.map_or(1 << 40, u64::from)).sum::<u64>();
        }
        sum
    }

    fn singly(&self, keys: &[Key]) -> u64 {
        keys.iter()
            .map(|key| {
                let doc = self.compare(Self::at(self.function.index(key)), key);
                doc.map_or(1 << 40, u64::from)
            })
            .sum()
    }
}

/// A table in memory by pkhash-std's writer, from keys in memory.
fn write(keys: &[Key], threads: usize) -> Vec<u8> {
    let table = options(Layout::Perfect, 0);
    let options = WriterOptions { table, threads, memory: 4 << 30, ..WriterOptions::default() };
    let mut writer = TableWriter::new(options).expect("sound options");
    for (doc, key) in keys.iter().enumerate() {
        writer.add(key, doc as u64).expect("memory is enough");
    }
    let mut out = Vec::with_capacity(keys.len() * 23 + 4096);
    writer.write_to(&mut out).expect("distinct keys");
    out
}

/// Building, by whom and on how many threads.
fn builds(keys: &[Key], rounds: usize) {
    let mut rows = Rows::default();
    for _ in 0..rounds {
        rows.time("ptr_hash + array, build", keys.len(), || {
            black_box(Peer::<3>::build(keys));
        });
        rows.time("ptr_hash + packed, build", keys.len(), || {
            black_box(Peer::<0>::build(keys));
        });
        rows.time("perfect by the writer, one thread", keys.len(), || {
            black_box(write(keys, 1));
        });
        rows.time("perfect by the writer, two threads", keys.len(), || {
            black_box(write(keys, 2));
        });
        for (name, threads) in [("one thread", 1), ("two threads", 2)] {
            rows.time(&format!("perfect by build_slice, {name}"), keys.len(), || {
                let table = options(Layout::Perfect, 0);
                let options = WriterOptions { table, threads, ..WriterOptions::default() };
                let mut out = Vec::with_capacity(keys.len() * 23 + 4096);
                let value = |i: usize| (i as u32).to_le_bytes();
                build_slice_to(keys, value, &mut out, &options).expect("distinct keys");
                black_box(out);
            });
        }
        rows.time("perfect by core, from unsorted keys", keys.len(), || {
            black_box(table(keys, &options(Layout::Perfect, 0)));
        });
    }
    rows.print();
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n: usize = args.next().map_or(10_000_000, |n| n.parse().expect("a number of keys"));
    let rounds: usize = args.next().map_or(7, |n| n.parse().expect("a number of rounds"));
    let mode = match args.next().as_deref() {
        None | Some("heap") => Mode::Heap,
        Some("huge") => Mode::HugePages,
        Some(other) => panic!("heap or huge, not {other}"),
    };
    // `ptr_hash` builds on all threads of the pool.
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("the first pool");
    let keys = keys(n);
    if mode == Mode::Heap && n <= 10_000_000 {
        builds(&keys, rounds);
    }
    let work = [("hits", 0), ("90 % misses", 90)]
        .map(|(name, absent)| (name, queries(&keys, QUERIES, absent)));

    let packed_peer = Peer::<0>::build(&keys);
    let peer = Peer::<3>::build(&keys);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = [
        ("inline", options(Layout::Inline, 0)),
        ("perfect", options(Layout::Perfect, 0)),
        ("perfect packed", Options { packed: true, ..options(Layout::Perfect, 0) }),
    ]
    .map(|(name, options)| {
        let bytes = table(&keys, &options);
        check(&Table::open(&bytes).expect("a sound table"), &keys);
        let each = bytes.len() as f64 / n as f64;
        println!("# {name}: {each:.2} bytes a key");
        let path = folder.path().join(name);
        std::fs::write(&path, &*bytes).expect("room for a table");
        (name, OpenOptions::new().mode(mode).open(&path).expect("a sound table"))
    });
    let kernel = Kernel::detect();
    let limit_of = files[0].1.table().as_bytes();
    let mut random = Random::new(3);
    let lines: Vec<u32> =
        (0..QUERIES).map(|_| random.below((limit_of.len() / 64) as u64) as u32).collect();

    let mut rows = Rows::default();
    for round in 0..=rounds {
        // The first round warms up.
        let mut discard = Rows::default();
        let rows = if round == 0 { &mut discard } else { &mut rows };
        rows.time("limit: independent reads", QUERIES, || {
            black_box(independent_reads(limit_of, &lines));
        });
        for (what, (asked, answers)) in &work {
            let expected: u64 = answers.iter().map(|a| a.map_or(1 << 40, u64::from)).sum();
            let mut time = |name: &str, how: &str, work: &dyn Fn() -> u64| {
                rows.time(&format!("{name}, {how} {what}"), QUERIES, || {
                    assert_eq!(work(), expected);
                });
            };
            for (name, file) in &files {
                let table = file.table();
                time(name, "batch", &|| in_batches(kernel, &table, asked));
                time(name, "batch to doc IDs,", &|| to_doc_ids(kernel, &table, asked));
                time(name, "single", &|| singly(kernel, &table, asked));
            }
            time("ptr_hash + array", "batch to doc IDs,", &|| peer.in_batches(asked));
            time("ptr_hash + array", "single", &|| peer.singly(asked));
            time("ptr_hash + packed", "batch to doc IDs,", &|| packed_peer.in_batches(asked));
            time("ptr_hash + packed", "single", &|| packed_peer.singly(asked));
        }
    }
    rows.print();
}
