//! How much to share in which layer, for a budget: points of error that may be lost, a size, or a share of the weights.
//!
//! Sharing everything without retraining says what every pair of units costs, d, layer by layer. Relative to d of any
//! two units (the mean over the layer's table) costs compare between layers. What sharing saves is bilinear: a weight
//! is stored once if the unit that has it and the unit it comes from are both shared. For a price λ of a parameter
//!
//! ```text
//! minimise  Σ_l 1/K_l Σ_{k ≤ f_l K_l} c_lk  −  λ/P Σ_l W_l f_l Σ_s q_ls f_s
//! ```
//!
//! (f_l: share of layer l's K_l pairs; c_lk: their relative costs, cheapest first; W_l: its weights; q_ls: the part of
//! its inputs that come from layer s) is solved by going down from everything shared: each layer keeps the pairs that
//! are worth their price, which makes pairs of its neighbours worth less, until nothing changes. Real zips then decide
//! how far to go, on samples that zipping does not use otherwise.

use crate::data::holdout_split;
use crate::engine::CpuEngine;
use crate::error::{Error, Result};
use crate::evaluate::{Measured, Mistakes};
use crate::joint_file;
use crate::merge::{Align, Recipe};
use crate::onnx;
use crate::progress::Progress;
use crate::random;
use crate::sharing::Share;
use crate::sharing::{Joint, Source};
use crate::zip;
use crate::zip::checkpoint::FolderLock;
use crate::zip::{MemoryBudget, References, Session, TaskData, ZipOptions, Zipped, aligned, chosen, paired_in_order};
use std::ops::ControlFlow;

/// What must hold; at least one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Points of error that every task may lose, on held-out samples.
    pub max_error_increase: Option<f64>,
    /// Agreement with its original that every task must keep on held-out samples, in percent. Needs no labels.
    pub min_agreement: Option<f64>,
    /// Standard errors of what was lost on them that must fit in as well; 0 takes it as measured. A search takes what
    /// just fits: of two points that lose the same, the one that was lucky.
    pub margin: f64,
    /// How many bytes the file of the joint model may take.
    pub target_bytes: Option<u64>,
    /// Shared weights at least, in units of the mean network (the paper's measure).
    pub min_sharing: Option<f64>,
}

/// One way to share, measured.
#[derive(Clone, Debug)]
pub struct BudgetPoint {
    /// The share of each layer's pairs.
    pub shares: Vec<f64>,
    /// Parameters of the joint model.
    pub parameters: usize,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Shared weights in units of the mean network.
    pub sharing: f64,
    /// Points of error each task lost on held-out samples.
    pub increase: Vec<f64>,
    /// The standard errors of these.
    pub standard_error: Vec<f64>,
    /// Agreement of each task with its original on held-out samples, in percent.
    pub agreement: Vec<f64>,
    /// The standard errors of these.
    pub agreement_error: Vec<f64>,
    /// Iterations of retraining.
    pub iterations: usize,
}

impl BudgetPoint {
    /// Whether no other point is smaller and loses less: the points of which that holds are the Pareto curve.
    pub fn is_best_of(&self, points: &[Self]) -> bool {
        // Of each task what counts is its error; agreement where it has no labels.
        let of_task = |(lost, agreement): (&f64, &f64)| if lost.is_nan() { 100.0 - agreement } else { *lost };
        let lost = |p: &Self| p.increase.iter().zip(&p.agreement).map(of_task).fold(f64::NEG_INFINITY, f64::max);
        let (size, own) = (self.parameters, lost(self));
        !points.iter().any(|p| {
            let (other, others) = (p.parameters, lost(p));
            other <= size && others <= own && (other < size || others < own)
        })
    }

