//! The Gram matrix G = Σ x xᵀ of a layer's inputs, collected batch by batch. It is the layer-wise Hessian of the paper:
//! the squared error of a layer whose weights move by δ is ½ δᵀ G δ. Next to it the products Σ x yᵀ with what the layer
//! should answer.

use crate::error::{Error, Result};
use crate::kernel::disjoint::Disjoint;
use crate::kernel::gemm::{Matrix, multiply};
use crate::kernel::scratch;
use rayon::prelude::*;
use std::borrow::Cow;

/// Samples whose products are summed in f32 before they are added in f64: few enough to keep six digits.
const CHUNK: usize = 512;

/// Columns of a task. Only what lies on and above the diagonal is computed.
const BLOCK: usize = 64;

/// Σ x xᵀ and Σ x yᵀ over samples, where a constant 1 stands behind the numbers of x: the bias is one more weight. Or
/// the samples themselves, where they are fewer than the numbers of x and take less room.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    inputs: usize,
    outputs: usize,
    /// (inputs + 1)², row by row; below the diagonal blocks nothing is kept unless it is mirrored.
    gram: Vec<f64>,
    mirrored: bool,
    /// (inputs + 1) × outputs.
    cross: Vec<f64>,
    /// samples × inputs and samples × outputs; the sums are empty then.
    rows: Option<(Vec<f32>, Vec<f32>)>,
    /// Σ ‖y‖².
    squares: f64,
    samples: u64,
}

impl Moments {
    /// No samples yet.
    pub fn new(inputs: usize, outputs: usize) -> Self {
        let size = inputs + 1;
        Self {
            inputs,
            outputs,
            gram: vec![0.0; size * size],
            mirrored: false,
            cross: vec![0.0; size * outputs],
            rows: None,
            squares: 0.0,
            samples: 0,
        }
    }

    /// No samples yet, and all that come are kept.
    pub fn of_rows(inputs: usize, outputs: usize) -> Self {
        let rows = Some((Vec::new(), Vec::new()));
        let (gram, cross) = (Vec::new(), Vec::new());
        Self { inputs, outputs, gram, mirrored: false, cross, rows, squares: 0.0, samples: 0 }
    }

    /// Numbers of x, the constant included.
    pub fn size(&self) -> usize {
        self.inputs + 1
    }

    /// Numbers of y.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Samples seen.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Σ xᵢ xⱼ. Where the samples are kept, it is summed each time.
    pub fn product(&self, i: usize, j: usize) -> f64 {
        match &self.rows {
            None => self.gram[i.min(j) * self.size() + i.max(j)],
            Some((x, _)) => (0..self.kept()).map(|s| self.number(x, s, i) * self.number(x, s, j)).sum(),
        }
    }

    /// Number i of sample s of those that are kept, the constant included.
    fn number(&self, x: &[f32], s: usize, i: usize) -> f64 {
        if i < self.inputs { f64::from(x[s * self.inputs + i]) } else { 1.0 }
    }

    /// Samples that are kept.
    fn kept(&self) -> usize {
        self.rows.as_ref().map_or(0, |(x, _)| x.len().checked_div(self.inputs).unwrap_or(0))
    }

