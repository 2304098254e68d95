//! The table of README: every kernel, layout and kind of lookup in one run on the same data, with the
//! limits of the machine beside them.
//!
//! `cargo run --release -p pkhash-benches --bin report -- [keys] [rounds]`

use std::hint::black_box;
use std::time::Instant;

use pkhash_benches::{
    Key, Random, check, dependent_reads, doc_ids, independent_reads, keys, options, queries, table,
};
use pkhash_core::{Layout, Table, Value};
use pkhash_simd::Kernel;

/// Keys of one batch.
const BATCH: usize = 4096;

/// Keys asked for in one round.
const QUERIES: usize = 1 << 20;

/// What is measured: its name, and the nanoseconds for each key of every round.
struct Row {
    name: String,
    rounds: Vec<f64>,
}

impl Row {
    fn median(&self) -> (f64, f64, f64) {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        (sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1])
    }
}

/// Runs `work` on `n` keys and notes the time for each.
fn time(rows: &mut Vec<Row>, name: String, n: usize, work: impl FnOnce()) {
    let began = Instant::now();
    work();
    let ns = began.elapsed().as_nanos() as f64 / n as f64;
    match rows.iter_mut().find(|row| row.name == name) {
        Some(row) => row.rounds.push(ns),
        None => rows.push(Row { name, rounds: vec![ns] }),
    }
}

fn singly(kernel: Kernel, table: &Table<'_>, keys: &[Key]) -> u64 {
    let mut sum = 0;
    for key in keys {
        let value = kernel.get(table, key).expect("a sound table");
        sum += value.and_then(Value::doc_id).map_or(1 << 40, u64::from);
    }
    sum
}

fn in_batches(kernel: Kernel, table: &Table<'_>, keys: &[Key]) -> u64 {
    let mut out = vec![None; BATCH];
    let mut sum = 0;
    for keys in keys.chunks(BATCH) {
        let out = &mut out[..keys.len()];
        kernel.get_batch(table, keys, out).expect("a sound table");
        for value in out {
            sum += value.and_then(Value::doc_id).map_or(1 << 40, u64::from);
        }
    }
    sum
}

fn to_doc_ids(kernel: Kernel, table: &Table<'_>, keys: &[Key]) -> u64 {
    let mut out = vec![None; BATCH];
    let mut sum = 0;
    for keys in keys.chunks(BATCH) {
        let out = &mut out[..keys.len()];
        kernel.get_batch_doc_ids(table, keys, out).expect("doc IDs");
        for doc_id in out {
            sum += doc_id.map_or(1 << 40, u64::from);
        }
    }
    sum
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n: usize = args.next().map_or(10_000_000, |n| n.parse().expect("a number of keys"));
    let only = std::env::var("ONLY").unwrap_or_default();
    let rounds: usize = args.next().map_or(7, |n| n.parse().expect("a number of rounds"));
    let keys = keys(n);
    let work = [("hits", 0), ("90 % misses", 90)]
        .map(|(name, absent)| (name, queries(&keys, QUERIES, absent)));
    let mut tables = Vec::new();
    for layout in Layout::ALL {
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

    let mut rows = Vec::new();
    for round in 0..=rounds {
        let mut discard = Vec::new();
        // The first round warms up and checks the answers.
        let rows = if round == 0 { &mut discard } else { &mut rows };
        time(rows, "limit: independent reads".to_owned(), QUERIES, || {
            black_box(independent_reads(inline, &lines));
        });
        time(rows, "limit: dependent reads".to_owned(), QUERIES, || {
            black_box(dependent_reads(inline, &lines));
        });
        for (table_name, bytes) in tables.iter().filter(|(name, _)| name.starts_with(&only)) {
            let table = Table::open(bytes).expect("a sound table");
            for (name, (asked, answers)) in &work {
                let expected: u64 = answers.iter().map(|a| a.map_or(1 << 40, u64::from)).sum();
                for kernel in Kernel::available() {
                    if round == 0 {
                        let mut out = vec![None; asked.len()];
                        kernel.get_batch(&table, asked, &mut out).expect("a sound table");
                        assert_eq!(&doc_ids(&out), answers);
                    }
                    let title = |how| format!("{table_name}, {how} {name}, {}", kernel.name());
                    time(rows, title("single"), QUERIES, || {
                        assert_eq!(singly(kernel, &table, asked), expected);
                    });
                    time(rows, title("batch"), QUERIES, || {
                        assert_eq!(in_batches(kernel, &table, asked), expected);
                    });
                    time(rows, title("batch to doc IDs,"), QUERIES, || {
                        assert_eq!(to_doc_ids(kernel, &table, asked), expected);
                    });
                }
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    let limit = rows[0].median().0;
    println!("what,median ns,min,max,M keys/s,of the limit");
    for row in &rows {
        let (median, min, max) = row.median();
        println!(
            "\"{}\",{median:.1},{min:.1},{max:.1},{:.1},{:.2}",
            row.name,
            1e3 / median,
            median / limit
        );
    }
}
