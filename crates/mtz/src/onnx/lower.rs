//! Operators that are others in disguise: rewritten while a file is read, so that the graph knows fewer kinds.

use super::statics::shape_of;
use crate::error::{Error, Result};
use crate::op::node::{Attribute, Input, NodeSpec, Scalar, Static, from_size};
use crate::tensor::{Dim, Shape};

/// A node between the file and the graph.
#[derive(Clone, Debug)]
pub(super) struct RawNode {
    pub name: String,
    pub op: String,
    /// The opset whose rules apply; a rewritten node may use another than the file's.
    pub opset: i64,
    pub attributes: Vec<(String, Attribute)>,
    pub inputs: Vec<RawInput>,
    pub outputs: Vec<String>,
}

/// What a node reads.
#[derive(Clone, Debug)]
pub(super) enum RawInput {
    Missing,
    Value(String),
    Constant(Static),
}

/// The operators that are rewritten into others.
pub(super) const LOWERED: [&str; 8] = ["Cast", "CastLike", "Neg", "Reciprocal", "Split", "Sum", "Tile", "Upsample"];

impl RawNode {
    fn with(&self, op: &str, opset: i64, attributes: Vec<(&str, Attribute)>) -> Self {
        Self {
            op: op.to_owned(),
            opset,
            attributes: attributes.into_iter().map(|(n, a)| (n.to_owned(), a)).collect(),
            ..self.clone()
        }
    }

    fn output(&self) -> String {
        self.outputs.first().cloned().unwrap_or_default()
    }
}

/// The node, or the nodes that compute the same.
pub(super) fn lower(node: RawNode, inputs: &[Input]) -> Result<Vec<RawNode>> {
    match node.op.as_str() {
        "Split" => split(&node, inputs),
        "Sum" => Ok(sum(&node)),
        "Reciprocal" => Ok(vec![with_number("Div", 1.0, &node)]),
        "Neg" => Ok(vec![with_number("Mul", -1.0, &node)]),
        "Tile" => tile(&node, inputs),
        // Opset 9's name for Resize; opset 10 gave it the same inputs and rules.
        "Upsample" => Ok(vec![RawNode { op: "Resize".into(), opset: 10, ..node }]),
        "Softmax" | "LogSoftmax" if node.opset < 13 => softmax(node, inputs),
        _ => Ok(vec![node]),
    }
}

/// Refuses casts of computed tensors to other types than floating ones. Between those a cast is nothing: all are
/// computed in f32.
pub(super) fn check_cast(node: &RawNode) -> Result<()> {
    let mut spec = NodeSpec::new(node.opset, node.attributes.clone(), vec![]);
    let to = spec.int("to")?.and_then(|t| i32::try_from(t).ok()).unwrap_or(0);
    if !super::proto::data_type::FLOATS.contains(&to) {
        let name = super::tensors::type_name(to);
        return Err(Error::unsupported(format!("a computed tensor is cast to {name}")));
    }
    Ok(())
}

/// One `Slice` per output.
fn split(node: &RawNode, inputs: &[Input]) -> Result<Vec<RawNode>> {
    let mut spec = NodeSpec::new(node.opset, node.attributes.clone(), inputs.to_vec());
    let x = spec.shape(0)?;
    let axis = x.axis(spec.int("axis")?.unwrap_or(0))?;
    let len = from_size(x.fixed_dim(axis)?);
    let sizes = match spec.ints("split")? {
        Some(sizes) => sizes,
        None => match spec.integers(1)? {
            Some(sizes) => sizes,
            None => {
                let parts = from_size(node.outputs.len()).max(1);
                let each = len.checked_add(parts - 1).map_or(len, |n| n / parts);
                (0..parts).map(|i| each.min(len - i * each)).collect()
            }
        },
    };
    if sizes.len() != node.outputs.len()
        || sizes.iter().any(|&n| n < 1)
        || sizes.iter().try_fold(0i64, |sum, n| sum.checked_add(*n)) != Some(len)
    {
        return Err(Error::model(format!("axis {axis} of {x} is split into {sizes:?}")));
    }
    let mut start = 0;
    let mut parts = Vec::new();
    for (output, size) in node.outputs.iter().zip(sizes) {
        let attributes = vec![
            ("axes", Attribute::Ints(vec![from_size(axis)])),
            ("starts", Attribute::Ints(vec![start])),
            ("ends", Attribute::Ints(vec![start + size])),
        ];
        parts.push(RawNode {
            name: format!("{}.{}", node.name, parts.len()),
            inputs: node.inputs.iter().take(1).cloned().collect(),
            outputs: vec![output.clone()],
            ..node.with("Slice", 9, attributes)
        });
        start += size;
    }
    Ok(parts)
}

