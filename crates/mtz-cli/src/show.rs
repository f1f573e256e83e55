//! What the user sees: tables on stdout, errors and progress on stderr.

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mtz::error::Error;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

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

/// Prints results. A reader that has gone away (`| head`) is no error. Colours are left out where they are not wanted: in files, pipes, and with `NO_COLOR`.
pub fn result(text: &str) {
    let mut out = anstream::stdout().lock();
    let _ = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
}

/// Prints talk.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Prints what deserves a second look.
pub fn warning(text: &str) {
    note(&format!("{WARNING}warning:{WARNING:#} {text}"));
}

/// Reports an error, once.
pub fn error(error: &Error, json: bool) -> ExitCode {
    if json {
        result(&json!({ "error": error.to_string(), "hint": error.hint_text() }).to_string());
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

/// A progress bar for `total` steps, on a terminal only.
pub fn progress(total: usize, quiet: bool, unit: &str) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(u64::try_from(total).unwrap_or(u64::MAX)), target);
    let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left");
    bar.with_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A progress bar for training, whose message tells loss and rate.
pub fn training(quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target);
    let template = "{bar:20} {pos}/{len} {msg}, {eta} left";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A progress bar for stages, whose message says what is being done ([`advance`]).
pub fn stages(quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:10} {msg}, {elapsed} so far");
    let bar = ProgressBar::with_draw_target(Some(1), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message("beginning");
    // A stage may take minutes; that something is going on should be seen all the same.
    if !bar.is_hidden() {
        bar.enable_steady_tick(std::time::Duration::from_secs(1));
    }
    bar
}

/// Moves a bar of stages on, `done` of `all` in any unit. What is left is reckoned from the whole time so far: stages come in steps of very different lengths.
pub fn advance(bar: &ProgressBar, (done, all): (f64, f64), what: &str) {
    /// Before this part is done, nobody knows how long it will take.
    const TELLING: f64 = 0.02;
    const STEPS: f64 = 1e4;
    let part = (done / all.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    bar.set_length(STEPS as u64);
    bar.set_position((STEPS * part) as u64);
    let left = (1.0 - part) / part.max(TELLING) * bar.elapsed().as_secs_f64();
    let left = if part < TELLING { String::new() } else { format!(", {} left", duration(left)) };
    bar.set_message(format!("{what}{left}"));
}

/// How fast iterations go by.
#[derive(Default)]
pub struct Pace {
    /// The first that was seen, and when.
    first: Option<(usize, std::time::Instant)>,
}

impl Pace {
    /// `, 3.4/s`, from the second on; `done` counts from the beginning of a retraining.
    pub fn at(&mut self, done: usize) -> String {
        match self.first {
            Some((first, begin)) if done > first => {
                format!(", {:.1}/s", (done - first) as f64 / begin.elapsed().as_secs_f64().max(1e-9))
            }
            _ => {
                self.first = Some((done, std::time::Instant::now()));
                String::new()
            }
        }
    }
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

/// Fails before any work begins if the output could not be written.
pub fn check_output(path: &Path, force: bool) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::usage(format!("{} is a folder", path.display())).hint("give the name of a file"));
    }
    if path.exists() && !force {
        return Err(Error::usage(format!("{} exists", path.display())).hint("--force replaces it"));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let probe = folder.join(format!(".mtz-{}", std::process::id()));
    std::fs::File::create_new(&probe)
        .map_err(|e| Error::io(path, &e).hint("is there such a folder, and may you write there?"))?;
    std::fs::remove_file(&probe).map_err(|e| Error::io(&probe, &e))
}

/// Fails before any work begins if one output would replace the other.
pub fn check_different(one: &Path, other: &Path) -> Result<(), Error> {
    let place = |path: &Path| {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        (folder.canonicalize().unwrap_or_else(|_| folder.to_owned()), path.file_name().map(ToOwned::to_owned))
    };
    if place(one) == place(other) {
        let name = one.display();
        return Err(Error::usage(format!("{name} cannot be both outputs")).hint("give the two files different names"));
    }
    Ok(())
}

/// Writes a text file so that a reader never sees half of it.
pub fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        Error::io(path, &e)
    })
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

/// Names in at most so many characters that still differ: without what all begin with, without their middle, or with a number.
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
    let (unit, size) = if n < 1_000_000 { ("kB", 1e3) } else { ("MB", 1e6) };
    let x = n as f64 / size;
    if x < 100.0 { format!("{x:.1} {unit}") } else { format!("{x:.0} {unit}") }
}

/// `12 s`, `3 min`, `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0..=1 if seconds < 90.0 => format!("{seconds:.0} s"),
        0..=59 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
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
    fn changes_have_colours_and_sizes_units() {
        assert_eq!(
            ["+0.10", "-3.00", "+0.30", "+0.51", "-"].map(Tint::of_change),
            [Tint::Good, Tint::Good, Tint::SoSo, Tint::Poor, Tint::Plain]
        );
        assert_eq!([999, 1_070_496, 553_000_000].map(bytes), ["1.0 kB", "1.1 MB", "553 MB"]);
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
