//! `pkhash demo`

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use pkhash_std::{
    MergeInput, MergeOptions, OpenOptions, TableFile, TableWriter, Value, WriterOptions, merge,
};
use serde_json::json;

use crate::fail::{Fail, Outcome, Result};
use crate::output::Output;
use crate::ui;

/// Show what pkhash does: random UUIDs in several segments are built, verified, looked up, merged and
/// looked up again. Every answer is checked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of UUIDs.
    #[arg(long, default_value_t = 2_000_000)]
    keys: u32,
    /// Number of segments.
    #[arg(long, default_value_t = 8)]
    segments: u32,
    /// Keep the tables in this folder: by default they are made in a temporary one and removed.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Keys of one batch.
const BATCH: usize = 4096;

/// One line of the result.
struct Row {
    what: String,
    keys: u64,
    time: Duration,
    bytes_per_key: Option<f64>,
}

/// The UUID (version 4) of doc `doc`. Never the same for two docs: the mixing is one-to-one, and the
/// bits that the version overwrites are mixed into others first.
fn uuid(doc: u32) -> [u8; 16] {
    let mix = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let high = mix(u64::from(doc).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let low = mix(high ^ 0x5851_f42d_4c95_7f2d);
    let mut bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let cancel = ui::Cancel::new()?;
        let progress = || ui::progress("building", &cancel);
        let keys = self.keys;
        let segments = self.segments.clamp(1, keys.max(1));
        let temporary = tempfile::tempdir()
            .map_err(|error| Fail::message(format_args!("cannot create a folder: {error}")))?;
        cancel.remove_on_exit([temporary.path()]);
        let folder = self.keep.as_deref().unwrap_or(temporary.path());
        let mut rows = Vec::new();

        // Segment s holds docs begin(s)..begin(s + 1). Every tenth key that is asked for is absent.
        let begin = |s: u32| (u64::from(keys) * u64::from(s) / u64::from(segments)) as u32;
        let path = |s: u32| folder.join(format!("segment-{s}.pkh"));
        let began = Instant::now();
        let mut bytes = 0;
        for s in 0..segments {
            let options = WriterOptions::default().progress(progress());
            let mut writer = TableWriter::create(path(s), options)?;
            for doc in begin(s)..begin(s + 1) {
                writer.add(&uuid(doc), doc.into())?;
            }
            bytes += writer.publish()?.footer.file_len();
        }
        let mut row = |what: String, keys: u32, time, bytes: Option<u64>| {
            let bytes_per_key = bytes.map(|bytes| bytes as f64 / f64::from(keys.max(1)));
            rows.push(Row { what, keys: keys.into(), time, bytes_per_key });
        };
        row(format!("build {segments} segments"), keys, began.elapsed(), Some(bytes));

        let open = |path: &Path| -> Result<TableFile> {
            Ok(OpenOptions::new().kernel(ui::kernel()?).open(path)?)
        };
        let tables: Vec<TableFile> =
            (0..segments).map(|s| open(&path(s))).collect::<Result<_>>()?;
        let began = Instant::now();
        for table in &tables {
            table.verify()?;
        }
        row("verify".to_owned(), keys, began.elapsed(), None);

        // In an order that has nothing to do with the segments'.
        let asked: Vec<u32> = (0..keys)
            .map(|i| {
                let doc = (u64::from(i) * 0x9e37_79b1 % u64::from(keys.max(1))) as u32;
                if i % 10 == 0 { u32::MAX - doc } else { doc }
            })
            .collect();
        let ids: Vec<[u8; 16]> = asked.iter().map(|doc| uuid(*doc)).collect();
        let check = |what: &str, answers: &[Option<u32>]| {
            for (doc, answer) in asked.iter().zip(answers) {
                let expected = (*doc < keys).then_some(*doc);
                if *answer != expected {
                    return Err(Fail::message(format_args!(
                        "{what}: wrong answer for doc {doc}: expected {expected:?}, found {answer:?}"
                    )));
                }
            }
            Ok(())
        };
        let mut look_up = |tables: &[TableFile], name: &str| -> Result<()> {
            for (how, get) in [
                ("get", get_singly as fn(&[TableFile], &[[u8; 16]], &mut [Option<u32>]) -> _),
                ("get_batch", get_in_batches),
            ] {
                let what = format!("{how}, {name}");
                let mut answers = vec![None; ids.len()];
                // The first pass brings the tables into memory.
                get(tables, &ids[..ids.len().min(BATCH)], &mut answers)?;
                answers.fill(None);
                let began = Instant::now();
                get(tables, &ids, &mut answers)?;
                let time = began.elapsed();
                check(&what, black_box(&answers))?;
                row(what, keys, time, None);
            }
            Ok(())
        };
        let plural = if segments == 1 { "" } else { "s" };
        look_up(&tables, &format!("{segments} segment{plural}, 10 % absent"))?;

        let merged = folder.join("merged.pkh");
        let inputs: Vec<_> = tables.iter().map(MergeInput::new).collect();
        let began = Instant::now();
        let options = MergeOptions::default().progress(progress());
        let built = merge(&inputs, &merged, &options)?;
        let merge_time = began.elapsed();
        let table = open(&merged)?;
        let began = Instant::now();
        table.verify()?;
        let verify_time = began.elapsed();
        look_up(&[table], "merged, 10 % absent")?;
        let lookups = rows.split_off(rows.len() - 2);
        let per_key = built.footer.file_len() as f64 / f64::from(keys.max(1));
        rows.push(Row {
            what: format!("merge {segments} into 1"),
            keys: keys.into(),
            time: merge_time,
            bytes_per_key: Some(per_key),
        });
        rows.push(Row {
            what: "verify".to_owned(),
            keys: keys.into(),
            time: verify_time,
            bytes_per_key: None,
        });
        rows.extend(lookups);
        self.print(&rows)?;
        Ok(Outcome::Done)
    }

    fn print(&self, rows: &[Row]) -> Result<()> {
        let mut out = Output::new();
        let rate = |row: &Row| row.keys as f64 / row.time.as_secs_f64().max(1e-9);
        let kernel = ui::kernel()?.name();
        if self.json {
            let rows: Vec<_> = rows
                .iter()
                .map(|row| {
                    json!({
                        "what": row.what,
                        "keys": row.keys,
                        "seconds": row.time.as_secs_f64(),
                        "keys_per_second": rate(row),
                        "bytes_per_key": row.bytes_per_key,
                    })
                })
                .collect();
            out.line(json!({ "kernel": kernel, "checked": true, "rows": rows }))?;
            return out.flush();
        }
        out.line(format_args!(
            "{} random UUIDs of 16 bytes, kernel {kernel}; every answer was checked\n",
            HumanCount(self.keys.into())
        ))?;
        out.line(format_args!(
            "{:<36} {:>9} {:>12} {:>12}",
            "", "seconds", "M keys/s", "bytes a key"
        ))?;
        for row in rows {
            let bytes = row.bytes_per_key.map_or(String::new(), |bytes| format!("{bytes:.2}"));
            out.line(format_args!(
                "{:<36} {:>9.3} {:>12.2} {bytes:>12}",
                row.what,
                row.time.as_secs_f64(),
                rate(row) / 1e6
            ))?;
        }
        out.flush()
    }
}

