//! Different tasks: MNIST and Fashion-MNIST. How much error does how much saving cost?

use super::{Context, Figure, Outcome, beside};
use crate::terminal;
use mtz::chart::{Chart, Point, Series};
use mtz::error::Result;
use mtz::merge::Recipe;
use mtz::sharing::Share;
use mtz::zip::{ZipOptions, errors};
use serde_json::{Value, json};

const ARCHITECTURES: [&str; 2] = ["lenet-300-100", "lenet-5"];
const TASKS: [&str; 2] = ["mnist", "fashion-mnist"];
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// One level of sharing, over all pairs.
struct Level {
    share: f64,
    saved: f64,
    /// Increase for each task, without and with retraining.
    zipped: [Figure; 2],
    retrained: [Figure; 2],
}

pub fn run(context: &Context) -> Result<Outcome> {
    let (mut json, mut charts) = (serde_json::Map::new(), Vec::new());
    for architecture in ARCHITECTURES {
        let (levels, before, iterations) = measure(context, architecture)?;
        let mut rows = vec![
            ["shared units %", "saved %", "mnist", "fashion-mnist", "mnist retrained", "fashion retrained"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for level in &levels {
            let shown = level.zipped.iter().chain(&level.retrained).map(|f| format!("{:+.2}", f.mean));
            let head = [format!("{:.0}", 100.0 * level.share), format!("{:.1}", level.saved)];
            rows.push(head.into_iter().chain(shown).collect());
        }
        context.tell(&format!(
            "{architecture}, {} pairs; separate networks: mnist {}, fashion-mnist {}\nincrease of the error in \
            points; retrained without labels, {iterations} iterations\n{}",
            context.pairs(3),
            before[0].show(false),
            before[1].show(false),
            terminal::table(&rows)
        ));
        let series = |name: &str, pick: &dyn Fn(&Level) -> Figure| Series {
            name: name.to_owned(),
            dashed: false,
            points: levels
                .iter()
                .map(|l| Point { x: l.saved, y: pick(l).mean, spread: Some((pick(l).low, pick(l).high)) })
                .collect(),
        };
        let chart = Chart {
            title: format!("{architecture}: MNIST and Fashion-MNIST in one"),
            x_label: "parameters saved, %".into(),
            y_label: "increase of the error, points".into(),
            mark: Some((0.0, "the separate networks".into())),
            series: vec![
                series("mnist", &|l| l.zipped[0]),
                series("fashion", &|l| l.zipped[1]),
                series("mnist, retrained", &|l| l.retrained[0]),
                series("fashion, retrained", &|l| l.retrained[1]),
            ],
            ..Chart::default()
        };
        charts.push((format!("-{architecture}"), chart));
        let levels = levels.iter().map(|l| {
            json!({ "share": l.share, "parameters_saved_percent": l.saved, "iterations": iterations,
                    "increase": l.zipped.map(|f| f.json()), "increase_retrained": l.retrained.map(|f| f.json()) })
        });
        let value =
            json!({ "tasks": TASKS, "separate": before.map(|f| f.json()), "levels": levels.collect::<Vec<Value>>() });
        json.insert(architecture.to_owned(), value);
    }
    Ok(Outcome { json: Value::Object(json), charts })
}

fn measure(context: &Context, architecture: &str) -> Result<(Vec<Level>, [Figure; 2], usize)> {
    let pairs = context.pairs(3);
    let mut before = [Vec::new(), Vec::new()];
    // [level][task]: increases, before and after retraining
    let mut results = vec![[(Vec::new(), Vec::new()), (Vec::new(), Vec::new())]; SHARES.len()];
    let (mut saved, mut iterations) = (vec![0.0; SHARES.len()], 0);
    for pair in 0..pairs {
        let number = pair as u64 + 1;
        let a = context.network(architecture, TASKS[0], number)?;
        let b = context.network(architecture, TASKS[1], number)?;
        let (first, second) = (context.bench(TASKS[0], &a)?, context.bench(TASKS[1], &b)?);
        let tasks = [first.task(TASKS[0]), second.task(TASKS[1])];
        for (level, share) in SHARES.iter().enumerate() {
            let options = ZipOptions::new(Recipe::Best).with(|o| {
                o.sharing.share = Share::Fraction(*share);
                o.retraining.iterations = 0;
                o.seed = context.common.seed;
            });
            let start = beside(&[(TASKS[0], &a), (TASKS[1], &b)])?;
            let what = format!("{architecture} pair {} of {pairs}, {:.0} %", pair + 1, 100.0 * share);
            let mut zipped = context.zip(start, &tasks, &options, &what)?;
            saved[level] = 100.0 * (1.0 - zipped.joint.parameters().0 as f64 / zipped.parameters_before as f64);
            iterations = ZipOptions::new(Recipe::Best).retraining.iterations * (zipped.layers.len() - 1);
            let originals = [a.clone(), b.clone()];
            context.retrain(&mut zipped.joint, &tasks, &originals, &options, iterations, &what)?;
            let after = errors(&zipped.joint.graphs(), &tasks, &options)?;
            for t in 0..TASKS.len() {
                let value = |list: &[Option<f64>]| list.get(t).copied().flatten().unwrap_or(f64::NAN);
                let own = value(&zipped.error_before);
                if level == 0 {
                    before[t].push(own);
                }
                let merged = zipped.layers.last().map_or(f64::NAN, |l| value(&l.error_zipped));
                results[level][t].0.push(merged - own);
                results[level][t].1.push(value(&after) - own);
            }
        }
    }
    let levels = SHARES.iter().zip(saved).zip(&results).map(|((&share, saved), result)| Level {
        share,
        saved,
        zipped: [0, 1].map(|t: usize| Figure::of(&result[t].0)),
        retrained: [0, 1].map(|t: usize| Figure::of(&result[t].1)),
    });
    Ok((levels.collect(), before.map(|b| Figure::of(&b)), iterations))
}
