//! One error type. Every variant that speaks of bytes names the offset, what was expected there and
//! what was found.

use core::fmt;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A section of a partition, in the order of FORMAT.md §3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Section {
    /// The register-blocked Bloom filter.
    Filter,
    /// The control bytes, one for each slot, and their padding.
    Control,
    /// The slot words of a term-order table.
    SlotWords,
    /// The pilots of a perfect table, one byte for each bucket.
    Pilots,
    /// The offset lines of a perfect table whose keys differ in length.
    OffsetLines,
    /// The records.
    Records,
}

impl Section {
    /// The name that messages and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Control => "control bytes",
            Self::SlotWords => "slot words",
            Self::Pilots => "pilots",
            Self::OffsetLines => "offset lines",
            Self::Records => "records",
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes are not a table, or why a table cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before a table could: `found` bytes, at least `expected` needed.
    TooShort {
        /// Bytes given.
        found: u64,
        /// The least that a table takes.
        expected: u64,
    },
    /// The bytes at `offset` are not pkhash's magic: this is another kind of file, or a damaged one.
    BadMagic {
        /// Offset of the magic.
        offset: u64,
        /// The bytes that a table has there.
        expected: [u8; 8],
        /// The bytes that are there.
        found: [u8; 8],
    },
    /// A table's last 8 bytes are not its tail's magic: it was cut short, or is still being written, or
    /// something was appended.
    NoTail {
        /// Offset of the tail's magic, if the length is right.
        offset: u64,
        /// The bytes that a table has there.
        expected: [u8; 8],
        /// The bytes that are there.
        found: [u8; 8],
    },
    /// A table, but of a format version that this reader does not know.
    UnsupportedVersion {
        /// Offset of the version.
        offset: u64,
        /// The newest version that this reader knows.
        expected: u32,
        /// The version named by the file.
        found: u32,
    },
    /// A field of the head, the directory or the tail has a value that no writer gives it.
    BadField {
        /// The field's name in FORMAT.md.
        field: &'static str,
        /// Offset of the field.
        offset: u64,
        /// The value, or the largest value, that it may have.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// The footer's checksum does not match the footer.
    FooterChecksum {
        /// Offset of the stored checksum.
        offset: u64,
        /// The checksum stored in the file.
        expected: u64,
        /// The checksum of the bytes found.
        found: u64,
    },
    /// A section's checksum does not match the section.
    SectionChecksum {
        /// The section.
        section: Section,
        /// The partition that it belongs to.
        partition: u32,
        /// Offset of the section.
        offset: u64,
        /// The checksum stored in the directory.
        expected: u64,
        /// The checksum of the bytes found.
        found: u64,
    },
    /// The body contradicts itself.
    Corrupt {
        /// What is wrong, in the words of FORMAT.md.
        what: &'static str,
        /// Where it was seen.
        offset: u64,
        /// The value expected there.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// The bytes handed to a parsed footer are not of the length that the footer was parsed from.
    WrongLength {
        /// The table's length in bytes.
        expected: u64,
        /// The length given.
        found: u64,
    },
    /// A batch's keys and answers differ in number.
    BatchLength {
        /// Number of keys.
        expected: usize,
        /// Number of places for answers.
        found: usize,
    },

    /// A batch over many tables asks one that is not there, or for a key that is not.
    NoSuchAsk {
        /// Tables or keys.
        what: &'static str,
        /// How many there are.
        expected: usize,
        /// The number that was asked for.
        found: usize,
    },

    /// An option is out of its range.
    BadOption {
        /// The option's name.
        option: &'static str,
        /// The least value that it may have.
        least: u64,
        /// The largest.
        expected: u64,
        /// The value given.
        found: u64,
    },
    /// A key is longer than the layout takes, or not of the length that all keys of the table have.
    KeyLength {
        /// The length, or the greatest length, that a key may have here.
        expected: u64,
        /// The key's length.
        found: u64,
    },
    /// A value does not fit the table's value width.
    ValueWidth {
        /// The table's value width in bytes.
        expected: u32,
        /// The bytes that the value takes.
        found: u32,
    },
    /// Two entries of a partition have one key. `index` is the later one's place in the sorted
    /// entries; the earlier one lies just before it.
    DuplicateKey {
        /// Index into the entries.
        index: usize,
    },
    /// Entries were handed to the builder that are not sorted by hash and key.
    Unsorted {
        /// Index of the first entry that is out of order.
        index: usize,
    },
    /// An entry was handed to the builder that belongs to another partition.
    WrongPartition {
        /// Index of the entry.
        index: usize,
        /// The partition being written.
        expected: u32,
        /// The entry's partition.
        found: u32,
    },
    /// A partition would take more slots or record bytes than the format can address, or something else
    /// more than it may.
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The most that there may be.
        expected: u64,
        /// How much there would be.
        found: u64,
    },
    /// More keys of a perfect partition have the hash of another key than its exceptions can hold. A table
    /// with another seed, or of another layout, can hold them.
    EqualHashes {
        /// The most that there may be: [`MAX_EXCEPTIONS`](crate::format::MAX_EXCEPTIONS).
        expected: u64,
        /// How many there would be.
        found: u64,
    },
    /// No seed of its perfect hash function can place the keys of a partition: they were made to meet.
    /// A table with another seed, or of another layout, can hold them.
    Unsolvable {
        /// Keys of the partition.
        keys: u64,
        /// Seeds that were tried.
        seeds: u64,
    },
    /// The buffer for a partition is too small: one of `needed` bytes is long enough for it.
    PartitionBuffer {
        /// Bytes of the partition.
        needed: usize,
        /// Bytes of the buffer.
        found: usize,
    },
    /// A buffer or scratch that the caller provided is too small.
    BufferTooSmall {
        /// What it is for.
        what: &'static str,
        /// Its least length, in elements.
        expected: usize,
        /// Its length.
        found: usize,
    },
}

/// Shows magic bytes as text where they are text.
struct Bytes([u8; 8]);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooShort { found, expected } => write!(
                f,
                "too short for a table: expected at least {expected} bytes, found {found}"
            ),
            Self::BadMagic { offset, expected, found } => write!(
                f,
                "not a pkhash table: expected {} at offset {offset}, found {}",
                Bytes(expected),
                Bytes(found)
            ),
            Self::NoTail { offset, expected, found } => write!(
                f,
                "cut short, or with bytes behind its end: expected {} at offset {offset}, found {}",
                Bytes(expected),
                Bytes(found)
            ),
            Self::UnsupportedVersion { offset, expected, found } => write!(
                f,
                "unsupported format version at offset {offset}: expected {expected}, found {found}"
            ),
            Self::BadField { field, offset, expected, found } => write!(
                f,
                "bad field `{field}` at offset {offset}: expected {expected}, found {found}"
            ),
            Self::FooterChecksum { offset, expected, found } => write!(
                f,
                "footer checksum at offset {offset}: expected {expected:#018x}, found {found:#018x}"
            ),
            Self::SectionChecksum { section, partition, offset, expected, found } => write!(
                f,
                "checksum of the {section} of partition {partition} at offset {offset}: \
                 expected {expected:#018x}, found {found:#018x}"
            ),
            Self::Corrupt { what, offset, expected, found } => write!(
                f,
                "corrupt table: {what} at offset {offset}: expected {expected}, found {found}"
            ),
            Self::WrongLength { expected, found } => {
                write!(f, "the table has {expected} bytes, {found} were given")
            }
            Self::BatchLength { expected, found } => {
                write!(f, "a batch of {expected} keys needs as many answers, found {found}")
            }
            Self::NoSuchAsk { what, expected, found } => {
                write!(f, "an ask for number {found} of {expected} {what}")
            }
            Self::BadOption { option, least, expected, found } => {
                write!(f, "option `{option}`: expected {least}…{expected}, found {found}")
            }
            Self::KeyLength { expected, found } => {
                write!(f, "key length: expected {expected} bytes, found {found}")
            }
            Self::ValueWidth { expected, found } => {
                write!(f, "value width: expected {expected} bytes, found {found}")
            }
            Self::DuplicateKey { index } => {
                write!(f, "duplicate key: entries {} and {index} are equal", index.wrapping_sub(1))
            }
            Self::Unsorted { index } => {
                write!(f, "entry {index} is out of order: entries are sorted by hash and key")
            }
            Self::WrongPartition { index, expected, found } => write!(
                f,
                "entry {index} belongs to another partition: expected {expected}, found {found}"
            ),
            Self::TooLarge { what, expected, found } => {
                write!(f, "too many {what}: expected at most {expected}, found {found}")
            }
            Self::EqualHashes { expected, found } => {
                write!(f, "too many keys of one hash: expected at most {expected}, found {found}")
            }
            Self::Unsolvable { keys, seeds } => write!(
                f,
                "no perfect hash function for a partition of {keys} keys with {seeds} seeds: \
                 give the table another seed, or another layout"
            ),
            Self::PartitionBuffer { needed, found } => {
                write!(f, "buffer for a partition is too small: expected {needed}, found {found}")
            }
            Self::BufferTooSmall { what, expected, found } => {
                write!(f, "{what} is too small: expected {expected}, found {found}")
            }
        }
    }
}

impl core::error::Error for Error {}
