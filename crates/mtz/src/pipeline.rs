//! The whole of zipping on one screen: for each layer collect statistics, match and merge, measure, retrain.

use crate::checkpoint::{Checkpoint, Fingerprint};
use crate::data::{Feed, Labels};
use crate::error::{Error, Result};
use crate::evaluate::{self, evaluate_on};
use crate::graph::{Graph, ValueId};
use crate::merge::{self, Align, Matching, Merged, Recipe, Share, Streams, merge_layer};
use crate::plan::{Joint, Layer, Member};
use crate::random;
use crate::simplify;
use crate::statistics::{BATCH, Calibration, Seen, Walks, moments, positions, wanted};
use crate::train::{Augmentation, Goal, Learner, OptimizerKind, Rule, Schedule, learn};
use rayon::prelude::*;
use serde_json::{Value as Json, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

/// The data of a task.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// Its name.
    pub name: String,
    /// Samples for statistics and retraining.
    pub train: &'a Feed,
    /// Those of them that may be used; all by default.
    pub samples: Option<Vec<usize>>,
    /// Samples that errors are reported on.
    pub test: Option<(&'a Feed, Vec<usize>)>,
    /// How much it counts.
    pub weight: f64,
}

impl<'a> Task<'a> {
    /// A task that may use all of its samples and counts as much as any other.
    pub fn whole(name: &str, train: &'a Feed, test: &'a Feed) -> Self {
        let test = Some((test, (0..test.len()).collect()));
        Self { name: name.to_owned(), train, samples: None, test, weight: 1.0 }
    }

    /// The same with at most so many samples to report errors on; with none, nothing is reported.
    fn to_measure(&self, samples: usize) -> Self {
        let spread = |all: &[usize]| -> Vec<usize> {
            let step = (all.len() / samples.max(1)).max(1);
            all.iter().copied().step_by(step).collect()
        };
        let test = self.test.as_ref().filter(|_| samples > 0);
        Self { test: test.map(|(feed, all)| (*feed, spread(all))), ..self.clone() }
    }
}

/// Multiply-adds that measuring the errors after a layer may take; a large network is measured on fewer samples until the last layer is merged.
const MEASURING: usize = 30_000_000_000;

/// At least so many are measured, to tell a percent;
const TELLING: usize = 500;
/// but networks so large that this would take so many times longer than meant are not measured until the last layer.
const TOO_LONG: usize = 25;

/// Samples of each task that errors are measured on after every layer but the last.
pub(crate) fn few_to_measure(joint: &Joint, tasks: &[Task]) -> Vec<usize> {
    let samples = |m: &Member| MEASURING / m.multiply_adds().max(1);
    joint
        .members
        .iter()
        .map(samples)
        .take(tasks.len())
        .map(|n| if TOO_LONG * n < TELLING { 0 } else { n.max(TELLING) })
        .collect()
}

/// Networks with at most so many layers are not deep.
const SHALLOW: usize = 4;

/// Numbers of samples of a layer that may be kept, for all tasks together.
const ROOM: usize = 1 << 28;

/// How much the original networks' answers are softened when they are imitated.
const TEMPERATURE: f32 = 4.0;

/// How much values inside of a deep network count beside its answers.
const FEATURES: f32 = 100.0;

/// What retraining aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The labels.
    Labels,
    /// The original networks' answers.
    Distill,
}

/// How to zip.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many units to share, unless a layer says otherwise.
    pub share: Share,
    /// By name of the layer.
    pub share_of: Vec<(String, Share)>,
    /// Which weights shared units get.
    pub recipe: Recipe,
    /// Which units go together.
    pub matching: Matching,
    /// Which inputs of a layer count as the same; by default what suits recipe and networks.
    pub align: Option<Align>,
    /// How units are paired that are added to others.
    pub streams: Streams,
    /// Ridge of all solves, relative to the mean of the diagonal.
    pub ridge: f64,
    /// Samples per task for statistics.
    pub calibration: usize,
    /// Statistics see every image shifted by up to so many pixels. Networks know their training samples by heart; agreeing on what lies beside
    /// them too is what carries over to new samples.
    pub shift: usize,
    /// What retraining does to images, for the same reason.
    pub augmentation: Augmentation,
    /// Iterations of retraining after each hidden layer.
    pub retrain: usize,
    /// What retraining aims at.
    pub aim: Aim,
    /// The highest learning rate of retraining.
    pub rate: f32,
    /// Samples of each task per iteration.
    pub batch_size: usize,
    /// Where random numbers begin.
    pub seed: u64,
    /// Memory an evaluation may take.
    pub memory: u64,
    /// Where the state goes after every layer, and where a run that was killed goes on.
    pub checkpoint: Option<PathBuf>,
}

