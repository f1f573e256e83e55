//! A folder with one sub-folder of images per class, decoded one by one when they are needed.

use super::{Dataset, Labels, Samples};
use crate::error::{Error, Result};
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader};
use std::path::{Path, PathBuf};

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

/// File endings that are read as images; everything else in a class folder is passed over.
const ENDINGS: [&str; 8] = ["bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "webp"];

/// The images of all class folders; classes are numbered in the order of their names.
pub(super) fn open(folder: &Path, shape: [usize; 3], fit: ImageFit) -> Result<Dataset> {
    let (mut files, mut classes) = (Vec::new(), Vec::new());
    for (class, folder) in sub_folders(folder)?.iter().enumerate() {
        for path in sorted(folder)? {
            let ending = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
            if ending.is_some_and(|e| ENDINGS.contains(&e.as_str())) {
                files.push(path);
                classes.push(u32::try_from(class).unwrap_or(u32::MAX));
            }
        }
    }
    if files.is_empty() {
        return Err(Error::data(format!("{}: no images in its sub-folders", folder.display()))
            .hint(format!("one sub-folder per class with files ending in {}", ENDINGS.join(", "))));
    }
    Ok(Dataset { samples: Box::new(Images { files, shape, fit }), labels: Some(Labels::Classes(classes)) })
}

/// The folders directly inside, by name; hidden ones are passed over.
pub(super) fn sub_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let hidden = |p: &PathBuf| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with('.'));
    Ok(sorted(folder)?.into_iter().filter(|p| p.is_dir() && !hidden(p)).collect())
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |e| Error::io(folder, &e);
    let entries = std::fs::read_dir(folder).map_err(io)?;
    let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>().map_err(io)?;
    paths.sort();
    Ok(paths)
}

struct Images {
    files: Vec<PathBuf>,
    shape: [usize; 3],
    fit: ImageFit,
}

impl Samples for Images {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn is_bytes(&self) -> bool {
        true
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        let path = self.files.get(index).ok_or_else(|| Error::data("there is no such image"))?;
        let damaged = |e: &dyn std::fmt::Display| Error::data(format!("{}: {e}", path.display()));
        // The decoder's own limits keep a small file from unpacking to gigabytes.
        let reader = ImageReader::open(path).map_err(|e| Error::io(path, &e))?;
        let image = reader.with_guessed_format().map_err(|e| Error::io(path, &e))?.decode().map_err(|e| damaged(&e))?;
        let [channels, height, width] = self.shape;
        let size = u32::try_from(width).ok().zip(u32::try_from(height).ok());
        let (width, height) = size.ok_or_else(|| damaged(&"impossible size"))?;
        let image = if (image.width(), image.height()) == (width, height) {
            image
        } else {
            match self.fit {
                ImageFit::Stretch => image.resize_exact(width, height, FilterType::Triangle),
                ImageFit::Crop => image.resize_to_fill(width, height, FilterType::Triangle),
                ImageFit::Exact => {
                    return Err(damaged(&format_args!(
                        "the image is {}×{}, the model expects {width}×{height} (width×height)",
                        image.width(),
                        image.height()
                    ))
                    .hint("--resize crop scales and cuts out the middle, --resize stretch distorts"));
                }
            }
        };
        planes(&image, channels, out).ok_or_else(|| damaged(&format_args!("{channels} channels cannot be made of it")))
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
fn planes(image: &DynamicImage, channels: usize, out: &mut [f32]) -> Option<()> {
    let pixels = match channels {
        1 => grey(image),
        3 => image.to_rgb8().into_raw(),
        _ => return None,
    };
    let plane = out.len().checked_div(channels)?;
    if pixels.len() != out.len() || plane == 0 {
        return None;
    }
    for (channel, out) in out.chunks_mut(plane).enumerate() {
        for (out, &pixel) in out.iter_mut().zip(pixels.iter().skip(channel).step_by(channels)) {
            *out = f32::from(pixel);
        }
    }
    Some(())
}
