//! What is given for a list, but is none: compressed files, text in UTF-16 or UTF-32, tables.

use pkhash_core::format::MAGIC;

/// The mark of UTF-8 that some programs write at the beginning of a text.
pub(crate) const MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes at the beginning that are looked at, at most.
pub(crate) const HEAD: usize = 64;

/// What the first bytes tell.
pub(crate) enum Head {
    /// More of them are needed.
    Undecided,
    /// A list that begins with [`MARK`].
    Marked,
    /// A list.
    Plain,
    /// No list. What it is instead, and what can be done.
    Foreign(&'static str),
}

/// First bytes that tell, with `?` for a digit from 1 to 9. None of them begins a line of text.
const FOREIGN: [(&[u8], &str); 12] = [
    (b"\x1f\x8b", "compressed by gzip: decompress it first, as by zcat"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: decompress it first, as by zstdcat"),
    (b"\xfd7zXZ\0", "compressed by xz: decompress it first, as by xzcat"),
    (b"BZh?1AY&SY", "compressed by bzip2: decompress it first, as by bzcat"),
    // Without contents.
    (b"BZh?\x17\x72\x45\x38\x50\x90", "compressed by bzip2: decompress it first, as by bzcat"),
    (b"PK\x03\x04", "a zip archive: unpack it first, as by unzip -p"),
    (b"PK\x05\x06", "a zip archive, and an empty one"),
    (b"\xff\xfe", "text in UTF-16: convert it first: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "text in UTF-16: convert it first: iconv -f UTF-16 -t UTF-8"),
    (b"\xff\xfe\0\0", "text in UTF-32: convert it first: iconv -f UTF-32 -t UTF-8"),
    (b"\0\0\xfe\xff", "text in UTF-32: convert it first: iconv -f UTF-32 -t UTF-8"),
    (&MAGIC, "a table, and no list: `dump` prints its keys"),
];

/// Text in units of more than one byte that does not say so: bytes of a unit, where in it ASCII is.
const UNMARKED: [(usize, usize, &str); 4] = [
    (2, 0, "text in UTF-16: convert it first: iconv -f UTF-16LE -t UTF-8"),
    (2, 1, "text in UTF-16: convert it first: iconv -f UTF-16BE -t UTF-8"),
    (4, 0, "text in UTF-32: convert it first: iconv -f UTF-32LE -t UTF-8"),
    (4, 3, "text in UTF-32: convert it first: iconv -f UTF-32BE -t UTF-8"),
];

/// Looks at the first bytes of an input, which are all of them, or [`HEAD`], if `whole`.
pub(crate) fn look(head: &[u8], whole: bool, separator: u8) -> Head {
    // Between NULs there may be keys of one letter.
    let unmarked = UNMARKED.iter().filter(|_| separator != 0);
    let mut unmarked = unmarked.map(|(width, at, what)| (is_wide(head, *width, *at, whole), *what));
    if !whole {
        let begun = |magic: &[u8]| magic.len() > head.len() && begins(magic, head);
        let mut magics = FOREIGN.iter().map(|(magic, _)| *magic).chain([MARK]);
        if magics.any(begun) || unmarked.clone().any(|(wide, _)| wide.is_none()) {
            return Head::Undecided;
        }
    }
    if head.starts_with(MARK) {
        return Head::Marked;
    }
    let magics = FOREIGN.iter().filter(|(magic, _)| begins(head, magic));
    match magics.max_by_key(|(magic, _)| magic.len()) {
        Some((_, what)) => Head::Foreign(what),
        None => unmarked
            .find(|(wide, _)| *wide == Some(true))
            .map_or(Head::Plain, |(_, what)| Head::Foreign(what)),
    }
}

/// Whether `longer` begins with `shorter`; in one of them there may be `?`.
fn begins(longer: &[u8], shorter: &[u8]) -> bool {
    let same = |(a, b): (&u8, &u8)| {
        let digit = |any: &u8, byte: &u8| *any == b'?' && matches!(byte, b'1'..=b'9');
        a == b || digit(a, b) || digit(b, a)
    };
    longer.len() >= shorter.len() && longer.iter().zip(shorter).all(same)
}

/// Whether the first bytes, up to the end of a line, are ASCII in units of this width; `None`: so far.
fn is_wide(head: &[u8], width: usize, at: usize, whole: bool) -> Option<bool> {
    let mut text = false;
    for unit in head.chunks(width) {
        let is = |(i, byte): (usize, &u8)| match byte {
            b' '..=b'~' | b'\t' | b'\r' | b'\n' => i == at,
            _ => i != at && *byte == 0,
        };
        if !unit.iter().enumerate().all(is) {
            return Some(false);
        }
        // Line feeds and NULs alone are too little to go by.
        text |= unit.get(at).is_some_and(u8::is_ascii_graphic);
        if text && unit.len() == width && unit[at] == b'\n' {
            return Some(true);
        }
    }
    if whole { Some(text && head.len() == HEAD) } else { None }
}
