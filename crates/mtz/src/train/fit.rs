//! One network, trained on labels: whole epochs, and the best on held-out data kept.

use super::augment::Augmentation;
use super::learn::{Goal, Learner, Steps, learn};
use super::optimizer::OptimizerKind;
use super::parameters::{Bindings, Parameters};
use super::schedule::Schedule;
use crate::data::Feed;
use crate::error::{Error, Result};
use crate::evaluate::{Evaluation, Options, evaluate_on};
use crate::graph::Graph;
use crate::random;
use std::ops::ControlFlow;

/// How to train.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// Passes over the data.
    pub epochs: usize,
    /// Samples per step.
    pub batch_size: usize,
    /// The highest learning rate.
    pub rate: f32,
    /// How the rate changes.
    pub schedule: Schedule,
    /// The rule of a step.
    pub optimizer: OptimizerKind,
    /// Pulls weights towards zero.
    pub weight_decay: f32,
    /// Random changes to the images.
    pub augmentation: Augmentation,
    /// The share of the samples that is held out and measured after every epoch.
    pub validation: f32,
    /// Keep the epoch that is best on held-out samples instead of the last. Their error is then no honest test error.
    pub keep_best: bool,
    /// Where random numbers begin.
    pub seed: u64,
    /// Bytes an evaluation may take.
    pub memory: u64,
}

/// News from a training run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
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
pub struct Report {
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

/// Trains `graph` on labelled samples. `listen` hears of every step and may stop the run; what has been learned by then
/// is returned.
pub fn fit(
    graph: &Graph,
    feed: &Feed,
    how: &Fit,
    mut listen: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report> {
    if graph.outputs().len() != 1 {
        return Err(Error::unsupported("training needs a network with one output"));
    }
    let (train, held_out) = split(feed.len(), how.validation, how.seed);
    let batch = how.batch_size.min(train.len()).max(1);
    let steps_per_epoch = (train.len() / batch).max(1);
    let mut parameters = Parameters::new();
    let bindings = Bindings::of(graph, &mut parameters);
    let steps = Steps {
        count: how.epochs * steps_per_epoch,
        batch_size: how.batch_size,
        rate: how.rate,
        schedule: how.schedule,
        optimizer: how.optimizer,
        weight_decay: how.weight_decay,
        augmentation: how.augmentation,
        seed: how.seed,
    };
    let learner = Learner { graph, bindings: bindings.clone(), feed, samples: train, goal: Goal::Labels, weight: 1.0 };
    let mut best: Option<Best> = None;
    let mut stopped = false;
    let done = learn(&mut parameters, &[learner], &steps, |step, losses, parameters| {
        if step.is_multiple_of(steps_per_epoch) && !held_out.is_empty() {
            let now = bindings.apply(graph, parameters)?;
            let options = Options { batch_size: how.batch_size, memory: how.memory };
            let result = evaluate_on(&now, feed, &held_out, options, |_| {})?;
            let better = best.as_ref().is_none_or(|b| (result.error, result.loss) <= (b.result.error, b.result.loss));
            if better || !how.keep_best {
                best = Some(Best { result, parameters: parameters.snapshot() });
            }
        }
        let news = Progress {
            step: (step, steps.count),
            samples: step * batch,
            loss: losses.iter().sum(),
            validation: best.as_ref().map(|b| b.result),
        };
        let flow = listen(news);
        stopped = flow.is_break() && step < steps.count;
        Ok(flow)
    })?;
    let validation = best.as_ref().map(|b| b.result);
    if let Some(best) = best.filter(|_| !stopped) {
        parameters.restore(&best.parameters);
    }
    Ok(Report { graph: bindings.apply(graph, &parameters)?, steps: done, validation, stopped })
}

/// The samples to learn from and those held out, chosen at random but always the same for a seed.
fn split(count: usize, share: f32, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let held = ((count as f32 * share) as usize).min(count.saturating_sub(1));
    let order = random::permutation(random::bits(seed, 0), count);
    let (held, train) = order.split_at(held);
    let mut held = held.to_vec();
    held.sort_unstable();
    (train.to_vec(), held)
}
