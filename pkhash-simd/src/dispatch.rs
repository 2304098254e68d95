//! [`Kernel`]: which kernel, chosen once per call.

use core::ops::Range;

use pkhash_core::build::{Entry, Plan, Written};
use pkhash_core::map::{Ask, MapLine, SegmentMap};
use pkhash_core::{FixedKeys, Layout, Result, Scalar, Table, Value, get_asked_with};

#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64::Neon;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::{Avx2, Avx512, Sse2};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::detect;

#[derive(Clone, Copy, Debug)]
enum Choice {
    Scalar(Scalar),
    #[cfg(target_arch = "x86_64")]
    Sse2(Sse2),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

/// A kernel that can run on this CPU: for batches, and for single keys. There is no other way to get a
/// value of this type than to ask for one that can.
///
/// All kernels give the same answers; they differ in speed alone. Detection is remembered by the
/// process, and the handle is two copyable bytes: keep one beside the table.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    batch: Choice,
    single: Choice,
}

/// Runs the same code with whichever kernel was chosen: those that need no more than the target has
/// are inlined here, the others are entered through their `#[target_feature]` function.
macro_rules! with_kernel {
    ($choice:expr, $plain:expr, $entry:ident($($argument:expr),*)) => {
        match $choice {
            Choice::Scalar(kernel) => $plain(kernel),
            #[cfg(target_arch = "x86_64")]
            Choice::Sse2(kernel) => $plain(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the features of `avx2`, as the kernel proves.
            Choice::Avx2(kernel) => unsafe { avx2::$entry(kernel, $($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the features of `avx512`, as the kernel proves.
            Choice::Avx512(kernel) => unsafe { avx512::$entry(kernel, $($argument),*) },
            #[cfg(target_arch = "aarch64")]
            Choice::Neon(kernel) => $plain(kernel),
        }
    };
}

impl Choice {
    fn name(self) -> &'static str {
        use pkhash_core::Kernel as _;
        match self {
            Self::Scalar(kernel) => kernel.name(),
            #[cfg(target_arch = "x86_64")]
            Self::Sse2(kernel) => kernel.name(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(kernel) => kernel.name(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(kernel) => kernel.name(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(kernel) => kernel.name(),
        }
    }
}

impl Kernel {
    /// The names of all kernels that this crate has, on whatever machine.
    pub const NAMES: [&'static str; 5] = ["scalar", "sse2", "avx2", "avx512", "neon"];

    /// The kernel that this machine should use. With the feature `scalar`, the scalar one.
    ///
    /// Batches take the widest one. Measured on Zen 4 (`benches`, `report`, 10 M keys, ns for a key
    /// with SSE2 / AVX2 / AVX-512, scalar): inline hits 36.9 / 37.5 / 35.9, 106; inline misses 29.4 /
    /// 28.0 / 24.5, 72.5; term-order misses 32.0 / 30.0 / 27.2, 86.6; inline misses with filter 19.1 /
    /// 19.1 / 18.9, 41.9. So width matters little but where a probe is long: what counts is the
    /// prefetch, which the scalar kernel has not. NEON was run under emulation alone.
    ///
    /// Single gets take the one that needs no detection (SSE2, NEON): being inlined into the caller's
    /// loop is worth more there than a wider group. Measured as above: inline hits 125 / 170 / 173,
    /// 169; term-order hits with filter 267 / 373 / 370, 288 (and 400 with every kernel when none was
    /// inlined).
    #[must_use]
    pub fn detect() -> Self {
        if cfg!(feature = "scalar") {
            return Self::scalar();
        }
        let baseline = Self::sse2().or(Self::neon()).unwrap_or_else(Self::scalar);
        let widest = Self::avx512().or_else(Self::avx2).unwrap_or(baseline);
        Self { batch: widest.batch, single: baseline.single }
    }

    /// The same kernel for everything.
    const fn only(choice: Choice) -> Self {
        Self { batch: choice, single: choice }
    }

    /// The kernel of every machine: 8 slots at a time, and no prefetch.
    #[must_use]
    pub const fn scalar() -> Self {
        Self::only(Choice::Scalar(Scalar))
    }

    /// 16 slots at a time, on every x86-64 CPU.
    #[must_use]
    pub const fn sse2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return match detect::sse2() {
            Some(proof) => Some(Self::only(Choice::Sse2(proof))),
            None => None,
        };
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// 32 slots at a time, on x86-64 with AVX2.
    #[must_use]
    pub fn avx2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return detect::avx2().map(|proof| Self::only(Choice::Avx2(proof)));
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// 64 slots at a time, on x86-64 with AVX-512BW.
    #[must_use]
    pub fn avx512() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return detect::avx512().map(|proof| Self::only(Choice::Avx512(proof)));
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// 32 slots at a time, on AArch64 with NEON.
    #[must_use]
    pub const fn neon() -> Option<Self> {
        #[cfg(target_arch = "aarch64")]
        return match detect::neon() {
            Some(proof) => Some(Self::only(Choice::Neon(proof))),
            None => None,
        };
        #[cfg(not(target_arch = "aarch64"))]
        None
    }

    /// The kernel of this name, if it can run here.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::available().find(|kernel| kernel.name() == name)
    }

    /// All kernels that can run here, the scalar one first. Not affected by the feature `scalar`.
    pub fn available() -> impl Iterator<Item = Self> {
        [Some(Self::scalar()), Self::sse2(), Self::avx2(), Self::avx512(), Self::neon()]
            .into_iter()
            .flatten()
    }

    /// The name of the kernel for batches: one of [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn name(self) -> &'static str {
        self.batch.name()
    }

    /// The name of the kernel for single keys.
    #[must_use]
    pub fn single_name(self) -> &'static str {
        self.single.name()
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
        if table.footer().layout == Layout::Perfect {
            // There are no control bytes to compare.
            return table.get_hashed_with(Scalar, hash, key);
        }
        self.get_probed(table, hash, key)
    }

    /// A single key of a table that is probed.
    #[inline]
    fn get_probed<'a>(self, table: &Table<'a>, hash: u64, key: &[u8]) -> Result<Option<Value<'a>>> {
        with_kernel!(
            self.single,
            |kernel| table.get_hashed_with(kernel, hash, key),
            get_hashed(table, hash, key)
        )
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
        with_kernel!(
            self.batch,
            |kernel| table.get_batch_with(kernel, keys, out),
            get_batch(table, keys, out)
        )
    }

    /// [`Table::get_batch_hashed_with`] with this kernel.
    ///
    /// # Errors
    /// As [`Table::get_batch_hashed_with`].
    #[inline]
    pub fn get_batch_hashed<'a, B: AsRef<[u8]>>(
        self,
        table: &Table<'a>,
        keys: &[B],
        hashes: &[u64],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        with_kernel!(
            self.batch,
            |kernel| table.get_batch_hashed_with(kernel, keys, hashes, out),
            get_batch_hashed(table, keys, hashes, out)
        )
    }

    /// [`Table::get_batch_fixed_with`] with this kernel.
    ///
    /// # Errors
    /// As [`Table::get_batch`].
    #[inline]
    pub fn get_batch_fixed<'a>(
        self,
        table: &Table<'a>,
        keys: FixedKeys<'_>,
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        with_kernel!(
            self.batch,
            |kernel| table.get_batch_fixed_with(kernel, keys, out),
            get_batch_fixed(table, keys, out)
        )
    }

    /// [`Table::get_batch_doc_ids_with`] with this kernel.
    ///
    /// # Errors
    /// As [`Table::get_batch_doc_ids_with`].
    #[inline]
    pub fn get_batch_doc_ids<B: AsRef<[u8]>>(
        self,
        table: &Table<'_>,
        keys: &[B],
        out: &mut [Option<u32>],
    ) -> Result<usize> {
        with_kernel!(
            self.batch,
            |kernel| table.get_batch_doc_ids_with(kernel, keys, out),
            get_batch_doc_ids(table, keys, out)
        )
    }

    /// [`get_asked_with`] with this kernel.
    ///
    /// # Errors
    /// As [`get_asked_with`].
    pub fn get_asked<'a, B: AsRef<[u8]>>(
        self,
        tables: &[Table<'a>],
        asks: &[Ask],
        keys: &[B],
        hashes: &[u64],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        // Perfect tables have no group to compare: the kernel that needs no entry of its own has all
        // that counts.
        with_kernel!(
            self.single,
            |kernel| get_asked_with(kernel, tables, asks, keys, hashes, out),
            get_asked(tables, asks, keys, hashes, out)
        )
    }

    /// [`SegmentMap::ask_batch_with`] with this kernel.
    ///
    /// # Errors
    /// As [`SegmentMap::ask_batch_with`].
    pub fn ask_batch(
        self,
        map: &SegmentMap<'_>,
        hashes: &[u64],
        numbers: &[u32],
        wanted: &Range<u32>,
        asks: &mut [Ask],
    ) -> Result<usize> {
        with_kernel!(
            self.batch,
            |kernel| map.ask_batch_with(kernel, hashes, numbers, wanted, asks),
            ask_batch(map, hashes, numbers, wanted, asks)
        )
    }

    /// Calls `each` with all segments that [`SegmentMap::candidates`] names.
    #[inline]
    pub fn candidates(self, map: &SegmentMap<'_>, hash: u64, each: impl FnMut(u32)) {
        with_kernel!(
            self.single,
            |kernel| map.candidates(kernel, hash).for_each(each),
            candidates(map, hash, each)
        );
    }

    /// [`Plan::write_partition_with`] with this kernel.
    ///
    /// # Errors
    /// As [`Plan::write_partition`].
    pub fn write_partition(
        self,
        plan: &Plan,
        p: u32,
        entries: &[Entry<'_>],
        scratch: &mut [u64],
        out: &mut [u8],
    ) -> Result<Written> {
        // Nothing but prefetches: the kernel that needs no entry of its own has them too.
        with_kernel!(
            self.single,
            |kernel| plan.write_partition_with(kernel, p, entries, scratch, out),
            write_partition(plan, p, entries, scratch, out)
        )
    }

    /// Compares one line of tags, as [`match_group`](Self::match_group) does a group.
    #[doc(hidden)]
    #[must_use]
    pub fn match_tags(self, line: &MapLine, tag: u16) -> u32 {
        fn plain<K: pkhash_core::Kernel>(kernel: K, line: &MapLine, tag: u16) -> u32 {
            kernel.match_tags(line, tag)
        }
        with_kernel!(self.batch, |kernel| plain(kernel, line, tag), match_tags(line, tag))
    }

    /// Compares one group of control bytes: what the conformance suite tests.
    #[doc(hidden)]
    #[must_use]
    pub fn match_group(
        self,
        group: &[u8; pkhash_core::GROUP_MAX],
        control: u8,
    ) -> (u32, pkhash_core::Matches) {
        fn plain<K: pkhash_core::Kernel>(
            kernel: K,
            group: &[u8; pkhash_core::GROUP_MAX],
            control: u8,
        ) -> (u32, pkhash_core::Matches) {
            (K::WIDTH, kernel.match_group(group, control))
        }
        with_kernel!(
            self.batch,
            |kernel| plain(kernel, group, control),
            match_group(group, control)
        )
    }
}

/// The entry points of a lookup, compiled for one instruction set: core's generic functions are
/// inlined into them.
#[cfg(target_arch = "x86_64")]
macro_rules! entry_points {
    ($module:ident, $kernel:ty, $features:literal) => {
        mod $module {
            use core::ops::Range;

            use pkhash_core::build::{Entry, Plan, Written};
            use pkhash_core::map::{Ask, MapLine, SegmentMap};
            use pkhash_core::{
                FixedKeys, GROUP_MAX, Kernel, Matches, Result, Table, Value, get_asked_with,
            };

            #[target_feature(enable = $features)]
            pub(super) fn get_asked<'a, B: AsRef<[u8]>>(
                kernel: $kernel,
                tables: &[Table<'a>],
                asks: &[Ask],
                keys: &[B],
                hashes: &[u64],
                out: &mut [Option<Value<'a>>],
            ) -> Result<usize> {
                get_asked_with(kernel, tables, asks, keys, hashes, out)
            }

            #[target_feature(enable = $features)]
            pub(super) fn ask_batch(
                kernel: $kernel,
                map: &SegmentMap<'_>,
                hashes: &[u64],
                numbers: &[u32],
                wanted: &Range<u32>,
                asks: &mut [Ask],
            ) -> Result<usize> {
                map.ask_batch_with(kernel, hashes, numbers, wanted, asks)
            }

            #[target_feature(enable = $features)]
            pub(super) fn candidates(
                kernel: $kernel,
                map: &SegmentMap<'_>,
                hash: u64,
                each: impl FnMut(u32),
            ) {
                map.candidates(kernel, hash).for_each(each);
            }

            #[target_feature(enable = $features)]
            pub(super) fn match_tags(kernel: $kernel, line: &MapLine, tag: u16) -> u32 {
                kernel.match_tags(line, tag)
            }

            #[target_feature(enable = $features)]
            pub(super) fn write_partition(
                kernel: $kernel,
                plan: &Plan,
                p: u32,
                entries: &[Entry<'_>],
                scratch: &mut [u64],
                out: &mut [u8],
            ) -> Result<Written> {
                plan.write_partition_with(kernel, p, entries, scratch, out)
            }

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

            #[target_feature(enable = $features)]
            pub(super) fn get_batch_hashed<'a, B: AsRef<[u8]>>(
                kernel: $kernel,
                table: &Table<'a>,
                keys: &[B],
                hashes: &[u64],
                out: &mut [Option<Value<'a>>],
            ) -> Result<usize> {
                table.get_batch_hashed_with(kernel, keys, hashes, out)
            }

            #[target_feature(enable = $features)]
            pub(super) fn get_batch_fixed<'a>(
                kernel: $kernel,
                table: &Table<'a>,
                keys: FixedKeys<'_>,
                out: &mut [Option<Value<'a>>],
            ) -> Result<usize> {
                table.get_batch_fixed_with(kernel, keys, out)
            }

            #[target_feature(enable = $features)]
            pub(super) fn get_batch_doc_ids<B: AsRef<[u8]>>(
                kernel: $kernel,
                table: &Table<'_>,
                keys: &[B],
                out: &mut [Option<u32>],
            ) -> Result<usize> {
                table.get_batch_doc_ids_with(kernel, keys, out)
            }

            #[target_feature(enable = $features)]
            pub(super) fn match_group(
                kernel: $kernel,
                group: &[u8; GROUP_MAX],
                control: u8,
            ) -> (u32, Matches) {
                (<$kernel>::WIDTH, kernel.match_group(group, control))
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
entry_points!(avx2, super::Avx2, "avx2,bmi1,bmi2");
#[cfg(target_arch = "x86_64")]
entry_points!(avx512, super::Avx512, "avx512f,avx512bw,bmi1,bmi2");
