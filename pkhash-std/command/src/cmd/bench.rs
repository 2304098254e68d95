//! `pkhash bench`

mod kinds;
mod lookups;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{HumanBytes, HumanCount};
use pkhash_core::builder::KeyStats;
use pkhash_std::{
    MAX_SEGMENTS, Segment, SegmentMapOptions, SegmentSet, TableOptions, ValueChoice, WriterOptions,
    build_slice,
};
use serde_json::json;
use tempfile::TempDir;

use kinds::{Docs, Kind, Shape, TIERS};
use lookups::{
    LINE, TASK, Task, Times, below, check_answers, independent_reads, look_up, look_up_batch,
};

use crate::fail::{Fail, Outcome, Result};
use crate::ids::{self, Make};
use crate::output::Output;
use crate::ui;

/// Measure how fast keys are found in many segments, with the search benchmark's tasks: PKLookup asks for
/// 4,000 IDs one by one, PKLookupBatch for all of them at once, on one thread.
///
/// Each round asks for other IDs, and each answer is compared with the doc that it should be. Tables are
/// built in a temporary folder, which is removed. Printed for each kind of IDs and shape, without segment map and with
/// it: bytes for each key, keys built in a second (the tables on the disk; with a map, bytes and keys of the
/// map alone), and nanoseconds for each ID that is asked for. What the machine can do at best comes
/// first: see `--probe`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keys of all segments together.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..), help_heading = "Data")]
    keys: u32,
    /// Kinds of IDs: by default all.
    #[arg(long, value_enum, value_name = "KIND", num_args = 1.., value_delimiter = ',',
          help_heading = "Data")]
    kind: Vec<Kind>,
    /// Shapes of the set: by default both, or `equal` if `--segments` is given.
    #[arg(long, value_enum, value_name = "SHAPE", num_args = 1.., value_delimiter = ',',
          help_heading = "Data")]
    shape: Vec<Shape>,
    /// Numbers of equal segments: by default 15.
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=MAX_SEGMENTS as i64),
          help_heading = "Data")]
    segments: Vec<u32>,
    /// How many in a hundred of the IDs that are asked for are in no segment.
    #[arg(long, value_name = "PERCENT", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(..=100), help_heading = "Data")]
    absent: u32,
    /// The seed of the IDs and of the order in which they are asked for.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Data")]
    seed: u64,

    #[command(flatten)]
    make: ui::MakeArgs,
    /// Filter bits for each key, or `none`: by default 10, but none in perfect tables.
    #[arg(long, value_name = "N", value_parser = ui::parse_filter_bits, help_heading = "Table")]
    filter_bits: Option<u8>,
    #[command(flatten)]
    open: ui::OpenArgs,

    /// Measure without segment map only.
    #[arg(long)]
    no_map: bool,
    /// Rounds: the median counts. Another one before them warms up.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(5..=10_000))]
    rounds: u32,
    /// Tasks of 4,000 IDs in each round.
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    tasks: u32,
    /// Memory of which random lines are read to find the limit of the machine: 64 bytes at a time, 32 reads
    /// in flight. What is measured here, as a multiple of it, can be compared with other
    /// machines.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = ui::parse_size)]
    probe: usize,
    /// Where the temporary folder is made: by default the system's place for them.
    #[arg(long = "in", value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A set, and what is known of it.
struct Measured {
    set: SegmentSet,
    /// Of the tables, or of the map.
    bytes_per_key: f64,
    build_time: Duration,
    lookup: Times,
    batch: Times,
}

