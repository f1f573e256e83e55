//! One layer of all tasks with its inputs in joint numbers, and the least-squares problems that can be put to it.

use super::{Merged, Recipe, by_owner_set};
use crate::error::{Error, Result};
use crate::linalg::{Aim, Moments, Problem, Samples, Targets, distances, spread};
use crate::plan::{Column, Joint, Layer, Refit};
use crate::random;
use crate::statistics::Seen;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Columns that are turned at a time.
const TILE: usize = 64;

/// A joint unit: for each task, which of its units that is.
pub type Owners = Vec<Option<usize>>;

/// A unit that only task t has.
pub fn alone(tasks: usize, t: usize, unit: usize) -> Owners {
    (0..tasks).map(|s| (s == t).then_some(unit)).collect()
}

/// One layer of all tasks.
pub struct Table<'a> {
    tasks: Vec<Task<'a>>,
    /// Joint columns in all.
    count: usize,
    /// Whether samples are kept instead of sums.
    dual: bool,
}

/// When the solution of a sparse layer learns of its zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeros {
    /// Before: least squares on the connections that stay.
    Known,
    /// Afterwards, as in the paper: the dense solution loses the others.
    Afterwards,
}

/// One layer of one task.
struct Task<'a> {
    /// The joint number of each column.
    columns: Vec<usize>,
    /// For each joint column, whether the task has it.
    has: Vec<bool>,
    moments: &'a Moments,
    samples: Option<&'a Samples>,
    /// a_t / n_t.
    scale: f64,
    units: usize,
    /// Units × joint columns: the weights it has now, with the normalisation behind the layer folded in; zero where it has no such column.
    weights: Vec<f32>,
    /// The weights it had at first.
    before: Vec<f32>,
    /// Which units have new ones.
    changed: Vec<bool>,
    /// Units × joint columns: which weights a sparse layer has. `None` if the layer is dense.
    mask: Option<Vec<bool>>,
}

impl Task<'_> {
    /// Places of joint columns, in the order of the task's own.
    fn placed(&self, place: &[Option<usize>]) -> Vec<Option<usize>> {
        self.columns.iter().map(|&column| place[column]).collect()
    }
}

impl<'a> Table<'a> {
    /// Gives columns their joint numbers and checks that the moments fit.
    pub fn new(joint: &Joint, layer: usize, seen: &'a [Seen], weights: &[f64]) -> Result<Self> {
        let mut numbers: BTreeMap<Column, usize> = BTreeMap::new();
        let mut columns: Vec<Vec<usize>> = Vec::new();
        for task in 0..joint.members.len() {
            let number = |column: &Column| {
                let next = numbers.len();
                *numbers.entry(*column).or_insert(next)
            };
            columns.push(joint.columns(task, layer).iter().map(number).collect());
        }
        let mut count = numbers.len();
        for (member, columns) in joint.members.iter().zip(&mut columns) {
            let at = &member.layers[layer];
            if at.norm.is_some() {
                // The offset of a normalisation is its task's own.
                columns.truncate(at.columns());
                columns.push(count);
                count += 1;
            }
        }
        let mut tasks = Vec::new();
        for ((member, columns), (seen, weight)) in joint.members.iter().zip(columns).zip(seen.iter().zip(weights)) {
            let moments = &seen.moments;
            let at = &member.layers[layer];
            let answers = moments.outputs() == 0 || moments.outputs() == at.units;
            if moments.samples() == 0 || moments.size() != at.columns() + 1 || !answers {
                return Err(Error::data(format!("there are no samples for {}", member.name)).at_node(&at.name));
            }
            let (mut has, mut table) = (vec![false; count], vec![0.0f32; at.units * count]);
            columns.iter().for_each(|&column| has[column] = true);
            for (row, table) in at.folded(&member.graph).chunks(at.columns() + 1).zip(table.chunks_mut(count)) {
                columns.iter().zip(row).for_each(|(&column, &x)| table[column] = x);
            }
            let bias = columns.last().copied().filter(|_| at.has_offset());
            let exists = |(i, x): (usize, &f32)| *x != 0.0 || bias == Some(i % count.max(1));
            let mask = at.is_sparse(&member.graph).then(|| table.iter().enumerate().map(exists).collect());
            let scale = weight / moments.samples() as f64;
            let (before, changed) = (table.clone(), vec![false; at.units]);
            tasks.push(Task {
                columns,
                has,
                moments,
                samples: seen.samples.as_ref(),
                scale,
                units: at.units,
                weights: table,
                before,
                changed,
                mask,
            });
        }
        let dual = tasks.iter().all(|t| t.moments.rows().is_some());
        Ok(Self { tasks, count, dual })
    }

