//! Keys that somebody chose to do harm, and tables damaged for the same end: the work stays within the bounds of
//! FORMAT.md §7, or the build ends with an error. All of it counted, nothing timed.

use pkhash_core_testing as common;

use std::cell::Cell;
use std::cmp::Ordering;

use common::craft;
use common::raw::{self, put};
use common::{Counting, PROBED, Pair, Reads, Rng, build, doc_ids, exercise, lookup, try_build};
use pkhash_core::builder::{self};
use pkhash_core::hash::{control, home, partition, tag};
use pkhash_core::{Error, Footer, KeyHasher, Layout, Scalar, Table, Value};

const N: u64 = 100_000;

/// Keys with their numbers.
fn numbered(keys: impl Iterator<Item = impl AsRef<[u8]>>) -> Vec<Pair> {
    keys.zip(0u32..).map(|(key, i)| (key.as_ref().to_vec(), i.to_le_bytes().to_vec())).collect()
}

fn footer_of(bytes: &[u8]) -> Footer {
    *Table::open(bytes).expect("a sound table").footer()
}

#[test]
fn crafted_keys_meet() {
    let hasher = KeyHasher::new(0);
    let meet: Vec<u64> = craft::keys_that_meet(N).map(|key| hasher.hash(&key)).collect();
    let homes = N as u32 / 3 * 4 + 2;
    for hash in &meet {
        assert_eq!((partition(*hash, 0), home(*hash, 0, homes)), (0, 0));
        assert_eq!((control(*hash), tag(*hash)), (0xda, 0xbeef));
    }
    let one: Vec<u64> = craft::many_keys_of_one_hash(100).map(|key| hasher.hash(&key)).collect();
    assert!(one.iter().all(|hash| *hash == one[0]));
    // With another seed nothing of this is left.
    let other = KeyHasher::new(1);
    let controls = craft::keys_that_meet(1280).filter(|key| control(other.hash(key)) == 0xda);
    assert!(controls.count() < 40);
    let mut hashes: Vec<u64> =
        craft::many_keys_of_one_hash(1000).map(|key| other.hash(&key)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 1000);
}

