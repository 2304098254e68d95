//! Which files there are, and who may work on them at the same time.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use pkhash_std::{
    Error, Index, OpenOptions, TableFile, TieredPolicy, ValueChoice, ValueFormat, build_slice,
};
use pkhash_testing::{Folder, Rng, names};

use super::{Tried, merge_options, options};

impl Tried {
    /// Once nobody holds an older snapshot, its files go.
    pub(super) fn files_are_those_of_snapshots(self) {
        let Self { folder, index, writer, held, .. } = self;
        let number = index.snapshot().number();
        drop((held, writer, index));
        let root = folder.path("index");
        let index = Index::open(&root).unwrap();
        drop(index.writer().unwrap());
        let snapshot = index.snapshot();
        let mut expected = vec![format!("manifest-{number:012}.json"), "writer.lock".to_owned()];
        for segment in snapshot.segments() {
            expected.push(segment.name.to_owned());
        }
        expected.sort();
        let found = names(&root);
        let live = |name: &String| name.contains(".live-");
        let (live, found): (Vec<String>, Vec<String>) = found.into_iter().partition(live);
        let map = |name: &String| name.starts_with("map-");
        let (maps, found): (Vec<String>, Vec<String>) = found.into_iter().partition(map);
        assert_eq!(found, expected);
        let info = snapshot.set().segment_map();
        assert_eq!(maps.len(), info.map_or(0, |info| info.maps));
        // Every segment is in the map, if there are a few.
        assert_eq!(info.map(|info| info.unmapped), (snapshot.set().len() >= 3).then_some(0));
        snapshot.verify_segment_map().unwrap();
        assert_eq!(live.len(), snapshot.segments().filter(|segment| segment.deleted > 0).count());
    }
}

fn numbered(from: u32, n: u32) -> Vec<String> {
    (from..from + n).map(|i| format!("id-{i}")).collect()
}

