//! From samples to the batches a network expects: layout, scaling and normalisation.

use super::{Dataset, Labels};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::tensor::Tensor;
use rayon::prelude::*;

/// What happens to every number of a sample: x · scale, then (x − mean) / std per channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Normalisation {
    /// Factor; by default bytes are divided by 255 and floats left alone.
    pub scale: Option<f32>,
    /// Leave bytes as they are, 0 to 255.
    pub raw: bool,
    /// Subtracted after scaling; one number, or one per channel.
    pub mean: Vec<f32>,
    /// Divided by after that; one number, or one per channel.
    pub std: Vec<f32>,
}

/// How the numbers of a sample stand in the network's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// In the same order (the shape may differ, as for a flattened image).
    Same,
    /// C×H×W in the data, H×W×C in the network.
    ChannelsLast,
}

/// Samples in the form a network expects.
#[derive(Debug)]
pub struct Feed {
    dataset: Dataset,
    /// The shape of one sample in the network.
    shape: Vec<usize>,
    layout: Layout,
    /// Samples have so many channels of so many numbers.
    channels: usize,
    normalisation: Normalisation,
}

impl Feed {
    /// Checks that the samples fit the network's input before any work begins.
    pub fn new(dataset: Dataset, graph: &Graph, normalisation: Normalisation) -> Result<Self> {
        let &[input] = graph.inputs() else {
            let names: Vec<String> = graph.inputs().iter().map(|id| format!("{:?}", graph[*id].name)).collect();
            return Err(Error::unsupported(format!(
                "the network has {} inputs, not one: {}",
                names.len(),
                names.join(", ")
            ))
            .hint(
                "export the model with one input; what does not change from sample to sample can be a constant in it",
            ));
        };
        let value = graph.values().get(input.index()).ok_or_else(|| Error::model("the input is missing"))?;
        let dims = value.shape.dims().get(1..).unwrap_or_default();
        let shape: Vec<usize> = dims.iter().filter_map(|d| d.fixed()).collect();
        let own = dataset.samples.shape();
        let kind = if dataset.samples.is_bytes() { "uint8" } else { "float32" };
        let layout = layout(own, &shape).filter(|_| shape.len() == dims.len()).ok_or_else(|| {
            let sample = own.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Error::data(format!(
                "input {:?} expects {} but the data has [N, {sample}] ({kind})",
                value.name, value.shape
            ))
            .hint("the data must have the model's channels, height and width")
        })?;
        let channels = if own.len() == 3 { own.first().copied().unwrap_or(1) } else { 1 };
        for (name, list) in [("mean", &normalisation.mean), ("std", &normalisation.std)] {
            if !(list.len() <= 1 || list.len() == channels) {
                return Err(Error::usage(format!("--{name} has {} numbers for {channels} channels", list.len())));
            }
            if list.iter().any(|x| !x.is_finite()) || name == "std" && list.contains(&0.0) {
                return Err(Error::usage(format!("--{name} {list:?} cannot be used")));
            }
        }
        if normalisation.scale.is_some_and(|s| !s.is_finite()) {
            return Err(Error::usage("--scale must be a finite number"));
        }
        Ok(Self { dataset, shape, layout, channels, normalisation })
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.dataset.samples.len()
    }

    /// The numbers of all samples.
    pub fn all(&self) -> Vec<usize> {
        (0..self.len()).collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.dataset.samples.is_empty()
    }

    /// The labels, where the data has any.
    pub fn labels(&self) -> Option<&Labels> {
        self.dataset.labels.as_ref()
    }

    /// The samples with these indices as one tensor.
    pub fn batch(&self, indices: &[usize]) -> Result<Tensor> {
        let size: usize = self.shape.iter().product();
        let mut data = vec![0.0; size.saturating_mul(indices.len())];
        data.par_chunks_mut(size.max(1)).zip(indices).try_for_each(|(out, &index)| self.sample(index, out))?;
        Tensor::new([indices.len()].into_iter().chain(self.shape.iter().copied()).collect(), data)
    }

    fn sample(&self, index: usize, out: &mut [f32]) -> Result<()> {
        self.dataset.samples.read(index, out)?;
        let plane = out.len().checked_div(self.channels).unwrap_or(0).max(1);
        let n = &self.normalisation;
        let at = |list: &[f32], channel: usize| list.get(channel).or(list.first()).copied();
        for (channel, out) in out.chunks_mut(plane).enumerate() {
            // Division rather than a factor, and in this order: the same bits as other tools.
            match n.scale {
                Some(scale) => out.iter_mut().for_each(|x| *x *= scale),
                None if self.dataset.samples.is_bytes() && !n.raw => out.iter_mut().for_each(|x| *x /= 255.0),
                None => {}
            }
            if let Some(mean) = at(&n.mean, channel) {
                out.iter_mut().for_each(|x| *x -= mean);
            }
            if let Some(std) = at(&n.std, channel) {
                out.iter_mut().for_each(|x| *x /= std);
            }
        }
        if self.layout == Layout::ChannelsLast {
            let planes = out.to_vec();
            for (channel, plane) in planes.chunks(plane).enumerate() {
                for (out, &x) in out.iter_mut().skip(channel).step_by(self.channels).zip(plane) {
                    *out = x;
                }
            }
        }
        Ok(())
    }
}

/// How samples of shape `own` become inputs of shape `wanted`.
fn layout(own: &[usize], wanted: &[usize]) -> Option<Layout> {
    let count = |shape: &[usize]| shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if own == wanted {
        return Some(Layout::Same);
    }
    // Axes of length one do not count, and a flat vector takes an image in its own order.
    let core = |shape: &[usize]| shape.iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
    let flat = core(wanted).len() <= 1 && count(own) == count(wanted);
    if flat || core(own) == core(wanted) {
        return Some(Layout::Same);
    }
    match (own, wanted) {
        (&[c, h, w], &[h2, w2, c2]) if (c, h, w) == (c2, h2, w2) => Some(Layout::ChannelsLast),
        _ => None,
    }
}
