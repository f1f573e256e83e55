//! What training promises: masks hold, shared weights add up, the same seed gives the same bytes.
#![allow(clippy::unwrap_used)]

use mtz::architecture::{self, NetworkSpec};
use mtz::data::{Augmentation, Dataset, Feed, Labels, Normalisation, SampleSource};
use mtz::engine::CpuEngine;
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::op::{Dropout, Flatten, Gemm, Op, Sigmoid, Softmax};
use mtz::random;
use mtz::run::Runner;
use mtz::sharing::Joint;
use mtz::tensor::{Dim, Shape, Tensor};
use mtz::train::{
    Binding, Bindings, Fit, Goal, Imitation, Learner, Optimizer, OptimizerKind, Parameters, Program, Rule, Schedule,
    TrainingCheckpoint, TrainingReport, fit, learn, match_batch_statistics, recalibrate_batch_norm,
};
use mtz::zip::{self, RetrainingTarget, ZipOptions};
use std::ops::ControlFlow;
use std::time::Duration;

/// Images of two kinds, bright on the left or on the right, with noise.
struct Sides(Vec<usize>);

impl SampleSource for Sides {
    fn len(&self) -> usize {
        400
    }

    fn shape(&self) -> &[usize] {
        &self.0
    }

    fn is_bytes(&self) -> bool {
        false
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        for (i, x) in out.iter_mut().enumerate() {
            let bright = (i % 16 < 8) == index.is_multiple_of(2);
            *x = random::uniform(index as u64, i as u64) + if bright { 0.4 } else { 0.0 };
        }
        Ok(())
    }
}

fn feed(graph: &Graph) -> Feed {
    let labels = Labels::Classes((0..400).map(|i| i % 2).collect());
    let dataset = Dataset::new(Box::new(Sides(vec![1, 16, 16])), Some(labels));
    Feed::new(dataset, graph, Normalisation::default()).unwrap()
}

fn network(name: &str, seed: u64) -> Graph {
    let task = NetworkSpec { input: vec![1, 16, 16], outputs: 2, mean: vec![0.5], std: vec![0.3] };
    architecture::build(name, &task, 0.25, seed).unwrap()
}

fn how(epochs: usize) -> Fit {
    let rule = Rule {
        batch_size: 32,
        rate: 0.05,
        schedule: Schedule::OneCycle,
        optimizer: OptimizerKind::Sgd { momentum: 0.9, nesterov: true },
        weight_decay: 1e-4,
        augmentation: Augmentation { shift: 1, flip: false },
        seed: 7,
    };
    Fit { epochs, rule, validation: 0.2, keep_best: true, memory: 1 << 30 }
}

fn train(name: &str, how: &Fit, threads: usize) -> TrainingReport {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let graph = network(name, 3);
    pool.install(|| fit(&graph, &feed(&graph), &feed(&graph).all(), how, None, |_| ControlFlow::Continue(())).unwrap())
}

#[test]
fn networks_of_all_kinds_learn() {
    for name in ["lenet-300-100", "lenet-5", "resnet-20"] {
        let report = train(name, &how(4), 2);
        let error = report.validation.unwrap().error;
        assert!(error < 5.0, "{name}: {error} %");
        assert_eq!(report.steps, 4 * (320 / 32));
    }
}

