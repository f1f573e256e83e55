//! numpy's `.npz`: a zip of `.npy` arrays, compressed or not.
//!
//! An array that is not compressed is read in place; a compressed one is unpacked when it is opened.

use super::array::Array;
use super::npy::{Body, Header, Npy};
use super::{Dataset, LabelChoice, Labels, Origin, SampleSource};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::BufReader;
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

    /// Opens an array of numbers. One without axes counts as one record.
    pub fn array(&mut self, name: &str) -> Result<Array> {
        let array = self.find(name)?;
        array.numbers().map_err(|e| self.damaged(name, &e))
    }

    fn find(&mut self, name: &str) -> Result<Npy> {
        let path = self.path.clone();
        let damaged = |e: &dyn std::fmt::Display| Error::data(format!("{}: array {name:?}: {e}", path.display()));
        let of = |e: Error| with_hint(damaged(&e), e.hint_text());
        let mut entry = self
            .zip
            .by_name(&format!("{name}.npy"))
            .map_err(|e| damaged(&e).hint(format!("it has the arrays {}", self.names.join(", "))))?;
        let header = Header::read(&mut entry).map_err(of)?;
        let bytes = entry.size().saturating_sub(header.len);
        let stored = entry.compression() == CompressionMethod::Stored && !entry.encrypted();
        let body = match entry.data_start().filter(|_| stored) {
            Some(start) => Body::At(start.saturating_add(header.len)),
            None => Body::Stream(entry),
        };
        Npy::new(&path, &header, bytes, body).map_err(of)
    }

    /// An error that names the array.
    fn damaged(&self, name: &str, error: &Error) -> Error {
        with_hint(Error::data(format!("{}: array {name:?}: {error}", self.path.display())), error.hint_text())
    }
}

fn with_hint(error: Error, hint: Option<&str>) -> Error {
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Samples from array `x`, labels from `y` or the array that was chosen; `a+b` are several arrays as attributes
/// ([`Labels::joined`]).
pub(super) fn open(path: &Path, choice: &LabelChoice, origin: Origin) -> Result<Dataset> {
    let mut archive = Archive::open(path)?;
    let others: Vec<String> = archive.names().iter().filter(|n| *n != "x").cloned().collect();
    if others.len() == archive.names().len() {
        return Err(Error::data(format!("{}: there is no array \"x\"", path.display()))
            .hint(format!("it has {}; write numpy.savez(path, x=samples, y=labels)", others.join(", "))));
    }
    let samples = archive.array("x")?;
    let name = match (choice, others.as_slice()) {
        (LabelChoice::None, _) | (LabelChoice::Usual, []) => None,
        (LabelChoice::Array(label), _) => Some(label.to_owned()),
        (LabelChoice::Usual, _) if others.iter().any(|n| n == "y") => Some("y".to_owned()),
        (LabelChoice::Usual, [only]) => Some(only.clone()),
        (LabelChoice::Usual, _) => {
            let several = format!("{}: several label arrays: {}", path.display(), others.join(", "));
            let hint = format!("choose one: `label` {}", others.first().map_or("NAME", String::as_str));
            return Err(origin.label_error(Error::data(several).hint(hint)));
        }
    };
    let count = samples.len();
    let mut read = |name: &str| {
        let array = archive.find(name)?;
        // Before they are read: a hostile file may have billions.
        if array.len() != count {
            let text = format!("{}: {count} samples but {} labels in {name:?}", path.display(), array.len());
            return Err(Error::data(text).hint("x and the labels need one row for each sample"));
        }
        array.labels().map_err(|e| archive.damaged(name, &e))
    };
    let mut dataset = Dataset { origin: origin.clone(), ..Dataset::new(Box::new(samples), None) };
    let Some(name) = name else { return Ok(dataset) };
    // A name with a plus in it is that of several arrays, unless there is one of this name.
    let labels = if name.contains('+') && !others.contains(&name) {
        let parts = name.split('+').map(|part| Ok(read(part)?.0)).collect::<Result<Vec<_>>>();
        parts.and_then(|parts| Labels::joined(&parts)).map(|labels| (labels, vec![]))
    } else {
        read(&name)
    };
    let (labels, names) = labels.map_err(|e| origin.label_error(e))?;
    if !names.is_empty() {
        dataset.note(&format!("labels {name:?} are names, taken as classes in their order: {}", numbered(&names)));
    }
    (dataset.labels, dataset.class_names) = (Some(labels), names);
    Ok(dataset)
}

/// `cat = 0, dog = 1, …`: the first few of them.
fn numbered(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = names.iter().take(SHOWN).enumerate().map(|(i, name)| format!("{name} = {i}")).collect();
    let more = names.len().saturating_sub(SHOWN);
    format!("{}{}", shown.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}
