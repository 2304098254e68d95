//! NEON: 32 slots at a time.

use core::arch::aarch64::{
    uint8x8_t, uint8x16_t, vandq_u8, vceqq_u8, vceqq_u16, vceqzq_u8, vcombine_u8, vdup_n_u8,
    vdupq_n_u8, vdupq_n_u16, vgetq_lane_u64, vld1q_u8, vmovn_u16, vpaddq_u8, vreinterpretq_u16_u8,
    vreinterpretq_u64_u8,
};

use pkhash_core::segment_map::{LINE_TAGS, MapLine};
use pkhash_core::{GROUP_MAX, Matches};

kernel! {
    /// Proof that the CPU has NEON.
    Neon, "neon", 32
}

/// The bit of each slot in its byte of a mask.
static BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// NEON has no instruction that gathers the results of a compare in a mask. Three pairwise additions
/// of weighted bytes do it, and they take two vectors at a time: so 32 slots, hits and empty slots
/// together, fill one 64-bit word with four additions, where 16 slots would take six for two masks.
#[target_feature(enable = "neon")]
#[inline]
fn match_group(group: &[u8; GROUP_MAX], control: u8) -> Matches {
    // SAFETY: `BITS` is 16 readable bytes.
    let bits = unsafe { vld1q_u8(BITS.as_ptr()) };
    let [low, high, ..] = group.as_chunks::<16>().0 else { return Matches::default() };
    // SAFETY: `low` is 16 readable bytes.
    let low = unsafe { vld1q_u8(low.as_ptr()) };
    // SAFETY: `high` is 16 readable bytes.
    let high = unsafe { vld1q_u8(high.as_ptr()) };
    let control = vdupq_n_u8(control);
    let weigh = |compared: uint8x16_t| vandq_u8(compared, bits);
    let hits = vpaddq_u8(weigh(vceqq_u8(low, control)), weigh(vceqq_u8(high, control)));
    let empty = vpaddq_u8(weigh(vceqzq_u8(low)), weigh(vceqzq_u8(high)));
    let sums = vpaddq_u8(hits, empty);
    let mask = vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)));
    Matches { hits: mask & 0xffff_ffff, empty: mask >> 32 }
}

#[target_feature(enable = "neon")]
#[inline]
fn match_tags(line: &MapLine, tag: u16) -> u32 {
    let tags = vdupq_n_u16(tag);
    // Each lane is 0 or -1, which its lower half keeps.
    let compare = |at: usize| -> uint8x8_t {
        // SAFETY: the line is 64 readable bytes, and `at` is 0, 16 or 32.
        let eight = unsafe { vld1q_u8(line.as_ptr().wrapping_add(at)) };
        // The tags are little-endian, and so is this target: see `arch/mod.rs`.
        vmovn_u16(vceqq_u16(vreinterpretq_u16_u8(eight), tags))
    };
    // SAFETY: `BITS` is 16 readable bytes.
    let bits = unsafe { vld1q_u8(BITS.as_ptr()) };
    let low = vandq_u8(vcombine_u8(compare(0), compare(16)), bits);
    // The last 4 of these 24 lanes are no tags.
    let high = vandq_u8(vcombine_u8(compare(32), vdup_n_u8(0)), bits);
    let sums = vpaddq_u8(low, high);
    let sums = vpaddq_u8(sums, sums);
    let mask = vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)));
    mask as u32
}
