//! How faithful a network is to another one, its original: no labels are needed.
//!
//! | kind | agreement in percent |
//! |---|---|
//! | classes | samples, or positions of a map or a sequence, whose first answer is the original's |
//! | attributes | yes-or-no decisions that are the original's |
//! | values | 100 (1 − √(Σ (x − t)² / Σ (t − t̄)²)), at least 0 |
//!
//! (x: the answers; t: the original's; t̄: the mean of each number over the samples.)
//!
//! The original runs once. Its answers are kept for later measurements where they fit into memory.

use super::answers::{Answer, Ending, Evidence, Kind, Scores};
use super::{EvaluationOptions, Judge, Mistakes, each_batch};
use crate::data::Feed;
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::simplify;
use crate::tensor::{Dim, Tensor};

/// How far an output is that of the original.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// In percent.
    pub percent: f64,
    /// The standard error of that.
    pub standard_error: f64,
    /// What is left to learn: Kullback-Leibler divergence from the original's probabilities (classes, attributes), or
    /// squares relative to the deviation (values, and where the kind is a guess). Finer than the percentage.
    pub divergence: f64,
}

/// How a network did beside its original.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What it got wrong, where there are labels.
    pub mistakes: Option<Mistakes>,
    /// For each output that depends on the input.
    pub outputs: Vec<Agreement>,
    /// For each sample: what is left to learn, over all outputs.
    pub divergences: Vec<f64>,
}

impl Measured {
    /// The task as a whole: no better than the worst of its outputs.
    pub fn agreement(&self) -> Option<Agreement> {
        self.worst_output().and_then(|k| self.outputs.get(k)).copied()
    }

    /// The output that agrees least, the first of equal ones.
    pub fn worst_output(&self) -> Option<usize> {
        (0..self.outputs.len()).min_by(|a, b| self.outputs[*a].percent.total_cmp(&self.outputs[*b].percent))
    }

    /// The error on labels in percent.
    pub fn error(&self) -> Option<f64> {
        self.mistakes.as_ref().map(|m| m.evaluation().error)
    }

    /// How much more is left to learn than for another network on the same samples, and the standard error of that.
    /// Sample by sample, because what is as hard for both says nothing about their difference.
    pub fn diverges_from(&self, before: &Self) -> (f64, f64) {
        let more: Vec<f64> = self.divergences.iter().zip(&before.divergences).map(|(a, b)| a - b).collect();
        (mean(&more), standard_error(&more))
    }

    /// What is left to learn, over all outputs.
    pub fn divergence(&self) -> f64 {
        self.outputs.iter().map(|o| o.divergence).sum()
    }
}

/// What the answers of an output are.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputKind {
    /// Its name.
    pub name: String,
    /// How many outputs the network has.
    pub outputs: usize,
    /// What its numbers stand for.
    pub kind: Kind,
    /// Why they are taken for that.
    pub evidence: Evidence,
}

/// One output of the original network.
#[derive(Clone, Debug)]
pub struct ReferenceOutput {
    /// Its name.
    pub name: String,
    /// What it is.
    pub answer: Answer,
    ending: Ending,
    /// The mean of each number over the samples.
    means: Vec<f64>,
}

/// An original network's answers to some samples.
pub struct Reference<'a> {
    feed: &'a Feed,
    samples: Vec<usize>,
    options: EvaluationOptions<'a>,
    graph: Graph,
    /// The outputs that depend on the input.
    pub outputs: Vec<ReferenceOutput>,
    /// What the original gets wrong, where there are labels.
    pub mistakes: Option<Mistakes>,
    /// The numbers of every output, sample after sample, if they fit.
    kept: Option<Vec<Vec<f32>>>,
}

impl<'a> Reference<'a> {
    /// Runs the original on these samples. `kind`: what its answers are, if the caller knows; `keep`: bytes that its
    /// answers may take.
    pub fn new(
        original: &Graph,
        feed: &'a Feed,
        samples: &[usize],
        kind: Option<Kind>,
        keep: u64,
        options: EvaluationOptions<'a>,
    ) -> Result<Self> {
        let graph = simplify::for_inference(original)?;
        let answer = |k: usize, ending: &Ending, shown: &[&Tensor]| {
            Some(Answer::of(ending, kind, feed.labels().filter(|_| k == 0), shown))
        };
        Self::of(graph, feed, samples, answer, keep, options)
    }

