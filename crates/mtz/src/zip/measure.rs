//! How good the networks are at any moment of a zip: errors on labels, and agreement with the originals.

use super::options::{TaskData, ZipOptions};
use crate::error::Result;
use crate::evaluate::{self, EvaluationOptions, Measured, Mistakes, Reference};
use crate::graph::Graph;
use crate::run::{CpuEngine, Inference, Runner};
use crate::sharing::{Joint, Member};
use crate::simplify;
use rayon::prelude::*;

/// What the originals answer to the samples that are measured, task by task; nothing for a task without such samples.
#[derive(Debug)]
pub struct References<'a>(Vec<Option<Reference<'a>>>);

/// The part of the memory that the answers of an original may take, so that it need not run again.
const KEPT: u64 = 64;

/// Bytes of the originals' answers that are kept for so many samples of each task.
pub(super) fn answer_bytes(start: &Joint, tasks: &[TaskData], samples: &[usize], options: &ZipOptions) -> u64 {
    let of = |((member, task), samples): ((&Member, &TaskData), &usize)| {
        // An original that cannot be compared is refused where that is tried.
        let bytes = Reference::bytes(task.original.unwrap_or(&member.graph), *samples).unwrap_or(0);
        if bytes <= options.resources.memory / KEPT { bytes } else { 0 }
    };
    start.members.iter().zip(tasks).zip(samples).map(of).sum()
}

impl<'a> References<'a> {
    /// Runs the originals on each task's test samples.
    pub fn new(
        originals: &[&Graph],
        tasks: &[TaskData<'a>],
        options: &ZipOptions,
        engine: &'a dyn Inference,
    ) -> Result<Self> {
        let each = options.resources.memory / 2 / tasks.len().max(1) as u64;
        let reference = |(graph, task): (&&Graph, &TaskData<'a>)| {
            let Some((feed, samples)) = task.test.as_ref().filter(|(_, samples)| !samples.is_empty()) else {
                return Ok(None);
            };
            let original = task.original.unwrap_or(graph);
            let evaluation = evaluation(original, each, options, engine)?;
            Reference::new(original, feed, samples, task.kind, options.resources.memory / KEPT, evaluation).map(Some)
        };
        Ok(Self(originals.par_iter().zip(tasks).map(reference).collect::<Result<_>>()?))
    }

    /// The same originals on other samples: the test samples of these tasks.
    pub(super) fn on(&self, tasks: &[TaskData<'a>], options: &ZipOptions) -> Result<Self> {
        let on = |(reference, task): (&Option<Reference<'a>>, &TaskData<'a>)| {
            let samples = task.test.as_ref().map(|(_, samples)| samples).filter(|samples| !samples.is_empty());
            reference
                .as_ref()
                .zip(samples)
                .map(|(r, samples)| r.on(samples, options.resources.memory / KEPT))
                .transpose()
        };
        Ok(Self(self.0.par_iter().zip(tasks).map(on).collect::<Result<_>>()?))
    }

    /// Compares networks with the originals.
    pub fn measure(&self, graphs: &[&Graph]) -> Result<Vec<Option<Measured>>> {
        let measure = |(reference, graph): (&Option<Reference>, &&Graph)| {
            reference.as_ref().map(|reference| reference.measure(graph, |_| {})).transpose()
        };
        self.0.par_iter().zip(graphs).map(measure).collect()
    }

    /// What each task's originals got wrong.
    pub fn errors(&self) -> Vec<Option<f64>> {
        self.0.iter().map(|r| Some(r.as_ref()?.mistakes.as_ref()?.evaluation().error)).collect()
    }

    /// What the original of each task answers.
    pub fn iter(&self) -> impl Iterator<Item = Option<&Reference<'a>>> {
        self.0.iter().map(Option::as_ref)
    }
}

/// Errors of measured networks in percent, where there are labels.
pub(super) fn errors_of(measured: &[Option<Measured>]) -> Vec<Option<f64>> {
    measured.iter().map(|m| m.as_ref().and_then(Measured::error)).collect()
}

/// Agreement of measured networks in percent.
pub(super) fn agreement_of(measured: &[Option<Measured>]) -> Vec<Option<f64>> {
    measured.iter().map(|m| m.as_ref().and_then(Measured::agreement).map(|a| a.percent)).collect()
}

fn evaluation<'e>(
    graph: &Graph,
    each: u64,
    options: &ZipOptions,
    engine: &'e dyn Inference,
) -> Result<EvaluationOptions<'e>> {
    let batch_size = measured_at_a_time(&simplify::for_inference(graph)?, each);
    Ok(EvaluationOptions { batch_size, memory: options.resources.memory, engine })
}

/// The error of each network on its test data, in percent.
pub fn errors(graphs: &[&Graph], tasks: &[TaskData], options: &ZipOptions) -> Result<Vec<Option<f64>>> {
    let error = |of: Option<Mistakes>| of.map(|m| m.evaluation().error);
    Ok(mistakes(graphs, tasks, options)?.into_iter().map(error).collect())
}

/// What each network gets wrong of its test data, where that has labels.
fn mistakes(graphs: &[&Graph], tasks: &[TaskData], options: &ZipOptions) -> Result<Vec<Option<Mistakes>>> {
    let each = options.resources.memory / 2 / graphs.len().max(1) as u64;
    graphs
        .par_iter()
        .zip(tasks)
        .map(|(graph, task)| {
            let Some((feed, samples)) = &task.test else { return Ok(None) };
            if feed.labels().is_none() {
                return Ok(None);
            }
            let graph = simplify::for_inference(graph)?;
            let evaluation = evaluation(&graph, each, options, &CpuEngine)?;
            evaluate::mistakes(&graph, feed, samples, evaluation, |_| {}).map(Some)
        })
        .collect()
}

/// Samples whose errors are measured together, in at most so many bytes.
pub(crate) fn measured_at_a_time(graph: &Graph, memory: u64) -> usize {
    const USUAL: usize = 64;
    let runner = Runner::new(graph);
    (0..=USUAL.ilog2()).rev().map(|k| 1 << k).find(|n| runner.peak_bytes(*n) <= memory).unwrap_or(1)
}
