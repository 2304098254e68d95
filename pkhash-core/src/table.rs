//! [`Table`]: a table whose bytes are in memory.

use crate::error::{Error, Result, Section};
use crate::format::directory::{Directory, Partition};
use crate::format::footer::Footer;
use crate::format::{HEAD_LEN, bytes_at, bytes_at_u64, check_head, check_magic};
use crate::hash::{self, EMPTY};
use crate::kernel::{Kernel, Scalar};
use crate::layout::{Inline, Layout, Parsed, Records, TermOrder};
use crate::pipeline::{FixedKeys, Memory};
use crate::value::Value;

/// An immutable table over borrowed bytes. Cheap to copy; it never allocates, and no bytes whatever
/// make it panic, read outside of the slice or run without end.
///
/// `get` and `get_batch` use the scalar kernel. The crate `pkhash-simd` calls the `…_with` methods
/// with the kernel that fits the CPU.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    data: &'a [u8],
    directory: Directory<'a>,
    footer: Footer,
}

impl core::fmt::Debug for Table<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table").field("footer", &self.footer).finish_non_exhaustive()
    }
}

impl<'a> Table<'a> {
    /// Opens a table: checks head and footer, with every size and offset in them. O(partitions); the
    /// body is not read (see [`verify`](Self::verify)). The address of the bytes may be any.
    ///
    /// # Errors
    /// FORMAT.md §6 lists what is refused. The error names offset, expected and found.
    pub fn open(data: &'a [u8]) -> Result<Self> {
        let Some(head) = bytes_at::<HEAD_LEN>(data, 0) else {
            // Too short to be a table, but long enough to say that it is something else.
            check_magic(data)?;
            return Err(Error::TooShort { found: data.len() as u64, expected: HEAD_LEN as u64 });
        };
        check_head(head)?;
        Self::with_footer(data, Footer::parse(data, data.len() as u64)?)
    }

    /// The table over `data` whose footer was parsed before: what an owner of the bytes calls for
    /// each lookup. O(1). If `data` are other bytes than those that were parsed, answers may be
    /// wrong, but that is all.
    ///
    /// # Errors
    /// [`Error::WrongLength`] if `data` is not as long as the footer says.
    #[inline]
    pub fn with_footer(data: &'a [u8], footer: Footer) -> Result<Self> {
        let wrong = Error::WrongLength { expected: footer.file_len, found: data.len() as u64 };
        if data.len() as u64 != footer.file_len {
            return Err(wrong);
        }
        let at = data.len().checked_sub(footer.footer_len()).ok_or(wrong)?;
        let directory = Directory::new(data.get(at..).ok_or(wrong)?, footer.partition_bits);
        Ok(Self { data, directory, footer })
    }

    /// The facts of the table.
    #[must_use]
    pub const fn footer(&self) -> &Footer {
        &self.footer
    }

