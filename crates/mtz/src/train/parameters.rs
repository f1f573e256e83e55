//! The numbers that training changes, and how graphs use them.

use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::op::Op;
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(usize);

/// One tensor that training changes.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub data: Vec<f32>,
    pub grad: Vec<f32>,
    /// 0 where the number must stay zero, 1 elsewhere.
    pub mask: Option<Vec<f32>>,
    /// Whether weight decay applies: to weights, not to biases and scales.
    pub decay: bool,
    /// Changed by the optimizer; running statistics are not.
    pub trainable: bool,
}

/// All numbers that training changes.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    list: Vec<Parameter>,
}

impl Parameters {
    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor. `decay`: weight decay applies to it.
    pub fn add(&mut self, data: Vec<f32>, decay: bool) -> ParameterId {
        self.push(data, decay, true)
    }

    fn push(&mut self, data: Vec<f32>, decay: bool, trainable: bool) -> ParameterId {
        let grad = if trainable { vec![0.0; data.len()] } else { Vec::new() };
        self.list.push(Parameter { data, grad, mask: None, decay, trainable });
        ParameterId(self.list.len() - 1)
    }

    /// The numbers of a parameter.
    pub fn data(&self, id: ParameterId) -> &[f32] {
        &self.list[id.0].data
    }

    /// The gradient of a parameter: what [`super::Program::backward`] added since [`Parameters::clear_gradients`].
    pub fn gradient(&self, id: ParameterId) -> &[f32] {
        &self.list[id.0].grad
    }

    /// Keeps numbers at zero: where `mask` is false, the number is set to zero now and after every step.
    pub fn set_mask(&mut self, id: ParameterId, mask: &[bool]) -> Result<()> {
        let parameter = &mut self.list[id.0];
        if mask.len() != parameter.data.len() {
            return Err(Error::usage(format!("a mask of {} for {} numbers", mask.len(), parameter.data.len())));
        }
        let mask: Vec<f32> = mask.iter().map(|&keep| if keep { 1.0 } else { 0.0 }).collect();
        parameter.data.iter_mut().zip(&mask).for_each(|(x, m)| *x *= m);
        parameter.mask = Some(mask);
        Ok(())
    }

    /// Sets all gradients to zero.
    pub fn clear_gradients(&mut self) {
        self.list.iter_mut().for_each(|p| p.grad.fill(0.0));
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Parameter> {
        self.list.iter_mut()
    }

    pub(super) fn is_trainable(&self, id: ParameterId) -> bool {
        self.list[id.0].trainable
    }

    pub(super) fn get_mut(&mut self, id: ParameterId) -> &mut Parameter {
        &mut self.list[id.0]
    }

    /// The numbers of all parameters, to go back to them later.
    pub fn snapshot(&self) -> Vec<Vec<f32>> {
        self.list.iter().map(|p| p.data.clone()).collect()
    }

    /// Moves every number a part of the way to that of `others`, which are as many.
    pub fn move_towards(&mut self, others: &Self, part: f32) {
        for (own, other) in self.list.iter_mut().zip(&others.list) {
            own.data.iter_mut().zip(&other.data).for_each(|(x, y)| *x += part * (y - *x));
        }
    }

    /// Goes back to a snapshot.
    pub fn restore(&mut self, snapshot: &[Vec<f32>]) {
        for (parameter, data) in self.list.iter_mut().zip(snapshot) {
            parameter.data.clone_from(data);
        }
    }
}

/// How a weight of a graph is made from parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// It is the parameter.
    Whole(ParameterId),
    /// Its element k is element `indices[k]` of the parameter: several graphs can use parts of one tensor.
    Elements(ParameterId, Arc<[u32]>),
}

impl Binding {
    pub(super) fn parameter(&self) -> ParameterId {
        match self {
            Self::Whole(id) | Self::Elements(id, _) => *id,
        }
    }
}

/// The bindings of a graph's weights. Constants that are not bound stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Bindings(BTreeMap<ValueId, Binding>);

impl Bindings {
    /// A parameter of its own for every trainable weight of the graph, and for every running statistic.
    pub fn of(graph: &Graph, parameters: &mut Parameters) -> Self {
        Self::of_some(graph, parameters, |_| true)
    }

    /// The same, for those weights that `wanted` chooses.
    pub fn of_some(graph: &Graph, parameters: &mut Parameters, wanted: impl Fn(ValueId) -> bool) -> Self {
        let mut bindings = Self::default();
        for (id, role) in roles(graph) {
            if let Some(tensor) = &graph[id].constant
                && wanted(id)
                && !bindings.0.contains_key(&id)
            {
                let decay = role == Role::Weight && tensor.shape().len() > 1;
                let parameter = parameters.push(tensor.data().to_vec(), decay, role == Role::Weight);
                bindings.0.insert(id, Binding::Whole(parameter));
            }
        }
        bindings
    }

    /// Binds a weight, in place of what it was bound to.
    pub fn bind(&mut self, id: ValueId, binding: Binding) {
        self.0.insert(id, binding);
    }

    /// All bound weights, in the order of their values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ValueId, &Binding)> {
        self.0.iter().map(|(id, binding)| (*id, binding))
    }

    /// What a weight is bound to.
    pub fn get(&self, id: ValueId) -> Option<&Binding> {
        self.0.get(&id)
    }

    /// The graph with the present numbers of its parameters as weights.
    pub fn apply(&self, graph: &Graph, parameters: &Parameters) -> Result<Graph> {
        graph.with_constants(|id, tensor| {
            let data = match self.0.get(&id) {
                None => return Ok(tensor.clone()),
                Some(Binding::Whole(p)) => parameters.data(*p).to_vec(),
                Some(Binding::Elements(p, indices)) => {
                    let data = parameters.data(*p);
                    indices.iter().map(|&i| data[i as usize]).collect()
                }
            };
            Tensor::new(tensor.shape().to_vec(), data)
        })
    }
}

/// What a constant is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Weight,
    Statistic,
}

/// The constants that training changes: weights of layers, and running statistics of batch normalisation. Other
/// constants (a mean subtracted from the input, say) are part of the network's definition.
fn roles(graph: &Graph) -> Vec<(ValueId, Role)> {
    let mut found = Vec::new();
    let mut products = Vec::new();
    for node in graph.nodes() {
        let inputs = || node.inputs.iter().enumerate().filter_map(|(i, id)| id.map(|id| (i, id)));
        match &node.op {
            Op::Conv(_) | Op::Gemm(_) | Op::PRelu(_) | Op::LayerNormalization(_) => {
                found.extend(inputs().filter(|(i, _)| *i > 0).map(|(_, id)| (id, Role::Weight)));
            }
            Op::BatchNormalization(_) => {
                found.extend(inputs().filter(|(i, _)| (1..3).contains(i)).map(|(_, id)| (id, Role::Weight)));
                found.extend(inputs().filter(|(i, _)| *i > 2).map(|(_, id)| (id, Role::Statistic)));
            }
            Op::MatMul(_) => {
                found.extend(inputs().map(|(_, id)| (id, Role::Weight)));
                products.push(node.output);
            }
            // The bias of a product.
            Op::Add(_) if inputs().any(|(_, id)| products.contains(&id)) => {
                found.extend(inputs().map(|(_, id)| (id, Role::Weight)));
            }
            _ => {}
        }
    }
    found.retain(|(id, _)| graph[*id].constant.is_some());
    found
}
