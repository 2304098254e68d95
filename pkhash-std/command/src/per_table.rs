//! Options that give each table a file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkhash_std::TableFile;

use crate::fail::{Fail, Result};

/// An option that may be given once for each table. Either the files come in the order of the tables, or each
/// with the name of its table: `NAME=FILE`. The order of a folder changes whenever a table is added, so
/// there each needs its name.
#[derive(Clone, Copy)]
pub(crate) struct PerTable<'a> {
    pub(crate) option: &'static str,
    pub(crate) given: &'a [PathBuf],
    /// Whether a folder is among the tables.
    pub(crate) folder: bool,
}

impl PerTable<'_> {
    /// The file for each table; `None` if it was not named.
    pub(crate) fn assign(&self, tables: &[Arc<TableFile>]) -> Result<Vec<Option<PathBuf>>> {
        let named = self
            .given
            .iter()
            .map(|given| self.table_of(given, tables))
            .collect::<Result<Vec<Option<(usize, PathBuf)>>>>()?;
        if !self.folder && named.iter().all(Option::is_none) {
            self.check_count(tables)?;
            return Ok(self.given.iter().cloned().map(Some).collect());
        }
        let mut files = vec![None; tables.len()];
        for (given, named) in self.given.iter().zip(named) {
            let Some((number, file)) = named else { return Err(self.without_name(given, tables)) };
            if files[number].replace(file).is_some() {
                let table = tables[number].name().display();
                return Err(self.fail(format_args!("{table} is named twice")));
            }
        }
        Ok(files)
    }

    /// The table that `NAME=FILE` names, by its path or by the name of its file, and the file. Names may
    /// have an `=`, too: the longest that fits counts.
    fn table_of(
        &self,
        given: &Path,
        tables: &[Arc<TableFile>],
    ) -> Result<Option<(usize, PathBuf)>> {
        let mut found: Option<(usize, &OsStr, usize)> = None;
        for (number, table) in tables.iter().enumerate() {
            let path = table.name();
            for (name, whole) in [(Some(path.as_os_str()), true), (path.file_name(), false)] {
                let Some(name) = name else { continue };
                let Some(file) = after_name(given.as_os_str(), name) else { continue };
                // Of two that fit, a path counts before the name of a file in a folder.
                let weight = 2 * name.len() + usize::from(whole);
                match found {
                    Some((_, _, before)) if before > weight => {}
                    Some((other, _, before)) if before == weight && other != number => {
                        return Err(self.fail(format_args!(
                            "{} names {} and {}: use a path",
                            name.display(),
                            tables[other].name().display(),
                            path.display()
                        )));
                    }
                    _ => found = Some((number, file, weight)),
                }
            }
        }
        Ok(found.map(|(number, file, _)| (number, file.into())))
    }

    fn check_count(&self, tables: &[Arc<TableFile>]) -> Result<()> {
        if self.given.len() == tables.len() {
            return Ok(());
        }
        Err(self.fail(format_args!(
            "expected one for each of the {} tables ({}), found {}",
            tables.len(),
            some(tables),
            self.given.len()
        )))
    }

    fn without_name(&self, given: &Path, tables: &[Arc<TableFile>]) -> Fail {
        let (option, given) = (self.option, given.display());
        let why = if self.folder {
            "the order of a folder's tables changes"
        } else {
            "others name their tables"
        };
        self.fail(format_args!(
            "{given}: expected {option} NAME=FILE, since {why}; the tables are {}",
            some(tables)
        ))
    }

    pub(crate) fn fail(&self, cause: impl std::fmt::Display) -> Fail {
        Fail::message(format_args!("{}: {cause}", self.option))
    }
}

/// What follows `NAME=`.
fn after_name<'g>(given: &'g OsStr, name: &OsStr) -> Option<&'g OsStr> {
    let (bytes, name) = (given.as_encoded_bytes(), name.as_encoded_bytes());
    bytes.strip_prefix(name)?.strip_prefix(b"=").filter(|file| !file.is_empty())?;
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        Some(OsStr::from_bytes(&bytes[name.len() + 1..]))
    }
    #[cfg(not(unix))]
    {
        Some(OsStr::new(&given.to_str()?[name.len() + 1..]))
    }
}

/// The names of tables, but not of hundreds.
pub(crate) fn some(tables: &[Arc<TableFile>]) -> String {
    /// As many as one can take in.
    const MOST: usize = 8;
    let names = tables.iter().take(MOST).map(|table| table.name().display().to_string());
    let names = names.collect::<Vec<_>>().join(", ");
    match tables.len().checked_sub(MOST) {
        None | Some(0) => names,
        Some(more) => format!("{names} and {more} more"),
    }
}
