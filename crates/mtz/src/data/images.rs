//! Folders of images, flat or with one sub-folder per class. Images are decoded when they are needed; pixels are kept
//! as far as a budget allows.

use super::classes::Chosen;
use super::{Dataset, LabelChoice, Labels, OpenOptions, Origin, SampleSource};
use crate::error::{Error, Result};
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// What to do with an image that has not the size the model expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageFit {
    /// Refuse it.
    #[default]
    Exact,
    /// Scale height and width to fit, whatever the proportions.
    Stretch,
    /// Scale until it covers the size, then cut out the middle.
    Crop,
}

/// File endings that are read as images; everything else in a folder is passed over.
const ENDINGS: [&str; 8] = ["bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "webp"];

/// Names in a note; what is more is only counted.
const SHOWN: usize = 5;

/// Keeps pixels of images that have been decoded once. Folders that are opened with clones of one cache, with the
/// same size and fit, share them.
#[derive(Clone, Debug, Default)]
pub struct ImageCache {
    bytes: u64,
    open: Arc<Mutex<Vec<Weak<Images>>>>,
}

impl ImageCache {
    /// A cache of at most so many bytes for each folder, whatever sizes its images are brought to.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, open: Arc::default() }
    }

    /// The images of these files, from an earlier opening if there was one. The first that opens them counts their
    /// bytes.
    fn open(&self, files: Vec<PathBuf>, shape: [usize; 3], fit: ImageFit) -> Opened {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|images| images.strong_count() > 0);
        let same = |images: &Arc<Images>| images.shape == shape && images.fit == fit && images.files == files;
        if let Some(images) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Opened { images, counted: 0 };
        }
        let kept = if self.bytes > 0 { files.iter().map(|_| OnceLock::new()).collect() } else { Vec::new() };
        // The same files in another size share what is kept of the folder.
        let others: Vec<_> = open.iter().filter_map(Weak::upgrade).filter(|images| images.files == files).collect();
        let used = others.first().map_or_else(Arc::default, |images| images.used.clone());
        let left = others.iter().fold(self.bytes, |left, images| left.saturating_sub(images.all_bytes()));
        let images = Arc::new(Images { files, shape, fit, kept, budget: self.bytes, used });
        open.push(Arc::downgrade(&images));
        let counted = images.all_bytes().min(left);
        Opened { images, counted }
    }
}

/// The images of all class folders; classes are numbered in the order of their names.
pub(super) fn open_classes(folder: &Path, options: &OpenOptions, origin: Origin) -> Result<Dataset> {
    let (mut files, mut classes, mut names, mut empty) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (class, folder) in sub_folders(folder)?.iter().enumerate() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let own = images_in(folder)?;
        if own.is_empty() {
            empty.push(name.clone());
        }
        classes.extend(own.iter().map(|_| u32::try_from(class).unwrap_or(u32::MAX)));
        files.extend(own);
        names.push(name);
    }
    if files.is_empty() {
        return Err(Error::data(format!("{}: no images in its sub-folders", folder.display()))
            .hint(format!("one sub-folder per class with files ending in {}", ENDINGS.join(", "))));
    }
    let labels = (options.label != LabelChoice::None).then_some(Labels::Classes(classes));
    let mut dataset = open(files, labels, options, origin)?;
    let beside = images_in(folder)?.len();
    if beside > 0 {
        dataset.note(&format!("{beside} images beside the class folders belong to no class and are not used"));
    }
    if !empty.is_empty() {
        let (what, verb) = if empty.len() == 1 { ("class folder", "has") } else { ("class folders", "have") };
        dataset.note(&format!("{what} {} {verb} no images; the others keep their numbers", first_of(&empty)));
    }
    dataset.class_names = names;
    Ok(dataset)
}

/// The images directly in a folder, which have no labels.
pub(super) fn open_flat(folder: &Path, options: &OpenOptions, origin: Origin) -> Result<Dataset> {
    open(images_in(folder)?, None, options, origin)
}

