//! Any network and itself with its units in another order are one network: for exported networks of many kinds and for
//! our own.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;
mod noise;

use mtz::architecture::{self, NetworkSpec as Shape};
use mtz::error::Result;
use mtz::graph::{Graph, ValueId};
use mtz::joint_file;
use mtz::merge::{Align, Recipe, Streams};
use mtz::onnx;
use mtz::op::{Add, BatchNormalization, Conv, Flatten, Gemm, GlobalAveragePool, MaxPool, Op, Relu, Window};
use mtz::run::Runner;
use mtz::sharing::Share;
use mtz::sharing::{Joint, permute_hidden};
use mtz::tensor::{Dim, Tensor};
use mtz::zip::{TaskData, ZipOptions, Zipped, zip};
use noise::noise;
use std::ops::ControlFlow;

fn zipped(a: &Graph, b: &Graph, options: &ZipOptions) -> Result<Zipped> {
    let start =
        Joint::from_networks(vec![Joint::single("a".into(), a.clone())?, Joint::single("b".into(), b.clone())?])?;
    let feed = noise(a, options.fitting.calibration);
    let task = |name: &str| TaskData::new(name, &feed);
    zip(start, &[task("a"), task("b")], options, |_| ControlFlow::Continue(()))
}

fn difference(a: &[Tensor], b: &[Tensor]) -> f32 {
    let data = |t: &[Tensor]| t.iter().flat_map(|t| t.data().to_vec()).collect::<Vec<f32>>();
    let (a, b) = (data(a), data(b));
    let scale = a.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
    a.iter().zip(&b).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / scale
}

/// Zips a network with its own permutation; says how far outputs moved and which part of the parameters is left of two
/// networks.
fn with_itself(name: &str, graph: &Graph, recipe: Recipe, streams: Streams) -> (f32, f64) {
    let other = permute_hidden(graph, 3).unwrap();
    let options = ZipOptions::new(recipe).with(|o| {
        o.fitting.calibration = 24;
        o.fitting.shift = 0;
        o.retraining.iterations = 0;
        o.sharing.streams = streams;
        o.fitting.ridge = 1e-6;
    });
    let joint = zipped(graph, &other, &options).unwrap_or_else(|e| panic!("{name}: {e}")).joint;
    let x = [noise(graph, 4).batch(&[0, 1, 2, 3]).unwrap()];
    let bytes = onnx::to_bytes(&joint_file::to_graph(&joint, false).unwrap()).unwrap();
    let back = joint_file::from_graph(&onnx::parse(&bytes).unwrap()).unwrap().unwrap();
    let expected = Runner::new(graph).run(&x).unwrap();
    let moved = back.members.iter().map(|m| difference(&expected, &Runner::new(&m.graph).run(&x).unwrap()));
    (moved.fold(0.0, f32::max), back.parameters().0 as f64 / (2 * graph.parameters()) as f64)
}

const WAYS: [(Recipe, Streams); 3] =
    [(Recipe::Paper, Streams::Last), (Recipe::Best, Streams::First), (Recipe::Best, Streams::One)];

fn check(name: &str, graph: &Graph) {
    for (recipe, streams) in WAYS {
        let (moved, size) = with_itself(name, graph, recipe, streams);
        // Next to nothing is shared where heads, depthwise kernels and normalisations are most of a network; but
        // something is.
        assert!(size < 0.87, "{name}: {size} of the parameters are left");
        assert!(moved < 1e-3, "{name} {recipe:?} {streams:?}: outputs moved by {moved}");
    }
}

