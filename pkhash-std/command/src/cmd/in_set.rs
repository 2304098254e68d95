//! `pkhash in-set`

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use indicatif::{HumanBytes, HumanCount};
use pkhash_std::{InSet, Publication, Segment, SegmentSet};
use serde_json::json;

use super::build::same_file;
use crate::fail::{Fail, Outcome, Result};
use crate::keys::KeysArgs;
use crate::live_docs::{check_values, docs_of};
use crate::output::{Name, Output};
use crate::tables::TablesArgs;
use crate::ui;

/// Print the docs that have one of many keys: the doc IDs, or with several tables, or a folder, `table TAB
/// doc`. Table after table, in each sorted and each doc once.
///
/// Not only the first table that has a key counts, as for `get`, but every one in which its doc is live. Exit
/// code 1: there are no such docs. Keys are read as by `get`, may repeat, and are all held in memory.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    tables: TablesArgs,
    #[command(flatten)]
    keys: KeysArgs,
    /// Number docs on: the IDs of each table begin where those of the one before ended. Deleted docs
    /// count, unlike for `merge --offset`. In an index the oldest table comes first: IDs are those of the index.
    #[arg(long)]
    offset: bool,
    /// Write the docs of all tables as a roaring bitmap in the portable format, and do not print them;
    /// `-` is standard output. Docs of several tables need `--offset`.
    #[arg(long, value_name = "FILE")]
    bitmap: Option<PathBuf>,
    /// Print an object of JSON for each table.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let named = self.tables.named()?;
        if self.bitmap.is_some() && named && !self.offset {
            return Err(Fail::message(
                "--bitmap: docs of several tables have the same IDs unless they are numbered on: \
                 use --offset",
            ));
        }
        let given = self.tables.open()?;
        given.check_docs()?;
        let tables = given.tables();
        if let Some(path) = &self.bitmap {
            for table in tables.iter().filter_map(|table| table.path()) {
                if same_file(path, table)? {
                    let path = path.display();
                    return Err(Fail::message(format_args!(
                        "{path}: the bitmap would replace a table"
                    )));
                }
            }
        }
        tables.iter().try_for_each(|table| check_values(table))?;
        let segments = if !self.offset {
            given.segments.iter().map(|segment| segment.clone().with_doc_base(0)).collect()
        } else if given.indexes.is_empty() {
            number_on(given.segments.clone())?
        } else if given.is_one_index() {
            given.segments.clone()
        } else {
            return Err(Fail::message(
                "--offset: an index numbers its docs by itself: search it alone",
            ));
        };
        let set = SegmentSet::new(segments)?;
        let mut found = set.in_set::<&[u8]>(&[])?;
        self.keys.batches(&set, usize::MAX, |keys| {
            found = set.in_set(keys).map_err(|error| match error {
                pkhash_std::Error::NoDocId { segment, .. } => {
                    let path = set.segments()[segment].table().name();
                    Fail::message(format_args!("{}: {error}", path.display()))
                }
                error => error.into(),
            })?;
            Ok(())
        })?;
        match &self.bitmap {
            Some(path) => self.write_bitmap(path, &found)?,
            None => self.print(named, &set, &found)?,
        }
        Ok(if found.is_empty() { Outcome::NotFound } else { Outcome::Done })
    }

    fn print(&self, named: bool, set: &SegmentSet, found: &InSet) -> Result<()> {
        let mut out = Output::new();
        for (number, segment) in set.segments().iter().enumerate() {
            let docs = found.segment(number);
            if self.json {
                self.print_json(segment, docs, &mut out)?;
                continue;
            }
            let table = Name(segment.table().name());
            for doc in docs {
                out.with(|out| {
                    if named {
                        write!(out, "{table}\t")?;
                    }
                    write!(out, "{doc}")?;
                    out.write_all(&[self.keys.form.separator()])
                })?;
            }
        }
        out.flush()
    }

    /// The docs are written one by one: as an object they would take many times their memory.
    fn print_json(
        &self,
        segment: &Segment,
        docs: impl Iterator<Item = u32>,
        out: &mut Output,
    ) -> Result<()> {
        let table = json!(Name(segment.table().name()).to_string());
        out.with(|out| {
            write!(out, "{{\"table\":{table}")?;
            if self.offset {
                write!(out, ",\"doc_base\":{}", segment.doc_base())?;
            }
            out.write_all(b",\"docs\":")?;
            let mut before = "[";
            for doc in docs {
                write!(out, "{before}{doc}")?;
                before = ",";
            }
            out.write_all(if before == "[" { b"[]}\n" } else { b"]}\n" })
        })
    }

    fn write_bitmap(&self, path: &Path, found: &InSet) -> Result<()> {
        let mut bitmap = found.bitmap();
        // Runs where they are shorter.
        bitmap.optimize();
        if path == Path::new("-") {
            let mut out = Output::new();
            out.with(|out| bitmap.serialize_into(out))?;
            return out.flush();
        }
        let fail = |error: io::Error| {
            Fail::message(format_args!("cannot write {}: {error}", path.display()))
        };
        let cancel = ui::Cancel::new()?;
        let mut publication = Publication::begin(path)?;
        cancel.remove_on_exit([publication.temporary_path()]);
        cancel.at_once(|| {
            let mut file = BufWriter::new(publication.file());
            bitmap.serialize_into(&mut file).map_err(fail)?;
            file.into_inner().map_err(|error| fail(error.into_error()))?;
            Ok(publication.commit()?)
        })?;
        let (docs, bytes) = (bitmap.len(), bitmap.serialized_size() as u64);
        let name = path.display();
        let mut out = Output::new();
        if self.json {
            out.line(json!({ "bitmap": name.to_string(), "docs": docs, "bytes": bytes }))?;
        } else {
            let (docs, bytes) = (HumanCount(docs), HumanBytes(bytes));
            out.line(format_args!("{name}: {docs} docs, {bytes}"))?;
        }
        out.flush()
    }
}

/// Gives each segment its doc base.
fn number_on(segments: Vec<Segment>) -> Result<Vec<Segment>> {
    let mut next = 0u32;
    let number = |segment: Segment| {
        let table = segment.table();
        let docs = segment.live_docs().map_or_else(|| docs_of(table), |live| Ok(live.docs()))?;
        let base = next;
        next = base.checked_add(docs).ok_or_else(|| {
            let path = table.name().display();
            Fail::message(format_args!("{path}: --offset: no doc IDs are left"))
        })?;
        Ok(segment.with_doc_base(base))
    };
    segments.into_iter().map(number).collect()
}
