//! The kernels: a folder for each architecture, a file for each instruction set.

/// Makes the type of a kernel, a proof that the CPU has what `match_group` and `match_tags`
/// beside it need.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
macro_rules! kernel {
    ($(#[$docs:meta])* $kernel:ident, $name:literal, $width:literal) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $kernel(());

        impl $kernel {
            /// # Safety
            /// All that the type stands for is true.
            pub(crate) const unsafe fn new_unchecked() -> Self {
                Self(())
            }
        }

        impl pkhash_core::Kernel for $kernel {
            const WIDTH: u32 = $width;

            fn name(self) -> &'static str {
                $name
            }

            #[inline(always)]
            fn match_group(self, group: &[u8; GROUP_MAX], control: u8) -> Matches {
                // SAFETY: the CPU has the target features of `match_group`: `self` is the proof, which
                // was made by `new_unchecked`.
                unsafe { match_group(group, control) }
            }

            #[inline(always)]
            fn match_tags(self, line: &MapLine, tag: u16) -> u32 {
                // SAFETY: as above.
                unsafe { match_tags(line, tag) & ((1 << LINE_TAGS) - 1) }
            }

            #[inline(always)]
            fn prefetch(self, data: &[u8], at: usize) {
                super::prefetch(data, at);
            }
        }
    };
}

// Prefetch works in either byte order, the NEON kernel in one: the intrinsics of big-endian NEON number
// lanes in another order than memory (rust-lang/stdarch#1484).
#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
