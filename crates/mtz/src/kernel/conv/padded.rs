//! The shifted method: padded images, read through windows.

use super::{MANY_WEIGHTS, Sizes};
use crate::kernel::scratch;
use crate::kernel::shifted::{self, Dots, Product, ROWS, Runs, SLACK};
use crate::kernel::window::Window;
use rayon::prelude::*;
use std::ops::Range;

/// The largest stride this method is used for.
const MAX_STRIDE: usize = 4;

/// The padded images of the shifted method. With a stride, rows and columns are dealt out to as many *phases* as the stride
/// has steps, so that neighbouring outputs read neighbouring numbers in each phase. `images` images lie behind each other
/// in every plane, a run of positions each; positions at the ends of rows are computed for nothing.
pub(super) struct Padded {
    height: usize,
    width: usize,
    images: usize,
    phases: usize,
    /// Positions of the result in the padded layout.
    runs: Runs,
    /// Where each (channel, tap) begins.
    offsets: Vec<usize>,
}

impl Padded {
    /// The layout for a convolution, unless too much of the work would be padding.
    pub(super) fn new(s: &Sizes) -> Option<Self> {
        // Small images together until a line has some 500 positions. With many weights, which have to be read for every
        // group of images, all at once; with few, at least eight pieces of work.
        let few = if s.weights() > MANY_WEIGHTS { s.batch } else { s.batch.div_ceil(8) };
        Self::with_images(s, 512usize.div_ceil(s.out_plane()).clamp(1, few))
    }

    /// The layout with so many images together.
    pub(super) fn with_images(s: &Sizes, images: usize) -> Option<Self> {
        // A phase per step of the stride: for small strides only, which are all that networks use.
        if s.rows.stride.max(s.columns.stride) > MAX_STRIDE {
            return None;
        }
        let reach = |w: &Window| w.dilation * (w.size - 1) / w.stride;
        let (height, width) = (s.out_height + reach(&s.rows), s.out_width + reach(&s.columns));
        let plane = height * width;
        // Positions that are computed, in whole vectors, against those that count.
        let len = (s.out_height - 1) * width + s.out_width;
        let computed = if plane - len < SLACK { plane } else { len.next_multiple_of(16) };
        if computed as f64 > 1.6 * s.out_plane() as f64 {
            return None;
        }
        let phases = s.rows.stride * s.columns.stride;
        let offsets = (0..s.inputs * s.taps()).map(|k| {
            let (channel, tap) = (k / s.taps(), k % s.taps());
            let (y, x) = (tap / s.columns.size * s.rows.dilation, tap % s.columns.size * s.columns.dilation);
            let phase = y % s.rows.stride * s.columns.stride + x % s.columns.stride;
            let line = (phase * s.inputs + channel) * images * plane;
            line + y / s.rows.stride * width + x / s.columns.stride
        });
        // A kernel looks up to a vector beyond a run; where the next one begins sooner, all are one.
        let runs = if plane - len < SLACK {
            Runs { count: 1, stride: 0, len: (images - 1) * plane + len }
        } else {
            Runs { count: images, stride: plane, len }
        };
        Some(Self { height, width, images, phases, runs, offsets: offsets.collect() })
    }

    fn plane(&self) -> usize {
        self.height * self.width
    }

    /// Numbers of a padded group of images.
    fn len(&self, s: &Sizes) -> usize {
        self.phases * s.inputs * self.images * self.plane() + self.height * self.width + SLACK
    }

    /// Lays out the images `first..first + count` of one group.
    fn fill(&self, s: &Sizes, g: usize, x: &[f32], images: Range<usize>, out: &mut [f32]) {
        let plane = self.plane();
        for (line, out) in out.chunks_mut(self.images * plane).take(self.phases * s.inputs).enumerate() {
            let (phase, channel) = (line / s.inputs, line % s.inputs);
            let (py, px) = (phase / s.columns.stride, phase % s.columns.stride);
            // Column i of this phase is column i·stride + px − before of the image.
            let first = s.columns.before.saturating_sub(px).div_ceil(s.columns.stride).min(self.width);
            let end =
                (s.width + s.columns.before).saturating_sub(px).div_ceil(s.columns.stride).clamp(first, self.width);
            for (n, out) in images.clone().zip(out.chunks_mut(plane)) {
                let x = &x[((n * s.groups + g) * s.inputs + channel) * s.plane()..][..s.plane()];
                for (i, out) in out.chunks_mut(self.width).enumerate() {
                    let row = (i * s.rows.stride + py).checked_sub(s.rows.before).filter(|&r| r < s.height);
                    let Some(row) = row.filter(|_| first < end) else {
                        out.fill(0.0);
                        continue;
                    };
                    out[..first].fill(0.0);
                    out[end..].fill(0.0);
                    let from = &x[row * s.width + first * s.columns.stride + px - s.columns.before..];
                    if s.columns.stride == 1 {
                        out[first..end].copy_from_slice(&from[..end - first]);
                    } else {
                        let from = from.iter().step_by(s.columns.stride);
                        out[first..end].iter_mut().zip(from).for_each(|(out, x)| *out = *x);
                    }
                }
            }
        }
    }

