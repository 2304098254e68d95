//! Manifests and live docs that are damaged, forged, or of something else.

use std::fs;

use pkhash_std::{Error, Index, KeyHasher, build_slice};
use pkhash_testing::Folder;

use super::options;

fn committed() -> (Folder, String, String) {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    writer.add_keys((0..300).map(|i| format!("key-{i}")), options()).unwrap();
    writer.add_keys(["a", "b", "c"], options()).unwrap();
    writer.delete(&["b", "key-7", "key-8"]).unwrap();
    let snapshot = writer.commit().unwrap();
    let manifest = format!("manifest-{snapshot:012}.json");
    let live = folder.names().into_iter().find(|name| name.contains("1.live-")).unwrap();
    (folder, manifest, live)
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    let (folder, manifest, live) = committed();
    let open = || Index::open(folder.root()).map(|_| ());
    open().unwrap();
    for (name, is_manifest) in [(&manifest, true), (&live, false)] {
        let good = folder.read(name);
        let refused = |bad: &[u8], what: &str| {
            fs::write(folder.path(name), bad).unwrap();
            let error = open().unwrap_err();
            let fits = match &error {
                Error::Manifest { .. } => is_manifest,
                Error::LiveDocsFile { .. } => !is_manifest,
                _ => false,
            };
            assert!(fits, "{what}: {error}");
            assert!(error.to_string().contains(name.as_str()), "{error}");
        };
        for len in 0..good.len() {
            refused(&good[..len], "cut short");
        }
        for at in 0..good.len() {
            for bit in [1, 0x20, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= bit;
                refused(&bad, "flipped");
            }
        }
        refused(&[&good[..], b"\n"].concat(), "longer");
        refused(b"", "empty");
        fs::write(folder.path(name), &good).unwrap();
        open().unwrap();
    }
}

/// The text with its checksum made right.
fn sealed(text: &str) -> String {
    let at = text.rfind(",\n  \"checksum\"").unwrap();
    let sum = KeyHasher::new(0).hash(&text.as_bytes()[..at]);
    format!("{},\n  \"checksum\": \"{sum:016x}\"\n}}\n", &text[..at])
}

/// Whoever forges a manifest can make its checksum right.
#[test]
fn forged_manifests_are_refused() {
    let (folder, manifest, live) = committed();
    let good = String::from_utf8(folder.read(&manifest)).unwrap();
    assert_eq!(sealed(&good), good);
    let json: serde_json::Value = serde_json::from_str(&good).unwrap();
    assert_eq!(json["segments"].as_array().unwrap().len(), 2);
    let newest = json["segments"][0]["table"]["name"].as_str().unwrap();
    let oldest = json["segments"][1]["table"]["name"].as_str().unwrap();
    let refused = |from: &str, to: &str, part: &str| {
        assert!(good.contains(from), "{from}");
        fs::write(folder.path(&manifest), sealed(&good.replacen(from, to, 1))).unwrap();
        let error = Index::open(folder.root()).unwrap_err();
        assert!(error.to_string().contains(part), "{to}: {error}");
    };
    // Names that lead elsewhere.
    for name in [
        "../x.pkh",
        "/etc/passwd",
        "a/b.pkh",
        ".",
        "..",
        "",
        ".hidden.pkh",
        "a\\\\b.pkh",
        "a\\u0000b",
    ] {
        refused(&format!("\"{newest}\""), &format!("\"{name}\""), "expected a name in the folder");
    }
    refused(newest, oldest, "named twice");
    refused(newest, "missing.pkh", "missing.pkh");
    refused("\"pkhash manifest\"", "\"something\"", "expected \"pkhash manifest\"");
    refused("\"version\": 1", "\"version\": 2", "version: expected 1, found 2");
    refused("\"snapshot\": 2", "\"snapshot\": 3", "snapshot: expected 2, found 3");
    refused("\"doc_base\": 300", "\"doc_base\": 299", "doc base");
    refused("\"docs\": 300", "\"docs\": 301", "doc base");
    refused("\"docs\": 300", "\"docs\": 4294967296", "line");
    refused("\"docs\": 300", "\"docs\": 134217729", "expected fewer for 300 keys");
    refused(
        "\"next_file\": 3",
        "\"next_file\": 18446744073709551615",
        "next_file: expected at most",
    );
    refused("\"deleted\": 2", "\"deleted\": 301", "deleted docs");
    refused("\"deleted\": 2", "\"deleted\": 3", "deleted docs");
    refused("\"keys\": 300", "\"keys\": 301", "keys: expected 301, found 300");
    refused("\"next_file\"", "\"next\"", "unknown field");
    refused("\"segments\": [", "\"segments\": [7,", "line");
    refused("{", "[{", "line");
    let bytes = json["segments"][0]["table"]["bytes"].as_u64().unwrap();
    refused(&format!("\"bytes\": {bytes}"), "\"bytes\": 1", "length: expected 1");
    let sum = json["segments"][0]["table"]["checksum"].as_str().unwrap();
    refused(sum, "0123456789abcdef", "footer checksum: expected 81985529216486895");
    refused(sum, "0123", "16 hexadecimal digits");
    // Another table, and other live docs, under the name.
    fs::write(folder.path(&manifest), &good).unwrap();
    let table = folder.read(newest);
    build_slice(&["a", "b", "d"], |i| [i as u8], folder.path(newest), &options()).unwrap();
    let error = Index::open(folder.root()).unwrap_err();
    assert!(matches!(error, Error::NotCommitted { .. }), "{error}");
    folder.write(newest, table);
    let bytes = folder.read(&live);
    let other = folder.names().into_iter().find(|name| name.contains("2.live-")).unwrap();
    folder.write(&live, folder.read(&other));
    let error = Index::open(folder.root()).unwrap_err();
    assert!(matches!(error, Error::LiveDocsFile { .. }), "{error}");
    fs::remove_file(folder.path(&live)).unwrap();
    let error = Index::open(folder.root()).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path.ends_with(&live)), "{error}");
    folder.write(&live, bytes);
    Index::open(folder.root()).unwrap();
}

