//! How much to share, for a budget: points of error that may be lost, agreement to keep, a size, or a share of the
//! weights.
//!
//! [`Budget`] says what must hold, [`search`] finds a way to share that does. It zips everything once; what each
//! pair of
//! units costs and saves follows from that (`budget::savings`), and real zips decide how far to go, on samples that
//! zipping does not use otherwise.

mod savings;
mod search;

pub use search::{SearchProgress, search};

use crate::error::{Error, Result};
use crate::joint_file;
use crate::onnx;
use crate::sharing::Joint;
use crate::zip::{TaskData, Zipped};
use search::{CORRECTIONS, RETRAINED_STEPS, STEPS};

/// What must hold; at least one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Points of error that every task may lose, on held-out samples.
    pub max_error_increase: Option<f64>,
    /// Agreement with its original that every task must keep on held-out samples, in percent. Needs no labels.
    pub min_agreement: Option<f64>,
    /// Standard errors of what was lost on them that must fit in as well; 0 takes it as measured. The search picks the
    /// largest point that just fits, so it favours points whose measured loss happened to be low.
    pub margin: f64,
    /// How many bytes the file of the joint model may take.
    pub target_bytes: Option<u64>,
    /// Shared weights at least, in units of the mean network (the paper's measure).
    pub min_sharing: Option<f64>,
}

/// One way to share, measured.
#[derive(Clone, Debug)]
pub struct BudgetPoint {
    /// The share of each layer's pairs.
    pub shares: Vec<f64>,
    /// Parameters of the joint model.
    pub parameters: usize,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Shared weights in units of the mean network.
    pub sharing: f64,
    /// Points of error each task lost on held-out samples.
    pub increase: Vec<f64>,
    /// The standard errors of these.
    pub standard_error: Vec<f64>,
    /// Agreement of each task with its original on held-out samples, in percent.
    pub agreement: Vec<f64>,
    /// The standard errors of these.
    pub agreement_error: Vec<f64>,
    /// Iterations of retraining.
    pub iterations: usize,
}

impl BudgetPoint {
    /// Whether no other point is smaller and loses less: the points of which that holds are the Pareto curve.
    pub fn is_best_of(&self, points: &[Self]) -> bool {
        // Of each task what counts is its error; agreement where it has no labels.
        let of_task = |(lost, agreement): (&f64, &f64)| if lost.is_nan() { 100.0 - agreement } else { *lost };
        let lost = |p: &Self| p.increase.iter().zip(&p.agreement).map(of_task).fold(f64::NEG_INFINITY, f64::max);
        let (size, own) = (self.parameters, lost(self));
        !points.iter().any(|p| {
            let (other, others) = (p.parameters, lost(p));
            other <= size && others <= own && (other < size || others < own)
        })
    }

    /// Whether every task stays within the budget, with its margin.
    fn fits(&self, budget: &Budget) -> bool {
        let mut lost = self.increase.iter().zip(&self.standard_error).map(|(x, error)| x + budget.margin * error);
        let mut kept = self.agreement.iter().zip(&self.agreement_error).map(|(x, error)| x - budget.margin * error);
        budget.max_error_increase.is_none_or(|limit| lost.all(|lost| lost <= limit))
            && budget.min_agreement.is_none_or(|limit| kept.all(|kept| kept >= limit))
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// All points, in the order they were measured.
    pub points: Vec<BudgetPoint>,
    /// The one to take.
    pub chosen: usize,
    /// What of the budget it misses, in words; nothing if the budget is met.
    pub missed: Vec<String>,
    /// The model that was chosen, measured on each task's test samples.
    pub zipped: Zipped,
    /// How many samples of each task were held out.
    pub held_out: Vec<usize>,
}

impl Budget {
    /// Refuses a limit on the error of a task that has no labels.
    fn check_labels(&self, tasks: &[TaskData]) -> Result<()> {
        match tasks.iter().find(|t| t.train.labels().is_none() && self.max_error_increase.is_some()) {
            None => Ok(()),
            Some(task) => Err(Error::data(format!("the error of {} cannot be measured without labels", task.name))
                .hint("give labels, or use `min_agreement`, which needs none")),
        }
    }

    /// Whether it says what may be lost.
    fn limits_quality(&self) -> bool {
        self.max_error_increase.is_some() || self.min_agreement.is_some()
    }

