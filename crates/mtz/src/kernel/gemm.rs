//! Matrix products.
//!
//! Vectors run along the columns of the result, rows are broadcast, and a tile of both stays in registers over a
//! stretch of the inner dimension: the kernel of the convolutions without their taps. Few rows go to the `gemm` crate,
//! which has code for products with a vector. `docs/performance.md` compares the two.
#![allow(clippy::needless_range_loop)] // indices keep the unrolled loops over registers readable

use super::disjoint::Disjoint;
use super::scratch;
use super::simd::{self, Vector, dispatch};
use super::transpose::transpose;
use rayon::prelude::*;

/// Below so many rows, packing the right side costs more than it saves.
const FEW_ROWS: usize = 4;

/// The inner dimension is worked on in stretches of this size: two vectors of each line fill the first-level cache.
const DEPTH: usize = 256;

/// Rows that share a packed right side.
const ROWS: usize = 512;

/// A matrix inside a slice, by its strides.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A row-major matrix at the start of `data`.
    pub(crate) fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// Rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// The columns from `first`, so many of them.
    pub(crate) fn columns_from(self, first: usize, count: usize) -> Self {
        Self { data: &self.data[first * self.column_stride..], columns: count, ..self }
    }

    /// The first columns.
    pub(crate) fn columns_to(self, count: usize) -> Self {
        self.columns_from(0, count)
    }

    /// Whether every element lies inside the slice.
    fn fits(&self) -> bool {
        self.rows == 0
            || self.columns == 0
            || (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride < self.data.len()
    }
}

/// C = scale · A B (or C += …) with C row-major and contiguous. Every element is summed in the same order whatever the
/// number of threads.
pub(crate) fn multiply(c: &mut [f32], a: Matrix, b: Matrix, scale: f32, add: bool) {
    let (m, n, depth) = (a.rows, b.columns, a.columns);
    if m == 0 || n == 0 {
        return;
    }
    assert!(depth == b.rows && a.fits() && b.fits(), "matrix sizes do not fit together");
    assert!(m * n <= c.len(), "the result does not fit");
    let c = &mut c[..m * n];
    if m < FEW_ROWS || depth == 0 {
        return few_rows(c, a, b, scale, add);
    }
    // The left side with its rows next to each other.
    let mut turned = Vec::new();
    let (left, left_stride) = if a.row_stride == 1 {
        (a.data, a.column_stride)
    } else {
        turned = turn(a);
        (turned.as_slice(), m)
    };
    let (len, _) = simd::capacity();
    let vectors = if n <= len { 1 } else { 2 };
    let lanes = vectors * len;
    let blocks = n.div_ceil(lanes);
    // Columns of one task: rows that are read serve several vectors, but every thread should have work.
    let together = (blocks / 8).clamp(1, 8);
    let (tasks, bands) = (blocks.div_ceil(together), m.div_ceil(ROWS));
    let out = Disjoint::new(c);
    (0..tasks * bands).into_par_iter().for_each(|i| {
        let (band, task) = (i / tasks, i % tasks);
        let rows = band * ROWS..((band + 1) * ROWS).min(m);
        let columns = task * together * lanes..((task + 1) * together * lanes).min(n);
        let mut packed = scratch::take(together * DEPTH * lanes);
        let mut lines = scratch::take(together * rows.len() * lanes);
        for start in (0..depth).step_by(DEPTH) {
            let here = DEPTH.min(depth - start);
            for (block, packed) in packed.chunks_mut(DEPTH * lanes).enumerate() {
                let first = columns.start + block * lanes;
                let count = lanes.min(columns.end.saturating_sub(first));
                if count > 0 {
                    pack(b, start, here, first, count, lanes, packed);
                }
            }
            product(&mut Strip {
                a: &left[start * left_stride + rows.start..],
                stride: left_stride,
                rows: rows.len(),
                depth: here,
                b: &packed,
                blocks: columns.len().div_ceil(lanes),
                vectors,
                lines: &mut lines,
                first: start == 0,
            });
        }
        for row in rows.clone() {
            // SAFETY: tasks have separate rows and columns.
            #[allow(unsafe_code)]
            let c = unsafe { out.part(row * n + columns.start, columns.len()) };
            for (block, c) in c.chunks_mut(lanes).enumerate() {
                let line = &lines[(block * rows.len() + row - rows.start) * lanes..];
                if add {
                    c.iter_mut().zip(line).for_each(|(c, x)| *c += scale * x);
                } else {
                    c.iter_mut().zip(line).for_each(|(c, x)| *c = scale * x);
                }
            }
        }
        scratch::give_back(packed);
        scratch::give_back(lines);
    });
    scratch::give_back(turned);
}

