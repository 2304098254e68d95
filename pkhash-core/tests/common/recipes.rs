//! The valid golden files: one recipe each. A recipe is never changed once its file is published;
//! new ones are added.

use std::path::PathBuf;

use pkhash_core::build::{LayoutChoice, Options, ValueChoice};
use pkhash_core::{Hasher, Layout, ValueFormat};

use super::{Pair, Rng, build};

/// How a golden file is made.
pub(crate) struct Recipe {
    /// The file's name without its extension.
    pub(crate) name: &'static str,
    layout: Layout,
    /// `None`: as narrow as the values allow.
    value: Option<ValueFormat>,
    filter_bits: u8,
    partition_bits: u8,
    seed: u64,
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
    Recipe { name, layout, value: None, filter_bits: 10, partition_bits: 0, seed: 0, pairs }
}

use Layout::{Inline, TermOrder};

/// Every valid golden file.
pub(crate) const RECIPES: &[Recipe] = &[
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

impl Recipe {
    pub(crate) fn options(&self) -> Options {
        Options {
            layout: LayoutChoice::Fixed(self.layout),
            value: self.value.map_or(ValueChoice::Auto, ValueChoice::Fixed),
            filter_bits: self.filter_bits,
            hasher: Hasher::new(self.seed),
            partition_bits: Some(self.partition_bits),
        }
    }

    pub(crate) fn pairs(&self) -> Vec<Pair> {
        (self.pairs)()
    }

    /// The table's bytes, built now.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        build(&self.options(), &self.pairs())
    }

    /// Where the golden file lies.
    pub(crate) fn path(&self) -> PathBuf {
        folder("valid").join(self.name).with_extension("pkh")
    }

    /// The golden file's bytes.
    pub(crate) fn golden(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// The recipe of this name.
pub(crate) fn find(name: &str) -> &'static Recipe {
    RECIPES.iter().find(|recipe| recipe.name == name).expect("a recipe of this name")
}

/// A folder of golden files. (The tests of `pkhash-simd` use this module too.)
pub(crate) fn folder(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "pkhash-core", "tests", "golden", name].iter().collect()
}
