//! A node as ONNX spells it: the side of an operator that faces the file.
//!
//! On the way in, [`NodeSpec`] hands an operator its attributes and constant inputs, whichever of the two its opset
//! uses, and remembers what was asked for: what is left over is an error, never silently skipped. On the way out,
//! [`NodeForm`] collects them again.

use crate::error::{Error, Result};
use crate::tensor::{Shape, normalize_axis};

/// The value of an ONNX attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// Integers.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// Numbers.
    Floats(Vec<f32>),
    /// A text.
    Text(String),
    /// A kind no operator here reads, by name.
    Other(&'static str),
}

/// One element of a constant that is known when the file is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A number; integers up to 2⁵³ are exact.
    Number(f64),
    /// So many times the batch size.
    Batch(f64),
}

/// A small constant of any element type, as computed from initializers, `Constant` and `Shape` nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Static {
    /// The dimensions.
    pub shape: Vec<usize>,
    /// The elements in row-major order.
    pub elements: Vec<Scalar>,
    /// Whether the element type is an integer (or bool), so that division truncates.
    pub integer: bool,
}

impl Static {
    /// The elements as numbers, if none depends on the batch size.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        self.elements
            .iter()
            .map(|e| match e {
                Scalar::Number(x) => Some(*x),
                Scalar::Batch(_) => None,
            })
            .collect()
    }
}

/// An input of a node while it is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Left out.
    Missing,
    /// A tensor the network computes.
    Tensor(Shape),
    /// A constant tensor, with its elements where it is small enough to be a parameter.
    Constant(Shape, Option<Static>),
    /// A constant that has no place at run time (integers, or a shape that contains the batch size).
    Static(Static),
}

/// A node on the way from the file into the graph.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// The version of the operator set.
    pub opset: i64,
    attributes: Vec<(String, Attribute)>,
    inputs: Vec<Input>,
    absorbed: Vec<bool>,
}

impl NodeSpec {
    /// A node with everything the file says about it.
    pub fn new(opset: i64, attributes: Vec<(String, Attribute)>, inputs: Vec<Input>) -> Self {
        let absorbed = vec![false; inputs.len()];
        Self { opset, attributes, inputs, absorbed }
    }

    fn take(&mut self, name: &str) -> Option<Attribute> {
        let at = self.attributes.iter().position(|(n, _)| n == name)?;
        Some(self.attributes.swap_remove(at).1)
    }

    fn wrong_type<T>(name: &str) -> Result<T> {
        Err(Error::model(format!("attribute {name:?} has the wrong type")))
    }

    /// Attributes that do not change the result of inference.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    /// An integer attribute.
    pub fn int(&mut self, name: &str) -> Result<Option<i64>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Int(x)) => Ok(Some(x)),
            Some(_) => Self::wrong_type(name),
        }
    }

    /// A flag, stored as integer.
    pub fn flag(&mut self, name: &str) -> Result<bool> {
        Ok(self.int(name)?.unwrap_or(0) != 0)
    }

    /// An attribute of integers.
    pub fn ints(&mut self, name: &str) -> Result<Option<Vec<i64>>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Ints(x)) => Ok(Some(x)),
            Some(_) => Self::wrong_type(name),
        }
    }

    /// A numeric attribute.
    pub fn float(&mut self, name: &str) -> Result<Option<f32>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Float(x)) => Ok(Some(x)),
            Some(_) => Self::wrong_type(name),
        }
    }

    /// An attribute of numbers.
    pub fn floats(&mut self, name: &str) -> Result<Option<Vec<f32>>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Floats(x)) => Ok(Some(x)),
            Some(_) => Self::wrong_type(name),
        }
    }

    /// A text attribute.
    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Text(x)) => Ok(Some(x)),
            Some(_) => Self::wrong_type(name),
        }
    }

    /// Refuses an attribute that is set to anything but `usual`.
    pub fn only_text(&mut self, name: &str, usual: &str) -> Result<()> {
        match self.text(name)? {
            Some(x) if x != usual => Err(Error::unsupported(format!("{name}={x:?}; only {usual:?} is supported"))),
            _ => Ok(()),
        }
    }

    /// Refuses an integer attribute that is set to anything but `usual`.
    pub fn only_int(&mut self, name: &str, usual: i64) -> Result<()> {
        match self.int(name)? {
            Some(x) if x != usual => Err(Error::unsupported(format!("{name}={x}; only {usual} is supported"))),
            _ => Ok(()),
        }
    }

    /// The shape of input `i`.
    pub fn shape(&self, i: usize) -> Result<Shape> {
        match self.inputs.get(i) {
            Some(Input::Tensor(shape) | Input::Constant(shape, _)) => Ok(shape.clone()),
            Some(Input::Static(value)) => Shape::fixed(&value.shape),
            _ => Err(Error::model(format!("input {i} is missing"))),
        }
    }

    /// Takes the constant input `i` into the operator; `None` if it is left out.
    pub fn constant(&mut self, i: usize) -> Result<Option<Static>> {
        match self.inputs.get(i) {
            None | Some(Input::Missing) => Ok(None),
            Some(Input::Static(value) | Input::Constant(_, Some(value))) => {
                let value = value.clone();
                if let Some(absorbed) = self.absorbed.get_mut(i) {
                    *absorbed = true;
                }
                Ok(Some(value))
            }
            Some(Input::Constant(_, None)) => {
                Err(Error::unsupported(format!("input {i} is an unexpectedly large constant")))
            }
            Some(Input::Tensor(_)) => Err(Error::unsupported(format!("input {i} must be a constant"))
                .hint("export the model with fixed sizes except the batch, so that shapes and axes become constants")),
        }
    }

    /// Takes a constant input of numbers into the operator.
    pub fn numbers(&mut self, i: usize) -> Result<Option<Vec<f64>>> {
        self.constant(i)?
            .map(|value| {
                value.numbers().ok_or_else(|| Error::unsupported(format!("input {i} depends on the batch size")))
            })
            .transpose()
    }

    /// Takes a constant input of integers into the operator.
    pub fn integers(&mut self, i: usize) -> Result<Option<Vec<i64>>> {
        self.numbers(i)?.map(|x| x.into_iter().map(to_integer).collect()).transpose()
    }

    /// Takes a constant input of one number into the operator.
    pub fn number(&mut self, i: usize) -> Result<Option<f32>> {
        match self.numbers(i)? {
            None => Ok(None),
            Some(x) => match x.as_slice() {
                [x] => Ok(Some(to_f32(*x))),
                _ => Err(Error::model(format!("input {i} must be one number"))),
            },
        }
    }

    /// Axes from attribute `axes` or, in newer opsets, from the constant input `i`; counted from the front, sorted.
    pub fn axes(&mut self, i: usize, rank: usize) -> Result<Option<Vec<usize>>> {
        let given = match self.ints("axes")? {
            Some(axes) => Some(axes),
            None => self.integers(i)?,
        };
        given
            .map(|axes| {
                let mut axes = axes.into_iter().map(|a| normalize_axis(a, rank)).collect::<Result<Vec<_>>>()?;
                axes.sort_unstable();
                if axes.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
                    return Err(Error::model("an axis is given twice"));
                }
                Ok(axes)
            })
            .transpose()
    }

    /// Which inputs are still tensors of the graph, after the operator took its constants; an error if an attribute
    /// is left that the operator did not ask for.
    pub fn finish(self) -> Result<Vec<bool>> {
        if !self.attributes.is_empty() {
            let names: Vec<_> = self.attributes.iter().map(|(n, _)| format!("{n:?}")).collect();
            return Err(Error::unsupported(format!("unknown attribute {}", names.join(", "))));
        }
        Ok(self.absorbed.iter().map(|absorbed| !absorbed).collect())
    }
}

