//! What is claimed in figures: size, false positives, false compares, the work of a probe, and the
//! arithmetic of tables too large to build here. Measured in counts, never in time.

#[cfg(not(all(pkhash_truncated_hash, debug_assertions)))]
compile_error!(
    "tests need debug assertions and `--cfg pkhash_truncated_hash`, which .cargo/config.toml sets: unset \
     RUSTFLAGS or add it there; with --release, set CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true"
);

use pkhash_core_testing as common;

use std::cell::Cell;

use common::footers::{
    assert_accepted, inline, perfect, perfect_bytes, refused, spans, term_order,
};
use common::raw::{self, RawFooter, RawPartition, align};
use common::{Counting, PROBED, Reads, Rng, build, doc_ids, lookup};
use pkhash_core::builder::{self, Entry, TableOptions};
use pkhash_core::format::{self, MAX_PARTITION_KEYS, MAX_RECORD_BYTES, MAX_SLOTS};
use pkhash_core::hash::{control, home, partition, tag};
use pkhash_core::{
    Error, Footer, GROUP_MAX, KeyHasher, Layout, Lookup, Scalar, Stage, Table, Value,
};

/// Pseudo-random keys of 16 bytes: the `i`-th one of a seed.
fn uuid(seed: u64, i: u64) -> [u8; 16] {
    let mut rng = Rng(seed ^ i.wrapping_mul(0xd134_2543_de82_ef95));
    let mut key = [0; 16];
    key[..8].copy_from_slice(&rng.next().to_le_bytes());
    key[8..].copy_from_slice(&rng.next().to_le_bytes());
    key
}

/// A table of `n` keys with doc IDs.
fn uuids(options: &TableOptions, n: u64) -> Vec<u8> {
    let keys: Vec<[u8; 16]> = (0..n).map(|i| uuid(1, i)).collect();
    let values: Vec<[u8; 4]> = (0..n as u32).map(u32::to_le_bytes).collect();
    let mut entries: Vec<Entry<'_>> =
        keys.iter().zip(&values).map(|(key, value)| options.entry(key, value)).collect();
    let mut scratch = vec![Entry::default(); entries.len()];
    let mut term_slots = vec![0; builder::scratch_len(entries.len())];
    builder::sort(&mut entries, &mut scratch).unwrap();
    let mut out = vec![0; builder::table_len(options, &entries).unwrap()];
    builder::build(Scalar, options, &mut entries, &mut scratch, &mut term_slots, &mut out).unwrap();
    out
}

#[test]
fn a_million_keys_are_as_small_and_as_rarely_mistaken_as_claimed() {
    const N: u64 = 1_000_000;
    let (keys, value, key, varint) = (N as f64, 4.0, 16.0, 1.0);
    for layout in PROBED {
        let bytes = uuids(&doc_ids(layout), N);
        let claimed = match layout {
            Layout::Inline => keys * ((1.0 + value + key) / 0.75 + 1.25),
            _ => keys * (9.0 / 0.75 + 1.25 + value + varint + key),
        };
        let ratio = bytes.len() as f64 / claimed;
        assert!((1.0..1.005).contains(&ratio), "{layout}: {ratio} of the size that is claimed");

        let table = Table::open(&bytes).unwrap();
        assert!((0..N).step_by(1009).all(|i| {
            table.get(Scalar, &uuid(1, i)).unwrap().unwrap().doc_id() == Some(i as u32)
        }));
        let absent = 200_000;
        let admitted = (0..absent)
            .filter(|i| table.filter_admits(table.footer().hasher().hash(&uuid(2, *i))))
            .count();
        let rate = admitted as f64 / absent as f64;
        // 1.7 % are expected: far from it on either side would be another filter than the one meant.
        assert!((0.014..0.020).contains(&rate), "{layout}: {rate} false positives");
    }
}

