//! A lookup with nothing underneath: no std, no allocator, no libc, not even the start-up code of C.
//! It stands for the programs that have none of these: unikernels, firmware, kernel-bypass runtimes.
//!
//! A table is part of the program's read-only data. It is opened there, its keys are looked up in
//! batches with the kernel that was detected, and the program exits with 0 if all answers are right.
//!
//! ```text
//! cd pkhash-simd/freestanding
//! cargo run --release
//! ```
//!
//! What such a program has to bring along is in the modules below, with all `unsafe` that there is:
//! an entry point and two system calls (Linux on x86-64 and AArch64), a panic handler, and the four
//! functions on memory that compilers take for granted.

#![no_std]
#![no_main]

use core::fmt::Write as _;

use pkhash_core::{FixedKeys, Result, Table, Value};
use pkhash_simd::AnyKernel;

/// Keeps the tables at the alignment of their sections, so that no group straddles a cache line.
/// (They may lie at any address, but this is the fast one.)
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

static EXAMPLE: &Aligned<[u8]> =
    &Aligned(*include_bytes!("../../../pkhash-core/tests/golden/valid/example.pkh"));
static MANY: &Aligned<[u8]> =
    &Aligned(*include_bytes!("../../../pkhash-core/tests/golden/valid/inline-200-keys.pkh"));

/// Keys of `EXAMPLE` with their doc IDs, and two that it does not have.
const ANSWERS: [(&str, Option<u32>); 5] = [
    ("order-17", Some(3)),
    ("order-18", None),
    ("B000000001", Some(1000)),
    ("", Some(70_000)),
    ("B00000000", None),
];

/// Looks up keys of different lengths, and prints the answers. Returns how many are wrong.
fn look_up_a_few(kernel: AnyKernel, out: &mut linux::Stdout) -> Result<usize> {
    let table = Table::open(&EXAMPLE.0)?;
    let mut values = [None; ANSWERS.len()];
    let found = table.get_batch(kernel, ANSWERS.map(|(key, _)| key), &mut values)?;
    let mut wrong = usize::from(found != 3);
    for ((key, expected), value) in ANSWERS.into_iter().zip(values) {
        let doc_id = value.and_then(Value::doc_id);
        let right = doc_id == expected;
        wrong += usize::from(!right);
        let verdict = if right { "right" } else { "WRONG" };
        let _ = writeln!(out, "{key:?}: {doc_id:?} ({verdict})");
    }
    Ok(wrong)
}

/// Looks up all keys of a larger table, which lie in one buffer. Returns how many answers are wrong.
fn look_up_many(kernel: AnyKernel, out: &mut linux::Stdout) -> Result<usize> {
    const KEYS: usize = 200;
    const WIDTH: usize = 4;
    let table = Table::open(&MANY.0)?;
    table.verify()?;
    let mut keys = [[0; WIDTH]; KEYS];
    let mut expected = [None; KEYS];
    for (i, record) in table.iter().enumerate().take(KEYS) {
        let (key, value) = record?;
        keys[i].copy_from_slice(key);
        expected[i] = Some(value);
    }
    let mut values = [None; KEYS];
    let found =
        table.get_batch(kernel, FixedKeys::new(keys.as_flattened(), WIDTH)?, &mut values)?;
    let _ = writeln!(out, "{found} of {} keys found", table.len());
    let wrong = values.iter().zip(&expected).filter(|(a, b)| a.is_none() || a != b).count();
    Ok(wrong + usize::from(found != KEYS))
}

