//! Samples and labels, in the formats people have, read as they are needed.
//!
//! [`locate`] finds what a path holds, [`Location::open`] opens one part of it, and [`Feed`] turns samples into the
//! batches a network expects. Samples stay on disk and are read record by record; only what is compressed as a whole is
//! unpacked, into memory if it is small and into a temporary file if not.
//!
//! Files may be hostile: like in [`crate::onnx`], nothing here can panic on an index or a conversion.
#![deny(clippy::indexing_slicing, clippy::as_conversions)]

mod array;
mod cifar;
mod classes;
mod feed;
mod idx;
mod images;
mod labels;
mod locate;
mod npz;
mod records;

pub use array::{Array, Element};
pub use classes::Classes;
pub use feed::{Feed, Normalisation};
pub use images::ImageFit;
pub use labels::Labels;
pub use locate::{Location, Part, Parts, locate};
pub use npz::Archive;

use crate::error::Result;

/// Where samples come from. Reading any of them at any time must be possible from several threads.
pub trait Samples: Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The shape of one: channels × height × width, or features.
    fn shape(&self) -> &[usize];
    /// Whether the numbers are bytes, 0 to 255, rather than floats.
    fn is_bytes(&self) -> bool;
    /// Reads one, unscaled. `out` has room for exactly one.
    fn read(&self, index: usize, out: &mut [f32]) -> Result<()>;
}

/// Samples with their labels.
pub struct Dataset {
    /// The samples.
    pub samples: Box<dyn Samples>,
    /// The labels, where the data has any.
    pub labels: Option<Labels>,
}

impl Dataset {
    /// Images and labels in gzipped IDX files, from memory.
    pub fn from_idx(images: &[u8], labels: &[u8]) -> Result<Self> {
        idx::from_bytes(images, labels)
    }
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset of {} × {:?}, labels: {:?}", self.samples.len(), self.samples.shape(), self.labels)
    }
}

/// Samples to learn from, and every tenth held out to measure on.
pub fn without_a_tenth(samples: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let (held_out, learn): (Vec<_>, Vec<_>) = samples.iter().enumerate().partition(|(i, _)| i % 10 == 9);
    let plain = |chosen: Vec<(usize, &usize)>| chosen.into_iter().map(|(_, sample)| *sample).collect();
    (plain(learn), plain(held_out))
}

/// How to open data.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The label array of an `.npz` that has several.
    pub label: Option<String>,
    /// Take the samples of these classes only.
    pub classes: Option<Classes>,
    /// The channels, height and width a folder of images should be brought to: what the model expects.
    pub image_shape: Option<[usize; 3]>,
    /// What to do with images of another size.
    pub image_fit: ImageFit,
}
