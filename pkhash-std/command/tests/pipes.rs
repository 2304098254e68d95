//! Tables that do not come from a path: standard input and pipes.

#![cfg(unix)]

mod common;

use common::command::{command, run, run_with_input};
use common::{Folder, bytes_of, squares};

/// Commands take a table on standard input and from a pipe, whichever way tables are held.
#[test]
fn tables_from_standard_input_and_pipes() {
    let folder = Folder::new();
    let bytes = bytes_of(&squares(300));
    folder.write("t.pkh", &bytes);
    for open in ["map", "heap"] {
        let with = |args: &[&str]| {
            let mut command = command(folder.root(), args);
            command.args(["--open", open]);
            run_with_input(&mut command, &bytes)
        };
        let got = with(&["verify", "-"]).expect(0);
        assert!(got.text().starts_with("-: ok, 300 keys"), "{}", got.text());
        let same = |from: &str, path: &str| {
            assert_eq!(with(&["dump", path]).expect(0).out, {
                run(&mut command(folder.root(), ["dump", from])).expect(0).out
            });
        };
        same("t.pkh", "-");
        with(&["merge", "-", "-o", "m.pkh"]).expect(0);
        let got = run(&mut command(folder.root(), ["get", "m.pkh", "--", "key-7"])).expect(0);
        assert_eq!(got.text(), "key-7\t49\n");
        let script = format!("mkfifo p; cat t.pkh > p & \"$0\" get p --open {open} -- key-9; rm p");
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(script).arg(common::command::PKHASH);
        let got = run(shell.current_dir(folder.root())).expect(0);
        assert_eq!(got.text(), "key-9\t81\n");
        let command = &mut command(folder.root(), ["get", "-", "--open", open, "--", "k"]);
        run_with_input(command, b"no table at all, and long enough").fails(&["pkhash: -: "]);
    }
}
