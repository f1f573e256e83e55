//! The whole of zipping on one screen: for each layer collect statistics, match and merge, measure, retrain.

mod collect;
mod held_out;
mod layer_report;
mod measure;
mod memory;
mod retrain;
mod settings;

pub(crate) use collect::{calibrations, chosen};
pub(crate) use held_out::held_out_bytes;
pub use layer_report::LayerReport;
pub(crate) use measure::measured_at_a_time;
pub use measure::{References, errors};
use memory::check_file_sizes;
pub use memory::paired_in_order;
pub use memory::writing;
pub(crate) use memory::{Spare, answers, networks, of_layer, retraining, saving};
pub(crate) use retrain::try_steps;
pub use retrain::{Retrained, retrain};
pub use settings::{Aim, Plan, Task};

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::evaluate::{OutputKind, Reference};
use crate::fingerprint::Fingerprint;
use crate::graph::Graph;
use crate::merge::{self, Align, Recipe, Share, merge_layer};
use crate::plan::{Joint, Member};
use crate::random;
use crate::statistics::Walks;
use crate::train::Diary;
use collect::{layer_moments, renormalise};
use held_out::HeldOut;
use measure::{agreement_of, errors_of};
use retrain::Losses;
use serde_json::{Value as Json, json};
use settings::SHALLOW;
use std::ops::ControlFlow;
use std::time::Instant;

/// What came out.
#[derive(Clone, Debug)]
pub struct Zipped {
    /// The joint model.
    pub joint: Joint,
    /// Error of each original network.
    pub error_before: Vec<Option<f64>>,
    /// What each task's answers are, of its output that agrees least; nothing for a task without test samples.
    pub kinds: Vec<Option<OutputKind>>,
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
    check_file_sizes(&joint, plan)?;
    let spare = Spare::all(&joint, tasks, &samples, plan)?;
    let key = || fingerprint(&originals, tasks, &samples, plan);
    let checkpoint = plan.checkpoint.as_ref().map(|folder| Checkpoint::open(folder, key()?)).transpose()?;
    let saved = checkpoint.as_ref().map(Checkpoint::load).transpose()?.flatten();
    let all: Vec<&Graph> = originals.iter().collect();
    let references = References::new(&all, tasks, plan)?;
    let fewer = on_the_way(&joint, tasks, plan);
    let few_references = references.on(&fewer, plan)?;
    let align = aligned(&joint, plan);
    let mut walks = vec![Walks::default(); tasks.len()];
    let mut held_out = HeldOut::new(&joint, tasks, &samples, plan, &spare);
    let mut layers: Vec<LayerReport> = Vec::new();
    if let Some((so_far, about)) = saved {
        joint = so_far;
        for (member, original) in joint.members.iter_mut().zip(&originals) {
            member.graph.element = original.element;
        }
        let known: Option<Vec<_>> =
            about["layers"].as_array().into_iter().flatten().map(LayerReport::from_json).collect();
        layers = known.ok_or_else(|| Error::data("the checkpoint is damaged").hint("remove it to begin anew"))?;
    }
    // The paper's recipe leaves output layers as they are.
    let merged: Vec<usize> = (0..depth).filter(|l| plan.recipe == Recipe::Best || !joint.is_head(*l)).collect();
    let Some(&last_layer) = merged.last() else {
        return Err(Error::model("the networks have output layers only: there is nothing to share"));
    };
    for layer in merged.into_iter().skip(layers.len()) {
        let spare = spare[layer];
        let begin = Instant::now();
        let head = joint.is_head(layer);
        stop(listen((layer, depth, Doing::Statistics)))?;
        let from = calibrations(&joint, tasks, &samples, layer, plan, spare);
        let collected = layer_moments(&joint, &originals, layer, plan, &from, &mut walks)?;
        stop(listen((layer, depth, Doing::Merging)))?;
        let name = joint.members[0].layers[layer].name.clone();
        let share = share_of(&joint, plan, layer);
        let (matching, ridge, recipe, streams) = (plan.matching, plan.ridge, plan.recipe, plan.streams);
        let inputs = collected.iter().map(|s| s.moments.size()).max().unwrap_or(0);
        let seen = collected.iter().map(|s| s.moments.samples()).min().unwrap_or(0);
        // Few samples say little: then the old weights count for more.
        let few = collected
            .iter()
            .map(|s| 5.0 * s.moments.size() as f64 / s.moments.samples().max(1) as f64)
            .fold(1.0, f64::max);
        let ridge = if recipe == Recipe::Best { ridge * few } else { ridge };
        let seed = random::bits(plan.seed, 77 + layer as u64);
        let rounds = rounds(&joint, plan);
        let options = merge::Options { share, matching, recipe, align, streams, ridge, rounds, seed };
        let before: Vec<Graph> = joint.members.iter().map(|m| m.graph.clone()).collect();
        let merged = merge_layer(&mut joint, layer, &collected, &weights, head, &options)?;
        let fit = held_out.measure(&joint, &before, &originals, layer, &collected, plan)?;
        drop((before, collected));
        // Where sums are fitted to what they were, there is nothing to set right (docs/methods.md).
        if plan.recipe == Recipe::Paper {
            renormalise(&mut joint, &originals, layer, &from, &mut walks)?;
        }
        let references = if layer == last_layer { &references } else { &few_references };
        let zipped = references.measure(&joint.graphs())?;
        let mut report = LayerReport {
            name,
            units: joint.members.iter().map(|m| m.layers[layer].units).collect(),
            inputs,
            seen,
            merged,
            fit_seen: fit.seen,
            fit_held_out: fit.held_out,
            samples: references.iter().next().flatten().map_or(0, Reference::samples),
            error_zipped: errors_of(&zipped),
            error_after: Vec::new(),
            agreement_zipped: agreement_of(&zipped),
            agreement_after: Vec::new(),
            worst_output: Vec::new(),
            iterations: 0,
            kept: None,
            losses: Vec::new(),
            seconds: begin.elapsed().as_secs_f64(),
        };
        report.set_after(&zipped);
        // The paper retrains after each layer. With targets nothing is lost on the way, and all iterations together at the end do more.
        if plan.recipe == Recipe::Paper && plan.retrain > 0 {
            // Weights that were passed will change, and retraining needs the room.
            walks.fill(Walks::default());
            held_out.restart();
            let run = Retraining { tasks, originals: &originals, plan, wanted: plan.retrain, references, layer };
            run.layer(&mut joint, &mut report, &mut listen)?;
        }
        layers.push(report);
        if let Some(checkpoint) = &checkpoint {
            checkpoint.save(layers.len(), &joint, &reports(&layers))?;
            diary(plan).iter().for_each(Diary::close);
        }
    }
    drop((walks, held_out));
    let retrains = plan.recipe == Recipe::Best && plan.retrain > 0;
    if !retrains {
        measure_rounded(&mut joint, layers.last_mut(), &references)?;
    }
    let error_before = references.errors();
    let kinds = kinds(&references, layers.last());
    let iterations = layers.iter().map(|l| l.iterations).sum();
    let zipped = Zipped { joint, error_before, kinds, layers, parameters_before, nonzero_before, iterations };
    if plan.recipe == Recipe::Paper || plan.retrain == 0 || iterations > 0 {
        return Ok(zipped);
    }
    retrain_all(zipped, tasks, &originals, plan, &references, checkpoint.as_ref(), &mut listen)
}

