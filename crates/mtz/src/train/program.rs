//! A graph planned for training with one batch size: forward, then backward, in buffers that are allocated once.

use super::parameters::{Binding, Bindings, ParameterId, Parameters};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId};
use crate::op::{Gradient, Gradients, Inputs, Op, Pass, Training};
use crate::random;
use crate::run::CpuEngine;
use crate::tensor::{Tensor, View, ViewMut};
use rayon::prelude::*;

/// Weights that one thread gathers at least.
const GATHERED: usize = 1 << 14;

/// A graph ready for training.
#[derive(Debug)]
pub struct Program {
    graph: Graph,
    bindings: Bindings,
    shapes: Vec<Vec<usize>>,
    /// The numbers of each value. A weight bound to a whole parameter has none of its own.
    values: Vec<Vec<f32>>,
    /// What each node leaves for the backward pass.
    saved: Vec<Vec<f32>>,
    /// Where the gradient of each value goes, if it is needed.
    places: Vec<Option<Place>>,
    /// Whether a gradient has been started in this backward pass; if so, more is added to it.
    started: Vec<bool>,
    /// Buffers for gradients, shared by values whose gradients are not needed at the same time.
    buffers: Vec<Vec<f32>>,
    /// The share of the old running statistics that a step keeps, if not what each normalisation says.
    momentum: Option<f32>,
}

/// Where a gradient goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Into a buffer of the program.
    Buffer(usize),
    /// Straight into the parameter.
    Parameter(ParameterId),
}

/// A gradient taken out of its place while an operator fills it.
struct Taken {
    value: usize,
    place: Place,
    data: Vec<f32>,
    add: bool,
}

/// A network made ready for training steps by some engine.
pub trait TrainingProgram: Send {
    /// Computes all values in training mode, with random numbers from `seed`.
    fn forward(&mut self, parameters: &mut Parameters, inputs: &[Tensor], seed: u64) -> Result<()>;
    /// The numbers of an output after [`TrainingProgram::forward`].
    fn value(&self, id: ValueId) -> View<'_>;
    /// Adds to the gradients of all parameters, given the gradients of the outputs.
    fn backward(&mut self, parameters: &mut Parameters, outputs: &[&[f32]]) -> Result<()>;
    /// From now on a step keeps this share of the old running statistics.
    fn set_momentum(&mut self, momentum: f32);
}

/// What makes networks ready for training.
pub trait Learning: Sync {
    /// Makes `graph` ready for steps with `batch` samples each.
    fn learn(
        &self,
        graph: &Graph,
        bindings: Bindings,
        parameters: &Parameters,
        batch: usize,
    ) -> Box<dyn TrainingProgram>;
}

impl Learning for CpuEngine {
    fn learn(
        &self,
        graph: &Graph,
        bindings: Bindings,
        parameters: &Parameters,
        batch: usize,
    ) -> Box<dyn TrainingProgram> {
        Box::new(Program::new(graph, bindings, parameters, batch, false))
    }
}

impl TrainingProgram for Program {
    fn forward(&mut self, parameters: &mut Parameters, inputs: &[Tensor], seed: u64) -> Result<()> {
        Program::forward(self, parameters, inputs, seed)
    }

    fn value(&self, id: ValueId) -> View<'_> {
        Program::value(self, id)
    }

    fn backward(&mut self, parameters: &mut Parameters, outputs: &[&[f32]]) -> Result<()> {
        Program::backward(self, parameters, outputs)
    }

    fn set_momentum(&mut self, momentum: f32) {
        Program::set_momentum(self, momentum);
    }
}

