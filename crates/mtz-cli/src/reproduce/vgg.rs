//! Tables 2 and 3 of the paper: two VGG-16 for different tasks, with all hidden units shared, and with as many as lose
//! at most half a point. CIFAR-10 stands in for ImageNet and UTKFace's attributes for CelebA's: only increases can be
//! compared. Beside them one network that both tasks are trained on from scratch.

use super::subjects::Subject;
use super::{Context, Outcome, ResultCache, TrainingSpec, beside, series};
use crate::progress::{Stages, Training};
use crate::terminal;
use crate::train::build_for;
use mtz::budget::{Budget, file_bytes, search, sharing};
use mtz::chart::{Chart, Point, Series};
use mtz::data::{Normalisation, Part, holdout_split};
use mtz::engine::CpuEngine;
use mtz::error::{Error, Result};
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::sharing::Joint;
use mtz::sharing::Share;
use mtz::train::{Fit, Goal, Learner, Rule, TrainingCheckpoint, learn, recalibrate_batch_norm};
use mtz::zip::{LayerReport, RetrainingTarget, TaskData, ZipOptions, errors, intermediate_tasks, paired_in_order};
use serde_json::{Value, json};
use std::fmt::Display;
use std::ops::ControlFlow;

const ARCHITECTURE: &str = "vgg-16";
const TASKS: [&str; 2] = ["cifar-10", "utkface-attributes"];
/// Of training each network: as many as fit into four hours with all the rest.
const EPOCHS: [usize; 2] = [4, 6];
/// Of retraining, both tasks in each.
const ITERATIONS: usize = 600;
/// Images of each task for the statistics: a search zips often.
const CALIBRATION: usize = 2500;
/// Images of each task that the statistics of the network trained on both are taken from.
const RECALIBRATION_SAMPLES: usize = 4096;
/// Points of error that the adaptive zip may lose.
const MAY_LOSE: f64 = 0.5;
/// Standard errors of that on held-out images that must fit in, too: half a point on other images is what was asked
/// for, and some thousand tell it to some tenths.
const MARGIN: f64 = 1.0;
/// What it should share at least, in networks.
const SHOULD_SHARE: f64 = 0.4;
/// Test images of each task that errors are measured on layer by layer.
const MEASURED: usize = 1500;

/// A layer of the paper's: units shared adaptively, and errors of both tasks without retraining and with it, with all
/// shared and adaptively.
struct Paper {
    layer: &'static str,
    shared: usize,
    all: [[f64; 2]; 2],
    adaptive: [[f64; 2]; 2],
}

const fn paper(layer: &'static str, shared: usize, all: [[f64; 2]; 2], adaptive: [[f64; 2]; 2]) -> Paper {
    Paper { layer, shared, all, adaptive }
}

const PAPER: [Paper; 15] = [
    paper("conv1_1", 64, [[10.59, 8.45], [10.61, 8.43]], [[10.28, 8.39], [10.37, 8.33]]),
    paper("conv1_2", 64, [[11.19, 8.82], [10.78, 8.77]], [[10.93, 8.77], [10.50, 8.54]]),
    paper("conv2_1", 96, [[10.99, 8.91], [10.68, 8.82]], [[10.74, 8.62], [10.57, 8.46]]),
    paper("conv2_2", 96, [[11.31, 9.23], [11.03, 9.07]], [[10.87, 8.56], [10.79, 8.47]]),
    paper("conv3_1", 192, [[11.65, 9.16], [11.46, 9.04]], [[10.83, 8.62], [10.76, 8.48]]),
    paper("conv3_2", 192, [[11.92, 9.17], [11.83, 9.05]], [[10.92, 8.52], [10.71, 8.44]]),
    paper("conv3_3", 192, [[12.54, 9.46], [12.41, 9.34]], [[10.86, 8.83], [10.71, 8.63]]),
    paper("conv4_1", 384, [[13.40, 10.18], [12.28, 9.69]], [[10.69, 9.39], [10.51, 8.71]]),
    paper("conv4_2", 320, [[13.02, 10.65], [12.62, 10.25]], [[10.43, 9.06], [10.46, 8.80]]),
    paper("conv4_3", 320, [[13.11, 12.03], [12.97, 10.92]], [[10.56, 9.36], [10.36, 8.93]]),
    paper("conv5_1", 436, [[13.46, 12.62], [13.09, 11.68]], [[10.42, 9.54], [10.51, 9.15]]),
    paper("conv5_2", 436, [[13.77, 12.61], [13.20, 11.64]], [[10.47, 9.43], [10.49, 9.16]]),
    paper("conv5_3", 436, [[36.07, 13.10], [13.35, 12.01]], [[10.49, 9.61], [10.24, 9.07]]),
    paper("fc6", 1792, [[15.08, 12.31], [15.17, 11.71]], [[11.46, 9.37], [11.33, 9.18]]),
    paper("fc7", 4096, [[15.73, 11.98], [14.07, 11.09]], [[11.45, 9.15], [10.75, 8.95]]),
];
/// Units of these layers.
const UNITS: [usize; 15] = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512, 4096, 4096];
/// Its networks by themselves, and the one trained on both tasks.
const PAPER_BEFORE: [f64; 2] = [10.31, 8.50];
const PAPER_TOGETHER: [f64; 2] = [14.88, 13.29];
/// Parameters it shares adaptively, in units of one network.
const PAPER_SHARING: f64 = 0.3961;

