//! The joint model as one ordinary graph, and back.
//!
//! Every block of weights with the same owners is stored once; a task's weights are put together from its blocks by `Concat` and
//! `Gather` at the start of the graph, which any runtime computes once. Nodes and values of a task are called `task/name`. What cannot
//! be seen in the graph, the joint numbers of the units, stands in the metadata.

use crate::data::Normalisation;
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::op::{Concat, Gather, Gemm, Op};
use crate::plan::{Joint, Layer, Member, Source, unique};
use crate::run::Runner;
use crate::tensor::{Element, Shape, Tensor};
use crate::{preprocess, simplify};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// The metadata key of a joint model.
const KEY: &str = "mtz.joint";
/// Of the metadata.
const VERSION: u64 = 1;

type Owners = BTreeSet<usize>;

/// Where a position along the input axis comes from, in joint numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Position {
    Input(usize),
    /// Layer, aligned number, rank.
    Unit(usize, usize, usize),
    /// Of one task alone.
    Private(usize, usize),
}

/// Says whose inputs differ, if all tasks are to read the same.
pub fn check_common_input(joint: &Joint) -> Result<()> {
    let shapes = |m: &Member| m.graph.inputs().iter().map(|id| m.graph[*id].shape.to_string()).collect::<Vec<_>>();
    let first = joint.members.first().map_or_else(Vec::new, &shapes);
    match joint.members.iter().find(|m| shapes(m) != first) {
        None => Ok(()),
        Some(other) => Err(Error::usage(format!(
            "--common-input: the input of {} is {}, that of {} is {}",
            other.name,
            shapes(other).join(", "),
            joint.members[0].name,
            first.join(", ")
        ))),
    }
}