impl Plan {
    /// Everything shared and lightly retrained, with what measured best for the recipe.
    pub fn new(recipe: Recipe) -> Self {
        let best = recipe == Recipe::Best;
        Self {
            share: Share::All,
            share_of: Vec::new(),
            recipe,
            matching: if best { Matching::Optimal } else { Matching::Greedy },
            align: None,
            streams: if best { Streams::First } else { Streams::Last },
            ridge: if best { 1e-2 } else { 1e-4 },
            calibration: 20_000,
            shift: if best { 2 } else { 0 },
            augmentation: Augmentation { shift: if best { 1 } else { 0 }, flip: false },
            retrain: 200,
            aim: Aim::Distill,
            rate: 2e-3,
            batch_size: 256,
            seed: 0,
            memory: crate::run::DEFAULT_MEMORY,
            checkpoint: None,
        }
    }
}

impl Plan {
    /// The same as it suits these networks. Deep ones get fewer iterations per layer and smaller batches, and networks with batch normalisation were
    /// trained on shifted images as a rule: they need none. What
    /// deep ones compute inside is imitated too, which allows a higher rate; sparse ones have fewer weights to move, which may move further.
    pub fn suited(recipe: Recipe, networks: &Joint) -> Self {
        const ITERATIONS: usize = 600;
        let usual = Self::new(recipe);
        let hidden = networks.depth().saturating_sub(1).max(1);
        let deep = networks.depth() > SHALLOW;
        let normalised =
            networks.members.iter().flat_map(|m| m.graph.nodes()).any(|n| n.op.name() == "BatchNormalization");
        let sparse = networks.members.iter().any(|m| m.layers.iter().any(|l| l.is_sparse(&m.graph)));
        let faster = match (sparse, deep) {
            (true, _) => 3.0,
            (false, true) => 2.0,
            (false, false) => 1.0,
        };
        Self {
            rate: faster * usual.rate,
            retrain: usual.retrain.min(ITERATIONS.div_ceil(hidden)),
            batch_size: if deep { 64 } else { usual.batch_size },
            shift: if normalised { 0 } else { usual.shift },
            augmentation: if normalised { Augmentation::default() } else { usual.augmentation },
            ..usual
        }
    }
}

/// What happened to one layer.
#[derive(Clone, Debug)]
pub struct LayerReport {
    /// Its name in the first network.
    pub name: String,
    /// Units of each task.
    pub units: Vec<usize>,
    /// Pairing and weights.
    pub merged: Merged,
    /// Samples of the first task that errors were measured on; all of them after the last layer.
    pub samples: usize,
    /// Error of each task after merging this layer, where there is test data.
    pub error_zipped: Vec<Option<f64>>,
    /// Error of each task after retraining.
    pub error_after: Vec<Option<f64>>,
    /// Iterations of retraining.
    pub iterations: usize,
    /// How retraining went: iterations done, and each task's mean loss over the last ones.
    pub losses: Vec<(usize, Vec<f64>)>,
    /// Time it took.
    pub seconds: f64,
}

/// Losses of a long run as a short curve.
struct Losses {
    /// Iterations that become one point.
    every: usize,
    sums: Vec<f64>,
    points: Vec<(usize, Vec<f64>)>,
}

impl Losses {
    const POINTS: usize = 50;

    fn over(iterations: usize) -> Self {
        Self { every: iterations.div_ceil(Self::POINTS).max(1), sums: Vec::new(), points: Vec::new() }
    }