impl Program {
    /// Plans a graph for batches of `batch` samples. `input_gradients`: the gradients of the inputs are wanted too.
    pub fn new(
        graph: &Graph,
        bindings: Bindings,
        parameters: &Parameters,
        batch: usize,
        input_gradients: bool,
    ) -> Self {
        let graph = graph.clone();
        let shapes: Vec<Vec<usize>> = graph.values().iter().map(|v| v.shape.at(batch)).collect();
        let counts: Vec<usize> = shapes.iter().map(|s| s.iter().product()).collect();
        let values = graph.ids().map(|id| match (&graph[id].constant, bindings.get(id)) {
            (Some(_), Some(Binding::Whole(_))) => Vec::new(),
            (Some(tensor), _) => tensor.data().to_vec(),
            (None, _) => vec![0.0; counts[id.index()]],
        });
        let values = values.collect();
        let saved = graph.nodes().iter().map(|node| {
            let inputs: Vec<&[usize]> = node.inputs.iter().flatten().map(|id| shapes[id.index()].as_slice()).collect();
            vec![0.0; node.op.saved(&inputs, &shapes[node.output.index()])]
        });
        let saved = saved.collect();
        let (places, sizes) = plan(&graph, &bindings, parameters, &counts, input_gradients);
        let started = vec![false; places.len()];
        let buffers = sizes.into_iter().map(|n| vec![0.0; n]).collect();
        Self { graph, bindings, shapes, values, saved, places, started, buffers, momentum: None }
    }

    /// About how many bytes a program takes beside its weights: values, what is saved, and buffers for gradients.
    pub fn bytes(graph: &Graph, batch: usize) -> u64 {
        let shapes: Vec<Vec<usize>> = graph.values().iter().map(|v| v.shape.at(batch)).collect();
        let count = |id: &ValueId| shapes[id.index()].iter().product::<usize>();
        let (mut all, mut largest) = (graph.inputs().iter().map(count).sum::<usize>(), 0);
        for node in graph.nodes() {
            let inputs: Vec<&[usize]> = node.inputs.iter().flatten().map(|id| shapes[id.index()].as_slice()).collect();
            all += count(&node.output) + node.op.saved(&inputs, &shapes[node.output.index()]);
            largest = largest.max(count(&node.output));
        }
        // Gradients share buffers; a chain needs two, a residual block one more.
        4 * (all + 3 * largest) as u64
    }

