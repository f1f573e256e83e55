//! Each simplification pass on small graphs made for it: same outputs, and done exactly where it is allowed.
#![allow(clippy::unwrap_used)]

use mtz::graph::{Graph, ValueId};
use mtz::op::*;
use mtz::run::Runner;
use mtz::simplify;
use mtz::tensor::{Dim, Shape, Tensor};

/// Numbers that repeat nowhere nearby.
fn tensor(shape: &[usize], seed: usize) -> Tensor {
    let count = shape.iter().product();
    let data = (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    Tensor::new(shape.to_vec(), data).unwrap()
}

struct Build(Graph, usize);

impl Build {
    fn new(sample: &[usize]) -> (Self, ValueId) {
        let mut graph = Graph::new("test");
        let dims = [Dim::Batch(1)].into_iter().chain(sample.iter().map(|&n| Dim::Fixed(n))).collect();
        let x = graph.add_input("x", Shape::new(dims).unwrap());
        (Self(graph, 0), x)
    }

    fn weight(&mut self, shape: &[usize]) -> ValueId {
        self.1 += 1;
        self.0.add_constant(format!("w{}", self.1), tensor(shape, self.1)).unwrap()
    }

    /// Positive numbers, for variances.
    fn positive(&mut self, len: usize) -> ValueId {
        self.1 += 1;
        let data = (0..len).map(|i| 0.5 + i as f32 / len as f32).collect();
        self.0.add_constant(format!("w{}", self.1), Tensor::new(vec![len], data).unwrap()).unwrap()
    }

    fn node(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.1 += 1;
        let inputs = inputs.iter().map(|&id| Some(id)).collect();
        self.0.add_node(format!("n{}", self.1), op, inputs, format!("v{}", self.1)).unwrap()
    }

    fn norm(&mut self, x: ValueId, channels: usize) -> ValueId {
        let inputs =
            [x, self.weight(&[channels]), self.weight(&[channels]), self.weight(&[channels]), self.positive(channels)];
        self.node(BatchNormalization { epsilon: 1e-3, momentum: 0.9 }, &inputs)
    }

    fn output(mut self, id: ValueId) -> Graph {
        self.0.add_output(id);
        self.0
    }
}

/// Applies a pass, checks that outputs and their names stay, and returns the operators left.
fn check(graph: &Graph, pass: fn(&Graph) -> mtz::error::Result<Graph>) -> Vec<&'static str> {
    let simple = pass(graph).unwrap();
    let input = tensor(&graph[graph.inputs()[0]].shape.at(3), 99); // 3 samples, unless the graph fixes their number
    let before = Runner::new(graph).run(std::slice::from_ref(&input)).unwrap();
    let after = Runner::new(&simple).run(&[input]).unwrap();
    for (a, b) in before.iter().zip(&after) {
        assert_eq!(a.shape(), b.shape());
        for (a, b) in a.data().iter().zip(b.data()) {
            assert!((a - b).abs() <= 1e-5 + 1e-5 * a.abs(), "{a} became {b}");
        }
    }
    let names = |g: &Graph| g.outputs().iter().map(|id| g[*id].name.clone()).collect::<Vec<_>>();
    assert_eq!(names(graph), names(&simple));
    simple.nodes().iter().map(|n| n.op.name()).collect()
}

#[test]
fn identities_vanish_and_outputs_keep_their_names() {
    let (mut b, x) = Build::new(&[4]);
    let a = b.node(Identity, &[x]);
    let r = b.node(Relu, &[a]);
    let d = b.node(Dropout { ratio: 0.5 }, &[r]);
    let y = b.node(Identity, &[d]);
    assert_eq!(check(&b.output(y), simplify::remove_identities), ["Relu"]);
}

#[test]
fn an_output_that_is_the_input_stays_a_node() {
    let (mut b, x) = Build::new(&[4]);
    let y = b.node(Identity, &[x]);
    assert_eq!(check(&b.output(y), simplify::remove_identities), ["Identity"]);
}

#[test]
fn two_names_for_one_output_both_stay() {
    let (mut b, x) = Build::new(&[4]);
    let r = b.node(Relu, &[x]);
    let y = b.node(Identity, &[r]);
    b.0.add_output(r);
    assert_eq!(check(&b.output(y), simplify::remove_identities), ["Relu", "Identity"]);
}

#[test]
fn dead_nodes_and_weights_vanish() {
    let (mut b, x) = Build::new(&[4]);
    let w = b.weight(&[4]);
    b.node(Add, &[x, w]);
    let y = b.node(Relu, &[x]);
    let graph = b.output(y);
    assert_eq!(check(&graph, simplify::remove_dead_code), ["Relu"]);
    assert_eq!(simplify::remove_dead_code(&graph).unwrap().values().len(), 2);
}

#[test]
fn constants_are_computed_once() {
    let (mut b, x) = Build::new(&[6]);
    let w = b.weight(&[5, 6]);
    let t = b.node(Transpose { permutation: vec![1, 0] }, &[w]);
    let s = b.weight(&[1]);
    let m = b.node(Mul, &[t, s]);
    let y = b.node(MatMul, &[x, m]);
    assert_eq!(check(&b.output(y), simplify::fold_constants), ["MatMul"]);
}

