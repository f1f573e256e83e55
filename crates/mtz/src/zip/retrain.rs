//! Light retraining: all tasks at once, weights that they share tied. Some samples are held out: what does not help on
//! them is not kept.

use super::measure::References;
use super::options::{RetrainingTarget, SHALLOW, TaskData, ZipOptions};
use crate::engine::Engine;
use crate::error::Result;
use crate::evaluate::{Answer, Ending, Kind, Measured, Reference, Scores};
use crate::graph::{Graph, ValueId};
use crate::random;
use crate::run::Runner;
use crate::sharing::{Joint, Layer, Member};
use crate::train::{
    Bindings, Goal, Imitation, Learner, OptimizerKind, Parameters, Rule, Schedule, TrainingCheckpoint, bind, learn,
    match_batch_statistics, recalibrate_batch_norm,
};
use rayon::prelude::*;
use std::ops::ControlFlow;

/// How much the original networks' answers are softened when they are imitated.
const TEMPERATURE: f32 = 4.0;

/// How much squares in units of the deviation count: about what logits of the usual size count when they are imitated
/// softened.
const VALUES: f32 = 10.0;

/// Samples of each task that running statistics are taken from at the end.
const RECALIBRATION_SAMPLES: usize = 4096;

/// How much values inside of a deep network count beside its answers at first ([`Goal::Teacher`]).
const FEATURES: f32 = 200.0;

/// What retraining came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retrained {
    /// Iterations done.
    pub iterations: usize,
    /// How far the weights went from where they were to where training led: 1 all the way, 0 not at all because nothing
    /// helped on held-out samples.
    pub kept: f32,
}

/// A retraining of all tasks at once, shared weights tied.
#[derive(Clone, Copy)]
pub struct Retraining<'r, 'a> {
    /// The data of every task.
    pub tasks: &'r [TaskData<'a>],
    /// The networks to imitate.
    pub originals: &'r [Graph],
    /// How to train.
    pub options: &'r ZipOptions,
    /// What computes.
    pub engine: &'r dyn Engine,
}

impl Retraining<'_, '_> {
    /// Retrains for so many iterations. The result is never worse on held-out samples than what was given. `progress`
    /// hears of every step and each task's loss; with a `checkpoint` a run that was killed is resumed.
    pub fn run(
        &self,
        joint: &mut Joint,
        iterations: usize,
        checkpoint: Option<&TrainingCheckpoint>,
        progress: impl FnMut(usize, &[f64]) -> ControlFlow<()>,
    ) -> Result<Retrained> {
        let Self { tasks, originals, options, engine } = *self;
        let (learning, held_out) = hold_out(joint, tasks);
        let references = References::new(&originals.iter().collect::<Vec<_>>(), &held_out, options, engine)?;
        let before = references.measure(&joint.graphs())?;
        let training = Training::new(joint, &learning, originals, options, &references, engine)?;
        let begin = || -> Result<(Parameters, Vec<Bindings>)> {
            let (mut parameters, bindings) = bind(joint)?;
            let learners = training.learners(&bindings);
            match_batch_statistics(&mut parameters, &learners, RECALIBRATION_SAMPLES, &training.rule())?;
            Ok((parameters, bindings))
        };
        let (mut parameters, bindings) = begin()?;
        let (iterations, stopped) = training.run(&mut parameters, &bindings, iterations, checkpoint, progress)?;
        if stopped {
            return Ok(Retrained { iterations, kept: 0.0 });
        }
        let measure = |parameters: &Parameters| -> Result<(Vec<Graph>, Vec<Option<Measured>>)> {
            let graphs: Vec<Graph> = joint
                .members
                .iter()
                .zip(&bindings)
                .map(|(m, b)| b.apply(&m.graph, parameters))
                .collect::<Result<_>>()?;
            let measured = references.measure(&graphs.iter().collect::<Vec<_>>())?;
            Ok((graphs, measured))
        };
        let weights: Vec<f64> = tasks.iter().map(|t| t.weight).collect();
        // All the way if that helps; else a part of it, which is often better than either end where samples are few.
        let mut kept = 1.0;
        let mut found = measure(&parameters)?;
        while !improved(&before, &found.1, &weights, options.retraining.target) {
            kept *= 0.5;
            if kept < 0.2 {
                return Ok(Retrained { iterations, kept: 0.0 });
            }
            let (start, _) = begin()?;
            parameters.move_towards(&start, 0.5);
            training.recalibrate_batch_norm(&mut parameters, &bindings, iterations)?;
            found = measure(&parameters)?;
        }
        for (member, graph) in joint.members.iter_mut().zip(found.0) {
            member.graph = graph;
        }
        Ok(Retrained { iterations, kept })
    }

