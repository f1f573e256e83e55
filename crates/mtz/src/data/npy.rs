//! numpy's `.npy`: one array of numbers or texts, by itself or inside an `.npz`.
//!
//! In Fortran order the numbers of a sample are spread over the whole file; such an array is brought into C order
//! once, when it is opened.

use super::array::{Array, NumberType};
use super::labels::Labels;
use super::records::Records;
use super::{Dataset, Origin};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// What the entries of an array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Number(NumberType),
    /// Bytes, filled up with zeros.
    Ascii(usize),
    /// Code points of four bytes, filled up with zeros.
    Unicode(usize),
}

impl Entry {
    fn size(self) -> usize {
        match self {
            Self::Number(element) => element.size(),
            Self::Ascii(length) => length,
            Self::Unicode(length) => length.saturating_mul(4),
        }
    }
}

/// An array that is open, whatever it holds.
pub(super) struct Npy {
    records: Records,
    /// The shape of one record.
    shape: Vec<usize>,
    entry: Entry,
}

/// Where the bytes behind a header are.
pub(super) enum Body<R> {
    /// At this place of the file.
    At(u64),
    /// In what is left of the stream.
    Stream(R),
}

impl Npy {
    /// The array behind a header, of which there are `bytes` bytes. One without axes counts as one record.
    pub fn new<R: Read>(path: &Path, header: &Header, bytes: u64, body: Body<R>) -> Result<Self> {
        let (count, shape) = match header.shape.split_first() {
            Some((&count, shape)) => (count, shape.to_vec()),
            None => (1, vec![]),
        };
        if header.shape.contains(&0) {
            return Err(Error::data(format!("it is empty: its shape is {:?}", header.shape)));
        }
        let numbers = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let size = numbers.and_then(|n| n.checked_mul(header.entry.size()));
        let total = size.and_then(|size| u64::try_from(size.checked_mul(count)?).ok());
        let (Some(numbers), Some(size)) = (numbers, size.filter(|_| total == Some(bytes))) else {
            let shape = &header.shape;
            return Err(Error::data(format!("{bytes} bytes do not hold an array of shape {shape:?}"))
                .hint("the file may be cut off"));
        };
        // In Fortran order the file holds the first number of all samples, then the next number of all samples, and
        // so on.
        let entry = header.entry.size();
        let (record, records) = if header.fortran { (entry.saturating_mul(count), numbers) } else { (size, count) };
        let records = match body {
            Body::At(start) => Records::in_file(path, start, record, records)?,
            Body::Stream(stream) => Records::from_stream(path, stream, record, records)?,
        };
        let records = if header.fortran { records.turned(&shape, entry, count)? } else { records };
        Ok(Self { records, shape, entry: header.entry })
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.count()
    }

    /// As numbers.
    pub fn numbers(self) -> Result<Array> {
        match self.entry {
            Entry::Number(element) => Ok(Array::new(self.records, self.shape, element)),
            _ => Err(Error::data("it holds texts, not numbers")),
        }
    }

    /// As labels, with the names of the classes if they are texts.
    pub fn labels(self) -> Result<(Labels, Vec<String>)> {
        /// More is a text, not a name.
        const LONGEST: usize = 1024;
        let unicode = match self.entry {
            Entry::Number(_) => return Ok((Labels::from_array(&self.numbers()?)?, vec![])),
            Entry::Ascii(length) | Entry::Unicode(length) if length > LONGEST => {
                return Err(Error::data(format!("texts of {length} characters are no names of classes")));
            }
            Entry::Ascii(_) => false,
            Entry::Unicode(_) => true,
        };
        if !matches!(self.shape.as_slice(), [] | [1]) {
            return Err(Error::data(format!("several texts for each sample: one has the shape {:?}", self.shape))
                .hint("labels are N class indices or names, or N×K attributes that are 0 or 1"));
        }
        let mut texts = super::labels::Names::default();
        self.records.for_each(|record| {
            texts.add(if unicode {
                let points = record.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b));
                points.map(|p| char::from_u32(p).unwrap_or(char::REPLACEMENT_CHARACTER)).collect::<String>()
            } else {
                String::from_utf8_lossy(record).into_owned()
            })
        })?;
        Ok(texts.labels())
    }
}

