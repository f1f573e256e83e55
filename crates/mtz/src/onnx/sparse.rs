//! Weights that are mostly zero, as nodes every runtime has: zeros (`ConstantOfShape`), the numbers put in their places
//! (`ScatterElements`), and the shape (`Reshape`). ONNX's sparse initializers say the same, but onnxruntime alone reads
//! them. Here the three nodes are found again when a file is read.

use super::proto::{GraphProto, NodeProto, SparseTensorProto, TensorProto, data_type};
use std::collections::{HashMap, HashSet};

/// What stands for sparse tensors in a file.
#[derive(Default)]
pub(super) struct Found {
    pub tensors: Vec<SparseTensorProto>,
    /// Positions of nodes that need not be read any more,
    pub nodes: HashSet<usize>,
    /// and names of their constants.
    pub initializers: HashSet<String>,
}

/// Finds the sparse tensors of a graph.
pub(super) fn find(proto: &GraphProto) -> Found {
    let mut found = Found::default();
    if !proto.node.iter().any(|node| node.op_type == "ScatterElements") {
        return found;
    }
    let constants: HashMap<&str, &TensorProto> = proto.initializer.iter().map(|t| (t.name.as_str(), t)).collect();
    let nodes = proto.node.iter().enumerate().filter_map(|(i, node)| Some((node.output.first()?.as_str(), (i, node))));
    let producers: HashMap<&str, (usize, &NodeProto)> = nodes.collect();
    // Only what one node reads is passed over, so that nothing is copied twice and nothing is missed.
    let mut readers: HashMap<&str, usize> = HashMap::new();
    for name in proto.node.iter().flat_map(|node| &node.input).chain(proto.output.iter().map(|value| &value.name)) {
        *readers.entry(name).or_default() += 1;
    }
    let only = |node: &NodeProto| node.input.first().is_some_and(|name| readers.get(name.as_str()) == Some(&1));
    for (i, reshape) in proto.node.iter().enumerate().filter(|(_, node)| node.op_type == "Reshape" && only(node)) {
        let Some(([zeros, scatter], names, tensor)) = sparse(reshape, &constants, &producers, only) else { continue };
        found.nodes.extend([zeros, scatter, i]);
        found.initializers.extend(names.map(str::to_owned));
        found.tensors.push(tensor);
    }
    // Constants that other nodes read too are theirs as well.
    let others = proto.node.iter().enumerate().filter(|(i, _)| !found.nodes.contains(i));
    others.flat_map(|(_, node)| &node.input).for_each(|name| {
        found.initializers.remove(name);
    });
    found
}

type Parts<'a> = ([usize; 2], [&'a str; 4], SparseTensorProto);

/// The tensor that a `Reshape` gives its shape, if it is one; the other two nodes, and the names of their constants.
fn sparse<'a>(
    reshape: &'a NodeProto,
    constants: &HashMap<&str, &TensorProto>,
    producers: &HashMap<&str, (usize, &'a NodeProto)>,
    only: impl Fn(&NodeProto) -> bool,
) -> Option<Parts<'a>> {
    let [flat, shape] = reshape.input.as_slice() else { return None };
    let (scatter_at, scatter) = *producers.get(flat.as_str())?;
    let [zeros, places, values] = scatter.input.as_slice() else { return None };
    if !only(scatter) {
        return None;
    }
    let (zeros_at, zeros) = *producers.get(zeros.as_str())?;
    let [size] = zeros.input.as_slice() else { return None };
    let plain = scatter.attribute.iter().all(|a| a.name == "axis" && a.i.unwrap_or(0) == 0);
    let value = zeros.attribute.iter().filter_map(|a| a.t.as_ref());
    let zero = value.into_iter().all(|t| {
        let raw = t.raw_data.iter().flatten().all(|byte| *byte == 0);
        let other = t.data_location != 0 || !t.double_data.is_empty();
        raw && !other && t.float_data.iter().all(|x| *x == 0.0) && t.int32_data.iter().all(|x| *x == 0)
    });
    if scatter.op_type != "ScatterElements" || zeros.op_type != "ConstantOfShape" || !plain || !zero {
        return None;
    }
    let dims = numbers(constants.get(shape.as_str())?)?;
    let count = dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d).filter(|_| *d > 0))?;
    let name = reshape.output.first()?.clone();
    let tensor = SparseTensorProto {
        values: Some(TensorProto { name, ..TensorProto::clone(constants.get(values.as_str())?) }),
        indices: Some(TensorProto::clone(constants.get(places.as_str())?)),
        dims,
    };
    let fits = numbers(constants.get(size.as_str())?)? == [count];
    fits.then_some(([zeros_at, scatter_at], [shape, size, places, values], tensor))
}

/// The numbers of a short list as we write it.
fn numbers(tensor: &TensorProto) -> Option<Vec<i64>> {
    let (whole, rest) = tensor.raw_data.as_deref().unwrap_or_default().as_chunks();
    let list =
        tensor.data_type == data_type::INT64 && tensor.data_location == 0 && rest.is_empty() && whole.len() <= 64;
    list.then(|| whole.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
}