/// A table of `n` keys of two lengths, 15 and 16 bytes.
fn mixed_uuids(n: u64) -> Vec<u8> {
    let pairs: Vec<common::Pair> = (0..n)
        .map(|i| (uuid(1, i)[i as usize % 2..].to_vec(), (i as u32).to_le_bytes().to_vec()))
        .collect();
    build(&doc_ids(Layout::Perfect), &pairs)
}

#[test]
fn perfect_tables_are_as_small_as_claimed() {
    const N: u64 = 200_000;
    for (packed, claimed) in [(true, 20.7), (false, 22.0)] {
        let bytes = uuids(&doc_ids(Layout::Perfect).packed(packed), N);
        let (table, per_key) = (Table::open(&bytes).unwrap(), bytes.len() as f64 / N as f64);
        // 20 bytes of a record for 199 of 200 slots, 3 of them in a line of 64; a pilot for 2.5 keys.
        let record = if packed { 20.0 } else { 64.0 / 3.0 };
        let ratio = per_key / (record / 0.995 + 1.0 / 2.5);
        assert!((1.0..1.002).contains(&ratio), "{ratio} of the size that is expected");
        assert!(per_key < claimed, "{per_key} bytes a key");
        assert_eq!(table.footer().filter_bits(), 0, "no filter unless it is asked for");
        assert!(table.filter_admits(0));
        assert_eq!(table.verify(), Ok(()));
        assert!((0..N).step_by(1009).all(|i| {
            table.get(Scalar, &uuid(1, i)).unwrap().unwrap().doc_id() == Some(i as u32)
        }));
    }
    // Offset lines take 64 bytes for 28 slots.
    let bytes = mixed_uuids(20_000);
    let per_key = bytes.len() as f64 / 20_000.0;
    let ratio = per_key / (19.5 + 64.0 / 28.0 / 0.995 + 1.0 / 2.5);
    assert!((1.0..1.01).contains(&ratio), "{ratio} of the size that is expected");
}

#[test]
fn a_lookup_of_a_perfect_table_reads_one_record() {
    const N: u64 = 20_000;
    for bits in [0, 3, 12] {
        let options = doc_ids(Layout::Perfect).partition_bits(bits);
        let bytes = uuids(&options, N);
        let footer = *Table::open(&bytes).unwrap().footer();
        for i in (0..N).step_by(7) {
            // Found or not: pilot and record. `lookup` holds the bytes against the bound.
            for (seed, found) in [(1, true), (2, false)] {
                let (value, reads) = lookup(&bytes, &footer, &uuid(seed, i)).unwrap();
                assert_eq!(value.is_some(), found);
                let expected = Reads { pilots: 1, records: 1, bytes: 21, ..Reads::default() };
                // A partition without keys is known from the directory.
                assert!(reads == expected || (!found && reads == Reads::default()), "{reads:?}");
            }
        }
    }
    let bytes = mixed_uuids(N);
    let footer = *Table::open(&bytes).unwrap().footer();
    let (mut absent_records, mut absent) = (0, 0);
    for i in (0..N).step_by(7) {
        let (found, reads) = lookup(&bytes, &footer, &uuid(1, i)[i as usize % 2..]).unwrap();
        assert_eq!(found.as_deref(), Some(&(i as u32).to_le_bytes()[..]));
        assert_eq!((reads.pilots, reads.offset_lines, reads.records), (1, 1, 1));
        let (found, reads) = lookup(&bytes, &footer, &uuid(2, i)[i as usize % 2..]).unwrap();
        assert_eq!(found, None);
        assert_eq!((reads.pilots, reads.offset_lines), (1, 1));
        absent += 1;
        absent_records += reads.records;
        // No key is so short: its record is none of the table's.
        let (_, reads) = lookup(&bytes, &footer, &uuid(2, i)[4..]).unwrap();
        assert_eq!((reads.offset_lines, reads.records), (1, 0));
    }
    // Half of the keys are of another length, which the offset line says.
    let share = absent_records as f64 / f64::from(absent);
    assert!((0.44..0.56).contains(&share), "{share} of absent keys cost a record");
}

