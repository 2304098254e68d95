//! What the shape of a perfect table costs and brings: size, time to build, evictions, time of a hit.
//!
//! `cargo run --release -p pkhash-benches --bin shapes -- [keys] [rounds]`

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use pkhash_benches::{Lines, check, keys, options, queries, to_doc_ids};
use pkhash_core::builder::PerfectShape;
use pkhash_core::{Layout, Table};
use pkhash_simd::AnyKernel;
use pkhash_std::{WriterOptions, build_slice};

const QUERIES: usize = 1 << 20;

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n: usize = args.next().map_or(10_000_000, |n| n.parse().expect("a number of keys"));
    let rounds: usize = args.next().map_or(5, |n| n.parse().expect("a number of rounds"));
    let keys = keys(n);
    let (asked, answers) = queries(&keys, QUERIES, 0);
    let expected: u64 = answers.iter().map(|a| a.map_or(1 << 40, u64::from)).sum();
    let kernel = AnyKernel::detect();
    println!(
        "keys per 100 buckets,keys per 1000 slots,partition bits,bits a key (pilots),bytes a key (packed),\
         bytes a key (in lines),build ns,evictions for 1000 keys,other seeds,hit ns (in lines)"
    );
    let default = PerfectShape::default();
    let shapes =
        [200, 250, 275, 300, 325, 350, 400]
            .map(|keys_per_100_buckets| (default.keys_per_100_buckets(keys_per_100_buckets), None))
            .into_iter()
            .chain([970, 980, 985, 990, 995].map(|keys_per_1000_slots| {
                (default.keys_per_1000_slots(keys_per_1000_slots), None)
            }))
            .chain([4, 5, 6, 8, 9, 10, 12].map(|bits| (default, Some(bits))));
    for (shape, partition_bits) in shapes {
        let (mut builds, mut hits) = (Vec::new(), Vec::new());
        let mut out = Lines::new(0);
        let (mut packed, mut evictions, mut partitions) = (0, 0, 0);
        for round in 0..rounds {
            let table = options(Layout::Perfect, 0).shape(shape).partition_bits(partition_bits);
            let build = |table| {
                let options = WriterOptions::default().table(table).threads(1);
                let mut out = Vec::with_capacity(n * 24 + 65_536);
                let value = |i: usize| (i as u32).to_le_bytes();
                let began = Instant::now();
                let built = build_slice(&keys, value, &mut out, &options);
                (began.elapsed().as_nanos() as f64 / n as f64, built, out)
            };
            let (ns, built, bytes) = build(table);
            let Ok(built) = built else { break };
            builds.push(ns);
            if round == 0 {
                packed = build(table.packed(true)).2.len();
                evictions = built.evictions;
                partitions = built.footer.partition_bits();
                out = Lines::new(bytes.len());
                out.copy_from_slice(&bytes);
                check(&Table::open(&out).expect("a sound table"), &keys);
            }
            drop(bytes);
            let table = Table::open(&out).expect("a sound table");
            let began = Instant::now();
            assert_eq!(black_box(to_doc_ids(kernel, &table, &asked)), expected);
            hits.push(began.elapsed().as_nanos() as f64 / QUERIES as f64);
        }
        let PerfectShape { keys_per_100_buckets, keys_per_1000_slots, .. } = shape;
        if builds.len() < rounds {
            println!("{keys_per_100_buckets},{keys_per_1000_slots},,,,,cannot be built,,,");
            continue;
        }
        let table = Table::open(&out).expect("a sound table");
        let parts = || (0..table.footer().partitions()).filter_map(|p| table.partition(p));
        let buckets: u64 = parts().map(|p| u64::from(p.buckets)).sum();
        let each = |bytes: usize| bytes as f64 / n as f64;
        println!(
            "{keys_per_100_buckets},{keys_per_1000_slots},{partitions},{:.2},{:.2},{:.2},{:.1},{:.1},{},{:.1}",
            8.0 * buckets as f64 / n as f64,
            each(packed),
            each(out.len()),
            median(builds),
            1e3 * evictions as f64 / n as f64,
            parts().filter(|p| p.seed != 0).count(),
            median(hits)
        );
    }
}
