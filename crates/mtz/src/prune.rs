//! Sparse networks: layer-wise optimal brain surgeon, one layer after the other.
//!
//! A layer's own squared error has the Hessian H = Σ x xᵀ of its inputs. Removing weight p and moving the others as
//! well as possible costs `w_p² / (2 [H⁻¹]_pp)` (Hassibi and Stork 1993; Dong, Chen and Pan 2017, layer by layer). The
//! cheapest weights of a layer go, then the rest of each unit is solved again on what it still has, so that later
//! choices know of earlier ones. Every layer is fitted to the original network's answers on the inputs the pruned
//! network gives it.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::linalg::Factor;
use crate::linalg::matrix::product;
use crate::merge::{Problem, Targets};
use crate::sharing::{Layer, Refit};
use crate::statistics::{ActivationCaches, Calibration, Moments, answer_statistics, bytes_per_image, layer_statistics};
use crate::tensor::Tensor;
use rayon::prelude::*;
use std::ops::ControlFlow;
use std::time::Instant;

/// How to choose the weights that go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By what removing them costs, compensated.
    BrainSurgeon,
    /// The smallest, nothing else changed: what everything is compared with.
    Magnitude,
}

/// What happened to a layer.
#[derive(Clone, Debug)]
pub struct PrunedLayer {
    /// Its name.
    pub name: String,
    /// Weights it had, biases aside.
    pub weights: usize,
    /// Weights that are left.
    pub kept: usize,
    /// Squared error of the layer's answers relative to their square; NaN where it was not measured.
    pub error: f64,
    /// What it took.
    pub seconds: f64,
}

/// A sparse network.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// The network, zeros where there is no connection.
    pub graph: Graph,
    /// Layer by layer.
    pub layers: Vec<PrunedLayer>,
}

/// Of what is left, a round removes so much.
const ROUND: f64 = 0.25;
/// Multiply-adds the exact rounds of a layer may take; above that, one pass in blocks chooses.
const EXACT: f64 = 2e12;
/// Columns whose weights are chosen together in that pass.
const BLOCK: usize = 128;
/// Relative to the mean of the diagonal.
const RIDGE: f64 = 1e-4;

/// Removes a share of every layer's weights: `sparsity[l]` of layer l; where that is 0 the layer stays as it is.
/// `memory` bounds what the statistics of a layer may take. `listen` hears which layer is at work.
pub fn prune(
    original: &Graph,
    from: &Calibration,
    sparsity: &[f64],
    method: Method,
    memory: u64,
    mut progress: impl FnMut(usize, &Layer) -> ControlFlow<()>,
) -> Result<Pruned> {
    let layers = Layer::all(original)?;
    if layers.len() != sparsity.len() || sparsity.iter().any(|s| !(0.0..1.0).contains(s)) {
        return Err(Error::usage("every layer needs a sparsity from 0 to below 1"));
    }
    if method == Method::BrainSurgeon {
        let at_work = layers.iter().zip(sparsity).filter(|(_, s)| **s > 0.0).map(|(l, _)| l);
        check_memory(at_work, 0, memory, "`memory` sets the limit; `method` magnitude needs no statistics")?;
    }
    let (mut graph, mut done, mut caches) = (original.clone(), Vec::new(), ActivationCaches::default());
    for (i, (layer, &sparsity)) in layers.iter().zip(sparsity).enumerate() {
        if progress(i, layer).is_break() {
            return Err(Error::cancelled());
        }
        let weights = layer.units * layer.columns();
        let kept = weights - (weights as f64 * sparsity).round() as usize;
        let begin = Instant::now();
        let error = match method {
            _ if kept == weights => f64::NAN,
            Method::Magnitude => {
                graph = by_magnitude(&graph, layer, kept)?;
                f64::NAN
            }
            Method::BrainSurgeon => {
                let from = bounded(from, original, &layers, memory);
                let seen = layer_statistics(&graph, Some(original), layer, &from, &mut caches)?.moments;
                let rows: Vec<f64> = layer.folded(&graph).into_iter().map(f64::from).collect();
                let (rows, error) = Surgeon::new(layer, &seen)?.operate(&rows, kept)?;
                graph = layer.write(&graph, &refits(&rows, layer, &seen))?;
                error
            }
        };
        let seconds = begin.elapsed().as_secs_f64();
        done.push(PrunedLayer { name: layer.name.clone(), weights, kept, error, seconds });
    }
    Ok(Pruned { graph, layers: done })
}

