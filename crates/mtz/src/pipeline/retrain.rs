//! Light retraining: all tasks at once, weights that they share tied.

use super::settings::{Aim, Plan, SHALLOW, Task};
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::plan::{Joint, Layer, Member};
use crate::random;
use crate::train::{Diary, Goal, Learner, OptimizerKind, Rule, Schedule, learn, settle};
use std::ops::ControlFlow;

/// How much the original networks' answers are softened when they are imitated.
const TEMPERATURE: f32 = 4.0;

/// Samples of each task that running statistics are taken from at the end.
const SETTLED: usize = 4096;

/// How much values inside of a deep network count beside its answers at first ([`Goal::Teacher`]).
const FEATURES: f32 = 200.0;

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
    let samples: Vec<Vec<usize>> = tasks.iter().map(|t| t.samples.clone().unwrap_or_else(|| t.train.all())).collect();
    let paces = paces(tasks);
    let learners: Vec<Learner> = watched
        .iter()
        .zip(tasks)
        .zip(&bindings)
        .zip(samples.into_iter().zip(paces))
        .map(|((((graph, original), task), bindings), (samples, pace))| {
            let labels = plan.aim == Aim::Labels && task.train.labels().is_some();
            Learner {
                graph,
                bindings: bindings.clone(),
                feed: task.train,
                samples,
                goal: Goal::Teacher {
                    graph: original,
                    // In deep networks beside labels, too: the teacher is asked for features there anyway.
                    temperature: (!labels || graph.outputs().len() > 1).then_some(TEMPERATURE),
                    labels,
                    features: features(graph),
                },
                weight: (task.weight / mean) as f32,
                pace,
                mirrored: task.mirrored,
            }
        })
        .collect();
    let rule = Rule {
        batch_size: plan.batch_size,
        rate: plan.rate,
        schedule: Schedule::OneCycle,
        optimizer: OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, decoupled: true },
        weight_decay: plan.weight_decay,
        augmentation: plan.augmentation,
        seed: random::bits(plan.seed, 4242),
    };
    let done = learn(&mut parameters, &learners, iterations, &rule, diary, |step, losses, _| Ok(listen(step, losses)))?;
    settle(&mut parameters, &learners, SETTLED.min(done * plan.batch_size), &rule)?;
    drop(learners);
    for (member, bindings) in joint.members.iter_mut().zip(&bindings) {
        member.graph = bindings.apply(&member.graph, &parameters)?;
    }
    Ok(done)
}

/// How many samples each task takes per step, relative to their mean: tasks with many samples take more, within limits, so that all go through theirs at about
/// the same pace. A task with few would know them by heart while another has seen a part.
pub(super) fn paces(tasks: &[Task]) -> Vec<f32> {
    paces_of(&tasks.iter().map(|t| t.samples.as_ref().map_or(t.train.len(), Vec::len)).collect::<Vec<_>>())
}

fn paces_of(samples: &[usize]) -> Vec<f32> {
    const MOST: f32 = 2.0;
    let mean = samples.iter().sum::<usize>() as f32 / samples.len().max(1) as f32;
    let paces: Vec<f32> = samples.iter().map(|n| (*n as f32 / mean.max(1.0)).clamp(1.0 / MOST, MOST)).collect();
    let sum = paces.iter().sum::<f32>().max(f32::MIN_POSITIVE);
    paces.iter().map(|pace| pace * samples.len() as f32 / sum).collect()
}

/// Values inside of a deep network that retraining compares with the original's: sums at the ends of residual blocks, or the answers of all hidden layers where
/// there are no such sums.
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

    #[test]
    fn tasks_go_through_their_samples_at_a_like_pace() {
        assert_eq!(paces_of(&[500, 500]), [1.0, 1.0]);
        let paces = paces_of(&[50_000, 10_000, 24_000, 16_000, 13_000]);
        assert!((paces.iter().sum::<f32>() - 5.0).abs() < 1e-5);
        assert!(paces[0] > 3.9 * paces[1] && paces[0] <= 4.1 * paces[1] && paces[2] > paces[3], "{paces:?}");
    }
}
