//! Directory and tail of a table that is being built.

use super::{KeyStats, Plan, Written};
use crate::error::{Error, Result};
use crate::format::directory;
use crate::format::footer::{Footer, footer_len};
use crate::format::{HEAD_LEN, TAIL_LEN};

/// Keeps the directory while partitions are written one after the other, and makes the tail.
///
/// A table is [`head`](crate::format::head), the partitions in order, the directory, the tail.
#[derive(Debug)]
pub struct Assembler<'b> {
    plan: Plan,
    directory: &'b mut [u8],
    next: u32,
    at: u64,
    slots: u64,
    exceptions: u64,
    dense: bool,
    pilots: u64,
    stats: KeyStats,
}

impl<'b> Assembler<'b> {
    /// Begins a table. `directory` holds [`Plan::directory_len`] bytes.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn new(plan: &Plan, directory: &'b mut [u8]) -> Result<Self> {
        let (expected, found) = (plan.directory_len(), directory.len());
        let directory = directory.get_mut(..expected).ok_or(Error::BufferTooSmall {
            what: "buffer for the directory",
            expected,
            found,
        })?;
        Ok(Self {
            plan: *plan,
            directory,
            next: 0,
            at: HEAD_LEN as u64,
            slots: 0,
            exceptions: 0,
            dense: true,
            pilots: 0,
            stats: KeyStats::default(),
        })
    }

    /// Notes the next partition: they are written in order, and none is left out, even if empty.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if all have been noted.
    pub fn push(&mut self, written: &Written) -> Result<()> {
        let Written { mut partition, stats, .. } = *written;
        let p = self.next as usize;
        let partitions = u64::from(self.plan.partitions());
        if u64::from(self.next) >= partitions {
            return Err(Error::TooLarge {
                what: "partitions",
                expected: partitions,
                found: u64::from(self.next) + 1,
            });
        }
        partition.offset = self.at;
        let hot = p * directory::HOT_LEN;
        let cold = (partitions as usize) * directory::HOT_LEN + p * directory::COLD_LEN;
        self.directory[hot..hot + directory::HOT_LEN]
            .copy_from_slice(&partition.encode_hot(&self.plan.footer()));
        self.directory[cold..cold + directory::COLD_LEN].copy_from_slice(&partition.encode_cold());
        self.next += 1;
        // 2^16 partitions of less than 2^48 bytes.
        self.at += written.bytes();
        self.slots += u64::from(partition.slots);
        self.exceptions += u64::from(partition.exceptions);
        self.dense &= partition.slots > 0;
        self.pilots += u64::from(partition.buckets);
        self.stats.merge(&stats);
        Ok(())
    }

    /// Facts, directory and tail, once every partition has been noted. Directory and tail come last in
    /// the file, in this order.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if partitions are missing.
    pub fn finish(self) -> Result<(Footer, &'b [u8], [u8; TAIL_LEN])> {
        let partitions = self.plan.partitions();
        if self.next != partitions {
            return Err(Error::BufferTooSmall {
                what: "number of partitions",
                expected: partitions as usize,
                found: self.next as usize,
            });
        }
        // Key lengths were checked against MAX_KEY_LEN.
        let footer = Footer {
            min_key_len: self.stats.min_key_len as u32,
            max_key_len: self.stats.max_key_len as u32,
            keys: self.stats.keys,
            slots: self.slots,
            exceptions: self.exceptions,
            dense: self.dense,
            pilots: self.pilots,
            key_bytes: self.stats.key_bytes,
            max_value: self.stats.max_value,
            file_len: self.at + footer_len(self.plan.partition_bits) as u64,
            checksum: 0,
            directory_at: self.at,
            records_per_line: if self.stats.keys == 0 { 0 } else { self.plan.records_per_line },
            ..self.plan.footer()
        };
        let (tail, checksum) = footer.encode_tail(self.directory);
        let footer = Footer { checksum, ..footer };
        Ok((footer, self.directory, tail))
    }
}
