//! A zip to look at: one HTML page with nothing to load from elsewhere.
//!
//! What was saved and what it cost comes first, how it came about after it. Layer and task names are arbitrary strings
//! from files: all text goes through [`label`] or [`escape`], and [`limited`] bounds how much of a report is shown.
//! Every chart has its numbers in a table below it and is drawn twice, for a desk and for a phone. There is no script:
//! the page opens anywhere, and hovering shows what `title` elements say.

mod budget;
mod distance;
mod headline;
mod layers;
mod retraining;

use super::by_name::ByName;
use super::run_report::RunReport;
use super::text::{in_threes, in_time};
use super::{date, in_bytes};
use crate::chart::{Chart, WIDTH, escape, without_middle};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// How wide a chart is on a phone.
const PHONE: f64 = 360.0;

/// Renders a report as a page.
pub fn page(report: &RunReport) -> String {
    let run = &limited(report);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>mtz: {}</title>\n<style>{STYLE}</style></head><body>\n",
        label(&headline::names(run)),
    );
    headline::write(&mut page, run);
    warnings(&mut page, run);
    headline::tables(&mut page, run);
    if let Some(budget) = &run.budget {
        budget::section(&mut page, run, budget);
    }
    layers::units(&mut page, run);
    layers::sections(&mut page, run);
    distance::section(&mut page, run);
    retraining::section(&mut page, run);
    this_run(&mut page, run);
    page
}

/// A report that fits a page, whatever it came from.
fn limited(report: &RunReport) -> RunReport {
    const TASKS: usize = 32;
    const LAYERS: usize = 300;
    const LINES: usize = 100;
    let mut run = report.clone();
    run.tasks.truncate(TASKS);
    run.layers.truncate(LAYERS);
    run.private.truncate(LINES);
    run.warnings.truncate(LINES);
    for layer in &mut run.layers {
        layer.owners.truncate(LINES);
        layer.distances.truncate(LINES);
        layer.private_distances.truncate(LINES);
        layer.losses.truncate(LINES);
        layer.owners.iter_mut().for_each(|part| part.tasks.truncate(TASKS));
    }
    if let Some(budget) = &mut run.budget {
        budget.points.truncate(LINES);
        budget.missed.truncate(LINES);
    }
    run
}

/// What deserves a second look.
fn warnings(page: &mut String, run: &RunReport) {
    const SHOWN: usize = 6;
    let private = run.private.iter().map(|part| {
        format!("{} stays private ({} parameters): {}", part.name, grouped(part.parameters as u64), part.why)
    });
    let missed = run.budget.iter().flat_map(|b| &b.missed).map(|missed| format!("The budget is not met: {missed}."));
    let all: Vec<String> = run.warnings.iter().cloned().chain(private).chain(missed).collect();
    let list = |lines: &[String]| -> String {
        lines.iter().map(|line| format!("<li>{}</li>\n", escape(&without_middle(line, 400)))).collect()
    };
    let (first, rest) = all.split_at(all.len().min(SHOWN));
    if !first.is_empty() {
        let _ = write!(page, "<ul class=\"warn\">\n{}</ul>\n", list(first));
    }
    if !rest.is_empty() {
        let (count, rest) = (rest.len(), list(rest));
        let _ = writeln!(page, "<details><summary>{count} more</summary><ul class=\"warn\">\n{rest}</ul></details>");
    }
}

fn this_run(page: &mut String, run: &RunReport) {
    page.push_str("<h2>This run</h2>\n");
    if !run.command.is_empty() {
        let _ = writeln!(page, "<pre>{}</pre>", escape(&without_middle(&run.command, 4000)));
    }
    let mut facts = vec![
        format!("{} iterations of retraining", run.iterations),
        in_time(run.seconds),
        format!("seed {}", run.seed),
        format!("mtz {}", without_middle(&run.mtz, 40)),
    ];
    facts.extend(run.peak_memory_bytes.map(|bytes| format!("{} of memory", in_bytes(bytes))));
    let machine = &run.machine;
    if !machine.system.is_empty() {
        let threads = format!("{} {}", machine.threads, if machine.threads == 1 { "thread" } else { "threads" });
        let words = [&machine.system, &machine.processor, &machine.vectors].map(|text| without_middle(text, 40));
        facts.push(format!("{}, {threads}", words.join(" ")));
    }
    facts.extend(run.date.as_deref().and_then(date::in_words));
    let _ = write!(page, "<p class=\"faint\">{}</p>\n</body></html>\n", escape(&facts.join(" · ")));
}

/// A chart with what there is to say about it, and its numbers below.
fn section(page: &mut String, title: &str, about: &str, chart: &Chart, rows: &[Vec<String>]) {
    let _ = writeln!(page, "<h2>{}</h2>", escape(title));
    if !about.is_empty() {
        let _ = writeln!(page, "<p class=\"faint\">{}</p>", escape(about));
    }
    let (desk, phone) = (chart.to_svg_of_width(WIDTH), chart.to_svg_of_width(PHONE));
    let _ = writeln!(page, "<div class=\"desk\">{desk}</div>\n<div class=\"phone\">{phone}</div>");
    folded_table(page, rows);
}

fn folded_table(page: &mut String, rows: &[Vec<String>]) {
    page.push_str("<details><summary>as a table</summary>\n");
    table(page, rows);
    page.push_str("</details>\n");
}

/// Lines of cells as a table, its first line as a head.
fn table(page: &mut String, rows: &[Vec<String>]) {
    page.push_str("<div class=\"wide\"><table>\n");
    for (i, row) in rows.iter().enumerate() {
        let cell = if i == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|text| format!("<{cell}>{}</{cell}>", label(text))).collect();
        let _ = writeln!(page, "<tr>{cells}</tr>");
    }
    page.push_str("</table></div>\n");
}

fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A name as it may stand in a page: escaped, and not longer than a line.
fn label(name: &str) -> String {
    escape(&short_name(name))
}

fn short_name(name: &str) -> String {
    without_middle(name, 120)
}

/// The figure of a task, if it was measured.
fn figure(values: &ByName<Option<f64>>, name: &str) -> Option<f64> {
    values.get(name).copied().flatten()
}

fn fixed(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |x| if x.abs() < 1e9 { format!("{x:.digits$}") } else { format!("{x:.1e}") })
}

/// 1 234 567
fn grouped(n: u64) -> String {
    in_threes(n, '\u{202f}')
}
