//! IDs of the kinds that documents have in the field, each a function of a seed, a number, and whether the ID
//! is to be absent.
//!
//! All IDs of a kind and seed differ: those that are in tables, of any number, and the absent ones. So an
//! absent ID is surely not in a table, though it looks like those that are: times of their time, numbers
//! of their length.

/// Makes an ID of `L` bytes: `make(seed, number, absent)`.
pub(crate) type Make<const L: usize> = fn(u64, u32, bool) -> [u8; L];

/// When the first ID with a time in it was made, in ms since 1970: 2024-01-01T00:00:00Z.
const BEGIN_MS: u64 = 1_704_067_200_000;

/// IDs that are made in a ms, where an ID has no finer time.
const PER_MS: u64 = 10;

/// Beyond the number of every ID that is present.
const ABSENT: u64 = 1 << 32;

const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// SplitMix64: the number of a stream at a place.
pub(crate) const fn random(seed: u64, at: u64) -> u64 {
    let x = seed.wrapping_add(at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The same one-to-one: a permutation of the numbers of so many bits, at most 63.
const fn permute(seed: u64, at: u64, bits: u32) -> u64 {
    let (mask, half) = ((1 << bits) - 1, bits / 2);
    let mut x = (at ^ random(seed, 0)) & mask;
    let mut round = 0;
    while round < 3 {
        // Odd factors and shifts to the right lose nothing.
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask;
        x ^= x >> half;
        round += 1;
    }
    x
}

const fn numbered(number: u32, absent: bool) -> u64 {
    number as u64 + if absent { ABSENT } else { 0 }
}

/// Time goes on by `step` with each ID, up to a random part of a step. The last moment of each step is for
/// the absent ones.
const fn time(seed: u64, number: u32, absent: bool, step: u64) -> u64 {
    let within = if absent { step - 1 } else { random(seed, number as u64) % (step - 1) };
    number as u64 * step + within
}

/// 0, 1, 2 … in 8 bytes, the highest first.
pub(crate) fn sequential(_: u64, number: u32, absent: bool) -> [u8; 8] {
    numbered(number, absent).to_be_bytes()
}

/// 0000000000, 0000000001 … in ten digits.
pub(crate) fn zero_padded(_: u64, number: u32, absent: bool) -> [u8; 10] {
    let mut text = [0; 10];
    digits(numbered(number, absent), 10, &mut text);
    text
}

/// The nanoseconds of a clock that began a week ago, an ID every 0.7 µs, in base 36.
pub(crate) fn nanotime(seed: u64, number: u32, absent: bool) -> [u8; 10] {
    // From the first number to the last, this and what all IDs take has ten digits.
    const BEGIN_NS: u64 = 600_000_000_000_000;
    let mut text = [0; 10];
    digits(BEGIN_NS + time(seed, number, absent, 700), 36, &mut text);
    text
}

/// UUID version 1, of RFC 9562: made on one node, one every 0.7 µs.
pub(crate) fn uuid_v1(seed: u64, number: u32, absent: bool) -> [u8; 16] {
    // From the beginning of the Gregorian calendar to 1970, in units of 100 ns.
    const GREGORIAN: u64 = 0x01b2_1dd2_1381_4000;
    let time = GREGORIAN + BEGIN_MS * 10_000 + time(seed, number, absent, 7);
    let (low, mid, high) = (time as u32, (time >> 32) as u16, (time >> 48) as u16);
    let clock = random(!seed, 0) as u16;
    let mut id = [0; 16];
    id[..4].copy_from_slice(&low.to_be_bytes());
    id[4..6].copy_from_slice(&mid.to_be_bytes());
    id[6..8].copy_from_slice(&(high & 0x0fff | 0x1000).to_be_bytes());
    id[8..10].copy_from_slice(&(clock & 0x3fff | 0x8000).to_be_bytes());
    id[10..].copy_from_slice(&node(seed));
    // A node that is no network card has the multicast bit.
    id[10] |= 1;
    id
}

/// UUID version 4, of RFC 9562: random.
pub(crate) fn uuid_v4(seed: u64, number: u32, absent: bool) -> [u8; 16] {
    // One-to-one are the 62 bits behind the variant.
    let low = permute(seed, numbered(number, absent), 62) | 1 << 63;
    let high = random(seed, low) & !0xf000 | 0x4000;
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// [`uuid_v4`] as text.
pub(crate) fn uuid_text(seed: u64, number: u32, absent: bool) -> [u8; 36] {
    let bits = u128::from_be_bytes(uuid_v4(seed, number, absent));
    let mut text = [b'-'; 36];
    let mut left = 128;
    for (i, out) in text.iter_mut().enumerate() {
        if !matches!(i, 8 | 13 | 18 | 23) {
            left -= 4;
            *out = BASE36[(bits >> left) as usize % 16];
        }
    }
    text
}

/// Flake IDs as Boundary's server made them: 64 bits of ms, 48 of the machine, 16 that count within a ms; the
/// highest byte first.
pub(crate) fn flake(seed: u64, number: u32, absent: bool) -> [u8; 16] {
    let (ms, count) = (u64::from(number) / PER_MS, u64::from(number) % PER_MS);
    let count = count + if absent { PER_MS } else { 0 };
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(BEGIN_MS + ms).to_be_bytes());
    id[8..14].copy_from_slice(&node(seed));
    id[14..].copy_from_slice(&(count as u16).to_be_bytes());
    id
}

/// Flake IDs as Elasticsearch gives them to documents without an ID: 15 bytes (48 bits of ms, 48 of the machine,
/// 24 that count on and on), in an order of bytes that suits its sorted dictionary, as 20 characters of
/// base64url without padding.
pub(crate) fn flake_text(seed: u64, number: u32, absent: bool) -> [u8; 20] {
    // Of the same ms, and half a round of the counter away from those that are present.
    let count = (random(!seed, 1) >> 32) + u64::from(number) + if absent { 1 << 23 } else { 0 };
    let [.., c2, c1, c0] = count.to_be_bytes();
    let [.., t5, t4, t3, t2, t1, t0] = (BEGIN_MS + u64::from(number) / PER_MS).to_be_bytes();
    let [m0, m1, m2, m3, m4, m5] = node(seed);
    let id = [c0, c2, t2, t3, t4, t5, m0, m1, m2, m3, m4, m5, t1, c1, t0];
    let mut text = [0; 20];
    for (out, bytes) in text.chunks_exact_mut(4).zip(id.chunks_exact(3)) {
        let bits = bytes.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        for (i, out) in out.iter_mut().enumerate() {
            *out = BASE64URL[bits >> (18 - 6 * i) & 63];
        }
    }
    text
}

/// Ten digits and capitals, as the numbers of a shop's products: B0, and eight random ones.
pub(crate) fn asin(seed: u64, number: u32, absent: bool) -> [u8; 10] {
    const ALL: u64 = 36u64.pow(8);
    // Of the permutation's 42 bits, those that are such a number: the next one in the cycle until it is.
    let mut product = permute(seed, numbered(number, absent), 42);
    while product >= ALL {
        product = permute(seed, product, 42);
    }
    let mut text = *b"B0........";
    digits(product, 36, &mut text[2..]);
    text.make_ascii_uppercase();
    text
}

/// The 6 bytes of a machine.
const fn node(seed: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = random(!seed, 2).to_be_bytes();
    [a, b, c, d, e, f]
}

/// Fills `text` with the last digits of a number, in a base of at most 36.
fn digits(mut number: u64, base: u64, text: &mut [u8]) {
    for digit in text.iter_mut().rev() {
        *digit = BASE36[(number % base) as usize];
        number /= base;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Numbers at the ends and between, neighbours among them.
    fn numbers() -> Vec<u32> {
        let ends =
            (0..3000).chain((1 << 31) - 20..(1 << 31) + 20).chain(u32::MAX - 3000..=u32::MAX);
        // Half a round of the counters of 24 bits apart, and a whole one.
        let counters = (1 << 23) - 50..(1 << 23) + 50;
        ends.chain(counters).chain((1 << 24) - 50..(1 << 24) + 50).collect()
    }

    /// IDs of all numbers, those that are present and those that are absent: all differ, for every seed.
    /// Returns the present ones of seed 1.
    fn check<const L: usize>(make: Make<L>) -> Vec<[u8; L]> {
        for seed in [0, 1, 2, u64::MAX, 0x0123_4567_89ab_cdef] {
            let mut seen = HashSet::new();
            for number in numbers() {
                for absent in [false, true] {
                    let id = make(seed, number, absent);
                    assert!(seen.insert(id), "{seed} {number} {absent}: {}", id.escape_ascii());
                    assert_eq!(id, make(seed, number, absent));
                }
            }
        }
        numbers().into_iter().map(|number| make(1, number, false)).collect()
    }

    /// As [`check`], for a kind whose IDs rise with their numbers.
    fn check_rising<const L: usize>(make: Make<L>) -> Vec<[u8; L]> {
        let ids = check(make);
        let mut numbered: Vec<_> = numbers().into_iter().zip(&ids).collect();
        numbered.sort_unstable();
        assert!(numbered.is_sorted_by(|(_, a), (_, b)| a < b));
        ids
    }

    fn number<const L: usize>(id: [u8; L], base: u32) -> u64 {
        u64::from_str_radix(std::str::from_utf8(&id).unwrap(), base).unwrap()
    }

    fn be(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    #[test]
    fn sequential_numbers() {
        let ids = check_rising(sequential);
        for (id, n) in ids.into_iter().zip(numbers()) {
            assert_eq!(be(&id), u64::from(n));
        }
        let ids = check_rising(zero_padded);
        for (id, n) in ids.into_iter().zip(numbers()) {
            assert_eq!(id, format!("{n:010}").as_bytes());
        }
        // Absent ones have ten digits, too.
        assert_eq!(&zero_padded(1, u32::MAX, true), b"8589934591");
        assert_eq!(sequential(1, 5, true), (5u64 + (1 << 32)).to_be_bytes());
    }

    #[test]
    fn nanotimes() {
        for id in check_rising(nanotime) {
            assert!(id[0] != b'0' && id.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'z')));
        }
        // An absent one lies between its neighbours.
        let times = [(7, false), (7, true), (8, false)].map(|(n, a)| number(nanotime(3, n, a), 36));
        assert!(times.is_sorted_by(|a, b| a < b) && times[2] - times[0] < 1400);
    }

    #[test]
    fn uuids_of_version_1() {
        let ids = check(uuid_v1);
        let time =
            |id: &[u8; 16]| (be(&id[6..8]) & 0xfff) << 48 | be(&id[4..6]) << 32 | be(&id[..4]);
        for (id, n) in ids.iter().zip(numbers()) {
            assert_eq!(id[6] >> 4, 1, "version");
            assert_eq!(id[8] >> 6, 0b10, "variant");
            assert_eq!(id[10] & 1, 1, "multicast");
            assert_eq!(id[8..], ids[0][8..], "one clock and one node");
            // 2024-01-01 in units of 100 ns: 19,723 days after 1970, which is 141,427 after 1582-10-15.
            let begin = (19_723 + 141_427) * 86_400 * 10_000_000;
            let since = time(id) - begin;
            assert_eq!(since / 7, u64::from(n));
        }
        let mut times: Vec<_> = numbers().into_iter().zip(ids.iter().map(time)).collect();
        times.sort_unstable();
        assert!(times.is_sorted_by(|(_, a), (_, b)| a < b));
        // The absent ones are of the same time and node.
        let (absent, present) = (uuid_v1(1, 7, true), uuid_v1(1, 8, false));
        assert!(time(&absent) < time(&present) && absent[8..] == present[8..]);
    }

    #[test]
    fn uuids_of_version_4() {
        let ids = check(uuid_v4);
        let (mut ones, mut texts) = ([0u32; 128], Vec::new());
        for (id, n) in ids.iter().zip(numbers()) {
            assert_eq!(id[6] >> 4, 4, "version");
            assert_eq!(id[8] >> 6, 0b10, "variant");
            let bits = u128::from_be_bytes(*id);
            (0..128).for_each(|bit| ones[bit] += (bits >> bit & 1) as u32);
            let hex = format!("{bits:032x}");
            let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            texts.push(parts.join("-"));
            assert_eq!(uuid_text(1, n, false), texts[texts.len() - 1].as_bytes());
        }
        assert_eq!(check(uuid_text).len(), texts.len());
        // All bits but those of version and variant are random.
        for (bit, ones) in ones.into_iter().enumerate() {
            let share = f64::from(ones) / ids.len() as f64;
            let fixed = matches!(bit, 62 | 63 | 76..=79);
            assert!(fixed || (0.45..0.55).contains(&share), "bit {bit}: {share}");
        }
    }

    #[test]
    fn flakes() {
        let ids = check_rising(flake);
        for (id, n) in ids.iter().zip(numbers()) {
            assert_eq!(be(&id[..8]), 1_704_067_200_000 + u64::from(n) / 10, "ms");
            assert_eq!(id[8..14], ids[0][8..14], "one machine");
            assert_eq!(be(&id[14..]), u64::from(n) % 10, "count");
        }
        let absent = flake(1, 7, true);
        assert!(absent[..14] == flake(1, 7, false)[..14] && absent[14..] == [0, 17]);
    }

    #[test]
    fn flakes_as_text() {
        let ids = check(flake_text);
        let value = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => panic!("{c} is not of base64url"),
        };
        let decode = |id: &[u8; 20]| -> [u8; 15] {
            let bits = id.iter().fold(0u128, |bits, c| bits << 6 | u128::from(value(*c)));
            bits.to_be_bytes()[1..].try_into().unwrap()
        };
        let first = decode(&ids[0]);
        for (id, n) in ids.iter().zip(numbers()) {
            let id = decode(id);
            let ms = be(&[id[5], id[4], id[3], id[2], id[12], id[14]]);
            assert_eq!(ms, 1_704_067_200_000 + u64::from(n) / 10, "ms");
            assert_eq!(id[6..12], first[6..12], "one machine");
            let count = |id: &[u8; 15]| be(&[id[1], id[13], id[0]]);
            assert_eq!(count(&id), (count(&first) + u64::from(n)) % (1 << 24), "count");
        }
        let (present, absent) = (flake_text(1, 7, false), flake_text(1, 7, true));
        assert_eq!(decode(&present)[2..13], decode(&absent)[2..13]);
    }

    #[test]
    fn product_numbers() {
        for id in check(asin) {
            assert!(id.starts_with(b"B0"));
            assert!(
                id.iter().all(|c| matches!(c, b'0'..=b'9' | b'A'..=b'Z')),
                "{}",
                id.escape_ascii()
            );
        }
        assert_ne!(asin(1, 0, false), asin(2, 0, false));
    }

    #[test]
    fn permutations() {
        for seed in 0..20 {
            for bits in [2, 7, 10, 12] {
                let mut all: Vec<u64> = (0..1 << bits).map(|x| permute(seed, x, bits)).collect();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..1 << bits), "seed {seed}, {bits} bits");
            }
        }
    }
}
