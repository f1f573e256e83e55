//! Progress of long work on stderr: a bar on a terminal; where there is none, a line for every finished part and every
//! minute.

use crate::terminal::{duration, note};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A line at least so often.
const MINUTE: Duration = Duration::from_secs(60);

/// A bar for `total` steps, on a terminal only.
pub fn steps(total: usize, quiet: bool, unit: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(u64::try_from(total).unwrap_or(u64::MAX)), target(quiet));
    let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left");
    bar.with_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn target(quiet: bool) -> ProgressDrawTarget {
    if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

/// Progress of work that comes in parts of very different lengths.
pub struct Stages {
    bar: ProgressBar,
    /// Whether lines take the place of the bar.
    lines: bool,
    begin: Cell<Instant>,
    last_line: Cell<Instant>,
    /// The part that is being done.
    part: RefCell<String>,
}

impl Stages {
    /// Nothing is shown if `quiet`.
    pub fn new(quiet: bool) -> Self {
        let style = ProgressStyle::with_template("{bar:10} {msg}, {elapsed} so far");
        let bar = ProgressBar::with_draw_target(Some(1), target(quiet))
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_message("beginning");
        // A stage may take minutes; that something is going on should be seen all the same.
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        let now = Instant::now();
        Self {
            bar,
            lines: !quiet && !std::io::stderr().is_terminal(),
            begin: Cell::new(now),
            last_line: Cell::new(now),
            part: RefCell::default(),
        }
    }

    /// Whether anybody reads it.
    pub fn is_shown(&self) -> bool {
        self.lines || !self.bar.is_hidden()
    }

    /// Time counts from here on.
    pub fn restart(&self) {
        self.bar.reset_elapsed();
        self.begin.set(Instant::now());
    }

    /// `done` of `all`, in any unit; `part` is the part under way, `what` is being done of it. What is left is reckoned
    /// from the whole time so far.
    pub fn advance(&self, (done, all): (f64, f64), part: &str, what: &str) {
        /// Before this part is done, nobody knows how long it will take.
        const TELLING: f64 = 0.02;
        const STEPS: f64 = 1e4;
        let fraction = (done / all.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        let elapsed = self.begin.get().elapsed().as_secs_f64();
        let left = (1.0 - fraction) / fraction.max(TELLING) * elapsed;
        let left = if fraction < TELLING || all <= 0.0 { String::new() } else { format!(", {} left", duration(left)) };
        self.bar.set_length(STEPS as u64);
        self.bar.set_position((STEPS * fraction) as u64);
        self.bar.set_message(format!("{part}: {what}{left}"));
        if !self.lines {
            return;
        }
        let before = self.part.replace(part.to_owned());
        if before != part && !before.is_empty() {
            self.line(&format!("{before}: done, {} so far{left}", duration(elapsed)));
        } else if self.last_line.get().elapsed() >= MINUTE {
            self.line(&format!("{part}: {what}, {} so far{left}", duration(elapsed)));
        }
    }

    fn line(&self, text: &str) {
        note(text);
        self.last_line.set(Instant::now());
    }

    /// All is done.
    pub fn finish(&self) {
        let part = self.part.take();
        if self.lines && !part.is_empty() {
            self.line(&format!("{part}: done, {} in all", duration(self.begin.get().elapsed().as_secs_f64())));
        }
        self.bar.finish_and_clear();
    }
}

/// Progress of a training: a bar whose message tells loss and rate, or a line a minute.
pub struct Training {
    bar: ProgressBar,
    lines: bool,
    last_line: Cell<Instant>,
}

impl Training {
    /// Nothing is shown if `quiet`.
    pub fn new(quiet: bool) -> Self {
        let template = "{bar:20} {pos}/{len} {msg}, {eta} left";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(None, target(quiet)).with_style(style);
        let lines = !quiet && !std::io::stderr().is_terminal();
        Self { bar, lines, last_line: Cell::new(Instant::now()) }
    }

    /// After `step` of `total` steps.
    pub fn advance(&self, (step, total): (usize, usize), message: String) {
        if self.lines && self.last_line.get().elapsed() >= MINUTE {
            note(&format!("step {step} of {total}: {message}"));
            self.last_line.set(Instant::now());
        }
        self.bar.set_length(total as u64);
        self.bar.set_position(step as u64);
        self.bar.set_message(message);
    }

    /// All is done.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// How fast iterations go by.
#[derive(Default)]
pub struct Rate {
    /// The first that was seen, and when.
    first: Option<(usize, Instant)>,
}

impl Rate {
    /// `, 3.4/s`, from the second on; `done` counts from the beginning of a retraining.
    pub fn at(&mut self, done: usize) -> String {
        match self.first {
            Some((first, begin)) if done > first => {
                format!(", {:.1}/s", (done - first) as f64 / begin.elapsed().as_secs_f64().max(1e-9))
            }
            _ => {
                self.first = Some((done, Instant::now()));
                String::new()
            }
        }
    }
}
