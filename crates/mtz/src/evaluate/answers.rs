//! What a network's answers are: one of several classes, yes-or-no attributes, or values. Errors, agreement and
//! retraining all depend on it.
//!
//! The kind is found out: what the caller asks for comes first, then labels, then the operator the network ends in.
//! Many exported classifiers end in plain logits. The gradient of softmax cross-entropy adds up to zero over the
//! classes, so training hardly moves the sum of the logits: outputs whose sum stays the same from sample to sample,
//! while each of them varies, are taken for classes if many of them are the largest now and then. The landmarks of a
//! face may add up to a constant, too, but always the same ones are the largest. That is a guess, and marked as one.

use crate::data::Labels;
use crate::graph::{Graph, ValueId};
use crate::op::Op;
use crate::tensor::Tensor;
use std::fmt;
use std::str::FromStr;

/// What the numbers of an output stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The largest of several scores is the answer.
    Classes,
    /// Every number answers a yes-or-no question of its own.
    Attributes,
    /// The numbers themselves are the answer.
    Values,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Classes => "classes",
            Self::Attributes => "attributes",
            Self::Values => "values",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Classes, Self::Attributes, Self::Values];
        let found = all.into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| format!("{text:?} is not one of classes, attributes and values"))
    }
}

/// Why an output is taken for what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The caller says so.
    Asked,
    /// The labels are of this kind.
    Labels,
    /// The network ends in `Softmax`, `LogSoftmax` or `Sigmoid`.
    LastOperator,
    /// The outputs of every sample add up to about the same.
    ConstantSum,
    /// Nothing speaks for another kind.
    None,
}

impl Evidence {
    /// Whether the kind is known rather than guessed.
    pub fn is_certain(self) -> bool {
        !matches!(self, Self::ConstantSum | Self::None)
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "as asked for",
            Self::Labels => "by the labels",
            Self::LastOperator => "by the last operator",
            Self::ConstantSum => "a guess: outputs add up to a constant, as logits do",
            Self::None => "a guess: linear outputs, no labels",
        })
    }
}

/// What the numbers of a network's output mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Any numbers: the larger, the likelier.
    Logits,
    /// Probabilities, from `Softmax` or `Sigmoid`.
    Probabilities,
    /// Logarithms of probabilities, from `LogSoftmax`.
    LogProbabilities,
}

/// How a network ends in one of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The numbers of the output, in the shape the last operator gave them. Views and transpositions behind it are left
    /// out.
    pub value: ValueId,
    /// The numbers that a final `Softmax` or `Sigmoid` reads, or `value`. Losses are made for these.
    pub logits: ValueId,
    /// What the numbers of `value` mean.
    pub scores: Scores,
    /// What the last operator says about them.
    kind: Option<Kind>,
    /// The axis of a final `Softmax`.
    axis: Option<usize>,
}

impl Ending {
    /// Judged by the last operators in front of an output.
    pub fn of(graph: &Graph, output: ValueId) -> Self {
        let linear = Self { value: output, logits: output, scores: Scores::Logits, kind: None, axis: None };
        let mut at = output;
        // Whether only a part of what the last operator computes is left, like the probability of one of two classes.
        let mut selected = false;
        for node in graph.nodes().iter().rev() {
            let Some(input) = node.inputs.iter().flatten().next().copied().filter(|_| node.output == at) else {
                continue;
            };
            let found = |scores, kind, axis| match selected {
                // What was selected of a softmax are probabilities without the others they compete with.
                true => Self { scores, kind: Some(Kind::Attributes), ..linear },
                false => Self { value: at, logits: input, scores, kind: Some(kind), axis },
            };
            match &node.op {
                Op::Softmax(op) => return found(Scores::Probabilities, Kind::Classes, Some(op.axis)),
                Op::LogSoftmax(op) => return found(Scores::LogProbabilities, Kind::Classes, Some(op.axis)),
                Op::Sigmoid(_) | Op::HardSigmoid(_) => return found(Scores::Probabilities, Kind::Attributes, None),
                op if op.is_view() || matches!(op, Op::Transpose(_) | Op::Clip(_)) => at = input,
                Op::Slice(_) | Op::Gather(_) => (at, selected) = (input, true),
                _ => return linear,
            }
        }
        linear
    }
}

/// What an output is, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The kind of its numbers.
    pub kind: Kind,
    /// Why.
    pub evidence: Evidence,
    /// The axis along which classes stand in [`Ending::value`].
    pub axis: usize,
}

