//! `Gather` with constant indices: chosen elements of one axis.

use super::axes::{AxisLink, Port};
use super::node::{ConstantForm, NodeForm, NodeSpec, from_size, to_integer};
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::for_each_run;
use crate::tensor::{Dim, Shape, ViewMut, normalize_axis};

/// Chosen elements of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The axis.
    pub axis: usize,
    /// The shape of the indices, which takes the axis' place; empty for a single index, which drops the axis.
    pub index_shape: Vec<usize>,
    /// The elements, in row-major order.
    pub indices: Vec<usize>,
}

impl Operator for Gather {
    const NAME: &'static str = "Gather";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let x = node.shape(0)?;
        let axis = x.axis(node.int("axis")?.unwrap_or(0))?;
        let indices = node.constant(1)?.ok_or_else(|| Error::model("the indices are missing"))?;
        let len = x.fixed_dim(axis)?;
        let numbers = indices.numbers().ok_or_else(|| Error::unsupported("the indices depend on the batch size"))?;
        let numbers = numbers.into_iter().map(|i| normalize_axis(to_integer(i)?, len)).collect::<Result<_>>();
        let numbers = numbers.map_err(|_| Error::model(format!("an index is outside axis {axis} of {x}")))?;
        Ok(Self { axis, index_shape: indices.shape, indices: numbers })
    }

    fn write(&self, form: &mut NodeForm) {
        form.int("axis", from_size(self.axis));
        let indices = self.indices.iter().map(|&i| from_size(i)).collect();
        form.constant(ConstantForm::IntTensor(self.index_shape.clone(), indices));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        let len = x.fixed_dim(self.axis)?;
        if self.indices.iter().any(|&i| i >= len) {
            return Err(Error::model(format!("an index is outside axis {} of {x}", self.axis)));
        }
        let mut dims = x.dims().to_vec();
        dims.splice(self.axis..=self.axis, self.index_shape.iter().map(|&n| Dim::Fixed(n)));
        Shape::new(dims)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let (len, inner) = (x.shape[self.axis], x.shape[self.axis + 1..].iter().product::<usize>());
        for_each_run(out.data, inner, |i, run| {
            let (outer, index) = (i / self.indices.len(), self.indices[i % self.indices.len()]);
            run.copy_from_slice(&x.data[(outer * len + index) * inner..][..inner]);
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        gradient.start();
        let shape = pass.inputs.get(0).shape;
        let (len, inner) = (shape[self.axis], shape[self.axis + 1..].iter().product::<usize>());
        for (i, run) in pass.grad.data.chunks(inner).enumerate() {
            let (outer, index) = (i / self.indices.len(), self.indices[i % self.indices.len()]);
            let target = &mut gradient.data[(outer * len + index) * inner..][..inner];
            target.iter_mut().zip(run).for_each(|(target, g)| *target += g);
        }
    }

    fn links(&self, inputs: &[&[usize]], _output: &[usize]) -> Vec<AxisLink> {
        let to = |axis: usize| if axis < self.axis { axis } else { axis + self.index_shape.len() - 1 };
        (0..inputs[0].len())
            .filter(|&axis| axis != self.axis)
            .map(|axis| AxisLink::same((Port::Input(0), axis), (Port::Output, to(axis))))
            .collect()
    }
}
