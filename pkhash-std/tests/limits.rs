//! Limits that only files and sets can show: tables of more than 4 GiB, the longest keys through the writer, and
//! the segments of a set. Those of the format are in pkhash-core's `tests/limits.rs`.

use pkhash_core::Error as CoreError;
use pkhash_core_testing as of_core;
use pkhash_std::{
    Error, Layout, LayoutChoice, MAX_SEGMENTS, TableOptions, TableWriter, ValueChoice, ValueFormat,
    WriterOptions,
};
use pkhash_testing::{Folder, build_bytes, check_bytes, int};

/// The number that a row of FORMAT.md §8 begins with.
fn stated(what: &str) -> u64 {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = format!("| {what} | ");
    let row = text.lines().find_map(|line| line.strip_prefix(&begin)).expect(what);
    let digits = row.split(' ').next().unwrap().replace(',', "");
    digits.parse().unwrap_or_else(|_| panic!("{what}: {row}"))
}

#[test]
fn the_specification_states_the_limit_of_a_set() {
    // That one more is refused is shown in `set.rs`.
    assert_eq!(stated("segments of a set"), MAX_SEGMENTS as u64);
}

/// Collects keys of these lengths and builds a table of them.
fn write(layout: LayoutChoice, lens: &[usize]) -> Result<Layout, Error> {
    let table = TableOptions::default().layout(layout);
    let options = || WriterOptions::default().table(table);
    let model: pkhash_testing::Model =
        lens.iter().enumerate().map(|(i, len)| (vec![i as u8; *len], int(i as u64))).collect();
    let (built, bytes) = build_bytes(options(), pkhash_testing::slices(&model))?;
    let absent: Vec<Vec<u8>> = lens.iter().map(|len| vec![0xee; len + 1]).collect();
    check_bytes(&bytes, &model, &absent);
    // And published, which takes another way to the file.
    let folder = Folder::new();
    pkhash_testing::publish(&folder.path("t.pkh"), options(), pkhash_testing::slices(&model))?;
    assert!(folder.read("t.pkh") == bytes);
    Ok(built.footer.layout())
}

