//! What the user reads: tables on stdout, errors and notes on stderr.

use crate::settings::as_flags;
use anstyle::{AnsiColor, Style};
use mtz::error::Error;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;

/// The exit code of errors.
const FAILED: u8 = 2;

/// Heads of tables.
const HEAD: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const HELP: Style = AnsiColor::Cyan.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const SO_SO: Style = AnsiColor::Yellow.on_default();
const POOR: Style = AnsiColor::Red.on_default();

/// Why results could not be printed, if they could not.
static UNPRINTED: OnceLock<String> = OnceLock::new();

/// Prints results. A reader that has gone away (`| head`) is no error; what else goes wrong is reported at the end
/// ([`unprinted`]). Colours are left out where they are not wanted: in files, pipes, and with `NO_COLOR`.
pub fn result(text: &str) {
    let mut out = anstream::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => drop(UNPRINTED.set(e.to_string())),
        _ => {}
    }
}

/// The error of a program whose results did not reach stdout.
pub fn unprinted() -> Option<Error> {
    let why = UNPRINTED.get()?;
    Some(Error::usage(format!("the results could not be printed: {why}")).hint("is the disk behind stdout full?"))
}

/// Prints talk.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", as_flags(text));
}

/// Prints what deserves a second look.
pub fn warning(text: &str) {
    note(&format!("{WARNING}warning:{WARNING:#} {text}"));
}

/// Reports an error, once.
pub fn error(error: &Error, json: bool) -> ExitCode {
    if json {
        let (text, hint) = (error.to_string(), error.hint_text().map(as_flags));
        result(&json!({ "error": as_flags(&text), "hint": hint }).to_string());
    } else {
        note(&format!("{BAD}error:{BAD:#} {error}"));
        if let Some(hint) = error.hint_text() {
            note(&format!("{HELP}hint:{HELP:#} {hint}"));
        }
    }
    ExitCode::from(FAILED)
}

