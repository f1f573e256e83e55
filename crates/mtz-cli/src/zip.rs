//! `mtz zip`

use crate::args::{AlignName, Common, Data, Dtype, MatchName, RecipeName, StreamsName, Zip};
use crate::budget;
use crate::dry_run;
use crate::models;
use crate::outputs;
use crate::progress::{Rate, Stages};
use crate::run_report::{Ending, facts, report, show_result};
use crate::samples::{self, Prepared};
use crate::stats;
use crate::tasks::{Named, check_names, value_for};
use crate::terminal;
use crate::values::quoted;
use mtz::budget::SearchResult;
use mtz::data::{Feed, Part, holdout_split};
use mtz::error::{Error, Result};
use mtz::graph::Graph;
use mtz::joint_file;
use mtz::merge::{Align, Matching, Recipe, Streams};
use mtz::predict::predict;
use mtz::progress::{Progress, Stage};
use mtz::report::{MeasuredOn, RunReport};
use mtz::sharing::Share;
use mtz::sharing::{Joint, Member};
use mtz::tensor::Element;
use mtz::zip::{RetrainingTarget, Session, Sources, TaskData, ZipOptions, Zipped, writing};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Set by Ctrl-C: nothing is written.
static STOP: AtomicBool = AtomicBool::new(false);

pub fn run(args: &Zip, common: &Common) -> Result<ExitCode> {
    check_outputs(args)?;
    let bytes_before = args.models.iter().map(|m| outputs::model_bytes(&m.value)).sum();
    let budget = budget::asked(args, bytes_before)?;
    let share = read_share(&args.share)?;
    if share.0 == Share::Count(1) {
        terminal::warning("--share 1 is one unit of every layer; 100% or 1.0 is all of them");
    }
    let inputs = Inputs::read(args)?;
    let (start, tasks) = (&inputs.start, inputs.tasks(args)?);
    let memory = args.memory.saturating_sub(inputs.cache_bytes());
    let options = zip_options(args, start, share, common).with(|o| o.resources.memory = memory);
    let statistics = stats::read(&args.stats, args.memory)?;
    let written = check_writing(args, start, memory)?;
    if args.dry_run {
        dry_run::run(start, &tasks, &options, budget, written, common)?;
        return Ok(ExitCode::SUCCESS);
    }
    stop_at_ctrl_c();
    let begin = Instant::now();
    let outcome = match &budget {
        Some(budget) => {
            let bytes = |joint: &Joint| mtz::onnx::file_bytes(&as_written(args, joint, &inputs.data)?.1);
            let is_stopped = || STOP.load(Ordering::SeqCst);
            budget::find(budget, start, &tasks, &options, bytes, common, is_stopped).map(Outcome::Searched)
        }
        None => {
            let sources = Sources { statistics, ..Sources::default() };
            run_with_bar(start.clone(), &tasks, &options, sources, common, "").map(Outcome::Plain)
        }
    };
    let outcome = outcome.map_err(|e| stopped(e, args))?;
    let seconds = begin.elapsed().as_secs_f64();
    write(args, &outcome.zipped().joint, &inputs.data)?;
    let mut facts = facts(&args.output, common);
    facts.bytes_before = bytes_before;
    facts.checked = !args.no_check;
    facts.parts = inputs.data.iter().map(OpenedTask::part).collect();
    facts.seconds = seconds;
    facts.budget = budget.as_ref().zip(outcome.found()).map(|(budget, found)| budget::record(args, budget, found));
    let report = report(outcome.zipped(), &tasks, facts);
    if let Some(found) = outcome.found().filter(|_| !common.json) {
        terminal::result(&budget::table(found, &tasks, bytes_before));
        terminal::result("");
    }
    let ending = Ending { data: flags_to_measure(args, &inputs)?, page: args.report.as_deref() };
    show_result(&report, &ending, common)?;
    Ok(exit_code(&report))
}

/// What the flags name, read and checked.
struct Inputs {
    start: Joint,
    /// Of the tasks.
    names: Vec<String>,
    /// What the tasks are compared with, where that is another network.
    originals: Vec<Option<Graph>>,
    data: Vec<OpenedTask>,
}

