//! Table 1 of the paper: two LeNets for the same task, dense or sparse, all hidden units shared.

use super::{Context, Figure, Outcome, beside, mean};
use crate::terminal;
use mtz::chart::{Chart, Series};
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::merge::{Matching, Recipe};
use mtz::zip::{RetrainingTarget, ZipOptions, errors};
use serde_json::{Value, json};

/// A row of Table 1.
struct Row {
    architecture: &'static str,
    sparse: bool,
    pairs: usize,
    /// The paper's errors before, after and the number of iterations.
    paper: ([f64; 2], f64, usize),
    /// The paper's increase after the first layer and after all, without retraining.
    paper_zipped: Option<(f64, f64)>,
    /// Numbers of iterations that are tried.
    budgets: &'static [usize],
}

const ROWS: [Row; 4] = [
    Row {
        architecture: "lenet-300-100",
        sparse: false,
        pairs: 5,
        paper: ([1.57, 1.60], 1.64, 550),
        paper_zipped: Some((0.95, 1.50)),
        budgets: &[50, 100, 200, 300, 400, 550],
    },
    Row {
        architecture: "lenet-5",
        sparse: false,
        pairs: 3,
        paper: ([0.89, 0.95], 0.93, 600),
        paper_zipped: None,
        budgets: &[50, 100, 200, 300, 400, 600],
    },
    Row {
        architecture: "lenet-300-100",
        sparse: true,
        pairs: 5,
        paper: ([1.80, 1.81], 1.83, 800),
        paper_zipped: None,
        budgets: &[100, 200, 400, 800],
    },
    Row {
        architecture: "lenet-5",
        sparse: true,
        pairs: 3,
        paper: ([1.27, 1.28], 1.29, 1200),
        paper_zipped: None,
        budgets: &[400, 800, 1200],
    },
];

/// The share of the weights that sparse networks have lost, and the iterations they were retrained for.
const SPARSITY: (f64, usize) = (0.9, 300);

/// Mean errors over both tasks, of one pair.
struct Pair {
    before: f64,
    /// Numbers that are not zero, of both networks and of the joint one.
    nonzero: (usize, usize),
    random: (f64, f64),
    paper: (f64, f64),
    paper_retrained: f64,
    best: f64,
    retrained: Vec<f64>,
    /// With labels, for the paper's number of iterations.
    labelled: f64,
}

impl Pair {
    /// The error after the i-th number of iterations; NaN where an earlier run knows nothing of it.
    fn after(&self, i: usize) -> f64 {
        self.retrained.get(i).copied().unwrap_or(f64::NAN)
    }

    fn to_json(&self) -> Value {
        json!({ "before": self.before, "nonzero": [self.nonzero.0, self.nonzero.1], "random": [self.random.0,
        self.random.1],
                "paper": [self.paper.0, self.paper.1], "paper_retrained": self.paper_retrained, "best": self.best,
                "retrained": self.retrained, "labelled": self.labelled })
    }

    fn from_json(json: &Value) -> Self {
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let two = |value: &Value| (number(&value[0]), number(&value[1]));
        let count = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        Self {
            before: number(&json["before"]),
            nonzero: (count(&json["nonzero"][0]), count(&json["nonzero"][1])),
            random: two(&json["random"]),
            paper: two(&json["paper"]),
            paper_retrained: number(&json["paper_retrained"]),
            best: number(&json["best"]),
            retrained: json["retrained"].as_array().into_iter().flatten().map(number).collect(),
            labelled: number(&json["labelled"]),
        }
    }
}

