//! A mapped file: the one place of this crate with `unsafe`.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{Mmap, MmapOptions};

use super::Advice;

/// A read-only mapping of a whole file.
#[derive(Debug)]
pub(crate) struct Mapped(Option<Mmap>);

impl Mapped {
    /// Maps `len` bytes. With `preload`, reads them all before returning.
    pub(crate) fn new(file: &File, len: usize, advice: Advice, preload: bool) -> io::Result<Self> {
        // Nothing cannot be mapped.
        if len == 0 {
            return Ok(Self(None));
        }
        let mut options = MmapOptions::new();
        options.len(len);
        if preload {
            options.populate();
        }
        // SAFETY: the bytes must not change while they are borrowed.
        // - Established by how tables come to be: `Publication` writes a temporary file and syncs it,
        //   and only then gives it its name; nothing in this crate writes to a published table.
        // - It cannot be enforced against other processes. `Mode::Map` says so, and says what
        //   happens then: SIGBUS on a page past the end or one that the disk does not give back,
        //   otherwise bytes that differ from one read to the next. pkhash-core is written for that: it
        //   checks every offset against the length of this slice, which does not change, at the read
        //   that uses it.
        let map = unsafe { options.map(file)? };
        #[cfg(unix)]
        {
            let advice = match advice {
                Advice::Normal => memmap2::Advice::Normal,
                Advice::Random => memmap2::Advice::Random,
                Advice::Sequential => memmap2::Advice::Sequential,
                Advice::WillNeed => memmap2::Advice::WillNeed,
            };
            map.advise(advice)?;
        }
        #[cfg(not(unix))]
        let _ = advice;
        Ok(Self(Some(map)))
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
