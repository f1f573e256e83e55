//! `mtz train`

use crate::args::{Common, Train};
use crate::outputs;
use crate::progress::Training;
use crate::samples::{self, Prepared};
use crate::terminal;
use mtz::architecture::{self, NetworkSpec};
use mtz::data::Augmentation;
use mtz::data::{Dataset, Labels, Normalisation, Part};
use mtz::error::{Error, Result};
use mtz::evaluate::{EvaluationOptions, evaluate};
use mtz::graph::Graph;
use mtz::train::{Fit, Rule, fit};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Set by Ctrl-C: the run stops after the present step and writes what it has.
static STOP: AtomicBool = AtomicBool::new(false);

pub fn run(args: &Train, common: &Common) -> Result<ExitCode> {
    let inputs = args.data.data.iter().chain(&args.data.test).map(|named| named.value.as_path());
    let inputs: Vec<&Path> = inputs.chain(args.from.as_deref()).collect();
    outputs::check(&args.output, args.force, &inputs)?;
    let name = args.output.file_stem().map_or_else(|| "model".into(), |s| s.to_string_lossy().into_owned());
    samples::check(&args.data, std::slice::from_ref(&name))?;
    let (start, train) = starting_point(args, &name, common)?;
    let test = samples::open(&args.data, &name, &start, Part::Test)?;
    let how = how(args, &start, test.part, common);
    // A second Ctrl-C ends the program at once; nothing has been written then.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::abort();
        }
    });
    let bar = Training::new(common.quiet);
    let begin = Instant::now();
    let report = fit(&start, &train.feed, &train.feed.all(), &how, None, |news| {
        let error = news.validation.map_or_else(String::new, |v| format!(", held-out error {:.2} %", v.error));
        let rate = news.samples as f64 / begin.elapsed().as_secs_f64().max(1e-9);
        bar.advance(news.step, format!("loss {:.4}{error}, {rate:.0} images/s", news.loss));
        if STOP.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.finish();
    let seconds = begin.elapsed().as_secs_f64();
    let trained = if args.permute { mtz::sharing::permute_hidden(&report.graph, common.seed)? } else { report.graph };
    mtz::onnx::write(&trained, &args.output)?;
    let result = match (test.part, report.validation) {
        ("all", Some(held_out)) => held_out,
        _ => {
            let options = EvaluationOptions::new(how.rule.batch_size, args.memory);
            evaluate(&mtz::simplify::for_inference(&trained)?, &test.feed, options, |_| {})?
        }
    };
    let part = if test.part == "all" { "held-out tenth" } else { "test" };
    if common.json {
        let value = json!({
            "version": 1, "task": name, "error": result.error, "loss": result.loss, "samples": result.samples,
            "part": part,
            "iterations": report.steps, "seconds": seconds, "stopped": report.stopped, "seed": common.seed,
            "parameters": trained.parameters(), "output": args.output.display().to_string(),
        });
        terminal::result(&value.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["task", "error %", "loss", "samples", "iterations", "seconds"].map(str::to_owned).to_vec();
    let row = vec![
        name,
        format!("{:.2}", result.error),
        format!("{:.4}", result.loss),
        format!("{} {part}", result.samples),
        report.steps.to_string(),
        format!("{seconds:.1}"),
    ];
    terminal::result(&terminal::table(&[head, row]));
    let stopped = if report.stopped { "stopped early; " } else { "" };
    terminal::note(&format!("{stopped}written to {}", args.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// The network that is trained, and its samples.
fn starting_point(args: &Train, name: &str, common: &Common) -> Result<(Graph, Prepared)> {
    match (&args.architecture, &args.from) {
        (_, Some(from)) => {
            let graph = mtz::onnx::read(from)?.with_open_batch();
            let train = samples::open(&args.data, name, &graph, Part::Train)?;
            Ok((graph, train))
        }
        (Some(architecture), None) => from_scratch(args, architecture, name, common.seed),
        (None, None) => Err(Error::usage("neither an architecture nor --from MODEL is given")
            .hint(format!("architectures: {}", names().join(", ")))),
    }
}

/// How to train, as the flags say or as is usual. `part`: which samples the result is reported on.
fn how(args: &Train, start: &Graph, part: &str, common: &Common) -> Fit {
    let usual = Fit::usual(start);
    let rule = Rule {
        batch_size: args.batch_size.map_or(usual.rule.batch_size, |n| n.get()),
        rate: args.lr.unwrap_or(usual.rule.rate),
        weight_decay: args.weight_decay.unwrap_or(usual.rule.weight_decay),
        augmentation: Augmentation { shift: args.shift.unwrap_or(usual.rule.augmentation.shift), flip: args.flip },
        seed: common.seed,
        ..usual.rule
    };
    Fit {
        epochs: args.epochs.unwrap_or(usual.epochs),
        rule,
        // Where there is no test part, a fixed tenth is held out and reported; it must not choose the epoch then.
        validation: if part == "all" { 0.1 } else { args.validation },
        keep_best: part != "all",
        memory: args.memory,
    }
}

/// A network with random weights that fits the data, normalising it as `--mean` and `--std` say or as the data is.
fn from_scratch(args: &Train, architecture: &str, name: &str, seed: u64) -> Result<(Graph, Prepared)> {
    let dataset = samples::dataset(&args.data, name, args.image_shape()?, Part::Train)?;
    let normalisation = samples::normalisation(&args.data, name)?;
    let graph = build_for(&dataset, architecture, args.width, &normalisation, seed)?;
    // Mean and deviation are inside the network now.
    let outside = Normalisation { mean: vec![], std: vec![], ..normalisation };
    let feed = mtz::data::Feed::new(dataset, &graph, outside)?;
    Ok((graph, Prepared { feed, part: "train" }))
}

/// A network with random weights for a dataset. Where no mean and deviation are given, they are the data's.
pub fn build_for(
    dataset: &Dataset,
    architecture: &str,
    width: f64,
    normalisation: &Normalisation,
    seed: u64,
) -> Result<Graph> {
    let labels = dataset.labels.as_ref().ok_or_else(|| Error::data("training needs labels"))?;
    let outputs = match labels {
        Labels::Classes(classes) => classes.iter().max().map_or(0, |&c| c as usize + 1).max(2),
        Labels::Attributes { count, .. } => *count,
    };
    let (mean, std) = if normalisation.mean.is_empty() && normalisation.std.is_empty() {
        samples::statistics(dataset, normalisation)?
    } else {
        (normalisation.mean.clone(), normalisation.std.clone())
    };
    let task = NetworkSpec { input: dataset.samples.shape().to_vec(), outputs, mean, std };
    architecture::build(architecture, &task, width, seed)
}

/// What can be trained.
pub fn names() -> Vec<&'static str> {
    architecture::ALL.iter().map(|a| a.name).collect()
}
