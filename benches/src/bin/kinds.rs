//! Layouts on other kinds of keys than random ones of 16 bytes: their size, and hits of batches and single
//! gets.
//!
//! `cargo run --release -p pkhash-benches --bin kinds -- [keys] [rounds]`

#![forbid(unsafe_code)]

use std::hint::black_box;

use pkhash_benches::{
    Random, check, independent_reads, options, queries_of, row::Rows, singly, table, to_doc_ids,
};
use pkhash_core::{Layout, Table};
use pkhash_simd::AnyKernel;

/// Those of `pkhash bench`.
#[path = "../../../pkhash-std/command/src/ids.rs"]
#[allow(dead_code)]
mod ids;

const QUERIES: usize = 1 << 20;

/// A number in big-endian order.
fn number(n: u64) -> [u8; 6] {
    let [_, _, number @ ..] = n.to_be_bytes();
    number
}

/// Measures one kind of keys.
fn measure<const L: usize>(
    name: &str,
    keys: &[[u8; L]],
    absent: fn(&mut Random) -> [u8; L],
    rounds: usize,
) {
    let work = [("hits", 0), ("90 % misses", 90)]
        .map(|(what, percent)| (what, queries_of(keys, QUERIES, percent, absent)));
    let layouts = [
        (L <= 31).then_some(("inline", options(Layout::Inline, 0))),
        Some(("term-order", options(Layout::TermOrder, 0))),
        Some(("perfect", options(Layout::Perfect, 0))),
        Some(("perfect packed", options(Layout::Perfect, 0).packed(true))),
    ];
    let tables: Vec<_> = layouts
        .into_iter()
        .flatten()
        .map(|(layout, options)| {
            let bytes = table(keys, &options);
            check(&Table::open(&bytes).expect("a sound table"), keys);
            println!(
                "# {name}, {layout}: {:.2} bytes a key",
                bytes.len() as f64 / keys.len() as f64
            );
            (layout, bytes)
        })
        .collect();
    let limit_of = &tables[0].1;
    let mut random = Random::new(3);
    let lines: Vec<u32> =
        (0..QUERIES).map(|_| random.below((limit_of.len() / 64) as u64) as u32).collect();
    let kernel = AnyKernel::detect();
    let mut rows = Rows::default();
    for round in 0..=rounds {
        let mut discard = Rows::default();
        let rows = if round == 0 { &mut discard } else { &mut rows };
        rows.time(&format!("{name}, limit: independent reads"), QUERIES, || {
            black_box(independent_reads(limit_of, &lines));
        });
        for (what, (asked, answers)) in &work {
            let expected: u64 = answers.iter().map(|a| a.map_or(1 << 40, u64::from)).sum();
            for (layout, bytes) in &tables {
                let table = Table::open(bytes).expect("a sound table");
                rows.time(&format!("{name}, {layout}, batch to doc IDs, {what}"), QUERIES, || {
                    assert_eq!(to_doc_ids(kernel, &table, asked), expected);
                });
                rows.time(&format!("{name}, {layout}, single {what}"), QUERIES, || {
                    assert_eq!(singly(kernel, &table, asked), expected);
                });
            }
        }
    }
    rows.print();
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n: usize = args.next().map_or(10_000_000, |n| n.parse().expect("a number of keys"));
    let rounds: usize = args.next().map_or(5, |n| n.parse().expect("a number of rounds"));
    // Of the IDs, which have a seed of their own.
    const SEED: u64 = 1;
    fn absent<const L: usize>(make: ids::Make<L>, random: &mut Random) -> [u8; L] {
        make(SEED, random.next() as u32, true)
    }
    let n = u32::try_from(n).expect("fewer keys");
    let uuids: Vec<_> = (0..n).map(|i| ids::uuid_text(SEED, i, false)).collect();
    measure("uuid36", &uuids, |random| absent(ids::uuid_text, random), rounds);
    drop(uuids);
    let asins: Vec<_> = (0..n).map(|i| ids::asin(SEED, i, false)).collect();
    measure("asin10", &asins, |random| absent(ids::asin, random), rounds);
    drop(asins);
    let numbers: Vec<_> = (0..u64::from(n)).map(number).collect();
    measure("seq6", &numbers, |random| number(1 << 40 | random.below(1 << 40)), rounds);
}
