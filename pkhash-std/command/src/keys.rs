//! The keys to look up.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use pkhash_std::{Segment, SegmentSet};

use crate::fail::{Fail, Result, note};
use crate::input::{Input, input_name};
use crate::output::KeyArgs;

/// Keys from the command line or from a file.
#[derive(clap::Args)]
pub(crate) struct KeysArgs {
    /// The keys.
    #[arg(last = true, value_name = "KEY", required_unless_present = "keys_from")]
    keys: Vec<OsString>,
    /// Read the keys from a file, one a line; `-` is standard input. A line may be of any length: the
    /// tables do not have a key that is longer than all of theirs.
    #[arg(long = "keys", value_name = "FILE", conflicts_with = "keys")]
    keys_from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: KeyArgs,
}

/// Lines of a file of keys are held up to this length, or that of the longest key that a table has.
const LINE_HELD: u64 = 4096;

/// Some keys, one behind the other.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn slices(&self) -> Vec<&[u8]> {
        let mut begin = 0;
        let key = |end: &usize| {
            let key = &self.bytes[begin..*end];
            begin = *end;
            key
        };
        self.ends.iter().map(key).collect()
    }
}

impl KeysArgs {
    /// Hands over the keys in their order, at most so many at a time; never none. A key from a file that is
    /// longer than the longest of `set` may be cut, but stays longer than it, and so absent.
    pub(crate) fn batches(
        &self,
        set: &SegmentSet,
        most: usize,
        mut take: impl FnMut(&[&[u8]]) -> Result<()>,
    ) -> Result<()> {
        let mut keys = Keys::default();
        let mut buffer = Vec::new();
        let mut blank = None;
        let mut add = |key: &[u8]| -> Result<()> {
            keys.push(key);
            if keys.ends.len() < most {
                return Ok(());
            }
            take(&keys.slices())?;
            keys.clear();
            Ok(())
        };
        match &self.keys_from {
            None => {
                for key in &self.keys {
                    add(read_key(self.form, key, &mut buffer)?)?;
                }
            }
            Some(path) => {
                // One byte more than a key that might be there; hex takes two characters for each.
                let held = LINE_HELD.max(longest_key(set) as u64) + 1;
                let held = if self.form.hex { 2 * held } else { held };
                // Room for CRLF, which is no part of the key.
                let input = Input::open(path)?.of_keys(self.form);
                let mut lines = input.into_lines(self.form.separator(), held + 2)?;
                while let Some((number, line)) = lines.next_cut()? {
                    if line.is_empty() {
                        blank.get_or_insert(number);
                    }
                    let line = &line
                        [..usize::try_from(held).map_or(line.len(), |held| line.len().min(held))];
                    match self.form.read_line(line, &mut buffer) {
                        Ok(key) => add(key)?,
                        Err(cause) => return Err(lines.fail(cause)),
                    }
                }
            }
        }
        if !keys.ends.is_empty() {
            take(&keys.slices())?;
        }
        if let (Some(path), Some(number)) = (&self.keys_from, blank) {
            let name = input_name(path);
            note(format_args!(
                "{name}:{number}: a blank line, which is looked up as the empty key"
            ));
        }
        Ok(())
    }
}

/// Length of the longest key in a set.
pub(crate) fn longest_key(set: &SegmentSet) -> usize {
    let longest = |segment: &Segment| segment.table().footer().max_key_len() as usize;
    set.segments().iter().map(longest).max().unwrap_or(0)
}

/// A key on the command line.
pub(crate) fn read_key<'k>(
    form: KeyArgs,
    key: &'k OsStr,
    buffer: &'k mut Vec<u8>,
) -> Result<&'k [u8]> {
    form.read_line(key.as_encoded_bytes(), buffer).map_err(Fail::message)
}
