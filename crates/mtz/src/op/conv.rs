//! `Conv` in one or two dimensions, with stride, padding, dilation and groups. Inputs: x, w, optional bias.

use super::axes::{AxisLink, Port, through};
use super::node::{NodeForm, NodeSpec, from_size, to_size};
use super::pool::{read_windows, two_windows, write_windows};
use super::{Gradient, Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::conv::{Sizes, backward_input, backward_weight, forward};
use crate::kernel::window::Window;
use crate::kernel::{for_each_run, reduce};
use crate::tensor::{Dim, Shape, ViewMut};

/// `out[n, m] = bias[m] + Σ_c w[m, c] ∗ x[n, c]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    /// One window per spatial axis.
    pub windows: Vec<Window>,
    /// Channels are split into so many groups that do not see each other.
    pub groups: usize,
}

impl Conv {
    fn sizes(&self, x: &[usize], w: &[usize], out: &[usize]) -> Sizes {
        let [rows, columns] = two_windows(&self.windows);
        let spatial = |shape: &[usize]| if shape.len() == 4 { (shape[2], shape[3]) } else { (1, shape[2]) };
        let ((height, width), (out_height, out_width)) = (spatial(x), spatial(out));
        Sizes {
            batch: x[0],
            groups: self.groups,
            inputs: w[1],
            outputs: w[0] / self.groups,
            height,
            width,
            out_height,
            out_width,
            rows,
            columns,
        }
    }

    /// The windows of rows and columns; a convolution along one axis has one row.
    pub fn two_windows(&self) -> [Window; 2] {
        two_windows(&self.windows)
    }

    /// The convolution and the `Relu` behind it in one.
    pub(crate) fn forward_relu(&self, inputs: &Inputs, out: ViewMut) {
        self.compute(inputs, true, out);
    }

    fn compute(&self, inputs: &Inputs, relu: bool, out: ViewMut) {
        let (x, w) = (inputs.get(0), inputs.get(1));
        let sizes = self.sizes(x.shape, w.shape, out.shape);
        forward(&sizes, x.data, w.data, inputs.optional(2).map(|b| b.data), relu, out.data);
    }

    /// Every channel has filters of its own.
    fn is_depthwise(&self, w: &[usize]) -> bool {
        self.groups > 1 && w[1] == 1
    }
}

impl Operator for Conv {
    const NAME: &'static str = "Conv";
    const INPUTS: (usize, usize) = (2, 3);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let groups = to_size(node.int("group")?.unwrap_or(1), "group")?;
        let w = node.shape(1)?;
        let kernel = w.dims().iter().skip(2).filter_map(|d| d.fixed()).collect();
        let windows = read_windows(node, kernel)?;
        Ok(Self { windows, groups })
    }

    fn write(&self, form: &mut NodeForm) {
        write_windows(&self.windows, form);
        form.int("group", from_size(self.groups));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let (x, w) = (inputs.get(0)?, inputs.get(1)?);
        let rank = self.windows.len() + 2;
        if x.rank() != rank || w.rank() != rank {
            return Err(Error::model(format!("input {x} and weight {w} should both have {rank} dimensions")));
        }
        for (axis, window) in (2..).zip(&self.windows) {
            if w.fixed_dim(axis)? != window.size {
                return Err(Error::model(format!("kernel_shape does not match the weight {w}")));
            }
        }
        let (channels, outputs) = (x.fixed_dim(1)?, w.fixed_dim(0)?);
        let fits = self.groups > 0 && outputs % self.groups == 0;
        if !fits || w.fixed_dim(1)?.checked_mul(self.groups) != Some(channels) {
            return Err(Error::model(format!("input {x} does not fit weight {w} in {} groups", self.groups)));
        }
        if let Some(bias) = inputs.optional(2)
            && bias.dims() != [Dim::Fixed(outputs)]
        {
            return Err(Error::model(format!("bias is {bias} for {outputs} output channels")));
        }
        let mut dims = vec![x.dim(0)?, Dim::Fixed(outputs)];
        for (axis, window) in (2..).zip(&self.windows) {
            dims.push(Dim::Fixed(window.places(x.fixed_dim(axis)?, false)?));
        }
        Shape::new(dims)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        self.compute(inputs, false, out);
    }

    fn scratch(&self, inputs: &[&[usize]], _output: &[usize]) -> u64 {
        /// The most channels of a block, and bytes for lines of results of all threads.
        const BLOCK: usize = 32;
        const LINES: u64 = 8 << 20;
        // Filters packed in blocks of channels; images are read where they lie.
        let Some([outputs, rest @ ..]) = inputs.get(1) else { return LINES };
        let block = (outputs / self.groups.max(1)).next_multiple_of(BLOCK).saturating_mul(self.groups);
        rest.iter().fold(4u64.saturating_mul(block as u64), |n, &d| n.saturating_mul(d as u64)).saturating_add(LINES)
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let (x, w, grad) = (pass.inputs.get(0), pass.inputs.get(1), pass.grad);
        let sizes = self.sizes(x.shape, w.shape, grad.shape);
        if let Some(Gradient { data, add }) = gradients.get(0) {
            backward_input(&sizes, grad.data, w.data, data, *add);
        }
        if let Some(Gradient { data, add }) = gradients.get(1) {
            backward_weight(&sizes, grad.data, x.data, data, *add);
        }
        if let Some(gradient) = gradients.get(2) {
            let add = gradient.add;
            let (plane, outputs) = (sizes.out_height * sizes.out_width, w.shape[0]);
            for_each_run(gradient.data, 1, |m, out| {
                let planes = (0..x.shape[0]).map(|n| &grad.data[(n * outputs + m) * plane..][..plane]);
                let sum: f32 = planes.map(|p| reduce::sum(p, |g| g)).sum();
                out[0] = if add { out[0] + sum } else { sum };
            });
        }
    }

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        let (x, w, bias, out) = (Port::Input(0), Port::Input(1), Port::Input(2), Port::Output);
        let mut links = through(0, output.len(), |axis| axis != 0);
        let outputs_follow = |part: (Port, usize), inner: usize| {
            let mut followers = vec![(w, 0), (out, 1)];
            followers.extend((inputs.len() > 2).then_some((bias, 0)));
            followers.into_iter().map(move |whole| AxisLink { inner, ..AxisLink::same(part, whole) })
        };
        if self.groups == 1 {
            links.push(AxisLink::same((w, 1), (x, 1)));
            links.extend(outputs_follow((w, 0), 1).filter(|l| l.whole != (w, 0)));
        } else if self.is_depthwise(inputs[1]) {
            links.extend(outputs_follow((x, 1), output[1] / self.groups));
        } else {
            // Groups in between: only the same reordering inside every group keeps the result; outputs stay.
            links.push(AxisLink { outer: self.groups, ..AxisLink::same((w, 1), (x, 1)) });
        }
        links
    }

    fn multiply_adds(&self, inputs: &[&[usize]], output: &[usize]) -> u64 {
        let per_output: usize = inputs[1][1..].iter().product();
        output.iter().product::<usize>() as u64 * per_output as u64
    }
}
