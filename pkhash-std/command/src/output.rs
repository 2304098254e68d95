//! Writing keys and values, and the forms in which a key is text.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::{Path, PathBuf};

use pkhash_std::{Error, OpenOptions, OrderedOptions, Value, ValueKind, companion_path};
use serde_json::json;

use crate::fail::{Fail, Result, note};
use crate::foreign::MARK;
use crate::map;
use crate::stdout::check_stdout;

/// How keys are read and written. The same options mean the same for every command.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct KeyArgs {
    /// Keys are hex, in input and output.
    #[arg(long, help_heading = "Keys")]
    pub(crate) hex: bool,
    /// Keys are raw bytes, even if they are not printable. (By default such a key is written as \x
    /// and its hex, a form that `build --pairs` reads.)
    #[arg(long, conflicts_with = "hex", help_heading = "Keys")]
    pub(crate) text: bool,
    /// Lines end with NUL instead of a line feed, in input and output.
    #[arg(long, short = '0', help_heading = "Keys")]
    pub(crate) null: bool,
}

/// What marks a key as hex among keys that are text.
pub(crate) const HEX_MARK: &[u8] = b"\\x";

/// Text that a terminal shows as it is.
fn printable(key: &[u8]) -> bool {
    std::str::from_utf8(key).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// Whether bytes are written as they are, and not as [`HEX_MARK`] and their hex. At the beginning of a file, a
/// byte order mark would not be read back.
fn is_plain(bytes: &[u8]) -> bool {
    printable(bytes) && !bytes.starts_with(HEX_MARK) && !bytes.starts_with(MARK)
}

impl KeyArgs {
    /// The separator between lines.
    pub(crate) const fn separator(self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }

    /// Writes a key.
    pub(crate) fn write(self, key: &[u8], out: &mut impl Write) -> io::Result<()> {
        let mark = !self.hex && !self.text && !is_plain(key);
        if mark {
            out.write_all(HEX_MARK)?;
        }
        if mark || self.hex { write!(out, "{}", Hex(key)) } else { out.write_all(key) }
    }

    /// A key as a string of JSON. Raw bytes cannot be one, so `--text` changes nothing.
    pub(crate) fn json(self, key: &[u8]) -> serde_json::Value {
        let mut bytes = Vec::new();
        // Writing to memory does not fail, and what is written is text.
        let _ = Self { text: false, ..self }.write(key, &mut bytes);
        String::from_utf8_lossy(&bytes).into()
    }

    /// Reads a key that [`write`](Self::write) wrote; `buffer` may hold it.
    pub(crate) fn read<'k>(
        self,
        text: &'k [u8],
        buffer: &'k mut Vec<u8>,
    ) -> Result<&'k [u8], String> {
        match text.strip_prefix(HEX_MARK) {
            Some(hex) if !self.hex && !self.text => decode_hex(hex, buffer),
            _ => self.read_line(text, buffer),
        }
    }

    /// Reads a key from a line that is nothing but a key: hex if that was asked for, otherwise the
    /// bytes as they are.
    pub(crate) fn read_line<'k>(
        self,
        line: &'k [u8],
        buffer: &'k mut Vec<u8>,
    ) -> Result<&'k [u8], String> {
        if self.hex { decode_hex(line, buffer) } else { Ok(line) }
    }
}

fn decode_hex<'k>(text: &[u8], buffer: &'k mut Vec<u8>) -> Result<&'k [u8], String> {
    buffer.clear();
    buffer.resize(text.len() / 2, 0);
    match hex::decode_to_slice(text, buffer) {
        Ok(()) => Ok(buffer),
        Err(error) => Err(format!("not hex: {error}: {}", Hint(text))),
    }
}

/// Bytes as hex.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for chunk in self.0.chunks(64) {
            let mut text = [0; 128];
            for (pair, byte) in text.chunks_exact_mut(2).zip(chunk) {
                pair[0] = DIGITS[usize::from(byte >> 4)];
                pair[1] = DIGITS[usize::from(byte & 15)];
            }
            f.write_str(std::str::from_utf8(&text[..2 * chunk.len()]).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// The name of a file, as a key is written: one that is not printable, or not text, as `\x` and its hex.
pub(crate) struct Name<'a>(pub(crate) &'a Path);

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.0.as_os_str().as_encoded_bytes();
        match std::str::from_utf8(bytes) {
            Ok(text) if is_plain(bytes) => f.write_str(text),
            _ => write!(f, "\\x{}", Hex(bytes)),
        }
    }
}

/// The companion that lies beside a table which is about to be replaced, and will not be: looked for before
/// anything is published, so that an error of the disk leaves all as it was.
pub(crate) fn companion_before(table: &Path, ordered: bool) -> Result<Option<PathBuf>> {
    if ordered || table == Path::new("-") {
        return Ok(None);
    }
    let path = companion_path(table);
    match path.try_exists() {
        Ok(true) => Ok(Some(path)),
        Ok(false) => Ok(None),
        // What is wrong with the folder is for whoever creates the table to say; a name that no file can have, none has.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
            ) =>
        {
            Ok(None)
        }
        Err(error) => {
            Err(Fail::message(format_args!("{}: cannot look for it: {error}", path.display())))
        }
    }
}

