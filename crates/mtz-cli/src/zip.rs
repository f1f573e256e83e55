//! `mtz zip`

use crate::args::{AlignName, Common, MatchName, RecipeName, StreamsName, Zip};
use crate::budget;
use crate::samples::{self, Prepared};
use crate::show;
use crate::tasks::{check_names, value_for};
use crate::told::{Told, quoted, show_result};
use mtz::assemble;
use mtz::data::{Part, without_a_tenth};
use mtz::error::{Error, Result};
use mtz::merge::{Align, Matching, Recipe, Share, Streams};
use mtz::pipeline::{Aim, Doing, Plan, Task, Zipped, zip};
use mtz::plan::Joint;
use mtz::predict::{Prediction, predict};
use mtz::train::Augmentation;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Set by Ctrl-C: nothing is written.
static STOP: AtomicBool = AtomicBool::new(false);

pub fn run(args: &Zip, common: &Common) -> Result<ExitCode> {
    if !args.dry_run {
        show::check_output(&args.output, args.force)?;
        if let Some(report) = &args.report {
            show::check_output(report, args.force)?;
            show::check_different(&args.output, report)?;
        }
    }
    let budget = budget::asked(args)?;
    let (share, share_of) = read_share(&args.share)?;
    if share == Share::Count(1) {
        show::warning("--share 1 is one unit of every layer; 100% or 1.0 is all of them");
    }
    let mut parts = Vec::new();
    for model in &args.models {
        let graph = mtz::onnx::read(&model.value)?.with_open_batch();
        parts.push(match assemble::from_graph(&graph)? {
            Some(joint) => joint,
            None => Joint::single(model.name(), graph)?,
        });
    }
    let start = Joint::beside(parts)?;
    if args.common_input {
        // What would be refused at the end is refused now.
        assemble::check_common_input(&start)?;
    }
    let names: Vec<String> = start.members.iter().map(|m| m.name.clone()).collect();
    samples::check(&args.data, &names)?;
    check_names("weight", &names, &args.weight)?;
    let mut data: Vec<(Prepared, Option<Prepared>)> = Vec::new();
    for member in &start.members {
        let open = |part| samples::open(&args.data, &member.name, &member.graph, part);
        data.push((
            open(Part::Train)?,
            samples::has_test(&args.data, &member.name)?.then(|| open(Part::Test)).transpose()?,
        ));
    }
    let aim = if args.labels { Aim::Labels } else { Aim::Distill };
    let mut tasks = Vec::new();
    for (i, (member, (train, test))) in start.members.iter().zip(&data).enumerate() {
        // Where there is no test part, a fixed tenth is held out and reported.
        let (learn, tested) = match test {
            Some(test) => (None, (&test.feed, test.feed.all())),
            None => {
                let (learn, held_out) = without_a_tenth(&train.feed.all());
                (Some(learn), (&train.feed, held_out))
            }
        };
        tasks.push(Task {
            name: member.name.clone(),
            train: &train.feed,
            samples: learn,
            test: Some(tested),
            weight: weight(args, &names, i)?,
            mirrored: false,
        });
    }
    let recipe = if args.recipe == RecipeName::Best { Recipe::Best } else { Recipe::Paper };
    let usual = Plan::suited(recipe, &start);
    let plan = Plan {
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
        retrain: args.retrain.unwrap_or(usual.retrain),
        aim,
        rate: args.lr.unwrap_or(usual.rate),
        batch_size: args.batch_size.map_or(usual.batch_size, |n| n.get()),
        seed: common.seed,
        memory: args.memory,
        checkpoint: args.checkpoint.clone(),
        ..usual
    };
    if args.dry_run {
        let zips =
            budget.map_or((usize::from(plan.retrain == 0), usize::from(plan.retrain > 0)), |b| b.zips(plan.retrain));
        // The program and the samples are there already, and so are the networks, which are counted.
        let there = show::resident_memory().unwrap_or(0).saturating_sub(4 * start.parameters().0 as u64);
        let mut prediction = predict(&start, &tasks, &plan)?;
        if budget.is_some() {
            // A search shares in part, too, which takes more: columns of one task stand beside those of the other.
            let least = Plan { share: Share::Count(0), share_of: Vec::new(), ..plan.clone() };
            let least = predict(&start, &tasks, &least)?;
            prediction.memory = prediction.memory.max(least.memory);
            prediction.seconds = prediction.seconds.max(least.seconds);
        }
        show_prediction(&prediction, zips, budget.is_some(), there, common);
        return Ok(ExitCode::SUCCESS);
    }
    // The first Ctrl-C waits for the present stage; a second one ends the program at once. Nothing half-written is left either way.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::abort();
        }
    });
    let begin = Instant::now();
    let found = budget::find(budget, &start, &tasks, &plan, common, || STOP.load(Ordering::SeqCst))
        .map_err(|e| stopped(e, args))?;
    let about = found.as_ref().map(|found| budget::to_json(args, found, &start));
    let mut plan = plan;
    if let Some(found) = &found {
        plan = found.plan.clone();
        tasks.iter_mut().zip(&found.samples).for_each(|(task, learn)| task.samples = Some(learn.clone()));
    }
    let zipped = run_with_bar(start, &tasks, &plan, common, "").map_err(|e| stopped(e, args))?;
    let seconds = begin.elapsed().as_secs_f64();
    mtz::onnx::write(&assemble::to_graph(&zipped.joint, args.common_input)?, &args.output)?;
    let parts = data.iter().map(|d| if d.1.is_none() { "held-out tenth" } else { "test" }).collect();
    let first = names.first().map(|name| value_for("data", name, &args.data.data)).transpose()?.flatten();
    let data = first.map_or("PATH".to_owned(), |path| quoted(&path.to_string_lossy()));
    let told = Told { zipped: &zipped, tasks: &tasks, seconds, parts, output: &args.output, data, budget: about };
    if let Some(found) = found.as_ref().filter(|_| !common.json) {
        show::result(&(budget::table(found, &tasks, zipped.parameters_before) + "\n\n"));
    }
    show_result(&told, args.report.as_deref(), common)?;
    let missed = found.map_or_else(Vec::new, |found| found.missed);
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    show::note(&format!(
        "the budget cannot be met: {}; what was written is the best that was found",
        missed.join(", ")
    ));
    Ok(ExitCode::from(1))
}

