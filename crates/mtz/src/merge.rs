//! Which units of a layer become one, and with which weights: the paper's d and f, and better ones.
//!
//! Gram matrices are never inverted on their own (they are singular on real data); both formulas are rewritten with the inverse of
//! a sum:
//!
//! * f: `w* = (G_A + G_B)⁻¹ (G_A w_A + G_B w_B)`
//! * d: `½ (w_A − w_B)ᵀ P (w_A − w_B)` with the parallel sum `P = G_A (G_A + G_B)⁻¹ G_B`

use crate::error::{Error, Result};
use crate::linalg::{Moments, best_pairs, greedy, solve_towards};
use crate::plan::{Column, Joint};
use crate::random;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Any: what the paper compares with.
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

/// One layer of all tasks with its columns in joint numbers.
struct Table<'a> {
    /// For each task, the joint number of each column.
    columns: Vec<Vec<usize>>,
    /// How many columns there are in all.
    count: usize,
    /// For each task and joint column, whether the task has it.
    has: Vec<Vec<bool>>,
    moments: &'a [Moments],
    /// The Gram matrix of each task.
    grams: Vec<Vec<f64>>,
    /// a_t / n_t for each task.
    scales: Vec<f64>,
    /// For each task, units × joint columns: the weights it has now; zero where it has no such column.
    weights: Vec<Vec<f64>>,
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
    if options.recipe == Recipe::Best {
        // Where nothing before this layer is shared, a task sees what it always saw, and its weights are right as they are.
        for t in (0..joint.members.len()).filter(|&t| joint.has_changed(t, layer)) {
            let all: Vec<usize> = (0..joint.members[t].layers[layer].units).collect();
            let fitted = table.fit(&[(t, all)], options.ridge, &mut report)?;
            table.set(t, &fitted);
        }
    }
    // The pool of joint units so far: for each its weights and, per task, its unit.
    let mut pool: Vec<Vec<Option<usize>>> = Vec::new();
    let tasks = joint.members.len();
    for t in 0..tasks {
        let own = joint.members[t].layers[layer].units;
        // What a joint model among the inputs shares already stays shared.
        let number = |owners: &Vec<Option<usize>>| {
            let of = |(s, unit): (usize, &Option<usize>)| unit.map(|u| joint.members[s].units[layer][u]);
            owners.iter().enumerate().filter_map(of).next()
        };
        let known: BTreeMap<usize, usize> =
            pool.iter().enumerate().filter_map(|(p, owners)| number(owners).map(|id| (id, p))).collect();
        let mut partner: Vec<Option<usize>> =
            joint.members[t].units[layer].iter().map(|id| known.get(id).copied()).collect();
        let zipped_before = joint.members[..t].iter().any(|m| joint.members[t].shares_with(m, layer));
        if t > 0 && !head && !zipped_before {
            for (p, j, d) in table.pairs(&pool, t, own, options, &mut report)? {
                partner[j] = Some(p);
                report.distance += d;
                report.distances.push(d);
            }
        }
        for (j, p) in partner.into_iter().enumerate() {
            match p {
                Some(p) => pool[p][t] = Some(j),
                None => {
                    let mut owners = vec![None; tasks];
                    owners[t] = Some(j);
                    pool.push(owners);
                }
            }
        }
        if t > 0 && options.recipe == Recipe::Paper && !head {
            table.merge_shared(&pool, t, options.ridge, &mut report)?;
        }
    }
    if options.recipe == Recipe::Best {
        table.fit_owner_sets(&pool, options.ridge, &mut report)?;
    }
    for (joint_unit, owners) in pool.iter().enumerate() {
        for (t, unit) in owners.iter().enumerate() {
            if let Some(unit) = unit {
                joint.members[t].units[layer][*unit] = joint_unit;
            }
        }
    }
    for t in 0..tasks {
        let member = &mut joint.members[t];
        let rows = table.rows(t, member.layers[layer].bias.is_some());
        member.graph = member.layers[layer].write(&member.graph, &rows)?;
    }
    report.shared = joint.shared_units(layer);
    Ok(report)
}