/// The numbers of the matrix with its rows next to each other, in scratch memory.
fn turn(a: Matrix) -> Vec<f32> {
    let (m, depth) = (a.rows, a.columns);
    let mut turned = scratch::take(depth * m);
    let pieces = m.div_ceil(64).max(1);
    let target = Disjoint::new(&mut turned);
    // Bands of the inner dimension, so that the threads write separate parts.
    let band = depth.div_ceil(8).next_multiple_of(8);
    (0..depth.div_ceil(band)).into_par_iter().for_each(|i| {
        let (start, end) = (i * band, ((i + 1) * band).min(depth));
        // SAFETY: bands do not overlap.
        #[allow(unsafe_code)]
        let out = unsafe { target.part(start * m, (end - start) * m) };
        for piece in 0..pieces {
            let (row, rows) = (piece * 64, 64.min(m - piece * 64));
            let from = &a.data[row * a.row_stride + start * a.column_stride..];
            if a.column_stride == 1 {
                transpose(rows, end - start, from, a.row_stride, out, |k| k * m + row);
            } else {
                for k in 0..end - start {
                    for r in 0..rows {
                        out[k * m + row + r] = from[r * a.row_stride + k * a.column_stride];
                    }
                }
            }
        }
    });
    turned
}

/// Columns `first..first + count` of rows `start..start + depth`, as lines of `lanes` numbers.
fn pack(b: Matrix, start: usize, depth: usize, first: usize, count: usize, lanes: usize, packed: &mut [f32]) {
    let from = &b.data[start * b.row_stride + first * b.column_stride..];
    if count < lanes {
        packed[..depth * lanes].fill(0.0);
    }
    if b.row_stride == 1 {
        transpose(count, depth, from, b.column_stride, packed, |k| k * lanes);
    } else if b.column_stride == 1 {
        for (k, line) in packed.chunks_mut(lanes).take(depth).enumerate() {
            line[..count].copy_from_slice(&from[k * b.row_stride..][..count]);
        }
    } else {
        for (k, line) in packed.chunks_mut(lanes).take(depth).enumerate() {
            for (i, x) in line.iter_mut().take(count).enumerate() {
                *x = from[k * b.row_stride + i * b.column_stride];
            }
        }
    }
}

/// lines[block][row][lane] (+)= Σ_k a[k · stride + row] · b[block][k][lane].
pub(crate) struct Strip<'a> {
    a: &'a [f32],
    stride: usize,
    rows: usize,
    depth: usize,
    /// Blocks are [`DEPTH`] lines apart.
    b: &'a [f32],
    blocks: usize,
    /// Vectors of a line: 1 or 2.
    vectors: usize,
    lines: &'a mut [f32],
    /// The sums begin here.
    first: bool,
}

dispatch!(
    /// Computes a [`Strip`].
    product, product_kernel, (job: &mut Strip), avx512: 2 x 14, other: 2 x 6
);

#[inline(always)]
fn product_kernel<V: Vector, const N: usize, const P: usize>(job: &mut Strip) {
    let lanes = job.vectors * V::LEN;
    assert!(job.depth > 0 && job.depth <= DEPTH && (job.depth - 1) * job.stride + job.rows <= job.a.len());
    assert!(job.blocks * DEPTH * lanes <= job.b.len() && job.blocks * job.rows * lanes <= job.lines.len());
    let mut row = 0;
    while row < job.rows {
        let left = job.rows - row;
        let mut done = 0;
        for block in 0..job.blocks {
            // SAFETY: rows row..row + done exist, and the assertions above place all that is touched inside the slices.
            #[allow(unsafe_code)]
            unsafe {
                done = match (job.vectors, left) {
                    (1, 16..) if P >= 14 => tile::<V, 1, 16>(job, row, block),
                    (1, 8..) => tile::<V, 1, 8>(job, row, block),
                    (1, 4..) => tile::<V, 1, 4>(job, row, block),
                    (1, 2..) => tile::<V, 1, 2>(job, row, block),
                    (1, _) => tile::<V, 1, 1>(job, row, block),
                    // 16 rows are two eights, not a 14 and a 2.
                    (_, 14..) if P >= 14 && left != 16 => tile::<V, N, 14>(job, row, block),
                    (_, 8..) if P >= 14 => tile::<V, N, 8>(job, row, block),
                    (_, 6..) => tile::<V, N, 6>(job, row, block),
                    (_, 4..) => tile::<V, N, 4>(job, row, block),
                    (_, 2..) => tile::<V, N, 2>(job, row, block),
                    _ => tile::<V, N, 1>(job, row, block),
                };
            }
        }
        row += done.max(1);
    }
}

