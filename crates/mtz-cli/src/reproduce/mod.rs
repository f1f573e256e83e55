//! `mtz reproduce`: experiments of the paper, from training the networks to the table.

mod lenet;
mod many;
mod pruning;
mod resnet;
mod sharing;
mod split;
mod subjects;
mod tasks;
mod vgg;

use crate::args::{Common, Experiment, Reproduce};
use crate::outputs;
use crate::progress::{Rate, Stages, Training};
use crate::terminal;
use crate::train::build_for;
use crate::zip::run_with_bar;
use clap::ValueEnum;
use mtz::chart::{Chart, Point, Series};
use mtz::data::Augmentation;
use mtz::data::{Feed, Normalisation, Part, holdout_split};
use mtz::engine::CpuEngine;
use mtz::error::{Error, Result};
use mtz::fingerprint::Fingerprint;
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::prune::{Method, allocate, prune};
use mtz::sharing::{Joint, permute_hidden};
use mtz::statistics::Calibration;
use mtz::train::{Fit, Rule, TrainingCheckpoint, fit};
use mtz::zip::{Retraining, Sources, TaskData, ZipOptions, Zipped};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use subjects::Subject;

pub fn run(args: &Reproduce, common: &Common) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.output).map_err(|e| Error::io(&args.output, &e))?;
    let shown = args.experiment.to_possible_value();
    let name = shown.as_ref().map_or("", |value| value.get_name());
    if args.sparse && args.experiment != Experiment::Lenet {
        return Err(Error::usage(format!("{name} has no sparse rows")).hint("--sparse goes with lenet"));
    }
    let name = format!("{name}{}", if args.sparse { "-sparse" } else { "" });
    // A part of an experiment has a file of its own.
    let file = args.only.as_ref().map_or_else(|| name.clone(), |only| format!("{name}-{only}"));
    let path = args.output.join(format!("{file}.json"));
    outputs::check(&path, args.force, &[&args.data_dir])?;
    let context = Context { args, common };
    let outcome = match args.experiment {
        Experiment::Lenet => lenet::run(&context)?,
        Experiment::Sharing => sharing::run(&context)?,
        Experiment::Tasks => tasks::run(&context)?,
        Experiment::Many => many::run(&context)?,
        Experiment::Pruning => pruning::run(&context)?,
        Experiment::Vgg => vgg::run(&context)?,
        Experiment::Resnet => resnet::run(&context)?,
        Experiment::Split => split::run(&context)?,
    };
    let mut json = json!({ "version": 1, "experiment": name, "seed": common.seed });
    if let (Value::Object(all), Value::Object(own)) = (&mut json, outcome.json) {
        all.extend(own);
    }
    let text = serde_json::to_string_pretty(&json).unwrap_or_default();
    for (suffix, chart) in &outcome.charts {
        outputs::write_text(&args.output.join(format!("{name}{suffix}.svg")), &chart.to_svg())?;
    }
    // Last: while it is missing, the experiment is unfinished and may be gone on with.
    outputs::write_text(&path, &(text + "\n"))?;
    if common.json {
        terminal::result(&json.to_string());
    } else {
        terminal::note(&format!("written to {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// What an experiment leaves behind; its tables were shown as soon as they were known.
pub struct Outcome {
    pub json: Value,
    /// With what is put behind the experiment's name.
    pub charts: Vec<(String, Chart)>,
}

/// Data and trained networks for experiments.
pub struct Context<'a> {
    pub args: &'a Reproduce,
    pub common: &'a Common,
}

/// How a network is made.
pub struct TrainingSpec {
    /// In units of the usual width.
    pub width: f64,
    /// Of training, if not the usual ones.
    pub epochs: Option<usize>,
    /// Whether training leaves out the tenth of the samples that budgets are measured on: on samples they have learned
    /// by heart, networks lose more than on others.
    pub unseen_tenth: bool,
}

impl Default for TrainingSpec {
    fn default() -> Self {
        Self { width: 1.0, epochs: None, unseen_tenth: false }
    }
}

/// A set of data, as networks of one input shape see it.
pub struct TaskFeeds {
    pub train: Feed,
    pub test: Feed,
    mirrored: bool,
}

impl TaskFeeds {
    /// A task with all of the data.
    pub fn task(&self, name: &str) -> TaskData<'_> {
        TaskData { mirrored: self.mirrored, ..TaskData::whole(name, &self.train, &self.test) }
    }
}

impl Context<'_> {
    /// Shows a part of the result: experiments take long, and what is known should not wait for the rest.
    pub fn tell(&self, text: &str) {
        if !self.common.json {
            terminal::result(text);
            terminal::result("");
        }
    }

    /// Where figures about these networks are kept.
    pub fn results_kept<'n>(&self, networks: impl IntoIterator<Item = &'n Graph>) -> ResultCache<'_> {
        let mut mark = Fingerprint::default();
        networks.into_iter().for_each(|network| mark.network(network));
        let mark: String = mark.finish().chars().take(8).collect();
        ResultCache { output: &self.args.output, behind: format!("{}-{mark}", self.common.seed) }
    }

    /// Whether an architecture takes part (`--only`).
    pub fn wants(&self, architecture: &str) -> bool {
        self.args.only.as_ref().is_none_or(|only| only == architecture)
    }

    /// How many pairs of networks to take.
    pub fn pairs(&self, usual: usize) -> usize {
        self.args.pairs.map_or(usual, |n| n.get())
    }

    /// The data for networks like this one.
    pub fn bench(&self, name: &str, graph: &Graph) -> Result<TaskFeeds> {
        let subject = Subject::named(name)?;
        let feed = |part| Feed::new(self.dataset(subject, part)?, graph, Normalisation::default());
        Ok(TaskFeeds { train: feed(Part::Train)?, test: feed(Part::Test)?, mirrored: subject.flip })
    }

    /// A trained network with its hidden units in random order: from an earlier run, or trained now as `mtz train
    /// --permute` does.
    pub fn network(&self, architecture: &str, data: &str, number: u64) -> Result<Graph> {
        self.network_in(architecture, &TrainingSpec::default(), data, number)
    }

    /// The same, made in another way.
    pub fn network_in(&self, architecture: &str, training: &TrainingSpec, data: &str, number: u64) -> Result<Graph> {
        let TrainingSpec { width, epochs, unseen_tenth } = *training;
        let subject = Subject::named(data)?;
        let seed = self.common.seed.wrapping_add(number).wrapping_add(subject.seed);
        let folder = self.args.output.join("networks");
        let size = if width == 1.0 { String::new() } else { format!("-x{width}") };
        let time = epochs.map_or(String::new(), |n| format!("-{n}-epochs"));
        let part = if unseen_tenth { "-without-a-tenth" } else { "" };
        let path = folder.join(format!("{architecture}{size}-{data}-{seed}{time}{part}.onnx"));
        if path.exists() {
            return mtz::onnx::read(&path);
        }
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, &e))?;
        let dataset = self.dataset(subject, Part::Train)?;
        let start = build_for(&dataset, architecture, width, &Normalisation::default(), seed)?;
        let feed = Feed::new(dataset, &start, Normalisation::default())?;
        let samples = if unseen_tenth { holdout_split(&feed.all()).0 } else { feed.all() };
        let usual = Fit::usual(&start);
        let augmentation = Augmentation { flip: subject.flip, ..usual.rule.augmentation };
        let epochs = epochs.unwrap_or(usual.epochs);
        let how = Fit { epochs, rule: Rule { seed, augmentation, ..usual.rule }, ..usual };
        let checkpoint = TrainingCheckpoint::new(&path.with_extension("training"));
        let bar = Training::new(self.common.quiet);
        let report = fit(&start, &feed, &samples, &how, Some(&checkpoint), |news| {
            bar.advance(news.step, format!("training {architecture} {seed} for {data}, loss {:.4}", news.loss));
            ControlFlow::Continue(())
        })?;
        bar.finish();
        let graph = permute_hidden(&report.graph, seed)?;
        mtz::onnx::write(&graph, &path)?;
        checkpoint.close();
        Ok(graph)
    }

    /// Networks of one architecture for several tasks, trained for so many epochs each, and the data they see.
    pub fn networks_for(
        &self,
        architecture: &str,
        training: &TrainingSpec,
        tasks: &[(&str, usize)],
    ) -> Result<(Vec<Graph>, Vec<TaskFeeds>)> {
        let network = |(task, epochs): &(&str, usize)| {
            self.network_in(architecture, &TrainingSpec { epochs: Some(*epochs), ..*training }, task, 1)
        };
        let networks: Vec<Graph> = tasks.iter().map(network).collect::<Result<_>>()?;
        let benches = tasks.iter().zip(&networks).map(|((task, _), network)| self.bench(task, network));
        let benches = benches.collect::<Result<_>>()?;
        Ok((networks, benches))
    }

    /// The same network without most of its weights, and briefly retrained: from an earlier run, or made now.
    pub fn sparse_network(
        &self,
        architecture: &str,
        data: &str,
        number: u64,
        (sparsity, iterations): (f64, usize),
    ) -> Result<Graph> {
        let seed = self.common.seed.wrapping_add(number).wrapping_add(Subject::named(data)?.seed);
        let path = self.args.output.join("networks").join(format!("{architecture}-{data}-{seed}-sparse.onnx"));
        if path.exists() {
            return mtz::onnx::read(&path);
        }
        let dense = self.network(architecture, data, number)?;
        let bench = self.bench(data, &dense)?;
        let options = ZipOptions::new(Recipe::Best).with(|o| o.seed = seed);
        let order = mtz::random::permutation(seed, bench.train.len());
        let samples: Vec<usize> = order.into_iter().take(options.fitting.calibration).collect();
        let from = Calibration::new(&bench.train, samples, seed);
        let bar = Stages::new(self.common.quiet);
        bar.advance((0.0, 1.0), &format!("{architecture} {seed}"), "pruning");
        let shares = allocate(&dense, &from, sparsity, options.resources.memory, |_, _| ControlFlow::Continue(()))?;
        let listen = |_: usize, _: &mtz::sharing::Layer| ControlFlow::Continue(());
        let pruned = prune(&dense, &from, &shares, Method::BrainSurgeon, options.resources.memory, listen)?;
        let tasks = [bench.task("sparse")];
        let mut joint = Joint::single("sparse".into(), pruned.graph)?;
        bar.finish();
        self.retrain(&mut joint, &tasks, &[dense], &options, iterations, architecture)?;
        let member = joint.members.pop().ok_or_else(|| Error::model("nothing was pruned"))?;
        mtz::onnx::write(&member.graph, &path)?;
        Ok(member.graph)
    }

    /// Zips with a line of progress.
    pub fn zip(&self, start: Joint, tasks: &[TaskData], options: &ZipOptions, what: &str) -> Result<Zipped> {
        run_with_bar(start, tasks, options, Sources::default(), self.common, &format!("{what}: "))
    }

    /// Retrains with a line of progress; a run that was stopped goes on.
    pub fn retrain(
        &self,
        joint: &mut Joint,
        tasks: &[TaskData],
        networks: &[Graph],
        options: &ZipOptions,
        iterations: usize,
        what: &str,
    ) -> Result<()> {
        let bar = Stages::new(self.common.quiet);
        let mut rate = Rate::default();
        let folder = self.args.output.join("measured");
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, &e))?;
        let name = what.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let checkpoint = TrainingCheckpoint::new(&folder.join(format!("{name}.training")));
        let retraining = Retraining { tasks, originals: networks, options, engine: &CpuEngine };
        retraining.run(joint, iterations, Some(&checkpoint), |i, _| {
            let now = format!("retraining {i}/{iterations}{}", rate.at(i));
            bar.advance((i as f64, iterations as f64), what, &now);
            ControlFlow::Continue(())
        })?;
        checkpoint.close();
        bar.finish();
        Ok(())
    }
}

