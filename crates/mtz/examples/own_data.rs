//! Zips two networks on samples from a closure: `cargo run --release --example own_data -- A.onnx B.onnx OUT.onnx`
//!
//! Here the samples are noise, so that the example needs no files; a camera, a database or a simulator goes in the same
//! place.
#![allow(clippy::print_stdout)]

use mtz::{Error, Network, Result, Samples, Zipper, random};
use std::ops::ControlFlow;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, second, output] = arguments.as_slice() else {
        return Err(Error::usage("A.onnx B.onnx OUT.onnx are needed"));
    };
    let task = |path: &String| -> Result<(Network, Samples)> {
        let network = Network::open(path)?;
        let graph = network.graph();
        let input = graph.inputs().first().ok_or_else(|| Error::model("the network has no input"))?;
        let shape: Vec<usize> = graph[*input].shape.at(1).into_iter().skip(1).collect();
        // Called from several threads, and again for the same sample: it must give the same numbers each time.
        let samples = Samples::from_fn(2000, &shape, |index, sample| {
            sample.iter_mut().zip(0..).for_each(|(x, i)| *x = random::normal(index as u64, i));
            Ok(())
        });
        Ok((network, samples))
    };
    let ((a, a_samples), (b, b_samples)) = (task(first)?, task(second)?);
    let result =
        Zipper::new().task("first", a, a_samples).task("second", b, b_samples).run(|_| ControlFlow::Continue(()))?;
    // Without labels, agreement with the original networks is what is measured.
    for (name, task) in result.report.tasks.iter() {
        println!("{name}: {:?} % of the answers are the original's", task.agreement_after);
    }
    result.joint.save(output)
}
