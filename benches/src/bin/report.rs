//! The table of README: every kernel, layout and kind of lookup in one run on the same data, with the
//! limits of the machine beside them.
//!
//! `cargo run --release -p pkhash-benches --bin report -- [keys] [rounds]`

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use pkhash_benches::{
    Random, check, dependent_reads, doc_ids, in_batches, independent_reads, keys, options, queries,
    row::Rows, singly, table, to_doc_ids,
};
use pkhash_core::{Layout, Table};
use pkhash_simd::AnyKernel;

/// Keys asked for in one round.
const QUERIES: usize = 1 << 20;

fn main() {
    let mut args = std::env::args().skip(1);
    let n: usize = args.next().map_or(10_000_000, |n| n.parse().expect("a number of keys"));
    let only = std::env::var("ONLY").unwrap_or_default();
    let rounds: usize = args.next().map_or(7, |n| n.parse().expect("a number of rounds"));
    let keys = keys(n);
    let work = [("hits", 0), ("90 % misses", 90)]
        .map(|(name, absent)| (name, queries(&keys, QUERIES, absent)));
    let mut tables = Vec::new();
    for layout in Layout::all() {
        for filter_bits in [0, 10] {
            let options = options(layout, filter_bits);
            let began = Instant::now();
            let bytes = table(&keys, &options);
            let seconds = began.elapsed().as_secs_f64();
            check(&Table::open(&bytes).expect("a sound table"), &keys);
            let name = format!("{layout}{}", if filter_bits == 0 { "" } else { " + filter" });
            eprintln!(
                "{name}: {:.2} bytes a key, built in {seconds:.2} s",
                bytes.len() as f64 / n as f64
            );
            tables.push((name, bytes));
        }
    }
    // The limit probe reads lines of the table without filter, at random.
    let inline = &tables[0].1;
    let mut random = Random::new(3);
    let lines: Vec<u32> =
        (0..QUERIES).map(|_| random.below((inline.len() / 64) as u64) as u32).collect();

    let mut rows = Rows::default();
    for round in 0..=rounds {
        let mut discard = Rows::default();
        // The first round warms up and checks the answers.
        let rows = if round == 0 { &mut discard } else { &mut rows };
        rows.time("limit: independent reads", QUERIES, || {
            black_box(independent_reads(inline, &lines));
        });
        rows.time("limit: dependent reads", QUERIES, || {
            black_box(dependent_reads(inline, &lines));
        });
        for (table_name, bytes) in tables.iter().filter(|(name, _)| name.starts_with(&only)) {
            let table = Table::open(bytes).expect("a sound table");
            for (name, (asked, answers)) in &work {
                let expected: u64 = answers.iter().map(|a| a.map_or(1 << 40, u64::from)).sum();
                for kernel in AnyKernel::available() {
                    if round == 0 {
                        let mut out = vec![None; asked.len()];
                        table.get_batch(kernel, asked, &mut out).expect("a sound table");
                        assert_eq!(&doc_ids(&out), answers);
                    }
                    let title = |how| format!("{table_name}, {how} {name}, {}", kernel.name());
                    rows.time(&title("single"), QUERIES, || {
                        assert_eq!(singly(kernel, &table, asked), expected);
                    });
                    rows.time(&title("batch"), QUERIES, || {
                        assert_eq!(in_batches(kernel, &table, asked), expected);
                    });
                    rows.time(&title("batch to doc IDs,"), QUERIES, || {
                        assert_eq!(to_doc_ids(kernel, &table, asked), expected);
                    });
                }
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    rows.print();
}
