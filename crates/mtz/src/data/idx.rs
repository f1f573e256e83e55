//! The IDX format of MNIST: a magic number with type and rank, big-endian sizes, then the bytes. Gzipped or not.

use super::array::{Array, NumberType};
use super::records::Records;
use super::{Dataset, LabelChoice, Labels, Origin, SampleSource};
use crate::error::{Error, Result};
use flate2::read::GzDecoder;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Images as N×1×height×width, and their labels.
pub(super) fn open(images: &Path, labels: &Path, choice: &LabelChoice, origin: Origin) -> Result<Dataset> {
    let samples = array(images, 3)?;
    let dataset = match choice {
        LabelChoice::None => Dataset::new(Box::new(samples), None),
        _ => {
            let labels = array(labels, 1).and_then(|labels| dataset(images, samples, labels));
            labels.map_err(|e| origin.label_error(e))?
        }
    };
    Ok(Dataset { origin, ..dataset })
}

/// The same from gzipped bytes in memory.
pub(super) fn from_bytes(images: &[u8], labels: &[u8]) -> Result<Dataset> {
    let path = Path::new("MNIST");
    let array = |bytes, rank| -> Result<Array> {
        let mut stream: Box<dyn Read> = Box::new(GzDecoder::new(bytes));
        let (count, shape) = header(&mut stream, path, rank)?;
        let records = Records::from_stream(path, stream, shape.iter().product(), count)?;
        Ok(Array::new(records, shape, NumberType::U8))
    };
    dataset(path, array(images, 3)?, array(labels, 1)?)
}

fn dataset(path: &Path, samples: Array, labels: Array) -> Result<Dataset> {
    let labels = Labels::from_array(&labels).map_err(|e| e.in_file(path))?;
    if labels.len() != samples.len() {
        return Err(Error::data(format!("{}: {} images but {} labels", path.display(), samples.len(), labels.len())));
    }
    Ok(Dataset::new(Box::new(samples), Some(labels)))
}

fn array(path: &Path, rank: u8) -> Result<Array> {
    let io = |e| Error::io(path, &e);
    let file = BufReader::new(File::open(path).map_err(io)?);
    let zipped = path.extension().is_some_and(|e| e == "gz");
    let mut stream: Box<dyn Read> = if zipped { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let (count, shape) = header(&mut stream, path, rank)?;
    let size = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
    let records = if zipped {
        Records::from_stream(path, stream, size, count)?
    } else {
        Records::in_file(path, 4 + 4 * u64::from(rank), size, count)?
    };
    Ok(Array::new(records, shape, NumberType::U8))
}

/// The number of samples, and the shape of one with a channel in front.
fn header(stream: &mut Box<dyn Read + '_>, path: &Path, rank: u8) -> Result<(usize, Vec<usize>)> {
    let io = |e| Error::io(path, &e);
    let mut magic = [0; 4];
    stream.read_exact(&mut magic).map_err(io)?;
    if magic != [0, 0, 8, rank] {
        return Err(Error::data(format!("{}: not an IDX file of bytes with {rank} dimensions", path.display())));
    }
    let mut sizes = Vec::new();
    for _ in 0..rank {
        let mut size = [0; 4];
        stream.read_exact(&mut size).map_err(io)?;
        sizes.push(usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX));
    }
    let (&count, image) = sizes.split_first().ok_or_else(|| Error::data("an IDX file without dimensions"))?;
    let shape = if rank == 1 { vec![] } else { [1].into_iter().chain(image.iter().copied()).collect() };
    Ok((count, shape))
}
