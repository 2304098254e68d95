//! A table and its companion, published and opened as one.
//!
//! Two files cannot be renamed at one moment, so the new companion lies beside the old one while the tables are
//! swapped, under a name that only the new table has (its *waiting name*): `.t.pkh.fst.` and the footer checksum of
//! the table in 16 hex digits.
//!
//! 1. The new companion gets its waiting name.
//! 2. The new table replaces the old one: at this moment the pair changes.
//! 3. The new companion replaces the old one.
//!
//! Before step 2 the old companion is beside the old table, after it the new one is, under one name or the other.
//! So whoever opens the companion of a table looks at both names, and a process that is killed between two steps
//! leaves a pair that works. Each step is durable before the next. Step 3 and the removal of what killed processes
//! have left are done under a lock of the folder, as are the others, so that no writer removes what another is
//! about to need.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pkhash_core::Table;

use super::format::{Binding, Fault, TAIL_LEN};
use super::{OrderedOptions, OrderedTerms, companion_path};
use crate::error::{Error, Result};
use crate::publish::{Observe, Publication, Step, name_around, sync_folder};
use crate::table_file::TableFile;

/// Gives a table and its companion their names, so that readers find a pair at every moment, and so does whoever
/// comes after a crash. `first` are files that get theirs before, in this order, such as the doc maps of a merge: see
/// [`Publication::commit_all`].
///
/// ```
/// use pkhash_std::{
///     CompanionOptions, OpenOptions, OrderedTerms, Publication, TableWriter, WriterOptions,
///     build_companion, companion_path, publish_pair,
/// };
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders.pkh");
/// let mut writer = TableWriter::create(&path, WriterOptions::default())?;
/// writer.add(b"order-17", 0)?;
/// let (_, table) = writer.finish()?;
/// let mut companion = Publication::begin_like(companion_path(&path), &path)?;
/// let written = table.open_table(OpenOptions::new())?;
/// build_companion(&written, &mut companion, &CompanionOptions::default())?;
/// publish_pair([], table, companion)?;
///
/// let (_, terms) = OrderedTerms::open_pair(&path)?;
/// assert_eq!(terms.get(b"order-17"), Some(0));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Companion`] if the companion is not that of the table; [`Error::Io`]. Until the table has its name the
/// old pair stays; from then on there is the new one.
///
/// # Panics
/// If the companion was not begun at [`companion_path`] of the table's path.
pub fn publish_pair(
    first: impl IntoIterator<Item = Publication>,
    table: Publication,
    companion: Publication,
) -> Result<()> {
    publish_observed(first.into_iter().collect(), table, companion, &mut |_| {})
}

fn publish_observed(
    first: Vec<Publication>,
    mut table: Publication,
    mut companion: Publication,
    observe: Observe<'_>,
) -> Result<()> {
    assert_eq!(companion.path(), companion_path(table.path()), "a companion lies beside its table");
    let checksum = footer_checksum(&mut table, &mut companion)?;
    let mut files = first;
    let before = files.len();
    files.extend([table, companion]);
    Publication::prepare(&mut files, observe)?;
    let mut pair = files.split_off(before).into_iter();
    for file in files {
        let (folder, shown) = (file.folder().to_owned(), file.shown().to_owned());
        file.rename(observe)?;
        sync_folder(&folder, &shown, observe)?;
    }
    let (Some(table), Some(companion)) = (pair.next(), pair.next()) else { return Ok(()) };
    swap(table, companion, checksum, observe)
}

fn swap(
    table: Publication,
    companion: Publication,
    checksum: u64,
    observe: Observe<'_>,
) -> Result<()> {
    let (folder, path) = (table.folder().to_owned(), table.path().to_owned());
    let (shown, companion_shown) = (table.shown().to_owned(), companion.shown().to_owned());
    let lock = lock(&folder);
    let (waiting, named) = (waiting_path(&path, checksum), companion.path().to_owned());
    // Of the same table, built before: then it may be in use.
    let waited = waiting.exists();
    let switched = companion
        .rename_to(&waiting, observe)
        .and_then(|()| sync_folder(&folder, &companion_shown, observe))
        .and_then(|()| table.rename(observe));
    if let Err(error) = switched {
        if !waited {
            let _ = fs::remove_file(&waiting);
        }
        return Err(error);
    }
    // The table has its name, so the companion gets its own, whatever the disk says.
    let synced = sync_folder(&folder, &shown, observe);
    let renamed = fs::rename(&waiting, &named);
    synced?;
    renamed.map_err(Error::io("rename a temporary file to", &companion_shown))?;
    observe(Step::Renamed);
    sync_folder(&folder, &companion_shown, observe)?;
    if lock.is_some() {
        remove_waiting(&path);
    }
    Ok(())
}

