//! What a zip will give and take, before anything is computed: parameters, memory and time from a count of operations.
//!
//! Which units of two tasks go together does not matter for the size of the result, only how many: so units are paired
//! in the order they come. (Of three and more tasks that share in part, it does matter; then the prediction is near.)
//! Times are operations by the rates this machine shows on a small part of them; networks are timed node by node, a
//! step of retraining is tried, and memory that is new has its price.

use crate::engine::CpuEngine;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::linalg::{Factor, optimal_pairs};
use crate::merge::{Align, Recipe};
use crate::random;
use crate::run::Runner;
use crate::sharing::{Joint, Member};
use crate::simplify;
use crate::statistics::{
    BATCH, Calibration, KeptSamples, Moments, bytes_at, bytes_per_image, node_after, pass_bytes, positions,
    tapped_values,
};
use crate::tensor::Tensor;
use crate::zip::{
    MemoryBudget, Retraining, TaskData, ZipOptions, aligned, answers, calibrations, chosen, held_out_bytes,
    intermediate_sample_counts, measured_at_a_time, networks, of_layer, paired_in_order,
    retraining as retraining_bytes, rounds, saving,
};
use rayon::prelude::*;
use std::collections::BTreeSet;
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
pub fn predict(start: &Joint, tasks: &[TaskData], options: &ZipOptions) -> Result<Prediction> {
    let samples: Vec<Vec<usize>> = tasks.iter().map(|t| chosen(t, options)).collect();
    // What cannot be done is refused before anything is tried.
    let budget = MemoryBudget::all(start, tasks, &samples, options)?;
    let joint = &paired_in_order(start, options);
    let each = options.resources.memory / 2 / tasks.len().max(1) as u64;
    let rates = &Rates::measured(start, each)?;
    let few = intermediate_sample_counts(start, tasks, options);
    let planned = Planned { start, tasks, options, samples: &samples, few, joint, rates };
    let mut caches: Vec<CacheReplay> = start.members.iter().map(|_| CacheReplay::default()).collect();
    let (mut layers, mut memory) = (Vec::new(), 0);
    for (layer, budget) in budget.into_iter().enumerate() {
        let (expected, bytes) = planned.layer(layer, budget, &mut caches)?;
        memory = memory.max(bytes);
        layers.push(expected);
    }
    let iterations = options.retraining.iterations * start.hidden_layers();
    let retraining = if iterations > 0 { planned.retraining(iterations)? } else { 0.0 };
    let measuring = planned.measured_once() / rates.measuring;
    let seconds = measuring + layers.iter().map(|l| l.seconds).sum::<f64>() + retraining;
    let measured = start.members.iter().map(|m| {
        let runner = Runner::new(&m.graph);
        runner.peak_bytes(measured_at_a_time(&m.graph, each)).saturating_sub(runner.weight_bytes())
    });
    let mut memory = networks(start) + answers(start, tasks, options) + memory.max(measured.sum());
    if iterations > 0 {
        memory = memory.max(retraining_bytes(start, tasks, options, options.retraining.batch_size));
    }
    let (parameters, shared) = joint.parameters();
    Ok(Prediction {
        parameters_before: start.parameters().0,
        parameters,
        shared,
        layers,
        memory,
        seconds,
        iterations,
        retraining,
        measuring,
    })
}

/// A zip as it is planned, and how fast this machine is.
struct Planned<'p> {
    start: &'p Joint,
    tasks: &'p [TaskData<'p>],
    options: &'p ZipOptions,
    /// Of each task, for statistics.
    samples: &'p [Vec<usize>],
    /// How many samples of each task are measured after every layer but the last.
    few: Vec<usize>,
    /// The joint model to be.
    joint: &'p Joint,
    rates: &'p Rates,
}

/// What a layer takes, stage by stage.
#[derive(Default)]
struct LayerCost {
    /// Of statistics, then of merging too.
    seconds: f64,
    /// Samples or positions of all tasks.
    seen: usize,
    /// The most columns that a task has.
    columns: usize,
    /// Bytes while statistics are collected.
    flowing: u64,
    /// Bytes that are kept for later layers.
    standing: u64,
}

