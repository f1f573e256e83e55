//! `Identity`: the input itself.

use super::axes::{AxisLink, through};
use super::node::NodeSpec;
use super::{Operator, Shapes};
use super::view::hand_numbers_on;
use crate::error::Result;
use crate::tensor::{Shape};

/// The input itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity;

impl Operator for Identity {
    const NAME: &'static str = "Identity";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(_node: &mut NodeSpec) -> Result<Self> {
        Ok(Self)
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        inputs.get(0).cloned()
    }

    hand_numbers_on!();

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |_| false)
    }
}
