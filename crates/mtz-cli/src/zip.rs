//! `mtz zip`

use crate::args::{AlignName, Common, Dtype, MatchName, RecipeName, StreamsName, Zip};
use crate::budget;
use crate::dry_run;
use crate::models;
use crate::outputs;
use crate::progress::{Rate, Stages};
use crate::samples::{self, Prepared};
use crate::show;
use crate::tasks::{Named, check_names, value_for};
use crate::told::{Told, show_result};
use crate::values::{Size, quoted};
use mtz::assemble;
use mtz::budget::Found;
use mtz::data::{Feed, Part, without_a_tenth};
use mtz::error::{Error, Result};
use mtz::graph::Graph;
use mtz::merge::{Align, Matching, Recipe, Share, Streams};
use mtz::pipeline::{Aim, Doing, Plan, Task, Zipped, writing, zip};
use mtz::plan::{Joint, Member};
use mtz::predict::predict;
use mtz::tensor::Element;
use mtz::train::Augmentation;
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
    let (share, share_of) = read_share(&args.share)?;
    if share == Share::Count(1) {
        show::warning("--share 1 is one unit of every layer; 100% or 1.0 is all of them");
    }
    let mut start = read_models(&args.models)?;
    let element = match args.dtype {
        Some(Dtype::F16) => Element::F16,
        Some(Dtype::F32) => Element::F32,
        None => start.element(),
    };
    start.members.iter_mut().for_each(|member| member.graph.element = element);
    if args.common_input {
        // What would be refused at the end is refused now.
        assemble::check_common_input(&start)?;
    }
    let names: Vec<String> = start.members.iter().map(|m| m.name.clone()).collect();
    samples::check(&args.data, &names)?;
    check_names("weight", &names, &args.weight)?;
    check_names("kind", &names, &args.kind)?;
    let originals = read_originals(&args.original, &start)?;
    let data = names.iter().zip(&start.members).map(|(name, member)| TaskData::open(args, name, &member.graph));
    let data: Vec<TaskData> = data.collect::<Result<_>>()?;
    check_preprocessing(args, &start, &data)?;
    if args.labels && data.iter().all(|d| d.train.feed.labels().is_none()) {
        return Err(Error::usage("--labels: none of the tasks has labels")
            .hint("without --labels retraining imitates the original networks, which needs none"));
    }
    let mut tasks = Vec::new();
    for (i, (name, data)) in names.iter().zip(&data).enumerate() {
        let kind = value_for("kind", name, &args.kind)?.copied();
        let weight = weight(args, &names, i)?;
        tasks.push(Task { kind, weight, original: originals[i].as_ref(), ..data.task(name) });
    }
    let prepared = data.iter().flat_map(|d| std::iter::once(&d.train).chain(&d.test));
    let images: u64 = prepared.map(|own| own.feed.cache_bytes()).sum();
    let memory = args.memory.saturating_sub(images);
    let plan = Plan { memory, ..plan_of(args, &start, (share, share_of), common) };
    let written = writing(&start, !args.no_check);
    if written > plan.memory {
        let (needed, most) = (written.div_ceil(1 << 20), plan.memory >> 20);
        let text = format!(
            "zipping these networks takes {needed} MiB of memory when the file is written, {most} MiB are allowed"
        );
        let less = if args.no_check { "" } else { ", or use --no-check: reading the file back takes most of it" };
        return Err(Error::limit(text).hint(format!("allow more with --memory{less}")));
    }
    if args.dry_run {
        dry_run::run(&start, &tasks, &plan, budget, written, common)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The first Ctrl-C waits for the present stage; a second one ends the program at once. Nothing half-written is left either way.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::abort();
        }
    });
    let begin = Instant::now();
    let stop = |e| stopped(e, args);
    let bytes = |joint: &Joint| mtz::onnx::file_bytes(&as_written(args, joint, &data)?.1);
    let stopped = || STOP.load(Ordering::SeqCst);
    let found = budget.map(|budget| budget::find(budget, &start, &tasks, &plan, bytes, common, stopped));
    let found = found.transpose().map_err(stop)?;
    let plain = match &found {
        Some(_) => None,
        None => Some(run_with_bar(start.clone(), &tasks, &plan, common, "").map_err(stop)?),
    };
    let Some(zipped) = found.as_ref().map(|found| &found.zipped).or(plain.as_ref()) else {
        return Err(Error::usage("there is nothing to write"));
    };
    let seconds = begin.elapsed().as_secs_f64();
    write(args, &zipped.joint, &data)?;
    let missed = missed(args, found.as_ref(), bytes_before);
    let told = Told {
        zipped,
        tasks: &tasks,
        seconds,
        parts: data.iter().map(TaskData::part).collect(),
        output: &args.output,
        bytes_before,
        checked: !args.no_check,
        data: flags_to_measure(args, &names, &data)?,
        budget: found.as_ref().map(|found| budget::to_json(args, found, &missed, &start)),
    };
    if let Some(found) = found.as_ref().filter(|_| !common.json) {
        show::result(&budget::table(found, &tasks, bytes_before));
        show::result("");
    }
    show_result(&told, args.report.as_deref(), common)?;
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    show::note(&format!(
        "the budget cannot be met: {}; what was written is the best that was found",
        missed.join(", ")
    ));
    Ok(ExitCode::from(1))
}

