//! Ordered companions against a model: every search, every bound; companions that are damaged, forged or of
//! another table; building within a memory budget, and merging.

#![cfg(feature = "ordered")]

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

fn open(bytes: &[u8], table: &TableFile) -> Result<OrderedTerms> {
    OrderedOptions::new().from_bytes(bytes, table.table())
}

fn fault(bytes: &[u8], table: &TableFile) -> (&'static str, u64, u64, u64) {
    match open(bytes, table) {
        Err(Error::Companion { path: None, what, offset, expected, found }) => {
            (what, offset, expected, found)
        }
        other => panic!("{other:?}"),
    }
}

/// Each rule of FORMAT.md §12 about head and tail.
#[test]
fn what_does_not_fit_is_named() {
    let folder = Folder::new();
    let docs = docs([("a", 1), ("b", 2), ("c", 30_000)]);
    let table = table(&folder, &docs);
    companion(&table);
    let good = folder.read("t.pkh.fst");
    let (len, fst_len) = (good.len() as u64, good.len() as u64 - 80);
    let tail = good.len() - 64;
    /// Changes the tail and makes its checksum right again.
    fn resealed(good: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = good.to_vec();
        let tail = bytes.len() - 64;
        change(&mut bytes);
        let sum = xxh3_64(&[&bytes[..16], &bytes[tail..tail + 48]].concat());
        bytes[tail + 48..tail + 56].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
    let set = |at: usize, value: u64| {
        resealed(&good, |bytes| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()))
    };
    let field = |at: usize| u64::from_le_bytes(good[at..at + 8].try_into().unwrap());

    assert_eq!(fault(b"", &table), ("length", 0, 116, 0));
    assert_eq!(fault(&good[..115], &table), ("length", 0, 116, 115));
    let table_bytes = folder.read("t.pkh");
    assert_eq!(fault(&table_bytes, &table).0, "magic");
    let mut bytes = good.clone();
    bytes[8] = 2;
    assert_eq!(fault(&bytes, &table), ("version", 8, 1, 2));
    let mut bytes = good.clone();
    bytes[13] = 1;
    assert_eq!(fault(&bytes, &table), ("head reserved", 12, 0, 256));
    let mut bytes = good.clone();
    bytes[tail + 56] ^= 1;
    assert_eq!(fault(&bytes, &table).0, "tail magic");
    let mut bytes = good.clone();
    bytes[tail + 1] ^= 1;
    assert_eq!(fault(&bytes, &table).0, "tail checksum");
    let mut bytes = good.clone();
    bytes[33] ^= 1;
    let (what, offset, ..) = fault(&bytes, &table);
    assert_eq!((what, offset), ("fst checksum", 16));

    for (at, what) in [
        (0, "fst length"),
        (8, "keys of the table"),
        (16, "table's footer checksum"),
        (24, "table length"),
        (40, "tail reserved"),
    ] {
        let at = tail + at;
        let expected = (what, at as u64, field(at), field(at) ^ 0x100);
        assert_eq!(fault(&set(at, field(at) ^ 0x100), &table), expected);
    }
    for (at, what) in [
        (16, "fst version"),
        (24, "fst type"),
        (tail - 20, "keys of the fst"),
        (tail - 12, "root of the fst"),
    ] {
        let expected = (what, at as u64, field(at), u64::MAX);
        assert_eq!(fault(&set(at, u64::MAX), &table), expected);
    }
    assert_eq!(field(tail), fst_len);
    // Another table: other keys, the same keys with other docs, the same number.
    for (other, what) in [
        (self::docs([("a", 1)]), "keys of the table"),
        (self::docs([("a", 1), ("b", 2), ("c", 30_001)]), "table's footer checksum"),
    ] {
        let other = table_with(&folder, "other.pkh", TableOptions::default(), &other);
        assert_eq!(fault(&good, &other).0, what);
        let terms = open(&good, &table).unwrap();
        assert!(!terms.belongs_to(other.table()));
        assert!(matches!(terms.verify(&other), Err(Error::Companion { .. })));
    }
    // The message has all of it, and the file's name.
    folder.write("t.pkh.fst", set(tail + 8, 77));
    let text = OrderedTerms::open(&table).unwrap_err().to_string();
    for part in
        ["t.pkh.fst", "keys of the table", &(tail + 8).to_string(), "expected 3", "found 77"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(len, good.len() as u64);
}

/// With nodes of all kinds, and small.
fn small() -> Docs {
    let mut docs = docs([("", 70_000), ("abc", 1), ("abd", 300), ("tea", 5), ("tee", u64::MAX)]);
    docs.extend((0..40u8).map(|byte| (vec![b'x', byte], u64::from(byte))));
    docs.extend((0..3u8).map(|i| (vec![b'y', i, 200, 201, 202], 1 << (20 * i))));
    docs
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    let folder = Folder::new();
    let docs = small();
    let table = table(&folder, &docs);
    companion(&table);
    let good = folder.read("t.pkh.fst");
    for len in 0..good.len() {
        assert!(matches!(open(&good[..len], &table), Err(Error::Companion { .. })), "{len}");
        assert!(matches!(open(&good[len + 1..], &table), Err(Error::Companion { .. })), "{len}");
    }
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(matches!(open(&bad, &table), Err(Error::Companion { .. })), "{at} {bit}");
        }
    }
    for more in [&b"\0"[..], &[0; 64], &good] {
        let bad = [&good, more].concat();
        assert!(matches!(open(&bad, &table), Err(Error::Companion { .. })));
    }
}

