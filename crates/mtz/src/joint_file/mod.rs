//! The joint model as one ordinary graph, and back.
//!
//! Every block of weights with the same owners is stored once; a task's weights are put together from its blocks by
//! `Concat` and `Gather` at the start of the graph, which any runtime computes once. Nodes and values of a task are
//! called `task/name`. What cannot be seen in the graph, the joint numbers of the units, stands in the metadata.

mod check;
mod layout;
mod read;

pub use check::{check, check_preprocessing};
pub use layout::to_graph;
pub use read::from_graph;

use crate::data::Normalisation;
use crate::error::{Error, Result};
use crate::preprocess;
use crate::sharing::{Joint, Layer, Member};

/// The metadata key of a joint model.
const KEY: &str = "mtz.joint";
/// Of the metadata.
const VERSION: u64 = 1;

/// Says whose inputs differ, if all tasks are to read the same.
pub fn check_common_input(joint: &Joint) -> Result<()> {
    let shapes = |m: &Member| m.graph.inputs().iter().map(|id| m.graph[*id].shape.to_string()).collect::<Vec<_>>();
    let first = joint.members.first().map_or_else(Vec::new, &shapes);
    match joint.members.iter().find(|m| shapes(m) != first) {
        None => Ok(()),
        Some(other) => Err(Error::usage(format!(
            "`common_input`: the input of {} is {}, that of {} is {}",
            other.name,
            shapes(other).join(", "),
            joint.members[0].name,
            first.join(", ")
        ))),
    }
}

/// The joint model with a task's preprocessing inside: see [`preprocess::with_preprocessing`].
pub fn with_preprocessing(joint: &Joint, task: &str, normalisation: &Normalisation, bytes: bool) -> Result<Joint> {
    let mut joint = joint.clone();
    let member = joint.members.iter_mut().find(|m| m.name == task);
    let member = member.ok_or_else(|| Error::usage(format!("there is no task {task:?}")))?;
    member.graph = preprocess::with_preprocessing(&member.graph, normalisation, bytes)?;
    // Nodes have moved; layers and their units are the same.
    member.layers = Layer::all(&member.graph)?;
    Ok(joint)
}
