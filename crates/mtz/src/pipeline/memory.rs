//! What zipping keeps in memory, counted before it begins: what is left of the memory allowed decides how many images go through a network at a time.

use super::collect::{calibrations, patches};
use super::settings::{Plan, Task};
use super::{aligned, share_of};
use crate::error::{Error, Result};
use crate::merge::{Align, Share, Streams};
use crate::plan::Joint;
use crate::statistics::{Calibration, flow, positions};
use std::collections::BTreeSet;

/// Bytes that each task may use beside the networks and what merging a layer takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    /// For the images that go through its networks at a time.
    pub batches: u64,
    /// For what each of its two networks keeps from layer to layer.
    pub room: u64,
}

impl Spare {
    fn of(bytes: u64) -> Self {
        Self { batches: bytes / 2, room: bytes / 4 }
    }

    /// For every layer. Batches are the same in all layers; what is kept may be more where merging takes less.
    pub fn all(start: &Joint, tasks: &[Task], samples: &[Vec<usize>], plan: &Plan) -> Result<Vec<Self>> {
        let joint = paired_in_order(start, plan);
        let count = start.members.len().max(1) as u64;
        let most = Self::of(plan.memory / count);
        let fixed: Vec<u64> = (0..start.depth())
            .map(|l| networks(start) + of_layer(&joint, l, &calibrations(start, tasks, samples, l, plan, most)))
            .collect();
        let worst = fixed.iter().copied().max().unwrap_or(0);
        let least = start.members.iter().zip(samples).map(|(m, own)| 4 * flow(&m.graph, patches(m, own))).max();
        let needed = worst.saturating_add(count * least.unwrap_or(0));
        if needed > plan.memory {
            return Err(Error::limit(format!(
                "zipping these networks takes {} MiB of memory, {} MiB are allowed",
                needed.div_ceil(1 << 20),
                plan.memory >> 20
            ))
            .hint("allow more with --memory"));
        }
        let batches = (plan.memory - worst) / count / 2;
        Ok(fixed.iter().map(|own| Self { batches, room: (plan.memory - own) / count / 4 }).collect())
    }
}

/// Bytes of the original networks and of what becomes of them.
pub(crate) fn networks(joint: &Joint) -> u64 {
    2 * 4 * joint.parameters().0 as u64
}

/// Bytes that the statistics and systems of a layer take. `joint` is the joint model to be, as [`paired_in_order`].
pub(crate) fn of_layer(joint: &Joint, layer: usize, from: &[Calibration]) -> u64 {
    let (mut bytes, mut samples, mut units) = (0, 0, 0);
    for (member, from) in joint.members.iter().zip(from) {
        let at = &member.layers[layer];
        let rows = positions(&member.graph, at, from.samples.len());
        let columns = at.columns() + 1;
        bytes += if from.keep { 4 * rows * (columns + at.units) } else { 8 * columns * (columns + at.units) };
        if from.keeps_samples(&member.graph, at) {
            bytes += 4 * rows * (columns + 2 * at.units);
        }
        samples += rows;
        units += at.units;
    }
    // Columns that only some tasks have stand beside each other.
    let n = joint.members.iter().flat_map(|m| m.columns(layer)).collect::<BTreeSet<_>>().len();
    // Weights of all units as they were and as they are, and in f64 what is asked and what is answered.
    bytes += 2 * 4 * n * units + 2 * 8 * n * units;
    // Both networks' matrices, their sum, its factor and the parallel sum; or the samples of both and their products.
    bytes += if from.iter().all(|f| f.keep) { 8 * (2 * samples * n + 3 * samples * samples) } else { 7 * 8 * n * n };
    bytes as u64
}

/// The joint model with units paired in the order they come: for a count of parameters, or to train networks together from scratch.
pub fn paired_in_order(start: &Joint, plan: &Plan) -> Joint {
    let mut joint = start.clone();
    let align = aligned(start, plan);
    for layer in 0..joint.depth().saturating_sub(1) {
        let share = share_of(&joint, plan, layer);
        let mut next = joint.members[0].layers[layer].units;
        let mut known = next;
        for t in 1..joint.members.len() {
            // What a joint model among the inputs shares already stays as it is.
            let before =
                |s: usize| joint.members[s].units[layer].iter().any(|u| joint.members[t].units[layer].contains(u));
            if (0..t).any(before) {
                continue;
            }
            let member = &mut joint.members[t];
            let own = member.layers[layer].units;
            let smaller = own.min(known);
            let count = match share {
                Share::All | Share::Below(_) => smaller,
                Share::Fraction(f) => ((smaller as f64 * f).round() as usize).min(smaller),
                Share::Count(n) => n.min(smaller),
            };
            for unit in 0..own {
                let paired = unit < count;
                let number = if paired { unit } else { next + unit - count };
                member.units[layer][unit] = number;
                member.aligned[layer][unit] =
                    if paired || (align == Align::All && unit < smaller) { unit } else { number };
            }
            next += own - count;
            known = known.max(if align == Align::All { own.max(known) } else { next });
        }
        let first = &mut joint.members[0];
        let own = first.layers[layer].units;
        first.units[layer] = (0..own).collect();
        first.aligned[layer] = (0..own).collect();
        for member in &mut joint.members {
            if let (Some(stream), true) = (&member.layers[layer].stream, plan.streams != Streams::Last) {
                member.aligned[layer] = stream.iter().map(|&(before, unit)| member.aligned[before][unit]).collect();
            }
        }
    }
    joint
}
