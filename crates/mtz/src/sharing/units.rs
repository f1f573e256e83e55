//! The units of a network: which positions along which axes belong to the same neuron or channel.
//!
//! Every operator says which of its axes move together ([`Op::links`](crate::op::Op::links)). Followed through the
//! graph, these links give each position of an axis the unit it carries: a flattened convolution has many positions per
//! channel, a residual sum makes the channels of its two sides one. Nothing is written by hand for an architecture.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId};
use crate::op::Op;
use crate::op::axes::{AxisLink, Port};
use crate::random;
use crate::tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet};

/// A neuron or channel: one number for all positions that belong to it.
pub type Unit = usize;

/// The units of a graph.
#[derive(Clone, Debug)]
pub struct Units {
    /// For each axis that is known: the unit at each position, before joining.
    axes: BTreeMap<(ValueId, usize), Vec<Option<Unit>>>,
    /// Units that turned out to be the same point to each other.
    parents: Vec<Unit>,
}

impl Units {
    /// Follows the links of all operators.
    pub fn of(graph: &Graph) -> Self {
        let mut units = Self { axes: BTreeMap::new(), parents: Vec::new() };
        for &id in graph.inputs() {
            for (axis, dim) in graph[id].shape.dims().iter().enumerate() {
                if let Some(len) = dim.fixed() {
                    units.fresh((id, axis), len);
                }
            }
        }
        // What a later node says of a value concerns its earlier readers too: again until nothing changes.
        loop {
            let mut changed = false;
            for node in graph.nodes() {
                changed |= units.follow(graph, node);
            }
            if !changed {
                return units;
            }
        }
    }

    /// The unit at each position of an axis; `None` where no unit is known.
    pub fn along(&self, id: ValueId, axis: usize) -> Option<Vec<Option<Unit>>> {
        let labels = self.axes.get(&(id, axis))?;
        Some(labels.iter().map(|unit| unit.map(|u| self.root(u))).collect())
    }

    fn root(&self, mut unit: Unit) -> Unit {
        while self.parents[unit] != unit {
            unit = self.parents[unit];
        }
        unit
    }

    fn fresh(&mut self, axis: (ValueId, usize), len: usize) {
        let first = self.parents.len();
        self.parents.extend(first..first + len);
        self.axes.insert(axis, (first..first + len).map(Some).collect());
    }

    /// Follows the links of one operator; whether that told anything new.
    fn follow(&mut self, graph: &Graph, node: &Node) -> bool {
        let known = links(graph, node);
        let mut changed = self.spread(&known);
        // The outputs of a layer that nobody has named yet are new units.
        if matches!(node.op, Op::Conv(_) | Op::Gemm(_) | Op::MatMul(_)) {
            for Link { part, whole, len, .. } in &known {
                let begins = whole.0 == node.output && graph[part.0].constant.is_some();
                if begins && !self.axes.contains_key(part) {
                    self.fresh(*part, *len);
                    changed |= self.spread(&known);
                }
            }
        }
        changed
    }

    /// Carries labels along links until nothing changes; whether anything did.
    fn spread(&mut self, links: &[Link]) -> bool {
        let mut changed_at_all = false;
        loop {
            let mut changed = false;
            for Link { link, part, whole, len, total } in links {
                let positions = |i: usize| {
                    let link = *link;
                    let len = *len;
                    (0..link.outer)
                        .flat_map(move |o| (0..link.inner).map(move |r| link.offset + (o * len + i) * link.inner + r))
                };
                match (self.axes.get(part).cloned(), self.axes.get(whole).cloned()) {
                    (Some(units), known) => {
                        let before = known.clone();
                        let mut labels = known.unwrap_or_else(|| vec![None; *total]);
                        for (i, unit) in units.iter().enumerate() {
                            for p in positions(i) {
                                match (labels.get(p).copied().flatten(), unit) {
                                    (None, Some(unit)) if p < labels.len() => labels[p] = Some(*unit),
                                    (Some(a), Some(b)) => changed |= self.join(a, *b),
                                    _ => {}
                                }
                            }
                        }
                        if before.as_ref() != Some(&labels) {
                            self.axes.insert(*whole, labels);
                            changed = true;
                        }
                    }
                    (None, Some(labels)) => {
                        // Only if all positions of an element carry the same unit.
                        let one = |i: usize| {
                            let mut found = positions(i).map(|p| labels.get(p).copied().flatten());
                            let first = found.next().flatten()?;
                            found.all(|u| u.map(|u| self.root(u)) == Some(self.root(first))).then_some(first)
                        };
                        let units: Option<Vec<Unit>> = (0..*len).map(one).collect();
                        if let Some(units) = units {
                            self.axes.insert(*part, units.into_iter().map(Some).collect());
                            changed = true;
                        }
                    }
                    (None, None) => {}
                }
            }
            changed_at_all |= changed;
            if !changed {
                return changed_at_all;
            }
        }
    }

