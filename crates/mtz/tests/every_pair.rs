//! Every pair (and some triples) of networks that can be zipped at all: what is written is what was reported.
//!
//! One table: small networks with and without bias, normalisation, groups and several outputs, in different widths; our
//! own architectures; exported ones. Each is zipped with all that fit it, in every way there is. The file must compute
//! what the model in memory computes, extracting a task must not change it, biases must survive retraining, and a
//! checkpoint must be readable.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;
mod noise;
mod small;

use mtz::architecture::{self, NetworkSpec as Shape};
use mtz::graph::{Graph, ValueId};
use mtz::joint_file;
use mtz::merge::{Matching, Recipe};
use mtz::onnx;
use mtz::op::{BatchNormalization, Conv, Flatten, Gemm, MaxPool, Op, Relu, Window};
use mtz::random;
use mtz::run::Runner;
use mtz::sharing::Joint;
use mtz::sharing::Share;
use mtz::simplify;
use mtz::tensor::{Dim, Tensor};
use mtz::zip::{TaskData, ZipOptions, Zipped, zip};
use noise::noise;
use small::difference;
use std::ops::ControlFlow;
use std::path::Path;

/// How a small network is built.
#[derive(Clone, Copy)]
struct Built {
    bias: bool,
    norm: bool,
    /// Of its second convolution.
    groups: usize,
    outputs: usize,
    width: usize,
}

struct Builder {
    graph: Graph,
    seed: u64,
}

impl Builder {
    fn weight(&mut self, shape: &[usize], scale: f32, offset: f32) -> Option<ValueId> {
        self.seed += 1;
        let count = shape.iter().product::<usize>() as u64;
        let data = (0..count).map(|i| offset + scale * random::normal(self.seed, i)).collect();
        Some(self.graph.add_constant(format!("w{}", self.seed), Tensor::new(shape.to_vec(), data).unwrap()).unwrap())
    }

    fn node(&mut self, name: &str, op: impl Into<Op>, inputs: Vec<Option<ValueId>>) -> ValueId {
        // All nodes of a kind have one name, as some exporters write them.
        self.seed += 1;
        let output = format!("v{}", self.seed);
        self.graph.add_node(name, op, inputs, output).unwrap()
    }

    fn norm_and_relu(&mut self, built: Built, x: ValueId, units: usize) -> ValueId {
        let mut x = x;
        if built.norm {
            let [scale, bias] = [(0.2, 1.0), (0.3, 0.0)].map(|(s, o)| self.weight(&[units], s, o));
            let [mean, variance] = [(0.3, 0.0), (0.05, 1.0)].map(|(s, o)| self.weight(&[units], s, o));
            let norm = BatchNormalization { epsilon: 1e-5, momentum: 0.9 };
            x = self.node("norm", norm, vec![Some(x), scale, bias, mean, variance]);
        }
        self.node("relu", Relu, vec![Some(x)])
    }

    fn conv(&mut self, built: Built, x: ValueId, units: usize, groups: usize) -> ValueId {
        let channels = self.graph[x].shape.at(1)[1];
        let scale = (2.0 / (9 * channels / groups) as f32).sqrt();
        let mut inputs = vec![Some(x), self.weight(&[units, channels / groups, 3, 3], scale, 0.0)];
        inputs.extend(built.bias.then(|| self.weight(&[units], 0.5, 0.0)));
        let windows = vec![Window { size: 3, stride: 1, dilation: 1, before: 1, after: 1 }; 2];
        self.node("conv", Conv { windows, groups }, inputs)
    }

    fn dense(&mut self, built: Built, x: ValueId, units: usize) -> ValueId {
        let inputs = self.graph[x].shape.at(1)[1];
        let mut all = vec![Some(x), self.weight(&[units, inputs], (2.0 / inputs as f32).sqrt(), 0.0)];
        all.extend(built.bias.then(|| self.weight(&[units], 0.5, 0.0)));
        self.node("dense", Gemm { transpose_b: true, ..Gemm::PLAIN }, all)
    }
}

/// Three fully connected layers, the last as often as there are outputs.
fn dense(built: Built, seed: u64) -> Graph {
    let mut b = Builder { graph: Graph::new("dense"), seed: 1000 * seed };
    let mut x = b.graph.add_input("x", mtz::tensor::Shape::new(vec![Dim::Batch(1), Dim::Fixed(9)]).unwrap());
    for units in [built.width, built.width + 2] {
        x = b.dense(built, x, units);
        x = b.norm_and_relu(built, x, units);
    }
    for k in 0..built.outputs {
        let y = b.dense(Built { bias: true, ..built }, x, 3 + k);
        b.graph.add_output(y);
    }
    b.graph
}

