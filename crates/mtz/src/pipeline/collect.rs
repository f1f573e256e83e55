//! Which samples a layer's statistics take, and what it sees of them.

use super::memory::Spare;
use super::rounds;
use super::settings::{Plan, Task};
use crate::error::Result;
use crate::graph::Graph;
use crate::merge::Recipe;
use crate::plan::{FreeNorm, Joint, Member};
use crate::random;
use crate::statistics::{BATCH, Calibration, Seen, Walks, bytes_per_image, moments, positions, spread, wanted};
use rayon::prelude::*;

/// How each task's statistics of a layer are collected. `samples` are those of each task that may be used.
pub(crate) fn calibrations<'a>(
    joint: &Joint,
    tasks: &[Task<'a>],
    samples: &[Vec<usize>],
    layer: usize,
    plan: &Plan,
    spare: Spare,
) -> Vec<Calibration<'a>> {
    let members = || joint.members.iter().zip(samples);
    let seen: usize =
        members().map(|(m, own)| positions(&m.graph, &m.layers[layer], enough(m, layer, own).len())).sum();
    let inputs = joint.members.iter().map(|m| m.layers[layer].columns()).min().unwrap_or(0);
    // Samples for one-sided targets may take an eighth of the memory, for all tasks together.
    let numbers = usize::try_from(plan.memory / 8 / 4).unwrap_or(usize::MAX);
    let beside = if rounds(joint, plan) > 0 { numbers / tasks.len().max(1) } else { 0 };
    let of = |((member, own), task): ((&Member, &Vec<usize>), &Task<'a>)| Calibration {
        keep: seen < inputs,
        beside,
        shift: plan.shift,
        ..Calibration::new(task.train, enough(member, layer, own).to_vec(), plan.seed).within(
            spare.batches,
            spare.room,
            &member.graph,
            patches(member, own),
        )
    };
    members().zip(tasks).map(of).collect()
}

/// Bytes of samples that an image gives a layer, at most: batches stay the same from layer to layer.
pub(crate) fn patches(member: &Member, samples: &[usize]) -> u64 {
    let layers = member.layers.iter().enumerate();
    let bytes = layers.map(|(l, at)| bytes_per_image(&member.graph, at, enough(member, l, samples).len()));
    bytes.max().unwrap_or(0)
}

/// What every task's layer sees and should answer.
pub(super) fn layer_moments(
    joint: &Joint,
    originals: &[Graph],
    layer: usize,
    plan: &Plan,
    from: &[Calibration],
    walks: &mut [Walks],
) -> Result<Vec<Seen>> {
    let tasks = joint.members.par_iter().zip(originals).zip(from.par_iter().zip(walks)).enumerate();
    tasks
        .map(|(t, ((member, original), (from, walks)))| {
            // A task that sees what it always saw is answered by its own weights, and the paper's recipe asks for nothing else.
            let target = (plan.recipe == Recipe::Best && joint.has_changed(t, layer)).then_some(original);
            moments(&member.graph, target, &member.layers[layer], from, walks)
        })
        .collect()
}

/// Sets normalisations between a merged layer and the next one anew, in tasks that see other values there than they did. They belong to no layer, so that no fit has
/// set them: with mean m and deviation s of what the merged network brings, and those of the original, they answer γ (x' − μ)/σ + β for x' = m_o + (x − m) s_o/s, so that
/// every channel has the mean and deviation it had (Jordan et al. 2022, REPAIR).
pub(super) fn renormalise(
    joint: &mut Joint,
    originals: &[Graph],
    layer: usize,
    from: &[Calibration],
    walks: &mut [Walks],
) -> Result<()> {
    let changed: Vec<bool> = (0..joint.members.len()).map(|t| joint.has_changed(t, layer + 1)).collect();
    let tasks = joint.members.par_iter_mut().zip(originals).zip(changed).zip(from.par_iter().zip(walks));
    tasks.filter(|((_, changed), _)| *changed).try_for_each(|(((member, original), _), (from, walks))| {
        let end = member.layers.get(layer + 1).map_or(member.graph.nodes().len(), |next| next.node);
        let between = member.layers[layer].node..end;
        for norm in FreeNorm::all(&member.graph, &member.layers) {
            if between.contains(&norm.node) {
                let now = spread(&member.graph, norm.input, norm.node, from, &mut walks.merged)?;
                let before = spread(original, norm.input, norm.node, from, &mut walks.original)?;
                member.graph = norm.moved(&member.graph, &before, &now)?;
            }
        }
        Ok(())
    })
}

/// As many of the samples as the statistics of a layer need: all of them for small networks, fewer where one pass takes long and a sample shows the
/// layer many positions.
pub(crate) fn enough<'s>(member: &Member, layer: usize, samples: &'s [usize]) -> &'s [usize] {
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
pub(crate) fn chosen(task: &Task, plan: &Plan) -> Vec<usize> {
    let all: Vec<usize> = task.samples.clone().unwrap_or_else(|| (0..task.train.len()).collect());
    let order = random::permutation(random::bits(plan.seed, 9), all.len());
    let mut samples: Vec<usize> = order.into_iter().take(plan.calibration).map(|i| all[i]).collect();
    // A file is read from front to back, batch by batch.
    samples.chunks_mut(BATCH).for_each(<[usize]>::sort_unstable);
    samples
}
