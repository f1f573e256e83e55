//! `Flatten`: all axes before `axis` become the first, all others the second.

use super::axes::{AxisLink, reshape};
use super::node::{NodeForm, NodeSpec, from_size};
use super::reshape::merged;
use super::{Operator, Shapes};
use super::view::hand_numbers_on;
use crate::error::{Error, Result};
use crate::tensor::{Shape, normalize_axis};

/// All axes before `axis` become the first, all others the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flatten {
    /// Where to cut.
    pub axis: usize,
}

impl Operator for Flatten {
    const NAME: &'static str = "Flatten";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        // Unlike elsewhere, axis = rank is allowed: everything goes to the first axis.
        let axis = node.int("axis")?.unwrap_or(1);
        let rank = node.shape(0)?.rank();
        let axis = if usize::try_from(axis) == Ok(rank) { rank } else { normalize_axis(axis, rank)? };
        Ok(Self { axis })
    }

    fn write(&self, form: &mut NodeForm) {
        form.int("axis", from_size(self.axis));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        let (first, second) = x
            .dims()
            .split_at_checked(self.axis)
            .ok_or_else(|| Error::model(format!("axis {} is outside {x}", self.axis)))?;
        Shape::new(vec![merged(first)?, merged(second)?])
    }

    hand_numbers_on!();

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        reshape(inputs[0], output)
    }
}
