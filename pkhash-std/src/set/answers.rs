//! What lookups in a set answer.

use super::Hit;

/// What a lookup in a set answers for a key: an [`Hit`], the doc ID in the set
/// ([`Hit::global_doc_id`]), or whether there is a live match.
pub trait SetAnswer<'a>: Copy + Sealed {
    /// Of a key that has no live match.
    #[doc(hidden)]
    const ABSENT: Self;

    /// Of a match; `None` if it has no such answer.
    #[doc(hidden)]
    fn of(answer: Hit<'a>) -> Option<Self>;
}

#[doc(hidden)]
pub trait Sealed {}

impl Sealed for Option<Hit<'_>> {}

impl<'a> SetAnswer<'a> for Option<Hit<'a>> {
    const ABSENT: Self = None;

    #[inline]
    fn of(answer: Hit<'a>) -> Option<Self> {
        Some(Some(answer))
    }
}

impl Sealed for Option<u32> {}

impl SetAnswer<'_> for Option<u32> {
    const ABSENT: Self = None;

    #[inline]
    fn of(answer: Hit<'_>) -> Option<Self> {
        answer.global_doc_id().map(Some)
    }
}

impl Sealed for bool {}

impl SetAnswer<'_> for bool {
    const ABSENT: Self = false;

    #[inline]
    fn of(_: Hit<'_>) -> Option<Self> {
        Some(true)
    }
}

/// The answers of a batch.
pub(super) struct Out<'o, 'a, A> {
    pub(super) answers: &'o mut [A],
    /// A match that has no such answer.
    pub(super) fault: Option<Hit<'a>>,
}

impl<'a, A: SetAnswer<'a>> Out<'_, 'a, A> {
    #[inline]
    pub(super) fn answer(&mut self, number: usize, answer: Hit<'a>) {
        match A::of(answer) {
            Some(found) => self.answers[number] = found,
            None => self.fault = Some(answer),
        }
    }
}
