//! Convolution over N×C×H×W in three ways, chosen by shape:
//!
//! * *shifted*: images are padded once, and a matrix product reads them through shifted windows ([`super::shifted`]).
//!   Positions in the padding are computed for nothing, so this is for planes that are large compared with their border.
//! * *gathered*: patches of several images become columns of one matrix product. For small planes.
//! * *direct*: plain loops, where every channel has filters of its own.
//!
//! The backward passes use the same three. Several small images go into one piece of work together.

use super::gemm::{Matrix, multiply_into};
use super::shifted::{self, Dots, Product, ROWS, Runs, SLACK};
use super::window::Window;
use rayon::prelude::*;
use std::ops::Range;

/// Floats of gathered patches a task holds at a time (half a megabyte: it stays in the second-level cache).
const PATCH_FLOATS: usize = 128 * 1024;

/// Above this, weights do not stay in cache and are read as few times as possible.
const MANY_WEIGHTS: usize = 200 * 1024;

/// The sizes of one convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub groups: usize,
    /// Input channels of one group.
    pub inputs: usize,
    /// Output channels of one group.
    pub outputs: usize,
    pub height: usize,
    pub width: usize,
    pub out_height: usize,
    pub out_width: usize,
    pub rows: Window,
    pub columns: Window,
}

impl Sizes {
    fn plane(&self) -> usize {
        self.height * self.width
    }

    fn out_plane(&self) -> usize {
        self.out_height * self.out_width
    }

    fn taps(&self) -> usize {
        self.rows.size * self.columns.size
    }

    /// Weights of one group.
    fn weights(&self) -> usize {
        self.outputs * self.inputs * self.taps()
    }

    /// Every channel has filters of its own.
    fn is_depthwise(&self) -> bool {
        self.inputs == 1 && self.groups > 1
    }
}

/// out[n, m] = bias[m] + Σ_c w[m, c] ∗ x[n, c], per group.
pub(crate) fn forward(s: &Sizes, x: &[f32], w: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
    if s.is_depthwise() {
        return out.par_chunks_mut(s.outputs * s.out_plane()).enumerate().for_each(|(index, out)| {
            let g = index % s.groups;
            for (o, plane) in out.chunks_mut(s.out_plane()).enumerate() {
                plane.fill(bias.map_or(0.0, |b| b[g * s.outputs + o]));
            }
            direct(
                s,
                &x[index * s.plane()..][..s.plane()],
                &w[g * s.outputs * s.taps()..][..s.outputs * s.taps()],
                out,
            );
        });
    }
    let depth = s.inputs * s.taps();
    let filter = |g: usize| &w[g * s.outputs * depth..][..s.outputs * depth];
    match Padded::new(s) {
        Some(padded) => {
            let packed: Vec<Vec<f32>> = (0..s.groups)
                .map(|g| {
                    let mut packed = Vec::new();
                    shifted::pack(s.outputs, depth, &mut packed, |m, k| filter(g)[m * depth + k]);
                    packed
                })
                .collect();
            padded.forward(s, x, &packed, bias, out);
        }
        None => gathered_forward(s, x, filter, bias, out),
    }
}

/// dx[n, c] = Σ_m w[m, c] ⋆ dy[n, m].
pub(crate) fn backward_input(s: &Sizes, grad: &[f32], w: &[f32], out: &mut [f32], add: bool) {
    // With stride 1 this is a convolution of dy with the filters turned around and inputs and outputs exchanged.
    // Unpadded convolutions with large filters would then multiply more zeros than numbers.
    if let Some(turned) = s.turned().filter(|t| !s.is_depthwise() && !add && t.out_plane() <= s.out_plane() * 3 / 2)
        && let Some(padded) = Padded::new(&turned)
    {
        let taps = s.taps();
        let packed: Vec<Vec<f32>> = (0..s.groups)
            .map(|g| {
                let w = &w[g * s.outputs * s.inputs * taps..];
                let mut packed = Vec::new();
                shifted::pack(s.inputs, s.outputs * taps, &mut packed, |c, k| {
                    w[(k / taps * s.inputs + c) * taps + taps - 1 - k % taps]
                });
                packed
            })
            .collect();
        return padded.forward(&turned, grad, &packed, None, out);
    }
    gathered_backward_input(s, grad, w, out, add);
}

