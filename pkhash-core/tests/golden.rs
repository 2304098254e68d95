//! The golden files: valid ones are rebuilt byte for byte and must stay readable for ever; each
//! invalid one is refused with just the error that its name states.
//!
//! `PKHASH_BLESS=1 cargo test -p pkhash-core --test golden are_their_recipes` writes them anew.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::craft;
use common::raw::{self, Block, get, put};
use common::recipes::{self, RECIPES, Recipe};
use pkhash_core::build::Options;
use pkhash_core::{Error, Hasher, Layout, Section, Table, control, home, partition};
use xxhash_rust::xxh3::xxh3_64;

fn bless() -> bool {
    std::env::var_os("PKHASH_BLESS").is_some_and(|value| value == "1")
}

/// Compares with the golden file, or writes it.
fn compare(path: &Path, bytes: &[u8]) {
    if bless() {
        std::fs::write(path, bytes).unwrap();
    }
    let golden = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(golden == bytes, "{} differs from its recipe", path.display());
}

/// The names in a folder are those of its table and no others.
fn assert_names<'n>(folder: &str, names: impl Iterator<Item = &'n str>) {
    let expected: BTreeSet<String> = names.map(|name| format!("{name}.pkh")).collect();
    let found: BTreeSet<String> = std::fs::read_dir(recipes::folder(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn this_is_the_machine_that_was_asked_for() {
    common::assert_expected_arch();
}

#[test]
fn valid_files_are_their_recipes() {
    for recipe in RECIPES {
        compare(&recipe.path(), &recipe.bytes());
    }
    assert_names("valid", RECIPES.iter().map(|recipe| recipe.name));
}

#[test]
fn valid_files_answer_like_their_recipes() {
    for recipe in RECIPES {
        let bytes = recipe.golden();
        let table = Table::open(&bytes).unwrap_or_else(|e| panic!("{}: {e}", recipe.name));
        let width = usize::from(table.footer().value.width());
        let model: BTreeMap<_, _> =
            recipe.pairs().into_iter().map(|(key, value)| (key, value[..width].to_vec())).collect();
        let mut absent: Vec<Vec<u8>> = [0, 1, 4, 8, 9, 10, 16, 22, 31, 36, 127, 128, 300]
            .into_iter()
            .flat_map(|len| [vec![0x55; len], vec![0xee; len]])
            .collect();
        // Keys of the table, one byte shorter, longer or different.
        for key in model.keys().take(8) {
            absent.push([key, &b"x"[..]].concat());
            if let Some((last, rest)) = key.split_last() {
                absent.push(rest.to_vec());
                absent.push([rest, &[last ^ 1]].concat());
            }
        }
        absent.retain(|key| !model.contains_key(key));
        common::check(&table, &model, &absent);
    }
}

#[test]
fn the_dump_in_the_specification_is_the_golden_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let golden = recipes::find("example").golden();
    let mut bytes = Vec::new();
    // Lines of the dump: an offset of eight digits, then sixteen bytes. Others are annotation.
    let is_hex = |word: &str, len: usize| {
        word.len() == len && word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    for line in text.lines() {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        let Some(offset) = words.next().filter(|word| is_hex(word, 8)) else { continue };
        assert_eq!(u64::from_str_radix(offset, 16), Ok(bytes.len() as u64), "{line}");
        bytes.extend(
            words
                .take_while(|word| is_hex(word, 2))
                .map(|word| u8::from_str_radix(word, 16).unwrap()),
        );
    }
    assert!(bytes == golden, "the dump of FORMAT.md §10 differs from example.pkh");
}

/// The rows of the specification's tables of fields are those of [`raw`], which was written from it.
#[test]
fn the_fields_of_the_specification_are_those_of_the_tests() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = |from: &str, to: &str| {
        let from = text.find(from).unwrap();
        text[from..from + text[from..].find(to).unwrap()].to_owned()
    };
    // The name of each byte.
    let named = |text: &str| {
        let mut bytes = BTreeMap::new();
        for row in text.lines() {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, at, width, name, ..] = cells[..] else { continue };
            let (Ok(at), Ok(width)) = (at.parse::<usize>(), width.parse::<usize>()) else {
                continue;
            };
            bytes.extend((at..at + width).map(|at| (at, name.to_owned())));
        }
        bytes
    };
    let of = |block| {
        let bytes = raw::fields(block).flat_map(|field| {
            (field.at..field.at + field.width).map(|at| (at, field.error_name().to_owned()))
        });
        bytes.collect::<BTreeMap<_, _>>()
    };
    for (from, to, block) in [
        ("First array, inline and term-order", "First array, perfect", Block::Probed),
        ("First array, perfect", "Second array, for", Block::Perfect),
        ("Second array, for", "## 5", Block::Second),
        ("## 5. Tail", "## 6", Block::Tail),
    ] {
        assert_eq!(named(&section(from, to)), of(block), "{from}");
        // No byte is without a name.
        let len = match block {
            Block::Probed | Block::Perfect => raw::FIRST_LEN,
            Block::Second => raw::SECOND_LEN,
            Block::Tail => raw::TAIL_LEN,
        };
        assert!(of(block).into_keys().eq(0..len), "{from}");
    }
    // Every field is told apart by its name.
    for (i, field) in raw::FIELDS.iter().enumerate() {
        let same = |other: &raw::Field| other.block == field.block && other.name == field.name;
        assert!(!raw::FIELDS[..i].iter().any(same), "{field:?}");
    }
}

/// Where the fault is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Open,
    Verify,
}
use Found::{Open, Verify};

