//! What all operators on two tensors have in common: numpy's broadcasting.

use super::{Gradient, Gradients, Pass};
use crate::error::{Error, Result};
use crate::kernel::broadcast::{self, Target};
use crate::tensor::{Dim, Shape};

/// The shape two tensors are repeated to: axes aligned at the end, each pair equal or one of them 1.
pub(crate) fn broadcast_shape(a: &Shape, b: &Shape) -> Result<Shape> {
    let rank = a.rank().max(b.rank());
    let dim = |s: &Shape, axis: usize| match (axis + s.rank()).checked_sub(rank) {
        Some(own) => s.dim(own),
        None => Ok(Dim::Fixed(1)),
    };
    let dims = (0..rank)
        .map(|axis| match (dim(a, axis)?, dim(b, axis)?) {
            (x, y) if x == y => Ok(x),
            (x, Dim::Fixed(1)) | (Dim::Fixed(1), x) => Ok(x),
            _ => Err(Error::model(format!("shapes {a} and {b} do not fit together"))),
        })
        .collect::<Result<_>>()?;
    Shape::new(dims)
}

/// An operator without parameters that applies `$f` to two numbers a and b at a time, giving y, with the derivatives
/// `$da` and `$db` of (a, b, y).
macro_rules! binary_operator {
    ($(#[$doc:meta])* $name:ident, $f:expr, $da:expr, $db:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name;

        impl crate::op::Operator for $name {
            const NAME: &'static str = stringify!($name);
            const INPUTS: (usize, usize) = (2, 2);

            fn read(_node: &mut crate::op::node::NodeSpec) -> crate::error::Result<Self> {
                Ok(Self)
            }

            fn shape(&self, inputs: &crate::op::Shapes) -> crate::error::Result<crate::tensor::Shape> {
                crate::op::binary::broadcast_shape(inputs.get(0)?, inputs.get(1)?)
            }

            fn forward(&self, inputs: &crate::op::Inputs, out: crate::tensor::ViewMut) {
                crate::kernel::broadcast::zip(inputs.get(0), inputs.get(1), out, $f);
            }

            fn backward(&self, pass: &crate::op::Pass, gradients: &mut crate::op::Gradients) {
                crate::op::binary::backward(pass, gradients, $da, $db);
            }

            fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<crate::op::axes::AxisLink> {
                crate::op::axes::broadcast(inputs, output)
            }
        }
    };
}

/// The gradients of both operands.
pub(crate) fn backward(
    pass: &Pass,
    gradients: &mut Gradients,
    da: impl Fn(f32, f32, f32) -> f32 + Sync,
    db: impl Fn(f32, f32, f32) -> f32 + Sync,
) {
    let (a, b) = (pass.inputs.get(0), pass.inputs.get(1));
    if let Some(Gradient { data, add }) = gradients.get(0) {
        broadcast::backward(a, b, pass.output, pass.grad.data, a.shape, Target { data, add: *add }, da);
    }
    if let Some(Gradient { data, add }) = gradients.get(1) {
        broadcast::backward(a, b, pass.output, pass.grad.data, b.shape, Target { data, add: *add }, db);
    }
}

pub(crate) use binary_operator;
