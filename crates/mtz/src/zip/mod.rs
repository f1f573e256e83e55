//! Zipping, step by step: for each layer collect statistics, match and merge, measure; then retrain.
//!
//! [`Session`] has the steps, [`zip()`] does them all, [`ZipOptions`] says how.

mod calibration;
pub mod checkpoint;
mod held_out;
mod layer_report;
mod measure;
mod memory;
mod options;
mod retrain;
mod session;

pub use calibration::calibrations_of_originals;
pub(crate) use calibration::{calibrations, chosen};
pub(crate) use held_out::held_out_bytes;
pub use layer_report::LayerReport;
pub(crate) use measure::measured_at_a_time;
pub use measure::{References, errors};
pub use memory::paired_in_order;
pub use memory::writing;
pub(crate) use memory::{MemoryBudget, answers, networks, of_layer, retraining, saving};
pub use options::{RetrainingTarget, TaskData, ZipOptions};
pub use retrain::{Retrained, Retraining};
pub use session::{Session, Sources};

use crate::error::{Error, Result};
use crate::evaluate::OutputKind;
use crate::merge::{Align, Recipe};
use crate::progress::Progress;
use crate::sharing::{Joint, Member, Share};
use options::SHALLOW;
use std::ops::ControlFlow;

/// What came out.
#[derive(Clone, Debug)]
pub struct Zipped {
    /// The joint model.
    pub joint: Joint,
    /// Error of each original network.
    pub error_before: Vec<Option<f64>>,
    /// What each task's answers are, of its output that agrees least; nothing for a task without test samples.
    pub kinds: Vec<Option<OutputKind>>,
    /// Layer by layer.
    pub layers: Vec<LayerReport>,
    /// Parameters of what was given.
    pub parameters_before: usize,
    /// Those of them that are not zero.
    pub nonzero_before: usize,
    /// Iterations of retraining in all.
    pub iterations: usize,
}

/// Zips the members of `start` ([`Joint::from_networks`]) into one; `tasks` are their data, in the same order.
pub fn zip(
    start: Joint,
    tasks: &[TaskData],
    options: &ZipOptions,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Zipped> {
    Session::new(start, tasks, options)?.run(&mut progress)
}

/// Multiply-adds that measuring the errors after a layer may take; a large network is measured on fewer samples until
/// the last layer is merged.
const MEASURING: usize = 30_000_000_000;

/// Networks so large that measuring [`ZipOptions::measured`] samples would take so many times longer than meant are not
/// measured until the last layer.
const TOO_LONG: usize = 25;

/// The tasks with those samples that errors are measured on after every layer but the last.
pub fn intermediate_tasks<'a>(joint: &Joint, tasks: &[TaskData<'a>], options: &ZipOptions) -> Vec<TaskData<'a>> {
    tasks.iter().zip(intermediate_sample_counts(joint, tasks, options)).map(|(t, few)| t.to_measure(few)).collect()
}

/// How many samples of each task that is.
pub(crate) fn intermediate_sample_counts(joint: &Joint, tasks: &[TaskData], options: &ZipOptions) -> Vec<usize> {
    let samples = |m: &Member| MEASURING / m.effort().max(1);
    joint
        .members
        .iter()
        .map(samples)
        .take(tasks.len())
        .map(|n| {
            if options.resources.measured == 0 || TOO_LONG * n < options.resources.measured {
                0
            } else {
                n.max(options.resources.measured)
            }
        })
        .collect()
}

/// How many units of a layer to share.
pub(crate) fn share_of(joint: &Joint, options: &ZipOptions, layer: usize) -> Share {
    let name = &joint.members[0].layers[layer].name;
    options.sharing.share_of.iter().find(|(n, _)| n == name).map_or(options.sharing.share, |(_, share)| *share)
}

/// Which inputs count as the same.
pub fn aligned(joint: &Joint, options: &ZipOptions) -> Align {
    let residual = joint.members.iter().flat_map(|m| &m.layers).any(|l| l.stream.is_some());
    options.sharing.align.unwrap_or(if residual { Align::All } else { Align::Shared })
}

/// How often a layer is solved again for one-sided targets. Errors add up over layers: in deep networks that takes a
/// fifth off the loss, in shallow ones it is not worth the time.
pub(crate) fn rounds(joint: &Joint, options: &ZipOptions) -> usize {
    if options.recipe == Recipe::Best && joint.depth() > SHALLOW { 3 } else { 0 }
}

fn check_names(joint: &Joint, options: &ZipOptions) -> Result<()> {
    let names: Vec<&str> = joint.members[0].layers.iter().map(|l| l.name.as_str()).collect();
    for (name, _) in &options.sharing.share_of {
        let problem = match names.iter().filter(|n| *n == name).count() {
            1 => continue,
            0 => format!("`share` names a layer {name:?} that is not there"),
            n => format!("{n} layers are called {name:?}"),
        };
        return Err(Error::usage(problem).hint(format!("the layers are {}", names.join(", "))));
    }
    Ok(())
}
