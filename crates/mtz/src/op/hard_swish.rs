//! `HardSwish`: x · clamp(x/6 + 1/2, 0, 1).

use super::Operator;
use super::node::NodeSpec;
use crate::error::Result;

/// x · clamp(x/6 + 1/2, 0, 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardSwish;

impl HardSwish {
    fn derivative(&self, x: f32, _y: f32) -> f32 {
        if x <= -3.0 {
            0.0
        } else if x < 3.0 {
            x / 3.0 + 0.5
        } else {
            1.0
        }
    }
}

impl Operator for HardSwish {
    const NAME: &'static str = "HardSwish";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(_node: &mut NodeSpec) -> Result<Self> {
        Ok(Self)
    }

    super::unary::elementwise!(|_: &Self, x: f32| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), Self::derivative);
}
