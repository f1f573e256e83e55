//! What is told about a finished zip: the JSON of the contract, the tables for people, warnings, and what to do next.

use crate::args::Common;
use crate::inspect;
use crate::show::{self, Tint};
use mtz::error::Result;
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
    /// What to type to measure the first task again: its data.
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
        let value = json!({
            "error_before": of(Some(&zipped.error_before), t),
            "error_zipped": of(last.map(|l| &l.error_zipped), t),
            "error_after": of(last.map(|l| &l.error_after), t),
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
                "error_after": by_task(&l.error_after), "iterations": l.iterations, "losses": losses(tasks, &l.losses),
                "seconds": l.seconds, "inputs": l.inputs, "samples": l.seen, "ridge": l.merged.ridge,
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
        "layers": layers, "private": private, "budget": told.budget, "warnings": warnings(told), "iterations": zipped.iterations,
        "seconds": told.seconds, "peak_memory_bytes": show::peak_memory(), "seed": common.seed,
        "output": told.output.display().to_string(),
        "command": std::iter::once("mtz".to_owned()).chain(arguments.map(|a| quoted(&a))).collect::<Vec<_>>().join(" "),
        "machine": { "system": std::env::consts::OS, "processor": std::env::consts::ARCH, "vectors": mtz::run::vectors(),
                     "threads": rayon::current_num_threads() },
    })
}

/// An argument as a shell takes it.
pub fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:%+@".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
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
    let of = |layers: &[&LayerReport]| match layers {
        [one] => one.name.clone(),
        [first, rest @ ..] => format!("{} and {} more layers", first.name, rest.len()),
        [] => String::new(),
    };
    let few: Vec<&LayerReport> = zipped.layers.iter().filter(|l| l.seen < l.inputs as u64).collect();
    if let Some(worst) = few.iter().max_by_key(|l| l.inputs) {
        all.push(format!(
            "{}: fewer samples than inputs ({} for {}); more --data, or a larger --calibration, may lose less",
            of(&few),
            show::grouped(worst.seen),
            show::grouped(worst.inputs as u64)
        ));
    }
    let raised: Vec<&LayerReport> = zipped.layers.iter().filter(|l| l.merged.raised).collect();
    if !raised.is_empty() {
        let ridge = raised.iter().fold(0.0f64, |most, l| most.max(l.merged.ridge));
        all.push(format!(
            "{}: inputs depend on each other, a ridge of {ridge:.0e} was needed; a larger --calibration may help",
            of(&raised)
        ));
    }
    all
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
        show::write_text(report, &mtz::report::html(&json)?)?;
    }
    if common.json {
        show::result(&json.to_string());
        return Ok(());
    }
    let (after, shared) = zipped.joint.parameters();
    let names: Vec<&str> = tasks.iter().map(|t| t.name.as_str()).collect();
    show::result(&show::table(&layer_rows(zipped, &names)));
    if let Some((first, last)) = zipped.layers.first().zip(zipped.layers.last()).filter(|(a, b)| a.samples < b.samples)
    {
        let name = &last.name;
        show::result(&match first.samples {
            0 => format!("errors in front of {name} were not measured: with networks of this size that takes long"),
            few => format!("errors between before and {name} are those of {few} samples of {}", last.samples),
        });
    }
    show::result("");
    let rows = task_rows(zipped, &names);
    let tint = |row: usize, column: usize| match rows.get(row).and_then(|r| r.get(column)) {
        Some(cell) if row > 0 && column + 1 == rows[0].len() => Tint::of_change(cell),
        _ => Tint::Plain,
    };
    show::result(&show::tinted_table(&rows, tint));
    let percent = 100.0 * after as f64 / zipped.parameters_before.max(1) as f64;
    show::result(&format!(
        "\nparameters {} -> {} ({percent:.1} %), {} of them shared\nsize {} -> {}; {} iterations of retraining, {} in all",
        show::grouped(zipped.parameters_before as u64),
        show::grouped(after as u64),
        show::grouped(shared as u64),
        show::bytes(4 * zipped.parameters_before as u64),
        show::bytes(4 * after as u64),
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
        "written to {0}\nnext: mtz eval {1} --task {2} --data {3}",
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

/// The layers, with each task's error when they were merged; where they were retrained one by one, also after that.
fn layer_rows(zipped: &Zipped, names: &[&str]) -> Vec<Vec<String>> {
    /// What names may take of a line, and the least that tells one from another.
    const ROOM: usize = 44;
    const LEAST: usize = 4;
    let each = (ROOM / names.len().max(1)).saturating_sub(2);
    let short = show::short_names(names, each.clamp(LEAST, 12));
    // Of many tasks only the mean and the largest fit into a line.
    let columns = |errors: &[Option<f64>]| -> Vec<String> {
        if each >= LEAST {
            return errors.iter().map(percent).collect();
        }
        let known: Vec<f64> = errors.iter().copied().flatten().collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let of = |x: f64| percent(&Some(x).filter(|_| !known.is_empty()));
        vec![of(mean), of(known.iter().copied().fold(f64::NEG_INFINITY, f64::max))]
    };
    let mut head = vec!["error %".to_owned(), "units".into(), "shared".into()];
    if each >= LEAST {
        head.extend(short)
    } else {
        head.extend(["mean".to_owned(), "worst".to_owned()])
    }
    let row = |name: &str, units: String, shared: String, errors: &[Option<f64>]| {
        [name.to_owned(), units, shared].into_iter().chain(columns(errors)).collect::<Vec<_>>()
    };
    let mut rows = vec![head, row("before", String::new(), String::new(), &zipped.error_before)];
    for layer in &zipped.layers {
        rows.push(row(&layer.name, show::each(&layer.units), layer.merged.shared.to_string(), &layer.error_zipped));
        if layer.iterations > 0 {
            rows.push(row("  retrained", String::new(), String::new(), &layer.error_after));
        }
    }
    rows
}

/// What became of each task.
fn task_rows(zipped: &Zipped, names: &[&str]) -> Vec<Vec<String>> {
    let mut rows = vec![["task", "error before %", "zipped %", "at the end %", "change"].map(str::to_owned).to_vec()];
    let last = zipped.layers.last();
    for (t, name) in names.iter().enumerate() {
        let of = |values: Option<&Vec<Option<f64>>>| values.and_then(|v| v.get(t).copied().flatten());
        let (before, zipped, after) =
            (of(Some(&zipped.error_before)), of(last.map(|l| &l.error_zipped)), of(last.map(|l| &l.error_after)));
        let change = before.zip(after).map_or("-".to_owned(), |(b, a)| format!("{:+.2}", a - b));
        rows.push(vec![(*name).to_owned(), percent(&before), percent(&zipped), percent(&after), change]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_typed_again() {
        assert_eq!(quoted("a=models/x-1.onnx"), "a=models/x-1.onnx");
        assert_eq!(quoted("my model's *"), r"'my model'\''s *'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn guessing_is_noticed() {
        assert!(by_chance("a", 89.0, 10).unwrap().contains("--mean"));
        assert_eq!(by_chance("a", 50.0, 10), None);
        assert_eq!(by_chance("a", 40.0, 2), None);
        assert_eq!(by_chance("a", 40.0, 1), None);
    }
}
