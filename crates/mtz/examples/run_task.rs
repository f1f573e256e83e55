//! Runs a task of a joint model: `cargo run --release --example run_task -- JOINT.onnx TASK`
#![allow(clippy::print_stdout)]

use mtz::tensor::Tensor;
use mtz::{Error, JointModel, Result};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, task] = arguments.as_slice() else { return Err(Error::usage("JOINT.onnx TASK are needed")) };
    let model = JointModel::open(path)?;
    println!("tasks: {}", model.tasks().collect::<Vec<_>>().join(", "));
    let network = model.extract(task)?;
    let graph = network.graph();
    let input = graph.inputs().first().ok_or_else(|| Error::model("the network has no input"))?;
    let shape = graph[*input].shape.at(1);
    let grey = vec![0.5; shape.iter().product()];
    for answer in model.run(task, &[Tensor::new(shape, grey)?])? {
        println!("{:?}: {:?}", answer.shape(), answer.data());
    }
    Ok(())
}
