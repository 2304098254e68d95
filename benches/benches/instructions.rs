//! Instructions, not seconds: the same on a busy machine. See `.ci/instructions`.
//!
//! Valgrind runs scalar, SSE2 and AVX2 code; it knows no AVX-512.

#![forbid(unsafe_code)]
// What the macros expand to.
#![allow(missing_docs, unused_qualifications)]

use std::hint::black_box;

use iai_callgrind::{library_benchmark, library_benchmark_group, main};
use pkhash_benches::{Key, Lines, keys, map, options, queries, table};
use pkhash_core::{Layout, Table, Value};
use pkhash_simd::AnyKernel;
use pkhash_std::{Hit, OpenOptions, Segment, SegmentMapOptions, SegmentSet, TableFile};

const KEYS: usize = 20_000;
const QUERIES: usize = 4096;

struct Work {
    kernel: AnyKernel,
    table: Lines,
    asked: Vec<Key>,
    answers: Vec<Option<u32>>,
}

fn work(kernel: &str, layout: Layout, filter_bits: u8, absent: u64) -> Work {
    let keys = keys(KEYS);
    let (asked, answers) = queries(&keys, QUERIES, absent);
    Work {
        kernel: AnyKernel::by_name(kernel).expect("a kernel of this CPU"),
        table: table(&keys, &options(layout, filter_bits)),
        asked,
        answers,
    }
}

#[library_benchmark]
#[bench::inline_scalar(work("scalar", Layout::Inline, 0, 0))]
#[bench::inline_sse2(work("sse2", Layout::Inline, 0, 0))]
#[bench::inline_avx2(work("avx2", Layout::Inline, 0, 0))]
#[bench::inline_filter_misses_avx2(work("avx2", Layout::Inline, 10, 90))]
#[bench::term_order_avx2(work("avx2", Layout::TermOrder, 0, 0))]
#[bench::perfect_sse2(work("sse2", Layout::Perfect, 0, 0))]
#[bench::perfect_avx2(work("avx2", Layout::Perfect, 0, 0))]
fn get(work: Work) -> Work {
    let table = Table::open(&work.table).expect("a sound table");
    for (key, answer) in work.asked.iter().zip(&work.answers) {
        let value = table.get(work.kernel, key).expect("a sound table");
        assert_eq!(value.and_then(Value::doc_id), *answer);
    }
    work
}

