//! `Softmax`: eˣ / Σ eˣ along an axis.

use super::softmax_rows::{along_one_axis, exponentials, for_each_line, lines_backward};
use super::{Gradients, Inputs, Operator, Pass};
use crate::tensor::ViewMut;

/// eˣ / Σ eˣ along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
}

impl Operator for Softmax {
    const NAME: &'static str = "Softmax";
    along_one_axis!();

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        for_each_line(self.axis, inputs, out, |x, out| {
            let (_, sum) = exponentials(x, out);
            out.iter_mut().for_each(|out| *out /= sum);
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        // y · (g − Σ g y)
        let Some(gradient) = gradients.get(0) else { return };
        lines_backward(self.axis, pass, gradient, |y, g, out| {
            let dot: f32 = y.iter().zip(g).map(|(y, g)| y * g).sum();
            out.iter_mut().zip(y).zip(g).for_each(|((out, y), g)| *out = y * (g - dot));
        });
    }
}
