//! Writing in blocks.

use std::io::{self, Write};

use crate::error::Result;
use crate::memory::reserve;

/// Collects writes into blocks of [`BLOCK`] bytes at multiples of it: the page cache can then hold
/// the file in huge pages, and map it so.
pub(crate) struct BlockWriter<W> {
    out: W,
    buffer: Vec<u8>,
}

/// 2 MiB: a huge page.
const BLOCK: usize = 2 << 20;

impl<W: Write> BlockWriter<W> {
    pub(crate) fn new(out: W) -> Result<Self> {
        let mut buffer = Vec::new();
        reserve(&mut buffer, BLOCK)?;
        Ok(Self { out, buffer })
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        // As `write_all` does, which `flush` need not do.
        loop {
            match self.out.flush() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                flushed => return flushed,
            }
        }
    }

    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let (fill, rest) = bytes.split_at(bytes.len().min(BLOCK - self.buffer.len()));
            self.buffer.extend_from_slice(fill);
            bytes = rest;
            if self.buffer.len() == BLOCK {
                self.out.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        // Here the buffer is empty, or nothing is left.
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        if !whole.is_empty() {
            self.out.write_all(whole)?;
        }
        self.buffer.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes whose lengths are recorded.
    struct Record<'r>(&'r mut Vec<usize>, &'r mut Vec<u8>);

    impl Write for Record<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.len());
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn blocks_are_whole_and_in_order() {
        for lens in [
            vec![],
            vec![0],
            vec![1],
            vec![BLOCK],
            vec![BLOCK - 1, 1, 1],
            vec![1, 3 * BLOCK, 5],
            vec![3 * BLOCK + 7, BLOCK - 7, 0, 2 * BLOCK - 1],
        ] {
            let all: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|i| (i / 7) as u8).collect();
            let (mut writes, mut bytes) = (Vec::new(), Vec::new());
            let mut out = BlockWriter::new(Record(&mut writes, &mut bytes)).unwrap();
            let mut at = 0;
            for len in &lens {
                out.write_all(&all[at..at + len]).unwrap();
                at += len;
            }
            out.finish().unwrap();
            assert_eq!(bytes, all);
            let last = writes.pop();
            assert!(writes.iter().all(|len| len % BLOCK == 0), "{lens:?}: {writes:?} {last:?}");
        }
    }
}
