//! `pkhash stats`

use std::path::{Path, PathBuf};

use indicatif::{HumanBytes, HumanCount};
use pkhash_core::Section;
use pkhash_std::{AnyKernel, Footer, Layout, Table, ValueKind, visit_tables};
use serde_json::json;

use crate::fail::{Outcome, Plain, Result};
use crate::output::{Name, Output};
use crate::tables::{has_folder, tables_of};
use crate::ui::{self, OpenArgs};

/// Show the facts of tables: layout, sizes, load, what a lookup reads, the filter's measured rate, the
/// kernel in use.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tables. A folder stands for all tables in it, as for `get`.
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// Print an object of JSON for each table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: OpenArgs,
}

/// Slots beyond the home slot that have a line of their own in the histogram.
const HISTOGRAM: usize = 17;

/// Hashes that the filter is asked for. A random hash is that of a key with a chance of keys / 2^64.
const FILTER_PROBES: u64 = 200_000;

/// What is counted and measured, beside the footer.
struct Facts {
    /// Section, bytes.
    sections: Vec<(Section, u64)>,
    /// Slots looked at for each key, less one.
    probes: [u64; HISTOGRAM],
    longest_probe: u32,
    perfect: PerfectFacts,
    filter: Option<FilterFacts>,
}

/// What there is to say of a perfect table; all 0 of another.
#[derive(Default)]
struct PerfectFacts {
    buckets: u64,
    /// Partitions with another seed than 0.
    partition_seeds: u64,
    /// Lines of 64 bytes that a hit reads, on average: those of pilot, offset line and record.
    lines_per_lookup: f64,
}

impl PerfectFacts {
    fn measure(table: &Table<'_>) -> pkhash_core::Result<Self> {
        let footer = table.footer();
        if footer.layout() != Layout::Perfect || footer.keys() == 0 {
            return Ok(Self::default());
        }
        let mut facts = Self::default();
        for p in (0..footer.partitions()).filter_map(|p| table.partition(p)) {
            facts.buckets += u64::from(p.buckets);
            facts.partition_seeds += u64::from(p.seed != 0);
        }
        // Sections begin at lines of the table, so its offsets are those of lines.
        let bytes = table.as_bytes().as_ptr() as usize;
        let before_record = if footer.unit() > 0 { 2 } else { 1 };
        let mut lines = 0;
        for record in table {
            let (key, value) = record?;
            // Value and key lie one behind the other, one of them perhaps of no bytes.
            let at = value.as_bytes().as_ptr() as usize - bytes;
            let mut len = value.as_bytes().len() + key.len();
            if footer.unit() > 1 {
                // Padding of at least one byte, to whole units.
                len = (len + 1).next_multiple_of(footer.unit().into());
            }
            let last = at + len.max(1) - 1;
            lines += before_record + if len == 0 { 0 } else { (last / 64 - at / 64 + 1) as u64 };
        }
        facts.lines_per_lookup = lines as f64 / footer.keys() as f64;
        Ok(facts)
    }
}

struct FilterFacts {
    fill: f64,
    false_positives: f64,
}

impl Facts {
    fn measure(table: &Table<'_>) -> pkhash_core::Result<Self> {
        let footer = table.footer();
        // Facts of a damaged table would be no facts.
        (0..footer.partitions()).try_for_each(|p| table.verify_checksums(p))?;
        let partitions = || (0..footer.partitions()).filter_map(|p| table.partition(p));
        let sections = footer
            .layout()
            .sections()
            .enumerate()
            .map(|(i, section)| {
                let len = |p| footer.sections(&p).nth(i).map_or(0, |(_, len)| len);
                (section, partitions().map(len).sum())
            })
            .collect();
        let filter = table.filter_fill().map(|fill| {
            // SplitMix64.
            let hash = |i: u64| {
                let x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                x ^ (x >> 31)
            };
            let admitted = (0..FILTER_PROBES).filter(|i| table.filter_admits(hash(*i))).count();
            FilterFacts { fill, false_positives: admitted as f64 / FILTER_PROBES as f64 }
        });
        Ok(Self {
            sections,
            probes: table.probe_lengths()?,
            longest_probe: partitions().map(|p| p.probe_limit).max().unwrap_or(0),
            perfect: PerfectFacts::measure(table)?,
            filter,
        })
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let mut out = Output::new();
        let print = if self.json { print_json } else { print };
        let (tables, _snapshots) = tables_of(&self.tables, self.open)?;
        if has_folder(&tables)? {
            for table in visit_tables(&tables, |path| self.measure(path))? {
                print(&table, &mut out)?;
            }
        } else {
            for path in &tables {
                print(&self.measure(path)?, &mut out)?;
            }
        }
        out.flush()?;
        Ok(Outcome::Done)
    }

