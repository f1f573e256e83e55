//! Layer-wise optimal brain surgeon against magnitude: the error when most weights of a LeNet-300-100 go, without
//! retraining.

use super::{Context, Figure, Outcome, series};
use crate::terminal;
use mtz::chart::Chart;
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::prune::{Method, allocate, prune};
use mtz::sharing::Layer;
use mtz::statistics::Calibration;
use mtz::zip::{ZipOptions, errors};
use serde_json::{Value, json};
use std::ops::ControlFlow;

const ARCHITECTURE: &str = "lenet-300-100";
const SPARSITY: f64 = 0.9;
const METHODS: [&str; 3] = ["magnitude", "surgeon", "surgeon, --global"];

pub fn run(context: &Context) -> Result<Outcome> {
    let count = context.pairs(5);
    let (mut before, mut after) = (Vec::new(), vec![Vec::new(); METHODS.len()]);
    for number in 1..=count as u64 {
        let network = context.network(ARCHITECTURE, "mnist", number)?;
        let bench = context.bench("mnist", &network)?;
        let tasks = [bench.task("mnist")];
        let options = ZipOptions::new(Recipe::Best);
        let error = |graph: &Graph| -> Result<f64> {
            Ok(errors(&[graph], &tasks, &options)?.first().copied().flatten().unwrap_or(f64::NAN))
        };
        before.push(error(&network)?);
        let order = mtz::random::permutation(number, bench.train.len());
        let from =
            Calibration::new(&bench.train, order.into_iter().take(options.fitting.calibration).collect(), number);
        let listen = |_: usize, _: &Layer| ControlFlow::Continue(());
        let same = vec![SPARSITY; Layer::all(&network)?.len()];
        let chosen = allocate(&network, &from, SPARSITY, options.resources.memory, listen)?;
        let ways = [(&same, Method::Magnitude), (&same, Method::BrainSurgeon), (&chosen, Method::BrainSurgeon)];
        for ((sparsity, method), after) in ways.into_iter().zip(&mut after) {
            after.push(error(&prune(&network, &from, sparsity, method, options.resources.memory, listen)?.graph)?);
        }
    }
    let mut rows = vec![["", "error %"].map(str::to_owned).to_vec()];
    rows.push(vec!["before".into(), Figure::of(&before).show(false)]);
    let figures: Vec<Figure> = after.iter().map(|values| Figure::of(values)).collect();
    rows.extend(METHODS.iter().zip(&figures).map(|(name, f)| vec![(*name).to_owned(), f.show(false)]));
    let better = (0..count).filter(|&i| after[1][i] < after[0][i]).count();
    context.tell(&format!(
        "{count} LeNet-300-100 for MNIST, {:.0} % of the weights removed, no retraining: mean (lowest to highest)\n{}\n\
         the surgeon loses less than magnitude with {better} of {count}",
        100.0 * SPARSITY,
        terminal::table(&rows)
    ));
    let by_method = METHODS.iter().zip(&figures).zip(&after);
    let by_method = by_method.map(|((name, f), all)| ((*name).to_owned(), json!({ "error": f.json(), "errors": all })));
    let json = json!({ "networks": count, "sparsity": SPARSITY, "before": Figure::of(&before).json(),
                       "methods": Value::Object(by_method.collect()) });
    let chart = Chart {
        title: format!("{:.0} % of the weights of LeNet-300-100 removed, no retraining", 100.0 * SPARSITY),
        x_label: "network".into(),
        y_label: "error, %".into(),
        mark: Some((Figure::of(&before).mean, "before".into())),
        series: METHODS.iter().zip(&after).map(|(name, errors)| series(name, 1, errors.iter().copied())).collect(),
        ..Chart::default()
    };
    Ok(Outcome { json, charts: vec![(String::new(), chart)] })
}