pub fn run(context: &Context) -> Result<Outcome> {
    let (mut json, mut series) = (serde_json::Map::new(), Vec::new());
    let wanted = |row: &&Row| row.sparse == context.args.sparse && context.wants(row.architecture);
    for row in ROWS.iter().filter(wanted) {
        let one = |i: usize| {
            let sparse = if row.sparse { "-sparse" } else { "" };
            let key = format!("lenet-{}{sparse}-{i}", row.architecture);
            let number = 2 * i as u64 + 1;
            let network = |n| match row.sparse {
                false => context.network(row.architecture, "mnist", n),
                true => context.sparse_network(row.architecture, "mnist", n, SPARSITY),
            };
            let pair = [network(number)?, network(number + 1)?];
            let known =
                context.results_kept(&pair).remember(&key, || Ok(measure(context, row, i, &pair)?.to_json()))?;
            Ok(Pair::from_json(&known))
        };
        let pairs: Vec<Pair> = (0..context.pairs(row.pairs)).map(one).collect::<Result<_>>()?;
        context.tell(&describe(row, &pairs));
        json.insert(row.architecture.to_owned(), to_json(row, &pairs));
        let zero = increase(&pairs, |p| p.best).point(0.0);
        let rest = row.budgets.iter().enumerate().map(|(i, &n)| increase(&pairs, |p| p.after(i)).point(n as f64));
        let points = std::iter::once(zero).chain(rest).collect();
        series.push(Series { name: row.architecture.to_owned(), points, dashed: false });
    }
    let chart = Chart {
        title: format!(
            "Two {}LeNets in one, all hidden units shared",
            if context.args.sparse { "sparse " } else { "" }
        ),
        x_label: "iterations of retraining, without labels".into(),
        y_label: "increase of the error, points".into(),
        mark: Some((0.0, "the separate networks".into())),
        series,
        ..Chart::default()
    };
    Ok(Outcome { json: Value::Object(json), charts: vec![(String::new(), chart)] })
}

fn measure(context: &Context, row: &Row, index: usize, [a, b]: &[Graph; 2]) -> Result<Pair> {
    let bench = context.bench("mnist", a)?;
    let tasks = ["a", "b"].map(|name| bench.task(name));
    let start = || beside(&[("a", a), ("b", b)]);
    let what = format!("{} pair {}", row.architecture, index + 1);
    let once = |options: &ZipOptions| context.zip(start()?, &tasks, options, &what);
    let seed = context.common.seed.wrapping_add(index as u64);
    let both = start()?;
    let without = |recipe| {
        ZipOptions::suited(recipe, &both).with(|o| {
            o.retraining.iterations = 0;
            o.seed = seed;
        })
    };
    let first_and_last = |zipped: &mtz::zip::Zipped| {
        let of = |layer: Option<&mtz::zip::LayerReport>| layer.map_or(f64::NAN, |l| mean(&l.error_after));
        (of(zipped.layers.first()), of(zipped.layers.last()))
    };
    let random = once(&without(Recipe::Paper).with(|o| o.sharing.matching = Matching::Random))?;
    let paper = once(&without(Recipe::Paper))?;
    let hidden = paper.layers.len().max(1);
    let paper_retrained = once(&without(Recipe::Paper).with(|o| o.retraining.iterations = row.paper.2 / hidden))?;
    let options = without(Recipe::Best);
    let best = once(&options)?;
    let after = |options: &ZipOptions, iterations: usize| -> Result<f64> {
        let mut joint = best.joint.clone();
        let originals = [a.clone(), b.clone()];
        context.retrain(&mut joint, &tasks, &originals, options, iterations, row.architecture)?;
        Ok(mean(&errors(&joint.graphs(), &tasks, options)?))
    };
    let retrained = row.budgets.iter().map(|&iterations| after(&options, iterations)).collect::<Result<_>>()?;
    let labelled = after(&options.clone().with(|o| o.retraining.target = RetrainingTarget::Labels), row.paper.2)?;
    Ok(Pair {
        before: mean(&best.error_before),
        nonzero: (best.nonzero_before, best.joint.nonzero()),
        random: first_and_last(&random),
        paper: first_and_last(&paper),
        paper_retrained: first_and_last(&paper_retrained).1,
        best: first_and_last(&best).1,
        retrained,
        labelled,
    })
}

fn figure(pairs: &[Pair], value: impl Fn(&Pair) -> f64) -> Figure {
    Figure::of(&pairs.iter().map(value).collect::<Vec<_>>())
}

fn increase(pairs: &[Pair], value: impl Fn(&Pair) -> f64) -> Figure {
    figure(pairs, |p| value(p) - p.before)
}

/// The smallest number of iterations after which, on average, nothing is lost.
fn recovered(row: &Row, pairs: &[Pair]) -> Option<usize> {
    let lossless = |i: usize| increase(pairs, |p| p.after(i)).mean <= 1e-9;
    row.budgets.iter().enumerate().find(|(i, _)| lossless(*i)).map(|(_, &n)| n)
}

