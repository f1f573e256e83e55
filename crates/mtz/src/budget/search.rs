//! The search: a few zips, each measured on held-out samples, close in on what the budget allows.

use super::savings::Savings;
use super::{Budget, BudgetPoint, SearchResult, sharing};
use crate::data::holdout_split;
use crate::engine::CpuEngine;
use crate::error::{Error, Result};
use crate::evaluate::{Measured, Mistakes};
use crate::merge::Recipe;
use crate::progress::Progress;
use crate::random;
use crate::sharing::{Joint, Share};
use crate::zip::checkpoint::FolderLock;
use crate::zip::{self, MemoryBudget, References, Session, TaskData, ZipOptions, Zipped, chosen, paired_in_order};
use std::ops::ControlFlow;

/// Zips while the search closes in, without retraining and with it: to a thirty-second and to an eighth of what can be
/// saved.
pub(super) const STEPS: usize = 5;
pub(super) const RETRAINED_STEPS: usize = 3;
/// Tries to reach a size: a prediction does not know how pairs of several tasks overlap, nor which blocks a file has.
pub(super) const CORRECTIONS: usize = 4;

/// Progress of a search: how many zips are done, and what is being done.
pub type SearchProgress<'n> = (usize, &'n str);

/// Finds out how much to share. `file_bytes` says how large the file of a joint model will be, `made` sees every joint
/// model that is tried.
pub fn search(
    start: &Joint,
    tasks: &[TaskData],
    options: &ZipOptions,
    budget: &Budget,
    file_bytes: impl Fn(&Joint) -> Result<u64>,
    mut progress: impl FnMut(SearchProgress) -> ControlFlow<()>,
    mut made: impl FnMut(&BudgetPoint, &Joint) -> Result<()>,
) -> Result<SearchResult> {
    budget.check_labels(tasks)?;
    let HeldOutSplit { learning, measuring, held_out } = HeldOutSplit::new(tasks)?;
    let _lock = options.resources.checkpoint.as_ref().map(|folder| FolderLock::new(folder)).transpose()?;
    // Points of a search are compared on held-out samples; single layers are not measured.
    let options = options.clone().with(|o| o.resources.measured = 0);
    // What the originals answer to held-out samples is there as long as the search.
    let kept = zip::answers(start, &measuring, &options);
    let options = &options.with(|o| o.resources.memory = o.resources.memory.saturating_sub(kept));
    let names: Vec<String> = start.members[0].layers.iter().map(|l| l.name.clone()).collect();
    check_memory(start, &learning, options, &names)?;
    let mut reporter = ProgressReporter { zips: 0, progress: &mut progress };
    reporter.report("measuring the networks")?;
    let references = References::new(&start.graphs(), &measuring, options, &CpuEngine)?;
    let before = references.measure(&start.graphs())?;
    let mut measurer = Measurer {
        start,
        learning: &learning,
        options,
        names: &names,
        references,
        before,
        file_bytes: &file_bytes,
        reporter,
        made: &mut made,
        zips: 0,
    };
    let (first, zipped) = measurer.measure(&vec![1.0; names.len()], 0, None)?;
    let savings = &Savings::of(start, options, &zipped);
    let nothing = measurer.nothing()?;
    let retrain = options.retraining.iterations;
    let mut search = Search { budget, savings, retrain, points: vec![first], measurer };
    let (chosen, zipped) = if budget.limits_quality() {
        search.for_quality(nothing.clone(), zipped)?
    } else {
        let counted = SizeCount::new(start, options, &names, savings, &file_bytes)?;
        search.for_size(start, &counted, zipped)?
    };
    let mut points = search.points;
    if points.iter().all(|p| p.sharing > nothing.sharing) {
        points.push(nothing);
    }
    let missed = budget.missed(&points[chosen], start);
    Ok(SearchResult { points, chosen, missed, zipped, held_out })
}

/// The samples of each task, split: a part to zip with, and a part that zipping does not see.
struct HeldOutSplit<'a> {
    learning: Vec<TaskData<'a>>,
    /// Each task with its held-out samples as test samples.
    measuring: Vec<TaskData<'a>>,
    /// How many samples of each task are held out.
    held_out: Vec<usize>,
}

