//! Many equal segments: the filtered original layout, perfect tables, and perfect tables behind a segment
//! map; batches of 4,000 keys, 10 % of them absent; then 15 segments of which a share of the keys is
//! in two. Before that, opening 100 tables, and merging 15 of them
//! on two threads, with the peak of the process's own memory (where the system tells it).
//!
//! `cargo run --release -p pkhash-benches --bin segments -- [keys] [rounds] [segments …]`

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pkhash_benches::{Key, Random, independent_reads, keys, map, options, queries, row::Rows};
use pkhash_core::builder::{TableOptions, sort_by};
use pkhash_core::{HashedKeys, KeyHasher, Layout, Value};
use pkhash_std::{
    DocMap, Hit, MergeInput, MergeOptions, Segment, SegmentMapOptions, SegmentSet, TableFile,
    WriterOptions, build_slice, merge,
};

const QUERIES: usize = 250 * BATCH;

/// Keys of a batch, as in the search benchmark's task *PKLookup*.
const BATCH: usize = 4000;

/// Keys that go through all segments together, in the form that the design calls chunk by chunk.
const CHUNK: usize = 32;

/// Builds tables of `keys`, an equal share in each.
fn build(folder: &Path, keys: &[Key], segments: usize, table: &TableOptions) -> Vec<PathBuf> {
    let shares = keys.chunks(keys.len().div_ceil(segments)).enumerate();
    let tables = shares.map(|(i, share)| {
        let path = folder.join(format!("{i}.pkh"));
        let options = WriterOptions::default().table(*table);
        build_slice(share, |i| (i as u32).to_le_bytes(), &path, &options).expect("a table");
        path
    });
    tables.collect()
}

/// Segments of the sets whose keys are in two.
const DUPLICATED: usize = 15;

/// A set of perfect tables behind a segment map; of the keys so many of 100 are in a second one, too.
fn with_duplicates(folder: &Path, keys: &[Key], percent: u64) -> SegmentSet {
    let mut shares = vec![Vec::new(); DUPLICATED];
    let mut random = Random::new(5);
    for (i, key) in keys.iter().enumerate() {
        let first = i % DUPLICATED;
        shares[first].push(*key);
        if random.below(100) < percent {
            let other = 1 + random.below(DUPLICATED as u64 - 1) as usize;
            shares[(first + other) % DUPLICATED].push(*key);
        }
    }
    let mut paths = Vec::new();
    for (i, share) in shares.into_iter().enumerate() {
        let path = folder.join(format!("{percent}-{i}.pkh"));
        let table = options(Layout::Perfect, 0);
        let options = WriterOptions::default().table(table);
        build_slice(&share, |i| (i as u32).to_le_bytes(), &path, &options).expect("a table");
        paths.push(path);
    }
    let set = SegmentSet::open(&paths).expect("sound tables");
    paths.iter().for_each(|path| std::fs::remove_file(path).expect("a file"));
    set.with_segment_map(&SegmentMapOptions::default()).expect("sound tables")
}

/// A set of such tables, in memory.
fn set(folder: &Path, keys: &[Key], segments: usize, table: &TableOptions) -> SegmentSet {
    let paths = build(folder, keys, segments, table);
    let set = SegmentSet::open(&paths).expect("sound tables");
    // The next set has the names again.
    paths.iter().for_each(|path| std::fs::remove_file(path).expect("a file"));
    set
}

/// The process's own memory in MB: no mapped files. 0 where the system does not tell.
fn own_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kb.unwrap_or(0) / 1024
}

