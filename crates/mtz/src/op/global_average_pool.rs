//! `GlobalAveragePool`: the mean of each plane.

use super::axes::{AxisLink, through};
use super::node::NodeSpec;
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::{for_each_run, reduce};
use crate::tensor::{Dim, Shape, ViewMut};

/// The mean of each plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalAveragePool;

impl Operator for GlobalAveragePool {
    const NAME: &'static str = "GlobalAveragePool";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(_node: &mut NodeSpec) -> Result<Self> {
        Ok(Self)
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        if x.rank() < 3 {
            return Err(Error::model(format!("{x} has no spatial axes")));
        }
        for axis in 2..x.rank() {
            x.fixed_dim(axis)?;
        }
        let dims = x.dims().iter().enumerate().map(|(i, &d)| if i < 2 { d } else { Dim::Fixed(1) });
        Shape::new(dims.collect())
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let plane: usize = x.shape[2..].iter().product();
        for_each_run(out.data, 1, |i, out| {
            out[0] = reduce::sum(&x.data[i * plane..][..plane], |x| x) / plane as f32;
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        let plane: usize = pass.inputs.get(0).shape[2..].iter().product();
        let add = gradient.add;
        for_each_run(gradient.data, plane, |i, gradient| {
            let g = pass.grad.data[i] / plane as f32;
            gradient.iter_mut().for_each(|x| *x = if add { *x + g } else { g });
        });
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |axis| axis > 1)
    }
}
