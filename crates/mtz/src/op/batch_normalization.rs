//! `BatchNormalization` in inference: scale · (x − mean) / √(variance + ε) + bias, per channel (axis 1).

use super::axes::{AxisLink, Port, through};
use super::node::{NodeForm, NodeSpec};
use super::{Inputs, Operator, Shapes};
use crate::error::{Error, Result};
use crate::kernel::for_each_run;
use crate::tensor::{Dim, Shape, ViewMut};

/// scale · (x − mean) / √(variance + ε) + bias. Inputs: x, scale, bias, mean, variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormalization {
    /// ε, added to the variance.
    pub epsilon: f32,
}

impl BatchNormalization {
    /// The same as factor and offset per channel: factor · x + offset.
    pub fn affine(&self, scale: &[f32], bias: &[f32], mean: &[f32], variance: &[f32]) -> Vec<(f32, f32)> {
        scale
            .iter()
            .zip(bias)
            .zip(mean.iter().zip(variance))
            .map(|((&scale, &bias), (&mean, &variance))| {
                let factor = scale / (variance + self.epsilon).sqrt();
                (factor, bias - factor * mean)
            })
            .collect()
    }
}

impl Operator for BatchNormalization {
    const NAME: &'static str = "BatchNormalization";
    const INPUTS: (usize, usize) = (5, 5);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        node.ignore(&["momentum"]);
        if node.flag("training_mode")? {
            return Err(Error::unsupported("training_mode is on")
                .hint("export the model in evaluation mode: model.eval()"));
        }
        Ok(Self { epsilon: node.float("epsilon")?.unwrap_or(1e-5) })
    }

    fn write(&self, form: &mut NodeForm) {
        form.float("epsilon", self.epsilon);
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        let channels = x.fixed_dim(1)?;
        for i in 1..5 {
            let parameter = inputs.get(i)?;
            if parameter.dims() != [Dim::Fixed(channels)] {
                return Err(Error::model(format!("input {i} is {parameter} for {channels} channels")));
            }
        }
        Ok(x.clone())
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let affine =
            self.affine(inputs.get(1).data, inputs.get(2).data, inputs.get(3).data, inputs.get(4).data);
        let plane = x.shape[2..].iter().product();
        for_each_run(out.data, plane, |i, out| {
            let (factor, offset) = affine[i % affine.len()];
            for (out, &x) in out.iter_mut().zip(&x.data[i * plane..]) {
                *out = factor * x + offset;
            }
        });
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        let mut links = through(0, output.len(), |_| false);
        links.extend((1..5).map(|i| AxisLink::same((Port::Input(i), 0), (Port::Output, 1))));
        links
    }
}
