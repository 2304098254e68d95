//! `pkhash build`

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount};
use pkhash_std::{
    Built, BuiltCompanion, CompanionOptions, KeyHasher, OnDuplicate, OpenOptions, Publication,
    TableFile, TableOptions, TableWriter, ValueChoice, ValueFormat, WriterOptions, build_companion,
    companion_path, publish_pair,
};
use serde_json::json;

use crate::fail::{Fail, Outcome, Result, note};
use crate::input::Input;
use crate::output::{Hint, KeyArgs, Name, Output, companion_before, note_stale_companion};
use crate::stdout::check_stdout;
use crate::{map, ui};

mod lists;

/// Build a table from keys, one a line. The value of a key is the number of its line, from 0.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The table; `-` is standard output. It appears under its name when it is complete.
    #[arg(long, short, value_name = "TABLE")]
    output: PathBuf,
    #[command(flatten)]
    build: BuildArgs,
}

/// The keys, and how a table is built of them: shared by `build` and `add`.
#[derive(clap::Args)]
pub(crate) struct BuildArgs {
    /// The file of keys; `-` is standard input. A UTF-8 byte order mark at its beginning is left out.
    input: PathBuf,

    /// Lines are `key TAB value`, as `dump` and `get` write them.
    #[arg(long, help_heading = "Input", conflicts_with_all = ["csv"])]
    pairs: bool,
    /// The input is CSV with a header line.
    #[arg(long, help_heading = "Input", requires = "key", conflicts_with = "null")]
    csv: bool,
    /// The column of the keys.
    #[arg(long, value_name = "COLUMN", help_heading = "Input", requires = "csv")]
    key: Option<String>,
    /// The column of the values, unsigned integers: by default the number of the record, from 0.
    #[arg(long, value_name = "COLUMN", help_heading = "Input", requires = "csv")]
    value: Option<String>,
    /// What separates columns: one character, or `\t`.
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = parse_delimiter,
          help_heading = "Input", requires = "csv")]
    delimiter: u8,
    /// Leave out empty keys. (They count as lines all the same.)
    #[arg(long, help_heading = "Input")]
    skip_empty: bool,
    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    make: ui::MakeArgs,
    /// Store keys alone, without values.
    #[arg(long, help_heading = "Table", conflicts_with_all = ["value_width", "value"])]
    set: bool,
    /// Filter bits for each key, or `none`: 10 admit 1.7 % of absent keys. By default 10, but none in a
    /// perfect table, where a key that is absent costs one read anyway.
    #[arg(long, value_name = "N", value_parser = ui::parse_filter_bits, help_heading = "Table")]
    filter_bits: Option<u8>,
    /// The seed of the hash, a number or `random`. Tables that share one are searched and merged faster.
    #[arg(long, default_value = "0", value_parser = parse_seed, help_heading = "Table")]
    seed: u64,
    /// What to do with a key that occurs again.
    #[arg(long, value_enum, default_value = "error")]
    on_duplicate: OnDuplicateArg,

    /// Make the ordered companion, too, beside the table: `range` and `prefix` need it.
    #[arg(long, conflicts_with = "set")]
    ordered: bool,
    /// Memory for keys: what outgrows it goes to a temporary file. A line takes a quarter of it at most, in hex
    /// a sixth.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = ui::parse_size)]
    memory: usize,
    /// Where temporary files go: by default beside the table.
    #[arg(long, value_name = "FOLDER")]
    temp_dir: Option<PathBuf>,
    /// Print a report in JSON.
    #[arg(long)]
    json: bool,
}

/// [`OnDuplicate`] as an argument.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum OnDuplicateArg {
    /// Stop, and name the key and both values.
    Error,
    /// Keep the value that came first.
    First,
    /// Keep the value that came last.
    Last,
}

