//! Building companions: from a table, by sorting its keys; of a merged table, from the companions of those
//! that were merged.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fst::{MapBuilder, Streamer};
use pkhash_core::Value;
use xxhash_rust::xxh3::Xxh3;

use super::format::{self, Binding, Fault, MAX_ORDERED_KEY_LEN};
use super::sort::{MIN_COMPANION_MEMORY, Sorter};
use super::{OrderedTerms, check_values};
use crate::error::{Error, Result};
use crate::file::BlockWriter;
use crate::merge::{DELETED, DocMap, MergeInput};
use crate::progress::Progress;
use crate::publish::{Destination, Target, absolute};
use crate::table_file::TableFile;
use crate::threads::Pool;
use crate::writer::DEFAULT_MEMORY;

/// How a companion is built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompanionOptions {
    /// Bytes for sorting; what the fst's builder needs besides is a few MB, and some 100 bytes for each
    /// byte of the longest key. At least [`MIN_COMPANION_MEMORY`].
    pub memory: usize,
    /// Threads that sort: see [`WriterOptions::threads`](crate::WriterOptions::threads).
    pub threads: usize,
    /// Where keys go that outgrow the budget; `None`: the folder of the companion. The file has no name
    /// there and vanishes with the process, however it ends.
    pub temp_dir: Option<PathBuf>,
    /// Progress, in keys, and cancelling.
    pub progress: Progress,
}

impl Default for CompanionOptions {
    fn default() -> Self {
        Self { memory: DEFAULT_MEMORY, threads: 0, temp_dir: None, progress: Progress::default() }
    }
}

pkhash_core::setters!(CompanionOptions {
    memory: usize,
    threads: usize,
    temp_dir: impl Into<Option<PathBuf>>,
    progress: Progress,
});

/// A companion that was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuiltCompanion {
    /// Its keys: those of the table.
    pub keys: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes that went to temporary files.
    pub spilled: u64,
}

/// Builds the ordered companion of a table and publishes it, at
/// [`companion_path`](crate::companion_path) usually, or writes it elsewhere ([`Destination`]): into a file that is
/// published together with its table ([`publish_pair`](crate::publish_pair)). The bytes depend on the table alone.
///
/// # Errors
/// [`Error::NoDocIds`] unless the table's values are integers, or doc ID and version in 12 bytes;
/// [`Error::Table`] if the table is damaged, has a key longer than [`MAX_ORDERED_KEY_LEN`], or the memory is
/// less than [`MIN_COMPANION_MEMORY`]; [`Error::Io`]; [`Error::Cancelled`]. A path then has what it had
/// before, and no temporary file is left.
pub fn build_companion<'d>(
    table: &TableFile,
    into: impl Into<Destination<'d>>,
    options: &CompanionOptions,
) -> Result<BuiltCompanion> {
    into.into().write(Some(table.name()), |target| build_into(table, target, options))
}

fn build_into(
    table: &TableFile,
    target: Target<'_>,
    options: &CompanionOptions,
) -> Result<BuiltCompanion> {
    check_table(table)?;
    if options.memory < MIN_COMPANION_MEMORY {
        return Err(Error::MemoryBudget { expected: MIN_COMPANION_MEMORY, found: options.memory });
    }
    let footer = table.footer();
    let folder = options.temp_dir.as_deref().or(target.folder);
    let folder = folder.map_or_else(std::env::temp_dir, absolute);
    let pool = Pool::new(options.threads, footer.partitions());
    let longest = footer.max_key_len() as usize;
    let mut sorter = Sorter::new(footer.keys(), longest, options.memory, &folder, &pool)?;
    let view = table.table();
    let mut read = 0u64;
    for p in 0..footer.partitions() {
        // What is damaged here would pass for good in the companion.
        view.verify_checksums(p).map_err(Error::table(table.name()))?;
        options.progress.check()?;
        for record in view.iter_partition(p) {
            let (key, value) = record.map_err(Error::table(table.name()))?;
            let doc = value.long_doc_id().ok_or_else(|| no_doc_ids(table))?;
            sorter.push(key, doc)?;
            read += 1;
            if read.is_multiple_of(OFTEN) {
                options.progress.check()?;
            }
        }
    }
    write(table, target, &options.progress, |writer| {
        sorter.finish(&mut |key, doc| writer.add(key, doc))?;
        Ok(sorter.spilled())
    })
}

