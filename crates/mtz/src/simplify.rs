//! Passes that make a graph smaller without changing what it computes, one function each.

use crate::error::Result;
use crate::graph::{Graph, Node, Rebuild, Value, ValueId};
use crate::op::{Conv, Gemm, Inputs, Op};
use crate::tensor::{Shape, Tensor, View, ViewMut};
use std::collections::{HashMap, HashSet};

/// Folded constants may have so many elements in all (256 MiB); beyond, they are computed each time.
const MAX_FOLDED: usize = 1 << 26;

/// Everything that helps inference.
pub fn for_inference(graph: &Graph) -> Result<Graph> {
    let mut graph = graph.clone();
    for pass in [remove_identities, fold_constants, fuse_matmul_add, fold_batch_normalization] {
        graph = pass(&graph)?;
    }
    Ok(graph)
}

fn shape(input: &Value) -> Shape {
    input.shape.clone()
}

/// Leaves out nodes and weights that no output depends on.
pub fn remove_dead_code(graph: &Graph) -> Result<Graph> {
    graph.rebuild(shape, |build, node| build.copy(node))
}

/// Leaves out `Identity` and `Dropout`, which pass their input on.
pub fn remove_identities(graph: &Graph) -> Result<Graph> {
    graph.rebuild(shape, |build, node| match (&node.op, node.inputs.first()) {
        (Op::Identity(_) | Op::Dropout(_), Some(Some(input))) => build.value(*input),
        _ => build.copy(node),
    })
}

/// Computes nodes that read only weights.
pub fn fold_constants(graph: &Graph) -> Result<Graph> {
    // The weights of a task of a joint model are put together in four steps, each as large as they are.
    let weights: usize = graph.values().iter().filter_map(|v| v.constant.as_ref()).map(|t| t.data().len()).sum();
    let mut elements_left = MAX_FOLDED.max(weights.saturating_mul(5));
    let folded = graph.rebuild(shape, |build, node| {
        let inputs = build.inputs(node)?;
        let constants: Option<Vec<Option<Tensor>>> =
            inputs.iter().map(|id| id.map_or(Some(None), |id| build.new[id].constant.clone().map(Some))).collect();
        match constants {
            Some(constants) if graph[node.output].shape.elements(1) <= elements_left => {
                let shape = graph[node.output].shape.at(1);
                elements_left -= shape.iter().product::<usize>();
                let views: Vec<Option<View>> = constants.iter().map(|t| t.as_ref().map(Tensor::view)).collect();
                let mut data = vec![0.0; shape.iter().product()];
                node.op.forward(&Inputs(&views), ViewMut { shape: &shape, data: &mut data });
                build.new.add_constant(graph[node.output].name.clone(), Tensor::new(shape, data)?)
            }
            _ => build.copy(node),
        }
    })?;
    remove_dead_code(&folded)
}

/// What makes layers out of how exporters write them: matrix products become `Gemm` with weights stored outputs ×
/// inputs, as joint models store them (products of one row differ in the last bits with the layout, and a run that goes
/// on from a file should not), and every layer and normalisation has weights of its own. (Tools that shrink files store
/// equal ones once, zero biases say; they will not stay equal.)
pub fn for_zipping(graph: &Graph) -> Result<Graph> {
    let fused = fuse_matmul_add(&fold_constants(graph)?)?;
    let has_weights = |node: &Node| {
        is_matrix_product(&fused, node) || matches!(node.op, Op::Conv(_) | Op::Gemm(_) | Op::BatchNormalization(_))
    };
    // What other nodes read as well is not a layer's to change.
    let others = fused.nodes().iter().filter(|node| !has_weights(node)).flat_map(|node| &node.inputs).flatten();
    let mut taken: HashSet<ValueId> = others.chain(fused.outputs()).copied().collect();
    let own = fused.rebuild(shape, |build, node| {
        if !has_weights(node) {
            return build.copy(node);
        }
        let mut op = if is_matrix_product(&fused, node) { Gemm::PLAIN.into() } else { node.op.clone() };
        let mut turned = None;
        if let (Op::Gemm(gemm), Some(Some(weight))) = (&mut op, node.inputs.get(1))
            && let Some(constant) = fused[*weight].constant.as_ref().filter(|_| !gemm.transpose_b)
        {
            turned = Some(constant.transposed()?);
            gemm.transpose_b = true;
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, input) in node.inputs.iter().enumerate() {
            let Some(old) = *input else {
                inputs.push(None);
                continue;
            };
            let own = taken.insert(old);
            let turned = turned.as_ref().filter(|_| i == 1);
            inputs.push(Some(match (&fused[old].constant, turned) {
                (Some(_), Some(weight)) if own => build.new.add_constant(fused[old].name.clone(), weight.clone())?,
                (Some(constant), weight) if !own => {
                    let name = format!("{} of {}", fused[old].name, node.name);
                    build.new.add_constant(name, weight.unwrap_or(constant).clone())?
                }
                _ => build.value(old)?,
            }));
        }
        build.new.add_node(node.name.clone(), op, inputs, fused[node.output].name.clone())
    })?;
    biases_into_normalizations(&own)
}