    /// Trains for so many iterations without holding anything out and forgets the result: how long a step takes.
    pub(crate) fn try_steps(
        &self,
        joint: &Joint,
        iterations: usize,
        progress: impl FnMut(usize, &[f64]) -> ControlFlow<()>,
    ) -> Result<()> {
        let Self { tasks, originals, options, engine } = *self;
        let few: Vec<TaskData> =
            tasks.iter().map(|t| TaskData { test: Some((t.train, vec![0])), original: None, ..t.clone() }).collect();
        let references = References::new(&originals.iter().collect::<Vec<_>>(), &few, options, engine)?;
        let (mut parameters, bindings) = bind(joint)?;
        let training = Training::new(joint, tasks, originals, options, &references, engine)?;
        training.run(&mut parameters, &bindings, iterations, None, progress)?;
        Ok(())
    }
}

/// Samples of a task that retraining is judged by, at most.
pub(super) const MOST_HELD_OUT: usize = 2000;

/// Tasks that learn, and the same with the samples they are judged by in the end: a tenth, at most two thousand, fewer
/// of what takes long.
fn hold_out<'a>(joint: &Joint, tasks: &[TaskData<'a>]) -> (Vec<TaskData<'a>>, Vec<TaskData<'a>>) {
    const LEAST: usize = 32;
    const EFFORT: usize = 30_000_000_000;
    let split = |(task, member): (&TaskData<'a>, &Member)| {
        let all = task.samples.clone().unwrap_or_else(|| task.train.all());
        let wanted = (EFFORT / member.effort().max(1)).clamp(LEAST, MOST_HELD_OUT).min(all.len() / 10);
        // Too few to spare any: then what is learned from is the best there is.
        if wanted == 0 {
            let test = Some((task.train, all));
            return (task.clone(), TaskData { test, original: None, ..task.clone() });
        }
        let step = all.len() / wanted;
        let held = |i: usize| i % step == step - 1 && i / step < wanted;
        let (held, learn): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(i, _)| held(*i));
        let plain = |chosen: Vec<(usize, usize)>| chosen.into_iter().map(|(_, sample)| sample).collect::<Vec<_>>();
        let test = Some((task.train, plain(held)));
        (TaskData { samples: Some(plain(learn)), ..task.clone() }, TaskData { test, original: None, ..task.clone() })
    };
    tasks.iter().zip(&joint.members).map(split).unzip()
}

/// Whether networks are better than they were, on held-out samples: on the whole less is left to learn, and no task is
/// worse off by more than the standard error of the difference, sample by sample. What one task wins makes up for no
/// other's loss.
///
/// ```text
/// Σ_t w_t loss_t / loss_t' ≤ Σ_t w_t      and for every task      mean δ ≤ √(Σ (δ_s − mean δ)² / (n (n − 1)))
/// ```
///
/// (δ: what a sample has more to learn than before, or with labels its wrong answers more than before.)
fn improved(
    before: &[Option<Measured>],
    after: &[Option<Measured>],
    weights: &[f64],
    target: RetrainingTarget,
) -> bool {
    let (mut total, mut measured) = (0.0, 0.0);
    for ((before, after), weight) in before.iter().zip(after).zip(weights) {
        let (Some(before), Some(after)) = (before, after) else { continue };
        let labels = target == RetrainingTarget::Labels;
        let (ratio, (worse, error)) = match (&before.mistakes, &after.mistakes) {
            (Some(b), Some(a)) if labels => (relative(a.evaluation().loss, b.evaluation().loss), a.lost_against(b)),
            _ => (relative(after.divergence(), before.divergence()), after.diverges_from(before)),
        };
        // Not a number is no improvement.
        if !(ratio.is_finite() && worse <= error) {
            return false;
        }
        total += weight * ratio;
        measured += weight;
    }
    total <= measured
}

/// A loss in units of what it was.
fn relative(after: f64, before: f64) -> f64 {
    if after == before { 1.0 } else { after / before.max(f64::MIN_POSITIVE) }
}

/// Everything a training run needs beside the parameters.
struct Training<'a> {
    tasks: &'a [TaskData<'a>],
    /// The networks of each task and their originals, with values inside as further outputs.
    watched: Vec<(Graph, Graph)>,
    /// How each task's answers are imitated.
    imitations: Vec<Vec<Imitation>>,
    labels: Vec<bool>,
    options: &'a ZipOptions,
    engine: &'a dyn Engine,
}

