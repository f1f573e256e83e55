//! The network as a graph: values (tensors with a name and a shape) and nodes (operators in an order that can be run).
//!
//! A constant value is a weight. Every node has one output. Identifiers are positions, given in the order
//! inputs, then node by node its constants and its output, so two equal networks have equal graphs.

mod open_batch;

use crate::error::{Error, Result};
use crate::op::{Op, Shapes};
use crate::tensor::{Dim, Element, Shape, Tensor};
use std::collections::{HashMap, HashSet};

/// A value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(usize);

impl ValueId {
    /// Its position in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// A tensor: an input, a weight or the output of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its name, unique in the graph.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Its numbers, if it is a weight.
    pub constant: Option<Tensor>,
    /// Of an input or an output: the type it has in a file. Says nothing about other values.
    pub element: Element,
}

/// An operator with what it reads and writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name, for messages.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// What it reads; optional inputs may be left out.
    pub inputs: Vec<Option<ValueId>>,
    /// What it writes.
    pub output: ValueId,
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Its name.
    pub name: String,
    values: Vec<Value>,
    nodes: Vec<Node>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    /// How weights are stored in a file, and what a runtime computes in. In memory they are f32, whatever this says.
    pub element: Element,
    /// Free text that travels with the file.
    pub metadata: Vec<(String, String)>,
}

impl std::ops::Index<ValueId> for Graph {
    type Output = Value;