impl From<OnDuplicateArg> for OnDuplicate {
    fn from(arg: OnDuplicateArg) -> Self {
        match arg {
            OnDuplicateArg::Error => Self::Error,
            OnDuplicateArg::First => Self::First,
            OnDuplicateArg::Last => Self::Last,
        }
    }
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [b'"' | b'\r' | b'\n'] => {
            Err("quotes and ends of lines do not separate columns".to_owned())
        }
        [byte] => Ok(*byte),
        _ => Err("expected one ASCII character, or \\t".to_owned()),
    }
}

/// A seed, or one that nobody can know before.
pub(crate) fn parse_seed(text: &str) -> Result<u64, String> {
    use std::hash::{BuildHasher, RandomState};
    match text {
        // The standard library seeds its hash maps from the system's random numbers.
        "random" => Ok(RandomState::new().hash_one(std::process::id())),
        _ => text.parse().map_err(|_| "expected a number below 2^64, or random".to_owned()),
    }
}

/// Whether two paths lead to one file that exists.
pub(crate) fn same_file(a: &Path, b: &Path) -> Result<bool> {
    let real = |path: &Path| match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        real => real.map(Some).map_err(|error| {
            Fail::message(format_args!("cannot look at {}: {error}", path.display()))
        }),
    };
    let (a, b) = (real(a)?, real(b)?);
    Ok(a.is_some() && a == b)
}

/// An error of the keys names where they came from; a duplicate's says what can be done about it.
pub(crate) fn hint_at_policy(from: &str, error: pkhash_std::Error) -> Fail {
    match error {
        pkhash_std::Error::DuplicateKey { .. } => Fail::message(format_args!(
            "{from}: {error} (--on-duplicate first or last keeps one of them)"
        )),
        pkhash_std::Error::Table {
            path: None,
            source:
                source
                @ (pkhash_core::Error::Unsolvable { .. } | pkhash_core::Error::EqualHashes { .. }),
        } => Fail::message(format_args!(
            "{from}: {source} (--seed random takes another hash, --layout term-order takes any keys)"
        )),
        pkhash_std::Error::Table { path: None, source } => {
            Fail::message(format_args!("{from}: {source}"))
        }
        error => error.into(),
    }
}

/// A table that was built.
pub(crate) struct Made {
    built: Built,
    companion: Option<BuiltCompanion>,
    read: Duration,
    all: Duration,
}

impl Made {
    /// What is said of it at the end.
    pub(crate) fn report(&self, path: &Path, json: bool) -> Result<()> {
        let times = [("read", self.read), ("all", self.all)];
        report(path, &self.built, None, self.companion.as_ref(), &times, json)
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let cancel = ui::Cancel::new()?;
        let made = self.build.run(&self.output, &cancel)?;
        made.report(&self.output, self.build.json)?;
        Ok(Outcome::Done)
    }
}

impl BuildArgs {
    /// The file of keys.
    pub(crate) fn input(&self) -> &Path {
        &self.input
    }

    /// Whether the report is to be JSON.
    pub(crate) const fn json(&self) -> bool {
        self.json
    }

