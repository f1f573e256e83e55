//! Least squares over several tasks at once: the systems behind d and f.
//!
//! A [`Problem`] holds Σ over tasks of s ‖xᵀw − y‖², in one of two forms. The normal form keeps A = Σ s x xᵀ and B = Σ
//! s x yᵀ, whatever the number of samples. Where samples are fewer than unknowns, the dual form keeps the samples
//! themselves: its systems are samples × samples.

use crate::error::{Error, Result};
use crate::linalg::matrix::{matrix, multiply, product};
use crate::linalg::{Factor, LARGEST_RIDGE, Solved, System};
use crate::statistics::Moments;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Least squares for several units with the same inputs.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Unknown weights of a unit.
    pub(super) size: usize,
    pub(super) units: usize,
    pub(super) form: Form,
}

#[derive(Clone, Debug)]
pub(super) enum Form {
    /// A: size × size, B: size × units; and A factored, with the ridge that was asked for, since it was last solved.
    Normal { a: Vec<f64>, b: Vec<f64>, system: Option<(f64, System)> },
    /// √s x: samples × size, √s y: samples × units.
    Dual { x: Vec<f64>, y: Vec<f64> },
}

/// What a task's units should answer.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a> {
    /// The recorded outputs, one for each unit of the problem.
    Outputs(&'a [usize]),
    /// What these weights answer: size × units.
    Weights(&'a [f64]),
}

/// Other targets of a task whose samples a problem has.
#[derive(Clone, Debug)]
pub struct OneSidedTarget {
    /// s, as they were added.
    pub scale: f64,
    /// Places of its inputs, as they were added.
    pub place: Vec<Option<usize>>,
    /// Σ x yᵀ: for every input a row of units.
    pub sums: Vec<f64>,
}

impl Problem {
    /// Without any samples yet. `dual`: all moments that will be added keep their samples.
    pub fn new(size: usize, units: usize, dual: bool) -> Self {
        let form = if dual {
            Form::Dual { x: Vec::new(), y: Vec::new() }
        } else {
            Form::Normal { a: vec![0.0; size * size], b: vec![0.0; size * units], system: None }
        };
        Self { size, units, form }
    }

    /// Adds a task's samples with weight s = `scale`. `place[k]` is the unknown that belongs to the task's input k, if
    /// there is one; the weight of an input without a place is zero.
    pub fn add(&mut self, moments: &Moments, scale: f64, place: &[Option<usize>], targets: Targets) -> Result<()> {
        let (size, units) = (self.size, self.units);
        let placed: Vec<(usize, usize)> = place.iter().enumerate().filter_map(|(k, p)| p.map(|p| (k, p))).collect();
        match (&mut self.form, moments.rows()) {
            (Form::Normal { a, b, system }, None) => {
                *system = None;
                let inputs = inputs_of(&placed, size);
                let add_to = |a: &mut [f64]| {
                    a.par_chunks_mut(size.max(1)).zip(&inputs).for_each(|(a, input)| {
                        let Some(row) = input.map(|i| moments.row(i)) else { return };
                        placed.iter().for_each(|&(j, column)| a[column] += scale * row[j]);
                    });
                };
                match targets {
                    Targets::Outputs(outputs) => {
                        let all = moments.cross();
                        add_to(a);
                        b.par_chunks_mut(units.max(1)).zip(&inputs).for_each(|(b, input)| {
                            let Some(cross) = input.map(|i| &all[i * moments.outputs()..]) else { return };
                            b.iter_mut().zip(outputs).for_each(|(b, &output)| *b += scale * cross[output]);
                        });
                    }
                    Targets::Weights(w) => {
                        let mut own = vec![0.0; size * size];
                        add_to(&mut own);
                        product(&own, w, size, size, units).iter().zip(b).for_each(|(new, b)| *b += new);
                        own.par_iter().zip(a).for_each(|(own, a)| *a += own);
                    }
                }
            }
            (Form::Dual { x, y }, Some((inputs, outputs))) => {
                let (root, width) = (scale.sqrt(), moments.size() - 1);
                let first = x.len();
                for sample in inputs.chunks(width.max(1)) {
                    let at = x.len();
                    x.resize(at + size, 0.0);
                    for &(k, column) in &placed {
                        // Behind the inputs stands the constant 1 of the bias.
                        x[at + column] = root * sample.get(k).map_or(1.0, |v| f64::from(*v));
                    }
                }
                let samples = (x.len() - first) / size.max(1);
                match targets {
                    Targets::Outputs(chosen) => {
                        for answers in outputs.chunks(moments.outputs().max(1)) {
                            y.extend(chosen.iter().map(|&o| root * f64::from(answers[o])));
                        }
                    }
                    Targets::Weights(w) => y.extend(product(&x[first..], w, samples, size, units)),
                }
            }
            _ => return Err(Error::usage("samples in different forms cannot be added")),
        }
        Ok(())
    }

    /// Puts other targets in the place of all there were; what A was factored into stays. Not for the dual form.
    pub fn set_targets(&mut self, tasks: &[OneSidedTarget]) -> Result<()> {
        let (size, units) = (self.size, self.units);
        let Form::Normal { b, .. } = &mut self.form else { return Err(Error::usage("sums have no samples")) };
        b.fill(0.0);
        for OneSidedTarget { scale, place, sums } in tasks {
            let placed = place.iter().enumerate().filter_map(|(k, p)| p.map(|p| (k, p))).collect::<Vec<_>>();
            b.par_chunks_mut(units.max(1)).zip(&inputs_of(&placed, size)).for_each(|(b, input)| {
                let Some(sums) = input.map(|i| &sums[i * units..]) else { return };
                b.iter_mut().zip(sums).for_each(|(b, sum)| *b += scale * sum);
            });
        }
        Ok(())
    }

    /// The weights (size × units) with the smallest error: ridge regression towards `prior`, μ = `ridge` · mean(diag
    /// A).
    pub fn solve(&mut self, prior: &[f64], ridge: f64) -> Result<Solved> {
        let (size, units) = (self.size, self.units);
        if let Form::Normal { a, b, system } = &mut self.form {
            let (_, system) = match system.take().filter(|(asked, _)| *asked == ridge) {
                Some(known) => system.insert(known),
                None => system.insert((ridge, System::new(a, size, ridge)?)),
            };
            return system.solve(b, prior, units);
        }
        self.solve_dual(prior, ridge)
    }

    /// W = W₀ + Xᵀ (X Xᵀ + μ I)⁻¹ (Y − X W₀)
    fn solve_dual(&self, prior: &[f64], ridge: f64) -> Result<Solved> {
        let Form::Dual { x, y } = &self.form else { return Err(Error::usage("the problem keeps no samples")) };
        let samples = self.samples();
        let mut rest = product(x, prior, samples, self.size, self.units);
        rest.iter_mut().zip(y).for_each(|(fit, y)| *fit = y - *fit);
        let (factor, used) = self.dual_factor(ridge)?;
        factor.solve(&mut rest, self.units);
        let mut w = multiply(matrix(x, samples, self.size).transpose(), matrix(&rest, samples, self.units));
        w.iter_mut().zip(prior).for_each(|(w, prior)| *w += prior);
        Ok(Solved { x: w, ridge: used, raised: used > ridge })
    }

    /// The same where only some weights of each unit may differ from zero: `keep` is size × units. Units with the same
    /// support share their factorization.
    pub fn solve_on(&self, keep: &[bool], prior: &[f64], ridge: f64) -> Result<Solved> {
        let (size, units) = (self.size, self.units);
        let mut groups: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for unit in 0..units {
            let support = (0..size).filter(|k| keep[k * units + unit]).collect();
            groups.entry(support).or_default().push(unit);
        }
        let solve = |(support, members): (&Vec<usize>, &Vec<usize>)| -> Result<Solved> {
            let choose = |from: &[f64], columns: usize, chosen: &[usize]| -> Vec<f64> {
                support.iter().flat_map(|&k| chosen.iter().map(move |&c| from[k * columns + c])).collect()
            };
            let form = match &self.form {
                Form::Normal { a, b, .. } => {
                    Form::Normal { a: choose(a, size, support), b: choose(b, units, members), system: None }
                }
                Form::Dual { x, y } => {
                    let columns = |from: &[f64], width: usize, chosen: &[usize]| {
                        from.chunks(width.max(1)).flat_map(|row| chosen.iter().map(|&c| row[c])).collect()
                    };
                    Form::Dual { x: columns(x, size, support), y: columns(y, units, members) }
                }
            };
            let mut part = Self { size: support.len(), units: members.len(), form };
            part.solve(&choose(prior, units, members), ridge)
        };
        let solutions: Result<Vec<Solved>> = groups.par_iter().map(solve).collect();
        let mut all = Solved { x: vec![0.0; size * units], ridge, raised: false };
        for ((support, members), solved) in groups.iter().zip(solutions?) {
            for (row, &k) in support.iter().enumerate() {
                for (column, &unit) in members.iter().enumerate() {
                    all.x[k * units + unit] = solved.x[row * members.len() + column];
                }
            }
            all.ridge = all.ridge.max(solved.ridge);
            all.raised |= solved.raised;
        }
        Ok(all)
    }

    pub(super) fn samples(&self) -> usize {
        match &self.form {
            Form::Normal { .. } => 0,
            Form::Dual { x, .. } => x.len() / self.size.max(1),
        }
    }

    /// Cholesky's factor of X Xᵀ + μ I, and the ridge that was needed.
    pub(super) fn dual_factor(&self, ridge: f64) -> Result<(Factor, f64)> {
        let Form::Dual { x, .. } = &self.form else { return Err(Error::usage("the problem keeps no samples")) };
        let samples = self.samples();
        if x.iter().any(|x| !x.is_finite()) {
            return Err(Error::data("the statistics of a layer are not finite"));
        }
        let rows = matrix(x, samples, self.size);
        let system = multiply(rows, rows.transpose());
        let mut now = ridge.max(1e-12);
        while now <= LARGEST_RIDGE {
            let mut system = system.clone();
            let mu = now * self.mean_diagonal();
            (0..samples).for_each(|i| system[i * samples + i] += mu);
            if let Some(factor) = Factor::new(system, samples) {
                return Ok((factor, now));
            }
            now *= 10.0;
        }
        Err(Error::data("the statistics of a layer cannot be inverted").hint("use more `calibration` samples"))
    }

    /// The mean of the diagonal of A, over inputs that are not dead.
    pub(super) fn mean_diagonal(&self) -> f64 {
        let diagonal: Vec<f64> = match &self.form {
            Form::Normal { a, .. } => (0..self.size).map(|i| a[i * self.size + i]).collect(),
            Form::Dual { x, .. } => x.chunks(self.size.max(1)).fold(vec![0.0; self.size], |mut sum, row| {
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x * x);
                sum
            }),
        };
        let live: Vec<f64> = diagonal.into_iter().filter(|d| *d > 0.0).collect();
        live.iter().sum::<f64>() / live.len().max(1) as f64
    }
}

