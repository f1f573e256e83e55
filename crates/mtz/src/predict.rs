//! What a zip will give and take, before anything is computed: parameters, memory and time from a count of operations.
//!
//! Which units of two tasks go together does not matter for the size of the result, only how many: so units are paired in the order they come. (Of three and
//! more tasks that share in part, it does matter; then the prediction is near.) Times are operations by the rates this machine shows on a small part of them;
//! networks are timed node by node, a step of retraining is tried, and memory that is new has its price.

use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::linalg::{Factor, Moments, Samples, best_pairs};
use crate::merge::{Align, Recipe};
use crate::pipeline::{
    Plan, Spare, Task, aligned, answers, calibrations, chosen, few_to_measure, held_out_bytes, measured_at_a_time,
    networks, of_layer, paired_in_order, retraining as retraining_bytes, rounds, saving, try_steps,
};
use crate::plan::{Joint, Member};
use crate::random;
use crate::run::Runner;
use crate::simplify;
use crate::statistics::{BATCH, Calibration, behind, bytes_per_image, looked_at, positions};
use crate::tensor::Tensor;
use crate::walk::{bytes_at, step_bytes};
use rayon::prelude::*;
use std::ops::ControlFlow;
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
    /// Seconds for the errors before anything is merged.
    pub measuring: f64,
}

/// Operations per second.
#[derive(Clone, Debug)]
struct Rates {
    /// Every network, node by node.
    nodes: Vec<Nodes>,
    /// Multiply-adds where errors are measured: all tasks at once, and their networks simplified.
    measuring: f64,
    /// Multiply-adds of sums over samples, for layers with so many inputs and more.
    products: [(usize, f64); 3],
    /// Multiply-adds of answers to targets, and of their products with the inputs.
    targets: f64,
    /// Multiply-adds of f64 factorizations, and of all else in f64.
    factor: f64,
    solve: f64,
    /// Bytes of memory that are new: the system gives them page by page.
    fresh: f64,
    /// Seconds to pair [`PAIRED`] units, all of them and half of them: units that may stay alone make for many ties.
    pairing: [f64; 2],
}

/// Units that are paired to see how long that takes.
const PAIRED: usize = 512;
/// How the time to pair units grows with their number, about what was measured from 512 to 2048 (docs/performance.md).
const PAIRING: f64 = 3.0;

/// Bytes for the costs of a pair: d, its parts, and the nearest.
const COSTS: f64 = 48.0;