/// Moves the bias of a layer into the mean of the batch normalisation that alone reads it: s ((w x + b) − m) = s (w x −
/// (m − b)). So every offset is stored in one place: with the layer where no normalisation follows, else with the
/// normalisation.
fn biases_into_normalizations(graph: &Graph) -> Result<Graph> {
    let found = Producers::of(graph);
    let biased = |node: &Node| -> Option<(ValueId, Tensor)> {
        let (Op::BatchNormalization(_), &[Some(x), _, _, Some(mean), Some(_)]) = (&node.op, node.inputs.as_slice())
        else {
            return None;
        };
        let layer = found.sole_producer(x)?;
        let plain = match &layer.op {
            Op::Conv(_) => true,
            Op::Gemm(gemm) => gemm.alpha == 1.0 && gemm.beta == 1.0,
            _ => false,
        };
        let &[_, Some(_), Some(bias)] = layer.inputs.as_slice() else { return None };
        let (bias, old) = (graph[bias].constant.as_ref()?, graph[mean].constant.as_ref()?);
        let row = bias.data().len() == old.data().len() && bias.shape().last() == Some(&old.data().len());
        let moved = old.data().iter().zip(bias.data()).map(|(mean, bias)| mean - bias).collect();
        let moved = Tensor::new(old.shape().to_vec(), moved).ok()?;
        (plain && row).then_some((layer.output, moved))
    };
    let means: HashMap<ValueId, (ValueId, Tensor)> =
        graph.nodes().iter().filter_map(|node| Some((node.output, biased(node)?))).collect();
    let bare: HashSet<ValueId> = means.values().map(|(layer, _)| *layer).collect();
    let moved = graph.rebuild(shape, |build, node| {
        let mut inputs = build.inputs(node)?;
        if bare.contains(&node.output) {
            inputs.truncate(2);
        }
        if let (Some((_, mean)), Some(slot)) = (means.get(&node.output), inputs.get_mut(3)) {
            let name = slot.map_or_else(String::new, |id| build.new[id].name.clone());
            *slot = Some(build.new.add_constant(name, mean.clone())?);
        }
        build.new.add_node(node.name.clone(), node.op.clone(), inputs, graph[node.output].name.clone())
    })?;
    remove_dead_code(&moved)
}

/// `MatMul` with a weight matrix, followed by `Add` of a bias, becomes `Gemm`.
pub fn fuse_matmul_add(graph: &Graph) -> Result<Graph> {
    let found = Producers::of(graph);
    let fused = graph.rebuild(shape, |build, node| {
        let Some((product, bias)) = matmul_add(graph, &found, node) else {
            return build.copy(node);
        };
        let mut inputs = build.inputs(product)?;
        inputs.push(Some(build.value(bias)?));
        build.new.add_node(product.name.clone(), Gemm::PLAIN, inputs, graph[node.output].name.clone())
    })?;
    remove_dead_code(&fused)
}

/// The product and the bias, if `node` is an `Add` that can become a `Gemm`.
fn matmul_add<'g>(graph: &Graph, found: &Producers<'g>, node: &Node) -> Option<(&'g Node, ValueId)> {
    let (Op::Add(_), &[Some(a), Some(b)]) = (&node.op, node.inputs.as_slice()) else { return None };
    let (product, bias) = [(a, b), (b, a)].into_iter().find_map(|(x, bias)| {
        let product = found.sole_producer(x)?;
        is_matrix_product(graph, product).then_some((product, bias))
    })?;
    // The bias must not enlarge the product.
    let fits = graph[node.output].shape == graph[product.output].shape;
    (graph[bias].constant.is_some() && fits).then_some((product, bias))
}

/// A matrix times a weight matrix.
fn is_matrix_product(graph: &Graph, node: &Node) -> bool {
    match (&node.op, node.inputs.as_slice()) {
        (Op::MatMul(_), &[Some(x), Some(w)]) => {
            graph[x].shape.rank() == 2 && graph[w].shape.rank() == 2 && graph[w].constant.is_some()
        }
        _ => false,
    }
}

