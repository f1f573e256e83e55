//! Zips two networks: `cargo run --release --example zip -- A.onnx B.onnx DATA OUT.onnx`
//!
//! The bundled ones: `… -- models/lenet-300-100-a.onnx models/lenet-300-100-b.onnx data/mnist joint.onnx`
#![allow(clippy::print_stdout)]

use mtz::{Error, Network, Result, Samples, Share, Zipper};
use std::ops::ControlFlow;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, second, data, output] = arguments.as_slice() else {
        return Err(Error::usage("A.onnx B.onnx DATA OUT.onnx are needed"));
    };
    let result = Zipper::new()
        .task("first", Network::open(first)?, Samples::open(data)?)
        .task("second", Network::open(second)?, Samples::open(data)?)
        .options(|options| {
            // Three quarters of the units, without retraining.
            options.sharing.share = Share::Fraction(0.75);
            options.retraining.iterations = 0;
        })
        .run(|now| {
            println!("layer {} of {}: {}", now.layer + 1, now.layers, now.stage);
            ControlFlow::Continue(())
        })?;
    for layer in &result.report.layers {
        println!("{}: {} units shared", layer.name, layer.shared);
    }
    for (name, task) in result.report.tasks.iter() {
        println!("{name}: {:?} % of the answers are the original's", task.agreement_after);
    }
    result.joint.save(output)
}
