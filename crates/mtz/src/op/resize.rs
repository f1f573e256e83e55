//! `Resize`: nearest or linear interpolation, axis after axis (both are separable).

use super::axes::{AxisLink, through};
use super::node::{ConstantForm, NodeForm, NodeSpec, Scalar, from_size, to_f32};
use super::{BASE_OPSET, Gradients, Inputs, Operator, Pass, Shapes};
use crate::error::{Error, Result};
use crate::kernel::for_each_run;
use crate::tensor::{Dim, MAX_ELEMENTS, Shape, ViewMut, normalize_axis};

/// How an element of the output is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The nearest element, with a rule for halves.
    Nearest(Rounding),
    /// A mean of the two neighbours along each axis.
    Linear,
}

/// Which neighbour is the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Halves go down.
    PreferFloor,
    /// Halves go up.
    PreferCeil,
    /// Always down.
    Floor,
    /// Always up.
    Ceil,
}

/// Where an element of the output lies in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinates {
    /// (x + ½) / scale − ½
    HalfPixel,
    /// The same about the centre, if the output's size was rounded.
    HalfPixelSymmetric,
    /// The same, but 0 if there is a single output.
    PytorchHalfPixel,
    /// First on first, last on last.
    AlignCorners,
    /// x / scale
    Asymmetric,
    /// (x + ½) / scale
    TfHalfPixelForNn,
}

/// The names of [`Coordinates`] in ONNX.
const COORDINATES: [(&str, Coordinates); 6] = [
    ("half_pixel", Coordinates::HalfPixel),
    ("half_pixel_symmetric", Coordinates::HalfPixelSymmetric),
    ("pytorch_half_pixel", Coordinates::PytorchHalfPixel),
    ("align_corners", Coordinates::AlignCorners),
    ("asymmetric", Coordinates::Asymmetric),
    ("tf_half_pixel_for_nn", Coordinates::TfHalfPixelForNn),
];

/// The names of [`Rounding`] in ONNX.
const ROUNDINGS: [(&str, Rounding); 4] = [
    ("round_prefer_floor", Rounding::PreferFloor),
    ("round_prefer_ceil", Rounding::PreferCeil),
    ("floor", Rounding::Floor),
    ("ceil", Rounding::Ceil),
];

fn by_name<T: Copy>(table: &[(&str, T)], name: &str) -> Result<T> {
    let known = table.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    known.ok_or_else(|| Error::unsupported(format!("mode {name:?}")))
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, v)| v == value).map_or("", |(name, _)| name)
}

/// Interpolation to another size.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    /// One factor per axis. Axes with factor 1 are left alone.
    pub scales: Vec<f32>,
    /// The new size of each axis that was given one; otherwise it is ⌊size · factor⌋.
    pub sizes: Vec<Option<usize>>,
    /// How an element is computed.
    pub mode: Mode,
    /// Where it lies.
    pub coordinates: Coordinates,
}

