//! How files come to their names: whole, alone or several in a stated order.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::table_file::{OpenOptions, TableFile};

mod destination;
mod owner;
mod stale;
#[cfg(test)]
mod tests;

pub use destination::Destination;
pub(crate) use destination::Target;
pub use stale::stale_temporaries;

/// The steps of publishing, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All files are written.
    Written,
    /// All files are synced.
    Synced,
    /// One more file has its name.
    Renamed,
    /// And has it after a crash, too.
    FolderSynced,
}

/// What is told of each step.
pub(crate) type Observe<'o> = &'o mut dyn FnMut(Step);

/// A file on its way to its name: written under a temporary name in the same folder, synced, renamed,
/// and the folder synced. Dropped before that, it leaves nothing.
///
/// The path is made absolute when the file is begun: a process that changes its folder meanwhile publishes
/// where it began.
///
/// A process that is killed leaves a hidden file beside the path, `.NAME.XXXXXX.tmp`, which
/// disturbs nobody. The next file that is begun for the same path removes it: a temporary file is locked
/// while its process lives, so one that can be locked has none (Unix alone). [`stale_temporaries`]
/// lists them.
///
/// # Owner and permissions
///
/// A file that replaces another one keeps its permissions and, on Unix, its owner and group. A process that
/// may not give files away keeps the group if it is a member of it. If it is not, the group's permissions
/// are cut down to those that everybody has: access is never wider than before. Access control
/// lists and other attributes are not kept. Until it is complete, such a file is its owner's alone. A file that
/// replaces none gets what the umask leaves.
#[derive(Debug)]
pub struct Publication {
    temporary: NamedTempFile,
    /// Absolute.
    path: PathBuf,
    folder: PathBuf,
    /// As the caller has it, for messages.
    shown: PathBuf,
    /// What the path had when this was begun, or the file that a new one takes after.
    model: Option<fs::Metadata>,
}

impl Publication {
    /// Creates the temporary file, so that a folder that cannot be written to is found before the
    /// work is done.
    ///
    /// # Errors
    /// [`Error::NotAFile`] if the path names something else than a regular file; [`Error::Io`].
    pub fn begin(path: impl AsRef<Path>) -> Result<Self> {
        Self::begin_as(path.as_ref(), None)
    }

