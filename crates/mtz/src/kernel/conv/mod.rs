//! Convolution over N×C×H×W.
//!
//! Forward pass and input gradient are one kernel ([`direct`]): the gradient is a convolution of dy with the filters
//! turned around, one per phase of the stride. The weight gradient is a sum of outer products ([`outer`]). Where every
//! channel has filters of its own, [`depthwise`] has plain loops.

mod depthwise;
mod direct;
mod outer;

use super::disjoint::Disjoint;
use super::transpose::transpose;
use super::window::Window;
use super::{scratch, simd};
use direct::{Block, Tap, Tile};
use outer::{Outer, Shift};
use rayon::prelude::*;
use std::ops::Range;

/// Output positions of one image that are computed before they are put in their place.
const BAND: usize = 1024;

/// Up to here, the taps of a row times the input channels are worked on as if they were channels.
const FEW_CHANNELS: usize = 24;

/// Up to here, all tasks keep sums of all weights.
const FEW_WEIGHTS: usize = 64 * 1024;

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

/// out[n, m] = bias[m] + Σ_c w[m, c] ∗ x[n, c], per group; with `relu`, negative results become zero.
pub(crate) fn forward(s: &Sizes, x: &[f32], w: &[f32], bias: Option<&[f32]>, relu: bool, out: &mut [f32]) {
    if s.is_depthwise() {
        return depthwise::forward(s, x, w, bias, relu, out);
    }
    let taps = (0..s.taps()).map(|index| {
        let at = |window: &Window, tap: usize| signed(tap * window.dilation) - signed(window.before);
        Tap { dy: at(&s.rows, index / s.columns.size), dx: at(&s.columns, index % s.columns.size), index }
    });
    let phase = Phase { taps: taps.collect(), height: s.out_height, width: s.out_width, top: 0, left: 0 };
    let depth = s.inputs * s.taps();
    let lanes = Lanes::of(s.outputs);
    let packed = lanes.pack(s, |group, block, packed| {
        let first = group * s.outputs + block.start;
        transpose(block.len(), depth, &w[first * depth..], depth, packed, |k| {
            (k % s.taps() * s.inputs + k / s.taps()) * lanes.count()
        });
    });
    let planes = Planes {
        batch: s.batch,
        groups: s.groups,
        inputs: s.inputs,
        outputs: s.outputs,
        size: (s.height, s.width),
        out_size: (s.out_height, s.out_width),
        stride: (s.rows.stride, s.columns.stride),
        step: (1, 1),
    };
    planes.run(x, &[phase], &packed, lanes, bias, relu, Target { out, add: false });
    scratch::give_back(packed);
}

/// dx[n, c] = Σ_m w[m, c] ⋆ dy[n, m].
///
/// Input row i · stride + p only meets the taps k with p + before − k · dilation divisible by the stride: for each
/// phase p of rows and columns this is a convolution of dy with stride 1.
pub(crate) fn backward_input(s: &Sizes, grad: &[f32], w: &[f32], out: &mut [f32], add: bool) {
    if s.is_depthwise() {
        return depthwise::backward_input(s, grad, w, out, add);
    }
    // Phases beyond the image are empty, so a huge stride costs no more than the image has pixels.
    let (steps_y, steps_x) = (s.rows.stride.min(s.height), s.columns.stride.min(s.width));
    let mut phases = Vec::new();
    for (top, left) in (0..steps_y).flat_map(|y| (0..steps_x).map(move |x| (y, x))) {
        let shift = |w: &Window, phase: usize, tap: usize| {
            let distance = signed(phase + w.before) - signed(tap * w.dilation);
            (distance % signed(w.stride) == 0).then(|| distance / signed(w.stride))
        };
        let taps = (0..s.taps()).filter_map(|index| {
            let dy = shift(&s.rows, top, index / s.columns.size)?;
            let dx = shift(&s.columns, left, index % s.columns.size)?;
            Some(Tap { dy, dx, index })
        });
        let height = (s.height - top).div_ceil(s.rows.stride);
        let width = (s.width - left).div_ceil(s.columns.stride);
        phases.push(Phase { taps: taps.collect(), height, width, top, left });
    }
    let (taps, lanes) = (s.taps(), Lanes::of(s.inputs));
    let turned = Sizes { inputs: s.outputs, outputs: s.inputs, ..*s };
    let packed = lanes.pack(&turned, |group, block, packed| {
        for m in 0..s.outputs {
            let w = &w[((group * s.outputs + m) * s.inputs + block.start) * taps..];
            transpose(block.len(), taps, w, taps, packed, |t| (t * s.outputs + m) * lanes.count());
        }
    });
    let planes = Planes {
        batch: s.batch,
        groups: s.groups,
        inputs: s.outputs,
        outputs: s.inputs,
        size: (s.out_height, s.out_width),
        out_size: (s.height, s.width),
        stride: (1, 1),
        step: (s.rows.stride, s.columns.stride),
    };
    planes.run(grad, &phases, &packed, lanes, None, false, Target { out, add });
    scratch::give_back(packed);
}