#[test]
fn one_writer_at_a_time() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let writer = index.writer().unwrap();
    for other in [&index, &Index::open(folder.root()).unwrap()] {
        let error = other.writer().unwrap_err();
        assert!(matches!(error, Error::Locked { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("writer.lock"), "{text}");
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    }
    drop(writer);
    index.writer().unwrap();
}

#[test]
fn a_snapshot_keeps_its_files_through_ten_compactions() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    for i in 0..3 {
        writer.add_keys(numbered(10 * i, 10), options()).unwrap();
    }
    writer.delete(&["id-3", "id-14"]).unwrap();
    writer.commit().unwrap();
    index.refresh().unwrap();
    let old = index.snapshot();
    let mut files: Vec<String> = names(folder.root());
    files.retain(|name| *name != "manifest-000000000001.json");
    for i in 3..13 {
        writer.add_keys(numbered(10 * i, 10), options()).unwrap();
        assert!(writer.merge_all(&merge_options()).unwrap().is_some());
        writer.commit().unwrap();
        index.refresh().unwrap();
    }
    // A reader that opens files by their names finds them.
    if cfg!(unix) {
        for name in &files {
            assert!(folder.path(name).exists(), "{name}");
        }
    }
    for segment in old.segments() {
        TableFile::open(folder.path(segment.name)).unwrap();
    }
    assert_eq!(old.set().len(), 3);
    assert_eq!(old.set().get_doc_id(b"id-7").unwrap(), Some(7));
    assert_eq!(old.set().get_doc_id(b"id-14").unwrap(), None);
    drop(old);
    writer.add_keys(["more"], options()).unwrap();
    writer.commit().unwrap();
    drop(writer);
    index.refresh().unwrap();
    drop(index.writer().unwrap());
    let left = names(folder.root());
    // Two tables, manifest and lock.
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn tables_that_lie_there_become_segments() {
    let folder = Folder::new();
    for (name, from) in [("9.pkh", 0), ("10.pkh", 5)] {
        let doc = |i| (i as u32).to_le_bytes();
        build_slice(&numbered(from, 10), doc, folder.path(name), &options()).unwrap();
    }
    let error = Index::open(folder.root()).unwrap_err();
    assert!(matches!(error, Error::NoIndex { .. }), "{error}");
    let index = Index::create(folder.root()).unwrap();
    let snapshot = index.snapshot();
    let segments: Vec<&str> = snapshot.segments().map(|segment| segment.name).collect();
    assert_eq!(segments, ["10.pkh", "9.pkh"]);
    assert_eq!(snapshot.set().get_doc_id(b"id-7").unwrap(), Some(12));
    // They go as others do when they are merged.
    let mut writer = index.writer().unwrap();
    writer.merge_all(&merge_options()).unwrap().unwrap();
    writer.commit().unwrap();
    drop(snapshot);
    index.refresh().unwrap();
    drop(writer);
    drop(index.writer().unwrap());
    assert!(!folder.path("9.pkh").exists() && !folder.path("10.pkh").exists());
    // A table that is put there later is none of the index's.
    let doc = |i| (i as u32).to_le_bytes();
    build_slice(&["x"], doc, folder.path("11.pkh"), &options()).unwrap();
    drop(index.writer().unwrap());
    assert!(!index.refresh().unwrap() && folder.path("11.pkh").exists());
}

#[test]
fn tables_from_inside_and_outside() {
    let (folder, outside) = (Folder::new(), Folder::new());
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    let doc = |i| (i as u32).to_le_bytes();
    let path = outside.path("a.pkh");
    build_slice(&["a", "b"], doc, &path, &options()).unwrap();
    writer.add(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let path = writer.new_table_path();
    build_slice(&["c"], doc, &path, &options()).unwrap();
    writer.add(&path).unwrap();
    let error = writer.add(&path).unwrap_err();
    assert!(matches!(error, Error::AlreadyThere { .. }), "{error}");
    // What is no table leaves nothing.
    let before = folder.names();
    let error = writer.add(outside.write("none.pkh", "no table")).unwrap_err();
    assert!(matches!(error, Error::Table { .. }), "{error}");
    let error = writer.add(outside.path("missing.pkh")).unwrap_err();
    assert!(error.to_string().contains("missing.pkh"), "{error}");
    assert_eq!(folder.names(), before);
    writer.commit().unwrap();
    index.refresh().unwrap();
    let snapshot = index.snapshot();
    let found = ["a", "b", "c", "d"].map(|key| snapshot.set().get_doc_id(key.as_bytes()).unwrap());
    assert_eq!(found, [Some(0), Some(1), Some(2), None]);
}

/// Values that are no doc IDs: they are found, and cannot be deleted.
#[test]
fn values_that_are_no_doc_ids() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    let large = |i| (u64::MAX - i as u64).to_le_bytes();
    for key in ["a", "b"] {
        let path = writer.new_table_path();
        build_slice(&[key], large, &path, &options()).unwrap();
        writer.add(&path).unwrap();
    }
    let error = writer.delete(&["b"]).unwrap_err();
    assert!(matches!(error, Error::NoDocId { segment: 0, .. }), "{error}");
    // Nor are they merged with such as are.
    writer.add_keys(["c"], options()).unwrap();
    let error = writer.merge_all(&merge_options()).unwrap_err();
    assert!(matches!(error, Error::Mismatch { what: "doc IDs", input: 2, .. }), "{error}");
    let merge = writer.begin_merge(1..3).unwrap();
    let table = merge.run(&merge_options()).unwrap();
    writer.finish_merge(table).unwrap();
    writer.commit().unwrap();
    index.refresh().unwrap();
    let snapshot = index.snapshot();
    assert_eq!(
        snapshot.segments().map(|segment| segment.docs).collect::<Vec<_>>(),
        [Some(1), None]
    );
    let value = snapshot.set().get(b"b").unwrap().unwrap().value();
    assert_eq!(value.as_u64(), Some(u64::MAX));
    // Values that could be doc IDs, and are said to be none.
    let path = writer.new_table_path();
    build_slice(&["d"], |_| 7u32.to_le_bytes(), &path, &options()).unwrap();
    writer.add_values(&path).unwrap();
    let error = writer.delete(&["c", "d"]).unwrap_err();
    assert!(matches!(error, Error::NoDocId { segment: 0, .. }), "{error}");
    assert_eq!(writer.delete(&["c"]).unwrap(), 1, "what failed has done nothing");
}

#[test]
fn more_docs_than_doc_ids_are_refused_when_they_are_added() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    let add = |writer: &mut pkhash_std::IndexWriter, key: &str, doc: u32| {
        let path = writer.new_table_path();
        build_slice(&[key], |_| doc.to_le_bytes(), &path, &options()).unwrap();
        writer.add(&path)
    };
    for i in 0..31 {
        add(&mut writer, &format!("a{i}"), (1 << 27) - 1).unwrap();
    }
    let error = add(&mut writer, "b", (1 << 27) - 1).unwrap_err();
    assert!(matches!(error, Error::TooManyDocs { found: 0x1_0000_0000 }), "{error}");
    add(&mut writer, "b", (1 << 27) - 2).unwrap();
    // So wild a value is no doc ID, and takes no room.
    add(&mut writer, "c", 1 << 27).unwrap();
    writer.commit().unwrap();
    let snapshot = index.snapshot();
    assert_eq!(snapshot.segments().next().unwrap().docs, None);
    assert_eq!(snapshot.set().get_doc_id(b"b").unwrap(), Some(u32::MAX - 1));
}

