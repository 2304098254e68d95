//! `pkhash merge`

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pkhash_std::{
    CompanionOptions, DELETED, DocMap, KeyHasher, LiveDocs, MergeInput, MergeOptions, OrderedTerms,
    Publication, TableFile, ValueKind, build_companion, merge, merge_companions,
};

use super::build::{
    OnDuplicateArg, begin_companion, check_ordered, check_temp_dir, hint_at_policy, parse_seed,
    publish, report, same_file,
};
use crate::fail::{Fail, Outcome, Result, note};
use crate::input::Input;
use crate::live_docs::{LiveDocsArgs, check_density, docs_of, parse_doc};
use crate::output::{companion_before, note_stale_companion};
use crate::per_table::PerTable;
use crate::stdout::check_stdout;
use crate::tables::Given;
use crate::ui;

/// Merge tables into one. The inputs stay as they are; the output may replace one of them.
///
/// With `--live-docs` or `--deleted-docs` the keys of deleted docs are left out. The other docs keep their
/// IDs, or are numbered on without gaps with `--offset`.
///
/// Without `--offset` or `--doc-map` all docs keep their IDs: if each table counts its docs from 0, docs of
/// several tables then have one ID.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tables: they share the kind of values. A folder stands for all tables in it, the newest
    /// first, as for `get`.
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// The merged table; `-` is standard output.
    #[arg(long, short, value_name = "TABLE")]
    output: PathBuf,
    /// New doc IDs for the tables: one map for each table, in their order, or `NAME=FILE` for each, as for
    /// `--deleted-docs`; `-` instead of a file keeps a table's. Line i holds the new ID of doc i, or `-` if
    /// it was deleted.
    #[arg(long, value_name = "[NAME=]FILE", conflicts_with_all = ["live_docs", "deleted_docs"])]
    doc_map: Vec<PathBuf>,
    /// Number docs on: the IDs of each table begin where those of the one before ended. If docs are
    /// deleted, only live ones get an ID.
    #[arg(long, conflicts_with = "doc_map")]
    offset: bool,
    #[command(flatten)]
    live: LiveDocsArgs,
    /// Write the doc maps of the tables: one file for each, in their order, `-` writes none; or `NAME=FILE`,
    /// as for `--deleted-docs`. They are what `--doc-map` reads, and tell which docs of the merged table to
    /// delete for deletes that arrived meanwhile. The files are there before the table is: use them when
    /// `merge` has ended well.
    #[arg(long, value_name = "[NAME=]FILE")]
    write_doc_map: Vec<PathBuf>,
    #[command(flatten)]
    make: ui::MakeArgs,
    /// Filter bits for each key, or `none`: by default as the first table has.
    #[arg(long, value_name = "N", value_parser = ui::parse_filter_bits, help_heading = "Table")]
    filter_bits: Option<u8>,
    /// The seed of the hash, a number or `random`: by default as the first table has. The keys of a table
    /// with another seed are hashed anew, and then go through memory and a temporary file.
    #[arg(long, value_parser = parse_seed, help_heading = "Table")]
    seed: Option<u64>,
    /// Memory for what is built, and for keys that are hashed anew: what of those outgrows it goes to a
    /// temporary file.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = ui::parse_size)]
    memory: usize,
    /// Where temporary files go: by default beside the merged table.
    #[arg(long, value_name = "FOLDER")]
    temp_dir: Option<PathBuf>,
    /// What to do with a key that is in several tables: `first` is the one of the table that comes first on
    /// the command line. With the newest table first, that is the one that `get` finds.
    #[arg(long, value_enum, default_value = "error")]
    on_duplicate: OnDuplicateArg,
    /// Make the ordered companion, too: of those of the tables, if all have one.
    #[arg(long)]
    ordered: bool,
    /// Print a report in JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: ui::OpenArgs,
}