    /// The graph, with the weights it had when it was planned.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How its weights are bound.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// The numbers of a value after [`Program::forward`].
    pub fn value(&self, id: ValueId) -> View<'_> {
        View { shape: &self.shapes[id.index()], data: &self.values[id.index()] }
    }

    /// The gradient of an input after [`Program::backward`], if it was asked for.
    pub fn input_gradient(&self, id: ValueId) -> Option<&[f32]> {
        match self.places[id.index()] {
            Some(Place::Buffer(b)) if self.started[id.index()] => {
                Some(&self.buffers[b][..self.values[id.index()].len()])
            }
            _ => None,
        }
    }

    /// From now on a step keeps this share of the old running statistics, whatever each normalisation says.
    pub fn set_momentum(&mut self, momentum: f32) {
        self.momentum = Some(momentum);
    }

    /// Computes all values in training mode: batch statistics instead of running ones (which are updated), and dropout
    /// by random numbers from `seed`.
    pub fn forward(&mut self, parameters: &mut Parameters, inputs: &[Tensor], seed: u64) -> Result<()> {
        for (id, tensor) in self.graph.inputs().iter().zip(inputs) {
            if tensor.shape() != self.shapes[id.index()] {
                let (name, shape) = (&self.graph[*id].name, &self.shapes[id.index()]);
                return Err(Error::data(format!("input {name:?} expects {shape:?}, got {:?}", tensor.shape())));
            }
            self.values[id.index()].copy_from_slice(tensor.data());
        }
        for (id, binding) in self.bindings.iter() {
            if let Binding::Elements(parameter, indices) = binding {
                let data = parameters.data(*parameter);
                let values = self.values[id.index()].par_iter_mut().with_min_len(GATHERED);
                values.zip(indices.par_iter()).for_each(|(x, &i)| *x = data[i as usize]);
            }
        }
        for (i, node) in self.graph.nodes().iter().enumerate() {
            let mut output = std::mem::take(&mut self.values[node.output.index()]);
            let views = views(node, &self.shapes, &self.values, &self.bindings, parameters);
            let out = ViewMut { shape: &self.shapes[node.output.index()], data: &mut output };
            let mut training = Training { saved: &mut self.saved[i], seed: random::bits(seed, i as u64) };
            node.op.forward_training(&Inputs(&views), out, &mut training);
            self.values[node.output.index()] = output;
            if let Op::BatchNormalization(norm) = &node.op {
                let count = self.values[node.output.index()].len() / (self.saved[i].len() / 2).max(1);
                let momentum = self.momentum.unwrap_or(norm.momentum);
                update_statistics(momentum, node, &self.saved[i], count, &self.bindings, parameters);
            }
        }
        Ok(())
    }

    /// Adds to the gradients of all parameters, given the gradients of the outputs; [`Program::forward`] comes before.
    pub fn backward(&mut self, parameters: &mut Parameters, outputs: &[&[f32]]) -> Result<()> {
        self.started.fill(false);
        for (id, grad) in self.graph.outputs().iter().zip(outputs) {
            let Some(Place::Buffer(b)) = self.places[id.index()] else { continue };
            if grad.len() != self.values[id.index()].len() {
                let name = &self.graph[*id].name;
                return Err(Error::usage(format!("the gradient of {name:?} has {} numbers", grad.len())));
            }
            // Two outputs may be one value: logits, and the logits that a softmax reads.
            if std::mem::replace(&mut self.started[id.index()], true) {
                self.buffers[b].iter_mut().zip(*grad).for_each(|(sum, g)| *sum += g);
            } else {
                self.buffers[b][..grad.len()].copy_from_slice(grad);
            }
        }
        for i in (0..self.graph.nodes().len()).rev() {
            self.node_backward(i, parameters);
        }
        // Weights made of chosen elements of a parameter send their gradients there, in a fixed order.
        for (id, binding) in self.bindings.iter() {
            if let (Binding::Elements(parameter, indices), Some(Place::Buffer(b))) = (binding, self.places[id.index()])
                && self.started[id.index()]
            {
                let grad = &mut parameters.get_mut(*parameter).grad;
                indices.iter().zip(&self.buffers[b]).for_each(|(&i, g)| grad[i as usize] += g);
            }
        }
        Ok(())
    }

    fn node_backward(&mut self, i: usize, parameters: &mut Parameters) {
        let node = &self.graph.nodes()[i];
        let out = node.output.index();
        let Some(Place::Buffer(slot)) = self.places[out].filter(|_| self.started[out]) else { return };
        let grad = std::mem::take(&mut self.buffers[slot]);
        // The buffers are taken out of their places while the operator fills them. A value that is read twice by the
        // same node (x · x) gets a second one, which is added afterwards.
        let mut targets: Vec<Option<Taken>> = Vec::new();
        for (k, id) in node.inputs.iter().enumerate() {
            let place = id.and_then(|id| Some((id.index(), self.places[id.index()]?)));
            targets.push(place.map(|(v, place)| {
                let (data, add) = match place {
                    _ if node.inputs[..k].contains(id) => (vec![0.0; self.shapes[v].iter().product()], false),
                    Place::Parameter(p) => (std::mem::take(&mut parameters.get_mut(p).grad), true),
                    Place::Buffer(b) => (std::mem::take(&mut self.buffers[b]), self.started[v]),
                };
                Taken { value: v, place, data, add }
            }));
        }
        let views = views(node, &self.shapes, &self.values, &self.bindings, parameters);
        let pass = Pass {
            inputs: Inputs(&views),
            output: View { shape: &self.shapes[out], data: &self.values[out] },
            saved: &self.saved[i],
            grad: View { shape: &self.shapes[out], data: &grad[..self.values[out].len()] },
        };
        let shapes = &self.shapes;
        let wanted = targets.iter_mut().map(|target| {
            target.as_mut().map(|t| {
                let count = shapes[t.value].iter().product();
                Gradient { data: &mut t.data[..count], add: t.add }
            })
        });
        node.op.backward(&pass, &mut Gradients(wanted.collect()));
        for (k, target) in targets.into_iter().enumerate() {
            let Some(Taken { value, place, data, .. }) = target else { continue };
            let home = match place {
                Place::Parameter(p) => &mut parameters.get_mut(p).grad,
                Place::Buffer(b) => &mut self.buffers[b],
            };
            if node.inputs[..k].contains(&node.inputs[k]) {
                home.iter_mut().zip(&data).for_each(|(sum, g)| *sum += g);
            } else {
                *home = data;
            }
            self.started[value] = true;
        }
        self.buffers[slot] = grad;
    }
}

