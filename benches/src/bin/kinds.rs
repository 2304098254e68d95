//! Layouts on other kinds of keys than random ones of 16 bytes: their size, and hits of batches and single
//! gets.
//!
//! `cargo run --release -p pkhash-benches --bin kinds -- [keys] [rounds]`

use std::hint::black_box;

use pkhash_benches::{
    Random, check, independent_reads, options, queries_of, row::Rows, singly, table, to_doc_ids,
};
use pkhash_core::build::Options;
use pkhash_core::{Layout, Table};
use pkhash_simd::Kernel;

const QUERIES: usize = 1 << 20;

/// A random UUID as text.
fn uuid(random: &mut Random) -> [u8; 36] {
    let bits = u128::from(random.next()) << 64 | u128::from(random.next());
    let mut text = [b'-'; 36];
    let mut nibble = 0;
    for (i, out) in text.iter_mut().enumerate() {
        if !matches!(i, 8 | 13 | 18 | 23) {
            *out = b"0123456789abcdef"[(bits >> (4 * nibble)) as usize % 16];
            nibble += 1;
        }
    }
    text
}

/// Ten digits and capitals, as products have them.
fn asin(random: &mut Random) -> [u8; 10] {
    std::array::from_fn(|i| {
        if i == 0 {
            b'B'
        } else {
            b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[random.below(36) as usize]
        }
    })
}

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
        Some(("perfect packed", Options { packed: true, ..options(Layout::Perfect, 0) })),
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
    let kernel = Kernel::detect();
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
    let mut random = Random::new(1);
    let uuids: Vec<_> = (0..n).map(|_| uuid(&mut random)).collect();
    measure("uuid36", &uuids, uuid, rounds);
    drop(uuids);
    // Two in a million are equal by chance.
    let mut asins: Vec<_> = (0..n).map(|_| asin(&mut random)).collect();
    asins.sort_unstable();
    asins.dedup();
    let absent = |random: &mut Random| {
        let mut key = asin(random);
        // None of the keys begins so.
        key[0] = b'b';
        key
    };
    measure("asin10", &asins, absent, rounds);
    let numbers: Vec<_> = (0..n as u64).map(number).collect();
    measure("seq6", &numbers, |random| number(1 << 40 | random.below(1 << 40)), rounds);
}