    /// Whether every task stays within the budget, with its margin.
    fn fits(&self, budget: &Budget) -> bool {
        let mut lost = self.increase.iter().zip(&self.standard_error).map(|(x, error)| x + budget.margin * error);
        let mut kept = self.agreement.iter().zip(&self.agreement_error).map(|(x, error)| x - budget.margin * error);
        budget.max_error_increase.is_none_or(|limit| lost.all(|lost| lost <= limit))
            && budget.min_agreement.is_none_or(|limit| kept.all(|kept| kept >= limit))
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// All points, in the order they were measured.
    pub points: Vec<BudgetPoint>,
    /// The one to take.
    pub chosen: usize,
    /// What of the budget it misses, in words; nothing if the budget is met.
    pub missed: Vec<String>,
    /// The model that was chosen, measured on each task's test samples.
    pub zipped: Zipped,
    /// How many samples of each task were held out.
    pub held_out: Vec<usize>,
}

/// Zips while the search closes in, without retraining and with it: to a thirty-second and to an eighth of what can be
/// saved.
const STEPS: usize = 5;
const RETRAINED_STEPS: usize = 3;
/// Tries to reach a size: a prediction does not know how pairs of several tasks overlap, nor which blocks a file has.
const CORRECTIONS: usize = 4;

/// News of the search: how many zips are done, and what is being done.
pub type SearchProgress<'n> = (usize, &'n str);

/// Bytes of the file of a joint model, as it is written without further ado.
pub fn file_bytes(joint: &Joint) -> Result<u64> {
    onnx::file_bytes(&joint_file::to_graph(joint, false)?)
}

/// Finds out how much to share. `file_bytes` says how large the file of a joint model will be, `made` sees every joint
/// model on the way.
pub fn search(
    start: &Joint,
    tasks: &[TaskData],
    options: &ZipOptions,
    budget: &Budget,
    file_bytes: impl Fn(&Joint) -> Result<u64>,
    mut listen: impl FnMut(SearchProgress) -> ControlFlow<()>,
    mut made: impl FnMut(&BudgetPoint, &Joint) -> Result<()>,
) -> Result<SearchResult> {
    budget.check_labels(tasks)?;
    let Split { learning, measuring, held_out } = Split::new(tasks)?;
    let _lock = options.resources.checkpoint.as_ref().map(|folder| FolderLock::new(folder)).transpose()?;
    // Points of a search are compared on held-out samples; their layers are nobody's business.
    let options = options.clone().with(|o| o.resources.measured = 0);
    // What the originals answer to held-out samples is there as long as the search.
    let kept = zip::answers(start, &measuring, &options);
    let options = &options.with(|o| o.resources.memory = o.resources.memory.saturating_sub(kept));
    let names: Vec<String> = start.members[0].layers.iter().map(|l| l.name.clone()).collect();
    check_memory(start, &learning, options, &names)?;
    let mut news = News { zips: 0, listen: &mut listen };
    news.tell("measuring the networks")?;
    let references = References::new(&start.graphs(), &measuring, options, &CpuEngine)?;
    let before = references.measure(&start.graphs())?;
    let mut bench = Bench {
        start,
        learning: &learning,
        options,
        names: &names,
        references,
        before,
        file_bytes: &file_bytes,
        news,
        made: &mut made,
        zips: 0,
    };
    let (first, zipped) = bench.measure(&vec![1.0; names.len()], 0, None)?;
    let costs = zipped.layers.iter().map(|l| relative(&l.merged.distances, l.merged.typical_distance)).collect();
    let savings = &Savings::new(start, options, costs);
    let nothing = bench.nothing()?;
    let retrain = options.retraining.iterations;
    let mut search = Search { budget, savings, retrain, points: vec![first], bench };
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
struct Split<'a> {
    learning: Vec<TaskData<'a>>,
    /// Each task with its held-out samples as test samples.
    measuring: Vec<TaskData<'a>>,
    /// How many samples of each task are held out.
    held_out: Vec<usize>,
}

impl<'a> Split<'a> {
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

/// Who listens to the search.
struct News<'s> {
    /// Zips that are done.
    zips: usize,
    listen: &'s mut dyn FnMut(SearchProgress) -> ControlFlow<()>,
}

impl News<'_> {
    fn tell(&mut self, what: &str) -> Result<()> {
        match (self.listen)((self.zips, what)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::cancelled()),
        }
    }

    fn zip_is_done(&mut self) -> Result<()> {
        self.tell("")?;
        self.zips += 1;
        Ok(())
    }
}

