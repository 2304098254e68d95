//! Damaged, cut and hostile bytes: `open` refuses them or lookups survive them, and `verify` finds
//! what `open` does not.

use pkhash_core_testing as common;

use common::raw::{self, Block, Field, put};
use common::recipes::RECIPES;
use common::{Rng, ask, exercise, walk};
use pkhash_core::builder::TableOptions;
use pkhash_core::{Footer, Layout, Lookup, Scalar, Table, Value, format};

/// A golden file's name, its bytes, and some keys, most of them in it.
type Golden = (&'static str, Vec<u8>, Vec<Vec<u8>>);

/// Every valid golden file.
fn golden() -> Vec<Golden> {
    RECIPES
        .iter()
        .map(|recipe| {
            let mut keys: Vec<Vec<u8>> = recipe.pairs().into_iter().map(|pair| pair.0).collect();
            keys.extend([vec![], b"absent".to_vec(), vec![0; 16], vec![0xff; 300]]);
            (recipe.name, recipe.golden(), keys)
        })
        .collect()
}

/// `n` of these keys, others each time.
fn some(keys: &[Vec<u8>], n: usize, round: usize) -> Vec<&[u8]> {
    (0..n.min(keys.len())).map(|i| keys[(round * n + i) % keys.len()].as_slice()).collect()
}

#[test]
fn every_truncation_is_refused() {
    for (name, bytes, _) in golden() {
        for len in 0..bytes.len() {
            assert!(Table::open(&bytes[..len]).is_err(), "{name} cut to {len}");
        }
        // Cut at the front, and grown at either end.
        for len in 1..bytes.len() {
            assert!(Table::open(&bytes[len..]).is_err(), "{name} without its first {len}");
        }
        for more in [1, 63, 64, 4096] {
            assert!(Table::open(&[&bytes[..], &vec![0; more]].concat()).is_err(), "{name} grown");
            assert!(Table::open(&[&vec![0; more], &bytes[..]].concat()).is_err(), "{name} grown");
        }
        assert!(Table::open(&[&bytes[..], &bytes].concat()).is_err(), "{name} twice");
    }
}

#[test]
fn every_flipped_bit_is_found_and_survived() {
    for (name, mut bytes, keys) in golden() {
        let directory = raw::directory(&bytes);
        for bit in 0..bytes.len() * 8 {
            // One key is nearly all of this file: one bit for each of its bytes.
            let long = name == "perfect-unit-4" && (256..directory).contains(&(bit / 8));
            if long && bit % 8 != bit / 8 % 8 {
                continue;
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
            match Table::open(&bytes) {
                Err(_) => {}
                Ok(table) => {
                    // Head and footer are checked at once.
                    assert!((64..directory).contains(&(bit / 8)), "{name}: bit {bit}");
                    assert!(table.verify().is_err(), "{name}: bit {bit} unnoticed");
                    ask(&table, &some(&keys, 2, bit));
                    // Once for each byte, with another bit each time.
                    if bit % 8 == bit / 8 % 8 {
                        walk(&table);
                    }
                }
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Table::open(&bytes).unwrap().verify(), Ok(()), "{name} whole again");
    }
}

/// Offset and width of every field that is an offset, a length, a count or a choice.
fn fields(bytes: &[u8]) -> Vec<(&'static str, usize, usize)> {
    let mut fields = vec![("magic", 0, 8), ("version", 8, 4)];
    for p in 0..raw::partitions(bytes) {
        for block in [raw::first(raw::layout(bytes)), Block::Second] {
            let of = |field: &Field| (field.name, raw::at(bytes, p, field.name), field.width);
            fields.extend(raw::fields(block).map(of));
        }
    }
    fields.extend(
        raw::fields(Block::Tail)
            .map(|field| (field.name, raw::tail_at(bytes, field.name), field.width)),
    );
    fields
}

/// Values at which sums and products turn over.
fn interesting(now: u64, len: u64) -> Vec<u64> {
    let mut values = vec![now.wrapping_sub(1), now.wrapping_add(1), now.wrapping_mul(2), now ^ 64];
    for edge in [0, 64, len, 1 << 7, 1 << 8, 1 << 31, 1 << 32, 1 << 40, 1 << 63] {
        values.extend([edge.wrapping_sub(1u64), edge, edge.wrapping_add(1)]);
    }
    values
}

/// Opens the bytes and does everything that can be done with a table.
fn survive(bytes: &[u8], keys: &[&[u8]]) {
    if let Ok(table) = Table::open(bytes) {
        exercise(&table, keys);
        let _ = table.verify();
        let _ = table.probe_lengths::<4>();
        let _ = table.filter_fill();
    }
}

#[test]
fn every_field_at_every_edge() {
    for (_, bytes, keys) in golden() {
        for (i, (_, at, width)) in fields(&bytes).into_iter().enumerate() {
            for value in interesting(raw::get(&bytes, at, width), bytes.len() as u64) {
                let mut damaged = bytes.clone();
                put(&mut damaged, at, width, value);
                survive(&damaged, &some(&keys, 4, i));
                raw::repair_footer(&mut damaged);
                survive(&damaged, &some(&keys, 4, i));
            }
        }
    }
}

#[test]
fn several_fields_at_once() {
    // Faults that one check alone would have caught may hide each other.
    let mut rng = Rng(0xf1e1d5);
    let mut opened = 0;
    for (_, bytes, keys) in golden() {
        let fields = fields(&bytes);
        for round in 0..2000 {
            let mut damaged = bytes.clone();
            for _ in 0..2 + rng.below(3) {
                let (_, at, width) = fields[rng.below(fields.len())];
                let values = interesting(raw::get(&bytes, at, width), bytes.len() as u64);
                put(&mut damaged, at, width, values[rng.below(values.len())]);
            }
            // The identity of the file stays, or nothing else would be reached.
            damaged[..12].copy_from_slice(&bytes[..12]);
            for name in
                ["version", "partition bits", "file length", "directory offset", "tail magic"]
            {
                raw::set_tail(&mut damaged, name, raw::tail_entry(&bytes, name));
            }
            // For the same reason, half of the time what follows from other fields agrees with them.
            if round % 2 == 0 {
                raw::repair_entries(&mut damaged);
            }
            raw::repair_footer(&mut damaged);
            opened += usize::from(Table::open(&damaged).is_ok());
            survive(&damaged, &some(&keys, 4, round));
        }
    }
    assert!(opened > 100, "the checks behind the checksum were reached: {opened}");
}

#[test]
fn random_damage_of_bodies() {
    let mut rng = Rng(0xb0d1e5);
    for (name, bytes, keys) in golden() {
        let body = 64..raw::directory(&bytes);
        if body.is_empty() {
            continue;
        }
        for round in 0..200 {
            let mut damaged = bytes.clone();
            match round % 4 {
                // Scattered bytes.
                0 | 1 => {
                    for _ in 0..1 + rng.below(64) {
                        damaged[body.start + rng.below(body.len())] = rng.next() as u8;
                    }
                }
                // One section full of noise, of zeros, of one byte, or shifted.
                2 => {
                    let sections = raw::sections(&bytes, rng.below(raw::partitions(&bytes)));
                    let section = sections[rng.below(4)].clone();
                    match rng.below(4) {
                        0 => damaged[section].fill_with(|| rng.next() as u8),
                        1 => damaged[section].fill(0),
                        2 => damaged[section].fill(0x80 | rng.next() as u8),
                        _ if section.is_empty() => {}
                        _ => damaged[section].rotate_right(1),
                    }
                }
                // A piece copied over another.
                _ => {
                    let len = 1 + rng.below(body.len());
                    let (from, to) =
                        (rng.below(body.len() - len + 1), rng.below(body.len() - len + 1));
                    damaged
                        .copy_within(body.start + from..body.start + from + len, body.start + to);
                }
            }
            let keys = some(&keys, 12, round);
            let changed = damaged != bytes;
            let table = Table::open(&damaged).expect("head and footer are whole");
            assert_eq!(table.verify().is_err(), changed, "{name}, round {round}");
            exercise(&table, &keys);
            // Whoever wrote the damage can write checksums, too.
            raw::repair_all(&mut damaged);
            survive(&damaged, &keys);
        }
    }
}

#[test]
fn control_bytes_of_every_kind_end_every_probe() {
    // No empty slot, and every slot a candidate of some key.
    for (_, bytes, keys) in golden() {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            for p in 0..raw::partitions(&bytes) {
                damaged[raw::sections(&bytes, p)[1].clone()].fill(byte);
            }
            survive(&damaged, &some(&keys, 20, 0));
        }
        if raw::layout(&bytes) == raw::PERFECT {
            continue;
        }
        // The byte that is sought, for some keys; `exercise` counts the reads.
        let hasher = Table::open(&bytes).unwrap().footer().hasher();
        for key in some(&keys, 20, 0) {
            let mut damaged = bytes.clone();
            for p in 0..raw::partitions(&bytes) {
                damaged[raw::sections(&bytes, p)[1].clone()]
                    .fill(pkhash_core::hash::control(hasher.hash(key)));
                // Let the filter admit everything, and the probe be as long as may be.
                damaged[raw::sections(&bytes, p)[0].clone()].fill(0xff);
                raw::set_entry(
                    &mut damaged,
                    p,
                    "probe limit",
                    raw::entry(&bytes, p, "partition keys"),
                );
            }
            raw::repair_footer(&mut damaged);
            let table = Table::open(&damaged).unwrap();
            exercise(&table, &[key]);
        }
    }
}

/// Perfect golden files only.
fn perfect() -> impl Iterator<Item = Golden> {
    golden().into_iter().filter(|golden| raw::layout(&golden.1) == raw::PERFECT)
}

#[test]
fn pilots_of_every_kind_lead_to_some_slot() {
    let mut rng = Rng(0x9110);
    for (name, bytes, keys) in perfect() {
        let sections: Vec<_> = (0..raw::partitions(&bytes))
            .map(|p| (raw::sections(&bytes, p)[1].start, raw::buckets(&bytes, p)))
            .collect();
        for round in 0..64u8 {
            let mut damaged = bytes.clone();
            for (at, buckets) in &sections {
                for pilot in &mut damaged[*at..*at + *buckets as usize] {
                    *pilot = match round % 4 {
                        0 => pilot.wrapping_add(round + 1),
                        1 => round.wrapping_mul(37),
                        2 => rng.next() as u8,
                        _ if rng.below(4) == 0 => rng.next() as u8,
                        _ => *pilot,
                    };
                }
            }
            let changed = damaged != bytes;
            let keys = some(&keys, 12, round.into());
            let table = Table::open(&damaged).expect("head and footer are whole");
            exercise(&table, &keys);
            assert_eq!(table.verify().is_err(), changed, "{name}");
            // With good checksums: a key that is lost is found by its slot.
            raw::repair_all(&mut damaged);
            let table = Table::open(&damaged).expect("damage of the body alone");
            exercise(&table, &keys);
            let whole = Table::open(&bytes).unwrap();
            let lost = |key: &Vec<u8>| table.get(Scalar, key) != whole.get(Scalar, key);
            let all = perfect().find(|golden| golden.0 == name).unwrap().2;
            if all.iter().any(lost) {
                assert!(table.verify().is_err(), "{name}: keys are lost");
            }
        }
    }
}

#[test]
fn offset_lines_of_every_kind_end_every_lookup() {
    let mut rng = Rng(0x0ff5e7);
    let with_lines = |golden: &Golden| raw::tail_entry(&golden.1, "offset unit") > 0;
    for (name, bytes, keys) in perfect().filter(with_lines) {
        let longest = raw::tail_entry(&bytes, "longest key");
        for round in 0..200usize {
            let mut damaged = bytes.clone();
            for p in 0..raw::partitions(&bytes) {
                let [_, _, lines, records] = raw::sections(&bytes, p);
                for line in lines.step_by(64) {
                    let mut put =
                        |i: usize, value: u64| put(&mut damaged, line + 5 + 2 * i, 2, value);
                    match round % 5 {
                        // Records about as long as those of the table, wherever they begin.
                        0 => (0..29).for_each(|i| {
                            put(i, (i as u64 * (rng.next() % (longest + 9))) & 0xffff);
                        }),
                        // Rising to the end of the line's range, falling, and one of them off.
                        1 => (0..29).for_each(|i| put(i, 0xffff - 2340 * (28 - i as u64))),
                        2 => (0..29).for_each(|i| put(28 - i, i as u64 * (rng.next() % 99))),
                        3 => put(rng.below(29), rng.next() & 0xffff),
                        _ => {}
                    }
                    let end = records.len() as u64;
                    let base =
                        [0, end, end - 1, 1 << 31, 1 << 32, (1 << 40) - 1, rng.next() % (end + 64)];
                    if round % 5 == 4 || rng.below(4) == 0 {
                        raw::put(&mut damaged, line, 5, base[rng.below(base.len())]);
                    }
                }
            }
            let keys = some(&keys, 12, round);
            let changed = damaged != bytes;
            let table = Table::open(&damaged).expect("head and footer are whole");
            exercise(&table, &keys);
            assert_eq!(table.verify().is_err(), changed, "{name}");
            raw::repair_all(&mut damaged);
            let table = Table::open(&damaged).expect("damage of the body alone");
            exercise(&table, &keys);
            // The lines are all that can be wrong, and only those of the writer are right.
            assert_eq!(table.verify().is_err(), changed, "{name}");
        }
    }
}

#[test]
fn partitions_with_other_functions() {
    // Buckets, slots, seed, exceptions and partition as they should not be, as far as `open` allows.
    let mut rng = Rng(0x5eed);
    let mut opened = 0;
    for (name, bytes, keys) in perfect() {
        for round in 0..300 {
            let mut damaged = bytes.clone();
            for p in 0..raw::partitions(&bytes) {
                let n = raw::entry(&bytes, p, "partition keys");
                if n == 0 {
                    continue;
                }
                let mut set = |name, value| raw::set_entry(&mut damaged, p, name, value);
                match round % 4 {
                    0 => set("partition buckets", 1 + rng.next() % n),
                    1 => set("partition seed", rng.next() & 0xffff),
                    2 => set("exceptions", rng.next() % n),
                    _ => set("partition slots", n + rng.next() % n),
                }
            }
            raw::repair_entries(&mut damaged);
            raw::repair_footer(&mut damaged);
            let keys = some(&keys, 12, round);
            survive(&damaged, &keys);
            let Ok(table) = Table::open(&damaged) else { continue };
            opened += 1;
            let lost = table.iter().filter(Result::is_ok).count() as u64 != table.len();
            assert!(!lost || table.verify().is_err(), "{name}, round {round}");
        }
    }
    assert!(opened > 500, "only {opened} could be opened");
}

#[test]
fn any_address() {
    for (name, bytes, keys) in golden() {
        let mut buffer = vec![0xaa; bytes.len() + 64];
        let expected: Vec<_> = {
            let table = Table::open(&bytes).unwrap();
            keys.iter()
                .map(|k| table.get(Scalar, k).unwrap().map(|v| v.as_bytes().to_vec()))
                .collect()
        };
        // Whatever the buffer's own address, all 64 residues occur.
        for offset in 0..64 {
            buffer[offset..offset + bytes.len()].copy_from_slice(&bytes);
            let table = Table::open(&buffer[offset..offset + bytes.len()]).unwrap();
            assert_eq!(table.verify(), Ok(()), "{name} at {offset}");
            let keys = &keys[..keys.len().min(16)];
            for (key, expected) in keys.iter().zip(&expected) {
                let found = table.get(Scalar, key).unwrap().map(|value| value.as_bytes().to_vec());
                assert_eq!(found, *expected, "{name} at {offset}");
            }
            let mut out = vec![None::<Value<'_>>; keys.len()];
            table.get_batch(Scalar, keys, &mut out).unwrap();
            assert!(
                out.iter()
                    .map(Option::is_some)
                    .eq(expected[..keys.len()].iter().map(Option::is_some))
            );
        }
    }
}

#[test]
fn garbage_is_refused() {
    let mut rng = Rng(0x6a7ba6e);
    for round in 0..3000 {
        let mut bytes = {
            let len = rng.below(2048);
            rng.bytes(len)
        };
        // More and more of what a table has.
        if round % 2 == 1 && bytes.len() >= 64 {
            bytes[..64].copy_from_slice(&format::head());
        }
        if round % 3 == 1 && bytes.len() >= 192 {
            let len = bytes.len() as u64;
            raw::set_tail(&mut bytes, "version", 1);
            raw::set_tail(&mut bytes, "partition bits", rng.below(3) as u64);
            raw::set_tail(&mut bytes, "file length", len);
            raw::set_tail(&mut bytes, "tail magic", u64::from_le_bytes(*b"pkh-tail"));
            if raw::has_footer(&bytes) {
                let directory = raw::directory(&bytes) as u64;
                raw::set_tail(&mut bytes, "directory offset", directory);
            }
            raw::repair_footer(&mut bytes);
        }
        assert!(Table::open(&bytes).is_err(), "round {round}");
    }
    for byte in [0x00, 0xff] {
        for len in [0, 1, 63, 64, 191, 192, 288, 352, 4096] {
            assert!(Table::open(&vec![byte; len]).is_err());
        }
    }
}

#[test]
fn staged_lookups_of_other_bytes_behind_a_parsed_footer() {
    // A staged lookup trusts nothing: the file may have changed since its footer was parsed.
    let mut rng = Rng(0x07e4);
    for (_, bytes, keys) in golden() {
        let footer = Footer::parse(&bytes, bytes.len() as u64).unwrap();
        let directory = raw::directory(&bytes);
        for round in 0..200 {
            let mut damaged = bytes.clone();
            if round % 2 == 0 {
                damaged.fill_with(|| rng.next() as u8);
            } else {
                // Entries of a directory at their edges.
                let fields = fields(&bytes);
                for _ in 0..1 + rng.below(4) {
                    let (_, at, width) = fields[rng.below(fields.len())];
                    let values = interesting(raw::get(&bytes, at, width), bytes.len() as u64);
                    put(&mut damaged, at, width, values[rng.below(values.len())]);
                }
            }
            for key in some(&keys, 8, round) {
                // A device that has no bytes past its end answers with zeros.
                let mut lookup = Lookup::new(&footer, &damaged[directory..], key).unwrap();
                for _ in 0..1000 {
                    let Some(want) = lookup.want() else { break };
                    let mut read = vec![0; want.len];
                    let from = usize::try_from(want.offset).unwrap_or(usize::MAX);
                    if let Some(there) = damaged.get(from..from.saturating_add(want.len)) {
                        read.copy_from_slice(there);
                    }
                    if lookup.supply(&read).is_err() {
                        break;
                    }
                }
            }
        }
        for len in [0, 1, bytes.len() - 1] {
            assert!(Lookup::new(&footer, &bytes[..len.min(100)], b"").is_err());
        }
    }
}

#[test]
fn records_that_overlap_end_a_scan() {
    // Slots that all point into one long record: a small table that claims keys without end.
    let long = 1 << 16;
    let mut pairs: Vec<common::Pair> = (0..200u8).map(|i| (vec![i], vec![i])).collect();
    pairs.push((vec![b'k'; long], vec![0]));
    let options = TableOptions::default().layout(Layout::TermOrder).filter_bits(0);
    let sound = common::build(&options, &pairs);
    let [_, control, words, records] = raw::sections(&sound, 0);
    let mut bytes = sound.clone();
    // Before the key: its length, 3 bytes, and the value.
    let at = sound[records].windows(4).position(|bytes| bytes == b"kkkk").unwrap() - 4;
    for slot in (0..control.len()).filter(|slot| sound[control.start + slot] != 0) {
        put(&mut bytes, words.start + 8 * slot + 3, 5, at as u64 + 1);
    }
    raw::repair_all(&mut bytes);
    let table = Table::open(&bytes).unwrap();
    assert!(table.iter().take_while(Result::is_ok).count() <= 2);
    assert!(table.iter().any(|record| record.is_err()));
    assert!(table.range(0, u64::MAX).any(|record| record.is_err()));
    assert!(table.probe_lengths::<4>().is_err());
    assert!(table.verify().is_err());
}

#[test]
fn offset_lines_that_overlap_end_a_scan() {
    // All lines lead to one long record.
    let mut pairs: Vec<common::Pair> = (0..200u8).map(|i| (vec![i], vec![i])).collect();
    pairs.push((vec![b'k'; 2000], vec![0]));
    let mut bytes = common::build(&TableOptions::default(), &pairs);
    let [_, _, lines, records] = raw::sections(&bytes, 0);
    // Behind its value.
    let at = bytes[records].windows(9).position(|bytes| bytes == b"kkkkkkkkk").unwrap() as u64 - 1;
    for line in lines.step_by(64) {
        bytes[line..line + 64].fill(0);
        put(&mut bytes, line, 5, at);
        (1..29).for_each(|i| put(&mut bytes, line + 5 + 2 * i, 2, 2001));
    }
    raw::repair_all(&mut bytes);
    let table = Table::open(&bytes).unwrap();
    assert_eq!(table.footer().unit(), 1);
    // Copies of one key are one.
    assert_eq!(table.iter().collect::<Result<Vec<_>, _>>().map(|all| all.len()), Ok(1));
    assert!(table.verify().is_err());
    // Another byte each time, so that they are many.
    for (i, line) in raw::sections(&bytes, 0)[2].clone().step_by(64).enumerate() {
        put(&mut bytes, line + 5, 2, i as u64);
    }
    raw::repair_all(&mut bytes);
    let table = Table::open(&bytes).unwrap();
    assert!(table.iter().take_while(Result::is_ok).count() <= 2);
    assert!(table.iter().any(|record| record.is_err()));
    assert!(table.range(0, u64::MAX).any(|record| record.is_err()));
    assert!(table.verify().is_err());
}

#[test]
fn no_table_claims_slots_without_end() {
    // There is one key of no bytes. In a set its record has none either, and with them a table of
    // 500 bytes could say that it has 2^31 slots, or 2^47 in all partitions: a scan would not end.
    let partition = raw::RawPartition {
        keys: format::MAX_PARTITION_KEYS.into(),
        homes: 1,
        slots: format::MAX_SLOTS.into(),
        ..raw::RawPartition::default()
    };
    let footer = raw::RawFooter {
        layout: raw::PERFECT,
        value_kind: 1,
        value_width: 0,
        filter_bits: 0,
        records_per_line: 0,
        unit: 0,
        min_key_len: 0,
        max_key_len: 0,
        partitions: vec![partition],
    };
    let mut bytes = format::head().to_vec();
    bytes.extend([0; 64]);
    bytes.extend(footer.encode());
    assert!(Table::open(&bytes).is_err(), "{} slots in {} bytes", partition.slots, bytes.len());
}