/// Two convolutions, the second perhaps in groups, one more, and fully connected heads.
fn convolutional(built: Built, seed: u64) -> Graph {
    let mut b = Builder { graph: Graph::new("conv"), seed: 1000 * seed };
    let dims = vec![Dim::Batch(1), Dim::Fixed(2), Dim::Fixed(6), Dim::Fixed(6)];
    let mut x = b.graph.add_input("x", mtz::tensor::Shape::new(dims).unwrap());
    for groups in [1, built.groups, 1] {
        x = b.conv(built, x, built.width, groups);
        x = b.norm_and_relu(built, x, built.width);
    }
    let windows = vec![Window { size: 2, stride: 2, dilation: 1, before: 0, after: 0 }; 2];
    x = b.node("pool", MaxPool { windows, ceil: false }, vec![Some(x)]);
    x = b.node("flat", Flatten { axis: 1 }, vec![Some(x)]);
    for k in 0..built.outputs {
        let y = b.dense(Built { bias: true, ..built }, x, 4 + k);
        b.graph.add_output(y);
    }
    b.graph
}

/// All networks, by name.
fn networks() -> Vec<(String, Graph)> {
    let plain = Built { bias: true, norm: false, groups: 1, outputs: 1, width: 6 };
    let normed = Built { norm: true, ..plain };
    let variants = [
        ("bias", plain),
        ("no-bias", Built { bias: false, ..plain }),
        ("norm", Built { bias: false, ..normed }),
        ("bias-norm", normed),
        ("wide", Built { width: 8, ..plain }),
        ("wide-norm", Built { width: 8, ..normed }),
        ("grouped", Built { groups: 2, ..plain }),
        ("grouped-norm", Built { groups: 2, ..normed }),
        ("depthwise", Built { groups: 6, ..normed }),
        ("outputs", Built { outputs: 3, ..plain }),
    ];
    let mut all = Vec::new();
    for (seed, (name, built)) in (1..).zip(variants) {
        if built.groups == 1 {
            all.push((format!("dense-{name}"), dense(built, seed)));
        }
        let graph = convolutional(built, 100 + seed);
        if built.norm {
            all.push((format!("conv-{name}-folded"), simplify::for_inference(&graph).unwrap()));
        }
        all.push((format!("conv-{name}"), graph));
    }
    for name in ["lenet-300-100", "lenet-5", "vgg-11", "resnet-20", "resnet-20-v2", "mobilenet-v2", "densenet-22"] {
        for (seed, width) in [(1, 0.0625), (2, 0.1)] {
            let input = if name.starts_with("lenet") { vec![1, 28, 28] } else { vec![3, 16, 16] };
            let width = if name.starts_with("dense") { 0.34 } else { width };
            let shape = Shape { input, outputs: 5, mean: vec![], std: vec![] };
            // Planes of VGG are halved too often for so small an image.
            if let Ok(graph) = architecture::build(name, &shape, width, seed) {
                all.push((format!("{name}-{seed}"), graph));
            }
        }
    }
    // One export of each kind is enough: what exporters write differently is compared elsewhere.
    for case in cases::cases("networks").into_iter().filter(|c| c.name.contains("dynamo_18") || c.name.ends_with("_13"))
    {
        let graph = case.graph();
        if graph.inputs().len() == 1 && graph.fixed_batch().is_none() {
            all.push((case.name.clone(), graph));
        }
    }
    all
}

/// Networks beside each other, if they fit.
fn beside(graphs: &[&Graph]) -> Option<Joint> {
    let names = ["a", "shared", "a+shared"];
    let single = |(name, graph): (&&str, &&Graph)| Joint::single((*name).into(), (*graph).clone()).ok();
    Joint::from_networks(names.iter().zip(graphs).map(single).collect::<Option<Vec<_>>>()?).ok()
}

const SAMPLES: usize = 24;

fn zipped(start: &Joint, options: &ZipOptions) -> Zipped {
    let feeds: Vec<_> = start.members.iter().map(|m| noise(&m.graph, SAMPLES)).collect();
    let tasks: Vec<TaskData> = start.members.iter().zip(&feeds).map(|(m, feed)| TaskData::new(&m.name, feed)).collect();
    let names: Vec<&str> = start.members.iter().map(|m| m.graph.name.as_str()).collect();
    zip(start.clone(), &tasks, options, |_| ControlFlow::Continue(()))
        .unwrap_or_else(|e| panic!("{names:?} {options:?}: {e}"))
}

/// What every task computes, and the model itself, after a way through a file.
fn through_file(joint: &Joint) -> (Vec<Tensor>, Joint) {
    let bytes = onnx::to_bytes(&joint_file::to_graph(joint, false).unwrap()).unwrap();
    let graph = onnx::parse(&bytes).unwrap();
    let inputs: Vec<Tensor> = joint.members.iter().map(|m| noise(&m.graph, 3).batch(&[0, 1, 2]).unwrap()).collect();
    (Runner::new(&graph).run(&inputs).unwrap(), joint_file::from_graph(&graph).unwrap().unwrap())
}