impl<'a> Training<'a> {
    fn new(
        joint: &Joint,
        tasks: &'a [TaskData<'a>],
        originals: &[Graph],
        options: &'a ZipOptions,
        references: &References,
        engine: &'a dyn Engine,
    ) -> Result<Self> {
        let watch = |(member, original): (&Member, &Graph)| {
            let values = hidden_answers(member);
            let with = |graph: &Graph| {
                let mut graph = graph.clone();
                values.iter().for_each(|id| graph.add_output(*id));
                graph
            };
            // The teacher drops nothing, and neither does who should answer the same.
            (with(&member.graph.without_dropout()), with(original))
        };
        let watched: Vec<(Graph, Graph)> = joint.members.iter().zip(originals).map(watch).collect();
        let labels: Vec<bool> = tasks
            .iter()
            .map(|t| options.retraining.target == RetrainingTarget::Labels && t.train.labels().is_some())
            .collect();
        let references: Vec<Option<&Reference>> = references.iter().collect();
        let imitations = tasks.par_iter().zip(originals).zip(references).zip(&labels).zip(&watched);
        let imitations = imitations.map(|((((task, original), reference), labels), (graph, _))| {
            let mut all = imitations_of(original, reference, task, options)?;
            // In deep networks answers are imitated beside labels, too: the teacher is asked for features there anyway.
            if let Some(first) =
                all.first_mut().filter(|_| *labels && graph.outputs().len() == original.outputs().len())
            {
                *first = Imitation::Ignored;
            }
            Ok(all)
        });
        let imitations = imitations.collect::<Result<_>>()?;
        Ok(Self { tasks, watched, imitations, labels, options, engine })
    }

    fn learners(&self, bindings: &[Bindings]) -> Vec<Learner<'_>> {
        let mean = self.tasks.iter().map(|t| t.weight).sum::<f64>() / self.tasks.len().max(1) as f64;
        let batch_factors = batch_factors(self.tasks);
        let learner = |t: usize| {
            let (task, (graph, original), answers) = (&self.tasks[t], &self.watched[t], &self.imitations[t]);
            let inside = graph.outputs().len() - answers.len();
            Learner {
                graph,
                bindings: bindings[t].clone(),
                feed: task.train,
                samples: task.samples.clone().unwrap_or_else(|| task.train.all()),
                goal: Goal::Teacher {
                    graph: original,
                    answers,
                    labels: self.labels[t],
                    features: FEATURES / inside.max(1) as f32,
                },
                weight: (task.weight / mean) as f32,
                batch_factor: batch_factors[t],
                mirrored: task.mirrored,
            }
        };
        (0..self.tasks.len()).map(learner).collect()
    }

    fn rule(&self) -> Rule {
        let options = self.options;
        Rule {
            batch_size: options.retraining.batch_size,
            rate: options.retraining.rate,
            schedule: Schedule::OneCycle,
            optimizer: OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, decoupled: true },
            weight_decay: options.retraining.weight_decay,
            augmentation: options.retraining.augmentation,
            seed: random::bits(options.seed, 4242),
        }
    }

    /// Trains and takes the statistics of normalisations anew; iterations done, and whether it was stopped.
    fn run(
        &self,
        parameters: &mut Parameters,
        bindings: &[Bindings],
        iterations: usize,
        checkpoint: Option<&TrainingCheckpoint>,
        mut progress: impl FnMut(usize, &[f64]) -> ControlFlow<()>,
    ) -> Result<(usize, bool)> {
        let (learners, rule) = (self.learners(bindings), self.rule());
        let done = learn(parameters, &learners, iterations, &rule, checkpoint, self.engine, |step, losses, _| {
            Ok(progress(step, losses))
        })?;
        if done == iterations {
            self.recalibrate_batch_norm(parameters, bindings, done)?;
        }
        Ok((done, done < iterations))
    }

    fn recalibrate_batch_norm(&self, parameters: &mut Parameters, bindings: &[Bindings], done: usize) -> Result<()> {
        recalibrate_batch_norm(
            parameters,
            &self.learners(bindings),
            RECALIBRATION_SAMPLES.min(done * self.options.retraining.batch_size),
            &self.rule(),
            self.engine,
        )
    }
}

