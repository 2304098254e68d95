//! Building and merging, from and into memory. Every table is verified.
//!
//! `cargo bench -p pkhash-benches --bench build`

#![forbid(unsafe_code)]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pkhash_benches::{check, keys, options, table};
use pkhash_core::{Layout, Table};
use pkhash_std::{MergeInput, MergeOptions, TableFile, TableWriter, WriterOptions, merge};

const KEYS: usize = 500_000;

fn build(c: &mut Criterion) {
    let keys = keys(KEYS);
    let mut group = c.benchmark_group("build");
    group.throughput(Throughput::Elements(KEYS as u64));
    for layout in Layout::all() {
        let options = options(layout, 10);
        check(&Table::open(&table(&keys, &options)).expect("a sound table"), &keys);
        group.bench_function(format!("core/{layout}"), |b| b.iter(|| table(&keys, &options)));
        for threads in [1, 2] {
            group.bench_function(format!("writer/{layout}/{threads}"), |b| {
                b.iter(|| {
                    let options = WriterOptions::default().table(options).threads(threads);
                    let mut writer = TableWriter::new(options).expect("sound options");
                    for (doc, key) in keys.iter().enumerate() {
                        writer.add(key, doc as u64).expect("memory is enough");
                    }
                    let mut out = Vec::new();
                    writer.write_to(&mut out).expect("distinct keys");
                    out
                });
            });
        }
    }
    group.finish();
}

fn merging(c: &mut Criterion) {
    const TABLES: usize = 8;
    let keys = keys(KEYS);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut group = c.benchmark_group("merge");
    group.throughput(Throughput::Elements(KEYS as u64));
    for layout in Layout::all() {
        let options = options(layout, 10);
        let tables: Vec<TableFile> = keys
            .chunks(KEYS.div_ceil(TABLES))
            .enumerate()
            .map(|(i, keys)| {
                let path = folder.path().join(format!("{layout}-{i}"));
                std::fs::write(&path, &*table(keys, &options)).expect("room for a table");
                TableFile::open(path).expect("a sound table")
            })
            .collect();
        let inputs: Vec<_> = tables.iter().map(MergeInput::new).collect();
        for threads in [1, 2] {
            let options = MergeOptions::default().threads(threads);
            let mut out = Vec::new();
            merge(&inputs, &mut out, &options).expect("distinct keys");
            check(&Table::open(&out).expect("a sound table"), &keys);
            group.bench_function(format!("{layout}/{threads}"), |b| {
                b.iter(|| {
                    let mut out = Vec::new();
                    merge(&inputs, &mut out, &options).expect("distinct keys");
                    out
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(3))
        .sample_size(10);
    targets = build, merging
}
criterion_main!(benches);
