//! Ordered companions against a model: every search, every bound; companions that are damaged, forged or of
//! another table; building within a memory budget, and merging.

#![cfg(feature = "ordered")]

mod building;
mod damage;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pkhash_core::Error as CoreError;
use pkhash_std::{
    Automaton, CompanionOptions, DELETED, DocMap, Error, KeyRegex, Layout, MAX_ORDERED_KEY_LEN,
    MIN_COMPANION_MEMORY, MergeInput, MergeOptions, OnDuplicate, OrderedOptions, OrderedTerms,
    Progress, Publication, Result, TableFile, TableOptions, ValueFormat, WriterOptions,
    build_companion, companion_path, merge, merge_companions,
};
use pkhash_testing::companions::{Docs, ask, check, fst_of, owned, seal};
use pkhash_testing::{Folder, Model, Rng, build_bytes, int, modes, publish, slices};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use xxhash_rust::xxh3::xxh3_64;

fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0x5eed_0007),
        failure_persistence: None,
        ..Config::default()
    }
}

fn docs<K: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (K, u64)>) -> Docs {
    pairs.into_iter().map(|(key, doc)| (key.as_ref().to_vec(), doc)).collect()
}

/// A table of these keys in a folder.
fn table_with(folder: &Folder, name: &str, options: TableOptions, docs: &Docs) -> TableFile {
    let model: Model = docs.iter().map(|(key, doc)| (key.clone(), int(*doc))).collect();
    let options = WriterOptions::default().table(options).threads(1);
    let (_, bytes) = build_bytes(options, slices(&model)).unwrap();
    TableFile::open(folder.write(name, bytes)).unwrap()
}

fn table(folder: &Folder, docs: &Docs) -> TableFile {
    table_with(folder, "t.pkh", TableOptions::default(), docs)
}

fn options() -> CompanionOptions {
    CompanionOptions::default().threads(1)
}

/// The companion of a table, beside it.
fn companion(table: &TableFile) -> OrderedTerms {
    let path = companion_path(table.name());
    let built = build_companion(table, &path, &options()).unwrap();
    assert_eq!(built.keys, table.footer().keys());
    assert_eq!(built.spilled, 0);
    assert_eq!(built.bytes, std::fs::metadata(&path).unwrap().len());
    let terms = OrderedTerms::open(table).unwrap();
    assert_eq!(terms.path(), Some(path.as_path()));
    assert_eq!(terms.file_len(), built.bytes);
    terms
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(prop::sample::select(vec![0, b'a', b'b', 0xfe, 0xff]), 0..5),
        1 => prop::collection::vec(any::<u8>(), 0..3),
        1 => prop::collection::vec(any::<u8>(), 100..120),
    ]
}

fn doc_ids() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..300u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn open(bytes: &[u8], table: &TableFile) -> Result<OrderedTerms> {
    OrderedOptions::new().from_bytes(bytes, table.table())
}

proptest! {
    #![proptest_config(config(25))]

    #[test]
    fn searches_say_what_the_model_says(
        docs in prop::collection::btree_map(keys(), doc_ids(), 0..80),
        asked in prop::collection::vec(keys(), 20),
        layout in 0..2,
        bits in 0..3u8,
    ) {
        let folder = Folder::new();
        let layout = [Layout::TermOrder, Layout::Perfect][layout as usize];
        let options = TableOptions::default().layout(layout).partition_bits(bits);
        let table = table_with(&folder, "t.pkh", options, &docs);
        let terms = companion(&table);
        check(&terms, &docs, &asked);
        terms.verify(&table).unwrap();
    }

    #[test]
    fn patterns_find_what_a_scan_finds(
        words in prop::collection::btree_set("[ab\u{e4}]{0,5}", 0..60),
        word in "[ab\u{e4}]{0,4}",
        distance in 0..3u32,
        pattern in prop::sample::select(vec![
            "", "a*", "(a|ab)(b|\u{e4}b?)", "[^a]+", ".{2}", "a.*b$", "^(?:ab)*$", "(?-u:a.)", "b|", "\\w\\B.",
        ]),
    ) {
        let folder = Folder::new();
        let docs = docs(words.iter().zip(0..));
        let terms = companion(&table(&folder, &docs));
        let near = |key: &&String| edits(key, &word) <= distance as usize;
        let found: Vec<_> = terms.levenshtein(&word, distance).unwrap().collect();
        let expected: Vec<_> = words.iter().filter(near).cloned().collect();
        prop_assert_eq!(texts(&found), expected);
        // The crate's other engine, on each key.
        match (KeyRegex::new(pattern), slow_regex(pattern)) {
            (Ok(automaton), Some(slow)) => {
                let found: Vec<_> = terms.automaton(&automaton).collect();
                let expected: Vec<_> =
                    words.iter().filter(|key| slow(key.as_bytes())).cloned().collect();
                prop_assert_eq!(texts(&found), expected);
                prop_assert!(found.iter().all(|(key, doc)| docs[key] == *doc));
                // As a part of other automata.
                let rest: Vec<_> = terms.automaton((&automaton).complement()).collect();
                prop_assert_eq!(rest.len() + found.len(), words.len());
            }
            (Err(Error::Pattern { .. }), None) => {}
            (automaton, _) => panic!("{pattern}: {automaton:?}"),
        }
    }
}