/// A lock of a folder; `None`: there are none here. It is held for a few renames, so it is waited for.
fn lock(folder: &Path) -> Option<File> {
    if !cfg!(unix) {
        return None;
    }
    let file = File::open(folder).ok()?;
    loop {
        match file.lock() {
            Ok(()) => return Some(file),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Footer checksum of a table and its companion that were written, which both have.
fn footer_checksum(table: &mut Publication, companion: &mut Publication) -> Result<u64> {
    let read = |file: &mut Publication, from_end: usize| -> Result<u64> {
        let mut bytes = [0; 8];
        let shown = file.shown().to_owned();
        let file = file.file();
        file.seek(SeekFrom::End(-(from_end as i64)))
            .and_then(|_| file.read_exact(&mut bytes))
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(Error::io("read", &shown))?;
        Ok(u64::from_le_bytes(bytes))
    };
    let expected = read(table, 16)?;
    let found = read(companion, TAIL_LEN - 16)?;
    if expected == found {
        return Ok(expected);
    }
    let fault = Fault::of_another("table's footer checksum", 0, expected, found);
    Err(fault.at(Some(companion.shown())))
}

/// Digits of a checksum.
const DIGITS: usize = 16;

/// Where the companion of a table waits until the table has its name.
fn waiting_path(table: &Path, checksum: u64) -> PathBuf {
    let name = table.file_name().unwrap_or_default();
    let mut waiting = name_around(".", name, ".fst.", DIGITS);
    waiting.push(format!("{checksum:016x}"));
    table.with_file_name(waiting)
}

/// Removes companions that have waited in vain: of killed processes. Only under the folder's lock.
fn remove_waiting(table: &Path) {
    let some = waiting_path(table, 0);
    let (Some(folder), Some(name)) = (some.parent(), some.file_name()) else { return };
    let name = name.as_encoded_bytes();
    let own = table.file_name().unwrap_or_default().as_encoded_bytes();
    let prefix = &name[..name.len() - DIGITS];
    // Of a name that was cut, they may be another table's.
    if !prefix[1..].starts_with(own) {
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let digits = name.as_encoded_bytes().strip_prefix(prefix).unwrap_or_default();
        if digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether there is no companion, or one of another table.
fn is_missing(error: &Error) -> bool {
    match error {
        // A name that no file can have, none has.
        Error::Io { source, .. } => {
            matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename)
        }
        Error::Companion { of_another, .. } => *of_another,
        _ => false,
    }
}

impl OrderedOptions {
    /// Opens the companion that lies beside a table. It is also found if the process that published both was
    /// killed before the companion had its name: see [`publish_pair`].
    ///
    /// If the table's file has been replaced since it was opened, its companion may have gone, too: then
    /// [`open_pair`](Self::open_pair) opens both anew.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_beside(self, table: &TableFile) -> Result<OrderedTerms> {
        OrderedTerms::open_beside_by(table, |path, table| self.open(path, table))
    }

    /// Opens a table and its companion, such that they belong together, even if both are replaced
    /// meanwhile. `open` opens the table. May open both several times, and waits some
    /// milliseconds before it says that they do not belong together.
    ///
    /// # Errors
    /// As `open`, and as [`open`](Self::open).
    pub fn open_pair(
        self,
        table: impl AsRef<Path>,
        open: impl FnMut(&Path) -> Result<TableFile>,
    ) -> Result<(TableFile, OrderedTerms)> {
        OrderedTerms::open_pair_by(table, open, |path, table| self.open(path, table))
    }
}

impl OrderedTerms {
    /// Opens a table and its companion into memory, such that they belong together, even if both are
    /// replaced meanwhile.
    ///
    /// # Errors
    /// As [`OrderedOptions::open_pair`].
    pub fn open_pair(table: impl AsRef<Path>) -> Result<(TableFile, Self)> {
        OrderedOptions::new().open_pair(table, |path| TableFile::open(path))
    }

    /// [`OrderedOptions::open_beside`] with another way to open the companion, such as mapping it.
    ///
    /// # Errors
    /// As `open`; [`Error::NoPath`] if the table was not opened at a path.
    pub fn open_beside_by(
        table: &TableFile,
        mut open: impl FnMut(&Path, &Table<'_>) -> Result<Self>,
    ) -> Result<Self> {
        let view = table.table();
        let missing = match open(&Self::path_of(table)?, view) {
            Err(error) if is_missing(&error) => error,
            opened => return opened,
        };
        let waiting = waiting_path(table.name(), Binding::of(view).footer_checksum);
        match open(&waiting, view) {
            // What the usual name has, if anything, is what can be told of.
            Err(error) if is_missing(&error) => Err(missing),
            opened => opened,
        }
    }

    /// [`OrderedOptions::open_pair`] with other ways to open the table and the companion, such as mapping
    /// them.
    ///
    /// # Errors
    /// As `open` and `open_companion`.
    pub fn open_pair_by(
        table: impl AsRef<Path>,
        mut open: impl FnMut(&Path) -> Result<TableFile>,
        mut open_companion: impl FnMut(&Path, &Table<'_>) -> Result<Self>,
    ) -> Result<(TableFile, Self)> {
        /// Swaps that may happen meanwhile.
        const SWAPS: usize = 1000;
        /// Milliseconds between looks at one table: whoever does not use `publish_pair` needs a moment
        /// between two renames.
        const WAITS: [u64; 3] = [0, 1, 10];

        let path = table.as_ref();
        let (mut last, mut looks, mut swaps) = (None, 0, 0);
        loop {
            let table = open(path)?;
            let error = match Self::open_beside_by(&table, &mut open_companion) {
                Ok(terms) => return Ok((table, terms)),
                Err(error) => error,
            };
            let binding = Binding::of(table.table());
            if last.replace(binding) != Some(binding) {
                (looks, swaps) = (0, swaps + 1);
            }
            if !is_missing(&error) || looks == WAITS.len() || swaps > SWAPS {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(WAITS[looks]));
            looks += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_names_are_hidden_and_not_too_long() {
        assert_eq!(
            waiting_path(Path::new("a/t.pkh"), 0xab),
            Path::new("a/.t.pkh.fst.00000000000000ab")
        );
        for len in [200, 233, 234, 251, 255] {
            let name = "ö".repeat(len / 2) + &"x".repeat(len % 2);
            let waiting = waiting_path(Path::new(&name), u64::MAX);
            let waiting = waiting.to_str().unwrap();
            assert!(waiting.len() <= 255 && waiting.starts_with(".ö"), "{waiting}");
            assert!(waiting.ends_with(".fst.ffffffffffffffff"));
        }
    }
}
