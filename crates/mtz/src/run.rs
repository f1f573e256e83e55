//! Runs a network forward on the CPU, with taps on any value.
//!
//! Values are freed at their last use and their memory is used again. Threads are those of the rayon pool the call
//! happens in; results do not depend on their number.

use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::kernel::simd;
use crate::op::{Inputs, Op};
use crate::tensor::{Dim, Tensor, View, ViewMut};
use std::sync::Arc;

/// Memory a run may take unless told otherwise.
pub const DEFAULT_MEMORY: u64 = 8 << 30;

/// The instruction set that networks run with here: results on machines that differ in it differ in rounding.
pub fn vectors() -> &'static str {
    match simd::level() {
        simd::Level::Portable => "portable",
        simd::Level::Avx2 => "AVX2",
        simd::Level::Avx512 => "AVX-512",
    }
}

/// A network made ready to run by some engine.
pub trait Forward: Send {
    /// The values that were asked for, for a batch of inputs.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;
}

/// What runs networks forward, with taps on any value.
pub trait Inference: Sync {
    /// Makes `graph` ready to compute `wanted`, for batches of up to `batch` samples and in at most `memory` bytes.
    fn prepare<'g>(
        &self,
        graph: &'g Graph,
        wanted: &[ValueId],
        batch: usize,
        memory: u64,
    ) -> Result<Box<dyn Forward + 'g>>;
}

/// The built-in engine: all cores of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuEngine;

impl Inference for CpuEngine {
    fn prepare<'g>(
        &self,
        graph: &'g Graph,
        wanted: &[ValueId],
        batch: usize,
        memory: u64,
    ) -> Result<Box<dyn Forward + 'g>> {
        let runner = Runner::with_taps(graph, wanted).memory_limit(memory);
        runner.check_memory(batch)?;
        Ok(Box::new(runner))
    }
}

impl Forward for Runner<'_> {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Runner::run(self, inputs)
    }
}

/// A network ready to run.
#[derive(Debug)]
pub struct Runner<'g> {
    graph: &'g Graph,
    wanted: Vec<ValueId>,
    /// For each node, the values nobody needs after it.
    dead_after: Vec<Vec<ValueId>>,
    /// For each node, whether it is a convolution whose only reader is the `Relu` behind it: then the two are computed
    /// in one.
    fused: Vec<bool>,
    free: Vec<Vec<f32>>,
    memory: u64,
}

impl<'g> Runner<'g> {
    /// Runs `graph` for its outputs.
    pub fn new(graph: &'g Graph) -> Self {
        Self::with_taps(graph, graph.outputs())
    }

    /// Runs `graph` for any of its values.
    pub fn with_taps(graph: &'g Graph, wanted: &[ValueId]) -> Self {
        let mut last_use: Vec<Option<usize>> = vec![None; graph.values().len()];
        for (i, node) in graph.nodes().iter().enumerate() {
            // An output nobody reads dies at once.
            for id in node.inputs.iter().flatten().chain([&node.output]) {
                last_use[id.index()] = Some(i);
            }
        }
        let mut dead_after = vec![Vec::new(); graph.nodes().len()];
        for id in graph.nodes().iter().flat_map(|n| n.inputs.iter().flatten().chain([&n.output])) {
            if let Some(i) = last_use[id.index()].take()
                && graph[*id].constant.is_none()
                && !wanted.contains(id)
            {
                dead_after[i].push(*id);
            }
        }
        let fused = fused(graph, wanted);
        Self { graph, wanted: wanted.to_vec(), dead_after, fused, free: Vec::new(), memory: DEFAULT_MEMORY }
    }

    /// Refuses runs that need more memory than this.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// The most memory that values take at one time for a batch of `batch` samples, weights included.
    pub fn peak_bytes(&self, batch: usize) -> u64 {
        let bytes = |id: &ValueId| 4u64.saturating_mul(self.graph[*id].shape.elements(batch) as u64);
        let mut now = self.graph.inputs().iter().map(bytes).fold(self.weight_bytes(), u64::saturating_add);
        let mut peak = now;
        for (node, dead) in self.graph.nodes().iter().zip(&self.dead_after) {
            now = now.saturating_add(bytes(&node.output));
            let shapes: Vec<Vec<usize>> =
                node.inputs.iter().flatten().map(|id| self.graph[*id].shape.at(batch)).collect();
            let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
            let scratch = node.op.scratch(&shapes, &self.graph[node.output].shape.at(batch));
            peak = peak.max(now.saturating_add(scratch));
            now = dead.iter().fold(now, |now, id| now.saturating_sub(bytes(id)));
        }
        peak
    }

    /// Bytes of the network's weights.
    pub fn weight_bytes(&self) -> u64 {
        self.graph.values().iter().filter_map(|v| v.constant.as_ref()).map(|t| 4 * t.data().len() as u64).sum()
    }

    /// Refuses a batch size whose values would not fit into the memory allowed.
    pub fn check_memory(&self, batch: usize) -> Result<()> {
        let needed = self.peak_bytes(batch);
        if needed > self.memory {
            return Err(Error::limit(format!(
                "a batch of {batch} needs {} MiB of memory, {} MiB are allowed",
                needed >> 20,
                self.memory >> 20
            ))
            .hint("use a smaller `batch_size`, or allow more with `memory`"));
        }
        Ok(())
    }

