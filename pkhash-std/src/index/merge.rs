//! Merging segments of an index, while it is read and written.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::writer::{Pending, table_name};
use super::{IndexWriter, Opener};
use crate::error::{Error, Result};
use crate::merge::{DocMap, MergeInput, MergeOptions, merge};
use crate::partition::{Built, OnDuplicate};
use crate::set::{LiveDocs, SegmentInfo, TieredPolicy};
use crate::table_file::{OpenOptions, TableFile};

/// A merge of segments that are neighbours: see [`IndexWriter::begin_merge`]. It runs without the writer.
#[derive(Clone, Debug)]
pub struct IndexMerge {
    /// Of the output's file.
    number: u64,
    path: PathBuf,
    /// The newest first.
    inputs: Vec<Pending>,
    /// How the output is opened.
    open: (Opener, OpenOptions),
}

/// A merge that has run, and waits for [`IndexWriter::finish_merge`].
#[derive(Debug)]
pub struct MergedTable {
    number: u64,
    table: TableFile,
    inputs: Vec<Pending>,
    maps: Vec<DocMap>,
    /// `None`: values are no doc IDs.
    docs: Option<u32>,
    built: Built,
}

/// What a merge has done.
#[derive(Debug)]
#[non_exhaustive]
pub struct Merged {
    /// The tables that were merged, by their names in the folder, the newest first.
    pub inputs: Vec<String>,
    /// What became of the doc IDs of each: for whoever keeps data by doc ID.
    pub doc_maps: Vec<DocMap>,
    /// The table that has taken their place.
    pub output: String,
    /// The facts of it.
    pub built: Built,
}

impl IndexMerge {
    /// The tables that it merges, by their names in the folder, the newest first.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.inputs.iter().map(|input| input.name.as_str())
    }

    /// Merges. Older docs get lower doc IDs; of a key that is live in several segments the newest one stays. If all tables have
    /// an ordered companion, so has the output (feature `ordered`).
    ///
    /// # Errors
    /// As [`merge`](crate::merge). [`Error::Mismatch`] if some segments have doc IDs and others have not.
    pub fn run(&self, options: &MergeOptions) -> Result<MergedTable> {
        let Self { number, path, inputs, open } = self.clone();
        let (maps, docs) = doc_maps(&inputs)?;
        let tables: Vec<MergeInput<'_>> = inputs
            .iter()
            .zip(&maps)
            .map(|(input, map)| MergeInput::new(&input.table).docs(map.clone()))
            .collect();
        let options = options.clone().on_duplicate(OnDuplicate::First);
        let built = merge(&tables, &path, &options)?;
        let table = (open.0.table)(open.1, &path)?;
        #[cfg(feature = "ordered")]
        merge_ordered(&tables, &table, &options)?;
        Ok(MergedTable { number, inputs, maps, docs, built, table })
    }
}

