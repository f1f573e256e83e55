//! Preprocessing as part of a network: x · scale, then (x − mean) / std per channel, in front of its input. What
//! [`crate::data::Feed`] does outside, in the same order and to the same bits, so that who runs the file feeds plain
//! pixels.

use crate::data::Normalisation;
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::op::{Div, Mul, Op, Sub};
use crate::tensor::{Shape, Tensor};

/// The network with its input's preprocessing inside. `bytes`: the samples are bytes, which are divided by 255 unless
/// `normalisation` says otherwise. What comes out takes samples as they are stored: [`Normalisation::raw`].
pub fn with_preprocessing(graph: &Graph, normalisation: &Normalisation, bytes: bool) -> Result<Graph> {
    in_front(graph, |new, raw| add(new, raw, normalisation, bytes, |name| graph.is_free(name)))
}

/// One step of preprocessing, as it stands in a network.
struct Step<'g> {
    /// `scale`, `range`, `mean` or `std`.
    what: &'g str,
    op: &'g Op,
    constant: &'g Tensor,
}

impl Step<'_> {
    /// Whether two steps do the same. Files of f16 hold their numbers a little off.
    fn is_like(&self, other: &Self) -> bool {
        const NEAR: f32 = 1e-3;
        let (own, others) = (self.constant.data(), other.constant.data());
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= NEAR * a.abs().max(b.abs());
        self.what == other.what && own.len() == others.len() && own.iter().zip(others).all(near)
    }
}

/// The preprocessing at the beginning of a network, in running order. It is known by the names [`add`] gives.
fn steps(graph: &Graph) -> Vec<Step<'_>> {
    let &[mut at] = graph.inputs() else { return Vec::new() };
    let mut steps = Vec::new();
    for node in graph.nodes() {
        let [Some(x), Some(constant)] = node.inputs[..] else { continue };
        let name = node.name.rsplit('/').next().unwrap_or_default();
        let what = name.strip_prefix("normalise.").map(|what| what.trim_end_matches('_'));
        if let (Some(what), Some(constant)) = (what.filter(|_| x == at), &graph[constant].constant) {
            steps.push(Step { what, op: &node.op, constant });
            at = node.output;
        }
    }
    steps
}

/// Whether a network takes samples as they are stored, because it brings them to its own scale itself. A mean and a
/// deviation alone say nothing: networks that were trained here have theirs behind the scaling.
pub fn is_inside(graph: &Graph) -> bool {
    steps(graph).first().is_some_and(|step| matches!(step.what, "scale" | "range"))
}

/// `graph` with the preprocessing in front that `prepared` has inside and it has not, so that both take the same
/// samples.
pub fn like(graph: &Graph, prepared: &Graph) -> Result<Graph> {
    let (own, mut missing) = (steps(graph), steps(prepared));
    // What the network had before its preprocessing was added is at the end of both.
    let rest = missing.len().checked_sub(own.len());
    if let Some(rest) = rest.filter(|rest| missing[*rest..].iter().zip(&own).all(|(a, b)| a.is_like(b))) {
        missing.truncate(rest);
    }
    in_front(graph, |new, mut last| {
        for Step { what, op, constant } in &missing {
            last = step(new, last, what, (*op).clone(), (*constant).clone(), &|name| graph.is_free(name))?;
        }
        Ok(last)
    })
}

/// The network with something between its input and all that reads it.
fn in_front(graph: &Graph, add: impl FnOnce(&mut Graph, ValueId) -> Result<ValueId>) -> Result<Graph> {
    let &[input] = graph.inputs() else {
        return Err(Error::unsupported(format!(
            "preprocessing needs a network with one input; this one has {}",
            graph.inputs().len()
        )));
    };
    let mut add = Some(add);
    graph.rebuild(
        |input| input.shape.clone(),
        |build, node| {
            if let Some(add) = add.take() {
                let raw = build.value(input)?;
                let ready = add(&mut build.new, raw)?;
                build.replace(input, ready);
            }
            build.copy(node)
        },
    )
}

/// Adds the nodes behind `x`; what they compute. `free` says which names nothing else will have.
pub(crate) fn add(
    graph: &mut Graph,
    x: ValueId,
    normalisation: &Normalisation,
    bytes: bool,
    free: impl Fn(&str) -> bool,
) -> Result<ValueId> {
    let Normalisation { scale, raw, mean, std } = normalisation;
    // Division rather than a factor, as in the feed.
    let (factor, divisor) = match scale {
        Some(scale) => (vec![*scale], vec![]),
        None if bytes && !raw => (vec![], vec![255.0]),
        None => (vec![], vec![]),
    };
    let steps: [(&str, &[f32], Op); 4] = [
        ("scale", &factor, Mul.into()),
        ("range", &divisor, Div.into()),
        ("mean", mean, Sub.into()),
        ("std", std, Div.into()),
    ];
    let mut last = x;
    for (what, values, op) in steps {
        if values.is_empty() {
            continue;
        }
        if values.iter().any(|v| !v.is_finite()) || what == "std" && values.contains(&0.0) {
            return Err(Error::usage(format!("{what} {values:?} cannot be part of a network")));
        }
        let constant = per_channel(&graph[last].shape, values, what)?;
        last = step(graph, last, what, op, constant, &free)?;
    }
    Ok(last)
}

