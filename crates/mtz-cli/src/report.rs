//! `mtz report`

use crate::args::{Common, Report};
use crate::outputs;
use crate::terminal;
use mtz::error::{Error, Result};
use mtz::report::{MAX_BYTES, RunReport, page};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

pub fn run(args: &Report, common: &Common) -> Result<ExitCode> {
    outputs::check(&args.output, args.force, &[&args.run])?;
    let io = |e: std::io::Error| Error::io(&args.run, &e);
    let mut bytes = Vec::new();
    // One byte more than is allowed tells that it is too much.
    File::open(&args.run).map_err(io)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
    let report = RunReport::from_json(&bytes).map_err(|e| e.in_file(&args.run))?;
    outputs::write_text(&args.output, &page(&report))?;
    if common.json {
        terminal::result(&json!({ "version": 1, "output": args.output.display().to_string() }).to_string());
    } else {
        terminal::note(&format!("written to {}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}
