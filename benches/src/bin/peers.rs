//! pkhash beside what a Rust user would write today. Every side is written as its own users would:
//! pkhash through its public API on a mapped file, the others with keys of a length known when they are
//! compiled, and with their own hash.
//!
//! | row | what it is |
//! | --- | --- |
//! | `pkhash` | `TableFile::get_doc_id` and `get_batch`, mapped, keys are `[u8; 16]` |
//! | `pkhash, any length` | the same, keys are `&[u8]` whose length the compiler does not know |
//! | `pkhash inline + filter` | the same as the first, another layout |
//! | `ptr_hash` | crate `ptr_hash`, its own hash, no remapping, and an array of records back to back |
//! | `ptr_hash minimal` | the same with remapping: no empty slots |
//! | `ptr_hash, our hash` | the same as `ptr_hash`, with XXH3 |
//! | `ptr_hash, our hash, any length` | the same, keys and records of a length known at run time only |
//! | `phast` | crate `ph`, function `Function2`, and an array of records |
//! | `odht` | crate `odht`, mapped |
//! | `hashbrown` | crate `hashbrown`, its own hash |
//! | `fst` | crate `fst`, mapped |
//!
//! `cargo run --release -p pkhash-benches --features peers --bin peers -- [keys] [rounds] [only]`

#![forbid(unsafe_code)]

use std::hint::black_box;

use hashbrown::HashMap;
use pkhash_benches::{
    Key, Lines, Random, independent_reads, keys, map, map_file, options, queries, row::Rows, table,
};
use pkhash_core::Layout;
use pkhash_simd::prefetch;
use pkhash_std::{TableFile, WriterOptions, build_slice};
use ptr_hash::bucket_fn::Linear;
use ptr_hash::hash::{FxHash, KeyHasher};
use ptr_hash::{PtrHash, PtrHashParams};

const QUERIES: usize = 1 << 20;
const BATCH: usize = 4096;
const WIDTH: usize = 20;

/// Someone who finds doc IDs.
trait Peer {
    fn get(&self, key: &Key) -> Option<u32>;

    /// In a batch. Most peers have none: a loop then.
    fn batch(&self, keys: &[Key], out: &mut [Option<u32>]) {
        for (key, out) in keys.iter().zip(out) {
            *out = self.get(key);
        }
    }
}

fn sum_of(doc_id: Option<u32>) -> u64 {
    doc_id.map_or(1 << 40, u64::from)
}

/// One by one. Not inlined: one loop for each peer, and nothing of it known outside.
#[inline(never)]
fn singly<P: Peer>(peer: &P, keys: &[Key]) -> u64 {
    keys.iter().map(|key| sum_of(peer.get(key))).sum()
}

/// One by one, each key known only when the one before was answered.
#[inline(never)]
fn dependent<P: Peer>(peer: &P, keys: &[Key], nothing: u64) -> u64 {
    let mut sum = 0;
    for i in 0..keys.len() {
        // `nothing` is 0, which the compiler cannot know.
        sum += sum_of(peer.get(&keys[i + (sum & nothing) as usize]));
    }
    sum
}

#[inline(never)]
fn in_batches<P: Peer>(peer: &P, keys: &[Key]) -> u64 {
    let mut out = vec![None; BATCH];
    let mut sum = 0;
    for keys in keys.chunks(BATCH) {
        let out = &mut out[..keys.len()];
        peer.batch(keys, out);
        sum += out.iter().copied().map(sum_of).sum::<u64>();
    }
    sum
}

impl Peer for TableFile {
    #[inline]
    fn get(&self, key: &Key) -> Option<u32> {
        self.get_doc_id(key).expect("a sound table")
    }

    #[inline]
    fn batch(&self, keys: &[Key], out: &mut [Option<u32>]) {
        self.get_batch(keys, out).expect("a sound table");
    }
}

/// Keys whose length the compiler does not know.
struct AnyLength(TableFile);

#[inline(never)]
fn opaque(key: &Key) -> &[u8] {
    black_box(key)
}

