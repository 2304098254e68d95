//! Kinds of IDs, and how they are spread over segments.

use clap::ValueEnum;

/// A kind of IDs.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Kind {
    /// 8 bytes that count.
    Sequential,
    /// Ten digits that count.
    ZeroPadded,
    /// Nanoseconds of a clock in base 36: 10 characters.
    Nanotime,
    /// Time and node: 16 bytes.
    UuidV1,
    /// Random: 16 bytes.
    UuidV4,
    /// Random, as text: 36 characters.
    UuidText,
    /// Time, machine and count, as of Boundary's server: 16 bytes.
    Flake,
    /// The same as Elasticsearch makes it, in base64: 20 characters.
    FlakeText,
    /// As products have them: 10 characters.
    Asin,
}

impl Kind {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(super) const fn key_len(self) -> usize {
        match self {
            Self::Sequential => 8,
            Self::ZeroPadded | Self::Nanotime | Self::Asin => 10,
            Self::UuidV1 | Self::UuidV4 | Self::Flake => 16,
            Self::FlakeText => 20,
            Self::UuidText => 36,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Shape {
    /// Segments of one size.
    Equal,
    /// What merging in tiers of ten leaves when each tier is nearly full: 7 big segments, 7 of a tenth of their
    /// size, and 8 of a hundredth, the newest.
    Tiered,
}

/// Segments of a tier and how large they are, the oldest first.
pub(super) const TIERS: [(usize, u64); 3] = [(7, 100), (7, 10), (8, 1)];

/// A shape, and where the docs of its segments begin and end, the oldest first.
pub(super) struct Docs {
    pub(super) shape: Shape,
    pub(super) bounds: Vec<u32>,
}

impl Docs {
    /// `None` if a segment would have no key.
    pub(super) fn new(shape: Shape, segments: u32, keys: u32) -> Option<Self> {
        let sizes: Vec<u64> = match shape {
            Shape::Equal => vec![1; segments as usize],
            Shape::Tiered => {
                TIERS.into_iter().flat_map(|(n, size)| std::iter::repeat_n(size, n)).collect()
            }
        };
        let all: u64 = sizes.iter().sum();
        let mut bounds = vec![0];
        let mut end = 0;
        for size in sizes {
            end += size;
            bounds.push((u128::from(keys) * u128::from(end) / u128::from(all)) as u32);
        }
        (u64::from(keys) >= all).then_some(Self { shape, bounds })
    }

    pub(super) fn segments(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Keys of the largest segment.
    pub(super) fn largest(&self) -> u32 {
        self.bounds.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }

    pub(super) fn name(&self) -> String {
        match self.shape {
            Shape::Equal => self.segments().to_string(),
            Shape::Tiered => TIERS.map(|(n, _)| n.to_string()).join("+"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    #[test]
    fn key_lengths() {
        // As long as the functions make them: `measure_kind` pairs them, and the compiler does not look.
        for (kind, len) in [
            (Kind::Sequential, ids::sequential(1, 0, false).len()),
            (Kind::ZeroPadded, ids::zero_padded(1, 0, false).len()),
            (Kind::Nanotime, ids::nanotime(1, 0, false).len()),
            (Kind::UuidV1, ids::uuid_v1(1, 0, false).len()),
            (Kind::UuidV4, ids::uuid_v4(1, 0, false).len()),
            (Kind::UuidText, ids::uuid_text(1, 0, false).len()),
            (Kind::Flake, ids::flake(1, 0, false).len()),
            (Kind::FlakeText, ids::flake_text(1, 0, false).len()),
            (Kind::Asin, ids::asin(1, 0, false).len()),
        ] {
            assert_eq!(kind.key_len(), len, "{}", kind.name());
        }
    }

    #[test]
    fn shapes() {
        for (segments, keys) in [(1, 1), (15, 15), (15, 1_000_000), (3, u32::MAX), (65_536, 65_537)]
        {
            let docs = Docs::new(Shape::Equal, segments, keys).unwrap();
            assert_eq!(docs.segments(), segments as usize);
            assert_eq!((docs.bounds[0], docs.bounds[segments as usize]), (0, keys));
            let mut sizes = docs.bounds.windows(2).map(|ends| ends[1] - ends[0]);
            let largest = docs.largest();
            assert!(sizes.all(|size| size > 0 && largest - size <= 1));
        }
        let docs = Docs::new(Shape::Tiered, 0, 778_000).unwrap();
        let sizes: Vec<u32> = docs.bounds.windows(2).map(|ends| ends[1] - ends[0]).collect();
        assert_eq!(sizes, [[100_000; 7].as_slice(), &[10_000; 7], &[1000; 8]].concat());
        assert_eq!(docs.name(), "7+7+8");
        for keys in [778, 779, u32::MAX] {
            let docs = Docs::new(Shape::Tiered, 0, keys).unwrap();
            assert!(docs.bounds.is_sorted_by(|a, b| a < b) && docs.bounds[22] == keys);
        }
        assert!(Docs::new(Shape::Tiered, 0, 777).is_none());
        assert!(Docs::new(Shape::Equal, 16, 15).is_none());
    }
}
