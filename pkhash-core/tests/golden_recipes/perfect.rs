//! Faults of the bodies of perfect tables, and sums of the tail that are not those of the body: found by `verify`.

use super::*;

/// In the order of FORMAT.md §6.3.
pub(crate) const PERFECT: &[Fault] = &[
    // A perfect table's checksums.
    fault(
        "pilot-flipped",
        ALIGNED,
        Nothing,
        Verify,
        |b| {
            let at = raw::sections(b, 0)[1].start;
            b[at] ^= 1;
        },
        |b| section_checksum(b, Section::Pilots),
    ),
    fault(
        "offset-line-flipped",
        MIXED,
        Nothing,
        Verify,
        |b| {
            let at = raw::sections(b, 0)[2].start;
            b[at + 63] ^= 1;
        },
        |b| section_checksum(b, Section::OffsetLines),
    ),
    fault(
        "record-of-a-slot-flipped",
        ALIGNED,
        Nothing,
        Verify,
        |b| {
            let at = own_record(b, 7).start;
            b[at] ^= 1;
        },
        |b| section_checksum(b, Section::Records),
    ),
    fault(
        "checksum-of-no-offset-lines",
        ALIGNED,
        Footer,
        Verify,
        |b| set_entry(b, "slot word checksum", 1),
        |b| section_checksum(b, Section::OffsetLines),
    ),
    // A perfect table's slots, with good checksums.
    fault(
        "pilot-of-other-keys",
        ALIGNED,
        Everything,
        Verify,
        |b| {
            let key = perfect_key(b, 0, own_and_others(b).0[50]).unwrap();
            let (bucket, _) = raw::perfect_place(b, 0, hasher(b).hash(&key));
            let at = raw::sections(b, 0)[1].start + bucket as usize;
            b[at] ^= 0x55;
        },
        foreign_slot,
    ),
    fault(
        "partition-seed",
        "perfect-partition-seed",
        Footer,
        Verify,
        |b| {
            let seed = raw::entry(b, 0, "partition seed");
            assert!(seed > 0, "with seed 0 they meet");
            set_entry(b, "partition seed", seed + 1);
            raw::repair_entries(b);
        },
        foreign_slot,
    ),
    fault(
        "one-bucket-more",
        PACKED,
        Footer,
        Verify,
        |b| set_entry(b, "partition buckets", 21),
        foreign_slot,
    ),
    fault(
        "key-in-a-foreign-slot",
        ALIGNED,
        Everything,
        Verify,
        |b| {
            let (from, to) = (own_record(b, 3), own_record(b, 30));
            swap(b, from, to);
        },
        foreign_slot,
    ),
    fault(
        "key-in-a-foreign-span",
        LINES,
        Everything,
        Verify,
        |b| {
            let [from, to] = two_records_alike(b);
            swap(b, from, to);
        },
        foreign_slot,
    ),
    fault(
        "copy-of-another-key",
        HALF_FULL,
        Everything,
        Verify,
        |b| {
            let to = raw::perfect_record(b, 0, empty_slots(b).1[5]).start;
            // The last key is not the one before.
            let from = own_record(b, own_and_others(b).0.len() - 1);
            b.copy_within(from, to);
        },
        foreign_slot,
    ),
    fault(
        "copy-with-another-value",
        HALF_FULL,
        Everything,
        Verify,
        |b| {
            let at = raw::perfect_record(b, 0, empty_slots(b).1[5]).start;
            b[at] ^= 1;
        },
        foreign_slot,
    ),
    fault(
        "copy-of-zeros",
        HALF_FULL,
        Everything,
        Verify,
        |b| {
            let record = raw::perfect_record(b, 0, *empty_slots(b).1.last().unwrap());
            b[record].fill(0);
        },
        foreign_slot,
    ),
    fault(
        "copies-before-the-first-key",
        HALF_FULL,
        Everything,
        Verify,
        |b| {
            for slot in empty_slots(b).0 {
                let (from, to) = (own_record(b, 1), raw::perfect_record(b, 0, slot).start);
                b.copy_within(from, to);
            }
        },
        |_| corrupt("empty slot", 64, 0, 1),
    ),
    fault(
        "exceptions-out-of-order",
        EXCEPTIONS,
        Everything,
        Verify,
        |b| {
            let (last, before) = (exception(b, 2), exception(b, 1));
            swap(b, last, before);
        },
        |b| corrupt("order of exceptions", exception(b, 2).start, 1, 0),
    ),
    fault(
        "exception-twice",
        EXCEPTIONS,
        Everything,
        Verify,
        |b| {
            let (from, to) = (exception(b, 0), exception(b, 1).start);
            b.copy_within(from, to);
        },
        |b| corrupt("order of exceptions", exception(b, 1).start, 1, 0),
    ),
    fault(
        "exception-that-is-placed",
        EXCEPTIONS,
        Everything,
        Verify,
        |b| {
            let (from, to) = (own_record(b, 4), exception(b, 0).start);
            b.copy_within(from, to);
        },
        |b| {
            let own = own_and_others(b).0[4];
            corrupt("key of an exception", exception(b, 0).start, own, slots(b, 0))
        },
    ),
    fault(
        "exception-of-another-hash",
        EXCEPTIONS,
        Everything,
        Verify,
        |b| {
            let last = exception(b, 1).end - 1;
            b[last] ^= 1;
        },
        |b| {
            let own = own_slot(b, 0, &perfect_key(b, 0, slots(b, 0) + 1).unwrap());
            corrupt("key of an exception", exception(b, 1).start, own, slots(b, 0) + 1)
        },
    ),
    fault(
        "exception-before-its-key",
        "perfect-mixed-exceptions",
        Everything,
        Verify,
        |b| {
            // The keys of one hash and 16 bytes.
            let slots = slots(b, 0);
            let (slot, placed) = (slots..)
                .map(|slot| (slot, own_slot(b, 0, &perfect_key(b, 0, slot).unwrap())))
                .find(|(_, own)| perfect_key(b, 0, *own).unwrap().len() == 16)
                .unwrap();
            let [from, to] = [slot, placed].map(|slot| raw::perfect_record(b, 0, slot));
            swap(b, from, to);
        },
        |b| {
            let slots = slots(b, 0);
            let placed = |slot| own_slot(b, 0, &perfect_key(b, 0, slot).unwrap());
            let slot = (slots..)
                .find(|slot| perfect_key(b, 0, *slot) < perfect_key(b, 0, placed(*slot)))
                .unwrap();
            let at = raw::perfect_record(b, 0, slot).start;
            corrupt("key of an exception", at, placed(slot), slot)
        },
    ),
    fault(
        "key-of-another-partition-perfect",
        "perfect-empty-partitions",
        Everything,
        Verify,
        |b| {
            // All bits of its hash are the same but one of the partition: so is the slot.
            let p = first_partition(b);
            let key = perfect_key(b, p, own_and_others(b).0[0]).unwrap();
            let other = craft::key_of_hash(hasher(b).hash(&key) ^ 1 << 63);
            let records = raw::sections(b, p)[3].clone();
            for at in records.start..records.end - 8 {
                if b[at..at + 8] == key {
                    b[at..at + 8].copy_from_slice(&other);
                }
            }
        },
        |b| {
            let p = first_partition(b);
            let at = raw::perfect_record(b, p, own_and_others(b).0[0]).start;
            corrupt("partition of a key", at, p as u64, p as u64 ^ 4)
        },
    ),
    fault(
        "filter-lacks-a-key-perfect",
        LINES,
        Everything,
        Verify,
        |b| {
            let filter = raw::sections(b, 0)[0].clone();
            b[filter].fill(0);
        },
        |b| corrupt("key that the filter does not admit", own_record(b, 0).start, 1, 0),
    ),
    fault(
        "record-past-the-records",
        MIXED,
        Everything,
        Verify,
        |b| {
            // The end of slot 24, the last one.
            let at = raw::sections(b, 0)[2].start + 5 + 2 * 25;
            let end = get(b, at, 2);
            put(b, at, 2, end + 1);
        },
        |b| {
            let (line, bytes) = (raw::sections(b, 0)[2].start, raw::entry(b, 0, "record bytes"));
            corrupt("end of a record by its offset line", line, bytes, bytes + 1)
        },
    ),
    fault(
        "offset-line-that-falls",
        MIXED,
        Everything,
        Verify,
        |b| let_a_line_fall(b),
        |b| {
            let line = raw::sections(b, 0)[2].start;
            let bytes = raw::entry(b, 0, "record bytes");
            corrupt("end of a record by its offset line", line, bytes, get(b, line + 7, 2))
        },
    ),
    fault(
        "record-shorter-than-its-value",
        "perfect-mixed-8-partitions",
        Everything,
        Verify,
        |b| cut_record(b, 11),
        |b| {
            // Cut, it holds no key any more: found by its length.
            let p = first_partition(b);
            let record = (0..slots(b, p))
                .map(|slot| raw::perfect_record(b, p, slot))
                .find(|record| record.len() == 11);
            bad_record(b, "record shorter than its value", record.unwrap())
        },
    ),
    fault(
        "padding-of-no-bytes",
        PADDED,
        Everything,
        Verify,
        |b| {
            let last = own_record(b, 0).end - 1;
            b[last] = 0;
        },
        |b| {
            let first = (0..slots(b, 0)).map(|slot| raw::perfect_record(b, 0, slot));
            bad_record(b, "padding of a record", first.into_iter().find(|r| !r.is_empty()).unwrap())
        },
    ),
    fault(
        "padding-past-the-unit",
        PADDED,
        Everything,
        Verify,
        |b| {
            let last = record_of_len(b, 31).end - 1;
            b[last] = 3;
        },
        |b| {
            // Its key has 29 bytes now.
            let record = (0..slots(b, 0)).map(|slot| raw::perfect_record(b, 0, slot));
            let found = record.into_iter().find(|r| !r.is_empty() && b[r.end - 1] == 3);
            bad_record(b, "padding of a record", found.unwrap())
        },
    ),
    fault(
        "padding-longer-than-the-key",
        "perfect-unit-4",
        Everything,
        Verify,
        |b| {
            // The empty key: a value of 2 bytes, and 2 of padding.
            let last = record_of_len(b, 0).end - 1;
            b[last] = 3;
        },
        |b| {
            let record = (0..slots(b, 0)).map(|slot| raw::perfect_record(b, 0, slot));
            let found = record.into_iter().find(|r| r.len() == 4 && b[r.end - 1] == 3);
            bad_record(b, "padding of a record", found.unwrap())
        },
    ),
    fault(
        "padding-of-a-record-not-zero",
        "perfect-unit-4",
        Everything,
        Verify,
        |b| {
            // A value of 2 bytes, a key of 30, and 4 of padding.
            let end = record_of_len(b, 30).end;
            b[end - 4] = 1;
        },
        |b| bad_record(b, "padding of a record", record_of_len(b, 30)),
    ),
    fault(
        "offset-lines-out-of-order",
        LINES,
        Everything,
        Verify,
        |b| move_first_line(b),
        |b| {
            let line = raw::sections(b, 0)[2].start;
            corrupt("start of a record by its offset line", line, 0, get(b, line, 5))
        },
    ),
    fault(
        "slots-past-the-last",
        MIXED,
        Everything,
        Verify,
        |b| {
            let at = raw::sections(b, 0)[2].start + 61;
            let end = get(b, at, 2);
            put(b, at, 2, end + 1);
        },
        |b| {
            let (line, bytes) = (raw::sections(b, 0)[2].start, raw::entry(b, 0, "record bytes"));
            corrupt("slots of an offset line", line, bytes, bytes + 1)
        },
    ),
    fault(
        "last-byte-of-an-offset-line",
        LINES,
        Everything,
        Verify,
        |b| {
            let at = raw::sections(b, 0)[2].start + 127;
            b[at] = 1;
        },
        |b| corrupt("padding", raw::sections(b, 0)[2].start + 127, 0, 1),
    ),
    fault(
        "padding-of-a-line",
        ALIGNED,
        Everything,
        Verify,
        |b| {
            let at = raw::sections(b, 0)[3].start + 5 * 64 + 60;
            b[at] = 1;
        },
        |b| corrupt("padding", raw::sections(b, 0)[3].start + 5 * 64 + 60, 0, 1),
    ),
    fault(
        "places-behind-the-last-record",
        ALIGNED,
        Everything,
        Verify,
        |b| {
            // The last line holds slot 60 alone.
            let at = raw::sections(b, 0)[3].end - 44;
            b[at] = 7;
        },
        |b| corrupt("padding", raw::sections(b, 0)[3].end - 44, 0, 7),
    ),
    fault(
        "pilot-padding-not-zero",
        ALIGNED,
        Everything,
        Verify,
        |b| {
            let at = raw::sections(b, 0)[1].start + 20;
            b[at] = 7;
        },
        |b| corrupt("padding", raw::sections(b, 0)[1].start + 20, 0, 7),
    ),
    fault(
        "record-padding-not-zero",
        MIXED,
        Everything,
        Verify,
        |b| {
            let at = raw::sections(b, 0)[3].start + raw::entry(b, 0, "record bytes") as usize;
            b[at] = 7;
        },
        |b| {
            let at = raw::sections(b, 0)[3].start + raw::entry(b, 0, "record bytes") as usize;
            corrupt("padding", at, 0, 7)
        },
    ),
    fault(
        "filter-padding-not-zero",
        "perfect-filter",
        Everything,
        Verify,
        |b| {
            let last = raw::sections(b, 0)[0].end - 1;
            b[last] = 7;
        },
        |b| corrupt("padding", raw::sections(b, 0)[0].end - 1, 0, 7),
    ),
    fault(
        "one-key-more",
        PACKED,
        Footer,
        Verify,
        |b| {
            set_entry(b, "partition keys", 61);
            set_tail(b, "keys", 61);
            set_tail(b, "key bytes", 61 * 16);
        },
        |_| corrupt("keys of a partition", 64, 60, 61),
    ),
    fault(
        "record-bytes-one-too-many",
        MIXED,
        Footer,
        Verify,
        |b| {
            let bytes = raw::entry(b, 0, "record bytes");
            set_entry(b, "record bytes", bytes + 1);
        },
        |b| {
            let bytes = raw::entry(b, 0, "record bytes");
            corrupt("record bytes of a partition", 64, bytes - 1, bytes)
        },
    ),
    fault(
        "longest-key-of-the-tail-perfect",
        MIXED,
        Footer,
        Verify,
        |b| set_tail(b, "longest key", 129),
        |b| corrupt("longest key of the tail", b.len(), 128, 129),
    ),
    fault(
        "largest-value-of-the-tail-perfect",
        "perfect-200-keys",
        Footer,
        Verify,
        |b| set_tail(b, "largest value", 250),
        |b| corrupt("largest value of the tail", b.len(), 199, 250),
    ),
    fault(
        "key-bytes-of-the-tail",
        "example",
        Footer,
        Verify,
        |b| set_tail(b, "key bytes", 17),
        |b| corrupt("key bytes of the tail", b.len(), 18, 17),
    ),
    fault(
        "shortest-key-of-the-tail",
        "example",
        Footer,
        Verify,
        |b| set_tail(b, "shortest key", 1),
        |b| corrupt("shortest key of the tail", b.len(), 0, 1),
    ),
    fault(
        "longest-key-of-the-tail",
        "example",
        Footer,
        Verify,
        |b| set_tail(b, "longest key", 11),
        |b| corrupt("longest key of the tail", b.len(), 10, 11),
    ),
    fault(
        "largest-value-of-the-tail",
        "example",
        Footer,
        Verify,
        |b| set_tail(b, "largest value", 69_999),
        |b| corrupt("largest value of the tail", b.len(), 70_000, 69_999),
    ),
];
