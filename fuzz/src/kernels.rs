//! Every kernel against loops: groups of control bytes, lines of tags, segment maps, and batches over many
//! tables.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use arbitrary::Arbitrary;
use pkhash_core::segment_map::{Ask, LINE_TAGS, MAP_LINE, MAX_RUN, MapEntry, MapPlan, SegmentMap};
use pkhash_core::{Error, GROUP_MAX, Kernel as _, Matches, Scalar, Table, get_batch_of};
use pkhash_simd::AnyKernel;

use crate::{How, Key, common};

/// What a kernel compares, and what is made of that.
#[derive(Arbitrary, Debug)]
pub enum Compared {
    Groups(Groups),
    Map(Map),
    Asked(Asked),
}

/// Every kernel finds what a loop finds.
pub fn kernels(compared: &Compared) {
    match compared {
        Compared::Groups(groups) => groups.check(),
        Compared::Map(map) => map.check(),
        Compared::Asked(asked) => asked.check(),
    }
}

/// Control bytes, or a line of tags.
#[derive(Arbitrary, Debug)]
pub struct Groups {
    group: [u8; GROUP_MAX],
    /// Few values, so that there are matches.
    values: [u8; 4],
    control: u8,
    tag: u16,
}

impl Groups {
    fn check(&self) {
        let few = self.group.map(|byte| self.values[usize::from(byte) % 4]);
        for group in [&self.group, &few] {
            check_group(group, self.control | 0x80);
            // One that is there, and one that need not be.
            let at = 2 * (usize::from(self.control) % LINE_TAGS);
            for tag in [u16::from_le_bytes([group[at], group[at + 1]]), self.tag] {
                check_line(group, tag);
            }
        }
    }
}

fn check_group(group: &[u8; GROUP_MAX], control: u8) {
    for kernel in AnyKernel::available() {
        let (width, found) = kernel.match_group(group, control);
        let mut expected = Matches::default();
        for (i, byte) in group.iter().enumerate().take(width as usize) {
            expected.hits |= u64::from(*byte == control) << i;
            expected.empty |= u64::from(*byte == 0) << i;
        }
        assert_eq!(found, expected, "{}", kernel.name());
    }
}

fn check_line(line: &[u8; MAP_LINE], tag: u16) {
    let tags = line.chunks_exact(2).take(LINE_TAGS).map(|two| u16::from_le_bytes([two[0], two[1]]));
    let expected = tags.enumerate().fold(0, |hits, (i, found)| hits | u32::from(found == tag) << i);
    assert_eq!(Scalar.match_tags(line, tag), expected);
    for kernel in AnyKernel::available() {
        assert_eq!(kernel.match_tags(line, tag), expected, "{}", kernel.name());
    }
}

/// The entries of a segment map, and what it is asked.
#[derive(Arbitrary, Debug)]
pub struct Map {
    /// How many segments there are, but for 1.
    segments: u16,
    /// How many entries the plan is told, as a power of two: more of them make more parts.
    planned: u8,
    /// Of the homes.
    seed: u64,
    entries: Vec<Entries>,
    absent: Vec<Hash>,
    /// For some segments, which table they are of a snapshot; further ones are as they are.
    numbers: Vec<u32>,
    wanted: Range<u32>,
    /// More room for asks than hashes.
    room: u8,
}

/// Entries of one hash.
#[derive(Arbitrary, Debug)]
struct Entries {
    hash: Hash,
    first: u16,
    /// How many segments have it, but for 1: now and then so many that they fill lines.
    more: u8,
    step: u8,
}

/// A hash.
#[derive(Arbitrary, Debug)]
enum Hash {
    Whole(u64),
    /// Of few homes and tags, so that they meet.
    Few(u8),
}

impl Hash {
    fn get(&self) -> u64 {
        match self {
            Self::Whole(hash) => *hash,
            Self::Few(few) => {
                let (home, tag) = (u64::from(few >> 4), u64::from(few & 15));
                // The upper half chooses the home; tags from 0 to 65,535, each with a spill bit of its own.
                home << 60 | 0x0123_4567_0000_0000 | (tag * 0x1111)
            }
        }
    }
}

