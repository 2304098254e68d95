//! Which docs of a table are deleted, as files tell it, and how many docs a table has.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkhash_std::{DELETED, LiveDocs, TableFile, ValueKind};
use roaring::RoaringBitmap;

use crate::fail::{Fail, Result};
use crate::input::Input;
use crate::output::Hint;
use crate::per_table::PerTable;
use crate::records::for_each_record;
use crate::tables::Given;

/// Deletes. The same options mean the same for every command.
#[derive(clap::Args)]
pub(crate) struct LiveDocsArgs {
    /// The docs that are live: one file for each table, in their order, or `NAME=FILE` for a table of this
    /// name; in a folder tables must be named. `-` instead of a file, or no file for a name: all docs of that
    /// table. A file has a doc ID in each line, or is a roaring bitmap in the portable format. Docs that it
    /// does not name are deleted.
    #[arg(long, value_name = "[NAME=]FILE", help_heading = "Deleted docs")]
    live_docs: Vec<PathBuf>,
    /// The docs that are deleted: files as for `--live-docs`, but all docs that they do not name are live.
    /// An empty file deletes nothing.
    #[arg(
        long,
        value_name = "[NAME=]FILE",
        conflicts_with = "live_docs",
        help_heading = "Deleted docs"
    )]
    deleted_docs: Vec<PathBuf>,
}

impl LiveDocsArgs {
    /// Whether there are files.
    const fn given(&self) -> bool {
        !self.live_docs.is_empty() || !self.deleted_docs.is_empty()
    }

    /// The segments with the live docs that the files tell of. Those of an index know theirs.
    pub(crate) fn apply(&self, mut given: Given) -> Result<Given> {
        if !self.given() {
            return Ok(given);
        }
        if let Some(index) = given.indexes.first() {
            return Err(Fail::message(format_args!(
                "{}: an index, which knows its deleted docs (`pkhash delete` deletes more)",
                index.display()
            )));
        }
        let live = self.read(&given.tables(), given.folder)?;
        for (segment, live) in given.segments.iter_mut().zip(live) {
            *segment = segment.clone().with_live_docs(live.map(Arc::new));
        }
        Ok(given)
    }

    /// The live docs of each table; `None`: all are live. `folder`: tables are those of a folder.
    fn read(&self, tables: &[Arc<TableFile>], folder: bool) -> Result<Vec<Option<LiveDocs>>> {
        let (option, given, read) = if self.deleted_docs.is_empty() {
            ("--live-docs", &self.live_docs, live as fn(&Path, &TableFile) -> _)
        } else {
            ("--deleted-docs", &self.deleted_docs, deleted as _)
        };
        let files = PerTable { option, given, folder }.assign(tables)?;
        let read = |(file, table): (Option<PathBuf>, &Arc<TableFile>)| {
            let file = file.filter(|file| file != Path::new("-"));
            file.map(|file| read(&file, table)).transpose()
        };
        files.into_iter().zip(tables).map(read).collect()
    }
}

fn live(path: &Path, table: &TableFile) -> Result<LiveDocs> {
    let given = read_docs(path)?;
    // Of a list that was never written, all docs would be gone.
    let given = given.ok_or_else(|| {
        let cause = "an empty file, so no doc would be live (an empty roaring bitmap says that)";
        Fail::message(format_args!("{}: {cause}", path.display()))
    })?;
    let docs = docs_with(table, path, &given)?;
    Ok(LiveDocs::from_live_bitmap(docs, &given)?)
}

fn deleted(path: &Path, table: &TableFile) -> Result<LiveDocs> {
    let given = read_docs(path)?.unwrap_or_default();
    let docs = docs_with(table, path, &given)?;
    Ok(LiveDocs::from_deleted_bitmap(docs, &given)?)
}

/// The docs of a table and of the file that tells about them. A doc that only the file knows is one
/// without a key; not to count it would shift the docs of the next table when docs are numbered on.
fn docs_with(table: &TableFile, path: &Path, given: &RoaringBitmap) -> Result<u32> {
    let docs = docs_of(table)?;
    check_density(table.name(), table, docs)?;
    // No file has the largest ID of all, which is none.
    let known = given.max().map_or(0, |doc| doc + 1);
    check_density(path, table, known)?;
    Ok(docs.max(known))
}