/// What does not change from kind to kind.
struct Bench<'a> {
    args: &'a Args,
    cancel: ui::Cancel,
    options: WriterOptions,
    folder: TempDir,
    out: Output,
    rows: Vec<serde_json::Value>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let cancel = ui::Cancel::new()?;
        let kernel = ui::kernel()?.name();
        let kinds = if self.kind.is_empty() { Kind::value_variants() } else { &self.kind };
        let shapes = self.shapes()?;
        let make = self.make.make()?;
        // What `build_slice` is given here.
        const DOC_ID: u8 = 4;
        if let ValueChoice::Fixed(value) = make.value
            && value.width() != DOC_ID
        {
            return Err(Fail::message(format_args!(
                "--value-width {}: doc IDs take 4 bytes here, or by default as few as they need",
                value.width()
            )));
        }
        let table = TableOptions::default()
            .layout(make.layout)
            .value(make.value)
            .filter_bits(self.filter_bits)
            .partition_bits(make.partition_bits)
            .packed(make.packed);
        check(&table, kinds, &shapes)?;
        let place = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new().prefix("pkhash-bench-").tempdir_in(&place);
        let folder = folder.map_err(|error| {
            Fail::message(format_args!("cannot create a folder in {}: {error}", place.display()))
        })?;
        cancel.remove_on_exit([folder.path()]);
        let progress = ui::progress("building", &cancel);
        let threads = self.make.threads;
        let options = WriterOptions::default().table(table).threads(threads).progress(progress);
        let (out, rows) = (Output::new(), Vec::new());
        let limit = self.limit()?;
        let mut bench = Bench { args: &self, cancel, options, folder, out, rows };
        bench.begin(kernel, &limit)?;
        for kind in kinds {
            for docs in &shapes {
                bench.measure_kind(*kind, docs)?;
            }
        }
        let Bench { folder, mut out, rows, .. } = bench;
        if self.json {
            out.line(json!({
                "kernel": kernel,
                "checked": true,
                "keys": self.keys,
                "absent_percent": self.absent,
                "seed": self.seed,
                "rounds": self.rounds,
                "tasks": self.tasks,
                "task_keys": TASK,
                "probe": { "bytes": self.probe, "ns_per_line": limit.json() },
                "rows": rows,
            }))?;
        }
        let path = folder.path().display().to_string();
        folder.close().map_err(|error| {
            Fail::message(format_args!("cannot remove the folder {path}: {error}"))
        })?;
        out.flush()?;
        Ok(Outcome::Done)
    }

    fn shapes(&self) -> Result<Vec<Docs>> {
        let given = !self.segments.is_empty();
        let shapes: &[Shape] = match &self.shape[..] {
            [] if given => &[Shape::Equal],
            [] => Shape::value_variants(),
            shapes => shapes,
        };
        if given && !shapes.contains(&Shape::Equal) {
            return Err(Fail::message("--segments is for equal segments: add --shape equal"));
        }
        let numbers: &[u32] = if given { &self.segments } else { &[15] };
        let mut all = Vec::new();
        for shape in shapes {
            for segments in if *shape == Shape::Equal { numbers } else { &[0] } {
                let docs = Docs::new(*shape, *segments, self.keys);
                all.push(docs.ok_or_else(|| match shape {
                    Shape::Equal => Fail::message(format_args!(
                        "--segments {segments}: more than --keys {}",
                        self.keys
                    )),
                    Shape::Tiered => Fail::message(format_args!(
                        "--keys {}: too few for 7 segments, 7 of a tenth of their size and 8 of a \
                         hundredth, which take {}",
                        self.keys,
                        TIERS.map(|(n, size)| n as u64 * size).iter().sum::<u64>()
                    )),
                })?);
            }
        }
        Ok(all)
    }

    /// IDs of a round.
    const fn round(&self) -> usize {
        self.tasks as usize * TASK
    }

    /// The limit of the machine.
    fn limit(&self) -> Result<Times> {
        const WORD: u64 = 0x0101_0101_0101_0101;
        const ROUNDS: u64 = 7;
        const READS: u64 = 200_000;
        let lines = self.probe / LINE;
        let mut memory = Vec::new();
        if lines == 0 || memory.try_reserve_exact(self.probe).is_err() {
            let size = HumanBytes(self.probe as u64);
            return Err(Fail::message(format_args!(
                "--probe {size}: less than a line of 64 bytes, or more memory than there is"
            )));
        }
        memory.resize(self.probe, WORD as u8);
        let mut times = Times::default();
        for round in 0..=ROUNDS {
            let seed = ids::random(self.seed, round);
            let line = |i| below(ids::random(seed, i), lines as u64);
            let at: Vec<usize> = (0..READS).map(line).collect();
            let began = Instant::now();
            let sum = independent_reads(black_box(&memory), &at);
            let time = began.elapsed();
            if sum != WORD.wrapping_mul(READS) {
                return Err(Fail::message("the probe did not read what is there"));
            }
            // The first round warms up.
            if round > 0 {
                times.add(time, at.len());
            }
        }
        Ok(times)
    }
}

/// Plans the largest table of each kind, so that options that do not fit fail before anything is measured.
fn check(table: &TableOptions, kinds: &[Kind], shapes: &[Docs]) -> Result<()> {
    for (kind, docs) in kinds.iter().flat_map(|kind| shapes.iter().map(move |docs| (kind, docs))) {
        let (len, keys) = (kind.key_len() as u64, u64::from(docs.largest()));
        let mut stats = KeyStats::default();
        (stats.keys, stats.key_bytes, stats.max_value) = (keys, keys * len, keys - 1);
        (stats.min_key_len, stats.max_key_len) = (len, len);
        table.plan(&stats).map_err(|error| {
            Fail::message(format_args!("{}: IDs of {len} bytes: {error}", kind.name()))
        })?;
    }
    Ok(())
}