/// Refuses layers whose systems do not fit, with `beside` bytes for something else.
fn check_memory<'l>(layers: impl Iterator<Item = &'l Layer>, in_addition: u64, memory: u64, hint: &str) -> Result<()> {
    let need = |layer: &Layer| needed(layer).saturating_add(in_addition);
    match layers.max_by_key(|l| need(l)).filter(|l| need(l) > memory) {
        None => Ok(()),
        Some(layer) => {
            let need = need(layer).div_ceil(1 << 20);
            let text = format!("{} inputs need {need} MiB, {} MiB are allowed", layer.columns(), memory >> 20);
            Err(Error::limit(text).at_node(&layer.name).hint(hint))
        }
    }
}

/// Statistics as sums, in batches that fit.
fn bounded<'a>(from: &Calibration<'a>, graph: &Graph, layers: &[Layer], memory: u64) -> Calibration<'a> {
    let images = from.samples.len();
    let patches = layers.iter().map(|l| bytes_per_image(graph, l, images)).max().unwrap_or(0);
    let from = Calibration { keep: false, kept_values: 0, ..from.clone() };
    from.within(memory / 2, memory / 4, graph, patches)
}

/// How much of each layer goes if `sparsity` of all weights go, those that cost least relative to what their layer
/// answers. No layer loses more than 99 %. `memory` bounds what the statistics of a layer may take.
pub fn allocate(
    original: &Graph,
    from: &Calibration,
    sparsity: f64,
    memory: u64,
    mut progress: impl FnMut(usize, &Layer) -> ControlFlow<()>,
) -> Result<Vec<f64>> {
    let layers = Layer::all(original)?;
    let weights: usize = layers.iter().map(|l| l.units * l.columns()).sum();
    let listed = (weights * size_of::<(f64, usize)>()) as u64;
    check_memory(
        layers.iter(),
        listed,
        memory,
        "`memory` sets the limit; without `global` wide layers may stay dense",
    )?;
    let from = bounded(from, original, &layers, memory - listed);
    let (mut costs, mut caches): (Vec<(f64, usize)>, _) = (Vec::with_capacity(weights), ActivationCaches::default());
    for (i, layer) in layers.iter().enumerate() {
        if progress(i, layer).is_break() {
            return Err(Error::cancelled());
        }
        let seen = layer_statistics(original, Some(original), layer, &from, &mut caches)?.moments;
        let rows: Vec<f64> = layer.folded(original).into_iter().map(f64::from).collect();
        let scale = seen.squares().max(f64::MIN_POSITIVE) / seen.samples() as f64;
        let own = Surgeon::new(layer, &seen)?.costs(&rows, &vec![true; rows.len()])?;
        let weights = own.into_iter().enumerate().filter(|(k, _)| k % (layer.columns() + 1) != layer.columns());
        costs.extend(weights.map(|(_, cost)| (cost / scale, i)));
    }
    costs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut gone = vec![0usize; layers.len()];
    let wanted = (costs.len() as f64 * sparsity).round() as usize;
    costs.iter().take(wanted).for_each(|(_, layer)| gone[*layer] += 1);
    let share = |(layer, gone): (&Layer, &usize)| *gone as f64 / (layer.units * layer.columns()).max(1) as f64;
    Ok(layers.iter().zip(&gone).map(share).map(|s| s.min(0.99)).collect())
}

/// Bytes that pruning a layer takes: Gram matrix, its inverse and a factor, in f64, and weights with their costs.
pub fn needed(layer: &Layer) -> u64 {
    let size = layer.columns() as u64 + 1;
    4 * 8 * size * size + 3 * 8 * size * layer.units as u64
}

/// The layer's largest weights, nothing else changed.
fn by_magnitude(graph: &Graph, layer: &Layer, kept: usize) -> Result<Graph> {
    let (rows, columns) = (layer.read(graph), layer.columns());
    let scores: Vec<f64> = rows.iter().map(|w| f64::from(w.abs())).collect();
    let keep = strongest(&scores, &vec![true; rows.len()], columns, kept);
    graph.with_constants(|id, tensor| {
        let mut data = tensor.data().to_vec();
        if id == layer.weight {
            for (unit, keep) in keep.chunks(columns + 1).enumerate() {
                (0..columns).filter(|&k| !keep[k]).for_each(|k| data[layer.place(unit, k)] = 0.0);
            }
        }
        Tensor::new(tensor.shape().to_vec(), data)
    })
}

