//! Keys that exist: object IDs, names of packages.

use super::*;

/// Every line of a list answers with its number, and the table verifies.
fn check_list(shell: &Shell, lines: &[String], form: &str, options: &str) {
    let list = lines.iter().fold(String::new(), |all, line| all + line + "\n");
    shell.write("list", &list);
    shell.run(&format!("build list -o list.pkh {form} {options}")).expect(0);
    shell.run("verify list.pkh").expect(0);
    let expected = lines
        .iter()
        .enumerate()
        .fold(String::new(), |all, (i, line)| all + &format!("{line}\t{i}\n"));
    let run = shell.run(&format!("get list.pkh --keys list {form}")).expect(0);
    assert!(run.text() == expected);
    // The dump has the same lines in another order.
    let run = shell.run(&format!("dump list.pkh {form}")).expect(0);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(run.text()), sorted(&expected));
}

fn top_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The object IDs of this repository's history; where there is no repository (in a published crate)
/// or no git, as many made-up ones.
fn object_ids() -> Vec<String> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(top_folder())
        .args(["rev-list", "--objects", "--all"])
        .output();
    let text = match listed {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        _ => String::new(),
    };
    let ids: Vec<String> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|id| id.len() == 40)
        .map(str::to_owned)
        .collect();
    if !ids.is_empty() {
        return ids;
    }
    eprintln!("no git history here: the object IDs are made up");
    let mut rng = Rng(4);
    (0..500)
        .map(|_| rng.bytes(20).iter().fold(String::new(), |id, byte| id + &format!("{byte:02x}")))
        .collect()
}

#[test]
fn real_keys_object_ids() {
    let shell = Shell::new();
    let mut ids = object_ids();
    let mut seen = BTreeSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    check_list(&shell, &ids, "--hex", "");
    let stats = shell.run("stats list.pkh --json").expect(0).json();
    assert_eq!((&stats["layout"], &stats["max_key_len"]), (&"perfect".into(), &20.into()));
    // The same in other layouts, and as 40 bytes of text.
    check_list(&shell, &ids, "--hex", "--layout inline");
    check_list(&shell, &ids, "--hex", "--layout term-order");
    check_list(&shell, &ids, "", "");
    assert_eq!(shell.run("stats list.pkh --json").expect(0).json()["layout"], "perfect");
    // IDs that are not there, though they resemble those that are.
    let near: String =
        ids.iter().map(|id| format!("{}\n", id.chars().rev().collect::<String>())).collect();
    let near: String = near
        .lines()
        .filter(|id| !seen.contains(*id))
        .fold(String::new(), |all, id| all + id + "\n");
    assert_eq!(shell.run_with_input("get list.pkh --keys -", near.as_bytes()).expect(1).text(), "");
}

#[test]
fn real_keys_package_names() {
    let shell = Shell::new();
    // A published crate has no lock file of the workspace: then its manifest's lines do.
    let lock = fs::read_to_string(top_folder().join("Cargo.lock")).unwrap_or_default();
    let value = |line: &str, field: &str| {
        line.strip_prefix(field)?.strip_prefix(" = \"")?.strip_suffix('"').map(str::to_owned)
    };
    let mut packages = Vec::new();
    let mut name = None;
    for line in lock.lines() {
        name = value(line, "name").or(name);
        if let (Some(name), Some(version)) = (&name, value(line, "version")) {
            packages.push(format!("{name} {version}"));
        }
    }
    assert!(lock.is_empty() || packages.iter().any(|package| package.starts_with("pkhash-std ")));
    if packages.is_empty() {
        packages = include_str!("../../Cargo.toml")
            .lines()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(str::to_owned)
            .collect();
    }
    for options in [
        "",
        "--layout term-order",
        "--layout term-order --filter-bits none",
        "--layout perfect --filter-bits 10",
        "--partition-bits 4",
        "--seed 7",
    ] {
        shell.write("list", "");
        let list = packages.iter().fold(String::new(), |all, line| all + line + "\n");
        shell.write("list", &list);
        shell.run(&format!("build list -o list.pkh {options}")).expect(0);
        let file = shell.0.path("list.pkh");
        let model: Model = packages
            .iter()
            .enumerate()
            .map(|(i, package)| (package.clone().into_bytes(), int(i as u64)))
            .collect();
        for file in open_all(&file) {
            check(&file, &model, &[b"no such package 1.0.0".to_vec()]);
        }
    }
    for options in ["", "--layout term-order"] {
        check_list(&shell, &packages, "", options);
    }
}
