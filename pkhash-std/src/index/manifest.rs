//! The manifest: which files make up one snapshot of an index. FORMAT.md §13.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Fault;
use crate::checksum::checksum;
use crate::error::{Error, Result};
use crate::set::MAX_SEGMENTS;

/// What the field `format` says.
const FORMAT: &str = "pkhash manifest";

const VERSION: u32 = 1;

/// A manifest of the most segments takes a fifth of that.
const MAX_BYTES: u64 = 64 << 20;

/// Each is more than twice as large as all before it.
const MAX_MAPS: usize = 64;

/// Files and snapshots with greater numbers are somebody else's: there is always another number.
const MAX_NUMBER: u64 = 1 << 62;

/// How often a manifest is looked for that vanishes each time before it can be read.
const ROUNDS: usize = 1000;

/// One snapshot: what is written as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: String,
    version: u32,
    /// The number in the file's name.
    pub(super) snapshot: u64,
    /// No file of a lower number will be made.
    pub(super) next_file: u64,
    /// The newest first.
    pub(super) segments: Vec<SegmentEntry>,
    /// Files of the segment map: which tables each is for, it says itself.
    pub(super) maps: Vec<FileEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SegmentEntry {
    pub(super) table: FileEntry,
    pub(super) keys: u64,
    /// Docs, deleted ones included; `None`: the values are no doc IDs.
    pub(super) docs: Option<u32>,
    /// Docs of all older segments.
    pub(super) doc_base: u32,
    /// `None`: all are live.
    pub(super) live_docs: Option<LiveEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiveEntry {
    pub(super) file: FileEntry,
    pub(super) deleted: u32,
}

/// A file, and what tells it from any other that has its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Of a table, its footer's.
    #[serde(with = "hex")]
    pub(super) checksum: u64,
}

/// Numbers of 64 bits are no numbers to many readers of JSON.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:016x}"))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        super::parse_hex(&text).ok_or_else(|| D::Error::custom("expected 16 hexadecimal digits"))
    }
}

fn parse_hex(text: &str) -> Option<u64> {
    // One way to write each number, as for all that a checksum does not cover.
    let digits =
        text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// What stands between the part that the checksum covers and its digits, and behind them.
const BEFORE_SUM: &str = ",\n  \"checksum\": \"";
const BEHIND_SUM: &str = "\"\n}\n";

impl Manifest {
    pub(super) fn new(
        snapshot: u64,
        next_file: u64,
        segments: Vec<SegmentEntry>,
        maps: Vec<FileEntry>,
    ) -> Self {
        let format = FORMAT.to_owned();
        Self { format, version: VERSION, snapshot, next_file, segments, maps }
    }

    /// The text of the file.
    pub(super) fn to_text(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("numbers and strings");
        let body = json.strip_suffix("\n}").expect("an object of several lines");
        let sum = checksum(body.as_bytes());
        format!("{body}{BEFORE_SUM}{sum:016x}{BEHIND_SUM}")
    }

    /// Reads what [`to_text`](Self::to_text) has written, and checks all that can be checked without the files.
    pub(super) fn parse(bytes: &[u8], snapshot: u64) -> Result<Self, Fault> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Fault(format!("no UTF-8 at offset {}", error.valid_up_to())))?;
        let cut = || {
            Fault(format!(
                "cut short, or written by something else: expected a checksum at the end of {} bytes",
                bytes.len()
            ))
        };
        let rest = text.strip_suffix(BEHIND_SUM).ok_or_else(cut)?;
        let (rest, digits) = rest.split_at_checked(rest.len().wrapping_sub(16)).ok_or_else(cut)?;
        let body = rest.strip_suffix(BEFORE_SUM).ok_or_else(cut)?;
        let (expected, found) = (parse_hex(digits).ok_or_else(cut)?, checksum(body.as_bytes()));
        if expected != found {
            return Err(Fault(format!("checksum: expected {expected:#018x}, found {found:#018x}")));
        }
        let json = format!("{body}\n}}");
        let head: Head = serde_json::from_str(&json).map_err(|error| Fault(error.to_string()))?;
        if head.format != FORMAT {
            let found = head.format;
            return Err(Fault(format!("format: expected {FORMAT:?}, found {found:?}")));
        }
        if head.version != VERSION {
            return Err(Fault(format!("version: expected {VERSION}, found {}", head.version)));
        }
        let manifest: Self =
            serde_json::from_str(&json).map_err(|error| Fault(error.to_string()))?;
        manifest.check(snapshot)?;
        Ok(manifest)
    }

    fn check(&self, snapshot: u64) -> Result<(), Fault> {
        if self.snapshot != snapshot {
            let found = self.snapshot;
            return Err(Fault(format!("snapshot: expected {snapshot}, found {found}")));
        }
        if self.next_file > MAX_NUMBER {
            let found = self.next_file;
            return Err(Fault(format!("next_file: expected at most {MAX_NUMBER}, found {found}")));
        }
        let found = self.segments.len();
        if found > MAX_SEGMENTS {
            return Err(Fault(format!("segments: expected at most {MAX_SEGMENTS}, found {found}")));
        }
        let mut names = std::collections::HashSet::new();
        for name in self.files() {
            if !is_plain(name) {
                return Err(Fault(format!("file: expected a name in the folder, found {name:?}")));
            }
            if !names.insert(name) {
                return Err(Fault(format!("file {name:?} is named twice")));
            }
        }
        let found = self.maps.len();
        if found > MAX_MAPS {
            return Err(Fault(format!("maps: expected at most {MAX_MAPS}, found {found}")));
        }
        let mut doc_base = 0u32;
        for segment in self.segments.iter().rev() {
            let SegmentEntry { table, docs, live_docs, .. } = segment;
            if segment.doc_base != doc_base {
                let found = segment.doc_base;
                let name = &table.name;
                return Err(Fault(format!(
                    "doc base of {name:?}: expected {doc_base}, found {found}"
                )));
            }
            let docs = docs.unwrap_or(0);
            if !super::are_docs(segment.keys, docs) {
                let (name, keys) = (&table.name, segment.keys);
                return Err(Fault(format!(
                    "docs of {name:?}: expected fewer for {keys} keys, found {docs}"
                )));
            }
            if let Some(live) = live_docs
                && live.deleted > docs
            {
                let (name, found) = (&table.name, live.deleted);
                return Err(Fault(format!(
                    "deleted docs of {name:?}: expected at most {docs}, found {found}"
                )));
            }
            doc_base = doc_base
                .checked_add(docs)
                .ok_or_else(|| Fault(format!("docs: expected at most {}, found more", u32::MAX)))?;
        }
        Ok(())
    }

    /// The names of all files that the snapshot needs.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let maps = self.maps.iter().map(|map| map.name.as_str());
        self.segments.iter().flat_map(SegmentEntry::files).chain(maps)
    }
}

