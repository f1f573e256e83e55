//! Small networks made in code, with weights that depend on a seed alone, and what must hold of any joint model made of
//! them.
#![allow(dead_code)] // each test file uses its part

use crate::noise::noise;
use mtz::graph::{Graph, ValueId};
use mtz::joint_file;
use mtz::merge::Recipe;
use mtz::onnx;
use mtz::op::{BatchNormalization, Conv, Gemm, Op, Relu, Reshape, Window};
use mtz::random;
use mtz::run::Runner;
use mtz::sharing::{Joint, Member};
use mtz::tensor::{Dim, Shape, Tensor};
use mtz::zip::{TaskData, ZipOptions, Zipped, zip};
use std::ops::ControlFlow;

/// A network in the making.
pub struct Builder {
    pub graph: Graph,
    /// Every weight has the next one.
    pub seed: u64,
    count: usize,
}

impl Builder {
    pub fn new(seed: u64, input: &[usize]) -> (Self, ValueId) {
        let mut graph = Graph::new(format!("network {seed}"));
        let dims = [Dim::Batch(1)].into_iter().chain(input.iter().map(|n| Dim::Fixed(*n))).collect();
        let x = graph.add_input("x", Shape::new(dims).unwrap());
        (Self { graph, seed: 1000 * seed, count: 0 }, x)
    }

    pub fn constant(&mut self, shape: &[usize], data: Vec<f32>) -> Option<ValueId> {
        self.count += 1;
        Some(self.graph.add_constant(format!("w{}", self.count), Tensor::new(shape.to_vec(), data).unwrap()).unwrap())
    }

    pub fn weight(&mut self, shape: &[usize], scale: f32, offset: f32) -> Option<ValueId> {
        self.seed += 1;
        let count = shape.iter().product::<usize>() as u64;
        let data = (0..count).map(|i| offset + scale * random::normal(self.seed, i)).collect();
        self.constant(shape, data)
    }

    pub fn node(&mut self, name: &str, op: impl Into<Op>, inputs: Vec<Option<ValueId>>) -> ValueId {
        self.count += 1;
        let output = format!("v{}", self.count);
        self.graph.add_node(name, op, inputs, output).unwrap()
    }

    pub fn units(&self, x: ValueId) -> usize {
        self.graph[x].shape.at(1)[1]
    }

    pub fn dense(&mut self, name: &str, x: ValueId, units: usize) -> ValueId {
        let inputs = self.units(x);
        let weight = self.weight(&[units, inputs], (2.0 / inputs as f32).sqrt(), 0.0);
        let bias = self.weight(&[units], 0.5, 0.0);
        self.node(name, Gemm { transpose_b: true, ..Gemm::PLAIN }, vec![Some(x), weight, bias])
    }

    pub fn conv(&mut self, name: &str, x: ValueId, units: usize, size: usize, groups: usize) -> ValueId {
        let channels = self.units(x) / groups;
        let scale = (2.0 / (size * size * channels) as f32).sqrt();
        let weight = self.weight(&[units, channels, size, size], scale, 0.0);
        let bias = self.weight(&[units], 0.5, 0.0);
        let windows = vec![Window { size, stride: 1, dilation: 1, before: size / 2, after: size / 2 }; 2];
        self.node(name, Conv { windows, groups }, vec![Some(x), weight, bias])
    }

    pub fn relu(&mut self, x: ValueId) -> ValueId {
        self.node("relu", Relu, vec![Some(x)])
    }

    pub fn reshape(&mut self, x: ValueId, target: &[usize]) -> ValueId {
        let target = [None].into_iter().chain(target.iter().map(|n| Some(*n))).collect();
        self.node("reshape", Reshape { target }, vec![Some(x)])
    }

    /// A normalisation with statistics 0 and 1, and a factor and offset that do nothing.
    pub fn identity_norm(&mut self, x: ValueId) -> ValueId {
        let n = self.units(x);
        let [scale, bias, mean, variance] = [1.0, 0.0, 0.0, 1.0].map(|value| self.constant(&[n], vec![value; n]));
        let norm = BatchNormalization { epsilon: 1e-5, momentum: 0.9 };
        self.node("norm", norm, vec![Some(x), scale, bias, mean, variance])
    }

