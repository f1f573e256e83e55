//! What `Softmax` and `LogSoftmax` have in common: one axis, shifted by its maximum so that nothing overflows.

use super::node::NodeSpec;
use super::{Gradient, Inputs, Pass, Shapes};
use crate::error::Result;
use crate::kernel::{for_each_run, reduce};
use crate::tensor::{Shape, ViewMut};

/// How such an operator is read, written and shaped.
macro_rules! along_one_axis {
    () => {
        const INPUTS: (usize, usize) = (1, 1);

        fn read(node: &mut $crate::op::node::NodeSpec) -> $crate::error::Result<Self> {
            Ok(Self { axis: $crate::op::softmax_rows::read_axis(node)? })
        }

        fn write(&self, form: &mut $crate::op::node::NodeForm) {
            form.int("axis", $crate::op::node::from_size(self.axis));
        }

        fn shape(&self, inputs: &$crate::op::Shapes) -> $crate::error::Result<$crate::tensor::Shape> {
            $crate::op::softmax_rows::shape(self.axis, inputs)
        }

        fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<$crate::op::axes::AxisLink> {
            $crate::op::axes::through(0, output.len(), |_| false)
        }
    };
}

pub(super) use along_one_axis;

/// The axis: the last by default. (Before opset 13 all axes from `axis` on were one; the reader flattens those.)
pub(crate) fn read_axis(node: &mut NodeSpec) -> Result<usize> {
    node.shape(0)?.axis(node.int("axis")?.unwrap_or(-1))
}

/// The input's shape, if the axis is not the batch.
pub(crate) fn shape(axis: usize, inputs: &Shapes) -> Result<Shape> {
    let x = inputs.get(0)?;
    x.fixed_dim(axis)?;
    Ok(x.clone())
}

/// Applies `row(x, out)` to each line along `axis`.
pub(crate) fn for_each_line(axis: usize, inputs: &Inputs, out: ViewMut, row: impl Fn(&[f32], &mut [f32]) + Sync) {
    let x = inputs.get(0);
    let len = x.shape[axis];
    let inner: usize = x.shape[axis + 1..].iter().product();
    for_each_run(out.data, len * inner, |outer, out| {
        let x = &x.data[outer * len * inner..][..len * inner];
        if inner == 1 {
            return row(x, out);
        }
        let (mut line, mut result) = (vec![0.0; len], vec![0.0; len]);
        for i in 0..inner {
            line.iter_mut().zip(x[i..].iter().step_by(inner)).for_each(|(line, x)| *line = *x);
            row(&line, &mut result);
            out[i..].iter_mut().step_by(inner).zip(&result).for_each(|(out, result)| *out = *result);
        }
    });
}

/// Applies `row(y, grad, out)` to each line along `axis`, where y is the output of the forward pass.
pub(crate) fn lines_backward(
    axis: usize,
    pass: &Pass,
    gradient: &mut Gradient,
    row: impl Fn(&[f32], &[f32], &mut [f32]) + Sync,
) {
    let shape = pass.output.shape;
    let len = shape[axis];
    let inner: usize = shape[axis + 1..].iter().product();
    let add = gradient.add;
    for_each_run(gradient.data, len * inner, |outer, gradient| {
        let [y, g] = [pass.output.data, pass.grad.data].map(|d| &d[outer * len * inner..][..len * inner]);
        if inner == 1 && !add {
            return row(y, g, gradient);
        }
        let mut lines = vec![0.0; 3 * len];
        let (line_y, rest) = lines.split_at_mut(len);
        let (line_g, result) = rest.split_at_mut(len);
        for i in 0..inner {
            for (k, at) in (i..len * inner).step_by(inner).enumerate() {
                (line_y[k], line_g[k]) = (y[at], g[at]);
            }
            row(line_y, line_g, result);
            for (value, at) in result.iter().zip((i..len * inner).step_by(inner)) {
                gradient[at] = if add { gradient[at] + value } else { *value };
            }
        }
    });
}

/// out = e^(x − max x); the maximum and the sum of `out`.
pub(crate) fn exponentials(x: &[f32], out: &mut [f32]) -> (f32, f32) {
    let largest = reduce::max(x);
    for (out, &x) in out.iter_mut().zip(x) {
        *out = (x - largest).exp();
    }
    (largest, reduce::sum(out, |x| x))
}
