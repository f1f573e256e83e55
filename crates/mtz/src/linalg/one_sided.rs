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
pub struct Samples {
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

impl Samples {
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
        let mut all = Samples::new(inputs, outputs);
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

    /// Whatever two tasks see: solving again for the nearest targets never raises the squared distance to what is
    /// right, summed over both.
    #[test]
    fn the_common_error_never_grows() {
        use crate::linalg::{Aim, Moments, Problem, Targets};
        let (inputs, units) = (6, 3);
        for (seed, ridge) in (1..).zip([1e-6, 1e-2, 1.0]) {
            let numbers = |n: usize, part: u64| {
                (0..n as u64).map(|i| random::normal(random::bits(seed, part), i)).collect::<Vec<f32>>()
            };
            let task = |t: u64, samples: usize| {
                let (x, y) = (numbers(samples * inputs, 2 * t), numbers(samples * units, 2 * t + 1));
                let (mut moments, mut kept) = (Moments::new(inputs, units), Samples::new(inputs, units));
                moments.add(&x, &y).unwrap();
                moments.mirror();
                kept.add(&x, &y, &[]);
                (x, y, moments, kept)
            };
            let (tasks, scales) = ([task(1, 30), task(2, 80)], [0.3 / 30.0, 0.7 / 80.0]);
            let (chosen, place): (Vec<usize>, Vec<_>) = ((0..units).collect(), (0..=inputs).map(Some).collect());
            let mut problem = Problem::new(inputs + 1, units, false);
            for ((_, _, moments, _), scale) in tasks.iter().zip(scales) {
                problem.add(moments, scale, &place, Targets::Outputs(&chosen)).unwrap();
            }
            let error = |w: &[f64]| -> f64 {
                let mut all = 0.0;
                for ((x, y, ..), scale) in tasks.iter().zip(scales) {
                    for (x, y) in x.chunks(inputs).zip(y.chunks(units)) {
                        for (unit, y) in y.iter().enumerate() {
                            let x = x.iter().map(|x| f64::from(*x)).chain([1.0]).enumerate();
                            let answer: f64 = x.map(|(i, x)| x * w[i * units + unit]).sum();
                            let off = if *y > 0.0 { answer - f64::from(*y) } else { answer.max(0.0) };
                            all += scale * off * off;
                        }
                    }
                }
                all
            };
            let mut w = problem.solve(&vec![0.0; (inputs + 1) * units], ridge).unwrap().x;
            let mut errors = vec![error(&w)];
            for _ in 0..8 {
                let rows: Vec<Vec<f64>> =
                    (0..units).map(|unit| w.iter().skip(unit).step_by(units).copied().collect()).collect();
                let aims: Vec<Aim> = tasks
                    .iter()
                    .zip(scales)
                    .map(|((.., kept), scale)| {
                        let sums = kept.cross(&chosen, &rows, &rows);
                        Aim { scale, place: place.clone(), sums }
                    })
                    .collect();
                problem.aim(&aims).unwrap();
                w = problem.solve(&w, ridge).unwrap().x;
                errors.push(error(&w));
            }
            assert!(errors.windows(2).all(|pair| pair[1] <= pair[0] + 1e-6), "{errors:?}");
            assert!(errors[8] < 0.99 * errors[0] || ridge > 0.1, "{errors:?}");
        }
    }
}
