//! Zipping: what must hold for any networks.
#![allow(clippy::unwrap_used, clippy::panic)]

mod noise;

use mtz::architecture::{self, NetworkSpec as Shape};
use mtz::data::{self, Feed, Normalisation, OpenOptions, Part};
use mtz::graph::Graph;
use mtz::joint_file;
use mtz::merge::{Align, Matching, Recipe};
use mtz::run::Runner;
use mtz::sharing::Share;
use mtz::sharing::{FreeNorm, Joint, Layer, permute_hidden};
use mtz::zip::{TaskData, ZipOptions, Zipped, zip};
use std::ops::ControlFlow;
use std::path::Path;

/// Mean and deviation of the input, which every task has of its own.
const NORMALISATION: usize = 2;

fn network(architecture: &str, seed: u64) -> Graph {
    let shape = Shape { input: vec![1, 28, 28], outputs: 10, mean: vec![0.13], std: vec![0.31] };
    architecture::build(architecture, &shape, 0.2, seed).unwrap()
}

fn digits(graph: &Graph, part: Part) -> Feed {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist");
    let data = data::locate(&folder).unwrap().part(part).open(&OpenOptions::default()).unwrap();
    Feed::new(data, graph, Normalisation::default()).unwrap()
}

fn options(share: Share, recipe: Recipe) -> ZipOptions {
    ZipOptions::new(recipe).with(|o| {
        o.sharing.share = share;
        o.sharing.matching = Matching::Optimal;
        o.fitting.ridge = if recipe == Recipe::Best { 1e-3 } else { 1e-9 };
        o.fitting.calibration = 1000;
        o.fitting.shift = 0;
        o.retraining.iterations = 0;
        o.retraining.batch_size = 32;
    })
}

fn together(parts: Vec<Joint>, options: &ZipOptions) -> Zipped {
    let start = Joint::from_networks(parts).unwrap();
    let test = digits(&start.members[0].graph, Part::Test);
    let task = |m: &mtz::sharing::Member| TaskData {
        test: Some((&test, (0..500).collect())),
        ..TaskData::new(&m.name, &test)
    };
    let tasks: Vec<TaskData> = start.members.iter().map(task).collect();
    zip(start, &tasks, options, |_| ControlFlow::Continue(())).unwrap()
}

fn single(name: &str, graph: Graph) -> Joint {
    Joint::single(name.into(), graph).unwrap()
}

fn outputs(graph: &Graph) -> Vec<f32> {
    let feed = digits(graph, Part::Test);
    let x = feed.batch(&(0..64).collect::<Vec<_>>()).unwrap();
    Runner::new(graph).run(&[x]).unwrap()[0].data().to_vec()
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    let scale = a.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / scale
}

/// A network and itself with its hidden units in another order are one network.
#[test]
fn a_permutation_is_found() {
    for architecture in ["lenet-300-100", "lenet-5"] {
        let a = network(architecture, 1);
        let b = permute_hidden(&a, 7).unwrap();
        for recipe in [Recipe::Paper, Recipe::Best] {
            let zipped = together(vec![single("a", a.clone()), single("b", b.clone())], &options(Share::All, recipe));
            assert_eq!(zipped.layers.last().unwrap().error_after, zipped.error_before);
            for (member, original) in zipped.joint.members.iter().zip([&a, &b]) {
                let off = distance(&outputs(original), &outputs(&member.graph));
                assert!(off < 1e-3, "{architecture} {recipe:?}: outputs moved by {off}");
            }
            // Hidden parameters are stored once, heads twice.
            let head = zipped.joint.members[0].layers.last().unwrap();
            let head = head.units * (head.columns() + 1);
            let hidden = a.parameters() - head - NORMALISATION;
            assert_eq!(zipped.joint.parameters(), (hidden + 2 * (head + NORMALISATION), hidden));
        }
    }
}