/// Zips, and measures on held-out samples what became of the networks.
struct Bench<'s> {
    start: &'s Joint,
    learning: &'s [TaskData<'s>],
    options: &'s ZipOptions,
    /// Of the layers.
    names: &'s [String],
    references: References<'s>,
    /// The networks that are zipped, measured.
    before: Vec<Option<Measured>>,
    file_bytes: &'s dyn Fn(&Joint) -> Result<u64>,
    news: News<'s>,
    made: &'s mut dyn FnMut(&BudgetPoint, &Joint) -> Result<()>,
    /// Zips that were begun.
    zips: usize,
}

impl Bench<'_> {
    /// Measures a way to share, with so many iterations of retraining per layer; with what was zipped that way without
    /// retraining, if it is known.
    fn measure(&mut self, shares: &[f64], retrain: usize, known: Option<Zipped>) -> Result<(BudgetPoint, Zipped)> {
        let zipped = self.zip(shares, retrain, known)?;
        self.news.tell("measuring")?;
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
        self.news.zip_is_done()?;
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
            self.news.tell(&text).map_or(ControlFlow::Break(()), ControlFlow::Continue)
        })
    }

    /// The networks beside each other, which lose nothing and need no zip.
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
    bench: Bench<'s>,
}

impl Search<'_> {
    /// Measures a way to share, and remembers the point.
    fn try_shares(&mut self, shares: &[f64], retrain: usize, known: Option<Zipped>) -> Result<Zipped> {
        let (point, zipped) = self.bench.measure(shares, retrain, known)?;
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
            // Nothing fits: the networks beside each other.
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

impl Budget {
    /// Refuses a limit on the error of a task that has no labels.
    fn check_labels(&self, tasks: &[TaskData]) -> Result<()> {
        match tasks.iter().find(|t| t.train.labels().is_none() && self.max_error_increase.is_some()) {
            None => Ok(()),
            Some(task) => Err(Error::data(format!("the error of {} cannot be measured without labels", task.name))
                .hint("give labels, or use `min_agreement`, which needs none")),
        }
    }

    /// Whether it says what may be lost.
    fn limits_quality(&self) -> bool {
        self.max_error_increase.is_some() || self.min_agreement.is_some()
    }

    /// How many zips a search takes at most: without retraining, and with it.
    pub fn zips(&self, retrain: usize) -> (usize, usize) {
        match (self.limits_quality(), retrain) {
            (true, 0) => (2 + STEPS, 0),
            (true, _) => (2, 1 + RETRAINED_STEPS),
            (false, 0) => (1 + CORRECTIONS, 0),
            (false, _) => (1 + CORRECTIONS, 1),
        }
    }

    /// What of it a point misses.
    fn missed(&self, point: &BudgetPoint, start: &Joint) -> Vec<String> {
        let mut missed = Vec::new();
        if let Some(limit) = self.max_error_increase {
            let lost = point.increase.iter().zip(&point.standard_error);
            let worst = lost.max_by(|a, b| (a.0 + self.margin * a.1).total_cmp(&(b.0 + self.margin * b.1)));
            if let Some((lost, error)) = worst.filter(|(lost, error)| *lost + self.margin * *error > limit) {
                missed.push(format!("{lost:.2} points are lost{}, {limit} are allowed", self.margin_text(*error)));
            }
        }
        if let Some(limit) = self.min_agreement {
            let kept = point.agreement.iter().zip(&point.agreement_error);
            let worst = kept.min_by(|a, b| (a.0 - self.margin * a.1).total_cmp(&(b.0 - self.margin * b.1)));
            if let Some((kept, error)) = worst.filter(|(kept, error)| *kept - self.margin * *error < limit) {
                let margin = self.margin_text(*error);
                missed.push(format!("{kept:.2} % of the answers are the original's{margin}, {limit} % are asked for"));
            }
        }
        if let Some(most) = self.target_bytes.filter(|most| point.file_bytes > *most) {
            missed.push(format!("the file takes {} bytes, {most} are allowed", point.file_bytes));
        }
        if let Some(least) = self.min_sharing.filter(|least| point.sharing < *least) {
            missed.push(format!("{:.3} networks are shared, {least} are asked for", point.sharing));
        }
        if self.limits_quality() && point.sharing <= sharing(start, start) {
            missed.push("nothing can be shared".into());
        }
        missed
    }

    fn margin_text(&self, standard_error: f64) -> String {
        let margin = self.margin * standard_error;
        if margin > 0.0 { format!(" (and {margin:.2} of margin)") } else { String::new() }
    }
}

/// Shared weights in units of the mean network (the paper's measure).
pub fn sharing(joint: &Joint, start: &Joint) -> f64 {
    let all: usize = start.members.iter().map(|m| m.graph.parameters()).sum();
    (joint.parameters().1 * start.members.len()) as f64 / all.max(1) as f64
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

/// The plan with a share for every layer.
fn with_shares(options: &ZipOptions, names: &[String], shares: &[f64]) -> ZipOptions {
    let share_of = names.iter().cloned().zip(shares.iter().map(|s| Share::Fraction(*s))).collect();
    options.clone().with(|o| o.sharing.share_of = share_of)
}

/// Costs relative to that of any pair, cheapest first.
fn relative(distances: &[f64], typical: f64) -> Vec<f64> {
    let mut costs: Vec<f64> = distances.iter().map(|d| d / typical.max(f64::MIN_POSITIVE)).collect();
    costs.sort_by(f64::total_cmp);
    costs
}

/// What sharing saves, and what it costs.
struct Savings {
    /// For each layer, c of its pairs, cheapest first.
    costs: Vec<Vec<f64>>,
    /// W, relative to all weights.
    weights: Vec<f64>,
    /// q: for each layer the layers its inputs come from and their part; what is left is shared in any case.
    sources: Vec<Vec<(usize, f64)>>,
}

impl Savings {
    fn new(start: &Joint, options: &ZipOptions, costs: Vec<Vec<f64>>) -> Self {
        let layers = &start.members[0].layers;
        let total: f64 = layers.iter().map(|l| (l.units * l.columns()) as f64).sum();
        let weights = layers.iter().map(|l| (l.units * l.columns()) as f64 / total.max(1.0)).collect();
        let bilinear = aligned(start, options) == Align::Shared;
        let sources = layers.iter().map(|layer| {
            let mut parts = vec![0.0; layers.len()];
            for source in layer.sources.iter().filter(|_| bilinear) {
                if let Source::Layer { layer: from, .. } = source {
                    parts[*from] += 1.0 / layer.sources.len() as f64;
                }
            }
            parts.into_iter().enumerate().filter(|(_, part)| *part > 0.0).collect()
        });
        let mut costs = costs;
        costs.resize(layers.len(), Vec::new());
        Self { costs, weights, sources: sources.collect() }
    }

    /// The part of a layer's inputs that is shared.
    fn inputs(&self, layer: usize, shares: &[f64]) -> f64 {
        self.sources[layer].iter().fold(1.0, |sum, (from, part)| sum - part * (1.0 - shares[*from]))
    }

    /// Σ W f g.
    fn saved(&self, shares: &[f64]) -> f64 {
        let one = |l: usize| if self.costs[l].is_empty() { 0.0 } else { self.weights[l] * shares[l] };
        (0..shares.len()).map(|l| one(l) * self.inputs(l, shares)).sum()
    }

    /// What is worth its price.
    fn at_price(&self, price: f64) -> Vec<f64> {
        let mut shares: Vec<f64> = self.costs.iter().map(|c| if c.is_empty() { 0.0 } else { 1.0 }).collect();
        loop {
            let worth: Vec<f64> = (0..shares.len())
                .map(|l| {
                    let readers = (0..shares.len()).flat_map(|r| self.sources[r].iter().map(move |s| (r, s)));
                    let read: f64 = readers
                        .filter(|(_, (from, _))| *from == l)
                        .map(|(r, (_, part))| self.weights[r] * shares[r] * part)
                        .sum();
                    self.weights[l] * self.inputs(l, &shares) + read
                })
                .collect();
            let next: Vec<f64> = self
                .costs
                .iter()
                .zip(&worth)
                .map(|(costs, worth)| costs.partition_point(|c| *c <= price * worth) as f64 / costs.len().max(1) as f64)
                .collect();
            let less: Vec<f64> = next.iter().zip(&shares).map(|(a, b)| a.min(*b)).collect();
            if less == shares {
                return shares;
            }
            shares = less;
        }
    }

    /// Shares that save about this part of what can be saved, at the lowest price.
    fn shares(&self, part: f64) -> Vec<f64> {
        let all = self.at_price(f64::INFINITY);
        if part >= 1.0 {
            return all;
        }
        if part <= 0.0 {
            return vec![0.0; all.len()];
        }
        let wanted = part * self.saved(&all);
        let (mut low, mut high) = (-30.0f64, 60.0f64);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.saved(&self.at_price(middle.exp2())) < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (below, above) = (self.at_price(low.exp2()), self.at_price(high.exp2()));
        // A price at which much changes at once (sharing a layer makes sharing its neighbours worth while): some of the
        // way.
        let (from, to) = (self.saved(&below), self.saved(&above));
        let way = if to > from { ((wanted - from) / (to - from)).clamp(0.0, 1.0) } else { 1.0 };
        below.iter().zip(&above).map(|(a, b)| a + way * (b - a)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers that read each other's units; the second costs much more.
    fn chain(costs: [Vec<f64>; 2]) -> Savings {
        Savings { costs: costs.to_vec(), weights: vec![0.5, 0.5], sources: vec![vec![], vec![(0, 1.0)]] }
    }

    #[test]
    fn the_curve_has_no_point_that_another_beats() {
        let point = |parameters, increase: [f64; 2]| BudgetPoint {
            shares: Vec::new(),
            parameters,
            file_bytes: 4 * parameters as u64,
            sharing: 0.0,
            increase: increase.to_vec(),
            standard_error: vec![0.0; 2],
            agreement: vec![100.0; 2],
            agreement_error: vec![0.0; 2],
            iterations: 0,
        };
        let points = [
            point(50, [1.0, 2.0]),
            point(50, [0.1, 0.4]),
            point(60, [0.5, 0.1]),
            point(70, [0.0, 0.3]),
            point(100, [0.0; 2]),
        ];
        let best: Vec<bool> = points.iter().map(|p| p.is_best_of(&points)).collect();
        assert_eq!(best, [false, true, false, true, true]);
        // The second task has no labels: its agreement counts, and of the first still the error.
        let of = |parameters, lost, agreement| BudgetPoint {
            agreement: vec![90.0, agreement],
            ..point(parameters, [lost, f64::NAN])
        };
        let points = [of(50, 1.0, 99.5), of(60, 0.2, 99.5), of(70, 0.1, 99.0), of(100, 0.0, 100.0)];
        let best: Vec<bool> = points.iter().map(|p| p.is_best_of(&points)).collect();
        assert_eq!(best, [true, true, false, true]);
    }

    #[test]
    fn savings_are_bilinear() {
        let savings = chain([vec![0.1, 0.2], vec![0.1, 0.2]]);
        assert_eq!(savings.saved(&[1.0, 1.0]), 1.0);
        assert_eq!(savings.saved(&[0.5, 0.5]), 0.5 * 0.5 + 0.5 * 0.5 * 0.5);
        assert_eq!(savings.saved(&[0.0, 1.0]), 0.0);
    }

    #[test]
    fn cheap_pairs_go_first_and_the_wanted_part_is_saved() {
        let even = |from: f64| (0..100).map(|i| from + f64::from(i) / 100.0).collect::<Vec<_>>();
        let savings = chain([even(0.0), even(0.5)]);
        let mut before = vec![0.0; 2];
        for part in [0.1, 0.3, 0.5, 0.7, 0.9] {
            let shares = savings.shares(part);
            assert!((savings.saved(&shares) - part).abs() < 0.03, "{part}: {shares:?}");
            assert!(shares[0] >= shares[1], "the cheaper layer shares more: {shares:?}");
            assert!(shares.iter().zip(&before).all(|(a, b)| a >= b), "more is shared for more: {shares:?}");
            before = shares;
        }
        assert_eq!(savings.shares(1.0), [1.0, 1.0]);
        assert_eq!(savings.shares(0.0), [0.0, 0.0]);
    }

    #[test]
    fn free_pairs_are_shared_at_any_price() {
        let savings = chain([vec![0.0; 4], vec![0.0; 4]]);
        assert_eq!(savings.at_price(0.0), [1.0, 1.0]);
    }
}
