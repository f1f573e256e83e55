//! Least squares over several tasks at once, and what it costs to let units of two tasks be one.
//!
//! A [`Problem`] holds Σ over tasks of s ‖xᵀw − y‖², in one of two forms. The normal form keeps A = Σ s x xᵀ and B = Σ s x yᵀ, whatever the
//! number of samples. Where samples are fewer than unknowns, the dual form keeps the samples themselves: its systems are samples ×
//! samples.

use super::moments::Moments;
use super::spd::{Factor, LARGEST_RIDGE, Solved, System, solve_towards};
use crate::error::{Error, Result};
use faer::{MatMut, MatRef};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Least squares for several units with the same inputs.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Unknown weights of a unit.
    size: usize,
    units: usize,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
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
pub struct Aim {
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

    /// Adds a task's samples with weight s = `scale`. `place[k]` is the unknown that belongs to the task's input k, if there is one; the weight
    /// of an input without a place is zero.
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
    pub fn aim(&mut self, tasks: &[Aim]) -> Result<()> {
        let (size, units) = (self.size, self.units);
        let Form::Normal { b, .. } = &mut self.form else { return Err(Error::usage("sums have no samples")) };
        b.fill(0.0);
        for Aim { scale, place, sums } in tasks {
            let placed = place.iter().enumerate().filter_map(|(k, p)| p.map(|p| (k, p))).collect::<Vec<_>>();
            b.par_chunks_mut(units.max(1)).zip(&inputs_of(&placed, size)).for_each(|(b, input)| {
                let Some(sums) = input.map(|i| &sums[i * units..]) else { return };
                b.iter_mut().zip(sums).for_each(|(b, sum)| *b += scale * sum);
            });
        }
        Ok(())
    }

    /// The weights (size × units) with the smallest error: ridge regression towards `prior`, μ = `ridge` · mean(diag A).
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

    /// The same where only some weights of each unit may differ from zero: `keep` is size × units. Units with the same support share
    /// their factorization.
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

    fn samples(&self) -> usize {
        match &self.form {
            Form::Normal { .. } => 0,
            Form::Dual { x, .. } => x.len() / self.size.max(1),
        }
    }

    /// Cholesky's factor of X Xᵀ + μ I, and the ridge that was needed.
    fn dual_factor(&self, ridge: f64) -> Result<(Factor, f64)> {
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
        Err(Error::data("the statistics of a layer cannot be inverted").hint("use more --calibration samples"))
    }

