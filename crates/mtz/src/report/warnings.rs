//! What of a result deserves a second look. A library has no flags: settings are named in backticks, and a program that
//! has flags for them may put these in their place.

use super::run_report::RunReport;
use super::text::{in_bytes, in_threes};
use crate::zip::{LayerReport, Zipped};

/// All warnings about a zip.
pub(super) fn of(report: &RunReport, zipped: &Zipped) -> Vec<String> {
    let mut all = Vec::new();
    for ((name, task), member) in report.tasks.iter().zip(&zipped.joint.members) {
        let answers = member.graph.outputs().first().map_or(1, |id| member.graph[*id].shape.elements(1));
        all.extend(task.error_before.and_then(|error| near_chance(name, error, answers)));
    }
    all.extend(not_smaller(report));
    if zipped.layers.iter().any(|l| l.iterations > 0 && l.kept == Some(0.0)) {
        all.push(
            "retraining did not help on held-out samples and was undone; more `data` or another `shift` may".to_owned(),
        );
    }
    all.extend(too_few_samples(&zipped.layers));
    all
}

/// A network that is hardly better than guessing is a sign of samples prepared in another way than it was trained with.
/// `error` is in percent, `answers` how many there are to guess from.
pub fn near_chance(task: &str, error: f64, answers: usize) -> Option<String> {
    let guessing = 100.0 * (1.0 - 1.0 / answers.max(1) as f64);
    (answers > 1 && error > 0.85 * guessing).then(|| {
        format!(
            "{task}: {error:.1} % wrong is little better than guessing; were samples prepared as in training? \
             (`mean`, `std`, `scale`, `raw`, `label`)"
        )
    })
}

/// A joint model whose file is not smaller than those of its networks is not worth its trouble.
fn not_smaller(report: &RunReport) -> Option<String> {
    let (before, after) = (report.file_bytes.before, report.file_bytes.after);
    (before > 0 && after >= before).then(|| {
        format!(
            "the file is not smaller: {} instead of {}; share more, or keep the networks apart: descriptions of nodes \
             and indices take room, too",
            in_bytes(after),
            in_bytes(before)
        )
    })
}

fn too_few_samples(layers: &[LayerReport]) -> Option<String> {
    let few: Vec<&LayerReport> = layers.iter().filter(|l| l.needs_more_samples()).collect();
    let names = match few.as_slice() {
        [one] => one.name.clone(),
        [first, rest @ ..] => format!("{} and {} more layers", first.name, rest.len()),
        [] => String::new(),
    };
    let worst = few.iter().max_by_key(|l| l.inputs)?;
    Some(format!(
        "{names}: fitted to too few samples ({} for {} inputs): its answers are clearly worse on test samples; more \
         `data`, or a larger `calibration`, may lose less",
        in_threes(worst.samples, ' '),
        in_threes(worst.inputs as u64, ' ')
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_is_noticed() {
        assert!(near_chance("a", 89.0, 10).unwrap().contains("`mean`"));
        assert_eq!(near_chance("a", 50.0, 10), None);
        assert_eq!(near_chance("a", 40.0, 2), None);
        assert_eq!(near_chance("a", 40.0, 1), None);
    }
}