/// Reports a wrong command line, or shows help and version.
pub fn usage(error: &clap::Error, json: bool) -> ExitCode {
    if json && error.use_stderr() {
        let text = error.to_string();
        // clap's message ends where it explains the usage.
        let lines = text.lines().map(str::trim).take_while(|l| !l.starts_with("Usage:")).filter(|l| !l.is_empty());
        let message = lines.collect::<Vec<_>>().join(" ");
        let message = message.trim_start_matches("error: ");
        let command = std::env::args().nth(1).filter(|a| a.chars().all(|c| c.is_ascii_lowercase())).unwrap_or_default();
        let help = format!("mtz {command} --help").replace("  ", " ");
        result(&json!({ "error": message, "hint": format!("{help} shows how it is used") }).to_string());
        return ExitCode::from(FAILED);
    }
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

/// The most memory the program has had, where the system tells.
pub fn peak_memory() -> Option<u64> {
    status("VmHWM:")
}

/// The memory the program has now.
pub fn resident_memory() -> Option<u64> {
    status("VmRSS:")
}

fn status(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// How a cell is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    Plain,
    Good,
    SoSo,
    Poor,
}

impl Tint {
    /// By what was lost, in points.
    pub fn of_change(cell: &str) -> Self {
        match cell.parse::<f64>() {
            Ok(lost) if lost <= 0.1 => Self::Good,
            Ok(lost) if lost <= 0.5 => Self::SoSo,
            Ok(_) => Self::Poor,
            Err(_) => Self::Plain,
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => GOOD,
            Self::SoSo => SO_SO,
            Self::Poor => POOR,
        }
    }
}

/// Lines of cells as a table, its first line as a head.
pub fn table(rows: &[Vec<String>]) -> String {
    tinted_table(rows, |_, _| Tint::Plain)
}

/// The same with colours, by row and column.
pub fn tinted_table(rows: &[Vec<String>], tint: impl Fn(usize, usize) -> Tint) -> String {
    let style = |row: usize, column: usize| if row == 0 { HEAD } else { tint(row, column).style() };
    let lines = aligned(rows).into_iter().enumerate().map(|(i, cells)| {
        let cells = cells.into_iter().enumerate().map(|(k, cell)| {
            let style = style(i, k);
            format!("{style}{cell}{style:#}")
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What a line of a table may take.
const LINE: usize = 80;

fn width(text: &str) -> usize {
    text.chars().count()
}

/// A text without its middle, if it is longer than `most`.
fn shortened(text: &str, most: usize) -> String {
    let excess = width(text).saturating_sub(most);
    if excess == 0 {
        return text.to_owned();
    }
    let head: String = text.chars().take(most / 2).collect();
    let tail: String = text.chars().skip(most / 2 + excess + 1).collect();
    format!("{head}…{tail}")
}

/// Names in at most so many characters that still differ: without what all begin with, without their middle, or with a
/// number.
pub fn short_names(names: &[&str], most: usize) -> Vec<String> {
    let whole = || names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    if names.iter().all(|n| width(n) <= most) {
        return whole();
    }
    let first: Vec<char> = names.first().map_or_else(Vec::new, |n| n.chars().collect());
    let alike = |n: &&str| n.chars().zip(&first).take_while(|(a, b)| a == *b).count();
    let common = names.iter().map(alike).min().unwrap_or(0);
    let ends = names.iter().map(|n| n.chars().skip(common).collect::<String>());
    let ends: Vec<String> = if names.len() > 1 { ends.collect() } else { whole() };
    let short: Vec<String> = ends.iter().map(|n| shortened(n, most)).collect();
    let distinct: std::collections::BTreeSet<&String> = short.iter().collect();
    if distinct.len() == short.len() && short.iter().all(|n| !n.is_empty()) {
        return short;
    }
    let numbered = |(i, n): (usize, &&str)| {
        let number = format!("~{}", i + 1);
        n.chars().take(most.saturating_sub(number.len())).collect::<String>() + &number
    };
    names.iter().enumerate().map(numbered).collect()
}

/// Cells filled up to the width of their column: the first column to the left, the others to the right. Long first
/// cells lose their middle, so that lines fit a narrow terminal.
fn aligned(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    /// What a first cell may always have.
    const LEAST: usize = 12;
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| width(cell)).max().unwrap_or(0);
    let others = |without: usize| (0..columns).filter(|i| *i != without).map(|i| widest(i) + 2).sum::<usize>();
    let first = LINE.saturating_sub(others(0)).max(LEAST);
    let cell = |row: &Vec<String>, i: usize| match row.get(i) {
        Some(text) if i == 0 => shortened(text, first),
        Some(text) => text.clone(),
        None => String::new(),
    };
    let widths: Vec<usize> =
        (0..columns).map(|i| rows.iter().map(|row| width(&cell(row, i))).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let fill = |(i, w): (usize, &usize)| {
            let text = cell(row, i);
            if i == 0 { format!("{text:<w$}") } else { format!("{text:>w$}") }
        };
        widths.iter().enumerate().map(fill).collect()
    };
    rows.iter().map(line).collect()
}

/// A list that goes on in further lines, so that it fits a narrow terminal.
pub fn wrapped(label: &str, items: &[String]) -> String {
    let (mut text, mut used) = (label.to_owned(), width(label));
    for (i, item) in items.iter().enumerate() {
        let item = if i + 1 < items.len() { format!("{item}, ") } else { item.clone() };
        if used > width(label) && used + width(item.trim_end()) > LINE {
            text = format!("{}\n{}", text.trim_end(), " ".repeat(width(label)));
            used = width(label);
        }
        used += width(&item);
        text += &item;
    }
    text
}

/// A number of each task: `2×300` where all have as many, else `300+200`.
pub fn each(numbers: &[usize]) -> String {
    match numbers {
        [one, rest @ ..] if rest.iter().all(|n| n == one) => format!("{}×{one}", numbers.len()),
        _ => numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
    }
}

/// `1.1 MB`, `553 MB`: millions of bytes, as file managers show them.
pub fn bytes(n: u64) -> String {
    mtz::report::in_bytes(n)
}

/// `12 s`, `3 min`, `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    mtz::report::in_time(seconds)
}

/// A number with thin groups of three digits: 1 234 567.
pub fn grouped(n: u64) -> String {
    mtz::report::in_threes(n, ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_shorten() {
        let long = "a".repeat(60) + &"b".repeat(60);
        let rows = [vec!["name".into(), "n".into()], vec![long, "1 000".into()]];
        let lines: Vec<String> = aligned(&rows).into_iter().map(|cells| cells.join("  ")).collect();
        assert!(lines[1].contains("aaa…bbb") && lines.iter().all(|l| width(l) == LINE), "{lines:?}");
    }

    #[test]
    fn short_names_stay_distinct() {
        assert_eq!(short_names(&["age", "gender"], 8), ["age", "gender"]);
        assert_eq!(short_names(&["lenet-300-100-a", "lenet-300-100-b"], 8), ["a", "b"]);
        assert_eq!(short_names(&["face", "face-and-gender"], 8), ["face~1", "face-a~2"]);
        let long = ["the same beginning, one end", "another beginning, one end"];
        let short = short_names(&long, 9);
        assert!(short[0] != short[1] && short.iter().all(|n| width(n) <= 9), "{short:?}");
    }

    #[test]
    fn lists_go_on_in_the_next_line() {
        let text = wrapped("input    ", &["x".repeat(60), "y".repeat(30)]);
        assert_eq!(text.lines().nth(1), Some(format!("         {}", "y".repeat(30)).as_str()));
        assert!(text.lines().all(|l| width(l) <= LINE), "{text}");
    }

    #[test]
    fn changes_have_colours() {
        assert_eq!(
            ["+0.10", "-3.00", "+0.30", "+0.51", "-"].map(Tint::of_change),
            [Tint::Good, Tint::Good, Tint::SoSo, Tint::Poor, Tint::Plain]
        );
    }
}
