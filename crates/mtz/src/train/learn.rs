//! The loop: every step takes a batch of each task, adds up the tasks' gradients in the parameters they share, and
//! moves once.

use super::checkpoint::TrainingCheckpoint;
use super::loss::{Loss, Target, from_rows_along, rows_along};
use super::optimizer::{Optimizer, OptimizerKind};
use super::parameters::{Binding, Bindings, Parameters};
use super::program::{Learning, TrainingProgram};
use super::schedule::Schedule;
use crate::data::{Augmentation, Feed, Labels};
use crate::error::{Error, Result};
use crate::evaluate::Ending;
use crate::graph::{Graph, ValueId};
use crate::op::Op;
use crate::random;
use crate::run::Runner;
use crate::tensor::Tensor;
use rayon::prelude::*;
use std::ops::ControlFlow;

/// What a network learns from.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'a> {
    /// The labels of its samples: cross-entropy for classes, binary cross-entropy for attributes.
    Labels,
    /// The outputs of another network on the same samples: each of its answers in the way that suits it, and behind
    /// them features ([`Loss::RelativeSquares`]).
    Teacher {
        /// The network to imitate; its outputs correspond to the learner's.
        graph: &'a Graph,
        /// How its first outputs are imitated; all others are features.
        answers: &'a [Imitation],
        /// The first output learns from labels, too.
        labels: bool,
        /// How much the features count at first. They lead the way and matter less and less: at the end only answers
        /// count.
        features: f32,
    },
}

/// How an answer of another network is imitated.
#[derive(Clone, Debug, PartialEq)]
pub enum Imitation {
    /// Not at all.
    Ignored,
    /// Scores of classes along an axis ([`Loss::Distillation`]).
    Classes {
        /// The axis.
        axis: usize,
        /// Softens the scores.
        temperature: f32,
    },
    /// Yes-or-no decisions ([`Loss::BinaryDistillation`]).
    Attributes {
        /// Softens the scores.
        temperature: f32,
    },
    /// The numbers themselves ([`Loss::WeightedSquares`]).
    Values {
        /// Of each number of a sample.
        precision: Vec<f32>,
    },
}

impl Imitation {
    /// The loss of a batch of outputs and its gradient.
    fn loss(&self, output: &[f32], shape: &[usize], truth: &[f32], gradient: &mut [f32]) -> f64 {
        let width = output.len() / shape.first().copied().unwrap_or(1).max(1);
        match self {
            Self::Ignored => {
                gradient.fill(0.0);
                0.0
            }
            // One row for each sample, as most classifiers have it.
            Self::Classes { axis, temperature } if shape.get(*axis) == Some(&width) => {
                Loss::Distillation { temperature: *temperature }.compute(
                    output,
                    width,
                    Target::Numbers(truth),
                    gradient,
                )
            }
            Self::Classes { axis, temperature } => {
                let (x, t) = (rows_along(output, shape, *axis), rows_along(truth, shape, *axis));
                let mut along = vec![0.0; x.len()];
                let width = shape.get(*axis).copied().unwrap_or(1);
                let loss = Loss::Distillation { temperature: *temperature };
                let loss = loss.compute(&x, width, Target::Numbers(&t), &mut along);
                from_rows_along(&along, shape, *axis, gradient);
                loss
            }
            Self::Attributes { temperature } => {
                let loss = Loss::BinaryDistillation { temperature: *temperature };
                loss.compute(output, width, Target::Numbers(truth), gradient)
            }
            // A sample may stand in several rows: there is one precision for each of its numbers.
            Self::Values { precision } => {
                let loss = Loss::WeightedSquares { precision };
                loss.compute(output, precision.len(), Target::Numbers(truth), gradient)
            }
        }
    }
}

/// One network that learns, beside others that may share its parameters.
#[derive(Clone, Debug)]
pub struct Learner<'a> {
    /// The network.
    pub graph: &'a Graph,
    /// How its weights are made from the parameters.
    pub bindings: Bindings,
    /// Its samples.
    pub feed: &'a Feed,
    /// Those it may learn from.
    pub samples: Vec<usize>,
    /// What it learns.
    pub goal: Goal<'a>,
    /// How much it counts beside the others.
    pub weight: f32,
    /// Its samples per step, as a multiple of the [`Rule`]'s.
    pub batch_factor: f32,
    /// Mirror every second image, whatever the [`Rule`] says.
    pub mirrored: bool,
}

