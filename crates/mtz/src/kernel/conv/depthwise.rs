//! Convolutions where every channel has filters of its own: plain loops over rows, nothing to share between channels.

use super::Sizes;
use rayon::prelude::*;

/// Calls `f(tap, places in the output, places in the input)` for the rows of one plane that each tap connects.
fn for_each_row(s: &Sizes, mut f: impl FnMut(usize, std::ops::Range<usize>, usize)) {
    for tap in 0..s.taps() {
        let (ky, kx) = (tap / s.columns.size, tap % s.columns.size);
        let (top, bottom) = s.rows.valid(ky, s.height, s.out_height);
        let (left, right) = s.columns.valid(kx, s.width, s.out_width);
        if left == right {
            continue;
        }
        for y in top..bottom {
            let row = y * s.rows.stride + ky * s.rows.dilation - s.rows.before;
            let column = left * s.columns.stride + kx * s.columns.dilation - s.columns.before;
            f(tap, y * s.out_width + left..y * s.out_width + right, row * s.width + column);
        }
    }
}

/// The filters of a channel, and its plane in sample n.
fn parts(s: &Sizes, index: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let (g, filters) = (index % s.groups, s.outputs * s.taps());
    (g * filters..(g + 1) * filters, index * s.plane()..(index + 1) * s.plane())
}

pub(super) fn forward(s: &Sizes, x: &[f32], w: &[f32], bias: Option<&[f32]>, relu: bool, out: &mut [f32]) {
    out.par_chunks_mut(s.outputs * s.out_plane()).enumerate().for_each(|(index, out)| {
        let (filters, plane) = parts(s, index);
        let x = &x[plane];
        for (o, (w, out)) in w[filters].chunks(s.taps()).zip(out.chunks_mut(s.out_plane())).enumerate() {
            out.fill(bias.map_or(0.0, |b| b[index % s.groups * s.outputs + o]));
            for_each_row(s, |tap, to, from| {
                let (w, step) = (w[tap], s.columns.stride);
                let out = &mut out[to];
                if step == 1 {
                    out.iter_mut().zip(&x[from..]).for_each(|(out, x)| *out += w * x);
                } else {
                    out.iter_mut().zip(x[from..].iter().step_by(step)).for_each(|(out, x)| *out += w * x);
                }
            });
            if relu {
                out.iter_mut().filter(|x| **x < 0.0).for_each(|x| *x = 0.0);
            }
        }
    });
}

pub(super) fn backward_input(s: &Sizes, grad: &[f32], w: &[f32], out: &mut [f32], add: bool) {
    out.par_chunks_mut(s.plane()).enumerate().for_each(|(index, out)| {
        if !add {
            out.fill(0.0);
        }
        let grad = &grad[index * s.outputs * s.out_plane()..][..s.outputs * s.out_plane()];
        for (w, grad) in w[parts(s, index).0].chunks(s.taps()).zip(grad.chunks(s.out_plane())) {
            for_each_row(s, |tap, to, from| {
                let (w, step) = (w[tap], s.columns.stride);
                if step == 1 {
                    out[from..].iter_mut().zip(&grad[to]).for_each(|(out, g)| *out += w * g);
                } else {
                    out[from..].iter_mut().step_by(step).zip(&grad[to]).for_each(|(out, g)| *out += w * g);
                }
            });
        }
    });
}

pub(super) fn backward_weight(s: &Sizes, grad: &[f32], x: &[f32], out: &mut [f32], add: bool) {
    out.par_chunks_mut(s.taps()).enumerate().for_each(|(filter, out)| {
        if !add {
            out.fill(0.0);
        }
        for n in 0..s.batch {
            let x = &x[parts(s, n * s.groups + filter / s.outputs).1];
            let grad = &grad[(n * s.groups * s.outputs + filter) * s.out_plane()..][..s.out_plane()];
            for_each_row(s, |tap, to, from| {
                let grad = &grad[to];
                // Sums of eight, so that rows are added in vectors.
                let mut sums = [0.0f32; 8];
                if s.columns.stride == 1 {
                    for (grad, x) in grad.chunks(8).zip(x[from..].chunks(8)) {
                        sums.iter_mut().zip(grad.iter().zip(x)).for_each(|(sum, (g, x))| *sum += g * x);
                    }
                } else {
                    let x = x[from..].iter().step_by(s.columns.stride);
                    grad.iter().zip(x).enumerate().for_each(|(i, (g, x))| sums[i % 8] += g * x);
                }
                out[tap] += sums.iter().sum::<f32>();
            });
        }
    });
}
