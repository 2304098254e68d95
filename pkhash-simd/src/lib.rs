//! Vector kernels for pkhash, and the choice among them.
//!
//! A lookup compares groups of control bytes; this crate does that with the vector unit of the CPU,
//! and prefetches. The lookup itself is in `pkhash-core`, once and generic: here it is compiled again
//! inside a `#[target_feature]` function for each kernel that needs more than the target has, and
//! [`AnyKernel`] picks one of those functions **once per call**, never per group.
//!
//! ```
//! use pkhash_core::Table;
//! use pkhash_simd::AnyKernel;
//!
//! # fn demo(bytes: &[u8]) -> Result<(), pkhash_core::Error> {
//! let kernel = AnyKernel::detect();
//! let table = Table::open(bytes)?;
//! if let Some(value) = table.get(kernel, b"some key")? {
//!     println!("{:?} (found with {})", value.doc_id(), kernel.name());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! * `scalar`: [`AnyKernel::detect`] answers [`AnyKernel::scalar`]. The vector kernels still compile and can
//!   be asked for by name. Features of a crate add up over a whole program, so this one is for final
//!   binaries only.
//!
//! # Unsafe code
//!
//! `unsafe` is needed to call a `#[target_feature]` function, to load a vector, and to prefetch. The first
//! needs one fact, that the CPU has the feature. A value of a kernel type such as `Avx2` is the proof: its
//! one constructor is `unsafe`, and only detection calls it. The second needs as many readable bytes as the
//! vector has: every load is from a reference to an array, of a size that the compiler knows. The third needs
//! nothing.
//!
//! All blocks (`.ci/deny` compares this table with the sources):
//!
//! | file | blocks | what | why it is sound | who sees to it |
//! | --- | --- | --- | --- | --- |
//! | `detect.rs` | 2 | make `Sse2`, `Neon` | the program was compiled for CPUs that have it | `cfg!(target_feature)`, right before |
//! | `detect.rs` | 2 | make `Avx2`, `Avx512` | the CPU has all features of the type, and the operating system saves the registers | `cpufeatures` (CPUID and XGETBV), right before |
//! | `dispatch.rs` | 2 | enter the `#[target_feature]` functions of AVX2 and AVX-512, once per call | the CPU has the features of the module | the kernel, which is an argument: all features of a module are among those that its type stands for |
//! | `arch/mod.rs` | 1 | `match_group`, of every vector kernel | the CPU has the features of the function | `self`, which is a value of the kernel's type |
//! | `arch/mod.rs` | 1 | `match_tags`, of every vector kernel | the same | the same |
//! | `arch/x86_64/sse2.rs` | 1 | load 16 control bytes | they are the first of 64 readable ones; unaligned is allowed | the type `&[u8; 64]` |
//! | `arch/x86_64/sse2.rs` | 1 | load 8 tags of a line | 16 bytes from 0, 16 or 32 on lie in 64 readable ones; unaligned is allowed | the type `&[u8; 64]`, and the three calls of the closure |
//! | `arch/x86_64/avx2.rs` | 1 | load 32 control bytes | as with SSE2 | the type `&[u8; 64]` |
//! | `arch/x86_64/avx2.rs` | 1 | load 16 tags of a line | 32 bytes from 0 or 32 on lie in 64 readable ones; unaligned is allowed | the type `&[u8; 64]`, and the two calls of the closure |
//! | `arch/x86_64/avx512.rs` | 1 | load 64 control bytes | they are all readable; unaligned is allowed | the type `&[u8; 64]` |
//! | `arch/x86_64/avx512.rs` | 1 | load a line | the same | the same |
//! | `arch/x86_64/mod.rs` | 1 | prefetch | a hint: no address faults, nothing is read that the program can see; SSE is part of x86-64 | the instruction |
//! | `arch/aarch64/neon.rs` | 2 | load the 16 bytes of `BITS`, for a group and for a line | they are readable | the type `[u8; 16]` |
//! | `arch/aarch64/neon.rs` | 2 | load the lower and the upper 16 of 32 control bytes | they are readable | the type `&[u8; 16]`, of `as_chunks` |
//! | `arch/aarch64/neon.rs` | 1 | load 8 tags of a line | 16 bytes from 0, 16 or 32 on lie in 64 readable ones | the type `&[u8; 64]`, and the three calls of the closure |
//! | `arch/aarch64/mod.rs` | 1 | prefetch, in assembly | a hint: no address faults, and no memory, register or flag changes | the instruction |
//!
//! No block trusts what a table says. Of a damaged one, what gets here is bytes that are compared, and the
//! address of a prefetch, which may be any.

#![no_std]

mod arch;
mod detect;
mod dispatch;

pub use dispatch::AnyKernel;

/// Asks for the cache line of `data` that holds the byte at `at`, as the kernels do: for who runs
/// stages of a lookup of their own. A hint: never fails, whatever the offset, and does nothing on
/// architectures without a vector kernel.
#[inline(always)]
pub fn prefetch(data: &[u8], at: usize) {
    cfg_if::cfg_if! {
        if #[cfg(target_arch = "x86_64")] {
            arch::x86_64::prefetch(data, at);
        } else if #[cfg(target_arch = "aarch64")] {
            arch::aarch64::prefetch(data, at);
        } else {
            let _ = (data, at);
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
