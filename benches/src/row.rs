//! Rows of measurements: some rounds of each, taken in turn.

use std::time::Instant;

/// What was measured: its name, and the nanoseconds for each key of every round.
#[derive(Debug)]
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

/// All rows, in the order in which they were first measured.
#[derive(Debug, Default)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// Runs `work` on `n` keys and notes the time for each.
    pub fn time(&mut self, name: &str, n: usize, work: impl FnOnce()) {
        let began = Instant::now();
        work();
        let ns = began.elapsed().as_nanos() as f64 / n as f64;
        match self.0.iter_mut().find(|row| row.name == name) {
            Some(row) => row.rounds.push(ns),
            None => self.0.push(Row { name: name.to_owned(), rounds: vec![ns] }),
        }
    }

    /// Prints them as CSV. The first row is the limit that the others are compared with.
    pub fn print(&self) {
        let limit = self.0.first().map_or(1.0, |row| row.median().0);
        println!("what,median ns,min,max,M keys/s,of the limit");
        for row in &self.0 {
            let (median, min, max) = row.median();
            println!(
                "\"{}\",{median:.1},{min:.1},{max:.1},{:.1},{:.2}",
                row.name,
                1e3 / median,
                median / limit
            );
        }
    }
}
