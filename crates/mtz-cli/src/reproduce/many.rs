//! More than two: three and five LeNet-300-100 in one, and a fifth that joins a joint model of four.

use super::{Context, Figure, Outcome, beside, series};
use crate::terminal;
use mtz::chart::Chart;
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::sharing::Joint;
use mtz::zip::{TaskData, ZipOptions, Zipped};
use serde_json::{Value, json};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

pub fn run(context: &Context) -> Result<Outcome> {
    let networks: Vec<Graph> =
        (1..=NAMES.len() as u64).map(|n| context.network("lenet-300-100", "mnist", n)).collect::<Result<_>>()?;
    let bench = context.bench("mnist", &networks[0])?;
    let tasks: Vec<TaskData> = NAMES.iter().map(|name| bench.task(name)).collect();
    let named: Vec<(&str, &Graph)> = NAMES.iter().copied().zip(&networks).collect();
    let (mut rows, mut json) =
        (vec![["networks", "retraining", "parameters", "of", "increase"].map(str::to_owned).to_vec()], Vec::new());
    for retrain in [0, ZipOptions::new(Recipe::Best).retraining.iterations] {
        let options = ZipOptions::new(Recipe::Best).with(|o| {
            o.retraining.iterations = retrain;
            o.seed = context.common.seed;
        });
        let zip = |start: Joint, what: &str| {
            let count = start.members.len();
            context.zip(start, &tasks[..count], &options, what)
        };
        let three = zip(beside(&named[..3])?, "three networks")?;
        let four = zip(beside(&named[..4])?, "four networks")?;
        let five = zip(beside(&named)?, "five networks")?;
        let fifth = Joint::single(NAMES[4].to_owned(), networks[4].clone())?;
        let joined = zip(Joint::from_networks(vec![four.joint.clone(), fifth])?, "a fifth joins four")?;
        let results = [("three", &three), ("four", &four), ("five", &five), ("four, then a fifth", &joined)];
        for (name, zipped) in results {
            let separate: Vec<f64> =
                zipped.joint.members.iter().zip(&networks).map(|(_, g)| g.parameters() as f64).collect();
            let (before, after) = (separate.iter().sum::<f64>(), zipped.joint.parameters().0);
            // A joint model among the inputs has lost something already: compare with the separate networks.
            let increase = Figure::of(&increases(zipped, &five.error_before));
            rows.push(vec![
                name.to_owned(),
                zipped.iterations.to_string(),
                terminal::grouped(after as u64),
                format!("{:.1} %", 100.0 * after as f64 / before),
                increase.show(true),
            ]);
            json.push(json!({ "networks": name, "iterations": zipped.iterations, "parameters": after,
                              "parameters_separate": before, "increase": increase.json() }));
        }
    }
    context.tell(&format!(
        "LeNet-300-100 for MNIST, all hidden units shared; increase of the error in points: mean (lowest to \
        highest) over tasks\n{}",
        terminal::table(&rows)
    ));
    let half = json.len() / 2;
    let curve = |name: &str, runs: &[Value]| {
        series(name, 3, runs.iter().take(3).map(|r| r["increase"]["mean"].as_f64().unwrap_or(f64::NAN)))
    };
    let chart = Chart {
        title: "Several LeNet-300-100 in one, all hidden units shared".into(),
        x_label: "networks".into(),
        y_label: "increase of the error, points".into(),
        mark: Some((0.0, "the separate networks".into())),
        series: vec![curve("not retrained", &json[..half]), curve("retrained, without labels", &json[half..])],
        ..Chart::default()
    };
    let charts = vec![(String::new(), chart)];
    Ok(Outcome { json: json!({ "runs": Value::Array(json) }), charts })
}

fn increases(zipped: &Zipped, before: &[Option<f64>]) -> Vec<f64> {
    let after = zipped.layers.last().map(|l| l.error_after.as_slice()).unwrap_or_default();
    after.iter().zip(before).map(|(a, b)| a.unwrap_or(f64::NAN) - b.unwrap_or(f64::NAN)).collect()
}
