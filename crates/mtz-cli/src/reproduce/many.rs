//! More than two: three and five LeNet-300-100 in one, and a fifth that joins a joint model of four.

use super::{Figure, Outcome, Workshop, beside, series};
use crate::show;
use mtz::chart::Chart;
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::merge::Recipe;
use mtz::pipeline::{Plan, Task, Zipped};
use mtz::plan::Joint;
use serde_json::{Value, json};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

pub fn run(workshop: &Workshop) -> Result<Outcome> {
    let networks: Vec<Graph> =
        (1..=NAMES.len() as u64).map(|n| workshop.network("lenet-300-100", "mnist", n)).collect::<Result<_>>()?;
    let bench = workshop.bench("mnist", &networks[0])?;
    let tasks: Vec<Task> = NAMES.iter().map(|name| bench.task(name)).collect();
    let named: Vec<(&str, &Graph)> = NAMES.iter().copied().zip(&networks).collect();
    let (mut rows, mut json) =
        (vec![["networks", "retraining", "parameters", "of", "increase"].map(str::to_owned).to_vec()], Vec::new());
    for retrain in [0, Plan::new(Recipe::Best).retrain] {
        let plan = Plan { retrain, seed: workshop.common.seed, ..Plan::new(Recipe::Best) };
        let zip = |start: Joint, what: &str| {
            let count = start.members.len();
            workshop.zip(start, &tasks[..count], &plan, what)
        };
        let three = zip(beside(&named[..3])?, "three networks")?;
        let four = zip(beside(&named[..4])?, "four networks")?;
        let five = zip(beside(&named)?, "five networks")?;
        let fifth = Joint::single(NAMES[4].to_owned(), networks[4].clone())?;
        let joined = zip(Joint::beside(vec![four.joint.clone(), fifth])?, "a fifth joins four")?;
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
                show::grouped(after as u64),
                format!("{:.1} %", 100.0 * after as f64 / before),
                increase.show(true),
            ]);
            json.push(json!({ "networks": name, "iterations": zipped.iterations, "parameters": after,
                              "parameters_separate": before, "increase": increase.json() }));
        }
    }
    workshop.tell(&format!(
        "LeNet-300-100 for MNIST, all hidden units shared; increase of the error in points: mean (lowest to highest) over tasks\n{}",
        show::table(&rows)
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
