//! The segment map against a list of its entries.

use std::collections::BTreeMap;

use pkhash_core::map::{Ask, MAX_MAP_SEGMENTS, MapEntry, MapLine, MapPart, MapPlan, SegmentMap};
use pkhash_core::{Error, GROUP_MAX, Kernel, Matches, Scalar};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = self.0;
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// A map's memory.
struct Memory {
    plan: MapPlan,
    parts: Vec<MapPart>,
    lines: Vec<MapLine>,
}

impl Memory {
    fn new(keys: &[(u64, u16)], segments: usize) -> Self {
        let plan = MapPlan::new(keys.len() as u64, segments).unwrap();
        let mut entries: Vec<MapEntry> =
            keys.iter().map(|(hash, segment)| MapEntry::new(*hash, *segment)).collect();
        entries.sort_unstable();
        let (mut parts, mut lines) = (Vec::new(), Vec::new());
        let mut rest = entries.as_slice();
        for part in 0..plan.parts() {
            let (mine, others) = rest.split_at(rest.partition_point(|e| plan.part(*e) <= part));
            rest = others;
            let first = lines.len();
            let len = plan.lines(mine).unwrap() as usize;
            // Whatever is in them before does not matter.
            lines.resize(first + len, [0xff; 64]);
            if let Some(short) = lines[first..].len().checked_sub(1) {
                let before = lines.clone();
                let found = plan.fill(mine, &mut lines[first..first + short]);
                let too_small = matches!(found, Err(Error::BufferTooSmall { .. }));
                // The last line may be one without entries.
                assert!(too_small || found.is_ok());
                lines = before;
            }
            let mine = plan.fill(mine, &mut lines[first..]).unwrap();
            parts.push(mine.moved_to(first as u32));
        }
        assert!(rest.is_empty());
        parts.push(SegmentMap::end(lines.len() as u32));
        Self { plan, parts, lines }
    }

    fn map(&self) -> SegmentMap<'_> {
        SegmentMap::new(&self.plan, &self.parts, &self.lines).unwrap()
    }
}

/// Asks for all keys and as many others. Returns how many segments were named by chance.
fn check(keys: &[(u64, u16)], segments: usize, rng: &mut Rng) -> usize {
    let memory = Memory::new(keys, segments);
    let map = memory.map();
    let mut of: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (hash, segment) in keys {
        of.entry(*hash).or_default().push((*segment).into());
    }
    for _ in 0..keys.len() {
        of.entry(rng.next()).or_default();
    }
    let hashes: Vec<u64> = of.keys().copied().collect();
    let mut by_chance = 0;
    for (hash, segments) in &mut of {
        segments.sort_unstable();
        let named: Vec<u32> = map.candidates(Scalar, *hash).collect();
        // Those of one hash are in order, among others. (Nobody relies on it.)
        let mut left = segments.as_slice();
        for segment in &named {
            match left.split_first() {
                Some((next, rest)) if next == segment => left = rest,
                _ => by_chance += 1,
            }
        }
        assert!(left.is_empty(), "{hash:x} is in {segments:?}, the map says {named:?}");
    }
    // The same in batches, with numbers and segments that are not wanted.
    let numbers: Vec<u32> =
        (0..segments as u32).map(|s| if s % 5 == 4 { u32::MAX } else { 1000 + s }).collect();
    for wanted in [0..u32::MAX, 1000..1000 + segments as u32 / 2, 1001..1001, 0..0] {
        for n in [0, 1, 15, 16, 17, 47, 48, 49, hashes.len()] {
            if n > 100_000 && wanted.start == 1000 {
                continue;
            }
            let hashes = &hashes[..n.min(hashes.len())];
            let mut asks = vec![Ask { key: u32::MAX, table: 7, more: true }; hashes.len() + 1];
            let asked = map.ask_batch_with(Scalar, hashes, &numbers, &wanted, &mut asks).unwrap();
            let mut asks = asks[..asked].to_vec();
            asks.sort_unstable_by_key(|ask| ask.key);
            let mut asks = asks.into_iter().peekable();
            for (key, hash) in hashes.iter().enumerate() {
                let named: Vec<u32> = map
                    .candidates(Scalar, *hash)
                    .map(|segment| numbers[segment as usize])
                    .filter(|number| wanted.contains(number))
                    .collect();
                let ask = asks.next_if(|ask| ask.key as usize == key);
                assert_eq!(ask.map(|ask| ask.table), named.first().copied());
                assert!(named.len() < 2 || ask.is_some_and(|ask| ask.more));
            }
            assert_eq!(asks.next(), None, "one ask for a key");
        }
    }
    if !hashes.is_empty() {
        let short = map.ask_batch_with(Scalar, &hashes, &numbers, &(0..9), &mut []);
        let (expected, found) = (hashes.len(), 0);
        assert_eq!(short, Err(Error::BatchLength { expected, found }));
    }
    by_chance
}

