//! Small random changes to training images: the same seed and step always give the same ones.
// Images are in memory and have the shape their tensor says.
#![allow(clippy::indexing_slicing, clippy::as_conversions)]

use crate::random;
use crate::tensor::Tensor;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// What may happen to an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Augmentation {
    /// Shift by up to so many pixels in each direction; what comes in is zero (random crop with padding).
    pub shift: usize,
    /// Mirror left and right, every second time.
    pub flip: bool,
}

impl Augmentation {
    /// Changes a batch of N×C×H×W images; anything else is left alone.
    pub fn apply(&self, batch: Tensor, seed: u64) -> Tensor {
        let &[n, channels, height, width] = batch.shape() else { return batch };
        if *self == Self::default() || n == 0 {
            return batch;
        }
        let image = channels * height * width;
        let mut data = vec![0.0; batch.data().len()];
        data.par_chunks_mut(image).zip(batch.data().par_chunks(image)).enumerate().for_each(|(i, (out, x))| {
            let draw = |k: u64| random::below(seed, 3 * i as u64 + k, 2 * self.shift + 1);
            let (down, right) = (draw(0), draw(1));
            let flip = self.flip && random::below(seed, 3 * i as u64 + 2, 2) == 1;
            for (line, out) in out.chunks_mut(width).enumerate() {
                let (plane, y) = (line / height, line % height);
                // Row y of the result is row y + down − shift of the image, columns likewise.
                let Some(row) = (y + down).checked_sub(self.shift).filter(|&r| r < height) else { continue };
                let source = &x[(plane * height + row) * width..][..width];
                for (column, out) in out.iter_mut().enumerate() {
                    let column = if flip { width - 1 - column } else { column };
                    if let Some(x) = (column + right).checked_sub(self.shift).and_then(|c| source.get(c)) {
                        *out = *x;
                    }
                }
            }
        });
        Tensor::new(batch.shape().to_vec(), data).unwrap_or(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_shift_and_flip_whole() {
        let x = Tensor::new(vec![64, 1, 3, 3], (0..64 * 9).map(|i| (i % 9 + 1) as f32).collect()).unwrap();
        let flipped = Augmentation { shift: 0, flip: true }.apply(x.clone(), 1);
        let mirrored = [3., 2., 1., 6., 5., 4., 9., 8., 7.];
        let count = flipped.data().chunks(9).filter(|i| *i == mirrored).count();
        assert!((20..44).contains(&count), "{count} of 64 are mirrored");
        let shifted = Augmentation { shift: 1, flip: false }.apply(x.clone(), 2);
        // The middle pixel moves to one of nine places; the rest of its image with it.
        let mut seen = std::collections::BTreeSet::new();
        for image in shifted.data().chunks(9) {
            seen.insert(image.iter().position(|&p| p == 5.0).unwrap());
        }
        assert_eq!(seen.len(), 9);
        assert_eq!(Augmentation::default().apply(x.clone(), 3), x);
    }
}