    fn add(&mut self, step: usize, losses: &[f64]) {
        self.sums.resize(losses.len(), 0.0);
        self.sums.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
        if step.is_multiple_of(self.every) {
            let sums = std::mem::take(&mut self.sums);
            self.points.push((step, sums.into_iter().map(|sum| sum / self.every as f64).collect()));
        }
    }
}

impl LayerReport {
    fn to_json(&self) -> Json {
        let m = &self.merged;
        json!({
            "name": self.name, "units": self.units, "samples": self.samples, "error_zipped": self.error_zipped,
            "error_after": self.error_after, "iterations": self.iterations, "losses": self.losses, "seconds": self.seconds, "shared": m.shared,
            "distance": m.distance, "distances": m.distances, "typical": m.typical, "ridge": m.ridge, "raised": m.raised,
        })
    }

    fn from_json(json: &Json) -> Option<Self> {
        let count = |value: &Json| value.as_u64().and_then(|n| usize::try_from(n).ok());
        let number = |key: &str| json[key].as_f64();
        Some(Self {
            name: json["name"].as_str()?.to_owned(),
            units: json["units"].as_array()?.iter().map(count).collect::<Option<_>>()?,
            merged: Merged {
                shared: count(&json["shared"])?,
                distance: number("distance")?,
                distances: optional_numbers(&json["distances"]).into_iter().collect::<Option<_>>()?,
                typical: number("typical")?,
                ridge: number("ridge")?,
                raised: json["raised"].as_bool()?,
            },
            samples: count(&json["samples"])?,
            error_zipped: optional_numbers(&json["error_zipped"]),
            error_after: optional_numbers(&json["error_after"]),
            iterations: count(&json["iterations"])?,
            losses: json["losses"]
                .as_array()?
                .iter()
                .map(|p| Some((count(&p[0])?, optional_numbers(&p[1]).into_iter().collect::<Option<_>>()?)))
                .collect::<Option<_>>()?,
            seconds: number("seconds")?,
        })
    }
}

fn optional_numbers(json: &Json) -> Vec<Option<f64>> {
    json.as_array().into_iter().flatten().map(Json::as_f64).collect()
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Zipped {
    /// The joint model.
    pub joint: Joint,
    /// Error of each original network.
    pub error_before: Vec<Option<f64>>,
    /// Layer by layer.
    pub layers: Vec<LayerReport>,
    /// Parameters of what was given.
    pub parameters_before: usize,
    /// Those of them that are not zero.
    pub nonzero_before: usize,
    /// Iterations of retraining in all.
    pub iterations: usize,
}

/// What is being done to a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Collecting what it sees.
    Statistics,
    /// Pairing units and fitting weights.
    Merging,
    /// Iterations done, and how many there will be.
    Retraining(usize, usize),
}

impl std::fmt::Display for Doing {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Statistics => f.write_str("statistics"),
            Self::Merging => f.write_str("merging"),
            Self::Retraining(done, all) => write!(f, "retraining {done}/{all}"),
        }
    }
}

/// News for a progress bar: layer, number of layers, what is being done.
pub type News = (usize, usize, Doing);

