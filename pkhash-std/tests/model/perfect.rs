//! Perfect tables: keys of one hash, keys that meet, records in lines.

use super::*;

/// Keys of one hash: up to 64 beyond the first in a partition, each in a place of its own.
#[test]
fn exceptions_and_too_many_of_them() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    for len in [8, 0] {
        // All keys have one hash.
        let hasher = KeyHasher::truncated(3, 0);
        let model = |n: u64| -> Model {
            let key = |i: u64| match len {
                8 => i.to_be_bytes().to_vec(),
                _ => vec![b'x'; i as usize],
            };
            (0..n).map(|i| (key(i), int(i))).collect()
        };
        for partition_bits in [0, 3] {
            let table = TableOptions::default().hasher(hasher).partition_bits(partition_bits);
            for n in [1, 2, 64, 65] {
                let model = model(n);
                let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
                let (built, _) = build_bytes(with(table), slices(&model)).unwrap();
                assert_eq!((built.exceptions, built.evictions), (n - 1, 0));
                check_bytes(&bytes, &model, &[vec![1; 8]]);
            }
            let error = publish(&path, with(table), slices(&model(66))).unwrap_err();
            too_many_of_one_hash(&error);
            assert!(folder.names().is_empty());
            // Term-order takes them all.
            let layout = LayoutChoice::Fixed(Layout::TermOrder);
            let table = table.layout(layout);
            let bytes = all_ways(table, &model(300).into_iter().collect()).unwrap();
            check_bytes(&bytes, &model(300), &[]);
        }
    }
}

/// A perfect hash function that is asked for too much: an error, and nothing left behind.
#[test]
fn keys_that_cannot_be_placed() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let shape = PerfectShape::default().keys_per_100_buckets(800).keys_per_1000_slots(1000);
    let table = TableOptions::default().shape(shape);
    for (n, bits) in [(24, 0), (60, 1)] {
        let model = numbered("key", 10..10 + n);
        let table = table.partition_bits(bits);
        let error = publish(&path, with(table), slices(&model)).unwrap_err();
        assert!(
            matches!(error, Error::Table { path: None, source: CoreError::Unsolvable { .. } }),
            "{error}"
        );
        assert!(folder.names().is_empty());
    }
    // Room for them is enough, or a layout that has no such function.
    let model = numbered("key", 10..34);
    for table in [table.shape(shape.keys_per_1000_slots(700)), table.layout(Layout::TermOrder)] {
        let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
        check_bytes(&bytes, &model, &[]);
    }
}

/// Keys that were made to meet: the partition takes another seed, if there is one that places them.
#[test]
fn keys_that_meet_in_one_bucket() {
    let folder = Folder::new();
    let path = folder.path("table.pkh");
    let number = |keys: Vec<Vec<u8>>| -> Model { keys.into_iter().zip((0..).map(int)).collect() };
    let mut met: Vec<Vec<u8>> = meet_with_seed_0(100).collect();
    met.extend((0u64..500).map(|i| i.to_be_bytes().to_vec()));
    let one_length = number(met.clone());
    let mut several = one_length.clone();
    several.insert(b"short".to_vec(), int(7));
    for model in [one_length, several] {
        for bits in [0, 2] {
            let table = TableOptions::default().partition_bits(bits);
            let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
            let sound = pkhash_std::Table::open(&bytes).unwrap();
            let seeds: Vec<bool> =
                (0..1 << bits).map(|p| sound.partition(p).unwrap().seed > 0).collect();
            let expected: &[bool] = if bits == 0 { &[true] } else { &[false, false, true, false] };
            assert_eq!(seeds, expected);
            check_bytes(&bytes, &model, &[vec![0xff; 8]]);
        }
    }
    // And others that meet with all seeds but that one.
    let others: Vec<Vec<u8>> = meet_with_other_seeds(100).collect();
    let bytes = all_ways(TableOptions::default(), &number(others.clone()).into_iter().collect());
    check_bytes(&bytes.unwrap(), &number(others.clone()), &[]);
    met.extend(others);
    let model = number(met);
    let error = publish(&path, with(TableOptions::default()), slices(&model)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Table { path: None, source: CoreError::Unsolvable { keys: 700, seeds: 32 } }
        ),
        "{error}"
    );
    assert!(folder.names().is_empty());
    // Another hash, more partitions, another layout.
    for table in [
        TableOptions::default().hasher(KeyHasher::new(1)),
        TableOptions::default().partition_bits(1),
        TableOptions::default().layout(Layout::TermOrder),
    ] {
        let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
        check_bytes(&bytes, &model, &[]);
    }
}

