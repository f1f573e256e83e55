//! `Concat`: tensors one behind the other along an axis.

use super::axes::{AxisLink, Port, through};
use super::node::{NodeForm, NodeSpec, from_size};
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::{for_each_run, map_into};
use crate::tensor::{Dim, Shape, ViewMut};

/// Tensors one behind the other along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl Operator for Concat {
    const NAME: &'static str = "Concat";
    const INPUTS: (usize, usize) = (1, usize::MAX);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let axis = node.int("axis")?.ok_or_else(|| Error::model("attribute \"axis\" is missing"))?;
        Ok(Self { axis: node.shape(0)?.axis(axis)? })
    }

    fn write(&self, form: &mut NodeForm) {
        form.int("axis", from_size(self.axis));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let first = inputs.get(0)?;
        let mut total = 0usize;
        for i in 0..inputs.count() {
            let shape = inputs.get(i)?;
            if shape.rank() != first.rank() || shape.with_dim(self.axis, first.dim(self.axis)?)? != *first {
                return Err(Error::model(format!("input {i} is {shape}, which does not continue {first}")));
            }
            total = total.saturating_add(shape.fixed_dim(self.axis)?);
        }
        first.with_dim(self.axis, Dim::Fixed(total))
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let run: usize = out.shape[self.axis..].iter().product();
        for_each_run(out.data, run, |outer, mut out| {
            for input in inputs.0.iter().flatten() {
                let len: usize = input.shape[self.axis..].iter().product();
                let (here, rest) = out.split_at_mut(len);
                here.copy_from_slice(&input.data[outer * len..][..len]);
                out = rest;
            }
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let run: usize = pass.output.shape[self.axis..].iter().product();
        let mut offset = 0;
        for (i, input) in pass.inputs.0.iter().enumerate() {
            let len: usize = input.map_or(0, |v| v.shape[self.axis..].iter().product());
            if let Some(gradient) = gradients.get(i) {
                let add = gradient.add;
                for_each_run(gradient.data, len, |outer, gradient| {
                    map_into(&pass.grad.data[outer * run + offset..][..len], gradient, add, |g| g);
                });
            }
            offset += len;
        }
    }

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        let mut links = Vec::new();
        let mut offset = 0;
        for (i, shape) in inputs.iter().enumerate() {
            links.extend(through(i, output.len(), |a| a == self.axis));
            let link = AxisLink::same((Port::Input(i), self.axis), (Port::Output, self.axis));
            let rest = output[self.axis] - offset - shape[self.axis];
            links.push(AxisLink { offset, rest, ..link });
            offset += shape[self.axis];
        }
        links
    }
}
