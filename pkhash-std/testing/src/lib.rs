//! Shared by the tests of pkhash-std, of the command, and by the fuzz targets: numbers from a seed, folders that
//! vanish, tables in every way they can be opened, and the comparison with a model.

// `opening.rs` maps files.
#![deny(unsafe_code)]
// Tests are what reads this.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::len_without_is_empty,
    clippy::new_without_default
)]

pub mod companions;
pub mod opening;
pub mod sets;

use pkhash_core::Scalar;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pkhash_core::Error as CoreError;
use pkhash_core::builder::{self, Entry, KeyStats};
use pkhash_std::{
    AnyKernel, Built, Error, OpenOptions, Result, TableFile, TableOptions, TableWriter, Value,
    ValueChoice, ValueKind, WriterOptions,
};

pub use opening::modes;

/// What a table should hold. An integer is here with 8 bytes, however narrow the table keeps it.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// SplitMix64: small, and the same numbers on every machine.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// A folder that vanishes with the test.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        // Another file and not the old one written over: ext4 flushes those to the disk.
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The names of all files, hidden ones included.
    pub fn names(&self) -> Vec<String> {
        names(self.root())
    }
}

/// The names of all files of a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// One file in every mode; the kernels take turns, and each comes at least once.
pub fn open_all(path: &Path) -> Vec<TableFile> {
    let kernels: Vec<AnyKernel> = AnyKernel::available().collect();
    let modes = modes();
    (0..modes.len().max(kernels.len()))
        .map(|i| {
            let options = OpenOptions::new().kernel(kernels[i % kernels.len()]);
            modes[i % modes.len()].with(options).open(path).unwrap()
        })
        .collect()
}

/// Adds a value in the way that the options' values ask for: from 8 bytes for integers.
fn add(writer: &mut TableWriter, options: &TableOptions, key: &[u8], value: &[u8]) -> Result<()> {
    match options.value {
        ValueChoice::Fixed(format) if format.kind() != ValueKind::Integer => {
            writer.add_bytes(key, value)
        }
        _ => writer.add(key, u64::from_le_bytes(value.try_into().unwrap())),
    }
}

/// Builds a table into memory.
pub fn build_bytes<'p>(
    options: WriterOptions,
    pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
) -> Result<(Built, Vec<u8>)> {
    let table = options.table;
    let mut writer = TableWriter::new(options)?;
    for (key, value) in pairs {
        add(&mut writer, &table, key, value)?;
    }
    let mut bytes = Vec::new();
    let built = writer.write_to(&mut bytes)?;
    assert_eq!(built.footer.file_len(), bytes.len() as u64);
    Ok((built, bytes))
}

/// Builds a table and publishes it.
pub fn publish<'p>(
    path: &Path,
    options: WriterOptions,
    pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
) -> Result<Built> {
    let table = options.table;
    let mut writer = TableWriter::create(path, options)?;
    for (key, value) in pairs {
        add(&mut writer, &table, key, value)?;
    }
    writer.publish()
}

/// The same table by the core alone, which has all keys in memory. No key comes twice.
pub fn build_in_core<'p>(
    options: &TableOptions,
    pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
) -> Result<Vec<u8>, CoreError> {
    let mut entries: Vec<Entry<'_>> =
        pairs.into_iter().map(|(key, value)| options.entry(key, value)).collect();
    let mut stats = KeyStats::default();
    for entry in &entries {
        stats.add(entry.key, if entry.value.len() > 8 { &[] } else { entry.value });
    }
    let mut spare = vec![Entry::default(); entries.len()];
    builder::sort(&mut entries, &mut spare)?;
    let mut scratch = vec![0; options.plan(&stats)?.scratch_len(entries.len())];
    let mut out = vec![0xaa; builder::table_len(options, &entries)?];
    let len = builder::build(Scalar, options, &mut entries, &mut spare, &mut scratch, &mut out)?;
    assert_eq!(len, out.len());
    Ok(out)
}