    /// The same original on other samples of the same data. What its answers are was found out before.
    pub fn on(&self, samples: &[usize], keep: u64) -> Result<Self> {
        let answer = |k: usize, _: &Ending, _: &[&Tensor]| self.outputs.get(k).map(|output| output.answer);
        Self::of(self.graph.clone(), self.feed, samples, answer, keep, self.options)
    }

    /// Bytes of the answers to so many samples.
    pub fn bytes(original: &Graph, samples: usize) -> Result<u64> {
        let numbers: usize = live_outputs(original)?.iter().map(|(_, ending)| per_sample(original, ending.value)).sum();
        Ok(4u64.saturating_mul(numbers as u64).saturating_mul(samples as u64))
    }

    /// `answer` says what an output is, by its place, how the network ends in it, and some of its numbers.
    fn of(
        graph: Graph,
        feed: &'a Feed,
        samples: &[usize],
        answer: impl Fn(usize, &Ending, &[&Tensor]) -> Option<Answer>,
        keep: u64,
        options: EvaluationOptions<'a>,
    ) -> Result<Self> {
        /// Samples that show what kind of answers these are, and bytes after which a batch is the last one.
        const SHOWN: usize = 512;
        const SHOWN_BYTES: u64 = 1 << 26;
        let taps: Vec<(String, Ending)> = live_outputs(&graph)?;
        let ids: Vec<ValueId> = taps.iter().map(|(_, ending)| ending.value).collect();
        let widths: Vec<usize> = ids.iter().map(|id| per_sample(&graph, *id)).collect();
        let bytes = Self::bytes(&graph, 1)?;
        let keeps = bytes.saturating_mul(samples.len() as u64) <= keep;
        let judge = Labelled::new(&graph, feed)?;
        let (mut kept, mut shown, mut sums) = (vec![Vec::new(); ids.len()], Vec::new(), vec![Vec::new(); ids.len()]);
        let mut marks = Marks::default();
        let mut seen = 0;
        each_batch(&graph, &judge.taps(&ids), feed, samples, options, |batch, mut outputs| {
            judge.judge(&outputs, ids.len(), batch, &mut marks);
            outputs.truncate(ids.len());
            for (((sums, kept), tensor), width) in sums.iter_mut().zip(&mut kept).zip(&outputs).zip(&widths) {
                add_rows(sums, rows(tensor, *width, batch.len()));
                rows(tensor, *width, batch.len()).filter(|_| keeps).for_each(|row| kept.extend_from_slice(row));
            }
            if seen < SHOWN && (seen as u64).saturating_mul(bytes) < SHOWN_BYTES {
                shown.push(outputs);
            }
            seen += batch.len();
            Ok(())
        })?;
        let outputs = taps.into_iter().zip(sums).enumerate().map(|(k, ((name, ending), mut means))| {
            means.iter_mut().for_each(|sum: &mut f64| *sum /= seen.max(1) as f64);
            let shown: Vec<&Tensor> = shown.iter().filter_map(|batch| batch.get(k)).collect();
            let answer = answer(k, &ending, &shown)
                .ok_or_else(|| Error::model(format!("the network has no output {name:?}")))?;
            Ok(ReferenceOutput { name, answer, ending, means })
        });
        let outputs = outputs.collect::<Result<_>>()?;
        let mistakes = judge.mistakes(marks);
        Ok(Self { feed, samples: samples.to_vec(), options, graph, outputs, mistakes, kept: keeps.then_some(kept) })
    }

    /// The samples that are compared.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// What an output is, and why.
    pub fn kind(&self, output: usize) -> Option<OutputKind> {
        let ReferenceOutput { name, answer, .. } = self.outputs.get(output)?;
        let (kind, evidence) = (answer.kind, answer.evidence);
        Some(OutputKind { name: name.clone(), outputs: self.outputs.len(), kind, evidence })
    }