/// Retrains what was zipped without retraining, all iterations together.
pub(crate) fn retrain_all(
    mut zipped: Zipped,
    tasks: &[Task],
    originals: &[Graph],
    plan: &Plan,
    references: &References,
    checkpoint: Option<&Checkpoint>,
    listen: &mut dyn FnMut(News) -> ControlFlow<()>,
) -> Result<Zipped> {
    let layer = zipped.joint.depth().saturating_sub(1);
    let wanted = plan.retrain * zipped.joint.hidden_layers();
    let run = Retraining { tasks, originals, plan, wanted, references, layer };
    if let Some(report) = zipped.layers.last_mut() {
        run.layer(&mut zipped.joint, report, listen)?;
    }
    measure_rounded(&mut zipped.joint, zipped.layers.last_mut(), references)?;
    zipped.kinds = kinds(references, zipped.layers.last());
    zipped.iterations = zipped.layers.iter().map(|l| l.iterations).sum();
    if let Some(checkpoint) = checkpoint {
        checkpoint.save(zipped.layers.len() + 1, &zipped.joint, &reports(&zipped.layers))?;
        diary(plan).iter().for_each(Diary::close);
    }
    Ok(zipped)
}

/// Rounds weights to what the file will hold, and measures what comes out where that is less than they had.
fn measure_rounded(joint: &mut Joint, report: Option<&mut LayerReport>, references: &References) -> Result<()> {
    if let (true, Some(report)) = (joint.round()?, report) {
        let measured = references.measure(&joint.graphs())?;
        report.set_after(&measured);
    }
    Ok(())
}

/// What the answers of each task's worst output are.
fn kinds(references: &References, last: Option<&LayerReport>) -> Vec<Option<OutputKind>> {
    let worst = |t: usize| last.and_then(|l| l.worst_output.get(t).copied().flatten()).unwrap_or(0);
    references.iter().enumerate().map(|(t, reference)| reference?.kind(worst(t))).collect()
}

/// A retraining behind a layer.
struct Retraining<'r, 'a> {
    tasks: &'r [Task<'a>],
    originals: &'r [Graph],
    plan: &'r Plan,
    /// Iterations.
    wanted: usize,
    references: &'r References<'a>,
    layer: usize,
}

