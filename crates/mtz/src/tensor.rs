//! Shapes and dense f32 tensors: the two values every stage passes on.
//!
//! A dimension is a number or a multiple of the batch size, which stays open until a network runs. Every size is
//! multiplied with overflow checks, because dimensions come from files.

use crate::error::{Error, Result};
use half::f16;
use std::fmt;
use std::sync::Arc;

/// No tensor may have more elements than this (8 GiB of f32), whatever a file claims.
pub const MAX_ELEMENTS: usize = 1 << 31;

/// How numbers are stored in a file. In memory all are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Element {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits: half the size, 11 bits of precision, nothing beyond 65504.
    F16,
}

impl Element {
    /// The nearest number this type can hold; `None` for finite numbers beyond its range.
    pub fn nearest(self, x: f32) -> Option<f32> {
        match self {
            Self::F32 => Some(x),
            Self::F16 => Some(f16::from_f32(x).to_f32()).filter(|near| near.is_finite() || !x.is_finite()),
        }
    }

    /// The nearest number this type can hold, ±∞ for what is beyond its range: what a limit means.
    pub fn limit(self, x: f32) -> f32 {
        match self {
            Self::F32 => x,
            Self::F16 => f16::from_f32(x).to_f32(),
        }
    }

    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        })
    }
}

/// One dimension of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// So many.
    Fixed(usize),
    /// So many times the batch size.
    Batch(usize),
}

impl Dim {
    /// The number for a batch of `batch` samples.
    pub fn at(self, batch: usize) -> usize {
        match self {
            Self::Fixed(n) => n,
            Self::Batch(k) => k.saturating_mul(batch),
        }
    }

    /// The number, where it does not depend on the batch size.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Self::Fixed(n) => Some(n),
            Self::Batch(_) => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(n) => write!(f, "{n}"),
            Self::Batch(1) => f.write_str("N"),
            Self::Batch(k) => write!(f, "{k}N"),
        }
    }
}

/// The dimensions of a value, with the batch size left open.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<Dim>);

impl Shape {
    /// A shape, checked: no empty dimension and at most [`MAX_ELEMENTS`] elements for a batch of one.
    pub fn new(dims: Vec<Dim>) -> Result<Self> {
        let shape = Self(dims);
        let mut elements = 1usize;
        for dim in &shape.0 {
            elements = elements.saturating_mul(dim.at(1));
            if dim.at(1) == 0 {
                return Err(Error::model(format!("shape {shape} has an empty dimension")));
            }
        }
        if elements > MAX_ELEMENTS {
            return Err(Error::limit(format!("shape {shape} has more than {MAX_ELEMENTS} elements")));
        }
        Ok(shape)
    }

    /// A shape without batch dimension.
    pub fn fixed(dims: &[usize]) -> Result<Self> {
        Self::new(dims.iter().map(|&n| Dim::Fixed(n)).collect())
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// All dimensions.
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// One dimension.
    pub fn dim(&self, axis: usize) -> Result<Dim> {
        self.0.get(axis).copied().ok_or_else(|| Error::model(format!("shape {self} has no axis {axis}")))
    }

    /// One dimension that must not depend on the batch size.
    pub fn fixed_dim(&self, axis: usize) -> Result<usize> {
        self.dim(axis)?.fixed().ok_or_else(|| {
            Error::unsupported(format!("axis {axis} of {self} is the batch, and this operator would mix its samples"))
        })
    }

    /// The shape with another dimension at `axis`.
    pub fn with_dim(&self, axis: usize, dim: Dim) -> Result<Self> {
        self.dim(axis)?;
        Self::new(self.0.iter().enumerate().map(|(i, &d)| if i == axis { dim } else { d }).collect())
    }

    /// The numbers for a batch of `batch` samples.
    pub fn at(&self, batch: usize) -> Vec<usize> {
        self.0.iter().map(|d| d.at(batch)).collect()
    }

    /// The product of the dimensions as coefficient and power of the batch size: 3×N×4 is (12, 1).
    pub fn product(&self) -> (usize, u32) {
        self.0.iter().fold((1, 0), |(k, power), dim| match dim {
            Dim::Fixed(n) => (k * n, power),
            Dim::Batch(n) => (k * n, power + 1),
        })
    }

    /// The number of elements for a batch of `batch` samples.
    pub fn elements(&self, batch: usize) -> usize {
        self.0.iter().fold(1, |n, d| n.saturating_mul(d.at(batch)))
    }

    /// An axis as ONNX counts it (negative: from the end), as a plain index.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        normalize_axis(axis, self.rank())
    }
}

