//! The kernel behind the weight gradient: sums of outer products of input and output channels, position by position.
//!
//! Both sides are laid out with the channels of a position next to each other, so that a tap is nothing but a shift
//! between the two: its valid positions are a rectangle, and nothing is computed for the padding.
#![allow(clippy::needless_range_loop)] // indices keep the unrolled loops over registers readable

use crate::kernel::simd::{Vector, dispatch};
use std::ops::Range;

/// The valid positions of one tap, or of a row of taps: outputs rows × columns, input row = y · stride + dy, column
/// alike.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    pub dy: isize,
    pub dx: isize,
}

/// sums[shift][c][lane] += Σ_{image, position} x[image][shifted position][c] · g[image][position][lane], for c < depth.
pub(super) struct Outer<'a> {
    pub x: &'a [f32],
    /// Numbers per position of `x`.
    pub channels: usize,
    /// Numbers of `x` that are used, from the shifted position on: the channels, or those of several positions in a
    /// row.
    pub depth: usize,
    pub height: usize,
    pub width: usize,
    pub g: &'a [f32],
    pub out_height: usize,
    pub out_width: usize,
    pub stride: (usize, usize),
    pub images: usize,
    pub shifts: &'a [Shift],
    /// Vectors in the block: 1 or 2.
    pub vectors: usize,
    pub sums: &'a mut [f32],
}

/// Numbers of both sides that are worked on at a time: they stay in the second-level cache.
const CHUNK: usize = 100 * 1024;

dispatch!(
    /// Computes [`Outer`].
    outer, outer_kernel, (job: &mut Outer), avx512: 2 x 8, other: 2 x 4
);

#[inline(always)]
fn outer_kernel<V: Vector, const N: usize, const C: usize>(job: &mut Outer) {
    let lanes = job.vectors * V::LEN;
    assert!(job.images * job.height * job.width * job.channels <= job.x.len());
    assert!(job.images * job.out_height * job.out_width * lanes <= job.g.len());
    assert!(job.shifts.len() * job.depth * lanes <= job.sums.len());
    assert!(job.shifts.iter().all(|s| {
        let inside = |range: &Range<usize>, stride: usize, shift: isize, out: usize, last: isize| {
            let place = |y: usize| (y * stride) as isize + shift;
            range.is_empty() || range.end <= out && place(range.start) >= 0 && place(range.end - 1) <= last
        };
        let positions = job.depth.div_ceil(job.channels.max(1));
        inside(&s.rows, job.stride.0, s.dy, job.out_height, job.height as isize - 1)
            && inside(&s.columns, job.stride.1, s.dx, job.out_width, job.width as isize - positions as isize)
    }));
    let row = job.out_width * (lanes + job.channels * job.stride.0 * job.stride.1);
    let rows = (CHUNK / row.max(1)).max(1);
    // Several images at a time, or a band of rows of one.
    let (images, band) = ((rows / job.out_height.max(1)).max(1), rows.min(job.out_height));
    for first in (0..job.images).step_by(images) {
        let images = first..(first + images).min(job.images);
        for top in (0..job.out_height).step_by(band.max(1)) {
            for t in 0..job.shifts.len() {
                let shift = &job.shifts[t];
                let shift = Shift { rows: shift.rows.start.max(top)..shift.rows.end.min(top + band), ..shift.clone() };
                let mut c = 0;
                while c < job.depth {
                    let left = job.depth - c;
                    // SAFETY: the assertions above are what `tile` asks for; c + C channels exist.
                    #[allow(unsafe_code)]
                    unsafe {
                        c += match (job.vectors, left) {
                            (1, 16..) if C >= 8 => tile::<V, 1, 16>(job, &images, t, &shift, c),
                            (1, 8..) => tile::<V, 1, 8>(job, &images, t, &shift, c),
                            (1, 4..) => tile::<V, 1, 4>(job, &images, t, &shift, c),
                            (1, 3) => tile::<V, 1, 3>(job, &images, t, &shift, c),
                            (1, 2) => tile::<V, 1, 2>(job, &images, t, &shift, c),
                            (1, _) => tile::<V, 1, 1>(job, &images, t, &shift, c),
                            (_, 8..) if C >= 8 => tile::<V, N, 8>(job, &images, t, &shift, c),
                            (_, 4..) => tile::<V, N, 4>(job, &images, t, &shift, c),
                            (_, 3) => tile::<V, N, 3>(job, &images, t, &shift, c),
                            (_, 2) => tile::<V, N, 2>(job, &images, t, &shift, c),
                            _ => tile::<V, N, 1>(job, &images, t, &shift, c),
                        };
                    }
                }
            }
        }
    }
}

/// C input channels × N vectors of output channels of one tap; how many channels that were.
///
/// # Safety
/// All positions of `shift`, in all `images`, must lie inside the two sides, and channels c..c + C exist.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn tile<V: Vector, const N: usize, const C: usize>(
    job: &mut Outer,
    images: &Range<usize>,
    t: usize,
    shift: &Shift,
    c: usize,
) -> usize {
    let target = (t * job.depth + c) * N * V::LEN;
    // SAFETY: as the caller promises.
    unsafe {
        let out = job.sums.as_mut_ptr().add(target);
        let mut sums: [[V; N]; C] =
            std::array::from_fn(|c| std::array::from_fn(|n| V::load(out.add((c * N + n) * V::LEN))));
        let step = job.stride.1 * job.channels;
        for image in images.clone() {
            for y in shift.rows.clone() {
                let row = ((y * job.stride.0) as isize + shift.dy) as usize;
                let column = ((shift.columns.start * job.stride.1) as isize + shift.dx) as usize;
                let mut x = job.x.as_ptr().add(((image * job.height + row) * job.width + column) * job.channels + c);
                let position = (image * job.out_height + y) * job.out_width + shift.columns.start;
                let mut g = job.g.as_ptr().add(position * N * V::LEN);
                for _ in shift.columns.clone() {
                    let lanes: [V; N] = std::array::from_fn(|n| V::load(g.add(n * V::LEN)));
                    for c in 0..C {
                        let pixel = V::splat(*x.add(c));
                        for n in 0..N {
                            sums[c][n] = sums[c][n].multiply_add(lanes[n], pixel);
                        }
                    }
                    x = x.wrapping_add(step);
                    g = g.wrapping_add(N * V::LEN);
                }
            }
        }
        for c in 0..C {
            for n in 0..N {
                sums[c][n].store(out.add((c * N + n) * V::LEN));
            }
        }
    }
    C
}
