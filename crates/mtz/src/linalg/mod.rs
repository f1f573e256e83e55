//! The mathematics of sharing: second moments of a layer's inputs, symmetric systems, and the pairing of units.
//!
//! Everything here is a function of matrices, in f64, and gives the same bits for any number of threads.

mod least_squares;
mod moments;
mod one_sided;
mod pairs;
mod spd;

pub(crate) use least_squares::product;
pub use least_squares::{Aim, Problem, Targets, distances, misfit, spread};
pub use moments::Moments;
pub use one_sided::Samples;
pub use pairs::{assignment, best_pairs, greedy};
pub use spd::{Factor, Solved, System, solve_towards};
