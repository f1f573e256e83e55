//! `mtz demo`: the main job on what ships inside the program.

use crate::args::{Common, Demo};
use crate::bundled;
use crate::outputs;
use crate::show;
use crate::told::{Told, show_result};
use crate::zip::run_with_bar;
use mtz::assemble;
use mtz::data::{Feed, Normalisation, Part};
use mtz::error::{Error, Result};
use mtz::merge::Recipe;
use mtz::pipeline::{Plan, Task};
use mtz::plan::Joint;
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: &Demo, common: &Common) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.output).map_err(|e| Error::io(&args.output, &e))?;
    let output = args.output.join("joint.onnx");
    let report = args.output.join("report.html");
    outputs::check(&output, args.force, &[])?;
    outputs::check(&report, args.force, &[])?;
    let mut parts = Vec::new();
    for (name, bytes) in bundled::MODELS {
        parts.push(Joint::single(name.to_owned(), mtz::onnx::parse(bytes)?)?);
    }
    let start = Joint::beside(parts)?;
    let Some(first) = start.members.first() else { return Err(Error::model("nothing to zip")) };
    let feed = |part| Feed::new(bundled::mnist(part)?, &first.graph, Normalisation::default());
    let (train, test) = (feed(Part::Train)?, feed(Part::Test)?);
    let tasks: Vec<Task> = start.members.iter().map(|m| Task::whole(&m.name, &train, &test)).collect();
    let plan = Plan { seed: common.seed, ..Plan::new(Recipe::Best) };
    if !common.json {
        show::result(
            "Two LeNet-300-100, trained on MNIST from different starts, become one: all hidden units shared.\n",
        );
    }
    let begin = Instant::now();
    let zipped = run_with_bar(start, &tasks, &plan, common, "")?;
    let seconds = begin.elapsed().as_secs_f64();
    let graph = assemble::to_graph(&zipped.joint, false)?;
    let some: Vec<usize> = (0..8).collect();
    let samples = vec![test.batch(&some)?; tasks.len()];
    mtz::onnx::write_checked(&graph, &output, |file| assemble::check(file, &zipped.joint, &samples, false))?;
    let told = Told {
        zipped: &zipped,
        tasks: &tasks,
        seconds,
        parts: vec!["test"; 2],
        output: &output,
        bytes_before: bundled::MODELS.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
        checked: true,
        data: "--data data/mnist".to_owned(),
        budget: None,
    };
    show_result(&told, Some(&report), common)?;
    Ok(ExitCode::SUCCESS)
}
