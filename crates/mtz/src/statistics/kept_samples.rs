//! Targets behind which a rectifier stands: where the original answer is negative, any negative answer is as good.
//!
//! Least squares towards the answers themselves spends weights on how negative they are. Given a solution v, the
//! nearest target that is right is τ(v) = `y` where y > 0 and `min(vᵀx, 0)` elsewhere. Only Σ x τᵀ changes from one
//! solution to the next, the matrix stays.
//!
//! What goes down is E(w) = Σ (wᵀx − τ(w))², a sum over the samples that are kept, of all owners of the unit, each with
//! its task's weight: the squared distance to what is right. As τ(w) is nearest to wᵀx, Σ (wᵀx − τ(v))² is never below
//! E(w) and equals it at w = v, so that whoever minimises it does not raise E (majorisation). The ridge adds μ ‖w −
//! w₀‖², and w₀ is the solution before: E(w) + μ ‖w − v‖² ≤ E(v), so E still never grows, only more slowly. This says
//! nothing of one task alone, of which another may take the weights away, nor of the error behind the rectifier itself,
//! which E bounds from above.

use crate::kernel::gemm::{Matrix, multiply};
use rayon::prelude::*;

/// Samples of a layer: what it sees, what the original answers, and below which answer the rectifier gives zero.
#[derive(Clone, Debug, Default)]
pub struct KeptSamples {
    inputs: usize,
    outputs: usize,
    /// samples × inputs
    x: Vec<f32>,
    /// samples × outputs; empty where the original's own weights say it.
    y: Vec<f32>,
    /// samples × outputs; empty where it is zero.
    floor: Vec<f32>,
}

/// Samples whose products are summed in f32 before they are added in f64.
const PART: usize = 4096;

impl KeptSamples {
    /// None yet.
    pub fn new(inputs: usize, outputs: usize) -> Self {
        Self { inputs, outputs, ..Self::default() }
    }

    /// Adds samples; `y` and `floor` may be empty.
    pub fn add(&mut self, x: &[f32], y: &[f32], floor: &[f32]) {
        self.x.extend_from_slice(x);
        self.y.extend_from_slice(y);
        self.floor.extend_from_slice(floor);
    }

    /// Σ x τᵀ, (inputs + 1) × units, for the targets τ nearest to what `weights` answer. `units` are outputs; `weights`
    /// and `original` have a row of inputs + 1 for each. `original` answers where no y was recorded.
    pub fn cross(&self, units: &[usize], weights: &[Vec<f64>], original: &[Vec<f64>]) -> Vec<f64> {
        let (width, count) = (self.inputs, units.len());
        let turned = |rows: &[Vec<f64>]| -> (Vec<f32>, Vec<f32>) {
            let weights = (0..width).flat_map(|k| rows.iter().map(move |row| row[k] as f32)).collect();
            (weights, rows.iter().map(|row| row[width] as f32).collect())
        };
        let (weights, biases) = turned(weights);
        let (original, original_biases) = turned(original);
        let samples = self.x.len().checked_div(width).unwrap_or(0);
        let mut all = vec![0.0f64; (width + 1) * count];
        let mut product = vec![0.0f32; width * count];
        for first in (0..if count > 0 { samples } else { 0 }).step_by(PART) {
            let here = PART.min(samples - first);
            let x = Matrix::new(&self.x[first * width..], here, width);
            let answers = |weights: &[f32], biases: &[f32]| {
                let mut y = vec![0.0; here * count];
                multiply(&mut y, x, Matrix::new(weights, width, count), 1.0, false);
                y.par_chunks_mut(count).for_each(|row| row.iter_mut().zip(biases).for_each(|(y, b)| *y += b));
                y
            };
            let mut targets = answers(&weights, &biases);
            let computed = if self.y.is_empty() { answers(&original, &original_biases) } else { Vec::new() };
            targets.par_chunks_mut(count).enumerate().for_each(|(s, row)| {
                for (k, (target, &unit)) in row.iter_mut().zip(units).enumerate() {
                    let at = (first + s) * self.outputs + unit;
                    let y = if computed.is_empty() { self.y[at] } else { computed[s * count + k] };
                    let floor = self.floor.get(at).copied().unwrap_or(0.0);
                    *target = if y < floor { target.min(floor) } else { y };
                }
            });
            multiply(&mut product, x.transposed(), Matrix::new(&targets, here, count), 1.0, false);
            let (sums, constant) = all.split_at_mut(width * count);
            let sums = sums.par_chunks_mut(count).zip(product.par_chunks(count));
            sums.for_each(|(sums, new)| sums.iter_mut().zip(new).for_each(|(sum, x)| *sum += f64::from(*x)));
            // In f64 for each part by itself, as the other sums.
            let mut ones = vec![0.0f64; count];
            let rows = targets.chunks(count);
            rows.for_each(|row| ones.iter_mut().zip(row).for_each(|(sum, y)| *sum += f64::from(*y)));
            constant.iter_mut().zip(ones).for_each(|(sum, x)| *sum += x);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    #[test]
    fn targets_are_the_nearest_right_ones() {
        let (samples, inputs, outputs) = (50, 3, 4);
        let numbers = |n: usize, seed: u64| (0..n as u64).map(|i| random::normal(seed, i)).collect::<Vec<f32>>();
        let (x, y, floor) =
            (numbers(samples * inputs, 1), numbers(samples * outputs, 2), numbers(samples * outputs, 3));
        let mut all = KeptSamples::new(inputs, outputs);
        all.add(&x, &y, &floor);
        let (units, weights) = ([2, 0], [vec![0.5, -1.0, 0.25, 0.1], vec![1.0, 0.0, -0.5, -0.2]]);
        let cross = all.cross(&units, &weights, &weights);
        for (k, &unit) in units.iter().enumerate() {
            let mut expected = [0.0; 4];
            for s in 0..samples {
                let x: Vec<f64> = (0..inputs).map(|i| f64::from(x[s * inputs + i])).chain([1.0]).collect();
                let answer: f64 = x.iter().zip(&weights[k]).map(|(x, w)| x * w).sum();
                let (y, floor) = (f64::from(y[s * outputs + unit]), f64::from(floor[s * outputs + unit]));
                let target = if y > floor { y } else { answer.min(floor) };
                expected.iter_mut().zip(&x).for_each(|(sum, x)| *sum += x * target);
            }
            for (i, expected) in expected.iter().enumerate() {
                assert!((cross[i * units.len() + k] - expected).abs() < 1e-3, "{i} {unit}");
            }
        }
    }
}