    fn join(&mut self, a: Unit, b: Unit) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        let (low, high) = (a.min(b), a.max(b));
        self.parents[high] = low;
        low != high
    }

    /// Sets of units that can be exchanged with each other: those that occur together on all axes, and neither in an
    /// input nor in an output of the network.
    fn exchangeable(&self, graph: &Graph) -> Vec<Vec<Unit>> {
        let fixed: BTreeSet<Unit> = graph
            .inputs()
            .iter()
            .chain(graph.outputs())
            .flat_map(|&id| (0..graph[id].shape.rank()).filter_map(move |axis| self.along(id, axis)))
            .flatten()
            .flatten()
            .collect();
        // An axis that an operator reads without saying what follows from it must stay as it is. A mean does not care.
        let mut fixed = fixed;
        for node in graph.nodes().iter().filter(|n| !matches!(n.op, Op::ReduceMean(_))) {
            let links = links(graph, node);
            for &id in node.inputs.iter().flatten().filter(|id| graph[**id].constant.is_none()) {
                for axis in 0..graph[id].shape.rank() {
                    let other = |l: &Link| if l.part == (id, axis) { l.whole } else { l.part };
                    let mut here = links.iter().filter(|l| l.part == (id, axis) || l.whole == (id, axis));
                    if !here.any(|l| self.axes.contains_key(&other(l))) {
                        fixed.extend(self.along(id, axis).into_iter().flatten().flatten());
                    }
                }
            }
        }
        // Units with the same places, whatever the order, are alike.
        let mut places: BTreeMap<Unit, BTreeMap<(ValueId, usize), usize>> = BTreeMap::new();
        for (&(id, axis), labels) in &self.axes {
            for unit in labels.iter().flatten() {
                *places.entry(self.root(*unit)).or_default().entry((id, axis)).or_default() += 1;
            }
        }
        let mut sets: BTreeMap<BTreeMap<(ValueId, usize), usize>, Vec<Unit>> = BTreeMap::new();
        for (unit, places) in places.into_iter().filter(|(unit, _)| !fixed.contains(unit)) {
            sets.entry(places).or_default().push(unit);
        }
        sets.into_values().filter(|set| set.len() > 1).collect()
    }
}

/// A link between two axes of a graph, with their lengths.
struct Link {
    link: AxisLink,
    part: (ValueId, usize),
    whole: (ValueId, usize),
    len: usize,
    total: usize,
}

/// The links of a node.
fn links(graph: &Graph, node: &Node) -> Vec<Link> {
    // Two samples, so that an axis of the batch is not taken for one of length one. Links count the inputs that are
    // there.
    let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|id| graph[*id].shape.at(2)).collect();
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let output = graph[node.output].shape.at(2);
    let place = |(port, axis): (Port, usize)| {
        let (id, shape) = match port {
            Port::Input(i) => (*inputs.get(i)?, *shapes.get(i)?),
            Port::Output => (node.output, output.as_slice()),
        };
        Some(((id, axis), *shape.get(axis)?))
    };
    let links = node.op.links(&shapes, &output).into_iter().filter_map(|link| {
        let ((part, len), (whole, total)) = (place(link.part)?, place(link.whole)?);
        Some(Link { link, part, whole, len, total })
    });
    links.collect()
}

/// The same network with its hidden units in another, random order.
pub fn permute_hidden(graph: &Graph, seed: u64) -> Result<Graph> {
    let units = Units::of(graph);
    let mut target: BTreeMap<Unit, Unit> = BTreeMap::new();
    for (k, set) in units.exchangeable(graph).iter().enumerate() {
        let order = random::permutation(random::bits(seed, k as u64), set.len());
        target.extend(set.iter().zip(order).map(|(&unit, i)| (unit, set[i])));
    }
    let order = |id: ValueId, axis: usize| -> Option<Vec<usize>> {
        let labels = units.along(id, axis)?;
        let mut places: BTreeMap<Unit, Vec<usize>> = BTreeMap::new();
        for (p, unit) in labels.iter().enumerate() {
            places.entry((*unit)?).or_default().push(p);
        }
        let mut seen: BTreeMap<Unit, usize> = BTreeMap::new();
        labels
            .iter()
            .map(|unit| {
                let from = *target.get(&(*unit)?).unwrap_or(&(*unit)?);
                let count = seen.entry((*unit)?).or_default();
                *count += 1;
                places.get(&from)?.get(*count - 1).copied()
            })
            .collect()
    };
    graph.with_constants(|id, tensor| {
        let mut tensor = tensor.clone();
        for axis in 0..tensor.shape().len() {
            if let Some(order) = order(id, axis) {
                tensor = reorder(&tensor, axis, &order)?;
            }
        }
        Ok(tensor)
    })
}

/// Position i along an axis of the result is position `order[i]` of the tensor.
pub fn reorder(tensor: &Tensor, axis: usize, order: &[usize]) -> Result<Tensor> {
    let shape = tensor.shape();
    let len = shape.get(axis).copied().unwrap_or(0);
    let inner: usize = shape.iter().skip(axis + 1).product();
    if order.iter().any(|&i| i >= len) {
        return Err(Error::model("an order goes beyond its axis"));
    }
    let mut data = Vec::with_capacity(tensor.data().len());
    for block in tensor.data().chunks((len * inner).max(1)) {
        for &i in order {
            data.extend_from_slice(&block[i * inner..(i + 1) * inner]);
        }
    }
    let mut new = shape.to_vec();
    if let Some(dim) = new.get_mut(axis) {
        *dim = order.len();
    }
    Tensor::new(new, data)
}