/// Whoever forges a companion can make the checksums right. What is opened all the same can be searched.
#[test]
fn forged_fsts_are_refused_or_can_be_searched() {
    let folder = Folder::new();
    let docs = small();
    let table = table(&folder, &docs);
    let fst = fst_of(&docs);
    let asked: Vec<&[u8]> = docs.keys().map(Vec::as_slice).step_by(5).chain([&b"zz"[..]]).collect();
    let (mut opened, mut whats) = (0, BTreeSet::new());
    let mut try_one = |bad: &[u8]| match open(&seal(bad, docs.len() as u64, &table), &table) {
        Ok(terms) => {
            opened += 1;
            ask(&terms, &asked);
            // It is not the table's, unless nothing that counts was changed.
            if terms.iter().collect::<Vec<_>>() != owned(docs.iter()) {
                terms.verify(&table).unwrap_err();
            }
        }
        Err(Error::Companion { what, .. }) => {
            whats.insert(what);
        }
        Err(error) => panic!("{error}"),
    };
    let mut bad = fst.clone();
    for at in 0..fst.len() {
        for change in [1, 4, 0x10, 0x40, 0x80, 0xff] {
            bad[at] ^= change;
            try_one(&bad);
            bad[at] = fst[at];
        }
        bad[at] = 0;
        try_one(&bad);
        bad[at] = fst[at];
    }
    let mut rng = Rng(7);
    for _ in 0..2000 {
        // Nodes cut out, doubled, or made of noise; what the end says is made to fit.
        let from = 16 + rng.below(fst.len() - 36);
        let to = (from + rng.below(40)).min(fst.len() - 20);
        let mut body = match rng.below(3) {
            0 => [&fst[..from], &fst[to..fst.len() - 20]].concat(),
            1 => [&fst[..to], &fst[from..fst.len() - 20]].concat(),
            _ => [&fst[..from], &rng.bytes(to - from), &fst[to..fst.len() - 20]].concat(),
        };
        let root = body.len() as u64 - 1;
        body.extend_from_slice(&(docs.len() as u64).to_le_bytes());
        body.extend_from_slice(&root.to_le_bytes());
        body.extend_from_slice(&[0; 4]);
        try_one(&body);
    }
    // Each rule about nodes has refused something.
    assert!(opened > 100, "{opened}");
    for what in [
        "ways to a node of the fst",
        "transitions of a node of the fst",
        "length of a node of the fst",
        "order of bytes in the fst",
        "index of a node of the fst",
        "sizes in a node of the fst",
        "target in the fst",
        "output of the fst",
        "address of a node of the fst",
        "keys that the fst spells",
    ] {
        assert!(whats.contains(what), "{what} not among {whats:?}");
    }
}