/// After Ctrl-C: how nothing would have been lost.
fn stopped(error: Error, args: &Zip) -> Error {
    match (STOP.load(Ordering::SeqCst), &args.checkpoint) {
        (true, Some(folder)) => error.hint(format!("the same command goes on from what is in {}", folder.display())),
        (true, None) => error.hint("with --checkpoint DIR a run goes on where it was stopped"),
        _ => error,
    }
}

/// What a dry run says. `zips`: how many there are without retraining and with it, for a budget at most; `there`: bytes that the program has already.
fn show_prediction(prediction: &Prediction, zips: (usize, usize), budget: bool, there: u64, common: &Common) {
    let Prediction { parameters_before, parameters, shared, iterations, layers, .. } = prediction;
    let seconds = zips.0 as f64 * (prediction.seconds - prediction.retraining) + zips.1 as f64 * prediction.seconds;
    let memory = prediction.memory + there;
    if common.json {
        let layers: Vec<Value> = layers
            .iter()
            .map(|l| {
                json!({ "name": l.name, "shared": l.shared, "samples": l.samples, "memory_bytes": l.memory, "seconds": l.seconds })
            })
            .collect();
        let value = json!({
            "version": 1, "dry_run": true, "parameters": { "before": parameters_before, "after": parameters, "shared": shared },
            "layers": layers, "iterations": iterations, "zips": zips.0 + zips.1, "seconds": seconds, "peak_memory_bytes": memory,
        });
        return show::result(&value.to_string());
    }
    let mut rows = vec![["layer", "shared", "samples", "MiB", "seconds"].map(str::to_owned).to_vec()];
    for l in layers {
        let (samples, memory) = (show::grouped(l.samples as u64), show::grouped(l.memory >> 20));
        rows.push(vec![l.name.clone(), l.shared.to_string(), samples, memory, format!("{:.1}", l.seconds)]);
    }
    show::result(&show::table(&rows));
    let (all, about) = match budget {
        true => ("with everything shared: ", format!("a search of at most {} such zips, ", zips.0 + zips.1)),
        false => ("", String::new()),
    };
    show::result(&format!(
        "\n{all}parameters {} -> {} ({:.1} %), {} of them shared; {iterations} iterations of retraining\n\
         {about}about {} of time and {} MiB of memory; nothing was zipped",
        show::grouped(*parameters_before as u64),
        show::grouped(*parameters as u64),
        100.0 * *parameters as f64 / (*parameters_before).max(1) as f64,
        show::grouped(*shared as u64),
        show::duration(seconds),
        show::grouped(memory >> 20),
    ));
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
    let bar = show::stages(common.quiet);
    // Nobody sees a hidden bar: nothing is tried out for it.
    let expected = if bar.is_hidden() { None } else { predict(&start, tasks, plan).ok() };
    let all = expected.as_ref().map_or(0.0, |e| e.seconds);
    bar.reset_elapsed();
    let mut pace = show::Pace::default();
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
        let rate = if let Doing::Retraining(done, _) = doing { pace.at(done) } else { String::new() };
        show::advance(&bar, (done, all), &format!("{what}layer {} of {depth}: {doing}{rate}", layer + 1));
        if STOP.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
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