/// A chain of `Add`.
fn sum(node: &RawNode) -> Vec<RawNode> {
    let Some((first, rest)) = node.inputs.split_first() else { return vec![node.clone()] };
    if rest.is_empty() {
        return vec![node.with("Identity", node.opset, vec![])];
    }
    let mut left = first.clone();
    let mut chain = Vec::new();
    for (i, right) in rest.iter().enumerate() {
        let last = i + 1 == rest.len();
        let output = if last { node.output() } else { format!("{}.{i}", node.output()) };
        chain.push(RawNode {
            name: if last { node.name.clone() } else { format!("{}.{i}", node.name) },
            inputs: vec![left, right.clone()],
            outputs: vec![output.clone()],
            ..node.with("Add", node.opset, vec![])
        });
        left = RawInput::Value(output);
    }
    chain
}

/// `op` applied to a number and the node's input: 1 / x, −1 · x.
fn with_number(op: &str, number: f64, node: &RawNode) -> RawNode {
    let number = Static { shape: vec![], elements: vec![Scalar::Number(number)], integer: false };
    let inputs = [RawInput::Constant(number)].into_iter().chain(node.inputs.iter().cloned()).collect();
    RawNode { inputs, ..node.with(op, node.opset, vec![]) }
}

/// A `Concat` of the tensor with itself for each axis that is repeated (Keras' UpSampling2D).
fn tile(node: &RawNode, inputs: &[Input]) -> Result<Vec<RawNode>> {
    let mut spec = NodeSpec::new(node.opset, vec![], inputs.to_vec());
    let repeats = spec.integers(1)?.unwrap_or_default();
    if repeats.iter().any(|n| !(1..=64).contains(n)) {
        return Err(Error::unsupported(format!("a tensor is repeated {repeats:?} times")));
    }
    let mut steps = Vec::new();
    let mut input = node.inputs.first().cloned().unwrap_or(RawInput::Missing);
    for (axis, &count) in repeats.iter().enumerate().filter(|(_, count)| **count > 1) {
        let output = format!("{}.{axis}", node.output());
        steps.push(RawNode {
            name: format!("{}.{axis}", node.name),
            inputs: std::iter::repeat_n(input, usize::try_from(count).unwrap_or(1)).collect(),
            outputs: vec![output.clone()],
            ..node.with("Concat", node.opset, vec![("axis", Attribute::Int(from_size(axis)))])
        });
        input = RawInput::Value(output);
    }
    match steps.last_mut() {
        Some(last) => last.outputs = vec![node.output()],
        None => steps.push(RawNode { inputs: vec![input], ..node.with("Identity", node.opset, vec![]) }),
    }
    Ok(steps)
}

/// Before opset 13, all axes from `axis` (1 by default) on were normalised as one.
fn softmax(node: RawNode, inputs: &[Input]) -> Result<Vec<RawNode>> {
    let mut spec = NodeSpec::new(node.opset, node.attributes.clone(), inputs.to_vec());
    let x = spec.shape(0)?;
    let axis = x.axis(spec.int("axis")?.unwrap_or(1))?;
    let on = |axis: usize| vec![("axis", Attribute::Int(from_size(axis)))];
    if x.dims().iter().skip(axis + 1).all(|d| *d == Dim::Fixed(1)) {
        return Ok(vec![node.with(&node.op, 13, on(axis))]);
    }
    let (flat, soft) = (format!("{}.flat", node.output()), format!("{}.soft", node.output()));
    let step = |op: &str, input: RawInput, output: String, attributes| RawNode {
        name: format!("{}.{op}", node.name),
        inputs: vec![input],
        outputs: vec![output],
        ..node.with(op, 13, attributes)
    };
    let first = node.inputs.first().cloned().unwrap_or(RawInput::Missing);
    let mut back = step("Reshape", RawInput::Value(soft.clone()), node.output(), vec![]);
    back.inputs.push(RawInput::Constant(shape_of(&Shape::new(x.dims().to_vec())?, 0, None)));
    Ok(vec![step("Flatten", first, flat.clone(), on(axis)), step(&node.op, RawInput::Value(flat), soft, on(1)), back])
}
