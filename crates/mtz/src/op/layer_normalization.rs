//! `LayerNormalization`: scale · (x − mean) / √(variance + ε) + bias over the last axes of each sample.

use super::axes::{AxisLink, Port, through};
use super::node::{NodeForm, NodeSpec, from_size};
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::{for_each_run, reduce};
use crate::tensor::{Shape, ViewMut};

/// scale · (x − mean) / √(variance + ε) + bias. Inputs: x, scale, optional bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormalization {
    /// The first of the axes that are normalised together.
    pub axis: usize,
    /// ε, added to the variance.
    pub epsilon: f32,
}

impl Operator for LayerNormalization {
    const NAME: &'static str = "LayerNormalization";
    const INPUTS: (usize, usize) = (2, 3);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        node.ignore(&["stash_type"]); // the precision of the mean, which is f32 here in any case
        let axis = node.shape(0)?.axis(node.int("axis")?.unwrap_or(-1))?;
        Ok(Self { axis, epsilon: node.float("epsilon")?.unwrap_or(1e-5) })
    }

    fn write(&self, form: &mut NodeForm) {
        form.int("axis", from_size(self.axis));
        form.float("epsilon", self.epsilon);
    }

    fn since(&self) -> i64 {
        17
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        for axis in self.axis..x.rank() {
            x.fixed_dim(axis)?;
        }
        for i in 1..inputs.count() {
            if let Some(parameter) = inputs.optional(i)
                && x.dims().get(self.axis..) != Some(parameter.dims())
            {
                return Err(Error::unsupported(format!("input {i} is {parameter}, the input {x}, axis {}", self.axis)));
            }
        }
        Ok(x.clone())
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let (x, scale, bias) = (inputs.get(0), inputs.get(1).data, inputs.optional(2).map(|b| b.data));
        let len = scale.len();
        for_each_run(out.data, len, |i, out| {
            let x = &x.data[i * len..][..len];
            let mean = reduce::sum(x, |x| x) / len as f32;
            let variance = reduce::sum(x, |x| (x - mean) * (x - mean)) / len as f32;
            let factor = 1.0 / (variance + self.epsilon).sqrt();
            for ((out, x), scale) in out.iter_mut().zip(x).zip(scale) {
                *out = (x - mean) * factor * scale;
            }
            if let Some(bias) = bias {
                out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let (x, scale) = (pass.inputs.get(0), pass.inputs.get(1).data);
        let len = scale.len();
        let statistics = |x: &[f32]| {
            let mean = reduce::sum(x, |x| x) / len as f32;
            let variance = reduce::sum(x, |x| (x - mean) * (x - mean)) / len as f32;
            (mean, 1.0 / (variance + self.epsilon).sqrt())
        };
        if let Some(gradient) = gradients.get(0) {
            // With x̂ the normalised input and h = g · scale: factor · (h − mean(h) − x̂ · mean(h · x̂)).
            let add = gradient.add;
            for_each_run(gradient.data, len, |i, out| {
                let (x, g) = (&x.data[i * len..][..len], &pass.grad.data[i * len..][..len]);
                let (mean, factor) = statistics(x);
                let (mut sum, mut product) = (0.0, 0.0);
                for ((x, g), scale) in x.iter().zip(g).zip(scale) {
                    sum += g * scale;
                    product += g * scale * (x - mean) * factor;
                }
                let (sum, product) = (sum / len as f32, product / len as f32);
                for (((out, x), g), scale) in out.iter_mut().zip(x).zip(g).zip(scale) {
                    let value = factor * (g * scale - sum - (x - mean) * factor * product);
                    *out = if add { *out + value } else { value };
                }
            });
        }
        for input in 1..3 {
            let Some(gradient) = gradients.get(input) else { continue };
            gradient.start();
            for (x, g) in x.data.chunks(len).zip(pass.grad.data.chunks(len)) {
                let (mean, factor) = if input == 1 { statistics(x) } else { (0.0, 0.0) };
                for ((out, x), g) in gradient.data.iter_mut().zip(x).zip(g) {
                    *out += if input == 1 { g * (x - mean) * factor } else { *g };
                }
            }
        }
    }

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        let mut links = through(0, output.len(), |_| false);
        for i in 1..inputs.len() {
            let axes = self.axis..output.len();
            links.extend(axes.map(|axis| AxisLink::same((Port::Input(i), axis - self.axis), (Port::Output, axis))));
        }
        links
    }
}
