//! Reading lines and records of CSV from files and from standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use csv_core::ReadRecordResult;

use crate::fail::{Fail, Result};

/// An input: a file, or standard input for `-`.
pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    path: PathBuf,
    /// Length, if it is a regular file.
    pub(crate) len: Option<u64>,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self {
                reader: Box::new(io::stdin()),
                path: PathBuf::from("standard input"),
                len: None,
            });
        }
        let fail = |error| Fail::message(format_args!("cannot open {}: {error}", path.display()));
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        let len = meta.is_file().then_some(meta.len());
        Ok(Self { reader: Box::new(file), path: path.to_owned(), len })
    }

    /// The name for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The first bytes, at most so many; they will be read again.
    pub(crate) fn peek(&mut self, most: u64) -> Result<Vec<u8>> {
        let mut head = Vec::new();
        (&mut self.reader).take(most).read_to_end(&mut head).map_err(|error| {
            Fail::message(format_args!("{}: cannot read: {error}", self.path.display()))
        })?;
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(io::Cursor::new(head.clone()).chain(rest));
        Ok(head)
    }

    pub(crate) fn into_reader(self) -> Box<dyn Read + Send> {
        self.reader
    }

    /// Leaves out a UTF-8 byte order mark.
    pub(crate) fn skip_mark(&mut self) -> Result<()> {
        let mut mark = [0; 3];
        if self.peek(3)? == *b"\xef\xbb\xbf" {
            self.reader.read_exact(&mut mark).map_err(|error| {
                Fail::message(format_args!("{}: cannot read: {error}", self.path.display()))
            })?;
        }
        Ok(())
    }

    /// Lines of at most `limit` bytes.
    pub(crate) fn into_lines(self, separator: u8, limit: u64) -> Lines {
        Lines {
            name: self.name(),
            reader: BufReader::with_capacity(1 << 20, self.reader),
            separator,
            limit,
            line: Vec::new(),
            number: 0,
            bytes: 0,
        }
    }

    /// Records of CSV of at most `limit` bytes.
    pub(crate) fn into_records(self, delimiter: u8, limit: u64) -> Records {
        Records {
            name: self.name(),
            reader: BufReader::with_capacity(1 << 20, self.reader),
            csv: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
            limit,
            text: vec![0; 1 << 10],
            ends: vec![0; 16],
            fields: 0,
            columns: None,
            line: 1,
            bytes: 0,
        }
    }
}

/// Lines of an input, counted from 1. The last one need not end with a separator.
pub(crate) struct Lines {
    name: String,
    reader: BufReader<Box<dyn Read + Send>>,
    separator: u8,
    limit: u64,
    line: Vec<u8>,
    number: u64,
    /// Bytes read so far.
    pub(crate) bytes: u64,
}

impl Lines {
    /// The next line without its end: LF, CRLF, or NUL alone.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        match self.read()? {
            Some(true) => Ok(Some((self.number, self.text()))),
            Some(false) => Err(self.fail(format_args!("a line of more than {} bytes", self.limit))),
            None => Ok(None),
        }
    }

    /// The same, but of a line that is longer than the limit only as much. The rest is not held.
    pub(crate) fn next_cut(&mut self) -> Result<Option<&[u8]>> {
        match self.read()? {
            Some(true) => Ok(Some(self.text())),
            Some(false) => {
                self.reader
                    .skip_until(self.separator)
                    .map_err(|error| self.fail(format_args!("cannot read: {error}")))?;
                Ok(Some(&self.line))
            }
            None => Ok(None),
        }
    }

    /// Reads a line. Returns whether it is whole, and not longer than the limit.
    fn read(&mut self) -> Result<Option<bool>> {
        self.line.clear();
        let mut reader = (&mut self.reader).take(self.limit);
        let read = reader.read_until(self.separator, &mut self.line).map_err(|error| {
            Fail::message(format_args!("{}:{}: cannot read: {error}", self.name, self.number + 1))
        })?;
        if read == 0 {
            return Ok(None);
        }
        self.bytes += read as u64;
        self.number += 1;
        Ok(Some((read as u64) < self.limit || self.line.last() == Some(&self.separator)))
    }

    /// The line without its end.
    fn text(&self) -> &[u8] {
        let mut line = self.line.as_slice();
        if let Some(cut) = line.strip_suffix(&[self.separator]) {
            line = cut;
            if self.separator == b'\n' {
                line = line.strip_suffix(b"\r").unwrap_or(line);
            }
        }
        line
    }

    /// An error of this line.
    pub(crate) fn fail(&self, cause: impl std::fmt::Display) -> Fail {
        Fail::message(format_args!("{}:{}: {cause}", self.name, self.number))
    }
}