fn open(files: Vec<PathBuf>, labels: Option<Labels>, options: &OpenOptions, origin: Origin) -> Result<Dataset> {
    let shape = options.image_shape.ok_or_else(|| {
        Error::data("images need a model that takes images").hint("the model's input should be N×channels×height×width")
    })?;
    let opened = options.cache.open(files, shape, options.image_fit);
    let images = opened.images.clone();
    let dataset = Dataset { origin, ..Dataset::new(Box::new(opened), labels) };
    if options.skip_bad { without_bad(dataset, &images) } else { Ok(dataset) }
}

/// Decodes all images once and leaves out those that cannot be read. One of another size is not bad, but an error.
fn without_bad(dataset: Dataset, images: &Images) -> Result<Dataset> {
    let reasons: Vec<Option<String>> =
        (0..images.files.len()).into_par_iter().map(|i| images.check(i)).collect::<Result<_>>()?;
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bad: Vec<String> =
        images.files.iter().zip(&reasons).filter(|(_, r)| r.is_some()).map(|(path, _)| name(path)).collect();
    if bad.is_empty() {
        return Ok(dataset);
    }
    if let (true, Some(Some(reason))) = (bad.len() == images.files.len(), reasons.first()) {
        return Err(Error::data(format!("none of the {} images can be read: {reason}", bad.len())));
    }
    let good = reasons.iter().enumerate().filter(|(_, reason)| reason.is_none()).map(|(i, _)| i).collect();
    let mut dataset = Chosen::of(dataset, good);
    dataset.note(&format!(
        "{} of {} images cannot be read and are skipped: {}",
        bad.len(),
        images.files.len(),
        first_of(&bad)
    ));
    Ok(dataset)
}

/// The first few names.
fn first_of(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    format!("{}{}", shown.join(", "), if names.len() > SHOWN { ", …" } else { "" })
}

/// The folders directly inside, by name.
pub(super) fn sub_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(visible(folder)?.into_iter().filter(|p| p.is_dir()).collect())
}

/// The images directly inside, by name.
pub(super) fn images_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let ending = |p: &Path| p.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let is_image = |p: &PathBuf| ending(p).is_some_and(|e| ENDINGS.contains(&e.as_str())) && !p.is_dir();
    Ok(visible(folder)?.into_iter().filter(is_image).collect())
}

/// What is in a folder, by name, without what begins with a dot: notebooks and macOS leave such files beside the
/// images.
fn visible(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |e| Error::io(folder, &e);
    let entries = std::fs::read_dir(folder).map_err(io)?;
    let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>().map_err(io)?;
    paths.retain(|p| p.file_name().is_some_and(|n| !n.to_string_lossy().starts_with('.')));
    paths.sort();
    Ok(paths)
}

/// Images on disk, and the pixels of some of them.
#[derive(Debug)]
struct Images {
    files: Vec<PathBuf>,
    shape: [usize; 3],
    fit: ImageFit,
    /// Pixels of each image, once it has been decoded and while there is room. Empty without a budget.
    kept: Vec<OnceLock<Box<[u8]>>>,
    budget: u64,
    /// Bytes that are kept of these files, in all sizes together.
    used: Arc<AtomicU64>,
}

impl Images {
    /// Bytes of one image's pixels.
    fn size(&self) -> usize {
        self.shape.iter().fold(1, |n, &d| n.saturating_mul(d))
    }

    /// Bytes of all images' pixels.
    fn all_bytes(&self) -> u64 {
        u64::try_from(self.size().saturating_mul(self.files.len())).unwrap_or(u64::MAX)
    }

    /// Calls `f` with the pixels of an image, plane by plane.
    fn with_pixels<T>(&self, index: usize, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        if let Some(pixels) = self.kept.get(index).and_then(OnceLock::get) {
            return Ok(f(pixels));
        }
        let path = self.files.get(index).ok_or_else(|| Error::data("there is no such image"))?;
        let pixels = self.fitted(path, &load(path)?)?;
        let result = f(&pixels);
        self.keep(index, pixels);
        Ok(result)
    }

