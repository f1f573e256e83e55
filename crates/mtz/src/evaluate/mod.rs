//! How good a network is: error and loss on labelled data, and without labels agreement with the network it was made
//! from.

mod agreement;
mod answers;

pub use agreement::{Agreement, Measured, OutputKind, Reference, ReferenceOutput};
pub use answers::{Answer, Ending, Evidence, Kind, Scores};

use crate::data::{Feed, Labels};
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::run::{CpuEngine, Inference};
use crate::tensor::Tensor;

/// The figures of one evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Wrong answers in percent: of the samples, or of all attributes of all samples.
    pub error: f64,
    /// The mean cross-entropy (classes) or binary cross-entropy (attributes).
    pub loss: f64,
    /// How many samples were looked at.
    pub samples: usize,
}

/// What a network got wrong, sample by sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistakes {
    /// Wrong answers to each sample.
    pub wrong: Vec<u64>,
    /// Answers to each sample: one class, or as many as there are attributes.
    pub answers: usize,
    /// The sum over all answers.
    pub loss: f64,
}

impl Mistakes {
    /// The figures of all samples.
    pub fn evaluation(&self) -> Evaluation {
        let answers = (self.wrong.len() * self.answers) as f64;
        let wrong: u64 = self.wrong.iter().sum();
        Evaluation { error: 100.0 * wrong as f64 / answers, loss: self.loss / answers, samples: self.wrong.len() }
    }

    /// Points lost against another network on the same samples, and the standard error of that figure:
    ///
    /// ```text
    /// δ_s = 100 (wrong_s − wrong'_s) / answers      mean δ ± √(Σ (δ_s − mean δ)² / (n (n − 1)))
    /// ```
    ///
    /// Sample by sample, because what both get right or both get wrong says nothing about their difference.
    pub fn lost_against(&self, before: &Self) -> (f64, f64) {
        let points = 100.0 / self.answers.max(1) as f64;
        let lost: Vec<f64> =
            self.wrong.iter().zip(&before.wrong).map(|(a, b)| points * (*a as f64 - *b as f64)).collect();
        let count = lost.len() as f64;
        let mean = lost.iter().sum::<f64>() / count;
        let squares: f64 = lost.iter().map(|x| (x - mean).powi(2)).sum();
        (mean, (squares / (count * (count - 1.0).max(1.0))).sqrt())
    }
}

/// How to evaluate.
#[derive(Clone, Copy)]
pub struct EvaluationOptions<'e> {
    /// Samples per batch; a network with a fixed batch size uses that.
    pub batch_size: usize,
    /// Bytes the values of the network may take.
    pub memory: u64,
    /// What runs the network.
    pub engine: &'e dyn Inference,
}

impl EvaluationOptions<'_> {
    /// On the CPU.
    pub fn new(batch_size: usize, memory: u64) -> Self {
        Self { batch_size, memory, engine: &CpuEngine }
    }
}

/// Runs the network on all samples and compares its first output with the labels. `progress` hears how many samples
/// are done.
pub fn evaluate(
    graph: &Graph,
    feed: &Feed,
    options: EvaluationOptions,
    progress: impl FnMut(usize),
) -> Result<Evaluation> {
    evaluate_on(graph, feed, &feed.all(), options, progress)
}

/// The same on chosen samples.
pub fn evaluate_on(
    graph: &Graph,
    feed: &Feed,
    samples: &[usize],
    options: EvaluationOptions,
    progress: impl FnMut(usize),
) -> Result<Evaluation> {
    Ok(mistakes(graph, feed, samples, options, progress)?.evaluation())
}

/// The same, sample by sample.
pub fn mistakes(
    graph: &Graph,
    feed: &Feed,
    samples: &[usize],
    options: EvaluationOptions,
    mut progress: impl FnMut(usize),
) -> Result<Mistakes> {
    let labels = feed
        .labels()
        .ok_or_else(|| Error::data("the data has no labels").hint("an .npz needs an array y, or `label` NAME"))?;
    let &[output, ..] = graph.outputs() else { return Err(Error::model("the network has no output")) };
    let judge = Judge::new(graph, output, labels)?;
    let (mut wrong, mut loss) = (Vec::with_capacity(samples.len()), 0.0);
    each_batch(graph, &[output], feed, samples, options, |batch, outputs| {
        if let Some(scores) = outputs.first() {
            loss += judge.batch(scores, batch, &mut wrong);
        }
        progress(wrong.len());
        Ok(())
    })?;
    Ok(Mistakes { wrong, answers: judge.answers_per_sample(), loss })
}

/// Runs a network on all samples, batch by batch; `see` gets the samples of each batch and what was asked for. A
/// network with a fixed batch size gets its last batch filled up: the first rows belong to the samples.
fn each_batch(
    graph: &Graph,
    wanted: &[ValueId],
    feed: &Feed,
    samples: &[usize],
    options: EvaluationOptions,
    mut see: impl FnMut(&[usize], Vec<Tensor>) -> Result<()>,
) -> Result<()> {
    let batch_size = graph.fixed_batch().unwrap_or(options.batch_size).max(1);
    let batch = batch_size.min(samples.len().max(1));
    let mut network = options.engine.prepare(graph, wanted, batch, options.memory)?;
    let batches: Vec<&[usize]> = samples.chunks(batch_size).collect();
    let load = |batch: &&[usize]| {
        let fill = if graph.fixed_batch().is_some() { batch_size - batch.len() } else { 0 };
        let last = batch.last().copied().unwrap_or(0);
        feed.batch(&batch.iter().copied().chain(std::iter::repeat_n(last, fill)).collect::<Vec<_>>())
    };
    let mut next = batches.first().map(load).transpose()?;
    for (i, batch) in batches.iter().enumerate() {
        let Some(input) = next.take() else { break };
        // The next samples are read while the network runs.
        let (outputs, following) = rayon::join(|| network.run(&[input]), || batches.get(i + 1).map(load).transpose());
        next = following?;
        see(batch, outputs?)?;
    }
    Ok(())
}

