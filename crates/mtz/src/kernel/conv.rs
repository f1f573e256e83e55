//! Convolution over N×C×H×W: a matrix product over gathered patches, or plain loops where channels are not mixed.

use super::gemm::{Matrix, multiply_into};
use super::window::Window;
use rayon::prelude::*;
use std::ops::Range;

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
    let block = s.block();
    let mut patches = vec![0.0; depth * block];
    for start in (0..s.out_plane()).step_by(block) {
        let columns = block.min(s.out_plane() - start);
        let patches = &mut patches[..depth * columns];
        gather(s, x, start, patches);
        let out = &mut out[start..];
        multiply_into(out, s.out_plane(), w, Matrix::new(patches, depth, columns), 1.0, true);
    }
}

/// The im2col matrix of the output positions from `start` on: one line per (channel, tap), one column per position.
fn gather(s: &Sizes, x: &[f32], start: usize, patches: &mut [f32]) {
    let columns = patches.len() / (s.inputs * s.taps());
    for (line, patches) in patches.chunks_mut(columns).enumerate() {
        for piece in s.pieces(line, start, columns) {
            let patch = &mut patches[piece.at.clone()];
            match piece.source {
                None => patch.fill(0.0),
                Some(source) if s.columns.stride == 1 => patch.copy_from_slice(&x[source..][..patch.len()]),
                Some(source) => {
                    let source = x[source..].iter().step_by(s.columns.stride);
                    patch.iter_mut().zip(source).for_each(|(patch, x)| *patch = *x);
                }
            }
        }
    }
}

/// Adds the columns of [`gather`]'s matrix back to the pixels they came from.
fn scatter(s: &Sizes, patches: &[f32], start: usize, x: &mut [f32]) {
    let columns = patches.len() / (s.inputs * s.taps());
    for (line, patches) in patches.chunks(columns).enumerate() {
        for piece in s.pieces(line, start, columns) {
            if let Some(source) = piece.source {
                let target = x[source..].iter_mut().step_by(s.columns.stride);
                target.zip(&patches[piece.at]).for_each(|(target, patch)| *target += patch);
            }
        }
    }
}

/// Neighbouring columns of one line of the im2col matrix.
struct Piece {
    /// The columns.
    at: Range<usize>,
    /// Where the first of them stands in the input (the others follow `stride` apart); `None` in the padding.
    source: Option<usize>,
}

impl Sizes {
    /// Output positions gathered at a time.
    fn block(&self) -> usize {
        (PATCH_FLOATS / (self.inputs * self.taps())).clamp(1, self.out_plane())
    }

    /// The pieces of a line (channel and tap) of the im2col matrix for `count` positions from `start` on.
    fn pieces(&self, line: usize, start: usize, count: usize) -> impl Iterator<Item = Piece> {
        let (channel, tap) = (line / self.taps(), line % self.taps());
        let (ky, kx) = (tap / self.columns.size, tap % self.columns.size);
        let (top, bottom) = self.rows.valid(ky, self.height, self.out_height);
        let (left, right) = self.columns.valid(kx, self.width, self.out_width);
        let (rows, columns, width, out_width) = (self.rows, self.columns, self.width, self.out_width);
        let plane = channel * self.plane();
        (start / out_width..(start + count).div_ceil(out_width)).flat_map(move |y| {
            // The part of output row y that is wanted, cut where the padding begins and ends.
            let from = start.max(y * out_width) - y * out_width;
            let to = (start + count).min((y + 1) * out_width) - y * out_width;
            let inside = if y >= top && y < bottom { (left.clamp(from, to), right.clamp(from, to)) } else { (to, to) };
            let inside = (inside.0, inside.1.max(inside.0));
            let at = move |a: usize, b: usize| y * out_width + a - start..y * out_width + b - start;
            let source = |x: usize| {
                let row = y * rows.stride + ky * rows.dilation - rows.before;
                plane + row * width + x * columns.stride + kx * columns.dilation - columns.before
            };
            let middle = (inside.0 < inside.1).then(|| source(inside.0));
            let pieces = [
                Piece { at: at(from, inside.0), source: None },
                Piece { at: at(inside.0, inside.1), source: middle },
                Piece { at: at(inside.1, to), source: None },
            ];
            pieces.into_iter().filter(|p| !p.at.is_empty())
        })
    }
}

