//! Vector kernels for pkhash, and the choice among them.
//!
//! A lookup compares groups of control bytes; this crate does that with the vector unit of the CPU,
//! and prefetches. The lookup itself is in `pkhash-core`, once and generic: here it is compiled again
//! inside a `#[target_feature]` function for each kernel that needs more than the target has, and
//! [`Kernel`] picks one of those functions **once per call**, never per group.
//!
//! ```
//! use pkhash_core::Table;
//! use pkhash_simd::Kernel;
//!
//! # fn demo(bytes: &[u8]) -> Result<(), pkhash_core::Error> {
//! let kernel = Kernel::detect();
//! let table = Table::open(bytes)?;
//! if let Some(value) = kernel.get(&table, b"some key")? {
//!     println!("{:?} (found with {})", value.doc_id(), kernel.name());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! * `scalar`: [`Kernel::detect`] answers [`Kernel::scalar`]. The vector kernels still compile and can
//!   be asked for by name. Features of a crate add up over a whole program, so this one is for final
//!   binaries only.
//!
//! # Unsafe code
//!
//! `unsafe` is needed for two things: to call vector intrinsics, and to call a `#[target_feature]`
//! function. Both need one fact, that the CPU has the feature. A value of a kernel type such as
//! `Avx2` is the proof: it is only made by detection.

#![no_std]

mod arch;
mod detect;
mod dispatch;

pub use dispatch::Kernel;

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