/// What is known about some networks from earlier runs: what takes long can be stopped and goes on where it was. Of
/// other networks, other things are known.
pub struct ResultCache<'a> {
    output: &'a Path,
    /// Behind the names of files: the seed, and a mark of the networks.
    behind: String,
}

impl<'a> ResultCache<'a> {
    /// The part of it about one way to zip: what another plan led to is not known here.
    pub fn of(&self, options: &ZipOptions) -> ResultCache<'a> {
        let mut mark = Fingerprint::default();
        mark.text(&format!(
            "{} {:?}",
            env!("CARGO_PKG_VERSION"),
            options.clone().with(|o| {
                o.resources.checkpoint = None;
                o.resources.memory = 0;
            })
        ));
        let mark: String = mark.finish().chars().take(6).collect();
        ResultCache { output: self.output, behind: format!("{}-{mark}", self.behind) }
    }

    /// A figure from an earlier run, or measured now.
    pub fn remember(&self, key: &str, measure: impl FnOnce() -> Result<Value>) -> Result<Value> {
        let folder = self.output.join("measured");
        let path = folder.join(format!("{key}-{}.json", self.behind));
        if let Some(known) = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            return Ok(known);
        }
        let value = measure()?;
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, &e))?;
        outputs::write_text(&path, &value.to_string())?;
        Ok(value)
    }

    /// A folder for the state of a run.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.output.join("measured").join(format!("{name}-{}-checkpoint", self.behind))
    }

    /// A joint model from an earlier run, or made now.
    pub fn kept(&self, name: &str, make: impl FnOnce() -> Result<Joint>) -> Result<Joint> {
        let path = self.output.join("networks").join(format!("{name}-{}.onnx", self.behind));
        if path.exists() {
            let joint = mtz::joint_file::from_graph(&mtz::onnx::read(&path)?)?;
            return joint.ok_or_else(|| Error::model(format!("{} is no joint model", path.display())));
        }
        let joint = make()?;
        mtz::onnx::write(&mtz::joint_file::to_graph(&joint, false)?, &path)?;
        Ok(joint)
    }
}

