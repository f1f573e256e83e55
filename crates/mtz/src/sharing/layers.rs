//! The layers whose units can be shared, with where each of their weights comes from and where their answers go.

use super::units::{Unit, Units};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId};
use crate::op::{BatchNormalization, Conv, Op};
use crate::tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet};

/// Where a position along a layer's input axis comes from. `rank`: index of this position among all positions of the
/// same unit (a flattened channel has many).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The network's input.
    Input {
        /// Index among those positions of the layer that come from the input.
        position: usize,
    },
    /// Something that belongs to the task alone: a grouped convolution, or an operator that does not say which axes
    /// move together.
    Private {
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

/// A batch normalisation that alone reads what a layer computes. Layer and normalisation are one affine map; what is
/// measured and fitted is the whole of it, and the normalisation stays each task's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    op: BatchNormalization,
    scale: ValueId,
    bias: ValueId,
    mean: ValueId,
    variance: ValueId,
    output: ValueId,
}

/// The end of a residual block: the layer's answer is added to what another path brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// What the other path brings; it depends on earlier layers only.
    pub other: ValueId,
    /// The sum.
    pub output: ValueId,
}

/// New weights of one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Refit {
    /// Which unit.
    pub unit: usize,
    /// Its weights and behind them its bias, with the normalisation behind the layer folded in.
    pub row: Vec<f32>,
    /// What the normalisation multiplies the weights' answer by, before the bias is added.
    pub scale: f32,
    /// Mean and variance of what the weights, without the bias, answer: new statistics for the normalisation.
    pub spread: (f32, f32),
}

impl Refit {
    /// From numbers as they were solved for.
    pub fn new(unit: usize, row: &[f64], scale: f64, (mean, variance): (f64, f64)) -> Self {
        let row = row.iter().map(|w| *w as f32).collect();
        Self { unit, row, scale: scale as f32, spread: (mean as f32, variance as f32) }
    }
}

