//! Which segments to merge.

/// What a policy has to know of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Keys of the table, those of deleted docs included.
    pub keys: u64,
    /// Keys whose doc is deleted; more than `keys` count as all.
    pub deleted: u64,
}

impl SegmentInfo {
    /// What a merge would keep.
    const fn live(self) -> u64 {
        self.keys.saturating_sub(self.deleted)
    }

    /// The facts of a segment. Deleted docs are taken for deleted keys, as is right if each doc has one
    /// key.
    #[must_use]
    pub fn of(segment: &super::Segment) -> Self {
        let keys = segment.table().footer().keys();
        let deleted = segment.live_docs().map_or(0, |live| live.deleted().into());
        Self { keys, deleted }
    }
}

/// A small tiered merge policy, after Lucene's: segments of like size are merged, so that a key is written
/// again once for each tier, and there are few segments of each size. It proposes; the caller decides.
///
/// Sizes are in keys whose docs are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TieredPolicy {
    /// How many segments of one size are left alone, and the most that are merged into one; at least 2.
    pub segments_per_tier: usize,
    /// No proposal has more live keys.
    pub max_merged_keys: u64,
    /// A smaller segment counts as one of so many keys: it is not worth while to tell apart very small ones.
    pub floor_keys: u64,
    /// A segment with a greater share of deleted keys, in percent, is merged even if there are not too many
    /// segments.
    pub max_deleted_percent: u8,
    /// Propose neighbours only, so that the newest match goes on to win: see
    /// [`SegmentSet::merged`](super::SegmentSet::merged). Without it, segments of like size, wherever
    /// they are: for who deletes the old doc of a key whenever a new one is added.
    pub neighbours: bool,
}

impl Default for TieredPolicy {
    /// 10 segments of a size, merged to at most 100 M keys.
    fn default() -> Self {
        Self {
            segments_per_tier: 10,
            max_merged_keys: 100_000_000,
            floor_keys: 10_000,
            max_deleted_percent: 33,
            neighbours: true,
        }
    }
}

pkhash_core::setters!(TieredPolicy {
    segments_per_tier: usize,
    max_merged_keys: u64,
    floor_keys: u64,
    max_deleted_percent: u8,
    neighbours: bool,
});

/// A merge that could be proposed: the lower the better.
#[derive(Clone, Copy)]
struct Scored {
    score: f64,
    first: usize,
    len: usize,
}

impl TieredPolicy {
    /// The segments that should be merged next, by their numbers, in order: at least two. `None`: there are
    /// not too many segments, or none may be merged.
    ///
    /// Whoever merges what is proposed and asks again comes to an end: each merge leaves fewer segments.
    #[must_use]
    pub fn propose(&self, segments: &[SegmentInfo]) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..segments.len()).collect();
        if !self.neighbours {
            // Stable, so that the proposal depends on nothing but the segments.
            order.sort_by_key(|i| std::cmp::Reverse(segments[*i].live()));
        }
        let too_many = self.eligible(segments) > self.allowed(segments);
        let best = (0..order.len())
            .filter_map(|first| self.best_from(segments, &order[first..], first, too_many))
            .min_by(|a, b| a.score.total_cmp(&b.score))?;
        let mut chosen = order[best.first..best.first + best.len].to_vec();
        chosen.sort_unstable();
        Some(chosen)
    }

    fn at_once(&self) -> usize {
        self.segments_per_tier.max(2)
    }

    fn size(&self, segment: SegmentInfo) -> u64 {
        segment.live().max(self.floor_keys).max(1)
    }

    /// Whether so many of its keys are deleted that it should be merged for that alone.
    fn is_wasteful(&self, segment: SegmentInfo) -> bool {
        let (keys, deleted) = (u128::from(segment.keys), u128::from(segment.deleted));
        deleted.min(keys) * 100 > keys * u128::from(self.max_deleted_percent)
    }

    /// Whether a segment is so small that it can be merged with one of its size.
    fn is_eligible(&self, segment: SegmentInfo) -> bool {
        segment.live() <= self.max_merged_keys / 2
    }

    fn eligible(&self, segments: &[SegmentInfo]) -> usize {
        segments.iter().filter(|segment| self.is_eligible(**segment)).count()
    }

    /// How many segments the live keys make up if no tier has too many: those of the smallest size first.
    fn allowed(&self, segments: &[SegmentInfo]) -> usize {
        let eligible = || segments.iter().filter(|segment| self.is_eligible(**segment));
        let sizes = eligible().map(|segment| self.size(*segment));
        let Some(mut size) = sizes.clone().min() else { return 0 };
        let mut left = sizes.fold(0, u64::saturating_add);
        let per_tier = self.at_once() as u64;
        let mut allowed = 0;
        loop {
            let fit = left.div_ceil(size);
            let next = size.saturating_mul(per_tier);
            if fit <= per_tier || next > self.max_merged_keys {
                return usize::try_from(allowed + fit).unwrap_or(usize::MAX);
            }
            allowed += per_tier;
            left -= per_tier * size;
            size = next;
        }
    }

    /// The best merge that begins with the first of `order`.
    fn best_from(
        &self,
        segments: &[SegmentInfo],
        order: &[usize],
        first: usize,
        too_many: bool,
    ) -> Option<Scored> {
        let (mut keys, mut live, mut sizes, mut largest) = (0u128, 0u64, 0f64, 0u64);
        let mut wasteful = false;
        let mut best: Option<Scored> = None;
        for (i, number) in order.iter().take(self.at_once()).enumerate() {
            let segment = segments[*number];
            live = live.saturating_add(segment.live());
            if !self.is_eligible(segment) || live > self.max_merged_keys {
                break;
            }
            keys += u128::from(segment.keys);
            sizes += self.size(segment) as f64;
            largest = largest.max(self.size(segment));
            wasteful |= self.is_wasteful(segment);
            if i == 0 || !(too_many || wasteful) {
                continue;
            }
            // As in Lucene: even sizes first (1 / number of segments, if all are equal), small merges a
            // little before large ones, and those that get rid of many deleted keys well before others.
            let kept = if keys == 0 { 1.0 } else { live as f64 / keys as f64 };
            let score = largest as f64 / sizes * sizes.powf(0.05) * kept * kept;
            let len = i + 1;
            if best.is_none_or(|best| score < best.score) {
                best = Some(Scored { score, first, len });
            }
        }
        best
    }
}
