//! What is wrong with a model is said with its file, its node or tensor, and what to do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;

use cases::cases;
use mtz::architecture::{self, NetworkSpec};
use mtz::data::Archive;
use mtz::error::Error;
use mtz::graph::Graph;
use mtz::onnx;
use mtz::op::{Relu, Squeeze};
use mtz::sharing::Joint;
use mtz::tensor::{Dim, Shape, Tensor};

#[track_caller]
fn says(error: &Error, message: &str, hint: &str) {
    assert!(error.to_string().contains(message), "{message:?} is not in {error}");
    assert!(error.hint_text().unwrap_or_default().contains(hint), "{hint:?} is not in {:?}", error.hint_text());
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    let task = NetworkSpec { input: vec![1, 28, 28], outputs: 10, mean: vec![], std: vec![] };
    let graph = architecture::build("lenet-300-100", &task, 0.1, 0).unwrap();
    for wrong in [f32::NAN, f32::INFINITY] {
        let broken = graph.with_constants(|id, tensor| {
            let mut data = tensor.data().to_vec();
            if graph[id].name == "fc2.weight" {
                data[3..5].fill(wrong);
            }
            Tensor::new(tensor.shape().to_vec(), data)
        });
        let error = Joint::single("a".into(), broken.unwrap()).unwrap_err();
        says(&error, "\"fc2.weight\" has 2 numbers of 300 that are NaN or infinite", "export it again");
    }
}

#[test]
fn a_missing_file_of_weights_is_named() {
    let mut archive = Archive::open(&cases::golden().join("external.npz")).unwrap();
    let model: Vec<u8> = archive.array("model").unwrap().numbers().unwrap().iter().map(|&b| b as u8).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model).unwrap();
    let error = onnx::read(&path).unwrap_err();
    says(
        &error,
        "\"weights/external.bin\": there is no such file",
        "copy weights/external.bin into the model's folder",
    );
    assert!(error.to_string().contains("model.onnx") && error.to_string().contains("tensor \""), "{error}");
}

fn fixed(shape: &[usize]) -> (Graph, mtz::graph::ValueId) {
    let mut graph = Graph::new("fixed");
    let x = graph.add_input("x", Shape::new(shape.iter().map(|&n| Dim::Fixed(n)).collect()).unwrap());
    (graph, x)
}

#[test]
fn a_batch_that_cannot_be_opened_is_refused_before_any_work() {
    let (mut graph, x) = fixed(&[1, 4, 4]);
    let y = graph.add_node("flat", Squeeze { axes: vec![0] }, vec![Some(x)], "y").unwrap();
    graph.add_output(y);
    let error = graph.open_batch().unwrap_err();
    says(&error, "the batch size of input \"x\" is fixed, [1, 4, 4], and cannot be opened", "dynamic_axes");
    assert!(error.to_string().contains("\"flat\""), "{error}");
    says(&Joint::single("a".into(), graph.clone()).unwrap_err(), "cannot be opened", "dynamic_axes");
    assert!(graph.with_open_batch() == graph);
}

#[test]
fn networks_with_a_class_token_and_a_fixed_batch_can_be_zipped() {
    let all: Vec<_> = cases("networks").into_iter().filter(|c| c.name.starts_with("vit/")).collect();
    assert_eq!(all.len(), 3);
    for case in all {
        assert!(case.graph().fixed_batch().is_some(), "{}", case.name);
        let joint = Joint::single("a".into(), case.graph()).unwrap();
        case.check(&case.run(&joint.members[0].graph), "opened");
        let three = [1, 2, 3].map(|_| case.inputs[0].data()).concat();
        let shape = [&[3 * case.inputs[0].shape()[0]], &case.inputs[0].shape()[1..]].concat();
        let got = mtz::run::Runner::new(&joint.members[0].graph).run(&[Tensor::new(shape, three).unwrap()]).unwrap();
        let expected = [1, 2, 3].map(|_| case.outputs[0].data()).concat();
        for (a, b) in got[0].data().iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-5 + 1e-4 * b.abs(), "{}: {a} instead of {b}", case.name);
        }
    }
}

#[test]
fn open_sizes_and_unknown_operators_say_what_to_do() {
    let (mut graph, x) = fixed(&[1, 4]);
    let y = graph.add_node("last", Relu, vec![Some(x)], "y").unwrap();
    graph.add_output(y);
    let mut unknown = onnx::to_bytes(&graph).unwrap();
    // The same length, another operator.
    let at = unknown.windows(4).position(|w| w == b"Relu").unwrap();
    unknown[at..at + 4].copy_from_slice(b"Sinh");
    let error = onnx::parse(&unknown).unwrap_err();
    says(&error, "last (Sinh): operator is not supported", "mtz inspect MODEL lists every node");
    assert!(error.hint_text().unwrap().len() < 100);
    let mut archive = Archive::open(&cases::golden().join("hostile.npz")).unwrap();
    let open = archive.array("open_dimension/model").unwrap().numbers().unwrap();
    let open: Vec<u8> = open.iter().map(|&b| b as u8).collect();
    let error = onnx::parse(&open).unwrap_err();
    says(&error, "x (input): it is [N, width]: dimension 1 is open", "export the model with a fixed size");
}