/// How the answers of a network are imitated: classes and attributes by their probabilities, values by squares in units
/// of their deviation. Squares are right for both where the kind is a guess.
fn imitations_of(
    original: &Graph,
    reference: Option<&Reference>,
    task: &TaskData,
    options: &ZipOptions,
) -> Result<Vec<Imitation>> {
    let mut known = reference.into_iter().flat_map(|r| &r.outputs).map(|o| o.answer);
    let mut all = Vec::new();
    for id in original.outputs() {
        let answer = if original.depends_on_inputs(*id) { known.next() } else { None };
        let Some(Answer { kind, evidence, axis }) = answer else {
            all.push(Imitation::Ignored);
            continue;
        };
        let ending = Ending::of(original, *id);
        // A part of what a softmax computes has no logits of its own.
        let has_logits = ending.logits != ending.value || ending.scores == Scores::Logits;
        all.push(match kind {
            Kind::Classes if evidence.is_certain() && has_logits => {
                Imitation::Classes { axis, temperature: TEMPERATURE }
            }
            Kind::Attributes if evidence.is_certain() && has_logits => {
                Imitation::Attributes { temperature: TEMPERATURE }
            }
            _ => Imitation::Values { precision: precision(original, ending.value, task, options)? },
        });
    }
    Ok(all)
}

/// [`precisions`] of what a network answers to some of the samples to learn from.
fn precision(original: &Graph, value: ValueId, task: &TaskData, options: &ZipOptions) -> Result<Vec<f32>> {
    const SAMPLES: usize = 1024;
    let all = task.samples.clone().unwrap_or_else(|| task.train.all());
    let some: Vec<usize> = all.iter().copied().step_by(all.len().div_ceil(SAMPLES).max(1)).collect();
    let mut runner = Runner::with_taps(original, &[value]).memory_limit(options.resources.memory);
    let width = original[value].shape.elements(1);
    let mut sums = vec![(0.0f64, 0.0f64); width];
    for batch in some.chunks(options.retraining.batch_size.max(1)) {
        for tensor in runner.run(&[task.train.batch(batch)?])? {
            for row in tensor.data().chunks(width.max(1)) {
                for (sums, x) in sums.iter_mut().zip(row) {
                    let x = f64::from(*x);
                    *sums = (sums.0 + x, sums.1 + x * x);
                }
            }
        }
    }
    let count = some.len().max(1) as f64;
    let variances: Vec<f64> = sums.iter().map(|(s, q)| ((q - s * s / count) / count).max(0.0)).collect();
    let inner = original[value].shape.at(1).iter().skip(2).product::<usize>().max(1);
    let squares: Vec<f64> = sums.iter().map(|(_, q)| q / count).collect();
    Ok(precisions(&variances, &squares, inner))
}

/// One over the variance of each number, times [`VALUES`]. Every channel of `inner` numbers is a quantity in a unit of
/// its own: years next to a fraction, say. A number that hardly changes, next to the others of its channel or to its own
/// size, counts as if it changed a little.
fn precisions(variances: &[f64], squares: &[f64], inner: usize) -> Vec<f32> {
    const FLOOR: f64 = 1e-2;
    const STILL: f64 = 1e-6;
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len().max(1) as f64;
    let others = FLOOR * mean(variances);
    let channels = variances.chunks(inner).zip(squares.chunks(inner));
    let of_channel = |(variances, squares): (&[f64], &[f64])| -> Vec<f32> {
        let least = (FLOOR * mean(variances)).max(STILL * mean(squares));
        // A channel that is always zero.
        let least = [least, others].into_iter().find(|least| *least > 0.0).unwrap_or(1.0);
        variances.iter().map(|v| (f64::from(VALUES) / v.max(least)) as f32).collect()
    };
    channels.flat_map(of_channel).collect()
}

/// How many samples each task takes per step, relative to their mean: tasks with many samples take more, within limits,
/// so that all go through theirs at about the same pace. A task with few would know them by heart while another has
/// seen a part.
pub(super) fn batch_factors(tasks: &[TaskData]) -> Vec<f32> {
    batch_factors_of(&tasks.iter().map(|t| t.samples.as_ref().map_or(t.train.len(), Vec::len)).collect::<Vec<_>>())
}

fn batch_factors_of(samples: &[usize]) -> Vec<f32> {
    const MOST: f32 = 2.0;
    let mean = samples.iter().sum::<usize>() as f32 / samples.len().max(1) as f32;
    let batch_factors: Vec<f32> = samples.iter().map(|n| (*n as f32 / mean.max(1.0)).clamp(1.0 / MOST, MOST)).collect();
    let sum = batch_factors.iter().sum::<f32>().max(f32::MIN_POSITIVE);
    batch_factors.iter().map(|batch_factor| batch_factor * samples.len() as f32 / sum).collect()
}

