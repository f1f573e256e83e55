//! Sparse networks: what must hold for any masks.
#![allow(clippy::unwrap_used)]

use mtz::architecture::{self, NetworkSpec as Shape};
use mtz::data::{Dataset, Feed, Normalisation, SampleSource};
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::joint_file;
use mtz::merge::Recipe;
use mtz::prune::{Method, allocate, prune};
use mtz::random;
use mtz::sharing::Share;
use mtz::sharing::{Joint, Layer, Refit};
use mtz::statistics::Calibration;
use mtz::zip::{TaskData, ZipOptions, zip};
use proptest::prelude::*;
use std::ops::ControlFlow;

/// Images with a few bright spots.
struct Spots;

impl SampleSource for Spots {
    fn len(&self) -> usize {
        200
    }

    fn shape(&self) -> &[usize] {
        &[1, 16, 16]
    }

    fn is_bytes(&self) -> bool {
        false
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        out.iter_mut().enumerate().for_each(|(i, x)| *x = random::normal(index as u64, i as u64).max(0.0));
        Ok(())
    }
}

fn network(architecture: &str, seed: u64) -> Graph {
    let shape = Shape { input: vec![1, 16, 16], outputs: 4, mean: vec![0.4], std: vec![0.6] };
    architecture::build(architecture, &shape, 0.1, seed).unwrap()
}

fn feed(graph: &Graph) -> Feed {
    Feed::new(Dataset::new(Box::new(Spots), None), graph, Normalisation::default()).unwrap()
}

/// Zeros at random.
fn thinned(graph: &Graph, sparsity: f32, seed: u64) -> Graph {
    let mut sparse = graph.clone();
    for (l, layer) in Layer::all(graph).unwrap().iter().enumerate() {
        let mut rows = layer.read(&sparse);
        for (i, w) in rows.iter_mut().enumerate() {
            let bias = i % (layer.columns() + 1) == layer.columns();
            if !bias && random::uniform(random::bits(seed, l as u64), i as u64) < sparsity {
                *w = 0.0;
            }
        }
        let units = rows.chunks(layer.columns() + 1).enumerate();
        let refit = |(unit, row): (usize, &[f32])| Refit { unit, row: row.to_vec(), scale: 1.0, spread: (0.0, 1.0) };
        sparse = layer.write(&sparse, &units.map(refit).collect::<Vec<_>>()).unwrap();
    }
    sparse
}

fn zeros(graph: &Graph) -> Vec<Vec<bool>> {
    let weights = |l: &Layer| {
        let rows = l.read(graph);
        rows.chunks(l.columns() + 1).flat_map(|r| r[..l.columns()].iter().map(|w| *w == 0.0)).collect::<Vec<bool>>()
    };
    Layer::all(graph).unwrap().iter().map(weights).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn masks_hold_and_nothing_grows(seed in 0u64..1000, a in 0.2f32..0.95, b in 0.2f32..0.95,
    share in prop_oneof![Just(0.0f64), 0.0f64..=1.0], paper: bool, conv: bool) {
        let architecture = if conv { "lenet-5" } else { "lenet-300-100" };
        let thin = |share, seed| thinned(&network(architecture, seed), share, seed);
        let networks = [thin(a, seed), thin(b, seed + 1)];
        let feed = feed(&networks[0]);
        let tasks = ["a", "b"].map(|name| TaskData { test: None, ..TaskData::whole(name, &feed, &feed) });
        let single = |(name, g): (&str, &Graph)| Joint::single(name.into(), g.clone()).unwrap();
        let start = Joint::from_networks(["a", "b"].into_iter().zip(&networks).map(single).collect()).unwrap();
        let recipe = if paper { Recipe::Paper } else { Recipe::Best };
        let options = ZipOptions::new(recipe).with(|o| {
            o.sharing.share = Share::Fraction(share);
            o.fitting.shift = 0;
            o.retraining.iterations = 0;
        });
        let before = zip(start.clone(), &tasks, &options, |_| ControlFlow::Continue(())).unwrap();
        prop_assert!(before.joint.nonzero() <= before.nonzero_before);
        // Retraining moves weights but makes no connection.
        let again = options.with(|o| { o.retraining.iterations = 3; o.retraining.batch_size = 16; });
        let after = zip(start, &tasks, &again, |_| ControlFlow::Continue(())).unwrap();
        prop_assert!(after.joint.nonzero() <= before.nonzero_before);
        let bytes = mtz::onnx::to_bytes(&joint_file::to_graph(&after.joint, false).unwrap()).unwrap();
        let file = joint_file::from_graph(&mtz::onnx::parse(&bytes).unwrap()).unwrap().unwrap();
        prop_assert_eq!(file.nonzero(), after.joint.nonzero());
        // A task that shares nothing keeps its own zeros.
        if share == 0.0 {
            for (member, original) in after.joint.members.iter().zip(&networks) {
                for (now, was) in zeros(&member.graph).iter().zip(zeros(original)) {
                    prop_assert!(now.iter().zip(&was).all(|(now, was)| *now || !*was));
                }
            }
        }
    }
}