impl Inputs {
    fn read(args: &Zip) -> Result<Self> {
        let mut start = read_models(&args.models)?;
        let element = match args.dtype {
            Some(Dtype::F16) => Element::F16,
            Some(Dtype::F32) => Element::F32,
            None => start.element(),
        };
        start.members.iter_mut().for_each(|member| member.graph.element = element);
        if args.common_input {
            // What would be refused at the end is refused now.
            joint_file::check_common_input(&start)?;
        }
        let names: Vec<String> = start.members.iter().map(|m| m.name.clone()).collect();
        samples::check(&args.data, &names)?;
        check_names("weight", &names, &args.weight)?;
        check_names("kind", &names, &args.kind)?;
        let originals = read_originals(&args.original, &start)?;
        let open = |(name, member): (&String, &Member)| OpenedTask::open(&args.data, name, &member.graph);
        let data: Vec<OpenedTask> = names.iter().zip(&start.members).map(open).collect::<Result<_>>()?;
        check_preprocessing(args, &start, &data)?;
        if args.labels && data.iter().all(|d| d.train.feed.labels().is_none()) {
            return Err(Error::usage("--labels: none of the tasks has labels")
                .hint("without --labels retraining imitates the original networks, which needs none"));
        }
        Ok(Self { start, names, originals, data })
    }

    fn tasks(&self, args: &Zip) -> Result<Vec<TaskData<'_>>> {
        let mut tasks = Vec::new();
        for (i, ((name, data), original)) in self.names.iter().zip(&self.data).zip(&self.originals).enumerate() {
            let kind = value_for("kind", name, &args.kind)?.copied();
            let weight = weight(args, &self.names, i)?;
            tasks.push(TaskData { kind, weight, original: original.as_ref(), ..data.task(name) });
        }
        Ok(tasks)
    }

    /// Bytes of samples that stay in memory.
    fn cache_bytes(&self) -> u64 {
        let prepared = self.data.iter().flat_map(|d| std::iter::once(&d.train).chain(&d.test));
        prepared.map(|own| own.feed.cache_bytes()).sum()
    }
}

/// What was zipped, with a budget or without one.
enum Outcome {
    Plain(Zipped),
    Searched(SearchResult),
}

impl Outcome {
    fn zipped(&self) -> &Zipped {
        match self {
            Self::Plain(zipped) => zipped,
            Self::Searched(found) => &found.zipped,
        }
    }

    fn found(&self) -> Option<&SearchResult> {
        match self {
            Self::Plain(_) => None,
            Self::Searched(found) => Some(found),
        }
    }
}

/// Bytes that writing the file takes; refused if that is more than there may be.
fn check_writing(args: &Zip, start: &Joint, memory: u64) -> Result<u64> {
    let written = writing(start, !args.no_check);
    if written <= memory {
        return Ok(written);
    }
    let (needed, most) = (written.div_ceil(1 << 20), memory >> 20);
    let text =
        format!("zipping these networks takes {needed} MiB of memory when the file is written, {most} MiB are allowed");
    let less = if args.no_check { "" } else { ", or use --no-check: reading the file back takes most of it" };
    Err(Error::limit(text).hint(format!("allow more with --memory{less}")))
}

/// The first Ctrl-C waits for the present stage; a second one ends the program at once. Nothing half-written is left
/// either way.
fn stop_at_ctrl_c() {
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::abort();
        }
    });
}

/// Says so if what was written does not meet the budget.
fn exit_code(report: &RunReport) -> ExitCode {
    match report.budget.as_ref().filter(|budget| !budget.met) {
        None => ExitCode::SUCCESS,
        Some(budget) => {
            let missed = budget.missed.join(", ");
            terminal::note(&format!("the budget cannot be met: {missed}; what was written is the best that was found"));
            ExitCode::from(1)
        }
    }
}