/// The bytes with both checksums made right.
fn sealed_live(mut bytes: Vec<u8>) -> Vec<u8> {
    let hash = |bytes: &[u8]| KeyHasher::new(0).hash(bytes).to_le_bytes();
    let sum = hash(&bytes[64..]);
    bytes[48..56].copy_from_slice(&sum);
    let sum = hash(&bytes[..56]);
    bytes[56..64].copy_from_slice(&sum);
    bytes
}

/// The same of live docs, of both kinds: whatever they say, they are refused, or are some docs.
#[test]
fn forged_live_docs_are_refused_or_are_some_docs() {
    for few in [true, false] {
        let folder = Folder::new();
        let index = Index::create(folder.root()).unwrap();
        let mut writer = index.writer().unwrap();
        let keys: Vec<String> = (0..2000).map(|i| format!("key-{i}")).collect();
        writer.add_keys(&keys, options()).unwrap();
        let deleted: Vec<&String> = keys.iter().step_by(if few { 400 } else { 3 }).collect();
        writer.delete(&deleted).unwrap();
        let snapshot = writer.commit().unwrap();
        let live = folder.names().into_iter().find(|name| name.contains(".live-")).unwrap();
        let good = folder.read(&live);
        // A bit for each doc, or less.
        assert_eq!(good.len() == 64 + 2000usize.div_ceil(64) * 8, !few, "{}", good.len());
        let manifest = folder.path(&format!("manifest-{snapshot:012}.json"));
        let text = fs::read_to_string(&manifest).unwrap();
        let sum = |bytes: &[u8]| {
            format!("{:016x}", u64::from_le_bytes(bytes[56..64].try_into().unwrap()))
        };
        let mut opened = 0;
        for at in 8..good.len() {
            for change in [1u8, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= change;
                let bad = sealed_live(bad);
                fs::write(folder.path(&live), &bad).unwrap();
                fs::write(&manifest, sealed(&text.replace(&sum(&good), &sum(&bad)))).unwrap();
                match Index::open(folder.root()) {
                    Ok(index) => {
                        opened += 1;
                        index.snapshot().set().get(b"key-3").unwrap();
                    }
                    Err(error) => {
                        assert!(matches!(error, Error::LiveDocsFile { .. }), "{error}");
                    }
                }
            }
        }
        // Docs that are others, and as many.
        assert!(opened > 0);
    }
}

/// A segment map: all but its lines is checked when it is opened, and its lines when it is verified.
#[test]
fn damaged_segment_maps_are_refused_or_found() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    for i in 0..3 {
        writer.add_keys((0..30).map(|key| format!("{i}-{key}")), options()).unwrap();
    }
    writer.commit().unwrap();
    let name = folder.names().into_iter().find(|name| name.starts_with("map-")).unwrap();
    let good = folder.read(&name);
    let first_line = (128 + 3 * 16 + 2 * 8usize).next_multiple_of(64);
    assert_eq!(good.len() % 64, 0);
    let open = |bytes: &[u8]| {
        fs::write(folder.path(&name), bytes).unwrap();
        Index::open(folder.root())
    };
    for len in 0..good.len() {
        let error = open(&good[..len]).unwrap_err();
        assert!(matches!(error, Error::SegmentMapFile { what: "length", .. }), "{len}: {error}");
    }
    let error = open(&[&good[..], &[0; 64]].concat()).unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
    for at in 0..good.len() {
        for bit in [1, 0x10, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            match open(&bad) {
                Err(Error::SegmentMapFile { .. }) => assert!(at < first_line, "{at}"),
                Err(error) => panic!("{at}: {error}"),
                Ok(index) => {
                    assert!(at >= first_line, "{at}");
                    let snapshot = index.snapshot();
                    let error = snapshot.verify_segment_map().unwrap_err();
                    assert!(matches!(
                        error,
                        Error::SegmentMapFile { what: "checksum of the lines", .. }
                    ));
                    // Some answer, and no panic.
                    for key in ["0-7", "1-8", "2-9", "none"] {
                        snapshot.set().get(key.as_bytes()).unwrap();
                        snapshot.set().in_set(&[key]).unwrap();
                    }
                }
            }
        }
    }
    open(&good).unwrap().snapshot().verify_segment_map().unwrap();
}