#[test]
fn exceptions_are_read_to_the_last_and_no_further() {
    // All keys have one hash: one is placed, 64 are exceptions.
    for len in [16, 15] {
        let mut pairs: Vec<common::Pair> =
            (0..65u8).map(|i| (uuid(8, i.into()).to_vec(), vec![i; 4])).collect();
        pairs[0].0.truncate(len);
        let options = doc_ids(Layout::Perfect).hasher(KeyHasher::truncated(0, 0));
        let bytes = build(&options, &pairs);
        let footer = *Table::open(&bytes).unwrap().footer();
        let (found, reads) = lookup(&bytes, &footer, &uuid(9, 0)).unwrap();
        assert_eq!((found, reads.pilots), (None, 1));
        if len == 16 {
            assert_eq!((reads.offset_lines, reads.records), (0, 65));
        } else {
            // One record is shorter than this key's would be.
            assert_eq!((reads.offset_lines, reads.records), (65, 64));
        }
        let mut records: Vec<u64> = Vec::new();
        for (key, value) in &pairs {
            let (found, reads) = lookup(&bytes, &footer, key).unwrap();
            assert_eq!(found.as_ref(), Some(value));
            records.push(reads.records.max(reads.offset_lines));
        }
        records.sort_unstable();
        assert!(records.into_iter().eq(1..=65), "each exception is one read more");
    }
}

#[test]
fn false_compares_are_one_in_128_at_every_partition_count() {
    // Absent keys: every compare that is equal is false. Hashes are drawn at random instead of keys,
    // which is the same and cheaper. Once for all of them, once for those alone that the filter
    // admitted, whose control bytes must know nothing of that.
    let (compared, equal) = (Cell::new(0), Cell::new(0));
    let kernel = Counting { compared: &compared, equal: &equal };
    let (mut admitted_compared, mut admitted_equal) = (0, 0);
    for bits in 0..=10 {
        let options = doc_ids(Layout::Inline).partition_bits(bits);
        let with_filter = uuids(&options, 60_000);
        let without_filter = uuids(&options.filter_bits(0), 60_000);
        let with_filter = Table::open(&with_filter).unwrap();
        let without_filter = Table::open(&without_filter).unwrap();
        let near = |what: &str, tolerance: f64| {
            let ratio = equal.get() as f64 * 128.0 / compared.get() as f64;
            assert!(
                (1.0 - tolerance..1.0 + tolerance).contains(&ratio),
                "{bits} partition bits, {what}: {} of {} compares",
                equal.get(),
                compared.get()
            );
        };

        let mut rng = Rng(0xab5e_0000 + u64::from(bits));
        let absent = [0xab; 16];
        compared.set(0);
        equal.set(0);
        for _ in 0..50_000 {
            assert_eq!(without_filter.get_hashed(kernel, rng.next(), &absent), Ok(None));
        }
        assert!(compared.get() > 100_000);
        // Four standard deviations of at least 800 hits.
        near("all", 0.14);

        compared.set(0);
        equal.set(0);
        for _ in 0..400_000 {
            let hash = rng.next();
            if with_filter.filter_admits(hash) {
                assert_eq!(with_filter.get_hashed(kernel, hash, &absent), Ok(None));
            }
        }
        assert!(compared.get() > 10_000);
        near("admitted by the filter", 0.40);
        admitted_compared += compared.get();
        admitted_equal += equal.get();
    }
    let ratio = admitted_equal as f64 * 128.0 / admitted_compared as f64;
    assert!((0.88..1.12).contains(&ratio), "{admitted_equal} of {admitted_compared} compares");
}

