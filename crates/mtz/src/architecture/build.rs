//! Layer by layer, with the usual names and random weights.

use super::NetworkSpec;
use crate::data::Normalisation;
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::op::{
    Add, AveragePool, BatchNormalization, Clip, Concat, Conv, Dropout, Flatten, Gemm, GlobalAveragePool, MaxPool, Op,
    Relu, Window,
};
use crate::tensor::{Dim, Shape, Tensor};
use crate::{preprocess, random};

/// A network under construction: every call adds a layer behind the last one.
pub(super) struct Build {
    graph: Graph,
    last: ValueId,
    outputs: usize,
    seed: u64,
    weights: u64,
}

impl Build {
    /// The input and its normalisation.
    pub fn new(name: &str, task: &NetworkSpec, seed: u64) -> Result<Self> {
        let mut graph = Graph::new(name);
        let dims = [Dim::Batch(1)].into_iter().chain(task.input.iter().map(|&n| Dim::Fixed(n)));
        let last = graph.add_input("input", Shape::new(dims.collect())?);
        let normalisation =
            Normalisation { mean: task.mean.clone(), std: task.std.clone(), ..Normalisation::default() };
        let last = preprocess::add(&mut graph, last, &normalisation, false, |_| true)?;
        Ok(Self { graph, last, outputs: task.outputs, seed, weights: 0 })
    }

    /// A node that reads the last value and these.
    fn add(&mut self, name: &str, op: impl Into<Op>, more: Vec<Option<ValueId>>) -> Result<()> {
        let inputs = [Some(self.last)].into_iter().chain(more).collect();
        self.last = self.graph.add_node(name, op, inputs, format!("{name}.output"))?;
        Ok(())
    }

    /// Where the network is now, to go on from later.
    pub fn here(&self) -> ValueId {
        self.last
    }

    /// Goes on from another value.
    pub fn go_to(&mut self, value: ValueId) {
        self.last = value;
    }

    /// The shape of one sample of the last value.
    pub fn shape(&self) -> Vec<usize> {
        self.graph[self.last].shape.dims().iter().skip(1).filter_map(|d| d.fixed()).collect()
    }

    fn channels(&self) -> usize {
        self.shape().first().copied().unwrap_or(1)
    }

    /// Normal random weights with standard deviation √(2 / inputs) (He et al. 2015).
    fn weight(&mut self, name: String, shape: &[usize], inputs: usize) -> Result<ValueId> {
        self.weight_of_size(name, shape, (2.0 / inputs.max(1) as f32).sqrt())
    }

    /// Normal random weights with standard deviation `scale`.
    fn weight_of_size(&mut self, name: String, shape: &[usize], scale: f32) -> Result<ValueId> {
        self.weights += 1;
        let seed = random::bits(self.seed, self.weights);
        let count: usize = shape.iter().product();
        let data = (0..count as u64).map(|i| scale * random::normal(seed, i)).collect();
        self.graph.add_constant(name, Tensor::new(shape.to_vec(), data)?)
    }

    fn filled(&mut self, name: String, len: usize, value: f32) -> Result<ValueId> {
        self.graph.add_constant(name, Tensor::new(vec![len], vec![value; len])?)
    }

    /// A square convolution; with a bias unless batch normalisation follows.
    pub fn conv(
        &mut self,
        name: &str,
        outputs: usize,
        size: usize,
        stride: usize,
        pad: usize,
        bias: bool,
    ) -> Result<()> {
        let inputs = self.channels();
        let mut more =
            vec![Some(self.weight(format!("{name}.weight"), &[outputs, inputs, size, size], inputs * size * size)?)];
        if bias {
            more.push(Some(self.filled(format!("{name}.bias"), outputs, 0.0)?));
        }
        self.add(name, Conv { windows: square(size, stride, pad), groups: 1 }, more)
    }

    /// A square convolution of every channel for itself, without a bias.
    pub fn depthwise(&mut self, name: &str, size: usize, stride: usize, pad: usize) -> Result<()> {
        let channels = self.channels();
        let weight = self.weight(format!("{name}.weight"), &[channels, 1, size, size], size * size)?;
        self.add(name, Conv { windows: square(size, stride, pad), groups: channels }, vec![Some(weight)])
    }