impl Peer for AnyLength {
    #[inline]
    fn get(&self, key: &Key) -> Option<u32> {
        self.0.get_doc_id(opaque(key)).expect("a sound table")
    }

    fn batch(&self, keys: &[Key], out: &mut [Option<u32>]) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        self.0.get_batch(&keys, out).expect("a sound table");
    }
}

/// XXH3 of a key, as pkhash has it.
#[derive(Clone)]
struct Xxh3;

impl KeyHasher<Key> for Xxh3 {
    type H = u64;

    #[inline(always)]
    fn hash(key: &Key, seed: u64) -> u64 {
        pkhash_core::KeyHasher::new(seed).hash(key)
    }
}

/// XXH3 of a key whose length is not known.
#[derive(Clone)]
struct Xxh3Any;

impl KeyHasher<Key> for Xxh3Any {
    type H = u64;

    #[inline(always)]
    fn hash(key: &Key, seed: u64) -> u64 {
        pkhash_core::KeyHasher::new(seed).hash(black_box(&key[..]))
    }
}

type Function<H, const REMAP: bool> = PtrHash<Key, Linear, Vec<u32>, H, Vec<u8>, false, REMAP>;

/// A perfect hash function of `ptr_hash`, and records `doc ID | key` in its order.
struct PtrHashPeer<H: KeyHasher<Key>, const REMAP: bool> {
    function: Function<H, REMAP>,
    records: Lines,
    /// [`WIDTH`].
    width: usize,
}

impl<H: KeyHasher<Key>, const REMAP: bool> PtrHashPeer<H, REMAP> {
    fn build(keys: &[Key]) -> Self {
        let function = Function::<H, REMAP>::new(keys, PtrHashParams::default_fast());
        let slots = if REMAP { keys.len() } else { function.max_index() };
        let mut records = Lines::new(slots * WIDTH + 64);
        // The slots of the next keys are computed before the records of the first are written.
        let mut doc = 0u32;
        let bytes: &mut [u8] = &mut records;
        function.index_stream::<32, _>(keys).for_each(|slot| {
            let record = &mut bytes[slot * WIDTH..][..WIDTH];
            record[..4].copy_from_slice(&doc.to_le_bytes());
            record[4..].copy_from_slice(&keys[doc as usize]);
            doc += 1;
        });
        Self { function, records, width: WIDTH }
    }

    #[inline(always)]
    fn compare(&self, slot: usize, key: &Key) -> Option<u32> {
        let record: &[u8; WIDTH] = self.records[slot * WIDTH..].first_chunk()?;
        let (doc, found) = record.split_first_chunk::<4>()?;
        (found == key).then(|| u32::from_le_bytes(*doc))
    }
}

impl<H: KeyHasher<Key>, const REMAP: bool> Peer for PtrHashPeer<H, REMAP> {
    #[inline]
    fn get(&self, key: &Key) -> Option<u32> {
        self.compare(self.function.index(key), key)
    }

    #[inline]
    fn batch(&self, keys: &[Key], out: &mut [Option<u32>]) {
        const AHEAD: usize = 32;
        let mut ring = [0usize; AHEAD];
        let mut i = 0usize;
        self.function.index_stream::<AHEAD, _>(keys).for_each(|slot| {
            prefetch(&self.records, slot * WIDTH);
            prefetch(&self.records, slot * WIDTH + WIDTH - 1);
            if let Some(before) = i.checked_sub(AHEAD) {
                out[before] = self.compare(ring[i % AHEAD], &keys[before]);
            }
            ring[i % AHEAD] = slot;
            i += 1;
        });
        for before in i.saturating_sub(AHEAD)..i {
            out[before] = self.compare(ring[before % AHEAD], &keys[before]);
        }
    }
}

/// The same, with keys and records of a length known at run time only.
struct PtrHashAny(PtrHashPeer<Xxh3Any, false>);

impl Peer for PtrHashAny {
    #[inline]
    fn get(&self, key: &Key) -> Option<u32> {
        let (peer, key) = (&self.0, opaque(key));
        let slot = peer.function.index(key.try_into().ok()?);
        let record = peer.records.get(slot * peer.width..)?.get(..peer.width)?;
        let (doc, found) = record.split_first_chunk::<4>()?;
        (found == key).then(|| u32::from_le_bytes(*doc))
    }
}

