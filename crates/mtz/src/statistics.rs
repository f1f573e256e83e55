//! What a layer sees and what it should answer, as second moments over calibration samples.

use crate::data::Feed;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::linalg::Moments;
use crate::op::Conv;
use crate::plan::Layer;
use crate::random;
use crate::run::Runner;
use crate::tensor::Tensor;
use crate::train::Augmentation;
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
    /// Where random numbers begin.
    pub seed: u64,
    /// Keep the samples themselves: less work where they are fewer than the layer's inputs ([`positions`]).
    pub keep: bool,
    /// Images are shifted by up to so many pixels.
    pub shift: usize,
}

/// Positions of a convolution that are looked at, for each input of the layer: more say nothing new.
const POSITIONS_PER_INPUT: usize = 100;
/// But never fewer than this.
const MIN_POSITIONS: usize = 50_000;

/// How many samples of its input `images` images give a layer: one each, or for a convolution one for each output position that is looked at.
pub fn positions(graph: &Graph, layer: &Layer, images: usize) -> usize {
    images.saturating_mul(layer.places(graph).min(per_image(layer, images)))
}

fn per_image(layer: &Layer, images: usize) -> usize {
    (POSITIONS_PER_INPUT * layer.columns()).max(MIN_POSITIONS).div_ceil(images.max(1))
}

/// Σ x xᵀ and Σ x yᵀ of one layer: x is its input in `merged`, y its answer (the pre-activation) in `original`, which has the same
/// structure. At the end of a residual block y is what brings the *sum* to the original's: the layer makes up for what went wrong on the
/// other path. Without an original there is no y: right where the layer's own weights say what it answers. Of a convolution every
/// output position is a sample; where there are many, some are chosen at random.
pub fn moments(merged: &Graph, original: Option<&Graph>, layer: &Layer, from: &Calibration) -> Result<Moments> {
    let sum = layer.sum.filter(|_| original.is_some());
    let inputs = merged.up_to(&[Some(layer.input), sum.map(|s| s.other)].into_iter().flatten().collect::<Vec<_>>())?;
    let target = sum.map_or(layer.answer(), |s| s.output);
    let outputs = original.map(|original| original.up_to(&[target])).transpose()?;
    let (mut input_runner, mut output_runner) = (Runner::new(&inputs), outputs.as_ref().map(Runner::new));
    let units = if original.is_some() { layer.units } else { 0 };
    let new = if from.keep { Moments::of_rows } else { Moments::new };
    let mut moments = new(layer.columns(), units);
    let wanted = per_image(layer, from.samples.len());
    let places: Vec<usize> = merged[layer.answer()].shape.at(1).into_iter().skip(2).collect();
    for (i, batch) in from.samples.chunks(from.batch_size.max(1)).enumerate() {
        let seed = random::bits(from.seed, i as u64);
        let shift = Augmentation { shift: from.shift, flip: false };
        let x = [shift.apply(from.feed.batch(batch)?, seed)];
        let mut seen = input_runner.run(&x)?;
        let mut answers = output_runner.as_mut().map(|r| r.run(&x)).transpose()?.unwrap_or_default();
        let other = if sum.is_some() { seen.pop() } else { None };
        let (Some(seen), mut answers) = (seen.pop(), answers.pop()) else {
            return Err(Error::model("a layer has no input"));
        };
        if let (Some(answers), Some(other)) = (&mut answers, other) {
            let rest = answers.data().iter().zip(other.data()).map(|(sum, other)| sum - other).collect();
            *answers = Tensor::new(answers.shape().to_vec(), rest)?;
        }
        match &layer.conv {
            None => moments.add(seen.data(), answers.as_ref().map_or(&[], |y| y.data()))?,
            Some(conv) => {
                let (rows, answers) = patches(conv, layer, &seen, answers.as_ref(), &places, wanted, !seed);
                moments.add(&rows, &answers)?;
            }
        }
    }
    Ok(moments)
}

/// Some positions of every image: what the kernel sees there, and the outputs.
fn patches(
    conv: &Conv,
    layer: &Layer,
    x: &Tensor,
    y: Option<&Tensor>,
    places: &[usize],
    wanted: usize,
    seed: u64,
) -> (Vec<f32>, Vec<f32>) {
    let spatial = |shape: &[usize]| match shape {
        [h, w] => (*h, *w),
        [w] => (1, *w),
        _ => (1, 1),
    };
    let ((height, width), (out_height, out_width)) = (spatial(&x.shape()[2..]), spatial(places));
    let [rows, columns] = conv.two_windows();
    let (images, channels) = (x.shape()[0], x.shape()[1]);
    let units = if y.is_some() { layer.units } else { 0 };
    let places = out_height * out_width;
    let count = wanted.min(places);
    let (size, columns_total) = (layer.taps, layer.columns());
    let mut seen = vec![0.0; images * count * columns_total];
    let mut answers = vec![0.0; images * count * units];
    let chosen = |n: usize| -> Vec<usize> {
        if count == places {
            return (0..places).collect();
        }
        random::permutation(random::bits(seed, n as u64), places).into_iter().take(count).collect()
    };
    if let Some(y) = y {
        answers.par_chunks_mut((count * units).max(1)).enumerate().for_each(|(n, answers)| {
            let y = &y.data()[n * units * places..][..units * places];
            for (place, answers) in chosen(n).iter().zip(answers.chunks_mut(units)) {
                answers.iter_mut().enumerate().for_each(|(m, answer)| *answer = y[m * places + place]);
            }
        });
    }
    seen.par_chunks_mut((count * columns_total).max(1)).enumerate().for_each(|(n, seen)| {
        let x = &x.data()[n * channels * height * width..][..channels * height * width];
        for (place, seen) in chosen(n).iter().zip(seen.chunks_mut(columns_total)) {
            let (top, left) = (place / out_width * rows.stride, place % out_width * columns.stride);
            for (k, seen) in seen.iter_mut().enumerate() {
                let (channel, tap) = (k / size, k % size);
                let row = (top + tap / columns.size * rows.dilation).checked_sub(rows.before);
                let column = (left + tap % columns.size * columns.dilation).checked_sub(columns.before);
                *seen = match (row.filter(|r| *r < height), column.filter(|c| *c < width)) {
                    (Some(row), Some(column)) => x[(channel * height + row) * width + column],
                    _ => 0.0,
                };
            }
        }
    });
    (seen, answers)
}