/// Versioned and other wide values have their doc IDs in front.
#[test]
fn docs_of_wide_values() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    let path = writer.new_table_path();
    let value = |i: usize| pkhash_std::versioned_value(3 * i as u32, 1 << 40);
    let table = pkhash_std::TableOptions::default()
        .value(ValueChoice::Fixed(ValueFormat::opaque(12).unwrap()));
    build_slice(&["a", "b", "c"], value, &path, &options().table(table)).unwrap();
    writer.add(&path).unwrap();
    writer.delete(&["b"]).unwrap();
    writer.commit().unwrap();
    let snapshot = Index::open(folder.root()).unwrap().snapshot();
    let segment = snapshot.segments().next().unwrap();
    assert_eq!((segment.docs, segment.deleted, segment.keys), (Some(7), 1, 3));
    assert_eq!(snapshot.set().get_doc_id(b"c").unwrap(), Some(6));
    assert_eq!(snapshot.set().get_doc_id(b"b").unwrap(), None);
}

/// What a process that was killed has left: tables, live docs, manifests and their temporary files that no snapshot
/// names.
#[test]
fn what_was_left_is_removed_by_the_next_writer() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    writer.add_keys(["a"], options()).unwrap();
    writer.commit().unwrap();
    drop(writer);
    index.refresh().unwrap();
    drop(index.writer().unwrap());
    let before = folder.names();
    for name in [
        "segment-000000000099.pkh",
        "segment-000000000099.pkh.fst",
        "segment-000000000001.live-000000000077",
        ".segment-000000000098.pkh.abc123.tmp",
        ".manifest-000000000098.json.abc123.tmp",
    ] {
        folder.write(name, "left");
    }
    let stays = ["other.pkh", "segment-99.pkh", "notes.txt", ".other.pkh.abc123.tmp"];
    for name in stays {
        folder.write(name, "somebody's");
    }
    let mut writer = index.writer().unwrap();
    let mut expected: Vec<String> = before.into_iter().chain(stays.map(str::to_owned)).collect();
    expected.sort();
    assert_eq!(folder.names(), expected);
    // No number comes twice.
    let path = writer.new_table_path();
    assert!(path.ends_with("segment-000000000100.pkh"), "{path:?}");
}

#[test]
fn a_mapped_index_is_the_same() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    writer.add_keys(numbered(0, 100), options()).unwrap();
    writer.commit().unwrap();
    let mapped = pkhash_testing::opening::map_index(folder.root(), OpenOptions::new()).unwrap();
    writer.delete(&["id-5"]).unwrap();
    writer.add_keys(["more"], options()).unwrap();
    writer.commit().unwrap();
    drop(writer);
    assert!(mapped.refresh().unwrap() && !mapped.refresh().unwrap());
    let snapshot = mapped.snapshot();
    let found =
        ["id-5", "id-6", "more"].map(|key| snapshot.set().get_doc_id(key.as_bytes()).unwrap());
    assert_eq!(found, [None, Some(6), Some(100)]);
    // Tables that stay are shared.
    let mut writer = mapped.writer().unwrap();
    writer.add_keys(["yet more"], options()).unwrap();
    writer.commit().unwrap();
    mapped.refresh().unwrap();
    let next = mapped.snapshot();
    for (old, new) in snapshot.set().segments().iter().zip(&next.set().segments()[1..]) {
        assert!(old.is_same_table(new));
    }
}

/// Readers in other threads, which open and refresh, while a writer adds, deletes, merges and commits: all of them see one commit or another.
#[test]
fn readers_beside_a_writer() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    writer.add_keys(numbered(0, 50), options()).unwrap();
    writer.commit().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (folder, done) = (&folder, &done);
            scope.spawn(move || {
                let index = Index::open(folder.root()).unwrap();
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let snapshot = if reader == 0 {
                        Index::open(folder.root()).unwrap().snapshot()
                    } else {
                        index.refresh().unwrap();
                        index.snapshot()
                    };
                    assert!(snapshot.number() >= last);
                    last = snapshot.number();
                    // Each commit deletes as many as it adds.
                    let live: u64 = snapshot
                        .segments()
                        .map(|segment| segment.keys - u64::from(segment.deleted))
                        .sum();
                    assert_eq!(live, 50, "snapshot {last}");
                }
            });
        }
        let policy = TieredPolicy::default().segments_per_tier(3).floor_keys(1);
        let mut rng = Rng(1);
        for round in 1..80 {
            let n = 1 + rng.below(9) as u32;
            writer.add_keys(numbered(1000 * round, n), options()).unwrap();
            let set = writer.set().unwrap();
            let mut keys: Vec<Vec<u8>> = Vec::new();
            for segment in set.segments().iter().rev() {
                for record in segment.table().table() {
                    let (key, value) = record.unwrap();
                    let doc = value.doc_id().unwrap();
                    let live = segment.live_docs().is_none_or(|live| live.is_live(doc));
                    if live && keys.len() < n as usize {
                        keys.push(key.to_vec());
                    }
                }
            }
            assert_eq!(writer.delete(&keys).unwrap(), u64::from(n));
            writer.merge(&policy, &merge_options()).unwrap();
            writer.commit().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}