impl Operator for Resize {
    const NAME: &'static str = "Resize";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let x = node.shape(0)?;
        node.ignore(&["cubic_coeff_a", "exclude_outside", "extrapolation_value"]);
        node.only_int("antialias", 0)?;
        node.only_text("keep_aspect_ratio_policy", "stretch")?;
        let axes = match node.ints("axes")? {
            Some(axes) => axes.into_iter().map(|a| normalize_axis(a, x.rank())).collect::<Result<Vec<_>>>()?,
            None => (0..x.rank()).collect(),
        };
        let mode = node.text("mode")?.unwrap_or_else(|| "nearest".into());
        let coordinates = node.text("coordinate_transformation_mode")?;
        let rounding = node.text("nearest_mode")?;
        // Opset 10 knew one rule only: x / scale, rounded towards the input's start when growing, to its end when
        // shrinking.
        let old = node.opset < 11;
        let scales_input = if old { 1 } else { 2 };
        let mut scales = vec![1.0; x.rank()];
        let mut new_sizes = vec![None; x.rank()];
        let given = node.numbers(scales_input)?.filter(|s| !s.is_empty());
        if !old {
            node.constant(1).ok(); // the region of interest, used by a mode that is refused
        }
        if let Some(given) = given {
            set(&mut scales, &axes, given.into_iter().map(to_f32).collect())?;
            if !old && let Some(sizes) = node.constant(3)? && !sizes.elements.is_empty() {
                return Err(Error::model("both scales and sizes are given"));
            }
        } else if let Some(sizes) = if old { None } else { node.constant(3)? } {
            if sizes.elements.len() != axes.len() {
                return Err(Error::model(format!("{} sizes for {} axes", sizes.elements.len(), axes.len())));
            }
            for (&axis, size) in axes.iter().zip(&sizes.elements) {
                let (scale, size) = match (x.dim(axis)?, *size) {
                    (Dim::Fixed(len), Scalar::Number(size)) => scale_for(len, size)?,
                    (Dim::Batch(len), Scalar::Batch(size)) if size == len as f64 => (1.0, None),
                    (dim, size) => return Err(Error::unsupported(format!("size {size:?} for an axis of {dim}"))),
                };
                set(&mut scales, &[axis], vec![scale])?;
                if let Some(place) = new_sizes.get_mut(axis) {
                    *place = size;
                }
            }
        } else {
            return Err(Error::model("neither scales nor sizes are given"));
        }
        let (shrinks, grows) = (scales.iter().any(|&s| s < 1.0), scales.iter().any(|&s| s > 1.0));
        if old && shrinks && grows && mode == "nearest" {
            return Err(Error::unsupported("one axis grows and another shrinks, in opset 10")
                .hint("export with opset_version=13 or newer"));
        }
        let default_rounding = match (old, shrinks) {
            (true, true) => "ceil",
            (true, false) => "floor",
            (false, _) => "round_prefer_floor",
        };
        let mode = match mode.as_str() {
            "nearest" => Mode::Nearest(by_name(&ROUNDINGS, rounding.as_deref().unwrap_or(default_rounding))?),
            "linear" => Mode::Linear,
            other => return Err(Error::unsupported(format!("mode {other:?}; nearest and linear are supported"))),
        };
        let default_coordinates = if old { "asymmetric" } else { "half_pixel" };
        let coordinates = by_name(&COORDINATES, coordinates.as_deref().unwrap_or(default_coordinates))?;
        Ok(Self { scales, sizes: new_sizes, mode, coordinates })
    }

    fn write(&self, form: &mut NodeForm) {
        form.constant(ConstantForm::Missing);
        if self.has_sizes() {
            let sized = || self.sizes.iter().enumerate().filter_map(|(axis, size)| Some((axis, (*size)?)));
            form.constant(ConstantForm::Missing);
            form.constant(ConstantForm::Ints(sized().map(|(_, size)| from_size(size)).collect()));
            form.sizes("axes", sized().map(|(axis, _)| axis));
        } else {
            form.constant(ConstantForm::Floats(self.scales.clone()));
        }
        form.text("coordinate_transformation_mode", name_of(&COORDINATES, &self.coordinates));
        match self.mode {
            Mode::Linear => form.text("mode", "linear"),
            Mode::Nearest(rounding) => {
                form.text("mode", "nearest");
                form.text("nearest_mode", name_of(&ROUNDINGS, &rounding));
            }
        }
    }

    fn since(&self) -> i64 {
        match (self.coordinates, self.has_sizes()) {
            (Coordinates::HalfPixelSymmetric, _) => 19,
            (_, true) => 18, // the batch stays open only if axes can be named
            _ => BASE_OPSET,
        }
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        if self.scales.len() != x.rank() {
            return Err(Error::model(format!("{} scales for {x}", self.scales.len())));
        }
        let mut dims = x.dims().to_vec();
        for (axis, dim) in dims.iter_mut().enumerate() {
            let (scale, size) = (self.scales[axis], self.sizes.get(axis).copied().flatten());
            if scale != 1.0 {
                let len = x.fixed_dim(axis)?;
                let size = size.or_else(|| resized(len, scale)).ok_or_else(|| {
                    Error::model(format!("axis {axis} of {x} cannot be scaled by {scale}"))
                })?;
                *dim = Dim::Fixed(size);
            }
        }
        Shape::new(dims)
    }

    fn scratch(&self, inputs: &[&[usize]], output: &[usize]) -> u64 {
        // A table of sources per axis, and what lies between two axes.
        let tables: u64 = output.iter().map(|&n| 24 * n as u64).sum();
        let mut shape = inputs.first().copied().unwrap_or_default().to_vec();
        let mut between = 0u64;
        for (axis, &size) in output.iter().enumerate() {
            if let Some(len) = shape.get_mut(axis).filter(|len| **len != size) {
                *len = size;
                between = between.max(shape.iter().fold(4, |n, &d| n.saturating_mul(d as u64)));
            }
        }
        tables.saturating_add(between.saturating_mul(2))
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let axes: Vec<usize> = (0..self.scales.len()).filter(|&a| self.scales[a] != 1.0).collect();
        let Some((&last, before)) = axes.split_last() else {
            return out.data.copy_from_slice(x.data);
        };
        let (mut shape, mut data) = (x.shape.to_vec(), None);
        for &axis in before {
            let mut next_shape = shape.clone();
            next_shape[axis] = out.shape[axis];
            let mut next = vec![0.0; next_shape.iter().product()];
            self.along(axis, data.as_deref().unwrap_or(x.data), &shape, out.shape[axis], &mut next);
            (shape, data) = (next_shape, Some(next));
        }
        self.along(last, data.as_deref().unwrap_or(x.data), &shape, out.shape[last], out.data);
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        let x = pass.inputs.get(0).shape;
        // The axes in the opposite order, each sending its gradient back to the two sources.
        let (mut shape, mut data) = (pass.grad.shape.to_vec(), pass.grad.data.to_vec());
        for axis in (0..self.scales.len()).rev().filter(|&a| self.scales[a] != 1.0) {
            let inner: usize = shape[axis + 1..].iter().product();
            let (len, size) = (x[axis], shape[axis]);
            let sources = self.sources(axis, len, size);
            let mut back = vec![0.0; data.len() / size * len];
            for_each_run(&mut back, len * inner, |outer, back| {
                let grad = &data[outer * size * inner..][..size * inner];
                for (grad, &(first, second, share)) in grad.chunks(inner).zip(&sources) {
                    for (i, g) in grad.iter().enumerate() {
                        back[first * inner + i] += g * (1.0 - share);
                        back[second * inner + i] += g * share;
                    }
                }
            });
            shape[axis] = len;
            data = back;
        }
        gradient.pass_on(&data);
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |axis| self.scales[axis] != 1.0)
    }
}

