//! What a path holds: which format, and which parts for learning and for testing.

use super::{Dataset, ImageCache, LabelChoice, OpenOptions, Origin, cifar, idx, images, npy, npz};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// One set of samples, found but not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A numpy archive.
    Npz(PathBuf),
    /// A bare numpy array: samples without labels.
    Npy(PathBuf),
    /// MNIST's format: images and labels.
    Idx(PathBuf, PathBuf),
    /// CIFAR's binary files.
    Cifar(Vec<PathBuf>),
    /// One sub-folder of images per class.
    ClassFolders(PathBuf),
    /// Images directly in a folder, without labels.
    Images(PathBuf),
}

/// What a path holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Samples that are not divided.
    Whole(Location),
    /// A part to learn from and a part to test on.
    Split {
        /// To learn from.
        train: Location,
        /// To test on.
        test: Location,
    },
}

/// A part of what a path holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// To learn from.
    Train,
    /// To report errors on.
    Test,
}

impl Part {
    /// The part that this is not.
    pub fn other(self) -> Self {
        if self == Self::Train { Self::Test } else { Self::Train }
    }
}

impl Parts {
    /// Whether there are samples of their own to report errors on.
    pub fn is_split(&self) -> bool {
        matches!(self, Self::Split { .. })
    }

    /// The location of a part; samples that are not divided serve as both.
    pub fn part(&self, part: Part) -> &Location {
        match (self, part) {
            (Self::Whole(all), _) => all,
            (Self::Split { train, .. }, Part::Train) => train,
            (Self::Split { test, .. }, Part::Test) => test,
        }
    }
}

impl Location {
    /// Opens the samples and reads the labels. Errors and notes name the task, if the options do, and the file.
    pub fn open(&self, options: &OpenOptions) -> Result<Dataset> {
        let origin = Origin { task: options.task.clone(), path: Some(self.path().to_owned()) };
        self.open_as(options, &origin).map_err(|e| origin.error(e))
    }

    fn open_as(&self, options: &OpenOptions, origin: &Origin) -> Result<Dataset> {
        if matches!(options.label, LabelChoice::Array(_)) && !matches!(self, Self::Npz(_)) {
            let labels = if matches!(self, Self::Npy(_) | Self::Images(_)) { "no labels" } else { "one label only" };
            return Err(Error::usage(format!("`label` names an array of an .npz; this data has {labels}")));
        }
        let mut dataset = self.open_all(options, origin)?;
        if let Some(other) = options.other_part.as_ref().filter(|_| dataset.labels_need_the_other_part()) {
            let whole = OpenOptions { other_part: None, classes: None, skip_bad: false, ..options.clone() };
            // What is wrong with the other part is said where that is opened for itself.
            if let Ok(other) = other.open_all(&OpenOptions { cache: ImageCache::default(), ..whole }, origin) {
                dataset.number_classes_with(other);
            }
        }
        match &options.classes {
            Some(classes) => classes.of(dataset),
            None => Ok(dataset),
        }
    }

    /// All samples of this part alone.
    fn open_all(&self, options: &OpenOptions, origin: &Origin) -> Result<Dataset> {
        let own = origin.clone();
        let dataset = match self {
            Self::Npz(path) => npz::open(path, &options.label, own)?,
            Self::Npy(path) => npy::open(path, own)?,
            Self::Idx(images, labels) => idx::open(images, labels, &options.label, own)?,
            Self::Cifar(files) => cifar::open(files, &options.label, own)?,
            Self::ClassFolders(folder) => images::open_classes(folder, options, own)?,
            Self::Images(folder) => images::open_flat(folder, options, own)?,
        };
        if dataset.samples.is_empty() {
            return Err(Error::data("no samples"));
        }
        if let Some(labels) = &dataset.labels
            && labels.len() != dataset.samples.len()
        {
            let (samples, labels) = (dataset.samples.len(), labels.len());
            return Err(origin.label_error(Error::data(format!("{samples} samples but {labels} labels"))));
        }
        Ok(dataset)
    }

