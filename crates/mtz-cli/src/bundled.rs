//! What ships inside the program: two networks and MNIST.

use mtz::data::{Dataset, Part};
use mtz::error::Result;

/// Two LeNet-300-100 with their names.
pub const MODELS: [(&str, &[u8]); 2] = [
    ("a", include_bytes!("../../../models/lenet-300-100-a.onnx")),
    ("b", include_bytes!("../../../models/lenet-300-100-b.onnx")),
];

/// MNIST, as it is distributed.
pub fn mnist(part: Part) -> Result<Dataset> {
    match part {
        Part::Train => Dataset::from_idx(
            include_bytes!("../../../data/mnist/train-images-idx3-ubyte.gz"),
            include_bytes!("../../../data/mnist/train-labels-idx1-ubyte.gz"),
        ),
        Part::Test => Dataset::from_idx(
            include_bytes!("../../../data/mnist/t10k-images-idx3-ubyte.gz"),
            include_bytes!("../../../data/mnist/t10k-labels-idx1-ubyte.gz"),
        ),
    }
}
