//! Which units of a layer become one, and with which weights: the paper's d and f, and better ones.
//!
//! Gram matrices are never inverted on their own (they are singular on real data); both formulas are rewritten with the inverse of
//! a sum:
//!
//! * f: `w* = (G_A + G_B)⁻¹ (G_A w_A + G_B w_B)`
//! * d: `½ (w_A − w_B)ᵀ P (w_A − w_B)` with the parallel sum `P = G_A (G_A + G_B)⁻¹ G_B`
//!
//! Both are solved in [`crate::linalg`]; here is decided who takes part.

mod table;

use crate::error::Result;
use crate::linalg::{Moments, best_pairs, greedy};
use crate::plan::Joint;
use crate::random;
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

/// How to merge a layer.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many units.
    pub share: Share,
    /// Which pairs.
    pub matching: Matching,
    /// Which weights.
    pub recipe: Recipe,
    /// Ridge relative to the mean of the diagonal.
    pub ridge: f64,
    /// Where random numbers begin.
    pub seed: u64,
}

/// What happened to a layer.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Units used by more than one task.
    pub shared: usize,
    /// The sum of d over all pairs.
    pub distance: f64,
    /// d of every pair, in the order they were chosen.
    pub distances: Vec<f64>,
    /// The largest ridge that was needed.
    pub ridge: f64,
    /// Whether a matrix was singular in spite of the ridge asked for.
    pub raised: bool,
}

impl Merged {
    fn note(&mut self, ridge: f64, raised: bool) {
        self.ridge = self.ridge.max(ridge);
        self.raised |= raised;
    }
}

/// Merges layer `layer` of a joint model whose earlier layers are merged. `moments` are each task's ([`crate::statistics::moments`]), `weights`
/// how much each task counts. `head`: nothing is shared, weights are only fitted again.
pub fn merge_layer(
    joint: &mut Joint,
    layer: usize,
    moments: &[Moments],
    weights: &[f64],
    head: bool,
    options: &Options,
) -> Result<Merged> {
    let mut table = Table::new(joint, layer, moments, weights)?;
    let mut report = Merged { shared: 0, distance: 0.0, distances: Vec::new(), ridge: options.ridge, raised: false };
    let tasks = joint.members.len();
    if options.recipe == Recipe::Best {
        // Where nothing before this layer is shared, a task sees what it always saw, and its weights are right as they are.
        for t in (0..tasks).filter(|&t| joint.has_changed(t, layer)) {
            let all: Vec<Owners> =
                (0..joint.members[t].layers[layer].units).map(|u| table::alone(tasks, t, u)).collect();
            table.fit(&all, options.ridge, &mut report)?;
        }
    }
    // Tasks join one after the other; the pool holds the joint units so far.
    let mut pool: Vec<Owners> = Vec::new();
    for t in 0..tasks {
        // What a joint model among the inputs shares already stays shared.
        let mut partner = partners_so_far(joint, layer, &pool, t);
        let zipped_before = joint.members[..t].iter().any(|m| joint.members[t].shares_with(m, layer));
        if t > 0 && !head && !zipped_before {
            for (p, j, d) in pairs(&table, &pool, t, options, &mut report)? {
                partner[j] = Some(p);
                report.distance += d;
                report.distances.push(d);
            }
        }
        for (j, p) in partner.into_iter().enumerate() {
            match p {
                Some(p) => pool[p][t] = Some(j),
                None => pool.push(table::alone(tasks, t, j)),
            }
        }
        if t > 0 && !head && options.recipe == Recipe::Paper {
            match options.matching {
                Matching::Random => table.choose_one(&pool, t, random::bits(options.seed, 1000 + t as u64)),
                _ => table.merge_shared(&pool, t, options.ridge, &mut report)?,
            }
        }
    }
    if options.recipe == Recipe::Best {
        for units in by_owner_set(&pool).values().filter(|units| units[0].iter().flatten().count() > 1) {
            table.fit(units, options.ridge, &mut report)?;
        }
    }
    for (joint_unit, owners) in pool.iter().enumerate() {
        for (t, unit) in owners.iter().enumerate() {
            if let Some(unit) = unit {
                joint.members[t].units[layer][*unit] = joint_unit;
            }
        }
    }
    for (t, member) in joint.members.iter_mut().enumerate() {
        let rows = table.rows(t, member.layers[layer].bias.is_some());
        member.graph = member.layers[layer].write(&member.graph, &rows)?;
    }
    report.shared = joint.shared_units(layer);
    Ok(report)
}

/// For each unit of task t, the pool unit it is one with already.
fn partners_so_far(joint: &Joint, layer: usize, pool: &[Owners], t: usize) -> Vec<Option<usize>> {
    let number = |owners: &Owners| {
        let of = |(s, unit): (usize, &Option<usize>)| unit.map(|u| joint.members[s].units[layer][u]);
        owners.iter().enumerate().find_map(of)
    };
    let known: BTreeMap<usize, usize> =
        pool.iter().enumerate().filter_map(|(p, owners)| number(owners).map(|id| (id, p))).collect();
    joint.members[t].units[layer].iter().map(|id| known.get(id).copied()).collect()
}

/// The pairs (pool unit, unit of t, d) to share.
fn pairs(
    table: &Table,
    pool: &[Owners],
    t: usize,
    options: &Options,
    report: &mut Merged,
) -> Result<Vec<(usize, usize, f64)>> {
    let (d, raised) = table.distances(pool, t, options.ridge)?;
    report.note(options.ridge, raised);
    let own = d.len().checked_div(pool.len()).unwrap_or(0);
    let smaller = own.min(pool.len());
    let count = match options.share {
        Share::All | Share::Below(_) => smaller,
        Share::Fraction(f) => ((smaller as f64 * f).round() as usize).min(smaller),
        Share::Count(n) => n.min(smaller),
    };
    let pairs = match options.matching {
        Matching::Greedy => greedy(&d, own, count),
        Matching::Optimal => best_pairs(&d, own, count),
        Matching::Random => {
            let rows = random::permutation(random::bits(options.seed, 2 * t as u64), pool.len());
            let columns = random::permutation(random::bits(options.seed, 2 * t as u64 + 1), own);
            rows.into_iter().zip(columns).take(count).collect()
        }
    };
    let pairs = pairs.into_iter().map(|(i, j)| (i, j, d[i * own + j]));
    Ok(match options.share {
        Share::Below(limit) => pairs.filter(|p| p.2 < limit).collect(),
        _ => pairs.collect(),
    })
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
