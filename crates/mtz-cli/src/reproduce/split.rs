//! CIFAR-10 in two halves, one network for each: what sharing costs networks of several kinds.

use super::{Context, Outcome, TrainingSpec, beside};
use crate::terminal;
use mtz::chart::{Chart, Point, Series};
use mtz::error::Result;
use mtz::merge::Recipe;
use mtz::sharing::Share;
use mtz::zip::{RetrainingTarget, TaskData, ZipOptions, errors};
use serde_json::{Value, json};

const HALVES: [&str; 2] = ["cifar-10-0-4", "cifar-10-5-9"];

/// A kind of network, how wide it is, and what is measured with it.
struct NetworkKind {
    architecture: &'static str,
    width: f64,
    /// Of training, where the usual number takes too long.
    epochs: Option<usize>,
    /// Images of each half for the statistics, where the usual number takes too long.
    calibration: Option<usize>,
    runs: &'static [Run],
}

/// One way to zip.
#[derive(Clone, Copy)]
struct Run {
    recipe: Recipe,
    share: f64,
    /// Iterations of retraining at the end, and what they target at.
    retrain: Option<(usize, RetrainingTarget)>,
}

const fn plain(recipe: Recipe, share: f64) -> Run {
    Run { recipe, share, retrain: None }
}

const fn retrained(share: f64, target: RetrainingTarget) -> Run {
    Run { recipe: Recipe::Best, share, retrain: Some((1000, target)) }
}

const SWEEP: [Run; 4] =
    [plain(Recipe::Best, 0.5), plain(Recipe::Best, 0.75), plain(Recipe::Best, 0.9), plain(Recipe::Best, 1.0)];

const KINDS: [NetworkKind; 4] = [
    NetworkKind {
        architecture: "resnet-20",
        width: 1.0,
        epochs: None,
        calibration: None,
        runs: &[
            plain(Recipe::Paper, 0.5),
            plain(Recipe::Paper, 0.75),
            plain(Recipe::Paper, 0.9),
            plain(Recipe::Paper, 1.0),
            SWEEP[0],
            SWEEP[1],
            SWEEP[2],
            SWEEP[3],
            retrained(0.9, RetrainingTarget::Distill),
            retrained(0.9, RetrainingTarget::Labels),
            retrained(1.0, RetrainingTarget::Distill),
            retrained(1.0, RetrainingTarget::Labels),
        ],
    },
    NetworkKind {
        architecture: "vgg-11",
        width: 0.5,
        epochs: Some(12),
        calibration: None,
        runs: &[SWEEP[0], SWEEP[3]],
    },
    NetworkKind { architecture: "mobilenet-v2", width: 0.35, epochs: Some(3), calibration: Some(2000), runs: &SWEEP },
    NetworkKind { architecture: "densenet-22", width: 1.0, epochs: Some(2), calibration: Some(2000), runs: &SWEEP },
];

/// What came out of a run: how many of a hundred answers are right, for each half.
struct Measured {
    run: Run,
    right: [f64; 2],
    /// Parameters in units of one network.
    size: f64,
    seconds: f64,
}

impl Run {
    fn name(&self) -> String {
        let recipe = if self.recipe == Recipe::Best { "best" } else { "paper" };
        match self.retrain {
            None => format!("{recipe}, {:.0} % shared", 100.0 * self.share),
            Some((n, target)) => {
                let target = if target == RetrainingTarget::Labels { "labels" } else { "no labels" };
                format!("{recipe}, {:.0} % shared, {n} iterations, {target}", 100.0 * self.share)
            }
        }
    }
}

pub fn run(context: &Context) -> Result<Outcome> {
    let (mut all, mut charts) = (serde_json::Map::new(), Vec::new());
    for kind in KINDS.iter().filter(|kind| context.wants(kind.architecture)) {
        let (before, measured) = measure(context, kind)?;
        context.tell(&describe(kind, &before, &measured));
        let mean = |right: &[f64; 2]| (right[0] + right[1]) / 2.0;
        let runs = measured.iter().map(|m| {
            json!({ "run": m.run.name(), "share": m.run.share, "right": m.right, "lost": mean(&before) - mean(&m.right),
                    "size_in_networks": m.size, "seconds": m.seconds })
        });
        let value = json!({ "width": kind.width, "separate_right": before, "runs": runs.collect::<Vec<Value>>() });
        all.insert(kind.architecture.to_owned(), value);
        let series = |name: &str, recipe: Recipe| Series {
            name: name.to_owned(),
            dashed: false,
            points: measured
                .iter()
                .filter(|m| m.run.recipe == recipe && m.run.retrain.is_none())
                .map(|m| Point { x: m.size, y: mean(&before) - mean(&m.right), spread: None })
                .collect(),
        };
        let series = [series("best recipe", Recipe::Best), series("paper's recipe", Recipe::Paper)];
        let chart = Chart {
            title: format!("Two {} for halves of CIFAR-10, no labels, no retraining", kind.architecture),
            x_label: "parameters, in networks".into(),
            y_label: "points lost".into(),
            mark: Some((0.0, "the separate networks".into())),
            series: series.into_iter().filter(|s| !s.points.is_empty()).collect(),
            ..Chart::default()
        };
        charts.push((format!("-{}", kind.architecture), chart));
    }
    Ok(Outcome { json: Value::Object(all), charts })
}