impl Learner<'_> {
    /// What happens to its images.
    fn augmentation(&self, how: &Rule) -> Augmentation {
        Augmentation { flip: how.augmentation.flip || self.mirrored, ..how.augmentation }
    }
}

/// How a step is taken.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Samples of each task per step.
    pub batch_size: usize,
    /// The highest learning rate.
    pub rate: f32,
    /// How the rate changes.
    pub schedule: Schedule,
    /// From gradients to new weights.
    pub optimizer: OptimizerKind,
    /// Pulls weights towards zero.
    pub weight_decay: f32,
    /// Random changes to the images.
    pub augmentation: Augmentation,
    /// Where random numbers begin.
    pub seed: u64,
}

/// A learner with its buffers and its place in the data.
struct Running<'a, 'l> {
    learner: &'l Learner<'a>,
    outputs: Vec<ValueId>,
    program: Box<dyn TrainingProgram>,
    teacher: Option<Runner<'a>>,
    batch: usize,
    /// The samples of the present epoch, in the order they come.
    order: Vec<usize>,
    epoch: Option<usize>,
    gradients: Vec<Vec<f32>>,
    next: Option<(Tensor, Vec<usize>)>,
    seed: u64,
}

/// Trains all learners at once for `steps` steps, changing `parameters`. `after` hears of every step (its number from
/// 1, and each task's loss) and may stop the run. With a `checkpoint` a run that was killed is resumed; `after` is not
/// called for steps restored from it. The caller deletes the checkpoint once the result is saved. Returns the steps
/// done.
pub fn learn(
    parameters: &mut Parameters,
    learners: &[Learner],
    steps: usize,
    how: &Rule,
    checkpoint: Option<&TrainingCheckpoint>,
    engine: &dyn Learning,
    mut after: impl FnMut(usize, &[f64], &Parameters) -> Result<ControlFlow<()>>,
) -> Result<usize> {
    let mut running = Vec::new();
    for (i, learner) in learners.iter().enumerate() {
        let seed = if i == 0 { how.seed } else { random::bits(how.seed, 1000 + i as u64) };
        running.push(Running::new(learner, parameters, how, seed, engine)?);
    }
    let mut optimizer = Optimizer::new(how.optimizer, how.weight_decay, parameters);
    let mut losses = vec![0.0; learners.len()];
    let mut saved = checkpoint.map(|checkpoint| checkpoint.open(learners, steps, how));
    let first = saved.as_ref().map_or(Ok(0), |saved| saved.load(parameters, &mut optimizer))?;
    for step in first..steps {
        parameters.clear_gradients();
        for (task, loss) in running.iter_mut().zip(&mut losses) {
            *loss = task.step(parameters, how, (step, steps))?;
            if !loss.is_finite() {
                return Err(
                    Error::data(format!("the loss became {loss} at step {}", step + 1)).hint("use a smaller `rate`")
                );
            }
        }
        // The next batches are read while the weights move.
        let (_, loaded) = rayon::join(
            || optimizer.step(parameters, how.rate * how.schedule.factor(step, steps)),
            || -> Result<()> {
                for task in running.iter_mut().filter(|_| step + 1 < steps) {
                    task.next = Some(task.load(how, step + 1)?);
                }
                Ok(())
            },
        );
        loaded?;
        if let Some(saved) = &mut saved {
            saved.note(step + 1, parameters, &mut optimizer)?;
        }
        if after(step + 1, &losses, parameters)?.is_break() {
            return Ok(step + 1);
        }
    }
    // A step too far shows in the loss of the next one; there is none after the last.
    if parameters.iter_mut().any(|p| p.data.iter().any(|x| !x.is_finite())) {
        return Err(Error::data(format!("weights are not finite after step {steps}")).hint("use a smaller `rate`"));
    }
    // What comes behind the last step may be killed, too.
    if let Some(saved) = saved.filter(|_| first < steps) {
        saved.end(parameters, &mut optimizer)?;
    }
    Ok(steps)
}

/// Samples that a task with this pace takes in a step.
pub fn batch_size_of(batch_size: usize, batch_factor: f32) -> usize {
    (batch_size as f32 * batch_factor).round().max(1.0) as usize
}

