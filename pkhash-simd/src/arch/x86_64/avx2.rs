//! AVX2: 32 slots at a time.

use core::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
    _mm256_setzero_si256,
};

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