#[test]
fn nothing_shared_is_the_original_bit_for_bit() {
    let (a, b) = (network("lenet-5", 1), network("lenet-5", 2));
    for recipe in [Recipe::Paper, Recipe::Best] {
        let zipped = together(vec![single("a", a.clone()), single("b", b.clone())], &options(Share::Count(0), recipe));
        let file = onnx_and_back(&zipped.joint);
        for (original, member) in [&a, &b].into_iter().zip(&file.members) {
            let weights = |g: &Graph| {
                let layers = Layer::all(g).unwrap();
                layers.iter().map(|l| l.read(g)).collect::<Vec<_>>()
            };
            assert!(weights(original) == weights(&member.graph), "{recipe:?}: weights changed");
            assert_eq!(outputs(original), outputs(&member.graph));
        }
    }
}

/// Convolutions without bias whose inputs are all private have no weight to share; what reads them has.
#[test]
fn units_with_nothing_in_common_can_be_one() {
    let networks = vec![single("a", network("resnet-20", 1)), single("b", network("resnet-20", 2))];
    let private = vec![("conv1".to_owned(), Share::Count(0))];
    let options = options(Share::All, Recipe::Best).with(|o| {
        o.sharing.share_of = private;
        o.sharing.align = Some(Align::Shared);
    });
    let zipped = together(networks, &options);
    assert_eq!(zipped.layers[0].merged.shared, 0);
    assert!(zipped.layers[1].merged.shared > 0);
    let (first, back) = (&zipped.joint, onnx_and_back(&zipped.joint));
    for (a, b) in first.members.iter().zip(&back.members) {
        assert!(outputs(&a.graph).iter().all(|x| x.is_finite()));
        assert_eq!(outputs(&a.graph), outputs(&b.graph));
    }
}

fn onnx_and_back(joint: &Joint) -> Joint {
    let bytes = mtz::onnx::to_bytes(&joint_file::to_graph(joint, false).unwrap()).unwrap();
    joint_file::from_graph(&mtz::onnx::parse(&bytes).unwrap()).unwrap().unwrap()
}

/// The file holds each shared number once, and gives back the same model.
#[test]
fn the_file_is_the_model() {
    let networks = || (1..4).map(|seed| single(&format!("task {seed}"), network("lenet-300-100", seed))).collect();
    for share in [Share::All, Share::Fraction(0.5), Share::Count(3)] {
        let zipped = together(networks(), &options(share, Recipe::Best));
        let graph = joint_file::to_graph(&zipped.joint, true).unwrap();
        assert_eq!((graph.inputs().len(), graph.outputs().len()), (1, 3));
        let (stored, shared) = zipped.joint.parameters();
        let numbers: usize = graph.values().iter().filter_map(|v| v.constant.as_ref()).map(|t| t.data().len()).sum();
        // Mean and deviation of the input are the tasks' own and no parameters.
        assert!(numbers >= stored && numbers <= stored + 3 * 4, "{numbers} numbers for {stored} parameters");
        assert!(shared > 0);
        let back = onnx_and_back(&zipped.joint);
        assert_eq!(back.parameters(), (stored, shared));
        for (a, b) in zipped.joint.members.iter().zip(&back.members) {
            assert_eq!((&a.name, &a.units), (&b.name, &b.units));
            assert_eq!(outputs(&a.graph), outputs(&b.graph));
        }
    }
}

/// A task can join a joint model later; what was shared stays shared.
#[test]
fn a_task_joins_a_joint_model() {
    let first = together(
        (1..3).map(|seed| single(&format!("t{seed}"), network("lenet-300-100", seed))).collect(),
        &options(Share::All, Recipe::Best),
    );
    let before = first.joint.parameters();
    let joined =
        together(vec![first.joint, single("t3", network("lenet-300-100", 3))], &options(Share::All, Recipe::Best));
    let after = joined.joint.parameters();
    let head = joined.joint.members[0].layers.last().unwrap();
    assert_eq!(after.0, before.0 + head.units * (head.columns() + 1) + NORMALISATION);
    assert_eq!(after.1, before.1);
}

