//! What a layer sees and what it should answer, as second moments over calibration samples.

mod activation_cache;
mod fit;
mod gram;
mod kept_samples;

pub use activation_cache::{ActivationCache, LayerPass};
pub(crate) use activation_cache::{bytes_at, pass_bytes};
pub use fit::{answer_statistics, relative_error};
pub use gram::Moments;
pub use kept_samples::KeptSamples;

use crate::data::{Augmentation, Feed};
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::op::{Conv, Op};
use crate::random;
use crate::run::{DEFAULT_MEMORY, Runner};
use crate::sharing::{Joint, Layer};
use crate::tensor::Tensor;
use rayon::prelude::*;

/// Samples for statistics, and how to go through them.
#[derive(Clone, Debug)]
pub struct Calibration<'a> {
    /// Where they come from.
    pub feed: &'a Feed,
    /// Which ones.
    pub samples: Vec<usize>,
    /// How many at a time.
    pub batch_size: usize,
    /// Which of the batches: every n-th one, beginning with the i-th, as (i, n). Statistics of all parts add up to
    /// those of the whole.
    pub part: (usize, usize),
    /// Where random numbers begin.
    pub seed: u64,
    /// Keep the samples themselves instead of sums: less work where they are fewer than the layer's inputs
    /// ([`positions`]).
    pub keep: bool,
    /// How many f32 values may be kept in addition to the Gram matrix, for one-sided targets.
    pub kept_values: usize,
    /// Images are shifted by up to so many pixels.
    pub shift: usize,
    /// Bytes that each network may keep of what it computed on the samples ([`ActivationCache`]).
    pub cache_bytes: u64,
    /// Bytes that running a network may take.
    pub memory: u64,
}

impl<'a> Calibration<'a> {
    /// These samples as they are, summed up.
    pub fn new(feed: &'a Feed, samples: Vec<usize>, seed: u64) -> Self {
        Self {
            feed,
            samples,
            batch_size: BATCH,
            part: (0, 1),
            seed,
            keep: false,
            kept_values: 0,
            shift: 0,
            cache_bytes: CACHE_BYTES,
            memory: DEFAULT_MEMORY,
        }
    }

    /// The same with batches that take at most `batches` bytes ([`batch_bytes`]), and `cache_bytes` bytes for what is
    /// kept in between.
    #[must_use]
    pub fn within(self, batches: u64, cache_bytes: u64, graph: &Graph, patches: u64) -> Self {
        // A divisor of BATCH, so that whole batches stay whole. One sample at a time is the least there is.
        let sizes = (0..=BATCH.ilog2()).rev().map(|k| 1 << k);
        let batch_size = sizes.into_iter().find(|n| batch_bytes(graph, patches, *n) <= batches).unwrap_or(1);
        // What is kept for later comes on top.
        let memory = batches.max(2 * Runner::new(graph).peak_bytes(batch_size));
        Self { batch_size, cache_bytes, memory, ..self }
    }

    fn seed_of(&self, batch: usize) -> u64 {
        random::bits(self.seed, batch as u64)
    }

    /// The batches of this part, each with its number in the whole.
    fn batches(&self) -> impl Iterator<Item = (usize, &[usize])> {
        let (first, of) = self.part;
        self.samples.chunks(self.batch_size.max(1)).enumerate().skip(first).step_by(of.max(1))
    }

    /// The images of one batch.
    fn images(&self, number: usize, batch: &[usize]) -> Result<Tensor> {
        let shift = Augmentation { shift: self.shift, flip: false };
        Ok(shift.apply(self.feed.batch(batch)?, self.seed_of(number)))
    }

    /// Whether samples of a layer are kept beside the sums: a rectifier follows, and there is room for them.
    pub fn keeps_samples(&self, graph: &Graph, layer: &Layer) -> bool {
        let numbers = positions(graph, layer, self.samples.len()).saturating_mul(layer.columns() + 2 * layer.units);
        layer.rectified && !self.keep && numbers <= self.kept_values
    }
}

/// Bytes that a batch takes beside the weights: the network's values, and `patches` for each image
/// ([`bytes_per_image`]).
pub fn batch_bytes(graph: &Graph, patches: u64, images: usize) -> u64 {
    let runner = Runner::new(graph);
    runner
        .peak_bytes(images)
        .saturating_sub(runner.weight_bytes())
        .saturating_add(patches.saturating_mul(images as u64))
}

/// Bytes that the samples of a layer take which one of `images` images gives it, with what it answers and should
/// answer.
pub fn bytes_per_image(graph: &Graph, layer: &Layer, images: usize) -> u64 {
    4 * (layer.places(graph).min(per_image(layer, images)) * (layer.columns() + 2 * layer.units)) as u64
}

