//! The lookups that are measured, and their times.

use std::time::Duration;

use pkhash_std::SegmentSet;
use serde_json::json;

use super::kinds::Kind;
use crate::fail::{Fail, Result};

/// IDs of a task.
pub(super) const TASK: usize = 4000;

/// Bytes of a line of the probe.
pub(super) const LINE: usize = 64;

/// Nanoseconds for each key, a figure for each round.
#[derive(Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn add(&mut self, time: Duration, keys: usize) {
        self.0.push(time.as_nanos() as f64 / keys as f64);
    }

    /// Median, least and greatest.
    pub(super) fn figures(&self) -> (f64, f64, f64) {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted[..] {
            [] => (0.0, 0.0, 0.0),
            [min, ..] => (sorted[sorted.len() / 2], min, sorted[sorted.len() - 1]),
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let (median, min, max) = self.figures();
        json!({ "median": median, "min": min, "max": max })
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (median, min, max) = self.figures();
        f.pad(&format!("{median:.1} ({min:.1}–{max:.1})"))
    }
}

/// A number below `bound`, of random bits.
pub(super) const fn below(random: u64, bound: u64) -> usize {
    ((random as u128 * bound as u128) >> 64) as usize
}

/// Reads a word of each of these lines, 32 of which are prefetched before they are read. Returns the sum, so that
/// nothing can be left out.
#[inline(never)]
pub(super) fn independent_reads(memory: &[u8], lines: &[usize]) -> u64 {
    const IN_FLIGHT: usize = 32;
    let mut sum = 0u64;
    for chunk in lines.chunks(IN_FLIGHT) {
        for line in chunk {
            pkhash_simd::prefetch(memory, line * LINE);
        }
        for line in chunk {
            let word = memory[line * LINE..].first_chunk::<8>();
            sum = sum.wrapping_add(word.map_or(0, |word| u64::from_le_bytes(*word)));
        }
    }
    sum
}

/// Finds the docs of IDs.
pub(super) type Task<const L: usize> =
    fn(&SegmentSet, &[[u8; L]], &mut [Option<u32>]) -> Result<()>;

/// PKLookup: one by one.
pub(super) fn look_up<const L: usize>(
    set: &SegmentSet,
    asked: &[[u8; L]],
    docs: &mut [Option<u32>],
) -> Result<()> {
    for (id, doc) in asked.iter().zip(docs) {
        *doc = set.get_doc_id(id)?;
    }
    Ok(())
}

/// PKLookupBatch: those of each task in one query.
pub(super) fn look_up_batch<const L: usize>(
    set: &SegmentSet,
    asked: &[[u8; L]],
    docs: &mut [Option<u32>],
) -> Result<()> {
    for (asked, docs) in asked.chunks(TASK).zip(docs.chunks_mut(TASK)) {
        set.get_batch(asked, docs)?;
    }
    Ok(())
}

/// Compares the docs that were found with those that there are.
pub(super) fn check_answers<const L: usize>(
    kind: Kind,
    asked: &[[u8; L]],
    expected: &[Option<u32>],
    found: &[Option<u32>],
) -> Result<()> {
    let wrong = expected.iter().zip(found).position(|(expected, found)| expected != found);
    wrong.map_or(Ok(()), |i| {
        Err(Fail::message(format_args!(
            "{}: wrong answer for the ID \"{}\": expected {:?}, found {:?}",
            kind.name(),
            asked[i].escape_ascii(),
            expected[i],
            found[i]
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    #[test]
    fn a_wrong_answer_is_found() {
        let asked: Vec<[u8; 8]> = (0..4).map(|i| ids::sequential(1, i, i == 2)).collect();
        let expected = [Some(0), Some(1), None, Some(3)];
        check_answers(Kind::Sequential, &asked, &expected, &expected).unwrap();
        for (at, answer) in [(0, None), (1, Some(0)), (2, Some(2)), (3, Some(4)), (3, None)] {
            let mut found = expected;
            found[at] = answer;
            let fail = check_answers(Kind::Sequential, &asked, &expected, &found).unwrap_err();
            let (name, id) = ("sequential: wrong answer", asked[at].escape_ascii().to_string());
            let message = fail.to_string();
            for part in [name, &id, &format!("{answer:?}"), &format!("{:?}", expected[at])] {
                assert!(message.contains(part), "no {part:?} in {message}");
            }
        }
    }

    #[test]
    fn medians() {
        let mut times = Times::default();
        for ns in [50, 10, 40, 20, 30] {
            times.add(Duration::from_nanos(ns), 10);
        }
        assert_eq!(times.figures(), (3.0, 1.0, 5.0));
        assert_eq!(format!("{times:<16}|"), "3.0 (1.0–5.0)   |");
    }
}
