//! What cannot be built, and that it leaves nothing behind.

use super::*;

#[test]
fn duplicates_are_an_error_and_leave_nothing_behind() {
    for layout in Layout::all() {
        for bits in [0, 3] {
            for hasher in
                [KeyHasher::new(0), KeyHasher::truncated(0, 0), KeyHasher::truncated(0, 2)]
            {
                let options = fixed(layout).hasher(hasher).partition_bits(bits);
                for n in [1, 2, 50] {
                    for twice in [0, n / 2, n - 1] {
                        let mut pairs = numbered(n as u64, 8);
                        assert!(build_marked(&options, &pairs).is_ok());
                        // The same key with another value, and with the same.
                        let mut other = pairs[twice].clone();
                        if n > 1 {
                            other.1[3] ^= 1;
                        }
                        pairs.push(other);
                        let Err(Error::DuplicateKey { index }) = build_marked(&options, &pairs)
                        else {
                            panic!("{layout}: key {twice} of {n} occurs twice");
                        };
                        assert!((1..=n).contains(&index));
                    }
                }
            }
        }
    }
    // The index leads to the two keys, the one that came first before the other.
    let options = TableOptions::default();
    let pairs = [(b"k".to_vec(), vec![1]), (b"j".to_vec(), vec![2]), (b"k".to_vec(), vec![3])];
    let mut entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
    builder::sort(&mut entries, &mut [Entry::default(); 3]).unwrap();
    let Err(Error::DuplicateKey { index }) = builder::table_len(&options, &entries) else {
        panic!("a key occurs twice");
    };
    assert_eq!([entries[index - 1].value, entries[index].value], [&[1], &[3]]);
    assert_eq!([entries[index - 1].key, entries[index].key], [b"k", b"k"]);
}

#[test]
fn values_that_do_not_fit() {
    let build_one = |value: ValueChoice, bytes: &[u8]| {
        let options = TableOptions::default().value(value);
        build_marked(&options, &[(b"key".to_vec(), bytes.to_vec())])
    };
    let wrong = |expected, found| Err(Error::ValueWidth { expected, found });
    for width in 1..=8u8 {
        let value = ValueChoice::Fixed(ValueFormat::integer(width).unwrap());
        let mut bytes = [0; 9];
        bytes[usize::from(width) - 1] = 0x80;
        assert!(build_one(value, &bytes).is_ok(), "more bytes, but zeros");
        assert!(build_one(value, &bytes[..width.into()]).is_ok());
        let (width, short) = (u32::from(width), usize::from(width) - 1);
        assert_eq!(build_one(value, &[0; 8][..short]), wrong(width, short as u32));
        bytes[width as usize] = 1;
        assert_eq!(build_one(value, &bytes), wrong(width, width + 1));
        assert_eq!(build_one(value, &bytes[..=width as usize]), wrong(width, width + 1));
    }
    for width in [0, 1, 12, 64u8] {
        let value = ValueChoice::Fixed(ValueFormat::opaque(width).unwrap());
        let len = usize::from(width);
        assert!(build_one(value, &vec![7; len]).is_ok());
        assert_eq!(build_one(value, &vec![0; len + 1]), wrong(width.into(), len as u32 + 1));
        if len > 0 {
            assert_eq!(build_one(value, &vec![7; len - 1]), wrong(width.into(), len as u32 - 1));
        }
    }
    // As narrow as the largest value, at every step.
    for (max, width) in [(0, 1), (255, 1), (256, 2), (u64::from(u32::MAX), 4), (u64::MAX, 8)] {
        let bytes = build_one(ValueChoice::Auto, &u64::to_le_bytes(max)).unwrap();
        let table = Table::open(&bytes).unwrap();
        assert_eq!(table.footer().value().width(), width);
        assert_eq!(table.footer().max_value(), max);
        assert_eq!(table.get(Scalar, b"key").unwrap().unwrap().as_u64(), Some(max));
    }
}

#[test]
fn keys_of_another_length() {
    let options = fixed(Layout::Inline);
    let mut pairs = numbered(3, 8);
    pairs.extend(numbered(1, 9));
    assert_eq!(build_marked(&options, &pairs), Err(Error::KeyLength { expected: 8, found: 9 }));
    pairs.swap(0, 3);
    assert_eq!(build_marked(&options, &pairs), Err(Error::KeyLength { expected: 8, found: 9 }));

    // Behind the plan's back.
    let plan = options.plan(&stats(&numbered(3, 8))).unwrap();
    for len in [0, 7, 9, 31, 300] {
        let pairs = numbered(1, len);
        let entries = [options.entry(&pairs[0].0, &pairs[0].1)];
        assert_eq!(
            plan.partition_len(0, &entries),
            Err(Error::KeyLength { expected: 8, found: len as u64 })
        );
    }
    // Looked up, such a key is just absent.
    let bytes = build(&options, &numbered(3, 8));
    let table = Table::open(&bytes).unwrap();
    for len in [0, 7, 9, 31, 32, 300] {
        let key = vec![0; len];
        assert_eq!(table.get(Scalar, &key), Ok(None));
        assert_eq!(lookup(&bytes, table.footer(), &key).unwrap().0, None);
    }
}

