//! What is merged when.

use super::*;

fn sizes(keys: impl IntoIterator<Item = u64>) -> Vec<SegmentInfo> {
    keys.into_iter().map(|keys| SegmentInfo { keys, deleted: 0 }).collect()
}

/// Merges as proposed until nothing is. Returns the keys that were written.
fn settle(policy: &TieredPolicy, segments: &mut Vec<SegmentInfo>) -> u128 {
    let mut written = 0;
    let mut merges = 0;
    while let Some(chosen) = policy.propose(segments) {
        assert!(chosen.len() >= 2 && chosen.len() <= policy.segments_per_tier.max(2), "{chosen:?}");
        assert!(chosen.is_sorted_by(|a, b| a < b), "{chosen:?}");
        if policy.neighbours {
            assert!(chosen.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{chosen:?}");
        }
        let keys: u64 = chosen.iter().map(|i| segments[*i].keys - segments[*i].deleted).sum();
        assert!(keys <= policy.max_merged_keys);
        written += u128::from(keys);
        for i in chosen[1..].iter().rev() {
            segments.remove(*i);
        }
        segments[chosen[0]] = SegmentInfo { keys, deleted: 0 };
        merges += 1;
        assert!(merges < 10_000, "no end");
    }
    written
}

#[test]
fn the_policy_proposes_nothing_where_nothing_is_to_do() {
    for neighbours in [false, true] {
        let policy = TieredPolicy::default().neighbours(neighbours);
        for segments in [
            vec![],
            sizes([1_000_000]),
            // One alone is not merged, however many of its keys are deleted.
            vec![SegmentInfo { keys: 1000, deleted: 1000 }],
            sizes(vec![50_000; 10]),
            // Too large to be merged with another.
            sizes(vec![60_000_000; 40]),
            // The largest is not eligible: nothing to merge the wasteful one with.
            vec![
                SegmentInfo { keys: 90, deleted: 60 },
                SegmentInfo { keys: 80_000_000, deleted: 0 },
            ],
        ] {
            assert_eq!(policy.propose(&segments), None, "{segments:?}");
        }
    }
}

#[test]
fn the_policy_prefers_segments_of_like_size_and_many_deletes() {
    let policy = TieredPolicy::default().segments_per_tier(4).floor_keys(1);
    let with = |neighbours| policy.neighbours(neighbours);
    // Four of like size among others.
    let mut like = sizes(vec![1_000_000; 60]);
    like.splice(20..20, sizes([50_000, 900, 1000, 1100, 950, 30_000]));
    like.push(SegmentInfo { keys: 980, deleted: 0 });
    assert_eq!(with(true).propose(&like), Some(vec![21, 22, 23, 24]));
    // The same and another: four of the five.
    let chosen = with(false).propose(&like).unwrap();
    assert!(chosen.len() == 4 && chosen.iter().all(|i| like[*i].keys <= 1100), "{chosen:?}");
    // As many live keys everywhere, and deleted ones somewhere.
    let mut deletes = sizes(vec![1000; 20]);
    deletes[9..13].fill(SegmentInfo { keys: 1100, deleted: 100 });
    for neighbours in [false, true] {
        assert_eq!(with(neighbours).propose(&deletes), Some(vec![9, 10, 11, 12]));
    }
    // Deletes alone are reason enough.
    let mut few = sizes([1000, 1000, 1000]);
    assert_eq!(policy.propose(&few), None);
    few[2].deleted = 331;
    assert!(policy.propose(&few).unwrap().contains(&2));
    few[2].deleted = 330;
    assert_eq!(policy.propose(&few), None);
    // More deleted than there are: all.
    few[2].deleted = u64::MAX;
    assert!(policy.propose(&few).unwrap().contains(&2));
}

#[test]
fn the_policy_converges() {
    for neighbours in [false, true] {
        let policy = TieredPolicy::default()
            .segments_per_tier(10)
            .max_merged_keys(1_000_000)
            .floor_keys(1)
            .max_deleted_percent(33)
            .neighbours(neighbours);
        // An index that grows: a key is written once for each tier (1,000, 10,000, … 1,000,000), and
        // there are few segments at any time.
        let (mut segments, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..4000 {
            segments.insert(0, SegmentInfo { keys: 1000, deleted: 0 });
            written += settle(&policy, &mut segments);
            let small = segments.iter().filter(|segment| segment.keys <= 500_000).count();
            most = most.max(small);
        }
        assert_eq!(segments.iter().map(|segment| segment.keys).sum::<u64>(), 4_000_000);
        assert!(most <= 40, "{most} segments");
        assert!(written <= 4 * 4_000_000, "{written} keys written");
        // Whatever there is, it comes to an end.
        let mut rng = Rng(9);
        for _ in 0..200 {
            let mut segments: Vec<SegmentInfo> = (0..rng.below(60))
                .map(|_| {
                    let keys = rng.next() >> (40 + rng.below(24));
                    SegmentInfo { keys, deleted: [0, keys / 3, keys][rng.below(3)] }
                })
                .collect();
            settle(&policy, &mut segments);
            assert_eq!(policy.propose(&segments), None);
        }
        // Options that make no sense do no harm.
        for (segments_per_tier, max_merged_keys, floor_keys) in
            [(0, 0, 0), (1, u64::MAX, u64::MAX), (usize::MAX, 7, 0), (0, u64::MAX, 0)]
        {
            let odd = TieredPolicy::default()
                .segments_per_tier(segments_per_tier)
                .max_merged_keys(max_merged_keys)
                .floor_keys(floor_keys)
                .max_deleted_percent(255)
                .neighbours(neighbours);
            settle(&odd, &mut sizes([0, 0, 0, 1, 2, 3, 1 << 60, 1 << 62, 5]));
            let _ = odd.propose(&sizes(vec![u64::MAX; 5]));
        }
    }
}