/// Zips the members of `start` ([`Joint::beside`]) into one; `tasks` are their data, in the same order.
pub fn zip(
    start: Joint,
    tasks: &[Task],
    plan: &Plan,
    mut listen: impl FnMut(News) -> ControlFlow<()>,
) -> Result<Zipped> {
    let originals: Vec<Graph> = start.members.iter().map(|m| m.graph.clone()).collect();
    let (parameters_before, nonzero_before) = (start.parameters().0, start.nonzero());
    let mut joint = start;
    if joint.members.len() != tasks.len() || joint.members.iter().zip(tasks).any(|(m, t)| m.name != t.name) {
        return Err(Error::usage("every task of the model needs its data"));
    }
    let depth = joint.depth();
    check_names(&joint, plan)?;
    let total: f64 = tasks.iter().map(|t| t.weight).sum();
    let weights: Vec<f64> = tasks.iter().map(|t| t.weight / total).collect();
    let samples: Vec<Vec<usize>> = tasks.iter().map(|t| chosen(t, plan)).collect();
    let fewer: Vec<Task> = tasks.iter().zip(few_to_measure(&joint, tasks)).map(|(t, few)| t.to_measure(few)).collect();
    let key = || fingerprint(&originals, tasks, &samples, plan);
    let checkpoint = plan.checkpoint.as_ref().map(|folder| Checkpoint::open(folder, key()?)).transpose()?;
    let saved = checkpoint.as_ref().map(Checkpoint::load).transpose()?.flatten();
    let error_before = match &saved {
        Some((_, about)) => optional_numbers(&about["error_before"]),
        None => errors(&originals.iter().collect::<Vec<_>>(), tasks, plan)?,
    };
    let align = aligned(&joint, plan);
    let mut walks = vec![Walks::default(); tasks.len()];
    let mut layers: Vec<LayerReport> = Vec::new();
    if let Some((so_far, about)) = saved {
        joint = so_far;
        let known: Option<Vec<_>> =
            about["layers"].as_array().into_iter().flatten().map(LayerReport::from_json).collect();
        layers = known.ok_or_else(|| Error::data("the checkpoint is damaged").hint("remove it to begin anew"))?;
    }
    let mut iterations = layers.iter().map(|l| l.iterations).sum();
    for layer in layers.len()..depth {
        let begin = Instant::now();
        let head = layer + 1 == depth;
        if head && plan.recipe == Recipe::Paper {
            break; // output layers stay as they are
        }
        stop(listen((layer, depth, Doing::Statistics)))?;
        let collected = layer_moments(&joint, &originals, tasks, &samples, layer, plan, &mut walks)?;
        stop(listen((layer, depth, Doing::Merging)))?;
        let name = joint.members[0].layers[layer].name.clone();
        let share = share_of(&joint, plan, layer);
        let (matching, ridge, recipe, streams) = (plan.matching, plan.ridge, plan.recipe, plan.streams);
        // Few samples say little: then the old weights count for more.
        let few = collected
            .iter()
            .map(|s| 5.0 * s.moments.size() as f64 / s.moments.samples().max(1) as f64)
            .fold(1.0, f64::max);
        let ridge = if recipe == Recipe::Best { ridge * few } else { ridge };
        let seed = random::bits(plan.seed, 77 + layer as u64);
        let rounds = rounds(&joint, plan);
        let options = merge::Options { share, matching, recipe, align, streams, ridge, rounds, seed };
        let merged = merge_layer(&mut joint, layer, &collected, &weights, head, &options)?;
        let last = layer + if plan.recipe == Recipe::Paper { 2 } else { 1 } >= depth;
        let measured = if last { tasks } else { &fewer };
        let error_zipped = errors(&joint.members.iter().map(|m| &m.graph).collect::<Vec<_>>(), measured, plan)?;
        let mut error_after = error_zipped.clone();
        let mut done = 0;
        // The paper retrains after each layer. With targets nothing is lost on the way, and all iterations together at the end do more.
        let wanted = match plan.recipe {
            Recipe::Paper => plan.retrain,
            Recipe::Best if head => plan.retrain * (depth - 1),
            Recipe::Best => 0,
        };
        let mut losses = Losses::over(wanted);
        if wanted > 0 {
            done = retrain(&mut joint, tasks, &originals, &weights, plan, wanted, |i, now| {
                losses.add(i, now);
                listen((layer, depth, Doing::Retraining(i, wanted)))
            })?;
            if done < wanted {
                return Err(Error::usage("stopped"));
            }
            walks.iter_mut().for_each(|w| w.merged.restart());
            error_after = errors(&joint.members.iter().map(|m| &m.graph).collect::<Vec<_>>(), measured, plan)?;
        }
        iterations += done;
        layers.push(LayerReport {
            name,
            units: joint.members.iter().map(|m| m.layers[layer].units).collect(),
            merged,
            samples: measured.first().and_then(|t| t.test.as_ref()).map_or(0, |(_, samples)| samples.len()),
            error_zipped,
            error_after,
            iterations: done,
            losses: losses.points,
            seconds: begin.elapsed().as_secs_f64(),
        });
        if let Some(checkpoint) = &checkpoint {
            let known: Vec<Json> = layers.iter().map(LayerReport::to_json).collect();
            checkpoint.save(layers.len(), &joint, &json!({ "error_before": error_before, "layers": known }))?;
        }
    }
    Ok(Zipped { joint, error_before, layers, parameters_before, nonzero_before, iterations })
}