#[test]
fn every_exported_network_finds_itself() {
    let mut seen = 0;
    for case in cases::cases("networks") {
        let graph = case.graph();
        if graph.inputs().len() == 1 && graph.fixed_batch().is_none() {
            check(&case.name, &graph);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn our_own_networks_find_themselves() {
    for (name, width) in [
        ("resnet-20", 0.25),
        ("resnet-20-v2", 0.25),
        ("resnet-28", 0.0625),
        ("vgg-11", 0.0625),
        ("mobilenet-v2", 0.125),
        ("densenet-22", 0.34),
    ] {
        let shape = Shape { input: vec![3, 32, 32], outputs: 5, mean: vec![], std: vec![] };
        check(name, &architecture::build(name, &shape, width, 1).unwrap());
    }
}

/// A small Xception (Chollet 2017): separable convolutions without an activation inside, pooled residual blocks with a
/// strided shortcut, plain ones with none.
struct Xception {
    graph: Graph,
    weights: u64,
}

impl Xception {
    fn build() -> Graph {
        let mut graph = Graph::new("xception");
        let dims = [Dim::Batch(1)].into_iter().chain([3, 16, 16].map(Dim::Fixed)).collect();
        let x = graph.add_input("x", mtz::tensor::Shape::new(dims).unwrap());
        let mut b = Self { graph, weights: 0 };
        let x = b.conv(x, (3, 8), (3, 2), 1);
        let x = b.norm(x, 8);
        let shortcut = b.conv(x, (8, 12), (1, 2), 1);
        let shortcut = b.norm(shortcut, 12);
        let inside = b.separable(x, (8, 12));
        let inside = b.separable(inside, (12, 12));
        let pooled = b.add(MaxPool { windows: window(3, 2), ceil: false }, vec![inside]);
        let stream = b.add(Add, vec![pooled, shortcut]);
        let inside = (0..3).fold(stream, |x, _| b.separable(x, (12, 12)));
        let stream = b.add(Add, vec![inside, stream]);
        let last = b.separable(stream, (12, 20));
        let last = b.add(Relu, vec![last]);
        let pooled = b.add(GlobalAveragePool, vec![last]);
        let flat = b.add(Flatten { axis: 1 }, vec![pooled]);
        let (weight, bias) = (b.weight(&[20, 5]), b.weight(&[5]));
        let y = b.add(Gemm::PLAIN, vec![flat, weight, bias]);
        b.graph.add_output(y);
        b.graph
    }

    fn weight(&mut self, shape: &[usize]) -> ValueId {
        self.weights += 1;
        let count: usize = shape.iter().product();
        let scale = (2.0 / shape.iter().skip(1).product::<usize>() as f32).sqrt();
        let data = (0..count as u64).map(|i| scale * mtz::random::normal(self.weights, i)).collect();
        self.graph.add_constant(format!("w{}", self.weights), Tensor::new(shape.to_vec(), data).unwrap()).unwrap()
    }

    fn add(&mut self, op: impl Into<Op>, inputs: Vec<ValueId>) -> ValueId {
        let name = format!("n{}", self.graph.nodes().len());
        self.graph.add_node(name.clone(), op, inputs.into_iter().map(Some).collect(), name + ".output").unwrap()
    }

    fn conv(
        &mut self,
        x: ValueId,
        (from, to): (usize, usize),
        (size, stride): (usize, usize),
        groups: usize,
    ) -> ValueId {
        let weight = self.weight(&[to, from / groups, size, size]);
        self.add(Conv { windows: window(size, stride), groups }, vec![x, weight])
    }

    fn norm(&mut self, x: ValueId, channels: usize) -> ValueId {
        let [scale, mean, bias] = [0.3, 0.1, 0.2].map(|by| {
            self.weights += 1;
            let data = (0..channels as u64)
                .map(|i| by * mtz::random::normal(self.weights, i) + if by > 0.25 { 1.0 } else { 0.0 });
            let data = Tensor::new(vec![channels], data.collect()).unwrap();
            self.graph.add_constant(format!("w{}", self.weights), data).unwrap()
        });
        self.weights += 1;
        let ones = Tensor::new(vec![channels], vec![1.5; channels]).unwrap();
        let variance = self.graph.add_constant(format!("w{}", self.weights), ones).unwrap();
        self.add(BatchNormalization { epsilon: 1e-3, momentum: 0.9 }, vec![x, scale, bias, mean, variance])
    }

    fn separable(&mut self, x: ValueId, (from, to): (usize, usize)) -> ValueId {
        let x = self.add(Relu, vec![x]);
        let x = self.conv(x, (from, from), (3, 1), from);
        let x = self.conv(x, (from, to), (1, 1), 1);
        self.norm(x, to)
    }
}

fn window(size: usize, stride: usize) -> Vec<Window> {
    vec![Window { size, stride, dilation: 1, before: size / 2, after: size / 2 }; 2]
}

#[test]
fn a_network_of_separable_convolutions_finds_itself() {
    check("xception", &Xception::build());
}

/// Half of the filters shared: the file holds what the model counts, gives back the same model, and weights from units
/// that are only aligned are stored once too.
#[test]
fn aligned_inputs_save_more() {
    let shape = Shape { input: vec![3, 16, 16], outputs: 5, mean: vec![], std: vec![] };
    let network = |seed| architecture::build("resnet-20", &shape, 0.25, seed).unwrap();
    let (a, b) = (network(1), network(2));
    let mut sizes = Vec::new();
    for align in [Align::Shared, Align::All] {
        for streams in [Streams::Last, Streams::First, Streams::One] {
            let share = Share::Fraction(0.5);
            let options = ZipOptions::new(Recipe::Best).with(|o| {
                o.sharing.share = share;
                o.sharing.align = Some(align);
                o.sharing.streams = streams;
                o.fitting.calibration = 16;
                o.retraining.iterations = 0;
            });
            let joint = zipped(&a, &b, &options).unwrap().joint;
            let graph = joint_file::to_graph(&joint, false).unwrap();
            let stored: usize = graph.values().iter().filter_map(|v| v.constant.as_ref()).map(|t| t.data().len()).sum();
            let (parameters, shared) = joint.parameters();
            assert_eq!(stored, parameters, "{align:?} {streams:?}");
            assert!(shared > 0 && parameters + shared == a.parameters() + b.parameters(), "{align:?} {streams:?}");
            let back =
                joint_file::from_graph(&onnx::parse(&onnx::to_bytes(&graph).unwrap()).unwrap()).unwrap().unwrap();
            assert_eq!(back.parameters(), joint.parameters());
            sizes.push(parameters);
        }
    }
    assert!(sizes[..3].iter().max() > sizes[3..].iter().max(), "{sizes:?}");
}
