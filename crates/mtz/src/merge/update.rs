//! The paper's weight update f: the weights that a shared unit gets.
//!
//! f: `w* = (G_A + G_B)⁻¹ (G_A w_A + G_B w_B)` minimises the sum of both layer errors ½ (w − w_T)ᵀ G_T (w − w_T). Gram
//! matrices are singular on real data; only their sum is inverted, with a ridge towards the old weights.

use super::Merged;
use super::least_squares::{Problem, Targets};
use super::system::{JointUnit, LayerSystem, Zeros, alone, owners_of};
use crate::error::Result;
use crate::random;
use crate::sharing::by_owner_set;

impl LayerSystem<'_> {
    /// The paper's f for the units that task t has just joined: weights from the columns that both sides have become
    /// one, all others stay. Only owners of a unit have a say in it.
    pub(super) fn merge_shared(&mut self, pool: &[JointUnit], t: usize, ridge: f64, report: &mut Merged) -> Result<()> {
        let joined = joined(pool, t).into_iter().map(|unit| (owners_of(&unit), unit));
        for (owners, joined) in by_owner_set(joined) {
            let before: Vec<usize> = owners.iter().filter(|s| *s != t).collect();
            self.merge_joined(&joined, &before, t, ridge, report)?;
        }
        Ok(())
    }

    /// The same for units that task t has joined to those of the tasks `owners`.
    pub(super) fn merge_joined(
        &mut self,
        joined: &[JointUnit],
        owners: &[usize],
        t: usize,
        ridge: f64,
        report: &mut Merged,
    ) -> Result<()> {
        let common = self.common(owners, t);
        let place = self.places(&common);
        let mut problem = Problem::new(common.len(), joined.len(), self.dual);
        let by_column = |weight: &dyn Fn(&JointUnit, usize) -> f64| -> Vec<f64> {
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
    pub(super) fn choose_one(&mut self, pool: &[JointUnit], t: usize, seed: u64) {
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
}

/// The units that task t shares with a task before it, without the tasks behind it.
fn joined(pool: &[JointUnit], t: usize) -> Vec<JointUnit> {
    let joined = pool.iter().filter(|o| o[t].is_some() && o[..t].iter().any(Option::is_some));
    joined.map(|o| o[..=t].to_vec()).collect()
}