/// An fst of few bytes that spells keys without end, or keys of any length.
#[test]
fn small_fsts_with_much_in_them() {
    let folder = Folder::new();
    let table = table(&folder, &docs([("a", 1), ("b", 2), ("c", 3)]));
    let with_nodes = |nodes: &[u8]| {
        let mut fst = [3u64.to_le_bytes(), [0; 8]].concat();
        fst.extend_from_slice(nodes);
        let root = fst.len() as u64 - 1;
        fst.extend_from_slice(&3u64.to_le_bytes());
        fst.extend_from_slice(&root.to_le_bytes());
        fst.extend_from_slice(&[0; 4]);
        fault(&seal(&fst, 3, &table), &table)
    };
    // Node on node with two ways to the one before it: 2^200 keys.
    let mut nodes = vec![1, 0, 0x10, 0x42];
    nodes.splice(0..4, [0, 0, b'b', b'a', 0x10, 0x02]);
    for _ in 0..200 {
        nodes.extend_from_slice(&[1, 1, b'b', b'a', 0x10, 0x02]);
    }
    assert_eq!(with_nodes(&nodes).0, "keys that the fst spells");
    assert_eq!(with_nodes(&nodes).3, u64::MAX);
    // The same without an end: no key, and 2^200 ways to find that out.
    nodes.splice(0..6, [0x00, 0x00, 0x00]);
    assert_eq!(with_nodes(&nodes).0, "transitions of a node of the fst");
    // A chain: one byte of the fst for each of the key.
    let chain = [&[0, 0x10, 0x81][..], &vec![0xc1; MAX_ORDERED_KEY_LEN]].concat();
    assert_eq!(with_nodes(&chain).0, "key length in the fst");
    let chain = [&[0, 0x10, 0x81][..], &vec![0xc1; MAX_ORDERED_KEY_LEN - 1]].concat();
    assert_eq!(with_nodes(&chain), ("keys that the fst spells", 16 + 16 + 65_538, 3, 1));
}

/// Good checksums, a sound fst, and yet not the table's keys.
#[test]
fn verify_compares_with_the_table() {
    let folder = Folder::new();
    let good = docs([("a", 1), ("b", 2), ("c", 3)]);
    let table = table(&folder, &good);
    for (wrong, key, expected, found) in [
        (docs([("a", 1), ("b", 2), ("d", 3)]), "d", None, 3),
        (docs([("a", 1), ("b", 7), ("c", 3)]), "b", Some(2), 7),
    ] {
        let terms = open(&seal(&fst_of(&wrong), 3, &table), &table).unwrap();
        match terms.verify(&table) {
            Err(Error::CompanionKey { path: None, key: k, expected: e, found: f }) => {
                assert_eq!((k.as_slice(), e, f), (key.as_bytes(), expected, found));
            }
            other => panic!("{other:?}"),
        }
    }
    // The fst's own checksum is looked at, too.
    let mut fst = fst_of(&good);
    *fst.last_mut().unwrap() ^= 1;
    let terms = open(&seal(&fst, 3, &table), &table).unwrap();
    let error = terms.verify(&table).unwrap_err();
    assert!(matches!(error, Error::Companion { what: "fst's own checksum", .. }), "{error:?}");
    // A table that was damaged later.
    let terms = companion(&table);
    let mut bytes = folder.read("t.pkh");
    let (at, len) = table.footer().sections(&table.table().partition(0).unwrap()).last().unwrap();
    bytes[at as usize..(at + len) as usize].fill(0xff);
    let damaged = TableFile::open(folder.write("t.pkh", bytes)).unwrap();
    terms.verify(&damaged).unwrap_err();
    let error = build_companion(&damaged, folder.path("c"), &options()).unwrap_err();
    let checksum = |source: &CoreError| matches!(source, CoreError::SectionChecksum { .. });
    assert!(matches!(&error, Error::Table { source, .. } if checksum(source)), "{error:?}");
}

