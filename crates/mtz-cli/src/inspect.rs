//! `mtz inspect`

use crate::args::{Common, Inspect};
use crate::terminal;
use mtz::error::{ErrorKind, Result};
use mtz::inspect::Summary;
use mtz::joint_file;
use mtz::sharing::Joint;
use mtz::tensor::{Dim, Shape};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Inspect, common: &Common) -> Result<ExitCode> {
    let (mut models, mut texts, mut code) = (Vec::new(), Vec::new(), ExitCode::SUCCESS);
    for path in &args.models {
        match mtz::onnx::read(path) {
            Ok(graph) => {
                let summary = mtz::inspect::inspect(&graph);
                let joint = joint_file::from_graph(&graph)?;
                let mut json = to_json(path, &summary);
                if let (Some(joint), Value::Object(json)) = (&joint, &mut json) {
                    json.insert("joint".into(), joint_json(joint));
                }
                let mut text =
                    joint.as_ref().map_or_else(|| to_text(path, &summary), |joint| joint_text(path, &summary, joint));
                // It runs, but it cannot be zipped; better said here than after hours.
                let obstacle = graph.check_weights().and_then(|()| graph.open_batch().map(drop)).err();
                if let Some(error) = obstacle.filter(|_| joint.is_none()) {
                    let hint = error.hint_text().map(|h| format!("\nhint: {h}")).unwrap_or_default();
                    text += &format!("\n\ncannot be zipped: {error}{hint}");
                    if let Value::Object(json) = &mut json {
                        json.insert("cannot_be_zipped".into(), error.to_string().into());
                    }
                    code = ExitCode::from(1);
                }
                models.push(json);
                texts.push(text);
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                models.push(json!({ "path": path.display().to_string(), "unsupported": error.items(),
                "error": error.message() }));
                let hint = error.hint_text().map(|h| format!("\nhint: {h}")).unwrap_or_default();
                texts.push(format!("{error}{hint}"));
                code = ExitCode::from(1);
            }
            Err(error) => return Err(error),
        }
    }
    if common.json {
        terminal::result(&json!({ "version": 1, "models": models }).to_string());
    } else {
        terminal::result(&texts.join("\n\n"));
    }
    Ok(code)
}

fn to_text(path: &Path, summary: &Summary) -> String {
    let mut rows = vec![["layer", "operator", "units", "parameters", "multiply-adds"].map(str::to_owned).to_vec()];
    for layer in &summary.layers {
        rows.push(vec![
            layer.name.clone(),
            layer.op.to_owned(),
            layer.units.to_string(),
            terminal::grouped(layer.parameters as u64),
            terminal::grouped(layer.multiply_adds),
        ]);
    }
    let total = summary.layers.len() + 1;
    rows.push(vec![
        "total".to_owned(),
        String::new(),
        String::new(),
        terminal::grouped(summary.parameters as u64),
        terminal::grouped(summary.multiply_adds),
    ]);
    // Zeros are only worth a column where they mean something.
    if 20 * (summary.parameters - summary.nonzero) > summary.parameters {
        let counts = summary.layers.iter().map(|l| l.nonzero).chain([summary.nonzero]);
        let cells = std::iter::once("nonzero".to_owned()).chain(counts.map(|n| terminal::grouped(n as u64)));
        rows.iter_mut().take(total + 1).zip(cells).for_each(|(row, cell)| row.insert(4, cell));
    }
    let operators: Vec<String> = summary.operators.iter().map(|(name, n)| format!("{n} {name}")).collect();
    format!(
        "{}\n{}\n{}\n{}\n\n{}",
        path.display(),
        list("input    ", &summary.inputs),
        list("output   ", &summary.outputs),
        terminal::wrapped("nodes    ", &operators),
        terminal::table(&rows)
    )
}

fn list(label: &str, values: &[(String, Shape)]) -> String {
    terminal::wrapped(label, &values.iter().map(|(name, shape)| format!("{name} {shape}")).collect::<Vec<_>>())
}