/// dx[n, c] = Σ_m w[m, c] ⋆ dy[n, m]: the transposed matrix product, its columns scattered back to where they came from.
pub(crate) fn backward_input(s: &Sizes, grad: &[f32], w: &[f32], out: &mut [f32], add: bool) {
    let (depth, block) = (s.inputs * s.taps(), s.block());
    out.par_chunks_mut(s.inputs * s.plane()).enumerate().for_each(|(index, out)| {
        if !add {
            out.fill(0.0);
        }
        let g = index % s.groups;
        let grad = &grad[index * s.outputs * s.out_plane()..][..s.outputs * s.out_plane()];
        let w = Matrix::new(&w[g * s.outputs * depth..], s.outputs, depth).transposed();
        let mut patches = vec![0.0; depth * block];
        for start in (0..s.out_plane()).step_by(block) {
            let columns = block.min(s.out_plane() - start);
            let patches = &mut patches[..depth * columns];
            let grad = Matrix::strided(&grad[start..], s.outputs, columns, s.out_plane());
            multiply_into(patches, columns, w, grad, 1.0, false);
            scatter(s, patches, start, out);
        }
    });
}

/// dw[m, c] = Σ_n dy[n, m] ⋆ x[n, c]. Images are cut into as many pieces as there are images up to eight, and the
/// pieces added in order: the sum does not depend on the number of threads.
pub(crate) fn backward_weight(s: &Sizes, grad: &[f32], x: &[f32], out: &mut [f32], add: bool) {
    let depth = s.inputs * s.taps();
    let (size, block) = (s.outputs * depth, s.block());
    let images = s.batch.div_ceil(8);
    if !add {
        out.fill(0.0);
    }
    for (g, out) in out.chunks_mut(size).enumerate() {
        let pieces: Vec<Vec<f32>> = (0..s.batch.div_ceil(images))
            .into_par_iter()
            .map(|piece| {
                let mut sum = vec![0.0; size];
                let mut patches = vec![0.0; depth * block];
                for n in piece * images..((piece + 1) * images).min(s.batch) {
                    let index = n * s.groups + g;
                    let x = &x[index * s.inputs * s.plane()..][..s.inputs * s.plane()];
                    let grad = &grad[index * s.outputs * s.out_plane()..][..s.outputs * s.out_plane()];
                    for start in (0..s.out_plane()).step_by(block) {
                        let columns = block.min(s.out_plane() - start);
                        let patches = &mut patches[..depth * columns];
                        gather(s, x, start, patches);
                        let grad = Matrix::strided(&grad[start..], s.outputs, columns, s.out_plane());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Large enough that patches are gathered in several blocks which begin and end inside rows.
    #[test]
    fn blocks_do_not_show() {
        let window = Window { size: 3, stride: 1, dilation: 1, before: 1, after: 1 };
        for (rows, columns) in [(window, window), (Window { stride: 2, ..window }, Window { dilation: 2, ..window })] {
            let (height, width, inputs, outputs, batch) = (37, 41, 40, 3, 2);
            let (out_height, out_width) = (rows.places(height, false).unwrap(), columns.places(width, false).unwrap());
            let s = Sizes { batch, groups: 1, inputs, outputs, height, width, out_height, out_width, rows, columns };
            assert!(s.block() < s.out_plane() && !s.block().is_multiple_of(s.out_width));
            let numbers = |n: usize, m: usize| (0..n).map(|i| ((i * m) % 17) as f32 - 8.0).collect::<Vec<f32>>();
            let (x, w) = (numbers(batch * inputs * height * width, 7), numbers(outputs * inputs * 9, 5));
            let mut out = vec![0.0; batch * outputs * s.out_plane()];
            forward(&s, &x, &w, None, &mut out);
            let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
            backward_input(&s, &out, &w, &mut dx, false);
            backward_weight(&s, &out, &x, &mut dw, false);
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
            for (got, expected) in [(&out, &y), (&dx, &gx), (&dw, &gw)] {
                let scale = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
                assert!(got.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5 * scale));
            }
        }
    }
}
