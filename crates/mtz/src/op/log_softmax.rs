//! `LogSoftmax`: x − log Σ eˣ along an axis.

use super::softmax_rows::{along_one_axis, exponentials, for_each_line, lines_backward};
use super::{Gradients, Inputs, Operator, Pass};
use crate::tensor::ViewMut;

/// x − log Σ eˣ along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSoftmax {
    /// The axis.
    pub axis: usize,
}

impl Operator for LogSoftmax {
    const NAME: &'static str = "LogSoftmax";
    along_one_axis!();

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
}
