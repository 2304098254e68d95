//! All kernels over all golden files, those damaged ones included that can be opened: one answer.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use common::answers;
use common::core::recipes::{self, RECIPES};
use pkhash_core::Table;

/// The files of a folder of golden files.
fn files(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(recipes::folder(folder)).expect("a folder of golden files");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// The records of a table, as far as they can be read.
fn records(table: &Table<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let records = table.iter().map_while(Result::ok);
    records.map(|(key, value)| (key.to_vec(), value.as_bytes().to_vec())).collect()
}

/// Keys of golden files, a few of each: most are absent from any one table.
fn strangers() -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for (_, bytes) in files("valid") {
        let table = Table::open(&bytes).expect("a valid file");
        keys.extend(records(&table).into_keys().step_by(11));
    }
    keys
}

/// All kernels give the answers of core's scalar kernel.
fn agree(table: &Table<'_>, keys: &[&[u8]], name: &str) -> common::Answers {
    let expected = answers(table, None, keys);
    expected.assert_coherent(keys);
    for kernel in common::kernels() {
        assert_eq!(answers(table, Some(kernel), keys), expected, "{name}, {}", kernel.name());
    }
    expected
}

#[test]
fn valid_files() {
    let (files, strangers) = (files("valid"), strangers());
    assert_eq!(files.len(), RECIPES.len());
    for (path, bytes) in files {
        let table = Table::open(&bytes).expect("a valid file");
        let records = records(&table);
        assert_eq!(records.len() as u64, table.len());
        let keys: Vec<&[u8]> = records.keys().chain(&strangers).map(Vec::as_slice).collect();
        let found = agree(&table, &keys, &path.display().to_string());
        for (key, found) in keys.iter().zip(found.singles) {
            assert_eq!(found, Ok(records.get(*key).cloned()), "{}", path.display());
        }
    }
}

#[test]
fn invalid_files_that_open() {
    let strangers = strangers();
    let mut opened = 0;
    for (path, bytes) in files("invalid") {
        let Ok(table) = Table::open(&bytes) else { continue };
        opened += 1;
        let records = records(&table);
        let keys: Vec<&[u8]> = records.keys().chain(&strangers).map(Vec::as_slice).collect();
        agree(&table, &keys, &path.display().to_string());
    }
    assert!(opened > 10, "only {opened} invalid files can be opened");
}

/// The builder uses no kernel, so there is one file to compare, whatever this machine's vector unit,
/// byte order or word size.
#[test]
fn files_are_the_same_bytes_on_every_machine() {
    for recipe in RECIPES {
        assert!(recipe.bytes() == recipe.golden(), "{} is built otherwise here", recipe.name);
    }
}