/// A number from a file as integer, saturating: exporters write 2⁶³−1 for "to the end".
#[allow(clippy::as_conversions, clippy::cast_possible_truncation)]
pub fn to_integer(x: f64) -> Result<i64> {
    if x.is_nan() || x.fract() != 0.0 {
        return Err(Error::model(format!("{x} should be an integer")));
    }
    Ok(x as i64) // saturates
}

/// A number from a file as f32, rounded.
#[allow(clippy::as_conversions, clippy::cast_possible_truncation)]
pub fn to_f32(x: f64) -> f32 {
    x as f32
}

/// An integer from a file as a size.
pub fn to_size(x: i64, what: &str) -> Result<usize> {
    usize::try_from(x).map_err(|_| Error::model(format!("{what} is {x}")))
}

/// A size as ONNX writes it.
pub fn from_size(x: usize) -> i64 {
    i64::try_from(x).unwrap_or(i64::MAX)
}

/// A constant input on the way out.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstantForm {
    /// Left out.
    Missing,
    /// A vector of integers.
    Ints(Vec<i64>),
    /// A tensor of integers.
    IntTensor(Vec<usize>, Vec<i64>),
    /// A vector of numbers.
    Floats(Vec<f32>),
    /// One number, f32 whatever the tensors are.
    Float(f32),
    /// One number of the tensors' type.
    Element(f32),
}

/// A node on the way from the graph into a file.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeForm {
    /// The version of the operator set to write for.
    pub opset: i64,
    /// The attributes.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// Constant inputs behind the tensors.
    pub constants: Vec<ConstantForm>,
}

impl NodeForm {
    /// An empty form.
    pub fn new(opset: i64) -> Self {
        Self { opset, attributes: Vec::new(), constants: Vec::new() }
    }

    /// Adds an integer.
    pub fn int(&mut self, name: &'static str, value: i64) {
        self.attributes.push((name, Attribute::Int(value)));
    }

    /// Adds integers.
    pub fn ints(&mut self, name: &'static str, value: Vec<i64>) {
        self.attributes.push((name, Attribute::Ints(value)));
    }

    /// Adds sizes.
    pub fn sizes(&mut self, name: &'static str, value: impl IntoIterator<Item = usize>) {
        self.ints(name, value.into_iter().map(from_size).collect());
    }

    /// Adds a number.
    pub fn float(&mut self, name: &'static str, value: f32) {
        self.attributes.push((name, Attribute::Float(value)));
    }

    /// Adds a text.
    pub fn text(&mut self, name: &'static str, value: &str) {
        self.attributes.push((name, Attribute::Text(value.to_owned())));
    }

    /// Adds a constant input.
    pub fn constant(&mut self, value: ConstantForm) {
        self.constants.push(value);
    }
}
