//! `mtz zip --dry-run`: what would come out, and what it would take.

use crate::args::Common;
use crate::terminal;
use mtz::budget::Budget;
use mtz::error::Result;
use mtz::predict::{Prediction, predict};
use mtz::sharing::Joint;
use mtz::sharing::Share;
use mtz::zip::{TaskData, ZipOptions};
use serde_json::{Value, json};

/// Predicts a zip, or a search for a budget, and says so. `written`: bytes that writing the file takes.
pub fn run(
    start: &Joint,
    tasks: &[TaskData],
    options: &ZipOptions,
    budget: Option<Budget>,
    written: u64,
    common: &Common,
) -> Result<()> {
    let zips = budget.map_or(
        (usize::from(options.retraining.iterations == 0), usize::from(options.retraining.iterations > 0)),
        |b| b.zips(options.retraining.iterations),
    );
    // The program and the samples are there already, and so are the networks, which are counted.
    let there = terminal::resident_memory().unwrap_or(0).saturating_sub(4 * start.parameters().0 as u64);
    let mut prediction = predict(start, tasks, options)?;
    if budget.is_some() {
        // A search shares in part, too, which takes more: columns of one task stand beside those of the other.
        let least = options.clone().with(|o| {
            o.sharing.share = Share::Count(0);
            o.sharing.share_of = Vec::new();
        });
        let least = predict(start, tasks, &least)?;
        prediction.memory = prediction.memory.max(least.memory);
        prediction.seconds = prediction.seconds.max(least.seconds);
    }
    prediction.memory = prediction.memory.max(written);
    show_prediction(&prediction, zips, budget.is_some(), there, common);
    Ok(())
}

/// What a dry run says. `zips`: how many there are without retraining and with it, for a budget at most; `there`: bytes
/// that the program has already.
fn show_prediction(prediction: &Prediction, zips: (usize, usize), budget: bool, there: u64, common: &Common) {
    let Prediction { parameters_before, parameters, shared, iterations, layers, .. } = prediction;
    let seconds = zips.0 as f64 * (prediction.seconds - prediction.retraining) + zips.1 as f64 * prediction.seconds;
    let memory = prediction.memory + there;
    if common.json {
        let layers: Vec<Value> = layers
            .iter()
            .map(|l| {
                json!({ "name": l.name, "shared": l.shared, "samples": l.samples, "memory_bytes": l.memory,
                "seconds": l.seconds })
            })
            .collect();
        let value = json!({
            "version": 1, "dry_run": true, "parameters": { "before": parameters_before, "after": parameters,
            "shared": shared },
            "layers": layers, "iterations": iterations, "zips": zips.0 + zips.1, "seconds": seconds,
            "peak_memory_bytes": memory,
        });
        return terminal::result(&value.to_string());
    }
    let mut rows = vec![["layer", "shared", "samples", "MiB", "seconds"].map(str::to_owned).to_vec()];
    for l in layers {
        let (samples, memory) = (terminal::grouped(l.samples as u64), terminal::grouped(l.memory >> 20));
        rows.push(vec![l.name.clone(), l.shared.to_string(), samples, memory, format!("{:.1}", l.seconds)]);
    }
    terminal::result(&terminal::table(&rows));
    let (all, about) = match budget {
        true => ("with everything shared: ", format!("a search of at most {} such zips, ", zips.0 + zips.1)),
        false => ("", String::new()),
    };
    terminal::result(&format!(
        "\n{all}parameters {} -> {} ({:.1} %), {} of them shared; {iterations} iterations of retraining\n\
         {about}about {} of time and {} MiB of memory; nothing was zipped",
        terminal::grouped(*parameters_before as u64),
        terminal::grouped(*parameters as u64),
        100.0 * *parameters as f64 / (*parameters_before).max(1) as f64,
        terminal::grouped(*shared as u64),
        terminal::duration(seconds),
        terminal::grouped(memory >> 20),
    ));
}
