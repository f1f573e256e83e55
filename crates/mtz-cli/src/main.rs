//! The command line of mtz: parse, do, show. Results go to stdout, talk and progress to stderr. Exit code 0: fine, 1:
//! it ran but a check failed, 2: error.

mod args;
mod budget;
mod bundled;
mod demo;
mod dry_run;
mod eval;
mod extract;
mod inspect;
mod manual;
mod models;
mod outputs;
mod progress;
mod prune;
mod report;
mod reproduce;
mod run_report;
mod samples;
mod settings;
mod stats;
mod tasks;
mod terminal;
mod train;
mod values;
mod zip;

use args::{Cli, Command};
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().map(values::with_dashes).collect();
    let json = arguments.iter().skip(1).any(|a| a == "--json");
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return terminal::usage(&error, json),
    };
    samples::prepare(&cli.command, &cli.common);
    let code = run(&cli).unwrap_or_else(|error| terminal::error(&error, cli.common.json));
    // A result that nobody can read is none.
    terminal::unprinted().map_or(code, |error| terminal::error(&error, false))
}

/// Runs the command in a pool of `--threads` threads.
fn run(cli: &Cli) -> mtz::error::Result<ExitCode> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(cli.common.threads.map_or(0, usize::from))
        .build()
        .map_err(|e| mtz::error::Error::usage(format!("threads cannot be started: {e}")))?;
    pool.install(|| match &cli.command {
        Command::Inspect(args) => inspect::run(args, &cli.common),
        Command::Eval(args) => eval::run(args, &cli.common),
        Command::Train(args) => train::run(args, &cli.common),
        Command::Zip(args) => zip::run(args, &cli.common),
        Command::Extract(args) => extract::run(args, &cli.common),
        Command::Prune(args) => prune::run(args, &cli.common),
        Command::Stats(args) => stats::run(args, &cli.common),
        Command::Demo(args) => demo::run(args, &cli.common),
        Command::Reproduce(args) => reproduce::run(args, &cli.common),
        Command::Report(args) => report::run(args, &cli.common),
        Command::Completions(args) => manual::completions(args, &cli.common),
        Command::Man(args) => manual::page(args, &cli.common),
    })
}