    /// Builds a table and publishes it.
    pub(crate) fn run(&self, output: &Path, cancel: &ui::Cancel) -> Result<Made> {
        let began = Instant::now();
        check_temp_dir(self.temp_dir.as_deref())?;
        let mut input = Input::open(&self.input)?;
        if !self.csv {
            input = input.of_keys(self.keys);
        }
        let from = input.name();
        let make = self.make.make()?;
        let value = if self.set {
            ValueChoice::Fixed(ValueFormat::opaque(0).map_err(pkhash_std::Error::from)?)
        } else {
            make.value
        };
        let options = WriterOptions::default()
            .table(
                TableOptions::default()
                    .layout(make.layout)
                    .value(value)
                    .filter_bits(self.filter_bits)
                    .hasher(KeyHasher::new(self.seed))
                    .partition_bits(make.partition_bits)
                    .packed(make.packed),
            )
            .memory(self.memory)
            .threads(self.make.threads)
            .kernel(ui::kernel()?)
            .temp_dir(self.temp_dir.clone())
            .on_duplicate(self.on_duplicate.into())
            .progress(ui::progress("building", cancel));
        let to_stdout = output == Path::new("-");
        check_ordered(self.ordered, output)?;
        if !to_stdout && self.input != Path::new("-") {
            let companion = ("ordered companion", companion_path(output));
            let outputs = [("table", output.to_owned()), companion];
            for (what, path) in outputs.iter().take(1 + usize::from(self.ordered)) {
                if same_file(&self.input, path)? {
                    return Err(Fail::message(format_args!(
                        "{}: the {what} would replace its own input",
                        path.display()
                    )));
                }
            }
        }
        let before = companion_before(output, self.ordered)?;
        let mut writer = if to_stdout {
            check_stdout()?;
            TableWriter::new(options)?
        } else {
            TableWriter::create(output, options)?
        };
        cancel.remove_on_exit(writer.temporary_path());
        let companion = self.ordered.then(|| begin_companion(output, cancel)).transpose()?;
        let reading = match input.len {
            Some(len) => ui::bar("reading", len),
            None => ui::counter("reading"),
        };
        let seen = cancel.at_once(|| {
            if self.csv {
                self.read_csv(input, &mut writer, &reading)
            } else {
                self.read_lines(input, &mut writer, &reading)
            }
        })?;
        reading.finish_and_clear();
        seen.notes(&from).for_each(note);
        let read = began.elapsed();
        let (built, companion) = if to_stdout {
            let mut out = io::stdout();
            let built =
                writer.write_to(&mut out).map_err(|error| self.name_lines(&from, &seen, error))?;
            out.flush().map_err(Fail::output)?;
            (built, None)
        } else {
            let (built, table) =
                writer.finish().map_err(|error| self.name_lines(&from, &seen, error))?;
            let options = CompanionOptions::default()
                .memory(self.memory)
                .threads(self.make.threads)
                .temp_dir(self.temp_dir.clone());
            let make =
                |table: &TableFile, publication: &mut Publication, options: &CompanionOptions| {
                    build_companion(table, publication, options)
                };
            (built, publish(Vec::new(), table, companion, cancel, options, make)?)
        };
        note_stale_companion(output, before.as_deref());
        Ok(Made { built, companion, read, all: began.elapsed() })
    }
}

/// A folder for temporary files that cannot have any is noticed at once, and not when the first is needed.
pub(crate) fn check_temp_dir(folder: Option<&Path>) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    match tempfile::tempfile_in(folder) {
        Ok(_) => Ok(()),
        Err(error) => Err(Fail::message(format_args!(
            "--temp-dir: cannot create a temporary file in {}: {error}",
            folder.display()
        ))),
    }
}

/// A companion lies beside its table, so the table must lie somewhere.
pub(crate) fn check_ordered(ordered: bool, output: &Path) -> Result<()> {
    if ordered && output == Path::new("-") {
        return Err(Fail::message("--ordered: a table on standard output has no companion"));
    }
    Ok(())
}

/// Begins the ordered companion of a table.
pub(crate) fn begin_companion(table: &Path, cancel: &ui::Cancel) -> Result<Publication> {
    let companion = Publication::begin_like(companion_path(table), table)?;
    cancel.remove_on_exit([companion.temporary_path()]);
    Ok(companion)
}

