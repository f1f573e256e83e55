//! The steps of a zip. A session merges one layer at a time and retrains at the end; between two steps the joint model
//! can be looked at, and with a checkpoint each step is saved.

use super::calibration::{Collector, chosen};
use super::checkpoint::{Checkpoint, fingerprint};
use super::held_out::HeldOut;
use super::layer_report::LayerReport;
use super::measure::{References, agreement_of, errors_of};
use super::memory::{MemoryBudget, check_file_sizes};
use super::options::{TaskData, ZipOptions};
use super::retrain::{Losses, Retraining};
use super::{Zipped, aligned, check_names, intermediate_tasks, rounds, share_of};
use crate::engine::{CpuEngine, Engine};
use crate::error::{Error, Result};
use crate::evaluate::{OutputKind, Reference};
use crate::graph::Graph;
use crate::merge::{MergeOptions, Recipe, merge_layer};
use crate::progress::{Observer, Progress, Stage, unless_cancelled};
use crate::random;
use crate::sharing::Joint;
use crate::statistics::{LayerStatistics, StatisticsSource};
use crate::statistics_file::SavedStatistics;
use crate::train::TrainingCheckpoint;
use std::sync::Arc;
use std::time::Instant;

/// Where a session gets its numbers from.
#[derive(Clone)]
pub struct Sources<'a> {
    /// What runs networks.
    pub engine: &'a dyn Engine,
    /// Statistics of the original networks that were collected before. Without them each layer's are collected when its
    /// turn comes, on the merged networks' own inputs.
    pub statistics: Option<SavedStatistics>,
}

impl Default for Sources<'_> {
    fn default() -> Self {
        Self { engine: &CpuEngine, statistics: None }
    }
}

/// A zip under way.
pub struct Session<'a> {
    tasks: Vec<TaskData<'a>>,
    options: ZipOptions,
    engine: &'a dyn Engine,
    originals: Arc<[Graph]>,
    parameters_before: usize,
    nonzero_before: usize,
    joint: Joint,
    /// Of the layers that are merged.
    layers: Vec<LayerReport>,
    /// The layers to merge, in order: the paper's recipe leaves output layers as they are.
    order: Vec<usize>,
    /// How much each task counts; they add up to 1.
    weights: Vec<f64>,
    statistics: Box<dyn StatisticsSource + 'a>,
    held_out: Option<HeldOut<'a>>,
    /// What errors and agreement are measured on at the end, and after each layer but the last.
    references: References<'a>,
    intermediate: References<'a>,
    checkpoint: Option<Checkpoint>,
}

