//! What the fuzz targets run. The oracles are those of the property tests (`pkhash-core-testing`,
//! `pkhash-testing`): a battery for tables of any bytes, and models for sound ones, sets of
//! them and their companions.

// What maps files is in the helpers of the tests.
#![deny(unsafe_code)]

use pkhash_core_testing as common;

mod kernels;
mod ordered;
mod sets;

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use pkhash_core::builder::{LayoutChoice, PerfectShape, TableOptions, ValueChoice};
use pkhash_core::{Error, Footer, KeyHasher, Layout, Scalar, Table, Value, ValueFormat};
use pkhash_simd::AnyKernel;
use pkhash_std::{
    DocMap, MergeInput, MergeOptions, OnDuplicate, TableFile, TableWriter, WriterOptions,
};

use common::raw;
use common::recipes::RECIPES;

pub use kernels::{Compared, kernels};
pub use ordered::{Companion, ordered};
pub use sets::{Sets, set};

const PERFECT: LayoutChoice = LayoutChoice::Fixed(Layout::Perfect);

/// Keys to ask a table for that may be made of these bytes: parts of them, and what it says that it holds.
fn keys_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    for len in [1, 4, 8, 10, 16, 31, 36, 100] {
        keys.extend(bytes.chunks(len).step_by(7).take(6).map(<[u8]>::to_vec));
    }
    if let Ok(table) = Table::open(bytes) {
        let held = table.iter().take(200).filter_map(Result::ok);
        keys.extend(held.map(|(key, _)| key.to_vec()));
    }
    keys
}

