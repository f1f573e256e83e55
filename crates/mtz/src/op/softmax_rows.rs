//! What `Softmax` and `LogSoftmax` have in common: one axis, shifted by its maximum so that nothing overflows.

use super::node::NodeSpec;
use super::{Inputs, Shapes};
use crate::error::Result;
use crate::kernel::{for_each_run, reduce};
use crate::tensor::{Shape, ViewMut};

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

/// out = e^(x − max x); the maximum and the sum of `out`.
pub(crate) fn exponentials(x: &[f32], out: &mut [f32]) -> (f32, f32) {
    let largest = reduce::max(x);
    for (out, &x) in out.iter_mut().zip(x) {
        *out = (x - largest).exp();
    }
    (largest, reduce::sum(out, |x| x))
}
