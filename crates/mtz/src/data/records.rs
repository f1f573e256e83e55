//! Equally long records of bytes with random access, in memory or in a file.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Unpacked data up to this size stays in memory; what is larger goes to a temporary file.
const IN_MEMORY: u64 = 1 << 30;

/// Records of `size` bytes, one behind the other.
#[derive(Debug)]
pub(super) struct Records {
    source: Source,
    path: PathBuf,
    offset: u64,
    size: usize,
    count: usize,
}

#[derive(Debug)]
enum Source {
    Memory(Vec<u8>),
    File(Mutex<File>),
}

impl Records {
    /// Records inside a file, from `offset` on. The file must be long enough.
    pub fn in_file(path: &Path, offset: u64, size: usize, count: usize) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, &e))?;
        let len = file.metadata().map_err(|e| Error::io(path, &e))?.len();
        let end = total(size, count).and_then(|n| n.checked_add(offset));
        if size == 0 || end.is_none_or(|end| end > len) {
            return Err(Error::data(format!(
                "{}: {count} records of {size} bytes do not fit into {len} bytes",
                path.display()
            ))
            .hint("the file may be cut off"));
        }
        Ok(Self { source: Source::File(Mutex::new(file)), path: path.to_owned(), offset, size, count })
    }

    /// Records from a stream, which must hold exactly so many.
    pub fn from_stream(path: &Path, mut stream: impl Read, size: usize, count: usize) -> Result<Self> {
        let damaged = |what: &str| {
            Error::data(format!("{}: {what} {count} records of {size} bytes", path.display()))
                .hint("the file may be cut off or damaged")
        };
        let total = total(size, count).filter(|_| size > 0).ok_or_else(|| damaged("impossible:"))?;
        let io = |e| Error::io(path, &e);
        // One byte more than allowed shows that there is too much. Memory grows with what is really there.
        let mut limited = (&mut stream).take(total.saturating_add(1));
        let (source, got) = if total <= IN_MEMORY {
            let mut bytes = Vec::new();
            limited.read_to_end(&mut bytes).map_err(io)?;
            let got = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            (Source::Memory(bytes), got)
        } else {
            let mut file = tempfile::tempfile().map_err(io)?;
            let got = std::io::copy(&mut limited, &mut file).map_err(io)?;
            file.flush().map_err(io)?;
            (Source::File(Mutex::new(file)), got)
        };
        if got != total {
            return Err(damaged(if got < total { "fewer than" } else { "more than" }));
        }
        Ok(Self { source, path: path.to_owned(), offset: 0, size, count })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Calls `f` with every record in order; many small ones are read at a time.
    pub fn for_each(&self, mut f: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let block = (1usize << 20).checked_div(self.size).unwrap_or(1).max(1);
        for start in (0..self.count).step_by(block) {
            let mut bytes = vec![0; self.size.saturating_mul(block.min(self.count - start))];
            self.read_several(start, &mut bytes)?;
            bytes.chunks(self.size.max(1)).try_for_each(&mut f)?;
        }
        Ok(())
    }

    /// The array of `count` samples of this shape whose numbers these records hold in Fortran order: each record is
    /// one number of all samples, and the
    /// first axis of the shape runs fastest. Brought into C order sample by sample, into memory or a temporary file.
    pub fn turned(&self, shape: &[usize], entry: usize, count: usize) -> Result<Self> {
        let size = shape.iter().try_fold(entry, |n, &d| n.checked_mul(d)).filter(|&size| size <= BLOCK);
        let size = size.ok_or_else(|| {
            Error::data(format!("{}: samples in Fortran order are too large to be turned", self.path.display()))
                .hint("save numpy.ascontiguousarray(x) instead")
        })?;
        let turning = Turning { columns: self, shape, entry, size, count, next: 0, block: Vec::new(), read: 0 };
        Self::from_stream(&self.path, turning, size, count)
    }

    /// Reads record `index` into `out`, which is as long as a record.
    pub fn read(&self, index: usize, out: &mut [u8]) -> Result<()> {
        self.read_several(index, out)
    }

    /// Reads the records from `index` on into `out`, which is as long as some records.
    pub fn read_several(&self, index: usize, out: &mut [u8]) -> Result<()> {
        let missing = || Error::data(format!("{}: there is no sample {index}", self.path.display()));
        let records = out.len().checked_div(self.size).filter(|n| n.checked_mul(self.size) == Some(out.len()));
        if records.and_then(|n| n.checked_add(index)).is_none_or(|end| end > self.count) {
            return Err(missing());
        }
        self.read_bytes(total(self.size, index).ok_or_else(missing)?, out)
    }

    /// Reads the bytes from `start` on, counted from the first record.
    fn read_bytes(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let missing = || Error::data(format!("{}: there is no byte {start}", self.path.display()));
        let start = start.checked_add(self.offset).ok_or_else(missing)?;
        match &self.source {
            Source::Memory(bytes) => {
                let from = usize::try_from(start).ok().and_then(|s| bytes.get(s..)?.get(..out.len()));
                out.copy_from_slice(from.ok_or_else(missing)?);
            }
            Source::File(file) => {
                let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let io = |e| Error::io(&self.path, &e);
                file.seek(SeekFrom::Start(start)).map_err(io)?;
                file.read_exact(out).map_err(io)?;
            }
        }
        Ok(())
    }
}