/// How many units of a layer to share.
pub(crate) fn share_of(joint: &Joint, plan: &Plan, layer: usize) -> Share {
    let name = &joint.members[0].layers[layer].name;
    plan.share_of.iter().find(|(n, _)| n == name).map_or(plan.share, |(_, share)| *share)
}

/// Which inputs count as the same.
pub fn aligned(joint: &Joint, plan: &Plan) -> Align {
    let residual = joint.members.iter().flat_map(|m| &m.layers).any(|l| l.stream.is_some());
    plan.align.unwrap_or(if residual { Align::All } else { Align::Shared })
}

/// How often a layer is solved again for one-sided targets. Errors add up over layers: in deep networks that takes a fifth off the loss, in
/// shallow ones it is not worth the time.
pub(crate) fn rounds(joint: &Joint, plan: &Plan) -> usize {
    if plan.recipe == Recipe::Best && joint.depth() > SHALLOW { 3 } else { 0 }
}

/// What every task's layer sees and should answer.
fn layer_moments(
    joint: &Joint,
    originals: &[Graph],
    tasks: &[Task],
    samples: &[Vec<usize>],
    layer: usize,
    plan: &Plan,
    walks: &mut [Walks],
) -> Result<Vec<Seen>> {
    let samples: Vec<Vec<usize>> =
        joint.members.iter().zip(samples).map(|(m, own)| enough(m, layer, own).to_vec()).collect();
    let seen = joint.members.iter().zip(&samples);
    let seen: usize = seen.clone().map(|(m, own)| positions(&m.graph, &m.layers[layer], own.len())).sum();
    let inputs = joint.members.iter().map(|m| m.layers[layer].columns()).min().unwrap_or(0);
    let count = tasks.len().max(1);
    let tasks = tasks.par_iter().zip(originals).zip(joint.members.par_iter().zip(&samples));
    tasks
        .zip(walks)
        .enumerate()
        .map(|(t, (((task, original), (member, samples)), walks))| {
            // A task that sees what it always saw is answered by its own weights, and the paper's recipe asks for nothing else.
            let target = (plan.recipe == Recipe::Best && joint.has_changed(t, layer)).then_some(original);
            let from = Calibration {
                keep: seen < inputs,
                beside: if rounds(joint, plan) > 0 { ROOM / count } else { 0 },
                shift: plan.shift,
                ..Calibration::new(task.train, samples.clone(), plan.seed).within(plan.memory / count as u64, original)
            };
            moments(&member.graph, target, &member.layers[layer], &from, walks)
        })
        .collect()
}

/// As many of the samples as the statistics of a layer need: all of them for small networks, fewer where one pass takes long and a sample shows the
/// layer many positions.
pub(crate) fn enough<'s>(member: &Member, layer: usize, samples: &'s [usize]) -> &'s [usize] {
    /// Multiply-adds of a pass that no layer is denied.
    const PASS: usize = 100_000_000_000;
    const LEAST: usize = 500;
    let count = wanted(&member.graph, &member.layers[layer]).max(PASS / member.multiply_adds().max(1)).max(LEAST);
    // Whole batches, so that layers that see more see the same ones and others.
    &samples[..count.next_multiple_of(BATCH).min(samples.len())]
}

