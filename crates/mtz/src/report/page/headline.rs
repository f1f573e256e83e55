//! The answer: what was saved and what it cost, as a sentence, a picture and numbers.

use super::super::date;
use super::super::run_report::{MeasuredOn, RunReport, TaskRecord};
use super::super::text::in_time;
use super::{fixed, grouped, label, short_name, table, texts};
use crate::chart::{escape, without_middle};
use crate::evaluate::Kind;
use std::fmt::Write;

/// Colours for what only one task has (`style.css`).
pub(super) const OWN_COLOURS: usize = 5;
/// More tasks than this are summed up.
const SENTENCES: usize = 4;

/// The names of the tasks.
pub(super) fn names(run: &RunReport) -> String {
    run.tasks.names().map(|name| without_middle(name, 40)).collect::<Vec<_>>().join(", ")
}

/// Date, headline, picture.
pub(super) fn write(page: &mut String, run: &RunReport) {
    let mut facts = vec![label(&names(run))];
    facts.extend(run.date.as_deref().and_then(date::in_words).map(|date| escape(&date)));
    if run.seconds > 0.0 {
        facts.push(escape(&in_time(run.seconds)));
    }
    let facts: Vec<String> = facts.into_iter().map(|fact| format!("<span>{fact}</span>")).collect();
    let _ = writeln!(
        page,
        "<p class=\"faint facts\">{}</p>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>",
        facts.join(" · "),
        escape(&what_was_saved(run)),
        escape(&what_it_cost(run)),
    );
    sizes(page, run);
}

/// `Two networks in one file: 1.13 MB instead of 2.01 MB`
fn what_was_saved(run: &RunReport) -> String {
    let count = run.tasks.len();
    let words = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten"];
    let count = words.get(count).map_or_else(|| count.to_string(), |word| (*word).to_owned());
    let networks = if run.tasks.len() == 1 { "network" } else { "networks" };
    let (before, after) = (run.file_bytes.before, run.file_bytes.after);
    if before == 0 || after == 0 {
        let (before, after) = (run.parameters.before as u64, run.parameters.after as u64);
        return format!("{count} {networks} in one: {} parameters instead of {}", grouped(after), grouped(before));
    }
    format!("{count} {networks} in one file: {} instead of {}", megabytes(after), megabytes(before))
}

/// `56 % of the size. age lost 0.21 points (12.4 → 12.6 % wrong), gender keeps 99.2 % of its answers.`
fn what_it_cost(run: &RunReport) -> String {
    let parameters = (run.parameters.before as u64, run.parameters.after as u64);
    let (before, after) = Some((run.file_bytes.before, run.file_bytes.after)).filter(|f| f.0 > 0).unwrap_or(parameters);
    let mut text = match before {
        0 => String::new(),
        _ if after >= before => "Nothing was saved. ".to_owned(),
        _ => format!("{:.0}\u{a0}% of the size. ", 100.0 * after as f64 / before as f64),
    };
    text += &match run.tasks.len() {
        0 => String::new(),
        1..=SENTENCES => run.tasks.iter().map(|(name, task)| cost(name, task)).collect::<Vec<_>>().join(", ") + ".",
        _ => cost_of_many(run),
    };
    if let Some(budget) = &run.budget {
        text += if budget.met { " The budget is met." } else { " The budget is not met." };
    }
    text
}

/// What a task lost, without labels what it kept.
fn cost(name: &str, task: &TaskRecord) -> String {
    let name = without_middle(name, 40);
    match (task.error_before, task.error_after, task.agreement_after) {
        (Some(before), Some(after), _) => {
            let change = after - before;
            let (was, is) = (percent(before), percent(after));
            match change {
                _ if was == is => format!("{name} lost nothing ({is}\u{a0}% wrong)"),
                _ if change > 0.0 => format!("{name} lost {change:.2} points ({was} → {is}\u{a0}% wrong)"),
                _ => format!("{name} gained {:.2} points ({was} → {is}\u{a0}% wrong)", -change),
            }
        }
        (_, _, Some(agreement)) if task.kind == Some(Kind::Values) => {
            format!("{name} agrees {agreement:.1}\u{a0}% with its original")
        }
        (_, _, Some(agreement)) => format!("{name} keeps {agreement:.1}\u{a0}% of its answers"),
        _ => format!("{name} was not measured"),
    }
}

