//! `pkhash merge`

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use pkhash_std::{
    BuiltCompanion, CompanionOptions, DELETED, DocMap, MergeInput, MergeOptions, OrderedTerms,
    Publication, TableFile, ValueKind, build_companion_publication, merge_companions_publication,
    merge_publication, merge_to,
};

use super::build::{
    OnDuplicateArg, check_ordered, hint_at_policy, make_ordered, parse_value, report,
};
use crate::fail::{Answer, Fail, Result};
use crate::input::Input;
use crate::ui;

/// Merge tables into one. The inputs stay as they are; the output may replace one of them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tables: they share seed and kind of values.
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// The merged table; `-` is standard output.
    #[arg(long, short, value_name = "TABLE")]
    output: PathBuf,
    /// New doc IDs for the tables, one map for each, in their order; `-` keeps a table's. Line i holds
    /// the new ID of doc i, or `-` if it was deleted.
    #[arg(long, value_name = "FILE", action = clap::ArgAction::Append)]
    doc_map: Vec<PathBuf>,
    /// Number docs on: the IDs of each table begin where those of the one before ended.
    #[arg(long, conflicts_with = "doc_map")]
    offset: bool,
    #[command(flatten)]
    make: ui::MakeArgs,
    /// Filter bits for each key, or `none`: by default as the first table has.
    #[arg(long, value_name = "N", value_parser = ui::parse_filter_bits, help_heading = "Table")]
    filter_bits: Option<u8>,
    /// What to do with a key that is in several tables.
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
    pub(crate) fn run(self) -> Result<Answer> {
        let began = Instant::now();
        let cancel = ui::Cancel::new()?;
        check_ordered(self.ordered, &self.output)?;
        let tables: Vec<TableFile> =
            self.tables.iter().map(|path| self.open.open(path)).collect::<Result<_>>()?;
        let inputs: Vec<MergeInput<'_>> = tables
            .iter()
            .zip(self.doc_maps(&tables)?)
            .map(|(table, docs)| MergeInput { table, docs })
            .collect();
        let make = self.make.make()?;
        let options = MergeOptions {
            layout: make.layout,
            value: make.value,
            filter_bits: self.filter_bits,
            partition_bits: make.partition_bits,
            packed: make.packed,
            threads: self.make.threads,
            on_duplicate: self.on_duplicate.into(),
            control: ui::control("merging", &cancel),
            ..MergeOptions::default()
        };
        let built = if self.output == Path::new("-") {
            let mut out = io::stdout();
            let built = merge_to(&inputs, &mut out, &options);
            out.flush().map_err(Fail::output)?;
            built
        } else {
            let publication = Publication::begin(&self.output)?;
            cancel.remove_on_exit(Some(publication.temporary_path()));
            merge_publication(&inputs, publication, &options)
        };
        let built = built.map_err(|error| self.name_input(error))?;
        let companion = if self.ordered { Some(self.order(&inputs, &cancel)?) } else { None };
        let times = [("all", began.elapsed())];
        report(&self.output, &built, companion.as_ref(), &times, self.json)?;
        Ok(Answer::Done)
    }

    /// Makes the companion of the merged table. The inputs' tables are still those that were merged, though
    /// the merged one may have the name of one of them.
    fn order(&self, inputs: &[MergeInput<'_>], cancel: &ui::Cancel) -> Result<BuiltCompanion> {
        // A companion that is missing, or of no use, is not needed: then the keys are sorted anew.
        let terms: Option<Vec<OrderedTerms>> =
            inputs.iter().map(|input| self.open.open_companion(input.table, false).ok()).collect();
        let options =
            CompanionOptions { threads: self.make.threads, ..CompanionOptions::default() };
        make_ordered(&self.output, cancel, options, |table, publication, options| match &terms {
            Some(terms) => merge_companions_publication(inputs, terms, table, publication, options),
            None => build_companion_publication(table, publication, options),
        })
    }

    /// An error of an input names its file.
    fn name_input(&self, error: pkhash_std::Error) -> Fail {
        match error {
            pkhash_std::Error::Mismatch { input, .. } | pkhash_std::Error::DocMap { input, .. } => {
                let path = self.tables.get(input).map(|path| path.display().to_string());
                Fail::message(format_args!("{}: {error}", path.unwrap_or_default()))
            }
            error => hint_at_policy("merge", error),
        }
    }

    fn doc_maps(&self, tables: &[TableFile]) -> Result<Vec<DocMap>> {
        if self.offset {
            let mut base = Some(0u64);
            let mut maps = Vec::new();
            for (path, table) in self.tables.iter().zip(tables) {
                let footer = table.footer();
                let fail =
                    |cause| Fail::message(format_args!("{}: --offset: {cause}", path.display()));
                // Of opaque values the footer does not know the largest doc ID.
                if footer.value.kind() != ValueKind::Integer {
                    return Err(fail("the values are not integers: use --doc-map"));
                }
                if footer.keys == 0 {
                    maps.push(DocMap::Keep);
                    continue;
                }
                let begin = base.ok_or_else(|| fail("no doc IDs are left"))?;
                maps.push(DocMap::Offset(begin));
                base = footer.max_value.checked_add(1).and_then(|docs| begin.checked_add(docs));
            }
            return Ok(maps);
        }
        if self.doc_map.is_empty() {
            return Ok(vec![DocMap::Keep; tables.len()]);
        }
        if self.doc_map.len() != tables.len() {
            return Err(Fail::message(format_args!(
                "--doc-map: expected one for each of the {} tables, found {}",
                tables.len(),
                self.doc_map.len()
            )));
        }
        self.doc_map.iter().map(|path| read_doc_map(path)).collect()
    }
}

fn read_doc_map(path: &Path) -> Result<DocMap> {
    if path == Path::new("-") {
        return Ok(DocMap::Keep);
    }
    let mut lines = Input::open(path)?.into_lines(b'\n', 1 << 16);
    let mut map = Vec::new();
    while let Some((_, line)) = lines.next()? {
        let new = match line {
            b"-" => Ok(DELETED),
            _ => parse_value(line).and_then(|new| {
                u32::try_from(new)
                    .ok()
                    .filter(|new| *new != DELETED)
                    .ok_or_else(|| format!("a doc ID is less than {DELETED}, found {new}"))
            }),
        };
        match new {
            Ok(new) => map.push(new),
            Err(cause) => return Err(lines.fail(cause)),
        }
    }
    Ok(DocMap::Map(map))
}