impl Planned<'_> {
    /// What is expected of a layer, and its bytes at the worst moment.
    fn layer(&self, layer: usize, budget: MemoryBudget, caches: &mut [CacheReplay]) -> Result<(LayerPrediction, u64)> {
        let Self { start, tasks, options, samples, joint, rates, .. } = self;
        let from = calibrations(start, tasks, samples, layer, options, budget);
        let mut cost = LayerCost::default();
        let held = start.members.iter().zip(*tasks).zip(*samples);
        cost.standing += held.map(|((m, task), own)| held_out_bytes(m, task, own, budget.held_out_bytes)).sum::<u64>();
        for (t, (from, cache)) in from.iter().zip(caches).enumerate() {
            self.add_statistics(&mut cost, layer, t, from, cache)?;
        }
        self.add_merging(&mut cost, layer, &from);
        let pairing = self.pairing(layer);
        let tested = |t: usize| self.few[t].min(self.tested(t));
        let measuring = if layer + 1 == start.depth() { self.measured_once() } else { self.measured(tested) };
        let [collected, merging] = of_layer(joint, layer, &from);
        let LayerCost { seconds, seen, flowing, standing, .. } = cost;
        let memory = (collected + flowing).max(collected + merging + standing).max(saving(start, options) + standing);
        let expected = LayerPrediction {
            name: start.members[0].layers[layer].name.clone(),
            shared: joint.shared_units(layer),
            samples: seen / tasks.len().max(1),
            memory: collected + merging,
            seconds: seconds + measuring / rates.measuring + pairing,
        };
        Ok((expected, memory))
    }

    /// Whether the original network is asked for its answers. Nothing is shared in front of the first layer: its
    /// weights are right as they are until they are shared.
    fn is_original_asked(&self, layer: usize) -> bool {
        self.options.recipe == Recipe::Best && layer > 0
    }

    /// 1 if every unit alone is fitted to the original's answers too, otherwise 0.
    fn alone(&self, layer: usize) -> f64 {
        f64::from(u8::from(self.is_original_asked(layer)))
    }

    /// How often answers to targets are asked for again.
    fn again(&self) -> f64 {
        rounds(self.start, self.options) as f64
    }

    /// Seconds until so many bytes of memory are there.
    fn fresh(&self, bytes: f64) -> f64 {
        bytes / self.rates.fresh
    }

    /// Statistics of one task.
    fn add_statistics(
        &self,
        cost: &mut LayerCost,
        layer: usize,
        t: usize,
        from: &Calibration,
        cache: &mut CacheReplay,
    ) -> Result<()> {
        let (member, rates, alone) = (&self.start.members[t], self.rates, self.alone(layer));
        let at = &member.layers[layer];
        let rows = positions(&member.graph, at, from.samples.len());
        let columns = (at.columns() + 1) as f64;
        let before = cache.kept() as f64;
        let seconds = |batch| rates.nodes[t].seconds(batch, rates);
        let (work, batches) = cache.go(member, layer, from, self.is_original_asked(layer), seconds)?;
        // Batch by batch, what is kept now takes the place of what was kept before; that of the last batch is counted
        // with its run.
        let images = from.samples.len();
        let last = from.batch_size.min(images) as f64 / images.max(1) as f64;
        let kept = before.max(cache.kept() as f64 * (1.0 - last) + before * last) as u64;
        let (samples, units) = (rows as f64 * columns, at.units as f64);
        cost.seconds += work + self.fresh(4.0 * rows as f64 * (columns + alone * units));
        if from.keep {
            cost.seconds += self.fresh(4.0 * samples);
        } else {
            cost.seconds += samples * (0.5 * columns + alone * units) / rates.product(at.columns())
                + self.fresh(8.0 * columns * (columns + units));
        }
        if from.keeps_samples(&member.graph, at) {
            // Answers to targets, and products with the inputs: for every unit alone, and for the shared ones.
            cost.seconds +=
                2.0 * self.again() * (1.0 + alone) * samples * units / rates.targets + self.fresh(4.0 * samples);
        }
        cost.seen += rows;
        cost.columns = cost.columns.max(at.columns() + 1);
        let patches = bytes_per_image(&member.graph, at, images) * from.batch_size.min(images) as u64;
        cost.flowing += batches + patches + kept;
        cost.standing += cache.kept();
        cost.seconds += self.fresh(cache.kept() as f64);
        Ok(())
    }

    /// The systems that are solved for d and for f.
    fn add_merging(&self, cost: &mut LayerCost, layer: usize, from: &[Calibration]) {
        let (rates, alone, again) = (self.rates, self.alone(layer), self.again());
        let (seen, size, tasks) = (cost.seen, cost.columns, self.tasks.len() as f64);
        // Columns that only some tasks have stand beside each other.
        let columns = (0..self.joint.members.len()).flat_map(|t| self.joint.columns(t, layer));
        let common = columns.collect::<BTreeSet<_>>().len();
        let units: usize = self.units(layer).sum();
        let most = self.most_units(layer);
        let cube = |n: usize| (n as f64).powi(3);
        // What is asked and what is answered: for every unit alone, for pairs, and for d.
        let tables = 8.0 * (common * units) as f64;
        if from.iter().all(|f| f.keep) {
            // Products of samples with each other and with weights, for d and for f; and d needs those of weights with
            // each other.
            let products =
                (common * seen * (3 * seen + 3 * units)) as f64 + self.joining() * most * most * common as f64;
            cost.seconds += products / rates.solve + cube(seen) / 3.0 / rates.factor;
            cost.seconds += self.fresh((2.0 + 2.0 * alone) * tables + (3.0 + alone) * 8.0 * (seen * common) as f64);
        } else {
            let factors = alone * tasks * cube(size) / 3.0 + cube(common) / 3.0 + cube(size) / 3.0;
            // d: a system with as many right sides, and a product.
            let solves = 2.0 * cube(size) + (1.0 + again) * (1.0 + alone) * (common * common * units) as f64;
            cost.seconds += factors / rates.factor + solves / rates.solve;
            let square = 8.0 * (common * common) as f64;
            cost.seconds += self.fresh((8.0 + 2.0 + 2.0 * alone * tasks) * square);
            cost.seconds += self.fresh((1.0 + again) * (1.0 + alone) * 2.0 * tables);
        }
    }

    /// Seconds for the pairs, one task after the other.
    fn pairing(&self, layer: usize) -> f64 {
        if self.start.is_head(layer) {
            return 0.0;
        }
        let most = self.most_units(layer);
        let fewest = self.units(layer).min().unwrap_or(0);
        let some = aligned(self.start, self.options) == Align::Shared && self.joint.shared_units(layer) < fewest;
        let paired = self.rates.pairing[usize::from(some)] * (most / PAIRED as f64).powf(PAIRING);
        self.joining() * (paired + self.fresh(COSTS * most * most))
    }

    /// Seconds for so many iterations, and to measure what they did.
    fn retraining(&self, iterations: usize) -> Result<f64> {
        let Self { start, tasks, options, rates, .. } = self;
        let batch_size = options.retraining.batch_size;
        let once: f64 = rates.nodes.iter().flat_map(|nodes| nodes.seconds(batch_size, rates)).sum();
        let expected = 4.0 * once * batch_size as f64;
        Ok(iterations as f64 * step(start, tasks, options, expected)? + self.measured_once() / rates.measuring)
    }

    /// Multiply-adds of the networks on so many samples of each task.
    fn measured(&self, samples: impl Fn(usize) -> usize) -> f64 {
        let one = |t: usize| self.start.members[t].multiply_adds() as f64 * samples(t) as f64;
        (0..self.tasks.len()).map(one).sum()
    }

    /// On all test samples.
    fn measured_once(&self) -> f64 {
        self.measured(|t| self.tested(t))
    }

    /// Test samples of a task.
    fn tested(&self, t: usize) -> usize {
        self.tasks[t].test.as_ref().map_or(0, |(_, samples)| samples.len())
    }

    /// Tasks that join those before them.
    fn joining(&self) -> f64 {
        self.start.members.len().saturating_sub(1) as f64
    }

    /// Units that each network has in a layer.
    fn units(&self, layer: usize) -> impl Iterator<Item = usize> {
        self.start.members.iter().map(move |m| m.layers[layer].units)
    }

    fn most_units(&self, layer: usize) -> f64 {
        self.units(layer).max().unwrap_or(0) as f64
    }
}

