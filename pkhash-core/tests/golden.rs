//! The golden files: valid ones are rebuilt byte for byte and must stay readable for ever; each
//! invalid one is refused with just the error that its name states.
//!
//! `PKHASH_BLESS=1 cargo test -p pkhash-core --test golden are_their_recipes` writes them anew.

use pkhash_core_testing as common;
mod golden_recipes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::raw::{self, Block};
use common::recipes::{self, RECIPES, Recipe};
use golden_recipes::{LINES, Open, Verify, bad_tail, faults, set_entry, set_tail};
use pkhash_core::{Error, Layout, Table};

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
        let width = usize::from(table.footer().value().width());
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

#[test]
fn invalid_files_are_their_recipes() {
    for fault in faults() {
        let path = recipes::folder("invalid").join(fault.name).with_extension("pkh");
        compare(&path, &fault.bytes());
    }
    assert_names("invalid", faults().map(|fault| fault.name));
}

#[test]
fn invalid_files_are_refused_for_their_fault() {
    let mut others = Vec::new();
    for fault in faults() {
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
        let options = recipe.options().partition_bits(bits);
        let mut bytes = common::build(&options, &[]);
        let table = Table::open(&bytes).unwrap();
        assert_eq!(table.verify(), Ok(()));
        assert_eq!(table.footer().partition_bits(), bits);
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
            if table.footer().layout() != Layout::Perfect {
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
                    let width = usize::from(other.footer().value().width());
                    assert_eq!(value.as_bytes().len(), width);
                    assert!(place.offset() + key.len() <= other.as_bytes().len());
                }
            }
        }
    }
    assert!(perfect > 100);
}
