//! A segment map in a file: FORMAT.md §15.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use pkhash_core::KeyHasher;
use pkhash_core::segment_map::{MAP_LINE, MapPart, MapPlan};

use super::SegmentSet;
use super::map::{Mapped, Mapping, Memory};
use crate::checksum::checksum;
use crate::error::{Error, Result};
use crate::storage::Storage;

const MAGIC: [u8; 8] = *b"\x89pkhmap\n";
const VERSION: u32 = 1;
/// XXH3-64.
const HASH: u32 = 1;
const HEAD_LEN: usize = 128;

/// A map that snapshots share, in memory or in a file.
#[derive(Clone, Debug)]
pub(crate) struct SharedMap(Arc<Memory>);

/// The same, without keeping it.
#[derive(Debug)]
pub(crate) struct WeakMap(std::sync::Weak<Memory>);

impl WeakMap {
    pub(crate) fn upgrade(&self) -> Option<SharedMap> {
        self.0.upgrade().map(SharedMap)
    }
}

impl SegmentSet {
    /// The maps of this snapshot, the newest first.
    pub(crate) fn shared_maps(&self) -> impl Iterator<Item = SharedMap> {
        self.inner.maps.iter().map(|mapped| SharedMap(Arc::clone(mapped.memory())))
    }

    /// The same snapshot with these maps in place of those that it has.
    pub(crate) fn with_shared_maps(
        &self,
        maps: impl IntoIterator<Item = SharedMap>,
    ) -> Result<Self> {
        let segments = self.inner.segments.clone();
        let mut maps: Vec<Mapped> =
            maps.into_iter().filter_map(|map| Mapped::of(map.0, &segments)).collect();
        // All are asked for one hash.
        if let Some(hasher) = maps.first().map(Mapped::hasher) {
            maps.retain(|map| map.hasher() == hasher);
        }
        Self::with_maps(segments, maps)
    }
}

