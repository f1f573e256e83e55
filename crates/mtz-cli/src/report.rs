//! `mtz report`

use crate::args::{Common, Report};
use crate::outputs;
use crate::show;
use mtz::error::{Error, Result};
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &Report, common: &Common) -> Result<ExitCode> {
    outputs::check(&args.output, args.force, &[&args.run])?;
    let bytes = std::fs::read(&args.run).map_err(|e| Error::io(&args.run, &e))?;
    let run = serde_json::from_slice(&bytes).map_err(|e| {
        Error::data(format!("{} is not JSON: {e}", args.run.display())).hint("mtz zip --json > run.json makes one")
    })?;
    outputs::write_text(&args.output, &mtz::report::html(&run)?)?;
    if common.json {
        show::result(&json!({ "version": 1, "output": args.output.display().to_string() }).to_string());
    } else {
        show::note(&format!("written to {}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}
