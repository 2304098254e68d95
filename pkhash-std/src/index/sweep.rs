//! Removing files that no snapshot needs. Only under the writer's lock.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use super::manifest::{Manifest, lock_unused, manifest_name, number_between, snapshots};

/// The number in the name of a file that an index makes: a segment map, or a table and what belongs to it.
pub(super) fn number_of(name: &str) -> Option<u64> {
    if let Some(number) = number_between(name, "map-", ".segments") {
        return Some(number);
    }
    let rest = name.strip_prefix("segment-")?;
    let end = rest.find('.')?;
    let number = number_between(&rest[..end], "", "")?;
    let behind = &rest[end..];
    let live = || number_between(behind, ".live-", "").is_some();
    (behind == ".pkh" || behind == ".pkh.fst" || live()).then_some(number)
}

/// Removes the manifests before `current` that nobody reads, and then what none that is left names, of the files that
/// they named and of those that an index makes. `kept`: tables that stay in any case, with their companions.
///
/// Nothing that fails matters: the next sweep sees to it. Nothing is removed while a manifest cannot be read, since
/// nobody knows what it names.
pub(super) fn sweep(folder: &Path, current: u64, kept: &HashSet<String>) {
    let Ok(numbers) = snapshots(folder) else { return };
    let mut used: HashSet<String> = kept.clone();
    let mut unused: HashSet<String> = HashSet::new();
    for number in numbers {
        let path = folder.join(manifest_name(number));
        // The lock is held until the file has gone.
        let lock = if number < current { lock_unused(&path) } else { None };
        let is_file = fs::metadata(&path).is_ok_and(|meta| meta.is_file());
        let bytes = if is_file { fs::read(&path).ok() } else { None };
        let manifest = bytes.and_then(|bytes| Manifest::parse(&bytes, number).ok());
        let Some(manifest) = manifest else { return };
        let names = manifest.files().map(str::to_owned);
        if lock.is_some() && fs::remove_file(&path).is_ok() {
            unused.extend(names);
        } else {
            used.extend(names);
        }
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if let Ok(name) = entry.file_name().into_string()
            && number_of(&name).is_some()
        {
            unused.insert(name);
        }
    }
    for name in &unused {
        let table = name.strip_suffix(".fst").unwrap_or(name);
        if !used.contains(name) && !used.contains(table) {
            let _ = fs::remove_file(folder.join(name));
            // The companion of a table that was there before the index.
            let _ = fs::remove_file(folder.join(format!("{name}.fst")));
        }
    }
    for path in crate::publish::stale_temporaries(folder).unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(".segment-")
            || name.starts_with(".map-")
            || name.starts_with(".manifest-")
        {
            let _ = fs::remove_file(&path);
        }
    }
}