impl Args {
    pub(crate) fn run(mut self) -> Result<Outcome> {
        let began = Instant::now();
        let cancel = ui::Cancel::new()?;
        check_temp_dir(self.temp_dir.as_deref())?;
        check_ordered(self.ordered, &self.output)?;
        let given = cancel.at_once(|| Given::open(&self.tables, self.open))?;
        let given = self.live.apply(given)?;
        if self.offset {
            given.check_docs()?;
        }
        let (folder, tables) = (given.folder, given.tables());
        let live: Vec<Option<&LiveDocs>> =
            given.segments.iter().map(|segment| segment.live_docs().map(|live| &**live)).collect();
        self.tables = tables.iter().map(|table| table.name().to_owned()).collect();
        // A companion that is missing, or of no use, is not needed: then the keys are sorted anew.
        let terms: Option<Vec<OrderedTerms>> = self
            .ordered
            .then(|| {
                tables.iter().map(|table| self.open.open_companion(table, false).ok()).collect()
            })
            .flatten();
        let inputs: Vec<MergeInput<'_>> = tables
            .iter()
            .zip(self.doc_maps(&tables, &live, folder)?)
            .map(|(table, docs)| MergeInput::new(table).docs(docs))
            .collect();
        let maps = self.maps_to_write(&tables, &inputs, folder)?;
        let make = self.make.make()?;
        if !self.offset && self.doc_map.is_empty() {
            note_shared_docs(&tables);
        }
        note_seeds(&tables, self.seed);
        let options = MergeOptions::default()
            .layout(make.layout)
            .value(make.value)
            .filter_bits(self.filter_bits)
            .partition_bits(make.partition_bits)
            .packed(make.packed)
            .hasher(self.seed.map(KeyHasher::new))
            .memory(self.memory)
            .temp_dir(self.temp_dir.clone())
            .threads(self.make.threads)
            .kernel(ui::kernel()?)
            .on_duplicate(self.on_duplicate.into())
            .progress(ui::progress("merging", &cancel));
        let before = companion_before(&self.output, self.ordered)?;
        let (built, companion) = if self.output == Path::new("-") {
            check_stdout()?;
            // As ever, no table without its maps: they come first.
            Publication::commit_all(write_doc_maps(&maps, &cancel)?)?;
            let mut out = io::stdout();
            let built = merge(&inputs, &mut out, &options);
            out.flush().map_err(Fail::output)?;
            (built.map_err(|error| self.name_input(error))?, None)
        } else {
            let mut table = Publication::begin(&self.output)?;
            cancel.remove_on_exit([table.temporary_path()]);
            let companion =
                self.ordered.then(|| begin_companion(&self.output, &cancel)).transpose()?;
            let files = write_doc_maps(&maps, &cancel)?;
            let built =
                merge(&inputs, &mut table, &options).map_err(|error| self.name_input(error))?;
            let options = CompanionOptions::default()
                .memory(self.memory)
                .threads(self.make.threads)
                .temp_dir(self.temp_dir.clone());
            let make = |table: &_, publication: &mut _, options: &_| match &terms {
                Some(terms) => merge_companions(&inputs, terms, table, publication, options),
                None => build_companion(table, publication, options),
            };
            (built, publish(files, table, companion, &cancel, options, make)?)
        };
        note_stale_companion(&self.output, before.as_deref());
        let times = [("all", began.elapsed())];
        // What was read and is not there was dropped as a duplicate, or its doc is deleted.
        let read: u64 = inputs.iter().map(|input| input.table.footer().keys()).sum();
        let deleted = read.saturating_sub(built.footer.keys() + built.duplicates);
        report(&self.output, &built, Some(deleted), companion.as_ref(), &times, self.json)?;
        Ok(Outcome::Done)
    }

    /// An error of an input names its file.
    fn name_input(&self, error: pkhash_std::Error) -> Fail {
        match error {
            pkhash_std::Error::Mismatch { input, .. }
            | pkhash_std::Error::Values { input, .. }
            | pkhash_std::Error::DocMap { input, .. } => {
                let path = self.tables.get(input).map(|path| path.display().to_string());
                Fail::message(format_args!("{}: {error}", path.unwrap_or_default()))
            }
            error => hint_at_policy("merge", error),
        }
    }