impl SegmentEntry {
    fn files(&self) -> impl Iterator<Item = &str> {
        let live = self.live_docs.iter().map(|live| live.file.name.as_str());
        std::iter::once(self.table.name.as_str()).chain(live)
    }
}

/// The fields that all versions have.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// Whether this is a file's name, and leads nowhere else.
pub(super) fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let normal = matches!(parts.next(), Some(std::path::Component::Normal(part)) if part == OsStr::new(name));
    normal && parts.next().is_none() && !name.contains(['/', '\\', '\0']) && !name.starts_with('.')
}

/// The name of a snapshot's manifest.
pub(super) fn manifest_name(snapshot: u64) -> String {
    format!("manifest-{snapshot:012}.json")
}

/// The number of a manifest with this name.
fn manifest_number(name: &OsStr) -> Option<u64> {
    number_between(name.to_str()?, "manifest-", ".json")
}

/// The number in a name, as this crate writes it.
pub(super) fn number_between(name: &str, before: &str, behind: &str) -> Option<u64> {
    let digits = name.strip_prefix(before)?.strip_suffix(behind)?;
    let plain = digits.len() >= 12 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = plain.then(|| digits.parse().ok()).flatten()?;
    (number <= MAX_NUMBER && format!("{number:012}") == digits).then_some(number)
}

/// The snapshots of a folder, the newest first.
pub(super) fn snapshots(folder: &Path) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        numbers.extend(manifest_number(&entry.file_name()));
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    Ok(numbers)
}

/// A manifest's file. While it is open, and locked, no writer removes the files that it names.
#[derive(Debug)]
pub(super) struct Pin {
    _file: File,
}

/// The newest manifest of a folder, and what keeps its files there. `None`: it has none.
pub(super) fn newest(folder: &Path) -> Result<Option<(Manifest, Pin)>> {
    let mut last = None;
    for round in 0..ROUNDS {
        let Some(snapshot) = snapshots(folder)?.first().copied() else { return Ok(None) };
        let path = folder.join(manifest_name(snapshot));
        match read(&path, snapshot) {
            Ok(Some(found)) => return Ok(Some(found)),
            // Another one has taken its place.
            Ok(None) => {}
            Err(error) => return Err(error),
        }
        if last.replace(snapshot) == Some(snapshot) && round > 10 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Err(Error::FolderChanged { path: folder.to_owned(), rounds: ROUNDS })
}

/// `None`: it has gone, or is about to.
pub(super) fn read(path: &Path, snapshot: u64) -> Result<Option<(Manifest, Pin)>> {
    // Before it is opened: opening a pipe waits for its other end.
    let meta = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        meta => meta.map_err(Error::io("look at", path))?,
    };
    if !meta.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(Error::io("open", path))?,
    };
    // Elsewhere than on Unix a lock keeps others from reading, and files that are open cannot be removed.
    if cfg!(unix) {
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Where files cannot be locked, files may go, and whoever misses one looks for a newer manifest.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // A writer that was about to remove it had it locked, or sees now that it is in use.
        if !path.try_exists().map_err(Error::io("look at", path))? {
            return Ok(None);
        }
    }
    let len = file.metadata().map_err(Error::io("look at", path))?.len();
    let fault = |fault: Fault| fault.at(path);
    if len > MAX_BYTES {
        return Err(fault(Fault(format!("length: expected at most {MAX_BYTES}, found {len}"))));
    }
    let mut bytes = Vec::with_capacity(len as usize);
    (&mut file).take(MAX_BYTES).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    let manifest = Manifest::parse(&bytes, snapshot).map_err(fault)?;
    Ok(Some((manifest, Pin { _file: file })))
}

/// Locks a manifest that nobody reads, to remove it. `None`: somebody does, or nobody can tell.
pub(super) fn lock_unused(path: &Path) -> Option<File> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    if !cfg!(unix) {
        return Some(file);
    }
    file.try_lock().ok().map(|()| file)
}

/// The lock of an index's one writer.
#[derive(Debug)]
pub(super) struct WriterLock {
    _file: File,
}

const LOCK_NAME: &str = "writer.lock";

impl WriterLock {
    pub(super) fn take(folder: &Path) -> Result<Self> {
        let path: PathBuf = folder.join(LOCK_NAME);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.take(200).read_to_string(&mut holder);
                return Err(Error::Locked { path, holder: holder.trim().to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
        }
        // For whoever finds it locked. That it cannot be written is no reason not to work.
        let _ = file.set_len(0);
        let _ = writeln!(file, "process {}", std::process::id());
        Ok(Self { _file: file })
    }
}
