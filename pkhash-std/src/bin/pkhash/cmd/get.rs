//! `pkhash get`

use std::ffi::OsString;
use std::path::PathBuf;

use pkhash_std::{TableFile, Value};
use serde_json::json;

use crate::fail::{Answer, Fail, Result};
use crate::input::Input;
use crate::output::{KeyArgs, Output, json_value, write_value};
use crate::ui::OpenArgs;

/// Look up keys: prints `key TAB value`, or with several tables `key TAB table TAB value`.
///
/// The first table that has a key answers. Exit code 1: a key was in none of them. Keys are read as they
/// are: to look up what `dump` has printed as \x…, use `--hex` for both.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tables, the newest first.
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// The keys.
    #[arg(last = true, value_name = "KEY", required_unless_present = "keys_from")]
    keys: Vec<OsString>,
    /// Read the keys from a file, one a line; `-` is standard input. They are looked up in batches.
    #[arg(long = "keys", value_name = "FILE", conflicts_with = "keys")]
    keys_from: Option<PathBuf>,
    /// List absent keys too: alone on their line, in JSON with the value null.
    #[arg(long)]
    missing: bool,
    #[command(flatten)]
    form: KeyArgs,
    /// Print an object of JSON for each key.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: OpenArgs,
}

/// Keys that are looked up together.
const BATCH: usize = 4096;

impl Args {
    pub(crate) fn run(self) -> Result<Answer> {
        let tables: Vec<TableFile> =
            self.tables.iter().map(|path| self.open.open(path)).collect::<Result<_>>()?;
        let mut out = Output::new();
        let mut all_found = true;
        match &self.keys_from {
            None => {
                let mut keys = Vec::new();
                for key in &self.keys {
                    let mut buffer = Vec::new();
                    let key = key.as_encoded_bytes();
                    let key = self.form.read_line(key, &mut buffer).map_err(Fail::message)?;
                    keys.push(key.to_vec());
                }
                for keys in keys.chunks(BATCH) {
                    all_found &= self.look_up(&tables, keys, &mut out)?;
                }
            }
            Some(path) => {
                let mut lines = Input::open(path)?.into_lines(
                    self.form.separator(),
                    2 * u64::from(pkhash_std::core::format::MAX_KEY_LEN),
                );
                let mut batch = vec![Vec::new(); BATCH];
                let mut buffer = Vec::new();
                loop {
                    let mut n = 0;
                    while n < BATCH
                        && let Some((_, line)) = lines.next()?
                    {
                        match self.form.read_line(line, &mut buffer) {
                            Ok(key) => {
                                batch[n].clear();
                                batch[n].extend_from_slice(key);
                            }
                            Err(cause) => return Err(lines.fail(cause)),
                        }
                        n += 1;
                    }
                    if n == 0 {
                        break;
                    }
                    all_found &= self.look_up(&tables, &batch[..n], &mut out)?;
                }
            }
        }
        out.flush()?;
        Ok(if all_found { Answer::Done } else { Answer::NotFound })
    }

    /// Looks up a batch in all tables and prints the answers in the order of the keys. Returns whether
    /// all were found.
    fn look_up(&self, tables: &[TableFile], keys: &[Vec<u8>], out: &mut Output) -> Result<bool> {
        let mut answers: Vec<Option<(usize, Value<'_>)>> = vec![None; keys.len()];
        let mut open: Vec<usize> = (0..keys.len()).collect();
        for (t, table) in tables.iter().enumerate() {
            let asked: Vec<&[u8]> = open.iter().map(|i| keys[*i].as_slice()).collect();
            let mut found = vec![None; asked.len()];
            table.get_batch(&asked, &mut found)?;
            let mut found = found.into_iter();
            open.retain(|i| {
                answers[*i] = found.next().flatten().map(|value| (t, value));
                answers[*i].is_none()
            });
            if open.is_empty() {
                break;
            }
        }
        for (key, answer) in keys.iter().zip(&answers) {
            if answer.is_none() && !self.missing {
                continue;
            }
            if self.json {
                self.print_json(tables, key, answer.as_ref(), out)?;
            } else {
                self.print(tables, key, answer.as_ref(), out)?;
            }
        }
        Ok(open.is_empty())
    }

    fn print(
        &self,
        tables: &[TableFile],
        key: &[u8],
        answer: Option<&(usize, Value<'_>)>,
        out: &mut Output,
    ) -> Result<()> {
        use std::io::Write;
        out.with(|out| {
            self.form.write(key, out)?;
            if let Some((t, value)) = answer {
                if tables.len() > 1 {
                    write!(out, "\t{}", tables[*t].path().display())?;
                }
                out.write_all(b"\t")?;
                write_value(tables[*t].footer().value.kind(), *value, out)?;
            }
            out.write_all(&[self.form.separator()])
        })
    }

    fn print_json(
        &self,
        tables: &[TableFile],
        key: &[u8],
        answer: Option<&(usize, Value<'_>)>,
        out: &mut Output,
    ) -> Result<()> {
        let key = self.form.json(key);
        out.line(match answer {
            Some((t, value)) => json!({
                "key": key,
                "table": tables[*t].path().display().to_string(),
                "value": json_value(tables[*t].footer().value.kind(), *value),
            }),
            None => json!({ "key": key, "value": null }),
        })
    }
}
