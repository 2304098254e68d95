//! Faults of the bodies of inline and term-order tables: found by `verify`.

use super::*;

/// In the order of FORMAT.md §6.3.
pub(crate) const PROBED: &[Fault] = &[
    // The sections' checksums.
    fault(
        "filter-flipped",
        "example",
        Nothing,
        Verify,
        |b| b[64] ^= 1,
        |b| section_checksum(b, Section::Filter),
    ),
    fault(
        "section-flipped",
        "example",
        Nothing,
        Verify,
        |b| {
            let (at, ..) = nth(b, 0);
            b[at] ^= 1;
        },
        |b| section_checksum(b, Section::Control),
    ),
    fault(
        "padding-flipped",
        "example",
        Nothing,
        Verify,
        |b| {
            let last = raw::sections(b, 0)[1].end - 1;
            b[last] ^= 0x80;
        },
        |b| section_checksum(b, Section::Control),
    ),
    fault(
        "slot-word-flipped",
        "example",
        Nothing,
        Verify,
        |b| {
            let (_, at, _) = nth(b, 0);
            b[at] ^= 1;
        },
        |b| section_checksum(b, Section::SlotWords),
    ),
    fault(
        "record-flipped",
        "example",
        Nothing,
        Verify,
        |b| {
            let at = example_record(b, 1);
            b[at] ^= 1;
        },
        |b| section_checksum(b, Section::Records),
    ),
    fault(
        "checksum-of-no-bytes",
        FILTERED,
        Footer,
        Verify,
        |b| set_entry(b, "slot word checksum", 1),
        |b| section_checksum(b, Section::SlotWords),
    ),
    // The body, with good checksums.
    fault(
        "full-control",
        FILTERED,
        Everything,
        Verify,
        |b| {
            // Every slot has the control byte of the first key, so that no probe meets its end.
            let (first, ..) = nth(b, 0);
            let control = raw::sections(b, 0)[1].clone();
            let byte = b[first];
            b[control].fill(byte);
        },
        first_fault_of_full_control,
    ),
    fault(
        "full-control-term-order",
        "example",
        Everything,
        Verify,
        |b| {
            let control = raw::sections(b, 0)[1].clone();
            b[control].fill(0xff);
        },
        |b| {
            // The first slot has a key, whose control byte is another.
            let (_, word, at) = nth(b, 0);
            let hash = KeyHasher::new(0).hash(&example_key(b, word));
            corrupt("control byte of a key", at, control(hash).into(), 0xff)
        },
    ),
    fault(
        "control-without-top-bit",
        "example",
        Everything,
        Verify,
        |b| {
            let (at, ..) = nth(b, 1);
            b[at] &= 0x7f;
            b[at] |= 1;
        },
        |b| {
            let (at, ..) = nth(b, 1);
            corrupt("control byte", at, 0x80, b[at].into())
        },
    ),
    fault(
        "null-pointer",
        "example",
        Everything,
        Verify,
        |b| {
            let (_, at, _) = nth(b, 1);
            put(b, at, 8, 0);
        },
        |b| corrupt("slot word of an occupied slot", nth(b, 1).1, 1, 0),
    ),
    fault(
        "wild-pointer",
        "example",
        Everything,
        Verify,
        |b| {
            let (_, at, _) = nth(b, 1);
            put(b, at + 3, 5, (1 << 40) - 1);
        },
        |b| corrupt("pointer of a slot word", nth(b, 1).1, 33, (1 << 40) - 2),
    ),
    fault(
        "pointer-one-past-the-records",
        "example",
        Everything,
        Verify,
        |b| {
            let (_, at, _) = nth(b, 0);
            put(b, at + 3, 5, 34);
        },
        |b| corrupt("pointer of a slot word", nth(b, 0).1, 33, 33),
    ),
    fault(
        "pointer-to-another-record",
        "example",
        Everything,
        Verify,
        |b| {
            let ((_, from, _), (_, to, _)) = (nth(b, 0), nth(b, 1));
            b.copy_within(from + 3..from + 8, to + 3);
        },
        |b| {
            let (_, word, at) = nth(b, 0);
            let hash = KeyHasher::new(0).hash(&example_key(b, word));
            corrupt("order of keys by hash", at, hash, hash)
        },
    ),
    fault(
        "tag-of-another-key",
        "example",
        Everything,
        Verify,
        |b| {
            let (_, at, _) = nth(b, 0);
            b[at] ^= 1;
        },
        |b| {
            let (_, word, at) = nth(b, 0);
            let found = get(b, word, 8);
            corrupt("slot word of a key", at, found ^ 1, found)
        },
    ),
    fault(
        "distance-from-home",
        "example",
        Everything,
        Verify,
        |b| {
            let (_, at, _) = nth(b, 0);
            b[at + 2] ^= 1;
        },
        |b| {
            let (_, word, at) = nth(b, 0);
            let found = get(b, word, 8);
            corrupt("slot word of a key", at, found ^ (1 << 16), found)
        },
    ),
    fault(
        "key-length-past-the-records",
        "example",
        Everything,
        Verify,
        |b| {
            let at = example_record(b, 1) + 4;
            b[at] = 0x7f;
        },
        |b| {
            let at = example_record(b, 1);
            let slots = raw::directory(b) - at;
            corrupt("record runs past its section", at, 33, slots as u64)
        },
    ),
    fault(
        "key-length-not-shortest",
        "example",
        Everything,
        Verify,
        |b| {
            let at = example_record(b, 1) + 4;
            b[at..at + 2].copy_from_slice(&[0x8a, 0x00]);
        },
        |b| {
            let at = example_record(b, 1);
            let left = raw::directory(b) - at;
            corrupt("key length of a record", at, 33, left as u64)
        },
    ),
    fault(
        "control-of-another-key",
        FILTERED,
        Everything,
        Verify,
        |b| {
            let (at, ..) = nth(b, 3);
            b[at] ^= 1;
        },
        |b| {
            let (byte, _, at) = nth(b, 3);
            corrupt("control byte of a key", at, (b[byte] ^ 1).into(), b[byte].into())
        },
    ),
    fault(
        "key-in-another-slot",
        FILTERED,
        Everything,
        Verify,
        |b| {
            // A key that is last of its run moves on to the empty slot behind it.
            let to = empty_slot(b);
            assert!(to > 0, "there is a key before");
            let [_, control, _, records] = raw::sections(b, 0);
            b.copy_within(control.start + to - 1..control.start + to, control.start + to);
            b[control.start + to - 1] = 0;
            let at = records.start + 20 * (to - 1);
            b.copy_within(at..at + 20, at + 20);
            b[at..at + 20].fill(0);
        },
        |b| {
            let slot = empty_slot(b);
            let at = raw::sections(b, 0)[3].start + 20 * (slot + 1);
            corrupt("slot of a key", at, slot as u64, slot as u64 + 1)
        },
    ),
    fault(
        "key-twice",
        FILTERED,
        Everything,
        Verify,
        |b| {
            let ((_, _, from), (_, _, to)) = (nth(b, 0), nth(b, 1));
            b.copy_within(from..from + 20, to);
        },
        |b| {
            let hash = KeyHasher::new(0).hash(&inline_key(b, 0));
            corrupt("order of keys by hash", nth(b, 1).2, hash, hash)
        },
    ),
    fault(
        "key-in-the-other-slot",
        "term-order-set-of-the-empty-key",
        Everything,
        Verify,
        |b| {
            // The one key in the other of the two slots.
            let (control, word, _) = nth(b, 0);
            let slot = occupied(b)[0];
            b.swap(control, control + 1 - 2 * slot);
            for i in 0..8 {
                b.swap(word + i, word + 8 - 16 * slot + i);
            }
        },
        |b| {
            let hash = KeyHasher::new(0).hash(b"");
            let slot = occupied(b)[0] as u64;
            corrupt("slot of a key", nth(b, 0).2, home(hash, 0, 2).into(), slot)
        },
    ),
    fault(
        "key-of-another-partition",
        "inline-4-partitions",
        Everything,
        Verify,
        |b| {
            // A key of the last partition in the first slot of the first.
            let at = nth(b, 0).2 + 8;
            let other = key_of_partition_3();
            b[at..at + 8].copy_from_slice(&other);
        },
        |b| corrupt("partition of a key", nth(b, 0).2, 0, 3),
    ),
    fault(
        "filter-lacks-a-key",
        FILTERED,
        Everything,
        Verify,
        |b| {
            let filter = raw::sections(b, 0)[0].clone();
            b[filter].fill(0);
        },
        |b| corrupt("key that the filter does not admit", nth(b, 0).2, 1, 0),
    ),
    fault(
        "key-lost",
        "inline-1-key",
        Everything,
        Verify,
        |b| {
            let (at, ..) = nth(b, 0);
            b[at] = 0;
        },
        |b| {
            // The record is still there, in a slot that now is empty; its first byte may be zero.
            let record = raw::sections(b, 0)[3].clone();
            let at = record.start + b[record.clone()].iter().position(|byte| *byte != 0).unwrap();
            corrupt("empty slot", at, 0, b[at].into())
        },
    ),
    fault(
        "padding-not-zero",
        "example",
        Everything,
        Verify,
        |b| {
            let last = raw::sections(b, 0)[3].end - 1;
            b[last] = 7;
        },
        |b| corrupt("padding", raw::sections(b, 0)[3].end - 1, 0, 7),
    ),
    fault(
        "control-padding-not-zero",
        "inline-1-key",
        Everything,
        Verify,
        |b| {
            let last = raw::sections(b, 0)[1].end - 1;
            b[last] = 0x80;
        },
        |b| corrupt("padding", raw::sections(b, 0)[1].end - 1, 0, 0x80),
    ),
    fault(
        "slot-word-of-an-empty-slot",
        "example",
        Everything,
        Verify,
        |b| {
            let at = (0..)
                .find(|slot| b[raw::sections(b, 0)[1].start + slot] == 0)
                .map(|slot| raw::sections(b, 0)[2].start + 8 * slot)
                .unwrap();
            b[at] = 1;
        },
        |b| {
            let at = (0..)
                .find(|slot| b[raw::sections(b, 0)[1].start + slot] == 0)
                .map(|slot| raw::sections(b, 0)[2].start + 8 * slot)
                .unwrap();
            corrupt("empty slot", at, 0, 1)
        },
    ),
    fault(
        "probe-limit-too-low",
        FILTERED,
        Footer,
        Verify,
        |b| set_entry(b, "probe limit", 1),
        |b| corrupt("probe limit of a partition", 64, longest_probe(b), 1),
    ),
    fault(
        "record-bytes-too-few",
        "example",
        Footer,
        Verify,
        |b| set_entry(b, "record bytes", 34),
        |_| corrupt("record bytes of a partition", 64, 33, 34),
    ),
    fault(
        "slots-too-many",
        "example",
        Footer,
        Verify,
        |b| {
            set_entry(b, "partition slots", 5);
            set_tail(b, "slots", 5);
        },
        |_| corrupt("slots of a partition", 64, 4, 5),
    ),
    fault(
        "term-order",
        "example",
        Everything,
        Verify,
        |b| {
            // The first two records change places, and the pointers follow.
            let at = example_record(b, 0);
            b[at..at + 20].rotate_left(5);
            for i in 0..3 {
                let (_, word, _) = nth(b, i);
                let pointer = match get(b, word + 3, 5) {
                    1 => 16,
                    6 => 1,
                    other => other,
                };
                put(b, word + 3, 5, pointer);
            }
        },
        |b| corrupt("term order of records", example_record(b, 0) + 15, 1, 0),
    ),
];

