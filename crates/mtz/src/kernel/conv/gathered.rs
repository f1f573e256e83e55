//! The gathered method: the patches of several images become the columns of one matrix product.

use super::Sizes;
use crate::kernel::gemm::{Matrix, multiply_into};
use crate::kernel::scratch;
use rayon::prelude::*;
use std::ops::Range;

/// Floats of gathered patches a task holds at a time (half a megabyte: it stays in the second-level cache).
const PATCH_FLOATS: usize = 128 * 1024;

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

pub(super) fn forward<'w>(
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

pub(super) fn backward_input(s: &Sizes, grad: &[f32], w: &[f32], out: &mut [f32], add: bool) {
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

pub(super) fn backward_weight(s: &Sizes, g: usize, images: Range<usize>, grad: &[f32], x: &[f32], sum: &mut [f32]) {
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
    pub(super) fn block(&self) -> usize {
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