/// P rows × N vectors of the result; how many rows that were.
///
/// # Safety
/// Rows row..row + P of `a` and of the block's lines must exist, for all of the depth.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn tile<V: Vector, const N: usize, const P: usize>(job: &mut Strip, row: usize, block: usize) -> usize {
    // SAFETY: as the caller promises.
    unsafe {
        let out = job.lines.as_mut_ptr().add((block * job.rows + row) * N * V::LEN);
        let mut sums = [[V::splat(0.0); N]; P];
        if !job.first {
            for p in 0..P {
                for n in 0..N {
                    sums[p][n] = V::load(out.add((p * N + n) * V::LEN));
                }
            }
        }
        let mut a = job.a.as_ptr().add(row);
        let mut b = job.b.as_ptr().add(block * DEPTH * N * V::LEN);
        for _ in 0..job.depth {
            let line: [V; N] = std::array::from_fn(|n| V::load(b.add(n * V::LEN)));
            for p in 0..P {
                let x = V::splat(*a.add(p));
                for n in 0..N {
                    sums[p][n] = sums[p][n].multiply_add(line[n], x);
                }
            }
            a = a.wrapping_add(job.stride);
            b = b.wrapping_add(N * V::LEN);
        }
        for p in 0..P {
            for n in 0..N {
                sums[p][n].store(out.add((p * N + n) * V::LEN));
            }
        }
    }
    P
}

/// Columns of the result computed by one task in a product of few rows.
const COLUMNS: usize = 256;

/// C = scale · A B, or C += …, for few rows: column by column of C, so that batch size one uses all threads too.
fn few_rows(c: &mut [f32], a: Matrix, b: Matrix, scale: f32, add: bool) {
    let (m, n, depth) = (a.rows, b.columns, a.columns);
    let signed = |stride: usize| isize::try_from(stride).unwrap_or(isize::MAX);
    let out = Disjoint::new(c);
    (0..n.div_ceil(COLUMNS)).into_par_iter().for_each(|task| {
        let (first, count) = (task * COLUMNS, COLUMNS.min(n - task * COLUMNS));
        let mut lines = scratch::take(m * count);
        // SAFETY: `multiply` has asserted that every element of A (m×k) and B (k×n) lies inside its slice by these
        // strides, slices never exceed isize::MAX bytes, and the result goes into a buffer of its own.
        #[allow(unsafe_code)]
        unsafe {
            gemm::gemm(
                m,
                count,
                depth,
                lines.as_mut_ptr(),
                1,
                signed(count),
                false,
                a.data.as_ptr(),
                signed(a.column_stride),
                signed(a.row_stride),
                b.data.as_ptr().wrapping_add(first * b.column_stride),
                signed(b.column_stride),
                signed(b.row_stride),
                1.0,
                scale,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
        for (row, line) in lines.chunks(count).enumerate() {
            // SAFETY: tasks have separate columns.
            #[allow(unsafe_code)]
            let c = unsafe { out.part(row * n + first, count) };
            if add {
                c.iter_mut().zip(line).for_each(|(c, x)| *c += x);
            } else {
                c.copy_from_slice(line);
            }
        }
        scratch::give_back(lines);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(a: Matrix, b: Matrix) -> Vec<f32> {
        let mut c = vec![0.0; a.rows * b.columns];
        for i in 0..a.rows {
            for j in 0..b.columns {
                c[i * b.columns + j] = (0..a.columns)
                    .map(|k| {
                        a.data[i * a.row_stride + k * a.column_stride] * b.data[k * b.row_stride + j * b.column_stride]
                    })
                    .sum();
            }
        }
        c
    }

    #[test]
    fn products_of_any_layout_match_the_definition() {
        let data: Vec<f32> = (0..600 * 300).map(|i| ((i * 37) % 23) as f32 - 11.0).collect();
        for (m, k, n) in
            [(1, 5, 7), (1, 9, 1), (130, 30, 3), (3, 1, 200), (65, 17, 1), (20, 300, 17), (33, 280, 70), (600, 3, 40)]
        {
            for flip in 0..4 {
                let a = if flip & 1 == 0 { Matrix::new(&data, m, k) } else { Matrix::new(&data, k, m).transposed() };
                let b = if flip & 2 == 0 { Matrix::new(&data, k, n) } else { Matrix::new(&data, n, k).transposed() };
                let mut c = vec![1.0; m * n];
                multiply(&mut c, a, b, 2.0, true);
                let expected: Vec<f32> = reference(a, b).iter().map(|x| 2.0 * x + 1.0).collect();
                assert_eq!(c, expected, "{m}×{k}×{n}, layout {flip}");
            }
        }
    }
}
