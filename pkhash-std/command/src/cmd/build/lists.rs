//! Reading the keys of a table: lines, pairs and CSV.

use pkhash_std::TableWriter;

use super::{BuildArgs, hint_at_policy, parse_value};
use crate::fail::{Fail, Result};
use crate::input::{Input, Records};
use crate::output::{HEX_MARK, Hint};

/// What was noticed while keys were read.
#[derive(Default)]
pub(super) struct Seen {
    /// The first two blank lines that became the empty key.
    blank: [Option<u64>; 2],
    /// The first record that is the same as the header.
    header_again: Option<u64>,
    /// A byte order mark was left out before a key that may be any bytes.
    mark: bool,
}

impl Seen {
    /// What may not be what was meant.
    pub(super) fn notes(&self, from: &str) -> impl Iterator<Item = String> {
        let blank = self.blank[0].map(|line| {
            format!(
                "{from}:{line}: a blank line became the empty key (--skip-empty leaves such lines out)"
            )
        });
        let header = self.header_again.map(|line| {
            format!("{from}:{line}: a record that is the same as the header became a key")
        });
        let mark = self.mark.then(|| {
            format!(
                "{from}: a byte order mark was left out at its beginning (if the first key begins so: \
                 without --text)"
            )
        });
        blank.into_iter().chain(header).chain(mark)
    }
}

impl BuildArgs {
    /// Adds one key; a set has no values.
    fn add(&self, writer: &mut TableWriter, key: &[u8], value: u64) -> pkhash_std::Result<()> {
        if self.set { writer.add_bytes(key, &[]) } else { writer.add(key, value) }
    }

    /// Bytes of a line, or of a record. Collected keys take three quarters of the budget, and a line lies
    /// beside them; of hex, what it stands for, too.
    const fn line_limit(&self) -> u64 {
        (self.memory / if self.keys.hex { 6 } else { 4 }) as u64
    }

    /// An error of the whole table. A duplicate's names both lines, if its values or the empty key tell them.
    pub(super) fn name_lines(&self, from: &str, seen: &Seen, error: pkhash_std::Error) -> Fail {
        let pkhash_std::Error::DuplicateKey { key, first, second } = &error else {
            return hint_at_policy(from, error);
        };
        let number = |value: &[u8]| {
            let mut bytes = [0; 8];
            bytes.get_mut(..value.len())?.copy_from_slice(value);
            u64::from_le_bytes(bytes).checked_add(1)
        };
        let counted = !self.pairs && !self.set && self.value.is_none();
        let numbers = if counted {
            number(first).zip(number(second))
        } else if key.is_empty() {
            seen.blank[0].zip(seen.blank[1])
        } else {
            None
        };
        let skip = if key.is_empty() { " (--skip-empty leaves empty keys out)" } else { "" };
        let from = match numbers {
            Some((a, b)) if self.csv => {
                format!("{from}: records {a} and {b} after the header{skip}")
            }
            Some((a, b)) => format!("{from}: lines {a} and {b}{skip}"),
            None => format!("{from}{skip}"),
        };
        hint_at_policy(&from, error)
    }

    pub(super) fn read_lines(
        &self,
        mut input: Input,
        writer: &mut TableWriter,
        reading: &indicatif::ProgressBar,
    ) -> Result<Seen> {
        let by_bytes = input.len.is_some();
        input.longer = LONGER;
        let marked = input.begin(self.keys.separator())?;
        let mut seen = Seen { mark: marked && self.pairs && self.keys.text, ..Seen::default() };
        let mut lines = input.into_lines(self.keys.separator(), self.line_limit())?;
        let mut buffer = Vec::new();
        loop {
            let Some((number, line)) = lines.next()? else { return Ok(seen) };
            let parsed = if self.pairs {
                self.parse_pair(line, &mut buffer)
            } else {
                self.keys.read_line(line, &mut buffer).map(|key| (key, number - 1))
            };
            let added = parsed.and_then(|(key, value)| {
                if key.is_empty() {
                    if self.skip_empty {
                        return Ok(Ok(()));
                    }
                    if line.is_empty()
                        && let Some(none) = seen.blank.iter_mut().find(|seen| seen.is_none())
                    {
                        *none = Some(number);
                    }
                }
                match self.add(writer, key, value) {
                    // What is wrong with the key belongs to the line, the rest to a file.
                    Err(pkhash_std::Error::Table { path: None, source }) => Err(source.to_string()),
                    other => Ok(other),
                }
            });
            match added {
                Ok(added) => added?,
                Err(cause) => return Err(lines.fail(cause)),
            }
            if number % 65_536 == 0 {
                reading.set_position(if by_bytes { lines.bytes } else { number });
            }
        }
    }

