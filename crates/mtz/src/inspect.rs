//! What is in a network: inputs, outputs, layers, parameters, cost.

use crate::graph::Graph;
use crate::op::Op;
use crate::tensor::Shape;
use std::collections::BTreeMap;

/// What is in a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Names and shapes of the inputs.
    pub inputs: Vec<(String, Shape)>,
    /// Names and shapes of the outputs.
    pub outputs: Vec<(String, Shape)>,
    /// The nodes with weights, in running order.
    pub layers: Vec<LayerSummary>,
    /// How often each operator is used.
    pub operators: BTreeMap<&'static str, usize>,
    /// All weights, each counted once.
    pub parameters: usize,
    /// Those that are not zero.
    pub nonzero: usize,
    /// Multiply-adds for one sample.
    pub multiply_adds: u64,
}

/// A node with weights.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSummary {
    /// The node's name.
    pub name: String,
    /// The operator's name.
    pub op: &'static str,
    /// Neurons, or channels of a convolution: what can be shared.
    pub units: usize,
    /// The shape of the output.
    pub output: Shape,
    /// Its weights.
    pub parameters: usize,
    /// Those that are not zero.
    pub nonzero: usize,
    /// Its multiply-adds for one sample.
    pub multiply_adds: u64,
}

/// Channels are the second axis; the outputs of a matrix product on tokens are the last.
fn units(op: &Op, output: &Shape) -> usize {
    let dims = output.dims();
    let axis = if matches!(op, Op::MatMul(_)) { dims.last() } else { dims.get(1).or(dims.last()) };
    axis.map_or(1, |d| d.at(1))
}

fn zeros(graph: &Graph) -> usize {
    let constants = graph.values().iter().filter_map(|v| v.constant.as_ref());
    constants.map(|t| t.data().iter().filter(|x| **x == 0.0).count()).sum()
}

/// Lists what is in a network.
pub fn inspect(graph: &Graph) -> Summary {
    let mut operators = BTreeMap::new();
    let mut layers = Vec::new();
    let mut multiply_adds = 0u64;
    let samples = graph.fixed_batch().unwrap_or(1).max(1) as u64;
    for node in graph.nodes() {
        *operators.entry(node.op.name()).or_insert(0) += 1;
        let inputs: Vec<Vec<usize>> = node.inputs.iter().flatten().map(|id| graph[*id].shape.at(1)).collect();
        let inputs: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
        let output = &graph[node.output].shape;
        let cost = node.op.multiply_adds(&inputs, &output.at(1)) / samples;
        multiply_adds = multiply_adds.saturating_add(cost);
        let weights = || node.inputs.iter().flatten().filter_map(|id| graph[*id].constant.as_ref());
        let parameters: usize = weights().map(|t| t.data().len()).sum();
        let nonzero = weights().map(|t| t.data().iter().filter(|x| **x != 0.0).count()).sum();
        if parameters > 0 {
            layers.push(LayerSummary {
                name: node.name.clone(),
                op: node.op.name(),
                units: units(&node.op, output),
                output: output.clone(),
                parameters,
                nonzero,
                multiply_adds: cost,
            });
        }
    }
    let named = |ids: &[crate::graph::ValueId]| {
        ids.iter().map(|id| (graph[*id].name.clone(), graph[*id].shape.clone())).collect()
    };
    Summary {
        inputs: named(graph.inputs()),
        outputs: named(graph.outputs()),
        layers,
        operators,
        parameters: graph.parameters(),
        nonzero: graph.parameters() - zeros(graph),
        multiply_adds,
    }
}