/// Mean and worst of many tasks.
fn cost_of_many(run: &RunReport) -> String {
    let increase = |task: &TaskRecord| task.error_after.zip(task.error_before).map(|(after, before)| after - before);
    let lost: Vec<(&str, &TaskRecord, f64)> =
        run.tasks.iter().filter_map(|(name, task)| Some((name, task, increase(task)?))).collect();
    let kept = run.tasks.iter().filter_map(|(name, task)| Some((name, task, -task.agreement_after?)));
    let labelled = lost.len() == run.tasks.len();
    let all = if labelled { lost } else { kept.collect() };
    let Some((name, task, _)) = all.iter().max_by(|a, b| a.2.total_cmp(&b.2)) else {
        return "The tasks were not measured.".to_owned();
    };
    let mean = all.iter().map(|one| one.2).sum::<f64>() / all.len() as f64;
    let worst = cost(name, task);
    match labelled {
        true => format!("On average the error changed by {mean:+.2} points. The worst: {worst}."),
        false => format!("On average {:.1}\u{a0}% of the answers are kept. The worst: {worst}.", -mean),
    }
}

/// The separate networks and the joint model as bars, shared weights in a colour of their own.
fn sizes(page: &mut String, run: &RunReport) {
    let (before, after) = (run.parameters.before as u64, run.parameters.after as u64);
    let shared = (run.parameters.shared as u64).min(after);
    let longest = before.max(after);
    if longest == 0 {
        return;
    }
    let part = |class: &str, count: u64, text: &str| {
        let percent = 100.0 * count as f64 / longest as f64;
        let thin = if percent < 12.0 { " thin" } else { "" };
        let shown = if percent < 12.0 { "" } else { text };
        let title = format!("{text}: {} parameters", grouped(count));
        format!("<span class=\"{class}{thin}\" style=\"width:{percent:.2}%\" title=\"{title}\">{shown}</span>")
    };
    let known: Option<Vec<u64>> = run.tasks.values().map(|task| task.parameters.map(|n| n as u64)).collect();
    let known = known.filter(|all| all.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)) == Some(before));
    let separate: String = match known {
        Some(all) => {
            let named = run.tasks.names().zip(all).enumerate();
            named.map(|(t, (name, n))| part(&format!("o{}", t % OWN_COLOURS), n, &label(name))).collect()
        }
        None => part("", before, "separate networks"),
    };
    let joint = part("shared", shared, "shared") + &part("", after - shared, "private");
    let rest = format!(
        "<span class=\"rest thin\" style=\"width:{:.2}%\"></span>",
        100.0 * (longest - after) as f64 / longest as f64
    );
    let _ = write!(
        page,
        "<div class=\"sizes\"><div>before</div><div class=\"bar\">{separate}</div>\n\
         <div>after</div><div class=\"bar\">{joint}{rest}</div></div>\n\
         <p class=\"faint keys\"><span><span class=\"key shared\"></span>{} parameters shared</span> \
         <span><span class=\"key\" style=\"background:var(--own)\"></span>{} private</span> \
         <span>{} before</span></p>\n",
        grouped(shared),
        grouped(after - shared),
        grouped(before),
    );
}