/// All units with new weights.
fn refits(rows: &[f64], layer: &Layer, seen: &Moments) -> Vec<Refit> {
    let rows: Vec<Vec<f64>> = rows.chunks(layer.columns() + 1).map(<[f64]>::to_vec).collect();
    let spreads = match layer.norm {
        Some(_) => answer_statistics(seen, &rows),
        None => vec![(0.0, 1.0); rows.len()],
    };
    rows.iter().zip(spreads).enumerate().map(|(unit, (row, spread))| Refit::new(unit, row, 1.0, spread)).collect()
}

/// The `kept` weights with the highest scores among those that are left; biases (the last of each row) always stay.
fn strongest(scores: &[f64], left: &[bool], columns: usize, kept: usize) -> Vec<bool> {
    let is_bias = |i: usize| i % (columns + 1) == columns;
    let mut order: Vec<usize> = (0..scores.len()).filter(|&i| left[i] && !is_bias(i)).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let mut keep: Vec<bool> = (0..scores.len()).map(is_bias).collect();
    order.into_iter().take(kept).for_each(|i| keep[i] = true);
    keep
}

/// One layer: its statistics and the least-squares problem they pose.
struct Surgeon<'a> {
    columns: usize,
    units: usize,
    moments: &'a Moments,
    problem: Problem,
    /// H, with a ridge.
    hessian: Vec<f64>,
}

impl<'a> Surgeon<'a> {
    fn new(layer: &Layer, moments: &'a Moments) -> Result<Self> {
        let (columns, units) = (layer.columns(), layer.units);
        if moments.samples() == 0 {
            return Err(Error::data("there are no samples").at_node(&layer.name));
        }
        let (size, scale) = (columns + 1, 1.0 / moments.samples() as f64);
        // A layer without a bias has no constant input.
        let place: Vec<Option<usize>> = (0..size).map(|k| (k < columns || layer.has_offset()).then_some(k)).collect();
        let mut problem = Problem::new(size, units, false);
        problem.add(moments, scale, &place, Targets::Outputs(&(0..units).collect::<Vec<_>>()))?;
        let mut hessian = vec![0.0; size * size];
        for (i, row) in hessian.chunks_mut(size).enumerate() {
            row.iter_mut().zip(moments.row(i).iter()).for_each(|(h, product)| *h = scale * product);
        }
        let mean = (0..size).map(|i| hessian[i * size + i]).sum::<f64>() / size as f64;
        (0..size).for_each(|i| hessian[i * size + i] += RIDGE * mean.max(f64::MIN_POSITIVE));
        Ok(Self { columns, units, moments, problem, hessian })
    }

    /// The layer with `kept` weights, and the relative error of its answers.
    fn operate(&self, rows: &[f64], kept: usize) -> Result<(Vec<f64>, f64)> {
        let size = self.columns + 1;
        let mut keep = vec![true; rows.len()];
        let mut rows = self.solve(rows, &keep)?;
        let exact = 2.0 * self.units as f64 * (size as f64).powi(3) < EXACT;
        let mut left = self.units * self.columns;
        while left > kept {
            left = if exact { kept.max((left as f64 * (1.0 - ROUND)) as usize) } else { kept };
            keep = if exact {
                strongest(&self.costs(&rows, &keep)?, &keep, self.columns, left)
            } else {
                self.choose_in_blocks(&rows, kept)?
            };
            rows = self.solve(&rows, &keep)?;
        }
        let error = self.relative_error(&rows);
        Ok((rows, error))
    }

    /// Every unit's best weights on what it has.
    fn solve(&self, rows: &[f64], keep: &[bool]) -> Result<Vec<f64>> {
        let turn = |i: usize| (i % self.units) * (self.columns + 1) + i / self.units;
        let prior: Vec<f64> = (0..rows.len()).map(|i| rows[turn(i)]).collect();
        let keep: Vec<bool> = (0..rows.len()).map(|i| keep[turn(i)]).collect();
        let solved = self.problem.solve_on(&keep, &prior, RIDGE)?.x;
        let mut rows = vec![0.0; rows.len()];
        solved.iter().enumerate().for_each(|(i, x)| rows[turn(i)] = *x);
        Ok(rows)
    }

    /// `w_p² / (2 [H⁻¹]_pp)`, H restricted to what the unit still has.
    fn costs(&self, rows: &[f64], keep: &[bool]) -> Result<Vec<f64>> {
        let size = self.columns + 1;
        // At first all units have everything: one inverse is enough.
        let first =
            keep.iter().all(|k| *k).then(|| self.inverse_diagonal(&(0..size).collect::<Vec<_>>())).transpose()?;
        let costs: Result<Vec<Vec<f64>>> = rows
            .par_chunks(size)
            .zip(keep.par_chunks(size))
            .map(|(row, keep)| {
                let support: Vec<usize> = (0..size).filter(|&k| keep[k]).collect();
                let own = match &first {
                    Some(diagonal) => diagonal.clone(),
                    None => self.inverse_diagonal(&support)?,
                };
                let mut costs = vec![0.0; size];
                support.iter().zip(own).for_each(|(&k, inverse)| costs[k] = row[k] * row[k] / (2.0 * inverse));
                Ok(costs)
            })
            .collect();
        Ok(costs?.concat())
    }

