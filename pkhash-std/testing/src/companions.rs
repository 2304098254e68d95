//! Ordered companions and what they should answer: for the tests of `ordered.rs`, and for the fuzz target
//! `ordered`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use pkhash_std::{OrderedTerms, TableFile};
use xxhash_rust::xxh3::xxh3_64;

/// Keys and their docs.
pub type Docs = BTreeMap<Vec<u8>, u64>;

pub fn owned<'m>(pairs: impl Iterator<Item = (&'m Vec<u8>, &'m u64)>) -> Vec<(Vec<u8>, u64)> {
    pairs.map(|(key, doc)| (key.clone(), *doc)).collect()
}

pub fn within(docs: &Docs, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Vec<(Vec<u8>, u64)> {
    // A `BTreeMap` panics if the bounds are the wrong way round.
    owned(docs.iter().filter(|(key, _)| {
        let key = key.as_slice();
        let after = match from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        let before = match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        after && before
    }))
}

/// Every search says what the model says, for the keys asked and those of the model.
pub fn check(terms: &OrderedTerms, docs: &Docs, asked: &[Vec<u8>]) {
    assert_eq!((terms.len(), terms.is_empty()), (docs.len() as u64, docs.is_empty()));
    assert_eq!(terms.iter().collect::<Vec<_>>(), owned(docs.iter()));
    assert_eq!(terms.into_iter().count(), docs.len());
    let asked: BTreeSet<&[u8]> =
        asked.iter().chain(docs.keys()).map(Vec::as_slice).chain([&[][..]]).collect();
    let asked: Vec<&[u8]> = asked.into_iter().collect();
    for (i, key) in asked.iter().enumerate() {
        assert_eq!(terms.get(key), docs.get(*key).copied(), "get {key:02x?}");
        let ceil = within(docs, Bound::Included(key), Bound::Unbounded).into_iter().next();
        assert_eq!(terms.seek_ceil(key), ceil, "seek_ceil {key:02x?}");
        let prefixed = owned(docs.iter().filter(|(found, _)| found.starts_with(key)));
        assert_eq!(terms.prefix(key).collect::<Vec<_>>(), prefixed, "prefix {key:02x?}");
        // Some others, before and after.
        for other in [asked[i * 7 % asked.len()], asked[(i + 1) % asked.len()], key] {
            let bounds = |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
            for from in bounds(*key) {
                for to in bounds(other) {
                    let found: Vec<_> = terms.range((from, to)).collect();
                    assert_eq!(found, within(docs, from, to), "{from:02x?} {to:02x?}");
                }
            }
        }
    }
}

/// FORMAT.md §12, once more: puts a companion around the bytes of an fst.
pub fn seal(fst: &[u8], keys: u64, table: &TableFile) -> Vec<u8> {
    let view = table.table();
    let bytes = view.as_bytes();
    let footer_checksum: [u8; 8] = bytes[bytes.len() - 16..bytes.len() - 8].try_into().unwrap();
    let mut file = b"\x89pkhfst\n\x01\0\0\0\0\0\0\0".to_vec();
    file.extend_from_slice(fst);
    let tail = file.len();
    file.extend_from_slice(&(fst.len() as u64).to_le_bytes());
    file.extend_from_slice(&keys.to_le_bytes());
    file.extend_from_slice(&footer_checksum);
    file.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    file.extend_from_slice(&xxh3_64(fst).to_le_bytes());
    file.extend_from_slice(&[0; 8]);
    let covered = [&file[..16], &file[tail..]].concat();
    file.extend_from_slice(&xxh3_64(&covered).to_le_bytes());
    file.extend_from_slice(b"pkh-ordr");
    file
}

pub fn fst_of(docs: &Docs) -> Vec<u8> {
    let mut builder = fst::MapBuilder::memory();
    for (key, doc) in docs {
        builder.insert(key, *doc).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Some of everything that can be asked: what is found does not matter, that it ends does.
pub fn ask(terms: &OrderedTerms, asked: &[&[u8]]) {
    assert_eq!(terms.iter().count() as u64, terms.len());
    for key in asked {
        // A key that is listed is found, and the other way round.
        let first = terms.range(*key..=*key).next();
        assert_eq!(terms.get(key), first.map(|(_, doc)| doc));
        assert!(terms.prefix(key).count() as u64 <= terms.len());
        if let Some((found, _)) = terms.seek_ceil(key) {
            assert!(found.as_slice() >= *key);
        }
        let after: Vec<_> = terms.range((Bound::Excluded(*key), Bound::Unbounded)).collect();
        assert!(after.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
    assert!(terms.regex("[^b]*").unwrap().count() as u64 <= terms.len());
    assert!(terms.levenshtein("ab", 1).unwrap().count() as u64 <= terms.len());
}
