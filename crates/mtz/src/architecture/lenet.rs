//! The two networks of LeCun et al. 1998 as later work uses them.

use super::build::{Build, scaled};
use crate::error::Result;

/// Fully connected: 300, 100, classes.
pub(super) fn lenet_300_100(b: &mut Build, width: f64) -> Result<()> {
    if b.shape().len() > 1 {
        b.flatten("flatten")?;
    }
    b.linear("fc1", scaled(300, width))?;
    b.relu("relu1")?;
    b.linear("fc2", scaled(100, width))?;
    b.relu("relu2")?;
    b.head("fc3")
}

/// Caffe's LeNet-5: two convolutions with pooling and no activation between them, 500 hidden.
pub(super) fn lenet_5(b: &mut Build, width: f64) -> Result<()> {
    b.need_images(16)?;
    b.conv("conv1", scaled(20, width), 5, 1, 0, true)?;
    b.max_pool("pool1", 2, 2, 0)?;
    b.conv("conv2", scaled(50, width), 5, 1, 0, true)?;
    b.max_pool("pool2", 2, 2, 0)?;
    b.flatten("flatten")?;
    b.linear("ip1", scaled(500, width))?;
    b.relu("relu1")?;
    b.head("ip2")
}