/// What is wrong with a file, and where.
type Fault = (&'static str, usize, u64, u64);

/// Where the lines begin.
fn first_line(tables: usize, parts: usize) -> Option<usize> {
    let directory = tables.checked_mul(16)?.checked_add(parts.checked_mul(8)?)?;
    HEAD_LEN.checked_add(directory)?.checked_next_multiple_of(MAP_LINE)
}

impl SharedMap {
    pub(crate) fn downgrade(&self) -> WeakMap {
        WeakMap(Arc::downgrade(&self.0))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Writes the file. Returns its length, and the checksum that covers all of it.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<(u64, u64)> {
        let memory = &*self.0;
        let lines = memory.lines().as_flattened();
        let mut directory: Vec<u8> = Vec::new();
        for Mapping { checksum, keys } in &memory.tables {
            directory.extend(checksum.to_le_bytes());
            directory.extend(keys.to_le_bytes());
        }
        directory.extend(memory.parts.iter().flat_map(|part| part.to_bytes()));
        directory.resize(directory.len().next_multiple_of(MAP_LINE), 0);
        let mut head = [0; HEAD_LEN];
        let entries: u64 = memory.tables.iter().map(|table| table.keys).sum();
        for (at, field) in [
            (0, u64::from_le_bytes(MAGIC)),
            (8, u64::from(VERSION) | (memory.tables.len() as u64) << 32),
            (16, entries),
            (24, memory.lines().len() as u64),
            (32, memory.seed),
            (40, memory.hasher.seed()),
            (48, u64::from(memory.plan.parts().ilog2()) | u64::from(HASH) << 32),
            (56, checksum(lines)),
            (64, checksum(&directory)),
        ] {
            head[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        let sum = checksum(&head[..HEAD_LEN - 8]);
        head[HEAD_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
        out.write_all(&head)?;
        out.write_all(&directory)?;
        out.write_all(lines)?;
        Ok(((head.len() + directory.len() + lines.len()) as u64, sum))
    }

    /// A file's map, of this length and checksum: checked but for its lines, which [`verify`](Self::verify) reads.
    pub(crate) fn open(bytes: Storage, path: &Path, expected: (u64, u64)) -> Result<Self> {
        let fault = |(what, offset, expected, found): Fault| Error::SegmentMapFile {
            path: path.to_owned(),
            what,
            offset: offset as u64,
            expected,
            found,
        };
        let len = bytes.bytes().len() as u64;
        if len != expected.0 {
            return Err(fault(("length", 0, expected.0, len)));
        }
        let memory = decode(bytes).map_err(fault)?;
        let found = head_checksum(memory.bytes.bytes());
        if found != expected.1 {
            return Err(fault(("checksum in the manifest", HEAD_LEN - 8, expected.1, found)));
        }
        Ok(Self(Arc::new(memory)))
    }

    /// Reads all lines.
    pub(crate) fn verify(&self, path: &Path) -> Result<()> {
        let memory = &*self.0;
        let expected = u64_at(memory.bytes.bytes(), 56);
        let found = checksum(memory.lines().as_flattened());
        // One that was built here has no head.
        if memory.first == 0 || expected == found {
            return Ok(());
        }
        let (path, what) = (path.to_owned(), "checksum of the lines");
        Err(Error::SegmentMapFile { path, what, offset: 56, expected, found })
    }
}

/// The checksum of the head, which covers the others.
fn head_checksum(bytes: &[u8]) -> u64 {
    u64_at(bytes, HEAD_LEN - 8)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
    u64::from_le_bytes(field.unwrap_or_default())
}

fn decode(storage: Storage) -> Result<Memory, Fault> {
    let bytes = storage.bytes();
    let must = |what, at: usize, expected: u64, found: u64| {
        if expected == found { Ok(()) } else { Err((what, at, expected, found)) }
    };
    let Some(head) = bytes.first_chunk::<HEAD_LEN>() else {
        return Err(("length", 0, HEAD_LEN as u64, bytes.len() as u64));
    };
    let field = |at| u64_at(head, at);
    must("magic", 0, u64::from_le_bytes(MAGIC), field(0))?;
    must("version", 8, VERSION.into(), field(8) & 0xffff_ffff)?;
    must(
        "checksum of the head",
        HEAD_LEN - 8,
        head_checksum(head),
        checksum(&head[..HEAD_LEN - 8]),
    )?;
    must("hash", 52, HASH.into(), field(48) >> 32)?;
    for at in (72..HEAD_LEN - 8).step_by(8) {
        must("reserved", at, 0, field(at))?;
    }
    let tables = (field(8) >> 32) as usize;
    let plan = MapPlan::new(field(16), tables)
        .map_err(|_| {
            ("tables", 12, pkhash_core::segment_map::MAX_MAP_SEGMENTS as u64, tables as u64)
        })?
        .with_seed(field(32));
    must("part bits", 48, plan.parts().ilog2().into(), field(48) & 0xffff_ffff)?;
    let parts = plan.parts() as usize + 1;
    let first = first_line(tables, parts).filter(|first| *first <= bytes.len());
    let first = first.ok_or(("length", 0, (HEAD_LEN + 16 * tables) as u64, bytes.len() as u64))?;
    let lines = (bytes.len() - first) / MAP_LINE;
    must("lines", 24, field(24), lines as u64)?;
    must("length", 0, (first + lines * MAP_LINE) as u64, bytes.len() as u64)?;
    let directory = &bytes[HEAD_LEN..first];
    must("checksum of the directory", 64, field(64), checksum(directory))?;
    let (of_tables, of_parts) = directory.split_at(16 * tables);
    let (of_parts, padding) = of_parts.split_at(8 * parts);
    let parts: Vec<MapPart> =
        of_parts.as_chunks().0.iter().map(|part| MapPart::from_bytes(*part)).collect();
    let tables: Vec<Mapping> = of_tables
        .as_chunks::<16>()
        .0
        .iter()
        .map(|table| Mapping { checksum: u64_at(table, 0), keys: u64_at(table, 8) })
        .collect();
    if let Some(at) = padding.iter().position(|byte| *byte != 0) {
        return Err(("padding", first - padding.len() + at, 0, padding[at].into()));
    }
    let entries = tables.iter().try_fold(0u64, |all, table| all.checked_add(table.keys));
    must("entries", 16, field(16), entries.unwrap_or(u64::MAX))?;
    let hasher = KeyHasher::new(field(40));
    Ok(Memory { plan, seed: field(32), parts, first, hasher, tables, bytes: storage })
}
