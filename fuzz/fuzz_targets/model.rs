//! Any bytes as a model: read, simplify, write, look for layers, and run within a memory limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mtz::run::Runner;
use mtz::tensor::Tensor;

fuzz_target!(|bytes: &[u8]| {
    let Ok(graph) = mtz::onnx::read_bytes(bytes.to_vec().into(), None) else { return };
    let graph = graph.with_open_batch();
    let written = mtz::onnx::to_bytes(&graph).expect("what was read can be written");
    let again = mtz::onnx::read_bytes(written.into(), None).expect("what was written can be read");
    // NaN weights are not equal to themselves; everything else must be the same.
    let plain = graph.values().iter().filter_map(|v| v.constant.as_ref()).all(|t| t.data().iter().all(|x| !x.is_nan()));
    assert!(!plain || again == graph || format!("{graph:?}").contains("NaN"));
    let _ = mtz::joint_file::from_graph(&graph);
    if let Ok(joint) = mtz::sharing::Joint::single("any".into(), graph.clone()) {
        joint.members.iter().flat_map(|m| m.layers.iter().map(|l| l.folded(&m.graph))).for_each(drop);
    }
    let Ok(simple) = mtz::simplify::for_inference(&graph) else { return };
    if Runner::new(&simple).peak_bytes(1) > 16 << 20 {
        return;
    }
    let inputs = simple.inputs().iter().map(|id| {
        let shape = simple[*id].shape.at(1);
        let count = shape.iter().product();
        Tensor::new(shape, vec![0.5; count]).expect("the shape holds its product")
    });
    let _ = Runner::new(&simple).run(&inputs.collect::<Vec<_>>());
});