/// The least memory makes several runs of these keys, and the same bytes.
#[test]
fn within_a_memory_budget() {
    let folder = Folder::new();
    let temporary = Folder::new();
    let mut rng = Rng(3);
    let docs: Docs = (0..40_000).map(|i| (rng.next().to_be_bytes()[..7].to_vec(), i)).collect();
    let table = table(&folder, &docs);
    companion(&table);
    let all_at_once = folder.read("t.pkh.fst");
    let called = Arc::new(AtomicU64::new(0));
    let seen = called.clone();
    let little = CompanionOptions::default()
        .memory(MIN_COMPANION_MEMORY)
        .threads(2)
        .temp_dir(temporary.root().to_owned())
        .progress(Progress::default().reported_to(move |done, all| {
            assert!(done <= all && all == 40_000);
            assert!(seen.swap(done, Ordering::Relaxed) <= done);
        }));
    let built = build_companion(&table, folder.path("c"), &little).unwrap();
    assert_eq!(built.spilled, 40_000 * (12 + 7));
    assert_eq!(called.load(Ordering::Relaxed), 40_000);
    assert!(folder.read("c") == all_at_once);
    assert_eq!(temporary.names(), [""; 0]);

    let files = folder.names();
    let less = little.clone().memory(MIN_COMPANION_MEMORY - 1);
    let error = build_companion(&table, folder.path("d"), &less).unwrap_err();
    let source = CoreError::BufferTooSmall {
        what: "memory budget",
        expected: 1 << 20,
        found: (1 << 20) - 1,
    };
    assert!(matches!(error, Error::Table { path: None, source: s } if s == source));
    let nowhere = little.temp_dir(folder.path("none"));
    let error = build_companion(&table, folder.path("d"), &nowhere).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    assert_eq!(folder.names(), files);
}

/// One companion, whichever way it goes; one that goes to a writer spills into the system's folder.
#[test]
fn the_same_bytes_go_anywhere() {
    let folder = Folder::new();
    let table = table(&folder, &docs((0..3000u32).map(|i| (format!("key-{i}"), i.into()))));
    let terms = [companion(&table)];
    let expected = folder.read("t.pkh.fst");
    let inputs = [MergeInput::new(&table)];
    let mut publication = Publication::begin(folder.path("p")).unwrap();
    build_companion(&table, &mut publication, &options()).unwrap();
    publication.commit().unwrap();
    assert_eq!(folder.read("p"), expected);
    let (mut built, mut merged) = (Vec::new(), Vec::new());
    build_companion(&table, &mut built, &options()).unwrap();
    merge_companions(&inputs, &terms, &table, &mut merged, &options()).unwrap();
    assert!(built == expected && merged == expected);
    // A writer that fails is named, and nothing is left of it.
    let files = folder.names();
    let mut short = [0; 1000];
    let error = build_companion(&table, &mut &mut short[..], &options()).unwrap_err();
    assert!(matches!(error, Error::Io { doing: "write", .. }), "{error}");
    assert!(error.to_string().contains("the output"), "{error}");
    assert_eq!(folder.names(), files);
    // Companions and inputs that are not as many.
    let error = merge_companions(&inputs, &[], &table, &mut merged, &options()).unwrap_err();
    assert!(matches!(error, Error::BatchLength { expected: 1, found: 0 }), "{error}");
}

