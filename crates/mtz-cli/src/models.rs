//! Reading the networks that a command is given.

use mtz::error::{Error, Result};
use mtz::graph::Graph;
use mtz::{joint_file, onnx, preprocess};
use std::path::Path;

/// A network for any batch size. Weights that are no numbers are refused here, where the file is known.
pub fn read(path: &Path) -> Result<Graph> {
    let graph = onnx::read(path)?.with_open_batch();
    graph.check_weights().map_err(|e| e.in_file(path))?;
    Ok(graph)
}

/// The network to compare with: a plain one, or the task of this name of a joint model.
pub fn original(path: &Path, task: &str) -> Result<Graph> {
    let graph = read(path)?;
    match joint_file::from_graph(&graph)? {
        None => Ok(graph),
        Some(joint) => {
            let names: Vec<String> = joint.members.iter().map(|m| m.name.clone()).collect();
            let member = joint.members.into_iter().find(|m| m.name == task);
            member.map(|m| m.graph).ok_or_else(|| {
                Error::usage(format!("{} has no task {task:?}", path.display()))
                    .hint(format!("its tasks are {}; mtz extract takes one out", names.join(", ")))
            })
        }
    }
}

/// Two networks that take the same samples: if only one of them has its preprocessing inside, the other gets it, too.
/// Says which one has it.
pub fn fed_alike(one: Graph, other: Graph) -> Result<([Graph; 2], Option<usize>)> {
    match [&one, &other].map(preprocess::is_inside) {
        [true, false] => Ok(([one.clone(), preprocess::like(&other, &one)?], Some(0))),
        [false, true] => Ok(([preprocess::like(&one, &other)?, other], Some(1))),
        _ => Ok(([one, other], None)),
    }
}
