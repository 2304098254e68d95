//! Reading lines from files and from standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

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
        self.line.clear();
        let mut reader = (&mut self.reader).take(self.limit);
        let read = reader.read_until(self.separator, &mut self.line).map_err(|error| {
            Fail::message(format_args!("{}:{}: cannot read: {error}", self.name, self.number + 1))
        })?;
        if read as u64 == self.limit && self.line.last() != Some(&self.separator) {
            self.number += 1;
            return Err(self.fail(format_args!("a line of more than {} bytes", self.limit)));
        }
        if read == 0 {
            return Ok(None);
        }
        self.bytes += read as u64;
        self.number += 1;
        let mut line = self.line.as_slice();
        if let Some(cut) = line.strip_suffix(&[self.separator]) {
            line = cut;
            if self.separator == b'\n' {
                line = line.strip_suffix(b"\r").unwrap_or(line);
            }
        }
        Ok(Some((self.number, line)))
    }

    /// An error of this line.
    pub(crate) fn fail(&self, cause: impl std::fmt::Display) -> Fail {
        Fail::message(format_args!("{}:{}: {cause}", self.name, self.number))
    }
}
