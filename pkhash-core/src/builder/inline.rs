//! Writing the records of an inline partition.

use super::{Entry, Plan};
use crate::error::Result;
use crate::format::directory::Partition;
use crate::layout::copy;

impl Plan {
    /// Returns the largest value. `records` is zeroed and long enough for the partition's slots: `measure` said how long.
    pub(super) fn write_inline(
        &self,
        partition: &Partition,
        entries: &[Entry<'_>],
        records: &mut [u8],
    ) -> Result<u64> {
        let value_width = usize::from(self.value.width());
        let width = value_width + self.key_len as usize;
        let mut largest = 0;
        for (entry, (_, slot)) in entries.iter().zip(self.slots(partition.homes, entries)) {
            let at = slot as usize * width;
            let (value, key) = records[at..at + width].split_at_mut(value_width);
            largest = self.put_value(entry, value)?.max(largest);
            copy(entry.key, key);
        }
        Ok(largest)
    }
}