/// A fully connected or convolutional layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The position of its node in the graph.
    pub node: usize,
    /// The name of its node; of several nodes with one name, later ones have a number behind it.
    pub name: String,
    /// Whether an output of the network is reached from it with no other layer between. Heads are never shared.
    pub head: bool,
    /// Its weight.
    pub weight: ValueId,
    /// Its bias. A layer with a normalisation behind it has none ([`crate::simplify::for_zipping`]).
    pub bias: Option<ValueId>,
    /// What it reads.
    pub input: ValueId,
    /// What it computes.
    output: ValueId,
    /// The normalisation behind it.
    pub norm: Option<Norm>,
    /// The sum its answer goes into and nowhere else.
    pub sum: Option<Sum>,
    /// Whether nothing but rectifiers read its answer, or the sum: what is negative there does not count.
    pub rectified: bool,
    /// Where its units are added to those of an earlier layer (a residual stream): for each unit, that layer and its
    /// unit.
    pub stream: Option<Vec<(usize, usize)>>,
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
        let readers = Readers::of(graph);
        let ends = Ends::of(graph);
        let inputs = input_units(graph, &units);
        let mut layers: Vec<Self> = Vec::new();
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut owner: BTreeMap<Unit, (usize, usize)> = BTreeMap::new();
        for (node, n) in graph.nodes().iter().enumerate() {
            let (conv, inputs_first) = match &n.op {
                Op::Conv(conv) => (Some(conv.clone()), false),
                Op::Gemm(gemm) => (None, !gemm.transpose_b),
                _ => continue,
            };
            let (Some(&Some(input)), Some(&Some(weight))) = (n.inputs.first(), n.inputs.get(1)) else { continue };
            let (Some(tensor), None) = (graph[weight].constant.as_ref(), obstacle(graph, n)) else { continue };
            if ends.maps.contains(&node) {
                continue;
            }
            let bias = n.inputs.get(2).copied().flatten();
            let (out_axis, in_axis) = if inputs_first { (1, 0) } else { (0, 1) };
            let (count, width) = (tensor.shape()[out_axis], tensor.shape()[in_axis]);
            let taps = tensor.shape().iter().skip(2).product();
            let own = units.along(weight, out_axis).unwrap_or_default();
            let mut ranks: BTreeMap<Unit, usize> = BTreeMap::new();
            let labels = units.along(weight, in_axis).unwrap_or_else(|| vec![None; width]);
            // Where nothing with weights comes before the layer, it reads the input, however that was prepared.
            let first = !readers.depends.contains_key(&input);
            let mut read = 0;
            let sources = labels.iter().enumerate().map(|(position, label)| {
                if let Some((id, (layer, unit))) = label.and_then(|unit| Some((unit, *owner.get(&unit)?))) {
                    let rank = ranks.entry(id).or_default();
                    *rank += 1;
                    return Source::Layer { layer, unit, rank: *rank - 1 };
                }
                if !first && !label.is_some_and(|unit| inputs.contains(&unit)) {
                    return Source::Private { position };
                }
                read += 1;
                Source::Input { position: read - 1 }
            });
            let sources = sources.collect();
            let stream = one_to_one(own.iter().map(|id| id.and_then(|id| owner.get(&id).copied())));
            for (unit, id) in own.iter().enumerate() {
                owner.extend(id.map(|id| (id, (layers.len(), unit))));
            }
            let name = unique(&n.name, &mut names);
            let output = n.output;
            let norm = readers.only(output).and_then(|reader| Norm::node_after(graph, reader, output));
            let answer = norm.map_or(output, |n| n.output);
            let sum = readers.only(answer).and_then(|reader| readers.sum(graph, reader, answer, node));
            let rectified = readers.rectified(sum.map_or(answer, |s| s.output));
            layers.push(Self {
                node,
                name,
                head: ends.heads.contains(&node),
                weight,
                bias,
                input,
                output,
                norm,
                sum,
                rectified,
                stream,
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

    /// Nodes with weights whose units cannot be shared: name, weights, and why.
    pub fn private(graph: &Graph) -> Vec<(String, usize, &'static str)> {
        let weights = |n: &Node| {
            let tensors = n.inputs.iter().flatten().filter_map(|id| graph[*id].constant.as_ref());
            tensors.map(|t| t.data().len()).sum::<usize>()
        };
        let ends = Ends::of(graph);
        let nodes = graph.nodes().iter().enumerate();
        let nodes = nodes.filter(|(_, n)| matches!(n.op, Op::Conv(_) | Op::Gemm(_) | Op::MatMul(_)));
        let obstacles = nodes.filter_map(|(i, n)| {
            let map = ends.maps.contains(&i).then_some("it is a constant map behind an output layer");
            Some((n, map.or_else(|| obstacle(graph, n)).filter(|_| weights(n) > 0)?))
        });
        obstacles.map(|(n, why)| (n.name.clone(), weights(n), why)).collect()
    }

    /// The pre-activation: what it computes, normalised if a normalisation follows.
    pub fn answer(&self) -> ValueId {
        self.norm.map_or(self.output, |norm| norm.output)
    }

    /// Whether every answer has an offset of its own: a bias, or the normalisation's.
    pub fn has_offset(&self) -> bool {
        self.bias.is_some() || self.norm.is_some()
    }

    /// ONNX's name for what it is.
    pub fn kind(&self) -> &'static str {
        if self.conv.is_some() { "Conv" } else { "Gemm" }
    }

    /// How many times every unit answers for one sample: the output positions of a convolution.
    pub fn places(&self, graph: &Graph) -> usize {
        match self.conv {
            Some(_) => graph[self.output].shape.at(1).iter().skip(2).product(),
            None => 1,
        }
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

    /// The same with the normalisation behind the layer folded in: what the rows give is the answer.
    pub fn folded(&self, graph: &Graph) -> Vec<f32> {
        let mut rows = self.read(graph);
        if let Some(norm) = &self.norm {
            for (row, (factor, offset)) in rows.chunks_mut(self.columns() + 1).zip(norm.affine(graph)) {
                row.iter_mut().for_each(|w| *w *= factor);
                row.last_mut().into_iter().for_each(|bias| *bias += offset);
            }
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

    /// The network with other weights in some units. A layer in front of a normalisation takes them as they are, and
    /// the normalisation brings mean and offset: tasks with equal weights may so differ in statistics, scale and bias.
    pub fn write(&self, graph: &Graph, units: &[Refit]) -> Result<Graph> {
        let columns = self.columns();
        graph.with_constants(|id, tensor| {
            let norm = self.norm.filter(|norm| norm.parameters().contains(&id));
            if id != self.weight && Some(id) != self.bias && norm.is_none() {
                return Ok(tensor.clone());
            }
            let mut data = tensor.data().to_vec();
            if id == self.weight {
                for Refit { unit, row, .. } in units {
                    (0..columns).for_each(|k| data[self.place(*unit, k)] = row[k]);
                }
            } else if let Some(norm) = norm {
                units.iter().for_each(|new| data[new.unit] = norm.renewed(id, data[new.unit], new));
            } else {
                units.iter().for_each(|new| data[new.unit] = new.row[columns]);
            }
            Tensor::new(tensor.shape().to_vec(), data)
        })
    }
}

/// Why the units of a convolution or matrix product cannot be shared.
fn obstacle(graph: &Graph, node: &Node) -> Option<&'static str> {
    let constant = |i: usize| node.inputs.get(i).copied().flatten().map(|id| graph[id].constant.as_ref());
    // One number may stand for all units, and a column has one for each sample: neither is a row.
    let output = graph[node.output].shape.at(1);
    let units = if matches!(node.op, Op::Conv(_)) { output.get(1) } else { output.last() };
    let is_row = |t: &Tensor| units.is_some_and(|n| t.data().len() == *n && t.shape().last() == Some(n));
    match &node.op {
        Op::Conv(conv) if conv.groups > 1 => Some("its kernels read channels of their own (depthwise or grouped)"),
        Op::Gemm(gemm) if gemm.alpha != 1.0 || gemm.beta != 1.0 || gemm.transpose_a => {
            Some("it has factors of its own")
        }
        Op::MatMul(_) => Some("it multiplies more than rows with a matrix"),
        _ if constant(1).flatten().is_none() => Some("its weights are computed"),
        _ if constant(2).is_some_and(|bias| bias.is_none_or(|t| !is_row(t))) => {
            Some("its bias is not one number per unit")
        }
        _ => None,
    }
}

/// A name that is not taken yet: the name itself, or with a number behind it.
pub(crate) fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|n: usize| format!("{name}~{n}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| taken.insert(name.clone()));
    free.unwrap_or_else(|| name.to_owned())
}

/// Units of the network's inputs.
fn input_units(graph: &Graph, units: &Units) -> BTreeSet<Unit> {
    let axes = graph.inputs().iter().flat_map(|id| (0..graph[*id].shape.rank()).map(move |axis| (*id, axis)));
    axes.filter_map(|(id, axis)| units.along(id, axis)).flatten().flatten().collect()
}

/// Where a network ends, as positions of nodes.
struct Ends {
    /// Nodes with weights from which an output is reached with no other such node between.
    heads: BTreeSet<usize>,
    /// Constant maps behind them: nobody has trained these.
    maps: BTreeSet<usize>,
}

impl Ends {
    fn of(graph: &Graph) -> Self {
        let mut ends = Self { heads: BTreeSet::new(), maps: BTreeSet::new() };
        let mut reached: BTreeSet<ValueId> = graph.outputs().iter().copied().collect();
        for (i, node) in graph.nodes().iter().enumerate().rev().filter(|(_, n)| !n.inputs.is_empty()) {
            let weights = || node.inputs.iter().flatten().filter_map(|id| graph[*id].constant.as_ref());
            let weighted = matches!(node.op, Op::Conv(_) | Op::Gemm(_) | Op::MatMul(_)) && weights().next().is_some();
            if !reached.contains(&node.output) {
                continue;
            }
            if weighted && !is_constant_map(weights()) {
                ends.heads.insert(i);
            } else {
                ends.maps.extend(weighted.then_some(i));
                reached.extend(node.inputs.iter().flatten());
            }
        }
        ends
    }
}

/// Whether these are the weights of a map that was written down, not trained: one tensor of whole numbers, or of equal
/// ones. Detectors end in such maps: the mean of a distribution over 0, 1, 2, … (YOLOv8), say.
fn is_constant_map<'t>(mut weights: impl Iterator<Item = &'t Tensor>) -> bool {
    let (Some(only), None) = (weights.next(), weights.next()) else { return false };
    let data = only.data();
    let whole = data.iter().all(|x| x.fract() == 0.0);
    let equal = data.windows(2).all(|pair| pair.first() == pair.last());
    data.iter().any(|x| *x != 0.0) && (whole || equal)
}

/// The units of one earlier layer, each once.
fn one_to_one(units: impl Iterator<Item = Option<(usize, usize)>>) -> Option<Vec<(usize, usize)>> {
    let units: Vec<(usize, usize)> = units.collect::<Option<_>>()?;
    let distinct: BTreeSet<usize> = units.iter().map(|(_, unit)| *unit).collect();
    let first = units.first()?.0;
    (distinct.len() == units.len() && units.iter().all(|(layer, _)| *layer == first)).then_some(units)
}

/// A normalisation that belongs to no layer because something else stands in front of it: a sum or a concatenation, as
/// in pre-activation blocks, or a depthwise convolution.
#[derive(Clone, Copy, Debug)]
pub struct FreeNorm {
    /// The position of its node in the graph.
    pub node: usize,
    /// What it reads.
    pub input: ValueId,
    norm: Norm,
}

impl FreeNorm {
    /// All that there are in a network with these layers, in the order they run.
    pub fn all(graph: &Graph, layers: &[Layer]) -> Vec<Self> {
        let owned: BTreeSet<ValueId> = layers.iter().filter_map(|l| l.norm.map(|n| n.output)).collect();
        let nodes = graph.nodes().iter().enumerate().filter(|(_, n)| !owned.contains(&n.output));
        let free = |(node, n): (usize, &Node)| {
            let input = n.inputs.first().copied().flatten()?;
            Some(Self { node, input, norm: Norm::node_after(graph, n, input)? })
        };
        nodes.filter_map(free).collect()
    }

    /// What it computes.
    pub fn output(&self) -> ValueId {
        self.norm.output
    }

    /// The network with statistics that give channels with the second mean and variance the answers which those with
    /// the first had: with k² = v₁/v₂, mean = m₂ − (m₁ − mean)/k and variance + ε = (variance + ε)/k².
    pub fn moved(&self, graph: &Graph, before: &[(f64, f64)], now: &[(f64, f64)]) -> Result<Graph> {
        let epsilon = f64::from(self.norm.op.epsilon);
        // A channel that never changes has no deviation to bring back.
        let still = |variance: f64| variance <= 1e-12;
        let ratio = |v1: f64, v2: f64| if still(v1) || still(v2) { 1.0 } else { v1 / v2 };
        graph.with_constants(|id, tensor| {
            let channels = tensor.data().iter().map(|x| f64::from(*x)).zip(before.iter().zip(now));
            let data: Vec<f32> = match id {
                id if id == self.norm.mean => {
                    channels.map(|(mean, (b, n))| (n.0 - (b.0 - mean) / ratio(b.1, n.1).sqrt()) as f32).collect()
                }
                id if id == self.norm.variance => channels
                    .map(|(variance, (b, n))| ((variance + epsilon) / ratio(b.1, n.1) - epsilon).max(0.0) as f32)
                    .collect(),
                _ => return Ok(tensor.clone()),
            };
            Tensor::new(tensor.shape().to_vec(), data)
        })
    }
}

impl Norm {
    /// The normalisation that `node` is, if it is one and reads `value`.
    fn node_after(graph: &Graph, node: &Node, value: ValueId) -> Option<Self> {
        let (Op::BatchNormalization(op), &[Some(x), Some(scale), Some(bias), Some(mean), Some(variance)]) =
            (&node.op, node.inputs.as_slice())
        else {
            return None;
        };
        let constants = [scale, bias, mean, variance].iter().all(|id| graph[*id].constant.is_some());
        (x == value && constants).then_some(Self { op: *op, scale, bias, mean, variance, output: node.output })
    }

    fn parameters(&self) -> [ValueId; 4] {
        [self.scale, self.bias, self.mean, self.variance]
    }

    /// Factor and offset of each channel.
    fn affine(&self, graph: &Graph) -> Vec<(f32, f32)> {
        let data = |id: ValueId| graph[id].constant.as_ref().map_or(&[][..], Tensor::data);
        self.op.affine(data(self.scale), data(self.bias), data(self.mean), data(self.variance))
    }

    /// A parameter for weights that give the answer themselves, but for factor s and offset: scale = s √(variance + ε),
    /// bias = offset + s mean.
    fn renewed(&self, id: ValueId, old: f32, new: &Refit) -> f32 {
        let (mean, variance) = new.spread;
        match id {
            id if id == self.mean => mean,
            id if id == self.variance => variance,
            id if id == self.scale => new.scale * (variance + self.op.epsilon).sqrt(),
            _ => new.row.last().map_or(old, |offset| offset + new.scale * mean),
        }
    }
}

/// Who reads what.
struct Readers<'g> {
    nodes: BTreeMap<ValueId, Vec<&'g Node>>,
    outputs: &'g [ValueId],
    /// For each value, the last node with a weight that it depends on.
    depends: BTreeMap<ValueId, usize>,
}

impl<'g> Readers<'g> {
    fn of(graph: &'g Graph) -> Self {
        let (mut nodes, mut depends): (BTreeMap<ValueId, Vec<&Node>>, BTreeMap<ValueId, usize>) = Default::default();
        for (i, node) in graph.nodes().iter().enumerate() {
            let own = matches!(node.op, Op::Conv(_) | Op::Gemm(_) | Op::MatMul(_)).then_some(i);
            let last = node.inputs.iter().flatten().filter_map(|id| depends.get(id).copied()).max().max(own);
            depends.extend(last.map(|last| (node.output, last)));
            node.inputs.iter().flatten().for_each(|id| nodes.entry(*id).or_default().push(node));
        }
        Self { nodes, outputs: graph.outputs(), depends }
    }

    /// The only reader of a value.
    fn only(&self, value: ValueId) -> Option<&'g Node> {
        match self.nodes.get(&value).map(Vec::as_slice) {
            Some([one]) if !self.outputs.contains(&value) => Some(one),
            _ => None,
        }
    }

    /// Whether all readers give zero for what is negative.
    fn rectified(&self, value: ValueId) -> bool {
        let rectifier = |node: &&Node| match &node.op {
            Op::Relu(_) => true,
            Op::Clip(clip) => clip.min == 0.0,
            _ => false,
        };
        let readers = self.nodes.get(&value).map_or(&[][..], Vec::as_slice);
        !readers.is_empty() && !self.outputs.contains(&value) && readers.iter().all(rectifier)
    }

    /// The sum of `value` and something of the same shape that is known before `layer` runs.
    fn sum(&self, graph: &Graph, reader: &Node, value: ValueId, layer: usize) -> Option<Sum> {
        let (Op::Add(_), &[Some(a), Some(b)]) = (&reader.op, reader.inputs.as_slice()) else { return None };
        let other = if a == value { b } else { a };
        let known = other != value && self.depends.get(&other).is_none_or(|&last| last < layer);
        let alike = graph[other].shape == graph[value].shape && graph[other].constant.is_none();
        (known && alike).then_some(Sum { other, output: reader.output })
    }
}
