//! An index as it was written once: it is read for ever, and made again byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

use pkhash_std::{Index, SegmentMapOptions};
use pkhash_testing::{Folder, names};

use super::options;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/index")
}

/// Three segments with a segment map; live docs as bits, and as a bitmap.
fn make(folder: &Path) {
    let index = Index::create(folder).unwrap();
    let mut writer = index.writer().unwrap();
    writer.segment_map(SegmentMapOptions::default().seed(7).threads(1));
    writer.add_keys((0..700).map(|i| format!("old-{i}")), options()).unwrap();
    writer.add_keys((0..40).map(|i| format!("new-{i}")), options()).unwrap();
    writer.add_keys(["a", "b", "old-7"], options()).unwrap();
    writer.delete(&["old-8", "new-3", "new-30"]).unwrap();
    writer.commit().unwrap();
}

/// Set PKHASH_BLESS=1 to write the files anew, when the format has changed (FORMAT.md, CHANGELOG.md).
#[test]
fn the_golden_index_is_read_and_made_again() {
    let golden = golden();
    let made = Folder::new();
    make(&made.path("index"));
    let files: Vec<String> =
        names(&made.path("index")).into_iter().filter(|name| name != "writer.lock").collect();
    let old = "manifest-000000000001.json";
    let files: Vec<&String> = files.iter().filter(|name| *name != old).collect();
    if std::env::var_os("PKHASH_BLESS").is_some() {
        let _ = fs::remove_dir_all(&golden);
        fs::create_dir_all(&golden).unwrap();
        for name in &files {
            fs::copy(made.path("index").join(name), golden.join(name)).unwrap();
        }
    }
    assert_eq!(files.len(), 7);
    assert!(names(&golden).iter().eq(files.iter().copied()));
    for name in files {
        let (made, kept) = (made.path("index").join(name), golden.join(name));
        assert!(fs::read(made).unwrap() == fs::read(kept).unwrap(), "{name}");
    }
    let snapshot = Index::open(&golden).unwrap().snapshot();
    let set = snapshot.set();
    assert_eq!((snapshot.number(), set.len()), (2, 3));
    assert_eq!(set.segment_map().map(|map| (map.maps, map.mapped)), Some((1, 3)));
    snapshot.verify_segment_map().unwrap();
    for (key, doc) in [
        ("old-6", Some(6)),
        ("old-8", None),
        ("new-3", None),
        ("new-4", Some(704)),
        ("old-7", Some(742)),
        ("b", Some(741)),
        ("c", None),
    ] {
        assert_eq!(set.get_doc_id(key.as_bytes()).unwrap(), doc, "{key}");
    }
}