    pub(super) fn forward(&self, s: &Sizes, x: &[f32], packed: &[Vec<f32>], bias: Option<&[f32]>, out: &mut [f32]) {
        let image = s.groups * s.outputs * s.out_plane();
        let stride = self.runs.end() + SLACK;
        let rows = s.outputs.div_ceil(ROWS) * ROWS;
        let depth = self.offsets.len();
        // Many weights and few groups of images: the threads share the filters. Otherwise each has images of its own.
        let few = s.weights() > MANY_WEIGHTS && s.batch.div_ceil(self.images) < 8;
        let work = |(piece, out): (usize, &mut [f32])| {
            let images = piece * self.images..piece * self.images + out.len() / image;
            let mut padded = scratch::take(self.len(s));
            let mut lines = scratch::take(rows * stride);
            for (g, packed) in packed.iter().enumerate() {
                self.fill(s, g, x, images.clone(), &mut padded);
                let part = if few { ROWS } else { rows };
                let jobs = lines.par_chunks_mut(part * stride).zip(packed.par_chunks(part * depth));
                let product = |(lines, packed): (&mut [f32], &[f32])| {
                    shifted::product(&mut Product {
                        a: packed,
                        rows: lines.len() / stride,
                        x: &padded,
                        offsets: &self.offsets,
                        runs: self.runs,
                        out: lines,
                        stride,
                    });
                };
                jobs.for_each(product);
                for (i, out) in out.chunks_mut(image).enumerate() {
                    let out = &mut out[g * s.outputs * s.out_plane()..][..s.outputs * s.out_plane()];
                    for (m, out) in out.chunks_mut(s.out_plane()).enumerate() {
                        let bias = bias.map_or(0.0, |b| b[g * s.outputs + m]);
                        let line = &lines[m * stride + i * self.plane()..];
                        for (y, out) in out.chunks_mut(s.out_width).enumerate() {
                            let line = &line[y * self.width..][..s.out_width];
                            out.iter_mut().zip(line).for_each(|(out, x)| *out = x + bias);
                        }
                    }
                }
            }
            scratch::give_back(padded);
            scratch::give_back(lines);
        };
        if few {
            out.chunks_mut(self.images * image).enumerate().for_each(work);
        } else {
            out.par_chunks_mut(self.images * image).enumerate().for_each(work);
        }
    }

    /// Adds the gradient of one group's filters on some images.
    pub(super) fn backward_weight(
        &self,
        s: &Sizes,
        g: usize,
        images: Range<usize>,
        grad: &[f32],
        x: &[f32],
        sum: &mut [f32],
    ) {
        let stride = self.runs.end() + SLACK;
        let mut padded = scratch::take(self.len(s));
        let mut lines = scratch::take(s.outputs * stride);
        // What lies between the outputs, and images that are not there, count as zero.
        lines.fill(0.0);
        padded.fill(0.0);
        for first in images.clone().step_by(self.images) {
            let here = first..(first + self.images).min(images.end);
            if here.len() < self.images {
                lines.fill(0.0);
            }
            self.fill(s, g, x, here.clone(), &mut padded);
            for (m, line) in lines.chunks_mut(stride).enumerate() {
                for (n, line) in here.clone().zip(line.chunks_mut(self.plane())) {
                    let from = &grad[((n * s.groups + g) * s.outputs + m) * s.out_plane()..][..s.out_plane()];
                    for (from, line) in from.chunks(s.out_width).zip(line.chunks_mut(self.width)) {
                        line[..s.out_width].copy_from_slice(from);
                    }
                }
            }
            shifted::dots(&mut Dots {
                g: &lines,
                rows: s.outputs,
                stride,
                x: &padded,
                offsets: &self.offsets,
                runs: self.runs,
                out: sum,
            });
        }
        scratch::give_back(padded);
        scratch::give_back(lines);
    }
}
