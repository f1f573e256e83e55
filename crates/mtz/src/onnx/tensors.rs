//! Tensors of a file: raw or typed data, in the file or beside it, of any element type.

use super::proto::{SparseTensorProto, TensorProto, data_type};
use crate::error::{Error, ErrorKind, Result};
use crate::op::node::{Scalar, Static, to_f32};
use crate::tensor::{Element, MAX_ELEMENTS, Tensor};
use bytes::Bytes;
use half::{bf16, f16};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// Constants of integers are small in real models: shapes, axes, indices.
const MAX_INTEGERS: usize = 1 << 22;

/// A sparse tensor may be this large however little it stores,
const MAX_ZEROS: usize = 1 << 22;
/// or this many times what it stores.
const MAX_SPARSENESS: usize = 1000;

/// All weights of a model together may take this much memory: what a file says of itself is not to be trusted.
const MAX_MODEL_BYTES: usize = 16 << 30;

/// Reads tensors, keeps count of their size, and finds external data.
pub(super) struct TensorReader {
    folder: Option<PathBuf>,
    budget: usize,
}

impl TensorReader {
    /// For a model in `folder`; without one, external data is refused.
    pub fn new(folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Path::to_owned), budget: MAX_MODEL_BYTES }
    }

    /// A tensor of a floating type, as f32.
    pub fn floats(&mut self, proto: &TensorProto) -> Result<Tensor> {
        let (shape, count) = dims(proto)?;
        self.spend(count.saturating_mul(4))?;
        let raw = self.raw(proto)?;
        let data: Vec<f32> = match (proto.data_type, raw) {
            (data_type::FLOAT, Some(raw)) => numbers(&raw, f32::from_le_bytes),
            (data_type::DOUBLE, Some(raw)) => numbers(&raw, |b| to_f32(f64::from_le_bytes(b))),
            (data_type::FLOAT16, Some(raw)) => numbers(&raw, |b| f16::from_le_bytes(b).to_f32()),
            (data_type::BFLOAT16, Some(raw)) => numbers(&raw, |b| bf16::from_le_bytes(b).to_f32()),
            (data_type::FLOAT, None) => proto.float_data.clone(),
            (data_type::DOUBLE, None) => proto.double_data.iter().map(|&x| to_f32(x)).collect(),
            (data_type::FLOAT16, None) => halves(proto).map(|bits| f16::from_bits(bits).to_f32()).collect(),
            (data_type::BFLOAT16, None) => halves(proto).map(|bits| bf16::from_bits(bits).to_f32()).collect(),
            (other, _) => return Err(Error::unsupported(format!("{} is not a floating type", type_name(other)))),
        };
        check_count(proto, data.len(), count)?;
        Tensor::new(shape, data)
    }

    /// A sparse tensor of a floating type, zeros filled in.
    pub fn sparse(&mut self, proto: &SparseTensorProto) -> Result<Tensor> {
        let (Some(values), Some(places)) = (&proto.values, &proto.indices) else {
            return Err(Error::model("a sparse tensor lacks values or indices"));
        };
        let wrong = || Error::model(format!("sparse tensor {:?} has indices that do not fit", values.name));
        let whole = TensorProto { dims: proto.dims.clone(), name: values.name.clone(), ..TensorProto::default() };
        let (shape, count) = dims(&whole)?;
        let values = self.floats(values)?;
        let stored = values.data().len();
        // A few bytes must not ask for gigabytes of zeros.
        if count > MAX_ZEROS.max(stored.saturating_mul(MAX_SPARSENESS)) {
            return Err(Error::limit(format!("sparse tensor {:?} has {stored} of {count} numbers", whole.name)));
        }
        self.spend(count.saturating_mul(4))?;
        let indices: Vec<i64> = match (places.data_type, self.raw(places)?) {
            (data_type::INT64, Some(raw)) => numbers(&raw, i64::from_le_bytes),
            (data_type::INT64, None) => places.int64_data.clone(),
            (data_type::INT32, Some(raw)) => numbers(&raw, |b| i32::from_le_bytes(b).into()),
            (other, _) => return Err(Error::unsupported(format!("sparse indices of type {}", type_name(other)))),
        };
        let axes = match places.dims.len() {
            1 => 1,
            2 => shape.len(),
            _ => return Err(wrong()),
        };
        if axes == 0 || indices.len() != stored.checked_mul(axes).ok_or_else(wrong)? {
            return Err(wrong());
        }
        let sizes: Vec<usize> = if places.dims.len() == 1 { vec![count] } else { shape.clone() };
        let mut data = vec![0.0; count];
        for (place, x) in indices.chunks(axes).zip(values.data()) {
            let place = place.iter().zip(&sizes).try_fold(0usize, |sum, (&i, &size)| {
                let i = usize::try_from(i).ok().filter(|i| *i < size)?;
                sum.checked_mul(size)?.checked_add(i)
            });
            *place.and_then(|p| data.get_mut(p)).ok_or_else(wrong)? = *x;
        }
        Tensor::new(shape, data)
    }

    /// A tensor of integers or truth values.
    pub fn integers(&mut self, proto: &TensorProto) -> Result<Static> {
        let (shape, count) = dims_or_empty(proto)?;
        if count > MAX_INTEGERS {
            return Err(Error::limit(format!("{count} integers in tensor {:?}", proto.name)));
        }
        self.spend(count.saturating_mul(size_of::<Scalar>()))?;
        let raw = self.raw(proto)?;
        let data: Vec<f64> = match (proto.data_type, raw) {
            (data_type::INT64, Some(raw)) => numbers(&raw, |b| wide(i64::from_le_bytes(b))),
            (data_type::UINT64, Some(raw)) => numbers(&raw, |b| wide_unsigned(u64::from_le_bytes(b))),
            (data_type::INT32, Some(raw)) => numbers(&raw, |b| i32::from_le_bytes(b).into()),
            (data_type::UINT32, Some(raw)) => numbers(&raw, |b| u32::from_le_bytes(b).into()),
            (data_type::INT16, Some(raw)) => numbers(&raw, |b| i16::from_le_bytes(b).into()),
            (data_type::UINT16, Some(raw)) => numbers(&raw, |b| u16::from_le_bytes(b).into()),
            (data_type::INT8, Some(raw)) => numbers(&raw, |b| i8::from_le_bytes(b).into()),
            (data_type::UINT8 | data_type::BOOL, Some(raw)) => numbers(&raw, |b| u8::from_le_bytes(b).into()),
            (data_type::INT64, None) => proto.int64_data.iter().map(|&x| wide(x)).collect(),
            (data_type::UINT64 | data_type::UINT32, None) => {
                proto.uint64_data.iter().map(|&x| wide_unsigned(x)).collect()
            }
            (t, None) if is_integer(t) => proto.int32_data.iter().map(|&x| x.into()).collect(),
            (other, _) => return Err(Error::unsupported(format!("tensors of type {}", type_name(other)))),
        };
        check_count(proto, data.len(), count)?;
        Ok(Static { shape, elements: data.into_iter().map(Scalar::Number).collect(), integer: true })
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        self.budget = self
            .budget
            .checked_sub(bytes)
            .ok_or_else(|| Error::limit(format!("the weights take more than {} GiB", MAX_MODEL_BYTES >> 30)))?;
        Ok(())
    }

    /// The raw bytes, from the file itself or from beside it; `None` if the numbers are in typed fields.
    fn raw(&self, proto: &TensorProto) -> Result<Option<Bytes>> {
        if proto.data_location == 1 {
            return self.external(proto).map(Some).map_err(|e| match e.hint_text() {
                Some(_) => e,
                None => e.hint("external data must lie in the model's folder, under a relative path without \"..\""),
            });
        }
        Ok(proto.raw_data.clone().filter(|raw| !raw.is_empty()))
    }

    fn external(&self, proto: &TensorProto) -> Result<Bytes> {
        let entry = |key: &str| external_entry(proto, key);
        let number = |key: &str| -> Result<Option<u64>> {
            let parse = |text: &str| text.parse().map_err(|_| Error::model(format!("external {key} is {text:?}")));
            entry(key).map(parse).transpose()
        };
        let location = entry("location").unwrap_or_default();
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        let Some(folder) = &self.folder else {
            return Err(Error::unsupported(format!("tensor {:?} is in a file of its own, {location:?}", proto.name)));
        };
        let path = external_file(folder, proto)?.ok_or_else(|| {
            let missing =
                format!("tensor {:?} is in a file beside the model, {location:?}: there is no such file", proto.name);
            Error::new(ErrorKind::Io, missing)
                .hint(format!("copy {location} into the model's folder, or export the model into one file"))
        })?;
        let mut file = File::open(&path).map_err(|e| Error::io(&path, &e))?;
        let size = file.metadata().map_err(|e| Error::io(&path, &e))?.len();
        let length = length.unwrap_or(size.saturating_sub(offset));
        let end = offset.checked_add(length).filter(|&end| end <= size);
        let Some(length) = end.and_then(|_| usize::try_from(length).ok()).filter(|&n| n <= MAX_MODEL_BYTES) else {
            return Err(Error::model(format!(
                "tensor {:?} wants bytes {offset}+{length} of {location:?}, which has {size}",
                proto.name
            )));
        };
        // Before memory is taken: it must be what the shape needs, or a file could claim the same bytes many times.
        let (_, count) = dims_or_empty(proto)?;
        if Some(length) != element_size(proto.data_type).and_then(|s| s.checked_mul(count)) {
            return Err(Error::model(format!("tensor {:?} has {length} bytes for {count} elements", proto.name)));
        }
        let mut data = vec![0; length];
        file.seek(SeekFrom::Start(offset)).map_err(|e| Error::io(&path, &e))?;
        file.read_exact(&mut data).map_err(|e| Error::io(&path, &e))?;
        Ok(data.into())
    }
}

