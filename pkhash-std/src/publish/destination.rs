//! Where a file goes that is made in one call.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::Publication;
use crate::error::Result;

/// Where a table or a companion goes: to a path, where it is published; into a file that was begun before, which
/// the caller publishes, alone or with others; or front to back into a writer.
///
/// ```
/// use pkhash_std::{Publication, TableFile, WriterOptions, build_slice};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("a.pkh");
/// let (keys, doc, options) = (["a", "b"], |i| [i as u8], WriterOptions::default());
/// build_slice(&keys, doc, &path, &options)?;
/// let mut publication = Publication::begin(folder.path().join("b.pkh"))?;
/// build_slice(&keys, doc, &mut publication, &options)?;
/// publication.commit()?;
/// let mut bytes = Vec::new();
/// build_slice(&keys, doc, &mut bytes, &options)?;
/// assert_eq!(bytes, std::fs::read(&path)?);
/// # Ok(())
/// # }
/// ```
pub struct Destination<'d>(To<'d>);

enum To<'d> {
    Path(Cow<'d, Path>),
    Publication(&'d mut Publication),
    Writer(&'d mut (dyn Write + Send)),
}

impl fmt::Debug for Destination<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            To::Path(path) => f.debug_tuple("Path").field(path).finish(),
            To::Publication(publication) => {
                f.debug_tuple("Publication").field(publication).finish()
            }
            To::Writer(_) => f.debug_tuple("Writer").finish_non_exhaustive(),
        }
    }
}

impl<'d> From<&'d Path> for Destination<'d> {
    fn from(path: &'d Path) -> Self {
        Self(To::Path(path.into()))
    }
}

impl<'d> From<&'d PathBuf> for Destination<'d> {
    fn from(path: &'d PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<PathBuf> for Destination<'_> {
    fn from(path: PathBuf) -> Self {
        Self(To::Path(path.into()))
    }
}

impl<'d> From<&'d str> for Destination<'d> {
    fn from(path: &'d str) -> Self {
        Path::new(path).into()
    }
}

impl<'d> From<&'d String> for Destination<'d> {
    fn from(path: &'d String) -> Self {
        path.as_str().into()
    }
}

impl<'d> From<&'d mut Publication> for Destination<'d> {
    fn from(publication: &'d mut Publication) -> Self {
        Self(To::Publication(publication))
    }
}

/// After an error, what was written is neither table nor companion.
impl<'d, W: Write + Send> From<&'d mut W> for Destination<'d> {
    fn from(writer: &'d mut W) -> Self {
        Self(To::Writer(writer))
    }
}

/// What is written to: the bytes, what messages call them, and a folder for temporary files, if there is one.
pub(crate) struct Target<'t> {
    pub(crate) out: &'t mut (dyn Write + Send),
    pub(crate) path: &'t Path,
    pub(crate) folder: Option<&'t Path>,
}

impl Destination<'_> {
    /// Does the work, and publishes it if that is for us to do. A new file takes after `like`, if that is given.
    pub(crate) fn write<T>(
        self,
        like: Option<&Path>,
        work: impl FnOnce(Target<'_>) -> Result<T>,
    ) -> Result<T> {
        match self.0 {
            To::Path(path) => {
                let mut publication = Publication::begin_as(&path, like)?;
                let made = work(publication.target())?;
                publication.commit()?;
                Ok(made)
            }
            To::Publication(publication) => work(publication.target()),
            To::Writer(out) => work(Target { out, path: Path::new("the output"), folder: None }),
        }
    }
}

impl Publication {
    pub(crate) fn target(&mut self) -> Target<'_> {
        let Self { temporary, shown, folder, .. } = self;
        Target { out: temporary.as_file_mut(), path: shown, folder: Some(folder) }
    }
}
