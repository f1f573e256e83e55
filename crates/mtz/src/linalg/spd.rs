//! Symmetric positive (semi)definite systems, by Cholesky's factorization.

use crate::error::{Error, Result};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::{MatMut, MatRef, Par};
use rayon::prelude::*;

/// A = L Lᵀ.
#[derive(Clone, Debug)]
pub struct Factor {
    size: usize,
    /// L in the lower triangle, column by column.
    lower: Vec<f64>,
}

/// Never so far beyond the mean of the diagonal: then there is nothing to solve.
pub(crate) const LARGEST_RIDGE: f64 = 1e3;

impl Factor {
    /// Factors a symmetric matrix; `None` if it is not positive definite.
    pub fn new(matrix: Vec<f64>, size: usize) -> Option<Self> {
        let mut lower = matrix;
        let a = MatMut::from_column_major_slice_mut(&mut lower, size, size);
        let par = Par::rayon(0);
        let mut memory = MemBuffer::new(llt::factor::cholesky_in_place_scratch::<f64>(size, par, Default::default()));
        let stack = MemStack::new(&mut memory);
        llt::factor::cholesky_in_place(a, Default::default(), par, stack, Default::default()).ok()?;
        // Beyond rounding, a pivot says nothing: it only makes the result large.
        let pivots = || (0..size).map(|i| lower[i * size + i]);
        let largest = pivots().fold(0.0, f64::max);
        pivots().all(|p| p.is_finite() && p > 1e-8 * largest).then_some(Self { size, lower })
    }

    /// Lᵀ, row by row.
    pub fn upper(mut self) -> Vec<f64> {
        // Columns of L are rows of Lᵀ; what stands above the diagonal of L is left over from A.
        for (i, row) in self.lower.chunks_mut(self.size.max(1)).enumerate() {
            row[..i].fill(0.0);
        }
        self.lower
    }

    /// X with A X = B, in place; B is size × columns, row by row.
    pub fn solve(&self, b: &mut [f64], columns: usize) {
        let l = MatRef::from_column_major_slice(&self.lower, self.size, self.size);
        let rhs = MatMut::from_row_major_slice_mut(b, self.size, columns);
        llt::solve::solve_in_place(
            l,
            rhs,
            Par::rayon(0),
            MemStack::new(&mut MemBuffer::new(faer::dyn_stack::StackReq::EMPTY)),
        );
    }

    /// L⁻¹ B, in place; B is size × columns, row by row.
    pub fn solve_lower(&self, b: &mut [f64], columns: usize) {
        let l = MatRef::from_column_major_slice(&self.lower, self.size, self.size);
        let rhs = MatMut::from_row_major_slice_mut(b, self.size, columns);
        faer::linalg::triangular_solve::solve_lower_triangular_in_place(l, rhs, Par::rayon(0));
    }
}

/// A solution and what had to be done to find it.
#[derive(Clone, Debug)]
pub struct Solved {
    /// Row by row.
    pub x: Vec<f64>,
    /// The ridge that was added to the diagonal, relative to its mean.
    pub ridge: f64,
    /// Whether that was more than asked for.
    pub raised: bool,
}

/// A + μ I with μ = ridge · mean(diag A), factored once for any number of right sides.
///
/// Where A has a zero on its diagonal (a dead input), the solution stays at the prior. If A is not definite even so,
/// the ridge is raised until it is.
#[derive(Clone, Debug)]
pub struct System {
    size: usize,
    /// Inputs that are not dead.
    live: Vec<usize>,
    mu: f64,
    /// The ridge that was needed, and whether that is more than asked for.
    ridge: f64,
    raised: bool,
    /// `None` if all inputs are dead.
    factor: Option<Factor>,
}

impl System {
    /// Factors A, which is size × size.
    pub fn new(a: &[f64], size: usize, ridge: f64) -> Result<Self> {
        if a.len() != size * size {
            return Err(Error::usage("matrix sizes do not fit together"));
        }
        finite(a)?;
        let live: Vec<usize> = (0..size).filter(|&i| a[i * size + i] > 0.0).collect();
        let n = live.len();
        if n == 0 {
            return Ok(Self { size, live, mu: 0.0, ridge, raised: false, factor: None });
        }
        let mean = live.iter().map(|&i| a[i * size + i]).sum::<f64>() / n as f64;
        let asked = ridge.max(1e-12);
        let mut now = asked;
        while now <= LARGEST_RIDGE {
            let mu = now * mean;
            let mut system = vec![0.0; n * n];
            system.par_chunks_mut(n).zip(&live).enumerate().for_each(|(k, (row, &i))| {
                row.iter_mut().zip(&live).for_each(|(x, &j)| *x = a[i * size + j]);
                row[k] += mu;
            });
            if let Some(factor) = Factor::new(system, n) {
                return Ok(Self { size, live, mu, ridge: now, raised: now > asked, factor: Some(factor) });
            }
            now *= 10.0;
        }
        Err(Error::data("the statistics of a layer cannot be inverted").hint("use more `calibration` samples"))
    }

