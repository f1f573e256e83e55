//! Light retraining: all tasks at once, weights that they share tied.

use super::settings::{Aim, Plan, SHALLOW, Task};
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::plan::{Joint, Layer, Member};
use crate::random;
use crate::train::{Diary, Goal, Learner, OptimizerKind, Rule, Schedule, learn};
use std::ops::ControlFlow;

/// How much the original networks' answers are softened when they are imitated.
const TEMPERATURE: f32 = 4.0;

/// How much values inside of a deep network count beside its answers.
const FEATURES: f32 = 100.0;

/// Trains all tasks at once, shared weights tied. `listen` hears of every step and each task's loss; a `diary` lets a run that was killed go on.
pub fn retrain(
    joint: &mut Joint,
    tasks: &[Task],
    originals: &[Graph],
    plan: &Plan,
    iterations: usize,
    diary: Option<&Diary>,
    mut listen: impl FnMut(usize, &[f64]) -> ControlFlow<()>,
) -> Result<usize> {
    let (mut parameters, bindings) = joint.bind()?;
    let mean = tasks.iter().map(|t| t.weight).sum::<f64>() / tasks.len().max(1) as f64;
    let watched: Vec<(Graph, Graph)> = joint
        .members
        .iter()
        .zip(originals)
        .map(|(member, original)| {
            let values = hidden_answers(member);
            let with = |graph: &Graph| {
                let mut graph = graph.clone();
                values.iter().for_each(|id| graph.add_output(*id));
                graph
            };
            // The teacher drops nothing, and neither does who should answer the same.
            (with(&member.graph.without_dropout()), with(original))
        })
        .collect();
    let features = |graph: &Graph| FEATURES / (graph.outputs().len() - 1).max(1) as f32;
    let learners: Vec<Learner> = watched
        .iter()
        .zip(tasks)
        .zip(&bindings)
        .map(|(((graph, original), task), bindings)| {
            // Where there are no labels, the original networks say what is right.
            let labels = plan.aim == Aim::Labels && task.train.labels().is_some();
            Learner {
                graph,
                bindings: bindings.clone(),
                feed: task.train,
                samples: task.samples.clone().unwrap_or_else(|| (0..task.train.len()).collect()),
                goal: Goal::Teacher {
                    graph: original,
                    temperature: (!labels).then_some(TEMPERATURE),
                    labels,
                    features: features(graph),
                },
                weight: (task.weight / mean) as f32,
                mirrored: task.mirrored,
            }
        })
        .collect();
    let rule = Rule {
        batch_size: plan.batch_size,
        rate: plan.rate,
        schedule: Schedule::OneCycle,
        optimizer: OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, decoupled: true },
        weight_decay: 0.0,
        augmentation: plan.augmentation,
        seed: random::bits(plan.seed, 4242),
    };
    let done = learn(&mut parameters, &learners, iterations, &rule, diary, |step, losses, _| Ok(listen(step, losses)))?;
    drop(learners);
    for (member, bindings) in joint.members.iter_mut().zip(&bindings) {
        member.graph = bindings.apply(&member.graph, &parameters)?;
    }
    Ok(done)
}

/// Values inside of a deep network that retraining compares with the original's: sums at the ends of residual blocks, or the answers of all hidden layers where
/// there are no such sums.
fn hidden_answers(member: &Member) -> Vec<ValueId> {
    let hidden = &member.layers[..member.layers.len().saturating_sub(1)];
    if member.layers.len() <= SHALLOW {
        return Vec::new();
    }
    let sums: Vec<ValueId> = hidden.iter().filter_map(|l| l.sum.map(|s| s.output)).collect();
    if sums.is_empty() { hidden.iter().map(Layer::answer).collect() } else { sums }
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