/// Adds one node behind `x`, under the names that tell it as preprocessing.
fn step(
    graph: &mut Graph,
    x: ValueId,
    what: &str,
    op: Op,
    constant: Tensor,
    free: &dyn Fn(&str) -> bool,
) -> Result<ValueId> {
    let mut tail = String::new();
    let taken = |tail: &str| {
        let node = format!("normalise.{what}{tail}");
        let names = [format!("input.{what}{tail}"), format!("{node}.output"), node];
        names.iter().any(|name| !free(name) || !graph.is_free(name))
    };
    while taken(&tail) {
        tail.push('_');
    }
    let constant = graph.add_constant(format!("input.{what}{tail}"), constant)?;
    let (name, output) = (format!("normalise.{what}{tail}"), format!("normalise.{what}{tail}.output"));
    graph.add_node(name, op, vec![Some(x), Some(constant)], output)
}

/// One number, or one for each channel, so that it meets its channel in an input of this shape: channels first,
/// channels last, or flat (a channel after the other, as images are flattened).
fn per_channel(input: &Shape, values: &[f32], what: &str) -> Result<Tensor> {
    let sample: Vec<usize> = input.dims().iter().skip(1).filter_map(|d| d.fixed()).collect();
    let (count, size) = (values.len(), sample.iter().product::<usize>());
    if count == 1 {
        return Tensor::new(vec![1], values.to_vec());
    }
    match sample.as_slice() {
        [channels, _, _] if *channels == count => Tensor::new(vec![count, 1, 1], values.to_vec()),
        [_, _, channels] if *channels == count => Tensor::new(vec![count], values.to_vec()),
        flat if flat.iter().filter(|n| **n != 1).count() == 1 && size % count == 0 => {
            let each = size / count;
            Tensor::new(sample, values.iter().flat_map(|v| std::iter::repeat_n(*v, each)).collect())
        }
        _ => {
            let channels = sample.first().copied().unwrap_or(1);
            Err(Error::usage(format!("{what} has {count} numbers for {channels} channels")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dataset, Feed, SampleSource};
    use crate::op::Relu;
    use crate::run::Runner;
    use crate::tensor::Dim;

    /// Two images of bytes, 2×2×3.
    struct Bytes;

    impl SampleSource for Bytes {
        fn len(&self) -> usize {
            2
        }

        fn shape(&self) -> &[usize] {
            &[3, 2, 2]
        }

        fn is_bytes(&self) -> bool {
            true
        }

        fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
            out.iter_mut().zip(0u8..).for_each(|(x, i)| *x = f32::from(i * 19 + 7) + index as f32);
            Ok(())
        }
    }

    fn network(sample: &[usize]) -> Graph {
        let mut graph = Graph::new("input.mean is taken");
        let dims = [Dim::Batch(1)].into_iter().chain(sample.iter().map(|&n| Dim::Fixed(n)));
        let x = graph.add_input("input.mean", Shape::new(dims.collect()).unwrap());
        let y = graph.add_node("relu", Relu, vec![Some(x)], "y").unwrap();
        graph.add_output(y);
        graph
    }

    #[test]
    fn inside_is_to_the_bit_what_the_feed_does_outside() {
        let three = Normalisation { mean: vec![0.1, 0.2, 0.3], std: vec![0.3, 0.7, 1.1], ..Normalisation::default() };
        let scaled = Normalisation { scale: Some(0.017), mean: vec![0.5], ..Normalisation::default() };
        let nothing = Normalisation { raw: true, ..Normalisation::default() };
        for sample in [&[3, 2, 2][..], &[2, 2, 3], &[12], &[1, 12]] {
            for normalisation in [&three, &scaled, &nothing] {
                let graph = network(sample);
                let inside = with_preprocessing(&graph, normalisation, true).unwrap();
                let run = |graph: &Graph, normalisation: &Normalisation| {
                    let dataset = Dataset::new(Box::new(Bytes), None);
                    let batch = Feed::new(dataset, graph, normalisation.clone()).unwrap().batch(&[0, 1]).unwrap();
                    Runner::new(graph).run(&[batch]).unwrap()
                };
                assert!(run(&graph, normalisation) == run(&inside, &nothing), "{sample:?} {normalisation:?}");
                let steps = inside.nodes().len() - 1;
                assert_eq!(
                    steps,
                    normalisation.mean.len().min(1) + normalisation.std.len().min(1) + usize::from(!normalisation.raw)
                );
                let again = crate::onnx::parse(&crate::onnx::to_bytes(&inside).unwrap()).unwrap();
                assert!(again == inside);
            }
        }
    }

    /// A network gets what another has inside, but not a second time what it had itself.
    #[test]
    fn two_networks_take_the_same_samples() {
        let own = Normalisation { mean: vec![0.1], std: vec![0.3], raw: true, ..Normalisation::default() };
        let added = Normalisation { mean: vec![0.1, 0.2, 0.3], ..Normalisation::default() };
        for own in [Normalisation { raw: true, ..Normalisation::default() }, own] {
            let plain = with_preprocessing(&network(&[3, 2, 2]), &own, true).unwrap();
            let prepared = with_preprocessing(&plain, &added, true).unwrap();
            assert!(is_inside(&prepared) && !is_inside(&plain));
            assert!(like(&plain, &prepared).unwrap() == prepared);
            assert!(like(&prepared, &prepared).unwrap() == prepared);
            let read = crate::onnx::parse(&crate::onnx::to_bytes(&prepared).unwrap()).unwrap();
            assert!(is_inside(&read));
        }
    }

    #[test]
    fn numbers_that_fit_no_channels_are_refused() {
        let two = Normalisation { mean: vec![0.1, 0.2], ..Normalisation::default() };
        let error = with_preprocessing(&network(&[3, 4, 4]), &two, true).unwrap_err();
        assert!(error.to_string().contains("mean has 2 numbers for 3 channels"), "{error}");
        let zero = Normalisation { std: vec![0.0], ..Normalisation::default() };
        assert!(with_preprocessing(&network(&[3, 2, 2]), &zero, true).is_err());
    }
}