#[test]
fn control_byte_home_and_tag_are_independent() {
    // Among keys of one home slot, and among those of one control byte, the other fields are spread
    // as if by chance, at every partition count.
    let hasher = KeyHasher::new(0);
    let hashes: Vec<u64> = (0..100_000).map(|i| hasher.hash(&uuid(3, i))).collect();
    for bits in 0..=10u8 {
        let mut by_home = [[0u32; 128]; 16];
        let mut tags = [0u32; 256];
        for hash in hashes.iter().filter(|hash| partition(**hash, bits) == 0) {
            by_home[home(*hash, bits, 16) as usize][usize::from(control(*hash) & 0x7f)] += 1;
            tags[usize::from(tag(*hash) >> 8)] += 1;
        }
        let chi = |counts: &[u32]| {
            let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
            counts.iter().map(|n| (f64::from(*n) - mean).powi(2)).sum::<f64>() / mean
        };
        for counts in &by_home {
            // 127 degrees of freedom: 16 standard deviations each way would be nothing; 8 are room.
            assert!((30.0..260.0).contains(&chi(counts)), "{bits}: {}", chi(counts));
        }
        assert!((150.0..400.0).contains(&chi(&tags)), "{bits}: {}", chi(&tags));
    }
}

#[test]
fn probes_are_short_in_good_tables_and_bounded_in_bad_ones() {
    for layout in PROBED {
        for bits in [0, 4] {
            let options = doc_ids(layout).partition_bits(bits);
            let bytes = uuids(&options, 20_000);
            let footer = *Table::open(&bytes).unwrap().footer();
            // `lookup` holds each against the bound of its partition.
            let mut sum = 0;
            for i in (0..20_000).step_by(7) {
                let (found, reads) = lookup(&bytes, &footer, &uuid(1, i)).unwrap();
                assert_eq!(found.as_deref(), Some(&(i as u32).to_le_bytes()[..]));
                sum += reads.lines;
                let (found, reads) = lookup(&bytes, &footer, &uuid(2, i)).unwrap();
                assert!(found.is_none());
                assert!(reads.filter == 1 && (reads.lines > 0 || reads.bytes == 8));
            }
            let mean = sum as f64 * 7.0 / 20_000.0;
            assert!(mean < 1.2, "{layout}: {mean} lines of control bytes for a hit");

            // All control bytes are the one that is sought, the filter admits all.
            for i in [0, 1, 2] {
                let key = uuid(2, i);
                let hash = footer.hasher().hash(&key);
                let p = partition(hash, bits) as usize;
                let mut damaged = bytes.clone();
                damaged[raw::sections(&bytes, p)[0].clone()].fill(0xff);
                damaged[raw::sections(&bytes, p)[1].clone()].fill(control(hash));
                // Slot words that could be this key's, with pointers into the records.
                for at in raw::sections(&bytes, p)[2].clone().step_by(8) {
                    raw::put(&mut damaged, at, 2, tag(hash).into());
                    raw::put(&mut damaged, at + 2, 1, (i + at as u64 / 8) % 4);
                    raw::put(&mut damaged, at + 3, 5, 1 + at as u64 % 1000);
                }
                let (found, reads) = lookup(&damaged, &footer, &key).unwrap();
                assert!(found.is_none());
                let limit = Table::open(&damaged)
                    .unwrap()
                    .partition(p as u32)
                    .map(|entry| u64::from(entry.probe_limit))
                    .unwrap();
                assert!(limit > 3);
                if layout == Layout::Inline {
                    assert_eq!(reads.records, limit, "the whole probe, and no more");
                } else {
                    assert_eq!(reads.slot_words, limit, "the whole probe, and no more");
                }
            }
        }
    }
}

/// Around the numbers at which 32-bit arithmetic turns over.
const EDGES: [u64; 8] = [
    (1 << 31) - 1,
    1 << 31,
    (1 << 31) + 1,
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 1,
    (1 << 32) + (1 << 31),
    (1 << 33) + 1,
];

#[test]
fn record_bytes_past_4_gib() {
    for record_bytes in EDGES.into_iter().chain([MAX_RECORD_BYTES - 1, MAX_RECORD_BYTES]) {
        let partition = RawPartition { record_bytes, ..RawPartition::new(1000, 10, 3) };
        let footer = assert_accepted(&term_order(vec![partition]));
        assert_eq!(footer.slots(), 1334 + 3);
    }
}

