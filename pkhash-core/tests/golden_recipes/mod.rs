//! The invalid golden files: how each is made of a valid one, and the error that it is refused with.

mod directory;
mod ends;
mod perfect;
mod probed;

use pkhash_core::hash::{control, home, partition};
use pkhash_core::{Error, KeyHasher, Section};
use xxhash_rust::xxh3::xxh3_64;

use pkhash_core_testing::raw::{self, get, put};
use pkhash_core_testing::{craft, recipes};

/// Every invalid golden file, in the order of FORMAT.md §6.
pub(crate) fn faults() -> impl Iterator<Item = &'static Fault> {
    [ends::ENDS, directory::DIRECTORY, probed::PROBED, perfect::PERFECT].into_iter().flatten()
}

/// Where the fault is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Open,
    Verify,
}
pub(crate) use Found::{Open, Verify};

/// What is made right again after the damage.
#[derive(Clone, Copy)]
enum Repair {
    Nothing,
    Footer,
    Everything,
}
use Repair::{Everything, Footer, Nothing};

/// An invalid file: a valid one, damaged.
pub(crate) struct Fault {
    /// The file's name without its extension.
    pub(crate) name: &'static str,
    /// The recipe of the file that is damaged.
    pub(crate) base: &'static str,
    damage: fn(&mut Vec<u8>),
    repair: Repair,
    pub(crate) found: Found,
    /// The error, given the damaged file.
    pub(crate) error: fn(&[u8]) -> Error,
}

const fn fault(
    name: &'static str,
    base: &'static str,
    repair: Repair,
    found: Found,
    damage: fn(&mut Vec<u8>),
    error: fn(&[u8]) -> Error,
) -> Fault {
    Fault { name, base, damage, repair, found, error }
}

impl Fault {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = recipes::find(self.base).bytes();
        (self.damage)(&mut bytes);
        match self.repair {
            Nothing => {}
            Footer => raw::repair_footer(&mut bytes),
            Everything => raw::repair_all(&mut bytes),
        }
        bytes
    }
}

/// Sets a field of the tail.
pub(crate) fn set_tail(bytes: &mut [u8], name: &str, value: u64) {
    raw::set_tail(bytes, name, value);
}

/// Sets a field of partition 0.
pub(crate) fn set_entry(bytes: &mut [u8], name: &str, value: u64) {
    raw::set_entry(bytes, 0, name, value);
}

/// The error of a field of the tail.
pub(crate) fn bad_tail(bytes: &[u8], name: &str, expected: u64) -> Error {
    Error::BadField {
        field: raw::tail_field(name).error_name(),
        offset: raw::tail_at(bytes, name) as u64,
        expected,
        found: raw::tail_entry(bytes, name),
    }
}

/// The error of a field of partition 0.
fn bad_entry(bytes: &[u8], name: &str, expected: u64) -> Error {
    Error::BadField {
        field: raw::entry_field(bytes, name).error_name(),
        offset: raw::at(bytes, 0, name) as u64,
        expected,
        found: raw::entry(bytes, 0, name),
    }
}

fn footer_checksum(bytes: &[u8]) -> Error {
    Error::FooterChecksum {
        offset: raw::tail_at(bytes, "footer checksum") as u64,
        expected: raw::tail_entry(bytes, "footer checksum"),
        found: raw::footer_sum(bytes),
    }
}

/// The error of a section of partition 0.
fn section_checksum(bytes: &[u8], section: Section) -> Error {
    let sections = match raw::layout(bytes) {
        raw::PERFECT => [Section::Filter, Section::Pilots, Section::OffsetLines, Section::Records],
        _ => [Section::Filter, Section::Control, Section::SlotWords, Section::Records],
    };
    let i = sections.iter().position(|s| *s == section).unwrap();
    let range = raw::sections(bytes, 0)[i].clone();
    let found = if range.is_empty() { 0 } else { xxh3_64(&bytes[range.clone()]) };
    Error::SectionChecksum {
        section,
        partition: 0,
        offset: range.start as u64,
        expected: raw::entry(bytes, 0, raw::CHECKSUMS[i]),
        found,
    }
}

fn corrupt(what: &'static str, offset: usize, expected: u64, found: u64) -> Error {
    Error::Corrupt { what, offset: offset as u64, expected, found }
}

fn tail_magic(bytes: &[u8]) -> Error {
    let at = bytes.len() - 8;
    Error::NoTail {
        offset: at as u64,
        expected: *b"pkh-tail",
        found: bytes[at..].try_into().unwrap(),
    }
}

fn head_magic(bytes: &[u8]) -> Error {
    Error::BadMagic { offset: 0, expected: *b"\x89pkhash\n", found: bytes[..8].try_into().unwrap() }
}