/// dw[m, c] = Σ_n dy[n, m] ⋆ x[n, c]. Images are cut into at most eight pieces whose sums are added in order: the result
/// does not depend on the number of threads.
pub(crate) fn backward_weight(s: &Sizes, grad: &[f32], x: &[f32], out: &mut [f32], add: bool) {
    let size = s.weights();
    let images = s.batch.div_ceil(if size > MANY_WEIGHTS { 4 } else { 8 });
    let padded =
        Padded::with_images(s, 2048usize.div_ceil(s.out_plane()).clamp(1, images)).filter(|_| !s.is_depthwise());
    if !add {
        out.fill(0.0);
    }
    let pieces = s.batch.div_ceil(images);
    let mut sums = scratch::take(pieces * s.groups * size);
    sums.fill(0.0);
    sums.par_chunks_mut(s.groups * size).enumerate().for_each(|(piece, sums)| {
        let images = piece * images..((piece + 1) * images).min(s.batch);
        for (g, sum) in sums.chunks_mut(size).enumerate() {
            match &padded {
                Some(padded) => padded.backward_weight(s, g, images.clone(), grad, x, sum),
                None => gathered_backward_weight(s, g, images.clone(), grad, x, sum),
            }
        }
    });
    for piece in sums.chunks(s.groups * size) {
        out.iter_mut().zip(piece).for_each(|(out, piece)| *out += piece);
    }
    scratch::give_back(sums);
}

impl Sizes {
    /// The convolution that leads from the gradient of the output to that of the input; only for stride 1.
    fn turned(&self) -> Option<Self> {
        let turn = |w: Window| {
            let before = (w.span() - 1).checked_sub(w.before)?;
            (w.stride == 1).then_some(Window { before, ..w })
        };
        Some(Self {
            inputs: self.outputs,
            outputs: self.inputs,
            height: self.out_height,
            width: self.out_width,
            out_height: self.height,
            out_width: self.width,
            rows: turn(self.rows)?,
            columns: turn(self.columns)?,
            ..*self
        })
    }
}

/// The padded images of the shifted method. With a stride, rows and columns are dealt out to as many *phases* as the stride
/// has steps, so that neighbouring outputs read neighbouring numbers in each phase. `images` images lie behind each other
/// in every plane, a run of positions each; positions at the ends of rows are computed for nothing.
struct Padded {
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
    fn new(s: &Sizes) -> Option<Self> {
        // Small images together until a line has some 500 positions. With many weights, which have to be read for every
        // group of images, all at once; with few, at least eight pieces of work.
        let few = if s.weights() > MANY_WEIGHTS { s.batch } else { s.batch.div_ceil(8) };
        Self::with_images(s, 512usize.div_ceil(s.out_plane()).clamp(1, few))
    }