impl Retraining<'_, '_> {
    /// Retrains, measures, and says so in the layer's report.
    fn layer(
        &self,
        joint: &mut Joint,
        report: &mut LayerReport,
        listen: &mut dyn FnMut(News) -> ControlFlow<()>,
    ) -> Result<()> {
        let (begin, depth) = (Instant::now(), joint.depth());
        let mut losses = Losses::over(self.wanted);
        let diary = diary(self.plan);
        let done = retrain(joint, self.tasks, self.originals, self.plan, self.wanted, diary.as_ref(), |i, now| {
            losses.add(i, now);
            listen((self.layer, depth, Doing::Retraining(i, self.wanted)))
        })?;
        if done.iterations < self.wanted {
            return Err(Error::usage("stopped"));
        }
        let after = self.references.measure(&joint.graphs())?;
        report.set_after(&after);
        report.iterations = done.iterations;
        report.kept = Some(done.kept);
        report.losses = losses.points;
        report.seconds += begin.elapsed().as_secs_f64();
        Ok(())
    }
}

/// Where retraining keeps its state.
fn diary(plan: &Plan) -> Option<Diary> {
    plan.checkpoint.as_ref().map(|folder| Diary::new(&folder.join("retraining")))
}

/// What a checkpoint knows about the layers.
fn reports(layers: &[LayerReport]) -> Json {
    json!({ "layers": layers.iter().map(LayerReport::to_json).collect::<Vec<Json>>() })
}

/// Multiply-adds that measuring the errors after a layer may take; a large network is measured on fewer samples until the last layer is merged.
const MEASURING: usize = 30_000_000_000;

/// Networks so large that measuring [`Plan::measured`] samples would take so many times longer than meant are not measured until the last layer.
const TOO_LONG: usize = 25;

/// The tasks with those samples that errors are measured on after every layer but the last.
pub fn on_the_way<'a>(joint: &Joint, tasks: &[Task<'a>], plan: &Plan) -> Vec<Task<'a>> {
    tasks.iter().zip(few_to_measure(joint, tasks, plan)).map(|(t, few)| t.to_measure(few)).collect()
}

/// How many samples of each task that is.
pub(crate) fn few_to_measure(joint: &Joint, tasks: &[Task], plan: &Plan) -> Vec<usize> {
    let samples = |m: &Member| MEASURING / m.effort().max(1);
    joint
        .members
        .iter()
        .map(samples)
        .take(tasks.len())
        .map(|n| if plan.measured == 0 || TOO_LONG * n < plan.measured { 0 } else { n.max(plan.measured) })
        .collect()
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

/// What makes a run this one and no other: if any of it changes, so may the result.
pub(crate) fn fingerprint(originals: &[Graph], tasks: &[Task], samples: &[Vec<usize>], plan: &Plan) -> Result<String> {
    let mut print = Fingerprint::default();
    print.text(env!("CARGO_PKG_VERSION"));
    print.text(&format!("{:?}", Plan { checkpoint: None, ..plan.clone() }));
    originals.iter().for_each(|graph| print.network(graph));
    for (task, samples) in tasks.iter().zip(samples) {
        print.text(&task.name);
        print.number(task.weight.to_bits());
        print.number(u64::from(task.mirrored));
        print.text(&format!("{:?}", task.kind));
        task.original.iter().for_each(|graph| print.network(graph));
        let learn = task.samples.iter().flatten();
        let test = task.test.iter().flat_map(|(_, samples)| samples);
        [task.train.len()].iter().chain(samples).chain(learn).chain(test).for_each(|s| print.number(*s as u64));
        // What is in the files, and how it is prepared, shows in a few samples and the labels.
        let some = |all: &[usize]| -> Vec<usize> { all.iter().copied().step_by((all.len() / 16).max(1)).collect() };
        let feeds = [Some((task.train, some(samples))), task.test.as_ref().map(|(feed, all)| (*feed, some(all)))];
        for (feed, some) in feeds.into_iter().flatten() {
            feed.batch(&some)?.data().iter().for_each(|x| print.number(u64::from(x.to_bits())));
            print.labels(feed.labels());
        }
    }
    Ok(print.finish())
}

fn check_names(joint: &Joint, plan: &Plan) -> Result<()> {
    let names: Vec<&str> = joint.members[0].layers.iter().map(|l| l.name.as_str()).collect();
    for (name, _) in &plan.share_of {
        let problem = match names.iter().filter(|n| *n == name).count() {
            1 => continue,
            0 => format!("--share names a layer {name:?} that is not there"),
            n => format!("{n} layers are called {name:?}"),
        };
        return Err(Error::usage(problem).hint(format!("the layers are {}", names.join(", "))));
    }
    Ok(())
}

fn stop(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() { Err(Error::usage("stopped")) } else { Ok(()) }
}