/// Values inside of a deep network that retraining compares with the original's: sums at the ends of residual blocks,
/// or the answers of all hidden layers where there are no such sums.
pub(super) fn hidden_answers(member: &Member) -> Vec<ValueId> {
    let hidden = || member.layers.iter().filter(|l| !l.head);
    if member.layers.len() <= SHALLOW {
        return Vec::new();
    }
    let sums: Vec<ValueId> = hidden().filter_map(|l| l.sum.map(|s| s.output)).collect();
    if sums.is_empty() { hidden().map(Layer::answer).collect() } else { sums }
}

/// Losses of a long run as a short curve.
pub(super) struct Losses {
    /// Iterations that become one point.
    every: usize,
    /// Of the iterations heard of since the last point: a run that goes on hears of the rest only.
    sums: Vec<f64>,
    heard: usize,
    pub points: Vec<(usize, Vec<f64>)>,
}

impl Losses {
    const POINTS: usize = 50;

    pub fn over(iterations: usize) -> Self {
        Self { every: iterations.div_ceil(Self::POINTS).max(1), sums: Vec::new(), heard: 0, points: Vec::new() }
    }

    pub fn add(&mut self, step: usize, losses: &[f64]) {
        self.sums.resize(losses.len(), 0.0);
        self.sums.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
        self.heard += 1;
        if step.is_multiple_of(self.every) {
            let (sums, heard) = (std::mem::take(&mut self.sums), std::mem::take(&mut self.heard));
            self.points.push((step, sums.into_iter().map(|sum| sum / heard as f64).collect()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::Agreement;

    #[test]
    fn tasks_go_through_their_samples_at_a_like_pace() {
        assert_eq!(batch_factors_of(&[500, 500]), [1.0, 1.0]);
        let batch_factors = batch_factors_of(&[50_000, 10_000, 24_000, 16_000, 13_000]);
        assert!((batch_factors.iter().sum::<f32>() - 5.0).abs() < 1e-5);
        assert!(
            batch_factors[0] > 3.9 * batch_factors[1]
                && batch_factors[0] <= 4.1 * batch_factors[1]
                && batch_factors[2] > batch_factors[3],
            "{batch_factors:?}"
        );
    }

    #[test]
    fn numbers_count_in_units_of_their_own() {
        // An income around 20,000 and a fraction around a half.
        let precision = precisions(&[2.5e7, 0.01], &[4.25e8, 0.26], 1);
        assert!(
            (precision[0] * 2.5e7 / VALUES - 1.0).abs() < 1e-4 && (precision[1] * 0.01 / VALUES - 1.0).abs() < 1e-4
        );
        // A dead position of a map is measured by its channel, a dead channel by the others, a constant by its size.
        assert_eq!(precisions(&[1.0, 0.0], &[1.0, 0.0], 2)[1], VALUES / (1e-2 * 0.5));
        assert_eq!(precisions(&[1.0, 0.0], &[1.0, 0.0], 1)[1], VALUES / (1e-2 * 0.5));
        assert_eq!(precisions(&[0.0], &[25.0], 1), [VALUES / 25e-6]);
        assert_eq!(precisions(&[0.0], &[0.0], 1), [VALUES]);
    }

    fn measured(divergences: &[f64]) -> Option<Measured> {
        let divergence = divergences.iter().sum::<f64>() / divergences.len() as f64;
        let outputs = vec![Agreement { percent: 90.0, standard_error: 1.0, divergence }];
        Some(Measured { mistakes: None, outputs, divergences: divergences.to_vec() })
    }

    #[test]
    fn no_task_pays_for_another() {
        let better = |before: [&[f64]; 2], after: [&[f64]; 2]| {
            improved(&before.map(measured), &after.map(measured), &[1.0, 1.0], RetrainingTarget::Distill)
        };
        let (high, low) = ([0.4, 0.5, 0.6, 0.5], [0.1, 0.2, 0.3, 0.2]);
        assert!(better([&high, &high], [&low, &low]));
        assert!(better([&high, &low], [&high, &low]), "nothing changed");
        // The second task is worse on every sample, and by more than chance.
        assert!(!better([&high, &low], [&low, &[0.2, 0.3, 0.41, 0.3]]));
        // By no more than chance: some samples are better, some worse.
        assert!(better([&high, &low], [&low, &[0.3, 0.1, 0.4, 0.05]]));
        // One gains less than the other loses within chance.
        assert!(!better([&high, &low], [&high, &[0.3, 0.1, 0.45, 0.1]]));
        assert!(!better([&high, &high], [&low, &[f64::NAN; 4]]));
    }
}
