//! AVX-512BW: 64 slots at a time, a whole cache line, compared straight into masks.

use core::arch::x86_64::{
    __m512i, _mm512_cmpeq_epi8_mask, _mm512_cmpeq_epi16_mask, _mm512_loadu_si512, _mm512_set1_epi8,
    _mm512_set1_epi16, _mm512_testn_epi8_mask,
};

use pkhash_core::segment_map::{LINE_TAGS, MapLine};
use pkhash_core::{GROUP_MAX, Matches};

kernel! {
    /// Proof that the CPU has AVX-512F, AVX-512BW, AVX2, FMA, F16C, BMI1 and BMI2, and that the operating system saves the
    /// ZMM and mask registers.
    Avx512, "avx512", 64
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn match_group(group: &[u8; GROUP_MAX], control: u8) -> Matches {
    // SAFETY: the group is 64 readable bytes; the load may be unaligned.
    let slots = unsafe { _mm512_loadu_si512(group.as_ptr().cast::<__m512i>()) };
    Matches {
        hits: _mm512_cmpeq_epi8_mask(slots, _mm512_set1_epi8(control.cast_signed())),
        empty: _mm512_testn_epi8_mask(slots, slots),
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn match_tags(line: &MapLine, tag: u16) -> u32 {
    // SAFETY: the line is 64 readable bytes; the load may be unaligned.
    let all = unsafe { _mm512_loadu_si512(line.as_ptr().cast::<__m512i>()) };
    // The last 12 of these 32 lanes are no tags.
    _mm512_cmpeq_epi16_mask(all, _mm512_set1_epi16(tag.cast_signed()))
}