/// Says so if the companion that lay beside a table before is not one of the table that was just published.
pub(crate) fn note_stale_companion(table: &Path, companion: Option<&Path>) {
    let Some(path) = companion else { return };
    // The same table, built anew, has the same companion. What it says of its table is not in the fst.
    let fits = map::table(OpenOptions::new(), table)
        .and_then(|file| map::companion(OrderedOptions::new().trusted(true), path, file.table()));
    match fits {
        Ok(_) => {}
        Err(Error::Companion { .. }) => note(format_args!(
            "{} is not the ordered companion of this table, but of one before: remove it, or make \
             another with --ordered",
            path.display()
        )),
        // The table is published all the same.
        Err(error) => note(format_args!(
            "cannot tell whether {} is the ordered companion of this table: {error}",
            path.display()
        )),
    }
}

/// The beginning of some input, for a message.
pub(crate) struct Hint<'a>(pub(crate) &'a [u8]);

impl std::fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cut = &self.0[..self.0.len().min(40)];
        let more = if cut.len() < self.0.len() { "…" } else { "" };
        write!(f, "\"{}{more}\"", cut.escape_ascii())
    }
}

/// Writes a value: an integer in decimal, opaque bytes marked and in hex, so that they are not taken for
/// an integer.
pub(crate) fn write_value(
    kind: ValueKind,
    value: Value<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    match (kind, value.as_u64()) {
        (ValueKind::Integer, Some(integer)) => write!(out, "{integer}"),
        // A set.
        _ if value.as_bytes().is_empty() => Ok(()),
        _ => {
            out.write_all(HEX_MARK)?;
            write!(out, "{}", Hex(value.as_bytes()))
        }
    }
}

/// A value in JSON.
pub(crate) fn json_value(kind: ValueKind, value: Value<'_>) -> serde_json::Value {
    match (kind, value.as_u64()) {
        (ValueKind::Integer, Some(integer)) => integer.into(),
        _ => Hex(value.as_bytes()).to_string().into(),
    }
}

/// How `key TAB value` is printed: shared by the commands that list keys.
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) form: KeyArgs,
    /// Print an object of JSON for each key.
    #[arg(long)]
    json: bool,
}

/// A value to print.
#[derive(Clone, Copy)]
pub(crate) enum Shown<'a> {
    Integer(u64),
    Value(ValueKind, Value<'a>),
}

impl ListArgs {
    /// Prints a key and its value.
    pub(crate) fn print(&self, key: &[u8], value: Shown<'_>, out: &mut Output) -> Result<()> {
        if self.json {
            let value = match value {
                Shown::Integer(integer) => integer.into(),
                Shown::Value(kind, value) => json_value(kind, value),
            };
            return out.line(json!({ "key": self.form.json(key), "value": value }));
        }
        out.with(|out| {
            self.form.write(key, out)?;
            out.write_all(b"\t")?;
            match value {
                Shown::Integer(integer) => write!(out, "{integer}")?,
                Shown::Value(kind, value) => write_value(kind, value, out)?,
            }
            out.write_all(&[self.form.separator()])
        })
    }
}

/// Standard output: buffered, unless somebody is looking at a terminal.
pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout().lock();
        let capacity = if stdout.is_terminal() { 1 << 10 } else { 64 << 10 };
        Self(BufWriter::with_capacity(capacity, stdout))
    }

    /// Runs something that writes.
    pub(crate) fn with(
        &mut self,
        write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
    ) -> Result<()> {
        check_stdout()?;
        write(&mut self.0).map_err(Fail::output)
    }

    pub(crate) fn line(&mut self, line: impl std::fmt::Display) -> Result<()> {
        self.with(|out| writeln!(out, "{line}"))
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(Fail::output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read_back() {
        let forms = [(false, false), (true, false), (false, true)];
        let keys: [&[u8]; 10] = [
            b"",
            b"plain",
            b"two words",
            "größe €".as_bytes(),
            b"\\x41",
            b"\\",
            b"\x00",
            b"tab\there",
            b"\xff\xfe",
            b"line\nfeed",
        ];
        for (hex, text) in forms {
            let args = KeyArgs { hex, text, null: false };
            for key in keys {
                let (mut written, mut buffer) = (Vec::new(), Vec::new());
                args.write(key, &mut written).unwrap();
                assert_eq!(args.read(&written, &mut buffer), Ok(key), "hex {hex}, text {text}");
                if !text {
                    assert!(printable(&written));
                }
            }
        }
    }

    #[test]
    fn hex_that_is_none_is_an_error() {
        let args = KeyArgs { hex: true, text: false, null: false };
        for line in [&b"0"[..], b"0g", b"0x00", b" 00"] {
            assert!(args.read_line(line, &mut Vec::new()).is_err());
        }
    }
}
