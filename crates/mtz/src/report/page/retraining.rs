//! The loss while retraining, so that its course can be read: relative to its start, from zero, and smoothed.

use super::super::run_report::{LayerRecord, LossRecord, RunReport};
use super::{figure, fixed, short_name};
use crate::chart::{Chart, Point, Series};

const ABOUT: &str = "\
The loss says how far the answers are from what retraining aims at; 100 % is where each task began. Batches differ, so \
the curves are smoothed. A hump in the first part is no divergence: the learning rate rises there before it falls. In \
deep networks, values inside the network are compared, too, with a weight that fades out during the run: much of the \
fall is due to that.";

const EACH_LAYER: &str = " After every layer retraining starts anew, where the curves are interrupted.";

/// Points on either side that a point is averaged with.
const NEIGHBOURS: usize = 3;

pub(super) fn section(page: &mut String, run: &RunReport) {
    let parts = || run.layers.iter().filter(|layer| !layer.losses.is_empty());
    let series = |name: &str| Series { name: short_name(name), points: curve(&run.layers, name), dashed: false };
    let series: Vec<Series> = run.tasks.names().map(series).collect();
    if series.iter().all(|s| s.points.is_empty()) {
        return;
    }
    let chart = Chart {
        x_label: "iterations".into(),
        y_label: "loss, % of its start".into(),
        from_zero: true,
        final_values: true,
        series,
        ..Chart::default()
    };
    let again = if parts().count() > 1 { EACH_LAYER } else { "" };
    super::section(page, "Retraining", &format!("{ABOUT}{again}"), &chart, &rows(run));
}

/// The losses of a task over all layers that were retrained.
fn curve(layers: &[LayerRecord], name: &str) -> Vec<Point> {
    let (mut curve, mut done, mut start) = (Vec::new(), 0.0, None);
    for layer in layers {
        let known = |l: &LossRecord| Some((l.iteration as f64, figure(&l.loss, name)?));
        let points: Vec<(f64, f64)> = layer.losses.iter().filter_map(known).collect();
        let values: Vec<f64> = points.iter().map(|p| p.1).collect();
        let values = smoothed(&values);
        if let Some(first) = values.first() {
            let start = *start.get_or_insert(first.max(f64::MIN_POSITIVE));
            if !curve.is_empty() {
                curve.push(Point { x: f64::NAN, y: f64::NAN, spread: None });
            }
            let relative = points.iter().zip(&values);
            curve.extend(relative.map(|((x, _), y)| Point { x: done + x, y: 100.0 * y / start, spread: None }));
        }
        done += layer.iterations as f64;
    }
    curve
}

/// Each value as the mean of it and its neighbours. Towards the ends there are fewer, as many on either side, so that a
/// slope stays what it is.
fn smoothed(values: &[f64]) -> Vec<f64> {
    let mean = |i: usize| {
        let reach = NEIGHBOURS.min(i).min(values.len() - 1 - i);
        let near = values.iter().skip(i - reach).take(2 * reach + 1);
        near.sum::<f64>() / (2 * reach + 1) as f64
    };
    (0..values.len()).map(mean).collect()
}

/// The losses as they were measured.
fn rows(run: &RunReport) -> Vec<Vec<String>> {
    let names: Vec<&str> = run.tasks.names().collect();
    let head = std::iter::once("iteration".to_owned()).chain(names.iter().map(|name| short_name(name))).collect();
    let (mut rows, mut done) = (vec![head], 0usize);
    for layer in &run.layers {
        for point in &layer.losses {
            let losses = names.iter().map(|name| fixed(figure(&point.loss, name), 4));
            rows.push([done.saturating_add(point.iteration).to_string()].into_iter().chain(losses).collect());
        }
        done = done.saturating_add(layer.iterations);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_keeps_slopes_and_calms_jumps() {
        assert!(smoothed(&[]).is_empty());
        assert_eq!(smoothed(&[1.0, 2.0, 3.0, 4.0, 5.0]), [1.0, 2.0, 3.0, 4.0, 5.0]);
        let calm = smoothed(&[1.0, 1.0, 1.0, 8.0, 1.0, 1.0, 1.0]);
        assert_eq!(calm[3], 2.0);
    }
}