    /// The table's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.data
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.footer.keys
    }

    /// Whether the table has no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.footer.keys == 0
    }

    /// The facts of partition `p`; `None` if there are not so many.
    #[must_use]
    pub fn partition(&self, p: u32) -> Option<Partition> {
        (p < self.footer.partitions()).then(|| self.directory.get(p))
    }

    #[inline(always)]
    const fn memory(&self) -> Memory<'_, 'a> {
        Memory { data: self.data, footer: &self.footer, directory: self.directory }
    }

    /// Looks up one key with the scalar kernel.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the body is damaged and the damage was noticed. Damage that is not
    /// noticed may make a key absent, or give it another value; [`verify`](Self::verify) finds it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'a>>> {
        self.get_with(Scalar, key)
    }

    /// Looks up one key with this kernel.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline(always)]
    pub fn get_with<K: Kernel>(&self, kernel: K, key: &[u8]) -> Result<Option<Value<'a>>> {
        self.get_hashed_with(kernel, self.footer.hasher.hash(key), key)
    }

    /// Looks up one key whose hash is known: one hash serves all tables that share a seed. With any
    /// other hash than that of `footer().hasher` the key is absent.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline(always)]
    pub fn get_hashed_with<K: Kernel>(
        &self,
        kernel: K,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Value<'a>>> {
        self.memory().get_any(kernel, hash, key)
    }

    /// Looks up a batch with the scalar kernel: `out[i]` becomes the value of `keys[i]`. Returns how
    /// many keys were found.
    ///
    /// # Errors
    /// [`Error::BatchLength`] if `keys` and `out` differ in length; otherwise as
    /// [`get`](Self::get). After an error the contents of `out` mean nothing.
    pub fn get_batch<B: AsRef<[u8]>>(
        &self,
        keys: &[B],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        self.get_batch_with(Scalar, keys, out)
    }

    /// Looks up a batch with this kernel.
    ///
    /// # Errors
    /// As [`get_batch`](Self::get_batch).
    #[inline(always)]
    pub fn get_batch_with<K: Kernel, B: AsRef<[u8]>>(
        &self,
        kernel: K,
        keys: &[B],
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        self.memory().batch_any(kernel, &keys, out)
    }

    /// Looks up a batch of keys that lie in one buffer, with this kernel.
    ///
    /// # Errors
    /// As [`get_batch`](Self::get_batch).
    #[inline(always)]
    pub fn get_batch_fixed_with<K: Kernel>(
        &self,
        kernel: K,
        keys: FixedKeys<'_>,
        out: &mut [Option<Value<'a>>],
    ) -> Result<usize> {
        self.memory().batch_any(kernel, &keys, out)
    }

    /// Looks up a batch and answers with doc IDs, with this kernel. A doc ID is read when its key is
    /// compared, while the record is in the first-level cache; who reads it from the value of a large
    /// batch afterwards fetches the record a second time.
    ///
    /// # Errors
    /// [`Error::ValueWidth`] if not every value of the table is sure to have a doc ID: integers of at most
    /// 4 bytes, or values wider than 8 bytes (see [`Value::doc_id`]). Otherwise as
    /// [`get_batch`](Self::get_batch).
    #[inline(always)]
    pub fn get_batch_doc_ids_with<K: Kernel, B: AsRef<[u8]>>(
        &self,
        kernel: K,
        keys: &[B],
        out: &mut [Option<u32>],
    ) -> Result<usize> {
        match self.footer.value.width() {
            1..=4 | 9.. => self.memory().batch_any(kernel, &keys, out),
            width => Err(Error::ValueWidth { expected: 4, found: width.into() }),
        }
    }

    /// Whether the filter admits a hash; true for every hash if there is no filter.
    #[must_use]
    pub fn filter_admits(&self, hash: u64) -> bool {
        self.memory().filter_admits(hash)
    }

    /// All records, in the order of their slots: by hash.
    #[must_use]
    pub fn iter(&self) -> Iter<'a> {
        Iter(self.slots(0, 0, self.footer.partitions()))
    }

    /// The records of partition `p`, in the order of their slots; none if there are not so many.
    #[must_use]
    pub fn iter_partition(&self, p: u32) -> Iter<'a> {
        Iter(self.slots(p, 0, p.saturating_add(1)))
    }

    /// The records whose hash lies in `first..=last`, in the order of their hashes, without reading
    /// those before. O(records in the range + one probe).
    #[must_use]
    pub fn range(&self, first: u64, last: u64) -> Range<'a> {
        let bits = self.footer.partition_bits;
        let from = hash::partition(first, bits);
        let home = self.partition(from).map_or(0, |p| hash::home(first, bits, p.homes));
        let slots = self.slots(from, home, hash::partition(last, bits) + 1);
        Range { slots, hasher: self.footer.hasher, first, last }
    }

    /// The occupied slots of partitions `from..to`, in the first one beginning with `slot`.
    pub(crate) fn slots(&self, from: u32, slot: u32, to: u32) -> Slots<'a> {
        Slots {
            table: *self,
            partition: from,
            to,
            entry: None,
            slot,
            record_bytes: 0,
            failed: false,
        }
    }

    /// Offset and bytes of a section, padding included; `None` if they are not inside the table.
    pub(crate) fn section(&self, entry: &Partition, section: Section) -> Option<(u64, &'a [u8])> {
        let (offset, len) = entry.section(self.footer.layout, section);
        let from = usize::try_from(offset).ok()?;
        let to = from.checked_add(usize::try_from(len).ok()?)?;
        Some((offset, self.data.get(from..to)?))
    }
}

/// An occupied slot and its record.
#[derive(Clone, Copy)]
pub(crate) struct Occupied<'a> {
    pub(crate) partition: u32,
    pub(crate) slot: u32,
    pub(crate) control: u8,
    /// The slot word; 0 in an inline table.
    pub(crate) word: u64,
    /// Offset of the record in the table.
    pub(crate) at: u64,
    pub(crate) record: Parsed<'a>,
}

/// The occupied slots of some partitions, in order. Ends after the first error.
#[derive(Clone)]
pub(crate) struct Slots<'a> {
    table: Table<'a>,
    partition: u32,
    to: u32,
    /// The current partition's entry.
    entry: Option<Partition>,
    slot: u32,
    /// Bytes of the partition's records so far.
    record_bytes: u64,
    failed: bool,
}

