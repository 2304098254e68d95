//! Keys made for their hash: XXH3 is no cryptographic hash, and for short keys it can be turned back.
//! What chance would show in one table of 2^40, a few keys show here.

/// The first bytes of XXH3's own secret.
const SECRET: [u8; 64] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
];

/// What a word of a key is combined with: two words of the secret.
fn flip(at: usize) -> u64 {
    super::raw::get(&SECRET, at, 8) ^ super::raw::get(&SECRET, at + 8, 8)
}

/// The inverse of an odd number modulo 2^64.
fn inverse(odd: u64) -> u64 {
    // Each round doubles the number of bits that are right, 3 to begin with.
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// The key of 8 bytes that has this hash with seed 0.
pub fn key_of_hash(hash: u64) -> [u8; 8] {
    let unmultiply = inverse(0x9fb2_1c65_1e98_df25);
    let mut h = (hash ^ hash >> 28 ^ hash >> 56).wrapping_mul(unmultiply);
    h = (h ^ ((h >> 35) + 8)).wrapping_mul(unmultiply);
    // A step that is the identity if it is done 64 times.
    for _ in 0..63 {
        h ^= h.rotate_left(49) ^ h.rotate_left(24);
    }
    // The key's first 4 bytes are the upper half.
    (h ^ flip(8)).rotate_left(32).to_le_bytes()
}

/// Up to 6 keys of 16 bytes that share a hash with seed 0; others for each `i`.
pub fn keys_of_one_hash(n: u64, i: u64) -> Vec<[u8; 16]> {
    // With `low` and `high` the halves of the key, the hash is a function of their sum, one of them
    // turned round, plus their product. With small numbers for `low` that is linear.
    let high = |sum: u64, low: u64| sum.wrapping_sub(low << 56) / (low + 1);
    let fits = |sum: u64, low: u64| (low << 56) + (low + 1) * high(sum, low) == sum;
    let sum = ((16 << 56) + 1000 * i..)
        .find(|sum| (0..n).all(|low| fits(*sum, low)))
        .expect("one in 60 fits");
    (0..n)
        .map(|low| {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&(low ^ flip(24)).to_le_bytes());
            key[8..].copy_from_slice(&(high(sum, low) ^ flip(40)).to_le_bytes());
            key
        })
        .collect()
}

/// `n` ≤ 2^20 keys that meet with seed 0: with one home slot (the first), one control byte and one tag in tables
/// of one partition and up to 2^17 keys, and in one bucket of any perfect partition whose seed is 0.
pub fn keys_that_meet(n: u64) -> impl Iterator<Item = [u8; 8]> {
    // The bits between home and control byte are nobody's, and the lowest ones of the home do not move it.
    (0..n).map(|i| key_of_hash((i >> 10) << 33 | (i & 0x3ff) << 23 | 0x5a_beef))
}

/// `n` keys that meet in one bucket of any perfect partition whose seed is 0, and that another seed spreads well.
pub fn keys_of_one_bucket(n: u32) -> impl Iterator<Item = [u8; 8]> {
    // The finalizer of MurmurHash3: different numbers stay different.
    let mix = |i: u32| {
        let x = (i ^ i >> 16).wrapping_mul(0x85eb_ca6b);
        let x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
        x ^ x >> 16
    };
    (0..n).map(move |i| key_of_hash(0x1234_5678 << 32 | u64::from(mix(i))))
}

/// `n` ≤ 2^20 keys that meet in one bucket, or two, with every other seed of a perfect partition.
pub fn keys_that_meet_with_other_seeds(n: u64) -> impl Iterator<Item = [u8; 8]> {
    // The step from one hash to the next undoes the multiplier of those seeds: FORMAT.md, §3.1.2.
    let step = inverse(0xd6e8_feb8_6659_fd93);
    let hash = move |i: u64| 0x1234_5678_9abc_def0u64.wrapping_add(i.wrapping_mul(step));
    (0..n).map(move |i| key_of_hash(hash(i)))
}

/// `n` keys of 32 bytes with one hash, with seed 0.
pub fn many_keys_of_one_hash(n: u64) -> impl Iterator<Item = [u8; 32]> {
    // The first 8 bytes are those of the secret, so that the next 8 are multiplied by 0.
    (0..n).map(|i| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&SECRET[..8]);
        key[8..16].copy_from_slice(&i.to_be_bytes());
        key
    })
}