/// What to type to measure the first task again: its samples, and where these have no labels the network to compare
/// with.
fn flags_to_measure(args: &Zip, inputs: &Inputs) -> Result<String> {
    let (Some(name), Some(data)) = (inputs.names.first(), inputs.data.first()) else { return Ok(String::new()) };
    let mut flags = args.data.flags_for(name, args.preprocessing)?;
    let model = args.models.first().filter(|_| data.test.as_ref().unwrap_or(&data.train).feed.labels().is_none());
    if let Some(model) = model {
        flags += &format!(" --against {}", quoted(&model.value.to_string_lossy()));
    }
    Ok(flags)
}

/// Refuses outputs that cannot be written, or that would replace what is read.
fn check_outputs(args: &Zip) -> Result<()> {
    if args.dry_run {
        return Ok(());
    }
    let models = args.models.iter().chain(&args.original);
    let data = args.data.data.iter().chain(&args.data.test);
    let inputs: Vec<&Path> = models.chain(data).map(|named| named.value.as_path()).collect();
    outputs::check(&args.output, args.force, &inputs)?;
    if let Some(report) = &args.report {
        outputs::check(report, args.force, &inputs)?;
        outputs::check_different(&args.output, report)?;
    }
    Ok(())
}

/// The networks beside each other.
pub fn read_models(models: &[Named<PathBuf>]) -> Result<Joint> {
    let mut parts = Vec::new();
    for model in models {
        let graph = models::read(&model.value)?;
        parts.push(match (joint_file::from_graph(&graph)?, &model.task) {
            (Some(joint), None) => joint,
            (Some(joint), Some(name)) => {
                let tasks: Vec<&str> = joint.members.iter().map(|m| m.name.as_str()).collect();
                let path = model.value.display();
                let text = format!("{path} is a joint model: its tasks are called {}, not {name:?}", tasks.join(", "));
                return Err(Error::usage(text).hint(format!("give it without a name: {path}")));
            }
            (None, _) => Joint::single(model.name(), graph)?,
        });
    }
    Joint::from_networks(parts)
}

/// What the tasks are compared with, where that is another network than the one that is zipped. It gets the same
/// samples.
fn read_originals(originals: &[Named<PathBuf>], start: &Joint) -> Result<Vec<Option<Graph>>> {
    let names: Vec<String> = start.members.iter().map(|m| m.name.clone()).collect();
    check_names("original", &names, originals)?;
    if let Some(bare) = originals.iter().find(|o| o.task.is_none()) {
        let path = bare.value.display();
        return Err(Error::usage(format!("--original {path}: of which task?")).hint(format!("--original TASK={path}")));
    }
    let read = |member: &Member| -> Result<Option<Graph>> {
        let Some(path) = value_for("original", &member.name, originals)? else { return Ok(None) };
        match models::fed_alike(member.graph.clone(), models::original(path, &member.name)?)? {
            ([_, original], None | Some(0)) => Ok(Some(original)),
            _ => Err(Error::usage(format!(
                "{} prepares its samples itself, task {} does not",
                path.display(),
                member.name
            ))
            .hint(format!("--original {}=MODEL needs the network without its preprocessing", member.name))),
        }
    };
    start.members.iter().map(read).collect()
}

/// The samples of a task.
pub struct OpenedTask {
    pub train: Prepared,
    /// Those that errors and agreement are reported on; where there are none, a fixed tenth is held out.
    test: Option<Prepared>,
}

impl OpenedTask {
    pub fn open(data: &Data, task: &str, graph: &Graph) -> Result<Self> {
        let open = |part| samples::open(data, task, graph, part);
        Ok(Self {
            train: open(Part::Train)?,
            test: samples::has_test(data, task)?.then(|| open(Part::Test)).transpose()?,
        })
    }

