//! The budget of `mtz zip`: from flags to the search, and its result for people and programs.

use crate::args::{Common, Zip};
use crate::progress::Stages;
use crate::terminal;
use crate::values::Size;
use mtz::budget::{Budget, BudgetPoint, SearchResult, search};
use mtz::error::{Error, Result};
use mtz::report::{BudgetRecord, TargetSize};
use mtz::sharing::Joint;
use mtz::zip::{TaskData, ZipOptions};
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
    budget: &Budget,
    start: &Joint,
    tasks: &[TaskData],
    options: &ZipOptions,
    file_bytes: impl Fn(&Joint) -> Result<u64>,
    common: &Common,
    stopped: impl Fn() -> bool,
) -> Result<SearchResult> {
    let bar = Stages::new(common.quiet);
    let (plain, retrained) = budget.zips(options.retraining.iterations);
    let most = plain + retrained;
    let listen = |(done, what): (usize, &str)| {
        let part = format!("search, zip {} of at most {most}", done + 1);
        bar.advance((done as f64, most as f64), &part, what);
        if stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let found = search(start, tasks, options, budget, file_bytes, listen, |_, _| Ok(()));
    bar.finish();
    found
}

/// The search as part of the report.
pub fn record(args: &Zip, budget: &Budget, found: &SearchResult) -> BudgetRecord {
    let size = args.target_size.map(|size| match size {
        Size::Part(part) => TargetSize::Part(part),
        Size::Bytes(bytes) => TargetSize::Bytes(bytes),
    });
    BudgetRecord::new(budget, size, found)
}

/// The points as a table, smallest first.
pub fn table(found: &SearchResult, tasks: &[TaskData], bytes_before: u64) -> String {
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
    let mut order: Vec<(usize, &BudgetPoint)> = found.points.iter().enumerate().collect();
    order.sort_by_key(|(i, p)| (p.parameters, *i));
    for (i, p) in order {
        let mark = if i == found.chosen { "* chosen" } else { "" };
        let part = format!("{:.1}", 100.0 * p.file_bytes as f64 / bytes_before.max(1) as f64);
        let (file, sharing) = (terminal::bytes(p.file_bytes), format!("{:.3}", p.sharing));
        let mut row = vec![mark.to_owned(), file, part, sharing, p.iterations.to_string()];
        row.extend(of(&p.increase, |x| format!("{x:+.2}")));
        row.extend(p.agreement.iter().map(|x| format!("{x:.2}")));
        rows.push(row);
    }
    let held: Vec<String> = found.held_out.iter().map(ToString::to_string).collect();
    let mut text = format!("{}\nmeasured on {} held-out training samples", terminal::table(&rows), held.join(" and "));
    if let Some(chosen) = found.points.get(found.chosen) {
        let points = of(&chosen.standard_error, |x| format!("{x:.2}")).join(" and ");
        let points = if points.is_empty() { points } else { format!("{points} points lost, ") };
        let agreement: Vec<String> = chosen.agreement_error.iter().map(|x| format!("{x:.2}")).collect();
        let agreement = agreement.join(" and ");
        text += &format!("; standard errors at the chosen point: {points}{agreement} points of agreement");
    }
    text
}
