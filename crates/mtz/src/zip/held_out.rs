//! How far a merged layer is from the original on samples that its fit has not seen.
//!
//! Least squares on too few samples fits these and nothing else. No number of the fit itself tells: a large ridge, a
//! singular matrix and fewer samples than inputs all occur where nothing is lost. What tells is the same error on other
//! samples, for which the test samples are there: they choose nothing, the error is reported and that is all.

use super::calibration::samples_for_layer;
use super::memory::MemoryBudget;
use super::options::{TaskData, ZipOptions};
use crate::error::Result;
use crate::graph::Graph;
use crate::merge::Recipe;
use crate::random;
use crate::sharing::{Joint, Member};
use crate::statistics::{
    ActivationCaches, Calibration, LayerStatistics, bytes_at, layer_error, node_after, relative_error,
};
use rayon::prelude::*;

/// So many samples of a task tell enough.
const MOST: usize = 256;
/// Where statistics take few samples because each takes long, this part of them;
const PART: usize = 4;
/// but never fewer than this,
const LEAST: usize = 64;
/// unless there is no room to keep values from layer to layer.
const CROWDED: usize = 16;

/// The test samples of each task and how far its networks have got on them.
pub(super) struct HeldOut<'a> {
    tasks: Vec<Option<(Calibration<'a>, ActivationCaches)>>,
}

/// Squared errors of one layer relative to the square of what it should answer, task by task; nothing where they were
/// not measured.
#[derive(Default)]
pub(super) struct Misfits {
    /// On the samples of the fit.
    pub seen: Vec<Option<f64>>,
    /// On others.
    pub held_out: Vec<Option<f64>>,
}

impl<'a> HeldOut<'a> {
    pub fn new(
        joint: &Joint,
        tasks: &[TaskData<'a>],
        samples: &[Vec<usize>],
        options: &ZipOptions,
        budgets: &[MemoryBudget],
    ) -> Self {
        let held = budgets.iter().map(|s| s.held_out_bytes).min().unwrap_or(0);
        let batches = budgets.iter().map(|s| s.batch_bytes).min().unwrap_or(0);
        let of = |((member, task), own): ((&Member, &TaskData<'a>), &Vec<usize>)| {
            let (feed, test) = task.test.as_ref()?;
            let count = test.len().min(count(member, own, held));
            let spread = test.iter().copied().step_by((test.len() / count.max(1)).max(1)).take(count).collect();
            let from = Calibration::new(feed, spread, random::bits(options.seed, 13));
            let from = Calibration { shift: options.fitting.shift, ..from }.within(batches, held, &member.graph, 0);
            (count > 0).then(|| (from, ActivationCaches::default()))
        };
        Self { tasks: joint.members.iter().zip(tasks).zip(samples).map(of).collect() }
    }

    /// Weights that were passed have changed.
    pub fn restart(&mut self) {
        self.tasks.iter_mut().flatten().for_each(|(_, caches)| *caches = ActivationCaches::default());
    }

    /// Errors of a layer that was just merged. `before`: the networks as they were until then, `seen`: what the fit
    /// knew.
    pub fn measure(
        &mut self,
        joint: &Joint,
        before: &[Graph],
        originals: &[Graph],
        layer: usize,
        seen: &[LayerStatistics],
        options: &ZipOptions,
    ) -> Result<Misfits> {
        let best = options.recipe == Recipe::Best;
        let changed: Vec<bool> = (0..self.tasks.len()).map(|t| joint.has_changed(t, layer + 1)).collect();
        // The paper's update knows old weights on new inputs, no original.
        let target = |t: usize| if best { &originals[t] } else { &before[t] };
        // One after the other: each takes memory as the fit did.
        let fitted = |(t, seen): (usize, &LayerStatistics)| {
            self.tasks[t].as_ref().filter(|_| changed[t])?;
            let member = &joint.members[t];
            let at = &member.layers[layer];
            let old = (seen.moments.outputs() == 0).then(|| at.folded(target(t)));
            Some(relative_error(&seen.moments, &at.folded(&member.graph), old.as_deref()))
        };
        let seen = seen.iter().enumerate().map(fitted).collect();
        let held_out = |(t, held): (usize, &mut Option<(Calibration, ActivationCaches)>)| -> Result<Option<f64>> {
            let Some((from, caches)) = held.as_mut().filter(|_| changed[t]) else { return Ok(None) };
            let (graph, target, at) = (&joint.members[t].graph, target(t), &joint.members[t].layers[layer]);
            let until = if best { node_after(target, at) } else { at.node };
            layer_error(graph, target, at, until, from, caches).map(Some)
        };
        let held_out = self.tasks.par_iter_mut().enumerate().map(held_out).collect::<Result<_>>()?;
        Ok(Misfits { seen, held_out })
    }
}

/// How many samples of a task are held against its layers, in so many bytes for each of its networks.
fn count(member: &Member, samples: &[usize], held: u64) -> usize {
    let used = (0..member.layers.len()).map(|l| samples_for_layer(member, l, samples).len()).max().unwrap_or(0);
    let kept = bytes_per_sample(member).max(1);
    let room = usize::try_from(held / kept).unwrap_or(usize::MAX);
    (used / PART).clamp(LEAST, MOST).min(room.max(CROWDED))
}

/// Bytes that one sample takes between two layers, where it takes most.
fn bytes_per_sample(member: &Member) -> u64 {
    member.layers.iter().map(|l| bytes_at(&member.graph, l.node)).max().unwrap_or(0)
}

/// Bytes that values of a task's samples take at most.
pub(crate) fn held_out_bytes(member: &Member, task: &TaskData, samples: &[usize], held: u64) -> u64 {
    let tested = task.test.as_ref().map_or(0, |(_, test)| test.len());
    2 * (tested.min(count(member, samples, held)) as u64).saturating_mul(bytes_per_sample(member)).min(held)
}
