//! Gradients of every operator and of whole networks against PyTorch's and against finite differences.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;

use cases::golden;
use mtz::data::Archive;
use mtz::graph::{Graph, ValueId};
use mtz::op::{NAMES, Op};
use mtz::tensor::Tensor;
use mtz::train::{Binding, Bindings, Parameters, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

struct Case {
    name: String,
    graph: Graph,
    input: Tensor,
    r: Vec<f32>,
    output: Vec<f32>,
    /// By name of the weight, or `x` for the input.
    gradients: BTreeMap<String, Vec<f32>>,
    running: BTreeMap<String, Vec<f32>>,
}

fn cases() -> Vec<Case> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(golden().join("gradients")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let mut archive = Archive::open(&file).unwrap();
        let arrays = archive.names().to_vec();
        for name in arrays.iter().filter_map(|n| n.strip_suffix("/model")) {
            let mut read = |key: &str| {
                let array = archive.array(&format!("{name}/{key}")).unwrap();
                (array.full_shape(), array.numbers().unwrap())
            };
            let floats = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect::<Vec<_>>();
            let model: Vec<u8> = read("model").1.iter().map(|&b| b as u8).collect();
            let (shape, input) = read("in0");
            let mut map = |kind: &str| {
                let prefix = format!("{name}/{kind}/");
                let keys = arrays.iter().filter_map(|n| n.strip_prefix(&prefix));
                keys.map(|k| (k.to_owned(), floats(read(&format!("{kind}/{k}")).1))).collect::<BTreeMap<_, _>>()
            };
            let (gradients, running) = (map("grad"), map("running"));
            all.push(Case {
                graph: mtz::onnx::read_bytes(model.into(), None).unwrap_or_else(|e| panic!("{name}: {e}")),
                input: Tensor::new(shape, floats(input)).unwrap(),
                r: floats(read("r").1),
                output: floats(read("out0").1),
                gradients,
                running,
                name: name.to_owned(),
            });
        }
    }
    all
}

/// A parameter for every constant of the graph, whether training would change it or not.
fn bind_all(graph: &Graph, parameters: &mut Parameters) -> Bindings {
    let mut bindings = Bindings::of(graph, parameters);
    for id in graph.ids() {
        if let Some(tensor) = &graph[id].constant
            && bindings.get(id).is_none()
        {
            bindings.bind(id, Binding::Whole(parameters.add(tensor.data().to_vec(), false)));
        }
    }
    bindings
}

/// Fails unless all numbers are close, relative to the largest of them.
fn close(got: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-5 + tolerance * scale, "{what}: element {i} is {a}, should be {b} (of {scale})");
    }
}

/// The value called `key`. A weight that was reshaped or transposed while reading goes by the name of its layer, or is
/// the only one of its size.
fn find(graph: &Graph, key: &str, size: usize) -> (ValueId, bool) {
    let layer = key.split('.').next().unwrap();
    let same_size = |id: &ValueId| graph[*id].constant.as_ref().is_some_and(|t| t.data().len() == size);
    let named = graph.ids().find(|id| same_size(id) && graph[*id].name.contains(&format!("/{layer}/")));
    let only = || graph.ids().find(same_size);
    match graph.find(key) {
        Some(id) => (id, true),
        None => (named.or_else(only).unwrap_or_else(|| panic!("no value {key}")), false),
    }
}

#[test]
fn gradients_equal_pytorch() {
    let mut compared = 0;
    for case in cases() {
        let mut parameters = Parameters::new();
        let bindings = bind_all(&case.graph, &mut parameters);
        let batch = case.input.shape()[0];
        let mut program = Program::new(&case.graph, bindings, &parameters, batch, true);
        // Twice: the second pass uses buffers that are no longer fresh.
        for _ in 0..2 {
            parameters.clear_gradients();
            program.forward(&mut parameters, std::slice::from_ref(&case.input), 0).unwrap();
            program.backward(&mut parameters, &[&case.r]).unwrap();
        }
        let output = case.graph.outputs()[0];
        close(program.value(output).data, &case.output, 1e-4, &format!("{}: output", case.name));
        for (key, expected) in &case.gradients {
            let (id, in_order) = find(&case.graph, key, expected.len());
            let what = format!("{}: gradient of {key}", case.name);
            let mut got = match program.bindings().get(id) {
                Some(Binding::Whole(p)) => parameters.gradient(*p).to_vec(),
                _ => program.input_gradient(id).unwrap().to_vec(),
            };
            let mut expected = expected.clone();
            if !in_order {
                got.sort_by(f32::total_cmp);
                expected.sort_by(f32::total_cmp);
            }
            close(&got, &expected, 1e-3, &what);
            compared += 1;
        }
    }
    assert!(compared > 250, "only {compared} gradients");
}