/// Compares scores with labels.
struct Judge<'l> {
    labels: &'l Labels,
    outputs: usize,
    scores: Scores,
}

impl<'l> Judge<'l> {
    fn new(graph: &Graph, output: ValueId, labels: &'l Labels) -> Result<Self> {
        let value = &graph[output];
        let Some(outputs) = graph.row_of_scores(output) else {
            let (name, shape) = (&value.name, &value.shape);
            return Err(Error::unsupported(format!("output {name:?} is {shape}, not one row of scores per sample"))
                .hint("the output should be N×classes"));
        };
        match labels {
            Labels::Classes(classes) => {
                let highest = classes.iter().max().copied().unwrap_or(0) as usize;
                if highest >= outputs.max(2) {
                    return Err(Error::data(format!(
                        "labels go up to {highest}, but output {:?} has {outputs} classes",
                        value.name
                    ))
                    .hint("is this the data the model was trained for?"));
                }
            }
            Labels::Attributes { count, .. } if *count != outputs => {
                return Err(Error::data(format!(
                    "the data has {count} attributes, but output {:?} has {outputs}",
                    value.name
                )));
            }
            Labels::Attributes { .. } => {}
        }
        Ok(Self { labels, outputs, scores: Ending::of(graph, output).scores })
    }

    fn answers_per_sample(&self) -> usize {
        match self.labels {
            Labels::Classes(_) => 1,
            Labels::Attributes { count, .. } => *count,
        }
    }

    /// The total loss of the first rows of `scores`, which belong to these samples. Their wrong answers go behind those
    /// of earlier samples.
    fn batch(&self, scores: &Tensor, samples: &[usize], wrong: &mut Vec<u64>) -> f64 {
        let rows = scores.data().chunks(self.outputs.max(1)).zip(samples);
        rows.fold(0.0, |loss, (row, &i)| {
            let (more_wrong, more_loss) = match self.labels {
                Labels::Classes(classes) if self.outputs == 1 => self.binary(row[0], classes[i] == 1),
                Labels::Classes(classes) => self.class(row, classes[i] as usize),
                Labels::Attributes { count, values } => row
                    .iter()
                    .zip(&values[i * count..])
                    .map(|(&score, &truth)| self.binary(score, truth))
                    .fold((0, 0.0), |(w, l), (wrong, loss)| (w + wrong, l + loss)),
            };
            wrong.push(more_wrong);
            loss + more_loss
        })
    }

    /// Cross-entropy −log p(truth); the first of equal scores is the answer. NaN is never right.
    fn class(&self, row: &[f32], truth: usize) -> (u64, f64) {
        let mut best = 0;
        for (i, &score) in row.iter().enumerate() {
            if score > row[best] {
                best = i;
            }
        }
        let score = f64::from(row[truth]);
        let loss = match self.scores {
            Scores::Logits => {
                let largest = f64::from(row[best]);
                let sum: f64 = row.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
                largest + sum.ln() - score
            }
            Scores::Probabilities => -score.max(f64::MIN_POSITIVE).ln(),
            Scores::LogProbabilities => -score,
        };
        (u64::from(best != truth || row[truth].is_nan()), loss)
    }

    /// Binary cross-entropy of one yes-or-no answer.
    fn binary(&self, score: f32, truth: bool) -> (u64, f64) {
        let (x, t) = (f64::from(score), f64::from(u8::from(truth)));
        let (yes, loss) = match self.scores {
            Scores::Probabilities => {
                let p = if truth { x } else { 1.0 - x };
                (score > 0.5, -p.max(f64::MIN_POSITIVE).ln())
            }
            // max(x, 0) − x t + log(1 + e^(−|x|))
            _ => (score > 0.0, x.max(0.0) - x * t + (-x.abs()).exp().ln_1p()),
        };
        (u64::from(yes != truth || score.is_nan()), loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(wrong: &[u64], answers: usize) -> Mistakes {
        Mistakes { wrong: wrong.to_vec(), answers, loss: 0.0 }
    }

    /// Ten samples, three newly wrong and one newly right: SciPy's `sem` of these differences times 100.
    #[test]
    fn what_is_lost_has_a_standard_error() {
        let (before, after) =
            (mistakes(&[0, 0, 0, 1, 1, 0, 0, 0, 1, 0], 1), mistakes(&[1, 1, 1, 0, 1, 0, 0, 0, 1, 0], 1));
        let (lost, error) = after.lost_against(&before);
        assert!((lost - 20.0).abs() < 1e-9 && (error - 20.0).abs() < 1e-9, "{lost} {error}");
        assert_eq!(after.lost_against(&after), (0.0, 0.0));
        assert!((lost - (after.evaluation().error - before.evaluation().error)).abs() < 1e-9);
    }

    /// Of several answers to a sample each counts its part.
    #[test]
    fn attributes_count_in_parts() {
        let (before, after) = (mistakes(&[1, 0, 2, 0], 4), mistakes(&[2, 0, 2, 3], 4));
        let (lost, error) = after.lost_against(&before);
        assert!((lost - 25.0).abs() < 1e-9 && (error - 17.677_669_529_663_69).abs() < 1e-9, "{lost} {error}");
    }
}