impl Map {
    /// Every entry is found, those of one hash in the order of their segments; what else is found has the
    /// same tag at least, unless it is every segment; and all kernels ask for the same one.
    fn check(&self) {
        let segments = usize::from(self.segments) + 1;
        let mut entries: Vec<(u64, u16)> = Vec::new();
        for Entries { hash, first, more, step } in self.entries.iter().take(200) {
            let segment = |i| ((usize::from(*first) + i * usize::from(*step)) % segments) as u16;
            entries.extend((0..=usize::from(*more)).map(|i| (hash.get(), segment(i))));
        }
        entries.truncate(20_000);
        let plan = MapPlan::new(1 << (self.planned % 24), segments)
            .expect("not too many segments")
            .with_seed(self.seed);
        let mut sorted: Vec<MapEntry> =
            entries.iter().map(|(hash, segment)| plan.entry(*hash, *segment)).collect();
        sorted.sort_unstable();
        let (mut parts, mut lines, mut rest) = (Vec::new(), Vec::new(), sorted.as_slice());
        for part in 0..plan.parts() {
            let (mine, others) = rest.split_at(rest.partition_point(|e| plan.part(*e) <= part));
            rest = others;
            let needed = plan.lines(mine).expect("not too many lines") as usize;
            if let Some(fewer) = needed.checked_sub(1).filter(|_| !mine.is_empty()) {
                let few = plan.fill(mine, &mut vec![[0xff; MAP_LINE]; fewer]);
                // Lines that are only homes may be missing: no entry lies there.
                assert!(few.is_ok() || matches!(few, Err(Error::BufferTooSmall { .. })));
            }
            let mut filled = vec![[0xff; MAP_LINE]; needed];
            let first = lines.len() as u32;
            parts.push(plan.fill(mine, &mut filled).expect("lines enough").moved_to(first));
            lines.append(&mut filled);
            let (from, to) = plan.hashes(part..part + 1);
            assert!(entries.iter().all(|(hash, segment)| {
                let is_mine = plan.part(plan.entry(*hash, *segment)) == part;
                is_mine == (from..=to).contains(hash)
            }));
        }
        assert!(rest.is_empty());
        parts.push(SegmentMap::end(lines.len() as u32));
        let map = SegmentMap::new(&plan, &parts, &lines).expect("all parts");
        assert!(SegmentMap::new(&plan, &parts[1..], &lines).is_err());

        // All bits of a hash may count for its home, and its tag is its lowest ones.
        let mut by_hash: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let mut by_tag: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        for (hash, segment) in &entries {
            by_hash.entry(*hash).or_default().push((*segment).into());
            by_tag.entry(*hash as u16).or_default().insert((*segment).into());
        }
        for segments in by_hash.values_mut() {
            segments.sort_unstable();
            // Where keys crowd, each is named at least once.
            segments.dedup();
        }
        let absent = self.absent.iter().take(200).map(Hash::get);
        let present: BTreeSet<u64> = entries.iter().map(|entry| entry.0).collect();
        let hashes: Vec<u64> = present.into_iter().chain(absent).collect();
        let candidates: Vec<Vec<u32>> =
            hashes.iter().map(|hash| map.candidates(Scalar, *hash).collect()).collect();
        let every: Vec<u32> = (0..segments as u32).collect();
        for (hash, candidates) in hashes.iter().zip(&candidates) {
            let mut left = candidates.iter();
            for expected in by_hash.get(hash).into_iter().flatten() {
                assert!(left.any(|found| found == expected), "{expected} of {hash:#x}");
            }
            let like = by_tag.get(&(*hash as u16));
            let is_like = |segment| like.is_some_and(|like| like.contains(segment));
            let is_every = candidates.ends_with(&every);
            assert!(is_every || candidates.iter().all(is_like), "{hash:#x}");
            assert!(is_every || candidates.len() <= entries.len());
            assert!(candidates.len() <= every.len() + (MAX_RUN as usize + 1) * LINE_TAGS);
        }
        self.check_asks(&map, &hashes, &candidates, segments);
    }

    fn check_asks(
        &self,
        map: &SegmentMap<'_>,
        hashes: &[u64],
        candidates: &[Vec<u32>],
        segments: usize,
    ) {
        let given = self.numbers.iter().copied();
        let numbers: Vec<u32> = given.chain(0..).zip(0..segments).map(|(n, _)| n).collect();
        // From nowhere to anywhere, and all that are as they are.
        for wanted in [self.wanted.clone(), 0..segments as u32, 0..u32::MAX] {
            let mut before: Option<Vec<Ask>> = None;
            for kernel in AnyKernel::available() {
                let mut asks = vec![Ask::default(); hashes.len() + usize::from(self.room)];
                let asked = kernel.ask_batch(map, hashes, &numbers, &wanted, &mut asks);
                asks.truncate(asked.expect("room for all"));
                asks.sort_unstable_by_key(|ask| ask.key);
                let mut found = asks.iter();
                for (key, candidates) in (0..).zip(candidates) {
                    let named = candidates.iter().map(|c| numbers[*c as usize]);
                    let named: BTreeSet<u32> = named.filter(|n| wanted.contains(n)).collect();
                    let Some(least) = named.first() else { continue };
                    let ask = found.next().expect("an ask for each key that has a candidate");
                    assert_eq!(ask.key, key, "{}", kernel.name());
                    assert!(named.contains(&ask.table), "{}", kernel.name());
                    assert!(ask.more || named.len() == 1, "{}", kernel.name());
                    assert!(ask.lesser || ask.table == *least, "{}", kernel.name());
                }
                assert_eq!(found.next(), None, "{}", kernel.name());
                let before = before.get_or_insert_with(|| asks.clone());
                assert_eq!(*before, asks, "{}", kernel.name());
                if let Some(few) = hashes.len().checked_sub(1) {
                    let mut asks = vec![Ask::default(); few];
                    let error = kernel.ask_batch(map, hashes, &numbers, &wanted, &mut asks);
                    let (expected, found) = (hashes.len(), few);
                    assert_eq!(error, Err(Error::BatchLength { expected, found }));
                }
            }
        }
    }
}