/// dw[m, c] = Σ_n dy[n, m] ⋆ x[n, c]. The work is cut by the shapes alone into pieces of images and sets of output
/// channels, and the pieces' sums are added in order: the result does not depend on the number of threads. It is
/// one function because cutting, packing and adding share a dozen sizes that are derived from the shapes here.
pub(crate) fn backward_weight(s: &Sizes, grad: &[f32], x: &[f32], out: &mut [f32], add: bool) {
    if s.is_depthwise() {
        return depthwise::backward_weight(s, grad, x, out, add);
    }
    // Few channels fill no registers: then the taps of a row, which lie next to each other, count as channels, and the
    // rows are padded so that all of them are valid at every position.
    let rows_at_once = s.columns.dilation == 1 && s.inputs * s.columns.size <= FEW_CHANNELS;
    let reach = (s.out_width.max(1) - 1) * s.columns.stride + s.columns.size;
    let width = if rows_at_once { reach.max(s.columns.before + s.width) } else { s.width };
    let shifts: Vec<Shift> = (0..s.taps())
        .step_by(if rows_at_once { s.columns.size } else { 1 })
        .map(|tap| {
            let (ky, kx) = (tap / s.columns.size, tap % s.columns.size);
            let (rows, columns) = (s.rows.valid(ky, s.height, s.out_height), s.columns.valid(kx, s.width, s.out_width));
            Shift {
                rows: rows.0..rows.1,
                columns: if rows_at_once { 0..s.out_width } else { columns.0..columns.1 },
                dy: signed(ky * s.rows.dilation) - signed(s.rows.before),
                dx: if rows_at_once { 0 } else { signed(kx * s.columns.dilation) - signed(s.columns.before) },
            }
        })
        .collect();
    let lanes = Lanes::of(s.outputs);
    let (blocks, count) = (s.outputs.div_ceil(lanes.count()), lanes.count());
    // About eight tasks: pieces of images where the sums of all of them are small, else sets of blocks as well.
    let sets = if s.weights() <= FEW_WEIGHTS { 1 } else { blocks.min(8) };
    let set = blocks.div_ceil(sets);
    let images = s.batch.div_ceil(8usize.div_ceil(sets)).max(1);
    let pieces = s.batch.div_ceil(images);
    // Images whose channels are turned around together: some hundred positions.
    let together = 256usize.div_ceil(s.out_plane().max(1)).min(images);
    let size = s.taps() * s.inputs * count;
    let mut sums = scratch::take(pieces * blocks * size);
    for g in 0..s.groups {
        let all = Disjoint::new(&mut sums);
        (0..blocks.div_ceil(set) * pieces).into_par_iter().for_each(|task| {
            let (first, piece) = (task / pieces * set, task % pieces);
            let blocks = first..(first + set).min(blocks);
            let images = piece * images..((piece + 1) * images).min(s.batch);
            let mut inputs = scratch::take(together * s.height * width * s.inputs);
            let mut grads = scratch::take(together * s.out_plane() * count);
            if rows_at_once {
                inputs.fill(0.0);
            }
            for first in images.clone().step_by(together) {
                let here = first..(first + together).min(images.end);
                for (n, to) in here.clone().zip(inputs.chunks_mut((s.height * width * s.inputs).max(1))) {
                    let x = &x[(n * s.groups + g) * s.inputs * s.plane()..];
                    if rows_at_once {
                        for (y, to) in to.chunks_mut(width * s.inputs).enumerate() {
                            let at = |p: usize| (s.columns.before + p) * s.inputs;
                            transpose(s.inputs, s.width, &x[y * s.width..], s.plane(), to, at);
                        }
                    } else {
                        transpose(s.inputs, s.plane(), x, s.plane(), to, |p| p * s.inputs);
                    }
                }
                for block in blocks.clone() {
                    let channels = count.min(s.outputs - block * count);
                    if channels < count {
                        grads.fill(0.0);
                    }
                    for (n, to) in here.clone().zip(grads.chunks_mut((s.out_plane() * count).max(1))) {
                        let grad = &grad[((n * s.groups + g) * s.outputs + block * count) * s.out_plane()..];
                        transpose(channels, s.out_plane(), grad, s.out_plane(), to, |p| p * count);
                    }
                    // SAFETY: no other task has this piece and block.
                    #[allow(unsafe_code)]
                    let sums = unsafe { all.part((block * pieces + piece) * size, size) };
                    if first == images.start {
                        sums.fill(0.0);
                    }
                    outer::outer(&mut Outer {
                        x: &inputs,
                        channels: s.inputs,
                        depth: s.inputs * s.taps() / shifts.len().max(1),
                        height: s.height,
                        width,
                        g: &grads,
                        out_height: s.out_height,
                        out_width: s.out_width,
                        stride: (s.rows.stride, s.columns.stride),
                        images: here.len(),
                        shifts: &shifts,
                        vectors: lanes.vectors,
                        sums,
                    });
                }
            }
            scratch::give_back(inputs);
            scratch::give_back(grads);
        });
        let filters = &mut out[g * s.weights()..(g + 1) * s.weights()];
        let depth = s.inputs * s.taps();
        let work = filters.par_chunks_mut((count * depth).max(1)).zip(sums.par_chunks_mut((pieces * size).max(1)));
        work.for_each(|(filters, sums)| {
            let (first, others) = sums.split_at_mut(size);
            for piece in others.chunks(size.max(1)) {
                first.iter_mut().zip(piece).for_each(|(sum, piece)| *sum += piece);
            }
            unpack(s, first, count, filters, add);
        });
    }
    scratch::give_back(sums);
}