fn external_entry<'p>(proto: &'p TensorProto, key: &str) -> Option<&'p str> {
    proto.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str())
}

/// The file beside a model in `folder` that holds the numbers of a tensor; `None` if there is none.
pub(super) fn external_file(folder: &Path, proto: &TensorProto) -> Result<Option<PathBuf>> {
    inside(folder, external_entry(proto, "location").unwrap_or_default())
}

/// `location` inside `folder`: relative, going down only, and a regular file there after links are followed; `None` if
/// there is nothing.
fn inside(folder: &Path, location: &str) -> Result<Option<PathBuf>> {
    let refused =
        || Error::new(ErrorKind::Model, format!("external data at {location:?} is outside the model's folder"));
    let relative = Path::new(location);
    let normal = |c: Component| matches!(c, Component::Normal(_) | Component::CurDir);
    if location.is_empty() || !relative.components().all(normal) {
        return Err(refused());
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let root = folder.canonicalize().map_err(|e| Error::io(folder, &e))?;
    let path = root.join(relative);
    let real = match path.canonicalize() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        real => real.map_err(|e| Error::io(&path, &e))?,
    };
    if !real.starts_with(&root) || !real.is_file() {
        return Err(refused());
    }
    Ok(Some(real))
}

/// The dimensions and their product, bounded.
fn dims(proto: &TensorProto) -> Result<(Vec<usize>, usize)> {
    let (dims, count) = dims_or_empty(proto)?;
    if count == 0 {
        return Err(Error::unsupported(format!("tensor {:?} is empty", proto.name)));
    }
    Ok((dims, count))
}

