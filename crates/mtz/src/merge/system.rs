//! One layer of all tasks with its inputs in joint numbers, and the least-squares problems that can be put to it.

use super::Merged;
use super::least_squares::{Problem, Targets};
use crate::error::{Error, Result};
use crate::sharing::{Column, Joint, OwnerSet};
use crate::statistics::{KeptSamples, LayerStatistics, Moments};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Columns that are turned at a time.
const TILE: usize = 64;

/// A joint unit: for each task, which of its units that is.
pub type JointUnit = Vec<Option<usize>>;

/// A unit that only task t has.
pub fn alone(tasks: usize, t: usize, unit: usize) -> JointUnit {
    (0..tasks).map(|s| (s == t).then_some(unit)).collect()
}

/// The tasks that own a joint unit.
pub fn owners_of(unit: &[Option<usize>]) -> OwnerSet {
    unit.iter().enumerate().filter(|(_, u)| u.is_some()).map(|(t, _)| t).collect()
}

/// One layer of all tasks.
pub struct LayerSystem<'a> {
    pub(super) tasks: Vec<TaskLayer<'a>>,
    /// Joint columns in all.
    pub(super) count: usize,
    /// Whether samples are kept instead of sums.
    pub(super) dual: bool,
}

/// When the solution of a sparse layer learns of its zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeros {
    /// Before: least squares on the connections that stay.
    Known,
    /// Afterwards, as in the paper: the dense solution loses the others.
    Afterwards,
}

/// One layer of one task.
pub(super) struct TaskLayer<'a> {
    /// The joint number of each column.
    pub(super) columns: Vec<usize>,
    /// For each joint column, whether the task has it.
    pub(super) has: Vec<bool>,
    pub(super) moments: &'a Moments,
    pub(super) samples: Option<&'a KeptSamples>,
    /// a_t / n_t.
    pub(super) scale: f64,
    pub(super) units: usize,
    /// Units × joint columns: the weights it has now, with the normalisation behind the layer folded in; zero where it
    /// has no such column.
    pub(super) weights: Vec<f32>,
    /// The weights it had at first.
    pub(super) before: Vec<f32>,
    /// Which units have new ones.
    pub(super) changed: Vec<bool>,
    /// Units × joint columns: which weights a sparse layer has. `None` if the layer is dense.
    pub(super) mask: Option<Vec<bool>>,
}

impl TaskLayer<'_> {
    /// Places of joint columns, in the order of the task's own.
    pub(super) fn placed(&self, place: &[Option<usize>]) -> Vec<Option<usize>> {
        self.columns.iter().map(|&column| place[column]).collect()
    }
}

impl<'a> LayerSystem<'a> {
    /// Gives columns their joint numbers and checks that the moments fit.
    pub fn new(joint: &Joint, layer: usize, seen: &'a [LayerStatistics], weights: &[f64]) -> Result<Self> {
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
            tasks.push(TaskLayer {
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

    /// Weights of a task's units in the order of its own columns, a bias behind them.
    pub(super) fn rows(&self, t: usize, units: &[usize], weights: &[f32]) -> Vec<Vec<f64>> {
        let task = &self.tasks[t];
        let row = |&unit: &usize| {
            let row = &weights[unit * self.count..][..self.count];
            let own = task.columns.iter().map(|&column| f64::from(row[column]));
            own.chain((task.columns.len() < task.moments.size()).then_some(0.0)).collect()
        };
        units.par_iter().map(row).collect()
    }

    /// Solves for the weights of `units` from `columns` and takes them over. In a sparse layer each unit keeps the
    /// connections of that owner who has most (the paper's rule), and the others stay zero.
    pub(super) fn solve(
        &mut self,
        problem: &mut Problem,
        columns: &[usize],
        units: &[JointUnit],
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

    /// The weights that `units` have now, columns × units. Weights lie unit by unit: some columns at a time are turned,
    /// so that memory is read in order.
    pub(super) fn prior(&self, columns: &[usize], units: &[JointUnit]) -> Vec<f64> {
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
    pub(super) fn take_over(&mut self, x: &[f64], columns: &[usize], units: &[JointUnit]) {
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
    pub(super) fn supports(&self, columns: &[usize], units: &[JointUnit]) -> Option<Vec<bool>> {
        let owned =
            |owners: &JointUnit| owners.iter().enumerate().filter_map(|(t, u)| u.map(|u| (t, u))).collect::<Vec<_>>();
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

    pub(super) fn add(&self, problem: &mut Problem, t: usize, place: &[Option<usize>], targets: Targets) -> Result<()> {
        let task = &self.tasks[t];
        problem.add(task.moments, task.scale, &task.placed(place), targets)
    }

    pub(super) fn set(&mut self, owners: &JointUnit, column: usize, weight: f64) {
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
    pub(super) fn pool_weight(&self, owners: &[Option<usize>], column: usize) -> f64 {
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
    pub(super) fn common(&self, owners: &[usize], t: usize) -> Vec<usize> {
        (0..self.count).filter(|&c| self.tasks[t].has[c] && owners.iter().any(|s| self.tasks[*s].has[c])).collect()
    }

    /// Where each joint column stands among the chosen ones.
    pub(super) fn places(&self, chosen: &[usize]) -> Vec<Option<usize>> {
        let mut place = vec![None; self.count];
        chosen.iter().enumerate().for_each(|(i, &column)| place[column] = Some(i));
        place
    }
}
