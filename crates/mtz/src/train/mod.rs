//! Training: gradients of any graph, losses, optimizers, and the loop around them.
//!
//! Weights live in [`Parameters`], apart from the graphs that use them, so that several graphs can share one tensor: each
//! weight of a graph is bound to a parameter or to chosen elements of one ([`Binding`]), and the gradients of all its
//! uses add up. A [`Program`] is a graph planned for one batch size: its buffers are allocated once and used in every
//! step.

mod augment;
mod diary;
mod fit;
mod learn;
mod loss;
mod optimizer;
mod parameters;
mod program;
mod schedule;

pub use augment::Augmentation;
pub use diary::Diary;
pub use fit::{Fit, Progress, Report, fit};
pub use learn::{Goal, Imitation, Learner, Rule, acclimatise, learn, paced, settle};
pub use loss::{Loss, Target};
pub use optimizer::{Optimizer, OptimizerKind};
pub use parameters::{Binding, Bindings, ParameterId, Parameters};
pub use program::Program;
pub use schedule::Schedule;