    fn measure(&self, path: &Path) -> Result<Measured> {
        let file = self.open.open(path)?;
        let facts = Facts::measure(file.table())
            .map_err(|source| pkhash_std::Error::Table { path: Some(path.into()), source })?;
        // One that is of no use is no reason not to show the table.
        let ordered = file.path().is_some_and(ui::has_companion).then(|| {
            let terms = self.open.open_companion(&file, false);
            terms.map(|terms| terms.file_len()).map_err(|fail| fail.to_string())
        });
        let (footer, kernel) = (*file.footer(), file.kernel());
        Ok(Measured { name: file.name().to_owned(), footer, kernel, facts, ordered })
    }
}

/// What is shown of a table.
struct Measured {
    name: PathBuf,
    footer: Footer,
    kernel: AnyKernel,
    facts: Facts,
    /// Bytes of its companion, or why that is of no use.
    ordered: Option<Result<u64, String>>,
}

fn print(table: &Measured, out: &mut Output) -> Result<()> {
    let Measured { footer, kernel, facts, ordered, .. } = table;
    // Nothing for each of no keys.
    let a_key = |bytes: u64| match footer.keys() {
        0 => String::new(),
        keys => format!("  {:6.2} a key", bytes as f64 / keys as f64),
    };
    out.line(Name(&table.name))?;
    let mut line = |name: &str, text: String| out.line(format_args!("  {name:<13} {text}"));
    line("layout", format!("{}, format version 1", footer.layout()))?;
    line("keys", format!("{} of {}", HumanCount(footer.keys()), key_lengths(footer)))?;
    line("values", values(footer))?;
    line("partitions", HumanCount(footer.partitions().into()).to_string())?;
    line("seed", footer.hasher().seed().to_string())?;
    line(
        "bytes",
        format!(
            "{:<13} {:>15}{}",
            HumanBytes(footer.file_len()).to_string(),
            HumanCount(footer.file_len()).to_string(),
            a_key(footer.file_len())
        ),
    )?;
    for (section, bytes) in &facts.sections {
        if *bytes > 0 {
            let (count, each) = (HumanCount(*bytes).to_string(), a_key(*bytes));
            line("", format!("{:<13} {count:>15}{each}", section.name()))?;
        }
    }
    let load = footer.keys() as f64 / footer.slots().max(1) as f64;
    line("load", format!("{load:.3} ({} slots)", HumanCount(footer.slots())))?;
    match &facts.filter {
        None => line("filter", "none".to_owned())?,
        Some(filter) => line(
            "filter",
            format!(
                "{} bits a key, {:.1} % of them set; admits {:.2} % of absent keys (measured)",
                footer.filter_bits(),
                100.0 * filter.fill,
                100.0 * filter.false_positives
            ),
        )?,
    }
    line(
        "ordered",
        match ordered {
            None => "none".to_owned(),
            Some(Ok(bytes)) => format!("companion of {}{}", HumanBytes(*bytes), a_key(*bytes)),
            Some(Err(cause)) => format!("unusable: {}", Plain(cause)),
        },
    )?;
    line("kernel", format!("{} in batches, {} singly", kernel.name(), kernel.single_name()))?;
    if footer.layout() == Layout::Perfect {
        return print_perfect(footer, &facts.perfect, out);
    }
    line("probes", format!("the longest looks at {} slots", facts.longest_probe))?;
    let all = facts.probes.iter().sum::<u64>().max(1) as f64;
    let most = facts.probes.iter().copied().max().unwrap_or(0).max(1);
    for (distance, count) in facts.probes.iter().enumerate() {
        if *count == 0 {
            continue;
        }
        let more = if distance + 1 == HISTOGRAM { "+" } else { " " };
        line(
            "",
            format!(
                "{:>3}{more} {:6.2} %  {}",
                distance + 1,
                100.0 * *count as f64 / all,
                draw(*count, most)
            ),
        )?;
    }
    Ok(())
}

