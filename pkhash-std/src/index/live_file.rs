//! Live docs in a file: FORMAT.md §14.

use std::fs;
use std::io::Write;
use std::path::Path;

use roaring::RoaringBitmap;

use super::manifest::LiveEntry;
use crate::checksum::checksum;
use crate::error::{Error, Result};
use crate::set::LiveDocs;

const MAGIC: [u8; 8] = *b"\x89pkhliv\n";
const VERSION: u32 = 1;
const HEAD_LEN: usize = 64;

/// The bitset, a bit for each doc.
const WORDS: u32 = 0;
/// A roaring bitmap of the deleted docs.
const DELETED: u32 = 1;

/// The bytes of the file, for a table with this checksum.
fn encode(live: &LiveDocs, table: u64) -> Vec<u8> {
    let deleted: RoaringBitmap = live.deleted_docs().collect();
    let words = live.words();
    let (kind, len) = if deleted.serialized_size() < size_of_val(words) {
        (DELETED, deleted.serialized_size())
    } else {
        (WORDS, size_of_val(words))
    };
    let mut bytes = Vec::with_capacity(HEAD_LEN + len);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(u64::from(live.docs()).to_le_bytes());
    bytes.extend(u64::from(live.deleted()).to_le_bytes());
    bytes.extend((len as u64).to_le_bytes());
    bytes.extend(table.to_le_bytes());
    // The place of the checksums.
    bytes.extend([0; 16]);
    if kind == DELETED {
        deleted.serialize_into(&mut bytes).expect("a vector takes all bytes");
    } else {
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    let (head, body) = bytes.split_at_mut(HEAD_LEN);
    head[48..56].copy_from_slice(&checksum(body).to_le_bytes());
    let sum = checksum(&head[..56]);
    head[56..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// What is wrong with a file, and where.
type Fault = (&'static str, usize, u64, u64);

/// Reads what [`encode`] has written.
fn decode(bytes: &[u8], docs: u32, table: u64) -> Result<LiveDocs, Fault> {
    let least = HEAD_LEN as u64;
    let Some((head, body)) = bytes.split_first_chunk::<HEAD_LEN>() else {
        return Err(("length", 0, least, bytes.len() as u64));
    };
    let field = |i: usize| {
        let bytes = head[8 * i..].first_chunk().expect("8 fields");
        u64::from_le_bytes(*bytes)
    };
    let must = |what, at: usize, expected: u64, found: u64| {
        if expected == found { Ok(()) } else { Err((what, at, expected, found)) }
    };
    must("magic", 0, u64::from_le_bytes(MAGIC), field(0))?;
    let (version, kind) = (field(1) as u32, (field(1) >> 32) as u32);
    must("version", 8, VERSION.into(), version.into())?;
    must("checksum of the head", 56, field(7), checksum(&head[..56]))?;
    if kind > DELETED {
        return Err(("kind", 12, DELETED.into(), kind.into()));
    }
    // Before memory is taken for them.
    must("docs", 16, docs.into(), field(2))?;
    must("length of the docs", 32, body.len() as u64, field(4))?;
    must("table's footer checksum", 40, table, field(5))?;
    must("checksum of the docs", 48, field(6), checksum(body))?;
    let live = if kind == WORDS {
        let expected = u64::from(docs).div_ceil(64) * 8;
        must("length of the docs", 32, expected, body.len() as u64)?;
        let (words, _) = body.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        LiveDocs::from_words(docs, words)
    } else {
        let mut rest = body;
        let deleted = RoaringBitmap::deserialize_from(&mut rest).map_err(|_| {
            ("bitmap", HEAD_LEN, body.len() as u64, (body.len() - rest.len()) as u64)
        })?;
        must(
            "length of the bitmap",
            HEAD_LEN,
            (body.len() - rest.len()) as u64,
            body.len() as u64,
        )?;
        LiveDocs::from_deleted_bitmap(docs, &deleted)
    };
    let live = live.map_err(|error| match error {
        Error::NoSuchDoc { found, docs } => ("doc", HEAD_LEN, docs, found),
        _ => ("docs", HEAD_LEN, 0, 0),
    })?;
    must("deleted docs", 24, live.deleted().into(), field(3))?;
    Ok(live)
}

/// Writes live docs, and says what the manifest names.
pub(super) fn write(
    out: &mut impl Write,
    name: String,
    path: &Path,
    live: &LiveDocs,
    table: u64,
) -> Result<LiveEntry> {
    let bytes = encode(live, table);
    out.write_all(&bytes).map_err(Error::io("write", path))?;
    let file = super::manifest::FileEntry {
        name,
        bytes: bytes.len() as u64,
        checksum: own_checksum(&bytes),
    };
    Ok(LiveEntry { file, deleted: live.deleted() })
}

/// It covers the other one, and so the whole file.
fn own_checksum(bytes: &[u8]) -> u64 {
    let at = bytes[56..].first_chunk().expect("a head");
    u64::from_le_bytes(*at)
}

/// Opens the live docs that a manifest names, of a table with this checksum.
pub(super) fn open(path: &Path, entry: &LiveEntry, docs: u32, table: u64) -> Result<LiveDocs> {
    let fault = |(what, offset, expected, found): Fault| Error::LiveDocsFile {
        path: path.to_owned(),
        what,
        offset: offset as u64,
        expected,
        found,
    };
    // Before memory is taken for it.
    let meta = fs::metadata(path).map_err(Error::io("open", path))?;
    if !meta.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    let len = meta.len();
    if len != entry.file.bytes {
        return Err(fault(("length", 0, entry.file.bytes, len)));
    }
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    let live = decode(&bytes, docs, table).map_err(fault)?;
    for (what, offset, expected, found) in [
        ("checksum in the manifest", 56, entry.file.checksum, own_checksum(&bytes)),
        ("deleted docs", 24, entry.deleted.into(), live.deleted().into()),
    ] {
        if expected != found {
            return Err(fault((what, offset, expected, found)));
        }
    }
    Ok(live)
}