/// Samples that go through a network at a time, if there is memory.
pub const BATCH: usize = 512;

/// Positions of a convolution that are looked at, for each input of the layer: more say nothing new.
const POSITIONS_PER_INPUT: usize = 100;
/// But never fewer than this.
const MIN_POSITIONS: usize = 50_000;

/// Bytes a network may keep unless told otherwise.
const CACHE_BYTES: u64 = 1 << 30;

/// How many samples of its input `images` images give a layer: one each, or for a convolution one for each output
/// position that is looked at.
pub fn positions(graph: &Graph, layer: &Layer, images: usize) -> usize {
    images.saturating_mul(layer.places(graph).min(per_image(layer, images)))
}

/// How many images show a layer all the positions that are worth looking at.
pub fn wanted(graph: &Graph, layer: &Layer) -> usize {
    let places = layer.places(graph).max(1);
    let least = if places > 1 { MIN_POSITIONS } else { 0 };
    (POSITIONS_PER_INPUT * layer.columns()).max(least).div_ceil(places)
}

fn per_image(layer: &Layer, images: usize) -> usize {
    (POSITIONS_PER_INPUT * layer.columns()).max(MIN_POSITIONS).div_ceil(images.max(1))
}

/// Where merging gets its statistics from: samples that run through networks here, or elsewhere.
pub trait StatisticsSource {
    /// Statistics of a layer, task by task. All earlier layers of `joint` are merged.
    fn layer(&mut self, joint: &Joint, layer: usize) -> Result<Vec<LayerStatistics>>;

    /// Sets normalisations anew that stand between this layer and the next and belong to no layer, so that no fit has
    /// set them. A source that sees no activations leaves them as they are.
    fn renormalise(&mut self, _joint: &mut Joint, _layer: usize) -> Result<()> {
        Ok(())
    }

    /// Forgets what was computed: weights of merged layers have changed.
    fn restart(&mut self) {}
}

/// How far the merged and the original network have got on the samples of one task.
#[derive(Clone, Debug, Default)]
pub struct ActivationCaches {
    /// The network whose layers change one after the other.
    pub merged: ActivationCache,
    /// The network that says what they should answer.
    pub original: ActivationCache,
}

/// What a layer saw.
#[derive(Clone, Debug)]
pub struct LayerStatistics {
    /// Second moments.
    pub moments: Moments,
    /// The samples, if a rectifier follows and there is room for them.
    pub samples: Option<KeptSamples>,
}

/// Σ x xᵀ and Σ x yᵀ of one layer: x is its input in `merged`, y its answer (the pre-activation) in `original`, which
/// has the same structure. At the end of a residual block y is what brings the *sum* to the original's: the layer makes
/// up for what went wrong on the other path. Without an original there is no y: right where the layer's own weights say
/// what it answers. Of a convolution every output position is a sample; where there are many, some are chosen at
/// random.
pub fn layer_statistics(
    merged: &Graph,
    original: Option<&Graph>,
    layer: &Layer,
    from: &Calibration,
    caches: &mut ActivationCaches,
) -> Result<LayerStatistics> {
    let (inputs, target) = tapped_values(layer, original.is_some());
    let sum = layer.sum.filter(|_| original.is_some());
    let count = from.samples.len();
    let mut inputs = caches.merged.pass(merged, &inputs, layer.node, count, (from.cache_bytes, from.memory))?;
    let cache = &mut caches.original;
    let outputs = original.map(|original| {
        cache.pass(original, &[target], node_after(original, layer), count, (from.cache_bytes, from.memory))
    });
    let mut outputs = outputs.transpose()?;
    let units = if original.is_some() { layer.units } else { 0 };
    let new = if from.keep { Moments::of_rows } else { Moments::new };
    let mut moments = new(layer.columns(), units);
    let wanted = per_image(layer, from.samples.len());
    let mut samples = from.keeps_samples(merged, layer).then(|| KeptSamples::new(layer.columns(), layer.units));
    let places: Vec<usize> = merged[layer.answer()].shape.at(1).into_iter().skip(2).collect();
    for (i, batch) in from.batches() {
        let x = from.images(i, batch)?;
        let mut seen = inputs.run(i, &x)?;
        let mut answers = outputs.as_mut().map(|step| step.run(i, &x)).transpose()?.unwrap_or_default();
        let other = if sum.is_some() { seen.pop() } else { None };
        let (Some(seen), mut answers) = (seen.pop(), answers.pop()) else {
            return Err(Error::model("a layer has no input"));
        };
        let mut floor = None;
        if let (Some(answers), Some(other)) = (&mut answers, other) {
            let rest = answers.data().iter().zip(other.data()).map(|(sum, other)| sum - other).collect();
            *answers = Tensor::new(answers.shape().to_vec(), rest)?;
            let below = other.data().iter().map(|x| -x).collect();
            floor = samples.as_ref().map(|_| Tensor::new(other.shape().to_vec(), below)).transpose()?;
        }
        let data = |t: Option<&Tensor>| t.map_or_else(Vec::new, |t| t.data().to_vec());
        let (x, y, floor) = match &layer.conv {
            None => (data(Some(&seen)), data(answers.as_ref()), data(floor.as_ref())),
            Some(conv) => {
                let at = SampledPositions::chosen(&places, seen.shape()[0], wanted, !from.seed_of(i));
                let of = |t: Option<Tensor>| t.map_or_else(Vec::new, |t| at.outputs(&t));
                (at.patches(conv, layer, &seen), of(answers), of(floor))
            }
        };
        moments.add(&x, &y)?;
        samples.iter_mut().for_each(|samples| samples.add(&x, &y, &floor));
    }
    moments.mirror();
    Ok(LayerStatistics { moments, samples })
}