    /// The same for a file that holds what another file holds, such as a table's companion: if there is none at
    /// the path yet, it gets owner and permissions of that file.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_like(path: impl AsRef<Path>, like: impl AsRef<Path>) -> Result<Self> {
        Self::begin_as(path.as_ref(), Some(like.as_ref()))
    }

    fn begin_as(shown: &Path, like: Option<&Path>) -> Result<Self> {
        let not_a_file = || Error::NotAFile { path: shown.to_owned() };
        let name = shown.file_name().ok_or_else(not_a_file)?;
        let path = std::path::absolute(shown).map_err(Error::io("find the folder of", shown))?;
        // Not `symlink_metadata`: a link to a device would be replaced, too.
        let mut model = existing(&path, shown)?;
        if model.as_ref().is_some_and(|meta| !meta.is_file()) {
            return Err(not_a_file());
        }
        if let (None, Some(like)) = (&model, like) {
            model = existing(like, like)?;
        }
        let folder = path.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        stale::remove(&folder, name);
        let temporary = stale::create(&folder, name, model.as_ref())
            .map_err(Error::io("create a file in", &folder_of(shown)))?;
        Ok(Self { temporary, path, folder, shown: shown.to_owned(), model })
    }

    /// The path that the file will have: absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as it was given, for messages.
    #[cfg(feature = "ordered")]
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// The folder of the path, where other temporary files may go, too: absolute.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The temporary file's path, for who ends the process without dropping this.
    #[must_use]
    pub fn temporary_path(&self) -> &Path {
        self.temporary.path()
    }

    /// Where to write.
    pub fn file(&mut self) -> &mut File {
        self.temporary.as_file_mut()
    }

    /// Opens the table that was written here, before it is published: to make its companion. Messages
    /// name it as it will be named.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_table(&self, options: OpenOptions) -> Result<TableFile> {
        self.open_table_by(|path| options.open(path))
    }

    /// [`open_table`](Self::open_table) with another way to open it, such as mapping it.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_table_by(
        &self,
        open: impl FnOnce(&Path) -> Result<TableFile>,
    ) -> Result<TableFile> {
        Ok(open(self.temporary_path())?.moved_to(&self.shown))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`Error::Io`]; the path then has what it had before, but for a failure to sync the folder,
    /// after which it has the new file, perhaps not durably.
    pub fn commit(self) -> Result<()> {
        Self::commit_all([self])
    }

    /// Gives several files their names, in this order: the one that all others are of no use without, or that
    /// is of no use without the others, comes last.
    ///
    /// All are written and synced before the first gets its name, so a disk that is full leaves all as it was.
    /// A name is durable before the next file gets its own: whatever happens, and be it a loss of
    /// power, a file of the list is new only if all before it are.
    ///
    /// # Errors
    /// [`Error::Io`]. If it came before the first rename, all paths have what they had before; otherwise some
    /// of the first have their new files, and the others what they had before.
    pub fn commit_all(files: impl IntoIterator<Item = Self>) -> Result<()> {
        Self::commit_observed(files.into_iter().collect(), &mut |_| {})
    }

    pub(crate) fn commit_observed(mut files: Vec<Self>, observe: Observe<'_>) -> Result<()> {
        Self::prepare(&mut files, observe)?;
        for file in files {
            let (folder, shown) = (file.folder.clone(), file.shown.clone());
            file.rename(observe)?;
            sync_folder(&folder, &shown, observe)?;
        }
        Ok(())
    }

    /// All that may fail for lack of room.
    pub(crate) fn prepare(files: &mut [Self], observe: Observe<'_>) -> Result<()> {
        for file in &mut *files {
            let shown = &file.shown;
            file.temporary.flush().map_err(Error::io("write", shown))?;
            // What is there now: somebody may have changed it since.
            let now = existing(&file.path, shown)?;
            if let Some(model) = now.as_ref().or(file.model.as_ref()) {
                owner::keep(file.temporary.as_file(), model)
                    .map_err(Error::io("set owner and permissions of", shown))?;
            }
        }
        observe(Step::Written);
        for file in &mut *files {
            file.temporary.as_file().sync_all().map_err(Error::io("sync", &file.shown))?;
        }
        observe(Step::Synced);
        Ok(())
    }

    /// Renames a file that was prepared. On failure the temporary file is dropped with the error.
    pub(crate) fn rename(self, observe: Observe<'_>) -> Result<()> {
        let path = self.path.clone();
        self.rename_to(&path, observe)
    }

    /// The same to another path of the same folder.
    pub(crate) fn rename_to(self, path: &Path, observe: Observe<'_>) -> Result<()> {
        self.temporary
            .persist(path)
            .map_err(|error| Error::io("rename a temporary file to", &self.shown)(error.error))?;
        observe(Step::Renamed);
        Ok(())
    }
}

/// The folder of a path, as the caller has it.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A folder that stays where it is if the process changes its own. One that cannot be found now is for
/// whoever uses it to complain of.
pub(crate) fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// What a path has, if anything. Not to know is no reason to take it for nothing.
fn existing(path: &Path, shown: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        meta => meta.map(Some).map_err(Error::io("look at", shown)),
    }
}

/// Makes renames durable. Folders can be opened and synced on Unix alone.
pub(crate) fn sync_folder(folder: &Path, shown: &Path, observe: Observe<'_>) -> Result<()> {
    let sync = || {
        if !cfg!(unix) {
            return Ok(());
        }
        match File::open(folder)?.sync_all() {
            // Some file systems sync no folders and say so: there is nothing to wait for.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    };
    sync().map_err(Error::io("sync the folder of", shown))?;
    observe(Step::FolderSynced);
    Ok(())
}

/// A name with something in front of and behind it, cut so that it is no longer than names may be.
pub(crate) fn name_around(
    before: &str,
    name: &std::ffi::OsStr,
    after: &str,
    room: usize,
) -> OsString {
    /// Bytes of a name on nearly every file system.
    const LONGEST: usize = 255;

    let most = LONGEST.saturating_sub(before.len() + after.len() + room);
    let mut made = OsString::from(before);
    if name.len() <= most {
        made.push(name);
    } else {
        // Hidden names are for nobody to read, so what is no text may look otherwise.
        let text = name.to_string_lossy();
        let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        made.push(&text[..end.unwrap_or(0)]);
    }
    made.push(after);
    made
}