/// Tables, and a batch over them.
#[derive(Arbitrary, Debug)]
pub struct Asked {
    tables: Vec<Made>,
    /// Whether all tables are of one kind, so that the batch is staged.
    perfect: bool,
    absent: Vec<Key>,
    /// Key and table.
    asks: Vec<(u8, u8)>,
}

/// A table.
#[derive(Arbitrary, Debug)]
struct Made {
    keys: Vec<Key>,
    how: How,
    /// Bytes of the body that are changed afterwards.
    damage: Vec<(u16, u8)>,
}

impl Asked {
    /// What each ask alone gives is what the batch gives.
    fn check(&self) {
        let Some(hasher) = self.tables.first().map(|made| made.how.hasher()) else { return };
        let (mut keys, mut tables, mut damaged) = (BTreeSet::new(), Vec::new(), false);
        for Made { keys: held, how, damage } in self.tables.iter().take(6) {
            let mut options = how.options(hasher);
            if self.perfect {
                options.layout = crate::PERFECT;
            }
            let held: BTreeSet<Vec<u8>> = held.iter().take(300).map(Key::bytes).collect();
            let pairs: Vec<common::Pair> =
                (0..).zip(&held).map(|(i, key)| (key.clone(), crate::value(i, &options))).collect();
            let Ok(mut bytes) = common::try_build(&options, &pairs) else { continue };
            let body = common::raw::directory(&bytes);
            for (at, value) in damage.iter().take(4).filter(|_| body > 0) {
                let byte = &mut bytes[usize::from(*at) % body];
                damaged |= byte != value;
                *byte = *value;
            }
            keys.extend(held);
            // Its magic may be among the bytes.
            if Table::open(&bytes).is_ok() {
                tables.push(bytes);
            } else {
                assert!(!damage.is_empty());
            }
        }
        keys.extend(self.absent.iter().take(100).map(Key::bytes));
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let hashes: Vec<u64> = keys.iter().map(|key| hasher.hash(key)).collect();
        let tables: Vec<Table<'_>> =
            tables.iter().map(|bytes| Table::open(bytes).expect("as before")).collect();
        let tables: Vec<&Table<'_>> = tables.iter().collect();
        let all = keys.len() * tables.len();
        let mut asks: Vec<Ask> = (0..all.min(2000))
            .map(|i| Ask {
                key: (i % keys.len()) as u32,
                table: (i / keys.len()) as u32,
                ..Ask::default()
            })
            .collect();
        asks.extend(self.asks.iter().take(300).map(|(key, table)| Ask {
            // One more than there are.
            key: (usize::from(*key) % (keys.len() + 1)) as u32,
            table: (usize::from(*table) % (tables.len() + 1)) as u32,
            ..Ask::default()
        }));
        let is_there =
            |ask: &Ask| (ask.key as usize) < keys.len() && (ask.table as usize) < tables.len();
        let stranger = asks.iter().find(|ask| !is_there(ask)).copied();
        if let Some(stranger) = stranger {
            for kernel in AnyKernel::available() {
                let mut out = vec![None; asks.len()];
                let error = get_batch_of(kernel, &tables, &asks, &keys, &hashes, &mut out);
                let (what, expected, found) = match stranger.key as usize {
                    key if key >= keys.len() => ("keys", keys.len(), key),
                    _ => ("tables", tables.len(), stranger.table as usize),
                };
                assert_eq!(error, Err(Error::NoSuchAsk { what, expected, found }));
            }
            asks.retain(is_there);
        }
        let singles: Result<Vec<_>, Error> = asks
            .iter()
            .map(|ask| {
                let (key, table) = (ask.key as usize, &tables[ask.table as usize]);
                table.get_hashed(Scalar, hashes[key], &keys[key])
            })
            .collect();
        assert!(singles.is_ok() || damaged);
        let mut before = None;
        for kernel in AnyKernel::available() {
            let mut out = vec![None; asks.len()];
            let found = get_batch_of(kernel, &tables, &asks, &keys, &hashes, &mut out);
            if let (Ok(found), Ok(singles)) = (&found, &singles) {
                assert_eq!(*found, out.iter().flatten().count());
                for (single, out) in singles.iter().zip(&out) {
                    // Filters are not asked: a damaged one hides nothing here.
                    assert!(single == out || (damaged && single.is_none()), "{}", kernel.name());
                }
            }
            assert!(found.is_ok() || damaged);
            assert!(found.is_err() || singles.is_ok());
            let answers = found.map(|_| out);
            let before = before.get_or_insert_with(|| answers.clone());
            assert_eq!(before.is_ok(), answers.is_ok(), "{}", kernel.name());
            assert!(answers.is_err() || *before == answers, "{}", kernel.name());
        }
    }
}
