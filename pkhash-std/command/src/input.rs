//! Reading lines and records of CSV from files and from standard input.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use csv_core::ReadRecordResult;

use crate::fail::{Fail, Result};
use crate::foreign::{self, Head};
use crate::output::KeyArgs;

/// How messages name an input.
pub(crate) fn input_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// An input: a file, or standard input for `-`. Every one is a list, or may be one.
pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    path: PathBuf,
    /// Length, if it is a regular file.
    pub(crate) len: Option<u64>,
    /// What makes longer lines and records possible, for messages.
    pub(crate) longer: &'static str,
    /// How keys are given that begin as other formats do, for messages.
    otherwise: &'static str,
    /// Whether it began with a byte order mark; `None`: not looked at yet.
    marked: Option<bool>,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new(Box::new(io::stdin()), input_name(path).into(), None));
        }
        let fail = |error| Fail::message(format_args!("cannot open {}: {error}", path.display()));
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        let len = meta.is_file().then_some(meta.len());
        Ok(Self::new(Box::new(file), path.to_owned(), len))
    }

    fn new(reader: Box<dyn Read + Send>, path: PathBuf, len: Option<u64>) -> Self {
        Self { reader, path, len, longer: "", otherwise: "", marked: None }
    }

    /// A list of keys, which may begin with any bytes.
    pub(crate) fn of_keys(mut self, form: KeyArgs) -> Self {
        if !form.hex {
            self.otherwise = " (keys that begin so: --hex)";
        }
        self
    }

    /// The name for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The first bytes, at most so many; they will be read again.
    pub(crate) fn peek(&mut self, most: u64) -> Result<Vec<u8>> {
        let mut head = Vec::new();
        let read = (&mut self.reader).take(most).read_to_end(&mut head);
        read.map_err(|error| self.cannot_read(&error))?;
        self.put_back(head.clone());
        Ok(head)
    }

    fn put_back(&mut self, head: Vec<u8>) {
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(io::Cursor::new(head).chain(rest));
    }

    fn cannot_read(&self, error: &io::Error) -> Fail {
        Fail::message(format_args!("{}: cannot read: {error}", self.path.display()))
    }

    pub(crate) fn into_reader(self) -> Box<dyn Read + Send> {
        self.reader
    }

    /// Leaves out a UTF-8 byte order mark, and returns whether there was one. Refuses what is no list, but
    /// compressed, UTF-16 or a table: of most of that, lines could be made, and keys of nonsense.
    pub(crate) fn begin(&mut self, separator: u8) -> Result<bool> {
        if let Some(marked) = self.marked {
            return Ok(marked);
        }
        let mut head = Vec::new();
        let marked = loop {
            // No more than is needed: whoever writes to a pipe may wait for an answer.
            let mut more = [0; foreign::HEAD];
            let read = match self.reader.read(&mut more[head.len()..]) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.cannot_read(&error)),
            };
            let from = head.len();
            head.extend_from_slice(&more[from..from + read]);
            let whole = read == 0 || head.len() == foreign::HEAD;
            match foreign::look(&head, whole, separator) {
                Head::Undecided => {}
                Head::Marked => {
                    head.drain(..foreign::MARK.len());
                    break true;
                }
                Head::Plain => break false,
                Head::Foreign(what) => {
                    let (name, otherwise) = (self.path.display(), self.otherwise);
                    return Err(Fail::message(format_args!("{name}: {what}{otherwise}")));
                }
            }
        };
        self.put_back(head);
        self.marked = Some(marked);
        Ok(marked)
    }

    /// Lines of at most `limit` bytes.
    pub(crate) fn into_lines(mut self, separator: u8, limit: u64) -> Result<Lines> {
        self.begin(separator)?;
        Ok(Lines {
            name: self.name(),
            longer: self.longer,
            reader: BufReader::with_capacity(1 << 20, self.reader),
            separator,
            limit,
            line: Vec::new(),
            number: 0,
            bytes: 0,
        })
    }

    /// Records of CSV of at most `limit` bytes.
    pub(crate) fn into_records(mut self, delimiter: u8, limit: u64) -> Result<Records> {
        self.begin(b'\n')?;
        Ok(Records {
            name: self.name(),
            longer: self.longer,
            reader: BufReader::with_capacity(1 << 20, self.reader),
            csv: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
            limit,
            text: vec![0; 1 << 10],
            ends: vec![0; 16],
            fields: 0,
            columns: None,
            state: RandomState::new(),
            header: 0,
            line: 1,
            bytes: 0,
        })
    }
}