#[test]
fn options_out_of_range() {
    let stats = stats(&numbered(3, 8));
    let within =
        |option, least, expected, found| Err(Error::BadOption { option, least, expected, found });
    let bad = |option, expected, found| within(option, 0, expected, found);
    let plan = |options: TableOptions| options.plan(&stats).map(|_| ());
    assert_eq!(plan(TableOptions::default().filter_bits(65)), bad("filter bits", 64, 65));
    for layout in [Layout::Inline, Layout::TermOrder, Layout::Perfect] {
        let most = if layout == Layout::Perfect { 16 } else { 10 };
        assert_eq!(layout.max_partition_bits(), most);
        let with = |bits| plan(fixed(layout).partition_bits(bits));
        assert_eq!(with(most), Ok(()));
        assert_eq!(with(most + 1), bad("partition bits", most.into(), u64::from(most) + 1));
        assert_eq!(with(u8::MAX), bad("partition bits", most.into(), 255));
    }
    let shape = |keys_per_100_buckets, keys_per_1000_slots| {
        let shape = PerfectShape::default()
            .keys_per_100_buckets(keys_per_100_buckets)
            .keys_per_1000_slots(keys_per_1000_slots);
        plan(TableOptions::default().shape(shape))
    };
    for (buckets, slots) in [(100, 500), (100, 1000), (800, 500), (800, 1000)] {
        assert_eq!(shape(buckets, slots), Ok(()));
    }
    for found in [0, 99, 801, u16::MAX] {
        let wrong = within("keys per 100 buckets", 100, 800, found.into());
        assert_eq!(shape(found, 990), wrong);
    }
    for found in [0, 499, 1001, u16::MAX] {
        let wrong = within("keys per 1,000 slots", 500, 1000, found.into());
        assert_eq!(shape(300, found), wrong);
    }
    for (len, layout) in [(1u64 << 31, LayoutChoice::Auto), (1 << 40, LayoutChoice::Auto)] {
        let mut stats = stats;
        (stats.keys, stats.min_key_len, stats.max_key_len) = (1, len, len);
        let options = TableOptions::default().layout(layout);
        assert_eq!(
            options.plan(&stats).map(|_| ()),
            Err(Error::KeyLength { expected: (1 << 31) - 1, found: len })
        );
    }
    // Any counts whatever lead to a plan or an error.
    let mut stats = stats;
    (stats.keys, stats.key_bytes, stats.max_value) = (u64::MAX, u64::MAX, u64::MAX);
    for (layout, most) in [(Layout::TermOrder, 10), (Layout::Perfect, 16)] {
        let plan = fixed(layout);
        let plan = plan.value(ValueChoice::Auto).plan(&stats);
        assert_eq!(plan.map(|plan| plan.partition_bits()), Ok(most));
    }
}

#[test]
fn entries_that_are_not_as_said() {
    for layout in Layout::all() {
        let options = fixed(layout).partition_bits(2);
        let pairs = numbered(200, 8);
        let mut entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
        builder::sort(&mut entries, &mut vec![Entry::default(); 200]).unwrap();
        let plan = options.plan(&stats(&pairs)).unwrap();
        let starts: Vec<usize> =
            (0..=4).map(|p| entries.partition_point(|e| partition(e.hash, 2) < p)).collect();
        let mut scratch = vec![0; builder::scratch_len(200)];
        let mut out = vec![0xaa; 1 << 16];
        let mut write = |p: u32, entries: &[Entry<'_>]| {
            let written = plan.write_partition(Scalar, p, entries, &mut scratch, &mut out);
            let error = written.expect_err("not as said");
            assert_eq!(plan.partition_len(p, entries), Err(error));
            assert!(out.iter().all(|byte| *byte == 0xaa), "{error}: written nevertheless");
            error
        };

        let mut mine = entries[starts[1]..starts[2]].to_vec();
        mine.swap(7, 8);
        assert_eq!(write(1, &mine), Error::Unsorted { index: 8 });
        mine.swap(7, 8);
        mine.reverse();
        assert_eq!(write(1, &mine), Error::Unsorted { index: 1 });

        // A neighbour's entry at either end, and the right entries for another partition.
        let wrong = |index, expected, found| Error::WrongPartition { index, expected, found };
        assert_eq!(write(1, &entries[starts[1] - 1..starts[2]]), wrong(0, 1, 0));
        let len = starts[2] - starts[1];
        assert_eq!(write(1, &entries[starts[1]..=starts[2]]), wrong(len, 1, 2));
        assert_eq!(write(2, &entries[starts[1]..starts[2]]), wrong(0, 2, 1));
        assert_eq!(write(4, &entries[starts[3]..]), wrong(0, 4, 3));
        assert_eq!(write(u32::MAX, &entries[starts[3]..]), wrong(0, u32::MAX, 3));
    }
}