/// Samples are brought into C order in blocks of this size.
const BLOCK: usize = 64 << 20;

/// The samples of an array in Fortran order, one behind the other.
struct Turning<'a> {
    columns: &'a Records,
    /// The shape of one sample.
    shape: &'a [usize],
    /// Bytes of one number.
    entry: usize,
    /// Bytes of one sample.
    size: usize,
    /// How many samples there are.
    count: usize,
    /// The first sample that is not in a block yet.
    next: usize,
    block: Vec<u8>,
    /// How much of the block has been read.
    read: usize,
}

impl Turning<'_> {
    /// Gathers the next samples: of each number, those of all samples of the block stand together.
    fn fill(&mut self) -> Result<()> {
        let samples = BLOCK.checked_div(self.size).unwrap_or(1).max(1).min(self.count - self.next);
        (self.block, self.read) = (vec![0; self.size.saturating_mul(samples)], 0);
        let mut column = vec![0; self.entry.saturating_mul(samples)];
        // The position of a number in C order, while its coordinates count up with the first axis in front.
        let mut strides = vec![self.entry; self.shape.len()];
        for axis in (1..self.shape.len()).rev() {
            let stride = strides.get(axis).zip(self.shape.get(axis)).map_or(0, |(s, d)| s.saturating_mul(*d));
            if let Some(outer) = strides.get_mut(axis - 1) {
                *outer = stride;
            }
        }
        let mut coordinates = vec![0usize; self.shape.len()];
        for number in 0..self.columns.count() {
            let start = total(self.columns.size(), number).zip(total(self.entry, self.next));
            let start = start.and_then(|(a, b)| a.checked_add(b)).unwrap_or(u64::MAX);
            self.columns.read_bytes(start, &mut column)?;
            let place: usize = coordinates.iter().zip(&strides).map(|(c, s)| c.saturating_mul(*s)).sum();
            for (sample, value) in self.block.chunks_mut(self.size).zip(column.chunks(self.entry)) {
                if let Some(out) = sample.get_mut(place..place.saturating_add(self.entry)) {
                    out.copy_from_slice(value);
                }
            }
            for (coordinate, &length) in coordinates.iter_mut().zip(self.shape) {
                *coordinate += 1;
                if *coordinate < length {
                    break;
                }
                *coordinate = 0;
            }
        }
        self.next += samples;
        Ok(())
    }
}

impl Read for Turning<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.read == self.block.len() && self.next < self.count {
            self.fill().map_err(std::io::Error::other)?;
        }
        let mut rest = self.block.get(self.read..).unwrap_or_default();
        let count = rest.read(out)?;
        self.read += count;
        Ok(count)
    }
}

fn total(size: usize, count: usize) -> Option<u64> {
    u64::try_from(size).ok()?.checked_mul(u64::try_from(count).ok()?)
}