/// Says what zipping will give and take.
pub fn predict(start: &Joint, tasks: &[Task], plan: &Plan) -> Result<Prediction> {
    let samples: Vec<Vec<usize>> = tasks.iter().map(|t| chosen(t, plan)).collect();
    // What cannot be done is refused before anything is tried.
    let spare = Spare::all(start, tasks, &samples, plan)?;
    let joint = paired_in_order(start, plan);
    let (parameters, shared) = joint.parameters();
    let each = plan.memory / 2 / tasks.len().max(1) as u64;
    let rates = Rates::measured(start, each)?;
    let fresh = |bytes: f64| bytes / rates.fresh;
    let depth = start.depth();
    let again = rounds(start, plan) as f64;
    let few = few_to_measure(start, tasks, plan);
    let whole: Vec<f64> = start.members.iter().map(|m| m.multiply_adds() as f64).collect();
    let tested = |t: usize| tasks[t].test.as_ref().map_or(0, |t| t.1.len());
    let measured_once: f64 = (0..tasks.len()).map(|t| whole[t] * tested(t) as f64).sum();
    let mut ways: Vec<Way> = start.members.iter().map(|_| Way::default()).collect();
    let (mut layers, mut memory) = (Vec::new(), 0);
    for (layer, spare) in spare.into_iter().enumerate() {
        let from = calibrations(start, tasks, &samples, layer, plan, spare);
        // Nothing is shared in front of the first layer: its weights are right as they are until they are shared.
        let asked = plan.recipe == Recipe::Best && layer > 0;
        let alone = f64::from(u8::from(asked));
        let (mut seconds, mut seen, mut size, mut flowing, mut standing) = (0.0, 0, 0, 0, 0);
        let held = start.members.iter().zip(tasks).zip(&samples);
        standing += held.map(|((m, task), own)| held_out_bytes(m, task, own, spare.held)).sum::<u64>();
        for (((member, from), way), nodes) in start.members.iter().zip(&from).zip(&mut ways).zip(&rates.nodes) {
            let at = &member.layers[layer];
            let rows = positions(&member.graph, at, from.samples.len());
            let columns = (at.columns() + 1) as f64;
            let before = way.kept() as f64;
            let (work, batches) = way.go(member, layer, from, asked, |batch| nodes.seconds(batch, &rates))?;
            // Batch by batch, what is kept now takes the place of what was kept before; that of the last batch is counted with its run.
            let images = from.samples.len();
            let last = from.batch_size.min(images) as f64 / images.max(1) as f64;
            let kept = before.max(way.kept() as f64 * (1.0 - last) + before * last) as u64;
            let (samples, units) = (rows as f64 * columns, at.units as f64);
            seconds += work + fresh(4.0 * rows as f64 * (columns + alone * units));
            if from.keep {
                seconds += fresh(4.0 * samples);
            } else {
                seconds += samples * (0.5 * columns + alone * units) / rates.product(at.columns())
                    + fresh(8.0 * columns * (columns + units));
            }
            if from.keeps_samples(&member.graph, at) {
                // Answers to targets, and products with the inputs: for every unit alone, and for the shared ones.
                seconds += 2.0 * again * (1.0 + alone) * samples * units / rates.targets + fresh(4.0 * samples);
            }
            seen += rows;
            size = size.max(at.columns() + 1);
            let patches = bytes_per_image(&member.graph, at, images) * from.batch_size.min(images) as u64;
            flowing += batches + patches + kept;
            standing += way.kept();
            seconds += fresh(way.kept() as f64);
        }
        // Columns that only some tasks have stand beside each other.
        let common = (0..joint.members.len())
            .flat_map(|t| joint.columns(t, layer))
            .collect::<std::collections::BTreeSet<_>>()
            .len();
        let units: usize = start.members.iter().map(|m| m.layers[layer].units).sum();
        let most = start.members.iter().map(|m| m.layers[layer].units).max().unwrap_or(0) as f64;
        let fewest = start.members.iter().map(|m| m.layers[layer].units).min().unwrap_or(0);
        let joining = start.members.len().saturating_sub(1) as f64;
        let cube = |n: usize| (n as f64).powi(3);
        // What is asked and what is answered: for every unit alone, for pairs, and for d.
        let tables = 8.0 * (common * units) as f64;
        if from.iter().all(|f| f.keep) {
            // Products of samples with each other and with weights, for d and for f; and d needs those of weights with each other.
            let products = (common * seen * (3 * seen + 3 * units)) as f64 + joining * most * most * common as f64;
            seconds += products / rates.solve + cube(seen) / 3.0 / rates.factor;
            seconds += fresh((2.0 + 2.0 * alone) * tables + (3.0 + alone) * 8.0 * (seen * common) as f64);
        } else {
            let factors = alone * tasks.len() as f64 * cube(size) / 3.0 + cube(common) / 3.0 + cube(size) / 3.0;
            // d: a system with as many right sides, and a product.
            let solves = 2.0 * cube(size) + (1.0 + again) * (1.0 + alone) * (common * common * units) as f64;
            seconds += factors / rates.factor + solves / rates.solve;
            let square = 8.0 * (common * common) as f64;
            seconds += fresh((8.0 + 2.0 + 2.0 * alone * tasks.len() as f64) * square);
            seconds += fresh((1.0 + again) * (1.0 + alone) * 2.0 * tables);
        }
        let last = layer + 1 == depth;
        // The pairs, one task after the other.
        let some = aligned(start, plan) == Align::Shared && joint.shared_units(layer) < fewest;
        let paired = rates.pairing[usize::from(some)] * (most / PAIRED as f64).powf(PAIRING);
        let pairing = if start.is_head(layer) { 0.0 } else { joining * (paired + fresh(COSTS * most * most)) };
        let measuring: f64 =
            if last { measured_once } else { (0..tasks.len()).map(|t| whole[t] * few[t].min(tested(t)) as f64).sum() };
        let [collected, merging] = of_layer(&joint, layer, &from);
        memory =
            memory.max(collected + flowing).max(collected + merging + standing).max(saving(start, plan) + standing);
        layers.push(LayerPrediction {
            name: start.members[0].layers[layer].name.clone(),
            shared: joint.shared_units(layer),
            samples: seen / tasks.len().max(1),
            memory: collected + merging,
            seconds: seconds + measuring / rates.measuring + pairing,
        });
    }
    let iterations = plan.retrain * start.hidden_layers();
    let mut retraining = 0.0;
    if iterations > 0 {
        let once: f64 = rates.nodes.iter().flat_map(|nodes| nodes.seconds(plan.batch_size, &rates)).sum();
        let expected = 4.0 * once * plan.batch_size as f64;
        retraining = iterations as f64 * step(start, tasks, plan, expected)? + measured_once / rates.measuring;
    }
    let first = measured_once / rates.measuring;
    let seconds = first + layers.iter().map(|l| l.seconds).sum::<f64>() + retraining;
    let measuring = start.members.iter().map(|m| {
        let runner = Runner::new(&m.graph);
        runner.peak_bytes(measured_at_a_time(&m.graph, each)).saturating_sub(runner.weight_bytes())
    });
    let mut memory = networks(start) + answers(start, tasks, plan) + memory.max(measuring.sum());
    if iterations > 0 {
        memory = memory.max(retraining_bytes(start, tasks, plan, plan.batch_size));
    }
    let parameters_before = start.parameters().0;
    Ok(Prediction {
        parameters_before,
        parameters,
        shared,
        layers,
        memory,
        seconds,
        iterations,
        retraining,
        measuring: first,
    })
}