    /// Runs another network on the same samples and compares.
    pub fn measure(&self, network: &Graph, mut progress: impl FnMut(usize)) -> Result<Measured> {
        let graph = simplify::for_inference(network)?;
        let taps = live_outputs(&graph)?;
        self.check_outputs(&graph, &taps)?;
        let ids: Vec<ValueId> = taps.iter().map(|(_, ending)| ending.value).collect();
        let mut comparisons: Vec<Comparison> = self
            .outputs
            .iter()
            .zip(&taps)
            .map(|(o, (_, ending))| Comparison::new(o, ending.scores, &self.graph[o.ending.value].shape.at(1)))
            .collect();
        let judge = Labelled::new(&graph, self.feed)?;
        let mut marks = Marks::default();
        let mut seen = 0;
        each_batch(&graph, &judge.taps(&ids), self.feed, &self.samples, self.options, |batch, outputs| {
            judge.judge(&outputs, ids.len(), batch, &mut marks);
            let again = if self.kept.is_some() { Vec::new() } else { self.answers(batch)? };
            for (k, (comparison, x)) in comparisons.iter_mut().zip(&outputs).enumerate() {
                let width = comparison.reference.means.len().max(1);
                let expected = match &self.kept {
                    Some(kept) => kept.get(k).and_then(|all| all.get(seen * width..)),
                    None => again.get(k).map(Vec::as_slice),
                };
                comparison.add(rows(x, width, batch.len()), expected.unwrap_or_default().chunks(width));
            }
            seen += batch.len();
            progress(seen);
            Ok(())
        })?;
        let outputs = comparisons.iter().map(Comparison::agreement).collect();
        let mut divergences = vec![0.0; self.samples.len()];
        for comparison in &comparisons {
            divergences.iter_mut().zip(comparison.left()).for_each(|(sum, left)| *sum += left);
        }
        Ok(Measured { mistakes: judge.mistakes(marks), outputs, divergences })
    }

    /// The original's answers to some samples: for each output, sample after sample.
    fn answers(&self, samples: &[usize]) -> Result<Vec<Vec<f32>>> {
        let ids: Vec<ValueId> = self.outputs.iter().map(|o| o.ending.value).collect();
        let mut answers = vec![Vec::new(); ids.len()];
        each_batch(&self.graph, &ids, self.feed, samples, self.options, |batch, outputs| {
            for ((all, tensor), output) in answers.iter_mut().zip(&outputs).zip(&self.outputs) {
                rows(tensor, output.means.len(), batch.len()).for_each(|row| all.extend_from_slice(row));
            }
            Ok(())
        })?;
        Ok(answers)
    }

    /// Both networks must answer as many numbers.
    fn check_outputs(&self, graph: &Graph, taps: &[(String, Ending)]) -> Result<()> {
        let sizes: Vec<usize> = taps.iter().map(|(_, e)| per_sample(graph, e.value)).collect();
        let own: Vec<usize> = self.outputs.iter().map(|o| per_sample(&self.graph, o.ending.value)).collect();
        if sizes == own {
            return Ok(());
        }
        let text = format!("the networks answer {sizes:?} and {own:?} numbers for a sample: they cannot be compared");
        Err(Error::usage(text).hint("compare networks for the same task, with the same outputs in the same order"))
    }
}

impl std::fmt::Debug for Reference<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reference on {} samples, {:?}", self.samples.len(), self.outputs)
    }
}

/// The outputs that depend on the input, by name, and how the network ends there. Others, like tables of anchors,
/// answer nothing.
fn live_outputs(graph: &Graph) -> Result<Vec<(String, Ending)>> {
    let batch = graph.fixed_batch();
    let live = graph.outputs().iter().filter(|id| graph.depends_on_inputs(**id));
    let endings = live.map(|id| {
        let ending = Ending::of(graph, *id);
        // Samples stand along the first axis, each perhaps in several rows.
        let first = graph[ending.value].shape.dims().first();
        let samples_first = first.is_some_and(|dim| match dim {
            Dim::Batch(_) => true,
            Dim::Fixed(n) => batch.is_some_and(|batch| n % batch.max(1) == 0),
        });
        let (name, shape) = (&graph[*id].name, &graph[ending.value].shape);
        if samples_first {
            return Ok((name.clone(), ending));
        }
        Err(Error::unsupported(format!("output {name:?} of shape {shape} has no axis for the samples in front"))
            .hint("the first axis of every output should be the batch"))
    });
    endings.collect()
}

/// Numbers of a value for one sample.
fn per_sample(graph: &Graph, id: ValueId) -> usize {
    graph[id].shape.elements(1) / graph.fixed_batch().unwrap_or(1).max(1)
}

/// The numbers of the first `count` samples, so many each.
fn rows(tensor: &Tensor, width: usize, count: usize) -> impl Iterator<Item = &[f32]> {
    tensor.data().chunks(width.max(1)).take(count)
}

fn add_rows<'t>(sums: &mut Vec<f64>, rows: impl Iterator<Item = &'t [f32]>) {
    for row in rows {
        sums.resize(row.len(), 0.0);
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
    }
}

