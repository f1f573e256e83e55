//! The engine is a seam: one of a few lines gives the same joint model, and a session goes step by step.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod noise;

use mtz::architecture::{self, NetworkSpec};
use mtz::engine::{CpuEngine, Engine, Forward, Inference, Learning, TrainingProgram};
use mtz::error::{ErrorKind, Result};
use mtz::graph::{Graph, ValueId};
use mtz::merge::Recipe;
use mtz::run::Runner;
use mtz::sharing::{Joint, Layer};
use mtz::statistics::{ActivationCaches, Calibration, LayerStatistics, Moments};
use mtz::train::{Bindings, Parameters};
use mtz::zip::{Session, Sources, TaskData, ZipOptions, zip};
use noise::noise;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs whole networks, sample by sample, and sums up in the plainest way; counts what it is asked for.
#[derive(Default)]
struct Plain {
    forward: AtomicUsize,
    statistics: AtomicUsize,
    programs: AtomicUsize,
}

impl Inference for Plain {
    fn prepare<'g>(&self, g: &'g Graph, wanted: &[ValueId], n: usize, memory: u64) -> Result<Box<dyn Forward + 'g>> {
        self.forward.fetch_add(1, Ordering::Relaxed);
        CpuEngine.prepare(g, wanted, n, memory)
    }
}

impl Learning for Plain {
    fn learn(&self, g: &Graph, bindings: Bindings, parameters: &Parameters, n: usize) -> Box<dyn TrainingProgram> {
        self.programs.fetch_add(1, Ordering::Relaxed);
        CpuEngine.learn(g, bindings, parameters, n)
    }
}

impl Engine for Plain {
    fn layer_statistics(
        &self,
        merged: &Graph,
        original: Option<&Graph>,
        layer: &Layer,
        from: &Calibration,
        _: &mut ActivationCaches,
    ) -> Result<LayerStatistics> {
        self.statistics.fetch_add(1, Ordering::Relaxed);
        let mut moments = Moments::new(layer.columns(), if original.is_some() { layer.units } else { 0 });
        for sample in &from.samples {
            let x = [from.feed.batch(&[*sample])?];
            let input = Runner::with_taps(merged, &[layer.input]).run(&x)?.remove(0);
            let answer = original.map(|o| Runner::with_taps(o, &[layer.answer()]).run(&x)).transpose()?;
            moments.add(input.data(), answer.as_ref().map_or(&[], |y| y[0].data()))?;
        }
        moments.mirror();
        Ok(LayerStatistics { moments, samples: None })
    }
}

fn start() -> Joint {
    let spec = NetworkSpec { input: vec![20], outputs: 5, mean: vec![], std: vec![] };
    let single = |name: &str, seed| {
        Joint::single(name.into(), architecture::build("lenet-300-100", &spec, 0.1, seed).unwrap()).unwrap()
    };
    Joint::from_networks(vec![single("a", 1), single("b", 2)]).unwrap()
}

fn options() -> ZipOptions {
    ZipOptions::new(Recipe::Best).with(|o| {
        o.fitting.calibration = 200;
        o.fitting.shift = 0;
        o.retraining.iterations = 3;
    })
}

#[test]
fn another_engine_gives_the_same_model() {
    let (start, options, engine) = (start(), options(), Plain::default());
    let feed = noise(&start.members[0].graph, 300);
    let tasks = ["a", "b"].map(|name| TaskData::whole(name, &feed, &feed));
    let ours = zip(start.clone(), &tasks, &options, |_| ControlFlow::Continue(())).unwrap();
    let sources = Sources { engine: &engine, ..Sources::default() };
    let session = Session::with_sources(start, &tasks, &options, sources).unwrap();
    let theirs = session.run(&mut |_| ControlFlow::Continue(())).unwrap();
    for (a, b) in ours.joint.members.iter().zip(&theirs.joint.members) {
        assert_eq!(a.units, b.units);
        let numbers = |g: &Graph| -> Vec<f32> {
            g.values().iter().filter_map(|v| v.constant.as_ref()).flat_map(|t| t.data().to_vec()).collect()
        };
        let apart = numbers(&a.graph).iter().zip(numbers(&b.graph)).fold(0.0f32, |m, (x, y)| m.max((x - y).abs()));
        assert!(apart < 1e-3, "weights differ by {apart}");
    }
    assert_eq!(engine.statistics.into_inner(), 2 * 3, "two tasks, three layers");
    assert!(engine.forward.into_inner() > 0 && engine.programs.into_inner() >= 2);
}

#[test]
fn a_session_goes_one_layer_at_a_time() {
    let (start, options) = (start(), options());
    let feed = noise(&start.members[0].graph, 300);
    let tasks = ["a", "b"].map(|name| TaskData::whole(name, &feed, &feed));
    let whole = zip(start.clone(), &tasks, &options, |_| ControlFlow::Continue(())).unwrap();
    let mut heard = |_| ControlFlow::Continue(());
    let mut session = Session::new(start, &tasks, &options).unwrap();
    assert_eq!(session.joint().shared_units(0), 0);
    let first = session.next_layer(&mut heard).unwrap().unwrap();
    assert_eq!(
        (first.merged.shared, first.name.as_str()),
        (whole.layers[0].merged.shared, whole.layers[0].name.as_str())
    );
    assert!(session.joint().shared_units(0) > 0 && session.joint().shared_units(1) == 0);
    while session.next_layer(&mut heard).unwrap().is_some() {}
    assert_eq!(session.layers().len(), whole.layers.len());
    let zipped = session.finish(&mut heard).unwrap();
    for (a, b) in whole.joint.members.iter().zip(&zipped.joint.members) {
        assert!(a.graph.values().iter().zip(b.graph.values()).all(|(a, b)| a.constant == b.constant));
    }
}

#[test]
fn what_is_not_finished_or_stopped_is_an_error() {
    let (start, options) = (start(), options());
    let feed = noise(&start.members[0].graph, 300);
    let tasks = ["a", "b"].map(|name| TaskData::new(name, &feed));
    let session = Session::new(start.clone(), &tasks, &options).unwrap();
    assert_eq!(session.finish(&mut |_| ControlFlow::Continue(())).unwrap_err().kind(), ErrorKind::Usage);
    let stopped = zip(start, &tasks, &options, |_| ControlFlow::Break(())).unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Cancelled);
}