/// Keys whose hash is that of another key: of all partitions, and of the one that has most.
pub fn exceptions<'k>(
    options: &TableOptions,
    keys: impl IntoIterator<Item = &'k [u8]>,
) -> (u64, u64) {
    let mut hashes: Vec<u64> = keys.into_iter().map(|key| options.hasher.hash(key)).collect();
    hashes.sort_unstable();
    // A few keys are in one partition unless more were asked for.
    let bits = options.partition_bits.unwrap_or(0);
    let mut partitions = BTreeMap::new();
    for pair in hashes.windows(2).filter(|pair| pair[0] == pair[1]) {
        *partitions.entry(pkhash_core::hash::partition(pair[0], bits)).or_insert(0) += 1;
    }
    (partitions.values().sum(), partitions.values().copied().max().unwrap_or(0))
}

/// The key of 8 bytes with this hash, seed 0: the steps of XXH3 for such keys, undone.
pub fn key_of_hash(hash: u64) -> Vec<u8> {
    // The inverse of 0x9fb2_1c65_1e98_df25, by Newton: each round doubles the bits that are right.
    let prime = 0x9fb2_1c65_1e98_df25u64;
    let inverse =
        (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(prime.wrapping_mul(x))));
    let mut x = hash ^ hash >> 28 ^ hash >> 56;
    x = x.wrapping_mul(inverse);
    x ^= (x >> 35) + 8;
    x = x.wrapping_mul(inverse);
    // The 64th power of this step is the identity.
    x = (0..63).fold(x, |x, _| x ^ x.rotate_left(49) ^ x.rotate_left(24));
    let key = (x ^ 0xc73a_b174_c5ec_d5a2).rotate_left(32).to_le_bytes().to_vec();
    assert_eq!(pkhash_std::KeyHasher::new(0).hash(&key), hash);
    key
}

/// Keys that meet in one bucket, too many to be placed, if the seed of their partition is 0.
pub fn meet_with_seed_0(n: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(|i| key_of_hash((0xabcd_0123 << 32) + i * 0x0101_0101))
}

/// Keys that do so with every other seed.
pub fn meet_with_other_seeds(n: u64) -> impl Iterator<Item = Vec<u8>> {
    // The inverse of the multiplier of these seeds: FORMAT.md, §3.1.2.
    let inverse = (0..6).fold(1u64, |x, _| {
        x.wrapping_mul(2u64.wrapping_sub(0xd6e8_feb8_6659_fd93u64.wrapping_mul(x)))
    });
    (0..n).map(move |i| key_of_hash(0x1234_5678_9abc_def0u64.wrapping_add(i.wrapping_mul(inverse))))
}

/// The most keys with the hash of another that a perfect partition takes.
pub const MAX_EXCEPTIONS: u64 = pkhash_core::format::MAX_EXCEPTIONS as u64;

/// The error of a perfect table for more than that.
#[track_caller]
pub fn too_many_of_one_hash(error: &Error) {
    assert!(
        matches!(
            error,
            Error::Table {
                path: None,
                source: CoreError::EqualHashes { expected: MAX_EXCEPTIONS, found: 65.. }
            }
        ),
        "{error}"
    );
}

/// For loops over a model, or over pairs.
pub fn slices<'m>(
    pairs: impl IntoIterator<Item = (&'m Vec<u8>, &'m Vec<u8>)>,
) -> impl Iterator<Item = (&'m [u8], &'m [u8])> {
    pairs.into_iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
}

/// The same, of a slice.
pub fn of_slice(pairs: &[(Vec<u8>, Vec<u8>)]) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
    pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
}