#[test]
fn running_statistics_equal_pytorch() {
    let mut compared = 0;
    for case in cases() {
        let mut parameters = Parameters::new();
        let bindings = Bindings::of(&case.graph, &mut parameters);
        let mut program = Program::new(&case.graph, bindings, &parameters, case.input.shape()[0], false);
        program.forward(&mut parameters, std::slice::from_ref(&case.input), 0).unwrap();
        for (key, expected) in &case.running {
            let id = case.graph.find(key).unwrap();
            let Some(Binding::Whole(p)) = program.bindings().get(id) else { panic!("{}: {key}", case.name) };
            close(parameters.data(*p), expected, 1e-4, &format!("{}: {key}", case.name));
            compared += 1;
        }
    }
    assert!(compared > 50, "only {compared} statistics");
}

#[test]
fn every_operator_has_a_gradient_case() {
    let used: BTreeSet<&str> =
        cases().iter().flat_map(|c| c.graph.nodes().iter().map(|n| n.op.name()).collect::<Vec<_>>()).collect();
    // Dropout draws random numbers: it has a test of its own.
    let missing: Vec<_> = NAMES.iter().filter(|n| !used.contains(*n) && **n != "Dropout").collect();
    assert!(missing.is_empty(), "no gradient case for {missing:?}");
}

/// The change of Σ output · r along a random direction, by the gradients and by central differences.
#[test]
fn gradients_are_derivatives() {
    let mut tried = 0;
    // Operators with corners are compared with PyTorch only: a step may cross a corner.
    let corners = |op: &Op| {
        matches!(op.name(), "Relu" | "LeakyRelu" | "PRelu" | "Clip" | "HardSwish" | "HardSigmoid" | "MaxPool")
    };
    for case in cases().iter().filter(|c| !c.graph.nodes().iter().any(|n| corners(&n.op))) {
        let mut parameters = Parameters::new();
        let bindings = bind_all(&case.graph, &mut parameters);
        let output = case.graph.outputs()[0];
        let mut program = Program::new(&case.graph, bindings, &parameters, case.input.shape()[0], true);
        let direction: Vec<f32> =
            (0..case.input.data().len()).map(|i| mtz::random::uniform(3, i as u64) - 0.5).collect();
        let mut loss = |step: f32| {
            let data = case.input.data().iter().zip(&direction).map(|(x, d)| x + step * d).collect();
            let input = Tensor::new(case.input.shape().to_vec(), data).unwrap();
            program.forward(&mut parameters, &[input], 0).unwrap();
            program.value(output).data.iter().zip(&case.r).map(|(y, r)| f64::from(y * r)).sum::<f64>()
        };
        let step = 1e-2;
        let numeric = (loss(step) - loss(-step)) / (2.0 * f64::from(step));
        loss(0.0);
        program.backward(&mut parameters, &[&case.r]).unwrap();
        let input = program.input_gradient(case.graph.inputs()[0]).unwrap();
        let exact: f64 = input.iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
        let size: f64 = input.iter().zip(&direction).map(|(g, d)| f64::from((g * d).abs())).sum();
        assert!((numeric - exact).abs() < 1e-2 * size + 1e-4, "{}: {numeric} and {exact}", case.name);
        tried += 1;
    }
    assert!(tried > 35, "only {tried}");
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for case in cases() {
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut parameters = Parameters::new();
                let bindings = bind_all(&case.graph, &mut parameters);
                let mut program = Program::new(&case.graph, bindings, &parameters, case.input.shape()[0], true);
                program.forward(&mut parameters, std::slice::from_ref(&case.input), 0).unwrap();
                program.backward(&mut parameters, &[&case.r]).unwrap();
                let gradients = case.graph.ids().filter_map(|id| match program.bindings().get(id) {
                    Some(Binding::Whole(p)) => Some(parameters.gradient(*p)),
                    _ => program.input_gradient(id),
                });
                // As bits: the gradient of an exponent may be NaN.
                gradients.map(|g| g.iter().map(|x| x.to_bits()).collect::<Vec<_>>()).collect::<Vec<_>>()
            })
        };
        assert!(with(1) == with(4), "{}", case.name);
    }
}
