//! Layer by layer: who owns which units, and how errors and agreement went.

use super::super::by_name::ByName;
use super::super::run_report::{LayerRecord, OwnerRecord, RunReport, TaskRecord};
use super::headline::OWN_COLOURS;
use super::{figure, fixed, folded_table, label, section, short_name, texts};
use crate::chart::{Chart, Point, Series};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Who owns which units, as parts of a bar for each layer.
pub(super) fn units(page: &mut String, run: &RunReport) {
    if run.layers.is_empty() {
        return;
    }
    let names: Vec<&str> = run.tasks.names().collect();
    page.push_str("<h2>Who owns which units</h2>\n<div class=\"units\">\n");
    for layer in &run.layers {
        let name = label(&layer.name);
        let _ = writeln!(page, "<div title=\"{name}\">{name}</div><div class=\"bar\">");
        let mut parts: Vec<&OwnerRecord> = layer.owners.iter().collect();
        if names.len() > 2 {
            // Of many sets, what most tasks share comes first.
            parts.sort_by_key(|part| std::cmp::Reverse(part.tasks.len()));
        }
        for part in parts {
            let (units, owners) = (part.units, label(&part.tasks.join(" + ")));
            let class = colour(&names, &part.tasks);
            let _ = write!(
                page,
                "<span class=\"{class}\" style=\"flex:{units} 1 0\" title=\"{owners}: {units} units\">\
                 {units} {owners}</span>"
            );
        }
        page.push_str("</div>\n");
    }
    page.push_str("</div>\n<p class=\"faint keys\">");
    for (i, name) in names.iter().enumerate() {
        let _ = write!(page, "<span><span class=\"key o{}\"></span>{} alone</span> ", i % OWN_COLOURS, label(name));
    }
    page.push_str("<span><span class=\"key shared\"></span>shared by two</span>");
    if names.len() > 2 {
        page.push_str(" <span><span class=\"key many\"></span>by more</span>");
    }
    page.push_str("</p>\n");
    let mut rows = vec![texts(["layer", "units", "owners"])];
    for layer in &run.layers {
        let row = |part: &OwnerRecord| vec![layer.name.clone(), part.units.to_string(), part.tasks.join(" + ")];
        rows.extend(layer.owners.iter().map(row));
    }
    folded_table(page, &rows);
}

/// The class of what these tasks have, in `style.css`.
fn colour(names: &[&str], owners: &[String]) -> String {
    match owners {
        [] => String::new(),
        [one] => format!("o{}", names.iter().position(|name| name == one).unwrap_or(0) % OWN_COLOURS),
        [_, _] => "shared".to_owned(),
        _ => "many".to_owned(),
    }
}

/// What is measured while layers are merged.
struct Measure {
    title: &'static str,
    what: &'static str,
    before: fn(&TaskRecord) -> Option<f64>,
    zipped: fn(&LayerRecord) -> &ByName<Option<f64>>,
    after: fn(&LayerRecord) -> &ByName<Option<f64>>,
}

const ERROR: Measure = Measure {
    title: "Error after each layer",
    what: "error",
    before: |task| task.error_before,
    zipped: |layer| &layer.error_zipped,
    after: |layer| &layer.error_after,
};

const AGREEMENT: Measure = Measure {
    title: "Agreement after each layer",
    what: "agreement",
    before: |_| None,
    zipped: |layer| &layer.agreement_zipped,
    after: |layer| &layer.agreement_after,
};

/// Errors and agreement while layers are merged.
pub(super) fn sections(page: &mut String, run: &RunReport) {
    measure_section(page, run, &ERROR);
    measure_section(page, run, &AGREEMENT);
}

/// When layers were retrained.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retraining {
    Never,
    /// Once, after the last layer: a step of its own.
    AtTheEnd,
    /// After several layers: a curve of its own.
    EachLayer,
}

fn retraining(layers: &[LayerRecord]) -> Retraining {
    match layers.split_last() {
        Some((_, others)) if others.iter().any(|l| l.iterations > 0) => Retraining::EachLayer,
        Some((last, _)) if last.iterations > 0 => Retraining::AtTheEnd,
        _ => Retraining::Never,
    }
}

