//! Zips two networks and writes the joint one: `cargo run --release --example zip -- A.onnx B.onnx DATA OUT.onnx`
//!
//! The bundled ones: `… -- models/lenet-300-100-a.onnx models/lenet-300-100-b.onnx data/mnist joint.onnx`
#![allow(clippy::print_stdout)]

use mtz::data::{Feed, Normalisation, OpenOptions, Part, locate};
use mtz::error::{Error, Result};
use mtz::merge::{Recipe, Share};
use mtz::pipeline::{Plan, Task, zip};
use mtz::plan::Joint;
use mtz::{assemble, onnx};
use std::ops::ControlFlow;
use std::path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, second, data, output] = arguments.as_slice() else {
        return Err(Error::usage("A.onnx B.onnx DATA OUT.onnx are needed"));
    };
    // Every network is a joint model of one task; beside each other they share nothing yet.
    let network = |name: &str, path: &str| Joint::single(name.into(), onnx::read(Path::new(path))?.with_open_batch());
    let start = Joint::beside(vec![network("first", first)?, network("second", second)?])?;
    let parts = locate(Path::new(data))?;
    let mut feeds = Vec::new();
    for member in &start.members {
        let feed = |part| {
            let samples = parts.part(part).open(&OpenOptions::default())?;
            Feed::new(samples, &member.graph, Normalisation::default())
        };
        feeds.push((feed(Part::Train)?, feed(Part::Test)?));
    }
    let tasks: Vec<Task> =
        start.members.iter().zip(&feeds).map(|(m, (train, test))| Task::whole(&m.name, train, test)).collect();
    // What suits these networks, with three quarters of the units shared and no retraining.
    let plan = Plan { share: Share::Fraction(0.75), retrain: 0, ..Plan::suited(Recipe::Best, &start) };
    let zipped = zip(start, &tasks, &plan, |(layer, depth, doing)| {
        println!("layer {} of {depth}: {doing}", layer + 1);
        ControlFlow::Continue(())
    })?;
    for layer in &zipped.layers {
        println!("{}: {} units shared, errors {:?}", layer.name, layer.merged.shared, layer.error_zipped);
    }
    let (parameters, shared) = zipped.joint.parameters();
    println!("{} parameters became {parameters}, {shared} of them shared", zipped.parameters_before);
    onnx::write(&assemble::to_graph(&zipped.joint, false)?, Path::new(output))
}
