//! `pkhash compact`

use std::path::PathBuf;

use pkhash_std::{Error, MergeOptions, Merged, SegmentSet, TieredPolicy};
use serde_json::json;

use crate::fail::{Fail, Outcome, Result};
use crate::output::{Name, Output};
use crate::ui;

/// Merge tables of an index, so that there are fewer of them and deleted docs are gone.
///
/// Without options it merges neighbours of like size when there are many, and tables of which a third is deleted. Live
/// docs are numbered on, the oldest table's first: `--json` tells what became of what.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder.
    folder: PathBuf,
    /// Merge all tables into one.
    #[arg(long)]
    all: bool,
    /// Tables of one size that are left alone.
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "all")]
    tier: usize,
    /// No merge makes a table of more keys.
    #[arg(long, value_name = "N", default_value_t = 100_000_000, conflicts_with = "all")]
    max_keys: u64,
    /// Merge a table of which more than this share is deleted, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 33, conflicts_with = "all",
          value_parser = clap::value_parser!(u8).range(..=100))]
    max_deleted: u8,
    /// Memory for what is built.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = ui::parse_size)]
    memory: usize,
    /// Threads that build: by default one for each core.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print a report in JSON: an object for each merge.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let cancel = ui::Cancel::new()?;
        let index = ui::open_index(&self.folder)?;
        let mut writer = ui::writer(&index, &cancel)?;
        let options = MergeOptions::default()
            .memory(self.memory)
            .threads(self.threads)
            .kernel(ui::kernel()?)
            .progress(ui::progress("merging", &cancel));
        let merged = if self.all {
            let set = writer.set()?;
            let all = writer.merge_all(&options).map_err(|error| name_input(&set, error))?;
            all.into_iter().collect()
        } else {
            let policy = TieredPolicy::default()
                .segments_per_tier(self.tier)
                .max_merged_keys(self.max_keys)
                .max_deleted_percent(self.max_deleted);
            writer.merge(&policy, &options)?
        };
        cancel.check()?;
        writer.commit()?;
        let mut out = Output::new();
        for merged in &merged {
            self.print(merged, &mut out)?;
        }
        if merged.is_empty() && !self.json {
            out.line(format_args!("{}: nothing to merge", Name(&self.folder)))?;
        }
        out.flush()?;
        Ok(Outcome::Done)
    }

    fn print(&self, merged: &Merged, out: &mut Output) -> Result<()> {
        let footer = &merged.built.footer;
        if self.json {
            return out.line(json!({
                "inputs": merged.inputs,
                "output": merged.output,
                "keys": footer.keys(),
                "bytes": footer.file_len(),
                "duplicates": merged.built.duplicates,
            }));
        }
        out.line(format_args!(
            "{} → {}: {} keys, {} bytes",
            merged.inputs.join(" + "),
            merged.output,
            footer.keys(),
            footer.file_len()
        ))
    }
}

/// That tables cannot be merged says which, and what can be done.
fn name_input(set: &SegmentSet, error: Error) -> Fail {
    match error {
        Error::Mismatch { input, .. } | Error::Values { input, .. } => Fail::message(format_args!(
            "{}: its values are of another kind than those of other tables (without --all such tables are left apart)",
            set.segments()[input].table().name().display()
        )),
        error => error.into(),
    }
}
