//! An array of numbers on disk: N records of equal shape.

use super::SampleSource;
use super::records::Records;
use crate::error::{Error, Result};
use crate::op::node::to_f32;
use half::f16;

/// The type of an array's numbers, with numpy's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberType {
    /// `?` or `b1`
    Bool,
    /// `u1`
    U8,
    /// `i1`
    I8,
    /// `u2`
    U16,
    /// `i2`
    I16,
    /// `u4`
    U32,
    /// `i4`
    I32,
    /// `u8`
    U64,
    /// `i8`
    I64,
    /// `f2`
    F16,
    /// `f4`
    F32,
    /// `f8`
    F64,
}

impl NumberType {
    /// From numpy's code without byte order.
    pub(super) fn from_code(code: &str) -> Option<Self> {
        Some(match code {
            "b1" => Self::Bool,
            "u1" => Self::U8,
            "i1" => Self::I8,
            "u2" => Self::U16,
            "i2" => Self::I16,
            "u4" => Self::U32,
            "i4" => Self::I32,
            "u8" => Self::U64,
            "i8" => Self::I64,
            "f2" => Self::F16,
            "f4" => Self::F32,
            "f8" => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether numbers have a fractional part.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }

    /// Calls `f` with each little-endian number of `bytes` as f64.
    fn for_each(self, bytes: &[u8], mut f: impl FnMut(f64)) {
        macro_rules! each {
            ($size:literal, $convert:expr) => {
                bytes.as_chunks::<$size>().0.iter().for_each(|b| f($convert(*b)))
            };
        }
        #[allow(clippy::as_conversions)] // 64-bit integers are labels and indices, exact to 2⁵³
        match self {
            Self::Bool | Self::U8 => bytes.iter().for_each(|&b| f(f64::from(b))),
            Self::I8 => each!(1, |b| f64::from(i8::from_le_bytes(b))),
            Self::U16 => each!(2, |b| f64::from(u16::from_le_bytes(b))),
            Self::I16 => each!(2, |b| f64::from(i16::from_le_bytes(b))),
            Self::U32 => each!(4, |b| f64::from(u32::from_le_bytes(b))),
            Self::I32 => each!(4, |b| f64::from(i32::from_le_bytes(b))),
            Self::U64 => each!(8, |b| u64::from_le_bytes(b) as f64),
            Self::I64 => each!(8, |b| i64::from_le_bytes(b) as f64),
            Self::F16 => each!(2, |b| f16::from_le_bytes(b).to_f64()),
            Self::F32 => each!(4, |b| f64::from(f32::from_le_bytes(b))),
            Self::F64 => each!(8, f64::from_le_bytes),
        }
    }
}

/// An array of numbers on disk.
#[derive(Debug)]
pub struct Array {
    records: Records,
    /// The shape of one record.
    shape: Vec<usize>,
    element: NumberType,
    /// Bytes in front of the numbers in each record (CIFAR's label).
    skip: usize,
}

impl Array {
    pub(super) fn new(records: Records, shape: Vec<usize>, element: NumberType) -> Self {
        Self { records, shape, element, skip: 0 }
    }

    /// An array whose records begin with `skip` bytes that are not part of it.
    pub(super) fn node_after(records: Records, skip: usize, shape: Vec<usize>) -> Self {
        Self { records, shape, element: NumberType::U8, skip }
    }

    /// The type of the numbers.
    pub fn element(&self) -> NumberType {
        self.element
    }

    /// The shape of all records together.
    pub fn full_shape(&self) -> Vec<usize> {
        [self.records.count()].into_iter().chain(self.shape.iter().copied()).collect()
    }

    /// All numbers in row-major order.
    pub fn numbers(&self) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        self.records.for_each(|record| {
            self.element.for_each(record.get(self.skip..).unwrap_or_default(), |x| all.push(x));
            Ok(())
        })?;
        Ok(all)
    }
}

impl SampleSource for Array {
    fn len(&self) -> usize {
        self.records.count()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn is_bytes(&self) -> bool {
        self.element == NumberType::U8
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        let mut bytes = vec![0; self.records.size()];
        self.records.read(index, &mut bytes)?;
        let bytes = bytes.get(self.skip..).unwrap_or_default();
        if bytes.len() != out.len().saturating_mul(self.element.size()) {
            return Err(Error::data(format!("a sample of {} bytes does not hold {} numbers", bytes.len(), out.len())));
        }
        let mut places = out.iter_mut();
        self.element.for_each(bytes, |x| {
            if let Some(place) = places.next() {
                *place = to_f32(x);
            }
        });
        Ok(())
    }
}

/// Several arrays of the same shape, one behind the other.
pub(super) struct Joined(pub Vec<Array>);

impl SampleSource for Joined {
    fn len(&self) -> usize {
        self.0.iter().map(SampleSource::len).sum()
    }

    fn shape(&self) -> &[usize] {
        self.0.first().map_or(&[], |a| a.shape())
    }

    fn is_bytes(&self) -> bool {
        self.0.first().is_some_and(SampleSource::is_bytes)
    }

    fn read(&self, mut index: usize, out: &mut [f32]) -> Result<()> {
        for array in &self.0 {
            if index < array.len() {
                return array.read(index, out);
            }
            index -= array.len();
        }
        Err(Error::data("there is no such sample"))
    }
}
