//! Convolution over N×C×H×W in three ways, chosen by shape:
//!
//! * *shifted*: images are padded once, and a matrix product reads them through shifted windows ([`super::shifted`]).
//!   Positions in the padding are computed for nothing, so this is for planes that are large compared with their border.
//! * *gathered*: patches of several images become columns of one matrix product. For small planes.
//! * *direct*: plain loops, where every channel has filters of its own.
//!
//! The backward passes use the same three. Several small images go into one piece of work together.

mod gathered;
mod padded;

use super::scratch;
use super::shifted;
use super::window::Window;
use padded::Padded;
use rayon::prelude::*;

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
        None => gathered::forward(s, x, filter, bias, out),
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
    gathered::backward_input(s, grad, w, out, add);
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
                None => gathered::backward_weight(s, g, images.clone(), grad, x, sum),
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
            gathered::forward(&s, &x, |_| &w, None, &mut gathered);
            let [mut dx, mut dx_gathered] = [vec![0.0; x.len()], vec![0.0; x.len()]];
            backward_input(&s, &out, &w, &mut dx, false);
            gathered::backward_input(&s, &out, &w, &mut dx_gathered, false);
            let [mut dw, mut dw_gathered] = [vec![0.0; w.len()], vec![0.0; w.len()]];
            padded.backward_weight(&s, 0, 0..batch, &out, &x, &mut dw);
            gathered::backward_weight(&s, 0, 0..batch, &out, &x, &mut dw_gathered);
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

    /// A stride from a hostile file is no reason to allocate.
    #[test]
    fn absurd_strides_cost_nothing() {
        let window = Window { size: 3, stride: 1 << 31, dilation: 1, before: 1, after: 1 };
        let (height, width) = (8, 8);
        let s = Sizes {
            batch: 1,
            groups: 1,
            inputs: 2,
            outputs: 1,
            height,
            width,
            out_height: window.places(height, false).unwrap(),
            out_width: window.places(width, false).unwrap(),
            rows: window,
            columns: window,
        };
        let (x, w) = (vec![1.0; 2 * 64], vec![1.0; 18]);
        let mut out = vec![0.0; 1];
        forward(&s, &x, &w, None, &mut out);
        assert_eq!(out, [8.0]); // four taps on each of two channels are inside
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        backward_input(&s, &out, &w, &mut dx, false);
        backward_weight(&s, &out, &x, &mut dw, false);
        assert_eq!((dx.iter().sum::<f32>(), dw.iter().sum::<f32>()), (64.0, 64.0));
    }
}