/// Bytes of a line for which there is room from the start.
const PIECE: usize = 1 << 16;

/// Lines of an input, counted from 1. The last one need not end with a separator.
pub(crate) struct Lines {
    name: String,
    longer: &'static str,
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
            Some(false) => {
                let (limit, longer) = (self.limit, self.longer);
                Err(self.fail(format_args!("a line of more than {limit} bytes{longer}")))
            }
            None => Ok(None),
        }
    }

    /// The same, but of a line that is longer than the limit only as much. The rest is not held.
    pub(crate) fn next_cut(&mut self) -> Result<Option<(u64, &[u8])>> {
        match self.read()? {
            Some(true) => Ok(Some((self.number, self.text()))),
            Some(false) => {
                self.reader
                    .skip_until(self.separator)
                    .map_err(|error| self.fail(format_args!("cannot read: {error}")))?;
                Ok(Some((self.number, &self.line)))
            }
            None => Ok(None),
        }
    }

    /// Reads a line. Returns whether it is whole, and not longer than the limit.
    fn read(&mut self) -> Result<Option<bool>> {
        self.line.clear();
        let mut read = 0;
        // Piece by piece, each as long as all before it: memory that grows on its own may pass the limit.
        loop {
            let left = usize::try_from(self.limit).unwrap_or(usize::MAX) - read;
            let piece = read.max(PIECE).min(left);
            self.line.reserve_exact(piece);
            let mut reader = (&mut self.reader).take(piece as u64);
            let more = reader.read_until(self.separator, &mut self.line).map_err(|error| {
                let place = format_args!("{}:{}", self.name, self.number + 1).to_string();
                Fail::message(format_args!("{place}: cannot read: {error}"))
            })?;
            read += more;
            if more < piece || more == left || self.line.last() == Some(&self.separator) {
                break;
            }
        }
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

/// Makes room for twice as much, but hardly for more than `limit` bytes.
fn grow<T: Copy + Default>(room: &mut Vec<T>, limit: u64) {
    let most = usize::try_from(limit).unwrap_or(usize::MAX) / size_of::<T>();
    let len = (2 * room.len()).min(most).max(room.len() + 1);
    room.reserve_exact(len - room.len());
    room.resize(len, T::default());
}

/// Records of CSV. The first one is the header, and all others have as many fields.
///
/// The crate `csv` would take the end of the input for the end of a quote, and hold a record of any length.
pub(crate) struct Records {
    name: String,
    longer: &'static str,
    reader: BufReader<Box<dyn Read + Send>>,
    csv: csv_core::Reader,
    limit: u64,
    /// The fields one behind the other, and room for more.
    text: Vec<u8>,
    /// Where they end, and room for one more.
    ends: Vec<usize>,
    fields: usize,
    columns: Option<usize>,
    state: RandomState,
    /// The hash of the header's fields.
    header: u64,
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
                let (limit, longer) = (self.limit, self.longer);
                return Err(self.fail(format_args!("a record of more than {limit} bytes{longer}")));
            }
            match result {
                ReadRecordResult::InputEmpty if at_end => {
                    return Err(self.fail("the input ends in a quoted field of this record"));
                }
                ReadRecordResult::InputEmpty => {}
                // Neither takes more than the bytes that were read, or the check above ends it.
                ReadRecordResult::OutputFull => grow(&mut self.text, self.limit),
                ReadRecordResult::OutputEndsFull if self.columns.is_none() => {
                    grow(&mut self.ends, self.limit);
                }
                ReadRecordResult::OutputEndsFull | ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(false),
            }
        }
        match self.columns {
            None => {
                self.columns = Some(self.fields);
                self.ends.resize(self.fields + 1, 0);
                self.header = self.hash();
            }
            Some(columns) if columns != self.fields => {
                let found =
                    if self.fields < columns { self.fields.to_string() } else { "more".to_owned() };
                return Err(self.fail(format_args!(
                    "the header has {columns} fields, this record has {found}"
                )));
            }
            Some(_) => {}
        }
        Ok(true)
    }

    fn hash(&self) -> u64 {
        self.state.hash_one(self.fields().collect::<Vec<_>>())
    }

    /// Whether this record has the fields of the header. By their hash: the header is not held.
    pub(crate) fn repeats_header(&self) -> bool {
        self.hash() == self.header
    }

    /// The line on which the record begins.
    pub(crate) const fn line(&self) -> u64 {
        self.line
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