/// A curve through values, the first of them at `from`.
pub fn series(name: &str, from: usize, values: impl IntoIterator<Item = f64>) -> Series {
    let points = values.into_iter().enumerate().map(|(i, y)| Point { x: (from + i) as f64, y, spread: None });
    Series { name: name.to_owned(), points: points.collect(), dashed: false }
}

/// Networks beside each other, with names for their tasks.
pub fn beside(networks: &[(&str, &Graph)]) -> Result<Joint> {
    let parts = networks.iter().map(|(name, graph)| Joint::single((*name).to_owned(), (*graph).clone()));
    Joint::from_networks(parts.collect::<Result<_>>()?)
}

/// The mean over tasks; NaN where there was no test data.
pub fn mean(errors: &[Option<f64>]) -> f64 {
    let sum: f64 = errors.iter().map(|e| e.unwrap_or(f64::NAN)).sum();
    sum / errors.len().max(1) as f64
}

/// Mean, lowest and highest of several runs.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Figure {
    pub fn of(values: &[f64]) -> Self {
        Self {
            mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// `1.46 (1.35 to 1.58)`, with a sign for differences.
    pub fn show(&self, sign: bool) -> String {
        let one = |x: f64| if sign { format!("{x:+.2}") } else { format!("{x:.2}") };
        let mean = if sign { format!("{:+.3}", self.mean) } else { one(self.mean) };
        format!("{mean} ({} to {})", one(self.low), one(self.high))
    }

    pub fn json(&self) -> Value {
        json!({ "mean": self.mean, "low": self.low, "high": self.high })
    }

    pub fn point(&self, x: f64) -> Point {
        Point { x, y: self.mean, spread: Some((self.low, self.high)) }
    }
}
