//! The segment map against a list of its entries.

use std::collections::BTreeMap;

use pkhash_core::segment_map::{
    Ask, MAX_MAP_SEGMENTS, MAX_RUN, MapEntry, MapLine, MapPart, MapPlan, SegmentMap,
};
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
    fn new(keys: &[(u64, u16)], segments: usize, seed: u64) -> Self {
        let plan = MapPlan::new(keys.len() as u64, segments).unwrap().with_seed(seed);
        let mut entries: Vec<MapEntry> =
            keys.iter().map(|(hash, segment)| plan.entry(*hash, *segment)).collect();
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

impl Memory {
    /// What the map names for a hash, and the lines that it reads for that.
    fn named(&self, hash: u64) -> (Vec<u32>, usize) {
        let lines = std::cell::Cell::new(0);
        let named = self.map().candidates(Count(&lines), hash).collect();
        (named, lines.get())
    }
}

/// Asks for all keys and as many others. Returns how many segments were named by chance.
fn check(keys: &[(u64, u16)], segments: usize, rng: &mut Rng) -> usize {
    let seeds = [rng.next(), 0];
    // One is enough for many.
    let seeds = &seeds[..if keys.len() > 100_000 { 1 } else { 2 }];
    seeds.iter().map(|seed| check_seed(keys, segments, *seed, rng)).max().unwrap()
}

fn check_seed(keys: &[(u64, u16)], segments: usize, seed: u64, rng: &mut Rng) -> usize {
    let memory = Memory::new(keys, segments, seed);
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
        segments.dedup();
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
            let mut asks =
                vec![Ask { key: u32::MAX, table: 7, more: true, lesser: true }; hashes.len() + 1];
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
                assert_eq!(ask.is_some(), !named.is_empty());
                if let Some(ask) = ask {
                    assert!(named.contains(&ask.table));
                    assert!(ask.more || named.iter().all(|table| *table == ask.table));
                    assert!(ask.lesser || named.iter().all(|table| *table >= ask.table));
                    assert!(ask.more || !ask.lesser);
                }
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
    for segments in [15, 300, 2000] {
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
        let memory = Memory::new(&keys, segments, rng.next());
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
            assert_eq!(plan.part(plan.entry(hash, 3)), part);
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
    let (low, high) = (plan.entry(1 << 40, 3), plan.entry(1 << 50, 3));
    assert_eq!(plan.fill(&[low, low, high, low], &mut lines), Err(Error::Unsorted { index: 3 }));
    let beyond = plan.fill(&[plan.entry(1, 14), plan.entry(1, 15)], &mut lines);
    let what = "segments of a segment map";
    assert_eq!(beyond, Err(Error::TooLarge { what, expected: 14, found: 15 }));
    assert!(plan.fill(&[low, low, high], &mut lines).is_ok());
    assert!(plan.fill(&[low, high], &mut []).is_err());
}

/// Hardly a key is looked for in other lines than its home.
#[test]
fn a_lookup_reads_one_line() {
    let mut rng = Rng(5);
    let n = 200_000u32;
    for segments in [15, 300] {
        let keys: Vec<(u64, u16)> = (0..n).map(|i| (rng.next(), (i % 15) as u16)).collect();
        let memory = Memory::new(&keys, segments, rng.next());
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

/// Hashes of which somebody has chosen where they meet in a map of this seed.
fn crafted(seed: u64, i: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let factor = seed | 1;
    // Each round doubles the number of bits that are right, 3 to begin with.
    let inverse =
        (0..5).fold(factor, |x, _| x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x))));
    i.into_iter().map(|i| i.wrapping_mul(inverse)).collect()
}

const CROWD: u64 = 100_000;

/// A hundred thousand keys of one home: found, with what a lookup reads bounded, theirs and those of others; and others
/// hardly notice. (That building does not take longer is tested beside it.)
#[test]
fn a_hundred_thousand_keys_of_one_home() {
    let mut rng = Rng(6);
    let innocent: Vec<u64> = (0..CROWD).map(|_| rng.next()).collect();
    let absent: Vec<u64> = (0..10_000).map(|_| rng.next()).collect();
    let tail = |i: u64| (i << 20) & 0xffff_0000 | i & 0xffff;
    for (segments, seed) in [(15, rng.next()), (300, 0)] {
        for home in [0u64, 0x1234_5678 << 32, 0xffff_ffff << 32] {
            // Tags of all kinds; one tag; one hash.
            let crowds = [
                crafted(seed, (0..CROWD).map(|i| home | tail(i))),
                crafted(seed, (0..CROWD).map(|i| home | i << 16 & 0xffff_ffff)),
                crafted(seed, vec![home; CROWD as usize]),
            ];
            for crowd in crowds {
                let all = crowd.iter().chain(&innocent);
                let keys: Vec<(u64, u16)> =
                    all.zip(0..).map(|(hash, i)| (*hash, (i % segments) as u16)).collect();
                let memory = Memory::new(&keys, segments, seed);
                let (mut read, mut every) = (0, 0);
                for (i, (hash, segment)) in keys.iter().enumerate().step_by(10) {
                    let (named, lines) = memory.named(*hash);
                    assert!(named.contains(&(*segment).into()), "{hash:x}");
                    assert!(lines <= MAX_RUN as usize + 1, "{lines} lines");
                    if i >= crowd.len() {
                        read += lines;
                        every += usize::from(named.len() >= segments);
                    }
                }
                for hash in &absent {
                    let (named, lines) = memory.named(*hash);
                    assert!(lines <= MAX_RUN as usize + 1);
                    read += lines;
                    every += usize::from(named.len() >= segments);
                }
                let each = read as f64 / 2e4;
                // One home of 12,000, of which each has one or two of them.
                assert!(each < 1.15 && every < 20, "{each} lines, {every} ask every segment");
                // As a batch.
                let hashes = &crowd[..1000];
                let numbers: Vec<u32> = (0..segments as u32).collect();
                let mut asks = vec![Ask::default(); hashes.len()];
                let wanted = 3..segments as u32;
                let map = memory.map();
                let lines = std::cell::Cell::new(0);
                let asked = map.ask_batch_with(Count(&lines), hashes, &numbers, &wanted, &mut asks);
                assert_eq!(asked, Ok(hashes.len()));
                assert!(asks.iter().all(|ask| ask.more && ask.lesser && ask.table >= 3));
                assert!(lines.get() <= hashes.len() * (MAX_RUN as usize + 1));
            }
        }
    }
}

/// Homes that are a little too full one after the other push each other on: no further than the bound.
#[test]
fn a_region_of_homes_that_are_too_full() {
    let mut rng = Rng(7);
    for (segments, most) in [(15, 20), (300, 15)] {
        // By how much, and of how many tags.
        for (more, tags) in [(1, 0xffff), (1, 0), (10, 0xffff), (10, 0), (500, 0xffff), (500, 0)] {
            let homes = CROWD.div_ceil(most + more);
            let region = 1u64 << 62;
            let width = (1u64 << 63) / homes;
            let crowd = (0..CROWD).map(|i| region + i % homes * width + (rng.next() & tags));
            let mut keys: Vec<(u64, u16)> =
                crowd.map(|hash| (hash, (hash % segments) as u16)).collect();
            keys.extend((0..CROWD).map(|i| (rng.next(), (i % segments) as u16)));
            let memory = Memory::new(&keys, segments as usize, 0);
            for (hash, segment) in keys.iter().step_by(7) {
                let (named, lines) = memory.named(*hash);
                assert!(named.contains(&(*segment).into()), "{hash:x}");
                assert!(lines <= MAX_RUN as usize + 1, "{lines} lines");
            }
            for _ in 0..10_000 {
                assert!(memory.named(rng.next()).1 <= MAX_RUN as usize + 1);
            }
        }
    }
}

/// Keys that crowd with one seed of the map are as good as any with another.
#[test]
fn the_seed_of_a_map_spreads_keys() {
    let mut rng = Rng(8);
    for seed in [0, rng.next()] {
        let crowd = crafted(seed, (0..CROWD).map(|i| 0x5a5a_5a5a << 32 | i));
        let keys: Vec<(u64, u16)> = crowd.into_iter().zip((0..15).cycle()).collect();
        let every = |seed| {
            let memory = Memory::new(&keys, 15, seed);
            let named = keys.iter().map(|(hash, _)| memory.named(*hash));
            named.filter(|(named, lines)| named.len() >= 15 || *lines > 4).count()
        };
        assert_eq!(every(seed), CROWD as usize);
        let other = every(rng.next());
        assert!(other < 100, "{other} keys crowd with another seed");
    }
}

/// A key that is in every segment is named with all of them, and what is near it stays so.
#[test]
fn keys_that_many_segments_have() {
    let mut rng = Rng(9);
    for (segments, copies) in [(200usize, 200u64), (1000, 900), (1000, 1000), (20_000, 20_000)] {
        let keys: Vec<(u64, u16)> = (0..2)
            .flat_map(|_| {
                let hash = rng.next();
                (0..copies).map(move |i| (hash, i as u16))
            })
            .collect();
        check(&keys, segments, &mut rng);
        let memory = Memory::new(&keys, segments, 0);
        for (hash, _) in keys.iter().step_by(copies as usize) {
            let (named, lines) = memory.named(*hash);
            assert!(named.len() >= copies as usize && lines <= MAX_RUN as usize + 1);
        }
    }
}