    pub fn finish(mut self, outputs: &[ValueId]) -> Graph {
        outputs.iter().for_each(|y| self.graph.add_output(*y));
        self.graph
    }
}

/// Three fully connected layers.
pub fn mlp(seed: u64, norms: bool) -> Graph {
    let (mut b, mut x) = Builder::new(seed, &[9]);
    for (name, units) in [("fc1", 8), ("fc2", 7)] {
        x = b.dense(name, x, units);
        x = if norms { b.identity_norm(x) } else { x };
        x = b.relu(x);
    }
    let y = b.dense("fc3", x, 4);
    b.finish(&[y])
}

pub fn difference(a: &[Tensor], b: &[Tensor]) -> f32 {
    let data = |t: &[Tensor]| t.iter().flat_map(|t| t.data().to_vec()).collect::<Vec<f32>>();
    let (a, b) = (data(a), data(b));
    assert_eq!(a.len(), b.len());
    // The maximum of a number and NaN is the number.
    assert!(a.iter().chain(&b).all(|x| x.is_finite()), "not all answers are numbers");
    let scale = a.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
    a.iter().zip(&b).fold(0.0f32, |m, (a, b)| if a == b { m } else { m.max((a - b).abs()) }) / scale
}

pub fn single(name: &str, graph: &Graph) -> Joint {
    Joint::single(name.into(), graph.clone()).unwrap()
}

pub fn beside(names: &[&str], graphs: &[Graph]) -> Joint {
    Joint::from_networks(names.iter().zip(graphs).map(|(name, graph)| single(name, graph)).collect()).unwrap()
}

pub const SAMPLES: usize = 40;

pub fn options(recipe: Recipe) -> ZipOptions {
    ZipOptions::new(recipe).with(|o| {
        o.fitting.calibration = SAMPLES;
        o.fitting.shift = 0;
        o.retraining.iterations = 0;
    })
}

pub fn zipped(start: &Joint, options: &ZipOptions) -> Zipped {
    let feeds: Vec<_> = start.members.iter().map(|m| noise(&m.graph, SAMPLES)).collect();
    let task = |(m, feed): (&Member, _)| TaskData { test: None, ..TaskData::whole(&m.name, feed, feed) };
    let tasks: Vec<TaskData> = start.members.iter().zip(&feeds).map(task).collect();
    zip(start.clone(), &tasks, options, |_| ControlFlow::Continue(())).unwrap()
}

pub fn images(graph: &Graph) -> Vec<Tensor> {
    vec![noise(graph, 3).batch(&[0, 1, 2]).unwrap()]
}

pub fn outputs(graph: &Graph) -> Vec<Tensor> {
    Runner::new(graph).run(&images(graph)).unwrap()
}

pub fn in_memory(joint: &Joint) -> Vec<Tensor> {
    joint.members.iter().flat_map(|m| outputs(&m.graph)).collect()
}

/// The file computes what the model computes, and so do the tasks that are taken out of it.
pub fn check_file(what: &str, joint: &Joint) -> Joint {
    let expected = in_memory(joint);
    assert!(expected.iter().all(|t| t.data().iter().all(|x| x.is_finite())), "{what}: not finite");
    let graph = onnx::parse(&onnx::to_bytes(&joint_file::to_graph(joint, false).unwrap()).unwrap()).unwrap();
    let inputs: Vec<Tensor> = joint.members.iter().flat_map(|m| images(&m.graph)).collect();
    let file = Runner::new(&graph).run(&inputs).unwrap();
    assert!(difference(&expected, &file) < 1e-4, "{what}: the file differs by {}", difference(&expected, &file));
    let back = joint_file::from_graph(&graph).unwrap().unwrap();
    let extracted = in_memory(&back);
    assert!(difference(&expected, &extracted) < 1e-4, "{what}: extracted tasks differ");
    assert_eq!(back.parameters(), joint.parameters(), "{what}");
    back
}