/// A bare array: samples without labels.
pub(super) fn open(path: &Path, origin: Origin) -> Result<Dataset> {
    let io = |e| Error::io(path, &e);
    let file = File::open(path).map_err(io)?;
    let len = file.metadata().map_err(io)?.len();
    let header = Header::read(&mut BufReader::new(file)).map_err(|e| e.in_file(path))?;
    let body = Body::<&[u8]>::At(header.len);
    let array = Npy::new(path, &header, len.saturating_sub(header.len), body).and_then(Npy::numbers);
    Ok(Dataset { origin, ..Dataset::new(Box::new(array.map_err(|e| e.in_file(path))?), None) })
}

/// The header of a `.npy`: what the array is like, and where it begins.
pub(super) struct Header {
    entry: Entry,
    fortran: bool,
    shape: Vec<usize>,
    /// Bytes of the header itself.
    pub len: u64,
}

impl Header {
    pub fn read(stream: &mut impl Read) -> Result<Self> {
        let cut = |e: std::io::Error| Error::data(format!("unreadable header ({e})"));
        let mut start = [0; 8];
        stream.read_exact(&mut start).map_err(cut)?;
        let [magic @ .., major, _minor] = start;
        if magic != *b"\x93NUMPY" {
            return Err(Error::data("not a numpy array").hint("write it with numpy.save(path, x)"));
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
        let fortran = field(&text, "fortran_order")?.starts_with("True");
        Ok(Self { entry: entry(&text)?, fortran, shape: shape(&text)?, len: fixed + u64::from(text_len) })
    }
}

/// What follows `'key':` in the header, a Python dictionary.
fn field<'t>(text: &'t str, key: &str) -> Result<&'t str> {
    let missing = || Error::data(format!("the header has no {key}"));
    let (_, rest) = text.split_once(&format!("'{key}'")).ok_or_else(missing)?;
    Ok(rest.trim_start().strip_prefix(':').ok_or_else(missing)?.trim_start())
}

fn entry(text: &str) -> Result<Entry> {
    let descr = field(text, "descr")?;
    let unsupported = || {
        let code = descr.split(',').next().unwrap_or_default();
        let hint = match code.trim_matches('\'').trim_start_matches(['<', '>', '|', '=']) {
            "O" => "for texts, save numpy.array(y, dtype=str); for numbers, y.astype(int) or x.astype('float32')",
            _ => "convert it: x.astype('float32'), y.astype('int64')",
        };
        Error::data(format!("numbers of type {code}")).hint(hint)
    };
    let code = descr.strip_prefix('\'').and_then(|d| d.split('\'').next()).ok_or_else(unsupported)?;
    let plain = code.trim_start_matches(['<', '>', '|', '=']);
    let big = code.starts_with('>') && !plain.starts_with('S') && !plain.ends_with('1');
    let length = |prefix: char| plain.strip_prefix(prefix).and_then(|n| n.parse().ok());
    let found = NumberType::from_code(plain).map(Entry::Number);
    let found = found.or_else(|| length('S').map(Entry::Ascii)).or_else(|| length('U').map(Entry::Unicode));
    found.filter(|_| !big).ok_or_else(unsupported)
}

fn shape(text: &str) -> Result<Vec<usize>> {
    let wrong = || Error::data("the header has no readable shape");
    let list = field(text, "shape")?.strip_prefix('(').and_then(|s| s.split(')').next()).ok_or_else(wrong)?;
    let numbers = list.split(',').map(str::trim).filter(|n| !n.is_empty());
    numbers.map(|n| n.parse().map_err(|_| wrong())).collect()
}