    pub fn task(&self, name: &str) -> TaskData<'_> {
        let (learn, tested) = match &self.test {
            Some(test) => (None, (&test.feed, test.feed.all())),
            None => {
                let (learn, held_out) = holdout_split(&self.train.feed.all());
                (Some(learn), (&self.train.feed, held_out))
            }
        };
        TaskData { samples: learn, test: Some(tested), ..TaskData::new(name, &self.train.feed) }
    }

    /// Which samples errors and agreement are measured on.
    fn part(&self) -> MeasuredOn {
        if self.test.is_none() { MeasuredOn::HeldOutTenth } else { MeasuredOn::Test }
    }
}

/// One input cannot be prepared in several ways, or be bytes for one task and numbers from 0 to 1 for another. What
/// cannot become part of the file is refused now, not at the end.
fn check_preprocessing(args: &Zip, start: &Joint, data: &[OpenedTask]) -> Result<()> {
    let mut all = Vec::new();
    for (member, data) in start.members.iter().zip(data) {
        let normalisation = samples::normalisation(&args.data, &member.name)?;
        let bytes = data.train.feed.is_bytes();
        if args.preprocessing {
            joint_file::with_preprocessing(start, &member.name, &normalisation, bytes)?;
        }
        all.push((bytes, Some(normalisation).filter(|_| !args.preprocessing)));
    }
    let differs = |own: &(bool, _)| Some(own) != all.first();
    match all.iter().zip(&start.members).find(|(own, _)| args.common_input && differs(own)) {
        None => Ok(()),
        Some(((bytes, _), member)) => {
            let first = start.members.first().map_or("", |m| m.name.as_str());
            let mixed = Some(*bytes) != all.first().map(|own| own.0);
            let (what, hint) = match mixed {
                true => ("its samples are bytes for one of them", "give both tasks samples of one type"),
                false => ("another --mean, --std or --scale", "--preprocessing makes them part of the file"),
            };
            let text = format!("--common-input: {} and {first}: {what}: no input is right for both", member.name);
            Err(Error::usage(text).hint(format!("{hint}; or leave out --common-input")))
        }
    }
}

/// How to zip, as the flags say.
fn zip_options(
    args: &Zip,
    start: &Joint,
    (share, share_of): (Share, Vec<(String, Share)>),
    common: &Common,
) -> ZipOptions {
    let recipe = if args.recipe == RecipeName::Best { Recipe::Best } else { Recipe::Paper };
    let mut options = ZipOptions::suited(recipe, start);
    options.seed = common.seed;
    let sharing = &mut options.sharing;
    (sharing.share, sharing.share_of) = (share, share_of);
    match args.matching {
        Some(MatchName::Greedy) => sharing.matching = Matching::Greedy,
        Some(MatchName::Optimal) => sharing.matching = Matching::Optimal,
        Some(MatchName::Random) => sharing.matching = Matching::Random,
        None => {}
    }
    sharing.align = args.align.map(|align| match align {
        AlignName::Shared => Align::Shared,
        AlignName::All => Align::All,
    });
    match args.streams {
        Some(StreamsName::Last) => sharing.streams = Streams::Last,
        Some(StreamsName::First) => sharing.streams = Streams::First,
        Some(StreamsName::One) => sharing.streams = Streams::One,
        None => {}
    }
    let (fitting, retraining) = (&mut options.fitting, &mut options.retraining);
    if let Some(shift) = args.shift {
        (fitting.shift, retraining.augmentation.shift) = (shift, shift.div_ceil(2));
    }
    retraining.augmentation.flip = args.flip;
    fitting.calibration = args.calibration.map_or(fitting.calibration, |n| n.get());
    retraining.iterations = if args.no_retrain { 0 } else { args.retrain.unwrap_or(retraining.iterations) };
    retraining.target = if args.labels { RetrainingTarget::Labels } else { RetrainingTarget::Distill };
    retraining.rate = args.lr.unwrap_or(retraining.rate);
    retraining.batch_size = args.batch_size.map_or(retraining.batch_size, |n| n.get());
    options.resources.checkpoint.clone_from(&args.checkpoint);
    options
}

