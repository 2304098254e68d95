//! The golden files: valid ones are rebuilt byte for byte and must stay readable for ever; each
//! invalid one is refused with just the error that its name states.
//!
//! `PKHASH_BLESS=1 cargo test -p pkhash-core --test golden are_their_recipes` writes them anew.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::raw::{self, get, put};
use common::recipes::{self, RECIPES};
use pkhash_core::{Error, Hasher, Section, Table, control, home, partition};
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
fn set(bytes: &mut [u8], field: usize, value: u64) {
    let width = raw::TAIL_FIELDS.iter().find(|(_, at, _)| *at == field).expect("a field").2;
    let at = raw::tail(bytes) + field;
    put(bytes, at, width, value);
}

/// Sets a field of partition 0 in the first array of the directory.
fn set_hot(bytes: &mut [u8], field: usize, value: u64) {
    let width = raw::HOT_FIELDS.iter().find(|(_, at, _)| *at == field).expect("a field").2;
    let at = raw::hot(bytes, 0) + field;
    put(bytes, at, width, value);
}

/// Sets a field of partition 0 in the second array of the directory.
fn set_cold(bytes: &mut [u8], field: usize, value: u64) {
    let at = raw::cold(bytes, 0) + field;
    put(bytes, at, 8, value);
}

/// The error of a field of the tail.
fn bad(bytes: &[u8], name: &'static str, field: usize, expected: u64) -> Error {
    let (_, at, width) = *raw::TAIL_FIELDS.iter().find(|(_, at, _)| *at == field).expect("a field");
    let offset = raw::tail(bytes) + at;
    Error::BadField {
        field: name,
        offset: offset as u64,
        expected,
        found: get(bytes, offset, width),
    }
}

/// The error of a field of partition 0 in the first array.
fn bad_hot(bytes: &[u8], name: &'static str, field: usize, expected: u64) -> Error {
    let (_, at, width) = *raw::HOT_FIELDS.iter().find(|(_, at, _)| *at == field).expect("a field");
    let offset = raw::hot(bytes, 0) + at;
    Error::BadField {
        field: name,
        offset: offset as u64,
        expected,
        found: get(bytes, offset, width),
    }
}

/// The error of partition 0's record bytes.
fn bad_record_bytes(bytes: &[u8], expected: u64) -> Error {
    let offset = raw::cold(bytes, 0);
    let found = get(bytes, offset, 8);
    Error::BadField { field: "record bytes", offset: offset as u64, expected, found }
}

fn footer_checksum(bytes: &[u8]) -> Error {
    let at = raw::tail(bytes) + 112;
    Error::FooterChecksum {
        offset: at as u64,
        expected: get(bytes, at, 8),
        found: raw::footer_sum(bytes),
    }
}