fn dims_or_empty(proto: &TensorProto) -> Result<(Vec<usize>, usize)> {
    let error = || Error::model(format!("tensor {:?} has dimensions {:?}", proto.name, proto.dims));
    let dims = proto.dims.iter().map(|&d| usize::try_from(d)).collect::<std::result::Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| error())?;
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= MAX_ELEMENTS);
    Ok((dims, count.ok_or_else(error)?))
}

fn check_count(proto: &TensorProto, got: usize, expected: usize) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::model(format!("tensor {:?} of shape {:?} has {got} numbers", proto.name, proto.dims))
        .hint("the file may be cut off; export or copy it again"))
}

/// Little-endian numbers of N bytes each; a rest that is no whole number is left to the count to complain about.
fn numbers<const N: usize, T>(raw: &[u8], convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (whole, rest) = raw.as_chunks::<N>();
    if !rest.is_empty() {
        return Vec::new();
    }
    whole.iter().map(|&bytes| convert(bytes)).collect()
}

/// 16-bit floats in typed fields: one per int32.
fn halves(proto: &TensorProto) -> impl Iterator<Item = u16> {
    proto.int32_data.iter().filter_map(|&bits| u16::try_from(bits).ok())
}

/// i64 as f64: exact to 2⁵³, which covers every size; beyond, only "very large" matters.
#[allow(clippy::as_conversions)]
fn wide(x: i64) -> f64 {
    x as f64
}

#[allow(clippy::as_conversions)]
fn wide_unsigned(x: u64) -> f64 {
    x as f64
}

fn element_size(data_type: i32) -> Option<usize> {
    Some(match data_type {
        data_type::UINT8 | data_type::INT8 | data_type::BOOL => 1,
        data_type::UINT16 | data_type::INT16 | data_type::FLOAT16 | data_type::BFLOAT16 => 2,
        data_type::FLOAT | data_type::INT32 | data_type::UINT32 => 4,
        data_type::DOUBLE | data_type::INT64 | data_type::UINT64 => 8,
        _ => return None,
    })
}

/// How a tensor of this type is stored when it is written again: what is wider than f16, and bf16, whose range is,
/// becomes f32.
pub(super) fn element(data_type: i32) -> Element {
    if data_type == data_type::FLOAT16 { Element::F16 } else { Element::F32 }
}

/// Whether a type counts as integer here (truth values do).
pub(super) fn is_integer(data_type: i32) -> bool {
    element_size(data_type).is_some() && !data_type::FLOATS.contains(&data_type)
}

/// ONNX's name of an element type.
pub(super) fn type_name(data_type: i32) -> String {
    const NAMES: [&str; 24] = [
        "undefined",
        "float",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "int32",
        "int64",
        "string",
        "bool",
        "float16",
        "double",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
        "bfloat16",
        "float8e4m3fn",
        "float8e4m3fnuz",
        "float8e5m2",
        "float8e5m2fnuz",
        "uint4",
        "int4",
        "float4e2m1",
    ];
    let name = usize::try_from(data_type).ok().and_then(|i| NAMES.get(i));
    name.map_or_else(|| format!("number {data_type}"), |n| (*n).to_owned())
}
