//! Which samples a layer's statistics take, and what it sees of them.

use super::memory::MemoryBudget;
use super::options::{TaskData, ZipOptions};
use super::rounds;
use crate::engine::Engine;
use crate::error::Result;
use crate::graph::Graph;
use crate::merge::Recipe;
use crate::random;
use crate::sharing::{FreeNorm, Joint, Member};
use crate::statistics::{
    ActivationCaches, BATCH, Calibration, LayerStatistics, StatisticsSource, bytes_per_image, channel_statistics,
    positions, wanted,
};
use rayon::prelude::*;
use std::sync::Arc;

/// How each task's statistics of a layer are collected. `samples` are those of each task that may be used.
pub(crate) fn calibrations<'a>(
    joint: &Joint,
    tasks: &[TaskData<'a>],
    samples: &[Vec<usize>],
    layer: usize,
    options: &ZipOptions,
    budget: MemoryBudget,
) -> Vec<Calibration<'a>> {
    let members = || joint.members.iter().zip(samples);
    let seen: usize =
        members().map(|(m, own)| positions(&m.graph, &m.layers[layer], samples_for_layer(m, layer, own).len())).sum();
    let inputs = joint.members.iter().map(|m| m.layers[layer].columns()).min().unwrap_or(0);
    // Samples for one-sided targets may take an eighth of the memory, for all tasks together.
    let numbers = usize::try_from(options.resources.memory / 8 / 4).unwrap_or(usize::MAX);
    let kept_values = if rounds(joint, options) > 0 { numbers / tasks.len().max(1) } else { 0 };
    let of = |((member, own), task): ((&Member, &Vec<usize>), &TaskData<'a>)| Calibration {
        keep: seen < inputs,
        kept_values,
        shift: options.fitting.shift,
        ..Calibration::new(task.train, samples_for_layer(member, layer, own).to_vec(), options.seed).within(
            budget.batch_bytes,
            budget.cache_bytes,
            &member.graph,
            patches(member, own),
        )
    };
    members().zip(tasks).map(of).collect()
}

/// Bytes of samples that an image gives a layer, at most: batches stay the same from layer to layer.
pub(crate) fn patches(member: &Member, samples: &[usize]) -> u64 {
    let layers = member.layers.iter().enumerate();
    let bytes = layers.map(|(l, at)| bytes_per_image(&member.graph, at, samples_for_layer(member, l, samples).len()));
    bytes.max().unwrap_or(0)
}

/// How statistics of the original networks are collected for files: the samples that a zip with these options takes,
/// batches within its memory.
pub fn calibrations_of_originals<'a>(
    joint: &Joint,
    tasks: &[TaskData<'a>],
    options: &ZipOptions,
    part: (usize, usize),
) -> Vec<Calibration<'a>> {
    let each = options.resources.memory / joint.members.len().max(1) as u64;
    let of = |(member, task): (&Member, &TaskData<'a>)| {
        let samples = chosen(task, options);
        let patches = patches(member, &samples);
        let from = Calibration::new(task.train, samples, options.seed);
        // One network at a time, and nothing to compare it with.
        Calibration { part, shift: options.fitting.shift, ..from }.within(each / 4, each / 4, &member.graph, patches)
    };
    joint.members.iter().zip(tasks).map(of).collect()
}

/// Collects statistics by running the networks: the merged ones for what a layer sees, the originals for what it should
/// answer.
pub(crate) struct Collector<'a> {
    tasks: Vec<TaskData<'a>>,
    originals: Arc<[Graph]>,
    options: ZipOptions,
    /// The samples of each task.
    samples: Vec<Vec<usize>>,
    /// For each layer.
    budgets: Vec<MemoryBudget>,
    engine: &'a dyn Engine,
    caches: Vec<ActivationCaches>,
}

