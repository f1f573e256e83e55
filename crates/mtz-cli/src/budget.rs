//! The budget of `mtz zip`: from flags to the search, and its result for people and programs.

use crate::args::{Common, Zip};
use crate::progress::Stages;
use crate::show;
use crate::values::Size;
use mtz::budget::{Budget, Found, Point, search};
use mtz::error::{Error, Result};
use mtz::pipeline::{Plan, Task};
use mtz::plan::Joint;
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// What the flags ask for, if they ask for anything. A part of the size is one of `bytes_before`, what the given files
/// take.
pub fn asked(args: &Zip, bytes_before: u64) -> Result<Option<Budget>> {
    let budget = Budget {
        max_error_increase: args.max_error_increase,
        min_agreement: args.min_agreement,
        margin: args.margin,
        target_bytes: args.target_size.map(|size| size.of(bytes_before)),
        min_sharing: args.min_sharing,
    };
    if let Some(points) = args.max_error_increase.filter(|p| !(p.is_finite() && *p >= 0.0)) {
        return Err(Error::usage(format!("--max-error-increase {points} is not a number of points")));
    }
    if !(args.margin.is_finite() && args.margin >= 0.0) {
        return Err(Error::usage(format!("--margin {} is not a number of standard errors", args.margin)));
    }
    if args.margin > 0.0 && args.max_error_increase.is_none() && args.min_agreement.is_none() {
        return Err(Error::usage("--margin goes with --max-error-increase or --min-agreement"));
    }
    Ok(Some(budget).filter(|b| *b != Budget::default()))
}

/// Searches, with progress.
pub fn find(
    budget: Budget,
    start: &Joint,
    tasks: &[Task],
    plan: &Plan,
    file_bytes: impl Fn(&Joint) -> Result<u64>,
    common: &Common,
    stopped: impl Fn() -> bool,
) -> Result<Found> {
    let bar = Stages::new(common.quiet);
    let (plain, retrained) = budget.zips(plan.retrain);
    let most = plain + retrained;
    let listen = |(done, what): (usize, &str)| {
        let part = format!("search, zip {} of at most {most}", done + 1);
        bar.advance((done as f64, most as f64), &part, what);
        if stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let found = search(start, tasks, plan, &budget, file_bytes, listen, |_, _| Ok(()));
    bar.finish();
    found
}

/// All points of the search, the chosen one marked.
pub fn to_json(args: &Zip, found: &Found, missed: &[String], start: &Joint) -> Value {
    let before = start.parameters().0.max(1);
    let names: Vec<&str> = start.members.iter().map(|m| m.name.as_str()).collect();
    let layers: Vec<&str> = start.members.iter().take(1).flat_map(|m| &m.layers).map(|l| l.name.as_str()).collect();
    let by = |names: &[&str], values: &[f64]| -> Value {
        Value::Object(names.iter().zip(values).map(|(name, x)| ((*name).to_owned(), json!(x))).collect())
    };
    let point = |(i, p): (usize, &Point)| {
        json!({
            "parameters": p.parameters, "file_bytes": p.file_bytes, "size": p.parameters as f64 / before as f64, "sharing": p.sharing,
            "error_increase": by(&names, &p.increase), "standard_error": by(&names, &p.standard_error),
            "agreement": by(&names, &p.agreement), "agreement_error": by(&names, &p.agreement_error),
            "shares": by(&layers, &p.shares), "iterations": p.iterations,
            "chosen": i == found.chosen, "pareto": p.is_best_of(&found.points),
        })
    };
    let size = args.target_size.map(|size| match size {
        Size::Part(part) => json!({ "part": part }),
        Size::Bytes(bytes) => json!({ "bytes": bytes }),
    });
    json!({
        "max_error_increase": args.max_error_increase, "min_agreement": args.min_agreement, "margin": args.margin, "target_size": size, "min_sharing": args.min_sharing,
        "met": missed.is_empty(), "missed": missed, "held_out": Value::Object(names.iter().zip(&found.held_out).map(|(n, count)| ((*n).to_owned(), json!(count))).collect()),
        "points": found.points.iter().enumerate().map(point).collect::<Vec<_>>(),
    })
}

/// The points as a table, smallest first.
pub fn table(found: &Found, tasks: &[Task], bytes_before: u64) -> String {
    // Without labels nobody knows what a task lost.
    let labelled = |t: usize| found.points.iter().all(|p| p.increase.get(t).is_some_and(|x| !x.is_nan()));
    let lost: Vec<usize> = (0..tasks.len()).filter(|t| labelled(*t)).collect();
    let of = |all: &[f64], format: fn(f64) -> String| -> Vec<String> {
        lost.iter().filter_map(|t| all.get(*t)).map(|x| format(*x)).collect()
    };
    let mut head = ["tried", "file", "% of all", "sharing", "iterations"].map(str::to_owned).to_vec();
    head.extend(lost.iter().filter_map(|t| tasks.get(*t)).map(|t| format!("{} lost", t.name)));
    head.extend(tasks.iter().map(|t| format!("{} agrees %", t.name)));
    let mut rows = vec![head];
    let mut order: Vec<(usize, &Point)> = found.points.iter().enumerate().collect();
    order.sort_by_key(|(i, p)| (p.parameters, *i));
    for (i, p) in order {
        let mark = if i == found.chosen { "* chosen" } else { "" };
        let part = format!("{:.1}", 100.0 * p.file_bytes as f64 / bytes_before.max(1) as f64);
        let (file, sharing) = (show::bytes(p.file_bytes), format!("{:.3}", p.sharing));
        let mut row = vec![mark.to_owned(), file, part, sharing, p.iterations.to_string()];
        row.extend(of(&p.increase, |x| format!("{x:+.2}")));
        row.extend(p.agreement.iter().map(|x| format!("{x:.2}")));
        rows.push(row);
    }
    let held: Vec<String> = found.held_out.iter().map(ToString::to_string).collect();
    let mut text = format!("{}\nmeasured on {} held-out training samples", show::table(&rows), held.join(" and "));
    if let Some(chosen) = found.points.get(found.chosen) {
        let points = of(&chosen.standard_error, |x| format!("{x:.2}")).join(" and ");
        let points = if points.is_empty() { points } else { format!("{points} points lost, ") };
        let agreement: Vec<String> = chosen.agreement_error.iter().map(|x| format!("{x:.2}")).collect();
        let agreement = agreement.join(" and ");
        text += &format!("; standard errors at the chosen point: {points}{agreement} points of agreement");
    }
    text
}
