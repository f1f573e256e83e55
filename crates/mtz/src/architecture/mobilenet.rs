//! MobileNetV2 (Sandler et al. 2018): inverted residual blocks of depthwise convolutions, with strides for 32×32
//! images.

use super::build::{Build, scaled};
use crate::error::Result;

/// Expansion, channels, blocks and the first block's stride of each group.
const GROUPS: [(usize, usize, usize, usize); 7] =
    [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];
const STEM: usize = 32;
const LAST: usize = 1280;

pub(super) fn mobilenet_v2(b: &mut Build, width: f64) -> Result<()> {
    b.need_images(16)?;
    unit(b, "stem", Some((scaled(STEM, width), 3, 1)))?;
    for (g, (expansion, channels, blocks, first)) in (1..).zip(GROUPS) {
        for i in 0..blocks {
            let stride = if i == 0 { first } else { 1 };
            block(b, &format!("group{g}.{i}"), expansion, scaled(channels, width), stride)?;
        }
    }
    unit(b, "last", Some((scaled(LAST, width), 1, 1)))?;
    b.global_average_pool("pool")?;
    b.flatten("flatten")?;
    b.head("fc")
}

/// Convolution (channels, kernel, stride), norm, activation; without a convolution the norm and activation alone.
fn unit(b: &mut Build, name: &str, conv: Option<(usize, usize, usize)>) -> Result<()> {
    if let Some((outputs, size, stride)) = conv {
        b.conv(&format!("{name}.conv"), outputs, size, stride, size / 2, false)?;
    }
    b.batch_norm(&format!("{name}.bn"))?;
    b.relu_6(&format!("{name}.relu"))
}

/// Wider by `expansion`, depthwise, and narrow again without an activation; added to its input where the sizes agree.
fn block(b: &mut Build, name: &str, expansion: usize, outputs: usize, stride: usize) -> Result<()> {
    let start = b.here();
    let inputs = b.shape().first().copied().unwrap_or(1);
    if expansion > 1 {
        unit(b, &format!("{name}.expand"), Some((inputs * expansion, 1, 1)))?;
    }
    b.depthwise(&format!("{name}.depthwise.conv"), 3, stride, 1)?;
    unit(b, &format!("{name}.depthwise"), None)?;
    b.conv(&format!("{name}.project.conv"), outputs, 1, 1, 0, false)?;
    b.batch_norm(&format!("{name}.project.bn"))?;
    if stride == 1 && inputs == outputs {
        b.sum(&format!("{name}.add"), start)?;
    }
    Ok(())
}