pub fn run(context: &Context) -> Result<Outcome> {
    // Nothing sees the tenth of the training images that decides how much is shared.
    let training = TrainingSpec { unseen_tenth: true, ..TrainingSpec::default() };
    let (networks, benches) =
        context.networks_for(ARCHITECTURE, &training, &[(TASKS[0], EPOCHS[0]), (TASKS[1], EPOCHS[1])])?;
    let start = beside(&TASKS.iter().copied().zip(&networks).collect::<Vec<_>>())?;
    let tasks: Vec<TaskData> = TASKS.iter().zip(&benches).map(|(name, b)| b.task(name)).collect();
    let learners: Vec<TaskData> =
        tasks.iter().map(|t| TaskData { samples: Some(holdout_split(&t.train.all()).0), ..t.clone() }).collect();
    // Retraining sees labels, as in the paper.
    let options = ZipOptions::suited(Recipe::Best, &start).with(|o| {
        o.retraining.iterations = ITERATIONS / start.depth().saturating_sub(1).max(1);
        o.fitting.calibration = CALIBRATION;
        o.retraining.target = RetrainingTarget::Labels;
        o.seed = context.common.seed;
        o.resources.measured = MEASURED;
    });
    let results_kept = &context.results_kept(&networks).of(&options);
    let measured = Measured::new(context, results_kept, &start, (&tasks, &learners), &options)?;
    context.tell(&measured.text());
    let curve = curve(&measured.found, start.parameters().0);
    let charts = vec![(String::new(), measured.chart()), ("-curve".into(), curve)];
    Ok(Outcome { charts, json: measured.json() })
}

/// Errors of both tasks on test images, as they are kept.
struct Measured {
    /// Of the separate networks.
    before: Value,
    /// On the samples that are measured on the way.
    few: Value,
    /// Of the network trained on both.
    together: Value,
    /// The search for the adaptive shares.
    found: Value,
    /// With all hidden units shared.
    all: Value,
    /// With those shared that the search chose.
    adaptive: Value,
}

impl Measured {
    /// `learners`: the tasks without the images that decide how much is shared.
    fn new(
        context: &Context,
        results_kept: &ResultCache,
        start: &Joint,
        (tasks, learners): (&[TaskData], &[TaskData]),
        options: &ZipOptions,
    ) -> Result<Self> {
        let measure = |joint: &Joint| errors(&joint.graphs(), tasks, options);
        let before = results_kept.remember("vgg-separate", || Ok(json!(measure(start)?)))?;
        // What is measured after every layer is measured on fewer samples; so is what it is compared with.
        let few = results_kept.remember("vgg-separate-few", || {
            let fewer = intermediate_tasks(start, tasks, options);
            Ok(json!(errors(&start.graphs(), &fewer, options)?))
        })?;
        let together = results_kept
            .remember("vgg-together", || Ok(json!(measure(&from_scratch(context, results_kept, learners)?)?)))?;
        let limit = format!("vgg-{MAY_LOSE}-{MARGIN}");
        let found =
            results_kept.remember(&limit, || adaptive_shares(context, results_kept, &limit, start, tasks, options))?;
        let zips = Zips { context, results_kept, limit: &limit, start, tasks: learners, options };
        // All is shared in the first two points of a search, without retraining and with it.
        let all = zips.about(&found["points"][1])?;
        let taken = taken(&found);
        let adaptive = match taken["sharing"] == 0.0 {
            true => json!({ "zipped": before, "retrained": before, "sharing": 0.0, "layers": [] }),
            false => zips.about(taken)?,
        };
        Ok(Self { before, few, together, found, all, adaptive })
    }