#[test]
fn inline_records_past_4_gib() {
    // slots × record width is just the edge, or one record from it.
    for edge in EDGES {
        for (width, key_len) in [(1u8, 1), (4, 16), (64, 31)] {
            let record = u64::from(width) + key_len;
            let slots = edge / record;
            // Spread over partitions such that none has too many slots.
            let n = 1 << slots.div_ceil(MAX_SLOTS.into()).next_power_of_two().trailing_zeros();
            for slots in [slots, slots + 1] {
                let partitions: Vec<RawPartition> = (0..n)
                    .map(|p| {
                        let slots = slots / n + u64::from(p < slots % n);
                        // One slot more than homes, or just as many, as it comes.
                        let keys = slots / 4 * 3;
                        let homes = keys + keys.div_ceil(3);
                        RawPartition {
                            record_bytes: slots * record,
                            ..RawPartition::new(keys, 0, slots - homes)
                        }
                    })
                    .collect();
                if partitions.iter().any(|p| p.slots > MAX_SLOTS.into()) {
                    continue;
                }
                let raw = inline(key_len, width, partitions);
                assert_eq!(assert_accepted(&raw).slots(), slots);
                // What 32-bit arithmetic would have made of it.
                let mut wrong = raw.clone();
                let bytes = wrong.partitions[0].record_bytes;
                wrong.partitions[0].record_bytes = bytes & 0xffff_ffff;
                if bytes > u64::from(u32::MAX) {
                    assert_eq!(refused(&wrong), ("record bytes", bytes, bytes & 0xffff_ffff));
                }
            }
        }
    }
}

#[test]
fn perfect_records_past_4_gib() {
    // slots × record width is just the edge, or one record from it: at 2^31 slots and at 2^32 bytes.
    for edge in EDGES {
        for (width, key_len) in [(1u8, 1), (4, 16), (4, 56), (8, 65_536)] {
            let record = u64::from(width) + key_len;
            for per_line in [0, (64 / record) as u8] {
                let slots = edge / record;
                let n = 1 << slots.div_ceil(MAX_SLOTS.into()).next_power_of_two().trailing_zeros();
                for (slots, exceptions) in [(slots, 0), (slots + 1, 0), (slots, 1), (slots, 64)] {
                    let partitions: Vec<RawPartition> = (0..n)
                        .map(|p| {
                            let slots = slots / n + u64::from(p < slots % n);
                            let keys = (slots / 4 * 3).max(exceptions) + exceptions;
                            let keys = keys.min(MAX_PARTITION_KEYS.into());
                            RawPartition {
                                slots,
                                record_bytes: perfect_bytes(slots + exceptions, record, per_line),
                                ..RawPartition::perfect(keys, 0, exceptions)
                            }
                        })
                        .collect();
                    if partitions.iter().any(|p| p.slots > MAX_SLOTS.into() || p.slots < p.keys) {
                        continue;
                    }
                    let raw = perfect(key_len, width, per_line, partitions);
                    assert_eq!(assert_accepted(&raw).slots(), slots);
                    // What 32-bit arithmetic would have made of it.
                    let mut wrong = raw.clone();
                    let bytes = wrong.partitions[0].record_bytes;
                    wrong.partitions[0].record_bytes = bytes & 0xffff_ffff;
                    if bytes > u64::from(u32::MAX) {
                        assert_eq!(refused(&wrong), ("record bytes", bytes, bytes & 0xffff_ffff));
                    }
                }
            }
        }
    }
}

#[test]
fn spans_past_4_gib() {
    for unit in [1u8, 2, 4, 8, 16] {
        let most = u64::from(unit) * ((1 << 40) - 2);
        for record_bytes in EDGES.into_iter().chain([most - 1, most]) {
            for exceptions in [0, 1, 64] {
                let partition =
                    RawPartition { record_bytes, ..RawPartition::perfect(1000, 0, exceptions) };
                assert_accepted(&spans(unit, vec![partition; 2]));
            }
        }
    }
}

