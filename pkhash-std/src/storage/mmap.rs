//! Mapped files: the one place of this crate with `unsafe`.

#![allow(unsafe_code)]

use std::path::Path;

use memmap2::MmapOptions;

use super::{Advice, Storage, open_file};
use crate::error::{Error, Result};
#[cfg(feature = "index")]
use crate::index::{Index, Opener};
#[cfg(feature = "sets")]
use crate::set::{Segment, SegmentSet};
use crate::table_file::{OpenOptions, TableFile};
#[cfg(feature = "ordered")]
use crate::{OrderedOptions, OrderedTerms, Table};

impl Storage {
    /// Maps a file. With `preload`, reads it all before returning.
    ///
    /// # Safety
    /// The file must not be changed or cut short for as long as the mapping lives.
    unsafe fn map(path: &Path, advice: Advice, preload: bool) -> Result<Self> {
        let (file, len) = open_file(path)?;
        // An empty file cannot be mapped.
        if len == 0 {
            return Ok(Self::of([0u8; 0]));
        }
        let mut options = MmapOptions::new();
        options.len(len);
        if preload {
            options.populate();
        }
        // SAFETY: the bytes must not change while they are borrowed, which the caller promises.
        let map = unsafe { options.map(&file) }.map_err(Error::io("map", path))?;
        #[cfg(unix)]
        {
            let advice = match advice {
                Advice::Normal => memmap2::Advice::Normal,
                Advice::Random => memmap2::Advice::Random,
                Advice::Sequential => memmap2::Advice::Sequential,
                Advice::WillNeed => memmap2::Advice::WillNeed,
            };
            map.advise(advice).map_err(Error::io("map", path))?;
        }
        #[cfg(not(unix))]
        let _ = advice;
        Ok(Self::of(map))
    }
}

impl OpenOptions {
    /// Maps a table. Opening reads the footer alone, the rest is read when it is touched, and processes
    /// share the memory.
    ///
    /// ```no_run
    /// use pkhash_std::OpenOptions;
    /// // SAFETY: the file is replaced by rename only, as this crate does.
    /// let table = unsafe { OpenOptions::new().preload(true).open_mapped("ids.pkh")? };
    /// # Ok::<(), pkhash_std::Error>(())
    /// ```
    ///
    /// # Safety
    /// Nothing may change the file or cut it short for as long as the table lives, in this process or
    /// another one. Tables that this crate publishes keep to that: a new version is another file, put under
    /// the name by rename, and the mapping keeps the old one.
    ///
    /// If the file is changed all the same, that is undefined behaviour. What comes of it in practice: past
    /// the new end of a file that was cut short, SIGBUS ends the process, as does an I/O error of the disk
    /// at any time. Of a file that was overwritten, lookups see some mixture of old and new bytes; they
    /// may answer wrongly but stay inside the mapping, and values that were borrowed may change.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub unsafe fn open_mapped(self, path: impl AsRef<Path>) -> Result<TableFile> {
        let path = path.as_ref();
        // SAFETY: the caller promises what it needs. The table owns the mapping.
        let storage = unsafe { Storage::map(path, self.advice, self.preload)? };
        self.table(storage, Some(path))
    }
}

impl TableFile {
    /// Maps a table, instead of reading all of it into memory.
    ///
    /// # Safety
    /// As [`OpenOptions::open_mapped`]: nothing may change the file while the table lives.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub unsafe fn open_mapped(path: impl AsRef<Path>) -> Result<Self> {
        // SAFETY: the caller promises what it needs.
        unsafe { OpenOptions::new().open_mapped(path) }
    }
}

#[cfg(feature = "index")]
impl Index {
    /// Opens an index whose tables are mapped, those of later snapshots, too.
    ///
    /// # Safety
    /// As [`OpenOptions::open_mapped`], of every table and segment map of the folder, while a snapshot or a writer lives that has it. An
    /// index never changes a file; it makes others.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub unsafe fn open_mapped(folder: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let table = |options: OpenOptions, path: &Path| {
            // SAFETY: the caller of this function promises what it needs, for all tables of the index.
            unsafe { options.open_mapped(path) }
        };
        let bytes = |path: &Path| {
            // SAFETY: as above, of segment maps.
            unsafe { Storage::map(path, Advice::Normal, false) }
        };
        Self::open_by(folder.as_ref(), options, Opener { table, bytes })
    }
}

#[cfg(feature = "sets")]
impl SegmentSet {
    /// Maps tables, the newest first; all docs live, doc bases 0.
    ///
    /// # Safety
    /// As [`OpenOptions::open_mapped`], of each file, while any snapshot that shares its table lives.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub unsafe fn open_mapped_with(
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
        options: OpenOptions,
    ) -> Result<Self> {
        let map = |path| {
            // SAFETY: the caller promises what it needs.
            unsafe { options.open_mapped(path) }.map(Segment::from)
        };
        Self::new(paths.into_iter().map(map).collect::<Result<Vec<_>>>()?)
    }
}

#[cfg(feature = "ordered")]
impl OrderedOptions {
    /// Maps the companion of `table`. Unless it is trusted, all of it is read once and checked, as by
    /// [`open`](Self::open).
    ///
    /// # Safety
    /// As [`OpenOptions::open_mapped`], of the companion's file. A companion that is changed under its mapping
    /// may also do all that [`trusted`](Self::trusted) warns of.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub unsafe fn open_mapped(
        self,
        path: impl AsRef<Path>,
        table: &Table<'_>,
    ) -> Result<OrderedTerms> {
        let path = path.as_ref();
        // SAFETY: the caller promises what it needs. The companion owns the mapping.
        let storage = unsafe { Storage::map(path, self.advice, false)? };
        self.open_storage(storage, Some(path), table)
    }
}

#[cfg(feature = "ordered")]
impl OrderedTerms {
    /// Maps the companion that lies beside a table, instead of reading all of it into memory.
    ///
    /// # Safety
    /// As [`OrderedOptions::open_mapped`]: nothing may change the file while the companion lives.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub unsafe fn open_mapped(table: &TableFile) -> Result<Self> {
        let path = Self::path_of(table)?;
        // SAFETY: the caller promises what it needs.
        unsafe { OrderedOptions::new().open_mapped(path, table.table()) }
    }
}