/// Judges a network by labels, where there are any.
struct Labelled<'l> {
    judge: Option<Judge<'l>>,
    output: Option<ValueId>,
}

/// Wrong answers so far.
#[derive(Default)]
struct Marks {
    wrong: Vec<u64>,
    loss: f64,
}

impl<'l> Labelled<'l> {
    fn new(graph: &Graph, feed: &'l Feed) -> Result<Self> {
        let output = graph.outputs().first().copied();
        let judge = feed.labels().zip(output).map(|(labels, output)| Judge::new(graph, output, labels)).transpose()?;
        Ok(Self { judge, output })
    }

    /// The values to compute: these, and behind them what is judged.
    fn taps(&self, ids: &[ValueId]) -> Vec<ValueId> {
        ids.iter().copied().chain(self.output.filter(|_| self.judge.is_some())).collect()
    }

    fn judge(&self, outputs: &[Tensor], at: usize, batch: &[usize], marks: &mut Marks) {
        if let (Some(judge), Some(scores)) = (&self.judge, outputs.get(at)) {
            marks.loss += judge.batch(scores, batch, &mut marks.wrong);
        }
    }

    fn mistakes(&self, marks: Marks) -> Option<Mistakes> {
        let judge = self.judge.as_ref()?;
        Some(Mistakes { wrong: marks.wrong, answers: judge.answers_per_sample(), loss: marks.loss })
    }
}

/// One output of two networks, sample by sample.
struct Comparison<'r> {
    reference: &'r ReferenceOutput,
    /// What the other network's numbers mean.
    scores: Scores,
    /// Classes at a position, and how far apart they stand.
    classes: usize,
    inner: usize,
    /// For each sample: the part of its answers that agree; for values Σ (x − t)² and Σ (t − t̄)².
    agreeing: Vec<f64>,
    differences: Vec<f64>,
    deviations: Vec<f64>,
    /// For each sample, where the kind is certain.
    divergences: Vec<f64>,
}

impl<'r> Comparison<'r> {
    fn new(reference: &'r ReferenceOutput, scores: Scores, shape: &[usize]) -> Self {
        let axis = reference.answer.axis;
        let classes = shape.get(axis).copied().unwrap_or(1).max(1);
        let inner = shape.iter().skip(axis + 1).product::<usize>().max(1);
        let none = Vec::new;
        Self {
            reference,
            scores,
            classes,
            inner,
            agreeing: none(),
            differences: none(),
            deviations: none(),
            divergences: none(),
        }
    }

    fn add<'x, 't>(&mut self, x: impl Iterator<Item = &'x [f32]>, t: impl Iterator<Item = &'t [f32]>) {
        let (kind, certain) = (self.reference.answer.kind, self.reference.answer.evidence.is_certain());
        for (x, t) in x.zip(t) {
            if kind == Kind::Values || !certain {
                let squares = |pair: (&f32, f64)| (f64::from(*pair.0) - pair.1).powi(2);
                self.differences.push(x.iter().zip(t.iter().map(|t| f64::from(*t))).map(squares).sum());
                self.deviations.push(t.iter().zip(self.reference.means.iter().copied()).map(squares).sum());
            }
            match kind {
                Kind::Classes => self.compare_classes(x, t, certain),
                Kind::Attributes => self.compare_attributes(x, t, certain),
                Kind::Values => {}
            }
        }
    }

    /// Position by position: whether the first answers are the same, and Σ p_t (log p_t − log p_x).
    fn compare_classes(&mut self, x: &[f32], t: &[f32], certain: bool) {
        let (classes, inner) = (self.classes, self.inner);
        let (mut same, mut positions, mut divergence) = (0usize, 0usize, 0.0);
        for (x, t) in x.chunks_exact(classes * inner).zip(t.chunks_exact(classes * inner)) {
            for position in 0..inner {
                let at = |row: &[f32]| row.iter().skip(position).step_by(inner).copied().collect::<Vec<f32>>();
                let (x, t) = (at(x), at(t));
                same += usize::from(largest(&x) == largest(&t) && !x.iter().any(|x| x.is_nan()));
                positions += 1;
                if certain {
                    let x = log_probabilities(&x, self.scores);
                    let t = log_probabilities(&t, self.reference.ending.scores);
                    // What the original rules out (probability 0) counts nothing.
                    let sure = t.iter().zip(&x).filter(|(t, _)| t.exp() > 0.0);
                    divergence += sure.map(|(t, x)| t.exp() * (t - x.max(LEAST.ln()))).sum::<f64>();
                }
            }
        }
        self.agreeing.push(same as f64 / positions.max(1) as f64);
        self.divergences.push(divergence / positions.max(1) as f64);
    }