/// One key after the other; of each, one segment after the other.
fn get_singly(tables: &[TableFile], ids: &[[u8; 16]], answers: &mut [Option<u32>]) -> Result<()> {
    for (id, answer) in ids.iter().zip(answers) {
        for table in tables {
            if let Some(value) = table.get(id)? {
                *answer = value.doc_id();
                break;
            }
        }
    }
    Ok(())
}

/// A batch at a time: what the first segment does not have is asked of the next one.
fn get_in_batches(
    tables: &[TableFile],
    ids: &[[u8; 16]],
    answers: &mut [Option<u32>],
) -> Result<()> {
    let mut open: Vec<(usize, [u8; 16])> = Vec::with_capacity(BATCH);
    let mut keys: Vec<[u8; 16]> = Vec::with_capacity(BATCH);
    let mut found: Vec<Option<Value<'_>>> = Vec::with_capacity(BATCH);
    for (ids, answers) in ids.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
        open.clear();
        open.extend(ids.iter().copied().enumerate());
        for table in tables {
            keys.clear();
            keys.extend(open.iter().map(|(_, id)| *id));
            found.clear();
            found.resize(keys.len(), None);
            table.get_batch(&keys, &mut found)?;
            let mut found = found.iter();
            open.retain(|(i, _)| {
                answers[*i] = found.next().and_then(|value| value.and_then(Value::doc_id));
                answers[*i].is_none()
            });
        }
    }
    Ok(())
}
