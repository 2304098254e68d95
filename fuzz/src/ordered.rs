//! Ordered companions against the model of the property tests (`pkhash-std/testing/src/companions.rs`),
//! and forged ones.

use arbitrary::Arbitrary;
use pkhash_core::KeyHasher;
use pkhash_core::builder::ValueChoice;
use pkhash_std::{
    Automaton, Error, KeyRegex, OpenOptions, OrderedOptions, OrderedTerms, TableFile,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{How, Key, Write};
use pkhash_testing::companions::{Docs, ask, check, fst_of, seal};
use pkhash_testing::sets::table_with;

/// The keys of a table, and what is done to its companion.
#[derive(Arbitrary, Debug)]
pub struct Companion {
    docs: Vec<(Key, u64)>,
    /// Short keys, of which an fst has nodes with many ways on.
    short: Vec<[u8; 2]>,
    how: How,
    asked: Vec<Key>,
    /// Parts of a pattern.
    pattern: Vec<Part>,
    forgery: Forgery,
}

#[derive(Arbitrary, Debug)]
enum Forgery {
    /// The companion itself.
    Sound,
    /// Its bytes are changed; whether its checksums are made right again.
    Damage { writes: Vec<Write>, cut: Option<u16>, repair: bool },
    /// Other nodes than its own: cut out, doubled, or any bytes; all else is made to fit.
    Nodes { from: u16, to: u16, bytes: Vec<u8> },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Part {
    Byte(u8),
    Any,
    Class,
    Star,
    Optional,
    Or,
    Open,
    Close,
    Repeat(u8),
    Start,
    End,
    Boundary,
}

fn pattern_of(parts: &[Part]) -> String {
    let part = |part: &Part| match part {
        Part::Byte(byte) => format!("(?-u:\\x{byte:02x})"),
        Part::Any => ".".into(),
        Part::Class => "[^a-c\u{e4}]".into(),
        Part::Star => "*".into(),
        Part::Optional => "?".into(),
        Part::Or => "|".into(),
        Part::Open => "(".into(),
        Part::Close => ")".into(),
        Part::Repeat(n) => format!("{{{}}}", n % 8),
        Part::Start => "^".into(),
        Part::End => "$".into(),
        Part::Boundary => "(?-u:\\b)".into(),
    };
    parts.iter().take(8).map(part).collect()
}

impl Companion {
    fn docs(&self) -> Docs {
        // The model compares all keys with all.
        let most = if matches!(self.forgery, Forgery::Sound) { 30 } else { 300 };
        let mut docs: Docs =
            self.docs.iter().take(most).map(|(key, doc)| (short(key), *doc)).collect();
        docs.extend((0..).zip(self.short.iter().take(most)).map(|(i, key)| (key.to_vec(), i)));
        docs
    }
}

/// A key of at most 200 bytes: what is listed takes as many steps as all keys have bytes.
fn short(key: &Key) -> Vec<u8> {
    let mut key = key.bytes();
    key.truncate(200);
    key
}

/// A companion says what the model says. A forged one is refused, or can be searched; then it ends, and
/// verifying tells whether it is the table's.
pub fn ordered(companion: &Companion) {
    let docs = companion.docs();
    // Any layout that takes all keys.
    let options = companion
        .how
        .options(KeyHasher::new(companion.how.seed))
        .value(ValueChoice::Auto)
        .filter_bits(None)
        .layout(crate::PERFECT)
        .partition_bits(companion.how.partition_bits.map(|bits| bits % 5));
    let pairs: Vec<_> =
        docs.iter().map(|(key, doc)| (key.clone(), doc.to_le_bytes().to_vec())).collect();
    let table = table_with(options, &pairs, OpenOptions::new());
    let fst = fst_of(&docs);
    let keys = docs.len() as u64;
    let sound = seal(&fst, keys, &table);
    let asked: Vec<Vec<u8>> = companion.asked.iter().take(30).map(short).collect();
    let mut bytes = sound.clone();
    match &companion.forgery {
        Forgery::Sound => {
            let terms = OrderedOptions::new().from_bytes(bytes, table.table()).expect("sound");
            check(&terms, &docs, &asked);
            terms.verify(&table).expect("sound");
            search(&terms, &companion.pattern);
        }
        Forgery::Damage { writes, cut, repair } => {
            for Write { at, value, width, .. } in writes.iter().take(8) {
                let at = *at as usize % bytes.len();
                let width = [1, 2, 4, 8][usize::from(*width) % 4].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            if let Some(cut) = cut {
                bytes.truncate(usize::from(*cut) % (bytes.len() + 1));
            }
            if *repair {
                reseal(&mut bytes);
            }
            let opened = search_forged(&bytes, &table, &docs, &asked, &companion.pattern);
            assert!(!opened || *repair || bytes == sound, "damage that nothing noticed");
        }
        Forgery::Nodes { from, to, bytes } => {
            let end = fst.len() - 20;
            let from = 16 + usize::from(*from) % (end - 16 + 1);
            let to = 16 + usize::from(*to) % (end - 16 + 1);
            // Backwards, what lies between comes twice.
            let mut forged = [&fst[..from], bytes.as_slice(), &fst[to..end]].concat();
            let root = if forged.len() > 16 { forged.len() as u64 - 1 } else { 0 };
            for field in [keys, root] {
                forged.extend_from_slice(&field.to_le_bytes());
            }
            forged.extend_from_slice(&[0; 4]);
            let forged = seal(&forged, keys, &table);
            search_forged(&forged, &table, &docs, &asked, &companion.pattern);
        }
    }
}

/// A pattern finds what a look at each key finds.
fn search(terms: &OrderedTerms, pattern: &[Part]) {
    assert!(terms.levenshtein("a1", 1).expect("a small automaton").count() as u64 <= terms.len());
    let Ok(pattern) = KeyRegex::new(&pattern_of(pattern)) else { return };
    let matches = |key: &[u8]| {
        let state = key.iter().fold(pattern.start(), |state, byte| pattern.accept(&state, *byte));
        pattern.is_match(&state)
    };
    let expected = terms.iter().filter(|(key, _)| matches(key));
    assert!(terms.automaton(&pattern).eq(expected));
    let others = terms.iter().filter(|(key, _)| !matches(key));
    assert!(terms.automaton((&pattern).complement()).eq(others));
}

/// Makes the checksums right, if there is room for them.
fn reseal(bytes: &mut [u8]) -> Option<()> {
    let tail = bytes.len().checked_sub(64).filter(|tail| *tail >= 16)?;
    let sum = xxh3_64(&bytes[16..tail]);
    bytes[tail + 32..tail + 40].copy_from_slice(&sum.to_le_bytes());
    let sum = xxh3_64(&[&bytes[..16], &bytes[tail..tail + 48]].concat());
    bytes[tail + 48..tail + 56].copy_from_slice(&sum.to_le_bytes());
    Some(())
}

/// Whether it was opened.
fn search_forged(
    bytes: &[u8],
    table: &TableFile,
    docs: &Docs,
    asked: &[Vec<u8>],
    pattern: &[Part],
) -> bool {
    let terms = match OrderedOptions::new().from_bytes(bytes, table.table()) {
        Ok(terms) => terms,
        Err(Error::Companion { .. }) => return false,
        Err(error) => panic!("{error}"),
    };
    let asked: Vec<&[u8]> = asked.iter().chain(docs.keys().step_by(7)).map(Vec::as_slice).collect();
    ask(&terms, &asked);
    search(&terms, pattern);
    let same = terms.iter().eq(docs.iter().map(|(key, doc)| (key.clone(), *doc)));
    assert!(same || terms.verify(table).is_err(), "another table's companion that verifies");
    true
}
