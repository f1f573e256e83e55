//! `Dropout`: in inference, the input itself.

use super::axes::{AxisLink, through};
use super::node::{NodeForm, NodeSpec};
use super::{Inputs, Operator, Shapes};
use crate::error::{Error, Result};
use crate::op::node::ConstantForm;
use crate::tensor::{Shape, ViewMut};

/// The input itself; the ratio is kept for those who go on training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share of elements dropped in training.
    pub ratio: f32,
}

impl Operator for Dropout {
    const NAME: &'static str = "Dropout";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        node.ignore(&["seed"]);
        let ratio = if node.opset < 12 {
            node.float("ratio")?
        } else {
            if node.number(2)?.is_some_and(|training| training != 0.0) {
                return Err(Error::unsupported("training_mode is on")
                    .hint("export the model in evaluation mode: model.eval()"));
            }
            node.number(1)?
        };
        Ok(Self { ratio: ratio.unwrap_or(0.5) })
    }

    fn write(&self, form: &mut NodeForm) {
        form.constant(ConstantForm::Float(self.ratio));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        inputs.get(0).cloned()
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        out.data.copy_from_slice(inputs.get(0).data);
    }

    fn is_view(&self) -> bool {
        true
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |_| false)
    }
}
