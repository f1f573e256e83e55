//! `Pad`: a border around the tensor: a constant, the edge repeated, or the inside reflected. A negative width crops.

use super::axes::{AxisLink, through};
use super::node::{ConstantForm, NodeForm, NodeSpec};
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::for_each_run;
use crate::tensor::{Dim, Element, MAX_ELEMENTS, Shape, ViewMut, normalize_axis, strides};

/// What stands in the border.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Border {
    /// One number.
    Constant(f32),
    /// The nearest element.
    Edge,
    /// The elements inside, mirrored at the first and last.
    Reflect,
}

/// A border around the tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// For each axis, how much in front and behind.
    pub widths: Vec<(i64, i64)>,
    /// What stands there.
    pub border: Border,
}

impl Operator for Pad {
    const NAME: &'static str = "Pad";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let rank = node.shape(0)?.rank();
        let mode = node.text("mode")?;
        let missing = || Error::model("the widths are missing");
        let (pads, value, axes) = if node.opset < 11 {
            (node.ints("pads")?.ok_or_else(missing)?, node.float("value")?, None)
        } else {
            let axes = node.integers(3)?;
            (node.integers(1)?.ok_or_else(missing)?, node.number(2)?, axes)
        };
        let axes = match axes {
            Some(axes) => axes.into_iter().map(|a| normalize_axis(a, rank)).collect::<Result<Vec<_>>>()?,
            None => (0..rank).collect(),
        };
        if pads.len() != 2 * axes.len() {
            return Err(Error::model(format!("{} widths for {} axes", pads.len(), axes.len())));
        }
        let mut widths = vec![(0, 0); rank];
        for ((axis, &before), &after) in axes.iter().zip(&pads).zip(pads.iter().skip(axes.len())) {
            if let Some(width) = widths.get_mut(*axis) {
                *width = (before, after);
            }
        }
        let border = match mode.as_deref() {
            None | Some("constant") => Border::Constant(value.unwrap_or(0.0)),
            Some("edge") => Border::Edge,
            Some("reflect") => Border::Reflect,
            Some(other) => return Err(Error::unsupported(format!("mode={other:?}"))),
        };
        Ok(Self { widths, border })
    }

    fn write(&self, form: &mut NodeForm) {
        let (before, after) = (self.widths.iter().map(|w| w.0), self.widths.iter().map(|w| w.1));
        form.constant(ConstantForm::Ints(before.chain(after).collect()));
        match self.border {
            Border::Constant(value) => form.constant(ConstantForm::Element(value)),
            Border::Edge => form.text("mode", "edge"),
            Border::Reflect => form.text("mode", "reflect"),
        }
    }

    fn round(&mut self, element: Element) {
        if let Border::Constant(value) = &mut self.border {
            *value = element.limit(*value);
        }
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        if x.rank() != self.widths.len() {
            return Err(Error::model(format!("{} widths for {x}", self.widths.len())));
        }
        let mut dims = Vec::new();
        for (axis, &(before, after)) in self.widths.iter().enumerate() {
            if (before, after) == (0, 0) {
                dims.push(x.dim(axis)?);
                continue;
            }
            let len = x.fixed_dim(axis)?;
            let grown = i64::try_from(len).ok().and_then(|n| n.checked_add(before)?.checked_add(after));
            let size = grown.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0 && n <= MAX_ELEMENTS);
            // Reflection reaches back as far as the tensor goes, no further.
            let reach = before.max(after).max(0);
            let too_far = self.border == Border::Reflect && usize::try_from(reach).is_ok_and(|r| r >= len);
            match size {
                Some(size) if !too_far => dims.push(Dim::Fixed(size)),
                _ => return Err(Error::model(format!("axis {axis} of {x} cannot be padded by {before}, {after}"))),
            }
        }
        Shape::new(dims)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let sources = self.sources(x.shape, out.shape);
        let fill = if let Border::Constant(value) = self.border { value } else { 0.0 };
        for_each_run(out.data, sources.columns().len(), |index, run| {
            let start = sources.line(index);
            for (out, column) in run.iter_mut().zip(sources.columns()) {
                *out = start.zip(*column).map_or(fill, |(start, i)| x.data[start + i]);
            }
        });
    }

    fn scratch(&self, _inputs: &[&[usize]], output: &[usize]) -> u64 {
        // A table of positions per axis.
        output.iter().map(|&n| 16 * n as u64).sum()
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        gradient.start();
        let sources = self.sources(pass.inputs.get(0).shape, pass.output.shape);
        for (index, run) in pass.grad.data.chunks(sources.columns().len()).enumerate() {
            let Some(start) = sources.line(index) else { continue };
            for (g, column) in run.iter().zip(sources.columns()) {
                if let Some(i) = column {
                    gradient.data[start + i] += g;
                }
            }
        }
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |axis| self.widths[axis] != (0, 0))
    }
}

/// Where each element of the padded tensor comes from: for each axis a table of positions, `None` in a constant border.
struct Sources {
    axes: Vec<Vec<Option<usize>>>,
    strides: Vec<usize>,
}

impl Sources {
    /// The table of the last axis.
    fn columns(&self) -> &[Option<usize>] {
        self.axes.last().map_or(&[Some(0)], Vec::as_slice)
    }

    /// Where line `index` of the padded tensor begins in the input.
    fn line(&self, index: usize) -> Option<usize> {
        let (mut rest, mut start) = (index, Some(0));
        for (sources, stride) in self.axes.iter().zip(&self.strides).rev().skip(1) {
            let source = sources[rest % sources.len()];
            rest /= sources.len();
            start = start.zip(source).map(|(start, i)| start + i * stride);
        }
        start
    }
}

impl Pad {
    fn sources(&self, x: &[usize], out: &[usize]) -> Sources {
        let table = |axis: usize| (0..out[axis]).map(|i| self.source(axis, i, x[axis])).collect();
        Sources { axes: (0..x.len()).map(table).collect(), strides: strides(x) }
    }

    /// Where element `i` of the padded axis comes from; `None` in a constant border.
    fn source(&self, axis: usize, i: usize, len: usize) -> Option<usize> {
        let at = i64::try_from(i).ok()? - self.widths[axis].0;
        let last = i64::try_from(len).ok()? - 1;
        let inside = match self.border {
            Border::Constant(_) => at,
            Border::Edge => at.clamp(0, last),
            Border::Reflect if at < 0 => -at,
            Border::Reflect if at > last => 2 * last - at,
            Border::Reflect => at,
        };
        usize::try_from(inside).ok().filter(|&i| i < len)
    }
}