/// How far the two networks of a task have got ([`crate::statistics::Walks`]).
#[derive(Default)]
struct Way {
    merged: Stand,
    original: Stand,
    /// On so many samples.
    images: usize,
}

/// Where a network stands.
#[derive(Clone, Copy, Default)]
struct Stand {
    /// Nodes before it are done.
    node: usize,
    /// What is kept there.
    bytes: u64,
}

impl Way {
    /// Seconds to show a layer what it sees, and bytes for a batch of it; `asked`: and what the original answers. `seconds`: what an image takes in each node, in
    /// batches of so many.
    fn go(
        &mut self,
        member: &Member,
        layer: usize,
        from: &Calibration,
        asked: bool,
        seconds: impl Fn(usize) -> Vec<f64>,
    ) -> Result<(f64, u64)> {
        let (graph, images) = (&member.graph, from.samples.len());
        let (known, new) = (images.min(self.images), images.saturating_sub(self.images));
        let at = &member.layers[layer];
        let (inputs, target) = looked_at(at, asked);
        let batch = from.batch_size.min(images);
        let seconds = seconds(batch);
        let work = |from: usize, until: usize| -> f64 { seconds.iter().take(until).skip(from).sum() };
        let step = |stand: &mut Stand, wanted: &[ValueId], node: usize| -> Result<(f64, u64)> {
            // What stands too far back and takes too much is forgotten.
            if stand.bytes > from.room {
                *stand = Stand::default();
            }
            let bytes = bytes_at(graph, node).saturating_mul(images as u64);
            let kept = (bytes <= from.room).then_some(node);
            let done = known as f64 * work(stand.node, node) + new as f64 * work(0, node);
            let begin = if new > 0 { 0 } else { stand.node };
            let taken = step_bytes(graph, wanted, begin, kept, batch)?;
            if kept.is_some() {
                *stand = Stand { node, bytes };
            }
            Ok((done, taken))
        };
        let (mut done, mut taken) = step(&mut self.merged, &inputs, at.node)?;
        if asked {
            let (more, others) = step(&mut self.original, &[target], behind(graph, at))?;
            // What the merged network sees waits for the original's answer.
            let waiting: u64 = inputs.iter().map(|id| 4 * graph[*id].shape.elements(batch) as u64).sum();
            (done, taken) = (done + more, taken.max(others + waiting));
        }
        self.images = self.images.max(images);
        Ok((done, taken))
    }

    fn kept(&self) -> u64 {
        self.merged.bytes + self.original.bytes
    }
}

/// Seconds of a step of retraining, by trying a few. One that is `expected` to take long is tried with few samples and with twice as many: part of
/// it does not depend on their number.
fn step(start: &Joint, tasks: &[Task], plan: &Plan, expected: f64) -> Result<f64> {
    const PATIENCE: f64 = 1.0;
    let samples = |t: &Task| t.samples.as_ref().map_or(t.train.len(), Vec::len);
    let whole = tasks.iter().map(samples).fold(plan.batch_size, usize::min);
    let part = (PATIENCE / expected.max(1e-9)).min(1.0);
    let few = ((whole as f64 * part) as usize).max(1);
    if 2 * few > whole {
        return tried(start, tasks, plan, whole);
    }
    let (first, second) = (tried(start, tasks, plan, few)?, tried(start, tasks, plan, 2 * few)?);
    Ok(first + (second - first).max(0.0) * (whole - few) as f64 / few as f64)
}

