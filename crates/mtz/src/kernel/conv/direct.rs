//! The kernel behind the forward pass and the input gradient.
//!
//! Vectors run along the output channels, so that any plane size fills them; a tile of neighbouring output positions
//! (of one image, or the same ones of several where planes are small) is held in registers over all taps and input
//! channels. The input is read where it lies, number by number; taps that fall into the padding are skipped and cost
//! nothing.
#![allow(clippy::needless_range_loop)] // indices keep the unrolled loops over registers readable

use super::Lanes;
use crate::kernel::simd::{Vector, dispatch};
use std::ops::Range;

/// A tap of the filter: an output at (y, x) looks at input (y · stride + dy, x · stride + dx).
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    pub dy: isize,
    pub dx: isize,
    /// Which tap of the stored filter this is.
    pub index: usize,
}

/// Neighbouring output positions in one row that are computed together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub start: usize,
    pub len: usize,
}

/// Some images and one block of output channels, the output rows `rows`: lines[image][position][lane] = bias[lane] +
/// Σ_{tap, c} weights[tap][c][lane] · x[image][c][…], negative results cut off if asked for.
pub(super) struct Block<'a> {
    /// Begins with the first channel of the first image.
    pub x: &'a [f32],
    /// From image to image in `x`.
    pub image: usize,
    pub images: usize,
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    pub rows: Range<usize>,
    pub out_width: usize,
    /// Of rows and columns.
    pub stride: (usize, usize),
    pub taps: &'a [Tap],
    pub tiles: &'a [Tile],
    /// Images whose tiles are computed together.
    pub together: usize,
    pub weights: &'a [f32],
    pub bias: &'a [f32],
    pub relu: bool,
    /// Vectors in the block: 1 or 2.
    pub vectors: usize,
    pub lines: &'a mut [f32],
}

/// The tiles there are: (images, positions). Those whose accumulators exceed the registers are not used.
const TILES: [(usize, usize); 17] = [
    (1, 16),
    (1, 14),
    (1, 8),
    (1, 7),
    (1, 6),
    (1, 4),
    (1, 2),
    (1, 1),
    (2, 7),
    (2, 4),
    (2, 2),
    (2, 1),
    (3, 4),
    (3, 2),
    (3, 1),
    (6, 2),
    (6, 1),
];

/// How many images to compute together for planes of this width, with these vectors.
pub(super) fn together(width: usize, batch: usize, lanes: Lanes) -> usize {
    let best = match width {
        0..=2 => 6,
        3..=4 => 3,
        5..=7 => 2,
        _ => 1,
    };
    if best <= batch && best * width.min(7) * lanes.vectors <= lanes.accumulators { best } else { 1 }
}

/// Cuts rows of outputs into tiles such that at most the first and the last position of each see padding: then there
/// are just four kinds of inner loops. The cheapest way is found from the right.
pub(super) fn tiles(
    out_width: usize,
    width: usize,
    stride: usize,
    taps: &[Tap],
    together: usize,
    lanes: Lanes,
) -> Vec<Tile> {
    let mut columns: Vec<isize> = taps.iter().map(|t| t.dx).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut best = vec![(usize::MAX, 1); out_width];
    best.push((0, 0));
    for start in (0..out_width).rev() {
        for &(_, len) in TILES.iter().filter(|t| t.0 == together && t.1 <= out_width - start) {
            let sums = len * together * lanes.vectors;
            let regular = matches!(stride, 1 | 2 | 4) || len == 1;
            if len > 1 && (sums > lanes.accumulators || !regular) {
                continue;
            }
            let fits = |&dx: &isize| {
                let (lo, hi) = inside(start, len, dx, stride, width);
                lo >= hi || lo <= 1 && len - hi <= 1
            };
            // Fewer sums than the latency of an addition leave the unit idle; each tile costs something by itself.
            let cost = best[start + len].0.saturating_add(sums.max(5) + 1);
            if cost < best[start].0 && columns.iter().all(fits) {
                best[start] = (cost, len);
            }
        }
    }
    let mut tiles = Vec::new();
    let mut start = 0;
    while start < out_width {
        tiles.push(Tile { start, len: best[start].1 });
        start += best[start].1;
    }
    tiles
}

/// The positions lo..hi of a tile whose tap falls on real numbers.
#[inline(always)]
fn inside(start: usize, len: usize, dx: isize, stride: usize, width: usize) -> (usize, usize) {
    let (first, step) = ((start * stride) as isize + dx, stride as isize);
    let lo = if first >= 0 { 0 } else { (-first + step - 1) / step };
    let left = width as isize - first;
    let hi = if left <= 0 { 0 } else { (left + step - 1) / step };
    ((lo as usize).min(len), (hi as usize).min(len))
}

dispatch!(
    /// Computes a [`Block`].
    block, block_kernel, (job: &mut Block), avx512: 2 x 28, other: 2 x 12
);

#[inline(always)]
fn block_kernel<V: Vector, const N: usize, const ACCUMULATORS: usize>(job: &mut Block) {
    let lanes = job.vectors * V::LEN;
    let plane = job.height * job.width;
    let out_plane = job.rows.len() * job.out_width;
    assert!(job.images > 0 && (job.images - 1) * job.image + job.channels * plane <= job.x.len());
    assert!(job.taps.iter().all(|t| (t.index + 1) * job.channels * lanes <= job.weights.len()));
    assert!(job.images * out_plane * lanes <= job.lines.len() && lanes <= job.bias.len());
    assert!(job.tiles.iter().all(|t| t.start + t.len <= job.out_width));
    assert!(job.tiles.iter().all(|tile| {
        job.taps.iter().all(|tap| {
            let (lo, hi) = inside(tile.start, tile.len, tap.dx, job.stride.1, job.width);
            lo >= hi || lo <= 1 && tile.len - hi <= 1
        })
    }));
    let mut image = 0;
    while image < job.images {
        let together = if job.images - image >= job.together { job.together } else { 1 };
        for y in job.rows.clone() {
            for &tile in job.tiles {
                // SAFETY: the assertions above are what `pick` asks for.
                #[allow(unsafe_code)]
                unsafe {
                    if job.vectors == 1 {
                        pick::<V, 1>(job, image, together, y, tile);
                    } else {
                        pick::<V, N>(job, image, together, y, tile);
                    }
                }
            }
        }
        image += together;
    }
}

