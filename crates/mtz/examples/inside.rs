//! Looks into a network: layers, units, and the values of any layer on random samples: `cargo run --release --example
//! inside -- MODEL.onnx`
#![allow(clippy::print_stdout)]

use mtz::error::{Error, Result};
use mtz::run::Runner;
use mtz::sharing::Layer;
use mtz::tensor::Tensor;
use mtz::{onnx, random, simplify};
use std::path::Path;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| Error::usage("MODEL.onnx is needed"))?;
    let graph = simplify::for_zipping(&onnx::read(Path::new(&path))?.with_open_batch())?;
    let layers = Layer::all(&graph)?;
    let Some(&input) = graph.inputs().first() else { return Err(Error::model("the network has no input")) };
    let shape = graph[input].shape.at(4);
    let noise = (0..shape.iter().product::<usize>()).map(|i| random::normal(0, i as u64)).collect();
    // Any value can be tapped, here the answer of every layer before its activation.
    let taps: Vec<_> = layers.iter().map(Layer::answer).collect();
    let answers = Runner::with_taps(&graph, &taps).run(&[Tensor::new(shape, noise)?])?;
    for (layer, answer) in layers.iter().zip(&answers) {
        let mean = answer.data().iter().sum::<f32>() / answer.data().len().max(1) as f32;
        println!("{}: {} units with {} inputs each, mean answer {mean:.4}", layer.name, layer.units, layer.columns());
    }
    Ok(())
}