/// What is made right again after the damage.
#[derive(Clone, Copy)]
enum Repair {
    Nothing,
    Footer,
    Everything,
}
use Repair::{Everything, Footer, Nothing};

/// An invalid file: a valid one, damaged.
struct Fault {
    /// The file's name without its extension.
    name: &'static str,
    /// The recipe of the file that is damaged.
    base: &'static str,
    damage: fn(&mut Vec<u8>),
    repair: Repair,
    found: Found,
    /// The error, given the damaged file.
    error: fn(&[u8]) -> Error,
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
    fn bytes(&self) -> Vec<u8> {
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
fn set_tail(bytes: &mut [u8], name: &str, value: u64) {
    raw::set_tail(bytes, name, value);
}

/// Sets a field of partition 0.
fn set_entry(bytes: &mut [u8], name: &str, value: u64) {
    raw::set_entry(bytes, 0, name, value);
}

/// The error of a field of the tail.
fn bad_tail(bytes: &[u8], name: &str, expected: u64) -> Error {
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
fn hasher(bytes: &[u8]) -> Hasher {
    Hasher::new(raw::tail_entry(bytes, "seed"))
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
const LINES: &str = "perfect-mixed-filter";

/// Every invalid golden file, in the order of FORMAT.md §6.
const FAULTS: &[Fault] = &[
    // The head.
    fault(
        "another-kind-of-file",
        "example",
        Nothing,
        Open,
        |b| {
            b.clear();
            b.extend(b"id,doc\n17,4\n");
        },
        head_magic,
    ),
    fault("zero-bytes", "example", Nothing, Open, Vec::clear, |_| Error::TooShort {
        found: 0,
        expected: 64,
    }),
    fault(
        "cut-in-the-head",
        "example",
        Nothing,
        Open,
        |b| b.truncate(63),
        |_| Error::TooShort { found: 63, expected: 64 },
    ),
    fault("bad-magic", "example", Nothing, Open, |b| b[0] = 0x88, head_magic),
    fault("text-mode", "example", Nothing, Open, |b| b.insert(7, b'\r'), head_magic),
    fault(
        "future-version",
        "example",
        Nothing,
        Open,
        |b| put(b, 8, 4, 2),
        |_| Error::UnsupportedVersion { offset: 8, expected: 1, found: 2 },
    ),
    fault(
        "version-zero",
        "example",
        Nothing,
        Open,
        |b| put(b, 8, 4, 0),
        |_| Error::UnsupportedVersion { offset: 8, expected: 1, found: 0 },
    ),
    fault(
        "reserved-not-zero",
        "example",
        Nothing,
        Open,
        |b| b[12] = 1,
        |_| Error::BadField { field: "head reserved", offset: 12, expected: 0, found: 1 },
    ),
    fault(
        "reserved-not-zero-last",
        "example",
        Nothing,
        Open,
        |b| b[63] = 0x80,
        |_| Error::BadField { field: "head reserved", offset: 63, expected: 0, found: 0x80 },
    ),
    // The tail, before its checksum.
    fault(
        "cut-behind-the-head",
        "example",
        Nothing,
        Open,
        |b| b.truncate(191),
        |_| Error::TooShort { found: 191, expected: 192 },
    ),
    fault("truncated", "example", Nothing, Open, |b| b.truncate(b.len() - 1), tail_magic),
    fault("truncated-line", "example", Nothing, Open, |b| b.truncate(b.len() - 64), tail_magic),
    fault("appended", "example", Nothing, Open, |b| b.push(b'\n'), tail_magic),
    fault("tail-magic", "example", Nothing, Open, |b| *b.last_mut().unwrap() ^= 1, tail_magic),
    fault(
        "future-version-tail",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "version", 2),
        |b| {
            let offset = raw::tail_at(b, "version") as u64;
            Error::UnsupportedVersion { offset, expected: 1, found: 2 }
        },
    ),
    fault(
        "partition-bits-too-many",
        "example",
        Nothing,
        Open,
        |b| set_tail(b, "partition bits", 11),
        // Perfect tables may have so many, but not in so few bytes.
        |b| Error::TooShort { found: b.len() as u64, expected: 64 + 2048 * 96 + 128 },
    ),
    fault(
        "partition-bits-past-16",
        "example",
        Nothing,
        Open,
        |b| set_tail(b, "partition bits", 17),
        |b| bad_tail(b, "partition bits", 16),
    ),
    fault(
        "file-length",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "file length", 1 << 32),
        |b| bad_tail(b, "file length", b.len() as u64),
    ),
    fault(
        "line-lost-in-the-middle",
        "example",
        Nothing,
        Open,
        |b| drop(b.drain(128..192)),
        |b| bad_tail(b, "file length", b.len() as u64),
    ),
    fault(
        "directory-past-the-head",
        "example",
        Nothing,
        Open,
        |b| set_tail(b, "partition bits", 10),
        |b| Error::TooShort { found: b.len() as u64, expected: 64 + 1024 * 96 + 128 },
    ),
    fault(
        "directory-offset",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "directory offset", u64::MAX),
        |b| bad_tail(b, "directory offset", raw::directory(b) as u64),
    ),
    fault(
        "footer-checksum",
        "example",
        Nothing,
        Open,
        |b| set_tail(b, "footer checksum", 0),
        footer_checksum,
    ),
    fault(
        "tail-flipped",
        "example",
        Nothing,
        Open,
        |b| set_tail(b, "largest value", 3),
        footer_checksum,
    ),
    fault(
        "directory-flipped",
        "example",
        Nothing,
        Open,
        |b| set_entry(b, "probe limit", 3),
        footer_checksum,
    ),
    // The tail behind its checksum.
    fault(
        "unknown-layout",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "layout", 3),
        // Now known: perfect, whose keys have one length if there is no unit.
        |b| bad_tail(b, "shortest key", 10),
    ),
    fault(
        "layout-4",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "layout", 4),
        |b| bad_tail(b, "layout", 3),
    ),
    fault(
        "layout-zero",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "layout", 0),
        |b| bad_tail(b, "layout", 3),
    ),
    fault(
        "unknown-hash",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "hash", 2),
        |b| bad_tail(b, "hash", 1),
    ),
    fault(
        "hash-check",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "hash check", 7),
        |b| bad_tail(b, "hash check", Hasher::new(0).check_value()),
    ),
    fault(
        "other-seed",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "seed", 7),
        |b| bad_tail(b, "hash check", Hasher::new(7).check_value()),
    ),
    fault(
        "unknown-value-kind",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "value kind", 2),
        |b| bad_tail(b, "value kind", 1),
    ),
    fault(
        "integer-of-no-bytes",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "value width", 0),
        |b| bad_tail(b, "value width", 8),
    ),
    fault(
        "integer-of-9-bytes",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "value width", 9),
        |b| bad_tail(b, "value width", 8),
    ),
    fault(
        "opaque-of-65-bytes",
        "inline-set",
        Footer,
        Open,
        |b| set_tail(b, "value width", 65),
        |b| bad_tail(b, "value width", 64),
    ),
    fault(
        "filter-bits-too-many",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "filter bits", 65),
        |b| bad_tail(b, "filter bits", 64),
    ),
    fault(
        "filter-bits-set",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "filter bits set", 4),
        |b| bad_tail(b, "filter bits set", 5),
    ),
    fault(
        "filter-bits-set-without-filter",
        "inline-no-filter",
        Footer,
        Open,
        |b| set_tail(b, "filter bits set", 5),
        |b| bad_tail(b, "filter bits set", 0),
    ),
    fault(
        "tail-reserved-11",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "records in a line", 1),
        // Not reserved in a perfect table.
        |b| bad_tail(b, "records in a line", 0),
    ),
    fault(
        "tail-reserved-20",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "tail reserved", 1 << 23),
        |b| bad_tail(b, "tail reserved", 0),
    ),
    fault(
        "tail-reserved-21",
        "perfect-mixed",
        Footer,
        Open,
        |b| set_tail(b, "tail reserved", 1),
        |b| bad_tail(b, "tail reserved", 0),
    ),
    fault(
        "tail-reserved-88",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "exceptions", 1),
        // Not reserved in a perfect table.
        |b| bad_tail(b, "exceptions", 0),
    ),
    fault(
        "tail-reserved-96",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "tail reserved 96", 1 << 63),
        |b| bad_tail(b, "tail reserved 96", 0),
    ),
    fault(
        "tail-reserved-104",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "tail reserved 104", u64::MAX),
        |b| bad_tail(b, "tail reserved 104", 0),
    ),
    fault(
        "longest-key-inline",
        FILTERED,
        Footer,
        Open,
        |b| set_tail(b, "longest key", 32),
        |b| bad_tail(b, "longest key", 31),
    ),
    fault(
        "longest-key-term-order",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "longest key", 1 << 31),
        |b| bad_tail(b, "longest key", (1 << 31) - 1),
    ),
    fault(
        "longest-key-of-no-keys",
        "term-order-no-keys",
        Footer,
        Open,
        |b| set_tail(b, "longest key", 1),
        |b| bad_tail(b, "longest key", 0),
    ),
    fault(
        "empty-keys",
        "inline-empty-key",
        Footer,
        Open,
        |b| set_tail(b, "keys", 2),
        |b| bad_tail(b, "keys", 1),
    ),
    fault(
        "shortest-key-inline",
        FILTERED,
        Footer,
        Open,
        |b| set_tail(b, "shortest key", 15),
        |b| bad_tail(b, "shortest key", 16),
    ),
    fault(
        "shortest-key-term-order",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "shortest key", 11),
        |b| bad_tail(b, "shortest key", 10),
    ),
    fault(
        "longest-key-perfect",
        ALIGNED,
        Footer,
        Open,
        |b| set_tail(b, "longest key", 65_537),
        |b| bad_tail(b, "longest key", 65_536),
    ),
    fault(
        "longest-key-perfect-mixed",
        MIXED,
        Footer,
        Open,
        |b| set_tail(b, "longest key", 1 << 31),
        |b| bad_tail(b, "longest key", (1 << 31) - 1),
    ),
    fault(
        "longest-key-of-no-keys-perfect",
        "perfect-no-keys",
        Footer,
        Open,
        |b| set_tail(b, "longest key", 1),
        |b| bad_tail(b, "longest key", 0),
    ),
    fault(
        "shortest-key-perfect",
        ALIGNED,
        Footer,
        Open,
        |b| set_tail(b, "shortest key", 15),
        |b| bad_tail(b, "shortest key", 16),
    ),
    fault(
        "shortest-key-perfect-mixed",
        MIXED,
        Footer,
        Open,
        |b| set_tail(b, "shortest key", 129),
        |b| bad_tail(b, "shortest key", 128),
    ),
    fault(
        "records-in-a-line-too-few",
        ALIGNED,
        Footer,
        Open,
        |b| set_tail(b, "records in a line", 2),
        |b| bad_tail(b, "records in a line", 3),
    ),
    fault(
        "records-in-a-line-too-long",
        "perfect-long",
        Footer,
        Open,
        |b| set_tail(b, "records in a line", 1),
        |b| bad_tail(b, "records in a line", 0),
    ),
    fault(
        "records-in-a-line-of-no-bytes",
        "perfect-set-of-the-empty-key",
        Footer,
        Open,
        |b| set_tail(b, "records in a line", 1),
        |b| bad_tail(b, "records in a line", 0),
    ),
    fault(
        "records-in-a-line-with-a-unit",
        MIXED,
        Footer,
        Open,
        |b| set_tail(b, "records in a line", 1),
        |b| bad_tail(b, "records in a line", 0),
    ),
    fault(
        "offset-unit-3",
        MIXED,
        Footer,
        Open,
        |b| set_tail(b, "offset unit", 3),
        |b| bad_tail(b, "offset unit", 0),
    ),
    fault(
        "offset-unit-32",
        MIXED,
        Footer,
        Open,
        |b| set_tail(b, "offset unit", 32),
        |b| bad_tail(b, "offset unit", 0),
    ),
    fault(
        "offset-unit-too-small",
        "perfect-unit-4",
        Footer,
        Open,
        |b| set_tail(b, "offset unit", 2),
        |b| bad_tail(b, "offset unit", 4),
    ),
    fault(
        "offset-unit-of-an-empty-record",
        PADDED,
        Footer,
        Open,
        |b| set_tail(b, "offset unit", 1),
        |b| bad_tail(b, "offset unit", 2),
    ),
    fault(
        "offset-unit-of-a-longer-key",
        MIXED,
        Footer,
        Open,
        |b| set_tail(b, "longest key", 37_439 - 4 + 1),
        |b| bad_tail(b, "offset unit", 0),
    ),
    fault(
        "offset-unit-term-order",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "offset unit", 1),
        |b| bad_tail(b, "offset unit", 0),
    ),
    fault(
        "offset-unit-inline",
        FILTERED,
        Footer,
        Open,
        |b| set_tail(b, "offset unit", 1),
        |b| bad_tail(b, "offset unit", 0),
    ),
    fault(
        "key-bytes-too-many",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "key bytes", 31),
        |b| bad_tail(b, "key bytes", 30),
    ),
    fault(
        "key-bytes-too-few",
        FILTERED,
        Footer,
        Open,
        |b| set_tail(b, "key bytes", 959),
        |b| bad_tail(b, "key bytes", 960),
    ),
    fault(
        "keys-too-many",
        FILTERED,
        Footer,
        Open,
        |b| set_tail(b, "keys", u64::MAX),
        |b| {
            // So many keys of 16 bytes would have more bytes.
            bad_tail(b, "key bytes", u64::MAX)
        },
    ),
    fault(
        "largest-value",
        "inline-no-filter",
        Footer,
        Open,
        |b| set_tail(b, "largest value", 256),
        |b| bad_tail(b, "largest value", 255),
    ),
    fault(
        "largest-value-opaque",
        "inline-set",
        Footer,
        Open,
        |b| set_tail(b, "largest value", 1),
        |b| bad_tail(b, "largest value", 0),
    ),
    fault(
        "largest-value-of-no-keys",
        "inline-no-keys",
        Footer,
        Open,
        |b| set_tail(b, "largest value", 1),
        |b| bad_tail(b, "largest value", 0),
    ),
    // The directory.
    fault(
        "partition-offset",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition offset", 128),
        |b| bad_entry(b, "partition offset", 64),
    ),
    fault(
        "partition-offset-huge",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition offset", u64::MAX),
        |b| bad_entry(b, "partition offset", 64),
    ),
    fault(
        "partition-keys-too-many",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition keys", 0xffff_ffff),
        |b| bad_entry(b, "partition keys", (1 << 31) / 4 * 3),
    ),
    fault(
        "partition-homes",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition homes", 5),
        |b| bad_entry(b, "partition homes", 4),
    ),
    fault(
        "partition-slots-too-many",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition slots", 0xffff_ffff),
        |b| bad_entry(b, "partition slots", 1 << 31),
    ),
    fault(
        "partition-slots-too-few",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition slots", 3),
        |b| bad_entry(b, "partition slots", 4),
    ),
    fault(
        "probe-limit-too-high",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "probe limit", 4),
        |b| bad_entry(b, "probe limit", 3),
    ),
    fault(
        "partition-buckets-too-many",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "partition buckets", 61),
        |b| bad_entry(b, "partition buckets", 60),
    ),
    fault(
        "partition-buckets-none",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "partition buckets", 0),
        |b| bad_entry(b, "partition buckets", 1),
    ),
    fault(
        "partition-buckets-without-keys",
        "perfect-no-keys",
        Footer,
        Open,
        |b| set_entry(b, "partition buckets", 1),
        |b| bad_entry(b, "partition buckets", 0),
    ),
    fault(
        "exceptions-too-many",
        "perfect-200-keys",
        Footer,
        Open,
        |b| set_entry(b, "exceptions", 65),
        |b| bad_entry(b, "exceptions", 64),
    ),
    fault(
        "exceptions-of-all-keys",
        "perfect-1-key",
        Footer,
        Open,
        |b| set_entry(b, "exceptions", 1),
        |b| bad_entry(b, "exceptions", 0),
    ),
    fault(
        "exceptions-without-keys",
        "perfect-no-keys",
        Footer,
        Open,
        |b| set_entry(b, "exceptions", 1),
        |b| bad_entry(b, "exceptions", 0),
    ),
    fault(
        "partition-slots-half-empty",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "partition slots", 121),
        |b| bad_entry(b, "partition slots", 120),
    ),
    fault(
        "partition-slots-fewer-than-keys",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "partition slots", 59),
        |b| bad_entry(b, "partition slots", 60),
    ),
    fault(
        "partition-slots-fewer-than-placed",
        EXCEPTIONS,
        Footer,
        Open,
        |b| set_entry(b, "partition slots", 13),
        |b| bad_entry(b, "partition slots", 14),
    ),
    fault(
        "filter-words-without-filter",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "filter words", 1),
        |b| bad_entry(b, "filter words", 0),
    ),
    fault(
        "filter-words",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "filter words", 2),
        |b| bad_entry(b, "filter words", 1),
    ),
    fault(
        "partition-reserved",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition reserved", 1),
        |b| bad_entry(b, "partition reserved", 0),
    ),
    fault(
        "partition-reserved-second",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition reserved 20", 1 << 31),
        |b| bad_entry(b, "partition reserved 20", 0),
    ),
    fault(
        "partition-reserved-second-perfect",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "partition reserved 20", 1),
        |b| bad_entry(b, "partition reserved 20", 0),
    ),
    fault(
        "exceptions-inline",
        FILTERED,
        Footer,
        Open,
        |b| set_entry(b, "exceptions", 1),
        |b| bad_entry(b, "exceptions", 0),
    ),
    fault(
        "exceptions-term-order",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "exceptions", 0x8000),
        |b| bad_entry(b, "exceptions", 0),
    ),
    fault(
        "partition-seed-inline",
        FILTERED,
        Footer,
        Open,
        |b| set_entry(b, "partition seed", 1),
        |b| bad_entry(b, "partition seed", 0),
    ),
    fault(
        "partition-seed-term-order",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "partition seed", 0xffff),
        |b| bad_entry(b, "partition seed", 0),
    ),
    fault(
        "multiplier",
        "perfect-empty-partitions",
        Footer,
        Open,
        |b| set_entry(b, "multiplier", 1),
        // Three partition bits.
        |b| bad_entry(b, "multiplier", 8),
    ),
    fault(
        "multiplier-of-another-seed",
        "perfect-partition-seed",
        Footer,
        Open,
        |b| {
            let seed = raw::entry(b, 0, "partition seed");
            set_entry(b, "multiplier", raw::multiplier_of(0, seed + 1));
        },
        |b| bad_entry(b, "multiplier", raw::multiplier_of(0, raw::entry(b, 0, "partition seed"))),
    ),
    fault(
        "multiplier-without-keys",
        "perfect-no-keys",
        Footer,
        Open,
        |b| set_entry(b, "multiplier", 0),
        |b| bad_entry(b, "multiplier", 1),
    ),
    fault(
        "control-offset",
        "example",
        Footer,
        Open,
        // The filter has a line.
        |b| set_entry(b, "control offset", 64),
        |b| bad_entry(b, "control offset", 128),
    ),
    fault(
        "control-offset-huge",
        FILTERED,
        Footer,
        Open,
        |b| set_entry(b, "control offset", u64::MAX),
        |b| bad_entry(b, "control offset", 192),
    ),
    fault(
        "pilots-offset",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "pilots offset", 65),
        |b| bad_entry(b, "pilots offset", 64),
    ),
    fault(
        "pilots-offset-huge",
        MIXED,
        Footer,
        Open,
        |b| set_entry(b, "pilots offset", u64::MAX - 63),
        |b| bad_entry(b, "pilots offset", 64),
    ),
    fault(
        "records-offset-inline",
        FILTERED,
        Footer,
        Open,
        |b| set_entry(b, "records offset", 0),
        |b| bad_entry(b, "records offset", raw::sections(b, 0)[3].start as u64),
    ),
    fault(
        "records-offset-term-order",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "records offset", 256),
        // Behind the slot words.
        |b| bad_entry(b, "records offset", 320),
    ),
    fault(
        "records-offset-perfect",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "records offset", 129),
        |b| bad_entry(b, "records offset", 128),
    ),
    fault(
        "records-offset-of-spans",
        MIXED,
        Footer,
        Open,
        |b| set_entry(b, "records offset", 128),
        // A line of pilots, and one of offsets.
        |b| bad_entry(b, "records offset", 192),
    ),
    fault(
        "records-offset-of-no-keys",
        "perfect-no-keys",
        Footer,
        Open,
        |b| set_entry(b, "records offset", 128),
        |b| bad_entry(b, "records offset", 64),
    ),
    fault(
        "record-bytes-inline",
        FILTERED,
        Footer,
        Open,
        |b| set_entry(b, "record bytes", 5),
        |b| bad_entry(b, "record bytes", 20 * raw::entry(b, 0, "partition slots")),
    ),
    fault(
        "record-bytes-too-many",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "record bytes", (1 << 40) - 1),
        |b| bad_entry(b, "record bytes", (1 << 40) - 2),
    ),
    fault(
        "record-bytes-of-lines",
        ALIGNED,
        Footer,
        Open,
        |b| set_entry(b, "record bytes", 61 * 20),
        |b| bad_entry(b, "record bytes", 61_u64.div_ceil(3) * 64),
    ),
    fault(
        "record-bytes-packed",
        PACKED,
        Footer,
        Open,
        |b| set_entry(b, "record bytes", 61_u64.div_ceil(3) * 64),
        |b| bad_entry(b, "record bytes", 61 * 20),
    ),
    fault(
        "record-bytes-of-one-exception-more",
        EXCEPTIONS,
        Footer,
        Open,
        |b| set_entry(b, "exceptions", 4),
        // 15 slots, and 4 exceptions.
        |b| bad_entry(b, "record bytes", 19_u64.div_ceil(3) * 64),
    ),
    fault(
        "record-bytes-past-offset-lines",
        "perfect-unit-4",
        Footer,
        Open,
        |b| set_entry(b, "record bytes", 4 * ((1 << 40) - 2) + 1),
        |b| bad_entry(b, "record bytes", 4 * ((1 << 40) - 2)),
    ),
    fault(
        "partition-past-directory",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "record bytes", 65),
        |b| Error::BadField {
            field: "partition end",
            offset: raw::at(b, 0, "partition offset") as u64,
            expected: raw::directory(b) as u64,
            found: raw::directory(b) as u64 + 64,
        },
    ),
    fault(
        "partition-short-of-directory",
        "example",
        Footer,
        Open,
        |b| set_entry(b, "record bytes", 0),
        |b| bad_tail(b, "directory offset", raw::directory(b) as u64 - 64),
    ),
    fault(
        "keys-of-the-tail",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "keys", 4),
        |b| bad_tail(b, "keys", 3),
    ),
    fault(
        "slots-of-the-tail",
        "example",
        Footer,
        Open,
        |b| set_tail(b, "slots", 5),
        |b| bad_tail(b, "slots", 4),
    ),
    fault(
        "exceptions-of-the-tail",
        EXCEPTIONS,
        Footer,
        Open,
        |b| set_tail(b, "exceptions", 2),
        |b| bad_tail(b, "exceptions", 3),
    ),
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
            let hash = Hasher::new(0).hash(&example_key(b, word));
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
            let hash = Hasher::new(0).hash(&example_key(b, word));
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
            let hash = Hasher::new(0).hash(&inline_key(b, 0));
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
            let hash = Hasher::new(0).hash(b"");
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