    /// Σ xᵢ x for all numbers of x: at once after [`Self::mirror`], gathered before it.
    pub fn row(&self, i: usize) -> Cow<'_, [f64]> {
        if self.mirrored && self.rows.is_none() {
            Cow::Borrowed(&self.gram[i * self.size()..][..self.size()])
        } else {
            Cow::Owned((0..self.size()).map(|j| self.product(i, j)).collect())
        }
    }

    /// Fills in what lies below the diagonal, once all samples are there: systems are put together row by row.
    pub fn mirror(&mut self) {
        /// Rows that are written together: their columns above lie in one line of the cache.
        const TOGETHER: usize = 8;
        let size = self.size();
        for first in (0..self.gram.len().checked_div(size).unwrap_or(0)).step_by(BLOCK) {
            let (above, rows) = self.gram.split_at_mut(first * size);
            let rows = &mut rows[..BLOCK.min(size - first) * size];
            rows.par_chunks_mut(TOGETHER * size).enumerate().for_each(|(k, rows)| {
                let column = first + k * TOGETHER;
                for (i, above) in above.chunks(size).enumerate() {
                    rows.chunks_mut(size).zip(&above[column..]).for_each(|(row, x)| row[i] = *x);
                }
            });
        }
        // The constant stands in a block of its own, which may share one with the last numbers of x.
        for i in 0..size.saturating_sub(1).min(self.gram.len()) {
            self.gram[(size - 1) * size + i] = self.gram[i * size + size - 1];
        }
        self.mirrored = true;
    }

    /// The samples, x and y, where they are kept.
    pub fn rows(&self) -> Option<(&[f32], &[f32])> {
        self.rows.as_ref().map(|(x, y)| (x.as_slice(), y.as_slice()))
    }

    /// Σ x yᵀ, row by row. Where the samples are kept, it is summed each time.
    pub fn cross(&self) -> Cow<'_, [f64]> {
        let Some((x, y)) = &self.rows else { return Cow::Borrowed(&self.cross) };
        let mut cross = vec![0.0; self.size() * self.outputs];
        for (s, y) in y.chunks(self.outputs.max(1)).enumerate() {
            for (i, sums) in cross.chunks_mut(self.outputs.max(1)).enumerate() {
                let x = self.number(x, s, i);
                sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += x * f64::from(*y));
            }
        }
        Cow::Owned(cross)
    }

    /// Σ ‖y‖².
    pub fn squares(&self) -> f64 {
        self.squares
    }

    /// Adds samples: `x` is samples × inputs, `y` samples × outputs.
    pub fn add(&mut self, x: &[f32], y: &[f32]) -> Result<()> {
        let samples = x.len().checked_div(self.inputs).unwrap_or(0);
        if x.len() != samples * self.inputs || y.len() != samples * self.outputs {
            return Err(Error::usage("inputs and outputs of different samples"));
        }
        for part in y.chunks((CHUNK * self.outputs).max(1)) {
            self.squares += part.iter().map(|y| f64::from(*y) * f64::from(*y)).sum::<f64>();
        }
        if let Some(rows) = &mut self.rows {
            rows.0.extend_from_slice(x);
            rows.1.extend_from_slice(y);
            self.samples += samples as u64;
            return Ok(());
        }
        self.mirrored = false;
        let (size, inputs, outputs) = (self.size(), self.inputs, self.outputs);
        let (gram, cross) = (Disjoint::new(&mut self.gram), Disjoint::new(&mut self.cross));
        let blocks = inputs.div_ceil(BLOCK);
        // The constant is the last block of its own: sums of x, and the number of samples.
        (0..=blocks + outputs.div_ceil(BLOCK)).into_par_iter().for_each(|task| {
            let ones = vec![1.0; if task == blocks { CHUNK.min(samples) } else { 0 }];
            let (rows, first, count, width) = match task {
                t if t < blocks => ((t * BLOCK + BLOCK).min(inputs), t * BLOCK, BLOCK.min(inputs - t * BLOCK), inputs),
                t if t == blocks => (inputs, 0, 1, 1),
                t => (inputs, (t - blocks - 1) * BLOCK, BLOCK.min(outputs - (t - blocks - 1) * BLOCK), outputs),
            };
            let mut product = scratch::take(rows * count);
            for start in (0..samples).step_by(CHUNK) {
                let here = CHUNK.min(samples - start);
                let left = Matrix::new(&x[start * inputs..], here, inputs).columns_to(rows).transposed();
                let right = match task {
                    t if t < blocks => Matrix::new(&x[start * inputs..], here, width).columns_from(first, count),
                    t if t == blocks => Matrix::new(&ones, here, 1),
                    _ => Matrix::new(&y[start * outputs..], here, width).columns_from(first, count),
                };
                multiply(&mut product, left, right, 1.0, false);
                for (row, product) in product.chunks(count).enumerate() {
                    // SAFETY: every task has columns of its own.
                    #[allow(unsafe_code)]
                    let sum = unsafe {
                        match task {
                            t if t < blocks => gram.part(row * size + first, count),
                            t if t == blocks => gram.part(row * size + inputs, 1),
                            _ => cross.part(row * outputs + first, count),
                        }
                    };
                    sum.iter_mut().zip(product).for_each(|(sum, x)| *sum += f64::from(*x));
                }
            }
            scratch::give_back(product);
        });
        self.gram[size * size - 1] += samples as f64;
        for row in y.chunks(outputs.max(1)) {
            self.cross[inputs * outputs..].iter_mut().zip(row).for_each(|(sum, y)| *sum += f64::from(*y));
        }
        self.samples += samples as u64;
        Ok(())
    }

    /// The Gram matrix on and above its diagonal, row by row; nothing where samples are kept instead.
    pub(crate) fn upper(&self) -> impl Iterator<Item = f64> + '_ {
        let (size, rows) = (self.size(), self.gram.len().checked_div(self.size()).unwrap_or(0));
        (0..rows).flat_map(move |i| self.gram[i * size + i..(i + 1) * size].iter().copied())
    }

    /// What [`Self::upper`] gave, as moments without answers; `None` if the numbers are not as many as that takes or
    /// are no Gram matrix.
    pub(crate) fn from_upper(inputs: usize, samples: u64, upper: &[f64]) -> Option<Self> {
        let size = inputs.checked_add(1)?;
        let count = size.checked_mul(size.checked_add(1)?)? / 2;
        if upper.len() != count || samples == 0 || upper.iter().any(|x| !x.is_finite()) {
            return None;
        }
        let mut moments = Self::new(inputs, 0);
        let mut rest = upper;
        for i in 0..size {
            let (row, after) = rest.split_at(size - i);
            // A sum of squares.
            if row[0] < 0.0 {
                return None;
            }
            for (j, x) in (i..).zip(row) {
                moments.gram[i * size + j] = *x;
                moments.gram[j * size + i] = *x;
            }
            rest = after;
        }
        // Sums of x and the number of samples stand in the last column.
        if moments.gram[size * size - 1] != samples as f64 {
            return None;
        }
        (moments.samples, moments.mirrored) = (samples, true);
        Some(moments)
    }

    /// Adds what another has collected.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if (self.inputs, self.outputs, self.rows.is_some()) != (other.inputs, other.outputs, other.rows.is_some()) {
            return Err(Error::usage("moments of different sizes"));
        }
        if let (Some(own), Some((x, y))) = (&mut self.rows, &other.rows) {
            own.0.extend_from_slice(x);
            own.1.extend_from_slice(y);
        }
        self.mirrored &= other.mirrored;
        self.gram.iter_mut().zip(&other.gram).for_each(|(a, b)| *a += b);
        self.cross.iter_mut().zip(&other.cross).for_each(|(a, b)| *a += b);
        self.squares += other.squares;
        self.samples += other.samples;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        (0..n as u64).map(|i| random::normal(seed, i)).collect()
    }

    #[test]
    fn batches_add_up_to_the_definition() {
        let (samples, inputs, outputs) = (700, 7, 3);
        let (x, y) = (numbers(samples * inputs, 1), numbers(samples * outputs, 2));
        let mut whole = Moments::new(inputs, outputs);
        whole.add(&x, &y).unwrap();
        let (mut first, mut second) = (Moments::new(inputs, outputs), Moments::new(inputs, outputs));
        first.add(&x[..512 * inputs], &y[..512 * outputs]).unwrap();
        second.add(&x[512 * inputs..], &y[512 * outputs..]).unwrap();
        first.merge(&second).unwrap();
        assert_eq!(first, whole);
        let mut rows = Moments::of_rows(inputs, outputs);
        rows.add(&x, &y).unwrap();
        assert_eq!((rows.rows(), rows.samples()), (Some((x.as_slice(), y.as_slice())), 700));
        let mut mirrored = rows.clone();
        mirrored.mirror();
        let at = |s: usize, i: usize| if i == inputs { 1.0 } else { f64::from(x[s * inputs + i]) };
        for i in 0..=inputs {
            for j in 0..=inputs {
                let expected: f64 = (0..samples).map(|s| at(s, i) * at(s, j)).sum();
                assert!((whole.product(i, j) - expected).abs() < 1e-3);
                assert!((rows.product(i, j) - expected).abs() < 1e-9);
            }
            assert!(whole.row(i).iter().enumerate().all(|(j, x)| *x == whole.product(i, j)));
            for kept in [&rows, &mirrored] {
                assert!(kept.row(i).iter().enumerate().all(|(j, x)| *x == rows.product(i, j)));
            }
            for o in 0..outputs {
                let expected: f64 = (0..samples).map(|s| at(s, i) * f64::from(y[s * outputs + o])).sum();
                assert!((whole.cross()[i * outputs + o] - expected).abs() < 1e-3);
                assert!((rows.cross()[i * outputs + o] - expected).abs() < 1e-9);
            }
        }
    }
    /// Blocks that are full and not, and the constant in a block of its own and with others.
    #[test]
    fn mirrored_rows_are_the_gathered_ones() {
        for inputs in [1, 7, 63, 64, 65, 200] {
            let mut moments = Moments::new(inputs, 0);
            moments.add(&numbers(30 * inputs, 4), &[]).unwrap();
            let gathered: Vec<Vec<f64>> = (0..=inputs).map(|i| moments.row(i).into_owned()).collect();
            moments.mirror();
            for (i, row) in gathered.iter().enumerate() {
                assert_eq!(moments.row(i).as_ref(), row, "row {i} of {inputs} inputs");
            }
        }
    }
}
