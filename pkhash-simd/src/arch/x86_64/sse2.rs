//! SSE2: 16 slots at a time, on every x86-64 CPU.

use core::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
    _mm_set1_epi8, _mm_set1_epi16, _mm_setzero_si128,
};

use pkhash_core::segment_map::{LINE_TAGS, MapLine};
use pkhash_core::{GROUP_MAX, Matches};

kernel! {
    /// Proof that the CPU has SSE2.
    Sse2, "sse2", 16
}

#[target_feature(enable = "sse2")]
#[inline]
fn match_group(group: &[u8; GROUP_MAX], control: u8) -> Matches {
    // SAFETY: the group is 64 readable bytes, of which this loads 16; the load may be unaligned.
    let slots = unsafe { _mm_loadu_si128(group.as_ptr().cast::<__m128i>()) };
    let hits = _mm_cmpeq_epi8(slots, _mm_set1_epi8(control.cast_signed()));
    let empty = _mm_cmpeq_epi8(slots, _mm_setzero_si128());
    // The masks have 16 bits: no sign to extend.
    Matches {
        hits: u64::from(_mm_movemask_epi8(hits).cast_unsigned()),
        empty: u64::from(_mm_movemask_epi8(empty).cast_unsigned()),
    }
}

#[target_feature(enable = "sse2")]
#[inline]
fn match_tags(line: &MapLine, tag: u16) -> u32 {
    let tags = _mm_set1_epi16(tag.cast_signed());
    let compare = |at: usize| {
        let eight = line.as_ptr().wrapping_add(at).cast::<__m128i>();
        // SAFETY: the line is 64 readable bytes, and `at` is 0, 16 or 32; the load may be unaligned.
        _mm_cmpeq_epi16(unsafe { _mm_loadu_si128(eight) }, tags)
    };
    // Each lane is 0 or -1, which packing to bytes keeps. The last 4 of these 24 lanes are no tags.
    let low = _mm_movemask_epi8(_mm_packs_epi16(compare(0), compare(16)));
    let high = _mm_movemask_epi8(_mm_packs_epi16(compare(32), _mm_setzero_si128()));
    (low | high << 16).cast_unsigned()
}