    /// How many zips a search takes at most: without retraining, and with it.
    pub fn zips(&self, retrain: usize) -> (usize, usize) {
        match (self.limits_quality(), retrain) {
            (true, 0) => (2 + STEPS, 0),
            (true, _) => (2, 1 + RETRAINED_STEPS),
            (false, 0) => (1 + CORRECTIONS, 0),
            (false, _) => (1 + CORRECTIONS, 1),
        }
    }

    /// What of it a point misses.
    fn missed(&self, point: &BudgetPoint, start: &Joint) -> Vec<String> {
        let mut missed = Vec::new();
        if let Some(limit) = self.max_error_increase {
            let lost = point.increase.iter().zip(&point.standard_error);
            let worst = lost.max_by(|a, b| (a.0 + self.margin * a.1).total_cmp(&(b.0 + self.margin * b.1)));
            if let Some((lost, error)) = worst.filter(|(lost, error)| *lost + self.margin * *error > limit) {
                missed.push(format!("{lost:.2} points are lost{}, {limit} are allowed", self.margin_text(*error)));
            }
        }
        if let Some(limit) = self.min_agreement {
            let kept = point.agreement.iter().zip(&point.agreement_error);
            let worst = kept.min_by(|a, b| (a.0 - self.margin * a.1).total_cmp(&(b.0 - self.margin * b.1)));
            if let Some((kept, error)) = worst.filter(|(kept, error)| *kept - self.margin * *error < limit) {
                let margin = self.margin_text(*error);
                missed.push(format!("{kept:.2} % of the answers are the original's{margin}, {limit} % are asked for"));
            }
        }
        if let Some(most) = self.target_bytes.filter(|most| point.file_bytes > *most) {
            missed.push(format!("the file takes {} bytes, {most} are allowed", point.file_bytes));
        }
        if let Some(least) = self.min_sharing.filter(|least| point.sharing < *least) {
            missed.push(format!("{:.3} networks are shared, {least} are asked for", point.sharing));
        }
        if self.limits_quality() && point.sharing <= sharing(start, start) {
            missed.push("nothing can be shared".into());
        }
        missed
    }

    fn margin_text(&self, standard_error: f64) -> String {
        let margin = self.margin * standard_error;
        if margin > 0.0 { format!(" (and {margin:.2} of margin)") } else { String::new() }
    }
}

/// Bytes of the file of a joint model, as it is written without further ado.
pub fn file_bytes(joint: &Joint) -> Result<u64> {
    onnx::file_bytes(&joint_file::to_graph(joint, false)?)
}

/// Shared weights in units of the mean network (the paper's measure).
pub fn sharing(joint: &Joint, start: &Joint) -> f64 {
    let all: usize = start.members.iter().map(|m| m.graph.parameters()).sum();
    (joint.parameters().1 * start.members.len()) as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_has_no_point_that_another_beats() {
        let point = |parameters, increase: [f64; 2]| BudgetPoint {
            shares: Vec::new(),
            parameters,
            file_bytes: 4 * parameters as u64,
            sharing: 0.0,
            increase: increase.to_vec(),
            standard_error: vec![0.0; 2],
            agreement: vec![100.0; 2],
            agreement_error: vec![0.0; 2],
            iterations: 0,
        };
        let points = [
            point(50, [1.0, 2.0]),
            point(50, [0.1, 0.4]),
            point(60, [0.5, 0.1]),
            point(70, [0.0, 0.3]),
            point(100, [0.0; 2]),
        ];
        let best: Vec<bool> = points.iter().map(|p| p.is_best_of(&points)).collect();
        assert_eq!(best, [false, true, false, true, true]);
        // The second task has no labels: its agreement counts, and of the first still the error.
        let of = |parameters, lost, agreement| BudgetPoint {
            agreement: vec![90.0, agreement],
            ..point(parameters, [lost, f64::NAN])
        };
        let points = [of(50, 1.0, 99.5), of(60, 0.2, 99.5), of(70, 0.1, 99.0), of(100, 0.0, 100.0)];
        let best: Vec<bool> = points.iter().map(|p| p.is_best_of(&points)).collect();
        assert_eq!(best, [true, true, false, true]);
    }
}