/// Calls the code for a tile.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn pick<V: Vector, const N: usize>(job: &mut Block, image: usize, together: usize, y: usize, at: Tile) {
    macro_rules! tiles {
        ($($images:literal, $len:literal;)*) => {
            match (together, at.len, job.stride.1) {
                $(
                    // SAFETY: passed on to the caller.
                    ($images, $len, 1) => unsafe { tile::<V, N, $images, $len, 1>(job, image, y, at.start) },
                    // SAFETY: passed on to the caller.
                    ($images, $len, 2) => unsafe { tile::<V, N, $images, $len, 2>(job, image, y, at.start) },
                )*
                // Rare strides: tiles of one image only, and of one position where nothing else fits.
                (1, 8, 4) => unsafe { tile::<V, N, 1, 8, 4>(job, image, y, at.start) },
                (1, 4, 4) => unsafe { tile::<V, N, 1, 4, 4>(job, image, y, at.start) },
                _ => {
                    for i in 0..together {
                        for j in 0..at.len {
                            // SAFETY: passed on to the caller; one position at a time.
                            unsafe { tile::<V, N, 1, 1, 1>(job, image + i, y, at.start + j) };
                        }
                    }
                }
            }
        };
    }
    tiles! { 1, 16; 1, 14; 1, 8; 1, 7; 1, 6; 1, 4; 1, 2; 1, 1; 2, 7; 2, 4; 2, 2; 2, 1; 3, 4; 3, 2; 3, 1; 6, 2; 6, 1; }
}

/// I images × P positions × N vectors of the result.
///
/// # Safety
/// The tile must lie inside the output, the slices of the job hold what its sizes say, and of each tap at most the
/// first and the last position see padding. (For P = 1, the stride S is not used.)
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn tile<V: Vector, const N: usize, const I: usize, const P: usize, const S: usize>(
    job: &mut Block,
    image: usize,
    y: usize,
    start: usize,
) {
    // SAFETY: the bias has a number for every lane.
    let bias: [V; N] = std::array::from_fn(|n| unsafe { V::load(job.bias.as_ptr().add(n * V::LEN)) });
    let mut sums = [[bias; P]; I];
    let x = job.x.as_ptr().wrapping_add(image * job.image);
    let plane = job.height * job.width;
    for tap in job.taps {
        let row = (y * job.stride.0) as isize + tap.dy;
        if row < 0 || row >= job.height as isize {
            continue;
        }
        let (lo, hi) = inside(start, P, tap.dx, job.stride.1, job.width);
        let from = row * job.width as isize + (start * job.stride.1) as isize + tap.dx;
        let x = x.wrapping_offset(from);
        // SAFETY: the row is inside, and of its positions only those between lo and hi are read, for all channels.
        unsafe {
            let w = job.weights.as_ptr().add(tap.index * job.channels * N * V::LEN);
            match (lo, P - hi) {
                _ if lo >= hi => {}
                (0, 0) => channels::<V, N, I, P, S, 0, 0>(&mut sums, x, w, job.channels, job.image, plane),
                (1, 0) => channels::<V, N, I, P, S, 1, 0>(&mut sums, x, w, job.channels, job.image, plane),
                (0, 1) => channels::<V, N, I, P, S, 0, 1>(&mut sums, x, w, job.channels, job.image, plane),
                _ => channels::<V, N, I, P, S, 1, 1>(&mut sums, x, w, job.channels, job.image, plane),
            }
        }
    }
    for i in 0..I {
        for j in 0..P {
            let position = ((image + i) * job.rows.len() + y - job.rows.start) * job.out_width + start + j;
            for n in 0..N {
                let sum = if job.relu { V::splat(0.0).max(sums[i][j][n]) } else { sums[i][j][n] };
                // SAFETY: a position inside the output.
                unsafe { sum.store(job.lines.as_mut_ptr().add((position * N + n) * V::LEN)) };
            }
        }
    }
}

/// One tap, all channels, positions L..P − R.
///
/// # Safety
/// `x` must be readable at these positions (S apart) of I images in every channel, `w` for N vectors per channel.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn channels<
    V: Vector,
    const N: usize,
    const I: usize,
    const P: usize,
    const S: usize,
    const L: usize,
    const R: usize,
>(
    sums: &mut [[[V; N]; P]; I],
    mut x: *const f32,
    mut w: *const f32,
    channels: usize,
    image: usize,
    plane: usize,
) {
    for _ in 0..channels {
        // SAFETY: as the caller promises.
        unsafe {
            let weights: [V; N] = std::array::from_fn(|n| V::load(w.add(n * V::LEN)));
            for i in 0..I {
                for j in L..P - R {
                    let pixel = V::splat(*x.wrapping_add(i * image + j * S));
                    for n in 0..N {
                        sums[i][j][n] = sums[i][j][n].multiply_add(weights[n], pixel);
                    }
                }
            }
            w = w.add(N * V::LEN);
        }
        x = x.wrapping_add(plane);
    }
}