    fn doc_maps(
        &self,
        tables: &[Arc<TableFile>],
        live: &[Option<&LiveDocs>],
        folder: bool,
    ) -> Result<Vec<DocMap>> {
        if let Some(first) = live.iter().position(Option::is_some) {
            if !self.doc_map.is_empty() {
                let path = tables[first].name().display();
                return Err(Fail::message(format_args!(
                    "{path}: --doc-map: docs are deleted in this index: expected no doc maps"
                )));
            }
            return self.live_maps(tables, live);
        }
        if self.offset {
            let mut base = Some(0u64);
            let mut maps = Vec::new();
            for (path, table) in self.tables.iter().zip(tables) {
                let footer = table.footer();
                let fail =
                    |cause| Fail::message(format_args!("{}: --offset: {cause}", path.display()));
                // Of opaque values the footer does not know the largest doc ID.
                if footer.value().kind() != ValueKind::Integer {
                    return Err(fail("the values are not integers: use --doc-map"));
                }
                if footer.keys() == 0 {
                    maps.push(DocMap::Keep);
                    continue;
                }
                let begin = base.ok_or_else(|| fail("no doc IDs are left"))?;
                maps.push(DocMap::Offset(begin));
                base = footer.max_value().checked_add(1).and_then(|docs| begin.checked_add(docs));
            }
            return Ok(maps);
        }
        if self.doc_map.is_empty() {
            return Ok(vec![DocMap::Keep; tables.len()]);
        }
        let option = PerTable { option: "--doc-map", given: &self.doc_map, folder };
        let read = |(file, table): (Option<PathBuf>, &Arc<TableFile>)| {
            // A table that was added since would keep IDs that others get.
            let file = file.ok_or_else(|| {
                let table = table.name().display();
                option.fail(format_args!("none for {table} (NAME=- keeps its doc IDs)"))
            })?;
            read_doc_map(&file)
        };
        option.assign(tables)?.into_iter().zip(tables).map(read).collect()
    }

    /// The maps that drop deleted docs.
    fn live_maps(
        &self,
        tables: &[Arc<TableFile>],
        live: &[Option<&LiveDocs>],
    ) -> Result<Vec<DocMap>> {
        let mut base = 0;
        let mut map = |(live, table): (&Option<&LiveDocs>, &Arc<TableFile>)| {
            if self.offset {
                let docs = live.map_or_else(|| docs_of(table), |live| Ok(live.docs()))?;
                let map;
                (map, base) = DocMap::compacting(*live, docs, base).map_err(|error| {
                    let path = table.name().display();
                    Fail::message(format_args!("{path}: --offset: {error}"))
                })?;
                return Ok(map);
            }
            let keep = |live: &LiveDocs| {
                let keep = |doc| if live.is_live(doc) { doc } else { DELETED };
                DocMap::Map((0..live.docs()).map(keep).collect())
            };
            Ok(live.map_or(DocMap::Keep, keep))
        };
        live.iter().zip(tables).map(&mut map).collect()
    }

    /// What doc maps are to be written, checked before all the work.
    fn maps_to_write<'a>(
        &self,
        tables: &[Arc<TableFile>],
        inputs: &'a [MergeInput<'_>],
        folder: bool,
    ) -> Result<Vec<MapToWrite<'a>>> {
        let given = &self.write_doc_map;
        if given.is_empty() {
            return Ok(Vec::new());
        }
        let paths = PerTable { option: "--write-doc-map", given, folder }.assign(tables)?;
        let mut maps: Vec<MapToWrite<'a>> = Vec::new();
        for (path, input) in paths.into_iter().zip(inputs) {
            let Some(path) = path.filter(|path| path != Path::new("-")) else { continue };
            let path = &path;
            for other in
                self.tables.iter().chain([&self.output]).chain(maps.iter().map(|map| &map.path))
            {
                if path == other || same_file(path, other)? {
                    let path = path.display();
                    return Err(Fail::message(format_args!(
                        "--write-doc-map: {path} is the name of another file of this merge"
                    )));
                }
            }
            let docs = match &input.docs {
                DocMap::Map(map) => map.len() as u32,
                _ => {
                    let docs = docs_of(input.table)?;
                    check_density(input.table.name(), input.table, docs)?;
                    docs
                }
            };
            // The largest of a map that is none, which alone may leave 32 bits.
            let last = docs.checked_sub(1).and_then(|doc| input.docs.get(doc));
            if last.is_some_and(|new| new >= DELETED.into()) {
                return Err(Fail::message(format_args!(
                    "{}: --write-doc-map: new doc IDs are not less than {DELETED}",
                    input.table.name().display()
                )));
            }
            maps.push(MapToWrite { path: path.clone(), map: &input.docs, docs });
        }
        Ok(maps)
    }
}