    /// The file, or the folder of several.
    pub fn path(&self) -> &Path {
        match self {
            Self::Npz(path) | Self::Npy(path) | Self::ClassFolders(path) | Self::Images(path) => path,
            Self::Idx(images, _) => images.parent().unwrap_or(images),
            Self::Cifar(files) => match files.as_slice() {
                [] => Path::new(""),
                [only] => only,
                [first, ..] => first.parent().unwrap_or(first),
            },
        }
    }
}

/// Finds out what a path holds.
pub fn locate(path: &Path) -> Result<Parts> {
    let kind = std::fs::metadata(path).map_err(|e| Error::io(path, &e))?;
    if kind.is_dir() {
        return folder(path);
    }
    match path.extension().and_then(|e| e.to_str()) {
        Some("npz") => Ok(Parts::Whole(Location::Npz(path.to_owned()))),
        Some("npy") => Ok(Parts::Whole(Location::Npy(path.to_owned()))),
        Some("bin") => Ok(Parts::Whole(Location::Cifar(vec![path.to_owned()]))),
        _ => Err(unknown(path)),
    }
}

fn folder(path: &Path) -> Result<Parts> {
    let idx = |prefix: &str| {
        let find = |kind: &str| {
            ["", ".gz"]
                .into_iter()
                .flat_map(|end| ["-", "."].map(|dot| path.join(format!("{prefix}-{kind}{dot}{}{end}", ubyte(kind)))))
                .find(|p| p.is_file())
        };
        find("images").zip(find("labels")).map(|(images, labels)| Location::Idx(images, labels))
    };
    let bins = |names: &[&str]| {
        let files: Vec<PathBuf> = names.iter().map(|n| path.join(format!("{n}.bin"))).filter(|p| p.is_file()).collect();
        (!files.is_empty()).then_some(Location::Cifar(files))
    };
    let batches = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"];
    let (train, test) = if let (Some(train), test) = (idx("train"), idx("t10k")) {
        (Some(train), test)
    } else if let Some(test) = idx("t10k") {
        (None, Some(test))
    } else if let Some(train) = bins(&batches) {
        (Some(train), bins(&["test_batch"]))
    } else if let Some(test) = bins(&["test_batch"]) {
        (None, Some(test))
    } else if let Some(train) = bins(&["train"]) {
        (Some(train), bins(&["test"]))
    } else if path.join("train").is_dir() && path.join("test").is_dir() {
        (Some(only(&path.join("train"))?), Some(only(&path.join("test"))?))
    } else {
        (images(path)?, None)
    };
    match (train, test) {
        (Some(train), Some(test)) => Ok(Parts::Split { train, test }),
        (Some(all), None) | (None, Some(all)) => Ok(Parts::Whole(all)),
        (None, None) => Err(unknown(path)),
    }
}

/// A folder with images: in its sub-folders, which are classes then, or directly inside.
fn images(path: &Path) -> Result<Option<Location>> {
    let folders = images::sub_folders(path)?;
    let classes = Some(Location::ClassFolders(path.to_owned()));
    for folder in &folders {
        if !images::images_in(folder)?.is_empty() {
            return Ok(classes);
        }
    }
    if !images::images_in(path)?.is_empty() {
        return Ok(Some(Location::Images(path.to_owned())));
    }
    Ok(classes.filter(|_| !folders.is_empty()))
}

/// MNIST's file names end in the rank and type: images-idx3-ubyte, labels-idx1-ubyte.
fn ubyte(kind: &str) -> &'static str {
    if kind == "images" { "idx3-ubyte" } else { "idx1-ubyte" }
}

/// The undivided content of a `train` or `test` folder.
fn only(path: &Path) -> Result<Location> {
    match locate(path)? {
        Parts::Whole(location) => Ok(location),
        Parts::Split { .. } => Err(Error::data(format!("{}: has a train and a test part of its own", path.display()))),
    }
}

fn unknown(path: &Path) -> Error {
    Error::data(format!("{}: no samples found", path.display())).hint(
        "data is an .npz or .npy file, a CIFAR .bin file, or a folder: of images, flat or one sub-folder per class, \
         of MNIST's IDX files, or of CIFAR's .bin files; a folder with train/ and test/ gives both parts",
    )
}
