//! Too few samples are told from enough by samples that no fit has seen.
#![allow(clippy::unwrap_used)]

use mtz::data::{self, Feed, Normalisation, OpenOptions, Part};
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::onnx;
use mtz::pipeline::{LayerReport, Plan, Task, zip};
use mtz::plan::Joint;
use std::ops::ControlFlow;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn digits(graph: &Graph, part: Part) -> Feed {
    let data = data::locate(&root().join("data/mnist")).unwrap().part(part).open(&OpenOptions::default()).unwrap();
    Feed::new(data, graph, Normalisation::default()).unwrap()
}

fn bundled() -> Vec<Graph> {
    ["a", "b"]
        .iter()
        .map(|name| onnx::read(&root().join(format!("models/lenet-300-100-{name}.onnx"))).unwrap())
        .collect()
}

/// The reports of the bundled pair, zipped with so many samples.
fn reports(plan: &Plan) -> Vec<LayerReport> {
    let graphs = bundled();
    let single = |(name, graph): (&str, &Graph)| Joint::single(name.into(), graph.clone()).unwrap();
    let start = Joint::beside(["a", "b"].into_iter().zip(&graphs).map(single).collect()).unwrap();
    let (train, test) = (digits(&graphs[0], Part::Train), digits(&graphs[0], Part::Test));
    let tasks = ["a", "b"].map(|name| Task::whole(name, &train, &test));
    zip(start, &tasks, plan, |_| ControlFlow::Continue(())).unwrap().layers
}

/// The joint model and its reports are the same whether samples are held out or not: nothing is chosen by them.
#[test]
fn what_is_held_out_changes_nothing() {
    let graphs = bundled();
    let feed = digits(&graphs[0], Part::Train);
    let plan = Plan { retrain: 0, measured: 0, calibration: 80, ..Plan::new(Recipe::Best) };
    let zipped = |tested: bool| {
        let single = |(name, graph): (&str, &Graph)| Joint::single(name.into(), graph.clone()).unwrap();
        let start = Joint::beside(["a", "b"].into_iter().zip(&graphs).map(single).collect()).unwrap();
        let task = |name: &str| Task { test: tested.then(|| (&feed, vec![7, 8, 9])), ..Task::new(name, &feed) };
        zip(start, &["a", "b"].map(task), &plan, |_| ControlFlow::Continue(())).unwrap()
    };
    let (with, without) = (zipped(true), zipped(false));
    for (a, b) in with.joint.members.iter().zip(&without.joint.members) {
        assert!(a.graph == b.graph && a.units == b.units);
    }
    assert!(with.layers.iter().all(|l| l.fit_seen.iter().chain(&l.fit_held_out).all(Option::is_some)));
    assert!(without.layers.iter().all(|l| l.fit_seen.iter().chain(&l.fit_held_out).all(Option::is_none)));
    assert!(!without.layers.iter().any(LayerReport::needs_more_samples));
}

#[test]
fn a_pair_with_enough_samples_needs_no_more() {
    let plan = Plan { retrain: 0, measured: 0, ..Plan::new(Recipe::Best) };
    for (calibration, few) in [(60, true), (100, true), (20_000, false)] {
        let layers = reports(&Plan { calibration, ..plan.clone() });
        let errors: Vec<_> = layers.iter().map(|l| (&l.name, &l.fit_seen, &l.fit_held_out)).collect();
        assert_eq!(layers.iter().any(LayerReport::needs_more_samples), few, "{calibration} samples: {errors:?}");
    }
}
