//! Training: gradients of any graph, losses, optimizers, and the loop around them.
//!
//! Weights live in [`Parameters`], apart from the graphs that use them, so that several graphs can share one tensor:
//! each weight of a graph is bound to a parameter or to chosen elements of one ([`Binding`]), and the gradients of all
//! its uses add up. A [`Program`] is a graph planned for one batch size: its buffers are allocated once and used in
//! every step.

mod checkpoint;
mod fit;
mod joint;
mod learn;
mod loss;
mod optimizer;
mod parameters;
mod program;
mod schedule;

pub use checkpoint::TrainingCheckpoint;
pub use fit::{Fit, TrainingProgress, TrainingReport, fit};
pub use joint::bind;
pub use learn::{Goal, Imitation, Learner, Rule, batch_size_of, learn, match_batch_statistics, recalibrate_batch_norm};
pub use loss::{Loss, Target};
pub use optimizer::{Optimizer, OptimizerKind};
pub use parameters::{Binding, Bindings, ParameterId, Parameters};
pub use program::{Learning, Program, TrainingProgram};
pub use schedule::Schedule;