impl<'a> HeldOutSplit<'a> {
    fn new(tasks: &[TaskData<'a>]) -> Result<Self> {
        let mut split = Self { learning: Vec::new(), measuring: Vec::new(), held_out: Vec::new() };
        for task in tasks {
            let all: Vec<usize> = task.samples.clone().unwrap_or_else(|| (0..task.train.len()).collect());
            let (learn, hold) = holdout_split(&all);
            if hold.is_empty() {
                return Err(Error::data(format!("{} has too few samples to hold some out", task.name)));
            }
            split.learning.push(TaskData { samples: Some(learn), ..task.clone() });
            split.held_out.push(hold.len());
            split.measuring.push(TaskData { test: Some((task.train, hold)), ..task.clone() });
        }
        Ok(split)
    }
}

/// Refuses what does not fit into memory before the first of many zips.
fn check_memory(start: &Joint, learning: &[TaskData], options: &ZipOptions, names: &[String]) -> Result<()> {
    let chosen: Vec<Vec<usize>> = learning.iter().map(|t| chosen(t, options)).collect();
    MemoryBudget::all(start, learning, &chosen, options)?;
    // What is shared in part has more columns: those of one task beside those of the other.
    MemoryBudget::all(start, learning, &chosen, &with_shares(options, names, &vec![0.0; names.len()]))?;
    Ok(())
}

/// Counts zips, and reports what is being done to the caller.
struct ProgressReporter<'s> {
    /// Zips that are done.
    zips: usize,
    progress: &'s mut dyn FnMut(SearchProgress) -> ControlFlow<()>,
}

impl ProgressReporter<'_> {
    fn report(&mut self, what: &str) -> Result<()> {
        match (self.progress)((self.zips, what)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::cancelled()),
        }
    }

    fn zip_is_done(&mut self) -> Result<()> {
        self.report("")?;
        self.zips += 1;
        Ok(())
    }
}

/// Zips, and measures on held-out samples what became of the networks.
struct Measurer<'s> {
    start: &'s Joint,
    learning: &'s [TaskData<'s>],
    options: &'s ZipOptions,
    /// Of the layers.
    names: &'s [String],
    references: References<'s>,
    /// The networks that are zipped, measured.
    before: Vec<Option<Measured>>,
    file_bytes: &'s dyn Fn(&Joint) -> Result<u64>,
    reporter: ProgressReporter<'s>,
    made: &'s mut dyn FnMut(&BudgetPoint, &Joint) -> Result<()>,
    /// Zips that were begun.
    zips: usize,
}

impl Measurer<'_> {
    /// Measures a way to share, with so many iterations of retraining per layer; with what was zipped that way without
    /// retraining, if it is known.
    fn measure(&mut self, shares: &[f64], retrain: usize, known: Option<Zipped>) -> Result<(BudgetPoint, Zipped)> {
        let zipped = self.zip(shares, retrain, known)?;
        self.reporter.report("measuring")?;
        let after = self.references.measure(&zipped.joint.graphs())?;
        let (increase, standard_error) = after.iter().zip(&self.before).map(lost).unzip();
        let agreement = after.iter().map(|m| m.as_ref().and_then(Measured::agreement));
        let agreement = agreement.map(|a| a.map_or((f64::NAN, f64::NAN), |a| (a.percent, a.standard_error)));
        let (agreement, agreement_error) = agreement.unzip();
        let point = BudgetPoint {
            shares: shares.to_vec(),
            parameters: zipped.joint.parameters().0,
            file_bytes: (self.file_bytes)(&zipped.joint)?,
            sharing: sharing(&zipped.joint, self.start),
            increase,
            standard_error,
            agreement,
            agreement_error,
            iterations: zipped.iterations,
        };
        (self.made)(&point, &zipped.joint)?;
        self.reporter.zip_is_done()?;
        Ok((point, zipped))
    }

    fn zip(&mut self, shares: &[f64], retrain: usize, known: Option<Zipped>) -> Result<Zipped> {
        // Every zip of the search has a folder of its own.
        let checkpoint = self.options.resources.checkpoint.as_ref();
        let checkpoint = checkpoint.map(|folder| folder.join(format!("point-{}", self.zips)));
        self.zips += 1;
        let options = with_shares(self.options, self.names, shares).with(|o| {
            o.retraining.iterations = retrain;
            o.resources.checkpoint = checkpoint;
        });
        let mut session = Session::new(self.start.clone(), self.learning, &options)?;
        // What was zipped without retraining is retrained as it is.
        if let Some(known) = known.filter(|_| options.recipe == Recipe::Best && session.layers().is_empty()) {
            session.restore(known.joint, known.layers);
        }
        session.run(&mut |Progress { layer, layers, stage }| {
            let text = format!("layer {} of {layers}: {stage}", layer + 1);
            self.reporter.report(&text).map_or(ControlFlow::Break(()), ControlFlow::Continue)
        })
    }

    /// The networks unshared: they lose nothing and need no zip.
    fn nothing(&self) -> Result<BudgetPoint> {
        // Without labels nobody knows an error.
        let labelled = |m: &Option<Measured>| m.as_ref().is_some_and(|m| m.mistakes.is_some());
        let lost_nothing: Vec<f64> = self.before.iter().map(|m| if labelled(m) { 0.0 } else { f64::NAN }).collect();
        let agreement = self.before.iter().map(|m| m.as_ref().and_then(Measured::agreement));
        Ok(BudgetPoint {
            shares: vec![0.0; self.names.len()],
            parameters: self.start.parameters().0,
            file_bytes: (self.file_bytes)(self.start)?,
            sharing: sharing(self.start, self.start),
            increase: lost_nothing.clone(),
            standard_error: lost_nothing,
            // Below 100 where a task comes from a joint model and is compared with what it was before.
            agreement: agreement.map(|a| a.map_or(100.0, |a| a.percent)).collect(),
            agreement_error: vec![0.0; self.learning.len()],
            iterations: 0,
        })
    }
}

