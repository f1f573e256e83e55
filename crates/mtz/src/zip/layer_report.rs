//! What happened to one layer, for reports and for checkpoints.

use super::measure::{agreement_of, errors_of};
use crate::evaluate::Measured;
use crate::merge::Merged;
use serde::{Deserialize, Serialize};

/// What happened to one layer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LayerReport {
    /// Its name in the first network.
    pub name: String,
    /// Units of each task.
    pub units: Vec<usize>,
    /// Inputs of a unit, a bias among them, of the task that has most.
    pub inputs: usize,
    /// Samples, or positions of a convolution, that the statistics of each task saw, of the task that had least.
    pub samples: u64,
    /// Pairing and weights.
    #[serde(flatten)]
    pub merged: Merged,
    /// How far each task's answers are from what the fit asked for, squared and relative to their square, on the
    /// samples of the fit. Nothing where a task's weights did not change, or where it has no test samples.
    pub fit_error: Vec<Option<f64>>,
    /// The same on test samples, which the fit has not seen.
    pub fit_error_held_out: Vec<Option<f64>>,
    /// Samples of the first task that errors and agreement were measured on; all of them after the last layer.
    pub error_samples: usize,
    /// Error of each task after merging this layer, where there is test data.
    pub error_zipped: Vec<Option<f64>>,
    /// Error of each task after retraining.
    pub error_after: Vec<Option<f64>>,
    /// Agreement of each task with its original after merging this layer, in percent.
    pub agreement_zipped: Vec<Option<f64>>,
    /// Agreement after retraining.
    pub agreement_after: Vec<Option<f64>>,
    /// The output of each task that agrees least at the end: that is the task's agreement.
    pub worst_output: Vec<Option<usize>>,
    /// Iterations of retraining.
    pub iterations: usize,
    /// How far the weights went where retraining led ([`Retrained::kept`](super::Retrained::kept)).
    pub kept: Option<f32>,
    /// How retraining went: iterations done, and each task's mean loss over the last ones.
    pub losses: Vec<(usize, Vec<f64>)>,
    /// Time it took.
    pub seconds: f64,
}

/// A fit that is so many times worse on samples it has not seen knows its own by heart,
const BY_HEART: f64 = 1.5;
/// if what is lost on the others is worth speaking of.
const WORTH: f64 = 0.02;

impl LayerReport {
    /// Whether more samples would help: the layer answers clearly worse to samples that its fit has not seen.
    pub fn needs_more_samples(&self) -> bool {
        let errors = self.fit_error.iter().zip(&self.fit_error_held_out);
        let mut errors = errors.filter_map(|(seen, held_out)| Some(((*seen)?, (*held_out)?)));
        errors.any(|(seen, held_out)| held_out > WORTH && held_out > BY_HEART * seen)
    }

    /// What was measured last.
    pub(super) fn set_after(&mut self, measured: &[Option<Measured>]) {
        self.error_after = errors_of(measured);
        self.agreement_after = agreement_of(measured);
        self.worst_output = measured.iter().map(|m| m.as_ref()?.worst_output()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seen: Vec<Option<f64>>, held_out: Vec<Option<f64>>) -> LayerReport {
        LayerReport {
            name: "fc1".into(),
            units: vec![3, 4],
            inputs: 5,
            samples: 60,
            fit_error: seen,
            fit_error_held_out: held_out,
            merged: Merged {
                shared: 2,
                distances: vec![0.5],
                private_distances: vec![1.5],
                ridge: 1e-2,
                ..Merged::default()
            },
            error_samples: 7,
            error_zipped: vec![Some(1.0), None],
            error_after: vec![Some(0.5), None],
            agreement_zipped: vec![Some(99.0), Some(98.0)],
            agreement_after: vec![None, Some(99.5)],
            worst_output: vec![Some(1), None],
            iterations: 3,
            kept: Some(0.5),
            losses: vec![(1, vec![0.25, 0.5])],
            seconds: 1.5,
        }
    }

    #[test]
    fn a_checkpoint_gives_back_what_it_was_given() {
        let report = report(vec![Some(0.25), None], vec![Some(0.5), None]);
        let back = serde_json::from_value::<LayerReport>(serde_json::to_value(&report).unwrap()).unwrap();
        assert_eq!(format!("{report:?}"), format!("{back:?}"));
    }

    #[test]
    fn a_layer_that_knows_its_samples_by_heart_needs_more() {
        let needs = |seen, held_out| report(vec![None, Some(seen)], vec![None, Some(held_out)]).needs_more_samples();
        assert!(needs(0.01, 0.1) && needs(0.0, 0.03) && needs(0.17, 0.27));
        assert!(!needs(0.128, 0.126) && !needs(0.2, 0.25));
        // Ten times next to nothing is next to nothing.
        assert!(!needs(1e-4, 1e-3));
        assert!(!report(vec![None, None], vec![None, None]).needs_more_samples());
        assert!(!report(Vec::new(), Vec::new()).needs_more_samples());
    }
}
