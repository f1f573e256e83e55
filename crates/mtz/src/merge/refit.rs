//! Refitting, beyond the paper: weights by least squares towards the original pre-activations on the merged network's
//! own inputs.
//!
//! W = argmin Σ over owners t of s_t ‖W x_t − y_t‖²: x_t is what the layer reads in the merged network of task t, y_t
//! what it answers in the original one. Private units and heads are refitted, too. Where a rectifier follows, negative
//! targets are one-sided ([`crate::statistics::KeptSamples`]).

use super::least_squares::{OneSidedTarget, Problem, Targets};
use super::system::{JointUnit, LayerSystem, Zeros};
use super::{Merged, Recipe};
use crate::error::Result;
use crate::sharing::{Layer, Refit};
use crate::statistics::answer_statistics;
use std::collections::BTreeSet;

impl LayerSystem<'_> {
    /// Least squares towards the original answers, for units with the same owners; their weights become the solution.
    /// `rounds`: how often it is solved again for one-sided targets.
    pub(super) fn fit(&mut self, units: &[JointUnit], ridge: f64, rounds: usize, report: &mut Merged) -> Result<()> {
        let Some(first) = units.first() else { return Ok(()) };
        let set: Vec<usize> = (0..self.tasks.len()).filter(|&t| first[t].is_some()).collect();
        let used: BTreeSet<usize> = set.iter().flat_map(|&t| self.tasks[t].columns.iter().copied()).collect();
        let used: Vec<usize> = used.into_iter().collect();
        let place = self.places(&used);
        let mut problem = Problem::new(used.len(), units.len(), self.dual);
        for &t in &set {
            let own: Vec<usize> = units.iter().filter_map(|owners| owners[t]).collect();
            if self.tasks[t].moments.outputs() > 0 {
                self.add(&mut problem, t, &place, Targets::Outputs(&own))?;
            } else {
                let (weights, count) = (&self.tasks[t].weights, self.count);
                let weights: Vec<f64> = used
                    .iter()
                    .flat_map(|&c| own.iter().map(move |unit| f64::from(weights[unit * count + c])))
                    .collect();
                self.add(&mut problem, t, &place, Targets::Weights(&weights))?;
            }
        }
        self.solve(&mut problem, &used, units, Zeros::Known, ridge, report)?;
        for _ in 0..rounds {
            let Some(targets) = self.one_sided(units, &set, &place) else { break };
            problem.set_targets(&targets)?;
            self.solve(&mut problem, &used, units, Zeros::Known, ridge, report)?;
        }
        Ok(())
    }

    /// Targets of some tasks that know of the rectifier behind the layer, as [`Problem::set_targets`] takes them;
    /// `None` where samples were not kept.
    pub(super) fn one_sided(
        &self,
        units: &[JointUnit],
        set: &[usize],
        place: &[Option<usize>],
    ) -> Option<Vec<OneSidedTarget>> {
        let target = |&t: &usize| {
            let task = &self.tasks[t];
            let samples = task.samples.filter(|_| !self.dual)?;
            let own: Vec<usize> = units.iter().filter_map(|owners| owners[t]).collect();
            let sums = samples.cross(&own, &self.rows(t, &own, &task.weights), &self.rows(t, &own, &task.before));
            Some(OneSidedTarget { scale: task.scale, place: task.placed(place), sums })
        };
        set.iter().map(target).collect()
    }

    /// The units of a task that have new weights, as [`Layer::write`] takes them.
    pub(super) fn refits(&self, t: usize, layer: &Layer, recipe: Recipe) -> Vec<Refit> {
        let task = &self.tasks[t];
        let changed: Vec<usize> = (0..task.units).filter(|&unit| task.changed[unit]).collect();
        let rows = |weights: &[f32]| self.rows(t, &changed, weights);
        let mut rows_now = rows(&task.weights);
        let mut scales = vec![1.0; changed.len()];
        let mut spreads = vec![(0.0, 1.0); changed.len()];
        if layer.norm.is_some() {
            spreads = answer_statistics(task.moments, &rows_now);
            if recipe == Recipe::Paper {
                // Least squares knows the best scale and offset, the paper's update does not: mean and deviation stay
                // what they were.
                let before = answer_statistics(task.moments, &rows(&task.before));
                for (((row, scale), now), before) in rows_now.iter_mut().zip(&mut scales).zip(&spreads).zip(before) {
                    *scale = if now.1 > 0.0 { (before.1 / now.1).sqrt() } else { 1.0 };
                    row.last_mut().into_iter().for_each(|offset| *offset += before.0 - *scale * now.0);
                }
            }
        }
        let numbers = rows_now.iter().zip(scales).zip(spreads);
        changed
            .iter()
            .zip(numbers)
            .map(|(&unit, ((row, scale), spread))| Refit::new(unit, row, scale, spread))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;
    use crate::statistics::{KeptSamples, Moments};

    /// Whatever two tasks see: solving again for the nearest targets never raises the squared distance to what is
    /// right, summed over both.
    #[test]
    fn the_common_error_never_grows() {
        let (inputs, units) = (6, 3);
        for (seed, ridge) in (1..).zip([1e-6, 1e-2, 1.0]) {
            let numbers = |n: usize, part: u64| {
                (0..n as u64).map(|i| random::normal(random::bits(seed, part), i)).collect::<Vec<f32>>()
            };
            let task = |t: u64, samples: usize| {
                let (x, y) = (numbers(samples * inputs, 2 * t), numbers(samples * units, 2 * t + 1));
                let (mut moments, mut kept) = (Moments::new(inputs, units), KeptSamples::new(inputs, units));
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
                let aims: Vec<OneSidedTarget> = tasks
                    .iter()
                    .zip(scales)
                    .map(|((.., kept), scale)| {
                        let sums = kept.cross(&chosen, &rows, &rows);
                        OneSidedTarget { scale, place: place.clone(), sums }
                    })
                    .collect();
                problem.set_targets(&aims).unwrap();
                w = problem.solve(&w, ridge).unwrap().x;
                errors.push(error(&w));
            }
            assert!(errors.windows(2).all(|pair| pair[1] <= pair[0] + 1e-6), "{errors:?}");
            assert!(errors[8] < 0.99 * errors[0] || ridge > 0.1, "{errors:?}");
        }
    }
}
