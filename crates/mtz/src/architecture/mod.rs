//! Networks to train from scratch, as graphs with random weights.
//!
//! The input's normalisation is part of the network: who uses it later feeds plain pixels between 0 and 1.

mod build;
mod densenet;
mod lenet;
mod mobilenet;
mod resnet;
mod vgg;

use crate::error::{Error, Result};
use crate::graph::Graph;
use build::Build;

/// What a network is built for.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkSpec {
    /// The shape of one sample: channels, height and width, or features.
    pub input: Vec<usize>,
    /// Classes or attributes to tell apart.
    pub outputs: usize,
    /// What to subtract from each channel of the input, and to divide by afterwards; empty for neither.
    pub mean: Vec<f32>,
    /// See `mean`.
    pub std: Vec<f32>,
}

/// A network that can be built.
pub struct Architecture {
    /// What users call it.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    build: fn(&mut Build, f64) -> Result<()>,
}

/// All networks that can be built.
pub const ALL: &[Architecture] = &[
    Architecture { name: "lenet-300-100", about: "two hidden layers of 300 and 100", build: lenet::lenet_300_100 },
    Architecture { name: "lenet-5", about: "Caffe's: 20 and 50 5×5 kernels, 500 hidden", build: lenet::lenet_5 },
    Architecture { name: "vgg-11", about: "8 convolutions, fc6 and fc7", build: |b, w| vgg::vgg(b, w, &vgg::VGG_11) },
    Architecture { name: "vgg-16", about: "13 convolutions, fc6 and fc7", build: |b, w| vgg::vgg(b, w, &vgg::VGG_16) },
    Architecture { name: "resnet-20", about: "3 groups of 3 blocks", build: |b, w| resnet::cifar(b, w, 3) },
    Architecture {
        name: "resnet-28",
        about: "3 groups of 4 wide blocks, each group at half the size",
        build: resnet::resnet_28,
    },
    Architecture { name: "resnet-32", about: "3 groups of 5 blocks", build: |b, w| resnet::cifar(b, w, 5) },
    Architecture { name: "resnet-56", about: "3 groups of 9 blocks", build: |b, w| resnet::cifar(b, w, 9) },
    Architecture {
        name: "resnet-20-v2",
        about: "the same with norm and activation in front of convolutions",
        build: |b, w| resnet::cifar_v2(b, w, 3),
    },
    Architecture {
        name: "mobilenet-v2",
        about: "for 32×32: 17 inverted residual blocks",
        build: mobilenet::mobilenet_v2,
    },
    Architecture {
        name: "densenet-22",
        about: "3 blocks of 6 convolutions that add 12 channels",
        build: densenet::densenet_22,
    },
    Architecture { name: "resnet-18", about: "ImageNet's: 4 groups of 2 blocks", build: resnet::resnet_18 },
];

/// The network called `name`, for a task, `width` times as wide as usual, with random weights from `seed`.
pub fn build(name: &str, task: &NetworkSpec, width: f64, seed: u64) -> Result<Graph> {
    let architecture = ALL.iter().find(|a| a.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|a| a.name).collect();
        Error::usage(format!("there is no architecture {name:?}")).hint(format!("there are {}", names.join(", ")))
    })?;
    if !(width > 0.0 && width <= 64.0) {
        return Err(Error::usage(format!("width {width} is not between 0 and 64")));
    }
    let mut b = Build::new(name, task, seed)?;
    (architecture.build)(&mut b, width)?;
    b.finish()
}