    /// The diagonal of H⁻¹ on some columns: with H = L Lᵀ, the squared length of each column of L⁻¹.
    fn inverse_diagonal(&self, support: &[usize]) -> Result<Vec<f64>> {
        let (size, n) = (self.columns + 1, support.len());
        let part: Vec<f64> = support
            .iter()
            .flat_map(|&i| support.iter().map(move |&j| (i, j)))
            .map(|(i, j)| self.hessian[i * size + j])
            .collect();
        let factor = Factor::new(part, n).ok_or_else(|| Error::data("the statistics of a layer cannot be inverted"))?;
        let mut inverse = vec![0.0; n * n];
        (0..n).for_each(|i| inverse[i * n + i] = 1.0);
        factor.solve_lower(&mut inverse, n);
        let mut diagonal = vec![0.0; n];
        inverse.chunks(n.max(1)).for_each(|row| diagonal.iter_mut().zip(row).for_each(|(d, x)| *d += x * x));
        Ok(diagonal)
    }

    /// Which weights stay, decided in one pass over the columns: with H⁻¹ = Uᵀ U, removing column i costs w_i² / U_ii²
    /// and the columns behind it take over `−w_i / U_ii · U_i` (Frantar and Alistarh 2023). Of each block the same
    /// share goes.
    fn choose_in_blocks(&self, rows: &[f64], kept: usize) -> Result<Vec<bool>> {
        let (size, units) = (self.columns + 1, self.units);
        let upper = self.inverse_factor()?;
        let share = kept as f64 / (units * self.columns).max(1) as f64;
        let (mut rows, mut keep) = (rows.to_vec(), vec![true; rows.len()]);
        for start in (0..self.columns).step_by(BLOCK) {
            let end = (start + BLOCK).min(self.columns);
            let width = end - start;
            let score = |row: &[f64], k: usize| (row[k] / upper[k * size + k]).powi(2);
            let scores: Vec<f64> =
                rows.chunks(size).flat_map(|row| (start..end).map(move |k| score(row, k)).chain([0.0])).collect();
            let stay = (share * (units * width) as f64).round() as usize;
            let chosen = strongest(&scores, &vec![true; scores.len()], width, stay);
            // Inside the block at once; the columns behind it hear of all its errors in one product.
            let mut errors = vec![0.0; units * width];
            let work = rows.par_chunks_mut(size).zip(keep.par_chunks_mut(size)).zip(chosen.par_chunks(width + 1));
            work.zip(errors.par_chunks_mut(width)).for_each(|(((row, keep), chosen), errors)| {
                for (k, _) in (start..end).zip(chosen).filter(|(_, stays)| !**stays) {
                    keep[k] = false;
                    let error = row[k] / upper[k * size + k];
                    errors[k - start] = error;
                    row[k..end].iter_mut().zip(&upper[k * size + k..]).for_each(|(w, u)| *w -= error * u);
                }
            });
            let behind: Vec<f64> = (start..end).flat_map(|k| &upper[k * size + end..(k + 1) * size]).copied().collect();
            let taken = product(&errors, &behind, units, width, size - end);
            rows.par_chunks_mut(size)
                .zip(taken.par_chunks(size - end))
                .for_each(|(row, taken)| row[end..].iter_mut().zip(taken).for_each(|(w, t)| *w -= t));
        }
        Ok(keep)
    }

    /// U with H⁻¹ = Uᵀ U.
    fn inverse_factor(&self) -> Result<Vec<f64>> {
        let size = self.columns + 1;
        let singular = || Error::data("the statistics of a layer cannot be inverted");
        let factor = Factor::new(self.hessian.clone(), size).ok_or_else(singular)?;
        let mut inverse = vec![0.0; size * size];
        (0..size).for_each(|i| inverse[i * size + i] = 1.0);
        factor.solve(&mut inverse, size);
        let factor = Factor::new(inverse, size).ok_or_else(singular)?;
        Ok(factor.upper())
    }

