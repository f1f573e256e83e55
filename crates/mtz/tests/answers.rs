//! Networks that are no classifiers: what their answers are is found out, agreement measures them, and retraining
//! without labels makes them better.
#![allow(clippy::unwrap_used, clippy::panic)]

use mtz::data::{self, Dataset, Feed, Normalisation, OpenOptions, Part};
use mtz::evaluate::Kind;
use mtz::graph::{Graph, ValueId};
use mtz::merge::Recipe;
use mtz::op::{Conv, Flatten, Gemm, MaxPool, Op, Relu, Sigmoid, Softmax, Window};
use mtz::random;
use mtz::sharing::Joint;
use mtz::tensor::{Dim, Shape, Tensor};
use mtz::zip::{TaskData, ZipOptions, Zipped, zip};
use std::ops::ControlFlow;
use std::path::Path;

/// Makes networks with random weights that take digits.
struct Builder {
    graph: Graph,
    seed: u64,
    /// Values and weights so far.
    count: u64,
}

impl Builder {
    fn new(seed: u64) -> (Self, ValueId) {
        let mut graph = Graph::new("answers");
        let dims = [Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(28), Dim::Fixed(28)];
        let x = graph.add_input("x", Shape::new(dims.to_vec()).unwrap());
        (Self { graph, seed, count: 0 }, x)
    }

    fn weight(&mut self, shape: &[usize], of: impl Fn(f32) -> f32) -> Option<ValueId> {
        self.count += 1;
        let numbers = 0..shape.iter().product::<usize>() as u64;
        let data = numbers.map(|i| of(random::normal(1000 * self.seed + self.count, i))).collect();
        let tensor = Tensor::new(shape.to_vec(), data).unwrap();
        Some(self.graph.add_constant(format!("w{}", self.count), tensor).unwrap())
    }

    fn node(&mut self, op: impl Into<Op>, inputs: Vec<Option<ValueId>>) -> ValueId {
        self.count += 1;
        let name = format!("n{}", self.count);
        self.graph.add_node(name.clone(), op, inputs, name + ".out").unwrap()
    }

    /// A fully connected layer whose answers have about this deviation, around an offset.
    fn dense(&mut self, x: ValueId, units: usize, deviation: f32, offset: f32) -> ValueId {
        let inputs = self.graph[x].shape.at(1)[1];
        // A fifth of a digit's pixels is ink.
        let scale = deviation * (if inputs > 500 { 10.0 } else { 2.0 } / inputs as f32).sqrt();
        let weight = self.weight(&[units, inputs], |x| scale * x);
        let bias = self.weight(&[units], |x| offset + 0.1 * deviation * x);
        self.node(Gemm { transpose_b: true, ..Gemm::PLAIN }, vec![Some(x), weight, bias])
    }

    fn conv(&mut self, x: ValueId, units: usize, size: usize) -> ValueId {
        let channels = self.graph[x].shape.at(1)[1];
        let scale = (4.0 / (channels * size * size) as f32).sqrt();
        let weight = self.weight(&[units, channels, size, size], |x| scale * x);
        let bias = self.weight(&[units], |x| 0.1 * x);
        let windows = vec![Window { size, stride: 1, dilation: 1, before: size / 2, after: size / 2 }; 2];
        self.node(Conv { windows, groups: 1 }, vec![Some(x), weight, bias])
    }

    fn relu(&mut self, x: ValueId) -> ValueId {
        self.node(Relu, vec![Some(x)])
    }
}

/// Two hidden layers, and one more for each output: so many numbers, their deviation and their offset.
fn regressor(seed: u64, outputs: &[(usize, f32, f32)]) -> (Builder, Vec<ValueId>) {
    let (mut b, x) = Builder::new(seed);
    let mut x = b.node(Flatten { axis: 1 }, vec![Some(x)]);
    for units in [40, 30] {
        x = b.dense(x, units, 1.0, 0.0);
        x = b.relu(x);
    }
    let outputs = outputs.iter().map(|&(units, deviation, offset)| b.dense(x, units, deviation, offset)).collect();
    (b, outputs)
}

fn one_output(seed: u64, output: (usize, f32, f32)) -> Graph {
    let (mut b, outputs) = regressor(seed, &[output]);
    b.graph.add_output(outputs[0]);
    b.graph
}

/// One class for each of 14×14 positions.
fn segmentation(seed: u64) -> Graph {
    let (mut b, x) = Builder::new(seed);
    let windows = vec![Window { size: 2, stride: 2, dilation: 1, before: 0, after: 0 }; 2];
    let mut x = b.node(MaxPool { windows, ceil: false }, vec![Some(x)]);
    for units in [8, 8] {
        x = b.conv(x, units, 3);
        x = b.relu(x);
    }
    let logits = b.conv(x, 3, 1);
    let output = b.node(Softmax { axis: 1 }, vec![Some(logits)]);
    b.graph.add_output(output);
    b.graph
}

