//! The joint model: units with owners.
//!
//! Each task keeps a graph of its own; what makes them one model is that every layer's units carry a *joint* number,
//! and two tasks whose units have the same one share it. A weight is named by its layer, the joint number of its unit
//! and where it comes from (the *aligned* number of its source); equal names are one number, stored once. Blocks by
//! owner set, parameter counts and ties for the trainer all follow from these names.

use super::correspondence::corresponding;
use super::layers::{Layer, Source};
use super::owners::{OwnerSet, by_owner_set};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::simplify;
use crate::tensor::Element;
use std::collections::{BTreeMap, BTreeSet};

/// One task of a joint model.
#[derive(Clone, Debug)]
pub struct Member {
    /// The task's name.
    pub name: String,
    /// Its network, with the weights it uses.
    pub graph: Graph,
    /// Its layers.
    pub layers: Vec<Layer>,
    /// For each layer, the joint number of each unit: units with the same one have the same incoming weights.
    pub units: Vec<Vec<usize>>,
    /// For each layer, the number later layers know each unit by: weights that come from units with the same one may be
    /// shared, whether or not the units themselves are.
    pub aligned: Vec<Vec<usize>>,
}

/// Several networks that share units.
#[derive(Clone, Debug)]
pub struct Joint {
    /// The tasks.
    pub members: Vec<Member>,
}

/// Where a weight comes from, in joint numbers: equal for tasks that share the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// A weight from the input.
    Input(usize, usize),
    /// A weight from a unit of an earlier layer: layer, aligned number, rank, tap.
    Unit(usize, usize, usize, usize),
    /// A weight from something that only one task has: task, position, tap.
    Private(usize, usize, usize),
    /// The bias.
    Bias,
}

impl Joint {
    /// A network by itself, for any batch size; an error if its batch is fixed and cannot be opened, or if its weights
    /// are no numbers.
    pub fn single(name: String, graph: Graph) -> Result<Self> {
        check_name(&name)?;
        graph.check_weights()?;
        let graph = simplify::for_zipping(&graph.open_batch()?)?;
        let layers = Layer::all(&graph).map_err(|e| e.in_file(std::path::Path::new(&name)))?;
        let units: Vec<Vec<usize>> = layers.iter().map(|layer| (0..layer.units).collect()).collect();
        Ok(Self { members: vec![Member { name, graph, layers, aligned: units.clone(), units }] })
    }

    /// Models beside each other: what each of them shares stays shared, nothing new is. Layers that correspond to each
    /// other have the same number afterwards.
    pub fn from_networks(parts: Vec<Self>) -> Result<Self> {
        let mut members: Vec<Member> = Vec::new();
        for mut part in parts {
            part.check_alike()?;
            part.check_shared()?;
            if let (Some(first), Some(own)) = (members.first(), part.members.first()) {
                let order = corresponding(first, own)?;
                part.members.iter_mut().try_for_each(|member| member.reorder(&order))?;
            }
            // Numbers of this part begin behind all others.
            let next = |l: usize| {
                let numbers = members.iter().flat_map(|m| m.units[l].iter().chain(&m.aligned[l]));
                numbers.max().map_or(0, |u| u + 1)
            };
            let next: Vec<usize> = (0..members.first().map_or(0, |m| m.layers.len())).map(next).collect();
            for mut member in part.members {
                if members.iter().any(|m| m.name == member.name) {
                    return Err(Error::usage(format!("two tasks are called {:?}", member.name))
                        .hint("give them names: first=a/model.onnx second=b/model.onnx"));
                }
                for ((units, aligned), next) in member.units.iter_mut().zip(&mut member.aligned).zip(&next) {
                    units.iter_mut().chain(aligned).for_each(|u| *u += next);
                }
                members.push(member);
            }
        }
        if members.len() < 2 {
            return Err(Error::usage("zipping needs at least two networks")
                .hint("mtz zip a=first.onnx b=second.onnx …; a joint model counts as its tasks"));
        }
        Ok(Self { members })
    }