fn measure_section(page: &mut String, run: &RunReport, measure: &Measure) {
    let retraining = retraining(&run.layers);
    let mut series = Vec::new();
    for (name, task) in run.tasks.iter() {
        let first = std::iter::once((measure.before)(task));
        let merged = first.clone().chain(run.layers.iter().map(|l| figure((measure.zipped)(l), name)));
        let after = |l: &LayerRecord| figure((measure.after)(l), name).filter(|_| l.iterations > 0);
        let name = short_name(name);
        match retraining {
            Retraining::Never => series.push(Series { name, points: points(merged), dashed: false }),
            Retraining::AtTheEnd => {
                let points = points(merged.chain(run.layers.last().map(after)));
                series.push(Series { name, points, dashed: false });
            }
            Retraining::EachLayer => {
                let (dashed, solid) = (format!("{name} merged"), format!("{name} retrained"));
                series.push(Series { name: dashed, points: points(merged), dashed: true });
                let retrained = points(first.chain(run.layers.iter().map(after)));
                series.push(Series { name: solid, points: retrained, dashed: false });
            }
        }
    }
    if series.iter().all(|s| s.points.is_empty()) {
        return;
    }
    let end = (retraining == Retraining::AtTheEnd).then(|| "retrained".to_owned());
    let mut places: Vec<String> =
        std::iter::once("before".to_owned()).chain(run.layers.iter().map(|l| short_name(&l.name))).chain(end).collect();
    keep_measured(&mut places, &mut series);
    let chart = Chart {
        places,
        x_label: "layers in the order of merging".into(),
        y_label: format!("{}, %", measure.what),
        final_values: true,
        series,
        ..Chart::default()
    };
    section(page, measure.title, &about(run), &chart, &rows(run, measure));
}

/// Leaves out places where nothing was measured.
fn keep_measured(places: &mut Vec<String>, series: &mut [Series]) {
    let measured: BTreeSet<u64> = series.iter().flat_map(|s| &s.points).map(|p| p.x.to_bits()).collect();
    let old: Vec<f64> = (0..places.len()).map(|i| i as f64).filter(|x| measured.contains(&x.to_bits())).collect();
    for point in series.iter_mut().flat_map(|s| &mut s.points) {
        point.x = old.iter().position(|x| *x == point.x).map_or(f64::NAN, |i| i as f64);
    }
    *places = old.iter().filter_map(|x| places.get(*x as usize).cloned()).collect();
}

/// The steps that were measured.
fn points(values: impl Iterator<Item = Option<f64>>) -> Vec<Point> {
    let known = values.enumerate().filter_map(|(x, y)| y.map(|y| (x, y)));
    known.map(|(x, y)| Point { x: x as f64, y, spread: None }).collect()
}

/// On how many samples it was measured, where that differs.
fn about(run: &RunReport) -> String {
    let (Some(first), Some(last)) = (run.layers.first(), run.layers.last()) else { return String::new() };
    match (first.error_samples, last.error_samples) {
        (0, all) if all > 0 => "Measured before the first and after the last layer only.".to_owned(),
        (few, all) if few < all => format!(
            "All samples are measured at both ends, {few} of {all} in between: a step at either end may come from the \
             samples, not from the layer."
        ),
        _ => String::new(),
    }
}

fn rows(run: &RunReport, measure: &Measure) -> Vec<Vec<String>> {
    let names: Vec<&str> = run.tasks.names().collect();
    let mut head = texts(["layer", "units", "shared", "iterations", "seconds", "samples"]);
    head.extend(
        names.iter().flat_map(|n| [format!("{} merged %", short_name(n)), format!("{} after %", short_name(n))]),
    );
    let row = |layer: &LayerRecord| -> Vec<String> {
        let units: Vec<String> = layer.units.values().take(names.len()).map(ToString::to_string).collect();
        let counts = [layer.shared, layer.iterations].map(|n| n.to_string());
        let facts = [fixed(Some(layer.seconds), 1), layer.error_samples.to_string()];
        let figures =
            names.iter().flat_map(|n| [figure((measure.zipped)(layer), n), figure((measure.after)(layer), n)]);
        let figures = figures.map(|x| fixed(x, 2));
        [layer.name.clone(), units.join("+")].into_iter().chain(counts).chain(facts).chain(figures).collect()
    };
    std::iter::once(head).chain(run.layers.iter().map(row)).collect()
}
