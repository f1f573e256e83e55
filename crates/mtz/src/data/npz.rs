//! numpy's `.npz`: a zip of `.npy` arrays, compressed or not.
//!
//! An array that is not compressed is read in place; a compressed one is unpacked when it is opened.

use super::array::{Array, Element};
use super::records::Records;
use super::{Dataset, Labels, Samples};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use zip::{CompressionMethod, ZipArchive};

/// An open `.npz`.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    zip: ZipArchive<BufReader<File>>,
    names: Vec<String>,
}

impl Archive {
    /// Opens an archive and lists its arrays.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, &e))?;
        let damaged = |e: &dyn std::fmt::Display| {
            Error::data(format!("{}: not a readable .npz file ({e})", path.display()))
                .hint("write it with numpy.savez(path, x=…, y=…)")
        };
        let zip = ZipArchive::new(BufReader::new(file)).map_err(|e| damaged(&e))?;
        let mut names = Vec::new();
        for name in zip.file_names() {
            names.extend(name.map_err(|e| damaged(&e))?.strip_suffix(".npy").map(str::to_owned));
        }
        names.sort();
        Ok(Self { path: path.to_owned(), zip, names })
    }

    /// The names of the arrays, sorted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Opens an array. One without axes counts as one record.
    pub fn array(&mut self, name: &str) -> Result<Array> {
        let path = self.path.clone();
        let damaged = |e: &dyn std::fmt::Display| Error::data(format!("{}: array {name:?}: {e}", path.display()));
        let mut entry = self
            .zip
            .by_name(&format!("{name}.npy"))
            .map_err(|e| damaged(&e).hint(format!("it has the arrays {}", self.names.join(", "))))?;
        let header = Header::read(&mut entry).map_err(|e| damaged(&e))?;
        let (count, shape) = match header.shape.split_first() {
            Some((&count, shape)) => (count, shape.to_vec()),
            None => (1, vec![]),
        };
        if header.shape.contains(&0) {
            return Err(damaged(&format_args!("it is empty: its shape is {:?}", header.shape)));
        }
        let size = shape.iter().try_fold(header.element.size(), |n, &d| n.checked_mul(d));
        let total = size.and_then(|size| u64::try_from(size.checked_mul(count)?).ok()?.checked_add(header.len));
        let Some(size) = size.filter(|_| total == Some(entry.size())) else {
            let shape = &header.shape;
            return Err(damaged(&format_args!("{} bytes do not hold an array of shape {shape:?}", entry.size())));
        };
        let stored = entry.compression() == CompressionMethod::Stored && !entry.encrypted();
        let records = match entry.data_start().filter(|_| stored) {
            Some(start) => Records::in_file(&path, start.saturating_add(header.len), size, count)?,
            None => Records::from_stream(&path, entry, size, count)?,
        };
        Ok(Array::new(records, shape, header.element))
    }
}

/// The header of a `.npy`: what the array is like, and where it begins.
struct Header {
    element: Element,
    shape: Vec<usize>,
    len: u64,
}

impl Header {
    fn read(stream: &mut impl Read) -> Result<Self> {
        let cut = |e: std::io::Error| Error::data(format!("unreadable header ({e})"));
        let mut start = [0; 8];
        stream.read_exact(&mut start).map_err(cut)?;
        let [magic @ .., major, _minor] = start;
        if magic != *b"\x93NUMPY" {
            return Err(Error::data("not a numpy array"));
        }
        let (fixed, text_len) = if major == 1 {
            let mut len = [0; 2];
            stream.read_exact(&mut len).map_err(cut)?;
            (10u64, u32::from(u16::from_le_bytes(len)))
        } else {
            let mut len = [0; 4];
            stream.read_exact(&mut len).map_err(cut)?;
            (12, u32::from_le_bytes(len))
        };
        if text_len > 1 << 16 {
            return Err(Error::data("the header is too long"));
        }
        let mut text = String::new();
        stream.take(text_len.into()).read_to_string(&mut text).map_err(cut)?;
        Ok(Self { element: element(&text)?, shape: shape(&text)?, len: fixed + u64::from(text_len) })
    }
}

/// What stands behind `'key':` in the header, a Python dictionary.
fn entry<'t>(text: &'t str, key: &str) -> Result<&'t str> {
    let missing = || Error::data(format!("the header has no {key}"));
    let (_, rest) = text.split_once(&format!("'{key}'")).ok_or_else(missing)?;
    Ok(rest.trim_start().strip_prefix(':').ok_or_else(missing)?.trim_start())
}

fn element(text: &str) -> Result<Element> {
    let descr = entry(text, "descr")?;
    let unsupported = || Error::data(format!("numbers of type {}", descr.split(',').next().unwrap_or_default()));
    let code = descr.strip_prefix('\'').and_then(|d| d.split('\'').next()).ok_or_else(unsupported)?;
    let big = code.starts_with('>') && !code.ends_with('1');
    let plain = code.trim_start_matches(['<', '>', '|', '=']);
    let element = Element::from_code(plain).filter(|_| !big).ok_or_else(unsupported)?;
    if !entry(text, "fortran_order")?.starts_with("False") {
        return Err(Error::data("stored in Fortran order").hint("save numpy.ascontiguousarray(x) instead"));
    }
    Ok(element)
}

fn shape(text: &str) -> Result<Vec<usize>> {
    let wrong = || Error::data("the header has no readable shape");
    let list = entry(text, "shape")?.strip_prefix('(').and_then(|s| s.split(')').next()).ok_or_else(wrong)?;
    let numbers = list.split(',').map(str::trim).filter(|n| !n.is_empty());
    numbers.map(|n| n.parse().map_err(|_| wrong())).collect()
}

/// Samples from array `x`, labels from `y` or the array called `label`; `a+b` are several arrays as attributes ([`Labels::joined`]).
pub(super) fn open(path: &Path, label: Option<&str>) -> Result<Dataset> {
    let mut archive = Archive::open(path)?;
    let others: Vec<String> = archive.names().iter().filter(|n| *n != "x").cloned().collect();
    if others.len() == archive.names().len() {
        return Err(Error::data(format!("{}: there is no array \"x\"", path.display()))
            .hint(format!("it has {}; samples belong into x, labels into y", others.join(", "))));
    }
    let samples = archive.array("x")?;
    let name = match (label, others.as_slice()) {
        (Some(label), _) => Some(label.to_owned()),
        (None, []) => None,
        (None, _) if others.iter().any(|n| n == "y") => Some("y".to_owned()),
        (None, [only]) => Some(only.clone()),
        (None, _) => {
            return Err(Error::data(format!("{}: several label arrays: {}", path.display(), others.join(", ")))
                .hint(format!("choose one: --label {}", others.first().map_or("NAME", String::as_str))));
        }
    };
    let mut read = |name: &str| {
        let array = archive.array(name)?;
        // Before they are read: a hostile file may have billions.
        if array.len() != samples.len() {
            let (x, y) = (samples.len(), array.len());
            return Err(Error::data(format!("{}: {x} samples but {y} labels in {name:?}", path.display())));
        }
        Labels::from_array(&array).map_err(|e| e.in_file(path))
    };
    let labels = match name {
        // A name with a plus in it is that of several arrays, unless there is one of this name.
        Some(name) if name.contains('+') && !others.contains(&name) => {
            let parts: Vec<Labels> = name.split('+').map(&mut read).collect::<Result<_>>()?;
            Some(Labels::joined(&parts).map_err(|e| e.in_file(path))?)
        }
        Some(name) => Some(read(&name)?),
        None => None,
    };
    Ok(Dataset { samples: Box::new(samples), labels })
}
