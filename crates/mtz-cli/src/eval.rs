//! `mtz eval`

use crate::args::{Common, Eval};
use crate::samples::{self, Prepared};
use crate::show;
use crate::told::by_chance;
use mtz::assemble;
use mtz::data::Part;
use mtz::error::{Error, Result};
use mtz::evaluate::{Options, evaluate};
use mtz::graph::Graph;
use mtz::plan::Joint;
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: &Eval, common: &Common) -> Result<ExitCode> {
    let graph = mtz::onnx::read(&args.model.value)?.with_open_batch();
    let (task, graph) = match assemble::from_graph(&graph)? {
        Some(joint) => one_task(joint, args.task.as_deref())?,
        None => (args.model.name(), graph),
    };
    if let Some(asked) = args.task.as_ref().filter(|t| **t != task) {
        return Err(Error::usage(format!("there is no task {asked:?}")).hint(format!("the model's task is {task:?}")));
    }
    samples::check(&args.data, std::slice::from_ref(&task))?;
    let graph = mtz::simplify::for_inference(&graph)?;
    let Prepared { feed, part } = samples::open(&args.data, &task, &graph, Part::Test)?;
    let bar = show::progress(feed.len(), common.quiet, "samples");
    let options = Options { batch_size: args.batch_size.get(), memory: args.memory };
    let start = Instant::now();
    let result = evaluate(&graph, &feed, options, |done| bar.set_position(done as u64))?;
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let rate = result.samples as f64 / seconds.max(1e-9);
    if common.json {
        show::result(
            &json!({
                "version": 1, "task": task, "error": result.error, "loss": result.loss, "samples": result.samples,
                "seconds": seconds, "images_per_second": rate, "part": part,
            })
            .to_string(),
        );
    } else {
        let head = ["task", "error %", "loss", "samples", "images/s"].map(str::to_owned).to_vec();
        let name = task.clone();
        let row = vec![
            task,
            format!("{:.2}", result.error),
            format!("{:.4}", result.loss),
            format!("{} {part}", result.samples),
            format!("{rate:.0}"),
        ];
        show::result(&show::table(&[head, row]));
        let answers = graph.outputs().first().map_or(1, |id| graph[*id].shape.elements(1));
        by_chance(&name, result.error, answers).iter().for_each(|line| show::warning(line));
    }
    Ok(ExitCode::SUCCESS)
}

/// A task of a joint model: the one asked for.
pub fn one_task(joint: Joint, asked: Option<&str>) -> Result<(String, Graph)> {
    let names: Vec<String> = joint.members.iter().map(|m| m.name.clone()).collect();
    let hint = format!("--task TASK, one of: {}", names.join(", "));
    let Some(asked) = asked else {
        return Err(Error::usage("this is a joint model: which of its tasks?").hint(hint));
    };
    let member = joint.members.into_iter().find(|m| m.name == asked);
    member.map(|m| (m.name, m.graph)).ok_or_else(|| Error::usage(format!("there is no task {asked:?}")).hint(hint))
}
