//! Writing the records of an inline partition.

use super::{Entry, Plan};
use crate::error::Result;
use crate::format::directory::Partition;

impl Plan {
    /// `records` is zeroed and long enough for the partition's slots: `measure` said how long.
    pub(super) fn write_inline(
        &self,
        partition: &Partition,
        entries: &[Entry<'_>],
        records: &mut [u8],
    ) -> Result<()> {
        let value_width = usize::from(self.value.width());
        let width = value_width + self.key_len as usize;
        for (entry, (_, slot)) in entries.iter().zip(self.slots(partition.homes, entries)) {
            let at = slot as usize * width;
            let (value, key) = records[at..at + width].split_at_mut(value_width);
            value.copy_from_slice(self.kept(entry.value)?);
            key.copy_from_slice(entry.key);
        }
        Ok(())
    }
}
