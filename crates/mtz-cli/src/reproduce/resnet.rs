//! Table 4 of the paper: five residual networks for five tasks, 90 % of the filters of every layer shared. CIFAR-10 and UTKFace stand in for
//! CIFAR-100 and UCF101, which are not to be had everywhere: only increases can be compared.

use super::{Outcome, Workshop, beside};
use crate::show;
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::merge::{Recipe, Share};
use mtz::pipeline::{Aim, Plan, Task, errors, retrain};
use mtz::plan::{Joint, Member};
use serde_json::{Value, json};
use std::ops::ControlFlow;

const ARCHITECTURE: &str = "resnet-20";
const TASKS: [&str; 5] = ["cifar-10", "gtsrb", "omniglot", "svhn", "utkface-gender"];
/// Of training each network: as many as fit into three hours with all the rest.
const EPOCHS: [usize; 5] = [25, 15, 15, 10, 12];
const SHARE: f64 = 0.9;
/// Iterations at the end, all tasks in each.
const ITERATIONS: usize = 1500;

/// The paper's tasks with errors of the single networks and of the joint one.
const PAPER: [(&str, f64, f64); 5] = [
    ("CIFAR-100", 29.19, 29.13),
    ("GTSRB", 1.48, 0.09),
    ("Omniglot", 14.40, 15.65),
    ("SVHN", 6.86, 7.08),
    ("UCF101", 37.83, 39.04),
];
/// Its joint network, in networks.
const PAPER_SIZE: f64 = 1.5;

pub fn run(workshop: &Workshop) -> Result<Outcome> {
    let networks: Vec<Graph> = TASKS
        .iter()
        .zip(EPOCHS)
        .map(|(task, n)| workshop.network_in(ARCHITECTURE, 1.0, Some(n), task, 1))
        .collect::<Result<_>>()?;
    let benches = TASKS.iter().zip(&networks).map(|(task, network)| workshop.bench(task, network));
    let benches: Vec<_> = benches.collect::<Result<_>>()?;
    let tasks: Vec<Task> = TASKS.iter().zip(&benches).map(|(name, b)| Task::whole(name, &b.train, &b.test)).collect();
    let start = beside(&TASKS.iter().copied().zip(&networks).collect::<Vec<_>>())?;
    let plan = Plan {
        share: Share::Fraction(SHARE),
        retrain: 0,
        aim: Aim::Labels,
        seed: workshop.common.seed,
        ..Plan::suited(Recipe::Best, &start)
    };
    let one = body(&start.members[0]);
    let all = |joint: &Joint| errors(&joint.members.iter().map(|m| &m.graph).collect::<Vec<_>>(), &tasks, &plan);
    let before = workshop.remember("resnet-separate", || Ok(json!(all(&start)?)))?;
    // The joint model is kept before retraining and after it: either may take a while.
    let zipped =
        workshop.kept("resnet-zipped", || Ok(workshop.zip(start.clone(), &tasks, &plan, "five networks")?.joint))?;
    let zipped_errors = workshop.remember("resnet-zipped", || Ok(json!(all(&zipped)?)))?;
    let mut size = zipped.parameters().0 as f64;
    zipped.members.iter().for_each(|m| size -= head(m) as f64);
    let retrained = workshop.kept("resnet-retrained", || {
        let mut joint = zipped.clone();
        let bar = show::stages(workshop.common.quiet);
        let weights = [1.0 / TASKS.len() as f64; TASKS.len()];
        retrain(&mut joint, &tasks, &networks, &weights, &plan, ITERATIONS, |i, _| {
            bar.set_message(format!("retraining {i} of {ITERATIONS}"));
            ControlFlow::Continue(())
        })?;
        bar.finish_and_clear();
        Ok(joint)
    })?;
    let after = workshop.remember("resnet-retrained", || Ok(json!(all(&retrained)?)))?;
    report(workshop, size / one as f64, &[before, zipped_errors, after])
}

/// Parameters of the last layer.
fn head(member: &Member) -> usize {
    member.layers.last().map_or(0, |l| l.units * (l.columns() + 1))
}

/// Parameters without the last layer, as the paper counts.
fn body(member: &Member) -> usize {
    member.graph.parameters() - head(member)
}

fn report(workshop: &Workshop, size: f64, errors: &[Value; 3]) -> Result<Outcome> {
    let value = |of: &Value, t: usize| of[t].as_f64().unwrap_or(f64::NAN);
    let mean = |of: &dyn Fn(usize) -> f64| (0..TASKS.len()).map(of).sum::<f64>() / TASKS.len() as f64;
    let mut head = vec!["error %".to_owned(), "networks".to_owned()];
    head.extend(TASKS.iter().map(|t| (*t).to_owned()).chain(["mean".to_owned()]));
    let row = |name: &str, size: f64, of: &dyn Fn(usize) -> f64| {
        let figures = (0..TASKS.len()).map(of).chain([mean(of)]).map(|e| format!("{e:.2}"));
        [name.to_owned(), format!("{size:.2}")].into_iter().chain(figures).collect::<Vec<_>>()
    };
    let [before, zipped, after] = errors;
    let rows = [
        head,
        row("separate", TASKS.len() as f64, &|t| value(before, t)),
        row("zipped", size, &|t| value(zipped, t)),
        row(&format!("retrained, {ITERATIONS} iterations"), size, &|t| value(after, t)),
        row("paper, separate", TASKS.len() as f64, &|t| PAPER[t].1),
        row("paper, joint", PAPER_SIZE, &|t| PAPER[t].2),
    ];
    let increase = mean(&|t| value(after, t) - value(before, t));
    let paper = mean(&|t| PAPER[t].2 - PAPER[t].1);
    workshop.tell(&format!(
        "five ResNet-20, {:.0} % of the filters of every layer shared; networks are counted without their last layer\n\
         the paper's tasks are {}: only increases compare\n{}\nmean increase {increase:+.2} (paper {paper:+.2})",
        100.0 * SHARE,
        PAPER.map(|p| p.0).join(", "),
        show::table(&rows)
    ));
    let json = json!({
        "architecture": ARCHITECTURE, "share": SHARE, "iterations": ITERATIONS, "tasks": TASKS,
        "separate": before, "zipped": zipped, "retrained": after, "size_in_networks": size, "mean_increase": increase,
        "paper": { "tasks": PAPER.map(|p| p.0), "separate": PAPER.map(|p| p.1), "joint": PAPER.map(|p| p.2),
                   "size_in_networks": PAPER_SIZE, "mean_increase": paper },
    });
    Ok(Outcome { suffix: "", json, charts: Vec::new() })
}