/// Points of error that a task lost, and their standard error; no numbers where it has no labels.
fn lost((after, before): (&Option<Measured>, &Option<Measured>)) -> (f64, f64) {
    let mistakes = |m: &Option<Measured>| m.as_ref().and_then(|m| m.mistakes.clone());
    match (mistakes(after), mistakes(before)) {
        (Some(after), Some(before)) => Mistakes::lost_against(&after, &before),
        _ => (f64::NAN, f64::NAN),
    }
}

/// Sizes of joint models, counted without a zip: how much is saved can be counted, if only two tasks share, whose pairs
/// do not overlap.
struct SizeCount<'s> {
    start: &'s Joint,
    options: &'s ZipOptions,
    names: &'s [String],
    savings: &'s Savings,
    /// Bytes of what files hold beside weights.
    beside: u64,
}

impl<'s> SizeCount<'s> {
    fn new(
        start: &'s Joint,
        options: &'s ZipOptions,
        names: &'s [String],
        savings: &'s Savings,
        file_bytes: impl Fn(&Joint) -> Result<u64>,
    ) -> Result<Self> {
        let mut count = Self { start, options, names, savings, beside: 0 };
        // What files hold beside weights is seen in one whose units are paired anyhow.
        let half = shuffled(count.paired(0.5), options.seed);
        count.beside = file_bytes(&half)?.saturating_sub(count.weight_bytes(&half));
        Ok(count)
    }

    /// Bytes of the file and shared weights, if this part of what can be saved is saved.
    fn at(&self, part: f64) -> (u64, f64) {
        let joint = self.paired(part);
        (self.beside + self.weight_bytes(&joint), sharing(&joint, self.start))
    }

    fn paired(&self, part: f64) -> Joint {
        paired_in_order(self.start, &with_shares(self.options, self.names, &self.savings.shares(part)))
    }

    fn weight_bytes(&self, joint: &Joint) -> u64 {
        self.start.element().bytes() as u64 * joint.parameters().0 as u64
    }
}

/// A search under way.
struct Search<'s> {
    budget: &'s Budget,
    savings: &'s Savings,
    /// Iterations per layer.
    retrain: usize,
    /// What was measured so far; the first is everything shared, without retraining.
    points: Vec<BudgetPoint>,
    measurer: Measurer<'s>,
}