#[test]
fn the_greatest_file_lengths() {
    // Any length may be claimed; none makes the arithmetic turn over.
    let end = term_order(vec![RawPartition::new(3, 10, 0)]).encode();
    let footer_len = end.len() as u64;
    for len in [0, 1, 63, 64, 191, 192, 1 << 32, u64::MAX - 1, u64::MAX] {
        for fields in [false, true] {
            let mut end = end.clone();
            if fields {
                raw::set_tail(&mut end, "file length", len);
                raw::set_tail(&mut end, "directory offset", len.wrapping_sub(footer_len));
                raw::repair_footer(&mut end);
            }
            let error = Footer::parse(&end, len).unwrap_err();
            if fields && len > 1 << 31 {
                let directory_at = len - footer_len;
                assert!(
                    matches!(error, Error::BadField { field: "directory offset", found, .. }
                        if found == directory_at),
                    "{error}"
                );
            }
        }
    }
    // Keys of the greatest length by the greatest number: the products saturate.
    let mut raw = term_order(vec![
        RawPartition {
            record_bytes: MAX_RECORD_BYTES,
            ..RawPartition::new(MAX_PARTITION_KEYS.into(), 10, 0)
        };
        1024
    ]);
    raw.max_key_len = format::MAX_KEY_LEN.into();
    assert_accepted(&raw);
}

#[test]
fn lookups_name_offsets_past_4_gib() {
    // Four partitions of more than 4 GiB each, in both layouts that are probed.
    let keys = 400_000_000;
    for layout in PROBED {
        let mut partition_of = RawPartition::new(keys, 10, 9);
        let raw = match layout {
            Layout::Inline => {
                partition_of.record_bytes = partition_of.slots * 20;
                RawFooter { filter_bits: 10, ..inline(16, 4, vec![partition_of; 4]) }
            }
            _ => {
                partition_of.record_bytes = (1 << 39) + 12_345;
                term_order(vec![partition_of; 4])
            }
        };
        let (footer, end) = (assert_accepted(&raw), raw.encode());
        assert_eq!(footer.layout(), layout);
        let begins = raw.offsets();
        let mut seen = [false; 4];
        for i in 0..64 {
            let key = uuid(4, i);
            let hash = footer.hasher().hash(&key);
            let p = (hash >> 62) as usize;
            seen[p] = true;
            // The formulas of FORMAT.md, in 128 bits.
            let home =
                ((u128::from(hash << 2 >> 33) * u128::from(partition_of.homes)) >> 31) as u64;
            assert_eq!(home, pkhash_core::hash::home(hash, 2, partition_of.homes as u32).into());
            let control_at = begins[p] + align(8 * partition_of.filter_words);
            let words_at = control_at + align(partition_of.slots + 64);
            let slot = home + 3;

            let mut staged = Lookup::new(&footer, &end, &key).unwrap();
            let want = staged.want().unwrap();
            assert_eq!((want.stage, want.len), (Stage::Filter, 8));
            assert!((begins[p]..begins[p] + 8 * partition_of.filter_words).contains(&want.offset));
            assert_eq!(staged.supply(&[0xff; 8]), Ok(None));
            // Slots of other keys, then ours, three past its home slot and perhaps in the next line.
            let others = [0x80 | (control(hash) ^ 1); GROUP_MAX];
            for line in home / 64..=slot / 64 {
                let want = staged.want().unwrap();
                assert_eq!(
                    (want.stage, want.offset, want.len),
                    (Stage::Control, control_at + 64 * line, 64)
                );
                let mut control_bytes = others;
                // What lies before the home slot does not count, be it empty or of this hash.
                if line == home / 64 {
                    control_bytes[..home as usize % 64].fill(0);
                    control_bytes[..home as usize % 64 / 2].fill(control(hash));
                }
                if line == slot / 64 {
                    control_bytes[slot as usize % 64] = control(hash);
                    control_bytes[slot as usize % 64 + 1..].fill(0);
                }
                assert_eq!(staged.supply(&control_bytes), Ok(None));
            }

            let mut record = 77u32.to_le_bytes().to_vec();
            let record_at = if layout == Layout::Inline {
                words_at + slot * 20
            } else {
                let want = staged.want().unwrap();
                assert_eq!((want.stage, want.offset), (Stage::SlotWord, words_at + 8 * slot));
                let pointer = (1 << 39) + 12_345 - 21;
                let word = (pointer + 1) << 24 | 3 << 16 | u64::from(tag(hash));
                assert_eq!(staged.supply(&word.to_le_bytes()), Ok(None));
                record.push(16);
                words_at + align(8 * partition_of.slots) + pointer
            };
            record.extend(key);
            let want = staged.want().unwrap();
            assert_eq!(
                (want.stage, want.offset, want.len),
                (Stage::Record, record_at, record.len())
            );
            assert!(p == 0 || record_at > 1 << 32);
            let value = staged.supply(&record).unwrap().unwrap();
            assert_eq!((value.doc_id(), staged.want()), (Some(77), None));
        }
        assert_eq!(seen, [true; 4]);
    }
}

