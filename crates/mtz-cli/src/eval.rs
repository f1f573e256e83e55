//! `mtz eval`

use crate::args::{Common, Eval};
use crate::models;
use crate::progress;
use crate::samples::{self, Prepared};
use crate::settings::as_flags;
use crate::terminal;
use mtz::data::{Feed, Normalisation, Part};
use mtz::error::{Error, Result};
use mtz::evaluate::{Agreement, Evaluation, EvaluationOptions, Mistakes, OutputKind, Reference, evaluate};
use mtz::graph::Graph;
use mtz::joint_file;
use mtz::report::near_chance;
use mtz::sharing::Joint;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Instant;

/// What the answers of the model are, compared with another one's.
type Compared = (Agreement, Option<OutputKind>);

pub fn run(args: &Eval, common: &Common) -> Result<ExitCode> {
    let graph = models::read(&args.model.value)?;
    let (task, graph) = match joint_file::from_graph(&graph)? {
        Some(joint) => one_task(joint, args.task.as_deref())?,
        None => (args.model.name(), graph),
    };
    if let Some(asked) = args.task.as_ref().filter(|t| **t != task) {
        return Err(Error::usage(format!("there is no task {asked:?}")).hint(format!("the model's task is {task:?}")));
    }
    samples::check(&args.data, std::slice::from_ref(&task))?;
    let (graph, other, normalisation) = fed_alike(args, &task, graph)?;
    let graph = mtz::simplify::for_inference(&graph)?;
    let Prepared { feed, part } = samples::open_as(&args.data, &task, &graph, Part::Test, normalisation)?;
    let bar = progress::steps(feed.len(), common.quiet, "samples");
    let options = EvaluationOptions::new(args.batch_size.get(), args.memory);
    let start = Instant::now();
    let heard = |done| bar.set_position(done as u64);
    let (result, compared) = match &other {
        None if feed.labels().is_none() => {
            return Err(Error::data(format!("task {task}: the data has no labels"))
                .hint("--against MODEL measures agreement with another model, which needs none"));
        }
        None => (Some(evaluate(&graph, &feed, options, heard)?), None),
        Some(other) => compare(args, (&graph, other), &feed, options, heard)?,
    };
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let measured = Measured { task: &task, samples: feed.len(), part, seconds, result, compared };
    if common.json {
        terminal::result(&measured.json().to_string());
        return Ok(ExitCode::SUCCESS);
    }
    measured.show();
    let answers = graph.outputs().first().map_or(1, |id| graph[*id].shape.elements(1));
    if let Some(result) = measured.result {
        near_chance(&task, result.error, answers).iter().for_each(|line| terminal::warning(&as_flags(line)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Agreement with the other model; mistakes where there are labels.
fn compare(
    args: &Eval,
    (graph, other): (&Graph, &Graph),
    feed: &Feed,
    options: EvaluationOptions,
    heard: impl FnMut(usize),
) -> Result<(Option<Evaluation>, Option<Compared>)> {
    let reference = Reference::new(other, feed, &feed.all(), args.kind, args.memory / 4, options)?;
    let measured = reference.measure(graph, heard)?;
    let result = measured.mistakes.as_ref().map(Mistakes::evaluation);
    let kind = measured.worst_output().and_then(|output| reference.kind(output));
    Ok((result, measured.agreement().map(|agreement| (agreement, kind))))
}

/// What came out.
struct Measured<'a> {
    task: &'a str,
    samples: usize,
    /// Which samples.
    part: &'a str,
    seconds: f64,
    result: Option<Evaluation>,
    compared: Option<Compared>,
}

impl Measured<'_> {
    /// Images per second.
    fn rate(&self) -> f64 {
        self.samples as f64 / self.seconds.max(1e-9)
    }

    fn json(&self) -> Value {
        let Self { task, samples, part, seconds, result, compared } = self;
        let kind = compared.as_ref().and_then(|c| c.1.as_ref());
        json!({
            "version": 1, "task": task, "error": result.map(|r| r.error), "loss": result.map(|r| r.loss),
            "samples": samples,
            "agreement": compared.as_ref().map(|c| c.0.percent), "agreement_error": compared.as_ref()
            .map(|c| c.0.standard_error),
            "kind": kind.map(|k| k.kind.to_string()), "kind_is_known": kind.map(|k| k.evidence.is_certain()),
            "output": kind.map(|k| &k.name), "outputs": kind.map(|k| k.outputs),
            "seconds": seconds, "images_per_second": self.rate(), "part": part,
        })
    }

    fn show(&self) {
        let Self { task, samples, part, result, compared, .. } = self;
        let mut rows = [vec!["task".to_owned()], vec![(*task).to_owned()]];
        let mut add = |head: &str, cell: String| {
            rows[0].push(head.to_owned());
            rows[1].push(cell);
        };
        if let Some(result) = result {
            add("error %", format!("{:.2}", result.error));
            add("loss", format!("{:.4}", result.loss));
        }
        if let Some((agreement, kind)) = compared {
            add("agreement %", format!("{:.2} ± {:.2}", agreement.percent, agreement.standard_error));
            add("answers", kind.as_ref().map_or("-".into(), |k| k.kind.to_string()));
        }
        add("samples", format!("{samples} {part}"));
        // With two networks to run, the rate of one is not known.
        if compared.is_none() {
            add("images/s", format!("{:.0}", self.rate()));
        }
        terminal::result(&terminal::table(&rows));
        if let Some(OutputKind { name, outputs, kind, evidence }) = compared.as_ref().and_then(|c| c.1.as_ref()) {
            if *outputs > 1 {
                terminal::note(&format!("{name:?} agrees least of {outputs} outputs"));
            }
            if !evidence.is_certain() {
                terminal::note(&format!("{kind} is {evidence}; --kind KIND sets it"));
            }
        }
    }
}

/// The model, the one to compare it with, and how samples are prepared for both. Where one of them has its
/// preprocessing inside, both get samples as they are stored: no flag would be right for both.
fn fed_alike(args: &Eval, task: &str, graph: Graph) -> Result<(Graph, Option<Graph>, Normalisation)> {
    let normalisation = samples::normalisation(&args.data, task)?;
    let Some(path) = &args.against else { return Ok((graph, None, normalisation)) };
    let ([graph, other], inside) = models::fed_alike(graph, models::original(path, task)?)?;
    let (prepared, plain) = match inside {
        None => return Ok((graph, Some(other), normalisation)),
        Some(0) => (&args.model.value, path),
        Some(_) => (path, &args.model.value),
    };
    let Normalisation { scale, mean, std, .. } = &normalisation;
    let given = [("--scale", scale.is_some()), ("--mean", !mean.is_empty()), ("--std", !std.is_empty())];
    if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
        let text = format!("{} prepares its samples itself: {flag} would prepare them twice", prepared.display());
        return Err(
            Error::usage(text).hint(format!("leave {flag} out: {} gets the same preprocessing", plain.display()))
        );
    }
    let raw = Normalisation { raw: true, ..Normalisation::default() };
    Ok((graph, Some(other), raw))
}

/// A task of a joint model: the one asked for.
pub fn one_task(joint: Joint, asked: Option<&str>) -> Result<(String, Graph)> {
    let names: Vec<String> = joint.members.iter().map(|m| m.name.clone()).collect();
    let hint = format!("--task TASK, one of: {}", names.join(", "));
    let Some(asked) = asked else {
        return Err(Error::usage("this is a joint model: which of its tasks?").hint(hint));
    };
    let member = joint.members.into_iter().find(|m| m.name == asked);
    member.map(|m| (m.name, m.graph)).ok_or_else(|| Error::usage(format!("there is no task {asked:?}")).hint(hint))
}
