//! Whole networks from PyTorch, Keras and tf2onnx against onnxruntime.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;

use cases::{Case, cases};
use mtz::graph::Graph;
use mtz::op::Op;
use mtz::run::Runner;
use mtz::tensor::{Dim, Shape, Tensor};
use mtz::{onnx, simplify};

/// The committed networks, and those of full width where the script has made them.
fn networks() -> Vec<Case> {
    let mut all = cases("networks");
    assert!(all.len() > 25, "golden cases are missing: {}", all.len());
    all.extend(cases("big"));
    all
}

#[test]
fn outputs_equal_onnxruntime() {
    for case in networks() {
        case.check(&case.run(&case.graph()), "as read");
    }
}

#[test]
fn hidden_units_can_be_reordered() {
    let (mut moved, mut all) = (0, 0);
    for case in networks() {
        let graph = case.graph();
        let permuted = mtz::sharing::permute_hidden(&graph, 5).unwrap();
        case.check(&case.run(&permuted), "permuted");
        moved += usize::from(permuted != graph);
        all += 1;
    }
    // A network whose channels are all added to its input has none that are free.
    assert!(moved * 10 > all * 9, "units moved in {moved} of {all} networks only");
}

type Pass = fn(&Graph) -> mtz::error::Result<Graph>;

const PASSES: [(&str, Pass); 6] = [
    ("remove_dead_code", simplify::remove_dead_code),
    ("remove_identities", simplify::remove_identities),
    ("fold_constants", simplify::fold_constants),
    ("fuse_matmul_add", simplify::fuse_matmul_add),
    ("fold_batch_normalization", simplify::fold_batch_normalization),
    ("for_inference", simplify::for_inference),
];

#[test]
fn every_pass_keeps_the_outputs() {
    let mut shortened = [0; PASSES.len()];
    for case in networks() {
        let graph = case.graph();
        for ((name, pass), count) in PASSES.iter().zip(&mut shortened) {
            let simpler = pass(&graph).unwrap_or_else(|e| panic!("{}: {name}: {e}", case.name));
            case.check(&case.run(&simpler), name);
            *count += usize::from(simpler.nodes().len() < graph.nodes().len());
        }
    }
    // Exporters leave these for us. Dead code and MatMul + Add they clean up themselves, and small constants are folded
    // while reading: `simplify.rs` tests those passes.
    for ((name, _), count) in PASSES.iter().zip(shortened) {
        let expected = ["remove_identities", "fold_batch_normalization"].contains(name);
        assert!(count > 0 || !expected, "{name} never found anything");
    }
}

#[test]
fn nothing_foldable_is_left() {
    for case in networks() {
        let graph = simplify::for_inference(&case.graph()).unwrap();
        for node in graph.nodes() {
            assert!(!matches!(node.op, Op::Identity(_) | Op::Dropout(_)), "{}: {}", case.name, node.name);
        }
        if case.name.starts_with("resnet18") || case.name.starts_with("vgg11") {
            let left = graph.nodes().iter().any(|n| matches!(n.op, Op::BatchNormalization(_)));
            assert!(!left, "{}: batch norm behind a convolution is left", case.name);
        }
    }
}

#[test]
fn written_and_read_again_is_the_same_graph() {
    for case in networks() {
        let graph = case.graph();
        let again = onnx::read_bytes(onnx::to_bytes(&graph).unwrap().into(), None).unwrap();
        assert!(again == graph, "{}", case.name);
        // Writing is a function of the graph alone.
        assert!(onnx::to_bytes(&again).unwrap() == onnx::to_bytes(&graph).unwrap(), "{}", case.name);
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for case in cases("networks") {
        let graph = simplify::for_inference(&case.graph()).unwrap();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Runner::new(&graph).run(&case.inputs).unwrap())
        };
        assert!(with(1) == with(3), "{}", case.name);
    }
}

#[test]
fn a_fixed_batch_can_be_opened() {
    let mut opened = 0;
    for case in cases("networks").iter().filter(|c| c.graph().fixed_batch().is_some()) {
        let graph = case.graph().with_open_batch();
        assert_eq!(graph[graph.inputs()[0]].shape.dims()[0], Dim::Batch(1), "{}", case.name);
        case.check(&case.run(&graph), "opened");
        // One sample alone gives the first row.
        let size = case.inputs[0].data().len() / case.inputs[0].shape()[0];
        let mut shape = case.inputs[0].shape().to_vec();
        shape[0] = 1;
        let first = Tensor::new(shape, case.inputs[0].data()[..size].to_vec()).unwrap();
        let got = Runner::new(&graph).run(&[first]).unwrap();
        let row = &case.outputs[0].data()[..got[0].data().len()];
        for (a, b) in got[0].data().iter().zip(row) {
            assert!((a - b).abs() <= 1e-5 + 1e-4 * b.abs(), "{}", case.name);
        }
        opened += 1;
    }
    assert!(opened >= 4, "only {opened} networks with a fixed batch");
}

#[test]
fn taps_see_every_value_and_memory_is_bounded() {
    let case = cases("networks").into_iter().find(|c| c.name == "resnet18/script_17").unwrap();
    let graph = case.graph();
    let computed: Vec<_> = graph.nodes().iter().map(|n| n.output).collect();
    let all = Runner::with_taps(&graph, &computed).run(&case.inputs).unwrap();
    let index = computed.iter().position(|id| *id == graph.outputs()[0]).unwrap();
    case.check(&all[index..=index], "tapped");
    for (id, tensor) in computed.iter().zip(&all) {
        assert_eq!(tensor.shape(), graph[*id].shape.at(2), "{}", graph[*id].name);
    }
    // The last value is computed in a buffer that held an image; what is handed out holds the answers only.
    let outputs = Runner::new(&graph).run(&case.inputs).unwrap();
    assert_eq!(outputs[0].shared().capacity(), outputs[0].data().len());
    let error = Runner::new(&graph).memory_limit(1 << 14).run(&case.inputs).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
}

#[test]
fn values_are_freed_at_their_last_use() {
    let mut graph = Graph::new("chain");
    let shape = Shape::new(vec![Dim::Batch(1), Dim::Fixed(1000)]).unwrap();
    let mut value = graph.add_input("x", shape);
    for i in 0..10 {
        value = graph.add_node(format!("relu{i}"), mtz::op::Relu, vec![Some(value)], format!("y{i}")).unwrap();
    }
    graph.add_output(value);
    // At any time only the input and the output of one node.
    assert_eq!(Runner::new(&graph).peak_bytes(3), 2 * 3 * 1000 * 4);
}
