//! Matrix products whose right side is one array seen through shifted windows.
//!
//! In a padded image with rows laid end to end, tap (dy, dx) of a convolution sees the same numbers as the centre, shifted
//! by a constant. So a convolution is a matrix product where line k of the right matrix begins at `x[offsets[k]]`: no
//! patches are gathered. The same view turns the weight gradient into dot products of shifted lines.
#![allow(clippy::needless_range_loop)] // indices keep the unrolled loops over registers readable

use super::simd::{Vector, dispatch};

/// The most numbers a kernel may read or write beyond the positions asked for.
pub(crate) const SLACK: usize = 16;

/// Rows of left matrices are packed in groups of this size: what the widest kernel holds in registers.
pub(crate) const ROWS: usize = 8;

/// Lines of the right matrix are processed in blocks of about this many positions, which stay in cache.
const BLOCK: usize = 384;

/// Equally long stretches of positions: the images in a padded plane.
#[derive(Clone, Copy)]
pub(crate) struct Runs {
    /// How many.
    pub count: usize,
    /// From the start of one to the start of the next.
    pub stride: usize,
    /// Positions of each.
    pub len: usize,
}

impl Runs {
    /// One behind the last position.
    pub fn end(&self) -> usize {
        (self.count - 1) * self.stride + self.len
    }
}

/// out[m][p] = Σ_k a[m][k] · x[offsets[k] + p] for `rows` rows and all positions p of `runs`.
///
/// `a` is packed: for each group of [`ROWS`] rows, k after k, the rows' numbers (zeros beyond the last row). `out` has lines
/// `stride` apart; up to [`SLACK`] numbers behind each run are overwritten, before the next run is written.
pub(crate) struct Product<'a> {
    pub a: &'a [f32],
    pub rows: usize,
    pub x: &'a [f32],
    pub offsets: &'a [usize],
    pub runs: Runs,
    pub out: &'a mut [f32],
    pub stride: usize,
}

dispatch!(
    /// Computes a [`Product`].
    product, product_kernel, (job: &mut Product), avx512: 8 x 3, other: 4 x 3
);

#[inline(always)]
fn product_kernel<V: Vector, const M: usize, const N: usize>(job: &mut Product) {
    let depth = job.offsets.len();
    let last = job.offsets.iter().max().copied().unwrap_or(0);
    let groups = job.rows.div_ceil(ROWS);
    assert!(job.a.len() >= groups * ROWS * depth, "the left matrix is too short");
    assert!(last + job.runs.end() + SLACK <= job.x.len(), "the right side is too short");
    assert!(
        job.runs.end() + SLACK <= job.stride && groups * ROWS * job.stride <= job.out.len(),
        "the result is too short"
    );
    for run in 0..job.runs.count {
        let (start, end) = (run * job.runs.stride, run * job.runs.stride + job.runs.len);
        for block in (start..end).step_by(BLOCK) {
            let end = (block + BLOCK).min(end);
            for group in 0..groups {
                for part in (0..ROWS).step_by(M) {
                    let mut position = block;
                    while position < end {
                        let row = group * ROWS + part;
                        let vectors = (end - position).div_ceil(V::LEN).min(N);
                        // SAFETY: a tile covers rows row..row+M below groups·ROWS and positions below `end` + SLACK, since a
                        // vector is shorter than SLACK; the assertions above place all of that inside the slices.
                        #[allow(unsafe_code)]
                        unsafe {
                            let a = job.a.as_ptr().add(group * ROWS * depth + part);
                            let x = job.x.as_ptr().add(position);
                            let out = job.out.as_mut_ptr().add(row * job.stride + position);
                            match vectors {
                                1 => product_tile::<V, M, 1>(a, job.offsets, x, out, job.stride),
                                2 => product_tile::<V, M, 2>(a, job.offsets, x, out, job.stride),
                                _ => product_tile::<V, M, N>(a, job.offsets, x, out, job.stride),
                            }
                        }
                        position += vectors * V::LEN;
                    }
                }
            }
        }
    }
}

/// M rows × N vectors of the result, held in registers over all k.
///
/// # Safety
/// `a` must hold ROWS numbers per offset (M of them used), `x` be readable at every offset for N vectors, and `out` be
/// writable for N vectors in M lines `stride` apart.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn product_tile<V: Vector, const M: usize, const N: usize>(
    a: *const f32,
    offsets: &[usize],
    x: *const f32,
    out: *mut f32,
    stride: usize,
) {
    let mut sums = [[V::splat(0.0); N]; M];
    let mut a = a;
    for &offset in offsets {
        // SAFETY: as the caller promises.
        unsafe {
            let from = x.add(offset);
            let mut line = [V::splat(0.0); N];
            for n in 0..N {
                line[n] = V::load(from.add(n * V::LEN));
            }
            for m in 0..M {
                let weight = V::splat(*a.add(m));
                for n in 0..N {
                    sums[m][n] = sums[m][n].multiply_add(weight, line[n]);
                }
            }
            a = a.add(ROWS);
        }
    }
    for (m, sums) in sums.iter().enumerate() {
        for (n, sum) in sums.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe { sum.store(out.add(m * stride + n * V::LEN)) };
        }
    }
}

/// out[m][k] += Σ_p g[m·stride + p] · x[offsets[k] + p], over all positions p of `runs`; behind each run, `g` must be zero
/// for up to [`SLACK`] numbers.
pub(crate) struct Dots<'a> {
    pub g: &'a [f32],
    pub rows: usize,
    pub stride: usize,
    pub x: &'a [f32],
    pub offsets: &'a [usize],
    pub runs: Runs,
    pub out: &'a mut [f32],
}

