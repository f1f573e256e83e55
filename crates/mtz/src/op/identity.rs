//! `Identity`: the input itself.

use super::axes::{AxisLink, through};
use super::node::NodeSpec;
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::Result;
use crate::tensor::{Shape, ViewMut};

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

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        out.data.copy_from_slice(inputs.get(0).data);
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        if let Some(gradient) = gradients.get(0) {
            gradient.pass_on(pass.grad.data);
        }
    }

    fn is_view(&self) -> bool {
        true
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |_| false)
    }
}
