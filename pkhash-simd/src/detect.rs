//! The only place where CPU features are read.
//!
//! The crate `cpufeatures` asks CPUID without std, and for the vector registers also XGETBV: a CPU
//! that has them under an operating system that does not save them counts as one that has not.

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        use crate::arch::x86_64::Avx2;

        cpufeatures::new!(has_avx2, "avx2");

        /// The AVX2 kernel, if it can run here. Detected once, then remembered.
        #[inline]
        pub(crate) fn avx2() -> Option<Avx2> {
            // SAFETY: just detected, registers included.
            has_avx2::get().then(|| unsafe { Avx2::new_unchecked() })
        }
    }
}
