//! What a machine contributes to a lookup: comparing a group of control bytes or a line of tags, and
//! prefetching.

use crate::hash::EMPTY;

/// Length of a line of a segment map.
pub const MAP_LINE: usize = 64;

/// A line of a segment map.
pub type MapLine = [u8; MAP_LINE];

/// Tags that a line of a segment map holds at most, at its beginning: what [`Kernel::match_tags`] compares.
pub const LINE_TAGS: usize = 20;

/// Bytes that can be read from any slot of a partition's control section: the widest group. A
/// constant of the format (the section is padded by as much), not of a kernel.
pub const GROUP_MAX: usize = 64;

/// The slots of one group that matter to a probe. Bit i stands for the i-th slot of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Matches {
    /// Slots whose control byte is the one that is sought.
    pub hits: u64,
    /// Empty slots.
    pub empty: u64,
}

/// How to compare a group or a line of tags and how to prefetch; everything else of a lookup is in this crate, once.
///
/// A kernel decides how many slots are looked at in one step, never which or in what order: answers
/// and files are the same with all of them. A value of a kernel type is the proof that the CPU has
/// what the kernel needs.
///
/// Implementations mark all methods `#[inline(always)]`, so that they end up inside a
/// `#[target_feature]` function which wraps a whole lookup or batch.
pub trait Kernel: Copy {
    /// Slots compared in one step: a power of two, at most [`GROUP_MAX`].
    const WIDTH: u32;

    /// The name shown to users: `scalar`, `avx2`, ….
    fn name(self) -> &'static str;

    /// Compares the first [`WIDTH`](Self::WIDTH) control bytes with `control` (never [`EMPTY`]) and
    /// with [`EMPTY`]. Bits from `WIDTH` up are 0.
    fn match_group(self, group: &[u8; GROUP_MAX], control: u8) -> Matches;

    /// Compares the first [`LINE_TAGS`] numbers of 16 bits in a line of a segment map with `tag`. Bit i
    /// stands for the i-th; bits from `LINE_TAGS` up are 0.
    fn match_tags(self, line: &MapLine, tag: u16) -> u32;

    /// Asks for the cache line of `data` that holds the byte at `at`. A hint: does nothing for an
    /// offset outside of `data` but what a hint may do, and never fails.
    fn prefetch(self, data: &[u8], at: usize);
}

/// Work that a kernel does: a lookup, a batch, or whatever else calls a kernel's methods many times.
///
/// `run` is `#[inline(always)]` in every implementation. So it becomes part of the function that has the
/// kernel's target features, and the kernel's methods part of it. (A closure would not do: what is not
/// inlined is compiled without the features, and called for each group.)
pub trait Task {
    /// What the work answers.
    type Output;

    /// Does the work.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// Who runs a [`Task`]: a kernel itself, or a choice among several that was made at run time.
pub trait Dispatch: Copy {
    /// Runs the work of a single key.
    fn single<T: Task>(self, task: T) -> T::Output;

    /// Runs the work of many keys.
    fn batch<T: Task>(self, task: T) -> T::Output;

    /// Runs work that prefetches and compares nothing. A choice among kernels may compile it once for all that
    /// prefetch alike.
    #[inline(always)]
    fn prefetching<T: Task>(self, task: T) -> T::Output {
        self.single(task)
    }
}

impl<K: Kernel> Dispatch for K {
    #[inline(always)]
    fn single<T: Task>(self, task: T) -> T::Output {
        task.run(self)
    }

