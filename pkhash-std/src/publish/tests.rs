//! Publishing, one file and several.

use super::*;

const CRASH: &str = "PKHASH_TEST_CRASH_AFTER";

/// `None`: when the temporary file was created, before anything is written.
const STEPS: [Option<Step>; 5] =
    [None, Some(Step::Written), Some(Step::Synced), Some(Step::Renamed), Some(Step::FolderSynced)];

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
    Publication::commit_observed(vec![publication], &mut |step| die(Some(step))).unwrap();
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
                .args(["--exact", "publish::tests::crash_child"])
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
            let others = fs::read_dir(folder.path()).unwrap().count() - usize::from(path.exists());
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

/// How many files a process gets through that is killed after each step of publishing three of them: always the first
/// ones, and none before all are synced.
#[test]
fn a_crash_among_several_files_leaves_the_first_ones_new() {
    let mut seen = Vec::new();
    // Written, synced, and two steps for each file.
    for last in 0..9 {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> =
            ["c", "a", "b"].iter().map(|name| folder.path().join(name)).collect();
        paths.iter().for_each(|path| fs::write(path, "old").unwrap());
        let order: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "publish::tests::crash_child_of_several"])
            .env(CRASH, format!("{last} {}", order.join(" ")))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.success(), last == 8, "{last}");
        let new: Vec<bool> =
            paths.iter().map(|path| fs::read_to_string(path).unwrap() == "new").collect();
        assert!(new.is_sorted_by(|a, b| a >= b), "{last}: {new:?}");
        seen.push(new.iter().filter(|new| **new).count());
        // What is left, the next publications remove, each that of its name.
        paths.iter().for_each(|path| drop(Publication::begin(path).unwrap()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
    assert_eq!(seen, [0, 0, 1, 1, 2, 2, 3, 3, 3]);
}

/// Not a test of its own.
#[test]
fn crash_child_of_several() {
    let Ok(order) = std::env::var(CRASH) else { return };
    let mut words = order.split(' ');
    let last: usize = words.next().unwrap().parse().unwrap();
    let begin = |path| {
        let mut publication = Publication::begin(path).unwrap();
        publication.file().write_all(b"new").unwrap();
        publication
    };
    let mut steps = 0;
    let mut observe = |_| {
        if steps == last {
            std::process::abort();
        }
        steps += 1;
    };
    Publication::commit_observed(words.map(begin).collect(), &mut observe).unwrap();
}

/// Files that dead processes have left, of a name and of others.
#[cfg(unix)]
#[test]
fn what_dead_processes_left_is_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let names = |what: &str| {
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.retain(|name| name.contains(what));
        names
    };
    let long = "x".repeat(255);
    for name in ["t.pkh", &"y".repeat(243), &"z".repeat(244), &long] {
        let path = folder.path().join(name);
        // In use, by this process.
        let living = Publication::begin(&path).unwrap();
        let (dead, own) = {
            let publication = Publication::begin(&path).unwrap();
            let own = publication.temporary_path().file_name().unwrap().to_owned();
            let dead = own
                .to_str()
                .unwrap()
                .replace(&own.to_str().unwrap()[own.len() - 10..], "DEAD00.tmp");
            (dead, own)
        };
        assert!(dead.len() <= 255 && dead.len() == own.len());
        let others = [
            ".t.pkh.tmp",
            ".t.pkh.x.tmp",
            ".t.pkh.abc-ef.tmp",
            "t.pkh.abcdef.tmp",
            ".other.abcdef.tmp",
        ];
        for name in others.iter().chain([&dead.as_str()]) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let stale: Vec<String> = stale_temporaries(folder.path())
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        let mut expected = vec![dead.clone(), ".other.abcdef.tmp".to_owned()];
        expected.sort();
        assert_eq!(stale, expected);
        let next = Publication::begin(&path).unwrap();
        assert!(!names(".tmp").contains(&dead), "{dead}");
        for name in others {
            assert!(names(".tmp").contains(&name.to_owned()), "{name}");
        }
        assert!(living.temporary_path().exists() && next.temporary_path().exists());
        living.commit().unwrap();
        next.commit().unwrap();
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(names("").len(), 5);
}

/// Many at once, that take each other's files for dead ones if they can.
#[cfg(unix)]
#[test]
fn nobody_removes_what_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.pkh");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for round in 0..40 {
                    let mut publication = Publication::begin(path).unwrap();
                    write!(publication.file(), "{thread} {round}").unwrap();
                    assert!(publication.temporary_path().exists());
                    // A listing locks, too.
                    assert_eq!(stale_temporaries(path.parent().unwrap()).unwrap().len(), 0);
                    publication.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The owner of a file that is replaced. Only the administrator may give files away.
#[cfg(unix)]
#[test]
fn owner_and_group_stay_or_access_gets_narrower() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    let folder = tempfile::tempdir().unwrap();
    let (path, beside) = (folder.path().join("t.pkh"), folder.path().join("t.pkh.fst"));
    fs::write(&path, "old").unwrap();
    let may = chown(&path, Some(12_345), Some(23_456)).is_ok();
    let before = fs::metadata(&path).unwrap();
    for mode in [0o640, 0o664, 0o600, 0o4755] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mut publication = Publication::begin(&path).unwrap();
        // On its way it is nobody else's.
        let way = fs::metadata(publication.temporary_path()).unwrap();
        assert_eq!(way.mode() & 0o7077, 0, "{:o}", way.mode());
        publication.file().write_all(b"new").unwrap();
        publication.commit().unwrap();
        // A new file beside it takes after it.
        Publication::begin_like(&beside, &path).unwrap().commit().unwrap();
        for path in [&path, &beside] {
            let after = fs::metadata(path).unwrap();
            assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()), "may: {may}");
            assert_eq!(after.mode() & 0o7777, mode);
        }
        fs::remove_file(&beside).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

/// Where the process was when it began.
#[test]
fn changing_the_folder_changes_nothing() {
    // In a process of its own: the folder is that of all threads.
    const CHILD: &str = "PKHASH_TEST_FOLDER";
    if let Some(folder) = std::env::var_os(CHILD) {
        let folder = Path::new(&folder);
        std::env::set_current_dir(folder.join("a")).unwrap();
        let files: Vec<Publication> = ["t.pkh", "./u.pkh", "sub/v.pkh", "../a/w.pkh"]
            .map(|path| Publication::begin(path).unwrap())
            .into();
        std::env::set_current_dir(folder.join("b")).unwrap();
        assert!(files.iter().all(|file| file.path().is_absolute()));
        Publication::commit_all(files).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["a/sub", "b"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "publish::tests::changing_the_folder_changes_nothing"])
        .env(CHILD, folder.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    for name in ["a/t.pkh", "a/u.pkh", "a/sub/v.pkh", "a/w.pkh"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    assert_eq!(fs::read_dir(folder.path().join("b")).unwrap().count(), 0);
}
