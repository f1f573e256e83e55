//! `LogSoftmax`: x − log Σ eˣ along an axis.

use super::axes::{AxisLink, through};
use super::node::{NodeForm, NodeSpec, from_size};
use super::softmax_rows::{exponentials, for_each_line, lines_backward, read_axis, shape};
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::Result;
use crate::tensor::{Shape, ViewMut};

/// x − log Σ eˣ along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSoftmax {
    /// The axis.
    pub axis: usize,
}

impl Operator for LogSoftmax {
    const NAME: &'static str = "LogSoftmax";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        Ok(Self { axis: read_axis(node)? })
    }

    fn write(&self, form: &mut NodeForm) {
        form.int("axis", from_size(self.axis));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        shape(self.axis, inputs)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        for_each_line(self.axis, inputs, out, |x, out| {
            let (largest, sum) = exponentials(x, out);
            let shift = largest + sum.ln();
            out.iter_mut().zip(x).for_each(|(out, x)| *out = x - shift);
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        // g − eʸ Σ g
        let Some(gradient) = gradients.get(0) else { return };
        lines_backward(self.axis, pass, gradient, |y, g, out| {
            let sum: f32 = g.iter().sum();
            out.iter_mut().zip(y).zip(g).for_each(|((out, y), g)| *out = g - y.exp() * sum);
        });
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |_| false)
    }
}