fn print_perfect(footer: &Footer, facts: &PerfectFacts, out: &mut Output) -> Result<()> {
    let mut line = |name: &str, text: String| out.line(format_args!("  {name:<13} {text}"));
    line(
        "pilots",
        format!(
            "{:.2} bits a key, in {} buckets",
            pilot_bits(footer, facts),
            HumanCount(facts.buckets)
        ),
    )?;
    line(
        "records",
        match (footer.records_per_line(), footer.unit()) {
            (0, 0) => "of one length, back to back".to_owned(),
            (n, 0) => format!("of one length, {n} in each line of 64 bytes"),
            (_, 1) => "found by offset lines, in bytes".to_owned(),
            (_, unit) => format!("found by offset lines, in units of {unit} bytes"),
        },
    )?;
    line("lookup", format!("a hit reads {:.2} lines of 64 bytes", facts.lines_per_lookup))?;
    if facts.partition_seeds > 0 {
        line("seeds", format!("{} partitions have another", HumanCount(facts.partition_seeds)))?;
    }
    if footer.exceptions() > 0 {
        let count = HumanCount(footer.exceptions());
        line("exceptions", format!("{count} keys have the hash of another key"))?;
    }
    Ok(())
}

fn print_json(table: &Measured, out: &mut Output) -> Result<()> {
    let Measured { footer, kernel, facts, ordered, .. } = table;
    let sections: serde_json::Map<_, _> = facts
        .sections
        .iter()
        .map(|(section, bytes)| (section.name().replace(' ', "_"), (*bytes).into()))
        .collect();
    out.line(json!({
        "table": Name(&table.name).to_string(),
        "layout": footer.layout().name(),
        "format_version": pkhash_core::format::VERSION,
        "keys": footer.keys(),
        "min_key_len": footer.min_key_len(),
        "max_key_len": footer.max_key_len(),
        "key_bytes": footer.key_bytes(),
        "value_kind": match footer.value().kind() {
            ValueKind::Integer => "integer",
            _ => "opaque",
        },
        "value_width": footer.value().width(),
        "max_value": footer.max_value(),
        "partitions": footer.partitions(),
        "seed": footer.hasher().seed(),
        "bytes": footer.file_len(),
        "bytes_per_key": footer.file_len() as f64 / footer.keys().max(1) as f64,
        "sections": sections,
        "slots": footer.slots(),
        "load": footer.keys() as f64 / footer.slots().max(1) as f64,
        "filter_bits": footer.filter_bits(),
        "filter_fill": facts.filter.as_ref().map(|filter| filter.fill),
        "filter_false_positives": facts.filter.as_ref().map(|filter| filter.false_positives),
        "records_per_line": footer.records_per_line(),
        "offset_unit": footer.unit(),
        "buckets": facts.perfect.buckets,
        "pilot_bits_per_key": pilot_bits(footer, &facts.perfect),
        "exceptions": footer.exceptions(),
        "partition_seeds": facts.perfect.partition_seeds,
        "lines_per_lookup": facts.perfect.lines_per_lookup,
        "probe_lengths": facts.probes,
        "longest_probe": facts.longest_probe,
        "ordered": ordered.as_ref().map(|ordered| match ordered {
            Ok(bytes) => json!({ "bytes": bytes }),
            Err(cause) => json!({ "error": cause }),
        }),
        "kernel": kernel.name(),
        "kernel_single": kernel.single_name(),
    }))
}

/// Bits of pilots for each key.
fn pilot_bits(footer: &Footer, facts: &PerfectFacts) -> f64 {
    8.0 * facts.buckets as f64 / footer.keys().max(1) as f64
}

fn key_lengths(footer: &Footer) -> String {
    match (footer.min_key_len(), footer.max_key_len()) {
        (min, max) if min == max => format!("{max} bytes"),
        (min, max) => {
            let mean = footer.key_bytes() as f64 / footer.keys().max(1) as f64;
            format!("{min}…{max} bytes, {mean:.1} on average")
        }
    }
}

fn values(footer: &Footer) -> String {
    match (footer.value().kind(), footer.value().width()) {
        (_, 0) => "none: a set".to_owned(),
        (ValueKind::Integer, width) => {
            format!("integers of {width} bytes, the largest is {}", HumanCount(footer.max_value()))
        }
        (_, width) => format!("{width} opaque bytes"),
    }
}

/// A bar of eighths of a character, 40 at the most.
fn draw(count: u64, most: u64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (count as f64 / most as f64 * 320.0).round() as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}
