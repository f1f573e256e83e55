//! How a run gets to its result must not change it: values kept between layers or computed anew, in one go or after it
//! was killed.
#![allow(clippy::unwrap_used)]

mod noise;

use mtz::architecture::{self, NetworkSpec as Shape};
use mtz::budget::{Budget, BudgetPoint, file_bytes, search};
use mtz::data::Feed;
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::op::{MatMul, Relu};
use mtz::progress::Progress;
use mtz::random;
use mtz::sharing::{Joint, Layer};
use mtz::statistics::{ActivationCaches, Calibration, layer_statistics};
use mtz::tensor::{Dim, Shape as Sizes, Tensor};
use mtz::zip::{TaskData, ZipOptions, zip};
use mtz::{joint_file, onnx};
use noise::noise;
use std::ops::ControlFlow;
use std::path::Path;

/// Weights stored inputs × outputs, as Keras has them, and two answers: products of few rows go another way through the
/// machine with another layout.
const AS_KERAS: &str = "as Keras writes it";

fn network(architecture: &str, seed: u64) -> Graph {
    if architecture == AS_KERAS {
        let mut graph = Graph::new(AS_KERAS);
        let mut x = graph.add_input("x", Sizes::new(vec![Dim::Batch(1), Dim::Fixed(30)]).unwrap());
        for (i, (inputs, units)) in [(30, 24), (24, 20), (20, 2)].into_iter().enumerate() {
            let numbers = (0..inputs * units).map(|k| 0.3 * random::normal(seed * 10 + i as u64, k as u64)).collect();
            let w = Tensor::new(vec![inputs, units], numbers).unwrap();
            let w = graph.add_constant(format!("w{i}"), w).unwrap();
            x = graph.add_node(format!("fc{i}"), MatMul, vec![Some(x), Some(w)], format!("product{i}")).unwrap();
            if i < 2 {
                x = graph.add_node(format!("relu{i}"), Relu, vec![Some(x)], format!("hidden{i}")).unwrap();
            }
        }
        graph.add_output(x);
        return graph;
    }
    let shape = Shape { input: vec![3, 16, 16], outputs: 4, mean: vec![0.4; 3], std: vec![0.6; 3] };
    architecture::build(architecture, &shape, 0.25, seed).unwrap()
}

fn feed(graph: &Graph) -> Feed {
    noise(graph, 60)
}

/// The bytes of two networks zipped, or nothing if `stop` says so.
fn zipped(architecture: &str, options: &ZipOptions, mut stop: impl FnMut(usize, &str) -> bool) -> Option<Vec<u8>> {
    let (a, b) = (network(architecture, 1), network(architecture, 2));
    let feed = feed(&a);
    let start =
        Joint::from_networks(vec![Joint::single("a".into(), a).unwrap(), Joint::single("b".into(), b).unwrap()]);
    let task = |name: &str| TaskData::new(name, &feed);
    let progress = |now: Progress| match stop(now.layer, &now.stage.to_string()) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let joint = zip(start.unwrap(), &[task("a"), task("b")], options, progress).ok()?.joint;
    Some(onnx::to_bytes(&joint_file::to_graph(&joint, false).unwrap()).unwrap())
}

fn options(folder: Option<&Path>) -> ZipOptions {
    ZipOptions::new(Recipe::Best).with(|o| {
        o.retraining.iterations = 1;
        o.retraining.batch_size = 8;
        o.resources.checkpoint = folder.map(Path::to_owned);
    })
}

#[test]
fn a_killed_run_goes_on_to_the_same_bytes() {
    for architecture in ["lenet-5", "resnet-20", "mobilenet-v2", "densenet-22", AS_KERAS] {
        // One sample at a time: of more, products come out the same with any layout.
        let batch_size = if architecture == AS_KERAS { 1 } else { 8 };
        let options = |folder| options(folder).with(|o| o.retraining.batch_size = batch_size);
        let whole = zipped(architecture, &options(None), |_, _| false).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let depth = Joint::single("a".into(), network(architecture, 1)).unwrap().depth();
        // Again and again, each time a little later: in the statistics of a layer, and while it is merged.
        let moments = [
            (0, "statistics"),
            (1, "merging"),
            (depth / 2, "statistics"),
            (depth - 1, "merging"),
            (depth - 1, "retraining 1/"),
        ];
        for (step, what) in moments {
            let killed = zipped(architecture, &options(Some(folder.path())), |layer, doing| {
                layer == step && doing.starts_with(what)
            });
            assert!(killed.is_none(), "{architecture} went past layer {step}");
        }
        let mut first = None;
        let resumed = zipped(architecture, &options(Some(folder.path())), |layer, _| {
            first.get_or_insert(layer);
            false
        });
        assert_eq!(first, Some(depth - 1), "{architecture} began anew");
        assert!(resumed.unwrap() == whole, "{architecture}: other bytes");
        // What is finished is not done again.
        assert!(zipped(architecture, &options(Some(folder.path())), |_, _| true).unwrap() == whole);
    }
}

