//! Tables that go to a writer of the caller's: one that fails, takes nothing, takes less than it was given,
//! or is interrupted, at each of its calls.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use pkhash_std::{
    Built, DELETED, DocMap, Error, Layout, MIN_MEMORY, MergeInput, MergeOptions, Result, TableFile,
    TableOptions, TableWriter, WriterOptions, build_slice, merge,
};
use pkhash_testing::{Folder, Rng, build_bytes, int, of_slice};

/// What a writer does at a call of `write` or `flush`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// It fails.
    Fails(ErrorKind),
    /// It takes nothing.
    Nothing,
    /// It is interrupted, and works when called again.
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Never,
    /// At call n, from 1.
    At(usize, Does),
    /// Every call takes less than it was given, and every other one is interrupted.
    Always,
}

struct Faulty {
    when: When,
    /// Calls so far: true for `write`.
    calls: Vec<bool>,
    bytes: Vec<u8>,
}

impl Faulty {
    const fn new(when: When) -> Self {
        Self { when, calls: Vec::new(), bytes: Vec::new() }
    }

    /// What is to happen at this call, the number of which is the number of calls.
    fn now(&self) -> Option<Does> {
        match self.when {
            When::At(n, does) if n == self.calls.len() => Some(does),
            When::Always if self.calls.len() % 2 == 1 => Some(Does::Interrupted),
            _ => None,
        }
    }
}

impl Write for Faulty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls.push(true);
        let len = match self.now() {
            Some(Does::Fails(kind)) => return Err(kind.into()),
            Some(Does::Interrupted) => return Err(ErrorKind::Interrupted.into()),
            Some(Does::Nothing) => 0,
            None if self.when == When::Always => bytes.len().div_ceil(3),
            None => bytes.len(),
        };
        self.bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.calls.push(false);
        match self.now() {
            Some(Does::Fails(kind)) => Err(kind.into()),
            Some(Does::Interrupted) => Err(ErrorKind::Interrupted.into()),
            Some(Does::Nothing) | None => Ok(()),
        }
    }
}

type Make<'m> = Box<dyn Fn(&mut Faulty) -> Result<Built> + 'm>;

/// Long keys: few of them are several blocks.
fn keys(seed: u64, n: usize, len: usize) -> Vec<Vec<u8>> {
    let mut rng = Rng(seed);
    (0..n)
        .map(|i| {
            // Random where it matters; all of it would take its time.
            let mut key = rng.bytes(16);
            key.resize(len - i % 2, i as u8);
            key
        })
        .collect()
}

fn with(layout: Layout, threads: usize) -> WriterOptions {
    let table = TableOptions::default().layout(layout).partition_bits(3);
    WriterOptions::default().table(table).threads(threads)
}

/// No call goes wrong without the caller's notice, none is made after one that failed, and what can be made
/// good is made good.
fn check(name: &str, make: &Make<'_>) {
    let mut calm = Faulty::new(When::Never);
    make(&mut calm).unwrap();
    pkhash_std::Table::open(&calm.bytes).unwrap().verify().unwrap();
    assert!(calm.calls.len() > 3, "{name}: several blocks, and a flush");
    assert_eq!(calm.calls.iter().rposition(|write| !write), Some(calm.calls.len() - 1));
    for n in 1..=calm.calls.len() {
        let writes = calm.calls[n - 1];
        for kind in [ErrorKind::StorageFull, ErrorKind::WouldBlock] {
            let mut out = Faulty::new(When::At(n, Does::Fails(kind)));
            let error = make(&mut out).unwrap_err();
            match &error {
                Error::Io { doing: "write", path, source } => {
                    assert_eq!((path.as_path(), source.kind()), (Path::new("the output"), kind));
                }
                error => panic!("{name}, call {n}: {error}"),
            }
            assert_eq!(out.calls, calm.calls[..n], "{name}: writing goes on after {error}");
            assert!(calm.bytes.starts_with(&out.bytes), "{name}, call {n}");
        }
        let mut out = Faulty::new(When::At(n, Does::Nothing));
        match make(&mut out) {
            Ok(_) => assert!(!writes && out.bytes == calm.bytes, "{name}, call {n}"),
            Err(Error::Io { doing: "write", source, .. }) => {
                assert!(writes && source.kind() == ErrorKind::WriteZero, "{name}: {source}");
            }
            Err(error) => panic!("{name}, call {n}: {error}"),
        }
        let mut out = Faulty::new(When::At(n, Does::Interrupted));
        make(&mut out).unwrap();
        assert!(out.bytes == calm.bytes, "{name}: interrupted at call {n}");
        assert_eq!(out.calls.len(), calm.calls.len() + 1);
    }
    let mut out = Faulty::new(When::Always);
    make(&mut out).unwrap();
    assert!(out.bytes == calm.bytes, "{name}: in pieces");
    assert!(out.calls.len() > 4 * calm.calls.len());
}