/// Mean and variance of every channel of a value, over samples and positions. The cache stands at `node` afterwards.
pub fn channel_statistics(
    graph: &Graph,
    value: ValueId,
    node: usize,
    from: &Calibration,
    cache: &mut ActivationCache,
) -> Result<Vec<(f64, f64)>> {
    let mut step = cache.pass(graph, &[value], node, from.samples.len(), (from.cache_bytes, from.memory))?;
    let channels = graph[value].shape.at(1).get(1).copied().unwrap_or(1);
    let (mut sums, mut count) = (vec![(0.0, 0.0); channels], 0);
    for (i, batch) in from.batches() {
        let seen = step.run(i, &from.images(i, batch)?)?;
        let Some(seen) = seen.first() else { return Err(Error::model("a normalisation has no input")) };
        let plane = seen.shape().iter().skip(2).product::<usize>().max(1);
        count += batch.len() * plane;
        for image in seen.data().chunks(channels * plane) {
            for (sum, plane) in sums.iter_mut().zip(image.chunks(plane)) {
                sum.0 += plane.iter().map(|x| f64::from(*x)).sum::<f64>();
                sum.1 += plane.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
            }
        }
    }
    let count = count.max(1) as f64;
    Ok(sums.into_iter().map(|(x, xx)| (x / count, (xx / count - (x / count).powi(2)).max(0.0))).collect())
}

/// How far the answers of a layer of `merged` are from what `target` says they should be, squared, relative to the
/// square of these; at the end of a residual block the layer is asked for what brings the sum to the other's, as in
/// [`layer_statistics`]. The cache of the other network stands at `until` afterwards.
pub fn layer_error(
    merged: &Graph,
    target: &Graph,
    layer: &Layer,
    until: usize,
    from: &Calibration,
    caches: &mut ActivationCaches,
) -> Result<f64> {
    let (count, limits) = (from.samples.len(), (from.cache_bytes, from.memory));
    let other = layer.sum.map(|s| s.other);
    let own: Vec<ValueId> = [Some(layer.answer()), other].into_iter().flatten().collect();
    let (_, wanted) = tapped_values(layer, true);
    let mut answers = caches.merged.pass(merged, &own, layer.node, count, limits)?;
    let mut targets = caches.original.pass(target, &[wanted], until, count, limits)?;
    let (mut error, mut squares) = (0.0, 0.0);
    for (i, batch) in from.batches() {
        let x = from.images(i, batch)?;
        let (answers, targets) = (answers.run(i, &x)?, targets.run(i, &x)?);
        let (Some(answer), Some(target)) = (answers.first(), targets.first()) else {
            return Err(Error::model("a layer has no answer"));
        };
        let rest = answers.get(1).map(Tensor::data);
        for (k, (now, right)) in answer.data().iter().zip(target.data()).enumerate() {
            let right = f64::from(*right) - rest.map_or(0.0, |rest| f64::from(rest[k]));
            error += (f64::from(*now) - right).powi(2);
            squares += right.powi(2);
        }
    }
    Ok(error / squares.max(f64::MIN_POSITIVE))
}

/// What of the merged network a layer's statistics see, and what of the original, if it is asked.
pub(crate) fn tapped_values(layer: &Layer, asked: bool) -> (Vec<ValueId>, ValueId) {
    let sum = layer.sum.filter(|_| asked);
    let inputs = [Some(layer.input), sum.map(|s| s.other)].into_iter().flatten().collect();
    (inputs, sum.map_or(layer.answer(), |s| s.output))
}