/// The same as numbers.
pub(super) fn tables(page: &mut String, run: &RunReport) {
    page.push_str("<h2>In numbers</h2>\n");
    if run.tasks.values().any(|task| task.error_before.is_some()) {
        let mut rows = vec![texts(["error, %", "before", "merged", "after", "change"])];
        for (name, task) in run.tasks.iter() {
            let change = task.error_after.zip(task.error_before).map(|(after, before)| after - before);
            let errors = [task.error_before, task.error_zipped, task.error_after].map(|error| fixed(error, 2));
            let change = change.map_or_else(|| "-".to_owned(), |change| format!("{change:+.2}"));
            rows.push([short_name(name)].into_iter().chain(errors).chain([change]).collect());
        }
        table(page, &rows);
    }
    let mut rows = vec![texts(["agreement, %", "merged", "after", "answers", "samples"])];
    for (name, task) in run.tasks.iter() {
        let guess = if task.kind_is_known == Some(false) { " (a guess)" } else { "" };
        let held_out = if task.part == Some(MeasuredOn::HeldOutTenth) { " held out" } else { "" };
        rows.push(vec![
            short_name(name),
            fixed(task.agreement_zipped, 2),
            fixed(task.agreement_after, 2),
            task.kind.map_or_else(|| "-".to_owned(), |kind| format!("{kind}{guess}")),
            format!("{}{held_out}", grouped(task.samples.unwrap_or(0) as u64)),
        ]);
    }
    table(page, &rows);
    page.push_str(
        "<p class=\"faint\">Agreement compares with the original networks. For classes and attributes it is the part \
         of the answers that are the same; for values it is 100\u{a0}% less the rms difference relative to the \
         deviation of the original's answers.</p>\n",
    );
    table(page, &size_rows(run));
}

fn size_rows(run: &RunReport) -> Vec<Vec<String>> {
    let part = |now: u64, before: u64| fixed((before > 0).then(|| 100.0 * now as f64 / before as f64), 1);
    let row = |what: &str, before: u64, after: u64, text: fn(u64) -> String| {
        vec![what.to_owned(), text(before), text(after), part(after, before)]
    };
    let p = &run.parameters;
    let mut rows = vec![texts(["size", "before", "after", "%"])];
    if run.file_bytes.before > 0 {
        rows.push(row("files", run.file_bytes.before, run.file_bytes.after, megabytes));
    }
    rows.push(row("parameters", p.before as u64, p.after as u64, grouped));
    rows.push(vec!["of them shared".to_owned(), String::new(), grouped(p.shared as u64), String::new()]);
    if p.nonzero_after > 0 && p.nonzero_after < p.after {
        rows.push(row("not zero", p.nonzero_before as u64, p.nonzero_after as u64, grouped));
    }
    rows
}

/// `1.13 MB`: three digits, so that small savings show.
fn megabytes(bytes: u64) -> String {
    let (unit, size) = if bytes < 1_000_000 { ("kB", 1e-3 * bytes as f64) } else { ("MB", 1e-6 * bytes as f64) };
    let digits = if size < 10.0 { 2 } else { usize::from(size < 100.0) };
    format!("{size:.digits$}\u{a0}{unit}")
}

/// `1.58`, `12.4`: as many digits as mean something.
fn percent(error: f64) -> String {
    fixed(Some(error), if error.abs() < 10.0 { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_what_a_task_lost() {
        let task = |before, after, agreement| TaskRecord {
            error_before: before,
            error_after: after,
            agreement_after: agreement,
            ..TaskRecord::default()
        };
        assert_eq!(
            cost("age", &task(Some(12.4), Some(12.61), None)),
            "age lost 0.21 points (12.4 → 12.6\u{a0}% wrong)"
        );
        assert_eq!(
            cost("age", &task(Some(1.58), Some(1.5), None)),
            "age gained 0.08 points (1.58 → 1.50\u{a0}% wrong)"
        );
        assert_eq!(cost("age", &task(Some(1.5), Some(1.5), None)), "age lost nothing (1.50\u{a0}% wrong)");
        assert_eq!(cost("gender", &task(None, None, Some(99.2))), "gender keeps 99.2\u{a0}% of its answers");
        assert_eq!(cost("gender", &task(None, None, None)), "gender was not measured");
    }
}