#[test]
fn random_keys() {
    let mut rng = Rng(1);
    for segments in [1, 2, 15, 255, 256, 257, 60_000, MAX_MAP_SEGMENTS] {
        for n in [0, 1, 2, 16, 17, 20, 21, 100, 5_000, 270_000] {
            // Enough for two parts.
            if n > 5_000 && segments != 15 {
                continue;
            }
            let keys: Vec<(u64, u16)> =
                (0..n).map(|_| (rng.next(), (rng.next() % segments as u64) as u16)).collect();
            let by_chance = check(&keys, segments, &mut rng);
            // 17 tags of 2^16 for each of the 2 n hashes: 1 in 1,900.
            assert!(by_chance <= 10 + n / 500, "{by_chance} of {n} named by chance");
        }
    }
}

#[test]
fn keys_that_crowd() {
    let mut rng = Rng(2);
    for segments in [15, 300, MAX_MAP_SEGMENTS] {
        let segment = |rng: &mut Rng| (rng.next() % segments as u64) as u16;
        // One hash in many segments, more than lines hold; and many hashes of one tag and home.
        let mut crowd: Vec<(u64, u16)> =
            (0..segments as u64).take(900).map(|i| (0xdead_beef_0bad_cafe, i as u16)).collect();
        crowd.extend((0..900u64).map(|i| (i << 16 | 0xcafe, segment(&mut rng))));
        crowd.extend((0..900).map(|_| (rng.next() | 0xffff_0000_0000_0000, segment(&mut rng))));
        crowd.extend((0..900).map(|_| (rng.next(), segment(&mut rng))));
        crowd.sort_unstable();
        crowd.dedup();
        check(&crowd, segments, &mut rng);
        // All in the last line of the last part.
        let last: Vec<(u64, u16)> =
            (0..500u64).map(|i| (u64::MAX - i, segment(&mut rng))).collect();
        check(&last, segments, &mut rng);
    }
}

/// The lines of 10 M keys: at most 4 bytes for each of up to 256 segments, and hardly a key that is
/// looked for in more lines than its home.
#[test]
fn maps_are_as_small_as_claimed() {
    let mut rng = Rng(3);
    let n = 1_000_000;
    for (segments, most) in [(15usize, 3.9), (300, 5.2)] {
        let keys: Vec<(u64, u16)> = (0..n).map(|i| (rng.next(), (i % segments) as u16)).collect();
        let memory = Memory::new(&keys, segments);
        let bytes = memory.lines.len() * 64 + memory.parts.len() * size_of::<MapPart>();
        let each = bytes as f64 / n as f64;
        assert!(each <= most, "{each} bytes for a key");
    }
}

#[test]
fn a_part_of_the_hashes() {
    let plan = MapPlan::new(1 << 22, 15).unwrap();
    let parts = plan.parts();
    assert!(parts > 1);
    let mut next = 0u64;
    for part in 0..parts {
        let (from, to) = plan.hashes(part..part + 1);
        assert_eq!(from, next);
        for hash in [from, to] {
            assert_eq!(plan.part(MapEntry::new(hash, 3)), part);
        }
        next = to.wrapping_add(1);
    }
    assert_eq!(next, 0);
    assert_eq!(plan.hashes(0..parts), (0, u64::MAX));
    assert_eq!(MapPlan::new(0, 0).unwrap().hashes(0..1), (0, u64::MAX));
}

