//! The limits of FORMAT.md §8, each with what the builder and the reader say at it and one past it: the builder
//! writes nothing that the reader refuses, and the reader accepts nothing that it cannot search.

use pkhash_core_testing as common;

use common::footers::{assert_accepted, inline, perfect, refused, spans, term_order};
use common::raw::{RawFooter, RawPartition};
use common::{Pair, exercise, lookup, try_build};
use pkhash_core::builder::{Entry, KeyStats, TableOptions};
use pkhash_core::format::{
    MAX_EXCEPTIONS, MAX_FIXED_KEY_LEN, MAX_INLINE_KEY_LEN, MAX_KEY_LEN, MAX_PARTITION_KEYS,
    MAX_RECORD_BYTES, MAX_SLOTS,
};
use pkhash_core::hash::control;
use pkhash_core::{
    Error, Footer, GROUP_MAX, KeyHasher, Layout, Lookup, MAX_FILTER_BITS, MAX_VALUE_WIDTH, Result,
    Scalar, Stage, Table, Value, ValueFormat,
};

/// The longest key of a perfect table of several key lengths, with the value before it: 28 records of 2,340
/// units of 16 bytes, with at least one byte of padding each.
const MAX_SPAN: u64 = 2340 * 16 - 1;

/// Field, what was expected in it, and what was found.
type Refusal = (&'static str, u64, u64);

/// A limit: a number that is taken, and the next one, which is not.
struct Limit {
    /// The row of FORMAT.md §8.
    what: &'static str,
    at: u64,
    past: u64,
    /// A footer of this size, and what the reader says of the one past the limit.
    reader: (fn(u64) -> RawFooter, Refusal),
    /// What the builder does, and what it expected and found past the limit.
    builder: Builder,
}

enum Builder {
    /// Builds a table, or plans one, or measures a partition.
    Does(fn(u64) -> Result<()>, (u64, u64)),
    /// A test cannot come there: it would need so many GB of entries.
    OutOfReach(u64),
}
use Builder::{Does, OutOfReach};

const KEYS: u64 = MAX_PARTITION_KEYS as u64;
const SLOTS: u64 = MAX_SLOTS as u64;

/// Every limit, in the order of the specification.
const LIMITS: &[Limit] = &[
    Limit {
        what: "partitions",
        at: 1 << 10,
        past: 1 << 11,
        reader: (|n| inline(16, 4, few_keys(n, 20)), ("partition bits", 10, 11)),
        builder: Does(|n| builds_partitions(Layout::Inline, n), (10, 11)),
    },
    Limit {
        what: "partitions",
        at: 1 << 10,
        past: 1 << 11,
        reader: (|n| term_order(few_keys(n, 0)), ("partition bits", 10, 11)),
        builder: Does(|n| builds_partitions(Layout::TermOrder, n), (10, 11)),
    },
    Limit {
        what: "partitions",
        at: 1 << 16,
        past: 1 << 17,
        reader: (|n| perfect(16, 4, 0, one_key(n)), ("partition bits", 16, 17)),
        builder: Does(|n| builds_partitions(Layout::Perfect, n), (16, 17)),
    },
    Limit {
        what: "keys of a partition",
        at: KEYS,
        past: KEYS + 1,
        reader: (
            |keys| term_order(vec![RawPartition::new(keys, 10, 0)]),
            ("partition keys", KEYS, KEYS + 1),
        ),
        builder: OutOfReach(KEYS * size_of::<Entry<'_>>() as u64),
    },
    Limit {
        what: "keys of a partition",
        at: KEYS,
        past: KEYS + 1,
        reader: (
            |keys| perfect(16, 4, 0, vec![full(keys, SLOTS, 20)]),
            ("partition keys", KEYS, KEYS + 1),
        ),
        builder: OutOfReach(KEYS * size_of::<Entry<'_>>() as u64),
    },
    Limit {
        what: "slots of a partition",
        at: SLOTS,
        past: SLOTS + 1,
        reader: (
            |slots| inline(31, 64, vec![RawPartition { slots, ..probed(slots * 95) }]),
            ("partition slots", SLOTS, SLOTS + 1),
        ),
        builder: OutOfReach(KEYS * size_of::<Entry<'_>>() as u64),
    },
    Limit {
        what: "slots of a partition",
        at: SLOTS,
        past: SLOTS + 1,
        reader: (
            |slots| perfect(16, 4, 0, vec![full(KEYS, slots, 20)]),
            ("partition slots", SLOTS, SLOTS + 1),
        ),
        builder: OutOfReach(KEYS * size_of::<Entry<'_>>() as u64),
    },
    Limit {
        what: "length of a key, inline",
        at: MAX_INLINE_KEY_LEN as u64,
        past: MAX_INLINE_KEY_LEN as u64 + 1,
        reader: (|len| inline(len, 4, few_keys(1, 4 + len)), ("longest key", 31, 32)),
        builder: Does(|len| builds_keys(Layout::Inline, &[len, len]), (31, 32)),
    },
    Limit {
        what: "length of a key, term-order",
        at: MAX_KEY_LEN as u64,
        past: MAX_KEY_LEN as u64 + 1,
        reader: (
            |len| RawFooter { max_key_len: len, ..term_order(few_keys(1, 0)) },
            ("longest key", (1 << 31) - 1, 1 << 31),
        ),
        builder: Does(|len| measures(len, 1).map(|_| ()), ((1 << 31) - 1, 1 << 31)),
    },
    Limit {
        what: "length of a key, perfect, one length",
        at: MAX_FIXED_KEY_LEN as u64,
        past: MAX_FIXED_KEY_LEN as u64 + 1,
        reader: (
            |len| perfect(len, 4, 0, vec![full(3, 4, 4 + len)]),
            ("longest key", 65_536, 65_537),
        ),
        builder: Does(|len| builds_keys(Layout::Perfect, &[len, len]), (65_536, 65_537)),
    },
    Limit {
        what: "length of a key, perfect, several lengths",
        at: MAX_SPAN - 4,
        past: MAX_SPAN - 3,
        reader: (
            |len| RawFooter { max_key_len: len, ..spans(16, vec![full(3, 4, 0)]) },
            // No unit is enough.
            ("offset unit", 0, 16),
        ),
        builder: Does(
            |len| builds_keys(Layout::Perfect, &[1, 7, len]),
            (MAX_SPAN - 4, MAX_SPAN - 3),
        ),
    },
    Limit {
        what: "keys of one hash beyond the first, in a perfect partition",
        at: MAX_EXCEPTIONS as u64,
        past: MAX_EXCEPTIONS as u64 + 1,
        reader: (
            |n| {
                let partition = RawPartition { homes: 1, ..RawPartition::perfect(70, 0, n) };
                let bytes = (partition.slots + n) * 20;
                perfect(16, 4, 0, vec![RawPartition { record_bytes: bytes, ..partition }])
            },
            ("exceptions", 64, 65),
        ),
        builder: Does(builds_exceptions, (64, 65)),
    },
    Limit {
        what: "record bytes of a perfect partition with offset lines",
        at: MAX_RECORD_BYTES,
        past: MAX_RECORD_BYTES + 1,
        reader: (
            |n| spans(1, vec![RawPartition { record_bytes: n, ..RawPartition::perfect(9, 0, 0) }]),
            ("record bytes", MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1),
        ),
        // Keys of 2,336 bytes.
        builder: OutOfReach(MAX_RECORD_BYTES / 2340 * size_of::<Entry<'_>>() as u64),
    },
    Limit {
        what: "record bytes of a perfect partition with offset lines",
        at: 16 * MAX_RECORD_BYTES,
        past: 16 * MAX_RECORD_BYTES + 1,
        reader: (
            |n| spans(16, vec![RawPartition { record_bytes: n, ..RawPartition::perfect(9, 0, 0) }]),
            ("record bytes", 16 * MAX_RECORD_BYTES, 16 * MAX_RECORD_BYTES + 1),
        ),
        builder: OutOfReach(16 * MAX_RECORD_BYTES / MAX_SPAN * size_of::<Entry<'_>>() as u64),
    },
    Limit {
        what: "value width",
        at: 8,
        past: 9,
        reader: (
            |width| RawFooter { value_width: width as u8, ..term_order(few_keys(1, 0)) },
            ("value width", 8, 9),
        ),
        builder: Does(|width| builds_values(ValueFormat::integer(width as u8)?), (8, 9)),
    },
    Limit {
        what: "value width",
        at: MAX_VALUE_WIDTH as u64,
        past: MAX_VALUE_WIDTH as u64 + 1,
        reader: (|width| inline(31, width as u8, few_keys(1, 31 + width)), ("value width", 64, 65)),
        builder: Does(|width| builds_values(ValueFormat::opaque(width as u8)?), (64, 65)),
    },
    Limit {
        what: "record bytes of a term-order partition",
        at: MAX_RECORD_BYTES,
        past: MAX_RECORD_BYTES + 1,
        reader: (
            |n| term_order(vec![RawPartition { record_bytes: n, ..few_keys(1, 0)[0] }]),
            ("record bytes", MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1),
        ),
        builder: Does(measures_record_bytes, (MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1)),
    },
    Limit {
        what: "filter bits for a key",
        at: MAX_FILTER_BITS as u64,
        past: MAX_FILTER_BITS as u64 + 1,
        reader: (
            |bits| RawFooter {
                filter_bits: bits as u8,
                ..term_order(vec![RawPartition::new(3, bits, 0)])
            },
            ("filter bits", 64, 65),
        ),
        builder: Does(builds_filter_bits, (64, 65)),
    },
    Limit {
        what: "filter words of a partition",
        at: KEYS,
        past: KEYS + 1,
        reader: (
            |filter_words| RawFooter {
                filter_bits: MAX_FILTER_BITS,
                ..term_order(vec![RawPartition { filter_words, ..RawPartition::new(KEYS, 64, 0) }])
            },
            ("filter words", KEYS, KEYS + 1),
        ),
        builder: OutOfReach(KEYS * size_of::<Entry<'_>>() as u64),
    },
];

/// `n` partitions of 3 keys in 4 slots. `record`: bytes of a record of one length.
fn few_keys(n: u64, record: u64) -> Vec<RawPartition> {
    let partition = RawPartition { record_bytes: 4 * record, ..RawPartition::new(3, 0, 0) };
    let filter_words = u64::from(record == 0);
    vec![RawPartition { filter_words, ..partition }; n as usize]
}

/// `n` perfect partitions of one key, value and key 20 bytes.
fn one_key(n: u64) -> Vec<RawPartition> {
    vec![full(1, 1, 20); n as usize]
}

/// A perfect partition; `record`: bytes of a record of one length.
fn full(keys: u64, slots: u64, record: u64) -> RawPartition {
    RawPartition { slots, record_bytes: slots * record, ..RawPartition::perfect(keys, 0, 0) }
}

/// An inline partition with as many keys as there may be.
fn probed(record_bytes: u64) -> RawPartition {
    RawPartition { record_bytes, ..RawPartition::new(KEYS, 0, 0) }
}

fn doc_ids(layout: Layout) -> TableOptions {
    TableOptions::default().layout(layout).value(ValueFormat::integer(4).expect("a width"))
}

/// Builds a table, which the reader takes, and which has all its keys.
fn builds(options: &TableOptions, pairs: &[Pair]) -> Result<()> {
    let bytes = try_build(options, pairs)?;
    let table = Table::open(&bytes).expect("the reader takes what the builder writes");
    assert_eq!(table.verify(), Ok(()));
    for (key, value) in pairs {
        let found = table.get(Scalar, key).expect("a sound table");
        assert_eq!(found.map(Value::as_bytes), Some(&value[..]));
        let (staged, _) = lookup(&bytes, table.footer(), key).expect("a sound table");
        assert_eq!(staged.as_ref(), Some(value));
    }
    let keys: Vec<&[u8]> = pairs.iter().map(|pair| pair.0.as_slice()).collect();
    exercise(&table, &keys);
    Ok(())
}

fn builds_partitions(layout: Layout, n: u64) -> Result<()> {
    let bits = n.trailing_zeros() as u8;
    let options = doc_ids(layout).partition_bits(bits);
    builds(&options, &[(b"the only key".to_vec(), vec![1, 2, 3, 4])])
}

/// One key of each of these lengths.
fn builds_keys(layout: Layout, lens: &[u64]) -> Result<()> {
    let key = |(i, len): (usize, &u64)| (vec![i as u8; *len as usize], vec![i as u8; 4]);
    let pairs: Vec<Pair> = lens.iter().enumerate().map(key).collect();
    builds(&doc_ids(layout), &pairs)
}

/// One key and so many others that have its hash.
fn builds_exceptions(n: u64) -> Result<()> {
    for len in [8, 9] {
        let options = doc_ids(Layout::Perfect).hasher(KeyHasher::truncated(0, 0));
        let mut pairs: Vec<Pair> =
            (0..=n).map(|i| (i.to_be_bytes().to_vec(), vec![i as u8; 4])).collect();
        pairs[0].0.resize(len, 7);
        builds(&options, &pairs)?;
    }
    Ok(())
}

fn builds_values(value: ValueFormat) -> Result<()> {
    for layout in Layout::all() {
        let options = doc_ids(layout).value(value);
        let pairs: Vec<Pair> =
            (0..20).map(|i| (vec![i; 31], vec![i; value.width().into()])).collect();
        builds(&options, &pairs)?;
    }
    Ok(())
}

fn builds_filter_bits(bits: u64) -> Result<()> {
    for layout in Layout::all() {
        let options = doc_ids(layout).filter_bits(bits as u8);
        let pairs: Vec<Pair> = (0..20).map(|i| (vec![i; 8], vec![i; 4])).collect();
        builds(&options, &pairs)?;
    }
    Ok(())
}

/// Plans a term-order table of `n` keys of `len` bytes and measures its only partition: what the builder does
/// before it writes. It reads no key unless two hashes are equal, so keys of zeros that no one touches take no
/// memory; and different hashes are given, so that they are different keys.
fn measures(len: u64, n: u64) -> Result<usize> {
    let lens = vec![len; n as usize];
    measures_all(&lens)
}

fn measures_all(lens: &[u64]) -> Result<usize> {
    let longest = lens.iter().copied().max().unwrap_or(0);
    let mut stats = KeyStats::default();
    for len in lens {
        let mut one = KeyStats::default();
        (one.keys, one.key_bytes) = (1, *len);
        (one.min_key_len, one.max_key_len) = (*len, *len);
        stats.merge(&one);
    }
    let options = doc_ids(Layout::TermOrder).partition_bits(0);
    let zeros = vec![0; longest as usize];
    let entries: Vec<Entry<'_>> = lens
        .iter()
        .enumerate()
        .map(|(i, len)| Entry {
            hash: (i as u64) << 40,
            key: &zeros[..*len as usize],
            value: &[0; 4],
        })
        .collect();
    // Past the limit the plan is one error, and so is the partition of another plan.
    let plan = match options.plan(&stats) {
        Ok(plan) => plan,
        Err(error) => {
            let plan = options.plan(&KeyStats::default()).expect("a plan");
            assert_eq!(plan.partition_len(0, &entries), Err(error));
            return Err(error);
        }
    };
    plan.partition_len(0, &entries)
}

/// Keys of which the records take so many bytes.
fn measures_record_bytes(bytes: u64) -> Result<()> {
    // Value, varint and key.
    let longest = 4 + 5 + u64::from(MAX_KEY_LEN);
    let mut lens = vec![u64::from(MAX_KEY_LEN); (bytes / longest) as usize];
    lens.push(bytes % longest - 9);
    assert!(lens[lens.len() - 1] >= 1 << 28, "a varint of 5 bytes");
    let len = measures_all(&lens)? as u64;
    assert!((bytes..bytes + 100_000).contains(&len), "{len}");
    Ok(())
}

/// What an error expected and found.
fn numbers(error: &Error) -> (u64, u64) {
    match *error {
        Error::BadOption { expected, found, .. }
        | Error::KeyLength { expected, found }
        | Error::TooLarge { expected, found, .. }
        | Error::EqualHashes { expected, found } => (expected, found),
        ref other => panic!("{other}"),
    }
}

/// Searches a table whose body nobody holds: whatever is read, all reads lie in the body. The device answers with
/// what keeps a lookup going longest.
fn search(footer: &Footer, end: &[u8]) {
    let body = footer.file_len() - footer.footer_len() as u64;
    let shortest = if footer.layout() == Layout::TermOrder { 0 } else { footer.min_key_len() };
    // Reading the longest records would take their memory.
    let len = if footer.unit() > 0 || footer.layout() == Layout::TermOrder { 20 } else { shortest };
    for i in 0..16u64 {
        let mut key = vec![0; len as usize];
        let n = key.len().min(8);
        key[..n].copy_from_slice(&(i + 1).to_le_bytes()[..n]);
        let mut staged = Lookup::new(footer, end, &key).expect("a footer of its own");
        let (mut steps, mut past) = (0, false);
        while let Some(want) = staged.want() {
            let ends = want.offset.checked_add(want.len as u64).expect("an offset of the file");
            assert!(want.offset >= 64 && ends <= body, "{want:?} of {body}");
            let bytes = match want.stage {
                Stage::Filter => vec![0xff; 8],
                Stage::Control => vec![control(footer.hasher().hash(&key)); GROUP_MAX],
                Stage::Pilot => vec![i as u8 * 17],
                // Anything: pointers past the body are refused.
                _ => vec![0xff; want.len],
            };
            steps += 1;
            assert!(steps <= 1 + 2 * 100 + 65 * 2, "a lookup without end");
            if let Err(error) = staged.supply(&bytes) {
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                past = true;
                break;
            }
        }
        assert!(past || staged.want().is_none());
    }
}

#[test]
fn the_reader_takes_what_is_at_a_limit_and_refuses_what_is_past_it() {
    for limit in LIMITS {
        let (footer_of, expected) = limit.reader;
        let raw = footer_of(limit.at);
        let (end, len) = (raw.encode(), raw.file_len());
        let footer = Footer::parse(&end, len).unwrap_or_else(|e| panic!("{}: {e}", limit.what));
        assert_eq!(footer.file_len(), len);
        search(&footer, &end);
        assert_eq!(refused(&footer_of(limit.past)), expected, "{}", limit.what);
    }
}

#[test]
fn the_builder_keeps_to_every_limit() {
    for limit in LIMITS {
        match limit.builder {
            Does(build, expected) => {
                // A machine of 32 bits has no slices of 2^31 bytes, nor room for one less.
                if cfg!(target_pointer_width = "32") && limit.past > i32::MAX as u64 {
                    continue;
                }
                assert_eq!(build(limit.at), Ok(()), "{}", limit.what);
                let error = build(limit.past).expect_err(limit.what);
                assert_eq!(numbers(&error), expected, "{}: {error}", limit.what);
            }
            OutOfReach(bytes) => assert!(bytes > 8 << 30, "{}: in reach", limit.what),
        }
    }
}

/// A number as the specification writes it.
fn written(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The rows of §8, written from the crate's constants.
fn rows() -> Vec<(&'static str, String)> {
    let partitions = |layout: Layout| written(1 << layout.max_partition_bits());
    let least = |layout| {
        let empty = try_build(&doc_ids(layout).filter_bits(0), &[]);
        empty.expect("a table of no keys").len()
    };
    let (probed, perfect) = (Layout::Inline, Layout::Perfect);
    assert_eq!(probed.max_partition_bits(), Layout::TermOrder.max_partition_bits());
    assert_eq!(least(Layout::Inline), least(Layout::TermOrder));
    let widest = u64::from(MAX_INLINE_KEY_LEN) + u64::from(MAX_VALUE_WIDTH);
    vec![
        (
            "partitions",
            format!("{} (2^10); perfect: {} (2^16)", partitions(probed), partitions(perfect)),
        ),
        ("keys of a partition", format!("{} (3/4 of 2^31)", written(KEYS))),
        ("slots of a partition", format!("{} (2^31)", written(SLOTS))),
        ("keys of a table", "those of a partition × partitions".to_owned()),
        ("length of a key, inline", written(MAX_INLINE_KEY_LEN.into())),
        ("length of a key, term-order", format!("{} (2^31-1)", written(MAX_KEY_LEN.into()))),
        ("length of a key, perfect, one length", written(MAX_FIXED_KEY_LEN.into())),
        (
            "length of a key, perfect, several lengths",
            format!("{} - value width", written(MAX_SPAN)),
        ),
        (
            "keys of one hash beyond the first, in a perfect partition",
            written(MAX_EXCEPTIONS.into()),
        ),
        ("record bytes of a perfect partition with offset lines", "u × (2^40-2)".to_owned()),
        ("value width", format!("8 (integer), {MAX_VALUE_WIDTH} (opaque)")),
        ("length of an inline record", written(widest)),
        (
            "record bytes of a term-order partition",
            format!("{} (2^40-2)", written(MAX_RECORD_BYTES)),
        ),
        ("filter bits for a key", MAX_FILTER_BITS.to_string()),
        (
            "filter words of a partition",
            format!("{} ({MAX_FILTER_BITS} bits for each key)", written(KEYS)),
        ),
        ("length of a partition", "less than 2^48".to_owned()),
        (
            "length of a table",
            format!(
                "at least {} (no keys, one partition; perfect: {}); less than 2^64",
                least(probed),
                least(perfect)
            ),
        ),
        // A test of pkhash-std holds this against its constant.
        (
            "segments of a set",
            "65,536 (of this implementation: the format knows no sets)".to_owned(),
        ),
    ]
}

#[test]
fn the_specification_states_these_limits() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../FORMAT.md");
    let text = std::fs::read_to_string(path).expect("FORMAT.md");
    let from = text.find("## 8. Limits").expect("§8");
    let section = &text[from..from + text[from..].find("\n## 9").expect("§9")];
    let stated: Vec<(&str, &str)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .skip(2)
        .collect();
    let rows = rows();
    let expected: Vec<(&str, &str)> =
        rows.iter().map(|(what, limit)| (*what, limit.as_str())).collect();
    assert_eq!(stated, expected);
    // Every row but those that follow from others is tested above, at it and past it.
    let derived = [
        "keys of a table",
        "length of an inline record",
        "length of a partition",
        "length of a table",
        "segments of a set",
    ];
    for (what, _) in stated {
        let tested = LIMITS.iter().any(|limit| limit.what == what);
        assert_ne!(tested, derived.contains(&what), "{what}");
    }
    assert_eq!(MAX_RECORD_BYTES, (1 << 40) - 2);
}

#[test]
fn the_largest_tables_there_can_be() {
    // As many partitions as there may be, all of them full, of each layout.
    let probed = RawPartition {
        record_bytes: MAX_RECORD_BYTES,
        probe_limit: 100,
        ..RawPartition::new(KEYS, 64, 0)
    };
    let longest = SLOTS + u64::from(MAX_EXCEPTIONS);
    let perfect_of = |record_bytes| RawPartition {
        slots: SLOTS,
        homes: KEYS,
        exceptions: MAX_EXCEPTIONS.into(),
        seed: 0xffff,
        record_bytes,
        ..RawPartition::perfect(KEYS, 64, 0)
    };
    let tables = [
        RawFooter { max_key_len: MAX_KEY_LEN.into(), ..term_order(vec![probed; 1 << 10]) },
        inline(31, 64, vec![RawPartition { record_bytes: SLOTS * 95, ..probed }; 1 << 10]),
        perfect(65_536, 64, 0, vec![perfect_of(longest * 65_600); 1 << 16]),
        spans(1, vec![perfect_of(MAX_RECORD_BYTES); 1 << 16]),
        spans(16, vec![perfect_of(16 * MAX_RECORD_BYTES); 1 << 16]),
    ];
    let mut most = 0;
    for raw in tables {
        let raw = RawFooter { filter_bits: 64, ..raw };
        let partition: u64 = raw.section_lens(&raw.partitions[0]).iter().sum();
        assert!(partition < 1 << 48, "length of a partition: {partition}");
        let n = raw.partitions.len() as u64;
        let (end, len) = (raw.encode(), raw.file_len());
        assert_eq!(
            u128::from(len),
            u128::from(partition) * u128::from(n) + 64 + 96 * u128::from(n) + 128
        );
        let footer = Footer::parse(&end, len).expect("sizes that fit");
        assert_eq!((footer.keys(), footer.slots()), (KEYS * n, SLOTS * n));
        search(&footer, &end);
        most = most.max(len);
        // One byte more or less is not this table.
        assert!(Footer::parse(&end, len - 1).is_err() && Footer::parse(&end, len + 1).is_err());
    }
    assert!(most > 1 << 63, "the longest of all: {most}");
}

#[test]
fn record_bytes_far_past_their_limit() {
    for record_bytes in [MAX_RECORD_BYTES + 2, u64::MAX / 2] {
        let partition = RawPartition { record_bytes, ..RawPartition::new(1000, 10, 3) };
        let found = refused(&term_order(vec![partition]));
        assert_eq!(found, ("record bytes", MAX_RECORD_BYTES, record_bytes));
    }
    for unit in [1u8, 2, 4, 8, 16] {
        let most = u64::from(unit) * MAX_RECORD_BYTES;
        for record_bytes in [most + 1, 2 * most, u64::MAX / 2] {
            let partition = RawPartition { record_bytes, ..RawPartition::perfect(1000, 0, 0) };
            let found = refused(&spans(unit, vec![partition]));
            assert_eq!(found, ("record bytes", most, record_bytes));
        }
    }
    // No greater unit.
    for unit in [3, 17, 32, 128] {
        let raw = RawFooter { max_key_len: 100, ..spans(unit, vec![full(3, 4, 0)]) };
        assert_eq!(refused(&raw), ("offset unit", 0, unit.into()));
    }
}

#[test]
fn the_shortest_table() {
    for layout in Layout::all() {
        let options = doc_ids(layout).filter_bits(0);
        let bytes = try_build(&options, &[]).expect("a table of no keys");
        let table = Table::open(&bytes).expect("a table of no keys");
        assert_eq!((table.len(), table.verify()), (0, Ok(())));
        // Nothing in it can be left out.
        for at in 0..bytes.len() {
            let mut shorter = bytes.clone();
            shorter.remove(at);
            assert!(Table::open(&shorter).is_err(), "{layout} without byte {at}");
        }
        // Nor can 64 bytes, with a footer that agrees.
        if layout != Layout::Perfect {
            let mut raw =
                RawFooter { max_key_len: 0, filter_bits: 0, ..term_order(few_keys(1, 1)) };
            raw.partitions[0] = RawPartition::default();
            let end = raw.encode();
            let len = raw.file_len();
            assert_eq!(len as usize, bytes.len());
            assert!(Footer::parse(&end, len).is_ok() && Footer::parse(&end, len - 64).is_err());
        }
    }
}

#[test]
fn sizes_of_perfect_partitions_that_follow_from_their_keys() {
    let (keys, slots) = (u64::from(MAX_PARTITION_KEYS), u64::from(MAX_SLOTS));
    let with = |slots| RawPartition {
        slots,
        record_bytes: slots * 20,
        ..RawPartition::perfect(keys, 0, 0)
    };
    let of = |partition| perfect(16, 4, 0, vec![partition]);
    for slots in [keys, slots - 1, slots] {
        assert_accepted(&of(with(slots)));
    }
    assert_eq!(refused(&of(with(keys - 1))), ("partition slots", keys, keys - 1));
    let full = with(slots);
    let change = |change: fn(&mut RawPartition)| {
        let mut partition = full;
        change(&mut partition);
        refused(&of(partition))
    };
    assert_eq!(change(|p| p.homes = p.keys + 1), ("partition buckets", keys, keys + 1));
    assert_eq!(change(|p| p.homes = 0), ("partition buckets", 1, 0));
    assert_eq!(change(|p| p.record_bytes += 1).0, "record bytes");
    // Few keys: fewer slots may be empty, and not all keys can be exceptions.
    for keys in [1u64, 2, 3, 64, 65, 66] {
        let of = |slots: u64, exceptions: u64| {
            let partition = RawPartition {
                slots,
                record_bytes: (slots + exceptions) * 20,
                exceptions,
                homes: 1,
                ..RawPartition::perfect(keys, 0, 0)
            };
            perfect(16, 4, 0, vec![partition])
        };
        let most = (keys - 1).min(64);
        assert_accepted(&of(2 * keys, most));
        assert_accepted(&of(keys - most, most));
        assert_eq!(refused(&of(2 * keys + 1, 0)), ("partition slots", 2 * keys, 2 * keys + 1));
        let least = keys - most;
        assert_eq!(refused(&of(least - 1, most)), ("partition slots", least, least - 1));
        assert_eq!(refused(&of(keys, most + 1)), ("exceptions", most, most + 1));
        // Any seed.
        let mut raw = of(keys, 0);
        raw.partitions[0].seed = 0xffff;
        assert_accepted(&raw);
    }
}

#[test]
fn sizes_of_probed_partitions_that_follow_from_their_keys() {
    let keys = u64::from(MAX_PARTITION_KEYS);
    for filter_bits in [0, 1, 10, 40, 64] {
        let full = RawPartition {
            record_bytes: MAX_RECORD_BYTES,
            probe_limit: keys,
            ..RawPartition::new(keys, filter_bits, 0)
        };
        assert_eq!(full.slots, u64::from(MAX_SLOTS));
        let raw = RawFooter { filter_bits: filter_bits as u8, ..term_order(vec![full; 1]) };
        assert_accepted(&raw);
    }
    let full = RawPartition::new(keys, 10, 0);
    let with = |change: fn(&mut RawPartition)| {
        let mut partition = full;
        change(&mut partition);
        refused(&term_order(vec![partition]))
    };
    let slots = u64::from(MAX_SLOTS);
    assert_eq!(with(|p| p.homes -= 1), ("partition homes", slots, slots - 1));
    assert_eq!(with(|p| p.slots -= 1), ("partition slots", slots, slots - 1));
    assert_eq!(with(|p| p.probe_limit = p.keys + 1), ("probe limit", keys, keys + 1));
    let words = full.filter_words;
    assert_eq!(with(|p| p.filter_words += 1), ("filter words", words, words + 1));
    let inline_full = RawPartition { record_bytes: slots * 95, ..RawPartition::new(keys, 0, 0) };
    assert_accepted(&inline(31, 64, vec![inline_full; 4]));
    let wrong = RawPartition { record_bytes: slots * 95 + 1, ..inline_full };
    assert_eq!(refused(&inline(31, 64, vec![wrong])), ("record bytes", slots * 95, slots * 95 + 1));
}
