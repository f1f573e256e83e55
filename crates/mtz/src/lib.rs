//! Zips several trained neural networks into one by sharing neurons layer by layer
//! ("Multi-Task Zipping via Layer-wise Neuron Sharing", He, Zhou and Thiele, NeurIPS 2018).
//!
//! # Zip two networks
//!
//! ```no_run
//! use mtz::{Network, Samples, Zipper};
//! use std::ops::ControlFlow;
//!
//! let result = Zipper::new()
//!     .task("age", Network::open("age.onnx")?, Samples::open("faces.npz")?)
//!     .task("gender", Network::open("gender.onnx")?, Samples::open("faces.npz")?)
//!     .run(|_progress| ControlFlow::Continue(()))?;
//! result.joint.save("both.onnx")?;
//! # Ok::<(), mtz::Error>(())
//! ```
//!
//! [`Network`] reads ONNX. [`Samples`] are a path or a closure; labels are optional. [`Zipper::options`] changes what
//! is shared, how weights are fitted, and how long is retrained. [`JointModel`] runs a task, takes one out, and is
//! saved as an ordinary ONNX file.
//!
//! # For experts
//!
//! | to | see |
//! |---|---|
//! | merge one layer at a time, resume a run | [`zip::Session`] |
//! | share as much as an error, an agreement or a size allows | [`budget::search`] |
//! | predict parameters, memory and time | [`predict::predict`] |
//! | measure agreement with an original, or errors on labels | [`evaluate`] |
//! | compute elsewhere, or collect statistics on many machines | [`engine`], [`statistics_file`] |
//! | read the formulas of the paper | [`merge`], [`statistics`] |
//! | look into a file | [`inspect::inspect`], [`joint_file::from_graph`] |
//! | run a network, or tap its values | [`run::Runner`] |
//! | train or prune a network | [`architecture::build`], [`train::fit`], [`prune::prune`] |
//!
//! The modules below stand in the order of the data flow; none imports from a later one. The library never prints and
//! never exits. An [`Error`] names the file, the node and a hint. Long work reports its [`Progress`] to a closure,
//! which may stop it. Work runs on the rayon pool it is called in; results are the same bits for any number of threads.

pub mod error;

pub mod progress;

pub mod tensor;

pub mod random;

mod kernel;

pub mod linalg;

pub mod op;

pub mod graph;

pub mod onnx;

pub mod simplify;

pub mod run;

pub mod data;

pub mod preprocess;

pub mod fingerprint;

pub mod evaluate;

pub mod architecture;

pub mod sharing;

pub mod statistics;

pub mod merge;

pub mod prune;

pub mod train;

pub mod engine;

pub mod statistics_file;

pub mod joint_file;

pub mod zip;

pub mod budget;

pub mod predict;

pub mod inspect;

pub mod chart;

pub mod report;

pub mod zipper;

pub use error::{Error, ErrorKind, Result};
pub use progress::{Progress, Stage};
pub use sharing::Share;
pub use zip::ZipOptions;
pub use zipper::{JointModel, Network, Samples, ZipResult, Zipper};
