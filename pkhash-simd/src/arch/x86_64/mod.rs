//! x86-64.

mod avx2;
mod avx512;
mod sse2;

pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;
pub(crate) use sse2::Sse2;

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Prefetch for every x86-64 CPU.
#[inline(always)]
pub(crate) fn prefetch(data: &[u8], at: usize) {
    let address = data.as_ptr().wrapping_add(at).cast::<i8>();
    // SAFETY:
    // - SSE, which `_mm_prefetch` needs, is part of x86-64.
    // - A prefetch never faults and reads nothing that the program can see, so the address may be
    //   any: `wrapping_add` makes it without claiming that it lies inside `data`.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
}