    /// Minimises ½ tr Xᵀ A X − tr Xᵀ B + ½ μ ‖X − X₀‖²: the system (A + μ I) X = B + μ X₀. B and the prior X₀ are size
    /// × columns, row by row.
    pub fn solve(&self, b: &[f64], prior: &[f64], columns: usize) -> Result<Solved> {
        if b.len() != self.size * columns || prior.len() != b.len() {
            return Err(Error::usage("matrix sizes do not fit together"));
        }
        finite(b)?;
        let mut x = prior.to_vec();
        if let (Some(factor), true) = (&self.factor, columns > 0) {
            let mut right = vec![0.0; self.live.len() * columns];
            right.par_chunks_mut(columns).zip(&self.live).for_each(|(row, &i)| {
                let given = b[i * columns..].iter().zip(&prior[i * columns..]);
                row.iter_mut().zip(given).for_each(|(x, (b, prior))| *x = b + self.mu * prior);
            });
            factor.solve(&mut right, columns);
            for (right, &i) in right.chunks(columns).zip(&self.live) {
                x[i * columns..][..columns].copy_from_slice(right);
            }
        }
        Ok(Solved { x, ridge: self.ridge, raised: self.raised })
    }
}

fn finite(numbers: &[f64]) -> Result<()> {
    if numbers.par_iter().with_min_len(1 << 16).all(|x| x.is_finite()) {
        return Ok(());
    }
    Err(Error::data("the statistics of a layer are not finite")
        .hint("does the network compute infinities or NaN on this data?"))
}

/// Solves a [`System`] once.
pub fn solve_towards(a: &[f64], b: &[f64], prior: &[f64], size: usize, columns: usize, ridge: f64) -> Result<Solved> {
    System::new(a, size, ridge)?.solve(b, prior, columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    fn gram(size: usize, samples: usize) -> Vec<f64> {
        let x: Vec<f64> = (0..(size * samples) as u64).map(|i| f64::from(random::normal(3, i))).collect();
        let mut a = vec![0.0; size * size];
        for s in x.chunks(size) {
            for i in 0..size {
                for j in 0..size {
                    a[i * size + j] += s[i] * s[j];
                }
            }
        }
        a
    }

    #[test]
    fn solutions_solve() {
        let (size, columns) = (40, 3);
        let a = gram(size, 100);
        let b: Vec<f64> = (0..size * columns).map(|i| i as f64).collect();
        let x = solve_towards(&a, &b, &vec![0.0; b.len()], size, columns, 1e-12).unwrap().x;
        for i in 0..size {
            for c in 0..columns {
                let got: f64 = (0..size).map(|j| a[i * size + j] * x[j * columns + c]).sum();
                assert!((got - b[i * columns + c]).abs() < 1e-6);
            }
        }
    }

    /// A dead input keeps the prior; directions the data says nothing about stay at the prior too.
    #[test]
    fn singular_systems_stay_at_the_prior() {
        let size = 5;
        let mut a = vec![0.0; size * size];
        a[0] = 2.0; // input 0 alone is seen; 1 and 2 only together; 3 and 4 never
        for (i, j) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            a[i * size + j] = 1.0;
        }
        let prior = [1.0, 3.0, 1.0, 7.0, -7.0];
        let b = [4.0, 6.0, 6.0, 0.0, 0.0];
        let solved = solve_towards(&a, &b, &prior, size, 1, 1e-9).unwrap();
        let expected = [2.0, 4.0, 2.0, 7.0, -7.0]; // x₁ + x₂ = 6, moved equally from the prior
        assert!(solved.x.iter().zip(expected).all(|(x, e)| (x - e).abs() < 1e-3), "{:?}", solved.x);
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let size = 600;
        let a = gram(size, 650);
        let b: Vec<f64> = (0..size * 40).map(|i| (i % 17) as f64).collect();
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| solve_towards(&a, &b, &vec![0.0; b.len()], size, 40, 1e-9).unwrap().x)
        };
        assert!(run(1) == run(3), "the solution depends on the number of threads");
    }
}
