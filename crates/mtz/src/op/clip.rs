//! `Clip`: x limited to [min, max]. The limits are attributes up to opset 10 and constant inputs after.

use super::Operator;
use super::node::{ConstantForm, NodeForm, NodeSpec};
use crate::error::Result;
use crate::tensor::Element;

/// x limited to [min, max].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// The lower limit.
    pub min: f32,
    /// The upper limit.
    pub max: f32,
}

impl Operator for Clip {
    const NAME: &'static str = "Clip";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let (min, max) = if node.opset < 11 {
            (node.float("min")?, node.float("max")?)
        } else {
            (node.number(1)?, node.number(2)?)
        };
        Ok(Self { min: min.unwrap_or(f32::MIN), max: max.unwrap_or(f32::MAX) })
    }

    fn write(&self, form: &mut NodeForm) {
        form.constant(ConstantForm::Element(self.min));
        form.constant(ConstantForm::Element(self.max));
    }

    fn round(&mut self, element: Element) {
        (self.min, self.max) = (element.limit(self.min), element.limit(self.max));
    }

    // Not `clamp`, which panics for min > max (ONNX: max wins), nor `f32::max`, which swallows NaN.
    super::unary::elementwise!(
        |op: &Self, x: f32| {
            let x = if x < op.min { op.min } else { x };
            if x > op.max { op.max } else { x }
        },
        |op: &Self, x: f32, _: f32| if x >= op.min && x <= op.max { 1.0 } else { 0.0 }
    );
}
