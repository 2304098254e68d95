//! Footers of tables whose bodies nobody holds: of sizes that no test could build.

use pkhash_core::{Error, Footer};

use super::raw::{self, RawFooter, RawPartition};

/// One partition with these record bytes and no limit on what its keys could be.
pub fn term_order(partitions: Vec<RawPartition>) -> RawFooter {
    RawFooter {
        layout: raw::TERM_ORDER,
        value_kind: 0,
        value_width: 4,
        filter_bits: 10,
        records_per_line: 0,
        unit: 0,
        min_key_len: 0,
        max_key_len: 1 << 16,
        partitions,
    }
}

pub fn inline(key_len: u64, value_width: u8, partitions: Vec<RawPartition>) -> RawFooter {
    RawFooter {
        layout: raw::INLINE,
        value_kind: 1,
        value_width,
        filter_bits: 0,
        records_per_line: 0,
        unit: 0,
        min_key_len: key_len,
        max_key_len: key_len,
        partitions,
    }
}

/// Perfect, keys of one length.
pub fn perfect(
    key_len: u64,
    value_width: u8,
    per_line: u8,
    partitions: Vec<RawPartition>,
) -> RawFooter {
    let footer = inline(key_len, value_width, partitions);
    RawFooter { layout: raw::PERFECT, records_per_line: per_line, ..footer }
}

/// Perfect, with offset lines.
pub fn spans(unit: u8, partitions: Vec<RawPartition>) -> RawFooter {
    RawFooter {
        layout: raw::PERFECT,
        unit,
        filter_bits: 0,
        max_key_len: 2336 * u64::from(unit) - 1,
        ..term_order(partitions)
    }
}

/// Bytes of so many records in a perfect table of one key length.
pub fn perfect_bytes(slots: u64, record: u64, per_line: u8) -> u64 {
    match u64::from(per_line) {
        0 => slots * record,
        n => slots.div_ceil(n) * 64,
    }
}

/// Accepted as it is, and refused with a length of the file that is off by what overflows lose.
pub fn assert_accepted(raw: &RawFooter) -> Footer {
    let (end, len) = (raw.encode(), raw.file_len());
    let footer = Footer::parse(&end, len).expect("sizes that fit");
    assert_eq!(footer.file_len(), len);
    let off = [1, 64, 1 << 31, 1 << 32, 1 << 33];
    for wrong in off.iter().flat_map(|d| [len.wrapping_sub(*d), len.wrapping_add(*d)]) {
        assert!(Footer::parse(&end, wrong).is_err());
        // The tail made to agree with the wrong length: now the directory does not.
        let mut end = end.clone();
        let footer_len = end.len() as u64;
        raw::set_tail(&mut end, "file length", wrong);
        raw::set_tail(&mut end, "directory offset", wrong.wrapping_sub(footer_len));
        raw::repair_footer(&mut end);
        assert!(Footer::parse(&end, wrong).is_err());
    }
    footer
}

pub fn refused(raw: &RawFooter) -> (&'static str, u64, u64) {
    match Footer::parse(&raw.encode(), raw.file_len()) {
        Err(Error::BadField { field, expected, found, .. }) => (field, expected, found),
        other => panic!("{other:?}"),
    }
}
