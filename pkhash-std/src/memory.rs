//! Memory that is asked for politely: too little of it is an error, and no abort.

use std::hint::black_box;
use std::sync::Mutex;

#[cfg(feature = "write")]
use crate::error::{Error, Result};

/// Bytes that must be left when a large piece of memory was taken. The small pieces between two large
/// ones come out of them: standard collections, threads and messages abort the process if they get none.
const HEADROOM: usize = 2 << 20;

/// From this size on, a piece is large.
const LARGE: usize = 64 << 10;

/// Room for `more` elements, no more than that, or an error.
#[cfg(feature = "write")]
pub(crate) fn reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<()> {
    let bytes = more.saturating_mul(size_of::<T>());
    let is_taken = vec.try_reserve_exact(more).is_ok();
    if is_taken && has_headroom(bytes) { Ok(()) } else { Err(Error::OutOfMemory { bytes }) }
}

/// Adds an element. If there is no room, only a quarter more is asked for, and that may fail.
#[cfg(feature = "write")]
pub(crate) fn push<T>(vec: &mut Vec<T>, item: T) -> Result<()> {
    if vec.len() == vec.capacity() {
        reserve(vec, (vec.len() / 4).max(64))?;
    }
    vec.push(item);
    Ok(())
}

/// Whether, after a piece of so many bytes, enough is left for small ones.
pub(crate) fn has_headroom(taken: usize) -> bool {
    if taken < LARGE {
        return true;
    }
    // One thread at a time, so that those of a large machine do not look for theirs together.
    static LOOKING: Mutex<()> = Mutex::new(());
    let Ok(_looking) = LOOKING.try_lock() else { return true };
    let mut spare = Vec::<u8>::new();
    let is_there = spare.try_reserve_exact(HEADROOM).is_ok();
    // A compiler may take it that an allocation succeeds if nothing sees it.
    black_box(&spare);
    is_there
}