/// Seconds of the quickest of a few steps with so many samples of each task.
fn tried(start: &Joint, tasks: &[Task], plan: &Plan, batch_size: usize) -> Result<f64> {
    const STEPS: usize = 4;
    let originals: Vec<_> = start.members.iter().map(|m| m.graph.clone()).collect();
    let (mut last, mut least) = (None, f64::INFINITY);
    let plan = Plan { batch_size, ..plan.clone() };
    try_steps(start, tasks, &originals, &plan, STEPS, |_, _| {
        let now = Instant::now();
        if let Some(before) = last.replace(now) {
            least = least.min(now.duration_since(before).as_secs_f64());
        }
        ControlFlow::Continue(())
    })?;
    Ok(least)
}

impl Rates {
    /// Tries a little of everything; errors are measured in at most so many bytes for each task.
    fn measured(joint: &Joint, each: u64) -> Result<Self> {
        let images = |member: &Member| {
            let mut images = (TRIED / member.multiply_adds().max(1)).clamp(1, BATCH);
            while images > 1 && Runner::new(&member.graph).peak_bytes(images) > each {
                images /= 2;
            }
            images
        };
        let nodes = Nodes::tried(joint, images)?;
        let simple: Vec<Graph> =
            joint.members.iter().map(|m| simplify::for_inference(&m.graph)).collect::<Result<_>>()?;
        let mut runs = Vec::new();
        for (graph, member) in simple.iter().zip(&joint.members) {
            let images = measured_at_a_time(graph, each).min(images(member));
            runs.push((Runner::new(graph), made_up(graph, images)?, images as f64 * member.multiply_adds() as f64));
        }
        let all = runs.iter().map(|r| r.2).sum();
        let measuring = rate(all, || {
            runs.par_iter_mut().map(|(runner, inputs, _)| runner.run(inputs).map(|_| ())).collect::<Result<()>>()
        })?;
        let (samples, units) = (2048usize, 128usize);
        let mut products = [64, 256, 1024].map(|n| (n, 0.0));
        let (x, y) = (vec![0.5f32; 1024 * samples], vec![0.5f32; units * samples]);
        for (n, product) in &mut products {
            let mut moments = Moments::new(*n, 0);
            *product = rate(0.5 * (*n * *n * samples) as f64, || moments.add(&x[..*n * samples], &[]))?;
        }
        let mut seen = Samples::new(1024, units);
        seen.add(&x, &y, &[]);
        let (chosen, weights): (Vec<usize>, _) = ((0..units).collect(), vec![vec![0.1; 1025]; units]);
        let targets = rate(2.0 * (1024 * samples * units) as f64, || {
            let _ = seen.cross(&chosen, &weights, &weights);
            Ok(())
        })?;
        let size = 1024usize;
        let mut matrix = vec![0.1f64; size * size];
        (0..size).for_each(|i| matrix[i * size + i] = size as f64);
        let mut factored = None;
        let factor = rate((size as f64).powi(3) / 3.0, || {
            factored = Factor::new(matrix.clone(), size);
            Ok(())
        })?;
        let solve = rate((size as f64).powi(3), || {
            factored.iter().for_each(|factor| factor.solve(&mut matrix, size));
            Ok(())
        })?;
        let fresh = rate(4.0 * NEW as f64, || {
            std::hint::black_box(vec![0.5f32; NEW]);
            Ok(())
        })?;
        // Squared distances of random vectors: more alike, and so harder to tell apart, than random numbers.
        let number = |side: u64, unit: usize, k: usize| random::normal(side, (unit * 16 + k) as u64);
        let square =
            |i: usize, j: usize| (0..16).map(|k| f64::from(number(1, i, k) - number(2, j, k)).powi(2)).sum::<f64>();
        let costs: Vec<f64> = (0..PAIRED * PAIRED).map(|i| square(i / PAIRED, i % PAIRED)).collect();
        let pairs = |count: usize| -> Result<f64> {
            let pair = || {
                let _ = best_pairs(&costs, PAIRED, count);
                Ok(())
            };
            Ok(1.0 / rate(1.0, pair)?)
        };
        let pairing = [pairs(PAIRED)?, pairs(PAIRED / 2)?];
        Ok(Self { nodes, measuring, products, targets, factor, solve, fresh, pairing })
    }