impl<'a> Collector<'a> {
    pub fn new(
        tasks: &[TaskData<'a>],
        originals: Arc<[Graph]>,
        options: &ZipOptions,
        samples: Vec<Vec<usize>>,
        budgets: Vec<MemoryBudget>,
        engine: &'a dyn Engine,
    ) -> Self {
        let caches = vec![ActivationCaches::default(); tasks.len()];
        Self { tasks: tasks.to_vec(), originals, options: options.clone(), samples, budgets, engine, caches }
    }

    fn calibrations(&self, joint: &Joint, layer: usize) -> Vec<Calibration<'a>> {
        calibrations(joint, &self.tasks, &self.samples, layer, &self.options, self.budgets[layer])
    }
}

impl StatisticsSource for Collector<'_> {
    fn layer(&mut self, joint: &Joint, layer: usize) -> Result<Vec<LayerStatistics>> {
        let from = self.calibrations(joint, layer);
        let (best, engine) = (self.options.recipe == Recipe::Best, self.engine);
        let originals = self.originals.par_iter();
        let tasks = joint.members.par_iter().zip(originals).zip(from.par_iter().zip(&mut self.caches)).enumerate();
        tasks
            .map(|(t, ((member, original), (from, caches)))| {
                // A task that sees what it always saw is answered by its own weights, and the paper's recipe asks for
                // nothing else.
                let target = (best && joint.has_changed(t, layer)).then_some(original);
                engine.layer_statistics(&member.graph, target, &member.layers[layer], from, caches)
            })
            .collect()
    }

    /// With mean m and deviation s of what the merged network brings, and those of the original, a normalisation
    /// answers γ (x' − μ)/σ + β for x' = m_o + (x − m) s_o/s, so that every channel has the mean and deviation it had
    /// (Jordan et al. 2022, REPAIR).
    fn renormalise(&mut self, joint: &mut Joint, layer: usize) -> Result<()> {
        let from = self.calibrations(joint, layer);
        let changed: Vec<bool> = (0..joint.members.len()).map(|t| joint.has_changed(t, layer + 1)).collect();
        let tasks = joint.members.par_iter_mut().zip(self.originals.par_iter()).zip(changed);
        let tasks = tasks.zip(from.par_iter().zip(&mut self.caches)).filter(|((_, changed), _)| *changed);
        tasks.try_for_each(|(((member, original), _), (from, caches))| {
            let end = member.layers.get(layer + 1).map_or(member.graph.nodes().len(), |next| next.node);
            let between = member.layers[layer].node..end;
            for norm in FreeNorm::all(&member.graph, &member.layers) {
                if between.contains(&norm.node) {
                    let now = channel_statistics(&member.graph, norm.input, norm.node, from, &mut caches.merged)?;
                    let before = channel_statistics(original, norm.input, norm.node, from, &mut caches.original)?;
                    member.graph = norm.moved(&member.graph, &before, &now)?;
                }
            }
            Ok(())
        })
    }

    fn restart(&mut self) {
        self.caches.fill(ActivationCaches::default());
    }
}

/// As many of the samples as the statistics of a layer need: all of them for small networks, fewer where one pass takes
/// long and a sample shows the layer many positions.
pub(crate) fn samples_for_layer<'s>(member: &Member, layer: usize, samples: &'s [usize]) -> &'s [usize] {
    /// Multiply-adds of a pass that no layer is denied;
    const PASS: usize = 100_000_000_000;
    /// in networks with more layers than this, passes are shorter.
    const LAYERS: usize = 25;
    const LEAST: usize = 500;
    let affordable = PASS / member.effort().max(1) * LAYERS / member.layers.len().max(LAYERS);
    let count = wanted(&member.graph, &member.layers[layer]).max(affordable).max(LEAST);
    // Whole batches, so that layers that see more see the same ones and others.
    &samples[..count.next_multiple_of(BATCH).min(samples.len())]
}

/// The samples for statistics.
pub(crate) fn chosen(task: &TaskData, options: &ZipOptions) -> Vec<usize> {
    let all: Vec<usize> = task.samples.clone().unwrap_or_else(|| (0..task.train.len()).collect());
    let order = random::permutation(random::bits(options.seed, 9), all.len());
    let mut samples: Vec<usize> = order.into_iter().take(options.fitting.calibration).map(|i| all[i]).collect();
    // A file is read from front to back, batch by batch.
    samples.chunks_mut(BATCH).for_each(<[usize]>::sort_unstable);
    samples
}