/// The number of a table's docs: one more than its largest doc ID. For values that are not integers the
/// whole table is read.
pub(crate) fn docs_of(table: &TableFile) -> Result<u32> {
    let footer = table.footer();
    check_values(table)?;
    if footer.keys() == 0 {
        return Ok(0);
    }
    let mut largest = footer.max_value();
    if footer.value().kind() != ValueKind::Integer {
        for_each_record(table, |_, value| {
            largest = largest.max(value.doc_id().unwrap_or(DELETED).into());
            Ok(())
        })?;
    }
    match u32::try_from(largest) {
        Ok(doc) if doc != DELETED => Ok(doc + 1),
        _ => Err(Fail::message(format_args!(
            "{}: expected doc IDs, which are less than {DELETED}, found {largest}",
            table.name().display()
        ))),
    }
}

/// Whether the values have doc IDs.
pub(crate) fn check_values(table: &TableFile) -> Result<()> {
    let footer = table.footer();
    if footer.value().has_doc_ids() || footer.keys() == 0 {
        return Ok(());
    }
    let name = table.name().display();
    Err(Fail::message(format_args!("{name}: a set of keys, which has no doc IDs")))
}

/// Bitsets and doc maps have room for all docs, whether keys have them or not: what one wild number asks
/// for must not take all of memory. `path` is where the number comes from.
pub(crate) fn check_density(path: &Path, table: &TableFile, docs: u32) -> Result<()> {
    let keys = table.footer().keys();
    let most = keys.saturating_mul(1 << 10).max(1 << 27);
    if u64::from(docs) <= most {
        return Ok(());
    }
    Err(Fail::message(format_args!(
        "{}: expected doc IDs below {most} for {keys} keys, found {}",
        path.display(),
        docs - 1
    )))
}

/// A doc ID, perhaps among spaces.
pub(crate) fn parse_doc(text: &[u8]) -> Result<u32, String> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim_ascii().parse().ok())
        .filter(|doc| *doc != DELETED)
        .ok_or_else(|| format!("expected a doc ID (less than {DELETED}): {}", Hint(text)))
}

/// The docs of a file; `None`: it is empty.
fn read_docs(path: &Path) -> Result<Option<RoaringBitmap>> {
    let mut input = Input::open(path)?;
    input.begin(b'\n')?;
    let head = input.peek(2)?;
    match head.as_slice() {
        [] => Ok(None),
        // The cookies of the portable format, 12346 and 12347. No number begins so.
        b":0" | b";0" => read_bitmap(input).map(Some),
        _ => read_lines(input).map(Some),
    }
}

fn read_lines(input: Input) -> Result<RoaringBitmap> {
    let mut lines = input.into_lines(b'\n', 1 << 16)?;
    let mut docs = RoaringBitmap::new();
    while let Some((_, line)) = lines.next()? {
        match parse_doc(line) {
            Ok(doc) => docs.insert(doc),
            Err(cause) => return Err(lines.fail(cause)),
        };
    }
    Ok(docs)
}

fn read_bitmap(input: Input) -> Result<RoaringBitmap> {
    let name = input.name();
    let mut reader = Counted { reader: BufReader::new(input.into_reader()), bytes: 0 };
    let docs = RoaringBitmap::deserialize_from(&mut reader);
    let fail = |at: u64, cause: &dyn std::fmt::Display| {
        Fail::message(format_args!("{name}: roaring bitmap: offset {at}: {cause}"))
    };
    let at = reader.bytes;
    let docs = docs.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => fail(at, &"expected more bytes, found the end"),
        _ => fail(at, &error),
    })?;
    if docs.contains(DELETED) {
        return Err(fail(at, &format_args!("expected doc IDs less than {DELETED}, found it")));
    }
    match reader.read(&mut [0]) {
        Ok(0) => Ok(docs),
        Ok(_) => Err(fail(at, &"expected the end, found more bytes")),
        Err(error) => Err(fail(at, &error)),
    }
}

/// Counts the bytes that are read.
struct Counted<R> {
    reader: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}
