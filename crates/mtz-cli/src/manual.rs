//! `mtz completions` and `mtz man`: made from the same definitions as the help.

use crate::args::{Cli, Common, Completions, Man};
use crate::terminal;
use clap::CommandFactory;
use mtz::error::{Error, Result};
use serde_json::json;
use std::process::ExitCode;

pub fn completions(args: &Completions, common: &Common) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "mtz", &mut script);
    Ok(tell("script", &script, common))
}

pub fn page(args: &Man, common: &Common) -> Result<ExitCode> {
    let mut all = Cli::command();
    all.build();
    let command = match &args.command {
        None => all,
        Some(name) => {
            let known: Vec<&str> = all.get_subcommands().map(clap::Command::get_name).collect();
            let missing = || Error::usage(format!("there is no command {name:?}")).hint(known.join(", "));
            all.find_subcommand(name).ok_or_else(missing)?.clone()
        }
    };
    let mut page = Vec::new();
    let written = clap_mangen::Man::new(command).render(&mut page);
    written.map_err(|e| Error::usage(format!("the page cannot be made: {e}")))?;
    Ok(tell("page", &page, common))
}

/// As it is, or in a JSON object of one key.
fn tell(key: &str, text: &[u8], common: &Common) -> ExitCode {
    let text = String::from_utf8_lossy(text);
    if common.json {
        terminal::result(&json!({ "version": 1, key: text }).to_string());
    } else {
        terminal::result(&text);
    }
    ExitCode::SUCCESS
}