fn texts(found: &[(Vec<u8>, u64)]) -> Vec<String> {
    found.iter().map(|(key, _)| String::from_utf8(key.clone()).unwrap()).collect()
}

/// Whole matches by an engine that looks at one key after the other; `None`: a Unicode word boundary.
fn slow_regex(pattern: &str) -> Option<impl Fn(&[u8]) -> bool> {
    use regex_automata::dfa::dense;
    use regex_automata::{Anchored, Input, dfa::Automaton as _};
    let pattern = format!("^(?:{pattern})$");
    let dfa = dense::Builder::new()
        .syntax(regex_automata::util::syntax::Config::new().utf8(false))
        .thompson(regex_automata::nfa::thompson::Config::new().utf8(false))
        .build(&pattern)
        .ok()?;
    Some(move |key: &[u8]| {
        let input = Input::new(key).anchored(Anchored::Yes);
        dfa.try_search_fwd(&input).unwrap().is_some()
    })
}

/// Levenshtein's distance, in characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let least = (before + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            before = std::mem::replace(&mut row[j + 1], least);
        }
    }
    row[b.len()]
}

#[test]
fn patterns_that_cannot_be() {
    let folder = Folder::new();
    let terms = companion(&table(&folder, &docs([("abc", 1), ("abd", 2)])));
    for (pattern, part) in
        [("(", "unclosed"), ("\\b\u{e4}", "word boundaries"), ("[ab]*a[ab]{30}", "")]
    {
        let error = terms.regex(pattern).unwrap_err();
        assert!(matches!(error, Error::Pattern { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = terms.levenshtein(&"long".repeat(10), 6).unwrap_err();
    assert!(matches!(error, Error::Pattern { .. }), "{error:?}");
    // What the leftmost match prefers does not matter.
    assert_eq!(terms.regex("ab|abc").unwrap().count(), 1);
    // Bytes that are no text.
    let terms = companion(&table(&folder, &docs([(&b"\xff\x00"[..], 7), (b"\xff", 8)])));
    let found: Vec<_> = terms.regex(r"(?-u)\xff.").unwrap().collect();
    assert_eq!(found, [(b"\xff\x00".to_vec(), 7)]);
}

/// Nodes of all kinds: no key, the empty key alone (with doc ID 0 the fst has no node at all), 256 ways on,
/// more than 32 and fewer, long chains, outputs of all widths.
#[test]
fn fsts_of_every_form() {
    let folder = Folder::new();
    let every_byte = (0..=255u8).map(|byte| (vec![byte], u64::from(byte) << (byte % 57)));
    let half: Docs = (0..100u8).map(|byte| (vec![b'x', byte, 7], u64::from(byte))).collect();
    for docs in [
        docs::<&str>([]),
        docs([("", 0)]),
        docs([("", 5)]),
        docs([("", u64::MAX), ("a", 0)]),
        docs([("a", 0)]),
        docs([(vec![b'z'; 5000], 3), (vec![b'z'; 4999], 4), (vec![], 1)]),
        every_byte.clone().collect(),
        every_byte.chain([(vec![], 9)]).collect(),
        half,
    ] {
        let table = table(&folder, &docs);
        let terms = companion(&table);
        terms.verify(&table).unwrap();
        assert_eq!(terms.iter().collect::<Vec<_>>(), owned(docs.iter()));
        if docs.len() < 10 {
            check(&terms, &docs, &[b"a".to_vec(), vec![b'z'; 4998]]);
        }
    }
}

#[test]
fn opened_in_every_way() {
    fn shared<T: Send + Sync>(_: &T) {}
    let folder = Folder::new();
    let docs: Docs = (0..50).map(|i| (format!("key-{i}").into_bytes(), i * i)).collect();
    let table = table(&folder, &docs);
    companion(&table);
    let path = companion_path(table.name());
    let view = table.table();
    for mode in modes() {
        for trusted in [false, true] {
            let options = OrderedOptions::new().trusted(trusted);
            let terms = mode.companion(options, &path, view).unwrap();
            shared(&terms);
            assert!(terms.belongs_to(view));
            check(&terms, &docs, &[]);
        }
    }
    let bytes = folder.read("t.pkh.fst");
    let terms = OrderedOptions::new().from_bytes(bytes, view).unwrap();
    assert_eq!(terms.path(), None);
    check(&terms, &docs, &[]);
    // The same docs as the table's.
    for (key, doc) in &terms {
        assert_eq!(table.get(&key).unwrap().unwrap().as_u64(), Some(doc));
    }
    let error = OrderedOptions::new().open(folder.path("missing"), view).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    let error = OrderedOptions::new().open(folder.root(), view).unwrap_err();
    assert!(matches!(error, Error::NotAFile { .. }));
}

fn opaque(width: u8) -> TableOptions {
    TableOptions::default().value(ValueFormat::opaque(width).unwrap())
}

/// Doc ID and version.
fn versioned(doc: u32, version: u64) -> Vec<u8> {
    [&doc.to_le_bytes()[..], &version.to_le_bytes()].concat()
}

#[test]
fn values_that_are_doc_ids_and_others() {
    let folder = Folder::new();
    let path = folder.path("t.pkh");
    let model: Model = (0..50u32)
        .map(|i| (format!("{i:03}").into_bytes(), versioned(i * 7, u64::MAX - u64::from(i))))
        .collect();
    let with = |options| WriterOptions::default().table(options);
    publish(&path, with(opaque(12)), slices(&model)).unwrap();
    let table = TableFile::open(&path).unwrap();
    let terms = companion(&table);
    terms.verify(&table).unwrap();
    let expected: Docs = (0..50u64).map(|i| (format!("{i:03}").into_bytes(), i * 7)).collect();
    check(&terms, &expected, &[]);

    let files = folder.names();
    for width in [0, 4, 8, 11, 13, 64] {
        let model: Model = [(b"a".to_vec(), vec![1; width.into()])].into();
        publish(&path, with(opaque(width)), slices(&model)).unwrap();
        let table = TableFile::open(&path).unwrap();
        let error = build_companion(&table, folder.path("c"), &options()).unwrap_err();
        assert!(matches!(error, Error::NoDocIds { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("t.pkh") && text.contains(&format!("{width} opaque")), "{text}");
    }
    assert_eq!(folder.names(), files);
}

#[test]
fn keys_that_are_too_long() {
    let folder = Folder::new();
    let longest = vec![b'k'; MAX_ORDERED_KEY_LEN];
    let docs = docs([(longest.clone(), 1), (vec![b'k'; 3], 2)]);
    let terms = companion(&table(&folder, &docs));
    assert_eq!(terms.seek_ceil(b"kkkk"), Some((longest.clone(), 1)));
    let options_ = TableOptions::default().layout(Layout::TermOrder);
    let docs = [([longest, vec![0]].concat(), 1)].into();
    let table = table_with(&folder, "t.pkh", options_, &docs);
    let error = build_companion(&table, folder.path("c"), &options()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Table {
                path: Some(_),
                source: CoreError::KeyLength { expected: 65_536, found: 65_537 }
            }
        ),
        "{error:?}"
    );
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let folder = Folder::new();
    for n in [0, 1, 2, 100] {
        let docs: Docs = (0..n).map(|i| (format!("key-{i}").into_bytes(), i * 3)).collect();
        let table = table(&folder, &docs);
        companion(&table);
        assert!(folder.read("t.pkh.fst") == seal(&fst_of(&docs), n, &table));
    }
}
