//! From a finished zip to its report.

use super::budget::BudgetRecord;
use super::by_name::ByName;
use super::run_report::{
    BeforeAfter, LayerRecord, LossRecord, Machine, MeasuredOn, OwnerRecord, ParameterRecord, PrivateRecord, RunReport,
    TaskRecord, VERSION,
};
use super::{date, warnings};
use crate::run;
use crate::sharing::Layer;
use crate::zip::{LayerReport, TaskData, Zipped};
use std::time::SystemTime;

/// What only the caller of a zip knows. All of it may be left at its default.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunFacts {
    /// Bytes of the files of the separate networks.
    pub bytes_before: u64,
    /// Bytes of the file of the joint model.
    pub bytes_after: u64,
    /// Whether the written file was compared with the model in memory.
    pub checked: bool,
    /// Which samples each task is measured on, in the order of the tasks.
    pub parts: Vec<MeasuredOn>,
    /// Where the joint model was written to.
    pub output: String,
    /// How the program was called.
    pub command: String,
    /// How long it took.
    pub seconds: f64,
    /// When it ended.
    pub date: Option<SystemTime>,
    /// The seed of random numbers.
    pub seed: u64,
    /// The most memory the program had.
    pub peak_memory_bytes: Option<u64>,
    /// The search for a budget that led to this zip.
    pub budget: Option<BudgetRecord>,
}

impl RunReport {
    /// The report of a zip of these tasks.
    pub fn new(zipped: &Zipped, tasks: &[TaskData], facts: RunFacts) -> Self {
        let (after, shared) = zipped.joint.parameters();
        let layers = zipped.layers.iter().enumerate().map(|(i, layer)| layer_record(zipped, tasks, i, layer));
        // Every task runs its own part, so sharing changes nothing.
        let multiply_adds = zipped.joint.members.iter().map(|m| m.multiply_adds() as u64).sum();
        let mut budget = facts.budget;
        if let Some(budget) = &mut budget {
            budget.check_file(facts.bytes_before, facts.bytes_after);
        }
        let mut report = Self {
            version: VERSION,
            mtz: env!("CARGO_PKG_VERSION").to_owned(),
            date: facts.date.and_then(date::to_iso),
            tasks: task_records(zipped, tasks, &facts.parts),
            parameters: ParameterRecord {
                before: zipped.parameters_before,
                after,
                shared,
                nonzero_before: zipped.nonzero_before,
                nonzero_after: zipped.joint.nonzero(),
            },
            file_bytes: BeforeAfter { before: facts.bytes_before, after: facts.bytes_after },
            checked: facts.checked,
            multiply_adds: BeforeAfter { before: multiply_adds, after: multiply_adds },
            layers: layers.collect(),
            private: private_records(zipped),
            budget,
            warnings: Vec::new(),
            iterations: zipped.iterations,
            seconds: facts.seconds,
            peak_memory_bytes: facts.peak_memory_bytes,
            seed: facts.seed,
            output: facts.output,
            command: facts.command,
            machine: Machine {
                system: std::env::consts::OS.to_owned(),
                processor: std::env::consts::ARCH.to_owned(),
                vectors: run::vectors().to_owned(),
                threads: rayon::current_num_threads(),
            },
        };
        report.warnings = warnings::of(&report, zipped);
        report
    }
}

/// A figure, if it is one: JSON has neither infinity nor NaN.
pub(super) fn finite(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite())
}

fn task_records(zipped: &Zipped, tasks: &[TaskData], parts: &[MeasuredOn]) -> ByName<TaskRecord> {
    let last = zipped.layers.last();
    let record = |(t, task): (usize, &TaskData)| {
        let of = |values: Option<&Vec<Option<f64>>>| values.and_then(|v| v.get(t).copied().flatten()).and_then(finite);
        let kind = zipped.kinds.get(t).and_then(Option::as_ref);
        let record = TaskRecord {
            error_before: of(Some(&zipped.error_before)),
            error_zipped: of(last.map(|l| &l.error_zipped)),
            error_after: of(last.map(|l| &l.error_after)),
            agreement_zipped: of(last.map(|l| &l.agreement_zipped)),
            agreement_after: of(last.map(|l| &l.agreement_after)),
            kind: kind.map(|k| k.kind),
            kind_is_known: kind.map(|k| k.evidence.is_certain()),
            kind_why: kind.map(|k| k.evidence.to_string()),
            output: kind.map(|k| k.name.clone()),
            outputs: kind.map(|k| k.outputs),
            parameters: zipped.joint.members.get(t).map(|m| m.graph.parameters()),
            samples: task.test.as_ref().map(|(_, samples)| samples.len()),
            part: parts.get(t).copied(),
        };
        (task.name.clone(), record)
    };
    tasks.iter().enumerate().map(record).collect()
}

fn layer_record(zipped: &Zipped, tasks: &[TaskData], layer: usize, l: &LayerReport) -> LayerRecord {
    let names = || tasks.iter().map(|task| task.name.clone());
    let by_task = |values: &[Option<f64>]| names().zip(values.iter().map(|x| x.and_then(finite))).collect();
    let owners = zipped.joint.owner_sets(layer).into_iter().map(|(tasks, units)| OwnerRecord { tasks, units });
    let loss = |(iteration, losses): &(usize, Vec<f64>)| LossRecord {
        iteration: *iteration,
        loss: names().zip(losses.iter().map(|x| finite(*x))).collect(),
    };
    LayerRecord {
        name: l.name.clone(),
        units: names().zip(l.units.iter().copied()).collect(),
        shared: l.merged.shared,
        owners: owners.collect(),
        distance: finite(l.merged.distance),
        distances: spread(&l.merged.distances),
        private_distances: spread(&l.merged.private_distances),
        typical_distance: finite(l.merged.typical_distance),
        error_samples: l.error_samples,
        error_zipped: by_task(&l.error_zipped),
        error_after: by_task(&l.error_after),
        agreement_zipped: by_task(&l.agreement_zipped),
        agreement_after: by_task(&l.agreement_after),
        iterations: l.iterations,
        kept: l.kept.map(f64::from),
        losses: l.losses.iter().map(loss).collect(),
        seconds: l.seconds,
        inputs: l.inputs,
        samples: l.samples,
        fit_error: by_task(&l.fit_error),
        fit_error_held_out: by_task(&l.fit_error_held_out),
        ridge: finite(l.merged.ridge),
        ridge_raised: l.merged.raised,
    }
}

/// Distances, smallest first; of many, some at even steps from the first to the last.
fn spread(distances: &[f64]) -> Vec<f64> {
    const MOST: usize = 41;
    let mut sorted: Vec<f64> = distances.iter().copied().filter(|d| d.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() <= MOST {
        return sorted;
    }
    let last = sorted.len() - 1;
    (0..MOST).filter_map(|i| sorted.get(i * last / (MOST - 1)).copied()).collect()
}

/// What cannot be shared, in the first network.
fn private_records(zipped: &Zipped) -> Vec<PrivateRecord> {
    let all = zipped.joint.members.first().map_or_else(Vec::new, |m| Layer::private(&m.graph));
    let record =
        |(name, parameters, why): (String, usize, &str)| PrivateRecord { name, parameters, why: why.to_owned() };
    all.into_iter().map(record).collect()
}