    /// The mean of the diagonal of A, over inputs that are not dead.
    fn mean_diagonal(&self) -> f64 {
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

/// d of all pairs, and whether the ridge had to be raised: what it costs task sets A and B together if unit i of A (row i of `a`) and
/// unit j of B (row j of `b`) get the same weights, namely those that cost least.
///
/// * Normal form: `d(i, j) = ½ (aᵢ − bⱼ)ᵀ P (aᵢ − bⱼ)` with the parallel sum `P = A_A (A_A + A_B)⁻¹ A_B`.
/// * Dual form, with μ I added to both matrices: `d(i, j) = ¼ μ ‖δ‖² + μ rᵀ (X Xᵀ + 2 μ I)⁻¹ r`, where X is X_A above X_B, δ = aᵢ − bⱼ, r = ½ X_A δ
///   above −½ X_B δ. (Without μ, samples that are fewer than unknowns cost nothing.)
///
/// Both are squared distances after a linear map, so one matrix product gives the whole table.
pub fn distances(before: &Problem, own: &Problem, a: &[f64], b: &[f64], ridge: f64) -> Result<(Vec<f64>, bool)> {
    let size = own.size;
    match (&before.form, &own.form) {
        (Form::Normal { a: first, .. }, Form::Normal { a: second, .. }) => {
            let sum: Vec<f64> = first.iter().zip(second).map(|(a, b)| a + b).collect();
            let solved = solve_towards(&sum, second, &vec![0.0; second.len()], size, size, ridge.min(1e-9))?;
            let p = product(first, &solved.x, size, size, size);
            let (pa, pb) = (product(a, &p, rows(a, size), size, size), product(b, &p, rows(b, size), size, size));
            Ok((table(&pa, &pb, a, b, size, 0.5), solved.raised))
        }
        (Form::Dual { x: first, .. }, Form::Dual { x: second, .. }) => {
            let whole = Problem { form: Form::Dual { x: [first.as_slice(), second].concat(), y: vec![] }, ..*own };
            let (factor, used) = whole.dual_factor(2.0 * ridge)?;
            let mu = used / 2.0 * whole.mean_diagonal();
            let (above, samples) = (before.samples(), whole.samples());
            // L⁻¹ r of every unit, one row each.
            let features = |w: &[f64]| -> Vec<f64> {
                let (Form::Dual { x, .. }, units) = (&whole.form, rows(w, size)) else { return Vec::new() };
                let mut r = multiply(matrix(x, samples, size), matrix(w, units, size).transpose());
                r.iter_mut().enumerate().for_each(|(k, r)| *r *= if k < above * units { 0.5 } else { -0.5 });
                factor.solve_lower(&mut r, units);
                (0..units).flat_map(|unit| r.iter().skip(unit).step_by(units)).copied().collect()
            };
            let (ra, rb) = (features(a), features(b));
            let mut d = table(&ra, &rb, &ra, &rb, samples, mu);
            d.iter_mut().zip(table(a, b, a, b, size, 0.25 * mu)).for_each(|(d, own)| *d += own);
            Ok((d, used > 2.0 * ridge))
        }
        _ => Err(Error::usage("samples in different forms cannot be compared")),
    }
}

/// factor · (aᵢ − bⱼ)ᵀ P (aᵢ − bⱼ) for all i and j, from the rows a P and b P.
fn table(pa: &[f64], pb: &[f64], a: &[f64], b: &[f64], size: usize, factor: f64) -> Vec<f64> {
    let (count, own) = (rows(a, size), rows(b, size));
    let norms = |p: &[f64], x: &[f64]| -> Vec<f64> {
        let pairs = p.chunks(size.max(1)).zip(x.chunks(size.max(1)));
        pairs.map(|(p, x)| p.iter().zip(x).map(|(p, x)| p * x).sum()).collect()
    };
    let (na, nb) = (norms(pa, a), norms(pb, b));
    let mut d = multiply(matrix(pa, count, size), matrix(b, own, size).transpose());
    for (row, na) in d.chunks_mut(own.max(1)).zip(&na) {
        row.iter_mut().zip(&nb).for_each(|(d, nb)| *d = (factor * (na + nb - 2.0 * *d)).max(0.0));
    }
    d
}

/// Mean and variance of what units answer without their bias. A unit is its weights and the bias behind them.
pub fn spread(moments: &Moments, units: &[Vec<f64>]) -> Vec<(f64, f64)> {
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
pub fn misfit(moments: &Moments, now: &[f32], before: Option<&[f32]>) -> f64 {
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

/// Which input belongs to each unknown, from the places of inputs.
fn inputs_of(placed: &[(usize, usize)], size: usize) -> Vec<Option<usize>> {
    let mut inputs = vec![None; size];
    placed.iter().for_each(|&(input, place)| inputs[place] = Some(input));
    inputs
}

fn rows(a: &[f64], width: usize) -> usize {
    a.len().checked_div(width).unwrap_or(0)
}

fn matrix(a: &[f64], rows: usize, columns: usize) -> MatRef<'_, f64> {
    MatRef::from_row_major_slice(a, rows, columns)
}

/// A B for row-major matrices n×k and k×m, in f64.
pub(crate) fn product(a: &[f64], b: &[f64], n: usize, k: usize, m: usize) -> Vec<f64> {
    multiply(matrix(a, n, k), matrix(b, k, m))
}

/// A B, row by row.
fn multiply(a: MatRef<f64>, b: MatRef<f64>) -> Vec<f64> {
    let (n, k, m) = (a.nrows(), a.ncols(), b.ncols());
    let mut c = vec![0.0; n * m];
    if n * k * m > 0 {
        let into = MatMut::from_row_major_slice_mut(&mut c, n, m);
        faer::linalg::matmul::matmul(into, faer::Accum::Replace, a, b, 1.0, faer::Par::rayon(0));
    }
    c
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
            let recorded = misfit(&of(units, &y), &now, None);
            let towards = misfit(&of(0, &[]), &now, Some(&before));
            assert!((recorded - expected(&|s, unit| f64::from(y[s * units + unit]))).abs() < 1e-5);
            assert!((towards - expected(&|s, unit| answer(&before, s, unit))).abs() < 1e-5);
        }
    }

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
        problem.aim(&[Aim { scale: 0.5, place: place.clone(), sums }]).unwrap();
        assert_ne!(before, solve(&mut problem, 1e-3));
        let sums = first.cross().chunks(units).flat_map(|row| [row[1], row[0]]).collect();
        problem.aim(&[Aim { scale: 0.5, place: place.clone(), sums }]).unwrap();
        assert_eq!(before, solve(&mut problem, 1e-3));
        problem.add(&second, 0.5, &place, Targets::Outputs(&[1, 0])).unwrap();
        assert_eq!(solve(&mut new(&[&first, &second]), 1e-3), solve(&mut problem, 1e-3));
    }
}
