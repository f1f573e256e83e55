//! `ReduceMean`: the mean over chosen axes.

use super::axes::{AxisLink, Port};
use super::node::{ConstantForm, NodeForm, NodeSpec, from_size};
use super::{BASE_OPSET, Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::Result;
use crate::kernel::broadcast::broadcast_strides;
use crate::kernel::{for_each_run, read_strided, reduce};
use crate::tensor::{Dim, Shape, ViewMut, strides};

/// The mean over chosen axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReduceMean {
    /// The axes, in rising order.
    pub axes: Vec<usize>,
    /// Whether they stay, with length one.
    pub keep: bool,
}

impl Operator for ReduceMean {
    const NAME: &'static str = "ReduceMean";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let keep = node.int("keepdims")?.unwrap_or(1) != 0;
        let none_is_none = node.flag("noop_with_empty_axes")?;
        let rank = node.shape(0)?.rank();
        let axes = node.axes(1, rank)?.filter(|axes| !axes.is_empty());
        let all = || if none_is_none { Vec::new() } else { (0..rank).collect() };
        Ok(Self { axes: axes.unwrap_or_else(all), keep })
    }

    fn write(&self, form: &mut NodeForm) {
        form.int("keepdims", self.keep.into());
        if form.opset < 18 {
            form.sizes("axes", self.axes.iter().copied());
        } else {
            form.constant(ConstantForm::Ints(self.axes.iter().map(|&a| from_size(a)).collect()));
            form.int("noop_with_empty_axes", 1);
        }
    }

    fn since(&self) -> i64 {
        if self.axes.is_empty() { 18 } else { BASE_OPSET } // before 18, no axes meant all
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        let mut dims = Vec::new();
        for &axis in &self.axes {
            x.fixed_dim(axis)?;
        }
        for (axis, &dim) in x.dims().iter().enumerate() {
            match (self.axes.contains(&axis), self.keep) {
                (false, _) => dims.push(dim),
                (true, true) => dims.push(Dim::Fixed(1)),
                (true, false) => {}
            }
        }
        Shape::new(dims)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let own = strides(x.shape);
        let kept: Vec<usize> = (0..x.shape.len()).filter(|a| !self.axes.contains(a)).collect();
        let count: usize = self.axes.iter().map(|&a| x.shape[a]).product();
        let trailing = self.axes.iter().rev().zip((0..x.shape.len()).rev()).all(|(a, b)| *a == b);
        // Where the elements of one mean stand, relative to its first.
        let offsets: Vec<usize> = if trailing { Vec::new() } else { positions(&self.axes, x.shape, &own) };
        for_each_run(out.data, 1, |index, out| {
            let (mut rest, mut start) = (index, 0);
            for &axis in kept.iter().rev() {
                start += rest % x.shape[axis] * own[axis];
                rest /= x.shape[axis];
            }
            let sum = if trailing {
                reduce::sum(&x.data[start..][..count], |x| x)
            } else {
                offsets.iter().map(|&o| x.data[start + o]).sum()
            };
            out[0] = sum / count as f32;
        });
    }

    fn scratch(&self, inputs: &[&[usize]], _output: &[usize]) -> u64 {
        // The table of positions, where the axes are not the last ones.
        let shape = inputs.first().copied().unwrap_or_default();
        self.axes.iter().filter_map(|&a| shape.get(a)).fold(8, |n, &d| n.saturating_mul(d as u64))
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        let shape = pass.inputs.get(0).shape;
        // The gradient's strides in the input's axes, 0 along those that were reduced.
        let kept: Vec<usize> = shape.iter().enumerate().map(|(a,
        &n)| if self.axes.contains(&a) { 1 } else { n }).collect();
        let own = broadcast_strides(&kept, shape);
        let count: usize = self.axes.iter().map(|&a| shape[a]).product();
        read_strided(pass.grad.data, shape, &own, gradient.data, gradient.add, |g| g / count as f32);
    }

    fn links(&self, inputs: &[&[usize]], _output: &[usize]) -> Vec<AxisLink> {
        let kept = (0..inputs[0].len()).filter(|a| !self.axes.contains(a)).enumerate();
        kept.map(|(place, axis)| {
            let to = if self.keep { axis } else { place };
            AxisLink::same((Port::Input(0), axis), (Port::Output, to))
        })
        .collect()
    }
}

/// The offsets of all combinations of indices along `axes`, in row-major order.
fn positions(axes: &[usize], shape: &[usize], strides: &[usize]) -> Vec<usize> {
    axes.iter().fold(vec![0], |offsets, &axis| {
        offsets.iter().flat_map(|o| (0..shape[axis]).map(move |i| o + i * strides[axis])).collect()
    })
}