    /// Points that both tasks lost.
    fn lost(&self, errors: &Value) -> [f64; 2] {
        [0, 1].map(|t| number(&errors[t]) - number(&self.before[t]))
    }

    fn mean_lost(&self, errors: &Value) -> f64 {
        let [objects, faces] = self.lost(errors);
        (objects + faces) / 2.0
    }

    /// Whether the adaptive zip is what was asked for, on test images that decided about nothing.
    fn is_limit_kept(&self) -> bool {
        self.lost(&self.adaptive["retrained"]).iter().all(|x| *x < MAY_LOSE)
            && self.adaptive["sharing"].as_f64().is_some_and(|s| s >= SHOULD_SHARE)
    }

    /// Whether sharing all loses less than training one network on both tasks.
    fn is_better_than_together(&self) -> bool {
        self.mean_lost(&self.all["retrained"]) < self.mean_lost(&self.together)
    }

    fn table(&self) -> String {
        let Self { before, together, found, all, adaptive, .. } = self;
        let row = |name: &str, errors: &Value, sharing: &Value| {
            let [objects, faces] = self.lost(errors);
            let own = [0, 1].map(|t| format!("{:.2}", number(&errors[t])));
            let increases = [objects, faces, self.mean_lost(errors)].map(|x| format!("{x:+.2}"));
            let sharing = sharing.as_f64().map_or(String::new(), |s| format!("{:.1} %", 100.0 * s));
            [vec![name.to_owned()], own.to_vec(), increases.to_vec(), vec![sharing]].concat()
        };
        let head = ["error %", "objects", "faces", "increase", "", "mean", "shared"];
        let retrained = format!("adaptive, {} iterations", taken(found)["iterations"]);
        terminal::table(&[
            head.map(str::to_owned).to_vec(),
            row("separate", before, &Value::Null),
            row("all shared", &all["zipped"], &all["sharing"]),
            row(&format!("all shared, {ITERATIONS} iterations"), &all["retrained"], &all["sharing"]),
            row("adaptive", &adaptive["zipped"], &adaptive["sharing"]),
            row(&retrained, &adaptive["retrained"], &adaptive["sharing"]),
            row("one network trained on both", together, &Value::Null),
        ])
    }

