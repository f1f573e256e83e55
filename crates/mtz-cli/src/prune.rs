//! `mtz prune`

use crate::args::{Common, MethodName, Prune};
use crate::models;
use crate::outputs;
use crate::progress::{Rate, Stages};
use crate::samples;
use crate::terminal;
use mtz::data::{Part, holdout_split};
use mtz::engine::CpuEngine;
use mtz::error::{Error, Result};
use mtz::evaluate::{Kind, Measured};
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::prune::{Method, Pruned, allocate, prune};
use mtz::sharing::{Joint, Layer};
use mtz::statistics::Calibration;
use mtz::zip::{References, Retraining, RetrainingTarget, TaskData, ZipOptions};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: &Prune, common: &Common) -> Result<ExitCode> {
    let data = args.data.data.iter().chain(&args.data.test).map(|named| named.value.as_path());
    let inputs: Vec<&Path> = data.chain([args.model.value.as_path()]).collect();
    outputs::check(&args.output, args.force, &inputs)?;
    let graph = mtz::simplify::for_zipping(&models::read(&args.model.value)?)?;
    let name = args.model.name();
    samples::check(&args.data, std::slice::from_ref(&name))?;
    let layers = Layer::all(&graph)?;
    let (train, test) =
        (samples::open(&args.data, &name, &graph, Part::Train)?, samples::open(&args.data, &name, &graph, Part::Test)?);
    // Where there is no test part, a fixed tenth is held out and reported.
    let all: Vec<usize> = (0..train.feed.len()).collect();
    let (learn, measured) = if test.part == "all" {
        let (learn, held_out) = holdout_split(&all);
        (learn, (&train.feed, held_out))
    } else {
        (all, (&test.feed, (0..test.feed.len()).collect()))
    };
    let usual = ZipOptions::new(Recipe::Best);
    let options = usual.with(|o| {
        o.retraining.target = if args.labels { RetrainingTarget::Labels } else { RetrainingTarget::Distill };
        o.seed = common.seed;
        o.resources.memory = args.memory;
        o.retraining.rate = args.lr.unwrap_or(o.retraining.rate);
        o.retraining.batch_size = args.batch_size.map_or(o.retraining.batch_size, |n| n.get());
    });
    let calibration = args.calibration.map_or(options.fitting.calibration, |n| n.get());
    let order = mtz::random::permutation(common.seed, learn.len());
    let chosen: Vec<usize> = order.into_iter().take(calibration).map(|i| learn[i]).collect();
    let from = Calibration::new(&train.feed, chosen, common.seed);
    let task =
        TaskData { test: Some(measured), samples: Some(learn), ..TaskData::whole(&name, &train.feed, &test.feed) };
    let tasks = [task];
    let begin = Instant::now();
    let bar = Stages::new(common.quiet);
    let tell = |i: usize, layer: &Layer, what: &str| {
        let part = format!("{what} layer {} of {}", i + 1, layers.len());
        bar.advance((i as f64, layers.len() as f64), &part, &layer.name);
        ControlFlow::Continue(())
    };
    let uniform = read_sparsity(&args.sparsity, &layers)?;
    let sparsity = match (args.global, uniform.first()) {
        (true, Some(&target)) => allocate(&graph, &from, target, args.memory, |i, layer| tell(i, layer, "measuring"))?,
        _ => uniform,
    };
    let method = if args.method == MethodName::Obs { Method::BrainSurgeon } else { Method::Magnitude };
    let references = References::new(&[&graph], &tasks, &options, &CpuEngine)?;
    let measured = |graph: &Graph| Ok(references.measure(&[graph])?.pop().flatten());
    let pruned = prune(&graph, &from, &sparsity, method, args.memory, |i, layer| tell(i, layer, "pruning"))?;
    let right_after: Option<Measured> = measured(&pruned.graph)?;
    let mut joint = Joint::single(name.clone(), pruned.graph.clone())?;
    let mut after = right_after.clone();
    if args.retrain > 0 {
        bar.restart();
        let mut rate = Rate::default();
        let originals = std::slice::from_ref(&graph);
        let retraining = Retraining { tasks: &tasks, originals, options: &options, engine: &CpuEngine };
        retraining.run(&mut joint, args.retrain, None, |i, _| {
            let what = format!("{i}/{}{}", args.retrain, rate.at(i));
            bar.advance((i as f64, args.retrain as f64), "retraining", &what);
            ControlFlow::Continue(())
        })?;
        after = joint.members.first().map(|member| measured(&member.graph)).transpose()?.flatten();
    }
    bar.finish();
    let Some(member) = joint.members.first() else { return Err(Error::model("nothing to prune")) };
    mtz::onnx::write(&member.graph, &args.output)?;
    let seconds = begin.elapsed().as_secs_f64();
    let before = references.errors().first().copied().flatten();
    let kind = references.iter().next().flatten().and_then(|r| r.kind(0)).map(|answers| answers.kind);
    let result = PruneReport { name, before, pruned: right_after, after, kind, seconds };
    show_result(args, &pruned, &result, common);
    Ok(ExitCode::SUCCESS)
}