impl<'a> Session<'a> {
    /// Begins to zip the members of `start` ([`Joint::from_networks`]), or resumes from the checkpoint that the options
    /// name; `tasks` are their data, in the same order.
    pub fn new(start: Joint, tasks: &[TaskData<'a>], options: &ZipOptions) -> Result<Self> {
        Self::with_sources(start, tasks, options, Sources::default())
    }

    /// The same, computed by another engine, or from statistics that were collected before.
    pub fn with_sources(
        start: Joint,
        tasks: &[TaskData<'a>],
        options: &ZipOptions,
        Sources { engine, statistics }: Sources<'a>,
    ) -> Result<Self> {
        if start.members.len() != tasks.len() || start.members.iter().zip(tasks).any(|(m, t)| m.name != t.name) {
            return Err(Error::usage("every task of the model needs its data"));
        }
        check_names(&start, options)?;
        check_file_sizes(&start, options)?;
        let best = options.recipe == Recipe::Best;
        let order: Vec<usize> = (0..start.depth()).filter(|l| best || !start.is_head(*l)).collect();
        if order.is_empty() {
            return Err(Error::model("the networks have output layers only: there is nothing to share"));
        }
        let originals: Arc<[Graph]> = start.members.iter().map(|m| m.graph.clone()).collect();
        let samples: Vec<Vec<usize>> = tasks.iter().map(|t| chosen(t, options)).collect();
        let budgets = MemoryBudget::all(&start, tasks, &samples, options)?;
        if let Some(statistics) = &statistics {
            statistics.check(&start)?;
        }
        let key = || fingerprint(&originals, tasks, &samples, options, statistics.as_ref());
        let checkpoint =
            options.resources.checkpoint.as_ref().map(|folder| Checkpoint::open(folder, key()?)).transpose()?;
        let saved = checkpoint.as_ref().map(Checkpoint::load).transpose()?.flatten();
        let graphs: Vec<&Graph> = originals.iter().collect();
        let references = References::new(&graphs, tasks, options, engine)?;
        let fewer = intermediate_tasks(&start, tasks, options);
        let intermediate = references.on(&fewer, options)?;
        let held_out = HeldOut::new(&start, tasks, &samples, options, &budgets);
        let total: f64 = tasks.iter().map(|t| t.weight).sum();
        let statistics: Box<dyn StatisticsSource> = match statistics {
            Some(statistics) => Box::new(statistics),
            None => Box::new(Collector::new(tasks, originals.clone(), options, samples, budgets, engine)),
        };
        let mut session = Self {
            parameters_before: start.parameters().0,
            nonzero_before: start.nonzero(),
            statistics,
            tasks: tasks.to_vec(),
            options: options.clone(),
            engine,
            originals,
            joint: start,
            layers: Vec::new(),
            order,
            weights: tasks.iter().map(|t| t.weight / total).collect(),
            held_out: Some(held_out),
            references,
            intermediate,
            checkpoint,
        };
        if let Some((joint, layers)) = saved {
            session.restore(joint, layers);
        }
        Ok(session)
    }

    /// The joint model so far.
    pub fn joint(&self) -> &Joint {
        &self.joint
    }

    /// What happened to the layers that are merged.
    pub fn layers(&self) -> &[LayerReport] {
        &self.layers
    }

    /// Goes on from what another session led to.
    pub(crate) fn restore(&mut self, mut joint: Joint, layers: Vec<LayerReport>) {
        for (member, original) in joint.members.iter_mut().zip(self.originals.iter()) {
            member.graph.element = original.element;
        }
        (self.joint, self.layers) = (joint, layers);
    }

    /// Merges the next layer; `None` if all are merged. The paper's recipe retrains after it.
    pub fn next_layer(&mut self, progress: &mut Observer) -> Result<Option<&LayerReport>> {
        let Some(&layer) = self.order.get(self.layers.len()) else { return Ok(None) };
        let depth = self.joint.depth();
        let begin = Instant::now();
        unless_cancelled(progress(Progress::new(layer, depth, Stage::Statistics)))?;
        let statistics = self.statistics.layer(&self.joint, layer)?;
        unless_cancelled(progress(Progress::new(layer, depth, Stage::Merging)))?;
        let mut report = self.merge(layer, statistics)?;
        report.seconds = begin.elapsed().as_secs_f64();
        if self.options.recipe == Recipe::Paper && self.options.retraining.iterations > 0 {
            // Weights of merged layers will change, and retraining needs the memory.
            self.statistics.restart();
            self.held_out.iter_mut().for_each(HeldOut::restart);
            self.retrain_after(layer, self.options.retraining.iterations, &mut report, progress)?;
        }
        self.layers.push(report);
        self.save(self.layers.len())?;
        Ok(self.layers.last())
    }

    /// Matches and merges a layer, and measures what that did.
    fn merge(&mut self, layer: usize, statistics: Vec<LayerStatistics>) -> Result<LayerReport> {
        let options = &self.options;
        let before: Vec<Graph> = self.joint.members.iter().map(|m| m.graph.clone()).collect();
        let inputs = statistics.iter().map(|s| s.moments.size()).max().unwrap_or(0);
        let samples = statistics.iter().map(|s| s.moments.samples()).min().unwrap_or(0);
        // Few samples say little: then the old weights count for more.
        let few = |s: &LayerStatistics| 5.0 * s.moments.size() as f64 / s.moments.samples().max(1) as f64;
        let few = statistics.iter().map(few).fold(1.0, f64::max);
        let merge_options = MergeOptions {
            share: share_of(&self.joint, options, layer),
            matching: options.sharing.matching,
            recipe: options.recipe,
            align: aligned(&self.joint, options),
            streams: options.sharing.streams,
            ridge: if options.recipe == Recipe::Best { options.fitting.ridge * few } else { options.fitting.ridge },
            rounds: rounds(&self.joint, options),
            seed: random::bits(options.seed, 77 + layer as u64),
        };
        let head = self.joint.is_head(layer);
        let merged = merge_layer(&mut self.joint, layer, &statistics, &self.weights, head, &merge_options)?;
        let fit = match &mut self.held_out {
            Some(held_out) => held_out.measure(&self.joint, &before, &self.originals, layer, &statistics, options)?,
            None => Default::default(),
        };
        drop((before, statistics));
        // Where sums are fitted to what they were, there is nothing to set right (docs/methods.md).
        if options.recipe == Recipe::Paper {
            self.statistics.renormalise(&mut self.joint, layer)?;
        }
        let references = self.references_after(layer);
        let measured = references.measure(&self.joint.graphs())?;
        let mut report = LayerReport {
            name: self.joint.members[0].layers[layer].name.clone(),
            units: self.joint.members.iter().map(|m| m.layers[layer].units).collect(),
            inputs,
            samples,
            merged,
            fit_error: fit.seen,
            fit_error_held_out: fit.held_out,
            error_samples: references.iter().next().flatten().map_or(0, Reference::samples),
            error_zipped: errors_of(&measured),
            agreement_zipped: agreement_of(&measured),
            ..LayerReport::default()
        };
        report.set_after(&measured);
        Ok(report)
    }

    /// What is measured after a layer.
    fn references_after(&self, layer: usize) -> &References<'a> {
        if self.order.last() == Some(&layer) { &self.references } else { &self.intermediate }
    }

    /// Retrains the whole model and notes in the report of a layer what came of it.
    fn retrain_after(
        &mut self,
        layer: usize,
        iterations: usize,
        report: &mut LayerReport,
        progress: &mut Observer,
    ) -> Result<()> {
        let (begin, depth) = (Instant::now(), self.joint.depth());
        let mut losses = Losses::over(iterations);
        let checkpoint = self.training_checkpoint();
        let (tasks, originals, options) = (&self.tasks, &self.originals, &self.options);
        let retraining = Retraining { tasks, originals, options, engine: self.engine };
        let done = retraining.run(&mut self.joint, iterations, checkpoint.as_ref(), |done, now| {
            losses.add(done, now);
            progress(Progress::new(layer, depth, Stage::Retraining { done, of: iterations }))
        })?;
        if done.iterations < iterations {
            return Err(Error::cancelled());
        }
        let measured = self.references_after(layer).measure(&self.joint.graphs())?;
        report.set_after(&measured);
        report.iterations = done.iterations;
        report.kept = Some(done.kept);
        report.losses = losses.points;
        report.seconds += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Where retraining keeps its state.
    fn training_checkpoint(&self) -> Option<TrainingCheckpoint> {
        let folder = self.options.resources.checkpoint.as_ref()?;
        Some(TrainingCheckpoint::new(&folder.join("retraining")))
    }

    /// Saves the state after `step` steps.
    fn save(&self, step: usize) -> Result<()> {
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.save(step, &self.joint, &self.layers)?;
            self.training_checkpoint().iter().for_each(TrainingCheckpoint::close);
        }
        Ok(())
    }

    /// Retrains at the end, all iterations together: with targets nothing is lost between layers, and so they do more.
    /// (The paper retrains after each layer.)
    fn retrain(&mut self, progress: &mut Observer) -> Result<()> {
        // Retraining needs the memory.
        self.statistics.restart();
        self.held_out = None;
        let layer = self.joint.depth().saturating_sub(1);
        let iterations = self.options.retraining.iterations * self.joint.hidden_layers();
        if let Some(mut report) = self.layers.pop() {
            let retrained = self.retrain_after(layer, iterations, &mut report, progress);
            self.layers.push(report);
            retrained?;
        }
        Ok(())
    }

    /// Retrains if the options say so, and rounds weights to what the file will hold. All layers are merged before.
    pub fn finish(mut self, progress: &mut Observer) -> Result<Zipped> {
        if self.layers.len() < self.order.len() {
            return Err(Error::usage("not all layers are merged").hint("call next_layer until it returns none"));
        }
        let best = self.options.recipe == Recipe::Best && self.options.retraining.iterations > 0;
        let retrains = best && self.iterations() == 0;
        if retrains {
            self.retrain(progress)?;
        }
        if retrains || !best {
            self.round()?;
        }
        if retrains {
            self.save(self.layers.len() + 1)?;
        }
        Ok(Zipped {
            error_before: self.references.errors(),
            kinds: self.kinds(),
            iterations: self.iterations(),
            joint: self.joint,
            layers: self.layers,
            parameters_before: self.parameters_before,
            nonzero_before: self.nonzero_before,
        })
    }

    /// All steps that are left.
    pub fn run(mut self, progress: &mut Observer) -> Result<Zipped> {
        while self.next_layer(progress)?.is_some() {}
        self.finish(progress)
    }

    fn iterations(&self) -> usize {
        self.layers.iter().map(|l| l.iterations).sum()
    }

    /// Rounds weights to what the file will hold, and measures again where that is less than they had.
    fn round(&mut self) -> Result<()> {
        if let (true, Some(report)) = (self.joint.round()?, self.layers.last_mut()) {
            report.set_after(&self.references.measure(&self.joint.graphs())?);
        }
        Ok(())
    }

    /// What the answers of each task's worst output are.
    fn kinds(&self) -> Vec<Option<OutputKind>> {
        let worst = |t: usize| self.layers.last().and_then(|l| l.worst_output.get(t).copied().flatten()).unwrap_or(0);
        self.references.iter().enumerate().map(|(t, reference)| reference?.kind(worst(t))).collect()
    }
}
