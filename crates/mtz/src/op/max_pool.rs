//! `MaxPool`: the largest number under the window.

use super::axes::{AxisLink, through};
use super::node::{NodeForm, NodeSpec};
use super::pool::{for_each_place, pool_shape, read_pool, write_windows};
use super::{Inputs, Operator, Shapes};
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

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |axis| axis > 1)
    }
}