struct PruneReport {
    name: String,
    /// The error of the dense network.
    before: Option<f64>,
    pruned: Option<Measured>,
    after: Option<Measured>,
    /// What its answers are.
    kind: Option<Kind>,
    seconds: f64,
}

fn show_result(args: &Prune, pruned: &Pruned, report: &PruneReport, common: &Common) {
    let (weights, kept) = pruned.layers.iter().fold((0, 0), |sum, l| (sum.0 + l.weights, sum.1 + l.kept));
    let error = |m: &Option<Measured>| m.as_ref().and_then(Measured::error);
    let agreement = |m: &Option<Measured>| m.as_ref().and_then(Measured::agreement).map(|a| a.percent);
    if common.json {
        let layers: Vec<_> = pruned
            .layers
            .iter()
            .map(|l| {
                json!({ "name": l.name, "weights": l.weights, "nonzero": l.kept, "relative_error": l.error,
                        "seconds": l.seconds })
            })
            .collect();
        let value = json!({
            "version": 1, "task": report.name, "error_before": report.before, "error_pruned": error(&report.pruned),
            "error_after": error(&report.after), "agreement_pruned": agreement(&report.pruned),
            "agreement_after": agreement(&report.after), "kind": report.kind.map(|kind| kind.to_string()),
            "weights": weights, "nonzero": kept, "layers": layers,
            "iterations": args.retrain, "seconds": report.seconds, "seed": common.seed,
            "output": args.output.display().to_string(),
        });
        return terminal::result(&value.to_string());
    }
    let mut rows = vec![["layer", "weights", "left", "left %", "layer error %", "seconds"].map(str::to_owned).to_vec()];
    let percent = |part: usize, whole: usize| format!("{:.1}", 100.0 * part as f64 / whole.max(1) as f64);
    for l in &pruned.layers {
        let error = if l.error.is_nan() { "-".to_owned() } else { format!("{:.2}", 100.0 * l.error) };
        let (weights, kept) = (terminal::grouped(l.weights as u64), terminal::grouped(l.kept as u64));
        rows.push(vec![l.name.clone(), weights, kept, percent(l.kept, l.weights), error, format!("{:.1}", l.seconds)]);
    }
    let total = [terminal::grouped(weights as u64), terminal::grouped(kept as u64), percent(kept, weights)];
    rows.push([vec!["total".to_owned()], total.to_vec()].concat());
    terminal::result(&terminal::table(&rows));
    let number = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.2} %"));
    let retrained = args.retrain;
    let mut lines = Vec::new();
    if report.before.is_some() {
        let [before, now, after] = [report.before, error(&report.pruned), error(&report.after)].map(number);
        lines.push(format!("error {before} -> {now} pruned -> {after} after {retrained} iterations"));
    }
    let [now, after] = [agreement(&report.pruned), agreement(&report.after)].map(number);
    lines.push(format!("agreement with the dense network {now} pruned -> {after} after {retrained} iterations"));
    terminal::result(&format!("\n{}; {:.1} s", lines.join("\n"), report.seconds));
    terminal::note(&format!("written to {}", args.output.display()));
}

/// `0.9`, or `fc1=0.95,fc2=0.8` (the others stay dense).
fn read_sparsity(text: &str, layers: &[Layer]) -> Result<Vec<f64>> {
    let wrong = |part: &str| {
        Error::usage(format!("--sparsity {part:?} is not understood"))
            .hint("a number below 1 like 0.9, or fc1=0.95,fc2=0.8")
    };
    let number = |text: &str| text.parse::<f64>().ok().filter(|s| (0.0..1.0).contains(s)).ok_or_else(|| wrong(text));
    if !text.contains('=') {
        return Ok(vec![number(text)?; layers.len()]);
    }
    let mut all = vec![0.0; layers.len()];
    for part in text.split(',') {
        let (name, sparsity) = part.rsplit_once('=').ok_or_else(|| wrong(part))?;
        let place = layers.iter().position(|l| l.name == name).and_then(|i| all.get_mut(i));
        let names: Vec<&str> = layers.iter().map(|l| l.name.as_str()).collect();
        *place.ok_or_else(|| {
            Error::usage(format!("--sparsity names a layer {name:?} that is not there"))
                .hint(format!("the layers are {}", names.join(", ")))
        })? = number(sparsity)?;
    }
    Ok(all)
}
