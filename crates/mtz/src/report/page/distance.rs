//! What sharing costs: d of the pairs of each layer.

use super::super::run_report::{LayerRecord, RunReport};
use super::{grouped, label, short_name, texts};
use crate::chart::{Chart, Point, Series};
use std::fmt::Write;

const ABOUT: &str = "\
d is the error that two units make when they are given the same incoming weights: the squared difference from what \
each of them computed before, with the best weights there are. The chart shows d of the shared pairs, divided by the \
mean over all possible pairs of the layer: near 0 the two units were all but the same; at 1 the pair is no better than \
one taken at random.";

const KEY: &str = "\
Blue: pairs that are shared. Orange, to the right of the cut: units that stay private, each with the unit it would \
have been cheapest to share with. Dashed: the mean over all possible pairs.";

/// The layers with shared pairs, with lowest, median and highest d.
fn paired(layers: &[LayerRecord]) -> impl Iterator<Item = (&LayerRecord, [f64; 3])> {
    layers.iter().filter_map(|layer| {
        let d = &layer.distances;
        Some((layer, [*d.first()?, *d.get(d.len() / 2)?, *d.last()?]))
    })
}

fn chart(layers: &[LayerRecord]) -> Chart {
    let point = |(i, (layer, [low, middle, high])): (usize, (&LayerRecord, [f64; 3]))| {
        let mean = layer.typical_distance.unwrap_or(0.0).max(f64::MIN_POSITIVE);
        Point { x: i as f64, y: middle / mean, spread: Some((low / mean, high / mean)) }
    };
    Chart {
        places: paired(layers).map(|(layer, _)| short_name(&layer.name)).collect(),
        x_label: "layer".into(),
        y_label: "d / mean d".into(),
        mark: Some((1.0, "two units taken at random".into())),
        from_zero: true,
        series: vec![Series {
            name: "median; bars from lowest to highest".into(),
            points: paired(layers).enumerate().map(point).collect(),
            dashed: false,
        }],
        ..Chart::default()
    }
}

/// What the shared pairs of each layer cost, relative to two units taken at random.
pub(super) fn section(page: &mut String, run: &RunReport) {
    if paired(&run.layers).next().is_none() {
        return;
    }
    let head = [
        "layer",
        "inputs",
        "samples",
        "ridge",
        "pairs",
        "lowest d",
        "median",
        "highest",
        "cheapest private",
        "mean",
        "Σ d",
    ];
    let mut rows = vec![texts(head)];
    let mut drawn = String::new();
    for (layer, [low, middle, high]) in paired(&run.layers) {
        let of = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.3e}"));
        let apart = layer.private_distances.first().copied();
        let figures = [Some(low), Some(middle), Some(high), apart, layer.typical_distance, layer.distance].map(of);
        let ridge = layer.ridge.map_or_else(|| "-".to_owned(), |x| format!("{x:.0e}"));
        let counts = [grouped(layer.inputs as u64), grouped(layer.samples), ridge, grouped(layer.shared as u64)];
        rows.push([layer.name.clone()].into_iter().chain(counts).chain(figures).collect());
        let _ = write!(drawn, "<tr><td>{}</td><td>{}</td></tr>", label(&layer.name), sparkline(layer));
    }
    super::section(page, "What sharing costs in each layer", ABOUT, &chart(&run.layers), &rows);
    let _ = writeln!(
        page,
        "<details><summary>d of every layer's pairs, cheapest first</summary>\
         <div class=\"wide\"><table>{drawn}</table></div>\
         <p class=\"faint\">{KEY}</p></details>"
    );
}

/// d of the pairs of one layer, cheapest first, then that of units that stay private, as a small picture.
fn sparkline(layer: &LayerRecord) -> String {
    let (d, apart) = (&layer.distances, &layer.private_distances);
    let typical = layer.typical_distance.unwrap_or(0.0);
    let top = d.iter().chain(apart).copied().fold(typical, f64::max).max(f64::MIN_POSITIVE);
    let (width, height) = (240.0, 28.0);
    let steps = (d.len() + apart.len()).saturating_sub(1).max(1);
    let across = |i: usize| width * i as f64 / steps as f64;
    let up = |x: f64| height - (height - 2.0) * (x / top).clamp(0.0, 1.0) - 1.0;
    let path = |values: &[f64], from: usize| {
        let points = values.iter().enumerate().map(|(i, x)| format!("{:.0},{:.1}", across(from + i), up(*x)));
        points.collect::<Vec<_>>().join(" ")
    };
    let (low, high) = (d.first().copied().unwrap_or(0.0), d.last().copied().unwrap_or(0.0));
    let cut = if apart.is_empty() { width } else { across(d.len()) - 0.5 * across(1) };
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\
         <title>shared from {low:.2e} to {high:.2e}, any pair {typical:.2e}</title>\
         <line x1=\"0\" x2=\"{width}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#888\" stroke-dasharray=\"3 3\"/>\
         <line x1=\"{cut:.1}\" x2=\"{cut:.1}\" y1=\"0\" y2=\"{height}\" stroke=\"#888\"/>\
         <polyline fill=\"none\" stroke=\"#0072b2\" stroke-width=\"1.5\" points=\"{1}\"/>\
         <polyline fill=\"none\" stroke=\"#d55e00\" stroke-width=\"1.5\" points=\"{2}\"/></svg>",
        up(typical),
        path(d, 0),
        path(apart, d.len()),
    )
}
