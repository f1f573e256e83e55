//! Figure 3 of the paper: error against the number of shared neurons, first in the first layer, then in the second too.

use super::{Context, Figure, Outcome, beside, mean};
use crate::terminal;
use mtz::chart::{Chart, Series};
use mtz::error::Result;
use mtz::merge::{Matching, Recipe};
use mtz::sharing::Share;
use mtz::zip::ZipOptions;
use serde_json::{Value, json};

const ARCHITECTURE: &str = "lenet-300-100";
/// Shared neurons of the first layer, none in the second; and of the second, with all of the first.
const STEPS: [(&str, &[usize]); 2] =
    [("first", &[0, 50, 100, 150, 200, 250, 300]), ("second", &[0, 20, 40, 60, 80, 100])];
const METHODS: [(&str, Recipe, Option<Matching>); 3] = [
    ("random sharing", Recipe::Paper, Some(Matching::Random)),
    ("paper's recipe", Recipe::Paper, None),
    ("best recipe", Recipe::Best, None),
];

pub fn run(context: &Context) -> Result<Outcome> {
    // errors[layer][method][count] over all pairs
    let mut errors: Vec<Vec<Vec<Vec<f64>>>> =
        STEPS.iter().map(|(_, counts)| vec![vec![Vec::new(); counts.len()]; METHODS.len()]).collect();
    let mut before = Vec::new();
    let pairs = context.pairs(5);
    for pair in 0..pairs {
        let number = 2 * pair as u64 + 1;
        let network = |n| context.network(ARCHITECTURE, "mnist", n);
        let (a, b) = (network(number)?, network(number + 1)?);
        let bench = context.bench("mnist", &a)?;
        let tasks = ["a", "b"].map(|name| bench.task(name));
        for (m, (_, recipe, matching)) in METHODS.iter().enumerate() {
            for (layer, (_, counts)) in STEPS.iter().enumerate() {
                for (c, &count) in counts.iter().enumerate() {
                    let start = beside(&[("a", &a), ("b", &b)])?;
                    let names = start.members.iter().flat_map(|m| &m.layers).map(|l| l.name.clone());
                    // Layers before this one share all, those behind it nothing.
                    let share = |l: usize| match l.cmp(&layer) {
                        std::cmp::Ordering::Less => Share::All,
                        std::cmp::Ordering::Equal => Share::Count(count),
                        std::cmp::Ordering::Greater => Share::Count(0),
                    };
                    let share_of = names.take(STEPS.len()).enumerate().map(|(l, name)| (name, share(l))).collect();
                    let usual = ZipOptions::new(*recipe);
                    let seed = context.common.seed.wrapping_add(pair as u64);
                    let matching = matching.unwrap_or(usual.sharing.matching);
                    let options = usual.with(|o| {
                        o.sharing.share_of = share_of;
                        o.sharing.matching = matching;
                        o.retraining.iterations = 0;
                        o.seed = seed;
                    });
                    let zipped = context.zip(start, &tasks, &options, &format!("pair {} of {pairs}", pair + 1))?;
                    errors[layer][m][c].push(zipped.layers.last().map_or(f64::NAN, |l| mean(&l.error_after)));
                    if (m, layer, c) == (0, 0, 0) {
                        before.push(mean(&zipped.error_before));
                    }
                }
            }
        }
    }
    Ok(report(context, &errors, &Figure::of(&before), pairs))
}

fn report(context: &Context, errors: &[Vec<Vec<Vec<f64>>>], before: &Figure, pairs: usize) -> Outcome {
    context.tell(&format!(
        "{pairs} pairs of LeNet-300-100, error in %, mean (lowest to highest); separate networks: {}\n\
         paper: all 300 of the first layer +0.95, random sharing 33.47 %; both layers +1.50",
        before.show(false)
    ));
    let (mut json, mut charts) = (serde_json::Map::new(), Vec::new());
    for ((layer, counts), errors) in STEPS.iter().zip(errors) {
        let head =
            std::iter::once(format!("shared in the {layer} layer")).chain(METHODS.iter().map(|m| m.0.to_owned()));
        let mut rows = vec![head.collect::<Vec<_>>()];
        for (c, count) in counts.iter().enumerate() {
            let figures = errors.iter().map(|method| Figure::of(&method[c]).show(false));
            rows.push(std::iter::once(count.to_string()).chain(figures).collect());
        }
        context.tell(&terminal::table(&rows));
        let series = METHODS.iter().zip(errors).map(|((name, _, _), method)| Series {
            name: (*name).to_owned(),
            dashed: false,
            points: counts.iter().zip(method).map(|(&n, values)| Figure::of(values).point(n as f64)).collect(),
        });
        let chart = Chart {
            title: format!("Sharing neurons of the {layer} layer of two LeNet-300-100, no retraining"),
            x_label: "shared neurons".into(),
            y_label: "error, %".into(),
            logarithmic: true,
            series: series.collect(),
            ..Chart::default()
        };
        charts.push((format!("-{layer}"), chart));
        let by_method = METHODS.iter().zip(errors).map(|((name, _, _), method)| {
            let points = counts.iter().zip(method).map(|(n, v)| json!({ "shared": n, "error": Figure::of(v).json() }));
            ((*name).to_owned(), Value::Array(points.collect()))
        });
        json.insert(format!("{layer}_layer"), Value::Object(by_method.collect()));
    }
    json.insert("pairs".into(), json!(pairs));
    json.insert("separate".into(), before.json());
    json.insert(
        "paper".into(),
        json!({ "increase_first_layer": 0.95, "random_error_first_layer": 33.47, "increase": 1.50 }),
    );
    Outcome { json: Value::Object(json), charts }
}