#[test]
fn matmul_and_add_become_gemm() {
    for bias_first in [false, true] {
        for bias_shape in [&[5][..], &[1, 5], &[1], &[]] {
            let (mut b, x) = Build::new(&[6]);
            let (w, c) = (b.weight(&[6, 5]), b.weight(bias_shape));
            let m = b.node(MatMul, &[x, w]);
            let y = b.node(Add, &if bias_first { [c, m] } else { [m, c] });
            assert_eq!(check(&b.output(y), simplify::fuse_matmul_add), ["Gemm"], "{bias_shape:?}");
        }
    }
}

#[test]
fn matmul_that_others_read_stays() {
    let (mut b, x) = Build::new(&[6]);
    let (w, c) = (b.weight(&[6, 5]), b.weight(&[5]));
    let m = b.node(MatMul, &[x, w]);
    let a = b.node(Add, &[m, c]);
    let y = b.node(Mul, &[a, m]);
    assert_eq!(check(&b.output(y), simplify::fuse_matmul_add), ["MatMul", "Add", "Mul"]);
}

#[test]
fn matmul_without_a_bias_is_a_layer_to_zip() {
    let (mut b, x) = Build::new(&[6]);
    let w = b.weight(&[6, 4]);
    let y = b.node(MatMul, &[x, w]);
    assert_eq!(check(&b.output(y), simplify::for_zipping), ["Gemm"]);
}

#[test]
fn matmul_of_tokens_or_with_an_enlarging_bias_stays() {
    let (mut b, x) = Build::new(&[2, 6]);
    let (w, c) = (b.weight(&[6, 5]), b.weight(&[5]));
    let m = b.node(MatMul, &[x, w]);
    let y = b.node(Add, &[m, c]);
    assert_eq!(check(&b.output(y), simplify::fuse_matmul_add), ["MatMul", "Add"]);
    let (mut b, x) = Build::new(&[6]);
    let (w, c) = (b.weight(&[6, 5]), b.weight(&[2, 1, 5]));
    let m = b.node(MatMul, &[x, w]);
    let y = b.node(Add, &[m, c]);
    assert_eq!(check(&b.output(y), simplify::fuse_matmul_add), ["MatMul", "Add"]);
}

fn conv(groups: usize) -> Conv {
    Conv { windows: vec![Window { size: 3, stride: 1, dilation: 1, before: 1, after: 1 }; 2], groups }
}

#[test]
fn batch_norm_behind_convolutions_is_folded() {
    for (groups, biased) in [(1, true), (1, false), (2, true), (4, false)] {
        let (mut b, x) = Build::new(&[4, 5, 5]);
        let mut inputs = vec![x, b.weight(&[8, 4 / groups, 3, 3])];
        if biased {
            inputs.push(b.weight(&[8]));
        }
        let c = b.node(conv(groups), &inputs);
        let y = b.norm(c, 8);
        assert_eq!(check(&b.output(y), simplify::fold_batch_normalization), ["Conv"]);
    }
}

#[test]
fn batch_norm_behind_gemm_is_folded() {
    for transpose_b in [false, true] {
        for c_shape in [None, Some(&[5][..]), Some(&[1, 5])] {
            let (mut b, x) = Build::new(&[6]);
            let mut inputs = vec![x, b.weight(if transpose_b { &[5, 6] } else { &[6, 5] })];
            inputs.extend(c_shape.map(|s| b.weight(s)));
            let g = b.node(Gemm { alpha: 0.5, beta: -2.0, transpose_a: false, transpose_b }, &inputs);
            let y = b.norm(g, 5);
            assert_eq!(check(&b.output(y), simplify::fold_batch_normalization), ["Gemm"], "{c_shape:?}");
        }
    }
}

#[test]
fn batch_norm_stays_where_folding_would_change_something_else() {
    // Somebody reads the convolution too.
    let (mut b, x) = Build::new(&[4, 5, 5]);
    let w = b.weight(&[4, 4, 3, 3]);
    let c = b.node(conv(1), &[x, w]);
    let n = b.norm(c, 4);
    let y = b.node(Add, &[n, c]);
    assert_eq!(check(&b.output(y), simplify::fold_batch_normalization), ["Conv", "BatchNormalization", "Add"]);
    // In front of a convolution, padding would see the offset.
    let (mut b, x) = Build::new(&[4, 5, 5]);
    let n = b.norm(x, 4);
    let w = b.weight(&[4, 4, 3, 3]);
    let y = b.node(conv(1), &[n, w]);
    assert_eq!(check(&b.output(y), simplify::fold_batch_normalization), ["BatchNormalization", "Conv"]);
    // A Gemm whose C is a single number has no bias per output.
    let (mut b, x) = Build::new(&[6]);
    let (w, c) = (b.weight(&[6, 5]), b.weight(&[1]));
    let g = b.node(Gemm::PLAIN, &[x, w, c]);
    let y = b.norm(g, 5);
    assert_eq!(check(&b.output(y), simplify::fold_batch_normalization), ["Gemm", "BatchNormalization"]);
    // A column is one number per sample, even if there are as many samples as outputs.
    let mut graph = Graph::new("column");
    let x = graph.add_input("x", Shape::fixed(&[4, 5]).unwrap());
    let mut b = Build(graph, 0);
    let (w, c) = (b.weight(&[5, 4]), b.weight(&[4, 1]));
    let g = b.node(Gemm::PLAIN, &[x, w, c]);
    let y = b.norm(g, 4);
    assert_eq!(check(&b.output(y), simplify::fold_batch_normalization), ["Gemm", "BatchNormalization"]);
}