fn describe(row: &Row, pairs: &[Pair]) -> String {
    let mut rows = vec![
        ["all hidden units shared", "error %", "increase", "paper"].map(str::to_owned).to_vec(),
        vec![
            "separate networks".into(),
            figure(pairs, |p| p.before).show(false),
            String::new(),
            row.paper.0.map(|e| format!("{e:.2}")).join(" and "),
        ],
    ];
    let mut line = |name: &str, value: &dyn Fn(&Pair) -> f64, paper: String| {
        rows.push(vec![name.to_owned(), figure(pairs, value).show(false), increase(pairs, value).show(true), paper]);
    };
    let published = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:+.2}"));
    line("random sharing, first layer", &|p| p.random.0, row.paper_zipped.map_or("", |_| "error 33.47").into());
    line("random sharing, all layers", &|p| p.random.1, String::new());
    line("paper's recipe, first layer", &|p| p.paper.0, published(row.paper_zipped.map(|p| p.0)));
    line("paper's recipe, all layers", &|p| p.paper.1, published(row.paper_zipped.map(|p| p.1)));
    line("best recipe, all layers", &|p| p.best, String::new());
    let before = (row.paper.0[0] + row.paper.0[1]) / 2.0;
    let after = format!("{:.2}, {:+.3}", row.paper.1, row.paper.1 - before);
    line(&format!("paper's recipe, {} iterations", row.paper.2), &|p| p.paper_retrained, after.clone());
    for (i, &n) in row.budgets.iter().enumerate() {
        let paper = if n == row.paper.2 { after.clone() } else { String::new() };
        line(&format!("best recipe, {n} iterations"), &|p| p.after(i), paper);
    }
    line(&format!("best recipe, {} iterations, labels", row.paper.2), &|p| p.labelled, after);
    let end = match recovered(row, pairs) {
        Some(n) => format!(
            "nothing lost on average after {n} iterations without labels (paper: {} lose {:+.3})",
            row.paper.2,
            row.paper.1 - before
        ),
        None => "without labels something is still lost after the last".to_owned(),
    };
    let sparse = match (row.sparse, pairs.first()) {
        (true, Some(pair)) => format!(
            ", {:.0} % of the weights removed ({} + {} iterations); not zero: {} -> {}",
            100.0 * SPARSITY.0,
            "mtz prune --global",
            SPARSITY.1,
            terminal::grouped(pair.nonzero.0 as u64),
            terminal::grouped(pair.nonzero.1 as u64)
        ),
        _ => String::new(),
    };
    let pairs = pairs.len();
    format!("{}{sparse}\n{pairs} pairs: mean (lowest to highest)\n{}\n{end}", row.architecture, terminal::table(&rows))
}

fn to_json(row: &Row, pairs: &[Pair]) -> Value {
    let both = |value: &dyn Fn(&Pair) -> f64| {
        json!({ "error": figure(pairs, value).json(),
    "increase": increase(pairs, value).json() })
    };
    let retrained: Vec<Value> = row
        .budgets
        .iter()
        .enumerate()
        .map(|(i, n)| json!({ "iterations": n, "result": both(&|p| p.after(i)) }))
        .collect();
    json!({
        "pairs": pairs.len(), "sparse": row.sparse,
        "nonzero": pairs.iter().map(|p| json!({ "before": p.nonzero.0, "after": p.nonzero.1 })).collect::<Vec<_>>(),
        "separate": figure(pairs, |p| p.before).json(),
        "random_first_layer": both(&|p| p.random.0), "random": both(&|p| p.random.1),
        "paper_recipe_first_layer": both(&|p| p.paper.0), "paper_recipe": both(&|p| p.paper.1),
        "paper_recipe_retrained": both(&|p| p.paper_retrained),
        "best_recipe": both(&|p| p.best), "best_recipe_retrained": retrained,
        "best_recipe_labels": both(&|p| p.labelled),
        "iterations_to_lose_nothing": recovered(row, pairs),
        "paper": { "errors": row.paper.0, "error_after": row.paper.1, "iterations": row.paper.2,
                   "increase_first_layer": row.paper_zipped.map(|p| p.0), "increase": row.paper_zipped.map(|p| p.1) },
    })
}
