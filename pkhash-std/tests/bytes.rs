//! Tables that do not come from a path: bytes of any owner, and readers.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pkhash_core::Error as CoreError;
use pkhash_std::{
    Error, Hit, MergeInput, MergeOptions, OpenOptions, Segment, SegmentSet, TableFile, merge,
};
use pkhash_testing::{Model, bytes_of, check, int, squares};

/// Another slice each time, as safe code may: the table, then nothing, then something longer.
struct Fickle(Vec<u8>, Vec<u8>, AtomicUsize);

impl AsRef<[u8]> for Fickle {
    fn as_ref(&self) -> &[u8] {
        match self.2.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => &self.0,
            1 => &[],
            _ => &self.1,
        }
    }
}

#[test]
fn every_owner_of_bytes() {
    let model = squares(500);
    let bytes = bytes_of(&model);
    let fixed: &'static [u8] = Box::leak(bytes.clone().into_boxed_slice());
    let odd: &'static [u8] = Box::leak([&[0], &bytes[..]].concat().into_boxed_slice());
    let dropped = Arc::new(());
    struct Owner(Vec<u8>, #[allow(dead_code)] Arc<()>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let longer = [&bytes[..], &[1; 100]].concat();
    let tables = [
        TableFile::from_bytes(bytes.clone()),
        TableFile::from_bytes(bytes.clone().into_boxed_slice()),
        TableFile::from_bytes(Arc::<[u8]>::from(bytes.clone())),
        TableFile::from_bytes(fixed),
        // No alignment is needed.
        TableFile::from_bytes(&odd[1..]),
        TableFile::from_bytes(bytes::Bytes::from(bytes.clone())),
        TableFile::from_bytes(Owner(bytes.clone(), dropped.clone())),
        TableFile::from_bytes(Fickle(bytes.clone(), longer, AtomicUsize::new(0))),
    ];
    for table in tables {
        let table = table.unwrap();
        assert_eq!((table.path(), table.name().to_str()), (None, Some("table in memory")));
        check(&table, &model, &[b"absent".to_vec()]);
        table.verify().unwrap();
    }
    assert_eq!(Arc::strong_count(&dropped), 1, "the owner lives as long as the table");
    // Printing one for a log does not print all of its bytes.
    let printed = format!("{:?}", TableFile::from_bytes(fixed).unwrap());
    assert!(printed.len() < 1000 && fixed.len() > 4000, "{printed}");
    // Nothing is copied.
    let table = TableFile::from_bytes(fixed).unwrap();
    assert_eq!(table.table().as_bytes().as_ptr(), fixed.as_ptr());
    // What is none.
    for end in 0..bytes.len() {
        let error = TableFile::from_bytes(bytes[..end].to_vec()).unwrap_err();
        assert!(matches!(error, Error::Table { path: None, .. }), "{end}: {error}");
        let error = TableFile::read(&bytes[..end]).unwrap_err();
        assert!(matches!(error, Error::Table { path: None, .. }), "{end}: {error}");
    }
}

/// Gives a few bytes at a time, is interrupted, and may fail.
struct Slow<'b> {
    bytes: &'b [u8],
    at: usize,
    calls: usize,
    fails_at: Option<usize>,
}

impl<'b> Slow<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0, calls: 0, fails_at: None }
    }
}

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.fails_at.is_some_and(|at| self.at >= at) {
            return Err(io::Error::other("the cable was pulled"));
        }
        let len = out.len().min(self.bytes.len() - self.at).min(1 + self.calls % 5000);
        out[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

#[test]
fn readers_of_every_pace() {
    // Longer than what is read at a time.
    let model: Model = (0..250_000u64).map(|i| (i.to_le_bytes().to_vec(), int(i))).collect();
    let bytes = bytes_of(&model);
    assert!(bytes.len() > 2 << 20);
    let long = [&bytes[..], &vec![0; 5 << 20]].concat();
    let options = OpenOptions::new();
    let table = options.read(Slow::new(&bytes)).unwrap().named("a pipe");
    assert!(table.table().as_bytes() == bytes);
    assert_eq!(table.table().as_bytes().as_ptr().align_offset(64), 0);
    assert_eq!((table.path(), table.name().to_str()), (None, Some("a pipe")));
    assert_eq!(table.get(&7u64.to_le_bytes()).unwrap().unwrap().doc_id(), Some(7));
    // Bytes behind the end are a fault, not a table.
    let error = options.read(&long[..]).unwrap_err();
    assert!(matches!(error, Error::Table { .. }), "{error}");
    for at in [0, 3, 64, bytes.len() / 2, bytes.len()] {
        let error = options.read(Slow { fails_at: Some(at), ..Slow::new(&bytes) }).unwrap_err();
        assert!(matches!(error, Error::Io { doing: "read", .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("the input") && said.contains("cable"), "{said}");
    }
}

/// What does not begin as a table does is not read to its end, which may be far.
#[test]
fn a_stream_that_is_no_table_is_not_read() {
    let mut zeros = io::repeat(0).take(u64::MAX);
    let error = TableFile::read(&mut zeros).unwrap_err();
    assert!(matches!(error, Error::Table { source: CoreError::BadMagic { .. }, .. }), "{error}");
    assert!(u64::MAX - zeros.limit() < 4096);
}

#[test]
fn sets_and_merges_of_bytes() {
    let (a, b) = (squares(300), squares(200));
    let b: Model = b.into_iter().map(|(key, value)| ([b"b-", &*key].concat(), value)).collect();
    let tables = [bytes_of(&a), bytes_of(&b)].map(|bytes| TableFile::from_bytes(bytes).unwrap());
    let inputs: Vec<_> = tables.iter().map(MergeInput::new).collect();
    let mut merged = Vec::new();
    merge(&inputs, &mut merged, &MergeOptions::default()).unwrap();
    let all: Model = a.iter().chain(&b).map(|(k, v)| (k.clone(), v.clone())).collect();
    check(&TableFile::from_bytes(merged).unwrap(), &all, &[]);
    let set = SegmentSet::new(tables.map(Segment::from)).unwrap();
    assert_eq!(set.get(b"b-key-7").unwrap().map(Hit::segment), Some(1));
    let error = set.merged(&[Segment::from(TableFile::from_bytes(bytes_of(&a)).unwrap())], None);
    assert!(error.unwrap_err().to_string().contains("table in memory"));
    #[cfg(feature = "ordered")]
    {
        let error = pkhash_std::OrderedTerms::open(set.segments()[0].table()).unwrap_err();
        assert!(matches!(error, Error::NoPath), "{error}");
    }
}