impl Search<'_> {
    /// Measures a way to share, and remembers the point.
    fn try_shares(&mut self, shares: &[f64], retrain: usize, known: Option<Zipped>) -> Result<Zipped> {
        let (point, zipped) = self.measurer.measure(shares, retrain, known)?;
        self.points.push(point);
        Ok(zipped)
    }

    fn last_fits(&self) -> bool {
        self.points.last().is_some_and(|p| p.fits(self.budget))
    }

    /// As much as possible within the limits on error and agreement: everything if retraining makes up for it,
    /// otherwise what bisection finds. Where there is retraining, every point has it: the loss before retraining is a
    /// poor predictor of the loss after it.
    fn for_quality(&mut self, nothing: BudgetPoint, everything: Zipped) -> Result<(usize, Zipped)> {
        let all = self.points[0].shares.clone();
        let first_fits = self.last_fits();
        let mut zipped = everything;
        if self.retrain > 0 {
            let retrained = self.try_shares(&all, self.retrain, Some(zipped.clone()))?;
            if self.last_fits() {
                return Ok((self.points.len() - 1, retrained));
            }
        }
        if first_fits {
            return Ok((0, zipped));
        }
        self.points.push(nothing);
        let (mut best, mut low, mut high) = (None, 0.0, 1.0);
        for _ in 0..if self.retrain > 0 { RETRAINED_STEPS } else { STEPS } {
            let middle: f64 = (low + high) / 2.0;
            let tried = self.try_shares(&self.savings.shares(middle), self.retrain, None)?;
            if self.last_fits() {
                (best, low, zipped) = (Some(self.points.len() - 1), middle, tried);
            } else {
                high = middle;
            }
        }
        match best {
            Some(best) => Ok((best, zipped)),
            // Nothing fits: the networks stay unshared.
            None => {
                let zipped = self.try_shares(&vec![0.0; all.len()], 0, None)?;
                Ok((self.points.len() - 1, zipped))
            }
        }
    }

    /// As little as reaches the size: what is `counted` to reach it (bytes of the file, shared weights), and if a zip
    /// does not, what is counted to reach more by as much as was missing. Sizes need no retraining; the last point has
    /// it.
    fn for_size(&mut self, start: &Joint, counted: &SizeCount, everything: Zipped) -> Result<(usize, Zipped)> {
        /// Halvings of the part to share.
        const HALVINGS: usize = 10;
        /// The least that a correction adds, as a part of the size.
        const STEP: f64 = 1e-3;
        let (mut best, mut zipped) = (0, everything);
        // If sharing everything is not enough, it is still the best there is.
        if self.budget.missed(&self.points[0], start).is_empty() {
            let most = self.budget.target_bytes.unwrap_or(u64::MAX);
            let least = self.budget.min_sharing.unwrap_or(0.0);
            let (mut bytes, mut sharing) = (most, least);
            for _ in 0..CORRECTIONS {
                let (mut low, mut part) = (0.0, 1.0);
                for _ in 0..HALVINGS {
                    let middle = (low + part) / 2.0;
                    let reached = counted.at(middle);
                    if reached.0 <= bytes && reached.1 >= sharing {
                        part = middle;
                    } else {
                        low = middle;
                    }
                }
                let tried = self.try_shares(&self.savings.shares(part), 0, None)?;
                let last = self.points.len() - 1;
                let point = &self.points[last];
                if self.budget.missed(point, start).is_empty() {
                    (best, zipped) = (last, tried);
                    break;
                }
                if point.file_bytes > most {
                    bytes = bytes.saturating_sub((point.file_bytes - most).max((STEP * most as f64) as u64));
                }
                if point.sharing < least {
                    sharing += (least - point.sharing).max(STEP * least);
                }
            }
        }
        if self.retrain > 0 {
            zipped = self.try_shares(&self.points[best].shares.clone(), self.retrain, Some(zipped))?;
            best = self.points.len() - 1;
        }
        Ok((best, zipped))
    }
}

/// The joint model with the units of all tasks but the first in random order, as pairs of units are: files say in which
/// order tasks take their units.
fn shuffled(mut joint: Joint, seed: u64) -> Joint {
    for (t, member) in (0..).zip(&mut joint.members).skip(1) {
        for (l, (units, aligned)) in (0..).zip(member.units.iter_mut().zip(&mut member.aligned)) {
            let order = random::permutation(random::bits(seed, 1000 * t + l), units.len());
            (*units, *aligned) = order.iter().map(|i| (units[*i], aligned[*i])).unzip();
        }
    }
    joint
}

/// The options with a share for every layer.
fn with_shares(options: &ZipOptions, names: &[String], shares: &[f64]) -> ZipOptions {
    let share_of = names.iter().cloned().zip(shares.iter().map(|s| Share::Fraction(*s))).collect();
    options.clone().with(|o| o.sharing.share_of = share_of)
}
