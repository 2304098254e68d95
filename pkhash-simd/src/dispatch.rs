//! [`Kernel`]: which kernel, chosen once per call.

use pkhash_core::{Result, Scalar, Table, Value};

#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::Avx2;

#[derive(Clone, Copy, Debug)]
enum Choice {
    Scalar(Scalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

/// A kernel that can run on this CPU. There is no other way to get a value of this type than to ask
/// for one that can.
///
/// All kernels give the same answers; they differ in speed alone. Detection is remembered by the
/// process, and the handle is a copyable word: keep one beside the table.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(Choice);

impl Kernel {
    /// The kernel that this machine should use. With the feature `scalar`, the scalar one.
    ///
    /// On x86-64 that is AVX2 where there is AVX2: a probe at load factor 0.75 is over within 32
    /// slots for all but 1 key in 1,000, and one compare of 32 costs what one of 8 does.
    #[must_use]
    pub fn detect() -> Self {
        if cfg!(feature = "scalar") {
            return Self::scalar();
        }
        Self::avx2().unwrap_or_else(Self::scalar)
    }

    /// The kernel of every machine.
    #[must_use]
    pub const fn scalar() -> Self {
        Self(Choice::Scalar(Scalar))
    }

    /// 32 slots at a time, on x86-64 with AVX2.
    #[must_use]
    pub fn avx2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            crate::detect::avx2().map(|proof| Self(Choice::Avx2(proof)))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            None
        }
    }

    /// The names of all kernels that this crate has, on whatever machine.
    pub const NAMES: [&'static str; 2] = ["scalar", "avx2"];

    /// The kernel of this name, if it can run here.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::available().find(|kernel| kernel.name() == name)
    }

    /// All kernels that can run here, the scalar one first. Not affected by the feature `scalar`.
    pub fn available() -> impl Iterator<Item = Self> {
        [Some(Self::scalar()), Self::avx2()].into_iter().flatten()
    }

    /// The name: one of [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn name(self) -> &'static str {
        use pkhash_core::Kernel as _;
        match self.0 {
            Choice::Scalar(kernel) => kernel.name(),
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(kernel) => kernel.name(),
        }
    }

    /// [`Table::get`] with this kernel.
    ///
    /// # Errors
    /// As [`Table::get`].
    #[inline]
    pub fn get<'a>(self, table: &Table<'a>, key: &[u8]) -> Result<Option<Value<'a>>> {
        self.get_hashed(table, table.footer().hasher.hash(key), key)
    }

    /// [`Table::get_hashed_with`] with this kernel.
    ///
    /// # Errors
    /// As [`Table::get`].
    #[inline]
    pub fn get_hashed<'a>(
        self,
        table: &Table<'a>,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        match self.0 {
            Choice::Scalar(kernel) => table.get_hashed_with(kernel, hash, key),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has AVX2, as the kernel proves.
            Choice::Avx2(kernel) => unsafe { avx2::get_hashed(kernel, table, hash, key) },
        }
    }

    /// [`Table::get_batch`] with this kernel.
    ///
    /// # Errors
    /// As [`Table::get_batch`].
    #[inline]
    pub fn get_batch<'a, B: AsRef<[u8]>>(
        self,
        table: &Table<'a>,
        keys: &[B],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        match self.0 {
            Choice::Scalar(kernel) => table.get_batch_with(kernel, keys, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has AVX2, as the kernel proves.
            Choice::Avx2(kernel) => unsafe { avx2::get_batch(kernel, table, keys, out) },
        }
    }
}

/// The entry points of a lookup, compiled for one instruction set: core's generic functions are
/// inlined into them.
macro_rules! entry_points {
    ($module:ident, $kernel:ty, $features:literal) => {
        mod $module {
            use pkhash_core::{Result, Table, Value};

            #[target_feature(enable = $features)]
            pub(super) fn get_hashed<'a>(
                kernel: $kernel,
                table: &Table<'a>,
                hash: u64,
                key: &[u8],
            ) -> Result<Option<Value<'a>>> {
                table.get_hashed_with(kernel, hash, key)
            }

            #[target_feature(enable = $features)]
            pub(super) fn get_batch<'a, B: AsRef<[u8]>>(
                kernel: $kernel,
                table: &Table<'a>,
                keys: &[B],
                out: &mut [Option<Value<'a>>],
            ) -> Result<usize> {
                table.get_batch_with(kernel, keys, out)
            }
        }
    };
}

// BMI1 and POPCNT come with every CPU that has AVX2, but they are not what was detected.
#[cfg(target_arch = "x86_64")]
entry_points!(avx2, crate::arch::x86_64::Avx2, "avx2");
