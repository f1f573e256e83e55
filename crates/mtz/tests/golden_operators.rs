//! Every operator with every option against onnxruntime, and what must hold for each of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;

use cases::{Case, cases};
use mtz::op::axes::{AxisLink, Port};
use mtz::op::{Inputs, NAMES, Op};
use mtz::run::Runner;
use mtz::tensor::{Tensor, View, ViewMut, strides};
use mtz::{onnx, simplify};
use std::collections::{BTreeMap, BTreeSet};

fn operators() -> Vec<Case> {
    let cases = cases("operators");
    assert!(cases.len() > 250, "golden cases are missing: {}", cases.len());
    cases
}

#[test]
fn outputs_equal_onnxruntime() {
    for case in operators() {
        case.check(&case.run(&case.graph()), "as read");
    }
}

#[test]
fn every_operator_has_golden_cases() {
    let used: BTreeSet<&str> =
        operators().iter().flat_map(|c| c.graph().nodes().iter().map(|n| n.op.name()).collect::<Vec<_>>()).collect();
    let missing: Vec<_> = NAMES.iter().filter(|n| !used.contains(*n)).collect();
    assert!(missing.is_empty(), "no golden case for {missing:?}");
}

#[test]
fn simplified_networks_compute_the_same() {
    for case in operators() {
        let graph = simplify::for_inference(&case.graph()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        case.check(&case.run(&graph), "simplified");
    }
}

#[test]
fn written_and_read_again_is_the_same_graph() {
    for case in operators() {
        let graph = case.graph();
        let bytes = onnx::to_bytes(&graph).unwrap();
        let again = onnx::read_bytes(bytes.into(), None).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        assert!(again == graph, "{}", case.name);
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for case in operators() {
        let graph = case.graph();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Runner::new(&graph).run(&case.inputs).unwrap())
        };
        assert!(with(1) == with(5), "{}", case.name);
    }
}

/// An operator's statement of which axes move together, tested by force: reorder them, and the output must only be
/// reordered.
#[test]
fn linked_axes_move_together() {
    let mut moved = 0;
    for case in operators() {
        let graph = case.graph();
        let taps: Vec<_> = graph.nodes().iter().flat_map(|n| n.inputs.iter().flatten()).copied().collect();
        let values = Runner::with_taps(&graph, &taps).run(&case.inputs).unwrap();
        let mut values = values.into_iter();
        for node in graph.nodes() {
            let inputs: Vec<Tensor> = values.by_ref().take(node.inputs.iter().flatten().count()).collect();
            // Links name inputs by position; operators with left-out inputs in between have none here.
            moved += check_links(&case.name, &node.op, &inputs);
        }
    }
    assert!(moved > 500, "only {moved} axes were tried");
}

fn forward(op: &Op, inputs: &[Tensor], shape: &[usize]) -> Tensor {
    let views: Vec<Option<View>> = inputs.iter().map(|t| Some(t.view())).collect();
    let mut data = vec![0.0; shape.iter().product()];
    op.forward(&Inputs(&views), ViewMut { shape, data: &mut data });
    Tensor::new(shape.to_vec(), data).unwrap()
}

/// Reorders each independent axis of an operator in turn; the number of axes tried.
fn check_links(name: &str, op: &Op, inputs: &[Tensor]) -> usize {
    let shapes: Vec<mtz::tensor::Shape> =
        inputs.iter().map(|t| mtz::tensor::Shape::fixed(t.shape()).unwrap()).collect();
    let shapes: Vec<Option<&mtz::tensor::Shape>> = shapes.iter().map(Some).collect();
    let Ok(shape) = op.shape(&mtz::op::Shapes(&shapes)) else { return 0 };
    let out_shape = shape.at(1);
    let input_shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let links = op.links(&input_shapes, &out_shape);
    let output = forward(op, inputs, &out_shape);
    let length = |(port, axis): (Port, usize)| match port {
        Port::Input(i) => inputs[i].shape()[axis],
        Port::Output => out_shape[axis],
    };
    let mut roots: BTreeSet<(Port, usize)> = links.iter().flat_map(|l| [l.part, l.whole]).collect();
    let mut tried = 0;
    while let Some(root) = roots.pop_first() {
        if length(root) < 2 {
            continue;
        }
        // Follow the links from this axis: first to all that correspond one to one, then to those it is a part of.
        let n = length(root);
        let permutation: Vec<usize> = (0..n).map(|i| (i + 1) % n).collect();
        let mut moves: BTreeMap<(Port, usize), Vec<usize>> = BTreeMap::from([(root, permutation)]);
        let mut complete = true;
        loop {
            let mut grown = false;
            for link in &links {
                for link in [Some(*link), reversed(link)].into_iter().flatten() {
                    if let Some(part) = moves.get(&link.part).cloned() {
                        let whole = induced(&link, &part, length(link.whole));
                        match moves.get(&link.whole) {
                            None => {
                                moves.insert(link.whole, whole);
                                grown = true;
                            }
                            Some(known) if *known != whole => complete = false,
                            Some(_) => {}
                        }
                    }
                }
            }
            if !grown {
                break;
            }
        }
        // An axis that is only a whole made of smaller parts cannot be reordered freely.
        let free =
            links.iter().filter(|l| !l.is_same()).all(|l| !moves.contains_key(&l.whole) || moves.contains_key(&l.part));
        if !complete || !free {
            continue;
        }
        let reorder = |t: &Tensor, port: Port| {
            moves
                .iter()
                .filter(|((p, _), _)| *p == port)
                .fold(t.clone(), |t, ((_, axis), order)| permuted(&t, *axis, order))
        };
        let inputs: Vec<Tensor> = inputs.iter().enumerate().map(|(i, t)| reorder(t, Port::Input(i))).collect();
        let (got, expected) = (forward(op, &inputs, &out_shape), reorder(&output, Port::Output));
        for (a, b) in got.data().iter().zip(expected.data()) {
            assert!(
                (a - b).abs() <= 1e-4 + 1e-4 * b.abs(),
                "{name}: {op:?}: axis {root:?} does not move with {moves:?}"
            );
        }
        tried += 1;
    }
    tried
}

fn reversed(link: &AxisLink) -> Option<AxisLink> {
    link.is_same().then_some(AxisLink { part: link.whole, whole: link.part, ..*link })
}

/// The reordering of `whole` that follows from reordering `part`.
fn induced(link: &AxisLink, part: &[usize], len: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    for outer in 0..link.outer {
        for (i, &from) in part.iter().enumerate() {
            for r in 0..link.inner {
                let at = |i: usize| link.offset + (outer * part.len() + i) * link.inner + r;
                order[at(i)] = at(from);
            }
        }
    }
    order
}

/// Element i along `axis` is the old element `order[i]`.
fn permuted(t: &Tensor, axis: usize, order: &[usize]) -> Tensor {
    let steps = strides(t.shape());
    let data = (0..t.data().len()).map(|flat| {
        let i = flat / steps[axis] % t.shape()[axis];
        t.data()[flat - i * steps[axis] + order[i] * steps[axis]]
    });
    Tensor::new(t.shape().to_vec(), data.collect()).unwrap()
}
