//! Perfect tables: every length of keys, shapes, keys that collide.

use super::*;

fn perfect() -> TableOptions {
    fixed(Layout::Perfect)
}

fn layout_of(bytes: &[u8]) -> Layout {
    Table::open(bytes).unwrap().footer().layout()
}

#[test]
fn crafted_keys_have_their_hash() {
    let hasher = KeyHasher::new(0);
    let mut rng = Rng(0xc4af7);
    for hash in [0, 1, u64::MAX, 1 << 63].into_iter().chain((0..500).map(|_| rng.next())) {
        assert_eq!(hasher.hash(&craft::key_of_hash(hash)), hash);
    }
    for i in 0..50 {
        let keys = craft::keys_of_one_hash(6, i);
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(keys.iter().all(|key| hasher.hash(key) == hasher.hash(&keys[0])));
        let other = craft::keys_of_one_hash(1, i + 1);
        assert_ne!(hasher.hash(&keys[0]), hasher.hash(&other[0]));
    }
}

#[test]
fn perfect_takes_every_length() {
    for len in (0..=70).chain([126, 127, 128, 16_384, 65_535, 65_536]) {
        let n = [1, 40, 3][usize::from(len > 0) + usize::from(len > 1000)];
        let pairs: Vec<Pair> = numbered(n, 8.max(len))
            .into_iter()
            .map(|(key, value)| (key[8 - len.min(8)..][..len].to_vec(), value))
            .collect();
        let mut absent = vec![vec![0xee; len + 1]];
        if len > 0 {
            absent.extend([vec![0xee; len], vec![0; len - 1]]);
            // Every byte of a key counts.
            for at in (0..len).step_by(len / 40 + 1) {
                let mut key = pairs[1].0.clone();
                key[at] ^= 0x40;
                absent.push(key);
            }
        }
        for packed in [false, true] {
            let options = perfect().packed(packed);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            let model = model_of(&options, &pairs);
            absent.retain(|key| !model.contains_key(key));
            // They differ only where records lie in lines.
            if !packed || len % 10 == 0 {
                check(&table, &model, &absent);
            }
            let footer = table.footer();
            assert_eq!((footer.layout(), footer.unit()), (Layout::Perfect, 0));
            // As many in a line as fit, if some would not keep to lines and it costs less than 8 %.
            let width = len + 4;
            let fit = 64 / width;
            let lines = !packed && fit > 0 && 64 % width != 0 && 64 * 100 < fit * width * 108;
            assert_eq!(
                usize::from(footer.records_per_line()),
                if lines { fit } else { 0 },
                "{len}"
            );
            let entry = table.partition(0).unwrap();
            let bytes = match footer.records_per_line() {
                0 => u64::from(entry.slots) * width as u64,
                n => u64::from(entry.slots).div_ceil(n.into()) * 64,
            };
            assert_eq!(entry.record_bytes, bytes);
        }
    }
}

#[test]
fn layouts_that_are_chosen() {
    let auto = perfect().layout(LayoutChoice::Auto);
    let too_long = |expected, found| Err(Error::KeyLength { expected, found });
    for (len, layout) in [
        (0, Layout::Perfect),
        (31, Layout::Perfect),
        (32, Layout::Perfect),
        (65_536, Layout::Perfect),
        (65_537, Layout::TermOrder),
    ] {
        let pairs = numbered(1, len);
        let bytes = build(&auto, &pairs);
        assert_eq!(layout_of(&bytes), layout, "{len}");
        check(&Table::open(&bytes).unwrap(), &model_of(&auto, &pairs), &[vec![1; len + 1]]);
        let filter_bits = if layout == Layout::Perfect { 0 } else { 10 };
        assert_eq!(Table::open(&bytes).unwrap().footer().filter_bits(), filter_bits);
    }
    assert_eq!(try_build(&perfect(), &numbered(1, 65_537)), too_long(65_536, 65_537));
    assert_eq!(layout_of(&build(&TableOptions::default(), &[])), Layout::Perfect);

    // Keys of several lengths: 28 of the longest must fit a line.
    for width in [0u8, 1, 4, 8, 64] {
        let value = ValueFormat::opaque(width).unwrap();
        let with = |layout| perfect().layout(layout).value(value);
        let longest = 37_439 - usize::from(width);
        for len in [longest, longest + 1, 50_000] {
            let pairs: Vec<Pair> = [(0, 1), (7, 5), (9, len)]
                .map(|(byte, len)| (vec![byte; len], vec![3; width.into()]))
                .into();
            let bytes = build(&with(LayoutChoice::Auto), &pairs);
            let model = pairs.iter().cloned().collect();
            check(&Table::open(&bytes).unwrap(), &model, &[vec![9; len - 1], vec![9; len + 1]]);
            let fixed = try_build(&with(LayoutChoice::Fixed(Layout::Perfect)), &pairs);
            if len == longest {
                assert_eq!(layout_of(&bytes), Layout::Perfect);
                assert_eq!(Table::open(&bytes).unwrap().footer().unit(), 16);
                assert!(fixed == Ok(bytes));
            } else {
                assert_eq!(layout_of(&bytes), Layout::TermOrder);
                assert_eq!(fixed, too_long(longest as u64, len as u64));
            }
        }
    }
}