/// The program. Returns its exit code.
fn run() -> u8 {
    let mut out = linux::Stdout;
    let kernel = AnyKernel::detect();
    let _ = writeln!(out, "kernel: {}", kernel.name());
    let wrong = look_up_a_few(kernel, &mut out)
        .and_then(|few| look_up_many(kernel, &mut out).map(|many| few + many));
    match wrong {
        Ok(0) => 0,
        Ok(wrong) => {
            let _ = writeln!(out, "{wrong} answers are wrong");
            1
        }
        Err(error) => {
            let _ = writeln!(out, "{error}");
            2
        }
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(linux::Stdout, "{info}");
    linux::exit(101)
}

/// Unoptimised code of core refers to it, to unwind with. Nothing here unwinds: see Cargo.toml.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Entry point and system calls.
mod linux {
    use core::arch::{asm, global_asm};
    use core::fmt;

    // The kernel enters here with the stack pointer at the arguments, and nothing to return to.
    #[cfg(target_arch = "x86_64")]
    global_asm!(
        ".globl _start",
        "_start:",
        "xor ebp, ebp",
        "and rsp, -16",
        "call {start}",
        "ud2",
        start = sym start
    );
    #[cfg(target_arch = "aarch64")]
    global_asm!(
        ".globl _start",
        "_start:",
        "mov x29, #0",
        "mov x30, #0",
        "bl {start}",
        "brk #1",
        start = sym start
    );

    extern "C" fn start() -> ! {
        exit(super::run())
    }

    #[cfg(target_arch = "x86_64")]
    mod number {
        pub(super) const WRITE: usize = 1;
        pub(super) const EXIT_GROUP: usize = 231;
    }
    #[cfg(target_arch = "aarch64")]
    mod number {
        pub(super) const WRITE: usize = 64;
        pub(super) const EXIT_GROUP: usize = 94;
    }

    /// A system call with three arguments.
    ///
    /// # Safety
    /// The call, with these arguments, writes no memory of the program.
    unsafe fn call(number: usize, a: usize, b: usize, c: usize) -> isize {
        let result;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the convention of Linux on x86-64: `syscall` overwrites RCX, R11 and RAX. What the
        // call does is the caller's promise.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") number => result,
                in("rdi") a,
                in("rsi") b,
                in("rdx") c,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack, readonly)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the convention of Linux on AArch64: `svc` overwrites X0. What the call does is the
        // caller's promise.
        unsafe {
            asm!(
                "svc #0",
                in("x8") number,
                inlateout("x0") a => result,
                in("x1") b,
                in("x2") c,
                options(nostack, readonly)
            );
        }
        result
    }

    /// Standard output, without a buffer.
    pub(crate) struct Stdout;

    impl fmt::Write for Stdout {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let mut rest = text.as_bytes();
            while !rest.is_empty() {
                // SAFETY: `write` reads these bytes, which are readable.
                let written = unsafe { call(number::WRITE, 1, rest.as_ptr() as usize, rest.len()) };
                rest = usize::try_from(written)
                    .ok()
                    .filter(|written| *written > 0)
                    .and_then(|written| rest.get(written..))
                    .ok_or(fmt::Error)?;
            }
            Ok(())
        }
    }

    /// Ends the program.
    pub(crate) fn exit(code: u8) -> ! {
        loop {
            // SAFETY: `exit_group` touches no memory, and does not return.
            unsafe { call(number::EXIT_GROUP, code.into(), 0, 0) };
        }
    }
}

/// What compiled code calls to move, fill and compare bytes, libc or not. Each byte is written or
/// read as volatile, or the compiler would see what a loop does and replace it by a call of itself.
mod memory {
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        for i in 0..len {
            // SAFETY: the caller's promise: `len` bytes at `from` are readable.
            let byte = unsafe { from.wrapping_add(i).read() };
            // SAFETY: the caller's promise: `len` bytes at `to` are writable.
            unsafe { to.wrapping_add(i).write_volatile(byte) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        if to.addr().wrapping_sub(from.addr()) >= len {
            // SAFETY: no byte is overwritten before it is read when they are copied in order.
            return unsafe { memcpy(to, from, len) };
        }
        for i in (0..len).rev() {
            // SAFETY: the caller's promise: `len` bytes at `from` are readable.
            let byte = unsafe { from.wrapping_add(i).read() };
            // SAFETY: the caller's promise: `len` bytes at `to` are writable.
            unsafe { to.wrapping_add(i).write_volatile(byte) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
        for i in 0..len {
            // SAFETY: the caller's promise: `len` bytes at `to` are writable.
            unsafe { to.wrapping_add(i).write_volatile(byte as u8) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
        for i in 0..len {
            // SAFETY: the caller's promise: `len` bytes at `a` are readable.
            let a = unsafe { a.wrapping_add(i).read_volatile() };
            // SAFETY: the caller's promise: `len` bytes at `b` are readable.
            let b = unsafe { b.wrapping_add(i).read_volatile() };
            if a != b {
                return i32::from(a) - i32::from(b);
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
        // SAFETY: the same promise.
        unsafe { memcmp(a, b, len) }
    }
}
