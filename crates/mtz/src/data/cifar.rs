//! CIFAR's binary files: records of one label (CIFAR-10) or a coarse and a fine one (CIFAR-100), then 3×32×32 bytes.

use super::array::{Array, Joined};
use super::records::Records;
use super::{Dataset, LabelChoice, Labels, Origin};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

const IMAGE: usize = 3 * 32 * 32;

/// Images and (fine) labels of several files, in order.
pub(super) fn open(files: &[PathBuf], choice: &LabelChoice, origin: Origin) -> Result<Dataset> {
    let (mut arrays, mut classes) = (Vec::new(), Vec::new());
    for path in files {
        let label_bytes = label_bytes(path)?;
        let open = || {
            let size = label_bytes + IMAGE;
            let len = std::fs::metadata(path).map_err(|e| Error::io(path, &e))?.len();
            let count = usize::try_from(len).ok().and_then(|len| len.checked_div(size)).unwrap_or(0);
            Records::in_file(path, 0, size, count)
        };
        let records = open()?;
        if *choice != LabelChoice::None {
            records.for_each(|record| {
                classes.extend(record.get(label_bytes - 1).map(|&c| u32::from(c)));
                Ok(())
            })?;
        }
        arrays.push(Array::node_after(records, label_bytes, vec![3, 32, 32]));
    }
    let labels = (*choice != LabelChoice::None).then_some(Labels::Classes(classes));
    Ok(Dataset { origin, ..Dataset::new(Box::new(Joined(arrays)), labels) })
}

/// One or two labels per record: whichever divides the file into whole records.
fn label_bytes(path: &Path) -> Result<usize> {
    let len = std::fs::metadata(path).map_err(|e| Error::io(path, &e))?.len();
    let whole = |labels: usize| u64::try_from(labels + IMAGE).is_ok_and(|size| len > 0 && len % size == 0);
    [1, 2].into_iter().find(|&labels| whole(labels)).ok_or_else(|| {
        Error::data(format!("{}: {len} bytes are not whole CIFAR records", path.display()))
            .hint("CIFAR-10 records have 3073 bytes, CIFAR-100 records 3074; the file may be cut off")
    })
}
