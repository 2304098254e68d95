//! The bytes around the fst: FORMAT.md §12.

use pkhash_core::Table;

use crate::checksum::checksum;
use crate::error::Error;

pub(super) const MAGIC: [u8; 8] = *b"\x89pkhfst\n";
pub(super) const TAIL_MAGIC: [u8; 8] = *b"pkh-ordr";
pub(super) const VERSION: u32 = 1;
pub(super) const HEAD_LEN: usize = 16;
pub(super) const TAIL_LEN: usize = 64;

/// Version and type, number of keys, address of the root, checksum.
pub(super) const FST_MIN: usize = 36;

/// The version of the fst crate's own format.
const FST_VERSION: u64 = 3;

/// Behind the nodes of an fst: number of keys, address of the root, checksum.
pub(super) const FST_TAIL: usize = 20;

/// The longest key that a companion takes. To build or to walk an fst takes some 100 bytes of memory for
/// each byte of the longest key.
pub const MAX_ORDERED_KEY_LEN: usize = 1 << 16;

/// What is wrong with a companion's bytes, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) what: &'static str,
    /// Whether the companion is another table's.
    pub(super) of_another: bool,
    pub(super) offset: u64,
    pub(super) expected: u64,
    pub(super) found: u64,
}

impl Fault {
    /// Of bytes that are no companion.
    pub(super) fn new(what: &'static str, offset: usize, expected: u64, found: u64) -> Self {
        Self { what, of_another: false, offset: offset as u64, expected, found }
    }

    /// Of a companion that names another table.
    pub(super) fn of_another(what: &'static str, offset: usize, expected: u64, found: u64) -> Self {
        Self { of_another: true, ..Self::new(what, offset, expected, found) }
    }

    pub(super) fn at(self, path: Option<&std::path::Path>) -> Error {
        let Self { what, of_another, offset, expected, found } = self;
        Error::Companion { path: path.map(Into::into), what, of_another, offset, expected, found }
    }
}

/// Which table a companion belongs to. The footer's checksum covers those of all sections, so it stands
/// for every byte of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) keys: u64,
    pub(super) table_len: u64,
    pub(super) footer_checksum: u64,
}

impl Binding {
    pub(super) fn of(table: &Table<'_>) -> Self {
        let footer = table.footer();
        Self {
            keys: footer.keys(),
            table_len: footer.file_len(),
            footer_checksum: table.footer().checksum(),
        }
    }
}

pub(super) fn head() -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head
}

pub(super) fn tail(fst_len: u64, fst_checksum: u64, binding: &Binding) -> [u8; TAIL_LEN] {
    let fields =
        [fst_len, binding.keys, binding.footer_checksum, binding.table_len, fst_checksum, 0];
    let mut tail = [0; TAIL_LEN];
    for (to, field) in tail.chunks_exact_mut(8).zip(fields) {
        to.copy_from_slice(&field.to_le_bytes());
    }
    let sum = checksum(&[&head()[..], &tail[..48]].concat());
    tail[48..56].copy_from_slice(&sum.to_le_bytes());
    tail[56..].copy_from_slice(&TAIL_MAGIC);
    tail
}

/// A little-endian integer of 8 bytes; 0 if there are not so many.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A companion whose head and tail are sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsed {
    pub(super) fst_len: usize,
    pub(super) fst_checksum: u64,
}

/// Checks head, tail, the table that they name, and what the fst says of itself: O(1).
pub(super) fn parse(bytes: &[u8], binding: &Binding) -> Result<Parsed, Fault> {
    let len = bytes.len() as u64;
    let must = |what, offset: usize, expected: u64, found: u64| {
        if expected == found { Ok(()) } else { Err(Fault::new(what, offset, expected, found)) }
    };
    if bytes.len() >= 8 {
        must("magic", 0, u64::from_le_bytes(MAGIC), u64_at(bytes, 0))?;
    }
    let least = HEAD_LEN + FST_MIN + TAIL_LEN;
    if bytes.len() < least {
        return Err(Fault::new("length", 0, least as u64, len));
    }
    // Version and reserved bytes are the two halves.
    let version = u64_at(bytes, 8);
    must("version", 8, VERSION.into(), version & u64::from(u32::MAX))?;
    must("head reserved", 12, 0, version >> 32)?;
    let at = bytes.len() - TAIL_LEN;
    let field = |i: usize| (at + 8 * i, u64_at(bytes, at + 8 * i));
    let check = |what, i: usize, expected: u64| must(what, field(i).0, expected, field(i).1);
    check("tail magic", 7, u64::from_le_bytes(TAIL_MAGIC))?;
    let sum = checksum(&[&bytes[..HEAD_LEN], &bytes[at..at + 48]].concat());
    must("tail checksum", field(6).0, field(6).1, sum)?;
    let fst_len = bytes.len() - HEAD_LEN - TAIL_LEN;
    check("fst length", 0, fst_len as u64)?;
    check("tail reserved", 5, 0)?;
    for (what, i, expected) in [
        ("keys of the table", 1, binding.keys),
        ("table's footer checksum", 2, binding.footer_checksum),
        ("table length", 3, binding.table_len),
    ] {
        let (offset, found) = field(i);
        if found != expected {
            return Err(Fault::of_another(what, offset, expected, found));
        }
    }
    let fst = &bytes[HEAD_LEN..at];
    must("fst version", HEAD_LEN, FST_VERSION, u64_at(fst, 0))?;
    must("fst type", HEAD_LEN + 8, 0, u64_at(fst, 8))?;
    let end = fst_len - FST_TAIL;
    must("keys of the fst", HEAD_LEN + end, binding.keys, u64_at(fst, end))?;
    // The root is the last node, or there is none: then the fst has the empty key alone, with value 0.
    let root = if fst_len == FST_MIN { 0 } else { end as u64 - 1 };
    must("root of the fst", HEAD_LEN + end + 8, root, u64_at(fst, end + 8))?;
    Ok(Parsed { fst_len, fst_checksum: field(4).1 })
}

/// Checks that the fst's bytes are those that were written: O(n).
pub(super) fn check_sum(bytes: &[u8], parsed: &Parsed) -> Result<(), Fault> {
    let found = checksum(&bytes[HEAD_LEN..HEAD_LEN + parsed.fst_len]);
    if found == parsed.fst_checksum {
        return Ok(());
    }
    let expected = parsed.fst_checksum;
    Err(Fault::new("fst checksum", HEAD_LEN, expected, found))
}