/// The inputs of a node, from the program's own values or straight from the parameters.
fn views<'a>(
    node: &Node,
    shapes: &'a [Vec<usize>],
    values: &'a [Vec<f32>],
    bindings: &Bindings,
    parameters: &'a Parameters,
) -> Vec<Option<View<'a>>> {
    let view = |id: ValueId| View {
        shape: &shapes[id.index()],
        data: match bindings.get(id) {
            Some(Binding::Whole(parameter)) => parameters.data(*parameter),
            _ => &values[id.index()],
        },
    };
    node.inputs.iter().map(|id| id.map(view)).collect()
}

/// running ← momentum · running + (1 − momentum) · batch, with the variance of the batch made unbiased as others do.
fn update_statistics(
    momentum: f32,
    node: &Node,
    saved: &[f32],
    count: usize,
    bindings: &Bindings,
    parameters: &mut Parameters,
) {
    let (means, variances) = saved.split_at(saved.len() / 2);
    let unbiased = count as f32 / (count as f32 - 1.0).max(1.0);
    for (input, batch, factor) in [(3, means, 1.0), (4, variances, unbiased)] {
        let id = node.inputs.get(input).copied().flatten();
        if let Some(Binding::Whole(parameter)) = id.and_then(|id| bindings.get(id)) {
            let running = &mut parameters.get_mut(*parameter).data;
            running.iter_mut().zip(batch).for_each(|(r, b)| *r = momentum * *r + (1.0 - momentum) * b * factor);
        }
    }
}

/// Where each value's gradient goes, and the sizes of the buffers. A gradient is alive from the last reader of its
/// value to the value's own node; gradients that are never alive together share a buffer.
fn plan(
    graph: &Graph,
    bindings: &Bindings,
    parameters: &Parameters,
    counts: &[usize],
    input_gradients: bool,
) -> (Vec<Option<Place>>, Vec<usize>) {
    let mut needed = vec![false; counts.len()];
    for (id, binding) in bindings.iter() {
        needed[id.index()] = parameters.is_trainable(binding.parameter());
    }
    for id in graph.inputs() {
        needed[id.index()] = input_gradients;
    }
    for node in graph.nodes() {
        needed[node.output.index()] = node.inputs.iter().flatten().any(|id| needed[id.index()]);
    }
    let mut places: Vec<Option<Place>> = vec![None; counts.len()];
    let (mut sizes, mut free): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut allocate = |count: usize, free: &mut Vec<usize>| {
        // The free buffer that fits best, or the largest one grown, or a new one.
        let fit = |b: &usize| (sizes[*b] < count, sizes[*b].abs_diff(count));
        let best = free.iter().enumerate().min_by_key(|(_, b)| fit(b)).map(|(i, _)| i);
        let buffer = best.map(|i| free.swap_remove(i)).unwrap_or_else(|| {
            sizes.push(0);
            sizes.len() - 1
        });
        sizes[buffer] = sizes[buffer].max(count);
        buffer
    };
    for id in graph.outputs().iter().filter(|id| needed[id.index()]) {
        places[id.index()].get_or_insert_with(|| Place::Buffer(allocate(counts[id.index()], &mut free)));
    }
    for node in graph.nodes().iter().rev() {
        let Some(Place::Buffer(own)) = places[node.output.index()] else { continue };
        for id in node.inputs.iter().flatten().filter(|id| needed[id.index()]) {
            places[id.index()].get_or_insert_with(|| match bindings.get(*id) {
                Some(Binding::Whole(parameter)) => Place::Parameter(*parameter),
                // Inputs and bound elements are read after the pass: theirs are never given back below.
                _ => Place::Buffer(allocate(counts[id.index()], &mut free)),
            });
        }
        free.push(own);
    }
    (places, sizes)
}
