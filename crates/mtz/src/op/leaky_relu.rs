//! `LeakyRelu`: x for x ≥ 0, α x below.

use super::Operator;
use super::node::{NodeForm, NodeSpec};
use crate::error::Result;

/// x for x ≥ 0, α x below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeakyRelu {
    /// The slope below zero.
    pub alpha: f32,
}

impl Operator for LeakyRelu {
    const NAME: &'static str = "LeakyRelu";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        Ok(Self { alpha: node.float("alpha")?.unwrap_or(0.01) })
    }

    fn write(&self, form: &mut NodeForm) {
        form.float("alpha", self.alpha);
    }

    super::unary::elementwise!(|op: &Self, x: f32| if x < 0.0 { op.alpha * x } else { x }, |op: &Self, x: f32, _: f32| {
        if x > 0.0 { 1.0 } else { op.alpha }
    });
}