/// Begins and writes all doc maps, so that what can go wrong with them does so before the work.
fn write_doc_maps(maps: &[MapToWrite<'_>], cancel: &ui::Cancel) -> Result<Vec<Publication>> {
    let begin = |map: &MapToWrite<'_>| {
        let publication = Publication::begin(&map.path)?;
        cancel.remove_on_exit([publication.temporary_path()]);
        Ok(publication)
    };
    let mut files: Vec<Publication> = maps.iter().map(begin).collect::<Result<_>>()?;
    cancel.at_once(|| {
        maps.iter().zip(&mut files).try_for_each(|(map, file)| {
            map.write(file).map_err(|error| {
                Fail::message(format_args!("cannot write {}: {error}", map.path.display()))
            })
        })
    })?;
    Ok(files)
}

/// Says so if keys are hashed anew, since that is slower.
fn note_seeds(tables: &[Arc<TableFile>], seed: Option<u64>) {
    let seed_of = |table: &Arc<TableFile>| table.footer().hasher().seed();
    let Some(seed) = seed.or(tables.first().map(seed_of)) else { return };
    let mut others = tables.iter().filter(|table| seed_of(table) != seed);
    let Some(first) = others.next() else { return };
    let more = match others.count() {
        0 => String::new(),
        more => format!(", and so of {more} more"),
    };
    note(format_args!(
        "{}: its seed is {}, and that of the merged table {seed}: its keys are hashed anew{more}",
        first.name().display(),
        seed_of(first)
    ));
}

/// Says so if tables whose docs keep their IDs seem to have docs in common.
fn note_shared_docs(tables: &[Arc<TableFile>]) {
    let mut ranges: Vec<_> =
        tables.iter().filter_map(|table| Some((docs_about(table)?, table.name()))).collect();
    ranges.sort();
    // In this order, if any two overlap, so do two neighbours.
    let pairs = ranges.iter().zip(ranges.iter().skip(1));
    for ((a, first), (b, second)) in pairs.filter(|((a, _), (b, _))| b.0 <= a.1).take(1) {
        note(format_args!(
            "{} and {} seem to have doc IDs in common ({}…{} and {}…{}), which they keep: --offset \
             numbers docs on, --doc-map gives them other IDs",
            first.display(),
            second.display(),
            a.0,
            a.1,
            b.0,
            b.1
        ));
    }
}

/// The least and the largest doc ID, the least by guess; `None`: there are none, or they are not known.
fn docs_about(table: &TableFile) -> Option<(u64, u64)> {
    /// Records whose values are looked at.
    const SAMPLE: usize = 4096;

    let footer = table.footer();
    if footer.keys() == 0 || footer.value().kind() != ValueKind::Integer {
        return None;
    }
    // So many docs below the largest would have no gaps. If there are gaps, it begins earlier: a table that
    // counts from 0 has a doc near 0 among any few thousand.
    let least = footer.max_value().saturating_sub(footer.keys() - 1);
    let sample = table.table();
    let sample = sample.iter().take(SAMPLE).filter_map(|record| record.ok()?.1.as_u64());
    Some((sample.min().map_or(least, |doc| doc.min(least)), footer.max_value()))
}

struct MapToWrite<'a> {
    path: PathBuf,
    map: &'a DocMap,
    docs: u32,
}

impl MapToWrite<'_> {
    /// Writes what [`read_doc_map`] reads.
    fn write(&self, publication: &mut Publication) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, publication.file());
        for doc in 0..self.docs {
            match self.map.get(doc) {
                Some(new) => writeln!(file, "{new}"),
                None => file.write_all(b"-\n"),
            }?;
        }
        file.flush()?;
        // Here, so that a full disk is found before the work.
        file.get_ref().sync_all()
    }
}

fn read_doc_map(path: &Path) -> Result<DocMap> {
    if path == Path::new("-") {
        return Ok(DocMap::Keep);
    }
    let mut lines = Input::open(path)?.into_lines(b'\n', 1 << 16)?;
    let mut map = Vec::new();
    while let Some((_, line)) = lines.next()? {
        let new = match line {
            b"-" => Ok(DELETED),
            _ => parse_doc(line),
        };
        match new {
            Ok(new) => map.push(new),
            Err(cause) => return Err(lines.fail(cause)),
        }
    }
    Ok(DocMap::Map(map))
}