/// A function of the crate `ph`, and records in its order.
struct Phast {
    function: ph::phast::Function2<ph::seeds::Bits8>,
    records: Lines,
}

impl Phast {
    fn build(keys: &[Key]) -> Self {
        let function = ph::phast::Function2::from_slice_st(keys);
        let mut records = Lines::new(function.output_range() * WIDTH + 64);
        for (doc, key) in keys.iter().enumerate() {
            let record = &mut records[function.get(key) * WIDTH..][..WIDTH];
            record[..4].copy_from_slice(&(doc as u32).to_le_bytes());
            record[4..].copy_from_slice(key);
        }
        Self { function, records }
    }
}

impl Peer for Phast {
    #[inline]
    fn get(&self, key: &Key) -> Option<u32> {
        let record: &[u8; WIDTH] =
            self.records.get(self.function.get(key) * WIDTH..)?.first_chunk()?;
        let (doc, found) = record.split_first_chunk::<4>()?;
        (found == key).then(|| u32::from_le_bytes(*doc))
    }
}

struct OdhtConfig;

impl odht::Config for OdhtConfig {
    type Key = Key;
    type Value = u32;
    type EncodedKey = Key;
    type EncodedValue = [u8; 4];
    type H = odht::FxHashFn;

    #[inline]
    fn encode_key(key: &Key) -> Key {
        *key
    }

    #[inline]
    fn encode_value(value: &u32) -> [u8; 4] {
        value.to_le_bytes()
    }

    #[inline]
    fn decode_key(key: &Key) -> Key {
        *key
    }

    #[inline]
    fn decode_value(value: &[u8; 4]) -> u32 {
        u32::from_le_bytes(*value)
    }
}

type Odht = odht::HashTable<OdhtConfig, &'static [u8]>;

impl Peer for Odht {
    #[inline]
    fn get(&self, key: &Key) -> Option<u32> {
        odht::HashTable::get(self, key)
    }
}

impl Peer for HashMap<Key, u32> {
    #[inline]
    fn get(&self, key: &Key) -> Option<u32> {
        HashMap::get(self, key).copied()
    }
}

impl Peer for fst::Map<memmap2::Mmap> {
    #[inline]
    fn get(&self, key: &Key) -> Option<u32> {
        fst::Map::get(self, key).map(|doc| doc as u32)
    }
}

