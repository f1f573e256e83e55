//! The layout of the file: blocks of weights by owner set, and each task's nodes reading what is put together from
//! them.

use super::{KEY, VERSION, check_common_input};
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::op::{Concat, Gather, Gemm, Op};
use crate::sharing::{Joint, Member, OwnerSet, Source, by_owner_set, unique};
use crate::tensor::{Element, Shape, Tensor};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Where a position along the input axis comes from, in joint numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Position {
    Input(usize),
    /// Layer, aligned number, rank.
    Unit(usize, usize, usize),
    /// Of one task alone.
    Private(usize, usize),
}

/// One graph with inputs and outputs per task. `common_input`: one input for all, which needs equal shapes.
pub fn to_graph(joint: &Joint, common_input: bool) -> Result<Graph> {
    if common_input {
        check_common_input(joint)?;
    }
    let mut graph = Builder::new("joint");
    graph.graph.element = joint.element();
    let mut inputs: Vec<Vec<ValueId>> = Vec::new();
    for member in &joint.members {
        let mut own = Vec::new();
        for (i, &id) in member.graph.inputs().iter().enumerate() {
            let value = &member.graph[id];
            // A common input is f16 if that is what all tasks take.
            let takers = joint.members.iter().filter(|m| common_input || m.name == member.name);
            let mut types = takers.filter_map(|m| Some(m.graph[*m.graph.inputs().get(i)?].element));
            let element = if types.all(|e| e == Element::F16) { Element::F16 } else { Element::F32 };
            let first = inputs.first().and_then(|ids| ids.get(i)).copied();
            own.push(match first.filter(|_| common_input) {
                Some(first) => first,
                None if common_input => graph.input(&value.name, value.shape.clone(), element),
                None => graph.input(&format!("{}/{}", member.name, value.name), value.shape.clone(), element),
            });
        }
        inputs.push(own);
    }
    let mut weights: Vec<BTreeMap<ValueId, ValueId>> = vec![BTreeMap::new(); joint.members.len()];
    for layer in 0..joint.depth() {
        add_blocks(&mut graph, joint, layer, &mut weights)?;
    }
    let mut tasks = Vec::new();
    let name = |graph: &Builder, id: &ValueId| graph.graph[*id].name.clone();
    for (t, member) in joint.members.iter().enumerate() {
        let outputs = add_task(&mut graph, member, &inputs[t], &weights[t])?;
        let layers = member.layers.iter().zip(member.units.iter().zip(&member.aligned));
        tasks.push(json!({
            "name": member.name,
            "inputs": inputs[t].iter().map(|id| name(&graph, id)).collect::<Vec<_>>(),
            "outputs": outputs.iter().map(|id| name(&graph, id)).collect::<Vec<_>>(),
            "layers": layers.map(|(l, (units, aligned))| json!({ "name": l.name, "units": units, "aligned": aligned }))
                .collect::<Vec<_>>(),
        }));
    }
    let mut graph = graph.graph;
    graph.metadata.push((KEY.to_owned(), json!({ "version": VERSION, "tasks": tasks }).to_string()));
    Ok(graph)
}

/// A graph in the making whose names are unique by construction: whatever tasks, nodes and values are called, no two of
/// them have one name in the file.
struct Builder {
    graph: Graph,
    values: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl Builder {
    fn new(name: &str) -> Self {
        Self { graph: Graph::new(name), values: BTreeSet::new(), nodes: BTreeSet::new() }
    }

    fn input(&mut self, name: &str, shape: Shape, element: Element) -> ValueId {
        let id = self.graph.add_input(unique(name, &mut self.values), shape);
        self.graph.set_element(id, element);
        id
    }

    fn constant(&mut self, name: &str, tensor: Tensor) -> Result<ValueId> {
        self.graph.add_constant(unique(name, &mut self.values), tensor)
    }

    fn node(&mut self, name: &str, op: impl Into<Op>, inputs: Vec<Option<ValueId>>, output: &str) -> Result<ValueId> {
        let (name, output) = (unique(name, &mut self.nodes), unique(output, &mut self.values));
        self.graph.add_node(name, op, inputs, output)
    }
}

/// Adds the blocks of a layer, and what puts them together for each task.
fn add_blocks(
    graph: &mut Builder,
    joint: &Joint,
    layer: usize,
    weights: &mut [BTreeMap<ValueId, ValueId>],
) -> Result<()> {
    let cut = Cut::new(joint, layer);
    let blocks = cut.add_weights(graph)?;
    let biases = cut.add_biases(graph)?;
    for (t, weights) in weights.iter_mut().enumerate() {
        cut.put_together(graph, t, (&blocks, &biases), weights)?;
    }
    Ok(())
}

/// The blocks of a layer, by the owners of their units and positions.
type Blocks<'c> = BTreeMap<(&'c OwnerSet, &'c OwnerSet), ValueId>;

/// The biases of a layer, by the owners of their units.
type Biases<'c> = BTreeMap<&'c OwnerSet, ValueId>;

/// Where a task's units and positions stand in its own network.
struct Places {
    units: BTreeMap<usize, usize>,
    positions: BTreeMap<Position, usize>,
}

/// A layer, cut into units and positions that have the same owners.
struct Cut<'j> {
    joint: &'j Joint,
    layer: usize,
    rows: BTreeMap<OwnerSet, Vec<usize>>,
    columns: BTreeMap<OwnerSet, Vec<Position>>,
    /// For each task.
    local: Vec<Places>,
    /// The weights of each task, with the bias behind those of each unit.
    values: Vec<Vec<f32>>,
}

