//! What came of a zip, as data: the JSON of `mtz zip --json`, and all that tables and the page are made from.
//!
//! Fields have the names they have in JSON. Everything is stored by name, so that a report can be read without the
//! models it is about. Only the fields that make it a report are required when one is read; others have defaults, so
//! reports of earlier versions stay readable. Figures that could not be measured, or are not finite, are `null`.

use super::budget::BudgetRecord;
use super::by_name::ByName;
use crate::error::{Error, Result};
use crate::evaluate::Kind;
use serde::{Deserialize, Serialize};

/// Of the format: a number for programs that read it.
pub(super) const VERSION: u64 = 1;

/// The most that is read as a report: thousands of times what a usual one takes.
pub const MAX_BYTES: usize = 64 << 20;

/// What came of a zip ([`RunReport::new`] makes one).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunReport {
    /// The version of the format: 1.
    pub version: u64,
    /// The version of this library.
    #[serde(default)]
    pub mtz: String,
    /// When the run ended, like `2026-11-19T04:05:06Z`.
    #[serde(default)]
    pub date: Option<String>,
    /// What became of each task.
    pub tasks: ByName<TaskRecord>,
    /// Weights before and after.
    pub parameters: ParameterRecord,
    /// Bytes of the files of the separate networks, and of the joint model's.
    #[serde(default)]
    pub file_bytes: BeforeAfter,
    /// Whether the written file was read back and compared with the model in memory.
    #[serde(default)]
    pub checked: bool,
    /// Multiply-adds of all tasks on one sample each.
    #[serde(default)]
    pub multiply_adds: BeforeAfter,
    /// What happened to each layer, in the order of merging.
    pub layers: Vec<LayerRecord>,
    /// Nodes whose units cannot be shared, in the first network.
    #[serde(default)]
    pub private: Vec<PrivateRecord>,
    /// The search for a budget, if there was one.
    #[serde(default)]
    pub budget: Option<BudgetRecord>,
    /// What deserves a second look. Settings are named in backticks: `` `calibration` ``.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Iterations of retraining in all.
    #[serde(default)]
    pub iterations: usize,
    /// How long the run took.
    #[serde(default)]
    pub seconds: f64,
    /// The most memory the program had, where it is known.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
    /// Where random numbers began.
    #[serde(default)]
    pub seed: u64,
    /// Where the joint model was written to.
    #[serde(default)]
    pub output: String,
    /// How the program was called.
    #[serde(default)]
    pub command: String,
    /// What it ran on.
    #[serde(default)]
    pub machine: Machine,
}

impl RunReport {
    /// Reads a report that [`RunReport::to_json`] wrote. The bytes may come from anywhere.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        /// What is read first, so that a later format is called that.
        #[derive(Deserialize)]
        #[serde(expecting = "an object, as mtz zip --json prints it")]
        struct Version {
            version: Option<u64>,
        }
        let hint = "mtz zip --json > run.json makes one";
        if json.len() > MAX_BYTES {
            return Err(Error::limit(format!("a report of {} bytes; {MAX_BYTES} are allowed", json.len())).hint(hint));
        }
        let not_json = |e: &serde_json::Error| Error::data(format!("this is not JSON: {e}")).hint(hint);
        let wrong = |e: serde_json::Error| {
            if e.is_syntax() || e.is_eof() {
                return not_json(&e);
            }
            Error::data(format!("this is not the JSON of a zip: {e}")).hint(hint)
        };
        match serde_json::from_slice::<Version>(json).map_err(wrong)?.version {
            None | Some(VERSION) => serde_json::from_slice(json).map_err(wrong),
            Some(other) => Err(Error::data(format!("this report has format {other}; this program reads {VERSION}"))
                .hint("read it with the version of mtz that wrote it, or zip again")),
        }
    }

    /// The report as JSON, on one line.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::data(format!("the report cannot be written: {e}")))
    }
}

/// What became of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TaskRecord {
    /// Error of the original network, in percent; nothing without labels.
    pub error_before: Option<f64>,
    /// Error after the merge of the last layer, before it was retrained.
    pub error_zipped: Option<f64>,
    /// Error at the end.
    pub error_after: Option<f64>,
    /// Agreement with the original network after the merge of the last layer, in percent.
    pub agreement_zipped: Option<f64>,
    /// Agreement at the end.
    pub agreement_after: Option<f64>,
    /// What the answers are, of the output that agrees least.
    #[serde(with = "kind_name")]
    pub kind: Option<Kind>,
    /// Whether that is known rather than guessed.
    pub kind_is_known: Option<bool>,
    /// Why the answers are taken for that.
    pub kind_why: Option<String>,
    /// The output that agrees least.
    pub output: Option<String>,
    /// How many outputs the network has.
    pub outputs: Option<usize>,
    /// Weights of the original network.
    pub parameters: Option<usize>,
    /// Samples that errors and agreement are measured on.
    pub samples: Option<usize>,
    /// Which samples these are.
    pub part: Option<MeasuredOn>,
}