/// A probed table in which all keys have one home slot, control byte and tag: slots fill one after the other, and
/// a lookup looks at as many as the specification says.
#[test]
fn a_hundred_thousand_keys_of_one_home_slot() {
    let pairs = numbered(craft::keys_that_meet(N + 64));
    let (pairs, absent) = pairs.split_at(N as usize);
    for layout in PROBED {
        // The filter cannot tell all of the absent keys, so it is left out.
        let options = doc_ids(layout).filter_bits(0);
        let bytes = build(&options, pairs);
        let table = Table::open(&bytes).unwrap();
        assert_eq!(table.verify(), Ok(()));
        let (entry, footer) = (table.partition(0).unwrap(), table.footer());
        assert_eq!((footer.partition_bits(), u64::from(entry.probe_limit)), (0, N));
        assert_eq!(entry.slots, entry.homes, "they all fit behind the first home slot");

        // Found after as many compares as there are keys before: the 1st, the last, and some between. Sorted by
        // hash they are in the order in which they were made.
        let (compared, equal) = (Cell::new(0), Cell::new(0));
        let kernel = Counting { compared: &compared, equal: &equal };
        for i in [0, 1, 63, 64, 255, 256, 50_000, N - 1] {
            compared.set(0);
            equal.set(0);
            let (key, value) = &pairs[i as usize];
            let found = table.get(kernel, key).unwrap().unwrap();
            assert_eq!((found.as_bytes(), compared.get(), equal.get()), (&value[..], i + 1, i + 1));
            let (found, reads) = lookup(&bytes, footer, key).unwrap();
            assert_eq!((found.as_ref(), reads.records), (Some(value), i + 1));
        }
        for (key, _) in &absent[..4] {
            compared.set(0);
            assert_eq!(table.get(kernel, key), Ok(None));
            assert_eq!(compared.get(), N);
            // All that may be read, read: lines of control bytes, slot words, records.
            let record = 4 + 8 + u64::from(layout == Layout::TermOrder);
            let words = if layout == Layout::TermOrder { N } else { 0 };
            let expected = Reads {
                lines: N.div_ceil(64),
                slot_words: words,
                records: N,
                bytes: 64 * N.div_ceil(64) + 8 * words + N * record,
                ..Reads::default()
            };
            assert_eq!(lookup(&bytes, footer, key), Ok((None, expected)));
        }
        // A batch makes no more of it: it begins with the first candidate, and with the whole probe if that is
        // not the key.
        let keys: Vec<&[u8]> = absent[4..6].iter().map(|pair| pair.0.as_slice()).collect();
        compared.set(0);
        assert_eq!(table.get_batch(kernel, &keys, &mut [None::<Value<'_>>; 2]), Ok(0));
        assert_eq!(compared.get(), 2 * (N + 1));
        // Keys of another home pay nothing: its slot is beyond those that are taken.
        let far = craft::key_of_hash(u64::MAX << 32);
        compared.set(0);
        assert_eq!(table.get(kernel, &far), Ok(None));
        assert_eq!(compared.get(), 0);
    }
}

/// With another seed the same keys are as good as any.
#[test]
fn another_seed_spreads_them() {
    let pairs = numbered(craft::keys_that_meet(N));
    let mut rng = Rng(0x0dd5);
    let random = numbered((0..N).map(|_| rng.bytes(8)));
    for layout in Layout::all() {
        let options = doc_ids(layout).hasher(KeyHasher::new(0x5eed));
        let [crafted, random] = [&pairs, &random].map(|pairs| {
            let bytes = build(&options, pairs);
            let footer = footer_of(&bytes);
            let mut sum = Reads::default();
            for (key, value) in pairs.iter().step_by(31) {
                let (found, reads) = lookup(&bytes, &footer, key).unwrap();
                assert_eq!(found.as_ref(), Some(value));
                sum.lines += reads.lines;
                sum.records += reads.records;
                sum.bytes += reads.bytes;
            }
            let entry = Table::open(&bytes).unwrap().partition(0).unwrap();
            assert_eq!(entry.seed, 0);
            (sum, entry.probe_limit)
        });
        let near = |a: u64, b: u64| a.abs_diff(b) * 50 <= a.max(b);
        assert!(
            near(crafted.0.records, random.0.records) && near(crafted.0.lines, random.0.lines),
            "{layout}: {crafted:?} and {random:?}"
        );
        assert!(crafted.1 <= 2 * random.1.max(30), "{layout}: probe limits");
    }
}

/// Keys that meet in one bucket of a perfect partition: the partition takes another seed, and then they are as good
/// as any. Keys that meet with every seed are an error that says what helps.
#[test]
fn a_hundred_thousand_keys_of_one_bucket() {
    let options = doc_ids(Layout::Perfect);
    let one = numbered(craft::keys_of_one_bucket(N as u32));
    let bytes = build(&options, &one);
    let table = Table::open(&bytes).unwrap();
    assert_eq!(table.verify(), Ok(()));
    let entry = table.partition(0).unwrap();
    assert_eq!((u64::from(entry.keys), entry.exceptions), (N, 0));
    assert!((1..4).contains(&entry.seed), "the next seed, or one soon after: {}", entry.seed);
    for (key, value) in one.iter().step_by(97) {
        let expected = Reads { pilots: 1, records: 1, bytes: 1 + 12, ..Reads::default() };
        assert_eq!(lookup(&bytes, table.footer(), key), Ok((Some(value.clone()), expected)));
    }

    let others = numbered(craft::keys_that_meet_with_other_seeds(N / 2));
    let all: Vec<Pair> = one.into_iter().take(N as usize / 2).chain(others).collect();
    let error = try_build(&options, &all).unwrap_err();
    assert_eq!(error, Error::Unsolvable { keys: N, seeds: 32 });
    assert!(error.to_string().contains("give the table another seed, or another layout"));
    let bytes = build(&options.hasher(KeyHasher::new(1)), &all);
    assert_eq!(Table::open(&bytes).unwrap().partition(0).unwrap().seed, 0);
    let bytes = build(&doc_ids(Layout::TermOrder).partition_bits(1), &all);
    assert_eq!(footer_of(&bytes).keys(), N);
}

/// Keys of one 64-bit hash: a perfect partition takes 65 of them.
#[test]
fn a_hundred_thousand_keys_of_one_hash() {
    let pairs = numbered(craft::many_keys_of_one_hash(N));
    let options = doc_ids(Layout::Perfect);
    let wrong = Error::EqualHashes { expected: 64, found: N - 1 };
    assert_eq!(try_build(&options, &pairs), Err(wrong));
    let bytes = build(&options.hasher(KeyHasher::new(1)), &pairs);
    assert_eq!(footer_of(&bytes).exceptions(), 0);
    // Term-order takes them all, and looks at each; the lengths of inline keys end at 31.
    let options = doc_ids(Layout::TermOrder).filter_bits(0);
    let bytes = build(&options, &pairs);
    let footer = footer_of(&bytes);
    let (found, reads) = lookup(&bytes, &footer, &pairs[N as usize - 1].0).unwrap();
    assert_eq!((found.as_ref(), reads.records), (Some(&pairs[N as usize - 1].1), N));
}

/// What sorting costs, since the rest of a build goes through the sorted keys from the first to the last.
#[test]
fn sorting_is_not_quadratic() {
    let n = N as usize;
    let compares = |hash: fn(u64) -> u64| {
        let count = Cell::new(0u64);
        let mut items: Vec<u64> = (0..N).map(|i| i.wrapping_mul(0x9e37_79b9) % N).collect();
        let order = |a: &u64, b: &u64| -> Ordering {
            count.set(count.get() + 1);
            a.cmp(b)
        };
        builder::sort_by(&mut items, &mut vec![0; n], |item| hash(*item), order).unwrap();
        assert!(items.is_sorted_by_key(|item| (hash(*item), *item)));
        count.get()
    };
    // One hash: 17 merges or so of all keys, and runs of 24 sorted by insertion.
    let one = compares(|_| 0);
    assert!((N..N * (17 + 12)).contains(&one), "{one} compares");
    // Hashes that differ in their last bits, or in those between home and control byte: none are equal.
    assert_eq!(compares(|item| item), 0);
    assert_eq!(compares(|item| item << 23), 0);
    // Two of each hash.
    assert!(compares(|item| item / 2) < 12 * N);
}

/// The worst that a damaged table of a probing layout can do: every slot within the probe limit is a candidate, the
/// limit is as large as may be, and the home slot is the last of a line. All that FORMAT.md §7.1 allows is read.
#[test]
fn the_bound_of_probing_layouts_is_reached_and_kept() {
    for layout in PROBED {
        for bits in [0, 1] {
            let mut rng = Rng(0xb0bd);
            let pairs = numbered((0..2000).map(|_| rng.bytes(16)));
            let options = doc_ids(layout).partition_bits(bits);
            let mut bytes = build(&options, &pairs);
            let footer = footer_of(&bytes);
            let table = Table::open(&bytes).unwrap();
            let (key, p, entry, first) = loop {
                let key = rng.bytes(16);
                let hash = footer.hasher().hash(&key);
                let p = partition(hash, bits);
                let entry = table.partition(p).unwrap();
                let first = home(hash, bits, entry.homes);
                if first % 64 == 63 && first + entry.keys <= entry.slots {
                    break (key, p as usize, entry, first);
                }
            };
            let (hash, limit) = (footer.hasher().hash(&key), u64::from(entry.keys));
            let [filter, control_bytes, words, _] = raw::sections(&bytes, p);
            bytes[filter].fill(0xff);
            bytes[control_bytes].fill(control(hash));
            for (slot, at) in words.step_by(8).enumerate() {
                let distance = (slot as u64).saturating_sub(first.into()).min(255);
                let pointer = 1 + rng.next() % (entry.record_bytes / 2);
                let word = pointer << 24 | distance << 16 | u64::from(tag(hash));
                if at + 8 <= raw::directory(&bytes) {
                    put(&mut bytes, at, 8, word);
                }
            }
            raw::set_entry(&mut bytes, p, "probe limit", limit);
            raw::repair_all(&mut bytes);
            let footer = footer_of(&bytes);
            let (found, reads) = lookup(&bytes, &footer, &key).unwrap();
            let record = 4 + 16 + u64::from(layout == Layout::TermOrder);
            let word = if layout == Layout::TermOrder { 8 } else { 0 };
            assert_eq!((found, reads.records), (None, limit));
            assert_eq!(
                reads.bytes,
                8 + 64 * (limit + 63).div_ceil(64) + limit * (word + record),
                "{layout}"
            );
            // In memory, too.
            let (compared, equal) = (Cell::new(0), Cell::new(0));
            let kernel = Counting { compared: &compared, equal: &equal };
            let table = Table::open(&bytes).unwrap();
            assert_eq!(table.get(kernel, &key), Ok(None));
            assert_eq!((compared.get(), equal.get()), (limit, limit));
            exercise(&table, &[&key]);
            // One more is refused.
            raw::set_entry(&mut bytes, p, "probe limit", limit + 1);
            raw::repair_footer(&mut bytes);
            let error = Table::open(&bytes).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::BadField { field: "probe limit", .. }), "{error}");
        }
    }
}

/// The same for perfect tables: as many exceptions as may be, all with the longest key there is. All that FORMAT.md
/// §7.2 allows is read.
#[test]
fn the_bound_of_perfect_tables_is_reached_and_kept() {
    // Several lengths: the longest, and a shorter key.
    for (longest, lines) in [(65_536, false), (37_439 - 4, true)] {
        let hasher = KeyHasher::truncated(0, 0);
        let options = doc_ids(Layout::Perfect).hasher(hasher).filter_bits(10);
        let key = |i: u8| [&[i][..], &vec![7; longest - 1]].concat();
        let mut pairs = numbered((0..65).map(key));
        if lines {
            // Its record takes as many units.
            pairs[0].0.truncate(longest - 1);
        }
        let bytes = build(&options, &pairs);
        let footer = footer_of(&bytes);
        assert_eq!((footer.exceptions(), u64::from(footer.max_key_len())), (64, longest as u64));
        let absent = key(200);
        let record =
            if lines { (4 + longest as u64 + 1).next_multiple_of(16) } else { 4 + longest as u64 };
        let (found, reads) = lookup(&bytes, &footer, &absent).unwrap();
        let expected = Reads {
            filter: 1,
            pilots: 1,
            offset_lines: if lines { 65 } else { 0 },
            records: 65,
            bytes: 8 + 1 + if lines { 65 * 64 } else { 0 } + 65 * record,
            ..Reads::default()
        };
        assert_eq!((found, reads), (None, expected));
        // Damaged: the records are those of no keys.
        let mut damaged = bytes.clone();
        damaged[raw::sections(&bytes, 0)[3].clone()].fill(0xee);
        raw::repair_all(&mut damaged);
        let footer = footer_of(&damaged);
        let (found, reads) = lookup(&damaged, &footer, &absent).unwrap();
        assert_eq!((found, reads), (None, expected));
        assert_eq!(Table::open(&damaged).unwrap().get(Scalar, &absent), Ok(None));
    }
}