/// Trains all tasks at once, shared weights tied. `listen` hears of every step and each task's loss.
pub fn retrain(
    joint: &mut Joint,
    tasks: &[Task],
    originals: &[Graph],
    weights: &[f64],
    plan: &Plan,
    iterations: usize,
    mut listen: impl FnMut(usize, &[f64]) -> ControlFlow<()>,
) -> Result<usize> {
    let (mut parameters, bindings) = joint.bind()?;
    let count = tasks.len() as f64;
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
            (with(&member.graph), with(original))
        })
        .collect();
    let features = |graph: &Graph| FEATURES / (graph.outputs().len() - 1).max(1) as f32;
    let learners: Vec<Learner> = watched
        .iter()
        .zip(tasks)
        .zip(&bindings)
        .zip(weights)
        .map(|((((graph, original), task), bindings), weight)| Learner {
            graph,
            bindings: bindings.clone(),
            feed: task.train,
            samples: task.samples.clone().unwrap_or_else(|| (0..task.train.len()).collect()),
            goal: Goal::Teacher {
                graph: original,
                temperature: (plan.aim == Aim::Distill).then_some(TEMPERATURE),
                features: features(graph),
            },
            weight: (weight * count) as f32,
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
    let done = learn(&mut parameters, &learners, iterations, &rule, |step, losses, _| Ok(listen(step, losses)))?;
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

/// The error of each network on its test data, in percent.
pub fn errors(graphs: &[&Graph], tasks: &[Task], plan: &Plan) -> Result<Vec<Option<f64>>> {
    let options = evaluate::Options { batch_size: 64, memory: plan.memory };
    graphs
        .par_iter()
        .zip(tasks)
        .map(|(graph, task)| {
            let Some((feed, samples)) = &task.test else { return Ok(None) };
            if feed.labels().is_none() {
                return Ok(None);
            }
            let graph = simplify::for_inference(graph)?;
            let result = evaluate_on(&graph, feed, samples, options, |_| {})?;
            Ok(Some(result.error))
        })
        .collect()
}

/// What makes a run this one and no other: if any of it changes, so may the result.
fn fingerprint(originals: &[Graph], tasks: &[Task], samples: &[Vec<usize>], plan: &Plan) -> Result<String> {
    let mut print = Fingerprint::default();
    print.text(env!("CARGO_PKG_VERSION"));
    print.text(&format!("{:?}", Plan { checkpoint: None, ..plan.clone() }));
    originals.iter().for_each(|graph| print.network(graph));
    for (task, samples) in tasks.iter().zip(samples) {
        print.text(&task.name);
        print.number(task.weight.to_bits());
        let learn = task.samples.iter().flatten();
        let test = task.test.iter().flat_map(|(_, samples)| samples);
        [task.train.len()].iter().chain(samples).chain(learn).chain(test).for_each(|s| print.number(*s as u64));
        // What is in the files, and how it is prepared, shows in a few samples and the labels.
        let some = |all: &[usize]| -> Vec<usize> { all.iter().copied().step_by((all.len() / 16).max(1)).collect() };
        let feeds = [Some((task.train, some(samples))), task.test.as_ref().map(|(feed, all)| (*feed, some(all)))];
        for (feed, some) in feeds.into_iter().flatten() {
            feed.batch(&some)?.data().iter().for_each(|x| print.number(u64::from(x.to_bits())));
            match feed.labels() {
                Some(Labels::Classes(all)) => all.iter().for_each(|class| print.number(u64::from(*class))),
                Some(Labels::Attributes { values, .. }) => values.iter().for_each(|v| print.number(u64::from(*v))),
                None => print.number(u64::MAX),
            }
        }
    }
    Ok(print.finish())
}

/// The samples for statistics.
fn chosen(task: &Task, plan: &Plan) -> Vec<usize> {
    let all: Vec<usize> = task.samples.clone().unwrap_or_else(|| (0..task.train.len()).collect());
    let order = random::permutation(random::bits(plan.seed, 9), all.len());
    let mut samples: Vec<usize> = order.into_iter().take(plan.calibration).map(|i| all[i]).collect();
    // A file is read from front to back, batch by batch.
    samples.chunks_mut(BATCH).for_each(<[usize]>::sort_unstable);
    samples
}

fn check_names(joint: &Joint, plan: &Plan) -> Result<()> {
    let names: Vec<&str> = joint.members[0].layers.iter().map(|l| l.name.as_str()).collect();
    match plan.share_of.iter().find(|(name, _)| !names.contains(&name.as_str())) {
        Some((name, _)) => Err(Error::usage(format!("--share names a layer {name:?} that is not there"))
            .hint(format!("the layers are {}", names.join(", ")))),
        None => Ok(()),
    }
}

fn stop(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() { Err(Error::usage("stopped")) } else { Ok(()) }
}
