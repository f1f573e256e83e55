//! What is told about a finished zip: the JSON of the contract, the tables for people, warnings, and what to do next.

use crate::args::Common;
use crate::inspect;
use crate::outputs;
use crate::show::{self, Tint};
use crate::values::quoted;
use mtz::error::Result;
use mtz::evaluate::{Kind, OutputKind};
use mtz::pipeline::{LayerReport, Task, Zipped};
use mtz::plan::Layer;
use serde_json::{Value, json};
use std::path::Path;

/// A finished zip and what is to be told about it.
pub struct Told<'a> {
    pub zipped: &'a Zipped,
    pub tasks: &'a [Task<'a>],
    pub seconds: f64,
    /// Which samples each task's errors are measured on.
    pub parts: Vec<&'static str>,
    pub output: &'a Path,
    /// What the files of the separate networks take.
    pub bytes_before: u64,
    /// Whether the written file was compared with the model in memory.
    pub checked: bool,
    /// What to type to see the first task's samples again.
    pub data: String,
    /// The search that led here.
    pub budget: Option<Value>,
}

/// The JSON of the contract.
fn to_json(told: &Told, common: &Common) -> Value {
    let Told { zipped, tasks, .. } = told;
    let (after, shared) = zipped.joint.parameters();
    let last = zipped.layers.last();
    let by_task = |values: &[Option<f64>]| -> Value {
        let pairs = tasks.iter().zip(values).map(|(task, v)| (task.name.clone(), json!(v)));
        Value::Object(pairs.collect())
    };
    let of = |values: Option<&Vec<Option<f64>>>, t: usize| values.and_then(|v| v.get(t).copied().flatten());
    let per_task = tasks.iter().enumerate().map(|(t, task)| {
        let kind = zipped.kinds.get(t).and_then(Option::as_ref);
        let value = json!({
            "error_before": of(Some(&zipped.error_before), t),
            "error_zipped": of(last.map(|l| &l.error_zipped), t),
            "error_after": of(last.map(|l| &l.error_after), t),
            "agreement_zipped": of(last.map(|l| &l.agreement_zipped), t),
            "agreement_after": of(last.map(|l| &l.agreement_after), t),
            "kind": kind.map(|k| k.kind.to_string()), "kind_is_known": kind.map(|k| k.evidence.is_certain()),
            "kind_why": kind.map(|k| k.evidence.to_string()), "output": kind.map(|k| &k.name), "outputs": kind.map(|k| k.outputs),
            "samples": task.test.as_ref().map(|(_, samples)| samples.len()), "part": told.parts.get(t),
        });
        (task.name.clone(), value)
    });
    let layers: Vec<Value> = zipped
        .layers
        .iter()
        .enumerate()
        .map(|(i, l)| {
            let units = tasks.iter().zip(&l.units).map(|(task, n)| (task.name.clone(), json!(n)));
            json!({
                "name": l.name, "units": Value::Object(units.collect()), "shared": l.merged.shared,
                "owners": inspect::owners(&zipped.joint, i), "distance": l.merged.distance,
                "distances": spread(&l.merged.distances), "private_distances": spread(&l.merged.apart),
                "typical_distance": l.merged.typical, "error_samples": l.samples, "error_zipped": by_task(&l.error_zipped),
                "error_after": by_task(&l.error_after), "agreement_zipped": by_task(&l.agreement_zipped),
                "agreement_after": by_task(&l.agreement_after), "iterations": l.iterations, "kept": l.kept, "losses": losses(tasks, &l.losses),
                "seconds": l.seconds, "inputs": l.inputs, "samples": l.seen, "fit_error": by_task(&l.fit_seen),
                "fit_error_held_out": by_task(&l.fit_held_out), "ridge": l.merged.ridge,
                "ridge_raised": l.merged.raised,
            })
        })
        .collect();
    let private: Vec<Value> = private(zipped)
        .into_iter()
        .map(|(name, weights, why)| json!({ "name": name, "parameters": weights, "why": why }))
        .collect();
    let arguments = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned());
    json!({
        "version": 1, "mtz": env!("CARGO_PKG_VERSION"), "tasks": Value::Object(per_task.collect()),
        "parameters": { "before": zipped.parameters_before, "after": after, "shared": shared,
                        "nonzero_before": zipped.nonzero_before, "nonzero_after": zipped.joint.nonzero() },
        "file_bytes": { "before": told.bytes_before, "after": outputs::model_bytes(told.output) }, "checked": told.checked,
        "multiply_adds": multiply_adds(zipped), "layers": layers, "private": private, "budget": told.budget, "warnings": warnings(told), "iterations": zipped.iterations,
        "seconds": told.seconds, "peak_memory_bytes": show::peak_memory(), "seed": common.seed,
        "output": told.output.display().to_string(),
        "command": std::iter::once("mtz".to_owned()).chain(arguments.map(|a| quoted(&a))).collect::<Vec<_>>().join(" "),
        "machine": { "system": std::env::consts::OS, "processor": std::env::consts::ARCH, "vectors": mtz::run::vectors(),
                     "threads": rayon::current_num_threads() },
    })
}

