//! Companions that are damaged, forged, or of another table.

use super::*;

fn fault(bytes: &[u8], table: &TableFile) -> (&'static str, u64, u64, u64) {
    match open(bytes, table) {
        Err(Error::Companion { path: None, what, of_another, offset, expected, found }) => {
            let names_a_table = ["keys of the table", "table's footer checksum", "table length"];
            assert_eq!(of_another, names_a_table.contains(&what), "{what}");
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
