//! Temporary files: each is locked while its process lives, so that those of dead ones can be told.
//!
//! Whoever finds a temporary file may lock it, and only then remove it. Whoever creates one locks it, and
//! uses it only if it then still has its name: between the two, another process may have taken
//! it for a dead one's. So nobody removes a file that is in use, and a race costs a second file at most.
//!
//! Where files cannot be locked none is stale: nothing is removed.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::name_around;
use crate::error::{Error, Result};

const SUFFIX: &str = ".tmp";

/// Random characters of a name.
const RANDOM: usize = 6;

/// Creates a temporary file for a name in a folder, and locks it.
pub(super) fn create(
    folder: &Path,
    name: &OsStr,
    model: Option<&Metadata>,
) -> io::Result<NamedTempFile> {
    /// Each try fails only if another process looked at the very file at that moment.
    const TRIES: usize = 100;

    let prefix = prefix(name);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX).rand_bytes(RANDOM);
    // As any program creates files: the umask decides. (The crate's own default is 0600.) But what others may
    // not read must not be read on its way, either, and the group is not yet the one that it will have.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = model.map_or(0o666, |model| model.permissions().mode() & 0o600);
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = model;
    for _ in 0..TRIES {
        let temporary = builder.tempfile_in(folder)?;
        if lock(temporary.as_file()) != Lock::Taken && is_named(temporary.as_file()) {
            return Ok(temporary);
        }
    }
    Err(io::Error::other("other processes remove all temporary files at once"))
}

/// What the names of temporary files for a name begin with.
fn prefix(name: &OsStr) -> std::ffi::OsString {
    name_around(".", name, ".", RANDOM + SUFFIX.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// It is ours.
    Ours,
    Taken,
    /// There are none here.
    Unknown,
}

fn lock(file: &File) -> Lock {
    // Elsewhere a lock keeps others from reading.
    if !cfg!(unix) {
        return Lock::Unknown;
    }
    loop {
        return match file.try_lock() {
            Ok(()) => Lock::Ours,
            Err(TryLockError::WouldBlock) => Lock::Taken,
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {
                continue;
            }
            Err(TryLockError::Error(_)) => Lock::Unknown,
        };
    }
}

/// Whether a file that was created with a name still has one.
#[cfg(unix)]
fn is_named(file: &File) -> bool {
    // Not to know is no reason to fail.
    file.metadata().map_or(true, |meta| std::os::unix::fs::MetadataExt::nlink(&meta) > 0)
}

#[cfg(not(unix))]
fn is_named(_: &File) -> bool {
    true
}

/// Removes what dead processes have left for a name. That it cannot be removed is no reason not to begin.
pub(super) fn remove(folder: &Path, name: &OsStr) {
    let prefix = prefix(name);
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if random_part(&entry.file_name(), prefix.as_encoded_bytes()).is_none() {
            continue;
        }
        // The lock is held until the file is gone.
        if let Some(_locked) = lock_stale(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The temporary files in a folder that no living process has, by name: what was left by processes that were
/// killed. The next publication of the same name removes them, and so may anybody. Empty where files
/// cannot be locked.
///
/// # Errors
/// [`Error::Io`] if the folder cannot be read.
pub fn stale_temporaries(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let fail = || Error::io("read", folder);
    let mut stale = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail())? {
        let entry = entry.map_err(fail())?;
        if random_part(&entry.file_name(), b".").is_some() && lock_stale(&entry.path()).is_some() {
            stale.push(entry.path());
        }
    }
    if !stale.is_empty() {
        // One that was created a moment ago may not have been locked yet.
        std::thread::sleep(std::time::Duration::from_millis(20));
        stale.retain(|path: &PathBuf| lock_stale(path).is_some());
    }
    stale.sort();
    Ok(stale)
}

/// What is random in the name of a temporary file; `None`: it is none, or does not begin so.
fn random_part<'n>(name: &'n OsStr, prefix: &[u8]) -> Option<&'n [u8]> {
    let rest = name.as_encoded_bytes().strip_prefix(prefix)?.strip_suffix(SUFFIX.as_bytes())?;
    let (before, random) = rest.split_at_checked(rest.len().checked_sub(RANDOM)?)?;
    // Of any name there is more than that, with a dot between them.
    let fits =
        if prefix == b"." { before.len() > 1 && before.ends_with(b".") } else { before.is_empty() };
    (fits && random.iter().all(u8::is_ascii_alphanumeric)).then_some(random)
}

/// Opens and locks a file if no process has it.
fn lock_stale(path: &Path) -> Option<File> {
    // Not a pipe, which would be waited for.
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    // On some network file systems only who may write gets the lock.
    let file =
        File::options().read(true).write(true).open(path).or_else(|_| File::open(path)).ok()?;
    (lock(&file) == Lock::Ours && is_named(&file)).then_some(file)
}