impl<'a> Slots<'a> {
    fn occupied(&self, entry: &Partition, control: u8) -> Result<Occupied<'a>> {
        let (table, slot) = (&self.table, self.slot);
        let offsets = entry.offsets(table.footer.layout);
        if control & 0x80 == 0 {
            return Err(Error::Corrupt {
                what: "control byte",
                offset: offsets.control.wrapping_add(slot.into()),
                expected: 0x80,
                found: control.into(),
            });
        }
        let (word, at) = match table.footer.layout {
            Layout::Inline => {
                let width = u64::from(table.footer.inline_record_width());
                (0, offsets.records.wrapping_add(u64::from(slot) * width))
            }
            Layout::TermOrder => {
                let word_at = offsets.slot_words.wrapping_add(8 * u64::from(slot));
                let word =
                    bytes_at_u64(table.data, word_at).map_or(0, |word| u64::from_le_bytes(*word));
                let Some(record) = (word >> 24).checked_sub(1) else {
                    return Err(Error::Corrupt {
                        what: "slot word of an occupied slot",
                        offset: word_at,
                        expected: 1,
                        found: word,
                    });
                };
                if record >= entry.record_bytes {
                    return Err(Error::Corrupt {
                        what: "pointer of a slot word",
                        offset: word_at,
                        expected: entry.record_bytes,
                        found: record,
                    });
                }
                (word, offsets.records.wrapping_add(record))
            }
        };
        let bytes = table.memory().record(at)?;
        let parsed = match table.footer.layout {
            Layout::Inline => Inline::new(&table.footer).parse(bytes),
            Layout::TermOrder => TermOrder::new(&table.footer).parse(bytes),
        };
        let record = parsed.map_err(|what| Error::Corrupt {
            what,
            offset: at,
            expected: entry.record_bytes,
            found: bytes.len() as u64,
        })?;
        Ok(Occupied { partition: self.partition, slot, control, word, at, record })
    }
}

impl<'a> Iterator for Slots<'a> {
    type Item = Result<Occupied<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        while self.partition < self.to {
            let entry = match self.entry {
                Some(entry) => entry,
                None => *self.entry.insert(self.table.partition(self.partition)?),
            };
            let control = self.table.section(&entry, Section::Control).map_or(&[][..], |s| s.1);
            let control = control.get(..entry.slots as usize).unwrap_or_default();
            let rest = control.get(self.slot as usize..).unwrap_or_default();
            if let Some(skip) = rest.iter().position(|byte| *byte != EMPTY) {
                self.slot += skip as u32;
                let found = self.occupied(&entry, rest[skip]).and_then(|slot| {
                    // Records do not overlap: else a small table could hold long keys without end, and
                    // a scan would take the square of its length.
                    self.record_bytes += slot.record.len as u64;
                    if self.record_bytes <= entry.record_bytes {
                        return Ok(slot);
                    }
                    Err(Error::Corrupt {
                        what: "record bytes of a partition",
                        offset: slot.at,
                        expected: entry.record_bytes,
                        found: self.record_bytes,
                    })
                });
                self.slot += 1;
                self.failed = found.is_err();
                return Some(found);
            }
            self.partition += 1;
            self.slot = 0;
            self.record_bytes = 0;
            self.entry = None;
        }
        None
    }
}

/// The records of a table: see [`Table::iter`]. After an error it ends.
#[derive(Clone)]
pub struct Iter<'a>(Slots<'a>);

impl<'a> Iterator for Iter<'a> {
    /// Key and value.
    type Item = Result<(&'a [u8], Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.0.next()?;
        Some(found.map(|slot| (slot.record.key, Value::new(slot.record.value))))
    }
}

impl core::iter::FusedIterator for Iter<'_> {}

/// The records of a range of hashes: see [`Table::range`]. After an error it ends.
#[derive(Clone)]
pub struct Range<'a> {
    slots: Slots<'a>,
    hasher: hash::Hasher,
    first: u64,
    last: u64,
}

impl<'a> Iterator for Range<'a> {
    /// Hash, key and value.
    type Item = Result<(u64, &'a [u8], Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let slot = match self.slots.next()? {
                Ok(slot) => slot,
                Err(error) => return Some(Err(error)),
            };
            let hash = self.hasher.hash(slot.record.key);
            // Keys from before the range may have been pushed past its first home slot.
            if hash < self.first {
                continue;
            }
            if hash > self.last {
                self.slots.failed = true;
                return None;
            }
            return Some(Ok((hash, slot.record.key, Value::new(slot.record.value))));
        }
    }
}

impl core::iter::FusedIterator for Range<'_> {}

impl<'a> IntoIterator for &Table<'a> {
    type Item = <Iter<'a> as Iterator>::Item;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}
