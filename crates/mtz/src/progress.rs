//! Progress of long work, and how to stop it: whatever takes long calls a closure that hears how far it is and may say
//! stop.

use crate::error::{Error, Result};
use std::ops::ControlFlow;

/// How far a zip is.
///
/// ```
/// use mtz::Progress;
/// use std::ops::ControlFlow;
///
/// fn show(now: Progress) -> ControlFlow<()> {
///     println!("layer {} of {}: {}", now.layer + 1, now.layers, now.stage);
///     ControlFlow::Continue(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The layer under way, from 0.
    pub layer: usize,
    /// How many layers there are.
    pub layers: usize,
    /// What is being done to it.
    pub stage: Stage,
}

impl Progress {
    /// At a stage of a layer.
    pub(crate) fn new(layer: usize, layers: usize, stage: Stage) -> Self {
        Self { layer, layers, stage }
    }
}

/// What is being done to a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Collecting its statistics.
    Statistics,
    /// Pairing units and finding weights.
    Merging,
    /// Retraining the whole model.
    Retraining {
        /// Iterations done.
        done: usize,
        /// Iterations in all.
        of: usize,
    },
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Statistics => f.write_str("statistics"),
            Self::Merging => f.write_str("merging"),
            Self::Retraining { done, of } => write!(f, "retraining {done}/{of}"),
        }
    }
}

/// A closure that hears of the progress of a zip. [`ControlFlow::Break`] stops it with
/// [`ErrorKind::Cancelled`](crate::error::ErrorKind::Cancelled).
pub type Observer<'o> = dyn FnMut(Progress) -> ControlFlow<()> + 'o;

/// An error if the observer wants no more.
pub(crate) fn unless_cancelled(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() { Err(Error::cancelled()) } else { Ok(()) }
}
