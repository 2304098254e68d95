//! The only place where CPU features are read.
//!
//! On x86-64 the crate `cpufeatures` asks CPUID without std, and for the vector registers XGETBV too:
//! a CPU that has them under an operating system that does not save them counts as one that has not.
//! (On bare metal the program is the operating system: until it has enabled the registers, they are
//! not found, and SSE2 is used.) The answer is remembered in an atomic.
//!
//! SSE2 and NEON are part of every x86-64 and AArch64 target, but for those that are compiled without
//! a floating-point unit (`x86_64-unknown-none`, `aarch64-unknown-none-softfloat`): kernels of
//! operating systems, which must not touch the registers of the programs they interrupt. There, the
//! scalar kernel is all there is, whatever CPUID says.

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        use crate::arch::x86_64::{Avx2, Avx512, Sse2};

        const VECTOR_REGISTERS: bool = cfg!(target_feature = "sse2");

        cpufeatures::new!(has_avx2, "avx2", "bmi1", "bmi2");
        // With AVX-512F the compiler takes AVX2, FMA and F16C for granted; a hypervisor may hide them.
        cpufeatures::new!(has_avx512, "avx512f", "avx512bw", "avx2", "fma", "bmi1", "bmi2");

        /// The SSE2 kernel, if it can run here.
        #[inline]
        pub(crate) const fn sse2() -> Option<Sse2> {
            if VECTOR_REGISTERS {
                // SAFETY: the program was compiled for CPUs that have SSE2.
                Some(unsafe { Sse2::new_unchecked() })
            } else {
                None
            }
        }

        /// The AVX2 kernel, if it can run here.
        #[inline]
        pub(crate) fn avx2() -> Option<Avx2> {
            // SAFETY: all that `Avx2` stands for was just detected, registers included.
            (VECTOR_REGISTERS && has_avx2::get()).then(|| unsafe { Avx2::new_unchecked() })
        }

        /// The AVX-512 kernel, if it can run here.
        #[inline]
        pub(crate) fn avx512() -> Option<Avx512> {
            // SAFETY: all that `Avx512` stands for was just detected, registers included.
            (VECTOR_REGISTERS && has_avx512::get()).then(|| unsafe { Avx512::new_unchecked() })
        }
    } else if #[cfg(all(target_arch = "aarch64", target_endian = "little"))] {
        use crate::arch::aarch64::Neon;

        /// The NEON kernel, if it can run here.
        #[inline]
        pub(crate) const fn neon() -> Option<Neon> {
            if cfg!(target_feature = "neon") {
                // SAFETY: the program was compiled for CPUs that have NEON.
                Some(unsafe { Neon::new_unchecked() })
            } else {
                None
            }
        }
    }
}