impl<'a> Table<'a> {
    fn new(joint: &Joint, layer: usize, moments: &'a [Moments], weights: &[f64]) -> Result<Self> {
        let mut numbers: BTreeMap<Column, usize> = BTreeMap::new();
        let mut columns = Vec::new();
        for member in &joint.members {
            let own = member.columns(layer);
            columns.push(
                own.iter()
                    .map(|column| {
                        let next = numbers.len();
                        *numbers.entry(*column).or_insert(next)
                    })
                    .collect::<Vec<usize>>(),
            );
        }
        let count = numbers.len();
        let mut tables = Vec::new();
        let mut scales = Vec::new();
        for ((member, own), (moments, weight)) in joint.members.iter().zip(&columns).zip(moments.iter().zip(weights)) {
            let at = &member.layers[layer];
            if moments.samples() == 0 || moments.size() != at.columns() + 1 || moments.outputs() != at.units {
                return Err(Error::data(format!("there are no samples for {}", member.name)).at_node(&at.name));
            }
            let rows = at.read(&member.graph);
            let mut table = vec![0.0; at.units * count];
            for (row, table) in rows.chunks(at.columns() + 1).zip(table.chunks_mut(count)) {
                for (k, &column) in own.iter().enumerate() {
                    table[column] = f64::from(row[k]);
                }
            }
            tables.push(table);
            scales.push(weight / moments.samples() as f64);
        }
        let has = columns.iter().map(|own| {
            let mut has = vec![false; count];
            own.iter().for_each(|&column| has[column] = true);
            has
        });
        let grams = moments.iter().map(Moments::gram).collect();
        Ok(Self { has: has.collect(), columns, count, grams, moments, scales, weights: tables })
    }

    /// Adds (a_t / n_t) G_t, restricted to chosen joint columns (`place` gives their position), to a matrix of `size`.
    fn add_gram(&self, t: usize, place: &[Option<usize>], size: usize, sum: &mut [f64]) {
        let (own, gram, full) = (&self.columns[t], &self.grams[t], self.moments[t].size());
        for (i, &a) in own.iter().enumerate() {
            let Some(row) = place[a] else { continue };
            for (j, &b) in own.iter().enumerate() {
                if let Some(column) = place[b] {
                    sum[row * size + column] += self.scales[t] * gram[i * full + j];
                }
            }
        }
    }

    /// Least squares for units with the same owners: `members[m] = (task, its units)`, unit k of all of them is one. The result is
    /// [column of the owners][unit], with the columns it belongs to.
    fn fit(&self, members: &[(usize, Vec<usize>)], ridge: f64, report: &mut Merged) -> Result<(Vec<usize>, Vec<f64>)> {
        let used: BTreeSet<usize> = members.iter().flat_map(|(t, _)| self.columns[*t].iter().copied()).collect();
        let used: Vec<usize> = used.into_iter().collect();
        let mut place = vec![None; self.count];
        used.iter().enumerate().for_each(|(i, &column)| place[column] = Some(i));
        let (size, units) = (used.len(), members.first().map_or(0, |m| m.1.len()));
        let (mut a, mut b) = (vec![0.0; size * size], vec![0.0; size * units]);
        let (mut prior, mut owners) = (vec![0.0; size * units], vec![0.0f64; size]);
        for (t, own) in members {
            self.add_gram(*t, &place, size, &mut a);
            let (cross, outputs) = (self.moments[*t].cross(), self.moments[*t].outputs());
            for (i, &column) in self.columns[*t].iter().enumerate() {
                let Some(row) = place[column] else { continue };
                owners[row] += 1.0;
                for (k, &unit) in own.iter().enumerate() {
                    b[row * units + k] += self.scales[*t] * cross[i * outputs + unit];
                    prior[row * units + k] += self.weights[*t][unit * self.count + column];
                }
            }
        }
        for (prior, owners) in prior.chunks_mut(units.max(1)).zip(&owners) {
            prior.iter_mut().for_each(|p| *p /= f64::max(*owners, 1.0));
        }
        let solved = solve_towards(&a, &b, &prior, size, units, ridge)?;
        report.ridge = report.ridge.max(solved.ridge);
        report.raised |= solved.raised;
        Ok((used, solved.x))
    }

