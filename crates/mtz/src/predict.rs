//! What a zip will give and take, before anything is computed: parameters, memory and time from a count of operations.
//!
//! Which units of two tasks go together does not matter for the size of the result, only how many: so units are paired in the order they come. (Of three and
//! more tasks that share in part, it does matter; then the prediction is near.) Times are operations
//! by the rates this machine shows on a small part of them.

use crate::error::Result;
use crate::linalg::Factor;
use crate::merge::{Align, Recipe, Share, Streams};
use crate::pipeline::{Plan, Task, aligned, enough, few_to_measure, rounds, share_of};
use crate::plan::Joint;
use crate::run::Runner;
use crate::statistics::{Calibration, positions};
use crate::tensor::Tensor;
use std::time::Instant;

/// What is expected of one layer.
#[derive(Clone, Debug)]
pub struct LayerPrediction {
    /// Its name in the first network.
    pub name: String,
    /// Units that will be shared at most.
    pub shared: usize,
    /// Samples, or positions of a convolution, that each task's statistics see.
    pub samples: usize,
    /// Bytes for statistics and systems to solve.
    pub memory: u64,
    /// Seconds.
    pub seconds: f64,
}

/// What is expected.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Parameters of all networks.
    pub parameters_before: usize,
    /// Of the joint model; at least so few if sharing depends on a threshold.
    pub parameters: usize,
    /// Those of them that several tasks use.
    pub shared: usize,
    /// Layer by layer.
    pub layers: Vec<LayerPrediction>,
    /// Bytes at the worst moment.
    pub memory: u64,
    /// Seconds, for errors before and after and retraining too.
    pub seconds: f64,
    /// Iterations of retraining.
    pub iterations: usize,
    /// Seconds of that.
    pub retraining: f64,
}

/// Operations per second.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// Multiply-adds of the networks.
    network: f64,
    /// Multiply-adds of f32 matrix products.
    product: f64,
    /// Multiply-adds of f64 factorizations.
    factor: f64,
}

