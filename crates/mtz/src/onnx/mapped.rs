//! The bytes of a model file without a copy of it: the system brings in what is looked at, and takes it back when
//! memory is short.
//!
//! Small files are read: a mapping is not worth its pages there, and a file that is read cannot change any more.

use crate::error::{Error, Result};
use bytes::Bytes;
use memmap2::MmapOptions;
use std::fs::File;
use std::path::Path;

/// From this size on, files are mapped.
const LARGE: u64 = 16 << 20;

/// The bytes of a file of so many.
pub(super) fn bytes(path: &Path, size: u64) -> Result<Bytes> {
    let io = |e| Error::io(path, &e);
    if size < LARGE {
        return Ok(std::fs::read(path).map_err(io)?.into());
    }
    let file = File::open(path).map_err(io)?;
    // SAFETY: nobody here writes to the mapping, and it is private. That no other program changes the file while it is
    // decoded cannot be checked; if one does, other bytes are decoded: no length that was read before is trusted when
    // it is read again, and all numbers are copies. If the file is cut short, the system ends this program, as every
    // program that maps it.
    #[allow(unsafe_code)]
    let mapped = unsafe { MmapOptions::new().map_copy_read_only(&file) };
    match mapped {
        Ok(mapped) => Ok(Bytes::from_owner(mapped)),
        // Not every file system can do it.
        Err(_) => Ok(std::fs::read(path).map_err(io)?.into()),
    }
}
