//! `PRelu`: x for x ≥ 0, slope · x below, with a trained slope per channel (or one for all).

use super::axes::{AxisLink, broadcast};
use super::node::NodeSpec;
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::broadcast::zip;
use crate::op::binary::{backward, broadcast_shape};
use crate::tensor::{Shape, ViewMut};

/// x for x ≥ 0, slope · x below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PRelu;

impl Operator for PRelu {
    const NAME: &'static str = "PRelu";
    const INPUTS: (usize, usize) = (2, 2);

    fn read(_node: &mut NodeSpec) -> Result<Self> {
        Ok(Self)
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let (x, slope) = (inputs.get(0)?, inputs.get(1)?);
        if broadcast_shape(x, slope)? != *x {
            return Err(Error::model(format!("slope {slope} is larger than the input {x}")));
        }
        Ok(x.clone())
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        zip(inputs.get(0), inputs.get(1), out, |x, slope| if x < 0.0 { slope * x } else { x });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let below = |x: f32| x <= 0.0;
        backward(
            pass,
            gradients,
            |x, slope, _| if below(x) { slope } else { 1.0 },
            |x, _, _| if below(x) { x } else { 0.0 },
        );
    }

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        broadcast(inputs, output)
    }
}