#[test]
fn a_failed_build_leaves_what_was_there() {
    let folder = Folder::new();
    let table = table(&folder, &docs([("a", 1)]));
    companion(&table);
    let before = folder.read("t.pkh.fst");
    let files = folder.names();
    let flag = Arc::new(AtomicBool::new(true));
    let cancelled = options().progress(Progress::default().cancelled_by(flag));
    let path = companion_path(table.name());
    let error = build_companion(&table, &path, &cancelled).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    let terms = [OrderedTerms::open(&table).unwrap()];
    let inputs = [MergeInput::new(&table)];
    let error = merge_companions(&inputs, &terms, &table, &path, &cancelled).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    let error = build_companion(&table, folder.root(), &options()).unwrap_err();
    assert!(matches!(error, Error::NotAFile { .. }));
    let error = build_companion(&table, folder.path("none/c"), &options()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    assert_eq!(folder.names(), files);
    assert!(folder.read("t.pkh.fst") == before);
}

/// Merges tables and their companions, and compares with the companion that is built of the merged table.
fn check_merge(
    folder: &Folder,
    tables: &[TableFile],
    docs: &[DocMap],
    on_duplicate: OnDuplicate,
) -> u64 {
    let inputs: Vec<MergeInput<'_>> = tables
        .iter()
        .zip(docs)
        .map(|(table, docs)| MergeInput::new(table).docs(docs.clone()))
        .collect();
    let terms: Vec<OrderedTerms> = tables.iter().map(companion).collect();
    let path = folder.path("merged.pkh");
    let merge_options = MergeOptions::default().on_duplicate(on_duplicate).threads(1);
    merge(&inputs, &path, &merge_options).unwrap();
    let merged = TableFile::open(&path).unwrap();
    let built =
        merge_companions(&inputs, &terms, &merged, folder.path("union"), &options()).unwrap();
    companion(&merged).verify(&merged).unwrap();
    let (union, afresh) = (folder.read("union"), folder.read("merged.pkh.fst"));
    assert!(union == afresh);
    assert_eq!((built.keys, built.bytes), (merged.footer().keys(), union.len() as u64));
    built.keys
}

fn named(folder: &Folder, name: &str, docs: &Docs) -> TableFile {
    table_with(folder, name, TableOptions::default(), docs)
}

#[test]
fn a_merged_companion_is_that_of_the_merged_table() {
    let folder = Folder::new();
    let numbers = |prefix: &str, numbers: std::ops::Range<u64>, base: u64| -> Docs {
        numbers.map(|i| (format!("{prefix}{i}").into_bytes(), i - base)).collect()
    };
    let tables = [
        named(&folder, "0", &numbers("k", 0..300, 0)),
        named(&folder, "1", &numbers("k", 200..500, 200)),
        named(&folder, "2", &Docs::new()),
        named(&folder, "3", &numbers("l", 0..50, 0)),
    ];
    let keep = vec![DocMap::Keep; 4];
    let offsets = [0, 300, 600, 1 << 40].map(DocMap::Offset);
    // Of every input some docs are deleted: of the first all that are in the second, too, or others.
    let map = |n: u32, gone: &dyn Fn(u32) -> bool| {
        DocMap::Map((0..n).map(|i| if gone(i) { DELETED } else { 7 * i + 3 }).collect())
    };
    let none_twice = [
        map(300, &|i| i >= 200),
        map(300, &|i| i % 5 == 0),
        map(0, &|_| false),
        map(50, &|_| true),
    ];
    let some_twice =
        [map(300, &|i| i % 2 == 0), map(300, &|i| i % 3 == 0), map(0, &|_| false), DocMap::Keep];
    assert_eq!(check_merge(&folder, &tables, &none_twice, OnDuplicate::Error), 200 + 240);
    for policy in [OnDuplicate::First, OnDuplicate::Last] {
        assert_eq!(check_merge(&folder, &tables, &keep, policy), 550);
        assert_eq!(check_merge(&folder, &tables, &offsets, policy), 550);
        let keys = check_merge(&folder, &tables, &some_twice, policy);
        assert!((300..550).contains(&keys));
    }
    check_merge(&folder, &[], &[], OnDuplicate::Error);
    let again = [named(&folder, "0", &numbers("k", 0..300, 0))];
    check_merge(&folder, &again, &[DocMap::Keep], OnDuplicate::Error);
}

#[test]
fn merged_companions_of_versioned_tables() {
    let folder = Folder::new();
    let mut tables = Vec::new();
    for t in 0..3u32 {
        let model: Model = (0..100u32)
            .map(|i| {
                let key = format!("{:04}", i + 60 * t).into_bytes();
                (key, versioned(i, u64::from(t ^ 1) << 40))
            })
            .collect();
        let path = folder.path(&t.to_string());
        let options = WriterOptions::default().table(opaque(12));
        publish(&path, options, slices(&model)).unwrap();
        tables.push(TableFile::open(path).unwrap());
    }
    let map = (0..100).map(|i| if i % 4 == 1 { DELETED } else { 1000 - i }).collect();
    for (docs, keys) in [
        ([DocMap::Offset(0), DocMap::Offset(100), DocMap::Offset(200)], 220),
        // Of the 20 keys that no other table has, 5 are deleted.
        ([DocMap::Offset(5), DocMap::Map(map), DocMap::Keep], 215),
    ] {
        for policy in [OnDuplicate::First, OnDuplicate::Last] {
            assert_eq!(check_merge(&folder, &tables, &docs, policy), keys);
        }
    }
}

/// What was merged is not what the merged table was made of.
#[test]
fn companions_that_do_not_go_with_the_merge() {
    let folder = Folder::new();
    let a = named(&folder, "a", &docs([("a", 0), ("b", 1)]));
    let b = named(&folder, "b", &docs([("b", 2), ("c", 3)]));
    let keep = |table| MergeInput::new(table);
    let (inputs, path) = ([keep(&a), keep(&b)], folder.path("m"));
    let first = MergeOptions::default().on_duplicate(OnDuplicate::First);
    merge(&inputs, &path, &first).unwrap();
    let merged = TableFile::open(&path).unwrap();
    let files = folder.names();
    let out = folder.path("c");
    let union = |inputs: &[MergeInput<'_>], terms: [&TableFile; 2], merged: &TableFile| {
        let terms = terms.map(|table| {
            let bytes = fst_of(
                &table
                    .table()
                    .iter()
                    .map(|record| {
                        let (key, value) = record.unwrap();
                        (key.to_vec(), value.as_u64().unwrap())
                    })
                    .collect(),
            );
            open(&seal(&bytes, table.footer().keys(), table), table).unwrap()
        });
        merge_companions(inputs, &terms[..inputs.len()], merged, &out, &options())
    };
    // Companions in another order than the inputs.
    let error = union(&inputs, [&b, &a], &merged).unwrap_err();
    assert!(matches!(error, Error::Companion { .. }), "{error:?}");
    // An input less than were merged.
    let error = union(&inputs[..1], [&a, &b], &merged).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Companion {
                what: "number of keys for the companion",
                expected: 3,
                found: 2,
                path: Some(_),
                ..
            }
        ),
        "{error:?}"
    );
    // A key of both inputs that the merged table has with neither doc ID.
    let other = named(&folder, "m", &docs([("a", 0), ("b", 9), ("c", 3)]));
    let error = union(&inputs, [&a, &b], &other).unwrap_err();
    assert!(matches!(error, Error::CompanionKey { expected: Some(9), .. }), "{error:?}");
    // A doc map that is too short.
    let short = MergeInput::new(&a).docs(DocMap::Map(vec![1]));
    let error = union(&[short, keep(&b)], [&a, &b], &merged).unwrap_err();
    assert!(matches!(error, Error::DocMap { input: 0, found: 1, expected: 1 }), "{error:?}");
    assert_eq!(folder.names(), files);
    assert!(!Path::new(&out).exists());
}