/// `full-control` has all slots occupied, those that were empty by a key of zeros. Of each slot in
/// order `verify` compares the order, the slot, and the control byte.
fn first_fault_of_full_control(bytes: &[u8]) -> Error {
    let homes = raw::entry(bytes, 0, "partition homes") as u32;
    let mut before = None;
    for slot in 0.. {
        let (byte, _, at) = nth(bytes, slot);
        let hash = Hasher::new(0).hash(&inline_key(bytes, slot));
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
    (0u64..).map(u64::to_le_bytes).find(|key| partition(Hasher::new(0).hash(key), 2) == 3).unwrap()
}

/// The probe limit that the keys of an inline table of one partition need.
fn longest_probe(bytes: &[u8]) -> u64 {
    let homes = raw::entry(bytes, 0, "partition homes") as u32;
    (0..occupied(bytes).len())
        .map(|i| {
            let hash = Hasher::new(0).hash(&inline_key(bytes, i));
            occupied(bytes)[i] as u64 - u64::from(home(hash, 0, homes)) + 1
        })
        .max()
        .unwrap()
}

#[test]
fn invalid_files_are_their_recipes() {
    for fault in FAULTS {
        let path = recipes::folder("invalid").join(fault.name).with_extension("pkh");
        compare(&path, &fault.bytes());
    }
    assert_names("invalid", FAULTS.iter().map(|fault| fault.name));
}

#[test]
fn invalid_files_are_refused_for_their_fault() {
    let mut others = Vec::new();
    for fault in FAULTS {
        let path = recipes::folder("invalid").join(fault.name).with_extension("pkh");
        let bytes = std::fs::read(path).unwrap();
        let (found, error) = match Table::open(&bytes) {
            Err(error) => (Open, error),
            Ok(table) => {
                // Searched without `verify`, such a table may answer wrongly, but it answers.
                let keys: Vec<_> =
                    recipes::find(fault.base).pairs().into_iter().map(|(key, _)| key).collect();
                common::exercise(&table, &keys);
                match table.verify() {
                    Err(error) => (Verify, error),
                    Ok(()) => panic!("{} is sound", fault.name),
                }
            }
        };
        let expected = (fault.error)(&bytes);
        if (found, error) != (fault.found, expected) {
            others.push((fault.name, found, error, expected));
        }
    }
    assert!(others.is_empty(), "name, where found, error found and expected: {others:#?}");
}

/// A file of so many partitions is too large to keep.
#[test]
fn partition_bits_belong_to_the_layout() {
    let recipe = recipes::find("perfect-no-keys");
    for bits in [10, 11, 16] {
        let options = Options { partition_bits: Some(bits), ..recipe.options() };
        let mut bytes = common::build(&options, &[]);
        let table = Table::open(&bytes).unwrap();
        assert_eq!(table.verify(), Ok(()));
        assert_eq!(table.footer().partition_bits, bits);
        for layout in [raw::INLINE, raw::TERM_ORDER] {
            set_tail(&mut bytes, "layout", layout.into());
            raw::repair_footer(&mut bytes);
            let expected = match bits {
                // A multiplier is taken for the homes.
                10 => Error::BadField {
                    field: "partition homes",
                    offset: raw::at(&bytes, 0, "partition homes") as u64,
                    expected: 0,
                    found: 1 << 10,
                },
                _ => bad_tail(&bytes, "partition bits", 10),
            };
            assert_eq!(Table::open(&bytes).map(|_| ()), Err(expected), "{layout}, {bits}");
        }
    }
}

#[test]
fn exceptions_without_a_record_are_found() {
    // One exception more than there are keys for: its slot is empty. (Where keys have one length there
    // is no empty slot, and this cannot be.)
    let mut bytes = recipes::find(LINES).golden();
    set_entry(&mut bytes, "exceptions", 1);
    raw::repair_entries(&mut bytes);
    raw::repair_footer(&mut bytes);
    let table = Table::open(&bytes).unwrap();
    assert_eq!(table.iter().filter(Result::is_ok).count(), 70);
    assert!(table.verify().is_err(), "an exception that is no key");
}

#[test]
fn the_golden_folder_stays_small() {
    let len = |folder| -> u64 {
        std::fs::read_dir(recipes::folder(folder))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    };
    assert!(len("valid") + len("invalid") < 300_000);
}

/// Places of records lead back to them, in their own table; in others they lead nowhere or to something, and
/// never outside.
#[test]
fn places_lead_to_records() {
    let files: Vec<Vec<u8>> = RECIPES.iter().map(Recipe::golden).collect();
    let mut perfect = 0;
    for bytes in &files {
        let table = Table::open(bytes).unwrap();
        for record in &table {
            let (key, value) = record.unwrap();
            if table.footer().layout != Layout::Perfect {
                assert!(matches!(table.place_of(key), Err(Error::TooLarge { .. })));
                continue;
            }
            let place = table.place_of(key).unwrap();
            assert_eq!(table.record_at(place), Some((key, value)));
            let copy = key.to_vec();
            assert!(key.is_empty() || table.place_of(&copy).is_err(), "not of this table");
            perfect += 1;
            for other in &files {
                let other = Table::open(other).unwrap();
                if let Some((key, value)) = other.record_at(place) {
                    let width = usize::from(other.footer().value.width());
                    assert_eq!(value.as_bytes().len(), width);
                    assert!(place.offset() + key.len() <= other.as_bytes().len());
                }
            }
        }
    }
    assert!(perfect > 100);
}