#[test]
fn writers() {
    for (layout, threads) in [(Layout::Perfect, 1), (Layout::Perfect, 3), (Layout::TermOrder, 2)] {
        let keys = keys(1, 1100, 4000);
        let make: Make<'_> = Box::new(|out| {
            let mut writer = TableWriter::new(with(layout, threads))?;
            for (i, key) in keys.iter().enumerate() {
                writer.add(key, i as u64)?;
            }
            writer.write_to(out)
        });
        check(&format!("writer, {layout}, {threads} threads"), &make);
    }
}

#[test]
fn writers_that_have_spilled() {
    let folder = Folder::new();
    let keys = keys(2, 300, 30_000);
    let make: Make<'_> = Box::new(|out| {
        let temp_dir = Some(folder.root().to_owned());
        let mut writer =
            TableWriter::new(with(Layout::Perfect, 2).memory(MIN_MEMORY).temp_dir(temp_dir))?;
        for (i, key) in keys.iter().enumerate() {
            writer.add(key, i as u64)?;
        }
        let built = writer.write_to(out)?;
        assert!(built.spilled > 0);
        Ok(built)
    });
    check("spilled", &make);
    assert!(folder.names().is_empty());
}

#[test]
fn slices() {
    for threads in [1, 3] {
        let keys = keys(3, 1100, 4000);
        let make: Make<'_> = Box::new(|out| {
            let options = with(Layout::Perfect, threads);
            build_slice(&keys, |i| (i as u32).to_le_bytes(), out, &options)
        });
        check(&format!("slice, {threads} threads"), &make);
    }
}

#[test]
fn merges() {
    let folder = Folder::new();
    let tables: Vec<TableFile> = [Layout::Perfect, Layout::TermOrder]
        .into_iter()
        .enumerate()
        .map(|(i, layout)| {
            let pairs: Vec<_> =
                keys(4 + i as u64, 600, 4000).into_iter().zip((0..).map(int)).collect();
            let (_, bytes) = build_bytes(with(layout, 1), of_slice(&pairs)).unwrap();
            TableFile::open(folder.write(&format!("{i}.pkh"), bytes)).unwrap()
        })
        .collect();
    // Every tenth doc of the second one is deleted.
    let map = (0..600).map(|doc| if doc % 10 == 0 { DELETED } else { 600 + doc }).collect();
    let inputs = [MergeInput::new(&tables[0]), MergeInput::new(&tables[1]).docs(DocMap::Map(map))];
    // More partitions than the inputs have, so many, and fewer.
    for (bits, threads) in [(4, 1), (3, 3), (1, 2)] {
        let options = MergeOptions::default().partition_bits(bits).threads(threads);
        let make: Make<'_> = Box::new(|out| merge(&inputs, out, &options));
        check(&format!("merge, {bits} bits, {threads} threads"), &make);
    }
}

/// Nothing, and next to nothing: one write.
#[test]
fn small_tables() {
    for n in [0, 1] {
        let keys = keys(5, n, 20);
        let make =
            |out: &mut Faulty| build_slice(&keys, |i| [i as u8], out, &WriterOptions::default());
        let mut calm = Faulty::new(When::Never);
        make(&mut calm).unwrap();
        assert_eq!(calm.calls, [true, false]);
        for call in [1, 2] {
            let does = Does::Fails(ErrorKind::StorageFull);
            let mut out = Faulty::new(When::At(call, does));
            assert!(matches!(make(&mut out), Err(Error::Io { doing: "write", .. })));
        }
        let mut out = Faulty::new(When::Always);
        make(&mut out).unwrap();
        assert!(out.bytes == calm.bytes);
    }
}
