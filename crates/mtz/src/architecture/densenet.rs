//! A small densely connected network (Huang et al. 2017): every convolution reads all that its block has computed so
//! far.

use super::build::{Build, scaled};
use crate::error::Result;

/// Convolutions in each of three blocks.
const LAYERS: usize = 6;
/// Channels a convolution adds.
const GROWTH: usize = 12;

/// Three blocks of six convolutions, norm and activation in front of each; half the channels go on to the next block.
pub(super) fn densenet_22(b: &mut Build, width: f64) -> Result<()> {
    b.need_images(16)?;
    let growth = scaled(GROWTH, width);
    b.conv("conv1", 2 * growth, 3, 1, 1, false)?;
    for block in 1..=3 {
        for i in 0..LAYERS {
            let name = format!("block{block}.{i}");
            let start = b.here();
            activated(b, &name)?;
            b.conv(&format!("{name}.conv"), growth, 3, 1, 1, false)?;
            b.beside(&format!("{name}.concat"), start)?;
        }
        if block < 3 {
            let name = format!("transition{block}");
            activated(b, &name)?;
            let half = b.shape().first().copied().unwrap_or(2) / 2;
            b.conv(&format!("{name}.conv"), half, 1, 1, 0, false)?;
            b.average_pool(&format!("{name}.pool"), 2)?;
        }
    }
    activated(b, "last")?;
    b.global_average_pool("pool")?;
    b.flatten("flatten")?;
    b.head("fc")
}

fn activated(b: &mut Build, name: &str) -> Result<()> {
    b.batch_norm(&format!("{name}.bn"))?;
    b.relu(&format!("{name}.relu"))
}