fn value_width(bytes: &[u8]) -> usize {
    raw::tail_entry(bytes, "value width") as usize
}

fn longest_key(bytes: &[u8]) -> usize {
    raw::tail_entry(bytes, "longest key") as usize
}

/// The occupied slots of partition 0, in order.
fn occupied(bytes: &[u8]) -> Vec<usize> {
    let control = raw::sections(bytes, 0)[1].start;
    (0..slots(bytes, 0) as usize).filter(|slot| bytes[control + slot] != 0).collect()
}

/// The `i`-th occupied slot: offsets of its control byte, its slot word and its record.
fn nth(bytes: &[u8], i: usize) -> (usize, usize, usize) {
    let slot = occupied(bytes)[i];
    let [_, control, words, records] = raw::sections(bytes, 0);
    if raw::layout(bytes) == raw::TERM_ORDER {
        let word = words.start + 8 * slot;
        let pointer = (get(bytes, word, 8) >> 24) as usize;
        // Wrapping: a wild pointer may be past what a small machine can address.
        (control.start + slot, word, records.start.wrapping_add(pointer.saturating_sub(1)))
    } else {
        let width = value_width(bytes) + longest_key(bytes);
        (control.start + slot, 0, records.start + slot * width)
    }
}

/// The key of the `i`-th occupied slot of an inline table of partition 0.
fn inline_key(bytes: &[u8], i: usize) -> Vec<u8> {
    let at = nth(bytes, i).2 + value_width(bytes);
    bytes[at..at + longest_key(bytes)].to_vec()
}

/// The first empty slot of partition 0.
fn empty_slot(bytes: &[u8]) -> usize {
    let taken = occupied(bytes);
    (0..).find(|slot| !taken.contains(slot)).unwrap()
}

/// Offset of the record of the key of `example` that comes `i`-th in term order. Its records are
/// `value (4) | length (1) | key`, the keys "", "B000000001", "order-17".
fn example_record(bytes: &[u8], i: usize) -> usize {
    raw::sections(bytes, 0)[3].start + [0, 5, 20][i]
}

/// The hash of the table.
fn hasher(bytes: &[u8]) -> KeyHasher {
    KeyHasher::new(raw::tail_entry(bytes, "seed"))
}

/// The key of a slot, or exception, of partition `p` of a perfect table; `None` if it has no bytes.
fn perfect_key(bytes: &[u8], p: usize, slot: u64) -> Option<Vec<u8>> {
    let record = &bytes[raw::perfect_record(bytes, p, slot)];
    let unit = raw::tail_entry(bytes, "offset unit");
    let padding = match record.last() {
        Some(last) if unit > 1 => usize::from(*last),
        None if unit > 0 => return None,
        _ => 0,
    };
    Some(record[value_width(bytes)..record.len() - padding].to_vec())
}

/// The slot of a key in partition `p`, by its hash and its pilot.
fn own_slot(bytes: &[u8], p: usize, key: &[u8]) -> u64 {
    raw::perfect_place(bytes, p, hasher(bytes).hash(key)).1
}

/// The first partition with keys.
fn first_partition(bytes: &[u8]) -> usize {
    (0..).find(|p| raw::entry(bytes, *p, "partition keys") > 0).unwrap()
}

fn slots(bytes: &[u8], p: usize) -> u64 {
    raw::entry(bytes, p, "partition slots")
}

/// The slots of the first partition with keys that hold their own key, in order; then the others.
fn own_and_others(bytes: &[u8]) -> (Vec<u64>, Vec<u64>) {
    let p = first_partition(bytes);
    (0..slots(bytes, p)).partition(|slot| {
        perfect_key(bytes, p, *slot).is_some_and(|key| own_slot(bytes, p, &key) == *slot)
    })
}

/// The record of the `i`-th slot of partition 0 that holds its own key.
fn own_record(bytes: &[u8], i: usize) -> std::ops::Range<usize> {
    raw::perfect_record(bytes, 0, own_and_others(bytes).0[i])
}

/// The record of the `i`-th exception of partition 0.
fn exception(bytes: &[u8], i: u64) -> std::ops::Range<usize> {
    raw::perfect_record(bytes, 0, slots(bytes, 0) + i)
}

/// Exchanges two pieces of one length.
fn swap(bytes: &mut [u8], a: std::ops::Range<usize>, b: std::ops::Range<usize>) {
    assert_eq!(a.len(), b.len());
    a.zip(b).for_each(|(a, b)| bytes.swap(a, b));
}

