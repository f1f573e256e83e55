//! `Slice`: from start to end in steps, along chosen axes.

use super::axes::{AxisLink, through};
use super::node::{ConstantForm, NodeForm, NodeSpec, from_size};
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::for_each_run;
use crate::tensor::{Dim, Shape, ViewMut, normalize_axis, strides};

/// One axis of a slice, resolved against its length: elements start, start + step, …, `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The axis.
    pub axis: usize,
    /// The first element.
    pub start: usize,
    /// The distance to the next.
    pub step: i64,
    /// How many.
    pub count: usize,
}

impl Range {
    /// Element i of the result is this element of the axis.
    fn at(&self, i: usize) -> usize {
        let shift = self.step.unsigned_abs() as usize * i;
        if self.step < 0 { self.start - shift } else { self.start + shift }
    }
}

/// From start to end in steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The axes that are cut.
    pub ranges: Vec<Range>,
}

impl Slice {
    /// One range per axis, axes that are not cut included.
    fn whole(&self, shape: &[usize]) -> Vec<Range> {
        let range = |axis: usize| {
            let whole = Range { axis, start: 0, step: 1, count: shape[axis] };
            self.ranges.iter().find(|r| r.axis == axis).copied().unwrap_or(whole)
        };
        (0..shape.len()).map(range).collect()
    }
}

/// Where line `index` of the slice begins in the input.
fn start_of(ranges: &[Range], strides: &[usize], index: usize) -> usize {
    let (mut rest, mut start) = (index, 0);
    for (axis, range) in ranges.iter().enumerate().rev() {
        start += range.at(rest % range.count) * strides[axis];
        rest /= range.count;
    }
    start
}

impl Operator for Slice {
    const NAME: &'static str = "Slice";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let x = node.shape(0)?;
        let (starts, ends, axes, steps) = if node.opset < 10 {
            (node.ints("starts")?, node.ints("ends")?, node.ints("axes")?, None)
        } else {
            (node.integers(1)?, node.integers(2)?, node.integers(3)?, node.integers(4)?)
        };
        let (Some(starts), Some(ends)) = (starts, ends) else {
            return Err(Error::model("starts or ends are missing"));
        };
        let axes = axes.unwrap_or_else(|| (0..starts.len()).map(from_size).collect());
        let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
        if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
            return Err(Error::model("starts, ends, axes and steps differ in number"));
        }
        let mut ranges: Vec<Range> = Vec::new();
        for (((&start, &end), &axis), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
            let axis = normalize_axis(axis, x.rank())?;
            if step == 1 && start == 0 && end == i64::MAX {
                continue; // everything: allowed on the batch axis too
            }
            let len = from_size(x.fixed_dim(axis)?);
            if step == 0 || ranges.iter().any(|r| r.axis == axis) {
                return Err(Error::model(format!("axis {axis} is sliced twice or in steps of 0")));
            }
            let wrap = |i: i64| if i < 0 { i.saturating_add(len) } else { i };
            let (start, end) = if step > 0 {
                (wrap(start).clamp(0, len), wrap(end).clamp(0, len))
            } else {
                (wrap(start).clamp(0, len - 1), wrap(end).clamp(-1, len - 1))
            };
            let span = if step > 0 { end - start } else { start - end };
            let count = u64::try_from(span).unwrap_or(0).div_ceil(step.unsigned_abs());
            let (start, count) = (usize::try_from(start), usize::try_from(count));
            match (start, count) {
                (Ok(start), Ok(count)) if count > 0 => {
                    // With one element the step no longer matters, and may be out of range.
                    ranges.push(Range { axis, start, step: if count == 1 { 1 } else { step }, count });
                }
                _ => return Err(Error::unsupported(format!("the slice of axis {axis} of {x} is empty"))),
            }
        }
        ranges.sort_by_key(|r| r.axis);
        Ok(Self { ranges })
    }

    fn write(&self, form: &mut NodeForm) {
        let ends = |r: &Range| {
            let end = from_size(r.at(r.count - 1)) + r.step.signum();
            // −1 would count from the end again.
            if end < 0 { i64::MIN } else { end }
        };
        form.constant(ConstantForm::Ints(self.ranges.iter().map(|r| from_size(r.start)).collect()));
        form.constant(ConstantForm::Ints(self.ranges.iter().map(ends).collect()));
        form.constant(ConstantForm::Ints(self.ranges.iter().map(|r| from_size(r.axis)).collect()));
        form.constant(ConstantForm::Ints(self.ranges.iter().map(|r| r.step).collect()));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let mut shape = inputs.get(0)?.clone();
        for range in &self.ranges {
            let len = shape.fixed_dim(range.axis)?;
            let last = from_size(range.count).checked_sub(1).and_then(|n| n.checked_mul(range.step));
            let last = last.and_then(|n| n.checked_add(from_size(range.start)));
            let inside = last.is_some_and(|last| last >= 0 && last < from_size(len));
            if range.start >= len || range.count == 0 || !inside {
                return Err(Error::model(format!("the slice reaches outside axis {} of {shape}", range.axis)));
            }
            shape = shape.with_dim(range.axis, Dim::Fixed(range.count))?;
        }
        Ok(shape)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let own = strides(x.shape);
        let ranges = self.whole(x.shape);
        let Some((columns, front)) = ranges.split_last() else {
            return out.data.copy_from_slice(x.data);
        };
        for_each_run(out.data, columns.count, |index, run| {
            let start = start_of(front, &own, index);
            for (i, out) in run.iter_mut().enumerate() {
                *out = x.data[start + columns.at(i)];
            }
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        gradient.start();
        let shape = pass.inputs.get(0).shape;
        let own = strides(shape);
        let ranges = self.whole(shape);
        let Some((columns, front)) = ranges.split_last() else { return gradient.pass_on(pass.grad.data) };
        for (index, run) in pass.grad.data.chunks(columns.count).enumerate() {
            let start = start_of(front, &own, index);
            for (i, g) in run.iter().enumerate() {
                gradient.data[start + columns.at(i)] += g;
            }
        }
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |axis| self.ranges.iter().any(|r| r.axis == axis))
    }
}