    fn index(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All nodes, each behind those it reads from.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What the network reads.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// What the network computes.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// The identifiers of all values, in order.
    pub fn ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len()).map(ValueId)
    }

    /// The same graph with other weights of the same shapes.
    pub fn with_constants(&self, mut change: impl FnMut(ValueId, &Tensor) -> Result<Tensor>) -> Result<Self> {
        let mut graph = self.clone();
        for (i, value) in graph.values.iter_mut().enumerate() {
            if let Some(tensor) = &value.constant {
                let new = change(ValueId(i), tensor)?;
                if new.shape() != tensor.shape() {
                    return Err(Error::model(format!("weight {:?} would change its shape", value.name)));
                }
                value.constant = Some(new);
            }
        }
        Ok(graph)
    }

    /// Whether a value changes with the network's input.
    pub fn depends_on_inputs(&self, id: ValueId) -> bool {
        let mut live: HashSet<ValueId> = self.inputs.iter().copied().collect();
        for node in &self.nodes {
            if node.inputs.iter().flatten().any(|id| live.contains(id)) {
                live.insert(node.output);
            }
        }
        live.contains(&id)
    }

    /// The value called `name`.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.values.iter().position(|v| v.name == name).map(ValueId)
    }

    /// Whether no value and no node has this name.
    pub fn is_free(&self, name: &str) -> bool {
        self.values.iter().all(|v| v.name != name) && self.nodes.iter().all(|n| n.name != name)
    }

    fn add_value(&mut self, name: String, shape: Shape, constant: Option<Tensor>) -> ValueId {
        self.values.push(Value { name, shape, constant, element: Element::F32 });
        ValueId(self.values.len() - 1)
    }

    /// Adds an input.
    pub fn add_input(&mut self, name: impl Into<String>, shape: Shape) -> ValueId {
        let id = self.add_value(name.into(), shape, None);
        self.inputs.push(id);
        id
    }

    /// Adds a weight.
    pub fn add_constant(&mut self, name: impl Into<String>, tensor: Tensor) -> Result<ValueId> {
        let shape = Shape::fixed(tensor.shape())?;
        Ok(self.add_value(name.into(), shape, Some(tensor)))
    }

    /// Adds a node behind all others; its output is called `output` and gets its shape from the operator's rule.
    pub fn add_node(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        inputs: Vec<Option<ValueId>>,
        output: impl Into<String>,
    ) -> Result<ValueId> {
        let (name, op) = (name.into(), op.into());
        let shapes: Vec<Option<&Shape>> = inputs.iter().map(|id| id.map(|id| &self[id].shape)).collect();
        let shape = op.shape(&Shapes(&shapes)).map_err(|e| e.at_node(&name))?;
        let output = self.add_value(output.into(), shape, None);
        self.nodes.push(Node { name, op, inputs, output });
        Ok(output)
    }

    /// `id` under another name: renamed if a node computes it and it is no output yet, through an `Identity` otherwise.
    pub(crate) fn renamed(&mut self, id: ValueId, name: &str) -> Result<ValueId> {
        let computed = self.nodes.iter().any(|n| n.output == id) && !self.outputs.contains(&id);
        match self.values.get_mut(id.0) {
            Some(value) if computed => {
                value.name = name.to_owned();
                Ok(id)
            }
            _ => self.add_node(name, crate::op::Identity, vec![Some(id)], name),
        }
    }

    /// Marks a value as output.
    pub fn add_output(&mut self, id: ValueId) {
        self.outputs.push(id);
    }

    /// How many numbers an output has for a sample, if they stand in one row: axes of length one do not count. Labels
    /// are made for such rows.
    pub fn row_of_scores(&self, output: ValueId) -> Option<usize> {
        let batch = self.fixed_batch().map_or(Dim::Batch(1), Dim::Fixed);
        let (first, rest) = self.values.get(output.0)?.shape.dims().split_first()?;
        let sizes: Vec<usize> = rest.iter().map(|d| d.fixed()).collect::<Option<_>>()?;
        let one_row = *first == batch && sizes.iter().filter(|n| **n != 1).count() <= 1;
        one_row.then(|| sizes.iter().product())
    }

    /// Fails if a weight is not a number, or if a layer has an infinite one: nothing can be computed with it. (Masks
    /// may have infinite constants.)
    pub fn check_weights(&self) -> Result<()> {
        let layers = self.nodes.iter().filter(|node| node.op.has_weights());
        let weights: HashSet<ValueId> = layers.flat_map(|node| node.inputs.iter().flatten()).copied().collect();
        for (i, value) in self.values.iter().enumerate() {
            let data = value.constant.as_ref().map_or(&[][..], Tensor::data);
            let wrong = |x: &f32| x.is_nan() || x.is_infinite() && weights.contains(&ValueId(i));
            let count = data.iter().filter(|x| wrong(x)).count();
            if count > 0 {
                let error =
                    format!("tensor {:?} has {count} numbers of {} that are NaN or infinite", value.name, data.len());
                let error = Error::model(error).hint(
                    "training has diverged, or the file is damaged: use an earlier checkpoint, or export it again",
                );
                let reader = self.nodes.iter().find(|node| node.inputs.contains(&Some(ValueId(i))));
                return Err(match reader {
                    Some(node) => error.at_node(&node.name),
                    None => error,
                });
            }
        }
        Ok(())
    }

    /// The same network, stored as another type. Inputs and outputs keep theirs.
    #[must_use]
    pub fn with_element(&self, element: Element) -> Self {
        Self { element, ..self.clone() }
    }

    /// Says which type an input or an output has in a file.
    pub fn set_element(&mut self, id: ValueId, element: Element) {
        if let Some(value) = self.values.get_mut(id.0) {
            value.element = element;
        }
    }

    /// The same network with all weights rounded to what its element type can hold, so that it is what its file will
    /// be. A weight beyond the type's range is an error.
    pub fn rounded(&self) -> Result<Self> {
        if self.element == Element::F32 {
            return Ok(self.clone());
        }
        let mut graph = self.with_constants(|id, tensor| {
            let rounded = tensor.data().iter().map(|&x| self.element.nearest(x).ok_or(x));
            let data = rounded.collect::<std::result::Result<Vec<f32>, f32>>();
            Tensor::new(tensor.shape().to_vec(), data.map_err(|x| beyond(self.element, &self[id].name, x))?)
        })?;
        graph.nodes.iter_mut().for_each(|node| node.op.round(self.element));
        Ok(graph)
    }

    /// The same, and nothing is dropped in training; values keep their identifiers.
    pub fn without_dropout(&self) -> Self {
        let mut graph = self.clone();
        for node in &mut graph.nodes {
            if let Op::Dropout(dropout) = &mut node.op {
                dropout.ratio = 0.0;
            }
        }
        graph
    }

    /// The same with other outputs; values keep their identifiers.
    pub fn with_outputs(&self, outputs: Vec<ValueId>) -> Self {
        Self { outputs, ..self.clone() }
    }

    /// The same network with nodes in another order: each of `first`, positions of nodes, comes as early as what it
    /// reads allows, in this order; the others follow as they were.
    pub fn with_first(&self, first: &[usize]) -> Result<Self> {
        let producers: HashMap<ValueId, usize> = self.nodes.iter().enumerate().map(|(i, n)| (n.output, i)).collect();
        let (mut order, mut placed) = (Vec::with_capacity(self.nodes.len()), vec![false; self.nodes.len()]);
        for last in first.iter().copied().chain(0..self.nodes.len()) {
            // What it depends on, nearest first; nodes come behind those they read from, so ascending positions can be
            // run.
            let (mut needed, mut waiting) = (Vec::new(), vec![last]);
            while let Some(i) = waiting.pop() {
                let Some(node) = self.nodes.get(i) else { return Err(Error::usage("there is no such node")) };
                if !std::mem::replace(&mut placed[i], true) {
                    needed.push(i);
                    waiting.extend(node.inputs.iter().flatten().filter_map(|id| producers.get(id)));
                }
            }
            needed.sort_unstable();
            order.extend(needed);
        }
        let moved = Self { nodes: order.into_iter().map(|i| self.nodes[i].clone()).collect(), ..self.clone() };
        moved.rebuild(|input| input.shape.clone(), |build, node| build.copy(node))
    }

    /// The part of the graph that computes these values, as its outputs.
    pub fn up_to(&self, outputs: &[ValueId]) -> Result<Self> {
        let mut live: HashSet<ValueId> = outputs.iter().copied().collect();
        for node in self.nodes.iter().rev() {
            if live.contains(&node.output) {
                live.extend(node.inputs.iter().flatten());
            }
        }
        let inputs = self.inputs.iter().copied().filter(|id| live.contains(id)).collect();
        let part = Self { inputs, outputs: outputs.to_vec(), ..self.clone() };
        part.rebuild(|input| input.shape.clone(), |build, node| build.copy(node))
    }

    /// The part of the graph that computes `outputs` from `inputs`, which may be any values.
    pub fn between(&self, inputs: &[ValueId], outputs: &[ValueId]) -> Result<Self> {
        let mut part = Self { inputs: inputs.to_vec(), outputs: outputs.to_vec(), ..self.clone() };
        part.nodes.retain(|node| !inputs.contains(&node.output));
        part.rebuild(|input| input.shape.clone(), |build, node| build.copy(node))
    }

    /// Gives nodes and values other names.
    pub fn rename(&mut self, mut name: impl FnMut(&str) -> String) {
        self.values.iter_mut().for_each(|v| v.name = name(&v.name));
        self.nodes.iter_mut().for_each(|n| n.name = name(&n.name));
    }

    /// Copies the graph node by node. `rewrite` sees each node with its inputs mapped to the new graph; it adds what
    /// should stand in its place and returns the new value of its output. Nodes nothing depends on are left out, and
    /// all shapes are computed anew, starting from `input_shape` of each input.
    pub fn rebuild(
        &self,
        input_shape: impl Fn(&Value) -> Shape,
        mut rewrite: impl FnMut(&mut Rebuild, &Node) -> Result<ValueId>,
    ) -> Result<Self> {
        let mut live: HashSet<ValueId> = self.outputs.iter().copied().collect();
        for node in self.nodes.iter().rev() {
            if live.contains(&node.output) {
                live.extend(node.inputs.iter().flatten());
            }
        }
        let mut graph = Self::new(self.name.clone());
        graph.metadata.clone_from(&self.metadata);
        graph.element = self.element;
        let mut build = Rebuild { old: self, new: graph, map: HashMap::new() };
        for &id in &self.inputs {
            let new = build.new.add_input(self[id].name.clone(), input_shape(&self[id]));
            build.new.set_element(new, self[id].element);
            build.map.insert(id, new);
        }
        for node in self.nodes.iter().filter(|n| live.contains(&n.output)) {
            let new = rewrite(&mut build, node)?;
            build.map.insert(node.output, new);
        }
        for &id in &self.outputs {
            let new = build.value(id)?;
            // A rewritten output keeps its name: users ask for it.
            let output =
                if build.new[new].name == self[id].name { new } else { build.new.renamed(new, &self[id].name)? };
            build.new.set_element(output, self[id].element);
            build.new.outputs.push(output);
        }
        Ok(build.new)
    }

    /// The number of weights that the outputs depend on.
    pub fn parameters(&self) -> usize {
        let mut seen = HashSet::new();
        let used = self.nodes.iter().flat_map(|n| n.inputs.iter().flatten()).chain(&self.outputs);
        used.filter(|id| seen.insert(**id)).filter_map(|id| self[*id].constant.as_ref()).map(|t| t.data().len()).sum()
    }
}