    #[inline(always)]
    fn batch<T: Task>(self, task: T) -> T::Output {
        task.run(self)
    }
}

/// Lines of a long record that are prefetched; of what follows the processor's own prefetcher sees the
/// pattern.
const RECORD_LINES: usize = 8;

/// Prefetches a record: its first and its last line, and those between.
#[inline(always)]
pub(crate) fn prefetch_all<K: Kernel>(kernel: K, data: &[u8], at: u64, len: usize) {
    const LINE: usize = 64;
    let at = at as usize;
    kernel.prefetch(data, at);
    if len > LINE {
        for line in 1..(len / LINE).min(RECORD_LINES) {
            kernel.prefetch(data, at.wrapping_add(line * LINE));
        }
    }
    kernel.prefetch(data, at.wrapping_add(len).wrapping_sub(1));
}

/// The kernel of every machine: 8 control bytes at a time as one `u64`, no prefetch.
///
/// It is also what the other kernels are tested against, so it stays plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Scalar;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

/// Bit i is set where byte i of `word` is 0. Exact: no borrow runs from one byte to the next.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    let low7 = 0x7f * LOW_BITS;
    let high_bits = !(((word & low7) + low7) | word | low7);
    // Bit 8i+7 goes to bit i: 56 + i = 8i + (56 - 7i), and no two products meet.
    (high_bits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Compares 8 control bytes.
#[inline(always)]
const fn match_word(bytes: &[u8; 8], control: u8) -> Matches {
    const { assert!(EMPTY == 0, "an empty slot is found as a zero byte") };
    let word = u64::from_le_bytes(*bytes);
    Matches { hits: zero_bytes(word ^ (control as u64 * LOW_BITS)), empty: zero_bytes(word) }
}

/// Compares 4 tags. Bit i stands for the i-th.
#[inline(always)]
const fn match_tag_word(bytes: &[u8; 8], tag: u16) -> u32 {
    const { assert!(LINE_TAGS.is_multiple_of(4)) };
    const LOW15: u64 = 0x7fff_7fff_7fff_7fff;
    let word = u64::from_le_bytes(*bytes) ^ (tag as u64 * 0x0001_0001_0001_0001);
    // As in `zero_bytes`.
    let high_bits = !(((word & LOW15) + LOW15) | word | LOW15);
    // Bit 16i + 15 goes to bit i: 48 + i = 16i + (48 - 15i).
    ((high_bits >> 15).wrapping_mul(0x0001_0002_0004_0008) >> 48) as u32 & 0xf
}

/// Compares [`GROUP_MAX`] control bytes, 8 at a time.
pub(crate) fn match_line(line: &[u8; GROUP_MAX], control: u8) -> Matches {
    let (words, _) = line.as_chunks();
    words.iter().enumerate().fold(Matches::default(), |all, (i, word)| {
        let found = match_word(word, control);
        Matches {
            hits: all.hits | found.hits << (8 * i),
            empty: all.empty | found.empty << (8 * i),
        }
    })
}

impl Kernel for Scalar {
    const WIDTH: u32 = 8;

    fn name(self) -> &'static str {
        "scalar"
    }

    #[inline(always)]
    fn match_group(self, group: &[u8; GROUP_MAX], control: u8) -> Matches {
        match group.as_chunks().0 {
            [word, ..] => match_word(word, control),
            [] => Matches::default(),
        }
    }

    #[inline(always)]
    fn match_tags(self, line: &MapLine, tag: u16) -> u32 {
        let (words, _) = line.as_chunks();
        let words = words.iter().take(LINE_TAGS / 4).enumerate();
        words.fold(0, |all, (i, word)| all | match_tag_word(word, tag) << (4 * i))
    }

    #[inline(always)]
    fn prefetch(self, _data: &[u8], _at: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_tags_agree_with_a_loop() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut line = [0u8; 64];
            for byte in &mut line {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = [0x00, 0x01, 0x80, 0x7f, 0xff][(state >> 33) as usize % 5];
            }
            let tag =
                u16::from_le_bytes([line[state as usize % 8], line[(state >> 8) as usize % 8]]);
            let expected = (0..LINE_TAGS)
                .filter(|i| u16::from_le_bytes([line[2 * i], line[2 * i + 1]]) == tag)
                .fold(0, |all, i| all | 1 << i);
            assert_eq!(Scalar.match_tags(&line, tag), expected, "{line:x?} {tag:x}");
        }
    }

    #[test]
    fn scalar_agrees_with_a_loop() {
        let mut state = 1u64;
        for round in 0..20_000u32 {
            let mut group = [0u8; GROUP_MAX];
            for byte in &mut group {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few distinct values, neighbours of 0x00 and 0x80 among them: borrows would show.
                *byte = [0x00, 0x01, 0x80, 0x81, 0xff, 0x7f, 0xfe][(state >> 33) as usize % 7];
            }
            let control = [0x80u8, 0x81, 0xff, 0xfe][round as usize % 4];
            let got = Scalar.match_group(&group, control);
            let line = match_line(&group, control);
            for (i, byte) in group.into_iter().enumerate() {
                let inside = i < Scalar::WIDTH as usize;
                assert_eq!(got.hits >> i & 1 == 1, inside && byte == control);
                assert_eq!(got.empty >> i & 1 == 1, inside && byte == EMPTY);
                assert_eq!(line.hits >> i & 1 == 1, byte == control);
                assert_eq!(line.empty >> i & 1 == 1, byte == EMPTY);
            }
        }
    }
}