#[test]
fn so_many_weights_go_as_asked_for() {
    for architecture in ["lenet-300-100", "lenet-5"] {
        let graph = network(architecture, 3);
        let feed = feed(&graph);
        let from = Calibration::new(&feed, (0..200).collect(), 0);
        let layers = Layer::all(&graph).unwrap();
        for method in [Method::BrainSurgeon, Method::Magnitude] {
            let pruned =
                prune(&graph, &from, &vec![0.8; layers.len()], method, 1 << 30, |_, _| ControlFlow::Continue(()))
                    .unwrap();
            for (zeros, layer) in zeros(&pruned.graph).iter().zip(&pruned.layers) {
                let left = zeros.iter().filter(|z| !**z).count();
                assert_eq!((left, layer.weights), (layer.kept, zeros.len()));
                assert_eq!(layer.kept, layer.weights - (0.8 * layer.weights as f64).round() as usize);
            }
        }
        let shares = allocate(&graph, &from, 0.7, 1 << 30, |_, _| ControlFlow::Continue(())).unwrap();
        let (gone, all) = shares.iter().zip(&layers).fold((0.0, 0.0), |sum, (share, l)| {
            let weights = (l.units * l.columns()) as f64;
            (sum.0 + share * weights, sum.1 + weights)
        });
        assert!((gone / all - 0.7).abs() < 0.02, "{shares:?}");
    }
}

/// A sparse network's file is small, and reads back bit for bit.
#[test]
fn zeros_take_no_room_in_a_file() {
    let graph = thinned(&network("lenet-300-100", 3), 0.9, 5);
    let bytes = mtz::onnx::to_bytes(&graph).unwrap();
    assert!(bytes.len() < 2 * graph.parameters(), "{} bytes for {} parameters", bytes.len(), graph.parameters());
    assert!(mtz::onnx::parse(&bytes).unwrap() == graph);
}

#[test]
fn layers_that_are_too_wide_are_refused_with_a_figure() {
    let graph = network("lenet-300-100", 3);
    let feed = feed(&graph);
    let from = Calibration::new(&feed, (0..20).collect(), 0);
    let error = prune(&graph, &from, &[0.5; 3], Method::BrainSurgeon, 1 << 20, |_, _| ControlFlow::Continue(()));
    let text = error.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(text.contains("256 inputs need 3 MiB"), "{text}");
    let error = allocate(&graph, &from, 0.5, 1 << 20, |_, _| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("fc1") && error.to_string().contains("256 inputs need 3 MiB"), "{error}");
    // With just enough for the systems, batches are small, and the shares are those of large ones.
    let shares = |memory| allocate(&graph, &from, 0.5, memory, |_, _| ControlFlow::Continue(())).unwrap();
    let apart = shares(3 << 20).iter().zip(shares(1 << 30)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 1e-2, "{apart}");
}
