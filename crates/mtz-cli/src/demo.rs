//! `mtz demo`: the main job on what ships inside the program.

use crate::args::{Common, Demo};
use crate::show;
use crate::zip::{run_with_bar, show_result};
use mtz::assemble;
use mtz::data::{Dataset, Feed, Normalisation};
use mtz::error::{Error, Result};
use mtz::merge::Recipe;
use mtz::pipeline::{Plan, Task};
use mtz::plan::Joint;
use std::process::ExitCode;
use std::time::Instant;

/// The two networks.
const MODELS: [(&str, &[u8]); 2] = [
    ("a", include_bytes!("../../../models/lenet-300-100-a.onnx")),
    ("b", include_bytes!("../../../models/lenet-300-100-b.onnx")),
];

/// MNIST as it is distributed: images and labels to learn from, then those to test on.
const MNIST: [(&[u8], &[u8]); 2] = [
    (
        include_bytes!("../../../data/mnist/train-images-idx3-ubyte.gz"),
        include_bytes!("../../../data/mnist/train-labels-idx1-ubyte.gz"),
    ),
    (
        include_bytes!("../../../data/mnist/t10k-images-idx3-ubyte.gz"),
        include_bytes!("../../../data/mnist/t10k-labels-idx1-ubyte.gz"),
    ),
];

pub fn run(args: &Demo, common: &Common) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.output).map_err(|e| Error::io(&args.output, &e))?;
    let output = args.output.join("joint.onnx");
    show::check_output(&output, true)?;
    let mut parts = Vec::new();
    for (name, bytes) in MODELS {
        parts.push(Joint::single(name.to_owned(), mtz::onnx::parse(bytes)?)?);
    }
    let start = Joint::beside(parts)?;
    let Some(first) = start.members.first() else { return Err(Error::model("nothing to zip")) };
    let feed = |(images, labels): (&[u8], &[u8])| -> Result<Feed> {
        Feed::new(Dataset::from_idx(images, labels)?, &first.graph, Normalisation::default())
    };
    let (train, test) = (feed(MNIST[0])?, feed(MNIST[1])?);
    let tasks: Vec<Task> = start
        .members
        .iter()
        .map(|m| Task {
            name: m.name.clone(),
            train: &train,
            samples: None,
            test: Some((&test, (0..test.len()).collect())),
            weight: 1.0,
        })
        .collect();
    let plan = Plan { seed: common.seed, ..Plan::new(Recipe::Best) };
    if !common.json {
        show::result(
            "Two LeNet-300-100, trained on MNIST from different starts, become one: all hidden units shared.\n",
        );
    }
    let begin = Instant::now();
    let zipped = run_with_bar(start, &tasks, &plan, common)?;
    let seconds = begin.elapsed().as_secs_f64();
    mtz::onnx::write(&assemble::to_graph(&zipped.joint, false)?, &output)?;
    show_result(&zipped, &tasks, seconds, "test", &output, common);
    Ok(ExitCode::SUCCESS)
}