fn set(scales: &mut [f32], axes: &[usize], values: Vec<f32>) -> Result<()> {
    if values.len() != axes.len() {
        return Err(Error::model(format!("{} scales for {} axes", values.len(), axes.len())));
    }
    for (&axis, value) in axes.iter().zip(values) {
        if let Some(scale) = scales.get_mut(axis) {
            *scale = value;
        }
    }
    Ok(())
}

/// ⌊len · scale⌋ in f32, as onnxruntime computes it; `None` if that is no size.
fn resized(len: usize, scale: f32) -> Option<usize> {
    let size = (len as f32 * scale).floor();
    (size >= 1.0 && size <= MAX_ELEMENTS as f32).then_some(size as usize)
}

/// The factor from `len` to `size` elements, and the size itself unless nothing changes.
fn scale_for(len: usize, size: f64) -> Result<(f32, Option<usize>)> {
    if size >= 1.0 && size <= MAX_ELEMENTS as f64 && size.fract() == 0.0 {
        let size = size as usize;
        return Ok((size as f32 / len as f32, (size != len).then_some(size)));
    }
    Err(Error::model(format!("an axis of {len} cannot be resized to {size}")))
}

impl Resize {
    fn has_sizes(&self) -> bool {
        self.sizes.iter().any(Option::is_some)
    }

    /// The position in the input of element `i` of an axis that grows from `len` to `size`.
    fn origin(&self, i: usize, len: usize, size: usize, axis: usize) -> f32 {
        let (x, length, scale) = (i as f32, len as f32, self.scales[axis]);
        // With a size given, by multiplication first: ties stay exact, as in onnxruntime.
        let sized = self.sizes.get(axis).copied().flatten().is_some();
        let unscaled = |x: f32| if sized { x * length / size as f32 } else { x / scale };
        match self.coordinates {
            Coordinates::HalfPixel => unscaled(x + 0.5) - 0.5,
            Coordinates::HalfPixelSymmetric => {
                let adjustment = size as f32 / (scale * length);
                length / 2.0 * (1.0 - adjustment) + unscaled(x + 0.5) - 0.5
            }
            Coordinates::PytorchHalfPixel if size == 1 => 0.0,
            Coordinates::PytorchHalfPixel => unscaled(x + 0.5) - 0.5,
            Coordinates::AlignCorners if size == 1 => 0.0,
            Coordinates::AlignCorners => x * (length - 1.0) / (size as f32 - 1.0),
            Coordinates::Asymmetric => unscaled(x),
            Coordinates::TfHalfPixelForNn => unscaled(x + 0.5),
        }
    }

    /// For each element of an axis that grows from `len` to `size`: its two sources and the share of the second.
    fn sources(&self, axis: usize, len: usize, size: usize) -> Vec<(usize, usize, f32)> {
        (0..size)
            .map(|i| {
                let at = self.origin(i, len, size, axis);
                match self.mode {
                    Mode::Linear => {
                        let at = at.clamp(0.0, (len - 1) as f32);
                        let first = at as usize;
                        (first, (first + 1).min(len - 1), at - first as f32)
                    }
                    Mode::Nearest(rounding) => {
                        let at = match rounding {
                            Rounding::PreferFloor => (at - 0.5).ceil(),
                            Rounding::PreferCeil => (at + 0.5).floor(),
                            Rounding::Floor => at.floor(),
                            Rounding::Ceil => at.ceil(),
                        };
                        let nearest = at.clamp(0.0, (len - 1) as f32) as usize;
                        (nearest, nearest, 0.0)
                    }
                }
            })
            .collect()
    }

    /// Interpolates one axis of `x` to `size` elements.
    fn along(&self, axis: usize, x: &[f32], shape: &[usize], size: usize, out: &mut [f32]) {
        let len = shape[axis];
        let inner: usize = shape[axis + 1..].iter().product();
        let sources = self.sources(axis, len, size);
        for_each_run(out, inner, |index, out| {
            let (first, second, share) = sources[index % size];
            let plane = &x[index / size * len * inner..][..len * inner];
            let (first, second) = (&plane[first * inner..][..inner], &plane[second * inner..][..inner]);
            if share == 0.0 {
                return out.copy_from_slice(first);
            }
            for ((out, a), b) in out.iter_mut().zip(first).zip(second) {
                *out = a * (1.0 - share) + b * share;
            }
        });
    }
}