/// Makes the ordered companion of a merged table, if all that were merged have one that is of use.
#[cfg(feature = "ordered")]
fn merge_ordered(
    inputs: &[MergeInput<'_>],
    merged: &TableFile,
    options: &MergeOptions,
) -> Result<()> {
    use crate::{CompanionOptions, OrderedTerms, companion_path, merge_companions};
    let terms = inputs.iter().map(|input| OrderedTerms::open(input.table).ok());
    let Some(terms) = terms.collect::<Option<Vec<OrderedTerms>>>() else { return Ok(()) };
    let options = CompanionOptions::default()
        .memory(options.memory)
        .threads(options.threads)
        .temp_dir(options.temp_dir.clone())
        .progress(options.progress.clone());
    merge_companions(inputs, &terms, merged, companion_path(merged.name()), &options).map(|_| ())
}

/// What becomes of the docs of each input, and how many docs there are then.
fn doc_maps(inputs: &[Pending]) -> Result<(Vec<DocMap>, Option<u32>)> {
    if inputs.iter().all(|input| input.docs.is_none()) {
        return Ok((vec![DocMap::Keep; inputs.len()], None));
    }
    let mut base = 0;
    let mut maps = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate().rev() {
        let docs = input.docs.ok_or_else(|| Error::Mismatch {
            what: "doc IDs",
            input: i,
            expected: u32::MAX.into(),
            found: input.table.footer().max_value(),
        })?;
        let (map, next) = DocMap::compacting(input.live.as_deref(), docs, base)?;
        maps.push(map);
        base = next;
    }
    maps.reverse();
    Ok((maps, Some(base)))
}

impl IndexWriter {
    /// Merges what the policy proposes, until it proposes nothing more. Segments that a merge is under way for are left
    /// out of it. Those whose values are of another kind than their neighbours' are not merged with them.
    ///
    /// # Errors
    /// As [`IndexMerge::run`]. What was merged before stays merged.
    pub fn merge(&mut self, policy: &TieredPolicy, options: &MergeOptions) -> Result<Vec<Merged>> {
        // The newest match has to go on to win.
        let policy = policy.neighbours(true);
        let mut merged = Vec::new();
        loop {
            let Some((first, last)) = self.propose(&policy) else { return Ok(merged) };
            if self.segments[first..=last].iter().any(|segment| self.is_in_merge(segment)) {
                return Ok(merged);
            }
            merged.push(self.merge_now(first..last + 1, options)?);
        }
    }

    /// The first and the last segment of the next merge.
    fn propose(&self, policy: &TieredPolicy) -> Option<(usize, usize)> {
        let mut begin = 0;
        for run in self.segments.chunk_by(|a, b| a.values() == b.values()) {
            let infos: Vec<SegmentInfo> =
                run.iter().map(|pending| SegmentInfo::of(&pending.segment())).collect();
            if let Some(chosen) = policy.propose(&infos) {
                return Some((begin + chosen[0], begin + chosen[chosen.len() - 1]));
            }
            begin += run.len();
        }
        None
    }

    /// Merges all segments into one. `None`: there is one at most already, and nothing of it is deleted.
    ///
    /// # Errors
    /// As [`IndexMerge::run`]; [`Error::InMerge`].
    pub fn merge_all(&mut self, options: &MergeOptions) -> Result<Option<Merged>> {
        let dirty = self.segments.iter().any(|segment| segment.live.is_some());
        if self.segments.is_empty() || self.segments.len() == 1 && !dirty {
            return Ok(None);
        }
        self.merge_now(0..self.segments.len(), options).map(Some)
    }

    fn merge_now(&mut self, segments: Range<usize>, options: &MergeOptions) -> Result<Merged> {
        let merge = self.begin_merge(segments)?;
        match merge.run(options).map_err(|error| self.index.shown(error)) {
            Ok(table) => self.finish_merge(table),
            Err(error) => {
                self.cancel_merge(&merge);
                Err(error)
            }
        }
    }

    /// Begins a merge of the segments with these numbers in [`set`](Self::set). It runs wherever the caller likes, in
    /// another thread, while this writer adds, deletes and commits: [`finish_merge`](Self::finish_merge) then puts the
    /// output in their place.
    ///
    /// ```
    /// use pkhash_std::{Index, MergeOptions, WriterOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let index = Index::create(folder.path())?;
    /// let mut writer = index.writer()?;
    /// writer.add_keys(["a", "b"], WriterOptions::default())?;
    /// writer.add_keys(["c"], WriterOptions::default())?;
    /// let merge = writer.begin_merge(0..2)?;
    /// let merging = std::thread::spawn(move || merge.run(&MergeOptions::default()));
    /// writer.delete(&["b"])?;
    /// writer.commit()?;
    /// let table = merging.join().expect("no panic")?;
    /// let merged = writer.finish_merge(table)?;
    /// assert_eq!(merged.doc_maps[0].get(0), Some(2), "c, behind the older docs");
    /// writer.commit()?;
    /// let set = index.snapshot().set().clone();
    /// assert_eq!((set.len(), set.get_doc_id(b"b")?, set.get_doc_id(b"c")?), (1, None, Some(2)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchSegment`]; [`Error::InMerge`] if another merge has begun with one of them.
    pub fn begin_merge(&mut self, segments: Range<usize>) -> Result<IndexMerge> {
        let (expected, found) = (self.segments.len(), segments.end);
        let inputs = self.segments.get(segments).filter(|inputs| !inputs.is_empty());
        let inputs = inputs.ok_or(Error::NoSuchSegment { expected, found })?.to_vec();
        if let Some(input) = inputs.iter().find(|input| self.is_in_merge(input)) {
            return Err(Error::InMerge { path: self.folder().join(&input.name) });
        }
        let number = self.new_number();
        let tables = inputs.iter().map(|input| Arc::clone(&input.table)).collect();
        self.merges.insert(number, tables);
        let path = self.index.real().join(table_name(number));
        let shared = &self.index.shared;
        Ok(IndexMerge { number, path, inputs, open: (shared.open, shared.options) })
    }

    /// Gives up a merge that was begun: its segments can be merged anew.
    pub fn cancel_merge(&mut self, merge: &IndexMerge) {
        self.merges.remove(&merge.number);
    }

    /// Puts the output of a merge in the place of its inputs. Docs that were deleted since the merge began are deleted in
    /// it, too.
    ///
    /// # Errors
    /// [`Error::NotInSet`] if the merge was not begun by this writer.
    pub fn finish_merge(&mut self, table: MergedTable) -> Result<Merged> {
        let MergedTable { number, table, inputs, maps, docs, built } = table;
        let foreign = |input| Error::NotInSet { input, path: table.name().to_owned() };
        let tables = self.merges.get(&number).ok_or_else(|| foreign(0))?;
        let same = tables.iter().zip(&inputs).all(|(a, b)| Arc::ptr_eq(a, &b.table));
        let is_first = |segment: &Pending| {
            inputs.first().is_some_and(|b| Arc::ptr_eq(&segment.table, &b.table))
        };
        let at = self.segments.iter().position(is_first);
        let at = at.filter(|_| same && tables.len() == inputs.len()).ok_or_else(|| foreign(0))?;
        // Nothing comes between them, and none of them goes, while the merge is under way.
        let now = &self.segments[at..at + inputs.len()];
        let mut deleted = Vec::new();
        for ((now, before), map) in now.iter().zip(&inputs).zip(&maps) {
            if let Some(live) = &now.live {
                let all = || Arc::new(LiveDocs::all(live.docs()));
                let before = before.live.clone().unwrap_or_else(all);
                let docs = live.deleted_since(&before).filter_map(|doc| map.get(doc));
                deleted.extend(docs.filter_map(|doc| u32::try_from(doc).ok()));
            }
        }
        let live = match docs {
            Some(docs) if !deleted.is_empty() => Some(LiveDocs::from_deleted(docs, &deleted)?),
            _ => None,
        };
        let name = table_name(number);
        let output: Arc<TableFile> = self.share(name.clone(), table)?;
        let output = Pending::new(name.clone(), output, docs, live);
        self.segments.splice(at..at + inputs.len(), [output]);
        self.merges.remove(&number);
        self.changed();
        let inputs = inputs.into_iter().map(|input| input.name).collect();
        Ok(Merged { inputs, doc_maps: maps, output: name, built })
    }

    fn is_in_merge(&self, segment: &Pending) -> bool {
        self.merges.values().flatten().any(|table| Arc::ptr_eq(table, &segment.table))
    }
}
