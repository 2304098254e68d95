//! AVX2: 32 slots at a time.

use core::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_cmpeq_epi16, _mm256_loadu_si256, _mm256_movemask_epi8,
    _mm256_packs_epi16, _mm256_permute4x64_epi64, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_setzero_si256,
};

use pkhash_core::segment_map::{LINE_TAGS, MapLine};
use pkhash_core::{GROUP_MAX, Matches};

kernel! {
    /// Proof that the CPU has AVX2, BMI1 and BMI2, and that the operating system saves the YMM registers.
    Avx2, "avx2", 32
}

#[target_feature(enable = "avx2")]
#[inline]
fn match_group(group: &[u8; GROUP_MAX], control: u8) -> Matches {
    // SAFETY: the group is 64 readable bytes, of which this loads 32; the load may be unaligned.
    let slots = unsafe { _mm256_loadu_si256(group.as_ptr().cast::<__m256i>()) };
    let hits = _mm256_cmpeq_epi8(slots, _mm256_set1_epi8(control.cast_signed()));
    let empty = _mm256_cmpeq_epi8(slots, _mm256_setzero_si256());
    Matches {
        hits: u64::from(_mm256_movemask_epi8(hits).cast_unsigned()),
        empty: u64::from(_mm256_movemask_epi8(empty).cast_unsigned()),
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn match_tags(line: &MapLine, tag: u16) -> u32 {
    let tags = _mm256_set1_epi16(tag.cast_signed());
    let compare = |at: usize| {
        let sixteen = line.as_ptr().wrapping_add(at).cast::<__m256i>();
        // SAFETY: the line is 64 readable bytes, and `at` is 0 or 32; the load may be unaligned.
        _mm256_cmpeq_epi16(unsafe { _mm256_loadu_si256(sixteen) }, tags)
    };
    // Each lane is 0 or -1, which packing to bytes keeps. It packs the halves of its vectors one by
    // one: their quarters are put in order again. The last 12 of these 32 lanes are no tags.
    let packed = _mm256_packs_epi16(compare(0), compare(32));
    let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
    _mm256_movemask_epi8(ordered).cast_unsigned()
}