    fn text(&self) -> String {
        let [.., last] = &PAPER;
        let [paper_all, paper_adaptive, paper_together] = [last.all[1], last.adaptive[1], PAPER_TOGETHER]
            .map(|errors| [0, 1].map(|t| errors[t] - PAPER_BEFORE[t]))
            .map(|lost| format!("{:+.2} and {:+.2}", lost[0], lost[1]));
        let missed = self.found["missed"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let missed: Vec<&str> = missed.collect();
        let is = |met: bool| if met { "met" } else { "missed" };
        format!(
            "two VGG-16; the paper's tasks are ImageNet and CelebA: only increases compare\n{}\n\
             paper, all shared: {paper_all}; adaptive: {paper_adaptive} with {:.1} % of one network shared; \
             trained on both: {paper_together}\n\
             adaptive, at most {MAY_LOSE} points lost on held-out images: {}; on test images, with at least {:.0} \
             % shared: {}\n\
             all shared loses less than the network trained on both: {}\n\n\
             increases layer by layer on {} and more images of each task, ours without retraining, the paper's \
             without and with it; all shared\n{}\n\nadaptive\n{}",
            self.table(),
            100.0 * PAPER_SHARING,
            if missed.is_empty() { "met".to_owned() } else { format!("missed ({})", missed.join(", ")) },
            100.0 * SHOULD_SHARE,
            is(self.is_limit_kept()),
            is(self.is_better_than_together()),
            MEASURED,
            layers(&self.few, &self.all, |l| (UNITS[l], PAPER[l].all)),
            layers(&self.few, &self.adaptive, |l| (PAPER[l].shared, PAPER[l].adaptive)),
        )
    }

    fn json(&self) -> Value {
        let Self { before, few, together, found, all, adaptive } = self;
        let [increase, adaptive_increase] = [all, adaptive].map(|of| self.mean_lost(&of["retrained"]));
        json!({
            "tasks": TASKS, "epochs": EPOCHS, "iterations": ITERATIONS, "margin": MARGIN, "separate": before,
            "separate_on_the_way": few, "all": all, "adaptive": adaptive,
            "search": found, "met": { "adaptive": self.is_limit_kept(),
            "better_than_together": self.is_better_than_together() },
            "together": together,
            "mean_increase": { "all": increase, "adaptive": adaptive_increase, "together": self.mean_lost(together) },
            "paper": { "separate": PAPER_BEFORE, "together": PAPER_TOGETHER, "sharing": PAPER_SHARING,
            "layers": PAPER.map(|Paper { layer, shared, all, adaptive }|
                json!({ "layer": layer, "shared": shared, "all": { "zipped": all[0], "retrained": all[1] },
                "adaptive": { "zipped": adaptive[0], "retrained": adaptive[1] } })) },
        })
    }

    /// Mean increases layer by layer, beside the paper's.
    fn chart(&self) -> Chart {
        let own = |of: &Value, l: usize| {
            let one = |t: usize| number(&of["layers"][l]["error"][t]) - number(&self.few[t]);
            (one(0) + one(1)) / 2.0
        };
        let merged = |of: &Value| 0..of["layers"].as_array().map_or(0, Vec::len).min(PAPER.len());
        let theirs = |errors: &[f64; 2]| (errors[0] + errors[1] - PAPER_BEFORE[0] - PAPER_BEFORE[1]) / 2.0;
        let Self { all, adaptive, .. } = self;
        Chart {
            title: "Two VGG-16, mean increase of the error after each layer".into(),
            x_label: "layers merged".into(),
            y_label: "increase, points".into(),
            mark: Some((0.0, "the separate networks".into())),
            series: vec![
                series("all shared, not retrained", 1, merged(all).map(|l| own(all, l))),
                series("paper: all shared, retrained", 1, PAPER.iter().map(|p| theirs(&p.all[1]))),
                series("adaptive, not retrained", 1, merged(adaptive).map(|l| own(adaptive, l))),
                series("paper: adaptive, retrained", 1, PAPER.iter().map(|p| theirs(&p.adaptive[1]))),
            ],
            ..Chart::default()
        }
    }
}

/// The point that a search chose.
fn taken(found: &Value) -> &Value {
    let chosen = found["chosen"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    &found["points"][chosen]
}

/// What is kept as a number; not a number where there is none.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Points lost on held-out images against size: what the search tried, retrained.
fn curve(found: &Value, before: usize) -> Chart {
    let points = found["points"].as_array().into_iter().flatten();
    let mut retrained: Vec<&Value> = points.filter(|p| p["iterations"] != 0 || p["sharing"] == 0.0).collect();
    retrained.sort_by_key(|p| p["parameters"].as_u64());
    let of = |t: usize| {
        retrained.iter().filter_map(move |p| {
            let (y, error) = (p["increase"][t].as_f64()?, p["standard_error"][t].as_f64()?);
            let x = 100.0 * p["parameters"].as_f64()? / before as f64;
            Some(Point { x, y, spread: Some((y - error, y + error)) })
        })
    };
    Chart {
        title: "Two VGG-16: points lost on held-out images against size".into(),
        x_label: "size, % of the separate networks".into(),
        y_label: "points lost, with standard errors".into(),
        mark: Some((MAY_LOSE, "allowed".into())),
        series: TASKS
            .iter()
            .enumerate()
            .map(|(t, task)| Series { name: (*task).into(), points: of(t).collect(), dashed: false })
            .collect(),
        ..Chart::default()
    }
}

/// Where a joint model of the search is kept.
fn name_of(limit: &str, parameters: impl Display, iterations: impl Display) -> String {
    format!("{limit}-{parameters}-{iterations}")
}

/// What the search made, looked at again.
struct Zips<'a> {
    context: &'a Context<'a>,
    results_kept: &'a ResultCache<'a>,
    limit: &'a str,
    start: &'a Joint,
    tasks: &'a [TaskData<'a>],
    options: &'a ZipOptions,
}