#[test]
fn the_longest_keys_through_the_writer() {
    // Values of one byte.
    let [fixed, spans] = [("one length", 0), ("several lengths", 1)]
        .map(|(kind, value)| stated(&format!("length of a key, perfect, {kind}")) as usize - value);
    let perfect = LayoutChoice::Fixed(Layout::Perfect);
    for (longest, lens) in [(fixed, [0, 0]), (spans, [0, 3])] {
        // The last key is the longest; others have its length, or are shorter.
        let of = |longest: usize| lens.map(|less| longest - less * 1000);
        assert_eq!(write(perfect, &of(longest)).unwrap(), Layout::Perfect);
        assert_eq!(write(LayoutChoice::Auto, &of(longest)).unwrap(), Layout::Perfect);
        let error = write(perfect, &of(longest + 1)).unwrap_err();
        let Error::Table { source: CoreError::KeyLength { expected, found }, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((expected, found), (longest as u64, longest as u64 + 1));
        // Who does not ask for it gets the layout that takes it.
        assert_eq!(write(LayoutChoice::Auto, &of(longest + 1)).unwrap(), Layout::TermOrder);
    }
    let inline = LayoutChoice::Fixed(Layout::Inline);
    assert_eq!(write(inline, &[31, 31]).unwrap(), Layout::Inline);
    let error = write(inline, &[32, 32]).unwrap_err();
    assert!(error.to_string().contains("31"), "{error}");
}

#[test]
fn the_widest_values_through_the_writer() {
    for (format, past) in [(ValueFormat::opaque(64), 65), (ValueFormat::integer(8), 9)] {
        let value = ValueChoice::Fixed(format.unwrap());
        let table = TableOptions::default().value(value);
        let mut writer = TableWriter::new(WriterOptions::default().table(table)).unwrap();
        writer.add_bytes(b"widest", &vec![0xff; past - 1]).unwrap();
        let error = writer.add_bytes(b"wider", &vec![0xff; past]).unwrap_err();
        assert!(
            matches!(error, Error::Table { source: CoreError::ValueWidth { found, .. }, .. } if found as usize == past),
            "{error}"
        );
        let mut bytes = Vec::new();
        assert_eq!(writer.write_to(&mut bytes).unwrap().footer.keys(), 1);
    }
}

/// Tables of more than 4 GiB, nearly all of it holes, which take neither disk nor memory.
#[cfg(all(unix, feature = "mmap", target_pointer_width = "64"))]
mod past_4_gib {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs::File;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::Path;

    use pkhash_core::hash::{control, home, partition, tag};
    use pkhash_core::{FixedKeys, Footer, HashedKeys, KeyHasher, Layout, Lookup, Value};
    use pkhash_std::{AnyKernel, OpenOptions, TableFile};

    use super::of_core::footers::{inline, perfect, perfect_bytes, spans, term_order};
    use super::of_core::raw::{self, RawFooter, RawPartition};
    use pkhash_testing::opening::How;
    use pkhash_testing::{Folder, Rng};

    const LIMIT: u64 = 1 << 32;
    const FILTER_BITS: u64 = 10;

    /// A file that stays sparse, and what was written to it.
    struct Sparse {
        file: File,
        footer: RawFooter,
        /// Offset and length of what was written, to see that nothing is written twice.
        taken: BTreeMap<u64, u64>,
        /// The filter's words.
        words: BTreeMap<u64, u64>,
        /// Keys, their doc IDs, and where their records lie.
        keys: Vec<(Vec<u8>, u32, u64)>,
    }

    impl Sparse {
        /// `None`, with a message, if the filesystem has no files of this size.
        fn create(path: &Path, footer: RawFooter) -> Option<Self> {
            let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
            let len = footer.file_len();
            assert!(len > LIMIT + LIMIT / 4, "more than 4 GiB: {len}");
            if let Err(error) = file.set_len(len) {
                println!("skipped: this filesystem takes no file of {len} bytes: {error}");
                return None;
            }
            let blocks = file.metadata().unwrap().blocks();
            if blocks * 512 > 1 << 20 {
                println!("skipped: this filesystem has no holes: {blocks} blocks for {len} bytes");
                return None;
            }
            let (taken, words) = (BTreeMap::new(), BTreeMap::new());
            Some(Self { file, footer, taken, words, keys: Vec::new() })
        }

        fn write(&mut self, bytes: &[u8], at: u64) {
            let end = at + bytes.len() as u64;
            let before = self.taken.range(..end).next_back();
            assert!(before.is_none_or(|(at_before, len)| at_before + len <= at), "written twice");
            self.taken.insert(at, bytes.len() as u64);
            self.file.write_all_at(bytes, at).unwrap();
        }

        /// Whether something was written there.
        fn is_taken(&self, at: u64, len: u64) -> bool {
            let before = self.taken.range(..at + len).next_back();
            before.is_some_and(|(begin, len)| begin + len > at)
        }

        /// Head, directory, tail and filters.
        fn finish(&mut self) {
            let words = std::mem::take(&mut self.words);
            for (at, word) in words {
                self.write(&word.to_le_bytes(), at);
            }
            let end = self.footer.encode();
            let at = self.footer.file_len() - end.len() as u64;
            self.write(&pkhash_core::format::head(), 0);
            self.write(&end, at);
            self.file.sync_all().unwrap();
        }

        /// Where the sections of partition `p` begin.
        fn sections(&self, p: usize) -> [u64; 4] {
            let lens = self.footer.section_lens(&self.footer.partitions[p]);
            let mut at = self.footer.offsets()[p];
            lens.map(|len| {
                at += len;
                at - len
            })
        }

        /// Lets the filter admit a hash: FORMAT.md §3.2.
        fn admit(&mut self, hash: u64, p: usize) {
            let n = self.footer.partitions[p].filter_words;
            let mut x = hash;
            for multiplier in [0xff51_afd7_ed55_8ccdu64, 0xc4ce_b9fe_1a85_ec53] {
                x = (x ^ x >> 33).wrapping_mul(multiplier);
            }
            x ^= x >> 33;
            let at = self.sections(p)[0] + 8 * (((x >> 32) * n) >> 32);
            let mask = (0..5).fold(0, |mask, i| mask | 1u64 << (x >> (6 * i) & 63));
            *self.words.entry(at).or_insert(0) |= mask;
        }

        /// Puts a key where a lookup looks for it; the `i`-th of `n`, which says where its record is to lie if
        /// that can be chosen. A key that would meet another one is left out.
        fn put(&mut self, key: &[u8], (i, n): (u64, u64)) {
            let hash = KeyHasher::new(0).hash(key);
            let bits = self.footer.partitions.len().trailing_zeros() as u8;
            let p = partition(hash, bits) as usize;
            let [_, index_at, pointers_at, records_at] = self.sections(p);
            let entry = self.footer.partitions[p];
            let doc = self.keys.len() as u32 + 1;
            let mut record = doc.to_le_bytes().to_vec();
            let unit = u64::from(self.footer.unit);
            // Anywhere in the partition's records, the last place of all among them.
            let anywhere = (entry.record_bytes - 64) / (n - 1) * i / 64 * 64;
            let at = match self.footer.layout {
                raw::INLINE | raw::TERM_ORDER => {
                    let slot = u64::from(home(hash, bits, entry.homes as u32));
                    if self.is_taken(index_at + slot.saturating_sub(1), 3) {
                        return;
                    }
                    self.write(&[control(hash)], index_at + slot);
                    if self.footer.layout == raw::INLINE {
                        records_at + slot * 20
                    } else {
                        record.push(key.len() as u8);
                        let word = (anywhere + 1) << 24 | u64::from(tag(hash));
                        self.write(&word.to_le_bytes(), pointers_at + 8 * slot);
                        records_at + anywhere
                    }
                }
                _ => {
                    let scale = |x: u64, n: u64| ((x >> 32) * n) >> 32;
                    let x = match entry.seed {
                        0 => hash << bits,
                        s => hash.wrapping_mul(0xd6e8_feb8_6659_fd93u64.wrapping_mul(2 * s - 1)),
                    };
                    let bucket = scale(x, entry.homes);
                    let pilot = (bucket % 251) as u8;
                    let mixed = x ^ u64::from(pilot).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
                    let mut slot = scale(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15), entry.slots);
                    if self.is_taken(index_at + bucket, 1) {
                        return;
                    }
                    // The last key is an exception of its partition: it lies behind all slots.
                    if i == n - 1 {
                        slot = entry.slots;
                    }
                    let at = match (unit, u64::from(self.footer.records_per_line)) {
                        (0, 0) => slot * 20,
                        (0, r) => slot / r * 64 + slot % r * 20,
                        (unit, _) => {
                            let line_at = pointers_at + slot / 28 * 64;
                            if self.is_taken(line_at, 64) {
                                return;
                            }
                            let mut line = [0; 64];
                            raw::put(&mut line, 0, 5, anywhere / unit);
                            let place = 5 + 2 * (slot % 28) as usize;
                            let len = if unit == 1 { 20 } else { 24 / unit };
                            raw::put(&mut line, place + 2, 2, len);
                            self.write(&line, line_at);
                            anywhere
                        }
                    };
                    self.write(&[pilot], index_at + bucket);
                    records_at + at
                }
            };
            record.extend_from_slice(key);
            if unit > 1 {
                record.extend([0, 0, 0, 4]);
            }
            self.write(&record, at);
            self.admit(hash, p);
            self.keys.push((key.to_vec(), doc, at));
        }
    }

    /// All ways to ask a mapped table, with one kernel.
    fn ask(table: &TableFile, keys: &[&[u8]], expected: &[Option<u32>]) {
        let name = table.kernel().name();
        let docs = |found: Vec<Option<Value<'_>>>| -> Vec<Option<u32>> {
            found.into_iter().map(|value| value.and_then(Value::doc_id)).collect()
        };
        let hits = expected.iter().flatten().count();
        for (key, expected) in keys.iter().zip(expected) {
            let found = table.get(key).unwrap().and_then(Value::doc_id);
            assert_eq!(found, *expected, "get, {name}");
        }
        let mut out = vec![None::<Value<'_>>; keys.len()];
        assert_eq!(table.get_batch(keys, &mut out).unwrap(), hits);
        assert_eq!(docs(out), expected, "get_batch, {name}");
        let buffer = keys.concat();
        let fixed = FixedKeys::new(&buffer, 16).unwrap();
        let mut out = vec![None::<Value<'_>>; keys.len()];
        assert_eq!(table.get_batch(fixed, &mut out).unwrap(), hits);
        assert_eq!(docs(out), expected, "get_batch of keys of one length, {name}");
        let mut out = vec![None::<u32>; keys.len()];
        assert_eq!(table.get_batch(keys, &mut out).unwrap(), hits);
        assert_eq!(out, expected, "get_batch of doc IDs, {name}");
        let hashes: Vec<u64> = keys.iter().map(|key| KeyHasher::new(0).hash(key)).collect();
        let hashed = HashedKeys { keys, hashes: &hashes };
        let mut out = vec![None::<Value<'_>>; keys.len()];
        assert_eq!(table.get_batch(hashed, &mut out).unwrap(), hits);
        assert_eq!(docs(out), expected, "get_batch with hashes, {name}");
    }

    /// A lookup that reads from the file what it needs, and nothing else.
    fn read(file: &File, key: &[u8]) -> Option<u32> {
        let len = file.metadata().unwrap().len();
        let read = |from: u64, len: usize| {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, from).unwrap();
            bytes
        };
        let mut end = read(len - 128, 128);
        if let Err(pkhash_core::Error::TooShort { expected, .. }) = Footer::parse(&end, len) {
            end = read(len - expected, expected as usize);
        }
        let footer = Footer::parse(&end, len).unwrap();
        let mut lookup = Lookup::new(&footer, &end, key).unwrap();
        while let Some(want) = lookup.want() {
            let bytes = read(want.offset, want.len);
            if let Some(value) = lookup.supply(&bytes).unwrap() {
                return value.doc_id();
            }
        }
        None
    }

    /// Tables of each kind: as one partition that is longer than 4 GiB, and as four that are so together.
    fn kinds() -> Vec<(&'static str, RawFooter)> {
        let mut kinds = Vec::new();
        for n in [1, 4u64] {
            // Records of 20 bytes for so many slots: 6 GiB.
            let keys = 240_000_000 / n;
            let probed = RawPartition::new(keys, FILTER_BITS, 9);
            let inlined = RawPartition { record_bytes: probed.slots * 20, ..probed };
            let footer = inline(16, 4, vec![inlined; n as usize]);
            kinds.push(("inline", footer));
            let pointed = RawPartition {
                record_bytes: 6 * (1 << 30) / n,
                ..RawPartition::new(3_000_000, FILTER_BITS, 9)
            };
            kinds.push(("term-order", term_order(vec![pointed; n as usize])));
            for (per_line, seed) in [(0, 0), (3, 7)] {
                let placed = RawPartition::perfect(320_000_000 / n, FILTER_BITS, 1);
                let partition = RawPartition {
                    seed,
                    record_bytes: perfect_bytes(placed.slots + 1, 20, per_line),
                    ..placed
                };
                let footer = perfect(16, 4, per_line, vec![partition; n as usize]);
                kinds.push(("perfect, one length", footer));
            }
            for (unit, seed) in [(1, 0), (4, 0xffff)] {
                let placed = RawPartition::perfect(3_000_000, FILTER_BITS, 1);
                let partition = RawPartition { seed, record_bytes: 6 * (1 << 30) / n, ..placed };
                kinds.push(("perfect, spans", spans(unit, vec![partition; n as usize])));
            }
        }
        for (_, footer) in &mut kinds {
            footer.filter_bits = FILTER_BITS as u8;
        }
        kinds
    }

    #[test]
    fn keys_on_both_sides_of_4_gib_are_found_by_every_kernel() {
        const N: u64 = 96;
        let mut seen = BTreeSet::new();
        for (name, raw) in kinds() {
            let folder = Folder::new();
            let path = folder.path("sparse.pkh");
            let Some(mut sparse) = Sparse::create(&path, raw) else { return };
            let mut rng = Rng(0x4_61b);
            for i in 0..N {
                sparse.put(&rng.bytes(16), (i, N));
            }
            sparse.finish();
            let (below, above): (Vec<_>, Vec<_>) =
                sparse.keys.iter().partition(|(_, _, at)| *at < LIMIT);
            assert!(
                below.len() > 10 && above.len() > 10,
                "{name}: {} and {}",
                below.len(),
                above.len()
            );

            // Hits and misses in turn.
            let absent: Vec<Vec<u8>> = sparse.keys.iter().map(|_| rng.bytes(16)).collect();
            let pairs = sparse.keys.iter().zip(&absent);
            let (keys, expected): (Vec<&[u8]>, Vec<Option<u32>>) = pairs
                .flat_map(|((key, doc, _), absent)| [(&key[..], Some(*doc)), (&absent[..], None)])
                .unzip();
            for kernel in AnyKernel::available() {
                let options = OpenOptions::new().kernel(kernel);
                let table = How::Mapped.with(options).open(&path).unwrap();
                ask(&table, &keys, &expected);
                seen.insert((table.footer().layout().name(), kernel.name()));
            }
            let file = File::open(&path).unwrap();
            for (key, expected) in keys.iter().zip(&expected) {
                assert_eq!(read(&file, key), *expected, "{name}: read from the file");
            }
            let used = file.metadata().unwrap().blocks() * 512;
            assert!(used < 16 << 20, "{name}: {used} bytes of disk");
        }
        assert_eq!(seen.len(), Layout::all().count() * AnyKernel::available().count());
    }
}
