//! Samples and labels, in the formats people have, read as they are needed.
//!
//! [`locate`] finds what a path holds, [`Location::open`] opens one part of it, and [`Feed`] turns samples into the
//! batches a network expects. Samples stay on disk and are read record by record; only what is compressed as a whole is
//! unpacked, into memory if it is small and into a temporary file if not.
//!
//! Files may be hostile: like in [`crate::onnx`], nothing here can panic on an index or a conversion.
#![deny(clippy::indexing_slicing, clippy::as_conversions)]

mod answers;
mod array;
mod augment;
mod channels;
mod cifar;
mod classes;
mod feed;
mod idx;
mod images;
mod labels;
mod locate;
mod npy;
mod npz;
mod origin;
mod records;

pub use answers::OneHot;
pub use array::{Array, NumberType};
pub use augment::Augmentation;
pub use classes::Classes;
pub use feed::{Feed, Normalisation};
pub use images::{ImageCache, ImageFit};
pub use labels::Labels;
pub use locate::{Location, Part, Parts, locate};
pub use npz::Archive;
pub use origin::Origin;

use crate::error::Result;
use crate::random;
use channels::ChannelsFirst;

/// Where samples come from. Reading any of them at any time must be possible from several threads.
pub trait SampleSource: Send + Sync {
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
    /// Bytes that may be kept so that a sample is not decoded again.
    fn cache_bytes(&self) -> u64 {
        0
    }
}

impl<S: SampleSource + ?Sized> SampleSource for std::sync::Arc<S> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn shape(&self) -> &[usize] {
        (**self).shape()
    }

    fn is_bytes(&self) -> bool {
        (**self).is_bytes()
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        (**self).read(index, out)
    }

    fn cache_bytes(&self) -> u64 {
        (**self).cache_bytes()
    }
}

/// Samples with their labels.
pub struct Dataset {
    /// The samples.
    pub samples: Box<dyn SampleSource>,
    /// The labels, where the data has any.
    pub labels: Option<Labels>,
    /// The names of the classes, where the data names them.
    pub class_names: Vec<String>,
    /// What was found out or decided about the data and its owner should know; each names task and file.
    pub notes: Vec<String>,
    /// Whose samples they are and where they come from.
    pub origin: Origin,
    /// The labels of the other part, as they stand there: what labels mean is decided over both.
    pub other_part: Option<Labels>,
}

impl Dataset {
    /// Samples and labels from anywhere.
    pub fn new(samples: Box<dyn SampleSource>, labels: Option<Labels>) -> Self {
        Self {
            samples,
            labels,
            class_names: Vec::new(),
            notes: Vec::new(),
            origin: Origin::default(),
            other_part: None,
        }
    }

    /// Turns images of height × width × channels, where nothing says that they are anything else, and says so.
    #[must_use]
    pub fn with_channels_first(self) -> Self {
        if !ChannelsFirst::is_certain(self.samples.shape()) {
            return self;
        }
        let mut turned = self.turned();
        turned.note("samples are height × width × channels: they are read as channels × height × width");
        turned
    }

    fn turned(self) -> Self {
        Self { samples: ChannelsFirst::of(self.samples), ..self }
    }

    /// Adds a note.
    pub(super) fn note(&mut self, text: &str) {
        self.notes.push(self.origin.named(text));
    }

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

/// Samples to learn from, and a fixed tenth held out to measure on: one of every ten in a row, which of them is
/// mixed. With every tenth, labels that repeat
/// would leave a single class.
pub fn holdout_split(samples: &[usize]) -> (Vec<usize>, Vec<usize>) {
    const SEED: u64 = 10;
    let (mut learn, mut held_out) = (Vec::with_capacity(samples.len()), Vec::with_capacity(samples.len() / 10));
    for (block, ten) in (0..).zip(samples.chunks(10)) {
        // An incomplete block is too few to hold one out.
        let chosen = Some(random::below(SEED, block, 10)).filter(|_| ten.len() == 10);
        for (i, &sample) in ten.iter().enumerate() {
            if chosen == Some(i) { held_out.push(sample) } else { learn.push(sample) }
        }
    }
    (learn, held_out)
}

/// Which labels to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelChoice {
    /// Those the format has; of an `.npz` the array `y` or the only other one. There may be none.
    #[default]
    Usual,
    /// An array of an `.npz`; `a+b` are several arrays as attributes.
    Array(String),
    /// None, even if there are some.
    None,
}

impl From<&str> for LabelChoice {
    fn from(text: &str) -> Self {
        if text == "none" { Self::None } else { Self::Array(text.to_owned()) }
    }
}

/// How to open data.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The task the samples are for: errors and notes name it.
    pub task: Option<String>,
    /// Which labels to read.
    pub label: LabelChoice,
    /// The other part of the same data. What labels mean is decided over both: a part that lacks a class has the same
    /// numbers.
    pub other_part: Option<Location>,
    /// Take the samples of these classes only.
    pub classes: Option<Classes>,
    /// The channels, height and width a folder of images should be brought to: what the model expects.
    pub image_shape: Option<[usize; 3]>,
    /// What to do with images of another size.
    pub image_fit: ImageFit,
    /// Decode all images of a folder at once and leave out those that cannot be read.
    pub skip_bad: bool,
    /// Keeps pixels of images; by default nothing.
    pub cache: ImageCache,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_held_out_tenth_has_all_classes() {
        let samples: Vec<usize> = (0..1234).collect();
        let (learn, held_out) = holdout_split(&samples);
        assert_eq!((learn.len(), held_out.len()), (1111, 123));
        assert_eq!(holdout_split(&samples), (learn.clone(), held_out.clone()));
        // One of each ten, in order, and all classes where they repeat with period ten.
        assert!(held_out.iter().enumerate().all(|(i, s)| s / 10 == i));
        for class in 0..10 {
            let count = held_out.iter().filter(|s| *s % 10 == class).count();
            assert!((4..=24).contains(&count), "{class}: {count}");
        }
        let mut all = [learn, held_out].concat();
        all.sort_unstable();
        assert_eq!(all, samples);
        assert!(holdout_split(&all.into_iter().take(9).collect::<Vec<_>>()).1.is_empty());
    }
}
