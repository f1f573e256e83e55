//! `MatMul`: matrix products over the last two axes, repeated over the others as numpy does.

use super::axes::{AxisLink, Port};
use super::binary::broadcast_shape;
use super::node::NodeSpec;
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::broadcast::broadcast_strides;
use crate::kernel::gemm::{Matrix, multiply};
use crate::tensor::{Dim, Shape, ViewMut};
use rayon::prelude::*;

/// A B over the last two axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMul;

impl Operator for MatMul {
    const NAME: &'static str = "MatMul";
    const INPUTS: (usize, usize) = (2, 2);

    fn read(_node: &mut NodeSpec) -> Result<Self> {
        Ok(Self)
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let (a, b) = (inputs.get(0)?, inputs.get(1)?);
        let (Some((&[rows, depth_a], front_a)), Some((&[depth_b, columns], front_b))) = (split(a), split(b)) else {
            return Err(Error::unsupported(format!("{a} times {b}: vectors must be reshaped to matrices")));
        };
        if depth_a != depth_b || depth_a.fixed().is_none() {
            return Err(Error::model(format!("{a} times {b}: the inner sizes {depth_a} and {depth_b} differ")));
        }
        let front = broadcast_shape(&Shape::new(front_a.to_vec())?, &Shape::new(front_b.to_vec())?)?;
        Shape::new(front.dims().iter().copied().chain([rows, columns]).collect())
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let (a, b) = (inputs.get(0), inputs.get(1));
        let (ra, rb) = (a.shape.len(), b.shape.len());
        let (rows, depth, columns) = (a.shape[ra - 2], a.shape[ra - 1], b.shape[rb - 1]);
        if rb == 2 {
            // One weight for all: a single tall product.
            let rows = a.data.len() / depth;
            return multiply(out.data, Matrix::new(a.data, rows, depth), Matrix::new(b.data, depth, columns),
            1.0, false);
        }
        let front = &out.shape[..out.shape.len() - 2];
        let step_a = broadcast_strides(&a.shape[..ra - 2], front);
        let step_b = broadcast_strides(&b.shape[..rb - 2], front);
        out.data.par_chunks_mut(rows * columns).enumerate().for_each(|(index, out)| {
            let (mut rest, mut at_a, mut at_b) = (index, 0, 0);
            for axis in (0..front.len()).rev() {
                at_a += rest % front[axis] * step_a[axis];
                at_b += rest % front[axis] * step_b[axis];
                rest /= front[axis];
            }
            let a = Matrix::new(&a.data[at_a * rows * depth..], rows, depth);
            let b = Matrix::new(&b.data[at_b * depth * columns..], depth, columns);
            multiply(out, a, b, 1.0, false);
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let (a, b) = (pass.inputs.get(0), pass.inputs.get(1));
        let (ra, rb) = (a.shape.len(), b.shape.len());
        let (rows, depth, columns) = (a.shape[ra - 2], a.shape[ra - 1], b.shape[rb - 1]);
        let front = &pass.output.shape[..pass.output.shape.len() - 2];
        let step_a = broadcast_strides(&a.shape[..ra - 2], front);
        let step_b = broadcast_strides(&b.shape[..rb - 2], front);
        let place = |index: usize| {
            let (mut rest, mut at_a, mut at_b) = (index, 0, 0);
            for axis in (0..front.len()).rev() {
                at_a += rest % front[axis] * step_a[axis];
                at_b += rest % front[axis] * step_b[axis];
                rest /= front[axis];
            }
            (at_a, at_b)
        };
        let grads = || pass.grad.data.chunks(rows * columns).map(|g| Matrix::new(g, rows, columns)).enumerate();
        if let Some(gradient) = gradients.get(0) {
            gradient.start();
            for (index, grad) in grads() {
                let (at_a, at_b) = place(index);
                let b = Matrix::new(&b.data[at_b * depth * columns..], depth, columns);
                let target = &mut gradient.data[at_a * rows * depth..][..rows * depth];
                multiply(target, grad, b.transposed(), 1.0, true);
            }
        }
        if let Some(gradient) = gradients.get(1) {
            gradient.start();
            for (index, grad) in grads() {
                let (at_a, at_b) = place(index);
                let a = Matrix::new(&a.data[at_a * rows * depth..], rows, depth);
                let target = &mut gradient.data[at_b * depth * columns..][..depth * columns];
                multiply(target, a.transposed(), grad, 1.0, true);
            }
        }
    }

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        let (a, b, out) = (inputs[0].len(), inputs[1].len(), output.len());
        let mut links = vec![
            AxisLink::same((Port::Input(0), a - 2), (Port::Output, out - 2)),
            AxisLink::same((Port::Input(1), b - 2), (Port::Input(0), a - 1)),
            AxisLink::same((Port::Input(1), b - 1), (Port::Output, out - 1)),
        ];
        for (i, shape) in inputs.iter().enumerate() {
            let missing = out - shape.len();
            for (axis, &len) in shape[..shape.len() - 2].iter().enumerate() {
                if len == output[axis + missing] && len > 1 {
                    links.push(AxisLink::same((Port::Input(i), axis), (Port::Output, axis + missing)));
                }
            }
        }
        links
    }

    fn multiply_adds(&self, inputs: &[&[usize]], output: &[usize]) -> u64 {
        let depth = inputs[0].last().copied().unwrap_or(0);
        output.iter().product::<usize>() as u64 * depth as u64
    }
}

/// The last two dimensions and those before.
fn split(shape: &Shape) -> Option<(&[Dim; 2], &[Dim])> {
    shape.dims().split_last_chunk().map(|(front, matrix)| (matrix, front))
}
