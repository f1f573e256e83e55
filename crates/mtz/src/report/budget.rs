//! The search for a budget, as part of a report.

use super::build::finite;
use super::by_name::ByName;
use super::text::in_bytes;
use crate::budget::{Budget, BudgetPoint, SearchResult};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The search for a budget: what was asked for, and every point that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BudgetRecord {
    /// Points of error that every task may lose.
    pub max_error_increase: Option<f64>,
    /// Agreement with its original that every task must keep, in percent.
    pub min_agreement: Option<f64>,
    /// Standard errors that must fit into these limits, too.
    pub margin: f64,
    /// How large the file may be.
    pub target_size: Option<TargetSize>,
    /// Shared weights at least, in units of the mean network.
    pub min_sharing: Option<f64>,
    /// Whether everything asked for holds.
    pub met: bool,
    /// What does not.
    pub missed: Vec<String>,
    /// Samples of each task that the search was judged by.
    pub held_out: ByName<usize>,
    /// Ways to share that were measured, in that order.
    pub points: Vec<BudgetPointRecord>,
}

/// How large a file may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TargetSize {
    /// A part of the files of the separate networks.
    Part(f64),
    /// So many bytes.
    Bytes(u64),
}

impl TargetSize {
    /// In bytes, if the separate networks take so many.
    pub fn in_bytes(self, before: u64) -> u64 {
        match self {
            Self::Part(part) => (part * before as f64) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl fmt::Display for TargetSize {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Part(part) => write!(f, "a file of at most {} %", (1e4 * part).round() / 100.0),
            Self::Bytes(bytes) => write!(f, "a file of at most {}", in_bytes(*bytes)),
        }
    }
}

/// A way to share, measured on held-out samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BudgetPointRecord {
    /// Parameters of the joint model.
    pub parameters: usize,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Its parameters as a part of those of the separate networks.
    pub size: f64,
    /// Shared weights in units of the mean network.
    pub sharing: f64,
    /// Points of error each task lost.
    pub error_increase: ByName<Option<f64>>,
    /// The standard errors of these.
    pub standard_error: ByName<Option<f64>>,
    /// Agreement of each task with its original, in percent.
    pub agreement: ByName<Option<f64>>,
    /// The standard errors of these.
    pub agreement_error: ByName<Option<f64>>,
    /// The share of each layer's pairs.
    pub shares: ByName<f64>,
    /// Iterations of retraining.
    pub iterations: usize,
    /// Whether this is what was written.
    pub chosen: bool,
    /// Whether no other point is smaller and loses less.
    pub pareto: bool,
}

impl BudgetRecord {
    /// What a search found. `target_size` is the limit as it was asked for, which the budget has in bytes.
    pub fn new(budget: &Budget, target_size: Option<TargetSize>, found: &SearchResult) -> Self {
        let members = &found.zipped.joint.members;
        let tasks: Vec<&str> = members.iter().map(|m| m.name.as_str()).collect();
        let layers: Vec<&str> = members.iter().take(1).flat_map(|m| &m.layers).map(|l| l.name.as_str()).collect();
        let by_task = |values: &[f64]| named(&tasks, values.iter().map(|x| finite(*x)));
        let before = found.zipped.parameters_before.max(1) as f64;
        let point = |(i, p): (usize, &BudgetPoint)| BudgetPointRecord {
            parameters: p.parameters,
            file_bytes: p.file_bytes,
            size: p.parameters as f64 / before,
            sharing: p.sharing,
            error_increase: by_task(&p.increase),
            standard_error: by_task(&p.standard_error),
            agreement: by_task(&p.agreement),
            agreement_error: by_task(&p.agreement_error),
            shares: named(&layers, p.shares.iter().copied()),
            iterations: p.iterations,
            chosen: i == found.chosen,
            pareto: p.is_best_of(&found.points),
        };
        Self {
            max_error_increase: budget.max_error_increase,
            min_agreement: budget.min_agreement,
            margin: budget.margin,
            target_size,
            min_sharing: budget.min_sharing,
            met: found.missed.is_empty(),
            missed: found.missed.clone(),
            held_out: named(&tasks, found.held_out.iter().copied()),
            points: found.points.iter().enumerate().map(point).collect(),
        }
    }

    /// Compares the limit with the file as it was written, which may differ from what the search expected.
    pub(super) fn check_file(&mut self, bytes_before: u64, bytes: u64) {
        let Some(most) = self.target_size.map(|size| size.in_bytes(bytes_before)) else { return };
        if bytes > most && self.missed.is_empty() {
            self.missed.push(format!("the file takes {bytes} bytes, {most} are allowed"));
            self.met = false;
        }
    }
}

fn named<T>(names: &[&str], values: impl Iterator<Item = T>) -> ByName<T> {
    names.iter().map(|name| (*name).to_owned()).zip(values).collect()
}
