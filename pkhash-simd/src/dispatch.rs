//! [`AnyKernel`]: which kernel, chosen once per call.

use core::ops::Range;

use pkhash_core::builder::{Entry, Plan, Written};
use pkhash_core::segment_map::{Ask, MapLine, SegmentMap};
use pkhash_core::{Dispatch, Result, Scalar, Task};

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use crate::arch::aarch64::Neon;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::{Avx2, Avx512, Sse2};
// Other machines have nothing to detect.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
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
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(Neon),
}

impl Choice {
    /// Runs a task with whichever kernel was chosen: those that need no more than the target has are
    /// inlined here, the others are entered through their `#[target_feature]` function.
    #[inline(always)]
    fn run<T: Task>(self, task: T) -> T::Output {
        match self {
            Self::Scalar(kernel) => task.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Sse2(kernel) => task.run(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the features of `avx2`, as the kernel proves.
            Self::Avx2(kernel) => unsafe { avx2(kernel, task) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the features of `avx512`, as the kernel proves.
            Self::Avx512(kernel) => unsafe { avx512(kernel, task) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(kernel) => task.run(kernel),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn avx2<T: Task>(kernel: Avx2, task: T) -> T::Output {
    task.run(kernel)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
fn avx512<T: Task>(kernel: Avx512, task: T) -> T::Output {
    task.run(kernel)
}

/// A kernel that can run on this CPU: for batches, and for single keys. There is no other way to get a
/// value of this type than to ask for one that can.
///
/// All kernels give the same answers; they differ in speed alone. Detection is remembered by the
/// process, and the handle is two copyable bytes: keep one beside the table.
#[derive(Clone, Copy, Debug)]
pub struct AnyKernel {
    batch: Choice,
    single: Choice,
}

impl AnyKernel {
    /// The names of all kernels that this crate has, on whatever machine.
    pub const NAMES: &'static [&'static str] = &["scalar", "sse2", "avx2", "avx512", "neon"];

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
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        return match detect::neon() {
            Some(proof) => Some(Self::only(Choice::Neon(proof))),
            None => None,
        };
        #[cfg(not(all(target_arch = "aarch64", target_endian = "little")))]
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
        self.batch.run(Name)
    }

    /// The name of the kernel for single keys.
    #[must_use]
    pub fn single_name(self) -> &'static str {
        self.single.run(Name)
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
        self.batch(AskBatch { map, hashes, numbers, wanted, asks })
    }

    /// Calls `each` with all segments that [`SegmentMap::candidates`] names.
    #[inline]
    pub fn candidates(self, map: &SegmentMap<'_>, hash: u64, each: impl FnMut(u32)) {
        self.single(Candidates { map, hash, each });
    }

    /// [`Plan::write_partition`] with this kernel.
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
        self.prefetching(WritePartition { plan, p, entries, scratch, out })
    }

    /// Compares one line of tags, as [`match_group`](Self::match_group) does a group.
    #[doc(hidden)]
    #[must_use]
    pub fn match_tags(self, line: &MapLine, tag: u16) -> u32 {
        self.batch(MatchTags { line, tag })
    }

    /// Compares one group of control bytes: what the conformance suite tests.
    #[doc(hidden)]
    #[must_use]
    pub fn match_group(
        self,
        group: &[u8; pkhash_core::GROUP_MAX],
        control: u8,
    ) -> (u32, pkhash_core::Matches) {
        self.batch(MatchGroup { group, control })
    }
}

impl Dispatch for AnyKernel {
    #[inline(always)]
    fn single<T: Task>(self, task: T) -> T::Output {
        self.single.run(task)
    }

    #[inline(always)]
    fn batch<T: Task>(self, task: T) -> T::Output {
        self.batch.run(task)
    }

    /// All vector kernels of an architecture prefetch alike: with the least of them, what goes through it is
    /// compiled twice and not once for each kernel. On x86-64 that is 64 KB instead of 141 for the batches of perfect
    /// tables, for each form of keys and answers.
    #[inline(always)]
    fn prefetching<T: Task>(self, task: T) -> T::Output {
        match self.single {
            Choice::Scalar(kernel) => task.run(kernel),
            #[cfg(target_arch = "x86_64")]
            _ => match detect::sse2() {
                Some(kernel) => task.run(kernel),
                None => task.run(Scalar),
            },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Choice::Neon(kernel) => task.run(kernel),
        }
    }
}

// Calls that are no lookups of a table.

struct Name;

impl Task for Name {
    type Output = &'static str;

    #[inline(always)]
    fn run<K: pkhash_core::Kernel>(self, kernel: K) -> &'static str {
        kernel.name()
    }
}

struct AskBatch<'t, 'm> {
    map: &'t SegmentMap<'m>,
    hashes: &'t [u64],
    numbers: &'t [u32],
    wanted: &'t Range<u32>,
    asks: &'t mut [Ask],
}

impl Task for AskBatch<'_, '_> {
    type Output = Result<usize>;

    #[inline(always)]
    fn run<K: pkhash_core::Kernel>(self, kernel: K) -> Result<usize> {
        self.map.ask_batch_with(kernel, self.hashes, self.numbers, self.wanted, self.asks)
    }
}

struct Candidates<'t, 'm, F> {
    map: &'t SegmentMap<'m>,
    hash: u64,
    each: F,
}

impl<F: FnMut(u32)> Task for Candidates<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<K: pkhash_core::Kernel>(self, kernel: K) {
        self.map.candidates(kernel, self.hash).for_each(self.each);
    }
}

struct WritePartition<'t, 'e> {
    plan: &'t Plan,
    p: u32,
    entries: &'t [Entry<'e>],
    scratch: &'t mut [u64],
    out: &'t mut [u8],
}

impl Task for WritePartition<'_, '_> {
    type Output = Result<Written>;

    #[inline(always)]
    fn run<K: pkhash_core::Kernel>(self, kernel: K) -> Result<Written> {
        self.plan.write_partition(kernel, self.p, self.entries, self.scratch, self.out)
    }
}

struct MatchTags<'t> {
    line: &'t MapLine,
    tag: u16,
}

impl Task for MatchTags<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<K: pkhash_core::Kernel>(self, kernel: K) -> u32 {
        kernel.match_tags(self.line, self.tag)
    }
}

struct MatchGroup<'t> {
    group: &'t [u8; pkhash_core::GROUP_MAX],
    control: u8,
}

impl Task for MatchGroup<'_> {
    type Output = (u32, pkhash_core::Matches);

    #[inline(always)]
    fn run<K: pkhash_core::Kernel>(self, kernel: K) -> Self::Output {
        (K::WIDTH, kernel.match_group(self.group, self.control))
    }
}
