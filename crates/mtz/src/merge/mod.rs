//! Merging a layer: which units of several tasks become one, and with which weights.
//!
//! The paper's formulas invert the Gram matrix of each task, which is singular on real data. Both are rewritten with
//! the inverse of a sum:
//!
//! * d (`merge::distance`): `½ (w_A − w_B)ᵀ P (w_A − w_B)` with the parallel sum `P = G_A (G_A + G_B)⁻¹ G_B`
//! * f (`merge::update`): `w* = (G_A + G_B)⁻¹ (G_A w_A + G_B w_B)`
//!
//! Beyond the paper, `merge::refit` solves for all weights of a layer towards what the original network answers.
//! `merge::matching` chooses the pairs, and `merge::system` knows which columns and units take part.

mod distance;
mod least_squares;
mod matching;
mod refit;
mod system;
mod update;

pub use distance::distances;
pub use least_squares::{OneSidedTarget, Problem, Targets};
pub use matching::Matching;

use crate::error::Result;
use crate::random;
use crate::sharing::{Joint, Share, by_owner_set};
use crate::statistics::LayerStatistics;
use matching::{Joining, UnitPool};
use serde::{Deserialize, Serialize};
use system::{JointUnit, LayerSystem, owners_of};

/// How weights are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recipe {
    /// The paper to the letter: f of the old weights, private weights untouched.
    Paper,
    /// Least squares towards the original pre-activations on the merged network's inputs, one solve per owner set,
    /// private units and heads included.
    Best,
}

/// Which inputs of a layer count as the same for two tasks, so that the weights from them can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Align {
    /// Units that are shared.
    Shared,
    /// All units, paired as well as they go, shared or not (section 3.7 of the paper): more is saved with the same
    /// number of shared units.
    All,
}

/// How units are paired that are added to those of earlier layers, as in a residual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Streams {
    /// Every layer pairs its units freely, and later layers know them by the pairs of the last one that was added: the
    /// paper.
    Last,
    /// Every layer pairs its units freely, and later layers know them by the pairs of the first: one alignment for the
    /// whole stream.
    First,
    /// All layers of a stream have the pairs of the first.
    One,
}

/// How to merge a layer.
#[derive(Clone, Copy, Debug)]
pub struct MergeOptions {
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
    /// How often layers with a rectifier behind them are solved again for one-sided targets
    /// ([`crate::statistics::KeptSamples`]).
    pub rounds: usize,
    /// Where random numbers begin.
    pub seed: u64,
}

/// What happened to a layer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Merged {
    /// Units used by more than one task.
    pub shared: usize,
    /// The sum of d over all pairs.
    pub distance: f64,
    /// d of every pair, in the order they were chosen.
    pub distances: Vec<f64>,
    /// For every unit that joined and stays private, d to the unit it would have been cheapest to share with.
    pub private_distances: Vec<f64>,
    /// The mean of d over all possible pairs.
    pub typical_distance: f64,
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

/// Merges layer `layer` of a joint model whose earlier layers are merged. `seen` is each task's
/// ([`crate::statistics::layer_statistics`]), `weights` how much each task counts. `head`: nothing is shared, weights
/// are only fitted again.
pub fn merge_layer(
    joint: &mut Joint,
    layer: usize,
    seen: &[LayerStatistics],
    weights: &[f64],
    head: bool,
    options: &MergeOptions,
) -> Result<Merged> {
    let mut system = LayerSystem::new(joint, layer, seen, weights)?;
    let mut report = Merged { ridge: options.ridge, ..Merged::default() };
    let tasks = joint.members.len();
    if options.recipe == Recipe::Best {
        // Where nothing before this layer is shared, a task sees what it always saw, and its weights are right as they
        // are.
        for t in (0..tasks).filter(|&t| joint.has_changed(t, layer)) {
            let all: Vec<JointUnit> =
                (0..joint.members[t].layers[layer].units).map(|u| system::alone(tasks, t, u)).collect();
            system.fit(&all, options.ridge, options.rounds, &mut report)?;
        }
    }
    let mut pool = UnitPool::new();
    for t in 0..tasks {
        pool.join(&Joining { joint, layer, system: &system, task: t, options }, !head, &mut report)?;
        if t > 0 && !head && options.recipe == Recipe::Paper {
            match options.matching {
                Matching::Random => system.choose_one(&pool.units, t, random::bits(options.seed, 1000 + t as u64)),
                _ => system.merge_shared(&pool.units, t, options.ridge, &mut report)?,
            }
        }
    }
    if options.recipe == Recipe::Best {
        for units in by_owner_set(pool.units.iter().map(|unit| (owners_of(unit), unit.clone())))
            .values()
            .filter(|units| units[0].iter().flatten().count() > 1)
        {
            system.fit(units, options.ridge, options.rounds, &mut report)?;
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
        member.graph = at.write(&member.graph, &system.refits(t, at, options.recipe))?;
    }
    report.shared = joint.shared_units(layer);
    Ok(report)
}
