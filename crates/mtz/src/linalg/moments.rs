//! Second moments, collected batch by batch.

use crate::error::{Error, Result};
use crate::kernel::gemm::{Matrix, multiply};
use crate::kernel::scratch;
use rayon::prelude::*;

/// Samples whose products are summed in f32 before they are added in f64: few enough to keep six digits.
const CHUNK: usize = 256;

/// Σ x xᵀ and Σ x yᵀ over samples, where a constant 1 stands behind the numbers of x: the bias is one more weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    inputs: usize,
    outputs: usize,
    /// (inputs + 1)², row by row.
    gram: Vec<f64>,
    /// (inputs + 1) × outputs.
    cross: Vec<f64>,
    samples: u64,
}

impl Moments {
    /// No samples yet.
    pub fn new(inputs: usize, outputs: usize) -> Self {
        let size = inputs + 1;
        Self { inputs, outputs, gram: vec![0.0; size * size], cross: vec![0.0; size * outputs], samples: 0 }
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

    /// Σ x xᵀ, row by row.
    pub fn gram(&self) -> &[f64] {
        &self.gram
    }

    /// Σ x yᵀ, row by row.
    pub fn cross(&self) -> &[f64] {
        &self.cross
    }

    /// Adds samples: `x` is samples × inputs, `y` samples × outputs.
    pub fn add(&mut self, x: &[f32], y: &[f32]) -> Result<()> {
        let samples = x.len().checked_div(self.inputs).unwrap_or(0);
        if x.len() != samples * self.inputs || y.len() != samples * self.outputs {
            return Err(Error::usage("inputs and outputs of different samples"));
        }
        let size = self.size();
        let mut extended = scratch::take(CHUNK * size);
        let mut product = scratch::take(size * size.max(self.outputs));
        for start in (0..samples).step_by(CHUNK) {
            let count = CHUNK.min(samples - start);
            for (i, row) in extended.chunks_mut(size).take(count).enumerate() {
                row[..self.inputs].copy_from_slice(&x[(start + i) * self.inputs..][..self.inputs]);
                row[self.inputs] = 1.0;
            }
            let left = Matrix::new(&extended, count, size);
            let mut accumulate = |right: Matrix, columns: usize, sum: &mut [f64]| {
                let product = &mut product[..size * columns];
                multiply(product, left.transposed(), right, 1.0, false);
                let piece = (1 << 14).min(product.len().max(1));
                sum.par_chunks_mut(piece).zip(product.par_chunks(piece)).for_each(|(sum, x)| {
                    sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += f64::from(*x));
                });
            };
            accumulate(left, size, &mut self.gram);
            if self.outputs > 0 {
                let y = &y[start * self.outputs..][..count * self.outputs];
                accumulate(Matrix::new(y, count, self.outputs), self.outputs, &mut self.cross);
            }
        }
        scratch::give_back(extended);
        scratch::give_back(product);
        self.samples += samples as u64;
        Ok(())
    }

    /// Adds what another has collected.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if (self.inputs, self.outputs) != (other.inputs, other.outputs) {
            return Err(Error::usage("moments of different sizes"));
        }
        self.gram.iter_mut().zip(&other.gram).for_each(|(a, b)| *a += b);
        self.cross.iter_mut().zip(&other.cross).for_each(|(a, b)| *a += b);
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
        let at = |s: usize, i: usize| if i == inputs { 1.0 } else { f64::from(x[s * inputs + i]) };
        for i in 0..=inputs {
            for j in 0..=inputs {
                let expected: f64 = (0..samples).map(|s| at(s, i) * at(s, j)).sum();
                assert!((whole.gram()[i * (inputs + 1) + j] - expected).abs() < 1e-3);
            }
            for o in 0..outputs {
                let expected: f64 = (0..samples).map(|s| at(s, i) * f64::from(y[s * outputs + o])).sum();
                assert!((whole.cross()[i * outputs + o] - expected).abs() < 1e-3);
            }
        }
    }
}