#[test]
fn units_are_the_least_that_hold_a_line_of_the_longest_keys() {
    for width in [0u8, 3] {
        let value = ValueChoice::Fixed(ValueFormat::opaque(width).unwrap());
        for unit in [1u8, 2, 4, 8, 16] {
            // No slot is empty, so that one line is full.
            let shape = PerfectShape::default().keys_per_100_buckets(200).keys_per_1000_slots(1000);
            let options = perfect().value(value).shape(shape);
            let longest = 2340 * usize::from(unit) - usize::from(unit > 1) - usize::from(width);
            let keys = |longest: usize| -> Vec<Pair> {
                let mut rng = Rng(unit.into());
                let lens = (0..28).map(|_| longest).chain([longest - 1]);
                lens.map(|len| (rng.bytes(len), vec![1; width.into()])).collect()
            };
            let pairs = keys(longest);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            assert_eq!((table.footer().unit(), table.footer().slots()), (unit, 29));
            assert_eq!(table.verify(), Ok(()));
            for (key, value) in &pairs {
                assert_eq!(table.get(Scalar, key).unwrap().unwrap().as_bytes(), value);
                assert_eq!(table.get(Scalar, &key[1..]), Ok(None));
                assert_eq!(lookup(&bytes, table.footer(), key).unwrap().0.as_ref(), Some(value));
            }
            let lines = raw::sections(&bytes, 0)[2].clone();
            let end = raw::get(&bytes, lines.start + 61, 2);
            assert!(end == 65_520 || end == 65_520 - 1, "{end} units in a full line");
            if unit < 16 {
                let bytes = build(&options, &keys(longest + 1));
                assert_eq!(Table::open(&bytes).unwrap().footer().unit(), 2 * unit);
            }
        }
    }
    // The record of the empty key of a set takes a unit of its own.
    let set = |first: &[u8], value: ValueFormat| {
        let value = ValueChoice::Fixed(value);
        let pairs: Vec<Pair> = [first, b"key"].map(|key| (key.to_vec(), vec![0; 8])).into();
        let width = match value {
            ValueChoice::Fixed(value) => usize::from(value.width()),
            ValueChoice::Auto => 8,
        };
        let pairs: Vec<Pair> = pairs.into_iter().map(|(k, v)| (k, v[..width].to_vec())).collect();
        let bytes = build(&perfect().value(value), &pairs);
        let table = Table::open(&bytes).unwrap();
        check(&table, &pairs.into_iter().collect(), &[b"k".to_vec(), b"keyy".to_vec()]);
        table.footer().unit()
    };
    assert_eq!(set(b"", ValueFormat::opaque(0).unwrap()), 2);
    assert_eq!(set(b"k2", ValueFormat::opaque(0).unwrap()), 1);
    assert_eq!(set(b"", ValueFormat::opaque(1).unwrap()), 1);
}

