//! `mtz demo`: the main job on what ships inside the program.

use crate::args::{Common, Demo};
use crate::bundled;
use crate::outputs;
use crate::run_report::{Ending, facts, report, show_result};
use crate::terminal;
use crate::zip::run_with_bar;
use mtz::data::{Feed, Normalisation, Part};
use mtz::error::{Error, Result};
use mtz::joint_file;
use mtz::merge::Recipe;
use mtz::report::MeasuredOn;
use mtz::sharing::Joint;
use mtz::zip::{Sources, TaskData, ZipOptions};
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: &Demo, common: &Common) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.output).map_err(|e| Error::io(&args.output, &e))?;
    let output = args.output.join("joint.onnx");
    let page = args.output.join("report.html");
    outputs::check(&output, args.force, &[])?;
    outputs::check(&page, args.force, &[])?;
    let mut parts = Vec::new();
    for (name, bytes) in bundled::MODELS {
        parts.push(Joint::single(name.to_owned(), mtz::onnx::parse(bytes)?)?);
    }
    let start = Joint::from_networks(parts)?;
    let Some(first) = start.members.first() else { return Err(Error::model("nothing to zip")) };
    let feed = |part| Feed::new(bundled::mnist(part)?, &first.graph, Normalisation::default());
    let (train, test) = (feed(Part::Train)?, feed(Part::Test)?);
    let tasks: Vec<TaskData> = start.members.iter().map(|m| TaskData::whole(&m.name, &train, &test)).collect();
    let options = ZipOptions::new(Recipe::Best).with(|o| o.seed = common.seed);
    if !common.json {
        terminal::result(
            "Two LeNet-300-100, trained on MNIST from different starts, become one: all hidden units shared.\n",
        );
    }
    let begin = Instant::now();
    let zipped = run_with_bar(start, &tasks, &options, Sources::default(), common, "")?;
    let seconds = begin.elapsed().as_secs_f64();
    let graph = joint_file::to_graph(&zipped.joint, false)?;
    let some: Vec<usize> = (0..8).collect();
    let samples = vec![test.batch(&some)?; tasks.len()];
    mtz::onnx::write_checked(&graph, &output, |file| joint_file::check(file, &zipped.joint, &samples, false))?;
    let mut facts = facts(&output, common);
    facts.bytes_before = bundled::MODELS.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    facts.checked = true;
    facts.parts = vec![MeasuredOn::Test; tasks.len()];
    facts.seconds = seconds;
    let ending = Ending { data: "--data data/mnist".to_owned(), page: Some(&page) };
    show_result(&report(&zipped, &tasks, facts), &ending, common)?;
    Ok(ExitCode::SUCCESS)
}
