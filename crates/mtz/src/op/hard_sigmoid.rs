//! `HardSigmoid`: clamp(α x + β, 0, 1).

use super::Operator;
use super::node::{NodeForm, NodeSpec};
use crate::error::Result;

/// clamp(α x + β, 0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HardSigmoid {
    /// The slope.
    pub alpha: f32,
    /// The value at zero.
    pub beta: f32,
}

impl Operator for HardSigmoid {
    const NAME: &'static str = "HardSigmoid";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        Ok(Self { alpha: node.float("alpha")?.unwrap_or(0.2), beta: node.float("beta")?.unwrap_or(0.5) })
    }

    fn write(&self, form: &mut NodeForm) {
        form.float("alpha", self.alpha);
        form.float("beta", self.beta);
    }

    super::unary::elementwise!(|op: &Self, x: f32| (op.alpha * x + op.beta).clamp(0.0, 1.0), |op: &Self,
    _: f32, y: f32| {
        if y > 0.0 && y < 1.0 { op.alpha } else { 0.0 }
    });
}