    /// A fully connected layer.
    pub fn linear(&mut self, name: &str, outputs: usize) -> Result<()> {
        let inputs = self.shape().iter().product::<usize>();
        self.linear_of_size(name, outputs, (2.0 / inputs.max(1) as f32).sqrt())
    }

    /// A fully connected layer that begins with weights of this standard deviation. Thousands of units without
    /// normalisation need a small one: the answers move by as much as the squares of all of them sum to, in one step.
    pub fn linear_of_size(&mut self, name: &str, outputs: usize, scale: f32) -> Result<()> {
        let inputs = self.shape().iter().product();
        let w = self.weight_of_size(format!("{name}.weight"), &[outputs, inputs], scale)?;
        let b = self.filled(format!("{name}.bias"), outputs, 0.0)?;
        self.add(name, Gemm { transpose_b: true, ..Gemm::PLAIN }, vec![Some(w), Some(b)])
    }

    /// The last layer: one output per class.
    pub fn head(&mut self, name: &str) -> Result<()> {
        self.linear(name, self.outputs)
    }

    /// How many outputs there are to be.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    pub fn batch_norm(&mut self, name: &str) -> Result<()> {
        let channels = self.channels();
        let mut more = Vec::new();
        for (part, value) in [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)] {
            more.push(Some(self.filled(format!("{name}.{part}"), channels, value)?));
        }
        self.add(name, BatchNormalization { epsilon: 1e-5, momentum: 0.9 }, more)
    }

    pub fn relu(&mut self, name: &str) -> Result<()> {
        self.add(name, Relu, vec![])
    }

    /// Between 0 and 6.
    pub fn relu_6(&mut self, name: &str) -> Result<()> {
        self.add(name, Clip { min: 0.0, max: 6.0 }, vec![])
    }

    pub fn max_pool(&mut self, name: &str, size: usize, stride: usize, pad: usize) -> Result<()> {
        self.add(name, MaxPool { windows: square(size, stride, pad), ceil: false }, vec![])
    }

    pub fn average_pool(&mut self, name: &str, size: usize) -> Result<()> {
        let op = AveragePool { windows: square(size, size, 0), ceil: false, count_include_pad: false };
        self.add(name, op, vec![])
    }

    pub fn global_average_pool(&mut self, name: &str) -> Result<()> {
        self.add(name, GlobalAveragePool, vec![])
    }

    pub fn flatten(&mut self, name: &str) -> Result<()> {
        self.add(name, Flatten { axis: 1 }, vec![])
    }

    pub fn dropout(&mut self, name: &str, ratio: f32) -> Result<()> {
        self.add(name, Dropout { ratio }, vec![])
    }

    /// The sum of the last value and another.
    pub fn sum(&mut self, name: &str, other: ValueId) -> Result<()> {
        self.add(name, Add, vec![Some(other)])
    }

    /// The channels of the last value behind those of another.
    pub fn beside(&mut self, name: &str, other: ValueId) -> Result<()> {
        let last = std::mem::replace(&mut self.last, other);
        self.add(name, Concat { axis: 1 }, vec![Some(last)])
    }

    /// Fails unless samples are images of at least `least` × `least`.
    pub fn need_images(&self, least: usize) -> Result<()> {
        match self.shape().as_slice() {
            [_, h, w] if *h >= least && *w >= least => Ok(()),
            other => Err(Error::usage(format!("samples of {other:?} do not suit this network"))
                .hint(format!("it takes channels × height × width, at least {least}×{least}"))),
        }
    }

    pub fn finish(mut self) -> Result<Graph> {
        self.graph.add_output(self.last);
        Ok(self.graph)
    }
}

/// `units` times `width`, at least one.
pub(super) fn scaled(units: usize, width: f64) -> usize {
    ((units as f64 * width).round() as usize).max(1)
}

/// The windows of a square kernel.
fn square(size: usize, stride: usize, pad: usize) -> Vec<Window> {
    vec![Window { size, stride, dilation: 1, before: pad, after: pad }; 2]
}