    fn parse_pair<'k>(
        &self,
        line: &'k [u8],
        buffer: &'k mut Vec<u8>,
    ) -> Result<(&'k [u8], u64), String> {
        // Keys may hold tabs, values do not.
        let tab = line.iter().rposition(|byte| *byte == b'\t');
        let tab = tab.ok_or_else(|| format!("expected `key TAB value`: {}", Hint(line)))?;
        let (key, value) = (&line[..tab], &line[tab + 1..]);
        let key = self.keys.read(key, buffer)?;
        if value.starts_with(HEX_MARK) {
            return Err(format!("opaque values cannot be built by this command: {}", Hint(value)));
        }
        if self.set && value.is_empty() {
            return Ok((key, 0));
        }
        Ok((key, parse_value(value)?))
    }

    pub(super) fn read_csv(
        &self,
        mut input: Input,
        writer: &mut TableWriter,
        reading: &indicatif::ProgressBar,
    ) -> Result<Seen> {
        let by_bytes = input.len.is_some();
        input.longer = LONGER;
        let mut seen = Seen::default();
        let mut records = input.into_records(self.delimiter, self.line_limit())?;
        let key_name = self.key.as_deref().unwrap_or_default();
        if !records.next()? {
            let cause =
                format_args!("expected a header with the column {key_name:?}, found the end");
            return Err(records.fail(cause));
        }
        let column = |name: &str| find_column(&records, name, self.delimiter);
        let key_column = column(key_name)?;
        let value_column = self.value.as_deref().map(column).transpose()?;
        let mut buffer = Vec::new();
        for number in 0u64.. {
            if !records.next()? {
                break;
            }
            let field = records.field(key_column);
            // The first compare is cheap, and mostly enough.
            let header = field == key_name.as_bytes() && records.repeats_header();
            let fail = |cause: String| {
                let again = if header { " (the record is the same as the header)" } else { "" };
                records.fail(format_args!("{cause}{again}"))
            };
            let key = self.keys.read_line(field, &mut buffer).map_err(fail)?;
            if key.is_empty() && self.skip_empty {
                continue;
            }
            let value = match value_column {
                Some(column) => parse_value(records.field(column)).map_err(fail)?,
                None => number,
            };
            match self.add(writer, key, value) {
                Err(pkhash_std::Error::Table { path: None, source }) => {
                    return Err(fail(source.to_string()));
                }
                other => other?,
            }
            if header {
                seen.header_again.get_or_insert(records.line());
            }
            if number % 65_536 == 0 {
                reading.set_position(if by_bytes { records.bytes } else { number });
            }
        }
        Ok(seen)
    }
}

/// What makes longer lines and records possible.
const LONGER: &str = " (more --memory takes longer ones)";

/// The one column of this name.
fn find_column(header: &Records, name: &str, delimiter: u8) -> Result<usize> {
    let has_name = |(_, field): &(usize, &[u8])| *field == name.as_bytes();
    let mut found = header.fields().enumerate().filter(has_name).map(|(column, _)| column);
    match (found.next(), found.next()) {
        (Some(only), None) => return Ok(only),
        (Some(first), Some(second)) => {
            return Err(header.fail(format_args!(
                "expected one column {name:?}, found it as columns {} and {}{}",
                first + 1,
                second + 1,
                match found.count() {
                    0 => String::new(),
                    more => format!(", and {more} more"),
                }
            )));
        }
        (None, _) => {}
    }
    /// Columns that are listed.
    const LISTED: usize = 20;
    let columns = header.fields().count();
    let mut have: Vec<_> = header.fields().take(LISTED).map(shown).collect();
    if columns > LISTED {
        have.push(format!("… ({columns} in all)"));
    }
    Err(header.fail(format_args!(
        "no column {name:?} among [{}]{}",
        have.join(", "),
        hint_at_delimiter(header, name, delimiter)
    )))
}

/// The name of a column, or its beginning.
fn shown(field: &[u8]) -> String {
    let cut = &field[..field.len().min(40)];
    let more = if cut.len() < field.len() { "…" } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(cut))
}

/// What to say if the header would have the column, or more than one, with another delimiter.
fn hint_at_delimiter(header: &Records, name: &str, delimiter: u8) -> String {
    let others = || {
        [(b';', ";"), (b'\t', "\\t"), (b',', ","), (b'|', "|")]
            .into_iter()
            .filter(|(other, _)| *other != delimiter)
    };
    let names_it = |(other, _): &(u8, _)| {
        let is_name = |part: &[u8]| {
            let part = part.strip_prefix(b"\"").unwrap_or(part);
            part.strip_suffix(b"\"").unwrap_or(part) == name.as_bytes()
        };
        header.fields().any(|field| field.split(|byte| byte == other).any(is_name))
    };
    let alone = header.fields().count() == 1;
    let splits = |(other, _): &(u8, _)| alone && header.field(0).contains(other);
    match others().find(names_it).or_else(|| others().find(splits)) {
        Some((_, other)) => format!(
            " (columns are separated by {:?}: --delimiter '{other}'?)",
            char::from(delimiter)
        ),
        None => String::new(),
    }
}