/// Where the original stands afterwards: its layer does not change, so it can be passed.
pub(crate) fn node_after(graph: &Graph, layer: &Layer) -> usize {
    let nodes = graph.nodes().iter().skip(layer.node + 1);
    layer.node + 1 + nodes.take_while(|n| !matches!(n.op, Op::Conv(_) | Op::Gemm(_))).count()
}

/// Positions that are gathered together: planes of channels lie far apart, and each is read once for all of these.
const TOGETHER: usize = 16;

/// Some output positions of every image of a batch.
struct SampledPositions {
    /// Height and width of the outputs.
    size: (usize, usize),
    /// For each image.
    chosen: Vec<Vec<usize>>,
}

fn plane(shape: &[usize]) -> (usize, usize) {
    match shape {
        [h, w] => (*h, *w),
        [w] => (1, *w),
        _ => (1, 1),
    }
}

impl SampledPositions {
    fn chosen(places: &[usize], images: usize, wanted: usize, seed: u64) -> Self {
        let size = plane(places);
        let all = size.0 * size.1;
        let count = wanted.min(all);
        let some = |n: usize| {
            if count == all {
                return (0..all).collect();
            }
            let mut some = random::permutation(random::bits(seed, n as u64), all);
            some.truncate(count);
            // Neighbours lie near each other in memory.
            some.sort_unstable();
            some
        };
        Self { size, chosen: (0..images).map(some).collect() }
    }

    fn count(&self) -> usize {
        self.chosen.first().map_or(0, Vec::len)
    }

    /// What is computed there: positions × units.
    fn outputs(&self, y: &Tensor) -> Vec<f32> {
        let (units, places) = (y.shape()[1], self.size.0 * self.size.1);
        let mut rows = vec![0.0; self.chosen.len() * self.count() * units];
        rows.par_chunks_mut((self.count() * units).max(1)).zip(&self.chosen).enumerate().for_each(
            |(n, (rows, chosen))| {
                let y = &y.data()[n * units * places..][..units * places];
                for (rows, block) in rows.chunks_mut(TOGETHER * units).zip(chosen.chunks(TOGETHER)) {
                    for (m, plane) in y.chunks(places).enumerate() {
                        block.iter().enumerate().for_each(|(i, place)| rows[i * units + m] = plane[*place]);
                    }
                }
            },
        );
        rows
    }

    /// What the kernel sees there: positions × columns.
    fn patches(&self, conv: &Conv, layer: &Layer, x: &Tensor) -> Vec<f32> {
        let (height, width) = plane(&x.shape()[2..]);
        let (channels, size, total) = (x.shape()[1], layer.taps, layer.columns());
        let mut seen = vec![0.0; self.chosen.len() * self.count() * total];
        seen.par_chunks_mut((self.count() * total).max(1)).zip(&self.chosen).enumerate().for_each(
            |(n, (seen, chosen))| {
                let x = &x.data()[n * channels * height * width..][..channels * height * width];
                for (seen, block) in seen.chunks_mut(TOGETHER * total).zip(chosen.chunks(TOGETHER)) {
                    // Where in a plane the taps of these positions are: the same for all channels.
                    let taps: Vec<Option<usize>> =
                        block.iter().flat_map(|place| self.taps(conv, *place, size, (height, width))).collect();
                    for (channel, plane) in x.chunks(height * width).take(total / size).enumerate() {
                        for (seen, taps) in seen.chunks_mut(total).zip(taps.chunks(size)) {
                            let seen = seen[channel * size..][..size].iter_mut();
                            seen.zip(taps).for_each(|(seen, tap)| *seen = tap.map_or(0.0, |tap| plane[tap]));
                        }
                    }
                }
            },
        );
        seen
    }

    /// Where a kernel's taps are in a plane, for one output position; none in the padding.
    fn taps(&self, conv: &Conv, place: usize, size: usize, (height, width): (usize, usize)) -> Vec<Option<usize>> {
        let [rows, columns] = conv.two_windows();
        let (top, left) = (place / self.size.1 * rows.stride, place % self.size.1 * columns.stride);
        let tap = |tap: usize| {
            let row = (top + tap / columns.size * rows.dilation).checked_sub(rows.before).filter(|r| *r < height)?;
            let column = (left + tap % columns.size * columns.dilation).checked_sub(columns.before);
            Some(row * width + column.filter(|c| *c < width)?)
        };
        (0..size).map(tap).collect()
    }
}
