//! Zips several trained neural networks into one, and has all that takes: reading, running, measuring and training them
//! ("Multi-Task Zipping via Layer-wise Neuron Sharing", He, Zhou and Thiele, NeurIPS 2018).
//!
//! # Zip two networks
//!
//! A network is a [`graph::Graph`], read from an ONNX file. Networks beside each other are a [`plan::Joint`] that shares nothing yet; [`pipeline::zip`] makes them
//! share, as a [`pipeline::Plan`] says, with the samples of each [`pipeline::Task`].
//!
//! ```no_run
//! use mtz::data::{Feed, Normalisation, OpenOptions, Part, locate};
//! use mtz::merge::{Recipe, Share};
//! use mtz::pipeline::{Plan, Task, zip};
//! use mtz::plan::Joint;
//! use mtz::{assemble, onnx};
//! use std::ops::ControlFlow;
//! use std::path::Path;
//!
//! # fn main() -> mtz::error::Result<()> {
//! let network = |name: &str, path: &str| Joint::single(name.into(), onnx::read(Path::new(path))?.with_open_batch());
//! let start = Joint::beside(vec![network("age", "age.onnx")?, network("gender", "gender.onnx")?])?;
//!
//! let faces = locate(Path::new("faces.npz"))?;
//! let feed = |task: usize, part| {
//!     Feed::new(faces.part(part).open(&OpenOptions::default())?, &start.members[task].graph, Normalisation::default())
//! };
//! let feeds = [(feed(0, Part::Train)?, feed(0, Part::Test)?), (feed(1, Part::Train)?, feed(1, Part::Test)?)];
//! let tasks = [Task::whole("age", &feeds[0].0, &feeds[0].1), Task::whole("gender", &feeds[1].0, &feeds[1].1)];
//!
//! let plan = Plan { share: Share::Fraction(0.75), ..Plan::suited(Recipe::Best, &start) };
//! let zipped = zip(start, &tasks, &plan, |(_layer, _depth, _doing)| ControlFlow::Continue(()))?;
//! onnx::write(&assemble::to_graph(&zipped.joint, false)?, Path::new("both.onnx"))
//! # }
//! ```
//!
//! # What else there is
//!
//! | question | answer |
//! |---|---|
//! | how good is a network? | [`evaluate::evaluate`] |
//! | what will a zip take and give? | [`predict::predict`] |
//! | how much can be shared for half a point of error? | [`budget::search`] |
//! | how do I train one? | [`architecture::build`], [`train::fit`] |
//! | how do I make it sparse? | [`prune::prune`] |
//! | who shares what in a file? | [`inspect::inspect`], [`assemble::from_graph`] |
//! | how do I run it, or look inside? | [`run::Runner`] |
//! | where do formulas stand? | [`merge`], [`linalg`], and `docs/methods.md` for what was tried |
//!
//! The modules stand in the order of the flow; none imports from one below it. The library never prints and never exits: an [`error::Error`] carries the node's name
//! and a hint, and whatever takes long has a closure that hears of progress and may stop it. Work runs on the rayon pool it is called in; results are the same bits for any
//! number of threads.

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

pub mod preprocess;

pub mod fingerprint;

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
