//! `Squeeze`: drops axes of length one.

use super::axes::{AxisLink, reshape};
use super::node::{ConstantForm, NodeForm, NodeSpec, from_size};
use super::{Operator, Shapes};
use super::view::hand_numbers_on;
use crate::error::{Error, Result};
use crate::tensor::{Dim, Shape};

/// Drops axes of length one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Squeeze {
    /// The axes to drop, in rising order.
    pub axes: Vec<usize>,
}

impl Operator for Squeeze {
    const NAME: &'static str = "Squeeze";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let x = node.shape(0)?;
        let axes = node.axes(1, x.rank())?;
        let ones = || (0..x.rank()).filter(|&a| x.dim(a) == Ok(Dim::Fixed(1))).collect();
        Ok(Self { axes: axes.unwrap_or_else(ones) })
    }

    fn write(&self, form: &mut NodeForm) {
        form.constant(ConstantForm::Ints(self.axes.iter().map(|&a| from_size(a)).collect()));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        for &axis in &self.axes {
            if x.dim(axis)? != Dim::Fixed(1) {
                return Err(Error::model(format!("axis {axis} of {x} is not of length one")));
            }
        }
        Shape::new((0..x.rank()).filter(|a| !self.axes.contains(a)).map(|a| x.dim(a)).collect::<Result<_>>()?)
    }

    hand_numbers_on!();

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        reshape(inputs[0], output)
    }
}
