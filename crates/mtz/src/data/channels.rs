//! Images as height × width × channels, as Keras and Pillow have them, read as channels × height × width.

use super::SampleSource;
use crate::error::Result;

/// Samples of H×W×C as C×H×W.
pub(super) struct ChannelsFirst {
    samples: Box<dyn SampleSource>,
    shape: [usize; 3],
}

impl ChannelsFirst {
    /// What the shape is when it is turned, if there are channels of grey, colour, or colour and opacity at its end.
    pub fn shape_of(shape: &[usize]) -> Option<[usize; 3]> {
        match *shape {
            [h, w, c] if is_channels(c) => Some([c, h, w]),
            _ => None,
        }
    }

    /// Whether samples of this shape are images of H×W×C beyond doubt.
    pub fn is_certain(shape: &[usize]) -> bool {
        matches!(*shape, [h, w, c] if is_channels(c) && h > c && w > c)
    }

    /// Turns samples of H×W×C; others stay as they are.
    pub fn of(samples: Box<dyn SampleSource>) -> Box<dyn SampleSource> {
        match Self::shape_of(samples.shape()) {
            Some(shape) => Box::new(Self { samples, shape }),
            None => samples,
        }
    }
}

fn is_channels(n: usize) -> bool {
    matches!(n, 1 | 3 | 4)
}

impl SampleSource for ChannelsFirst {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn is_bytes(&self) -> bool {
        self.samples.is_bytes()
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        let mut pixels = vec![0.0; out.len()];
        self.samples.read(index, &mut pixels)?;
        let [channels, height, width] = self.shape;
        for (channel, plane) in out.chunks_mut(height.saturating_mul(width).max(1)).enumerate() {
            for (out, &x) in plane.iter_mut().zip(pixels.iter().skip(channel).step_by(channels.max(1))) {
                *out = x;
            }
        }
        Ok(())
    }

    fn cache_bytes(&self) -> u64 {
        self.samples.cache_bytes()
    }
}
