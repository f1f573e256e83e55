//! Too few samples are told from enough by samples that no fit has seen.
#![allow(clippy::unwrap_used)]

use mtz::data::{self, Feed, Normalisation, OpenOptions, Part};
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::onnx;
use mtz::sharing::Joint;
use mtz::zip::{LayerReport, TaskData, ZipOptions, zip};
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
fn reports(options: &ZipOptions) -> Vec<LayerReport> {
    let graphs = bundled();
    let single = |(name, graph): (&str, &Graph)| Joint::single(name.into(), graph.clone()).unwrap();
    let start = Joint::from_networks(["a", "b"].into_iter().zip(&graphs).map(single).collect()).unwrap();
    let (train, test) = (digits(&graphs[0], Part::Train), digits(&graphs[0], Part::Test));
    let tasks = ["a", "b"].map(|name| TaskData::whole(name, &train, &test));
    zip(start, &tasks, options, |_| ControlFlow::Continue(())).unwrap().layers
}

/// The joint model and its reports are the same whether samples are held out or not: nothing is chosen by them.
#[test]
fn what_is_held_out_changes_nothing() {
    let graphs = bundled();
    let feed = digits(&graphs[0], Part::Train);
    let options = ZipOptions::new(Recipe::Best).with(|o| {
        o.retraining.iterations = 0;
        o.resources.measured = 0;
        o.fitting.calibration = 80;
    });
    let zipped = |tested: bool| {
        let single = |(name, graph): (&str, &Graph)| Joint::single(name.into(), graph.clone()).unwrap();
        let start = Joint::from_networks(["a", "b"].into_iter().zip(&graphs).map(single).collect()).unwrap();
        let task = |name: &str| TaskData { test: tested.then(|| (&feed, vec![7, 8, 9])), ..TaskData::new(name, &feed) };
        zip(start, &["a", "b"].map(task), &options, |_| ControlFlow::Continue(())).unwrap()
    };
    let (with, without) = (zipped(true), zipped(false));
    for (a, b) in with.joint.members.iter().zip(&without.joint.members) {
        assert!(a.graph == b.graph && a.units == b.units);
    }
    assert!(with.layers.iter().all(|l| l.fit_error.iter().chain(&l.fit_error_held_out).all(Option::is_some)));
    assert!(without.layers.iter().all(|l| l.fit_error.iter().chain(&l.fit_error_held_out).all(Option::is_none)));
    assert!(!without.layers.iter().any(LayerReport::needs_more_samples));
}

#[test]
fn a_pair_with_enough_samples_needs_no_more() {
    let options = ZipOptions::new(Recipe::Best).with(|o| {
        o.retraining.iterations = 0;
        o.resources.measured = 0;
    });
    for (calibration, few) in [(60, true), (100, true), (20_000, false)] {
        let layers = reports(&options.clone().with(|o| o.fitting.calibration = calibration));
        let errors: Vec<_> = layers.iter().map(|l| (&l.name, &l.fit_error, &l.fit_error_held_out)).collect();
        assert_eq!(layers.iter().any(LayerReport::needs_more_samples), few, "{calibration} samples: {errors:?}");
    }
}