/// Opening the batch is only allowed where each sample stays alone.
#[test]
fn a_batch_that_is_moved_or_mixed_stays_fixed() {
    let fixed = |shape: &[usize]| {
        let mut graph = Graph::new("fixed");
        let x = graph.add_input("x", Shape::fixed(shape).unwrap());
        (Build(graph, 0), x)
    };
    // Sequence first: the 1 that Reshape sees at the front is not the batch.
    let (mut b, x) = fixed(&[1, 3, 4]);
    let t = b.node(Transpose { permutation: vec![1, 0, 2] }, &[x]);
    let u = b.node(Unsqueeze { axes: vec![0] }, &[t]);
    let y = b.node(Reshape { target: vec![Some(1), Some(12)] }, &[u]);
    assert_eq!(b.output(y).with_open_batch().fixed_batch(), Some(1));
    // x xᵀ has two batch axes.
    let (mut b, x) = fixed(&[1, 4]);
    let y = b.node(Gemm { transpose_b: true, ..Gemm::PLAIN }, &[x, x]);
    assert_eq!(b.output(y).with_open_batch().fixed_batch(), Some(1));
    // And one that can be opened, for contrast.
    let (mut b, x) = fixed(&[1, 3, 4]);
    let y = b.node(Reshape { target: vec![Some(1), Some(12)] }, &[x]);
    assert_eq!(b.output(y).with_open_batch().fixed_batch(), None);
}

/// Two layers that a file lets share a weight or a bias are zipped one after the other, each with its own.
#[test]
fn layers_have_weights_of_their_own() {
    let (mut b, x) = Build::new(&[6]);
    let (w, c) = (b.weight(&[6, 6]), b.weight(&[6]));
    let first = b.node(Gemm::PLAIN, &[x, w, c]);
    let hidden = b.node(Relu, &[first]);
    let y = b.node(Gemm::PLAIN, &[hidden, w, c]);
    let graph = b.output(y);
    assert_eq!(check(&graph, simplify::for_zipping), ["Gemm", "Relu", "Gemm"]);
    let own = simplify::for_zipping(&graph).unwrap();
    let weights: std::collections::BTreeSet<_> =
        own.nodes().iter().flat_map(|n| n.inputs.iter().flatten()).filter(|id| own[**id].constant.is_some()).collect();
    assert_eq!((weights.len(), own.parameters()), (4, 2 * graph.parameters()));
}

/// What a layer shares with a node that is none stays that node's: zipping changes the layer's own.
#[test]
fn layers_share_nothing_with_other_nodes() {
    for bias_first in [true, false] {
        let (mut b, x) = Build::new(&[6]);
        let (w, c) = (b.weight(&[6, 6]), b.weight(&[6]));
        let moved = if bias_first { b.node(Mul, &[x, c]) } else { x };
        let layer = b.node(Gemm::PLAIN, &[moved, w, c]);
        let hidden = b.node(Relu, &[layer]);
        let y = if bias_first { hidden } else { b.node(Mul, &[hidden, c]) };
        let own = simplify::for_zipping(&b.output(y)).unwrap();
        let readers = |name: &str| own.nodes().iter().find(|n| n.op.name() == name).unwrap().inputs.clone();
        assert_ne!(readers("Gemm")[2], readers("Mul")[1]);
    }
}

/// One number that is added to all units is no bias of the layer, which stays as it is.
#[test]
fn a_bias_of_one_number_is_not_a_layers() {
    for shape in [&[1][..], &[1, 1], &[]] {
        let (mut b, x) = Build::new(&[6]);
        let (w, c, v) = (b.weight(&[6, 4]), b.weight(shape), b.weight(&[4, 3]));
        let product = b.node(MatMul, &[x, w]);
        let sum = b.node(Add, &[product, c]);
        let hidden = b.node(Relu, &[sum]);
        let y = b.node(MatMul, &[hidden, v]);
        let joint = mtz::sharing::Joint::single("a".into(), b.output(y)).unwrap();
        let member = &joint.members[0];
        assert_eq!(
            member.layers.iter().map(|l| l.folded(&member.graph).len()).collect::<Vec<_>>(),
            [3 * 5],
            "{shape:?}"
        );
    }
}
