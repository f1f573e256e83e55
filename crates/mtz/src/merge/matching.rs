//! Neuron matching: which unit of a task becomes one with which unit of those before it.
//!
//! Tasks join one after the other. [`UnitPool`] holds the joint units so far: who owns them, and by which number later
//! layers know them.

use super::system::{JointUnit, LayerSystem, alone};
use super::{Align, MergeOptions, Merged, Streams};
use crate::error::Result;
use crate::linalg::{greedy_pairs, optimal_pairs};
use crate::random;
use crate::sharing::{Joint, Share};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How pairs are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matching {
    /// The cheapest pair of all, then the cheapest of the rest.
    Greedy,
    /// The pairs with the smallest sum of distances.
    Optimal,
    /// Any pairs; in the paper's recipe with the weights of one of the two, chosen at random: what the paper compares
    /// with.
    Random,
}

/// Joint units, growing.
pub struct UnitPool {
    /// Their owners.
    pub units: Vec<JointUnit>,
    /// For each, the number later layers know it by: those with the same one stand for each other there.
    pub aligned: Vec<usize>,
    /// For each task, that number of each of its units. Only in a joint model whose residual streams have an alignment
    /// of their own do owners of a unit differ in it.
    pub known: Vec<Vec<usize>>,
}

/// Where a unit of a new task goes.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The joint unit it becomes one with.
    unit: Option<usize>,
    /// The number it is known by.
    aligned: Option<usize>,
}

/// A layer in which a task joins the pool of those before it.
pub struct Joining<'a> {
    pub joint: &'a Joint,
    pub layer: usize,
    pub system: &'a LayerSystem<'a>,
    /// Which task.
    pub task: usize,
    pub options: &'a MergeOptions,
}

impl UnitPool {
    pub fn new() -> Self {
        Self { units: Vec::new(), aligned: Vec::new(), known: Vec::new() }
    }

    /// Lets a task join. `share`: its units may be paired with those of other networks.
    pub fn join(&mut self, new: &Joining, share: bool, report: &mut Merged) -> Result<()> {
        // What a joint model among the inputs shares already stays shared.
        let mut places = self.places_so_far(new);
        if share && !self.units.is_empty() && places.iter().all(|p| p.unit.is_none() && p.aligned.is_none()) {
            self.pair(new, &mut places, report)?;
        }
        let mut known = Vec::with_capacity(places.len());
        for (j, place) in places.into_iter().enumerate() {
            let fresh =
                || self.aligned.iter().chain(&known).chain(self.known.iter().flatten()).max().map_or(0, |a| a + 1);
            let number = place.aligned.unwrap_or_else(fresh);
            known.push(number);
            match place.unit {
                Some(p) => self.units[p][new.task] = Some(j),
                None => {
                    self.units.push(alone(new.joint.members.len(), new.task, j));
                    self.aligned.push(number);
                }
            }
        }
        self.known.push(known);
        Ok(())
    }

    /// For each unit of task t, what it is one with already.
    fn places_so_far(&self, new: &Joining) -> Vec<Place> {
        let Joining { joint, layer, task: t, .. } = *new;
        let (mut units, mut aligned) = (BTreeMap::new(), BTreeMap::new());
        for (p, owners) in self.units.iter().enumerate() {
            for (member, unit) in joint.members.iter().zip(owners) {
                unit.iter().for_each(|unit| {
                    units.insert(member.units[layer][*unit], p);
                });
            }
        }
        for (member, known) in joint.members.iter().zip(&self.known) {
            aligned.extend(member.aligned[layer].iter().copied().zip(known.iter().copied()));
        }
        let own = joint.members[t].units[layer].iter().zip(&joint.members[t].aligned[layer]);
        own.map(|(unit, number)| Place { unit: units.get(unit).copied(), aligned: aligned.get(number).copied() })
            .collect()
    }

    /// Finds partners for the units of the new task.
    fn pair(&self, new: &Joining, places: &mut [Place], report: &mut Merged) -> Result<()> {
        let Joining { system, task: t, options, .. } = *new;
        let d = system.distances(&self.units, t, options.ridge)?;
        let own = places.len();
        // Joint units with the same aligned number are one choice; the nearest of them counts.
        let numbers: Vec<usize> = self.aligned.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let mut nearest: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); numbers.len() * own];
        for (p, number) in self.aligned.iter().enumerate() {
            let Ok(row) = numbers.binary_search(number) else { continue };
            for j in 0..own {
                let best = &mut nearest[row * own + j];
                if d[p * own + j] < best.0 {
                    *best = (d[p * own + j], p);
                }
            }
        }
        drop(d);
        let costs: Vec<f64> = nearest.iter().map(|n| n.0).collect();
        // Of several tasks that join, the last has seen most.
        report.typical_distance = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
        let smaller = own.min(numbers.len());
        let wanted = options.share.count(smaller);
        let count = if options.align == Align::All { smaller } else { wanted };
        let given = (options.streams == Streams::One).then(|| self.given_by_stream(new, &numbers)).flatten();
        let mut pairs = match (given, options.matching) {
            (Some(given), _) => given,
            (None, Matching::Greedy) => greedy_pairs(&costs, own, count),
            (None, Matching::Optimal) => optimal_pairs(&costs, own, count),
            (None, Matching::Random) => {
                let rows = random::permutation(random::bits(options.seed, 2 * t as u64), numbers.len());
                let columns = random::permutation(random::bits(options.seed, 2 * t as u64 + 1), own);
                rows.into_iter().zip(columns).take(count).collect()
            }
        };
        if pairs.len() > wanted && options.matching != Matching::Random {
            pairs.sort_by(|a, b| costs[a.0 * own + a.1].total_cmp(&costs[b.0 * own + b.1]).then(a.cmp(b)));
        }
        for (k, (row, j)) in pairs.into_iter().enumerate() {
            let (distance, p) = nearest[row * own + j];
            let shared = k < wanted && !matches!(options.share, Share::Below(limit) if distance >= limit);
            if shared {
                report.distance += distance;
                report.distances.push(distance);
            }
            let aligned = (shared || options.align == Align::All).then_some(numbers[row]);
            places[j] = Place { unit: shared.then_some(p), aligned };
        }
        let cheapest = |j: usize| costs.iter().skip(j).step_by(own).copied().fold(f64::INFINITY, f64::min);
        report.private_distances.extend((0..own).filter(|&j| places[j].unit.is_none()).map(cheapest));
        Ok(())
    }

    /// The pairs (row of `numbers`, unit of t) that an earlier layer of the same residual stream has made.
    fn given_by_stream(&self, new: &Joining, numbers: &[usize]) -> Option<Vec<(usize, usize)>> {
        let Joining { joint, layer, task: t, .. } = *new;
        joint.stream(layer)?;
        let known = |t: usize, unit: usize| {
            let member = &joint.members[t];
            let (before, unit) = *member.layers[layer].stream.as_ref()?.get(unit)?;
            Some(member.aligned[before][unit])
        };
        let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
        for (owners, aligned) in self.units.iter().zip(&self.aligned) {
            for (s, unit) in owners.iter().enumerate() {
                if let (Some(unit), Ok(row)) = (unit, numbers.binary_search(aligned)) {
                    rows.insert(known(s, *unit)?, row);
                }
            }
        }
        let own = 0..joint.members[t].layers[layer].units;
        let pairs: Option<Vec<Option<(usize, usize)>>> =
            own.map(|j| Some(rows.get(&known(t, j)?).map(|row| (*row, j)))).collect();
        Some(pairs?.into_iter().flatten().collect())
    }
}