impl Zips<'_> {
    /// Errors of a retrained point on test images, and what happened layer by layer before it was retrained: a search
    /// measures neither, so that it is zipped once more.
    fn about(&self, point: &Value) -> Result<Value> {
        let name = name_of(self.limit, &point["parameters"], &point["iterations"]);
        let measure = |joint: &Joint| errors(&joint.graphs(), self.tasks, self.options);
        let missing =
            || Error::data(format!("{name} is missing")).hint("remove the folder \"measured\" to search again");
        let retrained = self.results_kept.remember(&name, || {
            let joint = self.results_kept.kept(&name, || Err(missing()))?;
            let sharing = sharing(&joint, self.start);
            Ok(json!({ "retrained": measure(&joint)?, "parameters": joint.parameters().0, "sharing": sharing }))
        })?;
        let shares_of = point["shares"].as_object().into_iter().flatten();
        let share_of = shares_of.filter_map(|(layer, share)| Some((layer.clone(), Share::Fraction(share.as_f64()?))));
        let zipped = self.results_kept.remember(&format!("{name}-layers"), || {
            let checkpoint = Some(self.results_kept.scratch(&format!("{name}-layers")));
            let options = self.options.clone().with(|o| {
                o.retraining.iterations = 0;
                o.sharing.share_of = share_of.collect();
                o.resources.checkpoint = checkpoint;
            });
            let zipped = self.context.zip(self.start.clone(), self.tasks, &options, &name)?;
            let layer = |l: &LayerReport| {
                json!({ "layer": l.name, "shared": l.merged.shared, "error": l.error_zipped,
                "samples": l.samples })
            };
            let layers: Vec<Value> = zipped.layers.iter().map(layer).collect();
            Ok(json!({ "zipped": measure(&zipped.joint)?, "layers": layers }))
        })?;
        let mut about = retrained;
        about["zipped"] = zipped["zipped"].clone();
        about["layers"] = zipped["layers"].clone();
        Ok(about)
    }
}

/// How much of each layer to share: as much as loses at most half a point on held-out training images. Every joint
/// model of the search is kept.
fn adaptive_shares(
    context: &Context,
    results_kept: &ResultCache,
    limit: &str,
    start: &Joint,
    tasks: &[TaskData],
    options: &ZipOptions,
) -> Result<Value> {
    let bar = Stages::new(context.common.quiet);
    let budget = Budget { max_error_increase: Some(MAY_LOSE), margin: MARGIN, ..Budget::default() };
    let options = options.clone().with(|o| o.resources.checkpoint = Some(results_kept.scratch(limit)));
    let listen = |(done, what): (usize, &str)| {
        bar.advance((0.0, 0.0), &format!("searching, zip {}", done + 1), what);
        ControlFlow::Continue(())
    };
    let found = search(start, tasks, &options, &budget, file_bytes, listen, |point, joint| {
        results_kept.kept(&name_of(limit, point.parameters, point.iterations), || Ok(joint.clone())).map(|_| ())
    })?;
    bar.finish();
    let names: Vec<String> = start.members.iter().take(1).flat_map(|m| &m.layers).map(|l| l.name.clone()).collect();
    let shares = |shares: &[f64]| -> Value {
        Value::Object(names.iter().zip(shares).map(|(name, share)| (name.clone(), json!(share))).collect())
    };
    let point = |p: &mtz::budget::BudgetPoint| {
        json!({ "parameters": p.parameters, "sharing": p.sharing, "increase": p.increase,
        "standard_error": p.standard_error, "iterations": p.iterations,
                "shares": shares(&p.shares) })
    };
    let points: Vec<Value> = found.points.iter().map(point).collect();
    Ok(json!({ "chosen": found.chosen, "missed": found.missed, "held_out": found.held_out, "points": points }))
}