/// Records of CSV. The first one is the header, and all others have as many fields.
///
/// The crate `csv` would take the end of the input for the end of a quote, and hold a record of any length.
pub(crate) struct Records {
    name: String,
    reader: BufReader<Box<dyn Read + Send>>,
    csv: csv_core::Reader,
    limit: u64,
    /// The fields one behind the other, and room for more.
    text: Vec<u8>,
    /// Where they end, and room for one more.
    ends: Vec<usize>,
    fields: usize,
    columns: Option<usize>,
    /// The line on which the record begins.
    line: u64,
    /// Bytes read so far.
    pub(crate) bytes: u64,
}

impl Records {
    /// Reads the next record. Returns whether there was one.
    pub(crate) fn next(&mut self) -> Result<bool> {
        self.fields = 0;
        let (mut text, mut len, mut begun) = (0, 0, false);
        loop {
            let mut input = match self.reader.fill_buf() {
                Ok(input) => input,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.fail(format_args!("cannot read: {error}"))),
            };
            if !begun {
                self.line = self.csv.line();
                if matches!(input.first(), Some(b'\n' | b'\r')) {
                    // Empty lines are no records. Alone, so that they do not count as lines of the next one.
                    input = &input[..1];
                } else {
                    begun = !input.is_empty();
                }
            }
            // A reader does not tell whether it is in quotes: a line feed behind the input's end ends the record
            // unless it is.
            let at_end = begun && input.is_empty();
            if at_end {
                input = b"\n";
            }
            let (result, read, written, ended) =
                self.csv.read_record(input, &mut self.text[text..], &mut self.ends[self.fields..]);
            text += written;
            self.fields += ended;
            if !at_end {
                self.reader.consume(read);
                self.bytes += read as u64;
                len += if begun { read as u64 } else { 0 };
            }
            // What a header takes is mostly where its fields end.
            let ends =
                if self.columns.is_none() { size_of_val(&self.ends[..self.fields]) } else { 0 };
            if len.max(ends as u64) > self.limit {
                return Err(self.fail(format_args!("a record of more than {} bytes", self.limit)));
            }
            match result {
                ReadRecordResult::InputEmpty if at_end => {
                    return Err(self.fail("the input ends in a quoted field of this record"));
                }
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.text.resize(2 * self.text.len(), 0),
                ReadRecordResult::OutputEndsFull if self.columns.is_none() => {
                    self.ends.resize(2 * self.ends.len(), 0);
                }
                ReadRecordResult::OutputEndsFull | ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(false),
            }
        }
        match self.columns {
            None => {
                self.columns = Some(self.fields);
                self.ends.resize(self.fields + 1, 0);
            }
            Some(columns) if columns != self.fields => {
                let found =
                    if self.fields < columns { self.fields.to_string() } else { "more".to_owned() };
                return Err(self
                    .fail(format_args!("expected {columns} fields, as the header has: {found}")));
            }
            Some(_) => {}
        }
        Ok(true)
    }

    /// The fields of the record.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.fields).map(|column| self.field(column))
    }

    /// One field.
    pub(crate) fn field(&self, column: usize) -> &[u8] {
        let begin = if column == 0 { 0 } else { self.ends[column - 1] };
        &self.text[begin..self.ends[column]]
    }

    /// An error of this record.
    pub(crate) fn fail(&self, cause: impl std::fmt::Display) -> Fail {
        Fail::message(format_args!("{}:{}: {cause}", self.name, self.line))
    }
}