#[test]
fn the_function_has_the_shape_that_was_asked_for() {
    for (keys_per_100_buckets, keys_per_1000_slots) in
        [(300, 990), (100, 500), (100, 990), (250, 980), (400, 950), (800, 500)]
    {
        let shape = PerfectShape::default()
            .keys_per_100_buckets(keys_per_100_buckets)
            .keys_per_1000_slots(keys_per_1000_slots);
        for bits in [0, 3] {
            let options = perfect().shape(shape).partition_bits(bits);
            let bytes = build(&options, &numbered(1500, 8));
            let table = Table::open(&bytes).unwrap();
            for p in 0..1 << bits {
                let entry = table.partition(p).unwrap();
                let keys = u64::from(entry.keys);
                assert_eq!(
                    u64::from(entry.buckets),
                    (keys * 100).div_ceil(keys_per_100_buckets.into())
                );
                assert_eq!(
                    u64::from(entry.slots),
                    (keys * 1000).div_ceil(keys_per_1000_slots.into())
                );
                assert_eq!((entry.exceptions, entry.homes, entry.probe_limit), (0, 0, 0));
                // Pilot 0 for a bucket without keys.
                let pilots = raw::sections(&bytes, p as usize)[1].start;
                let mut used = vec![false; entry.buckets as usize];
                for record in table.iter_partition(p) {
                    let hash = options.hasher.hash(record.unwrap().0);
                    used[raw::perfect_place(&bytes, p as usize, hash).0 as usize] = true;
                }
                assert!(
                    used.iter().zip(&bytes[pilots..]).all(|(used, pilot)| *used || *pilot == 0)
                );
                assert!(keys < 100 || keys_per_100_buckets > 300 || used.contains(&false));
            }
        }
    }
    assert_eq!(
        PerfectShape::default(),
        PerfectShape::default().keys_per_100_buckets(250).keys_per_1000_slots(995)
    );
}

#[test]
fn structured_keys() {
    let value = |i: u32| i.to_le_bytes().to_vec();
    let of = |key: &dyn Fn(u32) -> Vec<u8>| -> Vec<Pair> {
        (0..1000).map(|i| (key(i), value(i))).collect()
    };
    let sets: [(&str, Vec<Pair>); 7] = [
        ("big-endian integers", of(&|i| u64::from(i).to_be_bytes().into())),
        ("little-endian integers", of(&|i| i.to_le_bytes().into())),
        ("steps of 100", of(&|i| u64::from(100 * i).to_le_bytes().into())),
        ("steps of 2^40", of(&|i| (u64::from(i) << 40).to_le_bytes().into())),
        ("a prefix of 30 bytes", of(&|i| format!("{:/<30}{i:06}", "https://example.org").into())),
        ("decimal text", of(&|i| i.to_string().into())),
        ("runs of one byte", of(&|i| vec![i as u8; i as usize / 256 + 1])),
    ];
    for (name, pairs) in &sets {
        for (bits, filter_bits) in [(0, None), (4, Some(10))] {
            let options = perfect().partition_bits(bits).filter_bits(filter_bits);
            let bytes = build(&options, pairs);
            let table = Table::open(&bytes).unwrap();
            let model = model_of(&options, pairs);
            let mut absent: Vec<Vec<u8>> = Vec::new();
            for (key, _) in pairs.iter().step_by(25) {
                let mut other = key.clone();
                *other.last_mut().unwrap() ^= 0x80;
                absent.extend([other, [key, &b"0"[..]].concat(), key[1..].to_vec()]);
            }
            absent.retain(|key| !model.contains_key(key));
            check(&table, &model, &absent);
            // Small partitions need another seed now and then.
            assert!(bits > 0 || table.partition(0).unwrap().seed == 0, "{name}");
        }
    }
}

