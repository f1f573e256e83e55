//! Products of row-major matrices in f64, by `faer`.

use faer::{MatMut, MatRef};

/// Rows of a matrix with so many columns.
pub(crate) fn rows(a: &[f64], width: usize) -> usize {
    a.len().checked_div(width).unwrap_or(0)
}

/// Row-major numbers as a matrix.
pub(crate) fn matrix(a: &[f64], rows: usize, columns: usize) -> MatRef<'_, f64> {
    MatRef::from_row_major_slice(a, rows, columns)
}

/// A B for row-major matrices n×k and k×m, in f64.
pub(crate) fn product(a: &[f64], b: &[f64], n: usize, k: usize, m: usize) -> Vec<f64> {
    multiply(matrix(a, n, k), matrix(b, k, m))
}

/// A B, row by row.
pub(crate) fn multiply(a: MatRef<f64>, b: MatRef<f64>) -> Vec<f64> {
    let (n, k, m) = (a.nrows(), a.ncols(), b.ncols());
    let mut c = vec![0.0; n * m];
    if n * k * m > 0 {
        let into = MatMut::from_row_major_slice_mut(&mut c, n, m);
        faer::linalg::matmul::matmul(into, faer::Accum::Replace, a, b, 1.0, faer::Par::rayon(0));
    }
    c
}