/// Digits without their labels.
fn unlabelled(graph: &Graph) -> Feed {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist");
    let data = data::locate(&folder).unwrap().part(Part::Test).open(&OpenOptions::default()).unwrap();
    Feed::new(Dataset { labels: None, ..data }, graph, Normalisation::default()).unwrap()
}

/// Zips two networks, everything shared, as the defaults have it but with fewer samples.
fn zipped(graphs: [Graph; 2], change: impl Fn(&mut ZipOptions)) -> Zipped {
    let feed = unlabelled(&graphs[0]);
    let [a, b] = graphs.map(|graph| graph.with_open_batch());
    let parts = vec![Joint::single("a".into(), a).unwrap(), Joint::single("b".into(), b).unwrap()];
    let start = Joint::from_networks(parts).unwrap();
    let mut options = ZipOptions::suited(Recipe::Best, &start).with(|o| o.fitting.calibration = 3000);
    change(&mut options);
    let task = |name| TaskData {
        samples: Some((0..4000).collect()),
        test: Some((&feed, (9000..9500).collect())),
        ..TaskData::new(name, &feed)
    };
    zip(start, &["a", "b"].map(task), &options, |_| ControlFlow::Continue(())).unwrap()
}

/// Retraining must bring every task nearer to its original.
fn check(graphs: [Graph; 2], kind: Kind) -> Zipped {
    check_with(graphs, kind, |_| {})
}

fn check_with(graphs: [Graph; 2], kind: Kind, change: impl Fn(&mut ZipOptions)) -> Zipped {
    let zipped = zipped(graphs, change);
    let last = zipped.layers.last().unwrap();
    for t in 0..2 {
        let (before, after) = (last.agreement_zipped[t].unwrap(), last.agreement_after[t].unwrap());
        assert_eq!(zipped.kinds[t].as_ref().unwrap().kind, kind);
        assert!(after > before, "task {t}: {before} -> {after}, kept {:?}", last.kept);
        assert!(before > 0.0 && after < 100.0, "{before} {after}");
    }
    zipped
}

#[test]
fn keypoints_are_values() {
    check([1, 2].map(|seed| one_output(seed, (2, 5.0, 14.0))), Kind::Values);
}

/// A sigmoid of an age in years would be 1 whatever the age.
#[test]
fn one_large_number_is_a_value() {
    check([3, 4].map(|seed| one_output(seed, (1, 12.0, 38.0))), Kind::Values);
}

#[test]
fn landmarks_are_values() {
    check([5, 6].map(|seed| one_output(seed, (136, 20.0, 60.0))), Kind::Values);
}

#[test]
fn maps_have_a_class_at_every_position() {
    // Steps of maps take long.
    check_with([segmentation(7), segmentation(8)], Kind::Classes, |options| {
        (options.retraining.batch_size, options.retraining.iterations, options.fitting.calibration) = (16, 60, 500);
    });
}

/// Classes, attributes and values of one network: each is imitated in its own way, and the task is as good as the worst
/// of them.
#[test]
fn several_outputs_are_all_imitated() {
    let network = |seed| {
        let (mut b, outputs) = regressor(seed, &[(5, 2.0, 0.0), (4, 2.0, 0.0), (3, 30.0, 100.0)]);
        let classes = b.node(Softmax { axis: 1 }, vec![Some(outputs[0])]);
        let attributes = b.node(Sigmoid, vec![Some(outputs[1])]);
        [classes, attributes, outputs[2]].into_iter().for_each(|id| b.graph.add_output(id));
        b.graph
    };
    // Classes are the first output, but values agree least here: figure and kind belong to one output.
    let zipped = check([network(9), network(10)], Kind::Values);
    let answers = zipped.kinds[0].as_ref().unwrap();
    assert_eq!((answers.outputs, zipped.layers.last().unwrap().worst_output[0]), (3, Some(2)));
}

/// What makes answers worse on held-out samples is not kept.
#[test]
fn retraining_never_ends_worse() {
    let wild = zipped([1, 2].map(|seed| one_output(seed, (2, 5.0, 14.0))), |options| {
        (options.retraining.rate, options.retraining.iterations) = (3.0, 10)
    });
    let last = wild.layers.last().unwrap();
    assert_eq!(last.kept, Some(0.0));
    assert_eq!(last.agreement_after, last.agreement_zipped);
}