#[test]
fn a_checkpoint_with_an_altered_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(Some(folder.path()));
    assert!(zipped("lenet-5", &options, |layer, _| layer == 2).is_none());
    let model = folder.path().join("joint-2.onnx");
    let mut bytes = std::fs::read(&model).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&model, &bytes).unwrap();
    assert!(zipped("lenet-5", &options, |_, _| false).is_none(), "an altered model was used");
    bytes[middle] ^= 1;
    std::fs::write(&model, &bytes).unwrap();
    assert!(zipped("lenet-5", &options, |_, _| false).is_some());
}

#[test]
fn a_finished_part_of_a_search_is_not_retrained_again() {
    let (a, b) = (network("lenet-5", 1), network("lenet-5", 2));
    let feed = feed(&a);
    let start =
        Joint::from_networks(vec![Joint::single("a".into(), a).unwrap(), Joint::single("b".into(), b).unwrap()]);
    let start = start.unwrap();
    let tasks = ["a", "b"].map(|name| TaskData { test: None, ..TaskData::whole(name, &feed, &feed) });
    let budget = Budget { target_bytes: Some(file_bytes(&start).unwrap() / 5 * 4), ..Budget::default() };
    let folder = tempfile::tempdir().unwrap();
    let options = options(Some(folder.path()));
    let run = || {
        let (mut steps, mut models) = (0, Vec::new());
        let listen = |(_, what): (usize, &str)| {
            steps += usize::from(what.contains("retraining"));
            ControlFlow::Continue(())
        };
        let keep = |_: &BudgetPoint, joint: &Joint| {
            models.push(onnx::to_bytes(&joint_file::to_graph(joint, false)?)?);
            Ok(())
        };
        search(&start, &tasks, &options, &budget, file_bytes, listen, keep).unwrap();
        (steps, models)
    };
    let (first, second) = (run(), run());
    assert!(first.0 > 0 && second.0 == 0, "{} steps of retraining, then {}", first.0, second.0);
    assert!(first.1.len() > 2 && first.1 == second.1, "other models");
}

#[test]
fn any_number_of_threads_zips_to_the_same_bytes() {
    for architecture in ["lenet-5", "resnet-20"] {
        let of = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| zipped(architecture, &options(None), |_, _| false)).unwrap()
        };
        let one = of(1);
        assert!([2, 3].into_iter().all(|threads| of(threads) == one), "{architecture}");
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(zipped("lenet-5", &options(Some(folder.path())), |_, _| false).is_some());
    let other = options(Some(folder.path())).with(|o| o.seed = 1);
    assert!(zipped("lenet-5", &other, |_, _| false).is_none());
    std::fs::write(folder.path().join("state.json"), "{").unwrap();
    assert!(zipped("lenet-5", &options(Some(folder.path())), |_, _| false).is_none());
}

#[test]
fn values_kept_between_layers_are_what_would_be_computed_anew() {
    for architecture in ["mobilenet-v2", "resnet-20", "resnet-20-v2", "densenet-22"] {
        let (merged, original) = (network(architecture, 1), network(architecture, 2));
        let feed = feed(&merged);
        let mut walks = ActivationCaches::default();
        for layer in Layer::all(&merged).unwrap() {
            let from = |cache_bytes| Calibration {
                batch_size: 16,
                cache_bytes,
                ..Calibration::new(&feed, (0..60).collect(), 0)
            };
            let see = |room, walks: &mut ActivationCaches| {
                layer_statistics(&merged, Some(&original), &layer, &from(room), walks).unwrap().moments
            };
            let (kept, anew) = (see(1 << 30, &mut walks), see(0, &mut ActivationCaches::default()));
            assert_eq!(kept.cross(), anew.cross(), "{architecture} {}", layer.name);
            assert!((0..kept.size()).all(|i| kept.product(i, 0) == anew.product(i, 0)));
        }
    }
}
