//! What convolution and pooling have in common: reading and writing their windows.

use super::node::{NodeForm, NodeSpec, to_size};
use crate::error::{Error, Result};
use crate::kernel::window::Window;
use crate::tensor::{Dim, Shape};
use std::ops::Range;

/// Reads strides, dilations and padding for windows of `kernel` taps; `auto_pad` becomes explicit padding here.
pub(crate) fn read_windows(node: &mut NodeSpec, kernel: Vec<usize>) -> Result<Vec<Window>> {
    let x = node.shape(0)?;
    let spatial = kernel.len();
    if !(1..=2).contains(&spatial) || x.rank() != spatial + 2 {
        return Err(Error::unsupported(format!("{spatial} spatial axes on an input {x}; one or two are supported")));
    }
    if let Some(given) = node.ints("kernel_shape")? {
        let given = given.into_iter().map(|n| to_size(n, "kernel_shape")).collect::<Result<Vec<_>>>()?;
        if given != kernel {
            return Err(Error::model(format!("kernel_shape is {given:?} but the weight has {kernel:?}")));
        }
    }
    let mut sizes = |name: &str, default: i64, count: usize, least: usize| -> Result<Vec<usize>> {
        let list = node.ints(name)?.unwrap_or_else(|| vec![default; count]);
        let list = list.into_iter().map(|n| to_size(n, name)).collect::<Result<Vec<_>>>()?;
        // Beyond 2³¹ nothing fits into memory anyway, and sums of them stay within range.
        if list.len() != count || list.iter().any(|&n| n < least || n > crate::tensor::MAX_ELEMENTS) {
            return Err(Error::model(format!("{name} is {list:?} for {count} values")));
        }
        Ok(list)
    };
    let strides = sizes("strides", 1, spatial, 1)?;
    let dilations = sizes("dilations", 1, spatial, 1)?;
    let pads = sizes("pads", 0, 2 * spatial, 0)?;
    if kernel.iter().any(|&k| k == 0 || k > 1 << 20) || dilations.iter().any(|&d| d > 1 << 20) {
        return Err(Error::model(format!("kernel {kernel:?} with dilations {dilations:?}")));
    }
    let auto_pad = node.text("auto_pad")?.unwrap_or_default();
    let mut windows = Vec::new();
    for (i, (((&size, stride), dilation), (&before, &after))) in
        kernel.iter().zip(strides).zip(dilations).zip(pads.iter().zip(pads.iter().skip(spatial))).enumerate()
    {
        let mut window = Window { size, stride, dilation, before, after };
        match auto_pad.as_str() {
            "" | "NOTSET" => {}
            "VALID" => (window.before, window.after) = (0, 0),
            "SAME_UPPER" | "SAME_LOWER" => {
                // As many places as ⌈input / stride⌉; an odd element of padding goes behind (UPPER) or in front.
                let input = x.fixed_dim(i + 2)?;
                let places = input.div_ceil(stride);
                let pad = ((places - 1) * stride + window.span()).saturating_sub(input);
                let (small, large) = (pad / 2, pad - pad / 2);
                (window.before, window.after) = if auto_pad == "SAME_UPPER" { (small, large) } else { (large, small) };
            }
            other => return Err(Error::unsupported(format!("auto_pad={other:?}"))),
        }
        windows.push(window);
    }
    Ok(windows)
}

/// The windows of a pooling operator, whose size is an attribute.
pub(crate) fn read_pool(node: &mut NodeSpec) -> Result<(Vec<Window>, bool)> {
    let kernel = node.ints("kernel_shape")?.ok_or_else(|| Error::model("attribute \"kernel_shape\" is missing"))?;
    let kernel = kernel.into_iter().map(|n| to_size(n, "kernel_shape")).collect::<Result<_>>()?;
    let ceil = node.flag("ceil_mode")?;
    Ok((read_windows(node, kernel)?, ceil))
}

/// Writes windows as attributes.
pub(crate) fn write_windows(windows: &[Window], form: &mut NodeForm) {
    form.sizes("kernel_shape", windows.iter().map(|w| w.size));
    form.sizes("strides", windows.iter().map(|w| w.stride));
    if windows.iter().any(|w| w.dilation != 1) {
        form.sizes("dilations", windows.iter().map(|w| w.dilation));
    }
    form.sizes("pads", windows.iter().map(|w| w.before).chain(windows.iter().map(|w| w.after)));
}

/// One spatial axis is treated as an image of height one.
pub(crate) fn two_windows(windows: &[Window]) -> [Window; 2] {
    match windows {
        [rows, columns] => [*rows, *columns],
        [columns] => [Window::ONE, *columns],
        _ => [Window::ONE; 2],
    }
}

/// The output shape of pooling.
pub(crate) fn pool_shape(windows: &[Window], ceil: bool, x: &Shape) -> Result<Shape> {
    if x.rank() != windows.len() + 2 {
        return Err(Error::model(format!("a window of {} axes cannot move over {x}", windows.len())));
    }
    let mut dims = vec![x.dim(0)?, x.dim(1)?];
    for (axis, window) in (2..).zip(windows) {
        dims.push(Dim::Fixed(window.places(x.fixed_dim(axis)?, ceil)?));
    }
    Shape::new(dims)
}

/// The planes a window moves over: input and output, tap by tap and row by row.
pub(crate) struct Planes {
    rows: Window,
    columns: Window,
    height: usize,
    width: usize,
    out_height: usize,
    out_width: usize,
}

