//! The distance d: what it costs to let two units have the same incoming weights.

use super::least_squares::{Form, Problem, Targets};
use super::system::{JointUnit, LayerSystem, alone, owners_of};
use crate::error::{Error, Result};
use crate::linalg::matrix::{matrix, multiply, product, rows};
use crate::linalg::solve_towards;
use crate::sharing::by_owner_set;
use rayon::prelude::*;

impl LayerSystem<'_> {
    /// d between the pool (rows) and the units of task t (columns). Gram matrices of tasks that do not own a unit say
    /// nothing about it: d is computed for each set of owners.
    pub(super) fn distances(&self, pool: &[JointUnit], t: usize, ridge: f64) -> Result<Vec<f64>> {
        let own = self.tasks[t].units;
        let mut all = vec![0.0; pool.len() * own];
        let sets = pool.iter().enumerate().map(|(p, unit)| (owners_of(unit.get(..t).unwrap_or(unit)), p));
        for (owners, rows) in by_owner_set(sets) {
            let owners: Vec<usize> = owners.iter().collect();
            let units: Vec<JointUnit> = rows.iter().map(|p| pool[*p].clone()).collect();
            let d = self.distances_to(&units, &owners, t, ridge)?;
            for (p, d) in rows.into_iter().zip(d.chunks(own.max(1))) {
                all[p * own..][..own].copy_from_slice(d);
            }
        }
        Ok(all)
    }

    /// The same for units with the same owners.
    pub(super) fn distances_to(&self, pool: &[JointUnit], owners: &[usize], t: usize, ridge: f64) -> Result<Vec<f64>> {
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
        let rows = |units: &[JointUnit]| -> Vec<f64> {
            let row = |u: &JointUnit| common.iter().map(|&column| self.pool_weight(u, column)).collect::<Vec<_>>();
            units.par_iter().flat_map_iter(row).collect()
        };
        let units: Vec<JointUnit> = (0..self.tasks[t].units).map(|j| alone(t + 1, t, j)).collect();
        Ok(distances(&before, &own, &rows(pool), &rows(&units), ridge)?.0)
    }
}

/// d of all pairs, and whether the ridge had to be raised: what it costs task sets A and B together if unit i of A (row
/// i of `a`) and unit j of B (row j of `b`) get the same weights, namely those that cost least.
///
/// * Normal form: `d(i, j) = ½ (aᵢ − bⱼ)ᵀ P (aᵢ − bⱼ)` with the parallel sum `P = A_A (A_A + A_B)⁻¹ A_B`.
/// * Dual form, with μ I added to both matrices: `d(i, j) = ¼ μ ‖δ‖² + μ rᵀ (X Xᵀ + 2 μ I)⁻¹ r`, where X is X_A above
///   X_B, δ = aᵢ − bⱼ, r = ½ X_A δ above −½ X_B δ. (Without μ, samples that are fewer than unknowns cost nothing.)
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