/// Of all tasks on one sample each. Every task runs its own part, so sharing changes nothing.
fn multiply_adds(zipped: &Zipped) -> Value {
    let all: usize = zipped.joint.members.iter().map(|m| m.multiply_adds()).sum();
    json!({ "before": all, "after": all })
}

/// Distances, smallest first; of many, some at even steps from the first to the last.
fn spread(distances: &[f64]) -> Vec<f64> {
    const MOST: usize = 41;
    let mut sorted = distances.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() <= MOST {
        return sorted;
    }
    (0..MOST).map(|i| sorted[i * (sorted.len() - 1) / (MOST - 1)]).collect()
}

/// How retraining went, task by task.
fn losses(tasks: &[Task], points: &[(usize, Vec<f64>)]) -> Value {
    let point = |(step, losses): &(usize, Vec<f64>)| {
        let by_task = tasks.iter().zip(losses).map(|(task, loss)| (task.name.clone(), json!(loss)));
        json!({ "iteration": step, "loss": Value::Object(by_task.collect()) })
    };
    Value::Array(points.iter().map(point).collect())
}

/// What cannot be shared, in the first network: name, weights, and why.
fn private(zipped: &Zipped) -> Vec<(String, usize, &'static str)> {
    zipped.joint.members.first().map_or_else(Vec::new, |m| Layer::private(&m.graph))
}

/// What deserves a second look, with the flag that may help.
fn warnings(told: &Told) -> Vec<String> {
    let Told { zipped, tasks, .. } = told;
    let mut all = Vec::new();
    for ((task, member), error) in tasks.iter().zip(&zipped.joint.members).zip(&zipped.error_before) {
        let answers = member.graph.outputs().first().map_or(1, |id| member.graph[*id].shape.elements(1));
        all.extend(error.and_then(|error| by_chance(&task.name, error, answers)));
    }
    if let Some(line) = not_smaller(told) {
        all.push(line);
    }
    let useless = |l: &&LayerReport| l.iterations > 0 && l.kept == Some(0.0);
    if zipped.layers.iter().any(|l| useless(&l)) {
        all.push(
            "retraining did not help on held-out samples and was undone; more --data or another --shift may".to_owned(),
        );
    }
    let of = |layers: &[&LayerReport]| match layers {
        [one] => one.name.clone(),
        [first, rest @ ..] => format!("{} and {} more layers", first.name, rest.len()),
        [] => String::new(),
    };
    let few: Vec<&LayerReport> = zipped.layers.iter().filter(|l| l.needs_more_samples()).collect();
    if let Some(worst) = few.iter().max_by_key(|l| l.inputs) {
        all.push(format!(
            "{}: fitted to too few samples ({} for {} inputs): its answers are clearly worse on test samples; more --data, or a larger \
             --calibration, may lose less",
            of(&few),
            show::grouped(worst.seen),
            show::grouped(worst.inputs as u64)
        ));
    }
    all
}

/// A joint model whose file is not smaller than those of its networks is not worth its trouble.
fn not_smaller(told: &Told) -> Option<String> {
    let (before, after) = (told.bytes_before, outputs::model_bytes(told.output));
    (before > 0 && after >= before).then(|| {
        format!(
            "the file is not smaller: {} instead of {}; share more, or keep the networks apart: descriptions of nodes and indices take room, too",
            show::bytes(after),
            show::bytes(before)
        )
    })
}

/// A network that is hardly better than guessing is a sign of samples prepared in another way than it was trained with.
pub fn by_chance(task: &str, error: f64, answers: usize) -> Option<String> {
    let guessing = 100.0 * (1.0 - 1.0 / answers.max(1) as f64);
    (answers > 1 && error > 0.85 * guessing).then(|| {
        format!(
            "{task}: {error:.1} % wrong is little better than guessing; were samples prepared as in training? (--mean, --std, --scale, --raw, --label)"
        )
    })
}

