//! Convolution over N×C×H×W: a matrix product over gathered patches, or plain loops where channels are not mixed.

use super::gemm::{Matrix, multiply_into};
use super::window::Window;
use rayon::prelude::*;

/// Floats of gathered patches a task holds at a time (half a megabyte: it stays in the second-level cache).
const PATCH_FLOATS: usize = 128 * 1024;

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

    /// A 1×1 convolution whose input is the patch matrix already.
    fn is_pointwise(&self) -> bool {
        self.rows == Window::ONE && self.columns == Window::ONE
    }
}

/// out[n, m] = bias[m] + Σ_c w[m, c] ∗ x[n, c], per group.
pub(crate) fn forward(s: &Sizes, x: &[f32], w: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
    // A few images only: split the output channels too, so that every thread has work. Depends on shapes alone.
    let pieces = if s.batch * s.groups < 4 { 4 } else { 1 };
    let outputs = s.outputs.div_ceil(pieces);
    let image = s.outputs * s.out_plane();
    out.par_chunks_mut(image).enumerate().for_each(|(index, out)| {
        let (n, g) = (index / s.groups, index % s.groups);
        let x = &x[(n * s.groups + g) * s.inputs * s.plane()..][..s.inputs * s.plane()];
        let w = &w[g * s.outputs * s.inputs * s.taps()..][..s.outputs * s.inputs * s.taps()];
        let bias = bias.map(|b| &b[g * s.outputs..][..s.outputs]);
        out.par_chunks_mut(outputs * s.out_plane()).enumerate().for_each(|(piece, out)| {
            let first = piece * outputs;
            let count = out.len() / s.out_plane();
            for (o, plane) in out.chunks_mut(s.out_plane()).enumerate() {
                plane.fill(bias.map_or(0.0, |b| b[first + o]));
            }
            let w = &w[first * s.inputs * s.taps()..][..count * s.inputs * s.taps()];
            if s.inputs == 1 {
                direct(s, x, w, out);
            } else {
                product(s, x, w, out);
            }
        });
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

/// Filters on several channels: gather the patches of some output rows as columns, then one matrix product.
fn product(s: &Sizes, x: &[f32], w: &[f32], out: &mut [f32]) {
    let depth = s.inputs * s.taps();
    let w = Matrix::new(w, w.len() / depth, depth);
    if s.is_pointwise() {
        return multiply_into(out, s.out_plane(), w, Matrix::new(x, depth, s.plane()), 1.0, true);
    }
    let block = (PATCH_FLOATS / (depth * s.out_width)).clamp(1, s.out_height);
    let mut patches = vec![0.0; depth * block * s.out_width];
    for y0 in (0..s.out_height).step_by(block) {
        let rows = block.min(s.out_height - y0);
        let columns = rows * s.out_width;
        let patches = &mut patches[..depth * columns];
        gather(s, x, y0, rows, patches);
        let out = &mut out[y0 * s.out_width..];
        multiply_into(out, s.out_plane(), w, Matrix::new(patches, depth, columns), 1.0, true);
    }
}

/// The im2col matrix of output rows y0..y0+rows: one line per (channel, tap), one column per output position.
fn gather(s: &Sizes, x: &[f32], y0: usize, rows: usize, patches: &mut [f32]) {
    for (line, patches) in patches.chunks_mut(rows * s.out_width).enumerate() {
        let (channel, tap) = (line / s.taps(), line % s.taps());
        let (ky, kx) = (tap / s.columns.size, tap % s.columns.size);
        let (top, bottom) = s.rows.valid(ky, s.height, s.out_height);
        let (x0, x1) = s.columns.valid(kx, s.width, s.out_width);
        let plane = &x[channel * s.plane()..][..s.plane()];
        for (y, patch) in (y0..).zip(patches.chunks_mut(s.out_width)) {
            if y < top || y >= bottom || x0 == x1 {
                patch.fill(0.0);
                continue;
            }
            patch[..x0].fill(0.0);
            patch[x1..].fill(0.0);
            let row = y * s.rows.stride + ky * s.rows.dilation - s.rows.before;
            let start = x0 * s.columns.stride + kx * s.columns.dilation - s.columns.before;
            let source = &plane[row * s.width..][start..s.width];
            if s.columns.stride == 1 {
                patch[x0..x1].copy_from_slice(&source[..x1 - x0]);
            } else {
                for (patch, &x) in patch[x0..x1].iter_mut().zip(source.iter().step_by(s.columns.stride)) {
                    *patch = x;
                }
            }
        }
    }
}

/// dx[n, c] = Σ_m w[m, c] ⋆ dy[n, m]: the transposed matrix product, its columns scattered back to where they came from.
pub(crate) fn backward_input(s: &Sizes, grad: &[f32], w: &[f32], out: &mut [f32], add: bool) {
    let depth = s.inputs * s.taps();
    let block = (PATCH_FLOATS / (depth * s.out_width)).clamp(1, s.out_height);
    out.par_chunks_mut(s.inputs * s.plane()).enumerate().for_each(|(index, out)| {
        if !add {
            out.fill(0.0);
        }
        let g = index % s.groups;
        let grad = &grad[index * s.outputs * s.out_plane()..][..s.outputs * s.out_plane()];
        let w = Matrix::new(&w[g * s.outputs * depth..], s.outputs, depth).transposed();
        let mut patches = vec![0.0; depth * block * s.out_width];
        for y0 in (0..s.out_height).step_by(block) {
            let columns = block.min(s.out_height - y0) * s.out_width;
            let patches = &mut patches[..depth * columns];
            let grad = Matrix::strided(&grad[y0 * s.out_width..], s.outputs, columns, s.out_plane());
            multiply_into(patches, columns, w, grad, 1.0, false);
            scatter(s, patches, y0, out);
        }
    });
}

/// dw[m, c] = Σ_n dy[n, m] ⋆ x[n, c]. Images are cut into as many pieces as there are images up to eight, and the
/// pieces added in order: the sum does not depend on the number of threads.
pub(crate) fn backward_weight(s: &Sizes, grad: &[f32], x: &[f32], out: &mut [f32], add: bool) {
    let depth = s.inputs * s.taps();
    let size = s.outputs * depth;
    let block = (PATCH_FLOATS / (depth * s.out_width)).clamp(1, s.out_height);
    let images = s.batch.div_ceil(8);
    if !add {
        out.fill(0.0);
    }
    for (g, out) in out.chunks_mut(size).enumerate() {
        let pieces: Vec<Vec<f32>> = (0..s.batch.div_ceil(images))
            .into_par_iter()
            .map(|piece| {
                let mut sum = vec![0.0; size];
                let mut patches = vec![0.0; depth * block * s.out_width];
                for n in piece * images..((piece + 1) * images).min(s.batch) {
                    let index = n * s.groups + g;
                    let x = &x[index * s.inputs * s.plane()..][..s.inputs * s.plane()];
                    let grad = &grad[index * s.outputs * s.out_plane()..][..s.outputs * s.out_plane()];
                    for y0 in (0..s.out_height).step_by(block) {
                        let rows = block.min(s.out_height - y0);
                        let columns = rows * s.out_width;
                        let patches = &mut patches[..depth * columns];
                        gather(s, x, y0, rows, patches);
                        let grad = Matrix::strided(&grad[y0 * s.out_width..], s.outputs, columns, s.out_plane());
                        let patches = Matrix::new(patches, depth, columns).transposed();
                        multiply_into(&mut sum, depth, grad, patches, 1.0, true);
                    }
                }
                sum
            })
            .collect();
        for piece in &pieces {
            out.iter_mut().zip(piece).for_each(|(out, piece)| *out += piece);
        }
    }
}

/// Adds the columns of [`gather`]'s matrix back to the pixels they came from.
fn scatter(s: &Sizes, patches: &[f32], y0: usize, x: &mut [f32]) {
    let columns = patches.len() / (s.inputs * s.taps());
    for (line, patches) in patches.chunks(columns).enumerate() {
        let (channel, tap) = (line / s.taps(), line % s.taps());
        let (ky, kx) = (tap / s.columns.size, tap % s.columns.size);
        let (top, bottom) = s.rows.valid(ky, s.height, s.out_height);
        let (x0, x1) = s.columns.valid(kx, s.width, s.out_width);
        let plane = &mut x[channel * s.plane()..][..s.plane()];
        for (y, patch) in (y0..).zip(patches.chunks(s.out_width)) {
            if y < top || y >= bottom || x0 == x1 {
                continue;
            }
            let row = y * s.rows.stride + ky * s.rows.dilation - s.rows.before;
            let start = x0 * s.columns.stride + kx * s.columns.dilation - s.columns.before;
            let target = plane[row * s.width..][start..s.width].iter_mut().step_by(s.columns.stride);
            target.zip(&patch[x0..x1]).for_each(|(target, patch)| *target += patch);
        }
    }
}