/// From [tap][c][lane] to [lane][c][tap].
fn unpack(s: &Sizes, sums: &[f32], lanes: usize, filters: &mut [f32], add: bool) {
    let (taps, depth) = (s.taps(), s.inputs * s.taps());
    let here = filters.len() / depth.max(1);
    if add {
        for (k, sums) in sums.chunks(lanes).enumerate() {
            let to = k % s.inputs * taps + k / s.inputs;
            sums.iter().take(here).enumerate().for_each(|(m, sum)| filters[m * depth + to] += sum);
        }
    } else if taps == 1 {
        transpose(s.inputs, here, sums, lanes, filters, |m| m * depth);
    } else {
        for c in 0..s.inputs {
            transpose(taps, here, &sums[c * lanes..], s.inputs * lanes, filters, |m| m * depth + c * taps);
        }
    }
}

/// Sizes of images and filters are far below isize::MAX: they index memory.
fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}

/// How output channels are put into vectors.
#[derive(Clone, Copy)]
struct Lanes {
    /// Vectors of one block.
    vectors: usize,
    /// Numbers of a vector.
    len: usize,
    /// Sums that fit into registers.
    accumulators: usize,
}

impl Lanes {
    /// Two vectors to a block, unless one wastes less.
    fn of(channels: usize) -> Self {
        let (len, accumulators) = simd::capacity();
        let (one, two) = (channels.div_ceil(len), 2 * channels.div_ceil(2 * len));
        Self { vectors: if two > one { 1 } else { 2 }, len, accumulators }
    }