/// The tables, or the JSON; and the report, if one is asked for.
pub fn show_result(told: &Told, report: Option<&Path>, common: &Common) -> Result<()> {
    let Told { zipped, tasks, seconds, output, .. } = told;
    let json = to_json(told, common);
    if let Some(report) = report {
        outputs::write_text(report, &mtz::report::html(&json)?)?;
    }
    if common.json {
        show::result(&json.to_string());
        return Ok(());
    }
    let (after, shared) = zipped.joint.parameters();
    let names: Vec<&str> = tasks.iter().map(|t| t.name.as_str()).collect();
    show::result(&show::table(&layer_rows(told, &names)));
    let layers = zipped.layers.first().zip(zipped.layers.last()).filter(|_| told.budget.is_none());
    if let Some((first, last)) = layers.filter(|(a, b)| a.samples < b.samples) {
        let name = &last.name;
        show::result(&match first.samples {
            0 => format!("in front of {name} nothing was measured: with networks of this size that takes long"),
            few => format!("figures between before and {name} are those of {few} samples of {}", last.samples),
        });
    }
    show::result("");
    if zipped.error_before.iter().any(Option::is_some) {
        let rows = error_rows(zipped, &names);
        let tint = |row: usize, column: usize| match rows.get(row).and_then(|r| r.get(column)) {
            Some(cell) if row > 0 && column + 1 == rows[0].len() => Tint::of_change(cell),
            _ => Tint::Plain,
        };
        show::result(&show::tinted_table(&rows, tint));
        show::result("");
    }
    show::result(&show::table(&agreement_rows(told)));
    show::result(&about_agreement(told));
    show::result("");
    let percent = 100.0 * after as f64 / zipped.parameters_before.max(1) as f64;
    show::result(&format!(
        "parameters {} -> {} ({percent:.1} %), {} of them shared\nfiles {} -> {}{}\n{} iterations of retraining, {} in all",
        show::grouped(zipped.parameters_before as u64),
        show::grouped(after as u64),
        show::grouped(shared as u64),
        show::bytes(told.bytes_before),
        show::bytes(outputs::model_bytes(output)),
        if told.checked { ", read back and compared" } else { "" },
        zipped.iterations,
        show::duration(*seconds)
    ));
    let kept = private(zipped);
    if let Some((name, _, why)) = kept.first() {
        let weights: usize = kept.iter().map(|k| k.1).sum();
        let more = if kept.len() > 1 { format!(" and {} more", kept.len() - 1) } else { String::new() };
        show::result(&format!(
            "private: {name}{more}, {} parameters of each network: {why}",
            show::grouped(weights as u64)
        ));
    }
    let nonzero = zipped.joint.nonzero();
    if 20 * (after - nonzero) > after {
        let (before, now) = (show::grouped(zipped.nonzero_before as u64), show::grouped(nonzero as u64));
        show::result(&format!("sparse: {before} -> {now} numbers that are not zero"));
    }
    warnings(told).iter().for_each(|line| show::warning(line));
    show::note(&format!(
        "written to {0}\nnext: mtz eval {1} --task {2} {3}",
        output.display(),
        quoted(&output.to_string_lossy()),
        quoted(names.first().unwrap_or(&"TASK")),
        told.data,
    ));
    if let Some(report) = report {
        show::note(&format!("report: {}", report.display()));
    }
    Ok(())
}

fn percent(x: &Option<f64>) -> String {
    x.map_or("-".into(), |x| format!("{x:.2}"))
}

/// The layers, with each task's error when they were merged, or without labels its agreement; where they were retrained one by one, also after that.
/// A search measures whole models: then there are no figures of single layers.
fn layer_rows(told: &Told, names: &[&str]) -> Vec<Vec<String>> {
    let zipped = told.zipped;
    if told.budget.is_some() {
        let row = |l: &LayerReport| vec![l.name.clone(), show::each(&l.units), l.merged.shared.to_string()];
        let head = ["layer", "units", "shared"].map(str::to_owned).to_vec();
        return std::iter::once(head).chain(zipped.layers.iter().map(row)).collect();
    }
    /// What names may take of a line, and the least that tells one from another.
    const ROOM: usize = 44;
    const LEAST: usize = 4;
    let each = (ROOM / names.len().max(1)).saturating_sub(2);
    let short = show::short_names(names, each.clamp(LEAST, 12));
    let labelled = zipped.error_before.iter().all(Option::is_some);
    // Of many tasks only the mean and the worst fit into a line.
    let columns = |figures: &[Option<f64>]| -> Vec<String> {
        if each >= LEAST {
            return figures.iter().map(percent).collect();
        }
        let known: Vec<f64> = figures.iter().copied().flatten().collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let worst = known.iter().copied().reduce(if labelled { f64::max } else { f64::min }).unwrap_or(f64::NAN);
        let of = |x: f64| percent(&Some(x).filter(|_| !known.is_empty()));
        vec![of(mean), of(worst)]
    };
    let what = if labelled { "error %" } else { "agreement %" };
    let mut head = vec![what.to_owned(), "units".into(), "shared".into()];
    if each >= LEAST {
        head.extend(short)
    } else {
        head.extend(["mean".to_owned(), "worst".to_owned()])
    }
    let row = |name: &str, units: String, shared: String, figures: &[Option<f64>]| {
        [name.to_owned(), units, shared].into_iter().chain(columns(figures)).collect::<Vec<_>>()
    };
    let mut rows = vec![head];
    if labelled {
        rows.push(row("before", String::new(), String::new(), &zipped.error_before));
    }
    for layer in &zipped.layers {
        let (merged, after) = match labelled {
            true => (&layer.error_zipped, &layer.error_after),
            false => (&layer.agreement_zipped, &layer.agreement_after),
        };
        rows.push(row(&layer.name, show::each(&layer.units), layer.merged.shared.to_string(), merged));
        if layer.iterations > 0 {
            rows.push(row("  retrained", String::new(), String::new(), after));
        }
    }
    rows
}