#[test]
fn lookups_of_perfect_tables_name_offsets_past_4_gib() {
    // Four partitions of more than 4 GiB each, with all seeds and kinds of records.
    for keys in [400_000_000u64, u64::from(MAX_PARTITION_KEYS)] {
        for (unit, per_line, seed) in [(0u8, 0u8, 0u64), (0, 3, 1), (1, 0, 0), (4, 0, 0xffff)] {
            let mut partition_of = RawPartition::perfect(keys, 10, 1);
            partition_of.seed = seed;
            // Just below the limit, or at it.
            partition_of.slots = if keys > 1 << 30 { 1 << 31 } else { partition_of.slots };
            let slots = partition_of.slots;
            let raw = if unit == 0 {
                partition_of.record_bytes = perfect_bytes(slots + 1, 20, per_line);
                perfect(16, 4, per_line, vec![partition_of; 4])
            } else {
                partition_of.record_bytes = (1 << 39) + 12_340;
                spans(unit, vec![partition_of; 4])
            };
            let raw = RawFooter { filter_bits: 10, ..raw };
            let (footer, end) = (assert_accepted(&raw), raw.encode());
            assert_eq!(footer.layout(), Layout::Perfect);
            let begins = raw.offsets();
            let [filter_len, pilots_len, lines_len, _] = raw.section_lens(&partition_of);
            let mut seen = [false; 4];
            for i in 0..32 {
                let key = uuid(6, i);
                let hash = footer.hasher().hash(&key);
                let p = (hash >> 62) as usize;
                seen[p] = true;
                // The formulas of FORMAT.md, in 128 bits.
                let scale = |x: u64, n: u64| ((u128::from(x >> 32) * u128::from(n)) >> 32) as u64;
                let x = match seed {
                    0 => hash << 2,
                    s => hash.wrapping_mul(0xd6e8_feb8_6659_fd93u64.wrapping_mul(2 * s - 1)),
                };
                let pilot = i as u8 * 7;
                let mixed = x ^ u64::from(pilot).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
                let slot = scale(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15), slots);
                let pilots_at = begins[p] + filter_len;
                let lines_at = pilots_at + pilots_len;
                let records_at = lines_at + lines_len;

                let mut staged = Lookup::new(&footer, &end, &key).unwrap();
                let want = staged.want().unwrap();
                assert_eq!((want.stage, want.len), (Stage::Filter, 8));
                assert_eq!(staged.supply(&[0xff; 8]), Ok(None));
                let want = staged.want().unwrap();
                let pilot_at = pilots_at + scale(x, partition_of.homes);
                assert_eq!((want.stage, want.offset, want.len), (Stage::Pilot, pilot_at, 1));
                assert_eq!(staged.supply(&[pilot]), Ok(None));

                // The slot has another key's record, and then the exception is ours.
                let mut record = 77u32.to_le_bytes().to_vec();
                record.extend(key);
                if unit > 1 {
                    record.extend([0, 0, 0, 4]);
                }
                for (slot, found) in [(slot, false), (slots, true)] {
                    let record_at = if unit == 0 {
                        records_at
                            + match per_line {
                                0 => slot * 20,
                                _ => slot / 3 * 64 + slot % 3 * 20,
                            }
                    } else {
                        let want = staged.want().unwrap();
                        assert_eq!(
                            (want.stage, want.offset, want.len),
                            (Stage::OffsetLine, lines_at + slot / 28 * 64, 64)
                        );
                        let (base, start) = ((1u64 << 39) / u64::from(unit) - 0xffff, 0xff00);
                        let mut line = [0xff; 64];
                        raw::put(&mut line, 0, 5, base);
                        let at = 5 + 2 * (slot % 28) as usize;
                        raw::put(&mut line, at, 2, start);
                        raw::put(
                            &mut line,
                            at + 2,
                            2,
                            start + record.len() as u64 / u64::from(unit),
                        );
                        assert_eq!(staged.supply(&line), Ok(None));
                        records_at + (base + start) * u64::from(unit)
                    };
                    let want = staged.want().unwrap();
                    assert_eq!(
                        (want.stage, want.offset, want.len),
                        (Stage::Record, record_at, record.len())
                    );
                    assert!(p == 0 || record_at > 1 << 32);
                    let mut supplied = record.clone();
                    supplied[5] ^= u8::from(!found);
                    let value = staged.supply(&supplied).unwrap();
                    assert_eq!(value.and_then(Value::doc_id), found.then_some(77));
                }
                assert_eq!(staged.want(), None);
            }
            assert_eq!(seen, [true; 4]);
        }
    }
}