/// An axis as ONNX counts it (negative: from the end), as an index below `rank`.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize> {
    let from_start = if axis < 0 { i64::try_from(rank).ok().and_then(|r| axis.checked_add(r)) } else { Some(axis) };
    from_start
        .and_then(|a| usize::try_from(a).ok())
        .filter(|&a| a < rank)
        .ok_or_else(|| Error::model(format!("axis {axis} is outside a tensor of {rank} dimensions")))
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

/// A dense f32 tensor in row-major order. Clones share the numbers.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Arc<Vec<f32>>,
}

impl Tensor {
    /// A tensor, if the numbers fill the shape exactly.
    pub fn new(shape: Vec<usize>, data: Vec<f32>) -> Result<Self> {
        Self::from_shared(shape, Arc::new(data))
    }

    /// A tensor over numbers that others hold too.
    pub fn from_shared(shape: Vec<usize>, data: Arc<Vec<f32>>) -> Result<Self> {
        match shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) {
            Some(n) if n == data.len() => Ok(Self { shape, data }),
            _ => Err(Error::model(format!("shape {shape:?} does not hold {} numbers", data.len()))),
        }
    }

    /// A tensor of one number.
    pub fn scalar(x: f32) -> Self {
        Self { shape: Vec::new(), data: Arc::new(vec![x]) }
    }

    /// The dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The numbers in row-major order.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// A matrix with its axes exchanged.
    pub fn transposed(&self) -> Result<Self> {
        let &[rows, columns] = self.shape.as_slice() else {
            return Err(Error::model(format!("a tensor of shape {:?} is no matrix", self.shape)));
        };
        let data = (0..columns).flat_map(|j| (0..rows).map(move |i| self.data[i * columns + j])).collect();
        Self::new(vec![columns, rows], data)
    }

    /// The same numbers in no more memory than they need, unless somebody else holds them.
    #[must_use]
    pub fn without_spare_room(mut self) -> Self {
        if let Some(data) = Arc::get_mut(&mut self.data) {
            data.shrink_to_fit();
        }
        self
    }

    /// The numbers as they are shared.
    pub fn shared(&self) -> &Arc<Vec<f32>> {
        &self.data
    }

    /// Gives up the tensor and keeps its numbers.
    pub fn into_shared(self) -> Arc<Vec<f32>> {
        self.data
    }

    /// How an operator sees it.
    pub fn view(&self) -> View<'_> {
        View { shape: &self.shape, data: &self.data }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first: Vec<f32> = self.data.iter().take(8).copied().collect();
        let more = if self.data.len() > first.len() { ", …" } else { "" };
        write!(f, "Tensor{:?} {first:?}{more}", self.shape)
    }
}

/// A tensor an operator reads.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The dimensions.
    pub shape: &'a [usize],
    /// The numbers in row-major order.
    pub data: &'a [f32],
}

/// A tensor an operator writes. Its numbers are arbitrary before.
#[derive(Debug)]
pub struct ViewMut<'a> {
    /// The dimensions.
    pub shape: &'a [usize],
    /// The numbers in row-major order.
    pub data: &'a mut [f32],
}

/// The distance in elements between neighbours along each axis of a row-major tensor.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_from_hostile_files_are_refused() {
        assert!(Shape::fixed(&[1 << 40, 1 << 40]).is_err());
        assert!(Shape::fixed(&[3, 0]).is_err());
        assert!(Shape::new(vec![Dim::Batch(1), Dim::Fixed(MAX_ELEMENTS + 1)]).is_err());
        assert!(Tensor::new(vec![usize::MAX, 2], vec![0.0; 2]).is_err());
    }

    #[test]
    fn axes_count_from_both_ends() {
        assert_eq!(normalize_axis(-1, 4).unwrap(), 3);
        assert!(normalize_axis(4, 4).is_err());
        assert!(normalize_axis(i64::MIN, 4).is_err());
    }
}
