//! AArch64.

#[cfg(target_endian = "little")]
mod neon;

#[cfg(target_endian = "little")]
pub(crate) use neon::Neon;

/// Prefetch for every AArch64 CPU. Stable Rust has no intrinsic for it (rust-lang/rust#117217).
#[inline(always)]
pub(crate) fn prefetch(data: &[u8], at: usize) {
    let address = data.as_ptr().wrapping_add(at);
    // SAFETY:
    // - PRFM is a hint: it never faults, so the address may be any (`wrapping_add` makes it without
    //   claiming that it lies inside `data`), and it changes no memory, register or flag.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    };
}
