//! The training loop: batches in random order, steps along the gradient, the best network on held-out data kept.

use super::augment::Augmentation;
use super::loss::{Loss, Target};
use super::optimizer::{Optimizer, OptimizerKind};
use super::parameters::{Bindings, Parameters};
use super::program::Program;
use super::schedule::Schedule;
use crate::data::{Feed, Labels};
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
    let labels = feed.labels().ok_or_else(|| Error::data("training needs labels").hint("an .npz needs an array y"))?;
    let &[output] = graph.outputs() else { return Err(Error::unsupported("training needs a network with one output")) };
    let width: usize = graph[output].shape.dims().iter().skip(1).filter_map(|d| d.fixed()).product();
    let (train, held_out) = split(feed.len(), how.validation, how.seed);
    let batch = how.batch_size.min(train.len());
    let steps_per_epoch = train.len() / batch.max(1);
    if steps_per_epoch == 0 {
        return Err(Error::data("there are no samples to learn from"));
    }
    let mut parameters = Parameters::new();
    let bindings = Bindings::of(graph, &mut parameters);
    let mut program = Program::new(graph, bindings, &parameters, batch, false);
    let mut optimizer = Optimizer::new(how.optimizer, how.weight_decay, &mut parameters);
    let mut gradient = vec![0.0; batch * width];
    let total = how.epochs * steps_per_epoch;
    let mut best: Option<Best> = None;
    let (mut step, mut stopped) = (0, false);
    'run: for epoch in 0..how.epochs {
        let order = random::permutation(random::bits(how.seed, 1 + epoch as u64), train.len());
        let order: Vec<usize> = order.into_iter().map(|i| train[i]).collect();
        let load = |k: usize| {
            let seed = random::bits(how.seed ^ 0x5eed, (epoch * steps_per_epoch + k) as u64);
            feed.batch(&order[k * batch..][..batch]).map(|x| how.augmentation.apply(x, seed))
        };
        let mut next = Some(load(0)?);
        for k in 0..steps_per_epoch {
            let Some(input) = next.take() else { break };
            let rate = how.rate * how.schedule.factor(step, total);
            let indices = &order[k * batch..][..batch];
            // The next batch is read while this one is learned from.
            let (loss, following) = rayon::join(
                || -> Result<f64> {
                    program.forward(&mut parameters, &[input], random::bits(how.seed ^ 0xd0, step as u64))?;
                    let loss = loss_of(labels, indices, program.value(output).data, width, &mut gradient);
                    parameters.clear_gradients();
                    program.backward(&mut parameters, &[&gradient])?;
                    optimizer.step(&mut parameters, rate);
                    Ok(loss)
                },
                || (k + 1 < steps_per_epoch).then(|| load(k + 1)).transpose(),
            );
            let loss = loss?;
            next = following?;
            step += 1;
            if !loss.is_finite() {
                return Err(Error::data(format!("the loss became {loss} at step {step}")).hint("use a smaller --lr"));
            }
            let validation = best.as_ref().map(|b| b.result);
            let news = Progress { step: (step, total), samples: step * batch, loss, validation };
            if listen(news).is_break() {
                stopped = true;
                break 'run;
            }
        }
        if !held_out.is_empty() {
            let now = program.bindings().apply(graph, &parameters)?;
            let options = Options { batch_size: how.batch_size, memory: how.memory };
            let result = evaluate_on(&now, feed, &held_out, options, |_| {})?;
            let better = best.as_ref().is_none_or(|b| (result.error, result.loss) <= (b.result.error, b.result.loss));
            if better || !how.keep_best {
                best = Some(Best { result, parameters: parameters.snapshot() });
            }
        }
    }
    let validation = best.as_ref().map(|b| b.result);
    if let Some(best) = best.filter(|_| !stopped) {
        parameters.restore(&best.parameters);
    }
    let graph = program.bindings().apply(graph, &parameters)?;
    Ok(Report { graph, steps: step, validation, stopped })
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

/// Cross-entropy for classes, binary cross-entropy for attributes.
fn loss_of(labels: &Labels, indices: &[usize], output: &[f32], width: usize, gradient: &mut [f32]) -> f64 {
    match labels {
        Labels::Classes(all) => {
            let classes: Vec<u32> = indices.iter().map(|&i| all[i]).collect();
            Loss::CrossEntropy.compute(output, width, Target::Classes(&classes), gradient)
        }
        Labels::Attributes { count, values } => {
            let rows: Vec<bool> = indices.iter().flat_map(|&i| values[i * count..][..*count].iter().copied()).collect();
            Loss::BinaryCrossEntropy.compute(output, width, Target::Attributes(&rows), gradient)
        }
    }
}