/// Merges 15 mapped tables into one file.
fn merging(folder: &Path, keys: &[Key], rounds: usize) {
    let paths = build(folder, keys, 15, &options(Layout::Perfect, 0));
    let tables: Vec<TableFile> = paths.iter().map(|path| map(path)).collect();
    let mut base = 0;
    let inputs: Vec<MergeInput<'_>> = tables
        .iter()
        .map(|table| {
            let docs = DocMap::Offset(base);
            base += table.footer().keys();
            MergeInput::new(table).docs(docs)
        })
        .collect();
    let options = MergeOptions::default().threads(2);
    let (mut times, mut peak) = (Vec::new(), 0);
    for _ in 0..rounds {
        let before = own_memory();
        let done = AtomicBool::new(false);
        let most = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !done.load(Ordering::Relaxed) {
                    most = most.max(own_memory());
                    std::thread::sleep(Duration::from_millis(1));
                }
                most
            });
            let began = Instant::now();
            merge(&inputs, folder.join("merged.pkh"), &options).expect("sound tables");
            times.push(keys.len() as f64 / began.elapsed().as_secs_f64() / 1e6);
            done.store(true, Ordering::Relaxed);
            watch.join().expect("a thread that only reads")
        });
        peak = peak.max(most.saturating_sub(before));
    }
    times.sort_by(f64::total_cmp);
    println!(
        "# merging 15 tables on 2 threads: {:.1} M keys/s (min {:.1}, max {:.1}); at most {peak} MB of \
         memory beside the mapped tables",
        times[times.len() / 2],
        times[0],
        times[times.len() - 1]
    );
}

/// Opens 100 mapped tables.
fn opening(folder: &Path, keys: &[Key], rounds: usize) {
    let paths = build(folder, keys, 100, &options(Layout::Perfect, 0));
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            let segments = paths.iter().map(|path| Segment::from(map(path)));
            let set = SegmentSet::new(segments.collect::<Vec<_>>()).expect("sound tables");
            assert_eq!(set.keys(), keys.len() as u64);
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "# opening 100 mapped tables: {:.2} ms (min {:.2}, max {:.2})",
        times[times.len() / 2],
        times[0],
        times[times.len() - 1]
    );
}

