//! CIFAR-10 in two halves, one network for each: what sharing costs networks of several kinds.

use super::{Making, Outcome, Workshop, beside};
use crate::show;
use mtz::chart::{Chart, Point, Series};
use mtz::error::Result;
use mtz::merge::{Recipe, Share};
use mtz::pipeline::{Aim, Plan, Task, errors};
use serde_json::{Value, json};

const HALVES: [&str; 2] = ["cifar-10-0-4", "cifar-10-5-9"];

/// A kind of network, how wide it is, and what is measured with it.
struct Kind {
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
    /// Iterations of retraining at the end, and what they aim at.
    retrain: Option<(usize, Aim)>,
}

const fn plain(recipe: Recipe, share: f64) -> Run {
    Run { recipe, share, retrain: None }
}

const fn retrained(share: f64, aim: Aim) -> Run {
    Run { recipe: Recipe::Best, share, retrain: Some((1000, aim)) }
}

const SWEEP: [Run; 4] =
    [plain(Recipe::Best, 0.5), plain(Recipe::Best, 0.75), plain(Recipe::Best, 0.9), plain(Recipe::Best, 1.0)];

const KINDS: [Kind; 4] = [
    Kind {
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
            retrained(0.9, Aim::Distill),
            retrained(0.9, Aim::Labels),
            retrained(1.0, Aim::Distill),
            retrained(1.0, Aim::Labels),
        ],
    },
    Kind { architecture: "vgg-11", width: 0.5, epochs: Some(12), calibration: None, runs: &[SWEEP[0], SWEEP[3]] },
    Kind { architecture: "mobilenet-v2", width: 0.35, epochs: Some(3), calibration: Some(2000), runs: &SWEEP },
    Kind { architecture: "densenet-22", width: 1.0, epochs: Some(2), calibration: Some(2000), runs: &SWEEP },
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
            Some((n, aim)) => {
                let aim = if aim == Aim::Labels { "labels" } else { "no labels" };
                format!("{recipe}, {:.0} % shared, {n} iterations, {aim}", 100.0 * self.share)
            }
        }
    }
}

pub fn run(workshop: &Workshop) -> Result<Outcome> {
    let (mut all, mut charts) = (serde_json::Map::new(), Vec::new());
    for kind in KINDS.iter().filter(|kind| workshop.wants(kind.architecture)) {
        let (before, measured) = measure(workshop, kind)?;
        workshop.tell(&describe(kind, &before, &measured));
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

fn measure(workshop: &Workshop, kind: &Kind) -> Result<([f64; 2], Vec<Measured>)> {
    let making = Making { width: kind.width, epochs: kind.epochs, ..Making::default() };
    let network = |half| workshop.network_in(kind.architecture, &making, half, 1);
    let (a, b) = (network(HALVES[0])?, network(HALVES[1])?);
    let (first, second) = (workshop.bench(HALVES[0], &a)?, workshop.bench(HALVES[1], &b)?);
    let tasks = [Task::whole("0-4", &first.train, &first.test), Task::whole("5-9", &second.train, &second.test)];
    let one = (a.parameters() + b.parameters()) as f64 / 2.0;
    let start = beside(&[("0-4", &a), ("5-9", &b)])?;
    let key = format!("split-{}-separate", kind.architecture);
    let plan = Plan::suited(Recipe::Best, &start);
    let notebook = workshop.notebook([&a, &b]);
    let before = notebook.remember(&key, || Ok(json!(errors(&[&a, &b], &tasks, &plan)?)))?;
    let right = |errors: &Value| [0, 1].map(|t| 100.0 - errors[t].as_f64().unwrap_or(f64::NAN));
    let mut measured = Vec::new();
    for run in kind.runs {
        let usual = Plan::suited(run.recipe, &start);
        let plan = Plan {
            share: Share::Fraction(run.share),
            calibration: kind.calibration.unwrap_or(usual.calibration),
            retrain: 0,
            aim: run.retrain.map_or(Aim::Distill, |(_, aim)| aim),
            seed: workshop.common.seed,
            ..usual
        };
        let notebook = notebook.of(&Plan { aim: Aim::Distill, ..plan.clone() });
        let what = format!("{}, {}", kind.architecture, run.name());
        let key = format!("split-{}-{}", kind.architecture, run.name().replace([',', '%', ' '], ""));
        let value = notebook.remember(&key, || {
            // Retraining goes on from what was zipped without it; seconds are those of what this run adds.
            let begin = std::time::Instant::now();
            let recipe = if run.recipe == Recipe::Best { "best" } else { "paper" };
            let name = format!("split-{}-{recipe}-{:.0}", kind.architecture, 100.0 * run.share);
            let mut joint = notebook.kept(&name, || Ok(workshop.zip(start.clone(), &tasks, &plan, &what)?.joint))?;
            if let Some((iterations, _)) = run.retrain {
                let originals = [a.clone(), b.clone()];
                workshop.retrain(&mut joint, &tasks, &originals, &plan, iterations, &what)?;
            }
            Ok(json!({ "after": errors(&joint.graphs(), &tasks, &plan)?, "parameters": joint.parameters().0,
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

fn describe(kind: &Kind, before: &[f64; 2], measured: &[Measured]) -> String {
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
    format!("{} ({} times the usual width)\n{}", kind.architecture, kind.width, show::table(&rows))
}