impl Answer {
    /// What an output is. `asked`: what the caller says; `labels`: of the samples, for the first output; `seen`: the
    /// numbers of [`Ending::value`] for some batches.
    pub fn of(ending: &Ending, asked: Option<Kind>, labels: Option<&Labels>, seen: &[&Tensor]) -> Self {
        let shape = seen.first().map_or(&[][..], |t| t.shape());
        let guessed = constant_sum_axis(seen);
        let axis = ending.axis.or(guessed).unwrap_or_else(|| usual_axis(shape));
        let answer = |kind, evidence| Self { kind, evidence, axis };
        if let Some(kind) = asked {
            return answer(kind, Evidence::Asked);
        }
        if let Some(kind) = labels.and_then(|labels| kind_of_labels(labels, shape)) {
            return answer(kind, Evidence::Labels);
        }
        match (ending.kind, guessed) {
            (Some(kind), _) => answer(kind, Evidence::LastOperator),
            (None, Some(_)) => answer(Kind::Classes, Evidence::ConstantSum),
            (None, None) => answer(Kind::Values, Evidence::None),
        }
    }
}

/// What labels say about one row of numbers per sample; nothing about other shapes.
fn kind_of_labels(labels: &Labels, shape: &[usize]) -> Option<Kind> {
    let sizes: Vec<usize> = shape.iter().skip(1).copied().filter(|n| *n != 1).collect();
    let numbers: usize = sizes.iter().product();
    match labels {
        _ if sizes.len() > 1 => None,
        // One number tells two classes apart: yes or no.
        Labels::Classes(_) => Some(if numbers == 1 { Kind::Attributes } else { Kind::Classes }),
        Labels::Attributes { count, .. } => (*count == numbers).then_some(Kind::Attributes),
    }
}

/// Where classes stand if nothing else is known: along the only axis there is, along the channels of a map, along the
/// last axis of rows and sequences.
fn usual_axis(shape: &[usize]) -> usize {
    let mut long = shape.iter().enumerate().skip(1).filter(|(_, n)| **n > 1).map(|(axis, _)| axis);
    if let (Some(only), None) = (long.next(), long.next()) {
        return only;
    }
    if shape.len() >= 4 { 1 } else { shape.len().saturating_sub(1) }
}

/// An axis along which numbers add up to about the same everywhere, if there is one. With m the mean along the axis and
/// z_k the numbers,
///
/// ```text
/// K · var(m) / mean_k var(z_k)
/// ```
///
/// is 1 for K numbers that know nothing of each other, K for equal ones, and near 0 for the logits of a classifier.
/// Classes are also the first answer now and then: with p_k the part of the positions where z_k is the largest, their
/// effective number exp(−Σ p_k log p_k) is near K for balanced classes and stays small for coordinates, each of which
/// has a place of its own. Where the answers are one-sided, the guess is the cautious one: values.
fn constant_sum_axis(seen: &[&Tensor]) -> Option<usize> {
    const LIMIT: f64 = 0.2;
    /// The part of the classes that must be first answers. Two numbers with a constant sum are classes in any case.
    const ANSWERING: f64 = 0.125;
    const FEWEST: f64 = 1.5;
    /// Positions that are looked at, at least and at most: a few samples add up to anything, and more of them tell
    /// nothing new.
    const LEAST: usize = 32;
    const POSITIONS: usize = 100_000;
    let shape = seen.first()?.shape();
    let last = shape.len().checked_sub(1)?;
    let mut candidates = vec![usual_axis(shape), 1, last];
    candidates.retain(|axis| *axis > 0 && *axis <= last);
    candidates.into_iter().find(|&axis| {
        let (classes, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        if classes < 2 {
            return false;
        }
        let mut each = vec![(0.0f64, 0.0f64); classes];
        let (mut mean, mut count) = ((0.0f64, 0.0f64), 0usize);
        let mut first_answers = vec![0usize; classes];
        let add = |sums: &mut (f64, f64), x: f64| *sums = (sums.0 + x, sums.1 + x * x);
        'all: for tensor in seen {
            for block in tensor.data().chunks_exact(classes * inner) {
                for position in 0..inner {
                    if count == POSITIONS {
                        break 'all;
                    }
                    let (mut sum, mut largest) = (0.0, (0, f64::NEG_INFINITY));
                    for (k, sums) in each.iter_mut().enumerate() {
                        let x = f64::from(block[k * inner + position]);
                        add(sums, x);
                        sum += x;
                        if x > largest.1 {
                            largest = (k, x);
                        }
                    }
                    add(&mut mean, sum / classes as f64);
                    first_answers[largest.0] += 1;
                    count += 1;
                }
            }
        }
        let variance = |(sum, squares): (f64, f64)| (squares - sum * sum / count as f64) / count as f64;
        let single = each.into_iter().map(variance).sum::<f64>() / classes as f64;
        let wanted = (ANSWERING * classes.min(count) as f64).max(FEWEST);
        count >= LEAST
            && single > 0.0
            && classes as f64 * variance(mean) < LIMIT * single
            && (classes == 2 || effective_number(&first_answers) >= wanted)
    })
}