fn in_memory(joint: &Joint) -> Vec<Tensor> {
    let run =
        |m: &mtz::sharing::Member| Runner::new(&m.graph).run(&[noise(&m.graph, 3).batch(&[0, 1, 2]).unwrap()]).unwrap();
    joint.members.iter().flat_map(run).collect()
}

/// The biases of all layers of all tasks.
fn biases(joint: &Joint) -> Vec<f32> {
    let of = |m: &mtz::sharing::Member| {
        let ids = m.layers.iter().filter_map(|l| l.bias);
        ids.flat_map(|id| m.graph[id].constant.as_ref().unwrap().data().to_vec()).collect::<Vec<f32>>()
    };
    joint.members.iter().flat_map(of).collect()
}

/// Zips in one way and compares.
fn check(names: &str, start: &Joint, options: &ZipOptions) {
    let what = format!("{names}: {:?} {:?} {:?}", options.recipe, options.sharing.matching, options.sharing.share);
    let zipped = zipped(start, options);
    let expected = in_memory(&zipped.joint);
    assert!(expected.iter().all(|t| t.data().iter().all(|x| x.is_finite())), "{what}");
    let (file, back) = through_file(&zipped.joint);
    assert!(difference(&expected, &file) < 1e-4, "{what}: the file differs by {}", difference(&expected, &file));
    let extracted = in_memory(&back);
    assert!(difference(&file, &extracted) < 1e-4, "{what}: extracted tasks differ");
    assert_eq!(back.parameters(), zipped.joint.parameters(), "{what}");
}

/// A step of next to nothing changes no bias, and what was kept on the way can be read again.
fn check_retraining(names: &str, start: &Joint, options: &ZipOptions, folder: &Path) {
    let options = options.clone().with(|o| {
        o.retraining.rate = 1e-9;
        o.retraining.iterations = 1;
        o.retraining.batch_size = 8;
        o.resources.checkpoint = Some(folder.to_owned());
    });
    let before = zipped(
        start,
        &options.clone().with(|o| {
            o.retraining.iterations = 0;
            o.resources.checkpoint = None;
        }),
    )
    .joint;
    let after = zipped(start, &options).joint;
    let moved = biases(&before).iter().zip(biases(&after)).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
    // Few samples make small differences larger from layer to layer; a bias that is lost is not small.
    assert!(moved < 2e-3, "{names}: a bias moved by {moved}");
    let again = zipped(start, &options).joint;
    assert!(difference(&in_memory(&after), &in_memory(&again)) < 1e-6, "{names}: the checkpoint holds another model");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_written_is_what_was_zipped() {
    let networks = networks();
    let folder = tempfile::tempdir().unwrap();
    let (mut pairs, mut triples) = (0, 0);
    for (i, (first, a)) in networks.iter().enumerate() {
        for (j, (second, b)) in networks.iter().enumerate().skip(i + 1) {
            let Some(start) = beside(&[a, b]) else { continue };
            pairs += 1;
            let names = format!("{first} and {second}");
            for recipe in [Recipe::Best, Recipe::Paper] {
                let usual = ZipOptions::new(recipe).with(|o| {
                    o.fitting.calibration = SAMPLES;
                    o.fitting.shift = 0;
                    o.retraining.iterations = 0;
                });
                for matching in [Matching::Greedy, Matching::Optimal, Matching::Random] {
                    for share in [Share::All, Share::Fraction(0.5)] {
                        check(
                            &names,
                            &start,
                            &usual.clone().with(|o| {
                                o.sharing.share = share;
                                o.sharing.matching = matching;
                            }),
                        );
                    }
                }
                let half = usual.with(|o| o.sharing.share = Share::Fraction(0.5));
                check_retraining(&names, &start, &half, &folder.path().join("kept"));
            }
            let third = networks.iter().skip(j + 1).find_map(|(third, c)| Some((third, beside(&[a, b, c])?)));
            if let Some((third, start)) = third {
                triples += 1;
                for recipe in [Recipe::Best, Recipe::Paper] {
                    for share in [Share::All, Share::Fraction(0.5)] {
                        let options = ZipOptions::new(recipe).with(|o| {
                            o.fitting.calibration = SAMPLES;
                            o.fitting.shift = 0;
                            o.retraining.iterations = 0;
                            o.sharing.share = share;
                        });
                        check(&format!("{names} and {third}"), &start, &options);
                    }
                }
            }
        }
    }
    assert!(pairs > 60 && triples > 40, "{pairs} pairs, {triples} triples");
}