/// A task's figure after the last layer.
fn last(zipped: &Zipped, figures: impl Fn(&LayerReport) -> &Vec<Option<f64>>, task: usize) -> Option<f64> {
    zipped.layers.last().and_then(|layer| figures(layer).get(task).copied().flatten())
}

/// What became of each task's error.
fn error_rows(zipped: &Zipped, names: &[&str]) -> Vec<Vec<String>> {
    let mut rows = vec![["error %", "before", "zipped", "at the end", "change"].map(str::to_owned).to_vec()];
    for (t, name) in names.iter().enumerate() {
        let before = zipped.error_before.get(t).copied().flatten();
        let (zipped, after) = (last(zipped, |l| &l.error_zipped, t), last(zipped, |l| &l.error_after, t));
        let change = before.zip(after).map_or("-".to_owned(), |(b, a)| format!("{:+.2}", a - b));
        rows.push(vec![(*name).to_owned(), percent(&before), percent(&zipped), percent(&after), change]);
    }
    rows
}

/// How far each task's answers are its original network's, on which samples, and what the answers are.
fn agreement_rows(told: &Told) -> Vec<Vec<String>> {
    let head = ["agreement %", "zipped", "at the end", "answers", "samples"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (t, task) in told.tasks.iter().enumerate() {
        let of = |figures: fn(&LayerReport) -> &Vec<Option<f64>>| percent(&last(told.zipped, figures, t));
        let kind = told.zipped.kinds.get(t).and_then(Option::as_ref);
        let samples = task.test.as_ref().map_or(0, |(_, samples)| samples.len());
        rows.push(vec![
            task.name.clone(),
            of(|l| &l.agreement_zipped),
            of(|l| &l.agreement_after),
            kind.map_or("-".into(), |k| k.kind.to_string()),
            format!("{samples} {}", told.parts.get(t).copied().unwrap_or_default()),
        ]);
    }
    rows
}

/// What agreement means here, in a line for each kind of answer, and which kinds are a guess.
fn about_agreement(told: &Told) -> String {
    let kinds: Vec<&OutputKind> = told.zipped.kinds.iter().flatten().collect();
    let meanings = [
        (Kind::Classes, "classes: the first answer is the original network's"),
        (Kind::Attributes, "attributes: yes-or-no answers that are the original network's"),
        (Kind::Values, "values: 100 less the rms difference from the original network, in % of its answers' deviation"),
    ];
    let mut lines: Vec<String> = meanings
        .iter()
        .filter(|(kind, _)| kinds.iter().any(|own| own.kind == *kind))
        .map(|(_, meaning)| (*meaning).to_owned())
        .collect();
    for (task, kind) in told.tasks.iter().zip(&told.zipped.kinds) {
        let (Some(OutputKind { name: output, outputs, kind, evidence }), name) = (kind, &task.name) else { continue };
        if *outputs > 1 {
            lines.push(format!("{name}: {output:?} agrees least of its {outputs} outputs"));
        }
        if !evidence.is_certain() {
            lines.push(format!("{name}: {kind} is {evidence}; --kind {}=KIND sets it", quoted(name)));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_is_noticed() {
        assert!(by_chance("a", 89.0, 10).unwrap().contains("--mean"));
        assert_eq!(by_chance("a", 50.0, 10), None);
        assert_eq!(by_chance("a", 40.0, 2), None);
        assert_eq!(by_chance("a", 40.0, 1), None);
    }
}