/// Which input belongs to each unknown, from the places of inputs.
fn inputs_of(placed: &[(usize, usize)], size: usize) -> Vec<Option<usize>> {
    let mut inputs = vec![None; size];
    placed.iter().for_each(|&(input, place)| inputs[place] = Some(input));
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    /// What a problem remembers of its matrix does not outlive other samples, another ridge or other targets.
    #[test]
    fn problems_solved_again_are_as_good_as_new() {
        let (inputs, units, samples) = (6, 2, 40);
        let numbers = |n: usize, seed: u64| (0..n as u64).map(|i| random::normal(seed, i)).collect::<Vec<f32>>();
        let moments = |seed: u64| {
            let mut moments = Moments::new(inputs, units);
            moments.add(&numbers(samples * inputs, seed), &numbers(samples * units, seed + 1)).unwrap();
            moments.mirror();
            moments
        };
        let (first, second) = (moments(1), moments(3));
        let (size, prior) = (first.size(), vec![0.25; first.size() * units]);
        let place: Vec<Option<usize>> = (0..size).rev().map(Some).collect();
        let new = |all: &[&Moments]| {
            let mut problem = Problem::new(size, units, false);
            all.iter().for_each(|m| problem.add(m, 0.5, &place, Targets::Outputs(&[1, 0])).unwrap());
            problem
        };
        let solve = |problem: &mut Problem, ridge: f64| problem.solve(&prior, ridge).unwrap().x;
        let mut problem = new(&[&first]);
        let before = solve(&mut problem, 1e-3);
        assert_ne!(before, solve(&mut problem, 1e-1));
        assert_eq!(before, solve(&mut problem, 1e-3));
        let sums = second.cross().to_vec();
        problem.set_targets(&[OneSidedTarget { scale: 0.5, place: place.clone(), sums }]).unwrap();
        assert_ne!(before, solve(&mut problem, 1e-3));
        let sums = first.cross().chunks(units).flat_map(|row| [row[1], row[0]]).collect();
        problem.set_targets(&[OneSidedTarget { scale: 0.5, place: place.clone(), sums }]).unwrap();
        assert_eq!(before, solve(&mut problem, 1e-3));
        problem.add(&second, 0.5, &place, Targets::Outputs(&[1, 0])).unwrap();
        assert_eq!(solve(&mut new(&[&first, &second]), 1e-3), solve(&mut problem, 1e-3));
    }
}