/// What a build of a perfect table says of the work: buckets made room for others, in any partition.
#[test]
fn evictions_are_counted() {
    let pairs = many(12, 12..13, 300_000);
    let built = |pairs: &Pairs, layout, partition_bits, threads| {
        let table = TableOptions::default().layout(layout).partition_bits(partition_bits);
        let options = with(table).threads(threads);
        build_bytes(options, of_slice(pairs)).unwrap().0
    };
    for bits in [0, 2] {
        let all = built(&pairs, Layout::Perfect, bits, 1);
        assert!(all.evictions > 0 && all.exceptions == 0);
        assert_eq!(built(&pairs, Layout::Perfect, bits, 4).evictions, all.evictions);
        // As many as with the keys of one partition at a time.
        let partition =
            |key: &[u8]| pkhash_core::hash::partition(KeyHasher::new(0).hash(key), bits);
        let parts: Vec<u64> = (0..1 << bits)
            .map(|p| {
                let mine = pairs.iter().filter(|(key, _)| partition(key) == p).cloned().collect();
                built(&mine, Layout::Perfect, bits, 1).evictions
            })
            .collect();
        assert_eq!(parts.iter().sum::<u64>(), all.evictions);
        assert!(parts.iter().all(|evictions| *evictions > 0), "{parts:?}");
        for layout in [Layout::Inline, Layout::TermOrder] {
            let other = built(&pairs, layout, bits, 1);
            assert_eq!((other.evictions, other.exceptions), (0, 0));
        }
    }
}

/// Records that keep to their lines of 64 bytes, unless they are to be packed.
#[test]
fn records_in_lines() {
    let mut rng = Rng(13);
    // Length of the key beside a value of one byte, records in a line.
    for (len, per_line) in
        [(0, 0), (1, 0), (6, 9), (9, 6), (15, 0), (18, 0), (19, 3), (20, 3), (59, 1), (62, 1)]
            .into_iter()
            .chain([(58, 0), (63, 0), (64, 0), (100, 0)])
    {
        let model: Model = (0..600).map(|i| (rng.bytes(len), int(i % 256))).collect();
        let mut lens = Vec::new();
        for packed in [false, true] {
            let table = TableOptions::default().packed(packed);
            let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
            let footer = *pkhash_std::Table::open(&bytes).unwrap().footer();
            let expected = if packed { 0 } else { per_line };
            assert_eq!((footer.records_per_line(), footer.unit()), (expected, 0), "{len}");
            check_bytes(&bytes, &model, &[vec![0; len + 1]]);
            lens.push(bytes.len());
        }
        assert_eq!(lens[0] > lens[1], per_line > 0, "{len}: {lens:?}");
    }
}

/// The longest of keys of several lengths decides the unit of offset lines; and then the layout.
#[test]
fn keys_at_the_edges_of_offset_lines() {
    let folder = Folder::new();
    let mut rng = Rng(6);
    for (value, width) in [
        (ValueChoice::Auto, 1),
        (ValueChoice::Fixed(ValueFormat::opaque(0).unwrap()), 0),
        (ValueChoice::Fixed(ValueFormat::opaque(64).unwrap()), 64),
    ] {
        let value_of = |i: u64| match width {
            1 => int(i),
            _ => vec![i as u8; width],
        };
        for unit in if width == 1 { &[1usize, 2, 4, 8, 16][..] } else { &[1, 16] } {
            // FORMAT.md, §3.4.
            let longest = |unit: usize| 2340 * unit - usize::from(unit > 1) - width;
            for (len, expected) in [(longest(*unit), *unit), (longest(*unit) + 1, 2 * unit)] {
                let mut model: Model = (0..28).map(|i| (rng.bytes(len), value_of(i))).collect();
                model.insert(b"short".to_vec(), value_of(28));
                let table = TableOptions::default().value(value);
                let (built, bytes) = build_bytes(with(table), slices(&model)).unwrap();
                let found = (built.footer.layout(), usize::from(built.footer.unit()));
                if expected <= 16 {
                    assert_eq!(found, (Layout::Perfect, expected), "{len}");
                } else {
                    assert_eq!(found, (Layout::TermOrder, 0), "{len}");
                    let layout = LayoutChoice::Fixed(Layout::Perfect);
                    let table = table.layout(layout);
                    let error = build_bytes(with(table), slices(&model)).unwrap_err();
                    key_length(&error, longest(16), len);
                }
                let path = folder.write("table.pkh", &bytes);
                check(&TableFile::open(path).unwrap(), &model, &[vec![0; len], vec![0; len + 1]]);
            }
        }
    }
    // A record of a set has no bytes but its key's: the empty one needs padding.
    let value = ValueChoice::Fixed(ValueFormat::opaque(0).unwrap());
    for (keys, unit) in [([&b"a"[..], b"bc"], 1), ([b"", b"bc"], 2)] {
        let model: Model = keys.into_iter().map(|key| (key.to_vec(), Vec::new())).collect();
        let table = TableOptions::default().value(value);
        let bytes = all_ways(table, &model.clone().into_iter().collect()).unwrap();
        assert_eq!(pkhash_std::Table::open(&bytes).unwrap().footer().unit(), unit);
        check_bytes(&bytes, &model, &[b"b".to_vec(), Vec::new()]);
    }
}
