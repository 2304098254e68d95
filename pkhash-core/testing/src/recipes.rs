//! The valid golden files: one recipe each. A recipe is never changed once its file is published;
//! new ones are added.

use std::path::PathBuf;

use pkhash_core::builder::{PerfectShape, TableOptions, ValueChoice};
use pkhash_core::{KeyHasher, Layout, ValueFormat};

use super::{Pair, Rng, build, craft};

/// How a golden file is made.
pub struct Recipe {
    /// The file's name without its extension.
    pub name: &'static str,
    layout: Layout,
    /// `None`: as narrow as the values allow.
    value: Option<ValueFormat>,
    filter_bits: u8,
    partition_bits: u8,
    seed: u64,
    packed: bool,
    keys_per_1000_slots: u16,
    pairs: fn() -> Vec<Pair>,
}

const fn integer(width: u8) -> Option<ValueFormat> {
    match ValueFormat::integer(width) {
        Ok(value) => Some(value),
        Err(_) => panic!("a width that integers have"),
    }
}

const fn opaque(width: u8) -> Option<ValueFormat> {
    match ValueFormat::opaque(width) {
        Ok(value) => Some(value),
        Err(_) => panic!("a width that values have"),
    }
}

const fn recipe(name: &'static str, layout: Layout, pairs: fn() -> Vec<Pair>) -> Recipe {
    Recipe {
        name,
        layout,
        value: None,
        filter_bits: 10,
        partition_bits: 0,
        seed: 0,
        packed: false,
        keys_per_1000_slots: 990,
        pairs,
    }
}

const fn perfect(name: &'static str, pairs: fn() -> Vec<Pair>) -> Recipe {
    Recipe { filter_bits: 0, ..recipe(name, Layout::Perfect, pairs) }
}

use Layout::{Inline, TermOrder};

