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
        let start = total(self.size, index).and_then(|n| n.checked_add(self.offset)).ok_or_else(missing)?;
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

fn total(size: usize, count: usize) -> Option<u64> {
    u64::try_from(size).ok()?.checked_mul(u64::try_from(count).ok()?)
}