    /// Of sums over samples with so many inputs.
    fn product(&self, inputs: usize) -> f64 {
        let smaller = self.products.iter().rev().find(|(n, _)| *n <= inputs);
        smaller.unwrap_or(&self.products[0]).1
    }
}

/// Multiply-adds of the network that is tried.
const TRIED: usize = 20_000_000_000;

/// Numbers that are written to see how fast there is room for them: more than is ever kept for later.
const NEW: usize = 1 << 24;

/// How long the nodes of a network take.
#[derive(Clone, Debug)]
struct Nodes {
    /// Images that were tried.
    images: usize,
    /// Seconds with all of them; and for a layer that reads its weights once for all images, the multiply-adds for one.
    nodes: Vec<(f64, Option<f64>)>,
}

impl Nodes {
    /// Tries so many images of every task at once, as statistics are collected: threads that a node of one network leaves idle have another. Buffers are new
    /// for every batch, as they are there.
    fn tried(joint: &Joint, images: impl Fn(&Member) -> usize) -> Result<Vec<Self>> {
        let inputs: Vec<Vec<Tensor>> =
            joint.members.iter().map(|m| made_up(&m.graph, images(m))).collect::<Result<_>>()?;
        let mut tries: Vec<Vec<Vec<f64>>> = Vec::new();
        rate(1.0, || {
            let begin = Instant::now();
            let run = |(member, inputs): (&Member, &Vec<Tensor>)| {
                let mut last = Instant::now();
                let mut seconds = Vec::new();
                Runner::new(&member.graph).run_and_tell(inputs, |_| {
                    let now = Instant::now();
                    seconds.push(now.duration_since(last).as_secs_f64());
                    last = now;
                })?;
                Ok(seconds)
            };
            let mut seconds: Vec<Vec<f64>> = joint.members.par_iter().zip(&inputs).map(run).collect::<Result<_>>()?;
            // Each node its part of the time that passed for all.
            let part = begin.elapsed().as_secs_f64() / seconds.iter().flatten().sum::<f64>().max(1e-9);
            seconds.iter_mut().flatten().for_each(|s| *s *= part);
            tries.push(seconds);
            Ok(())
        })?;
        let of = |(m, member): (usize, &Member)| {
            let weights = |node: usize| {
                let layer = member.layers.iter().find(|l| l.node == node && l.conv.is_none())?;
                Some((layer.units * layer.columns() * layer.places(&member.graph)) as f64)
            };
            let node = |node: usize| (median(tries.iter().map(|t| t[m][node]).collect()), weights(node));
            Self { images: images(member), nodes: (0..member.graph.nodes().len()).map(node).collect() }
        };
        Ok(joint.members.iter().enumerate().map(of).collect())
    }

    /// Seconds that an image takes in each node, in batches of so many.
    fn seconds(&self, batch: usize, rates: &Rates) -> Vec<f64> {
        let quickest = rates.products.iter().map(|p| p.1).fold(1.0, f64::max);
        let one = |(seconds, work): &(f64, Option<f64>)| match work {
            Some(work) => (seconds / self.images.max(batch) as f64).max(work / quickest),
            None => seconds / self.images as f64,
        };
        self.nodes.iter().map(one).collect()
    }
}

/// Inputs of a network for so many samples.
fn made_up(graph: &Graph, samples: usize) -> Result<Vec<Tensor>> {
    let input = |id: &ValueId| {
        let shape = graph[*id].shape.at(samples);
        let count = shape.iter().product();
        Tensor::new(shape, (0..count).map(|i| (i % 7) as f32 * 0.1).collect())
    };
    graph.inputs().iter().map(input).collect()
}

/// Operations per second, by the middle of some tries: at least three, and more of what is short.
fn rate(operations: f64, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    const SECONDS: f64 = 0.1;
    let mut tries = Vec::new();
    while tries.len() < 3 || (tries.iter().sum::<f64>() < SECONDS && tries.len() < 100) {
        let begin = Instant::now();
        work()?;
        tries.push(begin.elapsed().as_secs_f64());
    }
    Ok(operations / median(tries).max(1e-9))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}