/// One network that both tasks are trained on, but for the last layer and the normalisations, with as many iterations
/// as the first original. Each task sees as many images as its own network did.
fn from_scratch(context: &Context, results_kept: &ResultCache, tasks: &[TaskData]) -> Result<Joint> {
    let seed = context.common.seed;
    let network = |task: &str| -> Result<Graph> {
        let dataset = context.dataset(Subject::named(task)?, Part::Train)?;
        build_for(&dataset, ARCHITECTURE, 1.0, &Normalisation::default(), seed)
    };
    let (first, second) = (network(TASKS[0])?, network(TASKS[1])?);
    let usual = Fit::usual(&first).rule;
    results_kept.kept("vgg-together", || {
        let start = beside(&[(TASKS[0], &first), (TASKS[1], &second)])?;
        let mut joint = paired_in_order(&start, &ZipOptions::new(Recipe::Best));
        let (mut parameters, bindings) = mtz::train::bind(&joint)?;
        let samples: Vec<Vec<usize>> = tasks.iter().filter_map(|t| t.samples.clone()).collect();
        let steps = EPOCHS[0] * (samples[0].len() / usual.batch_size);
        let seen: Vec<f32> = samples.iter().zip(EPOCHS).map(|(own, epochs)| (epochs * own.len()) as f32).collect();
        let learners: Vec<Learner> = joint
            .members
            .iter()
            .zip(tasks)
            .zip(&bindings)
            .zip(samples.iter().zip(&seen))
            .map(|(((member, task), bindings), (samples, own))| Learner {
                graph: &member.graph,
                bindings: bindings.clone(),
                feed: task.train,
                samples: samples.clone(),
                goal: Goal::Labels,
                weight: 1.0,
                batch_factor: own / seen[0],
                mirrored: task.mirrored,
            })
            .collect();
        let rule = Rule { seed, ..usual };
        let bar = Training::new(context.common.quiet);
        let checkpoint = TrainingCheckpoint::new(&results_kept.scratch("vgg-together").with_extension("training"));
        learn(&mut parameters, &learners, steps, &rule, Some(&checkpoint), &CpuEngine, |step, losses, _| {
            let loss = losses.iter().sum::<f64>();
            bar.advance((step, steps), format!("training one network for both, loss {loss:.4}"));
            Ok(ControlFlow::Continue(()))
        })?;
        bar.finish();
        // As after retraining.
        recalibrate_batch_norm(&mut parameters, &learners, RECALIBRATION_SAMPLES, &rule, &CpuEngine)?;
        checkpoint.close();
        drop(learners);
        for (member, bindings) in joint.members.iter_mut().zip(&bindings) {
            member.graph = bindings.apply(&member.graph, &parameters)?;
        }
        Ok(joint)
    })
}

/// Increases after every layer: ours without retraining, on the samples that are measured on the way; the paper's (of
/// its own two tasks) without retraining the layer, and with it.
fn layers(before: &Value, zip: &Value, paper: impl Fn(usize) -> (usize, [[f64; 2]; 2])) -> String {
    let head = ["layer", "shared", "objects", "faces", "paper: shared", "objects", "faces", "retrained", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let merged = zip["layers"].as_array().map_or(0, Vec::len);
    for (l, Paper { layer, .. }) in PAPER.iter().enumerate().take(merged) {
        let (units, theirs) = paper(l);
        let own = [0, 1].map(|t| number(&zip["layers"][l]["error"][t]) - number(&before[t]));
        let [zipped, retrained] = theirs.map(|errors| [0, 1].map(|t| errors[t] - PAPER_BEFORE[t]));
        let [own, zipped, retrained] = [own, zipped, retrained].map(|of| of.map(|x| format!("{x:+.2}")).to_vec());
        let shared = zip["layers"][l]["shared"].to_string();
        rows.push([vec![(*layer).to_owned(), shared], own, vec![units.to_string()], zipped, retrained].concat());
    }
    terminal::table(&rows)
}
