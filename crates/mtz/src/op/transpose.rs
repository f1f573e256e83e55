//! `Transpose`: axes in another order.

use super::axes::{AxisLink, Port};
use super::node::{NodeForm, NodeSpec, to_size};
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::read_strided;
use crate::tensor::{Shape, ViewMut, strides};

/// Axes in another order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transpose {
    /// For each axis of the output, the axis of the input.
    pub permutation: Vec<usize>,
}

impl Operator for Transpose {
    const NAME: &'static str = "Transpose";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let rank = node.shape(0)?.rank();
        let permutation = match node.ints("perm")? {
            Some(axes) => axes.into_iter().map(|a| to_size(a, "perm")).collect::<Result<_>>()?,
            None => (0..rank).rev().collect(),
        };
        Ok(Self { permutation })
    }

    fn write(&self, form: &mut NodeForm) {
        form.sizes("perm", self.permutation.iter().copied());
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        let mut sorted = self.permutation.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..x.rank()) {
            return Err(Error::model(format!("perm {:?} does not order the axes of {x}", self.permutation)));
        }
        Shape::new(self.permutation.iter().map(|&a| x.dim(a)).collect::<Result<_>>()?)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let own = strides(x.shape);
        let steps: Vec<usize> = self.permutation.iter().map(|&from| own[from]).collect();
        read_strided(x.data, out.shape, &steps, out.data, false, |x| x);
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        // The same walk with input and output exchanged: the gradient is read in the input's order.
        let shape = pass.inputs.get(0).shape;
        let own = strides(pass.grad.shape);
        let place = |axis: usize| self.permutation.iter().position(|&a| a == axis).map_or(0, |p| own[p]);
        let steps: Vec<usize> = (0..shape.len()).map(place).collect();
        read_strided(pass.grad.data, shape, &steps, gradient.data, gradient.add, |g| g);
    }

    fn links(&self, _inputs: &[&[usize]], _output: &[usize]) -> Vec<AxisLink> {
        let axes = self.permutation.iter().enumerate();
        axes.map(|(to, &from)| AxisLink::same((Port::Input(0), from), (Port::Output, to))).collect()
    }
}