/// Says what zipping will give and take.
pub fn predict(start: &Joint, tasks: &[Task], plan: &Plan) -> Result<Prediction> {
    let joint = pretended(start, plan);
    let (parameters, shared) = joint.parameters();
    let rates = Rates::measured(start)?;
    let depth = start.depth();
    let best = plan.recipe == Recipe::Best;
    let again = rounds(start, plan) as f64;
    let samples: Vec<usize> =
        tasks.iter().map(|t| t.samples.as_ref().map_or(t.train.len(), Vec::len).min(plan.calibration)).collect();
    let few = few_to_measure(start, tasks);
    let (mut layers, mut seen_before) = (Vec::new(), vec![0usize; tasks.len()]);
    let whole: Vec<f64> = start.members.iter().map(|m| m.multiply_adds() as f64).collect();
    let tested = |t: usize| tasks[t].test.as_ref().filter(|(feed, _)| feed.labels().is_some()).map_or(0, |t| t.1.len());
    let measured_once: f64 = (0..tasks.len()).map(|t| whole[t] * tested(t) as f64).sum();
    for layer in 0..depth {
        let (mut forward, mut sums, mut bytes, mut seen) = (0.0, 0.0, 0u64, 0);
        let mut size = 0usize;
        for (t, member) in start.members.iter().enumerate() {
            let at = &member.layers[layer];
            let all: Vec<usize> = (0..samples[t]).collect();
            let images = enough(member, layer, &all).len();
            let rows = positions(&member.graph, at, images);
            seen = seen.max(rows);
            let own = (at.units * at.columns() * at.places(&member.graph)) as f64;
            let ahead: f64 =
                member.layers[..layer].iter().map(|l| (l.units * l.columns() * l.places(&member.graph)) as f64).sum();
            let passes = if best && layer > 0 { 2.0 } else { 1.0 };
            forward += passes * own * images as f64 + passes * ahead * images.saturating_sub(seen_before[t]) as f64;
            seen_before[t] = seen_before[t].max(images);
            let columns = at.columns() + 1;
            let one_sided = if at.rectified && best { 4.0 * again } else { 0.0 };
            sums += rows as f64 * columns as f64 * (0.5 * columns as f64 + at.units as f64 * (1.0 + one_sided));
            let room = Calibration::new(tasks[t].train, Vec::new(), 0)
                .within(plan.memory / tasks.len().max(1) as u64, &member.graph);
            let kept: u64 = 4 * images as u64 * (at.columns() / at.taps.max(1) * at.places(&member.graph)) as u64;
            let batch = Runner::new(&member.graph).peak_bytes(room.batch_size);
            bytes += 8 * (columns * columns + columns * at.units) as u64 + 2 * kept.min(room.room) + 2 * batch;
            if one_sided > 0.0 {
                bytes += 4 * (rows * (columns + 2 * at.units)) as u64;
            }
            size = size.max(columns);
        }
        // Private columns of several tasks stand beside each other.
        let common =
            joint.members.iter().flat_map(|m| m.columns(layer)).collect::<std::collections::BTreeSet<_>>().len();
        let units: usize = start.members.iter().map(|m| m.layers[layer].units).sum();
        let dual = tasks.len() > 1 && seen < size;
        let cube = |n: usize| (n as f64).powi(3);
        let n = if dual { seen * tasks.len() } else { common.max(size) };
        let solves = (1.0 + again) * (tasks.len() as f64 * cube(size.min(n)) / 3.0 + cube(n) / 3.0)
            + 2.0 * cube(size.min(n))
            + (1.0 + again) * 2.0 * (n as f64).powi(2) * units as f64;
        bytes += 4 * 8 * (n as u64).pow(2) + 2 * 8 * (common * units) as u64;
        let last = layer + 1 == depth;
        let measuring: f64 =
            if last { measured_once } else { (0..tasks.len()).map(|t| whole[t] * few[t].min(tested(t)) as f64).sum() };
        let seconds = (forward + measuring) / rates.network + sums / rates.product + solves / rates.factor;
        layers.push(LayerPrediction {
            name: start.members[0].layers[layer].name.clone(),
            shared: joint.shared_units(layer),
            samples: seen,
            memory: bytes,
            seconds,
        });
    }
    let iterations = plan.retrain * depth.saturating_sub(1);
    // Forward, two kinds of gradients, and the teacher's answer.
    let step: f64 = whole.iter().map(|w| 4.0 * w * plan.batch_size as f64).sum();
    let retraining =
        iterations as f64 * step / rates.network + if iterations > 0 { measured_once / rates.network } else { 0.0 };
    let seconds = measured_once / rates.network + layers.iter().map(|l| l.seconds).sum::<f64>() + retraining;
    // Originals, what becomes of them, and the file while it is written.
    let weights = 4 * (3 * start.parameters().0 + parameters) as u64;
    let memory = weights + layers.iter().map(|l| l.memory).max().unwrap_or(0);
    let parameters_before = start.parameters().0;
    Ok(Prediction { parameters_before, parameters, shared, layers, memory, seconds, iterations, retraining })
}

/// The joint model with units paired in the order they come.
fn pretended(start: &Joint, plan: &Plan) -> Joint {
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

impl Rates {
    /// Tries a little of everything.
    fn measured(joint: &Joint) -> Result<Self> {
        let member = &joint.members[0];
        let mut runner = Runner::new(&member.graph);
        let images = (2_000_000_000 / member.multiply_adds().max(1)).clamp(1, 256);
        let inputs: Result<Vec<Tensor>> = member
            .graph
            .inputs()
            .iter()
            .map(|id| {
                let shape = member.graph[*id].shape.at(images);
                let count = shape.iter().product();
                Tensor::new(shape, (0..count).map(|i| (i % 7) as f32 * 0.1).collect())
            })
            .collect();
        let inputs = inputs?;
        runner.run(&inputs)?;
        let network = rate(images as f64 * member.multiply_adds() as f64, || runner.run(&inputs).map(|_| ()))?;
        let (n, k) = (512usize, 4096usize);
        let x = vec![0.5f32; n * k];
        let product = rate(0.5 * (n * n * k) as f64, || crate::linalg::Moments::new(n, 0).add(&x, &[]))?;
        let size = 1024usize;
        let mut matrix = vec![0.1f64; size * size];
        (0..size).for_each(|i| matrix[i * size + i] = size as f64);
        let factor = rate((size as f64).powi(3) / 3.0, || {
            let _ = Factor::new(&matrix, size);
            Ok(())
        })?;
        Ok(Self { network, product, factor })
    }
}

/// Operations per second, the better of two tries.
fn rate(operations: f64, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..2 {
        let begin = Instant::now();
        work()?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(operations / best.max(1e-9))
}