/// The error of a section of partition 0.
fn section_checksum(bytes: &[u8], section: Section) -> Error {
    let i = Section::ALL.iter().position(|s| *s == section).unwrap();
    let range = raw::sections(bytes, 0)[i].clone();
    let found = if range.is_empty() { 0 } else { xxh3_64(&bytes[range.clone()]) };
    Error::SectionChecksum {
        section,
        partition: 0,
        offset: range.start as u64,
        expected: get(bytes, raw::cold(bytes, 0) + 8 + 8 * i, 8),
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

/// The occupied slots of partition 0, in order.
fn occupied(bytes: &[u8]) -> Vec<usize> {
    let slots = get(bytes, raw::hot(bytes, 0) + 16, 4) as usize;
    let control = raw::sections(bytes, 0)[1].start;
    (0..slots).filter(|slot| bytes[control + slot] != 0).collect()
}

/// The `i`-th occupied slot: offsets of its control byte, its slot word and its record.
fn nth(bytes: &[u8], i: usize) -> (usize, usize, usize) {
    let slot = occupied(bytes)[i];
    let [_, control, words, records] = raw::sections(bytes, 0);
    let tail = raw::tail(bytes);
    if bytes[tail + 4] == 2 {
        let word = words.start + 8 * slot;
        let pointer = (get(bytes, word, 8) >> 24) as usize;
        // Wrapping: a wild pointer may be past what a small machine can address.
        (control.start + slot, word, records.start.wrapping_add(pointer.saturating_sub(1)))
    } else {
        let width = usize::from(bytes[tail + 8]) + get(bytes, tail + 16, 4) as usize;
        (control.start + slot, 0, records.start + slot * width)
    }
}

/// The key of the `i`-th occupied slot of an inline table of partition 0.
fn inline_key(bytes: &[u8], i: usize) -> Vec<u8> {
    let tail = raw::tail(bytes);
    let at = nth(bytes, i).2 + usize::from(bytes[tail + 8]);
    bytes[at..at + get(bytes, tail + 16, 4) as usize].to_vec()
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

const FILTERED: &str = "inline-doc-id";

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
        |b| set(b, 0, 2),
        |b| {
            let offset = raw::tail(b) as u64;
            Error::UnsupportedVersion { offset, expected: 1, found: 2 }
        },
    ),
    fault(
        "partition-bits-too-many",
        "example",
        Nothing,
        Open,
        |b| set(b, 6, 11),
        |b| bad(b, "partition bits", 6, 10),
    ),
    fault(
        "file-length",
        "example",
        Footer,
        Open,
        |b| set(b, 72, 1 << 32),
        |b| bad(b, "file length", 72, b.len() as u64),
    ),
    fault(
        "line-lost-in-the-middle",
        "example",
        Nothing,
        Open,
        |b| drop(b.drain(128..192)),
        |b| bad(b, "file length", 72, b.len() as u64),
    ),
    fault(
        "directory-past-the-head",
        "example",
        Nothing,
        Open,
        |b| set(b, 6, 10),
        |b| Error::TooShort { found: b.len() as u64, expected: 64 + 1024 * 72 + 128 },
    ),
    fault(
        "directory-offset",
        "example",
        Footer,
        Open,
        |b| set(b, 80, u64::MAX),
        |b| bad(b, "directory offset", 80, raw::directory(b) as u64),
    ),
    fault("footer-checksum", "example", Nothing, Open, |b| set(b, 112, 0), footer_checksum),
    fault("tail-flipped", "example", Nothing, Open, |b| set(b, 64, 3), footer_checksum),
    fault("directory-flipped", "example", Nothing, Open, |b| set_hot(b, 20, 3), footer_checksum),
    // The tail behind its checksum.
    fault("unknown-layout", "example", Footer, Open, |b| set(b, 4, 3), |b| bad(b, "layout", 4, 2)),
    fault("layout-zero", "example", Footer, Open, |b| set(b, 4, 0), |b| bad(b, "layout", 4, 2)),
    fault("unknown-hash", "example", Footer, Open, |b| set(b, 5, 2), |b| bad(b, "hash", 5, 1)),
    fault(
        "hash-check",
        "example",
        Footer,
        Open,
        |b| set(b, 32, 7),
        |b| bad(b, "hash check", 32, Hasher::new(0).check_value()),
    ),
    fault(
        "other-seed",
        "example",
        Footer,
        Open,
        |b| set(b, 24, 7),
        |b| bad(b, "hash check", 32, Hasher::new(7).check_value()),
    ),
    fault(
        "unknown-value-kind",
        "example",
        Footer,
        Open,
        |b| set(b, 7, 2),
        |b| bad(b, "value kind", 7, 1),
    ),
    fault(
        "integer-of-no-bytes",
        "example",
        Footer,
        Open,
        |b| set(b, 8, 0),
        |b| bad(b, "value width", 8, 8),
    ),
    fault(
        "integer-of-9-bytes",
        "example",
        Footer,
        Open,
        |b| set(b, 8, 9),
        |b| bad(b, "value width", 8, 8),
    ),
    fault(
        "opaque-of-65-bytes",
        "inline-set",
        Footer,
        Open,
        |b| set(b, 8, 65),
        |b| bad(b, "value width", 8, 64),
    ),
    fault(
        "filter-bits-too-many",
        "example",
        Footer,
        Open,
        |b| set(b, 9, 65),
        |b| bad(b, "filter bits", 9, 64),
    ),
    fault(
        "filter-bits-set",
        "example",
        Footer,
        Open,
        |b| set(b, 10, 4),
        |b| bad(b, "filter bits set", 10, 5),
    ),
    fault(
        "filter-bits-set-without-filter",
        "inline-no-filter",
        Footer,
        Open,
        |b| set(b, 10, 5),
        |b| bad(b, "filter bits set", 10, 0),
    ),
    fault(
        "tail-reserved-11",
        "example",
        Footer,
        Open,
        |b| set(b, 11, 1),
        |b| bad(b, "tail reserved", 11, 0),
    ),
    fault(
        "tail-reserved-20",
        "example",
        Footer,
        Open,
        |b| set(b, 20, 1 << 31),
        |b| bad(b, "tail reserved", 20, 0),
    ),
    fault(
        "tail-reserved-88",
        "example",
        Footer,
        Open,
        |b| set(b, 88, 1),
        |b| bad(b, "tail reserved", 88, 0),
    ),
    fault(
        "tail-reserved-96",
        "example",
        Footer,
        Open,
        |b| set(b, 96, 1 << 63),
        |b| bad(b, "tail reserved", 96, 0),
    ),
    fault(
        "tail-reserved-104",
        "example",
        Footer,
        Open,
        |b| set(b, 104, u64::MAX),
        |b| bad(b, "tail reserved", 104, 0),
    ),
    fault(
        "longest-key-inline",
        FILTERED,
        Footer,
        Open,
        |b| set(b, 16, 32),
        |b| bad(b, "longest key", 16, 31),
    ),
    fault(
        "longest-key-term-order",
        "example",
        Footer,
        Open,
        |b| set(b, 16, 1 << 31),
        |b| bad(b, "longest key", 16, (1 << 31) - 1),
    ),
    fault(
        "longest-key-of-no-keys",
        "term-order-no-keys",
        Footer,
        Open,
        |b| set(b, 16, 1),
        |b| bad(b, "longest key", 16, 0),
    ),
    fault(
        "shortest-key-inline",
        FILTERED,
        Footer,
        Open,
        |b| set(b, 12, 15),
        |b| bad(b, "shortest key", 12, 16),
    ),
    fault(
        "shortest-key-term-order",
        "example",
        Footer,
        Open,
        |b| set(b, 12, 11),
        |b| bad(b, "shortest key", 12, 10),
    ),
    fault(
        "key-bytes-too-many",
        "example",
        Footer,
        Open,
        |b| set(b, 56, 31),
        |b| bad(b, "key bytes", 56, 30),
    ),
    fault(
        "key-bytes-too-few",
        FILTERED,
        Footer,
        Open,
        |b| set(b, 56, 959),
        |b| bad(b, "key bytes", 56, 960),
    ),
    fault(
        "keys-too-many",
        FILTERED,
        Footer,
        Open,
        |b| set(b, 40, u64::MAX),
        |b| {
            // So many keys of 16 bytes would have more bytes.
            bad(b, "key bytes", 56, u64::MAX)
        },
    ),
    fault(
        "largest-value",
        "inline-no-filter",
        Footer,
        Open,
        |b| set(b, 64, 256),
        |b| bad(b, "largest value", 64, 255),
    ),
    fault(
        "largest-value-opaque",
        "inline-set",
        Footer,
        Open,
        |b| set(b, 64, 1),
        |b| bad(b, "largest value", 64, 0),
    ),
    fault(
        "largest-value-of-no-keys",
        "inline-no-keys",
        Footer,
        Open,
        |b| set(b, 64, 1),
        |b| bad(b, "largest value", 64, 0),
    ),
    // The directory.
    fault(
        "partition-offset",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 0, 128),
        |b| bad_hot(b, "partition offset", 0, 64),
    ),
    fault(
        "partition-offset-huge",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 0, u64::MAX),
        |b| bad_hot(b, "partition offset", 0, 64),
    ),
    fault(
        "partition-keys-too-many",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 8, 0xffff_ffff),
        |b| bad_hot(b, "partition keys", 8, (1 << 31) / 4 * 3),
    ),
    fault(
        "partition-homes",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 12, 5),
        |b| bad_hot(b, "partition homes", 12, 4),
    ),
    fault(
        "partition-slots-too-many",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 16, 0xffff_ffff),
        |b| bad_hot(b, "partition slots", 16, 1 << 31),
    ),
    fault(
        "partition-slots-too-few",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 16, 3),
        |b| bad_hot(b, "partition slots", 16, 4),
    ),
    fault(
        "probe-limit-too-high",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 20, 4),
        |b| bad_hot(b, "probe limit", 20, 3),
    ),
    fault(
        "filter-words",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 24, 2),
        |b| bad_hot(b, "filter words", 24, 1),
    ),
    fault(
        "partition-reserved",
        "example",
        Footer,
        Open,
        |b| set_hot(b, 28, 1),
        |b| bad_hot(b, "partition reserved", 28, 0),
    ),
    fault(
        "record-bytes-inline",
        FILTERED,
        Footer,
        Open,
        |b| set_cold(b, 0, 5),
        |b| bad_record_bytes(b, 20 * get(b, raw::hot(b, 0) + 16, 4)),
    ),
    fault(
        "record-bytes-too-many",
        "example",
        Footer,
        Open,
        |b| set_cold(b, 0, (1 << 40) - 1),
        |b| bad_record_bytes(b, (1 << 40) - 2),
    ),
    fault(
        "partition-past-directory",
        "example",
        Footer,
        Open,
        |b| set_cold(b, 0, 65),
        |b| Error::BadField {
            field: "partition end",
            offset: raw::hot(b, 0) as u64,
            expected: raw::directory(b) as u64,
            found: raw::directory(b) as u64 + 64,
        },
    ),
    fault(
        "partition-short-of-directory",
        "example",
        Footer,
        Open,
        |b| set_cold(b, 0, 0),
        |b| bad(b, "directory offset", 80, raw::directory(b) as u64 - 64),
    ),
    fault(
        "keys-of-the-tail",
        "example",
        Footer,
        Open,
        |b| set(b, 40, 4),
        |b| bad(b, "keys", 40, 3),
    ),
    fault(
        "slots-of-the-tail",
        "example",
        Footer,
        Open,
        |b| set(b, 48, 5),
        |b| bad(b, "slots", 48, 4),
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
        |b| set_cold(b, 24, 1),
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
            let slots = b.len() - 72 - 128 - at;
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
            let left = b.len() - 72 - 128 - at;
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
        |b| set_hot(b, 20, 1),
        |b| corrupt("probe limit of a partition", 64, longest_probe(b), 1),
    ),
    fault(
        "record-bytes-too-few",
        "example",
        Footer,
        Verify,
        |b| set_cold(b, 0, 34),
        |_| corrupt("record bytes of a partition", 64, 33, 34),
    ),
    fault(
        "slots-too-many",
        "example",
        Footer,
        Verify,
        |b| {
            set_hot(b, 16, 5);
            set(b, 48, 5);
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
    fault(
        "key-bytes-of-the-tail",
        "example",
        Footer,
        Verify,
        |b| set(b, 56, 17),
        |b| corrupt("key bytes of the tail", b.len(), 18, 17),
    ),
    fault(
        "shortest-key-of-the-tail",
        "example",
        Footer,
        Verify,
        |b| set(b, 12, 1),
        |b| corrupt("shortest key of the tail", b.len(), 0, 1),
    ),
    fault(
        "longest-key-of-the-tail",
        "example",
        Footer,
        Verify,
        |b| set(b, 16, 11),
        |b| corrupt("longest key of the tail", b.len(), 10, 11),
    ),
    fault(
        "largest-value-of-the-tail",
        "example",
        Footer,
        Verify,
        |b| set(b, 64, 69_999),
        |b| corrupt("largest value of the tail", b.len(), 70_000, 69_999),
    ),
];

/// `full-control` has all slots occupied, those that were empty by a key of zeros. Of each slot in
/// order `verify` compares the order, the slot, and the control byte.
fn first_fault_of_full_control(bytes: &[u8]) -> Error {
    let homes = get(bytes, raw::hot(bytes, 0) + 12, 4) as u32;
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
    let homes = get(bytes, raw::hot(bytes, 0) + 12, 4) as u32;
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