/// Keys found, batch by batch.
fn in_batches(set: &SegmentSet, asked: &[Key]) -> usize {
    let mut out = vec![None::<Hit<'_>>; BATCH];
    asked
        .chunks(BATCH)
        .map(|keys| set.get_batch(keys, &mut out[..keys.len()]).expect("sound tables"))
        .sum()
}

/// The same without a [`SegmentSet`]: a few keys at a time through all segments, those that are found
/// dropping out.
fn chunk_by_chunk(set: &SegmentSet, asked: &[Key]) -> usize {
    let mut found = 0;
    for keys in asked.chunks(CHUNK) {
        let mut keys: Vec<&[u8]> = keys.iter().map(<[u8; 16]>::as_slice).collect();
        let mut hashes: Vec<u64> = keys.iter().map(|key| KeyHasher::new(0).hash(key)).collect();
        let mut values = [None::<Value<'_>>; CHUNK];
        for segment in set.segments() {
            let values = &mut values[..keys.len()];
            let table = segment.table();
            if table
                .get_batch(HashedKeys { keys: &keys, hashes: &hashes }, values)
                .expect("a sound table")
                == 0
            {
                continue;
            }
            let mut kept = 0;
            for i in 0..keys.len() {
                (keys[kept], hashes[kept]) = (keys[i], hashes[i]);
                kept += usize::from(values[i].is_none());
            }
            found += keys.len() - kept;
            keys.truncate(kept);
            hashes.truncate(kept);
            if keys.is_empty() {
                break;
            }
        }
    }
    found
}

fn singly(set: &SegmentSet, asked: &[Key]) -> usize {
    asked.iter().filter(|key| set.get(*key).expect("sound tables").is_some()).count()
}

fn in_set(set: &SegmentSet, asked: &[Key]) -> usize {
    asked.chunks(BATCH).map(|keys| set.in_set(keys).expect("sound tables").len()).sum()
}

/// What the in-set query does before it asks: hash, sort, drop repeats.
fn sorted(asked: &[Key]) -> usize {
    let mut len = 0;
    for keys in asked.chunks(BATCH) {
        let hash = |i: usize| KeyHasher::new(0).hash(&keys[i]);
        let mut order: Vec<(u64, usize)> = (0..keys.len()).map(|i| (hash(i), i)).collect();
        let mut spare = vec![(0, 0); order.len()];
        sort_by(&mut order, &mut spare, |(hash, _)| *hash, |a, b| keys[a.1].cmp(&keys[b.1]))
            .expect("scratch is long enough");
        order.dedup_by_key(|(_, i)| keys[*i]);
        len += black_box(order).len();
    }
    len
}

/// What it does behind: the docs of each batch in order. `docs` are in the order of the keys' hashes, as
/// lookups have found them.
fn sorted_docs(docs: &[u64]) -> usize {
    let sort = |docs: &[u64]| {
        let mut docs = docs.to_vec();
        docs.sort_unstable();
        black_box(docs).len()
    };
    docs.chunks(BATCH * 9 / 10).map(sort).sum()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n: usize = args.next().map_or(10_000_000, |n| n.parse().expect("a number of keys"));
    let rounds: usize = args.next().map_or(5, |n| n.parse().expect("a number of rounds"));
    let mut numbers: Vec<usize> = args.map(|n| n.parse().expect("a number of segments")).collect();
    if numbers.is_empty() {
        numbers = vec![15, 60];
    }
    let keys = keys(n);
    let (asked, answers) = queries(&keys, QUERIES, 10);
    let expected = answers.iter().flatten().count();
    let mut random = Random::new(3);
    let limit_of = vec![1u8; 220 << 20];
    let lines: Vec<u32> =
        (0..QUERIES).map(|_| random.below((limit_of.len() / 64) as u64) as u32).collect();
    let folder = tempfile::tempdir().expect("a folder");
    opening(folder.path(), &keys, rounds.max(5));
    merging(folder.path(), &keys, rounds.max(5));
    let sets: Vec<_> = numbers
        .into_iter()
        .map(|segments| {
            let inline = set(folder.path(), &keys, segments, &options(Layout::Inline, 10));
            let perfect = set(folder.path(), &keys, segments, &options(Layout::Perfect, 0));
            let began = Instant::now();
            let mapped =
                perfect.with_segment_map(&SegmentMapOptions::default()).expect("sound tables");
            let took = began.elapsed();
            let info = mapped.segment_map().expect("a map");
            println!(
                "# {segments} segments: map built in {:.0} ms, {:.2} bytes a key",
                took.as_secs_f64() * 1e3,
                info.bytes as f64 / info.entries as f64
            );
            (segments, inline, perfect, mapped)
        })
        .collect();
    // Segment and doc ID, as many as are found.
    let docs: Vec<u64> =
        (0..expected).map(|_| random.below(15) << 32 | random.below(n as u64 / 15)).collect();
    let mut rows = Rows::default();
    for round in 0..=rounds {
        // The first one warms up.
        let mut discard = Rows::default();
        let rows = if round == 0 { &mut discard } else { &mut rows };
        rows.time("limit: independent reads", QUERIES, || {
            black_box(independent_reads(&limit_of, &lines));
        });
        for (segments, inline, perfect, mapped) in &sets {
            let mut row = |what: &str, work: &dyn Fn() -> usize, expected: usize| {
                rows.time(&format!("{segments} segments: {what}"), QUERIES, || {
                    assert_eq!(work(), expected, "{what}");
                });
            };
            row("inline, filter, segment by segment", &|| in_batches(inline, &asked), expected);
            row("inline, filter, chunk by chunk", &|| chunk_by_chunk(inline, &asked), expected);
            row("perfect, no map", &|| in_batches(perfect, &asked), expected);
            row("perfect, segment map", &|| in_batches(mapped, &asked), expected);
            row("perfect, segment map, single gets", &|| singly(mapped, &asked), expected);
            let found = in_set(perfect, &asked);
            row("perfect, segment map, in-set query", &|| in_set(mapped, &asked), found);
            row("the sort of its keys", &|| sorted(&asked), sorted(&asked));
            row("the sort of its docs", &|| sorted_docs(&docs), docs.len());
        }
    }
    drop(sets);
    let sets: Vec<(u64, SegmentSet)> = [0, 10, 30, 60]
        .into_iter()
        .map(|percent| (percent, with_duplicates(folder.path(), &keys, percent)))
        .collect();
    drop(keys);
    for round in 0..=rounds {
        let mut discard = Rows::default();
        let rows = if round == 0 { &mut discard } else { &mut rows };
        for (percent, set) in &sets {
            let what =
                format!("{DUPLICATED} segments: {percent} % of the keys in two: segment map");
            rows.time(&what, QUERIES, || assert_eq!(in_batches(set, &asked), expected));
        }
    }
    rows.print();
}