/// Puts the factor and offset of a `BatchNormalization` into the weights of the `Conv` or `Gemm` it follows.
pub fn fold_batch_normalization(graph: &Graph) -> Result<Graph> {
    let found = Producers::of(graph);
    let folded = graph.rebuild(shape, |build, node| match foldable(graph, &found, node) {
        Some((layer, affine)) => fold_into(graph, build, layer, node, &affine),
        None => build.copy(node),
    })?;
    remove_dead_code(&folded)
}

/// The layer in front of a batch normalisation, and the normalisation as factor and offset per output.
fn foldable<'g>(graph: &Graph, found: &Producers<'g>, node: &Node) -> Option<(&'g Node, Vec<(f32, f32)>)> {
    let (Op::BatchNormalization(norm), &[Some(x), Some(scale), Some(bias), Some(mean), Some(variance)]) =
        (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    let constant = |id: ValueId| graph[id].constant.as_ref().map(Tensor::data);
    let affine = norm.affine(constant(scale)?, constant(bias)?, constant(mean)?, constant(variance)?);
    let layer = found.sole_producer(x)?;
    let weights = layer.inputs.iter().skip(1).flatten().all(|id| graph[*id].constant.is_some());
    // A Gemm whose C is one number, or one row per sample, has no bias per output to fold into.
    let plain_bias = match (&layer.op, layer.inputs.get(2)) {
        (Op::Gemm(_), Some(Some(c))) => match graph[*c].shape.at(1).split_last() {
            Some((&last, others)) => last == affine.len() && others.iter().all(|&n| n == 1),
            None => false,
        },
        _ => true,
    };
    let layer_op = matches!(layer.op, Op::Conv(_) | Op::Gemm(_));
    (layer_op && weights && plain_bias).then_some((layer, affine))
}

/// factor · (W x + b) + offset = (factor · W) x + (factor · b + offset), per output.
fn fold_into(graph: &Graph, build: &mut Rebuild, layer: &Node, norm: &Node, affine: &[(f32, f32)]) -> Result<ValueId> {
    let mut inputs = build.inputs(layer)?;
    let &[_, Some(w), ..] = layer.inputs.as_slice() else { return build.copy(norm) };
    let Some(weight) = &graph[w].constant else { return build.copy(norm) };
    // Outputs are the first axis of W, except in a Gemm with W as inputs × outputs. C counts β times.
    let (per_output, beta) = match &layer.op {
        Op::Gemm(gemm) if !gemm.transpose_b => (1, gemm.beta),
        Op::Gemm(gemm) => (weight.data().len() / affine.len(), gemm.beta),
        _ => (weight.data().len() / affine.len(), 1.0),
    };
    let scaled = weight.data().iter().enumerate().map(|(i, w)| w * affine[i / per_output % affine.len()].0).collect();
    let old_bias = layer.inputs.get(2).copied().flatten().and_then(|b| graph[b].constant.as_ref());
    let bias = affine.iter().enumerate().map(|(i, (factor, offset))| {
        let old = old_bias.and_then(|b| b.data().get(i)).copied().unwrap_or(0.0);
        factor * beta * old + offset
    });
    let new_weight = Tensor::new(weight.shape().to_vec(), scaled)?;
    let new_bias = Tensor::new(vec![affine.len()], bias.collect())?;
    let name = &graph[norm.output].name;
    inputs.truncate(1);
    inputs.push(Some(build.new.add_constant(format!("{name}.weight"), new_weight)?));
    inputs.push(Some(build.new.add_constant(format!("{name}.bias"), new_bias)?));
    let op: Op = match &layer.op {
        Op::Gemm(gemm) => Gemm { beta: 1.0, ..*gemm }.into(),
        Op::Conv(conv) => Conv::clone(conv).into(),
        other => other.clone(),
    };
    build.new.add_node(layer.name.clone(), op, inputs, name.clone())
}

/// Which node computes a value, and how many read it.
struct Producers<'g> {
    nodes: HashMap<ValueId, &'g Node>,
    readers: HashMap<ValueId, usize>,
}

impl<'g> Producers<'g> {
    fn of(graph: &'g Graph) -> Self {
        let mut readers = HashMap::new();
        for id in graph.nodes().iter().flat_map(|n| n.inputs.iter().flatten()).chain(graph.outputs()) {
            *readers.entry(*id).or_default() += 1;
        }
        Self { nodes: graph.nodes().iter().map(|n| (n.output, n)).collect(), readers }
    }

    /// The node that computes `value`, if nobody else reads the value.
    fn sole_producer(&self, value: ValueId) -> Option<&'g Node> {
        (self.readers.get(&value) == Some(&1)).then(|| self.nodes.get(&value).copied()).flatten()
    }
}