    /// Channels of one block.
    fn count(self) -> usize {
        self.vectors * self.len
    }

    /// All filters as group, block, tap, input channel, lane. `fill(group, output channels, block)` fills one block.
    fn pack(self, s: &Sizes, fill: impl Fn(usize, Range<usize>, &mut [f32]) + Sync) -> Vec<f32> {
        let (blocks, size) = (s.outputs.div_ceil(self.count()), s.taps() * s.inputs * self.count());
        let mut packed = scratch::take(s.groups * blocks * size);
        packed.par_chunks_mut(size.max(1)).enumerate().for_each(|(i, packed)| {
            let start = i % blocks * self.count();
            let end = (start + self.count()).min(s.outputs);
            if end - start < self.count() {
                packed.fill(0.0);
            }
            fill(i / blocks, start..end, packed);
        });
        packed
    }
}

/// A part of the output that sees the same taps: rows top, top + step, …; columns alike.
struct Phase {
    taps: Vec<Tap>,
    height: usize,
    width: usize,
    top: usize,
    left: usize,
}

/// Where results go.
struct Target<'a> {
    out: &'a mut [f32],
    add: bool,
}

/// Planes that are read and planes that are written.
struct Planes {
    batch: usize,
    groups: usize,
    inputs: usize,
    outputs: usize,
    size: (usize, usize),
    out_size: (usize, usize),
    /// Between the places of the window.
    stride: (usize, usize),
    /// Between the outputs of a phase.
    step: (usize, usize),
}

impl Planes {
    #[allow(clippy::too_many_arguments)] // the two sides, the filters and what happens at the end
    fn run(
        &self,
        x: &[f32],
        phases: &[Phase],
        packed: &[f32],
        lanes: Lanes,
        bias: Option<&[f32]>,
        relu: bool,
        target: Target,
    ) {
        let count = lanes.count();
        let (blocks, out_plane) = (self.outputs.div_ceil(count), self.out_size.0 * self.out_size.1);
        let image = self.groups * self.inputs * self.size.0 * self.size.1;
        let weights = packed.len() / (self.groups * blocks).max(1);
        let plans: Vec<(usize, Vec<Tile>)> = phases
            .iter()
            .map(|p| {
                let together = direct::together(p.width, self.batch, lanes);
                let tiles = direct::tiles(p.width, self.size.1, self.stride.1, &p.taps, together, lanes);
                (together, tiles)
            })
            .collect();
        // A task has some dozens of positions, so that weights are not read for nothing, and whole sets of images.
        let together = plans.iter().map(|p| p.0).max().unwrap_or(1);
        let images = 64usize.div_ceil(out_plane.max(1)).next_multiple_of(together).min(self.batch);
        let sets = self.batch.div_ceil(images.max(1));
        // Neighbouring tasks have in common whatever is larger, which then stays in cache.
        let blocks_first = weights < images * image / self.groups.max(1);
        let out = Disjoint::new(target.out);
        (0..sets * self.groups * blocks).into_par_iter().for_each(|i| {
            let (set, g, block) = if blocks_first {
                (i / (self.groups * blocks), i / blocks % self.groups, i % blocks)
            } else {
                (i % sets, i / sets / blocks, i / sets % blocks)
            };
            let set = set * images..((set + 1) * images).min(self.batch);
            let here = count.min(self.outputs - block * count);
            let channel = g * self.outputs + block * count;
            let mut bias_lanes = [0.0; 32];
            if let Some(bias) = bias {
                bias_lanes[..here].copy_from_slice(&bias[channel..channel + here]);
            }
            let weights = &packed[(g * blocks + block) * weights..][..weights];
            for (phase, (together, tiles)) in phases.iter().zip(&plans) {
                let band = (BAND / phase.width.max(1)).clamp(1, phase.height.max(1));
                let mut lines = scratch::take(set.len() * band * phase.width * count);
                for top in (0..phase.height).step_by(band) {
                    let rows = top..(top + band).min(phase.height);
                    direct::block(&mut Block {
                        x: &x[set.start * image + g * self.inputs * self.size.0 * self.size.1..],
                        image,
                        images: set.len(),
                        channels: self.inputs,
                        height: self.size.0,
                        width: self.size.1,
                        rows: rows.clone(),
                        out_width: phase.width,
                        stride: self.stride,
                        taps: &phase.taps,
                        tiles,
                        together: *together,
                        weights,
                        bias: &bias_lanes,
                        relu,
                        vectors: lanes.vectors,
                        lines: &mut lines,
                    });
                    let positions = rows.len() * phase.width;
                    for (n, lines) in set.clone().zip(lines.chunks(positions * count)) {
                        let start = (n * self.groups * self.outputs + channel) * out_plane;
                        // SAFETY: a task writes the planes of its own images and channels, which no other task has.
                        #[allow(unsafe_code)]
                        let out = unsafe { out.part(start, here * out_plane) };
                        self.place(phase, rows.start, lines, count, out, target.add);
                    }
                }
                scratch::give_back(lines);
            }
        });
    }