/// The joint model as it is written, with preprocessing if that becomes part of it, and as a graph.
fn as_written<'j>(args: &Zip, joint: &'j Joint, data: &[OpenedTask]) -> Result<(Cow<'j, Joint>, Graph)> {
    let mut written = Cow::Borrowed(joint);
    if args.preprocessing {
        let mut with = joint.clone();
        for (member, OpenedTask { train, .. }) in joint.members.iter().zip(data) {
            let normalisation = samples::normalisation(&args.data, &member.name)?;
            with = joint_file::with_preprocessing(&with, &member.name, &normalisation, train.feed.is_bytes())?;
        }
        with.round()?;
        written = Cow::Owned(with);
    }
    let graph = joint_file::to_graph(&written, args.common_input)?;
    Ok((written, graph))
}

/// Writes the joint model. Before it gets its name it is read back and compared with what is in memory, on some samples
/// of every task.
fn write(args: &Zip, joint: &Joint, data: &[OpenedTask]) -> Result<()> {
    /// Samples that are compared.
    const COMPARED: usize = 8;
    let some = |feed: &Feed| -> Vec<usize> { (0..feed.len().min(COMPARED)).collect() };
    let mut samples = data.iter().map(|d| d.train.feed.batch(&some(&d.train.feed))).collect::<Result<Vec<_>>>()?;
    let (written, graph) = as_written(args, joint, data)?;
    if args.preprocessing {
        let members = joint.members.iter().zip(&written.members);
        for ((before, with), (samples, OpenedTask { train, .. })) in members.zip(samples.iter_mut().zip(data)) {
            let prepared = std::mem::replace(samples, train.feed.raw_batch(&some(&train.feed))?);
            joint_file::check_preprocessing(&before.name, (&before.graph, &with.graph), (&prepared, samples))?;
        }
    }
    if args.no_check {
        return mtz::onnx::write(&graph, &args.output);
    }
    mtz::onnx::write_checked(&graph, &args.output, |file| {
        joint_file::check(file, &written, &samples, args.common_input)
    })
}

/// After Ctrl-C: how nothing would have been lost.
fn stopped(error: Error, args: &Zip) -> Error {
    match (STOP.load(Ordering::SeqCst), &args.checkpoint) {
        (true, Some(folder)) => error.hint(format!("the same command goes on from what is in {}", folder.display())),
        (true, None) => error.hint("with --checkpoint DIR a run goes on where it was stopped"),
        _ => error,
    }
}

/// How much a task counts.
fn weight(args: &Zip, names: &[String], i: usize) -> Result<f64> {
    let weight = match args.alpha {
        Some(_) if names.len() != 2 => {
            return Err(Error::usage("--alpha is for two tasks").hint("use --weight TASK=X"));
        }
        Some(alpha) if alpha > 0.0 && alpha < 1.0 => return Ok(if i == 0 { alpha } else { 1.0 - alpha }),
        Some(alpha) => return Err(Error::usage(format!("--alpha {alpha} is not between 0 and 1"))),
        None => value_for("weight", &names[i], &args.weight)?.copied().unwrap_or(1.0),
    };
    if weight.is_finite() && weight > 0.0 {
        Ok(weight)
    } else {
        Err(Error::usage(format!("--weight {}={weight} is not above 0", names[i])))
    }
}

/// `all`, `0.5`, `64`, `below=1e-3`, or `conv1=0.5,fc6=1792` (the others share all).
fn read_share(text: &str) -> Result<(Share, Vec<(String, Share)>)> {
    let wrong = |part: &str| {
        Error::usage(format!("--share {part:?} is not understood"))
            .hint("all, a part like 0.5 or 50%, a count like 64, below=1e-3, or conv1=50%,fc6=1792")
    };
    let one = |text: &str| -> Result<Share> {
        if text == "all" {
            return Ok(Share::All);
        }
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.trim().parse::<f64>() {
                Ok(p) if (0.0..=100.0).contains(&p) => Ok(Share::Fraction(p / 100.0)),
                _ => Err(wrong(text)),
            };
        }
        if let Ok(count) = text.parse::<usize>()
            && !text.contains('.')
        {
            return Ok(Share::Count(count));
        }
        match text.parse::<f64>() {
            Ok(f) if (0.0..=1.0).contains(&f) => Ok(Share::Fraction(f)),
            _ => Err(wrong(text)),
        }
    };
    let below = |text: &str| match text.parse::<f64>() {
        Ok(limit) if limit >= 0.0 => Ok(Share::Below(limit)),
        _ => Err(wrong(text)),
    };
    if let Some(limit) = text.strip_prefix("below=") {
        return Ok((below(limit)?, Vec::new()));
    }
    if !text.contains('=') {
        return Ok((one(text)?, Vec::new()));
    }
    let layers = text.split(',').map(|part| {
        let (layer, share) = part.rsplit_once('=').ok_or_else(|| wrong(part))?;
        match layer.strip_suffix("=below") {
            Some(layer) => Ok((layer.to_owned(), below(share)?)),
            None => Ok((layer.to_owned(), one(share)?)),
        }
    });
    Ok((Share::All, layers.collect::<Result<_>>()?))
}

