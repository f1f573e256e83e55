//! One network, trained on labels: whole epochs, and the best on held-out data kept.

use super::checkpoint::TrainingCheckpoint;
use super::learn::{Goal, Learner, Rule, learn};
use super::optimizer::OptimizerKind;
use super::parameters::{Bindings, Parameters};
use super::schedule::Schedule;
use crate::data::Augmentation;
use crate::data::Feed;
use crate::error::{Error, Result};
use crate::evaluate::{Evaluation, EvaluationOptions, evaluate_on};
use crate::graph::Graph;
use crate::random;
use crate::run::CpuEngine;
use std::ops::ControlFlow;

/// How to train.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// Passes over the data.
    pub epochs: usize,
    /// How a step is taken.
    pub rule: Rule,
    /// The share of the samples that is held out and measured after every epoch.
    pub validation: f32,
    /// Keep the epoch that is best on held-out samples instead of the last. Their error is then no honest test error.
    pub keep_best: bool,
    /// Bytes an evaluation may take.
    pub memory: u64,
}

impl Fit {
    /// What suits a network, by what it is made of; found by trying on MNIST and CIFAR-10.
    pub fn usual(graph: &Graph) -> Self {
        let count = |name: &str| graph.nodes().iter().filter(|n| n.op.name() == name).count();
        let (epochs, rate, weight_decay, shift) = match (count("Conv"), count("BatchNormalization")) {
            (0, _) => (12, 0.05, 1e-4, 0),
            (_, 0) => (10, 0.02, 5e-4, 0),
            // Wide layers without normalisation behind those with it (VGG).
            _ if count("Gemm") > 1 => (25, 0.05, 4e-4, 2),
            _ => (25, 0.1, 4e-4, 2),
        };
        let rule = Rule {
            batch_size: 64,
            rate,
            schedule: Schedule::OneCycle,
            optimizer: OptimizerKind::Sgd { momentum: 0.9, nesterov: true },
            weight_decay,
            augmentation: Augmentation { shift, flip: false },
            seed: 0,
        };
        Self { epochs, rule, validation: 0.0, keep_best: false, memory: crate::run::DEFAULT_MEMORY }
    }
}

/// News from a training run.
#[derive(Clone, Copy, Debug)]
pub struct TrainingProgress {
    /// Steps done and all steps.
    pub step: (usize, usize),
    /// Samples seen so far.
    pub samples: usize,
    /// The loss of the last step.
    pub loss: f64,
    /// Error on held-out data after the last epoch.
    pub validation: Option<Evaluation>,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct TrainingReport {
    /// The trained network: the best on held-out data if that was asked for, otherwise (or if it was stopped) the last.
    pub graph: Graph,
    /// Steps done.
    pub steps: usize,
    /// Error on held-out data of the network kept.
    pub validation: Option<Evaluation>,
    /// Whether it was stopped before the end.
    pub stopped: bool,
}

/// The best epoch so far.
struct Best {
    result: Evaluation,
    parameters: Vec<Vec<f32>>,
}

/// Trains `graph` on these samples of a labelled set. `progress` hears of every step and may stop the run; what has
/// been learned by then is returned. With a `checkpoint` a run that was killed is resumed; what it measured on held-out
/// samples before that is forgotten.
pub fn fit(
    graph: &Graph,
    feed: &Feed,
    samples: &[usize],
    how: &Fit,
    checkpoint: Option<&TrainingCheckpoint>,
    mut progress: impl FnMut(TrainingProgress) -> ControlFlow<()>,
) -> Result<TrainingReport> {
    if graph.outputs().len() != 1 {
        return Err(Error::unsupported("training needs a network with one output"));
    }
    let (train, held_out) = split(samples, how.validation, how.rule.seed);
    let batch = how.rule.batch_size.min(train.len()).max(1);
    let steps_per_epoch = (train.len() / batch).max(1);
    let mut parameters = Parameters::new();
    let bindings = Bindings::of(graph, &mut parameters);
    let steps = how.epochs * steps_per_epoch;
    let learner = Learner {
        graph,
        bindings: bindings.clone(),
        feed,
        samples: train,
        goal: Goal::Labels,
        weight: 1.0,
        batch_factor: 1.0,
        mirrored: false,
    };
    let mut best: Option<Best> = None;
    let mut stopped = false;
    let done =
        learn(&mut parameters, &[learner], steps, &how.rule, checkpoint, &CpuEngine, |step, losses, parameters| {
            if step.is_multiple_of(steps_per_epoch) && !held_out.is_empty() {
                let now = bindings.apply(graph, parameters)?;
                let options = EvaluationOptions::new(how.rule.batch_size, how.memory);
                let result = evaluate_on(&now, feed, &held_out, options, |_| {})?;
                let better =
                    best.as_ref().is_none_or(|b| (result.error, result.loss) <= (b.result.error, b.result.loss));
                if better || !how.keep_best {
                    best = Some(Best { result, parameters: parameters.snapshot() });
                }
            }
            let now = TrainingProgress {
                step: (step, steps),
                samples: step * batch,
                loss: losses.iter().sum(),
                validation: best.as_ref().map(|b| b.result),
            };
            let flow = progress(now);
            stopped = flow.is_break() && step < steps;
            Ok(flow)
        })?;
    let validation = best.as_ref().map(|b| b.result);
    if let Some(best) = best.filter(|_| !stopped) {
        parameters.restore(&best.parameters);
    }
    Ok(TrainingReport { graph: bindings.apply(graph, &parameters)?, steps: done, validation, stopped })
}

/// The samples to learn from and those held out, chosen at random but always the same for a seed.
fn split(samples: &[usize], share: f32, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let count = samples.len();
    let held = ((count as f32 * share) as usize).min(count.saturating_sub(1));
    let order = random::permutation(random::bits(seed, 0), count);
    let order: Vec<usize> = order.into_iter().filter_map(|i| samples.get(i).copied()).collect();
    let (held, train) = order.split_at(held);
    let mut held = held.to_vec();
    held.sort_unstable();
    (train.to_vec(), held)
}