/// Who shares what in each layer of a joint model.
fn joint_text(path: &Path, summary: &Summary, joint: &Joint) -> String {
    // Of two tasks everything can be said in a line; of more, how many units have how many owners.
    let two = joint.members.len() == 2;
    let owned: &[&str] = if two { &["who owns them"] } else { &["of all tasks", "of several", "of one"] };
    let head = ["layer", "operator", "units"].iter().chain(owned);
    let mut rows = vec![head.map(|cell| (*cell).to_owned()).collect::<Vec<_>>()];
    for (i, layer) in joint.members.first().iter().flat_map(|m| m.layers.iter().enumerate()) {
        let units: Vec<usize> = joint.members.iter().map(|m| m.layers[i].units).collect();
        let sets = joint.owner_sets(i);
        let count = |owners: std::ops::RangeInclusive<usize>| {
            sets.iter().filter(|(tasks, _)| owners.contains(&tasks.len())).map(|(_, n)| n).sum::<usize>().to_string()
        };
        let all = joint.members.len();
        let owned = match two {
            true => vec![sets.iter().map(|(t, n)| format!("{n} {}", t.join("+"))).collect::<Vec<_>>().join(", ")],
            false => vec![count(all..=all), count(2..=all - 1), count(1..=1)],
        };
        rows.push(
            [layer.name.clone(), layer.kind().to_owned(), terminal::each(&units)].into_iter().chain(owned).collect(),
        );
    }
    let names: Vec<String> = joint.members.iter().map(|m| m.name.clone()).collect();
    let separate: usize = joint.members.iter().map(|m| m.graph.parameters()).sum();
    let (stored, shared) = joint.parameters();
    format!(
        "{}\n{}\n{}\n{}\n\n{}\n\nparameters {} instead of {}, {} of them shared",
        path.display(),
        terminal::wrapped("joint model of ", &names),
        list("input    ", &summary.inputs),
        list("output   ", &summary.outputs),
        terminal::table(&rows),
        terminal::grouped(stored as u64),
        terminal::grouped(separate as u64),
        terminal::grouped(shared as u64)
    )
}

fn joint_json(joint: &Joint) -> Value {
    let (stored, shared) = joint.parameters();
    let layers = joint.members.first().into_iter().flat_map(|m| m.layers.iter().enumerate());
    let layers = layers.map(|(i, layer)| {
        let units = joint.members.iter().map(|m| (m.name.clone(), json!(m.layers[i].units)));
        json!({ "name": layer.name, "op": layer.kind(), "units": Value::Object(units.collect()),
        "owners": owners(joint, i) })
    });
    json!({
        "tasks": joint.members.iter().map(|m| m.name.clone()).collect::<Vec<_>>(),
        "parameters": { "stored": stored, "shared": shared, "nonzero": joint.nonzero() },
        "layers": layers.collect::<Vec<_>>(),
    })
}

/// How many units of a layer belong to which tasks.
fn owners(joint: &Joint, layer: usize) -> Value {
    let sets = joint.owner_sets(layer).into_iter().map(|(tasks, n)| json!({ "tasks": tasks, "units": n }));
    Value::Array(sets.collect())
}

fn to_json(path: &Path, summary: &Summary) -> Value {
    let values = |list: &[(String, Shape)]| -> Vec<Value> {
        list.iter().map(|(name, shape)| json!({ "name": name, "shape": dims(shape) })).collect()
    };
    let layers: Vec<Value> = summary
        .layers
        .iter()
        .map(|l| {
            json!({ "name": l.name, "op": l.op, "units": l.units, "output": dims(&l.output),
                    "parameters": l.parameters, "nonzero": l.nonzero, "multiply_adds": l.multiply_adds })
        })
        .collect();
    json!({
        "path": path.display().to_string(),
        "inputs": values(&summary.inputs),
        "outputs": values(&summary.outputs),
        "layers": layers,
        "operators": summary.operators,
        "parameters": summary.parameters,
        "nonzero": summary.nonzero,
        "multiply_adds": summary.multiply_adds,
    })
}

/// Numbers, and "N" for the batch.
fn dims(shape: &Shape) -> Vec<Value> {
    shape
        .dims()
        .iter()
        .map(|d| match d {
            Dim::Fixed(n) => json!(n),
            Dim::Batch(_) => json!(d.to_string()),
        })
        .collect()
}