impl Bench<'_> {
    /// What is printed above the table.
    fn begin(&mut self, kernel: &str, limit: &Times) -> Result<()> {
        let Args { keys, absent, rounds, tasks, probe, .. } = *self.args;
        if self.args.json {
            return Ok(());
        }
        self.out.line(format_args!(
            "{} keys; tasks of {} IDs, {absent} % absent, {tasks} in each of {rounds} rounds; one \
             thread, kernel {kernel}; every answer was checked",
            HumanCount(keys.into()),
            HumanCount(TASK as u64),
        ))?;
        self.out.line(format_args!(
            "the limit of this machine: {limit} ns for a random line of 64 bytes in {}, 32 reads in \
             flight\n",
            HumanBytes(probe as u64)
        ))?;
        self.out.line(format_args!("{:74}ns a key: median (min–max)", ""))?;
        self.out.line(format_args!(
            "{:<11} {:>9}  {:<10}  {:<4}{:>12}{:>18}    {:<24}{}",
            "kind",
            "segments",
            "layout",
            "map",
            "bytes a key",
            "M keys/s to build",
            "PKLookup",
            "PKLookupBatch"
        ))?;
        self.out.flush()
    }

    fn measure_kind(&mut self, kind: Kind, docs: &Docs) -> Result<()> {
        match kind {
            Kind::Sequential => self.measure(kind, docs, ids::sequential),
            Kind::ZeroPadded => self.measure(kind, docs, ids::zero_padded),
            Kind::Nanotime => self.measure(kind, docs, ids::nanotime),
            Kind::UuidV1 => self.measure(kind, docs, ids::uuid_v1),
            Kind::UuidV4 => self.measure(kind, docs, ids::uuid_v4),
            Kind::UuidText => self.measure(kind, docs, ids::uuid_text),
            Kind::Flake => self.measure(kind, docs, ids::flake),
            Kind::FlakeText => self.measure(kind, docs, ids::flake_text),
            Kind::Asin => self.measure(kind, docs, ids::asin),
        }
    }

    /// A signal ends the work here at the latest.
    fn check_cancel(&self) -> Result<()> {
        self.cancel.at_once(|| Ok(()))
    }

    fn path(&self, segment: usize) -> PathBuf {
        self.folder.path().join(format!("{segment}.pkh"))
    }

    fn measure<const L: usize>(&mut self, kind: Kind, docs: &Docs, make: Make<L>) -> Result<()> {
        let mut sets = vec![self.build(docs, make)?];
        if !self.args.no_map {
            sets.push(self.map(&sets[0].set)?);
        }
        let rounds = self.args.rounds;
        let bar = ui::bar("measuring", rounds.into());
        let mut asked = Vec::new();
        let mut expected = Vec::new();
        let mut found = vec![None; self.args.round()];
        // No task is given twice: the second time, much of what it needs would be in a cache.
        let mut seeds = (0..).map(|i| ids::random(!self.args.seed, i));
        for round in 0..=rounds {
            for measured in &mut sets {
                let tasks: [(_, Task<L>); 2] =
                    [(&mut measured.lookup, look_up), (&mut measured.batch, look_up_batch)];
                for (times, task) in tasks {
                    self.check_cancel()?;
                    let seed = seeds.next().unwrap_or_default();
                    self.ask(seed, make, &mut asked, &mut expected);
                    found.fill(None);
                    let began = Instant::now();
                    task(&measured.set, &asked, &mut found)?;
                    let time = began.elapsed();
                    check_answers(kind, &asked, &expected, black_box(&found))?;
                    // The first round warms up.
                    if round > 0 {
                        times.add(time, asked.len());
                    }
                }
            }
            bar.set_position(round.into());
        }
        bar.finish_and_clear();
        for (measured, map) in sets.iter().zip([false, true]) {
            self.row(kind, docs, measured, map)?;
        }
        // Mapped files cannot be removed everywhere.
        drop(sets);
        for segment in 0..docs.segments() {
            remove(&self.path(segment))?;
        }
        Ok(())
    }

    /// Builds the tables of a set.
    fn build<const L: usize>(&self, docs: &Docs, make: Make<L>) -> Result<Measured> {
        let mut segments = Vec::with_capacity(docs.segments());
        let mut keys: Vec<[u8; L]> = Vec::new();
        keys.try_reserve_exact(docs.largest() as usize).map_err(|_| {
            Fail::message(format_args!("--keys {}: not enough memory", self.args.keys))
        })?;
        let (mut bytes, mut build_time) = (0, Duration::ZERO);
        for (segment, ends) in docs.bounds.windows(2).enumerate() {
            self.check_cancel()?;
            keys.clear();
            keys.extend((ends[0]..ends[1]).map(|doc| make(self.args.seed, doc, false)));
            let path = self.path(segment);
            let began = Instant::now();
            let value = |i: usize| (i as u32).to_le_bytes();
            let built = build_slice(&keys, value, &path, &self.options)?;
            build_time += began.elapsed();
            bytes += built.footer.file_len();
            let table = self.args.open.open(&path)?;
            segments.push(Segment::from(table).with_doc_base(ends[0]));
        }
        // The newest first.
        segments.reverse();
        let bytes_per_key = bytes as f64 / f64::from(self.args.keys);
        let set = SegmentSet::new(segments)?;
        let (lookup, batch) = (Times::default(), Times::default());
        Ok(Measured { set, bytes_per_key, build_time, lookup, batch })
    }

    /// The same set with a segment map.
    fn map(&self, set: &SegmentSet) -> Result<Measured> {
        let progress = ui::progress("mapping", &self.cancel);
        let threads = self.args.make.threads;
        let began = Instant::now();
        let set = set
            .with_segment_map(&SegmentMapOptions::default().threads(threads).progress(progress))?;
        let build_time = began.elapsed();
        let bytes = set.segment_map().map_or(0, |map| map.bytes);
        let bytes_per_key = bytes as f64 / f64::from(self.args.keys);
        let (lookup, batch) = (Times::default(), Times::default());
        Ok(Measured { set, bytes_per_key, build_time, lookup, batch })
    }

    /// The IDs of a round, and their docs. Of each task, just as many are absent as were asked for.
    fn ask<const L: usize>(
        &self,
        seed: u64,
        make: Make<L>,
        asked: &mut Vec<[u8; L]>,
        expected: &mut Vec<Option<u32>>,
    ) {
        let Args { keys, absent, .. } = *self.args;
        let mut randoms = (0..).map(|at| ids::random(seed, at));
        let mut below = |bound: u64| below(randoms.next().unwrap_or_default(), bound) as u64;
        asked.clear();
        expected.clear();
        for _ in 0..self.args.tasks {
            let mut absent_left = TASK as u64 * u64::from(absent) / 100;
            for left in (1..=TASK as u64).rev() {
                let absent = below(left) < absent_left;
                absent_left -= u64::from(absent);
                let doc = below(keys.into()) as u32;
                asked.push(make(self.args.seed, doc, absent));
                expected.push((!absent).then_some(doc));
            }
        }
    }

    /// Prints what was measured.
    fn row(&mut self, kind: Kind, docs: &Docs, measured: &Measured, map: bool) -> Result<()> {
        let layout = measured.set.segments()[0].table().footer().layout().name();
        let Measured { bytes_per_key, build_time, lookup, batch, .. } = measured;
        let rate = f64::from(self.args.keys) / build_time.as_secs_f64().max(1e-9);
        if self.args.json {
            let shape = docs.shape.to_possible_value();
            self.rows.push(json!({
                "kind": kind.name(),
                "key_bytes": kind.key_len(),
                "shape": shape.as_ref().map(clap::builder::PossibleValue::get_name),
                "segments": docs.segments(),
                "layout": layout,
                "map": map,
                "bytes_per_key": bytes_per_key,
                "build_keys_per_second": rate,
                "pk_lookup_ns": lookup.json(),
                "pk_lookup_batch_ns": batch.json(),
            }));
            return Ok(());
        }
        let bytes =
            if map { format!("+ {bytes_per_key:.2}") } else { format!("{bytes_per_key:.2}") };
        self.out.line(format_args!(
            "{:<11} {:>9}  {layout:<10}  {:<4}{bytes:>12}{:>18.2}    {lookup:<24}{batch}",
            kind.name(),
            docs.name(),
            if map { "yes" } else { "no" },
            rate / 1e6,
        ))?;
        self.out.flush()
    }
}

fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path)
        .map_err(|error| Fail::message(format_args!("cannot remove {}: {error}", path.display())))
}
