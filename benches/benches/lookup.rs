//! Lookups: {single, batch of 4,096} × {hits, 90 % misses} × layouts × filter × sizes × kernels, and the
//! limits of the machine beside them. Every answer is checked.
//!
//! `cargo bench -p pkhash-benches --bench lookup [-- FILTER]`; sizes up to 10 M keys with
//! `PKHASH_BENCH_KEYS=10000000` (by default up to 1 M, so that all of it takes minutes, not hours).

#![forbid(unsafe_code)]

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pkhash_benches::{
    Random, check, dependent_reads, doc_ids, independent_reads, keys, options, queries, table,
};
use pkhash_core::{FixedKeys, Layout, Table, Value};
use pkhash_simd::AnyKernel;

/// Keys of one batch.
const BATCH: usize = 4096;

/// Keys that are asked for, one batch after the other: more than the caches remember.
const QUERIES: usize = 64 * BATCH;

fn sizes() -> Vec<usize> {
    let most = std::env::var("PKHASH_BENCH_KEYS").ok().and_then(|n| n.parse().ok());
    let most = most.unwrap_or(1_000_000);
    // The tables of the first fit the second-level cache, those of the second the third-level one.
    [20_000, 1_000_000, 10_000_000].into_iter().filter(|n| *n <= most).collect()
}

fn lookups(c: &mut Criterion) {
    for n in sizes() {
        let keys = keys(n);
        for layout in Layout::all() {
            for filter_bits in [0, 10] {
                let bytes = table(&keys, &options(layout, filter_bits));
                let table = Table::open(&bytes).expect("a sound table");
                check(&table, &keys);
                let filter = if filter_bits == 0 { "" } else { "+filter" };
                for (what, absent) in [("hits", 0), ("90%-misses", 90)] {
                    let (asked, answers) = queries(&keys, QUERIES, absent);
                    let mut group = c.benchmark_group(format!("{layout}{filter}/{n}/{what}"));
                    for kernel in AnyKernel::available() {
                        let mut out = vec![None; QUERIES];
                        table.get_batch(kernel, &asked, &mut out).expect("a sound table");
                        assert_eq!(doc_ids(&out), answers, "{}", kernel.name());
                        let mut batch = 0;
                        let mut next = || {
                            batch = (batch + 1) % (QUERIES / BATCH);
                            batch * BATCH
                        };
                        group.throughput(Throughput::Elements(BATCH as u64));
                        group.bench_function(format!("single/{}", kernel.name()), |b| {
                            b.iter_batched(
                                &mut next,
                                |first| {
                                    for i in first..first + BATCH {
                                        let value = table.get(kernel, &asked[i]);
                                        let value = value.expect("a sound table");
                                        assert_eq!(value.and_then(Value::doc_id), answers[i]);
                                    }
                                },
                                BatchSize::SmallInput,
                            );
                        });
                        let mut out = vec![None::<Value<'_>>; BATCH];
                        group.bench_function(format!("batch/{}", kernel.name()), |b| {
                            b.iter_batched(
                                &mut next,
                                |first| {
                                    let keys = &asked[first..first + BATCH];
                                    table.get_batch(kernel, keys, &mut out).expect("sound")
                                },
                                BatchSize::SmallInput,
                            );
                        });
                        group.bench_function(format!("batch-fixed/{}", kernel.name()), |b| {
                            b.iter_batched(
                                &mut next,
                                |first| {
                                    let keys = asked[first..first + BATCH].as_flattened();
                                    let keys = FixedKeys::new(keys, 16).expect("whole keys");
                                    table.get_batch(kernel, keys, &mut out).expect("sound")
                                },
                                BatchSize::SmallInput,
                            );
                        });
                    }
                    group.finish();
                }
            }
        }
    }
}

/// Random reads of 64-byte lines, from a buffer as large as an inline table.
fn limits(c: &mut Criterion) {
    for n in sizes() {
        let bytes = table(&keys(n), &options(Layout::Inline, 0));
        let mut random = Random::new(3);
        let lines: Vec<u32> =
            (0..BATCH).map(|_| random.below((bytes.len() / 64) as u64) as u32).collect();
        let mut group = c.benchmark_group(format!("limit/{n}"));
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function("independent", |b| b.iter(|| independent_reads(&bytes, &lines)));
        group.bench_function("dependent", |b| b.iter(|| dependent_reads(&bytes, &lines)));
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .sample_size(15);
    targets = limits, lookups
}
criterion_main!(benches);
