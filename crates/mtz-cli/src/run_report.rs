//! The result of a zip for people: tables from its report, warnings, and what to do next.

use crate::args::Common;
use crate::outputs;
use crate::settings::as_flags;
use crate::terminal::{self, Tint};
use crate::values::quoted;
use mtz::error::Result;
use mtz::evaluate::Kind;
use mtz::report::{ByName, LayerRecord, RunFacts, RunReport, TaskRecord, page};
use mtz::zip::{TaskData, Zipped};
use std::path::Path;
use std::time::SystemTime;

/// What is said of a finished zip beside its report.
pub struct Ending<'a> {
    /// What to type to see the first task's samples again.
    pub data: String,
    /// Where the page goes, if one is asked for.
    pub page: Option<&'a Path>,
}

/// What this program knows of every run.
pub fn facts(output: &Path, common: &Common) -> RunFacts {
    let arguments = std::env::args_os().skip(1).map(|a| quoted(&a.to_string_lossy()));
    let mut facts = RunFacts::default();
    facts.bytes_after = outputs::model_bytes(output);
    facts.output = output.display().to_string();
    facts.command = std::iter::once("mtz".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ");
    facts.date = Some(SystemTime::now());
    facts.seed = common.seed;
    facts.peak_memory_bytes = terminal::peak_memory();
    facts
}

/// The report of a zip, its warnings with the flags of this program.
pub fn report(zipped: &Zipped, tasks: &[TaskData], facts: RunFacts) -> RunReport {
    let mut report = RunReport::new(zipped, tasks, facts);
    report.warnings.iter_mut().for_each(|line| *line = as_flags(line).into_owned());
    report
}

/// Writes the page, if one is asked for, and prints the tables or the JSON.
pub fn show_result(report: &RunReport, ending: &Ending, common: &Common) -> Result<()> {
    if let Some(path) = ending.page {
        outputs::write_text(path, &page(report))?;
    }
    if common.json {
        terminal::result(&report.to_json()?);
        return Ok(());
    }
    show_layers(report);
    if report.tasks.values().any(|task| task.error_before.is_some()) {
        let rows = error_rows(report);
        let last = rows.first().map_or(0, Vec::len);
        let tint = |row: usize, column: usize| match rows.get(row).and_then(|r| r.get(column)) {
            Some(cell) if row > 0 && column + 1 == last => Tint::of_change(cell),
            _ => Tint::Plain,
        };
        terminal::result(&terminal::tinted_table(&rows, tint));
        terminal::result("");
    }
    terminal::result(&terminal::table(&agreement_rows(report)));
    terminal::result(&about_agreement(report));
    terminal::result("");
    show_sizes(report);
    report.warnings.iter().for_each(|line| terminal::warning(line));
    terminal::note(&format!(
        "written to {}\nnext: mtz eval {} --task {} {}",
        report.output,
        quoted(&report.output),
        quoted(report.tasks.names().next().unwrap_or("TASK")),
        ending.data,
    ));
    if let Some(page) = ending.page {
        terminal::note(&format!("report: {}", page.display()));
    }
    Ok(())
}

fn show_layers(report: &RunReport) {
    terminal::result(&terminal::table(&layer_rows(report)));
    let ends = report.layers.first().zip(report.layers.last()).filter(|_| report.budget.is_none());
    if let Some((first, last)) = ends.filter(|(a, b)| a.error_samples < b.error_samples) {
        let name = &last.name;
        terminal::result(&match first.error_samples {
            0 => format!("in front of {name} nothing was measured: with networks of this size that takes long"),
            few => format!("figures between before and {name} are those of {few} samples of {}", last.error_samples),
        });
    }
    terminal::result("");
}

fn show_sizes(report: &RunReport) {
    let parameters = &report.parameters;
    let count = |n: usize| terminal::grouped(n as u64);
    terminal::result(&format!(
        "parameters {} -> {} ({:.1} %), {} of them shared\nfiles {} -> {}{}\n{} iterations of retraining, {} in all",
        count(parameters.before),
        count(parameters.after),
        100.0 * parameters.after as f64 / parameters.before.max(1) as f64,
        count(parameters.shared),
        terminal::bytes(report.file_bytes.before),
        terminal::bytes(report.file_bytes.after),
        if report.checked { ", read back and compared" } else { "" },
        report.iterations,
        terminal::duration(report.seconds)
    ));
    if let Some((first, rest)) = report.private.split_first() {
        let weights: usize = report.private.iter().map(|part| part.parameters).sum();
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        let (name, why) = (&first.name, &first.why);
        terminal::result(&format!("private: {name}{more}, {} parameters of each network: {why}", count(weights)));
    }
    if 20 * (parameters.after - parameters.nonzero_after) > parameters.after {
        let (before, after) = (count(parameters.nonzero_before), count(parameters.nonzero_after));
        terminal::result(&format!("sparse: {before} -> {after} numbers that are not zero"));
    }
}

fn percent(x: Option<f64>) -> String {
    x.map_or("-".into(), |x| format!("{x:.2}"))
}

/// The figures of a line of [`layer_rows`]: each task's where there is room, else the mean and the worst.
struct Columns {
    /// What they have of a line.
    head: Vec<String>,
    each: bool,
    labelled: bool,
}

impl Columns {
    fn new(report: &RunReport) -> Self {
        /// What names may take of a line, and the least that tells one from another.
        const ROOM: usize = 44;
        const LEAST: usize = 4;
        let names: Vec<&str> = report.tasks.names().collect();
        let room = (ROOM / names.len().max(1)).saturating_sub(2);
        let each = room >= LEAST;
        let head = match each {
            true => terminal::short_names(&names, room.clamp(LEAST, 12)),
            false => ["mean", "worst"].map(str::to_owned).to_vec(),
        };
        Self { head, each, labelled: report.tasks.values().all(|task| task.error_before.is_some()) }
    }

    fn of(&self, figures: &[Option<f64>]) -> Vec<String> {
        if self.each {
            return figures.iter().map(|x| percent(*x)).collect();
        }
        let known: Vec<f64> = figures.iter().copied().flatten().collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let worst = known.iter().copied().reduce(if self.labelled { f64::max } else { f64::min });
        [Some(mean).filter(|_| !known.is_empty()), worst].map(percent).to_vec()
    }
}

/// The layers, with each task's error when they were merged, or without labels its agreement; where they were retrained
/// one by one, also after that.
fn layer_rows(report: &RunReport) -> Vec<Vec<String>> {
    let units = |layer: &LayerRecord| terminal::each(&layer.units.values().copied().collect::<Vec<usize>>());
    // A search measures whole models: there are no figures of single layers.
    if report.budget.is_some() {
        let row = |layer: &LayerRecord| vec![layer.name.clone(), units(layer), layer.shared.to_string()];
        let head = ["layer", "units", "shared"].map(str::to_owned).to_vec();
        return std::iter::once(head).chain(report.layers.iter().map(row)).collect();
    }
    let columns = Columns::new(report);
    let what = if columns.labelled { "error %" } else { "agreement %" };
    let head = [what, "units", "shared"].map(str::to_owned);
    let row = |name: &str, units: String, shared: String, figures: &[Option<f64>]| -> Vec<String> {
        [name.to_owned(), units, shared].into_iter().chain(columns.of(figures)).collect()
    };
    let all = |values: &ByName<Option<f64>>| values.values().copied().collect::<Vec<_>>();
    let mut rows = vec![head.into_iter().chain(columns.head.iter().cloned()).collect()];
    if columns.labelled {
        let before: Vec<Option<f64>> = report.tasks.values().map(|task| task.error_before).collect();
        rows.push(row("before", String::new(), String::new(), &before));
    }
    for layer in &report.layers {
        let (merged, after) = figures(layer, columns.labelled);
        rows.push(row(&layer.name, units(layer), layer.shared.to_string(), &all(merged)));
        if layer.iterations > 0 {
            rows.push(row("  retrained", String::new(), String::new(), &all(after)));
        }
    }
    rows
}

/// What a layer is judged by: errors, or without labels agreement.
fn figures(layer: &LayerRecord, labelled: bool) -> (&ByName<Option<f64>>, &ByName<Option<f64>>) {
    match labelled {
        true => (&layer.error_zipped, &layer.error_after),
        false => (&layer.agreement_zipped, &layer.agreement_after),
    }
}

/// What became of each task's error.
fn error_rows(report: &RunReport) -> Vec<Vec<String>> {
    let mut rows = vec![["error %", "before", "zipped", "at the end", "change"].map(str::to_owned).to_vec()];
    for (name, task) in report.tasks.iter() {
        let change = task.error_before.zip(task.error_after);
        let change = change.map_or("-".to_owned(), |(before, after)| format!("{:+.2}", after - before));
        let errors = [task.error_before, task.error_zipped, task.error_after].map(percent);
        rows.push([name.to_owned()].into_iter().chain(errors).chain([change]).collect());
    }
    rows
}

/// How far each task's answers are its original network's, on which samples, and what the answers are.
fn agreement_rows(report: &RunReport) -> Vec<Vec<String>> {
    let head = ["agreement %", "zipped", "at the end", "answers", "samples"];
    let row = |(name, task): (&str, &TaskRecord)| {
        let part = task.part.map(|part| part.to_string()).unwrap_or_default();
        vec![
            name.to_owned(),
            percent(task.agreement_zipped),
            percent(task.agreement_after),
            task.kind.map_or("-".into(), |kind| kind.to_string()),
            format!("{} {part}", task.samples.unwrap_or(0)),
        ]
    };
    std::iter::once(head.map(str::to_owned).to_vec()).chain(report.tasks.iter().map(row)).collect()
}

/// What agreement means here, in a line for each kind of answer, and which kinds are a guess.
fn about_agreement(report: &RunReport) -> String {
    let meanings = [
        (Kind::Classes, "classes: the first answer is the original network's"),
        (Kind::Attributes, "attributes: yes-or-no answers that are the original network's"),
        (Kind::Values, "values: 100 less the rms difference from the original network, in % of its answers' deviation"),
    ];
    let is_there = |kind: Kind| report.tasks.values().any(|task| task.kind == Some(kind));
    let there = meanings.iter().filter(|(kind, _)| is_there(*kind));
    let mut lines: Vec<String> = there.map(|(_, meaning)| (*meaning).to_owned()).collect();
    for (name, task) in report.tasks.iter() {
        if let (Some(output), Some(outputs)) = (&task.output, task.outputs.filter(|n| *n > 1)) {
            lines.push(format!("{name}: {output:?} agrees least of its {outputs} outputs"));
        }
        if let (Some(kind), Some(why), Some(false)) = (task.kind, &task.kind_why, task.kind_is_known) {
            lines.push(format!("{name}: {kind} is {why}; --kind {}=KIND sets it", quoted(name)));
        }
    }
    lines.join("\n")
}
