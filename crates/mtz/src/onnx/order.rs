//! The order in which nodes can be run. Files should be sorted already; those that are not are sorted here, and a cycle
//! is reported with the names of its nodes.

use super::proto::NodeProto;
use crate::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};

/// The nodes' positions so that each stands behind those it reads from, otherwise in the file's order.
pub(super) fn sorted(nodes: &[NodeProto]) -> Result<Vec<usize>> {
    let mut writer: HashMap<&str, usize> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            if writer.insert(output, i).is_some() {
                return Err(Error::model(format!("value {output:?} is written twice")).at_node(&label(node, i)));
            }
        }
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut waiting: Vec<usize> = vec![0; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        for from in node.input.iter().filter_map(|input| writer.get(input.as_str())) {
            if let (Some(list), Some(count)) = (readers.get_mut(*from), waiting.get_mut(i)) {
                list.push(i);
                *count += 1;
            }
        }
    }
    let mut ready: BTreeSet<usize> =
        waiting.iter().enumerate().filter(|(_, count)| **count == 0).map(|(i, _)| i).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(i) = ready.pop_first() {
        order.push(i);
        for &reader in readers.get(i).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(reader) {
                *count -= 1;
                if *count == 0 {
                    ready.insert(reader);
                }
            }
        }
    }
    if order.len() < nodes.len() {
        let stuck = waiting.iter().enumerate().filter(|(_, count)| **count > 0);
        let names = stuck.filter_map(|(i, _)| nodes.get(i).map(|n| label(n, i))).collect();
        return Err(Error::model("nodes wait for each other in a cycle:").with_items(names));
    }
    Ok(order)
}

/// A node's name, or its operator and position if it has none.
pub(super) fn label(node: &NodeProto, position: usize) -> String {
    if node.name.is_empty() { format!("{}_{position}", node.op_type) } else { node.name.clone() }
}
