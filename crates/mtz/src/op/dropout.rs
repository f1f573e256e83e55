//! `Dropout`: in inference, the input itself; in training, a random share is set to zero and the rest scaled up.

use super::axes::{AxisLink, through};
use super::node::{ConstantForm, NodeForm, NodeSpec};
use super::{Gradients, Inputs, Operator, Pass, Shapes, Training};
use crate::error::{Error, Result};
use crate::kernel::{for_each_run, map3_into};
use crate::random;
use crate::tensor::{Shape, ViewMut};

/// Sets a random share of the numbers to zero in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share of elements dropped.
    pub ratio: f32,
}

impl Operator for Dropout {
    const NAME: &'static str = "Dropout";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        node.ignore(&["seed"]);
        let ratio = if node.opset < 12 {
            node.float("ratio")?
        } else {
            if node.number(2)?.is_some_and(|training| training != 0.0) {
                return Err(
                    Error::unsupported("training_mode is on").hint("export the model in evaluation mode: model.eval()")
                );
            }
            node.number(1)?
        };
        match ratio.unwrap_or(0.5) {
            ratio if (0.0..1.0).contains(&ratio) => Ok(Self { ratio }),
            ratio => Err(Error::model(format!("ratio is {ratio}"))),
        }
    }

    fn write(&self, form: &mut NodeForm) {
        form.constant(ConstantForm::Float(self.ratio));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        inputs.get(0).cloned()
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        out.data.copy_from_slice(inputs.get(0).data);
    }

    /// The factor of each number: 0, or 1 / (1 − ratio).
    fn saved(&self, _inputs: &[&[usize]], output: &[usize]) -> usize {
        output.iter().product()
    }

    fn forward_training(&self, inputs: &Inputs, out: ViewMut, training: &mut Training) {
        const RUN: usize = 1024;
        let keep = 1.0 / (1.0 - self.ratio);
        for_each_run(training.saved, RUN, |run, factors| {
            for (i, factor) in (run * RUN..).zip(factors.iter_mut()) {
                let dropped = random::uniform(training.seed, i as u64) < self.ratio;
                *factor = if dropped { 0.0 } else { keep };
            }
        });
        let x = inputs.get(0).data;
        map3_into(x, training.saved, x, out.data, false, |x, factor, _| x * factor);
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        if let Some(gradient) = gradients.get(0) {
            let g = pass.grad.data;
            map3_into(g, pass.saved, g, gradient.data, gradient.add, |g, factor, _| g * factor);
        }
    }

    fn is_view(&self) -> bool {
        true
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |_| false)
    }
}
