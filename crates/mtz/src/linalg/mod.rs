//! Linear algebra in f64: symmetric systems, matrix products and the assignment problem.
//!
//! Everything here is a function of matrices and gives the same bits for any number of threads.

mod assignment;
pub(crate) mod matrix;
mod spd;

pub use assignment::{assignment, greedy_pairs, optimal_pairs};
pub(crate) use spd::LARGEST_RIDGE;
pub use spd::{Factor, Solved, System, solve_towards};