#[test]
fn sections_of_small_tables_lie_where_the_specification_says() {
    for layout in Layout::all() {
        for bits in [0, 2] {
            let options = doc_ids(layout).partition_bits(bits);
            let pairs: Vec<_> = (0..100u32)
                .map(|i| (uuid(5, i.into()).to_vec(), i.to_le_bytes().to_vec()))
                .collect();
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            let mut at = 64;
            for p in 0..1 << bits {
                let entry = table.partition(p).unwrap();
                for (i, (offset, len)) in table.footer().sections(&entry).enumerate() {
                    let expected = raw::sections(&bytes, p as usize)[i].clone();
                    assert_eq!((offset as usize, len as usize), (expected.start, expected.len()));
                    assert_eq!((offset, offset % 64, len % 64), (at, 0, 0));
                    at += len;
                }
            }
            assert_eq!(at as usize, raw::directory(&bytes));
            assert_eq!(table.partition(1 << bits), None);
        }
    }
}

#[test]
fn a_footer_of_more_than_4_gib_over_few_bytes_is_an_error() {
    // 32 bits of the claimed length are just the length of the bytes: a `usize` of 32 bits that was
    // cast and not converted would be taken in.
    for partitions in [1, 2] {
        let mut raw = term_order(vec![RawPartition::new(3, 10, 1); partitions]);
        raw.partitions[partitions - 1].record_bytes = 1 << 32;
        let (end, claimed) = (raw.encode(), raw.file_len());
        let mut bytes = format::head().to_vec();
        bytes.resize(claimed as u32 as usize - end.len(), 0);
        bytes.extend(&end);
        assert_eq!(bytes.len() as u64, claimed - (1 << 32));
        assert_accepted(&raw);
        let (expected, offset) = (bytes.len() as u64, raw::tail_at(&bytes, "file length") as u64);
        assert_eq!(
            Table::open(&bytes).map(|table| table.len()),
            Err(Error::BadField { field: "file length", offset, expected, found: claimed })
        );
    }
}