/// Every valid golden file.
pub const RECIPES: &[Recipe] = &[
    // The worked example of FORMAT.md §10.
    Recipe { value: integer(4), ..recipe("example", TermOrder, example) },
    Recipe { value: integer(4), ..recipe("inline-no-keys", Inline, Vec::new) },
    Recipe { value: integer(4), ..recipe("term-order-no-keys", TermOrder, Vec::new) },
    Recipe { partition_bits: 2, ..recipe("term-order-no-keys-4-partitions", TermOrder, Vec::new) },
    Recipe { value: integer(4), ..recipe("inline-1-key", Inline, || fixed(1, 16, 4, 1)) },
    recipe("term-order-1-key", TermOrder, || fixed(1, 16, 8, 2)),
    recipe("inline-empty-key", Inline, || fixed(1, 0, 8, 3)),
    Recipe {
        value: opaque(0),
        filter_bits: 0,
        ..recipe("inline-set-of-the-empty-key", Inline, || fixed(1, 0, 0, 4))
    },
    Recipe {
        value: opaque(0),
        ..recipe("term-order-set-of-the-empty-key", TermOrder, || fixed(1, 0, 0, 5))
    },
    Recipe { value: integer(4), ..recipe("inline-doc-id", Inline, || fixed(60, 16, 4, 6)) },
    Recipe { filter_bits: 0, ..recipe("inline-no-filter", Inline, || small_values(40, 10, 7)) },
    Recipe { value: opaque(0), ..recipe("inline-set", Inline, || fixed(50, 8, 0, 8)) },
    Recipe {
        value: integer(8),
        partition_bits: 2,
        ..recipe("inline-4-partitions", Inline, || fixed(50, 8, 8, 9))
    },
    Recipe {
        value: opaque(64),
        filter_bits: 64,
        seed: 0x0123_4567_89ab_cdef,
        ..recipe("inline-widest", Inline, || fixed(4, 31, 64, 10))
    },
    Recipe { value: integer(2), ..recipe("inline-200-keys", Inline, || fixed(200, 4, 2, 11)) },
    Recipe { value: integer(4), ..recipe("term-order-mixed", TermOrder, || mixed(24, 4, 12)) },
    Recipe {
        value: integer(8),
        filter_bits: 0,
        ..recipe("term-order-no-filter", TermOrder, || urls(30, 8, 13))
    },
    Recipe {
        value: opaque(0),
        seed: 42,
        ..recipe("term-order-set-seeded", TermOrder, || urls(40, 0, 14))
    },
    Recipe {
        value: opaque(12),
        partition_bits: 3,
        ..recipe("term-order-versioned-8-partitions", TermOrder, || urls(30, 12, 15))
    },
    Recipe {
        partition_bits: 1,
        ..recipe("term-order-200-keys", TermOrder, || small_values(200, 9, 16))
    },
    Recipe {
        filter_bits: 0,
        partition_bits: 4,
        ..recipe("term-order-empty-partitions", TermOrder, || small_values(3, 36, 17))
    },
    Recipe { value: integer(4), ..perfect("perfect-no-keys", Vec::new) },
    Recipe {
        filter_bits: 10,
        partition_bits: 2,
        ..perfect("perfect-no-keys-4-partitions", Vec::new)
    },
    Recipe { value: integer(4), ..perfect("perfect-1-key", || fixed(1, 16, 4, 18)) },
    perfect("perfect-empty-key", || fixed(1, 0, 8, 19)),
    Recipe { value: opaque(0), ..perfect("perfect-set-of-the-empty-key", || fixed(1, 0, 0, 20)) },
    // Three records of 20 bytes in a line.
    Recipe { value: integer(4), ..perfect("perfect-doc-id", || fixed(60, 16, 4, 21)) },
    Recipe {
        value: integer(4),
        packed: true,
        ..perfect("perfect-packed", || fixed(60, 16, 4, 22))
    },
    Recipe { value: integer(4), ..perfect("perfect-one-in-a-line", || fixed(5, 56, 4, 23)) },
    // Records of 8 bytes, which keep to lines by themselves.
    Recipe { value: opaque(0), ..perfect("perfect-set", || fixed(50, 8, 0, 24)) },
    Recipe { value: opaque(12), ..perfect("perfect-long", || fixed(4, 300, 12, 25)) },
    perfect("perfect-200-keys", || small_values(200, 9, 26)),
    Recipe { filter_bits: 10, seed: 42, ..perfect("perfect-filter", || small_values(40, 14, 27)) },
    // The first slot and the last one are empty.
    Recipe { keys_per_1000_slots: 500, ..perfect("perfect-half-full", || small_values(40, 9, 3)) },
    Recipe { partition_bits: 3, ..perfect("perfect-empty-partitions", || small_values(6, 8, 29)) },
    Recipe { value: integer(4), ..perfect("perfect-exceptions", exceptions) },
    Recipe { value: integer(1), ..perfect("perfect-partition-seed", one_bucket) },
    Recipe { value: integer(4), ..perfect("perfect-mixed", || mixed(24, 4, 30)) },
    // Offsets are counted in 2 bytes: the record of the empty key takes some, too.
    Recipe { value: opaque(0), ..perfect("perfect-mixed-set", || mixed(40, 0, 31)) },
    Recipe { value: integer(2), ..perfect("perfect-unit-4", unit_4) },
    Recipe { filter_bits: 12, seed: 7, ..perfect("perfect-mixed-filter", || small_urls(70, 32)) },
    Recipe { keys_per_1000_slots: 500, ..perfect("perfect-mixed-half-full", || small_urls(40, 2)) },
    Recipe {
        value: opaque(12),
        partition_bits: 3,
        ..perfect("perfect-mixed-8-partitions", || urls(14, 12, 34))
    },
    Recipe { value: integer(4), ..perfect("perfect-mixed-exceptions", mixed_exceptions) },
];

fn example() -> Vec<Pair> {
    [("order-17", 3u32), ("B000000001", 1000), ("", 70_000)]
        .map(|(key, value)| (key.into(), value.to_le_bytes().into()))
        .into()
}

/// Keys of one length.
fn fixed(n: usize, len: usize, width: usize, seed: u64) -> Vec<Pair> {
    let mut rng = Rng(seed);
    (0..n).map(|_| (rng.bytes(len), rng.bytes(width))).collect()
}