/// The rows of one peer.
fn run<P: Peer>(name: &str, peer: &P, work: &[(&str, Vec<Key>, u64)], rows: &mut Rows) {
    for (what, asked, expected) in work {
        let mut time = |how: &str, work: &dyn Fn() -> u64| {
            rows.time(&format!("{name}; {how}; {what}"), QUERIES, || {
                assert_eq!(work(), *expected);
            });
        };
        time("single", &|| singly(peer, asked));
        time("dependent", &|| dependent(peer, asked, black_box(0)));
        time("batch", &|| in_batches(peer, asked));
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n: usize = args.next().map_or(10_000_000, |n| n.parse().expect("a number of keys"));
    let rounds: usize = args.next().map_or(7, |n| n.parse().expect("a number of rounds"));
    let only: Vec<String> = args.collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| name.starts_with(only));
    // Builds on one thread, all of them.
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("the first pool");
    let keys = keys(n);
    let work = [("hits", 0), ("90 % misses", 90)].map(|(name, absent)| {
        let (asked, answers) = queries(&keys, QUERIES, absent);
        (name, asked, answers.into_iter().map(sum_of).sum())
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);

    let mut builds = Rows::default();
    let mut built = |name: &str, build: &mut dyn FnMut()| builds.time(name, n, build);
    let write = |name: &str, layout, filter| {
        std::fs::write(path(name), &*table(&keys, &options(layout, filter))).expect("room");
        map(&path(name))
    };
    let table = write("perfect", Layout::Perfect, 0);
    let any = AnyLength(map(&path("perfect")));
    let inline = wanted("pkhash inline").then(|| write("inline", Layout::Inline, 10));
    if wanted("builds") {
        for _ in 0..3 {
            built("pkhash, build_slice, one thread", &mut || {
                let options =
                    WriterOptions::default().table(options(Layout::Perfect, 0)).threads(1);
                let mut out = Vec::with_capacity(n * 23 + 4096);
                let value = |i: usize| (i as u32).to_le_bytes();
                build_slice(&keys, value, &mut out, &options).expect("distinct keys");
                black_box(out);
            });
            built("ptr_hash, build and fill", &mut || {
                black_box(PtrHashPeer::<FxHash, false>::build(&keys));
            });
        }
    }
    let ptr = PtrHashPeer::<FxHash, false>::build(&keys);
    let ptr_minimal = wanted("ptr_hash minimal").then(|| PtrHashPeer::<FxHash, true>::build(&keys));
    let ptr_ours = wanted("ptr_hash, our").then(|| PtrHashPeer::<Xxh3, false>::build(&keys));
    let ptr_any = wanted("ptr_hash, our").then(|| PtrHashAny(PtrHashPeer::build(&keys)));
    let phast = wanted("phast").then(|| Phast::build(&keys));
    let odht = wanted("odht").then(|| {
        let mut table = odht::HashTableOwned::<OdhtConfig>::with_capacity(n, 87);
        for (doc, key) in (0..).zip(&keys) {
            table.insert(key, &doc);
        }
        std::fs::write(path("odht"), table.raw_bytes()).expect("room");
        let bytes: &'static [u8] = Box::leak(Box::new(map_file(&path("odht"))));
        Odht::from_raw_bytes(bytes).expect("a sound table")
    });
    let hashbrown = wanted("hashbrown").then(|| {
        let mut map: HashMap<Key, u32> = HashMap::with_capacity(n);
        map.extend(keys.iter().copied().zip(0..));
        map
    });
    let fst = wanted("fst").then(|| {
        let mut sorted: Vec<(&Key, u64)> = keys.iter().zip(0..).collect();
        sorted.sort_unstable();
        let file = std::io::BufWriter::new(std::fs::File::create(path("fst")).expect("a file"));
        let mut builder = fst::MapBuilder::new(file).expect("an empty file");
        builder.extend_iter(sorted.into_iter().map(|(key, doc)| (&key[..], doc))).expect("sorted");
        builder.finish().expect("room");
        fst::Map::new(map_file(&path("fst"))).expect("a sound map")
    });
    println!(
        "# {n} keys; pkhash {:.2} bytes a key",
        table.table().as_bytes().len() as f64 / n as f64
    );

    let limit_of = table.table().as_bytes();
    let mut random = Random::new(3);
    let lines: Vec<u32> =
        (0..QUERIES).map(|_| random.below((limit_of.len() / 64) as u64) as u32).collect();
    let mut rows = Rows::default();
    for round in 0..=rounds {
        // The first round warms up.
        let mut discard = Rows::default();
        let rows = if round == 0 { &mut discard } else { &mut rows };
        rows.time("limit: independent reads", QUERIES, || {
            black_box(independent_reads(limit_of, &lines));
        });
        run("pkhash", &table, &work, rows);
        run("ptr_hash", &ptr, &work, rows);
        if wanted("pkhash, any") {
            run("pkhash, any length", &any, &work, rows);
        }
        macro_rules! run {
            ($($name:literal, $peer:ident;)*) => {
                $(if let Some(peer) = &$peer {
                    run($name, peer, &work, rows);
                })*
            };
        }
        run! {
            "pkhash inline + filter", inline;
            "ptr_hash minimal", ptr_minimal;
            "ptr_hash, our hash", ptr_ours;
            "ptr_hash, our hash, any length", ptr_any;
            "phast", phast;
            "odht", odht;
            "hashbrown", hashbrown;
            "fst", fst;
        }
        eprintln!("round {round} of {rounds}");
    }
    builds.print();
    rows.print();
}
