//! What sharing saves and what it costs, layer by layer.
//!
//! Sharing everything without retraining says what every pair of units costs, d, layer by layer. Relative to d of any
//! two units (the mean over the layer's table) costs compare between layers. What sharing saves is bilinear: a weight
//! is stored once if the unit that has it and the unit it comes from are both shared. For a price λ of a parameter
//!
//! ```text
//! minimise  Σ_l 1/K_l Σ_{k ≤ f_l K_l} c_lk  −  λ/P Σ_l W_l f_l Σ_s q_ls f_s
//! ```
//!
//! (f_l: share of layer l's K_l pairs; c_lk: their relative costs, cheapest first; W_l: its weights; q_ls: the part of
//! its inputs that come from layer s) is solved by going down from everything shared: each layer keeps the pairs that
//! are worth their price, which makes pairs of its neighbours worth less, until nothing changes.

use crate::merge::Align;
use crate::sharing::{Joint, Source};
use crate::zip::{ZipOptions, Zipped, aligned};

/// Costs relative to that of any pair, cheapest first.
fn relative(distances: &[f64], typical: f64) -> Vec<f64> {
    let mut costs: Vec<f64> = distances.iter().map(|d| d / typical.max(f64::MIN_POSITIVE)).collect();
    costs.sort_by(f64::total_cmp);
    costs
}

/// What sharing saves, and what it costs.
pub(super) struct Savings {
    /// For each layer, c of its pairs, cheapest first.
    costs: Vec<Vec<f64>>,
    /// W, relative to all weights.
    weights: Vec<f64>,
    /// q: for each layer the layers its inputs come from and their part; what is left is shared in any case.
    sources: Vec<Vec<(usize, f64)>>,
}

impl Savings {
    /// From a zip in which everything is shared.
    pub(super) fn of(start: &Joint, options: &ZipOptions, everything: &Zipped) -> Self {
        let costs = everything.layers.iter().map(|l| relative(&l.merged.distances, l.merged.typical_distance));
        Self::new(start, options, costs.collect())
    }

    fn new(start: &Joint, options: &ZipOptions, costs: Vec<Vec<f64>>) -> Self {
        let layers = &start.members[0].layers;
        let total: f64 = layers.iter().map(|l| (l.units * l.columns()) as f64).sum();
        let weights = layers.iter().map(|l| (l.units * l.columns()) as f64 / total.max(1.0)).collect();
        let bilinear = aligned(start, options) == Align::Shared;
        let sources = layers.iter().map(|layer| {
            let mut parts = vec![0.0; layers.len()];
            for source in layer.sources.iter().filter(|_| bilinear) {
                if let Source::Layer { layer: from, .. } = source {
                    parts[*from] += 1.0 / layer.sources.len() as f64;
                }
            }
            parts.into_iter().enumerate().filter(|(_, part)| *part > 0.0).collect()
        });
        let mut costs = costs;
        costs.resize(layers.len(), Vec::new());
        Self { costs, weights, sources: sources.collect() }
    }

    /// The part of a layer's inputs that is shared.
    fn inputs(&self, layer: usize, shares: &[f64]) -> f64 {
        self.sources[layer].iter().fold(1.0, |sum, (from, part)| sum - part * (1.0 - shares[*from]))
    }

    /// Σ W f g.
    fn saved(&self, shares: &[f64]) -> f64 {
        let one = |l: usize| if self.costs[l].is_empty() { 0.0 } else { self.weights[l] * shares[l] };
        (0..shares.len()).map(|l| one(l) * self.inputs(l, shares)).sum()
    }

    /// What is worth its price.
    fn at_price(&self, price: f64) -> Vec<f64> {
        let mut shares: Vec<f64> = self.costs.iter().map(|c| if c.is_empty() { 0.0 } else { 1.0 }).collect();
        loop {
            let worth: Vec<f64> = (0..shares.len())
                .map(|l| {
                    let readers = (0..shares.len()).flat_map(|r| self.sources[r].iter().map(move |s| (r, s)));
                    let read: f64 = readers
                        .filter(|(_, (from, _))| *from == l)
                        .map(|(r, (_, part))| self.weights[r] * shares[r] * part)
                        .sum();
                    self.weights[l] * self.inputs(l, &shares) + read
                })
                .collect();
            let next: Vec<f64> = self
                .costs
                .iter()
                .zip(&worth)
                .map(|(costs, worth)| costs.partition_point(|c| *c <= price * worth) as f64 / costs.len().max(1) as f64)
                .collect();
            let less: Vec<f64> = next.iter().zip(&shares).map(|(a, b)| a.min(*b)).collect();
            if less == shares {
                return shares;
            }
            shares = less;
        }
    }

    /// Shares that save about this part of what can be saved, at the lowest price.
    pub(super) fn shares(&self, part: f64) -> Vec<f64> {
        let all = self.at_price(f64::INFINITY);
        if part >= 1.0 {
            return all;
        }
        if part <= 0.0 {
            return vec![0.0; all.len()];
        }
        let wanted = part * self.saved(&all);
        let (mut low, mut high) = (-30.0f64, 60.0f64);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.saved(&self.at_price(middle.exp2())) < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (below, above) = (self.at_price(low.exp2()), self.at_price(high.exp2()));
        // A price at which much changes at once (sharing a layer makes sharing its neighbours worth while): some of the
        // way.
        let (from, to) = (self.saved(&below), self.saved(&above));
        let way = if to > from { ((wanted - from) / (to - from)).clamp(0.0, 1.0) } else { 1.0 };
        below.iter().zip(&above).map(|(a, b)| a + way * (b - a)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers that read each other's units; the second costs much more.
    fn chain(costs: [Vec<f64>; 2]) -> Savings {
        Savings { costs: costs.to_vec(), weights: vec![0.5, 0.5], sources: vec![vec![], vec![(0, 1.0)]] }
    }

    #[test]
    fn savings_are_bilinear() {
        let savings = chain([vec![0.1, 0.2], vec![0.1, 0.2]]);
        assert_eq!(savings.saved(&[1.0, 1.0]), 1.0);
        assert_eq!(savings.saved(&[0.5, 0.5]), 0.5 * 0.5 + 0.5 * 0.5 * 0.5);
        assert_eq!(savings.saved(&[0.0, 1.0]), 0.0);
    }

    #[test]
    fn cheap_pairs_go_first_and_the_wanted_part_is_saved() {
        let even = |from: f64| (0..100).map(|i| from + f64::from(i) / 100.0).collect::<Vec<_>>();
        let savings = chain([even(0.0), even(0.5)]);
        let mut before = vec![0.0; 2];
        for part in [0.1, 0.3, 0.5, 0.7, 0.9] {
            let shares = savings.shares(part);
            assert!((savings.saved(&shares) - part).abs() < 0.03, "{part}: {shares:?}");
            assert!(shares[0] >= shares[1], "the cheaper layer shares more: {shares:?}");
            assert!(shares.iter().zip(&before).all(|(a, b)| a >= b), "more is shared for more: {shares:?}");
            before = shares;
        }
        assert_eq!(savings.shares(1.0), [1.0, 1.0]);
        assert_eq!(savings.shares(0.0), [0.0, 0.0]);
    }

    #[test]
    fn free_pairs_are_shared_at_any_price() {
        let savings = chain([vec![0.0; 4], vec![0.0; 4]]);
        assert_eq!(savings.at_price(0.0), [1.0, 1.0]);
    }
}
