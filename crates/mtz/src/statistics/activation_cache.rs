//! Runs a network from layer to layer: values reached on a batch of samples are kept, and the next layer goes on from
//! there instead of from the images. Over all layers a network is so computed once, not once per layer.

use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::run::Runner;
use crate::tensor::Tensor;
use std::collections::BTreeMap;

/// How far a network has got on each batch of samples.
#[derive(Clone, Debug, Default)]
pub struct ActivationCache {
    batches: Vec<Option<Reached>>,
}

/// Nodes before `node` are done, and these are the values the others read.
#[derive(Clone, Debug)]
struct Reached {
    node: usize,
    values: Vec<Tensor>,
}

impl ActivationCache {
    /// Forgets everything: weights that were passed have changed.
    pub fn restart(&mut self) {
        self.batches.clear();
    }

    /// Gets ready to compute `wanted` in at most `memory` bytes at a time, and to stand at `node` afterwards if what
    /// must be kept there for `samples` samples takes at most `room` bytes. Weights behind where the cache stands may
    /// have changed.
    pub fn pass<'w>(
        &'w mut self,
        graph: &'w Graph,
        wanted: &[ValueId],
        node: usize,
        samples: usize,
        (cache_bytes, memory): (u64, u64),
    ) -> Result<LayerPass<'w>> {
        // Where this layer needs more memory than the one before, what was kept there may be too much.
        let kept_now = self.batches.iter().flatten().flat_map(|reached| &reached.values);
        if kept_now.map(|tensor| 4 * tensor.data().len() as u64).sum::<u64>() > cache_bytes {
            self.restart();
        }
        let kept = (bytes_at(graph, node).saturating_mul(samples as u64) <= cache_bytes).then(|| live(graph, node));
        let outputs: Vec<ValueId> = wanted.iter().chain(kept.iter().flatten()).copied().collect();
        let mut parts = BTreeMap::from([(0, graph.up_to(&outputs)?)]);
        for reached in self.batches.iter().flatten() {
            if let std::collections::btree_map::Entry::Vacant(entry) = parts.entry(reached.node) {
                entry.insert(graph.between(&live(graph, reached.node), &outputs)?);
            }
        }
        Ok(LayerPass { cache: self, parts, wanted: wanted.len(), node: kept.is_some().then_some(node), memory })
    }
}

/// One step of a cache, for all batches.
#[derive(Debug)]
pub struct LayerPass<'w> {
    cache: &'w mut ActivationCache,
    /// What to compute, by the node it begins at.
    parts: BTreeMap<usize, Graph>,
    wanted: usize,
    /// Where the cache stands afterwards.
    node: Option<usize>,
    /// What a run may take.
    memory: u64,
}

impl LayerPass<'_> {
    /// The wanted values on one batch; `images` gives the input of the network if it has to begin there.
    pub fn run(&mut self, batch: usize, images: &Tensor) -> Result<Vec<Tensor>> {
        if self.cache.batches.len() <= batch {
            self.cache.batches.resize(batch + 1, None);
        }
        let reached = self.cache.batches[batch].take();
        let begin = reached.as_ref().map_or(0, |s| s.node);
        let part = self.parts.get(&begin).ok_or_else(|| Error::usage("a cache goes on from where it stands"))?;
        let inputs = reached.as_ref().map_or_else(|| vec![images.clone()], |s| s.values.clone());
        let mut values = Runner::new(part).memory_limit(self.memory).run(&inputs)?;
        self.cache.batches[batch] = match self.node {
            Some(node) => Some(Reached { node, values: values.split_off(self.wanted) }),
            None => reached,
        };
        Ok(values)
    }
}

/// Bytes that a step takes beside the weights and what is kept, for `batch` samples: from node `begin` to `wanted`, and
/// to stand at `end` afterwards.
pub(crate) fn pass_bytes(
    graph: &Graph,
    wanted: &[ValueId],
    begin: usize,
    end: Option<usize>,
    batch: usize,
) -> Result<u64> {
    let outputs: Vec<ValueId> =
        wanted.iter().copied().chain(end.into_iter().flat_map(|node| live(graph, node))).collect();
    let part = match begin {
        0 => graph.up_to(&outputs)?,
        node => graph.between(&live(graph, node), &outputs)?,
    };
    let runner = Runner::new(&part);
    Ok(runner.peak_bytes(batch).saturating_sub(runner.weight_bytes()))
}

/// Bytes that are kept for one sample by who stands at `node`.
pub(crate) fn bytes_at(graph: &Graph, node: usize) -> u64 {
    live(graph, node).iter().map(|id| 4 * graph[*id].shape.elements(1) as u64).sum()
}

/// What nodes from `node` on read of what is computed before, inputs included.
fn live(graph: &Graph, node: usize) -> Vec<ValueId> {
    let (before, behind) = graph.nodes().split_at(node.min(graph.nodes().len()));
    let known: std::collections::BTreeSet<ValueId> =
        before.iter().map(|n| n.output).chain(graph.inputs().iter().copied()).collect();
    let read = behind.iter().flat_map(|n| n.inputs.iter().flatten()).chain(graph.outputs());
    let read: std::collections::BTreeSet<ValueId> = read.copied().filter(|id| known.contains(id)).collect();
    read.into_iter().collect()
}