/// Takes the running statistics of batch normalisations anew, as means over `samples` samples of each task. In training
/// they follow the weights and remember a few batches only (Wu and Johnson 2021, "precise" statistics); weights stay as
/// they are. Images are changed as in training: statistics of other images than the weights were found with do harm.
pub fn recalibrate_batch_norm(
    parameters: &mut Parameters,
    learners: &[Learner],
    samples: usize,
    how: &Rule,
    engine: &dyn Learning,
) -> Result<()> {
    for (i, learner) in learners.iter().enumerate().filter(|(_, l)| norms(l.graph).next().is_some()) {
        let (batch, batches) = some_batches(learner, samples, how, random::bits(how.seed, 2000 + i as u64));
        let mut program = engine.learn(learner.graph, learner.bindings.clone(), parameters, batch);
        for (k, images) in batches.enumerate() {
            let (images, seed) = images?;
            program.set_momentum(k as f32 / (k + 1) as f32);
            program.forward(parameters, &[images], seed)?;
        }
    }
    Ok(())
}

/// Gives batch normalisations the mean and variance that their inputs have in `samples` samples of each task, and such
/// a scale and offset that they answer what they did. Training goes by the statistics of its batches: a network that
/// brings those of other images (it was trained on noisy or shifted ones, say) would be another one from the first step
/// on.
pub fn match_batch_statistics(
    parameters: &mut Parameters,
    learners: &[Learner],
    samples: usize,
    how: &Rule,
) -> Result<()> {
    for (i, learner) in learners.iter().enumerate() {
        let norms: Vec<(f32, [ValueId; 5])> = norms(learner.graph).collect();
        let taps: Vec<ValueId> = norms.iter().map(|(_, [x, ..])| *x).collect();
        let graph = learner.bindings.apply(learner.graph, parameters)?;
        let mut runner = Runner::with_taps(&graph, &taps);
        let mut sums: Vec<Vec<Sums>> = vec![Vec::new(); norms.len()];
        let (_, batches) = some_batches(learner, samples, how, random::bits(how.seed, 2000 + i as u64));
        for images in batches.take_while(|_| !norms.is_empty()) {
            let values = runner.run(&[images?.0])?;
            sums.par_iter_mut().zip(&values).for_each(|(sums, value)| add_channels(sums, value));
        }
        for ((epsilon, [_, own @ ..]), sums) in norms.into_iter().zip(&sums) {
            let parts = own.map(|id| learner.bindings.get(id));
            // Numbers that others read, too, cannot be moved for one.
            let alone = |id: &ValueId| {
                learner.graph.nodes().iter().flat_map(|n| &n.inputs).filter(|i| **i == Some(*id)).count() == 1
            };
            let [
                Some(Binding::Whole(scale)),
                Some(Binding::Whole(bias)),
                Some(Binding::Whole(mean)),
                Some(Binding::Whole(variance)),
            ] = parts
            else {
                continue;
            };
            if !own.iter().all(alone) {
                continue;
            }
            for (c, (count, sum, squares)) in sums.iter().enumerate() {
                let [s, b, m, v] = [scale, bias, mean, variance].map(|id| f64::from(parameters.data(*id)[c]));
                let now = sum / count;
                let spread = (squares / count - now * now).max(0.0);
                let deviation = (v + f64::from(epsilon)).sqrt();
                let new =
                    [s * (spread + f64::from(epsilon)).sqrt() / deviation, b + s * (now - m) / deviation, now, spread];
                // What is no number stays what it is.
                for (id, new) in
                    [scale, bias, mean, variance].into_iter().zip(new).filter(|_| new.iter().all(|x| x.is_finite()))
                {
                    parameters.get_mut(*id).data[c] = new as f32;
                }
            }
        }
    }
    Ok(())
}

/// The batch normalisations of a network: ε, and input, scale, bias, mean and variance.
fn norms(graph: &Graph) -> impl Iterator<Item = (f32, [ValueId; 5])> {
    graph.nodes().iter().filter_map(|node| match (&node.op, node.inputs.as_slice()) {
        (Op::BatchNormalization(norm), &[Some(x), Some(scale), Some(bias), Some(mean), Some(variance)]) => {
            Some((norm.epsilon, [x, scale, bias, mean, variance]))
        }
        _ => None,
    })
}

/// How many numbers of a channel there are, their sum and that of their squares.
type Sums = (f64, f64, f64);

