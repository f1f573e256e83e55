//! The layers whose units can be shared, with where each of their weights comes from.

use super::units::{Unit, Units};
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::op::{Conv, Op};
use crate::tensor::Tensor;
use std::collections::BTreeMap;

/// Where a position along a layer's input axis comes from. `rank`: the how manieth position of its unit it is, as after a flattening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The network's input.
    Input {
        /// Position along the axis.
        position: usize,
    },
    /// A unit of an earlier layer.
    Layer {
        /// Which layer.
        layer: usize,
        /// Which of its units.
        unit: usize,
        /// Which position of the unit.
        rank: usize,
    },
}

/// A fully connected or convolutional layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The position of its node in the graph.
    pub node: usize,
    /// The name of its node.
    pub name: String,
    /// Its weight.
    pub weight: ValueId,
    /// Its bias.
    pub bias: Option<ValueId>,
    /// What it reads.
    pub input: ValueId,
    /// What it computes: the pre-activation.
    pub output: ValueId,
    /// Its neurons or kernels.
    pub units: usize,
    /// One per position along the input axis of the weight.
    pub sources: Vec<Source>,
    /// Weights per position: the size of a kernel, 1 for a fully connected layer.
    pub taps: usize,
    /// For a convolution, its windows.
    pub conv: Option<Conv>,
    /// The weight is stored inputs × units.
    inputs_first: bool,
}

impl Layer {
    /// The layers of a network, in the order they run.
    pub fn all(graph: &Graph) -> Result<Vec<Self>> {
        let units = Units::of(graph);
        let mut layers: Vec<Self> = Vec::new();
        let mut owner: BTreeMap<Unit, (usize, usize)> = BTreeMap::new();
        for (node, n) in graph.nodes().iter().enumerate() {
            let (conv, inputs_first) = match &n.op {
                Op::Conv(conv) if conv.groups == 1 => (Some(conv.clone()), false),
                Op::Gemm(gemm) if gemm.alpha == 1.0 && gemm.beta == 1.0 && !gemm.transpose_a => {
                    (None, !gemm.transpose_b)
                }
                _ => continue,
            };
            let (Some(&Some(input)), Some(&Some(weight))) = (n.inputs.first(), n.inputs.get(1)) else { continue };
            let Some(tensor) = graph[weight].constant.as_ref() else { continue };
            let bias = n.inputs.get(2).copied().flatten();
            if bias.is_some_and(|b| {
                graph[b]
                    .constant
                    .as_ref()
                    .is_none_or(|t| t.data().len() != t.shape().iter().copied().max().unwrap_or(0))
            }) {
                continue;
            }
            let (out_axis, in_axis) = if inputs_first { (1, 0) } else { (0, 1) };
            let (count, width) = (tensor.shape()[out_axis], tensor.shape()[in_axis]);
            let taps = tensor.shape().iter().skip(2).product();
            let own = units.along(weight, out_axis).unwrap_or_default();
            let mut ranks: BTreeMap<Unit, usize> = BTreeMap::new();
            let labels = units.along(weight, in_axis).unwrap_or_else(|| vec![None; width]);
            let sources = labels.iter().enumerate().map(|(position, label)| {
                let from = label.and_then(|unit| owner.get(&unit).map(|&from| (unit, from)));
                from.map_or(Source::Input { position }, |(id, (layer, unit))| {
                    let rank = ranks.entry(id).or_default();
                    *rank += 1;
                    Source::Layer { layer, unit, rank: *rank - 1 }
                })
            });
            let sources = sources.collect();
            for (unit, id) in own.iter().enumerate() {
                owner.extend(id.map(|id| (id, (layers.len(), unit))));
            }
            let name = n.name.clone();
            let output = n.output;
            layers.push(Self {
                node,
                name,
                weight,
                bias,
                input,
                output,
                units: count,
                sources,
                taps,
                conv,
                inputs_first,
            });
        }
        if layers.is_empty() {
            return Err(Error::unsupported("the network has no fully connected or convolutional layer"));
        }
        Ok(layers)
    }

    /// ONNX's name for what it is.
    pub fn kind(&self) -> &'static str {
        if self.conv.is_some() { "Conv" } else { "Gemm" }
    }

    /// Weights of one unit, without its bias.
    pub fn columns(&self) -> usize {
        self.sources.len() * self.taps
    }

    /// Units × (columns + 1): each unit's weights, its bias behind them.
    pub fn read(&self, graph: &Graph) -> Vec<f32> {
        let data = |id: ValueId| graph[id].constant.as_ref().map_or(&[][..], Tensor::data);
        let (weight, bias) = (data(self.weight), self.bias.map(data));
        let columns = self.columns();
        let mut rows = Vec::with_capacity(self.units * (columns + 1));
        for unit in 0..self.units {
            rows.extend((0..columns).map(|k| weight[self.place(unit, k)]));
            rows.push(bias.map_or(0.0, |b| b[unit]));
        }
        rows
    }

    /// Whether zeros mean "no connection" here: so many weights are not zero by chance.
    pub fn is_sparse(&self, graph: &Graph) -> bool {
        const SHARE: usize = 20;
        let data = graph[self.weight].constant.as_ref().map_or(&[][..], Tensor::data);
        data.iter().filter(|x| **x == 0.0).count() * SHARE > data.len()
    }

    /// Where a weight stands in its tensor.
    pub fn place(&self, unit: usize, column: usize) -> usize {
        if self.inputs_first { column * self.units + unit } else { unit * self.columns() + column }
    }

    /// The network with other weights in this layer, given as [`Layer::read`] gives them.
    pub fn write(&self, graph: &Graph, rows: &[f32]) -> Result<Graph> {
        let columns = self.columns();
        graph.with_constants(|id, tensor| {
            let mut data = tensor.data().to_vec();
            if id == self.weight {
                for (unit, row) in rows.chunks(columns + 1).enumerate() {
                    (0..columns).for_each(|k| data[self.place(unit, k)] = row[k]);
                }
            } else if Some(id) == self.bias {
                data.iter_mut().zip(rows.chunks(columns + 1)).for_each(|(b, row)| *b = row[columns]);
            } else {
                return Ok(tensor.clone());
            }
            Tensor::new(tensor.shape().to_vec(), data)
        })
    }
}