/// Shared units are one number in all tasks, also after retraining.
#[test]
fn shared_weights_stay_one() {
    let how = options(Share::Fraction(0.5), Recipe::Best).with(|o| o.retraining.iterations = 5);
    let zipped = together((1..3).map(|seed| single(&format!("t{seed}"), network("lenet-5", seed))).collect(), &how);
    assert_eq!(zipped.iterations, 15);
    let mut seen = std::collections::BTreeMap::new();
    let mut twice = 0;
    for (t, member) in zipped.joint.members.iter().enumerate() {
        for (l, layer) in member.layers.iter().enumerate() {
            let columns = zipped.joint.columns(t, l);
            for (row, unit) in layer.read(&member.graph).chunks(layer.columns() + 1).zip(&member.units[l]) {
                for (x, column) in row.iter().zip(&columns) {
                    let known = *seen.entry((l, *unit, *column)).or_insert(*x);
                    assert_eq!(known.to_bits(), x.to_bits());
                    twice += usize::from(known.to_bits() == x.to_bits());
                }
            }
        }
    }
    assert_eq!(twice - seen.len(), zipped.joint.parameters().1);
}

#[test]
fn networks_that_do_not_match_are_refused() {
    let error = |a: &str, b: &str| {
        let parts = vec![single("a", network(a, 1)), single("b", network(b, 2))];
        Joint::from_networks(parts).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let text = error("lenet-5", "lenet-300-100");
    assert!(text.contains("a has 4 layers, b has 3, 2 of them correspond"), "{text}");
    assert!(text.contains(r#"layer 1 is "conv1" (Conv 5×5) in a"#) && text.contains(r#""fc1" (Gemm) in b"#), "{text}");
    let twice = Joint::from_networks(vec![single("a", network("lenet-5", 1)), single("a", network("lenet-5", 2))]);
    assert!(twice.unwrap_err().to_string().contains("two tasks"));
}

/// Networks of different input sizes and widths, and fewer samples than inputs: what is missing in one has no weight.
#[test]
fn sizes_may_differ() {
    let build = |side: usize, outputs: usize, width: f64| {
        let shape = Shape { input: vec![1, side, side], outputs, mean: vec![0.5], std: vec![0.3] };
        architecture::build("lenet-300-100", &shape, width, side as u64).unwrap()
    };
    let (a, b) = (build(28, 10, 0.2), build(14, 3, 0.1));
    let feeds = [noise::noise(&a, 300), noise::noise(&b, 300)];
    for calibration in [300, 60] {
        let start = Joint::from_networks(vec![single("a", a.clone()), single("b", b.clone())]).unwrap();
        let tasks = ["a", "b"].iter().zip(&feeds).map(|(name, feed)| TaskData::new(name, feed));
        let tasks: Vec<TaskData> = tasks.collect();
        let how = options(Share::All, Recipe::Best).with(|o| o.fitting.calibration = calibration);
        let zipped = zip(start, &tasks, &how, |_| ControlFlow::Continue(())).unwrap();
        // 30 of 60 units are shared, each with the 196 pixels both have.
        assert_eq!(zipped.layers[0].merged.shared, 30);
        let (first, second) = (30 * (196 + 1), 10 * (30 + 1));
        assert_eq!(zipped.joint.parameters().1, first + second);
        let file = onnx_and_back(&zipped.joint);
        for ((member, written), feed) in zipped.joint.members.iter().zip(&file.members).zip(&feeds) {
            let x = feed.batch(&[0, 1, 2]).unwrap();
            let run = |graph: &Graph| Runner::new(graph).run(std::slice::from_ref(&x)).unwrap()[0].data().to_vec();
            assert_eq!(run(&member.graph), run(&written.graph));
        }
    }
}

/// The paper's baseline takes the weights of one side as they are.
#[test]
fn random_sharing_copies_weights() {
    let (a, b) = (network("lenet-300-100", 1), network("lenet-300-100", 2));
    let how = options(Share::All, Recipe::Paper).with(|o| o.sharing.matching = Matching::Random);
    let zipped = together(vec![single("a", a.clone()), single("b", b.clone())], &how);
    let rows = |graph: &Graph| {
        let layer = &Layer::all(graph).unwrap()[0];
        let rows: Vec<Vec<u32>> =
            layer.read(graph).chunks(layer.columns() + 1).map(|r| r.iter().map(|x| x.to_bits()).collect()).collect();
        rows
    };
    let (first, second) = (rows(&a), rows(&b));
    let mut from = [0, 0];
    for row in rows(&zipped.joint.members[0].graph) {
        from[0] += usize::from(first.contains(&row));
        from[1] += usize::from(second.contains(&row));
    }
    assert_eq!(from[0] + from[1], first.len());
    assert!(from[0] > 10 && from[1] > 10, "{from:?}");
}

/// One image for all tasks: only where all of them see images of one size.
#[test]
fn a_common_input_needs_one_shape() {
    let other = Shape { input: vec![1, 20, 20], outputs: 10, mean: vec![0.13], std: vec![0.31] };
    let other = architecture::build("lenet-300-100", &other, 0.2, 2).unwrap();
    let (a, b) = (network("lenet-300-100", 1), network("lenet-300-100", 2));
    let same = Joint::from_networks(vec![single("a", a.clone()), single("b", b)]).unwrap();
    assert!(joint_file::check_common_input(&same).is_ok());
    let different = Joint::from_networks(vec![single("a", a), single("b", other)]).unwrap();
    let error = joint_file::to_graph(&different, true).unwrap_err().to_string();
    assert!(error.contains("the input of b is [N, 1, 20, 20], that of a is [N, 1, 28, 28]"), "{error}");
}

/// Whatever the paper's recipe does to the sums of pre-activation blocks, normalised they have the mean and deviation
/// they had.
#[test]
fn normalisations_behind_sums_answer_as_before() {
    let shape = Shape { input: vec![3, 16, 16], outputs: 4, mean: vec![0.4; 3], std: vec![0.6; 3] };
    let network = |seed| architecture::build("resnet-20-v2", &shape, 0.25, seed).unwrap();
    let start = Joint::from_networks(vec![single("a", network(1)), single("b", network(2))]).unwrap();
    let feed = noise::noise(&start.members[0].graph, 60);
    let tasks = ["a", "b"].map(|name| TaskData { test: None, ..TaskData::whole(name, &feed, &feed) });
    let before = start.clone();
    let zipped = zip(start, &tasks, &options(Share::All, Recipe::Paper), |_| ControlFlow::Continue(())).unwrap();
    let spread = |graph: &Graph, value| -> Vec<(f32, f32)> {
        let images = feed.batch(&(0..60).collect::<Vec<_>>()).unwrap();
        let seen = Runner::with_taps(graph, &[value]).run(&[images]).unwrap().remove(0);
        let (channels, plane) = (seen.shape()[1], seen.shape()[2] * seen.shape()[3]);
        let of = |channel: usize| {
            let own = || seen.data().chunks(plane).skip(channel).step_by(channels).flatten();
            let mean = own().sum::<f32>() / (60 * plane) as f32;
            (mean, (own().map(|x| (x - mean).powi(2)).sum::<f32>() / (60 * plane) as f32).sqrt())
        };
        (0..channels).map(of).collect()
    };
    let mut moved = 0.0f32;
    for (member, original) in zipped.joint.members.iter().zip(&before.members) {
        let norms = FreeNorm::all(&member.graph, &member.layers);
        assert_eq!(norms.len(), 10);
        for norm in norms {
            let far = |value| {
                let (now, then) = (spread(&member.graph, value), spread(&original.graph, value));
                let far = |(a, b): (&(f32, f32), &(f32, f32))| ((a.0 - b.0).abs() + (a.1 - b.1).abs()) / (b.1 + 1e-6);
                now.iter().zip(&then).map(far).fold(0.0, f32::max)
            };
            moved = moved.max(far(norm.input));
            assert!(far(norm.output()) < 1e-2, "{}", far(norm.output()));
        }
    }
    assert!(moved > 0.1, "nothing had to be set right: {moved}");
}