    /// Why an image cannot be decoded, if so; its pixels are kept otherwise.
    fn check(&self, index: usize) -> Result<Option<String>> {
        let Some(path) = self.files.get(index) else { return Ok(None) };
        if self.kept.get(index).and_then(OnceLock::get).is_some() {
            return Ok(None);
        }
        match load(path) {
            Ok(image) => self.fitted(path, &image).map(|pixels| self.keep(index, pixels)).map(|()| None),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    fn keep(&self, index: usize, pixels: Vec<u8>) {
        let Some(place) = self.kept.get(index) else { return };
        let size = u64::try_from(pixels.len()).unwrap_or(u64::MAX);
        let fits = self.used.fetch_add(size, Ordering::Relaxed).saturating_add(size) <= self.budget;
        if !fits || place.set(pixels.into_boxed_slice()).is_err() {
            self.used.fetch_sub(size, Ordering::Relaxed);
        }
    }

    /// The pixels of an image in the size the model expects.
    fn fitted(&self, path: &Path, image: &DynamicImage) -> Result<Vec<u8>> {
        let wrong = |e: &dyn std::fmt::Display| Error::data(format!("{}: {e}", path.display()));
        let [channels, height, width] = self.shape;
        let size = u32::try_from(width).ok().zip(u32::try_from(height).ok());
        let (width, height) = size.ok_or_else(|| wrong(&"impossible size"))?;
        let resized = if (image.width(), image.height()) == (width, height) {
            None
        } else {
            match self.fit {
                ImageFit::Stretch => Some(image.resize_exact(width, height, FilterType::Triangle)),
                ImageFit::Crop => Some(image.resize_to_fill(width, height, FilterType::Triangle)),
                ImageFit::Exact => {
                    return Err(wrong(&format_args!(
                        "the image is {}×{}, the model expects {width}×{height} (width×height)",
                        image.width(),
                        image.height()
                    ))
                    .hint("`resize` crop scales and cuts out the middle, `resize` stretch distorts"));
                }
            }
        };
        let pixels = planes(resized.as_ref().unwrap_or(image), channels).filter(|p| p.len() == self.size());
        pixels.ok_or_else(|| wrong(&format_args!("{channels} channels cannot be made of it")))
    }
}

/// Decodes a file. The decoder's own limits keep a small file from unpacking to gigabytes.
fn load(path: &Path) -> Result<DynamicImage> {
    let hint = "`skip_bad` leaves out what cannot be read";
    let io = |e| Error::io(path, &e).hint(hint);
    let reader = ImageReader::open(path).map_err(io)?.with_guessed_format().map_err(io)?;
    reader.decode().map_err(|e| Error::data(format!("{}: not a readable image ({e})", path.display())).hint(hint))
}

/// Images as samples of one dataset.
struct Opened {
    images: Arc<Images>,
    /// Bytes of kept pixels that count as this dataset's.
    counted: u64,
}

impl SampleSource for Opened {
    fn len(&self) -> usize {
        self.images.files.len()
    }

    fn shape(&self) -> &[usize] {
        &self.images.shape
    }

    fn is_bytes(&self) -> bool {
        true
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        self.images.with_pixels(index, |pixels| {
            out.iter_mut().zip(pixels).for_each(|(out, &pixel)| *out = f32::from(pixel));
        })
    }

    fn cache_bytes(&self) -> u64 {
        self.counted
    }
}

/// Brightness by ITU-R 601, as Pillow and torchvision compute it: (299 R + 587 G + 114 B) / 1000, in 16 bits.
fn grey(image: &DynamicImage) -> Vec<u8> {
    if !image.color().has_color() {
        return image.to_luma8().into_raw();
    }
    let brightness = |&[r, g, b]: &[u8; 3]| {
        let sum = 19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 0x8000;
        u8::try_from(sum >> 16).unwrap_or(u8::MAX)
    };
    image.to_rgb8().into_raw().as_chunks::<3>().0.iter().map(brightness).collect()
}

/// The pixels as separate planes of grey or of red, green and blue.
fn planes(image: &DynamicImage, channels: usize) -> Option<Vec<u8>> {
    let pixels = match channels {
        1 => return Some(grey(image)),
        3 => image.to_rgb8().into_raw(),
        _ => return None,
    };
    Some((0..channels).flat_map(|channel| pixels.iter().skip(channel).step_by(channels).copied()).collect())
}