    /// Takes over fitted weights of all units of a task.
    fn set(&mut self, t: usize, (columns, x): &(Vec<usize>, Vec<f64>)) {
        let units = x.len() / columns.len().max(1);
        for (i, &column) in columns.iter().enumerate() {
            for unit in 0..units {
                self.weights[t][unit * self.count + column] = x[i * units + unit];
            }
        }
    }

    /// The columns that both the pool (tasks before t) and task t have; their places.
    fn common(&self, t: usize) -> (Vec<usize>, Vec<Option<usize>>) {
        let before: BTreeSet<usize> = self.columns[..t].iter().flatten().copied().collect();
        let own: BTreeSet<usize> = self.columns[t].iter().copied().collect();
        let common: Vec<usize> = before.intersection(&own).copied().collect();
        let mut place = vec![None; self.count];
        common.iter().enumerate().for_each(|(i, &column)| place[column] = Some(i));
        (common, place)
    }

    /// A pool unit's weights: the mean of its owners'.
    fn pool_weight(&self, owners: &[Option<usize>], column: usize) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for (t, unit) in owners.iter().enumerate() {
            if let Some(unit) = unit
                && self.has[t][column]
            {
                sum += self.weights[t][unit * self.count + column];
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 0.0 }
    }

    /// The pairs (pool unit, unit of t, d) to share.
    fn pairs(
        &self,
        pool: &[Vec<Option<usize>>],
        t: usize,
        own: usize,
        options: &Options,
        report: &mut Merged,
    ) -> Result<Vec<(usize, usize, f64)>> {
        let (common, place) = self.common(t);
        let size = common.len();
        let smaller = own.min(pool.len());
        let count = match options.share {
            Share::All | Share::Below(_) => smaller,
            Share::Fraction(f) => ((smaller as f64 * f).round() as usize).min(smaller),
            Share::Count(n) => n.min(smaller),
        };
        let (mut ga, mut gb) = (vec![0.0; size * size], vec![0.0; size * size]);
        (0..t).for_each(|s| self.add_gram(s, &place, size, &mut ga));
        self.add_gram(t, &place, size, &mut gb);
        // P = G_A (G_A + G_B)⁻¹ G_B
        let sum: Vec<f64> = ga.iter().zip(&gb).map(|(a, b)| a + b).collect();
        let solved = solve_towards(&sum, &gb, &vec![0.0; gb.len()], size, size, options.ridge.min(1e-9))?;
        report.raised |= solved.raised;
        let p = product(&ga, &solved.x, size, size, size);
        // Units as rows over the common columns.
        let a: Vec<f64> =
            pool.iter().flat_map(|owners| common.iter().map(|&column| self.pool_weight(owners, column))).collect();
        let b: Vec<f64> = (0..own)
            .flat_map(|j| common.iter().map(move |&column| (j, column)))
            .map(|(j, column)| self.weights[t][j * self.count + column])
            .collect();
        // d(i, j) = ½ (aᵢᵀ P aᵢ + bⱼᵀ P bⱼ) − aᵢᵀ P bⱼ: three matrix products give the whole table.
        let (ap, bp) = (product(&a, &p, pool.len(), size, size), product(&b, &p, own, size, size));
        let norm = |x: &[f64], y: &[f64]| -> Vec<f64> {
            x.chunks(size.max(1))
                .zip(y.chunks(size.max(1)))
                .map(|(x, y)| x.iter().zip(y).map(|(x, y)| x * y).sum())
                .collect()
        };
        let (na, nb) = (norm(&ap, &a), norm(&bp, &b));
        let mut turned = vec![0.0; size * own];
        for j in 0..own {
            for k in 0..size {
                turned[k * own + j] = b[j * size + k];
            }
        }
        let mut d = product(&ap, &turned, pool.len(), size, own);
        for (i, row) in d.chunks_mut(own.max(1)).enumerate() {
            for (j, d) in row.iter_mut().enumerate() {
                *d = (0.5 * (na[i] + nb[j]) - *d).max(0.0);
            }
        }
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

    /// f for the units that task t has just joined: weights from the common columns become one, all others stay.
    fn merge_shared(&mut self, pool: &[Vec<Option<usize>>], t: usize, ridge: f64, report: &mut Merged) -> Result<()> {
        let (common, place) = self.common(t);
        let size = common.len();
        let joined: Vec<&Vec<Option<usize>>> =
            pool.iter().filter(|o| o[t].is_some() && o[..t].iter().any(Option::is_some)).collect();
        let (mut ga, mut gb) = (vec![0.0; size * size], vec![0.0; size * size]);
        (0..t).for_each(|s| self.add_gram(s, &place, size, &mut ga));
        self.add_gram(t, &place, size, &mut gb);
        let sum: Vec<f64> = ga.iter().zip(&gb).map(|(a, b)| a + b).collect();
        let units = joined.len();
        let (mut wa, mut wb) = (vec![0.0; size * units], vec![0.0; size * units]);
        for (u, owners) in joined.iter().enumerate() {
            let mut before = (*owners).clone();
            before[t..].fill(None);
            for (k, &column) in common.iter().enumerate() {
                wa[k * units + u] = self.pool_weight(&before, column);
                wb[k * units + u] = owners[t].map_or(0.0, |j| self.weights[t][j * self.count + column]);
            }
        }
        let mut right = product(&ga, &wa, size, size, units);
        product(&gb, &wb, size, size, units).iter().zip(&mut right).for_each(|(b, r)| *r += b);
        let prior: Vec<f64> = wa.iter().zip(&wb).map(|(a, b)| 0.5 * (a + b)).collect();
        let solved = solve_towards(&sum, &right, &prior, size, units, ridge)?;
        report.ridge = report.ridge.max(solved.ridge);
        report.raised |= solved.raised;
        let updates: Vec<(usize, usize, usize)> = joined
            .iter()
            .enumerate()
            .flat_map(|(u, owners)| {
                owners.iter().take(t + 1).enumerate().filter_map(move |(s, unit)| unit.map(|unit| (u, s, unit)))
            })
            .collect();
        for (u, s, unit) in updates {
            for (k, &column) in common.iter().enumerate() {
                if self.has[s][column] {
                    self.weights[s][unit * self.count + column] = solved.x[k * units + u];
                }
            }
        }
        Ok(())
    }

    /// One solve for each set of owners.
    fn fit_owner_sets(&mut self, pool: &[Vec<Option<usize>>], ridge: f64, report: &mut Merged) -> Result<()> {
        let mut sets: BTreeMap<Vec<usize>, Vec<&Vec<Option<usize>>>> = BTreeMap::new();
        for owners in pool {
            let set = owners.iter().enumerate().filter(|(_, u)| u.is_some()).map(|(t, _)| t).collect();
            sets.entry(set).or_default().push(owners);
        }
        for (set, units) in sets.iter().filter(|(set, _)| set.len() > 1) {
            let members: Vec<(usize, Vec<usize>)> =
                set.iter().map(|&t| (t, units.iter().filter_map(|owners| owners[t]).collect())).collect();
            let (columns, x) = self.fit(&members, ridge, report)?;
            let count = units.len();
            for (t, own) in &members {
                for (i, &column) in columns.iter().enumerate().filter(|(_, c)| self.has[*t][**c]) {
                    for (k, &unit) in own.iter().enumerate() {
                        self.weights[*t][unit * self.count + column] = x[i * count + k];
                    }
                }
            }
        }
        Ok(())
    }

    /// A task's weights as [`crate::plan::Layer::write`] takes them.
    fn rows(&self, t: usize, bias: bool) -> Vec<f32> {
        let own = &self.columns[t];
        let rows = self.weights[t].chunks(self.count.max(1)).flat_map(|row| {
            own.iter().map(|&column| row[column] as f32).chain((!bias).then_some(0.0)).collect::<Vec<f32>>()
        });
        rows.collect()
    }
}

/// A B for row-major matrices n×k and k×m, in f64.
fn product(a: &[f64], b: &[f64], n: usize, k: usize, m: usize) -> Vec<f64> {
    let mut c = vec![0.0; n * m];
    if n * k * m > 0 {
        faer::linalg::matmul::matmul(
            faer::MatMut::from_row_major_slice_mut(&mut c, n, m),
            faer::Accum::Replace,
            faer::MatRef::from_row_major_slice(a, n, k),
            faer::MatRef::from_row_major_slice(b, k, m),
            1.0,
            faer::Par::rayon(0),
        );
    }
    c
}