/// Keys between two looks at the flag.
const OFTEN: u64 = 1 << 16;

fn no_doc_ids(table: &TableFile) -> Error {
    let width = table.footer().value().width().into();
    Error::NoDocIds { path: table.name().to_owned(), width }
}

/// Whether a table can have a companion.
fn check_table(table: &TableFile) -> Result<()> {
    check_values(table)?;
    let longest = table.footer().max_key_len();
    if longest as usize > MAX_ORDERED_KEY_LEN {
        return Err(Error::table(table.name())(pkhash_core::Error::KeyLength {
            expected: MAX_ORDERED_KEY_LEN as u64,
            found: longest.into(),
        }));
    }
    Ok(())
}

/// Builds the companion of a merged table from those of the tables that were merged, and publishes it or writes it
/// elsewhere ([`Destination`]). Nothing is sorted, and the bytes are those that [`build_companion`] would make.
///
/// `inputs` are those of the merge, and `terms` their companions, in the same order. Which doc ID of a key
/// was kept that lives in several inputs, the merged table is asked.
///
/// # Errors
/// [`Error::Companion`] if one of `terms` is not of its input; the same or [`Error::CompanionKey`] if
/// `merged` is not what the inputs were merged into and that was noticed; [`Error::DocMap`] as for the merge;
/// [`Error::BatchLength`] if there are not as many `terms` as `inputs`; otherwise as [`build_companion`].
pub fn merge_companions<'d>(
    inputs: &[MergeInput<'_>],
    terms: &[OrderedTerms],
    merged: &TableFile,
    into: impl Into<Destination<'d>>,
    options: &CompanionOptions,
) -> Result<BuiltCompanion> {
    if inputs.len() != terms.len() {
        return Err(Error::BatchLength { expected: inputs.len(), found: terms.len() });
    }
    into.into()
        .write(Some(merged.name()), |target| merge_into(inputs, terms, merged, target, options))
}