/// The joint model with a task's preprocessing inside: see [`preprocess::with_preprocessing`].
pub fn with_preprocessing(joint: &Joint, task: &str, normalisation: &Normalisation, bytes: bool) -> Result<Joint> {
    let mut joint = joint.clone();
    let member = joint.members.iter_mut().find(|m| m.name == task);
    let member = member.ok_or_else(|| Error::usage(format!("there is no task {task:?}")))?;
    member.graph = preprocess::with_preprocessing(&member.graph, normalisation, bytes)?;
    // Nodes have moved; layers and their units are the same.
    member.layers = Layer::all(&member.graph)?;
    Ok(joint)
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

/// What answers of a file may differ by, relative to the largest number. File and memory compute the same sums in the same order; what is wrong is far off.
const ALLOWED: f32 = 1e-4;

/// Refuses a joint model, as it was read back from its file, that computes something else than the one in memory. `samples`: some of every task.
pub fn check(file: &Graph, joint: &Joint, samples: &[Tensor], common_input: bool) -> Result<()> {
    let back = from_graph(file)?.ok_or_else(|| Error::model("the file is no joint model any more"))?;
    let same = |(a, b): (&Member, &Member)| a.name == b.name && a.layers.len() == b.layers.len();
    if back.members.len() != joint.members.len() || !joint.members.iter().zip(&back.members).all(same) {
        return Err(Error::model("the written file has other tasks than the model").hint("nothing was written"));
    }
    let inputs = if common_input { samples.get(..1).unwrap_or_default() } else { samples };
    let mut written = Runner::new(file).run(inputs)?.into_iter();
    for (t, (member, extracted)) in joint.members.iter().zip(&back.members).enumerate() {
        let Some(sample) = inputs.get(if common_input { 0 } else { t }) else { continue };
        let sample = std::slice::from_ref(sample);
        let expected = Runner::new(&member.graph).run(sample)?;
        let own: Vec<Tensor> = written.by_ref().take(expected.len()).collect();
        let alone = Runner::new(&extracted.graph).run(sample)?;
        not_too_far(&member.name, difference(&expected, &own).max(difference(&expected, &alone)), ALLOWED)?;
    }
    Ok(())
}

/// Refuses preprocessing inside of a task's network that computes something else on `raw` samples than the network does on prepared ones.
pub fn check_preprocessing(task: &str, networks: (&Graph, &Graph), (samples, raw): (&Tensor, &Tensor)) -> Result<()> {
    /// Mean and deviation are rounded as the weights are.
    const ROUNDED: f32 = 1e-2;
    let allowed = if networks.1.element == Element::F32 { ALLOWED } else { ROUNDED };
    let expected = Runner::new(networks.0).run(std::slice::from_ref(samples))?;
    let other = Runner::new(networks.1).run(std::slice::from_ref(raw))?;
    not_too_far(task, difference(&expected, &other), allowed)
}

fn not_too_far(task: &str, apart: f32, allowed: f32) -> Result<()> {
    if apart <= allowed {
        return Ok(());
    }
    let text = format!("the written file is not the model: task {task} differs by {apart:.1e}");
    Err(Error::model(text).hint("nothing was written; please report this with the models"))
}

/// The largest difference between two lists of tensors, relative to the largest number of each; infinite if they do not match.
fn difference(expected: &[Tensor], other: &[Tensor]) -> f32 {
    let shapes = |all: &[Tensor]| all.iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>();
    if shapes(expected) != shapes(other) {
        return f32::INFINITY;
    }
    let one = |(expected, other): (&Tensor, &Tensor)| {
        let numbers = || expected.data().iter().zip(other.data());
        let scale = numbers().filter(|(x, _)| x.is_finite()).fold(f32::MIN_POSITIVE, |most, (x, _)| most.max(x.abs()));
        let apart = |(x, y): (&f32, &f32)| match (x - y).abs() {
            _ if x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan() => 0.0,
            apart if apart.is_nan() => f32::INFINITY,
            apart => apart / scale,
        };
        numbers().map(apart).fold(0.0, f32::max)
    };
    expected.iter().zip(other).map(one).fold(0.0, f32::max)
}

/// A graph in the making whose names are unique by construction: whatever tasks, nodes and values are called, no two of them have one name in the file.
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
    let positions: Vec<Vec<Position>> = (0..joint.members.len()).map(|t| positions(joint, t, layer)).collect();
    let mut column_owners: BTreeMap<Position, Owners> = BTreeMap::new();
    for (t, own) in positions.iter().enumerate() {
        own.iter().for_each(|p| {
            column_owners.entry(*p).or_default().insert(t);
        });
    }
    let unit_owners = joint.owners(layer);
    let (rows, columns) = (by_owners(&unit_owners), by_owners(&column_owners));
    let name = &joint.members[0].layers[layer].name;
    let first = &joint.members[0].layers[layer];
    let kernel: Vec<usize> = joint.members[0].graph[first.weight].shape.at(1).into_iter().skip(2).collect();
    // For each task: where its units and positions stand in its own network.
    let local: Vec<(BTreeMap<usize, usize>, BTreeMap<Position, usize>)> = joint
        .members
        .iter()
        .zip(&positions)
        .map(|(m, own)| {
            let units = m.units[layer].iter().enumerate().map(|(i, u)| (*u, i)).collect();
            (units, own.iter().enumerate().map(|(i, p)| (*p, i)).collect())
        })
        .collect();
    let values: Vec<Vec<f32>> = joint.members.iter().map(|m| m.layers[layer].read(&m.graph)).collect();
    let mut blocks: BTreeMap<(&Owners, &Owners), ValueId> = BTreeMap::new();
    for (row_owners, units) in &rows {
        for (column_owners, places) in &columns {
            let Some(&t) = row_owners.intersection(column_owners).next() else { continue };
            let at = &joint.members[t].layers[layer];
            let mut data = Vec::with_capacity(units.len() * places.len() * at.taps);
            for unit in units {
                let row = &values[t][local[t].0[unit] * (at.columns() + 1)..];
                for place in places {
                    let column = local[t].1[place] * at.taps;
                    data.extend_from_slice(&row[column..column + at.taps]);
                }
            }
            let shape: Vec<usize> = [units.len(), places.len()].into_iter().chain(kernel.iter().copied()).collect();
            let label = format!("{name}.{}.from.{}", label(joint, row_owners), label(joint, column_owners));
            blocks.insert((row_owners, column_owners), graph.constant(&label, Tensor::new(shape, data)?)?);
        }
    }
    let mut biases: BTreeMap<&Owners, ValueId> = BTreeMap::new();
    for (owners, units) in &rows {
        let owner = |unit: &usize| joint.bias_owner(layer, owners.iter().map(|&t| (t, local[t].0[unit])));
        let bias = |unit: &usize| {
            let (t, place) = owner(unit)?;
            let width = joint.members[t].layers[layer].columns() + 1;
            values[t].get(place * width + width - 1).copied()
        };
        let Some(data) = units.iter().map(bias).collect::<Option<Vec<f32>>>() else { continue };
        let label = format!("{name}.{}.bias", label(joint, owners));
        biases.insert(owners, graph.constant(&label, Tensor::new(vec![units.len()], data)?)?);
    }
    for (t, member) in joint.members.iter().enumerate() {
        let at = &member.layers[layer];
        let prefix = format!("{}/{}", member.name, at.name);
        let mine = |owners: &&Owners| owners.contains(&t);
        let mut parts = Vec::new();
        for row_owners in rows.keys().filter(mine) {
            let blocks: Vec<ValueId> = columns.keys().filter(mine).map(|c| blocks[&(row_owners, c)]).collect();
            parts.push(concat(graph, blocks, 1, &format!("{prefix}.{}", label(joint, row_owners)))?);
        }
        let order: Vec<usize> =
            rows.iter().filter(|(o, _)| o.contains(&t)).flat_map(|(_, u)| u).map(|u| local[t].0[u]).collect();
        let columns_order: Vec<usize> =
            columns.iter().filter(|(o, _)| o.contains(&t)).flat_map(|(_, p)| p).map(|p| local[t].1[p]).collect();
        let whole = concat(graph, parts, 0, &prefix)?;
        let whole = gather(graph, whole, 0, &order, &format!("{prefix}.units"))?;
        let whole = gather(graph, whole, 1, &columns_order, &format!("{prefix}.inputs"))?;
        weights[t].insert(at.weight, whole);
        if let Some(bias) = at.bias {
            let parts = rows.keys().filter(mine).map(|o| biases[o]).collect();
            let whole = concat(graph, parts, 0, &format!("{prefix}.bias"))?;
            weights[t].insert(bias, gather(graph, whole, 0, &order, &format!("{prefix}.bias.units"))?);
        }
    }
    Ok(())
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

/// Things grouped by who owns them.
fn by_owners<T: Copy + Ord>(owners: &BTreeMap<T, Owners>) -> BTreeMap<Owners, Vec<T>> {
    let mut groups: BTreeMap<Owners, Vec<T>> = BTreeMap::new();
    for (thing, owners) in owners {
        groups.entry(owners.clone()).or_default().push(*thing);
    }
    groups
}

/// The owners' names.
fn label(joint: &Joint, owners: &Owners) -> String {
    if owners.len() == joint.members.len() && owners.len() > 1 {
        return "shared".to_owned();
    }
    owners.iter().map(|t| joint.members[*t].name.as_str()).collect::<Vec<_>>().join("+")
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

/// The joint model in a graph, if it is one.
pub fn from_graph(graph: &Graph) -> Result<Option<Joint>> {
    let Some((_, text)) = graph.metadata.iter().find(|(key, _)| key == KEY) else { return Ok(None) };
    let broken = || Error::model("the description of the joint model is damaged");
    let json: Json = serde_json::from_str(text).map_err(|_| broken())?;
    if json["version"].as_u64() != Some(VERSION) {
        return Err(Error::unsupported("the joint model was written by another version of mtz"));
    }
    let mut members: Vec<Member> = Vec::new();
    for task in json["tasks"].as_array().ok_or_else(broken)? {
        let name = task["name"].as_str().ok_or_else(broken)?.to_owned();
        let outputs: Option<Vec<ValueId>> =
            task["outputs"].as_array().ok_or_else(broken)?.iter().map(|o| graph.find(o.as_str()?)).collect();
        let part = graph.up_to(&outputs.ok_or_else(broken)?)?;
        let plain = simplify::for_zipping(&part)?;
        let plain = without_prefix(&plain, &format!("{name}/"))?;
        let layers = Layer::all(&plain)?;
        let described = task["layers"].as_array().ok_or_else(broken)?;
        let numbers = |key: &str| -> Result<Vec<Vec<usize>>> {
            let number = |u: &Json| u.as_u64().and_then(|u| usize::try_from(u).ok());
            let of = |l: &Json| l[key].as_array()?.iter().map(number).collect::<Option<Vec<usize>>>();
            let numbers = described.iter().map(of).collect::<Option<Vec<_>>>().ok_or_else(broken)?;
            let distinct = |u: &Vec<usize>| u.iter().collect::<BTreeSet<_>>().len() == u.len();
            let fits = numbers.len() == layers.len()
                && numbers.iter().zip(&layers).all(|(u, l)| u.len() == l.units && distinct(u));
            if fits { Ok(numbers) } else { Err(broken()) }
        };
        let (units, aligned) = (numbers("units")?, numbers("aligned")?);
        if members.iter().any(|m| m.name == name || m.layers.len() != layers.len()) {
            return Err(broken());
        }
        members.push(Member { name, graph: plain, layers, units, aligned });
    }
    if members.is_empty() {
        return Err(broken());
    }
    number_densely(&mut members);
    Ok(Some(Joint { members }))
}

/// Numbers from 0 on in the same order, equal where they were equal.
fn densely(numbers: Vec<&mut Vec<usize>>) {
    let all: BTreeSet<usize> = numbers.iter().flat_map(|own| own.iter().copied()).collect();
    let dense: BTreeMap<usize, usize> = all.into_iter().enumerate().map(|(i, number)| (number, i)).collect();
    numbers.into_iter().flatten().for_each(|number| *number = dense.get(number).copied().unwrap_or(0));
}

/// Numbers of units in a file may be anything; only which are equal counts. From here on they are small.
fn number_densely(members: &mut [Member]) {
    let depth = members.first().map_or(0, |m| m.layers.len());
    for layer in 0..depth {
        densely(members.iter_mut().map(|m| &mut m.units[layer]).collect());
        densely(members.iter_mut().map(|m| &mut m.aligned[layer]).collect());
    }
}

/// Names without the task in front.
fn without_prefix(graph: &Graph, prefix: &str) -> Result<Graph> {
    let mut plain = graph.clone();
    plain.metadata.clear();
    plain.name = prefix.trim_end_matches('/').to_owned();
    // Inputs may be common to all tasks and so have no prefix: what is cut short must not become one of these.
    let whole: BTreeSet<String> = plain.values().iter().map(|v| v.name.clone()).collect();
    plain.rename(|name| match name.strip_prefix(prefix) {
        Some(short) if !whole.contains(short) => short.to_owned(),
        _ => name.to_owned(),
    });
    Ok(plain)
}
