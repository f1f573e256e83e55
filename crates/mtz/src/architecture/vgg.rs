//! VGG (Simonyan and Zisserman 2015) with batch normalisation: 3×3 convolutions in five groups, then fc6, fc7, fc8.

use super::build::{Build, scaled};
use crate::error::Result;

/// Channels of the convolutions, group by group.
pub(super) const VGG_11: [&[usize]; 5] = [&[64], &[128], &[256, 256], &[512, 512], &[512, 512]];
pub(super) const VGG_16: [&[usize]; 5] = [&[64, 64], &[128, 128], &[256; 3], &[512; 3], &[512; 3]];

/// Channels of fc6 and fc7.
const HIDDEN: usize = 4096;
/// The standard deviation of their first weights, as the authors began.
const SMALL: f32 = 0.01;

pub(super) fn vgg(b: &mut Build, width: f64, groups: &[&[usize]; 5]) -> Result<()> {
    b.need_images(32)?;
    for (g, channels) in (1..).zip(groups) {
        for (i, &outputs) in (1..).zip(channels.iter()) {
            b.conv(&format!("conv{g}_{i}"), scaled(outputs, width), 3, 1, 1, false)?;
            b.batch_norm(&format!("bn{g}_{i}"))?;
            b.relu(&format!("relu{g}_{i}"))?;
        }
        b.max_pool(&format!("pool{g}"), 2, 2, 0)?;
    }
    b.flatten("flatten")?;
    for name in ["6", "7"] {
        b.linear_of_size(&format!("fc{name}"), scaled(HIDDEN, width), SMALL)?;
        b.relu(&format!("relu{name}"))?;
        b.dropout(&format!("drop{name}"), 0.5)?;
    }
    b.linear_of_size("fc8", b.outputs(), SMALL)
}
