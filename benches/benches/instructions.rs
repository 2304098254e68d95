//! Instructions, not seconds: the same on a busy machine. See `.ci/instructions`.
//!
//! Valgrind runs scalar, SSE2 and AVX2 code; it knows no AVX-512.

#![forbid(unsafe_code)]
// What the macros expand to.
#![allow(missing_docs, unused_qualifications)]

use std::hint::black_box;

use iai_callgrind::{library_benchmark, library_benchmark_group, main};
use pkhash_benches::{Key, Lines, keys, options, queries, table};
use pkhash_core::{Layout, Table, Value};
use pkhash_simd::Kernel;

const KEYS: usize = 20_000;
const QUERIES: usize = 4096;

struct Work {
    kernel: Kernel,
    table: Lines,
    asked: Vec<Key>,
    answers: Vec<Option<u32>>,
}

fn work(kernel: &str, layout: Layout, filter_bits: u8, absent: u64) -> Work {
    let keys = keys(KEYS);
    let (asked, answers) = queries(&keys, QUERIES, absent);
    Work {
        kernel: Kernel::by_name(kernel).expect("a kernel of this CPU"),
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
        let value = work.kernel.get(&table, key).expect("a sound table");
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
    let mut out = vec![None; QUERIES];
    let found = work.kernel.get_batch(&table, &work.asked, &mut out).expect("a sound table");
    assert_eq!(found, work.answers.iter().flatten().count());
    found
}

#[library_benchmark]
#[bench::inline(keys(KEYS), Layout::Inline)]
#[bench::term_order(keys(KEYS), Layout::TermOrder)]
#[bench::perfect(keys(KEYS), Layout::Perfect)]
fn build(keys: Vec<Key>, layout: Layout) -> Lines {
    black_box(table(&keys, &options(layout, 10)))
}

library_benchmark_group!(name = lookups; benchmarks = get, batch);
library_benchmark_group!(name = builds; benchmarks = build);
main!(library_benchmark_groups = lookups, builds);