#[test]
fn buffers_too_small() {
    for layout in Layout::all() {
        let options = fixed(layout).partition_bits(1);
        let pairs = numbered(50, 8);
        let entries: Vec<Entry<'_>> = pairs.iter().map(|(k, v)| options.entry(k, v)).collect();
        let whole = build(&options, &pairs).len();
        let largest = {
            let left = entries.iter().filter(|entry| partition(entry.hash, 1) == 0).count();
            left.max(50 - left)
        };
        let run = |spare: usize, scratch: usize, out: usize| {
            let mut entries = entries.clone();
            builder::build(
                Scalar,
                &options,
                &mut entries,
                &mut vec![Entry::default(); spare],
                &mut vec![0; scratch],
                &mut vec![0; out],
            )
        };
        let small = |what, expected, found| Err(Error::BufferTooSmall { what, expected, found });
        let enough = builder::scratch_len(50);
        assert_eq!(run(50, enough, whole), Ok(whole));
        for spare in [0, 1, 49] {
            assert_eq!(run(spare, enough, whole), small("scratch for sorting", 50, spare));
        }
        for out in [0, 63, 64, 191, 192, whole - 1] {
            assert_eq!(run(50, enough, out), small("buffer for the table", whole, out));
        }
        // One partition at a time needs its scratch.
        let needed = options.plan(&stats(&pairs)).unwrap().scratch_len(largest);
        assert_eq!(run(50, needed, whole), Ok(whole));
        if layout == Layout::Inline {
            assert_eq!(needed, 0);
        } else {
            let wrong = small("scratch for a partition", needed, needed - 1);
            assert_eq!(run(50, needed - 1, whole), wrong);
            let Err(Error::BufferTooSmall { what, found: 1, .. }) = run(50, 1, whole) else {
                panic!("one word for many keys");
            };
            assert_eq!(what, "scratch for a partition");
        }

        let mut entries = entries.clone();
        builder::sort(&mut entries, &mut vec![Entry::default(); 50]).unwrap();
        let first = entries.partition_point(|entry| partition(entry.hash, 1) == 0);
        let plan = options.plan(&stats(&pairs)).unwrap();
        let len = plan.partition_len(0, &entries[..first]).unwrap();
        let mut scratch = vec![0; plan.scratch_len(first)];
        for found in [0, 1, len - 1] {
            let mut out = vec![0; found];
            let written = plan
                .write_partition(Scalar, 0, &entries[..first], &mut scratch, &mut out)
                .map(|_| 0);
            assert_eq!(written, Err(Error::PartitionBuffer { needed: len, found }));
        }
        for found in [0, 95, 191] {
            assert_eq!(
                Assembler::new(&plan, &mut vec![0; found]).map(|_| 0),
                small("buffer for the directory", 192, found)
            );
        }

        // Partitions that are missing, or too many.
        let mut out = vec![0; len];
        let written =
            plan.write_partition(Scalar, 0, &entries[..first], &mut scratch, &mut out).unwrap();
        assert_eq!(written.bytes(), len as u64);
        let mut directory = [0; 192];
        let mut assembler = Assembler::new(&plan, &mut directory).unwrap();
        assembler.push(&written).unwrap();
        assert_eq!(assembler.finish().map(|_| 0), small("number of partitions", 2, 1));
        let mut assembler = Assembler::new(&plan, &mut directory).unwrap();
        assembler.push(&written).unwrap();
        assembler.push(&written).unwrap();
        assert_eq!(
            assembler.push(&written),
            Err(Error::TooLarge { what: "partitions", expected: 2, found: 3 })
        );
    }
    let bytes = build(&fixed(Layout::Inline), &numbered(3, 8));
    let table = Table::open(&bytes).unwrap();
    for (keys, out) in [(1, 0), (0, 1), (33, 32), (2, 40)] {
        assert_eq!(
            table.get_batch(Scalar, &vec![[0; 8]; keys], &mut vec![None::<Value<'_>>; out]),
            Err(Error::BatchLength { expected: keys, found: out })
        );
        // As many hashes as answers, then as many as keys.
        for hashes in [out, keys] {
            let found = if hashes == keys { out } else { hashes };
            assert_eq!(
                table.get_batch(
                    Scalar,
                    HashedKeys { keys: &vec![[0; 8]; keys], hashes: &vec![0; hashes] },
                    &mut vec![None::<Value<'_>>; out]
                ),
                Err(Error::BatchLength { expected: keys, found })
            );
        }
    }
}
