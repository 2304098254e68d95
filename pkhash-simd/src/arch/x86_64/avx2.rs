//! AVX2: 32 slots at a time.

use core::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
    _mm256_setzero_si256,
};

use pkhash_core::{GROUP_MAX, Matches};

/// Proof that the CPU has AVX2, BMI1 and BMI2, and that the operating system saves the YMM registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The CPU has AVX2, BMI1 and BMI2, and the operating system saves the YMM registers.
    pub(crate) const unsafe fn new_unchecked() -> Self {
        Self(())
    }
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

impl pkhash_core::Kernel for Avx2 {
    const WIDTH: u32 = 32;

    fn name(self) -> &'static str {
        "avx2"
    }

    #[inline(always)]
    fn match_group(self, group: &[u8; GROUP_MAX], control: u8) -> Matches {
        // SAFETY: the CPU has AVX2, as `self` proves (`new_unchecked`).
        unsafe { match_group(group, control) }
    }

    #[inline(always)]
    fn prefetch(self, data: &[u8], at: usize) {
        super::prefetch(data, at);
    }
}
