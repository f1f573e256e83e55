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

/// Prints results. A reader that has gone away (`| head`) is no error. Colours are left out where they are not wanted: in files, pipes, and with `NO_COLOR`.
pub fn result(text: &str) {
    let mut out = anstream::stdout().lock();
    let _ = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
}

/// Prints talk.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
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
        result(&json!({ "error": message, "hint": "mtz --help shows how it is used" }).to_string());
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
    let bar = ProgressBar::with_draw_target(None, target);
    let template = "{bar:10} {msg}, {elapsed} so far";
    // A stage may take minutes; that something is going on should be seen all the same.
    if !bar.is_hidden() {
        bar.enable_steady_tick(std::time::Duration::from_secs(1));
    }
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
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

/// Writes a text file so that a reader never sees half of it.
pub fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        Error::io(path, &e)
    })
}

/// Lines of cells as a table, its first line as a head.
pub fn table(rows: &[Vec<String>]) -> String {
    let text = aligned(rows);
    let (head, rest) = text.split_at(text.find('\n').unwrap_or(text.len()));
    format!("{HEAD}{head}{HEAD:#}{rest}")
}

/// The first column to the left, the others to the right. Long first cells lose their middle, so that lines fit a narrow terminal.
fn aligned(rows: &[Vec<String>]) -> String {
    const LINE: usize = 80;
    /// What a first cell may always have.
    const LEAST: usize = 12;
    let width = |cell: &str| cell.chars().count();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| width(cell)).max().unwrap_or(0);
    let first = LINE.saturating_sub((1..columns).map(|i| widest(i) + 2).sum()).max(LEAST);
    let shorten = |cell: &str| {
        let excess = width(cell).saturating_sub(first);
        if excess == 0 {
            return cell.to_owned();
        }
        let head: String = cell.chars().take(first / 2).collect();
        let tail: String = cell.chars().skip(first / 2 + excess + 1).collect();
        format!("{head}…{tail}")
    };
    let cell = |row: &Vec<String>, i: usize| match row.get(i) {
        Some(text) if i == 0 => shorten(text),
        Some(text) => text.clone(),
        None => String::new(),
    };
    let widths: Vec<usize> =
        (0..columns).map(|i| rows.iter().map(|row| width(&cell(row, i))).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = widths.iter().enumerate().map(|(i, w)| {
            let text = cell(row, i);
            if i == 0 { format!("{text:<w$}") } else { format!("{text:>w$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
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
        let text = aligned(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.first().map(|l| l.chars().count()), lines.last().map(|l| l.chars().count()));
        assert!(text.contains("aaa…bbb") && lines.iter().all(|l| l.chars().count() == 80), "{text}");
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