/// How far the two networks of a task have got ([`crate::statistics::ActivationCaches`]).
#[derive(Default)]
struct CacheReplay {
    merged: Reached,
    original: Reached,
    /// On so many samples.
    images: usize,
}

/// Where a network stands.
#[derive(Clone, Copy, Default)]
struct Reached {
    /// Nodes before it are done.
    node: usize,
    /// What is kept there.
    bytes: u64,
}

impl CacheReplay {
    /// Seconds to show a layer what it sees, and bytes for a batch of it; `asked`: and what the original answers.
    /// `seconds`: what an image takes in each node, in batches of so many.
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
        let (inputs, target) = tapped_values(at, asked);
        let batch = from.batch_size.min(images);
        let seconds = seconds(batch);
        let work = |from: usize, until: usize| -> f64 { seconds.iter().take(until).skip(from).sum() };
        let step = |stand: &mut Reached, wanted: &[ValueId], node: usize| -> Result<(f64, u64)> {
            // What stands too far back and takes too much is forgotten.
            if stand.bytes > from.cache_bytes {
                *stand = Reached::default();
            }
            let bytes = bytes_at(graph, node).saturating_mul(images as u64);
            let kept = (bytes <= from.cache_bytes).then_some(node);
            let done = known as f64 * work(stand.node, node) + new as f64 * work(0, node);
            let begin = if new > 0 { 0 } else { stand.node };
            let taken = pass_bytes(graph, wanted, begin, kept, batch)?;
            if kept.is_some() {
                *stand = Reached { node, bytes };
            }
            Ok((done, taken))
        };
        let (mut done, mut taken) = step(&mut self.merged, &inputs, at.node)?;
        if asked {
            let (more, others) = step(&mut self.original, &[target], node_after(graph, at))?;
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

/// Seconds of a step of retraining, by trying a few. One that is `expected` to take long is tried with few samples and
/// with twice as many: part of it does not depend on their number.
fn step(start: &Joint, tasks: &[TaskData], options: &ZipOptions, expected: f64) -> Result<f64> {
    const PATIENCE: f64 = 1.0;
    let samples = |t: &TaskData| t.samples.as_ref().map_or(t.train.len(), Vec::len);
    let whole = tasks.iter().map(samples).fold(options.retraining.batch_size, usize::min);
    let part = (PATIENCE / expected.max(1e-9)).min(1.0);
    let few = ((whole as f64 * part) as usize).max(1);
    if 2 * few > whole {
        return tried(start, tasks, options, whole);
    }
    let (first, second) = (tried(start, tasks, options, few)?, tried(start, tasks, options, 2 * few)?);
    Ok(first + (second - first).max(0.0) * (whole - few) as f64 / few as f64)
}

/// Seconds of the quickest of a few steps with so many samples of each task.
fn tried(start: &Joint, tasks: &[TaskData], options: &ZipOptions, batch_size: usize) -> Result<f64> {
    const STEPS: usize = 4;
    let originals: Vec<_> = start.members.iter().map(|m| m.graph.clone()).collect();
    let (mut last, mut least) = (None, f64::INFINITY);
    let options = options.clone().with(|o| o.retraining.batch_size = batch_size);
    let retraining = Retraining { tasks, originals: &originals, options: &options, engine: &CpuEngine };
    retraining.try_steps(start, STEPS, |_, _| {
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
        let mut seen = KeptSamples::new(1024, units);
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
                let _ = optimal_pairs(&costs, PAIRED, count);
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
    /// Tries so many images of every task at once, as statistics are collected: threads that a node of one network
    /// leaves idle have another. Buffers are new for every batch, as they are there.
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