/// Which samples errors and agreement are measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MeasuredOn {
    /// Test samples of their own.
    #[serde(rename = "test")]
    Test,
    /// A fixed tenth of the training samples, which the zip did not use.
    #[serde(rename = "held-out tenth")]
    HeldOutTenth,
}

impl std::fmt::Display for MeasuredOn {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Test => "test",
            Self::HeldOutTenth => "held-out tenth",
        })
    }
}

/// Weights before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ParameterRecord {
    /// Of the separate networks.
    pub before: usize,
    /// Of the joint model.
    pub after: usize,
    /// Those of the joint model that several tasks use.
    pub shared: usize,
    /// Those of the separate networks that are not zero.
    pub nonzero_before: usize,
    /// Those of the joint model that are not zero.
    pub nonzero_after: usize,
}

/// A number of the separate networks, and of the joint model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BeforeAfter {
    /// Of the separate networks.
    pub before: u64,
    /// Of the joint model.
    pub after: u64,
}

/// What happened to a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LayerRecord {
    /// Its name in the first network.
    pub name: String,
    /// Units of each task.
    pub units: ByName<usize>,
    /// Units that several tasks use.
    pub shared: usize,
    /// How many units belong to which tasks.
    pub owners: Vec<OwnerRecord>,
    /// The sum of d over the pairs that are shared.
    pub distance: Option<f64>,
    /// d of these pairs, smallest first; of many, some at even steps.
    pub distances: Vec<f64>,
    /// d of each unit that stays private to the unit it would have been cheapest to share with, in the same way.
    pub private_distances: Vec<f64>,
    /// The mean of d over all possible pairs.
    pub typical_distance: Option<f64>,
    /// Samples of the first task that errors and agreement were measured on.
    pub error_samples: usize,
    /// Error of each task after the merge, in percent.
    pub error_zipped: ByName<Option<f64>>,
    /// Error of each task after retraining.
    pub error_after: ByName<Option<f64>>,
    /// Agreement of each task with its original after the merge, in percent.
    pub agreement_zipped: ByName<Option<f64>>,
    /// Agreement after retraining.
    pub agreement_after: ByName<Option<f64>>,
    /// Iterations of retraining.
    pub iterations: usize,
    /// How far the weights went where retraining led: 1 all the way, 0 not at all.
    pub kept: Option<f64>,
    /// How retraining went.
    pub losses: Vec<LossRecord>,
    /// Time it took.
    pub seconds: f64,
    /// Inputs of a unit, a bias among them.
    pub inputs: usize,
    /// Samples that the statistics saw.
    pub samples: u64,
    /// Squared error of the fit on its samples, relative to the squares of what it fits.
    pub fit_error: ByName<Option<f64>>,
    /// The same on samples that the fit has not seen.
    pub fit_error_held_out: ByName<Option<f64>>,
    /// The largest ridge of the solves that made the weights.
    pub ridge: Option<f64>,
    /// Whether one of these systems was singular in spite of the ridge asked for.
    pub ridge_raised: bool,
}

/// Units with the same owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OwnerRecord {
    /// The tasks that use them.
    pub tasks: Vec<String>,
    /// How many there are.
    pub units: usize,
}

/// The loss at a moment of retraining.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LossRecord {
    /// Iterations done.
    pub iteration: usize,
    /// Each task's mean over the iterations since the last point.
    pub loss: ByName<Option<f64>>,
}

/// A node whose units cannot be shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PrivateRecord {
    /// Its name.
    pub name: String,
    /// Its weights.
    pub parameters: usize,
    /// Why they stay private.
    pub why: String,
}

/// What a run used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Machine {
    /// The operating system.
    pub system: String,
    /// The processor's architecture.
    pub processor: String,
    /// Its vector instructions that are used.
    pub vectors: String,
    /// Threads of the pool.
    pub threads: usize,
}

/// A kind by its name.
mod kind_name {
    use crate::evaluate::Kind;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(kind: &Option<Kind>, serializer: S) -> Result<S::Ok, S::Error> {
        kind.as_ref().map(ToString::to_string).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Kind>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}
