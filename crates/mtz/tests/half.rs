//! Models stored as f16 stay f16, and any model can be written as f16. onnxruntime, which judges the golden ones,
//! rounds what layers compute; mtz does not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;

use cases::{Case, cases};
use mtz::architecture::{self, NetworkSpec};
use mtz::graph::Graph;
use mtz::joint_file;
use mtz::onnx;
use mtz::sharing::Joint;
use mtz::simplify;
use mtz::tensor::{Element, Tensor};

fn case(name: &str) -> Case {
    cases("half").into_iter().find(|c| c.name == format!("half/{name}")).unwrap()
}

/// The largest difference, as a part of the largest answer.
fn difference(got: &[Tensor], expected: &[Tensor]) -> f32 {
    let pairs = || got.iter().zip(expected).flat_map(|(a, b)| a.data().iter().zip(b.data()));
    assert!(pairs().all(|(a, b)| a.is_finite() && b.is_finite()), "not all answers are numbers");
    let scale = pairs().fold(1e-6f32, |m, (_, b)| m.max(b.abs()));
    pairs().fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / scale
}

fn border(graph: &Graph) -> Vec<Element> {
    graph.inputs().iter().chain(graph.outputs()).map(|id| graph[*id].element).collect()
}

#[test]
fn golden_models_keep_their_types_and_answers() {
    for (name, element, io) in [
        ("single", Element::F32, Element::F32),
        ("converter", Element::F16, Element::F16),
        ("converter_keep_io_types", Element::F16, Element::F32),
        // Its normalisations are f32: as f16 they would not be what they were.
        ("converter_mixed", Element::F32, Element::F16),
        ("torch_half", Element::F16, Element::F16),
    ] {
        let case = case(name);
        let graph = case.graph();
        assert_eq!((graph.element, border(&graph)), (element, vec![io; 2]), "{name}");
        assert!(
            difference(&case.run(&graph), &case.outputs) < 3e-3,
            "{name}: {}",
            difference(&case.run(&graph), &case.outputs)
        );
        let bytes = onnx::to_bytes(&graph).unwrap();
        let again = onnx::parse(&bytes).unwrap();
        assert!(again == graph, "{name} is another graph when it is read again");
        let (before, now) = (case.model.len(), bytes.len());
        assert!(now < before + before / 10 || name == "converter_mixed", "{name}: {before} bytes became {now}");
    }
}

#[test]
fn passes_keep_the_types() {
    let graph = case("torch_half").graph();
    let passes = [simplify::for_inference(&graph), simplify::for_zipping(&graph), graph.open_batch(), graph.rounded()];
    for graph in passes {
        let graph = graph.unwrap();
        assert_eq!((graph.element, border(&graph)), (Element::F16, vec![Element::F16; 2]));
    }
    let output = graph.outputs()[0];
    assert_eq!(graph.up_to(&[output]).unwrap().element, Element::F16);
}

#[test]
fn any_network_can_be_stored_as_f16() {
    for (name, input) in [("lenet-5", vec![1, 28, 28]), ("mobilenet-v2", vec![3, 32, 32])] {
        let task = NetworkSpec { mean: vec![0.4; input[0]], std: vec![0.3; input[0]], input, outputs: 5 };
        let single = architecture::build(name, &task, 0.25, 1).unwrap();
        let half = single.with_element(Element::F16).rounded().unwrap();
        assert!(half.rounded().unwrap() == half, "rounding twice is rounding once");
        let (long, short) = (onnx::to_bytes(&single).unwrap(), onnx::to_bytes(&half).unwrap());
        let saved = long.len() - short.len();
        // Two casts are added.
        assert!(saved > 2 * single.parameters() - 400, "{name}: {} bytes became {}", long.len(), short.len());
        assert!(onnx::parse(&short).unwrap() == half, "{name}: in memory is what is in the file");
    }
}

#[test]
fn joint_models_are_f16_if_all_tasks_are() {
    let task = NetworkSpec { input: vec![1, 28, 28], outputs: 5, mean: vec![], std: vec![] };
    let network = |seed, element: Element| {
        let mut graph =
            architecture::build("lenet-5", &task, 0.25, seed).unwrap().with_element(element).rounded().unwrap();
        for id in [graph.inputs()[0], graph.outputs()[0]] {
            graph.set_element(id, element);
        }
        graph
    };
    for (a, b) in [(Element::F16, Element::F16), (Element::F16, Element::F32), (Element::F32, Element::F32)] {
        let single = |name: &str, graph| Joint::single(name.into(), graph).unwrap();
        let joint = Joint::from_networks(vec![single("a", network(1, a)), single("b", network(2, b))]).unwrap();
        let all = if a == b { a } else { Element::F32 };
        for common in [false, true] {
            let graph = onnx::parse(&onnx::to_bytes(&joint_file::to_graph(&joint, common).unwrap()).unwrap()).unwrap();
            assert_eq!(graph.element, all);
            let inputs = if common { vec![all] } else { vec![a, b] };
            assert_eq!(border(&graph), [inputs, vec![a, b]].concat(), "{a} and {b}, common input: {common}");
            let back = joint_file::from_graph(&graph).unwrap().unwrap();
            assert!(back.members.iter().all(|m| m.graph.element == all));
            for (member, old) in back.members.iter().zip(&joint.members) {
                let weights =
                    |graph: &Graph| graph.values().iter().filter_map(|v| v.constant.clone()).collect::<Vec<_>>();
                assert!(weights(&member.graph) == weights(&old.graph), "{}", old.name);
            }
        }
        let mut half = joint.clone();
        half.members.iter_mut().for_each(|member| member.graph.element = Element::F16);
        assert!(half.round().unwrap());
        assert_eq!(joint_file::to_graph(&half, false).unwrap().element, Element::F16);
    }
}

#[test]
fn what_f16_cannot_hold_is_named() {
    let task = NetworkSpec { input: vec![4], outputs: 2, mean: vec![], std: vec![] };
    let graph = architecture::build("lenet-300-100", &task, 0.1, 1).unwrap();
    let mut first = true;
    let large = graph.with_constants(|_, tensor| {
        let mut data = tensor.data().to_vec();
        if std::mem::take(&mut first) {
            data[0] = 7e4;
        }
        Tensor::new(tensor.shape().to_vec(), data)
    });
    let large = large.unwrap().with_element(Element::F16);
    for error in [large.rounded().unwrap_err(), onnx::to_bytes(&large).unwrap_err()] {
        assert!(error.to_string().contains("\"fc1.weight\" has 7e4, which is beyond the range of f16"), "{error}");
        assert!(error.hint_text().unwrap().contains("`element` f32"), "{error}");
    }
}