/// What of the budget is missed, by the search or by the file as it was written.
fn missed(args: &Zip, found: Option<&Found>, bytes_before: u64) -> Vec<String> {
    let mut missed = found.map_or_else(Vec::new, |found| found.missed.clone());
    let bytes = outputs::model_bytes(&args.output);
    if let Some(most) = args.target_size.map(|size: Size| size.of(bytes_before))
        && bytes > most
        && missed.is_empty()
    {
        missed.push(format!("the file takes {bytes} bytes, {most} are allowed"));
    }
    missed
}

/// What to type to measure the first task again: its samples, and where these have no labels the network to compare with.
fn flags_to_measure(args: &Zip, names: &[String], data: &[TaskData]) -> Result<String> {
    let (Some(name), Some(data)) = (names.first(), data.first()) else { return Ok(String::new()) };
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
fn read_models(models: &[Named<PathBuf>]) -> Result<Joint> {
    let mut parts = Vec::new();
    for model in models {
        let graph = models::read(&model.value)?;
        parts.push(match (assemble::from_graph(&graph)?, &model.task) {
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
    Joint::beside(parts)
}

/// What the tasks are compared with, where that is another network than the one that is zipped. It gets the same samples.
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
struct TaskData {
    train: Prepared,
    /// Those that errors and agreement are reported on; where there are none, a fixed tenth is held out.
    test: Option<Prepared>,
}

impl TaskData {
    fn open(args: &Zip, task: &str, graph: &Graph) -> Result<Self> {
        let open = |part| samples::open(&args.data, task, graph, part);
        Ok(Self {
            train: open(Part::Train)?,
            test: samples::has_test(&args.data, task)?.then(|| open(Part::Test)).transpose()?,
        })
    }

    fn task(&self, name: &str) -> Task<'_> {
        let (learn, tested) = match &self.test {
            Some(test) => (None, (&test.feed, test.feed.all())),
            None => {
                let (learn, held_out) = without_a_tenth(&self.train.feed.all());
                (Some(learn), (&self.train.feed, held_out))
            }
        };
        Task { samples: learn, test: Some(tested), ..Task::new(name, &self.train.feed) }
    }

    /// Which samples errors and agreement are measured on.
    fn part(&self) -> &'static str {
        if self.test.is_none() { "held-out tenth" } else { "test" }
    }
}

/// One input cannot be prepared in several ways, or be bytes for one task and numbers from 0 to 1 for another. What cannot become part of the file is refused now,
/// not at the end.
fn check_preprocessing(args: &Zip, start: &Joint, data: &[TaskData]) -> Result<()> {
    let mut all = Vec::new();
    for (member, data) in start.members.iter().zip(data) {
        let normalisation = samples::normalisation(&args.data, &member.name)?;
        let bytes = data.train.feed.is_bytes();
        if args.preprocessing {
            assemble::with_preprocessing(start, &member.name, &normalisation, bytes)?;
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
fn plan_of(args: &Zip, start: &Joint, (share, share_of): (Share, Vec<(String, Share)>), common: &Common) -> Plan {
    let recipe = if args.recipe == RecipeName::Best { Recipe::Best } else { Recipe::Paper };
    let usual = Plan::suited(recipe, start);
    Plan {
        share,
        share_of,
        matching: match args.matching {
            Some(MatchName::Greedy) => Matching::Greedy,
            Some(MatchName::Optimal) => Matching::Optimal,
            Some(MatchName::Random) => Matching::Random,
            None => usual.matching,
        },
        align: args.align.map(|align| match align {
            AlignName::Shared => Align::Shared,
            AlignName::All => Align::All,
        }),
        streams: args.streams.map_or(usual.streams, |streams| match streams {
            StreamsName::Last => Streams::Last,
            StreamsName::First => Streams::First,
            StreamsName::One => Streams::One,
        }),
        calibration: args.calibration.map_or(usual.calibration, |n| n.get()),
        shift: args.shift.unwrap_or(usual.shift),
        augmentation: Augmentation {
            shift: args.shift.map_or(usual.augmentation.shift, |shift| shift.div_ceil(2)),
            flip: args.flip,
        },
        retrain: if args.no_retrain { 0 } else { args.retrain.unwrap_or(usual.retrain) },
        aim: if args.labels { Aim::Labels } else { Aim::Distill },
        rate: args.lr.unwrap_or(usual.rate),
        batch_size: args.batch_size.map_or(usual.batch_size, |n| n.get()),
        seed: common.seed,
        checkpoint: args.checkpoint.clone(),
        ..usual
    }
}

/// The joint model as it is written, with preprocessing if that becomes part of it, and as a graph.
fn as_written<'j>(args: &Zip, joint: &'j Joint, data: &[TaskData]) -> Result<(Cow<'j, Joint>, Graph)> {
    let mut written = Cow::Borrowed(joint);
    if args.preprocessing {
        let mut with = joint.clone();
        for (member, TaskData { train, .. }) in joint.members.iter().zip(data) {
            let normalisation = samples::normalisation(&args.data, &member.name)?;
            with = assemble::with_preprocessing(&with, &member.name, &normalisation, train.feed.is_bytes())?;
        }
        with.round()?;
        written = Cow::Owned(with);
    }
    let graph = assemble::to_graph(&written, args.common_input)?;
    Ok((written, graph))
}

/// Writes the joint model. Before it gets its name it is read back and compared with what is in memory, on some samples of every task.
fn write(args: &Zip, joint: &Joint, data: &[TaskData]) -> Result<()> {
    /// Samples that are compared.
    const COMPARED: usize = 8;
    let some = |feed: &Feed| -> Vec<usize> { (0..feed.len().min(COMPARED)).collect() };
    let mut samples = data.iter().map(|d| d.train.feed.batch(&some(&d.train.feed))).collect::<Result<Vec<_>>>()?;
    let (written, graph) = as_written(args, joint, data)?;
    if args.preprocessing {
        let members = joint.members.iter().zip(&written.members);
        for ((before, with), (samples, TaskData { train, .. })) in members.zip(samples.iter_mut().zip(data)) {
            let prepared = std::mem::replace(samples, train.feed.raw_batch(&some(&train.feed))?);
            assemble::check_preprocessing(&before.name, (&before.graph, &with.graph), (&prepared, samples))?;
        }
    }
    if args.no_check {
        return mtz::onnx::write(&graph, &args.output);
    }
    mtz::onnx::write_checked(&graph, &args.output, |file| assemble::check(file, &written, &samples, args.common_input))
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

/// Zips with a progress bar. It goes by the time things are expected to take, so that what is left of it means something. `what` stands in front of what is
/// being done.
pub fn run_with_bar(start: Joint, tasks: &[Task], plan: &Plan, common: &Common, what: &str) -> Result<Zipped> {
    let bar = Stages::new(common.quiet);
    // Nobody sees a hidden bar: nothing is tried out for it.
    let expected = if bar.is_shown() { predict(&start, tasks, plan).ok() } else { None };
    let all = expected.as_ref().map_or(0.0, |e| e.seconds);
    bar.restart();
    let mut rate = Rate::default();
    let zipped = zip(start, tasks, plan, |(layer, depth, doing)| {
        let mut done = 0.0;
        if let Some(expected) = &expected {
            let own = expected.layers.get(layer).map_or(0.0, |l| l.seconds);
            // The paper retrains after every layer, the best recipe at the end.
            let paper = plan.recipe == Recipe::Paper;
            let part = if paper { expected.retraining / depth.max(1) as f64 } else { expected.retraining };
            let retrained = if paper { part * layer as f64 } else { 0.0 };
            let now = match doing {
                Doing::Statistics => 0.0,
                Doing::Merging => 0.5 * own,
                Doing::Retraining(done, all) => own + part * done as f64 / all.max(1) as f64,
            };
            done = expected.measuring
                + expected.layers.iter().take(layer).map(|l| l.seconds).sum::<f64>()
                + retrained
                + now;
        }
        let part = format!("{what}layer {} of {depth}", layer + 1);
        match doing {
            Doing::Retraining(i, iterations) if plan.recipe == Recipe::Best => {
                bar.advance((done, all), &format!("{what}retraining"), &format!("{i}/{iterations}{}", rate.at(i)))
            }
            Doing::Retraining(i, _) => bar.advance((done, all), &part, &format!("{doing}{}", rate.at(i))),
            _ => bar.advance((done, all), &part, &doing.to_string()),
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
