//! `Unsqueeze`: adds axes of length one.

use super::axes::{AxisLink, reshape};
use super::node::{ConstantForm, NodeForm, NodeSpec, from_size};
use super::{Operator, Shapes};
use super::view::hand_numbers_on;
use crate::error::{Error, Result};
use crate::tensor::{Dim, Shape};

/// Adds axes of length one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsqueeze {
    /// Where they stand in the output, in rising order.
    pub axes: Vec<usize>,
}

impl Operator for Unsqueeze {
    const NAME: &'static str = "Unsqueeze";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        // Axes count in the output, whose rank is only known with their number.
        let count = match node.clone().ints("axes")? {
            Some(axes) => axes.len(),
            None => node.clone().integers(1)?.map_or(0, |axes| axes.len()),
        };
        let rank = node.shape(0)?.rank() + count;
        let axes = node.axes(1, rank)?.ok_or_else(|| Error::model("the axes are missing"))?;
        Ok(Self { axes })
    }

    fn write(&self, form: &mut NodeForm) {
        form.constant(ConstantForm::Ints(self.axes.iter().map(|&a| from_size(a)).collect()));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let mut dims = inputs.get(0)?.dims().to_vec();
        for &axis in &self.axes {
            if axis > dims.len() {
                return Err(Error::model(format!("axis {axis} is outside the output")));
            }
            dims.insert(axis, Dim::Fixed(1));
        }
        Shape::new(dims)
    }

    hand_numbers_on!();

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        reshape(inputs[0], output)
    }
}
