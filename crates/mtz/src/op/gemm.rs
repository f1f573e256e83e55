//! `Gemm`: α A B + β C, the fully connected layer. A and B may be transposed, C is repeated to fit.

use super::axes::{AxisLink, Port};
use super::binary::broadcast_shape;
use super::node::{NodeForm, NodeSpec};
use super::{Gradient, Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::broadcast::{self, Target};
use crate::kernel::gemm::{Matrix, multiply};
use crate::tensor::{Shape, View, ViewMut};

/// α A B + β C.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of C.
    pub beta: f32,
    /// A is stored transposed.
    pub transpose_a: bool,
    /// B is stored transposed (outputs × inputs, PyTorch's layout).
    pub transpose_b: bool,
}

impl Gemm {
    /// A layer with weights of shape inputs × outputs.
    pub const PLAIN: Self = Self { alpha: 1.0, beta: 1.0, transpose_a: false, transpose_b: false };

    /// The axis of B along the outputs.
    pub fn output_axis(&self) -> usize {
        if self.transpose_b { 0 } else { 1 }
    }
}

impl Operator for Gemm {
    const NAME: &'static str = "Gemm";
    const INPUTS: (usize, usize) = (2, 3);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        Ok(Self {
            alpha: node.float("alpha")?.unwrap_or(1.0),
            beta: node.float("beta")?.unwrap_or(1.0),
            transpose_a: node.flag("transA")?,
            transpose_b: node.flag("transB")?,
        })
    }

    fn write(&self, form: &mut NodeForm) {
        form.float("alpha", self.alpha);
        form.float("beta", self.beta);
        form.int("transA", self.transpose_a.into());
        form.int("transB", self.transpose_b.into());
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let (a, b) = (inputs.get(0)?, inputs.get(1)?);
        if a.rank() != 2 || b.rank() != 2 {
            return Err(Error::model(format!("{a} times {b}: both must be matrices")));
        }
        let side = |s: &Shape, axis: usize, flip: bool| s.dim(if flip { 1 - axis } else { axis });
        let (depth_a, depth_b) = (side(a, 1, self.transpose_a)?, side(b, 0, self.transpose_b)?);
        if depth_a != depth_b || depth_a.fixed().is_none() {
            return Err(Error::model(format!("{a} times {b}: the inner sizes {depth_a} and {depth_b} differ")));
        }
        let shape = Shape::new(vec![side(a, 0, self.transpose_a)?, side(b, 1, self.transpose_b)?])?;
        if let Some(c) = inputs.optional(2)
            && broadcast_shape(&shape, c)? != shape
        {
            return Err(Error::model(format!("C is {c}, which does not fit {shape}")));
        }
        Ok(shape)
    }

    fn forward<'a>(&self, inputs: &Inputs<'a>, out: ViewMut) {
        let matrix = |v: View<'a>, transposed: bool| -> Matrix<'a> {
            let matrix = Matrix::new(v.data, v.shape[0], v.shape[1]);
            if transposed { matrix.transposed() } else { matrix }
        };
        let a = matrix(inputs.get(0), self.transpose_a);
        let b = matrix(inputs.get(1), self.transpose_b);
        match inputs.optional(2).filter(|_| self.beta != 0.0) {
            Some(c) => {
                // The product is added onto β C, repeated to the shape of the output.
                let zero = View { shape: &[], data: &[0.0] };
                broadcast::zip(c, zero, ViewMut { shape: out.shape, data: out.data }, |c, _| self.beta * c);
                multiply(out.data, a, b, self.alpha, true);
            }
            None => multiply(out.data, a, b, self.alpha, false),
        }
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let matrix = |v: View<'_>| (v.shape[0], v.shape[1]);
        let (a, b) = (pass.inputs.get(0), pass.inputs.get(1));
        let ((ar, ac), (br, bc), (rows, columns)) = (matrix(a), matrix(b), matrix(pass.grad));
        let grad = Matrix::new(pass.grad.data, rows, columns);
        let (ma, mb) = (Matrix::new(a.data, ar, ac), Matrix::new(b.data, br, bc));
        if let Some(gradient) = gradients.get(0) {
            // d(op A) = α G op(B)ᵀ
            let bt = if self.transpose_b { mb } else { mb.transposed() };
            if self.transpose_a {
                multiply(gradient.data, bt.transposed(), grad.transposed(), self.alpha, gradient.add);
            } else {
                multiply(gradient.data, grad, bt, self.alpha, gradient.add);
            }
        }
        if let Some(gradient) = gradients.get(1) {
            // d(op B) = α op(A)ᵀ G
            let at = if self.transpose_a { ma } else { ma.transposed() };
            if self.transpose_b {
                multiply(gradient.data, grad.transposed(), at.transposed(), self.alpha, gradient.add);
            } else {
                multiply(gradient.data, at, grad, self.alpha, gradient.add);
            }
        }
        if let (Some(c), Some(Gradient { data, add })) = (pass.inputs.optional(2), gradients.get(2)) {
            let target = Target { data, add: *add };
            broadcast::backward(c, c, pass.output, pass.grad.data, c.shape, target, |_, _, _| self.beta);
        }
    }

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        let (rows_a, depth_a) = if self.transpose_a { (1, 0) } else { (0, 1) };
        let (depth_b, columns_b) = if self.transpose_b { (1, 0) } else { (0, 1) };
        let mut links = vec![
            AxisLink::same((Port::Input(0), rows_a), (Port::Output, 0)),
            AxisLink::same((Port::Input(1), depth_b), (Port::Input(0), depth_a)),
            AxisLink::same((Port::Input(1), columns_b), (Port::Output, 1)),
        ];
        if let Some(c) = inputs.get(2) {
            for (axis, &len) in c.iter().enumerate() {
                let out_axis = axis + 2 - c.len();
                if len == output[out_axis] && len > 1 {
                    links.push(AxisLink::same((Port::Input(2), axis), (Port::Output, out_axis)));
                }
            }
        }
        links
    }

    fn multiply_adds(&self, inputs: &[&[usize]], output: &[usize]) -> u64 {
        let depth = inputs[1][1 - self.output_axis()];
        output.iter().product::<usize>() as u64 * depth as u64
    }
}
