//! The `pkhash` command: build, search, inspect, verify and merge tables from a shell.
//!
//! Exit codes: 0 found or done, 1 something was not found, 2 error, 128 + N ended by signal N.

// Two exceptions: `map.rs` maps files, and `stdout.rs` has a look before `main`.
#![deny(unsafe_code)]

mod cmd;
mod fail;
mod foreign;
mod ids;
mod input;
mod keys;
mod live_docs;
mod map;
mod output;
mod per_table;
mod records;
mod signals;
mod stdout;
mod tables;
mod ui;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use fail::{Fail, Outcome};

/// Exact primary-key lookup: an immutable hash table on disk.
#[derive(Parser)]
#[command(name = "pkhash", version, about, long_about = None, max_term_width = 100)]
#[command(after_help = "\
Exit codes: 0 found or done, 1 a key was not found (in-set, range, prefix: nothing was), 2 error,
130 ended by Ctrl-C (SIGHUP 129, SIGTERM 143).
PKHASH_KERNEL=scalar|sse2|avx2|avx512|neon chooses the kernel that looks up and builds.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Build(cmd::build::Args),
    Get(cmd::get::Args),
    InSet(cmd::in_set::Args),
    Stats(cmd::stats::Args),
    Verify(cmd::verify::Args),
    Merge(cmd::merge::Args),
    Add(cmd::add::Args),
    Delete(cmd::delete::Args),
    Compact(cmd::compact::Args),
    Ls(cmd::ls::Args),
    Dump(cmd::dump::Args),
    Range(cmd::range::Args),
    Prefix(cmd::prefix::Args),
    Demo(cmd::demo::Args),
    Bench(cmd::bench::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            if !message.use_stderr()
                && let Err(fail) = stdout::check_stdout()
            {
                fail::complain(&fail);
                return ExitCode::from(2);
            }
            message.exit()
        }
    };
    let result = match cli.command {
        Command::Build(args) => args.run(),
        Command::Get(args) => args.run(),
        Command::InSet(args) => args.run(),
        Command::Stats(args) => args.run(),
        Command::Verify(args) => args.run(),
        Command::Merge(args) => args.run(),
        Command::Add(args) => args.run(),
        Command::Delete(args) => args.run(),
        Command::Compact(args) => args.run(),
        Command::Ls(args) => args.run(),
        Command::Dump(args) => args.run(),
        Command::Range(args) => args.run(),
        Command::Prefix(args) => args.run(),
        Command::Demo(args) => args.run(),
        Command::Bench(args) => args.run(),
    };
    let code = match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::NotFound) => ExitCode::from(1),
        // Whoever read our output has seen enough: `pkhash dump … | head`.
        Err(Fail::OutputClosed) => ExitCode::SUCCESS,
        Err(fail) => {
            fail::complain(&fail);
            ExitCode::from(2)
        }
    };
    // Whatever became of the work: who waits for this process learns that it was told to end.
    signals::exit_code().map_or(code, ExitCode::from)
}