/// Whoever forges a segment map can make its checksums right: it is refused, or can be searched.
#[test]
fn forged_segment_maps_are_refused_or_can_be_searched() {
    let folder = Folder::new();
    let index = Index::create(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    for i in 0..3 {
        writer.add_keys((0..30).map(|key| format!("{i}-{key}")), options()).unwrap();
    }
    let snapshot = writer.commit().unwrap();
    let name = folder.names().into_iter().find(|name| name.starts_with("map-")).unwrap();
    let manifest = folder.path(&format!("manifest-{snapshot:012}.json"));
    let text = fs::read_to_string(&manifest).unwrap();
    let good = folder.read(&name);
    let first_line = (128 + 3 * 16 + 2 * 8usize).next_multiple_of(64);
    let hash = |bytes: &[u8]| KeyHasher::new(0).hash(bytes).to_le_bytes();
    let seal = |mut bytes: Vec<u8>| {
        for (at, sum) in [(56, hash(&bytes[first_line..])), (64, hash(&bytes[128..first_line]))] {
            bytes[at..at + 8].copy_from_slice(&sum);
        }
        let sum = hash(&bytes[..120]);
        bytes[120..128].copy_from_slice(&sum);
        bytes
    };
    assert!(seal(good.clone()) == good);
    let sum =
        |bytes: &[u8]| format!("{:016x}", u64::from_le_bytes(bytes[120..128].try_into().unwrap()));
    let (mut refused, mut opened) = (0, 0);
    for at in 8..good.len() {
        for change in [1u8, 0x20, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= change;
            let bad = seal(bad);
            if bad == good {
                continue;
            }
            fs::write(folder.path(&name), &bad).unwrap();
            fs::write(&manifest, sealed(&text.replace(&sum(&good), &sum(&bad)))).unwrap();
            match Index::open(folder.root()) {
                Ok(index) => {
                    opened += 1;
                    let set = index.snapshot().set().clone();
                    for i in 0..30 {
                        set.get(format!("1-{i}").as_bytes()).unwrap();
                    }
                    let keys: Vec<String> =
                        (0..90).map(|i| format!("{}-{}", i % 4, i / 3)).collect();
                    set.get_batch(&keys, &mut [false; 90]).unwrap();
                    set.in_set(&keys).unwrap();
                }
                Err(Error::SegmentMapFile { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(refused > 100 && opened > 100, "{refused} refused, {opened} opened");
}

/// What is no file is not waited for: a pipe, a folder. Numbers that are no longer ours are nobody's.
#[cfg(unix)]
#[test]
fn pipes_and_folders_in_place_of_files() {
    let (folder, manifest, live) = committed();
    let json: serde_json::Value = serde_json::from_slice(&folder.read(&manifest)).unwrap();
    let table = json["segments"][0]["table"]["name"].as_str().unwrap();
    for name in [manifest.as_str(), &live, table] {
        let good = folder.read(name);
        for pipe in [true, false] {
            fs::remove_file(folder.path(name)).unwrap();
            if pipe {
                let made = std::process::Command::new("mkfifo").arg(folder.path(name)).status();
                assert!(made.unwrap().success());
            } else {
                fs::create_dir(folder.path(name)).unwrap();
            }
            let error = Index::open(folder.root()).unwrap_err();
            assert!(matches!(&error, Error::NotAFile { path } if path.ends_with(name)), "{error}");
            if pipe {
                fs::remove_file(folder.path(name)).unwrap();
            } else {
                fs::remove_dir(folder.path(name)).unwrap();
            }
            folder.write(name, &good);
        }
    }
    let far = "manifest-18446744073709551615.json";
    folder.write(far, folder.read(&manifest));
    folder.write("segment-18446744073709551615.pkh", "somebody's");
    let index = Index::open(folder.root()).unwrap();
    let mut writer = index.writer().unwrap();
    writer.add_keys(["z"], options()).unwrap();
    assert_eq!(writer.commit().unwrap(), 3);
    assert!(folder.path(far).exists());
}
