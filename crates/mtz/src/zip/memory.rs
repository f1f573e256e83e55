//! What zipping keeps in memory, counted before it begins: what is left of the memory allowed decides how many images
//! go through a network at a time.

use super::calibration::{calibrations, patches};
use super::measure::answer_bytes;
use super::options::{TaskData, ZipOptions};
use super::retrain::{MOST_HELD_OUT, batch_factors, hidden_answers};
use super::{aligned, intermediate_tasks, share_of};
use crate::error::{Error, Result};
use crate::merge::{Align, Streams};
use crate::onnx;
use crate::run::Runner;
use crate::sharing::Share;
use crate::sharing::{Joint, Member};
use crate::statistics::{Calibration, batch_bytes, positions};
use crate::train::{Program, batch_size_of};
use std::collections::BTreeSet;

/// Bytes that each task may use beside the networks and what merging a layer takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryBudget {
    /// For the images that go through its networks at a time.
    pub batch_bytes: u64,
    /// For what each of its two networks keeps from layer to layer.
    pub cache_bytes: u64,
    /// For what each of them keeps of samples that no fit sees.
    pub held_out_bytes: u64,
}

impl MemoryBudget {
    fn of(bytes: u64) -> Self {
        Self { batch_bytes: bytes / 2, ..Self::kept(bytes) }
    }

    /// Half of what there is, for both networks of a task; an eighth of that for samples that no fit sees.
    fn kept(bytes: u64) -> Self {
        let each = bytes / 4;
        Self { batch_bytes: 0, cache_bytes: each - each / 8, held_out_bytes: each / 8 }
    }

    /// For every layer. Batches are the same in all layers; what is kept may be more where merging takes less.
    pub fn all(start: &Joint, tasks: &[TaskData], samples: &[Vec<usize>], options: &ZipOptions) -> Result<Vec<Self>> {
        let count = start.members.len().max(1) as u64;
        let most = Self::of(options.resources.memory / count);
        let to_be = possible_results(start, options);
        let standing = networks(start) + answers(start, tasks, options);
        let fixed = |l: usize| {
            let from = calibrations(start, tasks, samples, l, options, most);
            let merging = to_be.iter().map(|joint| of_layer(joint, l, &from).iter().sum()).max().unwrap_or(0);
            standing + merging.max(saving(start, options))
        };
        let fixed: Vec<u64> = (0..start.depth()).map(fixed).collect();
        let worst = fixed.iter().copied().max().unwrap_or(0);
        let one = start.members.iter().zip(samples).map(|(m, own)| batch_bytes(&m.graph, patches(m, own), 1)).max();
        let needed = worst.saturating_add(count * 2 * one.unwrap_or(0));
        if needed > options.resources.memory {
            return Err(too_much(needed, options).hint("allow more with `memory`"));
        }
        let needed = retraining(start, tasks, options, options.retraining.batch_size);
        if options.retraining.iterations > 0 && needed > options.resources.memory {
            let fits = (0..options.retraining.batch_size.max(1).ilog2()).rev().map(|k| 1 << k);
            let fits = fits.into_iter().find(|n| retraining(start, tasks, options, *n) <= options.resources.memory);
            let hint = fits.map_or("allow more with `memory`, or use `iterations` 0".to_owned(), |n| {
                format!("allow more with `memory`, or use `batch_size` {n} or `iterations` 0")
            });
            return Err(too_much(needed, options).hint(hint));
        }
        let batch_bytes = (options.resources.memory - worst) / count / 2;
        Ok(fixed
            .iter()
            .map(|own| Self { batch_bytes, ..Self::kept((options.resources.memory - own) / count) })
            .collect())
    }
}

fn too_much(needed: u64, options: &ZipOptions) -> Error {
    Error::limit(format!(
        "zipping these networks takes {} MiB of memory, {} MiB are allowed",
        needed.div_ceil(1 << 20),
        options.resources.memory >> 20
    ))
}

/// The joint model to be; where it depends on a threshold, what it is at least and at most.
fn possible_results(start: &Joint, options: &ZipOptions) -> Vec<Joint> {
    let mut all = vec![paired_in_order(start, options)];
    let below = |share: &Share| matches!(share, Share::Below(_));
    if below(&options.sharing.share) || options.sharing.share_of.iter().any(|(_, share)| below(share)) {
        let nothing = |share: &Share| if below(share) { Share::Count(0) } else { *share };
        let share_of = options.sharing.share_of.iter().map(|(name, share)| (name.clone(), nothing(share))).collect();
        all.push(paired_in_order(
            start,
            &options.clone().with(|o| {
                o.sharing.share = nothing(&options.sharing.share);
                o.sharing.share_of = share_of;
            }),
        ));
    }
    all
}

/// Bytes that retraining takes with so many samples a step: networks, teachers, and parameters with their gradients and
/// two moments.
pub(crate) fn retraining(start: &Joint, tasks: &[TaskData], options: &ZipOptions, batch_size: usize) -> u64 {
    let of = |(m, pace): (&Member, f32)| {
        let batch_size = batch_size_of(batch_size, pace);
        let runner = Runner::new(&m.graph);
        // Values inside that are imitated: the teacher's, and two gradients.
        let inside: usize = hidden_answers(m).iter().map(|id| m.graph[*id].shape.elements(batch_size)).sum();
        Program::bytes(&m.graph, batch_size) + runner.peak_bytes(batch_size) - runner.weight_bytes()
            + (3 * 4 * inside) as u64
    };
    let (all, joint) = (start.parameters().0, paired_in_order(start, options).parameters().0);
    let judged = answer_bytes(start, tasks, &vec![MOST_HELD_OUT; tasks.len()], options);
    // A network's own copy of shared weights, their gradients, and where they are in the parameters.
    networks(start)
        + answers(start, tasks, options)
        + judged
        + (12 * all + 16 * joint) as u64
        + start.members.iter().zip(batch_factors(tasks)).map(of).sum::<u64>()
}