/// Keys of one length, values of one byte in eight.
fn small_values(n: usize, len: usize, seed: u64) -> Vec<Pair> {
    let mut rng = Rng(seed);
    (0..n).map(|i| (rng.bytes(len), (i as u64 % 250).to_le_bytes().into())).collect()
}

/// Keys of many lengths, among them those around the step from one length byte to two.
fn mixed(n: usize, width: usize, seed: u64) -> Vec<Pair> {
    let mut rng = Rng(seed);
    let lens = [0, 1, 30, 31, 32, 127, 128].into_iter().chain(2..);
    lens.take(n).map(|len| (rng.bytes(len), rng.bytes(width))).collect()
}

/// Keys that begin alike.
fn urls(n: usize, width: usize, seed: u64) -> Vec<Pair> {
    let mut rng = Rng(seed);
    (0..n).map(|i| (format!("https://example.org/{i}").into_bytes(), rng.bytes(width))).collect()
}

/// As [`urls`], values of one byte in eight.
fn small_urls(n: usize, seed: u64) -> Vec<Pair> {
    let keys = urls(n, 0, seed).into_iter().map(|(key, _)| key);
    keys.zip(small_values(n, 8, seed)).map(|(key, (_, value))| (key, value)).collect()
}

/// Three keys of one hash, two of another, and some of their own.
fn exceptions() -> Vec<Pair> {
    let mut pairs = fixed(12, 16, 4, 35);
    for (n, i) in [(3, 0), (2, 1)] {
        let keys = craft::keys_of_one_hash(n, i).into_iter();
        pairs.extend(keys.zip(1u32..).map(|(key, value)| (key.into(), value.to_le_bytes().into())));
    }
    pairs
}

/// [`exceptions`] and keys of other lengths, one of them with the hash of one of 8 bytes.
fn mixed_exceptions() -> Vec<Pair> {
    let mut pairs = exceptions();
    pairs.extend(mixed(9, 4, 36));
    let same = craft::key_of_hash(KeyHasher::new(0).hash(b"short"));
    pairs.extend([b"short".to_vec(), same.into()].map(|key| (key, vec![9; 4])));
    pairs
}

/// Keys whose hashes have the same upper half, and so one bucket with seed 0.
fn one_bucket() -> Vec<Pair> {
    let mut rng = Rng(37);
    let hashes = (0..80).map(|_| 0xabcd_ef01 << 32 | rng.next() >> 32);
    hashes.map(|hash| (craft::key_of_hash(hash).into(), vec![7])).collect()
}

/// One key that needs a unit of 4: 28 like it are more than 65,535 × 2 bytes.
fn unit_4() -> Vec<Pair> {
    let mut pairs = mixed(5, 2, 38);
    pairs.push((vec![b'k'; 4678], vec![1, 2]));
    pairs
}

impl Recipe {
    pub fn options(&self) -> TableOptions {
        TableOptions::default()
            .layout(self.layout)
            .value(self.value.map_or(ValueChoice::Auto, ValueChoice::Fixed))
            .filter_bits(self.filter_bits)
            .hasher(KeyHasher::new(self.seed))
            .partition_bits(self.partition_bits)
            .packed(self.packed)
            .shape(
                PerfectShape::default()
                    .keys_per_100_buckets(300)
                    .keys_per_1000_slots(self.keys_per_1000_slots),
            )
    }

    pub fn pairs(&self) -> Vec<Pair> {
        (self.pairs)()
    }

    /// The table's bytes, built now.
    pub fn bytes(&self) -> Vec<u8> {
        build(&self.options(), &self.pairs())
    }

    /// Where the golden file lies.
    pub fn path(&self) -> PathBuf {
        folder("valid").join(self.name).with_extension("pkh")
    }

    /// The golden file's bytes.
    pub fn golden(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// The recipe of this name.
pub fn find(name: &str) -> &'static Recipe {
    RECIPES.iter().find(|recipe| recipe.name == name).expect("a recipe of this name")
}

/// A folder of golden files. (The tests of `pkhash-simd` use this module too.)
pub fn folder(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "tests", "golden", name].iter().collect()
}