    /// Computes the wanted values for one batch.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.run_and_tell(inputs, |_| {})
    }

    /// The same; `done` hears of every node once it is computed, in their order.
    pub(crate) fn run_and_tell(&mut self, inputs: &[Tensor], mut done: impl FnMut(usize)) -> Result<Vec<Tensor>> {
        let batch = self.check(inputs)?;
        self.check_memory(batch)?;
        let mut values: Vec<Option<Tensor>> = self.graph.values().iter().map(|v| v.constant.clone()).collect();
        for (id, tensor) in self.graph.inputs().iter().zip(inputs) {
            values[id.index()] = Some(tensor.clone());
        }
        for (i, (node, dead)) in self.graph.nodes().iter().zip(&self.dead_after).enumerate() {
            let shape = self.graph[node.output].shape.at(batch);
            let done_before = matches!(node.op, Op::Relu(_)) && i > 0 && self.fused[i - 1];
            let views: Vec<Option<View>> =
                node.inputs.iter().map(|id| id.and_then(|id| values[id.index()].as_ref()).map(Tensor::view)).collect();
            let first = node.inputs.first().copied().flatten();
            let output = if (node.op.is_view() || done_before)
                && let Some(tensor) = first.and_then(|id| values[id.index()].as_ref())
            {
                Tensor::from_shared(shape, Arc::clone(tensor.shared()))
            } else {
                let mut data = take(&mut self.free, shape.iter().product());
                let out = ViewMut { shape: &shape, data: &mut data };
                match &node.op {
                    Op::Conv(conv) if self.fused[i] => conv.forward_relu(&Inputs(&views), out),
                    op => op.forward(&Inputs(&views), out),
                }
                Tensor::new(shape, data)
            };
            values[node.output.index()] = Some(output.map_err(|e| e.at_node(&node.name))?);
            for id in dead {
                // The memory returns when nobody else holds it: neither a view of it nor the caller.
                if let Some(Ok(data)) = values[id.index()].take().map(|t| Arc::try_unwrap(t.into_shared())) {
                    self.free.push(data);
                }
            }
            done(i);
        }
        for id in &self.wanted {
            // What is handed out may be kept for long: not in a buffer that was made for something larger.
            values[id.index()] = values[id.index()].take().map(Tensor::without_spare_room);
        }
        self.wanted
            .iter()
            .map(|id| {
                values[id.index()]
                    .clone()
                    .ok_or_else(|| Error::model(format!("{:?} is not computed", self.graph[*id].name)))
            })
            .collect()
    }

    /// Compares the inputs with what the network expects; the batch size.
    fn check(&self, inputs: &[Tensor]) -> Result<usize> {
        let expected = self.graph.inputs();
        if inputs.len() != expected.len() {
            return Err(Error::data(format!("the network has {} inputs, {} are given", expected.len(), inputs.len())));
        }
        let mut batch = None;
        for (id, tensor) in expected.iter().zip(inputs) {
            let value = &self.graph[*id];
            let wrong = || {
                let (name, shape) = (&value.name, &value.shape);
                Error::data(format!("input {name:?} expects {shape}, got {:?}", tensor.shape()))
            };
            if tensor.shape().len() != value.shape.rank() {
                return Err(wrong());
            }
            for (dim, &got) in value.shape.dims().iter().zip(tensor.shape()) {
                let fits = match dim {
                    Dim::Fixed(n) => *n == got,
                    Dim::Batch(k) => got > 0 && got % k == 0 && *batch.get_or_insert(got / k) == got / k,
                };
                if !fits {
                    return Err(wrong());
                }
            }
        }
        Ok(batch.unwrap_or(1))
    }
}

/// Which convolutions are followed by a `Relu` that is all they are for.
fn fused(graph: &Graph, wanted: &[ValueId]) -> Vec<bool> {
    let mut readers = vec![0; graph.values().len()];
    graph.nodes().iter().flat_map(|n| n.inputs.iter().flatten()).for_each(|id| readers[id.index()] += 1);
    let follows = |i: usize, output: ValueId| {
        let next = graph.nodes().get(i + 1);
        next.is_some_and(|n| matches!(n.op, Op::Relu(_)) && n.inputs.first() == Some(&Some(output)))
    };
    let nodes = graph.nodes().iter().enumerate().map(|(i, node)| {
        let only = readers[node.output.index()] == 1 && !wanted.contains(&node.output);
        matches!(node.op, Op::Conv(_)) && only && follows(i, node.output)
    });
    nodes.collect()
}

/// A buffer of `len` numbers: the smallest free one that is large enough, or a new one.
fn take(free: &mut Vec<Vec<f32>>, len: usize) -> Vec<f32> {
    let best = free.iter().enumerate().filter(|(_, b)| b.capacity() >= len).min_by_key(|(_, b)| b.capacity());
    let best = best.map(|(i, _)| i).or_else(|| free.len().checked_sub(1));
    let mut buffer = best.map(|i| free.swap_remove(i)).unwrap_or_default();
    buffer.resize(len, 0.0);
    buffer
}
