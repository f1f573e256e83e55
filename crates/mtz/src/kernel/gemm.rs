//! Matrix products, on the `gemm` crate: it picks AVX-512, AVX2 or NEON at run time.

use rayon::prelude::*;

/// Rows of the result computed by one task, at most: more share the packed right side, fewer give every thread work.
const ROWS: usize = 64;

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

    /// The rows from `start`, at most `count` of them.
    fn rows_from(self, start: usize, count: usize) -> Self {
        Self { data: &self.data[start * self.row_stride..], rows: count.min(self.rows - start), ..self }
    }

    /// Whether every element lies inside the slice.
    fn fits(&self) -> bool {
        self.rows == 0
            || self.columns == 0
            || (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride < self.data.len()
    }
}

/// C = scale · A B, or C += scale · A B, on one thread. C is row-major with `stride` elements from row to row.
pub(crate) fn multiply_into(c: &mut [f32], stride: usize, a: Matrix, b: Matrix, scale: f32, add: bool) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    if m == 0 || n == 0 {
        return;
    }
    assert!(a.columns == b.rows && a.fits() && b.fits(), "matrix sizes do not fit together");
    assert!(n <= stride && (m - 1) * stride + n <= c.len(), "the result does not fit");
    let signed = |stride: usize| isize::try_from(stride).unwrap_or(isize::MAX);
    // SAFETY: the assertions above place every element that gemm touches (A: m×k, B: k×n, C: m×n, by these strides)
    // inside its slice, slices never exceed isize::MAX bytes, and `c` is borrowed mutably, so it overlaps neither
    // input.
    #[allow(unsafe_code)]
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            signed(stride),
            add,
            a.data.as_ptr(),
            signed(a.column_stride),
            signed(a.row_stride),
            b.data.as_ptr(),
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
}

/// C = scale · A B (or C += …) with C contiguous, rows shared out among the threads.
pub(crate) fn multiply(c: &mut [f32], a: Matrix, b: Matrix, scale: f32, add: bool) {
    let stride = b.columns;
    if stride == 0 {
        return;
    }
    // A single row of C is cut along its columns instead, so that batch size one uses all threads too.
    if a.rows == 1 && stride > 1 && b.column_stride != 1 {
        return multiply(c, b.transposed(), a.transposed(), scale, add);
    }
    let rows = a.rows.div_ceil(2).clamp(8, ROWS);
    c.par_chunks_mut(rows * stride).enumerate().for_each(|(i, c)| {
        multiply_into(c, stride, a.rows_from(i * rows, rows), b, scale, add);
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
        let data: Vec<f32> = (0..200 * 30).map(|i| ((i * 37) % 23) as f32 - 11.0).collect();
        for (m, k, n) in [(1, 5, 7), (1, 9, 1), (130, 30, 3), (3, 1, 200), (65, 17, 1)] {
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