    /// Refuses a joint model of which a file says that layers correspond which are not of one kind.
    fn check_alike(&self) -> Result<()> {
        let kinds = |m: &Member| -> Vec<(usize, Option<crate::op::Conv>)> {
            m.layers.iter().map(|l| (l.taps, l.conv.clone())).collect()
        };
        let first = self.members.first().map_or_else(Vec::new, kinds);
        match self.members.iter().find(|m| kinds(m) != first) {
            None => Ok(()),
            Some(other) => Err(Error::model(format!("the layers of {} are not those of the other tasks", other.name))),
        }
    }

    /// Refuses a joint model whose tasks have different numbers where its description says they share one: a file that
    /// another tool has trained on, say.
    fn check_shared(&self) -> Result<()> {
        for layer in 0..if self.members.len() > 1 { self.depth() } else { 0 } {
            let (columns, count) = self.numbered_columns(layer);
            let rows: Vec<Vec<f32>> = self.members.iter().map(|m| m.layers[layer].read(&m.graph)).collect();
            let mut known: Vec<Option<f32>> = vec![None; count];
            for places in self.places(layer).values().filter(|places| places.len() > 1) {
                known.fill(None);
                for &(t, unit) in places {
                    let width = self.members[t].layers[layer].columns() + 1;
                    for (x, &column) in rows[t][unit * width..][..width].iter().zip(&columns[t]) {
                        let first = *known[column].get_or_insert(*x);
                        if first != *x && !(first.is_nan() && x.is_nan()) {
                            let text =
                                format!("{} has other numbers than a task it shares units with", self.members[t].name);
                            return Err(Error::model(text)
                                .at_node(&self.members[t].layers[layer].name)
                                .hint("the joint model was changed after mtz wrote it: zip the networks anew"));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a layer is a head in any of the networks: nothing of it is shared then.
    pub fn is_head(&self, layer: usize) -> bool {
        self.members.iter().any(|m| m.layers.get(layer).is_some_and(|l| l.head))
    }

    /// How many layers are no heads.
    pub fn hidden_layers(&self) -> usize {
        (0..self.depth()).filter(|l| !self.is_head(*l)).count()
    }

    /// The earlier layer whose units those of this one are added to, if it is the same in all networks. Numbers of two
    /// layers must not meet, so where networks differ in this, each layer keeps its own.
    pub fn stream(&self, layer: usize) -> Option<usize> {
        let before = |m: &Member| m.layers.get(layer)?.stream.as_ref()?.first().map(|(before, _)| *before);
        let first = before(self.members.first()?)?;
        self.members.iter().all(|m| before(m) == Some(first)).then_some(first)
    }

    /// Lets later layers know the units of a layer by the numbers of the stream they are added to, if there is one.
    pub fn align_to_stream(&mut self, layer: usize) {
        if self.stream(layer).is_none() {
            return;
        }
        for member in &mut self.members {
            if let Some(stream) = &member.layers[layer].stream {
                member.aligned[layer] = stream.iter().map(|&(before, unit)| member.aligned[before][unit]).collect();
            }
        }
    }

    /// The joint name of each column of a task's layer, the bias last (if the layer has one).
    pub fn columns(&self, task: usize, layer: usize) -> Vec<Column> {
        let member = &self.members[task];
        let at = &member.layers[layer];
        let sources = at.sources.iter().flat_map(|source| (0..at.taps).map(move |tap| (source, tap)));
        let columns = sources.map(|(source, tap)| match *source {
            Source::Input { position } => Column::Input(position, tap),
            Source::Private { position } => Column::Private(task, position, tap),
            Source::Layer { layer, unit, rank } => Column::Unit(layer, member.aligned[layer][unit], rank, tap),
        });
        columns.chain(at.bias.map(|_| Column::Bias)).collect()
    }

    /// Who stores the bias of a unit: of its owners, each given as task and place, the first that has one. Those who
    /// have none add nothing.
    pub fn bias_owner(&self, layer: usize, owners: impl IntoIterator<Item = (usize, usize)>) -> Option<(usize, usize)> {
        owners.into_iter().find(|(task, _)| self.members[*task].layers[layer].bias.is_some())
    }

    /// How many layers the networks have.
    pub fn depth(&self) -> usize {
        self.members.first().map_or(0, |m| m.layers.len())
    }

    /// The owners of each joint unit of a layer, as positions in [`Joint::members`].
    pub fn owners(&self, layer: usize) -> BTreeMap<usize, OwnerSet> {
        let mut owners: BTreeMap<usize, OwnerSet> = BTreeMap::new();
        for (t, member) in self.members.iter().enumerate() {
            for &unit in member.units.get(layer).into_iter().flatten() {
                owners.entry(unit).or_default().insert(t);
            }
        }
        owners
    }

    /// How many units of a layer each set of tasks owns: private ones of the first task first, shared ones between.
    pub fn owner_sets(&self, layer: usize) -> Vec<(Vec<String>, usize)> {
        let name = |t: usize| self.members.get(t).map_or_else(String::new, |m| m.name.clone());
        let sets = by_owner_set(self.owners(layer).into_iter().map(|(unit, owners)| (owners, unit)));
        sets.into_iter().map(|(set, units)| (set.iter().map(name).collect(), units.len())).collect()
    }

    /// Units of a layer that more than one task uses.
    pub fn shared_units(&self, layer: usize) -> usize {
        self.owners(layer).values().filter(|owners| owners.is_shared()).count()
    }

    /// Whether a task shares any unit of the layers before this one.
    pub fn has_changed(&self, task: usize, layer: usize) -> bool {
        let own = |l: usize| self.members[task].units.get(l).into_iter().flatten();
        (0..layer).any(|l| {
            let others = self.members.iter().enumerate().filter(|(t, _)| *t != task);
            let others: BTreeSet<&usize> = others.flat_map(|(_, m)| m.units.get(l).into_iter().flatten()).collect();
            own(l).any(|unit| others.contains(unit))
        })
    }

    /// Rounds all weights to what the file will hold, where that is less than they have. Whether anything was to be
    /// done.
    pub fn round(&mut self) -> Result<bool> {
        let rounds = self.element() != Element::F32;
        for member in self.members.iter_mut().filter(|_| rounds) {
            member.graph = member.graph.rounded()?;
        }
        Ok(rounds)
    }

    /// How weights are stored: in 16 bits if all networks are.
    pub fn element(&self) -> Element {
        let all_f16 = self.members.iter().all(|m| m.graph.element == Element::F16);
        if all_f16 { Element::F16 } else { Element::F32 }
    }

    /// The networks, one for each task.
    pub fn graphs(&self) -> Vec<&Graph> {
        self.members.iter().map(|m| &m.graph).collect()
    }

    /// Numbers the joint model stores: each shared one once. And those used by more than one task.
    ///
    /// A weight exists where the owners of its unit and of its source have a task in common, so counting owner sets is
    /// enough.
    pub fn parameters(&self) -> (usize, usize) {
        let (mut all, mut shared) = (0, 0);
        for layer in 0..self.depth() {
            let mut sources: BTreeMap<Column, OwnerSet> = BTreeMap::new();
            for t in 0..self.members.len() {
                for column in self.columns(t, layer) {
                    sources.entry(column).or_default().insert(t);
                }
            }
            let units = by_owner_set(self.owners(layer).into_iter().map(|(unit, owners)| (owners, unit)));
            let columns = by_owner_set(sources.into_iter().map(|(column, owners)| (owners, column)));
            for (unit_owners, units) in &units {
                for (column_owners, columns) in &columns {
                    let (common, weights) = (unit_owners.in_common(column_owners), units.len() * columns.len());
                    all += if common > 0 { weights } else { 0 };
                    shared += if common > 1 { weights } else { 0 };
                }
            }
        }
        let own: usize = self.members.iter().map(Member::other_parameters).sum();
        (all + own, shared)
    }

    /// Numbers the joint model stores that are not connections removed from a sparse layer.
    pub fn nonzero(&self) -> usize {
        let mut zeros = 0;
        for layer in 0..self.depth() {
            let (columns, count) = self.numbered_columns(layer);
            let rows: Vec<Vec<f32>> = self.members.iter().map(|m| m.layers[layer].read(&m.graph)).collect();
            let mut missing = vec![false; count];
            for places in self.places(layer).values() {
                missing.fill(false);
                for &(t, unit) in places {
                    let width = self.members[t].layers[layer].columns();
                    let row = &rows[t][unit * (width + 1)..][..width];
                    row.iter().zip(&columns[t]).filter(|(x, _)| **x == 0.0).for_each(|(_, c)| missing[*c] = true);
                }
                zeros += missing.iter().filter(|m| **m).count();
            }
        }
        self.parameters().0 - zeros
    }

    /// Where each unit of a layer is: member and place there.
    pub(crate) fn places(&self, layer: usize) -> BTreeMap<usize, Vec<(usize, usize)>> {
        let mut places: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (t, member) in self.members.iter().enumerate() {
            let units = member.units[layer].iter().enumerate();
            units.for_each(|(unit, joint)| places.entry(*joint).or_default().push((t, unit)));
        }
        places
    }

    /// For each member a number for every column of a layer, the same for the same column; and how many there are.
    pub(crate) fn numbered_columns(&self, layer: usize) -> (Vec<Vec<usize>>, usize) {
        let mut numbers: BTreeMap<Column, usize> = BTreeMap::new();
        let mut of = |column: Column| {
            let next = numbers.len();
            *numbers.entry(column).or_insert(next)
        };
        let tasks = 0..self.members.len();
        let columns = tasks.map(|t| self.columns(t, layer).into_iter().map(&mut of).collect()).collect();
        (columns, numbers.len())
    }
}

impl Member {
    /// The same network with its layers in another order: the new i-th is the present `order[i]`-th. Nodes move with
    /// them.
    fn reorder(&mut self, order: &[usize]) -> Result<()> {
        if order.iter().enumerate().all(|(i, l)| i == *l) {
            return Ok(());
        }
        let nodes: Vec<usize> = order.iter().map(|&l| self.layers[l].node).collect();
        let outputs = |member: &Self| -> Vec<String> {
            let nodes = member.layers.iter().map(|l| &member.graph.nodes()[l.node]);
            nodes.map(|node| member.graph[node.output].name.clone()).collect()
        };
        let before = outputs(self);
        self.graph = self.graph.with_first(&nodes)?;
        self.layers = Layer::all(&self.graph)?;
        // A layer cannot come before one it reads: of a joint model whose tasks are connected otherwise, one may fit
        // the order and another not.
        if !outputs(self).iter().eq(order.iter().map(|&l| &before[l])) {
            let text = format!("the layers of {} cannot be put in the order of the other networks", self.name);
            return Err(Error::model(text).hint("zip it with a network whose layers are connected as its own"));
        }
        self.units = order.iter().map(|&l| self.units[l].clone()).collect();
        self.aligned = order.iter().map(|&l| self.aligned[l].clone()).collect();
        Ok(())
    }

    /// Multiply-adds of all layers for one sample.
    pub fn multiply_adds(&self) -> usize {
        self.layers.iter().map(|l| l.units * l.columns() * l.places(&self.graph)).sum()
    }

    /// What running one sample takes, in multiply-adds: at least so many for each value that is computed, because much
    /// of a depthwise network is memory.
    pub fn effort(&self) -> usize {
        const VALUE: usize = 16;
        let values: usize = self.graph.nodes().iter().map(|n| self.graph[n.output].shape.elements(1)).sum();
        self.multiply_adds().max(VALUE * values)
    }

    /// Parameters outside of the layers: batch norm and the like.
    fn other_parameters(&self) -> usize {
        let inside: usize = self.layers.iter().map(|l| l.units * (l.columns() + usize::from(l.bias.is_some()))).sum();
        self.graph.parameters().saturating_sub(inside)
    }
}

/// Names of tasks are part of names in files and of lines on a terminal.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(Error::usage(format!("{name:?} cannot be the name of a task"))
            .hint("give it another name, without control characters: age=MODEL"));
    }
    Ok(())
}