/// How many of several things occur, rare ones counted less: exp(−Σ p log p).
fn effective_number(counts: &[usize]) -> f64 {
    let all = counts.iter().sum::<usize>() as f64;
    let parts = counts.iter().filter(|n| **n > 0).map(|n| *n as f64 / all);
    (-parts.map(|p| p * p.ln()).sum::<f64>()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    fn rows(samples: usize, width: usize, of: impl Fn(usize, usize) -> f32) -> Tensor {
        let data = (0..samples * width).map(|i| of(i / width, i % width)).collect();
        Tensor::new(vec![samples, width], data).unwrap()
    }

    fn answer(tensor: &Tensor, asked: Option<Kind>, labels: Option<&Labels>) -> (Kind, Evidence) {
        let id = Graph::new("x").add_input("x", crate::tensor::Shape::fixed(&[1]).unwrap());
        let ending = Ending { value: id, logits: id, scores: Scores::Logits, kind: None, axis: None };
        let answer = Answer::of(&ending, asked, labels, &[tensor]);
        (answer.kind, answer.evidence)
    }

    #[test]
    fn logits_are_told_from_coordinates() {
        let noise = |s: usize, k: usize| random::normal(7, (s * 100 + k) as u64);
        // Centred numbers, as cross-entropy leaves them; an offset that all samples have does not matter.
        let logits = rows(200, 10, |s, k| 3.0 * noise(s, k) - (0..10).map(|j| 0.3 * noise(s, j)).sum::<f32>() + 2.0);
        assert_eq!(answer(&logits, None, None), (Kind::Classes, Evidence::ConstantSum));
        let two = rows(200, 2, |s, k| if k == 0 { noise(s, 0) } else { 0.1 * noise(s, 1) - noise(s, 0) });
        assert_eq!(answer(&two, None, None).0, Kind::Classes);
        let point = rows(200, 2, |s, k| 20.0 + 5.0 * noise(s, k));
        assert_eq!(answer(&point, None, None), (Kind::Values, Evidence::None));
        // Landmarks of a face move together.
        let landmarks = rows(200, 136, |s, k| noise(s, 0) + 0.2 * noise(s, k) + k as f32);
        assert_eq!(answer(&landmarks, None, None).0, Kind::Values);
        assert_eq!(answer(&rows(200, 1, noise), None, None).0, Kind::Values);
    }

    /// A face in the middle of the image that turns a little: x and y around a mean shape add up to about the same.
    #[test]
    fn landmarks_that_add_up_to_a_constant_are_values() {
        let place = |k: usize| (10.0 * noise(0, 2 * k), 10.0 * noise(0, 2 * k + 1));
        fn noise(s: usize, k: usize) -> f32 {
            random::normal(11, (s * 1000 + k) as u64)
        }
        let turned = rows(200, 136, |s, k| {
            let ((x, y), (sin, cos)) = (place(k / 2), (0.2 * noise(s + 1, 0)).sin_cos());
            let own = if k % 2 == 0 { cos * x - sin * y } else { sin * x + cos * y };
            32.0 + own + 0.5 * noise(s + 1, 1 + k)
        });
        assert_eq!(answer(&turned, None, None), (Kind::Values, Evidence::None));
    }

    #[test]
    fn axes_of_length_one_hold_no_classes() {
        assert_eq!([usual_axis(&[8, 5, 1]), usual_axis(&[8, 1, 1, 5]), usual_axis(&[8, 5])], [1, 3, 1]);
        assert_eq!([usual_axis(&[8, 3, 4, 4]), usual_axis(&[8, 7, 5]), usual_axis(&[8, 1])], [1, 2, 1]);
    }

    #[test]
    fn a_thousand_classes_need_no_more_samples() {
        let noise = |s: usize, k: usize| random::normal(3, (s * 2000 + k) as u64);
        let means: Vec<f32> = (0..200).map(|s| (0..1000).map(|j| noise(s, j)).sum::<f32>() / 1000.0).collect();
        let logits = rows(200, 1000, |s, k| noise(s, k) - means[s]);
        assert_eq!(answer(&logits, None, None), (Kind::Classes, Evidence::ConstantSum));
        assert_eq!(answer(&rows(200, 1000, noise), None, None).0, Kind::Values);
    }

    #[test]
    fn the_caller_then_labels_decide() {
        let noise = rows(50, 3, |s, k| random::normal(1, (3 * s + k) as u64));
        let classes = Labels::Classes(vec![0; 50]);
        let attributes = Labels::Attributes { count: 3, values: vec![true; 150] };
        assert_eq!(answer(&noise, None, Some(&classes)), (Kind::Classes, Evidence::Labels));
        assert_eq!(answer(&noise, None, Some(&attributes)), (Kind::Attributes, Evidence::Labels));
        assert_eq!(answer(&noise, Some(Kind::Values), Some(&classes)), (Kind::Values, Evidence::Asked));
        let one = rows(50, 1, |s, _| s as f32);
        assert_eq!(answer(&one, None, Some(&classes)).0, Kind::Attributes);
    }

    #[test]
    fn kinds_are_read_and_written() {
        for kind in [Kind::Classes, Kind::Attributes, Kind::Values] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("numbers".parse::<Kind>().is_err());
    }
}