    /// Σ (w x − y)² / Σ (wᵒ x)², both from the moments: the second with the best dense weights.
    fn relative_error(&self, rows: &[f64]) -> f64 {
        let (size, outputs) = (self.columns + 1, self.moments.outputs());
        let cross = self.moments.cross();
        let gram: Vec<f64> = (0..size).flat_map(|i| self.moments.row(i).into_owned()).collect();
        let seen = product(rows, &gram, self.units, size, size);
        let square: f64 = rows.iter().zip(&seen).map(|(w, s)| w * s).sum();
        let fits: f64 = rows.iter().enumerate().map(|(i, w)| w * cross[i % size * outputs + i / size]).sum();
        (self.moments.squares() - 2.0 * fits + square).max(0.0) / self.moments.squares().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{self, NetworkSpec};
    use crate::random;

    /// Solves A x = b by elimination with row exchange.
    fn eliminate(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
        let n = b.len();
        for i in 0..n {
            let pivot = (i..n).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs())).unwrap();
            a.swap(i, pivot);
            b.swap(i, pivot);
            let (top, bottom) = a.split_at_mut(i + 1);
            for (row, k) in bottom.iter_mut().zip(i + 1..) {
                let factor = row[i] / top[i][i];
                row.iter_mut().zip(&top[i]).for_each(|(x, y)| *x -= factor * y);
                b[k] -= factor * b[i];
            }
        }
        for i in (0..n).rev() {
            let rest: f64 = (i + 1..n).map(|j| a[i][j] * b[j]).sum();
            b[i] = (b[i] - rest) / a[i][i];
        }
        b
    }

    /// What a removal costs is what it costs when everything else is solved again by brute force; and so are the
    /// weights that stay.
    #[test]
    fn costs_and_weights_are_those_of_brute_force() {
        let shape = NetworkSpec { input: vec![6], outputs: 3, mean: vec![], std: vec![] };
        let graph = architecture::build("lenet-300-100", &shape, 0.02, 1).unwrap();
        let layer = &Layer::all(&graph).unwrap()[0];
        let (columns, units, samples) = (layer.columns(), layer.units, 80);
        let numbers = |seed: u64, n: usize| -> Vec<f32> { (0..n as u64).map(|i| random::normal(seed, i)).collect() };
        let (x, y) = (numbers(1, samples * columns), numbers(2, samples * units));
        let mut seen = Moments::new(columns, units);
        seen.add(&x, &y).unwrap();
        let surgeon = Surgeon::new(layer, &seen).unwrap();
        let size = columns + 1;
        let brute = |unit: usize, support: &[usize]| -> (Vec<f64>, f64) {
            let a = support.iter().map(|&i| support.iter().map(|&j| surgeon.hessian[i * size + j]).collect()).collect();
            let b: Vec<f64> = support.iter().map(|&i| seen.cross()[i * units + unit] / samples as f64).collect();
            let w = eliminate(a, b.clone());
            let gain = -0.5 * w.iter().zip(&b).map(|(w, b)| w * b).sum::<f64>();
            (w, gain)
        };
        let all: Vec<usize> = (0..size).collect();
        let rows: Vec<f64> = (0..units).flat_map(|u| brute(u, &all).0).collect();
        let costs = surgeon.costs(&rows, &vec![true; rows.len()]).unwrap();
        for unit in 0..units {
            for p in 0..columns {
                let rest: Vec<usize> = all.iter().copied().filter(|&k| k != p).collect();
                let expected = brute(unit, &rest).1 - brute(unit, &all).1;
                let ours = costs[unit * size + p];
                assert!((ours - expected).abs() < 1e-6 * (1.0 + expected), "{ours} {expected}");
            }
        }
        let (pruned, _) = surgeon.operate(&rows, units * columns / 2).unwrap();
        for (unit, row) in pruned.chunks(size).enumerate() {
            let support: Vec<usize> = all.iter().copied().filter(|&k| row[k] != 0.0).collect();
            for (w, &k) in brute(unit, &support).0.iter().zip(&support) {
                assert!((w - row[k]).abs() < 1e-3 * (1.0 + w.abs()), "{w} {}", row[k]);
            }
        }
        let left = pruned.chunks(size).flat_map(|row| &row[..columns]).filter(|w| **w != 0.0).count();
        assert_eq!(left, units * columns / 2);
        // The pass in blocks keeps as many.
        let keep = surgeon.choose_in_blocks(&rows, units * columns / 2).unwrap();
        let kept = keep.chunks(size).flat_map(|row| &row[..columns]).filter(|k| **k).count();
        assert_eq!(kept, units * columns / 2);
    }
}
