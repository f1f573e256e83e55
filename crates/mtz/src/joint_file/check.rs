//! What is written is read back: the file must compute what the model in memory does.

use super::from_graph;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::run::Runner;
use crate::sharing::{Joint, Member};
use crate::tensor::{Element, Tensor};

/// What answers of a file may differ by, relative to the largest number. File and memory compute the same sums in the
/// same order; what is wrong is far off.
const ALLOWED: f32 = 1e-4;

/// Refuses a joint model, as it was read back from its file, that computes something else than the one in memory.
/// `samples`: some of every task.
pub fn check(file: &Graph, joint: &Joint, samples: &[Tensor], common_input: bool) -> Result<()> {
    let back = from_graph(file)?.ok_or_else(|| Error::model("the file is no joint model any more"))?;
    let same = |(a, b): (&Member, &Member)| a.name == b.name && a.layers.len() == b.layers.len();
    if back.members.len() != joint.members.len() || !joint.members.iter().zip(&back.members).all(same) {
        return Err(Error::model("the written file has other tasks than the model").hint("nothing was written"));
    }
    let inputs = if common_input { samples.get(..1).unwrap_or_default() } else { samples };
    let mut written = Runner::new(file).run(inputs)?.into_iter();
    for (t, (member, extracted)) in joint.members.iter().zip(&back.members).enumerate() {
        let Some(sample) = inputs.get(if common_input { 0 } else { t }) else { continue };
        let sample = std::slice::from_ref(sample);
        let expected = Runner::new(&member.graph).run(sample)?;
        let own: Vec<Tensor> = written.by_ref().take(expected.len()).collect();
        let alone = Runner::new(&extracted.graph).run(sample)?;
        not_too_far(&member.name, difference(&expected, &own).max(difference(&expected, &alone)), ALLOWED)?;
    }
    Ok(())
}

/// Refuses preprocessing inside of a task's network that computes something else on `raw` samples than the network does
/// on prepared ones.
pub fn check_preprocessing(task: &str, networks: (&Graph, &Graph), (samples, raw): (&Tensor, &Tensor)) -> Result<()> {
    /// Mean and deviation are rounded as the weights are.
    const ROUNDED: f32 = 1e-2;
    let allowed = if networks.1.element == Element::F32 { ALLOWED } else { ROUNDED };
    let expected = Runner::new(networks.0).run(std::slice::from_ref(samples))?;
    let other = Runner::new(networks.1).run(std::slice::from_ref(raw))?;
    not_too_far(task, difference(&expected, &other), allowed)
}

fn not_too_far(task: &str, apart: f32, allowed: f32) -> Result<()> {
    if apart <= allowed {
        return Ok(());
    }
    let text = format!("the written file is not the model: task {task} differs by {apart:.1e}");
    Err(Error::model(text).hint("nothing was written; please report this with the models"))
}

/// The largest difference between two lists of tensors, relative to the largest number of each; infinite if they do not
/// match.
fn difference(expected: &[Tensor], other: &[Tensor]) -> f32 {
    let shapes = |all: &[Tensor]| all.iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>();
    if shapes(expected) != shapes(other) {
        return f32::INFINITY;
    }
    let one = |(expected, other): (&Tensor, &Tensor)| {
        let numbers = || expected.data().iter().zip(other.data());
        let scale = numbers().filter(|(x, _)| x.is_finite()).fold(f32::MIN_POSITIVE, |most, (x, _)| most.max(x.abs()));
        let apart = |(x, y): (&f32, &f32)| match (x - y).abs() {
            _ if x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan() => 0.0,
            apart if apart.is_nan() => f32::INFINITY,
            apart => apart / scale,
        };
        numbers().map(apart).fold(0.0, f32::max)
    };
    expected.iter().zip(other).map(one).fold(0.0, f32::max)
}