    /// Least squares towards the original answers, for units with the same owners; their weights become the solution. `rounds`: how often it is
    /// solved again for one-sided targets.
    pub fn fit(&mut self, units: &[Owners], ridge: f64, rounds: usize, report: &mut Merged) -> Result<()> {
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
            problem.aim(&targets)?;
            self.solve(&mut problem, &used, units, Zeros::Known, ridge, report)?;
        }
        Ok(())
    }

    /// Targets of some tasks that know of the rectifier behind the layer, as [`Problem::aim`] takes them; `None` where samples were not kept.
    fn one_sided(&self, units: &[Owners], set: &[usize], place: &[Option<usize>]) -> Option<Vec<Aim>> {
        let target = |&t: &usize| {
            let task = &self.tasks[t];
            let samples = task.samples.filter(|_| !self.dual)?;
            let own: Vec<usize> = units.iter().filter_map(|owners| owners[t]).collect();
            let sums = samples.cross(&own, &self.rows(t, &own, &task.weights), &self.rows(t, &own, &task.before));
            Some(Aim { scale: task.scale, place: task.placed(place), sums })
        };
        set.iter().map(target).collect()
    }

    /// Weights of a task's units in the order of its own columns, a bias behind them.
    fn rows(&self, t: usize, units: &[usize], weights: &[f32]) -> Vec<Vec<f64>> {
        let task = &self.tasks[t];
        let row = |&unit: &usize| {
            let row = &weights[unit * self.count..][..self.count];
            let own = task.columns.iter().map(|&column| f64::from(row[column]));
            own.chain((task.columns.len() < task.moments.size()).then_some(0.0)).collect()
        };
        units.par_iter().map(row).collect()
    }

    /// The paper's f for the units that task t has just joined: weights from the columns that both sides have become one, all others stay. Only owners of a
    /// unit have a say in it.
    pub fn merge_shared(&mut self, pool: &[Owners], t: usize, ridge: f64, report: &mut Merged) -> Result<()> {
        for (set, joined) in by_owner_set(&joined(pool, t)) {
            let before: Vec<usize> = set.into_iter().filter(|s| *s != t).collect();
            self.merge_joined(&joined, &before, t, ridge, report)?;
        }
        Ok(())
    }

    /// The same for units that task t has joined to those of the tasks `owners`.
    fn merge_joined(
        &mut self,
        joined: &[Owners],
        owners: &[usize],
        t: usize,
        ridge: f64,
        report: &mut Merged,
    ) -> Result<()> {
        let common = self.common(owners, t);
        let place = self.places(&common);
        let mut problem = Problem::new(common.len(), joined.len(), self.dual);
        let by_column = |weight: &dyn Fn(&Owners, usize) -> f64| -> Vec<f64> {
            common.iter().flat_map(|&column| joined.iter().map(move |owners| weight(owners, column))).collect()
        };
        let before = by_column(&|owners, column| self.pool_weight(&owners[..t], column));
        let own = by_column(&|owners, column| self.pool_weight(&alone(t + 1, t, owners[t].unwrap_or(0)), column));
        for &s in owners {
            self.add(&mut problem, s, &place, Targets::Weights(&before))?;
        }
        self.add(&mut problem, t, &place, Targets::Weights(&own))?;
        self.solve(&mut problem, &common, joined, Zeros::Afterwards, ridge, report)
    }

    /// The paper's baseline: units that task t has just joined take the weights of one of the two sides, at random.
    pub fn choose_one(&mut self, pool: &[Owners], t: usize, seed: u64) {
        for (u, owners) in joined(pool, t).iter().enumerate() {
            let own = random::uniform(seed, u as u64) < 0.5;
            let before: Vec<usize> = (0..t).filter(|s| owners[*s].is_some()).collect();
            for &column in &self.common(&before, t) {
                let side = if own { &alone(t + 1, t, owners[t].unwrap_or(0)) } else { &owners[..t] };
                let weight = self.pool_weight(side, column);
                self.set(owners, column, weight);
            }
        }
    }

    /// d between the pool (rows) and the units of task t (columns). Gram matrices of tasks that do not own a unit say
    /// nothing about it: d is computed for each set of owners.
    pub fn distances(&self, pool: &[Owners], t: usize, ridge: f64) -> Result<Vec<f64>> {
        let own = self.tasks[t].units;
        let mut all = vec![0.0; pool.len() * own];
        let mut rows: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for (p, owners) in pool.iter().enumerate() {
            let set = owners.iter().take(t).enumerate().filter(|(_, u)| u.is_some()).map(|(s, _)| s).collect();
            rows.entry(set).or_default().push(p);
        }
        for (owners, rows) in rows {
            let units: Vec<Owners> = rows.iter().map(|p| pool[*p].clone()).collect();
            let d = self.distances_to(&units, &owners, t, ridge)?;
            for (p, d) in rows.into_iter().zip(d.chunks(own.max(1))) {
                all[p * own..][..own].copy_from_slice(d);
            }
        }
        Ok(all)
    }

    /// The same for units with the same owners.
    fn distances_to(&self, pool: &[Owners], owners: &[usize], t: usize, ridge: f64) -> Result<Vec<f64>> {
        let common = self.common(owners, t);
        if common.is_empty() {
            // Units that see nothing in common share no weight: any two of them are one at no cost.
            return Ok(vec![0.0; pool.len() * self.tasks[t].units]);
        }
        let place = self.places(&common);
        let (mut before, mut own) =
            (Problem::new(common.len(), 0, self.dual), Problem::new(common.len(), 0, self.dual));
        for &s in owners {
            self.add(&mut before, s, &place, Targets::Outputs(&[]))?;
        }
        self.add(&mut own, t, &place, Targets::Outputs(&[]))?;
        let rows = |units: &[Owners]| -> Vec<f64> {
            let row = |u: &Owners| common.iter().map(|&column| self.pool_weight(u, column)).collect::<Vec<_>>();
            units.par_iter().flat_map_iter(row).collect()
        };
        let units: Vec<Owners> = (0..self.tasks[t].units).map(|j| alone(t + 1, t, j)).collect();
        Ok(distances(&before, &own, &rows(pool), &rows(&units), ridge)?.0)
    }

    /// The units of a task that have new weights, as [`Layer::write`] takes them.
    pub fn refits(&self, t: usize, layer: &Layer, recipe: Recipe) -> Vec<Refit> {
        let task = &self.tasks[t];
        let changed: Vec<usize> = (0..task.units).filter(|&unit| task.changed[unit]).collect();
        let rows = |weights: &[f32]| self.rows(t, &changed, weights);
        let mut rows_now = rows(&task.weights);
        let mut scales = vec![1.0; changed.len()];
        let mut spreads = vec![(0.0, 1.0); changed.len()];
        if layer.norm.is_some() {
            spreads = spread(task.moments, &rows_now);
            if recipe == Recipe::Paper {
                // Least squares knows the best scale and offset, the paper's update does not: mean and deviation stay what they were.
                let before = spread(task.moments, &rows(&task.before));
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

    /// Solves for the weights of `units` from `columns` and takes them over. In a sparse layer each unit keeps the connections of that
    /// owner who has most (the paper's rule), and the others stay zero.
    fn solve(
        &mut self,
        problem: &mut Problem,
        columns: &[usize],
        units: &[Owners],
        zeros: Zeros,
        ridge: f64,
        report: &mut Merged,
    ) -> Result<()> {
        let prior = self.prior(columns, units);
        let solved = match (self.supports(columns, units), zeros) {
            (None, _) => problem.solve(&prior, ridge)?,
            (Some(keep), Zeros::Known) => problem.solve_on(&keep, &prior, ridge)?,
            (Some(keep), Zeros::Afterwards) => {
                let mut solved = problem.solve(&prior, ridge)?;
                solved.x.iter_mut().zip(keep).filter(|(_, keep)| !keep).for_each(|(x, _)| *x = 0.0);
                solved
            }
        };
        report.note(solved.ridge, solved.raised);
        self.take_over(&solved.x, columns, units);
        Ok(())
    }

    /// The weights that `units` have now, columns × units. Weights lie unit by unit: some columns at a time are turned, so that memory is read in order.
    fn prior(&self, columns: &[usize], units: &[Owners]) -> Vec<f64> {
        let mut prior = vec![0.0; columns.len() * units.len()];
        let tiles = prior.par_chunks_mut(TILE * units.len().max(1)).zip(columns.par_chunks(TILE));
        tiles.for_each(|(out, columns)| {
            for (k, owners) in units.iter().enumerate() {
                let column =
                    |(i, column): (usize, &usize)| out[i * units.len() + k] = self.pool_weight(owners, *column);
                columns.iter().enumerate().for_each(column);
            }
        });
        prior
    }

    /// Gives the owners of `units` their new weights, which are columns × units.
    fn take_over(&mut self, x: &[f64], columns: &[usize], units: &[Owners]) {
        let count = self.count.max(1);
        for (t, task) in self.tasks.iter_mut().enumerate() {
            let mut solved: Vec<Option<usize>> = vec![None; task.units];
            for (k, owners) in units.iter().enumerate() {
                // Of tasks that have not joined yet nothing is said.
                owners.get(t).copied().flatten().into_iter().for_each(|unit| {
                    solved[unit] = Some(k);
                    task.changed[unit] = true;
                });
            }
            let has = &task.has;
            for (i, columns) in columns.chunks(TILE).enumerate() {
                let rows = task.weights.par_chunks_mut(count).zip(&solved).with_min_len(16);
                rows.for_each(|(row, k)| {
                    let Some(k) = k else { return };
                    for (j, &column) in columns.iter().enumerate().filter(|(_, column)| has[**column]) {
                        row[column] = x[(i * TILE + j) * units.len() + k] as f32;
                    }
                });
            }
        }
    }

    /// Columns × units: which weights a shared unit may have. `None` if an owner is dense.
    fn supports(&self, columns: &[usize], units: &[Owners]) -> Option<Vec<bool>> {
        let owned =
            |owners: &Owners| owners.iter().enumerate().filter_map(|(t, u)| u.map(|u| (t, u))).collect::<Vec<_>>();
        let mut keep = vec![false; columns.len() * units.len()];
        for (k, owners) in units.iter().enumerate() {
            let masks: Option<Vec<(usize, &[bool])>> = owned(owners)
                .into_iter()
                .map(|(t, u)| Some((t, &self.tasks[t].mask.as_ref()?[u * self.count..][..self.count])))
                .collect();
            let masks = masks?;
            // Columns that all owners have are decided together, others by those who have them.
            let common = |column: usize| masks.iter().all(|(t, _)| self.tasks[*t].has[column]);
            let ones = |mask: &[bool]| columns.iter().filter(|&&c| common(c) && mask[c]).count();
            let most = masks.iter().rev().max_by_key(|(_, mask)| ones(mask))?;
            for (i, &column) in columns.iter().enumerate() {
                keep[i * units.len() + k] = if common(column) {
                    most.1[column]
                } else {
                    masks.iter().any(|(t, mask)| self.tasks[*t].has[column] && mask[column])
                };
            }
        }
        Some(keep)
    }

    fn add(&self, problem: &mut Problem, t: usize, place: &[Option<usize>], targets: Targets) -> Result<()> {
        let task = &self.tasks[t];
        problem.add(task.moments, task.scale, &task.placed(place), targets)
    }

    fn set(&mut self, owners: &Owners, column: usize, weight: f64) {
        for (t, unit) in owners.iter().enumerate() {
            if let Some(unit) = unit
                && self.tasks[t].has[column]
            {
                self.tasks[t].weights[unit * self.count + column] = weight as f32;
                self.tasks[t].changed[*unit] = true;
            }
        }
    }

    /// A unit's weight: the mean of its owners'.
    fn pool_weight(&self, owners: &[Option<usize>], column: usize) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for (task, unit) in self.tasks.iter().zip(owners) {
            if let Some(unit) = unit
                && task.has[column]
            {
                sum += f64::from(task.weights[unit * self.count + column]);
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 0.0 }
    }

    /// The columns that both task t and one of the owners have.
    fn common(&self, owners: &[usize], t: usize) -> Vec<usize> {
        (0..self.count).filter(|&c| self.tasks[t].has[c] && owners.iter().any(|s| self.tasks[*s].has[c])).collect()
    }

    /// Where each joint column stands among the chosen ones.
    fn places(&self, chosen: &[usize]) -> Vec<Option<usize>> {
        let mut place = vec![None; self.count];
        chosen.iter().enumerate().for_each(|(i, &column)| place[column] = Some(i));
        place
    }
}

/// The units that task t shares with a task before it, without the tasks behind it.
fn joined(pool: &[Owners], t: usize) -> Vec<Owners> {
    let joined = pool.iter().filter(|o| o[t].is_some() && o[..t].iter().any(Option::is_some));
    joined.map(|o| o[..=t].to_vec()).collect()
}
