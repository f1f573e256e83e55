//! The search for a budget: size against what was lost.

use super::super::budget::{BudgetPointRecord, BudgetRecord};
use super::super::by_name::ByName;
use super::super::run_report::RunReport;
use super::{figure, fixed, short_name, texts};
use crate::chart::{Chart, Point, Series};

/// What the points are judged by.
struct Measure {
    what: &'static str,
    of: fn(&BudgetPointRecord) -> &ByName<Option<f64>>,
    error: fn(&BudgetPointRecord) -> &ByName<Option<f64>>,
    limit: Option<(f64, String)>,
}

fn measure(budget: &BudgetRecord) -> Measure {
    let labelled = budget.points.iter().any(|p| p.error_increase.values().any(Option::is_some));
    if labelled && budget.min_agreement.is_none() {
        return Measure {
            what: "points lost",
            of: |p| &p.error_increase,
            error: |p| &p.standard_error,
            limit: budget.max_error_increase.map(|limit| (limit, "allowed".to_owned())),
        };
    }
    Measure {
        what: "agreement, %",
        of: |p| &p.agreement,
        error: |p| &p.agreement_error,
        limit: budget.min_agreement.map(|limit| (limit, "asked for".to_owned())),
    }
}

pub(super) fn section(page: &mut String, run: &RunReport, budget: &BudgetRecord) {
    let measure = measure(budget);
    let mut points: Vec<&BudgetPointRecord> = budget.points.iter().collect();
    points.sort_by(|a, b| a.size.total_cmp(&b.size));
    if points.is_empty() {
        return;
    }
    let any_retrained = points.iter().any(|p| p.iterations > 0);
    let mut series = Vec::new();
    for name in run.tasks.names() {
        for retrained in [false, true] {
            let of = |p: &&&BudgetPointRecord| {
                let y = figure((measure.of)(p), name)?;
                let spread = figure((measure.error)(p), name).map(|error| (y - error, y + error));
                Some(Point { x: 100.0 * p.size, y, spread })
            };
            // Where nothing is shared there is nothing to retrain: both curves end there.
            let is_own = |p: &BudgetPointRecord| (p.iterations > 0) == retrained || (any_retrained && p.sharing <= 0.0);
            let own = points.iter().filter(|p| is_own(p));
            let points: Vec<Point> = own.filter_map(|p| of(&p)).collect();
            let name = format!("{} {}", short_name(name), if retrained { "retrained" } else { "merged" });
            series.extend((!points.is_empty()).then_some(Series { name, points, dashed: any_retrained && !retrained }));
        }
    }
    let chart = Chart {
        x_label: "size, % of the separate networks".into(),
        y_label: measure.what.to_owned(),
        place_mark: points.iter().find(|p| p.chosen).map(|p| (100.0 * p.size, "chosen".to_owned())),
        series,
        mark: measure.limit.clone(),
        ..Chart::default()
    };
    super::section(page, "The budget", &about(budget), &chart, &rows(run, &measure, &points));
}

/// What was asked for, and on what it was judged.
fn about(budget: &BudgetRecord) -> String {
    let margin = match budget.margin {
        margin if margin > 0.0 => format!(" with {margin} standard errors to spare"),
        _ => String::new(),
    };
    let asked = [
        budget.max_error_increase.map(|limit| format!("at most {limit} points of error lost{margin}")),
        budget.min_agreement.map(|limit| format!("at least {limit} % agreement{margin}")),
        budget.target_size.map(|size| size.to_string()),
        budget.min_sharing.map(|least| format!("at least {least} networks shared")),
    ];
    let asked: Vec<String> = asked.into_iter().flatten().collect();
    let held_out: Vec<String> = budget.held_out.values().take(32).map(ToString::to_string).collect();
    format!(
        "Asked for: {}. Every point is a way to share, measured on {} training samples that were held out; vertical \
         lines are standard errors.",
        asked.join(", "),
        held_out.join(" and ")
    )
}

fn rows(run: &RunReport, measure: &Measure, points: &[&BudgetPointRecord]) -> Vec<Vec<String>> {
    let mut head = texts(["size %", "sharing", "iterations", "chosen", "best of its size"]);
    head.extend(run.tasks.names().map(|name| format!("{}: {}", short_name(name), measure.what)));
    let yes = |flag: bool| if flag { "yes".to_owned() } else { String::new() };
    let row = |p: &&BudgetPointRecord| -> Vec<String> {
        let figures = run.tasks.names().map(|name| fixed(figure((measure.of)(p), name), 2));
        let facts = [fixed(Some(100.0 * p.size), 1), fixed(Some(p.sharing), 3), p.iterations.to_string()];
        facts.into_iter().chain([yes(p.chosen), yes(p.pareto)]).chain(figures).collect()
    };
    std::iter::once(head).chain(points.iter().map(row)).collect()
}