/// Bytes that writing the state after a layer takes: the joint model as a graph, as tensors of a file, and as bytes.
pub(crate) fn saving(start: &Joint, options: &ZipOptions) -> u64 {
    if options.resources.checkpoint.is_some() { 3 * 4 * start.parameters().0 as u64 } else { 0 }
}

/// Bytes of what the originals answer, kept to compare with: to all test samples, and to the fewer on the way.
pub(crate) fn answers(start: &Joint, tasks: &[TaskData], options: &ZipOptions) -> u64 {
    let tested = |task: &TaskData| task.test.as_ref().map_or(0, |(_, samples)| samples.len());
    let all: Vec<usize> = tasks.iter().map(tested).collect();
    let few: Vec<usize> = intermediate_tasks(start, tasks, options).iter().map(tested).collect();
    [all, few].iter().map(|samples| answer_bytes(start, tasks, samples, options)).sum()
}

/// Bytes that writing the joint model takes, the networks among them: a graph of it, and its weights as tensors of a
/// file and as bytes. To compare it with what is in memory, it is read back, and the weights of the tasks are put
/// together from it.
pub fn writing(start: &Joint, compared: bool) -> u64 {
    /// What the description of a unit takes, as text and on the way to it, at most.
    const UNIT: u64 = 512;
    let all = 4 * start.parameters().0 as u64;
    let units: usize = start.members.iter().flat_map(|m| &m.layers).map(|l| l.units).sum();
    // Most where tasks share in part: tests/allocations.rs measures it.
    networks(start) + if compared { 5 * all } else { 3 * all } + UNIT * units as u64
}

/// Refuses what would be too large for its file in the end: the joint model, or with a checkpoint the networks that
/// nothing is shared of yet.
pub(super) fn check_file_sizes(start: &Joint, options: &ZipOptions) -> Result<()> {
    // Sparse layers are stored without their zeros.
    if start.members.iter().any(|m| m.layers.iter().any(|l| l.is_sparse(&m.graph))) {
        return Ok(());
    }
    let joint = paired_in_order(start, options).parameters().0;
    let (parameters, hint) = match options.resources.checkpoint {
        Some(_) => (start.parameters().0, "zip without `checkpoint`, or fewer networks at a time"),
        None => (joint, "share more, or zip fewer networks"),
    };
    // A checkpoint keeps full precision.
    let each = if options.resources.checkpoint.is_some() { 4 } else { start.element().bytes() };
    let bytes = (each * parameters) as u64;
    if bytes > onnx::LARGEST {
        let size = bytes.div_ceil(1 << 20);
        let text = format!("{parameters} parameters take {size} MiB, more than the 2 GiB a single ONNX file can hold");
        return Err(Error::limit(text).hint(hint));
    }
    Ok(())
}

/// Bytes of the original networks and of what becomes of them.
pub(crate) fn networks(joint: &Joint) -> u64 {
    2 * 4 * joint.parameters().0 as u64
}

/// Bytes that the statistics of a layer take, and those that merging takes beside them. `joint` is the joint model to
/// be, as [`paired_in_order`].
pub(crate) fn of_layer(joint: &Joint, layer: usize, from: &[Calibration]) -> [u64; 2] {
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
    let n = (0..joint.members.len()).flat_map(|t| joint.columns(t, layer)).collect::<BTreeSet<_>>().len();
    // Weights of all units as they were and as they are, and in f64 what is asked and what is answered.
    let tables = 2 * 4 * n * units + 2 * 8 * n * units;
    // Both networks' matrices, their sum, its factor and the parallel sum; or the samples of both and their products.
    let systems =
        if from.iter().all(|f| f.keep) { 8 * (2 * samples * n + 3 * samples * samples) } else { 7 * 8 * n * n };
    // Costs of all pairs, the nearest of each, and the costs once more in order or turned; by then systems to solve are
    // gone.
    let most = joint.members.iter().map(|m| m.layers[layer].units).max().unwrap_or(0);
    let merging = tables + systems.max(40 * most * most.max(units - most));
    [bytes as u64, merging as u64]
}

/// The joint model with units paired in the order they come: for a count of parameters, or to train networks together
/// from scratch.
pub fn paired_in_order(start: &Joint, options: &ZipOptions) -> Joint {
    let mut joint = start.clone();
    let align = aligned(start, options);
    for layer in (0..joint.depth()).filter(|l| !start.is_head(*l)) {
        let share = share_of(&joint, options, layer);
        let mut next = joint.members[0].layers[layer].units;
        let mut known = next;
        for t in 1..joint.members.len() {
            // What a joint model among the inputs shares already stays as it is.
            let before =
                |s: usize| joint.members[s].units[layer].iter().any(|u| joint.members[t].units[layer].contains(u));
            if (0..t).any(before) {
                let numbers = joint.members[t].units[layer].iter().chain(&joint.members[t].aligned[layer]);
                next = numbers.max().map_or(next, |largest| next.max(largest + 1));
                known = known.max(next);
                continue;
            }
            let member = &mut joint.members[t];
            let own = member.layers[layer].units;
            let smaller = own.min(known);
            let count = share.count(smaller);
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
        if options.sharing.streams != Streams::Last {
            joint.align_to_stream(layer);
        }
    }
    joint
}