    /// The layout with so many images together.
    fn with_images(s: &Sizes, images: usize) -> Option<Self> {
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

    fn forward(&self, s: &Sizes, x: &[f32], packed: &[Vec<f32>], bias: Option<&[f32]>, out: &mut [f32]) {
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
    fn backward_weight(&self, s: &Sizes, g: usize, images: Range<usize>, grad: &[f32], x: &[f32], sum: &mut [f32]) {
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

/// Images whose patches go into one matrix product.
fn together(s: &Sizes) -> usize {
    s.block().div_ceil(s.out_plane()).clamp(1, s.batch.div_ceil(4))
}

/// Copies between planes of images (N×M×plane, one group) and lines of a matrix (M lines, image after image).
fn for_each_line(s: &Sizes, count: usize, mut f: impl FnMut(usize, usize, Range<usize>)) {
    for i in 0..count {
        for m in 0..s.outputs {
            let line = (m * count + i) * s.out_plane();
            f(i, m, line..line + s.out_plane());
        }
    }
}

fn gathered_forward<'w>(
    s: &Sizes,
    x: &[f32],
    filter: impl Fn(usize) -> &'w [f32] + Sync,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let (depth, image, plane) = (s.inputs * s.taps(), s.groups * s.outputs * s.out_plane(), s.out_plane());
    let group = together(s);
    out.par_chunks_mut(group * image).enumerate().for_each(|(piece, out)| {
        let count = out.len() / image;
        let mut patches = scratch::take(depth * s.block().min(count * plane));
        let mut lines = scratch::take(s.outputs * count * plane);
        for g in 0..s.groups {
            let w = Matrix::new(filter(g), s.outputs, depth);
            for_each_block(s, count, |start, columns| {
                let patches = &mut patches[..depth * columns];
                gather_images(s, x, g, piece * group, start, patches);
                multiply_into(&mut lines[start..], count * plane, w, Matrix::new(patches, depth, columns), 1.0, false);
            });
            for_each_line(s, count, |i, m, line| {
                let bias = bias.map_or(0.0, |b| b[g * s.outputs + m]);
                let out = &mut out[i * image + (g * s.outputs + m) * plane..][..plane];
                out.iter_mut().zip(&lines[line]).for_each(|(out, x)| *out = x + bias);
            });
        }
        scratch::give_back(patches);
        scratch::give_back(lines);
    });
}

fn gathered_backward_input(s: &Sizes, grad: &[f32], w: &[f32], out: &mut [f32], add: bool) {
    let (depth, plane) = (s.inputs * s.taps(), s.out_plane());
    let (image, group) = (s.groups * s.inputs * s.plane(), together(s));
    out.par_chunks_mut(group * image).enumerate().for_each(|(piece, out)| {
        if !add {
            out.fill(0.0);
        }
        let count = out.len() / image;
        let mut patches = scratch::take(depth * s.block().min(count * plane));
        let mut lines = scratch::take(s.outputs * count * plane);
        for g in 0..s.groups {
            let w = Matrix::new(&w[g * s.outputs * depth..], s.outputs, depth).transposed();
            for_each_line(s, count, |i, m, line| {
                let n = piece * group + i;
                lines[line].copy_from_slice(&grad[((n * s.groups + g) * s.outputs + m) * plane..][..plane]);
            });
            for_each_block(s, count, |start, columns| {
                let patches = &mut patches[..depth * columns];
                let grad = Matrix::strided(&lines[start..], s.outputs, columns, count * plane);
                multiply_into(patches, columns, w, grad, 1.0, false);
                for_each_image(s, start, columns, |i, from, range| {
                    let out = &mut out[i * image + g * s.inputs * s.plane()..][..s.inputs * s.plane()];
                    scatter(s, patches, columns, range, from, out);
                });
            });
        }
        scratch::give_back(patches);
        scratch::give_back(lines);
    });
}

fn gathered_backward_weight(s: &Sizes, g: usize, images: Range<usize>, grad: &[f32], x: &[f32], sum: &mut [f32]) {
    let (depth, plane) = (s.inputs * s.taps(), s.out_plane());
    let group = together(s);
    let mut patches = scratch::take(depth * s.block().min(group * plane));
    let mut lines = scratch::take(s.outputs * group * plane);
    for first in images.clone().step_by(group) {
        let count = group.min(images.end - first);
        for_each_line(s, count, |i, m, line| {
            lines[line].copy_from_slice(&grad[(((first + i) * s.groups + g) * s.outputs + m) * plane..][..plane]);
        });
        for_each_block(s, count, |start, columns| {
            let patches = &mut patches[..depth * columns];
            gather_images(s, x, g, first, start, patches);
            let grad = Matrix::strided(&lines[start..], s.outputs, columns, count * plane);
            multiply_into(sum, depth, grad, Matrix::new(patches, depth, columns).transposed(), 1.0, true);
        });
    }
    scratch::give_back(patches);
    scratch::give_back(lines);
}

/// Calls `f(start, columns)` for blocks of the positions of `count` images.
fn for_each_block(s: &Sizes, count: usize, mut f: impl FnMut(usize, usize)) {
    let all = count * s.out_plane();
    for start in (0..all).step_by(s.block()) {
        f(start, s.block().min(all - start));
    }
}

/// Cuts the positions `start..start + columns` at the borders of images: `f(image, position in it, columns)`.
fn for_each_image(s: &Sizes, start: usize, columns: usize, mut f: impl FnMut(usize, usize, Range<usize>)) {
    let mut at = 0;
    while at < columns {
        let (image, position) = ((start + at) / s.out_plane(), (start + at) % s.out_plane());
        let count = (s.out_plane() - position).min(columns - at);
        f(image, position, at..at + count);
        at += count;
    }
}

/// The im2col matrix of positions of several images, from `start` on, counted from image `first`.
fn gather_images(s: &Sizes, x: &[f32], g: usize, first: usize, start: usize, patches: &mut [f32]) {
    let columns = patches.len() / (s.inputs * s.taps());
    for_each_image(s, start, columns, |i, from, range| {
        let x = &x[((first + i) * s.groups + g) * s.inputs * s.plane()..][..s.inputs * s.plane()];
        gather(s, x, patches, columns, range, from);
    });
}

/// Filters on one input channel: add w · x shifted, tap by tap.
fn direct(s: &Sizes, x: &[f32], w: &[f32], out: &mut [f32]) {
    for (w, out) in w.chunks(s.taps()).zip(out.chunks_mut(s.out_plane())) {
        for (tap, &w) in w.iter().enumerate() {
            let (ky, kx) = (tap / s.columns.size, tap % s.columns.size);
            let (y0, y1) = s.rows.valid(ky, s.height, s.out_height);
            let (x0, x1) = s.columns.valid(kx, s.width, s.out_width);
            for y in y0..y1 {
                let row = y * s.rows.stride + ky * s.rows.dilation - s.rows.before;
                let start = x0 * s.columns.stride + kx * s.columns.dilation;
                let out = &mut out[y * s.out_width..][x0..x1];
                if out.is_empty() {
                    continue;
                }
                let x = &x[row * s.width + start - s.columns.before..];
                if s.columns.stride == 1 {
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out += w * x;
                    }
                } else {
                    for (out, &x) in out.iter_mut().zip(x.iter().step_by(s.columns.stride)) {
                        *out += w * x;
                    }
                }
            }
        }
    }
}

/// The im2col matrix of one image's positions from `start` on, into columns `range` of a matrix of `columns`: one line per
/// (channel, tap), one column per position.
fn gather(s: &Sizes, x: &[f32], patches: &mut [f32], columns: usize, range: Range<usize>, start: usize) {
    for (line, patches) in patches.chunks_mut(columns).enumerate() {
        let patches = &mut patches[range.clone()];
        s.for_each_piece(line, start, range.len(), |at, source| {
            let patch = &mut patches[at];
            match source {
                None => patch.fill(0.0),
                Some(source) if s.columns.stride == 1 => {
                    patch.iter_mut().zip(&x[source..]).for_each(|(patch, x)| *patch = *x);
                }
                Some(source) => {
                    let source = x[source..].iter().step_by(s.columns.stride);
                    patch.iter_mut().zip(source).for_each(|(patch, x)| *patch = *x);
                }
            }
        });
    }
}

/// Adds the columns of [`gather`]'s matrix back to the pixels they came from.
fn scatter(s: &Sizes, patches: &[f32], columns: usize, range: Range<usize>, start: usize, x: &mut [f32]) {
    for (line, patches) in patches.chunks(columns).enumerate() {
        let patches = &patches[range.clone()];
        s.for_each_piece(line, start, range.len(), |at, source| {
            let Some(source) = source else { return };
            if s.columns.stride == 1 {
                x[source..].iter_mut().zip(&patches[at]).for_each(|(target, patch)| *target += patch);
            } else {
                let target = x[source..].iter_mut().step_by(s.columns.stride);
                target.zip(&patches[at]).for_each(|(target, patch)| *target += patch);
            }
        });
    }
}

impl Sizes {
    /// Output positions gathered at a time.
    fn block(&self) -> usize {
        (PATCH_FLOATS / (self.inputs * self.taps())).max(1)
    }

    /// Calls `f(columns, source)` for the pieces of a line (channel and tap) of the im2col matrix for `count` positions from
    /// `start` on: neighbouring columns, and where the first of them stands in the input (the others follow a stride
    /// apart), or `None` in the padding.
    fn for_each_piece(&self, line: usize, start: usize, count: usize, mut f: impl FnMut(Range<usize>, Option<usize>)) {
        let (channel, tap) = (line / self.taps(), line % self.taps());
        let (ky, kx) = (tap / self.columns.size, tap % self.columns.size);
        let (top, bottom) = self.rows.valid(ky, self.height, self.out_height);
        let (left, right) = self.columns.valid(kx, self.width, self.out_width);
        let (mut y, mut from, mut at) = (start / self.out_width, start % self.out_width, 0);
        while at < count {
            // The part of output row y that is wanted, cut where the padding begins and ends.
            let to = self.out_width.min(from + count - at);
            let (a, b) = if y >= top && y < bottom { (left.clamp(from, to), right.clamp(from, to)) } else { (to, to) };
            let b = b.max(a);
            if a > from {
                f(at..at + a - from, None);
            }
            if b > a {
                let row = y * self.rows.stride + ky * self.rows.dilation - self.rows.before;
                let column = a * self.columns.stride + kx * self.columns.dilation - self.columns.before;
                f(at + a - from..at + b - from, Some(channel * self.plane() + row * self.width + column));
            }
            if to > b {
                f(at + b - from..at + to - from, None);
            }
            at += to - from;
            (y, from) = (y + 1, 0);
        }
    }
}

/// Buffers that threads keep for the next piece of work, so that nothing is allocated in the steady state.
mod scratch {
    use std::cell::RefCell;

    thread_local! {
        static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
    }

    /// A buffer of `len` numbers with anything in it.
    pub fn take(len: usize) -> Vec<f32> {
        let mut buffer = FREE.with_borrow_mut(|free| {
            let best = free.iter().enumerate().min_by_key(|(_, b)| (b.capacity() < len, b.capacity().abs_diff(len)));
            best.map(|(i, _)| i).map(|i| free.swap_remove(i)).unwrap_or_default()
        });
        buffer.resize(len, 0.0);
        buffer
    }

    /// Keeps a buffer for later; a few are enough.
    pub fn give_back(buffer: Vec<f32>) {
        FREE.with_borrow_mut(|free| {
            if free.len() < 8 {
                free.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both methods against the definition, on sizes where patches are gathered in several blocks which begin and end
    /// inside rows.
    #[test]
    fn methods_agree_with_the_definition() {
        let window = Window { size: 3, stride: 1, dilation: 1, before: 1, after: 1 };
        for (rows, columns) in [(window, window), (Window { stride: 2, ..window }, Window { dilation: 2, ..window })] {
            let (height, width, inputs, outputs, batch) = (37, 41, 40, 3, 2);
            let (out_height, out_width) = (rows.places(height, false).unwrap(), columns.places(width, false).unwrap());
            let s = Sizes { batch, groups: 1, inputs, outputs, height, width, out_height, out_width, rows, columns };
            assert!(s.block() < s.out_plane() && !s.block().is_multiple_of(s.out_width));
            assert!(Padded::new(&s).is_some());
            let numbers = |n: usize, m: usize| (0..n).map(|i| ((i * m) % 17) as f32 - 8.0).collect::<Vec<f32>>();
            let (x, w) = (numbers(batch * inputs * height * width, 7), numbers(outputs * inputs * 9, 5));
            let depth = inputs * 9;
            let padded = Padded::new(&s).unwrap();
            let mut packed = Vec::new();
            shifted::pack(outputs, depth, &mut packed, |m, k| w[m * depth + k]);
            let mut out = vec![0.0; batch * outputs * s.out_plane()];
            padded.forward(&s, &x, &[packed], None, &mut out);
            let mut gathered = vec![0.0; out.len()];
            gathered_forward(&s, &x, |_| &w, None, &mut gathered);
            let [mut dx, mut dx_gathered] = [vec![0.0; x.len()], vec![0.0; x.len()]];
            backward_input(&s, &out, &w, &mut dx, false);
            gathered_backward_input(&s, &out, &w, &mut dx_gathered, false);
            let [mut dw, mut dw_gathered] = [vec![0.0; w.len()], vec![0.0; w.len()]];
            padded.backward_weight(&s, 0, 0..batch, &out, &x, &mut dw);
            gathered_backward_weight(&s, 0, 0..batch, &out, &x, &mut dw_gathered);
            // The definition, one product at a time, in f64.
            let (mut y, mut gx, mut gw) = (vec![0.0; out.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
            for flat in 0..out.len() {
                let (n, rest) = (flat / (outputs * s.out_plane()), flat % (outputs * s.out_plane()));
                let (m, p) = (rest / s.out_plane(), rest % s.out_plane());
                for c in 0..inputs {
                    for tap in 0..9 {
                        let at =
                            |w: &Window, place: usize, tap: usize| (place * w.stride + tap * w.dilation).checked_sub(1);
                        let (Some(py), Some(px)) =
                            (at(&rows, p / out_width, tap / 3), at(&columns, p % out_width, tap % 3))
                        else {
                            continue;
                        };
                        if py < height && px < width {
                            let (xi, wi) = (((n * inputs + c) * height + py) * width + px, (m * inputs + c) * 9 + tap);
                            y[flat] += f64::from(x[xi] * w[wi]);
                            gx[xi] += f64::from(out[flat] * w[wi]);
                            gw[wi] += f64::from(out[flat]) * f64::from(x[xi]);
                        }
                    }
                }
            }
            let shifted = [(&out, &y), (&dx, &gx), (&dw, &gw)];
            let gathered = [(&gathered, &y), (&dx_gathered, &gx), (&dw_gathered, &gw)];
            for (got, expected) in shifted.into_iter().chain(gathered) {
                let scale = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
                assert!(got.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5 * scale));
            }
        }
    }
}