    /// Puts lines (positions × lanes, from row `top` of the phase on) into the planes of the output.
    fn place(&self, phase: &Phase, top: usize, lines: &[f32], lanes: usize, out: &mut [f32], add: bool) {
        let plane = self.out_size.0 * self.out_size.1;
        let (positions, here) = (lines.len() / lanes, out.len() / plane);
        if self.step == (1, 1) && !add {
            let out = &mut out[top * phase.width..];
            return transpose(positions, here, lines, lanes, out, |m| m * plane);
        }
        let mut turned = scratch::take(here * positions);
        transpose(positions, here, lines, lanes, &mut turned, |m| m * positions);
        for (turned, out) in turned.chunks(positions).zip(out.chunks_mut(plane)) {
            for (y, turned) in turned.chunks(phase.width).enumerate() {
                let row = phase.top + (top + y) * self.step.0;
                let out = &mut out[row * self.out_size.1 + phase.left..(row + 1) * self.out_size.1];
                let out = out.iter_mut().step_by(self.step.1).zip(turned);
                if add {
                    out.for_each(|(out, x)| *out += x);
                } else {
                    out.for_each(|(out, x)| *out = *x);
                }
            }
        }
        scratch::give_back(turned);
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
            let numbers = |n: usize, m: usize| (0..n).map(|i| ((i * m) % 17) as f32 - 8.0).collect::<Vec<f32>>();
            let (x, w) = (numbers(batch * inputs * height * width, 7), numbers(outputs * inputs * 9, 5));
            let mut out = vec![0.0; batch * outputs * s.out_plane()];
            forward(&s, &x, &w, None, false, &mut out);
            let [mut dx, mut dw] = [vec![0.0; x.len()], vec![0.0; w.len()]];
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
        forward(&s, &x, &w, None, false, &mut out);
        assert_eq!(out, [8.0]); // four taps on each of two channels are inside
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        backward_input(&s, &out, &w, &mut dx, false);
        backward_weight(&s, &out, &x, &mut dw, false);
        assert_eq!((dx.iter().sum::<f32>(), dw.iter().sum::<f32>()), (64.0, 64.0));
    }
}