dispatch!(
    /// Computes [`Dots`].
    dots, dots_kernel, (job: &mut Dots), avx512: 6 x 4, other: 4 x 3
);

#[inline(always)]
fn dots_kernel<V: Vector, const M: usize, const N: usize>(job: &mut Dots) {
    let depth = job.offsets.len();
    let last = job.offsets.iter().max().copied().unwrap_or(0);
    assert!(last + job.runs.end() + SLACK <= job.x.len(), "the right side is too short");
    assert!(job.rows * job.stride <= job.g.len() && job.runs.end() + SLACK <= job.stride, "the left side is too short");
    assert!(job.rows * depth <= job.out.len(), "the result is too short");
    for row in (0..job.rows).step_by(M) {
        for k in (0..depth).step_by(N) {
            // Tiles at the edge repeat the last row or line, and their copies are not stored.
            let rows: [usize; M] = std::array::from_fn(|m| (row + m).min(job.rows - 1) * job.stride);
            let lines: [usize; N] = std::array::from_fn(|n| job.offsets[(k + n).min(depth - 1)]);
            let mut sums = [[V::splat(0.0); N]; M];
            for run in 0..job.runs.count {
                let mut p = run * job.runs.stride;
                let end = p + job.runs.len;
                while p < end {
                    // SAFETY: every row and line has `runs.end()` + SLACK numbers inside its slice (asserted above), and a
                    // vector is shorter than SLACK.
                    #[allow(unsafe_code)]
                    unsafe {
                        let mut left = [V::splat(0.0); M];
                        for m in 0..M {
                            left[m] = V::load(job.g.as_ptr().add(rows[m] + p));
                        }
                        for n in 0..N {
                            let right = V::load(job.x.as_ptr().add(lines[n] + p));
                            for m in 0..M {
                                sums[m][n] = sums[m][n].multiply_add(left[m], right);
                            }
                        }
                    }
                    p += V::LEN;
                }
            }
            for m in 0..M.min(job.rows - row) {
                for n in 0..N.min(depth - k) {
                    job.out[(row + m) * depth + k + n] += sums[m][n].sum();
                }
            }
        }
    }
}

/// Packs a rows × depth matrix, given by `at(row, k)`, into groups of [`ROWS`] rows.
pub(crate) fn pack(rows: usize, depth: usize, packed: &mut Vec<f32>, at: impl Fn(usize, usize) -> f32) {
    packed.clear();
    for group in (0..rows).step_by(ROWS) {
        for k in 0..depth {
            packed.extend((group..group + ROWS).map(|row| if row < rows { at(row, k) } else { 0.0 }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::Lanes;
    use super::*;

    fn numbers(n: usize, m: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * m) % 13) as f32 - 6.0).collect()
    }

    /// All versions of a kernel against the definition, on sizes that do not divide evenly.
    #[test]
    fn kernels_compute_the_definition() {
        for (rows, len, count, depth) in [(1, 1, 1, 1), (5, 50, 2, 7), (9, 400, 1, 20), (16, 33, 3, 3)] {
            let runs = Runs { count, stride: len + SLACK, len };
            let positions = runs.end();
            let inside = |p: usize| p % runs.stride < len;
            let offsets: Vec<usize> = (0..depth).map(|k| (k * 37) % 50).collect();
            let x = numbers(positions + 50 + SLACK, 7);
            let a = numbers(rows * depth, 5);
            let mut packed = Vec::new();
            pack(rows, depth, &mut packed, |m, k| a[m * depth + k]);
            let stride = positions + SLACK;
            let run = |kernel: fn(&mut Product)| {
                let mut out = vec![0.0; rows.div_ceil(ROWS) * ROWS * stride];
                kernel(&mut Product { a: &packed, rows, x: &x, offsets: &offsets, runs, out: &mut out, stride });
                let line =
                    |m: usize| (0..positions).filter(|p| inside(*p)).map(|p| out[m * stride + p]).collect::<Vec<_>>();
                (0..rows).flat_map(line).collect::<Vec<f32>>()
            };
            let expected: Vec<f32> = (0..rows * positions)
                .filter(|i| inside(i % positions))
                .map(|i| (0..depth).map(|k| a[i / positions * depth + k] * x[offsets[k] + i % positions]).sum())
                .collect();
            assert_eq!(run(product), expected);
            assert_eq!(run(product_kernel::<Lanes, 4, 3>), expected);
            let mut g = vec![0.0; rows * stride];
            for m in 0..rows {
                for (p, x) in numbers(positions, m + 3).into_iter().enumerate().filter(|(p, _)| inside(*p)) {
                    g[m * stride + p] = x;
                }
            }
            let run = |kernel: fn(&mut Dots)| {
                let mut out = vec![1.0; rows * depth];
                kernel(&mut Dots { g: &g, rows, stride, x: &x, offsets: &offsets, runs, out: &mut out });
                out
            };
            let expected: Vec<f32> = (0..rows * depth)
                .map(|i| {
                    1.0 + (0..positions).map(|p| g[i / depth * stride + p] * x[offsets[i % depth] + p]).sum::<f32>()
                })
                .collect();
            assert_eq!(run(dots), expected);
            assert_eq!(run(dots_kernel::<Lanes, 4, 3>), expected);
        }
    }
}