#[test]
fn what_cannot_be_filled() {
    let plan = MapPlan::new(100, 15).unwrap();
    let mut lines = [[0; 64]; 9];
    let (low, high) = (MapEntry::new(1 << 40, 3), MapEntry::new(1 << 50, 3));
    assert_eq!(plan.fill(&[low, low, high, low], &mut lines), Err(Error::Unsorted { index: 3 }));
    let beyond = plan.fill(&[MapEntry::new(1, 14), MapEntry::new(1, 15)], &mut lines);
    let what = "segments of a segment map";
    assert_eq!(beyond, Err(Error::TooLarge { what, expected: 14, found: 15 }));
    assert!(plan.fill(&[low, low, high], &mut lines).is_ok());
    assert!(plan.fill(&[low, high], &mut []).is_err());
}

/// Hardly a key is looked for in other lines than its home.
#[test]
fn a_lookup_reads_one_line() {
    /// Counts the lines that are compared.
    #[derive(Clone, Copy)]
    struct Count<'c>(&'c std::cell::Cell<usize>);

    impl Kernel for Count<'_> {
        const WIDTH: u32 = Scalar::WIDTH;

        fn name(self) -> &'static str {
            "count"
        }

        fn match_group(self, group: &[u8; GROUP_MAX], control: u8) -> Matches {
            Scalar.match_group(group, control)
        }

        fn match_tags(self, line: &MapLine, tag: u16) -> u32 {
            self.0.set(self.0.get() + 1);
            Scalar.match_tags(line, tag)
        }

        fn prefetch(self, _: &[u8], _: usize) {}
    }

    let mut rng = Rng(5);
    let n = 200_000u32;
    for segments in [15, 300] {
        let keys: Vec<(u64, u16)> = (0..n).map(|i| (rng.next(), (i % 15) as u16)).collect();
        let memory = Memory::new(&keys, segments);
        let lines = std::cell::Cell::new(0);
        for (hash, _) in &keys {
            memory.map().candidates(Count(&lines), *hash).for_each(drop);
        }
        let present = lines.replace(0) as f64 / f64::from(n);
        for _ in 0..n {
            memory.map().candidates(Count(&lines), rng.next()).for_each(drop);
        }
        let absent = lines.get() as f64 / f64::from(n);
        assert!(present < 1.25 && absent < 1.12, "{present} lines for a key, {absent} for others");
    }
}

#[test]
fn limits() {
    assert!(MapPlan::new(u64::MAX, MAX_MAP_SEGMENTS).is_ok());
    let many = MapPlan::new(1, MAX_MAP_SEGMENTS + 1).unwrap_err();
    let what = "segments of a segment map";
    assert_eq!(many, Error::TooLarge { what, expected: 65_536, found: 65_537 });
    // Parts and lines that are not those of the plan name nothing, and never panic.
    let plan = MapPlan::new(1 << 20, 15).unwrap();
    assert!(SegmentMap::new(&plan, &[], &[]).is_err());
    let parts = vec![MapPart::default(); plan.parts() as usize + 1];
    let map = SegmentMap::new(&plan, &parts, &[]).unwrap();
    assert_eq!(map.candidates(Scalar, 5).count(), 0);
    let parts = vec![SegmentMap::end(u32::MAX); plan.parts() as usize + 1];
    let map = SegmentMap::new(&plan, &parts, &[[0xff; 64]; 3]).unwrap();
    let mut asks = [Ask::default(); 3];
    assert_eq!(map.ask_batch_with(Scalar, &[1, 2, 3], &[0; 15], &(0..9), &mut asks), Ok(0));
    // Lines of any bytes.
    let mut rng = Rng(4);
    for _ in 0..200 {
        let lines: Vec<MapLine> =
            (0..9).map(|_| std::array::from_fn(|_| rng.next() as u8)).collect();
        for segments in [15, 1000] {
            let plan = MapPlan::new(100, segments).unwrap();
            let parts = [MapPart::default(), SegmentMap::end(9)];
            let map = SegmentMap::new(&plan, &parts, &lines).unwrap();
            for _ in 0..50 {
                let hash = rng.next();
                assert!(map.candidates(Scalar, hash).count() <= 9 * 20);
                let mut asks = [Ask::default()];
                map.ask_batch_with(Scalar, &[hash], &[1; 15], &(0..9), &mut asks).unwrap();
            }
        }
    }
}