/// A doc ID, or any integer, as a model has it.
pub fn int(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// `key-0`, `key-1`, … with their numbers.
pub fn numbered(prefix: &str, numbers: std::ops::Range<u64>) -> Model {
    numbers.map(|i| (format!("{prefix}-{i}").into_bytes(), int(i))).collect()
}

/// `key-0`, `key-1`, … with the squares of their numbers.
pub fn squares(n: u64) -> Model {
    (0..n).map(|i| (format!("key-{i}").into_bytes(), int(i * i))).collect()
}

/// The table of a model, with default options.
pub fn bytes_of(model: &Model) -> Vec<u8> {
    build_bytes(WriterOptions::default(), slices(model)).unwrap().1
}

/// What the table kept of a value: the rest of it must be zeros.
fn same(kept: &[u8], expected: &[u8]) -> bool {
    kept.len() <= expected.len()
        && kept == &expected[..kept.len()]
        && expected[kept.len()..].iter().all(|byte| *byte == 0)
}

/// The table verifies, holds just what the model holds, and answers for every key of the model, for
/// keys that resemble them, and for `absent` ones, singly and in batches.
pub fn check(file: &TableFile, model: &Model, absent: &[Vec<u8>]) {
    file.verify().unwrap();
    assert_eq!(file.footer().keys(), model.len() as u64);

    let mut listed = Model::new();
    for record in file.table() {
        let (key, value) = record.unwrap();
        let mut value = value.as_bytes().to_vec();
        let expected = &model[key];
        assert!(same(&value, expected), "iter: {key:02x?}: {value:02x?} for {expected:02x?}");
        value.resize(expected.len(), 0);
        assert!(listed.insert(key.to_vec(), value).is_none(), "iter: {key:02x?} came twice");
    }
    assert_eq!(&listed, model);

    let mut asked: Vec<Vec<u8>> = Vec::new();
    for key in model.keys() {
        asked.push(key.clone());
        let mut longer = key.clone();
        longer.push(0);
        asked.push(longer);
        if let Some((last, shorter)) = key.split_last() {
            asked.push(shorter.to_vec());
            asked.push([shorter, &[last ^ 1]].concat());
        }
    }
    asked.extend_from_slice(absent);
    let is_right = |how: &str, key: &Vec<u8>, found: Option<&[u8]>| match (found, model.get(key)) {
        (None, None) => {}
        (Some(kept), Some(expected)) if same(kept, expected) => {}
        (found, expected) => panic!("{how}: {key:02x?}: {found:02x?} for {expected:02x?}"),
    };
    for key in &asked {
        let found = file.get(key).unwrap();
        is_right("get", key, found.as_ref().map(|value| value.as_bytes()));
    }
    let mut found = vec![None::<Value<'_>>; asked.len()];
    let hits = file.get_batch(&asked, &mut found).unwrap();
    for (key, found) in asked.iter().zip(&found) {
        is_right("get_batch", key, found.as_ref().map(|value| value.as_bytes()));
    }
    assert_eq!(hits, found.iter().flatten().count());
    assert_eq!(hits, asked.iter().filter(|key| model.contains_key(*key)).count());
}

/// Checks the bytes of a table, held in every way.
pub fn check_bytes(bytes: &[u8], model: &Model, absent: &[Vec<u8>]) {
    let folder = Folder::new();
    let path = folder.write("table.pkh", bytes);
    for file in open_all(&path) {
        check(&file, model, absent);
    }
}

/// For large tables: the table verifies, and holds the keys and values of the model and no others.
pub fn check_large(file: &TableFile, model: &Model) {
    file.verify().unwrap();
    assert_eq!(file.footer().keys(), model.len() as u64);
    let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
    let mut found = vec![None::<Value<'_>>; keys.len()];
    assert_eq!(file.get_batch(&keys, &mut found).unwrap(), keys.len());
    for (found, expected) in found.iter().zip(model.values()) {
        assert!(same(found.unwrap().as_bytes(), expected));
    }
}

/// The message of an error that must name this path.
pub fn names_path(error: &Error, path: &Path) -> String {
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "no path {path:?} in: {message}");
    message
}
