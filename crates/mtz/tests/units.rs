//! Hidden units can be reordered in any network without changing what it computes.
#![allow(clippy::unwrap_used)]

use mtz::architecture::{self, NetworkSpec};
use mtz::random;
use mtz::run::Runner;
use mtz::sharing::permute_hidden;
use mtz::tensor::Tensor;

fn outputs(graph: &mtz::graph::Graph) -> Vec<Tensor> {
    let graph = graph.with_open_batch();
    let inputs = graph.inputs().iter().map(|id| {
        let shape = graph[*id].shape.at(2);
        let data = (0..shape.iter().product::<usize>() as u64).map(|i| random::normal(7, i)).collect();
        Tensor::new(shape, data).unwrap()
    });
    let inputs: Vec<Tensor> = inputs.collect();
    Runner::new(&graph).run(&inputs).unwrap()
}

/// Outputs stay equal; the share of weights that moved.
fn check(name: &str, graph: &mtz::graph::Graph) -> f64 {
    let permuted = permute_hidden(graph, 3).unwrap();
    for (a, b) in outputs(graph).iter().zip(outputs(&permuted)) {
        let scale = a.data().iter().fold(1e-3f32, |m, x| m.max(x.abs()));
        let worst = a.data().iter().zip(b.data()).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(worst <= 2e-4 * scale, "{name}: outputs differ by {worst} of {scale}");
    }
    let (mut moved, mut all) = (0usize, 0usize);
    for (a, b) in graph.values().iter().zip(permuted.values()) {
        if let (Some(a), Some(b)) = (&a.constant, &b.constant) {
            moved += a.data().iter().zip(b.data()).filter(|(a, b)| a != b).count();
            all += a.data().len();
        }
    }
    moved as f64 / all as f64
}

#[test]
fn architectures_keep_their_outputs() {
    for architecture in architecture::ALL {
        let channels = if architecture.name.starts_with("lenet") { 1 } else { 3 };
        let side = if channels == 1 { 28 } else { 32 };
        let task = NetworkSpec { input: vec![channels, side, side], outputs: 10, mean: vec![0.5], std: vec![0.25] };
        let graph = architecture::build(architecture.name, &task, 0.5, 1).unwrap();
        let moved = check(architecture.name, &graph);
        assert!(moved > 0.8, "{}: only {moved:.2} of the weights moved", architecture.name);
    }
}
