//! `mtz extract`

use crate::args::{Common, Extract};
use crate::eval::one_task;
use crate::outputs;
use crate::terminal;
use mtz::error::{Error, Result};
use mtz::joint_file;
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &Extract, common: &Common) -> Result<ExitCode> {
    outputs::check(&args.output, args.force, &[&args.model])?;
    let graph = mtz::onnx::read(&args.model)?;
    let joint = joint_file::from_graph(&graph)?.ok_or_else(|| {
        Error::usage(format!("{} is not a joint model", args.model.display())).hint("mtz zip makes one")
    })?;
    let (task, graph) = one_task(joint, Some(&args.task))?;
    mtz::onnx::write(&graph, &args.output)?;
    if common.json {
        let output = args.output.display().to_string();
        terminal::result(
            &json!({ "version": 1, "task": task, "parameters": graph.parameters(), "output": output }).to_string(),
        );
    } else {
        let parameters = terminal::grouped(graph.parameters() as u64);
        terminal::note(&format!("task {task}, {parameters} parameters, written to {}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}