/// `full-control` has all slots occupied, those that were empty by a key of zeros. Of each slot in
/// order `verify` compares the order, the slot, and the control byte.
fn first_fault_of_full_control(bytes: &[u8]) -> Error {
    let homes = raw::entry(bytes, 0, "partition homes") as u32;
    let mut before = None;
    for slot in 0.. {
        let (byte, _, at) = nth(bytes, slot);
        let hash = KeyHasher::new(0).hash(&inline_key(bytes, slot));
        if let Some(before) = before.filter(|before| *before >= hash) {
            return corrupt("order of keys by hash", at, before, hash);
        }
        let expected = u64::from(home(hash, 0, homes)).max(slot as u64);
        if expected != slot as u64 {
            return corrupt("slot of a key", at, expected, slot as u64);
        }
        if bytes[byte] != control(hash) {
            let (expected, found) = (control(hash).into(), bytes[byte].into());
            return corrupt("control byte of a key", at, expected, found);
        }
        before = Some(hash);
    }
    unreachable!("there are more slots than keys")
}

/// The key of the record that a slot word of `example` points to.
fn example_key(bytes: &[u8], word: usize) -> Vec<u8> {
    let at = raw::sections(bytes, 0)[3].start + (get(bytes, word, 8) >> 24) as usize - 1 + 4;
    bytes[at + 1..at + 1 + usize::from(bytes[at])].to_vec()
}

fn key_of_partition_3() -> [u8; 8] {
    (0u64..)
        .map(u64::to_le_bytes)
        .find(|key| partition(KeyHasher::new(0).hash(key), 2) == 3)
        .unwrap()
}

/// The probe limit that the keys of an inline table of one partition need.
fn longest_probe(bytes: &[u8]) -> u64 {
    let homes = raw::entry(bytes, 0, "partition homes") as u32;
    (0..occupied(bytes).len())
        .map(|i| {
            let hash = KeyHasher::new(0).hash(&inline_key(bytes, i));
            occupied(bytes)[i] as u64 - u64::from(home(hash, 0, homes)) + 1
        })
        .max()
        .unwrap()
}
