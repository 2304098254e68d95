//! Publishing files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::threads::reserve;

/// The steps of publishing, in order. A crash after any of them leaves the old file or the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Written,
    Synced,
    Renamed,
    FolderSynced,
}

/// A file on its way to its name: written under a temporary name in the same folder, synced, renamed,
/// and the folder synced. Dropped before that, it leaves nothing. A process that is killed meanwhile leaves
/// a hidden file beside the path, `.NAME.XXXXXX.tmp`, which disturbs nobody and may be removed.
#[derive(Debug)]
pub struct Publication {
    temporary: NamedTempFile,
    path: PathBuf,
    folder: PathBuf,
}

impl Publication {
    /// Creates the temporary file, so that a folder that cannot be written to is found before the
    /// work is done.
    ///
    /// # Errors
    /// [`Error::NotAFile`] if the path names something else than a regular file; [`Error::Io`].
    pub fn begin(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let not_a_file = || Error::NotAFile { path: path.to_owned() };
        // Not `symlink_metadata`: a link to a device would be replaced, too.
        let old = existing(path)?;
        if old.as_ref().is_some_and(|meta| !meta.is_file()) {
            return Err(not_a_file());
        }
        let name = path.file_name().ok_or_else(not_a_file)?;
        let folder = folder_of(path);
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        // As any program creates files: the umask decides. (The crate's own default is 0600.) But what
        // nobody else may read must not be read on its way, either.
        #[cfg(unix)]
        builder.permissions(match old {
            Some(old) => old.permissions(),
            None => std::os::unix::fs::PermissionsExt::from_mode(0o666),
        });
        let temporary =
            builder.tempfile_in(&folder).map_err(Error::io("create a file in", &folder))?;
        Ok(Self { temporary, path: path.to_owned(), folder })
    }

    /// The path that the file will have.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the path, where other temporary files may go, too.
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

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`Error::Io`]; the path then has what it had before, but for a failure to sync the folder,
    /// after which it has the new file, perhaps not durably.
    pub fn commit(self) -> Result<()> {
        self.commit_observed(&mut |_| {})
    }

    pub(crate) fn commit_observed(mut self, observe: &mut dyn FnMut(Step)) -> Result<()> {
        let path = self.path;
        self.temporary.flush().map_err(Error::io("write", &path))?;
        // A table keeps the permissions of the one that it replaces.
        if let Some(meta) = existing(&path)? {
            let file = self.temporary.as_file();
            file.set_permissions(meta.permissions())
                .map_err(Error::io("set permissions of", &path))?;
        }
        observe(Step::Written);
        self.temporary.as_file().sync_all().map_err(Error::io("sync", &path))?;
        observe(Step::Synced);
        // On failure the temporary file is dropped with the error.
        self.temporary
            .persist(&path)
            .map_err(|error| Error::io("rename a temporary file to", &path)(error.error))?;
        observe(Step::Renamed);
        sync_folder(&self.folder).map_err(Error::io("sync the folder of", &path))?;
        observe(Step::FolderSynced);
        Ok(())
    }
}

/// The folder of a path.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// What a path has, if anything. Not to know is no reason to take it for nothing.
fn existing(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        meta => meta.map(Some).map_err(Error::io("look at", path)),
    }
}

/// Makes a rename durable. Folders can be opened and synced on Unix alone.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder)?.sync_all() {
        // Some file systems sync no folders and say so: there is nothing to wait for.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// Collects writes into blocks of [`BLOCK`] bytes at multiples of it: the page cache can then hold
/// the file in huge pages, and map it so.
pub(crate) struct BlockWriter<W> {
    out: W,
    buffer: Vec<u8>,
}

/// 2 MiB: a huge page.
const BLOCK: usize = 2 << 20;