/// Everything that can be done with a table, whatever its bytes. All kernels give the answers of core.
fn survive(bytes: &[u8]) -> Result<(), Error> {
    let table = Table::open(bytes)?;
    let keys = keys_of(bytes);
    common::exercise(&table, &keys);
    let owned = |value: Option<Value<'_>>| value.map(|value| value.as_bytes().to_vec());
    let mut expected = vec![None::<Value<'_>>; keys.len()];
    let found = table.get_batch(Scalar, &keys, &mut expected);
    for kernel in AnyKernel::available() {
        let mut out = vec![None::<Value<'_>>; keys.len()];
        assert_eq!(table.get_batch(kernel, &keys, &mut out), found, "{}", kernel.name());
        if found.is_ok() {
            let answers = out.into_iter().map(owned);
            assert!(answers.eq(expected.iter().copied().map(owned)), "{}", kernel.name());
        }
        for key in keys.iter().take(8) {
            assert_eq!(table.get(kernel, key).map(owned), table.get(Scalar, key).map(owned));
        }
    }
    let _ = table.probe_lengths::<4>();
    let _ = table.filter_fill();
    table.verify()
}

/// Arbitrary bytes; and again with a footer whose checksum is right, which no mutation hits.
pub fn open_get(data: &[u8]) {
    let _ = survive(data);
    let mut bytes = data.to_vec();
    if repair_footer(&mut bytes).is_some() && bytes != data {
        let _ = survive(&bytes);
    }
}

/// A sound table, damaged.
#[derive(Arbitrary, Debug)]
pub struct Damage {
    golden: u8,
    writes: Vec<Write>,
    cut: Option<u16>,
    repair: Repair,
}

/// Bytes that are overwritten.
#[derive(Arbitrary, Debug)]
struct Write {
    place: Place,
    at: u32,
    value: u64,
    width: u8,
}

#[derive(Arbitrary, Debug)]
enum Place {
    Body,
    Directory,
    Tail,
}

/// Which checksums are made right again.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    Nothing,
    Footer,
    Everything,
}

/// Makes the footer's checksum right, if there is a footer.
fn repair_footer(bytes: &mut [u8]) -> Option<()> {
    (bytes.len() >= raw::TAIL_LEN && raw::has_footer(bytes)).then(|| raw::repair_footer(bytes))
}

/// Makes the checksums of all sections right, if the footer says where they are.
fn repair_sections(bytes: &mut [u8]) -> Option<()> {
    repair_footer(bytes)?;
    Footer::parse(bytes, bytes.len() as u64).ok()?;
    raw::repair_all(bytes);
    Some(())
}

/// A damaged table is refused when it is opened or verified, or is the same table; and nothing that is
/// done with it panics, or reads where it must not.
pub fn mutate_golden(damage: &Damage) {
    let sound = RECIPES[usize::from(damage.golden) % RECIPES.len()].golden();
    let mut bytes = sound.clone();
    let tail = raw::tail(&bytes);
    let directory = raw::directory(&bytes);
    for Write { place, at, value, width } in damage.writes.iter().take(8) {
        let (from, to) = match place {
            Place::Body => (0, directory),
            Place::Directory => (directory, tail),
            Place::Tail => (tail, bytes.len()),
        };
        let width = [1, 2, 4, 8][usize::from(*width) % 4];
        let at = from + *at as usize % (to - from);
        let width = width.min(bytes.len() - at);
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    if let Some(cut) = damage.cut {
        bytes.truncate(usize::from(cut) % (bytes.len() + 1));
    }
    match damage.repair {
        Repair::Nothing => {}
        Repair::Footer => _ = repair_footer(&mut bytes),
        Repair::Everything => _ = repair_sections(&mut bytes),
    }
    let verified = survive(&bytes);
    if damage.repair == Repair::Nothing && bytes != sound {
        assert!(verified.is_err(), "damage that nothing noticed");
    }
}

/// Keys, values, and how a table is made of them.
#[derive(Arbitrary, Debug)]
pub struct Contents {
    keys: Vec<Key>,
    absent: Vec<Key>,
    how: How,
    spill: bool,
    threads: u8,
}

/// A key: short ones as they come, long ones of one byte.
#[derive(Arbitrary, Clone, Debug)]
enum Key {
    Bytes(Vec<u8>),
    Eight([u8; 8]),
    Sixteen([u8; 16]),
    Number(u32),
    Long(u8, u16),
}

impl Key {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Eight(bytes) => bytes.to_vec(),
            Self::Sixteen(bytes) => bytes.to_vec(),
            Self::Number(number) => number.to_string().into_bytes(),
            Self::Long(byte, len) => vec![*byte; usize::from(*len)],
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct How {
    layout: u8,
    value: u8,
    filter_bits: Option<u8>,
    partition_bits: Option<u8>,
    seed: u64,
    truncated: Option<u8>,
    packed: bool,
    shape: Option<(u8, u8)>,
}

impl How {
    fn options(self, hasher: KeyHasher) -> TableOptions {
        let layout = match self.layout % 4 {
            0 => LayoutChoice::Auto,
            1 => LayoutChoice::Fixed(Layout::Inline),
            2 => LayoutChoice::Fixed(Layout::TermOrder),
            _ => LayoutChoice::Fixed(Layout::Perfect),
        };
        let value = match self.value % 12 {
            0 => ValueChoice::Fixed(ValueFormat::opaque(0).expect("a width")),
            1 => ValueChoice::Fixed(ValueFormat::opaque(12).expect("a width")),
            width @ 2..=9 => ValueChoice::Fixed(ValueFormat::integer(width - 1).expect("a width")),
            _ => ValueChoice::Auto,
        };
        TableOptions::default()
            .layout(layout)
            .value(value)
            .filter_bits(self.filter_bits.map(|bits| bits % 66))
            .hasher(hasher)
            .partition_bits(self.partition_bits.map(|bits| bits % 14))
            .packed(self.packed)
            .shape(self.shape.map_or_else(PerfectShape::default, |(keys, load)| {
                PerfectShape::default()
                    .keys_per_100_buckets(100 + u16::from(keys))
                    .keys_per_1000_slots(900 + u16::from(load) % 96)
            }))
    }

    fn hasher(self) -> KeyHasher {
        match self.truncated {
            Some(bits) => KeyHasher::truncated(self.seed, bits % 16),
            None => KeyHasher::new(self.seed),
        }
    }
}

/// The value of the i-th key: as wide as the options ask for.
fn value(i: u64, options: &TableOptions) -> Vec<u8> {
    match options.value {
        ValueChoice::Auto => i.to_le_bytes().to_vec(),
        ValueChoice::Fixed(value) => {
            let width = usize::from(value.width());
            // A small number, so that it fits one byte.
            let mut bytes = vec![0; width];
            if let Some(first) = bytes.first_mut() {
                *first = i as u8;
            }
            bytes
        }
    }
}

/// A table of arbitrary keys answers as a map does, and core and the writer make the same one.
pub fn roundtrip(contents: &Contents) {
    let options = contents.how.options(contents.how.hasher());
    let mut model = BTreeMap::new();
    for (i, key) in contents.keys.iter().take(2000).enumerate() {
        model.insert(key.bytes(), value(i as u64, &options));
    }
    let pairs: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let built = common::try_build(&options, &pairs);
    let written = write(&options, &pairs, contents);
    let bytes = match (built, written) {
        (Ok(built), Ok(written)) => {
            assert!(built == written, "core and the writer differ");
            built
        }
        // What cannot be made is refused by both.
        (Err(_), Err(_)) => return,
        (built, written) => panic!("{:?}, {:?}", built.map(|_| ()), written.map(|_| ())),
    };
    let table = Table::open(&bytes).expect("a table that was built");
    let width = usize::from(table.footer().value().width());
    for value in model.values_mut() {
        value.truncate(width);
    }
    let mut absent: Vec<_> = contents.absent.iter().take(200).map(Key::bytes).collect();
    // A record of no value and no key has no bytes: nothing must look like it.
    absent.push(Vec::new());
    absent.retain(|key| !model.contains_key(key));
    common::check(&table, &model, &absent);
    assert_eq!(survive(&bytes), Ok(()));
}

fn write(
    table: &TableOptions,
    pairs: &[common::Pair],
    contents: &Contents,
) -> Result<Vec<u8>, pkhash_std::Error> {
    let options = WriterOptions::default()
        .table(*table)
        .memory(if contents.spill { pkhash_std::MIN_MEMORY } else { 64 << 20 })
        .threads(usize::from(contents.threads % 3) + 1);
    let mut writer = TableWriter::new(options)?;
    for (key, value) in pairs {
        match table.value {
            ValueChoice::Auto => {
                writer.add(key, value.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b)))?;
            }
            ValueChoice::Fixed(_) => writer.add_bytes(key, value)?,
        }
    }
    let mut out = Vec::new();
    writer.write_to(&mut out)?;
    Ok(out)
}

/// Tables, what becomes of their docs, and what is made of them.
#[derive(Arbitrary, Debug)]
pub struct Merge {
    inputs: Vec<(Vec<Key>, How, Docs)>,
    output: How,
    on_duplicate: u8,
    threads: u8,
}

#[derive(Arbitrary, Clone, Debug)]
enum Docs {
    Keep,
    Offset(u16),
    /// New IDs; a doc goes if there is none.
    Map(Vec<Option<u8>>),
}

/// A merged table is what a map makes of the same keys.
pub fn merge(merge: &Merge) {
    let hasher = merge.output.hasher();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let on_duplicate = [OnDuplicate::Error, OnDuplicate::First, OnDuplicate::Last]
        [usize::from(merge.on_duplicate) % 3];
    let (mut tables, mut docs, mut twice) = (Vec::new(), Vec::new(), false);
    for (i, (keys, how, map)) in merge.inputs.iter().take(5).enumerate() {
        let options = how.options(hasher).value(ValueChoice::Auto);
        let mut input: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (doc, key) in keys.iter().take(500).enumerate() {
            input.insert(key.bytes(), doc as u64);
        }
        let pairs: Vec<_> =
            input.iter().map(|(key, doc)| (key.clone(), doc.to_le_bytes().to_vec())).collect();
        let Ok(bytes) = common::try_build(&options, &pairs) else { continue };
        let path = folder.path().join(i.to_string());
        std::fs::write(&path, bytes).expect("room for a table");
        tables.push(TableFile::open(&path).expect("a sound table"));
        let map = match map {
            Docs::Keep => DocMap::Keep,
            Docs::Offset(base) => DocMap::Offset((*base).into()),
            Docs::Map(new) => DocMap::Map(
                (0..keys.len())
                    .map(|doc| match new.get(doc % new.len().max(1)) {
                        Some(Some(new)) => u32::from(*new),
                        _ => pkhash_std::DELETED,
                    })
                    .collect(),
            ),
        };
        for (key, doc) in input {
            let doc = match &map {
                DocMap::Keep => doc,
                DocMap::Offset(base) => doc + base,
                DocMap::Map(new) if new[doc as usize] == pkhash_std::DELETED => continue,
                DocMap::Map(new) => new[doc as usize].into(),
                map => panic!("no model of {map:?}"),
            };
            let before = model.get(&key).copied();
            twice |= before.is_some();
            let kept = match (before, on_duplicate) {
                (Some(before), OnDuplicate::First) => before,
                _ => doc,
            };
            model.insert(key, kept);
        }
        docs.push(map);
    }
    if tables.is_empty() {
        return;
    }
    let inputs: Vec<_> =
        tables.iter().zip(docs).map(|(table, docs)| MergeInput::new(table).docs(docs)).collect();
    let output = merge.output.options(hasher);
    let options = MergeOptions::default()
        .layout(output.layout)
        .filter_bits(output.filter_bits)
        .partition_bits(output.partition_bits)
        .packed(output.packed)
        .shape(output.shape)
        .threads(usize::from(merge.threads % 3) + 1)
        .on_duplicate(on_duplicate);
    let mut out = Vec::new();
    match pkhash_std::merge(&inputs, &mut out, &options) {
        Ok(_) => {
            assert!(!twice || on_duplicate != OnDuplicate::Error, "a duplicate that was not named");
            let table = Table::open(&out).expect("a table that was merged");
            let width = usize::from(table.footer().value().width());
            let model: BTreeMap<_, _> = model
                .into_iter()
                .map(|(key, doc)| (key, doc.to_le_bytes()[..width].to_vec()))
                .collect();
            let mut absent = vec![Vec::new(), b"absent".to_vec()];
            absent.retain(|key| !model.contains_key(key));
            common::check(&table, &model, &absent);
        }
        Err(pkhash_std::Error::DuplicateKey { .. }) => {
            assert!(twice && on_duplicate == OnDuplicate::Error);
        }
        // Options that the keys do not fit.
        Err(pkhash_std::Error::Table { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