impl<'j> Cut<'j> {
    fn new(joint: &'j Joint, layer: usize) -> Self {
        let positions: Vec<Vec<Position>> = (0..joint.members.len()).map(|t| positions(joint, t, layer)).collect();
        let mut column_owners: BTreeMap<Position, OwnerSet> = BTreeMap::new();
        for (t, own) in positions.iter().enumerate() {
            own.iter().for_each(|p| {
                column_owners.entry(*p).or_default().insert(t);
            });
        }
        let unit_owners = joint.owners(layer).into_iter().map(|(unit, owners)| (owners, unit));
        let column_owners = column_owners.into_iter().map(|(position, owners)| (owners, position));
        let places = |(member, own): (&Member, &Vec<Position>)| Places {
            units: member.units[layer].iter().enumerate().map(|(i, u)| (*u, i)).collect(),
            positions: own.iter().enumerate().map(|(i, p)| (*p, i)).collect(),
        };
        Self {
            joint,
            layer,
            rows: by_owner_set(unit_owners),
            columns: by_owner_set(column_owners),
            local: joint.members.iter().zip(&positions).map(places).collect(),
            values: joint.members.iter().map(|m| m.layers[layer].read(&m.graph)).collect(),
        }
    }

    fn name(&self) -> &str {
        &self.joint.members[0].layers[self.layer].name
    }

    fn add_weights(&self, graph: &mut Builder) -> Result<Blocks<'_>> {
        let first = &self.joint.members[0];
        let kernel = first.graph[first.layers[self.layer].weight].shape.at(1).into_iter().skip(2);
        let kernel: Vec<usize> = kernel.collect();
        let mut blocks = BTreeMap::new();
        for (row_owners, units) in &self.rows {
            for (column_owners, places) in &self.columns {
                let Some(t) = row_owners.iter().find(|t| column_owners.contains(*t)) else { continue };
                let data = self.block(t, units, places);
                let shape = [units.len(), places.len()].into_iter().chain(kernel.iter().copied()).collect();
                let (rows, columns) = (label(self.joint, row_owners), label(self.joint, column_owners));
                let label = format!("{}.{rows}.from.{columns}", self.name());
                blocks.insert((row_owners, column_owners), graph.constant(&label, Tensor::new(shape, data)?)?);
            }
        }
        Ok(blocks)
    }

    /// The weights of these units for these positions, as task t has them.
    fn block(&self, t: usize, units: &[usize], places: &[Position]) -> Vec<f32> {
        let at = &self.joint.members[t].layers[self.layer];
        let mut data = Vec::with_capacity(units.len() * places.len() * at.taps);
        for unit in units {
            let row = &self.values[t][self.local[t].units[unit] * (at.columns() + 1)..];
            for place in places {
                let column = self.local[t].positions[place] * at.taps;
                data.extend_from_slice(&row[column..column + at.taps]);
            }
        }
        data
    }

    fn add_biases(&self, graph: &mut Builder) -> Result<Biases<'_>> {
        let mut biases = BTreeMap::new();
        for (owners, units) in &self.rows {
            let bias = |unit: &usize| {
                let places = owners.iter().map(|t| (t, self.local[t].units[unit]));
                let (t, place) = self.joint.bias_owner(self.layer, places)?;
                let width = self.joint.members[t].layers[self.layer].columns() + 1;
                self.values[t].get(place * width + width - 1).copied()
            };
            let Some(data) = units.iter().map(bias).collect::<Option<Vec<f32>>>() else { continue };
            let label = format!("{}.{}.bias", self.name(), label(self.joint, owners));
            biases.insert(owners, graph.constant(&label, Tensor::new(vec![units.len()], data)?)?);
        }
        Ok(biases)
    }

    /// Adds the nodes that give task t its weights and biases, in the order its own network has them.
    fn put_together(
        &self,
        graph: &mut Builder,
        t: usize,
        (blocks, biases): (&Blocks, &Biases),
        weights: &mut BTreeMap<ValueId, ValueId>,
    ) -> Result<()> {
        let member = &self.joint.members[t];
        let at = &member.layers[self.layer];
        let prefix = format!("{}/{}", member.name, at.name);
        let mine = |owners: &&OwnerSet| owners.contains(t);
        let mut parts = Vec::new();
        for row_owners in self.rows.keys().filter(mine) {
            let blocks = self.columns.keys().filter(mine).map(|c| blocks[&(row_owners, c)]).collect();
            parts.push(concat(graph, blocks, 1, &format!("{prefix}.{}", label(self.joint, row_owners)))?);
        }
        let units = self.rows.iter().filter(|(o, _)| o.contains(t)).flat_map(|(_, units)| units);
        let units: Vec<usize> = units.map(|u| self.local[t].units[u]).collect();
        let places = self.columns.iter().filter(|(o, _)| o.contains(t)).flat_map(|(_, places)| places);
        let places: Vec<usize> = places.map(|p| self.local[t].positions[p]).collect();
        let whole = concat(graph, parts, 0, &prefix)?;
        let whole = gather(graph, whole, 0, &units, &format!("{prefix}.units"))?;
        let whole = gather(graph, whole, 1, &places, &format!("{prefix}.inputs"))?;
        weights.insert(at.weight, whole);
        if let Some(bias) = at.bias {
            let parts = self.rows.keys().filter(mine).map(|o| biases[o]).collect();
            let whole = concat(graph, parts, 0, &format!("{prefix}.bias"))?;
            weights.insert(bias, gather(graph, whole, 0, &units, &format!("{prefix}.bias.units"))?);
        }
        Ok(())
    }
}