impl Planes {
    pub fn new(windows: &[Window], x: &[usize], out: &[usize]) -> Self {
        let [rows, columns] = two_windows(windows);
        let size = |shape: &[usize]| if shape.len() == 4 { (shape[2], shape[3]) } else { (1, shape[2]) };
        let ((height, width), (out_height, out_width)) = (size(x), size(out));
        Self { rows, columns, height, width, out_height, out_width }
    }

    /// Numbers of an input plane.
    pub fn len(&self) -> usize {
        self.height * self.width
    }

    /// Numbers of an output plane.
    pub fn out_len(&self) -> usize {
        self.out_height * self.out_width
    }

    /// The commonest window: 2×2, side by side, no padding.
    pub fn is_two_by_two(&self) -> bool {
        let plain = Window { size: 2, stride: 2, dilation: 1, before: 0, after: 0 };
        let whole = self.out_height * 2 <= self.height && self.out_width * 2 <= self.width;
        self.rows == plain && self.columns == plain && whole
    }

    /// For 2×2 windows: `f(outputs, upper, lower)` for each row of outputs and the two rows of inputs above it.
    pub fn for_each_pair(&self, x: &[f32], mut f: impl FnMut(Range<usize>, &[f32], &[f32])) {
        for y in 0..self.out_height {
            let (upper, lower) = x[2 * y * self.width..].split_at(self.width);
            let line = y * self.out_width..(y + 1) * self.out_width;
            f(line, &upper[..2 * self.out_width], &lower[..2 * self.out_width]);
        }
    }

    /// The same for inputs that are written to.
    pub fn for_each_pair_mut(&self, x: &mut [f32], mut f: impl FnMut(Range<usize>, &mut [f32], &mut [f32])) {
        for y in 0..self.out_height {
            let (upper, lower) = x[2 * y * self.width..].split_at_mut(self.width);
            let line = y * self.out_width..(y + 1) * self.out_width;
            f(line, &mut upper[..2 * self.out_width], &mut lower[..2 * self.out_width]);
        }
    }

    /// Calls `f(tap, from, step, at)` for each tap and output row: outputs `at` see the inputs `from`, `from + step`,
    /// ….
    pub fn for_each_tap(&self, mut f: impl FnMut(usize, usize, usize, Range<usize>)) {
        (0..self.rows.size * self.columns.size).for_each(|tap| self.tap(tap, &mut f));
    }

    /// The same with the taps in the opposite order.
    pub fn for_each_tap_backwards(&self, mut f: impl FnMut(usize, usize, usize, Range<usize>)) {
        (0..self.rows.size * self.columns.size).rev().for_each(|tap| self.tap(tap, &mut f));
    }

    fn tap(&self, tap: usize, f: &mut impl FnMut(usize, usize, usize, Range<usize>)) {
        let (ky, kx) = (tap / self.columns.size, tap % self.columns.size);
        let (top, bottom) = self.rows.valid(ky, self.height, self.out_height);
        let (left, right) = self.columns.valid(kx, self.width, self.out_width);
        if left == right {
            return;
        }
        for y in top..bottom {
            let row = y * self.rows.stride + ky * self.rows.dilation - self.rows.before;
            let from = row * self.width + left * self.columns.stride + kx * self.columns.dilation - self.columns.before;
            f(tap, from, self.columns.stride, y * self.out_width + left..y * self.out_width + right);
        }
    }
}

/// Calls `f(rows, columns)` with the input rows and columns under the window at each place of one plane, in order.
pub(crate) fn for_each_window(windows: &[Window], x: &[usize], out: &[usize], mut f: impl FnMut(Taps, Taps)) {
    let [rows, columns] = two_windows(windows);
    let size = |shape: &[usize]| if shape.len() == 4 { (shape[2], shape[3]) } else { (1, shape[2]) };
    let ((height, width), (out_height, out_width)) = (size(x), size(out));
    for y in 0..out_height {
        let taps = Taps::at(&rows, y, height);
        for x in 0..out_width {
            f(taps, Taps::at(&columns, x, width));
        }
    }
}

/// Fills one output plane with `f(rows, columns)`.
pub(crate) fn for_each_place(
    windows: &[Window],
    x: &[usize],
    out_shape: &[usize],
    out: &mut [f32],
    mut f: impl FnMut(Taps, Taps) -> f32,
) {
    let mut places = out.iter_mut();
    for_each_window(windows, x, out_shape, |rows, columns| {
        if let Some(place) = places.next() {
            *place = f(rows, columns);
        }
    });
}

/// The taps of a window at one place that lie inside the input, and how many lie inside the padded input.
#[derive(Clone, Copy)]
pub(crate) struct Taps {
    pub start: usize,
    pub end: usize,
    pub step: usize,
    pub padded: usize,
}

impl Taps {
    fn at(window: &Window, place: usize, input: usize) -> Self {
        let origin = place * window.stride;
        let inside = |limit: usize| limit.saturating_sub(origin).div_ceil(window.dilation).min(window.size);
        // Tap k stands at origin + k·dilation − before.
        let first = window.before.saturating_sub(origin).div_ceil(window.dilation).min(window.size);
        let last = inside(window.before + input).max(first);
        let start = (origin + first * window.dilation).saturating_sub(window.before);
        Self {
            start,
            end: start + (last - first) * window.dilation,
            step: window.dilation,
            padded: inside(window.before + input + window.after),
        }
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (self.start..self.end).step_by(self.step)
    }

    pub fn count(self) -> usize {
        (self.end - self.start) / self.step
    }
}