/// The error of a number that an element type cannot hold.
pub(crate) fn beyond(element: Element, tensor: &str, x: f32) -> Error {
    Error::usage(format!("tensor {tensor:?} has {x:e}, which is beyond the range of {element}"))
        .hint("store the model as f32: `element` f32")
}

/// A graph being copied, see [`Graph::rebuild`].
#[derive(Debug)]
pub struct Rebuild<'a> {
    old: &'a Graph,
    /// The copy so far.
    pub new: Graph,
    map: HashMap<ValueId, ValueId>,
}

impl Rebuild<'_> {
    /// The copy of a value of the old graph; constants are copied when first asked for.
    pub fn value(&mut self, old: ValueId) -> Result<ValueId> {
        if let Some(&new) = self.map.get(&old) {
            return Ok(new);
        }
        let value = &self.old[old];
        let Some(constant) = &value.constant else {
            return Err(Error::model(format!("value {:?} is used before it is computed", value.name)));
        };
        let new = self.new.add_constant(value.name.clone(), constant.clone())?;
        self.map.insert(old, new);
        Ok(new)
    }

    /// The copies of a node's inputs.
    pub fn inputs(&mut self, node: &Node) -> Result<Vec<Option<ValueId>>> {
        node.inputs.iter().map(|id| id.map(|id| self.value(id)).transpose()).collect()
    }

    /// Whatever reads `old` reads `new` from now on.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        self.map.insert(old, new);
    }

    /// The node as it was.
    pub fn copy(&mut self, node: &Node) -> Result<ValueId> {
        let inputs = self.inputs(node)?;
        let name = self.old[node.output].name.clone();
        self.new.add_node(node.name.clone(), node.op.clone(), inputs, name)
    }
}
