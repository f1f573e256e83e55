//! What counts as right and wrong, for every kind of output and label.
#![allow(clippy::unwrap_used)]

use mtz::data::{Dataset, Feed, Labels, Normalisation, SampleSource};
use mtz::error::Result;
use mtz::evaluate::{Evaluation, EvaluationOptions, evaluate};
use mtz::graph::{Graph, ValueId};
use mtz::op::*;
use mtz::run::DEFAULT_MEMORY;
use mtz::tensor::{Dim, Shape};

/// Rows of numbers that serve as the network's scores.
struct Rows(Vec<Vec<f32>>, Vec<usize>);

impl SampleSource for Rows {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn shape(&self) -> &[usize] {
        &self.1
    }

    fn is_bytes(&self) -> bool {
        false
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        out.copy_from_slice(&self.0[index]);
        Ok(())
    }
}

/// Evaluates a network made by `build` from an input of `width` numbers on these rows.
fn judge(
    rows: &[&[f32]],
    labels: Labels,
    fixed: bool,
    build: fn(&mut Graph, ValueId) -> ValueId,
) -> Result<Evaluation> {
    let width = rows[0].len();
    let mut graph = Graph::new("test");
    let batch = if fixed { Dim::Fixed(2) } else { Dim::Batch(1) };
    let x = graph.add_input("x", Shape::new(vec![batch, Dim::Fixed(width)]).unwrap());
    let y = build(&mut graph, x);
    graph.add_output(y);
    let samples = Rows(rows.iter().map(|r| r.to_vec()).collect(), vec![width]);
    let dataset = Dataset::new(Box::new(samples), Some(labels));
    let feed = Feed::new(dataset, &graph, Normalisation::default()).unwrap();
    evaluate(&graph, &feed, EvaluationOptions::new(2, DEFAULT_MEMORY), |_| {})
}

fn one(graph: &mut Graph, op: impl Into<Op>, x: ValueId) -> ValueId {
    let name = format!("v{}", graph.values().len());
    graph.add_node(name.clone(), op, vec![Some(x)], name).unwrap()
}

fn plain(graph: &mut Graph, x: ValueId) -> ValueId {
    one(graph, Identity, x)
}

const ROWS: [&[f32]; 3] = [&[2.0, 1.0, 0.0], &[0.0, 3.0, 0.0], &[0.0, 0.0, 1.0]];

fn classes(list: &[u32]) -> Labels {
    Labels::Classes(list.to_vec())
}

#[test]
fn classes_from_logits_probabilities_and_logarithms() {
    let networks: [fn(&mut Graph, ValueId) -> ValueId; 4] = [
        plain,
        |g, x| one(g, Softmax { axis: 1 }, x),
        |g, x| one(g, LogSoftmax { axis: 1 }, x),
        |g, x| {
            let p = one(g, Softmax { axis: 1 }, x);
            one(g, Clip { min: 1e-6, max: 1.0 }, p)
        },
    ];
    // −log softmax of the right class: by hand for the three rows.
    let expected = [(2.0f64, [2.0, 1.0, 0.0]), (3.0, [0.0, 3.0, 0.0]), (0.0, [0.0, 0.0, 1.0])]
        .map(|(score, row): (f64, [f64; 3])| row.iter().map(|x| x.exp()).sum::<f64>().ln() - score);
    for network in networks {
        for fixed in [false, true] {
            let result = judge(&ROWS, classes(&[0, 1, 1]), fixed, network).unwrap();
            assert!((result.error - 100.0 / 3.0).abs() < 1e-9 && result.samples == 3);
            assert!((result.loss - expected.iter().sum::<f64>() / 3.0).abs() < 1e-5, "{}", result.loss);
        }
    }
}

#[test]
fn attributes_and_binary_classes() {
    let rows: [&[f32]; 2] = [&[1.5, -0.5], &[-2.0, 3.0]];
    let truth = Labels::Attributes { count: 2, values: vec![true, true, false, true] };
    let networks: [fn(&mut Graph, ValueId) -> ValueId; 3] = [
        plain,
        |g, x| one(g, Sigmoid, x),
        |g, x| {
            let p = one(g, Sigmoid, x);
            one(g, Clip { min: 1e-7, max: 0.9999 }, p)
        },
    ];
    for network in networks {
        let result = judge(&rows, truth.clone(), false, network).unwrap();
        assert_eq!(result.error, 25.0);
        let expected = [1.5f64, -0.5, 2.0, 3.0].map(|x| (-x).exp().ln_1p()).iter().sum::<f64>() / 4.0;
        assert!((result.loss - expected).abs() < 1e-3, "{}", result.loss);
    }
    // One score for two classes: positive means class 1.
    let result = judge(&[&[1.0], &[-1.0], &[2.0]], classes(&[1, 0, 0]), false, plain).unwrap();
    assert!((result.error - 100.0 / 3.0).abs() < 1e-9);
}

#[test]
fn not_a_number_is_never_right() {
    // The root of a negative number is none; samples themselves may not be NaN.
    let roots: fn(&mut Graph, ValueId) -> ValueId = |g, x| one(g, Sqrt, x);
    let result = judge(&[&[-1.0, 0.0], &[-1.0, -1.0]], classes(&[0, 0]), false, roots).unwrap();
    assert_eq!(result.error, 100.0);
}

#[test]
fn outputs_that_are_not_rows_of_scores_are_refused() {
    let networks: [fn(&mut Graph, ValueId) -> ValueId; 3] = [
        |g, x| one(g, Transpose { permutation: vec![1, 0] }, x),
        |g, x| one(g, Reshape { target: vec![None, Some(1)] }, x),
        |g, x| one(g, Reshape { target: vec![None, Some(3), Some(1)] }, x),
    ];
    for (network, fine) in networks.into_iter().zip([false, false, true]) {
        assert_eq!(judge(&ROWS, classes(&[0, 1, 2]), false, network).is_ok(), fine);
    }
    let too_high = judge(&ROWS, classes(&[0, 1, 3]), false, plain).unwrap_err().to_string();
    assert!(too_high.contains("go up to 3") && too_high.contains("3 classes"), "{too_high}");
}
