//! Zips several trained neural networks into one, and has all that takes: reading, running, measuring and training them
//! ("Multi-Task Zipping via Layer-wise Neuron Sharing", He, Zhou and Thiele, NeurIPS 2018).
//!
//! The modules stand in the order of the flow; none imports from one below it.
//!
//! ```no_run
//! use mtz::{data, evaluate, onnx, simplify};
//! use std::path::Path;
//!
//! # fn main() -> mtz::error::Result<()> {
//! let network = onnx::read(Path::new("digits.onnx"))?.with_open_batch();
//! let network = simplify::for_inference(&network)?;
//! let test = data::locate(Path::new("data/mnist"))?.part(data::Part::Test).open(&data::OpenOptions::default())?;
//! let feed = data::Feed::new(test, &network, data::Normalisation::default())?;
//! let options = evaluate::Options { batch_size: 64, memory: mtz::run::DEFAULT_MEMORY };
//! let result = evaluate::evaluate(&network, &feed, options, |_done| {})?;
//! assert!(result.error < 2.0);
//! # Ok(())
//! # }
//! ```
//!
//! The library never prints and never exits. Work runs on the rayon pool it is called in; results are the same bits for
//! any number of threads.

pub mod error;

pub mod tensor;

pub mod random;

mod kernel;

pub mod op;

pub mod graph;

pub mod onnx;

pub mod simplify;

pub mod run;

pub mod walk;

pub mod data;

pub mod evaluate;

pub mod architecture;

pub mod train;

pub mod plan;

pub mod linalg;

pub mod statistics;

pub mod prune;

pub mod merge;

pub mod assemble;

pub mod checkpoint;

pub mod pipeline;

pub mod budget;

pub mod predict;

pub mod inspect;

pub mod chart;

pub mod report;