fn measure(context: &Context, kind: &NetworkKind) -> Result<([f64; 2], Vec<Measured>)> {
    let training = TrainingSpec { width: kind.width, epochs: kind.epochs, ..TrainingSpec::default() };
    let network = |half| context.network_in(kind.architecture, &training, half, 1);
    let (a, b) = (network(HALVES[0])?, network(HALVES[1])?);
    let (first, second) = (context.bench(HALVES[0], &a)?, context.bench(HALVES[1], &b)?);
    let tasks =
        [TaskData::whole("0-4", &first.train, &first.test), TaskData::whole("5-9", &second.train, &second.test)];
    let one = (a.parameters() + b.parameters()) as f64 / 2.0;
    let start = beside(&[("0-4", &a), ("5-9", &b)])?;
    let key = format!("split-{}-separate", kind.architecture);
    let options = ZipOptions::suited(Recipe::Best, &start);
    let results_kept = context.results_kept([&a, &b]);
    let before = results_kept.remember(&key, || Ok(json!(errors(&[&a, &b], &tasks, &options)?)))?;
    let right = |errors: &Value| [0, 1].map(|t| 100.0 - errors[t].as_f64().unwrap_or(f64::NAN));
    let mut measured = Vec::new();
    for run in kind.runs {
        let usual = ZipOptions::suited(run.recipe, &start);
        let options = usual.with(|o| {
            o.sharing.share = Share::Fraction(run.share);
            o.fitting.calibration = kind.calibration.unwrap_or(o.fitting.calibration);
            o.retraining.iterations = 0;
            o.retraining.target = run.retrain.map_or(RetrainingTarget::Distill, |(_, target)| target);
            o.seed = context.common.seed;
        });
        let results_kept = results_kept.of(&options.clone().with(|o| o.retraining.target = RetrainingTarget::Distill));
        let what = format!("{}, {}", kind.architecture, run.name());
        let key = format!("split-{}-{}", kind.architecture, run.name().replace([',', '%', ' '], ""));
        let value = results_kept.remember(&key, || {
            // Retraining goes on from what was zipped without it; seconds are those of what this run adds.
            let begin = std::time::Instant::now();
            let recipe = if run.recipe == Recipe::Best { "best" } else { "paper" };
            let name = format!("split-{}-{recipe}-{:.0}", kind.architecture, 100.0 * run.share);
            let mut joint =
                results_kept.kept(&name, || Ok(context.zip(start.clone(), &tasks, &options, &what)?.joint))?;
            if let Some((iterations, _)) = run.retrain {
                let originals = [a.clone(), b.clone()];
                context.retrain(&mut joint, &tasks, &originals, &options, iterations, &what)?;
            }
            Ok(json!({ "after": errors(&joint.graphs(), &tasks, &options)?, "parameters": joint.parameters().0,
                       "seconds": begin.elapsed().as_secs_f64() }))
        })?;
        measured.push(Measured {
            run: *run,
            right: right(&value["after"]),
            size: value["parameters"].as_f64().unwrap_or(f64::NAN) / one,
            seconds: value["seconds"].as_f64().unwrap_or(f64::NAN),
        });
    }
    Ok((right(&before), measured))
}

fn describe(kind: &NetworkKind, before: &[f64; 2], measured: &[Measured]) -> String {
    let mut rows = vec![
        ["", "0-4 right %", "5-9 right %", "lost", "networks", "seconds"].map(str::to_owned).to_vec(),
        [
            "separate".into(),
            format!("{:.1}", before[0]),
            format!("{:.1}", before[1]),
            String::new(),
            "2.00".into(),
            String::new(),
        ]
        .to_vec(),
    ];
    for m in measured {
        let lost = (before[0] + before[1] - m.right[0] - m.right[1]) / 2.0;
        rows.push(vec![
            m.run.name(),
            format!("{:.1}", m.right[0]),
            format!("{:.1}", m.right[1]),
            format!("{lost:.2}"),
            format!("{:.2}", m.size),
            format!("{:.0}", m.seconds),
        ]);
    }
    format!("{} ({} times the usual width)\n{}", kind.architecture, kind.width, terminal::table(&rows))
}