fn add_channels(sums: &mut Vec<Sums>, value: &Tensor) {
    let channels = value.shape().get(1).copied().unwrap_or(1).max(1);
    let plane = value.shape().iter().skip(2).product::<usize>().max(1);
    sums.resize(channels, (0.0, 0.0, 0.0));
    for sample in value.data().chunks_exact(channels * plane) {
        for ((count, sum, squares), numbers) in sums.iter_mut().zip(sample.chunks_exact(plane)) {
            *count += plane as f64;
            *sum += numbers.iter().map(|x| f64::from(*x)).sum::<f64>();
            *squares += numbers.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        }
    }
}

/// Whole batches of at most so many samples, changed as in training, each with a seed; and how many samples there are
/// in each. A single sample has no spread: of those there is no batch.
fn some_batches<'l>(
    learner: &'l Learner,
    samples: usize,
    how: &'l Rule,
    seed: u64,
) -> (usize, impl Iterator<Item = Result<(Tensor, u64)>> + use<'l>) {
    let batch = how.batch_size.min(learner.samples.len()).min(samples).max(1);
    let order = random::permutation(seed, learner.samples.len());
    let chosen: Vec<usize> = order.into_iter().take(samples).map(|k| learner.samples[k]).collect();
    let count = if batch < 2 { 0 } else { chosen.len() / batch };
    let batches = (0..count).map(move |k| {
        let seed = random::bits(seed, k as u64);
        let images = learner.feed.batch(&chosen[k * batch..][..batch])?;
        Ok((learner.augmentation(how).apply(images, seed), seed))
    });
    (batch, batches)
}

impl<'a, 'l> Running<'a, 'l> {
    fn new(
        learner: &'l Learner<'a>,
        parameters: &Parameters,
        how: &Rule,
        seed: u64,
        engine: &dyn Learning,
    ) -> Result<Self> {
        let batch = batch_size_of(how.batch_size, learner.batch_factor).min(learner.samples.len());
        if batch == 0 {
            return Err(Error::data("there are no samples to learn from"));
        }
        let asked = outputs(learner.graph, &learner.goal);
        let teacher = match &learner.goal {
            Goal::Labels => None,
            Goal::Teacher { graph, .. } if graph.outputs().len() != learner.graph.outputs().len() => {
                return Err(Error::usage("teacher and learner have different outputs"));
            }
            // Nothing to ask it if labels are learned and there is nothing else to imitate.
            Goal::Teacher { graph, answers, .. } => {
                let something =
                    answers.iter().any(|a| *a != Imitation::Ignored) || graph.outputs().len() > answers.len();
                something.then(|| Runner::with_taps(graph, &outputs(graph, &learner.goal)))
            }
        };
        if matches!(learner.goal, Goal::Labels | Goal::Teacher { labels: true, .. }) {
            check_labels(learner)?;
        }
        let gradients = asked.iter().map(|id| vec![0.0; learner.graph[*id].shape.elements(batch)]).collect();
        let graph = learner.graph.with_outputs(asked);
        let program = engine.learn(&graph, learner.bindings.clone(), parameters, batch);
        let outputs = graph.outputs().to_vec();
        let (order, epoch, next) = (Vec::new(), None, None);
        Ok(Self { learner, outputs, program, teacher, batch, order, epoch, gradients, next, seed })
    }

    /// The batch of a step and its samples. Every epoch is a new order.
    fn load(&mut self, how: &Rule, step: usize) -> Result<(Tensor, Vec<usize>)> {
        let per_epoch = self.learner.samples.len() / self.batch;
        let (epoch, k) = (step / per_epoch, step % per_epoch);
        if self.epoch != Some(epoch) {
            let order = random::permutation(random::bits(self.seed, 1 + epoch as u64), self.learner.samples.len());
            self.order = order.into_iter().map(|i| self.learner.samples[i]).collect();
            self.epoch = Some(epoch);
        }
        let samples = self.order[k * self.batch..][..self.batch].to_vec();
        let seed = random::bits(self.seed ^ 0x5eed, step as u64);
        let x = self.learner.feed.batch(&samples)?;
        Ok((self.learner.augmentation(how).apply(x, seed), samples))
    }

