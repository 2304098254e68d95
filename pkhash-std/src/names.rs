//! The order of tables by their names.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Sorts the names of tables, the greatest first. Returns two of which the names do not tell which is the
/// greater, if there are such: then the order means nothing.
///
/// Runs of digits count as numbers, so that 10 follows 9. But names may hold numbers of another base (UUIDs,
/// ULIDs, hex), which are as long as each other and meant to be sorted as bytes. So names of one length are.
/// If all have one length, that is the order; if not, and the two rules contradict each other, there is none.
pub(crate) fn newest_first(names: &mut [OsString]) -> Option<(OsString, OsString)> {
    names.sort_by(|a, b| natural(stem(b), stem(a)));
    // Of each length, the least so far.
    let mut least: HashMap<usize, &OsStr> = HashMap::new();
    let mut clash = None;
    for name in names.iter() {
        let before = least.insert(name.len(), name);
        if let Some(before) = before.filter(|before| stem(before) < stem(name)) {
            clash = Some((before.to_owned(), name.clone()));
            break;
        }
    }
    let len = names.first().map_or(0, |name| name.len());
    if clash.is_some() && names.iter().all(|name| name.len() == len) {
        names.sort_by(|a, b| stem(b).cmp(stem(a)));
        return None;
    }
    clash
}

/// The name without its extension, which would come between a name and one that begins with it.
fn stem(name: &OsStr) -> &[u8] {
    Path::new(name).file_stem().unwrap_or(name).as_encoded_bytes()
}

/// Compares names with their runs of digits as numbers.
fn natural(a: &[u8], b: &[u8]) -> Ordering {
    let (mut x, mut y) = (a, b);
    loop {
        let ((m, rest_x), (n, rest_y)) = (number(x), number(y));
        let order = if m.is_empty() || n.is_empty() {
            match (x.split_first(), y.split_first()) {
                (Some((c, more_x)), Some((d, more_y))) => {
                    (x, y) = (more_x, more_y);
                    c.cmp(d)
                }
                // 007 is 7: then by the bytes.
                (None, None) => return a.cmp(b),
                _ => return x.len().cmp(&y.len()),
            }
        } else {
            (x, y) = (rest_x, rest_y);
            let (m, n) = (significant(m), significant(n));
            m.len().cmp(&n.len()).then(m.cmp(n))
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The digits that some bytes begin with, and the rest.
fn number(bytes: &[u8]) -> (&[u8], &[u8]) {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    bytes.split_at(digits)
}

fn significant(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(names: &[&str]) -> (Vec<String>, bool) {
        let mut sorted: Vec<OsString> =
            names.iter().map(|name| format!("{name}.pkh").into()).collect();
        let clash = newest_first(&mut sorted).is_some();
        let stem = |name: OsString| name.into_string().unwrap().replace(".pkh", "");
        (sorted.into_iter().rev().map(stem).collect(), clash)
    }

    /// Each row from the oldest to the newest; whatever order they are found in.
    #[test]
    fn orders_that_names_tell() {
        for names in [
            &["1", "2", "9", "10", "11", "99", "100"][..],
            &["001", "002", "009", "010", "100"],
            &["07", "7", "08", "8", "10"],
            &["segment-9", "segment-10"],
            &["z9", "z10", "z100"],
            &["1.9", "1.10", "2.0"],
            &["2024-12-31", "2025-01-01", "2025-01-01-1", "2025-01-02"],
            &["a", "a-1", "a-2", "a-10", "b"],
            &["base", "delta", "extra"],
            // Of one length: hex, as of UUIDs, ULIDs.
            &["0a10", "0a1f", "0a9f", "0b00", "1000"],
            &[
                "01ARZ3NDEKTSV4RRFFQ69G5FAV",
                "01ARZ9NDEKTSV4RRFFQ69G5FAV",
                "01ARZ10DEKTSV4RRFFQ69G5FAX",
            ],
            &["99999999999999999999999999999999999998", "99999999999999999999999999999999999999"],
            &[
                "9",
                "99999999999999999999999999999999999999",
                "999999999999999999999999999999999999990",
            ],
        ] {
            let mut expected: Vec<&str> = names.to_vec();
            if names[0].starts_with("01ARZ") {
                expected.sort_unstable();
            }
            for turn in 0..names.len() {
                let mut given = names.to_vec();
                given.rotate_left(turn);
                assert_eq!(
                    sorted(&given),
                    (expected.iter().map(|n| (*n).to_owned()).collect(), false)
                );
                given.reverse();
                assert_eq!(sorted(&given).0, expected);
            }
        }
        assert!(sorted(&[]).0.is_empty());
    }

    #[test]
    fn orders_that_names_do_not_tell() {
        for names in [&["0a9f", "0a10", "base2"][..], &["1f", "10", "2"], &["9-10", "10-9", "x"]] {
            assert!(sorted(names).1, "{names:?}");
            // Without the odd one out there is an order.
            assert!(!sorted(&names[..2]).1, "{names:?}");
        }
    }

    /// A total order, or sorting might panic.
    #[test]
    fn natural_order_is_total() {
        let parts = ["", "0", "1", "01", "9", "10", "a", "-", "1a"];
        let mut names = Vec::new();
        for a in parts {
            for b in parts {
                names.extend(parts.iter().map(|c| format!("{a}{b}{c}").into_bytes()));
            }
        }
        names.sort_by(|a, b| natural(a, b));
        names.dedup();
        for (i, a) in names.iter().enumerate() {
            for (j, b) in names.iter().enumerate() {
                assert_eq!(natural(a, b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }
}