/// Publishes a table that was written, behind other files, and with its companion if one was begun.
pub(crate) fn publish<M>(
    mut files: Vec<Publication>,
    table: Publication,
    companion: Option<Publication>,
    cancel: &ui::Cancel,
    options: CompanionOptions,
    make: M,
) -> Result<Option<BuiltCompanion>>
where
    M: FnOnce(
        &TableFile,
        &mut Publication,
        &CompanionOptions,
    ) -> pkhash_std::Result<BuiltCompanion>,
{
    let Some(mut companion) = companion else {
        files.push(table);
        cancel.check()?;
        Publication::commit_all(files)?;
        return Ok(None);
    };
    let options = options.progress(ui::progress("ordering", cancel));
    let made = table
        .open_table_by(|path| map::table(OpenOptions::new(), path))
        .and_then(|written| make(&written, &mut companion, &options));
    let made = made.map_err(|error| match error {
        pkhash_std::Error::Cancelled => error.into(),
        error => Fail::message(format_args!(
            "nothing is published, as there is no ordered companion: {error}"
        )),
    })?;
    cancel.check()?;
    publish_pair(files, table, companion)?;
    Ok(Some(made))
}

/// A value: an unsigned integer, perhaps among spaces.
pub(crate) fn parse_value(text: &[u8]) -> Result<u64, String> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim_ascii().parse().ok())
        .ok_or_else(|| format!("expected a value (an unsigned integer): {}", Hint(text)))
}

/// What `build` and `merge` say at the end: on standard output, unless the table went there. `deleted`: the
/// keys that a merge has left out because their docs are deleted.
pub(crate) fn report(
    path: &Path,
    built: &Built,
    deleted: Option<u64>,
    companion: Option<&BuiltCompanion>,
    times: &[(&str, Duration)],
    json: bool,
) -> Result<()> {
    if built.missing_threads > 0 {
        note(format_args!(
            "{} of the threads could not be started, so it took longer (--threads asks for fewer)",
            built.missing_threads
        ));
    }
    let footer = &built.footer;
    let per_key = footer.file_len() as f64 / (footer.keys().max(1)) as f64;
    let seconds = times.last().map_or(0.0, |(_, time)| time.as_secs_f64());
    let to_stdout = path == Path::new("-");
    let text = if json {
        let times: serde_json::Map<_, _> = times
            .iter()
            .map(|(what, time)| ((*what).to_owned(), time.as_secs_f64().into()))
            .collect();
        let mut object = json!({
            "table": path.display().to_string(),
            "keys": footer.keys(),
            "bytes": footer.file_len(),
            "bytes_per_key": per_key,
            "layout": footer.layout().name(),
            "partitions": footer.partitions(),
            "value_width": footer.value().width(),
            "filter_bits": footer.filter_bits(),
            "duplicates": built.duplicates,
            "spilled_bytes": built.spilled,
            "seed": footer.hasher().seed(),
            "evictions": built.evictions,
            "exceptions": built.exceptions,
            "missing_threads": built.missing_threads,
            "ordered": companion.map(|built| json!({
                "bytes": built.bytes,
                "spilled_bytes": built.spilled,
            })),
            "seconds": times,
        });
        if let Some(deleted) = deleted {
            object["deleted_keys"] = deleted.into();
        }
        object.to_string()
    } else {
        let mut text = format!(
            "{}: {} keys, {} ({per_key:.2} bytes a key), {}, {} in {seconds:.2} s",
            Name(path),
            HumanCount(footer.keys()),
            HumanBytes(footer.file_len()),
            footer.layout(),
            match footer.partitions() {
                1 => "1 partition".to_owned(),
                n => format!("{n} partitions"),
            },
        );
        if built.duplicates > 0 {
            text += &format!(", {} duplicates dropped", HumanCount(built.duplicates));
        }
        if let Some(deleted) = deleted.filter(|deleted| *deleted > 0) {
            text += &format!(", {} keys of deleted docs left out", HumanCount(deleted));
        }
        if built.spilled > 0 {
            text += &format!(", {} spilled", HumanBytes(built.spilled));
        }
        if let Some(companion) = companion {
            text += &format!(", ordered companion of {}", HumanBytes(companion.bytes));
        }
        text
    };
    if to_stdout {
        eprintln!("{text}");
        return Ok(());
    }
    let mut out = Output::new();
    out.line(text)?;
    out.flush()
}
