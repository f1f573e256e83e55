//! `Gelu`: x · Φ(x), with Φ the normal distribution, exact or by its usual approximation with tanh.

use super::Operator;
use super::node::{NodeForm, NodeSpec};
use crate::error::{Error, Result};

/// x · Φ(x).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gelu {
    /// Φ(x) ≈ ½ (1 + tanh(√(2/π) (x + 0.044715 x³))).
    pub tanh: bool,
}

impl Gelu {
    fn apply(&self, x: f32) -> f32 {
        if self.tanh {
            0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
        } else {
            0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))
        }
    }
}

impl Gelu {
    /// Φ(x) + x φ(x), or the derivative of the approximation.
    fn derivative(&self, x: f32, _y: f32) -> f32 {
        if self.tanh {
            let t = (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh();
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.797_884_6 * (1.0 + 0.134_145 * x * x)
        } else {
            0.5 * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2)) + x * 0.398_942_3 * (-0.5 * x * x).exp()
        }
    }
}

impl Operator for Gelu {
    const NAME: &'static str = "Gelu";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        match node.text("approximate")?.as_deref() {
            None | Some("none") => Ok(Self { tanh: false }),
            Some("tanh") => Ok(Self { tanh: true }),
            Some(other) => Err(Error::unsupported(format!("approximate={other:?}"))),
        }
    }

    fn write(&self, form: &mut NodeForm) {
        form.text("approximate", if self.tanh { "tanh" } else { "none" });
    }

    fn since(&self) -> i64 {
        20
    }

    super::unary::elementwise!(Self::apply, Self::derivative);
}
