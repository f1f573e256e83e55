//! How well weights fit what the statistics of a layer recorded.

use super::gram::Moments;
use crate::linalg::matrix::{matrix, multiply, product, rows};
use rayon::prelude::*;

/// Mean and variance of what units answer without their bias. A unit is its weights and the bias behind them.
pub fn answer_statistics(moments: &Moments, units: &[Vec<f64>]) -> Vec<(f64, f64)> {
    let (size, n) = (moments.size(), moments.samples().max(1) as f64);
    let width = size - 1;
    let weights: Vec<f64> = units.iter().flat_map(|row| row.iter().copied().take(width)).collect();
    let of = |(sum, squares): (f64, f64)| (sum / n, (squares / n - (sum / n).powi(2)).max(0.0));
    match moments.rows() {
        Some((x, _)) => {
            let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
            let samples = rows(&x, width);
            let answers = multiply(matrix(&weights, units.len(), width), matrix(&x, samples, width).transpose());
            let sums = |y: &[f64]| (y.iter().sum(), y.iter().map(|y| y * y).sum());
            answers.chunks(samples.max(1)).map(|y| of(sums(y))).collect()
        }
        None => {
            let gram: Vec<f64> =
                (0..width).into_par_iter().flat_map_iter(|i| moments.row(i)[..width].to_vec()).collect();
            let turned = product(&weights, &gram, units.len(), width, width);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let sums: Vec<f64> = (0..width).map(|k| moments.product(k, width)).collect();
            let both = weights.chunks(width.max(1)).zip(turned.chunks(width.max(1)));
            both.map(|(w, turned)| of((dot(w, &sums), dot(w, turned)))).collect()
        }
    }
}

/// Σ ‖W x − y‖² / Σ ‖y‖² over the samples that moments have seen, for weights W (units × inputs, biases behind them). y
/// is what was recorded, or what the weights `before` answer.
pub fn relative_error(moments: &Moments, now: &[f32], before: Option<&[f32]>) -> f64 {
    let size = moments.size();
    let wide = |w: &[f32]| w.iter().map(|w| f64::from(*w)).collect::<Vec<f64>>();
    let (now, before) = (wide(now), before.map(wide));
    let units = rows(&now, size);
    let relative = |error: f64, squares: f64| error.max(0.0) / squares.max(f64::MIN_POSITIVE);
    if let Some((x, y)) = moments.rows() {
        let with_one = |x: &[f32]| x.iter().map(|x| f64::from(*x)).chain([1.0]).collect::<Vec<f64>>();
        let x: Vec<f64> = x.chunks((size - 1).max(1)).flat_map(with_one).collect();
        let samples = rows(&x, size);
        let answers = |w: &[f64]| multiply(matrix(&x, samples, size), matrix(w, units, size).transpose());
        let (answers, targets) = (answers(&now), before.map_or_else(|| wide(y), |before| answers(&before)));
        let square = |(a, b): (&f64, &f64)| (a - b).powi(2);
        return relative(answers.iter().zip(&targets).map(square).sum(), targets.iter().map(|y| y * y).sum());
    }
    let gram: Vec<f64> = (0..size).into_par_iter().flat_map_iter(|i| moments.row(i).into_owned()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let square = |w: &[f64]| dot(w, &product(w, &gram, units, size, size));
    match before {
        Some(before) => {
            let apart: Vec<f64> = now.iter().zip(&before).map(|(a, b)| a - b).collect();
            relative(square(&apart), square(&before))
        }
        None => {
            let cross = moments.cross();
            let fits: f64 = now.iter().enumerate().map(|(i, w)| w * cross[i % size * units + i / size]).sum();
            relative(moments.squares() - 2.0 * fits + square(&now), moments.squares())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    /// Sums and samples say the same error, towards recorded answers and towards other weights.
    #[test]
    fn misfits_are_those_of_the_definition() {
        let (inputs, units, samples) = (5, 3, 50);
        let numbers = |n: usize, seed: u64| (0..n as u64).map(|i| random::normal(seed, i)).collect::<Vec<f32>>();
        let (x, y) = (numbers(samples * inputs, 1), numbers(samples * units, 2));
        let (now, before) = (numbers(units * (inputs + 1), 3), numbers(units * (inputs + 1), 4));
        let answer = |w: &[f32], s: usize, unit: usize| -> f64 {
            let w = &w[unit * (inputs + 1)..][..inputs + 1];
            let x = x[s * inputs..][..inputs].iter().chain([&1.0]);
            w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
        };
        let expected = |target: &dyn Fn(usize, usize) -> f64| -> f64 {
            let all = || (0..samples).flat_map(|s| (0..units).map(move |unit| (s, unit)));
            let error: f64 = all().map(|(s, unit)| (answer(&now, s, unit) - target(s, unit)).powi(2)).sum();
            error / all().map(|(s, unit)| target(s, unit).powi(2)).sum::<f64>()
        };
        for new in [Moments::new, Moments::of_rows] {
            let of = |outputs: usize, y: &[f32]| {
                let mut moments = new(inputs, outputs);
                moments.add(&x, y).unwrap();
                moments.mirror();
                moments
            };
            let recorded = relative_error(&of(units, &y), &now, None);
            let towards = relative_error(&of(0, &[]), &now, Some(&before));
            assert!((recorded - expected(&|s, unit| f64::from(y[s * units + unit]))).abs() < 1e-5);
            assert!((towards - expected(&|s, unit| answer(&before, s, unit))).abs() < 1e-5);
        }
    }
}
