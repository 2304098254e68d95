//! A copy in memory, aligned to cache lines, so that records of a line lie in one.

use std::fs::File;
use std::io::{self, Read};

#[cfg(feature = "mmap")]
use memmap2::{MmapMut, MmapOptions};

use crate::memory::has_headroom;

/// What huge pages are aligned to.
#[cfg(feature = "mmap")]
const HUGE: usize = 2 << 20;

#[cfg(not(feature = "mmap"))]
const LINE: usize = 64;

/// Bytes in memory of our own. The part `from..from + len` is the file.
#[derive(Debug)]
pub(crate) struct Heap {
    #[cfg(feature = "mmap")]
    memory: Option<MmapMut>,
    #[cfg(not(feature = "mmap"))]
    memory: Option<Box<[u8]>>,
    from: usize,
    len: usize,
}

impl Heap {
    /// Reads all of a file. With `huge`, into huge pages if they can be had.
    pub(crate) fn read(file: &mut File, len: usize, huge: bool) -> io::Result<Self> {
        let mut heap = Self::zeroed(len, huge)?;
        // A file that was cut short meanwhile is an error here.
        file.read_exact(heap.bytes_mut())?;
        Ok(heap)
    }

    /// So many zero bytes.
    pub(crate) fn zeroed(len: usize, huge: bool) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self { memory: None, from: 0, len: 0 });
        }
        let (memory, from) = Self::allocate(len, huge)?;
        if !has_headroom(len) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Self { memory: Some(memory), from, len })
    }

    /// Anonymous pages: aligned, zeroed only when touched, and given back whole.
    #[cfg(feature = "mmap")]
    fn allocate(len: usize, huge: bool) -> io::Result<(MmapMut, usize)> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let align = if huge { HUGE } else { 1 };
        let memory =
            MmapOptions::new().len(len.checked_add(align).ok_or_else(too_large)?).map_anon()?;
        let from = memory.as_ptr().align_offset(align);
        #[cfg(target_os = "linux")]
        if huge {
            // A wish: without huge pages the copy is as good as any other.
            let _ = memory.advise(memmap2::Advice::HugePage);
        }
        Ok((memory, from))
    }

    #[cfg(not(feature = "mmap"))]
    fn allocate(len: usize, _huge: bool) -> io::Result<(Box<[u8]>, usize)> {
        let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let mut memory = Vec::new();
        let all = len.checked_add(LINE).ok_or_else(out_of_memory)?;
        memory.try_reserve_exact(all).map_err(|_| out_of_memory())?;
        memory.resize(all, 0);
        let memory = memory.into_boxed_slice();
        let from = memory.as_ptr().align_offset(LINE);
        Ok((memory, from))
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory[self.from..self.from + self.len])
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[self.from..self.from + self.len])
    }
}

impl AsRef<[u8]> for Heap {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
