//! Which units of a layer become one, and with which weights: the paper's d and f, and better ones.
//!
//! Gram matrices are never inverted on their own (they are singular on real data); both formulas are rewritten with the inverse of
//! a sum:
//!
//! * f: `w* = (G_A + G_B)⁻¹ (G_A w_A + G_B w_B)`
//! * d: `½ (w_A − w_B)ᵀ P (w_A − w_B)` with the parallel sum `P = G_A (G_A + G_B)⁻¹ G_B`
//!
//! Both are solved in [`crate::linalg`]; here is decided who takes part.

mod pool;
mod table;

use crate::error::Result;
use crate::plan::Joint;
use crate::random;
use crate::statistics::Seen;
use pool::{Joining, Pool};
use std::collections::BTreeMap;
use table::{Owners, Table};

/// How many units of a layer to share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// As many as the smaller network has.
    All,
    /// This share of the smaller network's.
    Fraction(f64),
    /// So many.
    Count(usize),
    /// Pairs whose distance d is below this.
    Below(f64),
}

/// How pairs are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// The cheapest pair of all, then the cheapest of the rest.
    Greedy,
    /// The pairs with the smallest sum of distances.
    Optimal,
    /// Any pairs; in the paper's recipe with the weights of one of the two, chosen at random: what the paper compares with.
    Random,
}

/// How weights are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// The paper to the letter: f of the old weights, private weights untouched.
    Paper,
    /// Least squares towards the original pre-activations on the merged network's inputs, one solve per owner set, private
    /// units and heads included.
    Best,
}

/// Which inputs of a layer count as the same for two tasks, so that the weights from them can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Units that are shared.
    Shared,
    /// All units, paired as well as they go, shared or not (section 3.7 of the paper): more is saved with the same number of shared units.
    All,
}

/// How units are paired that are added to those of earlier layers, as in a residual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Every layer pairs its units freely, and later layers know them by the pairs of the last one that was added: the paper.
    Last,
    /// Every layer pairs its units freely, and later layers know them by the pairs of the first: one alignment for the whole stream.
    First,
    /// All layers of a stream have the pairs of the first.
    One,
}

/// How to merge a layer.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many units.
    pub share: Share,
    /// Which pairs.
    pub matching: Matching,
    /// Which weights.
    pub recipe: Recipe,
    /// Which inputs.
    pub align: Align,
    /// Which pairs in residual networks.
    pub streams: Streams,
    /// Ridge relative to the mean of the diagonal.
    pub ridge: f64,
    /// How often layers with a rectifier behind them are solved again for one-sided targets ([`crate::linalg::Samples`]).
    pub rounds: usize,
    /// Where random numbers begin.
    pub seed: u64,
}

/// What happened to a layer.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// Units used by more than one task.
    pub shared: usize,
    /// The sum of d over all pairs.
    pub distance: f64,
    /// d of every pair, in the order they were chosen.
    pub distances: Vec<f64>,
    /// For every unit that joined and stays private, d to the unit it would have been cheapest to share with.
    pub apart: Vec<f64>,
    /// The mean of d over all possible pairs.
    pub typical: f64,
    /// The largest ridge of the solves that made the weights.
    pub ridge: f64,
    /// Whether one of these systems was singular in spite of the ridge asked for.
    pub raised: bool,
}

impl Merged {
    fn note(&mut self, ridge: f64, raised: bool) {
        self.ridge = self.ridge.max(ridge);
        self.raised |= raised;
    }
}

/// Merges layer `layer` of a joint model whose earlier layers are merged. `seen` is each task's ([`crate::statistics::moments`]), `weights`
/// how much each task counts. `head`: nothing is shared, weights are only fitted again.
pub fn merge_layer(
    joint: &mut Joint,
    layer: usize,
    seen: &[Seen],
    weights: &[f64],
    head: bool,
    options: &Options,
) -> Result<Merged> {
    let mut table = Table::new(joint, layer, seen, weights)?;
    let mut report = Merged { ridge: options.ridge, ..Merged::default() };
    let tasks = joint.members.len();
    if options.recipe == Recipe::Best {
        // Where nothing before this layer is shared, a task sees what it always saw, and its weights are right as they are.
        for t in (0..tasks).filter(|&t| joint.has_changed(t, layer)) {
            let all: Vec<Owners> =
                (0..joint.members[t].layers[layer].units).map(|u| table::alone(tasks, t, u)).collect();
            table.fit(&all, options.ridge, options.rounds, &mut report)?;
        }
    }
    let mut pool = Pool::new();
    for t in 0..tasks {
        pool.join(&Joining { joint, layer, table: &table, task: t, options }, !head, &mut report)?;
        if t > 0 && !head && options.recipe == Recipe::Paper {
            match options.matching {
                Matching::Random => table.choose_one(&pool.units, t, random::bits(options.seed, 1000 + t as u64)),
                _ => table.merge_shared(&pool.units, t, options.ridge, &mut report)?,
            }
        }
    }
    if options.recipe == Recipe::Best {
        for units in by_owner_set(&pool.units).values().filter(|units| units[0].iter().flatten().count() > 1) {
            table.fit(units, options.ridge, options.rounds, &mut report)?;
        }
    }
    for (joint_unit, owners) in pool.units.iter().enumerate() {
        for (t, unit) in owners.iter().enumerate() {
            unit.iter().for_each(|unit| joint.members[t].units[layer][*unit] = joint_unit);
        }
    }
    for (member, known) in joint.members.iter_mut().zip(&pool.known) {
        member.aligned[layer].clone_from(known);
    }
    if options.streams != Streams::Last {
        joint.align_to_stream(layer);
    }
    for (t, member) in joint.members.iter_mut().enumerate() {
        let at = &member.layers[layer];
        member.graph = at.write(&member.graph, &table.refits(t, at, options.recipe))?;
    }
    report.shared = joint.shared_units(layer);
    Ok(report)
}

/// Units with the same owners.
fn by_owner_set(pool: &[Owners]) -> BTreeMap<Vec<usize>, Vec<Owners>> {
    let mut sets: BTreeMap<Vec<usize>, Vec<Owners>> = BTreeMap::new();
    for owners in pool {
        let set = owners.iter().enumerate().filter(|(_, u)| u.is_some()).map(|(t, _)| t).collect();
        sets.entry(set).or_default().push(owners.clone());
    }
    sets
}