#[library_benchmark]
#[bench::inline_scalar(work("scalar", Layout::Inline, 0, 0))]
#[bench::inline_sse2(work("sse2", Layout::Inline, 0, 0))]
#[bench::inline_avx2(work("avx2", Layout::Inline, 0, 0))]
#[bench::inline_misses_avx2(work("avx2", Layout::Inline, 0, 90))]
#[bench::inline_filter_misses_scalar(work("scalar", Layout::Inline, 10, 90))]
#[bench::inline_filter_misses_avx2(work("avx2", Layout::Inline, 10, 90))]
#[bench::term_order_scalar(work("scalar", Layout::TermOrder, 0, 0))]
#[bench::term_order_avx2(work("avx2", Layout::TermOrder, 0, 0))]
#[bench::term_order_filter_misses_avx2(work("avx2", Layout::TermOrder, 10, 90))]
#[bench::perfect_scalar(work("scalar", Layout::Perfect, 0, 0))]
#[bench::perfect_avx2(work("avx2", Layout::Perfect, 0, 0))]
#[bench::perfect_misses_avx2(work("avx2", Layout::Perfect, 0, 90))]
#[bench::perfect_filter_misses_avx2(work("avx2", Layout::Perfect, 10, 90))]
fn batch(work: Work) -> usize {
    let table = Table::open(&work.table).expect("a sound table");
    let mut out = vec![None::<Value<'_>>; QUERIES];
    let found = table.get_batch(work.kernel, &work.asked, &mut out).expect("a sound table");
    assert_eq!(found, work.answers.iter().flatten().count());
    found
}

/// A mapped file of keys of `L` bytes: what callers of the public API have.
struct FileWork<const L: usize> {
    file: TableFile,
    asked: Vec<[u8; L]>,
    answers: Vec<Option<u32>>,
}

fn file<const L: usize>(absent: u64) -> FileWork<L> {
    file_of(Layout::Perfect, absent)
}

fn file_of<const L: usize>(layout: Layout, absent: u64) -> FileWork<L> {
    // The first bytes of a key's hash stream: distinct, and of any length.
    let long = |key: &Key| -> [u8; L] { std::array::from_fn(|i| key[i % 16] ^ (i / 16) as u8) };
    let keys = keys(KEYS);
    let (asked, answers) = queries(&keys, QUERIES, absent);
    let keys: Vec<[u8; L]> = keys.iter().map(long).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.pkh");
    std::fs::write(&path, &*table(&keys, &options(layout, 0))).expect("a file");
    // The mapping keeps the file, not its name.
    FileWork { file: map(&path), asked: asked.iter().map(long).collect(), answers }
}

#[library_benchmark]
#[bench::hits_8(file::<8>(0))]
#[bench::hits_10(file::<10>(0))]
#[bench::hits_16(file::<16>(0))]
#[bench::misses_16(file::<16>(90))]
#[bench::hits_20(file::<20>(0))]
#[bench::hits_36(file::<36>(0))]
#[bench::hits_24(file::<24>(0))]
#[bench::inline_16(file_of::<16>(Layout::Inline, 0))]
#[bench::term_order_16(file_of::<16>(Layout::TermOrder, 0))]
fn file_get<const L: usize>(work: FileWork<L>) -> FileWork<L> {
    for (key, answer) in work.asked.iter().zip(&work.answers) {
        let value = work.file.get(key).expect("a sound table");
        assert_eq!(value.is_some(), answer.is_some());
    }
    work
}

#[library_benchmark]
#[bench::hits_16(file::<16>(0))]
#[bench::misses_16(file::<16>(90))]
#[bench::hits_36(file::<36>(0))]
fn file_get_doc_id<const L: usize>(work: FileWork<L>) -> FileWork<L> {
    for (key, answer) in work.asked.iter().zip(&work.answers) {
        assert_eq!(work.file.get_doc_id(key).expect("a sound table"), *answer);
    }
    work
}

#[library_benchmark]
#[bench::hits_16(file::<16>(0))]
#[bench::misses_16(file::<16>(90))]
#[bench::hits_36(file::<36>(0))]
#[bench::hits_24(file::<24>(0))]
fn file_batch<const L: usize>(work: FileWork<L>) -> FileWork<L> {
    let mut out = vec![None::<u32>; QUERIES];
    work.file.get_batch(&work.asked, &mut out).expect("a sound table");
    assert_eq!(out, work.answers);
    work
}

#[library_benchmark]
#[bench::inline(keys(KEYS), Layout::Inline)]
#[bench::term_order(keys(KEYS), Layout::TermOrder)]
#[bench::perfect(keys(KEYS), Layout::Perfect)]
fn build(keys: Vec<Key>, layout: Layout) -> Lines {
    black_box(table(&keys, &options(layout, 10)))
}

/// A set of 15 perfect tables in memory, with a segment map or without.
fn set(mapped: bool) -> (SegmentSet, Vec<Key>, usize) {
    let keys = keys(KEYS);
    let folder = tempfile::tempdir().expect("a folder");
    let tables = keys.chunks(KEYS.div_ceil(15)).enumerate().map(|(i, keys)| {
        let path = folder.path().join(format!("{i}.pkh"));
        let table = table(keys, &options(Layout::Perfect, 0));
        std::fs::write(&path, &*table).expect("a file");
        // Valgrind knows no AVX-512.
        let kernel = AnyKernel::by_name("avx2").expect("a kernel of this CPU");
        let open = OpenOptions::new().kernel(kernel);
        Segment::new(open.open(path).expect("a sound table"))
    });
    let set = SegmentSet::new(tables.collect::<Vec<_>>()).expect("few segments");
    let options = SegmentMapOptions::default().threads(1);
    let set = if mapped { set.with_segment_map(&options).expect("sound tables") } else { set };
    let (asked, answers) = queries(&keys, QUERIES, 10);
    (set, asked, answers.iter().flatten().count())
}

#[library_benchmark]
#[bench::no_map(set(false))]
#[bench::map(set(true))]
fn set_batch((set, asked, expected): (SegmentSet, Vec<Key>, usize)) -> SegmentSet {
    let mut out = vec![None::<Hit<'_>>; QUERIES];
    assert_eq!(set.get_batch(&asked, &mut out).expect("sound tables"), expected);
    set
}

#[library_benchmark]
#[bench::no_map(set(false))]
#[bench::map(set(true))]
fn set_get((set, asked, expected): (SegmentSet, Vec<Key>, usize)) -> SegmentSet {
    let found = asked.iter().filter(|key| set.get(*key).expect("sound tables").is_some());
    assert_eq!(found.count(), expected);
    set
}

#[library_benchmark]
#[bench::no_map(set(false))]
#[bench::map(set(true))]
fn set_in_set((set, asked, _): (SegmentSet, Vec<Key>, usize)) -> SegmentSet {
    assert!(!set.in_set(&asked).expect("sound tables").is_empty());
    set
}

library_benchmark_group!(name = sets; benchmarks = set_batch, set_get, set_in_set);
library_benchmark_group!(name = lookups; benchmarks = get, batch);
library_benchmark_group!(name = files; benchmarks = file_get, file_get_doc_id, file_batch);
library_benchmark_group!(name = builds; benchmarks = build);
main!(library_benchmark_groups = lookups, files, builds, sets);