/// The task's nodes, reading its weights from where they were put together.
fn add_task(
    graph: &mut Builder,
    member: &Member,
    inputs: &[ValueId],
    weights: &BTreeMap<ValueId, ValueId>,
) -> Result<Vec<ValueId>> {
    let own = &member.graph;
    let mut map: BTreeMap<ValueId, ValueId> = weights.clone();
    map.extend(own.inputs().iter().copied().zip(inputs.iter().copied()));
    for (i, node) in own.nodes().iter().enumerate() {
        let mut ids = Vec::new();
        for id in &node.inputs {
            ids.push(match id {
                None => None,
                Some(id) => Some(match (map.get(id), &own[*id].constant) {
                    (Some(new), _) => *new,
                    (None, Some(tensor)) => {
                        let new = graph.constant(&format!("{}/{}", member.name, own[*id].name), tensor.clone())?;
                        map.insert(*id, new);
                        new
                    }
                    (None, None) => {
                        return Err(Error::model("a value is used before it is computed").at_node(&node.name));
                    }
                }),
            });
        }
        let is_layer = member.layers.iter().any(|l| l.node == i);
        // Blocks are stored units × inputs.
        let op = match &node.op {
            Op::Gemm(gemm) if is_layer => Op::from(Gemm { transpose_b: true, ..*gemm }),
            op => op.clone(),
        };
        let name = |name: &str| format!("{}/{name}", member.name);
        let new = graph.node(&name(&node.name), op, ids, &name(&own[node.output].name))?;
        map.insert(node.output, new);
    }
    let mut outputs = Vec::new();
    for id in own.outputs() {
        let new = *map.get(id).ok_or_else(|| Error::model("an output is not computed"))?;
        graph.graph.set_element(new, own[*id].element);
        graph.graph.add_output(new);
        outputs.push(new);
    }
    Ok(outputs)
}

/// The joint positions along a layer's input axis.
fn positions(joint: &Joint, task: usize, layer: usize) -> Vec<Position> {
    let member = &joint.members[task];
    let sources = member.layers[layer].sources.iter();
    let positions = sources.map(|source| match *source {
        Source::Input { position } => Position::Input(position),
        Source::Private { position } => Position::Private(task, position),
        Source::Layer { layer, unit, rank } => Position::Unit(layer, member.aligned[layer][unit], rank),
    });
    positions.collect()
}

/// The owners' names.
fn label(joint: &Joint, owners: &OwnerSet) -> String {
    if owners.len() == joint.members.len() && owners.is_shared() {
        return "shared".to_owned();
    }
    owners.iter().map(|t| joint.members[t].name.as_str()).collect::<Vec<_>>().join("+")
}

fn concat(graph: &mut Builder, parts: Vec<ValueId>, axis: usize, name: &str) -> Result<ValueId> {
    match parts.as_slice() {
        [one] => Ok(*one),
        _ => {
            let name = format!("{name}.joined{axis}");
            graph.node(&name, Concat { axis }, parts.into_iter().map(Some).collect(), &name)
        }
    }
}

/// From joint order to the task's own: element `order[i]` of the result is element i of the value.
fn gather(graph: &mut Builder, id: ValueId, axis: usize, order: &[usize], name: &str) -> Result<ValueId> {
    if order.iter().enumerate().all(|(i, &o)| i == o) {
        return Ok(id);
    }
    let mut indices = vec![0; order.len()];
    for (i, &o) in order.iter().enumerate() {
        indices[o] = i;
    }
    let op = Gather { axis, index_shape: vec![indices.len()], indices };
    graph.node(name, op, vec![Some(id)], name)
}