#[test]
fn every_optimizer_learns() {
    for optimizer in [
        OptimizerKind::Sgd { momentum: 0.0, nesterov: false },
        OptimizerKind::Sgd { momentum: 0.9, nesterov: false },
        OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, decoupled: false },
        OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, decoupled: true },
    ] {
        let rate = if matches!(optimizer, OptimizerKind::Adam { .. }) { 0.002 } else { 0.05 };
        let rule = Rule { optimizer, rate, ..how(4).rule };
        let report = train("lenet-300-100", &Fit { rule, ..how(4) }, 2);
        assert!(report.validation.unwrap().error < 5.0, "{optimizer:?}: {:?}", report.validation);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_for_any_number_of_threads() {
    for name in ["lenet-5", "resnet-20"] {
        let slow = Fit { rule: Rule { rate: 0.01, ..how(1).rule }, ..how(1) };
        let bytes = |threads: usize| mtz::onnx::to_bytes(&train(name, &slow, threads).graph).unwrap();
        assert!(bytes(1) == bytes(3), "{name}");
    }
    let other = Fit { rule: Rule { seed: 8, ..how(1).rule }, ..how(1) };
    assert!(train("lenet-300-100", &how(1), 2).graph != train("lenet-300-100", &other, 2).graph);
}

#[test]
fn a_stopped_run_returns_what_it_has() {
    let graph = network("lenet-300-100", 3);
    let mut steps = 0;
    let report = fit(&graph, &feed(&graph), &feed(&graph).all(), &how(5), None, |_| {
        steps += 1;
        if steps == 13 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = report.unwrap();
    assert!(report.stopped && report.steps == 13 && report.graph != graph);
}

#[test]
fn a_killed_run_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let diary = TrainingCheckpoint::new(&path).every(Duration::ZERO);
    let adam = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, decoupled: true };
    for (name, optimizer) in [("resnet-20", how(1).rule.optimizer), ("lenet-5", adam)] {
        let rule = Rule { rate: 0.002, optimizer, ..how(2).rule };
        let how = Fit { validation: 0.0, keep_best: false, rule, ..how(2) };
        let graph = network(name, 3);
        let until = |last: usize, how: &Fit, diary: Option<&TrainingCheckpoint>| {
            let mut heard = Vec::new();
            let report = fit(&graph, &feed(&graph), &feed(&graph).all(), how, diary, |news| {
                heard.push(news.step.0);
                if news.step.0 == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            (report.unwrap().graph, heard)
        };
        let (whole, all) = until(usize::MAX, &how, None);
        until(13, &how, Some(&diary));
        // Of another run, or damaged: it begins anew.
        let other = Fit { rule: Rule { seed: 8, ..rule }, ..how };
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(until(2, &other, Some(&diary)).1, [1, 2]);
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(until(1, &how, Some(&TrainingCheckpoint::new(&path))).1, [1]);
        std::fs::write(&path, &bytes).unwrap();
        let (resumed, heard) = until(usize::MAX, &how, Some(&diary));
        assert_eq!(heard, all[13..]);
        assert!(resumed == whole, "{name}");
        // Killed before the result was saved: no step is taken again.
        assert!(until(usize::MAX, &how, Some(&diary)) == (whole, Vec::new()), "{name}");
        diary.close();
        assert!(!path.exists());
    }
}

#[test]
fn masked_weights_stay_exactly_zero() {
    let graph = network("lenet-300-100", 3);
    let mut parameters = Parameters::new();
    let bindings = Bindings::of(&graph, &mut parameters);
    let Some(Binding::Whole(fc1)) = bindings.get(graph.find("fc1.weight").unwrap()).cloned() else { unreachable!() };
    let mask: Vec<bool> = (0..parameters.data(fc1).len()).map(|i| i % 3 == 0).collect();
    parameters.set_mask(fc1, &mask).unwrap();
    assert!(parameters.set_mask(fc1, &[true]).is_err());
    let mut program = Program::new(&graph, bindings, &parameters, 8, false);
    for kind in [
        OptimizerKind::Sgd { momentum: 0.9, nesterov: true },
        OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, decoupled: true },
    ] {
        let before = parameters.data(fc1).to_vec();
        let mut optimizer = Optimizer::new(kind, 1e-2, &mut parameters);
        for step in 0..5 {
            let input = feed(&graph).batch(&(0..8).map(|i| step * 8 + i).collect::<Vec<_>>()).unwrap();
            parameters.clear_gradients();
            program.forward(&mut parameters, &[input], 0).unwrap();
            program.backward(&mut parameters, &[&[0.3; 16]]).unwrap();
            optimizer.step(&mut parameters, 0.1);
        }
        for (w, keep) in parameters.data(fc1).iter().zip(&mask) {
            assert!(if *keep { w.is_finite() } else { w.to_bits() == 0 }, "{w}");
        }
        assert_ne!(parameters.data(fc1), before);
    }
}

/// Two graphs that use chosen elements of one parameter: gradients of both add up where they overlap.
#[test]
fn shared_elements_collect_the_gradients_of_all_tasks() {
    let layer = |seed: u64| {
        let mut graph = Graph::new("task");
        let x = graph.add_input("x", Shape::new(vec![Dim::Batch(1), Dim::Fixed(3)]).unwrap());
        let weights = (0..6).map(|i| random::normal(seed, i)).collect();
        let w = graph.add_constant("w", Tensor::new(vec![3, 2], weights).unwrap()).unwrap();
        let y = graph.add_node("fc", Gemm::PLAIN, vec![Some(x), Some(w)], "y").unwrap();
        graph.add_output(y);
        (graph, w)
    };
    let mut parameters = Parameters::new();
    let shared = parameters.add((0..9).map(|i| i as f32).collect(), true);
    // Task a uses elements 0-5, task b 3-8 in reverse.
    let maps: [Vec<u32>; 2] = [(0..6).collect(), (3..9).rev().collect()];
    let inputs = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].map(|x| Tensor::new(vec![1, 3], x.to_vec()).unwrap());
    let grads = [[1.0, 10.0], [100.0, 1000.0]];
    let mut expected = [0.0; 9];
    for task in 0..2 {
        let (graph, w) = layer(task as u64);
        let mut bindings = Bindings::of(&graph, &mut Parameters::new());
        bindings.bind(w, Binding::Elements(shared, maps[task].clone().into()));
        let mut program = Program::new(&graph, bindings, &parameters, 1, false);
        program.forward(&mut parameters, &inputs[task..=task], 0).unwrap();
        // y = x W with W gathered from the parameter.
        let y = program.value(graph.outputs()[0]).data.to_vec();
        for o in 0..2 {
            let sum: f32 = (0..3).map(|i| inputs[task].data()[i] * maps[task][i * 2 + o] as f32).sum();
            assert_eq!(y[o], sum);
        }
        program.backward(&mut parameters, &[&grads[task]]).unwrap();
        for i in 0..3 {
            for o in 0..2 {
                expected[maps[task][i * 2 + o] as usize] += inputs[task].data()[i] * grads[task][o];
            }
        }
        // The graph with its weights filled in.
        let filled = program.bindings().apply(&graph, &parameters).unwrap();
        let gathered: Vec<f32> = maps[task].iter().map(|&i| i as f32).collect();
        assert_eq!(filled[w].constant.as_ref().unwrap().data(), gathered);
    }
    assert_eq!(parameters.gradient(shared), expected);
}

#[test]
fn dropout_keeps_the_mean_and_sends_gradients_through_what_was_kept() {
    let mut graph = Graph::new("dropout");
    let x = graph.add_input("x", Shape::new(vec![Dim::Batch(1), Dim::Fixed(10_000)]).unwrap());
    let y = graph.add_node("drop", Dropout { ratio: 0.3 }, vec![Some(x)], "y").unwrap();
    graph.add_output(y);
    let mut parameters = Parameters::new();
    let mut program = Program::new(&graph, Bindings::default(), &parameters, 1, true);
    let ones = Tensor::new(vec![1, 10_000], vec![1.0; 10_000]).unwrap();
    let mut run = |seed: u64| {
        program.forward(&mut parameters, std::slice::from_ref(&ones), seed).unwrap();
        let out = program.value(y).data.to_vec();
        program.backward(&mut parameters, &[&[2.0; 10_000]]).unwrap();
        let back: Vec<f32> = program.input_gradient(x).unwrap().to_vec();
        assert!(back.iter().zip(&out).all(|(g, y)| *g == 2.0 * y));
        out
    };
    let first = run(1);
    let dropped = first.iter().filter(|x| **x == 0.0).count();
    assert!((2800..3200).contains(&dropped), "{dropped}");
    assert!((first.iter().sum::<f32>() / 10_000.0 - 1.0).abs() < 0.03);
    assert!(run(1) == first && run(2) != first);
}

/// Who imitates a network that drops nothing drops nothing either.
#[test]
fn retraining_knows_no_dropout() {
    let retrained = |ratio: f32| -> Vec<Vec<f32>> {
        let mut graph = Graph::new("dropping");
        let x = graph
            .add_input("x", Shape::new(vec![Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(16), Dim::Fixed(16)]).unwrap());
        let mut value = graph.add_node("flatten", Flatten { axis: 1 }, vec![Some(x)], "flat").unwrap();
        for (i, (inputs, units)) in [(256, 8), (8, 2)].into_iter().enumerate() {
            let weights = (0..inputs * units).map(|k| random::uniform(i as u64, k as u64) - 0.5).collect();
            let weights = Tensor::new(vec![units, inputs], weights).unwrap();
            let weights = graph.add_constant(format!("w{i}"), weights).unwrap();
            let gemm = Gemm { alpha: 1.0, beta: 1.0, transpose_a: false, transpose_b: true };
            value = graph.add_node(format!("fc{i}"), gemm, vec![Some(value), Some(weights)], format!("y{i}")).unwrap();
            if i == 0 {
                value = graph.add_node("drop", Dropout { ratio }, vec![Some(value)], "dropped").unwrap();
            }
        }
        graph.add_output(value);
        let feed = feed(&graph);
        let mut joint = Joint::single("one".into(), graph.clone()).unwrap();
        let tasks = [zip::TaskData::whole("one", &feed, &feed)];
        let options = ZipOptions::new(Recipe::Best).with(|o| {
            o.retraining.target = RetrainingTarget::Labels;
            o.retraining.batch_size = 16;
        });
        let heard = |_: usize, _: &[f64]| ControlFlow::Continue(());
        let done = zip::Retraining { tasks: &tasks, originals: &[graph], options: &options, engine: &CpuEngine }
            .run(&mut joint, 3, None, heard)
            .unwrap();
        assert!(done.kept > 0.0, "nothing was learned");
        let values = joint.members[0].graph.values();
        values.iter().filter_map(|v| v.constant.as_ref()).map(|t| t.data().to_vec()).collect()
    };
    assert_eq!(retrained(0.5), retrained(0.0));
}

#[test]
fn architectures_have_the_sizes_they_are_known_for() {
    for (name, input, outputs, parameters) in [
        ("lenet-300-100", vec![1, 28, 28], 10, 266_610),
        ("lenet-5", vec![1, 28, 28], 10, 431_080),
        // 0.27 M in He et al. 2016; here with projections and four numbers per channel of batch norm.
        ("resnet-20", vec![3, 32, 32], 10, 270_906 + 4 * 784),
        // Kernels, head, and four numbers per channel of batch norm; 5.8 M in Rebuffi et al. 2017.
        ("resnet-28", vec![3, 64, 64], 10, 5_849_952 + 2_570 + 4 * 4_064),
        ("resnet-18", vec![3, 224, 224], 1000, 11_689_512 + 9_600),
    ] {
        let task = NetworkSpec { input, outputs, mean: vec![], std: vec![] };
        assert_eq!(architecture::build(name, &task, 1.0, 0).unwrap().parameters(), parameters, "{name}");
    }
    // Without batch norm and at 224 pixels, VGG-16 has 138,357,544; the head of 1000 and fc6's inputs make the rest.
    let task = NetworkSpec { input: vec![3, 32, 32], outputs: 10, mean: vec![], std: vec![] };
    let vgg = architecture::build("vgg-16", &task, 1.0, 0).unwrap();
    let convolutions = 14_710_464 + 4 * 4_224;
    assert_eq!(vgg.parameters(), convolutions + (512 + 1) * 4096 + (4096 + 1) * 4096 + 4097 * 10);
    assert!(architecture::build("vgg-99", &task, 1.0, 0).is_err());
    assert!(architecture::build("lenet-5", &NetworkSpec { input: vec![784], ..task.clone() }, 1.0, 0).is_err());
    assert!(architecture::build("vgg-16", &task, f64::NAN, 0).is_err());
}

/// Labels and the answers of a teacher can be learned at once: their losses add up.
#[test]
fn labels_and_a_teacher_add_up() {
    let (graph, teacher) = (network("lenet-300-100", 3), network("lenet-300-100", 4));
    let data = feed(&graph);
    let first = |temperature: Option<f32>, labels: bool| {
        let mut parameters = Parameters::new();
        let bindings = Bindings::of(&graph, &mut parameters);
        let answers =
            [temperature.map_or(Imitation::Ignored, |temperature| Imitation::Classes { axis: 1, temperature })];
        let goal = Goal::Teacher { graph: &teacher, answers: &answers, labels, features: 0.0 };
        let samples = (0..400).collect();
        let (weight, batch_factor, mirrored) = (1.0, 1.0, false);
        let learner = Learner { graph: &graph, bindings, feed: &data, samples, goal, weight, batch_factor, mirrored };
        let mut loss = 0.0;
        let rule = Rule { rate: 0.01, optimizer: OptimizerKind::Sgd { momentum: 0.0, nesterov: false }, ..how(1).rule };
        learn(&mut parameters, &[learner], 1, &rule, None, &CpuEngine, |_, losses, _| {
            loss = losses[0];
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        (loss, parameters.snapshot().concat())
    };
    let (labels, imitation, both) = (first(None, true), first(Some(4.0), false), first(Some(4.0), true));
    assert!(labels.0 > 0.1 && imitation.0 > 0.001 && (labels.0 + imitation.0 - both.0).abs() < 1e-6);
    // So do the gradients, and with them a plain step.
    let (_, before) = first(None, false);
    let step = |to: &[f32], i: usize| to[i] - before[i];
    for i in 0..before.len() {
        let sum = step(&labels.1, i) + step(&imitation.1, i);
        assert!((step(&both.1, i) - sum).abs() < 1e-5, "{i}");
    }
}

/// Running statistics are those of all samples afterwards, not of the last batches; nothing else changes.
#[test]
fn statistics_settle_on_all_samples() {
    let graph = network("resnet-20", 3);
    let data = feed(&graph);
    let norm = graph.nodes().iter().find(|n| n.op.name() == "BatchNormalization").unwrap();
    let (x, mean) = (norm.inputs[0].unwrap(), norm.inputs[3].unwrap());
    let images = data.batch(&(0..400).collect::<Vec<_>>()).unwrap();
    let seen = Runner::with_taps(&graph, &[x]).run(&[images]).unwrap().remove(0);
    let &[n, channels, height, width] = seen.shape() else { unreachable!() };
    let expected = |c: usize| {
        let planes = seen.data().chunks(height * width).skip(c).step_by(channels);
        planes.flatten().sum::<f32>() / (n * height * width) as f32
    };
    let mut parameters = Parameters::new();
    let bindings = Bindings::of(&graph, &mut parameters);
    let (samples, goal, weight, batch_factor, mirrored) = ((0..400).collect(), Goal::Labels, 1.0, 1.0, false);
    let learner = Learner {
        graph: &graph,
        bindings: bindings.clone(),
        feed: &data,
        samples,
        goal,
        weight,
        batch_factor,
        mirrored,
    };
    let rule = Rule { batch_size: 50, augmentation: Augmentation::default(), ..how(1).rule };
    recalibrate_batch_norm(&mut parameters, &[learner], 400, &rule, &CpuEngine).unwrap();
    let settled = bindings.apply(&graph, &parameters).unwrap();
    for (c, mean) in settled[mean].constant.as_ref().unwrap().data().iter().enumerate() {
        assert!((mean - expected(c)).abs() < 1e-4, "{mean} instead of {}", expected(c));
    }
    let weights = |graph: &Graph| {
        let layers = mtz::sharing::Layer::all(graph).unwrap();
        layers.iter().map(|l| graph[l.weight].constant.clone()).collect::<Vec<_>>()
    };
    assert_eq!(weights(&settled), weights(&graph));
}

/// Whatever images its running statistics come from: a network that retraining begins with answers as it did, and what
/// is learned is not lost in them.
#[test]
fn retraining_begins_where_it_stands() {
    // Statistics as they are before any training: those of no images.
    let original = network("resnet-20", 3);
    let data = feed(&original);
    let shaken = original.with_constants(|_, tensor| {
        let shake = |(k, x): (usize, &f32)| x * (1.0 + 0.2 * random::normal(5, k as u64));
        let numbers = tensor.data().iter().enumerate().map(shake).collect();
        if tensor.shape().len() == 4 { Tensor::new(tensor.shape().to_vec(), numbers) } else { Ok(tensor.clone()) }
    });
    let mut joint = Joint::single("one".into(), shaken.unwrap()).unwrap();
    let original = Joint::single("one".into(), original).unwrap().members.remove(0).graph;
    let (mut parameters, bindings) = mtz::train::bind(&joint).unwrap();
    let (samples, goal, weight, batch_factor, mirrored) = ((0..400).collect(), Goal::Labels, 1.0, 1.0, false);
    let graph = joint.members[0].graph.clone();
    let own = bindings[0].clone();
    let learner = Learner { graph: &graph, bindings: own, feed: &data, samples, goal, weight, batch_factor, mirrored };
    let rule = Rule { batch_size: 50, augmentation: Augmentation::default(), ..how(1).rule };
    match_batch_statistics(&mut parameters, std::slice::from_ref(&learner), 400, &rule).unwrap();
    let images = data.batch(&(0..50).collect::<Vec<_>>()).unwrap();
    let answers = |graph: &Graph| Runner::new(graph).run(std::slice::from_ref(&images)).unwrap().remove(0);
    let apart = |a: &Tensor, b: &Tensor| a.data().iter().zip(b.data()).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
    let size = answers(&graph).data().iter().map(|x| x * x).sum::<f32>();
    let moved = bindings[0].apply(&graph, &parameters).unwrap();
    assert!(apart(&answers(&graph), &answers(&moved)) < 1e-6 * size, "other answers");
    // Statistics that go with the images change next to nothing any more.
    recalibrate_batch_norm(&mut parameters, &[learner], 400, &rule, &CpuEngine).unwrap();
    let settled = bindings[0].apply(&graph, &parameters).unwrap();
    assert!(apart(&answers(&graph), &answers(&settled)) < 1e-2 * size, "other statistics");
    let tasks = [zip::TaskData::whole("one", &data, &data)];
    let options = ZipOptions::new(Recipe::Best).with(|o| {
        o.retraining.batch_size = 50;
        o.retraining.rate = 1e-3;
    });
    let options = options.with(|o| o.retraining.augmentation = Augmentation::default());
    let heard = |_: usize, _: &[f64]| ControlFlow::Continue(());
    let done = zip::Retraining { tasks: &tasks, originals: &[original], options: &options, engine: &CpuEngine }
        .run(&mut joint, 8, None, heard)
        .unwrap();
    assert!(done.kept > 0.0, "nothing was learned");
}

/// A network with one output tells two classes apart by its sign.
#[test]
fn one_output_learns_two_classes() {
    let task = NetworkSpec { input: vec![1, 16, 16], outputs: 1, mean: vec![0.5], std: vec![0.3] };
    let graph = architecture::build("lenet-300-100", &task, 0.25, 3).unwrap();
    let report = fit(&graph, &feed(&graph), &feed(&graph).all(), &how(4), None, |_| ControlFlow::Continue(())).unwrap();
    assert!(report.validation.unwrap().error < 5.0);
}

/// A network that ends in Softmax or Sigmoid, as Keras writes it, learns from what stands in front of that.
#[test]
fn a_final_softmax_or_sigmoid_learns_like_logits() {
    let weights = |graph: &Graph| -> Vec<Vec<f32>> {
        let report =
            fit(graph, &feed(graph), &feed(graph).all(), &how(1), None, |_| ControlFlow::Continue(())).unwrap();
        report.graph.values().iter().filter_map(|v| v.constant.as_ref()).map(|t| t.data().to_vec()).collect()
    };
    let one = NetworkSpec { input: vec![1, 16, 16], outputs: 1, mean: vec![0.5], std: vec![0.3] };
    let yes_or_no = architecture::build("lenet-300-100", &one, 0.25, 3).unwrap();
    let softmax: Op = Softmax { axis: 1 }.into();
    for (plain, op) in [(network("lenet-300-100", 3), softmax), (yes_or_no, Op::Sigmoid(Sigmoid))] {
        let mut ended = plain.clone();
        let end = ended.add_node("end", op, vec![Some(plain.outputs()[0])], "probabilities").unwrap();
        assert_eq!(weights(&plain), weights(&ended.with_outputs(vec![end])));
    }
}