#[test]
fn partitions_up_to_2_to_the_16() {
    for bits in [11, 13, 16] {
        for (n, lens) in [(1, 8), (300, 8), (300, 9)] {
            let mut pairs = numbered(n, 8);
            if lens == 9 {
                pairs.iter_mut().step_by(2).for_each(|pair| pair.0.push(7));
            }
            let options = perfect().partition_bits(bits);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            assert_eq!(table.footer().partitions(), 1 << bits);
            assert_eq!(table.verify(), Ok(()));
            assert_eq!(table.iter().count(), pairs.len());
            for (key, value) in &pairs {
                assert_eq!(table.get(Scalar, key).unwrap().unwrap().as_bytes(), value);
                assert_eq!(lookup(&bytes, table.footer(), key).unwrap().0.as_ref(), Some(value));
                let hash = options.hasher.hash(key);
                assert_eq!(table.range(hash, hash).count(), 1);
            }
            let absent: Vec<[u8; 8]> = (1..300u64).map(|i| (i << 32).to_be_bytes()).collect();
            let mut out = vec![None::<Value<'_>>; absent.len()];
            assert_eq!(table.get_batch(Scalar, &absent, &mut out), Ok(0));
        }
    }
}

#[test]
fn keys_of_one_hash_up_to_the_limit() {
    // In each partition as many as there may be; then one more in one of them.
    for (bits, lens) in [(0, [16, 16]), (0, [16, 17]), (2, [16, 16]), (2, [8, 16])] {
        // 4 hashes, two of them in one partition of 4, and none in another.
        let hasher = KeyHasher::truncated(3, 2);
        let options = perfect().hasher(hasher).partition_bits(bits);
        let mut pairs: Vec<Pair> = Vec::new();
        let mut one_more = None;
        for (key, value) in numbered(2000, 17) {
            pairs.push((key[..lens[pairs.len() % 2]].to_vec(), value));
            if too_many_of_one_hash(&options, &pairs.iter().cloned().collect()).is_some() {
                one_more = pairs.pop();
            }
        }
        assert_eq!(pairs.len(), if bits == 0 { 64 + 4 } else { 3 * 64 + 4 });
        let bytes = build(&options, &pairs);
        let table = Table::open(&bytes).unwrap();
        check(&table, &model_of(&options, &pairs), &[vec![1; 16], vec![1; 17]]);
        for p in 0..1 << bits {
            let entry = table.partition(p).unwrap();
            assert_eq!(entry.exceptions, if entry.keys == 0 { 0 } else { 64 });
        }
        pairs.push(one_more.unwrap());
        let wrong = Error::EqualHashes { expected: 64, found: 65 };
        assert_eq!(try_build(&options, &pairs), Err(wrong));
        assert_eq!(too_many_of_one_hash(&options, &pairs.into_iter().collect()), Some(wrong));
    }
}

#[test]
fn keys_that_meet_take_another_seed() {
    // Without a truncated hash: keys whose hashes have the upper half in common.
    let mut rng = Rng(0xbad);
    for n in [64, 65, 1000] {
        for bits in [0, 2] {
            let pairs: Vec<Pair> = (0..n)
                .map(|i: u32| {
                    let key = craft::key_of_hash(0x1234_5678 << 32 | rng.next() >> 32);
                    (key.to_vec(), i.to_le_bytes().to_vec())
                })
                .collect();
            let options = perfect().partition_bits(bits);
            let bytes = build(&options, &pairs);
            let table = Table::open(&bytes).unwrap();
            // Keys of the same bucket that are absent.
            let absent: Vec<Vec<u8>> =
                (0..50).map(|i| craft::key_of_hash(0x1234_5678 << 32 | i).to_vec()).collect();
            check(&table, &model_of(&options, &pairs), &absent);
            assert!(table.partition(0).unwrap().seed > 0);
        }
    }
}

#[test]
fn what_cannot_be_placed_is_an_error() {
    let shape = PerfectShape::default().keys_per_100_buckets(800).keys_per_1000_slots(1000);
    let options = perfect().shape(shape);
    let unsolvable = Error::Unsolvable { keys: 500, seeds: 32 };
    for pairs in [numbered(500, 8), numbered(500, 40)] {
        assert_eq!(try_build(&options, &pairs), Err(unsolvable));
    }
}

/// Small partitions have few ways to place their keys, and all of them must find one.
#[test]
fn every_small_partition_is_solved() {
    let mut rng = Rng(0x50fe);
    for n in 1..=100 {
        for _ in 0..30 {
            let pairs: Vec<Pair> = (0..n).map(|_| (rng.bytes(8), vec![0; 4])).collect();
            let bytes = build(&perfect(), &pairs);
            assert_eq!(Table::open(&bytes).unwrap().verify(), Ok(()), "{n} keys");
        }
    }
}

#[test]
fn scratch_is_enough_for_any_number_of_keys() {
    for layout in Layout::all() {
        let options = fixed(layout).partition_bits(0);
        let plan = options.plan(&stats(&numbered(3, 8))).unwrap();
        for n in 0..=600 {
            let (needed, said) = (plan.scratch_len(n), builder::scratch_len(n));
            assert!(needed <= said, "{layout}: {n} keys need {needed}, not {said}");
            if n > 64 && n % 59 != 0 {
                continue;
            }
            let pairs = numbered(n as u64, 8);
            let mut entries: Vec<Entry<'_>> =
                pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
            builder::sort(&mut entries, &mut vec![Entry::default(); n]).unwrap();
            let mut out = vec![0; plan.partition_len(0, &entries).unwrap()];
            let mut write = |scratch: usize| {
                plan.write_partition(Scalar, 0, &entries, &mut vec![!0; scratch], &mut out)
                    .map(|_| ())
            };
            assert_eq!(write(needed), Ok(()));
            if needed > 0 {
                let what = "scratch for a partition";
                let (expected, found) = (needed, needed - 1);
                assert_eq!(write(found), Err(Error::BufferTooSmall { what, expected, found }));
            }
        }
    }
}

#[test]
fn perfect_keys_that_do_not_fit_the_plan() {
    let length = |expected, found| Err(Error::KeyLength { expected, found });
    let plan_of =
        |options: TableOptions, pairs: &[Pair]| (options, options.plan(&stats(pairs)).unwrap());
    let len_of = |(options, plan): &(TableOptions, builder::Plan), len: usize, value: &[u8]| {
        let key = vec![0; len];
        plan.partition_len(0, &[options.entry(&key, value)]).map(|_| ())
    };
    // One length.
    let plan = plan_of(perfect(), &numbered(3, 8));
    for len in [0, 7, 9, 31, 300] {
        assert_eq!(len_of(&plan, len, &[0; 4]), length(8, len as u64));
    }
    // Several: as long as the unit allows.
    let plan = plan_of(perfect(), &[(vec![1], vec![0; 4]), (vec![2; 2], vec![0; 4])]);
    assert_eq!(len_of(&plan, 2336, &[0; 4]), Ok(()));
    assert_eq!(len_of(&plan, 2337, &[0; 4]), length(2336, 2337));
    // A set whose records would be told from empty slots, but for the empty key.
    let set = perfect().value(ValueFormat::opaque(0).unwrap());
    let plan = plan_of(set, &[(vec![1], vec![]), (vec![2; 2], vec![])]);
    assert_eq!(len_of(&plan, 1, &[]), Ok(()));
    assert!(len_of(&plan, 0, &[]).is_err(), "a record of no bytes, that no lookup would find");
}

/// A writer may have counted keys that it drops.
#[test]
fn counts_may_be_too_high() {
    for layout in Layout::all() {
        for lens in [[16, 16], [1, 5000]] {
            if layout == Layout::Inline && lens[0] != lens[1] {
                continue;
            }
            let counted = lens.map(|len| (vec![7; len], vec![1; 4]));
            let options = fixed(layout).partition_bits(1);
            let plan = options.plan(&stats(&counted)).unwrap();
            let mut directory = vec![0; plan.directory_len()];
            let mut assembler = Assembler::new(&plan, &mut directory).unwrap();
            let mut bytes = format::head().to_vec();
            for p in 0..2 {
                let mut out = vec![0; plan.partition_len(p, &[]).unwrap()];
                let mut scratch = vec![0; plan.scratch_len(0)];
                let written = plan.write_partition(Scalar, p, &[], &mut scratch, &mut out).unwrap();
                assembler.push(&written).unwrap();
                bytes.extend(out);
            }
            let (_, directory, tail) = assembler.finish().unwrap();
            bytes.extend(directory);
            bytes.extend(tail);
            let opened = Table::open(&bytes).map(|table| (table.len(), table.verify()));
            assert_eq!(opened, Ok((0, Ok(()))), "{layout}, {lens:?}");
        }
    }
}

/// Sets of keys of several lengths, with empty slots in many places: an empty slot has no bytes, nor would the
/// record of the empty key. Found by fuzzing.
#[test]
fn the_empty_key_is_not_found_in_empty_slots() {
    for width in [0, 1] {
        for seed in 0..60 {
            for keys in [2usize, 3, 7, 30, 120] {
                for with_it in [false, true] {
                    let mut model: Model =
                        (1..keys).map(|i| (vec![i as u8; 1 + i % 3], vec![0; width])).collect();
                    if with_it {
                        model.insert(Vec::new(), vec![0; width]);
                    }
                    let options = TableOptions::default()
                        .layout(Layout::Perfect)
                        .value(ValueFormat::opaque(width as u8).unwrap())
                        .hasher(KeyHasher::new(seed))
                        .shape(PerfectShape::default().keys_per_1000_slots(600));
                    let table = build(&options, &pairs(&model));
                    check(&Table::open(&table).unwrap(), &model, &[]);
                }
            }
        }
    }
}
