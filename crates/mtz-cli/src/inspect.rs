//! `mtz inspect`

use crate::args::{Common, Inspect};
use crate::show;
use mtz::error::{ErrorKind, Result};
use mtz::inspect::Summary;
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
                models.push(to_json(path, &summary));
                texts.push(to_text(path, &summary));
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                models.push(json!({ "path": path.display().to_string(), "unsupported": error.items(), "error": error.message() }));
                let hint = error.hint_text().map(|h| format!("\nhint: {h}")).unwrap_or_default();
                texts.push(format!("{error}{hint}"));
                code = ExitCode::from(1);
            }
            Err(error) => return Err(error),
        }
    }
    if common.json {
        show::result(&json!({ "models": models }).to_string());
    } else {
        show::result(&texts.join("\n\n"));
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
            show::grouped(layer.parameters as u64),
            show::grouped(layer.multiply_adds),
        ]);
    }
    rows.push(vec![
        "total".to_owned(),
        String::new(),
        String::new(),
        show::grouped(summary.parameters as u64),
        show::grouped(summary.multiply_adds),
    ]);
    let list = |values: &[(String, Shape)]| {
        values.iter().map(|(name, shape)| format!("{name} {shape}")).collect::<Vec<_>>().join(", ")
    };
    let operators = summary.operators.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ");
    format!(
        "{}\ninput    {}\noutput   {}\nnodes    {operators}\n\n{}",
        path.display(),
        list(&summary.inputs),
        list(&summary.outputs),
        show::table(&rows)
    )
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
                    "parameters": l.parameters, "multiply_adds": l.multiply_adds })
        })
        .collect();
    json!({
        "path": path.display().to_string(),
        "inputs": values(&summary.inputs),
        "outputs": values(&summary.outputs),
        "layers": layers,
        "operators": summary.operators,
        "parameters": summary.parameters,
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