/// Two slots of partition 0 that hold their own keys, in records of one length.
fn two_records_alike(bytes: &[u8]) -> [std::ops::Range<usize>; 2] {
    let record = |slot: &u64| raw::perfect_record(bytes, 0, *slot);
    let own = own_and_others(bytes).0;
    let alike =
        |a: &u64| own.iter().filter(|b| *b > a).find(|b| record(b).len() == record(a).len());
    let (a, b) = own.iter().find_map(|a| Some((a, alike(a)?))).expect("two of one length");
    [record(a), record(b)]
}

/// The first slot of a perfect table that holds neither its own key nor the copy that an empty slot
/// holds; or else those before the first key, which hold one copy, but not of that.
fn foreign_slot(bytes: &[u8]) -> Error {
    let p = first_partition(bytes);
    let (mut first, mut before, mut leading) = (None, None, None);
    for slot in 0..slots(bytes, p) {
        let Some(key) = perfect_key(bytes, p, slot) else { continue };
        let (own, at) = (own_slot(bytes, p, &key), raw::perfect_record(bytes, p, slot));
        let record = Some(&bytes[at.clone()]);
        if own == slot {
            first = first.or(record);
            before = record;
            continue;
        }
        if before.is_none() {
            leading = leading.or(record);
        }
        if raw::tail_entry(bytes, "offset unit") > 0 || before.or(leading) != record {
            return corrupt("slot of a key", at.start, own, slot);
        }
    }
    assert!(leading.is_some() && leading != first, "every slot holds what it should");
    corrupt("empty slot", raw::entry(bytes, p, "partition offset") as usize, 0, 1)
}

/// The empty slots of `HALF_FULL`: those before its first key, and those behind.
fn empty_slots(bytes: &[u8]) -> (Vec<u64>, Vec<u64>) {
    let (own, others) = own_and_others(bytes);
    assert!(others[0] == 0 && *others.last().unwrap() + 1 == slots(bytes, 0), "empty at both ends");
    others.into_iter().partition(|slot| *slot < own[0])
}

/// The error of a record that cannot be parsed.
fn bad_record(bytes: &[u8], what: &'static str, record: std::ops::Range<usize>) -> Error {
    let left = raw::directory(bytes) - record.start;
    corrupt(what, record.start, record.len() as u64, left as u64)
}

/// The record of the key of this length.
fn record_of_len(bytes: &[u8], len: usize) -> std::ops::Range<usize> {
    let slot = own_and_others(bytes)
        .0
        .into_iter()
        .find(|slot| perfect_key(bytes, 0, *slot).unwrap().len() == len);
    raw::perfect_record(bytes, 0, slot.expect("a key of this length"))
}

/// Moves the start of the first record to one unit behind its end.
fn let_a_line_fall(bytes: &mut [u8]) {
    let line = raw::sections(bytes, 0)[2].start;
    let next = get(bytes, line + 7, 2);
    put(bytes, line + 5, 2, next + 1);
}

/// Makes the record of the first key with one as short as this.
fn cut_record(bytes: &mut [u8], len: u64) {
    let (p, slot) = (first_partition(bytes), own_and_others(bytes).0[0]);
    let at = raw::sections(bytes, p)[2].start + 5 + 2 * slot as usize;
    let start = get(bytes, at, 2);
    put(bytes, at + 2, 2, start + len);
}

/// The records of the first offset line behind all others, and the lines as they then must be.
fn move_first_line(bytes: &mut [u8]) {
    let [_, _, lines, records] = raw::sections(bytes, 0);
    let total = raw::entry(bytes, 0, "record bytes");
    let first = get(bytes, lines.start + 61, 2);
    bytes[records][..total as usize].rotate_left(first as usize);
    put(bytes, lines.start, 5, total - first);
    for line in lines.step_by(64).skip(1) {
        let base = get(bytes, line, 5);
        put(bytes, line, 5, base - first);
    }
}

const FILTERED: &str = "inline-doc-id";
/// 60 keys of 16 bytes in 61 slots, three records of 20 bytes in a line.
const ALIGNED: &str = "perfect-doc-id";
/// The same back to back.
const PACKED: &str = "perfect-packed";
/// Half of the slots are empty, the first one and the last one among them.
const HALF_FULL: &str = "perfect-half-full";
/// 14 keys that are placed, 3 that are not.
const EXCEPTIONS: &str = "perfect-exceptions";
/// Keys of 0 … 128 bytes in 25 slots, in units of 1.
const MIXED: &str = "perfect-mixed";
/// In units of 2.
const PADDED: &str = "perfect-mixed-set";
/// 71 slots and three offset lines.
pub(crate) const LINES: &str = "perfect-mixed-filter";