/// Zips with a progress bar. It goes by the time things are expected to take, so that what is left of it means
/// something. `what` stands in front of what is being done.
pub fn run_with_bar(
    start: Joint,
    tasks: &[TaskData],
    options: &ZipOptions,
    sources: Sources,
    common: &Common,
    what: &str,
) -> Result<Zipped> {
    let bar = Stages::new(common.quiet);
    // Nobody sees a hidden bar: nothing is tried out for it.
    let expected = if bar.is_shown() { predict(&start, tasks, options).ok() } else { None };
    let all = expected.as_ref().map_or(0.0, |e| e.seconds);
    bar.restart();
    let mut rate = Rate::default();
    let session = Session::with_sources(start, tasks, options, sources)?;
    let zipped = session.run(&mut |Progress { layer, layers: depth, stage, .. }| {
        let mut position = 0.0;
        if let Some(expected) = &expected {
            let own = expected.layers.get(layer).map_or(0.0, |l| l.seconds);
            // The paper retrains after every layer, the best recipe at the end.
            let paper = options.recipe == Recipe::Paper;
            let part = if paper { expected.retraining / depth.max(1) as f64 } else { expected.retraining };
            let retrained = if paper { part * layer as f64 } else { 0.0 };
            let now = match stage {
                Stage::Merging => 0.5 * own,
                Stage::Retraining { done, of } => own + part * done as f64 / of.max(1) as f64,
                _ => 0.0,
            };
            position = expected.measuring
                + expected.layers.iter().take(layer).map(|l| l.seconds).sum::<f64>()
                + retrained
                + now;
        }
        let part = format!("{what}layer {} of {depth}", layer + 1);
        match stage {
            Stage::Retraining { done, of } if options.recipe == Recipe::Best => {
                bar.advance((position, all), &format!("{what}retraining"), &format!("{done}/{of}{}", rate.at(done)))
            }
            Stage::Retraining { done, .. } => bar.advance((position, all), &part, &format!("{stage}{}", rate.at(done))),
            _ => bar.advance((position, all), &part, &stage.to_string()),
        }
        if STOP.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish();
    zipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_is_read_in_all_its_forms() {
        assert_eq!(read_share("all").unwrap(), (Share::All, vec![]));
        assert_eq!(read_share("0.5").unwrap(), (Share::Fraction(0.5), vec![]));
        assert_eq!(read_share("50%").unwrap(), (Share::Fraction(0.5), vec![]));
        assert_eq!(read_share("64").unwrap(), (Share::Count(64), vec![]));
        assert_eq!(read_share("below=1e-3").unwrap(), (Share::Below(1e-3), vec![]));
        let layers = vec![("conv1".to_owned(), Share::Fraction(0.5)), ("fc6".to_owned(), Share::Count(1792))];
        assert_eq!(read_share("conv1=0.5,fc6=1792").unwrap(), (Share::All, layers));
        for bad in ["", "half", "1.5", "-3", "below=x", "a=,b", "nan", "101%", "%"] {
            assert!(read_share(bad).is_err(), "{bad:?}");
        }
    }
}