    /// Forward, loss and backward of one batch; the loss.
    fn step(&mut self, parameters: &mut Parameters, how: &Rule, (step, steps): (usize, usize)) -> Result<f64> {
        let left = 1.0 - step as f32 / steps.max(1) as f32;
        let (input, samples) = match self.next.take() {
            Some(next) => next,
            None => self.load(how, step)?,
        };
        let inputs = [input];
        let truth = self.teacher.as_mut().map(|t| t.run(&inputs)).transpose()?;
        self.program.forward(parameters, &inputs, random::bits(self.seed ^ 0xd0, step as u64))?;
        let mut total = 0.0;
        for (k, (&id, gradient)) in self.outputs.iter().zip(&mut self.gradients).enumerate() {
            let view = self.program.value(id);
            let (output, width) = (view.data, view.data.len() / self.batch);
            let truth = truth.as_ref().and_then(|truth| truth.get(k)).map(Tensor::data);
            let (mut loss, factor) = match (&self.learner.goal, truth) {
                (Goal::Teacher { answers, features, .. }, Some(truth)) => match answers.get(k) {
                    Some(imitation) => (imitation.loss(output, view.shape, truth, gradient), 1.0),
                    None => {
                        let loss = Loss::RelativeSquares.compute(output, width, Target::Numbers(truth), gradient);
                        (loss, features * left)
                    }
                },
                _ => {
                    gradient.fill(0.0);
                    (0.0, 1.0)
                }
            };
            if k == 0 && matches!(self.learner.goal, Goal::Labels | Goal::Teacher { labels: true, .. }) {
                let mut more = vec![0.0; gradient.len()];
                loss += of_labels(self.learner.feed.labels(), &samples, output, width, &mut more);
                gradient.iter_mut().zip(more).for_each(|(g, more)| *g += more);
            }
            let factor = factor * self.learner.weight;
            if factor != 1.0 {
                gradient.iter_mut().for_each(|g| *g *= factor);
            }
            total += loss * f64::from(factor);
        }
        let gradients: Vec<&[f32]> = self.gradients.iter().map(Vec::as_slice).collect();
        self.program.backward(parameters, &gradients)?;
        Ok(total)
    }
}

/// What losses see of a network: classes and attributes as logits, everything else as it is.
fn outputs(graph: &Graph, goal: &Goal) -> Vec<ValueId> {
    let value = |(k, id): (usize, &ValueId)| {
        let ending = Ending::of(graph, *id);
        match goal {
            Goal::Labels if k == 0 => ending.logits,
            Goal::Labels => *id,
            Goal::Teacher { answers, .. } => match answers.get(k) {
                Some(Imitation::Values { .. }) => ending.value,
                Some(_) => ending.logits,
                None => *id,
            },
        }
    };
    graph.outputs().iter().enumerate().map(value).collect()
}

/// Labels must fit the first output: a class for each number, an attribute for each, or two classes for the only one.
fn check_labels(learner: &Learner) -> Result<()> {
    let width = learner.graph.outputs().first().map_or(0, |id| learner.graph[*id].shape.elements(1));
    let needed = match learner.feed.labels() {
        None => return Err(Error::data("training needs labels").hint("an .npz needs an array y")),
        Some(Labels::Classes(all)) => all.iter().max().map_or(0, |class| *class as usize + 1),
        Some(Labels::Attributes { count, .. }) if *count != width => {
            return Err(Error::data(format!("the data has {count} attributes, the network answers {width}")));
        }
        Some(Labels::Attributes { .. }) => return Ok(()),
    };
    // One output tells two classes apart.
    if needed > width.max(2) {
        return Err(Error::data(format!("labels go up to {}, but the network has {width} outputs", needed - 1))
            .hint("is this the data the network was trained for?"));
    }
    Ok(())
}

/// Cross-entropy for classes, binary cross-entropy for attributes and for two classes told apart by one number.
fn of_labels(labels: Option<&Labels>, samples: &[usize], output: &[f32], width: usize, gradient: &mut [f32]) -> f64 {
    match labels {
        None => 0.0,
        Some(Labels::Classes(all)) if width == 1 => {
            let second: Vec<bool> = samples.iter().map(|&i| all[i] == 1).collect();
            Loss::BinaryCrossEntropy.compute(output, width, Target::Attributes(&second), gradient)
        }
        Some(Labels::Classes(all)) => {
            let classes: Vec<u32> = samples.iter().map(|&i| all[i]).collect();
            Loss::CrossEntropy.compute(output, width, Target::Classes(&classes), gradient)
        }
        Some(Labels::Attributes { count, values }) => {
            let rows: Vec<bool> = samples.iter().flat_map(|&i| values[i * count..][..*count].iter().copied()).collect();
            Loss::BinaryCrossEntropy.compute(output, width, Target::Attributes(&rows), gradient)
        }
    }
}