fn merge_into(
    inputs: &[MergeInput<'_>],
    terms: &[OrderedTerms],
    merged: &TableFile,
    target: Target<'_>,
    options: &CompanionOptions,
) -> Result<BuiltCompanion> {
    check_table(merged)?;
    for (input, terms) in inputs.iter().zip(terms) {
        let binding = Binding::of(input.table.table());
        format::parse(terms.bytes(), &binding).map_err(|fault| fault.at(terms.path()))?;
    }
    let mut union = fst::map::OpBuilder::new();
    for terms in terms {
        union.push(&terms.fst);
    }
    let mut union = union.union();
    let mut left: Vec<u64> = Vec::new();
    let mut passed = 0u64;
    write(merged, target, &options.progress, |writer| {
        while let Some((key, values)) = union.next() {
            left.clear();
            for value in values {
                left.extend(map_doc(value.index, &inputs[value.index], value.value)?);
            }
            match left.as_slice() {
                [] => {}
                [doc] => writer.add(key, *doc)?,
                [found, ..] => {
                    let doc = merged.get(key)?.and_then(Value::long_doc_id);
                    match doc {
                        Some(doc) if left.contains(&doc) => writer.add(key, doc)?,
                        expected => {
                            let (path, key) = (Some(writer.path.to_owned()), key.to_vec());
                            let found = *found;
                            return Err(Error::CompanionKey { path, key, expected, found });
                        }
                    }
                }
            }
            // `add` looks at the flag, too, but docs may be deleted without end.
            passed += 1;
            if passed.is_multiple_of(OFTEN) {
                options.progress.check()?;
            }
        }
        Ok(0)
    })
}

/// The new doc ID; `None`: the doc was deleted.
fn map_doc(i: usize, input: &MergeInput<'_>, doc: u64) -> Result<Option<u64>> {
    let fail = |expected| Error::DocMap { input: i, found: doc, expected };
    match &input.docs {
        DocMap::Keep => Ok(Some(doc)),
        DocMap::Offset(base) => {
            doc.checked_add(*base).map(Some).ok_or_else(|| fail(u64::MAX - base))
        }
        DocMap::Map(map) => {
            let new = usize::try_from(doc).ok().and_then(|doc| map.get(doc));
            match new {
                None => Err(fail(map.len() as u64)),
                Some(&DELETED) => Ok(None),
                Some(new) => Ok(Some((*new).into())),
            }
        }
    }
}

/// Writes a companion of the keys that `fill` adds in term order. It returns the bytes that it spilled.
fn write(
    table: &TableFile,
    target: Target<'_>,
    progress: &Progress,
    fill: impl FnOnce(&mut Writer<'_>) -> Result<u64>,
) -> Result<BuiltCompanion> {
    let Target { out, path, .. } = target;
    let mut writer = Writer::create(table, out, path, progress)?;
    let spilled = fill(&mut writer)?;
    let keys = writer.binding.keys;
    let bytes = writer.finish()?;
    progress.report(keys, keys);
    Ok(BuiltCompanion { keys, bytes, spilled })
}

/// Writes the bytes of a companion.
struct Writer<'w> {
    builder: MapBuilder<Sink<&'w mut (dyn Write + Send)>>,
    binding: Binding,
    table: &'w TableFile,
    path: &'w Path,
    added: u64,
    progress: &'w Progress,
}

impl<'w> Writer<'w> {
    fn create(
        table: &'w TableFile,
        out: &'w mut (dyn Write + Send),
        path: &'w Path,
        progress: &'w Progress,
    ) -> Result<Self> {
        let mut out = BlockWriter::new(out)?;
        out.write_all(&format::head()).map_err(Error::io("write", path))?;
        let sink = Sink { out, hash: Xxh3::new(), len: 0, buffer: Vec::with_capacity(PIECE) };
        let builder = MapBuilder::new(sink).map_err(|error| fst_error(path, table, 0, error))?;
        let binding = Binding::of(table.table());
        Ok(Self { builder, binding, table, path, added: 0, progress })
    }

    fn add(&mut self, key: &[u8], doc: u64) -> Result<()> {
        self.builder
            .insert(key, doc)
            .map_err(|error| fst_error(self.path, self.table, self.added, error))?;
        self.added += 1;
        if self.added.is_multiple_of(OFTEN) {
            self.progress.check()?;
            self.progress.report(self.added, self.binding.keys);
        }
        Ok(())
    }

    /// Returns the number of bytes.
    fn finish(self) -> Result<u64> {
        let Self { builder, binding, table, path, added, progress } = self;
        // Of a table that is badly written, or of other tables than those that were merged.
        if added != binding.keys {
            let what = "number of keys for the companion";
            let fault = Fault::new(what, 0, binding.keys, added);
            return Err(fault.at(Some(path)));
        }
        progress.check()?;
        let mut sink =
            builder.into_inner().map_err(|error| fst_error(path, table, added, error))?;
        let mut end = || {
            sink.flush_piece()?;
            sink.out.write_all(&format::tail(sink.len, sink.hash.digest(), &binding))
        };
        end().map_err(Error::io("write", path))?;
        let bytes = sink.len + (format::HEAD_LEN + format::TAIL_LEN) as u64;
        sink.out.finish().map_err(Error::io("write", path))?;
        Ok(bytes)
    }
}

/// An error of the fst's builder: of the disk, or of keys that are in no order, as those of a table that
/// was badly written.
fn fst_error(path: &Path, table: &TableFile, added: u64, error: fst::Error) -> Error {
    match error {
        fst::Error::Io(error) => Error::io("write", path)(error),
        fst::Error::Fst(_) => Error::table(table.name())(pkhash_core::Error::Corrupt {
            what: "keys that differ",
            offset: table.footer().file_len(),
            expected: table.footer().keys(),
            found: added,
        }),
    }
}

/// The builder writes a few bytes at a time; they go on in pieces.
const PIECE: usize = 64 << 10;

/// Counts and sums up the bytes of the fst.
struct Sink<W> {
    out: BlockWriter<W>,
    hash: Xxh3,
    len: u64,
    buffer: Vec<u8>,
}

impl<W: Write> Sink<W> {
    fn flush_piece(&mut self) -> io::Result<()> {
        self.hash.update(&self.buffer);
        self.len += self.buffer.len() as u64;
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > PIECE {
            self.flush_piece()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
