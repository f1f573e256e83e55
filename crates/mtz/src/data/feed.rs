//! From samples to the batches a network expects: layout, scaling and normalisation.

use super::channels::ChannelsFirst;
use super::{Dataset, Labels, OneHot, SampleSource};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId};
use crate::op::Op;
use crate::tensor::Tensor;
use rayon::prelude::*;

/// What happens to every number of a sample: x · scale, then (x − mean) / std per channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Normalisation {
    /// Factor; by default bytes are divided by 255 and floats left alone.
    pub scale: Option<f32>,
    /// Samples are right as they are: bytes stay 0 to 255, and floats up to 255 are no mistake.
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
    /// Checks that the samples fit the network's input before any work begins. Errors name task and file.
    pub fn new(dataset: Dataset, graph: &Graph, normalisation: Normalisation) -> Result<Self> {
        let origin = dataset.origin.clone();
        Self::fitted(dataset, graph, normalisation).map_err(|e| origin.error(e))
    }

    fn fitted(mut dataset: Dataset, graph: &Graph, normalisation: Normalisation) -> Result<Self> {
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
        let own = dataset.samples.shape().to_vec();
        let layout_of = |own: &[usize]| layout(own, &shape).filter(|_| shape.len() == dims.len());
        let layout = match (layout_of(&own), ChannelsFirst::shape_of(&own)) {
            // Both have the channels at the end: turned only where numbers per channel have to find theirs.
            (Some(Layout::Same), Some([channels, ..])) if own == shape && normalisation.is_only_for(channels, &own) => {
                dataset = dataset.turned();
                Layout::ChannelsLast
            }
            (Some(layout), _) => layout,
            (None, Some(turned)) if layout_of(&turned).is_some() => {
                dataset = dataset.turned();
                let (from, to) = (listed(&own), listed(&turned));
                dataset.note(&format!("samples are height × width × channels: [N, {from}] is read as [N, {to}]"));
                Layout::Same
            }
            (None, _) => {
                let kind = if dataset.samples.is_bytes() { "uint8" } else { "float32" };
                let expected = format!("input {:?} expects {}", value.name, value.shape);
                return Err(Error::data(format!("{expected} but the data has [N, {}] ({kind})", listed(&own)))
                    .hint("the data must have the model's channels, height and width"));
            }
        };
        let own = dataset.samples.shape();
        let channels = if own.len() == 3 { own.first().copied().unwrap_or(1) } else { 1 };
        normalisation.check(channels)?;
        if dataset.samples.is_bytes() && !normalisation.raw && expects_bytes(graph, input) {
            dataset.note(
                "the network seems to scale its samples itself, and bytes are scaled before: `raw` leaves them as \
                they are",
            );
        }
        if normalisation.leaves_numbers() && !dataset.samples.is_bytes() {
            let floats_up_to_255 = !expects_bytes(graph, input) && up_to_255(&*dataset.samples)?;
            if floats_up_to_255 {
                dataset.note(
                    "samples are floats up to 255; networks usually expect 0…1: \
                     `scale` 0.00392157 divides them, `raw` says they are right",
                );
            }
        }
        Ok(Self { dataset, shape, layout, channels, normalisation })
    }

    /// Brings the labels into the form the network's first output needs, and refuses those that cannot fit it.
    pub fn fit_labels(&mut self, graph: &Graph, one_hot: OneHot) -> Result<()> {
        self.dataset.fit_labels(graph, one_hot)
    }

    /// What was found out about the data.
    pub fn notes(&self) -> &[String] {
        &self.dataset.notes
    }

    /// Bytes that decoded samples may take, at most. Feeds that share them count them once.
    pub fn cache_bytes(&self) -> u64 {
        self.dataset.samples.cache_bytes()
    }

    /// Refuses samples that nothing can be measured on: fewer than two, or all the same.
    pub fn check_variety(&self) -> Result<()> {
        /// So many samples that are the same are enough to say that all are.
        const LOOKED_AT: usize = 64;
        let hint = "statistics need different samples: a few hundred are a good start";
        let wrong = |text: &str| Err(self.dataset.origin.error(Error::data(text).hint(hint)));
        if self.len() < 2 {
            return wrong("there is only one sample");
        }
        let first = self.batch(&[0])?;
        for index in spread(self.len(), LOOKED_AT).skip(1) {
            if self.batch(&[index])?.data() != first.data() {
                return Ok(());
            }
        }
        wrong("all samples are the same")
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
        self.prepared(indices, &self.normalisation)
    }

    /// The same as they are stored, for networks that scale by themselves.
    pub fn raw_batch(&self, indices: &[usize]) -> Result<Tensor> {
        self.prepared(indices, &Normalisation { raw: true, ..Normalisation::default() })
    }

    /// Whether samples are bytes.
    pub fn is_bytes(&self) -> bool {
        self.dataset.samples.is_bytes()
    }

    fn prepared(&self, indices: &[usize], normalisation: &Normalisation) -> Result<Tensor> {
        let size: usize = self.shape.iter().product();
        let mut data = vec![0.0; size.saturating_mul(indices.len())];
        data.par_chunks_mut(size.max(1)).zip(indices).try_for_each(|(out, &index)| {
            self.sample(index, normalisation, out).map_err(|e| self.dataset.origin.error(e))
        })?;
        Tensor::new([indices.len()].into_iter().chain(self.shape.iter().copied()).collect(), data)
    }

    fn sample(&self, index: usize, n: &Normalisation, out: &mut [f32]) -> Result<()> {
        self.dataset.samples.read(index, out)?;
        let plane = out.len().checked_div(self.channels).unwrap_or(0).max(1);
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
        // Bytes are finite; a network would carry a single NaN into all its answers.
        if !self.dataset.samples.is_bytes() && !all_finite(out) {
            return Err(Error::data(format!("sample {index} has NaN or infinite numbers"))
                .hint("numpy.isfinite(x) finds them, numpy.nan_to_num(x) replaces them"));
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

impl Normalisation {
    fn check(&self, channels: usize) -> Result<()> {
        for (name, list) in [("mean", &self.mean), ("std", &self.std)] {
            if !(list.len() <= 1 || list.len() == channels) {
                return Err(Error::usage(format!("--{name} has {} numbers for {channels} channels", list.len()))
                    .hint(format!("give one number, or one per channel: --{name} 0.5")));
            }
            if list.iter().any(|x| !x.is_finite()) || name == "std" && list.contains(&0.0) {
                return Err(Error::usage(format!("--{name} {list:?} cannot be used")));
            }
        }
        if self.scale.is_some_and(|s| !s.is_finite()) {
            return Err(Error::usage("`scale` must be a finite number"));
        }
        Ok(())
    }

    /// Whether there are numbers for so many channels, and not for as many as are in front.
    fn is_only_for(&self, channels: usize, shape: &[usize]) -> bool {
        let count = self.mean.len().max(self.std.len());
        count > 1 && count == channels && shape.first() != Some(&count)
    }

    /// Whether floats reach the network about as large as they are.
    fn leaves_numbers(&self) -> bool {
        !self.raw && self.scale.is_none() && !self.mean.iter().chain(&self.std).any(|x| *x > LARGE)
    }
}

/// What stands for a mean or deviation of numbers from 0 to 255, not from 0 to 1.
const LARGE: f32 = 2.0;

/// Whether the network brings numbers from 0 to 255 to its own scale first.
fn expects_bytes(graph: &Graph, input: ValueId) -> bool {
    let reads = |node: &&Node| node.inputs.contains(&Some(input));
    graph.nodes().iter().filter(reads).any(|node| {
        let constants = node.inputs.iter().flatten().filter_map(|id| graph.values().get(id.index())?.constant.as_ref());
        let mut numbers = constants.flat_map(|tensor| tensor.data().iter().map(|x| x.abs()));
        match &node.op {
            Op::Sub(_) | Op::Div(_) | Op::BatchNormalization(_) => numbers.any(|x| x > LARGE),
            Op::Mul(_) => numbers.any(|x| x < LARGE / 100.0),
            _ => false,
        }
    })
}

/// Whether floats look like bytes that nobody has scaled. Rows of features have to be whole numbers, too: ages and
/// sizes are no mistake.
fn up_to_255(samples: &dyn SampleSource) -> Result<bool> {
    const LOOKED_AT: usize = 8;
    let mut numbers = vec![0.0f32; samples.shape().iter().product()];
    let (mut largest, mut whole) = (0.0f32, true);
    for index in spread(samples.len(), LOOKED_AT) {
        samples.read(index, &mut numbers)?;
        if !numbers.iter().all(|x| (0.0..=255.0).contains(x)) {
            return Ok(false);
        }
        largest = numbers.iter().fold(largest, |most, x| most.max(*x));
        whole &= numbers.iter().all(|x| x.fract() == 0.0);
    }
    Ok(largest > LARGE && (whole || samples.shape().len() >= 3))
}

/// At most so many indices below `len`, evenly spread, from the first to the last.
fn spread(len: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = most.min(len);
    (0..count).map(move |i| i.saturating_mul(len - 1).checked_div(count - 1).unwrap_or(0))
}

/// Whether no number is NaN or infinite, without a branch per number.
fn all_finite(numbers: &[f32]) -> bool {
    let largest = numbers.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff));
    largest < f32::INFINITY.to_bits()
}

fn listed(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
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
