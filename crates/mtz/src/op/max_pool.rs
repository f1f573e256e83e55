//! `MaxPool`: the largest number under the window.

use super::axes::{AxisLink, through};
use super::node::{NodeForm, NodeSpec};
use super::pool::{for_each_place, for_each_window, pool_shape, read_pool, write_windows};
use super::{Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::Result;
use crate::kernel::for_each_run;
use crate::kernel::window::Window;
use crate::tensor::{Shape, ViewMut};

/// The largest number under the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxPool {
    /// One window per spatial axis.
    pub windows: Vec<Window>,
    /// Whether a last, incomplete place counts.
    pub ceil: bool,
}

impl Operator for MaxPool {
    const NAME: &'static str = "MaxPool";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        node.ignore(&["storage_order"]); // orders the indices, which nobody may read here
        let (windows, ceil) = read_pool(node)?;
        Ok(Self { windows, ceil })
    }

    fn write(&self, form: &mut NodeForm) {
        write_windows(&self.windows, form);
        form.int("ceil_mode", self.ceil.into());
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
                let mut largest = f32::NEG_INFINITY;
                for row in rows.iter() {
                    for column in columns.iter() {
                        largest = largest.max(x_plane[row * width + column]);
                    }
                }
                largest
            });
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        let (x, grad) = (pass.inputs.get(0), pass.grad);
        let width = x.shape.last().copied().unwrap_or(1);
        let plane: usize = x.shape[2..].iter().product();
        let out_plane: usize = grad.shape[2..].iter().product();
        let add = gradient.add;
        for_each_run(gradient.data, plane, |i, gradient| {
            if !add {
                gradient.fill(0.0);
            }
            let x_plane = &x.data[i * plane..][..plane];
            let grad_plane = &grad.data[i * out_plane..][..out_plane];
            let mut place = grad_plane.iter();
            // The first of equal maxima receives the gradient, as in PyTorch.
            for_each_window(&self.windows, x.shape, grad.shape, |rows, columns| {
                let (mut best, mut largest) = (None, f32::NEG_INFINITY);
                for row in rows.iter() {
                    for column in columns.iter() {
                        let at = row * width + column;
                        if x_plane[at] > largest || best.is_none() {
                            (best, largest) = (Some(at), x_plane[at]);
                        }
                    }
                }
                if let (Some(at), Some(g)) = (best, place.next()) {
                    gradient[at] += g;
                }
            });
        });
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |axis| axis > 1)
    }
}
