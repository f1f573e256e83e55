//! Residual networks (He et al. 2016): the small ones for 32×32 images, and ImageNet's ResNet-18.

use super::build::{Build, scaled};
use crate::error::Result;

/// Convolution, norm, activation, convolution, norm; the input (projected where the size changes) is added.
fn block(b: &mut Build, name: &str, outputs: usize, stride: usize) -> Result<()> {
    let start = b.here();
    let same = stride == 1 && b.shape().first() == Some(&outputs);
    let shortcut = if same {
        start
    } else {
        b.conv(&format!("{name}.shortcut"), outputs, 1, stride, 0, false)?;
        b.batch_norm(&format!("{name}.shortcut_bn"))?;
        let shortcut = b.here();
        b.go_to(start);
        shortcut
    };
    b.conv(&format!("{name}.conv1"), outputs, 3, stride, 1, false)?;
    b.batch_norm(&format!("{name}.bn1"))?;
    b.relu(&format!("{name}.relu1"))?;
    b.conv(&format!("{name}.conv2"), outputs, 3, 1, 1, false)?;
    b.batch_norm(&format!("{name}.bn2"))?;
    b.sum(&format!("{name}.add"), shortcut)?;
    b.relu(&format!("{name}.relu2"))
}

fn end(b: &mut Build) -> Result<()> {
    b.global_average_pool("pool")?;
    b.flatten("flatten")?;
    b.head("fc")
}

/// Three groups of `blocks` blocks with 16, 32 and 64 channels.
pub(super) fn cifar(b: &mut Build, width: f64, blocks: usize) -> Result<()> {
    b.need_images(8)?;
    stem(b, scaled(16, width))?;
    for (group, channels) in (1..).zip([16, 32, 64]) {
        for i in 0..blocks {
            let stride = if group > 1 && i == 0 { 2 } else { 1 };
            block(b, &format!("group{group}.{i}"), scaled(channels, width), stride)?;
        }
    }
    end(b)
}

/// Three groups of four blocks with 64, 128 and 256 channels, each of which halves the image: the network of Rebuffi et
/// al. 2017, which the paper zips.
pub(super) fn resnet_28(b: &mut Build, width: f64) -> Result<()> {
    b.need_images(16)?;
    stem(b, scaled(32, width))?;
    for (group, channels) in (1..).zip([64, 128, 256]) {
        for i in 0..4 {
            let stride = if i == 0 { 2 } else { 1 };
            block(b, &format!("group{group}.{i}"), scaled(channels, width), stride)?;
        }
    }
    end(b)
}

fn stem(b: &mut Build, channels: usize) -> Result<()> {
    b.conv("conv1", channels, 3, 1, 1, false)?;
    b.batch_norm("bn1")?;
    b.relu("relu1")
}

/// The same with norm and activation in front of each convolution, and a stream that nothing but sums changes (He et
/// al. 2016b).
pub(super) fn cifar_v2(b: &mut Build, width: f64, blocks: usize) -> Result<()> {
    b.need_images(8)?;
    b.conv("conv1", scaled(16, width), 3, 1, 1, false)?;
    for (group, channels) in (1..).zip([16, 32, 64]) {
        for i in 0..blocks {
            let stride = if group > 1 && i == 0 { 2 } else { 1 };
            block_v2(b, &format!("group{group}.{i}"), scaled(channels, width), stride)?;
        }
    }
    b.batch_norm("bn")?;
    b.relu("relu")?;
    end(b)
}

fn block_v2(b: &mut Build, name: &str, outputs: usize, stride: usize) -> Result<()> {
    let start = b.here();
    let same = stride == 1 && b.shape().first() == Some(&outputs);
    b.batch_norm(&format!("{name}.bn1"))?;
    b.relu(&format!("{name}.relu1"))?;
    let shortcut = if same {
        start
    } else {
        let activated = b.here();
        b.conv(&format!("{name}.shortcut"), outputs, 1, stride, 0, false)?;
        let shortcut = b.here();
        b.go_to(activated);
        shortcut
    };
    b.conv(&format!("{name}.conv1"), outputs, 3, stride, 1, false)?;
    b.batch_norm(&format!("{name}.bn2"))?;
    b.relu(&format!("{name}.relu2"))?;
    b.conv(&format!("{name}.conv2"), outputs, 3, 1, 1, false)?;
    b.sum(&format!("{name}.add"), shortcut)
}

/// A 7×7 stem, then four groups of two blocks with 64 to 512 channels.
pub(super) fn resnet_18(b: &mut Build, width: f64) -> Result<()> {
    b.need_images(32)?;
    b.conv("conv1", scaled(64, width), 7, 2, 3, false)?;
    b.batch_norm("bn1")?;
    b.relu("relu1")?;
    b.max_pool("pool1", 3, 2, 1)?;
    for (group, channels) in (1..).zip([64, 128, 256, 512]) {
        for i in 0..2 {
            let stride = if group > 1 && i == 0 { 2 } else { 1 };
            block(b, &format!("group{group}.{i}"), scaled(channels, width), stride)?;
        }
    }
    end(b)
}