impl<W: Write> BlockWriter<W> {
    pub(crate) fn new(out: W) -> Result<Self> {
        let mut buffer = Vec::new();
        reserve(&mut buffer, BLOCK)?;
        Ok(Self { out, buffer })
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        // As `write_all` does, which `flush` need not do.
        loop {
            match self.out.flush() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                flushed => return flushed,
            }
        }
    }

    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let (fill, rest) = bytes.split_at(bytes.len().min(BLOCK - self.buffer.len()));
            self.buffer.extend_from_slice(fill);
            bytes = rest;
            if self.buffer.len() == BLOCK {
                self.out.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        // Here the buffer is empty, or nothing is left.
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        if !whole.is_empty() {
            self.out.write_all(whole)?;
        }
        self.buffer.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes whose lengths are recorded.
    struct Record<'r>(&'r mut Vec<usize>, &'r mut Vec<u8>);

    impl Write for Record<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.len());
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn blocks_are_whole_and_in_order() {
        for lens in [
            vec![],
            vec![0],
            vec![1],
            vec![BLOCK],
            vec![BLOCK - 1, 1, 1],
            vec![1, 3 * BLOCK, 5],
            vec![3 * BLOCK + 7, BLOCK - 7, 0, 2 * BLOCK - 1],
        ] {
            let all: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|i| (i / 7) as u8).collect();
            let (mut writes, mut bytes) = (Vec::new(), Vec::new());
            let mut out = BlockWriter::new(Record(&mut writes, &mut bytes)).unwrap();
            let mut at = 0;
            for len in &lens {
                out.write_all(&all[at..at + len]).unwrap();
                at += len;
            }
            out.finish().unwrap();
            assert_eq!(bytes, all);
            let last = writes.pop();
            assert!(writes.iter().all(|len| len % BLOCK == 0), "{lens:?}: {writes:?} {last:?}");
        }
    }

    const CRASH: &str = "PKHASH_TEST_CRASH_AFTER";

    /// `None`: when the temporary file was created, before anything is written.
    const STEPS: [Option<Step>; 5] = [
        None,
        Some(Step::Written),
        Some(Step::Synced),
        Some(Step::Renamed),
        Some(Step::FolderSynced),
    ];

    /// Not a test of its own: what the next one runs in another process.
    #[test]
    fn crash_child() {
        let Ok(order) = std::env::var(CRASH) else { return };
        let (step, path) = order.split_once(' ').unwrap();
        let die_after = STEPS[step.parse::<usize>().unwrap()];
        let die = |step: Option<Step>| {
            if step == die_after {
                std::process::abort();
            }
        };
        let mut publication = Publication::begin(path).unwrap();
        die(None);
        publication.file().write_all(b"new").unwrap();
        publication.commit_observed(&mut |step| die(Some(step))).unwrap();
    }

    #[test]
    fn a_crash_at_every_step_leaves_the_old_file_or_the_new_one() {
        for (i, step) in STEPS.into_iter().enumerate() {
            for before in [None, Some("old")] {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("table");
                if let Some(before) = before {
                    fs::write(&path, before).unwrap();
                }
                let status = std::process::Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "file::tests::crash_child"])
                    .env(CRASH, format!("{i} {}", path.display()))
                    .stdout(std::process::Stdio::null())
                    .stderr(std::process::Stdio::null())
                    .status()
                    .unwrap();
                assert!(!status.success(), "the child did not crash after {step:?}");
                let renamed = matches!(step, Some(Step::Renamed | Step::FolderSynced));
                let expected = if renamed { Some("new") } else { before };
                assert_eq!(fs::read_to_string(&path).ok().as_deref(), expected, "{step:?}");
                // What lies beside it is the temporary file of the crashed process, at most.
                let others =
                    fs::read_dir(folder.path()).unwrap().count() - usize::from(path.exists());
                assert_eq!(others, usize::from(!renamed), "{step:?}");
            }
        }
    }

    #[test]
    fn a_dropped_publication_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let mut publication = Publication::begin(&path).unwrap();
        publication.file().write_all(b"half").unwrap();
        drop(publication);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), Path::new("/"), Path::new(""), Path::new("..")] {
            assert!(matches!(Publication::begin(path), Err(Error::NotAFile { .. })), "{path:?}");
        }
        #[cfg(unix)]
        {
            assert!(matches!(Publication::begin("/dev/null"), Err(Error::NotAFile { .. })));
            let missing = folder.path().join("missing").join("table");
            assert!(matches!(Publication::begin(missing), Err(Error::Io { .. })));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_published_file_has_ordinary_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("a"), folder.path().join("b"));
        Publication::begin(&ours).unwrap().commit().unwrap();
        File::create(&plain).unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
        // And who has restricted them keeps that, from the first byte on.
        for restricted in [0o640, 0o600, 0o444] {
            fs::set_permissions(&ours, fs::Permissions::from_mode(restricted)).unwrap();
            let publication = Publication::begin(&ours).unwrap();
            let before = fs::metadata(publication.temporary_path()).unwrap().permissions().mode();
            assert_eq!(before & 0o777 & !restricted, 0, "{before:o}");
            publication.commit().unwrap();
            assert_eq!(mode(&ours) & 0o777, restricted);
        }
    }
}
