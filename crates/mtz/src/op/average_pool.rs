//! `AveragePool`: the mean under the window, with or without the padding counted.

use super::axes::{AxisLink, through};
use super::node::{NodeForm, NodeSpec};
use super::pool::{Taps, for_each_place, for_each_window, pool_shape, read_pool, write_windows};
use super::{BASE_OPSET, Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::Result;
use crate::kernel::for_each_run;
use crate::kernel::window::Window;
use crate::tensor::{Shape, ViewMut};

/// The mean under the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AveragePool {
    /// One window per spatial axis.
    pub windows: Vec<Window>,
    /// Whether a last, incomplete place counts.
    pub ceil: bool,
    /// Whether padding counts as zeros.
    pub count_include_pad: bool,
}

impl AveragePool {
    /// How many numbers a mean is taken over.
    fn count(&self, rows: Taps, columns: Taps) -> f32 {
        let count = if self.count_include_pad {
            rows.padded * columns.padded
        } else {
            rows.count() * columns.count()
        };
        count as f32
    }
}

impl Operator for AveragePool {
    const NAME: &'static str = "AveragePool";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let count_include_pad = node.flag("count_include_pad")?;
        let (windows, ceil) = read_pool(node)?;
        Ok(Self { windows, ceil, count_include_pad })
    }

    fn write(&self, form: &mut NodeForm) {
        write_windows(&self.windows, form);
        form.int("ceil_mode", self.ceil.into());
        form.int("count_include_pad", self.count_include_pad.into());
    }

    fn since(&self) -> i64 {
        if self.windows.iter().any(|w| w.dilation > 1) { 19 } else { BASE_OPSET }
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        pool_shape(&self.windows, self.ceil, inputs.get(0)?)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let width = x.shape.last().copied().unwrap_or(1);
        let plane: usize = x.shape[2..].iter().product();
        for_each_run(out.data, out.shape[2..].iter().product(), |i, planes| {
            let x_plane = &x.data[i * plane..][..plane];
            for_each_place(&self.windows, x.shape, out.shape, planes, |rows, columns| {
                let mut sum = 0.0;
                for row in rows.iter() {
                    for column in columns.iter() {
                        sum += x_plane[row * width + column];
                    }
                }
                sum / self.count(rows, columns)
            });
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        let (x, grad) = (pass.inputs.get(0).shape, pass.grad);
        let width = x.last().copied().unwrap_or(1);
        let plane: usize = x[2..].iter().product();
        let out_plane: usize = grad.shape[2..].iter().product();
        let add = gradient.add;
        for_each_run(gradient.data, plane, |i, gradient| {
            if !add {
                gradient.fill(0.0);
            }
            let mut place = grad.data[i * out_plane..][..out_plane].iter();
            for_each_window(&self.windows, x, grad.shape, |rows, columns| {
                let g = place.next().map_or(0.0, |g| g / self.count(rows, columns));
                for row in rows.iter() {
                    for column in columns.iter() {
                        gradient[row * width + column] += g;
                    }
                }
            });
        });
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |axis| axis > 1)
    }
}