    /// Number by number: whether the decisions are the same, and q log(q/p) + (1 − q) log((1 − q)/(1 − p)).
    fn compare_attributes(&mut self, x: &[f32], t: &[f32], certain: bool) {
        let (mut same, mut divergence) = (0usize, 0.0);
        for (x, t) in x.iter().zip(t) {
            let (p, q) = (probability(*x, self.scores), probability(*t, self.reference.ending.scores));
            same += usize::from((p > 0.5) == (q > 0.5) && !p.is_nan());
            let part = |q: f64, p: f64| if q > 0.0 { q * (q / p.max(LEAST)).ln() } else { 0.0 };
            divergence += if certain { part(q, p) + part(1.0 - q, 1.0 - p) } else { 0.0 };
        }
        self.agreeing.push(same as f64 / x.len().max(1) as f64);
        self.divergences.push(divergence / x.len().max(1) as f64);
    }

    /// What is left to learn of each sample: their mean is [`Agreement::divergence`].
    fn left(&self) -> Vec<f64> {
        let answer = &self.reference.answer;
        if answer.kind != Kind::Values && answer.evidence.is_certain() {
            return self.divergences.clone();
        }
        let deviation = mean(&self.deviations).max(f64::MIN_POSITIVE);
        self.differences.iter().map(|d| d / deviation).collect()
    }

    fn agreement(&self) -> Agreement {
        let relative = || {
            let (difference, deviation) = (mean(&self.differences), mean(&self.deviations));
            if difference == 0.0 { 0.0 } else { difference / deviation }
        };
        let certain = self.reference.answer.evidence.is_certain();
        if self.reference.answer.kind == Kind::Values {
            let square = relative();
            let root = square.sqrt();
            // By the delta method, of the ratio of two means.
            let rests: Vec<f64> = self.differences.iter().zip(&self.deviations).map(|(d, v)| d - square * v).collect();
            let error = standard_error(&rests) / mean(&self.deviations) / (2.0 * root.max(1e-9));
            let percent = 100.0 * (1.0 - root);
            // Not a number (answers that overflow) agrees with nothing.
            let percent = if percent.is_nan() { 0.0 } else { percent.max(0.0) };
            let standard_error = if root > 0.0 && error.is_finite() { 100.0 * error } else { 0.0 };
            return Agreement { percent, standard_error, divergence: square };
        }
        let divergence = if certain { mean(&self.divergences) } else { relative() };
        Agreement {
            percent: 100.0 * mean(&self.agreeing),
            standard_error: 100.0 * standard_error(&self.agreeing),
            divergence,
        }
    }
}

/// The least probability that logarithms are taken of.
const LEAST: f64 = 1e-12;

/// The place of the largest number, the first of equal ones.
fn largest(row: &[f32]) -> usize {
    row.iter().enumerate().fold((0, f32::NEG_INFINITY), |best, (i, x)| if *x > best.1 { (i, *x) } else { best }).0
}

/// Logarithms of the probabilities that a row of scores stands for.
fn log_probabilities(row: &[f32], scores: Scores) -> Vec<f64> {
    let numbers = row.iter().map(|x| f64::from(*x));
    match scores {
        Scores::LogProbabilities => numbers.collect(),
        // Of sigmoids they do not add up to one.
        Scores::Probabilities => {
            let sum: f64 = numbers.clone().map(|p| p.max(LEAST)).sum();
            numbers.map(|p| (p.max(LEAST) / sum).ln()).collect()
        }
        Scores::Logits => {
            let most = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let log = most + numbers.clone().map(|x| (x - most).exp()).sum::<f64>().ln();
            numbers.map(|x| x - log).collect()
        }
    }
}

/// The probability of yes.
fn probability(score: f32, scores: Scores) -> f64 {
    let x = f64::from(score);
    match scores {
        Scores::Probabilities => x,
        Scores::LogProbabilities => x.exp(),
        Scores::Logits => 1.0 / (1.0 + (-x).exp()),
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// Of the mean of these numbers.
fn standard_error(numbers: &[f64]) -> f64 {
    let (count, mean) = (numbers.len() as f64, mean(numbers));
    let squares: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
    (squares / (count * (count - 1.0)).max(1.0)).sqrt()
}
