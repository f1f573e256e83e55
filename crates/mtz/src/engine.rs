//! What computes. The built-in [`CpuEngine`] runs on this machine's cores. Another engine (a GPU, a framework, remote
//! machines) implements three things: forward with taps ([`Inference`]), gradients ([`Learning`]) and the statistics of
//! a layer ([`Engine`]); matching, solving and the joint model stay here.

pub use crate::run::{CpuEngine, Forward, Inference};
pub use crate::train::{Learning, TrainingProgram};

use crate::error::Result;
use crate::graph::Graph;
use crate::sharing::Layer;
use crate::statistics::{self, ActivationCaches, Calibration, LayerStatistics};

/// Runs networks, finds gradients, and sums up what layers see.
pub trait Engine: Inference + Learning {
    /// The Gram matrix of a layer's inputs in `merged`, and their products with what the layer answers in `original`;
    /// see [`statistics::layer_statistics`], which this is unless an engine does it in its own way.
    fn layer_statistics(
        &self,
        merged: &Graph,
        original: Option<&Graph>,
        layer: &Layer,
        from: &Calibration,
        caches: &mut ActivationCaches,
    ) -> Result<LayerStatistics> {
        statistics::layer_statistics(merged, original, layer, from, caches)
    }
}

impl Engine for CpuEngine {}
