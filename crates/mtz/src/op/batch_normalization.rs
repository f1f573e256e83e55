//! `BatchNormalization` in inference: scale · (x − mean) / √(variance + ε) + bias, per channel (axis 1).

use super::axes::{AxisLink, Port, through};
use super::node::{NodeForm, NodeSpec};
use super::{Gradients, Inputs, Operator, Pass, Shapes, Training};
use crate::error::{Error, Result};
use crate::kernel::{for_each_run, reduce};
use crate::tensor::{Dim, Shape, View, ViewMut};
use rayon::prelude::*;

/// scale · (x − mean) / √(variance + ε) + bias. Inputs: x, scale, bias, mean, variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormalization {
    /// ε, added to the variance.
    pub epsilon: f32,
    /// The share of the old running averages that is kept in each step of training.
    pub momentum: f32,
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

/// The planes of one channel, sample by sample.
fn channel<'a>(x: View<'a>, c: usize) -> impl Iterator<Item = &'a [f32]> {
    let plane: usize = x.shape[2..].iter().product();
    let channels = x.shape[1];
    (0..x.shape[0]).map(move |n| &x.data[(n * channels + c) * plane..][..plane])
}

impl Operator for BatchNormalization {
    const NAME: &'static str = "BatchNormalization";
    const INPUTS: (usize, usize) = (5, 5);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        if node.flag("training_mode")? {
            return Err(Error::unsupported("training_mode is on")
                .hint("export the model in evaluation mode: model.eval()"));
        }
        Ok(Self { epsilon: node.float("epsilon")?.unwrap_or(1e-5), momentum: node.float("momentum")?.unwrap_or(0.9) })
    }

    fn write(&self, form: &mut NodeForm) {
        form.float("epsilon", self.epsilon);
        form.float("momentum", self.momentum);
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

    /// Mean and variance of each channel in the batch.
    fn saved(&self, _inputs: &[&[usize]], output: &[usize]) -> usize {
        2 * output[1]
    }

    fn forward_training(&self, inputs: &Inputs, out: ViewMut, training: &mut Training) {
        let x = inputs.get(0);
        let channels = x.shape[1];
        let (means, variances) = training.saved.split_at_mut(channels);
        let plane: usize = x.shape[2..].iter().product();
        means.par_iter_mut().zip(variances.par_iter_mut()).enumerate().for_each(|(c, (mean, variance))| {
            // One plane at a time, which stays in cache: its mean, its squares about that, then both joined with what
            // came before (Chan, Golub and LeVeque 1979).
            let (mut n, mut total_mean, mut squares) = (0.0f32, 0.0f32, 0.0f32);
            for x in channel(x, c) {
                let own = reduce::sum(x, |x| x) / plane as f32;
                let own_squares = reduce::sum(x, |x| (x - own) * (x - own));
                let (difference, sum) = (own - total_mean, n + plane as f32);
                squares += own_squares + difference * difference * n * plane as f32 / sum;
                total_mean += difference * plane as f32 / sum;
                n = sum;
            }
            (*mean, *variance) = (total_mean, squares / n);
        });
        let statistics = [0, 1].map(|i| View { shape: &x.shape[1..2],
        data: if i == 0 { &*means } else { &*variances } });
        let inputs = [Some(x), inputs.optional(1), inputs.optional(2), Some(statistics[0]), Some(statistics[1])];
        self.forward(&Inputs(&inputs), out);
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let (x, scale) = (pass.inputs.get(0), pass.inputs.get(1).data);
        let (channels, plane) = (x.shape[1], x.shape[2..].iter().product::<usize>());
        let (means, variances) = pass.saved.split_at(channels);
        let count = (x.data.len() / channels) as f32;
        let factor = |c: usize| 1.0 / (variances[c] + self.epsilon).sqrt();
        // Σ g and Σ g x̂ per channel, with x̂ the normalised input: the gradients of bias and scale.
        let mut sums = vec![0.0; 2 * channels];
        sums.par_chunks_mut(2).enumerate().for_each(|(c, sums)| {
            let mean = means[c];
            for (x, g) in channel(x, c).zip(channel(pass.grad, c)) {
                let (sum, product) = reduce::two_sums(x, g, |_, g| g, |x, g| g * (x - mean));
                sums[0] += sum;
                sums[1] += product;
            }
            sums[1] *= factor(c);
        });
        for (input, offset) in [(1, 1), (2, 0)] {
            if let Some(gradient) = gradients.get(input) {
                gradient.start();
                gradient.data.iter_mut().zip(sums.iter().skip(offset).step_by(2)).for_each(|(out, sum)| *out += sum);
            }
        }
        if let Some(gradient) = gradients.get(0) {
            // scale · factor · (g − mean(g) − x̂ · mean(g x̂))
            let add = gradient.add;
            for_each_run(gradient.data, plane, |i, out| {
                let c = i % channels;
                let (mean_g, mean_gx) = (sums[2 * c] / count, sums[2 * c + 1] / count * factor(c));
                let outer = scale[c] * factor(c);
                let (x, g) = (&x.data[i * plane..][..plane], &pass.grad.data[i * plane..][..plane]);
                let mean = means[c];
                let values = x.iter().zip(g).map(|(x, g)| outer * (g - mean_g - (x - mean) * mean_gx));
                if add {
                    out.iter_mut().zip(values).for_each(|(out, value)| *out += value);
                } else {
                    out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
                }
            });
        }
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        let mut links = through(0, output.len(), |_| false);
        links.extend((1..5).map(|i| AxisLink::same((Port::Input(i), 0), (Port::Output, 1))));
        links
    }
}
